"""Sizes, words in any case, nearest names, and what a refusal says is allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import NODEFAULT

from stompbox.config.configuration import Configuration
from stompbox.config.fields import Word, fields_of, nearest, parse_size, shown, within, words
from stompbox.config.options import ListenerOptions
from stompbox.config.reference import TABLES
from stompbox.config.settings import AddressFullPolicy, AddressSetting, AddressSettings
from stompbox.config.tables import AddressTable, QueueTable


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("4096", 4096),
        ("1B", 1),
        ("1k", 1024),
        ("1K", 1024),
        ("1KB", 1024),
        ("1KiB", 1024),
        ("512MiB", 512 << 20),
        ("10 MB", 10 << 20),
        (" 3 G ", 3 << 30),
        ("2TiB", 2 << 40),
        ("-1", -1),
    ],
)
def test_a_size_is_a_number_with_a_unit_of_1024(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "MiB", "1.5M", "1X", "1EiB", "one", "--1", "1 2", "0x10", "١K", "1MM", "1iB2"]
)
def test_other_texts_are_no_sizes(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@given(st.integers(0, 1 << 50), st.sampled_from(["", "K", "KB", "KiB", "M", "MiB", "G", "T"]))
def test_a_size_is_its_number_times_its_unit(number: int, unit: str) -> None:
    factor = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[unit[:1]]
    assert parse_size(f"{number}{unit}") == parse_size(f"{number} {unit.lower()}") == number * factor


@pytest.mark.parametrize("text", ["PAGE", "page", "Page"])
def test_words_are_read_in_any_case(text: str) -> None:
    assert AddressFullPolicy(text) is AddressFullPolicy.PAGE


def test_other_words_are_refused() -> None:
    with pytest.raises(ValueError, match="PAGES"):
        AddressFullPolicy("PAGES")
    assert AddressFullPolicy._missing_(3) is None


@pytest.mark.parametrize(
    ("wrong", "clause"),
    [
        ("max-size-byte", "the nearest known name is 'max-size-bytes'"),
        ("maxSizeBytes", "the nearest known name is 'max-size-bytes'"),
        ("max_size_bytes", "the nearest known name is 'max-size-bytes'"),
        ("MAX-SIZE-BYTES", "the nearest known name is 'max-size-bytes'"),
        ("qqqqq", "docs/configuration.md lists all names"),
    ],
)
def test_the_nearest_name_is_found_in_other_spellings(wrong: str, clause: str) -> None:
    assert nearest(wrong, fields_of(AddressSettings)) == clause


def test_few_names_are_listed_when_none_is_near() -> None:
    assert nearest("qqqqq", ["url", "alpha"]) == "known here: alpha, url"


def test_a_field_knows_its_type_through_annotations_and_unions() -> None:
    described = fields_of(QueueTable)
    assert (
        described["ring-size"].plain,
        described["ring-size"].optional,
        described["ring-size"].at_least,
    ) == (int, True, -1)
    assert (described["durable"].plain, described["durable"].optional) == (bool, False)
    assert described["name"].required and described["name"].default is NODEFAULT
    assert fields_of(AddressTable)["queue"].table is QueueTable
    assert fields_of(AddressTable)["routing-types"].item is not None
    assert fields_of(AddressSetting)["expiry-address"].plain is str
    assert fields_of(ListenerOptions)["webSocketPath"].item is str
    assert fields_of(Configuration)["listener"].default[0].url == "tcp://127.0.0.1:61613"


@pytest.mark.parametrize(
    ("key", "allowed"),
    [
        ("auto-create-queues", "true or false"),
        ("dead-letter-address", "a text"),
        ("address-full-policy", "one of PAGE, BLOCK, FAIL, DROP"),
        ("redelivery-delay", "a whole number of at least 0 (ms)"),
        ("max-size-bytes", 'a whole number of at least -1 (bytes, or a size such as "512MiB")'),
        ("redelivery-collision-avoidance-factor", "a number from 0 to 1 (share)"),
    ],
)
def test_a_field_says_what_is_allowed(key: str, allowed: str) -> None:
    assert fields_of(AddressSettings)[key].allowed() == allowed


def test_lists_and_tables_say_what_is_allowed() -> None:
    assert fields_of(AddressTable)["routing-types"].allowed() == "a list of ANYCAST / MULTICAST"
    assert fields_of(AddressTable)["routing-types"].allowed_item() == "one of ANYCAST, MULTICAST"
    assert fields_of(Configuration)["user"].allowed() == "an array of tables"
    assert fields_of(Configuration)["user"].allowed_item() == "a table"
    assert fields_of(Configuration)["admin"].allowed() == "a table"


def test_only_word_types_have_words() -> None:
    assert words(AddressFullPolicy) == ["PAGE", "BLOCK", "FAIL", "DROP"]
    assert words(str) == [] and words(Word) == []


@pytest.mark.parametrize(
    ("number", "inside"), [(0.0, True), (1.0, True), (-0.1, False), (1.1, False), (float("nan"), False)]
)
def test_a_range_has_both_ends_in_it_and_no_nan(number: float, inside: bool) -> None:
    assert within(fields_of(AddressSettings)["redelivery-collision-avoidance-factor"], number) is inside


@pytest.mark.parametrize("number", [1 << 63, -(1 << 63), 10**400])
def test_a_whole_number_has_no_more_than_64_bits(number: int) -> None:
    field = fields_of(AddressSettings)["expiry-delay"]
    assert not within(field, number) and within(field, (1 << 63) - 1)


def test_a_value_with_a_number_that_python_does_not_write_is_told_of_all_the_same() -> None:
    assert shown([1 << 100_000]) == "a number of thousands of digits"


def test_a_long_value_is_cut_in_errors() -> None:
    assert shown("x" * 100) == "'" + "x" * 56 + "..."
    assert shown(True) == "true"


@pytest.mark.parametrize("name", TABLES)
def test_what_a_key_is_needs_no_text_to_be_evaluated_at_the_first_reading(name: str) -> None:
    hints = TABLES[name].__annotations__
    assert hints
    assert [key for key, hint in hints.items() if isinstance(hint, str)] == []
