"""How many sockets a process may have."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from stompbox.server.transport import descriptors
from stompbox.server.transport.descriptors import MARGIN, WANTED

resource = pytest.importorskip("resource", reason="Windows has no such limit")
RAISED = (
    "from stompbox.server.transport import descriptors as d; d.raise_limit(); print(d.limit(), d.reachable())"
)


def limited(monkeypatch: pytest.MonkeyPatch, soft: int, hard: int) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (soft, hard))


def test_what_is_open_and_a_margin_are_left_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, 1024, 1024)
    is_open = len(os.listdir("/dev/fd"))
    assert descriptors.most_sockets() == 1024 - is_open - MARGIN


def test_there_is_room_for_some_however_few_files_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, 40, 40)
    assert descriptors.most_sockets() == 10


@pytest.mark.parametrize(
    ("soft", "hard", "reached"),
    [
        (1024, 4096, 4096),
        (1024, 1 << 20, WANTED),
        (1024, resource.RLIM_INFINITY, WANTED),
        (1 << 20, 1 << 20, 1 << 20),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, descriptors.UNLIMITED),
    ],
)
def test_as_many_as_the_system_lets_a_process_have(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, reached: int
) -> None:
    limited(monkeypatch, soft, hard)
    assert descriptors.reachable() == reached


def test_the_limit_of_a_shell_is_raised() -> None:
    shell = f"ulimit -Sn 200 && ulimit -Hn 300 && exec {sys.executable} -c '{RAISED}'"
    found = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["300", "300"]


def test_a_system_that_has_fewer_than_it_says_gives_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """As macOS does: no hard limit, and another one in its kernel."""
    now = [256]

    def set_to(_: int, wanted: tuple[int, int]) -> None:
        if wanted[0] > 61440:
            raise ValueError("current limit exceeds maximum limit")
        now[0] = wanted[0]

    monkeypatch.setattr("resource.getrlimit", lambda _: (now[0], resource.RLIM_INFINITY))
    monkeypatch.setattr("resource.setrlimit", set_to)
    descriptors.raise_limit()
    assert now == [WANTED // 2]
