"""What a system without POSIX gets: client, command line, tests' broker and a broker in memory; of the rest a clear word. One with POSIX
and without what Linux alone has gets all of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.system.plain import Plain

ABSENT = [sys.executable, "-m", "tests.system.absent"]


def run(*arguments: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ABSENT, *arguments], capture_output=True, text=True, check=False, timeout=120, cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
    )  # fmt: skip


@pytest.mark.parametrize(
    "modules",
    [
        "stompbox, stompbox.blocking, stompbox.testing, stompbox.pytest_plugin",
        "stompbox.server.run, stompbox.admin.http, stompbox.server.fronts.fronts, stompbox.store",
        "stompbox.cli.serve, stompbox.cli.doctor, stompbox.cli.pipeline, stompbox.cli.store",
    ],
)
def test_it_loads(modules: str) -> None:
    done = run("-c", f"import {modules}")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_broker_in_memory_pages_and_answers(tmp_path: Path) -> None:
    (tmp_path / "stompbox.toml").write_text(
        'memory = true\nglobal-max-size = "1MiB"\n[[address-setting]]\nmatch = "#"\nmax-size-bytes = "64KiB"\n'
    )
    command = [*ABSENT, "-m", "stompbox", "serve", "--config", str(tmp_path / "stompbox.toml")]
    places = ("--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0")
    with subprocess.Popen([*command, *places], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            lines = list(takewhile(lambda line: line != "ready\n", process.stdout))
            urls = [line.split()[-1] for line in lines]
            port = next(int(url.rpartition(":")[2]) for url in urls if url.startswith("tcp:"))
            admin = next(url for url in urls if url.startswith("http:")).rstrip("/")
            with Plain(port) as client:
                bodies = [b"%06d" % number * 5000 for number in range(40)]
                for body in bodies:
                    client.send("SEND", {"destination": "/queue/paged", "receipt": "r"}, body)
                    assert client.receive().headers["receipt-id"] == "r"
                client.send("SEND", {"destination": "/queue/large", "receipt": "r"}, b"x" * 300_000)
                assert client.receive().headers["receipt-id"] == "r"
                for destination, expected in (("/queue/paged", bodies), ("/queue/large", [b"x" * 300_000])):
                    client.send("SUBSCRIBE", {"destination": destination, "id": destination, "ack": "auto"})
                    assert [client.receive().body for _ in expected] == expected
            with urllib.request.urlopen(f"{admin}/api/v1/status", timeout=30) as answer:
                assert json.load(answer)["is_ready"] is True
            with urllib.request.urlopen(f"{admin}/metrics", timeout=30) as answer:
                assert b"stompbox_connections" in answer.read()
        finally:
            process.terminate()
        assert process.wait(timeout=60) is not None


def test_a_data_folder_is_refused_in_a_line(tmp_path: Path) -> None:
    done = run(
        "-m",
        "stompbox",
        "serve",
        "--data",
        str(tmp_path / "d"),
        "--listen",
        "tcp://127.0.0.1:0",
        "--no-admin",
        folder=tmp_path,
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "has no file locks" in done.stderr and "--memory" in done.stderr
    assert not (tmp_path / "d").exists()


def test_the_doctor_says_so_too(tmp_path: Path) -> None:
    done = run("-m", "stompbox", "doctor", folder=tmp_path)
    assert "Traceback" not in done.stderr
    assert "has no file locks" in done.stdout


def test_files_to_listen_at_are_refused_in_a_line(tmp_path: Path) -> None:
    done = run(
        "-m",
        "stompbox",
        "serve",
        "--memory",
        "--listen",
        f"unix://{tmp_path}/s",
        "--no-admin",
        folder=tmp_path,
    )
    assert done.returncode != 0 and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr


# --- what macOS has not ---------------------------------------------------------------------------------------------------------


@contextmanager
def without_linux(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """(process, port, URL of the admin interface)"""
    places = ("--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", str(folder / "data"))
    with subprocess.Popen(
        [*ABSENT, "-m", "stompbox", "serve", *places, *options],
        stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "ABSENT": "macos", "PYTHONPATH": str(ROOT / "src")},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            urls = [line.split()[-1] for line in takewhile(lambda line: line != "ready\n", process.stdout)]
            port = next(int(url.rpartition(":")[2]) for url in urls if url.startswith("tcp:"))
            yield process, port, next(url for url in urls if url.startswith("http:")).rstrip("/")
        finally:
            process.terminate()


@pytest.mark.parametrize("options", [(), ("--fronts", "2")], ids=["alone", "fronts"])
def test_without_what_linux_alone_has_confirmed_messages_are_kept(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    bodies = [b"42 apples", b"7 pears", b"x" * 300_000, b"1 plum"]
    with without_linux(tmp_path, *options) as (process, port, admin), Plain(port) as client:
        for body in bodies:
            client.send("SEND", {"destination": "/queue/kept", "receipt": "r"}, body)
            assert client.receive().headers["receipt-id"] == "r"
        with urllib.request.urlopen(f"{admin}/api/v1/status", timeout=30) as answer:
            assert json.load(answer)["is_durable"] is True
        with urllib.request.urlopen(f"{admin}/metrics", timeout=30) as answer:
            assert b"stompbox_disk_free_bytes" in answer.read()
        assert (tmp_path / "data" / "stompbox.journal").exists()
        process.kill()
    with without_linux(tmp_path, *options) as (_, port, _), Plain(port) as client:
        client.send("SUBSCRIBE", {"destination": "/queue/kept", "id": "1", "ack": "auto"})
        assert [client.receive().body for _ in bodies] == bodies
