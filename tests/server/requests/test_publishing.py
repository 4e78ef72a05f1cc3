"""Batches of sinks on their way: what others notice, what is refused before anything is published, which writes are one."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from stompbox.broker.addresses.address import Address
from stompbox.broker.addresses.routing import CHOSEN, NUMBERED
from stompbox.errors import StoreError
from stompbox.message import Run, Shape
from stompbox.server.requests import publishing
from stompbox.store.base import Commit
from stompbox.store.chunks import encode
from stompbox.store.memory import MemoryStore
from tests.crash.calls import WITHIN, Client
from tests.crash.requests import World, play

FULL = """[[address-setting]]
match = "small"
address-full-policy = "FAIL"
max-size-messages = 5
"""
PUBLISH = {
    "destination": "stompbox.requests",
    "request": "publish",
    "request-id": "p",
    "sink": "lake",
    "batch": "0",
}


def chunk(*runs: Run) -> bytes:
    first = 0
    for run in runs:
        run.first, first = first, first + len(run)
    return encode(runs, 0)


def run_to(destination: str, *bodies: bytes, **headers: str) -> Run:
    return Run(Shape({"destination": destination, **headers}), list(bodies))


def numbered(destination: str, count: int) -> Run:
    return run_to(destination, *[b"%07d" % number for number in range(count)])


def test_others_get_their_receipts_while_a_large_batch_is_published(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        for partition in range(4):
            assert await world.stage(chunk(numbered("/queue/q", 50_000)), partition) == ""
        assert world.broker.engine.bodies.all_unsaved == 0, "what is staged is in the store, and nowhere else"
        other = Client(world.broker, world.broker.configuration, "")
        world.client.say("SEND", PUBLISH, b'{"attempts": [[0, 1], [1, 1], [2, 1], [3, 1]]}')
        received = 0
        while world.client.messages[-1].headers["request-id"] != "p":
            other.say("SEND", {"destination": "/queue/other", "receipt": str(received)})
            await world.until(lambda: str(received) in other.receipts)  # noqa: B023 - it is awaited here
            received += 1
        assert received > 5
        assert world.there()["q"] == [b"%07d" % number for _ in range(4) for number in range(50_000)]

    play(tmp_path, MemoryStore(), story)


def test_what_goes_through_many_octets_at_once_is_done_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the loop gets is cut already: pieces for the store, and runs that one look at the clock is enough for."""
    threads: dict[str, int] = {}
    sizes: list[int] = []

    def beside(name: str) -> None:
        function = getattr(publishing, name)

        def called(*arguments: object) -> list[Run]:
            threads[name] = threading.get_ident()
            found: list[Run] = function(*arguments)
            sizes.extend([run.size for run in found if isinstance(run, Run)])
            return found

        monkeypatch.setattr(publishing, name, called)

    for name in ("_pieces", "_decoded"):
        beside(name)

    async def story(world: World) -> None:
        assert await world.stage(chunk(numbered("/queue/q", 50_000)), 0) == ""
        world.client.say("SEND", PUBLISH, b'{"attempts": [[0, 1]]}')
        await world.until(lambda: world.client.messages[-1].headers["request-id"] == "p")
        assert len(world.there()["q"]) == 50_000

    play(tmp_path, MemoryStore(), story)
    assert threads.keys() == {"_pieces", "_decoded"}
    assert threading.get_ident() not in threads.values()
    assert sum(sizes) == 7 * 50_000
    assert max(sizes) <= publishing.STEP


def test_what_takes_long_for_each_message_is_cut_into_single_ones_and_few() -> None:
    bodies = [b"%d" % number for number in range(1000)]
    numbers = [b"%d" % number for number in range(1000)]
    repeating = run_to("/queue/q", *bodies, AMQ_SCHEDULED_PERIOD="1000")
    columned = Run(Shape({"destination": "/queue/r"}, holes=("_AMQ_DUPL_ID",)), bodies, (numbers,))
    for run, most in ((repeating, 1), (columned, NUMBERED), (run_to("/queue/s", *bodies), 1000)):
        found = publishing._decoded(chunk(run), is_given=False)
        assert [body for part in found for body in part.bodies] == bodies
        assert max(map(len, found)) == most


def test_no_commit_of_a_batch_is_large(tmp_path: Path) -> None:
    class Measuring(MemoryStore):
        largest = 0

        def apply(self, commit: Commit) -> None:
            size = sum(run.size for runs in commit.runs.values() for run in runs) + sum(
                map(len, commit.parts.values())
            )
            self.largest = max(self.largest, size)
            super().apply(commit)

    store = Measuring()

    async def story(world: World) -> None:
        for partition in range(2):
            assert await world.stage(chunk(run_to("/queue/q", *[b"x" * 100_000] * 120)), partition) == ""
        assert (await world.publish(2))[1]["published"] == 240

    play(tmp_path, store, story)
    assert 0 < store.largest < publishing.WINDOW + publishing.PORTION


class Holding(MemoryStore):
    """Holds the second commit that has messages until `goes_on`."""

    def __init__(self) -> None:
        super().__init__()
        self.holds, self.goes_on = threading.Event(), threading.Event()
        self.stored: list[int] = []  # messages of each commit that has some

    def apply(self, commit: Commit) -> None:
        if commit.runs:
            self.stored.append(sum(len(run) for runs in commit.runs.values() for run in runs))
            if len(self.stored) == 2:
                self.holds.set()
                assert self.goes_on.wait(WITHIN)
        super().apply(commit)


def test_while_a_portion_is_on_its_way_to_the_disk_the_next_one_is_sent_and_no_more(tmp_path: Path) -> None:
    store = Holding()

    async def story(world: World) -> None:
        for partition in range(2):
            assert await world.stage(chunk(run_to("/queue/q", *[b"x" * 100_000] * 60)), partition) == ""
        sent = world.broker.engine.counters
        world.client.say("SEND", PUBLISH, b'{"attempts": [[0, 1], [1, 1]]}')
        try:
            await world.until(lambda: store.holds.is_set() and sent["received"] > sum(store.stored))
            for _ in range(100):  # turns in which it could go on
                await asyncio.sleep(0)
            # messages of a portion, which a busy machine may store in several commits
            most = publishing.PORTION // 100_000 + 1
            assert sent["received"] - store.stored[0] <= 2 * most
        finally:
            store.goes_on.set()
        await world.until(lambda: world.client.messages[-1].headers["request-id"] == "p")
        assert len(world.there()["q"]) == 120

    play(tmp_path, store, story)


class Damaged(MemoryStore):
    damaged = -1  # the body of which no piece but its summary can be read

    def read_part(self, body: int, number: int) -> bytes:
        if body == self.damaged and number:
            raise StoreError("data-corrupt", f"piece {number} of body {body} is damaged (checksum)")
        return super().read_part(body, number)


def test_a_damaged_piece_ends_its_attempt_with_a_reason(tmp_path: Path) -> None:
    """The batch is decided when it comes to light: what can be published is, and the answer says what is lost."""
    store = Damaged()

    async def story(world: World) -> None:
        for partition in range(3):
            body = b"%d" % partition + b"." * 20_000
            assert await world.stage(chunk(run_to("/queue/q", *[body] * 100)), partition) == ""
        store.damaged = sorted(
            attempt.body.id
            for batch in world.broker.sinks.batches.values()
            for attempt in batch.attempts.values()
        )[1]
        said, _ = await world.publish(3)
        assert "data-corrupt" in said
        assert [body[:1] for body in world.there()["q"]] == [b"0"] * 100 + [b"2"] * 100
        assert world.broker.engine.counters["dropped"] == 100
        assert not world.broker.publications.busy and not world.broker.sinks.publishing

    play(tmp_path, store, story)


@pytest.mark.parametrize(
    ("runs", "code"),
    [
        ([numbered("/queue/q", 3), numbered("/queue/small", 4), numbered("/queue/small", 3)], "address-full"),
        ([numbered("/queue/q", 3), run_to("/temp-queue/nobodys", b"x")], "no-such-temporary"),
        ([numbered("/queue/q", 3), run_to("/topic/t", b"x" * 2_000_000, retain="set")], "retained-too-large"),
        (
            [numbered("/queue/q", 3), run_to("/queue/q", b"x" * 2_000_000, AMQ_SCHEDULED_PERIOD="9")],
            "schedule-too-large",
        ),
    ],
    ids=str,
)
def test_what_is_refused_is_refused_whole(tmp_path: Path, runs: list[Run], code: str) -> None:
    async def story(world: World) -> None:
        for partition, run in enumerate(runs):
            assert await world.stage(chunk(run), partition) == ""
        assert (await world.publish(len(runs)))[0] == code
        await world.settled()
        assert sum(map(len, world.there().values())) == 0
        assert world.broker.sinks.size > 0, "it is staged as before"
        assert (await world.publish())[1] == {"published": 3, "already": False}

    play(tmp_path, MemoryStore(), story, FULL)


def test_a_batch_that_fits_is_taken_with_its_last_message(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.stage(chunk(numbered("/queue/small", 5)))
        assert (await world.publish())[1]["published"] == 5
        await world.stage(chunk(numbered("/queue/small", 1)), batch=1)
        assert (await world.publish(batch=1))[0] == "address-full"

    play(tmp_path, MemoryStore(), story, FULL)


def test_what_the_disk_refuses_is_staged_as_before(tmp_path: Path) -> None:
    class Failing(MemoryStore):
        is_failing = False

        def apply(self, commit: Commit) -> None:
            if self.is_failing and commit.runs:
                raise StoreError("disk-full", "refused by the test")
            super().apply(commit)

    store = Failing()

    async def story(world: World) -> None:
        await world.stage(chunk(numbered("/queue/q", 3)))
        store.is_failing = True
        assert (await world.publish())[0] == "disk-full"
        store.is_failing = False
        await world.until(lambda: world.broker.engine.trouble is None)
        assert (await world.publish())[1] == {"published": 3, "already": False}
        assert world.there()["q"] == [b"%07d" % number for number in range(3)]

    play(tmp_path, store, story)


def test_two_writes_of_one_batch_to_two_destinations_are_both_published_once(tmp_path: Path) -> None:
    by = {"once-per": "destination"}

    async def write(world: World, *names: str, batch: int = 0) -> tuple[str, object]:
        for partition, name in enumerate(names):
            assert (
                await world.stage(
                    chunk(run_to(f"/queue/{name}", b"%s%d" % (name.encode(), batch))), partition, batch, **by
                )
                == ""
            )
        code, answer = await world.publish(len(names), batch, **by)
        return code, answer.get("published")

    async def story(world: World) -> None:
        for batch in range(2):
            assert await write(world, "a", batch=batch) == ("", 1)
            assert await write(world, "b", "c", batch=batch) == ("", 2)
            for _ in range(2):  # all of it is replayed
                assert await write(world, "a", batch=batch) == ("", 0)
                assert await write(world, "b", "c", batch=batch) == ("", 0)
            assert (await write(world, "c", "d", batch=batch))[0] == "batch-overlaps"
        assert await write(world, "d", batch=0) == ("", 0), "an older batch is not published any more"
        there = world.there()
        assert {name: there.get(name, []) for name in "abcd"} == {
            "a": [b"a0", b"a1"],
            "b": [b"b0", b"b1"],
            "c": [b"c0", b"c1"],
            "d": [],
        }
        assert (await world.publish(1, 2, **{"once-per": "row"}))[0] == "bad-once-per"

    play(tmp_path, MemoryStore(), story)


def test_two_writes_of_one_batch_that_are_staged_at_once(tmp_path: Path) -> None:
    by = {"once-per": "destination"}

    async def story(world: World) -> None:
        for partition, name in enumerate("ab"):
            assert await world.stage(chunk(run_to(f"/queue/{name}", name.encode())), partition, **by) == ""
        for partition in range(2):
            wanted = b'{"attempts": [[%d, 1]]}' % partition
            assert (await world.ask("publish", wanted, sink="lake", batch="0", **by))[1] == {
                "published": 1,
                "already": False,
            }
        assert {name: world.there()[name] for name in "ab"} == {"a": [b"a"], "b": [b"b"]}
        assert await world.stage(chunk(numbered("/queue/a", 1)), batch=1) == ""
        assert (await world.publish(batch=1))[1]["published"] == 1
        assert world.broker.sinks.batches == {}

    play(tmp_path, MemoryStore(), story)


def test_duplicates_need_no_room(tmp_path: Path) -> None:
    def with_ids(*ids: bytes) -> bytes:
        return chunk(
            Run(
                Shape({"destination": "/queue/small"}, holes=("_AMQ_DUPL_ID",)),
                [b"x"] * len(ids),
                (list(ids),),
            )
        )

    async def story(world: World) -> None:
        for batch, ids in enumerate(([b"1", b"2", b"3", b"4"], [b"3", b"4", b"5"], [b"5", b"1"], [b"6"])):
            assert await world.stage(with_ids(*ids), batch=batch) == ""
            assert (await world.publish(batch=batch))[0] == ("address-full" if b"6" in ids else "")
        assert len(world.there()["small"]) == 5

    play(tmp_path, MemoryStore(), story, FULL)


def test_without_that_a_second_write_of_a_batch_is_told_that_it_was_published(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.stage(chunk(numbered("/queue/a", 1)))
        assert (await world.publish())[1] == {"published": 1, "already": False}
        await world.stage(chunk(numbered("/queue/b", 1)))
        assert (await world.publish())[1] == {"published": 0, "already": True}

    play(tmp_path, MemoryStore(), story)


def test_a_sink_too_many(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        for sink in ("one", "two", "three"):
            assert (await world.publish(0, sink=sink))[0] == ("" if sink != "three" else "too-many-sinks")
        assert (await world.publish(0, batch=1, sink="one"))[0] == ""
        assert (await world.ask("sink-delete", sink="two"))[0] == ""
        assert (await world.publish(0, sink="three"))[0] == ""

    play(tmp_path, MemoryStore(), story, before="max-sinks-per-user = 2\n")


def test_requests_of_one_sink_that_come_together(tmp_path: Path) -> None:
    """From several connections: one publishes, the others wait for it."""

    async def story(world: World) -> None:
        await world.stage(chunk(numbered("/queue/q", 20_000)))
        others = [Client(world.broker, world.broker.configuration, "") for _ in range(3)]
        for other in others:
            other.say("SEND", PUBLISH, b'{"attempts": [[0, 1]]}')
        await world.until(lambda: all(other.messages for other in others))
        answers = sorted(other.messages[0].body for other in others)
        assert answers == [b'{"published":0,"already":true}'] * 2 + [b'{"published":20000,"already":false}']
        assert len(world.there()["q"]) == 20_000

    play(tmp_path, MemoryStore(), story)


def test_a_batch_goes_on_without_its_client(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await world.stage(chunk(numbered("/queue/q", 100_000)))
        other = Client(world.broker, world.broker.configuration, "")
        other.say("SEND", PUBLISH, b'{"attempts": [[0, 1]]}')
        await world.until(lambda: world.broker.sinks.publishing)
        other.socket.connection_lost(None)
        await world.settled()
        assert len(world.there()["q"]) == 100_000
        assert (await world.publish())[1] == {"published": 0, "already": True}

    play(tmp_path, MemoryStore(), story)


DIVERTED = """[[divert]]
name = "d"
address = "q"
forwarding-address = "r"
filter = "x = 1"
"""


def test_no_more_is_sent_at_once_than_may_go_where_each_message_is_chosen_by_itself(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        engine, sizes = world.broker.engine, list[int]()
        publish = engine.publish_prepared

        def noted(address: Address, run: Run) -> bool:
            sizes.append(len(run))
            return publish(address, run)

        engine.publish_prepared = noted  # type: ignore[method-assign]
        numbers = [b"%d" % number for number in range(1000)]
        columns = ([b"%d" % (number % 2) for number in range(1000)],)
        run = Run(Shape({"destination": "/queue/q"}, holes=("x",)), numbers, columns)
        assert await world.stage(chunk(run)) == ""
        assert (await world.publish())[1]["published"] == 1000
        assert max(sizes) <= CHOSEN
        there = world.there()
        assert there["q"] == numbers
        assert there["r"] == numbers[1::2]

    play(tmp_path, MemoryStore(), story, DIVERTED)
