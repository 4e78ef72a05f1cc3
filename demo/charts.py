"""Drawings for the page, as SVG that takes its colours from the page's style sheet. They know numbers and words, nothing of flights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import floor, log10
from typing import Final

WIDTH: Final = 1080
POINTS: Final = 300  # of a curve, at most


@dataclass(frozen=True, slots=True)
class Curve:
    """`style` is a class of the style sheet; `points` are (x, share from 0 to 1)."""

    name: str
    style: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at x. `style` is a class of the style sheet."""

    at: float
    text: str
    style: str


def svg(width: float, height: float, parts: Iterable[str], *, label: str) -> str:
    inner = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">\n{inner}\n</svg>'
    )


def text(x: float, y: float, words: str, style: str = "", *, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>'


def box(
    x: float,
    y: float,
    width: float,
    height: float,
    style: str,
    *,
    tip: str = "",
    round: float = 2,
    fill: str = "",
) -> str:
    title = f"<title>{escape(tip)}</title>" if tip else ""
    colour = f' style="fill:{fill}"' if fill else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{round:g}" class="{style}"{colour}>{title}</rect>'


def step_of(most: float, wanted: int = 6) -> float:
    """A round distance between about `wanted` ticks up to `most`: 1, 2 or 5 times a power of ten."""
    rough = max(most, 1e-9) / wanted
    power = 10.0 ** floor(log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)


def ticks(most: float, wanted: int = 6) -> list[float]:
    step = step_of(most, wanted)
    return [step * at for at in range(floor(most / step + 1e-6) + 1)]


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """No more points than a curve needs; the last one stays."""
    every = max(1, -(-len(points) // POINTS))
    return [*points[:-1:every], *points[-1:]]


def curves(found: Sequence[Curve], marks: Sequence[Mark], *, seconds: float) -> str:
    """Shares over time, with what happened as upright lines."""
    height, left, right, top, bottom = 380.0, 56.0, 16.0, 58.0, 38.0
    wide, high = WIDTH - left - right, height - top - bottom

    def x(at: float) -> float:
        return left + wide * max(0.0, at) / seconds

    def y(share: float) -> float:
        return top + high * (1 - share)

    parts = []
    for percent in (0, 25, 50, 75, 100):
        parts += [line(left, y(percent / 100), WIDTH - right, y(percent / 100), "grid")]
        parts += [text(left - 8, y(percent / 100) + 4, f"{percent} %", "tick", anchor="end")]
    parts += [
        text(x(at), height - bottom + 20, f"{at:g} s", "tick", anchor="middle") for at in ticks(seconds, 10)
    ]
    parts += _marks(marks, x, top, height - bottom)
    for curve in found:
        path = " ".join(f"{x(at):.1f},{y(share):.1f}" for at, share in thinned(curve.points))
        parts.append(
            f'<polyline points="{path}" class="curve {curve.style}"><title>{escape(curve.name)}</title></polyline>'
        )
    return svg(WIDTH, height, parts, label="How far everybody was, over time")


def _marks(marks: Sequence[Mark], x: Callable[[float], float], top: float, bottom: float) -> list[str]:
    """Each with its words above, on the first of three rows where there is room."""
    parts, ends = [], [0.0, 0.0, 0.0]
    for mark in sorted(marks, key=lambda mark: mark.at):
        at, wide = x(mark.at), 7.0 * len(mark.text) + 14
        begin = min(max(at - 6, 0.0), WIDTH - wide)
        row = next((row for row, end in enumerate(ends) if begin >= end), 0)
        ends[row] = begin + wide
        base = top - 10 - 17 * row
        parts += [
            line(at, base + 3, at, bottom, f"mark {mark.style}"),
            text(begin, base, mark.text, f"mark-text {mark.style}"),
        ]
    return parts


@dataclass(frozen=True, slots=True)
class Bar:
    """`cells` are the texts of the columns to the right of the bar."""

    name: str
    value: float
    tip: str
    cells: Sequence[str]


def bars(rows: Sequence[Bar], columns: Sequence[str], *, unit: str) -> str:
    """Lying bars with their names to the left and columns of figures to the right."""
    row, left, top, cell = 27.0, 232.0, 26.0, 92.0
    wide = WIDTH - left - cell * len(columns) - 70
    most = max((bar.value for bar in rows), default=1.0) or 1.0
    right = WIDTH - cell * len(columns)
    parts = [
        text(right + cell * (at + 1) - 8, 14, name, "tick", anchor="end") for at, name in enumerate(columns)
    ]
    for at, bar in enumerate(rows):
        y = top + row * at
        length = wide * max(0.0, bar.value) / most
        parts += [
            line(0, y + row - 2, WIDTH, y + row - 2, "rule"),
            text(left - 12, y + 17, bar.name, "name", anchor="end"),
            box(left, y + 4, length, row - 10, "bar", tip=bar.tip),
            text(left + length + 6, y + 17, f"{bar.value:.1f} {unit}", "value"),
            *[
                text(right + cell * (index + 1) - 8, y + 17, words, "cell", anchor="end")
                for index, words in enumerate(bar.cells)
            ],
        ]
    return svg(WIDTH, top + row * len(rows) + 4, parts, label=f"By name, in {unit}")


def columns(
    values: Mapping[str, float], dots: Mapping[str, float], tips: Mapping[str, str], *, unit: str
) -> str:
    """Standing bars, one per name, with a dot above each."""
    height, left, top, bottom = 270.0, 56.0, 14.0, 30.0
    high = height - top - bottom
    most = max([*values.values(), *dots.values(), 1.0]) * 1.04
    slot = (WIDTH - left - 8) / max(1, len(values))

    def y(value: float) -> float:
        return top + high * (1 - max(0.0, value) / most)

    parts = []
    for tick in ticks(most, 5):
        parts += [
            line(left, y(tick), WIDTH - 8, y(tick), "grid"),
            text(left - 8, y(tick) + 4, f"{tick:g}", "tick", anchor="end"),
        ]
    for at, (name, value) in enumerate(values.items()):
        middle = left + slot * (at + 0.5)
        parts += [box(middle - slot * 0.34, y(value), slot * 0.68, y(0) - y(value), "bar", tip=tips[name])]
        parts += [
            f'<circle cx="{middle:.1f}" cy="{y(dots[name]):.1f}" r="4.5" class="dot"><title>{escape(tips[name])}</title></circle>'
        ]
        parts += [text(middle, height - 8, name, "tick", anchor="middle")]
    return svg(WIDTH, height, parts, label=f"By hour, in {unit}")


def heatmap(
    rows: Sequence[str], names: Sequence[str], cells: Mapping[tuple[str, str], tuple[float, str]]
) -> str:
    """A field for each (row, column) that has a value, in a colour that says how much; each with its tip."""
    high, left, top = 25.0, 232.0, 4.0
    wide = (WIDTH - left - 8) / max(1, len(names))
    parts = []
    for at, row in enumerate(rows):
        y = top + high * at
        parts.append(text(left - 12, y + 17, row, "name", anchor="end"))
        for index, name in enumerate(names):
            if (row, name) in cells:
                value, tip = cells[row, name]
                x = left + wide * index
                parts.append(
                    box(x + 1, y + 1, wide - 2, high - 2, "heat", tip=tip, round=3, fill=heat(value))
                )
                style = "heat-text-light" if value >= HOT else "heat-text"
                parts.append(text(x + wide / 2, y + 17, f"{round(value)}", style, anchor="middle"))
    bottom = top + high * len(rows)
    parts += [
        text(left + wide * (index + 0.5), bottom + 18, name, "tick", anchor="middle")
        for index, name in enumerate(names)
    ]
    return svg(WIDTH, bottom + 28, parts, label="By row and column")


HOT: Final = 24.0  # minutes; from here on the fields are dark enough for light figures
SCALE: Final = (
    (-5.0, (222, 240, 234)),
    (5.0, (253, 243, 208)),
    (20.0, (247, 181, 86)),
    (40.0, (217, 72, 62)),
    (70.0, (122, 22, 52)),
)


def heat(value: float) -> str:
    """A colour between those of the scale."""
    low, high = SCALE[0], SCALE[-1]
    value = min(max(value, low[0]), high[0])
    for (below, first), (above, second) in pairwise(SCALE):
        if value <= above:
            share = (value - below) / (above - below)
            red, green, blue = (round(a + (b - a) * share) for a, b in zip(first, second, strict=True))
            return f"rgb({red},{green},{blue})"
    return heat(high[0])


@dataclass(frozen=True, slots=True)
class Station:
    """A box of the way that messages take, at (x, y), with lines of text; `style` is a class of the style sheet."""

    x: float
    y: float
    lines: Sequence[str]
    style: str = ""


STATION: Final = (196.0, 66.0)


def way(stations: Mapping[str, Station], roads: Sequence[tuple[str, str]], *, height: float) -> str:
    """Boxes and the arrows between them; roads are (from, to)."""
    wide, high = STATION
    parts = [
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" class="tip"/></marker></defs>'
    ]
    parts += [
        f'<path d="{_road(stations[start], stations[end])}" class="road" marker-end="url(#tip)"/>'
        for start, end in roads
    ]
    for station in stations.values():
        parts.append(box(station.x, station.y, wide, high, f"station {station.style}", round=8))
        first, *rest = station.lines
        middle, y = station.x + wide / 2, station.y + (24 if len(rest) > 1 else 30)
        parts.append(text(middle, y, first, "station-name", anchor="middle"))
        parts += [
            text(middle, y + 17 + 15 * at, words, "tick", anchor="middle") for at, words in enumerate(rest)
        ]
    return svg(WIDTH, height, parts, label="The way of a message")


def _road(start: Station, end: Station) -> str:
    """To the right in a bend, straight down, back to the left from below, or down and then to the left."""
    wide, high = STATION
    if end.x > start.x:
        x1, y1, x2, y2 = start.x + wide, start.y + high / 2, end.x - 3, end.y + high / 2
        return (
            f"M{x1:.0f},{y1:.0f} C{(x1 + x2) / 2:.0f},{y1:.0f} {(x1 + x2) / 2:.0f},{y2:.0f} {x2:.0f},{y2:.0f}"
        )
    if end.x == start.x:
        return f"M{start.x + wide / 2:.0f},{start.y + high:.0f} V{end.y - 3:.0f}"
    if end.y < start.y:
        return f"M{start.x:.0f},{start.y + high / 2:.0f} H{end.x + wide * 0.65:.0f} V{end.y + high + 3:.0f}"
    return (
        f"M{start.x + wide * 0.35:.0f},{start.y + high:.0f} V{end.y + high / 2:.0f} H{end.x + wide + 3:.0f}"
    )
