"""Logins that come at the same time: how many guesses are looked at, who waits for whom, what argon2 may have."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stompbox.config import Configuration, UserTable
from stompbox.errors import Refused
from stompbox.security import Users, hash_password
from stompbox.server import logins as module
from stompbox.server.broker import Broker
from stompbox.server.logins import Login, Logins

HASHED = hash_password("right")
NAMES = ("alice", "bob", "carol")
WITHIN = 20.0


class Gate:
    """In the place of argon2: each verification waits until it is let through."""

    def __init__(self) -> None:
        self.open = threading.Semaphore(0)
        self.entered: list[tuple[str, str]] = []

    def is_right(self, users: Users, login: str, passcode: str) -> bool:
        self.entered.append((login, passcode))
        assert self.open.acquire(timeout=WITHIN)
        return passcode == "right" and login in NAMES


def made(**settings: Any) -> Logins:
    users = tuple([UserTable(name=name, password=HASHED) for name in NAMES])
    configuration = Configuration(memory=True, users=users, **{"failed_login_delay": 0, **settings})
    broker = SimpleNamespace(configuration=configuration, loop=asyncio.get_running_loop(), users=Users(users))
    return Logins(cast(Broker, broker))


def run(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(body(), WITHIN))


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0)


async def codes(tasks: list[asyncio.Task[Login]]) -> Counter[str]:
    found = await asyncio.gather(*tasks, return_exceptions=True)
    return Counter(
        one.code if isinstance(one, Refused) else "in" if isinstance(one, Login) else repr(one)
        for one in found
    )


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_of_guesses_at_the_same_time_no_more_than_the_limit_are_judged(threads: int) -> None:
    async def body() -> None:
        logins = made(max_failed_logins=20, login_threads=threads, max_waiting_logins=1000)
        tasks = [
            asyncio.ensure_future(logins.log_in("10.0.0.1", "alice", f"guess {number}"))
            for number in range(300)
        ]
        assert await codes(tasks) == {"login-failed": 20, "too-many-failed-logins": 280}
        with pytest.raises(Refused, match="too many failed logins"):
            await logins.log_in("10.0.0.1", "alice", "right")
        assert (await logins.log_in("10.0.0.2", "alice", "right")).user.name == "alice"
        assert (logins.waiting, logins.memory) == (0, 0)
        logins.close()

    run(body)


def test_right_logins_at_the_same_time_all_pass() -> None:
    async def body() -> None:
        logins = made(max_failed_logins=5)
        tasks = [
            asyncio.ensure_future(logins.log_in("10.0.0.1", NAMES[number % 3], "right"))
            for number in range(100)
        ]
        assert await codes(tasks) == {"in": 100}
        logins.close()

    run(body)


def test_plain_passcodes_are_counted_as_well() -> None:
    async def body() -> None:
        logins = made(max_failed_logins=20)
        logins.broker.users = Users([UserTable(name="alice", password="right")])
        tasks = [
            asyncio.ensure_future(logins.log_in("10.0.0.1", "alice", f"guess {number}"))
            for number in range(300)
        ]
        assert await codes(tasks) == {"login-failed": 20, "too-many-failed-logins": 280}
        logins.close()

    run(body)


def test_a_right_login_does_not_wait_for_the_guesses_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each other address has one turn at most before it."""
    gate = Gate()
    monkeypatch.setattr(module, "_is_right", gate.is_right)

    async def body() -> None:
        logins = made(login_threads=1)
        guesses = [
            asyncio.ensure_future(logins.log_in("10.0.0.1", "bob", f"guess {number}"))
            for number in range(100)
        ]
        await until(lambda: len(gate.entered) == 1)
        right = asyncio.ensure_future(logins.log_in("10.0.0.2", "alice", "right"))
        await until(lambda: logins.waiting == 100)
        gate.open.release(3)
        assert (await right).user.name == "alice"
        assert ("alice", "right") in gate.entered[:3]
        gate.open.release(1000)
        await codes(guesses)
        logins.close()

    run(body)


def test_whoever_has_most_waiting_goes_without(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    monkeypatch.setattr(module, "_is_right", gate.is_right)

    async def body() -> None:
        logins = made(login_threads=1, max_waiting_logins=10)
        guesses = [
            asyncio.ensure_future(logins.log_in("10.0.0.1", "bob", f"guess {number}")) for number in range(50)
        ]
        await until(lambda: sum(task.done() for task in guesses) == 39)
        assert logins.waiting == 10
        right = asyncio.ensure_future(logins.log_in("10.0.0.2", "alice", "right"))
        await until(lambda: sum(task.done() for task in guesses) == 40)
        assert logins.waiting == 10
        gate.open.release(1000)
        assert (await right).user.name == "alice"
        assert (await codes(guesses))["logins-busy"] == 40
        logins.close()

    run(body)


def test_argon2_has_no_more_memory_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    monkeypatch.setattr(module, "_is_right", gate.is_right)

    async def body() -> None:
        logins = made(login_threads=8, max_login_memory=2 * 19 * 1024 * 1024)
        tasks = [
            asyncio.ensure_future(logins.log_in(f"10.0.0.{number}", "alice", "right")) for number in range(8)
        ]
        for judged in range(2, 9):
            await until(lambda judged=judged: len(gate.entered) == judged)  # type: ignore[misc]
            assert logins.memory == 2 * 19 * 1024 * 1024
            gate.open.release()
        gate.open.release(10)
        assert await codes(tasks) == {"in": 8}
        logins.close()

    run(body)


def test_who_is_gone_is_not_verified_but_a_guess_under_way_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    monkeypatch.setattr(module, "_is_right", gate.is_right)

    async def body() -> None:
        logins, gone = made(login_threads=1, max_failed_logins=1), [False]
        tasks = [
            asyncio.ensure_future(logins.log_in("10.0.0.1", "bob", "guess", lambda: gone[0]))
            for _ in range(5)
        ]
        await until(lambda: len(gate.entered) == 1)
        gone[0] = True
        tasks[0].cancel()
        gate.open.release(1000)
        await until(lambda: all(task.done() for task in tasks))
        assert len(gate.entered) == 1
        with pytest.raises(Refused, match="too many failed logins"):
            await logins.log_in("10.0.0.1", "bob", "right")
        logins.close()

    run(body)


def test_a_passcode_that_a_reload_has_changed_meanwhile_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    monkeypatch.setattr(module, "_is_right", gate.is_right)

    async def body() -> None:
        logins = made()
        task = asyncio.ensure_future(logins.log_in("10.0.0.1", "alice", "right"))
        await until(lambda: len(gate.entered) == 1)
        logins.broker.users = Users([UserTable(name="alice", password="other")])
        gate.open.release()
        assert await codes([task]) == {"login-revoked": 1}
        logins.close()

    run(body)


def test_a_fault_of_argon2_is_no_failure_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> bool:
        raise MemoryError("argon2")

    monkeypatch.setattr(module, "_is_right", no_memory)

    async def body() -> None:
        logins = made(max_failed_logins=1)
        for _ in range(3):
            with pytest.raises(Refused) as caught:
                await logins.log_in("10.0.0.1", "alice", "right")
            assert caught.value.code == "logins-busy"
        logins.close()

    run(body)


class Looks:
    """Counts how often it is looked at who waits, instead of FailedLogins."""

    def __init__(self, logins: Logins) -> None:
        self.count = 0
        self._wait = logins.failures.wait
        logins.failures.wait = self.wait  # type: ignore[method-assign]

    def wait(self, address: str, now: float, login: str = "") -> float:
        self.count += 1
        return self._wait(address, now, login)


def test_who_comes_or_is_verified_looks_at_nobody_else_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    monkeypatch.setattr(module, "_is_right", gate.is_right)

    async def body() -> None:
        logins = made(login_threads=1, max_waiting_logins=400, max_failed_logins_per_user=0)
        looks = Looks(logins)
        tasks = [
            asyncio.ensure_future(logins.log_in(f"10.0.{number // 200}.{number % 200}", "alice", "guess"))
            for number in range(401)
        ]
        await until(lambda: logins.waiting == 400)
        assert looks.count <= 3 * 401
        before = looks.count
        gate.open.release(10)
        await until(lambda: logins.waiting == 390)
        assert looks.count - before <= 10 * 2
        gate.open.release(1000)
        assert await codes(tasks) == {"login-failed": 401}
        logins.close()

    run(body)


def test_those_who_are_turned_away_together_are_a_portion_in_one_turn_of_the_loop() -> None:
    async def body() -> None:
        logins = made(max_failed_logins=1, max_waiting_logins=1000)
        tasks = [
            asyncio.ensure_future(logins.log_in("10.0.0.1", "alice", f"guess {number}"))
            for number in range(300)
        ]
        most = before = 0
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            done = sum(task.done() for task in tasks)
            most, before = max(most, done - before), done
        assert most <= 2 * module.PORTION
        assert await codes(tasks) == {"login-failed": 1, "too-many-failed-logins": 299}
        logins.close()

    run(body)


def test_what_can_be_said_at_once_waits_for_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    monkeypatch.setattr(module, "_is_right", gate.is_right)

    async def body() -> None:
        logins = made(login_threads=1)
        users = Users([UserTable(name="alice", password=HASHED), UserTable(name="bob", password=HASHED)])
        users.authenticate("bob", "right")  # and so it is known
        logins.broker.users = users
        guess = asyncio.ensure_future(logins.log_in("10.0.0.1", "alice", "guess"))
        await until(lambda: len(gate.entered) == 1)
        others = [
            asyncio.ensure_future(logins.log_in("10.0.0.3", "alice", f"guess {number}"))
            for number in range(9)
        ]
        await until(lambda: logins.waiting == 9)
        assert (await logins.log_in("10.0.0.3", "bob", "right")).user.name == "bob"
        gate.open.release(100)
        await codes([guess, *others])
        logins.close()

    run(body)


class Patient:
    """A loop whose timers run when they are told to."""

    def __init__(self) -> None:
        self.timers: list[Callable[[], object]] = []
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_later(self, _: float, call: Callable[..., object], *arguments: object) -> asyncio.Handle:
        self.timers.append(lambda: call(*arguments))
        return self._loop.call_soon(lambda: None)


def test_one_that_gave_way_before_its_delay_was_over_is_not_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate()
    gate.open.release(100)
    monkeypatch.setattr(module, "_is_right", gate.is_right)

    async def body() -> None:
        logins = made(login_threads=1, max_waiting_logins=2, failed_login_delay=1)
        logins.broker.loop = patient = cast(Any, Patient())
        await codes([asyncio.ensure_future(logins.log_in("10.0.0.1", "bob", "guess")) for _ in range(2)])
        delayed = [
            asyncio.ensure_future(logins.log_in("10.0.0.1", "bob", f"late {number}")) for number in range(2)
        ]
        await until(lambda: len(patient.timers) == 2)
        other = asyncio.ensure_future(logins.log_in("10.0.0.2", "alice", "right"))
        await asyncio.sleep(0)
        for timer in patient.timers:
            timer()
        assert (await other).user.name == "alice"
        assert await codes(delayed) == {"login-failed": 1, "logins-busy": 1}
        assert ("bob", "late 1") not in gate.entered
        logins.close()

    run(body)
