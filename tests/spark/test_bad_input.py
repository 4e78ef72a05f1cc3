"""What users see of what is wrong: our sentence first, no stack of Python, none of Java. In short here; all of the table with SOAK=1."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("pyspark")

from stompbox import blocking
from stompbox.errors import UsageError
from stompbox.spark import faults
from stompbox.spark.bounds import EARLIEST
from stompbox.spark.link import leased
from stompbox.spark.options import Given, target_of
from stompbox.spark.requests import describe, open_group
from tests.conftest import ROOT, end, start_broker
from tests.spark.bad_input import CASES, USER, USERS, WITHIN, Case, provoke
from tests.spark.fake_broker import PEM
from tests.spark.soak import free_port, of_session


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A broker with users, without and with TLS; with three messages at open.a. And one that is not there."""
    folder = tmp_path_factory.mktemp("broker")
    (folder / "users.toml").write_text(USERS)
    listeners = ("--listen", "tcp://127.0.0.1:0", "--listen", f"ssl://127.0.0.1:0?keyStorePath={PEM}")
    served = start_broker(folder, "--memory", *listeners, "--no-admin", "--config", "users.toml")
    plain, tls = (f"127.0.0.1:{urlsplit(listener).port}" for listener in served.listeners)
    with leased(target_of(Given({"url": f"stomp://{plain}", **USER}))) as link:
        describe(link, "/topic/open.a", create=True)
        open_group(link, "hold", "/topic/open.a", EARLIEST)
    with blocking.connect(f"stomp://{USER['login']}:{USER['passcode']}@{plain}") as client:
        for _ in range(3):
            client.send("/topic/open.a", b"x")
    yield {"plain": f"stomp://{plain}", "tls": f"stomps://{tls}", "away": f"stomp://127.0.0.1:{free_port()}"}
    end(served)


def check(case: Case, said: str) -> None:
    """The shape that docs/spark.md promises."""
    lines = said.strip().splitlines()
    assert case.words in said, said
    assert case.in_task or case.words in lines[0], said
    assert "Traceback" not in said
    assert "at org.apache" not in said
    assert USER["passcode"] not in said


@pytest.mark.parametrize("case", [case for case in CASES if case.short or "SOAK" in os.environ], ids=str)
def test_what_is_wrong_is_said_first(spark: Any, urls: Mapping[str, str], case: Case) -> None:
    check(case, provoke(spark, case, urls))


def test_the_same_with_spark_connect(urls: Mapping[str, str]) -> None:
    """One case of each kind; the classic session has said all of them."""
    pytest.importorskip("grpc")
    short = {(case.how, case.in_task): number for number, case in enumerate(CASES) if case.short or "SOAK" in os.environ}
    numbers = list(short.values()) if "SOAK" not in os.environ else list(range(len(CASES)))
    command = [sys.executable, "-m", "tests.spark.bad_input", json.dumps(urls), json.dumps(numbers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, start_new_session=True) as process:
        try:
            printed, errors = process.communicate(timeout=WITHIN * len(numbers))
        finally:
            for pid, _ in of_session(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert process.returncode == 0, errors.decode()[-3000:]
    for number, said in zip(numbers, json.loads(printed.splitlines()[-1]), strict=True):
        check(CASES[number], said)


def test_only_our_own_faults_lose_their_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_PYTHON_RUNTIME", "PYTHON_WORKER")
    monkeypatch.delenv(faults.HIDE, raising=False)

    @faults.plain
    def failing(fault: Exception) -> None:
        raise fault

    with pytest.raises(ZeroDivisionError):
        failing(ZeroDivisionError())
    assert faults.HIDE not in os.environ
    with pytest.raises(UsageError):
        failing(UsageError("bad-option", "as the test asked"))
    assert os.environ[faults.HIDE] == "1"


def test_nothing_changes_outside_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*faults._WORKERS, faults.HIDE):
        monkeypatch.delenv(name, raising=False)

    @faults.plain
    def counted() -> Iterator[int]:
        yield 1
        raise UsageError("bad-option", "as the test asked")

    numbers = counted()
    assert next(numbers) == 1
    with pytest.raises(UsageError, match="as the test asked"):
        next(numbers)
    assert faults.HIDE not in os.environ
