"""The screen of `stompbox top`, with Textual: a head, the plot of ten minutes, a table of addresses or of connections.

Decides what the keys do and which columns there are; what the numbers are, sampling.py does. A thread of its own asks the broker, so a
broker that does not answer stops neither the keys nor the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event, Thread
from typing import ClassVar, Final, NamedTuple

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.message import Message
from textual.widgets import DataTable, Footer, Input, Sparkline, Static

from stompbox.cli.asking import plain, span
from stompbox.cli.connecting import counted
from stompbox.cli.sampling import (
    PASSED,
    Rates,
    Row,
    Sample,
    Take,
    address_rows,
    attempt,
    chosen,
    connection_rows,
    octets,
    rates,
    short,
)

SHOWN: Final = 500  # rows of a table: the first by its order


class Column(NamedTuple):
    """A column of a table: its head, the key of the row, how many characters, and the letter that sorts by it."""

    head: str
    key: str
    width: int
    letter: str


ADDRESSES: Final = (
    Column("address", "name", 27, "n"), Column("in/s", "in", 6, "i"), Column("done/s", "done", 6, "o"),
    Column("ready", "ready", 6, "r"), Column("unacked", "delivering", 7, "d"), Column("cons", "consumers", 5, "c"), Column("", "", 7, ""),
)  # fmt: skip
CONNECTIONS: Final = (
    Column("client", "client", 21, "n"), Column("user", "user", 10, "u"), Column("client-id", "client_id", 9, ""),
    Column("subs", "reads", 5, "c"), Column("unacked", "delivering", 7, "d"), Column("mem", "memory_bytes", 6, "m"), Column("", "", 6, ""),
)  # fmt: skip
_TEXTS: Final = ("name", "client", "user", "client_id")


class Sampled(Message):
    """The broker has answered, or not: then it is why."""

    def __init__(self, found: Sample | str) -> None:
        self.found: Final = found
        super().__init__()


class Top(App[None]):
    """The screen. `take` is called in a thread every `interval` seconds."""

    CSS = """
    #head, #error { height: auto; padding: 0 1; }
    #error { color: $error; text-style: bold; display: none; }
    Sparkline { height: 2; margin: 0 1; }
    #match { display: none; height: 3; }
    DataTable { height: 1fr; overflow-x: hidden; }
    """
    ENABLE_COMMAND_PALETTE = False
    TITLE = "stompbox top"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("tab", "turn", "other table", priority=True),
        Binding("slash", "look", "find"),
        Binding("space", "hold", "hold"),
        Binding("escape", "leave", "all", show=False, priority=True),
        *[
            Binding(letter, f"sort('{letter}')", show=False)
            for letter in sorted({column.letter for column in (*ADDRESSES, *CONNECTIONS) if column.letter})
        ],
    ]

    def __init__(self, take: Take, interval: float, match: str = "") -> None:
        super().__init__()
        self._take: Final = take
        self._interval: Final = interval
        self._match = match
        self._is_addresses = True
        self._order = {True: ("ready", True), False: ("delivering", True)}
        self._before: Sample | None = None
        self._last: Sample | None = None
        self._rates = Rates()
        self._is_held = False
        self._wide = 80  # columns of the terminal
        self._gone: Final = Event()

    def compose(self) -> ComposeResult:
        yield Static("asking the broker", id="head")
        yield Static("", id="error")
        yield Sparkline([], id="plot")
        yield Input(self._match, placeholder="part of a name; Enter to go on, Escape for all", id="match")
        yield DataTable(cursor_type="row", zebra_stripes=True)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(DataTable).focus()
        Thread(target=self._watch, daemon=True, name="stompbox-top").start()

    def on_unmount(self) -> None:
        self._gone.set()

    def _watch(self) -> None:
        """In a thread of its own, which nobody waits for at the end."""
        while not self._gone.is_set():
            self.post_message(Sampled(attempt(self._take)))
            self._gone.wait(self._interval)

    def on_sampled(self, event: Sampled) -> None:
        """Shows a sample; without one the last stays, and a line says why."""
        shown = self.query("#error").results(Static)
        error = next(shown, None)
        if error is None:  # the screen is being taken down
            return
        error.display = isinstance(event.found, str)
        if isinstance(event.found, str):
            error.update(Text(plain(f"{event.found}; asked again every {self._interval:g} s")))
            return
        if self._is_held:
            return
        self._before, self._last = self._last, event.found
        self._rates = rates(self._before, event.found)
        self._show()

    def _show(self) -> None:
        taken = self._last
        if taken is None:
            return
        columns = self._columns()
        rows = address_rows(taken, self._rates) if self._is_addresses else connection_rows(taken)
        key, is_falling = self._order[self._is_addresses]
        texts = tuple(column.key for column in columns if column.key in _TEXTS)
        found = chosen(rows, self._match, key, is_falling=is_falling, columns=texts)
        self.query_one("#head", Static).update(self._head(taken, len(found)))
        received = [max(0, each) for each in taken.history.get("received", [])]
        plot = self.query_one("#plot", Sparkline)
        plot.display = bool(received)
        plot.data = received
        self._fill(columns, found[:SHOWN])

    def _head(self, taken: Sample, rows: int) -> Text:
        status, found = taken.status, self._rates.broker
        state = (
            "ready" if status["is_ready"] else "; ".join([reason["message"] for reason in status["reasons"]])
        )
        held = "  HELD, space goes on" if self._is_held else ""
        ready = sum([one["ready"] for one in taken.addresses])
        lines = [
            f"Stompbox {status['version']}, up {span(status['uptime'])}, {state}{held}",
            "  ".join(
                [
                    *[
                        f"{word} {short(found.get(name))}/s"
                        for word, name in zip(("in", "out", "acked"), PASSED, strict=True)
                    ],
                    f"ready {short(ready)}",
                    f"connections {short(status['connections'])}",
                    f"memory {octets(status['resident_bytes'])}",
                ]
            ),
            self._about(taken, rows),
            "sort: " + "  ".join([f"{each.letter} {each.head}" for each in self._columns() if each.letter]),
        ]
        return Text("\n".join([plain(line) for line in lines]), no_wrap=True, overflow="ellipsis")

    def _about(self, taken: Sample, found: int) -> str:
        """Says what the table shows, in which order, and what the plot above it is of."""
        key, is_falling = self._order[self._is_addresses]
        way = "largest" if is_falling else "smallest"
        column = next(column for column in self._columns() if column.key == key)
        count = taken.total if self._is_addresses else len(taken.connections)
        about = counted(count, "address" if self._is_addresses else "connection")
        if self._match:
            about = f"{found:,} of {about} with {self._match!r}"
        refused = f"; {taken.refused}" if taken.refused and not self._is_addresses else ""
        plot = "; plot: in/s of ten minutes" if taken.history.get("received") else ""
        return f"{about}, by {column.head}, the {way} first{refused}{plot}"

    def _columns(self) -> tuple[Column, ...]:
        return ADDRESSES if self._is_addresses else CONNECTIONS

    def _fill(self, columns: tuple[Column, ...], rows: Sequence[Row]) -> None:
        table = self.query_one(DataTable)
        is_same = [str(key.value) for key in table.columns] == [column.head for column in columns]
        at = table.cursor_row if is_same else 0
        offset = table.scroll_offset
        if is_same:
            table.clear()
        else:
            table.clear(columns=True)
            for column in columns:
                head = Text(
                    column.head, justify="left" if column.key in _TEXTS or not column.key else "right"
                )
                table.add_column(head, key=column.head, width=self._width(column))
        for one in rows:
            table.add_row(*[self._cell(one, column) for column in columns])
        if is_same:
            table.move_cursor(row=at, scroll=False)
            table.scroll_to(y=offset.y, animate=False)

    def _width(self, column: Column) -> int:
        """The first column takes what the terminal has beyond 80."""
        return column.width + max(0, self._wide - 80) if column is self._columns()[0] else column.width

    def _cell(self, one: Row, column: Column) -> Text:
        if not column.key:
            return Text(_state(one, is_address=self._is_addresses))
        value = one[column.key]
        if column.key in _TEXTS:
            return Text(plain(value), no_wrap=True, overflow="ellipsis")
        return Text(octets(value) if column.key == "memory_bytes" else short(value), justify="right")

    def on_resize(self, event: Resize) -> None:
        """Makes the columns anew, which fit the width."""
        self._wide = event.size.width
        if self._last is not None:
            self.query_one(DataTable).clear(columns=True)
            self._show()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sorts by the column that was clicked."""
        self._sort(self._columns()[event.column_index])

    def action_sort(self, letter: str) -> None:
        """Sorts by the column of a letter; pressed again, the other way round."""
        for column in self._columns():
            if column.letter == letter:
                self._sort(column)

    def _sort(self, column: Column) -> None:
        if not column.key:
            return
        key, is_falling = self._order[self._is_addresses]
        first = column.key not in _TEXTS
        self._order[self._is_addresses] = (column.key, not is_falling if key == column.key else first)
        self._show()

    def action_turn(self) -> None:
        """Turns to the other table."""
        self._is_addresses = not self._is_addresses
        self._show()

    def action_hold(self) -> None:
        """Keeps what is shown as it is, and goes on."""
        self._is_held = not self._is_held
        self._show()

    def action_look(self) -> None:
        """Opens the line in which a part of a name is written."""
        line = self.query_one("#match", Input)
        line.display = True
        line.focus()

    def action_leave(self) -> None:
        """Closes that line; all names are shown."""
        self.query_one("#match", Input).value = ""
        self.on_input_submitted()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Shows at once what the part of a name leaves."""
        self._match = event.value
        self._show()

    def on_input_submitted(self) -> None:
        """Goes back to the table."""
        self.query_one("#match", Input).display = False
        self.query_one(DataTable).focus()


def _state(one: Row, *, is_address: bool) -> str:
    """In a word, what keeps messages from going on."""
    if not is_address:
        return "waits" if one["waits_for"] else ""
    return next((word for word in ("paused", "blocked", "full") if one[f"is_{word}"]), "")
