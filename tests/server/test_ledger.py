"""One ledger: what is kept for a client is counted where it is, has a limit, and is back at nothing when the client is gone."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from stompbox.config.options import ListenerOptions
from stompbox.message import MULTICAST
from stompbox.server.ledger import PASSING, Use, by_kind
from stompbox.server.transport import tcp
from stompbox.stomp.frames import Frame
from stompbox.stomp.runs import _MOST_OCTETS, Reader
from stompbox.stomp.versions import VERSIONS
from tests.server.world import KINDS, Guest, House, configured, play
from tests.system.transports import message
from tests.users import users

BODY = "x" * 1000
Scenario = Callable[[House, Guest], Awaitable[None]]


async def nothing(house: House, guest: Guest) -> None:
    """A client that is there."""


async def half_a_frame(house: House, guest: Guest) -> None:
    guest.say("SEND\ndestination:/queue/a\ncontent-length:60000\n\n" + BODY * 5)


async def a_piece(house: House, guest: Guest) -> None:
    guest.say("SEND\ndestination:/queue/a\ncontent-length:500000\n\n" + BODY * 10)


async def transaction(house: House, guest: Guest) -> None:
    guest.say("BEGIN\ntransaction:t\n\n\0" + f"SEND\ndestination:/queue/a\ntransaction:t\n\n{BODY}\0" * 10)


async def acknowledged_in_a_transaction(house: House, guest: Guest) -> None:
    guest.say(
        f"SEND\ndestination:/queue/a\n\n{BODY}\0SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client-individual\n\n\0"
    )
    head = await guest.hear(BODY.encode())
    ack = head.partition(b"ack:")[2].partition(b"\n")[0].decode()
    guest.say(f"BEGIN\ntransaction:t\n\n\0ACK\nid:{ack}\ntransaction:t\n\n\0")


async def subscription(house: House, guest: Guest) -> None:
    guest.say(
        "SUBSCRIBE\nid:1\ndestination:/topic/a\nselector:n = 1\n\n\0SUBSCRIBE\nid:2\ndestination:/temp-queue/b\n\n\0"
    )


async def unacknowledged(house: House, guest: Guest) -> None:
    guest.say(
        f"SUBSCRIBE\nid:1\ndestination:/queue/a\nack:client\n\n\0SEND\ndestination:/queue/a\n\n{BODY}\0"
    )


async def receipts(house: House, guest: Guest) -> None:
    house.stick()
    guest.say(f"SEND\ndestination:/queue/a\nreceipt:{BODY}\n\n\0" * 5)


async def unread(house: House, guest: Guest) -> None:
    guest.reader._transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(10):
        guest.say(f"ABORT\ntransaction:none\nreceipt:{BODY * 20}\n\n\0" * 50)


async def request(house: House, guest: Guest) -> None:
    """The first waits for the disk, which is to have its group, and the others for the first."""
    house.broker.engine.address("many", MULTICAST)
    house.stick()
    for name in ("a", "b", "c"):
        head = f"SEND\ndestination:stompbox.requests\nrequest:group-open\nrequest-id:{name}\ngroup:{name}\nstarting:earliest\n"
        guest.say(f'{head}x:{BODY}\n\n{{"destinations":"/topic/many"}}\0')


SCENARIOS: dict[str, tuple[Scenario, str, int]] = {
    "a name": (nothing, Use.SESSION.value, 1),
    "half a frame": (half_a_frame, Use.INPUT.value, 5000),
    "a piece of a large body": (a_piece, Use.INPUT.value, 1000),
    "an open transaction": (transaction, Use.TRANSACTIONS.value, 10_000),
    "what it acknowledged in a transaction": (acknowledged_in_a_transaction, Use.TRANSACTIONS.value, 1000),
    "subscriptions and temporary destinations": (subscription, Use.SUBSCRIPTIONS.value, 3000),
    "what it did not acknowledge": (unacknowledged, "unacknowledged", 1000),
    "receipts that wait for the disk": (receipts, Use.RECEIPTS.value, 5000),
    "what it does not read": (unread, Use.OUTPUT.value, 100_000),
    "requests that wait": (request, Use.REQUESTS.value, 2000),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_each_kind_is_counted_and_is_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scenario: str, kind: str
) -> None:
    monkeypatch.setattr(tcp, "LAST_WORDS", 0.01)  # who leaves while the disk stands still is not waited for
    act, what, least = SCENARIOS[scenario]

    async def story(house: House) -> None:
        broker = house.broker
        guest = await house.client(
            kind, "1.1" if act is unread else "1.2", more="login:somebody\npasscode:x\n"
        )
        await act(house, guest)
        await house.until(lambda: by_kind(house.connection())[what] >= least, f"{what} of {scenario}")
        account = house.connection().account
        assert broker.ledger.by_kind[what] >= by_kind(house.connection())[what] >= least
        assert broker.ledger.of_user == {"somebody": account.size}
        guest.leave()
        await house.until(
            lambda: not (broker.connections or broker.turns.waiting or broker.engine.later),
            "it is gone, with what it had",
        )
        assert [broker.ledger.size, *broker.ledger.sizes, broker.engine.unacknowledged.size] == [0] * 9
        assert not broker.ledger.of_user

    play(configured(tmp_path), story)


def test_a_part_of_a_message_of_websocket_counts_and_is_nothing_again(tmp_path: Path) -> None:
    """No octet of it has come to the connection."""

    async def story(house: House) -> None:
        guest = await house.client("websocket")
        whole = message(f"SEND\ndestination:/queue/a\n\n{BODY * 100}\0".encode())
        guest.writer.write(whole[:60_000])
        account = house.connection().account
        await house.until(lambda: account.passing > 59_000, "it counts")
        assert house.broker.ledger.by_kind[Use.INPUT.value] == account.passing
        guest.writer.write(whole[60_000:])
        guest.say("SEND\ndestination:/queue/a\nreceipt:done\n\n\0")
        await guest.hear(b"receipt-id:done")
        assert account.passing == 0

    play(configured(tmp_path), story)


def test_what_passes_with_each_read_counts_from_a_size_on(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        guest = await house.client()
        house.stick()
        guest.say(
            "SEND\ndestination:/queue/a\nreceipt:1\n\n\0"
            + "SEND\ndestination:/queue/a\ncontent-length:3000\n\n"
            + BODY
        )
        await house.until(
            lambda: house.connection().pending.size and house.connection().decoder.pending, "both have come"
        )
        account = house.connection().account
        assert (account.passing, account.size) == (0, sum(by_kind(house.connection()).values()))
        guest.say(BODY * 2 + "\0" + "SEND\ndestination:/queue/a\nreceipt:2\n\n\0" * 400)
        await house.until(lambda: account.passing > PASSING, "they are more")
        house.broker.committer.is_busy = False

    play(configured(tmp_path), story)


LIMIT = 20_000
BEYOND = {
    "transaction": "BEGIN\ntransaction:t\n\n\0"
    + f"SEND\ndestination:/queue/a\ntransaction:t\n\n{BODY}\0" * 20,
    "heads of a transaction": "BEGIN\ntransaction:t\n\n\0"
    + "".join([f"SEND\ndestination:/a\ntransaction:t\nh-{n}:1\n\n\0" for n in range(40)]),
    "values in a transaction": "BEGIN\ntransaction:t\n\n\0"
    + f"SEND\ndestination:/a\ntransaction:t\nh:{BODY}\n\n\0" * 30,
    "subscriptions": "".join([f"SUBSCRIBE\nid:{n}\ndestination:/topic/a\n\n\0" for n in range(10)]),
    "a selector": f"SUBSCRIBE\nid:1\ndestination:/topic/a\nselector:{' OR '.join([f'h{n} = 1' for n in range(40)])}\n\n\0",
}


@pytest.mark.parametrize("case", BEYOND)
def test_beyond_the_limit_of_a_connection(tmp_path: Path, case: str) -> None:
    async def story(house: House) -> None:
        guest = await house.client()
        guest.say(BEYOND[case])
        assert b"code:too-much-memory" in await guest.end()
        assert house.broker.errors["too-much-memory"] == 1
        assert house.broker.engine.counters["received"] == 0

    play(configured(tmp_path, f"maxConnectionMemory={LIMIT}"), story)


@pytest.mark.parametrize("case", BEYOND)
def test_within_it_all_is_well(tmp_path: Path, case: str) -> None:
    async def story(house: House) -> None:
        guest = await house.client()
        guest.say(BEYOND[case] + "SEND\ndestination:/topic/b\nreceipt:done\n\n\0")
        await guest.hear(b"receipt-id:done")
        assert LIMIT < house.connection().account.size <= 5 * LIMIT

    play(configured(tmp_path, f"maxConnectionMemory={5 * LIMIT}"), story)


def test_who_says_nothing_has_no_more_than_the_limit_either(tmp_path: Path) -> None:
    """Addresses that somebody else makes are bound to its wildcard."""

    async def story(house: House) -> None:
        silent, other = await house.client(), await house.client()
        silent.say("SUBSCRIBE\nid:1\ndestination:/topic/many.#\nreceipt:s\n\n\0")
        await silent.hear(b"receipt-id:s")
        for number in range(20):
            other.say(f"SEND\ndestination:/topic/many.{number}\nreceipt:{number}\n\n\0")
            await other.hear(b"receipt-id:%d\n" % number)
        assert b"code:too-much-memory" in await silent.end()
        await house.until(lambda: len(house.broker.connections) == 1, "only the other one is there")
        assert house.broker.errors["too-much-memory"] == 1

    play(configured(tmp_path, f"maxConnectionMemory={LIMIT}"), story)


def test_the_largest_of_who_has_most_goes(tmp_path: Path) -> None:
    """Others, who keep little, notice nothing."""

    async def story(house: House) -> None:
        small = await house.client(more="login:small\npasscode:x\n")
        small.say("SUBSCRIBE\nid:1\ndestination:/topic/a\nreceipt:s\n\n\0")
        await small.hear(b"receipt-id:s")
        begun = (
            f"BEGIN\ntransaction:t\n\n\0SEND\ndestination:/queue/a\ntransaction:t\nreceipt:r\n\n{BODY * 30}\0"
        )
        first = await house.client(more="login:large\npasscode:x\n")
        second = await house.client(more="login:large\npasscode:x\n")
        third = await house.client(more="login:other\npasscode:x\n")
        first.say(begun)
        await first.hear(b"receipt-id:r")
        second.say(begun.replace(BODY, BODY[1:]))
        await second.hear(b"receipt-id:r")
        third.say(begun)
        assert b"code:too-much-memory" in await first.end()
        await third.hear(b"receipt-id:r")
        await house.until(lambda: house.broker.ledger.size < 90_000, "there is room again")
        for guest in (small, second, third):
            guest.say("SEND\ndestination:/topic/b\nreceipt:done\n\n\0")
            await guest.hear(b"receipt-id:done")

    play(configured(tmp_path, top="max-client-memory = 90000\n"), story)


def test_without_a_limit_for_all(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        guest = await house.client()
        guest.say(
            f"BEGIN\ntransaction:t\n\n\0SEND\ndestination:/queue/a\ntransaction:t\nreceipt:r\n\n{BODY}\0"
        )
        await guest.hear(b"receipt-id:r")
        assert house.broker.ledger.size > 1000

    play(configured(tmp_path, top="max-client-memory = -1\n"), story)


def test_who_waits_for_too_many_receipts_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompbox.server.ledger.WAITING", 20_000)

    async def story(house: House) -> None:
        guest = await house.client()
        house.stick()
        guest.say("".join([f"SEND\ndestination:/queue/a\nreceipt:{n}{BODY}\n\n\0" for n in range(30)]))
        await house.until(lambda: house.connection().reading.is_paused, "it is not read any more")
        assert {reason.value for reason in house.broker.pressure.waiting[house.connection()]} == {"receipts"}
        house.broker.committer.is_busy = False
        house.broker.flush()
        await guest.hear(f"receipt-id:29{BODY}".encode())
        assert not house.connection().reading.is_paused

    play(configured(tmp_path), story)


def test_unacknowledged_messages_of_all_subscriptions_together_pause_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a window of its own each of them would get all; the rest stays in the queues, and comes as soon as there is room."""
    monkeypatch.setattr("stompbox.server.session.connection.MOST_OUT", LIMIT)

    async def story(house: House) -> None:
        guest = await house.client()
        for number in range(3):
            guest.say(
                f"SUBSCRIBE\nid:{number}\ndestination:/queue/{number}\nack:client-individual\nconsumer-window-size:-1\n\n\0"
            )
        sender = await house.client()
        for number in range(3):
            sender.say("".join([f"SEND\ndestination:/queue/{number}\n\n{n}{BODY}\0" for n in range(50)]))
        sender.say("SEND\ndestination:/topic/b\nreceipt:done\n\n\0")
        await sender.hear(b"receipt-id:done")
        (reader,) = [found for found in house.broker.connections if found.consumers]
        assert LIMIT / 2 < reader.allowance.size < 2 * LIMIT
        seen = 0
        while seen < 150:
            head = await guest.hear(b"\n\n")
            seen += 1
            await guest.hear(BODY.encode())
            guest.say(f"ACK\nid:{head.partition(b'ack:')[2].partition(bytes([10]))[0].decode()}\n\n\0")
            assert reader.allowance.size < 2 * LIMIT
        await house.until(lambda: not reader.allowance.size, "all is acknowledged")

    play(configured(tmp_path, f"maxConnectionMemory={LIMIT}"), story)


def test_what_is_retained_has_a_limit(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        guest = await house.client(version="1.1")
        for number in range(30):
            guest.say(f"SEND\ndestination:/topic/{number}\nretain:set\n\n{BODY}\0")
        assert b"code:retained-full" in await guest.hear(b"\0\n")
        before = house.broker.engine.retained.size
        assert 18_000 < before <= LIMIT
        # in the place of another
        guest.say(f"SEND\ndestination:/topic/0\nretain:set\nreceipt:again\n\n{BODY}\0")
        await guest.hear(b"receipt-id:again")
        assert house.broker.engine.retained.size == before
        guest.say(
            "".join([f"SEND\ndestination:/topic/{n}\nretain:remove\n\n\0" for n in range(30)])
            + "DISCONNECT\nreceipt:bye\n\n\0"
        )
        await guest.hear(b"receipt-id:bye")
        assert house.broker.engine.retained.size == 0

    play(configured(tmp_path, top=f"max-retained-memory = {LIMIT}\n"), story)


def test_a_transaction_that_would_retain_too_much_is_refused_whole(tmp_path: Path) -> None:
    async def story(house: House) -> None:
        guest = await house.client(version="1.1")
        sends = [f"SEND\ndestination:/topic/{n}\ntransaction:t\nretain:set\n\n{BODY}\0" for n in range(30)]
        guest.say("BEGIN\ntransaction:t\n\n\0" + "".join(sends) + "COMMIT\ntransaction:t\nreceipt:c\n\n\0")
        assert b"code:retained-full" in await guest.hear(b"\0\n")
        assert house.broker.engine.retained.size == 0
        assert house.broker.engine.counters["received"] == 0

    play(configured(tmp_path, top=f"max-retained-memory = {LIMIT}\n"), story)


def test_duplicate_ids_have_a_limit_in_octets(tmp_path: Path) -> None:
    """Long ones are as good as short ones, and take no more."""

    async def story(house: House) -> None:
        guest = await house.client()
        long = "i" * 50_000
        frames = [f"SEND\ndestination:/topic/once.{n % 3}\n_AMQ_DUPL_ID:{n}{long}\n\n\0" for n in range(100)]
        guest.say("".join([*frames, frames[99], "SEND\ndestination:/topic/b\nreceipt:done\n\n\0"]))
        await guest.hear(b"receipt-id:done")
        assert house.broker.engine.counters["duplicates"] == 1
        assert 10_000 < house.broker.ledger.by_kind["duplicate-ids"] <= LIMIT

    play(configured(tmp_path, top=f"max-id-cache-memory = {LIMIT}\n"), story)


def test_compiled_selectors_are_kept_within_octets(tmp_path: Path) -> None:
    """Those that nobody has: of subscriptions each counts for its connection."""

    async def story(house: House) -> None:
        guest = await house.client()
        frames = [
            f"SUBSCRIBE\nid:{n}\ndestination:/topic/a\nselector:h = {n}\n\n\0UNSUBSCRIBE\nid:{n}\n\n\0"
            for n in range(100)
        ]
        guest.say("".join([*frames, "SEND\ndestination:/topic/b\nreceipt:done\n\n\0"]))
        await guest.hear(b"receipt-id:done")
        assert LIMIT // 2 < house.broker.ledger.by_kind["selectors"] <= LIMIT

    play(configured(tmp_path, top=f"max-selector-cache-memory = {LIMIT}\n"), story)


def test_what_a_user_without_rights_asks_for_is_not_remembered_for_ever(tmp_path: Path) -> None:
    top = users("u:p") + '[[permission]]\nmatch = "none"\nsend = ["nobody"]\n'

    async def story(house: House) -> None:
        guest = await house.client(version="1.1", more="login:u\npasscode:p\n")
        guest.say("".join([f"SEND\ndestination:/queue/{n}{'a' * 1_000}\n\n\0" for n in range(20)]))
        for _ in range(20):
            await guest.hear(b"code:not-permitted")
        assert house.broker.ledger.by_kind["permissions"] < 20 * 1000

    play(configured(tmp_path, top=top), story)


@pytest.mark.parametrize("head", ["content-length:94371840\n\n", "\n"], ids=["told", "growing"])
def test_frames_that_are_no_send_do_not_bring_five_bodies_of_90_mib(tmp_path: Path, head: str) -> None:
    """They end as soon as their size is told, or where it is more than such a frame may have."""

    async def story(house: House) -> None:
        broker, most = house.broker, 0
        for number in range(5):
            guest = await house.client(more=f"login:user{number}\n")
            guest.say(f"ACK\nid:1\n{head}")
            for _ in range(100):
                if guest.writer.is_closing() or not broker.connections:
                    break
                guest.say(b"x" * 10_000)
                await house.until(lambda: True, "its turn")
                most = max(most, broker.ledger.size)
            assert b"code:body-too-large\n" in await guest.end()
            await house.until(lambda: not broker.connections, "it is gone")
        assert most < 2 * ListenerOptions().max_control_body_size
        assert broker.ledger.size == 0

    play(configured(tmp_path), story)


def test_learned_families_of_heads_take_no_more_than_their_limit() -> None:
    """SENDs that each have header names of their own, in as many destinations as there are."""
    reader = Reader(VERSIONS["1.2"], max_body=1000)
    most = families = 0
    for number in range(60_000):
        headers = {
            "destination": f"/topic/{number % 5000}",
            f"name-{number}": "1",
            f"other-{number}": "x" * 200,
        }
        head = "SEND\n" + "\n".join(f"{name}:{value}" for name, value in headers.items())
        reader.learn(head.encode(), Frame("SEND", headers))
        most = max(most, reader.size)
        families = max(families, sum(map(len, reader.families.values())) if number % 1000 == 0 else 0)
    assert most <= _MOST_OCTETS
    assert 0 < families * 500 < _MOST_OCTETS, "what is counted is what is kept"


def test_headers_of_messages_that_are_not_acknowledged_count(tmp_path: Path) -> None:
    """Bodies may be empty: who acknowledges nothing gets no more than half of what there is for all, and little beyond."""
    header = "h" * 50_000

    async def story(house: House) -> None:
        engine = house.broker.engine
        guest, sender = await house.client(version="1.1"), await house.client(version="1.1")
        more = "ack:client-individual\nconsumer-window-size:-1\n"
        guest.say("".join([f"SUBSCRIBE\nid:{n}\ndestination:/queue/q{n}\n{more}\n\0" for n in range(4)]))
        sender.say("".join([f"SEND\ndestination:/queue/q{n % 4}\nh:{n}{header}\n\n\0" for n in range(100)]))
        sender.say("SEND\ndestination:/queue/other\nreceipt:done\n\n\0")
        await sender.hear(b"receipt-id:done")
        assert engine.unacknowledged.size <= 1_000_000 + 5 * 60_000
        guest.say("BEGIN\ntransaction:t\n\n\0")
        heard = await guest.hear(b"redelivered:false")
        found = re.search(rb"subscription:([0-9])\nmessage-id:([0-9-]+)\n", heard)
        assert found is not None
        subscription, name = (part.decode() for part in found.groups())
        guest.say(f"ACK\nsubscription:{subscription}\nmessage-id:{name}\ntransaction:t\nreceipt:a\n\n\0")
        await guest.hear(b"receipt-id:a")
        assert house.broker.ledger.by_kind["transactions"] > 50_000

    play(configured(tmp_path, top="global-max-size = 2000000\n"), story)


@pytest.mark.parametrize("varies", [False, True], ids=["one shape each", "one shape"])
def test_headers_of_what_waits_for_room_count(tmp_path: Path, varies: bool) -> None:
    """A connection that consumes is still read while an address is full, so that it can make room: what it sends meanwhile is kept, and
    messages without bodies are not small where their headers are long."""
    full = '[[address-setting]]\nmatch = "full"\nmax-size-bytes = 1000\naddress-full-policy = "BLOCK"\n'

    async def story(house: House) -> None:
        guest = await house.client()
        guest.say("SUBSCRIBE\nid:1\ndestination:/queue/full\nack:client\nconsumer-window-size:1\n\n\0")
        guest.say(f"SEND\ndestination:/queue/full\n\n{BODY * 2}\0" * 2)
        connection = house.connection()
        await house.until(lambda: connection.reading.holding is not None, "the address is full")
        names = ["h"] * 40 if varies else [f"h{number}" for number in range(40)]
        for number, name in enumerate(names):
            guest.say(f"SEND\ndestination:/queue/full\n{name}:{number:050000d}\n\n\0")
        await house.until(lambda: connection.reading.is_paused, "more than that is not kept")
        assert 1 << 20 < by_kind(connection)[Use.INPUT.value] < 2 << 20

    play(configured(tmp_path, top=full), story)
