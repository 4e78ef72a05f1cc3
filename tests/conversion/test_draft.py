"""A draft becomes a text that its judge takes: what is refused is a comment then, with the reason."""

from __future__ import annotations

import tomllib

import pytest

from stompbox.conversion import draft as drafts
from stompbox.conversion.draft import Draft, settled
from stompbox.errors import ConfigError


def refusing(*words: str) -> drafts.Callable[[str], None]:
    """A judge that refuses each line with one of these words in it that is no comment."""

    def judge(text: str) -> None:
        tomllib.loads(text)
        for number, line in enumerate(text.splitlines(), 1):
            if not line.startswith("#") and any(word in line for word in words):
                raise ConfigError("config-value", f"draft:{number}: no good")

    return judge


def example() -> Draft:
    draft = Draft("f")
    draft.top.put("data", "x", 1)
    table = draft.table("[[address]]", 2)
    table.put("name", "a\nb", 2)
    table.put("routing-types", ["ANYCAST"], 3)
    draft.table("[[address.queue]]", 4).put("name", "q", 4)
    draft.table("[[user]]", 5).put("name", "u", 5)
    return draft


def test_a_refused_key_becomes_a_comment() -> None:
    draft = example()
    text = settled(draft, refusing("routing-types"))
    assert '# not carried over, f:3: no good\n# routing-types = ["ANYCAST"]\n' in text
    assert (draft.left, draft.carried) == (1, 4)


def test_without_its_name_a_table_is_none_nor_is_what_belongs_to_it() -> None:
    draft = example()
    text = settled(draft, refusing("a\\U"))
    assert tomllib.loads(text) == {"data": "x", "user": [{"name": "u"}]}
    assert "# not carried over, f:2: no good\n# [[address]]\n" in text
    assert "# not carried over, f:4: it belongs to the one above\n# [[address.queue]]\n" in text


def test_a_comment_is_one_line_whatever_the_source_says() -> None:
    draft = example()
    draft.top.leave(7, "a\nb = 1", "x" * 1000)
    assert tomllib.loads(settled(draft, refusing()))["data"] == "x"
    assert max(map(len, settled(draft, refusing()).splitlines())) < 250


def test_what_stands_on_no_line_and_what_never_ends_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: str) -> None:
        raise ConfigError("config-insecure", "listener: anyone could")

    with pytest.raises(ConfigError, match="anyone could"):
        settled(example(), never)
    monkeypatch.setattr(drafts, "MOST_STRUCK", 1)
    with pytest.raises(ConfigError, match="f: more than 1 of its values"):
        settled(example(), refusing("routing-types", "data"))
