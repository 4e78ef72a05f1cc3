"""Floors inside broker/ and server/, from below upward: what is imported lies on a lower floor, or in the same room, also where only the
type checker looks. What a queue asks of its engine is a protocol on the queue's own floor. A file directly in broker/ or server/ is a
room of its own where it is named here, else it is in the lowest.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.test_floors import MODULES, SOURCES, Source, imports

FLOORS = {
    "broker": ("", "logs", "queues", "addresses", "commits", "engine", "subscriptions", "recovery"),
    "server": (
        "",
        "addressing",
        "requests",
        "frames",
        "session",
        "broker",
        "transport",
        "fronts",
        "cluster",
        "run",
    ),
}
BY_ITSELF = {  # files directly in broker/ and server/ that are not on the lowest floor
    "broker": {
        "commits": "commits", "transactions": "commits",
        "catalogue": "engine", "engine": "engine", "recovery": "recovery",
    },
    "server": {
        "broker": "broker", "clients": "broker", "configuring": "broker", "delivering": "broker", "loading": "broker",
        "tracing": "broker",
        "clustered": "run", "run": "run", "verifying": "run", "reloading": "run", "readings": "run", "definitions": "run",
    },
}  # fmt: skip

HOUSE = {
    house: [source for source in SOURCES if source.room == house and source.module != f"stompbox.{house}"]
    for house in FLOORS
}


def room_of(module: str) -> str:
    """The room inside broker/ or server/ that a module is in."""
    _, house, first, *more = module.split(".")
    return first if more else BY_ITSELF[house].get(first, "")


def floor_of(module: str) -> int:
    return FLOORS[module.split(".")[1]].index(room_of(module))


def is_for_typing(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def arrows(source: Source) -> Iterator[tuple[str, bool]]:
    """(module of the same house, whether the program itself imports it)"""
    house = (
        source.module.rpartition(".")[0]
        if source.module.count(".") == 2
        else ".".join(source.module.split(".")[:2])
    )
    typing = {
        id(inner)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.If) and is_for_typing(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for _, module in imports(ast.Module([node], [])):
                if module.startswith(house + ".") and module in MODULES and module != source.module:
                    yield module, id(node) not in typing


@pytest.mark.parametrize("source", [source for sources in HOUSE.values() for source in sources], ids=str)
def test_what_runs_is_imported_from_below(source: Source) -> None:
    if source.path.name == "__init__.py":
        assert source.lines == 0, "rooms have nothing of their own"
        return
    mine = floor_of(source.module)
    assert [module for module, runs in arrows(source) if runs and floor_of(module) > mine] == []


@pytest.mark.parametrize("house", FLOORS)
def test_no_types_are_known_from_above(house: str) -> None:
    files = [source for source in HOUSE[house] if source.path.name != "__init__.py"]
    upward = {
        (source.module, module)
        for source in files
        for module, _ in arrows(source)
        if floor_of(module) > floor_of(source.module)
    }
    assert sorted(upward) == []


@pytest.mark.parametrize("house", FLOORS)
def test_files_do_not_import_each_other_in_circles(house: str) -> None:
    below = {source.module: {module for module, runs in arrows(source) if runs} for source in HOUSE[house]}
    done: set[str] = set()
    while ready := {module for module, others in below.items() if module not in done and others <= done}:
        done |= ready
    assert sorted(below.keys() - done) == []


CIRCLES = {"broker": 4, "server": 4}  # files of one room that know each other's types; may fall, never rise


@pytest.mark.parametrize("house", FLOORS)
def test_types_know_each_other_in_one_room_alone_and_in_few_files(house: str) -> None:
    files = {
        source.module: {module for module, _ in arrows(source)}
        for source in HOUSE[house]
        if source.path.name != "__init__.py"
    }
    reached = {module: reached_from(module, files) for module in files}
    circles = {
        frozenset(other for other in reached[module] if module in reached[other])
        for module in files
        if module in reached[module]
    }
    assert [sorted(circle) for circle in circles if len(circle) > CIRCLES[house]] == []
    assert [sorted(circle) for circle in circles if len({room_of(module) for module in circle}) > 1] == []


def reached_from(module: str, files: dict[str, set[str]]) -> set[str]:
    found, left = set[str](), [module]
    while left:
        new = files.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


def assigned(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement binds, or deletes, with tuples taken apart."""
    if isinstance(node, ast.Assign | ast.Delete):
        yield from node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.NamedExpr):
        yield node.target
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield node.optional_vars
    elif isinstance(node, ast.Tuple | ast.List) and isinstance(node.ctx, ast.Store | ast.Del):
        yield from node.elts
    elif isinstance(node, ast.Starred) and isinstance(node.ctx, ast.Store):
        yield node.value


def assigned_from_outside(tree: ast.AST) -> list[tuple[int, str]]:
    """(line, attribute) of each that is bound or deleted in an object which is not the one whose method does so."""
    found = [
        target for node in ast.walk(tree) for target in assigned(node) if isinstance(target, ast.Attribute)
    ]
    own = ("self", "cls")
    return [
        (one.lineno, ast.unparse(one))
        for one in found
        if not (isinstance(one.value, ast.Name) and one.value.id in own)
    ]


# Values that come from below broker/ and are filled in here, by the name that the program gives them: the messages of a run get
# offsets, times and a history (message.py), a commit of the store gets what it is to say (store/base.py)
VALUES = frozenset(("run", "copy", "commit"))
# Where each message goes by and a method would be one more call for it. What does not stand here has a verb of its owner's.
AT_EACH_MESSAGE = {
    "engine.py": {"log.next", "consumer.is_touched", "binding.done"},
    "logs/segments.py": {"part.turn"},
    "queues/backlog.py": {"segment.home"},
    "queues/consumer.py": {"segment.turn", "binding.out", "binding.queue.out", "queue.out"},
    "queues/memory.py": {"self.whole.size"},
    "queues/queue.py": {"takers.turn"},
}


def test_objects_own_their_state() -> None:
    """In broker/ nobody but a class assigns attributes of its objects: who wants something of a queue has a verb for it."""
    found: dict[str, set[str]] = {}
    for source in HOUSE["broker"]:
        for _, name in assigned_from_outside(source.tree):
            if name.partition(".")[0] not in VALUES:
                found.setdefault(str(source).partition("broker/")[2], set()).add(name)
    assert found == AT_EACH_MESSAGE


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("self.a = 1", []),
        ("queue.a = 1", ["queue.a"]),
        ("self.queue.a += 1", ["self.queue.a"]),
        ("a, (b.c, *d.e) = f", ["b.c", "d.e"]),
        ("del queue.a", ["queue.a"]),
        ("queue.a: int = 1", ["queue.a"]),
        ("for queue.a in b: pass", ["queue.a"]),
        ("queue.a[0] = 1", []),
    ],
)
def test_assignments_from_outside_are_found(text: str, names: list[str]) -> None:
    assert [name for _, name in assigned_from_outside(ast.parse(text))] == names


def test_the_engine_is_told_the_time_in_one_place() -> None:
    tellers = [
        str(source)
        for source in SOURCES
        for _, name in assigned_from_outside(source.tree)
        if name.endswith(".now")
    ]
    assert tellers == ["stompbox/server/broker.py"]
