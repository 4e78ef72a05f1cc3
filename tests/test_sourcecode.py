"""What a reviewer would say each time, said by a test: nothing swallowed, nothing left undone, tests that can fail and never sleep.

Reads the sources and runs none of them. test_floors.py does the imports and the lengths of the package; ruff and mypy do the rest.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# what decides and what stores: a broad handler there raises again
STRICT_ROOMS = ("stomp", "broker", "store")
FILE_LINES, FUNCTION_LINES = 600, 60


@dataclass(frozen=True)
class Source:
    """One file. `room` is its folder under the package, or the empty string."""

    name: str
    text: str

    @property
    def room(self) -> str:
        found = re.match(r"src/stompbox/(\w+)/", self.name)
        return found[1] if found else ""

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(ast.parse(self.text, self.name)))

    @property
    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        yield from (node for node in self.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))

    @property
    def calls(self) -> Iterator[ast.Call]:
        yield from (node for node in self.nodes if isinstance(node, ast.Call))


def read(*folders: str) -> list[Source]:
    paths = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    return [Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


CODE = read("src", "bench", "demo")
TESTS = read("tests")


# --- the checks ---------------------------------------------------------------------------------------------------------------


def swallowed(source: Source) -> Iterator[str]:
    """Broad handlers that do nothing, or in a strict room do not raise again."""
    for node in source.nodes:
        if isinstance(node, ast.ExceptHandler) and is_broad(node):
            raises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
            if all(isinstance(step, ast.Pass | ast.Continue) for step in node.body) or (
                source.room in STRICT_ROOMS and not raises
            ):
                yield f"{source.name}:{node.lineno}"
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith("suppress")
            and {*map(ast.unparse, node.args)} & BROAD
        ):
            yield f"{source.name}:{node.lineno}"


BROAD = {"Exception", "BaseException"}


def is_broad(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or ast.unparse(kind) in BROAD for kind in caught)


def undone(source: Source) -> Iterator[str]:
    """Notes to oneself, and functions that only say that they are not there yet."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if re.search(r"#.*\b(TO" r"DO|FIX" r"ME|XX" r"X)\b", line):
            yield f"{source.name}:{number}"
    for node in source.nodes:
        if (
            isinstance(node, ast.Raise)
            and node.exc is not None
            and re.match("NotImplemented", ast.unparse(node.exc))
        ):
            yield f"{source.name}:{node.lineno}"


def sleeps(source: Source) -> Iterator[str]:
    """A test waits for an event with a deadline. `asyncio.sleep(0)` gives way once and waits for nothing."""
    for call in source.calls:
        if re.fullmatch(r"(\w+\.)*sleep", ast.unparse(call.func)) and [
            ast.unparse(argument) for argument in call.args
        ] != ["0"]:
            yield f"{source.name}:{call.lineno}"


def unasserted(sources: Iterable[Source]) -> Iterator[str]:
    """Tests that assert nothing: neither themselves nor through a function of the tests that they call."""
    functions = [(source, function) for source in sources for function in source.functions]
    calls = {function.name: called(function) for _, function in functions}
    asserting = {function.name for _, function in functions if asserts(function)}
    while reached := {name for name, names in calls.items() if name not in asserting and names & asserting}:
        asserting |= reached
    for source, function in functions:
        if function.name.startswith("test_") and not asserts(function) and not called(function) & asserting:
            yield f"{source.name}:{function.lineno}"


def unmarked(source: Source) -> Iterator[str]:
    """What the log is told of a connection without the marks that an entry in JSON has of it: its number and its user."""
    for function in source.functions:
        if "connection.name" not in ast.unparse(function):
            continue
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            extra = [ast.unparse(given.value) for given in call.keywords if given.arg == "extra"]
            if LOGGING.fullmatch(ast.unparse(call.func)) and not any("marks" in given for given in extra):
                yield f"{source.name}:{call.lineno}"


LOGGING = re.compile(r"log\.(debug|info|warning|error|critical|log)")
ASSERTING = re.compile(r"_*(assert|check|expect)|(raises|fail|warns|run_state_machine_as_test)$")


def asserts(function: ast.AST) -> bool:
    direct = any(isinstance(node, ast.Assert) for node in ast.walk(function))
    return direct or any(ASSERTING.match(name) for name in called(function))


def called(function: ast.AST) -> set[str]:
    targets = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return {target.attr if isinstance(target, ast.Attribute) else ast.unparse(target) for target in targets}


# --- on the house -------------------------------------------------------------------------------------------------------------


def test_nothing_is_swallowed() -> None:
    assert [place for source in CODE for place in swallowed(source)] == []


def test_nothing_is_left_undone() -> None:
    assert [place for source in (*CODE, *TESTS) for place in undone(source)] == []


def test_no_test_sleeps() -> None:
    assert [place for source in TESTS for place in sleeps(source)] == []


def test_every_test_asserts_something() -> None:
    assert list(unasserted(TESTS)) == []


def test_what_the_log_says_of_a_connection_has_its_marks() -> None:
    server = [source for source in CODE if source.room == "server"]
    assert any("connection.marks" in source.text for source in server)
    assert [place for source in server for place in unmarked(source)] == []


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("def f(connection): log.info('%s', connection.name)", 1),
        ("def f(connection): log.info('%s', connection.name, extra={'code': 'x'})", 1),
        ("def f(connection): log.info('%s', connection.name, extra={'code': 'x', **connection.marks})", 0),
        ("def f(self): log.info('%s', self.connection.name)", 1),
        ("def f(connection): print(connection.name)", 0),
    ],
)
def test_what_has_no_marks_is_found(text: str, faults: int) -> None:
    assert len(list(unmarked(Source("src/stompbox/server/x.py", text)))) == faults


def test_what_is_around_the_package_is_short_too() -> None:
    files = {source.name: len(source.text.splitlines()) for source in (*CODE, *TESTS)}
    assert {name: lines for name, lines in files.items() if lines > FILE_LINES} == {}
    lengths = {f"{s.name}:{f.lineno}": (f.end_lineno or 0) - f.lineno + 1 for s in CODE for f in s.functions}
    assert {place: lines for place, lines in lengths.items() if lines > FUNCTION_LINES} == {}


# --- the checks find what they look for ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("room", "text", "faults"),
    [
        ("cli", "try: f()\nexcept Exception: pass", 1),
        ("cli", "try: f()\nexcept (OSError, BaseException): pass", 1),
        ("cli", "try: f()\nexcept: pass", 1),
        ("cli", "try: f()\nexcept Exception: log()", 0),
        ("store", "try: f()\nexcept Exception: log()", 1),
        ("store", "try: f()\nexcept Exception as e: raise Other from e", 0),
        ("cli", "try: f()\nexcept OSError: pass", 0),
        ("cli", "with contextlib.suppress(Exception): f()", 1),
        ("cli", "with suppress(OSError): f()", 0),
    ],
)
def test_what_is_swallowed_is_found(room: str, text: str, faults: int) -> None:
    assert len(list(swallowed(Source(f"src/stompbox/{room}/x.py", text)))) == faults


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("x = 1  # TO" + "DO: more", 1),
        ("raise NotImplementedError", 1),
        ("raise NotImplementedError('x')", 1),
        ("raise pa.ArrowNotImplementedError", 0),
    ],
)
def test_what_is_undone_is_found(text: str, faults: int) -> None:
    assert len(list(undone(Source("x.py", text)))) == faults


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("time.sleep(1)", 1),
        ("sleep(0.1)", 1),
        ("asyncio.sleep(delay)", 1),
        ("asyncio.sleep(0)", 0),
        ("time.sleeping(1)", 0),
    ],
)
def test_a_sleep_is_found(text: str, faults: int) -> None:
    assert len(list(sleeps(Source("x.py", text)))) == faults


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("def test_x(): f()", 1),
        ("def test_x(): assert f()", 0),
        ("def test_x():\n with pytest.raises(E): f()", 0),
        ("def check(): assert f()\ndef test_x(): check()", 0),
        ("def check(): assert f()\ndef play(): check()\ndef test_x(): play()", 0),
        ("def play(): f()\ndef test_x(): play()", 1),
        ("def test_x(): check_columns(1)", 0),
    ],
)
def test_a_test_without_assertion_is_found(text: str, faults: int) -> None:
    assert len(list(unasserted([Source("x.py", text)]))) == faults


# --- what is tracked ----------------------------------------------------------------------------------------------------------

LARGEST = 512 << 10  # octets of a tracked file: what is large makes every clone slow for ever
LARGER: dict[str, int] = {}  # tracked files that have to be larger, and how many octets each may have
ROOTS = frozenset(  # what may lie in the root; all else belongs into a folder that says what it is for
    (
        ".git-blame-ignore-revs", ".gitignore", ".pre-commit-config.yaml", "CHANGELOG.md",
        "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "SECURITY.md", "hatch_build.py", "pyproject.toml", "requirements.lock",
    )
)  # fmt: skip


def unneeded(name: str, content: bytes) -> str | None:
    """Why a file is not one to be tracked; None for one that is."""
    if len(content) > LARGER.get(name, LARGEST):
        return f"{name} has {len(content)} octets"
    if "/" not in name and name not in ROOTS:
        return f"{name} lies in the root and is none of what belongs there"
    if not content and not name.endswith(("__init__.py", "py.typed")):
        return f"{name} is empty"
    if content and not content.strip(b"\0"):
        return f"{name} holds nothing but zeros"
    return untidy(name, content)


def untidy(name: str, content: bytes) -> str | None:
    """A text that editors and `git diff` would complain of: blanks before a line's end, or no line's end behind the last line."""
    if b"\0" in content:  # no text
        return None
    if found := re.search(rb"[ \t\r]+$", content, re.M):
        line = 1 + content[: found.start()].count(b"\n")
        return f"{name}:{line} ends in blanks"
    return None if content.endswith(b"\n") or not content else f"{name} does not end with a line's end"


def test_nothing_is_tracked_that_is_large_or_that_nobody_needs() -> None:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("no git repository: a source archive")
    listed = (
        subprocess.run([git, "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
        .stdout.decode()
        .split("\0")
    )
    names = [name for name in listed if name and (ROOT / name).is_file()]
    assert names
    assert not [fault for name in names if (fault := unneeded(name, (ROOT / name).read_bytes()))]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("src/data.bin", b"x" * (LARGEST + 1)),
        ("j.dat", b"x"),
        ("bench/j.dat", bytes(100)),
        ("docs/nothing.md", b""),
        ("docs/blanks.md", b"a\nb \nc\n"),
        ("docs/unended.md", b"a\nb"),
    ],
)
def test_what_is_not_to_be_tracked_is_named(name: str, content: bytes) -> None:
    assert (unneeded(name, content) or "").startswith(name)


# --- docstrings ---------------------------------------------------------------------------------------------------------------

# What begins so has no subject, or one that only its author knows: "Of one queue.", "The same in steps.", "It is gone.", "`size`: octets."
FRAGMENT = re.compile(
    r"(Of|It|They|These|Those|That|Others|All of it|Everything of it|The same|From now on|Until|In steps)\b"
    r"|None:|-?\d+:|`\w+`(?: None)?:"
)
WORDS = 4  # at least: "Drops it." says nothing that the name does not


def is_sentence(docstring: str) -> bool:
    return FRAGMENT.match(docstring) is None and len(docstring.split()) >= WORDS


def test_docstrings_are_sentences() -> None:
    found = [
        f"{source.name}:{node.lineno} {node.name}"
        for source in read("src")
        for node in source.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if (told := ast.get_docstring(node)) is not None and not is_sentence(told)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("told", "is_one"),
    [
        ("Of one queue.", False),
        ("The same in steps.", False),
        ("It is gone: nothing of it goes into a commit.", False),
        ("`size`: with the octets of headers.", False),
        ("-1: no limit, which is the default.", False),
        ("Begins a turn.", False),
        ("The queue whose turn it is.", True),
        ("Counts messages off; `size`: with the octets of headers.", True),
    ],
)
def test_a_fragment_is_found(told: str, is_one: bool) -> None:
    assert is_sentence(told) is is_one
