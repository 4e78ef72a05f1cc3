"""What a sink publishes is made fewer runs, and stays the same messages in the same order at each destination."""

from __future__ import annotations

import random

import pytest

from stompbox.message import Run, Shape
from stompbox.stomp.shapes import shape_of
from stompbox.store import cutting
from stompbox.store.cutting import gather, size_of


def shape(destination: str, **headers: str) -> Shape:
    return shape_of({"destination": destination, **headers, "id": ""}, holes=("id",))


def told(runs: list[Run], destination: str) -> list[tuple[dict[str, str], bytes]]:
    return [
        (run.headers(at), run.bodies[at])
        for run in runs
        if run.shape.destination == destination
        for at in range(len(run))
    ]


def test_neighbours_of_one_shape_become_one() -> None:
    seeded = random.Random(3)
    runs, number = [], 0
    for _ in range(500):
        count = seeded.randint(1, 3)
        numbers = [b"%d" % (number + at) for at in range(count)]
        headers = {"kind": "rare"} if seeded.random() < 0.01 else {}
        # a shape of its own each, as from a blob
        runs.append(Run(shape(f"/queue/{seeded.randint(0, 4)}", **headers), numbers, (numbers,)))
        number += count
    found = gather(runs)
    assert len(found) < 50
    for queue in range(5):
        assert told(found, f"/queue/{queue}") == told(runs, f"/queue/{queue}")
    assert all(run.size == sum(map(len, run.bodies)) for run in found)


def test_what_stands_between_two_of_a_shape_stays_there() -> None:
    first, other = shape("/queue/a"), shape("/queue/a", kind="b")
    runs = [
        Run(one, [body], ([b"1"],))
        for one, body in ((first, b"1"), (other, b"2"), (first, b"3"), (first, b"4"))
    ]
    assert [run.bodies for run in gather(runs)] == [[b"1"], [b"2"], [b"3", b"4"]]


def test_runs_do_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    same = shape("/queue/a")
    runs = [Run(same, [b"x" * 10], ([b"1"],)) for _ in range(7)]
    monkeypatch.setattr(cutting, "MOST_GATHERED", 3 * size_of(runs[0]))
    found = gather(runs)
    assert [len(run) for run in found] == [3, 3, 1]
    large = Run(same, [b"x" * 1000], ([b"1"],))
    assert gather([large, large]) == [large, large]
