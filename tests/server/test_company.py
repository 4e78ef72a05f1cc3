"""Who waits for commits together stays together: one commit for all of them, and none waits long for who does not come."""

from __future__ import annotations

from stompbox.server.company import LOOKS, Company
from tests.server.turning import Client, World

TOGETHER = 4


def send(client: Client, receipt: str) -> None:
    octets = client.octets([("SEND", {"destination": "/queue/a", "persistent": "true", "receipt": receipt})])
    client.socket.data_received(octets)


def served(world: World) -> list[Client]:
    """Clients that a commit has answered together."""
    clients = [world.client() for _ in range(TOGETHER)]
    world.turn()
    for client in clients:
        send(client, "first")
    world.turn()
    world.until_stored()
    world.turn()
    assert [client.confirmed() for client in clients] == [["first"]] * TOGETHER
    return clients


def test_who_answers_a_turn_later_shares_the_commit() -> None:
    world = World(is_durable=True)
    clients = served(world)
    before = world.broker.committer.applied
    for client in clients:
        send(client, "second")
        world.turn()
    world.until_stored()
    world.turn()
    assert [client.confirmed() for client in clients] == [["first", "second"]] * TOGETHER
    assert world.broker.committer.applied == before + 1


def test_who_does_not_come_is_waited_for_a_few_turns_alone() -> None:
    world = World(is_durable=True)
    client, *_ = served(world)
    send(client, "second")
    world.turn(LOOKS)
    assert not world.broker.committer.is_busy
    world.turn(2)
    world.until_stored()
    world.turn()
    assert client.confirmed() == ["first", "second"]


def test_who_is_alone_is_not_kept_waiting() -> None:
    company = Company()
    assert company.is_whole(1, is_turn_over=False)
    company.served = 1
    assert company.is_whole(1, is_turn_over=False)
    assert not company.is_whole(2, is_turn_over=False), "others may have something in this turn"
    assert company.is_whole(2, is_turn_over=True)


def test_each_commit_has_its_own_looks() -> None:
    company = Company()
    company.served = 3
    for _ in range(2):
        assert [company.is_worth_a_look(1) for _ in range(LOOKS + 1)] == [True] * LOOKS + [False]
        company.goes()
    assert not company.is_worth_a_look(3)
