"""Chunks that a client hands over, whatever is in them: refused by name, or messages that are one frame each, with nothing forged."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import settings as example_settings
from hypothesis import strategies as st

from stompbox.broker.queues.consumer import AckMode
from stompbox.config import ListenerOptions
from stompbox.errors import IllegalFrame, Refused
from stompbox.message import ANYCAST, NOT_TAKEN, Run, Shape
from stompbox.server.requests.incoming import runs_of
from stompbox.stomp.codec import Decoder
from stompbox.stomp.encode import Head, messages
from stompbox.stomp.frames import SERVER_COMMANDS, Frame
from stompbox.stomp.versions import VERSIONS
from stompbox.store.chunks import encode
from tests.broker.world import World

OPTIONS = ListenerOptions(max_header_size=2000, max_headers=20, max_body_size=3000)
BROKER_SAYS = {"message-id", "subscription", "ack", "redelivered", "timestamp", "content-length"}
NAMES = (
    *(
        "a",
        "b:c",
        "d\ne",
        "f\0",
        "",
        "é",
        "\\",
        "redelivered",
        "message-id",
        "ack",
        "content-length",
        "destination",
        "priority",
        "expires",
    ),
    *(
        "persistent",
        "retain",
        "reply-to",
        "_AMQ_DUPL_ID",
        "_AMQ_LVQ_NAME",
        "JMSXGroupID",
        "JMSXGroupSeq",
        "_AMQ_ORIG_ADDRESS",
    ),
    *("AMQ_SCHEDULED_DELAY", "expiration", "JMSXUserID", "timestamp", "type"),
)
VALUES = (
    "",
    "1",
    "0",
    "x",
    " y ",
    "a:b",
    "a\nMESSAGE\n\n\0",
    "\0",
    "é",
    "\\n",
    "true",
    "/queue/q",
    "99999999999",
    "-1",
    "\r",
    "~" * 300,
)


def sealed(blob: bytes) -> bytes:
    """With the checksum that it should have: that keeps nobody off."""
    return struct.pack("<I", zlib.crc32(blob[4:])) + blob[4:] if len(blob) >= 4 else blob


def accepted(blob: bytes) -> list[Run] | None:
    """None: refused, in the way that is told to a client."""
    try:
        return runs_of(blob, OPTIONS)
    except (IllegalFrame, Refused):
        return None


def check(runs: list[Run]) -> None:
    """What a broker delivers of them: to each version one frame per message, that says what its run says, and what was never the
    client's to say only once."""
    for version in VERSIONS.values():
        for run in runs:
            run.first = 998
            wire = messages(Head(version, "0", 1, acks=True), run, 0, len(run))
            decoder = Decoder(SERVER_COMMANDS)
            decoder.version = version
            frames = [frame for frame in decoder.receive(wire) if isinstance(frame, Frame)]
            assert [frame.command for frame in frames] == ["MESSAGE"] * len(run)
            if version.name != "1.0" or run.shape.has_length:
                assert [frame.body for frame in frames] == list(run.bodies)
            for index, frame in enumerate(frames):
                assert frame.headers["message-id"] == f"1-{998 + index}"
                assert NOT_TAKEN.isdisjoint(run.headers(index))
                if version.name == "1.2":
                    said = {name: value for name, value in frame.headers.items() if name not in BROKER_SAYS}
                    assert said == {
                        name: value for name, value in run.headers(index).items() if name != "timestamp"
                    }


def engine_takes(runs: list[Run]) -> None:
    """An engine takes them and delivers them; what it refuses it refuses as it does of a SEND."""
    world = World()
    world.on_queue(world.consumer("c", AckMode.INDIVIDUAL), "q")
    for run in runs:
        run.routing = ANYCAST
        try:
            world.engine.publish(world.address("q"), run)
        except (IllegalFrame, Refused):
            continue
    world.commit()
    world.settle()
    world.restart().settle()


texts = st.one_of(st.sampled_from(VALUES), st.text(max_size=8))
names = st.one_of(st.sampled_from(NAMES), st.text(max_size=5))


@st.composite
def runs_of_anybody(draw: st.DrawFn) -> Run:
    """Headers, holes and columns of whatever kind: nothing of it need be allowed."""
    headers = {"destination": "/queue/q", **draw(st.dictionaries(names, texts, max_size=4))}
    holes = tuple(draw(st.lists(names, max_size=3)))
    bodies = draw(st.lists(st.binary(max_size=12), min_size=1, max_size=4))
    values = st.one_of(st.sampled_from([value.encode() for value in VALUES]), st.binary(max_size=8))
    columns = tuple([draw(st.lists(values, min_size=len(bodies), max_size=len(bodies))) for _ in holes])
    shape = Shape(
        headers, holes=holes, persistent=draw(st.sampled_from((True, False, None))), priority=draw(st.integers(0, 255)),
        expires=draw(st.integers(-(1 << 63), (1 << 63) - 1)), has_length=draw(st.booleans()),
    )  # fmt: skip
    return Run(
        shape,
        bodies,
        columns,
        routing=draw(st.integers(0, (1 << 32) - 1)),
        arrived=draw(st.integers(-5, 1 << 62)),
    )


@given(st.lists(runs_of_anybody(), min_size=1, max_size=3))
@example_settings(max_examples=400)
def test_what_is_taken_is_one_frame_for_each_message(runs: list[Run]) -> None:
    first = 0
    for run in runs:
        run.first, first = first, first + len(run)
    found = accepted(encode(runs, 0))
    if found is not None:
        assert sum(map(len, found)) == sum(map(len, runs))
        check(found)
        engine_takes(found)


def seeds() -> list[bytes]:
    plain = Run(Shape({"destination": "/queue/q", "priority": "7"}), [b"one", b"", b"three"], first=0)
    wide = Run(
        Shape({"destination": "/queue/q"}, holes=("a", "JMSXGroupID")),
        [b"x", b"y"],
        ([b"1", b"22"], [b"g", b"g"]),
        first=3,
    )
    meant = Run(
        Shape({"destination": "/queue/q"}, holes=("priority", "b")),
        [b"x"] * 3,
        ([b"1", b"1", b"9"], [b"1", b"2", b"3"]),
        first=5,
    )
    text = Run(Shape({"destination": "/queue/q"}, has_length=False), [b"x", b"\0\nMESSAGE\n\n"], first=8)
    return [encode([plain], 0), encode([plain, wide, meant], 0), encode([wide], 3), encode([text], 8)]


def mutated(source: random.Random, blob: bytes) -> Iterator[bytes]:
    """The blob with some octets and numbers changed, cut or put in."""
    for _ in range(source.randint(1, 3)):
        at = source.randrange(4, max(5, len(blob)))
        kind = source.randrange(5)
        if kind == 0:
            blob = blob[:at] + bytes([source.randrange(256)]) + blob[at + 1 :]
        elif kind == 1:
            at -= at % 4
            number = source.choice((0, 1, 2, 255, 1 << 16, 1 << 31, (1 << 32) - 1, source.randrange(100)))
            blob = blob[:at] + struct.pack("<I", number) + blob[at + 4 :]
        elif kind == 2:
            blob = blob[:at] + blob[at + source.choice((1, 4, 32)) :]
        elif kind == 3:
            blob = blob[:at] + source.randbytes(source.choice((1, 4, 32))) + blob[at:]
        else:
            blob = blob[: max(5, at)]
    yield sealed(blob)


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_chunk_is_refused_or_still_one_frame_for_each_message(seed: int) -> None:
    source = random.Random(seed)
    taken = 0
    for _ in range(1500):
        for blob in mutated(source, source.choice(seeds())):
            found = accepted(blob)
            if found is not None and sum(map(len, found)) < 10_000:
                taken += 1
                check(found)
    assert 50 < taken < 1400, "hardly anything was damaged, or taken: nothing is tested here"


def test_what_is_meant_by_a_header_counts_also_where_it_was_a_hole() -> None:
    found = runs_of(seeds()[1], OPTIONS)
    assert [(run.shape.priority, list(run.bodies), run.shape.holes) for run in found] == [
        (7, [b"one", b"", b"three"], ()), (4, [b"x", b"y"], ("a", "JMSXGroupID")), (1, [b"x", b"x"], ("b",)), (9, [b"x"], ("b",)),
    ]  # fmt: skip
    assert [run.headers(0).get("b") for run in found] == [None, None, "1", "3"]


@pytest.mark.parametrize(
    ("shape", "body", "columns", "problem"),
    [
        (Shape({"destination": "q", "a": "x" * 3000}), b"", (), "the headers of a message have 3017 octets"),
        (
            Shape({"destination": "q", **dict.fromkeys(map(str, range(30)), "")}),
            b"",
            (),
            "31 headers in a message",
        ),
        (Shape({"destination": "q"}), b"x" * 3001, (), "a body of 3001 octets"),
        (Shape({"destination": "q"}, holes=("a",)), b"", ([b"x" * 3000],), "the headers of a message have"),
        (
            Shape({"destination": "q"}, holes=("_AMQ_DUPL_ID",)),
            b"",
            ([b"\xff\xfe"],),
            "header '_AMQ_DUPL_ID' has values with",
        ),
        (Shape({"destination": "q"}, holes=("a",)), b"", ([b"1\nb:2"],), "header 'a' has values with"),
        (
            Shape({"destination": "q"}, holes=("a", "a")),
            b"",
            ([b"1"], [b"2"]),
            "has a header without name, or one twice",
        ),
        (Shape({"destination": "q", "": ""}), b"", (), "has a header without name, or one twice"),
        (Shape({"destination": "q", "a": "\0"}), b"", (), "a NUL octet in a header"),
        (Shape({"destination": "q", "a": "\ud800"}), b"", (), "a text in shape 0 is no UTF-8"),
        (Shape({"destination": "q", "priority": "10"}), b"", (), "header priority is '10'"),
        (Shape({"destination": ""}), b"", (), "needs a destination"),
        (Shape({"destination": "q"}, holes=("JMSXGroupSeq",)), b"", ([b"x"],), "header JMSXGroupSeq is 'x'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_refused_and_why(
    shape: Shape, body: bytes, columns: tuple[list[bytes], ...], problem: str
) -> None:
    with pytest.raises(IllegalFrame, match=problem):
        runs_of(encode([Run(shape, [body], columns, first=0)], 0), OPTIONS)
