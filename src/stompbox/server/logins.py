"""Logins from anywhere, STOMP or HTTP: which are looked at, when, and by how many threads.

What can be said at once (a passcode that was good before, one in plain text) is said at once. An argon2 hash takes tens of milliseconds
and megabytes on purpose; it is verified in a pool of threads that do nothing else, `login-threads` of them with no more than
`max-login-memory` together. Client addresses get their turns one after the other, so a login waits for one of each other address at most,
however many guesses those have sent. No more than `max-waiting-logins` wait; beyond, who has most waiting goes without.

A login counts as failed before it is looked at (security.FailedLogins). One that finds its address or name at the limit waits for those
that are being looked at, for they may be right; so any number of right logins from one address pass, and of guesses only `limit` do.

However many wait, one that comes, goes or is verified takes the same time: nobody walks through those who wait, and those who are turned
away together are PORTION in one go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stompbox.errors import Refused
from stompbox.security import FailedLogins, User, Users, network_of

if TYPE_CHECKING:
    from stompbox.config import Configuration
    from stompbox.server.seam import Core


log = logging.getLogger("stompbox.connection")

PORTION: Final = 16  # logins that are looked at in one go: each may be an ERROR and a close


@dataclass(frozen=True, slots=True)
class Login:
    """Who has logged in, and what by: `proof` is what the passcode was verified against (Users.again)."""

    user: User
    proof: str | None = None


class _Attempt:
    """One login that nothing is known of yet."""

    __slots__ = ("answer", "held", "is_gone", "login", "network", "passcode", "peer")

    def __init__(
        self, peer: str, login: str, passcode: str, is_gone: Callable[[], bool], answer: asyncio.Future[Login]
    ) -> None:
        self.peer = peer
        self.network = network_of(peer)
        self.login = login
        self.passcode = passcode
        self.is_gone = is_gone
        self.answer = answer
        # those who may be looked at or refused when it is known whether this one is right; most hold up nobody
        self.held: dict[_Attempt, None] | None = None


class _Waiting:
    """Who waits, by client network in the order in which they came, and which network has most of them."""

    def __init__(self) -> None:
        self.count = 0
        self._networks: dict[str, dict[_Attempt, None]] = {}
        self._sized: list[dict[str, None]] = [{}]  # the networks of which so many wait

    def of(self, network: str) -> int:
        return len(self._networks.get(network, ()))

    def add(self, attempt: _Attempt) -> None:
        self.count += 1
        waiting = self._networks.setdefault(attempt.network, {})
        waiting[attempt] = None
        self._resize(attempt.network, len(waiting) - 1, len(waiting))

    def remove(self, attempt: _Attempt) -> None:
        waiting = self._networks.get(attempt.network)
        if waiting is None or attempt not in waiting:
            return
        self.count -= 1
        del waiting[attempt]
        self._resize(attempt.network, len(waiting) + 1, len(waiting))
        if not waiting:
            del self._networks[attempt.network]

    def _resize(self, network: str, before: int, now: int) -> None:
        sized = self._sized
        sized[before].pop(network, None)
        if now == len(sized):
            sized.append({})
        if now:
            sized[now][network] = None
        while len(sized) > 1 and not sized[-1]:
            sized.pop()

    def last_of_most(self) -> _Attempt:
        """Who came last of the network that has most of those who wait: somebody does."""
        return next(reversed(self._networks[next(iter(self._sized[-1]))]))


class Logins:
    """The logins of one broker that are looked at, or wait for it."""

    def __init__(self, broker: Core) -> None:
        self.broker = broker
        self.failures = FailedLogins()
        self.threads = 0
        self._limits: tuple[int, ...] = ()
        self._pool: ThreadPoolExecutor | None = None
        self.obey(broker.configuration)
        self._waiting = _Waiting()
        # by client network, in the order of their turns: those whose delay is over and who are held up by nobody
        self._ready: dict[str, dict[_Attempt, None]] = {}
        self._is_going_on = False  # in the next turn of the loop
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
        return self._waiting.count

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
        wait = self.failures.wait(peer, loop.time(), login) if self._company_of(attempt) is None else 0.0
        self._make_room(attempt)
        self._waiting.add(attempt)
        timer = loop.call_later(wait, self._may_go, attempt) if wait else None
        if timer is None:
            self._may_go(attempt)
        try:
            return await attempt.answer
        finally:
            if timer is not None:
                timer.cancel()
            self._forget(attempt)

    def _make_room(self, attempt: _Attempt) -> None:
        """Ends the wait of another login so that this one may wait. Raises Refused when it is its own address that has most of those who
        wait."""
        waiting = self._waiting
        if waiting.count < self.broker.configuration.max_waiting_logins:
            return
        last = waiting.last_of_most()
        if waiting.of(last.network) <= waiting.of(attempt.network) + 1:
            raise _busy()
        self._forget(last)
        _refuse(last, _busy())

    def _may_go(self, attempt: _Attempt) -> None:
        """Its delay is over: what can be said at once is said, whoever else waits; else it has its turn."""
        if self._is_given_up(attempt) or not self._is_in_turn(attempt):
            return
        if self.broker.users.is_right(attempt.login, attempt.passcode) is not None:
            self._forget(attempt)
            self._look(attempt)
        else:
            self._ready.setdefault(attempt.network, {})[attempt] = None
            self._go_on()

    def _is_given_up(self, attempt: _Attempt) -> bool:
        """Whether nobody waits for the answer any more."""
        if not (attempt.answer.done() or attempt.is_gone()):
            return False
        self._forget(attempt)
        attempt.answer.cancel()
        return True

    def _forget(self, attempt: _Attempt) -> None:
        self._waiting.remove(attempt)
        self._drop_ready(attempt)

    def _go_on(self) -> None:
        """Gives the threads what they can take, and says all that can be said at once, a PORTION in one turn of the loop."""
        for _ in range(PORTION):
            if not self._ready or len(self._judged) >= self.threads:
                return
            network, ready = next(iter(self._ready.items()))
            attempt = next(iter(ready))
            if not self._has_room(attempt):
                return
            self._ready[network] = self._ready.pop(network)  # the others of this address have had their turn
            if not self._is_given_up(attempt) and self._is_in_turn(attempt):
                self._forget(attempt)
                self._look(attempt)
        if not self._is_going_on:
            self._is_going_on = True
            self.broker.loop.call_soon(self._go_on_later)

    def _go_on_later(self) -> None:
        self._is_going_on = False
        self._go_on()

    def _is_in_turn(self, attempt: _Attempt) -> bool:
        """Whether it may be looked at. One of too many waits for one of its kind in the pool, which may be right, or is refused."""
        try:
            self.failures.wait(attempt.peer, self.broker.loop.time(), attempt.login)
        except Refused as error:
            other = self._company_of(attempt)
            if other is None:
                self._forget(attempt)
                _refuse(attempt, error)
            else:
                self._hold(attempt, other)
            return False
        return True

    def _drop_ready(self, attempt: _Attempt) -> None:
        ready = self._ready.get(attempt.network, {})
        ready.pop(attempt, None)
        if not ready:
            self._ready.pop(attempt.network, None)

    def _hold(self, attempt: _Attempt, other: _Attempt) -> None:
        """Lets it wait until it is known whether the other one is right."""
        self._drop_ready(attempt)
        if other.held is None:
            other.held = {}
        other.held[attempt] = None

    def _release(self, other: _Attempt) -> None:
        """Gives those who have waited for this one their turn, before later ones of their address."""
        held, other.held = other.held, None
        found = dict[str, dict[_Attempt, None]]()
        for attempt in held or ():
            if not attempt.answer.done():
                found.setdefault(attempt.network, {})[attempt] = None
        for network, attempts in found.items():
            attempts.update(self._ready.get(network, {}))
            self._ready[network] = attempts

    def _company_of(self, attempt: _Attempt) -> _Attempt | None:
        for other in self._judged:
            if attempt.network == other.network or attempt.login == other.login:
                return other
        return None

    def _has_room(self, attempt: _Attempt) -> bool:
        """Whether argon2 may have what it takes for this one. Whose turn it is waits for it, and with it all behind: they would have it for
        themselves for ever. One alone has always room: a hash that takes more than all may have was refused (config/checks.py)."""
        users = self.broker.users
        if not self._judged or users.is_right(attempt.login, attempt.passcode) is not None:
            return True
        return self.memory + users.memory(attempt.login) <= self.broker.configuration.max_login_memory

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
        self._release(attempt)
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
