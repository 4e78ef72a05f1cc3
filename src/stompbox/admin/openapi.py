"""The description of the API, made of the endpoints: as OpenAPI 3.1 for programs, and as a page for people, which loads nothing but a
style sheet of the broker's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Any, Final

import msgspec

from stompbox import __version__
from stompbox.admin.endpoints import Endpoint
from stompbox.admin.responses import PROBLEM, Problem

_REF: Final = "#/components/schemas/{name}"
_ABOUT: Final = (
    "Status of a Stompbox broker, and what an operator can do. Times are ms since 1970, durations ms. An answer comes when what was "
    "changed is on disk. An error is a problem (RFC 9457) with a stable `code`, and the `field` that was wrong where it was one."
)


def document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """The document of OpenAPI 3.1.0."""
    listed = list(endpoints)
    types = [kind for one in listed for kind in (one.answer, one.form) if kind is not None]
    schemas, components = msgspec.json.schema_components([*types, Problem], ref_template=_REF)
    schema_of = dict(zip(types, schemas, strict=False))
    paths: dict[str, dict[str, Any]] = {}
    for one in listed:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Stompbox", "version": __version__, "description": _ABOUT},
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(one.tag for one in listed)],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "session": {"type": "apiKey", "in": "cookie", "name": "stompbox-session"},
            },
        },
        "security": [{"basic": []}, {"session": []}],
    }


def _operation(one: Endpoint, schema_of: dict[Any, Any]) -> dict[str, Any]:
    content = {one.media: {"schema": {"type": "string"} if one.answer is None else schema_of[one.answer]}}
    good = {"description": "Done." if one.changes else "Found.", "content": content}
    found: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.about.partition(". ")[0].rstrip("."),
        "description": f"{one.about} {one.needs}".strip(),
        "tags": [one.tag],
        "responses": {str(status): good for status in (200, *one.statuses)}
        | {"default": {"description": "Refused.", "content": {PROBLEM: {"schema": schema_of_problem()}}}},
    }
    if one.query:
        found["parameters"] = [
            {
                "name": parameter.name,
                "in": "query",
                "description": parameter.about,
                "required": parameter.is_required,
                "schema": parameter.schema(),
            }
            for parameter in one.query
        ]
    if one.form is not None:
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema_of[one.form]}},
        }
    if one.is_open:
        found["security"] = []
    return found


def schema_of_problem() -> dict[str, str]:
    return {"$ref": _REF.format(name=Problem.__name__)}


# For people


def page(described: dict[str, Any]) -> str:
    """The document as HTML: what there is, by tag, each with its parameters, its body and what it answers."""
    operations = [
        (method.upper(), path, one)
        for path, methods in described["paths"].items()
        for method, one in methods.items()
    ]
    parts = [
        f"<section><h2>{escape(tag['name'])}</h2>"
        + "".join(
            _article(method, path, one, described["components"]["schemas"])
            for method, path, one in operations
            if tag["name"] in one["tags"]
        )
        + "</section>"
        for tag in described["tags"]
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>The API of Stompbox</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="stylesheet" href="/console.css">'
        f'<link rel="icon" href="/icon.svg"></head><body class="api"><main><h1>The API of Stompbox {escape(__version__)}</h1>'
        f"<p>{_text(described['info']['description'])}</p>"
        '<p>For programs: <a href="/api/v1/openapi.json">openapi.json</a>. <a href="/">The console</a></p>'
        f"{''.join(parts)}</main></body></html>"
    )


def _article(method: str, path: str, one: dict[str, Any], schemas: dict[str, Any]) -> str:
    rows = [
        (parameter["name"], _kind(parameter["schema"]), parameter["description"])
        for parameter in one.get("parameters", ())
    ]
    body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    answer = next(iter(one["responses"]["200"]["content"].items()))
    return (
        f'<article id="{escape(one["operationId"])}"><h3><code>{method} {escape(path)}</code></h3>'
        f"<p>{_text(one['description'])}</p>"
        + _table("In the URL", rows)
        + (_table("Body", list(_fields(body, schemas))) if body else "")
        + (
            _table("Answer", list(_fields(answer[1]["schema"], schemas)))
            or f"<p>Answer: {escape(answer[0])}</p>"
        )
        + "</article>"
    )


def _fields(schema: dict[str, Any], schemas: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    found = schemas.get(str(schema.get("$ref", "")).rpartition("/")[2], schema)
    for name, value in found.get("properties", {}).items():
        must = " (required)" if name in found.get("required", ()) else ""
        yield name, _kind(value) + must, value.get("description", "")


def _kind(schema: dict[str, Any]) -> str:
    """One or two words for a type."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        inner = schema.get("items")
        return f"list of {_kind(inner)}" if isinstance(inner, dict) else "list"
    return str(schema.get("type", "any"))


def _table(caption: str, rows: list[tuple[str, str, str]]) -> str:
    if not rows:
        return ""
    lines = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(kind)}</td><td>{_text(about)}</td></tr>"
        for name, kind, about in rows
    )
    return f"<table><caption>{caption}</caption><tbody>{lines}</tbody></table>"


def _text(text: str) -> str:
    """What stands between backticks is code."""
    parts = text.split("`")
    return "".join(
        f"<code>{escape(part)}</code>" if number % 2 else escape(part) for number, part in enumerate(parts)
    )
