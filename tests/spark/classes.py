"""Spark's classes as Java has loaded them, which spares sessions of tests that work: `python -m tests.spark.classes`.

They are written by the Java of an application of the tests that has come to its end, once, whoever else wants them at the same time;
tests/sparkhome.py has the sessions use them.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from stompbox.spark.classes import Classes
from tests import sparkhome
from tests.conftest import ROOT
from tests.spark.soak import Soak

ROWS: Final = 600
BATCH: Final = 200
FORMS: Final = ("parquet", "stomp")
WITHIN: Final = 600.0  # s, on a busy machine


def make(classes: Classes) -> None:
    """Makes them where they are not there."""
    folder = classes.file.parent
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not classes.file.exists():
            with tempfile.TemporaryDirectory(dir=folder) as made:
                _run(Path(made), classes).replace(classes.file)


def _run(folder: Path, classes: Classes) -> Path:
    """The file that Java has written. Whatever holds the output of the application has ended with it, Java too."""
    file = folder / classes.file.name
    soak = Soak(folder, forms=FORMS)
    try:
        soak.fill(ROWS)
        done = subprocess.run(
            [*soak.command(), "--rows", str(BATCH)],
            env=os.environ
            | {
                "SPARK_HOME": str(sparkhome.HOME),
                "SPARK_SUBMIT_OPTS": f"{sparkhome.SHORT_LIVED} {classes.made(file)}",
            },
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=WITHIN,
            check=False,
        )
    finally:
        soak.close()
    if done.returncode or not file.is_file():
        sys.exit(
            f"the classes of Spark were not made; the application ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}"
        )
    return file


if __name__ == "__main__":
    found = sparkhome.java_classes()
    if found is None:
        sys.exit(
            "the classes of Spark cannot be made: there is no pyspark, or no Java that says its version in a file `release`"
        )
    make(found)
