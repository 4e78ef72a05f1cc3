"""What `pip install .` gives: one pure wheel with both packages, their type marks and the licence, and a command that runs."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import stompbox

ROOT = Path(__file__).resolve().parent.parent


def run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder)
    [built] = folder.iterdir()
    return built


def sources(package: str) -> set[str]:
    src = ROOT / "src"
    return {path.relative_to(src).as_posix() for path in (src / package).rglob("*") if path.is_file() and path.suffix != ".pyc"}


def test_the_wheel_is_pure_and_named_by_the_version(wheel: Path) -> None:
    assert wheel.name == f"stompbox-{stompbox.__version__}-py3-none-any.whl"


def test_the_wheel_holds_both_packages_whole_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    assert {"stompbox/py.typed", "pyspark_stomp/py.typed"} <= names
    assert names - info == sources("stompbox") | sources("pyspark_stomp")
    assert any(name.endswith("/licenses/LICENSE") for name in info)


def test_it_installs_and_the_command_says_its_version(wheel: Path, tmp_path: Path) -> None:
    """Into an empty environment that borrows only the libraries of this one, so that nothing has to be downloaded."""
    fresh = tmp_path / "fresh"
    run(sys.executable, "-m", "venv", "--without-pip", fresh)
    run(sys.executable, "-m", "pip", "--python", fresh / "bin" / "python", "install", "--quiet", "--no-deps", "--no-index", wheel)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    purelib = Path(run(fresh / "bin" / "python", "-c", where).strip())
    (purelib / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert run(fresh / "bin" / "python", "-c", "import stompbox; print(stompbox.__file__)").startswith(str(purelib))
    assert run(fresh / "bin" / "stompbox", "--version").strip().endswith(stompbox.__version__)


def test_what_the_broker_depends_on_is_bounded_to_what_is_tested() -> None:
    """A version that nobody has tried may open a door: each range has an upper end, and the version of requirements.lock is in it."""
    declared = [Requirement(line) for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]]
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line]
    locked = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}
    assert declared
    for one in declared:
        assert any(clause.operator == "<" for clause in one.specifier), one
        assert locked[canonicalize_name(one.name)] in one.specifier, one
