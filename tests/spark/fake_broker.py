"""A small broker that speaks the request protocol over a real socket, keeps its logs in memory and can be told to fail."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from stompbox.incarnations import incarnations_of
from stompbox.message import Run, Shape
from stompbox.stomp.codec import Decoder, encode
from stompbox.stomp.frames import Frame
from stompbox.stomp.versions import V12
from stompbox.store import chunks

PEM = Path(__file__).parent / "broker.pem"  # self-signed, for 127.0.0.1
ARRIVED = 1_700_000_000_000


def address_of(destination: str) -> str:
    for prefix in ("/queue/", "/topic/"):
        destination = destination.removeprefix(prefix)
    return destination


def is_match(pattern: str, address: str) -> bool:
    """`#` at the end only, which is all that these tests need."""
    return address.startswith(pattern[:-1]) if pattern.endswith("#") else pattern == address


class RequestError(Exception):
    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class FakeLog:
    def __init__(self) -> None:
        self.chunks: list[tuple[int, int, bytes]] = []  # first, count, blob
        self.first = 0
        self.next = 0
        self.incarnations: list[list[str | int]] = []  # none: the broker does not say

    def append(self, runs: Sequence[Run]) -> None:
        first = self.next
        for run in runs:
            run.first = self.next
            self.next = run.stop
        self.chunks.append((first, self.next - first, chunks.encode(runs, first)))

    def trim(self, offset: int) -> None:
        self.chunks = [chunk for chunk in self.chunks if chunk[0] + chunk[1] > offset]
        self.first = offset

    def runs(self) -> list[Run]:
        return [run for first, _, blob in self.chunks for run in chunks.decode(blob, first)]

    def bodies(self) -> list[bytes]:
        return [body for run in self.runs() for body in run.bodies]


class FakeBroker:
    """`faults` maps the name of a request to what happens to the next ones: `drop` closes before, `lose` after it is
    carried out, `refuse` answers with an error."""

    def __init__(self, *, tls: bool = False) -> None:
        self.logs: dict[str, FakeLog] = {}
        self.ended: dict[str, dict[str, object]] = {}
        self.groups: dict[str, tuple[str, dict[str, int]]] = {}
        self.staged: dict[tuple[str, int], dict[tuple[int, int], bytes]] = {}
        self.published: dict[str, int] = {}
        self.requests: list[Frame] = []
        self.logins: list[Frame] = []
        self.faults: dict[str, list[str]] = {}
        self.refuse_login = ""
        self.on_request: Callable[[str, int], object] | None = None  # name, and the port of who asks
        self.fetched: list[bytes] = []  # what fetches were answered with
        self._lock = threading.Lock()
        self._context = None
        if tls:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(PEM)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.connections: list[socket.socket] = []
        self.port = self._listener.getsockname()[1]
        self.url = f"{'stomps' if tls else 'stomp'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def send(
        self,
        destination: str,
        bodies: Sequence[bytes],
        *,
        arrived: int = ARRIVED,
        **columns: Sequence[bytes] | str,
    ) -> None:
        """One chunk of one run. Text is a header, a sequence of bytes a hole."""
        fixed = {name: value for name, value in columns.items() if isinstance(value, str)}
        holes = {name: value for name, value in columns.items() if not isinstance(value, str)}
        shape = Shape({"destination": destination, **fixed}, holes=tuple(holes))
        with self._lock:
            self.logs.setdefault(address_of(destination), FakeLog()).append(
                [Run(shape, bodies, tuple(holes.values()), arrived=arrived)]
            )

    def named(self, request: str) -> list[Frame]:
        return [frame for frame in self.requests if frame.headers["request"] == request]

    def close(self) -> None:
        if not self._thread.is_alive():
            return
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self.connections:
            connection.close()
        self._thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
                self.connections.append(connection)
            decoder = Decoder()
            decoder.version = V12
            decoder.logged_in = True
            while data := connection.recv(1 << 20):
                for frame in decoder.receive(data):
                    assert isinstance(frame, Frame)
                    if not self._take(connection, frame):
                        return
        except OSError:
            return  # the client went away, or close() came
        finally:
            connection.close()

    def _take(self, connection: socket.socket, frame: Frame) -> bool:
        """False closes the connection."""
        if frame.command == "CONNECT":
            self.logins.append(frame)
            if self.refuse_login:
                connection.sendall(
                    encode(Frame("ERROR", {"message": self.refuse_login, "code": "login-refused"}), V12)
                )
                return False
            connection.sendall(encode(Frame("CONNECTED", {"version": "1.2"}), V12))
            return True
        request = frame.headers["request"]
        faults = self.faults.get(request, [])
        fault = faults.pop(0) if faults else ""
        if fault == "drop":
            return False
        if self.on_request is not None:
            self.on_request(request, connection.getpeername()[1])
        with self._lock:
            self.requests.append(frame)
            try:
                if fault == "leave":
                    raise RequestError("shutting-down", "the broker stops")
                if fault == "refuse":
                    raise RequestError("refused", "as the test asked")
                headers, body = getattr(self, "_" + request.replace("-", "_"))(frame.headers, frame.body)
                status = {"status": "ok"}
            except RequestError as refused:
                headers, body, status = (
                    {"code": refused.code, "message": str(refused)},
                    b"",
                    {"status": "error"},
                )
        if fault == "lose":
            return False
        known = {
            "subscription": "stompbox.requests",
            "destination": "stompbox.requests",
            "request-id": frame.headers["request-id"],
        }
        connection.sendall(
            encode(
                Frame("MESSAGE", {**known, **status, **headers, "content-length": str(len(body))}, body), V12
            )
        )
        return True

    def _extent(self, address: str) -> dict[str, object]:
        log = self.logs[address]
        known = {"incarnations": log.incarnations} if log.incarnations else {}
        return {
            "first": log.first,
            "next": log.next,
            "messages": log.next,
            "bytes": sum(len(blob) for *_, blob in log.chunks),
            **known,
        }

    def _matching(self, destinations: str) -> dict[str, FakeLog]:
        patterns = [address_of(name) for name in destinations.split(",")]
        return {
            address: log
            for address, log in self.logs.items()
            if any(is_match(pattern, address) for pattern in patterns)
        }

    def _describe(self, headers: Mapping[str, str], body: bytes) -> tuple[dict[str, str], bytes]:
        wish = {"destinations": headers.get("destinations", ""), **json.loads(body or b"{}")}
        if "addresses" in wish:
            there = {address: self._extent(address) for address in wish["addresses"] if address in self.logs}
            ended = {address: self.ended[address] for address in wish["addresses"] if address in self.ended}
            return {}, json.dumps({"addresses": there, "missing": [], "ended": ended}).encode()
        names = [name for name in wish["destinations"].split(",") if "#" not in name]
        if headers["create"] == "true":
            for name in names:
                self.logs.setdefault(address_of(name), FakeLog())
        missing = [name for name in names if address_of(name) not in self.logs]
        found = list(self._matching(wish["destinations"]))
        after, limit = int(headers.get("continue", 0)), int(headers.get("limit", len(found)))
        more = {"continue": str(after + limit)} if len(found) > after + limit else {}
        addresses = {address: self._extent(address) for address in found[after : after + limit]}
        return {}, json.dumps({"addresses": addresses, "missing": missing, **more}).encode()

    def _fetch(self, headers: Mapping[str, str], _: bytes) -> tuple[dict[str, str], bytes]:
        log = self.logs.get(headers["address"])
        if log is None:
            raise RequestError("no-such-address", f"no address {headers['address']}")
        known = incarnations_of(log.incarnations)
        if not known.holds(headers.get("incarnation", ""), int(headers["stop"])):
            raise RequestError("other-incarnation", f"the log of {headers['address']!r} is another one")
        start, stop, most = int(headers["start"]), int(headers["stop"]), int(headers["max-bytes"])
        body, after = b"", stop
        for first, count, blob in log.chunks:
            if first + count <= start or first >= stop:
                continue
            if body and len(body) + len(blob) > most:
                after = first
                break
            body += struct.pack("<QII", first, count, len(blob)) + blob
        self.fetched.append(body)
        return {"next": str(after), "first": str(log.first), "end": str(log.next)}, body

    def _offset_at(self, headers: Mapping[str, str], _: bytes) -> tuple[dict[str, str], bytes]:
        log = self.logs[headers["address"]]
        found = [run.first for run in log.runs() if run.arrived >= int(headers["timestamp"])]
        return {}, json.dumps({"offset": found[0] if found else log.next}).encode()

    def _groups(self, headers: Mapping[str, str], _: bytes) -> tuple[dict[str, str], bytes]:
        shown = {}
        for name, (patterns, positions) in self.groups.items():
            if headers.get("group", name) == name:
                addresses = {
                    at: {"position": offset, "next": self.logs[at].next}
                    for at, offset in positions.items()
                    if at in self.logs
                }
                shown[name] = {"destinations": patterns.split(","), "addresses": addresses}
        return {}, json.dumps({"groups": shown}).encode()

    def _group_open(self, headers: Mapping[str, str], body: bytes) -> tuple[dict[str, str], bytes]:
        wish = json.loads(body)
        starting = headers.get("starting", "")
        each = {
            address: given if isinstance(given, int) else given[0]
            for address, given in wish.get("starting", {}).items()
        }
        _, positions = self.groups.setdefault(headers["group"], (wish["destinations"], {}))
        for address, log in self._matching(wish["destinations"]).items():
            if headers.get("more") != "true" or address in each:
                first = {"earliest": log.first, "latest": log.next}.get(
                    starting, each.get(address, log.first)
                )
                if starting.startswith("time:"):
                    first = next(
                        (run.first for run in log.runs() if run.arrived >= int(starting[5:])), log.next
                    )
                positions.setdefault(address, first)
        return {}, json.dumps({"positions": positions if headers.get("limit") != "0" else {}}).encode()

    def _group_commit(self, headers: Mapping[str, str], body: bytes) -> tuple[dict[str, str], bytes]:
        positions = self.groups[headers["group"]][1]
        for address, given in json.loads(body).items():
            offset = given if isinstance(given, int) else given[0]
            positions[address] = max(offset, positions.get(address, 0))
        return {}, b""

    def _stage(self, headers: Mapping[str, str], body: bytes) -> tuple[dict[str, str], bytes]:
        place = self.staged.setdefault((headers["sink"], int(headers["batch"])), {})
        place[int(headers["partition"]), int(headers["attempt"])] = body
        return {}, json.dumps({"staged": chunks.head(body).messages}).encode()

    def _publish(self, headers: Mapping[str, str], body: bytes) -> tuple[dict[str, str], bytes]:
        sink, batch = headers["sink"], int(headers["batch"])
        place = self.staged.pop((sink, batch), {})
        if self.published.get(sink, -1) >= batch:
            return {}, json.dumps({"published": 0, "already": True}).encode()
        count = 0
        for partition, attempt in json.loads(body)["attempts"]:
            if (partition, attempt) not in place:
                raise RequestError("not-staged", f"partition {partition}, attempt {attempt}")
            for run in chunks.decode(place[partition, attempt], 0):
                count += len(run)
                self.logs.setdefault(address_of(run.shape.destination), FakeLog()).append([run])
        self.published[sink] = batch
        return {}, json.dumps({"published": count, "already": False}).encode()

    def _discard(self, headers: Mapping[str, str], _: bytes) -> tuple[dict[str, str], bytes]:
        self.staged.pop((headers["sink"], int(headers["batch"])), None)
        return {}, b""

    def _sink_delete(self, headers: Mapping[str, str], _: bytes) -> tuple[dict[str, str], bytes]:
        self.published.pop(headers["sink"], None)
        return {}, b""
