"""The first messages of a queue, as the API shows them: from memory, from the log, and without taking any."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stompbox.admin import messages
from stompbox.admin.messages import Wanted, first_of
from stompbox.selectors import compile_selector
from tests.admin.asking import ask, post, queue, read
from tests.admin.conftest import Start
from tests.admin.test_access import BOB, ROOT, USERS
from tests.admin.test_views import send
from tests.conftest import Served
from tests.server.turning import World
from tests.system.plain import Plain


def look(served: Served, name: str, more: str = "") -> list[dict[str, Any]]:
    return list(read(served.admin, f"messages?queue={name}{more}")["messages"])


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_what_waits_and_what_is_in_delivery_is_shown_and_stays(served: Served, ack: str) -> None:
    name = f"looked.{ack}"
    with Plain(served.port) as client:
        send(
            client, f"/queue/{name}", b"a", b"b", "ö".encode(), **{"content-type": "text/plain", "mark": "x"}
        )
        client.send(
            "SUBSCRIBE", {"destination": f"/queue/{name}", "id": "1", "ack": ack, "prefetch-count": "1"}
        )
        client.receive()
        found = look(served, name)
        assert [(one["offset"], one["body"], one["is_delivering"], one["size"]) for one in found] == [
            (0, "a", True, 1), (1, "b", False, 1), (2, "ö", False, 2),
        ]  # fmt: skip
        assert found[0]["headers"]["mark"] == "x" and found[0]["headers"]["destination"] == f"/queue/{name}"
        assert found[0]["arrived"] > 0
        assert [one["offset"] for one in look(served, name, "&limit=2")] == [0, 1]
        left = queue(served.admin, name)
        assert (left["ready"], left["delivering"]) == (2, 1)


@pytest.mark.parametrize(
    ("body", "shown", "is_cut"),
    [
        (b"x" * 5000, "x" * 4096, True),
        (b"x" + "ö".encode() * 3000, "x" + "ö" * 2047, True),
        (b"\xff\x00\x01", None, False),
        (b"x" * 200_000, None, False),
        (b"", "", False),
    ],
    ids=["long", "cut in a character", "no text", "large", "empty"],
)
def test_of_a_body_the_beginning_is_shown_when_it_is_text(
    served: Served, body: bytes, shown: str | None, is_cut: bool
) -> None:
    name = f"looked.{len(body)}"
    with Plain(served.port) as client:
        send(client, f"/queue/{name}", body)
    [found] = look(served, name)
    assert (found["body"], found["is_cut"], found["size"]) == (shown, is_cut, len(body))


def test_what_is_in_the_log_alone_is_read_there_without_what_was_acknowledged(
    start: Start, tmp_path: Path
) -> None:
    served = start("", "--data", f"{tmp_path}/data")
    with Plain(served.port, headers={"client-id": "c"}) as client:
        subscription = {
            "destination": "/topic/t",
            "id": "1",
            "durable-subscription-name": "kept",
            "selector": "n > 1",
        }
        client.send("SUBSCRIBE", subscription)
        client.sync()
        for number in range(5):
            client.send("SEND", {"destination": "/queue/q", "receipt": "r"}, b"%d" % number)
            client.receive()
        client.send("UNSUBSCRIBE", {"id": "1"})
        for number in range(4):
            client.send(
                "SEND", {"destination": "/topic/t", "n": str(number), "receipt": "r"}, b"t%d" % number
            )
            client.receive()
        client.send("SUBSCRIBE", {"destination": "/queue/q", "id": "2", "ack": "client-individual"})
        got = [client.receive() for _ in range(5)]
        client.send("ACK", {"id": got[2].headers["ack"], "receipt": "acked"})
        client.receive()
    assert served.stop() == 0
    served = start("", "--data", f"{tmp_path}/data")
    assert [one["body"] for one in look(served, "q")] == ["0", "1", "3", "4"]
    [name] = [
        one["name"] for one in read(served.admin, "queues?address=t")["queues"] if one["kind"] == "durable"
    ]
    assert [one["body"] for one in look(served, f"t::{name}")] == ["t2", "t3"]


def test_who_may_browse_may_look(start: Start) -> None:
    served = start(USERS + '\n[[permission]]\nmatch = "seen"\nsend = ["admins"]\ncreate-address = ["admins"]\n'
                   'create-durable-queue = ["admins"]\nbrowse = ["users"]\n')  # fmt: skip
    with Plain(served.port, headers={"login": "root", "passcode": "r00t"}) as client:
        send(client, "/queue/seen", b"x")
    assert read(served.admin, "messages?queue=seen", BOB)["messages"][0]["body"] == "x"
    assert ask(served.admin, "/api/v1/messages?queue=seen", user=ROOT).code == "not-permitted"
    assert ask(served.admin, "/api/v1/messages?queue=unseen", user=ROOT).code == "no-such-queue"
    assert ask(served.admin, "/api/v1/messages?queue=seen&limit=201", user=BOB).code == "bad-number"


def test_a_page_has_as_many_messages_as_the_settings_say(start: Start) -> None:
    served = start('[[address-setting]]\nmatch = "#"\nmanagement-browse-page-size = 3\n')
    with Plain(served.port) as client:
        send(client, "/queue/paged", *[b"%d" % number for number in range(5)])
    assert len(read(served.admin, "messages?queue=paged")["messages"]) == 3
    assert ask(served.admin, "/api/v1/messages?queue=paged&limit=4").code == "bad-number"


def test_pages_of_messages_by_offset_time_and_selector(served: Served) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/paged.look", *[str(number).encode() for number in range(6)], kind="old")
        send(client, "/queue/paged.look", b"x", kind="new")
    first = read(served.admin, "messages?queue=paged.look&limit=4")
    assert ([one["offset"] for one in first["messages"]], first["next"]) == ([0, 1, 2, 3], 4)
    second = read(served.admin, f"messages?queue=paged.look&limit=4&start={first['next']}")
    assert ([one["offset"] for one in second["messages"]], second["next"]) == ([4, 5, 6], None)
    since = second["messages"][-1]["arrived"]
    assert 6 in [
        one["offset"] for one in read(served.admin, f"messages?queue=paged.look&since={since}")["messages"]
    ]
    assert read(served.admin, f"messages?queue=paged.look&since={since + 100_000}")["messages"] == []
    picked = read(served.admin, "messages?queue=paged.look&selector=kind%20%3D%20'new'")["messages"]
    assert [one["offset"] for one in picked] == [6]
    wrong = ask(served.admin, "/api/v1/messages?queue=paged.look&selector=kind%20%3D")
    assert (wrong.status, wrong.code, wrong.json["field"]) == (400, "selector-syntax", "selector")


def test_pages_reach_what_is_in_the_log_alone(start: Start) -> None:
    served = start('[[address-setting]]\nmatch = "#"\nmax-size-bytes = 4000\n')
    with Plain(served.port) as client:
        send(client, "/queue/deep", *[b"x" * 1000 for _ in range(30)], persistent="true")
        send(client, "/queue/deep", b"y", persistent="true", kind="new")
    assert queue(served.admin, "deep")["paged"] > 0
    seen: list[int] = []
    at: int | None = 0
    while at is not None:
        page = read(served.admin, f"messages?queue=deep&limit=7&start={at}")
        seen += [one["offset"] for one in page["messages"]]
        at = page["next"]
    assert seen == list(range(31))
    assert [
        one["offset"]
        for one in read(served.admin, "messages?queue=deep&selector=kind%20%3D%20'new'")["messages"]
    ] == [30]


@pytest.mark.parametrize("size", [5000, 200_000, (1 << 20) + 7])
def test_whole_bodies(served: Served, size: int) -> None:
    with Plain(served.port) as client:
        send(client, f"/queue/whole.{size}", b"z" * size)
    [found] = read(served.admin, f"messages?queue=whole.{size}&whole=true")["messages"]
    assert found["body"] == "z" * min(size, 1 << 20)
    assert (found["size"], found["is_cut"]) == (size, size > 1 << 20)


@pytest.mark.parametrize(
    "body",
    [b"\x01" * 150_000, b'"\\\n' * 50_000, "x\U0001f600\xf6".encode() * 30_000, b"\xff\x00" * 75_001, b"\xff" * 147_456],
    ids=["control", "escaped", "characters", "no text", "no text, whole slices"],
)  # fmt: skip
def test_a_long_body_is_made_json_in_portions_and_is_what_it_was(body: bytes) -> None:
    """One of a megabyte took 20 ms in one go."""
    try:
        text: str | None = body.decode()
    except UnicodeDecodeError:
        text = None
    made = messages._said(body, b64encode) if text is None else messages._said(text, messages._escaped)
    steps = 0
    while True:
        try:
            next(made)
        except StopIteration as done:
            found = msgspec.json.decode(msgspec.json.encode(done.value))
            break
        steps += 1
    assert found == (b64encode(body).decode() if text is None else text)
    assert steps == -(-len(body if text is None else text) // messages.SLICE) > 1


def shown(count: int) -> int:
    """Lines of the longest step in which so many messages of a run are made what is shown of them."""
    world = World()
    sent = b"".join([b"SEND\ndestination:/queue/q\n\n%d\0" % number for number in range(count)])
    world.client().socket.data_received(sent)
    world.until_idle()
    world.turn(20)
    (looked,) = world.broker.engine.queues.values()
    with world.steps() as steps:
        found, _ = world.driven(messages.first_messages(world.broker, looked, count, Wanted(), is_whole=True))
    assert len(found) == count
    return steps.longest


def test_messages_are_shown_in_turns_however_short_they_are() -> None:
    assert shown(400) < 5 * shown(40)


def test_chosen_messages_are_deleted_and_the_others_stay_in_order(served: Served) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/chosen.q", *[str(number).encode() for number in range(6)])
        far = post(served.admin, "messages/delete", {"queue": "chosen.q", "offsets": [10**9]})
        assert (far.code, far.json["field"]) == ("bad-number", "offsets")
        gone = post(served.admin, "messages/delete", {"queue": "chosen.q", "offsets": [4, 1, 1, 99]})
        assert gone.json == {"queue": "chosen.q", "moved": 2, "is_done": True}
        client.send("SUBSCRIBE", {"destination": "/queue/chosen.q", "id": "1"})
        assert [client.receive().body for _ in range(4)] == [b"0", b"2", b"3", b"5"]


def test_chosen_dead_letters_go_back(start: Start) -> None:
    served = start(
        '[[address-setting]]\nmatch = "#"\nmax-delivery-attempts = 1\ndead-letter-address = "DLQ"\n'
    )
    with Plain(served.port) as client:
        send(client, "/queue/q", b"a", b"b", b"c")
        client.send("SUBSCRIBE", {"destination": "/queue/q", "id": "1", "ack": "client-individual"})
        for _ in range(3):
            client.send("NACK", {"id": client.receive().headers["ack"]})
        client.sync()
        assert [one["body"] for one in look(served, "DLQ")] == ["a", "b", "c"]
        assert post(served.admin, "messages/redrive", {"queue": "DLQ", "offsets": [1]}).json["moved"] == 1
        assert client.receive().body == b"b"
        assert [one["body"] for one in look(served, "DLQ")] == ["a", "c"]


def test_messages_are_copied_and_stay(served: Served) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/copied.from", b"a", b"b", b"c")
    order = {"queue": "copied.from", "to": "copied.to", "count": 2}
    assert post(served.admin, "queues/copy", order).json == {
        "queue": "copied.from",
        "moved": 2,
        "is_done": True,
    }
    assert [one["body"] for one in look(served, "copied.to")] == ["a", "b"]
    assert [one["body"] for one in look(served, "copied.from")] == ["a", "b", "c"]


SELECTORS = {
    "a body": "XPATH '//c = 3'",
    "a body and its size": "XPATH '//c = 3' AND AMQSize > 0",
    "headers": "AMQSize BETWEEN 1 AND 2000 OR " + " OR ".join([f"h{n} = 1" for n in range(150)]),
}


def longest_look(count: int, selector: str) -> int:
    """Lines of Python of the longest step in which so many messages are asked about, which came in one read."""
    world = World()
    bodies = [b"<a>" + b"<b>x</b>" * 100 + b"<c>%d</c></a>" % (number % 10) for number in range(count)]
    sent = b"".join([b"SEND\ndestination:/queue/q\n\n%b\0" % body for body in bodies])
    world.client().socket.data_received(sent)
    world.until_idle()
    world.turn(20)
    (found_queue,) = world.broker.engine.queues.values()
    wanted = Wanted(selector=compile_selector(selector))
    with world.steps() as steps:
        found, following = world.driven(first_of(world.broker, found_queue, count, wanted))
    assert following is None
    assert len(found) == (count if selector is SELECTORS["headers"] else count // 10)
    return steps.longest


@pytest.mark.parametrize("kind", SELECTORS)
def test_no_step_of_a_look_is_longer_the_more_messages_its_selector_is_asked_about(kind: str) -> None:
    longest_look(10, SELECTORS[kind])  # what is imported first
    assert longest_look(160, SELECTORS[kind]) <= 1.3 * longest_look(40, SELECTORS[kind])
