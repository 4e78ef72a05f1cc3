"""A broker for tests: of this process, in memory, on a free port, with faults on demand and a clock that a test advances.

    broker      `Broker`: what a test says and asks, from any thread and from any event loop
    inside      the broker behind it, in a thread and a loop of its own, and its clock
    sockets     what a test does to connections: they are stalled, dropped, refused
    recording   the frames that came and went, and the messages in them

Needs no pytest; the fixtures `stomp_broker` and `stomp_client` (`stompbox.pytest_plugin`) are made of this.
"""

from __future__ import annotations

from stompbox.testing.broker import Broker
from stompbox.testing.inside import Held
from stompbox.testing.recording import Exchanged
from stompbox.testing.sockets import Connected, Fault

__all__ = ["Broker", "Connected", "Exchanged", "Fault", "Held"]
