"""The addresses of the drill with everything at once: what each does with its messages, where a SEND must arrive, what may go.

What a queue is stays the same for a whole round, or a last-value queue would have something to answer for that it never promised.
What each broker of a round changes (room in memory, when counts are stored) is `broker_settings`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.crash.events import Sent

KINDS: Final = ("x", "y", "z", "w")
KEYS: Final = 12  # of last-value queues
GROUPS: Final = 8
RING: Final = 20
ATTEMPTS: Final = 2
DEAD, EXPIRED = "all.dead", "all.expired"
NEWS, NEWS_ADDRESS = "/topic/all.news", "all.news"
PRICES = "/topic/all.prices.*"
PRICED: Final = tuple([f"/topic/all.prices.{name}" for name in "abc"])  # each has a retained message
STREAM = f"/stream/{NEWS_ADDRESS}"
# client-ids, with the selector of the durable subscription `news`
SUBSCRIBERS: Final = {"anna": "", "bert": "kind = 'x'", "carl": ""}
WILD: Final = "/topic/*.news"  # carl's


@dataclass(frozen=True, slots=True)
class Source:
    """A queue: what it may do with messages. `takes`: kinds that come to it, empty for all."""

    name: str
    destination: str
    settings: str = ""  # of its address, as in the configuration
    takes: str = ""
    is_ring: bool = False
    is_last_value: bool = False
    is_grouped: bool = False
    moves_groups: bool = False  # to a consumer that comes
    is_exclusive: bool = False
    is_kept: bool = False  # consuming removes nothing
    may_drop: bool = False  # what was confirmed may never arrive
    may_refuse: bool = False  # a SEND may get an ERROR
    may_block: bool = False
    is_final: bool = False  # for dead and expired messages: nothing dies or expires there


def _queue(name: str, settings: str = "", **rules: bool) -> Source:
    return Source(f"all.{name}", f"/queue/all.{name}", settings, **rules)  # type: ignore[arg-type]


QUEUES: Final = (
    _queue("mixed", "redelivery-delay = 20\nredelivery-delay-multiplier = 2.0\n"),
    _queue("groups", is_grouped=True),
    _queue("groups.buckets", "default-group-buckets = 3\n", is_grouped=True),
    _queue("groups.moving", "default-group-rebalance = true\n", is_grouped=True, moves_groups=True),
    _queue("last", 'default-last-value-key = "key"\n', is_last_value=True),
    _queue("ring", f"default-ring-size = {RING}\n", is_ring=True),
    _queue("alone", "default-exclusive-queue = true\n", is_exclusive=True),
    _queue("drop", 'address-full-policy = "DROP"\n', may_drop=True),
    _queue("fail", 'address-full-policy = "FAIL"\n', may_refuse=True),
    _queue("fail.paged", 'page-limit-messages = 60\npage-full-policy = "FAIL"\n', may_refuse=True),
    _queue("block", 'address-full-policy = "BLOCK"\n', may_block=True),
    _queue("kept", "default-non-destructive = true\n", is_kept=True),
    _queue("copies"),
    _queue("taken"),
    Source(DEAD, f"/queue/{DEAD}", "max-delivery-attempts = -1\n", is_final=True),
    Source(EXPIRED, f"/queue/{EXPIRED}", "max-delivery-attempts = -1\n", is_final=True),
)
DURABLE: Final = tuple(
    [
        Source(f"{name}.news", WILD if name == "carl" else NEWS, takes="x" if selector else "")
        for name, selector in SUBSCRIBERS.items()
    ]
)
FILTERED: Final = Source("all.filtered", f"/topic/{NEWS_ADDRESS}::all.filtered", takes="y")
LOG: Final = Source(STREAM, STREAM)
NAMED: Final = Source("nora.stream", STREAM)  # a reader of the log with a stored position
# each, by the name `temporary:<its owner's link>`
TEMPORARY: Final = Source("temporary", "/temp-queue/answers")
BY_NAME: Final = {source.name: source for source in (*QUEUES, *DURABLE, FILTERED, LOG, NAMED)}
PLAIN: Final = tuple(
    [source.destination for source in QUEUES if source.name not in (DEAD, EXPIRED, "all.taken")]
)
COMPOSITES: Final = (
    f"/queue/all.mixed,{NEWS}",
    "/queue/all.last,/queue/all.ring,/queue/all.copies",
    f"/queue/all.groups,/queue/all.alone,{NEWS}",
)
DESTINATIONS: Final = (*PLAIN, NEWS, *COMPOSITES)
UNREFUSED: Final = tuple([each for each in DESTINATIONS if "fail" not in each and "block" not in each])


def rules_of(source: str) -> Source:
    return TEMPORARY if source.startswith(f"{TEMPORARY.name}:") else BY_NAME[source]


def sources_of(sent: Sent) -> Iterator[str]:
    """All that must get a message."""
    kind = sent.traits.kind
    for destination in sent.destination.split(","):
        if destination == NEWS:
            yield from [
                source.name
                for source in (*DURABLE, FILTERED, LOG, NAMED)
                if not source.takes or source.takes == kind
            ]
        elif destination in PRICED:
            pass
        elif destination == "/queue/all.alone" and kind == "z":  # an exclusive divert takes it
            yield "all.taken"
        else:
            yield destination.removeprefix("/queue/")
            if destination == "/queue/all.mixed" and kind == "x":
                yield "all.copies"


def broker_settings(random: Random) -> str:
    """What this one broker is like, at the top of its configuration."""
    return random.choice(("", 'global-max-size = "256KiB"\n', 'global-max-size = "1MiB"\n')) + random.choice(
        ("", "persist-delivery-count-before-delivery = true\n", "max-commit-delay = 0\n")
    )


def limited(configuration: str) -> list[str]:
    """The sources whose address may be full, with such a configuration."""
    top, *tables = configuration.split("[[address-setting]]\n")
    found = []
    for source in QUEUES if "global-max-size" not in top else ():
        [table] = [table for table in tables if table.startswith(f'match = "{source.name}"\n')]
        if "max-size" in table or "page-limit" in table:
            found.append(source.name)
    return found if "global-max-size" not in top else [source.name for source in QUEUES]


def address_settings(random: Random, *, is_last: bool = False) -> str:
    """Room on the addresses, as this broker has it; the last one, which everything is taken from, has room for everything."""
    text = _table(
        "#",
        f'dead-letter-address = "{DEAD}"\nexpiry-address = "{EXPIRED}"\nmax-delivery-attempts = {ATTEMPTS}\n'
        "auto-delete-queues = false\nauto-delete-addresses = false\n",
    )
    text += _table(NEWS_ADDRESS, f"retention-ms = 3600000\n{_room(random, is_last)}")
    for source in QUEUES:
        text += _table(
            source.name, source.settings + ("" if is_last and _has_policy(source) else _room(random, is_last))
        )
    return text


def _has_policy(source: Source) -> bool:
    return source.may_drop or source.may_refuse or source.may_block


def _room(random: Random, is_last: bool) -> str:
    choices = (
        "",
        'max-size-bytes = "8KiB"\n',
        'max-size-bytes = "64KiB"\npage-size-bytes = "16KiB"\n',
        "max-size-messages = 100\n",
    )
    return "" if is_last else random.choice(choices)


def _table(match: str, lines: str) -> str:
    return f'[[address-setting]]\nmatch = "{match}"\n{lines}'


FIXED: Final = f"""
[[address]]
name = "{NEWS_ADDRESS}"
routing-types = ["MULTICAST"]
[[address.queue]]
name = "all.filtered"
filter = "kind = 'y'"

[[divert]]
name = "copy"
address = "all.mixed"
forwarding-address = "all.copies"
filter = "kind = 'x'"

[[divert]]
name = "take"
address = "all.alone"
forwarding-address = "all.taken"
filter = "kind = 'z'"
exclusive = true
"""
