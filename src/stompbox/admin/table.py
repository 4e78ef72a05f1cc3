"""Every path of the admin interface: the endpoints of the modules that have some, and what describes them all."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any, Final

from msgspec import Struct

from stompbox.admin import (
    actions,
    administration,
    clients,
    clustering,
    configured,
    defining,
    definitions,
    exporting,
    openapi,
    pages,
    sessions,
    speaking,
)
from stompbox.admin.apirequest import ApiRequest
from stompbox.admin.endpoints import API, Endpoint, reading
from stompbox.admin.responses import html, json


class Index(Struct):
    """The paths that there are."""

    pages: list[str]
    operations: list[str]


@reading(API, Index, "")
async def index(_: ApiRequest) -> object:
    """The paths that there are."""
    reads = [one.path for one in ENDPOINTS if not one.changes and one.path != API]
    return Index(reads, [one.path for one in ENDPOINTS if one.changes])


@reading("openapi.json", dict[str, Any], "")
async def described(_: ApiRequest) -> object:
    """This description, as OpenAPI 3.1."""
    return json(await asyncio.to_thread(_document))


@reading("docs", None, "", media="text/html")
async def shown(_: ApiRequest) -> object:
    """This description, as a page."""
    return html(await asyncio.to_thread(_page))


@cache
def _document() -> dict[str, Any]:
    """Made once, and in a thread: it takes some tens of milliseconds."""
    return openapi.document(ENDPOINTS)


@cache
def _page() -> str:
    return openapi.page(_document())


def _endpoints(module: object) -> list[Endpoint]:
    return [one for one in vars(module).values() if isinstance(one, Endpoint)]


_MODULES: Final = (
    pages, clients, configured, definitions, exporting, actions, defining, speaking, administration, clustering, sessions,
)  # fmt: skip
ENDPOINTS: Final = (index, described, shown, *[one for module in _MODULES for one in _endpoints(module)])
