"""What users see of what is wrong: our sentence first, no stack of Python, none of Java. In short here; all of the table with SOAK=1."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

pytest.importorskip("pyspark")

from stompbox.errors import UsageError
from stompbox.spark import faults
from tests.spark.bad_input import CASES, Case, check, provoke


@pytest.mark.parametrize("case", [case for case in CASES if case.short or "SOAK" in os.environ], ids=str)
def test_what_is_wrong_is_said_first(spark: Any, urls: Mapping[str, str], case: Case) -> None:
    check(case, provoke(spark, case, urls))


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
