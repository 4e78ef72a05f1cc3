"""An ERROR frame as an exception: the broker's own words, its stable code where it gives one."""

from __future__ import annotations

from stompbox.errors import Refused
from stompbox.stomp.frames import Frame

# characters of an ERROR's body that the exception's text shows; some brokers send stack traces
MOST_TEXT = 500


class BrokerError(Refused):
    """The broker answered with an ERROR frame (or status:error to a request). `headers` and `body` are what it sent.

    `code` is the header `code` of Stompbox, and "broker-error" with brokers that send none.
    """

    def __init__(
        self, code: str, message: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> None:
        super().__init__(code, message)
        self.headers = headers or {}
        self.body = body

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, self.message, self.headers, self.body)


def broker_error(frame: Frame) -> BrokerError:
    """STOMP 1.2, ERROR: a short description in the header `message`, more in the body."""
    short = frame.headers.get("message", "").strip()
    more = frame.body.decode("utf-8", "replace").strip()
    if len(more) > MOST_TEXT:
        more = more[:MOST_TEXT] + "…"
    text = short if not more or more == short else f"{short}: {more}" if short else more
    code = frame.headers.get("code") or "broker-error"
    return BrokerError(code, text or "the broker sent an ERROR frame without text", frame.headers, frame.body)
