"""Faults as users of Spark read them: one sentence, without the stack of the worker in which it was raised.

Whatever a Python data source raises, Spark's worker formats with its traceback and Java puts into a message of its own. It leaves the
traceback out where the environment holds SPARK_HIDE_TRACEBACK, and a worker that has failed ends (pyspark 4.2 and 4.3, `util.py`,
`handle_worker_exception`): so the name is set there at the last moment, and only for what we have said ourselves. What we have not is
a bug, and keeps its stack.

Decides what is shown, not what is said.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any, Final, ParamSpec, TypeVar, cast

from stompbox.errors import StompboxError

HIDE: Final = "SPARK_HIDE_TRACEBACK"
_WORKERS: Final = (
    "PYTHON_WORKER_FACTORY_PORT",
    "PYTHON_WORKER_FACTORY_SOCK_PATH",
    "PYTHON_WORKER_FACTORY_SECRET",
    "SPARK_PYTHON_RUNTIME",
)

P = ParamSpec("P")
T = TypeVar("T")


@contextmanager
def plainly() -> Iterator[None]:
    """Faults of ours are raised on without what led to them; in a worker of Spark it then shows no stack."""
    try:
        yield
    except StompboxError as fault:
        if any(name in os.environ for name in _WORKERS):
            os.environ[HIDE] = "1"
        raise fault from None


def plain(method: Callable[P, T]) -> Callable[P, T]:
    """A method that Spark calls: see `plainly`. An iterator that it makes is covered to its end."""
    if isgeneratorfunction(method):

        @wraps(method)
        def iterate(*arguments: P.args, **named: P.kwargs) -> Any:
            with plainly():
                yield from cast("Iterator[Any]", method(*arguments, **named))

        return cast("Callable[P, T]", iterate)

    @wraps(method)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        with plainly():
            return method(*arguments, **named)

    return call
