"""Which log a checkpoint of the source is of: one that is shorter, longer, gone or made anew is not read for another."""

from __future__ import annotations

import pytest

from stompbox.errors import Refused, UsageError
from tests.spark.fake_broker import FakeBroker, FakeLog
from tests.spark.test_source import ALL, fill, rows, stream

# Which log it is


def known(fake: FakeBroker, id: str, address: str = "flights.UA") -> None:
    fake.logs[address].incarnations = [[id, 0]]


@pytest.mark.parametrize("group", ["", "lake"])
@pytest.mark.parametrize("fails", [True, False])
def test_another_log_that_is_longer_than_the_checkpoint(
    fake: FakeBroker, caplog: pytest.LogCaptureFixture, group: str, *, fails: bool
) -> None:
    given = {"group": group} if group else {}
    fill(fake)
    known(fake, "one")
    found = stream(fake, **given)
    start = found.latestOffset(found.initialOffset(), ALL)
    del fake.logs["flights.UA"]
    fake.groups.clear()
    fill(fake, 50)
    known(fake, "other")
    again = stream(fake, failOnDataLoss=str(fails).lower(), **given)
    if fails:
        words = r"'flights.UA' is another one: offset 10 of incarnation one.*other with offsets 0 to 50"
        with pytest.raises(Refused, match=words) as caught:
            again.latestOffset(start, ALL)
        assert caught.value.code == "data-lost"
        return
    end = again.latestOffset(start, ALL)
    assert rows(again, again.partitions(start, end)) == list(range(50))
    assert "incarnation other" in caplog.text
    assert again.latestOffset(end, ALL) == end


def test_a_batch_that_is_planned_again_is_not_read_from_another_log(fake: FakeBroker) -> None:
    fill(fake)
    known(fake, "one")
    found = stream(fake)
    start = found.initialOffset()
    end = found.latestOffset(start, ALL)
    known(fake, "other")
    with pytest.raises(Refused, match="another one"):
        rows(found, found.partitions(start, end))


def test_messages_that_went_after_a_crash_in_the_first_batch(fake: FakeBroker) -> None:
    fill(fake)
    known(fake, "one")
    found = stream(fake)
    end = found.latestOffset(found.initialOffset(), ALL)
    fake.logs["flights.UA"].trim(6)
    again = stream(fake)
    with pytest.raises(Refused, match="offsets 0 to 5"):
        rows(again, again.partitions(again.initialOffset(), end))
    lax = stream(fake, failOnDataLoss="false")
    assert rows(lax, lax.partitions(lax.initialOffset(), end)) == [6, 7, 8, 9]


@pytest.mark.parametrize("group", ["", "lake"])
def test_an_address_that_goes_when_all_was_read(fake: FakeBroker, group: str) -> None:
    fill(fake)
    known(fake, "one")
    found = stream(fake, **({"group": group} if group else {}))
    start = found.latestOffset(found.initialOffset(), ALL)
    del fake.logs["flights.UA"]
    fake.ended["flights.UA"] = {"next": 10, "incarnations": [["one", 0]]}
    assert found.latestOffset(start, ALL) == {}
    fake.ended["flights.UA"] = {"next": 11, "incarnations": [["one", 0]]}
    with pytest.raises(Refused, match=r"is gone from the broker.*had ended at 11"):
        found.latestOffset(start, ALL)


@pytest.mark.parametrize("group", [{}, {"group": "lake"}])
def test_an_address_to_begin_at_that_is_not_read(fake: FakeBroker, group: dict[str, str]) -> None:
    fill(fake)
    with pytest.raises(UsageError, match=r"names 'flights\.XX'"):
        stream(fake, startingOffsets='{"flights.XX": 3}', **group).initialOffset()


def test_thousands_of_addresses_are_asked_for_in_parts(fake: FakeBroker) -> None:
    names = [f"flights.{number}" for number in range(2500)]
    for name in names:
        fake.logs[name] = FakeLog()
        fake.logs[name].next = 3
    found = stream(fake, group="lake")
    start = found.initialOffset()
    assert len(start) == 2500
    fake.groups.clear()
    again = stream(fake, group="lake", maxBytesPerTrigger="1g")
    again.latestOffset(dict.fromkeys(names, 2), ALL)
    assert set(fake.groups["lake"][1].values()) == {2}
    assert len(fake.groups["lake"][1]) == 2500
    assert max(len(frame.body) for frame in fake.requests) < 256 << 10
