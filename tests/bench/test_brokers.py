"""What a broker takes of the machine is read from the kernel, all its processes together."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from bench.brokers import BenchError, cpu_seconds, descendants, memory_mib, peers_sh

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_memory_counts_the_processes_that_a_process_started() -> None:
    script = "import sys; held = bytearray(64 << 20); print('up', flush=True); sys.stdin.read()"
    before = memory_mib(os.getpid(), "VmRSS")
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        assert child.pid in descendants(os.getpid())
        assert memory_mib(child.pid, "VmRSS") > 64
        assert memory_mib(child.pid, "VmHWM") > 64
        assert memory_mib(os.getpid(), "VmRSS") > before + 60
        child.communicate()
    assert descendants(child.pid) == []
    assert memory_mib(child.pid, "VmRSS") == 0


def test_what_another_thread_has_started_counts_and_not_where_it_is_asked_for_one_process_alone() -> None:
    """As the fronts of a broker."""
    script = (
        "import sys, time\nwhile time.process_time() < 0.1: pass\nprint('done', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script]
    with ThreadPoolExecutor(1) as pool:
        child = pool.submit(subprocess.Popen, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE).result()
        with child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"done\n"
            assert child.pid in descendants(os.getpid())
            assert cpu_seconds(child.pid) >= 0.08
            assert cpu_seconds(os.getpid()) >= cpu_seconds(os.getpid(), is_alone=True) + 0.08
            child.communicate()


def test_a_peer_that_is_not_known_is_refused_with_the_usage() -> None:
    with pytest.raises(BenchError, match=r"peers.sh start nosuch ended with status 2"):
        peers_sh("start", "nosuch")
