"""ActiveMQ Classic's activemq.xml: connectors of STOMP, destinations, policies, users and rights, virtual destinations.

Decides what each element becomes. A policy is for queues or for topics there, for addresses here: of two values for one name the first
stands, and the other is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from stompbox.conversion.accounts import Accounts, User, write_user
from stompbox.conversion.activemqoptions import is_for_all_queues, options_of, prefetch_of
from stompbox.conversion.draft import Draft, Table
from stompbox.conversion.elements import Element, read
from stompbox.conversion.values import resolved, split_options, write_listener
from stompbox.errors import ConfigError
from stompbox.numerals import ANY, whole

_PROTOCOLS: Final = {"tcp": "OpenWire", "ssl": "OpenWire", "nio": "OpenWire", "amqp": "AMQP", "mqtt": "MQTT"}
_NO_BRIDGE: Final = "the broker opens no connection to other brokers"
_JAVA: Final = "plug-ins are Java; messageTransformer of a listener is a function in Python"
_ELSEWHERE: Final = {
    "networkConnectors": _NO_BRIDGE,
    "proxyConnectors": _NO_BRIDGE,
    "jmsBridgeConnectors": _NO_BRIDGE,
    "persistenceAdapter": "the store is SQLite below `data`; messages are not taken over: let consumers empty the old broker",
    "persistenceFactory": "the store is SQLite below `data`",
    "ioExceptionHandler": "a store that fails stops the broker, always",
    "managementContext": "no JMX: docs/admin.md has the admin interface, docs/metrics.md the metrics",
    "sslContext": "key stores are PEM or PKCS12: write keyStorePath and trustStorePath into the ssl:// URL",
    "services": "no Java services",
    "destinationFactory": "no Java",
}
_PLUGINS: Final = {
    "jaasAuthenticationPlugin": "users are in its properties files: give --users and --roles, or write [[user]] tables",
    "jaasCertificateAuthenticationPlugin": "needClientAuth=true of an ssl:// listener: a certificate's CN can be a user",
    "statisticsBrokerPlugin": "docs/metrics.md has the metrics",
    "loggingBrokerPlugin": "`stompbox frames` logs frames on demand",
    "discardingDLQBrokerPlugin": 'dead-letter-address = "" in an [[address-setting]] drops dead letters',
    "forcePersistencyModeBrokerPlugin": "default-persistent says what a SEND is that does not say so itself",
    "timeStampingBrokerPlugin": "max-expiry-delay and expiry-delay of an [[address-setting]] are its ceiling and its default",
}
_PREFETCHES: Final = ("queuePrefetch", "topicPrefetch", "durableTopicPrefetch", "queueBrowserPrefetch")
_RIGHTS: Final = {
    "read": ("consume", "browse"),
    "write": ("send",),
    "admin": (
        "create-address", "delete-address", "create-durable-queue", "delete-durable-queue", "create-non-durable-queue",
        "delete-non-durable-queue", "manage",
    ),
}  # fmt: skip
_UNITS: Final = {
    "b": 1,
    "kb": 1 << 10,
    "k": 1 << 10,
    "mb": 1 << 20,
    "m": 1 << 20,
    "gb": 1 << 30,
    "g": 1 << 30,
}


def convert(name: str, text: bytes, accounts: Accounts) -> Draft:
    """The draft of an activemq.xml. Raises ConfigError where it is none."""
    root = resolved(read(text, name))
    broker = root if root.tag == "broker" else root.find("broker")
    if broker is None:
        raise ConfigError(
            "config-value", f"{name}:{root.line}: no <broker> in <{root.tag}>: it is no activemq.xml"
        )
    return _Conversion(Draft(name), accounts).whole(broker)


class _Conversion:
    """One activemq.xml on its way; a method for each element that has tables of its own."""

    def __init__(self, draft: Draft, accounts: Accounts) -> None:
        self._draft: Final = draft
        self._accounts: Final = accounts
        self._settings: Final[dict[str, Table]] = {}
        self._separator = "."  # of the words of names; in the file they have dots all the same
        # what had a NACK is tried again, too: Classic makes a dead letter of it where no plug-in says so
        self._redelivers = False
        self._prefetch: str | None = None  # of all queues
        # virtualTopicConsumerWildcards, where the file has virtual topics of its own
        self._virtual: list[str] = []
        self._has_users = accounts.users is not None

    def whole(self, broker: Element) -> Draft:
        self._attributes(broker)
        self._has_users = self._has_users or any(self._simple_users(broker))
        self._virtual = [*self._virtual_topics(broker)]
        self._redelivers = any(broker.below("plugins", "redeliveryPlugin"))
        self._prefetch = prefetch_of(broker)
        for plugin in broker.below("plugins", "destinationPathSeparatorPlugin"):
            self._separator = plugin.attributes.get("pathSeparator", "/")
        written = {
            "transportConnectors": self._connectors,
            "plugins": self._plugins,
            "destinationPolicy": self._policies,
            "destinations": self._destinations,
            "destinationInterceptors": self._interceptors,
            "systemUsage": self._usage,
        }
        for child in broker.children:
            if child.tag not in written:
                why = _ELSEWHERE.get(child.tag, "there is no such thing here")
                self._draft.top.leave(child.line, f"<{child.tag}>", why)
        for tag, write in written.items():
            for child in broker.children:
                if child.tag == tag:
                    write(child)
            if tag == "transportConnectors":
                self._accounts.write(self._draft)
        self._unasked()
        return self._draft

    def _unasked(self) -> None:
        """Where dead letters go when nothing is said of them; those that have expired, too."""
        table = self._setting(">", 0)
        if not table.has("dead-letter-address"):
            table.remark("what ActiveMQ Classic does unasked: dead-letter-address, expiry-address")
            table.put("dead-letter-address", self._named("ActiveMQ.DLQ"), 0)
            table.put("expiry-address", self._named("ActiveMQ.DLQ"), 0)

    def _attributes(self, broker: Element) -> None:
        top = self._draft.top
        for name, value in broker.attributes.items():
            if name == "persistent":
                if value.casefold() == "false":
                    top.put("memory", True, broker.line)
            elif name in (
                "brokerName",
                "dataDirectory",
                "useJmx",
                "schedulerSupport",
                "start",
                "useShutdownHook",
                "brokerId",
            ):
                top.remark(f"{name} is left out: nothing to set here", broker.line)
            elif name == "populateJMSXUserID":
                if value.casefold() == "true":
                    top.put("populate-validated-user", True, broker.line)
            elif name == "offlineDurableSubscriberTimeout":
                if whole(value, ANY) is not None:
                    self._setting("#", broker.line).put(
                        "offline-durable-subscription-timeout", int(value), broker.line
                    )
            else:
                top.leave(
                    broker.line, f"{name} = {value[:60]!r} of <broker>", "there is no such setting here"
                )

    # listeners

    def _connectors(self, connectors: Element) -> None:
        for connector in connectors.children:
            uri = connector.attributes.get("uri", "")
            title = f"connector {connector.attributes.get('name', uri)!r}"
            address, _, query = uri.partition("?")
            scheme, _, endpoint = address.partition("://")
            words = scheme.casefold().split("+")
            if words[0] not in ("stomp", "ws", "wss", "auto"):
                self._draft.top.leave(
                    connector.line,
                    title,
                    f"speaks {_PROTOCOLS.get(words[0], words[0])}; here it is STOMP alone",
                )
                continue
            told = split_options(query)
            told.update(
                {key: value for key, value in connector.attributes.items() if key not in ("name", "uri")}
            )
            options = self._options(told)
            is_tls = words[0] == "wss" or "ssl" in words
            if is_tls and "keyStorePath" not in options:
                options["keyStorePath"] = "server.pem"
            table = write_listener(
                self._draft,
                endpoint,
                {**options, "dialect": "activemq"},
                connector.line,
                is_tls=is_tls,
                is_open=not self._has_users,
            )
            if is_tls:
                table.leave(
                    connector.line,
                    title,
                    "its key store: keyStorePath must name the certificate chain with its key, PEM",
                )

    def _options(self, told: dict[str, str]) -> dict[str, str]:
        """With what the file says elsewhere of all listeners."""
        options = options_of(told)
        if self._prefetch is not None:
            options["consumerFlowLimit"] = self._prefetch
        if self._redelivers:
            options["nackPolicy"] = "attempt"
        if self._virtual:
            options["virtualTopicConsumerWildcards"] = ",".join(self._virtual)
        return options

    # users and rights

    def _simple_users(self, broker: Element) -> Iterator[Element]:
        yield from broker.below("plugins", "simpleAuthenticationPlugin", "users", "authenticationUser")

    def _plugins(self, plugins: Element) -> None:
        for plugin in plugins.children:
            if plugin.tag == "simpleAuthenticationPlugin":
                self._simple(plugin)
            elif plugin.tag == "authorizationPlugin":
                entries = plugin.below(
                    "map", "authorizationMap", "authorizationEntries", "authorizationEntry"
                )
                self._rights([*entries])
            elif plugin.tag == "redeliveryPlugin":
                self._redelivery(plugin)
            elif plugin.tag == "destinationPathSeparatorPlugin":
                table = self._draft.table("[wildcard-addresses]", plugin.line)
                table.put("delimiter", self._separator, plugin.line)
            elif plugin.tag == "jaasAuthenticationPlugin" and self._accounts.users is not None:
                self._draft.top.remark("users are those of the properties files", plugin.line)
            else:
                self._draft.top.leave(plugin.line, f"<{plugin.tag}>", _PLUGINS.get(plugin.tag, _JAVA))

    def _simple(self, plugin: Element) -> None:
        if plugin.attributes.get("anonymousAccessAllowed", "false").casefold() == "true":
            self._draft.top.leave(
                plugin.line, "anonymousAccessAllowed", "where there are users, everybody logs in"
            )
        for user in plugin.below("users", "authenticationUser"):
            told = user.attributes
            groups = [group.strip() for group in told.get("groups", "").split(",") if group.strip()]
            write_user(
                self._draft,
                User(told.get("username", ""), told.get("password"), groups, user.line),
                Accounts(self._accounts.hashed),
            )

    def _rights(self, entries: list[Element]) -> None:
        """Classic adds up the rights of all entries that match, here the most specific table alone decides: so it has those of all."""
        seen: dict[str, Element] = {}
        for entry in entries:
            match = _of(entry)
            if not match or "ActiveMQ.Advisory" in match:
                why = "there are no advisories, and temporary destinations are their connection's"
                self._draft.top.leave(entry.line, f"rights on {match or 'temporary destinations'}", why)
            elif _pattern(match) not in seen:
                seen[_pattern(match)] = entry
                self._right(entry, [other for other in entries if _covers(other, entry)])
            elif any(_groups(entry, right) != _groups(seen[_pattern(match)], right) for right in _RIGHTS):
                table = self._settings[f"permission {_pattern(match)}"]
                table.leave(
                    entry.line,
                    f"the rights on {match!r} a second time",
                    "queues and topics of one name are one address",
                )

    def _right(self, entry: Element, covering: list[Element]) -> None:
        pattern = _pattern(_of(entry))
        table = self._table(f"permission {pattern}", "[[permission]]", self._named(pattern), entry.line)
        for name, names in _RIGHTS.items():
            groups = [group for other in (entry, *covering) for group in _groups(other, name)]
            for right in names:
                table.put(right, list(dict.fromkeys(groups)), entry.line)

    # addresses

    def _table(self, key: str, header: str, match: str, line: int) -> Table:
        if key not in self._settings:
            self._settings[key] = self._draft.table(header, line)
            self._settings[key].put("match", match, line)
        return self._settings[key]

    def _setting(self, match: str, line: int) -> Table:
        return self._table(_pattern(match), "[[address-setting]]", self._named(_pattern(match)), line)

    def _named(self, name: str) -> str:
        return name.replace(".", self._separator)

    def _set(self, table: Table, key: str, value: Any, line: int) -> None:
        if table.has(key):
            table.leave(
                line,
                f"{key} = {value!r}",
                "this address has another value already, of its queue or its topic",
            )
        else:
            table.put(key, value, line)

    def _policies(self, policy: Element) -> None:
        for tag in ("policyEntries", "defaultEntry"):
            for entry in policy.below("policyMap", tag, "policyEntry"):
                self._policy(entry)

    def _policy(self, entry: Element) -> None:
        told = entry.attributes
        match = told.get("queue") or told.get("topic") or ">"
        table = self._setting(match, entry.line)
        for name, value in told.items():
            if name in ("queue", "topic", "producerFlowControl"):
                continue
            if name in _PREFETCHES:
                self._prefetched(table, entry, name)
                continue
            made = _POLICY.get(name)
            if made is None:
                table.leave(entry.line, f"{name} = {value[:60]!r}", "there is no such setting here")
                continue
            key, of = made
            try:
                self._set(table, key, of(value), entry.line)
            except ValueError:
                table.leave(entry.line, f"{name} = {value[:60]!r}", f"no value for {key}")
        if told.get("producerFlowControl", "true").casefold() == "true" and table.has("max-size-bytes"):
            self._set(table, "address-full-policy", "BLOCK", entry.line)
        for child in entry.children:
            self._strategy(table, child)

    def _prefetched(self, table: Table, entry: Element, name: str) -> None:
        value = entry.attributes[name]
        if name == "queuePrefetch" and is_for_all_queues(entry) and value == self._prefetch:
            table.remark(f"queuePrefetch is consumerFlowLimit={value} of the listeners", entry.line)
            return
        why = "a listener has one for all, consumerFlowLimit; activemq.prefetchSize of a SUBSCRIBE is its own"
        table.leave(entry.line, f"{name} = {value[:60]!r}", why)

    def _strategy(self, table: Table, strategy: Element) -> None:
        for kind in strategy.children:
            told = kind.attributes
            if kind.tag == "sharedDeadLetterStrategy":
                queue = next(
                    (
                        child.attributes.get("physicalName", "")
                        for child in kind.below("deadLetterQueue", "queue")
                    ),
                    "",
                )
                target = self._named(told.get("deadLetterQueue", queue or "ActiveMQ.DLQ"))
                self._set(table, "dead-letter-address", target, kind.line)
                self._set(table, "expiry-address", target if _keeps_expired(kind) else "", kind.line)
            elif kind.tag == "individualDeadLetterStrategy":
                self._set(table, "dead-letter-address", "DLQ", kind.line)
                self._set(table, "auto-create-dead-letter-resources", True, kind.line)
                prefix = self._named(told.get("queuePrefix", "ActiveMQ.DLQ.Queue."))
                self._set(table, "dead-letter-queue-prefix", prefix, kind.line)
                table.remark(f"dead letters of orders are read as /queue/DLQ::{prefix}orders", kind.line)
                self._set(table, "expiry-address", "DLQ" if _keeps_expired(kind) else "", kind.line)
                if _keeps_expired(kind):
                    self._set(table, "auto-create-expiry-resources", True, kind.line)
                    self._set(table, "expiry-queue-prefix", prefix, kind.line)
            elif kind.tag == "discarding":
                self._set(table, "dead-letter-address", "", kind.line)
                self._set(table, "expiry-address", "", kind.line)
            elif (
                kind.tag == "fixedCountSubscriptionRecoveryPolicy"
                and whole(told.get("maximumSize", "100"), ANY) is not None
            ):
                self._set(table, "retroactive-message-count", int(told.get("maximumSize", "100")), kind.line)
            elif kind.tag == "lastImageSubscriptionRecoveryPolicy":
                self._set(table, "retroactive-message-count", 1, kind.line)
            elif kind.tag in ("abortSlowConsumerStrategy", "abortSlowAckConsumerStrategy"):
                self._set(table, "slow-consumer-policy", "KILL", kind.line)
                table.leave(
                    kind.line, f"<{kind.tag}>", "who is slow is said by slow-consumer-threshold, as a rate"
                )
            else:
                table.leave(kind.line, f"<{kind.tag}> of <{strategy.tag}>", "there is no such policy here")

    def _redelivery(self, plugin: Element) -> None:
        for policy in plugin.below("redeliveryPolicyMap", "redeliveryPolicyMap"):
            for entry in policy.below("redeliveryPolicyEntries", "redeliveryPolicy"):
                self._redelivered(
                    entry, entry.attributes.get("queue") or entry.attributes.get("topic") or ">"
                )
            for entry in policy.below("defaultEntry", "redeliveryPolicy"):
                self._redelivered(entry, ">")

    def _redelivered(self, entry: Element, match: str) -> None:
        table = self._setting(match, entry.line)
        names = {
            "initialRedeliveryDelay": "redelivery-delay",
            "maximumRedeliveryDelay": "max-redelivery-delay",
        }
        told = {name: value for name, value in entry.attributes.items() if name not in ("queue", "topic")}
        for name, value in told.items():
            number = whole(value.removeprefix("-"), ANY)
            if name == "maximumRedeliveries" and number is not None:
                self._set(
                    table, "max-delivery-attempts", -1 if value.startswith("-") else number + 1, entry.line
                )
            elif name in names and number is not None:
                self._set(table, names[name], number, entry.line)
            elif name == "redeliveryDelay" and number is not None:
                self._later(table, told, number, entry.line)
            elif name == "backOffMultiplier" and whole(value.replace(".", "", 1), ANY) is not None:
                if told.get("useExponentialBackOff", "false").casefold() == "true":
                    self._set(table, "redelivery-delay-multiplier", float(value), entry.line)
            elif name != "useExponentialBackOff":
                table.leave(entry.line, f"{name} = {value[:60]!r}", "there is no such setting here")

    def _later(self, table: Table, told: dict[str, str], delay: int, line: int) -> None:
        """The delay of the second attempt and of those after it; where delays grow they are made of the first one."""
        first = told.get("initialRedeliveryDelay")
        if first is None:
            self._set(table, "redelivery-delay", delay, line)
        elif whole(first, ANY) != delay and told.get("useExponentialBackOff", "false").casefold() != "true":
            table.leave(line, f"redeliveryDelay = {delay}", "all attempts have the delay of the first one")

    def _destinations(self, destinations: Element) -> None:
        kinds: dict[str, list[str]] = {}
        lines: dict[str, int] = {}
        for child in destinations.children:
            name = self._named(child.attributes.get("physicalName", ""))
            if child.tag not in ("queue", "topic"):
                self._draft.top.leave(child.line, f"<{child.tag}> {name!r}", "it is its connection's alone")
                continue
            kinds.setdefault(name, []).append("ANYCAST" if child.tag == "queue" else "MULTICAST")
            lines.setdefault(name, child.line)
        for name, found in kinds.items():
            table = self._draft.table("[[address]]", lines[name])
            table.put("name", name, lines[name])
            table.put("routing-types", list(dict.fromkeys(found)), lines[name])
            if "ANYCAST" in found:
                queue = self._draft.table("[[address.queue]]", lines[name])
                queue.put("name", name, lines[name])
                queue.put("routing-type", "ANYCAST", lines[name])

    def _interceptors(self, interceptors: Element) -> None:
        for kind in interceptors.below("virtualDestinationInterceptor", "virtualDestinations"):
            for child in kind.children:
                if child.tag in ("compositeQueue", "compositeTopic"):
                    self._composite(child)
                elif child.tag != "virtualTopic":
                    self._draft.top.leave(
                        child.line,
                        f"<{child.tag}> {child.attributes.get('name', '')!r}",
                        "there is no such thing here",
                    )
        for child in interceptors.children:
            if child.tag != "virtualDestinationInterceptor":
                self._draft.top.leave(
                    child.line, f"<{child.tag}>", "a [[divert]] copies messages of one address to another"
                )

    def _virtual_topics(self, broker: Element) -> Iterator[str]:
        """Each as virtualTopicConsumerWildcards has it, `Consumer.*.VirtualTopic.>;2`."""
        for topic in broker.below(
            "destinationInterceptors", "virtualDestinationInterceptor", "virtualDestinations", "virtualTopic"
        ):
            told = topic.attributes
            name, prefix = told.get("name", ">"), told.get("prefix", "Consumer.*.")
            if not prefix.endswith(".") or told.get("postfix"):
                why = "queues of it are found by the words before its name, which end with a dot"
                self._draft.top.leave(topic.line, f"<virtualTopic> {name!r}", why)
                continue
            if told.get("selectorAware", "false").casefold() == "true":
                self._draft.top.leave(
                    topic.line, "selectorAware", "a queue has the selector of [[address.queue]] filter alone"
                )
            yield f"{prefix}{name};{prefix.count('.')}"

    def _composite(self, composite: Element) -> None:
        """A divert for each target. An exclusive one takes all that it matches from the others: where there are more, or one with a
        selector, one takes everything to an address between, of which the targets get copies."""
        name, line = composite.attributes.get("name", ""), composite.line
        is_forward = composite.attributes.get("forwardOnly", "true").casefold() == "true"
        targets = [child for forward in composite.below("forwardTo") for child in forward.children]
        source, is_exclusive = _pattern(name), is_forward
        if is_forward and (len(targets) > 1 or any(target.attributes.get("selector") for target in targets)):
            if set(name) & set("*>"):
                why = "forwardOnly with many targets, or with selectors, needs a name without wildcards"
                self._draft.top.leave(line, f"<{composite.tag}> {name!r}", why)
                return
            source, is_exclusive = f"{name}.composite", False
            between = self._draft.table("[[address]]", line)
            between.remark(f"between {name} and what it forwards to, without a queue of its own", line)
            between.put("name", self._named(source), line)
            between.put("routing-types", ["MULTICAST"], line)
            self._divert(f"{name}-0", name, source, line).put("exclusive", True, line)
        for number, target in enumerate(targets, 1):
            told = target.attributes
            forwarding = told.get("physicalName") or told.get("queue") or told.get("topic") or ""
            table = self._divert(f"{name}-{number}", source, forwarding, target.line)
            table.put("exclusive", is_exclusive, target.line)
            is_queue = target.tag == "queue" or "queue" in told
            table.put("routing-type", "ANYCAST" if is_queue else "MULTICAST", target.line)
            if told.get("selector"):
                table.put("filter", told["selector"], target.line)

    def _divert(self, name: str, address: str, forwarding: str, line: int) -> Table:
        table = self._draft.table("[[divert]]", line)
        table.put("name", name, line)
        table.put("address", self._named(address), line)
        table.put("forwarding-address", self._named(forwarding), line)
        return table

    def _usage(self, usage: Element) -> None:
        for part in usage.below("systemUsage"):
            for child in part.children:
                for one in child.children:
                    self._limit(child.tag, one)
        if usage.find("systemUsage") is None:
            for child in usage.children:
                for one in child.children:
                    self._limit(child.tag, one)

    def _limit(self, kind: str, usage: Element) -> None:
        top, told = self._draft.top, usage.attributes
        if kind == "memoryUsage" and "limit" in told:
            try:
                top.put("global-max-size", _size(told["limit"]), usage.line)
            except ValueError:
                top.leave(usage.line, f"memoryUsage limit = {told['limit'][:60]!r}", "no size")
        elif kind == "storeUsage" and whole(told.get("percentLimit", ""), ANY) is not None:
            top.put("max-disk-usage", int(told["percentLimit"]), usage.line)
        else:
            said = ", ".join(f"{name} = {value}" for name, value in told.items())
            top.leave(
                usage.line,
                f"{kind} {said}",
                "global-max-size, min-disk-free and max-disk-usage are what there is",
            )


def _pattern(match: str) -> str:
    """`>` is any number of words there, `#` here."""
    return ".".join("#" if word in (">", "**") else word for word in match.split("."))


def _of(entry: Element) -> str:
    return entry.attributes.get("queue") or entry.attributes.get("topic") or ""


def _groups(entry: Element, right: str) -> list[str]:
    return [group.strip() for group in entry.attributes.get(right, "").split(",") if group.strip()]


def _covers(general: Element, special: Element) -> bool:
    """Whether whatever the second entry matches the first one matches as well, of queues or of topics."""
    if general is special or ("queue" in general.attributes) != ("queue" in special.attributes):
        return False
    wide, narrow = _pattern(_of(general)).split("."), _pattern(_of(special)).split(".")
    for at, word in enumerate(wide):
        if word == "#":
            return True
        if at >= len(narrow) or narrow[at] == "#" or word not in ("*", narrow[at]):
            return False
    return len(wide) == len(narrow)


def _keeps_expired(strategy: Element) -> bool:
    return strategy.attributes.get("processExpired", "true").casefold() == "true"


def _size(text: str) -> int:
    """Bytes of "64 mb" or "1048576". Raises ValueError."""
    words = text.casefold().replace(" ", "")
    unit = words.lstrip("0123456789")
    number = whole(words.removesuffix(unit) if unit else words, ANY)
    if number is None or (unit and unit not in _UNITS):
        raise ValueError(text)
    return number * (_UNITS[unit] if unit else 1)


def _whole(text: str) -> int:
    number = whole(text.strip().removeprefix("-"), ANY)
    if number is None:
        raise ValueError(text)
    return -number if text.strip().startswith("-") else number


def _truth(text: str) -> bool:
    if text.casefold() not in ("true", "false"):
        raise ValueError(text)
    return text.casefold() == "true"


_POLICY: Final = {
    "memoryLimit": ("max-size-bytes", _size),
    "gcInactiveDestinations": ("auto-delete-queues", _truth),
    "inactiveTimeoutBeforeGC": ("auto-delete-queues-delay", _whole),
    "inactiveTimoutBeforeGC": ("auto-delete-queues-delay", _whole),
    "allConsumersExclusiveByDefault": ("default-exclusive-queue", _truth),
    "consumersBeforeDispatchStarts": ("default-consumers-before-dispatch", _whole),
    "timeBeforeDispatchStarts": ("default-delay-before-dispatch", _whole),
    "maxBrowsePageSize": ("management-browse-page-size", _whole),
}
