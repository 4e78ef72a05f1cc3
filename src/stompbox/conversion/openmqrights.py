"""OpenMQ's accesscontrol.properties as [[permission]] tables.

    queue.orders.produce.allow.user = alice, bob        type, name or *, produce, consume or browse, allow or deny, user or group

There a rule for one name goes before those for all, a user's own before a group's, and what no rule allows is refused. Here the most
specific match alone decides, and rights are groups'. So a match has the rules for all names as well; `user=alice` is a group of hers, and
`user=*` one of everybody. Where something is denied, who remains is written out by name: it may become less than it was, never more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final

from stompbox.conversion.accounts import Properties
from stompbox.conversion.draft import Draft, Table

ALL: Final = "*"
EVERYONE: Final = "user=*"
_TYPES: Final = ("queue", "topic")
_OPERATIONS: Final = {"produce": ("send",), "consume": ("consume",), "browse": ("browse",)}
_MAKING: Final = ("create-address", "create-durable-queue", "create-non-durable-queue")
_SUBSCRIBING: Final = ("create-durable-queue", "create-non-durable-queue", "delete-durable-queue")


def named_group(user: str) -> str:
    """The group that a user has alone. OpenMQ's groups are admin, user and anonymous, or of a directory: none is called so."""
    return f"user={user}"


@dataclass(frozen=True, slots=True)
class Rule:
    """Who may, or may not. `name`: of a destination, or `*`; `is_user`: principals are users."""

    type: str
    name: str
    operation: str
    is_allowed: bool
    is_user: bool
    principals: tuple[str, ...]
    line: int

    def allowed(self) -> frozenset[str]:
        """The groups here of whom it is for."""
        if ALL in self.principals:
            return frozenset((EVERYONE,))
        return frozenset(named_group(one) if self.is_user else one for one in self.principals)


class Rights:
    """The rules of a file. `groups`: of each user who may log in."""

    def __init__(self, file: Properties, groups: Mapping[str, list[str]]) -> None:
        self._file: Final = file
        self._groups: Final = groups
        self._strange: Final[list[tuple[str, int]]] = []
        self._rules: Final = list(self._read())
        self.names_everyone: Final = True  # each match that allows anything to all has it
        denied = any(not rule.is_allowed for rule in self._rules)
        told = {one for rule in self._rules if rule.is_user for one in rule.principals}
        self.named: Final = set(groups) if denied else told & set(groups)

    def _read(self) -> Iterator[Rule]:
        for key, (value, line) in self._file.values.items():
            rule = _rule(key, value, line)
            if rule is not None:
                yield rule
            elif key != "version":
                self._strange.append((key, line))

    def write(self, draft: Draft) -> None:
        """A [[permission]] for `#`, for each name that has rules, and for the broker as a whole."""
        for key, line in self._strange:
            draft.top.leave(
                0,
                f"{self._file.name}:{line}: {key[:80]}",
                "it is no rule of a queue, a topic or a connection",
            )
        if not self._groups and any(not rule.is_allowed for rule in self._rules):
            draft.top.leave(
                0,
                f"{self._file.name}: who may where others may not",
                "give the passwd file with --users; nobody may",
            )
        names = dict.fromkeys(rule.name for rule in self._rules if rule.type in _TYPES and rule.name)
        for name in sorted(names, key=lambda one: one != ALL):
            self._destination(draft, name)
        if ALL not in names:
            table = draft.table("[[permission]]", 0)
            table.put("match", "#", 0)
            table.remark(f"{self._file.name} has no rule for all names: nobody may")
        self._connections(draft)

    def _destination(self, draft: Draft, name: str) -> None:
        own = [rule for rule in self._rules if rule.name == name and rule.type in _TYPES]
        types = [kind for kind in _TYPES if any(rule.type == kind for rule in own)]
        table = draft.table("[[permission]]", 0)
        table.put("match", "#" if name == ALL else name, 0)
        table.remark(f"{self._file.name}:{', '.join(str(rule.line) for rule in own)}")
        for operation, rights in _OPERATIONS.items():
            kinds = [kind for kind in types if (kind, operation) != ("topic", "browse")]
            for right in rights:
                table.put(right, self._both(table, kinds, name, operation), 0)
        making = set(self._both(table, types, "", "create"))
        consuming = set(self._both(table, types, name, "consume"))
        for right in dict.fromkeys((*_MAKING, *_SUBSCRIBING)):
            who = (making if right in _MAKING else set()) | (consuming if right in _SUBSCRIBING else set())
            table.put(right, sorted(who), 0)

    def _both(self, table: Table, kinds: Iterable[str], name: str, operation: str) -> list[str]:
        """Who may do it in each of the kinds; a comment where they differ, since an address is one for both."""
        found = [self._who(kind, name, operation) for kind in kinds]
        if not found:
            return []
        common = reduce(_both_of, found)
        if any(one != common for one in found):
            what = f"{operation} of {name or 'new ones'} by others for its queue than for its topic"
            table.leave(0, what, "an address is both: only who might do it with both may")
        return sorted(common)

    def _who(self, kind: str, name: str, operation: str) -> frozenset[str]:
        """The groups that may do it with what has this name; for `create` the name is nothing."""
        levels = [name] if name in ("", ALL) else [name, ALL]
        rules = [[rule for rule in self._rules if (rule.type, rule.name, rule.operation) == (kind, level, operation)]
                 for level in levels]  # fmt: skip
        return self._among(rules)

    def _among(self, levels: list[list[Rule]]) -> frozenset[str]:
        """The groups that these rules let, those for one name before those for all."""
        flat = [rule for level in levels for rule in level]
        if all(rule.is_allowed for rule in flat):
            who = frozenset(group for rule in flat for group in rule.allowed())
            return frozenset((EVERYONE,)) if EVERYONE in who else who
        return frozenset(
            named_group(user) for user, groups in self._groups.items() if _may(levels, user, groups)
        )

    def _connections(self, draft: Draft) -> None:
        admins = [rule for rule in self._rules if (rule.type, rule.name) == ("connection", "ADMIN")]
        table = draft.table("[[permission]]", 0)
        table.put("match", "stompbox.admin", 0)
        table.put("manage", sorted(self._among([admins])), 0)
        for rule in self._rules:
            is_plain = rule.is_allowed and rule.is_user and ALL in rule.principals
            if (rule.type, rule.name) == ("connection", "NORMAL") and not is_plain:
                what = f"{self._file.name}:{rule.line}: who may connect"
                draft.top.leave(
                    0, what, "who has a [[user]] table with a password may log in, and nobody else"
                )


def _both_of(one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
    """Who is in both, where one of them may be everybody."""
    if EVERYONE in one:
        return other
    return one if EVERYONE in other else one & other


def _rule(key: str, value: str, line: int) -> Rule | None:
    """The rule of a property, or None where it is none."""
    kind, *middle = key.split(".")
    if len(middle) < 3 or middle[-2] not in ("allow", "deny") or middle[-1] not in ("user", "group"):
        return None
    *names, access, principal = middle
    operation = ""
    if kind in _TYPES:
        operation = names.pop()
        if operation not in (*_OPERATIONS, "create") or (operation == "create") != (not names):
            return None
    elif kind != "connection":
        return None
    name = ".".join(names)
    if name != ALL and any(letter in name for letter in "*#>"):
        return None
    principals = tuple(one.strip() for one in value.split(",") if one.strip())
    return Rule(kind, name, operation, access == "allow", principal == "user", principals, line)


def _may(levels: list[list[Rule]], user: str, groups: Iterable[str]) -> bool:
    """Whether the rules let a user; the first level that says anything of the user decides."""
    for rules in levels:
        for is_user, names in ((True, {user}), (False, set(groups)), (True, {ALL}), (False, {ALL})):
            about = [rule for rule in rules if rule.is_user == is_user and names & set(rule.principals)]
            if about:
                return all(rule.is_allowed for rule in about)
    return False
