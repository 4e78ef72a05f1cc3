"""The rows of the table: what load each one puts on a broker.

Decides what is sent, so that every broker gets the very same bytes. Knows no broker and starts nothing.

Each row says `persistent` outright: brokers differ in what they do when a SEND does not, and a figure of one that stores
beside a figure of one that does not would compare nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NOT_PERSISTENT = "persistent:false"


class Figure(Enum):
    """What a row's cell shows."""

    RATE = "messages/s"  # deliveries/s on a topic
    LATENCY = "p50 / p99 in ms"
    CPU = "us of the broker's CPU for a delivery"  # of loads that come at a rate of their own


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    messages: for each producer, at scale 1. options: arguments of stompload beside destination, messages and persistence.
    """

    key: str
    title: str
    messages: int
    options: tuple[str, ...] = ()
    persistent: bool = False
    topic: bool = False
    send_only: bool = False
    figure: Figure = Figure.RATE

    def destination(self, turn: str) -> str:
        """An address that nothing has used before in this run; `turn` names the measurement."""
        return f"/{'topic' if self.topic else 'queue'}/bench.{self.key}.{turn}"

    def arguments(self, turn: str, *, scale: float, not_persistent: str = NOT_PERSISTENT) -> list[str]:
        """What stompload is called with. `scale` multiplies the messages; `not_persistent` is how a broker is told not to store."""
        shape = ["--topic"] if self.topic else ["--send-only"] if self.send_only else []
        stored = "persistent:true" if self.persistent else not_persistent
        return [*self._messages(turn, scale), "--sendhdrs", stored, *self.options, *shape]

    def drain_arguments(self, turn: str, *, scale: float) -> list[str]:
        """Reads back what a send-only row left behind, so that its count is checked too."""
        return [*self._messages(turn, scale), *self.options, "--drain-only", "--consumers", "1"]

    def _messages(self, turn: str, scale: float) -> list[str]:
        return ["--dest", self.destination(turn), "--msgs", str(max(1, round(self.messages * scale)))]


ACK_EACH = ("--ack", "client-individual")
RECEIPT_EACH = ("--window", "1000")  # at most 1000 receipts outstanding
WAIT_FOR_EACH = ("--window", "1", "--batch", "1")
# one frame in one write, each 20 ms
SENSORS = ("--producers", "192", "--rate", "50", "--ndest", "16", "--consumers", "16")

ROWS: tuple[Row, ...] = (
    Row("queue", "one queue, auto ack, not persistent", 400_000),
    Row("queue-1k", "the same, 1 KB", 300_000, ("--size", "1024")),
    Row(
        "queues-16",
        "16 queues, 16 producers, 16 consumers",
        40_000,
        ("--ndest", "16", "--producers", "16", "--consumers", "16"),
    ),
    Row(
        "topic", "topic, 1 producer to 4 consumers (deliveries/s)", 200_000, ("--consumers", "4"), topic=True
    ),
    Row("ack", "client-individual ACK of each message", 400_000, ACK_EACH),
    Row("receipt", "a receipt for each, 1000 outstanding, not persistent", 400_000, RECEIPT_EACH),
    Row(
        "persistent",
        "persistent, receipt and ACK for each",
        200_000,
        (*RECEIPT_EACH, *ACK_EACH),
        persistent=True,
    ),
    Row(
        "persistent-8",
        "persistent, 8 producers, 1 KB, receipt and ACK for each",
        20_000,
        ("--producers", "8", "--size", "1024", *RECEIPT_EACH, *ACK_EACH),
        persistent=True,
    ),
    Row(
        "sync",
        "persistent, one sender that waits for each receipt",
        10_000,
        WAIT_FOR_EACH,
        persistent=True,
        send_only=True,
    ),
    Row(
        "sync-16",
        "the same, 16 senders",
        3_000,
        ("--producers", "16", *WAIT_FOR_EACH),
        persistent=True,
        send_only=True,
    ),
    Row("unique", "headers with a new value in each message", 400_000, ("--unique",)),
    Row("producers-32", "32 producers, one frame per write", 12_000, ("--producers", "32", "--batch", "1")),
    Row(
        "transactions",
        "transactions of 100, persistent",
        200_000,
        ("--txn", "--batch", "100"),
        persistent=True,
    ),
    Row(
        "waiting-16",
        "16 clients that wait for each receipt, not persistent, 16 queues",
        3_000,
        ("--producers", "16", "--ndest", "16", "--consumers", "16", *WAIT_FOR_EACH),
    ),
    Row(
        "waiting-16-stored",
        "the same, persistent, an ACK for each",
        2_000,
        ("--producers", "16", "--ndest", "16", "--consumers", "16", *WAIT_FOR_EACH, *ACK_EACH),
        persistent=True,
    ),
    Row(
        "sensors",
        "192 producers x 50/s to 16 queues (us of CPU for a delivery)",
        200,
        SENSORS,
        figure=Figure.CPU,
    ),
    Row(
        "sensors-stored",
        "the same, persistent, receipt and ACK for each (us)",
        200,
        (*SENSORS, *RECEIPT_EACH, *ACK_EACH),
        persistent=True,
        figure=Figure.CPU,
    ),
    Row(
        "ticker",
        "topic, 100/s to 200 consumers (us)",
        400,
        ("--rate", "100", "--consumers", "200"),
        topic=True,
        figure=Figure.CPU,
    ),
    Row(
        "latency",
        "latency p50 / p99 at 20,000/s, one frame per write (ms)",
        100_000,
        ("--rate", "20000"),
        figure=Figure.LATENCY,
    ),
)

WARM_UP: tuple[Row, ...] = (  # not counted: a virtual machine compiles its hot path, files grow to their size
    Row("warm-up", "not persistent", 150_000),
    Row("warm-up-stored", "persistent", 50_000, (*RECEIPT_EACH, *ACK_EACH), persistent=True),
)
