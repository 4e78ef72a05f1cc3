"""Drawings are well-formed, say what they were given, and stay within their frame."""

from __future__ import annotations

from xml.etree.ElementTree import Element, fromstring

import pytest

from demo.charts import (
    HOT,
    SCALE,
    WIDTH,
    Bar,
    Curve,
    Mark,
    Station,
    bars,
    columns,
    curves,
    heat,
    heatmap,
    thinned,
    ticks,
    way,
)


def texts(drawing: Element) -> list[str]:
    return [element.text or "" for element in drawing.iter("text")]


@pytest.mark.parametrize(
    ("most", "wanted", "expected"),
    [(100, 5, [0, 20, 40, 60, 80, 100]), (7, 6, [0, 2, 4, 6]), (0.5, 5, [0, 0.1, 0.2, 0.3, 0.4, 0.5])],
)
def test_ticks_are_round(most: float, wanted: int, expected: list[float]) -> None:
    assert ticks(most, wanted) == pytest.approx(expected)


def test_a_long_curve_is_thinned_and_keeps_its_end() -> None:
    points = [(float(at), at / 9_999) for at in range(10_000)]
    found = thinned(points)
    assert len(found) <= 301
    assert (found[0], found[-1]) == (points[0], points[-1])
    assert thinned(points[:3]) == points[:3]


def test_curves_run_from_corner_to_corner() -> None:
    drawing = fromstring(curves([Curve("a <b>", "board", [(0, 0), (10, 1)])], [], seconds=10))
    line = drawing.find("polyline")
    assert line is not None
    assert line.get("points") == f"56.0,342.0 {WIDTH - 16:.1f},58.0"
    assert [title.text for title in line] == ["a <b>"]


def test_words_of_marks_do_not_cover_each_other() -> None:
    marks = [
        Mark(5.0, "one happens", "killed"),
        Mark(5.1, "two happens", "killed"),
        Mark(9.9, "near the right edge", "comes"),
    ]
    drawing = fromstring(curves([], marks, seconds=10))
    places = {
        element.text: (float(element.get("x", 0)), element.get("y")) for element in drawing.iter("text")
    }
    assert places["one happens"][1] != places["two happens"][1]
    assert places["near the right edge"][0] + 7 * len("near the right edge") <= WIDTH


def test_bars_are_as_long_as_their_values() -> None:
    drawing = fromstring(
        bars(
            [Bar("A", 20.0, "tip", ("1",)), Bar("B", 10.0, "", ("2",)), Bar("C", -3.0, "", ("3",))],
            ("n",),
            unit="min",
        )
    )
    first, second, third = [float(bar.get("width", 0)) for bar in drawing.iter("rect")]
    assert (second, third) == (pytest.approx(first / 2, abs=0.1), 0)
    assert texts(drawing)[0] == "n" and {"A", "20.0 min", "-3.0 min", "2"} <= set(texts(drawing))


def test_columns_have_a_bar_and_a_dot_for_each_name() -> None:
    drawing = fromstring(
        columns({"05": 3.0, "06": -1.0}, {"05": 9.0, "06": 2.0}, {"05": "five", "06": "six"}, unit="min")
    )
    assert len(list(drawing.iter("rect"))) == len(list(drawing.iter("circle"))) == 2
    assert [title.text for title in drawing.iter("title")] == ["five", "five", "six", "six"]


def test_a_field_without_value_stays_empty() -> None:
    drawing = fromstring(
        heatmap(["A", "B"], ["05", "06"], {("A", "05"): (-0.4, "tip"), ("B", "06"): (HOT, "hot")})
    )
    assert len(list(drawing.iter("rect"))) == 2
    assert {"0", f"{HOT:.0f}"} <= set(texts(drawing)) and "-0" not in texts(drawing)


def test_heat_goes_from_end_to_end_of_the_scale() -> None:
    ends = ["rgb({},{},{})".format(*colour) for _, colour in (SCALE[0], SCALE[-1])]
    assert [heat(-999), heat(999)] == ends
    assert heat(SCALE[1][0]) == "rgb({},{},{})".format(*SCALE[1][1])


def test_roads_lead_right_down_and_back() -> None:
    stations = {
        "a": Station(0, 100, ("A",)),
        "b": Station(400, 0, ("B",)),
        "c": Station(400, 100, ("C",)),
        "d": Station(0, 300, ("D",)),
    }
    roads = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]
    drawing = fromstring(way(stations, roads, height=400))
    paths = [path.get("d", "") for path in drawing.findall("path")]
    assert [path.count("C") for path in paths] == [1, 0, 0, 0]
    assert len(paths) == len(roads)
    assert texts(drawing) == ["A", "B", "C", "D"]
