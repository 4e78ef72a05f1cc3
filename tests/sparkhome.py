"""Spark for tests, which start it some twenty times: what makes a start cheaper, and changes nothing of what Spark does.

A home without the archives of PySpark's sources, `build/spark`, in links to what is installed. Spark has its Python processes import from
`python/lib/pyspark.zip` of its home before all else, and what comes out of an archive is compiled anew by each of them: a second of a
processor's time, for each process that plans, reads or writes. Here they import the same from where pip has installed it.

tests/test_packaging.py starts Spark as an installation has it, archives and all.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

HOME: Final = Path(__file__).resolve().parent.parent / "build" / "spark"
LEFT_OUT: Final = Path("python", "lib")
# Most of Spark's Java in these tests lives for seconds: the second compiler and the parallel collector cost more than they bring.
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def prepare() -> None:
    """Has whatever this process starts use it, where nothing else is asked for."""
    if home := spark_home():
        os.environ.setdefault("SPARK_HOME", str(home))
        os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED)
        os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED)


def spark_home() -> Path | None:
    """Makes it where it is not there as it should be, whoever else does so meanwhile. None where there is no pyspark."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        return None
    installed = Path(found.origin).parent
    for folder in (Path(), LEFT_OUT.parent):
        (HOME / folder).mkdir(parents=True, exist_ok=True)
        for entry in (installed / folder).iterdir():
            if (own := entry.relative_to(installed)) not in (LEFT_OUT, LEFT_OUT.parent):
                _link(HOME / own, entry)
    return HOME


def _link(place: Path, target: Path) -> None:
    if not place.is_symlink() or place.readlink() != target:
        with suppress(FileNotFoundError):
            place.unlink()
        with suppress(FileExistsError):
            place.symlink_to(target)
