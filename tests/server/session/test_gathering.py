"""SENDs of many clients that come in one read of a link: one run where they are alike, and for each client what it is alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from time import perf_counter

import pytest

from stompbox.server import turns
from stompbox.server.fronts.link import Kind
from tests.server.fronts.wild import ARRIVES, CONNECT, OPENS, Wild, played, record

CLIENTS = range(1, 6)
CONSUMER = 9
TAUGHT = 20  # frames, after which a head is read as one of many


def arrived(number: int) -> bytes:
    return (
        record(Kind.ARRIVED, number, ARRIVES)
        + record(Kind.OPENED, number, OPENS)
        + record(Kind.DATA, number, CONNECT)
    )


def send(queue: str, body: str, receipt: str = "", *, more: str = "") -> bytes:
    asked = f"receipt:{receipt}\n" if receipt else ""
    head = f"SEND\ndestination:/queue/{queue}\ncontent-length:{len(body)}\npersistent:false\n{more}{asked}\n"
    return f"{head}{body}\0".encode()


def said(number: int, data: bytes) -> bytes:
    return record(Kind.DATA, number, data)


class Clients:
    """Clients of one front, and what each has been told."""

    def __init__(self, wild: Wild) -> None:
        self.wild = wild
        self.told: dict[int, bytes] = {}
        self._sent = 0

    async def open(self) -> None:
        for number in (*CLIENTS, CONSUMER):
            self.wild.say(arrived(number))
            await self.wild.hear(Kind.ENTERED)
        for at in range(TAUGHT):
            for queue in "ab":
                self.wild.say(said(1, send(queue, "taught") + send(queue, "taught", f"t{at}")))
        await self.received(4 * TAUGHT)
        await self.hear(1, f"t{TAUGHT - 1}", times=2)
        self.told.clear()

    async def received(self, count: int) -> None:
        self._sent += count
        counters = self.wild.broker.engine.counters
        await self.wild.house.until(lambda: counters["received"] >= self._sent, "all were received")
        assert counters["received"] == self._sent

    async def hear(self, number: int, receipt: str, *, times: int = 1) -> None:
        """Until this client has had that receipt."""
        wanted = f"receipt-id:{receipt}\n".encode()
        while self.told.get(number, b"").count(wanted) < times:
            data = await self.wild.reader.read(1 << 16)
            self.wild.heard += self.wild.records.read(data)
            self.look()

    def look(self) -> None:
        for kind, number, octets in self.wild.heard:
            if kind == Kind.DATA:
                self.told[number] = self.told.get(number, b"") + octets
        self.wild.heard.clear()

    def receipts(self, number: int) -> list[bytes]:
        return [part.partition(b"\n")[0] for part in self.told.get(number, b"").split(b"receipt-id:")[1:]]

    async def bodies(self, queue: str) -> list[str]:
        """Of what is in the queue, taken from it."""
        subscribe = f"SUBSCRIBE\nid:{queue}\ndestination:/queue/{queue}\n\n\0"
        leave = f"UNSUBSCRIBE\nid:{queue}\nreceipt:left-{queue}\n\n\0"
        self.wild.say(said(CONSUMER, subscribe.encode()))
        found = self.wild.broker.engine.addresses[queue].only
        assert found is not None
        await self.wild.house.until(lambda: not found.count and not found.delivering, "all has gone out")
        self.wild.say(said(CONSUMER, leave.encode()))
        await self.hear(CONSUMER, f"left-{queue}")
        frames = self.told[CONSUMER].decode().split("\0\n")
        mine = [frame for frame in frames if f"destination:/queue/{queue}\n" in frame]
        bodies = [frame.partition("\n\n")[2] for frame in mine]
        return [body for body in bodies if body != "taught"]


def run_of(wild: Wild, queue: str, body: bytes) -> list[bytes]:
    """The bodies of the run in which this message waits."""
    found = wild.broker.engine.addresses[queue].only
    assert found is not None
    runs = [segment.run for segment in found.backlog.common.segments()]
    return next([bytes(one) for one in run.bodies] for run in runs if body in run.bodies)


def test_alike_they_are_one_run_and_each_has_its_receipts(tmp_path: Path) -> None:
    async def work(wild: Wild) -> None:
        clients = Clients(wild)
        await clients.open()
        wild.say(b"".join([said(n, send("a", f"from {n}", f"r{n}")) for n in (1, 2, 3, 2)]))
        await clients.received(4)
        assert run_of(wild, "a", b"from 1") == [b"from 1", b"from 2", b"from 3", b"from 2"]
        for number in (1, 2, 3):
            await clients.hear(number, f"r{number}")
        assert clients.receipts(1) == [b"r1"]
        assert clients.receipts(2) == [b"r2", b"r2"]
        assert clients.receipts(3) == [b"r3"]

    played(tmp_path, work)


def test_a_queue_that_asks_something_of_each_gets_them_one_by_one(tmp_path: Path) -> None:
    async def work(wild: Wild) -> None:
        clients = Clients(wild)
        await clients.open()
        found = wild.broker.engine.addresses["a"].only
        assert found is not None
        found.obey(replace(found.rules, last_value_key="key"))
        wild.say(b"".join([said(n, send("a", f"from {n}", f"r{n}")) for n in (1, 2, 3)]))
        await clients.received(3)
        assert run_of(wild, "a", b"from 1") == [b"from 1"]
        for number in (1, 2, 3):
            await clients.hear(number, f"r{number}")
        assert await clients.bodies("a") == ["from 1", "from 2", "from 3"]

    played(tmp_path, work)


def test_persistent_ones_are_confirmed_by_one_commit(tmp_path: Path) -> None:
    async def work(wild: Wild) -> None:
        clients = Clients(wild)
        await clients.open()
        for at in range(TAUGHT):
            wild.say(said(1, send("a", "taught", f"s{at}").replace(b"persistent:false", b"persistent:true")))
        await clients.received(TAUGHT)
        await clients.hear(1, f"s{TAUGHT - 1}")
        before = wild.broker.committer.applied
        frames = [send("a", f"from {n}", f"r{n}").replace(b":false", b":true") for n in CLIENTS]
        wild.say(b"".join(map(said, CLIENTS, frames)))
        for number in CLIENTS:
            await clients.hear(number, f"r{number}")
        assert wild.broker.committer.applied == before + 1
        assert len(run_of(wild, "a", b"from 1")) == len(CLIENTS)

    played(tmp_path, work)


def test_what_a_client_sends_next_comes_after_it(tmp_path: Path) -> None:
    """Another queue, another kind of frame, the end of its socket."""

    async def work(wild: Wild) -> None:
        clients = Clients(wild)
        await clients.open()
        wild.say(
            said(2, send("a", "first", "r1"))
            + said(1, send("b", "of another"))
            + said(2, send("b", "second", "r2"))
            + said(2, b"BEGIN\ntransaction:t\nreceipt:r3\n\n\0")
            + said(2, send("a", "third", "r4"))
            + said(3, send("a", "last words"))
            + record(Kind.GONE, 3)
        )
        await clients.hear(2, "r4")
        assert clients.receipts(2) == [b"r1", b"r2", b"r3", b"r4"]
        await clients.received(5)
        assert await clients.bodies("a") == ["first", "third", "last words"]
        assert await clients.bodies("b") == ["of another", "second"]

    played(tmp_path, work)


def test_what_one_has_begun_another_one_does_not_end(tmp_path: Path) -> None:
    """Together their octets would be two whole frames."""

    async def work(wild: Wild) -> None:
        clients = Clients(wild)
        await clients.open()
        whole = send("a", "x" * 200, "mine")
        wild.say(said(1, whole[:-20]) + said(2, send("a", "y" * 30) + send("a", "z" * 30, "yours")))
        await clients.hear(2, "yours")
        await clients.received(2)
        wild.say(said(1, whole[-20:]))
        await clients.hear(1, "mine")
        await clients.received(1)
        assert await clients.bodies("a") == ["y" * 30, "z" * 30, "x" * 200]
        assert (clients.receipts(1), clients.receipts(2)) == ([b"mine"], [b"yours"])

    played(tmp_path, work)


def test_who_is_refused_is_told_each(tmp_path: Path) -> None:
    async def work(wild: Wild) -> None:
        clients = Clients(wild)
        await clients.open()
        wild.broker.engine.addresses["a"].is_blocked = True
        wild.say(b"".join([said(n, send("a", "no", f"r{n}")) for n in (1, 2)]))
        for number in (1, 2):
            await clients.hear(number, f"r{number}")
            assert b"code:address-blocked\n" in clients.told[number]
        await clients.received(0)

    played(tmp_path, work)


@pytest.mark.parametrize("late", [0.0, turns.LATE], ids=["late", "in time"])
@pytest.mark.parametrize("seed", range(12))
def test_each_client_sees_what_it_would_see_alone(
    monkeypatch: pytest.MonkeyPatch, seed: int, late: float, tmp_path: Path
) -> None:
    """Whatever they send, and wherever it is cut, is played in one read, and a record at a time; also where all have to wait."""
    monkeypatch.setattr(turns, "LATE", late)
    sent = _script(Random(seed))
    found = []
    for is_together in (True, False):
        folder = tmp_path / str(is_together)
        folder.mkdir()

        async def work(wild: Wild, *, is_together: bool = is_together) -> None:
            clients = Clients(wild)
            await clients.open()
            records = [said(number, data) for number, data in sent]
            for data in [b"".join(records)] if is_together else records:
                wild.link.data_received(data)
            wild.say(b"".join([said(n, b"BEGIN\ntransaction:end\nreceipt:end\n\n\0") for n in CLIENTS]))
            for number in CLIENTS:
                await clients.hear(number, "end")
            bodies = {queue: await clients.bodies(queue) for queue in "ab"}
            per_client = {
                (queue, n): [b for b in bodies[queue] if b.startswith(f"{n} ")]
                for queue in "ab"
                for n in CLIENTS
            }
            found.append((per_client, {n: clients.receipts(n) for n in CLIENTS}))

        played(folder, work, perf_counter)
    assert found[0] == found[1]
    assert sum(map(len, found[0][0].values())) > 50


def _script(random: Random) -> list[tuple[int, bytes]]:
    """Pieces of frames, in the order in which they come; each client's are whole in the end."""
    left: dict[int, list[bytes]] = {}
    for number in CLIENTS:
        octets = b""
        pieces: list[bytes] = []
        for at in range(30):
            body = f"{number} {at} " + "x" * random.choice((0, 3, 3, 3, 50))
            frame = send(random.choice("aaab"), body, f"r{at}" if random.random() < 0.7 else "")
            frame += b"\n" if random.random() < 0.1 else b""
            octets += frame
            if random.random() < 0.7:
                pieces.append(octets)
                octets = b""
            elif random.random() < 0.3:
                cut = random.randrange(1, len(octets))
                pieces.append(octets[:cut])
                octets = octets[cut:]
        left[number] = [*pieces, *([octets] if octets else [])]
    found = []
    while left:
        number = random.choice(sorted(left))
        found.append((number, left[number].pop(0)))
        if not left[number]:
            del left[number]
    return found
