"""The console: a page that asks the API, as files that are sent as they are.

    index.html   the frame
    console.css  how it looks
    console.js   what it shows and does
    login.html   the log-in page
    login.js     what it does
    icon.svg     what stands in the browser's tab

Decides what a browser lets the page do: load these files, ask this broker, and nothing else. Trusted types are required and there are
none, so no text can become markup or code, whatever a client has called its address.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
FILES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "/": ("index.html", "text/html"), "/console.css": ("console.css", "text/css"), "/console.js": ("console.js", "text/javascript"),
        "/login": ("login.html", "text/html"), "/login.js": ("login.js", "text/javascript"), "/icon.svg": ("icon.svg", "image/svg+xml"),
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

    async def get(self, _: Request) -> Response:
        return Response(self.content, headers={"content-security-policy": POLICY}, media_type=self.kind)
