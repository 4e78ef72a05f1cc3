"""Runs against the careful codec: the same messages, the same faults, however the network cuts them."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.client import runs
from stompbox.client.message import Message
from stompbox.client.runs import MOST_FORMS, Form, MessageRun, Reader, ReceiptRun, ack_header
from stompbox.errors import FrameError
from stompbox.stomp.codec import Decoder, FrameLimits, encode
from stompbox.stomp.frames import SERVER_COMMANDS, Frame
from stompbox.stomp.versions import V11, V12, Version

ROUTES: dict[bytes, object] = {b"s1": "one", b"s2": "two"}
SMALL = FrameLimits(head=2000, headers=50, body=500)


def reading(
    version: Version, limits: FrameLimits = SMALL, *, with_runs: bool = True
) -> tuple[Decoder, Reader]:
    decoder = Decoder(SERVER_COMMANDS, limits)
    decoder.version = version
    reader = Reader(version, ROUTES, limits)
    if with_runs:
        decoder.runs = reader
    return decoder, reader


def frames(
    decoder: Decoder, reader: Reader, pieces: Iterable[bytes]
) -> tuple[list[tuple[str, dict[str, str], bytes]], str | None, int]:
    """Everything read as (command, headers, body), the code of the fault that ended it, and how many messages came in runs."""
    found: list[tuple[str, dict[str, str], bytes]] = []
    in_runs = 0
    try:
        for piece in pieces:
            for item in decoder.receive(piece):
                if isinstance(item, MessageRun):
                    in_runs += len(item.messages)
                    found += [("MESSAGE", dict(message.headers), message.body) for message in item.messages]
                elif isinstance(item, ReceiptRun):
                    found += [("RECEIPT", {"receipt-id": str(number)}, b"") for number in item.numbers]
                else:
                    assert isinstance(item, Frame)
                    found.append((item.command, item.headers, item.body))
                    if item.command == "MESSAGE":
                        reader.count(item.headers)
    except FrameError as error:
        return found, error.code, in_runs
    return found, None, in_runs


def message(number: int, body: bytes = b"hello", **more: str) -> Frame:
    headers = {
        "subscription": "s1",
        "message-id": f"m{number}",
        "ack": f"a{number}",
        "destination": "/queue/x",
        **more,
    }
    return Frame("MESSAGE", {**headers, "content-length": str(len(body))}, body)


def cut(octets: bytes, sizes: Iterable[int]) -> list[bytes]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(octets[at : at + size])
        at += size
    return [*pieces, octets[at:]]


def test_learned_after_some_and_then_read_in_runs() -> None:
    octets = b"".join(encode(message(number), V12) for number in range(20))
    found, fault, in_runs = frames(*reading(V12), [octets])
    assert fault is None
    assert in_runs == 20 - runs.LEARN_AFTER
    assert [headers["message-id"] for _, headers, _ in found] == [f"m{number}" for number in range(20)]


@pytest.mark.parametrize("version", [V11, V12], ids=repr)
def test_what_an_ack_repeats(version: Version) -> None:
    decoder, reader = reading(version)
    for _ in range(runs.LEARN_AFTER):
        reader.count(message(0).headers)
    (run,) = decoder.receive(encode(message(7, ack="x:y", **{"message-id": "i:d"}), version))
    assert isinstance(run, MessageRun)
    assert run.route == "one"
    assert run.messages[0]._ack_id == {V11: b"i\\cd", V12: b"x\\cy"}[version]
    assert run.messages[0].headers[ack_header(version)] == {V11: "i:d", V12: "x:y"}[version]


def test_a_run_is_of_one_route() -> None:
    decoder, reader = reading(V12)
    for _ in range(runs.LEARN_AFTER):
        reader.count(message(0).headers)
    octets = b"".join(
        encode(message(number, subscription="s1" if number < 3 else "s2"), V12) for number in range(5)
    )
    found = [
        (item.route, len(item.messages)) for item in decoder.receive(octets) if isinstance(item, MessageRun)
    ]
    assert found == [("one", 3), ("two", 2)]


def test_unknown_route_and_other_frames_are_left_to_the_codec() -> None:
    decoder, reader = reading(V12)
    for _ in range(runs.LEARN_AFTER):
        reader.count(message(0).headers)
    others = [
        message(0, subscription="s9"),
        Frame("ERROR", {"message": "x"}),
        Frame("RECEIPT", {"receipt-id": "text"}),
        Frame("RECEIPT", {"receipt-id": "1", "x": "y"}),
    ]
    octets = b"".join(encode(frame, V12) for frame in others)
    assert list(decoder.receive(octets)) == others


def test_receipts_in_one_go() -> None:
    decoder, _ = reading(V12)
    octets = b"".join(b"RECEIPT\nreceipt-id:%d\n\n\0\n" % number for number in range(5000))
    (run,) = decoder.receive(octets)
    assert isinstance(run, ReceiptRun)
    assert run.numbers == list(range(5000))


TEXT = st.text(st.sampled_from("abc:\\ \n\r\tü\u4e00-"), max_size=6)


@st.composite
def streams(draw: st.DrawFn) -> tuple[Version, bytes, list[int]]:
    version = draw(st.sampled_from([V11, V12]))
    random_names = st.dictionaries(st.sampled_from(["a", "b:c", "d\\e", "ü"]), TEXT, max_size=2)
    names = draw(random_names)
    octets = b""
    for number in range(draw(st.integers(1, 30))):
        more = {name: draw(TEXT) for name in names} if draw(st.integers(0, 9)) else draw(random_names)
        if version is V11:
            more = {name: value.replace("\r", "") for name, value in more.items()}
        frame = message(number, draw(st.binary(max_size=12)), **more)
        if draw(st.booleans()) and 0 not in frame.body:
            del frame.headers["content-length"]
        kind = draw(st.integers(0, 20))
        if kind == 0:
            frame = Frame("RECEIPT", {"receipt-id": str(number)})
        elif kind == 1:
            frame.headers["subscription"] = "s2"
        octets += encode(frame, version) + b"\n" * draw(st.integers(0, 2))
    return version, octets, draw(st.lists(st.integers(1, 60), max_size=60))


@given(streams())
def test_runs_and_careful_codec_read_the_same(stream: tuple[Version, bytes, list[int]]) -> None:
    version, octets, sizes = stream
    pieces = cut(octets, sizes)
    expected = frames(*reading(version, with_runs=False), pieces)
    assert frames(*reading(version), pieces)[:2] == expected[:2]
    assert expected[1] is None


FAULTS = [
    (
        b"MESSAGE\nsubscription:s1\nmessage-id:x\nack:a\ndestination:\\t\ncontent-length:1\n\nx\0",
        "undefined-escape",
    ),
    (
        b"MESSAGE\nsubscription:s1\nmessage-id:x\nack:a\\\ndestination:d\ncontent-length:1\n\nx\0",
        "undefined-escape",
    ),
    (
        b"MESSAGE\nsubscription:s1\nmessage-id:x\nack:a\ndestination:\xff\ncontent-length:1\n\nx\0",
        "not-utf-8",
    ),
    (b"MESSAGE\nsubscription:s1\nmessage-id:x\nack:a\ndestination:\rd\ncontent-length:1\n\nx\0", "bare-cr"),
    (
        b"MESSAGE\nsubscription:s1\nmessage-id:x\nack:a\ndestination:d\ncontent-length:1\n\nxy\0",
        "missing-nul",
    ),
    (
        b"MESSAGE\nsubscription:s1\nmessage-id:x\nack:a\ndestination:d\ncontent-length:-1\n\nx\0",
        "bad-content-length",
    ),
    (
        b"MESSAGE\nsubscription:s1\nmessage-id:x\nack:a\ndestination:d\ncontent-length:501\n\n"
        + b"x" * 501
        + b"\0",
        "body-too-large",
    ),
    (
        b"MESSAGE\nsubscription:s1\nmessage-id:x\nack:a\ndestination:"
        + b"d" * 2000
        + b"\ncontent-length:1\n\nx\0",
        "header-too-large",
    ),
    (
        b"MESSAGE\nsubscription:s1\nmessage-id:x\nack:a\ndestination\ncontent-length:1\n\nx\0",
        "header-without-colon",
    ),
]


@pytest.mark.parametrize(
    ("octets", "code"), FAULTS, ids=[code + str(index) for index, (_, code) in enumerate(FAULTS)]
)
def test_faults_within_a_run_are_the_codecs(octets: bytes, code: str) -> None:
    good = b"".join(encode(message(number), V12) for number in range(20))
    found, fault, in_runs = frames(*reading(V12), [good + octets])
    assert (len(found), fault) == (20, code)
    assert in_runs > 0


def test_blanks_around_content_length_are_the_codecs_too() -> None:
    good = b"".join(encode(message(number), V12) for number in range(9))
    found, fault, _ = frames(*reading(V12), [good + good.replace(b"content-length:5", b"content-length: 5 ")])
    assert (len(found), fault) == (18, None)


def test_forms_are_bounded_and_the_often_seen_win() -> None:
    decoder, reader = reading(V12, FrameLimits())
    for kinds in (20, 300):
        octets = b"".join(
            encode(message(number, **{f"h{number % kinds}": "x"}), V12) for number in range(900)
        )
        frames(decoder, reader, [octets])
        assert len(reader._forms) == MOST_FORMS
        assert len(reader._candidates) <= runs.MOST_CANDIDATES
    often = b"".join(encode(message(number, often="x"), V12) for number in range(runs.REPLACE_AFTER + 10))
    assert frames(decoder, reader, [often])[2] == 10


def test_headers_are_taken_apart_once_and_only_when_asked_for() -> None:
    form = Form(("subscription", "message-id", "a"), V12)
    found = Message("route", b"body", None, form, b"subscription:s1\nmessage-id:m\na:x\\cy\n")
    assert found.headers == {"subscription": "s1", "message-id": "m", "a": "x:y"}
    assert found.headers is found.headers


def test_cut_anywhere() -> None:
    octets = b"".join(encode(message(number, bytes(number)), V12) for number in range(30))
    expected = frames(*reading(V12, with_runs=False), [octets])[0]
    draw = random.Random(7)
    for _ in range(50):
        sizes = [draw.randint(1, 300) for _ in range(40)]
        assert frames(*reading(V12), cut(octets, sizes))[0] == expected
