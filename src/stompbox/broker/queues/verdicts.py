"""What selectors have said of shapes of late: whoever asks the same again, as each of ten thousand messages of a stream does, need not.

A shape may be there for long, as that of a retained message is, and so may a selector; a thousand of each are a million answers. So these
do not belong to the shapes: HALF of them are kept, those that came or were asked for last, and up to as many from before.
"""

from __future__ import annotations

from typing import Final

HALF: Final = 8_192  # of some 200 octets each

Key = tuple[int, int, str, bool]
"""The numbers of the selector and of the shape, the address where its name matters, and whether the messages outlive a restart there."""


class Verdicts:
    __slots__ = ("_before", "_recent")

    def __init__(self) -> None:
        self._recent: dict[Key, bool] = {}
        self._before: dict[Key, bool] = {}

    def of(self, key: Key) -> bool | None:
        """What the selector has said; None: nobody knows that any more."""
        found = self._recent.get(key)
        if found is None and key in self._before:
            found = self._before[key]
            self.note(key, found)
        return found

    def note(self, key: Key, verdict: bool) -> None:
        if len(self._recent) >= HALF:
            self._before, self._recent = self._recent, {}
        self._recent[key] = verdict

    def forget(self) -> None:
        """Lets go of all, in 2 ms at the most."""
        self._recent, self._before = {}, {}

    def __len__(self) -> int:
        """How many are kept; one that was asked for again may count twice."""
        return len(self._recent) + len(self._before)

    def __repr__(self) -> str:
        return f"<Verdicts {len(self)}>"
