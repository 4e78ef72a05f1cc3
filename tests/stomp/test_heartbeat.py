"""What is agreed, as a table, and what is due when, with a clock that only these tests turn."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompbox.errors import IllegalFrame
from stompbox.stomp.heartbeat import Action, Agreement, Pulse, agree, answer, parse


@dataclass(frozen=True)
class Listener:
    """A listener's defaults."""

    heart_beat: tuple[int, int] | None = None
    connection_ttl: int = 60_000
    connection_ttl_min: int = 1000
    connection_ttl_max: int = -1
    heart_beat_to_connection_ttl_modifier: float = 2.0


DEFAULT = Listener()

# settings, cx and cy, then the header of the answer and the time to live
ANSWERS = [
    ("no heart-beats", DEFAULT, (0, 0), "0,0", 60_000),
    ("as asked", DEFAULT, (10_000, 10_000), "10000,10000", 20_000),
    ("client beats alone", DEFAULT, (10_000, 0), "0,10000", 20_000),
    ("broker beats alone", DEFAULT, (0, 10_000), "10000,0", 60_000),
    ("at the least interval", DEFAULT, (500, 500), "500,500", 1000),
    ("below the least interval", DEFAULT, (100, 1), "500,500", 1000),
    (
        "longer than connectionTtl: that is for clients without heart-beats",
        DEFAULT,
        (600_000, 0),
        "0,600000",
        1_200_000,
    ),
    (
        "cut by connectionTtlMax, as in Artemis's manual",
        replace(DEFAULT, connection_ttl_max=30_000),
        (20_000, 0),
        "0,15000",
        30_000,
    ),
    (
        "not cut by connectionTtlMax",
        replace(DEFAULT, connection_ttl_max=30_000),
        (15_000, 0),
        "0,15000",
        30_000,
    ),
    ("connectionTtlMax of 0 is none", replace(DEFAULT, connection_ttl_max=0), (20_000, 0), "0,20000", 40_000),
    ("raised by connectionTtlMin", replace(DEFAULT, connection_ttl_min=5000), (1000, 0), "0,2500", 5000),
    (
        "connectionTtlMax counts for who beats less often",
        replace(DEFAULT, connection_ttl_max=10_000),
        (20_000, 0),
        "0,5000",
        10_000,
    ),
    (
        "the least interval wins",
        replace(DEFAULT, connection_ttl_min=1, connection_ttl_max=200),
        (50, 0),
        "0,500",
        1000,
    ),
    (
        "another modifier",
        replace(DEFAULT, heart_beat_to_connection_ttl_modifier=1.1),
        (10_000, 0),
        "0,10000",
        11_000,
    ),
    (
        "no margin if so wanted",
        replace(DEFAULT, heart_beat_to_connection_ttl_modifier=1.0),
        (10_000, 0),
        "0,10000",
        10_000,
    ),
    (
        "connectionTtl is not clamped",
        replace(DEFAULT, connection_ttl=100, connection_ttl_min=5000),
        (0, 0),
        "0,0",
        100,
    ),
    ("connectionTtl of 0 is none", replace(DEFAULT, connection_ttl=0), (0, 0), "0,0", 0),
    ("connectionTtl of -1 is none", replace(DEFAULT, connection_ttl=-1), (0, 0), "0,0", 0),
    (
        "no connectionTtl, but heart-beats",
        replace(DEFAULT, connection_ttl=-1),
        (10_000, 0),
        "0,10000",
        20_000,
    ),
    ("fixed, as asked", replace(DEFAULT, heart_beat=(300, 400)), (400, 300), "300,400", 800),
    ("fixed, less often wanted", replace(DEFAULT, heart_beat=(1000, 2000)), (100, 100), "1000,2000", 4000),
    (
        "fixed, more often wanted than the client can",
        replace(DEFAULT, heart_beat=(1000, 2000)),
        (5000, 100),
        "1000,2000",
        10_000,
    ),
    (
        "fixed, cut by connectionTtlMax",
        replace(DEFAULT, heart_beat=(1000, 2000), connection_ttl_max=7000),
        (5000, 100),
        "1000,2000",
        7000,
    ),
    ("fixed, the client has none", replace(DEFAULT, heart_beat=(1000, 2000)), (0, 0), "1000,2000", 60_000),
    ("fixed to none", replace(DEFAULT, heart_beat=(0, 0)), (1000, 1000), "0,0", 60_000),
]


@pytest.mark.parametrize(
    ("listener", "requested", "header", "ttl"), [row[1:] for row in ANSWERS], ids=[row[0] for row in ANSWERS]
)
def test_answer(listener: Listener, requested: tuple[int, int], header: str, ttl: int) -> None:
    agreement = answer(requested, listener)
    assert (agreement.header, agreement.ttl_ms) == (header, ttl)
    assert agreement.header == f"{agreement.server_sends_ms},{agreement.client_sends_ms}"
    assert agree(f"{requested[0]},{requested[1]}", listener) == agreement


def test_no_header_is_as_0_0() -> None:
    """Also how a 1.0 client is treated: its header is ignored, its time to live is connectionTtl."""
    assert agree(None, DEFAULT) == answer(None, DEFAULT) == answer((0, 0), DEFAULT) == Agreement(0, 0, 60_000)


# STOMP 1.2, Heart-beating: cx, cy, fixed sx, sy; then how often the broker and the client send
INTERVALS = [
    ((100, 200), (300, 400), 300, 400),
    ((400, 300), (200, 100), 300, 400),
    ((0, 200), (300, 400), 300, 0),
    ((100, 0), (300, 400), 0, 400),
    ((100, 200), (0, 400), 0, 400),
    ((100, 200), (300, 0), 300, 0),
]


@pytest.mark.parametrize(("requested", "fixed", "beat", "expected"), INTERVALS)
def test_intervals_are_the_greater_of_both(
    requested: tuple[int, int], fixed: tuple[int, int], beat: int, expected: int
) -> None:
    agreement = answer(requested, Listener(heart_beat=fixed))
    assert (agreement.beat_ms, agreement.expected_ms) == (beat, expected)


@pytest.mark.parametrize(
    ("header", "numbers"),
    [
        ("0,0", (0, 0)),
        ("10000,5", (10_000, 5)),
        ("007,1", (7, 1)),
        (" 1 , 2 ", (1, 2)),
        ("9" * 18 + ",0", (10**18 - 1, 0)),
    ],
)
def test_header(header: str, numbers: tuple[int, int]) -> None:
    assert parse(header) == numbers


MALFORMED = [
    *("", ",", "1", "1,", ",1", "1,2,3", "-1,0", "0,-1", "+1,0", "1.5,0", "a,b", "1;2"),
    *("0x1,0", "1_0,0", "1\t,0", "²,0", "١,0", "9" * 19 + ",0", "1 1,0"),
]


@pytest.mark.parametrize("header", MALFORMED)
def test_malformed_header_closes_in_every_version(header: str) -> None:
    with pytest.raises(IllegalFrame) as fault:
        parse(header)
    assert (fault.value.code, fault.value.closes) == ("bad-heart-beat", True)
    assert repr(header) in fault.value.message
    assert "10000,10000" in fault.value.message


# --- time -----------------------------------------------------------------------------------------------------------------


def run(
    pulse: Pulse, *, until: float, late: float = 0.0, arrivals: tuple[float, ...] = ()
) -> list[tuple[float, Action]]:
    """What was due when, asked at each deadline (`late` s after it) and with data coming in at `arrivals`; sends count as sent."""
    happened: list[tuple[float, Action]] = []
    coming = list(arrivals)
    for _ in range(10_000):
        deadline = pulse.next_deadline()
        now = math.inf if deadline is None else deadline + late
        if coming and coming[0] <= now:
            pulse.received(coming.pop(0))
            continue
        if now > until:
            return happened
        action = pulse.due(now)
        if action is not None:
            happened.append((now, action))
        if action is Action.SEND:
            pulse.sent(now)
    raise AssertionError("the pulse asks in a circle")


def test_beats_go_out_after_half_to_one_interval_of_silence() -> None:
    happened = run(Pulse(Agreement(1000, 0, 0, beat_ms=1000), 100.0), until=110.0)
    assert {action for _, action in happened} == {Action.SEND}
    times = [100.0, *[now for now, _ in happened]]
    assert len(times) > 10
    assert all(0.5 <= later - earlier <= 1.0 for earlier, later in pairwise(times))


def test_a_beat_after_a_late_timer_is_still_in_time() -> None:
    happened = run(Pulse(Agreement(1000, 0, 0, beat_ms=1000), 0.0), until=10.0, late=0.2)
    assert all(later - earlier <= 1.0 for earlier, later in pairwise([0.0, *[now for now, _ in happened]]))


def test_data_that_was_sent_saves_the_beat() -> None:
    pulse = Pulse(Agreement(1000, 0, 0, beat_ms=1000), 0.0)
    for tenth in range(1, 50):
        pulse.sent(tenth * 0.4)
        assert pulse.due(tenth * 0.4 + 0.39) is None
        assert pulse.next_deadline() == pytest.approx(tenth * 0.4 + 0.75)


def test_time_out_at_twice_the_interval_and_not_before() -> None:
    agreement = answer((1000, 0), DEFAULT)
    pulse = Pulse(agreement, 50.0)
    assert pulse.next_deadline() == 52.0
    assert pulse.due(51.999) is None
    assert run(pulse, until=52.4, late=0.001) == [(52.001, Action.TIME_OUT)]


@given(st.integers(500, 100_000))
def test_cut_off_is_between_the_interval_and_two_and_a_half_of_it(can: int) -> None:
    happened = run(Pulse(answer((can, 0), DEFAULT), 0.0), until=can / 1000 * 2.4)
    (when, action) = happened[0]
    assert action is Action.TIME_OUT
    assert can / 1000 <= when < can / 1000 * 2.5


def test_any_data_keeps_a_client_alive() -> None:
    pulse = Pulse(answer((1000, 0), DEFAULT), 0.0)
    happened = run(pulse, until=101.5, arrivals=tuple(float(second) for second in range(1, 101)))
    assert happened == []
    assert pulse.due(102.0) is Action.TIME_OUT


def test_connection_ttl_of_a_client_without_heart_beats() -> None:
    pulse = Pulse(agree(None, DEFAULT), 0.0)
    assert pulse.next_deadline() == 60.0
    assert pulse.due(59.9) is None
    assert pulse.due(60.0) is Action.TIME_OUT


def test_nothing_agreed_nothing_due() -> None:
    pulse = Pulse(agree(None, replace(DEFAULT, connection_ttl=-1)), 0.0)
    assert pulse.next_deadline() is None
    assert pulse.due(1e9) is None


def test_what_is_due_is_said_once() -> None:
    """A caller that has stopped reading, or cannot write, must not be called again and again at a deadline that has passed."""
    pulse = Pulse(answer((1000, 1000), DEFAULT), 0.0)
    assert [pulse.due(5.0), pulse.due(5.0), pulse.due(5.0)] == [Action.TIME_OUT, Action.SEND, None]
    deadline = pulse.next_deadline()
    assert deadline is not None
    assert deadline > 5.0
    assert pulse.due(5.5) is Action.TIME_OUT
    pulse.received(6.0)
    assert pulse.due(7.9) is Action.SEND
    assert pulse.due(8.0) is Action.TIME_OUT


def test_time_out_says_why_and_what_to_do() -> None:
    missed = Pulse(answer((1000, 0), DEFAULT), 0.0).timed_out()
    assert (missed.code, missed.closes) == ("heart-beat-timeout", True)
    assert "2000 ms" in missed.message
    assert "every 1000 ms" in missed.message
    silent = Pulse(agree(None, DEFAULT), 0.0).timed_out()
    assert (silent.code, silent.closes) == ("connection-ttl", True)
    for word in ("60000 ms", "connectionTtl", "heart-beat header", "end of line"):
        assert word in silent.message


def test_repr_is_the_state_in_one_line() -> None:
    pulse = Pulse(answer((1000, 3000), DEFAULT), 0.0)
    assert repr(pulse) == "<Pulse sends every 3000 ms, expects every 1000 ms, ends after 2000 ms of silence>"
