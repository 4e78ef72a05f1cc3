"""`stompbox store`: what it prints, its exit codes, and that it works beside a broker."""

from __future__ import annotations

import json
import os
import pty
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from cyclopts import App

from stompbox.broker.engine import Engine
from stompbox.broker.recovery import recover
from stompbox.cli.store import app
from stompbox.commitlog.replicated import Local, Position
from stompbox.config.settings import AddressSettings, AddressSettingsTable
from stompbox.errors import StoreError
from stompbox.incarnations import INCARNATIONS
from stompbox.store import folder, schema
from stompbox.store.base import Commit
from stompbox.store.sqlite import SqliteStore
from tests.cli.conftest import Run
from tests.conftest import Serve
from tests.store.runs import run as messages
from tests.system.plain import Plain

GOOD = (
    "good; messages 300, chunks 300, addresses 1; 0.1 MiB, of the file 0.0 MiB are free; "
    f"schema version {schema.SCHEMA_VERSION}\n"
)  # fmt: skip


@pytest.fixture
def run(running: Callable[[App], Run]) -> Run:
    """The command in an empty folder: (exit code, stdout, stderr)."""
    return running(app)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Where the configuration says that it is if nobody says anything."""
    path = tmp_path / "stompbox-data"
    with closing(SqliteStore(path, synchronous=False)) as store:
        store.apply(Commit(logs={1: "orders"}))
        for first in range(300):
            store.apply(Commit(runs={1: [messages(first)]}))
    return path


def change(data: Path, statement: str) -> None:
    with closing(sqlite3.connect(data / folder.DATABASE, isolation_level=None)) as other:
        other.execute(statement)


def test_a_good_store(run: Run, data: Path) -> None:
    assert run("check") == (0, f"stompbox-data: {GOOD}", "")
    assert run("check", "--data", str(data)) == (0, f"{data}: {GOOD}", "")
    code, out, _ = run("check", "--json")
    assert code == 0
    assert json.loads(out) == {
        "folder": "stompbox-data", "problems": [], "schema-version": schema.SCHEMA_VERSION, "addresses": 1, "chunks": 300,
        "messages": 300, "message-bytes": json.loads(out)["message-bytes"], "free-bytes": 0,
        "logs": {"orders": {"next": 300, "incarnations": []}},
    }  # fmt: skip


def test_which_log_it_is(run: Run, data: Path) -> None:
    with closing(SqliteStore(data)) as store:
        store.apply(Commit(entries={(INCARNATIONS, "1"): b'[["a",0]]'}))
    assert run("check")[1].startswith("orders: 300 is the next offset; incarnation a from offset 0 on\n")
    assert run("backup", "copy")[0] == 0
    code, out, _ = run("check", "--data", "copy", "--json")
    ((_, first), (second, begin)) = json.loads(out)["logs"]["orders"]["incarnations"]
    assert (code, first, begin) == (0, 0, 300)
    assert f"incarnation {second} from offset 300 on, a from offset 0 on" in run("check", "--data", "copy")[1]


def test_a_damaged_store(run: Run, data: Path) -> None:
    change(data, "UPDATE chunk SET newest = 9 WHERE first = 1")
    change(data, "UPDATE chunk SET count = 2 WHERE first = 3")
    code, out, err = run("check")
    place = "stompbox-data/stompbox.db: log 1, chunk at offset"
    assert (code, err) == (1, "")
    assert out.splitlines()[:4] == [
        "stompbox-data/stompbox.db: the index of table chunk does not say what was stored",
        f"{place} 4: the one before reaches up to 5",
        f"{place} 1: the row does not say what the chunk says",
        f"{place} 3: the row does not say what the chunk says",
    ]
    assert "4 problems" in out
    code, out, _ = run("check", "--json")
    assert (code, len(json.loads(out)["problems"])) == (1, 4)


def test_what_a_broker_would_refuse_is_damage_too(run: Run, data: Path) -> None:
    with closing(SqliteStore(data)) as store:
        store.apply(Commit(cursors={7: (1, 0)}))
    code, out, _ = run("check")
    assert code == 1
    assert "cursor 7 of log 1 belongs to nothing in the catalogue" in out


@pytest.mark.parametrize("command", ["check", "compact", "backup", "restore"])
def test_a_store_that_is_not_there(run: Run, tmp_path: Path, command: str) -> None:
    words = {"check": (), "compact": (), "backup": ("copy",), "restore": ("nowhere",)}[command]
    code, out, err = run(command, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"stompbox store {command}: data folder ")
    assert "there is no such folder" in err
    assert list(tmp_path.iterdir()) == []
    code, _, err = run(command, *words, "--data", str(tmp_path))
    assert code == 2
    assert "no store, it is empty" in err or "there is no such folder" in err


@pytest.mark.parametrize("command", ["check", "compact", "backup"])
@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("PRAGMA user_version = 99", "written by a newer broker"),
        ("PRAGMA application_id = 1", "of another program"),
    ],
)
def test_a_file_that_is_not_for_us(run: Run, data: Path, command: str, statement: str, says: str) -> None:
    change(data, statement)
    code, out, err = run(command, *(("copy",) if command == "backup" else ()))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err and "stompbox.db" in err


def test_memory_has_no_store(run: Run, tmp_path: Path) -> None:
    (tmp_path / "stompbox.toml").write_text("memory = true\n")
    code, _, err = run("check")
    assert code == 2
    assert "memory = true" in err


def test_compact(run: Run, data: Path) -> None:
    code, out, err = run("compact", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["bytes-after"] < told["bytes-before"]
    assert "messages 300, chunks 1," in run("check")[1]
    assert run("compact")[1].startswith("stompbox-data: ")


def test_backup_and_restore(run: Run, data: Path, tmp_path: Path) -> None:
    code, out, err = run("backup", "copy")
    assert (code, err) == (0, "")
    assert out.startswith("stompbox-data backed up to copy: ") and out.endswith("MiB, checked\n")
    code, _, err = run("restore", "copy")
    assert code == 2
    assert "folder stompbox-data is not empty: a store is in it. Nothing was changed" in err
    for path in data.iterdir():
        path.unlink()
    data.rmdir()
    assert run("restore", "copy", "--json")[0] == 0
    assert run("check")[:2] == (0, f"stompbox-data: {GOOD}")


def test_beside_a_broker(run: Run, serve: Serve, tmp_path: Path) -> None:
    """A check and a backup see what has a receipt; the copy is a broker's data; only compact must wait."""
    data, copy = tmp_path / "live", tmp_path / "copy"
    arguments = ("--no-admin", "--listen", "tcp://127.0.0.1:0")
    served = serve("--data", str(data), *arguments)
    with Plain(served.port) as client:
        for number in range(20):
            client.send("SEND", {"destination": "/queue/kept", "receipt": str(number)}, b"%d" % number)
        assert [client.receive().command for _ in range(20)] == ["RECEIPT"] * 20
    assert run("check", "--data", str(data))[0] == 0
    assert run("backup", str(copy), "--data", str(data))[0] == 0
    code, _, err = run("compact", "--data", str(data))
    assert code == 2
    assert f"in use by another broker (process {served.process.pid})" in err
    again = serve("--data", str(copy), *arguments)
    with Plain(again.port) as client:
        client.send("SUBSCRIBE", {"destination": "/queue/kept", "id": "1"})
        assert [client.receive().body for _ in range(20)] == [b"%d" % number for number in range(20)]


def test_a_terminal_sees_a_bar(data: Path) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    command = [sys.executable, "-m", "stompbox", "store", "check", "--data", str(data)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while octets := os.read(ours, 65536):
            shown += octets
    except OSError:  # what Linux says when the other side of a terminal is gone
        pass
    finally:
        os.close(ours)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out.decode() == f"{data}: {GOOD}"
    assert b"checking chunks" in shown and b"300/300" in shown


@contextmanager
def somebody_else() -> Iterator[None]:
    """Root is nobody for a while: he may do everything, and this is about who may not."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("command", ["check", "compact", "backup"])
@pytest.mark.parametrize("what", ["folder", "file", "read-only"])
def test_a_store_of_somebody_else(run: Run, data: Path, tmp_path: Path, command: str, what: str) -> None:
    run("check")  # what it imports is not for everybody's eyes either
    copy = tmp_path / "copies" / "copy"
    copy.parent.mkdir(mode=0o777)
    copy.parent.chmod(0o777)
    for path in (tmp_path, *tmp_path.parents):
        if path.owner() == tmp_path.owner() and not path.stat().st_mode & 0o005:
            path.chmod(0o755)
    modes = {"folder": (0o000, 0o600), "file": (0o555, 0o000), "read-only": (0o555, 0o444)}[what]
    (data / folder.DATABASE).chmod(modes[1])
    data.chmod(modes[0])
    with somebody_else():
        code, out, err = run(command, "--data", str(data), *((str(copy),) if command == "backup" else ()))
    data.chmod(0o700)
    assert code == (0 if what == "read-only" and command != "compact" else 2), (
        "what is not written to need not be writable"
    )
    if code:
        assert err.startswith(f"stompbox store {command}: ") and str(data) in err and "Traceback" not in err
        assert (out, err.count("\n")) == ("", 1)


def test_a_broker_on_damaged_data_says_so_and_starts_when_loss_is_accepted(
    serve: Serve, tmp_path: Path
) -> None:
    data = tmp_path / "live"
    arguments = ("--data", str(data), "--no-admin", "--listen", "tcp://127.0.0.1:0")
    served = serve(*arguments)
    with Plain(served.port) as client:
        for number in range(20):
            client.send("SEND", {"destination": "/queue/kept", "receipt": str(number)}, b"%d" % number)
            assert client.receive().command == "RECEIPT"
    served.process.kill()
    served.process.wait()
    log = data / "stompbox.db-wal"
    log.write_bytes(log.read_bytes()[:100])
    for _ in range(2):
        command = [sys.executable, "-m", "stompbox", "serve", *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (ended.returncode, ended.stdout) == (3, "")
        assert (
            "were confirmed" in ended.stderr
            and "--accept-loss" in ended.stderr
            and "(data-missing)" in ended.stderr
        )
        assert "Traceback" not in ended.stderr
    again = serve(*arguments, "--accept-loss")
    assert "accepted (data-missing)" in again.log.read_text()
    assert again.stop() == 0
    assert serve(*arguments).stop() == 0


def test_a_node_of_a_cluster(run: Run, tmp_path: Path) -> None:
    """Its store is read through like any other. No broker that is alone starts on it, and one starts on a backup of it."""
    node, alone = tmp_path / "stompbox-data", tmp_path / "copy"
    with closing(SqliteStore(node)) as store:
        Local(store, "orders/1").apply(Commit(entries={("group-position", "x"): b"{}"}), Position(7, 1))
    assert run("check")[0] == 0
    assert run("backup", str(alone))[0] == 0
    engine = Engine(AddressSettingsTable((), AddressSettings()))
    with closing(SqliteStore(node)) as store, pytest.raises(StoreError, match=r"no \[cluster\]") as caught:
        recover(engine, store.recover())
    assert caught.value.code == "data-of-another-cluster"
    with closing(SqliteStore(alone)) as store:
        recover(engine, store.recover())
