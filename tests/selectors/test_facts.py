from __future__ import annotations

import pytest

from stompbox.selectors import FACTS, PER_MESSAGE, SPECIAL_NAMES, compile_selector
from stompbox.selectors.facts import FACT_TABLE, WORDS, Value

VALUES: dict[str, Value] = {
    "priority": 7,
    "message_id": "m-1",
    "timestamp": 1_700_000_000_000,
    "expiration": 0,
    "durable": True,
    "size": 2048,
    "address": "orders",
    "group_id": "g",
    "correlation_id": "c",
    "type": "t",
    "reply_to": "/queue/r",
    "redelivered": True,
    "delivery_count": 2,
    "user_id": "alice",
}


def literal(value: Value) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value).upper()


def expected(name: str) -> Value:
    value = VALUES[FACTS[name]]
    return WORDS[name][bool(value)] if name in WORDS else value


def test_the_values_cover_every_fact() -> None:
    assert set(VALUES) == {fact.name for fact in FACT_TABLE} == set(FACTS.values())
    assert set(FACTS) == SPECIAL_NAMES
    assert set(VALUES) > PER_MESSAGE


@pytest.mark.parametrize("name", sorted(SPECIAL_NAMES))
def test_a_special_name_reads_its_fact(name: str) -> None:
    selector = compile_selector(f"{name} = {literal(expected(name))}")
    assert selector.matches({}, VALUES)
    assert selector.matches({name: "something else"}, VALUES), "the fact wins over a header of that name"
    assert not selector.matches({}, {})


@pytest.mark.parametrize("name", sorted(SPECIAL_NAMES))
def test_without_the_fact_the_header_of_that_name_is_read(name: str) -> None:
    selector = compile_selector(f"{name} = 'mine'")
    assert selector.matches({name: "mine"}, {})
    assert selector.matches({name: "mine"}, {FACTS[name]: None})


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("JMSCorrelationID", "correlation-id"),
        ("JMSType", "type"),
        ("JMSReplyTo", "reply-to"),
        ("AMQGroupID", "JMSXGroupID"),
    ],
)
def test_a_text_falls_back_to_the_header_that_carries_it(name: str, header: str) -> None:
    selector = compile_selector(f"{name} = 'x'")
    assert selector.matches({header: "x"}, {})
    assert not selector.matches({header: "x", name: "y"}, {})
    assert header in selector.headers


@pytest.mark.parametrize(
    ("durable", "artemis", "jms"), [(True, "DURABLE", "PERSISTENT"), (False, "NON_DURABLE", "NON_PERSISTENT")]
)
def test_durable_reads_as_a_word(durable: bool, artemis: str, jms: str) -> None:
    facts: dict[str, Value] = {"durable": durable}
    assert compile_selector(f"AMQDurable = '{artemis}' AND JMSDeliveryMode = '{jms}'").matches({}, facts)
    assert compile_selector(
        "AMQDurable IN ('DURABLE', 'NON_DURABLE') AND JMSDeliveryMode LIKE '%PERSISTENT'"
    ).matches({}, facts)


def test_a_boolean_fact_stands_alone() -> None:
    assert compile_selector("JMSRedelivered").matches({}, {"redelivered": True})
    assert compile_selector("NOT JMSRedelivered").matches({}, {"redelivered": False})
    assert not compile_selector("NOT JMSRedelivered").matches({}, {})


def test_an_unknown_name_of_the_family_is_an_ordinary_header() -> None:
    selector = compile_selector("AMQWhatever = 'x'")
    assert selector.matches({"AMQWhatever": "x"}, {})
    assert selector.facts == frozenset()
