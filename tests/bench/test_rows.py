"""The rows: every broker gets the same bytes, and says outright whether to store them."""

from __future__ import annotations

import pytest

from bench.rows import ROWS, WARM_UP, Row


@pytest.mark.parametrize("row", [*ROWS, *WARM_UP], ids=lambda row: row.key)
def test_each_row_says_whether_its_messages_are_persistent(row: Row) -> None:
    arguments = row.arguments("1", scale=1.0)
    stored = arguments[arguments.index("--sendhdrs") + 1]
    assert stored == f"persistent:{str(row.persistent).lower()}"
    assert row.persistent == (
        "persistent" in row.title.replace("not persistent", "")
        or row.key in ("sync-16", "waiting-16-stored", "sensors-stored")
    )


def test_keys_and_destinations_are_unique() -> None:
    keys = [row.key for row in (*ROWS, *WARM_UP)]
    assert len(set(keys)) == len(keys)
    destinations = {row.destination(turn) for row in ROWS for turn in ("1", "2")}
    assert len(destinations) == 2 * len(ROWS)


def test_the_scale_multiplies_messages_but_leaves_one() -> None:
    row = Row("x", "x", 1000)
    assert row.arguments("1", scale=0.25)[2:4] == ["--msgs", "250"]
    assert row.arguments("1", scale=0.00001)[2:4] == ["--msgs", "1"]


def test_topic_and_send_only_reach_the_command_line() -> None:
    assert "--topic" in Row("t", "t", 1, topic=True).arguments("1", scale=1)
    assert Row("t", "t", 1, topic=True).destination("2") == "/topic/bench.t.2"
    send_only = Row("s", "s", 1, send_only=True)
    assert "--send-only" in send_only.arguments("1", scale=1)
    assert "--send-only" not in send_only.drain_arguments("1", scale=1)
    assert "--drain-only" in send_only.drain_arguments("1", scale=1)
