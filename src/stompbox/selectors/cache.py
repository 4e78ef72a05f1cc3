"""Selectors by their text, so that the same text is compiled once: those that somebody has, and some that nobody has just now.

What a subscription has is found here as long as the subscription lives, and costs nothing more. What nobody has is kept within so many
octets of memory; each user's selectors are counted, and whose are most loses the one that it has not asked for the longest. So a user
who comes with ever new selectors throws out its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator
from weakref import WeakValueDictionary

from stompbox.selectors.limits import SelectorLimits
from stompbox.selectors.selector import Selector, compile_selector, compiling

Key = tuple[str, bool, SelectorLimits]


class SelectorCache:
    """Selectors that are in use, compiled once for all who use them. `most`: octets. `size`: of all that are kept, as far as they are
    counted here."""

    __slots__ = ("_by_user", "_living", "_sizes", "_users", "most", "size")

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = 0
        self._living: WeakValueDictionary[Key, Selector] = WeakValueDictionary()
        # the one that was asked for last at the end
        self._by_user: dict[str, OrderedDict[Key, Selector]] = {}
        self._users: dict[Key, str] = {}  # whom it is counted for: who asked first
        self._sizes: dict[str, int] = {}  # by user

    def compiled(self, text: str, user: str, *, conversion: bool, limits: SelectorLimits) -> Selector:
        """The selector of a text, kept from an earlier time or compiled now. Raises SelectorError."""
        key = (text, conversion, limits)
        found = self._living.get(key)
        if found is None:
            found = self._living[key] = compile_selector(text, conversion=conversion, limits=limits)
        self._keep(key, found, user)
        return found

    def compiling(
        self, text: str, user: str, *, conversion: bool, limits: SelectorLimits
    ) -> Generator[None, None, Selector]:
        """Compiles as `compiled` does, in steps."""
        key = (text, conversion, limits)
        found = self._living.get(key)
        if found is None:
            found = yield from compiling(text, conversion=conversion, limits=limits)
            found = self._living.setdefault(key, found)
        self._keep(key, found, user)
        return found

    def knows(self, text: str, *, conversion: bool, limits: SelectorLimits) -> bool:
        """Whether the selector of a text is kept, so that it takes no time."""
        return (text, conversion, limits) in self._living

    def limit(self, most: int) -> None:
        self.most = most
        self._make_room()

    def _keep(self, key: Key, selector: Selector, user: str) -> None:
        known = self._users.get(key)
        if known is not None:
            self._by_user[known].move_to_end(key)
        elif selector.size <= self.most:
            self._users[key] = user
            self._by_user.setdefault(user, OrderedDict())[key] = selector
            self._count(user, selector.size)
            self._make_room()

    def letting_go(self) -> Generator[None, None, None]:
        """Keeps none that nobody has, in steps: to free one may take a millisecond."""
        while self._users:
            self._drop_oldest()
            yield

    def _make_room(self) -> None:
        while self.size > self.most:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        user = max(self._sizes, key=self._sizes.__getitem__)
        kept = self._by_user[user]
        key, selector = kept.popitem(last=False)
        del self._users[key]
        self._count(user, -selector.size)
        if not kept:
            del self._by_user[user], self._sizes[user]

    def _count(self, user: str, octets: int) -> None:
        self._sizes[user] = self._sizes.get(user, 0) + octets
        self.size += octets

    def __len__(self) -> int:
        return len(self._users)

    def __repr__(self) -> str:
        return f"<SelectorCache {len(self)} of {len(self._by_user)} users, {self.size} of {self.most} octets>"
