"""Reading in runs against reading with care: the same bytes must mean the same, whatever was learned before and however they are cut."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from stompbox.errors import FrameError
from stompbox.message import NOT_TAKEN
from stompbox.stomp.codec import Decoder, FrameLimits
from stompbox.stomp.frames import Frame
from stompbox.stomp.runs import Acks, Reader, Sends
from stompbox.stomp.versions import VERSIONS, Version

LIMITS = FrameLimits(head=300, headers=8, body=400)
Meaning = tuple[object, ...]


def meanings(event: object) -> list[Meaning]:
    """A frame, or each frame of a run, as what the broker is told."""
    if isinstance(event, Sends):
        return [_meaning_of_send(event, at) for at in range(len(event.bodies))]
    if isinstance(event, Acks):
        return [("ACK", (("id", f"{event.queue}-{offset}"),), b"") for offset in event.offsets]
    assert isinstance(event, Frame)
    if event.command != "SEND":
        return [(event.command, tuple(sorted(event.headers.items())), event.body)]
    headers = {name: value for name, value in event.headers.items() if name not in NOT_TAKEN}
    return [
        (
            "SEND",
            tuple(sorted(headers.items())),
            event.body,
            event.headers.get("receipt"),
            event.headers.get("transaction"),
            "content-length" in event.headers,
        )
    ]


def _meaning_of_send(event: Sends, at: int) -> Meaning:
    columns = {
        name: column[at].decode() for name, column in zip(event.shape.holes, event.columns, strict=True)
    }
    headers = tuple(sorted({**event.shape.headers, **columns}.items()))
    receipt = event.receipts[at].decode() if event.receipts else None
    return ("SEND", headers, event.bodies[at], receipt, event.transaction, event.shape.has_length)


def read(
    pieces: list[bytes], version: Version, runs: Reader | None, limits: FrameLimits = LIMITS
) -> tuple[list[Meaning], str | None, int]:
    """What the pieces mean, the fault's code, and how many events it took."""
    decoder = Decoder(limits=limits)
    decoder.version = version
    decoder.logged_in = True
    decoder.runs = runs
    found: list[Meaning] = []
    events = 0
    try:
        for piece in pieces:
            for event in decoder.receive(piece):
                found += meanings(event)
                events += 1
    except FrameError as fault:
        return found, fault.code, events
    return found, None, events


class Producer:
    """Streams of frames as producers send them: alike for a while, then a little different."""

    VALUES = (b"1", b"22", b"abc", b"a b", b" a", b"", b"x\\ny", b"a:b", "é".encode(), b"\\t", b"a\rb", b"~")
    NAMES = (
        b"a",
        b"correlation-id",
        b"JMSXGroupID",
        b"priority",
        b"persistent",
        b"x-y",
        b"b\\cc",
        b"receipt",
        b"transaction",
        b"expires",
    )
    NAMES += (b"message-id",)  # not taken from a sender, and no column

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.families = [self._family() for _ in range(12)]

    def _family(self) -> tuple[list[bytes], set[bytes], dict[bytes, bytes], bool, int | None]:
        """Names of headers, those that vary, values of the others, is content-length said, and the size of bodies if all have one."""
        source = self.source
        names = source.sample(self.NAMES, source.randrange(0, 4))
        varying = {name for name in names if source.random() < 0.5}
        constant = {name: self._value(name) for name in names}
        return (
            names,
            varying,
            constant,
            source.random() < 0.6,
            source.randrange(30) if source.random() < 0.5 else None,
        )

    def stream(self) -> bytes:
        return b"".join([self._alike() for _ in range(self.source.randrange(1, 4))])

    def _alike(self) -> bytes:
        source = self.source
        if source.random() < 0.2:
            queues = (3, 3, 3, source.choice((3, 4)))
            return b"".join(
                [
                    b"ACK\nid:%d-%d\n\n\0" % (source.choice(queues), at) + self._end()
                    for at in range(source.randrange(1, 40))
                ]
            )
        names, varying, constant, has_length, size = source.choice(self.families)
        end = self._end()
        frames = []
        for number in range(source.randrange(1, 60)):
            body = self._body(source.randrange(40) if size is None else size, has_length=has_length)
            lines = [b"destination:/queue/a"]
            for name in names:
                is_new = name in varying and source.random() < 0.9
                lines.append(
                    name + b":" + (b"%d" % number if is_new and name != b"priority" else constant[name])
                )
            if has_length:
                lines.insert(
                    source.choice((1, len(lines))) if number % 7 == 0 else 1, b"content-length:%d" % len(body)
                )
            frames.append(b"SEND\n" + b"\n".join(lines) + b"\n\n" + body + b"\0" + end)
        return b"".join(frames)

    def _value(self, name: bytes) -> bytes:
        if name in (b"priority", b"persistent", b"expires"):
            return {b"priority": b"5", b"persistent": b"true", b"expires": b"0"}[name]
        return self.source.choice(self.VALUES[:7] if self.source.random() < 0.9 else self.VALUES)

    def _body(self, size: int, *, has_length: bool) -> bytes:
        kinds = (
            (b"x", b"y", b"\n", b"SEND\n", b"\0", b"\0SEND\ndestination:/queue/a\n\n")
            if has_length
            else (b"x", b"\n", b"SEND\n")
        )
        return b"".join(self.source.choices(kinds, k=size))[:size]

    def _end(self) -> bytes:
        return self.source.choice((b"", b"", b"", b"\n", b"\n", b"\n", b"\n\n", b"\r\n", b"\0"))

    def damaged(self, data: bytes) -> bytes:
        at = self.source.randrange(len(data) + 1)
        return (
            data[:at]
            + self.source.choice((b"\0", b"\n", b"x", b":", b"\\", b"", b"\xff", b"9"))
            + data[at + self.source.randrange(3) :]
        )

    def cut(self, data: bytes) -> list[bytes]:
        size = self.source.choice((7, 300, 2000, 9000, 100_000, 100_000))
        return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("version", VERSIONS.values(), ids=list(VERSIONS))
@pytest.mark.parametrize("seed", range(4))
def test_runs_mean_what_their_frames_mean(version: Version, seed: int) -> None:
    producer = Producer(seed)
    reader = Reader(version, max_body=LIMITS.body, max_head=LIMITS.head)
    in_runs = frames = 0
    for _ in range(120):
        data = producer.stream()
        if producer.source.random() < 0.3:
            data = producer.damaged(data)
        pieces = producer.cut(data)
        wanted, wanted_code, _ = read(pieces, version, None)
        found, code, events = read(pieces, version, reader)
        assert (found, code) == (wanted, wanted_code), pieces
        frames += len(wanted)
        in_runs += len(found) - events
    assert in_runs > frames / 25, "hardly anything was read in runs: nothing is tested here"


@pytest.mark.parametrize("version", VERSIONS.values(), ids=list(VERSIONS))
@pytest.mark.parametrize("seed", range(3))
def test_what_many_have_sent_is_one_run_or_nothing(version: Version, seed: int) -> None:
    """Each piece is another client's: it is in the run alone and whole, or there is none, whatever stands beside it."""
    producer = Producer(100 + seed)
    reader = Reader(version, max_body=LIMITS.body, max_head=LIMITS.head)
    source, together = producer.source, 0
    for _ in range(100):
        data = producer.stream()
        read([data], version, reader)
        ends = [at + 1 for at, octet in enumerate(data) if octet == 0 and source.random() < 0.97]
        cuts = [at + (data[at : at + 1] == b"\n") for at in ends]
        if source.random() < 0.3:
            cuts = sorted({*cuts, source.randrange(len(data))})
        frames = [data[low:high] for low, high in pairwise([0, *cuts]) if low < high]
        for low in range(0, len(frames), 5):
            some = frames[low : low + source.randrange(1, 9)]
            found = reader.read_each(some)
            if found is None:
                continue
            together += len(some) > 1
            assert meanings(found) == [meaning for one in some for meaning in read([one], version, None)[0]]
            assert all(len(read([one], version, None)[0]) == 1 for one in some), some
    assert together > 15, "hardly anything was read together: nothing is tested here"


def test_messages_of_all_priorities_in_turn_are_read_in_runs() -> None:
    reader = Reader(VERSIONS["1.2"], max_body=LIMITS.body, max_head=LIMITS.head)
    frames = [b"SEND\ndestination:/queue/a\npriority:%d\n\nbody\0" % priority for priority in range(10)]
    read(frames * 20, VERSIONS["1.2"], reader)
    assert [reader.read(frame, 0) is not None for frame in frames] == [True] * 10


@pytest.mark.parametrize("content_length", [True, False])
@pytest.mark.parametrize("oversize", ["body", "head"])
def test_limits_hold_within_a_run(oversize: str, content_length: bool) -> None:
    """Beyond a limit is beyond it, wherever in a run the frame stands."""

    def send(number: int, size: int, note: int) -> bytes:
        length = b"content-length:%d\n" % size if content_length else b""
        return (
            b"SEND\ndestination:/queue/a\n"
            + length
            + b"n:"
            + b"%d" % number
            + b"z" * note
            + b"\n\n"
            + b"x" * size
            + b"\0"
        )

    reader = Reader(VERSIONS["1.2"], max_body=LIMITS.body, max_head=LIMITS.head)
    taught = [send(number, number % 50, 0) for number in range(100)]
    assert read([b"".join(taught)], VERSIONS["1.2"], reader)[1] is None
    guilty = send(7, LIMITS.body + 1, 0) if oversize == "body" else send(7, 3, LIMITS.head)
    data = b"".join(taught[:50]) + guilty + b"".join(taught[50:])
    wanted = read([data], VERSIONS["1.2"], None)
    found = read([data], VERSIONS["1.2"], reader)
    assert wanted[1] in ("body-too-large", "header-too-large")
    assert found[:2] == wanted[:2]


class OneByOne(Reader):
    """Knows no plain search for ACKs."""

    def _equal_acks(self, *_: object) -> None:
        return None


OFFSETS = (b"007", b"0", b"1_0", b"+1", b"", b" 1", b"\xd9\xa1", b"9" * 16, b"9" * 17, b"9" * 5000)
ENDS = (b"\n", b"\n", b"\n", b"\n", b"", b"\n\n")
BEHIND = (b"ACK\nid:1-", b"SEND\n", b"ACK\nid:1-5\nreceipt:1\n\n\0", b"ACK\nid:1-5\n\n")


def some_acks(random_: random.Random) -> bytes:
    whole = b""
    for _ in range(random_.randint(1, 12)):
        offset = random_.choice(OFFSETS) if random_.random() < 0.1 else b"%d" % random_.randint(0, 2000)
        whole += b"ACK\nid:%b-%b\n\n\0%b" % (
            random_.choice((b"1", b"1", b"1", b"12", b"01")),
            offset,
            random_.choice(ENDS),
        )
    whole += random_.choice(BEHIND) if random_.random() < 0.3 else b""
    return whole[: random_.randint(0, len(whole))] if random_.random() < 0.3 else whole


def acknowledged(reader: Reader, octets: bytes) -> tuple[list[tuple[int, int]], int]:
    """What they are for, and how much of the octets it was."""
    found, position = [], 0
    while (run := reader.read(octets, position)) is not None:
        event, position = run
        assert isinstance(event, Acks)
        found += [(event.queue, offset) for offset in event.offsets]
    return found, position


def test_acks_of_a_plain_search_are_those_of_a_careful_one() -> None:
    random_ = random.Random(20_261_123)
    several = 0
    for _ in range(4000):
        octets = some_acks(random_)
        plain, careful = (
            acknowledged(kind(VERSIONS["1.2"], max_body=9), octets) for kind in (Reader, OneByOne)
        )
        assert plain == careful, octets[:500]
        several += len(plain[0]) > 3
    assert several > 300
