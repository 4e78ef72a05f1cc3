"""Cases as data: what each client says and hears, step by step, played against a live broker in each version.

    say("a", "SEND", "/queue/{x}", body="1")     a frame; `{x}` is a word of this play alone, `{name}` what `keep` has kept
    hear("a", "MESSAGE", body="1")               the next frame: command, these header values, this body
    keep("a", "MESSAGE", reply="reply-to")       the same, and remembers header values by name
    refused("a", "bad-offset")                   an ERROR with this code, and the close where the version asks for it
    gone("a")                                    the broker has closed
    leave("a")                                   the client goes without a word

A client connects at its first step. `sync` says that nothing else has come: a RECEIPT is the next frame.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count

from tests.conformance.wire import Client, connected

numbers = count()
VERSIONS = ("1.0", "1.1", "1.2")


@dataclass(frozen=True, slots=True)
class Case:
    """`broker` names the configuration that it is played on; `login` are headers of each client's CONNECT, by client ("" for the rest)."""

    name: str
    steps: Sequence[Step]
    versions: tuple[str, ...] = VERSIONS
    broker: str = ""
    login: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


@dataclass(slots=True)
class Play:
    """One case under way."""

    address: tuple[str, int]
    transport: str
    version: str
    case: Case
    stack: ExitStack
    words: dict[str, str]
    clients: dict[str, tuple[Client, ExitStack]] = field(default_factory=dict)
    receipts: int = 0

    def client(self, name: str) -> Client:
        if name not in self.clients:
            own = self.stack.enter_context(ExitStack())
            client = own.enter_context(connected(self.address, self.transport))
            headers = self.case.login.get(name, self.case.login.get("", ""))
            host = "" if headers.startswith("host:") else "host:localhost\n"
            version = "" if self.version == "1.0" else f"accept-version:{self.version}\n{host}"
            own_lines = f"{self.fill(headers)}\n" if headers else ""
            client.say(f"CONNECT\n{version}{own_lines}\n\0".encode())
            client.expect("CONNECTED")
            self.clients[name] = client, own
        return self.clients[name][0]

    def fill(self, text: str) -> str:
        for word, value in self.words.items():
            text = text.replace("{" + word + "}", value)
        return text


Step = Callable[[Play], None]


def say(client: str, command: str, destination: str = "", body: str = "", headers: str = "") -> Step:
    """`headers` are lines as they stand on the wire."""

    def step(play: Play) -> None:
        lines = [f"destination:{destination}"] if destination else []
        lines += [line for line in headers.split("\n") if line]
        text = "".join([f"{play.fill(line)}\n" for line in lines])
        play.client(client).say(f"{command}\n{text}\n{play.fill(body)}\0".encode())

    return step


def hear(
    client: str, command: str, body: str | None = None, without: Sequence[str] = (), **values: str
) -> Step:
    """Names of headers with `_` for `-`."""

    def step(play: Play) -> None:
        answer = play.client(client).expect(command)
        for name, value in values.items():
            found = answer.value(name.replace("_", "-")) or answer.value(name)
            assert unescaped(found) == play.fill(value), f"{name} in {answer}"
        for name in without:
            assert answer.value(name) is None, f"{name} in {answer}"
        if body is not None:
            assert answer.body.decode() == play.fill(body), str(answer)

    return step


def unescaped(value: str | None) -> str | None:
    return value if value is None else value.replace("\\c", ":").replace("\\n", "\n").replace("\\\\", "\\")


def keep(client: str, command: str, **names: str) -> Step:
    def step(play: Play) -> None:
        answer = play.client(client).expect(command)
        for word, name in names.items():
            found = unescaped(answer.value(name))
            assert found is not None, f"{name} in {answer}"
            play.words[word] = found

    return step


def subscribe(client: str, destination: str, id: str = "0", headers: str = "", **values: str) -> Step:
    """With a receipt, whose header values may be looked at."""

    def step(play: Play) -> None:
        say(client, "SUBSCRIBE", destination, headers=f"id:{id}\nreceipt:sub-{id}\n{headers}")(play)
        hear(client, "RECEIPT", receipt_id=f"sub-{id}", **values)(play)

    return step


def sync(client: str) -> Step:
    """Nothing else is on its way to this client: a RECEIPT comes next."""

    def step(play: Play) -> None:
        play.receipts += 1
        say(client, "SEND", "/topic/nobody.listens", headers=f"receipt:sync-{play.receipts}")(play)
        answer = play.client(client).expect_nothing_but("RECEIPT")
        assert answer.value("receipt-id") == f"sync-{play.receipts}", str(answer)

    return step


def send(client: str, destination: str, body: str = "", headers: str = "") -> Step:
    """SEND, and its RECEIPT: when the step is over the message is where it belongs."""

    def step(play: Play) -> None:
        play.receipts += 1
        say(client, "SEND", destination, body, f"receipt:sent-{play.receipts}\n{headers}")(play)
        hear(client, "RECEIPT", receipt_id=f"sent-{play.receipts}")(play)

    return step


def refused(client: str, code: str, *words: str) -> Step:
    """An ERROR whose text has these words; 1.2 closes, 1.0 and 1.1 go on."""

    def step(play: Play) -> None:
        answer = play.client(client).expect("ERROR")
        assert answer.value("code") == code, str(answer)
        for word in words:
            assert play.fill(word) in answer.body.decode(), str(answer)
        if play.version == "1.2":
            gone(client)(play)
        else:
            sync(client)(play)

    return step


def gone(client: str) -> Step:
    def step(play: Play) -> None:
        assert play.client(client).hear() is None
        leave(client)(play)

    return step


def leave(client: str) -> Step:
    """Closes the socket; the next step of this name is a new connection."""

    def step(play: Play) -> None:
        if client in play.clients:
            play.clients.pop(client)[1].close()

    return step


def bye(client: str) -> Step:
    """DISCONNECT with a receipt, and the close."""

    def step(play: Play) -> None:
        say(client, "DISCONNECT", headers="receipt:bye")(play)
        hear(client, "RECEIPT", receipt_id="bye")(play)
        leave(client)(play)

    return step


def play(address: tuple[str, int], case: Case, version: str, transport: str) -> None:
    with ExitStack() as stack:
        under_way = Play(address, transport, version, case, stack, {"x": f"x{next(numbers)}"})
        for step in case.steps:
            step(under_way)
