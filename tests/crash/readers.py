"""Those of the drill with all features (players.py) who take nothing from anybody: they read what stays.

| role     | does                                                                                                         |
|----------|---------------------------------------------------------------------------------------------------------------|
| watcher  | consumes from the queue that is not destructive: each reader must be shown all that is there and that comes    |
| grouper  | a reader group's position: moves it on, and looks where it is                                                  |
| follower | the named reader of the log, whose position moves with its ACKs                                                |
| replayer | reads the log again from any offset                                                                            |
"""

from __future__ import annotations

import time

from stompbox.stomp.frames import Frame
from tests.crash.events import Moved, Moving, Sent, Shown, Stood, Traits
from tests.crash.features import BY_NAME, LOG, NAMED, NEWS, NEWS_ADDRESS
from tests.crash.link import Link, Stopped
from tests.crash.players import ANSWERS_WITHIN, Consumer, Player, Taken, body_of, message_in

KEPT = BY_NAME["all.kept"]
GROUP = "all.readers"
PAUSE = 0.3  # seconds between two looks
MOST = 60  # messages of a replay


def offset_of(frame: Frame) -> int:
    return int(frame.headers["x-stream-offset"])


class Watcher(Player):
    """What it sends itself, of the lowest priority, tells it that all has come which was there before."""

    def work(self) -> None:
        link = self.connect()
        while not self.control.is_over(PAUSE):
            shown: list[str] = []
            name, looks = self.next_serial("w"), self.random.randint(1, 3)
            headers = {
                "id": name,
                "ack": self.random.choice(("auto", "client")),
                "prefetch-count": self.random.choice(("1", "20", "1000")),
            }
            link.write(link.frame("SUBSCRIBE", {"destination": KEPT.destination, **headers}))
            for _ in range(looks):
                self.look(link, name, shown, acks=headers["ack"] == "client")
            link.write(link.frame("UNSUBSCRIBE", {"id": name, "receipt": name}))
            while link.receive().headers.get("receipt-id") != name:
                pass
        raise Stopped

    def look(self, link: Link, name: str, shown: list[str], *, acks: bool) -> None:
        self.number += 1
        message, asked, is_confirmed = f"{self.name}.{self.number}", time.monotonic_ns(), False
        self.journal.note(Sent(link.name, message, KEPT.destination, "", True, asked, Traits("x", 0)))
        headers = {"destination": KEPT.destination, "priority": "0", "kind": "x", "receipt": message}
        link.write(link.frame("SEND", headers, body_of(message, 10)))
        while not (is_confirmed and message in shown):
            got = link.receive()
            if got.headers.get("receipt-id") == message:
                self.confirmed_unit(link, message)
                is_confirmed = True
            elif got.command == "MESSAGE" and got.headers["subscription"] == name:
                shown.append(message_in(got.body))
                if acks:
                    link.write(link.frame("ACK", {"id": got.headers["ack"]}))
        self.journal.note(Shown(asked, link.name, KEPT.name, list(shown)))


class Grouper(Player):
    def work(self) -> None:
        link = self.connect()
        asked = time.monotonic_ns()
        answer = link.ask("group-open", {"group": GROUP, "destinations": NEWS, "starting": "earliest"})
        at = answer["positions"][NEWS_ADDRESS]
        self.journal.note(Stood(asked, link.name, GROUP, at))
        while not self.control.is_over(PAUSE / 10):
            end = self.look(link)
            if end > at:
                at = self.random.randint(at + 1, end)
                self.journal.note(Moving(link.name, GROUP, at))
                told = link.ask("group-commit", {"group": GROUP}, b'{"%b": %d}' % (NEWS_ADDRESS.encode(), at))
                assert told == {}, told
                self.journal.note(Moved(time.monotonic_ns(), link.name, GROUP, at))
                self.count()
        raise Stopped

    def look(self, link: Link) -> int:
        """Where the log ends; where the group is, is noted."""
        asked = time.monotonic_ns()
        found = link.ask("groups", {"group": GROUP})["groups"][GROUP]["addresses"][NEWS_ADDRESS]
        self.journal.note(Stood(asked, link.name, GROUP, found["position"]))
        return int(found["next"])


class Follower(Consumer):
    """It refuses nothing: what it failed at too often would be passed over."""

    def work(self) -> None:
        link = self.begin(self.name)
        name = {"durable-subscription-name": NAMED.name.rpartition(".")[2]}
        self.subscribe(
            link, NAMED.name, {"destination": NAMED.destination, "x-stream-offset": "first", **name}
        )
        while True:
            frame = link.receive_within(ANSWERS_WITHIN)
            if frame is not None:
                self.take(link, frame)
                if self.held() < 20 and link.frames:
                    continue
            link.write(self.answer(link))

    def reply(self, link: Link, covered: list[Taken], *, is_good: bool, transaction: str = "") -> bytes:
        return super().reply(link, covered, is_good=True, transaction=transaction)


class Replayer(Player):
    def work(self) -> None:
        link, top = self.connect(), 0
        while not self.control.is_over(PAUSE):
            start, name = self.random.choice((0, top, self.random.randint(0, top))), self.next_serial("r")
            found = self.read(link, name, start)
            link.write(link.frame("UNSUBSCRIBE", {"id": name, "receipt": name}))
            while link.receive().headers.get("receipt-id") != name:
                pass
            top = max([top, *map(offset_of, found)])
        raise Stopped

    def read(self, link: Link, name: str, start: int) -> list[Frame]:
        asked, found = time.monotonic_ns(), list[Frame]()
        headers = {"id": name, "x-stream-offset": str(start), "ack": "auto"}
        link.write(link.frame("SUBSCRIBE", {"destination": LOG.destination, **headers}))
        while len(found) < MOST:
            frame = link.receive_within(ANSWERS_WITHIN)
            if frame is None:
                break
            found.append(frame)
        messages = [message_in(frame.body) for frame in found]
        self.journal.note(
            Shown(asked, link.name, LOG.name, messages, start, [offset_of(frame) for frame in found])
        )
        return found
