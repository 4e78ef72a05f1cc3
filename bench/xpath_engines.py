"""XPATH of selectors with three engines: Stompbox's own, elementpath and lxml (libxml2). `python -m bench.xpath_engines`.

What a message costs, body read and expression asked; how many expressions of the tests are answered as XPath 1.0 says; and for how long
one expression of a stranger holds up the thread that asks it, which is the broker's loop. Each attack has a process of its own, ended
after DEADLINE seconds. The figures stand in docs/decisions/xpath-of-our-own.md.
"""

from __future__ import annotations

import multiprocessing
import timeit
from collections.abc import Callable
from importlib.metadata import version
from time import perf_counter
from xml.etree import ElementTree

import elementpath
from lxml import etree

from stompbox.selectors.xpath import Document, compile_xpath
from tests.selectors.xpath.test_evaluation import DOCUMENT, TRUE

Asked = Callable[[bytes], object]  # reads a body and asks the compiled expression about it

LIMIT = 102_400  # octets of a body
FLIGHT = b"<flight carrier='UA'><origin>EWR</origin><dest>IAH</dest><delay>75</delay></flight>"
ORDERS = b"<orders>%b</orders>" % b"".join(
    [b"<order id='%d'><sku>A%d</sku><price>%d.50</price></order>" % (n, n, n) for n in range(200)]
)
BODIES = {f"{len(FLIGHT)} octets": FLIGHT, f"{len(ORDERS)} octets": ORDERS}
ASKED = (  # the first two are what ActiveMQ's pages and tests show
    "//title[@lang='eng']",
    "root/b",
    "/flight/delay > 60",
    "//order[price > 150]/sku",
    "count(//order) > 10 and not(//error)",
)
BROAD = b"<r>" + b"<a/>" * 11_900 + b"</r>"  # 48 KB, and as many nodes as Stompbox looks at
DEEP = b"<a>" * 5_000 + b"</a>" * 5_000
LONG = b"<a>" + b"x" * 100_000 + b"</a>"
ATTACKS = (
    ("//a[//a[//a]]", "broad", BROAD),
    ("//*[count(//*[count(//*) > 0]) > 0]", "broad", BROAD),
    ("//*[. = //*[. != //*]]", "broad", BROAD),
    ("//a[following::a[following::x]]", "broad", BROAD),
    ("//a[not(ancestor::a[ancestor::x])]", "deep", DEEP),
    ("concat(" + "string(/)," * 190 + "string(/)) = ''", "long", LONG),
)
DEADLINE = 10.0  # s


def ours(text: str) -> Asked:
    xpath = compile_xpath(text)
    return lambda body: xpath.holds(Document(lambda: body, LIMIT))


def with_elementpath(text: str) -> Asked:
    """On the standard library's tree: comments and instructions are read too, as XPath 1.0 has them."""
    selector = elementpath.Selector(f"boolean({text})", parser=elementpath.XPath1Parser)

    def asked(body: bytes) -> object:
        parser = ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True, insert_pis=True))
        return selector.select(ElementTree.ElementTree(ElementTree.fromstring(body, parser)))

    return asked


def with_lxml(text: str) -> Asked:
    xpath = etree.XPath(f"boolean({text})")
    return lambda body: xpath(
        etree.ElementTree(etree.fromstring(body, etree.XMLParser(resolve_entities=False, no_network=True)))
    )


ENGINES: dict[str, Callable[[str], Asked]] = {
    "Stompbox": ours,
    "elementpath": with_elementpath,
    "lxml": with_lxml,
}


def main() -> None:
    versions = ", ".join([f"{name} {version(name.lower())}" for name in ENGINES])
    print(f"{versions}, libxml2 {'.'.join(map(str, etree.LIBXML_VERSION))}\n")
    costs()
    print()
    for name, engine in ENGINES.items():
        right = sum([agrees(engine, text) for text in TRUE])
        print(f"{name} answers {right} of {len(TRUE)} expressions of tests/selectors/xpath as XPath 1.0 says")
    print()
    attacks()


def costs() -> None:
    """The best of several rounds; the bodies are told apart by a comment, so that no document is kept from the time before."""
    print(
        "| us for a message, its body read | body | "
        + " | ".join(ENGINES)
        + " |\n|---|---|"
        + "---:|" * len(ENGINES)
    )
    for text in ASKED:
        for size, body in BODIES.items():
            print(
                f"| `{text}` | {size} | "
                + " | ".join([f"{cost(engine(text), body):.0f}" for engine in ENGINES.values()])
                + " |"
            )


def cost(asked: Asked, body: bytes) -> float:
    others = [body + b"<!--%d-->" % n for n in range(20)]
    return (
        min(timeit.repeat(lambda: [asked(other) for other in others], number=1, repeat=15))
        / len(others)
        * 1e6
    )


def agrees(engine: Callable[[str], Asked], text: str) -> bool:
    try:
        return engine(text)(DOCUMENT) is True
    except Exception:
        return False


def attacks() -> None:
    print(
        "| ms that one expression takes | body | "
        + " | ".join(ENGINES)
        + " |\n|---|---|"
        + "---:|" * len(ENGINES)
    )
    for text, name, body in ATTACKS:
        took = [ended(engine, text, body) for engine in ENGINES]
        print(f"| `{text[:45]}` | {name} | " + " | ".join(took) + " |", flush=True)


def ended(engine: str, text: str, body: bytes) -> str:
    """How long it took, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=attack, args=(engine, text, body, sending), daemon=True)
    process.start()
    try:
        receiving.recv()  # it has imported what it needs
        if not receiving.poll(DEADLINE):
            return f"> {DEADLINE * 1000:.0f}"
        return str(receiving.recv())
    except EOFError:
        return "crashed"
    finally:
        process.kill()
        process.join()


def attack(engine: str, text: str, body: bytes, sending: multiprocessing.connection.Connection) -> None:
    asked = ENGINES[engine](text)
    sending.send("ready")
    begun = perf_counter()
    try:
        asked(body)
        told = ""
    except Exception as fault:
        told = f", {type(fault).__name__}"
    sending.send(f"{(perf_counter() - begun) * 1e3:.0f}{told}")


if __name__ == "__main__":
    main()
