"""The screen of `stompbox top`, played by Textual's pilot on samples that a test makes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from textual.pilot import Pilot
from textual.widgets import DataTable, Sparkline, Static

from stompbox.cli.sampling import Sample
from stompbox.cli.topscreen import Top
from stompbox.errors import ConnectionLost
from tests.cli.test_sampling import address, taken

WITHIN = 30.0  # seconds
EVERY = 0.1  # the same, between two answers, each of which is drawn
NAMES = ("orders.new", "orders.old", "prices")


def connection(at: int, **more: Any) -> dict[str, Any]:
    plain = {
        "id": at,
        "peer": "127.0.0.1",
        "port": 40000 + at,
        "user": "eve",
        "client_id": "",
        "waits_for": [],
    }
    return {**plain, "memory_bytes": 2048 * at, "subscriptions": [{"delivering": at}], **more}


class Samples:
    """Answers of a broker, a second apart; `error`: it does not answer."""

    def __init__(self) -> None:
        self.taken = 0
        self.error = ""
        self.addresses = [
            address("orders.new", ready=3, next=0, consumers=1),
            address("orders.old", ready=2000, next=50, is_paused=True),
            address("prices", ready=1, next=0),
        ]

    def __call__(self) -> Sample:
        if self.error:
            raise ConnectionLost("connect-failed", self.error)
        self.taken += 1
        grown = [one | {"next": 5 * self.taken if one["name"] == "prices" else 0} for one in self.addresses]
        now = 1000 * self.taken
        return taken(
            now, 100 * self.taken, *grown, connections=[connection(1), connection(2, waits_for=["x"])]
        )


def play(
    work: Callable[[Pilot[None], Top, Samples], Any], width: int = 80, match: str = "", samples: Samples | None = None
) -> None:  # fmt: skip
    """Runs the screen at this width, and the work against it."""
    answers = samples or Samples()

    async def played() -> None:
        app = Top(answers, EVERY, match)
        async with app.run_test(size=(width, 24)) as pilot:
            await until(pilot, lambda: "10" in text(app, "#head").partition("in ")[2][:4] or answers.error)
            await work(pilot, app, answers)

    asyncio.run(played())


async def until(pilot: Pilot[None], holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + WITHIN
    while not holds():
        assert time.monotonic() < deadline, "it did not come"
        await pilot.pause(0.01)


def text(app: Top, query: str) -> str:
    return str(app.query_one(query, Static).render())


def column(app: Top, at: int = 0) -> list[str]:
    """The cells of a column, from above."""
    table = app.query_one(DataTable)
    return [str(table.get_row_at(row)[at]) for row in range(table.row_count)]


def test_rates_depths_and_states() -> None:
    async def work(pilot: Pilot[None], app: Top, samples: Samples) -> None:
        head = text(app, "#head")
        assert "in 100/s  out 200/s  acked 0/s" in head
        assert "Stompbox 1, up 5 s, ready" in head and "memory 1.0M" in head
        assert column(app) == ["orders.old", "orders.new", "prices"]
        assert column(app, 3) == ["2.0k", "3", "1"]
        assert column(app, 1) == ["0", "0", "5.0"]
        assert column(app, 6) == ["paused", "", ""]
        assert list(app.query_one(Sparkline).data or []) == [0, 3]

    play(work)


def test_letters_sort_and_again_the_other_way() -> None:
    async def work(pilot: Pilot[None], app: Top, samples: Samples) -> None:
        for key, names in (
            ("n", list(NAMES)),
            ("n", list(reversed(NAMES))),
            ("i", ["prices", "orders.new", "orders.old"]),
            ("c", ["orders.new", "orders.old", "prices"]),
        ):
            await pilot.press(key)
            assert column(app) == names, key

    play(work)


def test_the_other_table() -> None:
    async def work(pilot: Pilot[None], app: Top, samples: Samples) -> None:
        await pilot.press("tab")
        assert column(app) == ["127.0.0.1:40002", "127.0.0.1:40001"]
        assert column(app, 5) == ["4.0K", "2.0K"] and column(app, 6) == ["waits", ""]
        await pilot.press("m", "m")
        assert column(app, 5) == ["2.0K", "4.0K"]
        await pilot.press("tab")
        assert column(app) == ["orders.old", "orders.new", "prices"]

    play(work)


def test_a_part_of_a_name() -> None:
    async def work(pilot: Pilot[None], app: Top, samples: Samples) -> None:
        await pilot.press("slash", *"pri")
        await until(pilot, lambda: column(app) == ["prices"])
        await pilot.press("enter", "n")  # the letter sorts again, and is not written
        assert column(app) == [
            "prices"
        ] and "1 of 3 addresses with 'pri', by address, the smallest first" in text(app, "#head")
        await pilot.press("escape")
        await until(pilot, lambda: len(column(app)) == 3)

    play(work)


def test_a_part_that_was_said_on_the_command_line() -> None:
    async def work(pilot: Pilot[None], app: Top, samples: Samples) -> None:
        assert column(app) == ["orders.old", "orders.new"]

    play(work, match="orders")


def test_a_broker_that_is_gone_and_comes_back() -> None:
    async def work(pilot: Pilot[None], app: Top, samples: Samples) -> None:
        samples.error = "no broker answers at http://x"
        line = app.query_one("#error", Static)
        await until(pilot, lambda: line.display)
        assert text(app, "#error") == "no broker answers at http://x; asked again every 0.1 s"
        assert column(app) == ["orders.old", "orders.new", "prices"]
        samples.error = ""
        await until(pilot, lambda: not line.display)

    play(work)


def test_hold_keeps_what_is_shown() -> None:
    async def work(pilot: Pilot[None], app: Top, samples: Samples) -> None:
        await pilot.press("space")
        assert "HELD" in text(app, "#head")
        before, asked = column(app, 3), samples.taken
        samples.addresses = samples.addresses[:1]
        await until(pilot, lambda: samples.taken > asked + 2)
        assert column(app, 3) == before
        await pilot.press("space")
        await until(pilot, lambda: len(column(app)) == 1)

    play(work)


def test_names_are_shown_and_not_obeyed() -> None:
    samples = Samples()
    samples.addresses = [address("a\x1b[2J[red]b[/]\n", ready=1)]

    async def work(pilot: Pilot[None], app: Top, samples: Samples) -> None:
        assert column(app) == ["a\\x1b[2J[red]b[/]\\n"]

    play(work, samples=samples)


def test_every_column_is_seen_at_80_columns() -> None:
    async def work(pilot: Pilot[None], app: Top, samples: Samples) -> None:
        for _ in range(2):
            table = app.query_one(DataTable)
            assert table.virtual_size.width <= 78
            assert all(len(line) <= 78 for line in text(app, "#head").splitlines())
            await pilot.press("tab")

    play(work)


def test_a_wide_terminal_has_room_for_long_names() -> None:
    async def work(pilot: Pilot[None], app: Top, samples: Samples) -> None:
        table = app.query_one(DataTable)
        assert table.ordered_columns[0].width == 67
        await pilot.resize_terminal(100, 30)
        await until(pilot, lambda: len(table.ordered_columns) == 7 and table.ordered_columns[0].width == 47)

    play(work, width=120)


def test_q_ends_it() -> None:
    async def work(pilot: Pilot[None], app: Top, samples: Samples) -> None:
        await pilot.press("q")
        await until(pilot, lambda: not app.is_running)

    play(work)
