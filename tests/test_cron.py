"""When the times of cron expressions are: as cronsim has them, whatever is said, and found without a look at each day."""

from __future__ import annotations

import random
import sys
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any

import pytest
from cronsim import CronSim, CronSimError

from stompbox.cron import Cron, cron_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW = 1_767_225_600_000  # 2026-01-01
LINES = 10_000  # of Python: less than a millisecond

OF_DAY = ("L", "LW", "L,3", "31", "30,LW")
OF_WEEK = ("5L", "MON", "SUN", "*/6,3L", "0,7", "7L", "0L", "*/7,5L", "MON-FRI")


def by_cronsim(text: str, now: int) -> int | None:
    try:
        found = next(CronSim(text, EPOCH + timedelta(milliseconds=now)))
    except (CronSimError, StopIteration):
        return None
    return (found - EPOCH) // timedelta(milliseconds=1)


def by_ours(text: str, now: int) -> int | None:
    try:
        return Cron(text).after(now)
    except ValueError:
        return None


def field(chance: random.Random, low: int, high: int, special: tuple[str, ...] = ()) -> str:
    kind = chance.randrange(7 if special else 6)
    if kind < 2:
        return "*"
    if kind == 2:
        return f"*/{chance.randint(1, high)}"
    if kind == 3:
        return str(chance.randint(low, high))
    if kind == 4:
        first, last = sorted((chance.randint(low, high), chance.randint(low, high)))
        return f"{first}-{last}/{chance.randint(1, 5)}"
    if kind == 5:
        return f"{field(chance, low, high, special)},{field(chance, low, high, special)}"
    return chance.choice(special)


def said(chance: random.Random) -> str:
    days, week = field(chance, 1, 31, OF_DAY), field(chance, 0, 7, OF_WEEK)
    return (
        f"{field(chance, 0, 59)} {field(chance, 0, 23)} {days} {field(chance, 1, 12, ('JAN', 'FEB'))} {week}"
    )


def test_the_next_time_is_the_one_that_cronsim_finds_day_by_day() -> None:
    chance = random.Random(1)
    never = 0
    for _ in range(4000):
        text, now = said(chance), chance.randrange(4_102_444_800_000)  # up to 2100
        if not chance.randrange(3):  # about a minute that begins
            now = now // 60_000 * 60_000 + chance.choice((0, 1, -1, -999, -1000, -1001))
        found = by_ours(text, max(0, now))
        assert found == by_cronsim(text, max(0, now)), (text, now)
        never += found is None
    assert never < 400


@pytest.mark.parametrize("text", ["", "* * * *", "61 * * * *", "* * 30 2 *", "* * L-1 * *", "x * * * *"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError):
        Cron(text)


def lines_of(text: str) -> int:
    """Lines of Python of what a client can have looked for with it, whether there is a time or none."""
    lines, before = 0, sys.gettrace()

    def trace(_: FrameType, event: str, __: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    sys.settrace(trace)
    try:
        by_ours(text, NOW)
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize(
    "text",
    [
        "59 23 29 2 */7",  # once in 28 years
        "59 23 29 FEB *,MON",
        "0 0 */31 * 5L",  # the first of a month is no last Friday
        "0 0 */16,2-21 * 5L",
        "59 23 LW 2 */7",
        "59 23 * 12 7L",
        " ".join([",".join("*" * 20)] * 5),
    ],
)
def test_no_expression_is_looked_at_for_long(text: str) -> None:
    assert lines_of(text) < LINES


def test_what_a_run_has_in_common_is_read_once() -> None:
    assert cron_of("0 3 * * *") is cron_of("0 3 * * *")
