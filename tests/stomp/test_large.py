"""Large bodies in the codec: the same events however the bytes are cut, the same faults, and nothing for those who want frames whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from stompbox.errors import FrameError
from stompbox.stomp.codec import Decoder, FrameLimits
from stompbox.stomp.frames import Frame
from stompbox.stomp.large import Ending, Opening, Piece
from stompbox.stomp.runs import Reader, Sends
from stompbox.stomp.versions import V12

LEAST = 8
LIMITS = FrameLimits(body=30)
SEND = b"SEND\ndestination:/queue/a\n"
OTHER = b"ACK\nid:1-1\n\n\0"

Told = tuple[object, ...]


def decoder(*, least: int = LEAST) -> Decoder:
    made = Decoder(limits=LIMITS)
    made.version = V12
    made.logged_in = True
    made.large_from = least
    return made


def told(events: Iterable[object]) -> list[Told]:
    """Events as values; the pieces of a body are joined, wherever they were cut."""
    found: list[Told] = []
    for event in events:
        if isinstance(event, Opening):
            assert event.frame.body == b""
            found.append(("opening", event.frame.command, event.frame.headers.get("content-length", ""), b""))
        elif isinstance(event, Piece):
            assert event.data
            found[-1] = (*found[-1][:3], bytes(found[-1][3]) + event.data)  # type: ignore[call-overload]
        elif isinstance(event, Ending):
            found[-1] = ("large", *found[-1][1:])
        else:
            assert isinstance(event, Frame)
            found.append(("frame", event.command, event.headers.get("content-length", ""), event.body))
    return found


def fed(pieces: Iterable[bytes], *, least: int = LEAST) -> Iterator[object]:
    reading = decoder(least=least)
    for piece in pieces:
        yield from reading.receive(piece)


def large(body: bytes, length: str = "") -> Told:
    return "large", "SEND", length, body


def whole(body: bytes, length: str = "") -> Told:
    return "frame", "SEND", length, body


ACK: Told = ("frame", "ACK", "", b"")

CASES: dict[str, tuple[bytes, list[Told]]] = {
    "counted, one octet below": (SEND + b"content-length:7\n\nseven77\0", [whole(b"seven77", "7")]),
    "counted, exactly": (SEND + b"content-length:8\n\neight888\0", [large(b"eight888", "8")]),
    "counted, with NULs in it": (
        SEND + b"content-length:9\n\nab\0\0ef\0\0\0\0",
        [large(b"ab\0\0ef\0\0\0", "9")],
    ),
    "to the NUL, one octet below": (SEND + b"\nseven77\0", [whole(b"seven77")]),
    "to the NUL, exactly": (SEND + b"\neight888\0", [large(b"eight888")]),
    "to the NUL, longer": (SEND + b"\n" + b"0123456789" * 3 + b"\0", [large(b"0123456789" * 3)]),
    "another frame behind": (SEND + b"\n0123456789\0\n" + OTHER, [large(b"0123456789"), ACK]),
    "one before, one behind": (
        OTHER + b"\n" + SEND + b"content-length:10\n\n0123456789\0" + OTHER,
        [ACK, large(b"0123456789", "10"), ACK],
    ),
    "two in a row": (
        SEND + b"content-length:10\n\n0123456789\0\n" + SEND + b"\nabcdefghij\0",
        [large(b"0123456789", "10"), large(b"abcdefghij")],
    ),
    "frames in the body": (
        SEND + b"content-length:%d\n\n%b\0" % (len(OTHER), OTHER),
        [large(OTHER, str(len(OTHER)))],
    ),
    "line ends with CR": (
        SEND.replace(b"\n", b"\r\n") + b"\r\n0123456789\0\r\n" + OTHER,
        [large(b"0123456789"), ACK],
    ),
    "only SEND has large bodies": (
        b"ACK\nid:1\ncontent-length:10\n\n0123456789\0",
        [("frame", "ACK", "10", b"0123456789")],
    ),
    "nor without content-length": (b"ACK\nid:1\n\n0123456789\0", [("frame", "ACK", "", b"0123456789")]),
}

FAULTS: dict[str, tuple[bytes, str]] = {
    "no NUL after what was counted": (SEND + b"content-length:9\n\n0123456789\0", "missing-nul"),
    "announced beyond the limit": (SEND + b"content-length:31\n\n0", "body-too-large"),
    "beyond the limit to the NUL": (SEND + b"\n" + b"x" * 31, "body-too-large"),
}


@pytest.mark.parametrize(("data", "expected"), CASES.values(), ids=CASES)
def test_at_once_and_byte_by_byte(data: bytes, expected: list[Told]) -> None:
    assert told(fed([data])) == expected
    assert told(fed([data[at : at + 1] for at in range(len(data))])) == expected


@pytest.mark.parametrize(("data", "expected"), CASES.values(), ids=CASES)
def test_cut_at_every_byte(data: bytes, expected: list[Told]) -> None:
    for cut in range(1, len(data)):
        assert told(fed([data[:cut], data[cut:]])) == expected, cut


@pytest.mark.parametrize(("data", "code"), FAULTS.values(), ids=FAULTS)
def test_the_same_fault_wherever_it_is_cut(data: bytes, code: str) -> None:
    for pieces in [
        [data],
        *[[data[:cut], data[cut:]] for cut in range(1, len(data))],
        [data[at : at + 1] for at in range(len(data))],
    ]:
        with pytest.raises(FrameError) as caught:
            told(fed(pieces))
        assert caught.value.code == code


@pytest.mark.parametrize("data", [SEND + b"content-length:20\n\n0123456789", SEND + b"\n0123456789"])
def test_what_has_come_is_given_out_at_once(data: bytes) -> None:
    """Nothing of a large body is kept."""
    reading = decoder()
    assert told(reading.receive(data))[0][3] == b"0123456789"
    assert reading.pending == 0
    assert [event.data for event in reading.receive(b"more") if isinstance(event, Piece)] == [b"more"]
    assert reading.pending == 0


def test_what_is_wanted_whole_comes_whole() -> None:
    reading = decoder()
    reading.may_stream = lambda headers: headers["destination"] != "/queue/a"
    for data in (SEND + b"content-length:10\n\n0123456789\0", SEND + b"\n0123456789\0"):
        found = [event for at in range(len(data)) for event in reading.receive(data[at : at + 1])]
        assert [type(event) for event in found] == [Frame]
    assert told(reading.receive(b"SEND\ndestination:/queue/b\n\n0123456789\0")) == [large(b"0123456789")]


def test_without_a_least_size_all_come_whole() -> None:
    data = SEND + b"content-length:30\n\n" + b"x" * 30 + b"\0"
    assert told(fed([data], least=0)) == [whole(b"x" * 30, "30")]


def test_what_reads_runs_leaves_large_bodies_alone() -> None:
    """Also when many like it, but smaller, have taught it a pattern."""
    reading = decoder()
    reading.runs = reader = Reader(V12, max_body=LEAST - 1)
    small = SEND + b"content-length:3\n\nabc\0"
    for _ in range(40):
        list(reading.receive(small))
    assert reader.compiled
    assert [type(event) for event in reading.receive(small * 3)] == [Sends]
    for body in (b"0123456789", b"0123\0\0 789"):
        data = SEND + b"content-length:10\n\n%b\0" % body
        events = list(reading.receive(small + data + small))
        assert [type(event) for event in events] == [Sends, Opening, Piece, Ending, Sends]
        assert isinstance(events[2], Piece)
        assert events[2].data == body
    uncounted = SEND + b"\nabc\0"
    for _ in range(40):
        list(reading.receive(uncounted))
    assert [type(event) for event in reading.receive(uncounted + SEND + b"\n0123456789\0")] == [
        Sends,
        Opening,
        Piece,
        Ending,
    ]
