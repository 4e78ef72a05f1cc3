"""Users of a broker's configuration, as a test says them: `users("root:r00t@admins", "bob:b0b@users,people")`."""

from __future__ import annotations


def users(*told: str) -> str:
    """A [[user]] table for each `name:password@group,group`; without `@` the user is in no group, without `:` nobody can log in so."""
    return "".join([_table(one) for one in told])


def _table(told: str) -> str:
    who, _, groups = told.partition("@")
    name, separator, password = who.partition(":")
    lines = ["[[user]]", f'name = "{name}"', *([f'password = "{password}"'] if separator else [])]
    if groups:
        lines.append("groups = [" + ", ".join([f'"{group}"' for group in groups.split(",")]) + "]")
    return "\n".join(lines) + "\n"
