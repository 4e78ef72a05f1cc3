"""Who waits for a commit together, and whether it is worth a look whether the rest of them come.

Clients that wait for each receipt are answered together, and answer within a few turns of the loop. A commit that begins with the first of
them leaves the others to the next one, and so two groups take turns for ever: twice the commits, each for half of them. Who is alone never
waits.
"""

from __future__ import annotations

from typing import Final

LOOKS: Final = 3  # turns of the loop, of which each takes what the sockets have


class Company:
    def __init__(self) -> None:
        self.served = 0  # connections that waited for the last commit
        self._looks = 0  # for the next one

    def is_whole(self, waiting: int, *, is_turn_over: bool) -> bool:
        """There is nobody to wait for. `is_turn_over`: all that the sockets had was obeyed."""
        if self.served < 2 and waiting < 2:
            return True
        return is_turn_over and waiting >= self.served

    def is_worth_a_look(self, waiting: int) -> bool:
        """Another turn of the loop may bring more of them. Counts the looks."""
        self._looks += 1
        return waiting < self.served and self._looks <= LOOKS

    def goes(self) -> None:
        """The commit is under way, or there is none to wait for."""
        self._looks = 0
