"""What the application gives to be sent, checked and encoded: one SEND frame as bytes, quickly.

The codec escapes every header one by one; here all headers of a frame are written in one go and looked over together, and
only a frame that needs escapes, or has a value that is no text, goes the careful way. Wrong types are a UsageError that
names the header. Which receipt or transaction a SEND carries is the caller's (`own`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from typing import Any, Final, Never, TypeAlias

from stompbox.errors import UsageError
from stompbox.stomp.codec import Decoder, FrameLimits, encode, encode_headers
from stompbox.stomp.frames import CLIENT_COMMANDS, Frame
from stompbox.stomp.versions import V10, Version

HeaderValue: TypeAlias = str | int | float | bool
Headers: TypeAlias = Mapping[str, HeaderValue]
Body: TypeAlias = bytes | bytearray | memoryview | str | dict[str, Any] | list[Any]

# What the client itself writes into a SEND, and what to use instead of the header
RESERVED: Final = {
    "destination": "the argument destination",
    "receipt": "confirm=True or a publisher",
    "transaction": "client.transaction()",
    "content-length": "nothing: it is counted",
}
_RESERVED: Final = frozenset(RESERVED)
PIECE: Final = 64 * 1024  # octets of frames that are made in one go
_PLAIN: Final = frozenset((str, int, float))


def encode_send(
    version: Version,
    destination: str,
    body: Body,
    headers: Headers | None,
    own: str = "",
    *,
    text_length: bool = False,
) -> bytes:
    """A SEND frame. `own` are header lines that the client adds, already encoded, each with its LF.

    A str body becomes UTF-8 with content-type text/plain unless `headers` say otherwise, and has no content-length unless it
    holds a NUL or `text_length` is true: brokers that tell text from bytes take content-length for bytes. A dict or a list
    becomes JSON, with content-type application/json.
    """
    if type(body) is bytes:
        own = f"{own}content-length:{len(body)}\n"
    else:
        body, more = _octets(body, headers, text_length=text_length)
        own += more
    if type(destination) is not str or not destination:
        raise UsageError(
            "bad-destination", f"destination must be a str that is not empty, not {destination!r}"
        )
    if headers:
        lines = _lines(destination, headers, version)
    else:
        if headers is not None and not isinstance(headers, Mapping):
            raise _wrong_headers(headers)
        lines = f"destination:{destination}\n"
        if not _is_plain(lines, 1):
            lines = encode_lines({"destination": destination}, version)
    try:
        return b"%b%b\0\n" % (f"SEND\n{lines}{own}\n".encode(), body)
    except UnicodeEncodeError as error:
        raise UsageError(
            "bad-header", f"a header or the destination cannot be written in UTF-8: {error}"
        ) from None


def encode_sends(
    version: Version,
    destination: str,
    bodies: Sequence[Body],
    headers: Headers | None,
    numbers: Iterator[int],
    *,
    text_length: bool = False,
) -> list[tuple[int, bytes]]:
    """SEND frames of one destination with the same headers, each with a receipt: (its number, the frame).

    Not all of the bodies: as many as make up PIECE octets, at least one. The lines that are the same are written once.
    """
    first = encode_send(version, destination, b"", headers)
    head = first[: -len(b"content-length:0\n\n\0\n")]
    found, size = list[tuple[int, bytes]](), 0
    for body in bodies:
        number = next(numbers)
        if type(body) is bytes:
            frame = b"%breceipt:%d\ncontent-length:%d\n\n%b\0\n" % (head, number, len(body), body)
        else:
            own = f"receipt:{number}\n"
            frame = encode_send(version, destination, body, headers, own, text_length=text_length)
        found.append((number, frame))
        size += len(frame)
        if size >= PIECE:
            break
    return found


def _lines(destination: str, headers: Headers, version: Version) -> str:
    try:
        "".join(headers)  # names are str, or this is a TypeError
        types = {*map(type, headers.values())}
        fields = [f"{name}:{value}\n" for name, value in headers.items()]
    except (AttributeError, TypeError):
        raise _wrong_headers(headers) from None
    if not _RESERVED.isdisjoint(headers):
        raise _reserved(headers)
    if types <= _PLAIN and "" not in headers:
        lines = f"destination:{destination}\n{''.join(fields)}"
        if _is_plain(lines, len(fields) + 1):
            return lines
        if (escaped := _escaped(destination, headers, version)) is not None:
            return escaped
    return encode_lines({"destination": destination, **header_texts(headers)}, version)


def _is_plain(lines: str, count: int) -> bool:
    """Does nothing in these lines need an escape, in any version?"""
    return (
        lines.count(":") == count
        and lines.count("\n") == count
        and "\\" not in lines
        and "\r" not in lines
        and "\0" not in lines
    )


def _escaped(destination: str, headers: Headers, version: Version) -> str | None:
    """The lines with their escapes, all headers in one go; None where one by one is needed: 1.0, a CR in 1.1, a NUL.

    NULs, which no header may hold, stand for the colons and line ends that are not to be escaped.
    """
    text = f"destination\0\0{destination}\0" + "".join(
        [f"{name}\0\0{value}\0" for name, value in headers.items()]
    )
    if (
        version is V10
        or text.count("\0") != 3 * len(headers) + 3
        or ("\r" in text and b"r" not in version.escapes)
    ):
        return None
    text = text.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n").replace(":", "\\c")
    return text.replace("\0\0", ":").replace("\0", "\n")


def encode_lines(headers: Mapping[str, str], version: Version) -> str:
    """Header lines escaped for `version`. What the version has no form for is refused here: the codec would spell it out."""
    for name, value in headers.items():
        if "\0" in name or "\0" in value:
            raise UsageError("bad-header", f"header {name!r} holds a NUL, for which STOMP has no form")
        if version is V10 and (":" in name or "\n" in name + value or value.endswith("\r")):
            raise UsageError(
                "bad-header",
                f"header {name!r} holds a line end (or its name a colon), for which STOMP 1.0 has no form",
            )
    try:
        return encode_headers(
            {name: value.encode().decode() for name, value in headers.items()}, version
        ).decode()
    except UnicodeEncodeError as error:
        raise UsageError("bad-header", f"a header cannot be written in UTF-8: {error}") from None


def header_texts(headers: Headers | None) -> dict[str, str]:
    """Every value as the text that goes on the wire."""
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise _wrong_headers(headers)
    return {name: header_text(name, value) for name, value in headers.items()}


def header_text(name: object, value: object) -> str:
    if not isinstance(name, str) or not name:
        raise UsageError("bad-header", f"header name {name!r} must be a str that is not empty")
    if isinstance(value, bool):
        return "true" if value else "false"  # as STOMP spells them: persistent:true
    if isinstance(value, str):
        return str.__str__(value)  # of a str Enum the text, not the member's name
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, Real):  # numpy's numbers are
        return str(float(value)) if isinstance(value, float) else str(value)
    raise UsageError(
        "bad-header",
        f"header {name!r} has a value of type {type(value).__name__}; allowed are str, int, float and bool",
    )


def _wrong_headers(headers: object) -> UsageError:
    if isinstance(headers, Mapping):
        for name, value in headers.items():
            header_text(name, value)
    return UsageError(
        "bad-header", f"headers must be a mapping of str to str or number, not {type(headers).__name__}"
    )


def _reserved(headers: Headers) -> UsageError:
    name = next(name for name in headers if name in _RESERVED)
    return UsageError("reserved-header", f"header {name!r} is written by the client; use {RESERVED[name]}")


def _octets(body: Body, headers: Headers | None, *, text_length: bool) -> tuple[bytes, str]:
    """The body as octets and the header lines that follow from its type."""
    if isinstance(body, str):
        try:
            octets = body.encode()
        except UnicodeEncodeError as error:
            raise UsageError("bad-body", f"body cannot be written in UTF-8: {error}") from None
        own = "" if headers and "content-type" in headers else "content-type:text/plain\n"
        return octets, own + (f"content-length:{len(octets)}\n" if text_length or b"\0" in octets else "")
    if isinstance(body, bytes | bytearray | memoryview):
        octets = bytes(body)
        return octets, f"content-length:{len(octets)}\n"
    if isinstance(body, dict | list):
        try:
            octets = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError
            raise UsageError("bad-body", f"body cannot be written as JSON: {error}") from None
        own = "" if headers and "content-type" in headers else "content-type:application/json\n"
        return octets, f"{own}content-length:{len(octets)}\n"
    raise UsageError(
        "bad-body", f"body must be bytes, str, or a dict or list for JSON, not {type(body).__name__}"
    )


def decode_frame(octets: bytes, version: Version) -> Frame:
    """An own frame read back: what a report about it shows."""
    decoder: Decoder[Never] = Decoder(CLIENT_COMMANDS, FrameLimits(*[len(octets)] * 5))
    decoder.version = version
    found = next(iter(decoder.receive(octets)))
    assert isinstance(found, Frame)
    return found


def recode(octets: bytes, old: Version, new: Version) -> bytes:
    """An own frame once more, for a connection that speaks another version than the one it was made for."""
    return octets if old is new else encode(decode_frame(octets, old), new)
