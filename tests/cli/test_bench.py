"""`stompbox bench`: what it counts, and what it says when messages do not come. How fast anything is, is not tested."""

from __future__ import annotations

import json
from random import Random

import pytest

from stompbox.cli.bench import Latencies
from tests.cli.test_operating import printed, send, served, stompbox
from tests.conftest import Served

__all__ = ("served",)


def run(served: Served, *arguments: str) -> dict[str, object]:
    found = json.loads(printed(served, "bench", *arguments, "--json"))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_a_queue_is_shared(served: Served, ack: str) -> None:
    found = run(
        served, "/queue/bn.shared", "--count", "501", "--producers", "2", "--consumers", "3", "--ack", ack
    )
    assert (found["sent"], found["received"], found["foreign"]) == (501, 501, 0)
    latency = found["latency_ms"]
    assert isinstance(latency, dict)
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]


def test_a_topic_goes_to_everybody(served: Served) -> None:
    found = run(served, "/topic/bn.all", "--count", "100", "--consumers", "3", "--rate", "5000")
    assert (found["sent"], found["received"]) == (100, 300)


def test_producers_alone_and_consumers_alone(served: Served) -> None:
    filled = run(served, "/queue/bn.halves", "--count", "50", "--consumers", "0", "--size", "16")
    assert (filled["sent"], filled["received"], filled["latency_ms"]) == (50, 0, None)
    send(served, "/queue/bn.halves", b"somebody else's")
    emptied = run(served, "/queue/bn.halves", "--count", "50", "--producers", "0")
    assert (emptied["sent"], emptied["received"]) == (0, 50)


def test_what_is_printed(served: Served) -> None:
    text = printed(served, "bench", "/queue/bn.text", "--count", "20")
    assert "/queue/bn.text: producers 1, consumers 1, bodies of 100 octets" in text
    assert "p99" in text and "messages/s" in text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--size", "15"], "--size is 15; allowed is a number from 16"),
        (["--count", "0"], "--count is 0"),
        (["--rate", "0"], "--rate is 0"),
        (["--producers", "0", "--consumers", "0"], "--producers and --consumers together is 0"),
        (["--window", "0"], "--window is 0"),
        (["-H", "x"], "--header is 'x'"),
    ],
)
def test_wrong_use(served: Served, arguments: list[str], text: str) -> None:
    done = stompbox(served, "bench", *arguments)
    assert done.returncode == 2
    assert text in done.stderr and done.stderr.count("\n") == 1


def test_a_refusal_is_one_line(served: Served) -> None:
    done = stompbox(served, "bench", "/queue/bn.a", "--count", "10", "-H", "expires:soon", "--consumers", "0")
    assert done.returncode == 1
    assert "expires" in done.stderr and done.stderr.count("\n") == 1


def test_latencies_are_known_to_five_percent() -> None:
    random, found = Random(7), Latencies()
    values = sorted(random.lognormvariate(-6, 1.5) for _ in range(5000))
    assert found.share(0.5) is None
    for value in values:
        found.add(value)
    for share in (0.01, 0.5, 0.9, 0.99, 0.999, 1.0):
        exact = values[max(0, int(share * 5000) - 1)] * 1000
        assert found.share(share) == pytest.approx(exact, rel=0.06)
