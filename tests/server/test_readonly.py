"""What a listener with `readOnly` takes, and what it refuses; tests/server/cluster/test_view.py has it on the wire."""

from __future__ import annotations

from typing import Any

import pytest

from stompbox.errors import Refused
from stompbox.server import readonly
from stompbox.server.frames.commands import COMMANDS
from stompbox.server.requests.dispatch import REQUESTS

NOTHING = {"is_browser": False, "is_reader": False, "is_named": False, "has_arguments": False}


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_commands(command: str) -> None:
    if command in ("ACK", "NACK", "BEGIN", "COMMIT", "ABORT"):
        with pytest.raises(Refused, match=f"^{command}: ") as refused:
            readonly.require_command(command)
        assert refused.value.code == "read-only"
    else:
        readonly.require_command(command)


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_requests(name: str) -> None:
    if name in ("describe", "fetch", "groups", "offset-at", "schedules"):
        readonly.require_request(name, {"create": "false"})
        with pytest.raises(Refused, match="create:true"):
            readonly.require_request(name, {"create": "true"})
    else:
        with pytest.raises(Refused, match=f"^request {name}: "):
            readonly.require_request(name, {})


@pytest.mark.parametrize(
    ("headers", "asked", "refused"),
    [
        ({}, {"is_reader": True}, ""),
        ({"ack": "auto"}, {"is_browser": True}, ""),
        ({}, {"is_browser": True, "is_named": True}, ""),
        ({}, {}, "neither a browser"),
        ({}, {"is_reader": True, "is_named": True}, "durable name"),
        ({}, {"is_browser": True, "has_arguments": True}, "arguments"),
        ({"ack": "client"}, {"is_reader": True}, "ack:client"),
        ({"ack": "client-individual"}, {"is_browser": True}, "ack:client-individual"),
        ({"transaction": "t"}, {"is_reader": True}, "transaction"),
    ],
)
def test_subscriptions(headers: dict[str, str], asked: dict[str, Any], refused: str) -> None:
    if not refused:
        readonly.require_subscription(headers, **{**NOTHING, **asked})
        return
    with pytest.raises(Refused, match=f"^SUBSCRIBE .*{refused}") as found:
        readonly.require_subscription(headers, **{**NOTHING, **asked})
    assert found.value.code == "read-only"
