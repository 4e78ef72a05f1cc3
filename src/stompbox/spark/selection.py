"""Selectors on rows, as the broker would apply them to subscribers: once per shape where headers decide, per message where they vary.

Most selectors are pushed: the broker leaves out what they do not take, and only the other rows travel (requests.py, `fetch`). What is
applied here is the rest: XPATH, for which the broker would have to read bodies, and facts that are not in the headers. Those that only the
broker knows of a delivery (message id, user, redelivered) are unknown here, which makes a condition on them not true.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stompbox.message import Shape
from stompbox.selectors import Selector, Value, compile_selector
from stompbox.spark.columns import Integers, Rows, Runs, Selection, arrived_of, elements_of

# facts that are the same on the broker
_OF_HEADERS: Final = frozenset(("priority", "group_id", "correlation_id", "type", "reply_to"))


def selection_of(text: str) -> Selection | None:
    """What chooses rows by the selector `text`, None when that is empty. Raises SelectorError with the position."""
    if not text:
        return None
    selector = compile_selector(text)

    def select(runs: Runs, rows: Rows) -> npt.NDArray[np.bool_]:
        return _chosen(selector, runs, rows)

    return select


def pushed_of(text: str) -> str:
    """The selector as the broker is to apply it; empty where rows are chosen here."""
    if not text:
        return ""
    selector = compile_selector(text)
    return text if not selector.needs_body and selector.facts <= _OF_HEADERS else ""


def _chosen(selector: Selector, runs: Runs, rows: Rows) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(rows), np.bool_)
    shapes = runs.shape[rows.run]
    for index in np.unique(shapes):
        shape = runs.shapes[index]
        here = shapes == index
        if selector.is_per_message or not selector.headers.isdisjoint(shape.holes):
            found[here] = _each(selector, shape, runs, Rows(rows.run[here], rows.index[here]))
        else:
            found[here] = selector.matches(shape.headers, _facts(shape))
    return found


def _each(selector: Selector, shape: Shape, runs: Runs, rows: Rows) -> list[bool]:
    elements = elements_of(runs)

    def column(number: int) -> list[bytes]:
        wanted: Integers = runs.begin[rows.run] + number * runs.count[rows.run] + rows.index
        found: list[bytes] = elements.take(pa.array(wanted)).to_pylist()
        return found

    holes = [[value.decode("ascii") for value in column(number)] for number in range(len(shape.holes))]
    bodies = column(len(shape.holes))
    arrived = arrived_of(runs, rows).tolist()
    found = []
    for row, body in enumerate(bodies):
        headers = {
            **shape.headers,
            **{name: values[row] for name, values in zip(shape.holes, holes, strict=True)},
        }
        facts = {**_facts(shape), "timestamp": arrived[row], "size": len(body), "expiration": shape.expires}
        found.append(selector.matches(headers, facts, body.__bytes__))
    return found


def _facts(shape: Shape) -> dict[str, Value]:
    return {"priority": shape.priority, "durable": shape.persistent}
