"""Messages that repeat, and queues that were made with arguments, by kill -9: what is left of them is what their RECEIPT said."""

from __future__ import annotations

import json
from typing import Any

from tests.conftest import Served
from tests.system.conftest import Start
from tests.system.plain import Plain

REPEATS = 1_000_000


def killed(served: Served) -> None:
    served.process.kill()
    served.process.wait()


def said(client: Plain, headers: dict[str, str], body: bytes = b"") -> None:
    """A SEND, and its RECEIPT."""
    client.send("SEND", {**headers, "receipt": "sent"}, body)
    assert client.receive().command == "RECEIPT"


def heard(client: Plain, count: int) -> list[str]:
    """The message-ids of so many MESSAGEs, each acknowledged; those that come again are not counted."""
    found = []
    while len(found) < count:
        frame = client.receive()
        assert frame.command == "MESSAGE", frame
        client.send("ACK", {"id": frame.headers["ack"]})
        if frame.headers["redelivered"] == "false":
            found.append(frame.headers["message-id"])
    return found


def test_a_schedule_outlives_kill_9_and_counts_on(start: Start) -> None:
    served = start()
    with Plain(served.port) as client:
        repeats = {"AMQ_SCHEDULED_PERIOD": "50", "AMQ_SCHEDULED_REPEAT": str(REPEATS)}
        said(client, {"destination": "/queue/q", **repeats}, b"again")
        killed(served)
    ids, left = set[str](), REPEATS
    for _ in range(3):
        served = start()
        with Plain(served.port) as client:
            client.send("SUBSCRIBE", {"destination": "/queue/q", "id": "0", "ack": "client-individual"})
            found = heard(client, 4)
            assert len(set(found)) == len(found)
            ids |= set(found)
            client.send("UNSUBSCRIBE", {"id": "0"})
            (job,) = scheduled(client)
            assert 0 < job["left"] <= left - 3, "each message counts"
            left = job["left"]
            killed(served)
    assert len(ids) > 4


def scheduled(client: Plain) -> list[dict[str, Any]]:
    client.send("SEND", {"destination": "stompbox.requests", "request": "schedules", "request-id": "1"})
    while (frame := client.receive()).headers["destination"] != "stompbox.requests":
        pass  # messages that were on their way
    found: list[dict[str, Any]] = json.loads(frame.body)["schedules"]
    return found


def test_what_came_before_the_receipt_of_unschedule_is_the_last(start: Start) -> None:
    served = start()
    with Plain(served.port) as client:
        said(client, {"destination": "/queue/q", "AMQ_SCHEDULED_CRON": "0 3 * * *"}, b"nightly")
        killed(served)
    served = start()
    with Plain(served.port) as client:
        (job,) = scheduled(client)
        assert (job["address"], job["cron"]) == ("q", "0 3 * * *")
        client.send(
            "SEND",
            {"destination": "stompbox.requests", "request": "unschedule", "request-id": "2", "id": job["id"]},
        )
        assert client.receive().headers["status"] == "ok"
        killed(served)
    served = start()
    with Plain(served.port) as client:
        assert scheduled(client) == []


def test_a_restart_is_no_last_consumer(start: Start) -> None:
    served = start()
    with Plain(served.port) as client:
        said(client, {"destination": "/queue/q", "auto-delete": "true"}, b"kept")
        killed(served)
    served = start()
    with Plain(served.port) as client:
        client.send("SUBSCRIBE", {"destination": "/queue/q", "id": "0"})
        assert client.receive().body == b"kept"


def test_a_queue_keeps_its_arguments(start: Start) -> None:
    served = start()
    with Plain(served.port) as client:
        said(client, {"destination": "/queue/q", "x-max-length": "2", "x-message-ttl": "3600000"}, b"0")
        killed(served)
    served = start()
    with Plain(served.port) as client:
        for number in (1, 2, 3):
            said(client, {"destination": "/queue/q"}, str(number).encode())
        client.send("SUBSCRIBE", {"destination": "/queue/q", "id": "0"})
        assert [client.receive().body for _ in range(2)] == [b"2", b"3"]
        client.send("SUBSCRIBE", {"destination": "/queue/q", "id": "1", "x-max-length": "3"})
        assert client.receive().headers["code"] == "queue-arguments-differ"
