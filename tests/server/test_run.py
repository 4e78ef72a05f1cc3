"""The process of a broker: what it has done when it is ready, and what it does then."""

from __future__ import annotations

import subprocess
import sys

from stompbox.server.generations import THRESHOLDS

STORY = """
import asyncio, os, signal, sys
from stompbox.config import Configuration, ListenerTable
from stompbox.server.run import serve

LATE = ("stompbox.selectors.codegen", "stompbox.selectors.parser", "stompbox.selectors.xpath")

def ready(broker, urls):
    print([name for name in LATE if name in sys.modules], flush=True)
    asyncio.get_running_loop().call_later(0.01, look, 3000)

def look(times):
    if times and not all(name in sys.modules for name in LATE):
        asyncio.get_running_loop().call_later(0.01, look, times - 1)
    else:
        print(all(name in sys.modules for name in LATE), flush=True)
        os.kill(os.getpid(), signal.SIGTERM)

asyncio.run(serve(Configuration(memory=True, listeners=(ListenerTable(url="tcp://127.0.0.1:0"),)), on_ready=ready))
"""


def test_the_compiler_of_selectors_is_loaded_when_the_broker_is_ready() -> None:
    """Neither the start nor the first SUBSCRIBE with a selector waits for it."""
    said = subprocess.run(
        [sys.executable, "-c", STORY], capture_output=True, text=True, timeout=60, check=False
    )
    assert said.stdout.split("\n")[:2] == ["[]", "True"], said.stderr


LIVING = """
import gc, sys
gc.collect()
gc.freeze()
looked_at = []

def collecting(phase, info):
    if phase == "start":
        looked_at.append((info["generation"], sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1))))

gc.callbacks.append(collecting)
gc.set_threshold(*map(int, sys.argv[1:]))
kept = [[number] for number in range(300_000)]
print(max(generation for generation, _ in looked_at), max(count for _, count in looked_at), sum(count for _, count in looked_at))
"""


def test_a_collection_looks_at_a_few_thousand_objects_at_a_time_and_at_each_a_few_times() -> None:
    """Whatever a client causes to be kept: nobody has a turn while the collector looks through it."""
    thresholds = map(str, THRESHOLDS)
    said = subprocess.run(
        [sys.executable, "-c", LIVING, *thresholds], capture_output=True, text=True, timeout=60, check=False
    )
    oldest, most, total = map(int, said.stdout.split())
    assert oldest < 2, "all that lives was looked at"
    assert most <= 8_000
    assert total <= 2 * 300_000
