"""What a reload takes away, by the turns that it takes."""

from __future__ import annotations

from stompbox.config import Configuration
from stompbox.config.tables import PermissionTable
from stompbox.security import Right, User
from stompbox.server.configuring import permissions_of
from stompbox.server.revoking import FEW, STEP, requiring_still, revoking
from tests.server.turning import LOOKS, World


def test_very_many_connections_are_held_to_new_rights_in_portions() -> None:
    world = World()
    clients = [world.client() for _ in range(100)]
    for client in clients:
        client.say(
            ("SUBSCRIBE", {"id": "1", "destination": "/topic/t"}),
            ("SUBSCRIBE", {"id": "2", "destination": "/topic/other"}),
        )
    world.until_idle()
    world.broker.permissions = permissions_of(
        Configuration(memory=True, permissions=(PermissionTable(match="t", consume=("nobody",)),))
    )
    told: list[str] = []
    world.broker.turns.run(revoking(world.broker), lambda: told.append("done"))
    ended = len([client for client in clients if client.errors()])
    assert ended <= LOOKS
    assert told == []
    clients[-1].socket.connection_lost(None)
    while world.broker.turns.waiting:
        world.turn()
        before, ended = ended, len([client for client in clients if client.errors()])
        assert ended - before <= LOOKS + 1
    assert told == ["done"]
    assert ended == 99
    assert "t" not in world.broker.engine.addresses, "nobody is subscribed any more"


def test_very_many_subscriptions_of_one_connection_are_asked_for_in_portions() -> None:
    world = World()
    client = world.client()
    for number in range(500):
        client.say(("SUBSCRIBE", {"id": str(number), "destination": f"/queue/{number}"}))
    world.until_idle()
    permissions = permissions_of(
        Configuration(memory=True, permissions=(PermissionTable(match="#", consume=("*",)),))
    )
    asked, require = [0], permissions.require

    def count(user: User, right: Right, address: str) -> None:
        asked[0] += 1
        require(user, right, address)

    permissions.require = count  # type: ignore[method-assign]
    world.broker.permissions = permissions
    steps = revoking(world.broker)
    before = most = 0
    for _ in steps:
        most, before = max(most, asked[0] - before), asked[0]
    assert asked[0] == 500
    assert most <= FEW
    assert client.errors() == []


def test_what_a_transaction_needs_is_asked_for_again_in_portions_and_each_once() -> None:
    world = World()
    client = world.client()
    client.say(("BEGIN", {"transaction": "t"}))
    for number in range(500):
        send = ("SEND", {"destination": f"/topic/{number}", "transaction": "t", f"name-{number}": "1"})
        client.say(send, send)
    world.until_idle()
    permissions = permissions_of(
        Configuration(memory=True, permissions=(PermissionTable(match="#", send=("*",)),))
    )
    asked, require = [0], permissions.require

    def count(user: User, right: Right, address: str) -> None:
        asked[0] += 1
        require(user, right, address)

    permissions.require = count  # type: ignore[method-assign]
    world.broker.permissions = permissions
    world.broker.turns.run(revoking(world.broker), lambda: None)
    world.until_idle()
    [transaction] = client.connection.transactions.values()
    before = most = 0
    for _ in requiring_still(client.connection, transaction):
        most, before = max(most, asked[0] - before), asked[0]
    assert asked[0] == 500
    assert most <= STEP
    client.say(("COMMIT", {"transaction": "t", "receipt": "c"}))
    world.until_idle()
    assert client.confirmed() == ["c"]
    assert asked[0] == 1000
    assert client.errors() == []
