"""A message body as an XML document in XPath's data model.

Decides: which bodies are documents, and their nodes in document order. Hardened: a DOCTYPE ends the reading, so there are no entities
but the five of XML, nothing external and no network; UTF-8, UTF-16 with a byte order mark, ASCII and Latin-1 are the only encodings;
size is limited.
Does not decide what a path selects.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from xml.parsers import expat

from stompbox.selectors.budget import Budget

XML_NAMESPACE = "http://www.w3.org/XML/1998/namespace"
_ENCODINGS = frozenset((None, "utf-8", "utf-16", "us-ascii", "iso-8859-1"))
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_NODE_STEPS = 3
"""To make a node of a body takes ten times as long as to look at one; but all XPATHs of all selectors share the nodes."""

_PAID_TOGETHER = 32  # nodes
_KEPT = 4  # documents, of up to 3 MiB; as many as are looked at in turn (broker/queues/questions.py)
_MOST_NODES = 12_000  # so that of the steps (budget.py) enough are left to look at each
_SEPARATOR = "\x01"  # no character of XML, so no namespace name contains it


class NotXml(Exception):
    """The body is no well-formed XML: XPATH is FALSE."""


class Unseen(Exception):
    """The body is not looked at (absent, too large, with a DOCTYPE): XPATH is UNKNOWN."""


class TooManyNodes(Unseen):
    """To read the body alone would take all the steps that there are."""


class NodeKind(Enum):
    ROOT = "root"
    ELEMENT = "element"
    ATTRIBUTE = "attribute"
    TEXT = "text"
    COMMENT = "comment"
    INSTRUCTION = "processing instruction"


@dataclass(slots=True, eq=False, repr=False)
class XmlNode:
    """A node of a document. `order`: index in document order; `last`: that of its last descendant or attribute; `text`: the content of what
    is no element.

    `parent` is an index too, -1 for the root: a document holds no reference cycle and is gone with its last user.
    """

    kind: NodeKind
    order: int
    parent: int
    local: str = ""
    uri: str = ""
    prefix: str = ""
    text: str = ""
    last: int = 0
    children: Sequence[XmlNode] = ()
    attributes: Sequence[XmlNode] = ()

    @property
    def name(self) -> str:
        return f"{self.prefix}:{self.local}" if self.prefix else self.local


class Document:
    """The body of one message, parsed when the first XPATH asks for it and at most once. `budget`: of all that looks at the message."""

    __slots__ = ("_body", "_limit", "_nodes", "budget")

    def __init__(self, body: Callable[[], bytes] | None, limit: int, budget: Budget | None = None) -> None:
        self.budget = budget if budget is not None else Budget()
        self._body = body
        self._limit = limit
        self._nodes: list[XmlNode] | None = None

    @property
    def nodes(self) -> list[XmlNode]:
        """In document order, the root first; attributes stand behind their element. Raises NotXml or Unseen."""
        if self._nodes is None:
            self._nodes = self._read()
        return self._nodes

    def _read(self) -> list[XmlNode]:
        body = self._body() if self._body else None
        if body is None or len(body) > self._limit:
            raise Unseen
        nodes = _parsed(body, self.budget)
        if isinstance(nodes, list):
            return nodes
        if nodes is TooManyNodes:
            self.budget.spend(self.budget.steps + 1)
        raise nodes()


Parsed = list[XmlNode] | type[NotXml | Unseen]
_LAST: OrderedDict[bytes, tuple[Parsed, int]] = OrderedDict()


def _parsed(body: bytes, budget: Budget) -> Parsed:
    """Many subscriptions look at the same message one after the other: the last documents are kept, with the steps that they took, as
    several are looked at in turn."""
    found = _LAST.get(body)
    if found is not None:
        _LAST.move_to_end(body)
        budget.know(found[1])
        return found[0]
    before = budget.left
    parsed = _outcome(body, budget)
    _LAST[body] = parsed, before - budget.left
    if len(_LAST) > _KEPT:
        _LAST.popitem(last=False)
    return parsed


def _outcome(body: bytes, budget: Budget) -> Parsed:
    try:
        return parse_xml(body, budget)
    except NotXml:
        return NotXml
    except Unseen as error:
        return type(error)


def parse_xml(body: bytes, budget: Budget) -> list[XmlNode]:
    """The nodes of a document, as Document.nodes has them. What it takes is spent on the way, so that who asks may let others go on
    meanwhile."""
    text = _decoded(body)
    _refuse_doctype(text)
    reader = _Reader(budget)
    parser = expat.ParserCreate(namespace_separator=_SEPARATOR)
    parser.namespace_prefixes = True
    parser.buffer_text = True
    parser.ordered_attributes = True
    parser.XmlDeclHandler = reader.declaration
    parser.StartDoctypeDeclHandler = reader.doctype
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters
    parser.CommentHandler = reader.comment
    parser.ProcessingInstructionHandler = reader.instruction
    try:
        parser.Parse(text, True)
    except (expat.ExpatError, UnicodeError, LookupError, ValueError):
        raise NotXml from None
    return reader.finished()


def _decoded(body: bytes) -> bytes | str:
    if body[:2] in _UTF16_MARKS:
        try:
            return body.decode("utf-16")
        except UnicodeError:
            raise NotXml from None
    if b"\0" in body[:4]:
        raise NotXml
    return body


def _refuse_doctype(body: bytes | str) -> None:
    """A DOCTYPE stands before the first element or nowhere; found here, the parser never sees its entities."""
    prolog = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    at = 3 if prolog.startswith(b"\xef\xbb\xbf") else 0
    while True:
        while prolog[at : at + 1].isspace():
            at += 1
        end = b"?>" if prolog.startswith(b"<?", at) else b"-->" if prolog.startswith(b"<!--", at) else None
        if end is None:
            break
        found = prolog.find(end, at + 2)
        if found < 0:
            raise NotXml
        at = found + len(end)
    if prolog.startswith(b"<!DOCTYPE", at):
        raise Unseen


class _Reader:
    """What expat reports, as nodes. `_open` and `_children` belong to the elements that have not ended yet, the root first."""

    def __init__(self, budget: Budget) -> None:
        root = XmlNode(NodeKind.ROOT, 0, -1)
        self._budget = budget
        self._paid = 0  # nodes whose steps were spent
        self._nodes = [root]
        self._open = [root]
        self._children: list[list[XmlNode]] = [[]]

    def finished(self) -> list[XmlNode]:
        self.end("")
        self._pay()
        return self._nodes

    def _pay(self) -> None:
        steps = (len(self._nodes) - self._paid) * _NODE_STEPS
        self._paid = len(self._nodes)
        self._budget.spend_long(steps)

    def declaration(self, version: str, encoding: str | None, standalone: int) -> None:
        if (encoding.lower() if encoding else None) not in _ENCODINGS:
            raise NotXml

    def doctype(self, name: str, system: str | None, public: str | None, has_subset: int) -> None:
        raise Unseen

    def start(self, name: str, attributes: list[str]) -> None:
        element = self._add(NodeKind.ELEMENT, *_split(name))
        if attributes:
            pairs = zip(attributes[::2], attributes[1::2], strict=True)
            element.attributes = [
                XmlNode(NodeKind.ATTRIBUTE, order, element.order, *_split(name), text, order)
                for order, (name, text) in enumerate(pairs, element.order + 1)
            ]
            self._nodes.extend(element.attributes)
        self._open.append(element)
        self._children.append([])

    def end(self, name: str) -> None:
        element = self._open.pop()
        element.children = self._children.pop() or ()
        element.last = len(self._nodes) - 1

    def characters(self, text: str) -> None:
        before = self._children[-1]
        if before and before[-1].kind is NodeKind.TEXT:
            # XPath 1.0, 5.7: as much text as possible in one node
            before[-1].text += text
        else:
            self._add(NodeKind.TEXT, text=text)

    def comment(self, text: str) -> None:
        self._add(NodeKind.COMMENT, text=text)

    def instruction(self, target: str, text: str) -> None:
        self._add(NodeKind.INSTRUCTION, target, text=text)

    def _add(
        self, kind: NodeKind, local: str = "", uri: str = "", prefix: str = "", text: str = ""
    ) -> XmlNode:
        order = len(self._nodes)
        if order >= _MOST_NODES:
            raise TooManyNodes
        if order >= self._paid + _PAID_TOGETHER:
            self._pay()
        node = XmlNode(kind, order, self._open[-1].order, local, uri, prefix, text, order)
        self._nodes.append(node)
        self._children[-1].append(node)
        return node


def _split(name: str) -> tuple[str, str, str]:
    """What expat gives for a name, `uri SEPARATOR local SEPARATOR prefix` or less -> (local, uri, prefix)."""
    if _SEPARATOR not in name:
        return name, "", ""
    uri, _, rest = name.rpartition(_SEPARATOR) if name.count(_SEPARATOR) < 2 else name.partition(_SEPARATOR)
    local, _, prefix = rest.partition(_SEPARATOR)
    return local, uri, prefix
