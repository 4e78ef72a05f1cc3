"""Users from the properties files of Artemis and ActiveMQ Classic, and what becomes of their passwords.

Decides that a password in plain text is carried over as its argon2 hash, and one that is hashed is not: nothing here verifies it. Who has
none cannot log in, and a comment says what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from re import sub
from typing import Final

from stompbox.conversion.draft import Draft
from stompbox.errors import ConfigError

WHAT_TO_DO: Final = "the user cannot log in until `stompbox user hash` has made a password"


@dataclass(frozen=True, slots=True)
class Properties:
    """A file of `key = value` lines: each value with its line."""

    name: str
    values: dict[str, tuple[str, int]]

    @staticmethod
    def read(name: str, text: bytes) -> Properties:
        """Raises ConfigError that names the line of what is no property."""
        found: dict[str, tuple[str, int]] = {}
        try:
            plain = text.decode("utf-8")
        except UnicodeDecodeError:
            plain = text.decode("latin-1")  # as Java has it
        for number, line in enumerate(plain.splitlines(), 1):
            bare = line.strip()
            if not bare or bare[0] in "#!":
                continue
            at = next((i for i, letter in enumerate(bare) if letter in "=:" and bare[i - 1] != "\\"), -1)
            if at <= 0:
                raise ConfigError("config-syntax", f"{name}:{number}: expected `name = value`")
            found[_unescaped(bare[:at].strip())] = (_unescaped(bare[at + 1 :].strip()), number)
        return Properties(name, found)


def _unescaped(text: str) -> str:
    return sub(r"\\(.)", r"\1", text)


@dataclass(frozen=True, slots=True)
class Accounts:
    """The files beside a configuration, as far as they are there, and how a password becomes a hash."""

    hashed: Callable[[str], str]
    users: Properties | None = None
    roles: Properties | None = None

    def groups_of(self, user: str) -> list[str]:
        roles = self.roles.values if self.roles else {}
        return [
            role
            for role, (members, _) in roles.items()
            if user in [name.strip() for name in members.split(",")]
        ]

    def write(self, draft: Draft) -> None:
        """A [[user]] for each."""
        for name, (password, line) in (self.users.values if self.users else {}).items():
            write_user(draft, User(name, password, self.groups_of(name), line), self)


@dataclass(frozen=True, slots=True)
class User:
    name: str
    password: str | None
    groups: Iterable[str] = field(default_factory=tuple)
    line: int = 0
    is_hash: bool = False  # the password is one


def write_user(draft: Draft, user: User, accounts: Accounts) -> None:
    """A [[user]]; the line is of the users' file where there is one."""
    where = f"{accounts.users.name}:{user.line}" if accounts.users else draft.place(user.line)
    table = draft.table("[[user]]", user.line)
    table.put("name", user.name, user.line)
    if (
        user.password
        and not user.is_hash
        and not user.password.startswith("ENC(")
        and "${" not in user.password
    ):
        table.put("password", accounts.hashed(user.password), user.line)
    else:
        why = (
            "it is a hash or a placeholder, which is not verified here" if user.password else "there is none"
        )
        table.leave(0, f"password of {user.name!r} ({where})", f"{why}; {WHAT_TO_DO}")
    if groups := list(user.groups):
        table.put("groups", groups, user.line)
