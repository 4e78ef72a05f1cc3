"""The core function library of XPath 1.0 (section 4).

Decides: every function's arguments, result and cost. `id` knows no identifiers, for documents without DTD have none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from stompbox.selectors.xpath.document import XML_NAMESPACE, NodeKind, XmlNode
from stompbox.selectors.xpath.types import (
    Focus,
    NodeSet,
    XType,
    XValue,
    spend_text,
    string_value,
    text_number,
    to_boolean,
    to_number,
    to_text,
)


@dataclass(frozen=True, slots=True)
class Function:
    """What a function of XPath takes and gives. `parameters`: the types arguments are converted to, None for any; the last `optional` may
    be left out, `repeats` repeats the last."""

    result: XType
    parameters: tuple[XType | None, ...]
    call: Callable[..., XValue]
    optional: int = 0
    repeats: bool = False
    positional: bool = False
    """Whether the result depends on the position in the set that is being filtered."""

    def accepts(self, count: int) -> bool:
        return len(self.parameters) - self.optional <= count and (
            self.repeats or count <= len(self.parameters)
        )


def _first(focus: Focus, nodes: NodeSet | None) -> XmlNode | None:
    return focus.node if nodes is None else nodes[0] if nodes else None


def _name_part(read: Callable[[XmlNode], str]) -> Callable[..., str]:
    named = (NodeKind.ELEMENT, NodeKind.ATTRIBUTE, NodeKind.INSTRUCTION)

    def part(focus: Focus, nodes: NodeSet | None = None) -> str:
        node = _first(focus, nodes)
        return read(node) if node is not None and node.kind in named else ""

    return part


def _string(focus: Focus, value: XValue | None = None) -> str:
    return string_value(focus.node, focus) if value is None else to_text(value, focus)


def _number(focus: Focus, value: XValue | None = None) -> float:
    return text_number(string_value(focus.node, focus)) if value is None else to_number(value, focus)


def _concat(focus: Focus, *texts: str) -> str:
    return spend_text("".join(texts), focus)


def _starts_with(focus: Focus, text: str, start: str) -> bool:
    return text.startswith(start)


def _contains(focus: Focus, text: str, part: str) -> bool:
    return part in spend_text(text, focus)


def _substring_before(focus: Focus, text: str, part: str) -> str:
    before, found, _ = spend_text(text, focus).partition(part) if part else ("", "", "")
    return before if found else ""


def _substring_after(focus: Focus, text: str, part: str) -> str:
    return spend_text(text, focus).partition(part)[2] if part else text


def _substring(focus: Focus, text: str, start: float, length: float = math.inf) -> str:
    """XPath 1.0, 4.2: the characters whose position p has round(start) <= p < round(start) + round(length); NaN takes none."""
    first = _round(focus, start)
    end = first + _round(focus, length)
    if math.isnan(first) or math.isnan(end):
        return ""
    low = max(first - 1, 0.0)
    high = min(end - 1, float(len(text)))
    return spend_text(text[int(low) : int(high)], focus) if low < high else ""


def _string_length(focus: Focus, text: str | None = None) -> float:
    return float(len(_own(focus, text)))


def _normalize_space(focus: Focus, text: str | None = None) -> str:
    words = spend_text(_own(focus, text), focus).translate(_BLANKS).split(" ")
    return " ".join(word for word in words if word)


def _own(focus: Focus, text: str | None) -> str:
    return string_value(focus.node, focus) if text is None else text


_BLANKS = str.maketrans("\t\n\r", "   ")


def _translate(focus: Focus, text: str, old: str, new: str) -> str:
    focus.spend(len(old))
    table: dict[int, str] = {}
    for at, char in enumerate(old):
        table.setdefault(ord(char), new[at : at + 1])  # the first occurrence decides
    return spend_text(text, focus).translate(table)


def _lang(focus: Focus, language: str) -> bool:
    for node in (focus.node, *focus.ancestors(focus.node)):
        focus.spend(1 + len(node.attributes))
        for attribute in node.attributes:
            if attribute.uri == XML_NAMESPACE and attribute.local == "lang":
                found, wanted = attribute.text.lower(), language.lower()
                return found == wanted or found.startswith(wanted + "-")
    return False


def _sum(focus: Focus, nodes: NodeSet) -> float:
    return float(sum(text_number(string_value(node, focus)) for node in nodes))


def _whole(toward: Callable[[float], int]) -> Callable[[Focus, float], float]:
    return lambda focus, number: float(toward(number)) if math.isfinite(number) else number


def _round(focus: Focus, number: float) -> float:
    """Rounds to the nearest integer, halves upwards."""
    return float(math.floor(number + 0.5)) if math.isfinite(number) and abs(number) < 2**52 else number


_T, _N, _S, _B = XType.NODES, XType.NUMBER, XType.TEXT, XType.BOOLEAN

FUNCTIONS: dict[str, Function] = {
    "last": Function(_N, (), lambda focus: float(focus.size), positional=True),
    "position": Function(_N, (), lambda focus: float(focus.position), positional=True),
    "count": Function(_N, (_T,), lambda focus, nodes: float(len(nodes))),
    "id": Function(_T, (None,), lambda focus, value: []),
    "local-name": Function(_S, (_T,), _name_part(lambda node: node.local), optional=1),
    "namespace-uri": Function(_S, (_T,), _name_part(lambda node: node.uri), optional=1),
    "name": Function(_S, (_T,), _name_part(lambda node: node.name), optional=1),
    "string": Function(_S, (None,), _string, optional=1),
    "concat": Function(_S, (_S, _S), _concat, repeats=True),
    "starts-with": Function(_B, (_S, _S), _starts_with),
    "contains": Function(_B, (_S, _S), _contains),
    "substring-before": Function(_S, (_S, _S), _substring_before),
    "substring-after": Function(_S, (_S, _S), _substring_after),
    "substring": Function(_S, (_S, _N, _N), _substring, optional=1),
    "string-length": Function(_N, (_S,), _string_length, optional=1),
    "normalize-space": Function(_S, (_S,), _normalize_space, optional=1),
    "translate": Function(_S, (_S, _S, _S), _translate),
    "boolean": Function(_B, (None,), lambda focus, value: to_boolean(value, focus)),
    "not": Function(_B, (_B,), lambda focus, value: not value),
    "true": Function(_B, (), lambda focus: True),
    "false": Function(_B, (), lambda focus: False),
    "lang": Function(_B, (_S,), _lang),
    "number": Function(_N, (None,), _number, optional=1),
    "sum": Function(_N, (_T,), _sum),
    "floor": Function(_N, (_N,), _whole(math.floor)),
    "ceiling": Function(_N, (_N,), _whole(math.ceil)),
    "round": Function(_N, (_N,), _round),
}

CONVERSIONS: dict[XType, Callable[[XValue, Focus], XValue]] = {
    XType.TEXT: to_text,
    XType.NUMBER: to_number,
    XType.BOOLEAN: to_boolean,
}
