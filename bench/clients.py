"""The client library beside stomp.py and stompman: messages that a Python program sends and takes, per second of its own processor.

    python -m bench.clients [--messages 20000] [--rounds 5]

Each is measured in a process of its own, in turns, against one broker in memory: confirmed sends (each of them had its RECEIPT when
the clock stops), and consuming with acknowledgements of each message. stomp.py and stompman get their best case: receipts are asked for
and counted, not waited for one by one. Prints the median of the rounds, by wall clock and by the client's own CPU, and the ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from bench.features import serving

BODY = b"x" * 100
WITHIN = 120  # seconds


def stompbox_sends(port: int, destination: str, count: int) -> None:
    import stompbox

    async def work() -> None:
        async with stompbox.connect(f"stomp://127.0.0.1:{port}") as client:
            await client.send_many(destination, (BODY for _ in range(count)))

    asyncio.run(work())


def stompbox_takes(port: int, destination: str, count: int) -> None:
    import stompbox

    async def work() -> None:
        async with (
            stompbox.connect(f"stomp://127.0.0.1:{port}") as client,
            client.subscribe(destination, ack="client-individual") as messages,
        ):
            left = count
            async for message in messages:
                left -= 1
                await message.ack(confirm=not left)
                if not left:
                    return

    asyncio.run(work())


def blocking_sends(port: int, destination: str, count: int) -> None:
    from stompbox import blocking

    with blocking.connect(f"stomp://127.0.0.1:{port}") as client:
        client.send_many(destination, (BODY for _ in range(count)))


def blocking_takes(port: int, destination: str, count: int) -> None:
    from stompbox import blocking

    with (
        blocking.connect(f"stomp://127.0.0.1:{port}") as client,
        client.subscribe(destination, ack="client-individual") as messages,
    ):
        for left, message in zip(range(count - 1, -1, -1), messages, strict=False):
            message.ack(confirm=not left)
            if not left:
                return


def stomp_py_sends(port: int, destination: str, count: int) -> None:
    import stomp

    done, seen = threading.Event(), 0

    class Receipts(stomp.ConnectionListener):  # type: ignore[misc]
        def on_receipt(self, frame: object) -> None:
            nonlocal seen
            seen += 1
            if seen == count:
                done.set()

    connection = stomp.Connection12([("127.0.0.1", port)])
    connection.set_listener("", Receipts())
    connection.connect(wait=True)
    for number in range(count):
        connection.send(destination, BODY, receipt=f"r{number}")
    assert done.wait(WITHIN)
    connection.disconnect()


def stomp_py_takes(port: int, destination: str, count: int) -> None:
    import stomp

    done, left = threading.Event(), count
    connection = stomp.Connection12([("127.0.0.1", port)], auto_decode=False)

    class Messages(stomp.ConnectionListener):  # type: ignore[misc]
        def on_message(self, frame: object) -> None:
            nonlocal left
            left -= 1
            connection.ack(frame.headers["ack"], receipt=None if left else "last")  # type: ignore[attr-defined]

        def on_receipt(self, frame: object) -> None:
            done.set()

    connection.set_listener("", Messages())
    connection.connect(wait=True)
    connection.subscribe(destination, id=1, ack="client-individual")
    assert done.wait(WITHIN)
    connection.disconnect()


def stompman_sends(port: int, destination: str, count: int) -> None:
    import stompman

    async def work() -> None:
        server = stompman.ConnectionParameters("127.0.0.1", port, "", "")
        async with stompman.Client([server]) as client:
            for _ in range(count):  # it knows no receipts of SENDs; that of its DISCONNECT is for all of them
                await client.send(BODY, destination)

    asyncio.run(work())


def stompman_takes(port: int, destination: str, count: int) -> None:
    import stompman

    async def work() -> None:
        done, left = asyncio.Event(), count

        async def handle(frame: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                done.set()

        server = stompman.ConnectionParameters("127.0.0.1", port, "", "")
        async with stompman.Client([server]) as client:
            subscription = await client.subscribe(
                destination, handle, ack="client-individual", on_suppressed_exception=print
            )
            await done.wait()
            await subscription.unsubscribe()

    asyncio.run(work())


Player = Callable[[int, str, int], None]
SENDS: dict[str, Player] = {
    "stompbox": stompbox_sends,
    "stompbox.blocking": blocking_sends,
    "stomp.py": stomp_py_sends,
    "stompman": stompman_sends,
}
TAKES: dict[str, Player] = {
    "stompbox": stompbox_takes,
    "stompbox.blocking": blocking_takes,
    "stomp.py": stomp_py_takes,
    "stompman": stompman_takes,
}


def play(player: Player, port: int, destination: str, count: int) -> None:
    """In a process of its own: prints the seconds on the wall and of the processor, without imports and start."""
    started, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    player(port, destination, count)
    now = resource.getrusage(resource.RUSAGE_SELF)
    processor = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    print(json.dumps([time.perf_counter() - started, processor]))


def measured(what: str, name: str, port: int, destination: str, count: int) -> tuple[float, float]:
    command = [
        sys.executable,
        "-m",
        "bench.clients",
        "--play",
        what,
        name,
        str(port),
        destination,
        str(count),
    ]
    said = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN * 2, check=False)
    if said.returncode:
        raise SystemExit(f"{name} {what}: {said.stderr[-2000:]}")
    wall, processor = json.loads(said.stdout.splitlines()[-1])
    return wall, processor


def main() -> None:
    if sys.argv[1:2] == ["--play"]:
        what, name, port, destination, count = sys.argv[2:]
        with contextlib.suppress(ImportError):
            __import__({"stomp.py": "stomp"}.get(name, name))
        play((SENDS if what == "sends" else TAKES)[name], int(port), destination, int(count))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with serving("--memory") as server:
        for turn in range(arguments.rounds):
            for name in SENDS:
                place = f"/queue/{name}.{turn}"
                for what in ("sends", "takes"):
                    one = measured(what, name, server.port, place, arguments.messages)
                    found.setdefault((what, name), []).append(one)
    for what, title in (("sends", "confirmed sends"), ("takes", "taken and acknowledged")):
        print(f"\n{title}, messages/s    wall clock   by CPU   stompbox is so many times as fast (wall, CPU)")
        base = [statistics.median(column) for column in zip(*found[what, "stompbox"], strict=True)]
        for name in SENDS:
            wall, processor = (statistics.median(column) for column in zip(*found[what, name], strict=True))
            rates = f"{arguments.messages / wall:>10,.0f} {arguments.messages / processor:>9,.0f}"
            print(f"{name:<32}{rates}   {wall / base[0]:.1f} {processor / base[1]:.1f}")


if __name__ == "__main__":
    main()
