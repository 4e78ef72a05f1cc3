"""Every key, option and right does something: the source reads it, and a test names it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from stompbox.config import Configuration, needs_restart
from stompbox.config.checks import AT_START
from stompbox.config.fields import fields_of
from stompbox.config.reference import TABLES
from stompbox.config.tables import RIGHTS
from stompbox.security import Right

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "stompbox"
HERE = Path(__file__)
# read as a whole, by `grants` and `PatternTable`
BY_TABLE = {*[right.replace("-", "_") for right in RIGHTS], "match"}
BY_NAME = {"dialect"}  # read before there is an object: it says what the other options are by default
# gets its names as texts: `of("ring_size", -1)` is the queue's, else `default_ring_size` of the address
OF_QUEUES = "kinds.py"


def keys() -> list[tuple[str, str, str]]:
    """(table, attribute, key as files and URLs have it)."""
    return sorted(
        {
            (name, field.name, field.spelled)
            for name, struct in TABLES.items()
            for field in fields_of(struct).values()
        }
    )


@cache
def read_attributes() -> frozenset[str]:
    """Names of attributes that code reads, anywhere but where they are declared (a Protocol's body reads nothing)."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found.add(node.attr)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found |= _named(node, path.name)
    return frozenset(found)


def _named(call: ast.Call, file: str) -> set[str]:
    """What an attribute is asked for by name."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    if name == "of" and file == OF_QUEUES and isinstance(call.args[0], ast.Constant):
        return {str(call.args[0].value), f"default_{call.args[0].value}"}
    if name != "getattr":
        return set()
    asked = call.args[1]
    if isinstance(asked, ast.Constant):
        return {str(asked.value)}
    if file == "redelivery.py" and isinstance(asked, ast.JoinedStr):
        # `expiry` and `dead_letter` have the same keys
        text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in asked.values)
        return {text.format(what) for what in ("expiry", "dead_letter")}
    return set()


@cache
def text_of_tests() -> str:
    files = [
        path
        for path in (ROOT / "tests").rglob("*")
        if path.suffix in (".py", ".toml", ".mjs", ".rb", ".php") and path != HERE
    ]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def is_named(name: str) -> bool:
    """Whether a test has this word, which may stand behind a `\\n` of a text. What is looked for begins with letters, which is fast."""
    text = text_of_tests()
    for found in re.finditer(rf"{re.escape(name)}\b", text):
        before = text[max(0, found.start() - 2) : found.start()]
        if before == "\\n" or not re.search(r"\w$", before):
            return True
    return False


@pytest.mark.parametrize(("table", "name", "spelled"), keys(), ids=str)
def test_a_key_is_read_and_a_test_names_it(table: str, name: str, spelled: str) -> None:
    if name not in BY_TABLE | BY_NAME:
        assert name in read_attributes(), f"nothing reads {spelled} of {table}"
    assert is_named(spelled) or is_named(name), f"no test names {spelled} of {table}"


def test_the_lists_above_name_keys_that_are_there() -> None:
    assert {name for _, name, _ in keys()} >= BY_TABLE | BY_NAME


@pytest.mark.parametrize("right", Right)
def test_a_right_is_asked_for_and_a_test_shows_it(right: Right) -> None:
    uses = [
        path for path in SOURCE.rglob("*.py")
        if path.name != "security.py" and re.search(rf"\bRight\.{right.name}\b", path.read_text(encoding="utf-8"))
    ]  # fmt: skip
    assert uses, f"nobody asks for {right.value}"
    assert is_named(right.value), f"no test names {right.value}"
    assert right.value in RIGHTS


def test_a_reload_obeys_a_key_or_names_it() -> None:
    """The code that a SIGHUP runs reads each top-level key, or the key is among those that wait for a start."""
    names = ("reloading.py", "configuring.py", "disk.py", "logins.py", "turns.py")
    parts = [(SOURCE / "server" / name).read_text(encoding="utf-8") for name in names]
    later = {  # read from the broker's configuration each time that they are needed
        "max_commit_delay", "max_refusals_logged", "populate_validated_user", "reject_empty_validated_user", "graceful_shutdown_timeout",
        "front_timeout",
        # by settings_of, grants_of and Users
        "users", "permissions", "address_settings", "disk_full_policy", "id_cache_size",
        "listeners",  # needs_restart, and _change_doors
        "connection_ttl_override",  # by listening
        "unknown_header_policy",  # by the names of each listener
    }  # fmt: skip
    missing = []
    for field in fields_of(Configuration).values():
        is_read = any(re.search(rf"\.{field.name}\b", part) for part in parts)
        if not is_read and field.name not in later and field.spelled not in AT_START:
            missing.append(field.spelled)
    assert missing == []
    assert needs_restart(Configuration(), Configuration()) == []
