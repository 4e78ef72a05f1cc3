"""Artemis's broker.xml: acceptors of STOMP, addresses, address settings, security settings, diverts and the keys with the same names.

Decides what each element becomes. Keys keep their names, so most of it is a walk over the tables of the configuration itself; where
Artemis's default is another one than Stompbox's, what Artemis does is written down.
"""

from __future__ import annotations

from re import sub
from typing import Final

from stompbox.config.configuration import Configuration
from stompbox.config.fields import fields_of
from stompbox.config.settings import AddressSettings
from stompbox.config.tables import RIGHTS, DivertTable, QueueTable, WildcardTable
from stompbox.conversion.accounts import Accounts
from stompbox.conversion.draft import Draft, Table
from stompbox.conversion.elements import Element, read
from stompbox.conversion.values import put, resolved, split_options, write_listener
from stompbox.errors import ConfigError

_TOP: Final = fields_of(Configuration)
_SETTINGS: Final = fields_of(AddressSettings)
_QUEUE: Final = fields_of(QueueTable)
_DIVERT: Final = fields_of(DivertTable)

# where what Artemis does unasked differs from what Stompbox does
_DEFAULTS: Final = {
    "default-address-routing-type": "MULTICAST",
    "default-queue-routing-type": "MULTICAST",
    "dead-letter-address": "",
}
_PREFIXES: Final = ("anycastPrefix", "multicastPrefix")
_RENAMED: Final = {
    "auto-create-jms-queues": "auto-create-queues",
    "auto-delete-jms-queues": "auto-delete-queues",
    "auto-create-jms-topics": "auto-create-addresses",
    "auto-delete-jms-topics": "auto-delete-addresses",
    "last-value-queue": "default-last-value-queue",
}
# how the journal, pages and threads are tuned: there is one store, and it needs none of it
_NEEDLESS: Final = (
    "journal-", "paging-directory", "bindings-directory", "large-messages-directory", "create-", "page-", "thread-pool-", "scheduled-",
    "security-invalidation-interval", "critical-analyzer", "name", "jmx-", "memory-", "message-expiry-scan-period", "wild-card-routing",
    "configuration-file-refresh-period", "address-queue-scan-period", "server-dump-interval", "max-disk-usage-",
)  # fmt: skip
_ELSEWHERE: Final = {
    "cluster-connections": "one node has all queues; docs/cluster.md has what a cluster is here, docs/fronts.md more cores",
    "broadcast-groups": "there is no discovery of brokers",
    "discovery-groups": "there is no discovery of brokers",
    "connectors": "the broker opens no connection to other brokers",
    "bridges": "the broker opens no connection to other brokers; `stompbox replay` copies messages",
    "broker-connections": "the broker opens no connection to other brokers; `stompbox replay` copies messages",
    "ha-policy": "nodes of a [cluster] share a log, docs/cluster.md",
    "broker-plugins": "plug-ins are Java; messageTransformer of a listener is a function in Python",
    "remoting-incoming-interceptors": "interceptors are Java; messageTransformer of a listener is a function in Python",
    "remoting-outgoing-interceptors": "interceptors are Java; messageTransformer of a listener is a function in Python",
    "metrics-plugin": "metrics are at /metrics of the admin interface, without a plug-in",
    "metrics": "metrics are at /metrics of the admin interface, without a plug-in",
    "grouping-handler": "groups are of one broker",
    "federations": "the broker opens no connection to other brokers",
    "message-counter-enabled": "history is always kept, docs/admin.md",
    "store": "messages are not taken over: let consumers empty the old broker, or copy them with two clients",
}


def convert(name: str, text: bytes, accounts: Accounts) -> Draft:
    """The draft of a broker.xml. Raises ConfigError where it is none."""
    root = resolved(read(text, name))
    core = root if root.tag == "core" else root.find("core")
    if core is None:
        raise ConfigError(
            "config-value", f"{name}:{root.line}: no <core> in <{root.tag}>: it is no broker.xml of Artemis"
        )
    return _Conversion(Draft(name), accounts).whole(core)


class _Conversion:
    """One broker.xml on its way; a method for each element that has a table of its own."""

    def __init__(self, draft: Draft, accounts: Accounts) -> None:
        self._draft: Final = draft
        self._accounts: Final = accounts
        self._has_users = accounts.users is not None

    def whole(self, core: Element) -> Draft:
        draft = self._draft
        tables = {
            "acceptors": self._acceptors,
            "security-settings": self._security,
            "address-settings": self._settings,
            "addresses": self._addresses,
            "diverts": self._diverts,
            "wildcard-addresses": self._wildcards,
        }
        for child in core.children:
            if child.tag not in tables:
                self._key(child)
        for tag, write in tables.items():
            for child in core.children:
                if child.tag == tag:
                    write(child)
            if tag == "acceptors":
                self._accounts.write(draft)
        if core.find("address-settings") is None:
            self._settings(Element("address-settings", core.line))
        return draft

    def _key(self, child: Element) -> None:
        top, tag = self._draft.top, child.tag
        if tag in _TOP and not _TOP[tag].table:
            put(top, _TOP, tag, child.text, child.line)
        elif tag == "persistence-enabled":
            if child.text.casefold() == "false":
                top.put("memory", True, child.line)
        elif tag == "security-enabled":
            if child.text.casefold() == "false":
                top.remark(
                    "security-enabled is false: without a [[user]] anyone may connect, from this machine alone",
                    child.line,
                )
        elif tag in _ELSEWHERE:
            top.leave(child.line, f"<{tag}>", _ELSEWHERE[tag])
        elif tag.startswith(_NEEDLESS):
            top.remark(f"<{tag}> is left out: nothing to set here", child.line)
        else:
            top.leave(child.line, f"<{tag}>{child.text[:60]}", "there is no such setting here")

    def _acceptors(self, acceptors: Element) -> None:
        for acceptor in acceptors.below("acceptor"):
            url, _, query = (acceptor.text or acceptor.attributes.get("url", "")).partition("?")
            options = split_options(query)
            spoken = [word.strip().upper() for word in options.pop("protocols", "STOMP").split(",")]
            title = f"acceptor {acceptor.attributes.get('name', '')!r}"
            if "STOMP" not in spoken:
                self._draft.top.leave(
                    acceptor.line, title, f"speaks {', '.join(spoken)}; here it is STOMP alone"
                )
                continue
            scheme, _, endpoint = url.partition("://")
            is_tls = options.pop("sslEnabled", "false").casefold() == "true" or scheme == "ssl"
            table = write_listener(
                self._draft,
                endpoint,
                {**dict.fromkeys(_PREFIXES, ""), **options, "dialect": "artemis"},
                acceptor.line,
                is_tls=is_tls,
                is_open=not self._has_users,
            )
            if absent := [name for name in _PREFIXES if name not in options]:
                table.remark(f"as in Artemis, which knows no prefixes unasked: {', '.join(absent)}")
            others = [word for word in spoken if word != "STOMP"]
            if others:
                table.leave(acceptor.line, title, f"{', '.join(others)}: here it is STOMP alone")

    def _security(self, settings: Element) -> None:
        for setting in settings.below("security-setting"):
            table = self._draft.table("[[permission]]", setting.line)
            table.put("match", setting.attributes.get("match", ""), setting.line)
            for child in setting.children:
                self._permission(table, child)
        for mapping in settings.below("role-mapping"):
            self._draft.top.leave(
                mapping.line, "<role-mapping>", "write the groups of the [[user]] themselves"
            )
        if not self._has_users and settings.find("security-setting") is not None:
            why = "there is no artemis-users.properties beside the file, nor --users: until there is a [[user]], nobody may do anything"
            self._draft.top.leave(settings.line, "users", why)

    def _permission(self, table: Table, permission: Element) -> None:
        kind = permission.attributes.get("type", "")
        right = sub(r"([A-Z])", lambda found: "-" + found[1].lower(), kind)
        roles = [role.strip() for role in permission.attributes.get("roles", "").split(",") if role.strip()]
        if right in RIGHTS:
            table.put(right, roles, permission.line)
        else:
            table.leave(
                permission.line,
                f"permission {kind!r} of {', '.join(roles)}",
                "there is no such right; the nearest is manage",
            )

    def _settings(self, settings: Element) -> None:
        found = list(settings.below("address-setting"))
        if not any(setting.attributes.get("match") == "#" for setting in found):
            found.insert(0, Element("address-setting", settings.line, {"match": "#"}))
        for setting in found:
            self._setting(setting)

    def _setting(self, setting: Element) -> None:
        table = self._draft.table("[[address-setting]]", setting.line)
        match = setting.attributes.get("match", "")
        table.put("match", match, setting.line)
        if match == "#":
            given = {_RENAMED.get(child.tag, child.tag) for child in setting.children}
            absent = {key: value for key, value in _DEFAULTS.items() if key not in given}
            if absent:
                table.remark(f"what Artemis does unasked: {', '.join(absent)}")
            for key, value in absent.items():
                table.put(key, value, 0)
        for child in setting.children:
            key = _RENAMED.get(child.tag, child.tag)
            if key in _SETTINGS:
                put(table, _SETTINGS, key, child.text, child.line)
            else:
                table.leave(child.line, f"<{child.tag}>{child.text[:60]}", "there is no such setting here")

    def _addresses(self, addresses: Element) -> None:
        for address in addresses.below("address"):
            table = self._draft.table("[[address]]", address.line)
            table.put("name", address.attributes.get("name", ""), address.line)
            kinds = [child for child in address.children if child.tag in ("anycast", "multicast")]
            table.put("routing-types", list(dict.fromkeys(kind.tag.upper() for kind in kinds)), address.line)
            for child in address.children:
                if child not in kinds:
                    table.leave(child.line, f"<{child.tag}>", "an address has no such thing here")
            for kind in kinds:
                for queue in kind.children:
                    self._queue(queue, kind.tag.upper())

    def _queue(self, queue: Element, kind: str) -> None:
        table = self._draft.table("[[address.queue]]", queue.line)
        table.put("name", queue.attributes.get("name", ""), queue.line)
        table.put("routing-type", kind, queue.line)
        told = [(name, text, queue.line) for name, text in queue.attributes.items() if name != "name"]
        told += [
            (child.tag, child.attributes.get("string", child.text), child.line) for child in queue.children
        ]
        for name, text, line in told:
            if name in _QUEUE:
                put(table, _QUEUE, name, text, line)
            else:
                table.leave(line, f"{name} = {text[:60]!r}", "a queue has no such thing here")

    def _diverts(self, diverts: Element) -> None:
        for divert in diverts.below("divert"):
            table = self._draft.table("[[divert]]", divert.line)
            table.put("name", divert.attributes.get("name", ""), divert.line)
            for child in divert.children:
                if child.tag in _DIVERT and child.tag != "transformer":
                    put(table, _DIVERT, child.tag, child.attributes.get("string", child.text), child.line)
                elif child.tag == "routing-name":
                    table.remark("<routing-name> is left out: the divert has one name", child.line)
                else:
                    table.leave(
                        child.line,
                        f"<{child.tag}>",
                        "Java; `transformer` takes a function in Python, module:function",
                    )

    def _wildcards(self, wildcards: Element) -> None:
        table = self._draft.table("[wildcard-addresses]", wildcards.line)
        known = fields_of(WildcardTable)
        for child in wildcards.children:
            key = {"routing-enabled": "enabled"}.get(child.tag, child.tag)
            if key in known:
                put(table, known, key, child.text, child.line)
            else:
                table.leave(child.line, f"<{child.tag}>", "there is no such key here")
