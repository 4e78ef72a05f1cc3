"""What those who take part in a drill write down, each in a journal of its own: what they sent, what came, what was confirmed.

A journal is a file of JSON lines in the order in which things happened to its writer. Times are of the machine's monotonic clock
(ns), so that journals can be laid side by side. A `link` is one connection, named `<epoch>-<session>` as CONNECTED says: brokers
that were started later have higher epochs.

| word     | is                                                                                            |
|----------|-----------------------------------------------------------------------------------------------|
| message  | the name that stands in its body, `<producer>.<number>`; numbers only grow                    |
| source   | whatever hands messages out: `/queue/x`, or `<client-id>/<name>` for a durable subscription   |
| unit     | what must happen whole: a SEND outside a transaction, or a transaction                        |
| traits   | what a message asks for by its headers: a time to live, a delay, a priority, a key            |
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from msgspec import Struct, json


class Opened(Struct, frozen=True, tag=True):
    time: int
    link: str


class Subscribed(Struct, frozen=True, tag=True):
    """It may be handed messages of the source from now on, whether or not it ever gets one."""

    link: str
    source: str


class Started(Struct, frozen=True, tag=True):
    """A broker is about to be started. `limited`: sources that may be full; `counts_first`: attempts are stored before deliveries."""

    time: int
    limited: list[str]
    counts_first: bool


class Closed(Struct, frozen=True, tag=True):
    """`is_abrupt`: without DISCONNECT, so that the oldest message of each subscription has failed; `sources`: what it subscribed to."""

    time: int
    link: str
    is_abrupt: bool = False
    sources: list[str] = []


class Traits(Struct, frozen=True):
    """What a message's headers ask for. Times are of the machine's monotonic clock (ns); 0: none."""

    kind: str = ""  # what selectors look at
    priority: int = 4
    due: int = 0  # not to be delivered before
    expires: int = 0  # not to be delivered after
    group: str = ""
    key: str = ""  # of a last-value queue
    retained: bool = False
    # sent with an id for duplicate detection: may be sent once more, and must be there once
    again: bool = False
    delay: int = 0  # ms for which it is to wait


class Sent(Struct, frozen=True, tag=True):
    """A SEND is about to be written; `transaction` is empty outside of one."""

    link: str
    message: str
    destination: str
    transaction: str = ""
    persistent: bool = True
    time: int = 0
    traits: Traits = Traits()


class Ended(Struct, frozen=True, tag=True):
    """COMMIT (or ABORT) is about to be written."""

    link: str
    transaction: str
    commits: bool


class Confirmed(Struct, frozen=True, tag=True):
    """RECEIPT for the SEND of a message outside of transactions, or for the COMMIT of a transaction."""

    time: int
    link: str
    unit: str


class Refused(Struct, frozen=True, tag=True):
    """ERROR for the SEND of a message outside of transactions, or for the COMMIT of a transaction."""

    link: str
    unit: str


class Got(Struct, frozen=True, tag=True):
    """A MESSAGE was read."""

    time: int
    link: str
    source: str
    message: str
    redelivered: bool
    id: str = ""  # its message-id
    reason: str = ""  # of a dead letter
    offset: int = -1  # in the log, where the reader is told


class Retained(Struct, frozen=True, tag=True):
    """The first MESSAGE of a new subscription to a topic with a retained message; `asked`: when SUBSCRIBE was about to be written."""

    asked: int
    link: str
    destination: str
    message: str


class Waiting(Struct, frozen=True, tag=True):
    """What a source had when nobody consumed from it, in its order."""

    source: str
    messages: list[str]


class Answered(Struct, frozen=True, tag=True):
    """ACK (or NACK) is about to be written."""

    link: str
    source: str
    messages: list[str]
    transaction: str = ""
    is_good: bool = True
    is_failure: bool = False  # a NACK, which counts; what is merely given back does not
    is_final: bool = False  # a dead letter at once


class Acknowledged(Struct, frozen=True, tag=True):
    """RECEIPT for an ACK outside of transactions."""

    time: int
    link: str
    source: str
    messages: list[str]


class Shown(Struct, frozen=True, tag=True):
    """What a reader who takes nothing from anybody was shown, in order: all that was confirmed before `asked` must be among it. `start`:
    the offset from which it read a log, which tells `offsets`."""

    asked: int
    link: str
    source: str
    messages: list[str]
    start: int = 0
    offsets: list[int] = []


class Moving(Struct, frozen=True, tag=True):
    """A reader group is about to be told to go on to an offset."""

    link: str
    group: str
    position: int


class Moved(Struct, frozen=True, tag=True):
    """It has been confirmed."""

    time: int
    link: str
    group: str
    position: int


class Stood(Struct, frozen=True, tag=True):
    """Where a reader group is, as the broker says; `asked`: when it was about to be asked."""

    asked: int
    link: str
    group: str
    position: int


Event = (
    Started | Opened | Subscribed | Closed | Sent | Ended | Confirmed | Refused | Got | Retained | Waiting | Answered | Acknowledged
    | Shown | Moving | Moved | Stood
)  # fmt: skip


class Journal:
    """Writes line by line: what was written stays, whatever becomes of the writer."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=1 << 12)

    def note(self, event: Event) -> None:
        self._file.write(json.encode(event) + b"\n")

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read(path: Path) -> Iterator[Event]:
    decoder: json.Decoder[Any] = json.Decoder(Event)
    with path.open("rb") as lines:
        for line in lines:
            yield decoder.decode(line)
