"""The connection: one request after another, over a broker that comes and goes."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

from stompbox.errors import ConnectionLost, FrameError, Refused, UsageError
from stompbox.spark.link import FIRST_PAUSE, JOINED_SIZE, Request, SparkLink, forget, leased
from stompbox.spark.options import Given, target_of
from stompbox.spark.targets import Target
from tests.spark.fake_broker import PEM, FakeBroker

MakeFake = Callable[..., FakeBroker]


def target(fake: FakeBroker, **options: str) -> Target:
    return target_of(Given({"url": fake.url, "reconnectTimeout": "5000", **options}))


def describe(link: SparkLink) -> bytes:
    return bytes(link.ask(Request("describe", {"destinations": "/topic/a", "create": "false"})).body)


def test_login_and_headers_travel(fake: FakeBroker) -> None:
    link = SparkLink(target(fake, login="ann", passcode="p:w", virtualHost="there"))
    assert b'"missing": ["/topic/a"]' in describe(link)
    (login,) = fake.logins
    assert {**login.headers} == {
        "accept-version": "1.2", "host": "there", "heart-beat": "0,0", "login": "ann", "passcode": "p:w",
    }  # fmt: skip
    link.close()


@pytest.mark.parametrize("size", [0, 10, JOINED_SIZE + 1, 3_000_000])
def test_bodies_of_all_sizes_come_back(fake: FakeBroker, size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    fake.send("/topic/a", [body[:size]])
    with leased(target(fake)) as link:
        answer = link.ask(Request("fetch", {"address": "a", "start": "0", "stop": "1", "max-bytes": "1"}))
        assert answer.body[-size:].tobytes() == body[:size] if size else answer.headers["next"] == "1"
        assert len(answer.body) == int(answer.headers["content-length"])
        assert describe(link)
    assert len(fake.logins) == 1


def test_large_requests(fake: FakeBroker) -> None:
    from stompbox.message import Run, Shape
    from stompbox.store.chunks import encode

    blob = encode([Run(Shape({"destination": "/queue/a"}), [b"x" * 500_000] * 4, first=0)], 0)
    with leased(target(fake)) as link:
        link.ask(Request("stage", {"sink": "s", "batch": "0", "partition": "0", "attempt": "1"}, blob))
    assert fake.staged["s", 0][0, 1] == blob


@pytest.mark.parametrize("fault", ["drop", "lose"])
def test_a_lost_connection_is_made_anew(fake: FakeBroker, fault: str) -> None:
    pauses: list[float] = []
    link = SparkLink(target(fake), sleep=pauses.append)
    describe(link)
    fake.faults["describe"] = [fault, fault, fault]
    assert describe(link)
    # at once after the open connection was lost, then with growing pauses
    assert pauses == [FIRST_PAUSE, 2 * FIRST_PAUSE]
    assert len(fake.logins) == 4
    link.close()


def test_begin_finds_out_that_the_broker_closed(fake: FakeBroker) -> None:
    link = SparkLink(target(fake))
    describe(link)
    for connection in fake.connections:
        connection.shutdown(socket.SHUT_RDWR)
    assert describe(link)
    assert len(fake.logins) == 2
    link.close()


def test_a_broker_that_stays_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    link = SparkLink(target_of(Given({"url": f"stomp://127.0.0.1:{port}", "reconnectTimeout": "0"})))
    with pytest.raises(
        ConnectionLost,
        match=rf"no broker at stomp://127.0.0.1:{port} for 0 s \(option reconnectTimeout\): Connection refused$",
    ) as caught:
        describe(link)
    assert caught.value.code == "broker-away"


def test_a_broker_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        link = SparkLink(
            target_of(
                Given(
                    {
                        "url": f"stomp://127.0.0.1:{silent.getsockname()[1]}",
                        "requestTimeout": "50",
                        "reconnectTimeout": "0",
                    }
                )
            )
        )
        with pytest.raises(ConnectionLost, match="timed out"):
            describe(link)


def test_a_refused_login_is_not_tried_again(fake: FakeBroker) -> None:
    fake.refuse_login = "user ann is not known"
    with pytest.raises(Refused, match="user ann is not known") as caught:
        describe(SparkLink(target(fake)))
    assert caught.value.code == "login-refused"
    assert len(fake.logins) == 1


def test_a_refused_request_leaves_the_connection_open(fake: FakeBroker) -> None:
    with leased(target(fake)) as link:
        with pytest.raises(Refused, match="no address nowhere"):
            link.ask(Request("fetch", {"address": "nowhere", "start": "0", "stop": "1", "max-bytes": "1"}))
        assert describe(link)
    assert len(fake.logins) == 1


def test_one_request_at_a_time(fake: FakeBroker) -> None:
    link = SparkLink(target(fake))
    with pytest.raises(UsageError, match="no request"):
        link.finish()
    link.begin(Request("describe", {"destinations": "/topic/a", "create": "false"}))
    with pytest.raises(UsageError, match="describe is not answered yet"):
        link.begin(Request("describe"))
    assert link.finish().headers["status"] == "ok"
    link.close()


def test_an_error_from_before_the_request_is_not_its_answer(fake: FakeBroker) -> None:
    link = SparkLink(target(fake))
    describe(link)
    fake.connections[-1].sendall(b"ERROR\nmessage:nothing came for 60000 ms\n\n\0")
    fake.connections[-1].shutdown(socket.SHUT_RDWR)
    assert describe(link)
    assert len(fake.logins) == 2
    link.close()


def answering(octets: bytes) -> int:
    """A server that answers the login and then says `octets`; its port."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server, server.accept()[0] as connection:
            connection.recv(65536)
            connection.sendall(b"CONNECTED\nversion:1.2\n\n\0\n")
            connection.recv(65536)
            connection.sendall(octets)

    threading.Thread(target=serve, daemon=True).start()
    return int(server.getsockname()[1])


def test_frames_that_are_no_answer_are_passed_over() -> None:
    port = answering(
        b"\n\nRECEIPT\nreceipt-id:9\n\n\0MESSAGE\nrequest-id:other\n\nx\0\nMESSAGE\nrequest-id:1\nstatus:ok\n\nyes\0"
    )
    link = SparkLink(target_of(Given({"url": f"stomp://127.0.0.1:{port}"})))
    assert describe(link) == b"yes"
    link.close()


def test_an_error_frame_is_raised() -> None:
    port = answering(b"ERROR\nmessage:enough\ncode:limit\n\n\0")
    with pytest.raises(Refused, match="enough"):
        describe(SparkLink(target_of(Given({"url": f"stomp://127.0.0.1:{port}"}))))


def test_what_is_no_stomp_is_an_error() -> None:
    port = answering(b"HTTP/1.1 400 Bad Request\n\n")
    with pytest.raises(FrameError, match="unknown command"):
        describe(SparkLink(target_of(Given({"url": f"stomp://127.0.0.1:{port}"}))))


def test_links_are_used_again_unless_an_answer_is_under_way(fake: FakeBroker) -> None:
    place = target(fake)
    with leased(place) as first:
        describe(first)
        with leased(place) as second:
            assert second is not first
    with leased(place) as again:
        assert again in (first, second)
        again.begin(Request("describe", {"destinations": "/topic/a", "create": "false"}))
    with leased(place) as other:
        assert other is not again
    forget()


ENDING = """
import sys
from stompbox.spark.link import Request, leased
from stompbox.spark.options import Given, target_of
with leased(target_of(Given({"url": sys.argv[1]}))) as link:
    link.ask(Request("describe", {"destinations": "/topic/a", "create": "false"}))
"""


def test_idle_links_are_closed_with_the_process(fake: FakeBroker) -> None:
    command = [sys.executable, "-W", "default", "-c", ENDING, fake.url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""


def test_tls(make_fake: MakeFake) -> None:
    fake = make_fake(tls=True)
    with leased(target(fake, trustStorePath=str(PEM))) as link:
        assert describe(link)
    forget()


def test_tls_refusals_are_clear(make_fake: MakeFake) -> None:
    fake = make_fake(tls=True)
    with pytest.raises(Refused, match=r"certificate was not accepted .*trustStorePath"):
        describe(SparkLink(target(fake)))
    with pytest.raises(Refused, match=r"cannot be read: .*/nowhere\.pem|cannot be read: .*No such file"):
        describe(SparkLink(target(fake, trustStorePath="/nowhere.pem")))


def test_tls_looks_at_the_name_of_the_host(make_fake: MakeFake) -> None:
    fake = make_fake(tls=True)
    fake.url = fake.url.replace("127.0.0.1", "localhost")  # its certificate is for the address only
    with pytest.raises(Refused, match=r"certificate was not accepted .*verifyHost.*localhost"):
        describe(SparkLink(target(fake, trustStorePath=str(PEM))))
    with leased(target(fake, trustStorePath=str(PEM), verifyHost="false")) as link:
        assert describe(link)


def test_another_node_is_asked_when_one_is_away_or_leaves(make_fake: MakeFake) -> None:
    one, other = make_fake(), make_fake()
    url = f"{one.url},{other.url.rpartition('/')[2]}"
    pauses: list[float] = []
    link = SparkLink(target_of(Given({"url": url, "reconnectTimeout": "5000"})), sleep=pauses.append)
    assert describe(link)
    assert (len(one.logins), len(other.logins)) == (1, 0)
    one.faults["describe"] = ["leave"]
    assert describe(link)
    assert (len(one.logins), len(other.logins), pauses) == (1, 1, [])
    other.faults["describe"] = ["leave"]
    one.faults["describe"] = ["leave"]
    assert describe(link)
    assert pauses == [FIRST_PAUSE], "all have been asked"
    other.close()
    one.faults["describe"] = ["drop", "drop"]
    assert describe(link)
    link.close()


def test_what_all_nodes_say_until_the_end_is_raised(fake: FakeBroker) -> None:
    link = SparkLink(target(fake, reconnectTimeout="150"))
    fake.faults["describe"] = ["leave"] * 9
    with pytest.raises(Refused, match="the broker stops") as caught:
        describe(link)
    assert caught.value.code == "shutting-down"
    link.close()


def test_connections_that_read_begin_at_any_node() -> None:
    nodes = tuple((f"node{number}", 1) for number in range(4))
    begun = {SparkLink(Target(nodes, is_spread=True))._at for _ in range(200)}
    assert begun == {0, 1, 2, 3}
    assert {SparkLink(Target(nodes))._at for _ in range(20)} == {0}
