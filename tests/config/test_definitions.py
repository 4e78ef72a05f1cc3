"""The layer of what is defined at run time: what it adds, what the configuration has of it, and where each key stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from stompbox.config import read
from stompbox.config.definitions import in_folder, layer_of, written
from stompbox.config.sources import convert_with, kept_of
from stompbox.errors import ConfigError

HOST = {"virtual-host": [{"name": "green"}]}


def test_it_comes_behind_the_configuration_and_says_where_it_stands() -> None:
    layer = layer_of('[[user]]\nname = "eve"\n[[user]]\nname = "bob"\n', "d.toml")
    content, origins = {"user": [{"name": "bob", "groups": ["a"]}]}, {("user", 0): "stompbox.toml:1"}
    loaded = convert_with(content, origins, layer)
    assert [user.name for user in loaded.configuration.users] == ["bob", "eve"]
    assert loaded.configuration.users[0].groups == ("a",)
    assert loaded.where(("user", 1, "name")) == "run time (d.toml:2)"
    assert loaded.shadowed == (
        "run time (d.toml:3): user 'bob' is at stompbox.toml:1, too, and that one counts",
    )
    assert content == {"user": [{"name": "bob", "groups": ["a"]}]}, "the configuration itself is as it was"


def test_a_virtual_host_gets_its_own_and_one_that_is_gone_is_told() -> None:
    text = '[[virtual-host]]\nname = "{}"\n[[virtual-host.permission]]\nmatch = "#"\nsend = ["a"]\n'
    loaded = convert_with(HOST, {}, layer_of(text.format("green"), ""))
    assert [table.match for table in loaded.configuration.virtual_hosts[0].permissions] == ["#"]
    assert loaded.where(("virtual-host", 0, "permission", 0, "send")) == "run time"
    loaded = convert_with(HOST, {}, layer_of(text.format("red"), "d.toml"))
    assert loaded.configuration.virtual_hosts[0].permissions == ()
    assert "d.toml:1): there is no [[virtual-host]] 'red'" in loaded.shadowed[0]


def test_what_is_empty_is_not_written() -> None:
    layer = written({"user": [], "virtual-host": [{"name": "green", "permission": []}]}, "")
    assert layer.content == {}
    assert layer.text.startswith("# Defined at run time")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = ", "d.toml:1: not TOML: invalid value"),
        ('[[user]]\nnam = "a"\n', "d.toml:2: user[0].nam: unknown key; the nearest known name is 'name'"),
        ('[[user]]\nname = "a"\n[[user]]\nname = "a"\n', "d.toml:4: user[1].name: is there twice"),
        ('[[virtual-host]]\nname = "a"\ndefault = true\n', "d.toml:3: virtual-host[0].default: unknown key"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        layer_of(text, "d.toml")
    assert caught.value.message.startswith(said)


def test_it_is_read_from_the_data_folder(tmp_path: Path) -> None:
    (tmp_path / "stompbox.toml").write_text(f"data = '{tmp_path}/data'\n")
    assert read(tmp_path / "stompbox.toml", {}, {}, kept_of).layer.name == f"{tmp_path}/data/definitions.toml"
    (tmp_path / "data").mkdir()
    (tmp_path / "data/definitions.toml").write_text('[[user]]\nname = "eve"\n')
    [user] = read(tmp_path / "stompbox.toml", {}, {}, kept_of).configuration.users
    assert user.name == "eve"
    assert read(tmp_path / "stompbox.toml", {}, {"memory": True}, kept_of).configuration.users == ()
    assert read(tmp_path / "stompbox.toml").configuration.users == (), "nobody else reads it"


def test_one_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "definitions.toml").mkdir()
    with pytest.raises(ConfigError) as caught:
        in_folder(str(tmp_path))
    assert (caught.value.code, str(tmp_path) in caught.value.message) == ("definitions-unreadable", True)
    (tmp_path / "definitions.toml").rmdir()
    (tmp_path / "definitions.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="byte 0 is not UTF-8"):
        in_folder(str(tmp_path))
