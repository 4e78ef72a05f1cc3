"""Rows to runs and back to the same rows."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.errors import UsageError
from stompbox.message import Run
from stompbox.server.requests.incoming import runs_of as runs_of_chunk
from stompbox.spark.rows import Rows, RowsToRuns, check_columns, chunks_of
from stompbox.store.chunks import decode, verify
from stompbox.store.cutting import EACH

MAP = pa.map_(pa.string(), pa.string())


def runs_of(columns: dict[str, Any], destination: str = "/queue/default") -> list[Run]:
    return sent(RowsToRuns(destination).runs(pa.RecordBatch.from_pydict(columns)))


def sent(rows: list[Rows], limit: int = 1 << 30) -> list[Run]:
    """What the broker has of them."""
    found = []
    for chunk in chunks_of(rows, limit):
        assert sum(map(len, runs_of_chunk(chunk))) == verify(chunk).messages
        found += decode(chunk, 0)
    return found


def messages(runs: list[Run]) -> list[tuple[dict[str, str], bytes]]:
    return [(run.headers(index), body) for run in runs for index, body in enumerate(run.bodies)]


def test_one_run_with_a_hole() -> None:
    (run,) = runs_of(
        {
            "body": pa.array([b"a", b"b"]),
            "headers": pa.array([[("k", "v"), ("id", "1")], [("k", "v"), ("id", "2")]], MAP),
        }
    )
    assert (run.shape.headers, run.shape.holes, run.columns) == (
        {"destination": "/queue/default", "k": "v"},
        ("id",),
        ([b"1", b"2"],),
    )
    assert (run.bodies, run.shape.has_length, run.shape.persistent) == ([b"a", b"b"], True, None)


@pytest.mark.parametrize("wrong", ["/queue/a\nb", "/queue/a\r", "/queue/\x1b[2J", "/queue/a\u2028b"])
def test_a_destination_is_one_line(wrong: str) -> None:
    with pytest.raises(UsageError, match=r"column 'destination' holds .*, which has control characters"):
        runs_of({"body": ["x", "y"], "destination": ["/queue/grün \u200d", wrong]})
    assert len(runs_of({"body": ["x", "y"], "destination": ["/queue/grün \u200d", None]})) == 2


def test_all_columns() -> None:
    runs = runs_of(
        {
            "body": ["x", None, "z"],
            "destination": ["/queue/a", None, "/queue/a"],
            "content_type": ["text/plain", "text/plain", None],
            "priority": pa.array([7, None, 0], pa.int32()),
            "expires": pa.array([datetime(2030, 1, 1, tzinfo=UTC), None, None], pa.timestamp("us", "UTC")),
            "persistent": [True, False, None],
            "offset": [1, 2, 3],
        }
    )
    found = {run.bodies[0]: run.shape for run in runs}
    assert found[b"x"].headers == {
        "destination": "/queue/a", "content-type": "text/plain", "priority": "7", "expires": "1893456000000", "persistent": "true",
    }  # fmt: skip
    assert (found[b"x"].priority, found[b"x"].expires, found[b"x"].persistent) == (7, 1_893_456_000_000, True)
    assert (found[b""].destination, found[b""].priority, found[b""].persistent) == (
        "/queue/default",
        4,
        False,
    )
    assert (found[b"z"].headers, found[b"z"].priority) == ({"destination": "/queue/a", "priority": "0"}, 0)


@pytest.mark.parametrize("value", ["a:b", "back\\slash", "umläut", "line\nfeed", "nul\0"])
def test_values_that_cannot_be_holes_make_runs_of_their_own(value: str) -> None:
    runs = runs_of(
        {
            "body": [b"1", b"2", b"3"],
            "headers": pa.array(
                [[("k", value), ("n", "1")], [("k", value), ("n", "2")], [("k", "x"), ("n", "3")]], MAP
            ),
        }
    )
    assert [len(run) for run in runs] == [2, 1]
    assert [headers["k"] for headers, _ in messages(runs)] == [value, value, "x"]
    assert [headers["n"] for headers, _ in messages(runs)] == ["1", "2", "3"]


def test_headers_that_mean_something_are_never_holes() -> None:
    runs = runs_of(
        {"body": [b"1", b"2"], "headers": pa.array([[("priority", "1")], [("priority", "9")]], MAP)}
    )
    assert [(run.shape.priority, run.shape.holes) for run in runs] == [(1, ()), (9, ())]


def test_headers_of_the_broker_are_left_out_and_columns_win() -> None:
    headers = [
        [
            ("message-id", "7"),
            ("destination", "/queue/z"),
            ("content-type", "a/b"),
            ("content-length", "9"),
            ("k", "v"),
        ]
    ]
    (run,) = runs_of({"body": [b"1"], "headers": pa.array(headers, MAP), "content_type": ["c/d"]})
    assert run.shape.headers == {"destination": "/queue/default", "content-type": "c/d", "k": "v"}


def test_null_headers_and_slices() -> None:
    column = pa.array([[("gone", "x")], None, [("k", "v"), ("n", None)], []], MAP)
    batch = pa.RecordBatch.from_pydict({"body": [b"0", b"1", b"2", b"3"], "headers": column}).slice(1)
    assert messages(sent(RowsToRuns("/queue/d").runs(batch))) == [
        ({"destination": "/queue/d"}, b"1"),
        ({"destination": "/queue/d", "k": "v"}, b"2"),
        ({"destination": "/queue/d"}, b"3"),
    ]


def test_null_is_the_same_destination_as_the_options() -> None:
    destinations = [None, "/queue/other", "/queue/default", None, "/queue/other", "/queue/default"]
    found = messages(runs_of({"body": [b"%d" % row for row in range(6)], "destination": destinations}))
    for destination, bodies in (("/queue/default", [b"0", b"2", b"3", b"5"]), ("/queue/other", [b"1", b"4"])):
        assert [body for headers, body in found if headers["destination"] == destination] == bodies


def test_many_destinations_make_one_run_each() -> None:
    """With headers of several kinds, and a slice of a larger batch."""
    rows = range(3000)
    columns = {
        "body": [b"%d" % row for row in rows],
        "destination": [f"/queue/{row * 7 % 100}" for row in rows],
        "headers": pa.array(
            [[("id", str(row)), *([("odd", "x")] if row * 7 % 100 % 2 else [])] for row in rows], MAP
        ),
    }
    runs = sent(RowsToRuns("").runs(pa.RecordBatch.from_pydict(columns)[500:2500]))
    assert sorted(len(run) for run in runs) == [20] * 100
    for headers, body in messages(runs):
        row = int(body)
        odd = {"odd": "x"} if row * 7 % 100 % 2 else {}
        assert headers == {"destination": f"/queue/{row * 7 % 100}", "id": str(row), **odd}
    assert all([*map(int, run.bodies)] == sorted(map(int, run.bodies)) for run in runs)


@pytest.mark.parametrize("limit", [1, 100, 1000, 7000, 1 << 20])
def test_chunks_of_about_a_size(limit: int) -> None:
    bodies = [b"%d" % row + b"x" * (row * 37 % 500) for row in range(200)]
    headers = pa.array([[("n", str(number))] for number in range(200)], MAP)
    columns = {"body": bodies, "destination": ["/queue/a"] * 90 + ["/queue/b"] * 110, "headers": headers}
    rows = RowsToRuns("").runs(pa.RecordBatch.from_pydict(columns))
    found = [decode(chunk, 0) for chunk in chunks_of(rows, limit)]
    assert [(headers["n"], body) for runs in found for headers, body in messages(runs)] == [
        (str(n), body) for n, body in enumerate(bodies)
    ]
    for runs in found:
        assert sum(run.size + EACH * len(run) for run in runs) <= limit or sum(map(len, runs)) == 1
    assert len(found) <= min(200, 2 * sum(len(body) + EACH for body in bodies) // limit + 2)


def test_no_rows() -> None:
    assert RowsToRuns("/queue/d").runs(pa.RecordBatch.from_pydict({"body": pa.array([], pa.binary())})) == []


def test_shapes_are_kept_from_batch_to_batch() -> None:
    maker = RowsToRuns("/queue/d")
    batch = pa.RecordBatch.from_pydict({"body": [b"0"], "headers": pa.array([[("k", "v")]], MAP)})
    assert maker.runs(batch)[0].shape is maker.runs(batch)[0].shape


VALUES = st.sampled_from(["", "a", "b", "x:y", "ä", "7"])
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["/queue/a", "/queue/b"]),
        st.one_of(st.none(), st.dictionaries(st.sampled_from(["k", "l", "m"]), st.one_of(st.none(), VALUES))),
        st.one_of(st.none(), st.sampled_from(["t/p", "a/j"])),
        st.one_of(st.none(), st.integers(0, 9)),
    ),
    max_size=12,
)


@given(ROWS)
def test_rows_of_one_destination_keep_their_order(
    rows: list[tuple[str, dict[str, str | None] | None, str | None, int | None]],
) -> None:
    columns = {
        "body": [b"%d" % index for index in range(len(rows))],
        "destination": pa.array([row[0] for row in rows], pa.string()),
        "headers": pa.array([None if row[1] is None else list(row[1].items()) for row in rows], MAP),
        "content_type": pa.array([row[2] for row in rows], pa.string()),
        "priority": pa.array([row[3] for row in rows], pa.int64()),
    }
    if not rows:
        return
    wanted = defaultdict(list)
    for index, (destination, headers, kind, priority) in enumerate(rows):
        given = {
            "destination": destination,
            **{name: value for name, value in (headers or {}).items() if value is not None},
        }
        given |= {"content-type": kind} if kind else {}
        given |= {} if priority is None else {"priority": str(priority)}
        wanted[destination].append((given, b"%d" % index))
    found = defaultdict(list)
    for message in messages(runs_of(columns)):
        found[message[0]["destination"]].append(message)
    assert found == wanted


@pytest.mark.parametrize(
    ("types", "destination", "words"),
    [
        ({"destination": "string"}, "", "column 'body' is missing"),
        ({"body": "binary"}, "", "Neither a column 'destination'"),
        ({"body": "int"}, "/queue/a", "column 'body' is of type int; .* binary or string"),
        (
            {"body": "binary", "headers": "map<string,int>"},
            "/queue/a",
            "column 'headers' is of type map<string,int>",
        ),
        (
            {"body": "binary", "expires": "bigint"},
            "/queue/a",
            "column 'expires' is of type bigint; .* timestamp",
        ),
        ({"body": "binary", "header": "map<string,string>"}, "/queue/a", "'header'; did you mean 'headers'"),
        ({"body": "binary", "zzz": "int"}, "/queue/a", "'zzz'; columns of messages are body, destination"),
    ],
)
def test_columns_that_are_refused(types: dict[str, str], destination: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_columns(types, destination)


def test_columns_of_a_read_may_be_written() -> None:
    check_columns(
        {
            "address": "string",
            "offset": "bigint",
            "timestamp": "timestamp",
            "destination": "string",
            "headers": "map<string,string>",
            "body": "binary",
        },
        "",
    )


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            {"body": [b"x"], "destination": pa.array([None], pa.string())},
            "column 'destination' is NULL or empty",
        ),
        ({"body": [b"x"], "destination": [""]}, "column 'destination' is NULL or empty"),
        ({"body": [b"x"], "destination": ["/queue/a"], "priority": [11]}, "column 'priority' holds 11"),
        (
            {"body": [b"x"], "destination": ["/queue/a"], "headers": pa.array([[("priority", "high")]], MAP)},
            "column 'headers'.*'high'",
        ),
        (
            {"body": [b"x"], "destination": ["/queue/a"], "headers": pa.array([[("", "v")]], MAP)},
            "column 'headers' holds an empty name",
        ),
    ],
)
def test_values_that_are_refused(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        runs_of(columns, destination="")
