"""The table [cluster]: the log that nodes share, who this node is, and how nodes reach each other.

Decides names, units, ranges and defaults, and what cannot go together. Opens nothing: whether the log is there shows at start.
"""

import re
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Struct

from stompbox.config.fields import key, shown
from stompbox.config.listener import is_loopback, parse_endpoint
from stompbox.errors import redacted

if TYPE_CHECKING:
    from stompbox.config.origins import Loaded

_OWN: Final = "Stompbox"
SCHEMES: Final = ("nats", "tls", "postgresql", "postgres", "disk")
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")  # part of the names of streams and tables
LEAST_SECRET: Final = 16  # characters


class ClusterTable(Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """[cluster] of the file. There is a cluster where `log` is given."""

    log: Annotated[
        str | None,
        key(
            "The log that the nodes share: `nats://host,host`, `tls://…`, `postgresql://…` or `disk:///folder`; none: this node is alone.",
            kind="log",
        ),
    ] = None
    name: Annotated[str, key("The cluster; nodes of one name share a log, and others refuse it.")] = (
        "stompbox"
    )
    node: Annotated[
        str | None, key("This node; no other one has the name. Unset: the host's name.", source=_OWN)
    ] = None
    listen: Annotated[
        str | None, key("`host:port` for the other nodes alone; needed with `log`.", kind="endpoint")
    ] = None
    advertise: Annotated[
        str | None, key("`host:port` where the other nodes reach it; unset: as `listen`.", kind="endpoint")
    ] = None
    nodes: Annotated[
        tuple[str, ...],
        key(
            "`host:port` of other nodes, which a new one asks for a copy where the log begins too late for it."
        ),
    ] = ()
    secret: Annotated[
        str | None, key("What all nodes know, and nobody else: 16 characters or more.", kind="secret")
    ] = None
    key_store_path: Annotated[
        str | None, key("PEM file with certificate chain and key: the nodes speak TLS.")
    ] = None
    key_store_password: Annotated[str | None, key("Password of the key.", kind="secret")] = None
    key_path: Annotated[str | None, key("The private key, when that file has only the certificates.")] = None
    trust_store_path: Annotated[
        str | None, key("PEM file with whose certificates the other nodes must have been signed.")
    ] = None
    takeover_after: Annotated[
        int,
        key("A follower tries to lead when nothing came of the leader for so long.", "ms", source=_OWN,
            at_least=200),
    ] = 3000  # fmt: skip
    lead_timeout: Annotated[
        int,
        key("A leader that gets no answer of the log for so long follows, unless no other node hears the log either; "
            "-1: 2/3 of `takeover-after`.", "ms",
            source=_OWN, at_least=-1),
    ] = -1  # fmt: skip
    log_timeout: Annotated[
        int,
        key("Who waits for the log for so long gets an ERROR, and what must be stored is refused until it answers.", "ms",
            source=_OWN, at_least=100),
    ] = 10_000  # fmt: skip
    copies: Annotated[
        int,
        key("Nodes that must have a record on their own disks before the log may forget it.", "nodes", source=_OWN,
            at_least=1, at_most=100),
    ] = 2  # fmt: skip
    insecure: Annotated[
        bool,
        key("true: also a log that may lose what it has confirmed, such as one copy, or unsynced ones."),
    ] = False

    @property
    def node_name(self) -> str:
        if self.node:
            return self.node
        from socket import gethostname  # most brokers are alone

        return gethostname().partition(".")[0][:32]

    @property
    def log_url(self) -> str:
        """The URL of the log, with what this table says beside it."""
        url = self.log or ""
        if not self.insecure or url.startswith("disk:") or "insecure=" in url:
            return url
        return f"{url}{'&' if '?' in url else '?'}insecure=true"

    @property
    def lead_time(self) -> float:
        """Seconds without an answer of the log after which a leader leads no more, unless it is away for all."""
        return (self.lead_timeout if self.lead_timeout >= 0 else self.takeover_after * 2 // 3) / 1000

    def listening(self) -> tuple[str, int]:
        """Host and port for the other nodes."""
        assert self.listen is not None
        return parse_endpoint(self.listen, "cluster.listen")

    def __repr__(self) -> str:
        return (
            f"ClusterTable(name={self.name!r}, log={redacted(self.log or 'none')!r}, node={self.node_name!r})"
        )


def check_cluster(loaded: "Loaded") -> None:
    """Refuses a cluster that could not work, or that strangers could join. Raises ConfigError."""
    configuration = loaded.configuration
    table = configuration.cluster
    if table.log is None:
        return
    scheme = table.log.partition("://")[0] if "://" in table.log else ""
    if scheme not in SCHEMES:
        allowed = ", ".join(f"{one}://" for one in SCHEMES)
        loaded.refuse(
            ("cluster", "log"),
            f"expected a URL that begins with one of {allowed}, not {shown(redacted(table.log))}",
        )
    for name, text in (("name", table.name), ("node", table.node_name)):
        if not NAME.fullmatch(text):
            problem = (
                f"expected up to 32 letters, digits, - and _, a letter or digit first, not {shown(text)}"
            )
            loaded.refuse(("cluster", name), problem)
    if configuration.memory:
        problem = "memory = true has no store that could follow a log; leave one of the two out"
        loaded.refuse(("cluster", "log"), problem, "config-conflict")
    if configuration.fronts:
        problem = (
            "fronts and [cluster] do not go together yet: a follower is a front of its leader; fronts = 0"
        )
        loaded.refuse(("cluster", "log"), problem, "config-conflict")
    _check_link(loaded, table)
    if table.lead_timeout >= table.takeover_after:
        problem = f"is not below takeover-after, {table.takeover_after}: two nodes would deliver at a time"
        loaded.refuse(("cluster", "lead-timeout"), problem, "config-conflict")


def _check_link(loaded: "Loaded", table: ClusterTable) -> None:
    if table.listen is None:
        loaded.refuse(("cluster", "log"), "cluster.listen is missing: where the other nodes reach this one")
    host, _ = table.listening()
    if table.secret is not None and len(table.secret) < LEAST_SECRET:
        loaded.refuse(
            ("cluster", "secret"), f"has {len(table.secret)} characters, {LEAST_SECRET} are the least"
        )
    is_mutual = table.key_store_path is not None and table.trust_store_path is not None
    if (table.key_store_path is None) is not (table.trust_store_path is None):
        missing = "trust-store-path" if table.trust_store_path is None else "key-store-path"
        loaded.refuse(("cluster", missing), "is missing: nodes know each other by certificates of both sides")
    if table.secret is None and not is_mutual:
        where = "" if is_loopback(host) else f", and {table.listen} is not loopback"
        problem = f"neither a secret nor key-store-path and trust-store-path{where}: anybody could be a node"
        raise_at = ("cluster", "listen")
        loaded.refuse(raise_at, problem, "config-insecure")
