"""The classes of Spark that Java has loaded once: they are made once, and Spark's Java has them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from stompbox.spark import classes as product
from stompbox.spark.classes import Classes
from tests import sparkhome
from tests.conftest import ROOT
from tests.spark import classes


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
    code = "import sys; from tests.spark import classes; from tests.spark.soak import Soak; from stompbox.spark.classes import Classes\n"
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


JAVA_17 = 'JAVA_VERSION="17.0.15"\n'


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java, a home of Spark with a jar, and an environment with a cache folder."""
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "spark" / "jars" / "spark.jar").write_text("jar")
    (tmp_path / "java").mkdir()
    (tmp_path / "java" / "release").write_text(JAVA_17)
    return tmp_path / "java"


def given(java: Path) -> str:
    with product.sharing_classes(java):
        return os.environ.get("SPARK_SUBMIT_OPTS", "")


def test_the_second_start_has_them_written_and_the_next_has_them(java: Path, tmp_path: Path) -> None:
    assert given(java) == "", "there may be no other one"
    first = given(java)
    option, _, name = first.split()[0].partition("=")
    assert (option, first.split()[1]) == ("-XX:ArchiveClassesAtExit", "-Xlog:disable")
    file = Path(name)
    assert file.parent == tmp_path / "cache" / "stompbox" and "SPARK_SUBMIT_OPTS" not in os.environ
    assert given(java) == "", "one Java is asked to write it"
    file.write_bytes(bytes(4096))  # Java was killed while it wrote
    assert given(java) == ""
    long_ago = time.time() - 2 * 3600
    os.utime(file, (long_ago, long_ago))
    assert given(java) == first
    file.write_bytes(b"\xa8\xab\x0b\xf0" + bytes(4096))
    assert given(java) == f"-XX:SharedArchiveFile={file} -Xlog:disable"
    (tmp_path / "spark" / "jars" / "spark.jar").write_text("another jar")
    assert given(java) == ""
    assert given(java) not in (first, f"-XX:SharedArchiveFile={file} -Xlog:disable")
    (java / "release").write_text('JAVA_VERSION="25.0.2"\n')
    assert given(java) == ""
    assert given(java).startswith("-XX:AOTCacheOutput=")


def test_options_of_others_stay(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xss4m")
    assert given(java) == "-Xss4m"
    assert given(java).startswith("-Xss4m -XX:ArchiveClassesAtExit=")
    assert given(java) == "-Xss4m"
    assert os.environ["SPARK_SUBMIT_OPTS"] == "-Xss4m"
    for own in (
        "-XX:SharedArchiveFile=/a.jsa",
        "-Xshare:off",
        "-XX:+AutoCreateSharedArchive",
        "-XX:AOTMode=off",
    ):
        monkeypatch.setenv("SPARK_SUBMIT_OPTS", own)
        assert given(java) == own
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xss4m")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xshare:off")
    assert given(java) == "-Xss4m"


def test_where_they_cannot_be_shared_spark_starts_without(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a cache"))
    assert given(java) == ""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    assert given(java) == ""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (java / "release").write_text("nothing")
    assert given(java) == ""
    monkeypatch.delenv("SPARK_HOME")
    assert given(java) == ""


def test_files_of_long_ago_go(java: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "stompbox"
    folder.mkdir(parents=True)
    for name, age in (("spark-classes-1.jsa", 40), ("spark-classes-2.jsa", 20), ("other", 40)):
        (folder / name).write_text(name)
        at = time.time() - age * 24 * 3600
        os.utime(folder / name, (at, at))
    given(java)
    claimed = Path(given(java).partition("=")[2].split()[0])
    left = {file.name for file in folder.iterdir()}
    assert left == {"other", "spark-classes-2.jsa", claimed.name, claimed.with_suffix(".seen").name}
