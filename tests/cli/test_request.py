"""`stompbox request`: a request and its reply, and what is said when none comes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stompbox import blocking
from tests.cli.test_operating import printed, served, stompbox
from tests.conftest import Served

__all__ = ("served",)


@pytest.fixture(scope="module")
def replying(served: Served) -> Iterator[Served]:
    """Somebody at /queue/rq who says what he was asked."""
    with (
        blocking.connect(f"stomp://127.0.0.1:{served.port}") as client,
        client.subscribe("/queue/rq") as requests,
    ):

        def answer(message: blocking.Message) -> None:
            client.reply(
                message, b"you said " + message.body, {"colour": message.headers.get("colour", "none")}
            )

        worker = threading.Thread(target=requests.run, args=(answer,))
        worker.start()
        yield served
        requests.unsubscribe()
        worker.join(10)


def test_a_request_and_its_reply(replying: Served, tmp_path: Path) -> None:
    assert printed(replying, "request", "/queue/rq", "hello") == "you said hello\n"
    (tmp_path / "body").write_text("from a file")
    assert (
        printed(replying, "request", "/queue/rq", "--file", str(tmp_path / "body"))
        == "you said from a file\n"
    )
    reply = json.loads(printed(replying, "request", "/queue/rq", "x", "-H", "colour:red", "--json"))
    assert (reply["body"], reply["headers"]["colour"]) == ("you said x", "red")
    assert "colour: none\n" in printed(replying, "request", "/queue/rq", "x", "--headers")


def test_nobody_replies(served: Served) -> None:
    done = stompbox(served, "request", "/queue/rq.nobody", "x", "--timeout", "0.05")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "stompbox request: no reply from /queue/rq.nobody within 0.05 s\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["x", "--timeout", "0"], "--timeout is 0"),
        (["x", "--timeout", "nan"], "--timeout is nan"),
        (["x", "--file", "f"], "a body and --file cannot be given together"),
        (["x", "--header", "nonsense"], "--header is 'nonsense'"),
        (
            ["x", "--header", "reply-to:/queue/mine"],
            "header 'reply-to' of a request is written by the client",
        ),
        (["--file", "not.there"], "'not.there' cannot be read"),
    ],
)
def test_wrong_use(served: Served, arguments: list[str], text: str) -> None:
    done = stompbox(served, "request", "/queue/rq", *arguments)
    assert done.returncode == 2
    assert text in done.stderr and done.stderr.count("\n") == 1
