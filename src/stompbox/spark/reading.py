"""Ranges of offsets to Arrow batches, and what to do when messages are not there any more.

While one answer is decoded and handed to Spark the broker already reads the next one. Decides when missing messages are an error;
plans nothing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from stompbox.errors import ConnectionLost, FrameError, Refused, UsageError
from stompbox.spark.bodies import Decoding
from stompbox.spark.bounds import Bound, BoundKind, shown_time
from stompbox.spark.columns import COLUMNS, Rows, Runs, batch_of, joined, rows_of, sliced
from stompbox.spark.link import SparkLink, leased
from stompbox.spark.offsets import Extent, Loss, OffsetRange
from stompbox.spark.options import SourceOptions
from stompbox.spark.requests import Fetched, describe_each, fetch, fetched, offset_at
from stompbox.spark.selection import pushed_of, selection_of

SHOWN: Final = 20  # addresses that a message lists
_log: Final = logging.getLogger(__name__)

_NONE: Final[Mapping[str, int]] = MappingProxyType({})
DROP: Final = "DROPMALFORMED"
FAIL: Final = "FAILFAST"


@dataclass(frozen=True, slots=True)
class View:
    """Which rows and which of their columns: `names` in this order, `selector` chooses rows, `decoding` makes columns of the body."""

    names: tuple[str, ...]
    selector: str = ""
    decoding: Decoding | None = None

    @property
    def stored(self) -> tuple[str, ...]:
        """The columns that are of the message itself."""
        return tuple([name for name in self.names if name in COLUMNS])


def batches(options: SourceOptions, ranges: Iterable[OffsetRange], view: View) -> Iterator[Any]:
    """Reads the rows of the ranges as RecordBatches."""
    selection, pushed = selection_of(view.selector), pushed_of(view.selector)
    with Malformed(view) as malformed:
        for wanted, found in _fetched(ranges, options, pushed):
            if not found.blobs:
                continue
            runs = joined(found.blobs)
            kept = replace(wanted, start=max(wanted.start, found.first))  # a chunk may hold what is deleted
            rows = rows_of(runs, kept, None if found.is_selected else selection)
            if len(rows):
                yield from sliced(_seen(runs, rows, wanted.address, view, malformed))


class Malformed:
    """The bodies of one task that could not be decoded: said in the log when it ends, or by its end (mode FAILFAST)."""

    def __init__(self, view: View) -> None:
        self._decoding: Final = view.decoding
        self._seen = self._count = 0
        self._first = ""

    def __enter__(self) -> Malformed:
        return self

    def __exit__(self, *_: object) -> None:
        if self._decoding is not None and self._count and self._decoding.mode != FAIL:
            what = (
                "dropped" if self._decoding.mode == DROP else "their columns are NULL where they do not fit"
            )
            _log.warning(
                "%d of %d bodies are malformed (%s), %s; %s",
                self._count,
                self._seen,
                self._decoding.format,
                what,
                self._first,
            )

    def came(self, offsets: Any, address: str, found: Sequence[tuple[int, str]]) -> None:
        """Raises FrameError `malformed-body` where one is the end."""
        self._seen += len(offsets)
        self._count += len(found)
        if found and not self._first:
            row, why = found[0]
            self._first = f"the first at offset {offsets[row]} of {address!r}: {why}"
            if self._decoding is not None and self._decoding.mode == FAIL:
                raise FrameError(
                    "malformed-body", f"option 'mode' is {FAIL}, and a body is malformed: {self._first}"
                )


def _seen(runs: Runs, rows: Rows, address: str, view: View, malformed: Malformed) -> Any:
    if view.decoding is None:
        return batch_of(runs, rows, address, view.names)
    stored = batch_of(runs, rows, address, (*view.stored, *(() if "body" in view.stored else ("body",))))
    decoded = view.decoding.decode(stored.column("body"))
    malformed.came(runs.offset[rows.run] + rows.index, address, decoded.malformed)
    fields = {
        **{field.name: field for field in stored.schema},
        **{field.name: field for field in view.decoding.fields},
    }
    arrays = [
        decoded.columns[name] if name in decoded.columns else stored.column(name) for name in view.names
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema([fields[name] for name in view.names]))
    if view.decoding.mode == DROP and decoded.malformed:
        kept = np.ones(len(rows), np.bool_)
        kept[[row for row, _ in decoded.malformed]] = False
        return batch.filter(pa.array(kept))
    return batch


def _fetched(
    ranges: Iterable[OffsetRange], options: SourceOptions, selector: str
) -> Iterator[tuple[OffsetRange, Fetched]]:
    """All answers, of a node that follows as far as there is one which has what is asked for, and the rest of the broker itself."""
    left = list(ranges)
    if options.read_target is not None:
        try:
            with leased(options.read_target) as link:
                # what it says is lost may be there all the same, where the broker is: that says what is lost
                for wanted, found in _answers(link, left, replace(options, fail_on_data_loss=True), selector):
                    left = after(left, wanted, found)
                    yield wanted, found
        except (ConnectionLost, Refused) as fault:
            _log.info("%s is read from the broker: %s", left[0].address if left else "the rest", fault)
    with leased(options.target) as link:
        yield from _answers(link, left, options, selector)


def after(left: list[OffsetRange], wanted: OffsetRange, found: Fetched) -> list[OffsetRange]:
    """What is left of the ranges, whose first one `wanted` is, or the rest of it."""
    return [replace(wanted, start=found.next), *left[1:]] if found.next < wanted.stop else left[1:]


def _answers(
    link: SparkLink, ranges: Iterable[OffsetRange], options: SourceOptions, selector: str
) -> Iterator[tuple[OffsetRange, Fetched]]:
    """All answers, of what `selector` takes where it is given, each with the range that was asked for.

    The next, which may be the first for the next range, is asked for before the one before is given out.
    """
    waiting = deque(ranges)
    if waiting:
        link.begin(fetch(waiting[0], options.fetch_bytes, selector))
    while waiting:
        wanted = waiting.popleft()
        found = _finished(link, wanted, options)
        if found is not None and wanted.start >= found.next:
            raise FrameError(
                "bad-answer",
                f"the broker's answer to fetch {wanted.address} from {wanted.start} does not go on: next is {found.next}",
            )
        if found is not None and found.next < wanted.stop:
            waiting.appendleft(replace(wanted, start=found.next))
        if waiting:
            link.begin(fetch(waiting[0], options.fetch_bytes, selector))
        if found is not None:
            yield wanted, found


def _finished(link: SparkLink, wanted: OffsetRange, options: SourceOptions) -> Fetched | None:
    try:
        found = fetched(link.finish())
    except Refused as refused:
        if refused.code not in ("no-such-address", "other-incarnation"):
            raise
        is_gone = refused.code == "no-such-address"
        text = f"address {wanted.address!r} is gone from the broker" if is_gone else refused.message
        report(Loss(wanted.address, text, len(wanted)), fail=options.fail_on_data_loss)
        return None
    if found.end is not None and found.end < wanted.stop:
        text = f"the log of {wanted.address!r} ends at offset {found.end}, before the {wanted.stop} that was planned"
        report(
            Loss(wanted.address, text, wanted.stop - max(found.end, wanted.start)),
            fail=options.fail_on_data_loss,
        )
        if found.end <= wanted.start:
            return None
        wanted = replace(wanted, stop=found.end)
    if found.first > wanted.start:
        last = min(found.first, wanted.stop)
        text = (
            f"offsets {wanted.start} to {last - 1} of {wanted.address!r} were deleted before they were read"
        )
        report(Loss(wanted.address, text, last - wanted.start), fail=options.fail_on_data_loss)
    return found


def report(loss: Loss, *, fail: bool) -> None:
    """Raises Refused `data-lost`, or says in the log what is skipped."""
    if fail:
        raise Refused(
            "data-lost",
            f"{loss.text}; the option failOnDataLoss=false goes on without it, a 'group' holds messages until they are read",
        )
    _log.warning(
        "%s; skipped %s (failOnDataLoss=false)",
        loss.text,
        f"{loss.count} offsets" if loss.count >= 0 else "an unknown number of messages",
    )


def resolved(
    bound: Bound,
    extents: Mapping[str, Extent],
    link: SparkLink,
    *,
    strict: bool,
    known: Mapping[str, int] = _NONE,
) -> dict[str, int]:
    """The offset in each log that `bound` means; where it names none, the beginning or (of an ending) the end.

    A number outside a log is refused if `strict`, else the nearest end is taken. Of addresses in `known` the offset is that one.
    """
    at_end = bound.option.startswith("ending")
    each = dict(bound.each)
    refuse_unknown(bound, extents)
    found = {}
    for address, extent in extents.items():
        if address in known:
            found[address] = known[address]
        elif bound.kind is BoundKind.TIME:
            found[address] = _at_time(link, bound, address, bound.number, extent)
        elif bound.kind is BoundKind.OFFSET:
            found[address] = _within(bound.option, bound.number, address, extent, strict=strict)
        elif address not in each:
            found[address] = (
                extent.next if bound.kind is BoundKind.LATEST or (at_end and bound.each) else extent.first
            )
        elif bound.kind is BoundKind.TIMES:
            found[address] = _at_time(link, bound, address, each[address], extent)
        else:
            found[address] = _within(bound.option, each[address], address, extent, strict=strict)
    return dict(sorted(found.items()))


def _at_time(link: SparkLink, bound: Bound, address: str, time: int, extent: Extent) -> int:
    """The first message that arrived then or later. Raises Refused `no-message-since` where there is none and the user wants to know."""
    offset = offset_at(link, address, time)
    if offset >= extent.next and bound.must_match and not _has(link, address, offset):
        raise Refused(
            "no-message-since",
            f"option {bound.option!r}: no message of {address!r} arrived at or after {shown_time(time)}; "
            "the option startingOffsetsByTimestampStrategy=latest begins at the end of its log",
        )
    return max(extent.first, offset)


def _has(link: SparkLink, address: str, offset: int) -> bool:
    """Has a message come to this offset since the logs were described?"""
    extents, _ = describe_each(link, {address: offset})
    return address in extents and offset < extents[address].next


def refuse_unknown(bound: Bound, extents: Mapping[str, Extent]) -> None:
    """Raises UsageError for an address that the option names and that is not read."""
    unknown = [address for address, _ in bound.each if address not in extents]
    if unknown:
        known = [*list(extents)[:SHOWN], *(["…"] if len(extents) > SHOWN else [])]
        problem = f"names {unknown[0]!r}; the addresses to read are {', '.join(known) or 'none'}"
        raise UsageError("bad-option", f"option {bound.option!r} {problem}")


def _within(option: str, offset: int, address: str, extent: Extent, *, strict: bool) -> int:
    if strict and not extent.first <= offset <= extent.next:
        raise Refused(
            "offset-out-of-range",
            f"option {option!r}: offset {offset} is outside the log of {address!r}, which holds {extent.first} to {extent.next}; "
            "the option failOnDataLoss=false takes the nearest end",
        )
    return min(max(offset, extent.first), extent.next)
