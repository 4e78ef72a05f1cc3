"""Messages that are sent again and again: whose they are, who sees and ends them. What they do is in broker/addresses/repeating.py.

    schedules     those of the user, and of the addresses that it may manage; with a header `address` of that one alone
    unschedule    ends the one that the header `id` names: its messages' `scheduledJobId`

A schedule sends as long as the user who made it may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stompbox.broker.addresses.repeating import Schedule
from stompbox.config.spaces import local, space_of
from stompbox.errors import Refused
from stompbox.security import Right
from stompbox.server.addressing.brokerheaders import spelled
from stompbox.server.owners import is_own, owner_of, require
from stompbox.server.requests.replies import Reply, durable, header, in_turns, json_reply, qualified
from stompbox.stomp.frames import Frame

if TYPE_CHECKING:
    from stompbox.server.requests.asker import Asker, RequestsCore

MOST_LISTED: Final = 1000  # in one answer


def attend(broker: RequestsCore) -> None:
    """Tells the engine's schedules whose they are, and what their users may."""

    def owner(session: int) -> str:
        known = broker.publications.owners.get(session)  # whose connection may have ended
        return (
            next((owner_of(one) for one in broker.connections if one.session_id == session), "")
            if known is None
            else known
        )

    def may_send(name: str, address: str) -> bool:
        user = broker.users.named(name)
        return not name or (user is not None and broker.permissions.may(user, Right.SEND, address))

    def numbers(session: int) -> bool:
        return any(
            one.options.stomp_enable_message_id for one in broker.connections if one.session_id == session
        )

    known = broker.engine.schedules
    known.owner_of, known.may_send = owner, may_send
    known.numbers_of, known.new_number = numbers, lambda: spelled(next(broker.numbers))
    known.limit(broker.configuration.max_scheduled_bytes)


async def schedules(connection: Asker, frame: Frame) -> Reply:
    wanted = qualified(connection, frame, "address") if "address" in frame.headers else None
    found: list[dict[str, object]] = []
    async for one in in_turns(
        connection.broker.turns, list(connection.broker.engine.schedules.known.values())
    ):
        is_there = wanted in (None, one.address) and space_of(one.address) == connection.names.space
        if is_there and len(found) < MOST_LISTED and _is_seen(connection, one):
            found.append(_shown(one))
    return json_reply({"schedules": found})


def _is_seen(connection: Asker, one: Schedule) -> bool:
    """Whose it is sees it; where nobody is known by name, whoever may send there."""
    is_user = is_own(connection, one.owner, [one.address])
    return is_user and connection.broker.permissions.may(connection.user, Right.SEND, one.address)


def _shown(one: Schedule) -> dict[str, object]:
    times = {"cron": one.cron, "delay": one.delay, "period": one.period, "repeat": one.repeat}
    return {
        "id": one.id,
        "address": local(one.address),
        "user": one.owner,
        "next": one.next,
        "left": one.left,
        **times,
    }


async def unschedule(connection: Asker, frame: Frame) -> Reply:
    id, known = header(frame, "id"), connection.broker.engine.schedules
    one = known.known.get(id)
    if one is None or space_of(one.address) != connection.names.space:
        raise Refused("no-such-schedule", f"there is no schedule {id[:80]!r} (any more)")
    connection.broker.permissions.require(connection.user, Right.SEND, one.address)
    require(connection, one.owner, f"schedule {id[:80]!r}", [one.address])
    known.end(one)
    await durable(connection)
    return json_reply({})
