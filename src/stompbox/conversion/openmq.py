"""OpenMQ's config.properties, with the passwd file, accesscontrol.properties and what `imqcmd list dst` prints beside it.

Decides what each `imq.` property becomes: the STOMP bridge is a listener, automatic destinations are the settings of `#`. The file of
rights is openmqrights.py's. Facts are of the administration guide: chapters 9 (access control), 12 (bridges) and 17 (properties).
"""

from __future__ import annotations

from collections.abc import Mapping
from re import compile as pattern
from typing import Final

from stompbox.conversion.accounts import Accounts, Properties, User, write_user
from stompbox.conversion.draft import Draft, Table
from stompbox.conversion.openmqrights import EVERYONE, Rights, named_group
from stompbox.conversion.values import write_listener
from stompbox.errors import ConfigError
from stompbox.numerals import digits

DEAD: Final = "mq.sys.dmq"
_BRIDGE: Final = "imq.bridge.stomp."
_PORTS: Final = {"tcp": "7672", "tls": "7673"}
_UNITS: Final = {"b": 1, "k": 1 << 10, "m": 1 << 20}
_TRUE: Final = "true"
_NOTHING: Final = (
    "imq.bridge.enabled", "imq.bridge.activelist", "imq.instanceconfig.version", "imq.brokerid", "imq.service.activelist",
    "imq.accesscontrol.enabled", "imq.accesscontrol.file.filename", "imq.user_repository.file.filename", "imq.destination.DMQ.",
    _BRIDGE + "logfile.", "imq.hostname", "imq.authentication.basic.user_repository",
)  # fmt: skip
_ELSEWHERE: Final[tuple[tuple[str, str], ...]] = (
    ("imq.bridge.admin.", "[admin] and a [[user]] with the right `manage` on stompbox.admin"),
    ("imq.bridge.", "of its bridges there is STOMP alone"),
    ("imq.cluster.", "[cluster] is configured in its own way: docs/cluster.md"),
    ("imq.persist.", "the store is SQLite below `data`; messages are not taken over: let consumers empty the old broker"),
    ("imq.log", "the log goes to stderr; log-level says how much"),
    ("imq.metrics.", "docs/metrics.md has the metrics"),
    ("imq.jmx.", "no JMX: docs/admin.md has the admin interface"),
    ("imq.keystore.", "keyStorePath of an ssl:// listener names a PEM file or PKCS12"),
    ("imq.user_repository.", "users are [[user]] tables: no LDAP and no JAAS"),
    ("imq.portmapper.", "there is no port mapper: clients connect to the listener"),
    ("imq.autocreate.topic.consumerFlowLimit", "clients say it with prefetch-count, listeners with consumerFlowLimit"),
    ("imq.autocreate.queue.consumerFlowLimit", "clients say it with prefetch-count, listeners with consumerFlowLimit"),
)  # fmt: skip
_POLICIES: Final = {"FLOW_CONTROL": "BLOCK", "REJECT_NEWEST": "FAIL"}
_ROW: Final = pattern(r"(\S+)\s+(Queue|Topic)(\s+\(temporary\))?\s+[A-Z_]{3,}\b")
_RULE: Final = "-----"


def convert(name: str, text: bytes, accounts: Accounts, listed: tuple[str, bytes] | None) -> Draft:
    """The draft of a config.properties. `accounts` has the passwd file as `users` and the access control file as `roles`, `listed` the
    name and content of what `imqcmd list dst` printed. Raises ConfigError that names the line of what is no property."""
    properties = Properties.read(name, text)
    if not any(key.startswith("imq.") for key in properties.values):
        raise ConfigError(
            "config-value", f"{name}:1: no property begins with `imq.`: it is no config.properties"
        )
    return _Conversion(Draft(name), properties.values, accounts).whole(listed)


class _Conversion:
    """One config.properties on its way; what was dealt with is taken out of `_left`."""

    def __init__(self, draft: Draft, values: Mapping[str, tuple[str, int]], accounts: Accounts) -> None:
        self._draft: Final = draft
        self._left: Final = dict(values)
        self._accounts: Final = accounts
        self._body = ""  # the largest body, as a listener's option

    def whole(self, listed: tuple[str, bytes] | None) -> Draft:
        settings = self._settings()
        self._listeners()
        self._people()
        self._draft.tables.append(settings)
        if listed is not None:
            self._destinations(*listed)
        for key, (value, line) in self._left.items():
            self._rest(key, value, line)
        return self._draft

    def _take(self, key: str, default: str = "") -> tuple[str, int]:
        """The value of a property with its line; the default stands on no line."""
        return self._left.pop(key, (default, 0))

    def _rest(self, key: str, value: str, line: int) -> None:
        top = self._draft.top
        if key.startswith(_NOTHING):
            top.remark(f"{key} is left out: nothing to set here", line)
            return
        why = next(
            (why for start, why in _ELSEWHERE if key.startswith(start)), "there is no such setting here"
        )
        is_secret = "password" in key.casefold()
        top.leave(line, key if is_secret else f"{key} = {value[:60]!r}", why)

    # listeners

    def _listeners(self) -> None:
        host = self._take(_BRIDGE + "hostname")[0] or self._left.get("imq.hostname", ("", 0))[0]
        flow = self._take(_BRIDGE + "consumerFlowLimit")[0]
        transformer, at = self._take(_BRIDGE + "messageTransformer")
        client_auth = self._take(_BRIDGE + "tls.requireClientAuth")[0].casefold() == _TRUE
        for kind, default in (("tcp", _TRUE), ("tls", "false")):
            enabled, line = self._take(f"{_BRIDGE}{kind}.enabled", default)
            port, port_line = self._take(f"{_BRIDGE}{kind}.port", _PORTS[kind])
            if enabled.casefold() != _TRUE:
                continue
            options = {"dialect": "openmq"}
            if flow:
                options["consumerFlowLimit"] = flow
            if self._body:
                options["maxBodySize"] = self._body
            if kind == "tls":
                options["keyStorePath"] = "server.pem"
                if client_auth:
                    options |= {"needClientAuth": _TRUE, "trustStorePath": "clients.pem"}
            place = port_line or line
            table = write_listener(
                self._draft, f"{host or '0.0.0.0'}:{port}", options, place, is_tls=kind == "tls", is_open=not self._accounts.users
            )  # fmt: skip
            if kind == "tls":
                table.leave(
                    place, "its key store", "keyStorePath must name the certificate chain with its key, PEM"
                )
            if transformer:
                table.leave(
                    at,
                    f"messageTransformer = {transformer[:60]!r}",
                    "it is Java; here it is module:function, in Python",
                )

    # users and rights

    def _people(self) -> None:
        rules, users = self._accounts.roles, self._accounts.users
        is_on = self._left.get("imq.accesscontrol.enabled", (_TRUE, 0))
        groups = self._groups()
        rights = None if rules is None or is_on[0].casefold() != _TRUE else Rights(rules, groups)
        for name, (told, line) in (users.values if users else {}).items():
            if name not in groups:
                self._draft.top.leave(
                    0, f"user {name!r} ({users.name if users else ''}:{line})", self._why_not(told)
                )
                continue
            given = list(groups[name])
            if rights is not None:
                given += [EVERYONE] if rights.names_everyone else []
                given += [named_group(name)] if name in rights.named else []
            write_user(self._draft, User(name, told.split(":")[0], given, line, is_hash=True), self._accounts)
        if rights is not None:
            rights.write(self._draft)
        elif rules is not None:
            self._draft.top.remark(
                f"{rules.name} is left out: access control is off, every user may do everything", is_on[1]
            )
        else:
            self._draft.top.remark(
                "no accesscontrol.properties was there: every user may do everything; --access names it"
            )

    def _groups(self) -> dict[str, list[str]]:
        """The groups of each user who may log in. A line of the passwd file is name:hash:group:1, the last 0 for who may not."""
        found = {}
        for name, (told, _) in (self._accounts.users.values if self._accounts.users else {}).items():
            parts = told.split(":")
            if len(parts) == 3 and parts[2].strip() == "1":
                found[name] = [parts[1]] if parts[1] else []
        return found

    def _why_not(self, told: str) -> str:
        is_user = len(told.split(":")) == 3
        return (
            "the account is not active" if is_user else "expected name:hash:group:1 as `imqusermgr` writes it"
        )

    # addresses

    def _settings(self) -> Table:
        """What holds for each destination that is made by itself: the settings of `#`. It stands behind listeners and users."""
        table = self._draft.table("[[address-setting]]", 0)
        self._draft.tables.remove(table)
        table.put("match", "#", 0)
        self._dead_letters(table)
        self._automatic(table)
        self._limits(table)
        for key, setting in (("maxNumActiveConsumers", "default-max-consumers"),):
            self._number(table, f"imq.autocreate.queue.{key}", setting)
        for key in ("imq.message.max_size", "imq.autocreate.destination.maxBytesPerMsg"):
            value, line = self._take(key)
            size = _size(value)
            if size is not None and size > 0:
                self._body = str(min(size, int(self._body or size)))
            elif value and value.strip() != "-1":
                table.leave(line, f"{key} = {value[:60]!r}", "no size, such as 70m")
        value, line = self._take("imq.system.max_size")
        if (size := _size(value)) is not None and size > 0:
            self._draft.top.put("global-max-size", size, line)
        self._number(self._draft.top, "imq.system.max_count", "global-max-messages")
        return table

    def _dead_letters(self, table: Table) -> None:
        used, line = self._take("imq.autocreate.destination.useDMQ", _TRUE)
        name = DEAD if used.casefold() == _TRUE else ""
        table.put("dead-letter-address", name, line)
        table.put("expiry-address", name, line)

    def _automatic(self, table: Table) -> None:
        told = {kind: self._take(f"imq.autocreate.{kind}", _TRUE) for kind in ("queue", "topic")}
        is_off = {kind: value.casefold() == "false" for kind, (value, _) in told.items()}
        line = max(at for _, at in told.values())
        if all(is_off.values()):
            table.put("auto-create-addresses", False, line)
            table.put("auto-create-queues", False, line)
        elif any(is_off.values()):
            kind = next(kind for kind, is_one in is_off.items() if is_one)
            table.leave(
                told[kind][1],
                f"imq.autocreate.{kind} = false",
                "queues and topics are addresses: both are made, or none",
            )
        self._number(table, "imq.autocreate.reaptime", "auto-delete-queues-delay", times=1000)

    def _limits(self, table: Table) -> None:
        start = "imq.autocreate.destination."
        behaviour, line = self._take(start + "limitBehavior", "REJECT_NEWEST")
        count, size = self._take(start + "maxNumMsgs"), self._take(start + "maxTotalMsgBytes")
        most = _count(count[0])
        octets = _size(size[0])
        if behaviour.upper() == "REMOVE_OLDEST" and most:
            table.put("default-ring-size", most, count[1])
        elif behaviour.upper() in _POLICIES:
            if most:
                table.put("max-size-messages", most, count[1])
            if octets:
                table.put("max-size-bytes", octets, size[1])
            if most or octets:
                table.put("address-full-policy", _POLICIES[behaviour.upper()], line)
        elif line:
            table.leave(
                line,
                f"limitBehavior = {behaviour[:60]!r}",
                "an address that is full blocks, fails, pages or drops",
            )
        for name, (value, at), found in (("maxNumMsgs", count, most), ("maxTotalMsgBytes", size, octets)):
            if value and found is None and value.strip() != "-1":
                table.leave(at, f"{start}{name} = {value[:60]!r}", "no number")

    def _number(self, table: Table, key: str, setting: str, times: int = 1) -> None:
        value, line = self._take(key)
        found = _count(value)
        if found is not None:
            table.put(setting, found * times, line)
        elif value and value.strip() != "-1":  # any number: the default here, too
            table.leave(line, f"{key} = {value[:60]!r}", "no number")

    def _destinations(self, name: str, text: bytes) -> None:
        """An [[address]] for each row of the table that `imqcmd list dst` prints."""
        is_table = is_row = False
        kinds: dict[str, list[str]] = {}
        lines: dict[str, int] = {}
        for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
            if line.startswith(_RULE):
                is_row = is_table and not is_row
                continue
            is_table = is_table or line.split()[:2] == ["Name", "Type"]
            found = _ROW.match(line)
            if found is None:
                if is_row and line.strip() and not line.startswith("Success"):
                    self._draft.top.leave(
                        0, f"{name}:{number}: {line.strip()[:60]!r}", "no row of `imqcmd list dst`"
                    )
                continue
            if found[1] == DEAD or found[3]:
                continue
            kinds.setdefault(found[1], []).append("ANYCAST" if found[2] == "Queue" else "MULTICAST")
            lines.setdefault(found[1], number)
        if not kinds:
            raise ConfigError(
                "config-value",
                f"{name}:1: no row such as `orders  Queue  RUNNING`: print it with `imqcmd list dst`",
            )
        for address, routing in kinds.items():
            table = self._draft.table("[[address]]", 0)
            table.put("name", address, 0)
            table.put("routing-types", routing, 0)
            table.remark(f"{name}:{lines[address]}: {address}")
            if "ANYCAST" in routing:
                self._draft.table("[[address.queue]]", 0).put("name", address, 0)


def _size(text: str) -> int | None:
    """Bytes, of `70m`, `100k`, `5b` or a plain number; None: it is none."""
    bare = text.strip().casefold()
    unit = _UNITS.get(bare[-1:], 0)
    number = _count(bare[:-1] if unit else bare)
    return None if number is None else number * (unit or 1)


def _count(text: str) -> int | None:
    """A number from 0 on; None: it is none, or -1, which is any number there."""
    return digits(text.strip())
