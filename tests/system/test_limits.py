"""Addresses that are full, as senders and consumers meet them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from socket import SHUT_RDWR
from threading import Thread

import pytest

from stompbox.stomp.codec import encode
from stompbox.stomp.frames import Frame
from stompbox.stomp.versions import VERSIONS
from tests.conftest import Serve, Served
from tests.system.plain import WITHIN, Plain

TOML = """
[[address-setting]]
match = "fail"
address-full-policy = "FAIL"
max-size-messages = 3

[[address-setting]]
match = "drop"
address-full-policy = "DROP"
max-size-messages = 3

[[address-setting]]
match = "block"
address-full-policy = "BLOCK"
max-size-bytes = "64K"
"""


@pytest.fixture(params=["--memory", "--data"])
def start(request: pytest.FixtureRequest, serve: Serve, tmp_path: Path) -> Callable[[], Served]:
    def begin() -> Served:
        (tmp_path / "broker").mkdir(exist_ok=True)
        (tmp_path / "broker" / "stompbox.toml").write_text(TOML)
        where = [request.param] if request.param == "--memory" else [request.param, str(tmp_path / "data")]
        return serve(*where, "--no-admin", "--listen", "tcp://127.0.0.1:0")

    return begin


def run_of_sends(destination: str, count: int, size: int = 10) -> bytes:
    bodies = [b"%03d" % number + b"x" * size for number in range(count)]
    frames = [
        Frame("SEND", {"destination": destination, "receipt": str(number)}, body)
        for number, body in enumerate(bodies)
    ]
    return b"".join([encode(frame, VERSIONS["1.2"]) for frame in frames])


def said(client: Plain, count: int) -> list[tuple[str, str, str]]:
    frames = [client.receive() for _ in range(count)]
    return [
        (frame.command, frame.headers.get("receipt-id", ""), frame.headers.get("code", ""))
        for frame in frames
    ]


def taken(served: Served, destination: str, count: int) -> list[bytes]:
    with Plain(served.port) as client:
        client.send("SUBSCRIBE", {"destination": destination, "id": "1"})
        return [client.receive().body[:3] for _ in range(count)]


def test_fail_takes_what_fits_and_refuses_each_of_the_others(start: Callable[[], Served]) -> None:
    served = start()
    with Plain(served.port, "1.1") as client:
        client.socket.sendall(run_of_sends("/queue/fail", 5))
        assert sorted(said(client, 5)) == [
            ("ERROR", "3", "address-full"), ("ERROR", "4", "address-full"),
            ("RECEIPT", "0", ""), ("RECEIPT", "1", ""), ("RECEIPT", "2", ""),
        ]  # fmt: skip
        client.send("SEND", {"destination": "/queue/other", "receipt": "other"})
        assert said(client, 1) == [("RECEIPT", "other", "")], (
            "the connection stays open, and other addresses take"
        )
    with Plain(served.port, "1.2") as client:
        client.socket.sendall(run_of_sends("/queue/fail", 2))
        assert said(client, 1) == [("ERROR", "0", "address-full")]
        assert client.is_closed()
    assert taken(served, "/queue/fail", 3) == [b"000", b"001", b"002"]
    assert served.log.read_text().count("address fail is full (max-size-messages 3)") == 1


def test_an_address_that_refused_says_that_it_has_room_again(start: Callable[[], Served]) -> None:
    served = start()
    with Plain(served.port, "1.1") as client:
        client.socket.sendall(run_of_sends("/queue/fail", 4))
        assert ("ERROR", "3", "address-full") in said(client, 4)
        client.send(
            "SUBSCRIBE",
            {"destination": "/queue/fail", "id": "1", "ack": "client-individual", "prefetch-count": "1"},
        )
        first = client.receive()
        client.send("ACK", {"message-id": first.headers["message-id"], "subscription": "1"})
        assert client.receive().command == "MESSAGE"
        client.socket.sendall(run_of_sends("/queue/fail", 1))
        assert said(client, 1) == [("RECEIPT", "0", "")]
    served.stop()
    log = served.log.read_text()
    assert log.count("address fail is full") == log.count("address fail has room again") == 1


def test_a_send_repeated_with_its_id_is_confirmed_although_the_address_is_full(
    start: Callable[[], Served],
) -> None:
    """It is stored; its sender had only no answer."""
    with Plain(start().port, "1.1") as client:
        for name in "abc", "abxcyb":  # of one read each
            frames = [
                Frame("SEND", {"destination": "/queue/fail", "receipt": id, "_AMQ_DUPL_ID": id}, id.encode())
                for id in name
            ]
            client.socket.sendall(b"".join([encode(frame, VERSIONS["1.1"]) for frame in frames]))
            if name == "abc":
                assert said(client, 3) == [("RECEIPT", id, "") for id in "abc"]
        assert sorted(said(client, 6)) == [
            ("ERROR", "x", "address-full"), ("ERROR", "y", "address-full"), *[("RECEIPT", id, "") for id in "abbc"],
        ]  # fmt: skip
        client.send("BEGIN", {"transaction": "t"})
        client.send("SEND", {"destination": "/queue/fail", "transaction": "t", "_AMQ_DUPL_ID": "a"}, b"a")
        client.send("COMMIT", {"transaction": "t", "receipt": "t"})
        assert said(client, 1) == [("RECEIPT", "t", "")]


def test_fail_refuses_a_transaction_whole(start: Callable[[], Served]) -> None:
    served = start()
    with Plain(served.port, "1.1") as client:
        for name, count in (("large", 4), ("small", 3)):
            client.send("BEGIN", {"transaction": name})
            for number in range(count):
                client.send(
                    "SEND", {"destination": "/queue/fail", "transaction": name}, f"{name} {number}".encode()
                )
            client.send("COMMIT", {"transaction": name, "receipt": name})
        assert sorted(said(client, 2)) == [("ERROR", "large", "address-full"), ("RECEIPT", "small", "")]
    assert taken(served, "/queue/fail", 3) == [b"sma"] * 3


def test_drop_says_nothing_to_the_sender(start: Callable[[], Served]) -> None:
    served = start()
    with Plain(served.port) as client:
        client.socket.sendall(run_of_sends("/queue/drop", 5))
        assert said(client, 5) == [("RECEIPT", str(n), "") for n in range(5)]
    assert taken(served, "/queue/drop", 3) == [b"000", b"001", b"002"]
    with Plain(served.port) as client:
        client.socket.sendall(run_of_sends("/queue/drop", 1))
        assert said(client, 1) == [("RECEIPT", "0", "")]
    served.stop()
    log = served.log.read_text()
    assert log.count("address drop is full (max-size-messages 3): messages are dropped (address-full)") == 1
    assert log.count("address drop has room again; 2 messages were dropped") == 1


def flood(client: Plain, destination: str, most: int = 40_000_000) -> bytes:
    """Sends until the broker does not read any more: what is left of the frames that were begun."""
    frames = (
        encode(
            Frame("SEND", {"destination": destination, "persistent": "false"}, b"x" * 10_000), VERSIONS["1.2"]
        )
        * 50
    )
    client.socket.settimeout(0.5)
    sent, left = 0, frames
    while sent < most:
        try:
            gone = client.socket.send(left)
        except TimeoutError:
            client.socket.settimeout(WITHIN)
            return left
        sent, left = sent + gone, left[gone:] or frames
    pytest.fail(f"the broker has read {sent} bytes")


def drain(client: Plain) -> None:
    with suppress(OSError):
        while client.socket.recv(1 << 20):
            pass


def test_block_stops_reading_whoever_fills_it_and_nobody_else(start: Callable[[], Served]) -> None:
    served = start()
    with Plain(served.port) as producer, Plain(served.port) as other, Plain(served.port) as consumer:
        left = flood(producer, "/queue/block")
        other.send("SEND", {"destination": "/queue/free", "receipt": "1"})
        assert said(other, 1) == [("RECEIPT", "1", "")]
        consumer.send("SUBSCRIBE", {"destination": "/queue/block", "id": "1"})
        draining = Thread(target=drain, args=(consumer,))
        draining.start()
        producer.socket.sendall(left)
        producer.send("SEND", {"destination": "/queue/block", "receipt": "2"})
        assert said(producer, 1) == [("RECEIPT", "2", "")]
        consumer.socket.shutdown(SHUT_RDWR)
        draining.join()
    assert (
        "address block is full (max-size-bytes 65536): senders wait (address-full)" in served.log.read_text()
    )


def test_who_consumes_and_sends_can_acknowledge_while_it_waits(start: Callable[[], Served]) -> None:
    """All on one connection, with nobody else to make room: SENDs behind the full mark wait for the ACKs that come after them."""
    served = start()
    body = b"x" * 1000
    count = 500
    with Plain(served.port) as client:
        client.send(
            "SUBSCRIBE",
            {"destination": "/queue/block", "id": "1", "ack": "client-individual", "prefetch-count": "5"},
        )
        for number in range(count):
            client.send(
                "SEND", {"destination": "/queue/block", "persistent": "false"}, b"%04d" % number + body
            )
        client.send("SEND", {"destination": "/queue/free", "receipt": "last"})
        seen, receipts = list[int](), list[str]()
        while len(seen) < count or not receipts:
            frame = client.receive()
            if frame.command == "RECEIPT":
                assert len(seen) > count - 100, "it stands behind SENDs that wait for room"
                receipts.append(frame.headers["receipt-id"])
                continue
            seen.append(int(frame.body[:4]))
            client.send("ACK", {"id": frame.headers["ack"]})
        assert (seen, receipts) == (list(range(count)), ["last"])


@pytest.mark.parametrize("where", ["--memory", "--data"])
def test_queues_that_nobody_reads_stop_nobody(serve: Serve, tmp_path: Path, where: str) -> None:
    """Together they have all the memory there is; it is given back when somebody needs it, and nothing of what they hold is lost."""
    folder = tmp_path / "broker"
    folder.mkdir()
    rules = '[[address-setting]]\nmatch = "busy"\naddress-full-policy = "BLOCK"\n'
    (folder / "stompbox.toml").write_text('global-max-size = "1MiB"\n' + rules)
    place = [where] if where == "--memory" else [where, str(tmp_path / "data")]
    served = serve(*place, "--no-admin", "--listen", "tcp://127.0.0.1:0")
    with Plain(served.port) as client, Plain(served.port) as consumer:
        for number in range(12):
            client.socket.sendall(run_of_sends(f"/queue/idle.{number}", 10, 10_000))
            assert {command for command, *_ in said(client, 10)} == {"RECEIPT"}
        consumer.send("SUBSCRIBE", {"destination": "/queue/busy", "id": "1", "ack": "client"})
        consumer.sync()
        sending = Thread(target=client.socket.sendall, args=(run_of_sends("/queue/busy", 300, 10_000),))
        sending.start()
        for number in range(300):
            frame = consumer.receive()
            assert frame.body[:3] == b"%03d" % number
            consumer.send("ACK", {"id": frame.headers["ack"]})
        sending.join(WITHIN)
        assert {command for command, *_ in said(client, 300)} == {"RECEIPT"}
    for number in range(12):
        assert taken(served, f"/queue/idle.{number}", 10) == [b"%03d" % at for at in range(10)]
