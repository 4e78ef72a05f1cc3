"""Message transformers: functions of users that see each message on its way in and out, and may change it.

    def transform(message: TransformedMessage) -> None

A `messageTransformer` of a listener sees what its clients send and what they get; the `transformer` of a divert sees each copy.
A function that raises gives an ERROR, and the message stays where it was: a SEND is refused, a delivery counts as failed and
is tried again.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from stompbox.errors import ConfigError, Refused, StompboxError
from stompbox.message import BROKER_HEADERS, Run
from stompbox.server.addressing.brokerheaders import is_property
from stompbox.stomp.frames import Frame
from stompbox.stomp.shapes import shape_of

log = logging.getLogger("stompbox.transformer")

_KEPT = ("receipt", "transaction", "content-length")  # of the frame, not of the message


class Way(Enum):
    IN = "in"
    OUT = "out"
    DIVERT = "divert"


@dataclass(slots=True)
class TransformedMessage:
    """A message under way: change `headers` and `body` in place. `forbidden` holds headers whose names JMS does not allow, where
    `checkPropertyNames` asks; what is not put into `headers` is gone. `user` is the login of the sender, or of who gets it."""

    way: Way
    headers: dict[str, str]
    body: bytes
    user: str = ""
    forbidden: dict[str, str] = field(default_factory=dict)


Transform = Callable[[TransformedMessage], object]


def load_transform(name: str) -> Transform:
    """Loads the function that `module:function` names. Raises ConfigError."""
    module, _, function = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError("config-value", f"transformer {name!r} cannot be loaded: {error}") from None
    if not callable(found):
        raise ConfigError("config-value", f"transformer {name!r} is not a function")
    transform: Transform = found
    return transform


def apply(transform: Transform, message: TransformedMessage) -> TransformedMessage:
    """The message as the function leaves it. Raises Refused when that raises, or leaves what is no message."""
    try:
        transform(message)
        body, headers = message.body, message.headers
        if not isinstance(body, bytes) or not all(
            isinstance(text, str) for pair in headers.items() for text in pair
        ):
            raise TypeError("headers must be texts and the body bytes")
        if not headers.get("destination"):
            raise ValueError("a message needs a destination")
        # half of a pair of surrogates is a str, and no text that could be stored
        "".join([*headers, *headers.values()]).encode()
    except StompboxError:
        raise
    except Exception as error:  # a function of somebody else may raise anything
        log.warning("the transformer raised: %s: %s", type(error).__name__, error)
        raise Refused(
            "transformer-failed", f"the message transformer did not take the message: {type(error).__name__}"
        ) from error
    return message


def inward(transform: Transform, frame: Frame, user: str, *, checks_names: bool) -> Frame:
    """A SEND as the transformer leaves it."""
    headers = {name: value for name, value in frame.headers.items() if name not in _KEPT}
    forbidden = {name: headers.pop(name) for name in list(headers) if checks_names and not is_property(name)}
    message = apply(transform, TransformedMessage(Way.IN, headers, frame.body, user, forbidden))
    kept = {name: value for name, value in frame.headers.items() if name in _KEPT}
    return Frame("SEND", {**message.headers, **kept}, message.body)


def outward(transform: Transform, run: Run, index: int, user: str) -> Run:
    """One message of a run as the transformer wants it, at the same offset."""
    return _changed(transform, Way.OUT, run, index, user)


def for_diverts(name: str) -> Callable[[Run, int], Run]:
    """The function that a divert calls for each copy."""
    return partial(_changed, load_transform(name), Way.DIVERT, user="")


def _changed(transform: Transform, way: Way, run: Run, index: int, user: str) -> Run:
    if run.is_large:
        raise Refused(
            "transformer-failed",
            f"a body of {len(run.bodies[index])} bytes is in the store, where no divert sees it",
        )
    message = apply(transform, TransformedMessage(way, run.headers(index), run.octets(index), user))
    headers = {name: value for name, value in message.headers.items() if name not in BROKER_HEADERS}
    if run.shape.has_length:
        headers["content-length"] = str(len(message.body))
    shape = shape_of(headers)
    return run.part(index, index + 1, shape=shape, bodies=[message.body])
