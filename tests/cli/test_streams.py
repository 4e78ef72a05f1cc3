"""Commands in a pipe or at a terminal: what comes goes on at once, the connection lives meanwhile, and nobody's leaving is a fault."""

from __future__ import annotations

import asyncio
import os
import pty
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from stompbox.cli import streams
from stompbox.cli.overview import COMMANDS
from tests.conftest import Serve
from tests.system.plain import Plain

WITHIN = 30.0  # seconds


@contextmanager
def started(*arguments: str, stdin: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "stompbox", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe if stdin is None else stdin, stdout=pipe, stderr=pipe
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def line_of(stream: IO[bytes] | None) -> bytes:
    """The next line, within a deadline."""
    assert stream is not None
    with selectors.DefaultSelector() as waiting:
        waiting.register(stream, selectors.EVENT_READ)
        assert waiting.select(WITHIN), "nothing came"
    return stream.readline()


def test_a_line_is_sent_when_it_is_there(broker: tuple[str, int]) -> None:
    url = f"stomp://{broker[0]}:{broker[1]}"
    with Plain(broker[1]) as client, started("send", "/queue/pipe.lines", "--lines", "--url", url) as process:
        client.send("SUBSCRIBE", {"destination": "/queue/pipe.lines", "id": "1"})
        assert process.stdin is not None
        for body in (b"one", b"two\r", b"", b"four"):
            process.stdin.write(body + b"\n")
            process.stdin.flush()
            assert client.receive().body == body.rstrip(b"\r")
        process.stdin.write(b"last, without an end")
        process.stdin.close()
        assert client.receive().body == b"last, without an end"
        assert process.wait(WITHIN) == 0


def test_a_refusal_is_told_before_another_line_comes(broker: tuple[str, int]) -> None:
    with started("send", "/topic/not.#", "--lines", "--url", f"stomp://{broker[0]}:{broker[1]}") as process:
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert (
            line_of(process.stderr)
            == b"stompbox send: destination '/topic/not.#' can be subscribed to, not sent to\n"
        )
        assert process.wait(WITHIN) == 1
        assert process.stderr is not None and process.stderr.read() == b""


class Beating:
    """A broker of one connection that wants heart-beats and counts them."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(WITHIN)
        self.url = f"stomp://127.0.0.1:{self.server.getsockname()[1]}?heart-beat=50,0"

    def accept(self) -> None:
        self.peer, _ = self.server.accept()
        self.peer.settimeout(WITHIN)
        self._until(b"\0")
        self.peer.sendall(b"CONNECTED\nversion:1.2\nheart-beat:0,50\n\n\0")

    def _until(self, end: bytes) -> bytes:
        found = b""
        while end not in found:
            octets = self.peer.recv(65536)
            assert octets, found
            found += octets
        return found

    def require_beats(self, most: int) -> None:
        count = 0
        while count < most:
            octets = self.peer.recv(65536)
            assert octets, "the connection ended"
            count += octets.strip(b"\n") == b""

    def confirm_subscribe(self) -> None:
        frame = self._until(b"\0")
        head = dict(line.split(b":", 1) for line in frame.strip(b"\n\0").split(b"\n") if b":" in line)
        self.peer.sendall(b"RECEIPT\nreceipt-id:%b\n\n\0" % head[b"receipt"])
        self.id = head[b"id"]

    def close(self) -> None:
        self.peer.close()
        self.server.close()


@pytest.fixture
def beating() -> Iterator[Beating]:
    made = Beating()
    yield made
    made.close()


def test_heart_beats_go_on_while_stdin_is_silent(beating: Beating) -> None:
    with started("send", "/queue/x", "--lines", "--url", beating.url) as process:
        beating.accept()
        beating.require_beats(5)
        assert process.poll() is None


def test_heart_beats_go_on_while_nobody_reads_stdout(beating: Beating) -> None:
    with started("subscribe", "/queue/x", "--url", beating.url) as process:
        beating.accept()
        beating.confirm_subscribe()
        body = b"x" * (1 << 20)
        head = (
            b"MESSAGE\nsubscription:%b\nmessage-id:1\nack:1\ndestination:/queue/x\ncontent-length:%d\n\n"
            % (beating.id, len(body))
        )
        beating.peer.sendall(head + body + b"\0")
        beating.require_beats(5)
        assert process.poll() is None


def test_count_leaves_the_others_untouched(broker: tuple[str, int]) -> None:
    url = f"stomp://{broker[0]}:{broker[1]}"
    with Plain(broker[1]) as client:
        for number in range(20):
            client.send("SEND", {"destination": "/queue/pipe.count"}, b"%d" % number)
        client.sync()
        with started("subscribe", "/queue/pipe.count", "--count", "3", "--url", url) as process:
            out, _ = process.communicate(timeout=WITHIN)
        assert (process.returncode, out) == (0, b"0\n1\n2\n")
        client.send("SUBSCRIBE", {"destination": "/queue/pipe.count", "id": "1"})
        rest = [client.receive() for _ in range(17)]
    assert [message.body for message in rest] == [b"%d" % number for number in range(3, 20)]
    assert {message.headers.get("redelivered") for message in rest} == {"false"}
    assert {message.headers.get("JMSXDeliveryCount", "1") for message in rest} == {"1"}


@pytest.mark.parametrize(
    "arguments",
    [("subscribe", "/queue/pipe.head"), ("subscribe", "/queue/pipe.head", "--json"), ("browse", "/queue/pipe.head"), ("config", "schema"),
     ("config", "show"), ("--help",), ("send", "--help")],
    ids=" ".join,
)  # fmt: skip
def test_a_reader_who_has_enough_is_no_fault(broker: tuple[str, int], arguments: tuple[str, ...]) -> None:
    """As `| head -3` has: silence, and no failure."""
    with Plain(broker[1]) as client:
        client.send("SEND", {"destination": "/queue/pipe.head"}, b"x" * 100_000)
        client.sync()
    here = (
        () if arguments[0] in ("config", "--help", "send") else ("--url", f"stomp://{broker[0]}:{broker[1]}")
    )
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "stompbox", *arguments, *here]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE, timeout=WITHIN, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("turns", range(6))
def test_nobody_is_cancelled_whose_write_has_found_out_already(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the reader has gone is noticed so many turns of the loop before a write fails."""

    async def work() -> None:
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def watched(call: Callable[[], None]) -> None:
            await gone

        monkeypatch.setattr(streams, "off_loop", watched)
        with pytest.raises(BrokenPipeError):
            async with streams.while_read():
                await asyncio.sleep(0)
                gone.set_result(None)
                for _ in range(turns):
                    await asyncio.sleep(0)
                raise BrokenPipeError
        for _ in range(6):
            await asyncio.sleep(0)

    with open(os.devnull, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        asyncio.run(work())


def test_who_waits_for_messages_ends_with_its_reader(broker: tuple[str, int]) -> None:
    """All that there was is printed before `head` goes, and nothing comes behind it."""
    with Plain(broker[1]) as client:
        client.send("SEND", {"destination": "/queue/pipe.gone"}, b"hello")
        client.sync()
    with started("subscribe", "/queue/pipe.gone", "--url", f"stomp://{broker[0]}:{broker[1]}") as process:
        assert process.stdout is not None and process.stderr is not None
        assert line_of(process.stdout) == b"hello\n"
        process.stdout.close()
        assert (process.wait(WITHIN), process.stderr.read()) == (0, b"")


def test_a_reader_who_has_enough_of_a_store_is_no_fault(serve: Serve, tmp_path: Path) -> None:
    served = serve("--data", str(tmp_path / "data"), "--listen", "tcp://127.0.0.1:0", "--no-admin")
    with Plain(served.port) as client:
        client.send("SEND", {"destination": "/queue/q"}, b"x")
        client.sync()
    served.stop()
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "stompbox", "store", "check", "--data", str(tmp_path / "data")]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE, timeout=WITHIN, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [("config show >&-", 0, ""), ("config schema >&-", 0, ""), ("--help >&-", 0, ""), ("status --admin 127.0.0.1:{admin} >&-", 0, ""),
     ("queues --admin 127.0.0.1:{admin} >&-", 0, ""), ("user hash <&-", 2, "stdin is closed"), ("send /queue/x <&-", 2, "stdin is closed")],
)  # fmt: skip
def test_a_stream_that_is_closed_is_no_fault_of_ours(
    command: str, code: int, said: str, serve: Serve
) -> None:
    """As a shell's `>&-` and a service without a terminal have it."""
    admin = 0
    if "{admin}" in command:
        served = serve("--memory", "--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0")
        admin = int(served.admin.rpartition(":")[2].rstrip("/"))
    line = f"exec {sys.executable} -m stompbox {command.format(admin=admin)}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, timeout=WITHIN, check=False)
    assert (done.returncode, "Traceback" in done.stderr.decode()) == (code, False), done.stderr
    assert said in done.stderr.decode()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
@pytest.mark.parametrize("command", [("config", "schema"), ("--help",)], ids=" ".join)
def test_a_full_disk_behind_stdout_is_one_line(command: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        arguments = [sys.executable, "-m", "stompbox", *command]
        done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, timeout=WITHIN, check=False)
    assert (done.returncode, done.stderr) == (1, b"stompbox: No space left on device\n")


@pytest.mark.parametrize(
    ("more", "words"), [((), b"the message is what is typed here"), (("--lines",), b"each line typed here")]
)
def test_a_terminal_is_told_what_is_waited_for(
    broker: tuple[str, int], more: tuple[str, ...], words: bytes
) -> None:
    controlling, terminal = pty.openpty()
    url = f"stomp://{broker[0]}:{broker[1]}"
    with started("send", "/queue/pipe.tty", *more, "--url", url, stdin=terminal) as process:
        said = line_of(process.stderr)
        assert words in said and b"Ctrl-D" in said
        os.write(controlling, b"typed\n\x04")
        assert line_of(process.stderr) == b"1 message sent to /queue/pipe.tty and confirmed\n"
        assert process.wait(WITHIN) == 0
    os.close(controlling)
    os.close(terminal)


@pytest.mark.parametrize("command", ["send", "request"])
def test_who_types_nothing_sends_nothing(broker: tuple[str, int], command: str) -> None:
    controlling, terminal = pty.openpty()
    url = f"stomp://{broker[0]}:{broker[1]}"
    with started(command, "/queue/pipe.nothing", "--url", url, stdin=terminal) as process:
        assert b"Ctrl-D" in line_of(process.stderr)
        os.write(controlling, b"\x04")
        said = line_of(process.stderr).decode()
        assert (
            said
            == f"stompbox {command}: nothing was typed, and nothing is sent; an empty body is given as ''\n"
        )
        assert process.wait(WITHIN) == 2
    os.close(controlling)
    os.close(terminal)


def test_an_empty_file_is_an_empty_message(broker: tuple[str, int]) -> None:
    arguments = (
        sys.executable,
        "-m",
        "stompbox",
        "send",
        "/queue/pipe.empty",
        "--url",
        f"stomp://{broker[0]}:{broker[1]}",
    )
    done = subprocess.run(
        arguments, stdin=subprocess.DEVNULL, capture_output=True, timeout=WITHIN, check=True
    )
    assert done.stderr == b"1 message sent to /queue/pipe.empty and confirmed\n"


def test_the_list_of_commands_says_what_each_does() -> None:
    texts = [
        subprocess.run(
            [sys.executable, "-m", "stompbox", *arguments],
            capture_output=True,
            text=True,
            timeout=WITHIN,
            check=True,
        ).stdout
        for arguments in ((), ("--help",))
    ]
    assert texts[0] == texts[1]
    words = " ".join(texts[0].replace("│", " ").split())
    for group, name, _, said in COMMANDS:
        assert group in words
        assert f"{name} {said}" in words


def test_an_interrupt_does_not_wait_for_the_next_line(beating: Beating) -> None:
    with started("send", "/queue/x", "--lines", "--url", beating.url) as process:
        beating.accept()
        beating.require_beats(1)
        process.send_signal(signal.SIGINT)
        beating.peer.close()  # which is no confirmation of DISCONNECT, either
        assert process.wait(WITHIN) == 130
