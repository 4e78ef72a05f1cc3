"""When reading stops and goes on."""

from __future__ import annotations

from stompbox.client.intake import Intake


class Socket:
    def __init__(self) -> None:
        self.awaits = False
        self.is_reading = True

    def pause_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True


def attached(buffer: int = 100, limit: int = 1000) -> tuple[Intake, Socket]:
    intake, socket = Intake(buffer, limit), Socket()
    intake.attach(socket)
    return intake, socket


def test_stops_when_full_and_goes_on_when_half_empty() -> None:
    intake, socket = attached()
    intake.added(99)
    assert socket.is_reading
    intake.added(1)
    assert not socket.is_reading
    intake.taken(49)
    assert not socket.is_reading
    intake.taken(1)
    assert socket.is_reading
    assert intake.pauses == 1


def test_reads_on_for_a_call_that_waits_but_not_beyond_the_limit() -> None:
    intake, socket = attached()
    socket.awaits = True
    intake.added(999)
    assert socket.is_reading
    intake.added(1)
    assert not socket.is_reading


def test_a_call_that_begins_to_wait_starts_reading_again() -> None:
    intake, socket = attached()
    intake.added(200)
    assert not socket.is_reading
    socket.awaits = True
    intake.regulate()
    assert socket.is_reading
    socket.awaits = False
    intake.added(1)
    assert not socket.is_reading


def test_a_new_connection_is_judged_by_what_still_waits() -> None:
    intake, _socket = attached()
    intake.added(100)
    intake.attach(None)
    intake.added(5)
    another = Socket()
    intake.attach(another)
    assert not another.is_reading
    intake.taken(105)
    assert another.is_reading
    assert repr(intake) == "<Intake 0 of 100 octets>"
