"""docs/configuration.md: every key, with unit, default and meaning, as the code has it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from stompbox.config import read
from stompbox.config.environment import variables
from stompbox.config.fields import fields_of
from stompbox.config.options import ALIASES
from stompbox.config.reference import TABLES, default_of, documented, main, value_of
from stompbox.server.verifying import verify

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def test_the_page_is_what_the_code_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert documented(text) == text, "run: python -m stompbox.config.reference docs/configuration.md"


@pytest.mark.parametrize("name", TABLES)
def test_every_key_of_a_table_has_a_row(name: str) -> None:
    section = (
        PAGE.read_text(encoding="utf-8").partition(f"<!-- table {name} -->")[2].partition("<!-- end -->")[0]
    )
    rows = {row.split("|")[1].strip().strip("`") for row in section.strip().splitlines()[2:]}
    assert rows == set(fields_of(TABLES[name]))


@pytest.mark.parametrize("name", TABLES)
def test_every_key_is_described_and_numbers_have_a_unit(name: str) -> None:
    for field in fields_of(TABLES[name]).values():
        assert field.text.endswith("."), field.spelled
        assert field.unit or field.plain not in (int, float), field.spelled


def test_the_page_names_what_else_can_be_written() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in ALIASES if f"`{name}`" not in text] == []
    mentioned = set(re.findall(r"`(STOMPBOX_[A-Z_]+)[=`]", text))
    others = {
        "STOMPBOX_COMPILE",  # of the build
        "STOMPBOX_CONFIG",
        "STOMPBOX_CONTEXT",
        "STOMPBOX_LISTEN",
        "STOMPBOX_URL",
        "STOMPBOX_ADMIN_URL",
        "STOMPBOX_LOGIN",
        "STOMPBOX_PASSCODE",
    }
    prefixes = {"STOMPBOX_", "STOMPBOX_TEST_", "STOMPBOX_BENCH_", "STOMPBOX_DEMO_"}
    assert mentioned - others - prefixes <= set(variables())


def test_the_example_of_the_page_is_a_good_configuration(tmp_path: Path) -> None:
    example = PAGE.read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0]
    assert set(tomllib.loads(example)) >= {
        "listener",
        "admin",
        "user",
        "permission",
        "address-setting",
        "address",
        "divert",
    }
    path = tmp_path / "example.toml"
    path.write_text(example, encoding="utf-8")
    assert verify(read(path)) == []


def test_defaults_are_written_for_people() -> None:
    options, top = fields_of(TABLES["listener-options"]), fields_of(TABLES["top-level"])
    assert default_of(options["maxBodySize"]) == "100MiB"
    assert default_of(options["maxHeaderSize"]) == "64KiB"
    assert default_of(options["heartBeat"]) == "`auto`"
    assert default_of(options["webSocketPath"]) == "`/`, `/stomp`, `/ws`"
    assert default_of(top["memory"]) == "false"
    assert default_of(top["log-level"]) == "`INFO`"
    assert default_of(fields_of(TABLES["user"])["name"]) == "required"
    assert value_of(fields_of(TABLES["address"])["routing-types"]) == "`ANYCAST`, `MULTICAST` (list)"


def test_a_page_is_rewritten(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table listener -->\nold\n<!-- end -->\nafter\n", encoding="utf-8")
    main([str(page)])
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n<!-- table listener -->\n\n| key |") and text.endswith(
        "<!-- end -->\nafter\n"
    )
    assert "old" not in text and "| `url` |" in text
