"""Runs to MESSAGE frames: what a body must not do to the frame that it is in."""

from __future__ import annotations

import pytest

from stompbox.message import MEMO, Run, Shape
from stompbox.stomp.codec import Decoder
from stompbox.stomp.encode import Head, messages
from stompbox.stomp.frames import SERVER_COMMANDS, Frame
from stompbox.stomp.versions import V10, V12

FORGED = b"text\0\nMESSAGE\nfrom:bank\n\npay"


def decoded(bodies: list[bytes]) -> list[Frame]:
    """What a 1.0 client reads of messages whose sender gave no content-length."""
    run = Run(Shape({"destination": "/queue/q"}, has_length=False), bodies, first=998)
    decoder = Decoder(SERVER_COMMANDS)
    decoder.version = V10
    wire = messages(Head(V10, "0", 1, acks=True), run, 0, len(run))
    return [frame for frame in decoder.receive(wire) if isinstance(frame, Frame)]


@pytest.mark.parametrize("bodies", [[FORGED], [b"one", FORGED, b"three"]], ids=["alone", "among others"])
def test_a_nul_octet_ends_no_frame_of_a_1_0_client_early(bodies: list[bytes]) -> None:
    assert [frame.body for frame in decoded(bodies)] == bodies


def test_text_has_no_length_there() -> None:
    assert all("content-length" not in frame.headers for frame in decoded([b"one", b"two"]))


@pytest.mark.parametrize(("octets", "is_kept"), [(100, True), (60_000, False)])
def test_a_shape_keeps_no_second_copy_of_a_long_header(octets: int, *, is_kept: bool) -> None:
    shape = Shape({"destination": "/queue/q", "long": "x" * octets})
    run = Run(shape, [b"body"], first=7)
    head = Head(V12, "s", 3, acks=True)
    assert messages(head, run, 0, 1) == messages(head, run, 0, 1)
    assert b"\nlong:" + b"x" * octets + b"\n" in messages(head, run, 0, 1, redelivered=True)
    kept = [known for known in shape.cache.values() if isinstance(known, tuple)]
    assert bool(kept) == is_kept
    assert all(len(lines) <= MEMO for lines, _ in kept)
