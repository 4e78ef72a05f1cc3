"""A whole broker in one process, in which any one call of ours can raise: clients without sockets, a story, and what is left of it.

`Raising` counts the calls of Python functions of the broker between the arrival of octets and their commit, in the loop's thread and
the committer's, and raises at one of them. What must hold afterwards is for the tests to say.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from dis import opmap
from inspect import CO_GENERATOR
from pathlib import Path
from types import FrameType
from typing import Any

import stompbox
from stompbox.config import Configuration, load
from stompbox.server.broker import Broker
from stompbox.server.transport.tcp import Acceptor, Socket
from stompbox.stomp.codec import Decoder, encode
from stompbox.stomp.frames import SERVER_COMMANDS, Frame
from stompbox.stomp.versions import VERSIONS
from stompbox.store.base import Store

_YIELD = opmap["YIELD_VALUE"]
SOURCE = str(Path(stompbox.__file__).parent)
FLOORS = ("broker", "store", "server", "stomp")
WITHIN = 20.0  # seconds for the story
LATER = 30  # ms that a scheduled message waits
END = b"end"  # is sent to each place when it is looked at
# those to which others are sent on come last
PLACES = ("small", "source", "copied", "other", "mortal", "news", "expired", "DLQ")
SETTINGS = """
[[address-setting]]
match = "#"
dead-letter-address = "DLQ"
expiry-address = "expired"
max-delivery-attempts = 2

[[address-setting]]
match = "small"
max-size-bytes = "8KiB"

[[divert]]
name = "copies"
address = "source"
forwarding-address = "copied"
"""


class Raised(Exception):
    """A fault that nobody foresaw."""


Site = tuple[str, str, int]
"""A call: the function, and where it is called from."""


class Raising:
    """Raises at the call `site`, the `time`-th time that it is made. None: nowhere. `sites`: how often each was made."""

    def __init__(self, site: Site | None = None, time: int = 1, floors: tuple[str, ...] = FLOORS) -> None:
        self.site = site
        self.time = time
        self.where = tuple([f"{SOURCE}/{floor}/" for floor in floors])
        self.sites: Counter[Site] = Counter()
        self.hit = ""
        self.is_over = True
        self.is_on = False  # in the loop's thread: not while the test itself is at work
        self._turn = threading.Lock()
        self._loop = threading.get_ident()

    def __enter__(self) -> Raising:
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if (
            event != "call"
            or not code.co_filename.startswith(self.where)
            or code.co_filename.endswith("/faults.py")
        ):
            return
        if not self.is_on and (self.is_over or threading.get_ident() == self._loop):
            return
        if code.co_name.startswith("<") or code.co_name == "__repr__":
            return
        if code.co_flags & CO_GENERATOR and code.co_code[frame.f_lasti] == _YIELD:
            # it is closed, where nobody hears what it raises
            return
        caller = frame.f_back
        site = (
            f"{code.co_filename.removeprefix(SOURCE)}:{code.co_qualname}",
            caller.f_code.co_filename if caller is not None else "", caller.f_lineno if caller is not None else 0,
        )  # fmt: skip
        with self._turn:
            self.sites[site] += 1
            if site != self.site or self.sites[site] != self.time:
                return
        self.hit = f"{site[0]} called at {Path(site[1]).name}:{site[2]}"
        raise Raised(self.hit)


class Wire(asyncio.Transport):
    """What a Socket writes on: the peer has it at once."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.is_gone = False

    def write(self, data: Any) -> None:
        self.written += data

    def abort(self) -> None:
        self.is_gone = True

    close = abort

    def is_closing(self) -> bool:
        return self.is_gone

    def can_write_eof(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_reading(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Client:
    """One of STOMP 1.2, logged in."""

    def __init__(
        self, broker: Broker, configuration: Configuration, client_id: str, raising: Raising | None = None
    ) -> None:
        self.broker = broker
        self.raising = raising or Raising()
        self.wire = Wire()
        self.socket = Socket(broker, Acceptor(broker, configuration.listeners[0].parse()))
        self.decoder = Decoder(SERVER_COMMANDS)
        self.seen = 0
        self.frames: list[Frame] = []
        self.socket.connection_made(self.wire)
        self.say("CONNECT", {"accept-version": "1.2", "host": "localhost", "client-id": client_id})
        self.decoder.version = VERSIONS["1.2"]

    def say(self, command: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        self.say_all(encode(Frame(command, dict(headers), body), VERSIONS["1.2"]))

    def say_all(self, *frames: bytes) -> None:
        if not self.wire.is_gone:
            self.raising.is_on = not self.raising.is_over
            self.socket.data_received(b"".join(frames))
            self._flush()
            self.raising.is_on = False

    def _flush(self) -> None:
        """The end of the turn, which comes at once here."""
        broker = self.socket.broker
        try:
            broker.flush()
        except Exception as error:
            broker.faults.in_loop(broker.loop, {"exception": error})

    @property
    def is_ended(self) -> bool:
        """Nothing more is obeyed that it says."""
        return self.wire.is_gone or self.socket._closing

    def heard(self) -> list[Frame]:
        """All frames so far."""
        data, self.seen = bytes(self.wire.written[self.seen :]), len(self.wire.written)
        self.frames += [frame for frame in self.decoder.receive(data) if isinstance(frame, Frame)]
        return self.frames

    @property
    def messages(self) -> list[Frame]:
        return [frame for frame in self.heard() if frame.command == "MESSAGE"]

    @property
    def receipts(self) -> set[str]:
        return {frame.headers["receipt-id"] for frame in self.heard() if frame.command == "RECEIPT"}


def configuration(folder: Path) -> Configuration:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "stompbox.toml"
    file.write_text(SETTINGS)
    return load(file, {}, options(folder))


def options(folder: Path) -> dict[str, Any]:
    """What a client says is obeyed when it has said it, however slow the machine is."""
    return {
        "data": str(folder / "data"),
        "admin.listen": "off",
        "listen": ["tcp://127.0.0.1:0"],
        "max-turn-time": 60_000,
    }


@dataclass(slots=True)
class Told:
    """What the clients did and what they were told. `sent`: receipt -> (places of which all must have it, body)."""

    sent: dict[str, tuple[tuple[str, ...], bytes]] = field(default_factory=dict)
    answered: dict[str, bytes] = field(default_factory=dict)  # receipt of an ACK -> body
    gone: set[bytes] = field(default_factory=set)  # bodies for which an ACK was on its way, confirmed or not
    moved: set[bytes] = field(default_factory=set)  # that were refused, or expire: wherever they are
    receipts: set[str] = field(default_factory=set)
    written_after: int = 0  # octets that left after the broker had stopped


class Story:
    def __init__(self, broker: Broker, settings: Configuration, raising: Raising) -> None:
        self.broker = broker
        self.raising = raising
        self.settings = settings
        self.told = Told()
        self.clients: list[Client] = []
        self.stopped_at: list[int] | None = None
        broker.faults.on_stop = self._stopped

    def _stopped(self) -> None:
        self.stopped_at = [len(client.wire.written) for client in self.clients]

    def client(self, name: str) -> Client:
        self.clients.append(Client(self.broker, self.settings, name, self.raising))
        return self.clients[-1]

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Until it is so, or never will be."""
        loop = asyncio.get_running_loop()
        deadline, quiet = loop.time() + WITHIN, loop.time()
        while not (is_so() or self.broker.has_failed or any(client.is_ended for client in self.clients)):
            assert loop.time() < deadline, "nothing moves"
            if self.broker.committer.is_busy or self.broker.engine.is_dirty:
                quiet = loop.time()
            if loop.time() - quiet > 1.5:  # longer than until a queue is read again: it stands still
                return
            self.raising.is_on = not self.raising.is_over
            await asyncio.sleep(0)
            self.raising.is_on = False

    def sends(self, client: Client, name: str, destination: str, places: tuple[str, ...], count: int = 1, *, size: int = 10,
              moved: bool = False, **headers: str) -> Awaitable[None]:  # fmt: skip
        """A run of SENDs with receipts."""
        frames = []
        asked = set()
        for number in range(count):
            body = f"{name}{number}".encode().ljust(size, b".")
            asked.add(f"s-{name}{number}")
            self.told.sent[f"s-{name}{number}"] = places, body
            if moved:
                self.told.moved.add(body)
            more = {"destination": destination, "receipt": f"s-{name}{number}", **headers}
            frames.append(encode(Frame("SEND", more, body), VERSIONS["1.2"]))
        client.say_all(*frames)
        return self.until(lambda: asked <= client.receipts)

    def acks(self, client: Client, frames: list[Frame], **headers: str) -> Awaitable[None]:
        asked = set()
        said = []
        for frame in frames:
            receipt = f"a-{frame.body.decode().rstrip('.')}"
            asked.add(receipt)
            self.told.answered[receipt] = frame.body
            self.told.gone.add(frame.body)
            said.append(
                encode(
                    Frame("ACK", {"id": frame.headers["ack"], "receipt": receipt, **headers}, b""),
                    VERSIONS["1.2"],
                )
            )
        client.say_all(*said)
        return self.until(lambda: asked <= client.receipts)

    async def play(self) -> Told:
        sender, other, worker = self.client("anna"), self.client("bert"), self.client("carl")
        self.raising.is_over = False
        await self._play(sender, other, worker)
        self.raising.is_over = True
        for client in self.clients:
            self.told.receipts |= client.receipts
        if self.stopped_at is not None:
            self.told.written_after = sum(len(client.wire.written) for client in self.clients) - sum(
                self.stopped_at
            )
        return self.told

    async def _play(self, sender: Client, other: Client, worker: Client) -> None:
        told = self.told
        worker.say(
            "SUBSCRIBE",
            {"destination": "/topic/news", "id": "n", "durable-subscription-name": "news", "receipt": "d"},
        )
        await self.until(lambda: "d" in worker.receipts)
        worker.say("UNSUBSCRIBE", {"id": "n", "receipt": "u"})
        await self.until(lambda: "u" in worker.receipts)
        is_durable = "d" in worker.receipts
        await self.sends(sender, "q", "/queue/small", ("small",), 4)
        await self.sends(sender, "t", "/topic/news", ("news",) if is_durable else (), 2)
        await self.sends(sender, "v", "/queue/source", ("source", "copied"), 2)
        worker.say(
            "SUBSCRIBE",
            {"destination": "/queue/small", "id": "w", "ack": "client-individual", "prefetch-count": "50"},
        )
        await self.until(lambda: len(worker.messages) >= 4)
        await self.sends(
            sender, "l", "/queue/small", ("small",), 12, size=1000, AMQ_SCHEDULED_DELAY=str(LATER)
        )
        await self.sends(other, "o", "/queue/other", ("other",), 3)
        if len(worker.messages) >= 4:
            await self.acks(worker, worker.messages[1:2])
            told.moved.add(worker.messages[2].body)
            worker.say("NACK", {"id": worker.messages[2].headers["ack"], "receipt": "n"})
        # those for later, and the one that was refused, again
        await self.until(lambda: len(worker.messages) >= 17)
        await self.sends(other, "p", "/queue/other", ("other",), 3)
        await self._transaction(sender, worker)
        await self.sends(
            sender, "x", "/queue/mortal", ("mortal",), 2, moved=True, expires=str(self.broker.now() + LATER)
        )
        await self.sends(
            sender, "d", "/queue/other", ("other",), 1, _AMQ_DUPL_ID="one", priority="7", JMSXGroupID="g"
        )
        await self.until(lambda: self.broker.engine.counters["expired"] >= 2)
        await self.acks(worker, worker.messages[4:-1])
        sender.say("DISCONNECT", {"receipt": "bye"})
        await self.sends(other, "e", "/queue/other", ("other",), 2)

    async def _transaction(self, sender: Client, worker: Client) -> None:
        told = self.told
        for client, receipt in ((sender, "c"), (worker, "k")):
            client.say("BEGIN", {"transaction": "t"})
            client.say("SEND", {"destination": "/queue/other", "transaction": "t"}, receipt.encode())
            if client is worker and worker.messages:
                body = worker.messages[0].body
                told.gone.add(body)
                told.answered[receipt] = body
                worker.say("ACK", {"id": worker.messages[0].headers["ack"], "transaction": "t"})
            told.sent[receipt] = ("other",), receipt.encode()
            client.say("COMMIT", {"transaction": "t", "receipt": receipt})
            await self.until(lambda: receipt in client.receipts)  # noqa: B023 - it is awaited here


async def played(settings: Configuration, store: Store, raising: Raising) -> tuple[Broker, Told]:
    """The story as it went, and its broker, which has ended."""
    loop = asyncio.get_running_loop()
    broker = Broker(settings, store, loop, is_durable=True)
    loop.set_exception_handler(broker.faults.in_loop)
    return broker, await Story(broker, settings, raising).play()


async def left(settings: Configuration, store: Store) -> dict[str, list[bytes]]:
    """What another broker has, by the names of queues and durable subscriptions."""
    loop = asyncio.get_running_loop()
    broker = Broker(settings, store, loop, is_durable=True)
    found: dict[str, list[bytes]] = {}
    begun = loop.time()
    deadline = begun + WITHIN
    while loop.time() < begun + 2 * LATER / 1000:  # all that was to wait has waited
        await asyncio.sleep(0)
    for place in PLACES:
        client = Client(broker, settings, "carl" if place == "news" else "")
        headers = {"destination": f"/queue/{place}", "id": "n", "ack": "client"}
        if place == "news":
            headers |= {"destination": "/topic/news", "durable-subscription-name": "news"}
        client.say("SUBSCRIBE", headers)
        client.say("SEND", {"destination": headers["destination"], "persistent": "false"}, END)
        while not any(frame.body == END for frame in client.messages):
            assert loop.time() < deadline, f"{place} does not end"
            await asyncio.sleep(0)
        found[place] = [frame.body for frame in client.messages]
    await broker.stop()
    return found
