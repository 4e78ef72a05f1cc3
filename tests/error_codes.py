"""Finds every stable code in the source, by reading it: what is given to a class of the error tree as `code`.

A code is followed to where it is written: a literal, a named constant, the arguments of a function that hands its parameter
on, or the default of one. A text with a hole (f"missing-{name}") counts as a pattern. Codes that come from another error
or from the wire (`error.code`) were found, or documented, where they were made.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
ROOT_CLASS = "StompboxError"


@dataclass(frozen=True, slots=True)
class Use:
    """One place that makes an error. `code` may hold `*`; None: nothing that can be followed was written there."""

    code: str | None
    error: str
    closes: bool
    where: str


class Codes:
    """All uses in a folder of source."""

    def __init__(self, folder: Path = SOURCE) -> None:
        self.trees = {
            str(path.relative_to(folder)): ast.parse(path.read_text(encoding="utf-8"))
            for path in sorted(folder.rglob("*.py"))
        }
        self.bases = self._error_classes()
        self.constants = {
            name: str(value.value)
            for name, value in _constants(self.trees)
            if isinstance(value, ast.Constant)
        }
        self.tables = {name: value for name, value in _constants(self.trees) if isinstance(value, ast.Dict)}
        self.calls = _calls_by_name(self.trees)
        self._followed: set[tuple[ast.AST, str]] = (
            set()
        )  # variables that are looked at: two functions may call each other
        self.uses = [use for error in self.bases for use in self._uses_of(error)]

    def _error_classes(self) -> dict[str, str]:
        """Name -> its base, for the whole tree; the root's base is empty."""
        found = {ROOT_CLASS: ""}
        classes = [
            node for tree in self.trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
        ]
        pairs = [(node.name, base) for node in classes for base in map(_name, node.bases)]
        while new := {name: base for name, base in pairs if base in found and name not in found}:
            found |= new
        return found

    def _uses_of(self, error: str) -> Iterator[Use]:
        for where, function, call in self.calls.get(error, ()):
            argument = _argument(call, 0, "code")
            if argument is None or (isinstance(argument, ast.Attribute) and argument.attr == "code"):
                continue
            given = _argument(call, len(call.args), "closes")
            closes = isinstance(given, ast.Constant) and given.value is True
            codes = self._codes(argument, function)
            yield from [Use(code, error, closes, where) for code in codes or {None}]

    def _codes(
        self, value: ast.expr, function: ast.FunctionDef | ast.AsyncFunctionDef | None
    ) -> set[str | None]:
        match value:
            case ast.Constant(value=str(text)):
                return {text}
            case ast.JoinedStr(values=parts):
                return {"".join([part.value if isinstance(part, ast.Constant) else "*" for part in parts])}  # type: ignore[misc]
            case ast.IfExp(body=one, orelse=other) | ast.BoolOp(values=[one, other]):
                return self._codes(one, function) | self._codes(other, function)
            case ast.Call(func=ast.Attribute(attr="get"), args=[_, default]):
                return self._codes(default, function)
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in self.constants:
                return {self.constants[name]}
            case ast.Name(id=name) if function is not None:
                return self._codes_of_variable(name, function)
        return set()

    def _codes_of_variable(
        self, name: str, function: ast.FunctionDef | ast.AsyncFunctionDef
    ) -> set[str | None]:
        """What its callers give to this parameter, or what the function assigns to this name."""
        if (function, name) in self._followed:
            return set()
        self._followed.add((function, name))
        try:
            return self._assigned_and_given(name, function)
        finally:
            self._followed.discard((function, name))

    def _assigned_and_given(
        self, name: str, function: ast.FunctionDef | ast.AsyncFunctionDef
    ) -> set[str | None]:
        found: set[str | None] = set()
        for node in ast.walk(function):
            if not isinstance(node, ast.Assign):
                continue
            for target in node.targets:
                if _name(target) == name:
                    found |= self._codes(node.value, function)
                elif isinstance(target, ast.Tuple) and name in (
                    words := [_name(word) for word in target.elts]
                ):
                    found |= self._codes_in_tuples(node.value, words.index(name))
        parameters = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        if name not in parameters:
            return found
        at = parameters.index(name) - (parameters[0] in ("self", "cls"))
        for default in _defaults(function, name):
            found |= self._codes(default, None)
        for _, caller, call in self.calls.get(function.name, ()):
            given = _argument(call, at, name)
            if given is not None:
                found |= self._codes(given, caller)
        return found

    def _codes_in_tuples(self, value: ast.expr, at: int) -> set[str | None]:
        """The element `at` of a tuple, or of all tuples in a table of the module that is asked."""
        match value:
            case ast.Tuple(elts=elements):
                return self._codes(elements[at], None)
            case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[_, default]):
                return self._codes_in_tuples(table, at) | self._codes_in_tuples(default, at)
            case ast.Subscript(value=table):
                return self._codes_in_tuples(table, at)
            case ast.Name(id=name) | ast.Attribute(attr=name) if name in self.tables:
                rows = [self._codes_in_tuples(row, at) for row in self.tables[name].values]
                return {code for row in rows for code in row}
        return set()


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _argument(call: ast.Call, at: int, name: str) -> ast.expr | None:
    if len(call.args) > at:
        return call.args[at]
    return next((word.value for word in call.keywords if word.arg == name), None)


def _defaults(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Iterator[ast.expr]:
    parameters = [*function.args.posonlyargs, *function.args.args]
    with_default = parameters[len(parameters) - len(function.args.defaults) :]
    yield from [
        default
        for argument, default in zip(with_default, function.args.defaults, strict=True)
        if argument.arg == name
    ]


def _constants(trees: dict[str, ast.Module]) -> Iterator[tuple[str, ast.expr]]:
    """Upper-case names of modules that are texts or tables, and their values."""
    for tree in trees.values():
        for node in tree.body:
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AnnAssign)
                else []
            )
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if isinstance(value, ast.Call) and value.args:  # MappingProxyType({…}), frozenset(…)
                value = value.args[0]
            is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
            if len(targets) == 1 and _name(targets[0]).isupper() and (is_text or isinstance(value, ast.Dict)):
                assert value is not None
                yield _name(targets[0]), value


Call = tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | None, ast.Call]
"""File:line, the function around it, the call."""


def _calls_by_name(trees: dict[str, ast.Module]) -> dict[str, list[Call]]:
    """All calls, by the name of what is called."""
    found: dict[str, list[Call]] = {}
    for path, tree in trees.items():
        for name, call in _calls_within(tree, path, None):
            found.setdefault(name, []).append(call)
    return found


def _calls_within(
    node: ast.AST, path: str, function: ast.FunctionDef | ast.AsyncFunctionDef | None
) -> Iterator[tuple[str, Call]]:
    if isinstance(node, ast.Call):
        yield _name(node.func), (f"{path}:{node.lineno}", function, node)
    inside = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
    for child in ast.iter_child_nodes(node):
        yield from _calls_within(child, path, inside)
