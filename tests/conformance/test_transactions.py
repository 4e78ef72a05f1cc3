"""Transactions on the wire: what is invisible until COMMIT, what ABORT undoes, what an open one holds, and what ends it."""

from __future__ import annotations

from tests.conformance.playing import played
from tests.conformance.script import (
    Case,
    Play,
    Step,
    bye,
    gone,
    hear,
    keep,
    leave,
    refused,
    say,
    send,
    subscribe,
    sync,
)

CONFIGURATION = """
memory = true
{top}
[[listener]]
url = "tcp://127.0.0.1:0?{options}"

[[address-setting]]
match = "#"
max-delivery-attempts = 2
dead-letter-address = "dead"
auto-create-dead-letter-resources = true

[[address-setting]]
match = "closed.#"
auto-create-addresses = false
"""
NACKING = ("1.1", "1.2")  # 1.0 has no NACK
OPEN = ("1.0", "1.1")  # an ERROR leaves the connection open


def begin(client: str, name: str = "t") -> Step:
    return say(client, "BEGIN", headers=f"transaction:{name}")


def end(client: str, command: str = "COMMIT", name: str = "t") -> Step:
    """COMMIT or ABORT, and its RECEIPT."""

    def step(play: Play) -> None:
        say(client, command, headers=f"transaction:{name}\nreceipt:end-{name}")(play)
        hear(client, "RECEIPT", receipt_id=f"end-{name}")(play)

    return step


def within(client: str, body: str, destination: str = "/queue/{x}", name: str = "t") -> Step:
    return send(client, destination, body, f"transaction:{name}")


def settle(client: str, command: str, word: str = "m", name: str = "") -> Step:
    """ACK or NACK of the message that `take` has kept by this word, in a transaction or in none."""

    def step(play: Play) -> None:
        own = f"\ntransaction:{name}" if name else ""
        lines = (
            f"id:{{{word}}}"
            if play.version == "1.2"
            else f"message-id:{{{word}}}" + "\nsubscription:0" * (play.version == "1.1")
        )
        say(client, command, headers=lines + own)(play)

    return step


def take(client: str, word: str = "m") -> Step:
    return keep(client, "MESSAGE", **{word: "message-id"})  # our ack header has the same value


def client_individual(client: str, headers: str = "", destination: str = "/queue/{x}") -> Step:
    return subscribe(client, destination, headers=f"ack:client-individual\n{headers}")


def hears(client: str, *bodies: str, **values: str) -> list[Step]:
    return [hear(client, "MESSAGE", body, **values) for body in bodies]


def sends(*bodies: str) -> list[Step]:
    return [send("s", "/queue/{x}", body) for body in bodies]


def outlast(client: str) -> list[Step]:
    """Until the broker has given up a transaction that began before: one of another connection that began after it is gone."""

    def step(play: Play) -> None:
        name = f"{client}-clock"
        begin(name)(play)
        while True:
            say(name, "SEND", "/queue/{x}.clock", headers="transaction:t\nreceipt:tick")(play)
            answer = play.client(name).hear()
            assert answer is not None
            if answer.command == "ERROR":
                assert answer.value("code") == "transaction-timeout"
                return

    return [step, leave(f"{client}-clock")]


CASES = [
    *[Case(f"{command} needs a transaction", [say("a", command), refused("a", "missing-transaction", command)])
      for command in ("BEGIN", "COMMIT", "ABORT")],
    Case("a name is taken while its transaction is open", [begin("a"), begin("a"), refused("a", "transaction-exists", "'t'")]),
    Case("a name is free again", [
        begin("a"), end("a"), begin("a"), end("a", "ABORT"), begin("a"), within("a", "1"), end("a"), subscribe("a", "/queue/{x}"),
        *hears("a", "1"), sync("a"),
    ]),
    Case("names belong to their connection", [
        begin("a"), begin("b"), within("a", "1"), within("b", "2"), end("a", "ABORT"), end("b"), subscribe("a", "/queue/{x}"),
        *hears("a", "2"), sync("a"),
    ]),
    Case("several are open at once", [
        subscribe("c", "/queue/{x}"), begin("a"), begin("a", "u"), within("a", "1"), within("a", "2", name="u"), within("a", "3"),
        end("a", name="u"), *hears("c", "2"), end("a"), *hears("c", "1", "3"), sync("c"),
    ]),
    *[Case(f"a transaction that is not open: {command}", [
        say("a", command, *(("/queue/{x}",) if command == "SEND" else ()), headers="transaction:t\nid:1\nmessage-id:1\nsubscription:0"),
        refused("a", "no-such-transaction", "'t'"), subscribe("b", "/queue/{x}"), sync("b"),
    ], NACKING if command == "NACK" else ("1.0", "1.1", "1.2")) for command in ("SEND", "ACK", "NACK", "COMMIT", "ABORT")],
    *[Case(f"{command} cannot be part of one", [
        begin("a"), say("a", command, "/queue/{x}", headers="id:0\ntransaction:t"), refused("a", "transaction-not-allowed", command),
    ]) for command in ("SUBSCRIBE", "UNSUBSCRIBE")],
    Case("nothing is seen before COMMIT, and the place in the order is COMMIT's", [
        subscribe("c", "/queue/{x}"), begin("a"), within("a", "1"), within("a", "2"), send("a", "/queue/{x}", "0"), *hears("c", "0"),
        sync("c"), end("a"), *hears("c", "1", "2"), sync("c"),
    ]),
    Case("a RECEIPT of a SEND says that the transaction has it", [
        begin("a"), say("a", "SEND", "/queue/{x}", "1", "transaction:t\nreceipt:r"), hear("a", "RECEIPT", receipt_id="r"), leave("a"),
        subscribe("c", "/queue/{x}"), sync("c"),
    ]),
    Case("COMMIT covers sends to many addresses, ACKs and NACKs", [
        *sends("1", "2"), client_individual("a"), take("a", "m"), take("a", "n"), subscribe("c", "/queue/{x}.2,/topic/{x}"), begin("a"),
        within("a", "q", "/queue/{x}.2"), within("a", "t", "/topic/{x}"), settle("a", "ACK", "m", "t"), settle("a", "NACK", "n", "t"),
        sync("a"), sync("c"), end("a"), *hears("c", "q", "t"), *hears("a", "2", redelivered="true"), bye("a"),
        subscribe("b", "/queue/{x}"), *hears("b", "2", redelivered="true"), sync("b"),
    ], NACKING),
    Case("ABORT undoes all of it", [
        *sends("1", "2"), client_individual("a"), take("a", "m"), take("a", "n"), subscribe("c", "/queue/{x}.2"), begin("a"),
        within("a", "q", "/queue/{x}.2"), settle("a", "ACK", "m", "t"), settle("a", "NACK", "n", "t"), end("a", "ABORT"), sync("c"),
        sync("a"), bye("a"), subscribe("b", "/queue/{x}"), *hears("b", "1", "2", redelivered="true"), sync("b"),
    ], NACKING),
    Case("after ABORT the same message is acknowledged again", [
        *sends("1"), client_individual("a"), take("a"), begin("a"), settle("a", "ACK", name="t"), end("a", "ABORT"), settle("a", "ACK"),
        sync("a"), bye("a"), subscribe("b", "/queue/{x}"), sync("b"),
    ]),
    Case("the end of the connection aborts", [
        *sends("1"), client_individual("a"), take("a"), begin("a"), within("a", "2"), settle("a", "ACK", name="t"), bye("a"),
        subscribe("b", "/queue/{x}"), *hears("b", "1", redelivered="true"), sync("b"),
    ]),
    Case("a lost connection aborts", [
        *sends("1"), client_individual("a"), take("a"), begin("a"), within("a", "2"), settle("a", "ACK", name="t"), sync("a"), leave("a"),
        subscribe("b", "/queue/{x}"), *hears("b", "1", redelivered="true"), sync("b"),
    ]),
    Case("one message, two answers in one transaction", [
        *sends("1"), client_individual("a"), take("a"), begin("a"), settle("a", "ACK", name="t"), settle("a", "NACK", name="t"),
        refused("a", "unknown-message"),
    ], NACKING),
    Case("one message in two transactions", [
        *sends("1"), client_individual("a"), take("a"), begin("a"), begin("a", "u"), settle("a", "ACK", name="t"),
        settle("a", "ACK", name="u"), refused("a", "unknown-message"),
    ]),
    Case("one message in a transaction and without", [
        *sends("1"), client_individual("a"), take("a"), begin("a"), settle("a", "ACK", name="t"), settle("a", "ACK"),
        refused("a", "unknown-message"),
    ]),
    Case("a cumulative ACK in a transaction covers what had come when it came", [
        *sends("1", "2"), subscribe("a", "/queue/{x}", headers="ack:client"), *hears("a", "1"), take("a"), begin("a"),
        settle("a", "ACK", name="t"), *sends("3"), *hears("a", "3"), end("a"), bye("a"), subscribe("b", "/queue/{x}"),
        *hears("b", "3", redelivered="true"), sync("b"),
    ]),
    Case("a cumulative ACK skips what an open transaction holds", [
        *sends("1", "2", "3"), subscribe("a", "/queue/{x}", headers="ack:client"), take("a", "m"), hear("a", "MESSAGE", "2"),
        take("a", "n"), begin("a"), settle("a", "ACK", "m", "t"), settle("a", "ACK", "n"), end("a", "ABORT"), bye("a"),
        subscribe("b", "/queue/{x}"), *hears("b", "1", redelivered="true"), sync("b"),
    ]),
    Case("a cumulative ACK of another transaction skips it, too", [
        *sends("1", "2", "3"), subscribe("a", "/queue/{x}", headers="ack:client"), take("a", "m"), hear("a", "MESSAGE", "2"),
        take("a", "n"), begin("a"), begin("a", "u"), settle("a", "ACK", "m", "t"), settle("a", "ACK", "n", "u"), end("a", name="u"),
        end("a", "ABORT"), bye("a"), subscribe("b", "/queue/{x}"), *hears("b", "1", redelivered="true"), sync("b"),
    ]),
    Case("a cumulative NACK in a transaction", [
        *sends("1", "2"), subscribe("a", "/queue/{x}", headers="ack:client"), hear("a", "MESSAGE", "1"), take("a"), begin("a"),
        settle("a", "NACK", name="t"), sync("a"), end("a"), *hears("a", "1", "2", redelivered="true", JMSXDeliveryCount="2"), sync("a"),
    ], NACKING),
    Case("a NACK counts at COMMIT, as an attempt", [
        *sends("1"), client_individual("a"), take("a"), settle("a", "NACK"), take("a"), begin("a"), settle("a", "NACK", name="t"),
        end("a", "ABORT"), settle("a", "NACK"), sync("a"), subscribe("d", "/queue/dead::DLQ.{x}"),
        hear("d", "MESSAGE", "1", **{"dead-letter-reason": "max-delivery-attempts"}),
    ], NACKING, broker="small"),
    *[Case(f"UNSUBSCRIBE leaves it to the transaction: {command}", [
        *sends("1", "2"), client_individual("a"), take("a"), hear("a", "MESSAGE", "2"), begin("a"), settle("a", "ACK", name="t"),
        say("a", "UNSUBSCRIBE", headers="id:0\nreceipt:u"), hear("a", "RECEIPT", receipt_id="u"), subscribe("b", "/queue/{x}"),
        *hears("b", "2", redelivered="true"), sync("b"), end("a", command), *hears("b", *left, redelivered="true"), sync("b"),
    ]) for command, left in (("COMMIT", ()), ("ABORT", ("1",)))],
    Case("an ERROR leaves the rest of the transaction as it is", [
        subscribe("c", "/queue/{x}"), begin("a"), within("a", "1"), say("a", "SEND", "/queue/{x}", "2", "transaction:t\npriority:10"),
        refused("a", "bad-priority"), within("a", "3"), end("a"), *hears("c", "1", "3"), sync("c"),
    ], OPEN),
    Case("an ERROR in 1.2 ends the connection, and with it the transaction", [
        subscribe("c", "/queue/{x}"), begin("a"), within("a", "1"), say("a", "SEND", "/queue/{x}", "2", "transaction:t\npriority:10"),
        refused("a", "bad-priority"), sync("c"),
    ], ("1.2",)),
    Case("what may not be made is refused before COMMIT", [
        begin("a"), say("a", "SEND", "/queue/closed.{x}", "1", "transaction:t"), refused("a", "no-such-address", "closed.{x}"),
    ], broker="small"),
    Case("so many are open at once", [
        begin("a"), begin("a", "u"), begin("a", "v"), refused("a", "too-many-transactions", "2"),
    ], broker="small"),
    Case("so much is in one", [
        begin("a"), within("a", "a" * 60), say("a", "SEND", "/queue/{x}", "b" * 60, "transaction:t"),
        hear("a", "ERROR", code="transaction-too-large"), gone("a"),
    ], broker="small"),
    Case("of one that was too much nothing is committed, in whatever version, and whatever else came in one write", [
        begin("a"), *[say("a", "SEND", "/queue/{x}", body * 30, "transaction:t") for body in "abcdef"],
        say("a", "COMMIT", headers="transaction:t"),
        hear("a", "ERROR", code="transaction-too-large"), gone("a"), subscribe("c", "/queue/{x}"), sync("c"),
    ], broker="small"),
    Case("one that is open for too long is aborted, and the client is told when it names it", [
        *sends("1"), client_individual("a"), take("a"), begin("a"), within("a", "2"), settle("a", "ACK", name="t"),
        *outlast("a"), say("a", "COMMIT", headers="transaction:t"), refused("a", "transaction-timeout", "'t'", "500 ms"), leave("a"),
        subscribe("b", "/queue/{x}"), *hears("b", "1"), sync("b"),
    ], broker="brief"),
    Case("its name is free then", [
        begin("a"), within("a", "1"), *outlast("a"), begin("a"), within("a", "2"), end("a"), subscribe("b", "/queue/{x}"), *hears("b", "2"),
        sync("b"),
    ], broker="brief"),
    Case("a transacted subscription waits for the next BEGIN after it", [
        begin("a"), subscribe("a", "/queue/{x}", headers="transaction:t\nack:client"), *sends("1"), hear("a", "MESSAGE", "1"),
        *outlast("a"), *sends("2"), sync("a"), begin("a", "u"), *hears("a", "1", redelivered="true"), *hears("a", "2"),
    ], broker="brief-openmq"),
]  # fmt: skip

CONFIGURATIONS = {
    "small": CONFIGURATION.format(top="", options="maxTransactions=2;maxTransactionSize=100"),
    "brief": CONFIGURATION.format(top="transaction-timeout = 500", options=""),
    "brief-openmq": CONFIGURATION.format(
        top="transaction-timeout = 500", options="dialect=openmq;requireLogin=false"
    ),
}

test_over_tcp, test_over_websocket = played(CASES)
