"""The description of the API: it is of what is there, and what is there is as it says."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import os
import re
from collections.abc import Awaitable, Callable
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from starlette.requests import Request
from starlette.routing import Route

from stompbox.admin import app, table
from stompbox.admin.access import OPEN
from stompbox.admin.apirequest import ApiRequest
from stompbox.admin.endpoints import API, Endpoint, Nothing, changing
from stompbox.admin.openapi import document, page
from stompbox.admin.table import ENDPOINTS
from stompbox.config import AdminTable
from stompbox.errors import Refused
from stompbox.security import User
from tests.admin.asking import ask, post, read
from tests.admin.conftest import PLACES, Start
from tests.conftest import Serve, Served
from tests.system.plain import Plain

EXAMPLES = 5  # of each operation
# a broker that has a fault wherever it looks at an order, and at a configuration that another one may follow
FAULTY = """
from stompbox.admin import actions, definitions
from stompbox.server import definitions as kept, readings

def fault(*_, **__):
    raise RecursionError("a fault of ours")

actions._held = definitions._check = kept.examine = readings.verify = fault
"""


def test_it_is_openapi_and_of_every_endpoint(served: Served) -> None:
    found = read(served.admin, "openapi.json")
    assert found["openapi"].startswith("3.1.")
    paths = {(path, method) for path, methods in found["paths"].items() for method in methods}
    assert paths == {(one.path, one.method.lower()) for one in ENDPOINTS}
    listed = ask(served.admin, API).json
    assert {*listed["pages"], *listed["operations"], API} == set(found["paths"])


def routes_of(built: Any) -> list[Route]:
    return [route for route in built.app.routes if isinstance(route, Route)]


def test_no_route_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the router has is what is described, and the files of the console."""
    monkeypatch.setattr(app, "Metrics", lambda *_: None)
    built = app.build(broker=None, table=AdminTable(), history=None)  # type: ignore[arg-type]
    console = {route.path for route in app.console.routes()}
    assert {route.path for route in routes_of(built)} - console == set(document(ENDPOINTS)["paths"])


def test_every_reference_leads_somewhere() -> None:
    found = document(ENDPOINTS)
    names = set(re.findall(r"#/components/schemas/(\w+)", str(found)))
    assert names <= set(found["components"]["schemas"])
    assert {"Problem", "QueueView", "Purged"} <= names


def test_what_is_open_and_what_needs_a_login() -> None:
    found = document(ENDPOINTS)
    assert found["security"]
    open_ones = {
        path
        for path, methods in found["paths"].items()
        for one in methods.values()
        if one.get("security") == []
    }
    assert open_ones == {"/healthz", "/readyz", "/api/v1/session/start"}
    assert open_ones <= OPEN, "the guard says the same"


class Links(HTMLParser):
    """What a page loads or links to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "iframe", "img", "form"), tag
        self.found += [value or "" for name, value in attrs if name in ("href", "src")]


def test_a_page_shows_it_and_asks_nobody_else(served: Served) -> None:
    answer = ask(served.admin, f"{API}/docs")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    text = answer.body.decode()
    links = Links(text).found
    assert links
    assert all(link.startswith("/") for link in links)
    assert [ask(served.admin, link).status for link in links] == [200] * len(links)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src" not in policy
    for one in ENDPOINTS:
        assert f"<code>{one.method} {one.path}</code>" in text


def test_the_page_shows_text_as_text() -> None:
    described = document(ENDPOINTS)
    described["info"]["description"] = "<script>`<b>`"
    assert "&lt;script&gt;<code>&lt;b&gt;</code>" in page(described)


def test_whatever_is_asked_it_is_answered_as_described(start: Start) -> None:
    """Requests that were made of the description: none of them is a fault of the broker, and every answer is of the form that it says."""
    schemathesis = pytest.importorskip("schemathesis", reason="an extra for development")
    conformance = importlib.import_module("schemathesis.specs.openapi.checks")
    checks = [
        importlib.import_module("schemathesis.checks").not_a_server_error, conformance.status_code_conformance,
        conformance.content_type_conformance, conformance.response_schema_conformance,
    ]  # fmt: skip
    served = start("[admin]\nmax-requests-per-second = -1\n")
    with Plain(served.port) as client:
        client.send("SUBSCRIBE", {"destination": "/queue/0", "id": "1"})
        client.send("SEND", {"destination": "/topic/0"}, b"x")
        client.sync()
        schema = schemathesis.openapi.from_url(f"{served.admin}{API}/openapi.json")
        for found in schema.get_all_operations():
            operation = found.ok()

            @given(case=operation.as_strategy())
            @settings(
                max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            def answered(case: Any) -> None:
                case.call_and_validate(checks=checks)

            answered()
    assert ask(served.admin, "/readyz").status == 200
    assert "internal-fault" not in served.log.read_text()


class Faults:
    """Where a broker would be told that it stops."""

    def __init__(self) -> None:
        self.stops: list[str] = []

    def stop(self, doing: str, _: BaseException) -> None:
        self.stops.append(doing)


def obeyed(do: Callable[[ApiRequest], Awaitable[object]]) -> tuple[str, list[str]]:
    """What an operation that does this raises, and what stops the broker."""
    faults = Faults()
    broker = SimpleNamespace(faults=faults, is_view=False, flush=lambda: None, set_time=lambda: None)
    request = Request(
        {"type": "http", "method": "POST", "path": "/x", "query_string": b"", "headers": [], "client": None},
        receive,
    )
    request.state.user = User("")
    endpoint = changing("x", Nothing, Any, "")(do)
    try:
        asyncio.run(app.Obey(broker, endpoint, None).answer(request))  # type: ignore[arg-type]
    except Exception as error:
        return type(error).__name__, faults.stops
    return "", faults.stops


async def receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b"{}"}


def test_a_fault_stops_the_broker_only_where_something_may_have_changed() -> None:
    async def looking(_: ApiRequest) -> object:
        return {}[0]

    async def changing_something(asked: ApiRequest) -> object:
        asked.begin()
        return {}[0]

    async def refusing(asked: ApiRequest) -> object:
        asked.begin()
        raise Refused("no-such-queue", "it is not there")

    async def well(asked: ApiRequest) -> object:
        asked.begin()
        return {}

    async def without_a_word(_: ApiRequest) -> object:
        return {}

    assert obeyed(looking) == ("KeyError", [])
    assert obeyed(changing_something) == ("KeyError", [f"'{API}/x' was done"])
    assert obeyed(refusing) == ("Refused", [])
    assert obeyed(well) == ("", [])
    assert obeyed(without_a_word) == ("RuntimeError", []), "nobody could say when it changes something"


def called(do: Callable[..., object]) -> set[str]:
    """Names of the attributes that a function uses, and the functions of its own module, and of others of the interface, that it calls."""
    found, seen, waiting = set[str](), {do}, [do]
    while waiting:
        function = inspect.unwrap(waiting.pop())
        found |= set(function.__code__.co_names)
        for name in function.__code__.co_names:
            other = function.__globals__.get(name)
            if (
                inspect.isfunction(other)
                and other.__module__.startswith("stompbox.admin")
                and other not in seen
            ):
                seen.add(other)
                waiting.append(other)
    return found


@pytest.mark.parametrize("one", [one for one in ENDPOINTS if one.changes], ids=lambda one: one.name)
def test_each_operation_says_when_it_begins(one: Endpoint) -> None:
    assert "begin" in called(one.do)


def test_a_fault_while_an_operation_looks_at_its_order_is_an_answer(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the log says more; the broker goes on."""
    (tmp_path / "sitecustomize.py").write_text(FAULTY)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    config = tmp_path / "stompbox.toml"
    config.write_text("memory = true\n")
    served = serve("--config", str(config), *PLACES)
    for path, body in (
        ("queues/purge", {"queue": "q"}),
        ("settings/set", {"match": "x", "settings": {"max-size-bytes": 1}}),
        ("settings/delete", {"match": "x"}),
        ("reload", {}),
    ):
        answer = post(served.admin, path, body)
        assert (answer.status, answer.code) in ((503, "internal-fault"), (409, "not-reloaded")), answer
    assert ask(served.admin, "/readyz").status == 200
    assert served.log.read_text().count("a fault of ours") >= 4


def test_the_description_is_made_once() -> None:
    """It takes tens of milliseconds, and whoever has logged in may ask for it."""
    assert table._document() is table._document()
    assert table._page() is table._page()
