"""From what a store holds back to an engine: addresses, queues, durable subscriptions, groups. Reads no message."""

from __future__ import annotations

import json
from typing import Any, Final

from stompbox.broker.addresses import lifetimes, makers, retained, routing
from stompbox.broker.addresses.duplicates import duplicates_of
from stompbox.broker.catalogue import SETTLED
from stompbox.broker.engine import Engine
from stompbox.broker.kinds import Kind
from stompbox.broker.logs.cursor import FAR, Counts, Cursor
from stompbox.broker.logs.log import UNUSED, Log
from stompbox.broker.queues.queue import Queue
from stompbox.broker.subscriptions import durables
from stompbox.broker.subscriptions.durables import DurableSubscription
from stompbox.errors import StoreError
from stompbox.incarnations import INCARNATIONS, Incarnations, NewId, incarnations_of
from stompbox.selectors import Selector, SelectorLimits, compile_selector
from stompbox.store.base import CLUSTER, Recovered, StoredCursor, StoredLog

Entries = dict[str, dict[str, Any]]
DOUBTS: Final = ("doubts", "")  # what a broker that ended well says; gone while one runs


def recover(engine: Engine, recovered: Recovered) -> None:
    """Fills an engine that is still empty. What nobody needs any more goes at once, unless it is to show what there is; `engine.now` must
    be set. Raises StoreError: `data-corrupt`; `data-of-another-cluster` for what a node of a cluster has."""
    if any(kind == CLUSTER for kind, _ in recovered.entries):
        problem = "the data folder is of a node of a cluster, and the configuration has no [cluster]; a backup of it is of no cluster"
        raise StoreError("data-of-another-cluster", problem)
    for unsaid, value in identified(recovered, engine.new_id).items():
        engine.put(*unsaid, json.loads(value))
    entries: Entries = {}
    for (kind, key), value in recovered.entries.items():
        entries.setdefault(kind, {})[key] = json.loads(value)
    ended = {key: lifetimes.ended_of(value) for key, value in entries.get("ended", {}).items()}
    engine.recall_ended(ended, int(entries.get("beyond", {}).get("", 0)))
    _addresses(engine, recovered, entries)
    _duplicates(engine, entries)
    for id, entry in entries.get("schedule", {}).items():
        engine.schedules.recall(id, entry, entries["schedule-next"][id])
    engine.group_patterns.update(
        {key: list(value["patterns"]) for key, value in entries.get("group", {}).items()}
    )
    for key, group in entries.get("group", {}).items():
        engine.makers.made_group(key, makers.recalled(group), len(group["patterns"]))
        lifetimes.await_names(engine, key, group["patterns"])
    engine.group_owners.update(
        {key: value.get("owner", "") for key, value in entries.get("group", {}).items()}
    )
    by_key = {key: _durable(engine, value) for key, value in entries.get("durable", {}).items()}
    queues = entries.get("queue", {})
    for stored_cursor in recovered.cursors:
        engine.next_cursor(stored_cursor.id)
        entry = queues.get(str(stored_cursor.id))
        if entry is None or stored_cursor.log not in engine.logs:
            raise StoreError(
                "data-corrupt",
                f"cursor {stored_cursor.id} of log {stored_cursor.log} belongs to nothing in the catalogue",
            )
        queue = _queue(engine, stored_cursor, entry)
        _recall_settled(engine, queue, entry, entries.get(SETTLED, {}).get(str(queue.id)))
        if queue.owner and queue.kind is Kind.DURABLE:
            by_key[queue.owner].queues.append(queue)
    for durable in by_key.values():
        durables.watch_durable(engine, durable)
        durables.watch_absence(engine, durable)
    doubts = entries.get(DOUBTS[0], {}).get(DOUBTS[1])
    if doubts is not None:
        for queue in engine.queues.values():
            queue.doubt(doubts.get(str(queue.id), 0))
    if engine.is_view:
        return
    _tidy(engine)
    routing.look_through_logs(engine)
    for queue in engine.queues.values():
        if (queue.rules.is_non_destructive or queue.rules.last_value_key) and queue.paged_from >= 0:
            engine.dispatch_later(queue)  # no consumer makes it read what has expired or was replaced


def identified(recovered: Recovered, new_id: NewId) -> dict[tuple[str, str], bytes]:
    """Gives an incarnation to each log that has none: older brokers did not. What the store is to be told of it, before anybody else."""
    found = {}
    for log in recovered.logs:
        key = INCARNATIONS, str(log.id)
        if key not in recovered.entries:
            found[key] = json.dumps(Incarnations().followed_by(new_id(), 0).wire()).encode()
    recovered.entries.update(found)
    return found


def note_end(engine: Engine) -> None:
    """The last word of a broker that ends well: deliveries were counted, so nothing is in doubt but what was before; and how many messages
    each queue is done with, which its position alone does not say."""
    doubts = {
        queue.id: queue.doubted_below
        for queue in engine.queues.values()
        if queue.doubted_below > queue.cursor.position
    }
    engine.put(*DOUBTS, doubts)
    for queue in engine.queues.values():
        if queue.settled != queue.settled_told:
            engine.note_settled(queue)


def _addresses(engine: Engine, recovered: Recovered, entries: Entries) -> None:
    known, kept, ids = entries.get("address", {}), entries.get("retained", {}), entries.get(INCARNATIONS, {})
    for stored in sorted(recovered.logs, key=lambda log: log.id):
        incarnations = incarnations_of(ids[str(stored.id)])
        log = Log(stored.id, stored.name, incarnations, first=stored.first, next=stored.next, is_known=True)
        entry = known.get(str(stored.id), {"kinds": 0, "auto": True})
        address = engine.create_address(stored.name, log, is_auto=entry["auto"])
        address.become(entry["kinds"])
        engine.makers.made_address(address, makers.recalled(entry))
        engine.next_log(stored.id)
        _note_unused(engine, log, stored, entries.get(UNUSED, {}).get(str(stored.id), []))
        if str(stored.id) in kept:
            retained.keep(address, retained.recall(kept[str(stored.id)]))


def _note_unused(engine: Engine, log: Log, stored: StoredLog, known: list[list[int]]) -> None:
    """Offsets that were reserved, and not given out or not stored, count as nobody's messages: those of this restart and, as long as
    something before them is stored, those of earlier ones."""
    unused = log.recall_unused(
        [(first, stop) for first, stop in known if stop > stored.first],
        (stored.stop, stored.next),
        stored.first,
    )
    left = [[first, stop] for first, stop in unused] if stored.first < stored.stop else []
    if left != known:
        engine.put(UNUSED, str(log.id), left or None)


def _duplicates(engine: Engine, entries: Entries) -> None:
    """Gives each address what it remembered, the oldest first."""
    blocks = [(*map(int, key.split(".")), values) for key, values in entries.get("duplicates", {}).items()]
    for log, block, values in sorted(blocks, key=lambda entry: entry[:2]):
        known = duplicates_of(engine.logs[log]) if log in engine.logs else None
        if known is not None:
            known.recall(block, values)
        else:
            engine.put("duplicates", f"{log}.{block}", None)


def _queue(engine: Engine, stored: StoredCursor, entry: dict[str, Any]) -> Queue:
    address = engine.logs[stored.log]
    began = entry.get("began", -1)
    cursor = Cursor(stored.id, stored.position, stored.ahead, is_durable=True, began=began)
    if entry.get("arguments"):
        address.ask(entry["name"], entry["arguments"])
    known = {"owner": entry["owner"], "is_auto": entry["auto"], "selector": _selector(entry)}
    queue = Queue(engine, address, entry["name"], kind=Kind(entry["kind"]), cursor=cursor, **known)
    engine.makers.made_queue(queue, makers.recalled(entry))
    queue.recall(Counts(stored.delivered) if stored.delivered else None)
    if queue.admission is not None:
        queue.admission.count(queue)
    engine.add_queue(queue)
    return queue


def _recall_settled(engine: Engine, queue: Queue, entry: dict[str, Any], known: list[int] | None) -> None:
    """How many messages a queue is done with (`Catalogue.note_settled`). Of one that an older version has made nobody knows where it
    began: it counts from now on."""
    if known is not None:
        count, behind = known
    else:
        count, behind = 0, entry.get("began", queue.cursor.behind)
    queue.recall_settled(count + max(0, queue.cursor.behind - behind))
    if known is None and "began" not in entry:
        engine.note_settled(queue)


def _durable(engine: Engine, entry: dict[str, Any]) -> DurableSubscription:
    durable = durables.recall(entry, _selector(entry))
    engine.durables[durable.identity] = durable
    engine.makers.made_durable(durable, is_there=True)
    return durable


def _selector(entry: dict[str, Any]) -> Selector | None:
    """Its listener's limits have let it in once."""
    if entry["selector"] is None:
        return None
    limits = SelectorLimits(length=FAR, terms=FAR, depth=FAR)
    return compile_selector(entry["selector"], conversion=entry["conversion"], limits=limits)


def _tidy(engine: Engine) -> None:
    """What frames had made, and what nobody came back to."""
    for queue in list(engine.queues.values()):
        lifetimes.queue_left(engine, queue)
    for address in list(engine.addresses.values()):
        lifetimes.address_left(engine, address)
