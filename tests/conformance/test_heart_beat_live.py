"""Heart-beats and the time to live against a running broker; the waiting is done by the broker's own deadlines."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.conformance.wire import Client, Tcp, connected
from tests.conftest import Served, end, start_broker

TTL = 1.0  # seconds


@pytest.fixture(scope="module", params=["listener", "all listeners"])
def impatient(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, int]]:
    """(host, port) of a broker that ends silent connections after a second: by an option of its listener, or of all listeners."""
    folder, ttl = tmp_path_factory.mktemp("impatient"), f"{TTL * 1000:.0f}"
    of_listener = f"?connectionTtl={ttl}" if request.param == "listener" else ""
    file = folder / "impatient.toml"
    override = 600_000 if of_listener else ttl  # what the URL says wins
    file.write_text(
        f'memory = true\nconnection-ttl-override = {override}\n[[listener]]\nurl = "tcp://127.0.0.1:0{of_listener}"\n'
    )
    served: Served = start_broker(folder, "--config", str(file), "--no-admin")
    yield served.host, served.port
    end(served)


def connect(client: Client, version: str, heart_beat: str) -> str | None:
    """The heart-beat header of the answer."""
    lines = ["CONNECT", f"heart-beat:{heart_beat}"]
    if version != "1.0":
        lines += [f"accept-version:{version}", "host:localhost"]
    client.say(("\n".join(lines) + "\n\n\0").encode())
    return client.expect("CONNECTED").value("heart-beat")


@pytest.mark.parametrize(
    ("version", "heart_beat"), [("1.0", "0,0"), ("1.0", "60000,0"), ("1.1", "0,0"), ("1.2", "0,0")]
)
def test_silent_client_is_told_why_and_cut_off(
    impatient: tuple[str, int], version: str, heart_beat: str
) -> None:
    """1.0 has no heart-beats: its header is ignored and not answered, the time to live counts."""
    with connected(impatient, "tcp") as client:
        assert connect(client, version, heart_beat) == (None if version == "1.0" else "0,0")
        since = time.monotonic()
        error = client.expect("ERROR")
        assert error.value("code") == "connection-ttl"
        assert "connectionTtl" in error.body.decode()
        assert time.monotonic() - since >= TTL * 0.9
        assert client.hear() is None


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_missed_heart_beats_are_told_and_cut_off(impatient: tuple[str, int], version: str) -> None:
    with connected(impatient, "tcp") as client:
        assert connect(client, version, "600,0") == "0,600"
        since = time.monotonic()
        error = client.expect("ERROR")
        assert error.value("code") == "heart-beat-timeout"
        assert time.monotonic() - since >= 2 * 0.6 * 0.9  # STOMP 1.2: an error margin
        assert client.hear() is None


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_heart_beats_alone_keep_both_sides_alive(impatient: tuple[str, int], version: str) -> None:
    with connected(impatient, "tcp") as client:
        assert connect(client, version, "500,500") == "500,500"
        assert isinstance(client.transport, Tcp)
        since = time.monotonic()
        while time.monotonic() - since < 3 * TTL:
            assert client.transport.receive() == b"\n", "an end of line and nothing else"
            client.say(b"\n")
        client.say(b"SEND\ndestination:/queue/heart-beat\nreceipt:alive\n\n\0")
        assert client.expect("RECEIPT").value("receipt-id") == "alive"


@pytest.mark.parametrize("header", ["", "1", "1,2,3", "-1,0", "a,b", "1.5,0"])
@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_malformed_header_is_refused(impatient: tuple[str, int], version: str, header: str) -> None:
    with connected(impatient, "tcp") as client:
        client.say(f"CONNECT\naccept-version:{version}\nhost:localhost\nheart-beat:{header}\n\n\0".encode())
        assert client.expect("ERROR").value("code") == "bad-heart-beat"
        assert client.hear() is None


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """(host, port) of a broker that lets nobody be silent for more than 1.2 s."""
    listener = "tcp://127.0.0.1:0?connectionTtlMax=1200"
    served: Served = start_broker(
        tmp_path_factory.mktemp("short"), "--memory", "--listen", listener, "--no-admin"
    )
    yield served.host, served.port
    end(served)


@pytest.mark.parametrize("offered", [1200, 5000, 600_000])
def test_the_longest_time_to_live_counts_for_who_beats_less_often(
    short: tuple[str, int], offered: int
) -> None:
    with connected(short, "tcp") as client:
        assert connect(client, "1.2", f"{offered},0") == "0,600"
        since = time.monotonic()
        error = client.expect("ERROR")
        assert error.value("code") == "heart-beat-timeout"
        assert "1200 ms" in error.body.decode()
        assert 1.2 * 0.95 <= time.monotonic() - since < 5
        assert client.hear() is None


def test_who_beats_at_the_longest_interval_there_is_lives_on(short: tuple[str, int]) -> None:
    """Its beats come when the time to live ends, and a little later each; the tolerance is for that."""
    with connected(short, "tcp") as client:
        assert connect(client, "1.2", "1200,0") == "0,600"
        assert isinstance(client.transport, Tcp)
        client.transport.stream.settimeout(1.2)
        for _ in range(3):
            with pytest.raises(TimeoutError):  # the broker says nothing meanwhile
                client.transport.receive()
            client.say(b"\n")
