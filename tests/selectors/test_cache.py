"""Compiled selectors are kept by text, within octets; what they take is what they are counted as."""

from __future__ import annotations

import json
import sys
from subprocess import run

import pytest

from stompbox.selectors import Selector, SelectorCache, SelectorLimits
from tests.selectors.test_program import LARGEST

LIMITS = SelectorLimits()


def asked(cache: SelectorCache, text: str, user: str = "u") -> Selector:
    return cache.compiled(text, user, conversion=True, limits=LIMITS)


def test_the_same_text_is_compiled_once() -> None:
    cache = SelectorCache(100_000)
    first = asked(cache, "a = 1")
    assert asked(cache, "a = 1") is asked(cache, "a = 1", "other") is first
    assert cache.compiled("a = 1", "u", conversion=False, limits=LIMITS) is not first
    assert cache.compiled("a = 1", "u", conversion=True, limits=SelectorLimits(terms=5)) is not first


def test_it_is_bounded_in_octets() -> None:
    cache = SelectorCache(100_000)
    first = asked(cache, "a = 'first'").number
    for number in range(100):
        asked(cache, f"a = {number}")
        assert cache.size <= 100_000
    assert 20 < len(cache) < 60
    assert asked(cache, "a = 99").number < asked(cache, "a = 'first'").number != first
    asked(cache, " OR ".join(f"h{number} = 1" for number in range(490)))
    assert len(cache) > 20, "what does not fit is not kept at the cost of all others"


def test_what_was_asked_for_last_stays() -> None:
    cache = SelectorCache(100_000)
    first = asked(cache, "a = 'first'").number
    for number in range(100):
        asked(cache, f"a = {number}")
        assert asked(cache, "a = 'first'").number == first


def test_what_is_in_use_is_found_however_many_come() -> None:
    cache = SelectorCache(0)
    held = asked(cache, "a = 'held'", "victim")
    for number in range(100):
        asked(cache, f"a = {number}", "attacker")
    assert asked(cache, "a = 'held'", "victim") is held
    assert (cache.size, len(cache)) == (0, 0)


def test_a_user_with_ever_new_selectors_throws_out_its_own() -> None:
    cache = SelectorCache(100_000)
    numbers = {asked(cache, f"b = {number}", "victim").number for number in range(10)}
    for number in range(1000):
        asked(cache, f"a = {number}", "attacker")
    assert {asked(cache, f"b = {number}", "victim").number for number in range(10)} == numbers


def test_a_lower_limit_counts_at_once() -> None:
    cache = SelectorCache(100_000)
    for number in range(20):
        asked(cache, f"a = {number}")
    cache.limit(10_000)
    assert 0 < cache.size <= 10_000
    cache.limit(0)
    assert (cache.size, len(cache)) == (0, 0)


SIZES = LARGEST | {
    "small": "a = 'x'",
    "some": " AND ".join(f"header{number} > {number}" for number in range(20)),
    "likes": " OR ".join(f"h{number} LIKE '%a_b{number}%'" for number in range(30)),
    "table of a part": "a LIKE '%_" + "".join(map(chr, range(0x4E00, 0x4E00 + 5000))) + "%'",
}


@pytest.fixture(scope="module")
def taken() -> dict[str, tuple[int, int]]:
    """What each of these takes and what it says, in octets: measured by a process of its own, in which no thread of another test runs."""
    told = run(
        [sys.executable, "-c", MEASURE], input=json.dumps(SIZES), capture_output=True, check=True, text=True
    ).stdout
    return {name: (taken, said) for name, (taken, said) in json.loads(told).items()}


MEASURE = """
import gc, json, sys, tracemalloc
from stompbox.selectors import compile_selector

def measure(text):
    compile_selector(text)  # what is made once
    gc.collect()
    tracemalloc.start()
    selector = compile_selector(text)
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return taken, selector.size

print(json.dumps({name: measure(text) for name, text in json.load(sys.stdin).items()}))
"""


@pytest.mark.parametrize("name", SIZES)
def test_a_selector_takes_about_what_it_says(taken: dict[str, tuple[int, int]], name: str) -> None:
    octets, said = taken[name]
    assert octets <= 1.2 * said
    assert said <= 2.5 * octets + 3 * len(SIZES[name])


def test_what_nobody_has_is_let_go_in_steps() -> None:
    cache = SelectorCache(1_000_000)
    used = asked(cache, "a = 1")
    for number in range(20):
        asked(cache, f"b = {number}", f"user {number % 3}")
    steps = cache.letting_go()
    for left in range(len(cache) - 1, -1, -1):
        next(steps)
        assert len(cache) == left
    assert next(steps, "over") == "over"
    assert cache.size == 0
    assert asked(cache, "a = 1") is used
    number = used.number
    assert asked(cache, "b = 1").number > number
