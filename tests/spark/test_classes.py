"""The classes of Spark that Java has loaded once: they are made once, and Spark's Java has them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from tests import sparkhome
from tests.conftest import ROOT
from tests.spark import classes
from tests.sparkhome import Classes


def test_they_are_made_once_by_whoever_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, both = [], threading.Barrier(2)

    def run(folder: Path, found: Classes) -> Path:
        made.append(folder)
        (folder / "made").write_text("classes")
        return folder / "made"

    def make() -> None:
        both.wait()
        classes.make(found)

    monkeypatch.setattr(classes, "_run", run)
    found = Classes(25, tmp_path / "classes" / "a.jsa")
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(make) for _ in range(2)]:
            done.result()
    assert len(made) == 1
    assert found.file.read_text() == "classes"
    assert sorted(path.name for path in found.file.parent.iterdir()) == ["a.jsa", "lock"]


def test_what_an_application_failed_with_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    found = sparkhome.java_classes()
    assert found is not None
    failing = Classes(found.version, tmp_path / "classes" / "a.jsa")
    code = "import sys; from tests.spark import classes; from tests.spark.soak import Soak; from tests.sparkhome import Classes\n"
    code += "from pathlib import Path; Soak.command = lambda self: [sys.executable, '-c', 'raise SystemExit(\"no luck\")']\n"
    code += f"classes.make(Classes({failing.version}, Path({str(failing.file)!r})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "the classes of Spark were not made; the application ended with 1:\nno luck\n\n"
    assert [path.name for path in failing.file.parent.iterdir()] == ["lock"]


@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere a process does not say which files it has mapped"
)
def test_a_session_has_those_that_were_made(spark: Any) -> None:
    """Java looks itself whether they are its own and of the jars of its class path, and goes on without a word where they are not."""
    found = sparkhome.java_classes()
    if found is None or str(found.file) not in os.environ["SPARK_SUBMIT_OPTS"]:
        pytest.skip("the classes of Spark were not made when the tests began: python -m tests.spark.classes")
    maps = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text()
    assert str(found.file) in maps
