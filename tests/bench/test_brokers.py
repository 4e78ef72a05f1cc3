"""What a broker takes of the machine is read from the kernel, all its processes together."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from bench.brokers import BenchError, descendants, memory_mib, peers_sh

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
        assert memory_mib(child.pid, "VmHWM") >= memory_mib(child.pid, "VmRSS")
        assert memory_mib(os.getpid(), "VmRSS") > before + 60
        child.communicate()
    assert descendants(child.pid) == []
    assert memory_mib(child.pid, "VmRSS") == 0


def test_a_peer_that_is_not_known_is_refused_with_the_usage() -> None:
    with pytest.raises(BenchError, match=r"peers.sh start nosuch ended with status 2"):
        peers_sh("start", "nosuch")
