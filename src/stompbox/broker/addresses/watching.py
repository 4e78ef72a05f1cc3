"""Who waits for addresses and queues that are not there yet: wildcard subscriptions and reader groups, found by the words of a new name.

The patterns stand in a tree of words, one part of it for all that begin alike, so a name meets only those that begin as it does. Where a
pattern has gone on for some words alone these are one node of the tree (`label`), and how far a name has come in it is a number with one
bit for each word that may be the next: `#` and `*` in the middle of very many words cost no more than the name has words. Whoever makes
an address for a client looks in steps first (`looking`), as a name of 500 words may meet very many patterns.

Nodes never change what they say of themselves, and share what stands behind them (`_Branch`) with those that take their place. So who
stopped half-way through the tree finds all that was there when it began, whatever comes or goes meanwhile; what has come is told to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from stompbox.broker.work import MESSAGE
from stompbox.config.matching import Spots, Wild, Wildcards, Words, is_match, shortest
from stompbox.config.spaces import MARK

if TYPE_CHECKING:
    from stompbox.broker.work import Work

VISITED: Final = 250  # nodes that a word is held against in one step, and patterns that are put into the tree
MOST_KEPT: Final = 20_000  # words of labels that are kept as bits: some megabytes
MOST_FRESH: Final = (
    100_000  # patterns that have come since somebody began to look; beyond, who looks begins anew
)
_ONE: Final = Wild.ONE_WORD


class Watcher:
    """A wildcard subscription, or a reader group, waits for addresses (topics) or anycast queues that match. `number`: the first comes
    first; `is_waiting`: it has not gone meanwhile."""

    __slots__ = ("is_waiting", "number", "on_address", "on_queue", "pattern")

    def __init__(
        self,
        pattern: str,
        on_address: Callable[[Any], None] | None = None,
        on_queue: Callable[[Any], None] | None = None,
    ) -> None:
        self.pattern = pattern
        self.on_address = on_address
        self.on_queue = on_queue
        self.number = 0
        self.is_waiting = True

    def come(self, number: int) -> None:
        """Whoever has a smaller number comes before it."""
        self.number = number

    def end(self) -> None:
        """Nothing that is made concerns it any more, and whoever knows it still does not know whose it was."""
        self.is_waiting = False
        self.on_address = self.on_queue = None


class _Branch:
    """What stands behind a node: whoever waits for just this, and the nodes that go on with a word, with `*` or with `#`."""

    __slots__ = ("any", "one", "watchers", "words")

    def __init__(self) -> None:
        self.watchers: dict[Watcher, None] | None = None
        self.words: dict[str, _Node] | None = None
        self.one: _Node | None = None
        self.any: _Node | None = None

    def join(self, watcher: Watcher) -> None:
        self.watchers = self.watchers or {}
        self.watchers[watcher] = None

    def leave(self, watcher: Watcher) -> None:
        if self.watchers is not None:
            self.watchers.pop(watcher, None)
            self.watchers = self.watchers or None

    def next(self, word: str | Wild) -> _Node | None:
        if isinstance(word, str):
            return None if self.words is None else self.words.get(word)
        return self.one if word is _ONE else self.any

    def put(self, node: _Node) -> None:
        """The node stands here, in place of the one that begins with the same word."""
        word = node.label[0]
        if isinstance(word, str):
            self.words = self.words or {}
            self.words[word] = node
        elif word is _ONE:
            self.one = node
        else:
            self.any = node

    def drop(self, word: str | Wild) -> None:
        if not isinstance(word, str):
            if word is _ONE:
                self.one = None
            else:
                self.any = None
        elif self.words is not None:
            del self.words[word]
            self.words = self.words or None

    def alone(self) -> _Node | None:
        """The one node that goes on from here, where nobody waits for just this."""
        count = len(self.words or ()) + (self.one is not None) + (self.any is not None)
        if count != 1 or self.watchers:
            return None
        return self.one or self.any or next(iter((self.words or {}).values()))

    @property
    def is_empty(self) -> bool:
        return not (self.watchers or self.words or self.one or self.any)


class _Node:
    """Words that follow each other in patterns, with nothing that ends or turns off between them."""

    __slots__ = ("branch", "label")

    def __init__(self, label: Words, branch: _Branch) -> None:
        self.label = label
        self.branch = branch


class _Looking:
    """How far a name has come in the tree: the nodes that it may be in, each with the places in its label."""

    __slots__ = ("_kept", "_spots", "at", "visited")

    def __init__(self, root: _Node) -> None:
        self._spots: dict[_Node, Spots] = {}
        self._kept = 0  # words of these
        self.at: dict[_Node, int] = {root: 1}
        self.visited = 0

    def _of(self, node: _Node) -> Spots:
        known = self._spots.get(node)
        if known is None:
            size = len(node.label)
            if self._kept > MOST_KEPT:
                self._spots.clear()
                self._kept = 0
            self._kept += size
            self.visited += size // 8
            known = self._spots[node] = Spots(node.label)
        return known

    def come(self, node: _Node, bits: int) -> None:
        """A name may be at these places of a node, and at those behind a `#`, which stands for no word, too."""
        known = self._of(node)
        self.at[node] = found = known.closed(self.at.get(node, 0) | bits)
        if found & known.end and (behind := node.branch.any) is not None:
            self.come(behind, 1)

    def take(self, word: str, *, only_so: bool) -> Iterator[None]:
        """Goes on by one word, in steps. `only_so`: no wildcard stands for it."""
        before, self.at = self.at, {}
        for node, bits in before.items():
            self.visited += 1
            if self.visited >= VISITED:
                self.visited = 0
                yield
            known, branch = self._of(node), node.branch
            if moved := known.moved(bits, word):
                self.come(node, moved)
            if bits & known.end:
                if branch.words is not None and (found := branch.words.get(word)) is not None:
                    self.come(found, 2)
                if branch.one is not None and not only_so:
                    self.come(branch.one, 2)

    def found(self) -> dict[Watcher, None]:
        """Who waits for a name that ends here."""
        found: dict[Watcher, None] = {}
        for node, bits in self.at.items():
            there = node.branch.watchers
            if there is not None and bits & 1 << len(node.label):
                found.update(there)
        return found


class Watchers:
    """All who wait. They join what is made in the order in which they came."""

    def __init__(self, wildcards: Wildcards) -> None:
        self._wildcards = wildcards
        self._root = _Node([], _Branch())
        self._all: dict[Watcher, None] = {}
        self._groups: dict[str, Watcher] = {}
        # patterns of reader groups that are to be put in, or taken out
        self._unfiled: deque[tuple[Watcher, Iterator[str], bool]] = deque()
        self._count = 0
        self._version = 0
        self._known: tuple[str, int, list[Watcher]] = ("", -1, [])  # of the last name that was looked for
        self._lookers = 0
        self._fresh: list[tuple[Words, Watcher]] = []  # what has come since the first of these began
        self._epoch = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def are_there(self) -> bool:
        """Whether anybody waits, groups among them."""
        return bool(self._all or self._groups)

    # Who waits

    def add(self, watcher: Watcher) -> None:
        """A wildcard subscription waits from now on."""
        self._all[watcher] = None
        self._number(watcher)
        self._file(watcher, watcher.pattern)

    def remove(self, watcher: Watcher) -> None:
        del self._all[watcher]
        watcher.end()
        self._take_out(watcher, watcher.pattern)

    def add_group(self, name: str, patterns: Iterable[str], on_address: Callable[[Any], None]) -> None:
        """A reader group waits for addresses of these names, too, however many they are: they are put into the tree by `filing`."""
        watcher = self._groups.get(name)
        if watcher is None:
            watcher = self._groups[name] = Watcher("", on_address=on_address)
            self._number(watcher)
        self._file_later(watcher, patterns, is_there=True)

    def remove_group(self, name: str, patterns: Iterable[str]) -> None:
        """The group waits for nothing any more; `patterns`: all that it was waiting for."""
        watcher = self._groups.pop(name)
        watcher.end()
        self._file_later(watcher, patterns, is_there=False)

    def _number(self, watcher: Watcher) -> None:
        self._count += 1
        watcher.come(self._count)

    def _file_later(self, watcher: Watcher, patterns: Iterable[str], *, is_there: bool) -> None:
        self._version += 1
        self._unfiled.append((watcher, iter(patterns), is_there))

    def filing(self, work: Work | None = None) -> Iterator[None]:
        """Puts in and takes out what waits for it, in steps. Several may be at it: each takes what comes next."""
        count = 0
        while self._unfiled:
            watcher, patterns, is_there = self._unfiled[0]
            pattern = next(patterns, None)
            if pattern is None:
                self._unfiled.popleft()
                continue
            if is_there:
                self._file(watcher, pattern)
            else:
                self._take_out(watcher, pattern)
            count += 1
            if count % VISITED == 0:
                if work is not None:
                    work.spend(MESSAGE * VISITED)
                yield

    # The tree

    def _file(self, watcher: Watcher, pattern: str) -> None:
        words = self._words(pattern)
        self._version += 1
        if self._lookers:
            self._note_fresh(words, watcher)
        node, at = self._root, 0
        while at < len(words):
            found = node.branch.next(words[at])
            if found is None:
                found = _Node(words[at:], _Branch())
                node.branch.put(found)
            same = _same(found.label, words, at)
            if same < len(found.label):
                middle = _Node(found.label[:same], _Branch())
                middle.branch.put(_Node(found.label[same:], found.branch))
                node.branch.put(middle)
                found = middle
            node, at = found, at + same
        node.branch.join(watcher)

    def _take_out(self, watcher: Watcher, pattern: str) -> None:
        words, path, at = self._words(pattern), [self._root], 0
        while at < len(words):
            node = path[-1].branch.next(words[at])
            if node is None:  # a group that names a.# and a.#.#, which is the same
                return
            path.append(node)
            at += len(node.label)
        last = path.pop()
        last.branch.leave(watcher)
        if last.branch.is_empty and path:
            path[-1].branch.drop(last.label[0])
            last = path.pop()
        if path and (alone := last.branch.alone()) is not None:
            path[-1].branch.put(_Node([*last.label, *alone.label], alone.branch))

    def _words(self, pattern: str) -> Words:
        """Splits the pattern, or the name of one address."""
        return shortest(self._wildcards.words(pattern))

    def _note_fresh(self, words: Words, watcher: Watcher) -> None:
        if len(self._fresh) >= MOST_FRESH:
            self._fresh.clear()
            self._epoch += 1
        self._fresh.append((words, watcher))

    # Who is found

    def looking(self, name: str) -> Iterator[None]:
        """Finds those who wait for an address of this name, in steps. Whoever makes it does so in the last one."""
        words, epoch, at = self._wildcards.split(name), self._epoch, len(self._fresh)
        self._lookers += 1
        try:
            found = yield from self._finding(words)
            while (at < len(self._fresh) or self._unfiled) and epoch == self._epoch:
                yield from self.filing()
                fresh = self._fresh[at : at + VISITED]
                for pattern, watcher in fresh:
                    if is_match(pattern, words):
                        found[watcher] = None
                at += len(fresh)
                if at < len(self._fresh):
                    yield
            if epoch == self._epoch:
                self._known = (name, self._version, _in_order(found))
        finally:
            self._lookers -= 1
            if not self._lookers:
                self._fresh.clear()

    def _finding(self, words: Sequence[str]) -> Generator[None, None, dict[Watcher, None]]:
        looking, is_inside = _Looking(self._root), words[0].startswith(MARK)
        if not is_inside:
            looking.come(self._root, 1)
        for number, word in enumerate(words):
            yield from looking.take(word, only_so=is_inside and not number)
            if not looking.at:
                break
        return looking.found()

    def of(self, name: str) -> list[Watcher]:
        """Who waits for an address of this name, or for queues of it."""
        if self._unfiled:
            for _ in self.filing():
                pass
        known, version, found = self._known
        if known != name or version != self._version:
            if self.are_there:
                for _ in self.looking(name):
                    pass
                found = self._known[2]
            else:
                found = []
        return [watcher for watcher in found if watcher.is_waiting]

    def __repr__(self) -> str:
        return f"<Watchers {len(self._all)} and {len(self._groups)} groups>"


def _same(label: Words, words: Words, at: int) -> int:
    """How many of the words from there on are those of the label."""
    most = min(len(label), len(words) - at)
    for number in range(most):
        if label[number] != words[at + number]:
            return number
    return most


def _in_order(found: Iterable[Watcher]) -> list[Watcher]:
    return sorted(found, key=_number_of)


def _number_of(watcher: Watcher) -> int:
    return watcher.number
