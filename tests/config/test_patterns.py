"""Many patterns asked at once say what each of them says by itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.config.matching import DOTS, Wildcards
from stompbox.config.patterns import Patterns

SLASHES = Wildcards(delimiter="/", any_words=">", single_word="+")
WORDS = ("a", "b", "*", "#", "vhost/x")
NAMES = st.lists(st.sampled_from(("a", "b", "c", "vhost/x", "vhost/y")), min_size=1, max_size=6).map(".".join)
PATTERNS = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(".".join), max_size=8)


def named(patterns: list[str], name: str, wildcards: Wildcards = DOTS) -> list[str]:
    """Those that `matched` tells, and the names."""
    together = Patterns(wildcards)
    places = [(pattern, together.add(pattern)) for pattern in patterns]
    found = together.matched(name)
    assert together.reach(name) is (found > 0 or name in together.exact)
    return [pattern for pattern, place in places if place & found or (not place and pattern == name)]


@given(PATTERNS, NAMES)
def test_all_together_say_what_each_says_by_itself(patterns: list[str], name: str) -> None:
    assert named(patterns, name) == [pattern for pattern in patterns if DOTS.is_named(pattern, name)]


@pytest.mark.parametrize(
    ("patterns", "name", "expected"),
    [
        (["a/+", "a/>", "b/>", "+", "a/b"], "a/b", ["a/+", "a/>", "a/b"]),
        ([">", "+/b/+", ">/b"], "a/b", [">", ">/b"]),
        (["a/+"], "a.b", []),
    ],
)
def test_another_syntax(patterns: list[str], name: str, expected: list[str]) -> None:
    assert named(patterns, name, SLASHES) == expected


def test_without_routing_a_pattern_is_the_name_of_one_address() -> None:
    off = Wildcards(is_routed=False)
    assert named(["a.#"], "a.#", off) == ["a.#"]
    assert named(["a.#"], "a.b", off) == []


class Counting(str):
    """A word that counts how often it is looked at."""

    looks = 0

    def __hash__(self) -> int:
        Counting.looks += 1
        return super().__hash__()

    __eq__ = str.__eq__


def test_a_question_looks_at_each_word_once_however_many_patterns_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together = Patterns(DOTS)
    for number in range(2000):
        together.add(f"*.q{number}.#")
    split = [Counting(word) for word in ("a", "q7", "c", "d")]
    monkeypatch.setattr(Wildcards, "split", lambda *_: list(split))
    assert together.reach("a.q7.c.d")
    assert Counting.looks == len(split)
