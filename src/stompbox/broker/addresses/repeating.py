"""Messages that are sent again and again, as ActiveMQ Classic has them.

    AMQ_SCHEDULED_PERIOD    ms from one message to the next
    AMQ_SCHEDULED_REPEAT    messages after the first; without it, or with 0, there is one alone; -1: for ever
    AMQ_SCHEDULED_DELAY     ms to the first one (AMQ_SCHEDULED_TIME: when it is); without either it comes after one period
    AMQ_SCHEDULED_CRON      five fields, UTC; with PERIOD and REPEAT a series of them begins at each of these times, DELAY later

The SEND makes a schedule, and its RECEIPT means that the schedule is stored where the message is persistent. Each time that comes sends a
new message, with ids of its own (`amqMessageId` too, where its listener gives one) and `scheduledJobId`, the schedule's, as if its sender
had sent it then: it is routed, stored, expires (`expiration`) and is counted like any other; that and what the schedule has left are one
commit. `expires` ends the schedule.

Times that passed while the broker was down, or had no time, are one message: the latest is sent, the others are passed over and count as
repeated. So a schedule never sends more than one message at a time, however long it could not. What the
disk, or a full address, refuses is tried again.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from stompbox.broker import sweeping
from stompbox.broker.addresses.makers import Maker
from stompbox.broker.logs.segments import EACH, share_of
from stompbox.broker.timers import Alarm
from stompbox.config.settings import AddressFullPolicy
from stompbox.cron import cron_of
from stompbox.errors import IllegalFrame, Refused, StompboxError
from stompbox.message import DUPLICATE_ID, NUMBER, SCHEDULED, Run
from stompbox.store.chunks import decode, encode

if TYPE_CHECKING:
    from stompbox.broker.addresses.address import Address
    from stompbox.broker.addresses.contracts import Engine

JOB: Final = "scheduledJobId"  # ActiveMQ Classic
MOST_BYTES: Final = 1 << 20  # of a body: it is in memory, and in the catalogue
COST: Final = 1000  # octets that a schedule takes beside its body and its headers, about
IN_A_TURN: Final = 200  # messages sent before others get their turn
AGAIN: Final = 1000  # ms after which it is tried again what the disk refused
FOR_EVER: Final = -1


def _cost(run: Run) -> int:
    """Octets that the schedules of its messages take, about: none of them shares its headers with another."""
    heads = COST + (share_of(run) - EACH) * len(run)
    return run.size + run.varying + heads * len(run)


@dataclass(slots=True, eq=False)
class Schedule:
    """A series of messages that an address gets again and again. `left`: messages of the series after the next one, FOR_EVER for a series
    without end. `next`: when that one is, ms since the epoch. `run`: the one message, whose only hole is the `amqMessageId` that each gets
    anew, or none."""

    id: str
    address: str
    run: Run
    cron: str
    delay: int
    period: int
    repeat: int
    next: int
    left: int
    owner: str
    is_stored: bool

    @property
    def cost(self) -> int:
        return _cost(self.run)

    def put_off(self, when: int) -> None:
        """The schedule's next message is tried again at `when`."""
        self.next = when

    def advance(self, now: int) -> bool:
        """To the next time after now; False when there is none."""
        # times that went by, and are not sent any more
        passed = (now - self.next) // self.period if self.period else 0
        if self.left == FOR_EVER or self.left > passed:
            self.next += self.period * (passed + 1)
            self.left -= 0 if self.left == FOR_EVER else passed + 1
            return True
        if not self.cron:
            return False
        self.next = after(self.cron, now) + self.delay
        self.left = self.repeat
        return True

    def __repr__(self) -> str:
        return f"<Schedule {self.id} of {self.address} next={self.next} left={self.left} cron={self.cron!r}>"


class Schedules:
    """All schedules of one engine. `most` octets of them are taken; `may_send` says whether a user may still send to an address, `owner_of`
    whose a session is, `numbers_of` whether its messages get an `amqMessageId`, `new_number` one."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.most = 64 << 20
        self.size = 0
        self.known: dict[str, Schedule] = {}
        self.owner_of: Callable[[int], str] = lambda _: ""
        self.numbers_of: Callable[[int], bool] = lambda _: False
        self.new_number: Callable[[], bytes] = lambda: b""
        self.may_send: Callable[[str, str], bool] = lambda _owner, _address: True
        self._alarm = Alarm(engine.timers, self._ring)
        self._heap: list[tuple[int, int, str]] = []  # when, and whose turn it is then
        self._turn = 0
        self._ended = 0  # of these: they send no more
        self._swept = 0  # where they are swept next

    def limit(self, most: int) -> None:
        """Sets the most octets of schedules that are taken; what is there stays."""
        self.most = most

    def require(self, sends: Iterable[tuple[Address, Run]]) -> None:
        """Raises Refused where what of these repeats has no room. Nothing is changed."""
        wanted = 0
        for address, run in sends:
            if run.shape.special is None or not run.shape.special.repeats:
                continue
            if address.owner:
                raise IllegalFrame(
                    "bad-schedule",
                    "what goes to a temporary destination cannot repeat: it is gone with its connection",
                )
            largest = max(map(len, run.bodies))
            if run.is_large or largest > MOST_BYTES:
                limit = f"has no more than {MOST_BYTES} bytes, and is below the listener's stompMinLargeMessageSize"
                raise Refused(
                    "schedule-too-large", f"a message that repeats {limit}; this one has {largest} bytes"
                )
            wanted += _cost(run)
        if wanted and self.size + wanted > self.most:
            text = f"schedules hold {self.size} bytes and these would add {wanted}; the limit is {self.most} (max-scheduled-bytes)"
            raise Refused("schedules-full", text)

    def add(self, address: Address, run: Run) -> bool:
        """A schedule for each message. True when the receipt must wait for the next commit."""
        engine = self.engine
        is_stored = engine.is_durable and not address.is_volatile(run)
        if engine.commits.unit is not None:
            engine.commits.unit.sends.append((address, run))
        owner = self.owner_of(run.sender)
        for index in range(len(run)):
            schedule = self._made(address, run, index, owner, is_stored=is_stored)
            self._keep(schedule)
            if is_stored:
                engine.put("schedule", schedule.id, _entry(schedule))
                engine.put("schedule-next", schedule.id, [schedule.next, schedule.left])
            if engine.commits.unit is not None:
                engine.commits.unit.consequences.undo.append(partial(self.end, schedule))
        return is_stored

    def _made(self, address: Address, run: Run, index: int, owner: str, *, is_stored: bool) -> Schedule:
        special, now, id = run.shape.special, self.engine.now, self.engine.new_id()
        assert special is not None
        headers = {
            name: value
            for name, value in run.headers(index).items()
            if name not in SCHEDULED and name != DUPLICATE_ID
        }
        columns: tuple[list[bytes], ...] = ()
        if NUMBER in headers and self.numbers_of(run.sender):
            columns = ([headers.pop(NUMBER).encode()],)
        shape = run.shape
        plain = shape.with_headers({**headers, JOB: id}, holes=(NUMBER,) if columns else ())
        one = Run(plain, run.bodies[index : index + 1], columns, routing=run.routing, queue=run.queue)
        first = (
            after(special.cron, now) + special.delay
            if special.cron
            else special.delivery_time(now) or now + special.period
        )
        return Schedule(
            id, address.name, one, special.cron, special.delay, special.period, special.repeat,
            next=max(first, now + 1), left=special.repeat, owner=owner, is_stored=is_stored,
        )  # fmt: skip

    def _keep(self, schedule: Schedule) -> None:
        self.known[schedule.id] = schedule
        self.size += schedule.cost
        self._wait(schedule)

    def _wait(self, schedule: Schedule) -> None:
        self._turn += 1
        heappush(self._heap, (schedule.next, self._turn, schedule.id))
        self._alarm.by(schedule.next)

    def end(self, schedule: Schedule) -> None:
        """The schedule, which waits for its time, sends no more."""
        if schedule.id not in self.known:
            return
        self._drop(schedule)
        self._ended += 1
        if sweeping.is_due(self._ended, len(self._heap)):
            before = len(self._heap)
            at = self._swept if self._swept < before else 0
            self._swept = sweeping.sweep_heap(self._heap, at, self._is_ended)
            self._ended -= before - len(self._heap)

    def _is_ended(self, entry: tuple[int, int, str]) -> bool:
        return entry[2] not in self.known

    def _drop(self, schedule: Schedule) -> None:
        del self.known[schedule.id]
        self.size -= schedule.cost
        if schedule.is_stored:
            self.engine.put("schedule", schedule.id, None)
            self.engine.put("schedule-next", schedule.id, None)

    def _ring(self) -> None:
        """The next ones that are due, in steps; the rest when others had their turn."""
        self.engine.later.take(self, self._sending())

    def _sending(self) -> Iterator[None]:
        for _ in range(IN_A_TURN):
            now = self.engine.now
            if not self._heap or self._heap[0][0] > now:
                break
            schedule = self.known.get(heappop(self._heap)[2])
            if schedule is not None:
                self._send(schedule, now)
            else:
                self._ended -= 1
            yield
        if self._heap:
            self._alarm.by(max(self._heap[0][0], self.engine.now + 1))

    def _send(self, schedule: Schedule, now: int) -> None:
        run = schedule.run
        if 0 < run.shape.expires <= now or not self.may_send(schedule.owner, schedule.address):
            self._drop(schedule)
            return
        try:
            self._publish(schedule)
        except StompboxError:
            schedule.put_off(now + AGAIN)
            self._wait(schedule)
            return
        if not schedule.advance(now):
            self._drop(schedule)
            return
        if schedule.is_stored:
            self.engine.put("schedule-next", schedule.id, [schedule.next, schedule.left])
        self._wait(schedule)

    def _publish(self, schedule: Schedule) -> None:
        engine, run = self.engine, schedule.run
        # it was taken once, and is not refused for what its user has made since
        maker = Maker(schedule.owner)
        address = engine.addresses.get(schedule.address) or engine.create_address(
            schedule.address, is_auto=True, maker=maker
        )
        address.add_kind(run.routing)
        limits = address.limits
        if address.is_blocked or (
            limits is not None and limits.policy is AddressFullPolicy.BLOCK and limits.look()
        ):
            raise Refused("address-full", f"address {address.name!r} takes nothing now")
        columns = tuple([[self.new_number()] for _ in run.shape.holes])
        again = Run(run.shape, run.bodies, columns, routing=run.routing, queue=run.queue)
        engine.prepare([(address, again)], maker)
        engine.publish(address, again)

    def recall(self, id: str, entry: dict[str, Any], state: list[int]) -> None:
        """Takes up a schedule of which the catalogue has this."""
        stored = decode(base64.b64decode(entry["chunk"]), 0)[0]
        run = Run(stored.shape, stored.bodies, stored.columns, routing=entry["routing"], queue=entry["queue"])
        times = entry["cron"], entry["delay"], entry["period"], entry["repeat"]
        self._keep(
            Schedule(
                id,
                entry["address"],
                run,
                *times,
                next=state[0],
                left=state[1],
                owner=entry["owner"],
                is_stored=True,
            )
        )

    def __repr__(self) -> str:
        return f"<Schedules {len(self.known)} bytes={self.size}>"


def _entry(schedule: Schedule) -> dict[str, object]:
    run = schedule.run
    return {
        "address": schedule.address, "routing": run.routing, "queue": run.queue, "owner": schedule.owner, "cron": schedule.cron,
        "delay": schedule.delay, "period": schedule.period, "repeat": schedule.repeat,
        "chunk": base64.b64encode(encode([run], 0)).decode(),
    }  # fmt: skip


def after(cron: str, now: int) -> int:
    """The next time of a cron expression, ms since the epoch, which `stomp/shapes.py` has let in."""
    return cron_of(cron).after(now)
