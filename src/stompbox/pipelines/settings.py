"""The tables and keys of a pipeline file, as structs. The whole is `Pipeline`; `read_pipeline` makes one of a file.

Decides names, types, units and defaults. What spans keys is checks.py. Paths in a file are relative to the file's folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import unquote, urlsplit

from msgspec import Struct, field

from stompbox.config import Origins, read_file
from stompbox.config.fields import Word, key
from stompbox.config.tables import Table
from stompbox.errors import UsageError, redacted
from stompbox.pipelines.locations import CatalogEntry, Store, Where, is_url
from stompbox.pipelines.storage import Azure, Google, Storage, plain_url
from stompbox.spark.options import OPTIONS, Given, Target, target_of

PAGE: Final = "docs/pipelines.md"
DEFAULT_URL: Final = "stomp://127.0.0.1:61613"

Texts = tuple[str, ...]


class Format(Word):
    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


class Writer(Word):
    ARROW = "arrow"
    JAVA = "java"


class TimeStrategy(Word):
    ERROR = "error"
    LATEST = "latest"


class BodyFormat(Word):
    JSON = "json"
    CSV = "csv"


class BodyMode(Word):
    PERMISSIVE = "permissive"
    DROPMALFORMED = "dropmalformed"
    FAILFAST = "failfast"


class Mode(Word):
    APPEND = "append"
    UPDATE = "update"


class CatalogType(Word):
    REST = "rest"
    SQL = "sql"


class Checksum(Word):
    SHA256 = "sha256"
    MD5 = "md5"
    CRC32 = "crc32"


class Stream(Table, frozen=True, kw_only=True):
    """What the steps share that read destinations as they fill."""

    trigger: Annotated[float, key("Time between the begins of two batches; 0: the next at once.", "s", at_least=0)] = 1.0
    max_rows: Annotated[int, key("Rows in one batch, at most; default: the data source's limits.", "rows", at_least=1)] | None = None
    max_bytes: Annotated[int, key("Bytes in one batch, about and at most.", "bytes", at_least=1)] | None = None
    min_rows: Annotated[int, key("Rows that must wait before there is a batch; default: any.", "rows", at_least=1)] | None = None
    max_trigger_delay: (
        Annotated[float, key("Time without a batch after which one is made of fewer than min-rows; default: 15 minutes.", "s", at_least=0)]
        | None
    ) = None
    num_partitions: Annotated[int, key("Tasks, at most, that read at the same time.", "tasks", at_least=1)] | None = None
    min_partitions: Annotated[int, key("Tasks, at least and about, that a batch is dealt out to.", "tasks", at_least=1)] | None = None
    max_records_per_partition: Annotated[int, key("Rows, at most, that one task reads.", "rows", at_least=1)] | None = None
    fail_on_data_loss: Annotated[bool, key("Fail when messages to read are gone; false: go on with those that are there.")] = True


class Written(Stream, frozen=True, kw_only=True):
    """What they share when they may write a table."""

    format: Annotated[Format, key("How the table is kept.")] = Format.PARQUET
    compact: Annotated[bool, key("Rewrite small files into few while the step runs.")] = True
    compact_files: Annotated[int, key("As soon as a day has so many small files.", "files", at_least=2)] = 10
    small_file: Annotated[int, key("A file below this size is small.", "bytes", at_least=1)] = 16 << 20
    target_file: Annotated[int, key("Size of a rewritten file, about.", "bytes", at_least=1)] = 128 << 20
    keep_replaced: Annotated[int, key("How long replaced files stay, for those who began to read before.", "s", at_least=0)] = 600
    keep_snapshots: Annotated[int, key("The newest snapshots of an Iceberg table that stay, at least.", "snapshots", at_least=1)] = 50


class ArchiveTable(Written, frozen=True, kw_only=True):
    name: Annotated[str, key("The step; its checkpoint and its group are named after it.", kind="name")]
    destinations: Annotated[Texts, key("What to read; wildcards `*` and `#`.")]
    table: Annotated[str, key("Folder of the table, partitioned by `date`, the day (UTC) of arrival.", kind="name")]
    group: Annotated[str | None, key("Durable cursor on the broker; default: pipeline and step with a hyphen.", kind="name")] = None
    starting: Annotated[str, key("Where a new group begins: earliest, latest, a number, a timestamp with zone, or JSON.")] = "earliest"
    starting_timestamp: Annotated[str, key("The same as a time: ms since 1970 or a timestamp with zone.")] | None = None
    starting_offsets_by_timestamp: Annotated[dict[str, str], key("The same as a time for each address.")] = field(default_factory=dict)
    starting_offsets_by_timestamp_strategy: (
        Annotated[TimeStrategy, key("Where nothing arrived at or after its time: error, or latest: at the end of the log.")] | None
    ) = None
    schema: Annotated[str | None, key("Columns to decode from the body: `carrier STRING, delay INT`.")] = None
    body_format: Annotated[BodyFormat, key("How such bodies are written; default: json.")] | None = None
    mode: Annotated[BodyMode, key("What becomes of rows whose body `schema` cannot decode.")] | None = None
    column_name_of_corrupt_record: Annotated[str, key("The column of `schema` that gets such a body as text.", kind="name")] | None = None
    selector: Annotated[str | None, key("Only messages that it accepts (SQL-92 on headers).")] = None
    include_headers: Annotated[bool, key("Has the table a column of headers? Without it an archive is faster and smaller.")] = True
    writer: Annotated[Writer, key("Who writes the files: the tasks that read the messages; or Java, which gets the rows.")] = Writer.ARROW


class SourceTable(Table, frozen=True, kw_only=True):
    name: Annotated[str, key("The name of this source in the SQL.", kind="name")]
    destinations: Annotated[Texts, key("What to read as it fills; wildcards `*` and `#`.")] = ()
    table: Annotated[str | None, key("Or: folder of a table, as it is when the step starts.")] = None
    format: Annotated[Format, key("How that table is kept.")] = Format.PARQUET
    group: Annotated[str | None, key("Durable cursor; default: pipeline, step and source with hyphens.", kind="name")] = None
    starting: Annotated[str, key("Where a new group begins.")] = "earliest"
    starting_timestamp: Annotated[str, key("The same as a time: ms since 1970 or a timestamp with zone.")] | None = None
    starting_offsets_by_timestamp: Annotated[dict[str, str], key("The same as a time for each address.")] = field(default_factory=dict)
    starting_offsets_by_timestamp_strategy: (
        Annotated[TimeStrategy, key("Where nothing arrived at or after its time: error, or latest: at the end of the log.")] | None
    ) = None
    schema: Annotated[str | None, key("Columns to decode from the body.")] = None
    body_format: Annotated[BodyFormat, key("How such bodies are written; default: json.")] | None = None
    mode: Annotated[BodyMode, key("What becomes of rows whose body `schema` cannot decode.")] | None = None
    column_name_of_corrupt_record: Annotated[str, key("The column of `schema` that gets such a body as text.", kind="name")] | None = None
    selector: Annotated[str | None, key("Only messages that it accepts.")] = None
    include_headers: Annotated[bool, key("Have its rows a column of headers? Without it they are read faster.")] = True
    watermark: Annotated[str | None, key("How late a message may be: `10 minutes`. Windows end so long after their time.")] = None
    watermark_column: Annotated[str, key("The column whose time counts.")] = "timestamp"


class TransformTable(Written, frozen=True, kw_only=True):
    name: Annotated[str, key("The step; its checkpoint is named after it.", kind="name")]
    sources: Annotated[tuple[SourceTable, ...], key("[[transform.source]]: what the SQL reads.")] = field(name="source")
    sql: Annotated[str, key("One SELECT of Spark SQL.")]
    destination: Annotated[str | None, key("Where the rows go as messages; without `body` column each becomes a JSON object.")] = None
    table: Annotated[str | None, key("Or: folder of the table that they are appended to.")] = None
    partition_by: Annotated[str | None, key("Column that the table is partitioned by.", kind="name")] = None
    mode: Annotated[Mode, key("append: a window once, when it is over; update: again with each change.")] = Mode.APPEND


class ReplayTable(Table, frozen=True, kw_only=True):
    name: Annotated[str, key("The step.", kind="name")]
    archive: Annotated[str | None, key("Step whose table is replayed.")] = None
    table: Annotated[str | None, key("Or: folder of an archive's table.")] = None
    format: Annotated[Format, key("How that table is kept.")] = Format.PARQUET
    destination: Annotated[str | None, key("Where to; default: where each message was sent.")] = None
    rate: Annotated[float, key("Speed; 0: as fast as it goes.", "messages/s", at_least=0)] = 0.0
    addresses: Annotated[Texts, key("Only these addresses; wildcards `*` and `#`. None: all.")] = ()
    start: Annotated[str | None, key("Only what arrived then or later: a timestamp with zone.")] = field(default=None, name="from")
    until: Annotated[str | None, key("Only what arrived before: a timestamp with zone.")] = None


class ReportTable(Table, frozen=True, kw_only=True):
    name: Annotated[str, key("The step.", kind="name")]
    archives: Annotated[Texts, key("Steps whose tables are counted.")]
    dead_letters: Annotated[Texts, key("Destinations of dead letters on the broker.")] = ("/queue/DLQ",)
    output: Annotated[str, key("Folder of the page and its tables.", kind="name")] = "report"


class AuditTable(Table, frozen=True, kw_only=True):
    name: Annotated[str, key("The step.", kind="name")]
    archive: Annotated[str, key("Step whose table is compared with the broker.")]
    sent: Annotated[str | None, key("Record of what was sent: a .parquet, .csv or .jsonl with `id` and `checksum`.")] = None
    id_header: Annotated[str, key("Header that holds a message's `id` of that record.", kind="name")] = "id"
    checksum: Annotated[Checksum, key("How that record's checksums were made, in hexadecimal.")] = Checksum.SHA256
    output: Annotated[str | None, key("Folder for all differences, as Parquet.")] = None


class SparkTable(Table, frozen=True, kw_only=True):
    cores: Annotated[int, key("Processors of the local session; 0: all.", "processors", at_least=0)] = 0
    nice: Annotated[int, key("How much Spark gives way on this machine; 20: it gets what nobody wants.", at_least=0, at_most=20)] = 10
    settings: Annotated[dict[str, str], key("Spark's own settings.")] = field(default_factory=dict)


class GoogleTable(Table, frozen=True, kw_only=True):
    endpoint: Annotated[str | None, key("Where it answers, if it is not Google's: `https://host:port`.")] = None
    anonymous: Annotated[bool, key("Is nobody asked who it is? For a store of tests.")] = False


class AzureTable(Table, frozen=True, kw_only=True):
    account_name: Annotated[str | None, key("Default: what the URL names, else AZURE_STORAGE_ACCOUNT_NAME.")] = None
    account_key: Annotated[str | None, key("Default: AZURE_STORAGE_ACCOUNT_KEY, else who the machine is.", kind="secret")] = None
    sas_token: Annotated[str | None, key("Or a token for it; default: AZURE_STORAGE_SAS_TOKEN.", kind="secret")] = None
    tenant_id: Annotated[str | None, key("Or a principal, with client-id and client-secret; default: AZURE_TENANT_ID.")] = None
    client_id: Annotated[str | None, key("Default: AZURE_CLIENT_ID.")] = None
    client_secret: Annotated[str | None, key("Default: AZURE_CLIENT_SECRET.", kind="secret")] = None
    endpoint: Annotated[str | None, key("Where it answers, if it is not Azure: `https://host:port`.")] = None

    def __repr__(self) -> str:
        return f"AzureTable(account_name={self.account_name!r}, endpoint={self.endpoint!r})"


class StorageTable(Table, frozen=True, kw_only=True):
    endpoint: Annotated[
        str | None, key("Where the store answers, if it is not Amazon's: `https://host:port`. Default: AWS_ENDPOINT_URL.")
    ] = None
    region: Annotated[str | None, key("Default: AWS_REGION, AWS_DEFAULT_REGION, us-east-1.")] = None
    access_key_id: Annotated[str | None, key("Default: AWS_ACCESS_KEY_ID, else what the machine's profile or role says.")] = None
    secret_access_key: Annotated[str | None, key("Default: AWS_SECRET_ACCESS_KEY.", kind="secret")] = None
    session_token: Annotated[str | None, key("Default: AWS_SESSION_TOKEN.", kind="secret")] = None
    path_style: Annotated[bool | None, key("Is the bucket in the path of a request, and not in its host? Default: with `endpoint`.")] = None
    google: Annotated[GoogleTable, key("[storage.google]: Google Cloud Storage.")] = GoogleTable()
    azure: Annotated[AzureTable, key("[storage.azure]: Azure's.")] = AzureTable()

    def __repr__(self) -> str:
        return f"StorageTable(endpoint={self.endpoint!r})"


class CatalogTable(Table, frozen=True, kw_only=True):
    type: Annotated[CatalogType, key("rest: by Iceberg's REST protocol; sql: tables of a database.")] = CatalogType.REST
    uri: Annotated[str, key("Where it is: `https://host/path`; of a database SQLAlchemy's URL.", kind="secret")]
    warehouse: Annotated[str | None, key("Which warehouse of it; with sql, where tables are put.")] = None
    credential: Annotated[str | None, key("`id:secret` for OAuth2; default: STOMPBOX_CATALOG_CREDENTIAL.", kind="secret")] = None
    token: Annotated[str | None, key("Or a bearer token; default: STOMPBOX_CATALOG_TOKEN.", kind="secret")] = None
    scope: Annotated[str | None, key("Scope of the OAuth2 token.")] = None
    oauth2_server_uri: Annotated[str | None, key("Who gives that token, if it is not the catalogue.")] = None
    settings: Annotated[dict[str, str], key("Further properties of pyiceberg's.", kind="secret")] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"CatalogTable(type={self.type.value!r}, uri={redacted(self.uri)!r})"


Step = ArchiveTable | TransformTable | ReplayTable | ReportTable | AuditTable
KINDS: Final[dict[type, str]] = {
    ArchiveTable: "archive", TransformTable: "transform", ReplayTable: "replay", ReportTable: "report", AuditTable: "audit",
}  # fmt: skip


class Pipeline(Table, frozen=True, kw_only=True):
    """All of a file."""

    name: Annotated[str, key("The pipeline; default: the file's name.", kind="name")] = ""
    url: Annotated[str | None, key("The broker; default: STOMPBOX_URL, else stomp://127.0.0.1:61613.", kind="secret")] = None
    login: Annotated[str | None, key("User name.")] = None
    passcode: Annotated[str | None, key("Password; default: STOMPBOX_PASSCODE.", kind="secret")] = None
    passcode_file: Annotated[str | None, key("Or: file whose first line it is.", kind="name")] = None
    virtual_host: Annotated[str | None, key("Virtual host; default: the url's host.")] = None
    trust_store_path: Annotated[str | None, key("PEM file of the CAs that may have signed the broker's certificate.")] = None
    key_store_path: Annotated[str | None, key("PEM file of the client's certificate chain.")] = None
    key_path: Annotated[str | None, key("Its key, unless it is in there.")] = None
    key_store_password: Annotated[str | None, key("That key's password; default: STOMPBOX_KEY_STORE_PASSWORD.", kind="secret")] = None
    verify_host: Annotated[bool | None, key("Must the certificate be for the host of the url?")] = None
    reconnect_timeout: Annotated[int, key("How long a broker that is away is waited for.", "ms", at_least=0)] = 30_000
    folder: Annotated[str, key("Folder of checkpoints and of what is under way.", kind="name")] = "pipeline-state"
    spark: Annotated[SparkTable, key("[spark]: the session.")] = SparkTable()
    storage: Annotated[StorageTable, key("[storage]: how object stores are reached.")] = StorageTable()
    catalog: Annotated[CatalogTable, key("[catalog]: of all Iceberg tables of this file.")] | None = None
    archives: Annotated[tuple[ArchiveTable, ...], key("[[archive]]: destinations to a table.")] = field(default=(), name="archive")
    transforms: Annotated[tuple[TransformTable, ...], key("[[transform]]: Spark SQL.")] = field(default=(), name="transform")
    replays: Annotated[tuple[ReplayTable, ...], key("[[replay]]: a table back to a destination.")] = field(default=(), name="replay")
    reports: Annotated[tuple[ReportTable, ...], key("[[report]]: figures per address and hour.")] = field(default=(), name="report")
    audits: Annotated[tuple[AuditTable, ...], key("[[audit]]: what differs.")] = field(default=(), name="audit")

    def __repr__(self) -> str:
        return f"Pipeline(name={self.name!r}, steps={[step.name for step in self.steps]!r})"

    @property
    def steps(self) -> Iterator[Step]:
        yield from self.archives
        yield from self.transforms
        yield from self.replays
        yield from self.reports
        yield from self.audits

    def archive(self, name: str) -> ArchiveTable:
        """The archive step of this name, which checks.py has found to be there."""
        return next(step for step in self.archives if step.name == name)


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
        """The same for people."""
        where = self.where(text, kept)
        return where.identifier if isinstance(where, CatalogEntry) else where.uri if isinstance(where, Store) else str(where)

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
        files = {"trustStorePath": pipeline.trust_store_path, "keyStorePath": pipeline.key_store_path, "keyPath": pipeline.key_path}
        given |= {name: str(self.path(path)) if path else None for name, path in files.items()}
        return {name: value for name, value in given.items() if value is not None}

    def target(self) -> Target:
        """Raises UsageError naming what is wrong about the url or the TLS keys."""
        return target_of(Given(self.connection()))

    def stream_options(self, step: Stream, source: ArchiveTable | SourceTable, group: str) -> dict[str, str]:
        """The options of one streaming source."""
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
        decoding = {"schema": source.schema, "columnNameOfCorruptRecord": source.column_name_of_corrupt_record}
        decoding |= {"bodyFormat": source.body_format and source.body_format.value, "mode": source.mode and source.mode.value.upper()}
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
        pipeline, origins, file, url, passcode, key_password, _storage(pipeline.storage, environ), _catalog(pipeline.catalog, environ)
    )


def _storage(table: StorageTable, environ: dict[str, str]) -> Storage:
    """A key, its secret and its token belong together: what the file has of them, or what the environment has."""
    key: str | None
    if table.access_key_id:
        key, secret, token = table.access_key_id, table.secret_access_key, table.session_token
    else:
        key, secret, token = (environ.get(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"))
    endpoint = table.endpoint or environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or ""
    region = table.region or environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or ""
    path_style = bool(endpoint) if table.path_style is None else table.path_style
    google = Google(table.google.endpoint or "", table.google.anonymous, environ.get("GOOGLE_APPLICATION_CREDENTIALS", ""))
    return Storage(endpoint, region, key or "", secret or "", token or "", path_style, google, _azure(table.azure, environ))


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
    """As pyiceberg takes it."""
    if table is None:
        return ()
    given = {
        **table.settings, "type": table.type.value, "uri": table.uri, "warehouse": table.warehouse,
        "credential": table.credential or environ.get("STOMPBOX_CATALOG_CREDENTIAL"),
        "token": table.token or environ.get("STOMPBOX_CATALOG_TOKEN"), "scope": table.scope,
    }  # fmt: skip
    if table.type is CatalogType.REST and given["credential"]:  # Iceberg's catalogues answered there before servers of their own did
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
        origins.refuse(("passcode-file",), "there is a passcode as well; one of them is enough", "config-conflict")
    path = file.parent / pipeline.passcode_file
    try:
        first = path.read_text("utf-8").partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as fault:
        origins.refuse(("passcode-file",), f"{path} cannot be read: {getattr(fault, 'strerror', None) or 'it is no text'}")
    if not first:
        origins.refuse(("passcode-file",), f"the first line of {path} is empty")
    return first


def keys_of_options() -> dict[str, str]:
    """Which key of the file stands behind an option of the data source, for refusals."""
    special = {
        "destination": "destinations", "startingOffsets": "starting", "maxRowsPerTrigger": "max-rows", "maxBytesPerTrigger": "max-bytes",
        "minRowsPerTrigger": "min-rows",
    }  # fmt: skip
    return {name: special.get(name) or "".join(f"-{c.lower()}" if c.isupper() else c for c in name) for name in OPTIONS}
