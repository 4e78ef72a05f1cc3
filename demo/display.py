"""What the demo shows while it runs: steps and events as lines, the streams as progress bars, and the last departures.

On a terminal the bars and the board stand below the lines and move; elsewhere only the lines are printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Any, Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

STEPS: Final = {
    1: "The broker starts",
    2: "Every flight is published, in the order of departure",
    3: "Subscribers work meanwhile",
    4: "Spark archives the stream",
    5: "Spark reports and audits, and sends its rows back",
    6: "The report is written",
}


class Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if not speed else f"{speed:>8,.0f}/s", style="cyan")


class Display:
    """Use as a context: the bars are there within it."""

    def __init__(self, console: Console) -> None:
        self.console: Final = console
        self._began: Final = monotonic()
        self._bars: Final = Progress(
            TextColumn("  {task.description:<34}"), BarColumn(30), MofNCompleteColumn(), Rate(), TimeElapsedColumn(),
            TextColumn("[yellow]{task.fields[note]}"), console=console,
        )  # fmt: skip
        self._tasks: Final[dict[str, Any]] = {}
        self._departures: Sequence[Sequence[str]] = ()
        self._live: Final = Live(
            console=console, get_renderable=self._render, refresh_per_second=5, transient=True
        )

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def title(self, text: str) -> None:
        self.console.print(f"[bold]{text}[/]\n")

    def step(self, *numbers: int) -> None:
        for number in numbers:
            self.console.print(f"[bold cyan]{number}[/]  [bold]{STEPS[number]}[/]")

    def event(self, text: str, *, style: str = "") -> None:
        """One line, with the seconds since the beginning."""
        self.console.print(
            f"   [dim]{monotonic() - self._began:6.1f} s[/]  [{style or 'default'}]{text}[/]", highlight=False
        )

    def done(self, text: str) -> None:
        self.event(f"[green]✓[/] {text}")

    def bar(self, name: str, text: str, total: int) -> None:
        self._tasks[name] = self._bars.add_task(text, total=total, note="")

    def move(self, name: str, completed: int) -> None:
        if name in self._tasks:
            self._bars.update(self._tasks[name], completed=completed)

    def note(self, name: str, text: str) -> None:
        if name in self._tasks:
            self._bars.update(self._tasks[name], note=text)

    def departures(self, flights: Sequence[Sequence[str]]) -> None:
        """The last that left: [date, time, carrier, flight, origin, dest, delay]."""
        self._departures = flights

    def clear(self) -> None:
        """No bars and no board any more."""
        for task in self._tasks.values():
            self._bars.remove_task(task)
        self._tasks.clear()
        self._departures = ()

    def _render(self) -> RenderableType:
        parts: list[RenderableType] = []
        if self._departures:
            parts.append(board(self._departures))
        if self._tasks:
            parts.append(self._bars)
        return Group(*parts)


def board(flights: Sequence[Sequence[str]]) -> Table:
    """A departures board, the newest flight on top."""
    table = Table(
        title="DEPARTURES",
        title_style="bold yellow on black",
        style="dim",
        box=None,
        padding=(0, 2),
        title_justify="left",
    )
    for heading in ("", "Date", "Time", "Flight", "From", "To", "Remark"):
        table.add_column(heading)
    for date, time, carrier, number, origin, dest, delay in reversed(flights):
        remark, style = remark_of(delay)
        table.add_row(
            "", date, f"{time[:2]}:{time[2:]}", f"{carrier} {number}", origin, dest, Text(remark, style=style)
        )
    return table


def remark_of(delay: str) -> tuple[str, str]:
    """What a board says of a flight, and in which colour. `delay` in minutes; empty: cancelled."""
    if not delay:
        return "CANCELLED", "red"
    minutes = int(delay)
    if minutes > 15:
        return f"DELAYED {minutes // 60}:{minutes % 60:02d}", "yellow"
    return "ON TIME", "green"
