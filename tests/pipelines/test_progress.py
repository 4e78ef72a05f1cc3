"""What is said of a batch, from what Spark says of it. Without Spark."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("pyarrow")

from stompbox.pipelines.progress import MOST_LAGS, batch_of


def test_a_batch_says_where_most_waits() -> None:
    latest = {f"a{number}": 100 + number for number in range(15)}
    ends = {**dict.fromkeys(latest, 100), "a14": 114}
    source = SimpleNamespace(endOffset=json.dumps(ends), latestOffset=json.dumps(latest))
    table = SimpleNamespace(endOffset="7", latestOffset=None)
    progress = SimpleNamespace(batchId=3, durationMs={"triggerExecution": 500}, sources=[source, table])
    found = batch_of("orders", progress, 50, 80)
    assert (found.rows, found.total, found.rate, found.lag) == (50, 80, 100.0, sum(range(14)))
    assert found.lags == {f"a{number}": number for number in range(13, 13 - MOST_LAGS, -1)}
