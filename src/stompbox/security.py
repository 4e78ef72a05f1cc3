"""Who is there, and what they may do: users with their passcodes, failed logins per client address, rights per address.

Decides whether a login is good, how long a client address waits after failures, and whether a user has a right. Reads no file, no
clock, does not sleep: entries come from the configuration, time from the caller. Verifying an argon2 hash takes tens of milliseconds on
purpose; a server calls `authenticate` in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from itertools import count
from math import ceil
from re import fullmatch
from typing import Final, Protocol

from msgspec import Struct

from stompbox.errors import ConfigError, NotPermitted, Refused

ARGON2: Final = "$argon2"
# stands for what a passcode was verified against; compared by identity, so it is not Final: compiled modules have texts of their own then
CERTIFICATE = "\0 certificate"

# OWASP's choice for argon2id with the least memory per verification that goes with two passes: 19 MiB.
_TIME_COST: Final = 2
_MEMORY_COST: Final = 19 * 1024
_PARALLELISM: Final = 1


class Right(Enum):
    """What a user may do with an address; Artemis's names."""

    SEND = "send"
    CONSUME = "consume"
    BROWSE = "browse"
    CREATE_ADDRESS = "create-address"
    DELETE_ADDRESS = "delete-address"
    CREATE_DURABLE_QUEUE = "create-durable-queue"
    DELETE_DURABLE_QUEUE = "delete-durable-queue"
    CREATE_NON_DURABLE_QUEUE = "create-non-durable-queue"
    DELETE_NON_DURABLE_QUEUE = "delete-non-durable-queue"
    MANAGE = "manage"

    __hash__ = object.__hash__  # members are single objects; the inherited hash is a call of Python code


class User(Struct, frozen=True):
    """Somebody who has logged in. `name` is empty for a nameless client, which only a broker without users accepts."""

    name: str
    groups: frozenset[str] = frozenset()


class UserEntry(Protocol):
    """What `Users` reads of a [[user]] table."""

    @property
    def name(self) -> str: ...
    @property
    def password(self) -> str | None: ...
    @property
    def groups(self) -> Collection[str]: ...


class Users:
    """The users of a configuration. With none at all, any login is accepted, and so is none.

    `cache_size` users are remembered with a keyed hash of their last good passcode, so that 1000 reconnects cost one argon2 run.
    Safe to call from several threads.
    """

    def __init__(self, entries: Iterable[UserEntry] = (), cache_size: int = 1000) -> None:
        """Raises ConfigError for an argon2 hash that is none."""
        listed = list(entries)
        self._passwords: Final = {entry.name: entry.password for entry in listed}
        self._users: Final = {entry.name: User(entry.name, frozenset(entry.groups)) for entry in listed}
        self._decoy: Final = next(
            (password for password in self._passwords.values() if _is_hash(password)), None
        )
        self._good: Final[dict[str, bytes]] = {}
        self._cache_size: Final = cache_size
        self._secret: bytes = b""
        for entry in listed:
            if _is_hash(entry.password):
                _check_hash(entry.name, entry.password or "")

    def __len__(self) -> int:
        return len(self._users)

    def __repr__(self) -> str:
        return f"<Users: {len(self)}>" if self._users else "<Users: none, anyone is accepted>"

    def proof(self, login: str) -> str | None:
        """What a passcode of this user is verified against; a connection that has logged in by it remembers it."""
        return self._passwords.get(login)

    def named(self, name: str) -> User | None:
        """The user of this name, logged in or not."""
        return self._users.get(name)

    def again(self, name: str, proof: str | None) -> User:
        """The user who has logged in before, perhaps when other users were configured, with the groups of now. `proof`: what its
        passcode was verified against, or CERTIFICATE; None when nobody had asked. Raises Refused for one that could not log in any more."""
        if not self._users:
            return User(name)
        user = self._users.get(name)
        if user is None:
            raise Refused(
                "login-revoked",
                f"there is no user {name!r} any more" if proof is not None else "a login is required now",
            )
        if proof is not CERTIFICATE and (proof is None or proof != self._passwords[name]):
            raise Refused(
                "login-revoked", f"the passcode of user {name!r} is another one now, or was never asked for"
            )
        return user

    def is_right(self, login: str, passcode: str) -> bool | None:
        """Whether they belong together, as far as it can be said at once; None where an argon2 hash has to be verified."""
        stored = self._passwords.get(login)
        if not self._users or (
            _is_hash(stored) and _is_same(self._good.get(login, b""), self._digest(login, passcode))
        ):
            return True
        if _is_hash(stored) or self._decoy:
            return None
        return stored is not None and _is_same(stored.encode(), passcode.encode())

    def memory(self, login: str) -> int:
        """Bytes that argon2 takes while it verifies this login."""
        stored = self._passwords.get(login)
        return argon2_memory(stored if _is_hash(stored) else self._decoy)

    def authenticate(self, login: str | None, passcode: str | None) -> User:
        """The user of this login and passcode. Raises Refused, in the same words and about the same time for every reason."""
        if not self._users:
            return User(login or "")
        if login is None or passcode is None:
            raise Refused("login-required", "login and passcode are required")
        if not self._is_good(login, passcode):
            raise Refused("login-failed", "login or passcode is wrong")
        return self._users[login]

    def by_certificate(self, common_name: str) -> User:
        """The user whose name a verified client certificate carries. Raises Refused."""
        user = self._users.get(common_name)
        if user is None:
            raise Refused("login-failed", f"no user has the name of the certificate, {common_name!r}")
        return user

    def _is_good(self, login: str, passcode: str) -> bool:
        stored = self._passwords.get(login)
        if not _is_hash(stored):
            if self._decoy:
                # a missing user, or one in plain text, takes as long as one with a hash
                _is_verified(self._decoy, passcode)
            return stored is not None and _is_same(stored.encode(), passcode.encode())
        digest = self._digest(login, passcode)
        if _is_same(self._good.get(login, b""), digest):
            return True
        if not _is_verified(stored or "", passcode):
            return False
        self._remember(login, digest)
        return True

    def _digest(self, login: str, passcode: str) -> bytes:
        """A hash that is worth nothing outside this process: keyed with bytes that never leave it."""
        import hmac

        if not self._secret:
            from secrets import token_bytes

            self._secret = token_bytes(32)
        name = login.encode()
        return hmac.digest(self._secret, len(name).to_bytes(4) + name + passcode.encode(), "sha256")

    def _remember(self, login: str, digest: bytes) -> None:
        while self._good and len(self._good) >= self._cache_size:
            self._good.pop(next(iter(self._good)), None)
        if self._cache_size > 0:
            self._good[login] = digest


def hash_password(password: str) -> str:
    """The argon2id hash of `password` for the configuration file."""
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=_TIME_COST, memory_cost=_MEMORY_COST, parallelism=_PARALLELISM).hash(
        password
    )


def _is_hash(password: str | None) -> bool:
    return password is not None and password.startswith(ARGON2)


def argon2_memory(stored: str | None) -> int:
    """Bytes that it takes to verify a hash: its parameter m is in KiB (RFC 9106). 0 for what is none."""
    found = fullmatch(r"\$argon2\w+\$.*?\bm=(\d{1,12})\b.*", stored or "")
    return int(found[1]) * 1024 if found else 0


def _is_same(left: bytes, right: bytes) -> bool:
    from hmac import compare_digest

    return compare_digest(left, right)


def _is_verified(stored: str, passcode: str) -> bool:
    from argon2 import PasswordHasher
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return PasswordHasher().verify(stored, passcode)
    except (VerificationError, InvalidHashError):
        return False


def _check_hash(name: str, stored: str) -> None:
    from argon2 import extract_parameters
    from argon2.exceptions import InvalidHashError

    try:
        extract_parameters(stored)
        salt, digest = stored.split("$")[-2:]
        if not all(
            part.isascii() and part.replace("+", "").replace("/", "").isalnum() for part in (salt, digest)
        ):
            raise ValueError("not base64")
    except (InvalidHashError, ValueError):
        problem = f"the password of user {name!r} is not a whole argon2 hash; `stompbox user hash` prints one"
        raise ConfigError("config-value", problem) from None


class FailedLogins:
    """Failed logins per client address and per user name: each makes the next login wait longer, and beyond a number logins are refused.

    A login counts as failed from before it is looked at until it turns out right, so that guesses at the same time count, too. A good
    login takes back itself and nothing else, or an attacker with an account could guess for ever. Failures drain away evenly: `limit` of
    them within `window`. Addresses of one IPv6 /64 count as one. What is refused here was not looked at, and does not count.

    Nobody can lock out others by failing. Elsewhere: when a name has failed too often, from wherever, an address without failures of its
    own may still try it. Behind the same address (a NAT, a balancer): a user who was let in from there before and failed since
    is let in however many failures of others there are. Times are seconds of any clock that only goes forward; settings are ms.
    """

    # remembered; beyond, the one that failed longest ago is forgotten. Of names as many
    MAX_ADDRESSES: Final = 10_000

    def __init__(
        self,
        *,
        delay: int = 250,
        max_delay: int = 5000,
        limit: int = 20,
        user_limit: int = 100,
        window: int = 300_000,
    ) -> None:
        """`delay`, `max_delay` and `window` in ms; `limit` (of an address) and `user_limit` (of a name) in logins, 0 for none."""
        self._delay: Final = delay / 1000
        self._max_delay: Final = max_delay / 1000
        self._limit: Final = limit
        self._user_limit: Final = user_limit
        self._addresses: Final = _Levels((limit or 20) / (window / 1000), self.MAX_ADDRESSES)
        self._names: Final = _Levels((user_limit or 100) / (window / 1000), self.MAX_ADDRESSES)
        # who was let in from where, and from when on that counts
        self._trusted: Final[dict[bytes, float]] = {}

    def __repr__(self) -> str:
        return f"<FailedLogins of {len(self._addresses)} addresses>"

    def wait(self, address: str, now: float, login: str = "") -> float:
        """Seconds to wait before a login from `address` is looked at. Raises Refused when there were too many failures."""
        network = network_of(address)
        if self._trusted.get(_key(network, login), now + 1) <= now:
            return 0.0
        level = self._addresses.level(network, now)
        if self._limit and level > self._limit - 1:
            raise _too_many(f"from {address}", (level - self._limit + 1) / self._addresses.drain)
        if self._user_limit and level > 0 and self._names.level(_key(login), now) > self._user_limit - 1:
            raise _too_many(f"as this user, and some from {address}", level / self._addresses.drain)
        return min(self._max_delay, self._delay * 2 ** min(level - 1, 64)) if level >= 1 else 0.0

    def failed(self, address: str, now: float, login: str = "") -> None:
        """Count a login as failed, which is to be looked at now."""
        network = network_of(address)
        self._addresses.add(network, now, self._limit)
        self._names.add(_key(login), now, self._user_limit)
        if (pair := _key(network, login)) in self._trusted:
            self._trusted[pair] = now + 1 / self._addresses.drain

    def passed(self, address: str, now: float, login: str = "") -> None:
        """The failure that was counted last was none: the login was right after all."""
        self.forgive(address, now, login)
        pair = _key(network_of(address), login)
        self._trusted.pop(pair, None)
        if len(self._trusted) >= self.MAX_ADDRESSES:
            del self._trusted[next(iter(self._trusted))]
        self._trusted[pair] = now

    def forgive(self, address: str, now: float, login: str = "") -> None:
        """Takes back a failure, because it could not be found out whether the login was right."""
        self._addresses.take_back(network_of(address), now)
        self._names.take_back(_key(login), now)


class _Levels:
    """Failures by what they are counted for, in order of the last one; they drain away evenly."""

    def __init__(self, drain: float, most: int) -> None:
        """Counts failures, of which `drain` a second are forgotten."""
        self.drain: Final = drain
        self._most: Final = most
        self._found: Final[dict[str | bytes, tuple[float, float]]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def level(self, key: str | bytes, now: float) -> float:
        level, when = self._found.get(key, (0.0, now))
        return max(0.0, level - (now - when) * self.drain)

    def add(self, key: str | bytes, now: float, most: int) -> None:
        """Counts a failure. `most`: no level is higher; 0: none is too high."""
        level = self.level(key, now) + 1
        self._found.pop(key, None)
        if len(self._found) >= self._most:
            del self._found[next(iter(self._found))]
        self._found[key] = (min(level, most or level), now)

    def take_back(self, key: str | bytes, now: float) -> None:
        level = self.level(key, now) - 1
        self._found.pop(key, None)
        if level > 0:
            self._found[key] = (level, now)


def _too_many(whose: str, seconds: float) -> Refused:
    return Refused(
        "too-many-failed-logins", f"too many failed logins {whose}; try again in {max(1, ceil(seconds))} s"
    )


def _key(*texts: str) -> bytes:
    """A digest for texts of any length: what is remembered of a stranger has a bound."""
    from hashlib import blake2b

    return blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def network_of(address: str) -> str:
    """What counts as one client: an IPv4 address, or the /64 that an IPv6 host has to itself."""
    if ":" not in address:
        return address
    from ipaddress import IPv6Address

    try:
        parsed = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(parsed.ipv4_mapped) if parsed.ipv4_mapped else parsed.exploded[:19]


Grants = Mapping[str, Collection[str]]


def _nothing(_: str) -> bool:
    """Says of no address that it tells of all."""
    return False


def _is_granted(groups: frozenset[str], granted: Collection[str]) -> bool:
    return "*" in granted or not groups.isdisjoint(granted)


ANSWER: Final = 300  # octets of memory that an answer takes beside the address, at a guess
# characters of an address; of longer ones it is found out each time: a client can make up any number
LONGEST_REMEMBERED: Final = 512


_NUMBERS: Final = count(1)


class Permissions:
    """Which groups have which right on which address.

    The most specific [[permission]] that matches an address decides alone: a right it does not name is refused, and so is an address
    that nothing matches. No [[permission]] at all: every user may do everything. The group `*` is everybody. What tells of everybody,
    notifications, is for those alone who may manage its address: without that right the others are worth nothing there.
    """

    def __init__(
        self,
        grants: Callable[[str], Grants | None] | None = None,
        cache_size: int = 10_000,
        tells_of_all: Callable[[str], bool] = _nothing,
    ) -> None:
        """`grants` finds the groups by right of the most specific match of an address (`PatternTable.best`); `tells_of_all` says
        whether an address is one of those where notifications go."""
        self.number: Final = next(_NUMBERS)  # by which what was begun under others is known
        self._grants: Final = grants
        self._tells_of_all: Final = tells_of_all
        self._cache_size: Final = cache_size
        self._answers: Final[dict[tuple[frozenset[str], Right, str], bool]] = {}
        self.size = 0  # octets of memory that they take, about

    def __repr__(self) -> str:
        return (
            f"<Permissions: {len(self._answers)} answers known>"
            if self._grants
            else "<Permissions: none, everything is allowed>"
        )

    def may(self, user: User, right: Right, address: str) -> bool:
        """Has `user` this right on this one address? A wildcard subscription asks for each address that it reaches."""
        if self._grants is None:
            return True
        question = (user.groups, right, address)  # users of the same groups have the same rights
        answer = self._answers.get(question)
        return self._answer(question) if answer is None else answer

    def require(self, user: User, right: Right, address: str) -> None:
        """Raise Refused when `user` has not this right on this address."""
        if self._grants is not None and not self.may(user, right, address):
            who = f"user {user.name!r}" if user.name else "a nameless client"
            text = f"{who} does not have the right {right.value!r} on address {address[:200]!r}"
            raise NotPermitted("not-permitted", text, right.value, address)

    def is_granted_manage(self, user: User, address: str) -> bool:
        """Does a [[permission]] give `user` the right `manage` there? Without any, nobody is more than the others."""
        return self._grants is not None and self.may(user, Right.MANAGE, address)

    def _answer(self, question: tuple[frozenset[str], Right, str]) -> bool:
        groups, right, address = question
        grants = self._grants(address) if self._grants else None
        needed = {right, Right.MANAGE} if self._tells_of_all(address) else {right}
        answer = grants is not None and all(
            _is_granted(groups, grants.get(each.value, ())) for each in needed
        )
        if self._cache_size > 0 and len(address) <= LONGEST_REMEMBERED:
            self._remember(question, answer)
        return answer

    def _remember(self, question: tuple[frozenset[str], Right, str], answer: bool) -> None:
        self.size += ANSWER + len(question[2])
        self._answers[question] = answer
        while len(self._answers) > self._cache_size:
            oldest = next(iter(self._answers))
            del self._answers[oldest]
            self.size -= ANSWER + len(oldest[2])
