"""Spark SQL between destinations and tables, with a real broker and a real Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from stompbox.errors import LocalError
from stompbox.pipelines import transform as transform_module
from tests.pipelines.conftest import Run, send, stored

SQL = """
  SELECT window.start AS day, region, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY window(timestamp, '1 day'), region
"""


def transform(name: str, more: str, sql: str = SQL) -> str:
    head = f'[[transform]]\nname = "{name}"\nmode = "update"\nsql = """{sql}"""\n{more}'
    return f'{head}\n[[transform.source]]\nname = "orders"\ndestinations = ["/queue/{name}"]\nschema = "region STRING, amount DOUBLE"\n'


def order(region: str, amount: float) -> bytes:
    return json.dumps({"region": region, "amount": amount}).encode()


def test_rows_become_messages_each_batch_once(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch is published, and dies before Spark knows it."""
    text = transform("sums", 'destination = "/queue/sums.out"')
    send(url, "/queue/sums", [order("EU", 1), order("US", 2), order("EU", 3)])
    publish = transform_module._send

    def dying(frame: Any, batch: int, **options: Any) -> None:
        publish(frame, batch, **options)
        raise RuntimeError("dead after it was published")

    with monkeypatch.context() as patched, pytest.raises(LocalError, match="dead after it was published"):
        patched.setattr(transform_module, "_send", dying)
        run(text, "sums")
    assert len(stored(url, "/queue/sums.out")) == 2
    send(url, "/queue/sums", [order("EU", 10)])
    run(text, "sums")
    messages = stored(url, "/queue/sums.out")
    assert {message["headers"]["content-type"] for message in messages} == {"application/json"}
    rows = [json.loads(message["body"]) for message in messages]
    assert sorted((row["region"], row["orders"], row["amount"]) for row in rows) == [
        ("EU", 2, 4.0),
        ("EU", 3, 14.0),
        ("US", 1, 2.0),
    ]


def test_rows_become_a_table_and_a_table_is_a_source(run: Run, url: str, tmp_path: Path) -> None:
    from pyarrow import dataset

    names = transform(
        "names", 'table = "regions"', "SELECT region, 'name of ' || region AS name FROM orders"
    ).replace("update", "append")
    send(url, "/queue/names", [order("EU", 0), order("US", 0)])
    run(names, "names")
    joined = "SELECT r.name, o.amount, o.region FROM orders o JOIN regions r ON o.region = r.region"
    text = transform("joined", 'table = "joined"\npartition-by = "region"', joined).replace(
        "update", "append"
    )
    text += '[[transform.source]]\nname = "regions"\ntable = "regions"\n'
    send(url, "/queue/joined", [order("EU", 5), order("US", 7), order("XX", 9)])
    run(text, "joined")
    rows = dataset.dataset(tmp_path / "joined", partitioning="hive").to_table().to_pylist()
    assert sorted((row["region"], row["name"], row["amount"]) for row in rows) == [
        ("EU", "name of EU", 5.0),
        ("US", "name of US", 7.0),
    ]


def test_wrong_sql_is_one_line(run: Run, url: str) -> None:
    with pytest.raises(LocalError) as caught:
        run(transform("wrong", 'destination = "/queue/x"', "SELECT amuont FROM orders"), "wrong")
    assert (caught.value.code, "\n" in str(caught.value)) == ("step-failed", False)
    assert str(caught.value).startswith("transform 'wrong': ")
    assert "amuont" in str(caught.value)


def test_windows_and_watermarks_over_deaths(
    run: Run, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A window is in the table once, with all its rows, when the watermark has passed it; what comes later than that is left out. It
    dies before a commit and after one by turns, with windows that are closed and some that are not."""
    from pyarrow import dataset

    name = "windows"
    sql = "SELECT window.start AS minute, count(*) AS orders, sum(n) AS total FROM orders GROUP BY window(at, '1 minute')"
    text = (
        f'[[transform]]\nname = "{name}"\nsql = "{sql}"\ntable = "windows"\nmax-rows = 4\n'
        f'[[transform.source]]\nname = "orders"\ndestinations = ["/queue/{name}"]\nschema = "at TIMESTAMP, n INT"\n'
        'watermark = "30 seconds"\nwatermark-column = "at"\n'
    )
    commit = transform_module._write
    deaths = 0

    def dying(*arguments: Any, **named: Any) -> None:
        nonlocal deaths
        deaths += 1
        if deaths % 2 == 0:
            commit(*arguments, **named)
        raise RuntimeError("as the test asked")

    def second(number: int) -> bytes:
        return json.dumps({"at": f"2026-03-01T00:{number // 60:02}:{number % 60:02}Z", "n": number}).encode()

    for first in (0, 100, 200, 300):  # s; each of them closes windows of those before
        send(url, f"/queue/{name}", [second(number) for number in range(first, first + 100, 10)])
        with monkeypatch.context() as patched, pytest.raises(LocalError, match="as the test asked"):
            patched.setattr(transform_module, "_write", dying)
            run(text, name)
        run(text, name)
    send(url, f"/queue/{name}", [second(5), second(1000)])  # one too late, and one that closes all
    run(text, name)
    rows = (
        dataset.dataset(tmp_path / "windows", partitioning="hive", exclude_invalid_files=True)
        .to_table()
        .to_pylist()
    )
    found = sorted((row["minute"].minute, row["orders"], row["total"]) for row in rows)
    assert found == [
        (minute, len(own), sum(own))
        for minute in range(7)
        if (own := [n for n in range(0, 400, 10) if n // 60 == minute])
    ]
    assert deaths == 4
