"""Fixtures of the pipeline tests: a durable broker, and steps that run as `stompbox pipeline run --once` runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from stompbox import blocking
from tests.conftest import end, start_broker

FORMATS = ("parquet", "delta", "iceberg")
Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A durable broker, which the tests of a module share: addresses of your own. Retention passes those that begin with `kept-`."""
    folder = tmp_path_factory.mktemp("broker")
    settings = [
        f'[[address-setting]]\nmatch = "kept-{kept}.#"\nretention-messages = 10\n' for kept in FORMATS
    ]
    settings.append('[[address-setting]]\nmatch = "report.late"\nexpiry-address = "report.dead"\n')
    (folder / "kept.toml").write_text("".join(settings))
    arguments = ("--data", "data", "--listen", "tcp://127.0.0.1:0", "--no-admin", "--config", "kept.toml")
    served = start_broker(folder, *arguments)
    yield f"stomp://{served.host}:{served.port}"
    end(served)


@pytest.fixture
def run(spark: Any, url: str, tmp_path: Path) -> Run:
    """run(text, *steps): a pipeline file of this text, its steps once; what each has said at its end."""
    from stompbox.pipelines import running
    from stompbox.pipelines.checks import check
    from stompbox.pipelines.plan import read_plan
    from stompbox.pipelines.progress import Finished

    def once(text: str, *names: str) -> dict[str, Any]:
        file = tmp_path / "lake.toml"
        file.write_text(f'url = "{url}"\n{text}')
        plan = read_plan(file, {})
        check(plan)
        said: list[Any] = []
        steps, _ = running.chosen(plan, names, once=True)
        running.run(spark, plan, steps, said.append, Event(), once=True)
        return {event.step: event for event in said if isinstance(event, Finished)}

    return once


def send(
    url: str, destination: str, bodies: Iterable[bytes], headers: Mapping[str, str] | None = None
) -> None:
    """One message per body, its number as header `id`, in order and confirmed."""
    with blocking.connect(url) as client:
        for number, body in enumerate(bodies):
            client.send(destination, body, headers={"id": str(number), **(headers or {})})


def stored(url: str, destination: str) -> list[dict[str, Any]]:
    """What the broker has of a destination, in the order of offsets."""
    from stompbox.spark.link import leased
    from stompbox.spark.offsets import OffsetRange
    from stompbox.spark.options import Given, source_options
    from stompbox.spark.reading import View, batches
    from stompbox.spark.requests import describe

    given = source_options(Given({"url": url, "destination": destination}), streaming=False)
    with leased(given.target) as link:
        extents = describe(link, destination, create=False).extents
    ranges = [OffsetRange(address, extent.first, extent.next) for address, extent in extents.items()]
    rows = [row for batch in batches(given, ranges, View(("headers", "body"))) for row in batch.to_pylist()]
    return [{"headers": dict(row["headers"]), "body": row["body"]} for row in rows]
