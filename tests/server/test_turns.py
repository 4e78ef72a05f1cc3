"""The budget of a turn of the loop, in counted work: how much of one client's is done before others have their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator, Mapping
from functools import partial
from typing import cast

import pytest

from stompbox.broker import commits
from stompbox.config.settings import AddressFullPolicy, AddressSetting
from stompbox.message import ANYCAST
from stompbox.security import User
from stompbox.server.requests.replies import in_turns
from stompbox.server.transport.tcp import Socket
from stompbox.server.turns import LATE, MODEST, PART, SHARES, Line
from stompbox.store.base import Commit
from tests.broker.world import run_of
from tests.server.turning import LOOKS, Client, Clock, Loop, Recorded, World, loaded

Said = tuple[str, Mapping[str, str]]
MANY = 500

FLOODS = {
    "BEGIN and ABORT": [
        (command, {"transaction": f"{n}"}) for n in range(MANY // 2) for command in ("BEGIN", "ABORT")
    ],
    "SUBSCRIBE and UNSUBSCRIBE": [
        (command, {"id": "1", "destination": f"/topic/{n}"})
        for n in range(MANY // 2)
        for command in ("SUBSCRIBE", "UNSUBSCRIBE")
    ],
    "errors of UNSUBSCRIBE": [("UNSUBSCRIBE", {"id": f"{n}"}) for n in range(MANY)],
    "ACKs of unknown messages": [
        ("ACK", {"subscription": "1", "message-id": f"9-{n}x"}) for n in range(MANY)
    ],
    "NACKs of unknown messages": [
        ("NACK", {"subscription": "1", "message-id": f"9-{n}"}) for n in range(MANY)
    ],
    "SENDs that each go elsewhere": [("SEND", {"destination": f"/topic/{n}"}) for n in range(MANY)],
}


def receipts(prefix: str, count: int) -> Iterator[Said]:
    for number in range(count):
        yield "BEGIN", {"transaction": f"{number}", "receipt": f"{prefix}{number}"}
        yield "ABORT", {"transaction": f"{number}"}


@pytest.mark.parametrize("sort", FLOODS)
def test_others_wait_for_no_more_than_one_turn_of_a_flood(sort: str) -> None:
    world = World()
    hostile, normal = world.client(), world.client()
    hostile.say_much(FLOODS[sort])
    normal.say(("BEGIN", {"transaction": "t", "receipt": "now"}))
    assert normal.confirmed() == ["now"], "it has not waited for anything but one portion"
    turns = world.until_idle()
    assert turns >= MANY / LOOKS - 1, "in one turn so many frames, and no more"
    hostile.say(("BEGIN", {"transaction": "t", "receipt": "last"}))
    assert hostile.confirmed() == ["last"]


def test_no_more_frames_than_the_limit_are_obeyed_in_one_turn() -> None:
    world = World(max_turn_time=60_000, max_turn_frames=7)
    world.broker.turns.clock.step = 0.0  # type: ignore[attr-defined]
    client = world.client()
    client.say_much(receipts("r", 21))
    for turn in range(1, 6):
        assert len(client.confirmed()) == -(-7 * turn // 2)
        world.turn()
    world.until_idle()
    assert len(client.confirmed()) == 21


def test_the_rest_of_a_read_is_obeyed_in_order_and_nothing_is_read_meanwhile() -> None:
    world = World()
    client = world.client()
    client.say_much(receipts("a", 50))
    assert not client.wire.is_read
    client.say(*receipts("b", 3))  # what TLS or a WebSocket had read before
    assert len(client.confirmed()) < 10
    world.until_idle()
    assert client.confirmed() == [f"a{n}" for n in range(50)] + [f"b{n}" for n in range(3)]
    assert client.wire.is_read


def test_those_who_have_much_left_have_their_turns_one_after_the_other() -> None:
    world = World()
    clients = [world.client() for _ in range(8)]
    for client in clients:
        client.say_much(receipts("r", 100))
    done = []
    while world.broker.turns.waiting:
        world.turn()
        done.append([len(client.confirmed()) for client in clients])
    middle = done[len(done) // 2]
    assert max(middle) - min(middle) <= LOOKS, "all have come equally far"
    assert done[-1] == [100] * 8


def test_who_has_many_connections_has_no_more_turns_than_who_has_one() -> None:
    world = World()
    one, *many = clients = [world.client() for _ in range(51)]
    for client in many:
        client.connection.user = User("many")
    for client in reversed(clients):
        client.say_much(receipts("r", 100))
    while len(one.confirmed()) < 100:
        world.turn()
    assert sum(len(client.confirmed()) for client in many) <= 300


def test_a_client_that_says_little_is_heard_at_once_however_many_wait() -> None:
    world = World()
    for _ in range(50):
        world.client().say_much(FLOODS["errors of UNSUBSCRIBE"])
    normal = world.client()
    for number in range(20):
        normal.say(("BEGIN", {"transaction": f"{number}", "receipt": f"{number}"}))
        assert normal.confirmed()[-1] == f"{number}"
        world.turn()
    assert world.broker.turns.waiting


def test_a_client_that_says_little_at_once_does_not_wait_for_those_who_say_much() -> None:
    """Its read is large for being late, and would be later still behind all of them."""
    world = World()
    hostile = [world.client() for _ in range(100)]
    for client in hostile:
        client.say_much(receipts("r", MANY))
    normal = world.client()
    for number in range(20):
        normal.say_much(receipts(f"{number}.", 2))
        for _ in range(4):
            world.turn()
        assert len(normal.confirmed()) == 2 * (number + 1)
    before = world.broker.turns.waiting
    confirmed = sum(len(client.confirmed()) for client in hostile)
    world.turn()
    assert before == 100
    assert sum(len(client.confirmed()) for client in hostile) > confirmed, "they go on meanwhile"


def test_of_very_many_small_reads_at_once_most_wait_behind_their_first_frame_and_who_says_one_does_not() -> (
    None
):
    world = World()
    hostile, normal = [world.client() for _ in range(300)], world.client()
    world.until_idle()
    clock = cast(Clock, world.broker.turns.clock)
    begun = clock.now
    for client in hostile:
        client.say(*receipts("r", 8))
    at_once = sum(not client.connection.reading.is_waiting for client in hostile)
    assert at_once <= LATE / clock.step / 16 + 1
    assert clock.now - begun <= LATE + (16 + 2 + 2 * 300) * clock.step, "a frame of each of the others"
    said = [len(client.confirmed()) for client in hostile]
    assert min(said) == 1 < max(said)
    normal.say(("BEGIN", {"transaction": "t", "receipt": "now"}))
    assert normal.confirmed()[-1] == "now"
    for client in hostile:
        if client.connection.reading.is_waiting:
            client.say(*receipts("s", 8))
    assert [len(client.confirmed()) for client in hostile] == said, "who has waited says nothing more at once"
    world.until_idle()
    assert {len(client.confirmed()) for client in hostile} <= {8, 16}
    normal.say(("BEGIN", {"transaction": "u", "receipt": "again"}))
    assert normal.confirmed()[-1] == "again", "nobody waits any more"


def test_who_waits_for_a_turn_of_small_reads_is_obeyed_in_order_and_read_again() -> None:
    world = World()
    clients = [world.client() for _ in range(100)]
    world.until_idle()
    for number in range(3):
        for client in clients:
            if client.wire.is_read:
                client.say(*receipts(f"{number}.", 5))
        world.turn()
    world.until_idle()
    for client in clients:
        said = client.confirmed()
        assert said == sorted(said)
        assert said
        assert client.wire.is_read
    assert sum(len(client.confirmed()) == 15 for client in clients) < 100, "not all were read in each turn"


def test_who_says_more_while_a_small_read_waits_is_read_no_further_and_it_counts() -> None:
    """It is what the system had read already; and it goes before nobody who has said little."""
    world = World()
    hostile, others = world.client(), [world.client() for _ in range(200)]
    world.until_idle()
    for client in others:
        client.say(*receipts("r", 8))
    hostile.say(*receipts("f", 2))
    assert hostile.connection.reading.is_waiting
    assert not hostile.wire.is_read
    hostile.say_much(receipts("m", MANY))
    assert world.broker.ledger.size >= hostile.connection.reading.unobeyed > MODEST
    while len(hostile.confirmed()) < 2:
        world.turn()
    assert not hostile.connection.reading.is_modest
    world.until_idle()
    assert len(hostile.confirmed()) == 2 + MANY
    assert hostile.wire.is_read
    assert world.broker.ledger.size < MODEST


def test_those_who_say_little_again_and_again_do_not_hold_up_who_has_much_left() -> None:
    world = World()
    much = world.client()
    much.say_much(receipts("m", MANY))
    little = [world.client() for _ in range(100)]
    turns = 0
    while len(much.confirmed()) < MANY:
        for client in little:
            if client.wire.is_read:
                client.say_much(receipts("l", 20))
        world.turn()
        turns += 1
        assert turns < 2 * MANY
    assert any(client.confirmed() for client in little)


def test_who_sends_and_closes_has_sent_all_of_it() -> None:
    world = World()
    client = world.client()
    client.say_much([("SEND", {"destination": f"/queue/{n}"}) for n in range(100)])
    client.socket.connection_lost(None)
    assert world.broker.engine.counters["received"] < 100
    world.until_idle()
    assert world.broker.engine.counters["received"] == 100
    assert client.connection not in world.broker.connections
    assert not world.broker.waiting


def test_disconnect_is_obeyed_in_its_place_and_its_receipt_is_the_last() -> None:
    world = World()
    client = world.client()
    client.say_much(
        [*receipts("r", 40), ("DISCONNECT", {"receipt": "bye"}), ("SEND", {"destination": "/queue/late"})]
    )
    assert not client.is_ended
    world.until_idle()
    assert client.confirmed() == [*[f"r{n}" for n in range(40)], "bye"]
    assert "late" not in world.broker.engine.addresses
    assert client.is_ended


def test_an_error_that_closes_ends_what_waits_behind_it() -> None:
    world = World()
    client = world.client("1.2")
    client.say_much([*receipts("r", 20), ("ABORT", {"transaction": "none"}), *receipts("late", 20)])
    world.until_idle()
    assert client.confirmed() == [f"r{n}" for n in range(20)]
    assert client.errors() == ["no-such-transaction"]
    assert client.is_ended


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_a_frame_whose_step_ends_its_connection_is_over_with_it(version: str) -> None:
    """A run goes in steps, and the first messages fit; for the others there is an ERROR, which closes in 1.2."""
    settings = (
        AddressSetting(match="small", max_size_messages=300, address_full_policy=AddressFullPolicy.FAIL),
    )
    world = World(address_settings=settings)
    client, other = world.client(version), world.client()
    client.say(*[("SEND", {"destination": "/queue/small", "_AMQ_DUPL_ID": f"{n}"}) for n in range(1000)])
    world.until_idle()
    world.turn(20)
    assert client.errors() == ["address-full"] * (1 if version == "1.2" else 700)
    assert world.broker.engine.counters["received"] == 300
    other.say(("SEND", {"destination": "/queue/q", "receipt": "r"}))
    assert other.confirmed() == ["r"]


def test_heart_beats_count_while_its_frames_wait() -> None:
    world = World()
    client = world.client()
    client.say_much(receipts("r", 100))
    pulse = client.connection.pulse
    world.loop.turns += 10_000_000  # seconds in which nothing could be read
    client.connection.beat()
    assert client.errors() == []
    assert pulse.next_deadline() is None or pulse.next_deadline() > world.loop.time()
    world.until_idle()
    assert len(client.confirmed()) == 100


def test_a_small_read_of_a_login_is_obeyed_whole() -> None:
    world = World()
    client = world.client()
    world.broker.turns.clock = lambda: 0.0  # its frames take no time
    client.say(*receipts("r", 8))
    assert len(client.confirmed()) == 8
    assert not world.broker.turns.waiting


def test_a_small_read_whose_frames_take_longer_than_a_turn_is_cut() -> None:
    """Twenty frames may be a small read, and each of them may ask a thousand selectors."""
    world = World()
    busy, client = world.client(), world.client()
    busy.say_much(receipts("b", 100))
    assert world.broker.turns.is_full
    client.say(*receipts("r", 12))
    assert 2 < len(client.confirmed()) < 12
    world.until_idle()
    assert client.confirmed() == [f"r{n}" for n in range(12)]


# What ends


@pytest.mark.parametrize("mode", ["client", "client-individual"])
@pytest.mark.parametrize("end", ["lost", "UNSUBSCRIBE", "DISCONNECT"])
def test_what_a_subscription_had_goes_back_in_portions_and_in_order(end: str, mode: str) -> None:
    world = World()
    holder, _ = loaded(world, 1500, {"ack": mode})
    queue = world.broker.engine.addresses["q"].anycast["q"]
    other = world.client()
    other.say(("SUBSCRIBE", {"id": "1", "destination": "/queue/q"}))
    if end == "lost":
        holder.socket.connection_lost(None)
    elif end == "UNSUBSCRIBE":
        holder.say(("UNSUBSCRIBE", {"id": "1", "receipt": "done"}))
    else:
        holder.say(("DISCONNECT", {"receipt": "done"}))
    assert queue.backlog.count < 1500, "not all of it in one go"
    assert other.bodies() == [], "and nothing is handed out before all are back"
    if end != "lost":
        assert holder.confirmed() == []
    world.until_idle()
    world.turn(20)
    names = [
        next(name for name in frame.headers if name.startswith("name-"))
        for frame in other.heard()
        if frame.command == "MESSAGE"
    ]
    assert names == [f"name-{n}" for n in range(1500)]
    if end != "lost":
        assert holder.confirmed() == ["done"]


def test_a_broker_that_stops_does_what_was_begun() -> None:
    world = World()
    holder, _ = loaded(world, 1500, {"ack": "client-individual"})
    holder.socket.connection_lost(None)
    queue = world.broker.engine.addresses["q"].anycast["q"]
    assert queue.backlog.count < 1500
    world.broker.turns.finish()
    assert queue.backlog.count == 1500
    assert not world.broker.turns.waiting


# Large transactions


def held(client: Client, count: int) -> None:
    """An open transaction t with a message to each of so many queues."""
    client.say(("BEGIN", {"transaction": "t"}))
    client.say(*[("SEND", {"destination": f"/queue/{n}", "transaction": "t"}) for n in range(count)])
    client.world.until_idle()


def test_a_large_transaction_is_published_in_steps_and_committed_as_one() -> None:
    world = World()
    client, other = world.client(), world.client()
    held(client, 2000)
    taken: list[int] = []
    take = world.broker.engine.commits.take

    def taking() -> Commit:
        taken.append(world.broker.engine.counters["received"])
        return take()

    world.broker.engine.commits.take = taking  # type: ignore[method-assign]
    client.say(("COMMIT", {"transaction": "t", "receipt": "done"}))
    steps = 0
    while world.broker.turns.waiting:
        other.say(("SEND", {"destination": "/queue/other", "receipt": f"{steps}"}))
        world.turn()
        steps += 1
    world.turn(20)
    assert steps > 5
    assert len(other.confirmed()) == steps
    assert client.confirmed() == ["done"]
    engine = world.broker.engine
    assert [n for n in range(2000) if engine.addresses[f"{n}"].log.next != 1] == []
    after_it = [count for count in taken if count > 2000]
    before_it = [count for count in taken if count <= steps]
    assert sorted(before_it + after_it) == sorted(taken), "no commit has a part of it"


def test_a_transaction_of_somebody_who_goes_half_way_is_committed_whole() -> None:
    world = World()
    client = world.client()
    held(client, 2000)
    client.say(("COMMIT", {"transaction": "t"}))
    assert world.broker.turns.waiting > 0
    client.socket.connection_lost(None)
    world.until_idle()
    world.turn(20)
    assert world.broker.engine.counters["received"] == 2000
    assert not world.broker.engine.commits.is_held
    assert not world.broker.waiting


def test_two_large_transactions_let_a_commit_come_between_them() -> None:
    world = World()
    clients = [world.client(), world.client()]
    for client in clients:
        held(client, 1000)
    for client in clients:
        client.say(("COMMIT", {"transaction": "t", "receipt": "done"}))
    world.until_idle()
    world.turn(20)
    assert [client.confirmed() for client in clients] == [["done"], ["done"]]
    assert world.broker.engine.counters["received"] == 2000


# Coroutines


def test_a_list_gives_way_between_its_items_and_others_go_on_meanwhile() -> None:
    world = World()
    seen: list[int] = []

    async def look() -> None:
        async for item in in_turns(world.broker.turns, range(100)):
            seen.append(item)

    work = look()
    waiter = work.send(None)
    while True:
        before = len(seen)
        normal = world.client()
        normal.say(("BEGIN", {"transaction": "t", "receipt": "now"}))
        assert normal.confirmed() == ["now"]
        world.turn()
        assert waiter.done()
        try:
            waiter = work.send(None)
        except StopIteration:
            break
        assert 0 < len(seen) - before <= LOOKS
    assert seen == list(range(100))


def test_steps_of_a_coroutine_give_way_and_come_to_their_end() -> None:
    world = World()
    taken: list[int] = []

    def steps() -> Generator[None, None, str]:
        for number in range(100):
            taken.append(number)
            yield
        return "made"

    work = world.broker.turns.taken(steps())
    waiter = work.send(None)
    while True:
        before = len(taken)
        world.turn(2)  # where it has taken a turn whole, what waits has the next one
        assert waiter.done()
        try:
            waiter = work.send(None)
        except StopIteration as done:
            assert done.value == "made"
            break
        assert 0 < len(taken) - before <= LOOKS
    assert taken == list(range(100))


def test_coroutines_that_go_on_have_a_share_of_the_turn_each_and_no_more() -> None:
    world = World()
    for _ in range(40):
        world.broker.turns.resolve_later(world.loop.create_future())
    turns = 0
    while world.broker.turns.waiting:
        before = world.broker.turns.waiting
        world.turn()
        assert before - world.broker.turns.waiting <= SHARES
        turns += 1
    assert turns >= 40 / SHARES


def test_of_connections_that_are_lost_at_once_some_wait_for_the_next_turn() -> None:
    world = World()
    clients = [world.client() for _ in range(MANY)]
    world.turn()
    for client in clients:
        client.socket.connection_lost(None)
    assert 0 < MANY - len(world.broker.connections) <= LOOKS
    world.turn()
    assert 0 < MANY - len(world.broker.connections) <= 3 * LOOKS, "a step is a connection"
    world.until_idle()
    assert not world.broker.connections


def test_of_strangers_who_come_at_once_some_wait_and_who_is_logged_in_does_not() -> None:
    world = World()
    normal = world.client()
    world.turn()
    strangers = [Socket(world.broker, world.acceptor) for _ in range(MANY)]
    for stranger in strangers:
        stranger.connection_made(Recorded())
        stranger.data_received(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0")
    normal.say(("BEGIN", {"transaction": "t", "receipt": "now"}))
    assert normal.confirmed() == ["now"]
    entered = sum(connection.session.is_open for connection in world.broker.connections)
    assert 1 < entered <= LOOKS + 1
    world.until_idle()
    assert all(connection.session.is_open for connection in world.broker.connections)


def test_what_comes_in_one_read_behind_the_login_waits_for_its_turn_as_well() -> None:
    world, wire = World(), Recorded()
    socket = Socket(world.broker, world.acceptor)
    socket.connection_made(wire)
    sends = b"".join([b"SEND\ndestination:/topic/t.%d\n\n\0" % number for number in range(MANY)])
    socket.data_received(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0" + sends)
    assert 0 < len(world.broker.engine.addresses) <= LOOKS
    assert not wire.is_read
    world.until_idle()
    assert len(world.broker.engine.addresses) == MANY
    assert wire.is_read


def test_a_stranger_who_says_too_much_is_told_so_however_many_turns_it_takes() -> None:
    world, wire = World("?maxFrameSizeBeforeLogin=2000"), Recorded()
    normal = world.client()
    socket = Socket(world.broker, world.acceptor)
    socket.connection_made(wire)
    socket.data_received(b"\n" * 60_000)
    world.until_idle()
    assert b"\ncode:too-much-before-login\n" in wire.written
    normal.say(("BEGIN", {"transaction": "t", "receipt": "now"}))
    assert normal.confirmed() == ["now"]


@pytest.mark.parametrize("is_consumed", [False, True])
def test_a_commit_with_news_of_very_many_addresses_is_gathered_and_lands_in_turns(is_consumed: bool) -> None:
    world = World(is_durable=True)
    normal, broker, count = world.client(), world.broker, 3 * commits.MANY
    world.until_stored()
    for number in range(count):
        address = broker.engine.address(f"q{number}", ANYCAST)
        queue = broker.engine.exact_queue(address, "", ANYCAST)
        broker.engine.publish(address, run_of(address.name, b"x"))
        if is_consumed:
            queue.drop(queue.backlog.pop_oldest(1), "expired")
    normal.say(("BEGIN", {"transaction": "t", "receipt": "now"}))
    assert normal.confirmed() == ["now"]
    assert len(broker.engine.commits.dirty) == count
    with world.steps() as steps:
        world.until_stored()
    assert not broker.engine.commits.is_large
    assert steps.longest < 60 * commits.PART, "lines of Python: some for each address of one part"
    assert all(address.log.committed == 1 for address in broker.engine.addresses.values())
    assert len(broker.committer.store.recover().logs) == (0 if is_consumed else count)


def test_who_waits_in_line_has_a_part_of_each_turn_and_who_comes_later_waits_behind() -> None:
    loop, clock = Loop(), Clock(PART / 10)
    line = Line(cast(asyncio.AbstractEventLoop, loop), clock)
    assert not line.is_late
    clock.now += LATE
    assert line.is_late
    done: list[int] = []
    for number in range(25):
        line.wait(partial(done.append, number))
    loop.turn()
    assert 0 < len(done) <= 11
    assert line.is_late, "some wait still"
    line.wait(partial(done.append, 25))
    while len(done) < 26:
        before = len(done)
        loop.turn()
        assert before < len(done) <= before + 11
    assert done == list(range(26))
    assert not line.is_late


def test_who_is_not_done_waits_behind_the_others_in_line() -> None:
    loop = Loop()
    line, done = Line(cast(asyncio.AbstractEventLoop, loop), Clock(0.0)), list[str]()

    def long(name: str, steps: int) -> None:
        done.append(name)
        if steps:
            line.wait(partial(long, name, steps - 1))

    line.wait(partial(long, "a", 2))
    line.wait(partial(long, "b", 1))
    loop.turn()
    assert done == ["a", "b", "a", "b", "a"]
