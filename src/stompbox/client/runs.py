"""Runs of frames that look alike, read by one compiled pattern: MESSAGE frames with the same header names, and RECEIPTs.

The careful codec takes a frame apart header by header. A broker sends thousands that differ only in values, so the names of
a head, once seen some times, become a *form*: a pattern that matches the whole head, finds what the client needs at once
(subscription, content-length, the acknowledgement id) and leaves the rest for whoever asks.

Whatever a form does not match for certain (other names, CR LF, a bad escape, octets that are not UTF-8, an unfinished
frame, anything beyond a limit) is left to the codec, which accepts or refuses it: this file never refuses and never repairs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from stompbox.client.message import Message
from stompbox.stomp.codec import FrameLimits, escape, unescape
from stompbox.stomp.frames import Frame
from stompbox.stomp.versions import Version

MOST_FORMS: Final = 16  # tried one after another: more would cost what they save
LEARN_AFTER: Final = 4  # a form is worth its compilation (some 0.3 ms) when it comes again
REPLACE_AFTER: Final = 1000  # and to throw another one out, when it comes often
MOST_CANDIDATES: Final = 256  # header names seen and counted, not learned

_VALUE: Final = rb"[^\n\r\0]*"
_RECEIPTS: Final = re.compile(rb"(?:RECEIPT\nreceipt-id:[0-9]{1,18}\n\n\0\n*+)++")
_RECEIPT_ID: Final = re.compile(rb":([0-9]+)")
_M, _R = b"MR"


class MessageRun:
    """Consecutive messages of one subscription."""

    __slots__ = ("messages", "route", "size")

    def __init__(self, route: Any, messages: list[Message], size: int) -> None:
        self.route = route
        self.messages = messages
        self.size = size  # octets of the bodies

    def __repr__(self) -> str:
        return f"<MessageRun {len(self.messages)} messages, {self.size} octets>"


class ReceiptRun:
    """The numbers that consecutive RECEIPT frames carry."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers


class Form:
    """The heads of MESSAGE frames with these header names in this order."""

    __slots__ = ("_values", "_version", "groups", "match", "names")

    def __init__(self, names: tuple[str, ...], version: Version) -> None:
        parts = []
        groups: dict[str, int] = {}
        for name in names:
            if name in ("subscription", "content-length", ack_header(version)):
                groups[name] = len(groups) + 2
                value = rb"([0-9]{1,9})" if name == "content-length" else b"(" + _VALUE + b")"
            else:
                value = _VALUE
            parts.append(re.escape(escape(name, version, is_name=True).encode()) + b":" + value + b"\n")
        self.names = names
        self._version = version
        self._values = re.compile(
            "".join(re.escape(escape(name, version, is_name=True)) + ":([^\n]*)\n" for name in names)
        )
        self.match = re.compile(b"\n*+MESSAGE\n(" + b"".join(parts) + b")\n").match
        # which groups hold head, subscription, content-length and ack id; 0 (the whole match) stands for: there is none
        self.groups = (
            1,
            groups["subscription"],
            groups.get("content-length", 0),
            groups.get(ack_header(version), 0),
        )

    def headers(self, head: bytes) -> dict[str, str]:
        found = self._values.fullmatch(head.decode())
        assert found is not None  # the octets matched the same pattern
        if b"\\" not in head:
            return dict(zip(self.names, found.groups(), strict=True))
        values = [unescape(value.encode(), self._version, "MESSAGE").decode() for value in found.groups()]
        return dict(zip(self.names, values, strict=True))


def ack_header(version: Version) -> str:
    """The header of a MESSAGE that its ACK repeats (STOMP 1.2, ACK: the `ack` header; before that message-id)."""
    return "ack" if version.sends_ack_id else "message-id"


class Reader:
    """Reads runs for one connection, once its version is known. `routes` maps the subscription header as it comes to its route."""

    def __init__(self, version: Version, routes: Mapping[bytes, Any], limits: FrameLimits) -> None:
        self.routes = routes
        self.limits = limits
        self.version = version
        self._forms: list[Form] = []
        self._candidates: dict[tuple[str, ...], int] = {}
        letters = b"".join(b"\\\\" if letter == b"\\" else letter for letter in version.escapes)
        self._is_escaped = re.compile(rb"[^\\]*+(?:\\[" + letters + rb"][^\\]*+)*+").fullmatch

    def read(self, buffer: bytes, position: int) -> tuple[ReceiptRun | MessageRun, int] | None:
        octet = buffer[position]
        if octet == _R:
            return self._receipts(buffer, position)
        if octet != _M:
            return None
        for index, form in enumerate(self._forms):
            if form.match(buffer, position):
                if index:
                    self._forms.insert(0, self._forms.pop(index))
                return self._messages(form, buffer, position)
        return None

    def learn(self, head: bytes, frame: Frame) -> None:
        """Part of the codec's RunReader, which calls it for SEND frames only: a client reads none."""

    def count(self, headers: dict[str, str]) -> None:
        """Told of each MESSAGE that was read the careful way: names that come often become a form."""
        names = tuple(headers)
        seen = self._candidates.get(names, 0) + 1
        is_full = len(self._forms) >= MOST_FORMS
        if seen < (REPLACE_AFTER if is_full else LEARN_AFTER):
            if seen == 1 and len(self._candidates) >= MOST_CANDIDATES:
                self._candidates.clear()
            self._candidates[names] = seen
            return
        self._candidates[names] = 0
        if "subscription" in headers and all(form.names != names for form in self._forms):
            if is_full:
                self._forms.pop()
            self._forms.insert(0, Form(names, self.version))

    def _receipts(self, buffer: bytes, position: int) -> tuple[ReceiptRun, int] | None:
        found = _RECEIPTS.match(buffer, position)
        if found is None:
            return None
        return ReceiptRun([*map(int, _RECEIPT_ID.findall(buffer, position, found.end()))]), found.end()

    def _messages(self, form: Form, buffer: bytes, position: int) -> tuple[MessageRun, int] | None:
        """All messages of one route from `position` on that are whole and look like `form`."""
        match, groups = form.match, form.groups
        counted = groups[2] != 0
        is_acknowledged = groups[3] != 0
        most_head, most_body, end = self.limits.head, self.limits.body, len(buffer)
        messages: list[Message] = []
        size, wanted, route = 0, None, None
        while (found := match(buffer, position)) is not None:
            head, subscription, length, ack_id = found.group(*groups)
            if subscription != wanted:
                if wanted is not None:
                    break
                route, wanted = self.routes.get(subscription), subscription
                if route is None:
                    break
            start = found.end()
            stop = start + int(length) if counted else buffer.find(0, start)
            if not start <= stop < end or buffer[stop] or stop - start > most_body or len(head) > most_head:
                break
            if (b"\\" in head or not head.isascii()) and not self._is_sound(head):
                break
            messages.append(
                Message(route, buffer[start:stop], ack_id if is_acknowledged else None, form, head)
            )
            size += stop - start
            position = stop + 1
        return (MessageRun(route, messages, size), position) if messages else None

    def _is_sound(self, head: bytes) -> bool:
        if not head.isascii():
            try:
                head.decode()
            except UnicodeDecodeError:
                return False
        return b"\\" not in head or self._is_escaped(head) is not None
