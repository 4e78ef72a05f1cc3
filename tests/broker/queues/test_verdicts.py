"""What selectors have said is kept for a while, and no longer."""

from __future__ import annotations

from stompbox.broker.queues.verdicts import HALF, Verdicts


def test_what_was_said_or_asked_for_last_is_kept() -> None:
    verdicts = Verdicts()
    verdicts.note((1, 1, "", True), verdict=False)
    verdicts.note((1, 2, "", True), verdict=True)
    for number in range(HALF - 1):
        verdicts.note((2, number, "", True), verdict=True)
    assert verdicts.of((1, 1, "", True)) is False
    for number in range(HALF - 2):
        verdicts.note((3, number, "", True), verdict=True)
    assert verdicts.of((1, 1, "", True)) is False
    assert verdicts.of((1, 2, "", True)) is True
    for number in range(HALF):
        verdicts.note((4, number, "", True), verdict=True)
    assert verdicts.of((2, 5, "", True)) is None
    assert repr(verdicts) == f"<Verdicts {len(verdicts)}>"
    assert len(verdicts) <= 2 * HALF
    verdicts.forget()
    assert (len(verdicts), verdicts.of((4, 1, "", True))) == (0, None)
