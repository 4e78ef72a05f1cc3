"""What `stompbox pipeline run` prints when it cannot go on: one line, the documented exit code, no stack of anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from stompbox.cli import pipeline as command
from stompbox.cli import progress
from stompbox.pipelines import running
from stompbox.pipelines.plan import Plan
from stompbox.pipelines.progress import Batch, Event
from tests.conftest import Serve
from tests.pipelines.conftest import send
from tests.spark.soak import free_port

ARCHIVE = '[[archive]]\nname = "a"\ndestinations = ["/queue/refused"]\ntable = "table"\n'
SQL = """
[[transform]]
name = "t"
destination = "/queue/out"
sql = "SELECT {what} FROM s"
[[transform.source]]
name = "s"
destinations = ["/queue/refused"]
"""


@dataclass(frozen=True, slots=True)
class Case:
    """`head` stands before the url, which is the broker's where there is none."""

    text: str
    code: int
    words: str
    head: str = ""

    def __str__(self) -> str:
        return self.words


CASES = [
    Case("", 2, "there is no step"),
    Case(ARCHIVE + 'selector = "a = "\n', 2, "selector, position 5: found the end"),
    Case(ARCHIVE, 2, "trust-store-path: ", 'url = "stomps://127.0.0.1:1"\ntrust-store-path = "nowhere.pem"\n'),
    Case(ARCHIVE, 3, "for 0.2 s (option reconnectTimeout)", 'url = "stomp://127.0.0.1:{free}"\nreconnect-timeout = 200\n'),
    Case(ARCHIVE, 3, "no broker at stomps://127.0.0.1:", 'url = "stomps://127.0.0.1:{plain}"\nreconnect-timeout = 200\n'),
    Case(SQL.format(what="colour"), 1, "transform 't': [UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
    Case(SQL.format(what="a b c"), 1, "transform 't': [PARSE_SYNTAX_ERROR]"),
    Case(SQL.format(what="'x' AS body, 12 AS priority"), 1, "transform 't': column 'priority' holds 12 to 12; allowed are 0 to 9"),
    Case(SQL.format(what="1 AS body"), 1, "transform 't': column 'body' is of type int; format stomp writes it from binary or string"),
    Case(SQL.format(what="upper(raise_error('it is so')) AS body"), 1, "[USER_RAISED_EXCEPTION] it is so"),
    Case(ARCHIVE.replace('"table"', '"file/table"'), 1, "Not a directory: "),
    Case('[[replay]]\nname = "r"\ntable = "nowhere"\n', 2, "replay 'r': there is no row in "),
    Case('[[replay]]\nname = "r"\ntable = "damaged"\n', 1, "[FAILED_READ_FILE.CANNOT_READ_FILE_FOOTER]"),
    Case('[[replay]]\nname = "r"\ntable = "damaged"\nformat = "delta"\n', 1, "replay 'r': "),
    Case('[[replay]]\nname = "r"\ntable = "damaged"\nformat = "iceberg"\n', 1, "replay 'r': "),
]  # fmt: skip


def damaged(folder: Path) -> None:
    """A table in each format whose log, or whose file, is none."""
    (folder / "file").write_text("not a folder")
    for log in ("_delta_log", "_spark_metadata"):
        (folder / "damaged" / log).mkdir(parents=True)
    (folder / "damaged" / "_delta_log" / f"{0:020}.json").write_text("{")
    (folder / "damaged" / "catalog.db").write_text("no database" * 100)
    file = folder / "damaged" / "x.parquet"
    file.write_text("no rows")
    entry = f'{{"path": "{file.as_uri()}", "size": 7, "modificationTime": 1, "stompbox": {{"rows": 1, "batches": {{}}}}}}'
    (folder / "damaged" / "_spark_metadata" / "0.compact").write_text(f"v1\n{entry}")


@pytest.fixture
def shared(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command takes the session of the tests, and leaves their signals alone."""

    @contextmanager
    def spark_of(plan: Plan) -> Iterator[Any]:
        yield spark

    monkeypatch.setattr(running, "spark_of", spark_of)
    monkeypatch.setattr(command, "_stop_on_signals", lambda stop: None)


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.filterwarnings("default")
def test_one_line_and_the_exit_code(
    case: Case, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    send(url, "/queue/refused", [b"x"])
    damaged(tmp_path)
    head = (case.head or f'url = "{url}"\n').format(free=free_port(), plain=url.rpartition(":")[2])
    (tmp_path / "lake.toml").write_text(head + case.text)
    with pytest.raises(SystemExit) as ended:
        command.run(tmp_path / "lake.toml", once=True, json_lines=True)
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("stompbox pipeline: ")
    assert case.words in said
    assert ended.value.code == case.code


@pytest.mark.usefixtures("shared")
def test_a_broker_that_goes_away_in_the_middle(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """It is waited for, and then the run ends with the code for a broker that was not reached."""
    served = serve("--listen", "tcp://127.0.0.1:0", "--no-admin")
    url = f"stomp://127.0.0.1:{served.port}"
    send(url, "/queue/refused", [b"x"])
    (tmp_path / "lake.toml").write_text(f'url = "{url}"\nreconnect-timeout = 300\n{ARCHIVE}')

    def told(event: Event) -> None:
        if isinstance(event, Batch):
            served.process.kill()

    monkeypatch.setattr(progress, "display", lambda json_lines: nullcontext(told))
    with pytest.raises(SystemExit) as ended:
        command.run(tmp_path / "lake.toml")
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(
        f"stompbox pipeline: archive 'a': no broker at {url} for 0.3 s (option reconnectTimeout): "
    )
    assert ended.value.code == 3
