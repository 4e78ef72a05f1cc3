"""Several clients that say at random what they may, many frames in a read, and leave as it comes: nothing is lost, doubled, or out of
order."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from stompbox.stomp.codec import encode
from stompbox.stomp.frames import Frame
from tests.server.turning import PADDING, World

QUEUES = ("/queue/a", "/queue/b")
DEAD = "/queue/DLQ"
ROUNDS = 25
MODES = ("auto", "client", "client-individual")
WINDOWS = ("-1", "0", "1", "300", "1000")
SELECTORS = ("x = 1", "x = '1'", "x IS NULL")


@dataclass
class Held:
    """A subscription, and what it has and was not acknowledged: what an ACK says, and the body."""

    mode: str
    out: list[tuple[str, bytes]] = field(default_factory=list)


@dataclass
class Open:
    """A transaction that is open."""

    sent: list[bytes] = field(default_factory=list)
    acked: list[bytes] = field(default_factory=list)
    refused: list[bytes] = field(default_factory=list)


@dataclass
class Game:
    """What must have become of messages, by their bodies. `either`: of these it depends on who had them later."""

    sent: set[bytes] = field(default_factory=set)
    acked: set[bytes] = field(default_factory=set)
    aborted: set[bytes] = field(default_factory=set)
    either: set[bytes] = field(default_factory=set)


class Player:
    def __init__(self, game: Game, world: World, dice: random.Random, number: int) -> None:
        self.game, self.dice, self.number = game, dice, number
        self.version = dice.choice(("1.0", "1.1", "1.2"))
        self.client = world.client(self.version)
        self.said: list[Frame] = []
        self.wanted: list[str] = []  # receipts
        self.confirmed: list[str] = []
        self.errors: list[str] = []
        self.held: dict[str, Held] = {}
        self.gone: dict[str, Held] = {}
        self.open: dict[str, Open] = {}
        self.left = ""  # how
        self._heard = self._count = self._subscriptions = 0

    def say(self, command: str, body: bytes = b"", *, is_last: bool = False, **headers: str) -> None:
        if is_last or self.dice.random() < 0.5:
            headers["receipt"] = f"{self.number}-{len(self.wanted)}"
            self.wanted.append(headers["receipt"])
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.said.append(Frame(command, named, body))

    def act(self) -> None:
        acts: list[tuple[float, Callable[[], None]]] = [
            (40, self.send), (10, self.subscribe), (27, self.answer), (9, self.begin), (9, self.end),
            (4, self.unsubscribe), (0.4, self.disconnect), (0.8, self.cut),
        ]  # fmt: skip
        [act] = self.dice.choices([act for _, act in acts], [weight for weight, _ in acts])
        act()

    def send(self) -> None:
        dice, queue = self.dice, self.dice.choice(QUEUES)
        self._count += 1
        body = b"%d:%d:" % (self.number, self._count) + b"z" * dice.choice((0, 0, 0, 10, 1000, 5000))
        headers = {"x": str(dice.randrange(2))} if dice.random() < 0.3 else {}
        if self.open and dice.random() < 0.4:
            headers["transaction"] = dice.choice(list(self.open))
            self.open[headers["transaction"]].sent.append(body)
        else:
            self.game.sent.add(body)
        self.say("SEND", body, destination=queue, **headers)

    def subscribe(self) -> None:
        if len(self.held) == 4:
            return
        dice = self.dice
        self._subscriptions += 1
        name, mode = f"s{self._subscriptions}", dice.choice(MODES[:2] if self.version == "1.0" else MODES)
        headers = {"consumer_window_size": dice.choice(WINDOWS)} if dice.random() < 0.5 else {}
        if dice.random() < 0.2:
            headers["selector"] = dice.choice(SELECTORS)
        self.held[name] = Held(mode)
        self.say("SUBSCRIBE", id=name, destination=dice.choice(QUEUES), ack=mode, **headers)

    def answer(self) -> None:
        """Acknowledges something, or refuses it."""
        dice, found = self.dice, [(name, one) for name, one in self.held.items() if one.out]
        if not found:
            return
        name, one = dice.choice(found)
        at = dice.randrange(len(one.out))
        key = one.out[at][0]
        first = 0 if one.mode == "client" else at
        bodies = [body for _, body in one.out[first : at + 1]]
        del one.out[first : at + 1]
        is_refused = self.version != "1.0" and dice.random() < 0.25
        headers = {"id": key} if self.version == "1.2" else {"message_id": key, "subscription": name}
        if self.open and dice.random() < 0.4:
            headers["transaction"] = dice.choice(list(self.open))
            into = self.open[headers["transaction"]]
            (into.refused if is_refused else into.acked).extend(bodies)
        elif not is_refused:
            self.game.acked.update(bodies)
        self.say("NACK" if is_refused else "ACK", **headers)

    def begin(self) -> None:
        name = f"t{self.dice.randrange(3)}"
        if name not in self.open:
            self.open[name] = Open()
            self.say("BEGIN", transaction=name)

    def end(self) -> None:
        if not self.open:
            return
        name = self.dice.choice(list(self.open))
        ended, game = self.open.pop(name), self.game
        if self.dice.random() < 0.7:
            game.sent.update(ended.sent)
            game.acked.update(ended.acked)
            self.say("COMMIT", transaction=name)
        else:
            game.aborted.update(ended.sent)
            game.either.update(ended.acked, ended.refused)  # a later ACK of all before it may be for them
            self.say("ABORT", transaction=name)

    def unsubscribe(self) -> None:
        if self.held:
            name = self.dice.choice(list(self.held))
            self.gone[name] = self.held.pop(name)
            self.say("UNSUBSCRIBE", id=name)

    def disconnect(self) -> None:
        self.say("DISCONNECT", is_last=True)
        self.left = "with DISCONNECT"

    def cut(self) -> None:
        self.left = "without a word"

    def write(self) -> None:
        """Says all in one read, or in two, and is gone where it has left so."""
        data = b"".join([encode(frame, self.client.version) for frame in self.said])
        self.said.clear()
        chance = self.dice.random()
        cut = self.dice.randrange(1, len(data)) if chance < 0.2 and len(data) > 1 else len(data)
        for piece in ((PADDING if chance > 0.8 else b"") + data[:cut], data[cut:]):
            if piece:
                self.client.socket.data_received(piece)
        if self.left == "without a word":
            self.client.socket.connection_lost(None)

    def hear(self) -> None:
        frames = self.client.heard()
        for frame in frames[self._heard :]:
            if frame.command == "RECEIPT":
                self.confirmed.append(frame.headers["receipt-id"])
            elif frame.command == "ERROR":
                self.errors.append(frame.headers["code"])
            elif frame.command == "MESSAGE":
                name = frame.headers["subscription"]
                held = self.held.get(name) or self.gone[name]
                if held.mode == "auto":
                    self.game.acked.add(frame.body)
                else:
                    key = "ack" if self.version == "1.2" else "message-id"
                    held.out.append((frame.headers[key], frame.body))
        self._heard = len(frames)


def settle(world: World, players: list[Player]) -> None:
    for _ in range(2):
        world.until_idle()
        world.turn(4)
        if world.broker.engine.is_durable:
            world.until_stored()
    for player in players:
        player.hear()


def played(seed: int, *, is_durable: bool) -> tuple[Game, list[Player], Counter[bytes]]:
    """The game, and what is left in the queues at its end."""
    dice, world, game = random.Random(seed), World(is_durable=is_durable), Game()
    players = [Player(game, world, dice, number) for number in range(dice.randrange(3, 7))]
    for _ in range(ROUNDS):
        there = [player for player in players if not player.left]
        dice.shuffle(there)
        for player in there:
            for _ in range(dice.choice((0, 1, 1, 3, 8, 30 if seed % 3 == 0 else 4))):
                if not player.left:
                    player.act()
        for player in there:
            player.write()
        if dice.random() < 0.5:
            world.broker.flush()
        world.turn(dice.randrange(4))
        if dice.random() < 0.6:
            settle(world, players)
    settle(world, players)
    for player in players:
        if not player.left:
            player.cut()
            player.write()
    settle(world, players)
    reader = world.client()
    for number, queue in enumerate((*QUEUES, DEAD)):
        wanted = {"id": str(number), "destination": queue, "consumer-window-size": "-1", "ack": "client"}
        reader.say(("SUBSCRIBE", wanted))
    settle(world, players)
    return game, players, Counter(reader.bodies())


@pytest.mark.parametrize("is_durable", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_whatever_several_clients_say_nothing_is_lost_or_doubled(seed: int, is_durable: bool) -> None:
    game, players, left = played(seed, is_durable=is_durable)
    found = defaultdict[str, list[bytes]](list)
    for body, count in left.items():
        if count > 1:
            found["doubled"].append(body[:20])
        if body in game.acked:
            found["acknowledged and there"].append(body[:20])
        if body not in game.sent:
            found["not sent, or aborted, and there"].append(body[:20])
    lost = game.sent - left.keys() - game.acked - game.either
    assert not lost, sorted(lost)
    assert not found, dict(found)
    for player in players:
        assert not player.errors
        assert player.confirmed == player.wanted[: len(player.confirmed)]
        if player.left == "with DISCONNECT":
            assert player.confirmed == player.wanted
