"""Requests inside virtual hosts of a running broker: what is staged, published and remembered in one is nothing to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stompbox import blocking
from stompbox.errors import Refused
from stompbox.spark.link import Request, SparkLink
from stompbox.spark.offsets import OffsetRange
from stompbox.spark.options import Given, target_of
from stompbox.spark.requests import Staging, describe, discard, fetch, fetched, publish, stage
from stompbox.store.chunks import decode, verify
from tests.conftest import Serve, Served
from tests.system.test_requests import ask, blob

HOSTS = """
[[virtual-host]]
name = "main"
default = true
[[virtual-host]]
name = "green"
[[virtual-host]]
name = "blue"
"""
WITHIN = 10.0  # seconds
Enter = Callable[[str], SparkLink]


@pytest.fixture
def start(serve: Serve, tmp_path: Path) -> Callable[[], Served]:
    (tmp_path / "hosts.toml").write_text(HOSTS)
    data, file = str(tmp_path / "data"), str(tmp_path / "hosts.toml")
    return lambda: serve("--listen", "tcp://127.0.0.1:0", "--no-admin", "--config", file, "--data", data)


@pytest.fixture
def opened() -> Iterator[list[SparkLink]]:
    links: list[SparkLink] = []
    yield links
    for link in links:
        link.close()


def link_into(served: Served, host: str, opened: list[SparkLink]) -> SparkLink:
    opened.append(
        SparkLink(
            target_of(
                Given(
                    {
                        "url": f"stomp://{served.host}:{served.port}",
                        "virtualHost": host,
                        "reconnectTimeout": "2000",
                    }
                )
            )
        )
    )
    return opened[-1]


def put(link: SparkLink, destination: str, *bodies: bytes, batch: int = 0) -> None:
    """As a task of a sink does; every host's sink has the same name here."""
    link.ask(stage(Staging("copy", batch, 0), 1, blob(destination, *bodies)))


def bodies_of(link: SparkLink, address: str) -> list[bytes]:
    extent = describe(link, f"/queue/{address}", create=False).extents[address]
    return [
        body
        for one in fetched(link.ask(fetch(OffsetRange(address, 0, extent.next), 1 << 20))).blobs
        for run in decode(bytes(one), verify(one).first)
        for body in run.bodies
    ]


def test_a_sink_publishes_into_its_own_host(start: Callable[[], Served], opened: list[SparkLink]) -> None:
    served = start()
    hosts = {name: link_into(served, name, opened) for name in ("main", "green", "blue")}
    for name, link in hosts.items():
        put(link, "/queue/a", name.encode(), b"second")
    for name, link in list(hosts.items())[:2]:
        assert publish(link, "copy", 0, [(0, 1)]) == 2
        assert bodies_of(link, "a") == [name.encode(), b"second"]
    assert describe(hosts["blue"], "/queue/a", create=False).missing == ("/queue/a",), (
        "what it has staged is not published"
    )
    with (
        blocking.connect(f"stomp://{served.host}:{served.port}", host="green") as client,
        client.subscribe("/queue/a") as messages,
    ):
        assert [
            message.body for _, message in zip(range(2), messages.iterate(timeout=WITHIN), strict=False)
        ] == [b"green", b"second"]


def test_a_batch_is_published_once_in_each_host(start: Callable[[], Served], opened: list[SparkLink]) -> None:
    served = start()
    green, blue = (link_into(served, name, opened) for name in ("green", "blue"))
    put(green, "/queue/a", b"1")
    assert publish(green, "copy", 0, [(0, 1)]) == 1
    put(green, "/queue/a", b"1")
    assert publish(green, "copy", 0, [(0, 1)]) == 0, "published before"
    with pytest.raises(Refused) as caught:
        publish(blue, "copy", 0, [(0, 1)])
    assert caught.value.code == "not-staged"
    served.process.kill()
    served.process.wait()
    served = start()
    green, blue = (link_into(served, name, opened) for name in ("green", "blue"))
    put(green, "/queue/a", b"1")
    put(blue, "/queue/a", b"1")
    assert [publish(link, "copy", 0, [(0, 1)]) for link in (green, blue)] == [0, 1]
    assert [bodies_of(link, "a") for link in (green, blue)] == [[b"1"], [b"1"]]


def test_discarding_and_forgetting_stay_within_a_host(
    start: Callable[[], Served], opened: list[SparkLink]
) -> None:
    served = start()
    green, blue = (link_into(served, name, opened) for name in ("green", "blue"))
    for link in (green, blue):
        put(link, "/queue/a", b"1")
    discard(green, "copy", 0)
    assert publish(blue, "copy", 0, [(0, 1)]) == 1
    with pytest.raises(Refused) as caught:
        publish(green, "copy", 0, [(0, 1)])
    assert caught.value.code == "not-staged"
    ask(green, "sink-delete", sink="copy")
    put(blue, "/queue/a", b"2")
    assert publish(blue, "copy", 0, [(0, 1)]) == 0, (
        "another host's sink of that name was forgotten, not this one"
    )
    ask(blue, "sink-delete", sink="copy")
    put(blue, "/queue/a", b"3")
    assert publish(blue, "copy", 0, [(0, 1)]) == 1


@pytest.mark.parametrize("destination", ["/queue/vhost/blue.a", "vhost/blue.a", "/topic/vhost/blue.a"])
def test_nobody_stages_for_another_host(
    start: Callable[[], Served], opened: list[SparkLink], destination: str
) -> None:
    link = link_into(start(), "green", opened)
    with pytest.raises(Refused, match="vhost/blue") as caught:
        put(link, destination, b"x")
    assert caught.value.code == "bad-destination"
    assert link.ask(Request("describe", {"destinations": "#"})).headers["status"] == "ok"
