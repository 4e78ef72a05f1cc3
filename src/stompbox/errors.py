"""Every error of Stompbox, in one tree that says whose fault it is.

    StompboxError
    ├── PeerError            the other side sent something malformed or illegal
    │   ├── FrameError       the byte stream is broken: always fatal, the connection closes in every version
    │   ├── IllegalFrame     a whole frame that may not come now, or has a wrong or missing header
    │   └── SelectorError    a selector that does not parse; says at which position and what was expected
    ├── Refused              well formed, but not allowed: rights, limits, full, already in use
    │   ├── NotPermitted     a right that the user has not; says which, and on what
    │   ├── TooManyMade      more addresses, queues or positions than the user may have
    │   └── TooManyBindings  a subscription to more queues than its session, or its user, may be bound to
    ├── LocalError           our own caller's mistake: configuration, command line, arguments
    │   ├── ConfigError      names file, line and key
    │   └── UsageError       a wrong argument of the client library or the command line
    ├── ConnectionLost       the network or the broker went away
    └── BrokerFault          ours
        ├── LinkError        a front has written what is no record of its link, or what may not come now
        └── StoreError       the disk refused; nothing of the commit counts as stored

`code` is stable: it stands in the ERROR frame, in the log and in the metrics, and docs/errors.md lists it.
"""

from __future__ import annotations

import os
import re
from functools import partial
from typing import Any, Final

# Who logs in: up to the last @ before the query. A passcode may hold a ?, too, as long as no option comes before its @
_USERINFO: Final = re.compile(r"^(\s*[\w+.-]*:/*)?(?:[^?]*|[^=]*)@")
_SECRET: Final = re.compile(r"(pass\w*\s*=)[^;&]*", re.IGNORECASE)

# characters of an error's text: with what it repeats, many of them would fill the log, and hold others up
LONGEST: Final = 4000

_NUMBERED: Final = re.compile(r"\[Errno (\d+)\]")
# modules whose errors do not count as errno.h does; to import them takes time
_NUMBERS_OF_THEIR_OWN: Final = ("socket", "ssl")


def redacted(url: str) -> str:
    """A URL, whole or malformed, with every passcode starred out: all error texts and logs that show one go through here."""
    return _SECRET.sub(r"\1***", _USERINFO.sub(lambda found: f"{found[1] or ''}***@", url))


def reason_of(error: Exception) -> str:
    """What the system had against it, in its own words and without its numbers: `Connection refused`. Where several addresses of one
    name were tried, each different reason once."""
    numbers = [int(number) for number in _NUMBERED.findall(str(error))]
    if isinstance(error, OSError) and error.errno is not None:
        numbers.append(error.errno)
    words = [os.strerror(number) for number in dict.fromkeys(numbers) if number > 0]
    is_known = words and type(error).__module__ not in _NUMBERS_OF_THEIR_OWN
    return (
        ", ".join(words)
        if is_known
        else getattr(error, "strerror", None) or str(error) or type(error).__name__
    )


class StompboxError(Exception):
    """Base of all. `code` is a stable lower-case word-with-hyphens; the text names what was wrong and where.

    `field`: of a request to the admin interface, which field of its body or parameter of its URL was wrong.
    """

    field: str | None = None

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def message(self) -> str:
        """What a client and the log are told; what it repeats of a frame may be long."""
        text = str(self.args[0])
        return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, self.message)


class PeerError(StompboxError):
    """The other side of the connection is at fault."""


class FrameError(PeerError):
    """The byte stream is broken or beyond a limit of the codec: ERROR, then close, in every version.

    `receipt` is what the faulty frame asked for, where its head could be read that far.
    """

    receipt: str | None = None


class IllegalFrame(PeerError):
    """A well-formed frame that is not legal here. `closes` tells whether 1.0 and 1.1 close too (1.2 always does)."""

    def __init__(self, code: str, message: str, *, closes: bool = False) -> None:
        super().__init__(code, message)
        self.closes = closes

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), closes=self.closes), (self.code, self.message)


class SelectorError(PeerError):
    """A selector that cannot be compiled. `position` counts characters from 1."""

    def __init__(self, code: str, message: str, position: int = 0) -> None:
        super().__init__(code, message)
        self.position = position

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, self.message, self.position)


class Refused(StompboxError):
    """Understood, but not allowed. `closes` tells whether 1.0 and 1.1 close too (1.2 always does)."""

    def __init__(self, code: str, message: str, *, closes: bool = False) -> None:
        super().__init__(code, message)
        self.closes = closes

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), closes=self.closes), (self.code, self.message)


class NotPermitted(Refused):
    """The user has not the right `right` on `address`."""

    def __init__(self, code: str, message: str, right: str = "", address: str = "") -> None:
        super().__init__(code, message)
        self.right = right
        self.address = address

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, self.message, self.right, self.address)


class TooManyMade(Refused):
    """A frame would make more than its user may have. A transaction that lacks one of its SENDs is not to be committed: then it closes."""


class TooManyBindings(Refused):
    """A subscription would be bound to more queues than its session, or its user, may be. `consumer`: which one."""

    def __init__(self, code: str, message: str, *, closes: bool = False, consumer: Any = None) -> None:
        super().__init__(code, message, closes=closes)
        self.consumer = consumer


class LocalError(StompboxError):
    """The caller in this process is at fault."""


class ConfigError(LocalError):
    """The configuration is wrong; the text names file, line and key."""


class UsageError(LocalError):
    """An argument of a call, or of a command, is wrong."""


class ConnectionLost(StompboxError):
    """The network or the other side went away."""


class BrokerFault(StompboxError):
    """Stompbox itself is at fault, not its peer."""


class LinkError(BrokerFault):
    """A front has written on its link what is no record, or what may not come now."""


class StoreError(BrokerFault):
    """The store could not keep what it was given."""
