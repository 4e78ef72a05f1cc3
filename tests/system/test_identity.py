"""Which log it is, over the wire; groups of very many addresses, those that vanish, and groups that are deleted and put elsewhere."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from stompbox import blocking
from stompbox.errors import Refused
from stompbox.incarnations import Position
from stompbox.spark.bounds import EARLIEST, Bound, BoundKind
from stompbox.spark.link import SparkLink
from stompbox.spark.offsets import OffsetRange
from stompbox.spark.requests import commit_group, describe, describe_each, fetch, open_group, reopen_group
from stompbox.store.backup import copy
from tests.conftest import Serve, Served
from tests.system.plain import Plain
from tests.system.test_requests import ask, link_to, send

MANY = 8_000  # addresses: in one request their names would be more than the 1 MiB of JSON that it may have
LONG = "x" * 140
KEEPING = '[[address-setting]]\nmatch = "#"\nretention-messages = 1000\n'
GOING = '[[address-setting]]\nmatch = "#"\nauto-delete-queues = true\nauto-delete-addresses = true\n'


@pytest.fixture
def link(serve: Serve, closing: ExitStack, tmp_path: Path) -> SparkLink:
    return linked(serve, closing, tmp_path, "--memory")[0]


def linked(
    serve: Serve, closing: ExitStack, path: Path, *given: str, config: str = KEEPING
) -> tuple[SparkLink, Served]:
    (path / "stompbox.toml").write_text(config)
    served = serve(
        "--listen", "tcp://127.0.0.1:0", "--no-admin", "--config", str(path / "stompbox.toml"), *given
    )
    found = link_to(served)
    closing.callback(found.close)
    return found, served


def stopped(served: Served) -> None:
    served.process.terminate()
    served.process.wait()


def test_a_log_is_the_same_after_a_restart_and_another_on_another_broker(
    serve: Serve, closing: ExitStack, tmp_path: Path
) -> None:
    data = str(tmp_path / "data")
    link, served = linked(serve, closing, tmp_path, "--data", data)
    send(link, "/topic/t", b"1", b"2")
    first = describe(link, "/topic/t,/topic/empty", create=True).extents
    stopped(served)
    link, served = linked(serve, closing, tmp_path, "--data", data)
    again = describe(link, "/topic/t,/topic/empty", create=True).extents
    assert again["t"] == first["t"]
    stopped(served)
    link, _ = linked(serve, closing, tmp_path, "--memory")
    send(link, "/topic/t", b"1", b"2", b"3")
    wanted = OffsetRange("t", 0, 2, first["t"].incarnations.of(2))
    with pytest.raises(
        Refused, match=f"log of 't' is another one: offset 2 of incarnation {wanted.incarnation}"
    ) as caught:
        link.ask(fetch(wanted, 1000))
    assert caught.value.code == "other-incarnation"


def test_a_broker_that_was_restored(serve: Serve, closing: ExitStack, tmp_path: Path) -> None:
    """Its log goes back in time; what was told of before the backup holds, and no more."""
    link, served = linked(serve, closing, tmp_path, "--data", str(tmp_path / "data"))
    open_group(link, "lake", "/topic/t", EARLIEST)
    send(link, "/topic/t", b"1", b"2")
    copy(tmp_path / "data", tmp_path / "copy")
    send(link, "/topic/t", b"3", b"4", batch=1)
    id = describe(link, "/topic/t", create=False).extents["t"].incarnations.of(4)
    stopped(served)
    link, _ = linked(serve, closing, tmp_path, "--data", str(tmp_path / "copy"))
    send(link, "/topic/t", b"another 3", b"another 4", b"another 5", batch=1)
    known = describe(link, "/topic/t", create=False).extents["t"].incarnations
    assert [first for _, first in known.entries] == [0, 2] and known.entries[0][0] == id
    link.ask(fetch(OffsetRange("t", 0, 2, id), 1000))
    with pytest.raises(Refused, match="was restored as of offset 2") as caught:
        link.ask(fetch(OffsetRange("t", 2, 4, id), 1000))
    assert caught.value.code == "other-incarnation"
    assert ask(link, "group-commit", {"t": [4, id]}, group="lake") == {"refused": {"t": "other-incarnation"}}
    assert open_group(link, "lake", "/topic/t", EARLIEST) == {"t": 0}
    reopen_group(link, "other", "/topic/t", {"t": Position(4, id)})
    assert open_group(link, "other", "/topic/t", EARLIEST) == {"t": 2}


def test_very_many_addresses(link: SparkLink) -> None:
    names = [f"many.{number}.{LONG}" for number in range(MANY)]
    one = names[7]
    assert len(",".join(names)) > 1 << 20
    for start in range(0, MANY, 2500):
        destinations = ",".join([f"/topic/{name}" for name in names[start : start + 2500]])
        ask(link, "describe", {"destinations": destinations}, create="true", limit="0")
    found = describe(link, "/topic/many.#", create=False, sizes_from={})
    assert list(found.extents) == sorted(names)
    assert set(open_group(link, "lake", "/topic/many.#", EARLIEST)) == set(names)
    send(link, f"/topic/{one}", b"1", b"2")
    commit_group(link, "lake", {name: Position(2 if name == one else 0) for name in names})
    assert open_group(link, "lake", "/topic/many.#", EARLIEST)[one] == 2
    reopen_group(link, "again", "/topic/many.#", {name: Position(1 if name == one else 0) for name in names})
    assert open_group(link, "again", "/topic/many.#", EARLIEST)[one] == 1
    assert (
        describe(link, "/topic/many.#", create=False, sizes_from=dict.fromkeys(names, 0))
        .extents[one]
        .messages
        == 2
    )
    assert ask(link, "group-reset", group="lake", starting="earliest") == {"moved": MANY}
    ask(link, "group-delete", group="again")
    assert list(ask(link, "groups")["groups"]) == ["lake"]


def test_an_answer_in_parts(link: SparkLink) -> None:
    for batch, name in enumerate(("b", "a", "c")):
        send(link, f"/topic/p.{name}", b"1", batch=batch)
    first = ask(link, "describe", destinations="p.#", limit="2")
    rest = ask(link, "describe", destinations="p.#", limit="2", **{"continue": first["continue"]})
    assert (list(first["addresses"]), list(rest["addresses"]), "continue" in rest) == (
        ["p.b", "p.a"],
        ["p.c"],
        False,
    )


def test_too_much_json(link: SparkLink) -> None:
    send(link, "/topic/t", b"1")
    with pytest.raises(Refused, match="allowed are 1048576") as caught:
        ask(link, "group-commit", b'{"' + b"x" * (1 << 20) + b'": 1}', group="lake")
    assert caught.value.code == "bad-json"


def test_an_address_of_a_group_that_is_gone(serve: Serve, closing: ExitStack, tmp_path: Path) -> None:
    """It does not keep the group from going on with the others; where it has ended is known."""
    link, _ = linked(serve, closing, tmp_path, "--memory", config=GOING)
    send(link, "/topic/stays", b"1", b"2")
    open_group(link, "lake", "/topic/stays,/topic/not", EARLIEST)
    refused = ask(link, "group-commit", {"stays": 1, "gone": 5}, group="lake")
    assert refused == {"refused": {"gone": "no-such-address"}}
    assert open_group(link, "lake", "/topic/stays", EARLIEST) == {"stays": 1}
    send(link, "/queue/short", b"1", b"2", b"3", batch=1)
    was = describe(link, "/queue/short", create=False).extents["short"]
    with (
        blocking.connect(str(link.target)) as client,
        client.subscribe("/queue/short", ack="client-individual") as messages,
    ):
        for _ in range(3):
            message = messages.receive(timeout=20)
            assert message is not None
            message.ack(confirm=True)
    found, ended = describe_each(link, {"short": 0, "never": 0})
    assert not found and ended["short"].next == 3 and ended["short"].incarnations == was.incarnations


@pytest.mark.parametrize("starting", [Bound(BoundKind.OFFSET, 7), Bound(BoundKind.EACH, each=(("t", 9),))])
def test_a_group_begins_within_its_log(link: SparkLink, starting: Bound) -> None:
    send(link, "/topic/t", b"1", b"2")
    with pytest.raises(Refused, match="outside the log of 't', which holds 0 to 2") as caught:
        open_group(link, "lake", "/topic/t", starting, strict=True)
    assert caught.value.code == "offset-out-of-range"
    assert ask(link, "groups") == {"groups": {}}
    assert open_group(link, "lake", "/topic/t", starting) == {"t": 2}
    assert open_group(link, "lake", "/topic/t", starting, strict=True) == {"t": 2}, "it is there already"


def test_a_group_that_is_put_elsewhere(link: SparkLink) -> None:
    send(link, "/topic/r.a", b"1", b"2", b"3")
    send(link, "/topic/r.b", b"1", b"2", batch=1)
    open_group(link, "lake", "/topic/r.#", Bound(BoundKind.LATEST))
    assert ask(link, "group-reset", group="lake", starting="1", address="r.a") == {"moved": 1}
    assert open_group(link, "lake", "/topic/r.#", EARLIEST) == {"r.a": 1, "r.b": 2}
    assert ask(link, "group-reset", group="lake", starting="earliest") == {"moved": 2}
    assert open_group(link, "lake", "/topic/r.#", EARLIEST) == {"r.a": 0, "r.b": 0}
    for headers, code in (({"group": "no", "starting": "1"}, "no-such-group"), ({"group": "lake", "starting": "soon"}, "bad-starting"),
                          ({"group": "lake", "starting": "1", "address": "x"}, "no-such-address")):  # fmt: skip
        with pytest.raises(Refused) as caught:
            ask(link, "group-reset", **headers)
        assert caught.value.code == code


def test_a_stream_reader_that_comes_back_says_which_log_it_knows(
    serve: Serve, closing: ExitStack, tmp_path: Path
) -> None:
    link, served = linked(serve, closing, tmp_path, "--memory")
    send(link, "/topic/t", b"1", b"2")
    known = describe(link, "/topic/t", create=False).extents["t"].incarnations.current
    for name in ("", "reader"):
        with Plain(served.port) as client:
            wanted = {
                "destination": "/stream/t",
                "id": "1",
                "receipt": "r",
                "x-stream-offset": "2",
                "x-stream-incarnation": known,
            }
            if name:
                wanted |= {"durable-subscription-name": name, "client-id": "c"}
            client.send("SUBSCRIBE", wanted)
            assert client.receive().headers["x-stream-incarnation"] == known
        with Plain(served.port) as client:
            client.send("SUBSCRIBE", {**wanted, "x-stream-incarnation": "another"})
            error = client.receive()
            assert (error.command, error.headers["code"]) == ("ERROR", "other-incarnation")
