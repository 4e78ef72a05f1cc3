"""The reference pages that are made of the code: `python -m stompbox.cli.reference docs/reference` writes commands.md, api.md and
client.md.

Decides how commands and endpoints are described there. Those of options are made by config/reference.py; codes of errors and names of
metrics are written by hand, and tests compare them with the code.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_MADE: Final = (
    "Made by `python -m stompbox.cli.reference docs/reference`; what is written here by hand is lost."
)


def commands() -> str:
    """The page of the command line."""
    from stompbox.cli.application import app

    called, sys.argv = sys.argv, ["stompbox"]  # what a group of commands shows as its program
    try:
        text = app.generate_docs(output_format="markdown")
    finally:
        sys.argv = called
    body = text.partition("\n")[2].replace("```console", "```text").strip()
    return f"# Command line\n\n{_MADE}\n\n{body}\n"


def api() -> str:
    """The page of the API, which `/api/v1/docs` of a running broker has as well."""
    from stompbox.admin.openapi import document
    from stompbox.admin.table import ENDPOINTS

    found = document(ENDPOINTS)
    about = f"The broker has the same at `/api/v1/openapi.json` (OpenAPI {found['openapi']}) and, to be read, at `/api/v1/docs`."
    parts = [f"# API\n\n{_MADE}\n\n{about}\n"]
    for path, methods in found["paths"].items():
        for method, one in methods.items():
            parts.append(f"## {method.upper()} {path}\n\n" + "\n".join(_operation(one)))
    return "\n".join(parts)


def client() -> str:
    """The page of the client library."""
    from stompbox.cli.library import page

    about = "How to use it is told in [Client library](../client.md); what may go wrong has a [code](../errors.md)."
    return f"# Client library: names\n\n{_MADE}\n\n{about}\n\n" + "\n".join(page()).rstrip("\n") + "\n"


def _operation(one: dict[str, Any]) -> Iterator[str]:
    yield _plain(one.get("description") or one.get("summary") or "") + "\n"
    parameters = [*one.get("parameters", ()), *_fields_of(one)]
    if parameters:
        yield "| name | where | what |\n|---|---|---|"
        for each in parameters:
            said = _plain(each.get("description") or each.get("schema", {}).get("description") or "")
            yield f"| `{each['name']}` | {each['in']} | {said or '-'} |"
        yield ""


def _fields_of(one: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The fields of a body, where the operation has a form of its own."""
    content = one.get("requestBody", {}).get("content", {}).values()
    for kind in content:
        for name, schema in kind.get("schema", {}).get("properties", {}).items():
            yield {"name": name, "in": "body", "schema": schema}


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


PAGES: Final = {"commands.md": commands, "api.md": api, "client.md": client}


def main(folders: list[str]) -> None:
    """Writes the pages into each of these folders."""
    for folder in folders:
        for name, make in PAGES.items():
            (Path(folder) / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
