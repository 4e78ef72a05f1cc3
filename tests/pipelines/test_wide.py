"""A wildcard over thousands of addresses, through every step of a pipeline. 3,000 in short; with SOAK=1 25,000."""

from __future__ import annotations

import os
import shutil
import socket
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("pyspark")

from stompbox.pipelines.settings import Format
from stompbox.spark.link import leased
from stompbox.spark.options import Given, target_of
from stompbox.spark.requests import describe, group_positions
from tests.pipelines.conftest import Run
from tests.pipelines.lake import rows_of

MANY = 25_000 if "SOAK" in os.environ else 3_000
WITHIN = 120.0  # s for the broker to take them
FILES = 20  # of a table, whatever the number of addresses
WIDE = """
[[archive]]
name = "wide"
destinations = ["/topic/kept-parquet.#"]
table = "table"
[[report]]
name = "figures"
archives = ["wide"]
output = "report"
[[audit]]
name = "audit"
archive = "wide"
"""
JAVA = """
[[archive]]
name = "wide"
destinations = ["/topic/kept-iceberg.#"]
table = "table"
writer = "java"
schema = "name STRING, stop BIGINT, moment BIGINT"
"""


def spread(url: str, name: str, numbers: Iterable[int]) -> None:
    """A message to each of these addresses, none waiting for the one before."""
    frames = [
        b"SEND\ndestination:/topic/%s.%d\nid:%d\n\n%d\0" % (name.encode(), number, number, number)
        for number in numbers
    ]
    at = urlsplit(url)
    with socket.create_connection((at.hostname or "", at.port or 0), WITHIN) as client:
        client.sendall(b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0" + b"".join(frames))
        client.sendall(b"DISCONNECT\nreceipt:all\n\n\0")
        said = b""
        while b"receipt-id:all" not in said:
            received = client.recv(4096)
            assert received and b"ERROR" not in said, said
            said += received


def kept(folder: Path) -> Counter[tuple[str, int]]:
    return Counter((row["address"], row["offset"]) for row in rows_of(Format.PARQUET, folder / "table"))


def stored(url: str, name: str) -> Counter[tuple[str, int]]:
    """What the broker has of these addresses, whose logs begin at 0."""
    with leased(target_of(Given({"url": url}))) as link:
        extents = describe(link, f"/topic/{name}.#", create=False).extents
    return Counter((address, offset) for address, extent in extents.items() for offset in range(extent.next))


def test_a_wildcard_over_thousands_of_addresses(run: Run, url: str, tmp_path: Path) -> None:
    """Once each in the table, whose files are few; what comes later, to new addresses too, is in the next run; the group is where it is."""
    spread(url, "kept-parquet", range(MANY))
    spread(url, "kept-parquet", range(MANY))
    assert run(WIDE, "wide")["wide"].facts["rows"] == 2 * MANY
    assert kept(tmp_path) == stored(url, "kept-parquet") and len(kept(tmp_path)) == 2 * MANY
    assert len(list((tmp_path / "table").rglob("*.parquet"))) <= FILES
    spread(url, "kept-parquet", range(MANY - 50, MANY + 50))
    assert run(WIDE, "wide")["wide"].facts["rows"] == 100
    assert kept(tmp_path) == stored(url, "kept-parquet") and len(kept(tmp_path)) == 2 * MANY + 100
    with leased(target_of(Given({"url": url}))) as link:
        positions = group_positions(link, "lake-wide")
    assert len(positions) == MANY + 50 and positions["kept-parquet.0"] == 2


def test_report_and_audit_of_thousands_of_addresses(run: Run, url: str) -> None:
    """Also while some wait, of which the audit asks the broker again."""
    spread(url, "kept-delta", range(MANY))
    text = WIDE.replace("kept-parquet", "kept-delta")
    run(text, "wide")
    spread(url, "kept-delta", range(MANY - 50, MANY + 50))
    done = run(text, "figures", "audit")
    assert (
        done["figures"].facts["messages"],
        done["figures"].facts["addresses"],
        done["figures"].facts["waiting"],
    ) == (MANY, MANY, 100)
    assert done["audit"].ok and (done["audit"].facts["compared"], done["audit"].facts["waiting"]) == (
        MANY,
        100,
    )


def test_a_lost_checkpoint_of_thousands_of_addresses_doubles_nothing(
    run: Run, url: str, tmp_path: Path
) -> None:
    """What is in the table already is told apart by address, which Java does for any number of them."""
    spread(url, "kept-iceberg", range(MANY))
    run(JAVA)
    state = next(tmp_path.glob("*/wide"))
    shutil.rmtree(state)
    spread(url, "kept-iceberg", range(MANY - 50, MANY + 50))
    run(JAVA + 'group = "again"\n')
    assert kept(tmp_path) == stored(url, "kept-iceberg") and len(kept(tmp_path)) == MANY + 100
