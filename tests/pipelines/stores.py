"""An object store and an Iceberg catalogue for tests, each a server on a free port of loopback.

The store is moto's S3, which refuses a PUT with `If-None-Match: *` of what is there. The catalogue speaks Iceberg's REST protocol, as
much of it as pyiceberg asks for, before tables that a SQLite database knows.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, unquote
from urllib.request import Request, urlopen

KEY, SECRET = "lake-key", "geheim-of-the-store"
CREDENTIAL, TOKEN = "lake:geheim-of-the-catalogue", "token-of-the-catalogue"
BUCKET = "lake"
ISSUED = "urn:ietf:params:oauth:token-type:access_token"


@contextmanager
def object_store() -> Iterator[str]:
    """Its endpoint. The bucket is there, and empty."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stderr is not None
            endpoint = next(
                found[0] for line in server.stderr if (found := re.search(r"http://127\.0\.0\.1:\d+", line))
            )
            # else it waits for a reader of what it says
            Thread(target=server.stderr.read, daemon=True).start()
            urlopen(Request(f"{endpoint}/{BUCKET}", method="PUT")).close()
            yield endpoint
        finally:
            server.terminate()


@dataclass(slots=True)
class RestCatalog:
    """`conflicts`: so many commits are refused as if another writer had been first; `lost`: so many are made, and answered with 500."""

    tables: Any
    uri: str = ""
    conflicts: int = 0
    lost: int = 0
    refused_logins: list[str] = field(default_factory=list)
    lock: Any = field(default_factory=Lock)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        from pyiceberg.exceptions import (
            CommitFailedException,
            NamespaceAlreadyExistsError,
            NoSuchTableError,
            TableAlreadyExistsError,
        )

        parts = [unquote(part) for part in path.partition("?")[0].strip("/").split("/")][1:]
        try:
            with self.lock:
                return 200, self._answer(method, parts, body)
        except NoSuchTableError as fault:
            return 404, _fault(404, "NoSuchTableException", fault)
        except (CommitFailedException, TableAlreadyExistsError, NamespaceAlreadyExistsError) as fault:
            return 409, _fault(409, type(fault).__name__, fault)
        except ConnectionAbortedError as fault:
            return 500, _fault(500, "CommitStateUnknownException", fault)

    def _answer(self, method: str, parts: list[str], body: bytes) -> Any:
        match method, parts:
            case "GET", ["config"]:
                return {"defaults": {}, "overrides": {}}
            case "POST", ["namespaces"]:
                self.tables.create_namespace(tuple(json.loads(body)["namespace"]))
                return json.loads(body)
            case "POST", ["namespaces", space, "tables"]:
                return self._made(space, body)
            case "POST", ["namespaces", space, "tables", name]:
                return self._committed(f"{space}.{name}", body)
            case "GET", ["namespaces", space, "tables", name]:
                return _loaded(self.tables.load_table(f"{space}.{name}"))
        raise AssertionError(f"the catalogue of these tests does not know {method} {parts}")

    def _made(self, space: str, body: bytes) -> Any:
        from pyiceberg.exceptions import TableAlreadyExistsError
        from pyiceberg.schema import Schema

        request = json.loads(body)
        identifier, schema = f"{space}.{request['name']}", Schema.model_validate(request["schema"])
        if self.tables.table_exists(identifier):
            raise TableAlreadyExistsError(identifier)
        return _loaded(
            self.tables._create_staged_table(
                identifier, schema, request.get("location"), properties=request["properties"]
            )
        )

    def _committed(self, identifier: str, body: bytes) -> Any:
        from pyiceberg.exceptions import CommitFailedException
        from pyiceberg.table import CommitTableRequest

        if self.conflicts:
            self.conflicts -= 1
            raise CommitFailedException("another writer was first")
        request = CommitTableRequest.model_validate_json(body)
        named = SimpleNamespace(name=lambda: tuple(identifier.split(".")))
        done = self.tables.commit_table(named, request.requirements, request.updates)
        if self.lost:
            self.lost -= 1
            raise ConnectionAbortedError("nobody knows")
        return json.loads(done.model_dump_json(by_alias=True))


def _loaded(table: Any) -> Any:
    metadata = json.loads(table.metadata.model_dump_json(by_alias=True, exclude_none=True))
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


def _fault(code: int, kind: str, fault: Exception) -> Any:
    return {"error": {"message": str(fault), "type": kind, "code": code}}


@contextmanager
def rest_catalog(folder: Path, endpoint: str) -> Iterator[RestCatalog]:
    """Its tables are in the bucket, below `warehouse`."""
    from pyiceberg.catalog.sql import SqlCatalog

    from stompbox.pipelines.storage import Storage

    storage = Storage(endpoint, "us-east-1", KEY, SECRET, path_style=True).iceberg()
    database = f"sqlite:///{folder / 'catalogue.db'}"
    catalog = RestCatalog(SqlCatalog("rest", uri=database, warehouse=f"s3://{BUCKET}/warehouse", **storage))

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            if self.path.endswith("/oauth/tokens"):
                code, answer = _token(catalog, body)
            elif self.headers.get("authorization") != f"Bearer {TOKEN}":
                code, answer = 401, _fault(401, "NotAuthorizedException", PermissionError("who is it?"))
            else:
                code, answer = catalog.answer(self.command, self.path, body)
            data = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        protocol_version = "HTTP/1.1"
        do_GET = do_POST = do_HEAD = _handle

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever)
    thread.start()
    catalog.uri = f"http://127.0.0.1:{server.server_port}"
    try:
        yield catalog
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        catalog.tables.engine.dispose()


def _token(catalog: RestCatalog, body: bytes) -> tuple[int, Any]:
    given = {name: values[0] for name, values in parse_qs(body.decode()).items()}
    login = f"{given.get('client_id', '')}:{given.get('client_secret', '')}"
    if login != CREDENTIAL:
        catalog.refused_logins.append(login)
        return 401, {"error": "invalid_client", "error_description": f"{login} is nobody here"}
    return 200, {
        "access_token": TOKEN,
        "token_type": "bearer",
        "expires_in": 3600,
        "issued_token_type": ISSUED,
    }
