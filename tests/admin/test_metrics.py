"""/metrics: each metric is documented with its type and labels, follows what happens, and does not grow without bound."""

from __future__ import annotations

import asyncio
import re
import time
from http.client import HTTPException
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from stompbox.admin.lag import Lags
from stompbox.admin.metrics import EVENTS, OTHERS, PASSED, REMOVED, WAITING, Metrics
from stompbox.broker.addresses import limits
from stompbox.config import Configuration, ListenerTable
from stompbox.message import MULTICAST, Run, Shape
from stompbox.server.run import start as start_here
from stompbox.server.run import stop
from tests.admin.asking import ask
from tests.admin.conftest import PLACES, Start
from tests.admin.test_views import request, send
from tests.conftest import Serve, Served
from tests.system.plain import Plain

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "docs" / "metrics.md").read_text()

Labels = dict[str, str]


def samples(text: str) -> dict[str, list[tuple[Labels, float]]]:
    found: dict[str, list[tuple[Labels, float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def scrape(served: Served) -> dict[str, list[tuple[Labels, float]]]:
    answer = ask(served.admin, "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return samples(answer.body.decode())


def value(found: dict[str, list[tuple[Labels, float]]], name: str, **labels: str) -> float:
    [one] = [value for given, value in found[name] if labels.items() <= given.items()]
    return one


def documented() -> dict[str, tuple[str, set[str]]]:
    """Name: type and labels, as the tables of the page have them."""
    rows = re.findall(r"^\| `(stompbox_\w+)` \| (\w+) \| [^|]+ \|([^|]*)\|", PAGE, flags=re.MULTILINE)
    found: dict[str, tuple[str, set[str]]] = {}
    for name, kind, text in rows:
        labels = set(re.findall(r"`(\w+)`", text))
        if kind == "histogram":
            found |= {f"{name}_bucket": (kind, labels | {"le"}), f"{name}_count": (kind, labels)}
            found[f"{name}_sum"] = kind, labels
        else:
            found[name] = kind, labels
    return found


def test_every_metric_is_documented_and_every_row_is_a_metric(serve: Serve, tmp_path: Path) -> None:
    served = serve("--data", str(tmp_path / "data"), "--fronts", "1", *PLACES)
    with Plain(served.port) as client:
        send(client, "/queue/metrics.doc", b"x")
        request(client, "group-open", group="doc", destinations="/queue/metrics.doc", starting="earliest")
        request(
            client,
            "progress",
            b'{"pipeline": "doc", "steps": [{"step": "s", "kind": "archive", "state": "running"}]}',
        )
        client.send("BEGIN", {"transaction": "t"})
        client.send("BEGIN", {"transaction": "t"})
        assert client.receive().headers["code"] == "transaction-exists"
    text = ask(served.admin, "/metrics").body.decode()
    text = text.replace("# EOF\n", "") + of_a_node(serve, tmp_path)
    found: dict[str, tuple[str, set[str]]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            found[sample.name] = (family.type, set(sample.labels))
    process = {name for name in found if name.startswith("stompbox_process_")}
    assert all(f"`{name}`" in PAGE for name in process)
    assert {name: what for name, what in found.items() if name not in process} == documented()


def leads(admin: str) -> bool:
    try:
        return ask(admin, "/readyz?role=leader").status == 200
    except (
        OSError,
        HTTPException,
    ):  # the interface of a node that follows ends where that of one that leads begins
        return False


def of_a_node(serve: Serve, folder: Path) -> str:
    """What the leader of a cluster shows beside all others."""
    file = folder / "node.toml"
    file.write_text(
        f'data = "{folder}/node"\n[[listener]]\nurl = "tcp://127.0.0.1:0"\n[admin]\nlisten = "127.0.0.1:0"\n[cluster]\n'
        f'log = "disk://{folder}/log"\nnode = "a"\nlisten = "127.0.0.1:0"\nsecret = "0123456789abcdef"\n'
    )
    served = serve("--config", str(file))
    deadline = time.monotonic() + 30
    while not leads(served.admin):
        assert time.monotonic() < deadline
    lines = ask(served.admin, "/metrics").body.decode().splitlines(keepends=True)
    return "".join([line for line in lines if "stompbox_cluster_" in line])


def test_every_counter_of_the_engine_has_its_place() -> None:
    """In the source: what is counted, and under which name it is shown."""
    counted = set()
    for path in (ROOT / "src" / "stompbox" / "broker").rglob("*.py"):
        text = path.read_text()
        counted |= set(re.findall(r'counters\["([\w-]+)"\]', text)) | set(
            re.findall(r'\.(?:_?drop|_gone)\(.*, "([\w-]+)"\)', text)
        )
    assert counted | {"delivered", "not-taken", limits.CODE} == {*PASSED, *REMOVED, *EVENTS}
    assert [reason for reason in (*REMOVED, *EVENTS, *WAITING) if f"`{reason}`" not in PAGE] == []


def test_a_counter_begins_before_it_counts_where_one_message_makes_an_alert(start: Start) -> None:
    """Prometheus sees no increase in a series that begins with what it has become."""
    served = start(
        '[[address-setting]]\nmatch = "few.#"\nmax-size-messages = 1\naddress-full-policy = "DROP"\n'
    )
    of = {"reason": limits.CODE, "fate": "dropped"}
    assert value(scrape(served), "stompbox_messages_undelivered_total", **of) == 0
    with Plain(served.port) as client:
        for _ in range(3):
            send(client, "/queue/few.one", b"x")
    assert value(scrape(served), "stompbox_messages_undelivered_total", **of) == 2


def test_values_follow_what_happens(served: Served) -> None:
    before = scrape(served)
    with Plain(served.port) as client:
        send(client, "/queue/metrics.q", b"a", b"b", b"c")
        send(client, "/topic/metrics.nobody", b"x")
        client.send(
            "SUBSCRIBE",
            {"destination": "/queue/metrics.q", "id": "1", "ack": "client-individual", "prefetch-count": "2"},
        )
        got = [client.receive() for _ in range(2)]
        client.send("ACK", {"id": got[0].headers["ack"], "receipt": "acked"})
        assert {client.receive().command for _ in range(2)} == {"RECEIPT", "MESSAGE"}
        after = scrape(served)
    for name, more in (("received", 4), ("delivered", 3), ("acknowledged", 1)):
        metric = f"stompbox_messages_{name}_total"
        assert value(after, metric) - value(before, metric) == more
    unrouted = [
        value(found, "stompbox_messages_removed_total", reason="unrouted") for found in (before, after)
    ]
    assert unrouted[1] - unrouted[0] == 1
    labels = {"address": "metrics.q", "queue": "metrics.q", "kind": "anycast"}
    assert value(after, "stompbox_queue_ready_messages", **labels) == 0
    assert value(after, "stompbox_queue_delivering_messages", **labels) == 2
    assert value(after, "stompbox_queue_consumers", **labels) == 1
    assert value(after, "stompbox_address_next_offset", address="metrics.q") == 3
    [connections] = [value for _, value in after["stompbox_connections"]]
    assert connections >= 1
    assert value(after, "stompbox_subscriptions") == 1
    assert value(after, "stompbox_commits_total") > value(before, "stompbox_commits_total")
    assert value(after, "stompbox_commit_seconds_total") > 0
    for name, more in (("delivery", 3), ("commit", 1)):
        counts = [value(found, f"stompbox_{name}_latency_seconds_count") for found in (before, after)]
        assert counts[1] - counts[0] >= more
        assert value(after, f"stompbox_{name}_latency_seconds_bucket", le="+Inf") == counts[1]
    assert value(after, "stompbox_ready") == value(after, "stompbox_disk_good") == 1
    assert value(after, "stompbox_process_resident_memory_bytes") > 1e6


def test_errors_by_code(served: Served) -> None:
    with Plain(served.port) as client:
        client.send("SEND", {"destination": "nothing/here?", "priority": "ten"})
        code = client.receive().headers["code"]
    assert value(scrape(served), "stompbox_errors_total", code=code) >= 1


def test_lag_of_groups(served: Served) -> None:
    with Plain(served.port) as client:
        send(client, "/queue/metrics.g", b"a", b"b")
        request(client, "group-open", group="metrics", destinations="/queue/metrics.g", starting="earliest")
        assert value(scrape(served), "stompbox_group_lag_messages", group="metrics", address="metrics.g") == 2
        request(client, "group-commit", b'{"metrics.g": 2}', group="metrics")
        found = scrape(served)
    assert value(found, "stompbox_group_lag_messages", group="metrics", address="metrics.g") == 0
    assert value(found, "stompbox_group_lag_seconds", group="metrics", address="metrics.g") == 0


def test_what_is_beyond_the_limit_is_summed_up() -> None:
    """With 50 addresses of their own and many more than that."""

    async def play() -> str:
        configuration = Configuration(memory=True, listeners=(ListenerTable(url="tcp://127.0.0.1:0"),))
        broker, servers, _ = await start_here(configuration)
        engine = broker.engine
        for number in range(300):
            address = engine.address(f"q{number}")
            engine.publish(address, Run(Shape({"destination": f"q{number}"}), [b"a", b"b"]))
        engine.publish(engine.address("t"), Run(Shape({"destination": "t"}), [b"a"], routing=MULTICAST))
        text = await Metrics(broker, Lags(broker), listed=50).text()
        await stop(broker, servers)
        return text.decode()

    found = samples(asyncio.run(play()))
    assert len(found["stompbox_address_next_offset"]) == 50
    assert len(found["stompbox_queue_ready_messages"]) == 51
    assert value(found, "stompbox_queue_ready_messages", queue=OTHERS) == 250 * 2
    assert sum(value for _, value in found["stompbox_queue_ready_messages"]) == 600
    assert value(found, "stompbox_not_listed", what="addresses") == 251
    assert value(found, "stompbox_not_listed", what="queues") == 250
    assert value(found, "stompbox_addresses") == 301
    assert value(found, "stompbox_queues", kind="anycast") == 300


def test_addresses_without_metrics_of_their_own_are_summed_up(start: Start) -> None:
    served = start('[[address-setting]]\nmatch = "quiet.#"\nenable-metrics = false\n')
    with Plain(served.port) as client:
        send(client, "/queue/quiet.one", b"x")
        send(client, "/queue/loud", b"x")
    found = samples(ask(served.admin, "/metrics").body.decode())
    named = {given["address"] for given, _ in found["stompbox_queue_ready_messages"]}
    assert "loud" in named
    assert "quiet.one" not in named
    assert "quiet.one" not in {given["address"] for given, _ in found["stompbox_address_next_offset"]}
    assert value(found, "stompbox_queue_ready_messages", address="(others)", kind="anycast") == 1
