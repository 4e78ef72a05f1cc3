"""The console: a page that asks the API, as files that are sent as they are.

    index.html   the frame; login.html the log-in page
    console.css  how it looks
    console.js   which section is looked at, and when the broker is asked; what it is made of are modules of their own, one for each
                 section (overview, addresses, queues …) and for what they share (elements, tables, charts, dialogs …)
    oldbrowser.js  says so where a browser is older than they need

Decides what a browser lets the page do: load these files, ask this broker, speak STOMP to its listeners, and nothing else. Trusted
types are required and there are none, so no text can become markup or code, whatever a client has called its address.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from stompbox.admin.clients import socket_urls

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src {places}; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
SCRIPTS: Final = (
    "console", "oldbrowser", "login", "addresses", "asking", "changing", "charts", "cluster", "configuration", "connections", "dialogs",
    "elements", "figures", "groups", "messages", "overview", "pipelines", "playground", "queues", "sending", "stomp", "tables",
)  # fmt: skip
FILES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "/": ("index.html", "text/html"), "/login": ("login.html", "text/html"), "/console.css": ("console.css", "text/css"),
        "/icon.svg": ("icon.svg", "image/svg+xml"),
        **{f"/{name}.js": (f"{name}.js", "text/javascript") for name in SCRIPTS},
    }
)  # fmt: skip


def routes() -> list[Route]:
    """One for each file, which is read now."""
    return [
        Route(path, File((Path(__file__).parent / name).read_bytes(), kind).get)
        for path, (name, kind) in FILES.items()
    ]


class File:
    """One of the console's files, as it is sent."""

    def __init__(self, content: bytes, kind: str) -> None:
        self.content = content
        self.kind = kind

    async def get(self, request: Request) -> Response:
        is_page = request.scope["path"] == "/"  # where the playground is
        urls = socket_urls(request.app.state.broker, request) if is_page else {}
        policy = POLICY.format(places=" ".join(["'self'", *dict.fromkeys(urls.values())]))
        return Response(self.content, headers={"content-security-policy": policy}, media_type=self.kind)
