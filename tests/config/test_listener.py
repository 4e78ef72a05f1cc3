"""Listener URLs: each option parsed and refused, defaults, dialects, hosts, and that no password gets into a text."""

from __future__ import annotations

from typing import Any

import pytest

from stompbox.config.fields import fields_of
from stompbox.config.listener import (
    Listener,
    host_of,
    is_loopback,
    is_own_host,
    parse_endpoint,
    parse_listener,
)
from stompbox.config.options import (
    ALIASES,
    DIALECTS,
    AckInTransaction,
    Dialect,
    EncoderType,
    KeyStoreType,
    ListenerOptions,
    NackPolicy,
)
from stompbox.errors import ConfigError, redacted

KIB, MIB = 1024, 1024 * 1024
WHOLE = "allowed: a whole number of at least {} ({})"
SIZE = 'allowed: a whole number of at least {} (bytes, or a size such as "512MiB")'
TRUTH = "allowed: true or false"
ALONE = "a listener speaks STOMP, over TCP and WebSocket, and nothing else: write protocols=STOMP"

# option, default, text, value, refused texts, what the refusal allows
OPTIONS: list[tuple[str, Any, str, Any, list[str], str]] = [
    (
        "anycastPrefix",
        ("/queue/",),
        "/q/,jms.queue.",
        ("/q/", "jms.queue."),
        [",", "a,,b"],
        "allowed: texts with commas between them, or nothing",
    ),
    (
        "multicastPrefix",
        ("/topic/",),
        "/t/",
        ("/t/",),
        [","],
        "allowed: texts with commas between them, or nothing",
    ),
    (
        "virtualTopicConsumerWildcards",
        (),
        "Consumer.*.>%3B2",
        ("Consumer.*.>;2",),
        [""],
        "allowed: texts with commas between them",
    ),
    ("protocols", ("STOMP",), "stomp", ("stomp",), ["", ","], "allowed: texts with commas between them"),
    ("connectionTtl", 60_000, "-1", -1, ["-2", "1.5", "soon", "", "١"], WHOLE.format(-1, "ms")),
    ("connectionTtlMin", 1000, "500", 500, ["0"], WHOLE.format(1, "ms")),
    ("connectionTtlMax", -1, "30000", 30_000, ["-2"], WHOLE.format(-1, "ms")),
    (
        "heartBeatToConnectionTtlModifier",
        2.0,
        "1.5",
        1.5,
        ["0.9", "nan", "inf", "x"],
        "allowed: a number of at least 1 (factor)",
    ),
    (
        "heartBeat",
        None,
        "0,5000",
        (0, 5000),
        ["5000", "1,2,3", "-1,0", "auto,auto"],
        "allowed: auto, or two whole numbers x,y",
    ),
    ("handshakeTimeout", 10_000, "1", 1, ["0"], WHOLE.format(1, "ms")),
    ("proxyProtocolEnabled", False, "False", False, ["yes"], TRUTH),  # true: only without TLS
    ("stompEnableMessageId", False, "true", True, ["yes", "1", ""], TRUTH),
    ("stompConsumerWindowSize", 256 * KIB, "10K", 10 * KIB, ["-2", "10 Q"], SIZE.format(-1)),
    ("consumerFlowLimit", -1, "1000", 1000, ["-2"], WHOLE.format(-1, "messages")),
    ("defaultPersistent", None, "FALSE", False, ["none"], TRUTH),
    ("disableStompServerHeader", False, "True", True, ["x"], TRUTH),
    ("alwaysContentLength", False, "true", True, ["x"], TRUTH),
    ("relativeExpires", False, "true", True, ["x"], TRUTH),
    ("checkPropertyNames", False, "true", True, ["x"], TRUTH),
    (
        "messageTransformer",
        None,
        "a.b:c",
        "a.b:c",
        ["a.b", "a:", ":c", "a-b:c", ""],
        "allowed: module:function",
    ),
    ("stompMinLargeMessageSize", 100 * KIB, "-1", -1, ["-2"], SIZE.format(-1)),
    ("maxBodySize", 100 * MIB, "1GiB", 1 << 30, ["-1"], SIZE.format(0)),
    ("maxHeaderSize", 64 * KIB, "128", 128, ["127"], SIZE.format(128)),
    ("maxHeaders", 1000, "1", 1, ["0"], WHOLE.format(1, "headers")),
    ("maxFrameSizeBeforeLogin", 64 * KIB, "4096", 4096, ["0"], SIZE.format(128)),
    ("maxConnections", 10_000, "-1", -1, ["many"], WHOLE.format(-1, "connections")),
    ("maxConnectionsBeforeLogin", 5000, "10", 10, ["-2"], WHOLE.format(-1, "connections")),
    ("maxConnectionsPerAddress", None, "10", 10, ["-2"], WHOLE.format(-1, "connections")),
    ("maxControlBodySize", 64 * KIB, "1K", KIB, ["-1"], SIZE.format(0)),
    ("maxConnectionMemory", 64 * MIB, "1MiB", MIB, ["0"], SIZE.format(1)),
    ("maxConnectionsPerUser", -1, "3", 3, ["-2"], WHOLE.format(-1, "connections")),
    ("maxSubscriptions", 1000, "1", 1, ["0"], WHOLE.format(1, "subscriptions")),
    ("maxBindings", 30_000, "-1", -1, ["-2"], WHOLE.format(-1, "queues")),
    ("maxBindingsPerUser", -1, "7", 7, ["-2"], WHOLE.format(-1, "queues")),
    ("maxAddressesPerUser", 28_000, "-1", -1, ["-2"], WHOLE.format(-1, "addresses")),
    ("maxQueuesPerUser", 28_000, "7", 7, ["-2"], WHOLE.format(-1, "queues")),
    ("maxPositionsPerUser", 100_000, "7", 7, ["-2"], WHOLE.format(-1, "positions")),
    ("maxTransactions", 100, "1", 1, ["0"], WHOLE.format(1, "transactions")),
    ("maxTransactionSize", 100 * MIB, "1M", MIB, ["0"], SIZE.format(1)),
    ("maxSelectorLength", 16 * KIB, "1K", KIB, ["0"], SIZE.format(1)),
    ("maxSelectorTerms", 1000, "10", 10, ["0"], WHOLE.format(1, "terms")),
    ("maxSelectorDepth", 100, "10", 10, ["0"], WHOLE.format(1, "levels")),
    ("webSocketPath", ("/", "/stomp", "/ws"), "/x", ("/x",), [""], "allowed: texts with commas between them"),
    (
        "webSocketEncoderType",
        EncoderType.AUTO,
        "Binary",
        EncoderType.BINARY,
        ["utf8"],
        "allowed: one of auto, text, binary",
    ),
    ("webSocketCompressionSupported", False, "true", True, ["x"], TRUTH),
    ("webSocketMaxFramePayloadLength", 4 * MIB, "65536", 65_536, ["1"], SIZE.format(128)),
    ("webSocketMaxFramesBeforeLogin", 10_000, "100", 100, ["0"], WHOLE.format(1, "frames")),
    (
        "allowedOrigins",
        None,
        "https://a.example,*",
        ("https://a.example", "*"),
        [""],
        "allowed: texts with commas between them",
    ),
    ("socketMode", "0600", "0660", "0660", [], ""),
    ("socketOwner", None, "stomp", "stomp", [], ""),
    ("socketGroup", None, "20", "20", [], ""),
    ("keyStorePath", None, "a%20b.pem", "a b.pem", [""], "allowed: a text"),
    ("keyStorePassword", None, "x%3By", "x;y", [""], "allowed: a text"),
    ("keyStoreType", KeyStoreType.PEM, "pkcs12", KeyStoreType.PKCS12, ["JKS"], "allowed: one of PEM, PKCS12"),
    ("keyPath", None, "k.pem", "k.pem", [""], "allowed: a text"),
    ("trustStorePath", None, "ca.pem", "ca.pem", [""], "allowed: a text"),
    ("needClientAuth", False, "true", True, ["maybe"], TRUTH),
    (
        "dialect",
        Dialect.STOMP,
        "STOMP",
        Dialect.STOMP,
        ["amqp"],
        "allowed: one of stomp, artemis, openmq, activemq, rabbitmq",
    ),
    ("requireHost", False, "true", True, ["x"], TRUTH),
    ("readOnly", False, "true", True, ["x"], TRUTH),
    ("requireLogin", False, "true", True, ["x"], TRUTH),
    ("allowBodies", False, "true", True, ["x"], TRUTH),
    ("defaultSubscriptionIds", False, "true", True, ["x"], TRUTH),
    ("countControlBodies", True, "false", False, ["x"], TRUTH),
    ("browsersMakeQueues", False, "true", True, ["x"], TRUTH),
    ("selectorConversion", True, "false", False, ["x"], TRUTH),
    (
        "ackInTransaction",
        AckInTransaction.TRANSACTIONAL,
        "ignore",
        AckInTransaction.IGNORE,
        ["no"],
        "allowed: one of transactional, ignore",
    ),
    ("transactedSubscriptions", False, "true", True, ["x"], TRUTH),
    ("singleTransaction", False, "true", True, ["x"], TRUTH),
    ("openmqSubscriptionIds", False, "true", True, ["x"], TRUTH),
    ("openmqTemporaryNames", False, "true", True, ["x"], TRUTH),
    (
        "nackPolicy",
        NackPolicy.ATTEMPT,
        "Requeue",
        NackPolicy.REQUEUE,
        ["drop"],
        "allowed: one of attempt, requeue, dead-letter",
    ),
    ("closeAfterOrdinaryErrors", True, "false", False, ["x"], TRUTH),
    ("requirePrefix", False, "true", True, ["x"], TRUTH),
    ("requireIds", True, "false", False, ["x"], TRUTH),
    ("nackInEveryVersion", False, "true", True, ["x"], TRUTH),
    ("subscribeReplyTo", False, "true", True, ["x"], TRUTH),
]
NAMES = [name for name, *_ in OPTIONS]
TLS = "keyStorePath=s.pem;trustStorePath=ca.pem"


def url_with(option: str) -> str:
    name = option.partition("=")[0]
    if name.startswith("socket"):
        return f"unix:///run/s?{option}"
    others = [part for part in TLS.split(";") if part.partition("=")[0] != name]
    return f"ssl://127.0.0.1:0?{';'.join([option, *others])}"


def test_the_table_has_every_option() -> None:
    assert sorted(NAMES) == sorted(fields_of(ListenerOptions))


@pytest.mark.parametrize(("name", "default", "text", "value"), [row[:4] for row in OPTIONS], ids=NAMES)
def test_an_option_has_a_default_and_takes_a_value(name: str, default: Any, text: str, value: Any) -> None:
    attribute = fields_of(ListenerOptions)[name].name
    assert getattr(parse_listener("tcp://127.0.0.1:0").options, attribute) == default
    found = getattr(parse_listener(url_with(f"{name}={text}")).options, attribute)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [(name, text, allowed) for name, *_, texts, allowed in OPTIONS for text in texts],
    ids=lambda item: item[:40],
)
def test_a_wrong_value_names_option_value_and_what_is_allowed(name: str, text: str, allowed: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_listener(url_with(f"{name}={text}"), "stompbox.toml:3: listener[0].url")
    assert caught.value.code == "config-listener"
    assert str(caught.value).startswith(
        f"stompbox.toml:3: listener[0].url: ssl://127.0.0.1:0: option {name}: "
    )
    assert allowed in str(caught.value)
    assert ("this value" if name == "keyStorePassword" else repr(text)) in str(caught.value)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("conectionTtl=1", "unknown option 'conectionTtl'; the nearest known name is 'connectionTtl'"),
        ("connectionttl=1", "unknown option 'connectionttl'; the nearest known name is 'connectionTtl'"),
        ("connection-ttl=1", "unknown option 'connection-ttl'; the nearest known name is 'connectionTtl'"),
        (
            "handshake-timeout=10",
            "unknown option 'handshake-timeout'; the nearest known name is 'handshakeTimeout'",
        ),
        ("qqqq=1", "unknown option 'qqqq'; docs/configuration.md lists all names"),
        ("=1", "unknown option ''; docs/configuration.md lists all names"),
        ("protocols=AMQP", f"protocols has 'AMQP'; {ALONE}"),
        ("protocols=CORE,AMQP,STOMP,HORNETQ,MQTT,OPENWIRE", f"protocols has 'CORE'; {ALONE}"),
        ("protocols=stomp,MQTT", f"protocols has 'MQTT'; {ALONE}"),
        ("sslEnabled=true", "unknown option 'sslEnabled'; write ssl:// instead of tcp://"),
        ("requireHost", "option requireHost has no value; allowed: true or false"),
        ("maxHeaders=1;maxHeaders=1", "option maxHeaders is given twice"),
        ("maxConnections=1&connectionsAllowed=1", "option maxConnections is given twice"),
        (
            "connectionTtlMin=2000;connectionTtlMax=1000",
            "connectionTtlMax 1000 is below connectionTtlMin 2000",
        ),
        *[
            (
                f"virtualTopicConsumerWildcards={text.replace(';', '%3B')}",
                f"virtualTopicConsumerWildcards {text!r} is not a pattern and a number of its words, as Consumer.*.>;2",
            )
            for text in (
                "Consumer.*.>",
                "Consumer.>;2",
                "Consumer.*.>;0",
                "Consumer..>;1",
                "Consumer.*.>;two",
            )
        ],
        ("anycastPrefix=/a/,/b/;multicastPrefix=/b/", "'/b/' is an anycastPrefix and a multicastPrefix"),
        ("keyStorePath=x", "TLS options on a tcp listener; write ssl:// for TLS"),
        ("needClientAuth=true", "TLS options on a tcp listener; write ssl:// for TLS"),
    ],
)
def test_a_wrong_query_is_refused(query: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_listener(f"tcp://127.0.0.1:0?{query}")
    assert str(caught.value) == f"listener: tcp://127.0.0.1:0: {problem}"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (
            "127.0.0.1:61613",
            "listener: '127.0.0.1:61613' is not a listener URL; write tcp://host:port, ssl://host:port or unix:///path",
        ),
        (
            "http://127.0.0.1:1",
            "listener: 'http://127.0.0.1:1' is not a listener URL; write tcp://host:port, ssl://host:port or unix:///path",
        ),
        (
            "unix:///run/s?socketMode=0999",
            "listener: unix:///run/s: socketMode is '0999'; allowed are octal permissions, as 0660",
        ),
        (
            "tcp://h:1?socketMode=0660",
            "listener: tcp://h:1: socketMode, socketOwner and socketGroup are for unix:///path alone",
        ),
        (
            "unix:///run/s?socketGroup=",
            "listener: unix:///run/s: option socketGroup: '' is not allowed; allowed: a text",
        ),
        (
            "unix://run/s",
            "listener: unix://run/s: 'unix://run/s' names no file; write its whole path, unix:///run/stompbox/stomp.sock",
        ),
        (
            "unix:///run/s?keyStorePath=s.pem",
            "listener: unix:///run/s: TLS options on a unix listener; write ssl:// for TLS",
        ),
        ("", "listener: '' is not a listener URL; write tcp://host:port, ssl://host:port or unix:///path"),
        (
            "tcp://localhost",
            "listener: tcp://localhost: 'localhost' has no port; write host:port, port 0 for any free one",
        ),
        (
            "tcp://[::1]",
            "listener: tcp://[::1]: '[::1]' has no port; write host:port, port 0 for any free one",
        ),
        (
            "tcp://h:70000",
            "listener: tcp://h:70000: '70000' is not a port; allowed: 0 to 65535, 0 for any free one",
        ),
        ("tcp://h:x", "listener: tcp://h:x: 'x' is not a port; allowed: 0 to 65535, 0 for any free one"),
        ("tcp://h:-1", "listener: tcp://h:-1: '-1' is not a port; allowed: 0 to 65535, 0 for any free one"),
        ("tcp://::1:61613", "listener: tcp://::1:61613: an IPv6 address stands in brackets: [::1]:61613"),
        (
            "tcp://:1",
            "listener: tcp://:1: '' is not a host; 0.0.0.0 or [::] stands for every address of this machine",
        ),
        (
            "tcp://*:1",
            "listener: tcp://*:1: '*' is not a host; 0.0.0.0 or [::] stands for every address of this machine",
        ),
        (
            "tcp://a/b:1",
            "listener: tcp://a/b:1: 'a/b' is not a host; 0.0.0.0 or [::] stands for every address of this machine",
        ),
        (
            "tcp://me:secret@h:1",
            "listener: login and passcode do not belong in a listener URL; users stand in [[user]]",
        ),
        (
            "ssl://h:1",
            "listener: ssl://h:1: ssl needs the option keyStorePath, a file with certificate and key",
        ),
        (
            "ssl://h:1?keyStorePath=a&keyPath=b&keyStoreType=PKCS12",
            "listener: ssl://h:1: keyPath goes with keyStoreType=PEM: a PKCS12 file has its key in it",
        ),
        (
            "ssl://h:1?keyStorePath=s;needClientAuth=true",
            "listener: ssl://h:1: needClientAuth needs the option trustStorePath, the CAs of client certificates",
        ),
    ],
)
def test_a_wrong_url_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_listener(url)
    assert str(caught.value) == problem


@pytest.mark.parametrize(
    ("url", "scheme", "host", "port"),
    [
        ("tcp://127.0.0.1:61613", "tcp", "127.0.0.1", 61613),
        ("TCP://localhost:0/", "tcp", "localhost", 0),
        ("tcp://[::1]:61613?", "tcp", "::1", 61613),
        ("tcp://[fe80::1%25eth0]:1", "tcp", "fe80::1%eth0", 1),
        ("ssl://broker.example:61614?keyStorePath=s.pem", "ssl", "broker.example", 61614),
    ],
)
def test_scheme_host_and_port(url: str, scheme: str, host: str, port: int) -> None:
    listener = parse_listener(url)
    assert (listener.scheme, listener.host, listener.port) == (scheme, host, port)
    assert listener.is_tls == (scheme == "ssl")


def test_options_are_divided_by_semicolons_or_ampersands() -> None:
    listener = parse_listener("tcp://h:1?maxHeaders=5;maxSubscriptions=6&maxTransactions=7;;connectionTtl=0;")
    options = listener.options
    assert (
        options.max_headers,
        options.max_subscriptions,
        options.max_transactions,
        options.connection_ttl,
    ) == (5, 6, 7, 0)


def test_an_encoded_divider_belongs_to_the_value() -> None:
    assert parse_listener("tcp://h:1?anycastPrefix=a%2Cb,c%3Bd").options.anycast_prefix == ("a,b", "c;d")


def test_prefixes_may_be_none() -> None:
    options = parse_listener("tcp://h:1?anycastPrefix=;multicastPrefix= ").options
    assert (options.anycast_prefix, options.multicast_prefix) == ((), ())


def test_heart_beat_auto_is_none() -> None:
    assert parse_listener("tcp://h:1?heartBeat=AUTO").options.heart_beat is None


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_older_names_work(alias: str, name: str) -> None:
    assert (
        getattr(parse_listener(f"tcp://h:1?{alias}=4096").options, fields_of(ListenerOptions)[name].name)
        == 4096
    )


@pytest.mark.parametrize("dialect", Dialect)
def test_a_dialect_sets_defaults_and_nothing_else(dialect: Dialect) -> None:
    options = parse_listener(f"tcp://h:1?dialect={dialect.value}").options
    expected = (
        {field.name: field.default for field in fields_of(ListenerOptions).values()}
        | DIALECTS[dialect]
        | {"dialect": dialect}
    )
    assert {name: getattr(options, name) for name in expected} == expected


def test_what_the_dialects_are() -> None:
    artemis = parse_listener("tcp://h:1?dialect=artemis").options
    assert (artemis.selector_conversion, artemis.ack_in_transaction, artemis.default_persistent) == (
        False,
        AckInTransaction.IGNORE,
        False,
    )
    openmq = parse_listener("tcp://h:1?dialect=openmq").options
    assert openmq.require_login and openmq.single_transaction and openmq.consumer_flow_limit == 1000


@pytest.mark.parametrize(
    "query", ["dialect=artemis;selectorConversion=true", "selectorConversion=true;dialect=artemis"]
)
def test_an_explicit_option_overrides_the_dialect_in_any_order(query: str) -> None:
    options = parse_listener(f"tcp://h:1?{query}").options
    assert options.selector_conversion and options.ack_in_transaction is AckInTransaction.IGNORE


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("localhost", True),
        ("LOCALHOST", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.1", False),
        ("broker.example", False),
        ("localhost.example", False),
        ("127.1", False),
    ],
)
def test_what_is_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    assert Listener("tcp", host, 1).is_loopback is loopback


def test_no_password_gets_into_a_text() -> None:
    url = "ssl://[::1]:1?keyStorePath=s.pem;keyStorePassword=hunter2&maxHeaders=5"
    listener = parse_listener(url)
    assert str(listener) == "ssl://[::1]:1"
    assert "hunter2" not in repr(listener) + repr(listener.options) + redacted(url)
    assert redacted(url) == "ssl://[::1]:1?keyStorePath=s.pem;keyStorePassword=***&maxHeaders=5"
    assert (
        repr(listener.options)
        == "<ListenerOptions, not default: max_headers, key_store_path, key_store_password>"
    )


@pytest.mark.parametrize(
    "query", ["keyStorePassword=hunter2;maxHeaders=x", "keyStorePassword=hunter2;keyStorePassword=hunter2"]
)
def test_no_password_gets_into_an_error(query: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_listener(f"ssl://h:1?{query}")
    assert "hunter2" not in str(caught.value)


def test_an_endpoint_is_host_and_port() -> None:
    assert parse_endpoint("[::1]:8161", "admin") == ("::1", 8161)
    with pytest.raises(ConfigError, match=r"^admin: '8161' has no port"):
        parse_endpoint("8161", "admin")


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("a", "a"), ("A:1", "a"), ("[::1]:8161", "::1"), ("[::1]", "::1"), ("1.2.3.4:5", "1.2.3.4"), ("a:b", None), ("", None),
        ("[::1", None), ("[::1]/healthz?", None), ("a/b", None), ("a?b", None), ("a#b", None), ("u@a", None), ("a b", None), ("a\n", None),
        ("a, a", None),
    ],
)  # fmt: skip
def test_a_host_header_is_read_whole_or_not_at_all(header: str, host: str | None) -> None:
    assert host_of(header) == host


@pytest.mark.parametrize(
    ("host", "listened", "is_own"),
    [
        ("localhost", "127.0.0.1", True), ("::1", "127.0.0.1", True), ("box.example", "box.example", True),
        ("box.example", "Box.Example", True), ("192.0.2.7", "127.0.0.1", False),
        ("evil.example", "127.0.0.1", False), ("192.0.2.7", "0.0.0.0", True), ("evil.example", "0.0.0.0", False),
    ],
)  # fmt: skip
def test_whose_name_a_host_is(host: str, listened: str, is_own: bool) -> None:
    assert is_own_host(host, listened) == is_own


@pytest.mark.parametrize(
    "url",
    [
        "tcp:/127.0.0.1:1?keyStorePassword=hunter2",
        "tcp://127.0.0.1:1;keyStorePassword=hunter2",
        "tcp://127.0.0.1:1&keyStorePassword=hunter2;maxHeaders=1",
        "http://alice:hunter2@127.0.0.1:1",
        "tcp://alice:hunter2@127.0.0.1:1",
        "tcp://alice:hunter2?x@127.0.0.1:1?maxHeaders=1",
        "tcp://alice:a/hunter2@127.0.0.1:1",
        "alice:hunter2@127.0.0.1:1",
        "ssl://127.0.0.1?keyStorePassword=hunter2",
        "ssl://127.0.0.1:99999?KEYSTOREPASSWORD=hunter2 too",
        "ssl://127.0.0.1:1?trustStorePassword=hunter2",
        "keyStorePassword = hunter2",
        "ssl://[::1:1?keyStorePassword=hunter2",
        "ssl://127.0.0.1:1?keyStorePath=a;keyStorePassword=hunter2;keyStorePassword=hunter2",
    ],
)
def test_no_malformed_url_is_shown_with_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_listener(url)
    assert "hunter2" not in caught.value.message
    assert "hunter2" not in redacted(url)


@pytest.mark.parametrize(
    ("query", "override", "ttl"),
    [
        ("", -1, 60_000), ("", 5000, 5000), ("", 0, 0), ("?maxHeaders=10;connectionTtlMin=10", 5000, 5000),
        ("?connectionTtl=60000", 5000, 60_000), ("?maxHeaders=10& connectionTtl=-1", 5000, -1),
    ],
)  # fmt: skip
def test_the_override_is_for_a_listener_that_says_nothing(query: str, override: int, ttl: int) -> None:
    listener = parse_listener(f"tcp://127.0.0.1:0{query}", connection_ttl=override)
    assert listener.options.connection_ttl == ttl
    assert listener.options.max_headers == (10 if "maxHeaders" in query else 1000)
