"""The options of a listener's URL: names, as on an Artemis acceptor where it has them, types, ranges, defaults; what a dialect changes.

How they are read from a URL is listener.py.
"""

from typing import Annotated, Any, Final

from msgspec import Struct

from stompbox.config.fields import Word, key

_ARTEMIS: Final = "Artemis"
_OWN: Final = "Stompbox"
KIB: Final = 1024


MIB: Final = 1024 * 1024


PROTOCOL: Final = "STOMP"
SOCKET_MODE: Final = "0600"


_OPENMQ: Final = "OpenMQ"


class Dialect(Word):
    STOMP = "stomp"
    ARTEMIS = "artemis"
    OPENMQ = "openmq"
    ACTIVEMQ = "activemq"
    RABBITMQ = "rabbitmq"


class NackPolicy(Word):
    ATTEMPT = "attempt"
    REQUEUE = "requeue"
    DEAD_LETTER = "dead-letter"


class EncoderType(Word):
    AUTO = "auto"
    TEXT = "text"
    BINARY = "binary"


class KeyStoreType(Word):
    PEM = "PEM"
    PKCS12 = "PKCS12"


class AckInTransaction(Word):
    TRANSACTIONAL = "transactional"
    IGNORE = "ignore"


class ListenerOptions(Struct, frozen=True, kw_only=True, cache_hash=True, rename="camel"):
    """What one listener does. In a URL the names are in camel case."""

    # Names of destinations.
    anycast_prefix: Annotated[
        tuple[str, ...],
        key(
            "Prefixes of destinations that are queues; `anycastPrefix=`: none, so that names which begin so are as they stand.",
            source=_ARTEMIS,
        ),
    ] = ("/queue/",)
    multicast_prefix: Annotated[
        tuple[str, ...],
        key("Prefixes of destinations that are topics; `multicastPrefix=`: none.", source=_ARTEMIS),
    ] = ("/topic/",)

    virtual_topic_consumer_wildcards: Annotated[
        tuple[str, ...],
        key(
            "`Consumer.*.>;2`: a queue of a name that fits is a queue of the topic that the name without its first two words is. "
            "In a URL `;` is `%3B`.",
            source=_ARTEMIS,
        ),
    ] = ()

    protocols: Annotated[
        tuple[str, ...],
        key(
            "What is spoken: `STOMP`, over TCP and WebSocket. Other protocols are refused by name.",
            source=_ARTEMIS,
        ),
    ] = (PROTOCOL,)

    # Life signs.
    connection_ttl: Annotated[
        int,
        key(
            "A client that is silent for so long is closed with an ERROR; 0 or -1: never. Not given: `connection-ttl-override`.",
            "ms",
            source=_ARTEMIS,
            at_least=-1,
        ),
    ] = 60_000
    connection_ttl_min: Annotated[
        int, key("The least that a client's heart-beats make of it.", "ms", source=_ARTEMIS, at_least=1)
    ] = 1000
    connection_ttl_max: Annotated[
        int, key("The most that they make of it; -1: no limit.", "ms", source=_ARTEMIS, at_least=-1)
    ] = -1
    heart_beat_to_connection_ttl_modifier: Annotated[
        float,
        key("Time to live = the client's heart-beat times this.", "factor", source=_ARTEMIS, at_least=1.0),
    ] = 2.0
    heart_beat: Annotated[
        tuple[int, int] | None,
        key(
            "What the server offers and asks for: `auto` follows the client, `x,y` is fixed.",
            "ms",
            source=_OWN,
        ),
    ] = None
    handshake_timeout: Annotated[
        int,
        key(
            "A connection that has not logged in by then gets an ERROR and is closed.",
            "ms",
            source=_ARTEMIS,
            at_least=1,
        ),
    ] = 10_000

    proxy_protocol_enabled: Annotated[
        bool,
        key(
            "Connections begin with a PROXY header, version 1 or 2, that tells the client's address.",
            source=_ARTEMIS,
        ),
    ] = False

    # Delivery.
    stomp_enable_message_id: Annotated[
        bool,
        key(
            "What is sent here carries an `amqMessageId` of its own wherever it goes; selectors see it.",
            source=_ARTEMIS,
        ),
    ] = False
    stomp_consumer_window_size: Annotated[
        int,
        key(
            "Bodies of unacknowledged messages per subscription before delivery pauses; 0: one at a time, -1: no limit.",
            "bytes",
            source="Stompbox (Artemis: 10240)",
            at_least=-1,
        ),
    ] = 256 * KIB
    consumer_flow_limit: Annotated[
        int, key("The same by count; -1: no limit.", "messages", source="OpenMQ, there 1000", at_least=-1)
    ] = -1
    default_persistent: Annotated[
        bool | None,
        key(
            "What a SEND without `persistent` is; unset: the address setting `default-persistent`.",
            source=_OWN,
        ),
    ] = None
    disable_stomp_server_header: Annotated[
        bool, key("CONNECTED has no `server` header.", source=_ARTEMIS)
    ] = False
    always_content_length: Annotated[
        bool, key("1.0 clients get `content-length` although the sender gave none.", source=_OPENMQ)
    ] = False
    relative_expires: Annotated[
        bool, key("`expires` is a time to live in ms, not a date.", source=_OPENMQ)
    ] = False
    check_property_names: Annotated[
        bool,
        key(
            "Header names that JMS forbids go to the `messageTransformer`, or the SEND is refused.",
            source=_OPENMQ,
        ),
    ] = False
    message_transformer: Annotated[
        str | None,
        key(
            "`module:function` that sees and may change each message, in and out.",
            kind="module",
            source=_OPENMQ,
        ),
    ] = None

    # Limits: beyond them there is an ERROR, and a close where the stream is at stake.
    stomp_min_large_message_size: Annotated[
        int,
        key(
            "Bodies from this size on are streamed to the store, not held in memory; -1: none.",
            "bytes",
            source=_ARTEMIS,
            at_least=-1,
        ),
    ] = 100 * KIB
    max_body_size: Annotated[
        int, key("Largest body.", "bytes", source="ActiveMQ Classic, RabbitMQ", at_least=0)
    ] = 100 * MIB
    max_control_body_size: Annotated[
        int, key("Largest body of a frame that is no SEND.", "bytes", source=_OWN, at_least=0)
    ] = 64 * KIB
    max_header_size: Annotated[
        int, key("Largest head: command and headers together.", "bytes", source=_OWN, at_least=128)
    ] = 64 * KIB
    max_headers: Annotated[
        int, key("Most headers of a frame.", "headers", source="ActiveMQ Classic, OpenMQ", at_least=1)
    ] = 1000
    max_frame_size_before_login: Annotated[
        int, key("Largest frame before CONNECTED.", "bytes", source="RabbitMQ", at_least=128)
    ] = 64 * KIB
    max_connections: Annotated[
        int,
        key(
            "Connections of this listener that are logged in; -1: no limit.",
            "connections",
            source=_OWN,
            at_least=-1,
        ),
    ] = 10_000
    max_connections_before_login: Annotated[
        int,
        key(
            "Sockets besides them that are not logged in yet, TLS hand-shakes included; the oldest of more is closed. -1: no limit.",
            "connections",
            source=_OWN,
            at_least=-1,
        ),
    ] = 5000
    max_connections_per_address: Annotated[
        int | None,
        key(
            "Sockets of one client address (an IPv6 network of 64 bits); -1: no limit. Unset: 1000, and no limit for this machine.",
            "connections",
            source=_OWN,
            at_least=-1,
        ),
    ] = None
    max_connection_memory: Annotated[
        int,
        key(
            "All that is kept for one connection beyond the frame that is coming in: output not taken, receipts, open transactions, "
            "subscriptions, requests; beyond it, it is closed.",
            "bytes",
            source=_OWN,
            at_least=1,
        ),
    ] = 64 * MIB
    max_connections_per_user: Annotated[
        int, key("Connections of one user; -1: no limit.", "connections", source=_OWN, at_least=-1)
    ] = -1
    max_subscriptions: Annotated[
        int, key("Subscriptions of one connection.", "subscriptions", source=_OWN, at_least=1)
    ] = 1000
    max_bindings: Annotated[
        int,
        key(
            "Queues that the subscriptions of one connection are bound to: a wildcard has one per address. Beyond it SUBSCRIBE is refused, "
            "and who misses an address that is made later is closed. -1: no limit.",
            "queues",
            source=_OWN,
            at_least=-1,
        ),
    ] = 30_000  # at 2 KiB each (broker/queues/memory.py) they leave room in maxConnectionMemory
    max_bindings_per_user: Annotated[
        int, key("The same of all connections of one user; -1: no limit.", "queues", source=_OWN, at_least=-1)
    ] = -1
    max_addresses_per_user: Annotated[
        int,
        key(
            "Addresses that frames of one user (or of all without a login) have made and that are still there; beyond it no frame makes "
            "one. -1: no limit.",
            "addresses",
            source=_OWN,
            at_least=-1,
        ),
    ] = 28_000  # fewer than maxBindings, so that the addresses of one user alone never close the wildcard of another
    max_queues_per_user: Annotated[
        int,
        key(
            "The same of queues, durable subscriptions, named readers and reader groups; -1: no limit.",
            "queues",
            source=_OWN,
            at_least=-1,
        ),
    ] = 28_000
    max_positions_per_user: Annotated[
        int,
        key(
            "Positions that reader groups of one user have, one on each address, and destinations that they name; -1: no limit.",
            "positions",
            source=_OWN,
            at_least=-1,
        ),
    ] = 100_000  # four groups on as many addresses as one user may make
    max_transactions: Annotated[
        int, key("Transactions that one connection has open.", "transactions", source=_OWN, at_least=1)
    ] = 100
    max_transaction_size: Annotated[
        int,
        key(
            "Bodies that one transaction has in memory; all of it counts for `maxConnectionMemory`.",
            "bytes",
            source=_OWN,
            at_least=1,
        ),
    ] = 100 * MIB
    max_selector_length: Annotated[int, key("Longest selector.", "bytes", source=_OWN, at_least=1)] = 16 * KIB
    max_selector_terms: Annotated[
        int,
        key(
            "Most identifiers, literals and tokens of XPATH in a selector.", "terms", source=_OWN, at_least=1
        ),
    ] = 1000
    max_selector_depth: Annotated[
        int, key("Deepest nesting of parentheses, NOT and signs.", "levels", source=_OWN, at_least=1)
    ] = 100

    # WebSocket.
    web_socket_path: Annotated[tuple[str, ...], key("Paths that are answered.", source=_OWN)] = (
        "/",
        "/stomp",
        "/ws",
    )
    web_socket_encoder_type: Annotated[
        EncoderType,
        key(
            "Frames to the client: as it sends its own (and what is not UTF-8 in binary), or always one kind.",
            source="Stompbox (Artemis: binary)",
        ),
    ] = EncoderType.AUTO
    web_socket_compression_supported: Annotated[
        bool, key("permessage-deflate is offered.", source=_ARTEMIS)
    ] = False
    web_socket_max_frame_payload_length: Annotated[
        int,
        key(
            "One WebSocket message, its fragments together.",
            "bytes",
            source="Stompbox (Artemis: 65536)",
            at_least=128,
        ),
    ] = 4 * MIB
    web_socket_max_frames_before_login: Annotated[
        int,
        key(
            "WebSocket frames before CONNECTED: messages, fragments, pings.",
            "frames",
            source=_OWN,
            at_least=1,
        ),
    ] = 10_000
    allowed_origins: Annotated[
        tuple[str, ...] | None,
        key(
            "Origins of browsers that may connect, `*` for any. Unset: any where users are configured, else this host and loopback.",
            source=_OWN,
        ),
    ] = None

    # The file of a `unix://` listener.
    socket_mode: Annotated[
        str,
        key(
            "Permissions of the file of a `unix://` listener, octal: who may write to it may connect.",
            source=_OWN,
        ),
    ] = SOCKET_MODE
    socket_owner: Annotated[
        str | None, key("User, by name or number, whose file it is; unset: the broker's.", source=_OWN)
    ] = None
    socket_group: Annotated[str | None, key("Its group, likewise.", source=_OWN)] = None

    # TLS.
    key_store_path: Annotated[
        str | None, key("Certificate chain, and the key unless `keyPath` has it.", source=_ARTEMIS)
    ] = None
    key_store_password: Annotated[str | None, key("Password of the key.", kind="secret", source=_ARTEMIS)] = (
        None
    )
    key_store_type: Annotated[
        KeyStoreType,
        key(
            "Format of that file. PKCS12 needs `pip install 'stompbox[pkcs12]'`.",
            source="Stompbox (Artemis: JKS)",
        ),
    ] = KeyStoreType.PEM
    key_path: Annotated[str | None, key("The private key, in PEM.", source=_OWN)] = None
    trust_store_path: Annotated[
        str | None, key("CAs that sign client certificates, in PEM.", source=_ARTEMIS)
    ] = None
    need_client_auth: Annotated[
        bool, key("Clients must show a certificate; its CN can be a user.", source=_ARTEMIS)
    ] = False

    # Readings of the protocol.
    dialect: Annotated[
        Dialect, key("Sets defaults of other options (see below); what the URL says wins.", source=_OWN)
    ] = Dialect.STOMP
    require_host: Annotated[bool, key("CONNECT of 1.1 and 1.2 must have `host`.", source=_OWN)] = False
    require_login: Annotated[bool, key("CONNECT must have `login` and `passcode`.", source=_OPENMQ)] = False
    read_only: Annotated[
        bool,
        key(
            "Only requests that read logs, readers of logs without a name and browsers are served here. "
            "A node of a cluster that follows serves them itself, from what it has.",
            source=_OWN,
        ),
    ] = False
    allow_bodies: Annotated[
        bool, key("A body on a frame that must not have one is ignored.", source=_OWN)
    ] = False
    count_control_bodies: Annotated[
        bool,
        key(
            "false: `content-length` counts on SEND alone; any other frame ends at the first NUL after its headers.",
            source="STOMP 1.2",
        ),
    ] = True
    browsers_make_queues: Annotated[
        bool,
        key(
            "A browser of a queue that is not there makes it, as a plain SUBSCRIBE does, and is told the end; false: `no-such-queue`.",
            source="ActiveMQ Classic",
        ),
    ] = False
    selector_conversion: Annotated[
        bool, key("Selectors read headers as numbers where compared with one.", source="ActiveMQ Classic")
    ] = True
    ack_in_transaction: Annotated[
        AckInTransaction,
        key(
            "`ignore`: ACK and NACK take effect at once although they name a transaction.", source="STOMP 1.2"
        ),
    ] = AckInTransaction.TRANSACTIONAL
    transacted_subscriptions: Annotated[
        bool,
        key(
            "SUBSCRIBE may name a transaction; delivery pauses after COMMIT and ABORT until the next BEGIN.",
            source=_OPENMQ,
        ),
    ] = False
    single_transaction: Annotated[
        bool, key("One transaction at a time; an ACK belongs to it.", source=_OPENMQ)
    ] = False
    openmq_subscription_ids: Annotated[
        bool, key("A SUBSCRIBE without `id` gets `/subscription-to/<destination>`.", source=_OPENMQ)
    ] = False
    default_subscription_ids: Annotated[
        bool,
        key(
            "In 1.1 and 1.2 a SUBSCRIBE without `id` gets `subscription/<destination>`, and UNSUBSCRIBE may name the destination alone.",
            source=_ARTEMIS,
        ),
    ] = False
    openmq_temporary_names: Annotated[
        bool,
        key(
            "Others see temporary destinations as `/temp-queue/temporary_destination://queue/…`.",
            source=_OPENMQ,
        ),
    ] = False

    nack_policy: Annotated[
        NackPolicy,
        key(
            "A NACK that says no more: `attempt` counts for `max-delivery-attempts`, `requeue` brings the message again at once and counts "
            "nothing, `dead-letter` makes a dead letter of it.",
            source=_OWN,
        ),
    ] = NackPolicy.ATTEMPT
    close_after_ordinary_errors: Annotated[
        bool,
        key(
            "An ERROR for one bad frame ends a connection of 1.2, as that version demands.",
            source="STOMP 1.2",
        ),
    ] = True
    require_prefix: Annotated[
        bool, key("A destination without a known prefix is refused, and makes no queue.", source="RabbitMQ")
    ] = False
    require_ids: Annotated[
        bool,
        key(
            "SUBSCRIBE and UNSUBSCRIBE of 1.1 and 1.2 must have `id`, ACK and NACK of 1.1 `subscription`. false: none of them must, and a "
            "`subscription` that is none here is not looked at.",
            source="STOMP 1.1",
        ),
    ] = True
    nack_in_every_version: Annotated[bool, key("NACK is a command of 1.0, too.", source="RabbitMQ")] = False
    subscribe_reply_to: Annotated[
        bool,
        key(
            "A SEND with `reply-to:/temp-queue/name` subscribes its sender to it, with the name as id.",
            source="RabbitMQ",
        ),
    ] = False

    def __repr__(self) -> str:
        changed = [name for name in self.__struct_fields__ if getattr(self, name) != getattr(DEFAULTS, name)]
        return f"<ListenerOptions, not default: {', '.join(changed) or 'none'}>"


DEFAULTS: Final = ListenerOptions()


DIALECTS: Final[dict[Dialect, dict[str, Any]]] = {
    Dialect.STOMP: {},
    Dialect.ARTEMIS: {
        "selector_conversion": False,
        "ack_in_transaction": AckInTransaction.IGNORE,
        "default_persistent": False,
        "allow_bodies": True,
        "default_subscription_ids": True,
    },
    Dialect.OPENMQ: {
        "require_login": True,
        "transacted_subscriptions": True,
        "single_transaction": True,
        "openmq_subscription_ids": True,
        "openmq_temporary_names": True,
        "relative_expires": True,
        "check_property_names": True,
        "always_content_length": True,
        "allow_bodies": True,
        "consumer_flow_limit": 1000,
    },
    Dialect.ACTIVEMQ: {
        "default_persistent": False,
        "connection_ttl": -1,
        "consumer_flow_limit": 1000,
        "nack_policy": NackPolicy.DEAD_LETTER,
        "close_after_ordinary_errors": False,
        "allow_bodies": True,
        "count_control_bodies": False,
        "browsers_make_queues": True,
        "virtual_topic_consumer_wildcards": ("Consumer.*.VirtualTopic.>;2",),
    },
    Dialect.RABBITMQ: {
        "default_persistent": False,
        "connection_ttl": -1,
        "stomp_consumer_window_size": -1,
        "nack_policy": NackPolicy.REQUEUE,
        "close_after_ordinary_errors": False,
        "require_prefix": True,
        "require_ids": False,
        "nack_in_every_version": True,
        "subscribe_reply_to": True,
    },
}


ALIASES: Final = {
    "stompMaxFramePayloadLength": "webSocketMaxFramePayloadLength",
    "stompConsumerCredits": "stompConsumerWindowSize",
    "connectionsAllowed": "maxConnections",
}
