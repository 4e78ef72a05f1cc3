"""Who waits for addresses by their names: the tree of patterns against a slow obvious model, and how much of it a name looks at."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.broker.addresses import watching
from stompbox.broker.addresses.watching import Watcher, Watchers
from stompbox.config.matching import DOTS, is_match
from stompbox.config.spaces import space_of_host

word = st.sampled_from(["a", "b"])
names = st.lists(word, min_size=1, max_size=6).map(".".join)
patterns = st.lists(word | st.sampled_from(["*", "#"]), min_size=1, max_size=6).map(".".join)
changes = st.lists(patterns | st.integers(0, 30), max_size=25)


def watchers_of(*given: str) -> tuple[Watchers, list[Watcher]]:
    watchers, found = Watchers(DOTS), [Watcher(pattern) for pattern in given]
    for watcher in found:
        watchers.add(watcher)
    return watchers, found


def change(watchers: Watchers, there: list[Watcher], what: str | int) -> None:
    """A pattern comes, or the one of this number goes."""
    if isinstance(what, str):
        there.append(Watcher(what))
        watchers.add(there[-1])
    elif there:
        watchers.remove(there.pop(what % len(there)))


def model(there: list[Watcher], name: str) -> list[Watcher]:
    return [one for one in there if is_match(DOTS.words(one.pattern), name.split("."))]


@given(changes, st.lists(names, min_size=1, max_size=5))
def test_a_name_finds_all_whose_patterns_match_in_the_order_in_which_they_came(
    given: list[str | int], wanted: list[str]
) -> None:
    watchers, there = watchers_of()
    for what in given:
        change(watchers, there, what)
    assert len(watchers) == len(there)
    for name in wanted:
        assert watchers.of(name) == model(there, name)
    while there:
        change(watchers, there, 0)
        assert watchers.of(wanted[0]) == model(there, wanted[0])
    assert watchers._root.branch.is_empty


@given(changes, changes, names)
def test_who_stops_half_way_finds_what_has_come_and_not_what_has_gone(
    before: list[str | int], meanwhile: list[str | int], name: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watching, "VISITED", 1)
        watchers, there = watchers_of()
        for what in before:
            change(watchers, there, what)
        left = list(meanwhile)
        for _ in watchers.looking(name):
            if left:
                change(watchers, there, left.pop())
        version = watchers._version
        assert watchers.of(name) == model(there, name)
        assert watchers._known[:2] == (name, version), "nobody looks again"
        assert not watchers._fresh


def test_groups_are_put_in_and_taken_out_in_steps_and_found_meanwhile() -> None:
    watchers, joined = Watchers(DOTS), list[str]()
    count = 4 * watching.VISITED
    watchers.add_group("g", [f"*.{n}" for n in range(count)], lambda address: joined.append("g"))
    next(watchers.filing())
    assert [watcher.number for watcher in watchers.of(f"x.{count - 1}")] == [1], "what waits is put in before"
    assert list(watchers.filing()) == []
    watchers.add_group("g", ["y.#.#", "y.#"], lambda address: None)
    assert len(watchers.of("y.z")) == 1
    watchers.remove_group("g", [*[f"*.{n}" for n in range(count)], "y.#.#", "y.#"])
    assert watchers.of("x.1") == watchers.of("y.z") == []
    assert sum(1 for _ in watchers.filing()) == 0
    assert watchers._root.branch.is_empty


def test_a_wildcard_does_not_stand_for_a_virtual_host() -> None:
    space = space_of_host("h")
    watchers, there = watchers_of("#", "*.a", f"{space}a", f"{space}#", f"{space}*")
    assert watchers.of(f"{space}a") == [
        one for one in there if is_match(DOTS.words(one.pattern), f"{space}a".split("."))
    ]


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Each look at a node, and each set of words that is made bits."""
    found: list[int] = []
    spots = watching.Spots

    class Counted(spots):
        def moved(self, state: int, word: str) -> int:
            found.append(state)
            return super().moved(state, word)

    monkeypatch.setattr(watching, "Spots", Counted)
    yield found


def test_a_name_does_not_look_at_patterns_that_begin_otherwise(moves: list[int]) -> None:
    watchers, there = watchers_of(*[f"w{n}.*" for n in range(5000)], "new.*")
    assert watchers.of("new.1") == there[-1:]
    assert len(moves) < 10


def test_patterns_of_very_many_words_cost_no_more_than_a_name_has_words_and_are_looked_at_in_steps(
    moves: list[int],
) -> None:
    count = 200
    watchers, _ = watchers_of(*[f"#.{'a.' * 245}{n}.b" for n in range(count)])
    longest = before = 0
    for _ in watchers.looking(".".join(["a"] * 500)):
        longest, before = max(longest, len(moves) - before), len(moves)
    assert longest <= watching.VISITED
    assert len(moves) < 500 * 10
