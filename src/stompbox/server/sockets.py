"""Sockets are read as far as a turn of the loop has time, and each user's as if they were one.

A loop reads all sockets that have something before anybody has a turn, at 8 us each: of five thousand whose peers speak, or end, at the
same time everybody else would feel 40 ms. So it does not read them. They are in an epoll of their own, the loop is told when that has
something, and of those that have so many are read as there is time for, one read each. The others wait in the system.

    the loop  <-  the first SEATS sockets of each user           up to READING in a turn
                  <-  a crowd: the other sockets of one user     what is left of that, in equal parts, and a PART at the least
                  <-  the crowd of strangers, who have not logged in, OF_STRANGERS

So who has one connection never waits for those of who has thousands, and strangers wait for each other. Where the last turn had no time for
all crowds, what came of the first ones goes out before the crowds are read. There are CROWDS, each of which is a file; those who come later
share one.

The loop still writes to them, and one that was reset is given back to it, which finds out why. A socket that ends counts for more than its
read takes, since it is closed later. Where the system has no epoll, as on macOS, the loop reads, too.
"""

from __future__ import annotations

import os
import select
from abc import ABCMeta, abstractmethod
from asyncio import AbstractEventLoop, Transport
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

# seconds of a turn in which sockets are read, and what is small is obeyed (LATE, turns.py)
READING: Final = 0.002
PART: Final = 0.000_5  # seconds that a crowd has, one in each turn at the least
OF_STRANGERS: Final = 0.000_5  # seconds that strangers have
ENDING: Final = 0.0001  # seconds that count for a socket that ends: the loop has more to do for it than a clock shows here
SEATS: Final = 8  # sockets of a user that are in no crowd
CROWDS: Final = 16  # users who have one; they are files of those that descriptors.py leaves to the process
NOBODY, OTHERS = "", "\0"  # whose crowd that of strangers is, and that of all who come later
MANY: Final = 64  # sockets of which the system tells in one go
SIZE: Final = 256 << 10  # octets of a read, at the most
HAS_EPOLL: Final = hasattr(select, "epoll")
SOMETHING: Final = 1  # EPOLLIN: octets, or that no more come; all else is how a socket ends


class Receiver(Protocol):
    """Who is given what was read."""

    def data_received(self, data: bytes) -> None: ...
    def eof_received(self) -> bool | None:
        """The peer says no more. True: it may be told something still."""


class _Ready(metaclass=ABCMeta):
    """What the system tells of."""

    __slots__ = ()

    @abstractmethod
    def read(self, events: int) -> bool:
        """The system has told of `events`. False: the socket ends."""


class Reader(_Ready):
    """Reads one socket, whose `transport` writes to it. To pause it, and go on in the same turn, asks the system for nothing."""

    __slots__ = (
        "_crowd", "_is_loops", "_is_paused", "_is_watched", "_number", "_receiver", "_transport", "_user",
    )  # fmt: skip

    def __init__(self, transport: Transport, receiver: Receiver, number: int, crowd: Crowd | None) -> None:
        """Begins to read where `crowd` is one; None: the loop reads. `number`: of its file."""
        self._transport = transport
        self._receiver: Receiver | None = receiver  # until its end
        self._number = number
        self._crowd = crowd
        self._user = NOBODY
        self._is_loops = crowd is None  # the loop reads it, or does again
        self._is_paused = False
        # the system tells when there is something; None: it is not asked, before `begin` and behind the end
        self._is_watched: bool | None = None

    def begin(self) -> None:
        """The loop reads what it has accepted as soon as it has told of it. From now on it does not."""
        if self._receiver is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            self._is_watched = False
            if not self._is_paused:
                self._watch()

    def _watch(self) -> None:
        if self._crowd is not None and self._is_watched is False:
            self._crowd.watch(self._number)
            self._is_watched = True

    def _leave(self) -> None:
        if self._crowd is not None and self._is_watched:
            self._crowd.leave(self._number)
            self._is_watched = False

    def enter(self, user: str) -> None:
        """Begins to be one of its user's sockets: the client has logged in."""
        crowd, is_watched = self._crowd, self._is_watched
        if crowd is None:
            return
        self._leave()
        sockets = crowd.sockets
        sockets.part(crowd, self._user)
        self._crowd, self._user = sockets.join(user), user
        if is_watched:
            self._watch()

    def end(self) -> None:
        """The socket is about to be closed: nothing of it is kept. Of TLS both sides say so, at different times."""
        self._receiver = None
        self._leave()
        crowd, self._crowd = self._crowd, None
        if crowd is not None:
            crowd.sockets.leave(self._number, crowd, self._user)

    def abort(self) -> None:
        self._transport.abort()

    def read(self, events: int) -> bool:
        receiver, crowd = self._receiver, self._crowd
        if receiver is None or crowd is None or self._is_paused or self._transport.is_closing():
            self._leave()
            return True
        if events == SOMETHING:
            sockets = crowd.sockets
            try:
                # in a statement of its own: within the brackets mypyc would read twice
                size = os.readv(self._number, sockets.rooms)
                data = bytes(sockets.view[:size])
            except BlockingIOError:  # the system may have been wrong (select(2), Bugs), or it has been read
                return True
            except OSError:
                self._leave()
                self._transport.abort()
                return False
            if data:
                receiver.data_received(data)
                return True
            self._leave()
            self._is_watched = None  # it ends once
            if not receiver.eof_received():
                self._transport.close()
        else:
            self._leave()
            self._is_loops = True
            self.resume_reading()
        return False

    def pause_reading(self) -> None:
        self._is_paused = True
        if (self._is_loops or self._is_watched is None) and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if self._transport.is_closing():
            return
        if self._is_loops:
            self._transport.resume_reading()
        else:
            self._watch()

    def __repr__(self) -> str:
        return f"<Reader of {self._number}{' paused' if self._is_paused else ''}>"


class Crowd(_Ready):
    """Sockets that have turns with each other. `user`: whose they are."""

    def __init__(self, sockets: Sockets, user: str) -> None:
        self.sockets = sockets
        self.user = user
        self._epoll = select.epoll()
        self.number = self._epoll.fileno()
        self.members = 0
        # of which the system has told, and for which there was no time: it would tell of others first, again and again
        self._left: list[int] = []

    def watch(self, number: int) -> None:
        self._epoll.register(number, SOMETHING)

    def leave(self, number: int) -> None:
        self._epoll.unregister(number)

    def read(self, _: int) -> bool:
        """Some of them have something: their turn comes behind those who are in no crowd."""
        self.sockets.due[self] = None
        return True

    def have_turn(self, until: float) -> float:
        """Reads its sockets, one of them at the least. Seconds that count besides, for those that end."""
        clock, ready = self.sockets.clock, self.sockets.ready
        found, is_last = [(number, SOMETHING) for number in self._left], False
        self._left = []
        ending = 0.0
        while True:
            for at, (number, events) in enumerate(found, 1):
                one = ready[number]
                if one is not None and not one.read(events):
                    ending += ENDING
                if clock() + ending > until:
                    self._left = [number for number, _ in found[at:]]
                    return ending
            if is_last or self._epoll.closed:  # all of them have left
                return ending
            found = self._epoll.poll(0, MANY)
            is_last = len(found) < MANY

    def close(self) -> None:
        self._epoll.close()

    def __repr__(self) -> str:
        return f"<Crowd of {self.members}>"


class Sockets:
    """All that are read in turns of one loop. There are files as long as there are sockets. `go_out` lets out what came of reading."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        clock: Callable[[], float],
        go_out: Callable[[], None],
    ) -> None:
        self._loop = loop
        self.clock = clock
        self._go_out = go_out
        self._was_late = False  # there was no time for all of them in the last turn
        # each is read into: to make so much room for each read would cost 12 us, which the allocator asks the system for
        room = bytearray(SIZE)
        self.rooms, self.view = [room], cast(Any, memoryview(room))
        self.ready: list[_Ready | None] = []  # at the number of its file
        self.due: dict[Crowd, None] = {}  # who comes next the first
        self._seated: Crowd | None = None
        self._crowds: dict[str, Crowd] = {}  # by user; strangers are nobody
        self._seats: Counter[str] = Counter()  # that a user has
        self._count = 0

    def reads(self, transport: Transport, receiver: Receiver) -> Reader:
        """Reads a socket from now on, that of a stranger."""
        found = transport.get_extra_info("socket") if HAS_EPOLL else None
        if found is None:
            return Reader(transport, receiver, -1, None)
        number: int = found.fileno()
        if not self._count:
            self._seated = Crowd(self, NOBODY)
            self._loop.add_reader(self._seated.number, self._read)
        self._count += 1
        reader = Reader(transport, receiver, number, self.join(NOBODY))
        self._set(number, reader)
        self._loop.call_soon(reader.begin)
        return reader

    def leave(self, number: int, crowd: Crowd, user: str) -> None:
        """A socket is about to be closed."""
        self.part(crowd, user)
        self.ready[number] = None
        self._count -= 1
        if not self._count:
            seated, self._seated = self._seated, None
            assert seated is not None
            for left in self._crowds.values():  # that of strangers
                left.close()
            self._crowds.clear()
            self.due.clear()
            self.ready.clear()
            if not self._loop.is_closed():
                self._loop.remove_reader(seated.number)
            seated.close()

    def _set(self, number: int, ready: _Ready | None) -> None:
        if number >= len(self.ready):
            self.ready += [None] * (number + 1 - len(self.ready))
        self.ready[number] = ready

    def join(self, user: str) -> Crowd:
        """A socket of the user begins, or one of a stranger, who is nobody yet: the crowd that it belongs to."""
        seated = self._seated
        assert seated is not None
        if user and self._seats[user] < SEATS:
            self._seats[user] += 1
            return seated
        if user not in self._crowds and len(self._crowds) >= CROWDS:
            user = OTHERS
        crowd = self._crowds.get(user)
        if crowd is None:
            crowd = self._crowds[user] = Crowd(self, user)
            self._set(crowd.number, crowd)
            seated.watch(crowd.number)
        crowd.members += 1
        return crowd

    def part(self, crowd: Crowd, user: str) -> None:
        """Gives back what `join` took."""
        if crowd is self._seated:
            self._seats[user] -= 1
            if not self._seats[user]:
                del self._seats[user]
            return
        crowd.members -= 1
        if crowd.user and not crowd.members and self._seated is not None:  # strangers come and go
            del self._crowds[crowd.user]
            self.ready[crowd.number] = None
            self.due.pop(crowd, None)
            self._seated.leave(crowd.number)
            crowd.close()

    def _read(self) -> None:
        """The turn of those that have something."""
        if self._seated is None:
            return
        clock = self.clock
        until = clock() + READING
        until -= self._seated.have_turn(until)
        if self._was_late and self.due:
            self._go_out()
        self._was_late = False
        while self.due:
            now = clock()
            crowd = next(iter(self.due))
            del self.due[crowd]
            part = OF_STRANGERS if crowd.user == NOBODY else max(PART, (until - now) / (len(self.due) + 1))
            until -= crowd.have_turn(now + part)
            if clock() > until:
                self._was_late = True
                return

    def __repr__(self) -> str:
        return f"<Sockets {self._count}>"
