"""What came or was asked for last is kept, within a bound."""

from __future__ import annotations

from stompbox.recent import Recent


def test_what_came_or_was_asked_for_last_is_kept() -> None:
    recent = Recent[str, int](20)
    recent.note("asked for", 1)
    recent.note("not asked for", 2)
    for number in range(9):
        recent.note(f"a{number}", number)
    assert recent.of("asked for") == 1
    for number in range(9):
        recent.note(f"b{number}", number)
    assert recent.of("asked for") == 1
    assert recent.of("not asked for") is None
    for number in range(20):
        recent.note(f"c{number}", number)
        assert len(recent) <= 20
    assert recent.of("asked for") is None
    assert recent.of("c19") == 19
    assert repr(recent) == f"<Recent {len(recent)}>"
    recent.forget()
    assert (len(recent), recent.of("c19")) == (0, None)


def test_they_may_have_weights() -> None:
    recent = Recent[int, bytes](1000, len)
    for number in range(100):
        recent.note(number, bytes(100))
        assert recent.of(number) == bytes(100)
        assert len(recent) <= 10
    recent.note(100, bytes(501))
    assert recent.of(100) is None
    assert recent.of(99) == bytes(100), "what does not fit throws nothing out"
