"""Pipeline files: what is read, and wrong ones as a table of text and refusal. Neither Spark nor a broker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from stompbox.config.fields import fields_of
from stompbox.errors import ConfigError
from stompbox.pipelines.checks import check
from stompbox.pipelines.example import EXAMPLE
from stompbox.pipelines.locations import Store
from stompbox.pipelines.plan import Plan, read_plan
from stompbox.pipelines.settings import (
    KINDS,
    AzureTable,
    CatalogTable,
    Format,
    GoogleTable,
    Pipeline,
    SourceTable,
    SparkTable,
    StorageTable,
)
from stompbox.pipelines.storage import Azure, Google, Storage
from stompbox.spark.options import Given, source_options

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = '[[archive]]\nname = "orders"\ndestinations = ["/queue/orders"]\ntable = "lake"\n'
TRANSFORM = '[[transform]]\nname = "t"\nsql = "SELECT * FROM s"\ndestination = "/queue/x"\n'
SOURCE = '[[transform.source]]\nname = "s"\ndestinations = ["/queue/orders"]\n'


def plan_of(text: str, folder: Path, environ: dict[str, str] | None = None) -> Plan:
    file = folder / "lake.toml"
    file.write_text(text)
    plan = read_plan(file, environ or {})
    check(plan)
    return plan


def test_the_example_is_right_and_has_every_kind_of_step(tmp_path: Path) -> None:
    plan = plan_of(EXAMPLE, tmp_path)
    kinds = [KINDS[type(step)] for step in plan.pipeline.steps]
    assert kinds == ["archive", "transform", "replay", "report", "audit"]


def test_paths_are_relative_to_the_file_and_the_name_is_its(tmp_path: Path) -> None:
    plan = plan_of(ARCHIVE, tmp_path)
    assert (plan.name, plan.path("lake"), plan.state("orders")) == (
        "lake",
        tmp_path / "lake",
        tmp_path / "pipeline-state" / "orders",
    )


def test_sizes_words_and_defaults(tmp_path: Path) -> None:
    step = plan_of(ARCHIVE + 'small-file = "1MiB"\nformat = "PARQUET"\n', tmp_path).pipeline.archives[0]
    assert (step.small_file, step.format, step.trigger, step.compact_files) == (
        1 << 20,
        Format.PARQUET,
        1.0,
        10,
    )


def test_how_bodies_are_decoded_is_said_as_to_the_data_source(tmp_path: Path) -> None:
    keys = 'schema = "n INT, bad STRING"\nbody-format = "csv"\nmode = "DROPMALFORMED"\ncolumn-name-of-corrupt-record = "bad"\n'
    plan = plan_of(ARCHIVE + keys, tmp_path)
    [step] = plan.pipeline.archives
    options = source_options(Given(plan.stream_options(step, step, "group")), streaming=True)
    assert (options.body_format, options.mode, options.corrupt) == ("csv", "DROPMALFORMED", "bad")


def test_how_a_batch_is_dealt_out_is_said_as_to_the_data_source(tmp_path: Path) -> None:
    keys = "min-rows = 500\nmax-trigger-delay = 2.5\nnum-partitions = 8\nmin-partitions = 3\nmax-records-per-partition = 100\n"
    times = 'starting-offsets-by-timestamp = { "orders.eu" = "2026-03-01T00:00:00Z", a = "5" }\n'
    plan = plan_of(ARCHIVE + keys + times + 'starting-offsets-by-timestamp-strategy = "latest"\n', tmp_path)
    [step] = plan.pipeline.archives
    options = source_options(Given(plan.stream_options(step, step, "group")), streaming=True)
    assert (
        options.min_rows,
        options.max_delay,
        options.partitions,
        options.min_partitions,
        options.max_records,
    ) == (500, 2.5, 8, 3, 100)
    assert (options.starting.each, options.starting.must_match) == (
        (("a", 5), ("orders.eu", 1_772_323_200_000)),
        False,
    )
    begun = plan_of(ARCHIVE + 'starting-timestamp = "1772323200000"\n', tmp_path)
    [step] = begun.pipeline.archives
    options = source_options(Given(begun.stream_options(step, step, "group")), streaming=True)
    assert (options.starting.number, options.starting.must_match) == (1_772_323_200_000, True)


STORE = ARCHIVE.replace('"lake"', '"s3a://lake/orders/"') + 'format = "delta"\n'
ENVIRON = {
    "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "geheim", "AWS_REGION": "eu-west-1", "STOMPBOX_CATALOG_CREDENTIAL": "a:geheim",
}  # fmt: skip


def test_where_an_object_store_is_may_come_from_the_environment(tmp_path: Path) -> None:
    plan = plan_of('[storage]\nendpoint = "http://127.0.0.1:9000"\n' + STORE, tmp_path, ENVIRON)
    where = plan.where(plan.pipeline.archives[0].table, Format.DELTA)
    assert isinstance(where, Store) and (where.uri, str(where.path)) == ("s3://lake/orders", "lake/orders")
    assert plan.storage == Storage("http://127.0.0.1:9000", "eu-west-1", "key", "geheim", "", path_style=True)
    own = '[storage]\naccess-key-id = "mine"\nsecret-access-key = "secret"\npath-style = true\nregion = "x"\n'
    assert plan_of(own + STORE, tmp_path, ENVIRON).storage == Storage(
        "", "x", "mine", "secret", "", path_style=True
    )


AZURE = ARCHIVE.replace('"lake"', '"abfss://lake@shop.dfs.core.windows.net/orders"') + 'format = "delta"\n'


@pytest.mark.parametrize(
    ("url", "uri", "path"),
    [
        ("s3a://lake/orders/", "s3://lake/orders", "lake/orders"),
        ("gs://lake/a/b", "gs://lake/a/b", "lake/a/b"),
        (
            "abfss://lake@shop.dfs.core.windows.net/orders",
            "abfs://lake@shop.dfs.core.windows.net/orders",
            "lake/orders",
        ),
        ("hdfs://names:8020/lake/orders", "hdfs://names:8020/lake/orders", "/lake/orders"),
    ],
)
def test_a_url_of_each_store_is_a_place_for_tables(url: str, uri: str, path: str, tmp_path: Path) -> None:
    plan = plan_of(ARCHIVE.replace('"lake"', f'"{url}"') + 'format = "delta"\n', tmp_path)
    where = plan.where(plan.pipeline.archives[0].table, Format.DELTA)
    assert isinstance(where, Store) and (where.uri, str(where.path)) == (uri, path)
    assert where.storage == plan.storage.at(uri) and where.uri_of(where.path / "x") == f"{uri}/x"


def test_who_we_are_in_azure_is_in_the_file_or_in_the_environment(tmp_path: Path) -> None:
    environ = {
        "AZURE_STORAGE_ACCOUNT_NAME": "shop",
        "AZURE_TENANT_ID": "t",
        "AZURE_CLIENT_ID": "c",
        "AZURE_CLIENT_SECRET": "geheim",
    }
    assert plan_of(AZURE, tmp_path, environ).storage.azure == Azure("shop", "", "", "t", "c", "geheim")
    key = plan_of(
        AZURE,
        tmp_path,
        environ | {"AZURE_STORAGE_ACCOUNT_KEY": "geheim-key", "AZURE_STORAGE_SAS_TOKEN": "geheim-sas"},
    )
    assert (key.storage.azure.account_key, key.storage.azure.sas_token) == ("geheim-key", "")
    own = plan_of(
        '[storage.azure]\naccount-name = "mine"\nsas-token = "geheim-own"\n' + AZURE, tmp_path, environ
    )
    assert own.storage.azure == Azure("mine", "", "geheim-own")
    shown = (
        own,
        own.storage,
        own.pipeline.storage,
        own.pipeline.storage.azure,
        own.where("abfs://a@b/c", Format.DELTA),
    )
    assert "geheim" not in repr(shown)
    assert own.secrets() == ("geheim-own",)
    file = {"GOOGLE_APPLICATION_CREDENTIALS": "/key.json"}
    assert plan_of(ARCHIVE, tmp_path, file).storage.google == Google(credentials="/key.json")


def test_what_a_store_and_a_catalogue_are_told_is_not_shown(tmp_path: Path) -> None:
    text = (
        '[catalog]\ntype = "sql"\nuri = "postgresql://me:geheim@db/lake"\nsettings = { "s3.x" = "geheim" }\n'
        + STORE
    )
    plan = plan_of(text, tmp_path, ENVIRON)
    assert dict(plan.catalog)["credential"] == "a:geheim" and set(plan.secrets()) == {"a:geheim", "geheim"}
    table = plan.where("a.b", Format.ICEBERG)
    shown = (plan, plan.pipeline, plan.storage, plan.pipeline.catalog, plan.pipeline.storage, table)
    assert not any("geheim" in repr(each) for each in shown)


@pytest.mark.parametrize(
    ("text", "environ", "url"),
    [
        (ARCHIVE, {}, "stomp://127.0.0.1:61613"),
        (ARCHIVE, {"STOMPBOX_URL": "stomp://elsewhere:1"}, "stomp://elsewhere:1"),
        ('url = "stomp://here:2"\n' + ARCHIVE, {"STOMPBOX_URL": "stomp://elsewhere:1"}, "stomp://here:2"),
    ],
)
def test_where_the_broker_is(text: str, environ: dict[str, str], url: str, tmp_path: Path) -> None:
    assert str(plan_of(text, tmp_path, environ).target()) == url


def test_the_passcode_may_come_from_the_environment_and_is_not_shown(tmp_path: Path) -> None:
    plan = plan_of('login = "lake"\n' + ARCHIVE, tmp_path, {"STOMPBOX_PASSCODE": "geheim"})
    assert (plan.target().login, plan.target().passcode) == ("lake", "geheim")
    assert not any("geheim" in repr(shown) for shown in (plan, plan.pipeline, plan.target()))


def test_the_passcode_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "passcode").write_text("geheim\nand a remark\n")
    plan = plan_of(
        'login = "lake"\npasscode-file = "passcode"\n' + ARCHIVE, tmp_path, {"STOMPBOX_PASSCODE": "other"}
    )
    assert plan.target().passcode == "geheim"
    assert not any("geheim" in repr(shown) for shown in (plan, plan.pipeline, plan.target()))


def test_the_password_of_a_key_may_come_from_the_environment(tmp_path: Path) -> None:
    text = 'url = "stomps://broker"\n' + ARCHIVE
    assert (
        plan_of(text, tmp_path, {"STOMPBOX_KEY_STORE_PASSWORD": "geheim"}).connection()["keyStorePassword"]
        == "geheim"
    )


@pytest.mark.parametrize(
    ("text", "line", "refusal"),
    [
        ("name = 1\n", 1, "name: expected a text, not 1"),
        ("", 0, "there is no step"),
        ("[[archiv]]\n", 1, "archiv: unknown key; the nearest known name is 'archive'"),
        (
            ARCHIVE + 'destination = "x"\n',
            5,
            "archive[0].destination: unknown key; the nearest known name is 'destinations'",
        ),
        (ARCHIVE + "max-row = 5\n", 5, "the nearest known name is 'max-rows'"),
        (ARCHIVE + "zzz = 5\n", 5, "zzz: unknown key; docs/pipelines.md lists all names"),
        (
            ARCHIVE + 'trigger = "10 s"\n',
            5,
            "archive[0].trigger: expected a number of at least 0 (s), not '10 s'",
        ),
        (ARCHIVE + 'format = "delat"\n', 5, "expected one of parquet, delta, iceberg, not 'delat'"),
        (
            ARCHIVE + 'small-file = "much"\n',
            5,
            "archive[0].small-file: expected a whole number of at least 1 (bytes",
        ),
        (ARCHIVE + 'starting = "yesterday"\n', 5, "archive[0].starting: the key 'starting' is 'yesterday'"),
        (ARCHIVE + 'selector = "a = "\n', 5, "archive[0].selector: "),
        (
            'url = "http://x"\n' + ARCHIVE,
            1,
            "url: the key 'url' is 'http://x'; allowed are stomp://host:port",
        ),
        ('key-path = "k.pem"\n' + ARCHIVE, 1, "key-path: the key 'key-path' is for TLS"),
        ('passcode-file = "none"\n' + ARCHIVE, 1, "none cannot be read: No such file or directory"),
        ('passcode-file = "/dev/null"\n' + ARCHIVE, 1, "passcode-file: the first line of /dev/null is empty"),
        ('passcode = "a"\npasscode-file = "b"\n' + ARCHIVE, 2, "passcode-file: there is a passcode as well"),
        (
            ARCHIVE + 'schema = "n INTEGRAL"\n',
            5,
            "schema: the key 'schema', position 3, field 'n': found 'INTEGRAL'; expected a type",
        ),
        (
            ARCHIVE + 'schema = "n INT, `Date` DATE"\n',
            5,
            "the key 'schema' names the column 'Date', which is there already",
        ),
        (ARCHIVE + 'mode = "failfast"\n', 5, "archive[0].mode: the key 'mode' needs the key 'schema'"),
        (
            ARCHIVE + 'body-format = "csv"\n',
            5,
            "archive[0].body-format: the key 'body-format' needs the key 'schema'",
        ),
        (
            ARCHIVE + 'schema = "n INT"\nmode = "strict"\n',
            6,
            "archive[0].mode: expected one of permissive, dropmalformed, failfast",
        ),
        (
            ARCHIVE + 'column-name-of-corrupt-record = "bad"\n',
            5,
            "the key 'column-name-of-corrupt-record' needs the key 'schema'",
        ),
        (
            TRANSFORM + SOURCE + '[[transform.source]]\nname = "t"\ntable = "t"\nmode = "failfast"\n',
            11,
            "mode: is for sources with dest",
        ),
        ('[[archive]]\nname = "a"\ntable = "t"\n', 1, "archive[0]: the key 'destinations' is missing"),
        (
            '[[archive]]\nname = "../a"\ntable = "t"\ndestinations = ["x"]\n',
            2,
            "archive[0].name: '../a' cannot name a folder",
        ),
        (
            '[[archive]]\nname = "a"\ntable = "t"\ndestinations = []\n',
            4,
            "archive[0].destinations: expected at least one destination",
        ),
        (ARCHIVE + ARCHIVE, 6, "archive[1].name: 'orders' is the name of another step"),
        (
            ARCHIVE + ARCHIVE.replace('"orders"', '"again"', 1),
            8,
            "archive[1].table: 'lake' is the table of step 'orders' already",
        ),
        (
            ARCHIVE.replace('"lake"', '"s3a://lake/orders"'),
            4,
            'which has no rename for the log of format parquet; take format = "delta"',
        ),
        (
            ARCHIVE.replace('"lake"', '"s3://lake/o"') + 'format = "iceberg"\n',
            4,
            "where an Iceberg table needs a [catalog]",
        ),
        (
            ARCHIVE.replace('"lake"', '"s3://key:geheim@lake/o"') + 'format = "delta"\n',
            4,
            "keys do not belong into a URL; [storage] has",
        ),
        (
            ARCHIVE.replace('"lake"', '"s3://lake"') + 'format = "delta"\n',
            4,
            "'s3://lake' must name a bucket and a path in it",
        ),
        (
            ARCHIVE.replace('"lake"', '"s3://Lake/o"') + 'format = "delta"\n',
            4,
            "s3://bucket/path; names are of a-z, 0-9, dots and hyphens, two at least",
        ),
        (
            ARCHIVE.replace('"lake"', '"s3://lake/o"') + 'format = "delta"\nwriter = "java"\n',
            6,
            "java writes to folders; to object stores",
        ),
        (
            'folder = "s3://lake/state"\n' + ARCHIVE,
            1,
            "folder: 's3://lake/state' is a URL; expected a folder of this machine",
        ),
        ('folder = "file:///tmp/state"\n' + ARCHIVE, 1, "folder: 'file:///tmp/state' is a URL"),
        (
            TRANSFORM + 'table = "ftp://c/t"\n' + SOURCE,
            5,
            "is a URL of no store; expected s3://bucket/path, gs://bucket/path, abfs:",
        ),
        (
            TRANSFORM + 'table = "abfs://c@a/t"\n' + SOURCE,
            5,
            "must name a container, its account and a path in it: abfs:",
        ),
        (
            TRANSFORM + 'table = "abfs://cc/t"\nformat = "delta"\n' + SOURCE,
            5,
            "names no account, and [storage.azure] has no account-name",
        ),
        (
            TRANSFORM + SOURCE + '[[transform.source]]\nname = "t"\ntable = "gs://t"\n',
            10,
            "'gs://t' must name a bucket and a path",
        ),
        (
            TRANSFORM + 'table = "gs://k:geheim@b/t"\n' + SOURCE,
            5,
            "keys do not belong into a URL; it takes those of the machine",
        ),
        (
            TRANSFORM + 'table = "hdfs://n:8020/t"\n' + SOURCE,
            5,
            "'hdfs://n:8020/t' is on HDFS, which has no lock for the log",
        ),
        (
            '[storage.google]\nendpoint = "host"\n' + ARCHIVE,
            2,
            "storage.google.endpoint: 'host' is no endpoint; expected",
        ),
        (
            '[storage.azure]\nendpoint = "host"\n' + ARCHIVE,
            2,
            "storage.azure.endpoint: 'host' is no endpoint; expected",
        ),
        (
            '[storage.azure]\nclient-id = "a"\n' + ARCHIVE,
            1,
            "storage.azure: tenant-id, client-id and client-secret are given together",
        ),
        (
            '[storage.azure]\naccount-key = "a"\nsas-token = "b"\n' + ARCHIVE,
            1,
            "one of account-key, sas-token and client-secret says who",
        ),
        (
            '[[replay]]\nname = "r"\ntable = "s3://lake/t"\n',
            3,
            "replay[0].table: 's3://lake/t' is in an object store, which has no rename",
        ),
        (
            ARCHIVE + '[[report]]\nname = "r"\narchives = ["orders"]\noutput = "hdfs://r"\n',
            8,
            "'hdfs://r' must name a host",
        ),
        (
            ARCHIVE + '[[audit]]\nname = "r"\narchive = "orders"\nsent = "http://r.csv"\n',
            8,
            "audit[0].sent: 'http://r.csv' is a URL of no",
        ),
        (
            '[storage]\naccess-key-id = "a"\n' + ARCHIVE,
            1,
            "storage: access-key-id and secret-access-key are given together, or neither",
        ),
        (
            '[storage]\nendpoint = "127.0.0.1:9000"\n' + ARCHIVE,
            2,
            "'127.0.0.1:9000' is no endpoint; expected https://host:port",
        ),
        (
            '[storage]\nendpoint = "http://me:geheim@host"\n' + ARCHIVE,
            2,
            "'http://***@host' is no endpoint; expected https://host:port",
        ),
        ('[catalog]\nuri = "lake"\n' + ARCHIVE, 2, "catalog.uri: is no URL; expected https://host/path"),
        ('[catalog]\nwarehouse = "lake"\n' + ARCHIVE, 1, "catalog: the key 'uri' is missing"),
        (
            '[catalog]\nuri = "http://c"\ntype = "hive"\n' + ARCHIVE,
            3,
            "catalog.type: expected one of rest, sql, not 'hive'",
        ),
        (
            '[catalog]\nuri = "http://c"\n' + ARCHIVE + 'format = "iceberg"\n',
            6,
            "'lake' is no name in the catalogue of this file",
        ),
        (
            ARCHIVE + "min-rows = 0\n",
            5,
            "archive[0].min-rows: expected a whole number of at least 1 (rows), not 0",
        ),
        (
            ARCHIVE + "min-rows = 2000000\n",
            5,
            "min-rows: the key 'min-rows' is 2000000, more than the key 'max-rows' allows, 1000000",
        ),
        (
            ARCHIVE + "max-trigger-delay = 60\n",
            5,
            "the key 'max-trigger-delay' needs the key 'min-rows': rows that must wait before there",
        ),
        (
            ARCHIVE + "num-partitions = 2\nmin-partitions = 4\n",
            6,
            "the key 'min-partitions' is 4, more than the key 'num-partitions'",
        ),
        (
            ARCHIVE + "max-records-per-partition = 0\n",
            5,
            "max-records-per-partition: expected a whole number of at least 1 (rows)",
        ),
        (
            ARCHIVE + 'starting-timestamp = "2026-03-01T00:00:00"\n',
            5,
            "the key 'starting-timestamp' is '2026-03-01T00:00:00', a time",
        ),
        (
            ARCHIVE + 'starting-offsets-by-timestamp = { a = "noon" }\n',
            5,
            "the key 'starting-offsets-by-timestamp' is 'noon'; allowed",
        ),
        (
            ARCHIVE + 'starting-offsets-by-timestamp-strategy = "latest"\n',
            5,
            "needs the key 'starting-timestamp' or 'starting-offsets",
        ),
        (
            ARCHIVE + 'starting-timestamp = "0"\nstarting-offsets-by-timestamp-strategy = "none"\n',
            6,
            "expected one of error, latest, not",
        ),
        (
            TRANSFORM + SOURCE + '[[transform.source]]\nname = "t"\ntable = "t"\nstarting-timestamp = "0"\n',
            11,
            "is for sources with dest",
        ),
        (TRANSFORM, 1, "the key 'source' is missing"),
        (
            TRANSFORM + 'table = "t"\n' + SOURCE,
            1,
            "transform[0]: a transform has one of destination and table",
        ),
        (
            TRANSFORM + 'partition-by = "day"\n' + SOURCE,
            5,
            "transform[0].partition-by: only a table is partitioned",
        ),
        (
            TRANSFORM.replace("SELECT * FROM s", "DROP TABLE s") + SOURCE,
            3,
            "transform[0].sql: expected one SELECT",
        ),
        (
            TRANSFORM + SOURCE + 'table = "t"\n',
            5,
            "transform[0].source[0]: a source has one of destinations and table",
        ),
        (
            TRANSFORM + SOURCE + SOURCE,
            9,
            "transform[0].source[1].name: 's' must be one word of SQL that no other source has",
        ),
        (
            TRANSFORM + '[[transform.source]]\nname = "s"\ntable = "t"\n',
            1,
            "none of its sources is a destination",
        ),
        ('[[replay]]\nname = "r"\n', 1, "replay[0]: a replay has one of archive and table"),
        (
            '[[replay]]\nname = "r"\narchive = "order"\n' + ARCHIVE,
            3,
            "'order' is no archive step; the nearest known name is 'orders'",
        ),
        (
            '[[replay]]\nname = "r"\ntable = "t"\nfrom = "2026-03-01"\n',
            4,
            "replay[0].from: expected a timestamp with zone",
        ),
        (
            '[[replay]]\nname = "r"\ntable = "t"\nrate = -1\n',
            4,
            "replay[0].rate: expected a number of at least 0 (messages/s), not -1",
        ),
        (
            '[[report]]\nname = "r"\narchives = ["a"]\n',
            3,
            "report[0].archives[0]: 'a' is no archive step; the file has no [[archive]]",
        ),
        (
            '[[audit]]\nname = "r"\narchive = "orders"\nsent = "x.txt"\n' + ARCHIVE,
            4,
            "sent: expected a file .parquet, .csv or .jsonl",
        ),
        (
            ARCHIVE + 'include-headers = false\n[[audit]]\nname = "r"\narchive = "orders"\nsent = "x.csv"\n',
            9,
            "'orders' leaves out",
        ),
        (
            TRANSFORM + SOURCE + '[[transform.source]]\nname = "t"\ntable = "t"\ninclude-headers = false\n',
            11,
            "is for sources with dest",
        ),
        (ARCHIVE + 'writer = "rust"\n', 5, "archive[0].writer: expected one of arrow, java, not 'rust'"),
        ("[spark]\nsettings = { a = 1 }\n" + ARCHIVE, 2, "spark.settings: expected a table of texts"),
        ("[[archive]\n", 1, "not TOML"),
    ],
)
def test_a_wrong_file_is_one_line_with_its_place(text: str, line: int, refusal: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_of(text, tmp_path)
    assert refusal in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'lake.toml'}{f':{line}' if line else ''}: ")
    assert "\n" not in str(caught.value) and "geheim" not in str(caught.value)


STRUCTS = [*KINDS, SourceTable, SparkTable, StorageTable, GoogleTable, AzureTable, CatalogTable, Pipeline]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_key_stands_in_the_documentation(struct: type) -> None:
    page = (ROOT / "docs" / "pipelines.md").read_text()
    missing = [
        key
        for key in fields_of(struct)
        if not re.search(rf"(`|\[\[|\.|^){re.escape(key)}(`|\]\]| =|\b.*`)", page, re.MULTILINE)
    ]
    assert missing == []


def test_a_format_without_its_library_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stompbox.pipelines.checks.find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"format: Delta needs the package deltalake: pip install 'stompbox\[pipelines\]'"
    ):
        plan_of(ARCHIVE + 'format = "delta"\n', tmp_path)
