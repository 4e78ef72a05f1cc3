"""One request that an endpoint obeys: who asks, with which parameters and body, and when what it changed is on disk.

Decides how long a body may be and may take, and how an answer waits. What comes of a request is the endpoint's (endpoints.py).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request

from stompbox.admin.access import BROKER, user_of
from stompbox.admin.endpoints import naming
from stompbox.broker.addresses.destinations import require_short
from stompbox.broker.addresses.makers import Maker
from stompbox.broker.queues.consumer import taken_off
from stompbox.config import ListenerOptions
from stompbox.errors import FrameError, IllegalFrame
from stompbox.security import Right, User
from stompbox.server.requests.replies import stored

if TYPE_CHECKING:
    from stompbox.admin.history import History
    from stompbox.admin.lag import Lags
    from stompbox.admin.metrics import Metrics
    from stompbox.admin.sessions import Sessions
    from stompbox.config.origins import Loaded
    from stompbox.server.broker import Broker

log = logging.getLogger("stompbox.operators")

LIMITS: Final = ListenerOptions()  # of what users make here: those of a listener that says nothing else
TOLD: Final = 500  # octets of a request in the log
BODY_WITHIN: Final = 10.0  # seconds
ANSWER_WITHIN: Final = 30.0  # seconds
PART: Final = 16  # queues, or whatever it is, that are let go in one step

T = TypeVar("T")

# msgspec says where a wrong value stands, or which field is missing or unknown
_AT: Final = re.compile(r"at `(?:key in )?\$\.?([^`]*)`$")
_FIELD: Final = re.compile(r"(?:unknown|required) field `([^`]*)`")


class ApiRequest:
    """A request, and what an endpoint needs to obey it. `values`: what the URL says, by parameter; `order`: the body, as the endpoint's
    form."""

    def __init__(self, broker: Broker, request: Request, shared: Shared) -> None:
        self.broker = broker
        self.request = request
        self.shared = shared
        self.values: dict[str, Any] = {}
        self.order: Any = None
        self.asked = b""  # the body as it came
        self.has_begun = False
        self._kept: list[list[Any]] = []

    def keep(self, items: list[T]) -> list[T]:
        """A list of what may go before the answer is made, and is in this one alone then. `let_go` empties it."""
        self._kept.append(items)
        return items

    def let_go(self) -> None:
        """The request is done: what has gone meanwhile goes in steps, and not with its list."""
        if self._kept:
            self.broker.turns.run(self._letting_go())

    def _letting_go(self) -> Iterator[None]:
        for items in self._kept:
            for _ in taken_off(items, PART):
                yield

    @property
    def user(self) -> User:
        return user_of(self.request)

    def require(self, right: Right = Right.MANAGE, address: str = BROKER) -> None:
        """Raises Refused when the user has not this right there, IllegalFrame for a name that no address can have: a client may not say one
        either, and to look for what permissions say of it takes long."""
        require_short(address)
        self.broker.permissions.require(self.user, right, address)

    def may(self, right: Right = Right.MANAGE, address: str = BROKER) -> bool:
        return self.broker.permissions.may(self.user, right, address)

    @property
    def maker(self) -> Maker | None:
        """For whom counts what the request makes; None: for nobody, for the user may manage the broker."""
        if self.may():
            return None
        return Maker(self.user.name, LIMITS.max_addresses_per_user, LIMITS.max_queues_per_user)

    def loaded(self) -> Loaded | None:
        """The configuration that counts, with its origins; None where nobody has read it."""
        readings = self.broker.readings
        return None if readings is None else readings.counting()

    def tell(self) -> None:
        """The log says who has done what."""
        who, peer = self.user.name, self.request.client
        path, asked = self.request.scope["path"], self.asked[:TOLD].decode("utf-8", "replace")
        where = peer.host if peer else "?"
        log.info("operator %r from %s: %s %s", who, where, path, asked, extra={"user": who})

    async def read(self, form: type[Struct], most: int) -> None:
        """The body becomes the order. Raises what names the field that is wrong."""
        self.asked = await self._body(most)
        try:
            self.order = msgspec.json.decode(self.asked, type=form)
        except (ValueError, RecursionError) as error:  # a wrong type, no JSON, no UTF-8, or nested too deep
            field = field_in(str(error))
            choices = choices_of(form, field) if "enum" in str(error) else ""
            fault = f"the body is not what {self.request.scope['path']} needs: {error}{choices}"
            with naming(field):
                raise IllegalFrame("bad-json", fault) from None

    async def _body(self, most: int) -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_WITHIN):
                async for part in self.request.stream():
                    body += part
                    if len(body) > most:
                        raise FrameError("body-too-large", f"the body is longer than {most} bytes")
        except TimeoutError:
            raise IllegalFrame("bad-json", f"the body did not come within {BODY_WITHIN:.0f} s") from None
        except ClientDisconnect:  # or what it said is no body
            raise IllegalFrame("bad-json", "the body did not come to its end") from None
        return bytes(body)

    def say(self, instead: object) -> None:
        """The log shows this in place of the body, which has what it must not show."""
        self.asked = msgspec.json.encode(instead)

    def forget(self) -> None:
        """The log does not show the body, which has a passcode."""
        self.asked = b""

    def begin(self) -> None:
        """Tells the engine the time, before what follows changes something. A fault from here on stops the broker, and one before it has
        changed nothing: so this comes when all that was said has been looked at."""
        self.has_begun = True
        self.broker.set_time()

    async def done(self, begin: Callable[[Callable[[], None]], None]) -> bool:
        """Begins what goes on in portions, and calls what it was given at the end. False when that takes longer than ANSWER_WITHIN."""
        done: asyncio.Future[None] = self.broker.loop.create_future()
        begin(lambda: None if done.done() else done.set_result(None))
        self.broker.flush()
        await asyncio.wait([done], timeout=ANSWER_WITHIN)
        await self.durable()
        return done.done()

    async def durable(self) -> None:
        """Waits until what was done is on disk."""
        await stored(self.broker)


class Shared:
    """What the requests of one admin interface have in common."""

    def __init__(
        self,
        lags: Lags,
        history: History,
        metrics: Metrics,
        sessions: Sessions,
    ) -> None:
        self.sessions = sessions
        self.making = asyncio.Lock()  # messages are made an answer one after the other: they may be large
        self.lags = lags
        self.history = history
        self.metrics = metrics


def field_in(problem: str) -> str:
    """Which field msgspec speaks of, as a path with dots; empty where it is the body as a whole."""
    at, named = _AT.search(problem), _FIELD.search(problem)
    path = at[1] if at else ""
    if named:
        path = f"{path}.{named[1]}" if path else named[1]
    return path


def choices_of(form: type[Struct], field: str) -> str:
    """The values that a field of an enumeration may have, as the end of a sentence; empty for other fields."""
    kind = get_type_hints(form).get(field)
    for each in (kind, *get_args(kind)):
        if isinstance(each, type) and issubclass(each, Enum):
            return f"; allowed are {', '.join([str(one.value) for one in each])}"
    return ""
