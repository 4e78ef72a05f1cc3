"""How far one message goes that the configuration sends on: where a circle ends, and where it is enough.

A message goes on at once along the diverts of its address, along those of the addresses that these lead to, and to the dead letter address
of each where nobody takes it (send-to-dla-on-no-route). An address sends on what comes to it once, however it comes round. What has come
over DEEP addresses, or along WAYS diverts in all, stays where it is: ten addresses each of which diverts to each other are ten million
ways, and who sends there would stop the broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stompbox.broker.undelivered import TOO_MANY_WAYS, Fate

if TYPE_CHECKING:
    from stompbox.broker.undelivered import Undelivered

DEEP: Final = 64  # addresses, one after the other: each takes some of the stack
WAYS: Final = 1000  # diverts, but for the others of the last address


class Path(NamedTuple):
    """Names of addresses that send a message on: those along whose diverts it goes, and those where nobody took it."""

    diverting: tuple[str, ...] = ()
    stranding: tuple[str, ...] = ()


NOWHERE: Final = Path()


class Course:
    """How the message that goes just now has come to where it is (`path`), and along how many diverts its copies have gone (`ways`)."""

    __slots__ = ("_undelivered", "path", "ways")

    def __init__(self, undelivered: Undelivered) -> None:
        self.path = NOWHERE
        self.ways = 0
        self._undelivered = undelivered

    def divert(self, address: str, diverts: int, count: int) -> bool:
        """Whether it goes along these diverts of an address now, `count` messages of one run; that is part of its path until `go_back`."""
        path = self.path
        if address in path.diverting or not self._is_going_on(address, count):
            return False
        if path != NOWHERE:
            self.ways += diverts
        self.path = Path((*path.diverting, address), path.stranding)
        return True

    def strand(self, address: str, count: int) -> bool:
        """Whether it goes to the dead letter address of one where nobody took it; that is part of its path, too."""
        path = self.path
        if address in path.stranding or not self._is_going_on(address, count):
            return False
        self.path = Path(path.diverting, (*path.stranding, address))
        return True

    def take(self, ways: int) -> None:
        """Another part of a run goes on, whose messages have gone along so many diverts."""
        self.ways = ways

    def go_on(self, path: Path) -> None:
        """Another message goes on, which has come by this path."""
        self.path = path

    def go_back(self, path: Path) -> None:
        """What was sent on has gone: the path is what it was before."""
        self.path = path
        if path == NOWHERE:
            self.ways = 0

    def _is_going_on(self, address: str, count: int) -> bool:
        if len(self.path.diverting) + len(self.path.stranding) < DEEP and self.ways < WAYS:
            return True
        self._undelivered.note(address, TOO_MANY_WAYS, Fate.STAYED, count)
        return False

    def __repr__(self) -> str:
        return f"<Course by {self.ways} diverts, {self.path}>"
