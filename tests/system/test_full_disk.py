"""A disk that is really full, or read-only, also from the start: a file system of a few megabytes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.conftest import Serve, Served
from tests.system.plain import WITHIN, Plain
from tests.system.test_disk import answer, bodies, messages, send, stored, wait_until_good
from tests.system.test_serve import assert_refused, run_serve


def mounted(folder: Path, size: str = "4m") -> bool:
    """A small file system, where we may."""
    if shutil.which("mount") is None:
        return False
    return (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, check=False
        ).returncode
        == 0
    )


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    if not mounted(folder, "16m"):
        pytest.skip("a small file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)


def fill(folder: Path) -> Path:
    """Takes all the space that there is."""
    file = folder / "filling"
    with pytest.raises(OSError, match="No space left"), file.open("ab", buffering=0) as filling:
        while filling.write(bytes(4096)):
            pass
    return file


def begun(serve: Serve, small: Path) -> Served:
    (small.parent / "broker").mkdir(exist_ok=True)
    (small.parent / "broker" / "stompbox.toml").write_text("min-disk-free = 0\n")
    return serve("--data", str(small / "data"), "--admin", "127.0.0.1:0", "--listen", "tcp://127.0.0.1:0")


def readiness(served: Served) -> tuple[int, list[str]]:
    """The status of /readyz, and the codes that it gives as reasons."""
    try:
        with urlopen(served.admin + "/readyz", timeout=WITHIN) as answered:
            return answered.status, []
    except HTTPError as error:
        with error:
            return error.code, [reason["code"] for reason in json.load(error)["reasons"]]


def kill(served: Served) -> None:
    served.process.kill()
    served.process.wait()


def ended(served: Served, how: str) -> None:
    """Killed, with messages in the journal; or stopped, so that SQLite has put its files away."""
    if how == "stopped":
        assert served.stop() == 0
    else:
        kill(served)


def test_a_full_file_system(serve: Serve, tmp_path: Path) -> None:
    """The real thing. The tests above do without: they need nobody's permission."""
    small = tmp_path / "small"
    small.mkdir()
    if not mounted(small):
        pytest.skip("a small file system cannot be mounted here")
    try:
        (tmp_path / "broker").mkdir()
        (tmp_path / "broker" / "stompbox.toml").write_text("min-disk-free = 0\n")
        served = serve("--data", str(small / "data"), "--no-admin", "--listen", "tcp://127.0.0.1:0")
        kept = 0
        with Plain(served.port) as client:
            while True:
                client.send("SEND", {"destination": "/queue/q", "receipt": str(kept)}, bytes(100_000))
                frame = client.receive()
                if frame.command == "ERROR":
                    break
                kept += 1
        assert frame.headers["code"] == "disk-full"
        assert kept > 10
        with Plain(served.port) as client:
            found = messages(client)
            assert len(found) == kept
        assert subprocess.run(["mount", "-o", "remount,size=64m", small], check=False).returncode == 0
        wait_until_good(served)
        assert served.stop() == 0
    finally:
        subprocess.run(["umount", "-l", str(small)], check=False, capture_output=True)


def is_refused(served: Served, code: str) -> None:
    """Producers of persistent messages get an ERROR, others none."""
    with Plain(served.port, "1.1") as client:
        send(client, b"refused")
        error = client.receive()
        assert (error.command, error.headers["code"], error.headers["receipt-id"]) == (
            "ERROR",
            code,
            "refused",
        )
        send(client, b"volatile", "/queue/other", persistent="false")
        assert answer(client) == ("RECEIPT", "volatile")


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_broker_starts_on_a_full_disk_and_goes_on_when_there_is_space(
    serve: Serve, small: Path, how: str
) -> None:
    served = begun(serve, small)
    large = bytes(range(256)) * 1200
    with Plain(served.port) as client:
        client.send("SEND", {"destination": "/queue/large", "receipt": "large"}, large)
        assert answer(client) == ("RECEIPT", "large")
        for number in range(300):
            stored(client, b"%d" % number)
    ended(served, how)
    filling = fill(small)
    for _ in range(2):  # and once more, with nothing stored in between
        served = begun(serve, small)
        assert readiness(served) == (503, ["disk-full"])
        is_refused(served, "disk-full")
        assert bodies(served) == [b"%d" % number for number in range(300)]
        kill(served)
        fill(small)
    served = begun(serve, small)
    with Plain(served.port) as consumer:
        found = messages(consumer)
        for frame in found[:200]:
            consumer.send("ACK", {"id": frame.headers["ack"], "receipt": frame.body.decode()})
        is_refused(served, "disk-full")
        filling.unlink()
        assert [answer(consumer) for _ in range(200)] == [("RECEIPT", str(number)) for number in range(200)]
    wait_until_good(served)
    assert readiness(served) == (200, [])
    with Plain(served.port) as client:
        stored(client, b"after")
    kill(served)
    served = begun(serve, small)
    assert bodies(served) == [*(b"%d" % number for number in range(200, 300)), b"after"]
    assert bodies(served, "/queue/large") == [large]


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_broker_starts_on_a_read_only_disk_and_goes_on_when_it_can_be_written(
    serve: Serve, small: Path, how: str
) -> None:
    served = begun(serve, small)
    with Plain(served.port) as client:
        for number in range(100):
            stored(client, b"%d" % number)
    ended(served, how)
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    served = begun(serve, small)
    assert readiness(served) == (503, ["data-not-writable"])
    is_refused(served, "data-not-writable")
    with Plain(served.port) as consumer:
        found = messages(consumer)
        assert [frame.body for frame in found] == [b"%d" % number for number in range(100)]
        for frame in found[:60]:
            consumer.send("ACK", {"id": frame.headers["ack"], "receipt": frame.body.decode()})
        is_refused(served, "data-not-writable")
        subprocess.run(["mount", "-o", "remount,rw", small], check=True)
        assert [answer(consumer) for _ in range(60)] == [("RECEIPT", str(number)) for number in range(60)]
    wait_until_good(served)
    kill(served)
    assert bodies(begun(serve, small)) == [b"%d" % number for number in range(60, 100)]


def test_senders_wait_for_a_disk_that_is_full_from_the_start_where_the_policy_is_block(
    serve: Serve, small: Path
) -> None:
    served = begun(serve, small)
    with Plain(served.port) as client:
        stored(client, b"before")
    kill(served)
    filling = fill(small)
    (small.parent / "broker" / "stompbox.toml").write_text('min-disk-free = 0\ndisk-full-policy = "BLOCK"\n')
    served = serve("--data", str(small / "data"), "--no-admin", "--listen", "tcp://127.0.0.1:0")
    with Plain(served.port) as client, Plain(served.port) as consumer:
        send(client, b"held")
        assert [frame.body for frame in messages(consumer)] == [b"before", b"held"]
        send(client, b"not even read")
        filling.unlink()
        assert [answer(client) for _ in range(2)] == [("RECEIPT", "held"), ("RECEIPT", "not even read")]
    kill(served)
    assert bodies(begun(serve, small)) == [b"before", b"held", b"not even read"]


def test_a_disk_that_is_full_or_read_only_from_the_start_is_named(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if not mounted(small):
        pytest.skip("a small file system cannot be mounted here")
    try:
        fill(small)
        refused = run_serve(
            tmp_path, "--data", str(small / "data"), "--no-admin", "--listen", "tcp://127.0.0.1:0"
        )
        assert_refused(refused, str(small / "data"), "full")
        assert subprocess.run(["mount", "-o", "remount,ro", small], check=False).returncode == 0
        refused = run_serve(
            tmp_path, "--data", str(small / "data"), "--no-admin", "--listen", "tcp://127.0.0.1:0"
        )
        assert_refused(refused, str(small / "data"), "Read-only file system")
    finally:
        subprocess.run(["umount", "-l", str(small)], check=False, capture_output=True)
