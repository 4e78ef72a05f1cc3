"""A broker that is a copy is what a process of its own would be: its arguments, environment, folder, streams, signals and exit codes."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import forked
from tests.conftest import Served, end, start_broker

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere brokers are no copies")
WORDS = ("--memory", "--listen", "tcp://127.0.0.1:0", "--no-admin")
WITHIN = 60.0  # s


@contextmanager
def broker(folder: Path, *, own: bool = False) -> Iterator[Served]:
    """One that is a copy, or a process of its own."""
    served = start_broker(folder, *WORDS, through=("env",) if own else ())
    try:
        yield served
    finally:
        end(served)


def copy(folder: Path, *words: str) -> int:
    """The exit code of a copy that ends by itself; what it said is in `said`."""
    with (folder / "said").open("wb") as said:
        process = forked.Forked(words, folder, dict(os.environ), said)
    assert process.stdout is not None
    with process.stdout:
        return process.wait(WITHIN)


def opened(served: Served) -> int:
    return len(list(Path(f"/proc/{served.process.pid}/fd").iterdir()))


def test_brokers_of_tests_are_copies(tmp_path: Path) -> None:
    with broker(tmp_path / "one") as one, broker(tmp_path / "two") as two:
        assert isinstance(one.process, forked.Forked) and isinstance(two.process, forked.Forked)
        assert one.process.pid != two.process.pid and one.port != two.port
        assert Path(f"/proc/{one.process.pid}/cwd").resolve() == tmp_path / "one"


@pytest.mark.usefixtures("own_process")
def test_who_measures_a_broker_has_one_of_its_own(tmp_path: Path) -> None:
    with broker(tmp_path) as served:
        assert not isinstance(served.process, forked.Forked)


def test_it_has_nothing_open_that_one_of_its_own_has_not(tmp_path: Path) -> None:
    with broker(tmp_path / "own", own=True) as own, broker(tmp_path / "one"), broker(tmp_path / "two") as two:
        assert not isinstance(own.process, forked.Forked)
        assert opened(two) == opened(own)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -9)])
def test_it_hears_signals_and_its_end_is_told(tmp_path: Path, number: int, code: int) -> None:
    with broker(tmp_path) as served:
        assert served.process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            served.process.wait(0.01)
        served.process.send_signal(number)
        assert served.process.wait(WITHIN) == code
        assert served.process.poll() == code
        served.process.send_signal(number)  # to nobody


def test_several_may_wait_for_its_end(tmp_path: Path) -> None:
    with broker(tmp_path) as served, ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(served.process.wait, WITHIN) for _ in range(2)]
        served.process.kill()
        assert [each.result() for each in waiting] == [-9, -9]


def test_its_arguments_and_its_environment_are_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert copy(tmp_path, "serve", "--memry") == 2
    assert "--memry" in (tmp_path / "said").read_text()
    monkeypatch.setenv("STOMPBOX_FRONTS", "many")
    assert copy(tmp_path, "serve", *WORDS) == 2
    assert "many" in (tmp_path / "said").read_text()
    monkeypatch.delenv("STOMPBOX_FRONTS")
    with broker(tmp_path) as served:
        assert served.stop() == 0


def test_where_the_environment_is_another_it_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STOMPBOX_FRONTS", "JAVA_HOME"):  # tests of Spark leave the second one behind
        monkeypatch.setenv(name, "2")
    assert forked.is_possible(os.environ)
    for name in ("PYTHONMALLOC", "HOME", "COVERAGE_PROCESS_CONFIG"):
        assert not forked.is_possible({**os.environ, name: "else"})
    monkeypatch.setenv("HOME", "else")  # of this process, too: the first one has begun with its own
    assert not forked.is_possible(os.environ)


def test_what_is_imported_ahead_is_what_each_start_imports(tmp_path: Path) -> None:
    """Else a copy would have what a broker lacks, or has to import when it cannot."""
    ahead = f"import sys, {', '.join(forked.IMPORTED)}; print(*[name for name in sys.modules if name.startswith('stompbox')])"
    done = subprocess.run([sys.executable, "-c", ahead], capture_output=True, text=True, check=True)
    with socket.create_server(("127.0.0.1", 0)) as busy:  # where it cannot listen, and ends
        words = ["serve", "--memory", "--no-admin", "--listen", f"tcp://127.0.0.1:{busy.getsockname()[1]}"]
        command = [sys.executable, "-X", "importtime", "-m", "stompbox", *words]
        started = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "already in use" in started.stderr
    imported = {line.rpartition("|")[2].strip() for line in started.stderr.splitlines() if "|" in line}
    assert set(done.stdout.split()) - imported == set()


def test_a_command_is_given_told_and_ends_as_one_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wrong.toml").write_text("dat = 1\n")
    commands = (("--version",), ("config", "check", "wrong.toml"), ("user", "hash"))
    told = [forked.run(*words, given=b"geheim\n") for words in commands]
    with monkeypatch.context() as here:
        here.setattr(forked, "is_possible", lambda _: False)
        own = [forked.run(*words, given=b"geheim\n") for words in commands]
    for copied, each in zip(told, own, strict=True):
        assert (copied.args, copied.returncode, copied.stderr) == (each.args, each.returncode, each.stderr)
    assert told[0].stdout == own[0].stdout != b""
    assert told[1].returncode and b"dat" in told[1].stdout + told[1].stderr
    assert told[2].stdout and not told[2].returncode


def test_a_command_that_does_not_end_in_time_is_ended() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        forked.run("serve", *WORDS, within=0.01)


SAYS = """
import os, sys
print(__name__, sys.argv[1:], os.getcwd(), os.environ["TESTED"], sys.path[:2], hash("a"), sys.stdin.read(), os.getppid())
print("else", file=sys.stderr, flush=True)
sys.exit(3)
"""
WAITS = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n"


def test_a_python_for_spark_is_a_copy_that_is_started_as_any(python: str, tmp_path: Path) -> None:
    """From a file, as Java starts it, with what it hears, says and ends with."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "says.py").write_text(SAYS)
    environment = {
        **os.environ,
        "TESTED": "ä\udcff",
        "PYTHONPATH": f"{tmp_path / 'modules'}",
        "PYTHONHASHSEED": "0",
    }
    words = ["-m", "says", "one", "and two"]
    copied, own = [
        subprocess.run([each, *words], input=b"given", capture_output=True, cwd=tmp_path, env=environment, check=False)
        for each in (python, sys.executable)
    ]  # fmt: skip
    parents = [int(each.stdout.split()[-1]) for each in (copied, own)]
    assert parents[0] != parents[1] == os.getpid()
    assert copied.stdout.rpartition(b" ")[0] == own.stdout.rpartition(b" ")[0] != b""
    assert (copied.returncode, copied.stderr) == (own.returncode, own.stderr) == (3, b"else\n")
    done = subprocess.run([python, "-c", "print(6 * 7)"], capture_output=True, check=True)
    assert done.stdout == b"42\n", "what is no module is no copy"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_python_for_spark_ends_with_what_was_started(
    python: str, number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "waits.py").write_text(WAITS)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [python, "-m", "waits"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        handle = os.pidfd_open(int(started.stdout.readline()))
        started.send_signal(number)
        assert started.stdout.read() == b"", "its output ends with it"
        assert started.wait(WITHIN) == -number
    with open(handle), select.epoll() as ended:
        ended.register(handle, select.EPOLLIN)
        assert ended.poll(WITHIN)


def test_how_a_python_for_spark_was_killed_is_told(python: str, tmp_path: Path) -> None:
    (tmp_path / "waits.py").write_text(WAITS)
    with subprocess.Popen([python, "-m", "waits"], cwd=tmp_path, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        os.kill(int(started.stdout.readline()), signal.SIGKILL)
        assert started.wait(WITHIN) == -signal.SIGKILL


def test_what_is_imported_ahead_for_spark_starts_nothing(python: str, tmp_path: Path) -> None:
    """A copy has one thread alone, and none of those that an import has started, but for the one that jemalloc starts again itself."""
    (tmp_path / "counts.py").write_text(
        "import os, pathlib, sys; print('pyarrow' in sys.modules, len(os.listdir('/proc/self/task')))"
        "; print(*[each.read_text() for each in pathlib.Path(f'/proc/{os.getppid()}/task').glob('*/comm')])"
    )
    done = subprocess.run([python, "-m", "counts"], cwd=tmp_path, capture_output=True, check=True)
    is_imported, threads, *names = done.stdout.split()
    assert (is_imported, threads) == (b"True", b"1")
    assert {name for name in names if not name.startswith(b"python")} <= {b"jemalloc_bg_thd"}
