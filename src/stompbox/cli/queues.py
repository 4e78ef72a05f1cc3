"""`stompbox queues`, `stompbox groups` and `stompbox sinks`: what waits for whom; where a reader group goes on, and a sink."""

from __future__ import annotations

from typing import Annotated, Final

from cyclopts import App, Parameter

from stompbox.cli import names
from stompbox.cli.asking import every, print_json, print_table, span
from stompbox.cli.connecting import leaving
from stompbox.cli.examples import examples
from stompbox.cli.listing import Entry, Listing
from stompbox.cli.operating import Operation, sure
from stompbox.cli.parameters import Admin, AllFlag, AsJson, Forced, Match, QueueName, Yes

app = App(name="queues", help_epilogue=examples("queues"))
groups_app = App(name="groups", help_epilogue=examples("groups"))
sinks_app = App(name="sinks", help_epilogue=examples("sinks"))

EveryKind = Annotated[AllFlag, Parameter(help="Also those that go with their connection.")]


@app.default
def queues(
    match: Match = "",
    *,
    every_kind: EveryKind = False,
    admin: Admin = None,
    listing: Listing = Listing(),  # noqa: B008 - a frozen value
) -> None:
    """List queues and durable subscriptions with their messages and consumers. ~: some may not be for the queue."""
    columns = ("address", "queue", "kind", "ready", "delayed", "delivering", "consumers", "")
    wanted = "true" if every_kind else "false"
    listing.show("queues", columns, lambda: list(every(admin, "queues", match=match, all=wanted)), _row)


def _row(one: Entry) -> tuple[object, ...]:
    return (
        one["address"], one["name"], one["kind"], f"~{one['ready']:,}" if one["is_estimate"] else one["ready"],
        one["delayed"], one["delivering"], one["consumers"], "paused" if one["is_paused"] else "",
    )  # fmt: skip


_AS_IT_IS: Final = Operation()


@app.command
def pause(queue: QueueName, /, *, operation: Operation = _AS_IT_IS) -> None:
    """Hand out nothing from a queue, until `resume`; messages go in, and wait."""
    told = f"queue {queue} is paused: nothing is handed out until `stompbox queues resume`"
    operation.do("queues pause", "queues/pause", {"queue": queue}, told)


@app.command
def resume(queue: QueueName, /, *, operation: Operation = _AS_IT_IS) -> None:
    """Hand out the messages of a paused queue again."""
    operation.do("queues resume", "queues/resume", {"queue": queue}, f"queue {queue} is handed out again")


@app.command(name="delete")
def delete_queue(
    queue: QueueName, /, *, force: Forced = False, yes: Yes = False, operation: Operation = _AS_IT_IS
) -> None:
    """Remove a queue. Without --force only where nothing waits in it and nobody reads it."""
    sure("queues delete", f"remove queue {queue}", yes=yes)
    operation.do(
        "queues delete", "queues/delete", {"queue": queue, "is_forced": force}, f"queue {queue} deleted"
    )


@groups_app.command(name="list", show=False)
@groups_app.default
def groups(match: Match = "", *, admin: Admin = None, as_json: AsJson = False) -> None:
    """List reader groups: position and lag per address. The time is that since the first unread message arrived."""
    with leaving("groups"):
        found = list(every(admin, "groups", match=match))
        if as_json:
            print_json(found)
            return
        rows = [
            (
                group["name"],
                one["address"],
                one["position"],
                one["next"],
                one["lag_messages"],
                span(one["lag_ms"]),
            )
            for group in found
            for one in group["addresses"]
        ]
        print_table(("group", "address", "position", "next", "lag", "time"), rows)


GroupName = Annotated[str, Parameter(help="Name of the group.", completer=names.groups)]


@groups_app.command
def delete(group: GroupName, *, yes: Yes = False, operation: Operation = _AS_IT_IS) -> None:
    """Delete a reader group: what was kept for it alone may go. A query that still reads by it makes it again, where it has come to."""
    sure("groups delete", f"delete reader group {group}", yes=yes)
    operation.do("groups delete", "groups/delete", {"group": group}, f"reader group {group} deleted")


@groups_app.command(name=["reset", "seek"])
def reset(
    group: GroupName, *, to: str, address: str = "", yes: Yes = False, operation: Operation = _AS_IT_IS
) -> None:
    """Put a reader group elsewhere, forward or back as far as the messages are still there. Stop who reads by it first.

    Parameters
    ----------
    to
        Where to: earliest, latest, an offset, or a time such as 2026-11-22T05:00:00Z.
    address
        Only on this address; without it on all of them.
    """
    from stompbox.spark.bounds import parse_bound

    with leaving("groups reset"):
        order = {"group": group, "to": parse_bound("--to", to).wire(), "address": address}
    sure("groups reset", f"put reader group {group} to {to}", yes=yes)

    def told(found: dict[str, int]) -> str:
        return f"reader group {group} is put elsewhere on {found['moved']} addresses"

    operation.do("groups reset", "groups/reset", order, told)


@sinks_app.command(name="list", show=False)
@sinks_app.default
def sinks(match: Match = "", *, admin: Admin = None, as_json: AsJson = False) -> None:
    """List sinks: the last batch that each has published, and what it has staged."""
    with leaving("sinks"):
        found = list(every(admin, "sinks", match=match))
        if as_json:
            print_json(found)
            return
        rows = [
            (
                one["name"], one["user"], one["batch"] if one["batch"] >= 0 else "", one["staged_messages"], one["staged_bytes"],
                "publishing" if one["is_publishing"] else "",
            )
            for one in found
        ]  # fmt: skip
        print_table(("sink", "user", "batch", "staged", "bytes", ""), rows)


SinkName = Annotated[str, Parameter(help="Name of the sink, as the list has it.")]


@sinks_app.command(name="delete")
def delete_sink(sink: SinkName, *, yes: Yes = False, operation: Operation = _AS_IT_IS) -> None:
    """Forget a sink whose writer does not come back, and what it has staged. One that comes back may publish a batch a second time."""
    sure("sinks delete", f"forget sink {sink}", yes=yes)
    operation.do("sinks delete", "sinks/delete", {"sink": sink}, f"sink {sink} deleted")
