"""The first messages of a queue, as the API shows them: from memory, from the log, and without taking any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.admin.asking import ask, queue, read
from tests.admin.conftest import Start
from tests.admin.test_access import BOB, ROOT, USERS
from tests.admin.test_views import send
from tests.conftest import Served
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
