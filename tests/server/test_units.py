"""The disk refuses a commit: who gets a RECEIPT finds what it says, and who gets an ERROR can send again."""

from __future__ import annotations

import asyncio
from pathlib import Path
from threading import Event

import pytest

from stompbox.errors import StoreError
from stompbox.server import reloading
from stompbox.server.configuring import transition
from stompbox.store.base import Commit
from stompbox.store.memory import MemoryStore
from tests.crash.calls import Client
from tests.crash.requests import World, play, settings
from tests.server.requests.test_publishing import chunk, run_to

ID = {"_AMQ_DUPL_ID": "7"}


class Refusing(MemoryStore):
    """Refuses the next commit with messages, after `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = Event()
        self.is_asked = Event()
        self.is_over = False

    def apply(self, commit: Commit) -> None:
        if not self.is_over and commit.runs:
            self.is_asked.set()
            self.go.wait()
            self.is_over = True
            raise StoreError("disk-full", "refused by the test")
        super().apply(commit)


class Waiting(MemoryStore):
    """Keeps the first commit after `is_armed` under way until `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_armed = False
        self.go = Event()
        self.is_asked = Event()

    def apply(self, commit: Commit) -> None:
        if self.is_armed and not self.is_asked.is_set():
            self.is_asked.set()
            self.go.wait(10)
        super().apply(commit)


def policies(**of: str) -> str:
    return "".join(
        [
            f'[[address-setting]]\nmatch = "{name}"\ndisk-full-policy = "{policy}"\n'
            for name, policy in of.items()
        ]
    )


def client_of(world: World) -> Client:
    return Client(world.broker, world.broker.configuration, "")


async def answered(world: World, client: Client, receipt: str) -> str:
    """RECEIPT or ERROR."""

    def answers() -> list[str]:
        return [frame.command for frame in client.heard() if frame.headers.get("receipt-id") == receipt]

    await world.until(answers)
    return answers()[0]


@pytest.mark.parametrize(
    ("source", "target", "answer"),
    [("BLOCK", "FAIL", "ERROR"), ("FAIL", "BLOCK", "RECEIPT"), ("FAIL", "FAIL", "ERROR")],
)
@pytest.mark.parametrize("in_transaction", [False, True])
def test_the_address_where_a_message_stays_says_what_its_sender_is_told(
    tmp_path: Path, source: str, target: str, answer: str, *, in_transaction: bool
) -> None:
    """Not the one that he has sent to, which only sends on."""
    store = Refusing()
    divert = '[[divert]]\nname = "d"\naddress = "source"\nforwarding-address = "target"\nexclusive = true\n'

    async def story(world: World) -> None:
        client = client_of(world)
        more = {"transaction": "t"} if in_transaction else {"receipt": "r"}
        client.say("BEGIN", {"transaction": "t"})
        client.say("SEND", {"destination": "/queue/source", **more}, b"x")
        if in_transaction:
            client.say("COMMIT", {"transaction": "t", "receipt": "r"})
        store.go.set()
        assert await answered(world, client, "r") == answer
        await world.settled()
        assert world.there().get("target", []) == ([b"x"] if answer == "RECEIPT" else [])

    play(tmp_path, store, story, policies(source=source, target=target) + divert)


def test_what_is_decided_is_not_decided_anew_when_settings_change_meanwhile(tmp_path: Path) -> None:
    store = Refusing()

    async def story(world: World) -> None:
        client = client_of(world)
        client.say("SEND", {"destination": "/queue/q", "receipt": "r"}, b"x")
        await world.until(store.is_asked.is_set)
        again = settings(tmp_path / "again", policies(q="FAIL"), "")
        for _ in reloading.taking(world.broker, transition(world.broker.configuration, again)):
            pass
        store.go.set()
        assert await answered(world, client, "r") == "RECEIPT"
        assert world.there()["q"] == [b"x"]

    play(tmp_path, store, story, policies(q="BLOCK"))


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize("is_flying", [False, True])
def test_the_receipt_of_a_duplicate_says_that_the_first_one_is_stored(
    tmp_path: Path, *, is_flying: bool, in_transaction: bool
) -> None:
    """Its sender, whose connection was lost, sends it again while the disk works on the first one, which it refuses then."""
    store = Refusing()

    async def story(world: World) -> None:
        first, again = client_of(world), client_of(world)
        await world.until(lambda: first.heard() and again.heard())
        first.say("SEND", {"destination": "/queue/q", "receipt": "r", **ID}, b"x")
        if is_flying:
            await world.until(store.is_asked.is_set)
        again.say("BEGIN", {"transaction": "t"})
        more = {"transaction": "t"} if in_transaction else {"receipt": "r"}
        again.say("SEND", {"destination": "/queue/q", **more, **ID}, b"x")
        if in_transaction:
            again.say("COMMIT", {"transaction": "t", "receipt": "r"})
        store.go.set()
        assert await answered(world, again, "r") == "RECEIPT"
        assert world.there()["q"] == [b"x"]
        assert await answered(world, first, "r") == "RECEIPT"

    play(tmp_path, store, story)


def test_a_batch_that_has_a_duplicate_is_published_when_the_first_one_is_stored(tmp_path: Path) -> None:
    store = Refusing()

    async def story(world: World) -> None:
        store.is_over = True
        assert await world.stage(chunk(run_to("/queue/q", b"x", **ID), run_to("/queue/q", b"y"))) == ""
        store.is_over = False
        first = client_of(world)
        first.say("SEND", {"destination": "/queue/q", "receipt": "r", **ID}, b"x")
        await world.until(store.is_asked.is_set)
        store.go.set()
        assert (await world.publish())[0] in ("", "disk-full")
        await world.until(lambda: world.broker.engine.trouble is None)
        assert (await world.publish())[0] == ""
        assert sorted(world.there()["q"]) == [b"x", b"y"]

    play(tmp_path, store, story)


def test_who_sent_a_message_whose_duplicate_nobody_sent_gets_an_error(tmp_path: Path) -> None:
    store = Refusing()

    async def story(world: World) -> None:
        client = client_of(world)
        client.say("SEND", {"destination": "/queue/q", "receipt": "r", **ID}, b"x")
        store.go.set()
        assert await answered(world, client, "r") == "ERROR"
        await world.settled()
        assert world.there().get("q", []) == []
        again = client_of(world)
        again.say("SEND", {"destination": "/queue/q", "receipt": "r", **ID}, b"x")
        assert await answered(world, again, "r") == "RECEIPT"
        assert world.there()["q"] == [b"x"]

    play(tmp_path, store, story)


DURABLE = {"id": "1", "destination": "/topic/t", "durable-subscription-name": "d"}


@pytest.mark.parametrize(
    ("before", "last"),
    [
        ([("SEND", {"destination": "/queue/q", "persistent": "true"}, b"x")], ("DISCONNECT", {})),
        ([("SUBSCRIBE", DURABLE, b"")], ("DISCONNECT", {})),
        ([("SUBSCRIBE", DURABLE, b"")], ("UNSUBSCRIBE", {"id": "1"})),
        (
            [("SUBSCRIBE", DURABLE, b""), ("UNSUBSCRIBE", {"id": "1"}, b"")],
            ("SUBSCRIBE", {**DURABLE, "id": "2"}),
        ),
    ],
    ids=["DISCONNECT after SEND", "DISCONNECT after SUBSCRIBE", "UNSUBSCRIBE", "SUBSCRIBE again"],
)
def test_a_receipt_waits_for_what_is_under_way_to_the_disk(
    tmp_path: Path, before: list[tuple[str, dict[str, str], bytes]], last: tuple[str, dict[str, str]]
) -> None:
    """All that was done before the frame is stored when its RECEIPT comes, whether it was still to be committed or being so."""
    store = Waiting()

    async def story(world: World) -> None:
        client = Client(world.broker, world.broker.configuration, "c")
        await world.settled()
        store.is_armed = True
        for command, headers, body in before:
            client.say(command, headers, body)
        await world.until(store.is_asked.is_set)
        assert not world.broker.engine.is_dirty
        command, headers = last
        client.say(command, {**headers, "receipt": "r"})
        for _ in range(100):  # turns of the loop: it would have been said in the first
            await asyncio.sleep(0)
        assert [frame for frame in client.heard() if frame.headers.get("receipt-id") == "r"] == []
        store.go.set()
        assert await answered(world, client, "r") == "RECEIPT"

    play(tmp_path, store, story)
