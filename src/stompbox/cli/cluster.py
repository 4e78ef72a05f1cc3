"""`stompbox cluster`: the nodes of a cluster, and who leads."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import App, Parameter

from stompbox.cli.asking import ask, plain, print_json, print_table
from stompbox.cli.connecting import leaving
from stompbox.cli.examples import examples
from stompbox.cli.operating import Operation
from stompbox.cli.parameters import Admin, AsJson

app = App(name="cluster", help_epilogue=examples("cluster"))
_OPERATION = Operation()


@app.command
def status(*, admin: Admin = None, as_json: AsJson = False) -> None:
    """Show the nodes, their roles, and how far each has come in the log."""
    with leaving("cluster status"):
        found = ask(admin, "cluster")
        if as_json:
            print_json(found)
            return
        leader = found["leader"] or "nobody"
        print(
            plain(
                f"cluster {found['cluster']} on {found['log']}: {leader} leads epoch {found['epoch']}, record {found['position']}"
            )
        )
        columns = ("node", "role", "reached at", "record", "behind", "durable", "clients", "notes")
        print_table(columns, [_row(one) for one in found["members"]])


def _row(member: dict[str, Any]) -> tuple[object, ...]:
    notes = [
        "" if member["is_connected"] else "not connected",
        "does not lead by itself" if member["is_drained"] else "",
        "other configuration" if member["is_other"] else "",
        member["trouble"],
    ]
    return (
        member["node"], member["role"], member["advertise"], member["position"], member["lag"], member["durable"],
        member["connections"], ", ".join([note for note in notes if note]),
    )  # fmt: skip


@app.command
def promote(node: str | None = None, *, operation: Operation = _OPERATION) -> None:
    """Let another node lead, or the one that has come furthest; clients connect again."""
    operation.do(
        "cluster promote", "cluster/promote", {"node": node}, lambda found: f"node {found['node']} is to lead"
    )


@app.command
def drain(
    node: str, *, undo: Annotated[bool, Parameter(negative="")] = False, operation: Operation = _OPERATION
) -> None:
    """Have a node not lead by itself, before its maintenance; where it leads, another one does. --undo: it may again."""
    said = "may lead again" if undo else "does not lead by itself any more"
    order = {"node": node, "is_drained": not undo}
    operation.do("cluster drain", "cluster/drain", order, f"node {node} {said}")


@app.command
def remove(node: str, *, operation: Operation = _OPERATION) -> None:
    """Forget a node that will not come back, so that the log is not kept for it."""
    operation.do("cluster remove", "cluster/remove", {"node": node}, f"node {node} is forgotten")
