"""An option is defined once, so that all commands that have it spell it alike: what a file of cli/ names, no other names."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import stompbox.cli

SOURCES = sorted(Path(stompbox.cli.__file__).parent.glob("*.py"))


def named(source: Path) -> list[str]:
    """The options whose spelling a file gives: Parameter(name="--json"), Parameter(name=["--file", "-f"])."""
    return [
        constant.value
        for node in ast.walk(ast.parse(source.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Parameter"
        for keyword in node.keywords
        if keyword.arg == "name"
        for constant in ast.walk(keyword.value)
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str) and constant.value != "*"
    ]


def test_an_option_is_spelled_in_one_file() -> None:
    spelled = Counter(name for source in SOURCES for name in set(named(source)))
    assert spelled["--json"] == 1
    assert {name for name, files in spelled.items() if files > 1} == set()
