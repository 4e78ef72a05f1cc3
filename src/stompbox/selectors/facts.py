"""The names in a selector that the broker answers, not the sender: one table, for both families of names.

Decides: which identifiers are special, which fact stands behind each, the type and unit of every fact.
Does not decide: how a broker comes by a fact. The caller hands facts over by their canonical name; a fact it leaves out (or gives
as None) is read from the message's header of the special name instead, and texts after that from the header that carries them.

| fact           | type | unit, meaning                                             | Artemis      | JMS                          |
|----------------|------|-----------------------------------------------------------|--------------|------------------------------|
| priority       | int  | 0..9                                                      | AMQPriority  | JMSPriority                  |
| message_id     | str  | the broker's id of the message                            | AMQUserID    | JMSMessageID                 |
| timestamp      | int  | ms since the epoch                                        | AMQTimestamp | JMSTimestamp                 |
| expiration     | int  | ms since the epoch, 0 = never                             | AMQExpiration| JMSExpiration                |
| durable        | bool | True: 'DURABLE', 'PERSISTENT'; False: the NON_ words      | AMQDurable   | JMSDeliveryMode              |
| size           | int  | encoded size in octets                                    | AMQSize      | -                            |
| address        | str  | where it was sent to, without prefix                      | AMQAddress   | JMSDestination               |
| group_id       | str  | message group                                             | AMQGroupID   | JMSXGroupID                  |
| correlation_id | str  | header correlation-id                                     | -            | JMSCorrelationID             |
| type           | str  | header type                                               | -            | JMSType                      |
| reply_to       | str  | header reply-to                                           | -            | JMSReplyTo                   |
| redelivered    | bool | delivered before                                          | -            | JMSRedelivered               |
| delivery_count | int  | 1 at the first delivery                                   | -            | JMSXDeliveryCount            |
| user_id        | str  | the sender's user name                                    | -            | JMSXUserID                   |

Source: the Artemis manual (filter expressions), JMS 1.1 section 3.8.1.1 and 3.5.9 for the JMS and JMSX names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

Value = str | int | float | bool | None
"""What an identifier can stand for; None is a missing header, a value that nobody knows."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A canonical fact.

    headers: those a broker derives it from. fallback: the header that carries it as it is, read where the fact is absent.
    per_message: two messages with equal headers may differ in it.
    """

    name: str
    special_names: tuple[str, ...]
    headers: tuple[str, ...] = ()
    fallback: str | None = None
    per_message: bool = False


FACT_TABLE = (
    Fact("priority", ("AMQPriority", "JMSPriority"), headers=("priority",)),
    Fact("message_id", ("AMQUserID", "JMSMessageID"), per_message=True),
    Fact("timestamp", ("AMQTimestamp", "JMSTimestamp"), headers=("timestamp",), per_message=True),
    Fact(
        "expiration", ("AMQExpiration", "JMSExpiration"), headers=("expires", "expiration"), per_message=True
    ),
    Fact("durable", ("AMQDurable", "JMSDeliveryMode"), headers=("persistent",)),
    Fact("size", ("AMQSize",), per_message=True),
    Fact("address", ("AMQAddress", "JMSDestination"), headers=("destination",)),
    Fact("group_id", ("AMQGroupID", "JMSXGroupID"), headers=("JMSXGroupID",), fallback="JMSXGroupID"),
    Fact("correlation_id", ("JMSCorrelationID",), headers=("correlation-id",), fallback="correlation-id"),
    Fact("type", ("JMSType",), headers=("type",), fallback="type"),
    Fact("reply_to", ("JMSReplyTo",), headers=("reply-to",), fallback="reply-to"),
    Fact("redelivered", ("JMSRedelivered",), per_message=True),
    Fact("delivery_count", ("JMSXDeliveryCount",), per_message=True),
    Fact("user_id", ("JMSXUserID",), per_message=True),
)

BY_SPECIAL_NAME: Mapping[str, Fact] = MappingProxyType(
    {name: fact for fact in FACT_TABLE for name in fact.special_names}
)

FACTS: Mapping[str, str] = MappingProxyType({name: fact.name for name, fact in BY_SPECIAL_NAME.items()})
"""Special name -> canonical fact."""

SPECIAL_NAMES: frozenset[str] = frozenset(FACTS)

PER_MESSAGE: frozenset[str] = frozenset(fact.name for fact in FACT_TABLE if fact.per_message)
"""Facts in which two messages with the same headers may differ: a verdict that needs one cannot be kept for the next message."""

WORDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"AMQDurable": ("NON_DURABLE", "DURABLE"), "JMSDeliveryMode": ("NON_PERSISTENT", "PERSISTENT")}
)
"""Special names whose boolean fact reads as a word: (False, True)."""
