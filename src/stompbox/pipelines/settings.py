"""The tables and keys of a pipeline file, as structs. The whole is `Pipeline`; plan.py reads one from a file.

Decides names, types, units and defaults. What spans keys is checks.py. Paths in a file are relative to the file's folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

from msgspec import field

from stompbox.config.fields import Word, key
from stompbox.config.tables import Table
from stompbox.errors import redacted

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

    trigger: Annotated[
        float, key("Time between the begins of two batches; 0: the next at once.", "s", at_least=0)
    ] = 1.0
    max_rows: (
        Annotated[
            int, key("Rows in one batch, at most; default: the data source's limits.", "rows", at_least=1)
        ]
        | None
    ) = None
    max_bytes: Annotated[int, key("Bytes in one batch, about and at most.", "bytes", at_least=1)] | None = (
        None
    )
    min_rows: (
        Annotated[int, key("Rows that must wait before there is a batch; default: any.", "rows", at_least=1)]
        | None
    ) = None
    max_trigger_delay: (
        Annotated[
            float,
            key(
                "Time without a batch after which one is made of fewer than min-rows; default: 15 minutes.",
                "s",
                at_least=0,
            ),
        ]
        | None
    ) = None
    num_partitions: (
        Annotated[int, key("Tasks, at most, that read at the same time.", "tasks", at_least=1)] | None
    ) = None
    min_partitions: (
        Annotated[int, key("Tasks, at least and about, that a batch is dealt out to.", "tasks", at_least=1)]
        | None
    ) = None
    max_records_per_partition: (
        Annotated[int, key("Rows, at most, that one task reads.", "rows", at_least=1)] | None
    ) = None
    fail_on_data_loss: Annotated[
        bool, key("Fail when messages to read are gone; false: go on with those that are there.")
    ] = True


class Written(Stream, frozen=True, kw_only=True):
    """What they share when they may write a table."""

    format: Annotated[Format, key("How the table is kept.")] = Format.PARQUET
    compact: Annotated[bool, key("Rewrite small files into few while the step runs.")] = True
    compact_files: Annotated[int, key("As soon as a day has so many small files.", "files", at_least=2)] = 10
    small_file: Annotated[int, key("A file below this size is small.", "bytes", at_least=1)] = 16 << 20
    target_file: Annotated[int, key("Size of a rewritten file, about.", "bytes", at_least=1)] = 128 << 20
    keep_replaced: Annotated[
        int, key("How long replaced files stay, for those who began to read before.", "s", at_least=0)
    ] = 600
    keep_snapshots: Annotated[
        int, key("The newest snapshots of an Iceberg table that stay, at least.", "snapshots", at_least=1)
    ] = 50


class ArchiveTable(Written, frozen=True, kw_only=True):
    name: Annotated[str, key("The step; its checkpoint and its group are named after it.", kind="name")]
    destinations: Annotated[Texts, key("What to read; wildcards `*` and `#`.")]
    table: Annotated[
        str, key("Folder of the table, partitioned by `date`, the day (UTC) of arrival.", kind="name")
    ]
    group: Annotated[
        str | None,
        key("Durable cursor on the broker; default: pipeline and step with a hyphen.", kind="name"),
    ] = None
    starting: Annotated[
        str, key("Where a new group begins: earliest, latest, a number, a timestamp with zone, or JSON.")
    ] = "earliest"
    starting_timestamp: (
        Annotated[str, key("The same as a time: ms since 1970 or a timestamp with zone.")] | None
    ) = None
    starting_offsets_by_timestamp: Annotated[dict[str, str], key("The same as a time for each address.")] = (
        field(default_factory=dict)
    )
    starting_offsets_by_timestamp_strategy: (
        Annotated[
            TimeStrategy,
            key("Where nothing arrived at or after its time: error, or latest: at the end of the log."),
        ]
        | None
    ) = None
    schema: Annotated[str | None, key("Columns to decode from the body: `carrier STRING, delay INT`.")] = None
    body_format: Annotated[BodyFormat, key("How such bodies are written; default: json.")] | None = None
    mode: Annotated[BodyMode, key("What becomes of rows whose body `schema` cannot decode.")] | None = None
    column_name_of_corrupt_record: (
        Annotated[str, key("The column of `schema` that gets such a body as text.", kind="name")] | None
    ) = None
    selector: Annotated[str | None, key("Only messages that it accepts (SQL-92 on headers).")] = None
    include_headers: Annotated[
        bool, key("Has the table a column of headers? Without it an archive is faster and smaller.")
    ] = True
    writer: Annotated[
        Writer, key("Who writes the files: the tasks that read the messages; or Java, which gets the rows.")
    ] = Writer.ARROW


class SourceTable(Table, frozen=True, kw_only=True):
    name: Annotated[str, key("The name of this source in the SQL.", kind="name")]
    destinations: Annotated[Texts, key("What to read as it fills; wildcards `*` and `#`.")] = ()
    table: Annotated[str | None, key("Or: folder of a table, as it is when the step starts.")] = None
    format: Annotated[Format, key("How that table is kept.")] = Format.PARQUET
    group: Annotated[
        str | None, key("Durable cursor; default: pipeline, step and source with hyphens.", kind="name")
    ] = None
    starting: Annotated[str, key("Where a new group begins.")] = "earliest"
    starting_timestamp: (
        Annotated[str, key("The same as a time: ms since 1970 or a timestamp with zone.")] | None
    ) = None
    starting_offsets_by_timestamp: Annotated[dict[str, str], key("The same as a time for each address.")] = (
        field(default_factory=dict)
    )
    starting_offsets_by_timestamp_strategy: (
        Annotated[
            TimeStrategy,
            key("Where nothing arrived at or after its time: error, or latest: at the end of the log."),
        ]
        | None
    ) = None
    schema: Annotated[str | None, key("Columns to decode from the body.")] = None
    body_format: Annotated[BodyFormat, key("How such bodies are written; default: json.")] | None = None
    mode: Annotated[BodyMode, key("What becomes of rows whose body `schema` cannot decode.")] | None = None
    column_name_of_corrupt_record: (
        Annotated[str, key("The column of `schema` that gets such a body as text.", kind="name")] | None
    ) = None
    selector: Annotated[str | None, key("Only messages that it accepts.")] = None
    include_headers: Annotated[
        bool, key("Have its rows a column of headers? Without it they are read faster.")
    ] = True
    watermark: Annotated[
        str | None, key("How late a message may be: `10 minutes`. Windows end so long after their time.")
    ] = None
    watermark_column: Annotated[str, key("The column whose time counts.")] = "timestamp"


class TransformTable(Written, frozen=True, kw_only=True):
    name: Annotated[str, key("The step; its checkpoint is named after it.", kind="name")]
    sources: Annotated[tuple[SourceTable, ...], key("[[transform.source]]: what the SQL reads.")] = field(
        name="source"
    )
    sql: Annotated[str, key("One SELECT of Spark SQL.")]
    destination: Annotated[
        str | None, key("Where the rows go as messages; without `body` column each becomes a JSON object.")
    ] = None
    table: Annotated[str | None, key("Or: folder of the table that they are appended to.")] = None
    partition_by: Annotated[str | None, key("Column that the table is partitioned by.", kind="name")] = None
    mode: Annotated[Mode, key("append: a window once, when it is over; update: again with each change.")] = (
        Mode.APPEND
    )


class ReplayTable(Table, frozen=True, kw_only=True):
    name: Annotated[str, key("The step.", kind="name")]
    archive: Annotated[str | None, key("Step whose table is replayed.")] = None
    table: Annotated[str | None, key("Or: folder of an archive's table.")] = None
    format: Annotated[Format, key("How that table is kept.")] = Format.PARQUET
    destination: Annotated[str | None, key("Where to; default: where each message was sent.")] = None
    rate: Annotated[float, key("Speed; 0: as fast as it goes.", "messages/s", at_least=0)] = 0.0
    addresses: Annotated[Texts, key("Only these addresses; wildcards `*` and `#`. None: all.")] = ()
    start: Annotated[str | None, key("Only what arrived then or later: a timestamp with zone.")] = field(
        default=None, name="from"
    )
    until: Annotated[str | None, key("Only what arrived before: a timestamp with zone.")] = None


class ReportTable(Table, frozen=True, kw_only=True):
    name: Annotated[str, key("The step.", kind="name")]
    archives: Annotated[Texts, key("Steps whose tables are counted.")]
    dead_letters: Annotated[Texts, key("Destinations of dead letters on the broker.")] = ("/queue/DLQ",)
    output: Annotated[str, key("Folder of the page and its tables.", kind="name")] = "report"


class AuditTable(Table, frozen=True, kw_only=True):
    name: Annotated[str, key("The step.", kind="name")]
    archive: Annotated[str, key("Step whose table is compared with the broker.")]
    sent: Annotated[
        str | None, key("Record of what was sent: a .parquet, .csv or .jsonl with `id` and `checksum`.")
    ] = None
    id_header: Annotated[str, key("Header that holds a message's `id` of that record.", kind="name")] = "id"
    checksum: Annotated[Checksum, key("How that record's checksums were made, in hexadecimal.")] = (
        Checksum.SHA256
    )
    output: Annotated[str | None, key("Folder for all differences, as Parquet.")] = None


class SparkTable(Table, frozen=True, kw_only=True):
    cores: Annotated[int, key("Processors of the local session; 0: all.", "processors", at_least=0)] = 0
    nice: Annotated[
        int,
        key(
            "How much Spark gives way on this machine; 20: it gets what nobody wants.", at_least=0, at_most=20
        ),
    ] = 10
    share_classes: Annotated[
        bool,
        key(
            "Keep the classes of Spark as Java has loaded them, some 200 MB in the cache folder, for the next start."
        ),
    ] = True
    settings: Annotated[dict[str, str], key("Spark's own settings.")] = field(default_factory=dict)


class GoogleTable(Table, frozen=True, kw_only=True):
    endpoint: Annotated[str | None, key("Where it answers, if it is not Google's: `https://host:port`.")] = (
        None
    )
    anonymous: Annotated[bool, key("Is nobody asked who it is? For a store of tests.")] = False


class AzureTable(Table, frozen=True, kw_only=True):
    account_name: Annotated[
        str | None, key("Default: what the URL names, else AZURE_STORAGE_ACCOUNT_NAME.")
    ] = None
    account_key: Annotated[
        str | None, key("Default: AZURE_STORAGE_ACCOUNT_KEY, else who the machine is.", kind="secret")
    ] = None
    sas_token: Annotated[
        str | None, key("Or a token for it; default: AZURE_STORAGE_SAS_TOKEN.", kind="secret")
    ] = None
    tenant_id: Annotated[
        str | None, key("Or a principal, with client-id and client-secret; default: AZURE_TENANT_ID.")
    ] = None
    client_id: Annotated[str | None, key("Default: AZURE_CLIENT_ID.")] = None
    client_secret: Annotated[str | None, key("Default: AZURE_CLIENT_SECRET.", kind="secret")] = None
    endpoint: Annotated[str | None, key("Where it answers, if it is not Azure: `https://host:port`.")] = None

    def __repr__(self) -> str:
        return f"AzureTable(account_name={self.account_name!r}, endpoint={self.endpoint!r})"


class StorageTable(Table, frozen=True, kw_only=True):
    endpoint: Annotated[
        str | None,
        key(
            "Where the store answers, if it is not Amazon's: `https://host:port`. Default: AWS_ENDPOINT_URL."
        ),
    ] = None
    region: Annotated[str | None, key("Default: AWS_REGION, AWS_DEFAULT_REGION, us-east-1.")] = None
    access_key_id: Annotated[
        str | None, key("Default: AWS_ACCESS_KEY_ID, else what the machine's profile or role says.")
    ] = None
    secret_access_key: Annotated[str | None, key("Default: AWS_SECRET_ACCESS_KEY.", kind="secret")] = None
    session_token: Annotated[str | None, key("Default: AWS_SESSION_TOKEN.", kind="secret")] = None
    path_style: Annotated[
        bool | None,
        key("Is the bucket in the path of a request, and not in its host? Default: with `endpoint`."),
    ] = None
    google: Annotated[GoogleTable, key("[storage.google]: Google Cloud Storage.")] = GoogleTable()
    azure: Annotated[AzureTable, key("[storage.azure]: Azure's.")] = AzureTable()

    def __repr__(self) -> str:
        return f"StorageTable(endpoint={self.endpoint!r})"


class CatalogTable(Table, frozen=True, kw_only=True):
    type: Annotated[CatalogType, key("rest: by Iceberg's REST protocol; sql: tables of a database.")] = (
        CatalogType.REST
    )
    uri: Annotated[
        str, key("Where it is: `https://host/path`; of a database SQLAlchemy's URL.", kind="secret")
    ]
    warehouse: Annotated[str | None, key("Which warehouse of it; with sql, where tables are put.")] = None
    credential: Annotated[
        str | None, key("`id:secret` for OAuth2; default: STOMPBOX_CATALOG_CREDENTIAL.", kind="secret")
    ] = None
    token: Annotated[
        str | None, key("Or a bearer token; default: STOMPBOX_CATALOG_TOKEN.", kind="secret")
    ] = None
    scope: Annotated[str | None, key("Scope of the OAuth2 token.")] = None
    oauth2_server_uri: Annotated[str | None, key("Who gives that token, if it is not the catalogue.")] = None
    settings: Annotated[dict[str, str], key("Further properties of pyiceberg's.", kind="secret")] = field(
        default_factory=dict
    )

    def __repr__(self) -> str:
        return f"CatalogTable(type={self.type.value!r}, uri={redacted(self.uri)!r})"


Step = ArchiveTable | TransformTable | ReplayTable | ReportTable | AuditTable
KINDS: Final[dict[type, str]] = {
    ArchiveTable: "archive", TransformTable: "transform", ReplayTable: "replay", ReportTable: "report", AuditTable: "audit",
}  # fmt: skip


class Pipeline(Table, frozen=True, kw_only=True):
    """The content of a whole pipeline file."""

    name: Annotated[str, key("The pipeline; default: the file's name.", kind="name")] = ""
    url: Annotated[
        str | None, key("The broker; default: STOMPBOX_URL, else stomp://127.0.0.1:61613.", kind="secret")
    ] = None
    login: Annotated[str | None, key("User name.")] = None
    passcode: Annotated[str | None, key("Password; default: STOMPBOX_PASSCODE.", kind="secret")] = None
    passcode_file: Annotated[str | None, key("Or: file whose first line it is.", kind="name")] = None
    virtual_host: Annotated[str | None, key("Virtual host; default: the url's host.")] = None
    trust_store_path: Annotated[
        str | None, key("PEM file of the CAs that may have signed the broker's certificate.")
    ] = None
    key_store_path: Annotated[str | None, key("PEM file of the client's certificate chain.")] = None
    key_path: Annotated[str | None, key("Its key, unless it is in there.")] = None
    key_store_password: Annotated[
        str | None, key("That key's password; default: STOMPBOX_KEY_STORE_PASSWORD.", kind="secret")
    ] = None
    verify_host: Annotated[bool | None, key("Must the certificate be for the host of the url?")] = None
    reconnect_timeout: Annotated[
        int, key("How long a broker that is away is waited for.", "ms", at_least=0)
    ] = 30_000
    folder: Annotated[str, key("Folder of checkpoints and of what is under way.", kind="name")] = (
        "pipeline-state"
    )
    spark: Annotated[SparkTable, key("[spark]: the session.")] = SparkTable()
    storage: Annotated[StorageTable, key("[storage]: how object stores are reached.")] = StorageTable()
    catalog: Annotated[CatalogTable, key("[catalog]: of all Iceberg tables of this file.")] | None = None
    archives: Annotated[tuple[ArchiveTable, ...], key("[[archive]]: destinations to a table.")] = field(
        default=(), name="archive"
    )
    transforms: Annotated[tuple[TransformTable, ...], key("[[transform]]: Spark SQL.")] = field(
        default=(), name="transform"
    )
    replays: Annotated[tuple[ReplayTable, ...], key("[[replay]]: a table back to a destination.")] = field(
        default=(), name="replay"
    )
    reports: Annotated[tuple[ReportTable, ...], key("[[report]]: figures per address and hour.")] = field(
        default=(), name="report"
    )
    audits: Annotated[tuple[AuditTable, ...], key("[[audit]]: what differs.")] = field(
        default=(), name="audit"
    )

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
