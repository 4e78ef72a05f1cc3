"""What is large on its way out of one connection, with a socket and a loop that only write down what they are asked."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stompbox.handles import Large
from stompbox.server.outgoing import PORTION, Outgoing, Portions, Stream
from stompbox.server.session.connection import Connection
from stompbox.store.base import PIECE


class Told:
    """The little of a connection that an Outgoing touches: `written`, and `turns` that the loop still has to give."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.turns: deque[Callable[[], object]] = deque()
        self.out: list[bytes] = []
        self.pulse = None
        self.frames = None
        self.transport = SimpleNamespace(is_clogged=False, write=self.written.append)
        self.user = SimpleNamespace(name="")
        self.pieces: list[bytes] = []  # of a large body, that memory has
        self.reading: list[asyncio.Future[bytes]] = []  # and those that are read
        self.is_turn_over = False
        self.broker = SimpleNamespace(
            turns=SimpleNamespace(later=self._later, in_time=self._in_time),
            engine=SimpleNamespace(bodies=SimpleNamespace(is_untold=lambda _: False, piece=self._piece)),
            committer=SimpleNamespace(read_part=lambda _, number: self.reading[number]),
            set_time=lambda: None,
            flush=lambda: None,
        )
        self.outgoing: Outgoing | None = Outgoing(cast(Connection, self))
        self.is_done = False

    def _later(self, work: Callable[[float], bool], *_: Any, **__: Any) -> None:
        self.turns.append(lambda: work(0.0))

    def _in_time(self, work: Callable[[], None]) -> None:
        if self.is_turn_over:
            self.turns.append(work)
        else:
            work()

    def _piece(self, _: Large, number: int) -> bytes | None:
        return self.pieces[number] if self.pieces else None

    def call(self, callback: Callable[..., None], *given: object, **_: object) -> None:
        callback(*given)

    def write_out(self) -> None:
        assert self.outgoing is not None
        self.is_done = self.outgoing.write()

    def stream(self, *pieces: bytes) -> None:
        assert self.outgoing is not None
        self.outgoing.add(Portions(pieces))
        self.write_out()


@pytest.mark.parametrize(
    "sizes",
    [(1, PORTION, 1), (16, 3 * PORTION, 16, PORTION // 2), (5,) * 100_000, (PORTION,), (PORTION + 1,)],
)
def test_an_answer_goes_out_in_portions_each_in_a_turn_of_its_own(sizes: tuple[int, ...]) -> None:
    seeded = random.Random(7)
    pieces = [seeded.randbytes(size) for size in sizes]
    told = Told()
    told.stream(*pieces)
    while not told.is_done:
        before = len(told.written)
        assert len(told.turns) == 1
        told.turns.popleft()()
        assert len(told.written) == before + 1
    assert b"".join(told.written) == b"".join(pieces)
    assert {len(portion) for portion in told.written[:-1]} <= {PORTION}
    assert not told.turns


def test_what_is_said_meanwhile_follows_whole() -> None:
    told = Told()
    told.out = [b"before"]
    told.stream(b"a" * (2 * PORTION))
    told.out = [b"between"]
    told.stream(b"b" * PORTION)
    while told.turns:
        told.turns.popleft()()
    assert told.is_done
    assert b"".join(told.written) == b"before" + b"a" * (2 * PORTION) + b"between" + b"b" * PORTION


def test_a_socket_that_is_clogged_is_given_nothing_until_it_is_drained() -> None:
    told = Told()
    told.transport.is_clogged = True
    told.stream(b"a" * (2 * PORTION))
    assert not told.written
    assert not told.turns
    told.transport.is_clogged = False
    told.write_out()
    told.transport.is_clogged = True
    told.turns.popleft()()
    assert [len(portion) for portion in told.written] == [PORTION]
    assert not told.turns
    told.transport.is_clogged = False
    told.write_out()
    assert told.is_done
    assert len(told.written) == 2


def test_a_turn_that_comes_after_the_end_does_nothing() -> None:
    told = Told()
    told.stream(b"a" * (2 * PORTION))
    told.outgoing = None
    told.turns.popleft()()
    assert len(told.written) == 1


def test_of_a_body_that_is_in_memory_one_piece_goes_out_in_a_turn() -> None:
    told, pieces = Told(), [b"a" * PIECE, b"b" * PIECE, b"c"]
    told.pieces = pieces
    large = Large(1, sum(map(len, pieces)))
    assert told.outgoing is not None
    told.outgoing.add(Stream(b"MESSAGE\n\n", large))
    told.write_out()
    assert len(told.written) == 1
    while not told.is_done:
        before = len(told.written)
        assert len(told.turns) == 1
        told.turns.popleft()()
        assert len(told.written) == before + 1
    assert b"".join(told.written) == b"MESSAGE\n\n" + b"".join(pieces) + b"\0\n"
    assert len(told.written) == len(pieces)


def test_a_piece_that_was_read_goes_out_when_it_is_its_turn() -> None:
    """Those of very many connections may have been read meanwhile."""
    told = Told()
    told.reading = [asyncio.Future(loop=cast(Any, SimpleNamespace(get_debug=bool, call_soon=told.call)))]
    assert told.outgoing is not None
    told.outgoing.add(Stream(b"MESSAGE\n\n", Large(1, 3)))
    told.write_out()
    assert not told.written
    told.is_turn_over = True
    told.reading[0].set_result(b"abc")
    assert not told.written
    told.turns.popleft()()
    assert b"".join(told.written) == b"MESSAGE\n\nabc\0\n"
