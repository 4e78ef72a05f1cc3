"""Logins from anywhere, STOMP or HTTP: which are looked at, when, and by how many threads.

What can be said at once (a passcode that was good before, one in plain text) is said at once. An argon2 hash takes tens of milliseconds
and megabytes on purpose; it is verified in a pool of threads that do nothing else, `login-threads` of them with no more than
`max-login-memory` together. Client addresses get their turns one after the other, so a login waits for one of each other address at most,
however many guesses those have sent. No more than `max-waiting-logins` wait; beyond, who has most waiting goes without.

A login counts as failed before it is looked at (security.FailedLogins). One that finds its address or name at the limit waits for those
that are being looked at, for they may be right; so any number of right logins from one address pass, and of guesses only `limit` do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stompbox.errors import Refused
from stompbox.security import FailedLogins, User, Users, network_of

if TYPE_CHECKING:
    from stompbox.config import Configuration
    from stompbox.server.seam import Core


log = logging.getLogger("stompbox.connection")


@dataclass(frozen=True, slots=True)
class Login:
    """Who has logged in, and what by: `proof` is what the passcode was verified against (Users.again)."""

    user: User
    proof: str | None = None


class _Attempt:
    """One login that nothing is known of yet."""

    __slots__ = ("answer", "is_gone", "is_ready", "login", "network", "passcode", "peer")

    def __init__(
        self, peer: str, login: str, passcode: str, is_gone: Callable[[], bool], answer: asyncio.Future[Login]
    ) -> None:
        self.peer = peer
        self.network = network_of(peer)
        self.login = login
        self.passcode = passcode
        self.is_gone = is_gone
        self.answer = answer
        self.is_ready = False


class Logins:
    """The logins of one broker that are looked at, or wait for it."""

    def __init__(self, broker: Core) -> None:
        self.broker = broker
        self.failures = FailedLogins()
        self.threads = 0
        self._limits: tuple[int, ...] = ()
        self._pool: ThreadPoolExecutor | None = None
        self.obey(broker.configuration)
        self._waiting: dict[str, dict[_Attempt, None]] = {}  # by client network, in the order of their turns
        self._judged: dict[_Attempt, int] = {}  # in the pool, and the memory that they take there

    def obey(self, configuration: Configuration) -> None:
        """Limits are these from now on. Failures are forgotten when theirs have changed."""
        limits = (
            configuration.failed_login_delay, configuration.max_failed_login_delay, configuration.max_failed_logins,
            configuration.max_failed_logins_per_user, configuration.failed_login_window,
        )  # fmt: skip
        if limits != self._limits:
            delay, most, limit, user_limit, window = self._limits = limits
            self.failures = FailedLogins(
                delay=delay, max_delay=most, limit=limit, user_limit=user_limit, window=window
            )
        if configuration.login_threads != self.threads:
            self.close()
            self.threads = configuration.login_threads
            self._pool = ThreadPoolExecutor(self.threads, "login")  # which starts a thread when it needs one

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def memory(self) -> int:
        """How many bytes of memory argon2 has now."""
        return sum(self._judged.values())

    async def log_in(
        self, peer: str, login: str | None, passcode: str | None, is_gone: Callable[[], bool] = lambda: False
    ) -> Login:
        """Whose login and passcode these are. `peer`: the client's address; `is_gone`: nobody waits for the answer any more.

        Raises Refused, in the same words for every reason that a guesser could learn from.
        """
        if login is None or passcode is None:
            raise Refused("login-required", "login and passcode are required")
        loop = self.broker.loop
        attempt = _Attempt(peer, login, passcode, is_gone, loop.create_future())
        wait = self.failures.wait(peer, loop.time(), login) if not self._is_in_company(attempt) else 0.0
        self._make_room(attempt)
        self._waiting.setdefault(attempt.network, {})[attempt] = None
        timer = loop.call_later(wait, self._ready, attempt) if wait else None
        if timer is None:
            self._ready(attempt)
        try:
            return await attempt.answer
        finally:
            if timer is not None:
                timer.cancel()
            self._forget(attempt)

    def _make_room(self, attempt: _Attempt) -> None:
        """Ends the wait of another login so that this one may wait. Raises Refused when it is its own address that has most of those who
        wait."""
        if self.waiting < self.broker.configuration.max_waiting_logins:
            return
        most = max(self._waiting.values(), key=len)
        if len(most) <= len(self._waiting.get(attempt.network, ())) + 1:
            raise _busy()
        last = next(reversed(most))
        self._forget(last)
        _refuse(last, _busy())

    def _ready(self, attempt: _Attempt) -> None:
        attempt.is_ready = True
        self._go_on()

    def _forget(self, attempt: _Attempt) -> None:
        waiting = self._waiting.get(attempt.network, {})
        waiting.pop(attempt, None)
        if not waiting:
            self._waiting.pop(attempt.network, None)

    def _go_on(self) -> None:
        """Says all that can be said at once, and gives the threads what they can take."""
        while (attempt := self._next()) is not None:
            self._forget(attempt)
            if attempt.network in self._waiting:  # the others of this address have had their turn
                self._waiting[attempt.network] = self._waiting.pop(attempt.network)
            self._look(attempt)

    def _next(self) -> _Attempt | None:
        """Whose turn it is; None when nobody can be looked at now."""
        users = self.broker.users
        for network in list(self._waiting):
            for attempt in list(self._waiting.get(network, ())):
                if not attempt.is_ready:
                    continue
                if attempt.is_gone():
                    self._forget(attempt)
                    attempt.answer.cancel()
                elif self._is_in_turn(attempt):
                    if users.is_right(attempt.login, attempt.passcode) is not None or self._has_room(attempt):
                        return attempt
                    break
                elif network in self._waiting and attempt in self._waiting[network]:
                    break
        return None

    def _is_in_turn(self, attempt: _Attempt) -> bool:
        """Whether it may be looked at. One of too many waits for those of its kind in the pool, which may be right, or is refused."""
        try:
            self.failures.wait(attempt.peer, self.broker.loop.time(), attempt.login)
        except Refused as error:
            if not self._is_in_company(attempt):
                self._forget(attempt)
                _refuse(attempt, error)
            return False
        return True

    def _is_in_company(self, attempt: _Attempt) -> bool:
        return any(attempt.network == other.network or attempt.login == other.login for other in self._judged)

    def _has_room(self, attempt: _Attempt) -> bool:
        memory = self.broker.users.memory(attempt.login)
        return (
            len(self._judged) < self.threads
            and self.memory + memory <= self.broker.configuration.max_login_memory
        )

    def _look(self, attempt: _Attempt) -> None:
        users = self.broker.users
        self.failures.failed(attempt.peer, self.broker.loop.time(), attempt.login)
        is_right = users.is_right(attempt.login, attempt.passcode)
        if is_right is not None:
            self._judge(attempt, users, is_right=is_right)
            return
        self._judged[attempt] = users.memory(attempt.login)
        verified = self.broker.loop.run_in_executor(
            self._pool, _is_right, users, attempt.login, attempt.passcode
        )
        verified.add_done_callback(lambda future: self._verified(attempt, users, future))

    def _verified(self, attempt: _Attempt, users: Users, future: asyncio.Future[bool]) -> None:
        del self._judged[attempt]
        if future.cancelled():
            attempt.answer.cancel()
        elif (fault := future.exception()) is not None:
            # argon2 has found no memory, say: the client has not failed
            log.error(
                "a login from %s could not be verified: %s", attempt.peer, str(fault) or type(fault).__name__
            )
            self.failures.forgive(attempt.peer, self.broker.loop.time(), attempt.login)
            _refuse(attempt, _busy())
        else:
            self._judge(attempt, users, is_right=future.result())
        self._go_on()

    def _judge(self, attempt: _Attempt, users: Users, *, is_right: bool) -> None:
        """Tells a client whether its login is right. Whoever was verified against what counts no more (a reload) has failed, too."""
        if not is_right:
            _refuse(attempt, Refused("login-failed", "login or passcode is wrong"))
            return
        self.failures.passed(attempt.peer, self.broker.loop.time(), attempt.login)
        proof = users.proof(attempt.login)
        try:
            user = self.broker.users.again(attempt.login, proof)
        except Refused as error:
            _refuse(attempt, error)
            return
        if not attempt.answer.done():
            attempt.answer.set_result(Login(user, proof))

    def close(self) -> None:
        """Takes no more logins; those that have begun come to their end."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def __repr__(self) -> str:
        return f"<Logins waiting={self.waiting} in {len(self._judged)} of {self.threads} threads, {self.memory} bytes>"


def _is_right(users: Users, login: str, passcode: str) -> bool:
    try:
        users.authenticate(login, passcode)
    except Refused:
        return False
    return True


def _busy() -> Refused:
    return Refused("logins-busy", "more logins wait than the broker can verify; try again in a moment")


def _refuse(attempt: _Attempt, error: Refused) -> None:
    if not attempt.answer.done():
        # which would refer to the attempt, and so to the answer
        attempt.answer.set_exception(error.with_traceback(None))
