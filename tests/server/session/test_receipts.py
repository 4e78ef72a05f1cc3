"""What waits for the disk is said in order, and a portion of it in one step, however much a commit has let out."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from stompbox.broker.queues.consumer import Consumer
from stompbox.server.session import receipts, writing
from stompbox.server.session.receipts import ITEM, PORTION, Pending, Receipts
from tests.server.world import House, configured, play


def test_many_receipts_of_one_commit_are_taken_in_portions() -> None:
    waiting, ids = Receipts(), [b"%d" % number for number in range(30_000)]
    waiting.confirm(ids, 1, None, None)
    waiting.confirm([b"later"], 2, None, None)
    said: list[bytes] = []
    steps = 0
    while waiting.is_due(1):
        taken = waiting.take(1)
        assert 0 < sum([item.size for item in taken]) < PORTION + 2 * ITEM
        said += [receipt for item in taken for receipt in item.receipts]
        steps += 1
    assert said == ids and steps > 4
    assert waiting.take(1) == []
    (last,) = waiting.take(2)
    assert last.receipts == [b"later"] and waiting.size == 0 and not waiting.is_due(2)


def test_what_is_no_receipt_is_taken_in_portions_in_its_order() -> None:
    waiting, texts = Receipts(), [b"%0500d" % number for number in range(3_000)]
    for text in texts:
        waiting.append(Pending(0, text))
    said: list[bytes] = []
    while waiting.is_due(0):
        taken = waiting.take(0)
        assert sum([item.size for item in taken]) < PORTION + 2 * ITEM + 500
        said += [item.data for item in taken]
    assert said == texts and waiting.size == 0


def test_what_is_larger_than_a_portion_is_taken_as_it_is() -> None:
    waiting = Receipts()
    waiting.append(Pending(0, b"x" * 2 * PORTION))
    waiting.append(Pending(0, b"y"))
    assert [item.data[:1] for item in waiting.take(0)] == [b"x"]
    assert [item.data for item in waiting.take(0)] == [b"y"]


def test_a_subscription_starts_when_all_that_is_due_is_said_however_many_steps_that_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    monkeypatch.setattr(receipts, "PORTION", 2 * ITEM)
    monkeypatch.setattr(writing, "start", started.append)

    async def story(house: House) -> None:
        guest, consumer = await house.client(), SimpleNamespace(is_closed=False)
        connection, steps = house.connection(), 0
        connection.pending.append(Pending(5, receipts=[b"sub"], consumer=cast(Consumer, consumer)))
        for number in range(100):
            connection.say(b"said %d\n" % number)
        while connection.release(5):
            assert not started
            steps += 1
        assert started == [consumer] and steps > 20 and not connection.pending.size
        heard = await guest.hear(b"said 99\n")
        assert heard.endswith(b"".join([b"said %d\n" % number for number in range(100)]))
        assert b"receipt-id:sub" in heard
        assert connection.release(5) is False and started == [consumer], "it starts once"

    play(configured(tmp_path), story)


def test_who_waits_for_much_is_told_all_of_it_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "PORTION", 2 * ITEM)

    async def story(house: House) -> None:
        guest = await house.client()
        connection, releases = house.connection(), house.broker.releases
        for number in range(2_000):
            connection.pending.append(Pending(0, b"said %d\n" % number))
        house.broker.waiting[connection] = None
        releases.release(releases.sequence, None)
        heard = await guest.hear(b"said 1999\n")
        assert heard.endswith(b"".join([b"said %d\n" % number for number in range(2_000)]))
        assert not (releases.due or house.broker.waiting)

    play(configured(tmp_path), story)
