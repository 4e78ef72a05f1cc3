"""RabbitMQ's definitions.json: users, virtual hosts, permissions, queues, exchanges, bindings and policies.

Decides what each becomes. Patterns there are regular expressions: those that say a name, names, what begins with a word, or all, are
carried over; the others are named. A permission there is of a user: each user is a group of its own name here.
"""

from __future__ import annotations

from re import compile, fullmatch, sub
from re import error as RegexError
from typing import Final

from stompbox.conversion.accounts import WHAT_TO_DO
from stompbox.conversion.draft import Draft, Table
from stompbox.conversion.places import Located, read
from stompbox.errors import ConfigError

DEFAULT_HOST: Final = "/"
_CONFIGURE: Final = (
    "create-address", "delete-address", "create-durable-queue", "delete-durable-queue", "create-non-durable-queue",
    "delete-non-durable-queue",
)  # fmt: skip
_RIGHTS: Final = {"configure": _CONFIGURE, "write": ("send",), "read": ("consume", "browse")}
_EXCHANGES: Final = ("amq.topic", "amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.default")
_AGES: Final = {"s": 1, "m": 60, "h": 3600, "D": 86_400, "M": 30 * 86_400, "Y": 365 * 86_400}
# arguments of queues and keys of policies that need nothing here
_NEEDLESS: Final = (
    "queue-mode", "queue-version", "queue-master-locator", "queue-leader-locator", "ha-mode", "ha-params", "ha-sync-mode",
    "ha-sync-batch-size", "ha-promote-on-shutdown", "ha-promote-on-failure", "initial-cluster-size", "quorum-initial-group-size",
    "max-in-memory-length", "max-in-memory-bytes", "stream-max-segment-size-bytes", "stream-filter-size-bytes",
)  # fmt: skip


def convert(name: str, text: bytes) -> Draft:
    """The draft of a definitions.json. Raises ConfigError where it is none."""
    root = read(text, name)
    if not any(key in root for key in ("users", "vhosts", "queues", "exchanges", "policies")):
        raise ConfigError(
            "config-value",
            f"{name}:{root.line}: no users, vhosts, queues or exchanges: these are no definitions of RabbitMQ",
        )
    return _Conversion(Draft(name), root).whole()


class _Conversion:
    """One file of definitions on its way; a virtual host after the other."""

    def __init__(self, draft: Draft, root: Located) -> None:
        self._draft: Final = draft
        self._root: Final = root
        self._hosts: Final = [host.text("name") for host in root.objects("vhosts")]
        self._policed: Final[
            dict[tuple[str, str], Located]
        ] = {}  # what a policy says of one queue of this file

    def whole(self) -> Draft:
        self._top()
        has_users = bool(self._root.objects("users"))
        listener = self._draft.table("[[listener]]", 0)
        listener.remark("what rabbitmq.conf says of stomp.listeners is not in the definitions")
        listener.put("url", f"tcp://{'0.0.0.0' if has_users else '127.0.0.1'}:61613?dialect=rabbitmq", 0)
        for user in self._root.objects("users"):
            self._user(user)
        self._host(DEFAULT_HOST, "")
        others = [host for host in self._hosts if host != DEFAULT_HOST]
        if others and (DEFAULT_HOST in self._hosts or not self._hosts):
            table = self._draft.table("[[virtual-host]]", 0)
            table.put("name", DEFAULT_HOST, 0)
            table.put("default", True, 0)
        for host in others:
            table = self._draft.table("[[virtual-host]]", 0)
            table.put("name", host, 0)
            table.put("users", [one.text("user") for one in self._of(host, "permissions")], 0)
            self._host(host, "virtual-host.")
        return self._draft

    def _top(self) -> None:
        top = self._draft.top
        parts = {
            "parameters": "shovels and federation: the broker opens no connection to other brokers",
            "topic_permissions": "rights are by address: [[permission]]",
            "global_parameters": "nothing to set here",
        }
        for key, why in parts.items():
            for one in self._root.objects(key):
                name = one.of("name", str) or one.of("user", str) or ""
                if key == "global_parameters":
                    top.remark(f"{key} {name!r} is left out: {why}", one.line)
                else:
                    top.leave(one.line, f"{key} {name!r}", why)
        known = (*parts, "users", "vhosts", "permissions", "queues", "exchanges", "bindings", "policies")
        for key in self._root:
            if key not in known and not key.startswith(("rabbit", "product", "explanation", "original_")):
                top.leave(self._root.lines[key], key, "there is no such thing here")

    def _user(self, user: Located) -> None:
        name = user.text("name")
        table = self._draft.table("[[user]]", user.line)
        table.put("name", name, user.line)
        tags = user.get("tags") or []
        words = [
            tag
            for tag in (tags.split(",") if isinstance(tags, str) else tags)
            if tag and isinstance(tag, str)
        ]
        if user.of("password_hash", str, ""):
            algorithm = user.of("hashing_algorithm", str, "rabbit_password_hashing_sha256")
            why = f"its hash ({algorithm.removeprefix('rabbit_password_hashing_')}, salted) is none that is verified here; {WHAT_TO_DO}"
            table.leave(user.lines.get("password_hash", user.line), "password_hash", why)
        if user.get("limits"):
            why = "no limit is that of one user: maxConnections is that of a listener"
            table.leave(user.lines["limits"], f"limits of {name!r}", why)
        table.put("groups", [name, *words], user.line)

    def _of(self, host: str, key: str) -> list[Located]:
        return [one for one in self._root.objects(key) if one.of("vhost", str, DEFAULT_HOST) == host]

    # one virtual host; `prefix` is that of its tables

    def _host(self, host: str, prefix: str) -> None:
        self._permissions(host, prefix)
        self._policies(host, prefix)
        streams = self._queues(host, prefix)
        self._exchanges(host, prefix, streams)

    def _permissions(self, host: str, prefix: str) -> None:
        """Writes the rights: of all tables that match an address the most specific one alone decides, so who may more is in each."""
        granted: dict[str, dict[str, list[str]]] = {}
        lines: dict[str, int] = {}
        for one in self._of(host, "permissions"):
            user = one.text("user")
            for kind, rights in _RIGHTS.items():
                expression = one.of(kind, str, "")
                patterns = _patterns(expression)
                if patterns is None:
                    why = "the regular expression is no name, names, `word.` with what follows, or all"
                    self._draft.top.leave(
                        one.lines.get(kind, one.line), f"{kind} of {user!r}: {expression[:80]}", why
                    )
                for pattern in patterns or ():
                    if pattern in _EXCHANGES:
                        why = "addresses of /topic/… are names of their own: write a [[permission]] for those"
                        self._draft.top.leave(
                            one.lines.get(kind, one.line), f"{kind} of {user!r}: {pattern}", why
                        )
                        continue
                    lines.setdefault(pattern, one.line)
                    for right in rights:
                        granted.setdefault(pattern, {}).setdefault(right, []).append(user)
        all_rights = [right for rights in _RIGHTS.values() for right in rights]
        administrators = [
            user.text("name")
            for user in self._root.objects("users")
            if "administrator" in str(user.get("tags"))
        ]
        for pattern in granted:
            table = self._draft.table(f"[[{prefix}permission]]", lines[pattern])
            table.put("match", pattern, lines[pattern])
            for right in all_rights:
                users = [
                    user
                    for other, rights in granted.items()
                    if _covers(other, pattern)
                    for user in rights.get(right, ())
                ]
                if users:
                    table.put(right, list(dict.fromkeys(users)), lines[pattern])
            if administrators:
                table.put("manage", administrators, lines[pattern])

    def _policies(self, host: str, prefix: str) -> None:
        for policy in sorted(self._of(host, "policies"), key=lambda one: int(one.of("priority", int, 0))):
            name, expression = policy.text("name"), policy.of("pattern", str, "")
            patterns = _patterns(expression)
            definition = policy.of("definition", Located, Located(self._draft.source, policy.line))
            if patterns is None:
                self._police(host, policy, expression)
                continue
            for pattern in patterns:
                table = self._draft.table(f"[[{prefix}address-setting]]", policy.line)
                table.remark(f"policy {name!r}", policy.line)
                table.put("match", pattern, policy.line)
                self._settings(table, host, definition)

    def _police(self, host: str, policy: Located, expression: str) -> None:
        """A policy whose pattern is none here counts for the queues of the file of which it is the policy: one has the one of the highest
        priority that matches its name, and no other."""
        names = [queue.text("name") for queue in self._of(host, "queues")]
        found = [name for name in names if self._policy_of(host, name) is policy]
        for name in found:
            self._policed[host, name] = policy.of(
                "definition", Located, Located(self._draft.source, policy.line)
            )
        had = f"; it is that of {len(found)} queues of this file, which have it" if found else ""
        why = f"the regular expression is no name, names, `word.` with what follows, or all{had}"
        self._draft.top.leave(policy.line, f"policy {policy.text('name')!r} on {expression[:80]}", why)

    def _policy_of(self, host: str, queue: str) -> Located | None:
        found = [
            one
            for one in self._of(host, "policies")
            if one.of("apply-to", str, "") != "exchanges" and _is_found(one.of("pattern", str, ""), queue)
        ]
        return max(found, key=lambda one: int(one.of("priority", int, 0)), default=None)

    def _queues(self, host: str, prefix: str) -> set[str]:
        """The names of those that are streams."""
        streams = set()
        for queue in self._of(host, "queues"):
            name = queue.text("name")
            if not name or any(letter in name for letter in "*#") or "::" in name:
                self._draft.top.leave(
                    queue.line, f"queue {name!r}", "*, # and :: have a meaning of their own in addresses"
                )
                continue
            arguments = queue.of("arguments", Located, Located(self._draft.source, queue.line))
            told = Located(arguments.name, arguments.line)
            for key, value in arguments.items():
                told[key.removeprefix("x-")] = value
                told.lines[key.removeprefix("x-")] = arguments.lines[key]
            kind = told.pop("queue-type", "classic")
            if (policed := self._policed.get((host, name))) is not None:
                for key, value in policed.items():
                    if key not in told:  # an argument of the queue comes first
                        told[key] = value
                        told.lines[key] = policed.lines[key]
            if told:
                setting = self._draft.table(f"[[{prefix}address-setting]]", queue.line)
                setting.put("match", name, queue.line)
                self._settings(setting, host, told, is_stream=kind == "stream")
            table = self._draft.table(f"[[{prefix}address]]", queue.line)
            table.put("name", name, queue.line)
            table.put("routing-types", ["MULTICAST" if kind == "stream" else "ANYCAST"], queue.line)
            if kind == "stream":
                streams.add(name)
                table.remark(f"a stream: read it as /stream/{name}; retention-… say what is kept")
                continue
            made = self._draft.table(f"[[{prefix}address.queue]]", queue.line)
            made.put("name", name, queue.line)
            made.put("durable", queue.of("durable", bool, True), queue.line)
            if told.get("single-active-consumer") is True:
                made.put("exclusive", True, queue.line)
            if queue.of("auto_delete", bool, False):
                made.leave(
                    queue.line,
                    f"auto_delete of {name!r}",
                    "queues that a SUBSCRIBE makes go by themselves; leave this one out",
                )
        return streams

    def _settings(self, table: Table, host: str, told: Located, *, is_stream: bool = False) -> None:
        is_rejecting = told.get("overflow") in ("reject-publish", "reject-publish-dlx")
        for key, value in told.items():
            line = told.lines.get(key, told.line)
            if key in (
                "single-active-consumer",
                "overflow",
                "dead-letter-routing-key",
                "dead-letter-strategy",
            ):
                continue
            if key in _NEEDLESS:
                table.remark(f"{key} is left out: nothing to set here", line)
            elif key == "dead-letter-exchange":
                self._dead_letters(table, host, told, line)
            elif (
                key == "max-age"
                and isinstance(value, str)
                and (found := fullmatch(r"([0-9]{1,9})([YMDhms])", value))
            ):
                table.put("retention-ms", int(found[1]) * _AGES[found[2]] * 1000, line)
            elif (
                not isinstance(value, int)
                or isinstance(value, bool)
                or not _setting(table, key, value, line, is_rejecting=is_rejecting, is_stream=is_stream)
            ):
                table.leave(line, f"{key} = {value!r}", "there is no such setting here")

    def _dead_letters(self, table: Table, host: str, told: Located, line: int) -> None:
        exchange, key = told.of("dead-letter-exchange", str, ""), told.of("dead-letter-routing-key", str)
        bound = {
            one.text("destination")
            for one in self._of(host, "bindings")
            if one.of("source", str, "") == exchange and one.of("destination_type", str, "queue") == "queue"
            and (key is None or one.of("routing_key", str, "") in (key, "#", ""))
        }  # fmt: skip
        target = key if exchange == "" else next(iter(bound)) if len(bound) == 1 else None
        if target:
            table.put("dead-letter-address", target, line)
            table.put("expiry-address", target, line)
        else:
            why = f"{len(bound)} queues are bound to it; dead-letter-address and expiry-address name one address"
            table.leave(line, f"dead-letter-exchange {exchange!r}", why)

    def _exchanges(self, host: str, prefix: str, streams: set[str]) -> None:
        kinds = {
            "amq.topic": "topic",
            "amq.fanout": "fanout",
            "amq.direct": "direct",
            "amq.headers": "headers",
        }
        for exchange in self._of(host, "exchanges"):
            name = exchange.text("name")
            kinds[name] = exchange.of("type", str, "direct")
            if kinds[name] == "fanout":
                table = self._draft.table(f"[[{prefix}address]]", exchange.line)
                table.remark(
                    f"exchange {name!r}: a SEND to /topic/{name} reaches what is bound to it", exchange.line
                )
                table.put("name", name, exchange.line)
                table.put("routing-types", ["MULTICAST"], exchange.line)
            elif not name.startswith("amq."):
                why = f"a {kinds[name]} exchange: send to /topic/… instead, whose addresses are routing keys"
                self._draft.top.leave(exchange.line, f"exchange {name!r}", why)
        for number, binding in enumerate(self._of(host, "bindings"), 1):
            self._binding(binding, kinds, f"binding-{number}", prefix, streams)

    def _binding(
        self, binding: Located, kinds: dict[str, str], name: str, prefix: str, streams: set[str]
    ) -> None:
        source, key = binding.of("source", str, ""), binding.of("routing_key", str, "")
        target = binding.text("destination")
        if source == "":
            return  # each queue is bound to the default exchange by its name
        is_topic = source == "amq.topic" or kinds.get(source) == "fanout"
        if not is_topic or binding.of("destination_type", str, "queue") != "queue" or source == "amq.fanout":
            why = "copies are made of /topic/ addresses (amq.topic) and of fanout exchanges, by a [[divert]]"
            self._draft.top.leave(binding.line, f"binding of {target!r} to {source!r} by {key!r}", why)
            return
        table = self._draft.table(f"[[{prefix}divert]]", binding.line)
        table.put("name", name, binding.line)
        table.put("address", key if source == "amq.topic" else source, binding.line)
        table.put("forwarding-address", target, binding.line)
        table.put("routing-type", "MULTICAST" if target in streams else "ANYCAST", binding.line)


def _is_found(expression: str, name: str) -> bool:
    try:
        return compile(expression).search(name) is not None
    except RegexError:
        return False


def _setting(table: Table, key: str, value: int, line: int, *, is_rejecting: bool, is_stream: bool) -> bool:
    """Sets what a number means. False where there is no such setting."""
    if key == "message-ttl":
        table.put("max-expiry-delay", value, line)
    elif key == "expires":
        table.put("auto-delete-created-queues", True, line)
        table.put("auto-delete-queues-delay", value, line)
        table.put("auto-delete-queues-message-count", -1, line)
    elif key == "delivery-limit":
        table.put("max-delivery-attempts", -1 if value < 0 else value + 1, line)
    elif key == "max-priority":
        table.remark(f"max-priority {value} is left out: each queue has the priorities 0 to 9", line)
    elif key in ("max-length", "max-length-bytes") and is_rejecting:
        table.put("max-size-messages" if key == "max-length" else "max-size-bytes", value, line)
        table.put("address-full-policy", "FAIL", line)
    elif key == "max-length":
        table.put("default-ring-size", value, line)
    elif key == "max-length-bytes" and is_stream:
        table.put("retention-bytes", value, line)
    else:
        return False
    return True


def _patterns(expression: str) -> list[str] | None:
    """The patterns of addresses that match what the regular expression does; None where there are none."""
    told = expression.strip()
    bare = sub(r"^\^|\$$", "", told)
    if bare == "":
        return []  # in permissions: nothing at all
    if bare in (".*", "(.*)", ".+"):
        return ["#"]
    found = fullmatch(r"\(([^()]*)\)|([^()|]*)", bare)
    if found is None or not told.startswith("^") or not told.endswith(("$", ".*")):
        return None  # what is not tied to both ends matches in the midst of names
    made = [_pattern(part) for part in (found[1] or found[2] or "").split("|")]
    return [one for one in made if one] if all(made) else None


def _pattern(part: str) -> str:
    """One alternative; "" for what is more than a name or what begins with a word and a dot."""
    begin = part.removesuffix(".*")
    plain = begin.replace("\\.", ".").replace("\\-", "-").replace("\\_", "_")
    if not fullmatch(r"[\w.:/@-]+", plain) or "::" in plain:
        return ""
    if begin == part:
        return plain
    return f"{plain}#" if plain.endswith(".") and "\\." in begin else ""


def _covers(general: str, special: str) -> bool:
    """Whether every address of the second pattern is one of the first."""
    return general in ("#", special) or (general.endswith(".#") and special.startswith(general[:-1]))
