"""What the fuzzers check of the codec, and a mutation engine without dependencies.

`check` is the contract: whatever the bytes, FrameError is the only exception, the cuts do not matter, an unfinished frame
stays within the limits, and what was read can be written and read again. `Mutator` makes inputs out of the table of cases.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

from stompbox.errors import FrameError
from stompbox.stomp.codec import Decoder, FrameLimits, encode
from stompbox.stomp.frames import CLIENT_COMMANDS, RAW_COMMANDS, SERVER_COMMANDS, Frame
from stompbox.stomp.versions import V12, VERSIONS, Version
from tests.conformance.cases import CASES

LIMITS = FrameLimits(head=2000, headers=50, body=3000, before_login=1000)
TOKENS = (
    *(
        b"\0",
        b"\n",
        b"\r\n",
        b"\r",
        b"\n\n",
        b"\n\r\n",
        b":",
        b"\\",
        b"\\n",
        b"\\t",
        b"\\r",
        b"\\c",
        b"\\\\",
        b" ",
        b"\xff",
        b"\xc3\xa9",
    ),
    *(
        b"content-length:",
        b"content-length:0\n",
        b"content-length:1\n",
        b"content-length:99999\n",
        b"SEND\n",
        b"ACK\nid:1\n\n\0",
        b"a:b\n",
    ),
    *(b"MESSAGE\n", b"CONNECT\n", b"CONNECTED\n", b"DISCONNECT\n\n\0", b"x" * 1000, b"a:b\n" * 51),
)


class Broken(AssertionError):
    """The codec broke its contract; the text says how and for which bytes."""


def read(
    data: Sequence[bytes], version: Version, *, is_server: bool, logged_in: bool
) -> tuple[list[object], str | None, int]:
    """Events, code of the fault, octets kept."""
    decoder = Decoder(CLIENT_COMMANDS if is_server else SERVER_COMMANDS, LIMITS)
    decoder.version = version
    decoder.logged_in = logged_in
    events: list[object] = []
    most = LIMITS.head + 4 + LIMITS.body
    try:
        for piece in data:
            for event in decoder.receive(piece):
                events.append(event)
            if decoder.pending > most:
                raise Broken(f"{decoder.pending} octets kept of {data!r}; the limits allow {most}")
    except FrameError as fault:
        return events, fault.code, 0
    return events, None, decoder.pending


def check(
    data: bytes, cuts: Sequence[int], version: Version, *, is_server: bool, logged_in: bool
) -> list[object]:
    """Raises Broken, or whatever the codec should not have raised; returns the events."""
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    pieces = [data[start:stop] for start, stop in pairwise(ends)]
    whole = read([data], version, is_server=is_server, logged_in=logged_in)
    cut = read(pieces, version, is_server=is_server, logged_in=logged_in)
    if whole != cut:
        raise Broken(f"{data!r} cut at {ends} in {version}: {cut} instead of {whole}")
    for event in whole[0]:
        _check_is_written(event, version, is_server=is_server)
    return whole[0]


def _check_is_written(event: object, version: Version, *, is_server: bool) -> None:
    if not isinstance(event, Frame):
        raise Broken(f"{event!r} is no frame")
    has_final_cr = any(text.endswith("\r") for pair in event.headers.items() for text in pair)
    if event.command in RAW_COMMANDS or (has_final_cr and version is not V12):
        return  # no form, or none that means the same
    decoder = Decoder(CLIENT_COMMANDS if is_server else SERVER_COMMANDS)
    decoder.version = version
    decoder.logged_in = True
    again = list(decoder.receive(encode(event, version)))
    if again != [event]:
        raise Broken(f"{event!r} was written, and read as {again!r} in {version}")


class Mutator:
    """Inputs from a seed: cases joined and damaged. The same seed gives the same inputs."""

    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self.accepted = [
            case.data for case in CASES if case.sender == "client" and case.error is None and not case.pending
        ]
        self.others = [case.data for case in CASES]

    def next(self) -> tuple[bytes, list[int], Version, bool, bool]:
        source = self.source
        parts = [
            source.choice(self.accepted if source.random() < 0.8 else self.others)
            for _ in range(source.randrange(1, 5))
        ]
        data = bytearray(b"".join(parts))
        for _ in range(source.randrange(0, 4)):
            self._damage(data)
        cuts = [source.randrange(len(data) + 1) for _ in range(source.choice((1, 3, len(data))))]
        return (
            bytes(data),
            cuts,
            source.choice(list(VERSIONS.values())),
            source.random() < 0.9,
            source.random() < 0.7,
        )

    def _damage(self, data: bytearray) -> None:
        source = self.source
        at = source.randrange(len(data) + 1)
        match source.randrange(5):
            case 0:
                data[at:at] = source.choice(TOKENS)
            case 1:
                del data[at : at + source.randrange(1, 8)]
            case 2:
                data[at : at + 1] = bytes([source.randrange(256)])
            case 3:
                data[at:at] = data[at : at + source.randrange(1, 40)]
            case _:
                data[at : at + source.randrange(1, 4)] = source.choice(TOKENS)
