"""A pipeline as it will run: the tables of its file with the environment and the file's folder, and the options that Spark gets of them.

Decides what the file leaves to the environment, and which option of the data source a key becomes.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from stompbox.config import Origins, read_file
from stompbox.errors import UsageError, redacted
from stompbox.pipelines.locations import CatalogEntry, Store, Where, is_url
from stompbox.pipelines.settings import (
    DEFAULT_URL,
    PAGE,
    ArchiveTable,
    AzureTable,
    CatalogTable,
    CatalogType,
    Format,
    Pipeline,
    ReplayTable,
    SourceTable,
    StorageTable,
    Stream,
)
from stompbox.pipelines.storage import Azure, Google, Storage, plain_url
from stompbox.spark.options import OPTIONS, Given, target_of
from stompbox.spark.targets import Target


class Plan(Struct, frozen=True):
    """A pipeline and where its file is: paths and options as they will be used."""

    pipeline: Pipeline
    origins: Origins
    file: Path
    url: str
    passcode: str | None
    key_password: str | None = None
    storage: Storage = Storage()
    catalog: tuple[tuple[str, str], ...] = ()

    def __repr__(self) -> str:
        return f"Plan({str(self.file)!r})"

    def path(self, text: str) -> Path:
        """A path of the file, from the file's folder."""
        return (self.file.parent / text).absolute()

    def where(self, text: str, kept: Format) -> Where:
        """Where a table lies that the file calls so."""
        if kept is Format.ICEBERG and self.pipeline.catalog:
            return CatalogEntry(text, redacted(self.pipeline.catalog.uri), self.catalog, self.storage)
        return self.store(text) if is_url(text) else self.path(text)

    def shown(self, text: str, kept: Format) -> str:
        """The location of a table as people are shown it."""
        where = self.where(text, kept)
        return (
            where.identifier
            if isinstance(where, CatalogEntry)
            else where.uri
            if isinstance(where, Store)
            else str(where)
        )

    def store(self, url: str) -> Store:
        return Store(plain_url(url), self.storage)

    def secrets(self) -> tuple[str, ...]:
        """What must not stand in any text: what [storage] and [catalog] hold, and parts of it."""
        own = dict(self.catalog)
        credential = own.get("credential", "")
        found = [*self.storage.secrets(), own.get("token", ""), credential, credential.partition(":")[2]]
        found += [
            unquote(urlsplit(own.get("uri", "")).password or ""),
            *(self.pipeline.catalog.settings.values() if self.pipeline.catalog else ()),
        ]
        return tuple(sorted({text for text in found if text}, key=len, reverse=True))

    def state(self, step: str) -> Path:
        """The folder of a step's checkpoint and of what it has under way."""
        return self.path(self.pipeline.folder) / step

    @property
    def name(self) -> str:
        return self.pipeline.name or self.file.stem

    def connection(self) -> dict[str, str]:
        """The options that say how the broker is reached, for `format("stomp")`."""
        pipeline = self.pipeline
        given = {
            "url": self.url, "login": pipeline.login, "passcode": self.passcode, "virtualHost": pipeline.virtual_host,
            "keyStorePassword": self.key_password, "reconnectTimeout": str(pipeline.reconnect_timeout),
            "verifyHost": None if pipeline.verify_host is None else str(pipeline.verify_host).lower(),
        }  # fmt: skip
        files = {
            "trustStorePath": pipeline.trust_store_path,
            "keyStorePath": pipeline.key_store_path,
            "keyPath": pipeline.key_path,
        }
        given |= {name: str(self.path(path)) if path else None for name, path in files.items()}
        return {name: value for name, value in given.items() if value is not None}

    def target(self) -> Target:
        """Raises UsageError naming what is wrong about the url or the TLS keys."""
        return target_of(Given(self.connection()))

    def stream_options(self, step: Stream, source: ArchiveTable | SourceTable, group: str) -> dict[str, str]:
        """The options of one source of a stream."""
        options = {
            **self.connection(), "destination": ",".join(source.destinations), "group": source.group or group,
            "startingOffsets": source.starting, "failOnDataLoss": str(step.fail_on_data_loss).lower(),
            "includeHeaders": str(source.include_headers).lower(),
        }  # fmt: skip
        numbers = {
            "maxRowsPerTrigger": step.max_rows, "maxBytesPerTrigger": step.max_bytes, "minRowsPerTrigger": step.min_rows,
            "maxTriggerDelay": None if step.max_trigger_delay is None else round(step.max_trigger_delay * 1000),
            "numPartitions": step.num_partitions, "minPartitions": step.min_partitions,
            "maxRecordsPerPartition": step.max_records_per_partition,
        }  # fmt: skip
        options |= {name: str(number) for name, number in numbers.items() if number is not None}
        options |= _starting(source)
        decoding = {
            "schema": source.schema,
            "columnNameOfCorruptRecord": source.column_name_of_corrupt_record,
        }
        decoding |= {
            "bodyFormat": source.body_format and source.body_format.value,
            "mode": source.mode and source.mode.value.upper(),
        }
        options |= {name: value for name, value in decoding.items() if value is not None}
        if source.selector:
            options["selector"] = source.selector
        return options

    def table_of(self, step: ReplayTable) -> tuple[str, Format]:
        """Which table a replay reads, as the file calls it."""
        if step.archive:
            archive = self.pipeline.archive(step.archive)
            return archive.table, archive.format
        if not step.table:
            raise UsageError("bad-argument", f"replay {step.name!r} names neither an archive nor a table")
        return step.table, step.format


def read_plan(file: Path, environ: dict[str, str]) -> Plan:
    """The pipeline of a file; not checked beyond its keys. Raises ConfigError that names file, line and key."""
    pipeline, origins = read_file(file, Pipeline, PAGE)
    url = pipeline.url or environ.get("STOMPBOX_URL") or DEFAULT_URL
    passcode = _passcode_of(pipeline, origins, file) or environ.get("STOMPBOX_PASSCODE")
    key_password = pipeline.key_store_password or environ.get("STOMPBOX_KEY_STORE_PASSWORD")
    return Plan(
        pipeline,
        origins,
        file,
        url,
        passcode,
        key_password,
        _storage(pipeline.storage, environ),
        _catalog(pipeline.catalog, environ),
    )


def _storage(table: StorageTable, environ: dict[str, str]) -> Storage:
    """A key, its secret and its token belong together: what the file has of them, or what the environment has."""
    key: str | None
    if table.access_key_id:
        key, secret, token = table.access_key_id, table.secret_access_key, table.session_token
    else:
        key, secret, token = (
            environ.get(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        )
    endpoint = table.endpoint or environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or ""
    region = table.region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or ""
    path_style = bool(endpoint) if table.path_style is None else table.path_style
    google = Google(
        table.google.endpoint or "", table.google.anonymous, environ.get("GOOGLE_APPLICATION_CREDENTIALS", "")
    )
    return Storage(
        endpoint,
        region,
        key or "",
        secret or "",
        token or "",
        path_style,
        google,
        _azure(table.azure, environ),
    )


def _azure(table: AzureTable, environ: dict[str, str]) -> Azure:
    """What authenticates is what the file has of it, or what the environment has."""
    names = {
        "account_key": "AZURE_STORAGE_ACCOUNT_KEY", "sas_token": "AZURE_STORAGE_SAS_TOKEN", "tenant_id": "AZURE_TENANT_ID",
        "client_id": "AZURE_CLIENT_ID", "client_secret": "AZURE_CLIENT_SECRET",
    }  # fmt: skip
    given = {name: getattr(table, name) or "" for name in names}
    if not any(given.values()):
        given = {name: environ.get(variable, "") for name, variable in names.items()}
        given["sas_token"] = "" if given["account_key"] else given["sas_token"]
    account = table.account_name or environ.get("AZURE_STORAGE_ACCOUNT_NAME") or ""
    return Azure(account, endpoint=table.endpoint or "", **given)


def _catalog(table: CatalogTable | None, environ: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """The settings of a catalogue as pyiceberg takes them."""
    if table is None:
        return ()
    given = {
        **table.settings, "type": table.type.value, "uri": table.uri, "warehouse": table.warehouse,
        "credential": table.credential or environ.get("STOMPBOX_CATALOG_CREDENTIAL"),
        "token": table.token or environ.get("STOMPBOX_CATALOG_TOKEN"), "scope": table.scope,
    }  # fmt: skip
    if table.type is CatalogType.REST and given["credential"]:
        # Iceberg's catalogues answered there before servers of their own did
        given["oauth2-server-uri"] = table.oauth2_server_uri or f"{table.uri.rstrip('/')}/v1/oauth/tokens"
    return tuple((name, value) for name, value in given.items() if value)


def _starting(source: ArchiveTable | SourceTable) -> dict[str, str]:
    """Where a new group begins, as a time."""
    strategy, times = source.starting_offsets_by_timestamp_strategy, source.starting_offsets_by_timestamp
    given = {
        "startingTimestamp": source.starting_timestamp, "startingOffsetsByTimestamp": json.dumps(times) if times else None,
        "startingOffsetsByTimestampStrategy": strategy and strategy.value,
    }  # fmt: skip
    return {name: value for name, value in given.items() if value is not None}


def _passcode_of(pipeline: Pipeline, origins: Origins, file: Path) -> str | None:
    if pipeline.passcode_file is None:
        return pipeline.passcode
    if pipeline.passcode is not None:
        origins.refuse(
            ("passcode-file",), "there is a passcode as well; one of them is enough", "config-conflict"
        )
    path = file.parent / pipeline.passcode_file
    try:
        first = path.read_text("utf-8").partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as fault:
        origins.refuse(
            ("passcode-file",),
            f"{path} cannot be read: {getattr(fault, 'strerror', None) or 'it is no text'}",
        )
    if not first:
        origins.refuse(("passcode-file",), f"the first line of {path} is empty")
    return first


def keys_of_options() -> dict[str, str]:
    """Which key of the file stands behind an option of the data source, for refusals."""
    special = {
        "destination": "destinations", "startingOffsets": "starting", "maxRowsPerTrigger": "max-rows", "maxBytesPerTrigger": "max-bytes",
        "minRowsPerTrigger": "min-rows",
    }  # fmt: skip
    return {
        name: special.get(name) or "".join(f"-{c.lower()}" if c.isupper() else c for c in name)
        for name in OPTIONS
    }
