"""What is sent reaches whom it is for, however the broker came to read it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from stompbox.broker.addresses.routing import ADMITTED, ROLLED
from stompbox.broker.queues.queue import Queue
from stompbox.config.settings import AddressFullPolicy, AddressSetting
from stompbox.config.tables import AddressTable, DivertTable, QueueTable
from stompbox.server.addressing.transforming import TransformedMessage
from stompbox.stomp.codec import encode
from stompbox.stomp.frames import Frame
from stompbox.stomp.versions import VERSIONS
from tests.server.turning import LOOKS, Clock, World
from tests.system.plain import Plain

MANY = 40  # more than it takes until frames that look alike are read in runs


def test_requests_are_answered_one_by_one_when_they_come_in_runs(broker: tuple[str, int]) -> None:
    headers = {
        "destination": "stompbox.requests",
        "request": "describe",
        "destinations": "/queue/runs.of.requests",
        "create": "true",
    }
    with Plain(broker[1]) as client:
        frames = [
            encode(Frame("SEND", {**headers, "request-id": str(number)}, b""), client.version)
            for number in range(MANY)
        ]
        client.socket.sendall(b"".join(frames))
        answers = [client.receive() for _ in range(MANY)]
        client.socket.sendall(b"".join(frames))
        answers += [client.receive() for _ in range(MANY)]
    assert [answer.headers["status"] for answer in answers] == ["ok"] * 2 * MANY
    assert sorted(int(answer.headers["request-id"]) for answer in answers) == sorted([*range(MANY)] * 2)
    (log,) = json.loads(answers[-1].body)["addresses"].items()
    assert (log[0], log[1]["first"], log[1]["next"]) == ("runs.of.requests", 0, 0)


def test_what_is_not_taken_from_senders_leaves_the_other_headers_where_they_are(
    broker: tuple[str, int],
) -> None:
    """Also when its value differs from frame to frame, so that it stands where a column would."""
    with Plain(broker[1]) as client:
        client.send("SUBSCRIBE", {"destination": "/queue/not.taken", "id": "1"})
        for number in range(MANY):
            given = {
                "message-id": f"mine-{number}",
                "n": str(number),
                "redelivered": str(number),
                "dead-letter-reason": str(number),
            }
            client.send("SEND", {"destination": "/queue/not.taken", **given})
        found = [client.receive().headers for _ in range(MANY)]
    assert [headers["n"] for headers in found] == [str(number) for number in range(MANY)]
    assert not any(
        headers["message-id"].startswith("mine") or "dead-letter-reason" in headers for headers in found
    )


def committed(count: int, options: Mapping[str, str]) -> int:
    """Lines of the longest step of a COMMIT of so many messages."""
    world = World()
    sender = world.client()
    sender.say(("BEGIN", {"transaction": "t"}))
    for number in range(count):
        sender.say(
            ("SEND", {"destination": "/queue/q", "transaction": "t", f"h{number % 2}": "1", **options})
        )
    with world.steps() as steps:
        sender.say(("COMMIT", {"transaction": "t", "receipt": "done"}))
        world.until_idle()
    world.turn(20)
    assert sender.confirmed() == ["done"]
    assert world.broker.engine.addresses["q"].anycast["q"].backlog.count == count
    return steps.longest


@pytest.mark.parametrize("options", [{}, {"persistent": "true"}], ids=["plain", "persistent"])
def test_no_step_of_a_transaction_is_longer_the_more_it_sends(options: Mapping[str, str]) -> None:
    few, many = (committed(count, options) for count in (300, 2400))
    assert many <= 1.2 * few


XPATHS = {
    "divert": {
        "diverts": (
            DivertTable(
                name="d", address="q", forwarding_address="r", filter="XPATH '//c = 3'", exclusive=True
            ),
        )
    },
    "filter": {
        "addresses": (
            AddressTable(
                name="q",
                queues=(
                    QueueTable(name="q", filter="NOT XPATH '//c = 3'"),
                    QueueTable(name="r", filter="XPATH '//c = 3'"),
                ),
            ),
        )
    },
}


def looked_into(
    settings: Mapping[str, Any], count: int, *, is_lost: bool = False, transaction: str = ""
) -> int:
    """Lines of the longest step in which a read of so many messages, or their COMMIT, comes to where each of them is looked into."""
    world = World(**settings)
    client = world.client()
    bodies = [b"<a>" + b"<b>x</b>" * 50 + b"<c>%d</c></a>" % (number % 5) for number in range(count)]
    octets = b"".join(
        [
            b"SEND\ndestination:/queue/q\nreceipt:%d\n%b\n%b\0" % (number, transaction.encode(), body)
            for number, body in enumerate(bodies)
        ]
    )
    if transaction:
        client.say(("BEGIN", {"transaction": "t"}))
        client.socket.data_received(octets)
        world.until_idle()
        octets = b"COMMIT\ntransaction:t\nreceipt:done\n\n\0"
    with world.steps() as steps:
        client.socket.data_received(octets)
        if is_lost:
            client.socket.connection_lost(None)
        world.until_idle()
    world.turn(20)
    if not is_lost:
        assert client.confirmed() == [*map(str, range(count)), *(["done"] if transaction else [])]
    for name, are_wanted in (("q", False), ("r", True)):
        reader = world.client()
        where = f"/queue/{name}" if "diverts" in settings else f"/queue/q::{name}"
        reader.say(("SUBSCRIBE", {"id": "1", "destination": where, "consumer-window-size": "-1"}))
        world.until_idle()
        world.turn(20)
        assert reader.bodies() == [body for body in bodies if body.endswith(b"<c>3</c></a>") is are_wanted]
    return steps.longest


@pytest.mark.parametrize("kind", XPATHS)
def test_no_step_is_longer_the_more_messages_of_a_read_are_looked_into(kind: str) -> None:
    looked_into(XPATHS[kind], 20)  # what is imported first
    few, many = (looked_into(XPATHS[kind], count) for count in (40, 160))
    assert many <= 1.3 * few


@pytest.mark.parametrize("kind", XPATHS)
def test_no_step_is_longer_the_more_messages_of_a_transaction_are_looked_into(kind: str) -> None:
    looked_into(XPATHS[kind], 20, transaction="transaction:t\n")
    few, many = (looked_into(XPATHS[kind], count, transaction="transaction:t\n") for count in (40, 160))
    assert many <= 1.3 * few


@pytest.mark.parametrize("kind", ["/queue/", "/topic/"])
@pytest.mark.parametrize("transaction", ["", "transaction:t\n"])
def test_last_value_queues_take_a_long_run_in_portions(kind: str, transaction: str) -> None:
    """Each message is put in the place of the one before: so many in one step, and fewer where several queues do so."""
    world = World(address_settings=(AddressSetting(match="#", default_last_value_key="k"),))
    client, count, keys, queues = world.client(), 3000, 7, 1 if kind == "/queue/" else 3
    for number in range(queues if kind == "/topic/" else 0):
        holder = world.client(headers={"client-id": f"c{number}"})
        holder.say(
            (
                "SUBSCRIBE",
                {"id": "1", "destination": "/topic/q", "durable-subscription-name": "d", "ack": "client"},
            ),
            ("DISCONNECT", {}),
        )
    frame = f"SEND\ndestination:{kind}q\n{transaction}k:%d\n\n%d\0"
    octets = b"".join([frame.encode() % (number % keys, number) for number in range(count)])
    if transaction:
        client.say(("BEGIN", {"transaction": "t"}))
        client.socket.data_received(octets)
        world.until_idle()
        octets = b"COMMIT\ntransaction:t\n\n\0"
    replaced = world.broker.engine.counters
    client.socket.data_received(octets)
    most, before = replaced["replaced"], replaced["replaced"]
    while world.broker.turns.waiting or world.broker.engine.later.waiting:
        world.turn()
        most, before = max(most, replaced["replaced"] - before), replaced["replaced"]
    assert 0 < most <= (LOOKS + 1) * ADMITTED
    address = world.broker.engine.addresses["q"]
    assert (address.log.next, replaced["replaced"]) == (count, queues * (count - keys))
    for queue in [*address.anycast.values(), *address.topics.values()]:
        offsets = [offset for one in queue.backlog.segments() for offset in range(one.first, one.stop)]
        assert sorted(offsets) == list(range(count - keys, count))


def test_rings_make_room_for_a_long_run_in_portions() -> None:
    """Each message of the run pushes out one that stands alone."""
    size = 1500
    world = World(address_settings=(AddressSetting(match="#", default_ring_size=size),))
    client, engine = world.client(), world.broker.engine
    client.socket.data_received(
        b"".join([b"SEND\ndestination:/queue/q\n%c:1\n\n\0" % b"ab"[number % 2] for number in range(size)])
    )
    world.until_idle()
    assert engine.counters["overwritten"] == 0
    client.socket.data_received(b"SEND\ndestination:/queue/q\n\n\0" * size)
    most = before = engine.counters["overwritten"]
    while world.broker.turns.waiting or engine.later.waiting:
        world.turn()
        most, before = max(most, engine.counters["overwritten"] - before), engine.counters["overwritten"]
    assert 0 < most <= (LOOKS + 1) * ROLLED
    assert engine.counters["overwritten"] == size
    assert engine.addresses["q"].anycast["q"].count == size


@pytest.mark.parametrize("kind", XPATHS)
def test_who_sends_what_is_looked_into_and_goes_has_sent_all_of_it(kind: str) -> None:
    looked_into(XPATHS[kind], 60, is_lost=True)


def changed(message: TransformedMessage) -> None:
    message.headers["y"] = "1"


# every other message goes another way, or each is changed
CHOSEN = {
    "diverts": {
        "diverts": (
            DivertTable(name="d", address="q", forwarding_address="r", filter="x = 1", exclusive=True),
            DivertTable(name="e", address="q", forwarding_address="s", filter="x = 0"),
        )
    },
    "transformer": {
        "diverts": (
            DivertTable(
                name="d", address="q", forwarding_address="r", transformer=f"{__name__}:{changed.__name__}"
            ),
        )
    },
    "filters": {
        "addresses": (
            AddressTable(
                name="q", queues=(QueueTable(name="q", filter="x = 0"), QueueTable(name="r", filter="x = 1"))
            ),
        )
    },
    "subscriptions": {},
    "nobody": {
        "addresses": (
            AddressTable(name="q", queues=(QueueTable(name="q", filter="y = 0"),)),
            AddressTable(name="dead", queues=(QueueTable(name="dead"),)),
        ),
        "diverts": (
            DivertTable(name="d", address="dead", forwarding_address="r", filter="x = 1", exclusive=True),
        ),
        "address_settings": (
            AddressSetting(match="q", send_to_dla_on_no_route=True, dead_letter_address="dead"),
        ),
    },
}


def chosen_from(kind: str, count: int, *, transaction: str) -> tuple[int, int]:
    """Lines of the longest step in which a read of so many messages, or their COMMIT, comes to where each is chosen or changed by itself;
    and how many waited there in all afterwards."""
    world = World(**CHOSEN[kind])
    is_topic = kind == "subscriptions"
    for number in range(20 if is_topic else 0):
        world.client().say(
            (
                "SUBSCRIBE",
                {"id": "1", "destination": "/topic/q", "selector": f"x = {number % 2}", "ack": "client"},
            )
        )
    client, where = world.client(), "/topic/q" if is_topic else "/queue/q"
    octets = b"".join(
        [
            b"SEND\ndestination:%b\nx:%d\n%b\n%d\0"
            % (where.encode(), number % 2, transaction.encode(), number)
            for number in range(count)
        ]
    )
    if transaction:
        client.say(("BEGIN", {"transaction": "t"}))
        client.socket.data_received(octets)
        world.until_idle()
        octets = b"COMMIT\ntransaction:t\n\n\0"
    with world.steps() as steps:
        client.socket.data_received(octets)
        world.until_idle()
    there = [held(queue) for queue in world.broker.engine.queues.values()]
    assert all(offsets == sorted(set(offsets)) for offsets in there)
    return steps.longest, sum(map(len, there))


def held(queue: Queue) -> list[int]:
    """The offsets of what a queue has, or its consumers, by and by."""
    segments = [one for binding in queue.bindings for one in binding.taken()] + queue.backlog.segments()
    return [at for one in sorted(segments, key=lambda one: one.first) for at in range(one.first, one.stop)]


@pytest.mark.parametrize("kind", CHOSEN)
@pytest.mark.parametrize("transaction", ["", "transaction:t\n"])
def test_no_step_is_longer_the_more_messages_are_chosen_or_changed_one_by_one(
    kind: str, transaction: str
) -> None:
    chosen_from(kind, 20, transaction=transaction)  # what is imported first
    (few, _), (many, there) = (chosen_from(kind, count, transaction=transaction) for count in (250, 750))
    assert many <= 1.3 * few
    assert there == {"subscriptions": 20 * 375, "transformer": 1500, "diverts": 3 * 375}.get(kind, 750)


def joined(world: World, name: str) -> int:
    address = world.broker.engine.addresses.get(name)
    return 0 if address is None else len(address.topics)


def test_very_many_wildcards_join_a_new_address_in_portions_before_anything_is_sent_there() -> None:
    world = World()
    client, sender, other = world.client(), world.client(), world.client()
    count = 300
    client.say(*[("SUBSCRIBE", {"id": str(n), "destination": "/topic/new.*"}) for n in range(count)])
    world.until_idle()
    sender.say(("SEND", {"destination": "/topic/new.1", "n": "1", "receipt": "sent"}))
    assert joined(world, "new.1") < count
    other.say(("SEND", {"destination": "/topic/new.1", "n": "2", "receipt": "sent"}))
    assert sender.confirmed() == other.confirmed() == []
    most, before = 0, joined(world, "new.1")
    while not (sender.confirmed() and other.confirmed()):
        assert not client.bodies() or joined(world, "new.1") == count
        world.turn()
        most, before = max(most, joined(world, "new.1") - before), joined(world, "new.1")
    assert 0 < most < count
    world.until_idle()
    world.turn(20)
    got = [frame for frame in client.heard() if frame.command == "MESSAGE"]
    for n in range(count):
        own = [frame.headers["n"] for frame in got if frame.headers["subscription"] == str(n)]
        assert sorted(own) == ["1", "2"]


def test_a_composite_makes_its_queues_in_portions_and_is_sent_when_all_are_there() -> None:
    world = World()
    client, engine = world.client(), world.broker.engine
    names = [f"made.{n}" for n in range(100)]
    client.say(
        ("SEND", {"destination": ",".join([f"/queue/{name}" for name in names]), "receipt": "all"}),
        ("SEND", {"destination": "/queue/behind", "receipt": "behind"}),
    )
    assert len(engine.addresses) <= LOOKS + 1
    most, before = 0, len(engine.addresses)
    while "made.99" not in engine.addresses:
        assert not any(queue.count for queue in engine.queues.values())
        world.turn()
        most, before = max(most, len(engine.addresses) - before), len(engine.addresses)
    assert most <= LOOKS + 1
    world.until_idle()
    assert client.confirmed() == ["all", "behind"]
    assert [engine.addresses[name].anycast[name].count for name in names] == [1] * 100


def sent_to(count: int, *, times: int) -> tuple[int, float]:
    """Lines of the longest step in which SENDs to so many queues, which are there, are obeyed, and of one of them as a whole."""
    world = World()
    client, engine = world.client(), world.broker.engine
    names = [f"there.{n}" for n in range(count)]
    to = {"destination": ",".join([f"/queue/{name}" for name in names])}
    client.say(("SEND", {**to, "receipt": "made"}))
    world.until_idle()
    frames = [{**to, "receipt": f"{n}", "n": f"{n}"} for n in range(times)]
    octets = b"".join([encode(Frame("SEND", frame), VERSIONS["1.1"]) for frame in frames])
    with world.steps() as steps:
        client.socket.data_received(octets)
        world.until_idle()
    world.turn(20)
    assert client.confirmed() == ["made", *[frame["receipt"] for frame in frames]]
    assert [engine.addresses[name].anycast[name].count for name in names] == [1 + times] * count
    return steps.longest, steps.total / times


def test_no_step_of_a_composite_is_longer_than_a_quarter_of_it() -> None:
    """Of as many as there may be; what is not there yet is made in steps before."""
    longest, whole = sent_to(100, times=4)
    assert longest <= whole / 4


def test_a_composite_is_in_one_commit_although_it_is_sent_in_steps() -> None:
    """Nothing is stored while some queues have it and others do not; who sends another meanwhile waits for both."""
    world = World(is_durable=True)
    client, other, engine = world.client(), world.client(), world.broker.engine
    names = [f"one.{n}" for n in range(100)]
    frame = {"destination": ",".join([f"/queue/{name}" for name in names])}
    client.say(("SEND", {**frame, "receipt": "made"}))
    world.until_stored()
    assert client.confirmed() == ["made"]
    world.broker.turns.clock = Clock(1.0)  # a step is a turn
    client.say(("SEND", {**frame, "receipt": "all"}))
    was_half_done = False
    for _ in range(50):
        others = engine.addresses["one.0"].anycast["one.0"].count
        last = engine.addresses["one.99"].anycast["one.99"].count
        if others > last == 1:
            was_half_done = True
            assert engine.commits.is_held
            if others == 2:
                other.say(("SEND", {"destination": "/queue/one.0", "receipt": "other"}))
        world.turn()
    assert was_half_done and not engine.commits.is_held
    world.until_stored()
    world.turn(20)
    assert (client.confirmed(), other.confirmed()) == (["made", "all"], ["other"])
    assert [engine.addresses[name].anycast[name].count for name in names] == [3] + [2] * 99


def test_a_composite_of_which_one_address_is_full_goes_to_none() -> None:
    full = AddressSetting(match="full.99", max_size_messages=1, address_full_policy=AddressFullPolicy.FAIL)
    world = World(address_settings=(full,))
    client, engine = world.client(), world.broker.engine
    names = [f"full.{n}" for n in range(100)]
    frame = {"destination": ",".join([f"/queue/{name}" for name in names])}
    client.say(("SEND", {**frame, "receipt": "1"}))
    world.until_idle()
    client.say(("SEND", {**frame, "receipt": "2"}))
    world.until_idle()
    world.turn(20)
    assert client.confirmed() == ["1"]
    error = client.heard()[-1]
    assert (error.headers["code"], error.headers["receipt-id"]) == ("address-full", "2")
    assert [engine.addresses[name].anycast[name].count for name in names] == [1] * 100


def test_what_is_refused_while_its_queues_are_made_is_refused_as_always() -> None:
    world = World()
    client = world.client()
    client.say(("SEND", {"destination": "/queue/one,/amq/queue/none", "receipt": "r"}))
    world.until_idle()
    error = client.heard()[-1]
    assert (error.headers["code"], error.headers["receipt-id"]) == ("no-such-queue", "r")
    assert not any(queue.count for queue in world.broker.engine.queues.values())


LONG = {
    "cron": (b"AMQ_SCHEDULED_CRON:59 23 29 2 */7", 100, 400),
    "period": (b"AMQ_SCHEDULED_PERIOD:60000", 100, 400),
    "numbered": (b"_AMQ_DUPL_ID:%d", 1000, 4000),
}


def taken(header: bytes, count: int, *, transaction: bytes = b"", receipts: bool = True) -> int:
    """Lines of the longest step in which one read of so many messages, or their COMMIT, is obeyed, each of which takes long."""
    world = World(max_turn_frames=1_000_000)
    client = world.client()
    octets = b"".join(
        [
            b"SEND\ndestination:/queue/q\n%b\n%b%b\n\0"
            % (
                header % number if b"%" in header else header,
                b"receipt:%d\n" % number if receipts else b"",
                transaction,
            )
            for number in range(count)
        ]
    )
    if transaction:
        client.say(("BEGIN", {"transaction": "t"}))
        client.socket.data_received(octets)
        world.until_idle()
        octets = b"COMMIT\ntransaction:t\nreceipt:done\n\n\0"
    with world.steps() as steps:
        client.socket.data_received(octets)
        world.until_idle()
    world.turn(20)
    said = [*(map(str, range(count)) if receipts else ()), *(["done"] if transaction else [])]
    assert client.confirmed() == said
    engine = world.broker.engine
    known = engine.addresses["q"].duplicates
    assert len(engine.schedules.known) + (0 if known is None else len(known)) == count
    return steps.longest


@pytest.mark.parametrize("receipts", [True, False], ids=["with receipts", "without"])
@pytest.mark.parametrize("kind", LONG)
def test_no_step_is_longer_the_more_messages_of_a_read_repeat_or_are_numbered(
    kind: str, receipts: bool
) -> None:
    header, *counts = LONG[kind]
    few, many = (taken(header, count, receipts=receipts) for count in counts)
    assert many <= 2 * few


@pytest.mark.parametrize("kind", LONG)
def test_no_step_is_longer_the_more_messages_of_a_transaction_repeat_or_are_numbered(kind: str) -> None:
    header, count, _ = LONG[kind]
    few, many = (
        taken(header, times * count, transaction=b"transaction:t\n", receipts=False) for times in (3, 9)
    )
    assert many <= 2 * few


def test_what_repeats_is_taken_as_long_as_there_is_room_and_each_is_told() -> None:
    world = World(max_scheduled_bytes=5 * 2000)
    client = world.client()
    client.say(*[("SEND", {"destination": "/queue/q", "AMQ_SCHEDULED_PERIOD": "60000", "receipt": "r"})] * 40)
    world.until_idle()
    world.turn(20)
    kept = len(world.broker.engine.schedules.known)
    assert 0 < kept < 40
    assert client.confirmed() == ["r"] * kept
