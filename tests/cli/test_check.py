"""`stompbox check`: the line, its performance data, and the exit codes that monitoring reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stompbox.cli.check import MEASURES
from tests.admin.conftest import PLACES
from tests.admin.test_views import request
from tests.cli.test_operating import send, served, stompbox
from tests.conftest import Serve, Served
from tests.system.plain import Plain

__all__ = ("served",)


def values(line: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", line.partition(" | ")[2])}


def test_ok_with_every_measure(served: Served) -> None:
    done = stompbox(served, "check")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("STOMPBOX OK: ") and done.stdout.count("\n") == 1
    assert list(values(done.stdout)) == list(MEASURES)


def test_limits(served: Served) -> None:
    before = values(stompbox(served, "check").stdout)["ready"]
    send(served, "/queue/ck.ready", *[b"x"] * 3)
    ready = before + 3
    assert stompbox(served, "check", "-w", f"ready={ready}").returncode == 0
    over = stompbox(served, "check", "-w", f"ready={ready - 1}", "-c", f"ready={ready}")
    assert over.returncode == 1
    assert over.stdout.startswith(f"STOMPBOX WARNING: ready is {ready}, more than {ready - 1} | ")
    worse = stompbox(served, "check", "--warning", "ready=0", "--critical", f"ready={ready - 1}")
    assert worse.returncode == 2 and worse.stdout.startswith("STOMPBOX CRITICAL: ready is")


def test_dead_letters_deliveries_and_lags_are_counted(served: Served) -> None:
    before = values(stompbox(served, "check").stdout)
    send(served, "/queue/ck.dead", b"x")
    with Plain(served.port) as client:
        request(
            client, "group-open", group="ck", destinations="/queue/ck.lag", create="true", starting="earliest"
        )
        send(served, "/queue/ck.lag", b"1", b"2")
        client.send("SUBSCRIBE", {"destination": "/queue/ck.dead", "id": "1", "ack": "client-individual"})
        ack = client.receive().headers["ack"]
        assert values(stompbox(served, "check").stdout)["delivering"] == before["delivering"] + 1
        client.send("NACK", {"id": ack, "requeue": "false", "receipt": "r"})
        assert client.receive().command == "RECEIPT"
    found = values(stompbox(served, "check").stdout)
    assert found["dead"] == before["dead"] + 1
    assert found["lag"] >= 2


def test_not_ready_is_critical(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "full.toml").write_text('min-disk-free = "1000TiB"\n')
    served = serve("--config", str(tmp_path / "full.toml"), "--data", str(tmp_path / "data"), *PLACES)
    done = stompbox(served, "check")
    assert done.returncode == 2 and done.stdout.startswith("STOMPBOX CRITICAL: ")


def test_nobody_there_is_critical(served: Served) -> None:
    done = stompbox(served, "check", "--admin", "127.0.0.1:1")
    assert done.returncode == 2
    assert done.stdout.startswith("STOMPBOX CRITICAL: no broker answers at http://127.0.0.1:1")


@pytest.mark.parametrize("limit", ["many=3", "ready", "ready=", "ready=-1", "ready=1e3", "=3"])
def test_a_limit_that_is_none_is_unknown(served: Served, limit: str) -> None:
    done = stompbox(served, "check", "--warning", limit)
    assert done.returncode == 3
    assert f"--warning is '{limit}'; allowed is NAME=MOST" in done.stdout


def test_what_is_no_broker_is_unknown(served: Served) -> None:
    done = stompbox(served, "check", "--admin", f"127.0.0.1:{served.port}")
    assert done.returncode == 3 and done.stdout.startswith("STOMPBOX UNKNOWN: ")
