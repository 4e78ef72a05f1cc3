"""The installed PySpark as a home of Spark whose Python processes start at once.

Spark has its Python processes import `pyspark` and `py4j` from archives in its home before all else. What comes out of an archive is
compiled anew by each process: a second, for each that plans, reads or writes. A home of links, in the user's cache folder, has the
installed packages in the places of those archives, whose compiled files are kept; all else in it is a link to what is installed.

Decides where files of ours that Spark's start needs may lie, too.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Final

HOME: Final = "SPARK_HOME"
ARCHIVES: Final = Path("python", "lib")


def at_home() -> AbstractContextManager[None]:
    """What is started meanwhile has this home, unless the environment names another one or none can be made."""
    found = None if os.environ.get(HOME) else spark_home(os.environ)
    return nullcontext() if found is None else in_environment(HOME, str(found))


@contextmanager
def in_environment(name: str, value: str) -> Iterator[None]:
    """What is started meanwhile finds it there, and not other programs that are started later, with a PySpark of their own."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def spark_home(environment: Mapping[str, str]) -> Path | None:
    """Makes it where it is not there as it should be, whoever else does so meanwhile; None where it cannot be made."""
    installed = _folder_of("pyspark")
    if installed is None or not (installed / ARCHIVES).is_dir():
        return None
    name = f"spark-{sha256(str(installed).encode()).hexdigest()[:12]}"
    for folder in cache_folders(environment):
        # a folder that is not there or cannot be written to, or a system without links
        with suppress(OSError):
            return linked(own_folder(folder) / name, installed)
    return None


def linked(home: Path, installed: Path) -> Path:
    """Puts into `home` what PySpark has in the folder `installed`. Raises OSError."""
    own_folder(home)
    wanted = {Path(entry.name): entry for entry in installed.iterdir() if entry.name != ARCHIVES.parts[0]}
    for archive in (installed / ARCHIVES).iterdir():
        place, package = ARCHIVES / archive.name, archive.name.partition("-")[0].removesuffix(".zip")
        unpacked = _folder_of(package)
        wanted |= {place: archive} if unpacked is None else {place / package: unpacked}
    for place, target in wanted.items():
        _link(home / place, target)
    return home


def cache_folders(environment: Mapping[str, str]) -> list[Path]:
    """Where files of ours may lie, the best first."""
    cache = environment.get("XDG_CACHE_HOME") or (
        f"{environment['HOME']}/.cache" if environment.get("HOME") else ""
    )
    temporary = Path(tempfile.gettempdir()) / f"stompbox-{os.getuid() if hasattr(os, 'getuid') else 'user'}"
    return [*([Path(cache) / "stompbox"] if cache else []), temporary]


def own_folder(folder: Path) -> Path:
    """Makes it, for this user alone. Raises PermissionError when it is somebody else's."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to somebody else")
    return folder


def _folder_of(package: str) -> Path | None:
    found = find_spec(package)
    return Path(found.origin).parent if found is not None and found.origin is not None else None


def _link(place: Path, target: Path) -> None:
    """By renaming: whoever starts meanwhile has the old one or the new one."""
    if place.is_symlink() and place.readlink() == target:
        return
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    made = place.with_name(f".{place.name}.{os.getpid()}")
    with suppress(FileNotFoundError):
        made.unlink()
    made.symlink_to(target)
    os.replace(made, place)
