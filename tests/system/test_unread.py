"""Clients that do not take what they are told: nothing more is read from them, the broker stays small, and who reads later gets all."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from tests.conftest import Serve, Served, end, memory_of, start_broker
from tests.system.plain import Plain
from tests.system.transports import KINDS, Rude, connected, listeners, message, wait_until

MOST = 60 << 20  # octets that are sent at the most; what the systems hold in between is a part of it
ROOM = 30 << 20  # octets by which the broker may grow meanwhile
LONG = b"r" * 8000

TOLD = {
    "receipts": b"SEND\ndestination:/topic/nobody\nreceipt:%b\n\n\0" % LONG,
    "errors": b"ABORT\ntransaction:none\nreceipt:%b\n\n\0" % LONG,
    "receipts of ACK frames": b"BEGIN\ntransaction:t\nreceipt:%b\n\n\0ABORT\ntransaction:t\nreceipt:%b\n\n\0"
    % (LONG, LONG),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("unread")
    # through `env`: one whose memory is looked at is a process of its own
    served = start_broker(folder, "--memory", "--no-admin", *listeners(folder), through=("env",))
    yield served
    end(served)
    assert "Traceback" not in served.log.read_text()


def flood(client: Rude, octets: bytes) -> bytes:
    """Sends, and reads nothing, until the broker reads no more: the rest of what was begun. Fails when it goes on reading."""
    client.stream.settimeout(2)
    sent, left = 0, octets
    while sent < MOST:
        try:
            gone = client.stream.send(left)
        except (TimeoutError, ssl.SSLWantWriteError):
            client.stream.settimeout(30)
            return left
        sent, left = sent + gone, left[gone:] or octets
    pytest.fail(f"the broker has read {sent} octets of somebody who reads nothing")


def then_reads(client: Rude, rest: bytes, until: bytes) -> bytes:
    """It sends the rest, and reads at last."""
    sending = Thread(target=client.raw, args=(rest,))
    sending.start()
    came = client.hear(until)
    sending.join()
    return came


@pytest.mark.parametrize("kind", ["tcp", "websocket"])
@pytest.mark.parametrize("sort", TOLD)
def test_who_does_not_read_is_not_read(served: Served, sort: str, kind: str) -> None:
    with connected(served, kind, receive_buffer=1 << 16) as client, connected(served, "tcp") as other:
        client.log_in("1.1")
        other.log_in()
        before = memory_of(served.process.pid)
        frame = TOLD[sort]
        rest = flood(client, message(frame) if kind == "websocket" else frame)
        assert memory_of(served.process.pid) - before < ROOM
        other.say(b"SEND\ndestination:/topic/x\nreceipt:1\n\n\0")
        assert b"RECEIPT" in other.hear(b"\0\n")
        last = b"SEND\ndestination:/topic/nobody\nreceipt:the last\n\n\0"
        came = then_reads(
            client, rest + (message(last) if kind == "websocket" else last), b"receipt-id:the last"
        )
        assert b"receipt-id:the last" in came


def test_the_same_over_tls(served: Served) -> None:
    with connected(served, "tls", receive_buffer=1 << 16) as client:
        client.log_in("1.1")
        before = memory_of(served.process.pid)
        client.stream.settimeout(2)
        sent = 0
        frames = TOLD["receipts"] * 10
        try:
            while sent < MOST:
                client.stream.sendall(frames)
                sent += len(frames)
        except TimeoutError:
            pass
        assert sent < MOST
        assert memory_of(served.process.pid) - before < ROOM


def test_pongs_that_nobody_reads(served: Served) -> None:
    with connected(served, "websocket", receive_buffer=1 << 16) as client:
        client.log_in("1.2")
        before = memory_of(served.process.pid)
        rest = flood(client, message(b"p" * 125, 9) * 100)
        assert memory_of(served.process.pid) - before < ROOM
        assert b"receipt-id:end" in then_reads(
            client, rest + message(b"SEND\ndestination:/topic/x\nreceipt:end\n\n\0"), b"receipt-id:end"
        )


@pytest.mark.parametrize("kind", KINDS)
def test_a_subscription_without_window_that_does_not_read(serve: Serve, tmp_path: Path, kind: str) -> None:
    """What it is not told stays in the queue; it is not cut off, and gets all when it reads."""
    served = serve("--memory", "--no-admin", *listeners(tmp_path / "pem", "maxConnectionMemory=8MiB"))
    body = b"x" * 10_000
    with connected(served, kind, receive_buffer=1 << 16) as client, Plain(served.port) as sender:
        client.log_in()
        client.say(
            b"SUBSCRIBE\nid:1\ndestination:/queue/much\nconsumer-window-size:-1\nack:client\nreceipt:s\n\n\0"
        )
        assert b"RECEIPT" in client.hear(b"\0\n")
        for number in range(3000):
            sender.send(
                "SEND", {"destination": "/queue/much", "persistent": "false"}, b"%04d" % number + body
            )
        sender.sync()
        came = client.hear(b"\n2999xxx")
        assert [int(found) for found in re.findall(rb"\n(\d{4})xxx", came)] == list(range(3000))
    assert "too-much-unread" not in served.log.read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_beyond_the_limit_it_is_cut_off(serve: Serve, tmp_path: Path, kind: str) -> None:
    """With a limit that is below what is held back for it: nobody waits for such a client."""
    served = serve("--memory", "--no-admin", *listeners(tmp_path / "pem", "maxConnectionMemory=100000"))
    with connected(served, kind, receive_buffer=1 << 16) as client, connected(served, "tcp") as other:
        client.log_in("1.1")
        other.log_in()
        client.stream.settimeout(10)
        try:
            for _ in range(4000):
                client.raw(message(TOLD["receipts"]) if kind == "websocket" else TOLD["receipts"])
                other.say(b"SEND\ndestination:/topic/x\nreceipt:1\n\n\0")
                # it is obeyed: input that waits would count too, and might be what is too much
                other.hear(b"\0\n")
                if "too-much-unread" in served.log.read_text():
                    break
        except TimeoutError:
            pass
        wait_until(lambda: "(too-much-unread), closed" in served.log.read_text(), "it is cut off")
    assert "Traceback" not in served.log.read_text()
