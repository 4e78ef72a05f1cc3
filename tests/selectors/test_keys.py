"""The text by which a selector is found: what it must be told by, and that it is never found by too little."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.selectors import compile_selector

CASES = [
    ("colour = 'red'", (("colour",), "red")),
    ("'red' = colour", (("colour",), "red")),
    ("age > 18 AND colour = 'red' AND size = 'L'", (("colour",), "red")),
    ("(a = 1 OR b = 2) AND (colour = 'red')", (("colour",), "red")),
    ("JMSCorrelationID = '7'", (("JMSCorrelationID", "correlation-id"), "7")),
    ("AMQGroupID = 'g'", (("AMQGroupID", "JMSXGroupID"), "g")),
    ("JMSXGroupID = 'g'", (("JMSXGroupID",), "g")),
    ("colour = 'red' OR size = 'L'", None),
    ("NOT colour = 'red'", None),
    ("colour <> 'red'", None),
    ("colour = size", None),
    ("age = 18", None),
    ("JMSPriority = '4'", None),
    ("AMQDurable = 'DURABLE'", None),
    ("flag", None),
]


@pytest.mark.parametrize(("text", "key"), CASES, ids=[text for text, _ in CASES])
def test_key(text: str, key: object) -> None:
    assert compile_selector(text).key == key


TERMS = st.sampled_from(["a = 'x'", "a = 'y'", "'x' = b", "JMSType = 'x'", "a <> 'x'", "b IS NULL", "a = b", "b = 1", "TRUE"])
CONDITIONS = st.recursive(
    TERMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda parts: f"({parts[0]} {parts[1]} {parts[2]})"),
        inner.map(lambda one: f"NOT ({one})"),
    ),
    max_leaves=6,
)


@given(CONDITIONS, st.dictionaries(st.sampled_from(["a", "b", "type", "JMSType"]), st.sampled_from(["x", "y", "1", ""])))
def test_what_takes_a_message_is_found_by_its_text(text: str, headers: dict[str, str]) -> None:
    selector = compile_selector(text)
    if selector.key is not None and selector.matches(headers, {}):
        names, wanted = selector.key
        assert next(headers[name] for name in names if name in headers) == wanted
