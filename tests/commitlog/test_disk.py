"""A log in a folder: several processes, one that is killed or stopped in the middle, damage, a full disk."""

from __future__ import annotations

import fcntl
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stompbox.commitlog.base import CommitLog, Fenced, Kind, LogError
from stompbox.commitlog.disk import DiskLog
from tests.commitlog.logs import DEADLINE, commit, in_thread, read_to

APPENDS = """
import sys
from pathlib import Path
from stompbox.commitlog.base import Fenced, Kind
from stompbox.commitlog.disk import DiskLog

log = DiskLog(Path(sys.argv[1]), "orders", segment=3000)
last = log.last()
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    while True:
        try:
            last = log.append(last, 1, Kind.COMMIT, f"{sys.argv[2]} {number} ".encode() * 9)
            break
        except Fenced:
            last = log.last()
print("done", flush=True)
"""


@contextmanager
def appending(folder: Path, name: str, count: int) -> Iterator[subprocess.Popen[str]]:
    """A process that appends, whoever else does, once it is told to."""
    command = [sys.executable, "-c", APPENDS, str(folder), name, str(count)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def start(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@contextmanager
def opened(folder: Path, *, answer: float = 5.0) -> Iterator[DiskLog]:
    log = DiskLog(folder, "orders", segment=3000, answer=answer)
    try:
        yield log
    finally:
        log.close()


def test_several_processes_append_in_one_order(tmp_path: Path) -> None:
    with opened(tmp_path) as log, appending(tmp_path, "a", 60) as one, appending(tmp_path, "b", 60) as other:
        for process in (one, other):
            start(process)
        found = read_to(log, 0, 120)
        for process in (one, other):
            assert process.wait(DEADLINE) == 0
        assert log.last() == 120
    assert [record.position for record in found] == list(range(1, 121))
    for name in (b"a", b"b"):
        numbers = [int(record.payload.split()[1]) for record in found if record.payload.startswith(name)]
        assert numbers == list(range(60))


def test_what_a_killed_process_had_appended_stays(tmp_path: Path) -> None:
    with opened(tmp_path) as log, appending(tmp_path, "a", 10**6) as process:
        start(process)
        seen = read_to(log, 0, 40)
        process.kill()
        process.wait(DEADLINE)
        last = log.last()
        whole = read_to(log, 0, last)
        assert whole[: len(seen)] == seen
        assert [record.position for record in whole] == list(range(1, last + 1))
        assert commit(log, last) == last + 1
    with opened(tmp_path) as log:
        assert log.last() == last + 1


def test_a_process_that_is_stopped_holds_the_log_up_and_says_so(tmp_path: Path) -> None:
    with opened(tmp_path, answer=0.05) as log, (tmp_path / "lock").open() as lock:
        commit(log, 0)
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert log.last() == 1  # who only reads needs no lock
        log.beat(1)
        with pytest.raises(LogError, match="holds its lock for more than") as error:
            log.trim(1)
        assert error.value.code == "log-unavailable"
        waiting = in_thread(lambda: commit(log, 1))
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert waiting.result(DEADLINE) == 2


def test_close_ends_an_append_that_waits(tmp_path: Path) -> None:
    with opened(tmp_path) as log, (tmp_path / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiting = in_thread(lambda: commit(log, 0))
        log.beat(0)  # passes it
        log.close()
        assert isinstance(error := waiting.exception(DEADLINE), LogError)
        assert error.code == "log-closed"


def segment(folder: Path) -> Path:
    return max(folder.glob("0*.log"))


def tear(folder: Path) -> None:
    file = segment(folder)
    file.write_bytes(file.read_bytes()[:-1])


def leave_half(folder: Path) -> None:
    file = segment(folder)
    file.write_bytes(file.read_bytes() + file.read_bytes()[:30])


def test_a_record_behind_the_head_is_found_and_a_torn_one_cut_off(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        commit(log, 0)
        head = (tmp_path / "head").read_bytes()
        commit(log, 1, b"nobody was told of it")
    (tmp_path / "head").write_bytes(head)
    leave_half(tmp_path)
    with opened(tmp_path) as log:
        assert [record.payload for record in log.read(0, 100, 0)] == [b"x", b"nobody was told of it"]
        assert commit(log, 2) == 3


@pytest.mark.parametrize("head", [b"", b"\xff" * 48, None])
def test_without_a_head_all_is_found(tmp_path: Path, head: bytes | None) -> None:
    with opened(tmp_path) as log:
        for position in range(60):
            commit(log, position, b"x" * 100, epoch=1 + position // 10)
    assert len(list(tmp_path.glob("0*.log"))) > 1
    (tmp_path / "head").unlink() if head is None else (tmp_path / "head").write_bytes(head)
    with opened(tmp_path) as log:
        assert (log.first(), log.last()) == (1, 60)
        assert log.lead(60, b"a").epoch == 7


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for position in range(3):
            commit(log, position)
        flip(segment(tmp_path), 29 + 28)
        with pytest.raises(LogError, match=r"00001\.log: record 2 at byte 29 is damaged") as error:
            log.read(0, 100, 0)
        assert error.value.code == "log-corrupt"


def test_segments_that_are_trimmed_are_gone_from_the_disk(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for position in range(100):
            commit(log, position, b"x" * 200)
        before = len(list(tmp_path.glob("0*.log")))
        log.trim(90)
        after = len(list(tmp_path.glob("0*.log")))
        assert (before > 5, after < 3) == (True, True)
        assert [record.position for record in log.read(89, 1 << 20, 0)] == list(range(90, 101))
    with opened(tmp_path) as log:
        assert log.first() == 90


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_refuses_and_keeps_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        commit(log, 0)
        with largest_file(1000), pytest.raises(LogError) as error:
            commit(log, 1, b"x" * 2000)
        assert error.value.code == "log-full"
        assert (log.last(), commit(log, 1)) == (1, 2)
        assert [record.payload for record in log.read(0, 100, 0)] == [b"x", b"x"]


def test_the_folder_of_another_cluster_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path):
        pass
    with pytest.raises(LogError, match="is the log of the cluster 'orders', not of 'flights'") as error:
        DiskLog(tmp_path, "flights")
    assert error.value.code == "log-of-another"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"format":2,"cluster":"orders","identity":"a"}', "log-too-new"),
        ('{"format":1}', "log-corrupt"),
        ("", "log-corrupt"),
    ],
)
def test_what_is_no_log_of_ours_is_refused(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "log.json").write_text(text)
    with pytest.raises(LogError) as error:
        DiskLog(tmp_path, "orders")
    assert error.value.code == code


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError) as error:
        DiskLog(tmp_path / "file", "orders")
    assert error.value.code == "log-not-allowed"


def test_it_is_the_owners_alone(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as log:
        commit(log, 0)
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "log").iterdir()} == {0o600}


def test_a_beat_of_an_old_epoch_is_fenced(tmp_path: Path) -> None:
    with opened(tmp_path) as log, opened(tmp_path) as other:
        log.lead(0, b"a")
        other.lead(1, b"b")
        with pytest.raises(Fenced):
            log.beat(1)


def test_beats_of_before_are_not_heard(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.beat(0)
        with opened(tmp_path) as other:
            assert other.heard() == 0.0
            log.beat(0)
            assert other.heard() > 0.0


def calls(log: CommitLog) -> list[Callable[[], object]]:
    return [log.last, log.first, lambda: log.read(0, 1, 0), lambda: log.append(0, 1, Kind.COMMIT, b"")]


def test_a_folder_that_goes_is_said(tmp_path: Path) -> None:
    with opened(tmp_path / "log") as log:
        commit(log, 0)
        segment(tmp_path / "log").unlink()
        (tmp_path / "log").rename(tmp_path / "elsewhere")
        for call in calls(log):
            with pytest.raises(LogError) as error:
                call()
            assert error.value.code in ("log-unavailable", "log-trimmed")
