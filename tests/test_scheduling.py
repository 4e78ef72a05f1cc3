"""Who runs which file: the rooms of Spark are the first workers', and nobody waits while there is anything to do."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("xdist")

from tests.scheduling import ROOMS, SESSIONS, Files

FILES = [
    f"tests/{room}/test_{number}.py"
    for room in ("broker", "pipelines", "spark", "store")
    for number in range(6)
]
TESTS = [f"{file}::test_{number}" for file in FILES for number in range(4)]


class Worker:
    """Runs what it is sent, a test at each turn."""

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id="worker")
        self.shutting_down = False
        self.sent: deque[int] = deque()
        self.ran: list[str] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent.extend(indices)

    def shutdown(self) -> None:
        self.shutting_down = True


def played(turns: dict[int, int]) -> list[Worker]:
    """Three workers, each of which has so many turns where others have one."""
    config: Any = SimpleNamespace(
        option=SimpleNamespace(tx=["3*popen"], loadscopereorder=False), getvalue=lambda _: ["3*popen"]
    )
    workers = [Worker() for _ in range(3)]
    files = Files(config)
    for worker in workers:
        node: Any = worker
        files.add_node(node)
        files.add_node_collection(node, TESTS)
    files.schedule()
    while any(worker.sent for worker in workers):
        for place, worker in enumerate(workers):
            for _ in range(turns.get(place, 1)):
                if worker.sent:
                    worker.ran.append(TESTS[worker.sent[0]])
                    files.mark_test_complete(worker, worker.sent.popleft())  # type: ignore[arg-type]
    return workers


def are_of_spark(tests: list[str]) -> list[bool]:
    return [test.startswith(ROOMS) for test in tests]


def test_each_test_is_run_once_and_each_file_by_one_worker() -> None:
    workers = played({})
    assert sorted(test for worker in workers for test in worker.ran) == sorted(TESTS)
    files = [{test.partition("::")[0] for test in worker.ran} for worker in workers]
    assert sum(map(len, files)) == len(FILES)


def test_few_workers_have_a_session_and_begin_with_it() -> None:
    *first, last = played({2: 2})
    assert len(first) == SESSIONS
    for worker in first:
        of_spark = are_of_spark(worker.ran)
        assert of_spark[0] and of_spark == sorted(of_spark, reverse=True), "and come to the others after it"
    assert not any(are_of_spark(last.ran))


def test_who_has_nothing_else_to_do_helps() -> None:
    of_spark = are_of_spark(played({2: 20})[-1].ran)
    assert any(of_spark) and of_spark == sorted(of_spark)
