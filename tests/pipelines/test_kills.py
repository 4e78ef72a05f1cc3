"""`stompbox pipeline run` killed with SIGKILL in the middle of batches, several times: every message is in the table once."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyarrow import parquet

from stompbox import blocking
from stompbox.pipelines.settings import Format
from stompbox.pipelines.tables import open_table

MESSAGES = 1500
KILLS = 2
WITHIN = 300.0  # s
TEXT = """
[[archive]]
name = "orders"
destinations = ["/queue/killed.#"]
table = "table"
format = "{format}"
max-rows = 250
compact-files = 4
"""


def batches_until(command: list[str], environment: dict[str, str], kill_after: int) -> int:
    """Runs it, and kills it as soon as it has said so many batches; how many it said."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        deadline, said, printed = time.monotonic() + WITHIN, 0, b""
        with selectors.DefaultSelector() as waiting:
            waiting.register(process.stdout, selectors.EVENT_READ)
            while waiting.select(max(0.0, deadline - time.monotonic())):
                octets = os.read(process.stdout.fileno(), 65536)
                if not octets:
                    break
                *lines, printed = (printed + octets).split(b"\n")
                said += sum(json.loads(line)["event"] == "batch" for line in lines)
                if said >= kill_after > 0:
                    process.kill()
        assert process.wait(WITHIN) in (0, -9)
    return said


@pytest.mark.skipif("SOAK" not in os.environ, reason="takes minutes: make soak")
@pytest.mark.parametrize("kept", [Format.PARQUET], ids=lambda kept: kept.value)
@pytest.mark.filterwarnings("default")
def test_every_message_once_over_kills(kept: Format, url: str, tmp_path: Path) -> None:
    with blocking.connect(url) as client, client.publisher() as publisher:
        for number in range(MESSAGES):
            publisher.send(f"/queue/killed.{kept.value}.{number % 3}", b"%d" % number)
    file = tmp_path / "lake.toml"
    file.write_text(TEXT.format(format=kept.value).replace("killed.", f"killed.{kept.value}."))
    command = [sys.executable, "-m", "stompbox", "pipeline", "run", str(file), "--once", "--json"]
    environment = {**os.environ, "STOMPBOX_URL": url}
    for kill in range(KILLS):
        assert batches_until(command, environment, 1 + kill) > 0
    batches_until(command, environment, 0)
    found: Counter[int] = Counter()
    for live in open_table(kept, tmp_path / "table").files():
        found.update(int(body) for body in parquet.ParquetFile(live.path).read(["body"]).column("body").to_pylist())
    assert found == Counter(range(MESSAGES))
