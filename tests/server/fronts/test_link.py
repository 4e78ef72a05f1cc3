"""What stands on the link: records cut anywhere are read as they were written, and what is none is an error with a name."""

from __future__ import annotations

import pytest

from stompbox.config import parse_listener
from stompbox.errors import FrameError, IllegalFrame, LinkError, PeerError, Refused, StompboxError, StoreError
from stompbox.server.fronts import link
from stompbox.server.fronts.link import COUNT, SIGNS, Kind
from stompbox.server.fronts.records import HEAD, Records

WRITTEN = [
    (Kind.ARRIVED, 1, b"{}"),
    (Kind.DATA, 1, b"x" * 300),
    (Kind.GONE, 1, b""),
    (Kind.BEAT, 0, b"12345"),
]


def octets() -> bytes:
    return b"".join([HEAD.pack(kind, number, len(data)) + data for kind, number, data in WRITTEN])


@pytest.mark.parametrize("size", [1, 2, 7, 13, 14, 100, 10_000])
def test_records_are_read_however_they_come(size: int) -> None:
    records, whole = Records(1000), octets()
    found = [record for at in range(0, len(whole), size) for record in records.read(whole[at : at + size])]
    assert found == WRITTEN


def test_a_record_that_is_too_long_is_refused_at_its_head() -> None:
    with pytest.raises(LinkError, match="a record of 1001 octets"):
        list(Records(1000).read(HEAD.pack(Kind.DATA, 1, 1001)))
    assert list(Records(0).read(HEAD.pack(Kind.DATA, 1, 1 << 30))) == []


@pytest.mark.parametrize(
    "error",
    [
        PeerError("bad-handshake", "a"),
        FrameError("too-much-before-login", "b"),
        IllegalFrame("handshake-timeout", "c", closes=True),
        Refused("too-many-connections", "d", closes=True),
        Refused("origin-refused", "e"),
    ],
    ids=lambda error: error.code,
)
def test_errors_are_on_the_other_side_what_they_are_here(error: StompboxError) -> None:
    found = link.raised(link.read_as(link.Fault, link.packed(link.told(error))))
    assert (type(found), found.code, found.message) == (type(error), error.code, error.message)
    assert getattr(found, "closes", None) == getattr(error, "closes", None)


def test_no_other_errors_come_from_a_front() -> None:
    with pytest.raises(LinkError):
        link.raised(link.Fault("StoreError", "a", "b", closes=True))
    assert link.told(StoreError("store-failed", "x")).kind == "PeerError"


@pytest.mark.parametrize(
    "octets", [b"", b"{", b"[]", b'{"listener":"x","peer":"y"}', b'{"listener":1}', b"\xff"]
)
def test_what_is_none_is_refused(octets: bytes) -> None:
    with pytest.raises(LinkError):
        link.read_as(link.Arrival, octets)


def test_numbers_that_are_none_are_refused() -> None:
    assert link.numbers(SIGNS, SIGNS.pack(-1, 5, 7)) == (-1, 5, 7)
    for wrong in (b"", b"123", b"12345"):
        with pytest.raises(LinkError):
            link.numbers(COUNT, wrong)


def test_settings_are_what_they_were() -> None:
    listener = parse_listener("ssl://127.0.0.1:1?keyStorePath=x;heartBeat=1,2;webSocketPath=/a,/b")
    settings = link.Settings("front 1", [link.Bound(listener, [5, 6])], 3, "INFO")
    assert link.settings_in(link.settled(settings)) == settings
