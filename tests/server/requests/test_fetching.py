"""What requests about logs look at, in how many steps: names, wildcards, chunks and a selector; a time to which commits come meanwhile."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from stompbox.errors import IllegalFrame, Refused
from stompbox.message import Run, Shape
from stompbox.selectors import compile_selector
from stompbox.server.requests.fetching import SelectedChunks, describe, offset_at_time
from stompbox.server.requests.replies import MOST_WORDS, Reply, offsets_in
from stompbox.stomp.frames import Frame
from stompbox.store.base import Commit, StoredChunk
from stompbox.store.chunks import decode, encode
from stompbox.store.memory import MemoryStore
from tests.server.turning import LOOKS, World
from tests.store.runs import run


class Committer:
    """Of a store to which the next commit comes as soon as a time was looked for."""

    def __init__(self, log: Any, *commits: list[int]) -> None:
        self.log = log
        self.store = MemoryStore()
        self.store.apply(Commit(logs={1: "q"}))
        self.commits = list(commits)

    def _land(self) -> None:
        if self.commits:
            runs = [run(offset, arrived=100 * (offset + 1)) for offset in self.commits.pop(0)]
            self.store.apply(Commit(runs={1: runs}))
            self.log.committed = runs[-1].stop

    async def find_time(self, log: int, timestamp: int) -> int:
        found = self.store.find_time(log, timestamp)
        self._land()
        return found

    async def read(self, log: int, start: int, stop: int, max_bytes: int) -> list[Any]:
        found = self.store.read(log, start, stop, max_bytes)
        self._land()
        return found


@pytest.mark.parametrize(
    ("timestamp", "expected"), [(0, 0), (100, 0), (150, 1), (250, 2), (300, 2), (301, 3), (9999, 3)]
)
def test_what_lands_while_a_time_is_looked_for_is_looked_at(timestamp: int, expected: int) -> None:
    log = SimpleNamespace(id=1, committed=0)
    committer = Committer(log, [0, 1], [2])
    broker: Any = SimpleNamespace(committer=committer)
    address: Any = SimpleNamespace(log=log)
    assert asyncio.run(offset_at_time(broker, address, timestamp)) == expected


# Describing


def house(addresses: int) -> World:
    world = World()
    client = world.client()
    for number in range(addresses):
        client.say(("SEND", {"destination": f"/topic/d.{number}", "persistent": "false"}))
    world.until_idle()
    return world


def described(world: World, wish: object, **headers: str) -> Any:
    body = json.dumps(wish).encode()
    frame = Frame("SEND", {"request": "describe", "request-id": "1", **headers}, body)
    answer: Reply = world.driven(describe(world.client().connection, frame))
    return json.loads(b"".join(answer[1]))


def longest(addresses: int, wildcards: int) -> int:
    """Lines of the longest step of a describe with so many wildcards, that name nothing, over so many addresses."""
    world = house(addresses)
    wish = {"destinations": ",".join([f"*.q{number}" for number in range(wildcards)])}
    described(world, wish)  # what is imported first
    with world.steps() as steps:
        assert described(world, wish) == {"missing": [], "addresses": {}}
    return steps.longest


def test_no_step_grows_with_the_wildcards_or_the_addresses() -> None:
    assert longest(120, 400) <= 2 * longest(12, 40)


def longest_of_new(addresses: int) -> int:
    """Lines of the longest step of a describe of so many addresses whose logs the store does not know."""
    world = house(addresses)
    described(world, {"destinations": "none"})
    with world.steps() as steps:
        assert len(described(world, {"destinations": "d.*"})["addresses"]) == addresses
    assert all(address.log.is_known for address in world.broker.engine.addresses.values())
    return steps.longest


def test_very_many_logs_that_the_store_does_not_know_are_told_it_in_steps() -> None:
    few = longest_of_new(60)
    assert longest_of_new(600) <= 4 * few


def test_the_wildcards_of_one_request_have_so_many_words_together() -> None:
    world = house(1)
    most = MOST_WORDS // 2
    assert described(world, {"destinations": ",".join(["*.0"] * most)})["addresses"].keys() == {"d.0"}
    with pytest.raises(IllegalFrame) as refused:
        described(world, {"destinations": ",".join(["*.0"] * (most + 1))})
    assert refused.value.code == "bad-destination"


@pytest.mark.parametrize("count", [3, 2000])
def test_names_are_found_in_the_order_in_which_their_addresses_were_made(count: int) -> None:
    """However few or many they are, and however they were written."""
    world = house(20)
    names = [f"d.{number}" for number in reversed(range(count))]
    found = described(world, {"destinations": ",".join([f" {name}, " for name in names])})
    assert list(found["addresses"]) == [f"d.{number}" for number in range(min(20, count))]
    assert found["missing"] == names[: max(0, count - 20)]


def test_offsets_of_many_addresses_are_gone_through_in_steps() -> None:
    world = house(3)
    connection = world.client().connection
    frame = Frame("SEND", {"request": "describe", "request-id": "1"})
    many = {f"d.{number}": [number, ""] for number in range(2000)}
    with world.steps() as steps:
        found = world.driven(offsets_in(connection, frame, many, "the body"))
    assert list(found) == list(many) and found["d.7"].offset == 7
    assert steps.longest < 200


@pytest.mark.parametrize("bad", ["x", -1, [1, 2], [1], None, True, 1 << 62])
def test_a_wrong_offset_among_many_is_refused(bad: object) -> None:
    world = house(1)
    with pytest.raises(IllegalFrame, match="must hold numbers from 0 on"):
        described(world, {"addresses": {"a": 1, "b": bad, "c": 1}})


class Rights:
    """Who may read some addresses alone."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def may(self, _user: object, _right: object, name: str) -> bool:
        return name in self.names


@pytest.mark.parametrize(
    ("readable", "wanted", "refused"),
    [
        (["d.1"], "d.*", ""),
        (["d.1"], "*.2", "'*.2'"),
        ([], "x.*,*.1,*.2", "'*.1'"),
        (["d.1"], "*.1,x.#,#.2,d.#", "'#.2'"),
        ([], "x.*", ""),
    ],
)
def test_who_may_read_none_of_what_a_wildcard_names_is_told_of_the_first_such(
    readable: list[str], wanted: str, refused: str
) -> None:
    world = house(4)
    connection = world.client().connection
    world.broker.permissions = Rights(*readable)  # type: ignore[assignment]
    frame = Frame("SEND", {"request": "describe", "request-id": "1", "destinations": wanted})
    work = describe(connection, frame)
    if not refused:
        world.driven(work)
        return
    with pytest.raises(Refused, match="names") as found:
        world.driven(work)
    assert found.value.code == "not-permitted" and refused in found.value.message


# Selecting


class Unpacker:
    """Does at once what a thread would."""

    async def unpack(self, work: Any) -> Any:
        return work()


def selecting(world: World, text: str) -> SelectedChunks:
    broker: Any = SimpleNamespace(turns=world.broker.turns, committer=Unpacker())
    address: Any = SimpleNamespace(name="a", settings=SimpleNamespace(default_persistent=True))
    return SelectedChunks(broker, compile_selector(text), address)


def chunk_of(runs: list[Run]) -> StoredChunk:
    first = 0
    for one in runs:
        one.first, first = first, first + len(one)
    return StoredChunk(0, first, encode(runs, 0))


def offsets_of(chunk: StoredChunk) -> list[int]:
    runs = decode(chunk.blob, chunk.first) if chunk.blob else []
    return [offset for one in runs for offset in range(one.first, one.stop)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n % 3 = 0", range(0, 600, 3)),
        ("n % 3 = 0 AND JMSTimestamp >= 0", range(0, 600, 3)),
        ("name LIKE '%1_'", [n for n in range(600) if f"{n:04}"[-2] == "1"]),
        ("kind = 'x'", range(600)),
        ("kind = 'y'", []),
    ],
)
def test_a_selector_of_a_fetch_is_asked_in_turns(text: str, expected: Any) -> None:
    world = World()
    shape = Shape({"destination": "/queue/a", "kind": "x"}, holes=("n", "name"))
    columns = ([b"%d" % n for n in range(600)], [b"%04d" % n for n in range(600)])
    chunk = chunk_of([Run(shape, [b"x"] * 600, columns)])
    before = world.loop.turns
    assert offsets_of(world.driven(selecting(world, text).of(chunk))) == list(expected)
    if "kind" not in text:
        assert world.loop.turns - before >= 600 // 50 // LOOKS


def test_one_long_question_of_a_fetch_is_asked_in_portions() -> None:
    world = World()
    body = b"<a>" * 80 + b"</a>" * 80
    chunk = chunk_of([Run(Shape({"destination": "/queue/a"}), [body, b"<b/>"])])
    before = world.loop.turns
    found = world.driven(selecting(world, "XPATH 'count(//a[.//a]) > 70'").of(chunk))
    assert offsets_of(found) == [0]
    assert world.loop.turns - before >= 2
