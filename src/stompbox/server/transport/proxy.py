"""The PROXY protocol, versions 1 and 2: what a balancer in front of a listener says of the client behind it.

    PROXY TCP4 192.0.2.7 198.51.100.1 50000 61613 CR LF        version 1; also TCP6, and UNKNOWN, which says nothing
    CR LF CR LF NUL CR LF QUIT LF, version and command, family, length, addresses        version 2, binary

Reads bytes, knows no socket. A listener with `proxyProtocolEnabled` takes nobody without it (haproxy, proxy-protocol.txt, section 2).
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from stompbox.errors import FrameError

_LINE: Final = b"PROXY "
_LONGEST: Final = 107  # octets of a version 1 line, its end included
_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_FIXED: Final = 16  # octets of version 2 before the addresses
_LOCAL, _PROXY = 0x20, 0x21  # version 2 and command: the balancer's own connection, or somebody's
_FAMILIES: Final = {0x1: (IPv4Address, 4), 0x2: (IPv6Address, 16)}


def read(data: bytes) -> tuple[str, int] | None:
    """The client's address (empty: nothing is said of it) and where what it sent begins; None: more octets are needed.
    Raises FrameError."""
    if _LINE.startswith(data[: len(_LINE)]) or data.startswith(_LINE):
        return _line(data)
    if _SIGNATURE.startswith(data[: len(_SIGNATURE)]) or data.startswith(_SIGNATURE):
        return _binary(data)
    raise _broken("the connection does not begin with a PROXY header")


def _line(data: bytes) -> tuple[str, int] | None:
    end = data.find(b"\r\n", 0, _LONGEST)
    if end < 0:
        if len(data) >= _LONGEST:
            raise _broken("its line has no end")
        return None
    words = data[:end].decode("ascii", "replace").split(" ")
    if words[1] == "UNKNOWN":
        return "", end + 2
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
        raise _broken(f"{' '.join(words)[:80]!r} is not PROXY, TCP4 or TCP6, two addresses and two ports")
    try:
        return str(ip_address(words[2])), end + 2
    except ValueError:
        raise _broken(f"{words[2][:80]!r} is no address") from None


def _binary(data: bytes) -> tuple[str, int] | None:
    if len(data) < _FIXED:
        return None
    command, family = data[12], data[13] >> 4
    stop = _FIXED + int.from_bytes(data[14:16], "big")
    if command not in (_LOCAL, _PROXY):
        raise _broken(f"version and command are {command:#x}")
    if len(data) < stop:
        return None
    known = _FAMILIES.get(family)
    if command == _LOCAL or known is None:
        return "", stop
    kind, size = known
    if stop - _FIXED < 2 * size + 4:
        raise _broken("it is too short for its addresses")
    return str(kind(data[_FIXED : _FIXED + size])), stop


def _broken(problem: str) -> FrameError:
    return FrameError("bad-proxy-header", f"PROXY header: {problem} (the listener has proxyProtocolEnabled)")
