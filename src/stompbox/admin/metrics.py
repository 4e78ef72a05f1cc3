"""Metrics for Prometheus: looked at when somebody asks, never counted on the way of a message. docs/metrics.md explains each.

Series per address and queue are for the first LISTED of them, in the order in which they were made; what the rest have is summed up
under the name OTHERS, and `stompbox_not_listed` says how many those are. So a broker of ten thousand addresses stays readable.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final, cast

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from stompbox import __version__
from stompbox.admin.following import node_view
from stompbox.admin.health import of_role
from stompbox.admin.history import EVENTS, PASSED
from stompbox.admin.lag import Lag, Lags
from stompbox.admin.pipelines import told_of
from stompbox.admin.views import STAY
from stompbox.broker.addresses.limits import CODE as FULL
from stompbox.broker.addresses.limits import AddressLimits
from stompbox.broker.kinds import Kind
from stompbox.broker.queues.depth import depth_of
from stompbox.broker.queues.queue import Queue
from stompbox.broker.undelivered import EXPIRED, NO_ROUTE, REJECTED, TOO_OFTEN, Fate
from stompbox.server.latency import BOUNDS, Latency
from stompbox.server.pressure import Reason
from stompbox.server.requests.progress import LOST, StepState
from stompbox.server.requests.replies import in_turns

if TYPE_CHECKING:
    from stompbox.server.broker import Broker
    from stompbox.server.cluster.node import Node

LISTED: Final = 1000  # addresses, and as many queues and groups' positions, that have series of their own
OTHERS: Final = "(others)"
# of engine.counters: the ways of a message; each is a metric
REMOVED: Final = (
    "address-full", "dead", "disabled", "dropped", "duplicates", "expired", "moved", "not-diverted", "not-stored", "not-taken",
    "overwritten", "purged", "redriven", "replaced", "retention", "unrouted", "withdrawn",
)  # fmt: skip
# why messages are dropped that the log tells of
DROPS: Final = (EXPIRED, NO_ROUTE, REJECTED, TOO_OFTEN, FULL)
WAITING: Final = (*[reason.value for reason in Reason], AddressLimits.value)
STATES: Final = (*[state.value for state in StepState], LOST)

QueueLabels = tuple[str, str, str]


class Snapshot:
    """What a broker looked like when it was asked; taken in the loop, turned into text in a thread."""

    def __init__(self) -> None:
        self.single: list[Metric] = []
        self.offsets: dict[str, tuple[int, int]] = {}  # address: oldest, next
        self.queues: dict[QueueLabels, list[int]] = {}  # ready, delayed, delivering, consumers
        self.kinds: Counter[str] = Counter()
        self.lags: dict[tuple[str, str], Lag] = {}
        self.left_out: Counter[str] = Counter()


class Metrics(Collector):
    """The metrics of one broker. `text` is what /metrics answers."""

    content_type = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self, broker: Broker, lags: Lags, *, listed: int = LISTED) -> None:
        self.broker = broker
        self.lags = lags
        self.listed = listed
        self.registry = CollectorRegistry(auto_describe=False)
        self._snapshot = Snapshot()
        self._turn = asyncio.Lock()
        self.registry.register(self)
        ProcessCollector(namespace="stompbox", registry=self.registry)

    async def text(self) -> bytes:
        async with self._turn:  # one at a time
            self._snapshot = await self.look()
            return await self.broker.loop.run_in_executor(None, generate_latest, self.registry)

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        snapshot = self._snapshot
        yield from snapshot.single
        yield from _of_addresses(snapshot)
        yield from _of_queues(snapshot)
        yield from _of_groups(snapshot)
        yield _gauge(
            "stompbox_not_listed",
            "Addresses, queues and groups without series of their own",
            "what",
            snapshot.left_out,
        )

    async def look(self) -> Snapshot:
        """Gives way to the loop now and then."""
        snapshot = Snapshot()
        if self.broker.is_view:  # what the nodes have in common is the leader's to count
            snapshot.single = [*_of_build(self.broker), *_of_errors(self.broker), *_of_cluster(self.broker)]
            return snapshot
        snapshot.single = [
            *_of_errors(self.broker),
            *_of_messages(self.broker),
            *_of_broker(self.broker),
            *_of_fronts(self.broker),
            *_of_cluster(self.broker),
            *_of_disk(self.broker),
            *_of_latencies(self.broker),
            _of_spans(self.broker),
            *_of_pipelines(self.broker),
        ]
        consumers = transactions = 0
        async for connection in in_turns(self.broker.turns, list(self.broker.connections)):
            consumers += len(connection.consumers)
            transactions += len(connection.transactions)
        snapshot.single += _of_connections(consumers, transactions)
        snapshot.kinds = Counter({kind.value: 0 for kind in Kind})
        snapshot.left_out = Counter({"addresses": 0, "queues": 0, "groups": 0})
        groups: list[Queue] = []
        async for address in in_turns(self.broker.turns, list(self.broker.engine.addresses.values())):
            if address.owner or not address.settings.enable_metrics or len(snapshot.offsets) >= self.listed:
                snapshot.left_out["addresses"] += 1
            else:
                snapshot.offsets[address.name] = (address.log.oldest, address.log.next)
            groups += address.groups.values() if address.settings.enable_metrics else ()
            snapshot.left_out["groups"] += 0 if address.settings.enable_metrics else len(address.groups)
        async for queue in in_turns(self.broker.turns, list(self.broker.engine.queues.values())):
            snapshot.kinds[queue.kind.value] += 1
            if queue.kind is not Kind.GROUP:
                self._add(snapshot, queue)
        snapshot.left_out["groups"] += max(0, len(groups) - self.listed)
        self.lags.forget()
        for queue in groups[: self.listed]:
            snapshot.lags[queue.name, queue.address.name] = await self.lags.of(queue)
        return snapshot

    def _add(self, snapshot: Snapshot, queue: Queue) -> None:
        depth = depth_of(queue)
        values = (depth.ready, depth.delayed, depth.delivering, queue.consumer_count)
        address = queue.address
        is_named = (
            queue.kind in STAY
            and not address.owner
            and address.settings.enable_metrics
            and len(snapshot.queues) < self.listed
        )
        if is_named:
            snapshot.queues[queue.address.name, queue.name, queue.kind.value] = list(values)
            return
        snapshot.left_out["queues"] += 1
        rest = snapshot.queues.setdefault((OTHERS, OTHERS, queue.kind.value), [0, 0, 0, 0])
        rest[:] = [one + more for one, more in zip(rest, values, strict=True)]


def _gauge(name: str, text: str, label: str, values: Counter[str] | dict[str, int]) -> Metric:
    found = GaugeMetricFamily(name, text, labels=[label])
    for key, value in sorted(values.items()):
        found.add_metric([key], value)
    return found


def _counter(name: str, text: str, label: str, values: dict[str, int]) -> Metric:
    found = CounterMetricFamily(name, text, labels=[label])
    for key, value in sorted(values.items()):
        found.add_metric([key], value)
    return found


def _of_messages(broker: Broker) -> Iterator[Metric]:
    counters = broker.engine.counters
    for name in PASSED:
        yield CounterMetricFamily(
            f"stompbox_messages_{name}", f"Messages {name}", value=counters.get(name, 0)
        )
    known = {name: counters.get(name, 0) for name in REMOVED}
    others = {name: count for name, count in counters.items() if name not in (*PASSED, *EVENTS)}
    yield _counter(
        "stompbox_messages_removed",
        "Messages that left a queue, or never reached one, by reason",
        "reason",
        known | others,
    )
    yield _undelivered(broker)
    events = {name: counters.get(name, 0) for name in EVENTS}
    yield _counter("stompbox_events", "What happened to subscriptions and waiting messages", "event", events)


def _of_errors(broker: Broker) -> Iterator[Metric]:
    yield _counter(
        "stompbox_errors",
        "Refused frames, closed connections and refused requests, by code",
        "code",
        dict(broker.errors),
    )


def _undelivered(broker: Broker) -> Metric:
    found = CounterMetricFamily(
        "stompbox_messages_undelivered", "Messages that the log tells of", labels=["reason", "fate"]
    )
    # those that are 0 stand there, too: what begins with a number has no rate at first, and no alert comes of it
    totals = dict.fromkeys([(reason, Fate.DROPPED) for reason in DROPS], 0)
    for (reason, fate), count in sorted((totals | broker.engine.undelivered.totals).items(), key=str):
        found.add_metric([reason, fate.name.lower().replace("_", "-")], count)
    return found


def _of_build(broker: Broker) -> Iterator[Metric]:
    build = GaugeMetricFamily("stompbox_build_info", "1, with the version", labels=["version"])
    build.add_metric([__version__], 1)
    yield build
    yield GaugeMetricFamily(
        "stompbox_start_time_seconds", "When the broker started, since 1970", value=broker.started / 1000
    )
    yield GaugeMetricFamily("stompbox_ready", "1: /readyz says ready", value=not of_role(broker, ""))


def _of_broker(broker: Broker) -> Iterator[Metric]:
    engine = broker.engine
    yield from _of_build(broker)
    of_listener = {str(acceptor.listener): 0 for acceptor in broker.acceptors}
    of_listener |= broker.of_listener
    yield _gauge("stompbox_connections", "Connections, by listener", "listener", of_listener)
    waiting = Counter(dict.fromkeys(WAITING, 0))
    waiting.update(reason.value for found in broker.pressure.waiting.values() for reason in found)
    yield _gauge(
        "stompbox_connections_waiting", "Connections that are not read any further", "reason", waiting
    )
    yield _gauge(
        "stompbox_memory_bytes",
        "Memory that is kept for clients and because of them, by kind",
        "kind",
        broker.ledger.by_kind,
    )
    yield GaugeMetricFamily("stompbox_memory_messages", "The same by count", value=engine.memory.count)
    yield GaugeMetricFamily(
        "stompbox_memory_limit_bytes", "global-max-size; -1: none", value=broker.configuration.global_max_size
    )
    yield GaugeMetricFamily("stompbox_addresses", "Addresses", value=len(engine.addresses))
    text = "Addresses and queues that frames of the user made who has most of them, by kind"
    yield _gauge("stompbox_user_made", text, "kind", engine.makers.most)


def _of_latencies(broker: Broker) -> Iterator[Metric]:
    yield _histogram(
        "stompbox_delivery_latency_seconds",
        "From when the broker has a message, or it is due, until it is on its way to a subscription",
        broker.deliveries.latency,
    )
    yield _histogram(
        "stompbox_commit_latency_seconds", "Time that a commit took, fsync included", broker.committer.latency
    )


def _of_spans(broker: Broker) -> Metric:
    spans = broker.tracing.spans if broker.tracing is not None else None
    outcomes = {"made": spans.made if spans else 0, "left-out": spans.left_out if spans else 0}
    return _counter(
        "stompbox_spans",
        "Spans of OpenTelemetry: made, and left out beyond max-spans-per-second",
        "outcome",
        outcomes,
    )


def _histogram(name: str, text: str, latency: Latency) -> Metric:
    found = HistogramMetricFamily(name, text)
    bounds = [f"{bound / 1000:g}" for bound in BOUNDS] + ["+Inf"]
    total = latency.total / 1000
    found.add_metric([], list(zip(bounds, accumulate(latency.counts), strict=True)), total)
    return found


def _of_connections(consumers: int, transactions: int) -> Iterator[Metric]:
    yield GaugeMetricFamily("stompbox_subscriptions", "Subscriptions of all connections", value=consumers)
    yield GaugeMetricFamily("stompbox_transactions", "Open transactions", value=transactions)


def _of_fronts(broker: Broker) -> Iterator[Metric]:
    """Without fronts there are none of these."""
    connections = GaugeMetricFamily("stompbox_front_connections", "Connections of a front", labels=["front"])
    busy = GaugeMetricFamily(
        "stompbox_front_busy_ratio", "Share of a core that a front takes", labels=["front"]
    )
    octets = CounterMetricFamily(
        "stompbox_front_bytes", "Between a front and the broker", labels=["front", "direction"]
    )
    restarts = CounterMetricFamily(
        "stompbox_front_restarts", "Times that a front has ended and was started again", labels=["front"]
    )
    for front in broker.fronts:
        connections.add_metric([front.name], front.connections)
        busy.add_metric([front.name], front.busy)
        for direction, count in zip(("in", "out"), front.octets, strict=True):
            octets.add_metric([front.name, direction], count)
        restarts.add_metric([front.name], front.restarts)
    yield from (connections, busy, octets, restarts)


def _of_cluster(broker: Broker) -> Iterator[Metric]:
    """Without a cluster there are none of these, and of its nodes the leader alone tells of the others."""
    node = node_view(broker)
    if node is None:
        return
    yield GaugeMetricFamily(
        "stompbox_cluster_leads", "1: this node leads, 0: it follows", value=node.role == "leader"
    )
    passing = cast("Node", broker.cluster).passing
    passed = len(passing.relays) if passing is not None else 0
    yield GaugeMetricFamily(
        "stompbox_cluster_passed", "Clients that are passed on to the leader", value=passed
    )
    if node.stale_ms is not None:
        text = "All that was confirmed before is in this node's store"
        yield GaugeMetricFamily("stompbox_cluster_stale_seconds", text, value=node.stale_ms / 1000)
    if broker.is_view:
        return
    table = cast("Node", broker.cluster).described()
    connected = GaugeMetricFamily(
        "stompbox_cluster_node_connected", "1: the leader has a link to the node, or is it", labels=["node"]
    )
    lag = GaugeMetricFamily(
        "stompbox_cluster_lag", "Records that a node has not applied yet", labels=["node"]
    )
    for member in table.members:
        connected.add_metric([member.node], member.is_connected)
        lag.add_metric([member.node], member.lag)
    yield from (connected, lag)
    yield GaugeMetricFamily("stompbox_cluster_epoch", "How often a node began to lead", value=table.epoch)


def _of_disk(broker: Broker) -> Iterator[Metric]:
    committer, disk = broker.committer, broker.disk
    yield CounterMetricFamily("stompbox_commits", "Commits that are in the store", value=committer.applied)
    yield CounterMetricFamily(
        "stompbox_commits_failed", "Commits that the store refused", value=committer.failed
    )
    yield CounterMetricFamily(
        "stompbox_commit_seconds", "Time that commits took, fsync included", value=committer.seconds
    )
    yield GaugeMetricFamily(
        "stompbox_unsaved_bytes", "Memory of messages on their way to the store", value=broker.engine.unsaved
    )
    yield GaugeMetricFamily("stompbox_disk_good", "1: messages can be stored", value=disk.is_good)
    if disk.folder is not None:
        found = os.statvfs(disk.folder)
        yield GaugeMetricFamily(
            "stompbox_disk_free_bytes",
            "Free on the data folder's disk",
            value=found.f_bavail * found.f_frsize,
        )
        yield GaugeMetricFamily(
            "stompbox_disk_size_bytes",
            "Size of the data folder's disk",
            value=found.f_blocks * found.f_frsize,
        )


def _of_pipelines(broker: Broker) -> Iterator[Metric]:
    found = told_of(broker)
    sessions = broker.sessions()
    states = Counter(dict.fromkeys(STATES, 0))
    states.update(told.state(sessions) for told in found)
    yield _gauge("stompbox_pipeline_steps", "Steps of pipelines, by state", "state", states)
    rows = CounterMetricFamily(
        "stompbox_pipeline_rows", "Rows of a step in its run", labels=["pipeline", "step", "user"]
    )
    for told in found:
        rows.add_metric([told.pipeline, told.step.step, told.user], told.step.rows)
    yield rows


def _of_addresses(snapshot: Snapshot) -> Iterator[Metric]:
    oldest = GaugeMetricFamily(
        "stompbox_address_oldest_offset", "Lowest offset that can be read", labels=["address"]
    )
    following = GaugeMetricFamily(
        "stompbox_address_next_offset", "Offset of the next message", labels=["address"]
    )
    for name, (low, high) in snapshot.offsets.items():
        oldest.add_metric([name], low)
        following.add_metric([name], high)
    yield oldest
    yield following


def _of_queues(snapshot: Snapshot) -> Iterator[Metric]:
    yield _gauge("stompbox_queues", "Queues, by kind", "kind", snapshot.kinds)
    columns = (
        ("stompbox_queue_ready_messages", "Messages that could go out now"),
        ("stompbox_queue_delayed_messages", "Messages that wait for their time"),
        ("stompbox_queue_delivering_messages", "Messages that consumers have and have not acknowledged"),
        ("stompbox_queue_consumers", "Consumers"),
    )
    for at, (name, text) in enumerate(columns):
        family = GaugeMetricFamily(name, text, labels=["address", "queue", "kind"])
        for labels, values in snapshot.queues.items():
            family.add_metric(labels, values[at])
        yield family


def _of_groups(snapshot: Snapshot) -> Iterator[Metric]:
    messages = GaugeMetricFamily(
        "stompbox_group_lag_messages",
        "Messages that a reader group has not read",
        labels=["group", "address"],
    )
    seconds = GaugeMetricFamily(
        "stompbox_group_lag_seconds", "Since the first of them arrived", labels=["group", "address"]
    )
    for labels, lag in snapshot.lags.items():
        messages.add_metric(labels, lag.messages)
        if lag.ms is not None:
            seconds.add_metric(labels, lag.ms / 1000)
    yield messages
    yield seconds
