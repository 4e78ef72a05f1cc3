"""What Spark asks of the broker, as functions: each is one request of the broker's protocol and reads its answer.

Decides the names of headers and the form of bodies, nothing of when they are sent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from stompbox.errors import FrameError
from stompbox.incarnations import Incarnations, Position, incarnations_of
from stompbox.spark.bounds import Bound, BoundKind
from stompbox.spark.link import Answer, Request, SparkLink
from stompbox.spark.offsets import Extent, OffsetRange

PART: Final = 1000  # addresses of which one request, or one answer, tells
BY_DESTINATION: Final = {"once-per": "destination"}
PART_BYTES: Final = 256 << 10  # of their names, at most: a request may hold 1 MiB of JSON

_RECORD: Final = Struct("<QII")  # first offset, count of offsets, bytes of the blob that follows


@dataclass(frozen=True, slots=True)
class Description:
    extents: dict[str, Extent]
    missing: tuple[str, ...]  # destinations without wildcard that do not exist


@dataclass(frozen=True, slots=True)
class Fetched:
    """`blobs` are of store/chunks.py; `next` is where to go on (after the last of them), `first` the lowest offset that is still there,
    `end` where the log ends; `is_selected`: the broker has left out what the selector does not take."""

    blobs: list[memoryview]
    next: int
    first: int
    end: int | None
    is_selected: bool = False


@dataclass(frozen=True, slots=True)
class Staging:
    """Where one task stages: its partition of a sink's batch. `is_by_destination`: the batch may be several writes, each to destinations
    of its own."""

    sink: str
    batch: int
    partition: int
    is_by_destination: bool = False


def describe(
    link: SparkLink, destinations: str, *, create: bool, sizes_from: Mapping[str, int] | None = None
) -> Description:
    """The logs that `destinations` (as in a SUBSCRIBE, with commas) stand for; those without wildcard are made if `create`.

    With how many messages and bytes lie at or after the offsets in `sizes_from` (of addresses not in there: from 0 on), if it is given.
    """
    wish: dict[str, object] = {"destinations": destinations}
    is_many = sizes_from is not None and len(sizes_from) > PART
    if sizes_from is not None and not is_many:
        wish["sizes-from"] = sizes_from
    extents: dict[str, Extent] = {}
    missing: tuple[str, ...] = ()
    for found in _answers(link, "describe", {"create": "true" if create else "false"}, wish):
        extents |= _extents(found["addresses"])
        missing = missing or tuple(found.get("missing", ()))
    if sizes_from is not None and is_many:
        extents |= describe_each(link, {address: sizes_from.get(address, 0) for address in extents})[0]
    return Description(dict(sorted(extents.items())), missing)


def describe_each(link: SparkLink, since: Mapping[str, int]) -> tuple[dict[str, Extent], dict[str, Extent]]:
    """The logs of these addresses, with what lies at or after an offset; and where the logs of those that are gone had ended, of which
    the broker still knows that."""
    extents: dict[str, Extent] = {}
    ended: dict[str, Extent] = {}
    for part in _in_parts(since):
        found = _json(link.ask(Request("describe", {}, _encoded({"addresses": part}))))
        extents |= _extents(found["addresses"])
        ended |= {
            name: Extent(log["next"], log["next"], 0, 0, _known(log))
            for name, log in found.get("ended", {}).items()
        }
    return extents, ended


def _extents(addresses: Mapping[str, Any]) -> dict[str, Extent]:
    return {
        address: Extent(log["first"], log["next"], log.get("messages", 0), log.get("bytes", 0), _known(log))
        for address, log in addresses.items()
    }


def _known(log: Mapping[str, Any]) -> Incarnations:
    return incarnations_of(log.get("incarnations", ()))


def _answers(
    link: SparkLink, request: str, headers: Mapping[str, str], wish: Mapping[str, object]
) -> Iterator[Any]:
    """One after the other, the parts of a long answer."""
    body, following = _encoded(wish), None
    while True:
        more: dict[str, str] = {} if following is None else {"continue": following}
        found = _json(link.ask(Request(request, {**headers, "limit": str(PART), **more}, body)))
        yield found
        following = found.get("continue")
        if following is None:
            return


def _wire(positions: Mapping[str, Position]) -> dict[str, object]:
    return {
        address: list(position) if position.incarnation else position.offset
        for address, position in positions.items()
    }


def _in_parts(values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What is said of addresses, in as many requests as it takes; at least one."""
    part: dict[str, Any] = {}
    size = 0
    for address, value in values.items():
        if part and (len(part) >= PART or size + len(address) > PART_BYTES):
            yield part
            part, size = {}, 0
        part[address] = value
        size += len(address)
    yield part


def _encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def offset_at(link: SparkLink, address: str, timestamp: int) -> int:
    """The first message that arrived at or after `timestamp` (ms), else where the log ends."""
    return int(
        _json(link.ask(Request("offset-at", {"address": address, "timestamp": str(timestamp)})))["offset"]
    )


def open_group(
    link: SparkLink, group: str, destinations: str, starting: Bound, *, strict: bool = False
) -> dict[str, int]:
    """Makes the group at `starting`, or finds it where it is: its position per address.

    `strict`: it is refused where it is new on an address whose log does not hold the offset.
    """
    headers = {"group": group, **({"strict": "true"} if strict else {})}
    wish: dict[str, object] = {"destinations": destinations}
    if starting.kind is BoundKind.EACH:
        wish["starting"] = _all_but_last(link, headers, destinations, dict(starting.each))
    else:
        headers["starting"] = starting.wire()
    found: dict[str, int] = {}
    for answer in _answers(link, "group-open", headers, wish):
        found |= answer["positions"]
    return dict(sorted(found.items()))


def group_positions(link: SparkLink, group: str) -> dict[str, int]:
    """Where the group is, on the addresses on which it has a position and that the user may read; of a group that is not there: nothing."""
    found = _json(link.ask(Request("groups", {"group": group})))["groups"].get(group, {"addresses": {}})
    return {address: int(lag["position"]) for address, lag in found["addresses"].items()}


def reopen_group(link: SparkLink, group: str, destinations: str, positions: Mapping[str, Position]) -> None:
    """Makes the group where a reader has come to, unless it is there."""
    last = _all_but_last(link, {"group": group}, destinations, _wire(positions))
    link.ask(
        Request(
            "group-open",
            {"group": group, "limit": "0"},
            _encoded({"destinations": destinations, "starting": last}),
        )
    )


def _all_but_last(
    link: SparkLink, headers: Mapping[str, str], destinations: str, positions: Mapping[str, Any]
) -> Any:
    """Opens a group on the addresses of all parts but the last one, which it returns: with that the others join."""
    *parts, last = _in_parts(positions)
    for part in parts:
        wish = {"destinations": destinations, "starting": part}
        link.ask(Request("group-open", {**headers, "more": "true", "limit": "0"}, _encoded(wish)))
    return last


def commit_group(link: SparkLink, group: str, positions: Mapping[str, Position]) -> None:
    """Tells the broker that everything below these positions is done with. Durable when this returns; a position never goes back.

    An address that is gone, or whose log is another one now, is passed over: who looks at the logs is told.
    """
    for part in _in_parts(_wire(positions)):
        link.ask(Request("group-commit", {"group": group}, _encoded(part)))


def tell_progress(link: SparkLink, pipeline: str, steps: Sequence[Mapping[str, object]]) -> None:
    """What the steps of a pipeline are at, for the broker's console; docs/protocol.md has the form of a step."""
    link.ask(Request("progress", {}, json.dumps({"pipeline": pipeline, "steps": steps}).encode()))


def fetch(wanted: OffsetRange, max_bytes: int, selector: str = "") -> Request:
    """Chunks that hold the offsets wanted, as many as go into max_bytes; with a selector, what it takes of them."""
    headers = {
        "address": wanted.address,
        "start": str(wanted.start),
        "stop": str(wanted.stop),
        "max-bytes": str(max_bytes),
    }
    if wanted.incarnation:
        headers["incarnation"] = wanted.incarnation
    return Request("fetch", {**headers, "selector": selector} if selector else headers)


def fetched(answer: Answer) -> Fetched:
    try:
        after, first = int(answer.headers["next"]), int(answer.headers["first"])
        end = int(answer.headers["end"]) if "end" in answer.headers else None
    except (KeyError, ValueError) as fault:
        raise FrameError(
            "bad-answer", f"the broker's answer to fetch has no number in the header {fault}"
        ) from None
    records = list(_records(answer.body))
    if answer.headers.get("selected") == "true":
        # what was left out after the last chunk is not asked for again
        return Fetched([blob for _, blob in records], after, first, end, is_selected=True)
    # A gap after the last chunk costs one more request; to believe that nothing follows it could cost messages.
    return Fetched([blob for _, blob in records], records[-1][0] if records else after, first, end)


def _records(body: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The chunks of a body, each with the offset after it."""
    at = 0
    while at < len(body):
        if at + _RECORD.size > len(body):
            raise FrameError(
                "bad-answer", f"the broker's answer to fetch ends {len(body) - at} bytes into a record's head"
            )
        first, count, length = _RECORD.unpack_from(body, at)
        at += _RECORD.size
        if at + length > len(body):
            raise FrameError(
                "bad-answer",
                f"the broker's answer to fetch lacks {at + length - len(body)} bytes of its last chunk",
            )
        yield first + count, body[at : at + length]
        at += length


def stage(staging: Staging, attempt: int, blob: bytes, run: str = "") -> Request:
    """One blob of a task's rows, under a number of its own: sent again after a lost connection, it replaces itself.

    `run` names the start of the query, so that what the start before it staged can go.
    """
    headers = {
        **_batch(staging.sink, staging.batch),
        "partition": str(staging.partition),
        "attempt": str(attempt),
    }
    if staging.is_by_destination:
        headers |= BY_DESTINATION
    return Request("stage", {**headers, "run": run} if run else headers, blob)


def publish(
    link: SparkLink,
    sink: str,
    batch: int,
    attempts: Sequence[tuple[int, int]],
    *,
    is_by_destination: bool = False,
    is_single: bool = False,
) -> int:
    """Publishes the blobs staged under (partition, attempt), in this order: all of them, durably. 0 when this batch was published before.
    `is_single`: the sink has no other batch."""
    body = json.dumps({"attempts": attempts}).encode()
    headers = (
        _batch(sink, batch)
        | (BY_DESTINATION if is_by_destination else {})
        | ({"single": "true"} if is_single else {})
    )
    return int(_json(link.ask(Request("publish", headers, body)))["published"])


def discard(link: SparkLink, sink: str, batch: int) -> None:
    """Drops what was staged for a batch."""
    link.ask(Request("discard", _batch(sink, batch)))


def delete_sink(link: SparkLink, sink: str) -> None:
    """The sink will write no more: the broker need not remember it."""
    link.ask(Request("sink-delete", {"sink": sink}))


def _batch(sink: str, batch: int) -> dict[str, str]:
    return {"sink": sink, "batch": str(batch)}


def _json(answer: Answer) -> Any:
    try:
        return json.loads(bytes(answer.body))
    except ValueError as fault:
        raise FrameError("bad-answer", f"the broker's answer is no JSON: {fault}") from None
