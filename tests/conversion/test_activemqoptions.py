"""Options of ActiveMQ Classic's connectors, and its prefetch of all queues, as options of a listener."""

from __future__ import annotations

import pytest

from tests.conversion.conftest import Conversion
from tests.conversion.test_activemq import broker


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("transport.maxDataLength=65536", "maxBodySize=65536"),
        ("wireFormat.maxFrameSize=65535", "maxBodySize=65535;maxHeaderSize=65535"),
        (
            "wireFormat.maxFrameSize=512&amp;wireFormat.maxDataLength=65536",
            "maxBodySize=512;maxHeaderSize=512",
        ),
        ("wireFormat.maxFrameSize=65536", "maxBodySize=65536"),
        ("transport.connectAttemptTimeout=1200", "handshakeTimeout=1200"),
        ("transport.defaultHeartBeat=1000,500", "connectionTtl=1000"),
        (
            "transport.defaultHeartBeat=1000,0&amp;transport.hbGracePeriodMultiplier=1.5",
            "heartBeatToConnectionTtlModifier=1.5;connectionTtl=1500",
        ),
        ("transport.defaultHeartBeat=0,0", ""),
    ],
)
def test_options_of_connectors(converted: Conversion, query: str, options: str) -> None:
    uri = f"stomp://127.0.0.1:61613?{query}"
    found = converted(
        "activemq",
        broker(f'<transportConnectors><transportConnector uri="{uri}"/></transportConnectors>'),
    )
    assert [table["url"] for table in found.content["listener"]] == [
        f"tcp://127.0.0.1:61613?{options}{';' if options else ''}dialect=activemq"
    ]
    assert not found.says("not carried over", "option")


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("transport.defaultHeartBeat=soon", "transport.defaultHeartBeat"),
        (
            "transport.defaultHeartBeat=1000,0&amp;transport.hbGracePeriodMultiplier=inf",
            "heartBeatToConnectionTtlModifier",
        ),
    ],
)
def test_a_heart_beat_by_default_that_is_none_is_named(converted: Conversion, query: str, name: str) -> None:
    uri = f"stomp://127.0.0.1:61613?{query}"
    found = converted(
        "activemq",
        broker(f'<transportConnectors><transportConnector uri="{uri}"/></transportConnectors>'),
    )
    assert found.says("not carried over", "it:3", name)


def policies(entries: str, connector: str = "stomp://127.0.0.1:1") -> str:
    """With a listener, whose window is that of a policy for all queues."""
    return broker(
        f"<destinationPolicy><policyMap>{entries}</policyMap></destinationPolicy>\n"
        f'<transportConnectors><transportConnector uri="{connector}"/></transportConnectors>'
    )


@pytest.mark.parametrize(
    "entries",
    [
        '<policyEntries><policyEntry queue="&gt;" queuePrefetch="1"/></policyEntries>',
        '<defaultEntry><policyEntry queuePrefetch="1"/></defaultEntry>',
    ],
)
def test_the_prefetch_of_all_queues_is_the_window_of_listeners(converted: Conversion, entries: str) -> None:
    found = converted("activemq", policies(entries))
    assert [table["url"] for table in found.content["listener"]] == [
        "tcp://127.0.0.1:1?consumerFlowLimit=1;dialect=activemq"
    ]
    assert found.left == 0


@pytest.mark.parametrize(
    "entry",
    [
        'queue="a.&gt;" queuePrefetch="1"',
        'topic="&gt;" topicPrefetch="1"',
        'queue="&gt;" queuePrefetch="few"',
    ],
)
def test_the_prefetch_of_some_is_named(converted: Conversion, entry: str) -> None:
    found = converted("activemq", policies(f"<policyEntries><policyEntry {entry}/></policyEntries>"))
    assert [table["url"] for table in found.content["listener"]] == ["tcp://127.0.0.1:1?dialect=activemq"]
    assert found.says("not carried over", "it:3", "Prefetch", "consumerFlowLimit")
