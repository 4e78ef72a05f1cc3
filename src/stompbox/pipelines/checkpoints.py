"""What a step's checkpoint says without Spark: how far it has come, and under which id.

Spark keeps, per batch, a file `offsets/N` (planned) and a file `commits/N` (done); `metadata` holds the query's id. A folder that is not
there is a step that has not begun. Beside it stands whose it is: two files in one folder may have steps of one name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from stompbox.errors import LocalError
from stompbox.pipelines import disk
from stompbox.spark.offsets import Offset, number_of

OWNER: Final = "pipeline"  # in a step's folder: the name of the pipeline whose step it is


def require_own(state: Path, pipeline: str) -> None:
    """Raises LocalError where another pipeline's step of the same name has its checkpoint: this one would go on where that one is."""
    try:
        owner = (state / OWNER).read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    if owner != pipeline:
        text = f"{state} says how far step {state.name!r} of pipeline {owner!r} has come, and this is pipeline {pipeline!r}"
        raise LocalError(
            "other-pipeline",
            f"{text}; give the file a `folder` of its own, or name = {json.dumps(owner)} if it is that one",
        )


def claim(state: Path, pipeline: str) -> None:
    """Makes the step's folder this pipeline's; one of an older version is whose step runs first. Raises as above."""
    require_own(state, pipeline)
    if not (state / OWNER).exists():
        disk.write(state / OWNER, pipeline.encode())


def query_id(checkpoint: Path) -> str:
    """The id of the query, which lives as long as its checkpoint; empty without one."""
    try:
        return str(json.loads((checkpoint / "metadata").read_text())["id"])
    except FileNotFoundError:
        return ""


def batches_done(checkpoint: Path) -> int:
    """The last batch that was done; -1: none."""
    return max(_numbers(checkpoint / "commits"), default=-1)


def positions(checkpoint: Path) -> dict[str, int]:
    """Per address, the offset after the last message of the last batch done; of several sources, the one furthest behind."""
    done = batches_done(checkpoint)
    if done < 0:
        return {}
    found: dict[str, int] = {}
    for offsets in _sources(checkpoint / "offsets" / str(done)):
        for address, offset in offsets.items():
            found[address] = min(number_of(offset), found.get(address, number_of(offset)))
    return found


def _sources(file: Path) -> Iterator[dict[str, Offset]]:
    """A line `v1` (or v2), a line about the batch, then one per source: its offsets, or `-` (v2: key and value as JSON)."""
    version, _, *lines = file.read_text().splitlines()
    for line in lines:
        value: Any = None if line == "-" else json.loads(line)
        if version != "v1" and isinstance(value, dict) and isinstance(value.get("offset"), str):
            value = json.loads(value["offset"])
        if isinstance(value, dict) and all(isinstance(offset, int | list) for offset in value.values()):
            yield value


def _numbers(folder: Path) -> Iterator[int]:
    try:
        yield from (int(path.name) for path in folder.iterdir() if path.name.isdigit())
    except FileNotFoundError:
        return
