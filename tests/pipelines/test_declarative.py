"""examples/declarative-pipeline, run by Spark's own command against a real broker. Needs what `pyspark[pipelines]` brings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyarrow import dataset

from stompbox import blocking
from stompbox.spark.session import java_home
from tests.conftest import ROOT
from tests.pipelines.conftest import send

EXAMPLE = ROOT / "examples" / "declarative-pipeline"
NEEDED = ("grpc", "grpc_status", "google.protobuf", "zstandard", "yaml", "pandas")
WITHIN = 300.0  # s, on a busy machine


def test_the_example_runs_and_every_message_is_in_its_table_once(
    url: str, python: str, tmp_path: Path
) -> None:
    for package in NEEDED:
        pytest.importorskip(package)
    folder = tmp_path / "pipeline"
    shutil.copytree(EXAMPLE, folder)
    spec = folder / "spark-pipeline.yml"
    spec.write_text(
        spec.read_text().replace("file:///tmp/stompbox-declarative-pipeline", (tmp_path / "state").as_uri())
    )
    send(url, "/queue/orders", [b"%d" % number for number in range(25)])
    command = Path(sys.executable).parent / "spark-pipelines"
    environment = {
        **os.environ, "STOMPBOX_URL": url, "PYSPARK_PYTHON": python, "JAVA_HOME": str(java_home(os.environ)),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    arguments = [command, "run", "--conf", "spark.ui.enabled=false"]
    done = subprocess.run(
        arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=WITHIN, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    rows = dataset.dataset(folder / "spark-warehouse" / "orders", partitioning="hive").to_table().to_pylist()
    assert Counter(row["offset"] for row in rows) == Counter(range(25))
    assert {bytes(row["body"]) for row in rows} == {b"%d" % number for number in range(25)}
    hours = dataset.dataset(folder / "spark-warehouse" / "orders_by_hour").to_table().to_pylist()
    assert sum(row["messages"] for row in hours) == 25
    with blocking.connect(url) as client, client.subscribe("/queue/orders.archived") as messages:
        copies = [json.loads(message.body)["offset"] for message in messages.iterate(2.0)]
    assert sorted(copies) == list(range(25))
