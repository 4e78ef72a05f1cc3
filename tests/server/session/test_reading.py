"""What has come and waits is counted as it comes, and not gone through with each piece more."""

from __future__ import annotations

from tests.server.turning import World


class Piece(bytes):
    looks = 0

    def __len__(self) -> int:
        Piece.looks += 1
        return super().__len__()


def test_a_piece_more_costs_the_same_however_many_wait() -> None:
    world = World()
    client = world.client()
    reading = client.connection.reading
    reading.hold()
    Piece.looks = 0
    for number in range(1, 1001):
        client.socket.data_received(Piece(b"\n" * 10))
        assert reading.unobeyed == 10 * number
    assert Piece.looks < 10 * 1000
    assert client.connection.account.size >= reading.unobeyed
    reading.go_on()
    world.until_idle()
    assert reading.unobeyed == 0
    assert not client.errors()


def test_nothing_waits_of_who_has_ended() -> None:
    world = World()
    client = world.client()
    reading = client.connection.reading
    reading.hold()
    client.socket.data_received(b"\n" * 10_000)
    client.socket.connection_lost(None)
    assert reading.unobeyed == 10_000, "who sends and closes has sent"
    client.connection.end(is_failure=True)
    assert reading.unobeyed == 0
