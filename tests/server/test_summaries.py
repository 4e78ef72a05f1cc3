"""What is refused is told, in a text of a length that has a bound: what it repeats of a frame may be as long as a head."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from stompbox.errors import LONGEST
from tests.server.world import House, configured, play
from tests.users import users

TOP = users("u:p") + '[[permission]]\nmatch = "none"\nsend = ["nobody"]\n'
LONG = "a" * 60_000


@pytest.mark.parametrize(
    "frame",
    [
        f"SEND\ndestination:/queue/{LONG}\n\n\0",
        f"SEND\ndestination:/queue/a\ntransaction:{LONG}\n\n\0",
        f"SUBSCRIBE\nid:1\ndestination:/topic/{LONG}\n\n\0",
        f"SUBSCRIBE\nid:1\ndestination:/topic/a\nselector:{LONG[:16_000]} =\n\n\0",
        f"ACK\nsubscription:1\nmessage-id:{LONG}\n\n\0",
        f"ABORT\ntransaction:{LONG}\n\n\0",
        f"UNSUBSCRIBE\nid:{LONG}\n\n\0",
        f"SEND\ndestination:{LONG}\n\n\0",
        f"SEND\ndestination:/queue/a\nexpires:{LONG}\n\n\0",
        f"SEND\ndestination:/temp-queue/{LONG}\n\n\0",
        f"{LONG}\n\n\0",
        f"SEND\n{LONG}\n\n\0",
    ],
    ids=lambda frame: frame[:30].replace("\n", " "),
)
def test_an_error_repeats_so_much_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, frame: str
) -> None:
    async def story(house: House) -> None:
        guest = await house.client(version="1.1", more="login:u\npasscode:p\n")
        guest.say(frame)
        said = await guest.hear(b"\0\n")
        assert said.startswith(b"ERROR")
        assert len(said) <= 2 * LONGEST

    with caplog.at_level(logging.INFO):
        play(configured(tmp_path, top=TOP), story)
    assert max([len(record.getMessage()) for record in caplog.records]) <= 2 * LONGEST
