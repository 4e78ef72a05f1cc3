"""What a selector may ask of a message beyond its headers (selectors/facts.py names them), and when the shape alone decides."""

from __future__ import annotations

from typing import Final

from stompbox.broker.logs.segments import Segment, octets_of
from stompbox.config.spaces import local
from stompbox.message import Run, Shape
from stompbox.numerals import digits
from stompbox.selectors import Selector

Facts = dict[str, str | int | float | bool | None]
LONGEST: Final = 18  # digits of a timestamp; what is longer is none


def is_of_shape(selector: Selector, shape: Shape) -> bool:
    """Whether all messages of the shape get the same verdict."""
    return not selector.is_per_message and (not shape.holes or selector.headers.isdisjoint(shape.holes))


def of_shape(shape: Shape, address: str, *, is_durable: bool) -> Facts:
    """Facts that every message of the shape shares. Texts that stand in a header are read there."""
    return {"priority": shape.priority, "expiration": shape.expires, "durable": is_durable, "address": local(address)}


def of_message(run: Run, index: int, shared: Facts, segment: Segment | None = None, queue: int = 0) -> Facts:
    """What is known of one message; `shared` is what its shape says, `segment` what has become of it in the queue of this id."""
    known = shared.copy()
    known["size"] = len(run.bodies[index]) + octets_of(run.shape)
    known["timestamp"] = _timestamp(run, index)
    known["redelivered"] = run.shape.is_suspect or (segment is not None and segment.is_redelivered)
    known["delivery_count"] = 1 if segment is None else segment.deliveries + 1
    known["message_id"] = f"{queue}-{run.first + index}" if queue else None  # as its MESSAGE will say
    return known


def _timestamp(run: Run, index: int) -> int:
    """A sender's timestamp is kept, otherwise it is the arrival time."""
    shape = run.shape
    given = shape.headers.get("timestamp", "")
    if "timestamp" in shape.holes:
        given = run.columns[shape.holes.index("timestamp")][index].decode("ascii")
    found = digits(given, LONGEST)
    return run.arrived if found is None else found


def selector_entry(selector: Selector | None) -> dict[str, object]:
    """A selector as the catalogue has it."""
    return {"selector": None} if selector is None else {"selector": selector.text, "conversion": selector.conversion}
