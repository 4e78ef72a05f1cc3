"""The drill with everything at once: all features, in any combination, on a broker that is killed again and again.

    python -m tests.crash.mixture [--seconds 600] [--seed 1] [--folder FOLDER]

It goes in rounds of ROUND seconds. Each has a store of its own, all that drill.py does (kills, also at start; backups), and ends with
a broker that is stopped in peace; the next one has room for everything, and all queues are taken out to the last message. What must
have become of each is in fates.py and readings.py, who takes part in players.py, askers.py and readers.py, what the addresses are in
features.py.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from stompbox.stomp.frames import Frame
from tests.conftest import end
from tests.crash.drill import Drill, faults
from tests.crash.events import Acknowledged, Answered, Got, Journal, Shown, Started, Waiting
from tests.crash.fates import Fates
from tests.crash.features import (
    BY_NAME,
    DURABLE,
    FILTERED,
    FIXED,
    LOG,
    NAMED,
    NEWS,
    QUEUES,
    SUBSCRIBERS,
    Source,
    address_settings,
    broker_settings,
    limited,
)
from tests.crash.link import Link
from tests.crash.players import DELAY, message_in, source_of

ROUND = 60  # seconds
SETTLED = 2.0  # seconds after which nothing waits for its time any more
CAST = (
    *(("producer", name) for name in "pq"),
    *(("worker", name) for name in "uvw"),
    *(("subscriber", name) for name in SUBSCRIBERS),
    ("pricer", "z"),
    ("sink", "s"),
    ("caller", "c"),
    *(("watcher", name) for name in "kl"),
    ("grouper", "g"),
    ("follower", "nora"),
    ("replayer", "e"),
)


class Found(NamedTuple):
    """A message that was shown or came."""

    source: str
    message: str
    id: str
    reason: str


def found_in(frame: Frame, source: Source) -> Found:
    reason = frame.headers.get("dead-letter-reason", "")
    return Found(source_of(frame, source.name), message_in(frame.body), frame.headers["message-id"], reason)


@dataclass
class Mixture(Drill):
    cast = CAST
    actors_module = "tests.crash.cast"
    most: ClassVar[int] = 30
    is_last: bool = False

    def audit(self) -> Fates:
        return Fates()

    def configuration(self) -> str:
        text = (
            ("" if self.is_last else broker_settings(self.random))
            + address_settings(self.random, is_last=self.is_last)
            + FIXED
        )
        with Journal(self.folder / "brokers.journal") as journal:
            journal.note(Started(time.monotonic_ns(), limited(text), "persist-delivery-count" in text))
        return text

    def make_subscriptions(self) -> None:
        with Journal(self.folder / "first.journal") as journal:
            for name in SUBSCRIBERS:
                with self.link(journal, name) as link:
                    self._subscribe(link, BY_NAME[f"{name}.news"], {"ack": "client", "prefetch-count": "0"})

    def drain(self) -> None:
        assert self.broker is not None
        assert self.broker.stop() == 0, self.log
        end(self.broker)
        self.is_last = True
        settled = time.monotonic() + SETTLED + DELAY / 1000
        self.start()
        with Journal(self.folder / "last.journal") as journal:
            with self.link(journal) as link:
                while time.monotonic() < settled:  # the broker answers meanwhile
                    self._look(link, BY_NAME["all.ring"])
                for source in (source for source in QUEUES if source.is_kept):
                    asked, found = time.monotonic_ns(), self._look(link, source)
                    self._note(link, found)
                    journal.note(Shown(asked, link.name, source.name, [one.message for one in found]))
            idle = 0
            while idle < 2:  # what expired is in its queue with the next commit
                taken = sum(self._take_out(journal, source) for source in (*QUEUES, FILTERED, *DURABLE))
                idle = 0 if taken else idle + 1
            with self.link(journal) as link:
                self._read_log(link)
            with self.link(journal, NAMED.name.partition(".")[0]) as link:
                self._read_named(link)

    def _take_out(self, journal: Journal, source: Source) -> int:
        """All that waits in a queue now; how many."""
        if source.is_kept:
            return 0
        with self.link(journal, source.name.removesuffix(".news") if source in DURABLE else "") as link:
            # a queue that nobody reads lets nothing expire
            self._subscribe(link, source, {"ack": "client", "prefetch-count": "1"})
            self._unsubscribe(link, source)
            found = self._look(link, source)
            if found and (source.is_ring or source.is_last_value):
                found = self._settle(link, source)
            if found:
                self._subscribe(link, source, {"ack": "client", "consumer-window-size": "-1"})
                try:
                    self._take(link, source, len(found))
                except AssertionError as error:
                    raise AssertionError(
                        f"{source.name} has {found}, not all of which come: {error}"
                    ) from error
        return len(found)

    def _settle(self, link: Link, source: Source) -> list[Found]:
        """What is left when the queue has read all that the log has for it, which it does for a consumer. He gives back what he got."""
        self._subscribe(link, source, {"ack": "client", "prefetch-count": "1"})
        frame = link.receive()
        mine = found_in(frame, source)
        self._note(link, [mine], is_again=frame.headers["redelivered"] == "true")
        link.write(link.frame("NACK", {"id": frame.headers["ack"]}))
        link.journal.note(Answered(link.name, mine.source, [mine.message], is_good=False))
        with self.link(link.journal) as other:
            found = self._look(other, source)
        self._unsubscribe(link, source)
        link.journal.note(Waiting(source.name, [one.message for one in found]))
        return found

    def _unsubscribe(self, link: Link, source: Source) -> None:
        """What comes meanwhile goes back."""
        link.write(link.frame("UNSUBSCRIBE", {"id": source.name, "receipt": "u"}))
        while (frame := link.receive()).headers.get("receipt-id") != "u":
            taken = found_in(frame, source)
            self._note(link, [taken], is_again=frame.headers["redelivered"] == "true")
            link.journal.note(Answered(link.name, taken.source, [taken.message], is_good=False))

    def _take(self, link: Link, source: Source, count: int) -> None:
        by_source: dict[str, list[str]] = {}
        for _ in range(count):
            frame = link.receive()
            taken = found_in(frame, source)
            self._note(link, [taken], is_again=frame.headers["redelivered"] == "true")
            by_source.setdefault(taken.source, []).append(taken.message)
        for name, messages in by_source.items():
            link.journal.note(Answered(link.name, name, messages))
        link.write(link.frame("ACK", {"id": frame.headers["ack"], "receipt": "all"}))
        assert link.receive().headers["receipt-id"] == "all"
        for name, messages in by_source.items():
            link.journal.note(Acknowledged(time.monotonic_ns(), link.name, name, messages))

    def _subscribe(self, link: Link, source: Source, headers: dict[str, str]) -> None:
        durable = {"durable-subscription-name": "news"} if source in DURABLE else {}
        selector = SUBSCRIBERS.get(source.name.removesuffix(".news"), "")
        chosen = {"selector": selector} if selector else {}
        link.write(
            link.frame(
                "SUBSCRIBE",
                {
                    "destination": source.destination,
                    "id": source.name,
                    "receipt": "s",
                    **durable,
                    **chosen,
                    **headers,
                },
            )
        )
        assert link.receive().headers["receipt-id"] == "s"

    def _look(self, link: Link, source: Source) -> list[Found]:
        """All that waits in a queue; it stays."""
        self._subscribe(link, source, {"browser": "true"})
        found = []
        while (frame := link.receive()).headers.get("browser") != "end":
            found.append(found_in(frame, source))
        self._unsubscribe(link, source)
        return found

    def _note(self, link: Link, found: list[Found], *, is_again: bool = False) -> None:
        for one in found:
            link.journal.note(
                Got(time.monotonic_ns(), link.name, one.source, one.message, is_again, one.id, one.reason)
            )

    def _read_log(self, link: Link) -> None:
        """The stream of NEWS from its beginning, up to a mark that is sent now."""
        link.write(link.frame("SEND", {"destination": NEWS, "receipt": "m", "priority": "0"}, b"end"))
        assert link.receive().headers["receipt-id"] == "m"
        self._subscribe(link, LOG, {"x-stream-offset": "first"})
        while (frame := link.receive()).body != b"end":
            name, offset = message_in(frame.body), int(frame.headers["x-stream-offset"])
            link.journal.note(
                Got(
                    time.monotonic_ns(),
                    link.name,
                    LOG.name,
                    name,
                    False,
                    frame.headers["message-id"],
                    "",
                    offset,
                )
            )

    def _read_named(self, link: Link) -> None:
        """What the named reader of NEWS has not acknowledged, up to the same mark."""
        headers = {
            "durable-subscription-name": NAMED.name.rpartition(".")[2],
            "ack": "client",
            "consumer-window-size": "-1",
        }
        self._subscribe(link, NAMED, headers)
        messages = []
        while (frame := link.receive()).body != b"end":
            messages.append(message_in(frame.body))
            is_again, offset = frame.headers["redelivered"] == "true", int(frame.headers["x-stream-offset"])
            got = Got(
                time.monotonic_ns(),
                link.name,
                NAMED.name,
                messages[-1],
                is_again,
                frame.headers["message-id"],
                "",
                offset,
            )
            link.journal.note(got)
        link.journal.note(Answered(link.name, NAMED.name, messages))
        link.write(link.frame("ACK", {"id": frame.headers["ack"], "receipt": "all"}))
        assert link.receive().headers["receipt-id"] == "all"
        link.journal.note(Acknowledged(time.monotonic_ns(), link.name, NAMED.name, messages))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tests.crash.mixture", description="Kills a broker that does everything at once, and audits it."
    )
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--folder", type=Path, help="where journals and data of a round with faults stay")
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.seconds:.0f} s", flush=True)
    until, round_ = time.monotonic() + options.seconds, 0
    while time.monotonic() < until:
        round_ += 1
        with tempfile.TemporaryDirectory(prefix="stompbox-mixture-") as temporary:
            found = ["it did not come to its end"]
            try:
                found = play(
                    Path(temporary), options.seed * 1000 + round_, min(ROUND, until - time.monotonic())
                )
            finally:
                if found and options.folder is not None:
                    shutil.copytree(temporary, options.folder, dirs_exist_ok=True)
        if found:
            return 1
    return 0


def play(folder: Path, seed: int, seconds: float) -> list[str]:
    """One round. What was wrong is printed."""
    drill = Mixture(folder, seed)
    audit = drill.run(sys.maxsize, seconds)
    found = faults(drill, audit)
    print(f"seed {seed}: {audit} backups={drill.backups} faults={len(found)}", flush=True)
    for problem in found[:50]:
        print(problem, flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
