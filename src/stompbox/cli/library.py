"""The reference page of the client library: every public name of `stompbox`, with its signature and docstring, and what else programs
import: `stompbox.blocking`, `stompbox.tracing`, `stompbox.testing`.

Decides how a name is described on the page. What is public is said by `__all__`; of a class, what does not begin with an underscore.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from importlib import import_module
from types import ModuleType
from typing import Any, Final

MODULES: Final = {
    "stompbox": "Asyncio. What stands here as a method of a coroutine is awaited.",
    "stompbox.blocking": "Without async. Names, arguments and errors are those of `stompbox`; what is told there is not told again.",
    "stompbox.tracing": "Spans of OpenTelemetry ([Trace messages](../howto/tracing.md)); needs the extra `otel`.",
    "stompbox.testing": "A broker for tests ([Test programs](../testing.md)).",
}
NAMES: Final = {"stompbox.tracing": ("traced", "injected")}
_ARGUMENT: Final = re.compile(r"(`\w+`(?:, `\w+`)*) {2,}")
_PLAIN: Final = (str, bytes, int, float, type(None), tuple)
_INHERITED: Final = (object, BaseException, Exception, Enum)


def page() -> Iterator[str]:
    """The lines of the page behind its title."""
    for name, about in MODULES.items():
        module = import_module(name)
        yield f"## {name}\n\n{about}\n"
        for public in public_names(module):
            yield from _described(name, public, getattr(module, public))


def public_names(module: ModuleType) -> list[str]:
    """Functions first, as who reads begins with them, then classes, errors last; each in the order of the alphabet."""
    names = NAMES.get(module.__name__) or getattr(module, "__all__", None) or _own(module)
    shown = [name for name in names if callable(getattr(module, name))]
    return sorted(shown, key=lambda name: (_rank(getattr(module, name)), name.lower()))


def _own(module: ModuleType) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def _rank(value: Any) -> int:
    if not inspect.isclass(value):
        return 0
    return 2 if issubclass(value, BaseException) else 1


def _described(module: str, name: str, value: Any) -> Iterator[str]:
    yield f"### {module}.{name}\n"
    if not inspect.isclass(value):
        yield f"```text\n{signature(name, value)}\n```\n"
        yield from _paragraphs(value)
        return
    yield from _paragraphs(value)
    if issubclass(value, Enum):
        yield ", ".join(f"`{one.name}`" for one in value) + "\n"
        return
    base = next((one for one in value.__mro__[1:] if one not in _INHERITED), None)
    is_told = base is not None and base.__name__ in vars(import_module("stompbox"))["__all__"]
    if base is not None and (is_told or issubclass(value, BaseException)):
        yield f"A `{base.__name__}`, with all that one has.\n"
    lines = [*_fields(value), *_members(value, base if is_told else None)]
    yield "\n".join([*lines, ""]) if lines else ""


def _fields(value: type) -> Iterator[str]:
    """What a dataclass is made of."""
    for one in fields(value) if is_dataclass(value) else ():
        default = "" if one.default is MISSING else f" = {_value(one.default)}"
        if not one.name.startswith("_"):
            yield f"- `{one.name}: {one.type}{default}`"


def _members(value: type, base: type | None) -> Iterator[str]:
    for member, found in members(value):
        if base is not None and getattr(base, member, None) is found:
            continue
        described = " ".join(text_of(found).split())
        yield f"- `{_head(member, found)}`" + (f": {described}" if described else "")


def members(value: type) -> Iterator[tuple[str, Any]]:
    """Public properties and methods of a class, in the order of the source, those of its own modules' bases too."""
    seen: set[str] = set()
    for one in value.__mro__:
        if one in _INHERITED or not one.__module__.startswith("stompbox"):
            continue
        for name, found in vars(one).items():
            is_shown = isinstance(found, property) or inspect.isfunction(found)
            if is_shown and not name.startswith("_") and name not in seen:
                seen.add(name)
                yield name, found


def _head(name: str, found: Any) -> str:
    if isinstance(found, property):
        kind = (found.fget.__annotations__ if found.fget is not None else {}).get("return", "")
        return f"{name}: {kind}" if kind else name
    return signature(name, found) if inspect.isfunction(found) else name


def signature(name: str, function: Callable[..., Any]) -> str:
    """A function as its source writes it, with the values of its defaults."""
    found = inspect.signature(function)
    parts: list[str] = []
    for one in found.parameters.values():
        if (
            one.kind is one.KEYWORD_ONLY
            and "*" not in parts
            and not any(part.startswith("*") for part in parts)
        ):
            parts.append("*")
        if one.name == "self":
            continue
        stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        kind = f": {one.annotation}" if one.annotation is not one.empty else ""
        equals = " = " if kind else "="
        parts.append(
            f"{stars}{one.name}{kind}" + ("" if one.default is one.empty else equals + _value(one.default))
        )
    is_async = inspect.iscoroutinefunction(function)
    result = found.return_annotation
    returned = "" if result is found.empty or result == "None" else f" -> {result}"
    return f"{'async ' if is_async else ''}{name}({', '.join(parts)}){returned}"


def _value(default: Any) -> str:
    return repr(default) if isinstance(default, _PLAIN) and not isinstance(default, Enum) else "…"


def text_of(found: Any) -> str:
    """The docstring, its lines as they are; of a dataclass that has none, nothing."""
    said = found.__doc__ if isinstance(getattr(found, "__doc__", None), str) else ""
    if inspect.isclass(found) and said and said.startswith(f"{found.__name__}("):  # made by dataclass
        return ""
    return inspect.cleandoc(said or "").replace("<", "&lt;")


def _paragraphs(found: Any) -> Iterator[str]:
    """The docstring as paragraphs; lines that begin with the name of an argument, and blanks behind it, are a list."""
    for part in text_of(found).split("\n\n"):
        lines: list[str] = []
        for line in part.splitlines():
            argument = _ARGUMENT.match(line)
            if argument:
                lines.append(f"- {argument[1]}: {line[argument.end() :]}")
            elif lines:
                lines[-1] += " " + line.strip()
            else:
                lines.append(line)
        if lines:
            yield "\n".join(lines) + "\n"
