"""Audits with a real broker and a real Spark: nothing is found where nothing is wrong, and every kind of damage has its name."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyarrow import compute, parquet

pytest.importorskip("pyspark")

from stompbox import blocking
from stompbox.pipelines.settings import Format
from stompbox.pipelines.tables import open_table, staging_of
from tests.pipelines.conftest import Run, send

TEXT = """
[[archive]]
name = "orders"
destinations = ["/queue/audit"]
table = "table"
[[audit]]
name = "audit"
archive = "orders"
sent = "sent.jsonl"
output = "differences"
"""


def damage(folder: Path, change: Callable[[Any], Any]) -> None:
    """The rows of the table's one file, changed, in its place."""
    table = open_table(Format.PARQUET, folder)
    [file] = table.files()
    rows = change(parquet.ParquetFile(file.path).read())
    path = staging_of(folder) / "damaged.parquet"
    path.parent.mkdir(exist_ok=True)
    parquet.write_table(rows, path)
    assert table.replace([file], path)


def change(rows: Any) -> Any:
    """3 is missing, 5 is there twice, 7 has another body, 14 was never in the log."""
    rows = rows.filter(compute.field("offset") != 3)
    rows = pa.concat_tables([rows, rows.filter(compute.field("offset") == 5)])
    bodies = [
        b"other" if row["offset"] == 7 else row["body"] for row in rows.select(["offset", "body"]).to_pylist()
    ]
    rows = rows.set_column(rows.schema.get_field_index("body"), "body", pa.array(bodies, pa.binary()))
    strange = rows.slice(0, 1).set_column(
        rows.schema.get_field_index("offset"), "offset", pa.array([14], pa.int64())
    )
    return pa.concat_tables([rows, strange])


def record(file: Path, ids: list[int], other: int = -1) -> None:
    """What was sent, as its sender has written it down."""
    sums = {
        number: hashlib.sha256(b"else" if number == other else b"%d" % number).hexdigest() for number in ids
    }
    file.write_text("\n".join([json.dumps({"id": number, "checksum": sums[number]}) for number in ids]))


def test_nothing_is_found_where_nothing_is_wrong_and_damage_is_named(
    run: Run, url: str, tmp_path: Path
) -> None:
    send(url, "/queue/audit", [b"%d" % number for number in range(10)])
    run(TEXT, "orders")
    with blocking.connect(url) as client:
        for number in (10, 11):
            client.send("/queue/audit", b"%d" % number, headers={"id": str(number)})
    record(tmp_path / "sent.jsonl", list(range(12)))
    good = run(TEXT, "audit")["audit"]
    assert (good.ok, good.facts["differences"]) == (True, {})
    assert {name: good.facts[name] for name in ("stored", "archived", "waiting", "sent")} == {
        "stored": 12, "archived": 10, "waiting": 2, "sent": 12,
    }  # fmt: skip
    damage(tmp_path / "table", change)
    # 9 was not sent; 99 did not come
    record(tmp_path / "sent.jsonl", [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 99], other=2)
    bad = run(TEXT, "audit")["audit"]
    assert not bad.ok
    listed = {
        (found["kind"], found["offset"] if found["id"] == "" else found["id"], found["last"])
        for found in bad.facts["listed"]
    }
    assert listed == {
        ("missing", 3, 3), ("double", 5, 5), ("changed", 7, 7), ("beyond", 14, 14), ("gap", 12, 13),
        ("unarchived", "99", None), ("unsent", "9", 9), ("other-body", "2", 2), ("other-body", "7", 7), ("twice", "0", 0),
    }  # fmt: skip
    assert bad.facts["differences"] == {
        **dict.fromkeys([kind for kind, _, _ in listed], 1),
        "gap": 2,
        "other-body": 2,
    }
    assert len(parquet.read_table(tmp_path / "differences")) == len(listed)


def test_an_audit_says_when_there_was_nothing_to_compare() -> None:
    from stompbox.pipelines.audit import _text

    none = dict.fromkeys(("stored", "archived", "waiting", "compared"), 0)
    assert _text(none, {}).endswith("there was nothing to compare, neither on the broker nor in the table")
    assert _text(none | {"archived": 5}, {}).endswith(
        "no difference; nothing is in both, so no body was compared"
    )
    assert _text(none | {"stored": 5, "archived": 5, "compared": 5}, {}).endswith(": no difference")


def test_what_sums_say_is_so(spark: Any) -> None:
    """Each way in which a part of a log may differ, and those in which it may not: `gaps` is one where a selector leaves offsets out."""
    from stompbox.pipelines.audit import _PARTS, PART

    whole = range(PART - 3, PART + 3)  # over the border of two parts
    cases = {
        "good": (whole, whole), "archived-alone": (whole, ()), "double": ([1, 2, 2, 4], ()), "thrice": ([1, 2, 2, 2, 3], [1, 2, 3]),
        "missing": ([1, 3], [1, 2, 3]), "deleted": ([1, 2, 3], [1, 3]), "beyond": ([7, 8], [7, 8]), "waits": ((), [1]),
        "gaps": ([1, 3], [1, 3]), "changed": ([1, 2], [1, -2]), "exchanged": ([1, 2], [1, -3]),
    }  # fmt: skip
    session = spark.newSession()
    for name, side in (("archived", 0), ("stored", 1)):
        rows = [
            (address, abs(offset), b"%d" % offset)
            for address, sides in cases.items()
            for offset in sides[side]
        ]
        session.createDataFrame(rows, "address STRING, offset BIGINT, body BINARY").createOrReplaceTempView(
            name
        )
    places = [(address, 0, 8 if address == "beyond" else None) for address in cases]
    session.createDataFrame(places, "address STRING, position BIGINT, next BIGINT").createOrReplaceTempView(
        "logs"
    )
    for anywhere in ("false", "true"):
        parts = session.sql(_PARTS.format(anywhere=anywhere)).collect()
        good = {row["address"] for row in parts} - {row["address"] for row in parts if not row["is_good"]}
        assert good == {"good", "archived-alone"} | ({"gaps"} if anywhere == "true" else set())
    assert sum(row["address"] == "good" for row in parts) == 2


def test_only_what_is_not_good_is_read_again(spark: Any) -> None:
    """Two parts of a log that are far from each other, and nothing between them; nothing that is gone, or was never there."""
    from stompbox.pipelines.audit import _RANGES, PART

    session = spark.newSession()
    bad = [("far", 0), ("far", 1000), ("trimmed", 0), ("trimmed", 1), ("gone", 3), ("beyond", 2)]
    session.createDataFrame(bad, "address STRING, part BIGINT").createOrReplaceTempView("bad")
    places = [
        ("far", 0, 0, 2000 * PART, "a"), ("trimmed", 0, PART + 5, PART + 9, ""), ("gone", 0, None, None, ""),
        ("beyond", 0, 0, 2 * PART, ""), ("good", 0, 0, 5, ""),
    ]  # fmt: skip
    columns = "address STRING, position BIGINT, oldest BIGINT, next BIGINT, incarnation STRING"
    session.createDataFrame(places, columns).createOrReplaceTempView("logs")
    assert {tuple(row) for row in session.sql(_RANGES).collect()} == {
        ("far", 0, PART, "a"), ("far", 1000 * PART, 1001 * PART, "a"), ("trimmed", PART + 5, PART + 9, ""),
    }  # fmt: skip


def test_damage_in_parts_that_are_far_from_each_other_is_named(run: Run, url: str, tmp_path: Path) -> None:
    from stompbox.pipelines.audit import PART

    far, count = 2 * PART + 7, 2 * PART + 10
    fill(url, "/queue/audit.far", count)
    text = TEXT.replace("/queue/audit", "/queue/audit.far").replace('sent = "sent.jsonl"\n', "")
    text = text.replace('table = "table"\n', 'table = "table"\nnum-partitions = 1\n')  # which writes one file
    run(text, "orders")
    damage(
        tmp_path / "table",
        lambda rows: rows.filter(compute.invert(compute.is_in(rows["offset"], pa.array([5, far])))),
    )
    facts = run(text, "audit")["audit"].facts
    assert facts["differences"] == {"missing": 2}
    assert [found["offset"] for found in facts["listed"]] == [5, far]
    assert (facts["stored"], facts["archived"], facts["compared"]) == (count, count - 2, count - 2)


def fill(url: str, destination: str, count: int) -> None:
    """So many messages in one go, none waiting for the one before."""
    at = urlsplit(url)
    frames = [
        b"SEND\ndestination:%s\npersistent:true\n\n%d\0" % (destination.encode(), number)
        for number in range(count)
    ]
    with socket.create_connection((at.hostname or "", at.port or 0), 60.0) as client:
        client.sendall(
            b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0"
            + b"".join(frames)
            + b"DISCONNECT\nreceipt:all\n\n\0"
        )
        said = b""
        while b"receipt-id:all" not in said:
            received = client.recv(4096)
            assert received and b"ERROR" not in said, said
            said += received


def test_an_audit_looks_at_an_archive_that_goes_on_from_behind(
    run: Run, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First how far it has come, then what it has, then what the broker has: else what comes meanwhile is missing, or beyond."""
    from stompbox.pipelines import audit

    order: list[str] = []
    for name in ("positions", "read", "describe"):
        looked = getattr(audit, name)
        monkeypatch.setattr(
            audit,
            name,
            lambda *given, name=name, looked=looked, **more: order.append(name) or looked(*given, **more),
        )
    send(url, "/queue/audit", [b"0"])
    record(tmp_path / "sent.jsonl", [0])
    run(TEXT, "audit")
    assert order == ["positions", "read", "describe"]
