"""`stompbox pipeline` as a process: what it prints, how it is stopped, and its exit codes."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from stompbox import blocking
from tests.admin.asking import read
from tests.conftest import Serve

WITHIN = 240.0  # s until a run has said something, or has ended: four start on a busy machine
ARCHIVE = '[[archive]]\nname = "orders"\ndestinations = ["/queue/orders"]\ntable = "table"\ntrigger = 0.1\n'


def call(*arguments: str | Path, url: str = "stomp://127.0.0.1:1") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stompbox", "pipeline", *map(str, arguments)]
    environment = {**os.environ, "STOMPBOX_URL": url}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=WITHIN, env=environment, check=False
    )


def events(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    printed = b""
    with selectors.DefaultSelector() as waiting:
        waiting.register(process.stdout, selectors.EVENT_READ)
        while waiting.select(WITHIN):
            octets = os.read(process.stdout.fileno(), 65536)
            if not octets:
                return
            *lines, printed = (printed + octets).split(b"\n")
            yield from (json.loads(line) for line in lines)
    pytest.fail("the run said nothing more")


def test_init_writes_an_example_that_is_right_and_overwrites_nothing(tmp_path: Path) -> None:
    file = tmp_path / "lake.toml"
    done = call("init", file)
    assert (done.returncode, file.exists()) == (0, True)
    done = call("check", file)
    assert (
        done.returncode,
        done.stdout.startswith("good: archive orders, transform orders-per-minute, "),
    ) == (0, True)
    done = call("init", file)
    assert (done.returncode, "there already" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("text", "arguments", "code", "said"),
    [
        (
            ARCHIVE + 'formt = "delta"\n',
            ["check"],
            2,
            "lake.toml:6: archive[0].formt: unknown key; the nearest known name is 'format'",
        ),
        (ARCHIVE + "reconnect-timeout = 1\n", ["run"], 2, "unknown key"),
        ("reconnect-timeout = 0\n" + ARCHIVE, ["run", "--step", "order"], 2, "--step 'order' is no step of"),
        ("reconnect-timeout = 0\n" + ARCHIVE, ["run"], 3, "no broker at stomp://127.0.0.1:1"),
        ("reconnect-timeout = 0\n" + ARCHIVE, ["run", "--dry-run"], 3, "no broker at stomp://127.0.0.1:1"),
    ],
)
def test_what_is_wrong_is_one_line_and_an_exit_code(
    text: str, arguments: list[str], code: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "lake.toml").write_text(text)
    done = call(arguments[0], tmp_path / "lake.toml", *arguments[1:])
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert done.stderr.startswith("stompbox pipeline: ") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM])
def test_streams_go_on_until_a_signal_and_end_well(
    number: signal.Signals, serve: Serve, tmp_path: Path
) -> None:
    served = serve("--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0")
    url = f"stomp://{served.host}:{served.port}"
    with blocking.connect(url) as client:
        client.send("/queue/orders", b"first")
        file = tmp_path / "lake.toml"
        file.write_text(ARCHIVE + '[[audit]]\nname = "audit"\narchive = "orders"\n')
        planned = call("run", file, "--dry-run", "--json", url=url)
        archive = json.loads(planned.stdout.splitlines()[0])
        assert archive["addresses"] == [
            {"address": "orders", "first": 0, "next": 1, "position": 0, "waiting": 1}
        ]
        assert [path.name for path in tmp_path.iterdir()] == ["lake.toml", "broker"] or not (
            tmp_path / "table"
        ).exists()
        command = [sys.executable, "-m", "stompbox", "pipeline", "run", str(file), "--json"]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "STOMPBOX_URL": url},
            start_new_session=True,
        ) as process:
            try:
                rows, said = 0, []
                for event in events(process):
                    said.append(event)
                    if event["event"] == "batch":
                        rows += event["rows"]
                        if rows == 1:
                            client.send("/queue/orders", b"second")
                        elif rows == 2:
                            os.killpg(process.pid, number)  # as Ctrl-C would, to all of the group
                code = process.wait(WITHIN)
            finally:
                if process.poll() is None:
                    process.kill()
            assert process.stderr is not None
            assert (code, rows, process.stderr.read()) == (0, 2, b"")
    assert said[0] == {
        "event": "warning",
        "step": "audit",
        "text": "audit runs with --once, or with --step audit",
    }
    assert said[-1] == {"event": "finished", "step": "orders", "text": "2 rows", "facts": {"rows": 2}}
    [told] = read(served.admin, "pipelines")["pipelines"]
    assert (told["pipeline"], told["step"], told["state"], told["rows"], told["lag_messages"]) == (
        "lake",
        "orders",
        "done",
        2,
        0,
    )
    planned = call("run", file, "--dry-run", url=url)
    assert (
        "(2 rows in " in planned.stdout
        and "orders: offsets 0 to 2, goes on at 2, 0 waiting" in planned.stdout
    )
