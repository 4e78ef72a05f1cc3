"""startingOffsets and endingOffsets."""

from __future__ import annotations

import pytest

from stompbox.errors import UsageError
from stompbox.spark.bounds import (
    EARLIEST,
    LATEST,
    Bound,
    BoundKind,
    parse_bound,
    parse_time,
    parse_times,
    shown_time,
)


@pytest.mark.parametrize(
    ("text", "bound", "wire"),
    [
        ("earliest", EARLIEST, "earliest"),
        ("LATEST", LATEST, "latest"),
        ("0", Bound(BoundKind.OFFSET, 0), "0"),
        ("1200", Bound(BoundKind.OFFSET, 1200), "1200"),
        ("1970-01-01T00:00:01Z", Bound(BoundKind.TIME, 1000), "time:1000"),
        ("1970-01-01T01:00:00.250+01:00", Bound(BoundKind.TIME, 250), "time:250"),
        ('{"b": 2, "a": 0}', Bound(BoundKind.EACH, each=(("a", 0), ("b", 2))), "each"),
    ],
)
def test_what_texts_mean(text: str, bound: Bound, wire: str) -> None:
    found = parse_bound("startingOffsets", text)
    assert found == bound
    assert found.wire() == wire


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("2026-03-01T00:00:00", "without zone"),
        ("2026-03-01", "without zone"),
        ("yesterday", "allowed are earliest, latest"),
        ("-5", "allowed are"),
        ("", "allowed are"),
        ("{", "no valid JSON"),
        ('{"a": -1}', "the offset of 'a' is -1"),
        ('{"a": "x"}', "the offset of 'a' is 'x'"),
        ('{"a": true}', "the offset of 'a' is True"),
        ('{"a": 1000000000000000000}', "the offset of 'a' is 1000000000000000000"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        parse_bound("endingOffsets", text)
    assert "'endingOffsets'" in caught.value.message


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("1000", 1000), ("0", 0), ("1970-01-01T00:00:01.5Z", 1500), ("1970-01-01T00:00Z", 0)],
)
def test_times(text: str, milliseconds: int) -> None:
    for must_match in (False, True):
        found = parse_time("startingTimestamp", text, must_match=must_match)
        assert found == Bound(BoundKind.TIME, milliseconds, must_match=must_match)
        assert (found.option, found.latest_time) == ("startingTimestamp", milliseconds)


def test_times_by_address() -> None:
    found = parse_times(
        "startingOffsetsByTimestamp", '{"b": "1970-01-01T00:00:02Z", "a": 1000}', must_match=True
    )
    assert found == Bound(BoundKind.TIMES, each=(("a", 1000), ("b", 2000)), must_match=True)
    assert found.latest_time == 2000
    assert parse_times("x", "{}", must_match=True).latest_time == -1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1970-01-01T00:00:00", "without zone"),
        ("-5", "'-5'; allowed are ms since 1970 and timestamps with zone"),
        ("", "allowed are ms since 1970"),
        ("now", "'now'; allowed are ms since 1970"),
        ("1e3", "'1e3'; allowed are ms since 1970"),
    ],
)
def test_times_that_are_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        parse_time("endingTimestamp", text, must_match=False)
    assert "'endingTimestamp'" in caught.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "'\\[1\\]'; allowed is a JSON object"),
        ("7", "'7'; allowed is a JSON object"),
        ("{", "no valid JSON"),
        ("[" * 100_000, "no valid JSON"),
        ('{"a": -1}', "the time of 'a' is -1; allowed are ms since 1970"),
        ('{"a": 1.5}', "the time of 'a' is 1.5"),
        ('{"a": true}', "the time of 'a' is True"),
        ('{"a": {"0": 1000}}', "the time of 'a' is {'0': 1000}"),
        ('{"a": "2026-03-01T00:00:00"}', "without zone"),
        ('{"a": "soon"}', "'soon'; allowed are ms since 1970"),
    ],
)
def test_times_by_address_that_are_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        parse_times("startingOffsetsByTimestamp", text, must_match=True)
    assert "'startingOffsetsByTimestamp'" in caught.value.message
    assert len(caught.value.message) < 400


def test_a_time_beyond_the_calendar_is_shown_as_it_is() -> None:
    assert shown_time(1500) == "1970-01-01T00:00:01.500Z"
    assert shown_time(10**17) == str(10**17)
