"""Users of properties files: how they are read, and what becomes of their passwords."""

from __future__ import annotations

import pytest

from stompbox.conversion.accounts import Accounts, Properties
from stompbox.conversion.draft import Draft
from stompbox.errors import ConfigError


def test_properties() -> None:
    found = Properties.read("f", b"# a\n! b\n\n a\\ b = c=d \ne:f\n")
    assert found.values == {"a b": ("c=d", 4), "e": ("f", 5)}
    assert Properties.read("f", b"a = \xe4").values == {"a": ("\xe4", 1)}


@pytest.mark.parametrize("line", [b"nothing", b"= x"])
def test_what_is_no_property_is_named_with_its_line(line: bytes) -> None:
    with pytest.raises(ConfigError, match=r"^f:2: expected `name = value`"):
        Properties.read("f", b"a=b\n" + line)


def test_who_has_a_hash_cannot_log_in_and_it_says_so() -> None:
    draft = Draft("broker.xml")
    users = Properties.read("u", b"a = plain\nb = ENC(x)\nc = \n")
    Accounts(lambda text: f"hash of {text}", users, Properties.read("r", b"g = a, c\n")).write(draft)
    text = "\n".join(line for line, _, _ in draft.lines())
    assert 'name = "a"\npassword = "hash of plain"\ngroups = ["g"]' in text
    assert "password of 'b' (u:2): it is a hash" in text and "password of 'c' (u:3): there is none" in text
    assert "plain" not in text.replace("hash of plain", "")
    assert draft.left == 2
