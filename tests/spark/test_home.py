"""The home that Spark starts from, in links."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import pytest

from stompbox.spark import home


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PySpark, and the package that it brings along in another archive, as pip installs them."""
    packages = tmp_path / "packages"
    for package in ("pyspark", "py4j"):
        (packages / package).mkdir(parents=True)
        (packages / package / "__init__.py").write_text("")
    found = packages / "pyspark"
    (found / "jars").mkdir()
    (found / "jars" / "spark.jar").write_text("")
    (found / "python" / "lib").mkdir(parents=True)
    for archive in ("pyspark.zip", "py4j-0.10.9.9-src.zip", "other-1.zip"):
        with zipfile.ZipFile(found / "python" / "lib" / archive, "w"):
            pass
    places = {"pyspark": found, "py4j": packages / "py4j"}
    monkeypatch.setattr(home, "_folder_of", places.get)
    return found


def test_packages_are_in_the_places_of_archives(installed: Path, tmp_path: Path) -> None:
    found = home.spark_home({"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert found is not None and found.parent == tmp_path / "cache" / "stompbox"
    assert (found / "jars" / "spark.jar").is_file()
    lib = found / "python" / "lib"
    assert sorted(one.name for one in lib.iterdir()) == sorted(
        one.name for one in (installed / "python" / "lib").iterdir()
    )
    assert (lib / "pyspark.zip" / "pyspark").resolve() == installed
    assert (lib / "py4j-0.10.9.9-src.zip" / "py4j").resolve() == installed.parent / "py4j"
    assert zipfile.is_zipfile(lib / "other-1.zip"), "what is installed nowhere stays an archive"


def test_it_is_made_once_and_mended(installed: Path, tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = home.spark_home(environment)
    assert found is not None
    made = (found / "jars").lstat().st_ino
    (found / "__init__.py").unlink()
    (found / "python" / "lib" / "pyspark.zip" / "pyspark").unlink()
    (found / "python" / "lib" / "pyspark.zip" / "pyspark").symlink_to(tmp_path / "elsewhere")
    assert home.spark_home(environment) == found
    assert (found / "jars").lstat().st_ino == made
    assert (found / "__init__.py").is_file()
    assert (found / "python" / "lib" / "pyspark.zip" / "pyspark").resolve() == installed
    assert not [one for one in found.rglob(".*") if one.is_symlink()]


def test_a_cache_that_cannot_be_written_is_passed_over(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    found = home.spark_home({"XDG_CACHE_HOME": str(tmp_path / "file")})
    assert found is not None and found.is_relative_to(tmp_path / "temp")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    assert home.spark_home({"XDG_CACHE_HOME": str(tmp_path / "file")}) is None


def test_a_folder_of_somebody_else_is_not_used(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache" / "stompbox").mkdir(parents=True)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    monkeypatch.setattr(os, "getuid", lambda: (tmp_path / "cache").stat().st_uid + 1)
    assert home.spark_home({"XDG_CACHE_HOME": str(tmp_path / "cache")}) is None
    with pytest.raises(PermissionError, match="belongs to somebody else"):
        home.own_folder(tmp_path / "cache" / "stompbox")


def test_without_pyspark_or_its_archives_there_is_none(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    shutil.rmtree(installed / "python")
    assert home.spark_home(environment) is None
    monkeypatch.setattr(home, "_folder_of", lambda package: None)
    assert home.spark_home(environment) is None
    assert not (tmp_path / "cache").exists()


def test_only_what_is_started_meanwhile_has_it(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(home.HOME, raising=False)
    with home.at_home():
        assert Path(os.environ[home.HOME]).is_relative_to(tmp_path / "cache")
    assert home.HOME not in os.environ
    monkeypatch.setenv(home.HOME, "/opt/spark")
    with home.at_home():
        assert os.environ[home.HOME] == "/opt/spark"
    assert os.environ[home.HOME] == "/opt/spark"
