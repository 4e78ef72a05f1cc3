from __future__ import annotations

from typing import Any

import pytest

from stompbox.message import _KNOWN, MULTICAST, Run, Shape, room_of, shaped

SHAPE = Shape(
    {"destination": "/queue/a", "x": "1"},
    holes=("id",),
    persistent=True,
    priority=7,
    expires=9,
    has_length=False,
)


def run(first: int = 10) -> Run:
    return Run(
        SHAPE,
        [b"a", b"b", b"c"],
        ([b"1", b"2", b"3"],),
        first=first,
        arrived=5,
        routing=MULTICAST,
        sender=3,
        queue="q",
    )


def facts(run: Run) -> list[object]:
    return [
        list(run.bodies),
        [list(column) for column in run.columns],
        run.first,
        run.arrived,
        run.routing,
        run.sender,
        run.queue,
    ]


def test_a_part_of_a_run_is_what_it_was_in_the_whole() -> None:
    part = run().part(1, 3)
    assert facts(part) == [[b"b", b"c"], [[b"2", b"3"]], 11, 5, MULTICAST, 3, "q"]
    assert (part.shape, part.size) == (SHAPE, 2)


def test_a_part_of_what_has_no_offsets_has_none() -> None:
    assert run(first=-1).part(1, 2).first == -1


def test_a_part_may_have_another_shape_bodies_and_routing() -> None:
    part = run().part(
        0, 1, shape=SHAPE.with_headers({"destination": "/queue/b"}, holes=()), bodies=[b"new"], routing=1
    )
    assert facts(part) == [[b"new"], [], 10, 5, 1, 3, "q"]


def meaning(shape: Shape) -> tuple[object, ...]:
    return shape.headers, shape.holes, shape.persistent, shape.priority, shape.expires, shape.has_length


def test_headers_are_changed_and_all_else_stays() -> None:
    headers = {"destination": "/queue/b"}
    assert meaning(SHAPE.with_headers(headers)) == (headers, ("id",), True, 7, 9, False)
    assert meaning(SHAPE.with_headers(headers, holes=(), expires=0, default_persistent=False)) == (
        headers,
        (),
        True,
        7,
        0,
        False,
    )
    assert Shape(headers).with_headers(headers, default_persistent=False).persistent is False


def test_what_says_the_same_is_the_same_shape_and_nothing_else_is() -> None:
    said: dict[str, Any] = {
        "headers": {"destination": "/queue/a", "x": "1"},
        "holes": ("id",), "persistent": None, "priority": 4, "expires": 0, "has_length": True,
    }  # fmt: skip
    others: list[dict[str, Any]] = [
        {"headers": {"x": "1", "destination": "/queue/a"}}, {"headers": {"destination": "/queue/a", "x": "2"}}, {"holes": ()},
        {"persistent": False}, {"persistent": True}, {"priority": 5}, {"expires": 1}, {"has_length": False},
    ]  # fmt: skip
    shape = shaped(**said)
    assert shaped(**{**said, "headers": dict(said["headers"])}) is shape
    different = [shaped(**{**said, **other}) for other in others]
    assert len({id(one) for one in [shape, *different]}) == 1 + len(others)
    for other, found in zip(others, different, strict=True):
        assert meaning(found) == tuple({**said, **other}.values())
        assert list(found.headers) == list(other.get("headers", said["headers"])), "in their order"


def test_shapes_that_are_kept_for_others_have_a_limit() -> None:
    for number in range(20_000):
        shaped(
            {"destination": "/queue/a", "x": f"{number}" * 20},
            holes=(), persistent=None, priority=4, expires=0, has_length=True,
        )  # fmt: skip
    assert 100 < len(_KNOWN) < 1000
    large = {"destination": "/queue/a", "x": "x" * (1 << 20)}
    assert SHAPE.with_headers(large) is not SHAPE.with_headers(large), "it would be half of what is kept"


@pytest.mark.parametrize(
    ("character", "octets"), [("x", 1), ("\xe9", 1), ("\N{EURO SIGN}", 2), ("\N{GRINNING FACE}", 4)]
)
def test_a_text_takes_as_much_as_python_gives_its_characters(character: str, octets: int) -> None:
    assert 0 <= room_of(character * 10_000) - octets * 10_000 < 100
