"""How stores are reached that are no folder of this machine: what [storage] says, as Arrow, delta-rs and pyiceberg each take it.

| URL                                                          | service              | keys                                       |
|--------------------------------------------------------------|----------------------|--------------------------------------------|
| s3://bucket/path, s3a://…                                    | Amazon S3, and alike | [storage]                                  |
| gs://bucket/path                                             | Google Cloud Storage | the machine's (application default), or none |
| abfs://container@account.dfs.core.windows.net/path, abfss://… | Azure                | [storage.azure]                            |
| hdfs://host:port/path                                        | Hadoop               | the machine's (HADOOP_CONF_DIR)            |

What is empty the libraries look for themselves: profiles, roles of the machine. Decides what each library is told, and what is missing on
a machine that cannot reach a store.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

from stompbox.errors import UsageError

DEFAULT_REGION: Final = "us-east-1"
# that Arrow goes on asking Google's store after a fault; its own default is 15 minutes
RETRY: Final = timedelta(seconds=60)
AZURE_HOST: Final = ".dfs.core.windows.net"


class Service(Enum):
    """Whose store it is; the value is how one of its URLs looks."""

    S3 = "s3://bucket/path"
    GOOGLE = "gs://bucket/path"
    AZURE = f"abfs://container@account{AZURE_HOST}/path"
    HADOOP = "hdfs://host:port/path"


SERVICES: Final[Mapping[str, Service]] = {
    "s3": Service.S3, "s3a": Service.S3, "gs": Service.GOOGLE, "abfs": Service.AZURE, "abfss": Service.AZURE, "hdfs": Service.HADOOP,
}  # fmt: skip
# what a service is asked to believe where [storage] and the environment have nothing for it, and how to give it something
_ASKED: Final[Mapping[Service, str]] = {
    Service.S3: "the machine's profile or role is asked, as neither access-key-id and secret-access-key of [storage] nor "
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are given",
    Service.GOOGLE: "the machine's service account is asked, as GOOGLE_APPLICATION_CREDENTIALS names no file",
    Service.AZURE: "the machine's identity is asked, as [storage.azure] has none of account-key, sas-token and client-secret, nor the "
    "environment one of AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN and AZURE_CLIENT_SECRET",
}
# how a library of Rust writes the causes of a fault below it: lines with an arrow, which may be coloured
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_CAUSE: Final = re.compile(r"\s*↳\s*(.*\S)\s*")
MOST_SAID: Final = 500  # characters of the causes of a fault
_SAME: Final = {"s3a": "s3", "abfss": "abfs"}  # of which both name one object


def plain_url(url: str) -> str:
    """The URL of the same object with the one scheme that it has here."""
    scheme, _, rest = url.partition("://")
    return f"{_SAME.get(scheme, scheme)}://{rest}"


def arrow_path(url: str) -> str:
    """As Arrow's file systems name it: `bucket/key`, in Hadoop the path alone."""
    parts = urlsplit(url)
    service = SERVICES.get(parts.scheme)
    if service is Service.HADOOP:
        return parts.path
    return (parts.netloc.partition("@")[0] if service is Service.AZURE else parts.netloc) + parts.path


@dataclass(frozen=True, slots=True)
class Google:
    """How Google's storage is reached. `credentials`: the file that GOOGLE_APPLICATION_CREDENTIALS names; `token`, good until `expires`
    (ms): what a catalogue hands out."""

    endpoint: str = ""
    is_anonymous: bool = False
    credentials: str = ""
    token: str = field(default="", repr=False)
    expires: int = 0

    def filesystem(self) -> Any:
        from pyarrow.fs import GcsFileSystem

        parts = urlsplit(self.endpoint)
        return GcsFileSystem(
            anonymous=self.is_anonymous, access_token=self.token or None,
            credential_token_expiration=datetime.fromtimestamp(self.expires / 1000, UTC) if self.token else None,
            scheme=parts.scheme or None, endpoint_override=parts.netloc or None, retry_time_limit=RETRY,
        )  # fmt: skip

    def delta(self) -> dict[str, str]:
        """A commit is a PUT with `x-goog-if-generation-match: 0`, which the store refuses where the version is there."""
        nobody = {
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
            "disable_oauth": True,
            "gcs_base_url": self.endpoint,
        }
        return {
            "google_base_url": self.endpoint, "google_service_account_key": json.dumps(nobody) if self.is_anonymous else "",
            "google_application_credentials": self.credentials, "allow_http": _allows_http(self.endpoint),
        }  # fmt: skip

    def iceberg(self) -> dict[str, str]:
        return {
            "gcs.service.host": self.endpoint, "gcs.oauth2.token": self.token,
            "gcs.oauth2.token-expires-at": str(self.expires) if self.token else "",
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Azure:
    """How Azure is reached; `account` where no URL names it."""

    account: str = ""
    account_key: str = field(default="", repr=False)
    sas_token: str = field(default="", repr=False)
    tenant_id: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    endpoint: str = ""

    def of(self, authority: str) -> Azure:
        """The account that a URL such as `container@account.dfs.core.windows.net` names."""
        host = authority.partition("@")[2]
        return replace(self, account=host.partition(".")[0]) if host else self

    def filesystem(self) -> Any:
        from pyarrow.fs import AzureFileSystem

        return AzureFileSystem(
            self.account, account_key=self.account_key or None, sas_token=self.sas_token or None, tenant_id=self.tenant_id or None,
            client_id=self.client_id or None, client_secret=self.client_secret or None,
            **{name.replace("-", "_"): given for name, given in self._where.items()},
        )  # fmt: skip

    @property
    def _where(self) -> dict[str, str]:
        """Both of its services answer at the endpoint, where there is one."""
        parts = urlsplit(self.endpoint)
        given = {"authority": parts.netloc, "scheme": parts.scheme}
        return {
            f"{kind}-storage-{what}": text for kind in ("blob", "dfs") for what, text in given.items() if text
        }

    def delta(self) -> dict[str, str]:
        """A commit is a PUT with `If-None-Match: *`, which the store refuses where the version is there."""
        return {
            "azure_storage_account_name": self.account, "azure_storage_account_key": self.account_key,
            "azure_storage_sas_token": self.sas_token, "azure_storage_tenant_id": self.tenant_id,
            "azure_storage_client_id": self.client_id, "azure_storage_client_secret": self.client_secret,
            "azure_storage_endpoint": f"{self.endpoint.rstrip('/')}/{self.account}" if self.endpoint else "",
            "allow_http": _allows_http(self.endpoint),
        }  # fmt: skip

    def iceberg(self) -> dict[str, str]:
        return {f"adls.{name}": text for name, text in self._where.items()} | {
            "adls.account-name": self.account, "adls.account-key": self.account_key, "adls.sas-token": self.sas_token,
            "adls.tenant-id": self.tenant_id, "adls.client-id": self.client_id, "adls.client-secret": self.client_secret,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Storage:
    """The table [storage] as a whole, and which service a URL is of (`at`). Its own fields are S3's."""

    endpoint: str = ""
    region: str = ""
    access_key: str = ""
    secret_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    path_style: bool = False
    google: Google = Google()
    azure: Azure = Azure()
    service: Service = Service.S3
    authority: str = ""

    def at(self, url: str) -> Storage:
        """For what this URL names. Raises UsageError for one of another service."""
        parts = urlsplit(url)
        service = SERVICES.get(parts.scheme)
        if service is None:
            raise UsageError(
                "bad-argument",
                f"{url} is a URL of no store that pipelines know; known are {', '.join(SERVICES)}",
            )
        authority = parts.netloc if service is Service.HADOOP else ""
        return replace(self, service=service, authority=authority, azure=self.azure.of(parts.netloc))

    @contextmanager
    def explaining(self, url: str) -> Iterator[None]:
        """A fault of a library that opens this URL says which one it was, all of its causes, and what the store was told of who asks."""
        try:
            yield
        except OSError as fault:
            asked = "" if self._has_credentials() else _ASKED.get(self.service, "")
            said = causes(fault)
            said = said if len(said) <= MOST_SAID else f"{said[:MOST_SAID]}…"
            raise OSError(f"{url}: {said}{f'; {asked}' if asked else ''}") from fault

    def _has_credentials(self) -> bool:
        azure = self.azure
        if self.service is Service.GOOGLE:
            return bool(self.google.is_anonymous or self.google.credentials or self.google.token)
        if self.service is Service.AZURE:
            return bool(azure.account_key or azure.sas_token or azure.client_secret)
        return bool(self.access_key)

    def filesystem(self) -> Any:
        """Arrow's; see `arrow_path`. One for each process. Raises UsageError that names what this machine lacks for it."""
        return _opened(self)

    def delta(self) -> dict[str, str]:
        """The options of a store as delta-rs takes them."""
        own = {
            Service.S3: self._s3_of_delta,
            Service.GOOGLE: self.google.delta,
            Service.AZURE: self.azure.delta,
        }.get(self.service, dict)
        return {name: value for name, value in own().items() if value}

    def _s3_of_delta(self) -> dict[str, str]:
        """A commit is a PUT with `If-None-Match: *`, which the store refuses where the version is there."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint, "AWS_REGION": self.region or DEFAULT_REGION, "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key, "AWS_SESSION_TOKEN": self.session_token, "AWS_CONDITIONAL_PUT": "etag",
            "AWS_ALLOW_HTTP": _allows_http(self.endpoint), "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": str(not self.path_style).lower(),
        }  # fmt: skip

    def iceberg(self) -> dict[str, str]:
        """As pyiceberg takes it, of all services: which one it is, the catalogue says."""
        given = {
            "s3.endpoint": self.endpoint, "s3.region": self.region or DEFAULT_REGION, "s3.access-key-id": self.access_key,
            "s3.secret-access-key": self.secret_key, "s3.session-token": self.session_token,
            "s3.force-virtual-addressing": str(not self.path_style).lower(), **self.google.iceberg(), **self.azure.iceberg(),
        }  # fmt: skip
        return {name: value for name, value in given.items() if value}

    def with_iceberg(self, properties: dict[str, str]) -> Storage:
        """With what a catalogue hands out for one of its tables."""
        own = self.iceberg() | {name: str(value) for name, value in properties.items()}
        google = replace(
            self.google,
            token=own.get("gcs.oauth2.token", ""),
            expires=int(own.get("gcs.oauth2.token-expires-at") or 0),
        )
        google = replace(google, endpoint=own.get("gcs.service.host", ""))
        names = ("account-key", "sas-token", "tenant-id", "client-id", "client-secret")
        given = {name.replace("-", "_"): own.get(f"adls.{name}", "") for name in names}
        azure = replace(self.azure, account=own.get("adls.account-name", ""), **given)
        return Storage(
            own.get("s3.endpoint", ""), own.get("s3.region", ""), own.get("s3.access-key-id", ""), own.get("s3.secret-access-key", ""),
            own.get("s3.session-token", ""), own.get("s3.force-virtual-addressing", "").lower() != "true", google, azure,
        )  # fmt: skip

    def secrets(self) -> tuple[str, ...]:
        azure = self.azure
        return (
            self.secret_key,
            self.session_token,
            self.google.token,
            azure.account_key,
            azure.sas_token,
            azure.client_secret,
        )


def causes(fault: Exception) -> str:
    """What an exception says, with the causes that its library has put into lines below, as one line."""
    first, *lines = _COLOUR.sub("", str(fault)).strip().split("\n")
    said = [first.strip(), *(found[1].rstrip(".") for line in lines if (found := _CAUSE.fullmatch(line)))]
    return ": ".join(dict.fromkeys(part for part in said if part))


def _allows_http(endpoint: str) -> str:
    return "true" if endpoint.startswith("http:") else ""


@cache
def _opened(storage: Storage) -> Any:
    service = storage.service
    try:
        if service is Service.GOOGLE:
            return storage.google.filesystem()
        if service is Service.AZURE:
            return storage.azure.filesystem()
        return _hadoop(storage.authority) if service is Service.HADOOP else _s3(storage)
    except ImportError as fault:  # wheels of some systems, and old ones, lack some
        raise UsageError(
            "missing-package", f"{service.value} needs a pyarrow with that file system: {fault}"
        ) from None


def _s3(storage: Storage) -> Any:
    from pyarrow.fs import S3FileSystem

    parts = urlsplit(storage.endpoint)
    return S3FileSystem(
        access_key=storage.access_key or None, secret_key=storage.secret_key or None, session_token=storage.session_token or None,
        region=storage.region or DEFAULT_REGION, endpoint_override=parts.netloc or None, scheme=parts.scheme or None,
        force_virtual_addressing=not storage.path_style,
    )  # fmt: skip


def _hadoop(authority: str) -> Any:
    from pyarrow.fs import HadoopFileSystem

    try:
        return HadoopFileSystem.from_uri(f"hdfs://{authority}")
    except OSError as fault:
        if "libhdfs" not in str(fault) and "libjvm" not in str(fault):
            raise
        needs = "needs Hadoop's client on each machine: libhdfs (ARROW_LIBHDFS_DIR), Java (JAVA_HOME) and the jars (CLASSPATH)"
        raise UsageError(
            "missing-package", f"hdfs://{authority} {needs}; {str(fault).partition(chr(10))[0]}"
        ) from None
