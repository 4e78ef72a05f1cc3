"""The JetStream stream of a cluster: how it is made, and what a stream must be that nothing confirmed can be lost from.

    stream     stompbox-CLUSTER, one subject: stompbox.CLUSTER.log
    beats      stompbox.CLUSTER.beat, which no stream keeps

| is refused                                       | because                                                                          |
|--------------------------------------------------|----------------------------------------------------------------------------------|
| fewer than three replicas                        | what one server has confirmed goes with it (`insecure=true` lets it be)          |
| servers that do not say that they sync           | NATS confirms before its disk has it, by default for two minutes                  |
| limits with discard policy old, a limit of age, … | records would go that nodes have not read                                        |
| a stream without our marks, or of another cluster | it is somebody else's                                                            |

Whether servers sync (`sync_interval: always`) is not said on a client's connection. So the URL says how we know: `sync=always` (who runs
the servers has looked), or `monitor=http://host:8222,…`, the servers' monitoring ports, which are asked when the log is opened.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.request import urlopen
from uuid import uuid4

from msgspec import MsgspecError, Struct, field, json
from nats.js.api import DiscardPolicy, PersistMode, RetentionPolicy, StorageType, StreamConfig, StreamInfo

from stompbox.commitlog.base import LogError

REPLICAS: Final = 3
FORMAT: Final = 1
OLDEST: Final = (2, 14)  # nothing here was tried with servers before it
CLUSTER: Final = "stompbox.cluster"
IDENTITY: Final = "stompbox.identity"
VERSION: Final = "stompbox.format"
MONITOR_ANSWER: Final = 3.0  # seconds


def stream_of(cluster: str) -> str:
    return f"stompbox-{cluster}"


def subject_of(cluster: str) -> str:
    return f"stompbox.{cluster}.log"


def beats_of(cluster: str) -> str:
    return f"stompbox.{cluster}.beat"


def wanted(cluster: str, replicas: int) -> StreamConfig:
    """What a new stream is made with."""
    return StreamConfig(
        name=stream_of(cluster),
        description="commit log of a Stompbox cluster; made, read and trimmed by its nodes",
        subjects=[subject_of(cluster)],
        retention=RetentionPolicy.LIMITS,
        discard=DiscardPolicy.NEW,
        storage=StorageType.FILE,
        num_replicas=replicas,
        deny_delete=True,
        metadata={CLUSTER: cluster, IDENTITY: uuid4().hex, VERSION: str(FORMAT)},
    )


def check_owner(info: StreamInfo, cluster: str, name: str) -> str:
    """The identity of the log that the stream is. Raises LogError `log-of-another`, `log-too-new`."""
    marks = info.config.metadata or {}
    owner, identity, version = (marks.get(mark, "") for mark in (CLUSTER, IDENTITY, VERSION))
    if not identity or owner != cluster:
        whose = f"the cluster {owner!r}" if owner else "something else: it has no mark of Stompbox"
        raise LogError("log-of-another", f"{name}: the stream belongs to {whose}, and not to {cluster!r}")
    if version != str(FORMAT):
        raise LogError("log-too-new", f"{name}: the stream has format {version}, this program reads {FORMAT}")
    return identity


def check_safe(info: StreamInfo, cluster: str, name: str) -> None:
    """Raises LogError `log-not-safe` for a stream that lets records go by itself, or confirms what it does not keep."""
    wrong = list(_losses(info.config, cluster))
    if wrong:
        raise LogError("log-not-safe", f"{name}: the stream {', '.join(wrong)}")


def _losses(config: StreamConfig, cluster: str) -> Iterable[str]:
    if config.subjects != [subject_of(cluster)]:
        yield f"has the subjects {config.subjects}, and not {subject_of(cluster)!r} alone"
    if config.retention not in (None, RetentionPolicy.LIMITS):
        yield f"has retention {config.retention}, which lets records go that were read"
    if config.storage not in (None, StorageType.FILE):
        yield f"has storage {config.storage}, and not file"
    limits = [limit for limit in ("max_msgs", "max_bytes") if (getattr(config, limit) or -1) > 0]
    if limits and config.discard != DiscardPolicy.NEW:
        yield f"discards old records at its {' and '.join(limits)}: set discard to new"
    if (config.max_age or 0) > 0:
        yield f"drops records after max_age, {config.max_age:g} s"
    if (config.max_msgs_per_subject or -1) > 0:
        yield f"keeps {config.max_msgs_per_subject} messages of a subject"
    if config.no_ack:
        yield "confirms nothing (no_ack)"
    if config.mirror or config.sources:
        yield "is filled from another one"
    if config.allow_rollup_hdrs:
        yield "lets a publisher drop what is there (allow_rollup_hdrs)"
    if config.persist_mode == PersistMode.ASYNC:
        yield "confirms before it has written (persist_mode async)"


def check_copies(info: StreamInfo, name: str) -> None:
    """Raises LogError `log-not-safe` for a stream on fewer than three servers."""
    copies = info.config.num_replicas or 1
    if copies < REPLICAS:
        hint = "three servers in a cluster, or insecure=true in the URL to do without"
        raise LogError(
            "log-not-safe", f"{name}: the stream has {copies} replicas, and not {REPLICAS}: {hint}"
        )


class _Config(Struct):
    sync_always: bool = False


class _JetStream(Struct):
    config: _Config = field(default_factory=_Config)


class _Varz(Struct):
    server_name: str = ""
    jetstream: _JetStream = field(default_factory=_JetStream)


def check_synced(monitors: str, info: StreamInfo, name: str) -> None:
    """Asks the monitoring ports, separated by commas. Raises LogError `log-not-safe` when a server of the stream does not sync, or is
    not among them, `log-unavailable` when one does not answer."""
    synced = set()
    for url in monitors.split(","):
        found = _varz(url.strip(), name)
        if not found.jetstream.config.sync_always:
            raise LogError(
                "log-not-safe",
                f"{name}: the server {found.server_name} ({url}) has not sync_interval: always in its jetstream block",
            )
        synced.add(found.server_name)
    peers = info.cluster
    names = {peers.leader, *(peer.name for peer in peers.replicas or ())} if peers else set()
    missing = sorted(str(peer) for peer in names - synced if peer)
    if missing:
        raise LogError("log-not-safe", f"{name}: no monitor is of the stream's servers {', '.join(missing)}")


def _varz(url: str, name: str) -> _Varz:
    if not url.startswith(("http://", "https://")):
        raise LogError("log-not-safe", f"{name}: the monitor {url!r} is no http:// or https:// URL")
    try:
        with urlopen(f"{url.rstrip('/')}/varz", timeout=MONITOR_ANSWER) as answer:
            return json.decode(answer.read(), type=_Varz)
    except (OSError, ValueError, MsgspecError) as error:
        raise LogError("log-unavailable", f"{name}: the monitor {url} does not answer ({error})") from error
