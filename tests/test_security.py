"""Users and passcodes, failed logins by injected time, rights by the most specific permission."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import argon2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.config.matching import PatternTable
from stompbox.errors import ConfigError, NotPermitted, Refused
from stompbox.security import CERTIFICATE, FailedLogins, Permissions, Right, User, Users, hash_password

CHEAP = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


@dataclass(frozen=True)
class Entry:
    name: str
    password: str | None = None
    groups: tuple[str, ...] = ()


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hashes that argon2 was asked to verify."""
    asked: list[str] = []
    verify = argon2.PasswordHasher.verify

    def counted(self: argon2.PasswordHasher, hash: Any, password: Any) -> Any:
        asked.append(hash)
        return verify(self, hash, password)

    monkeypatch.setattr(argon2.PasswordHasher, "verify", counted)
    return asked


@pytest.mark.parametrize(
    ("login", "passcode"), [(None, None), ("anyone", None), ("anyone", "x"), (None, "x")]
)
def test_without_users_any_login_is_accepted(login: str | None, passcode: str | None) -> None:
    users = Users()
    assert users.authenticate(login, passcode) == User(login or "")
    assert repr(users) == "<Users: none, anyone is accepted>"


def test_a_good_login_gives_the_user_with_groups() -> None:
    users = Users([Entry("alice", CHEAP.hash("secret"), ("a", "b")), Entry("bob", "plain")])
    assert users.authenticate("alice", "secret") == User("alice", frozenset(("a", "b")))
    assert users.authenticate("bob", "plain") == User("bob")
    assert repr(users) == "<Users: 2>"


@pytest.mark.parametrize(
    ("login", "passcode", "code"),
    [
        ("alice", "wrong", "login-failed"),
        ("alice", "", "login-failed"),
        ("alice", "secret ", "login-failed"),
        ("Alice", "secret", "login-failed"),
        ("bob", "plai", "login-failed"),
        ("bob", "plainer", "login-failed"),
        ("nobody", "secret", "login-failed"),
        ("certified", "", "login-failed"),
        ("certified", "None", "login-failed"),
        ("", "", "login-failed"),
        (None, None, "login-required"),
        ("alice", None, "login-required"),
        (None, "secret", "login-required"),
    ],
)
def test_a_bad_login_is_refused_in_the_same_words(login: str | None, passcode: str | None, code: str) -> None:
    users = Users([Entry("alice", CHEAP.hash("secret")), Entry("bob", "plain"), Entry("certified")])
    with pytest.raises(Refused) as caught:
        users.authenticate(login, passcode)
    assert caught.value.code == code
    assert (
        str(caught.value)
        == {
            "login-failed": "login or passcode is wrong",
            "login-required": "login and passcode are required",
        }[code]
    )


def test_a_hash_is_no_passcode() -> None:
    stored = CHEAP.hash("secret")
    with pytest.raises(Refused):
        Users([Entry("alice", stored)]).authenticate("alice", stored)


@pytest.mark.parametrize("passcode", ["", ":=123", "a\\b", "päßwörd ✓", "x" * 1000, "$argon2"])
def test_what_is_hashed_is_accepted_again(passcode: str) -> None:
    users = Users([Entry("alice", hash_password(passcode))])
    assert users.authenticate("alice", passcode).name == "alice"
    with pytest.raises(Refused):
        users.authenticate("alice", passcode + "x")


def test_the_hash_costs_what_owasp_asks_for() -> None:
    parameters = argon2.extract_parameters(hash_password("x"))
    assert (parameters.type, parameters.memory_cost, parameters.time_cost, parameters.parallelism) == (
        argon2.Type.ID,
        19456,
        2,
        1,
    )
    assert hash_password("x") != hash_password("x")


def test_a_thousand_logins_cost_one_run_of_argon2(runs: list[str]) -> None:
    users = Users([Entry("alice", CHEAP.hash("secret"))])
    for _ in range(1000):
        users.authenticate("alice", "secret")
    assert len(runs) == 1


def test_a_wrong_passcode_is_never_remembered(runs: list[str]) -> None:
    users = Users([Entry("alice", CHEAP.hash("secret"))])
    users.authenticate("alice", "secret")
    for _ in range(3):
        with pytest.raises(Refused):
            users.authenticate("alice", "wrong")
    assert users.authenticate("alice", "secret").name == "alice"
    assert len(runs) == 4


def test_unknown_users_and_plain_ones_take_a_run_too(runs: list[str]) -> None:
    stored = CHEAP.hash("secret")
    users = Users([Entry("alice", stored), Entry("bob", "plain")])
    for login in ("nobody", "bob"):
        with pytest.raises(Refused):
            users.authenticate(login, "secret")
    assert runs == [stored, stored]
    with pytest.raises(Refused):
        Users([Entry("bob", "plain")]).authenticate("nobody", "x")
    assert len(runs) == 2


@pytest.mark.parametrize(("cache_size", "costs"), [(0, 6), (1, 6), (2, 3), (10, 2)])
def test_what_is_remembered_is_bounded(runs: list[str], cache_size: int, costs: int) -> None:
    entries = [Entry(name, CHEAP.hash(name)) for name in ("a", "b", "c")]
    users = Users(entries, cache_size)
    order = ("a", "b", "a", "b", "a", "b") if cache_size != 2 else ("a", "b", "a", "b", "c", "b")
    for name in order:
        users.authenticate(name, name)
    assert len(runs) == costs
    assert len(users._good) <= cache_size


def test_what_is_remembered_is_not_the_passcode() -> None:
    users = Users([Entry("alice", CHEAP.hash("secret"))])
    users.authenticate("alice", "secret")
    assert b"secret" not in b"".join(users._good.values())
    other = Users([Entry("alice", CHEAP.hash("secret"))])
    other.authenticate("alice", "secret")
    assert users._good != other._good


def test_login_and_passcode_do_not_run_together() -> None:
    users = Users([Entry("a", CHEAP.hash("bc")), Entry("ab", CHEAP.hash("x"))])
    users.authenticate("a", "bc")
    assert users._digest("a", "bc") != users._digest("ab", "c")


@pytest.mark.parametrize(
    "password",
    ["$argon2id$v=19$m=8,t=1,p=1$!$!", "$argon2x$v=19$m=8,t=1,p=1$c2Fs$aGFz", "$argon2id$", "$argon2"],
)
def test_a_broken_hash_is_found_at_once(password: str) -> None:
    with pytest.raises(ConfigError, match=r"^the password of user 'alice' is not a whole argon2 hash"):
        Users([Entry("alice", password)])


def test_a_certificate_names_a_user() -> None:
    users = Users([Entry("certified", None, ("g",))])
    assert users.by_certificate("certified") == User("certified", frozenset("g"))
    with pytest.raises(Refused) as caught:
        users.by_certificate("other")
    assert (caught.value.code, str(caught.value)) == (
        "login-failed",
        "no user has the name of the certificate, 'other'",
    )


def test_each_failure_doubles_the_wait() -> None:
    logins = FailedLogins(delay=250, max_delay=3000, limit=20, window=20_000_000)
    waits = []
    for _ in range(7):
        waits.append(round(logins.wait("10.0.0.1", 0.0), 3))
        logins.failed("10.0.0.1", 0.0)
    assert waits == [0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 3.0]
    assert logins.wait("10.0.0.2", 0.0) == 0.0


def test_after_the_limit_logins_are_refused_until_failures_have_drained() -> None:
    logins = FailedLogins(limit=3, window=30_000)
    for _ in range(3):
        assert logins.wait("10.0.0.1", 100.0) >= 0
        logins.failed("10.0.0.1", 100.0)
    with pytest.raises(Refused) as caught:
        logins.wait("10.0.0.1", 100.0)
    assert caught.value.code == "too-many-failed-logins"
    assert str(caught.value) == "too many failed logins from 10.0.0.1; try again in 10 s"
    with pytest.raises(Refused, match="try again in 1 s"):
        logins.wait("10.0.0.1", 109.9)
    assert logins.wait("10.0.0.1", 110.1) == pytest.approx(0.5, rel=0.02)
    assert logins.wait("10.0.0.1", 140.0) == 0.0
    assert logins.wait("10.0.0.2", 100.0) == 0.0


def test_failures_while_refused_do_not_add_up() -> None:
    logins = FailedLogins(limit=2, window=20_000)
    for _ in range(50):
        logins.failed("10.0.0.1", 0.0)
    with pytest.raises(Refused):
        logins.wait("10.0.0.1", 9.9)
    assert logins.wait("10.0.0.1", 10.1) == 0.0


def test_without_limit_there_is_only_the_wait() -> None:
    logins = FailedLogins(delay=1, max_delay=50, limit=0, user_limit=0, window=1000)
    for _ in range(2000):
        logins.failed("10.0.0.1", 0.0)
    assert logins.wait("10.0.0.1", 0.0) == 0.05


@given(st.lists(st.tuples(st.floats(0, 60), st.booleans()), max_size=60))
def test_no_address_gets_more_attempts_than_the_limit_allows(steps: list[tuple[float, bool]]) -> None:
    logins, now, attempts = FailedLogins(limit=5, window=50_000), 0.0, []
    for pause, retry in steps:
        now += pause if not retry else 0.0
        try:
            logins.wait("10.0.0.1", now)
        except Refused:
            continue
        logins.failed("10.0.0.1", now)
        attempts.append(now)
    for start in attempts:
        within = [when for when in attempts if start <= when < start + 50]
        assert len(within) <= 5 + 5  # a burst, and what drains meanwhile


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("10.0.0.1", "10.0.0.2", False),
        ("not:an:address", "not:an:address", True),
    ],
)
def test_a_client_is_an_ipv4_address_or_an_ipv6_64(one: str, other: str, same: bool) -> None:
    logins = FailedLogins()
    logins.failed(one, 0.0)
    assert (logins.wait(other, 0.0) > 0) is same


def test_the_addresses_remembered_are_bounded() -> None:
    logins = FailedLogins(user_limit=0)
    for number in range(FailedLogins.MAX_ADDRESSES + 1):
        logins.failed(f"10.0.{number // 256}.{number % 256}", 0.0)
    assert repr(logins) == f"<FailedLogins of {FailedLogins.MAX_ADDRESSES} addresses>"
    assert logins.wait("10.0.0.0", 0.0) == 0.0  # it failed longest ago
    assert logins.wait("10.0.0.1", 0.0) > 0.0


def spend(logins: FailedLogins, address: str, login: str, now: float = 0.0, most: int = 1000) -> int:
    """Guesses that are looked at before one is refused."""
    for count in range(most):
        try:
            logins.wait(address, now, login)
        except Refused:
            return count
        logins.failed(address, now, login)
    return most


def test_a_login_counts_before_it_is_looked_at_and_a_right_one_takes_itself_back() -> None:
    logins = FailedLogins(limit=3, window=30_000)
    for _ in range(3):
        logins.failed("10.0.0.1", 0.0, "alice")  # all at the same time
    with pytest.raises(Refused):
        logins.wait("10.0.0.1", 0.0, "bob")
    logins.passed("10.0.0.1", 0.0, "alice")
    assert logins.wait("10.0.0.1", 0.0, "bob") > 0
    logins.failed("10.0.0.1", 0.0, "bob")
    with pytest.raises(Refused):
        logins.wait("10.0.0.1", 0.0, "carol")


def test_a_user_name_has_a_limit_too_however_many_addresses_guess() -> None:
    logins = FailedLogins(limit=20, user_limit=50, window=300_000)
    guessed = [spend(logins, f"10.0.0.{number}", "alice") for number in range(10)]
    assert guessed == [20, 20, 10, 1, 1, 1, 1, 1, 1, 1]
    assert spend(logins, "10.0.0.9", "bob", most=5) == 5, "another name is not held up"


def test_nobody_elsewhere_can_lock_out_a_user() -> None:
    logins = FailedLogins(limit=20, user_limit=50, window=300_000)
    for second in range(600):
        for number in range(5):
            spend(logins, f"10.0.0.{number}", "alice", float(second))
        assert logins.wait("192.0.2.7", float(second), "alice") == 0.0


def test_behind_the_same_address_who_was_let_in_before_is_let_in_again() -> None:
    logins = FailedLogins(limit=20, window=300_000)
    logins.failed("10.0.0.1", 0.0, "bob")
    logins.passed("10.0.0.1", 0.0, "bob")
    assert spend(logins, "10.0.0.1", "alice", 1.0) == 20
    assert logins.wait("10.0.0.1", 1.0, "bob") == 0.0
    with pytest.raises(Refused):
        logins.wait("10.0.0.1", 1.0, "carol")
    assert spend(logins, "10.0.0.1", "bob", 1.0) == 1, "and who guesses at this name gets one guess for it"
    assert spend(logins, "10.0.0.2", "bob", 1.0, most=5) == 5, "elsewhere it is a name like any other"


def test_names_of_any_length_take_the_same_memory() -> None:
    logins = FailedLogins(limit=0)
    for number in range(50):
        logins.failed("10.0.0.1", 0.0, f"{number}" + "x" * 60_000)
        logins.passed("10.0.0.1", 0.0, f"{number}" + "\ud800" * 60_000)
    held = [key for found in (logins._names._found, logins._trusted) for key in found]
    assert len(held) == 100
    assert {len(key) for key in held} == {16}


def test_what_a_login_was_verified_against_must_still_count() -> None:
    old, new = CHEAP.hash("secret"), CHEAP.hash("other")
    users = Users([Entry("alice", old, ("a",)), Entry("certified", None, ("c",))])
    assert users.again("alice", users.proof("alice")) == User("alice", frozenset("a"))
    assert users.again("certified", CERTIFICATE) == User("certified", frozenset("c"))
    for found, name, proof in (
        (users, "bob", old), (users, "alice", None), (users, "certified", None), (users, "alice", new),
        (Users([Entry("alice", new)]), "alice", old), (Users([Entry("alice", None)]), "alice", old),
        (Users([Entry("b", new)]), "alice", CERTIFICATE),
    ):  # fmt: skip
        with pytest.raises(Refused) as caught:
            found.again(name, proof)
        assert caught.value.code == "login-revoked"
    assert Users([Entry("alice", old, ("b",))]).again("alice", old).groups == frozenset("b"), (
        "with the groups of now"
    )
    assert Users().again("alice", old) == User("alice")


def test_the_memory_of_a_hash_is_what_it_says() -> None:
    users = Users(
        [Entry("alice", "$argon2id$v=19$m=65536,t=3,p=4$c2FsdHNhbHQ$aGFzaGhhc2g"), Entry("bob", "plain")]
    )
    assert users.memory("alice") == 64 << 20
    assert users.memory("bob") == users.memory("nobody") == 64 << 20, "as long as for one with a hash"
    assert Users([Entry("bob", "plain")]).memory("bob") == 0


def permissions_of(
    *tables: tuple[str, Mapping[str, Collection[str]]], cache_size: int = 10_000
) -> Permissions:
    return Permissions(PatternTable(tables).best, cache_size)


PRODUCER, CONSUMER, NAMELESS = (
    User("p", frozenset(["producers"])),
    User("c", frozenset(["consumers", "x"])),
    User(""),
)
TABLES: tuple[tuple[str, dict[str, list[str]]], ...] = (
    ("#", {"send": ["producers"], "consume": ["consumers"], "manage": []}),
    ("orders.#", {"consume": ["consumers"]}),
    ("orders.new", {"send": ["producers", "consumers"], "consume": ["producers"]}),
)


@pytest.mark.parametrize(
    ("user", "right", "address", "allowed"),
    [
        (PRODUCER, Right.SEND, "anything", True),
        (CONSUMER, Right.SEND, "anything", False),
        (CONSUMER, Right.CONSUME, "anything", True),
        (PRODUCER, Right.MANAGE, "anything", False),
        (PRODUCER, Right.SEND, "orders.old", False),  # the most specific match does not name the right
        (CONSUMER, Right.CONSUME, "orders.old", True),
        (CONSUMER, Right.CONSUME, "orders", True),
        (CONSUMER, Right.CONSUME, "orders.new", False),  # and alone decides
        (CONSUMER, Right.SEND, "orders.new", True),
        (PRODUCER, Right.BROWSE, "anything", False),
        (NAMELESS, Right.SEND, "anything", False),
    ],
)
def test_the_most_specific_permission_decides_alone(
    user: User, right: Right, address: str, allowed: bool
) -> None:
    permissions = permissions_of(*TABLES)
    assert permissions.may(user, right, address) is allowed
    assert permissions.may(user, right, address) is allowed  # from what is remembered


def test_an_address_that_nothing_matches_is_refused() -> None:
    assert not permissions_of(("orders.#", {"send": ["producers"]})).may(PRODUCER, Right.SEND, "other")


@pytest.mark.parametrize("right", Right)
def test_without_permissions_everything_is_allowed(right: Right) -> None:
    permissions = Permissions()
    assert permissions.may(NAMELESS, right, "anything")
    assert repr(permissions) == "<Permissions: none, everything is allowed>"


@pytest.mark.parametrize("right", Right)
def test_what_tells_of_all_is_for_those_alone_who_may_manage_it(right: Right) -> None:
    every = {each.value: ["*"] for each in Right}
    tables = [("#", every | {"manage": ["operators"]}), ("told.theirs", {"manage": ["consumers"]})]
    permissions = Permissions(
        PatternTable(tables).best, tells_of_all=lambda address: address.startswith("told")
    )
    operator = User("o", frozenset(["operators"]))
    assert permissions.may(operator, right, "told")
    assert not permissions.may(CONSUMER, right, "told")
    assert permissions.may(CONSUMER, right, "other") is (right is not Right.MANAGE)
    assert permissions.may(CONSUMER, right, "told.theirs") is (right is Right.MANAGE), (
        "that right alone gives no other"
    )


def test_a_refusal_names_user_right_and_address() -> None:
    permissions = permissions_of(*TABLES)
    permissions.require(PRODUCER, Right.SEND, "anything")
    with pytest.raises(NotPermitted) as caught:
        permissions.require(CONSUMER, Right.CREATE_DURABLE_QUEUE, "orders.new")
    assert (caught.value.right, caught.value.address) == ("create-durable-queue", "orders.new")
    assert vars(pickle.loads(pickle.dumps(caught.value))) == vars(caught.value)
    assert caught.value.code == "not-permitted"
    assert (
        str(caught.value) == "user 'c' does not have the right 'create-durable-queue' on address 'orders.new'"
    )
    with pytest.raises(Refused, match=r"^a nameless client does not have the right 'send'"):
        permissions.require(NAMELESS, Right.SEND, "x")


@pytest.mark.parametrize("cache_size", [0, 1, 5])
def test_the_answers_remembered_are_bounded_and_right(cache_size: int) -> None:
    permissions = permissions_of(*TABLES, cache_size=cache_size)
    for _ in range(2):
        for number in range(20):
            assert permissions.may(PRODUCER, Right.SEND, f"a{number}")
            assert not permissions.may(CONSUMER, Right.SEND, f"a{number}")
    assert len(permissions._answers) == cache_size
    assert repr(permissions) == f"<Permissions: {cache_size} answers known>"


def test_an_answer_is_looked_up_once() -> None:
    asked: list[str] = []

    def grants(address: str) -> Mapping[str, Collection[str]]:
        asked.append(address)
        return {"send": ["producers"]}

    permissions = Permissions(grants)
    twin = User("other", PRODUCER.groups)
    assert all(permissions.may(user, Right.SEND, "a") for user in (PRODUCER, PRODUCER, twin))
    assert asked == ["a"]
