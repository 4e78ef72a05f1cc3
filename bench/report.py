"""What the measurements say: verdicts on single runs, medians, the Markdown table.

Pure functions over values; measures nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.rows import Figure, Row

Result = Mapping[str, float]  # what stompload printed, and `drained_*` of the reading back

# of a result: what is compared
KEYS = {Figure.RATE: "msgs_per_s", Figure.LATENCY: "lat_ms_p99", Figure.CPU: "cpu_us"}
REFERENCE = "artemis"  # what the last column compares with
LABELS = {"stompbox": "Stompbox", "artemis": "Artemis", "classic": "ActiveMQ Classic", "rabbitmq": "RabbitMQ"}


@dataclass(frozen=True, slots=True)
class Machine:
    """What a figure means nothing without."""

    cores: int
    python: str
    commit: str
    fdatasync_ms: float


@dataclass(slots=True)
class Measured:
    """One broker's figures: seconds from launch to ready, MiB resident, and each row's runs in their order."""

    start_seconds: float = 0.0
    idle_mib: float = 0.0
    peak_mib: float = 0.0
    runs: dict[str, list[Result]] = field(default_factory=dict)


def fault(result: Result) -> str:
    """What went wrong with the messages of one run, or the empty string."""
    counts = {
        "lost": result["expected"] - result["received"] + result.get("drained_lost", 0),
        "duplicates": result["duplicates"] + result.get("drained_duplicates", 0),
        "out of order": result["disorder"] + result.get("drained_disorder", 0),
        "damaged": result["damaged"],
    }
    wrong = [f"{int(count)} {what}" for what, count in counts.items() if count > 0]
    if not wrong and result["failed"]:
        wrong = ["the load generator was refused or cut off"]
    return ", ".join(wrong)


def middle(runs: Sequence[Result], key: str) -> float:
    """The median over the runs."""
    return median(run[key] for run in runs)


def cell(row: Row, runs: Sequence[Result]) -> str:
    """One broker's entry in one row."""
    if not runs:
        return "-"
    if any(fault(run) for run in runs):
        return "**failed**"
    if row.figure is Figure.LATENCY:
        return f"{middle(runs, 'lat_ms_p50'):.2f} / {middle(runs, 'lat_ms_p99'):.2f}"
    if row.figure is Figure.CPU:
        return f"{middle(runs, 'cpu_us'):.0f}"
    return f"{rounded(middle(runs, 'msgs_per_s')):,}"


def rounded(rate: float) -> int:
    """Three figures: more would claim more than a shared machine can say."""
    digits = max(0, len(str(int(rate))) - 3)
    return int(round(rate, -digits))


def ratio(row: Row, ours: Sequence[Result], theirs: Sequence[Result]) -> str:
    """How many times better: a rate divided by the other's, a p99 latency or CPU the other way round."""
    if not ours or not theirs or any(fault(run) for run in (*ours, *theirs)):
        return "-"
    key = KEYS[row.figure]
    ours_value, theirs_value = middle(ours, key), middle(theirs, key)
    if ours_value <= 0 or theirs_value <= 0:
        return "-"
    times = ours_value / theirs_value if row.figure is Figure.RATE else theirs_value / ours_value
    return f"{times:.1f}x"


def spread(runs: Sequence[Result], key: str = "msgs_per_s") -> float:
    """(highest - lowest) / median of the rate, or of another figure; 0 with fewer than two runs."""
    rates = [run[key] for run in runs]
    return (max(rates) - min(rates)) / median(rates) if len(rates) > 1 and median(rates) > 0 else 0.0


def table(machine: Machine, rows: Sequence[Row], measured: Mapping[str, Measured]) -> str:
    """The whole table as Markdown, with the machine above it and the noisy rows named below it."""
    brokers = list(measured)
    compared = REFERENCE in measured and "stompbox" in measured and len(brokers) > 1
    head = [
        "messages/s",
        *(LABELS[b] for b in brokers),
        *([f"Stompbox to {LABELS[REFERENCE]}"] if compared else []),
    ]
    lines = [_line(head), _line(["---", *["---:"] * (len(head) - 1)])]
    for row in rows:
        cells = [cell(row, measured[b].runs.get(row.key, [])) for b in brokers]
        if compared:
            cells.append(
                ratio(
                    row, measured["stompbox"].runs.get(row.key, []), measured[REFERENCE].runs.get(row.key, [])
                )
            )
        lines.append(_line([row.title, *cells]))
    for title, text in _resources(measured):
        lines.append(_line([title, *text, *([""] if compared else [])]))
    return "\n".join([_about(machine, rows, measured), "", *lines, *_noise(rows, measured)]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _about(machine: Machine, rows: Sequence[Row], measured: Mapping[str, Measured]) -> str:
    runs = max((len(m.runs.get(row.key, [])) for m in measured.values() for row in rows), default=0)
    return (
        f"{machine.cores} cores, Python {machine.python}, commit {machine.commit}, one fdatasync {machine.fdatasync_ms:.2f} ms; "
        f"100-byte bodies where not said; medians of {runs} runs, the brokers taking turns"
    )


def _resources(measured: Mapping[str, Measured]) -> list[tuple[str, list[str]]]:
    values = measured.values()
    return [
        ("start to ready (s)", [f"{m.start_seconds:.2f}" for m in values]),
        ("resident memory, idle (MiB)", [f"{m.idle_mib:,.0f}" for m in values]),
        ("resident memory at its highest (MiB)", [f"{m.peak_mib:,.0f}" for m in values]),
    ]


def _noise(rows: Sequence[Row], measured: Mapping[str, Measured], *, limit: float = 0.25) -> list[str]:
    noisy = [
        f"{LABELS[name]} {row.key} {spread(m.runs[row.key], KEYS[row.figure]):.0%}"
        for row in rows
        for name, m in measured.items()
        if row.key in m.runs and spread(m.runs[row.key], KEYS[row.figure]) > limit
    ]
    return (
        ["", f"Runs that differ by more than {limit:.0%} of their median: {'; '.join(noisy)}."]
        if noisy
        else []
    )
