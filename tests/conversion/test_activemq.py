"""activemq.xml of ActiveMQ Classic as TOML: what each element becomes, and what is left out with its line."""

from __future__ import annotations

import pytest

from stompbox.errors import ConfigError
from tests.conversion.conftest import Conversion


def broker(inside: str, attributes: str = "") -> str:
    return f"<beans>\n<broker {attributes}>\n{inside}\n</broker>\n</beans>"


def test_a_whole_file(converted: Conversion) -> None:
    found = converted("activemq", "activemq.xml")
    content = found.content
    assert content["global-max-size"] == 64 * 1024 * 1024
    assert [table["url"] for table in content["listener"]] == [
        "tcp://0.0.0.0:61613?maxConnections=1000;maxBodySize=1048576;dialect=activemq",
        "tcp://0.0.0.0:61614?dialect=activemq",
    ]
    assert found.named("user", "name", "system") == {
        "name": "system",
        "password": "hash of manager",
        "groups": ["admins", "users"],
    }
    assert found.named("permission", "match", "USERS.#")["send"] == ["users"]
    assert found.named("address-setting", "match", "#") == {
        "match": "#",
        "offline-durable-subscription-timeout": 86_400_000,
        "max-delivery-attempts": 5,
        "redelivery-delay": 5000,
        "redelivery-delay-multiplier": 2.0,
        "max-size-bytes": 1 << 20,
        "auto-delete-queues": True,
        "auto-delete-queues-delay": 30_000,
        "address-full-policy": "BLOCK",
        "dead-letter-address": "DLQ",
        "auto-create-dead-letter-resources": True,
        "dead-letter-queue-prefix": "DLQ.",
    }
    assert found.named("address-setting", "match", "orders.#")["dead-letter-address"] == "orders.dead"
    assert found.named("address", "name", "prices")["routing-types"] == ["MULTICAST", "ANYCAST"]
    assert found.named("divert", "name", "in-2") == {
        "name": "in-2", "address": "in", "forwarding-address": "odd", "exclusive": False, "routing-type": "MULTICAST",
        "filter": "odd = 'yes'",
    }  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ("activemq.xml:3", "advisorySupport"),
        ("activemq.xml:7", "constantPendingMessageLimitStrategy"),
        ("activemq.xml:11", "memoryLimit = 'viel'", "max-size-bytes"),
        ("activemq.xml:18", "<persistenceAdapter>"),
        ("activemq.xml:21", "storeUsage limit = 100 gb"),
        ("activemq.xml:25", "'openwire'", "STOMP alone"),
        ("activemq.xml:26", "wireFormat.maxFrameSize"),
        ("activemq.xml:27", "keyStorePath"),
        ("activemq.xml:33", "<virtualTopic>"),
        ("activemq.xml:38", "'guest'", "stompbox user hash"),
        ("activemq.xml:43", "ActiveMQ.Advisory"),
    ],
)
def test_what_is_left_out_is_named_with_its_line(converted: Conversion, words: tuple[str, ...]) -> None:
    assert converted("activemq", "activemq.xml").says("not carried over", *words)


def test_a_second_value_for_one_address_is_named(converted: Conversion) -> None:
    entries = '<policyEntry queue="a" memoryLimit="1mb" producerFlowControl="false"/>\n<policyEntry topic="a" memoryLimit="2mb"/>'
    text = f"<destinationPolicy><policyMap><policyEntries>{entries}</policyEntries></policyMap></destinationPolicy>"
    found = converted("activemq", broker(text))
    assert found.named("address-setting", "match", "a")["max-size-bytes"] == 1 << 20
    assert found.says("not carried over", "it:4", "max-size-bytes = 2097152")


def test_names_divided_by_slashes_and_no_store(converted: Conversion) -> None:
    found = converted(
        "activemq", broker("<plugins><destinationPathSeparatorPlugin/><x/></plugins>", 'persistent="false"')
    )
    assert (found.content["memory"], found.content["wildcard-addresses"]) == (True, {"delimiter": "/"})
    assert found.says("not carried over", "<x>", "Java")


@pytest.mark.parametrize(
    ("policy", "key", "value"),
    [
        ("<deadLetterStrategy><discarding/></deadLetterStrategy>", "dead-letter-address", ""),
        (
            "<deadLetterStrategy><sharedDeadLetterStrategy/></deadLetterStrategy>",
            "dead-letter-address",
            "ActiveMQ.DLQ",
        ),
        ("<s><lastImageSubscriptionRecoveryPolicy/></s>", "retroactive-message-count", 1),
        ("<s><fixedCountSubscriptionRecoveryPolicy maximumSize='9'/></s>", "retroactive-message-count", 9),
        ("<s><abortSlowConsumerStrategy/></s>", "slow-consumer-policy", "KILL"),
    ],
)
def test_strategies(converted: Conversion, policy: str, key: str, value: object) -> None:
    entry = f'<policyEntry queue="a.*">{policy}</policyEntry>'
    text = f"<destinationPolicy><policyMap><policyEntries>{entry}</policyEntries></policyMap></destinationPolicy>"
    assert converted("activemq", broker(text)).named("address-setting", "match", "a.*")[key] == value


def test_another_file_is_refused(converted: Conversion) -> None:
    with pytest.raises(ConfigError, match=r"^it:1: no <broker> in <configuration>"):
        converted("activemq", "<configuration><core/></configuration>")
