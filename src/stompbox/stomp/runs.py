"""Reads what comes in runs: SEND frames that look alike, and ACK frames.

A SEND that was read the careful way teaches its family: frames with the same header names in the same order and, where a
value has a meaning for the broker, the same value. Values that were seen to differ are holes. A family that was met often
enough gets a template: one compiled pattern for a whole frame, with a group for each hole and one for the body. From then on
a run of such frames is read by one `split`; the pieces between the matches must be empty, so what was matched is what the
careful way would have read.

    SEND LF destination:/queue/a LF content-length:(…) LF receipt:(…) LF LF (body) NUL

Holes match printable ASCII without colon and backslash (in 1.0, which trims, without blanks): such octets mean themselves in
every version. What does not fit is read the careful way; nothing is ever guessed.

This file is about speed alone: without it every frame comes out of codec.py with the same meaning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from stompbox.errors import IllegalFrame
from stompbox.handles import Body
from stompbox.message import GROUP_SEQUENCE, Shape
from stompbox.stomp.codec import Single
from stompbox.stomp.frames import Frame
from stompbox.stomp.shapes import SEQUENCE, shape_of
from stompbox.stomp.versions import Version

# careful readings before a pattern is compiled, which costs as much as reading a hundred frames
_TAUGHT: Final = 12
_GIVEN_UP: Final = -1000  # readings more, when a pattern turned out not to fit
_MISSES: Final = 64  # frames that did not fit before another pattern is tried
_FAMILIES: Final = 16  # per first header line: JMS has ten priorities
_FIRST_LINES: Final = 1024  # then all is forgotten and learned again
_LONGEST: Final = 4096  # octets of a head that is learned
# of memory for what was learned, about; beyond, what has no pattern is forgotten, or all of it
_MOST_OCTETS: Final = 8 << 20
_FAMILY: Final = 700  # octets of memory that a family takes beside its headers, at a guess,
_LINE: Final = 160  # and each of these beside its own octets,
_TEMPLATE: Final = 16  # and a template for each octet of the head
_HOLES: Final = 24
# octets tried at once at first; grows with success, so that work stays in proportion to what is read
_REGION: Final = 4096
_MOST: Final = 1 << 20

# Headers whose value means something to the broker: another value is another shape
_MEANING: Final = frozenset(
    (
        "destination",
        "destination-type",
        "persistent",
        "priority",
        "expires",
        "expiration",
        "retain",
        "reply-to",
        "type",
        "auto-delete",
    )
)
_MEANING_PREFIXES: Final = ("JMSX", "AMQ_", "_AMQ", "__AMQ", "activemq.", "x-", "stompbox")
# But for these: whoever reads them looks at the columns, because their values differ from message to message
_MAY_VARY: Final = frozenset(("JMSXGroupID", "JMSXGroupSeq", "_AMQ_DUPL_ID", "_AMQ_LVQ_NAME"))
_SPOKEN: Final = frozenset("\0\n\r:\\")  # what would have to be escaped in a name
_VARYING: Final = frozenset((b"receipt", b"transaction"))
# And what is no number in these is refused, where it is read the careful way
_NUMBERS: Final = MappingProxyType(
    {b"content-length": b"([0-9]{1,18})", GROUP_SEQUENCE.encode(): b"(%b)" % SEQUENCE.pattern.encode()}
)

_HOLE: Final = rb"([ -9;-\[\]-~]{0,%d})"
_HOLE_UNTRIMMED: Final = rb"([!-9;-\[\]-~]{0,%d})"
# As MESSAGE spells it, and no other way: an id that is only like it names no message
# a queue, and an offset in its address's log
MESSAGE_ID: Final = re.compile(r"(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,15})")
_NO_OFFSET: Final = 10**16  # has more digits than one may have
_ACKS: Final = re.compile(rb"ACK\nid:%b\n\n\0\n?" % MESSAGE_ID.pattern.encode())

_Raw = list[tuple[bytes, bytes]]


class Sends:
    """Consecutive SEND frames of one shape. `receipts` are as on the wire; `transaction` is the id that all of them carry."""

    __slots__ = ("bodies", "columns", "receipts", "shape", "transaction")

    def __init__(
        self,
        shape: Shape,
        bodies: Sequence[Body],
        columns: tuple[list[bytes], ...],
        receipts: list[bytes],
        transaction: str | None,
    ) -> None:
        self.shape = shape
        self.bodies = bodies
        self.columns = columns
        self.receipts = receipts
        self.transaction = transaction

    def part(self, low: int, high: int) -> Sends:
        columns = tuple([column[low:high] for column in self.columns])
        return Sends(self.shape, self.bodies[low:high], columns, self.receipts[low:high], self.transaction)

    def __repr__(self) -> str:
        return f"<Sends {self.shape.destination} n={len(self.bodies)} receipts={len(self.receipts)} transaction={self.transaction}>"


class Acks:
    """Consecutive ACK frames without receipt and transaction, all for one queue's messages."""

    __slots__ = ("offsets", "queue")

    def __init__(self, queue: int, offsets: list[int]) -> None:
        self.queue = queue
        self.offsets = offsets

    def __repr__(self) -> str:
        return f"<Acks queue={self.queue} n={len(self.offsets)}>"


Event = Single | Sends | Acks
"""What a broker's decoder yields."""


def has_meaning(name: str) -> bool:
    """Whether the broker reads this header of a SEND, so that it can be no hole."""
    return name in _MEANING or (name.startswith(_MEANING_PREFIXES) and name not in _MAY_VARY)


def may_be_hole(name: str) -> bool:
    """Whether each message of a run may have its own value: the broker reads none of them, and the name stands for itself on the wire."""
    return not has_meaning(name) and _SPOKEN.isdisjoint(name)


class _Template:
    """One compiled pattern, and what its groups are (1-based; 0: it has no such group)."""

    def __init__(self, raw: _Raw, holes: set[int], shape: Shape, eol: bytes, reader: Reader) -> None:
        self.eol = eol
        self.length: int | None = None
        self.length_group = self.receipt = self.transaction = 0
        self.shape = shape
        self.region = _REGION
        # What is beyond a limit does not match, and is refused where it is read the careful way
        fixed = 4 + sum(
            len(name) + 2 + (0 if at in holes else len(value)) for at, (name, value) in enumerate(raw)
        )
        hole = (_HOLE_UNTRIMMED if reader.version.trims else _HOLE) % max(
            0, (reader.max_head - fixed) // max(1, len(holes))
        )
        parts, plain, columns, group = [b"SEND"], [b"SEND"], [], 0
        for at, (name, value) in enumerate(raw):
            parts.append(re.escape(b"\n" + name + b":"))
            plain.append(b"\n" + name + b":")
            if at not in holes:
                parts.append(re.escape(value))
                plain.append(value)
                self.length = int(value) if name == b"content-length" else self.length
                continue
            group += 1
            parts.append(_NUMBERS.get(name, hole))
            if name == b"content-length":
                self.length_group = group
            elif name == b"receipt":
                self.receipt = group
            elif name == b"transaction":
                self.transaction = group
            elif name.decode("utf-8", "replace") in shape.holes:
                # what is not taken from senders has no column
                columns.append(group)
        self.columns = tuple(columns)
        self.body = group + 1
        body = rb"([^\0]{0,%d})" % reader.max_body if self.length is None else b"(.{%d})" % self.length
        self.pattern = re.compile(b"".join(parts) + rb"\n\n" + body + rb"\0" + eol, re.DOTALL)
        head = b"".join(plain)
        self.constant = len(head) + 3 + len(eol)  # octets of a frame that no group holds
        self.opening = b"SEND\n" + raw[0][0] + b":"
        # A run whose heads are equal to the last octet is cut by a plain search
        self.separator = b"\0" + eol + head + b"\n\n" if self.length is not None and not holes else b""

    def adapt(self, consumed: int, tried: int) -> None:
        self.region = min(tried * 8, _MOST) if consumed * 2 > tried else max(_REGION, consumed * 2)


class _Family:
    """SEND frames with the same header names and meaning."""

    __slots__ = ("eol", "holes", "misses", "raw", "size", "taught", "template")

    def __init__(self, raw: _Raw) -> None:
        self.raw = raw
        self.size = _FAMILY + sum([len(name) + len(value) + _LINE for name, value in raw])
        self.holes = {at for at, (name, _) in enumerate(raw) if name in _VARYING}
        self.taught = 0
        self.misses = 0
        self.eol = b""
        self.template: _Template | None = None

    def give_up(self) -> None:
        self.template = None
        self.taught = _GIVEN_UP


class Reader:
    """What was learned of one version's frames; shared by the connections that speak it. Plugs into codec.Decoder.runs."""

    def __init__(self, version: Version, *, max_body: int, max_head: int = 64 * 1024) -> None:
        self.version = version
        self.max_head = max_head
        self.max_body = max_body
        self.families: dict[bytes, list[_Family]] = {}
        self.compiled = 0
        self.size = 0  # octets of memory, about
        self._ack_region = _REGION

    def read(self, buffer: bytes, position: int) -> tuple[Sends | Acks, int] | None:
        """The run at `position` and where it ends, or None: then the frame there is to be read the careful way."""
        if buffer.startswith(b"SEND\n", position):
            return self._sends(buffer, position)
        if self.version.sends_ack_id and buffer.startswith(b"ACK\nid:", position):
            return self._acks(buffer, position)
        return None

    def read_each(self, frames: Sequence[bytes]) -> Sends | None:
        """The run that these make together, each of which is one whole SEND. None where that is not so, or they are not of one shape:
        then each is to be read by itself."""
        first, line = frames[0], b""
        if first.startswith(b"SEND\ndestination:"):
            line = first[5 : first.find(b"\n", 5)]
        for family in self.families.get(line, ()):
            template = family.template
            match = template.pattern.match(first) if template is not None else None
            if template is not None and match is not None:
                if match.end() != len(first):
                    return None
                return _one_of(template, match) if len(frames) == 1 else _whole_frames(frames, template)
        return None

    def _sends(self, buffer: bytes, position: int) -> tuple[Sends, int] | None:
        line = b""
        if buffer.startswith(b"destination:", position + 5):
            line = buffer[position + 5 : buffer.find(b"\n", position + 5)]
        families = self.families.get(line)
        if families is None:
            return None
        for at, family in enumerate(families):
            template = family.template
            if template is None:
                continue
            match = template.pattern.match(buffer, position)
            if match is None:
                continue
            if at:
                families.insert(0, families.pop(at))
            found = self._run(buffer, position, match.end(), template, match)
            if found is None:
                family.give_up()
            elif not template.eol and buffer.startswith(b"\n", found[1]):
                self._compile(family, b"\n")
            return found
        return None

    def _run(
        self, buffer: bytes, position: int, stop: int, template: _Template, match: re.Match[bytes]
    ) -> tuple[Sends, int] | None:
        """The run that follows in the template's form, from the frame that matched on; None when a body contradicts its head."""
        if not buffer.startswith(template.opening, stop):
            sends = _one_of(template, match)
            return (sends, stop) if sends is not None else None
        if template.separator:
            return _equal_frames(buffer, position, template)
        region = buffer[position : position + max(template.region, stop - position)]
        parts = template.pattern.split(region)
        stride = template.body + 1
        count = len(parts) // stride
        gaps: list[bytes] = parts[: count * stride : stride]
        if any(gaps):
            count = next(at for at, gap in enumerate(gaps) if gap)
        sends = _sends_of(template, parts, count)
        if sends is None:
            return None
        count = len(sends.bodies)
        consumed = count * template.constant + sum(map(len, parts[: count * stride]))
        template.adapt(consumed, len(region))
        return sends, position + consumed

    def _acks(self, buffer: bytes, position: int) -> tuple[Acks, int] | None:
        match = _ACKS.match(buffer, position)
        if match is None:
            return None
        if not buffer.startswith(b"ACK\nid:", match.end()):
            return Acks(int(match[1]), [int(match[2])]), match.end()
        region = buffer[position : position + self._ack_region]
        found = self._equal_acks(
            region, match.start(2) - position, match.end(2) - position, match.end() - position
        )
        if found:
            offsets, consumed = found
            self._ack_region = min(_MOST, len(region) * 8) if consumed * 2 > len(region) else _REGION
            return Acks(int(match[1]), offsets), position + consumed
        parts = _ACKS.split(region)
        queues, gaps = parts[1::3], parts[:-1:3]
        if any(gaps) or queues.count(queues[0]) < len(queues):
            return self._some_acks(buffer, position, match[1])
        consumed = len(region) - len(parts[-1])
        self._ack_region = min(_MOST, len(region) * 8) if consumed * 2 > len(region) else _REGION
        return Acks(int(match[1]), list(map(int, parts[2::3]))), position + consumed

    def _equal_acks(self, region: bytes, number: int, after: int, stop: int) -> tuple[list[int], int] | None:
        """The offsets of ACKs that differ in them alone, and where they end; `number`, `after`, `stop`: where the first one's is, and where
        it ends. None where a plain search does not do."""
        if b"-0" in region:  # an offset that may not be spelled as MESSAGE does
            return None
        separator = region[after:stop] + region[:number]
        pieces = region[number:].split(separator)
        at = len(region) - len(pieces.pop()) - number
        if not b"".join(pieces).isdigit():
            return None
        try:
            offsets = list(map(int, pieces))
        except ValueError:  # nothing, or thousands of digits
            return None
        if max(offsets) >= _NO_OFFSET:
            return None
        last = _ACKS.match(region, at)
        if last is None or not region.startswith(region[:number], at):
            return offsets, at
        return [*offsets, int(last[2])], last.end()

    def _some_acks(self, buffer: bytes, position: int, queue: bytes) -> tuple[Acks, int]:
        """One by one, as long as they follow each other and are for the same queue."""
        offsets = []
        while (match := _ACKS.match(buffer, position)) is not None and match[1] == queue:
            offsets.append(int(match[2]))
            position = match.end()
        self._ack_region = _REGION
        return Acks(int(queue), offsets), position

    def learn(self, head: bytes, frame: Frame) -> None:
        """Takes note of a SEND that was read the careful way."""
        if len(head) > _LONGEST:
            return
        raw = [(name, value) for name, _, value in [line.partition(b":") for line in head.split(b"\n")[1:]]]
        if (
            not raw
            or b"\r" in head
            or len({name for name, _ in raw}) < len(raw)
            or any(b"\\" in name for name, _ in raw)
        ):
            return
        line = b"destination:" + raw[0][1] if raw[0][0] == b"destination" else b""
        families = self.families.get(line)
        if families is None:
            if len(self.families) >= _FIRST_LINES:
                self._forget()
            families = self.families[line] = []
        family = next((known for known in families if _is_alike(known.raw, raw)), None)
        if family is not None:
            self._teach(family, raw)
            return
        self.size -= sum([gone.size for gone in families[_FAMILIES - 1 :]])
        del families[_FAMILIES - 1 :]
        new = _Family(raw)
        families.insert(0, new)
        self._grow(new, new.size)

    def _grow(self, family: _Family, octets: int) -> None:
        self.size += octets
        if self.size > _MOST_OCTETS:
            self._forget(but=family)

    def _forget(self, but: _Family | None = None) -> None:
        """What has no pattern yet goes; where that is not half of it, all does."""
        for line, families in list(self.families.items()):
            families[:] = [family for family in families if family.template is not None or family is but]
            if not families:
                del self.families[line]
        self._measure()
        if self.size > _MOST_OCTETS // 2 or len(self.families) > _FIRST_LINES // 2:
            self.families.clear()
            self.size = 0
            re.purge()  # which remembers patterns, too

    def _measure(self) -> None:
        self.size = sum([family.size for families in self.families.values() for family in families])

    def _teach(self, family: _Family, raw: _Raw) -> None:
        new = {
            at for at, (known, given) in enumerate(zip(family.raw, raw, strict=True)) if known != given
        } - family.holes
        family.holes |= new
        if family.template is None or new:
            family.taught += 1
            if family.taught >= _TAUGHT and len(family.holes) <= _HOLES:
                self._compile(family, family.eol)
            return
        family.misses += 1
        if family.misses % _MISSES == 0:
            self._compile(family, b"" if family.eol else b"\n")

    def _compile(self, family: _Family, eol: bytes) -> None:
        holes = {family.raw[at][0].decode("utf-8", "replace") for at in family.holes}
        headers = {name.decode("utf-8", "replace"): value for name, value in family.raw}
        try:
            shape = shape_of(_decoded(family.raw, self.version), holes=holes)
        except IllegalFrame:  # the frame itself is refused where it is obeyed
            family.give_up()
            return
        if len(headers) < len(family.raw):
            return
        family.eol = eol
        if family.template is None:
            octets = _TEMPLATE * sum([len(name) + len(value) + 2 for name, value in family.raw])
            family.size += octets
            self._grow(family, octets)
        family.template = _Template(family.raw, family.holes, shape, eol, self)
        self.compiled += 1


def _decoded(raw: _Raw, version: Version) -> dict[str, str]:
    from stompbox.stomp.codec import parse_head

    head = b"SEND\n" + b"\n".join([name + b":" + value for name, value in raw])
    return parse_head(head, version, {b"SEND": "SEND"}, len(raw))[1]


def _is_alike(known: _Raw, raw: _Raw) -> bool:
    if len(known) != len(raw):
        return False
    return all(
        name == other and (value == given or not has_meaning(name.decode("utf-8", "replace")))
        for (name, value), (other, given) in zip(known, raw, strict=True)
    )


def _one_of(template: _Template, match: re.Match[bytes]) -> Sends | None:
    """A run of the one frame that matched. None when its content-length is not its body's."""
    body = match[template.body]
    if template.length_group and len(body) != int(match[template.length_group]):
        return None
    return Sends(
        template.shape,
        [body],
        tuple([[match[group]] for group in template.columns]) if template.columns else (),
        [match[template.receipt]] if template.receipt else [],
        match[template.transaction].decode() if template.transaction else None,
    )


def _sends_of(template: _Template, parts: Sequence[bytes], count: int) -> Sends | None:
    """The first `count` frames; fewer where the transaction changes. None when a content-length is not its body's."""
    stride = template.body + 1
    stop = count * stride
    bodies = list(parts[template.body : stop : stride])
    if template.length_group and list(map(len, bodies)) != list(
        map(int, parts[template.length_group : stop : stride])
    ):
        return None
    transaction = None
    if template.transaction:
        names = parts[template.transaction : stop : stride]
        same = next((at for at, name in enumerate(names) if name != names[0]), count)
        if same < count:
            return _sends_of(template, parts, same)
        transaction = names[0].decode()
    receipts = list(parts[template.receipt : stop : stride]) if template.receipt else []
    columns = tuple([list(parts[group:stop:stride]) for group in template.columns])
    return Sends(template.shape, bodies, columns, receipts, transaction)


def _equal_frames(buffer: bytes, position: int, template: _Template) -> tuple[Sends, int]:
    """Frames that differ in their bodies alone, all of one length; the first is known to match."""
    length = template.length or 0
    size = template.constant + length
    most = max(1, min((len(buffer) - position) // size, template.region // size))
    first = position + template.constant - 1 - len(template.eol)
    bodies = buffer[first : first + (most - 1) * size + length].split(template.separator)
    is_ended = buffer.startswith(b"\0" + template.eol, first + (most - 1) * size + length)
    if not is_ended or len(bodies) != most or set(map(len, bodies)) != {length}:
        bodies = _equal_prefix(buffer, first, size, template)
    consumed = len(bodies) * size
    template.adapt(consumed, most * size)
    return Sends(template.shape, bodies, (), [], None), position + consumed


def _whole_frames(frames: Sequence[bytes], template: _Template) -> Sends | None:
    """The run that frames make, the first of which is known to match; None where one of them does not, from its first to its last octet."""
    count, sizes = len(frames), list(map(len, frames))
    whole = b"".join(frames)
    if template.separator:
        sends, consumed = _equal_frames(whole, 0, template)
        is_whole = consumed == len(whole) and sizes.count(sizes[0]) == len(sends.bodies) == count
        return sends if is_whole else None
    stride = template.body + 1
    parts = template.pattern.split(whole)
    if len(parts) != count * stride + 1 or any(parts[::stride]):
        return None
    if [
        template.constant + sum(map(len, parts[at : at + stride])) for at in range(0, count * stride, stride)
    ] != sizes:
        return None  # what one has begun another one has ended
    found = _sends_of(template, parts, count)
    return found if found is not None and len(found.bodies) == count else None


def _equal_prefix(buffer: bytes, first: int, size: int, template: _Template) -> list[bytes]:
    """The bodies of frames that are alike, found one by one, as far as that goes."""
    length, end = template.length or 0, b"\0" + template.eol
    bodies = [buffer[first : first + length]]
    while buffer.startswith(template.separator, first + length) and buffer.startswith(
        end, first + size + length
    ):
        first += size
        bodies.append(buffer[first : first + length])
    return bodies
