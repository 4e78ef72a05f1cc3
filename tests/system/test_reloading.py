"""SIGHUP: what changes at once, what does not, and what a mistake changes."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import time
from pathlib import Path

import pytest

from tests.admin.asking import read
from tests.certificates import of_localhost
from tests.conftest import ROOT, Serve, Served
from tests.system.plain import WITHIN, Plain
from tests.users import users

FULL = '[[address-setting]]\nmatch = "q"\naddress-full-policy = "FAIL"\nmax-size-messages = {}\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "broker").mkdir()
    return tmp_path / "broker" / "stompbox.toml"


def reload(served: Served, file: Path, text: str, *, said: str) -> None:
    """Returns when the broker has said in its log what it has done."""
    before = served.log.read_text().count(said)
    file.write_text(text)
    os.kill(served.process.pid, signal.SIGHUP)
    deadline = time.monotonic() + WITHIN
    while served.log.read_text().count(said) == before:
        assert time.monotonic() < deadline, f"the broker did not say {said!r}:\n{served.log.read_text()}"


def taken(served: Served, count: int) -> list[str]:
    """RECEIPT or ERROR for so many SENDs."""
    with Plain(served.port, "1.1") as client:
        found = []
        for number in range(count):
            client.send("SEND", {"destination": "/queue/q", "receipt": str(number)})
            found.append(client.receive().command)
        return found


def test_address_settings_change_at_once(serve: Serve, file: Path, tmp_path: Path) -> None:
    file.write_text(FULL.format(2))
    served = serve("--data", str(tmp_path / "data"), "--no-admin", "--listen", "tcp://127.0.0.1:0")
    assert taken(served, 3) == ["RECEIPT", "RECEIPT", "ERROR"]
    reload(served, file, FULL.format(4), said="the configuration was read again")
    assert taken(served, 3) == ["RECEIPT", "RECEIPT", "ERROR"]
    reload(served, file, "", said="the configuration was read again")
    assert taken(served, 3) == ["RECEIPT"] * 3
    reload(served, file, FULL.format(5), said="the configuration was read again")
    assert taken(served, 1) == ["ERROR"], "what was there before counts"


def test_retention_changes_at_once(serve: Serve, file: Path, tmp_path: Path) -> None:
    kept = '[[address-setting]]\nmatch = "q"\nretention-messages = {}\n'
    file.write_text(kept.format(100))
    served = serve("--data", str(tmp_path / "data"), "--no-admin", "--listen", "tcp://127.0.0.1:0")
    assert taken(served, 5) == ["RECEIPT"] * 5
    with Plain(served.port) as client:
        client.send("SUBSCRIBE", {"destination": "/queue/q", "id": "1", "ack": "client-individual"})
        for message in [client.receive() for _ in range(5)]:
            client.send("ACK", {"id": message.headers["ack"], "receipt": "acknowledged"})
        assert [client.receive().command for _ in range(5)] == ["RECEIPT"] * 5
    reload(served, file, kept.format(2), said="the configuration was read again")
    with Plain(served.port) as client:
        client.send("SEND", {"destination": "/queue/sync", "receipt": "committed"})
        assert client.receive().headers["receipt-id"] == "committed"
        client.send(
            "SUBSCRIBE",
            {"destination": "/stream/q", "id": "1", "x-stream-offset": "first", "include-seq": "seq"},
        )
        assert [client.receive().headers["seq"] for _ in range(2)] == ["3", "4"]
        assert client.sync() == []


def test_virtual_hosts_change_at_once(serve: Serve, file: Path) -> None:
    """Also that there are some: the addresses that were there are the default host's."""
    hosts = '[[virtual-host]]\nname = "main"\ndefault = true\n[[virtual-host]]\nname = "green"\n'
    full = '[[virtual-host.address-setting]]\nmatch = "q"\ndefault-max-consumers = 0\n'
    file.write_text("")
    served = serve("--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0")
    with Plain(served.port) as client:
        client.send("SEND", {"destination": "/queue/q", "receipt": "1"}, b"before there were hosts")
        assert client.receive().command == "RECEIPT"
    reload(served, file, hosts, said="the configuration was read again")
    with (
        Plain(served.port, headers={"host": "green"}) as green,
        Plain(served.port, headers={"host": "main"}) as main,
    ):
        for client in (green, main):
            client.send("SUBSCRIBE", {"destination": "/queue/q", "id": "1"})
        assert main.receive().body == b"before there were hosts"
        assert green.sync() == []
    reload(served, file, hosts + full, said="the configuration was read again")
    with (
        Plain(served.port, "1.1", headers={"host": "green"}) as green,
        Plain(served.port, headers={"host": "main"}) as main,
    ):
        for client in (green, main):
            client.send("SUBSCRIBE", {"destination": "/queue/q", "id": "1", "receipt": "r"})
        assert green.receive().headers["code"] == "too-many-consumers"
        assert main.receive().command == "RECEIPT"


def test_users_change_at_once(serve: Serve, file: Path) -> None:
    served = serve("--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0")
    with Plain(served.port):
        pass
    reload(
        served,
        file,
        users("alice:secret"),
        said="the configuration was read again",
    )
    with Plain(served.port, None) as client:
        client.send("CONNECT", {"accept-version": "1.2", "host": "localhost"})
        assert client.receive().command == "ERROR"
    with Plain(served.port, headers={"login": "alice", "passcode": "secret"}):
        pass


def test_a_mistake_changes_nothing_and_is_named(serve: Serve, file: Path) -> None:
    file.write_text(FULL.format(2))
    served = serve("--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0")
    reload(served, file, FULL.format('"many"'), said="the configuration is not read again")
    assert "max-size-messages" in served.log.read_text()
    assert taken(served, 3) == ["RECEIPT", "RECEIPT", "ERROR"]


def test_what_needs_a_restart_is_named_and_refused_whole(serve: Serve, file: Path) -> None:
    file.write_text(FULL.format(2))
    served = serve("--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0")
    reload(
        served,
        file,
        f'wildcard-addresses.delimiter = "/"\n{FULL.format(4)}',
        said="only a restart can change wildcard-addresses",
    )
    reload(
        served, file, f'log-format = "json"\n{FULL.format(4)}', said="only a restart can change log-format"
    )
    assert taken(served, 3) == ["RECEIPT", "RECEIPT", "ERROR"]
    reload(served, file, FULL.format(4), said="the configuration was read again")
    assert taken(served, 3) == ["RECEIPT", "RECEIPT", "ERROR"]


def test_listeners_that_move_keep_the_users_they_need(serve: Serve, file: Path, tmp_path: Path) -> None:
    """Open to the network with users; the file then has neither. Were the half of it taken, everybody could come in."""
    text = f'data = "{tmp_path / "data"}"\n[[listener]]\nurl = "tcp://{{}}:0"\n'
    alice = users("alice:secret")
    file.write_text(text.format("0.0.0.0") + alice)
    served = serve("--no-admin")
    reload(served, file, text.format("127.0.0.1"), said="only a restart can change listener")
    with Plain(served.port, None) as client:
        client.send("CONNECT", {"accept-version": "1.2", "host": "localhost"})
        assert client.receive().command == "ERROR"
    with Plain(served.port, headers={"login": "alice", "passcode": "secret"}):
        pass


def test_of_several_listeners_none_changes_when_one_cannot(serve: Serve, file: Path, tmp_path: Path) -> None:
    """Nor does anything else."""
    pem = tmp_path / "server.pem"
    one = of_localhost()
    pem.write_text(one)
    secured = f'[[listener]]\nurl = "ssl://127.0.0.1:0?keyStorePath={pem}"\n'
    text = (
        f'data = "{tmp_path / "data"}"\n[[listener]]\nurl = "tcp://127.0.0.1:0?anycastPrefix={{}}"\n{secured}'
    )
    file.write_text(text.format("/queue/"))
    served = serve("--no-admin")
    pem.write_text("no certificate")
    reload(served, file, text.format("/two/") + FULL.format(0), said="the configuration is not read again")
    assert taken(served, 1) == ["RECEIPT"]


def test_listeners_whose_ports_the_system_chose_keep_their_options(
    serve: Serve, file: Path, tmp_path: Path
) -> None:
    text = f'data = "{tmp_path / "data"}"\n' + "".join(
        [
            f'[[listener]]\nurl = "tcp://127.0.0.1:0?stompEnableMessageId={is_on}"\n'
            for is_on in ("true", "false")
        ]
    )
    file.write_text(text)
    served = serve("--no-admin")
    reload(served, file, "max-refusals-logged = 7\n" + text, said="the configuration was read again")
    for url, is_on in zip(served.listeners, (True, False), strict=True):
        with Plain(int(url.rpartition(":")[2])) as client:
            client.send("SUBSCRIBE", {"destination": "/queue/own", "id": "1"})
            client.send("SEND", {"destination": "/queue/own"}, b"x")
            assert ("amqMessageId" in client.receive().headers) is is_on


def certificate(port: int) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=WITHIN) as raw,
        context.wrap_socket(raw) as secured,
    ):
        found = secured.getpeercert(binary_form=True)
    assert found is not None
    return found


def test_certificates_are_read_again(serve: Serve, file: Path, tmp_path: Path) -> None:
    pem = tmp_path / "server.pem"
    one = of_localhost()
    other = (ROOT / "tests/spark/broker.pem").read_text()
    text = f'data = "{tmp_path / "data"}"\n[[listener]]\nurl = "ssl://127.0.0.1:0?keyStorePath={pem}"\n'
    pem.write_text(one)
    file.write_text(text)
    served = serve("--no-admin")
    assert certificate(served.port) == ssl.PEM_cert_to_DER_cert(
        one[: one.index("-----END CERTIFICATE-----") + 26]
    )
    pem.write_text(other)
    reload(served, file, text, said="the configuration was read again")
    replaced = certificate(served.port)
    assert ssl.DER_cert_to_PEM_cert(replaced).split()[2] in other
    pem.write_text("no certificate")
    reload(served, file, text, said="the configuration is not read again")
    assert certificate(served.port) == replaced
    assert str(pem) in served.log.read_text()


def test_a_pkcs12_key_store_is_read_again(serve: Serve, file: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography", reason="the extra stompbox[pkcs12]")
    store, pems = tmp_path / "broker.p12", [tmp_path / "one.pem", tmp_path / "other.pem"]
    pems[0].write_text(of_localhost())
    pems[1].write_text((ROOT / "tests/spark/broker.pem").read_text())
    url = f"ssl://127.0.0.1:0?keyStorePath={store}&keyStoreType=PKCS12&keyStorePassword=s3cret"
    text = f'data = "{tmp_path / "data"}"\n[[listener]]\nurl = "{url}"\n'
    file.write_text(text)
    found = []
    served = None
    for pem in pems:
        export = [
            "openssl",
            "pkcs12",
            "-export",
            "-in",
            str(pem),
            "-out",
            str(store),
            "-passout",
            "pass:s3cret",
        ]
        subprocess.run(export, check=True, capture_output=True)
        if served is None:
            served = serve("--no-admin")
        else:
            reload(served, file, text, said="the configuration was read again")
        found.append(ssl.DER_cert_to_PEM_cert(certificate(served.port)).split()[2])
        assert found[-1] in pem.read_text()
    assert found[0] != found[1]
    assert served is not None
    store.write_text("damaged")
    reload(served, file, text, said="the configuration is not read again")
    assert ssl.DER_cert_to_PEM_cert(certificate(served.port)).split()[2] == found[1]


def test_options_of_a_listener_count_for_those_who_come(serve: Serve, file: Path, tmp_path: Path) -> None:
    text = f'data = "{tmp_path / "data"}"\n[[listener]]\nurl = "tcp://127.0.0.1:0?anycastPrefix={{}}"\n'
    file.write_text(text.format("/one/"))
    served = serve("--no-admin")
    with Plain(served.port) as before:
        reload(served, file, text.format("/two/"), said="the configuration was read again")
        with Plain(served.port) as after:
            for client, prefix in ((before, "/one/"), (after, "/two/")):
                client.send("SEND", {"destination": f"{prefix}q", "receipt": "1"}, prefix.encode())
                assert client.receive().command == "RECEIPT"
            after.send("SUBSCRIBE", {"destination": "/two/q", "id": "1"})
            assert [after.receive().body for _ in range(2)] == [b"/one/", b"/two/"]


# Addresses and diverts

DIVERT = '[[divert]]\nname = "d"\naddress = "{}"\nforwarding-address = "{}"\n'
FORCE = '[[address-setting]]\nmatch="#"\nconfig-delete-diverts="FORCE"\nconfig-delete-addresses = "FORCE"\nconfig-delete-queues = "FORCE"\n'
AGAIN = "the configuration was read again"


def started(serve: Serve, file: Path, tmp_path: Path, text: str) -> Served:
    file.write_text(text)
    return serve("--data", str(tmp_path / "data"), "--admin", "127.0.0.1:0", "--listen", "tcp://127.0.0.1:0")


def send(served: Served, address: str) -> None:
    with Plain(served.port) as client:
        client.send("SEND", {"destination": f"/queue/{address}", "receipt": "1"}, b"x")
        assert client.receive().command == "RECEIPT"


def ready(served: Served, address: str) -> int:
    """Messages that wait at an address; -1 where it is not there."""
    found = [one for one in read(served.admin, "addresses")["addresses"] if one["name"] == address]
    return found[0]["ready"] if found else -1


def test_diverts_are_added_changed_and_removed(serve: Serve, file: Path, tmp_path: Path) -> None:
    served = started(serve, file, tmp_path, "")
    send(served, "a")
    reload(served, file, DIVERT.format("a", "b"), said=AGAIN)
    send(served, "a")
    assert (ready(served, "a"), ready(served, "b")) == (2, 1)
    reload(served, file, DIVERT.format("a", "c"), said=AGAIN)
    send(served, "a")
    assert (ready(served, "a"), ready(served, "b"), ready(served, "c")) == (3, 1, 1)
    reload(served, file, "", said="divert 'd' stays until the next start (config-delete-diverts is OFF)")
    send(served, "a")
    assert ready(served, "c") == 2
    reload(served, file, DIVERT.format("a", "c") + FORCE, said=AGAIN)
    reload(served, file, FORCE, said=AGAIN)
    send(served, "a")
    assert (ready(served, "a"), ready(served, "c")) == (5, 2)


def test_addresses_and_queues_are_added_changed_and_removed(serve: Serve, file: Path, tmp_path: Path) -> None:
    served = started(serve, file, tmp_path, "")
    one = '[[address]]\nname = "made"\n'
    queue = '[[address.queue]]\nname = "{}"\nfilter = "colour = \'{}\'"\n'
    reload(served, file, one + queue.format("q", "red"), said=AGAIN)
    assert ready(served, "made") == 0
    send(served, "made")
    assert ready(served, "made") == 0, "it is not red"
    reload(
        served,
        file,
        one + queue.format("q", "red") + queue.format("r", "blue").replace("colour = 'blue'", "TRUE"),
        said=AGAIN,
    )
    send(served, "made")
    assert ready(served, "made") == 1
    reload(served, file, one + queue.format("q", "red"), said=AGAIN)
    assert "queue 'r' stays (config-delete-queues is OFF)" in served.log.read_text()
    reload(served, file, "", said=AGAIN)
    assert "address 'made' stays (config-delete-addresses is OFF)" in served.log.read_text()
    reload(served, file, FORCE + one + queue.format("q", "red") + queue.format("r", "blue"), said=AGAIN)
    reload(served, file, FORCE + one + queue.format("q", "red"), said=AGAIN)
    assert ready(served, "made") == 0, "queue r went with its message"
    reload(served, file, FORCE, said=AGAIN)
    assert ready(served, "made") == -1


def test_a_filter_that_is_none_changes_nothing(serve: Serve, file: Path, tmp_path: Path) -> None:
    served = started(serve, file, tmp_path, DIVERT.format("a", "b"))
    reload(
        served, file, DIVERT.format("a", "c") + 'filter = "("\n', said="the configuration is not read again"
    )
    assert "divert[0].filter: selector" in served.log.read_text()
    send(served, "a")
    assert ready(served, "b") == 1


def test_the_transaction_timeout_changes_for_new_transactions(
    serve: Serve, file: Path, tmp_path: Path
) -> None:
    served = started(serve, file, tmp_path, "")
    reload(served, file, "transaction-timeout = 50\n", said=AGAIN)
    with Plain(served.port, "1.1") as client:
        client.send("BEGIN", {"transaction": "t"})
        client.sync()
        deadline = time.monotonic() + WITHIN
        while "transaction-timeout" not in served.log.read_text():
            assert time.monotonic() < deadline
        client.send("COMMIT", {"transaction": "t"})
        assert client.receive().headers["code"] == "transaction-timeout"


def test_every_key_is_obeyed_by_a_reload_or_named(serve: Serve, file: Path, tmp_path: Path) -> None:
    """Those that only a start obeys are said in the log."""
    served = started(serve, file, tmp_path, "")
    reload(
        served,
        file,
        "persist-delivery-count-before-delivery = true\npersist-id-cache = false\n",
        said="only a restart can change",
    )
    assert (
        "only a restart can change persist-id-cache, persist-delivery-count-before-delivery"
        in served.log.read_text()
    )
