"""The table of framing cases, played against a running broker: TCP and WebSocket, whole and in pieces, in each version."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from stompbox.stomp.frames import Frame
from tests.conformance.cases import ROWS, Case, title
from tests.conformance.wire import TRANSPORTS, Answer, Client, connected

PLAYABLE = [row for row in ROWS if row[0].is_playable]
ACCEPTED = [row for row in PLAYABLE if row[0].error is None]
REFUSED = [row for row in PLAYABLE if row[0].error is not None]
LOGINS = [row[0] for row in ROWS if row[0].is_login and row[0].sender == "client"]

numbers = count()
over_each_transport = pytest.mark.parametrize("transport", TRANSPORTS)


@pytest.fixture(scope="module")
def bystander(broker: tuple[str, int]) -> Iterator[Client]:
    """A connection that has nothing to do with the faults of others."""
    with connected(broker, "tcp") as client:
        client.log_in("1.2")
        client.subscribe("/queue/framing.bystander")
        yield client


def is_unharmed(bystander: Client) -> bool:
    bystander.say(b"SEND\ndestination:/queue/framing.bystander\n\nstill here\0")
    return bystander.expect("MESSAGE").body == b"still here"


def line_of(name: str, value: str, version: str) -> bytes:
    """A header line as STOMP wants it: the escapes of the version, and no octet that would end the line."""
    return f"{_form(name, version)}:{_form(value, version)}".encode()


def _form(text: str, version: str) -> str:
    if version != "1.0":
        text = text.replace("\\", "\\\\").replace(":", "\\c")
    if version == "1.2":
        text = text.replace("\r", "\\r")
    elif text.endswith("\r"):
        text = text[:-1] + ("\\r" if version == "1.0" else "\\\\r")
    return text.replace("\n", "\\n")


def assert_is_message_of(answer: Answer, frame: Frame, version: str) -> None:
    assert answer.body == frame.body
    for name, value in frame.headers.items():
        if name != "content-length":
            assert line_of(name, value, version) in answer.lines
    assert len({line.partition(b":")[0] for line in answer.lines}) == len(answer.lines), "a header came twice"
    if "content-length" in frame.headers or version != "1.0":
        assert answer.value("content-length") == str(len(frame.body))
    else:  # a 1.0 client of a JMS broker takes content-length as the sign of a BytesMessage
        assert answer.value("content-length") is None


def moved(case: Case) -> tuple[bytes, list[Frame], str]:
    """The case with a destination that no other test uses."""
    destination = f"/queue/framing.{next(numbers)}"
    frames = [
        Frame(frame.command, {**frame.headers, "destination": destination}, frame.body)
        for frame in case.frames
    ]
    return case.data.replace(b"/queue/a", destination.encode()), frames, destination


@over_each_transport
@pytest.mark.parametrize("row", ACCEPTED, ids=title)
def test_accepted(broker: tuple[str, int], row: tuple[Case, str], transport: str) -> None:
    case, version = row
    data, frames, destination = moved(case)
    with connected(broker, transport) as client:
        client.log_in(version)
        client.subscribe(destination)
        client.say(data)
        client.say(f"SEND\ndestination:{destination}\n\nthe end of the case\0".encode())
        for frame in frames:
            assert_is_message_of(client.expect("MESSAGE"), frame, version)
        assert client.expect("MESSAGE").body == b"the end of the case"


@over_each_transport
@pytest.mark.parametrize("row", REFUSED, ids=title)
def test_refused(broker: tuple[str, int], bystander: Client, row: tuple[Case, str], transport: str) -> None:
    """An ERROR that says why, with its code, then the close, in every version; others do not notice."""
    case, version = row
    data, frames, destination = moved(case)
    with connected(broker, transport) as client:
        client.log_in(version)
        client.say(data)
        assert_refused(client, case)
    assert is_unharmed(bystander)
    if not frames:
        return
    with connected(broker, transport) as client:  # what came before the fault has taken place
        client.log_in(version)
        client.subscribe(destination)
        for frame in frames:
            assert_is_message_of(client.expect("MESSAGE"), frame, version)


def assert_refused(client: Client, case: Case) -> None:
    error = client.expect("ERROR")
    assert error.value("code") == case.error
    assert error.value("message")
    assert error.value("content-length") == str(len(error.body))
    assert client.hear() is None, "something came after the ERROR"


@over_each_transport
@pytest.mark.parametrize("case", LOGINS, ids=lambda case: case.name)
def test_login(broker: tuple[str, int], case: Case, transport: str) -> None:
    with connected(broker, transport) as client:
        client.say(case.data)
        if case.error is not None:
            assert_refused(client, case)
            return
        answer = client.expect("CONNECTED")
        assert answer.value("version") == ("1.2" if "accept-version" in case.frames[0].headers else "1.0")


AT_FAULT = [
    # STOMP 1.2, ERROR: its own example
    (b"MESSAGE\ndestined:/queue/a\nreceipt:r\n\nHello queue a!\0", "unknown-command"),
    (b"SEND\nreceipt:r\nreceipt:2\ndestination\n\n\0", "header-without-colon"),
    (b"SEND\n:empty\r\nreceipt:r\r\n\r\n\0", "empty-header-name"),
    (b"SEND\ndestination:/queue/a\ncontent-length:many\nreceipt:r\n\n\0", "bad-content-length"),
    (b"SEND\ndestination:/queue/a\nreceipt:r\ncontent-length:1\n\nmore\0", "missing-nul"),
    # which comes in pieces
    (
        b"SEND\ndestination:/queue/a\nreceipt:r\ncontent-length:200000\n\n%b\0" % (b"x" * 200001),
        "missing-nul",
    ),
    (b"SEND\ndestination:/queue/a\nreceipt:r\ncontent-length:999999999999\n\n", "body-too-large"),
    (
        b"SEND\ndestination:/queue/a\nreceipt:r\n%b\n\0"
        % b"".join([b"h%d:\n" % number for number in range(1000)]),
        "too-many-headers",
    ),
    (b"DISCONNECT\nreceipt:r\n\0", "nul-in-header"),
]


@over_each_transport
@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_a_faulty_frame_is_named_by_its_receipt(
    broker: tuple[str, int], transport: str, version: str
) -> None:
    """STOMP 1.2, ERROR: the server SHOULD set receipt-id when the frame that is at fault asked for a receipt."""
    for data, code in AT_FAULT:
        if transport in ("tcp, byte by byte", "websocket, in pieces") and len(data) > 10_000:
            continue  # 200,000 writes would prove nothing more
        with connected(broker, transport) as client:
            client.log_in(version)
            client.say(data)
            error = client.expect("ERROR")
            assert (error.value("code"), error.value("receipt-id")) == (code, "r")
            assert client.hear() is None


def test_a_receipt_that_cannot_be_read_is_not_repeated(broker: tuple[str, int]) -> None:
    for receipt in (b"\\t", b"\xff"):
        with connected(broker, "tcp") as client:
            client.log_in("1.2")
            client.say(b"SEND\ndestination:/queue/a\nreceipt:%b\n\n\0" % receipt)
            assert client.expect("ERROR").value("receipt-id") is None


def test_cases_are_played_at_all() -> None:
    """So that a slip in `is_playable` cannot empty this file."""
    assert (
        {version for _, version in ACCEPTED} == {version for _, version in REFUSED} == {"1.0", "1.1", "1.2"}
    )
    assert len(ACCEPTED) >= 50
    assert len(REFUSED) >= 100
    assert len(LOGINS) >= 8
