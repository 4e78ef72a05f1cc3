"""Patterns against addresses, and which pattern is the more specific one: a table, and a slow obvious model."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.config.matching import PatternTable, is_match, is_wild, problem_of, specificity


@cache
def model_match(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """The definition, read off word by word."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(model_match(pattern[1:], words[skip:]) for skip in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and model_match(pattern[1:], words[1:])


word = st.sampled_from(["a", "b", "c"])
addresses = st.lists(word, min_size=1, max_size=7).map(tuple)
patterns = st.lists(word | st.sampled_from(["*", "#"]), min_size=1, max_size=7).map(tuple)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        # Artemis manual, wildcard syntax.
        ("news.europe.#", ["news.europe", "news.europe.sport", "news.europe.politics.regional"], ["news.usa", "news", "entertainment"]),
        ("news.*", ["news.europe", "news.usa"], ["news", "news.europe.sport"]),
        ("news.*.sport", ["news.europe.sport"], ["news.europe.politics", "news.sport"]),
        ("#", ["a", "a.b", "a.b.c"], []),
        ("*", ["a"], ["a.b"]),
        ("#.c", ["c", "a.c", "a.b.c"], ["a", "c.a"]),
        ("a.#.c", ["a.c", "a.b.c", "a.c.c"], ["a", "a.b"]),
        ("a.#.b.#.c", ["a.b.c", "a.x.b.b.y.c"], ["a.c", "a.b"]),
        ("a", ["a"], ["a.b", "A"]),
    ],
)
def test_wildcards_stand_for_words(pattern: str, yes: list[str], no: list[str]) -> None:
    assert [address for address in yes if not is_match(pattern.split("."), address.split("."))] == []
    assert [address for address in no if is_match(pattern.split("."), address.split("."))] == []


@given(patterns, addresses)
def test_matching_is_the_definition(pattern: tuple[str, ...], words: tuple[str, ...]) -> None:
    assert is_match(pattern, words) == model_match(pattern, words)


def test_many_wildcards_do_not_explode() -> None:
    steps = 0

    class Counted(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal steps
            steps += 1
            return str(self) == other

    pattern = [Counted(word) for word in ["#", "a"] * 30 + ["b"]]
    assert not is_match(pattern, ["a"] * 300)
    assert steps < 20 * len(pattern) * 300


@pytest.mark.parametrize(
    ("less", "more"),
    [
        ("#", "*"),  # Artemis manual: `#` is less specific than a match without it
        ("#", "orders.#"),
        ("orders.#", "orders.*"),
        ("orders.#", "*.new"),
        ("orders.*", "orders.new"),  # and `*` less than an exact name
        ("*.new", "orders.*"),
        ("orders.#", "orders.new.#"),
        ("orders.#", "orders.*.#"),
        ("#.new", "orders.#"),
    ],
)
def test_the_more_specific_of_two(less: str, more: str) -> None:
    assert specificity(less) < specificity(more)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("", "it has an empty word"),
        ("a..b", "it has an empty word"),
        (".a", "it has an empty word"),
        ("or*ers", "in 'or*ers' a wildcard is only a part of the word; * and # stand for whole words"),
        ("a.b#", "in 'b#' a wildcard is only a part of the word; * and # stand for whole words"),
        ("a.*.#", ""),
        ("a", ""),
    ],
)
def test_what_is_no_pattern(pattern: str, problem: str) -> None:
    assert problem_of(pattern) == problem


@given(st.lists(patterns, max_size=8), addresses)
def test_a_table_finds_all_that_match_in_order(listed: list[tuple[str, ...]], words: tuple[str, ...]) -> None:
    table = PatternTable((".".join(pattern), index) for index, pattern in enumerate(listed))
    matching = [index for index, pattern in enumerate(listed) if model_match(pattern, words)]
    expected = sorted(matching, key=lambda index: (specificity(".".join(listed[index])), index))
    assert table.matching(".".join(words)) == expected
    assert table.best(".".join(words)) == (expected[-1] if expected else None)


def test_of_equally_specific_patterns_the_later_one_wins() -> None:
    assert PatternTable([("#.b.#", 1), ("#.c.#", 2)]).best("a.b.c.d") == 2
    assert PatternTable([("#.c.#", 2), ("#.b.#", 1)]).best("a.b.c.d") == 1


def test_a_wildcard_in_an_address_is_a_word_like_any_other() -> None:
    table = PatternTable([("orders.*", "one"), ("orders.#", "any")])
    assert table.best("orders.#") == "one"
    assert table.best("orders.#.x") == "any"


def test_an_exact_address_meets_few_patterns() -> None:
    table = PatternTable((f"area{number}.#", number) for number in range(10_000))
    assert table.best("area77.x") == 77
    assert repr(table) == "<PatternTable of 10000: 0 exact, 10000 with wildcards>"
    assert len(table._wild["area77"]) == 1


def test_what_is_wild() -> None:
    assert is_wild("a.*") and is_wild("#") and not is_wild("a.b")
