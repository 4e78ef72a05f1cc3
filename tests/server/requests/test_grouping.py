"""What one request says of very many positions is done in turns, and each turn sees the group as it is then."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from stompbox.errors import Refused
from stompbox.server.requests import grouping
from stompbox.server.requests.grouping import group_commit, group_list, group_open
from stompbox.server.requests.replies import Reply
from stompbox.stomp.frames import Frame
from tests.server.turning import LOOKS, Client, World

MANY = 1500


def asked(
    client: Client, handler: Callable[[Any, Frame], Awaitable[Reply]], wish: object = None, **headers: str
) -> Coroutine[Any, Any, Any]:
    """The answer, when it is driven."""
    body = b"" if wish is None else json.dumps(wish).encode()
    frame = Frame("SEND", {"request": "any", "request-id": "1", **headers}, body)

    async def answer() -> Any:
        return json.loads(b"".join((await handler(client.connection, frame))[1]))

    return answer()


def with_group(addresses: int = 1) -> tuple[World, Client]:
    world = World()
    client = world.client()
    for number in range(addresses):
        client.say(("SEND", {"destination": f"/topic/t.{number}", "persistent": "false"}))
    wish = {"destinations": "t.#"}
    found = world.driven(asked(client, group_open, wish, group="g", starting="earliest"))
    assert found["positions"] == {f"t.{number}": 0 for number in range(addresses)}
    return world, client


def test_very_many_positions_are_moved_in_turns() -> None:
    world, client = with_group(3)
    wish = {f"t.{number}": 1 for number in range(MANY)}
    before = world.loop.turns
    found = world.driven(asked(client, group_commit, wish, group="g"))
    assert found == {"refused": {f"t.{number}": "no-such-address" for number in range(3, MANY)}}
    assert world.loop.turns - before >= 4 * MANY // LOOKS, "offsets, names, rights and positions"
    groups = [world.broker.engine.addresses[f"t.{number}"].groups["g"] for number in range(3)]
    assert [group.cursor.position for group in groups] == [1, 1, 1]


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_group_that_goes_meanwhile_is_moved_no_further(
    monkeypatch: pytest.MonkeyPatch, *, is_made_anew: bool
) -> None:
    world, client = with_group()
    engine = world.broker.engine

    def require_own(*_: object) -> None:
        if engine.group_owners.get("g"):
            raise Refused("not-permitted", "it is somebody else's")

    monkeypatch.setattr(grouping, "_require_own", require_own)
    wish = {**{f"x.{number}": 1 for number in range(MANY)}, "t.0": 1}
    work = asked(client, group_commit, wish, group="g")
    turns = 0
    with pytest.raises(Refused) as refused:
        while True:
            waiter = work.send(None)
            while not waiter.done():
                world.turn()
                turns += 1
            if turns == 4 * MANY // LOOKS:  # the positions are being moved
                if is_made_anew:
                    engine.group_owners["g"] = "somebody else"
                else:
                    del engine.group_patterns["g"]
                    del engine.group_owners["g"]
    assert refused.value.code == ("not-permitted" if is_made_anew else "no-such-group")
    assert engine.addresses["t.0"].groups["g"].cursor.position == 0


def longest_list(groups: int) -> int:
    """Lines of the longest step while so many groups on one address are listed."""
    world, client = with_group()
    for number in range(groups):
        wish = {"destinations": "t.0"}
        world.driven(asked(client, group_open, wish, group=f"g{number}", starting="earliest"))
    frame = Frame("SEND", {"request": "groups", "request-id": "1"})
    world.driven(group_list(client.connection, frame))
    with world.steps() as steps:
        _, body = world.driven(group_list(client.connection, frame))
    found = json.loads(b"".join(body))["groups"]
    assert len(found) == groups + 1 and found["g0"]["addresses"]["t.0"]["position"] == 0
    return steps.longest


def test_no_step_of_a_list_grows_with_the_groups_of_an_address() -> None:
    assert longest_list(300) <= 2 * longest_list(60)
