"""What is refused is told, in a text of a length that has a bound: what it repeats of a frame may be as long as a head."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from stompbox.config.settings import AddressFullPolicy, AddressSetting
from stompbox.errors import LONGEST
from stompbox.server.limiting import LINES
from tests.server.turning import World
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


@pytest.mark.parametrize("most", [0, 3, 1000])
def test_very_many_addresses_that_are_full_have_so_many_lines_and_no_more(
    caplog: pytest.LogCaptureFixture, most: int
) -> None:
    one_each = AddressSetting(match="#", max_size_messages=1, address_full_policy=AddressFullPolicy.BLOCK)
    world = World(address_settings=(one_each,), max_refusals_logged=most)
    sender = world.client()
    sends = [("SEND", {"destination": f"/queue/{number}", "transaction": "t"}) for number in range(50)]
    sender.say(("BEGIN", {"transaction": "t"}), *sends, ("COMMIT", {"transaction": "t"}))
    world.until_idle()
    world.turn(5)
    lines = world.broker.pressure.lines
    said = [record.getMessage() for record in caplog.records if record.name == "stompbox.limits"]
    assert len(said) == lines.said == min(most, LINES)
    assert lines.unsaid == {"address-full": 50 - len(said)}
    lines.sum_up()
    assert caplog.messages[-1].startswith(f"{50 - len(said)} more addresses were full")
    assert not lines.unsaid
