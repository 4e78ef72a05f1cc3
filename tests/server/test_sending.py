"""What is sent reaches whom it is for, however the broker came to read it."""

from __future__ import annotations

import json

from stompbox.stomp.codec import encode
from stompbox.stomp.frames import Frame
from tests.system.plain import Plain

MANY = 40  # more than it takes until frames that look alike are read in runs


def test_requests_are_answered_one_by_one_when_they_come_in_runs(broker: tuple[str, int]) -> None:
    headers = {"destination": "stompbox.requests", "request": "describe", "destinations": "/queue/runs.of.requests", "create": "true"}
    with Plain(broker[1]) as client:
        frames = [encode(Frame("SEND", {**headers, "request-id": str(number)}, b""), client.version) for number in range(MANY)]
        client.socket.sendall(b"".join(frames))
        answers = [client.receive() for _ in range(MANY)]
        client.socket.sendall(b"".join(frames))
        answers += [client.receive() for _ in range(MANY)]
    assert [answer.headers["status"] for answer in answers] == ["ok"] * 2 * MANY
    assert sorted(int(answer.headers["request-id"]) for answer in answers) == sorted([*range(MANY)] * 2)
    assert json.loads(answers[-1].body)["addresses"] == {"runs.of.requests": {"first": 0, "next": 0}}
