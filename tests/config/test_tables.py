"""The structs: JSON Schema, rights, virtual hosts, and what importing them costs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import msgspec

from stompbox.config import load, schema
from stompbox.config.configuration import Configuration
from stompbox.config.fields import fields_of
from stompbox.config.tables import RIGHTS, PermissionTable
from stompbox.security import Right


def test_the_rights_of_a_permission_are_those_of_the_security_module() -> None:
    assert sorted(RIGHTS) == sorted(right.value for right in Right)


def test_a_right_that_is_not_named_is_not_there_and_one_without_groups_is() -> None:
    table = msgspec.convert({"match": "a", "send": [], "create-durable-queue": ["x", "y"]}, PermissionTable)
    assert table.grants() == {"send": frozenset(), "create-durable-queue": {"x", "y"}}


def definitions() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(msgspec.json.encode(schema()))["$defs"]
    return found


def test_the_schema_has_every_key_with_its_meaning() -> None:
    tables = definitions()
    assert set(tables["Configuration"]["properties"]) == set(fields_of(Configuration))
    assert not tables["Configuration"]["additionalProperties"]
    assert tables["UserTable"]["required"] == ["name"]
    assert tables["AddressSetting"]["properties"]["redelivery-delay"] == {
        "description": "Wait before the first redelivery.",
        "type": "integer",
        "minimum": 0,
        "x-unit": "ms",
    }


def test_the_schema_takes_sizes_as_texts() -> None:
    number, text = definitions()["AddressSetting"]["properties"]["max-size-bytes"]["anyOf"]
    assert number == {"type": "integer", "minimum": -1}
    assert text["type"] == "string"


def test_a_virtual_host_inherits_what_it_does_not_have() -> None:
    hosts = [
        {"name": "plain", "default": True},
        {"name": "own", "address-setting": [{"match": "x", "no-expiry": True}]},
    ]
    flags = {
        "virtual-host": hosts,
        "address-setting": [{"match": "#", "redelivery-delay": 5}],
        "permission": [{"match": "#", "send": []}],
        "id-cache-size": 7,
    }
    configuration = load(None, {}, flags)
    plain, own = configuration.virtual_hosts
    assert configuration.settings_of(plain).resolve("x").redelivery_delay == 5
    assert configuration.settings_of(own).resolve("x").redelivery_delay == 0
    assert configuration.settings_of(own).resolve("x").no_expiry
    assert configuration.settings_of(own).resolve("x").id_cache_size == 7
    grants = configuration.grants_of(own)
    assert grants is not None and grants.best("x") == {"send": frozenset()}
    assert load().grants_of() is None


def test_importing_brings_in_nothing_heavy() -> None:
    heavy = {
        "argon2",
        "asyncio",
        "hashlib",
        "secrets",
        "cyclopts",
        "rich",
        "difflib",
        "pathlib",
        "ssl",
        "socket",
        "dataclasses",
        "json",
    }
    code = f"import sys, stompbox.config, stompbox.security; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
