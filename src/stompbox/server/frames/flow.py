"""What a SUBSCRIBE says of its flow: windows, priority, exclusive consumers, in the spellings of four brokers.

    consumer-window-size     body bytes (Artemis)                       activemq.prefetchSize    messages (ActiveMQ Classic)
    prefetch-count           messages (RabbitMQ)                        credit:COUNT[,BYTES]     either has room (Apollo)
    activemq.priority        0 to 127                                   x-priority               any (RabbitMQ)
    activemq.exclusive       true: this consumer gets everything        exclusive                the same (Apollo)

    activemq.maximumPendingMessageLimit    messages that wait for a plain topic subscription; the oldest go (ActiveMQ Classic). What is
                                           not above 0 is no limit: Apache.NMS.STOMP says 0 with every SUBSCRIBE

0 is one at a time, -1 no limit. A header takes the place of the listener's `stompConsumerWindowSize` or `consumerFlowLimit`.
Subscriptions with ack:auto are limited by their socket alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stompbox.config import ListenerOptions
from stompbox.errors import IllegalFrame
from stompbox.numerals import digits, whole
from stompbox.server.addressing.arguments import LENGTH
from stompbox.server.addressing.values import is_negative, number, truth
from stompbox.stomp.frames import Frame

PENDING: Final = "activemq.maximumPendingMessageLimit"
MESSAGES: Final = ("activemq.prefetchSize", "prefetch-count")
BYTES: Final = "consumer-window-size"
HIGHEST: Final = 127  # activemq.priority
_FAR: Final = 1 << 31  # x-priority: RabbitMQ takes any number


@dataclass(frozen=True, slots=True)
class Flow:
    """How much a consumer may have unacknowledged, in the terms of Consumer."""

    window: int
    prefetch: int
    is_either: bool = False
    priority: int = 0
    is_exclusive: bool = False


def flow_of(frame: Frame, options: ListenerOptions) -> Flow:
    headers = frame.headers
    counted = next((name for name in MESSAGES if name in headers), None)
    window, prefetch = options.stomp_consumer_window_size, options.consumer_flow_limit
    is_either = False
    if counted is not None:
        window, prefetch = -1, number(frame, counted)
    if BYTES in headers:
        window = number(frame, BYTES)
    if "credit" in headers:
        prefetch, window = _credit(headers["credit"])
        is_either = True
    is_exclusive = truth(frame, "activemq.exclusive") or truth(frame, "exclusive")
    return Flow(window, prefetch, is_either, _priority(headers), is_exclusive)


def most_waiting(frame: Frame) -> int:
    """How many messages may wait for a consumer; -1: any number."""
    length = number(frame, LENGTH) if LENGTH in frame.headers else -1
    if PENDING not in frame.headers or is_negative(frame.headers[PENDING]):
        return length
    pending = number(frame, PENDING) or -1
    return min(pending, length) if length >= 0 and pending >= 0 else max(pending, length)


def _credit(text: str) -> tuple[int, int]:
    """The credit that a text gives, as (messages, bytes)."""
    found = [digits(part.strip(" "), most=12) for part in text.split(",")]
    numbers = [number for number in found if number is not None]
    if len(found) > 2 or len(numbers) < len(found):
        raise IllegalFrame(
            "bad-number",
            f"header credit is {text[:80]!r}; allowed are COUNT and COUNT,BYTES, numbers from 0 on",
        )
    return numbers[0], numbers[1] if len(numbers) == 2 else 0


def _priority(headers: Mapping[str, str]) -> int:
    for name, low, high in (("activemq.priority", 0, HIGHEST), ("x-priority", -_FAR, _FAR)):
        given = headers.get(name)
        if given is None:
            continue
        found = whole(given, most=12)
        if found is None or not low <= found <= high:
            raise IllegalFrame(
                "bad-number", f"header {name} is {given[:80]!r}; allowed is a number from {low} to {high}"
            )
        return found
    return 0
