"""The page of a report: figures, four drawings and the tables, as one HTML file that loads nothing.

Decides how it looks. Knows rows of figures, neither Spark nor the broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from math import log10
from typing import Any, Final

Rows = Sequence[Mapping[str, Any]]

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 1040, 260, 74, 30, 14
COLOURS: Final = ("#2f6fb0", "#d9822b", "#3b9a5a", "#b3454f", "#7b5ea7", "#8a6d3b", "#c26ba0", "#6b7780")
MOST_DRAWN: Final = 7  # addresses with a colour of their own; the rest together
MOST_LISTED: Final = 500  # rows of a table on the page; all are in the Parquet
STYLE: Final = """
:root{color-scheme:light dark;--text:#1d2630;--soft:#5b6875;--line:#dfe4e9;--back:#fff;--card:#f5f7f9}
@media(prefers-color-scheme:dark){:root{--text:#e3e8ed;--soft:#98a4b0;--line:#2d3640;--back:#14191f;--card:#1c232b}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--back);max-width:1080px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem;margin:0 0 .2rem}h2{font-size:1.1rem;margin:2.2rem 0 .4rem}p{color:var(--soft);margin:.2rem 0}
.cards{display:flex;flex-wrap:wrap;gap:.8rem;margin:1.2rem 0}
.card{background:var(--card);border-radius:8px;padding:.7rem 1rem;flex:1}
.card b{display:block;font-size:1.5rem;font-variant-numeric:tabular-nums}.card span{color:var(--soft);font-size:.85rem}
svg{width:100%;height:auto;display:block}svg text{fill:var(--soft);font-size:12px}.grid{stroke:var(--line)}
.key{display:flex;flex-wrap:wrap;gap:.2rem 1.1rem;font-size:.85rem;color:var(--soft)}.key i{display:inline-block;width:.8em;height:.8em;
border-radius:2px;margin-right:.4em}.scroll{overflow-x:auto;max-height:26rem}
table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums;width:100%}
th,td{text-align:right;padding:.25rem .6rem;border-bottom:1px solid var(--line);white-space:nowrap}
th{position:sticky;top:0;background:var(--back);color:var(--soft);font-weight:600}td.name,th.name{text-align:left}
"""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all rows, of which the page lists the first ones. `worst_wait`: ms, None where nothing is archived."""

    messages: int
    bytes: int
    addresses: int
    waiting: int
    dead: int
    worst_wait: int | None
    hour_rows: int
    lag_rows: int
    dead_rows: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What the page of a report draws. `drawn`: sums and highest values per `unit` (hour or day) and address, the small addresses as one
    called `others`."""

    title: str
    totals: Totals
    drawn: Rows
    hours: Rows
    lags: Rows
    dead_letters: Rows
    unit: str = "hour"


def page(figures: Figures) -> str:
    unit, totals, drawn = figures.unit, figures.totals, figures.drawn
    body = [
        f"<h1>{escape(figures.title)}</h1><p>{escape(_span(figures))}</p>",
        _cards(totals),
        _drawn(f"Messages per {unit}", "by address", drawn, "messages"),
        _drawn(f"Bytes per {unit}", "bodies, by address", drawn, "bytes"),
        _lines(
            "Size of bodies",
            f"bytes, highest per {unit} over all addresses",
            drawn,
            ("size_p50", "size_p99", "size_max"),
        ),
        _lines(
            "From arrival to archive",
            f"ms, highest per {unit} over all addresses",
            drawn,
            ("wait_p50", "wait_p99", "wait_max"),
        ),
        _table("Addresses and hours", figures.hours, totals.hour_rows, ("archive", "address", "hour")),
        _table("How far the archive is behind", figures.lags, totals.lag_rows, ("archive", "address")),
        _table("Dead letters", figures.dead_letters, totals.dead_rows, ("reason", "address", "hour")),
    ]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(figures.title)}</title>'
    return f'<!doctype html><html lang="en"><head>{head}<style>{STYLE}</style></head><body>{"".join(body)}</body></html>\n'


def _span(figures: Figures) -> str:
    times = [row["hour"] for row in figures.drawn]
    if not times:
        return "nothing is archived yet"
    return f"{min(times):%Y-%m-%d %H:%M} to {max(times):%Y-%m-%d} {'23' if figures.unit == 'day' else f'{max(times):%H}'}:59 UTC"


def _cards(totals: Totals) -> str:
    cards = {
        "messages archived": f"{totals.messages:,}", "bytes of bodies": _short(totals.bytes), "addresses": f"{totals.addresses:,}",
        "waiting for the archive": f"{totals.waiting:,}", "dead letters": f"{totals.dead:,}",
        "worst hour's p99 to archive": "-" if totals.worst_wait is None else f"{totals.worst_wait:,} ms",
    }  # fmt: skip
    shown = [f'<div class="card"><b>{value}</b><span>{name}</span></div>' for name, value in cards.items()]
    return f'<div class="cards">{"".join(shown)}</div>'


def _drawn(title: str, about: str, hours: Rows, name: str) -> str:
    """Draws columns per hour, stacked by address."""
    if not hours:
        return ""
    times, names = _times(hours), _largest(hours, name)
    parts: dict[tuple[datetime, str], int] = {}
    for row in hours:
        key = (row["hour"], row["address"] if row["address"] in names else "others")
        parts[key] = parts.get(key, 0) + int(row[name])
    shown = [*names, "others"] if any(address == "others" for _, address in parts) else names
    most = max(sum(parts.get((time, address), 0) for address in shown) for time in times)
    wide = (WIDTH - LEFT) / len(times)
    marks = _grid(_ticks(most), most)
    for place, time in enumerate(times):
        level = float(HEIGHT - BOTTOM)
        for colour, address in zip(COLOURS, shown, strict=False):
            value = parts.get((time, address), 0)
            high = (HEIGHT - BOTTOM - TOP) * value / most if most else 0.0
            level -= high
            tip = escape(f"{address}, {time:%Y-%m-%d %H:00}: {value:,}")
            box = f'x="{LEFT + place * wide + 1:.1f}" y="{level:.1f}" width="{max(1.0, min(60.0, wide - 2)):.1f}" height="{high:.1f}"'
            marks.append(f'<rect {box} fill="{colour}"><title>{tip}</title></rect>' if value else "")
    marks += _hours(times, lambda place: LEFT + place * wide)
    return _figure(title, about, marks, zip(COLOURS, shown, strict=False))


def _lines(title: str, about: str, hours: Rows, names: Sequence[str]) -> str:
    """The highest of each hour, on a scale of powers of ten."""
    times = _times(hours)
    highest = {name: [0] * len(times) for name in names}
    places = {time: place for place, time in enumerate(times)}
    for row in hours:
        for name, values in highest.items():
            values[places[row["hour"]]] = max(values[places[row["hour"]]], row[name] or 0)
    if not times:
        return ""
    top = max(1.0, log10(max(max(values) for values in highest.values()) + 1))
    high = HEIGHT - BOTTOM - TOP
    wide = (WIDTH - LEFT) / len(times)
    marks = _grid(
        [10.0**power for power in range(int(top) + 1)], 10**top, scale=lambda value: log10(value + 1) / top
    )
    for colour, (name, values) in zip(COLOURS, highest.items(), strict=False):
        points = [
            (LEFT + (place + 0.5) * wide, HEIGHT - BOTTOM - high * log10(value + 1) / top)
            for place, value in enumerate(values)
        ]
        joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        marks.append(f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (x, y), time, value in zip(points, times, values, strict=True):
            tip = escape(f"{name}, {time:%Y-%m-%d %H:00}: {value:,}")
            marks.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"><title>{tip}</title></circle>'
            )
    marks += _hours(times, lambda place: LEFT + (place + 0.5) * wide)
    return _figure(
        title, about, marks, zip(COLOURS, [name.partition("_")[2] for name in names], strict=False)
    )


def _figure(title: str, about: str, marks: Iterable[str], key: Iterable[tuple[str, str]]) -> str:
    names = "".join(f'<span><i style="background:{colour}"></i>{escape(name)}</span>' for colour, name in key)
    drawing = (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">{"".join(marks)}</svg>'
    )
    return f'<h2>{escape(title)}</h2><p>{escape(about)}</p>{drawing}<div class="key">{names}</div>'


def _times(hours: Rows) -> list[datetime]:
    return sorted({row["hour"] for row in hours})


def _largest(hours: Rows, name: str) -> list[str]:
    totals: dict[str, int] = {}
    for row in hours:
        totals[row["address"]] = totals.get(row["address"], 0) + int(row[name])
    return sorted(sorted(totals, key=lambda address: -totals[address])[:MOST_DRAWN])


def _grid(values: Sequence[float], most: float, scale: Any = None) -> list[str]:
    place = scale or (lambda value: value / most if most else 0.0)
    found = []
    for value in values:
        y = HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * place(value)
        found.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        found.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_short(value)}</text>')
    return found


def _ticks(most: float) -> list[float]:
    """0 and some round numbers up to `most`."""
    power = 10.0 ** int(log10(max(most, 1)))
    step = next(power * part for part in (0.2, 0.5, 1, 2, 5) if most / (power * part) <= 5)
    return [step * number for number in range(int(most / step) + 1)]


def _hours(times: Sequence[datetime], x: Any) -> list[str]:
    """Names of hours, as many as there is room for; the day where it begins."""
    every = max(1, -(-len(times) // 12))
    found = []
    for place in range(0, len(times), every):
        time = times[place]
        first = place == 0 or times[place - every].date() != time.date()
        found.append(f'<text x="{x(place):.1f}" y="{HEIGHT - 8}">{time:%d %b}</text>' if first else
                     f'<text x="{x(place):.1f}" y="{HEIGHT - 8}">{time:%H:00}</text>')  # fmt: skip
    return found


def _short(value: float) -> str:
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value:.3g}"


def _table(title: str, rows: Rows, count: int, names: Sequence[str]) -> str:
    if not rows:
        return f"<h2>{escape(title)}</h2><p>none</p>"
    heads = "".join(
        f"<th{' class=name' if name in names else ''}>{escape(name.replace('_', ' '))}</th>"
        for name in rows[0]
    )
    lines = "".join(
        [
            "<tr>" + "".join([_value(value, is_name=name in names) for name, value in row.items()]) + "</tr>"
            for row in rows[:MOST_LISTED]
        ]
    )
    more = f"<p>and {count - MOST_LISTED:,} more rows in the Parquet table</p>" if count > MOST_LISTED else ""
    return f'<h2>{escape(title)}</h2><div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table></div>{more}'


def _value(value: Any, *, is_name: bool) -> str:
    return f"<td{' class=name' if is_name else ''}>{escape(_cell(value))}</td>"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    return (
        f"{value:,.1f}"
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )
