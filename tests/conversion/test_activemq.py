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
        "tcp://0.0.0.0:61613?maxConnections=1000;maxBodySize=1048576;nackPolicy=attempt;"
        "virtualTopicConsumerWildcards=VTC.*.>%3B2;dialect=activemq",
        "tcp://0.0.0.0:61614?nackPolicy=attempt;virtualTopicConsumerWildcards=VTC.*.>%3B2;dialect=activemq",
    ]
    assert found.named("user", "name", "system") == {
        "name": "system",
        "password": "hash of manager",
        "groups": ["admins", "users"],
    }
    assert found.named("permission", "match", "USERS.#")["send"] == ["users", "admins"]
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
        "expiry-address": "DLQ",
        "auto-create-expiry-resources": True,
        "expiry-queue-prefix": "DLQ.",
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
        ("activemq.xml:27", "keyStorePath"),
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


def test_where_dead_letters_go_unasked(converted: Conversion) -> None:
    found = converted("activemq", broker(""))
    assert found.content["address-setting"] == [
        {"match": "#", "dead-letter-address": "ActiveMQ.DLQ", "expiry-address": "ActiveMQ.DLQ"}
    ]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ('<sharedDeadLetterStrategy processExpired="false"/>', {"dead-letter-address": "ActiveMQ.DLQ", "expiry-address": ""}),
        ('<discarding/>', {"dead-letter-address": "", "expiry-address": ""}),
        (
            '<individualDeadLetterStrategy queuePrefix="D." processExpired="false"/>',
            {"dead-letter-address": "DLQ", "dead-letter-queue-prefix": "D.", "expiry-address": ""},
        ),
    ],
)  # fmt: skip
def test_where_the_expired_go(converted: Conversion, strategy: str, expected: dict[str, str]) -> None:
    entry = f'<policyEntry queue="a"><deadLetterStrategy>{strategy}</deadLetterStrategy></policyEntry>'
    text = f"<destinationPolicy><policyMap><policyEntries>{entry}</policyEntries></policyMap></destinationPolicy>"
    found = converted("activemq", broker(text)).named("address-setting", "match", "a")
    assert expected.items() <= found.items()


RIGHTS = """<plugins><authorizationPlugin><map><authorizationMap><authorizationEntries>
<authorizationEntry queue=">" read="admins" write="admins" admin="admins"/>
<authorizationEntry queue="orders.*" read="clerks" write="shops" admin="admins"/>
<authorizationEntry queue="orders.eu" read="eu" write="eu" admin="eu"/>
<authorizationEntry topic=">" read="all" write="admins" admin="admins"/>
<authorizationEntry topic="orders.eu" read="eu" write="eu" admin="eu"/>
</authorizationEntries></authorizationMap></map></authorizationPlugin></plugins>"""


def test_rights_that_add_up_are_in_the_most_specific_table(converted: Conversion) -> None:
    found = converted("activemq", broker(RIGHTS))
    special = found.named("permission", "match", "orders.eu")
    assert special["consume"] == ["eu", "admins", "clerks"]
    assert special["send"] == ["eu", "admins", "shops"]
    assert found.named("permission", "match", "orders.*")["browse"] == ["clerks", "admins"]
    assert found.says("not carried over", "it:7", "'>' a second time")
    assert not found.says("it:8")  # as that of the queue


REDELIVERY = (
    "<plugins><redeliveryPlugin><redeliveryPolicyMap><redeliveryPolicyMap><defaultEntry>\n"
    "<redeliveryPolicy {}/></defaultEntry></redeliveryPolicyMap></redeliveryPolicyMap></redeliveryPlugin></plugins>"
)


@pytest.mark.parametrize(
    ("policy", "delay", "is_said"),
    [
        ('redeliveryDelay="700"', 700, False),
        ('initialRedeliveryDelay="100" redeliveryDelay="100"', 100, False),
        ('initialRedeliveryDelay="100" redeliveryDelay="700"', 100, True),
        ('initialRedeliveryDelay="100" redeliveryDelay="700" useExponentialBackOff="true"', 100, False),
    ],
)
def test_a_second_delay_is_carried_over_or_named(
    converted: Conversion, policy: str, delay: int, is_said: bool
) -> None:
    found = converted("activemq", broker(REDELIVERY.format(policy)))
    assert found.named("address-setting", "match", "#")["redelivery-delay"] == delay
    assert found.says("not carried over", "it:4", "redeliveryDelay = 700") == is_said


def test_a_nack_is_tried_again_where_the_plug_in_says_so(converted: Conversion) -> None:
    connector = '<transportConnectors><transportConnector uri="stomp://127.0.0.1:1"/></transportConnectors>'
    plugin = REDELIVERY.format('maximumRedeliveries="3"')
    urls = [
        converted("activemq", broker(text)).content["listener"][0]["url"]
        for text in (connector, connector + plugin)
    ]
    assert urls == [
        "tcp://127.0.0.1:1?dialect=activemq",
        "tcp://127.0.0.1:1?nackPolicy=attempt;dialect=activemq",
    ]


def composite(attributes: str, *targets: str) -> str:
    inside = (
        f"<compositeQueue name='in' {attributes}><forwardTo>{''.join(targets)}</forwardTo></compositeQueue>"
    )
    virtual = f"<virtualDestinations>{inside}</virtualDestinations>"
    return broker(
        f"<destinationInterceptors><virtualDestinationInterceptor>{virtual}</virtualDestinationInterceptor></destinationInterceptors>"
    )


def test_a_composite_queue_forwards_to_all_its_targets(converted: Conversion) -> None:
    """An exclusive divert leaves nothing to the next one, so there is an address between."""
    text = composite("", "<queue physicalName='a'/>", "<filteredDestination selector='x = 1' topic='b'/>")
    found = converted("activemq", text)
    diverts = [
        (one["address"], one["forwarding-address"], one["exclusive"], one.get("filter"))
        for one in found.content["divert"]
    ]
    assert diverts == [
        ("in", "in.composite", True, None),
        ("in.composite", "a", False, None),
        ("in.composite", "b", False, "x = 1"),
    ]
    assert found.named("address", "name", "in.composite") == {
        "name": "in.composite",
        "routing-types": ["MULTICAST"],
    }


@pytest.mark.parametrize("is_exclusive", [True, False])
def test_a_composite_queue_of_one_target_is_a_divert(converted: Conversion, is_exclusive: bool) -> None:
    text = composite(f"forwardOnly='{str(is_exclusive).lower()}'", "<queue physicalName='a'/>")
    (divert,) = converted("activemq", text).content["divert"]
    assert (divert["address"], divert["exclusive"]) == ("in", is_exclusive)


def test_a_composite_of_many_names_and_targets_is_named(converted: Conversion) -> None:
    text = composite("", "<queue physicalName='a'/>", "<queue physicalName='b'/>").replace("'in'", "'in.*'")
    found = converted("activemq", text)
    assert "divert" not in found.content
    assert found.says("not carried over", "it:3", "<compositeQueue> 'in.*'")


def test_names_have_the_separator_of_the_plug_in(converted: Conversion) -> None:
    """Those of the file have dots, which are what the plug-in makes of the slashes of clients."""
    policy = '<policyEntry queue="orders.&gt;"><s><sharedDeadLetterStrategy/></s></policyEntry>'
    text = f"""<destinationPolicy><policyMap><policyEntries>{policy}</policyEntries></policyMap></destinationPolicy>
<destinations><queue physicalName="orders.eu"/></destinations>
<plugins><destinationPathSeparatorPlugin/></plugins>"""
    found = converted("activemq", broker(text))
    assert found.named("address-setting", "match", "orders/#")["dead-letter-address"] == "ActiveMQ/DLQ"
    assert found.named("address", "name", "orders/eu")["queue"][0]["name"] == "orders/eu"
    assert found.left == 0


def test_users_of_jaas_are_those_of_the_files(converted: Conversion) -> None:
    text = broker("<plugins><jaasAuthenticationPlugin/></plugins>")
    assert converted("activemq", text).says("not carried over", "jaasAuthenticationPlugin")
    found = converted("activemq", text, users="ann=pw", roles="clerks=ann")
    assert found.named("user", "name", "ann")["groups"] == ["clerks"]
    assert found.left == 0


@pytest.mark.parametrize(("written", "expected"), [("true", True), ("false", None)])
def test_senders_are_named_where_they_were(
    converted: Conversion, written: str, expected: bool | None
) -> None:
    found = converted("activemq", broker("", f'populateJMSXUserID="{written}"'))
    assert found.content.get("populate-validated-user") is expected
    assert found.left == 0
