"""What spans the keys of a pipeline file: names that are unique or known, keys that exclude or need each other.

Decides what is refused before anything is started or asked. Whether addresses and tables are there shows in the dry run.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path as FilePath
from re import fullmatch, match, sub
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from stompbox.config.fields import nearest, shown
from stompbox.config.toml import Path
from stompbox.errors import SelectorError, UsageError, redacted
from stompbox.pipelines.locations import is_url
from stompbox.pipelines.plan import Plan, keys_of_options
from stompbox.pipelines.settings import (
    KINDS,
    ArchiveTable,
    AuditTable,
    AzureTable,
    CatalogType,
    Format,
    ReplayTable,
    ReportTable,
    SourceTable,
    Step,
    Stream,
    TransformTable,
    Writer,
)
from stompbox.pipelines.storage import SERVICES, Service
from stompbox.selectors import compile_selector
from stompbox.spark.ddl import check_columns
from stompbox.spark.options import Given, source_options

_LIBRARIES: Final = {Format.DELTA: "deltalake", Format.ICEBERG: "pyiceberg"}
ADDED: Final = ("archived", "date")  # columns that an archive has besides the source's
_OF_DESTINATIONS: Final = (
    "watermark", "schema", "body_format", "mode", "column_name_of_corrupt_record", "selector", "group", "starting_timestamp",
    "starting_offsets_by_timestamp", "starting_offsets_by_timestamp_strategy",
)  # fmt: skip
_NAME: Final = r"[\w][\w.-]*"
_CALLS: Final = {Format.PARQUET: "Parquet", Format.DELTA: "Delta", Format.ICEBERG: "Iceberg"}


def check(plan: Plan) -> None:
    """Raises ConfigError naming file, line and key of the first thing that is wrong."""
    steps = list(_placed(plan))
    if not steps:
        plan.origins.refuse(
            (), "there is no step: [[archive]], [[transform]], [[replay]], [[report]] or [[audit]]"
        )
    _check_names(plan, steps)
    try:
        plan.target()
    except UsageError as error:
        _refuse_option(plan, (), error)
    _check_files(plan)
    _check_storage(plan)
    if is_url(plan.pipeline.folder):
        plan.origins.refuse(
            ("folder",),
            f"{shown(redacted(plan.pipeline.folder))} is a URL; expected a folder of this machine",
        )
    for path, value, kept in _paths(steps):
        if is_url(value):
            _check_url(plan, path, value)
        if kept:
            _check_where(plan, path, value, kept)
    for path, step in steps:
        if isinstance(step, ArchiveTable):
            _check_archive(plan, path, step)
        elif isinstance(step, TransformTable):
            _check_transform(plan, path, step)
        elif isinstance(step, ReplayTable):
            _check_replay(plan, path, step)
        else:
            _check_reading(plan, path, step)
    _check_tables(plan, steps)


def _check_files(plan: Plan) -> None:
    for key in ("trust_store_path", "key_store_path", "key_path"):
        text = getattr(plan.pipeline, key)
        try:
            if text:
                plan.path(text).read_bytes()
        except OSError as fault:
            plan.origins.refuse(
                (key.replace("_", "-"),), f"{plan.path(text)} cannot be read: {fault.strerror}"
            )


def _check_storage(plan: Plan) -> None:
    storage, catalog = plan.pipeline.storage, plan.pipeline.catalog
    if bool(storage.access_key_id) != bool(storage.secret_access_key):
        plan.origins.refuse(
            ("storage",),
            "access-key-id and secret-access-key are given together, or neither",
            "config-conflict",
        )
    endpoints: dict[Path, str] = {("storage", "endpoint") if storage.endpoint else (): plan.storage.endpoint}
    endpoints["storage", "google", "endpoint"] = plan.storage.google.endpoint
    endpoints["storage", "azure", "endpoint"] = plan.storage.azure.endpoint
    for place, endpoint in endpoints.items():
        if endpoint and not _is_http(endpoint):
            problem = f"{shown(redacted(endpoint))} is no endpoint; expected https://host:port, without user and path"
            plan.origins.refuse(place, problem)
    _check_azure(plan, storage.azure)
    if catalog is None:
        return
    if catalog.type is CatalogType.REST and not is_url(catalog.uri):
        plan.origins.refuse(("catalog", "uri"), "is no URL; expected https://host/path")
    if find_spec("pyiceberg") is None:
        plan.origins.refuse(
            ("catalog",), "Iceberg needs the package pyiceberg: pip install 'stompbox[pipelines]'"
        )


def _check_azure(plan: Plan, azure: AzureTable) -> None:
    place, principal = ("storage", "azure"), (azure.tenant_id, azure.client_id, azure.client_secret)
    if any(principal) and not all(principal):
        plan.origins.refuse(
            place,
            "tenant-id, client-id and client-secret are given together, or none of them",
            "config-conflict",
        )
    if bool(azure.account_key) + bool(azure.sas_token) + any(principal) > 1:
        plan.origins.refuse(
            place, "one of account-key, sas-token and client-secret says who it is", "config-conflict"
        )


def _is_http(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and "@" not in parts.netloc
            and parts.path in ("", "/")
        )
    except ValueError:
        return False


def _paths(steps: list[tuple[Path, Step]]) -> Iterator[tuple[Path, str, Format | None]]:
    """Each path of a step, with its key; of a table with how it is kept."""
    for path, step in steps:
        sources = step.sources if isinstance(step, TransformTable) else ()
        placed = [
            (path, step),
            *(((*path, "source", number), source) for number, source in enumerate(sources)),
        ]
        for place, each in placed:
            for key in ("table", "output", "sent"):
                if value := getattr(each, key, None):
                    yield (*place, key), value, getattr(each, "format", None) if key == "table" else None


_AUTHORITIES: Final = {  # what stands behind the scheme of a URL, what that is, and of what characters
    Service.S3: (r"[a-z0-9][a-z0-9.-]+", "a bucket", "a-z, 0-9, dots and hyphens, two at least"),
    Service.GOOGLE: (
        r"[a-z0-9][a-z0-9._-]+",
        "a bucket",
        "a-z, 0-9, dots, hyphens and underscores, two at least",
    ),
    Service.AZURE: (
        r"[a-z0-9][a-z0-9-]+(@[a-z0-9]+\.dfs\.core\.windows\.net)?",
        "a container, its account",
        "a-z, 0-9 and (containers) hyphens, two at least",
    ),
    Service.HADOOP: (r"[\w.-]+(:\d+)?", "a host", "letters, digits, dots and hyphens"),
}


def _check_url(plan: Plan, path: Path, url: str) -> None:
    parts = match(r"(\w[\w+.-]*)://([^/]*)(?:/|$)(.*)", url)
    service = SERVICES.get(parts[1]) if parts else None
    if parts is None or service is None:
        text = f"{shown(redacted(url))} is a URL of no store; expected {', '.join(each.value for each in Service)}"
        plan.origins.refuse(path, f"{text}, or a folder that driver and executors share")
    pattern, what, characters = _AUTHORITIES[service]
    if "@" in parts[2] and service is not Service.AZURE:
        keys = (
            "[storage] has access-key-id and secret-access-key"
            if service is Service.S3
            else "it takes those of the machine"
        )
        plan.origins.refuse(path, f"keys do not belong into a URL; {keys}")
    if not fullmatch(pattern, parts[2]) or not parts[3].strip("/"):
        plan.origins.refuse(
            path,
            f"{shown(redacted(url))} must name {what} and a path in it: {service.value}; names are of {characters}",
        )
    if service is Service.AZURE and "@" not in parts[2] and not plan.storage.azure.account:
        plan.origins.refuse(
            path,
            f"{shown(url)} names no account, and [storage.azure] has no account-name; expected {service.value}",
        )


def _check_where(plan: Plan, path: Path, text: str, kept: Format) -> None:
    """An object store has no rename, which Parquet's log needs; and no lock, which Iceberg's catalogue in a folder needs."""
    if kept is Format.ICEBERG and plan.pipeline.catalog:
        if not fullmatch(r"[\w-]+(\.[\w-]+)+", text):
            problem = f"{shown(text)} is no name in the catalogue of this file; expected namespace.table"
            plan.origins.refuse(path, problem)
    elif is_url(text) and kept is Format.PARQUET:
        place = (
            "on HDFS, which has no lock"
            if text.startswith("hdfs:")
            else "in an object store, which has no rename"
        )
        problem = f"{shown(text)} is {place} for the log of format parquet"
        plan.origins.refuse(
            path, f'{problem}; take format = "delta", or "iceberg" with a [catalog]', "config-conflict"
        )
    elif is_url(text) and kept is Format.ICEBERG:
        problem = f"{shown(text)} is in an object store, where an Iceberg table needs a [catalog]"
        plan.origins.refuse(
            path, f'{problem}, and is called by its name there; or take format = "delta"', "config-conflict"
        )


def _placed(plan: Plan) -> Iterator[tuple[Path, Step]]:
    """Each step with its place in the file."""
    counts: dict[str, int] = {}
    for step in plan.pipeline.steps:
        kind = KINDS[type(step)]
        yield (kind, counts.get(kind, 0)), step
        counts[kind] = counts.get(kind, 0) + 1


def _check_names(plan: Plan, steps: list[tuple[Path, Step]]) -> None:
    seen: dict[str, Path] = {}
    for path, step in steps:
        if not fullmatch(_NAME, step.name):
            plan.origins.refuse(
                (*path, "name"),
                f"{shown(step.name)} cannot name a folder; allowed are letters, digits, and _ . - inside",
            )
        if step.name in seen:
            plan.origins.refuse(
                (*path, "name"),
                f"{shown(step.name)} is the name of another step, {plan.origins.where(seen[step.name])}",
            )
        seen[step.name] = path


def _check_archive(plan: Plan, path: Path, step: ArchiveTable) -> None:
    _check_library(plan, path, step.format)
    if step.writer is Writer.JAVA and not isinstance(plan.where(step.table, step.format), FilePath):
        problem = "java writes to folders; to object stores, and to tables of a [catalog], arrow does"
        plan.origins.refuse((*path, "writer"), problem, "config-conflict")
    _check_source(plan, path, step, step)


def _check_transform(plan: Plan, path: Path, step: TransformTable) -> None:
    if (step.destination is None) == (step.table is None):
        plan.origins.refuse(path, "a transform has one of destination and table", "config-conflict")
    if step.partition_by and not step.table:
        plan.origins.refuse(
            (*path, "partition-by"), "only a table is partitioned; a destination is not", "config-conflict"
        )
    if step.table:
        _check_library(plan, path, step.format)
    if not match(r"(?is)\s*(select|with|from|values|table)\b", sub(r"--[^\n]*|/\*.*?\*/", " ", step.sql)):
        plan.origins.refuse((*path, "sql"), f"expected one SELECT, not {shown(step.sql.strip())}")
    if not any(source.destinations for source in step.sources):
        plan.origins.refuse(path, "none of its sources is a destination; a transform needs one that fills")
    names: set[str] = set()
    for index, source in enumerate(step.sources):
        place = (*path, "source", index)
        if bool(source.destinations) == bool(source.table):
            plan.origins.refuse(place, "a source has one of destinations and table", "config-conflict")
        if not fullmatch(r"[A-Za-z_]\w*", source.name) or source.name.lower() in names:
            plan.origins.refuse(
                (*place, "name"), f"{shown(source.name)} must be one word of SQL that no other source has"
            )
        names.add(source.name.lower())
        if source.destinations:
            _check_source(plan, place, step, source)
        else:
            _check_table_source(plan, place, source)


def _check_table_source(plan: Plan, path: Path, source: SourceTable) -> None:
    _check_library(plan, path, source.format)
    for name in _OF_DESTINATIONS:
        if getattr(source, name):
            plan.origins.refuse(
                (*path, name.replace("_", "-")),
                "is for sources with destinations, not for tables",
                "config-conflict",
            )
    if not source.include_headers:
        plan.origins.refuse(
            (*path, "include-headers"), "is for sources with destinations, not for tables", "config-conflict"
        )


def _check_source(plan: Plan, path: Path, step: Stream, source: ArchiveTable | SourceTable) -> None:
    """Refuses what the data source itself would refuse."""
    if not source.destinations:
        plan.origins.refuse((*path, "destinations"), "expected at least one destination")
    try:
        source_options(Given(plan.stream_options(step, source, "group")), streaming=True)
        check_columns(source.schema or "", *(ADDED if isinstance(source, ArchiveTable) else ()))
        if source.selector:
            compile_selector(source.selector)
    except UsageError as error:
        _refuse_option(plan, path, error)
    except SelectorError as error:
        plan.origins.refuse((*path, "selector"), error.message)


def _check_replay(plan: Plan, path: Path, step: ReplayTable) -> None:
    if (step.archive is None) == (step.table is None):
        plan.origins.refuse(path, "a replay has one of archive and table", "config-conflict")
    if step.archive:
        _check_known(plan, (*path, "archive"), step.archive)
    else:
        _check_library(plan, path, step.format)
    for name, text in (("from", step.start), ("until", step.until)):
        if text is not None and _moment(text) is None:
            plan.origins.refuse(
                (*path, name),
                f"expected a timestamp with zone such as 2026-03-01T00:00:00Z, not {shown(text)}",
            )
    if step.destination and "," in step.destination:
        plan.origins.refuse(
            (*path, "destination"), f"expected one destination, not {shown(step.destination)}"
        )


def _check_reading(plan: Plan, path: Path, step: ReportTable | AuditTable) -> None:
    if isinstance(step, AuditTable):
        _check_known(plan, (*path, "archive"), step.archive)
        if step.sent and FilePath(step.sent).suffix not in (".parquet", ".csv", ".jsonl"):
            plan.origins.refuse(
                (*path, "sent"), f"expected a file .parquet, .csv or .jsonl, not {shown(step.sent)}"
            )
        if step.sent and not plan.pipeline.archive(step.archive).include_headers:
            problem = f"the ids of what was sent are headers, which archive {step.archive!r} leaves out (include-headers = false)"
            plan.origins.refuse((*path, "sent"), problem, "config-conflict")
        return
    if not step.archives:
        plan.origins.refuse((*path, "archives"), "expected the name of at least one archive step")
    for index, name in enumerate(step.archives):
        _check_known(plan, (*path, "archives", index), name)


def _check_known(plan: Plan, path: Path, name: str) -> None:
    known = [archive.name for archive in plan.pipeline.archives]
    if name not in known:
        clause = nearest(name, known) if known else "the file has no [[archive]]"
        plan.origins.refuse(path, f"{shown(name)} is no archive step; {clause}")


def _check_library(plan: Plan, path: Path, kept: Format) -> None:
    library = _LIBRARIES.get(kept)
    if library and find_spec(library) is None:
        plan.origins.refuse(
            (*path, "format"),
            f"{_CALLS[kept]} needs the package {library}: pip install 'stompbox[pipelines]'",
        )


def _check_tables(plan: Plan, steps: list[tuple[Path, Step]]) -> None:
    """Two steps that write one table would each take the other's files for leftovers."""
    seen: dict[str, str] = {}
    for path, step in steps:
        if isinstance(step, ArchiveTable | TransformTable) and step.table:
            where = plan.shown(step.table, step.format)
            if where in seen:
                problem = f"{shown(step.table)} is the table of step {seen[where]!r} already"
                plan.origins.refuse((*path, "table"), problem, "config-conflict")
            seen[where] = step.name


def _refuse_option(plan: Plan, path: Path, error: UsageError) -> NoReturn:
    """An option of the data source under the name that the file has for it."""
    named = match(r"option '(\w+)'", error.message)
    key = keys_of_options().get(named[1], "") if named else ""
    text = sub(
        r"(?:the )?option '(\w+)'",
        lambda found: f"the key {keys_of_options().get(found[1], found[1])!r}",
        error.message,
    )
    # in what it says beside
    text = sub(r"\b[a-z]+[A-Z]\w*\b", lambda found: keys_of_options().get(found[0], found[0]), text)
    plan.origins.refuse((*path, key) if key else path, text)


def _moment(text: str) -> Any:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else None
