"""What is staged becomes the log's as it lies where the log alone takes it; else it is read, and goes as what is sent."""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from stompbox.config import ListenerOptions
from stompbox.message import Run, Shape
from stompbox.server.requests import publishing, sinks
from stompbox.server.requests.incoming import kinds_of
from stompbox.store.base import Commit
from stompbox.store.chunks import HEAD, ROW, Flat, encode, encode_flat
from stompbox.store.memory import MemoryStore
from tests.crash.calls import Client
from tests.crash.requests import World, play

KEPT = """[[address-setting]]
match = "kept.#"
retention-ms = 1000000000
"""
EACH = 100


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "LEAST_READY", 1)


class Watching(MemoryStore):
    """Notes of each run that it is given whether it is staged."""

    def __init__(self) -> None:
        super().__init__()
        self.staged: list[bool] = []

    def apply(self, commit: Commit) -> None:
        self.staged += [run.is_staged for runs in commit.runs.values() for run in runs]
        super().apply(commit)


def chunk(*runs: Run) -> bytes:
    first = 0
    for run in runs:
        run.first, first = first, first + len(run)
    return encode(runs, 0)


def run_to(destination: str, batch: int = 0, count: int = EACH, **headers: str) -> Run:
    return Run(Shape({"destination": destination, **headers}), bodies(batch, count))


def bodies(batch: int = 0, count: int = EACH) -> list[bytes]:
    return [b"%d.%d" % (batch, number) for number in range(count)]


async def written(world: World, *runs: Run, batch: int = 0) -> None:
    assert await world.stage(chunk(*runs), batch=batch) == ""
    assert (await world.publish(batch=batch))[0] == ""
    await world.settled()


def received(client: Client) -> list[bytes]:
    return [frame.body for frame in client.messages if "request-id" not in frame.headers]


def another(world: World, destination: str, **headers: str) -> Client:
    client = Client(world.broker, world.broker.configuration, "")
    client.say("SUBSCRIBE", {"destination": destination, "id": "1", "ack": "auto", **headers})
    return client


def test_readers_of_the_log_find_it_there(tmp_path: Path) -> None:
    """One that was there, one that came while it was on its way to the disk, and one that comes later."""
    store = Watching()

    async def story(world: World) -> None:
        before = another(world, "/stream/kept.a", **{"x-stream-offset": "next"})
        await written(world, run_to("/topic/kept.a"))
        await world.until(lambda: received(before) == bodies())
        assert await world.stage(chunk(run_to("/topic/kept.a", 1)), batch=1) == ""
        log = world.broker.engine.addresses["kept.a"].log
        world.client.say(
            "SEND",
            {
                "destination": "stompbox.requests",
                "request": "publish",
                "request-id": "p",
                "sink": "lake",
                "batch": "1",
            },
            b'{"attempts": [[0, 1]]}',
        )
        await world.until(lambda: log.next == 2 * EACH)
        assert log.committed < log.next
        between = another(world, "/stream/kept.a", **{"x-stream-offset": str(EACH)})
        await world.settled()
        await world.until(lambda: received(between) == bodies(1))
        await world.until(lambda: received(before) == bodies() + bodies(1))
        later = another(world, "/stream/kept.a", **{"x-stream-offset": "first"})
        await world.until(lambda: received(later) == bodies() + bodies(1))
        assert store.staged == [True, True]

    play(tmp_path, store, story, KEPT)


def test_a_group_reads_it_and_it_goes_behind_the_group(tmp_path: Path) -> None:
    store = Watching()

    async def story(world: World) -> None:
        assert (
            await world.ask("group-open", b'{"destinations": "/topic/a"}', group="g", starting="earliest")
        )[0] == ""
        await written(world, run_to("/topic/a"))
        assert world.there()["a"] == bodies()
        assert store.staged == [True]
        done = b'{"a": %d}' % EACH
        assert (await world.ask("group-commit", done, group="g"))[0] == ""
        await world.settled()
        assert world.there()["a"] == []

    play(tmp_path, store, story)


def test_its_octets_count_for_retention(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        for batch in range(4):
            await written(world, run_to("/topic/few", batch), batch=batch)
        assert world.there()["few"] == bodies(2) + bodies(3)

    settings = '[[address-setting]]\nmatch = "few"\nretention-messages = 200\n'
    play(tmp_path, MemoryStore(), story, settings)


Beside = Callable[[World], object]
WANTED: dict[str, tuple[str, str, Beside]] = {
    "a subscription": ("/topic/kept.a", "", lambda world: another(world, "/topic/kept.a")),
    "a queue beside": ("/topic/kept.a", "", lambda world: another(world, "/queue/kept.a")),
    "a queue": ("/queue/kept.a", "", lambda world: None),
    "one queue of the topic": (
        "/topic/kept.a::kept.a",
        "",
        lambda world: another(world, "/topic/kept.a::kept.a"),
    ),
    "a topic nobody keeps": ("/topic/lost", "", lambda world: None),
    "a divert": (
        "/topic/kept.a",
        '[[divert]]\nname = "d"\naddress = "kept.a"\nforwarding-address = "b"\n',
        lambda world: None,
    ),
    "a limit": (
        "/topic/kept.a",
        'max-size-messages = 1000\naddress-full-policy = "FAIL"\n',
        lambda world: None,
    ),
    "an expiry of the address": ("/topic/kept.a", "expiry-delay = 100000\n", lambda world: None),
    "messages for who comes later": ("/topic/kept.a", "retroactive-message-count = 5\n", lambda world: None),
    "messages that need not last": ("/topic/kept.a", "default-persistent = false\n", lambda world: None),
}


@pytest.mark.parametrize("name", WANTED)
def test_where_somebody_has_it_in_memory_it_goes_as_what_is_sent(tmp_path: Path, name: str) -> None:
    destination, more, beside = WANTED[name]
    store = Watching()

    async def story(world: World) -> None:
        client = beside(world)
        await written(world, run_to(destination))
        assert True not in store.staged
        assert world.broker.engine.counters["received"] >= EACH
        if isinstance(client, Client) and name != "a queue beside":
            await world.until(lambda: received(client) == bodies())

    play(tmp_path, store, story, KEPT + more)


ASKING: dict[str, Run] = {
    "a time to live": run_to("/topic/kept.a", expiration="100000"),
    "a delay": run_to("/topic/kept.a", AMQ_SCHEDULED_DELAY="5"),
    "a group": run_to("/topic/kept.a", JMSXGroupID="g"),
    "no duplicates": run_to("/topic/kept.a", _AMQ_DUPL_ID="1"),
    "to be retained": run_to("/topic/kept.a", retain="set"),
    "not to last": run_to("/topic/kept.a", persistent="false"),
}


@pytest.mark.parametrize("what", ASKING)
def test_what_asks_for_something_when_it_arrives_goes_as_what_is_sent(tmp_path: Path, what: str) -> None:
    store = Watching()

    async def story(world: World) -> None:
        await written(world, ASKING[what])
        assert True not in store.staged
        assert len(world.there().get("kept.a", [])) == (1 if what == "no duplicates" else EACH)

    play(tmp_path, store, story, KEPT)


@pytest.mark.parametrize(
    ("runs", "staged"),
    [
        ((run_to("/topic/kept.a", kind="x"), run_to("/topic/kept.a", kind="y")), [True]),
        ((run_to("/topic/kept.a"), run_to("/topic/kept.b")), [False, False]),
        ((run_to("/topic/kept.a"), run_to("kept.a", **{"destination-type": "MULTICAST"})), [False, False]),
        ((run_to("/topic/kept.a,/topic/kept.b"),), [True, True]),
    ],
)
def test_all_of_a_chunk_goes_one_way(tmp_path: Path, runs: tuple[Run, ...], staged: list[bool]) -> None:
    store = Watching()

    async def story(world: World) -> None:
        await written(world, *runs)
        assert store.staged == staged

    play(tmp_path, store, story, KEPT)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("LEAST_READY", 1 << 20), ("MOST_READY", 100), ("MOST_MESSAGES", EACH - 1), ("MOST_KEPT", 10)],
)
def test_neither_small_nor_large_chunks_nor_long_headers(
    tmp_path: Path, setting: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, setting, value)
    store = Watching()

    async def story(world: World) -> None:
        await written(world, run_to("/topic/kept.a"))
        assert store.staged == [False]
        assert world.there()["kept.a"] == bodies()

    play(tmp_path, store, story, KEPT)


def test_what_the_broker_adds_to_a_message_is_there(tmp_path: Path) -> None:
    """The chunk is the broker's then, not the one that was sent."""
    store = Watching()

    async def story(world: World) -> None:
        client = another(world, "/stream/kept.a", **{"x-stream-offset": "next"})
        (listener,) = world.broker.configuration.listeners
        stamping = replace(listener, url=f"{listener.url}?stompEnableMessageId=true")
        world.client = Client(world.broker, replace(world.broker.configuration, listeners=[stamping]), "")
        await written(world, run_to("/topic/kept.a"))
        await world.until(lambda: received(client) == bodies())
        assert len({frame.headers["amqMessageId"] for frame in client.messages}) == EACH
        assert store.staged == [True]

    play(tmp_path, store, story, KEPT)


def test_who_subscribes_meanwhile_gets_what_was_not_sent_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt is with the disk, and the others were to be left in the log as well."""
    monkeypatch.setattr(publishing, "PORTION", 1)
    store = Watching()
    clients: list[Client] = []

    async def story(world: World) -> None:
        for partition in range(3):
            assert await world.stage(chunk(run_to("/topic/kept.a", partition)), partition) == ""
        reached = world.broker.sinks.reached

        def subscribing(publication: object) -> None:
            reached(publication)  # type: ignore[arg-type]
            if not clients:
                clients.append(another(world, "/topic/kept.a"))

        monkeypatch.setattr(world.broker.sinks, "reached", subscribing)
        assert (await world.publish(3))[1]["published"] == 3 * EACH
        await world.settled()
        await world.until(lambda: received(clients[0]) == bodies(1) + bodies(2))
        assert world.there()["kept.a"] == bodies(0) + bodies(1) + bodies(2)
        assert store.staged[0] is True
        assert True not in store.staged[1:]

    play(tmp_path, store, story, KEPT)


def test_several_attempts_are_one_portion_and_a_batch_is_published_whole(tmp_path: Path) -> None:
    store = Watching()

    async def story(world: World) -> None:
        for partition in range(100):
            assert await world.stage(chunk(run_to("/topic/kept.a", partition)), partition) == ""
        assert (await world.publish(100))[1]["published"] == 100 * EACH
        await world.settled()
        assert world.there()["kept.a"] == [body for batch in range(100) for body in bodies(batch)]
        assert store.staged == [True] * 100
        assert not world.broker.sinks.size

    play(tmp_path, store, story, KEPT)


# What may be a log's as it lies


def forged(change: Callable[[bytearray], None]) -> bytes:
    blob = bytearray(chunk(run_to("/topic/kept.a", kind="x"), run_to("/topic/kept.a", kind="y")))
    change(blob)
    struct.pack_into("<I", blob, 0, zlib.crc32(blob[4:]))
    return bytes(blob)


def in_head(at: int, value: int) -> Callable[[bytearray], None]:
    """Of the numbers of a head, the one at this place."""

    def change(blob: bytearray) -> None:
        head = list(HEAD.unpack_from(blob))
        head[at] = value
        HEAD.pack_into(blob, 0, *head)

    return change


def in_row(at: int, value: int) -> Callable[[bytearray], None]:
    """Of the second run."""

    def change(blob: bytearray) -> None:
        place = HEAD.size + HEAD.unpack_from(blob)[7] + ROW.size
        row = list(ROW.unpack_from(blob, place))
        row[at] = value
        ROW.pack_into(blob, place, *row)

    return change


def in_shape(at: int, value: int) -> Callable[[bytearray], None]:
    def change(blob: bytearray) -> None:
        blob[HEAD.size + 4 + at] = value

    return change


@pytest.mark.parametrize(
    ("change", "is_chunk"),
    [
        (lambda blob: None, True),
        (in_head(2, 77), True),  # what is said of the first offset is put right
        (in_head(4, 77), True),  # and of the latest arrival
        (in_row(1, 77), True),  # and of each
        (in_row(4, 7), True),  # and for which queues it is
        (in_head(3, 77), False),  # but not how many there are,
        (in_head(5, 77), False),
        (in_row(0, 77), False),  # a gap,
        (in_shape(0, 9), False),  # a priority that the headers do not say,
        (in_shape(1, 1), False),  # nor that they last,
        (in_shape(4, 7), False),  # nor when they expire
    ],
)
def test_a_chunk_that_is_not_as_the_broker_writes_it_is_written_anew(
    change: Callable[[bytearray], None], is_chunk: bool, tmp_path: Path
) -> None:
    blob = forged(change)
    assert kinds_of(blob, ListenerOptions()).is_chunk is is_chunk
    store = Watching()

    async def story(world: World) -> None:
        assert await world.stage(blob) == ""
        assert (await world.publish())[1]["published"] == 2 * EACH
        await world.settled()
        assert world.there()["kept.a"] == bodies() + bodies()
        assert set(store.staged) == {is_chunk}
        (found,) = [log for log in store.recover().logs if log.name == "kept.a"]
        assert found.next >= 2 * EACH

    play(tmp_path, store, story, KEPT)


@pytest.mark.parametrize(
    "run",
    [
        Run(
            Shape({"destination": "/topic/kept.a"}, holes=("priority",)),
            bodies(),
            ([b"%d" % (n // 50) for n in range(EACH)],),
        ),
        Run(Shape({"destination": "/topic/kept.a"}, holes=("message-id",)), bodies(), ([b"mine"] * EACH,)),
        Run(Shape({"destination": "/topic/kept.a"}, has_length=False), [*bodies(0, 99), b"a\0b"]),
        Run(Shape({"destination": "/topic/kept.a", "redelivered": "true"}), bodies()),
    ],
)
def test_headers_that_are_the_brokers_and_bodies_that_are_no_text_are_written_anew(run: Run) -> None:
    assert not kinds_of(chunk(run), ListenerOptions()).is_chunk


def test_a_run_without_messages_is_none_of_a_log() -> None:
    """Nobody meets one there, because the broker writes none."""
    more, none = run_to("/topic/kept.a", kind="x"), Run(Shape({"destination": "/topic/kept.a"}), [])
    blob = encode_flat([_flat(one) for one in (more, none)])
    found = kinds_of(blob, ListenerOptions())
    assert [kind.messages for kind in found.kinds] == [EACH]
    assert not found.is_chunk


def _flat(run: Run) -> Flat:
    lengths = memoryview(array("I", map(len, run.bodies))).cast("B")
    return Flat(run.shape, len(run), [(lengths, memoryview(b"".join(map(bytes, run.bodies))))])
