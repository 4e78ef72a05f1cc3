"""Why connections ended, which is known when they are gone; the interface that shows it is tests/admin/test_clients.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from stompbox.config import Listener
from stompbox.security import User
from stompbox.server.closings import INSIDE, KEPT, LONGEST, LOST, Closings


def gone(number: int, scheme: str = "tcp") -> Any:
    return SimpleNamespace(
        session_id=number, peer="192.0.2.7", user=User("alice"), client_id="shop", listener=Listener(scheme, "127.0.0.1", 61613),
        since=1000, transport=SimpleNamespace(port=50_000),
    )  # fmt: skip


def test_the_last_ones_are_kept_the_newest_last() -> None:
    closings = Closings()
    for number in range(KEPT + 5):
        closings.tell(gone(number), LOST, 2000 + number)
    assert [one.id for one in closings] == [*range(5, KEPT + 5)]
    last = list(closings)[-1]
    assert (last.peer, last.port, last.user, last.client_id) == ("192.0.2.7", 50_000, "alice", "shop")
    assert (last.listener, last.since, last.at) == ("tcp://127.0.0.1:61613", 1000, 2000 + last.id)
    assert (last.code, last.text) == LOST


def test_a_long_text_is_cut_and_the_brokers_own_are_left_out() -> None:
    closings = Closings()
    closings.tell(gone(1), ("bad-frame", "x" * 10_000), 2000)
    closings.tell(gone(2, INSIDE), LOST, 2000)
    assert [(one.id, len(one.text)) for one in closings] == [(1, LONGEST)]


def test_all_that_is_kept_is_made_anew_and_says_the_same() -> None:
    """None of the objects stays where it was."""
    closings = Closings()
    for number in range(KEPT):
        closings.tell(gone(1000 + number), ("bad-frame", f"text {number}"), 2000 + number)
    before = list(closings)
    assert closings.renew() and not closings.renew(), "nothing has come since"
    after = list(closings)
    assert after == before and len(after) == KEPT
    for one, other in zip(before, after, strict=True):
        assert (
            one is not other
            and one.id is not other.id
            and one.text is not other.text
            and one.at is not other.at
        )
    closings.tell(gone(1), LOST, 9000)
    assert len(closings) == KEPT and closings.renew()
