"""Who reads a log by offset and comes back after a kill misses nothing that was confirmed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Serve
from tests.system.plain import Plain

LIVES = 4
SETTINGS = '[[address-setting]]\nmatch = "#"\nretention-messages = 1000\n'


@pytest.mark.parametrize("persistent", ["true", "false"])
def test_resumed_after_a_kill(tmp_path: Path, serve: Serve, persistent: str) -> None:
    """A message without receipt is sent, and the broker killed as soon as the reader has it. What is confirmed next has another offset."""
    file = tmp_path / "stompbox.toml"
    file.write_text(SETTINGS)
    arguments = (
        "--config",
        str(file),
        "--data",
        str(tmp_path / "data"),
        "--listen",
        "tcp://127.0.0.1:0",
        "--no-admin",
    )
    resumed, incarnation, told = {"x-stream-offset": "first"}, "", dict[str, bytes]()
    for life in range(LIVES):
        served = serve(*arguments)
        with Plain(served.port) as reader, Plain(served.port) as sender:
            sent = {"destination": "/topic/s", "persistent": persistent}
            sender.send("SEND", {"destination": "/topic/s", "receipt": "r"}, b"confirmed %d" % life)
            assert sender.receive().command == "RECEIPT"
            reader.send("SUBSCRIBE", {"id": "0", "destination": "/stream/s", "receipt": "there", **resumed})
            receipt = reader.receive()
            assert incarnation in ("", receipt.headers["x-stream-incarnation"])
            incarnation = receipt.headers["x-stream-incarnation"]
            assert reader.receive().body == b"confirmed %d" % life
            sender.send("SEND", sent, b"lost or not %d" % life)
            frame = reader.receive()
            served.process.kill()
            served.process.wait()
        assert told.setdefault(frame.headers["x-stream-offset"], frame.body) == frame.body
        resumed = {
            "x-stream-offset": str(int(frame.headers["x-stream-offset"]) + 1),
            "x-stream-incarnation": incarnation,
        }
