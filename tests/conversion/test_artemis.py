"""broker.xml of Artemis as TOML: what each element becomes, and what is left out with its line."""

from __future__ import annotations

import pytest

from stompbox.errors import ConfigError
from tests.conversion.conftest import Conversion

USERS = "admin = ENC(1024:AA:BB)\nbob = b0b\n"
ROLES = "amq = admin\nproducers = bob,admin\n"


def core(inside: str) -> str:
    return f"<configuration>\n<core>\n{inside}\n</core>\n</configuration>"


def test_a_whole_file(converted: Conversion) -> None:
    found = converted("artemis", "broker.xml", USERS, ROLES)
    content = found.content
    assert (content["max-disk-usage"], content["global-max-size"]) == (90, 256 * 1024 * 1024)
    assert [table["url"] for table in content["listener"]] == [
        "tcp://0.0.0.0:61616?anycastPrefix=;multicastPrefix=;dialect=artemis"
    ]
    assert found.named("user", "name", "bob") == {
        "name": "bob",
        "password": "hash of b0b",
        "groups": ["producers"],
    }
    assert found.named("user", "name", "admin") == {"name": "admin", "groups": ["amq", "producers"]}
    assert found.named("permission", "match", "#")["send"] == ["amq", "producers"]
    assert found.named("address-setting", "match", "#")["expiry-address"] == "ExpiryQueue"
    orders = found.named("address", "name", "orders")
    assert orders["routing-types"] == ["ANYCAST", "MULTICAST"]
    assert orders["queue"][0] == {
        "name": "orders", "routing-type": "ANYCAST", "max-consumers": 4, "filter": "region = 'EU'", "durable": True,
    }  # fmt: skip
    assert content["divert"][0]["forwarding-address"] == "audit"


@pytest.mark.parametrize(
    "words",
    [
        ("broker.xml:11", "disk-scan-period", "whole number"),
        ("broker.xml:12", "<ha-policy>"),
        ("broker.xml:14", "supportAdvisory"),
        ("broker.xml:14", "CORE, AMQP, HORNETQ, MQTT, OPENWIRE"),
        ("broker.xml:15", "'amqp'", "STOMP alone"),
        ("broker.xml:16", "connectionTtl", "'nix'"),
        ("broker.xml:17", "keyStoreType", "PEM, PKCS12"),
        ("broker.xml:23", "'view'"),
        ("broker.xml:34", "message-counter-history-day-limit"),
        ("broker.xml:36", "max-delivery-attempts", "-7"),
        ("broker.xml:45", "filter", "position 10"),
        ("users.properties:1", "'admin'", "stompbox user hash"),
    ],
)
def test_what_is_left_out_is_named_with_its_line(converted: Conversion, words: tuple[str, ...]) -> None:
    found = converted("artemis", "broker.xml", USERS, ROLES)
    assert found.says("not carried over", *words)
    assert found.left == 12


def test_what_artemis_does_unasked_is_written_down(converted: Conversion) -> None:
    found = converted("artemis", core(""))
    assert found.content["address-setting"] == [
        {
            "match": "#",
            "default-address-routing-type": "MULTICAST",
            "default-queue-routing-type": "MULTICAST",
            "dead-letter-address": "",
        }
    ]
    assert found.left == 0


def test_without_users_only_this_machine_may_connect(converted: Conversion) -> None:
    acceptor = "<acceptors><acceptor name='a'>tcp://${host:0.0.0.0}:61613?protocols=STOMP;stompMaxFramePayloadLength=65536</acceptor></acceptors>"
    found = converted("artemis", core(acceptor))
    (listener,) = found.content["listener"]
    assert (
        listener["url"]
        == "tcp://127.0.0.1:61613?anycastPrefix=;multicastPrefix=;stompMaxFramePayloadLength=65536;dialect=artemis"
    )
    assert found.says("it:3", "was 0.0.0.0:61613")


def test_prefixes_are_the_acceptors_and_none_unasked(converted: Conversion) -> None:
    acceptor = (
        "<acceptors><acceptor name='a'>tcp://localhost:1?anycastPrefix=jms.queue.</acceptor></acceptors>"
    )
    found = converted("artemis", core(acceptor))
    (listener,) = found.content["listener"]
    assert listener["url"] == "tcp://localhost:1?anycastPrefix=jms.queue.;multicastPrefix=;dialect=artemis"
    assert found.says("no prefixes unasked", "multicastPrefix")
    assert found.left == 0


def test_of_two_names_of_an_option_the_newer_one_counts(converted: Conversion) -> None:
    options = "anycastPrefix=/q/;multicastPrefix=/t/;stompMaxFramePayloadLength=4096;webSocketMaxFramePayloadLength=8192"
    found = converted(
        "artemis", core(f"<acceptors><acceptor name='a'>tcp://localhost:1?{options}</acceptor></acceptors>")
    )
    (listener,) = found.content["listener"]
    assert listener["url"] == (
        "tcp://localhost:1?anycastPrefix=/q/;multicastPrefix=/t/;webSocketMaxFramePayloadLength=8192;dialect=artemis"
    )
    assert found.says(
        "it:3", "stompMaxFramePayloadLength is left out", "webSocketMaxFramePayloadLength counts"
    )


def test_rights_without_users_let_nobody_do_anything(converted: Conversion) -> None:
    right = "<permission type='deleteDurableQueue' roles='x'/>"
    rights = f"<security-settings><security-setting match='a'>{right}</security-setting></security-settings>"
    found = converted("artemis", core(rights))
    assert found.content["permission"] == [{"match": "a", "delete-durable-queue": ["x"]}]
    assert found.says("not carried over", "nobody may do anything")


def test_wildcards_memory_and_the_kinds_of_a_queue(converted: Conversion) -> None:
    inside = (
        "<persistence-enabled>false</persistence-enabled><wildcard-addresses><routing-enabled>true</routing-enabled>"
        "<delimiter>/</delimiter></wildcard-addresses><addresses><address name='a'><multicast>"
        "<queue name='q' ring-size='5' user='x'><group-buckets>7</group-buckets></queue></multicast></address></addresses>"
    )
    found = converted("artemis", core(inside))
    assert found.content["memory"] is True
    assert found.content["wildcard-addresses"] == {"enabled": True, "delimiter": "/"}
    (queue,) = found.named("address", "name", "a")["queue"]
    assert queue == {"name": "q", "routing-type": "MULTICAST", "ring-size": 5, "group-buckets": 7}
    assert found.says("not carried over", "user = 'x'")


def test_one_name_twice_is_left_out_with_both_lines(converted: Conversion) -> None:
    inside = "<addresses>\n<address name='a'/>\n<address name='a'/>\n</addresses>"
    found = converted("artemis", core(inside))
    assert len(found.content["address"]) == 1
    assert found.says("it:5", "'a' is there already", "it:4")


def test_another_file_is_refused(converted: Conversion) -> None:
    with pytest.raises(ConfigError, match=r"^it:2: no <core> in <beans>"):
        converted("artemis", "\n<beans/>")
