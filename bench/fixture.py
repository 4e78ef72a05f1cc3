"""How long a broker for a test takes to be ready, and to be gone: `python -m bench.fixture`."""

from __future__ import annotations

import argparse
import socket
from statistics import median
from time import perf_counter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=100, help="how many, one after the other")
    count = parser.parse_args().brokers
    began = perf_counter()
    from stompbox.testing import Broker

    print(f"import stompbox.testing: {1000 * (perf_counter() - began):.0f} ms")
    ready, gone = [], []
    for _ in range(count):
        began = perf_counter()
        broker = Broker().start()
        with socket.create_connection((broker.host, broker.port)):
            ready.append(1000 * (perf_counter() - began))
        began = perf_counter()
        broker.stop()
        gone.append(1000 * (perf_counter() - began))
    for name, times in (("ready", ready), ("gone", gone)):
        print(
            f"{name}: {median(times):.1f} ms in the middle, {times[0]:.1f} ms the first, {max(times):.1f} ms at worst"
        )


if __name__ == "__main__":
    main()
