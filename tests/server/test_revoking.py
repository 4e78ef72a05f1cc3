"""What a reload takes away, by the turns that it takes."""

from __future__ import annotations

from stompbox.config import Configuration
from stompbox.config.tables import PermissionTable, UserTable
from stompbox.security import Right, User, Users
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


def test_what_a_transaction_holds_is_asked_for_again_as_soon_as_there_are_other_rights() -> None:
    """Not only when its connection, one of very many, is come to."""
    world = World()
    client = world.client()
    send = ("SEND", {"destination": "/topic/t", "transaction": "t"})
    client.say(("BEGIN", {"transaction": "t"}), send)
    world.broker.permissions = permissions_of(
        Configuration(memory=True, permissions=(PermissionTable(match="t", send=("nobody",)),))
    )
    client.say(("COMMIT", {"transaction": "t"}))
    world.until_idle()
    assert client.errors() == ["not-permitted"]


def test_rights_that_have_changed_cost_nothing_for_each_connection_at_once() -> None:
    world = World()
    clients = [world.client() for _ in range(LOOKS)]
    for client in clients:
        client.say(*[("BEGIN", {"transaction": str(number)}) for number in range(50)])
    world.until_idle()
    [first, *_] = world.broker.connections
    first.user = User("somebody", frozenset({"else"}))
    doubted: list[int] = []
    for _ in revoking(world.broker):
        open_ones = [one for client in clients for one in client.connection.transactions.values()]
        doubted.append(len([one for one in open_ones if not one.rights]))
    assert doubted[0] == 0
    assert doubted[-1] == 50, "whoever it is now has not asked for what they hold"


def test_who_may_no_longer_consume_gets_nothing_while_others_end() -> None:
    world = World()
    sender, clients = world.client(), [world.client("1.2") for _ in range(30)]
    for client in clients:
        client.say(("SUBSCRIBE", {"id": "1", "destination": "/queue/q", "ack": "client"}))
    world.until_idle()
    world.broker.permissions = permissions_of(
        Configuration(
            memory=True, permissions=(PermissionTable(match="q", send=("*",), consume=("nobody",)),)
        )
    )
    steps = revoking(world.broker)
    while not any(client.errors() for client in clients):
        next(steps)
    sender.say(*[("SEND", {"destination": "/queue/q"})] * 100)
    for _ in steps:
        world.turn()
    world.until_idle()
    assert [client.errors() for client in clients] == [["not-permitted"]] * 30
    assert [client.bodies() for client in clients] == [[]] * 30
    assert sender.errors() == []
    assert world.broker.engine.addresses["q"].anycast["q"].count == 100


def test_who_is_no_user_any_more_says_nothing_while_others_end() -> None:
    world = World(users=(UserTable(name="known", password="p"),))
    login = {"login": "known", "passcode": "p"}
    clients = [world.client("1.2", login) for _ in range(30)]
    for client in clients:
        client.say(("SUBSCRIBE", {"id": "1", "destination": "/queue/q", "ack": "client"}))
    world.until_idle()
    world.broker.users = Users([UserTable(name="other", password="p")])
    steps = revoking(world.broker)
    while not any(client.errors() for client in clients):
        next(steps)
    for client in clients:
        client.say(("SEND", {"destination": "/queue/q"}))
    for _ in steps:
        world.turn()
    world.until_idle()
    assert [client.errors() for client in clients] == [["login-revoked"]] * 30
    assert [client.bodies() for client in clients] == [[]] * 30
    assert "q" not in world.broker.engine.addresses, "nobody has sent anything to it"
