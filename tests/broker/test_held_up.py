"""Work that goes on in portions, and makes more for a disk that has enough to do: it waits for that, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator

from stompbox.broker.work import AGAIN, Turns, Work


class Behind:
    """A disk that has enough to do."""

    made = 0
    is_behind = True

    def holds_up(self, made: int) -> bool:
        return self.is_behind and self.made > made


def test_what_makes_more_for_a_disk_that_is_behind_waits_for_it_and_nothing_else_does() -> None:
    work, disk, said = Work(10), Behind(), list[str]()
    later = Turns(work)
    later.heed(disk)

    def steps(name: str, made: int) -> Iterator[None]:
        for _ in range(6):
            disk.made += made
            said.append(name)
            work.spend(10)
            yield

    later.take("writes", steps("writes", 1), by=1)
    later.take("looks", steps("looks", 0), by=1)
    said.clear()
    for _ in range(3):
        later.run(lambda: True)
    assert said == ["writes", "looks", "looks", "looks"]
    later.take("writes", steps("again", 1))
    assert "again" not in said, "it goes on already"
    assert len(later) == 2
    later.go_on()
    later.run(lambda: True)
    assert said[4:] == ["looks", "writes"]
    disk.is_behind = False
    assert not later.go_on()
    while later.run(lambda: True):
        pass
    assert (said.count("writes"), said.count("looks"), len(later)) == (5, 5, 0)


def test_of_very_many_who_were_held_up_few_make_more_at_a_time() -> None:
    disk, said = Behind(), list[int]()
    later = Turns(Work(10))
    later.heed(disk)

    def writing(number: int) -> Iterator[None]:
        while True:
            disk.made += 1
            said.append(number)
            later.work.spend(10)
            yield

    for number in range(3 * AGAIN):
        later.take(number, writing(number))
    later.run(lambda: True)
    assert not later.waiting, "all are held up"
    said.clear()
    for _ in range(3):
        assert later.go_on()
        later.run(lambda: True)
    assert said == list(range(3 * AGAIN)), "one after the other"
    disk.is_behind = False
    assert later.go_on()
    for _ in range(3):
        later.run(lambda: True)
    assert len(later.waiting[None]) == 3 * AGAIN, "without another commit"
