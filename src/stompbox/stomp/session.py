"""What may come when: one table of legality, and what each frame must carry.

    NEW --CONNECT, STOMP--> CONNECTING --(CONNECTED is written)--> OPEN --DISCONNECT--> ENDING --> (nothing more is obeyed)

In CONNECTING nothing is legal: what a client has sent behind its CONNECT waits, and is dropped when the CONNECT is refused.
Only `open` leads on from there, and only the code that writes CONNECTED calls it.

Frames pass by the table one by one. Runs (runs.py) do not, nor do the pieces of a large body: they are asked for the state alone, once for
all of them (`require_open`), because the rest of what `receive` asks is known of them. In OPEN a SEND and an ACK are legal and lead nowhere
else; a run of SENDs has a destination, else it would have no shape; a run of ACKs is read by a pattern that has the header `id`, and only
in the version that needs no other; both may be part of a transaction. Of a large SEND its opening has been here, as a frame.

This file decides whether a frame is legal here and now. What it does is decided in server/; how it looks on the wire in codec.py.
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType
from typing import Final

from stompbox.errors import IllegalFrame
from stompbox.stomp.frames import CLIENT_COMMANDS, COMMANDS_WITH_BODY, Frame, quoted
from stompbox.stomp.versions import SUPPORTED, V10, VERSIONS, Version


class SessionState(Enum):
    NEW = "waits for CONNECT"
    CONNECTING = "has said CONNECT and got no CONNECTED yet"
    OPEN = "is connected"
    ENDING = "has said DISCONNECT, or was refused"


_OPEN: Final = SessionState.OPEN


_FIRST: Final = ("CONNECT", "STOMP")

# (state, command) -> state; what is not here is refused
LEGAL: Final = MappingProxyType(
    {
        **{(SessionState.NEW, command): SessionState.CONNECTING for command in _FIRST},
        **{
            (SessionState.OPEN, command): SessionState.OPEN
            for command in CLIENT_COMMANDS
            if command not in _FIRST
        },
        (SessionState.OPEN, "DISCONNECT"): SessionState.ENDING,  # in place of the one above
    }
)

# STOMP 1.2, Frames and Headers. SEND and SUBSCRIBE: destination; BEGIN, COMMIT, ABORT: transaction
_REQUIRED: Final = MappingProxyType(
    {
        "SEND": "destination",
        "SUBSCRIBE": "destination",
        "BEGIN": "transaction",
        "COMMIT": "transaction",
        "ABORT": "transaction",
    }
)

# STOMP 1.2, SEND, ACK, NACK: these may be part of a transaction; BEGIN, COMMIT and ABORT name one
_WITH_TRANSACTION: Final = frozenset(("SEND", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT"))

# The first one counts; the last is how older versions of ActiveMQ Classic spell it
DURABLE_NAMES: Final = (
    "durable-subscriber-name",
    "durable-subscription-name",
    "activemq.subscriptionName",
    "activemq.subcriptionName",
)


class Dialect:
    """What of the rules is not asked of the clients of a listener, all of whom share it."""

    __slots__ = (
        "allow_bodies", "allow_transacted_subscriptions", "always_may_nack", "makes_ids", "needs_no_ids",
    )  # fmt: skip

    def __init__(
        self,
        *,
        allow_bodies: bool = False,
        allow_transacted_subscriptions: bool = False,
        needs_no_ids: bool = False,
        makes_ids: bool = False,
        always_may_nack: bool = False,
    ) -> None:
        self.allow_bodies = allow_bodies
        self.allow_transacted_subscriptions = allow_transacted_subscriptions
        self.needs_no_ids = needs_no_ids  # of subscriptions, in no version
        self.makes_ids = makes_ids  # of subscriptions that came without, which ACK must name then
        self.always_may_nack = always_may_nack  # in 1.0, too


STRICT: Final = Dialect()


class Session:
    """One connection's state. `receive` moves it, or raises IllegalFrame and leaves it as it was."""

    __slots__ = ("dialect", "state", "version")

    def __init__(self, dialect: Dialect = STRICT) -> None:
        self.state = SessionState.NEW
        self.version: Version = V10
        self.dialect = dialect

    def receive(self, frame: Frame) -> None:
        next_state = LEGAL.get((self.state, frame.command))
        if next_state is None:
            self._refuse(frame.command)
        if frame.command in _FIRST:
            self.version = negotiate(frame)
        self._check(frame)
        assert next_state is not None
        self.state = next_state

    def open(self) -> None:
        """CONNECTED is written: from now on frames are obeyed."""
        assert self.state is SessionState.CONNECTING, self.state
        self.state = SessionState.OPEN

    @property
    def is_open(self) -> bool:
        return self.state is SessionState.OPEN

    def require_open(self, command: str) -> None:
        """Raises IllegalFrame for what comes in another form than frames (see the head of this file) before CONNECTED or at the end."""
        if self.state is not _OPEN:
            self._refuse(command)

    def _refuse(self, command: str) -> None:
        if self.state is SessionState.NEW:
            raise IllegalFrame(
                "not-connected",
                f"{command} before CONNECT; the first frame must be CONNECT or STOMP",
                closes=True,
            )
        if self.state is SessionState.CONNECTING:
            raise IllegalFrame("not-connected", f"{command} before CONNECTED", closes=True)
        if self.state is SessionState.OPEN:
            raise IllegalFrame(
                "already-connected", f"{command} on a connection that is connected already", closes=True
            )
        raise IllegalFrame("disconnected", f"{command} after DISCONNECT", closes=True)

    def _check(self, frame: Frame) -> None:
        command, headers, version = frame.command, frame.headers, self.version
        if command == "NACK" and not (version.may_nack or self.dialect.always_may_nack):
            raise IllegalFrame("unknown-command", f"NACK is no command of STOMP {version.name}", closes=True)
        if (
            frame.body
            and command not in COMMANDS_WITH_BODY
            and not (version.may_ignore_bodies or self.dialect.allow_bodies)
        ):
            raise IllegalFrame(
                "body-not-allowed",
                f"{command} has a body of {len(frame.body)} octets; only SEND may have one",
            )
        needed = _REQUIRED.get(command)
        if needed is not None and not headers.get(needed):
            raise IllegalFrame(f"missing-{needed}", f"{command} needs a {needed} header that is not empty")
        if "transaction" in headers and command not in _WITH_TRANSACTION and not self._is_transacted(command):
            raise IllegalFrame(
                "transaction-not-allowed",
                f"{command} cannot be part of a transaction; SEND, ACK and NACK can",
            )
        if (
            command == "SUBSCRIBE"
            and version.needs_subscription_id
            and not (self.dialect.needs_no_ids or self.dialect.makes_ids)
            and "id" not in headers
        ):
            raise IllegalFrame("missing-id", f"SUBSCRIBE needs an id header in STOMP {version.name}")
        if command == "UNSUBSCRIBE":
            self._check_unsubscribe(frame)
        if command in ("ACK", "NACK"):
            self._check_ack(frame)

    def _is_transacted(self, command: str) -> bool:
        return command == "SUBSCRIBE" and self.dialect.allow_transacted_subscriptions

    def _check_unsubscribe(self, frame: Frame) -> None:
        headers = frame.headers
        if "id" in headers or any(name in headers for name in DURABLE_NAMES):
            return
        if self.version.needs_subscription_id and not (self.dialect.needs_no_ids or self.dialect.makes_ids):
            raise IllegalFrame("missing-id", f"UNSUBSCRIBE needs an id header in STOMP {self.version.name}")
        if "destination" not in headers:
            raise IllegalFrame("missing-id", "UNSUBSCRIBE needs an id or a destination header")

    def _check_ack(self, frame: Frame) -> None:
        version, headers = self.version, frame.headers
        if not headers.get(version.ack_header):
            text = f"{frame.command} needs the header {version.ack_header} in STOMP {version.name}"
            raise IllegalFrame(f"missing-{version.ack_header}", text)
        if version.ack_needs_subscription and "subscription" not in headers and not self.dialect.needs_no_ids:
            raise IllegalFrame(
                "missing-subscription",
                f"{frame.command} needs the header subscription in STOMP {version.name}",
            )

    def __repr__(self) -> str:
        return f"<Session {self.state.name} STOMP {self.version.name}>"


def negotiate(frame: Frame) -> Version:
    """The highest version that both know. Without accept-version the client speaks 1.0 (STOMP 1.2, Protocol Negotiation)."""
    accepted = frame.headers.get("accept-version")
    if accepted is None:
        return V10
    offered = [token.strip() for token in accepted.split(",")]
    common = [version for name, version in VERSIONS.items() if name in offered]
    if not common:
        raise IllegalFrame(
            "no-common-version",
            f"accept-version is {quoted(accepted)}; supported are {SUPPORTED}",
            closes=True,
        )
    return common[-1]
