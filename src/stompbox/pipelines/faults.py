"""Faults of steps as users read them: one line that names the step. The stacks are in the pipeline's spark.log.

Decides what a fault of Spark, of Java or of a library reads like. What is ours says it itself.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from stompbox.errors import ConnectionLost, LocalError, Refused, StompboxError
from stompbox.pipelines.progress import Failed, Report
from stompbox.pipelines.settings import KINDS, Step
from stompbox.pipelines.storage import causes

_OURS: Final = re.compile(r"stompbox\.errors\.(\w+): ([^\n]+)")
_JAVAS: Final = re.compile(r"An error occurred while calling [^\n]*\n: ([^\n]+)")
_PYTHONS: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n)+(\S[^\n]*)")

_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

_log: Final = logging.getLogger(__name__)


def quieten() -> None:
    """What PySpark logs of faults in SQL, as JSON with stacks, goes where all logs go, and not to the terminal as well. What the libraries
    of Rust warn of while they look for credentials goes nowhere: where it matters, the fault says it."""
    os.environ.setdefault("RUST_LOG", "error")  # which they look for when they are first imported
    from pyspark.logger import PySparkLogger

    for name in _LOGGERS:
        # which pass nothing on to the root, and without a handler write to the terminal all the same
        PySparkLogger.getLogger(name).handlers[:] = logging.getLogger().handlers or [logging.NullHandler()]


def masked(text: str, secrets: Sequence[str]) -> str:
    """Without what nobody is to see. Libraries repeat what they were given, and what a server has answered."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


class Masking(logging.Formatter):
    """Lays out the lines of a log, and stacks, with the secrets starred out."""

    def __init__(self, layout: str, secrets: Sequence[str]) -> None:
        super().__init__(layout)
        self._secrets: Final = secrets

    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record), self._secrets)


@contextmanager
def named(step: Step, report: Report, secrets: Sequence[str] = ()) -> Iterator[None]:
    """Whatever fails inside becomes one line with the step's name, without secrets, and is reported."""
    try:
        yield
    except Exception as fault:
        found = _named(f"{KINDS[type(step)]} {step.name!r}", fault)
        if (text := masked(found.message, secrets)) != found.message:
            found = type(found)(found.code, text)
        report(Failed(step=step.name, text=found.message))
        if found is fault:
            raise
        raise found from fault


def _named(name: str, fault: Exception) -> StompboxError:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if isinstance(fault, Refused):
        return Refused(fault.code, f"{name}: {fault.message}")
    if isinstance(fault, StompboxError):
        return fault
    if isinstance(fault, PySparkException | Py4JError):
        return plain(name, str(fault))
    # of a library, or a bug of ours: this is the shell of a step
    _log.error("%s failed", name, exc_info=fault)
    return LocalError("step-failed", f"{name}: {first_line(fault)}")


def first_line(fault: Exception) -> str:
    """What an exception says, in one line, with its kind where it says little."""
    said = causes(fault)
    return said if isinstance(fault, OSError) and said else f"{type(fault).__name__}: {said}".rstrip(" :")


def plain(step: str, text: str) -> LocalError | ConnectionLost:
    """What one of us has said, from under the stacks of Java and Python; else Spark's own first line."""
    said = _OURS.findall(text)
    if said and said[-1][0] == "ConnectionLost":
        return ConnectionLost("broker-away", f"{step}: {said[-1][1]}")
    raised = _JAVAS.findall(text) or _PYTHONS.findall(text)
    if not said and raised:
        return LocalError("step-failed", f"{step}: {raised[-1]}")
    lines = [
        line.strip(" :")
        for line in text.splitlines()
        if line.strip() and not line.startswith(("===", "An error occurred"))
    ]
    return LocalError(
        "step-failed", f"{step}: {said[-1][1] if said else lines[0] if lines else 'Spark gave no reason'}"
    )
