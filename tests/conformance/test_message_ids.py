"""`stompEnableMessageId`: an id belongs to what is sent through the listener that has the option, and is one wherever the message goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conformance.wire import Answer, Client, connected
from tests.conftest import Serve, Served

CONFIGURATION = """
[[listener]]
url = "tcp://127.0.0.1:0?stompEnableMessageId=true;maxTransactionSize=1MiB"
[[listener]]
url = "tcp://127.0.0.1:0"
[[divert]]
name = "copies"
address = "diverted"
forwarding-address = "copy"
[[divert]]
name = "changed"
address = "diverted"
forwarding-address = "changed"
routing-type = "ANYCAST"
[[address]]
name = "two"
routing-types = ["MULTICAST"]
[[address.queue]]
name = "one"
routing-type = "MULTICAST"
[[address.queue]]
name = "other"
routing-type = "MULTICAST"
[[address-setting]]
match = "dying"
max-delivery-attempts = 1
dead-letter-address = "dead"
"""
LARGE = "x" * 200_000
# what a SEND says, and what it can be read from then
WAYS = [
    ("a queue", "/queue/plain", "", ["/queue/plain"]),
    ("several at once", "/queue/first,/queue/second", "", ["/queue/first", "/queue/second"]),
    ("diverts", "/queue/diverted", "", ["/queue/diverted", "/queue/copy", "/queue/changed"]),
    ("queues of a topic", "/topic/two", "", ["two::one", "two::other"]),
    ("a sender's own", "/queue/own", "amqMessageId:STOMP7\n", ["/queue/own"]),
    ("a column of a sender's", "/queue/columns", "amqMessageId:{n}\nn:{n}\n", ["/queue/columns"]),
    ("priorities", "/queue/urgent", "priority:9\n", ["/queue/urgent"]),
    ("times to live", "/queue/brief", "expires:4000000000000\n", ["/queue/brief"]),
]


@pytest.fixture
def start(serve: Serve, tmp_path: Path) -> Callable[[], Served]:
    file, data = tmp_path / "ids.toml", str(tmp_path / "data")
    file.write_text(CONFIGURATION)
    return lambda: serve("--config", str(file), "--no-admin", "--data", data)


@contextmanager
def client(served: Served, listener: int = 0) -> Iterator[Client]:
    parts = urlsplit(served.listeners[listener])
    with connected((parts.hostname or "", parts.port or 0), "tcp") as found:
        found.log_in("1.2")
        yield found


def send(client: Client, destination: str, *bodies: str, headers: str = "") -> None:
    frames = [
        f"SEND\ndestination:{destination}\n{headers.replace('{n}', str(n))}\n{body}\0"
        for n, body in enumerate(bodies)
    ]
    client.say("".join(frames).encode() + b"SEND\ndestination:/topic/nobody\nreceipt:sent\n\n\0")
    client.expect("RECEIPT")


def read(served: Served, destination: str, count: int, headers: str = "") -> dict[str, str | None]:
    """Ids by body, of so many messages."""
    with client(served) as reader:
        reader.say(f"SUBSCRIBE\nid:0\ndestination:{destination}\n{headers}\n\0".encode())
        return dict(told(reader.expect("MESSAGE")) for _ in range(count))


def told(message: Answer) -> tuple[str, str | None]:
    assert len([line for line in message.lines if line.startswith(b"amqMessageId:")]) <= 1
    return message.body.decode(), message.value("amqMessageId")


def numbers(ids: dict[str, str | None]) -> list[int]:
    """All of them are Artemis's form."""
    texts = [id or "" for id in ids.values()]
    assert all(text.startswith("STOMP") and text[5:].isdigit() for text in texts), texts
    return [int(text[5:]) for text in texts]


def test_an_id_is_one_wherever_a_message_goes(start: Callable[[], Served]) -> None:
    served = start()
    with client(served) as sender:
        for _, destination, headers, _ in WAYS:
            send(sender, destination, "0", "1", "2", headers=headers)
    seen: set[int] = set()
    for name, _, _, places in WAYS:
        found = [read(served, place, 3) for place in places]
        assert all(ids == found[0] for ids in found), name
        assert found[0].keys() == {"0", "1", "2"}
        new = numbers(found[0])
        assert len(set(new)) == 3
        assert not seen & set(new), name
        seen |= set(new)


def test_each_message_that_repeats_has_one_of_its_own(start: Callable[[], Served]) -> None:
    """After a kill, too. A sender's own, where the listener gives none, stays as it is."""
    served = start()
    with client(served) as sender, client(served, 1) as other:
        send(
            sender, "/queue/again", "tick", headers="AMQ_SCHEDULED_PERIOD:40\nAMQ_SCHEDULED_REPEAT:1000000\n"
        )
        send(
            other,
            "/queue/own",
            "tick",
            headers="AMQ_SCHEDULED_PERIOD:40\nAMQ_SCHEDULED_REPEAT:1000000\namqMessageId:mine\n",
        )
        with client(served) as reader:
            reader.say(b"SUBSCRIBE\nid:0\ndestination:/queue/own\n\n\0")
            assert [told(reader.expect("MESSAGE"))[1] for _ in range(2)] == ["mine", "mine"]
    seen: set[str | None] = set()
    for _ in range(2):
        with client(served) as reader:
            reader.say(b"SUBSCRIBE\nid:0\ndestination:/queue/again\n\n\0")
            fresh: list[str | None] = []
            while len(fresh) < 3:
                message = reader.expect("MESSAGE")
                if message.value("redelivered") == "false":
                    fresh.append(told(message)[1])
        assert len(set(fresh)) == 3 and not seen & set(fresh)
        numbers({str(at): id for at, id in enumerate(fresh)})
        seen |= set(fresh)
        served.kill()
        served = start()


def test_what_came_another_way_has_none(start: Callable[[], Served]) -> None:
    """Though it is read where the option is; a sender's own is a header like others there."""
    served = start()
    with client(served, 1) as sender:
        send(sender, "/queue/q", "plain")
        send(sender, "/queue/q", "own", headers="amqMessageId:mine\n")
    assert read(served, "/queue/q", 2) == {"plain": None, "own": "mine"}


def test_selectors_see_it_in_topics_too(start: Callable[[], Served]) -> None:
    served = start()
    with client(served) as listening, client(served, 1) as other, client(served) as sender:
        listening.say(
            b"SUBSCRIBE\nid:0\ndestination:/topic/t\nselector:amqMessageId LIKE 'STOMP%'\nreceipt:1\n\n\0"
        )
        listening.expect("RECEIPT")
        send(other, "/topic/t", "no")
        send(sender, "/topic/t", "yes")
        assert told(listening.expect("MESSAGE"))[0] == "yes"
        send(sender, "/queue/q", "0", "1", "2")
        ids = read(served, "/queue/q", 3, "browser:true\n")
    assert read(served, "/queue/q", 1, f"selector:amqMessageId = '{ids['1']}'\n") == {"1": ids["1"]}


def test_it_stays_over_redelivery_death_and_a_restart(start: Callable[[], Served]) -> None:
    """And no number comes again after the start."""
    served = start()
    with client(served) as sender:
        send(sender, "/queue/kept", "0", "1")
        send(sender, "/queue/dying", "bad")
        send(sender, "/queue/large", LARGE)
        sender.say(
            b"BEGIN\ntransaction:t\n\n\0SEND\ndestination:/queue/kept\ntransaction:t\n\n2\0COMMIT\ntransaction:t\nreceipt:c\n\n\0"
        )
        sender.expect("RECEIPT")
    before = read(served, "/queue/kept", 3, "ack:client\n")
    with client(served) as reader:
        reader.say(b"SUBSCRIBE\nid:0\nack:client-individual\ndestination:/queue/dying\n\n\0")
        message = reader.expect("MESSAGE")
        reader.say(f"NACK\nid:{message.value('ack')}\nreceipt:n\n\n\0".encode())
        reader.expect("RECEIPT")
    assert read(served, "/queue/dead", 1, "browser:true\n") == {"bad": message.value("amqMessageId")}
    assert served.stop() == 0
    served = start()
    with client(served) as sender:
        send(sender, "/queue/new", *map(str, range(10)))
    new = numbers(read(served, "/queue/new", 10))
    assert read(served, "/queue/kept", 3) == before
    assert numbers(read(served, "/queue/dead", 1)) == numbers({"": message.value("amqMessageId")})
    large = numbers(read(served, "/queue/large", 1))
    assert not {*numbers(before), *large} & set(new)
