"""Replays with a real broker and a real Spark: in order, at a rate, each message once over a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from stompbox.pipelines import replay
from tests.pipelines.conftest import Run, send, stored

ARCHIVE = '[[archive]]\nname = "{0}"\ndestinations = ["/queue/{0}.a", "/queue/{0}.b"]\ntable = "table"\n'
REPLAY = '[[replay]]\nname = "again"\narchive = "{0}"\ndestination = "/queue/{0}.out"\n'


def received(url: str, destination: str) -> list[tuple[str, bytes]]:
    messages = stored(url, destination)
    return [(message["headers"]["from"], message["body"]) for message in messages]


def archived(run: Run, url: str, name: str) -> str:
    text = ARCHIVE.format(name)
    for address in "ab":
        send(
            url,
            f"/queue/{name}.{address}",
            [b"%d" % number for number in range(30)],
            {"from": address, "expires": "4102444800000"},
        )
    run(text, name)
    return text


def expect_each_once_in_order(rows: list[tuple[str, bytes]]) -> None:
    for address in "ab":
        assert [int(body) for sender, body in rows if sender == address] == list(range(30))


class Killed(BaseException):
    """The process is gone."""


def test_in_offset_order_at_a_rate_and_each_once_over_a_kill(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Killed once before a slice is published and once after it, before that was written down."""
    text = archived(run, url, "order") + REPLAY.format("order") + "rate = 80\n"
    published = replay.publish
    calls = 0

    def dying(*arguments: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise Killed
        done = published(*arguments)
        if calls == 3:
            raise Killed
        return done

    monkeypatch.setattr(replay, "publish", dying)
    for _ in range(2):
        with pytest.raises(Killed):
            run(text, "again")
    facts = run(text, "again")["again"].facts
    assert (facts["rows"], facts["sent"], facts["resumed_at"]) == (60, 60, 20)
    assert facts["seconds"] >= 20 / 80  # the second slice and the last are that far apart, at least
    expect_each_once_in_order(received(url, "/queue/order.out"))
    assert not any("expires" in message["headers"] for message in stored(url, "/queue/order.out"))
    assert not (tmp_path / "pipeline-state" / "again").exists()  # the next run would send all of it anew


def test_a_part_of_the_time_and_of_the_addresses_goes_back_to_where_it_was_sent(run: Run, url: str) -> None:
    text = archived(run, url, "part")
    only = (
        '[[replay]]\nname = "some"\narchive = "part"\naddresses = ["*.b"]\nuntil = "2100-01-01T00:00:00Z"\n'
    )
    assert run(text + only, "some")["some"].facts["sent"] == 30
    none = only.replace("until", "from")
    assert run(text + none, "some")["some"].facts["sent"] == 0
    assert [body for _, body in received(url, "/queue/part.b")] == 2 * [
        b"%d" % number for number in range(30)
    ]
    assert len(received(url, "/queue/part.a")) == 30
