"""What TLS takes of memory, in the process that has the sockets: the broker's, or a front's."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import Serve, Served, children, memory_of
from tests.system.transports import connected, listeners, wait_until

CLIENTS = 60
MUCH = b"SEND\ndestination:/topic/a\n\n" + b"x" * 1000 + b"\0"
EACH = (
    100 << 10
)  # octets that a client may take who has sent and been told much; without a bound it was 700 KiB
ROOM = 6 << 20  # for all else


def holder(served: Served) -> int:
    """The process that has the sockets."""
    return next(iter(children(served.process.pid)), served.process.pid)


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the system does not say how large a process is"
)
@pytest.mark.parametrize("fronts", [(), ("--fronts", "1")], ids=["broker", "front"])
@pytest.mark.usefixtures("own_process")
def test_who_says_much_over_tls_takes_little_for_it(
    serve: Serve, tmp_path: Path, fronts: tuple[str, ...]
) -> None:
    served = serve("--memory", "--no-admin", *listeners(tmp_path), *fronts)
    pid = holder(served)
    with connected(served, "tls") as first:
        first.log_in()
        idle = memory_of(pid)
        with ExitStack() as stack:
            clients = [stack.enter_context(connected(served, "tls")) for _ in range(CLIENTS)]
            for client in clients:  # before any of them says much: there is a deadline for it
                client.log_in()
            for client in clients:
                client.say(MUCH * 1000 + b"SUBSCRIBE\nid:1\ndestination:/topic/b\nreceipt:s\n\n\0")
                client.hear(b"receipt-id:s")
            first.say(b"SEND\ndestination:/topic/b\n\n" + b"x" * 500_000 + b"\0")
            for client in clients:
                client.hear(b"x\0")
            wait_until(
                lambda: memory_of(pid) <= idle + CLIENTS * EACH + ROOM, "they are there, and take little"
            )
        wait_until(lambda: memory_of(pid) <= idle * 1.1 + ROOM, "they are gone")
