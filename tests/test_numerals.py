from __future__ import annotations

import pytest

from stompbox.numerals import ANY, digits, whole
from tests.test_floors import SOURCES


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("007", 7), ("9" * 18, 10**18 - 1)])
def test_digits(text: str, number: int) -> None:
    assert digits(text) == whole(text) == number


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "+1", "1_0", "1.0", "0x1", "٣", "²", "1\n", "9" * 19, "--1", "-"]
)
def test_what_is_no_number(text: str) -> None:
    assert digits(text) is None
    assert whole(text) is None
    assert whole(f"-{text}") is None or text == "-1"


def test_a_minus_is_for_whole_numbers() -> None:
    assert (digits("-1"), whole("-1"), whole("-0")) == (None, -1, 0)


def test_the_most_digits_are_the_callers_to_say() -> None:
    assert (digits("123", most=2), digits("123", most=3), whole("-123", most=2)) == (None, 123, None)
    assert digits("9" * ANY, ANY) == 10**ANY - 1


READS_ITSELF = {
    "stompbox.numerals",
    "stompbox.selectors.values",  # decimal numbers too, for every message
    "stompbox.spark.values",  # the same of Spark's types, for every value
    "stompbox.config.toml",  # a line's number in a message of tomllib's
    "stompbox.server.transport.webframes",  # octets of a frame that it looks for the end of
    "stompbox.stomp.runs",  # octets that were found by a pattern
}


def test_nobody_else_tells_digits_from_other_texts() -> None:
    readers = [source for source in SOURCES if source.room != "pipelines"]  # there it is about names of files
    found = {
        source.module
        for source in readers
        if any(word in source.path.read_text() for word in (".isdigit()", ".isdecimal()"))
    }
    assert found == READS_ITSELF
