"""Questions to an admin interface, as plain as can be."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

WITHIN = 20.0  # seconds for an answer
JSON = {"content-type": "application/json"}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of an error."""
        return str(self.json["error"]["code"])


def ask(
    admin: str,
    path: str,
    method: str = "GET",
    body: object = None,
    headers: Mapping[str, str] | None = None,
    *,
    user: str = "",
) -> Answer:
    """One request on a connection of its own. `body`: a value for JSON, or bytes as they are; `user`: login:passcode."""
    sent = dict(JSON if method == "POST" and headers is None else headers or {})
    if user:
        sent["authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
    connection = http.client.HTTPConnection(urlsplit(admin).netloc, timeout=WITHIN)
    try:
        connection.request(
            method, path, body if isinstance(body, bytes) or body is None else json.dumps(body), sent
        )
        answer = connection.getresponse()
        return Answer(
            answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        )
    finally:
        connection.close()


def post(admin: str, path: str, body: object, user: str = "") -> Answer:
    return ask(admin, f"/api/v1/{path}", "POST", body, user=user)


def read(admin: str, path: str, user: str = "") -> Any:
    """The JSON of a page of the API."""
    answer = ask(admin, f"/api/v1/{path}", user=user)
    assert answer.status == 200, answer
    return answer.json


def queue(admin: str, name: str, user: str = "") -> dict[str, Any]:
    """What the API says of the one queue of this name."""
    found = [
        one for one in read(admin, f"queues?match={name}&all=true", user)["queues"] if one["name"] == name
    ]
    assert len(found) == 1, found
    return dict(found[0])
