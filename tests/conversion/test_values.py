"""Texts of XML as values of TOML, and listeners as URLs."""

from __future__ import annotations

import pytest

from stompbox.config import Configuration, parse_listener
from stompbox.config.fields import fields_of
from stompbox.config.settings import AddressSettings
from stompbox.conversion.draft import Draft
from stompbox.conversion.elements import read
from stompbox.conversion.values import resolved, split_options, typed, write_listener

KNOWN = fields_of(AddressSettings) | fields_of(Configuration)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("auto-create-queues", "TRUE", True), ("max-size-bytes", "10Mb", 10 << 20), ("max-size-bytes", "-1", -1),
        ("redelivery-delay-multiplier", "1.5", 1.5), ("redelivery-delay", " 7 ", 7), ("address-full-policy", "Page", "PAGE"),
        ("expiry-address", "x", "x"),
    ],
)  # fmt: skip
def test_values(key: str, text: str, value: object) -> None:
    assert typed(KNOWN[key], text) == value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("auto-create-queues", "yes"), ("max-size-bytes", "10X"), ("redelivery-delay", "1.5"), ("redelivery-delay", "٣"),
        ("address-full-policy", "SPILL"), ("redelivery-delay-multiplier", "1.5.2"), ("redelivery-delay-multiplier", "nan"),
    ],
)  # fmt: skip
def test_what_is_none_is_refused(key: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"expected .*, not "):
        typed(KNOWN[key], text)


def test_placeholders_with_a_default_are_that() -> None:
    root = resolved(read(b"<a b='${x:1}${y}'><c>${z:}2</c></a>", "f"))
    assert (root.attributes["b"], root.children[0].text) == ("1${y}", "2")


@pytest.mark.parametrize("value", ["a;b", "50%", "a&b", "x,y", "a=b"])
def test_a_value_with_dividers_in_it_comes_through(value: str) -> None:
    draft = Draft("f")
    table = write_listener(draft, "127.0.0.1:1", {"keyStorePassword": value}, 1, is_tls=False, is_open=False)
    url = table.entries[-1].text.partition('"')[2].rstrip('"')
    assert parse_listener(url).options.key_store_password == value
    assert split_options(url.partition("?")[2]) == {"keyStorePassword": value}
