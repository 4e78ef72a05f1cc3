"""What is sent reaches whom it is for, however the broker came to read it."""

from __future__ import annotations

import json

from stompbox.stomp.codec import encode
from stompbox.stomp.frames import Frame
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
