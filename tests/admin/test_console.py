"""The console's files: what they are, and what a browser is told it may do with them. What the page does is tests/console."""

from __future__ import annotations

import re

import pytest

from stompbox.admin.console import FILES
from tests.admin.asking import ask
from tests.conftest import Served

DIRECTIVES = {
    **dict.fromkeys(("script-src", "style-src", "img-src", "connect-src"), "'self'"),
    **dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors", "trusted-types"), "'none'"),
    "require-trusted-types-for": "'script'",
}


def policy(header: str) -> dict[str, str]:
    return {name: rest for name, _, rest in (part.strip().partition(" ") for part in header.split(";"))}


@pytest.mark.parametrize(("path", "kind"), [(path, kind) for path, (_, kind) in FILES.items()])
def test_a_file_comes_with_its_type_and_a_strict_policy(served: Served, path: str, kind: str) -> None:
    answer = ask(served.admin, path)
    listener = f" ws://127.0.0.1:{served.port}" if path == "/" else ""
    assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, kind)
    expected = {**DIRECTIVES, "connect-src": f"'self'{listener}"}
    assert policy(answer.headers["content-security-policy"]) == expected
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-frame-options"] == "DENY"
    assert len(answer.body) > 100


def test_the_page_is_only_files_of_its_own(served: Served) -> None:
    """No inline script or style, which the policy would refuse, and nothing from elsewhere."""
    page = ask(served.admin, "/").body.decode()
    named = set(re.findall(r'(?:src|href)="([^"#]*)', page)) - {""}
    assert named == set(FILES) - {"/", "/login", "/login.js"} | {"/api/v1", "/metrics"}
    scripts = [path for path in FILES if path.endswith(".js")]
    for path in scripts:  # what a module is made of is asked for with the page, and not one after the other
        assert set(re.findall(r'from "\.(/[a-z]+\.js)"', ask(served.admin, path).body.decode())) <= named
    login = ask(served.admin, "/login").body.decode()
    assert set(re.findall(r'(?:src|href)="([^"#]*)', login)) <= set(FILES) | {"/api/v1"}
    assert not re.search(r"<style|style=|<script>|\son\w+=|https?://", page + login)
    for path in (*scripts, "/console.css"):
        text = ask(served.admin, path).body.decode()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|@import|url\(", text
        ), path
        assert set(re.findall(r"https?://[^\"' )]*", text)) <= {"http://www.w3.org/2000/svg"}, path


def test_the_api_keeps_its_own_policy_and_its_index(served: Served) -> None:
    answer = ask(served.admin, "/api/v1")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "script-src" not in answer.headers["content-security-policy"]
    assert "/api/v1/positions" in answer.json["pages"]
    assert "/api/v1/queues/purge" in answer.json["operations"]
