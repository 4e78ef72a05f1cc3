"""How many addresses and queues the frames of a user may make, on the wire: by whatever frame, over a restart, for whom they count."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from stompbox.broker.addresses.destinations import LONGEST
from stompbox.config import read
from stompbox.config.options import ListenerOptions
from stompbox.message import ANYCAST, MULTICAST
from stompbox.server.addressing.naming import REQUESTS_AT as REQUESTS
from stompbox.store.memory import MemoryStore
from tests.error_codes import SOURCE as ROOT
from tests.server.world import Guest, House, configured, play

ADDRESSES = b"code:too-many-addresses\n"
SOURCE = ROOT / "stompbox"
QUEUES = b"code:too-many-queues\n"
POSITIONS = b"code:too-many-positions\n"


async def ask(guest: Guest, frame: str) -> bytes:
    guest.say(frame)
    return await guest.hear(b"\0\n")


def send(destination: str, more: str = "") -> str:
    return f"SEND\ndestination:{destination}\nreceipt:s\n{more}\nbody\0"


def subscribe(number: int, destination: str, more: str = "") -> str:
    return f"SUBSCRIBE\nid:{number}\ndestination:{destination}\nreceipt:{number}\n{more}\n\0"


async def clients(house: House) -> tuple[Guest, Guest]:
    """An eager one, and another user."""
    return await house.client(version="1.1", more="login:eager\nclient-id:c\n"), await house.client(
        version="1.1", more="login:other\n"
    )


def made(house: House, user: str = "eager") -> tuple[int, int]:
    return house.broker.engine.makers.addresses[user], house.broker.engine.makers.queues[user]


def qualified(house: House, user: str = "eager") -> tuple[int, int]:
    """Reader groups, which count as queues, and their positions."""
    makers = house.broker.engine.makers
    return sum(whose == user for whose, _ in makers.groups.values()), makers.positions[user]


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_sends_to_ever_new_addresses_meet_a_limit_and_go_on_to_those_that_are_there(
    tmp_path: Path, kind: str
) -> None:
    async def story(house: House) -> None:
        eager, other = await clients(house)
        for number in range(3):
            assert b"RECEIPT" in await ask(eager, send(f"/{kind}/a.{number}"))
        said = await ask(eager, send(f"/{kind}/a.3"))
        assert ADDRESSES in said
        assert b"receipt-id:s\n" in said
        assert (
            b"user 'eager' made 3 addresses that are still there; the limit is 3 (maxAddressesPerUser)"
            in said
        )
        assert "a.3" not in house.broker.engine.addresses
        assert b"RECEIPT" in await ask(eager, send(f"/{kind}/a.0")), "it made nothing, and stays"
        assert b"RECEIPT" in await ask(other, send(f"/{kind}/a.3")), "each user has its own"
        assert house.broker.errors["too-many-addresses"] == 1

    play(configured(tmp_path, "maxAddressesPerUser=3"), story)


def test_others_keep_their_wildcard_while_one_makes_all_that_it_may(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        eager, other = await clients(house)
        await ask(other, subscribe(1, "/topic/#"))
        for number in range(6):
            await ask(eager, send(f"/topic/a.{number}"))
        assert made(house) == (3, 0)
        heard = [await other.hear(b"\0\n") for _ in range(3)]
        assert all(b"MESSAGE" in frame for frame in heard)
        assert b"RECEIPT" in await ask(other, "UNSUBSCRIBE\nid:1\nreceipt:u\n\n\0")

    play(configured(tmp_path, "maxAddressesPerUser=3;maxBindings=4"), story)


def test_the_default_leaves_room_in_a_wildcard_of_another() -> None:
    options = ListenerOptions()
    assert 25_000 < options.max_addresses_per_user < options.max_bindings
    assert 25_000 < options.max_queues_per_user < options.max_bindings


@pytest.mark.parametrize(
    "frame",
    [
        send("/queue/new"),
        send("/topic/new"),
        send("/topic/old::new"),
        send("/queue/old::new"),
        send("/queue/old,/queue/new"),
        send("/queue/new", "reply-to:/temp-queue/x\n"),
        send("/queue/new", "x-message-ttl:1000\n"),
        send("/queue/new", "AMQ_SCHEDULED_PERIOD:1000\nAMQ_SCHEDULED_REPEAT:1\n"),
        subscribe(1, "/queue/new"),
        subscribe(1, "/topic/new"),
        subscribe(1, "/topic/old::new"),
        subscribe(1, "/queue/old::new"),
        subscribe(1, "/stream/new"),
        subscribe(1, "/stream/old", "durable-subscription-name:d\n"),
        subscribe(1, "/topic/old", "durable-subscription-name:d\n"),
        subscribe(1, "/topic/#", "durable-subscription-name:d\n"),
        subscribe(1, "/topic/old,/topic/new"),
        subscribe(1, "/queue/new", "browser:true\nbrowser-end:false\n"),
        f"SEND\ndestination:{REQUESTS}\nrequest:group-open\nrequest-id:1\ngroup:g\ndestinations:/queue/new\nstarting:earliest\n\n\0",
    ],
)
def test_whatever_frame_makes_something_meets_the_limit_and_leaves_nothing(
    tmp_path: Path, frame: str
) -> None:
    async def story(house: House) -> None:
        engine = house.broker.engine
        engine.anycast_queue(engine.address("old", ANYCAST))
        eager, _ = await clients(house)
        there = set(engine.addresses), len(engine.durables)
        queues = {queue.name for queue in engine.queues.values() if not queue.address.owner}
        eager.say(frame)
        said = await eager.hear(b"\0")
        assert b"code:too-many-" in said, said
        assert (
            {name for name, address in engine.addresses.items() if not address.owner},
            len(engine.durables),
        ) == (
            {name for name in there[0] if not engine.addresses[name].owner},
            there[1],
        )
        assert {queue.name for queue in engine.queues.values() if not queue.address.owner} == queues
        assert made(house) == (0, 0)

    play(configured(tmp_path, "maxAddressesPerUser=0;maxQueuesPerUser=0"), story)


@pytest.mark.parametrize(
    ("options", "code"),
    [("maxAddressesPerUser=3", ADDRESSES), ("maxQueuesPerUser=3", QUEUES)],
    ids=["addresses", "queues"],
)
def test_what_names_several_is_refused_as_a_whole(tmp_path: Path, options: str, code: bytes) -> None:
    async def story(house: House) -> None:
        engine = house.broker.engine
        eager, _ = await clients(house)
        await ask(eager, send("/queue/a"))
        for frame in (
            send("/queue/a,/queue/b,/queue/c,/queue/d"),
            subscribe(1, "/queue/b,/queue/c,/queue/d"),
        ):
            assert code in await ask(eager, frame)
            assert list(engine.addresses) == ["a"]
        assert engine.addresses["a"].log.next == 1, "nothing of it was sent"
        assert b"RECEIPT" in await ask(eager, send("/queue/a,/queue/b,/queue/c"))

    play(configured(tmp_path, options), story)


def test_a_send_of_a_transaction_that_is_refused_ends_it(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        eager, _ = await clients(house)
        await ask(eager, send("/queue/a"))
        eager.say("BEGIN\ntransaction:t\n\n\0")
        eager.say(send("/queue/a", "transaction:t\n"))
        eager.say(send("/queue/b", "transaction:t\n"))
        eager.say("COMMIT\ntransaction:t\nreceipt:c\n\n\0")
        said = await eager.end()
        assert ADDRESSES in said
        assert b"receipt-id:c" not in said
        assert house.broker.engine.addresses["a"].log.next == 1, "nothing of it was sent"

    play(configured(tmp_path, "maxAddressesPerUser=1"), story)


@pytest.mark.parametrize("count", [3, 120], ids=["short", "long"])
def test_a_commit_whose_addresses_have_gone_is_refused_as_a_whole(tmp_path: Path, count: int) -> None:
    """A transaction names as many addresses as it likes, while no more than one of them is there at a time."""

    async def story(house: House) -> None:
        engine = house.broker.engine
        eager, _ = await clients(house)
        eager.say("BEGIN\ntransaction:t\n\n\0")
        for number in range(count):
            await ask(eager, send(f"/queue/a.{number}", "transaction:t\n"))
            await ask(eager, subscribe(1, f"/queue/a.{number}"))
            await ask(eager, "UNSUBSCRIBE\nid:1\nreceipt:u\n\n\0")
        assert made(house) == (0, 0)
        assert ADDRESSES in await ask(eager, "COMMIT\ntransaction:t\nreceipt:c\n\n\0")
        assert not engine.addresses
        assert made(house) == (0, 0)

    play(configured(tmp_path, f"maxAddressesPerUser={count - 1}"), story)


def test_what_goes_makes_room_and_what_a_configuration_or_an_operator_makes_counts_for_nobody(
    tmp_path: Path,
) -> None:
    top = '[[address]]\nname = "known"\n[[address.queue]]\nname = "known"\n'

    async def story(house: House) -> None:
        engine = house.broker.engine
        engine.anycast_queue(engine.address("by-an-operator", ANYCAST))
        eager, _ = await clients(house)
        for name in ("known", "by-an-operator"):
            assert b"RECEIPT" in await ask(eager, send(f"/queue/{name}"))
        assert made(house) == (0, 0)
        await ask(eager, send("/queue/a"))
        assert made(house) == (1, 1)
        assert ADDRESSES in await ask(eager, send("/queue/b"))
        await ask(eager, subscribe(1, "/queue/a"))
        await eager.hear(b"\0\n")
        await ask(eager, "UNSUBSCRIBE\nid:1\nreceipt:u\n\n\0")
        assert "a" not in engine.addresses, "its last message and consumer went, and so did it"
        assert made(house) == (0, 0)
        assert b"RECEIPT" in await ask(eager, send("/queue/b"))
        engine.drop_address(engine.addresses["b"])
        assert made(house) == (0, 0)
        assert not engine.makers.addresses, "who has nothing takes no memory"

    play(configured(tmp_path, "maxAddressesPerUser=1", top), story)


def test_those_without_a_login_count_as_one(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        first, second = [await house.client(version="1.1") for _ in range(2)]
        await ask(first, send("/queue/a"))
        said = await ask(second, send("/queue/b"))
        assert b"clients without a login made 1 addresses that are still there; the limit is 1" in said

    play(configured(tmp_path, "maxAddressesPerUser=1"), story)


async def request(guest: Guest, frame: str) -> bytes:
    guest.say(frame)
    return await guest.hear(b"\0")


def group(kind: str, name: str, more: str = "") -> str:
    return f"SEND\ndestination:{REQUESTS}\nrequest:{kind}\nrequest-id:1\ngroup:{name}\n{more}\n\0"


def opened(name: str, destinations: str) -> str:
    return group("group-open", name, f"destinations:{destinations}\nstarting:earliest\n")


def test_reader_groups_count_with_their_destinations_and_positions_over_a_restart(tmp_path: Path) -> None:
    configuration, store = configured(tmp_path, "maxPositionsPerUser=6"), MemoryStore()

    async def before(house: House) -> None:
        engine = house.broker.engine
        for number in range(3):
            engine.address(f"t.{number}", MULTICAST)
            engine.note_address(engine.addresses[f"t.{number}"])
        eager, other = await clients(house)
        assert b'"positions"' in await request(eager, opened("g", "/topic/t.#"))
        assert qualified(house) == (1, 4)
        said = await request(eager, opened("h", "/topic/t.#"))
        assert POSITIONS in said
        assert b"the limit is 6 (maxPositionsPerUser)" in said
        assert "h" not in engine.group_patterns, "it is refused as a whole"
        assert not any("h" in address.groups for address in engine.addresses.values())
        assert b'"positions"' in await request(eager, opened("g", "/topic/t.#")), (
            "what is there is no more than it was"
        )
        assert b'"positions"' in await request(eager, opened("h", "/topic/t.1"))
        assert qualified(house) == (2, 6)
        assert POSITIONS in await request(eager, opened("g", "/topic/other.#")), (
            "a destination counts that nothing matches"
        )
        assert b'"positions"' in await request(other, opened("others", "/topic/t.#")), "each user has its own"

    async def after(house: House) -> None:
        assert qualified(house) == (2, 6)
        assert qualified(house, "other") == (1, 4)
        eager, _ = await clients(house)
        assert POSITIONS in await request(eager, opened("i", "/topic/t.0"))
        await request(eager, group("group-delete", "g"))
        assert qualified(house) == (1, 2)
        await request(eager, group("group-delete", "h"))
        assert qualified(house) == (0, 0)
        assert "eager" not in house.broker.engine.makers.positions, "who has nothing takes no memory"
        assert not set(house.broker.engine.makers.groups) - {"others"}

    play(configuration, before, store=store)
    play(configuration, after, store=store)


def test_positions_on_addresses_that_come_later_count_for_who_has_made_both(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        eager, other = await clients(house)
        await request(eager, opened("g", "/topic/t.#"))
        assert qualified(house) == (1, 1)
        for number in range(2):
            assert b"RECEIPT" in await ask(eager, send(f"/topic/t.{number}"))
        assert (*made(house), *qualified(house)) == (2, 1, 1, 3)
        assert b"RECEIPT" in await ask(other, send("/topic/t.2"))
        assert (*made(house), *qualified(house)) == (2, 1, 1, 3), "what others make is not held against it"
        assert house.broker.engine.addresses["t.2"].groups.keys() == {"g"}
        assert b"RECEIPT" in await ask(eager, send("/topic/t.3"))
        assert POSITIONS in await ask(eager, send("/topic/t.4")), "who has too many makes no address either"

    play(configured(tmp_path, "maxPositionsPerUser=3"), story)


def test_what_a_user_has_made_counts_after_a_restart(tmp_path: Path) -> None:
    configuration, store = configured(tmp_path, "maxAddressesPerUser=4;maxQueuesPerUser=6"), MemoryStore()

    async def before(house: House) -> None:
        eager, _ = await clients(house)
        await ask(eager, send("/queue/a"))
        await ask(eager, send("/queue/b::c", "persistent:true\n"))
        await ask(eager, subscribe(1, "/topic/d", "durable-subscription-name:d\n"))
        await ask(eager, subscribe(2, "/stream/e", "durable-subscription-name:e\n"))
        assert made(house) == (4, 5)

    async def after(house: House) -> None:
        assert made(house) == (4, 5)
        eager, _ = await clients(house)
        assert ADDRESSES in await ask(eager, send("/queue/new"))
        await ask(eager, subscribe(1, "/queue/a::one"))
        assert QUEUES in await ask(eager, subscribe(2, "/queue/a::two"))
        assert b"RECEIPT" in await ask(
            eager, "UNSUBSCRIBE\nid:d\ndurable-subscription-name:d\nreceipt:u\n\n\0"
        )
        await house.until(lambda: made(house)[1] == 4, "the durable subscription and its queue went")

    play(configuration, before, store=store)
    play(configuration, after, store=store)


def test_a_configuration_takes_over_what_a_frame_had_made(tmp_path: Path) -> None:
    configuration, store = configured(tmp_path), MemoryStore()

    async def before(house: House) -> None:
        eager, _ = await clients(house)
        await ask(eager, send("/queue/a"))
        assert made(house) == (1, 1)

    async def after(house: House) -> None:
        assert made(house) == (0, 0)

    play(configuration, before, store=store)
    path = tmp_path / "stompbox.toml"
    path.write_text(path.read_text() + '\n[[address]]\nname = "a"\n[[address.queue]]\nname = "a"\n')
    play(read(path).configuration, after, store=store)


def test_the_queues_of_a_durable_wildcard_count_for_who_makes_the_addresses_of_it(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        eager, other = await clients(house)
        await ask(eager, subscribe(1, "/topic/#", "durable-subscription-name:d\n"))
        assert made(house) == (0, 1), "it counts even without a queue"
        await ask(other, send("/topic/of-another"))
        assert made(house) == (0, 1), "nobody pays for what others make"
        for number in range(5):
            await ask(eager, send(f"/topic/a.{number}"))
        assert made(house) == (2, 3), "its own count, as soon as it has enough of them it makes no address"
        assert QUEUES in await ask(eager, subscribe(2, "/topic/#", "durable-subscription-name:e\n"))

    play(configured(tmp_path, "maxQueuesPerUser=2"), story)


def test_virtual_hosts_share_the_count_of_a_user(tmp_path: Path) -> None:
    top = '[[virtual-host]]\nname = "localhost"\n[[virtual-host]]\nname = "b"\n'

    async def story(house: House) -> None:
        here = await house.client(version="1.1", more="login:eager\n")
        there = await house.client(version=None)
        there.say("CONNECT\naccept-version:1.1\nhost:b\nlogin:eager\n\n\0")
        await there.hear(b"\0\n")
        await ask(here, send("/queue/a"))
        assert ADDRESSES in await ask(there, send("/queue/a"))

    play(configured(tmp_path, "maxAddressesPerUser=1", top), story)


MAKING = {"address": 2, "anycast_queue": 2, "exact_queue": 3, "prepare": 1}
"""Methods of the engine that make something for who asks, and which of their arguments says who that is."""


def test_whoever_obeys_a_frame_says_who_asks() -> None:
    """What is made without a maker counts for nobody: there is no such call where frames are obeyed."""
    asked, silent = [], []
    for path in [*sorted((SOURCE / "server").rglob("*.py")), *sorted((SOURCE / "broker").rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in MAKING
            ):
                is_engine = ast.unparse(node.func.value).endswith("engine")
                says = len(node.args) > MAKING[node.func.attr] or any(
                    keyword.arg == "maker" for keyword in node.keywords
                )
                if is_engine:
                    (asked if says else silent).append(f"{path.name}:{node.lineno} {ast.unparse(node)}")
    assert len(asked) > 15
    assert [call for call in silent if not call.startswith("engine.py")] == []


# Names


LONG = "n" * (LONGEST + 1)


@pytest.mark.parametrize(
    "frame",
    [
        send(f"/queue/{LONG}"),
        send(f"/topic/{LONG}"),
        send(f"/queue/a,/queue/{LONG}"),
        send(f"/queue/a::{LONG}"),
        send("/queue/a", f"reply-to:/temp-queue/{LONG}\n"),
        subscribe(1, f"/queue/{LONG}"),
        subscribe(1, f"/topic/{LONG}", "x-queue-name:q\n"),
        subscribe(1, "/topic/a", f"x-queue-name:{LONG}\n"),
        subscribe(1, f"/temp-queue/{LONG}"),
        subscribe(1, f"/stream/{LONG}"),
        subscribe(1, "/topic/a", f"durable-subscription-name:{LONG}\n"),
        subscribe(1, "/stream/a", f"durable-subscription-name:{LONG}\n"),
        f"SUBSCRIBE\nid:{LONG}\ndestination:/topic/a\ndurable:true\nauto-delete:false\nreceipt:1\n\n\0",
        f"SEND\ndestination:{REQUESTS}\nrequest:group-open\nrequest-id:1\ngroup:{LONG}\ndestinations:/queue/a\nstarting:earliest\n\n\0",
        f"SEND\ndestination:{REQUESTS}\nrequest:group-open\nrequest-id:1\ngroup:g\ndestinations:/queue/{LONG}\nstarting:earliest\n\n\0",
    ],
)
def test_a_name_may_have_so_many_characters(tmp_path: Path, frame: str) -> None:
    """What makes something of this name makes nothing, and with one character less it does."""

    async def story(house: House) -> None:
        eager, other = await clients(house)
        say = request if REQUESTS in frame else ask
        assert b"name-too-long" in await say(eager, frame)
        assert not any(len(name) > LONGEST for name in house.broker.engine.addresses)
        assert not any(len(queue.name) > LONGEST + 10 for queue in house.broker.engine.queues.values())
        assert not house.broker.engine.durables
        assert b"name-too-long" not in await say(other, frame.replace(LONG, LONG[1:]))

    play(configured(tmp_path), story)
