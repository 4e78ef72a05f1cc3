"""The protocol core: octets in, events out, time as an argument."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from stompbox.client.message import ACK, NACK, ReceivedMessage
from stompbox.client.options import Options
from stompbox.client.protocol import (
    DOUBT,
    LEAVES,
    MOST_RETIRED,
    Answered,
    Broken,
    ClientProtocol,
    Confirmed,
    Connected,
    Event,
    Failed,
    ProtocolState,
    Unexpected,
)
from stompbox.client.refusal import BrokerError
from stompbox.client.runs import LEARN_AFTER, MessageRun
from stompbox.errors import ConnectionLost, FrameError, IllegalFrame, StompboxError, UsageError
from stompbox.stomp.codec import Decoder, encode
from stompbox.stomp.frames import CLIENT_COMMANDS, Frame
from stompbox.stomp.versions import V10, VERSIONS


class Caller:
    """A waiter that notes what it was told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def confirmed(self, frame: bytes) -> None:
        self.told.append(frame)

    def failed(self, frame: bytes, error: StompboxError) -> None:
        self.told.append(error)


class Asker:
    def answered(self, message: ReceivedMessage) -> None:
        raise AssertionError("the protocol only reports")

    def failed(self, error: StompboxError) -> None:
        raise AssertionError("the protocol only reports")


OPTIONS = Options(host="h", login="u", passcode="a:b\\c")


def connecting(options: Options = OPTIONS) -> ClientProtocol:
    protocol = ClientProtocol(options, count(1))
    protocol.started(0.0)
    protocol.connect()
    return protocol


def open_protocol(
    version: str = "1.2", heart_beat: str = "0,0", options: Options = OPTIONS
) -> ClientProtocol:
    protocol = connecting(options)
    protocol.take_output(0.0)
    events = feed(
        protocol, Frame("CONNECTED", {"version": version, "heart-beat": heart_beat, "server": "s/1"})
    )
    assert events == [Connected(VERSIONS[version], "s/1")]
    return protocol


def feed(protocol: ClientProtocol, *frames: Frame, now: float = 0.0) -> list[Event]:
    return protocol.receive(b"".join(encode(frame, protocol.version) for frame in frames), now)


def sent(protocol: ClientProtocol) -> list[Frame]:
    decoder = Decoder(CLIENT_COMMANDS)
    decoder.version = protocol.version
    found = []
    for item in decoder.receive(b"".join(protocol.take_output(0.0))):
        assert isinstance(item, Frame)
        found.append(item)
    return found


# -- connecting ------------------------------------------------------------------------------------------------------


def test_connect_frame_is_raw() -> None:
    protocol = connecting(replace(OPTIONS, client_id="c", headers={"x": 1}, heart_beat=(5, 6)))
    assert protocol.take_output(0.0) == [
        b"CONNECT\naccept-version:1.0,1.1,1.2\nhost:h\nlogin:u\npasscode:a:b\\c\nclient-id:c\nheart-beat:5,6\nx:1\n\n\0\n"
    ]


def test_no_version_header_means_1_0() -> None:
    protocol = connecting()
    (event,) = protocol.receive(b"CONNECTED\nsession:x\n\n\0", 0.0)
    assert event == Connected(V10, "")


@pytest.mark.parametrize("version", ["1.3", "", "2"])
def test_a_version_that_was_not_offered(version: str) -> None:
    (event,) = feed(connecting(), Frame("CONNECTED", {"version": version}))
    assert isinstance(event, Broken)
    assert isinstance(event.error, IllegalFrame)
    assert "1.0, 1.1, 1.2" in event.error.message


def test_1_0_when_only_1_2_was_offered() -> None:
    (event,) = connecting(replace(OPTIONS, versions=("1.2",))).receive(b"CONNECTED\n\n\0", 0.0)
    assert isinstance(event, Broken)


@pytest.mark.parametrize("text", ["x", "1", "1,x", "-1,5", "1,2,3"])
def test_bad_heart_beat_of_the_broker(text: str) -> None:
    (event,) = feed(connecting(), Frame("CONNECTED", {"version": "1.2", "heart-beat": text}))
    assert isinstance(event, Broken)
    assert event.error.code == "bad-heart-beat"


def test_refused() -> None:
    protocol = connecting()
    (event,) = feed(protocol, Frame("ERROR", {"message": "wrong password", "code": "login-failed"}))
    assert isinstance(event, Broken)
    assert isinstance(event.error, BrokerError)
    assert (event.error.code, event.error.message, protocol.state) == (
        "login-failed",
        "wrong password",
        ProtocolState.CLOSED,
    )


def test_a_message_before_connected() -> None:
    (event,) = feed(
        connecting(), Frame("MESSAGE", {"subscription": "1", "message-id": "1", "destination": "d"})
    )
    assert isinstance(event, Broken)
    assert "MESSAGE before CONNECTED" in event.error.message


def test_connected_twice_is_counted_and_said_once() -> None:
    protocol = open_protocol()
    connected = Frame("CONNECTED", {"version": "1.2"})
    events = feed(protocol, connected, connected)
    assert [type(event) for event in events] == [Unexpected]
    assert protocol.unexpected == {"second-connected": 2}


# -- receipts and errors ---------------------------------------------------------------------------------------------


def test_receipts_find_their_calls_in_any_order() -> None:
    protocol, one, two = open_protocol(), Caller(), Caller()
    protocol.confirm(1, b"frame one", one)
    protocol.confirm(2, b"frame two", two, again=False)
    assert protocol.awaits
    events = feed(protocol, Frame("RECEIPT", {"receipt-id": "2"}), Frame("RECEIPT", {"receipt-id": "1"}))
    assert events == [Confirmed([(two, b""), (one, b"frame one")])]
    assert not protocol.awaits
    assert protocol.has_confirmed


def test_unknown_receipts_are_counted_and_said_once() -> None:
    protocol = open_protocol()
    events = feed(protocol, *(Frame("RECEIPT", {"receipt-id": text}) for text in ("7", "x", "7", "")))
    assert [type(event) for event in events] == [Unexpected]
    assert protocol.unexpected == {"unknown-receipt": 4}


def test_error_finds_its_call() -> None:
    protocol, one, two = open_protocol(), Caller(), Caller()
    protocol.confirm(1, b"1", one)
    protocol.confirm(2, b"2", two)
    (event,) = feed(protocol, Frame("ERROR", {"receipt-id": "1", "message": "no"}))
    assert isinstance(event, Failed)
    assert event.claims == [(one, b"1")]
    assert list(protocol.receipts) == [2]
    assert protocol.refusal is None


@pytest.mark.parametrize("code", sorted(LEAVES))
@pytest.mark.parametrize("receipt", [{}, {"receipt-id": "1"}])
def test_a_broker_that_goes_refuses_no_call(code: str, receipt: dict[str, str]) -> None:
    protocol = open_protocol()
    protocol.confirm(1, b"1", Caller())
    (event,) = feed(protocol, Frame("ERROR", {"message": "no", "code": code} | receipt))
    assert isinstance(event, Broken) and isinstance(event.error, ConnectionLost)
    assert event.error.code == code and list(protocol.receipts) == [1]


def test_error_without_receipt_waits_for_what_comes_of_it() -> None:
    """RabbitMQ names no receipt and keeps the connection open: the calls that stay unanswered must be meant."""
    protocol, one, two = open_protocol(), Caller(), Caller()
    protocol.confirm(1, b"1", one)
    protocol.confirm(2, b"2", two)
    (event,) = feed(protocol, Frame("ERROR", {"message": "no"}), now=5.0)
    assert isinstance(event, Failed)
    assert event.claims == []
    assert protocol.deadline() == 5.0 + DOUBT
    protocol.confirm(3, b"3", Caller())  # sent after the ERROR came: not meant
    feed(protocol, Frame("RECEIPT", {"receipt-id": "1"}), now=5.1)
    assert protocol.tick(5.0 + DOUBT - 0.1) == []
    (event,) = protocol.tick(5.0 + DOUBT)
    assert isinstance(event, Failed)
    assert (event.claims, event.error.message) == ([(two, b"2")], "no")
    assert list(protocol.receipts) == [3]


# -- messages --------------------------------------------------------------------------------------------------------


def message(number: int, subscription: str = "s1", **more: str) -> Frame:
    return Frame(
        "MESSAGE",
        {
            "subscription": subscription,
            "message-id": f"m{number}",
            "ack": f"a{number}",
            "destination": "/q",
            **more,
        },
        b"x",
    )


def subscribed(version: str = "1.2", *ids: str) -> ClientProtocol:
    protocol = open_protocol(version)
    for id in ids or ("s1",):
        protocol.subscribe(id, f"route {id}", {"destination": "/q"}, Caller())
    protocol.take_output(0.0)
    protocol.receipts.clear()
    return protocol


@pytest.mark.parametrize("version", list(VERSIONS))
def test_messages_by_route(version: str) -> None:
    protocol = subscribed(version, "s1", "s2")
    events = feed(protocol, message(1), message(2), message(3, "s2"), message(4))
    runs = [
        (event.route, [each.id for each in event.messages], event.size)
        for event in events
        if isinstance(event, MessageRun)
    ]
    assert runs == [("route s1", ["m1", "m2"], 2), ("route s2", ["m3"], 1), ("route s1", ["m4"], 1)]
    assert len(events) == 3


def test_runs_after_learning() -> None:
    protocol = subscribed()
    feed(protocol, *(message(number) for number in range(LEARN_AFTER)))
    (event,) = feed(protocol, *(message(number) for number in range(50)))
    assert isinstance(event, MessageRun)
    assert [each.headers["ack"] for each in event.messages] == [f"a{number}" for number in range(50)]


def test_unknown_subscription_is_counted_and_said_once() -> None:
    protocol = subscribed()
    events = feed(protocol, message(1, "s9"), message(2, "s9"), Frame("MESSAGE", {"message-id": "m"}))
    assert [type(event) for event in events] == [Unexpected]
    assert protocol.unexpected == {"unknown-subscription": 3}


def test_messages_after_unsubscribe_are_no_surprise() -> None:
    protocol = subscribed()
    protocol.unsubscribe("s1", {}, None)
    assert feed(protocol, message(1)) == []
    assert protocol.unexpected == {"late-message": 1}


def test_answer_finds_its_request() -> None:
    protocol, asker = open_protocol(), Asker()
    protocol.requests["5"] = asker
    frame = message(1, "stompbox.requests", **{"request-id": "5", "status": "ok"})
    (event,) = feed(protocol, frame)
    assert isinstance(event, Answered)
    assert event.waiter is asker
    assert event.message.headers["status"] == "ok"
    (late,) = feed(protocol, frame)
    assert isinstance(late, Unexpected)
    assert late.kind == "late-answer"


def test_what_came_before_a_fault_is_reported_before_it() -> None:
    protocol = subscribed()
    octets = encode(message(1), protocol.version) + b"MESSAGE\nno colon\n\n\0"
    events = protocol.receive(octets, 0.0)
    assert [type(event) for event in events] == [MessageRun, Broken]
    assert isinstance(events[1], Broken)
    assert isinstance(events[1].error, FrameError)
    assert protocol.state is ProtocolState.CLOSED


# -- acknowledging ---------------------------------------------------------------------------------------------------

ACKS = {
    "1.0": b"ACK\nmessage-id:m1\ntransaction:t\nsubscription:s1\n\n\0\n",
    "1.1": b"ACK\nmessage-id:m1\ntransaction:t\nsubscription:s1\n\n\0\n",
    "1.2": b"ACK\nid:a1\ntransaction:t\n\n\0\n",
}


@pytest.mark.parametrize(("version", "octets"), ACKS.items())
def test_ack_frames(version: str, octets: bytes) -> None:
    protocol = subscribed(version)
    (event,) = feed(protocol, message(1))
    assert isinstance(event, MessageRun)
    protocol.acknowledge(ACK, event.messages[0], "s1", transaction="t")
    assert protocol.take_output(0.0) == [octets]
    number = protocol.acknowledge(ACK, event.messages[0], "s1", waiter=Caller())
    assert sent(protocol)[0].headers["receipt"] == str(number)
    assert number in protocol.receipts


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_ids_come_back_as_they_came(version: str) -> None:
    protocol = subscribed(version)
    given = message(1, **{"message-id": "ID:host\\1", "ack": "ID:host\\1\n2"})
    for _ in range(LEARN_AFTER + 1):
        (event,) = feed(protocol, given)
    assert isinstance(event, MessageRun)
    protocol.acknowledge(NACK, event.messages[0], "s1")
    headers = sent(protocol)[0].headers
    assert headers == (
        {"id": "ID:host\\1\n2"} if version == "1.2" else {"message-id": "ID:host\\1", "subscription": "s1"}
    )


def test_no_nack_in_1_0() -> None:
    protocol = subscribed("1.0")
    (event,) = feed(protocol, message(1))
    assert isinstance(event, MessageRun)
    protocol.check_acknowledge(ACK, event.messages[0])
    with pytest.raises(UsageError, match=r"1\.0.* has no NACK"):
        protocol.check_acknowledge(NACK, event.messages[0])


def test_a_message_without_ack_header() -> None:
    protocol = subscribed()
    frame = message(1)
    del frame.headers["ack"]
    (event,) = feed(protocol, frame)
    assert isinstance(event, MessageRun)
    with pytest.raises(IllegalFrame, match="without the header 'ack'"):
        protocol.check_acknowledge(ACK, event.messages[0])


# -- leaving ---------------------------------------------------------------------------------------------------------


def test_goodbye() -> None:
    protocol, caller = open_protocol(), Caller()
    protocol.disconnect(caller)
    assert protocol.state is ProtocolState.LEAVING
    (frame,) = sent(protocol)
    assert frame.command == "DISCONNECT"
    (event,) = feed(protocol, Frame("RECEIPT", {"receipt-id": frame.headers["receipt"]}))
    assert event == Confirmed([(caller, b"")])
    assert protocol.state.name == "CLOSED"


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (b"", "before it answered CONNECT"),
        (b"CONNECTED\nversion:1.2\n\n\0", "closed the connection"),
        (b"CONNECTED\nversion:1.2\n\n\0MESS", "in the middle of a frame (4 octets"),
    ],
)
def test_end_of_the_stream(octets: bytes, text: str) -> None:
    protocol = connecting()
    protocol.receive(octets, 0.0)
    error = protocol.eof()
    assert text in error.message
    assert protocol.state is ProtocolState.CLOSED


# -- heart-beats -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs", "send", "expect"),
    [
        ((10_000, 20_000), "0,0", 0.0, 0.0),
        ((10_000, 20_000), "5000,30000", 30.0, 20.0),
        ((10_000, 20_000), "30000,5000", 10.0, 30.0),
        ((0, 20_000), "1000,1000", 0.0, 20.0),
        ((10_000, 0), "1000,1000", 10.0, 0.0),
        ((10_000, 10_000), "0,1000", 10.0, 0.0),
    ],
)
def test_what_is_agreed(ours: tuple[int, int], theirs: str, send: float, expect: float) -> None:
    protocol = open_protocol("1.2", theirs, replace(OPTIONS, heart_beat=ours))
    assert (protocol._send_every, protocol._expect_every) == (send, expect)
    assert (protocol.deadline() is None) == (not send and not expect)


def test_no_heart_beats_in_1_0() -> None:
    assert open_protocol("1.0", "1000,1000").deadline() is None


def test_beats_only_into_silence() -> None:
    protocol = open_protocol("1.2", "0,10000")
    assert protocol.deadline() == 5.0
    protocol.output.append(b"something")
    assert protocol.take_output(4.0) == [b"something"]
    protocol.tick(5.0)
    assert protocol.take_output(5.0) == []
    assert protocol.deadline() == 9.0
    protocol.tick(9.0)
    assert protocol.take_output(9.0) == [b"\n"]
    assert protocol.deadline() == 14.0


def test_any_octet_counts_and_silence_ends_it() -> None:
    protocol = open_protocol("1.2", "10000,0")
    assert protocol.deadline() == 20.0
    protocol.receive(b"\n", 15.0)
    assert protocol.tick(20.0) == []
    assert protocol.deadline() == 35.0
    (event,) = protocol.tick(35.0)
    assert isinstance(event, Broken)
    assert isinstance(event.error, ConnectionLost)
    assert event.error.code == "heart-beat-lost"
    assert "20 s" in event.error.message


def test_a_late_look_proves_nothing_at_first() -> None:
    protocol = open_protocol("1.2", "10000,0")
    assert protocol.tick(60.0) == []  # our own process slept
    assert protocol.deadline() == 70.0
    assert [type(event) for event in protocol.tick(70.0)] == [Broken]
    protocol = open_protocol("1.2", "10000,0")
    protocol.tick(60.0)
    protocol.receive(b"\n", 61.0)
    assert protocol.deadline() == 81.0


def test_while_nothing_is_read_silence_proves_nothing() -> None:
    protocol = open_protocol("1.2", "10000,0")
    protocol.hold()
    assert protocol.deadline() is None
    assert protocol.tick(1000.0) == []
    protocol.release(1000.0)
    assert protocol.deadline() == 1020.0


def test_repr_shows_the_state() -> None:
    assert repr(subscribed()) == "<ClientProtocol OPEN STOMP 1.2 subscriptions=1 receipts=0 requests=0>"


def test_ended_subscriptions_are_not_remembered_for_ever() -> None:
    protocol = open_protocol()
    for number in range(MOST_RETIRED + 10):
        protocol.retire(f"s{number}")
    assert len(protocol._retired) == MOST_RETIRED
    assert feed(protocol, message(1, f"s{MOST_RETIRED + 9}")) == []
    assert [type(event) for event in feed(protocol, message(1, "s0"))] == [Unexpected]
