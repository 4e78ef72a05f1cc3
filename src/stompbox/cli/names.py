"""Names that a shell offers while somebody types: queues, addresses, groups and users of the broker, and contexts.

The broker is the one that the command itself would ask. Who may not ask it, or where there is none, is offered nothing: what goes wrong
here is told to nobody (cyclopts, `__complete`), and the whole takes SOON seconds at most, which the command line sees to.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cyclopts.completion import CompletionContext

MOST: Final = 200  # names that are offered


def queues(typed: CompletionContext) -> list[str]:
    return _named("queues", typed)


def addresses(typed: CompletionContext) -> list[str]:
    return _named("addresses", typed)


def groups(typed: CompletionContext) -> list[str]:
    return _named("groups", typed)


def users(typed: CompletionContext) -> list[str]:
    return _named("users", typed)


def contexts(typed: CompletionContext) -> list[str]:
    from stompbox.cli.contexts import names

    return [name for name in names() if name.startswith(typed.incomplete)]


def _named(path: str, typed: CompletionContext) -> list[str]:
    """Names of a list of the API are returned that begin with what is typed. Raises StompboxError where the broker does not say."""
    from stompbox.cli.asking import every

    admin = typed.get("--admin")
    found = every(admin.raw if admin is not None else None, path, match=typed.incomplete)
    begun = (str(one["name"]) for one in found if str(one["name"]).startswith(typed.incomplete))
    return sorted(set(islice(begun, MOST)))
