"""What the demo is told, where it writes, and the configuration that it gives the broker."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MARK: Final = ".departures-board"  # in the output folder: made by the demo, so it may be made anew

BROKER: Final = """\
# Made by the demo. `stompbox serve --config {path}` starts the broker with it.
data = "{data}"

[[listener]]
url = "tcp://127.0.0.1:0"

[admin]
listen = "127.0.0.1:0"       # any free port: another broker may have the usual one on this machine

[[address-setting]]          # flights stay in their logs although everybody has read them: Spark and replay read them again
match = "flights.#"
retention-ms = 604800000     # a week

[[address]]
name = "late"
routing-types = ["anycast"]

[[divert]]                   # a copy of each flight that left more than an hour late is work for somebody
name = "late"
address = "flights.#"
forwarding-address = "late"
filter = "dep_delay > 60"
"""


class OutputRefused(Exception):
    """The output folder holds something that the demo did not make."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`limit` flights (0: all), spread evenly over the year; everything that the demo writes is below `output`."""

    output: Path
    limit: int = 0

    @property
    def logs(self) -> Path:
        return self.output / "logs"

    @property
    def table(self) -> Path:
        return self.output / "flights.parquet"

    @property
    def checkpoint(self) -> Path:
        return self.output / "checkpoint"

    @property
    def configuration(self) -> Path:
        return self.output / "stompbox.toml"

    @property
    def late(self) -> Path:
        return self.output / "late.txt"

    @property
    def report(self) -> Path:
        return self.output / "report.html"

    @property
    def results(self) -> Path:
        return self.output / "results.json"

    def book(self, worker: str) -> Path:
        return self.output / f"{worker}.txt"

    def prepare(self) -> None:
        """An empty output folder with the broker's configuration. Raises OutputRefused when the folder holds a stranger's files."""
        if self.output.exists() and any(self.output.iterdir()):
            if not (self.output / MARK).is_file():
                raise OutputRefused(
                    f"{self.output} is not empty, and the demo did not make it: name another folder with --output"
                )
            shutil.rmtree(self.output)
        self.logs.mkdir(parents=True)
        (self.output / MARK).touch()
        data = self.output / "data"
        self.configuration.write_text(BROKER.format(path=self.configuration, data=data), encoding="utf-8")
