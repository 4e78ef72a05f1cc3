"""What a client stages and publishes is no more than what it could send: the same checks, rights, added headers and routes."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from stompbox.errors import Refused
from stompbox.handles import Large
from stompbox.message import Run, Shape
from stompbox.spark.link import SparkLink
from stompbox.store.chunks import encode
from tests.conftest import Serve, Served
from tests.system.plain import Plain
from tests.system.test_requests import ask, link_to
from tests.users import users

CONFIGURATION = """
populate-validated-user = true
max-staged-bytes = "8MiB"
management-address = "ask.the.broker"
[[listener]]
url = "tcp://127.0.0.1:0?anycastPrefix=jms.queue.&multicastPrefix=jms.topic."
[[permission]]
match = "#"
send = ["writers"]
consume = ["writers"]
create-address = ["writers"]
create-durable-queue = ["writers"]
create-non-durable-queue = ["writers"]
[[permission]]
match = "open"
send = ["people"]
consume = ["people"]
create-address = ["writers"]
create-durable-queue = ["writers"]
[[permission]]
match = "plain.sync"
send = ["people"]
create-address = ["people"]
""" + users("alice:a@people,writers", "bob:b@people")


def chunk(*runs: Run) -> bytes:
    first = 0
    for run in runs:
        run.first, first = first, first + len(run)
    return encode(runs, 0)


def run_to(
    destination: str,
    *bodies: bytes,
    holes: tuple[str, ...] = (),
    columns: tuple[list[bytes], ...] = (),
    **headers: str,
) -> Run:
    return Run(Shape({"destination": destination, **headers}, holes=holes), list(bodies or [b""]), columns)


def stage(link: SparkLink, *runs: Run, batch: int = 0, blob: bytes = b"") -> None:
    ask(link, "stage", blob or chunk(*runs), sink="s", batch=str(batch), partition="0", attempt="1")


def publish(link: SparkLink, batch: int = 0) -> int:
    return int(ask(link, "publish", {"attempts": [[0, 1]]}, sink="s", batch=str(batch))["published"])


def code_of(link: SparkLink, *runs: Run, blob: bytes = b"") -> str:
    """Of the refusal, of the one request or of the other."""
    with pytest.raises(Refused) as caught:
        stage(link, *runs, blob=blob)
        publish(link)
    return caught.value.code


@pytest.fixture
def served(serve: Serve, tmp_path: Path) -> Served:
    (tmp_path / "staging.toml").write_text(CONFIGURATION)
    return serve("--config", str(tmp_path / "staging.toml"), "--no-admin", "--data", str(tmp_path / "data"))


@pytest.fixture
def links(served: Served, closing: ExitStack) -> tuple[SparkLink, SparkLink]:
    """Alice's and Bob's."""
    found = link_to(served, "alice"), link_to(served, "bob")
    for link in found:
        closing.callback(link.close)
    stage(found[0], run_to("jms.queue.open", b"first"))
    assert publish(found[0]) == 1
    return found


def received(served: Served, destination: str, count: int) -> list[tuple[bytes, dict[str, str]]]:
    with Plain(served.port, headers={"login": "alice", "passcode": "a"}) as client:
        client.send("SUBSCRIBE", {"destination": destination, "id": "1"})
        found = [client.receive() for _ in range(count)]
        assert client.sync() == []
        return [(frame.body, dict(frame.headers)) for frame in found]


def test_each_row_is_asked_for_its_own_right(links: tuple[SparkLink, SparkLink], served: Served) -> None:
    _, bob = links
    for runs, code in (
        ([run_to("jms.queue.open", b"x"), run_to("jms.queue.secret", b"x")], "not-permitted"),
        ([run_to("jms.queue.open,jms.queue.secret", b"x")], "not-permitted"),
        # a queue that is not there needs the right to make it
        ([run_to("jms.queue.open::other", b"x")], "not-permitted"),
        ([run_to("jms.topic.secret", b"x")], "not-permitted"),
        ([run_to("/queue/open", b"x")], "not-permitted"),  # another name: this listener has other prefixes
        (
            [run_to("jms.queue.open", b"", b"", holes=("destination",), columns=([b"jms.queue.open"] * 2,))],
            "bad-chunk",
        ),
        ([run_to("jms.queue.open.#", b"x")], "bad-destination"),
        ([run_to("vhost/blue.open", b"x")], "bad-destination"),
        ([run_to("stompbox.requests", b"x", request="pause")], "bad-destination"),
        ([run_to("jms.queue.ask.the.broker", b"x", _AMQ_ResourceName="broker")], "bad-management"),
        ([run_to("/temp-queue/nobodys", b"x")], "no-such-temporary"),
    ):
        assert code_of(bob, *runs) == code, runs
    stage(bob, run_to("jms.queue.open", b"from bob"), batch=1)
    assert publish(bob, batch=1) == 1
    assert [body for body, _ in received(served, "jms.queue.open", 2)] == [b"first", b"from bob"]


def test_who_may_not_make_an_address_does_not_make_it_by_publishing(
    links: tuple[SparkLink, SparkLink],
) -> None:
    alice, bob = links
    stage(alice, run_to("jms.queue.made", b"x"), batch=1)
    assert publish(alice, batch=1) == 1
    assert code_of(bob, run_to("jms.queue.new", b"x")) == "not-permitted"
    assert set(ask(alice, "describe", destinations="#")["addresses"]) == {"open", "made"}


def test_nothing_that_is_staged_stops_the_broker_or_forges_a_frame(
    links: tuple[SparkLink, SparkLink], served: Served
) -> None:
    _, bob = links
    forged = b"1\n\n\0MESSAGE\nsubscription:1\nmessage-id:9-9\ndestination:jms.queue.open\n\nforged\0\n"
    for run in (
        run_to("jms.queue.open", b"x", holes=("_AMQ_DUPL_ID",), columns=([b"\xff\xfe"],)),
        run_to("jms.queue.open", b"x", _AMQ_DUPL_ID="\udcff"),
        run_to("jms.queue.open", b"x", holes=("a",), columns=([forged],)),
        run_to("jms.queue.open", b"x", JMSXGroupID="g", JMSXGroupSeq="first"),
        run_to("jms.queue.open", b"x", AMQ_SCHEDULED_DELAY="soon"),
        Run(Shape({"destination": "jms.queue.open"}), [Large(1, 1_000_000)]),  # type: ignore[list-item]
        run_to("jms.queue.open", b"x", a="\0"),
    ):
        assert code_of(bob, run) in ("data-corrupt", "bad-chunk", "bad-number", "bad-schedule"), run
    stage(bob, run_to("jms.queue.open", b"abc", **{"content-length": "0", "message-id": "9-9", "redelivered": "true", "ack": "1"}),
          run_to("jms.queue.open", b"def", holes=("content-length", "n"), columns=([b"99"], [b"1"])),
          run_to("jms.queue.open", b"ghi", holes=("x\ny:z",), columns=([b"1"],)), batch=1)  # fmt: skip
    assert publish(bob, batch=1) == 3
    found = received(served, "jms.queue.open", 4)
    assert [(body, headers["content-length"], headers["redelivered"]) for body, headers in found[1:]] == [
        (body, "3", "false") for body in (b"abc", b"def", b"ghi")
    ]
    assert (found[2][1]["n"], found[3][1]["x\ny:z"]) == ("1", "1")
    assert all("JMSXUserID" in headers for _, headers in found)


def test_what_is_staged_is_stamped_as_what_is_sent(
    links: tuple[SparkLink, SparkLink], served: Served
) -> None:
    _, bob = links
    stage(bob, run_to("jms.queue.open", b"x", JMSXUserID="alice", _AMQ_ORIG_ADDRESS="secret"), batch=1)
    publish(bob, batch=1)
    headers = received(served, "jms.queue.open", 2)[1][1]
    assert (headers["JMSXUserID"], headers.get("_AMQ_ORIG_ADDRESS")) == ("bob", None)


def test_what_names_several_destinations_goes_to_each(
    links: tuple[SparkLink, SparkLink], served: Served
) -> None:
    alice, _ = links
    stage(alice, run_to("jms.queue.a,jms.topic.b,jms.queue.c::d", b"everywhere"), batch=2)
    assert publish(alice, batch=2) == 3
    assert [body for body, _ in received(served, "jms.queue.a", 1)] == [b"everywhere"]
    assert [body for body, _ in received(served, "jms.queue.c::d", 1)] == [b"everywhere"]


def test_sinks_of_two_users_never_have_one_name(serve: Serve, tmp_path: Path, closing: ExitStack) -> None:
    users = [("b", "x@a"), ("a@b", "x")]
    tables = "".join([f'[[user]]\nname = "{name}"\npassword = "{name[:1]}"\n' for name, _ in users])
    (tmp_path / "users.toml").write_text(f'memory = true\n[[listener]]\nurl = "tcp://127.0.0.1:0"\n{tables}')
    served = serve("--config", str(tmp_path / "users.toml"), "--no-admin")
    for name, sink in users:
        link = link_to(served, name)
        closing.callback(link.close)
        assert ask(link, "publish", {"attempts": []}, sink=sink, batch="5") == {
            "published": 0,
            "already": False,
        }


def test_messages_without_bodies_fill_what_may_be_staged(links: tuple[SparkLink, SparkLink]) -> None:
    _, bob = links
    with pytest.raises(Refused) as caught:
        for attempt in range(20):
            ask(
                bob,
                "stage",
                chunk(run_to("jms.queue.open", *[b""] * 150_000)),
                sink="s",
                batch="1",
                partition="0",
                attempt=str(attempt),
            )
    assert caught.value.code == "staging-full"


TRANSFORMER = """
from stompbox.errors import Refused

def change(message):
    if message.way.value == "in":
        message.headers["seen-of"] = message.user
        message.body = message.body.upper()
"""


def test_a_transformer_sees_what_is_staged(
    serve: Serve, tmp_path: Path, closing: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "staged_transformer.py").write_text(TRANSFORMER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    served = serve(
        "--memory", "--no-admin", "--listen", "tcp://127.0.0.1:0?messageTransformer=staged_transformer:change"
    )
    link = link_to(served)
    closing.callback(link.close)
    stage(link, run_to("/queue/a", b"one", b"two"))
    assert publish(link) == 2
    with Plain(served.port) as client:
        client.send("SUBSCRIBE", {"destination": "/queue/a", "id": "1"})
        found = [client.receive() for _ in range(2)]
    assert [(frame.body, "seen-of" in frame.headers) for frame in found] == [(b"ONE", True), (b"TWO", True)]


@pytest.mark.usefixtures("own_process")
def test_what_is_staged_is_there_after_the_broker_was_killed(
    serve: Serve, tmp_path: Path, closing: ExitStack
) -> None:
    def started() -> tuple[Served, SparkLink]:
        served = serve("--no-admin", "--listen", "tcp://127.0.0.1:0", "--data", str(tmp_path / "data"))
        link = link_to(served)
        closing.callback(link.close)
        return served, link

    served, link = started()
    stage(link, run_to("/queue/a", *[b"%d" % number for number in range(5000)]))
    served.process.kill()
    served.process.wait()
    served, link = started()
    assert publish(link) == 5000
    assert ask(link, "publish", {"attempts": [[0, 1]]}, sink="s", batch="0") == {
        "published": 0,
        "already": True,
    }
    assert ask(link, "describe", destinations="/queue/a")["addresses"]["a"]["next"] == 5000


LARGE = 1200 if "SOAK" in os.environ else 160  # MiB
PIECE = 4  # MiB that a task stages at once
# MiB of memory that such a batch may take beside what a broker has anyhow: some of a queue, a portion, the pages of SQLite
FEW = 120


def highest(pid: int) -> int:
    """MiB of memory that a process has had at once (Linux)."""
    line = next(
        line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")
    )
    return int(line.split()[1]) >> 10


@pytest.mark.usefixtures("own_process")
def test_a_batch_may_be_larger_than_memory_and_the_broker_be_killed_before_it_is_published(
    serve: Serve, tmp_path: Path, closing: ExitStack
) -> None:
    """With SOAK=1 of more than 1 GiB."""
    (tmp_path / "small.toml").write_text('global-max-size = "16MiB"\n')

    def started() -> tuple[Served, SparkLink, int]:
        places = ("--data", str(tmp_path / "data"), "--config", str(tmp_path / "small.toml"))
        served = serve("--no-admin", "--listen", "tcp://127.0.0.1:0", *places)
        link = link_to(served)
        closing.callback(link.close)
        return served, link, highest(served.process.pid)

    served, link, before = started()
    blob = chunk(run_to("/queue/a", *[b"x" * (1 << 20)] * PIECE))
    for attempt in range(LARGE // PIECE):
        ask(link, "stage", blob, sink="s", batch="0", partition=str(attempt), attempt="0")
    assert highest(served.process.pid) - before < FEW
    served.process.kill()
    served.process.wait()
    served, link, before = started()
    attempts = [[attempt, 0] for attempt in range(LARGE // PIECE)]
    assert ask(link, "publish", {"attempts": attempts}, sink="s", batch="0")["published"] == LARGE
    assert ask(link, "describe", destinations="/queue/a")["addresses"]["a"]["next"] == LARGE
    assert highest(served.process.pid) - before < FEW
