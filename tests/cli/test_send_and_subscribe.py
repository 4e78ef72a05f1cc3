"""`stompbox send` and `stompbox subscribe` against a live broker, as a script would use them."""

from __future__ import annotations

import json
import subprocess

import pytest

from stompbox.cli.overview import COMMANDS
from tests import forked
from tests.conftest import Serve


def stompbox(*arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return forked.run(*arguments, given=given)


@pytest.fixture
def url(broker: tuple[str, int]) -> str:
    return f"stomp://{broker[0]}:{broker[1]}"


def test_what_is_sent_is_printed(url: str) -> None:
    sent = stompbox("send", "/queue/cli.one", "héllo", "--url", url, "--header", "color:red")
    assert (sent.returncode, sent.stdout) == (0, b"")
    got = stompbox("subscribe", "/queue/cli.one", "--url", url, "--count", "1", "--json")
    entry = json.loads(got.stdout)
    assert (got.returncode, entry["body"], entry["headers"]["color"]) == (0, "héllo", "red")


def test_lines_of_stdin_are_messages(url: str) -> None:
    assert stompbox("send", "/queue/cli.lines", "--url", url, "--lines", given=b"one\ntwo\n").returncode == 0
    got = stompbox("subscribe", "/queue/cli.lines", "--url", url, "--count", "2")
    assert got.stdout == b"one\ntwo\n"


def test_a_selector_takes_and_leaves(url: str) -> None:
    for number in ("1", "2", "3"):
        assert (
            stompbox("send", "/queue/cli.picked", number, "--url", url, "--header", f"n:{number}").returncode
            == 0
        )
    got = stompbox("subscribe", "/queue/cli.picked", "--url", url, "--selector", "n >= 2", "--count", "2")
    rest = stompbox("subscribe", "/queue/cli.picked", "--url", url, "--count", "1")
    assert (got.stdout, rest.stdout) == (b"2\n3\n", b"1\n")


def test_subscribe_ends_when_nothing_comes(url: str) -> None:
    got = stompbox("subscribe", "/queue/cli.nothing", "--url", url, "--timeout", "0.1")
    assert (got.returncode, got.stdout) == (0, b"")


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (
            ("send", "/queue/x", "b", "--url", "stomp://127.0.0.1:1"),
            3,
            b"no broker answers at stomp://127.0.0.1:1: Connection refused",
        ),
        (("subscribe", "/topic/x", "--durable", "d"), 2, b"--durable needs --client-id"),
        (("subscribe", "/queue/x", "--selector", "n >="), 1, b"selector, position 5"),
        (("send", "/queue/x", "--lines", "--count", "2"), 2, b"--count"),
        (("send", "/queue/x", "b", "--url", "carrier-pigeon://127.0.0.1"), 2, b"carrier-pigeon"),
        (("send", "/queue/x", "b", "--header", "nocolon"), 2, b"nocolon"),
        (("send", "/queue/x", "--file", "is-not-there"), 2, b"is-not-there"),
        (("send", "/queue/x", "b", "--count", "0"), 2, b"--count"),
        (("subscribe", "/queue/x", "--header", "nocolon"), 2, b"nocolon"),
        (("subscribe", "/queue/x", "--count", "0"), 2, b"--count is 0; allowed is a number from 1"),
        (("subscribe", "/queue/x", "--timeout", "-1"), 2, b"--timeout is -1; allowed is a number from 0"),
        (("subscribe", "/queue/x", "--timeout", "nan"), 2, b"--timeout is nan"),
        (("browse", "/queue/x", "--count", "-1"), 2, b"--count is -1"),
        (("send", "/queue/x", "b", "--window", "0"), 2, b"--window is 0"),
        (("send",), 2, b"stompbox send: DESTINATION is missing; stompbox send --help"),
        (("send", "/queue/x", "b", "c"), 2, b"'c' is one argument more than it takes"),
        (("send", "/queue/x", "--nonsense"), 2, b"stompbox send: Unknown option"),
        (("sned", "/queue/x"), 2, b'stompbox: Unknown command "sned". Did you mean "send"?'),
        (("subscribe", "/queue/x", "--count"), 2, b"--count"),
    ],
)
def test_wrong_use_is_one_line_and_an_exit_code(
    url: str, arguments: tuple[str, ...], code: int, word: bytes
) -> None:
    done = stompbox(
        *arguments[:1],
        *(() if "--url" in arguments or len(arguments) < 2 else ("--url", url)),
        *arguments[1:],
    )
    assert done.returncode == code
    assert done.stderr.count(b"\n") == 1
    assert word in done.stderr


def test_count_repeats_what_stdin_gave(url: str) -> None:
    assert stompbox("send", "/queue/cli.again", "--url", url, "--count", "3", given=b"x").returncode == 0
    assert stompbox("subscribe", "/queue/cli.again", "--url", url, "--count", "3").stdout == b"x\nx\nx\n"


def test_a_server_of_http_is_named(serve: Serve) -> None:
    """The port of the console, say."""
    served = serve("--memory", "--admin", "127.0.0.1:0", "--listen", "tcp://127.0.0.1:0")
    port = served.admin.rpartition(":")[2]
    done = stompbox("send", "/queue/x", "b", "--url", f"stomp://127.0.0.1:{port}")
    assert done.stderr == b"stompbox send: what answers there is a server of HTTP, and no STOMP broker\n"
    done = stompbox("send", "/queue/x", "b", "--url", f"ws://127.0.0.1:{port}")
    assert done.returncode == 3 and done.stderr.endswith(
        b"the server answered the WebSocket handshake with HTTP 200 OK\n"
    )
    assert served.log.read_text() == "", "what strangers say to the console is no warning"


@pytest.mark.parametrize("command", [name for _, name, _, _ in COMMANDS])
def test_help_shows_neither_what_is_off_nor_what_nobody_writes(command: str) -> None:
    done = stompbox(command, "--help")
    assert (done.returncode, done.stderr) == (0, b"")
    assert (
        b"[default: False]" not in done.stdout
        and b"--empty-" not in done.stdout
        and b"--destination" not in done.stdout
    )
