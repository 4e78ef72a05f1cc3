"""What a reload takes away, by the turns that it takes."""

from __future__ import annotations

from stompbox.config import Configuration
from stompbox.config.tables import PermissionTable
from stompbox.server.configuring import permissions_of
from stompbox.server.revoking import revoking
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
