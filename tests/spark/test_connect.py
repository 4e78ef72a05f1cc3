"""Spark Connect: what it reads, writes and streams arrives once, and what is wrong is said as in a session of the other kind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("pyspark")

from stompbox.spark.link import forget
from tests.conftest import ROOT
from tests.spark.bad_input import CASES, WITHIN, check
from tests.spark.fake_broker import FakeBroker
from tests.spark.soak import of_session

# one of each kind
SHORT = {(case.how, case.in_task): number for number, case in enumerate(CASES) if case.short}
NUMBERS = list(range(len(CASES))) if "SOAK" in os.environ else list(SHORT.values())


@dataclass(frozen=True, slots=True)
class Spoken:
    """What one session, whose start takes longer than all that it does, has done and said."""

    rows: int
    sent: list[bytes]
    copied: list[bytes]
    said: list[str]


@pytest.fixture(scope="module")
def spoken(urls: Mapping[str, str]) -> Iterator[Spoken]:
    pytest.importorskip("grpc")
    fake = FakeBroker()
    fake.send("/topic/f.a", [b"%d" % number for number in range(1000)], kind="x")
    found = run(fake.url, json.dumps(urls), json.dumps(NUMBERS))
    yield Spoken(found["rows"], fake.logs["f.a"].bodies(), fake.logs["copy"].bodies(), found["said"])
    forget()
    fake.close()


def run(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.spark.connect", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, start_new_session=True
    ) as process:
        try:
            printed, errors = process.communicate(timeout=WITHIN * (len(NUMBERS) + 3))
        finally:
            for pid, _ in of_session(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    assert process.returncode == 0, errors.decode()[-3000:]
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def test_a_batch_and_a_stream_are_copied_once(spoken: Spoken) -> None:
    assert spoken.rows == 2 * len(spoken.sent) == 2000
    assert sorted(spoken.copied) == sorted(2 * spoken.sent)


@pytest.mark.parametrize("at", range(len(NUMBERS)), ids=[str(CASES[number]) for number in NUMBERS])
def test_what_is_wrong_is_said_first(spoken: Spoken, at: int) -> None:
    """One case of each kind; the classic session has said all of them."""
    check(CASES[NUMBERS[at]], spoken.said[at])
