"""The mutation fuzzer for a few seconds, with fixed seeds; `python tests/fuzz/fuzz_codec.py` searches for as long as you like."""

from __future__ import annotations

import pytest

from stompbox.stomp.versions import V12
from tests.fuzz.mutation import Broken, Mutator, check

ROUNDS = 2500


@pytest.mark.parametrize("seed", range(4))
def test_codec_keeps_its_contract(seed: int) -> None:
    mutator = Mutator(seed)
    read = 0
    for _ in range(ROUNDS):
        data, cuts, version, is_server, logged_in = mutator.next()
        read += len(check(data, cuts, version, is_server=is_server, logged_in=logged_in))
    assert read > ROUNDS // 2, "most inputs are refused at once: the fuzzer does not get into the codec"


def test_same_seed_gives_the_same_inputs() -> None:
    first, second = Mutator(7), Mutator(7)
    assert [first.next() for _ in range(20)] == [second.next() for _ in range(20)]


def test_a_broken_codec_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Swap one function for a faulty one: forgetting what was searched, as a scan that starts too late."""
    monkeypatch.setattr("stompbox.stomp.codec._least_head", lambda data, position, stop: stop - position)
    monkeypatch.setattr(
        "tests.fuzz.mutation.LIMITS",
        type(check.__globals__["LIMITS"])(head=11, headers=5, body=50, before_login=60),
    )
    with pytest.raises(Broken, match="header-too-large"):
        check(b"SEND\na:bcde\n\n\0", range(20), V12, is_server=True, logged_in=True)
