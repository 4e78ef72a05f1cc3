"""Spark for tests, which start it some twenty times: what makes a start cheaper, and changes nothing of what Spark does.

The home that sessions of `stompbox.spark.session` start from (stompbox/spark/home.py), in `build/spark`, for all of them.

And Java's classes as it has loaded them once (stompbox/spark/classes.py), where `python -m tests.spark.classes` has put them into
`build/spark-classes`, as CI does ahead of the tests.

And the session that tests of a process share, whose Python processes are copies of one (forked.py).

tests/test_packaging.py starts Spark as an installation has it: archives, Java's own settings and all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from stompbox.errors import UsageError
from stompbox.spark import session
from stompbox.spark.classes import Classes, classes_in
from stompbox.spark.home import in_environment, linked
from stompbox.spark.session import java_home

BUILD: Final = Path(__file__).resolve().parent.parent / "build"
HOME: Final = BUILD / "spark"
# Most of Spark's Java in these tests lives for seconds: the second compiler and the parallel collector cost more than they bring.
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
PYTHON: Final = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}  # as Spark has it for its Python processes
SETTINGS: Final = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.pollingDelay": "20ms"}


def prepare() -> None:
    """Has whatever this process starts use it, where nothing else is asked for."""
    if home := spark_home():
        os.environ.setdefault("SPARK_HOME", str(home))
        os.environ.setdefault("SPARK_SUBMIT_OPTS", options())
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED)


@contextmanager
def started(python: str) -> Iterator[Any]:
    """A session until it is closed, whose Python processes, and not those of others that are started meanwhile, are this one."""
    with in_environment("PYSPARK_PYTHON", python):
        found = session.local("stompbox-tests", cores=2, settings=SETTINGS, nice=0)
    found.sparkContext.setLogLevel("ERROR")
    yield found
    found.stop()


def options() -> str:
    """Java's, for a session or an executor."""
    classes = java_classes()
    return f"{SHORT_LIVED} {classes.used()}" if classes is not None and classes.file.exists() else SHORT_LIVED


def java_classes() -> Classes | None:
    """Those of the Java that sessions are given here. None where there is none, or one that does not say which it is."""
    try:
        java = java_home(os.environ)
    except UsageError:
        return None
    return classes_in(BUILD / "spark-classes", java, HOME, SHORT_LIVED)


def spark_home() -> Path | None:
    """Makes it where it is not there as it should be. None where there is no pyspark."""
    found = find_spec("pyspark")
    return None if found is None or found.origin is None else linked(HOME, Path(found.origin).parent)
