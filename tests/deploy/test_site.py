"""The site of the documentation is built without a warning and has every page; what is made of the code is current."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stompbox
from stompbox.cli.reference import PAGES
from tests.admin.test_metrics import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        "deploy/site/mkdocs.yml",
        "--site-dir",
        str(folder),
    ]
    built = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert built.returncode == 0, built.stderr
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    pages = {page.relative_to(DOCS).with_suffix(".html").as_posix() for page in DOCS.rglob("*.md")}
    named = {re.sub(r"README\.html$", "index.html", page) for page in pages}
    assert sorted(page for page in named if not (site / page).is_file()) == []


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    for page in ("index.html", "tutorial.html"):
        text = (site / page).read_text(encoding="utf-8")
        assert re.findall(r"<(?:script|link rel=\"stylesheet\"|img)[^>]*(?:src|href)=\"https?://", text) == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_made_of_code_is_current(name: str) -> None:
    """`python -m stompbox.cli.reference docs/reference` writes them."""
    assert (DOCS / "reference" / name).read_text(encoding="utf-8") == PAGES[name]()


def test_every_public_name_of_the_library_is_described() -> None:
    page = PAGES["client.md"]()
    names = [name for name in stompbox.__all__ if name not in ("__version__", "blocking")]
    assert [name for name in names if f"\n### stompbox.{name}\n" not in page] == []
    blocking = ("connect", "Client", "Message", "Publisher", "Subscription", "Transaction")
    assert [name for name in blocking if f"\n### stompbox.blocking.{name}\n" not in page] == []
    assert (
        "- `async rpc(destination: str, body: Body = b'', headers: Headers | None = None, *, timeout" in page
    )
    assert "- `attempts: int | None = 30`" in page
