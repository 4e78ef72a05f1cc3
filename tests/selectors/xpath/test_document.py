from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from stompbox.selectors import Budget
from stompbox.selectors.xpath import Document, compile_xpath
from stompbox.selectors.xpath.document import NodeKind, NotXml, Unseen, parse_xml


def holds(text: str, body: bytes | None, limit: int = 102_400) -> bool | None:
    return compile_xpath(text).holds(Document((lambda: body) if body is not None else None, limit))


def outline(body: bytes) -> list[tuple[str, str]]:
    return [(node.kind.value, node.name or node.text) for node in parse_xml(body, Budget())]


def test_nodes_stand_in_document_order() -> None:
    body = b"<r a='1' xmlns='urn:d' xmlns:p='urn:p'>x<!--c--><p:e p:b='2'/><?t d?>y</r>"
    assert outline(body) == [
        ("root", ""),
        ("element", "r"),
        ("attribute", "a"),
        ("text", "x"),
        ("comment", "c"),
        ("element", "p:e"),
        ("attribute", "p:b"),
        ("processing instruction", "t"),
        ("text", "y"),
    ]
    nodes = parse_xml(body, Budget())
    assert [(node.order, node.last, node.parent) for node in nodes] == [
        (0, 8, -1), (1, 8, 0), (2, 2, 1), (3, 3, 1), (4, 4, 1), (5, 6, 1), (6, 6, 5), (7, 7, 1), (8, 8, 1),
    ]  # fmt: skip
    assert [
        (node.local, node.uri, node.prefix)
        for node in nodes
        if node.kind in (NodeKind.ELEMENT, NodeKind.ATTRIBUTE)
    ] == [
        ("r", "urn:d", ""),
        ("a", "", ""),
        ("e", "urn:p", "p"),
        ("b", "urn:p", "p"),
    ]


def test_text_is_one_node_as_far_as_it_goes() -> None:
    assert outline(b"<r>a&amp;b<![CDATA[<c>]]>&#100;\r\ne</r>")[2:] == [("text", "a&b<c>d\ne")]
    assert outline(b"<r>" + b"x" * 90_000 + b"</r>")[2:] == [("text", "x" * 90_000)]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"not xml",
        b"<a>",
        b"<a></b>",
        b"<a/><b/>",
        b"<a b=1/>",
        b"<a>&nbsp;</a>",
        b"<a>\x00</a>",
        b"\xff\xfe\x00",
        b"<a>\xff</a>",
        b"{}",
        b"<?xml",
        b"<!--",
        b"<n:a/>",
    ],
)
def test_what_is_no_xml_is_false(body: bytes) -> None:
    with pytest.raises(NotXml):
        parse_xml(body, Budget())
    assert holds("true()", body) is False
    assert holds("not(//x)", body) is False


@pytest.mark.parametrize(
    "body",
    [
        "<?xml version='1.0' encoding='UTF-8'?><a>ü</a>".encode(),
        "\ufeff<a>ü</a>".encode(),
        "<a>ü</a>".encode("utf-16"),
        "<?xml version='1.0' encoding='utf-16'?><a>ü</a>".encode("utf-16"),
        b"\xfe\xff" + "<a>ü</a>".encode("utf-16-be"),
        "<?xml version='1.0' encoding='ISO-8859-1'?><a>ü</a>".encode("latin-1"),
        b"<?xml version='1.0' encoding='US-ASCII'?><a>&#252;</a>",
    ],
)
def test_encodings(body: bytes) -> None:
    assert holds("/a = 'ü'", body) is True


@pytest.mark.parametrize(
    "name", ["utf-7", "cp037", "rot13", "idna", "base64", "no-such-thing", "..antigravity"]
)
def test_other_encodings_are_no_xml(name: str) -> None:
    assert holds("//a", f"<?xml version='1.0' encoding='{name}'?><a/>".encode()) is False


LAUGHS = b"<?xml version='1.0'?><!DOCTYPE l [<!ENTITY a0 'ha'>" + b"".join(
    b"<!ENTITY a%d '%s'>" % (level, b"&a%d;" % (level - 1) * 10) for level in range(1, 10)
)


@pytest.mark.parametrize(
    "body",
    [
        b"<!DOCTYPE a><a/>",
        b"\xef\xbb\xbf <!-- c --><?pi?>\n<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a/>",
        b"<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><a>&x;</a>",
        "<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>".encode("utf-16"),
        LAUGHS + b"]><l>&a9;</l>",
    ],
)
def test_a_doctype_ends_the_reading(body: bytes) -> None:
    with pytest.raises(Unseen):
        parse_xml(body, Budget())
    assert holds("true()", body) is None


def test_the_word_doctype_elsewhere_is_text() -> None:
    assert holds("/a = '<!DOCTYPE x>'", b"<a><![CDATA[<!DOCTYPE x>]]></a>") is True
    assert holds("/a", b"<!-- <!DOCTYPE x> --><a/>") is True


def test_nothing_outside_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret.xml"
    secret.write_text("<secret/>")

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    for body in (
        f"<a xmlns:xi='http://www.w3.org/2001/XInclude'><xi:include href='{secret.as_uri()}'/></a>",
        f"<?xml-stylesheet href='{secret.as_uri()}'?><a/>",
        f"<a xmlns:x='http://www.w3.org/2001/XMLSchema-instance' x:noNamespaceSchemaLocation='{secret.as_uri()}'/>",
    ):
        assert holds("//secret", body.encode()) is False
        assert holds("/a", body.encode()) is True


def test_size_is_limited() -> None:
    assert holds("/a", b"<a></a>", limit=7) is True
    assert holds("/a", b"<a> </a>", limit=7) is None
    assert holds("not(/a)", b"<a> </a>", limit=7) is None


def test_without_a_body_it_is_unknown() -> None:
    assert holds("true()", None) is None
    assert compile_xpath("true()").holds(None) is None


def test_the_body_is_read_once() -> None:
    calls: list[int] = []

    def body() -> bytes:
        calls.append(1)
        return b"<a/>"

    document = Document(body, 100)
    assert [compile_xpath(text).holds(document) for text in ("//a", "//b", "/a")] == [True, False, True]
    assert calls == [1]


def counted(
    parse: Callable[[bytes, Budget], object], calls: list[bytes]
) -> Callable[[bytes, Budget], object]:
    def parsed(body: bytes, budget: Budget) -> object:
        calls.append(body)
        return parse(body, budget)

    return parsed


def test_one_message_for_many_subscriptions_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[bytes] = []
    monkeypatch.setattr("stompbox.selectors.xpath.document.parse_xml", counted(parse_xml, calls))
    for body in (b"<many/>", b"<others/>"):
        for text in ("/many", "/others", "//x"):
            holds(text, body)
    assert calls == [b"<many/>", b"<others/>"]
