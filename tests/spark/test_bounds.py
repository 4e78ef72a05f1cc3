"""startingOffsets and endingOffsets."""

from __future__ import annotations

import pytest

from stompbox.errors import UsageError
from stompbox.spark.bounds import EARLIEST, LATEST, Bound, Kind, parse_bound


@pytest.mark.parametrize(
    ("text", "bound", "wire"),
    [
        ("earliest", EARLIEST, "earliest"),
        ("LATEST", LATEST, "latest"),
        ("0", Bound(Kind.OFFSET, 0), "0"),
        ("1200", Bound(Kind.OFFSET, 1200), "1200"),
        ("1970-01-01T00:00:01Z", Bound(Kind.TIME, 1000), "time:1000"),
        ("1970-01-01T01:00:00.250+01:00", Bound(Kind.TIME, 250), "time:250"),
        ('{"b": 2, "a": 0}', Bound(Kind.EACH, each=(("a", 0), ("b", 2))), "each"),
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
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        parse_bound("endingOffsets", text)
    assert "'endingOffsets'" in caught.value.message
