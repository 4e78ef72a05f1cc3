"""Patterns against addresses, and which pattern is the more specific one: a table, and a slow obvious model."""

from __future__ import annotations

from functools import cache
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.config import matching
from stompbox.config.matching import DOTS, PatternTable, Wild, Wildcards, is_match, specificity


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
        (
            "news.europe.#",
            ["news.europe", "news.europe.sport", "news.europe.politics.regional"],
            ["news.usa", "news", "entertainment"],
        ),
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
    assert [address for address in yes if not is_match(DOTS.words(pattern), address.split("."))] == []
    assert [address for address in no if is_match(DOTS.words(pattern), address.split("."))] == []


@given(patterns, addresses)
def test_matching_is_the_definition(pattern: tuple[str, ...], words: tuple[str, ...]) -> None:
    assert is_match(DOTS.words(".".join(pattern)), words) == model_match(pattern, words)


@given(patterns, addresses)
def test_what_takes_many_looks_is_matched_by_bits_and_is_the_same(
    pattern: tuple[str, ...], words: tuple[str, ...]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "AT_ONCE", 0)
        assert is_match(DOTS.words(".".join(pattern)), words) == model_match(pattern, words)


def test_a_long_pattern_does_not_cost_the_product_of_its_words_and_the_names() -> None:
    compared = 0

    class Counted(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str(self) == other

    pattern = [Wild.ANY_WORDS, *[Counted("a")] * 245, Counted("b")]
    assert not is_match(pattern, ["a"] * 500)
    assert compared < 2 * (len(pattern) + 500)


def test_many_wildcards_do_not_explode() -> None:
    steps = 0

    class Counted(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal steps
            steps += 1
            return str(self) == other

    pattern = [*([Wild.ANY_WORDS, Counted("a")] * 30), Counted("b")]
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
    assert specificity(DOTS.words(less)) < specificity(DOTS.words(more))


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
    assert DOTS.problem_of(pattern) == problem


@given(st.lists(patterns, max_size=8), addresses)
def test_a_table_finds_all_that_match_in_order(listed: list[tuple[str, ...]], words: tuple[str, ...]) -> None:
    table = PatternTable((".".join(pattern), index) for index, pattern in enumerate(listed))
    matching = [index for index, pattern in enumerate(listed) if model_match(pattern, words)]
    expected = sorted(matching, key=lambda index: (specificity(DOTS.words(".".join(listed[index]))), index))
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
    assert DOTS.is_wild("a.*") and DOTS.is_wild("#") and not DOTS.is_wild("a.b")


SLASH = Wildcards("/", markers="()")


@pytest.mark.parametrize(
    ("match", "yes", "no"),
    [
        ("a/#", ["a", "a/b", "a/b/c", "a/b.c"], ["a.b", "b/a"]),
        ("a/*/c", ["a/b/c", "a/b.x/c"], ["a/c", "a.b.c"]),
        ("/a/*", ["/a/b"], ["a/b"]),
        ("a.b/*", ["a.b/c"], ["a.b.c"]),
        ("(a/#)", ["a/#"], ["a/b", "a", "(a/#)"]),
        ("(a)", ["a"], ["(a)"]),
        ("(a)/b", ["(a)/b"], ["a/b"]),
    ],
)
def test_another_delimiter_and_literal_matches(match: str, yes: list[str], no: list[str]) -> None:
    table = PatternTable([(match, True)], SLASH)
    assert [name for name in yes if not table.best(name)] == []
    assert [name for name in no if table.best(name)] == []


def test_a_literal_match_is_the_most_specific() -> None:
    entries = [("(a/#)", "literal"), ("a/#", "any"), ("a/*", "one")]
    table = PatternTable(entries, SLASH)
    assert table.matching("a/#") == ["any", "one", "literal"]
    assert table.best("a/b") == "one" and table.best("a") == "any"
    assert PatternTable(entries[1:], DOTS).best("a/#") == "any", (
        "without markers and with dots it is one word"
    )


def test_all_that_match_are_merged_a_name_before_the_literal_before_patterns() -> None:
    """As Artemis's repository of address settings orders them, wherever they stand in the file."""
    names = [
        ("a/b", "name"),
        ("(a/b)", "literal"),
        ("a/*", "one"),
        ("#", "any"),
        ("(a/c)", "another"),
        ("((a/b))", "marked name"),
    ]
    for entries in permutations(names):
        table = PatternTable(entries, SLASH)
        assert table.matching("a/b") == ["any", "one", "literal", "name"]
        assert table.matching("(a/b)") == ["any", "marked name"]


@given(patterns, addresses, st.sampled_from([("/", ">", "+"), ("|", "*", "#"), (";", "#", "*")]))
def test_every_syntax_is_the_same_but_for_its_characters(
    pattern: tuple[str, ...], words: tuple[str, ...], syntax: tuple[str, ...]
) -> None:
    wildcards = Wildcards(*syntax)
    spelled = [{"#": syntax[1], "*": syntax[2]}.get(word, word) for word in pattern]
    if not {"#", "*"} & set(words):  # these are words like others where they stand for none
        found = is_match(wildcards.words(syntax[0].join(spelled)), wildcards.split(syntax[0].join(words)))
        assert found == model_match(pattern, words)


def test_where_wildcards_are_switched_off_a_destination_is_a_name() -> None:
    off = Wildcards(is_routed=False)
    assert not off.is_wild("a.#") and off.is_named("a.#", "a.#") and not off.is_named("a.#", "a.b")
    assert not is_match(off.words("a.#"), ["a", "b"]) and is_match(off.match_words("a.#"), ["a", "b"])


@pytest.mark.parametrize(
    ("wildcards", "match", "problem"),
    [
        (DOTS, "queue/#", "write 'queue.#', or set delimiter = \"/\" in [wildcard-addresses]"),
        (DOTS, "a.b/#", "words are divided by .: write 'a.b.#'"),
        (
            SLASH,
            "queue.#",
            "words are divided by /: write 'queue/#', or set delimiter = \".\" in [wildcard-addresses]",
        ),
        (SLASH, "a//#", "it has an empty word"),
        (SLASH, "()", "between the literal-match-markers stands no name"),
        (SLASH, "(vhost/green.a)", "between the literal-match-markers stands no name"),
        (SLASH, "(a#b)", ""),
        (SLASH, "/a/#", ""),
        (DOTS, "(a.#)", "in '#)' a wildcard is only a part of the word"),
    ],
)
def test_a_wrong_match_is_named_with_the_setting_it_may_want(
    wildcards: Wildcards, match: str, problem: str
) -> None:
    found = wildcards.problem_of_match(match)
    assert problem in found and bool(found) == bool(problem)
