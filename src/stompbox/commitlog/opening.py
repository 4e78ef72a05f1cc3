"""A log's URL, and the log that it names.

    nats://n1:4222,n2:4222,n3:4222      JetStream (jetstream.py); tls:// as well; user:password@ or token@ before the servers
    postgresql://user@host/database     PostgreSQL (postgres.py): what libpq takes, passwords in its pass file too
    disk:///folder                      a folder of this machine (disk.py): for trying it out, it has no second copy

This file decides what a URL says. The engines' libraries are imported for their own URLs alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import parse_qsl, unquote

from stompbox.commitlog.base import CommitLog
from stompbox.config.fields import nearest
from stompbox.errors import ConfigError, redacted

NAME: Final = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}"
)  # part of the names of streams, subjects and tables
PAGE: Final = "docs/cluster-log.md"

# scheme -> engine
SCHEMES: Final = MappingProxyType(
    {
        "nats": "nats",
        "tls": "nats",
        "postgresql": "postgres",
        "postgres": "postgres",
        "disk": "disk",
    }
)
LIBRARIES: Final = MappingProxyType({"nats": "nats", "postgres": "psycopg"})
# of those whose libraries do not say which there are
OPTIONS: Final = MappingProxyType(
    {
        "nats": ("ca", "cert", "key", "credentials", "sync", "monitor", "insecure"),
        "disk": (),
    }
)


@dataclass(frozen=True, slots=True)
class LogUrl:
    """A URL taken apart. `rest` stands between the scheme and the query."""

    whole: str
    scheme: str
    rest: str
    options: dict[str, str]

    @property
    def engine(self) -> str:
        return SCHEMES[self.scheme]

    @property
    def is_insecure(self) -> bool:
        return self.options.get("insecure") == "true"


def parse(url: str) -> LogUrl:
    """Raises ConfigError `config-value` that names what is wrong, without passwords."""
    where = f"log {redacted(url)!r}"
    found = re.fullmatch(r"([A-Za-z]+)://([^?#]*)(?:\?([^#]*))?", url.strip())
    if not found:
        raise ConfigError("config-value", f"{where}: is no URL of a log; {PAGE} has examples")
    scheme, rest, query = found[1].lower(), found[2], found[3] or ""
    if scheme not in SCHEMES:
        raise ConfigError(
            "config-value", f"{where}: unknown scheme {scheme!r}; {nearest(scheme, SCHEMES, page=PAGE)}"
        )
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in options:
            raise ConfigError("config-value", f"{where}: gives the option {name!r} twice")
        known = OPTIONS.get(SCHEMES[scheme])
        if known is not None and name not in known:
            raise ConfigError(
                "config-value", f"{where}: unknown option {name!r}; {nearest(name, known, page=PAGE)}"
            )
        options[name] = value
    if options.get("insecure", "false") not in ("true", "false"):
        raise ConfigError("config-value", f"{where}: insecure is {options['insecure']!r}; true or false")
    if scheme == "disk" and not rest.startswith("/"):
        raise ConfigError(
            "config-value", f"{where}: names no folder from the root on, as disk:///folder does"
        )
    if scheme != "disk" and not rest:
        raise ConfigError("config-value", f"{where}: names no server")
    return LogUrl(url.strip(), scheme, rest, options)


def check_name(cluster: str) -> None:
    """Raises ConfigError `config-value` for what cannot be a cluster's name."""
    if not NAME.fullmatch(cluster):
        allowed = "letters, digits, - and _, 32 at most, and begins with a letter or digit"
        raise ConfigError("config-value", f"cluster name {cluster!r}: has {allowed}")


def open_log(url: str, cluster: str, node: str = "") -> CommitLog:
    """The log of the cluster, made where there is none. `node`: what the engine calls the connections.

    Raises ConfigError for the URL or the name, and when a library is missing; LogError `log-unavailable`, `log-not-allowed`,
    `log-not-safe`, `log-of-another`, `log-too-new`, `log-corrupt`.
    """
    check_name(cluster)
    found = parse(url)
    library = LIBRARIES.get(found.engine, "")
    if library and find_spec(library) is None:
        raise ConfigError(
            "missing-package",
            f'log {redacted(url)!r}: needs the package {library}: pip install "stompbox[{found.engine}]"',
        )
    return _open(found, cluster, node)


def _open(url: LogUrl, cluster: str, node: str) -> CommitLog:
    if url.engine == "nats":
        from stompbox.commitlog.jetstream import JetStreamLog

        return JetStreamLog(url, cluster, node)
    if url.engine == "postgres":
        from stompbox.commitlog.postgres import PostgresLog

        return PostgresLog(url, cluster, node)
    from stompbox.commitlog.disk import DiskLog

    return DiskLog(Path(unquote(url.rest)), cluster)
