"""The floors of the house, checked by reading its source: an import only points down, and down to the engine nothing does I/O.

    7  cli, pytest_plugin                    6  pipelines, testing
    5  admin, spark, blocking, tracing                4  server, client
    3  broker, commitlog                     2  stomp, selectors, store, conversion
    1  message, config, metrics, security, ranges
    0  errors, numerals, recent, syncing, cron

A room is a package or a module directly under stompbox. Rooms on one floor never import each other.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"

FLOORS: dict[str, int] = {
    **dict.fromkeys(("errors", "numerals", "handles", "recent", "syncing", "cron"), 0),
    **dict.fromkeys(("message", "config", "metrics", "security", "ranges", "incarnations"), 1),
    **dict.fromkeys(("stomp", "selectors", "store", "conversion"), 2),
    **dict.fromkeys(("broker", "commitlog"), 3),
    **dict.fromkeys(("server", "client"), 4),
    **dict.fromkeys(("admin", "spark", "blocking", "tracing"), 5),
    **dict.fromkeys(("pipelines", "testing"), 6),
    **dict.fromkeys(("cli", "pytest_plugin"), 7),
    "__main__": 8,  # python -m stompbox
}
OUTSIDE = {"pyspark_stomp": "spark"}  # packages beside stompbox, and the room that each leads into

# What stomp/ and broker/ may not import: I/O, clocks, chance, threads. Time and ids are arguments.
IMPURE = frozenset(
    (
        "asyncio", "concurrent", "ctypes", "fcntl", "fileinput", "ftplib", "getpass", "glob", "http", "importlib", "io",
        "logging", "mmap", "multiprocessing", "os", "pathlib", "platform", "pty", "queue", "random", "sched", "secrets", "select",
        "selectors", "shutil", "signal", "smtplib", "socket", "socketserver", "sqlite3", "ssl", "subprocess", "sys", "tempfile",
        "threading", "time", "urllib", "uuid", "uvloop", "websockets", "xmlrpc", "argon2", "rich", "cyclopts", "starlette",
        "uvicorn",
    )
)  # fmt: skip
IN_MEMORY = {"io": {"BytesIO"}}  # names of such a module that are of memory alone
PURE_ROOMS = ("stomp", "broker")
READS_THE_WORLD = frozenset(("open", "input", "print", "exec", "eval", "breakpoint", "__import__"))
CLOCK_METHODS = frozenset(("now", "utcnow", "today", "monotonic", "perf_counter", "time_ns"))

FILE_LINES = 600
FUNCTION_LINES = 60


@dataclass(frozen=True)
class Source:
    path: Path
    module: str  # dotted; of a package, its name
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """What is parsed once one of the tests wants it: others that import this file need no more than names."""
        return ast.parse(self.text, str(self.path))

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def room(self) -> str:
        parts = self.module.split(".")
        return OUTSIDE.get(parts[0], parts[1] if len(parts) > 1 else "")

    def __str__(self) -> str:
        return str(self.path.relative_to(SOURCE))


def read_sources() -> list[Source]:
    sources = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
        sources.append(Source(path, module, text))
    return sources


SOURCES = read_sources()
MODULES = {source.module for source in SOURCES}


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of each import; `from a import b` names a.b where that is a module of ours, else a."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            yield from [(node.lineno, _imported(node, alias.name)) for alias in node.names]


def _imported(node: ast.ImportFrom, name: str) -> str:
    module = "." * node.level + (node.module or "")
    return f"{module}.{name}" if f"{module}.{name}" in MODULES else module


def room_of(module: str) -> str | None:
    """The room of a module of ours; "" for the package itself, None for others' modules."""
    parts = module.split(".")
    if parts[0] in OUTSIDE:
        return OUTSIDE[parts[0]]
    if parts[0] != "stompbox":
        return None
    return parts[1] if len(parts) > 1 else ""


def floor_faults(room: str, tree: ast.Module) -> list[str]:
    """What a file of `room` imports that it may not, as texts with line numbers."""
    faults = []
    for line, module in imports(tree):
        other = room_of(module)
        if module.startswith("."):
            faults.append(f"{line}: relative import {module}")
        if other in (None, "", room) or module.startswith("."):
            continue
        if other not in FLOORS:
            faults.append(f"{line}: {module} is in a room without a floor")
        elif FLOORS[other] >= FLOORS[room]:
            faults.append(f"{line}: {room} (floor {FLOORS[room]}) imports {module} (floor {FLOORS[other]})")
    return faults


def purity_faults(tree: ast.Module) -> list[str]:
    of_memory = {
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and {alias.name for alias in node.names} <= IN_MEMORY.get(node.module or "", set())
    }
    faults = [
        f"{line}: imports {module}"
        for line, module in imports(tree)
        if module.split(".")[0] in IMPURE and line not in of_memory
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            faults.append(f"{node.lineno}: async")
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in READS_THE_WORLD:
            faults.append(f"{node.lineno}: calls {node.func.id}()")
        if isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK_METHODS:
            faults.append(f"{node.lineno}: calls .{node.func.attr}()")
    return faults


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """(name, lines) of each function, its decorators left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


in_each_file = pytest.mark.parametrize("source", SOURCES, ids=str)


@in_each_file
def test_room_has_a_floor(source: Source) -> None:
    assert source.room in FLOORS or source.module == "stompbox", (
        f"{source} is in a room that no floor is given to"
    )


@pytest.mark.parametrize("source", [source for source in SOURCES if source.module != "stompbox"], ids=str)
def test_imports_only_point_down(source: Source) -> None:
    assert floor_faults(source.room, source.tree) == []


@pytest.mark.parametrize("source", [source for source in SOURCES if source.room in PURE_ROOMS], ids=str)
def test_no_io_and_no_clock_down_to_the_engine(source: Source) -> None:
    assert purity_faults(source.tree) == []


@in_each_file
def test_files_and_functions_are_short(source: Source) -> None:
    assert source.lines <= FILE_LINES, f"{source} has {source.lines} lines"
    assert [
        f"{name}: {lines} lines" for name, lines in functions(source.tree) if lines > FUNCTION_LINES
    ] == []


def test_engine_does_not_know_which_store_it_has() -> None:
    """broker/ may know the seam and the form of chunks, never a store."""
    known = {
        module
        for source in SOURCES
        if source.room == "broker"
        for _, module in imports(source.tree)
        if room_of(module) == "store"
    }
    assert known <= {"stompbox.store.base", "stompbox.store.chunks"}


def test_there_is_a_house() -> None:
    rooms = {source.room for source in SOURCES}
    assert {"errors", "message", "stomp", "broker"} <= rooms
    assert {source.room for source in SOURCES if source.path.is_relative_to(SOURCE / "pyspark_stomp")} <= {
        "spark"
    }


# --- what an import loads ---------------------------------------------------------------------------------------------------

SERVER_LIBRARIES = (
    "uvloop",
    "starlette",
    "uvicorn",
    "fastapi",
    "argon2",
    "prometheus_client",
    "rich",
    "cyclopts",
    "textual",
    "sqlite3",
)
OUR_SERVER = (
    *(f"stompbox.{room}" for room in ("server", "broker", "store", "admin", "spark", "pipelines", "cli")),
    "pyspark",
)


def modules_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(found.stdout.split())


@pytest.mark.parametrize("statement", ["import stompbox", "from stompbox import *"])
def test_the_client_alone_loads_nothing_of_the_server(statement: str) -> None:
    loaded = modules_after(statement)
    assert "stompbox" in loaded
    assert [name for name in (*SERVER_LIBRARIES, *OUR_SERVER) if name in loaded] == []


# --- the checks themselves find what they look for ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("room", "text", "faults"),
    [
        ("stomp", "from stompbox.errors import FrameError", 0),
        ("stomp", "from stompbox.stomp.frames import Frame", 0),
        ("stomp", "import stompbox", 0),
        ("stomp", "from stompbox.store.base import Store", 1),
        ("stomp", "from stompbox.broker import engine", 1),
        ("stomp", "def f():\n    import stompbox.server", 1),
        ("stomp", "from .frames import Frame", 1),
        ("stomp", "from stompbox.attic import Thing", 1),
        ("message", "from stompbox.ranges import Ranges", 1),
        ("server", "from stompbox.client import connect", 1),
        ("cli", "from stompbox.admin import app", 0),
        ("pipelines", "from stompbox.spark import session", 0),
        ("errors", "from stompbox.ranges import Ranges", 1),
    ],
)
def test_floor_faults_are_found(room: str, text: str, faults: int) -> None:
    assert len(floor_faults(room, ast.parse(text))) == faults


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("import re, math", 0),
        ("from collections.abc import Iterator", 0),
        ("from stompbox.selectors import compile", 0),
        ("import time", 1),
        ("def f():\n    from asyncio import sleep", 1),
        ("import os.path", 1),
        ("from io import BytesIO", 0),
        ("from io import BytesIO, FileIO", 2),
        ("import io", 1),
        ("async def f():\n    await g()", 2),
        ("open('x')", 1),
        ("datetime.datetime.now()", 1),
    ],
)
def test_impurities_are_found(text: str, faults: int) -> None:
    assert len(purity_faults(ast.parse(text))) == faults


def test_lengths_are_counted() -> None:
    tree = ast.parse(
        "class A:\n    @property\n    def long(self):\n"
        + "        x = 1\n" * 60
        + "    def short(self): ...\n"
    )
    assert dict(functions(tree)) == {"long": 61, "short": 1}
