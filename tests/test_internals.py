"""Parts of libraries that their makers promise nothing about: which we use, and that a version nobody has tried does not come by itself.

An attribute that begins with `_` counts where no class of ours has one of that name; modules and names count that are not in the library's
documentation (UNDOCUMENTED). Each is named in USED, and the library has an upper bound that admits the next patch alone (of a library
before 1.0), or no next major version.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent

UNDOCUMENTED = (
    "asyncio.sslproto", "prometheus_client.metrics_core", "pyspark.core", "pyspark.java_gateway", "pyspark.sql.pandas",
    "uvicorn.protocols", "uvicorn.server", "uvloop.loop", "websockets.speedups",
)  # fmt: skip

USED = {  # what is used -> the library, and what it is used for
    "websockets.speedups.apply_mask": (
        "websockets",
        "masks of WebSocket taken off in C, where it was compiled",
    ),
    "uvicorn.protocols.http.h11_impl.H11Protocol": ("uvicorn", "limits on who connects and does not ask"),
    "uvicorn.protocols.http.flow_control.service_unavailable": (
        "uvicorn",
        "503 where all connections are being answered",
    ),
    "uvicorn.server.ServerState": ("uvicorn", "a server in a loop of ours, without its signals"),
    "pyspark.java_gateway.launch_gateway": ("pyspark", "Java in a process group of its own, with a priority"),
    "pyspark.sql.pandas.types.from_arrow_schema": ("pyspark", "Spark's own rule for types of Arrow"),
    "pyspark.sql.pandas.types.to_arrow_schema": ("pyspark", "the same the other way"),
    "._SysExcInfoType": (
        "",
        "typeshed's name for what logging hands to a formatter, for the type checker alone",
    ),
    "._ensure_initialized": ("pyspark", "as launch_gateway"),
    "._unset_keepalive_if_required": ("uvicorn", "as H11Protocol: what was read is parsed in portions"),
    "._gateway": ("pyspark", "whether there is a Java already, and its process"),
    "._jsq": ("pyspark", "the progress of a query whose Python side has gone"),
}


def names_of_ours(trees: Iterable[ast.AST]) -> set[str]:
    """All names with a `_` in front that our sources give to something."""
    found: set[str] = set()
    for tree in trees:
        for node in ast.walk(tree):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    found.add(name)
                case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                    found.add(name)
                case ast.Constant(value=str(name)):  # __slots__
                    found.add(name)
                case _:
                    pass
    return {name for name in found if name.startswith("_")}


def internals(tree: ast.AST, ours: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                yield from (alias.name for alias in aliases if is_internal(alias.name))
            case ast.ImportFrom(module=str(module), names=aliases, level=0):
                yield from (full for alias in aliases if is_internal(full := f"{module}.{alias.name}"))
            case ast.Attribute(attr=name) if is_private(name) and name not in ours:
                yield f".{name}"
            case ast.Call(
                func=ast.Name(id="getattr" | "setattr" | "hasattr"),
                args=[_, ast.Constant(value=str(name)), *_],
            ) if is_private(name):
                yield f".{name}"
            case _:
                pass


def is_private(name: str) -> bool:
    return name.startswith("_") and not re.fullmatch(r"_|__\w+__", name)


def is_internal(name: str) -> bool:
    parts = name.split(".")
    if parts[0] in ("stompbox", "pyspark_stomp", "__future__"):
        return False
    return name.startswith(UNDOCUMENTED) or any(is_private(part) for part in parts)


def test_each_internal_of_a_library_is_named() -> None:
    sources = [ast.parse(path.read_text("utf-8")) for path in sorted((ROOT / "src").rglob("*.py"))]
    ours = names_of_ours(sources)
    assert sorted({name for tree in sources for name in internals(tree, ours)}) == sorted(USED)


def declared(library: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [
        *project["dependencies"],
        *(line for lines in project["optional-dependencies"].values() for line in lines),
    ]
    found = [Requirement(line) for line in lines]
    return [one for one in found if canonicalize_name(one.name) == library and ">" in str(one.specifier)]


@pytest.mark.parametrize("library", sorted({library for library, _ in USED.values()} - {""}))
def test_a_library_whose_internals_are_used_has_a_bound(library: str) -> None:
    locked = re.search(rf"^{library}==(.+)$", (ROOT / "requirements.lock").read_text(), re.M)
    assert locked
    version = Version(locked[1])
    following = f"0.{version.minor + 1}" if version.major == 0 else f"{version.major + 1}"
    bounded = [one for one in declared(library) if "extra" not in one.extras]
    assert bounded
    first = bounded[0]
    assert version in first.specifier
    assert following not in first.specifier


def test_internals_of_python_are_tried_with_each_version() -> None:
    """They have no bound: the versions that the public CI runs are those that the package says it is for, from the lowest on."""
    listed, of_wheels = re.findall(
        r"^ +python: \[(.+)\]$", (ROOT / ".github" / "workflows" / "ci.yml").read_text(), re.M
    )
    assert of_wheels == listed
    versions = re.findall(r'"3\.(\d+)"', listed)
    classified = re.findall(
        r'"Programming Language :: Python :: 3\.(\d+)"', (ROOT / "pyproject.toml").read_text()
    )
    assert set(classified) <= set(versions)
    assert str(sys.version_info.minor) in versions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "from uvicorn.protocols.http.h11_impl import H11Protocol",
            ["uvicorn.protocols.http.h11_impl.H11Protocol"],
        ),
        ("from uvicorn import Config", []),
        ("import rich._wrap", ["rich._wrap"]),
        ("from json import _default_decoder", ["json._default_decoder"]),
        ("from stompbox.server import _x", []),
        ("query._jsq.lastProgress()", ["._jsq"]),
        ("self._ours", []),
        ("x.__class__", []),
        ("getattr(query, '_jsq')", ["._jsq"]),
    ],
)
def test_an_internal_is_found(text: str, expected: list[str]) -> None:
    assert list(internals(ast.parse(text), {"_ours"})) == expected
