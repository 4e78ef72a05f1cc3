"""What each library is told of a store, and what is said on a machine that cannot reach one. Tables in stores are test_stores.py's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from stompbox.errors import UsageError
from stompbox.pipelines.faults import first_line
from stompbox.pipelines.locations import CatalogEntry, path_of
from stompbox.pipelines.storage import Azure, Google, Service, Storage

ACCOUNT = "abfs://lake@shop.dfs.core.windows.net/orders"
EMULATOR = "http://127.0.0.1:10000"


@pytest.mark.parametrize(
    ("storage", "url", "told"),
    [
        (Storage(google=Google()), "gs://lake/orders", {}),
        (
            Storage("http://s3", google=Google("http://127.0.0.1:4443", credentials="/key.json")), "gs://lake/orders",
            {"google_base_url": "http://127.0.0.1:4443", "google_application_credentials": "/key.json", "allow_http": "true"},
        ),
        (
            Storage(azure=Azure("other", account_key="key")), ACCOUNT,
            {"azure_storage_account_name": "shop", "azure_storage_account_key": "key"},
        ),
        (
            Storage(azure=Azure("shop", sas_token="token", endpoint=EMULATOR)), "abfs://lake/orders",
            {"azure_storage_account_name": "shop", "azure_storage_sas_token": "token", "azure_storage_endpoint": f"{EMULATOR}/shop",
             "allow_http": "true"},
        ),
        (
            Storage(azure=Azure("", "", "", "t", "c", "s")), ACCOUNT,
            {"azure_storage_account_name": "shop", "azure_storage_tenant_id": "t", "azure_storage_client_id": "c",
             "azure_storage_client_secret": "s"},
        ),
        (Storage("http://s3", "eu", "key", "secret"), "hdfs://names:8020/lake", {}),
    ],
)  # fmt: skip
def test_delta_is_told_what_the_store_of_a_url_needs(
    storage: Storage, url: str, told: dict[str, str]
) -> None:
    assert storage.at(url).delta() == told


def test_iceberg_is_told_of_all_and_its_catalogue_knows_better() -> None:
    storage = Storage(
        "http://s3", "eu", "key", "secret", azure=Azure("shop", account_key="key", endpoint=EMULATOR)
    )
    told = storage.iceberg()
    assert (told["s3.endpoint"], told["adls.account-name"], told["adls.account-key"]) == (
        "http://s3",
        "shop",
        "key",
    )
    assert (told["adls.blob-storage-authority"], told["adls.dfs-storage-scheme"]) == (
        "127.0.0.1:10000",
        "http",
    )
    assert storage.with_iceberg({}) == storage
    lent = {
        "gcs.oauth2.token": "lent",
        "gcs.oauth2.token-expires-at": "1800000000000",
        "adls.account-key": "",
        "adls.sas-token": "lent",
    }
    known = storage.with_iceberg(lent)
    assert (known.google.token, known.google.expires) == ("lent", 1_800_000_000_000)
    assert (known.azure.account, known.azure.account_key, known.azure.sas_token, known.secret_key) == (
        "shop",
        "",
        "lent",
        "secret",
    )


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("s3://lake/orders", "s3"),
        ("gs://lake/orders", "gcs"),
        (ACCOUNT, "abfs"),
        ("abfs://lake/orders", "abfs"),
    ],
)
def test_arrow_has_a_file_system_for_each(url: str, kind: str) -> None:
    """Made without a word to the store, once for each process."""
    storage = Storage(
        access_key="key",
        secret_key="secret",
        google=Google(EMULATOR, is_anonymous=True),
        azure=Azure("shop", "a2V5"),
    )
    found = storage.at(url).filesystem()
    assert found.type_name == kind and storage.at(url).filesystem() is found
    assert str(path_of(url)) == "lake/orders"


def test_a_machine_without_hadoop_is_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(
        UsageError, match=r"hdfs://names:8020 needs Hadoop's client on each machine: libhdfs"
    ) as caught:
        Storage().at("hdfs://names:8020/lake").filesystem()
    assert caught.value.code == "missing-package" and "\n" not in caught.value.message
    assert str(path_of("hdfs://names:8020/lake/orders")) == "/lake/orders"


def test_an_arrow_without_a_file_system_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: Azure) -> Any:
        raise ImportError("not built with AzureFileSystem")

    monkeypatch.setattr(Azure, "filesystem", missing)
    with pytest.raises(
        UsageError,
        match=r"abfs://container@account.* needs a pyarrow with that file system: not built with Azure",
    ):
        Storage(azure=Azure("nobody-has-this")).at("abfs://lake/x").filesystem()


GOOGLE_REFUSES = """Generic GCS error
          \x1b[31m↳\x1b[0m Error performing token request
           \x1b[31m↳\x1b[0m Error performing GET http://metadata/token in 5 ms - Server returned 403."""


@pytest.mark.parametrize(
    ("storage", "url", "asked"),
    [
        (Storage(), "gs://lake/o", "; the machine's service account is asked, as GOOGLE_APPLICATION_CREDENTIALS names no file"),
        (Storage(google=Google(is_anonymous=True)), "gs://lake/o", ""),
        (Storage(), "s3://lake/o", "; the machine's profile or role is asked, as neither access-key-id and secret-access-key of "
         "[storage] nor AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are given"),
        (Storage(access_key="key", secret_key="secret"), "s3://lake/o", ""),
        (Storage(access_key="key"), ACCOUNT, "; the machine's identity is asked, as [storage.azure] has none of account-key, sas-token and "
         "client-secret, nor the environment one of AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN and AZURE_CLIENT_SECRET"),
        (Storage(azure=Azure(sas_token="token")), ACCOUNT, ""),
        (Storage(), "hdfs://names/lake", ""),
    ],
)  # fmt: skip
def test_a_store_that_refuses_is_named_with_all_causes_and_who_was_asked(
    storage: Storage, url: str, asked: str
) -> None:
    with pytest.raises(OSError) as caught, storage.at(url).explaining(url):
        raise OSError(GOOGLE_REFUSES)
    said = (
        f"{url}: Generic GCS error: Error performing token request: "
        "Error performing GET http://metadata/token in 5 ms - Server returned 403"
    )
    assert str(caught.value) == first_line(caught.value) == said + asked


def test_causes_without_end_are_cut_but_not_who_was_asked() -> None:
    with (
        pytest.raises(OSError, match=r"x{400,500}…; the machine's service account is asked") as caught,
        Storage().at("gs://lake/o").explaining("gs://lake/o"),
    ):
        raise OSError("x" * 10_000)
    assert len(str(caught.value)) < 700


def test_a_delta_table_in_hadoop_says_what_the_machine_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("deltalake")
    from stompbox.pipelines.locations import Store
    from stompbox.pipelines.settings import Format
    from stompbox.pipelines.tables import open_table

    for name in ("HADOOP_HOME", "ARROW_LIBHDFS_DIR"):
        monkeypatch.delenv(name, raising=False)
    url = "hdfs://other-names:8020/lake"
    with pytest.raises(
        UsageError, match=r"hdfs://other-names:8020 needs Hadoop's client on each machine: libhdfs"
    ):
        open_table(Format.DELTA, Store(url, Storage().at(url))).files()


def test_a_url_of_no_store_is_refused() -> None:
    with pytest.raises(
        UsageError,
        match="ftp://x/y is a URL of no store that pipelines know; known are s3, s3a, gs, abfs, abfss, hdfs",
    ):
        Storage().at("ftp://x/y")
    assert {service.value.partition("://")[0] for service in Service} == {"s3", "gs", "abfs", "hdfs"}


def test_iceberg_in_azure_says_which_package_it_needs() -> None:
    """pyiceberg's way by Arrow takes `container@account` for the name of a container."""
    pytest.importorskip("pyiceberg")
    from pyiceberg.io.pyarrow import PyArrowFileIO

    from stompbox.pipelines.iceberg import IcebergFiles
    from stompbox.pipelines.tables import Retention

    files = IcebergFiles(CatalogEntry("shop.orders", "http://catalogue", (), Storage()), Retention())
    table = SimpleNamespace(location=lambda: ACCOUNT, io=PyArrowFileIO())
    with pytest.raises(
        UsageError, match=r"shop.orders of the catalogue http://catalogue is at abfs://.*: pip install adlfs"
    ):
        files._location(table)
    assert (
        str(
            files._location(SimpleNamespace(location=lambda: ACCOUNT, io=SimpleNamespace(properties={}))).path
        )
        == "lake/orders"
    )
