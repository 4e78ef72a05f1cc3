"""The PROXY header, octet by octet."""

from __future__ import annotations

import re

import pytest

from stompbox.errors import FrameError
from stompbox.server.transport.proxy import read

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
V4 = SIGNATURE + b"\x21\x11\0\x0c" + bytes([192, 0, 2, 7, 198, 51, 100, 1]) + b"\xc3\x50\xf0\xad"
V6 = SIGNATURE + b"\x21\x21\0\x24" + bytes(15) + b"\1" + bytes(15) + b"\2" + b"\xc3\x50\xf0\xad"

HEADERS = [
    ("version 1, IPv4", b"PROXY TCP4 192.0.2.7 198.51.100.1 50000 61613\r\n", "192.0.2.7"),
    ("version 1, IPv6", b"PROXY TCP6 2001:db8::7 ::1 50000 61613\r\n", "2001:db8::7"),
    ("version 1, unknown", b"PROXY UNKNOWN\r\n", ""),
    ("version 1, unknown with words", b"PROXY UNKNOWN ffff:: ffff:: 1 2\r\n", ""),
    ("version 2, IPv4", V4, "192.0.2.7"),
    ("version 2, IPv6", V6, "::1"),
    ("version 2, with more behind the addresses", V4[:14] + b"\0\x0f" + V4[16:] + b"\x03\0\0", "192.0.2.7"),
    ("version 2, the balancer's own", SIGNATURE + b"\x20\0\0\0", ""),
    ("version 2, a Unix socket", SIGNATURE + b"\x21\x31\0\x02ab", ""),
]
BROKEN = [
    (b"CONNECT\n\n\0", "does not begin"),
    (b"PROXY TCP4 here there 1 2\r\n", "'here' is no address"),
    (b"PROXY UDP4 192.0.2.7 198.51.100.1 1 2\r\n", "is not PROXY"),
    (b"PROXY TCP4 192.0.2.7\r\n", "is not PROXY"),
    (b"PROXY TCP4 " + b"1" * 200, "no end"),
    (SIGNATURE + b"\x11\x11\0\0", "version and command are 0x11"),
    (SIGNATURE + b"\x21\x11\0\x04abcd", "too short"),
]


@pytest.mark.parametrize(("data", "peer"), [row[1:] for row in HEADERS], ids=[row[0] for row in HEADERS])
def test_says_whose_connection_it_is(data: bytes, peer: str) -> None:
    assert read(data + b"CONNECT\n") == (peer, len(data))
    assert [read(data[:stop]) for stop in range(len(data))] == [None] * len(data), "in pieces"


@pytest.mark.parametrize(("data", "problem"), BROKEN)
def test_what_is_none(data: bytes, problem: str) -> None:
    with pytest.raises(FrameError, match=re.escape(problem)) as refused:
        read(data)
    assert refused.value.code == "bad-proxy-header"
