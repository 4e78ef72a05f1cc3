"""`config show`: TOML that can be read again, with origins and without passwords."""

from __future__ import annotations

from pathlib import Path

from stompbox.config import read
from stompbox.config.listing import content_of, listing

TEXT = """
[[user]]
name = "alice"
password = "hunter2"

[[user]]
name = "bob"

[[listener]]
url = "ssl://127.0.0.1:1?keyStorePath=s.pem;keyStorePassword=hunter2"

[[address-setting]]
match = "a"
max-size-bytes = "1K"

[admin]
listen = "127.0.0.1:8161"
key-store-password = "hunter2"
"""


def test_passwords_are_starred_out_and_origins_are_comments(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(TEXT, encoding="utf-8")
    text = listing(read(path, {"STOMPBOX_LOG_LEVEL": "debug"}, {"data": "d"}))
    assert "hunter2" not in text
    assert text.count('"***"') == 2 and "keyStorePassword=***" in text
    lines = text.splitlines()
    assert 'data = "d"  # --data' in lines
    assert 'log-level = "DEBUG"  # STOMPBOX_LOG_LEVEL' in lines
    assert 'log-format = "text"' in lines
    assert f"max-size-bytes = 1024  # {path}:14" in lines
    assert f"[[user]]  # {path}:2" in lines
    assert "permission" not in text


def test_what_is_shown_can_be_read_again(tmp_path: Path) -> None:
    first = tmp_path / "first.toml"
    first.write_text(TEXT, encoding="utf-8")
    loaded = read(first, {}, {"memory": True})
    second = tmp_path / "second.toml"
    second.write_text(listing(loaded), encoding="utf-8")
    assert content_of(read(second).configuration) == content_of(loaded.configuration)
