"""A store like Google's for tests, on a free port of loopback: as much of its two APIs as Arrow and delta-rs ask for.

Arrow speaks the JSON API (resumable uploads, metadata, lists), delta-rs the XML API. Both refuse a write with the precondition that there
is no object (`ifGenerationMatch=0`, `x-goog-if-generation-match: 0`) where there is one. Nobody is asked who it is.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.conftest import ROOT

Answer = tuple[int, dict[str, str], bytes]
Name = tuple[str, str]
NOT_THERE: Answer = (404, {}, b'{"error": {"code": 404, "message": "it is not there"}}')
IS_THERE: Answer = (412, {}, b'{"error": {"code": 412, "message": "it is there"}}')
MATCH = "x-goog-if-generation-match"


@dataclass(frozen=True, slots=True)
class Thing:
    data: bytes
    generation: int
    updated: datetime

    @property
    def headers(self) -> dict[str, str]:
        when = format_datetime(self.updated, usegmt=True)
        return {
            "ETag": f'"{self.generation}"',
            "x-goog-generation": str(self.generation),
            "Last-Modified": when,
        }


@dataclass(slots=True)
class GoogleStore:
    """Objects by bucket and name, and uploads that have begun."""

    things: dict[Name, Thing] = field(default_factory=dict)
    uploads: dict[str, tuple[Name, bytearray, str]] = field(default_factory=dict)
    lock: Any = field(default_factory=Lock)
    numbers: Any = field(default_factory=lambda: count(1))

    def answer(self, method: str, url: str, headers: Any, body: bytes) -> Answer:
        parts = urlsplit(url)
        query = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        path = parts.path.removeprefix("/download")
        with self.lock:
            if path.startswith("/upload/storage/v1/b/"):
                return self._upload(method, path, query, headers, body)
            if path.startswith("/storage/v1/b/"):
                return self._json(method, path.removeprefix("/storage/v1/b/").split("/"), query, headers)
            bucket, _, key = unquote(path).lstrip("/").partition("/")
            return self._xml(method, (bucket, key), query, headers, body)

    def _put(self, name: Name, data: bytes, match: str) -> Thing | None:
        if match == "0" and name in self.things:
            return None
        thing = self.things[name] = Thing(data, next(self.numbers), datetime.now(UTC))
        return thing

    def _under(self, bucket: str, query: dict[str, str]) -> Iterator[tuple[str, Thing]]:
        for (within, key), thing in sorted(self.things.items()):
            if within == bucket and key.startswith(query.get("prefix", "")):
                yield key, thing

    # JSON

    def _json(self, method: str, parts: list[str], query: dict[str, str], headers: Any) -> Answer:
        bucket = parts[0]
        if parts[1:] == []:
            return _told({"kind": "storage#bucket", "id": bucket, "name": bucket})
        if parts[1:] == ["o"]:
            found = [_metadata((bucket, key), thing) for key, thing in self._under(bucket, query)]
            return _told({"kind": "storage#objects", "items": found})
        name = bucket, unquote("/".join(parts[2:]))
        if name not in self.things:
            return NOT_THERE
        if method == "DELETE":
            del self.things[name]
            return 204, {}, b""
        return (
            _part(self.things[name], headers)
            if query.get("alt") == "media"
            else _told(_metadata(name, self.things[name]))
        )

    def _upload(self, method: str, path: str, query: dict[str, str], headers: Any, body: bytes) -> Answer:
        if method == "POST" and query["uploadType"] == "resumable":
            id, bucket = str(next(self.numbers)), path.split("/")[5]
            name = query.get("name") or json.loads(body)["name"]
            self.uploads[id] = (bucket, name), bytearray(), query.get("ifGenerationMatch", "")
            return (
                200,
                {"Location": f"http://{headers['host']}{path}?uploadType=resumable&upload_id={id}"},
                b"{}",
            )
        if method == "POST":
            raise AssertionError(
                f"the store of these tests does not know uploads of type {query['uploadType']}"
            )
        name, held, match = self.uploads[query["upload_id"]]
        held += body
        if re.fullmatch(r"bytes .*/\*", headers["content-range"]):
            return 308, {"Range": f"bytes=0-{len(held) - 1}"} if held else {}, b""
        thing = self._put(name, bytes(held), match)
        return IS_THERE if thing is None else _told(_metadata(name, thing))

    # XML

    def _xml(self, method: str, name: Name, query: dict[str, str], headers: Any, body: bytes) -> Answer:
        if not name[1]:
            return (
                200,
                {"content-type": "application/xml"},
                _listed(self._under(name[0], query), query).encode(),
            )
        if method == "PUT":
            if source := headers.get("x-goog-copy-source"):
                bucket, _, key = unquote(source).lstrip("/").partition("/")
                body = self.things[bucket, key].data
            thing = self._put(name, body, headers.get(MATCH, ""))
            return IS_THERE if thing is None else (200, thing.headers, b"")
        if name not in self.things:
            return NOT_THERE
        if method == "DELETE":
            del self.things[name]
            return 204, {}, b""
        return _part(self.things[name], headers)


def _told(value: object) -> Answer:
    return 200, {"content-type": "application/json"}, json.dumps(value).encode()


def _metadata(name: Name, thing: Thing) -> dict[str, str]:
    when = thing.updated.isoformat().replace("+00:00", "Z")
    return {
        "kind": "storage#object", "id": f"{quote(name[1])}/{thing.generation}", "bucket": name[0], "name": name[1],
        "generation": str(thing.generation), "metageneration": "1", "size": str(len(thing.data)), "timeCreated": when, "updated": when,
        "etag": str(thing.generation), "contentType": "application/octet-stream", "storageClass": "STANDARD",
    }  # fmt: skip


def _part(thing: Thing, headers: Any) -> Answer:
    """What the header Range asks for of it."""
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", headers.get("range", ""))
    if found is None:
        return 200, thing.headers, thing.data
    size = len(thing.data)
    start = int(found[1]) if found[1] else max(0, size - int(found[2]))
    stop = min(size, int(found[2]) + 1) if found[1] and found[2] else size
    if start >= size:
        return 416, {"content-range": f"bytes */{size}"}, b""
    return 206, {**thing.headers, "content-range": f"bytes {start}-{stop - 1}/{size}"}, thing.data[start:stop]


def _listed(found: Iterator[tuple[str, Thing]], query: dict[str, str]) -> str:
    prefix, delimiter, after = (
        query.get("prefix", ""),
        query.get("delimiter", ""),
        query.get("start-after", ""),
    )
    entries, folders = [], dict[str, None]()
    for key, thing in found:
        if key <= after:
            continue
        below, is_deeper, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
        if is_deeper:
            folders[prefix + below + delimiter] = None
            continue
        when = thing.updated.isoformat().replace("+00:00", "Z")
        fields = {
            "Key": escape(key),
            "LastModified": when,
            "ETag": f"&quot;{thing.generation}&quot;",
            "Size": str(len(thing.data)),
        }
        entries.append("".join(f"<{name}>{value}</{name}>" for name, value in fields.items()))
    contents = "".join(f"<Contents>{entry}</Contents>" for entry in entries)
    common = "".join(
        f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in folders
    )
    return f'<?xml version="1.0" encoding="UTF-8"?><ListBucketResult>{contents}{common}</ListBucketResult>'


STORE = GoogleStore()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer goes out at once, and does not wait for what acknowledges its head
    disable_nagle_algorithm = True

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        code, headers, data = STORE.answer(self.command, self.path, self.headers, body)
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        if code != 204:
            self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD" and code != 204:
            self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _handle

    def log_message(self, *_: Any) -> None:
        pass


def main() -> None:
    """Prints its endpoint, and serves until it is ended."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


@contextmanager
def google_store() -> Iterator[str]:
    """Its endpoint; any bucket is there. In a process of its own: delta-rs asks it while no other thread of this one may run."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.pipelines.google"], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
