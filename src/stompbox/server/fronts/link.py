"""The link between the broker's process and a front: records over a pair of sockets, gathered for a turn of the loop and written at once.

A socket has a number of its front's, which is never used again; 0 stands for none of them. This file decides what records say (records.py:
how they are cut), sends nothing and knows no sockets. Whatever a front writes that is not as it says here raises LinkError: a front
that is out of order must not take the broker with it.
"""

from __future__ import annotations

import pickle
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import Any, Final, TypeVar

from msgspec import MsgspecError
from msgspec import Struct as Record
from msgspec.json import decode, encode

from stompbox.config import Listener
from stompbox.errors import FrameError, IllegalFrame, LinkError, PeerError, Refused, StompboxError

COUNT: Final = Struct("<I")
# ms since the client's system sent data, and since it sent anything (-1: it is not known); octets that the front keeps for it
SIGNS: Final = Struct("<iiI")
# octets of a record of a front, which cuts what its clients have sent into such pieces
PIECE: Final = 1 << 20
MOST: Final = PIECE + 4096
WINDOW: Final = (
    256 << 10
)  # octets of a client that may wait to be obeyed: what one read of a socket has at the most
CREDIT: Final = WINDOW // 4  # that were obeyed, after which the front is told
AHEAD: Final = 128 << 10  # octets for a client that may be on their way before its socket counts as clogged
TAKEN: Final = AHEAD // 8  # that the system has taken, after which a front says so
SHARED: Final = 32 << 20  # octets on their way to all clients of a front, beyond which each has less room:
LEAST: Final = 2 * TAKEN  # this; a front says of half of it that it was taken, whatever the client does
LONGEST: Final = 1000  # characters of an address or a name that a front tells


class Kind(IntEnum):
    """What a record says."""

    DATA = 0  # both ways: what a client has sent, or is sent

    # by a front
    READY = 1  # what the broker has told it to begin with, or has changed, is so
    ARRIVED = 2  # a socket was accepted: `Arrival`
    LOCATED = 3  # the address of who is behind a balancer
    OPENED = 4  # STOMP is spoken on it: `Opening`
    DISMISSED = 5  # the front has something against it: `Fault`
    ENDED_ITS_SIDE = 6
    LINGERS = 7
    GONE = 8
    TAKEN = 9  # the system has taken so many octets: COUNT
    SIGNS = 10  # of life, of one who is not read or does not read, or for whom something is kept
    REFUSED = 11  # somebody who could be told nothing: `Refusal`
    LOGGED = 12  # `Line`
    BEAT = 13  # both ways; by a front with its `Pulse`
    STATUS = 14  # of a node of a cluster (cluster/members.py)

    # by the broker
    BEGIN = 32  # and whenever something of it changes: `Settings`
    CREDIT = 33  # so many octets of it were obeyed: COUNT
    PAUSE = 34
    RESUME = 35
    CLOSE = 36
    ABORT = 37
    FINISH = 38
    ENTERED = 39  # the user's name
    DISMISS = 40  # `Fault`
    PROBE = 41  # COUNT: seconds
    STOP_ACCEPTING = 42
    END = 43
    TABLE = 44  # of the nodes of a cluster
    LEAD = 45  # a node is to lead its cluster, as soon as it has read all
    DRAIN = 46  # COUNT: 1: a node is not to try that by itself; 0: it may again


class Bound(Record, frozen=True):
    """A listener, and the descriptors of the sockets that the front is to accept on."""

    listener: Listener
    descriptors: list[int]


class Settings(Record, frozen=True):
    """What a front must know of the configuration. `users`: how many there are."""

    name: str
    bound: list[Bound]
    users: int
    log_level: str


class Arrival(Record, frozen=True):
    """A front has accepted a socket; `is_crowded` where it has more of them than its system lets it have."""

    listener: int
    peer: str
    is_crowded: bool = False


class Opening(Record, frozen=True):
    peer: str
    certificate: str
    port: int


class Fault(Record, frozen=True):
    """An error of errors.py, by the name of its class."""

    kind: str
    code: str
    message: str
    closes: bool


class Refusal(Record, frozen=True):
    who: str
    fault: Fault


class Line(Record, frozen=True):
    """A line for the broker's log."""

    level: int
    text: str
    code: str


class Pulse(Record, frozen=True):
    """`number` is that of the beat which is answered; `cpu` in seconds since the front began."""

    number: int
    cpu: float


_FAULTS: Final[dict[str, type[StompboxError]]] = {
    kind.__name__: kind for kind in (PeerError, FrameError, IllegalFrame, Refused)
}

T = TypeVar("T", bound=Record)


packed: Final = encode
"""The octets of a payload."""


def settled(settings: Settings) -> bytes:
    """Pickles `Settings`, which have whatever the configuration of a listener has. They go one way only: a front reads what the
    process that started it has written, and nobody reads what a front has pickled."""
    return pickle.dumps(settings)


def settings_in(payload: bytes) -> Settings:
    settings: Settings = pickle.loads(payload)
    return settings


def told(error: StompboxError) -> Fault:
    """As the other side is told of it."""
    name = next((name for name, kind in _FAULTS.items() if type(error) is kind), "PeerError")
    closes = error.closes if isinstance(error, IllegalFrame | Refused) else True
    return Fault(name, error.code, error.message, closes)


def raised(fault: Fault) -> StompboxError:
    """The error that the other side has told of. Raises LinkError where there is none of that kind."""
    kind = _FAULTS.get(fault.kind)
    if kind is None:
        raise LinkError("bad-link", f"an error of the kind {fault.kind[:80]!r}")
    if issubclass(kind, IllegalFrame | Refused):
        return kind(fault.code, fault.message, closes=fault.closes)
    return kind(fault.code, fault.message)


def read_as(kind: type[T], payload: bytes) -> T:
    """Decodes what a front says. Raises LinkError."""
    try:
        return decode(payload, type=kind)
    except (MsgspecError, UnicodeDecodeError) as error:
        raise LinkError("bad-link", f"a {kind.__name__} that is none: {error}") from None


def numbers(form: Struct, payload: bytes) -> tuple[Any, ...]:
    """Unpacks what a front says in numbers. Raises LinkError."""
    try:
        return form.unpack(payload)
    except StructError as error:
        raise LinkError("bad-link", f"{len(payload)} octets that are no number: {error}") from None
