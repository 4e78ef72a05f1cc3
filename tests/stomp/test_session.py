"""The table of legality: nothing but CONNECT leads to CONNECTING, nothing but `open` from there to OPEN."""

from __future__ import annotations

import pytest

from stompbox.errors import IllegalFrame
from stompbox.stomp.frames import CLIENT_COMMANDS, Frame
from stompbox.stomp.session import LEGAL, Session, SessionState

WHOLE = {"destination": "/queue/a", "transaction": "t", "id": "1", "message-id": "1-1", "subscription": "1"}


def connecting() -> Session:
    session = Session()
    session.receive(Frame("CONNECT", {"accept-version": "1.2"}))
    return session


@pytest.mark.parametrize("command", sorted(CLIENT_COMMANDS))
def test_nothing_is_legal_before_connected(command: str) -> None:
    session = connecting()
    assert session.state is SessionState.CONNECTING
    with pytest.raises(IllegalFrame) as caught:
        session.receive(Frame(command, WHOLE))
    assert (caught.value.code, caught.value.closes) == ("not-connected", True)
    assert session.state is SessionState.CONNECTING


def test_open_alone_leads_out_of_connecting() -> None:
    assert not [
        key
        for key, after in LEGAL.items()
        if key[0] is SessionState.CONNECTING
        or (after is SessionState.OPEN and key[0] is not SessionState.OPEN)
    ]
    session = connecting()
    session.open()
    session.receive(Frame("SEND", {"destination": "/queue/a"}))
    assert session.is_open


@pytest.mark.parametrize("state", [state for state in SessionState if state is not SessionState.OPEN])
def test_runs_are_refused_wherever_frames_are(state: SessionState) -> None:
    session = Session()
    session.state = state
    with pytest.raises(IllegalFrame):
        session.require_open("SEND")
