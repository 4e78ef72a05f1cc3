"""Large messages against a broker in its own process: memory, vanishing senders and consumers, crashes, limits, on each transport."""

from __future__ import annotations

import hashlib
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from stompbox import blocking
from stompbox.store.chunks import decode, has_handles
from tests.conftest import Serve, Served, memory_of
from tests.system.large import (
    BLOCK,
    MIB,
    WITHIN,
    Client,
    Tcp,
    begin,
    blocks,
    digest_of,
    send,
    stored,
    tcp,
    tls,
    web,
)
from tests.system.plain import Plain
from tests.system.test_disk import broken, wait_until_good

Opening = Callable[..., AbstractContextManager[Client]]

SIZE = 64 * MIB
MOST = 40 * MIB  # of memory that it may take: two thirds of the body


def listen(options: str = "") -> tuple[str, str]:
    return "--listen", f"tcp://127.0.0.1:0?{options}"


@pytest.fixture(scope="session")
def key_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that nobody has signed, with its key."""
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-keyout",
        str(file),
    ]
    chain = subprocess.run(made, check=True, capture_output=True, text=True).stdout
    file.write_text(file.read_text() + chain)
    return file


def empty(data: Path) -> None:
    """Waits until no large body is in the store. While it has nothing else to do it deletes them."""
    deadline = time.monotonic() + WITHIN
    while stored(data) != (0, 0):
        assert time.monotonic() < deadline, f"{stored(data)} left"


# Memory


@pytest.mark.parametrize("opening", [tcp, tls, web])
@pytest.mark.parametrize("place", ["--data=data", "--memory"])
@pytest.mark.usefixtures("own_process")
def test_a_body_is_never_whole_in_memory(serve: Serve, opening: Opening, place: str, key_store: Path) -> None:
    url = f"ssl://127.0.0.1:0?keyStorePath={key_store}" if opening is tls else "tcp://127.0.0.1:0"
    served = serve("--listen", url, "--no-admin", place)
    before = memory_of(served.process.pid, "VmHWM")
    with opening(served) as sender, opening(served) as consumer:
        for counted in (True, False):
            send(sender, "/queue/large", SIZE, counted=counted, receipt="sent")
            assert sender.receive().headers["receipt-id"] == "sent"
            consumer.subscribe("/queue/large")
            got = consumer.receive()
            assert (got.size, got.digest) == (SIZE, digest_of(SIZE))
            assert got.headers["content-length"] == str(SIZE)
            consumer.say("ACK", id=got.headers["ack"])
            consumer.say("UNSUBSCRIBE", id=0, receipt="done")
            assert consumer.receive().command == "RECEIPT"
    assert memory_of(served.process.pid, "VmHWM") - before < MOST


@pytest.mark.usefixtures("own_process")
def test_bodies_that_wait_are_not_in_memory(serve: Serve, tmp_path: Path) -> None:
    served = serve(*listen(), "--no-admin", "--data", str(tmp_path / "data"))
    before = memory_of(served.process.pid, "VmHWM")
    sizes = [100 * 1024, 100 * 1024 - 1, 5 * MIB, 256 * 1024, 256 * 1024 + 1, 30 * MIB, 40 * MIB]
    with tcp(served) as client:
        for seed, size in enumerate(sizes):
            send(client, "/queue/large", size, seed=seed, receipt=seed)
            assert client.receive().headers["receipt-id"] == str(seed)
        assert stored(tmp_path / "data")[1] == len(sizes) - 1  # one is too small
        client.subscribe("/queue/large", ack="client", prefetch_count=2)
        for seed, size in enumerate(sizes):
            got = client.receive()
            assert (got.size, got.digest) == (size, digest_of(size, seed=seed))
            client.say("ACK", id=got.headers["ack"])
    assert memory_of(served.process.pid, "VmHWM") - before < MOST
    empty(tmp_path / "data")


# Those who vanish


def test_a_sender_that_vanishes_leaves_nothing(serve: Serve, tmp_path: Path) -> None:
    served = serve(*listen(), "--no-admin", "--data", str(tmp_path / "data"))
    with tcp(served) as watching:
        watching.subscribe("/queue/large", ack="auto")
        for size in (20 * MIB, None):
            with tcp(served) as client:
                begin(client, "/queue/large", size)
                for part in blocks(8 * MIB):
                    client.wire.send(part)
                while stored(tmp_path / "data")[0] < 24:  # of 32 pieces; the rest may wait for the disk
                    client.wire.send(b"x")
        empty(tmp_path / "data")
        watching.say("UNSUBSCRIBE", id=0, receipt="nothing came")
        assert watching.receive().command == "RECEIPT"


def test_a_sender_that_breaks_a_rule_leaves_nothing(serve: Serve, tmp_path: Path) -> None:
    served = serve(*listen("maxBodySize=6MiB"), "--no-admin", "--data", str(tmp_path / "data"))
    with tcp(served) as client:  # more than may be
        begin(client, "/queue/large", None, receipt="r")
        for part in blocks(7 * MIB):
            client.wire.send(part)
        assert client.receive().headers["code"] == "body-too-large"
        assert client.is_closed()
    with tcp(served) as client:  # refused when it is announced
        begin(client, "/queue/large", 7 * MIB)
        assert client.receive().headers["code"] == "body-too-large"
        assert client.is_closed()
    with tcp(served) as client:
        begin(client, "/queue/large", 2 * MIB)
        for part in blocks(2 * MIB):
            client.wire.send(part)
        client.wire.send(b"no NUL")
        assert client.receive().headers["code"] == "missing-nul"
    empty(tmp_path / "data")


def test_a_consumer_that_vanishes_half_way_gives_it_back(serve: Serve, tmp_path: Path) -> None:
    served = serve(*listen(), "--no-admin", "--data", str(tmp_path / "data"))
    with tcp(served) as sender:
        send(sender, "/queue/large", SIZE, receipt="sent")
        assert sender.receive().command == "RECEIPT"
    for ack in ("auto", "client-individual"):
        with tcp(served) as client:
            client.subscribe("/queue/large", ack=ack)
            command, headers = client.head()
            assert (command, headers["content-length"]) == ("MESSAGE", str(SIZE))
            while len(client.rest) < 3 * MIB:
                client.rest += client.wire.receive()
    with tcp(served) as client:
        client.subscribe("/queue/large")
        got = client.receive()
        assert (got.size, got.digest, got.headers["redelivered"]) == (SIZE, digest_of(SIZE), "true")
        client.say("ACK", id=got.headers["ack"], receipt="done")
        assert client.receive().command == "RECEIPT"
    empty(tmp_path / "data")


# Crashes


def killed(served: Served) -> None:
    served.process.kill()
    served.process.wait()


def test_killed_between_pieces(serve: Serve, tmp_path: Path) -> None:
    arguments = (*listen(), "--no-admin", "--data", str(tmp_path / "data"))
    served = serve(*arguments)
    with tcp(served) as client:
        begin(client, "/queue/large", 20 * MIB)
        for part in blocks(8 * MIB):
            client.wire.send(part)
        while stored(tmp_path / "data")[0] < 24:
            client.wire.send(b"x")
        killed(served)
    assert stored(tmp_path / "data")[0] >= 24
    again = serve(*arguments)
    with tcp(again) as client:
        client.subscribe("/queue/large", ack="auto")
        client.say("UNSUBSCRIBE", id=0, receipt="nothing came")
        assert client.receive().command == "RECEIPT"
    empty(tmp_path / "data")


def test_killed_after_the_receipt(serve: Serve, tmp_path: Path) -> None:
    arguments = (*listen(), "--no-admin", "--data", str(tmp_path / "data"))
    served = serve(*arguments)
    with tcp(served) as client:
        send(client, "/queue/large", 9 * MIB, receipt="sent")
        assert client.receive().command == "RECEIPT"
        killed(served)
    again = serve(*arguments)
    with tcp(again) as client:
        client.subscribe("/queue/large")
        got = client.receive()
        assert (got.size, got.digest) == (9 * MIB, digest_of(9 * MIB))
        client.say("ACK", id=got.headers["ack"], receipt="done")
        assert client.receive().command == "RECEIPT"
        killed(again)
    serve(*arguments)
    empty(tmp_path / "data")


def test_what_is_not_persistent_is_gone_after_a_restart(serve: Serve, tmp_path: Path) -> None:
    arguments = (*listen(), "--no-admin", "--data", str(tmp_path / "data"))
    served = serve(*arguments)
    with tcp(served) as client:
        send(client, "/queue/large", 3 * MIB, persistent="false", receipt="sent")
        assert client.receive().command == "RECEIPT"
    assert served.stop() == 0
    serve(*arguments)
    empty(tmp_path / "data")


# Others on the broker, and on the connection


def test_a_slow_consumer_holds_up_nobody(serve: Serve, tmp_path: Path) -> None:
    served = serve(*listen(), "--no-admin", "--data", str(tmp_path / "data"))
    with tcp(served) as slow, tcp(served) as fast, tcp(served) as sender:
        slow.subscribe("/topic/large")
        fast.subscribe("/topic/large")
        for seed in range(2):
            send(sender, "/topic/large", 24 * MIB, seed=seed, receipt=seed)
            got = fast.receive()
            assert (got.size, got.digest) == (24 * MIB, digest_of(24 * MIB, seed=seed))
            fast.say("ACK", id=got.headers["ack"])
            assert sender.receive().headers["receipt-id"] == str(seed)
        got = slow.receive()
        assert (got.size, got.digest) == (24 * MIB, digest_of(24 * MIB, seed=0))


def test_frames_of_a_connection_wait_their_turn(serve: Serve, tmp_path: Path) -> None:
    served = serve(*listen(), "--no-admin", "--data", str(tmp_path / "data"))
    with tcp(served) as client, tcp(served) as sender:
        client.subscribe("/queue/large", id=1, ack="auto")
        client.subscribe("/queue/small", id=2, ack="auto")
        sender.say("SEND", b"before", destination="/queue/small")
        assert client.receive().start == b"before"
        send(sender, "/queue/large", 24 * MIB, receipt="sent")
        assert sender.receive().command == "RECEIPT"
        for number in range(3):
            sender.say("SEND", b"%d" % number, destination="/queue/small", receipt=number)
            assert sender.receive().command == "RECEIPT"
        client.say("BEGIN", transaction="t", receipt="begun")
        large = client.receive()
        assert (large.size, large.digest) == (24 * MIB, digest_of(24 * MIB))
        rest = [client.receive() for _ in range(4)]
        assert [got.start for got in rest if got.command == "MESSAGE"] == [b"0", b"1", b"2"]
        assert [got.headers["receipt-id"] for got in rest if got.command == "RECEIPT"] == ["begun"]


def test_one_who_disconnects_gets_the_rest_of_the_frame(serve: Serve, tmp_path: Path) -> None:
    served = serve(*listen(), "--no-admin", "--data", str(tmp_path / "data"))
    with tcp(served) as client:
        send(client, "/queue/large", 16 * MIB)
        client.subscribe("/queue/large", ack="auto")
        client.say("DISCONNECT", receipt="bye")
        got = client.receive()
        assert (got.size, got.digest) == (16 * MIB, digest_of(16 * MIB))
        assert client.receive().headers["receipt-id"] == "bye"
        assert client.is_closed()


# A full disk


@pytest.mark.parametrize("policy", ["FAIL", "BLOCK"])
def test_a_disk_that_refuses_half_way(serve: Serve, tmp_path: Path, policy: str) -> None:
    """The sender gets an ERROR, and what it sent is gone; or it waits, and all of it is stored in the end."""
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "stompbox.toml").write_text(
        f'[[address-setting]]\nmatch = "#"\ndisk-full-policy = "{policy}"\n'
    )
    served = serve(*listen(), "--no-admin", "--data", str(tmp_path / "data"))
    with tcp(served, "1.1") as client:
        begin(client, "/queue/large", SIZE, receipt="large")
        parts = blocks(SIZE)
        for _ in range(4):
            client.wire.send(next(parts))
        with broken(served):
            sending = threading.Thread(target=lambda: [client.wire.send(part) for part in (*parts, b"\0")])
            sending.start()
            with Plain(served.port, "1.1") as other:  # the broker is there for others
                other.send("SEND", {"destination": "/queue/other", "persistent": "false", "receipt": "r"})
                assert other.receive().headers["receipt-id"] == "r"
            if policy == "FAIL":
                error = client.receive()
                assert (error.command, error.headers["receipt-id"], error.headers["code"]) == (
                    "ERROR",
                    "large",
                    "io-error",
                )
        sending.join(WITHIN)
        assert not sending.is_alive()
        if policy == "BLOCK":
            assert client.receive().headers["receipt-id"] == "large"
            client.subscribe("/queue/large")
            got = client.receive()
            assert got.digest == digest_of(SIZE)
            client.say(
                "ACK", id=got.headers.get("ack", 0), message_id=got.headers["message-id"], subscription=0
            )
    wait_until_good(served)
    empty(tmp_path / "data")


# What is refused, transactions, whole bodies


def test_refused_before_the_body_has_come(serve: Serve, tmp_path: Path) -> None:
    """In 1.1 the connection goes on: the body is passed over."""
    served = serve(*listen(), "--no-admin", "--data", str(tmp_path / "data"))
    with tcp(served, "1.1") as client:
        for wrong, code in (
            ({"priority": "high"}, "bad-priority"),
            ({"transaction": "t"}, "no-such-transaction"),
        ):
            begin(client, "/queue/large", 3 * MIB, receipt="r", **wrong)
            error = client.receive()
            assert (error.command, error.headers["code"], error.headers["receipt-id"]) == ("ERROR", code, "r")
            for part in blocks(3 * MIB):
                client.wire.send(part)
            client.wire.send(b"\0")
        client.say("SEND", b"x", destination="/queue/small", receipt="next")
        assert client.receive().headers["receipt-id"] == "next"
    assert stored(tmp_path / "data") == (0, 0)


def test_transactions(serve: Serve, tmp_path: Path) -> None:
    served = serve(*listen("maxTransactionSize=1MiB"), "--no-admin", "--data", str(tmp_path / "data"))
    with tcp(served) as client:
        for name in ("aborted", "committed"):
            client.say("BEGIN", transaction=name)
            for seed in range(2):
                send(client, "/queue/large", 2 * MIB, seed=seed, transaction=name, receipt=seed)
                assert client.receive().headers["receipt-id"] == str(seed)
        client.say("ABORT", transaction="aborted")
        client.say("COMMIT", transaction="committed", receipt="done")
        assert client.receive().headers["receipt-id"] == "done"
        client.subscribe("/queue/large", prefetch_count=10)
        got = [client.receive() for _ in range(2)]
        assert [one.digest for one in got] == [digest_of(2 * MIB, seed=seed) for seed in range(2)]
        client.say("BEGIN", transaction="acks")
        for one in got:
            client.say("ACK", id=one.headers["ack"], transaction="acks")
        client.say("COMMIT", transaction="acks", receipt="acknowledged")
        assert client.receive().headers["receipt-id"] == "acknowledged"
    empty(tmp_path / "data")


def test_without_a_least_size_bodies_are_whole(serve: Serve, tmp_path: Path) -> None:
    served = serve(*listen("stompMinLargeMessageSize=-1"), "--no-admin", "--data", str(tmp_path / "data"))
    with tcp(served) as client:
        send(client, "/queue/large", 2 * MIB, receipt="sent")
        assert client.receive().command == "RECEIPT"
        assert stored(tmp_path / "data") == (0, 0)
        client.subscribe("/queue/large")
        assert client.receive().digest == digest_of(2 * MIB)


def test_an_empty_body_can_be_large(serve: Serve) -> None:
    served = serve(*listen("stompMinLargeMessageSize=0"), "--no-admin", "--memory")
    with tcp(served) as client:
        client.subscribe("/queue/large", ack="auto")
        for body in (b"", b"x", b""):
            client.say("SEND", body, destination="/queue/large")
            assert client.receive().start == body


def test_retained_messages_are_whole(serve: Serve) -> None:
    served = serve(*listen("stompMinLargeMessageSize=1000"), "--no-admin", "--memory")
    with tcp(served) as client:
        send(client, "/topic/large", 200_000, retain="set", receipt="sent")
        assert client.receive().command == "RECEIPT"
        client.subscribe("/topic/large")
        assert client.receive().digest == digest_of(200_000)


def test_a_transformer_sees_bodies_whole(serve: Serve, tmp_path: Path) -> None:
    """One that was sent in pieces to another listener, too."""
    (tmp_path / "broker").mkdir()
    function = (
        "def count(message):\n    message.headers['length-' + message.way.value] = str(len(message.body))\n"
    )
    (tmp_path / "broker" / "counting.py").write_text(function)
    served = serve(*listen("messageTransformer=counting:count"), *listen(), "--no-admin", "--memory")
    port = int(served.listeners[1].rpartition(":")[2])
    with tcp(served) as transformed, socket.create_connection((served.host, port), WITHIN) as stream:
        plain = Client(Tcp(stream))
        send(plain, "/queue/out", 2 * MIB)
        transformed.subscribe("/queue/out", ack="auto")
        got = transformed.receive()
        assert (got.digest, got.headers["length-out"]) == (digest_of(2 * MIB), str(2 * MIB))
        send(transformed, "/queue/in", 2 * MIB)
        plain.subscribe("/queue/in", ack="auto")
        got = plain.receive()
        assert (got.digest, got.headers["length-in"]) == (digest_of(2 * MIB), str(2 * MIB))


def test_a_request_reads_bodies_in_place(serve: Serve, tmp_path: Path) -> None:
    served = serve(*listen(), "--no-admin", "--data", str(tmp_path / "data"))
    sizes = [10, 3 * MIB, 200 * 1024, 3 * MIB, 20]
    with tcp(served) as client:
        for seed, size in enumerate(sizes):
            send(client, "/queue/large", size, seed=seed, receipt=seed)
            assert client.receive().headers["receipt-id"] == str(seed)
    found: list[bytes] = []
    with Plain(served.port) as client:
        while len(found) < len(sizes):
            asked = {
                "request": "fetch",
                "request-id": "1",
                "address": "large",
                "start": str(len(found)),
                "stop": "9",
            }
            client.send("SEND", {"destination": "stompbox.requests", **asked})
            body = client.receive().body
            assert 0 < len(body) < 7 * MIB
            while body:
                first, _count, length = struct.unpack_from("<QII", body)
                runs = decode(body[16 : 16 + length], first)
                assert not has_handles(body[16 : 16 + length])
                found += [one for run in runs for one in run.bodies]
                body = body[16 + length :]
    assert [hashlib.sha256(body).hexdigest() for body in found] == [
        digest_of(size, seed=seed) for seed, size in enumerate(sizes)
    ]


def test_the_client_library_receives_one(serve: Serve) -> None:
    served = serve(*listen(), "--no-admin", "--memory")
    body = b"".join(blocks(5 * MIB, block=BLOCK))
    with blocking.connect(f"stomp://{served.host}:{served.port}") as client:
        client.send("/queue/large", body)
        with client.subscribe("/queue/large", ack="client-individual") as messages:
            message = messages.receive(timeout=WITHIN)
            assert message is not None
            assert bytes(message.body) == body
            message.ack()
