"""The disk as the broker sees it: whether messages can be stored now, what is said when that changes, when it is tried again.

| state   | since                                                              | messages that need the disk    | commits                  |
|---------|--------------------------------------------------------------------|--------------------------------|--------------------------|
| good    |                                                                    | are taken                      | at once                  |
| low     | less space than `min-disk-free`, more in use than `max-disk-usage` | refused, or their senders wait | at once, for ACKs        |
| failing | a commit was refused: no space, an I/O error, read-only files      | the same                       | tried again now and then |

Which of the two, `disk-full-policy` says, per address. What becomes of the commit that failed is decided in broker/commits.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stompbox.broker.commits import Trouble
from stompbox.errors import StoreError
from stompbox.store.base import Commit

if TYPE_CHECKING:
    from stompbox.server.seam import Core

log = logging.getLogger("stompbox.disk")

RETRY_FIRST: Final = 0.25  # seconds until a commit is tried again,
RETRY_MOST: Final = 5.0  # and twice as long each time, but no longer than this
_MIB: Final = 1 << 20


class Disk:
    """Watches the disk, and tries again what it has refused. `folder` None: everything is in memory, which is never full."""

    def __init__(self, broker: Core, folder: Path | None) -> None:
        self.broker = broker
        self.folder = folder
        self.failure: StoreError | None = None
        self.outage: Trouble | None = None  # somebody else says that nothing can be stored,
        self.doubt: Trouble | None = None  # or that it may be so, which the next commit will show
        self.shortage = ""  # what there is too little of; empty: enough
        self.is_waiting = False  # for the time at which a commit is tried again
        self._delay = RETRY_FIRST
        self._failed_at = 0.0
        self._retry: asyncio.TimerHandle | None = None
        self._scan: asyncio.TimerHandle | None = None
        if folder is not None:
            self.look()

    @property
    def is_good(self) -> bool:
        return self.failure is None and self.outage is None and self.doubt is None and not self.shortage

    @property
    def is_probed(self) -> bool:
        """The next commit is to show whether one works, and there has to be one."""
        return self.failure is not None or self.doubt is not None

    # Space

    def look(self) -> None:
        """Looks at the free space, and again after each `disk-scan-period`."""
        configuration = self.broker.configuration
        self._scan = self.broker.loop.call_later(configuration.disk_scan_period / 1000, self.look)
        assert self.folder is not None
        try:
            found = os.statvfs(self.folder)
        except OSError as error:  # the store will say so too, when it is asked to write
            log.warning("free space of %s cannot be looked at: %s", self.folder, error)
            return
        free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
        self._judge(free, 100 - 100 * free // total if total else 0)

    def _judge(self, free: int, used: int) -> None:
        configuration = self.broker.configuration
        shortage = ""
        if free < configuration.min_disk_free:
            shortage = (
                f"{free // _MIB} MiB are free, min-disk-free is {configuration.min_disk_free // _MIB} MiB"
            )
        elif 0 <= configuration.max_disk_usage < used:
            shortage = f"{used} % are in use, max-disk-usage is {configuration.max_disk_usage} %"
        if bool(shortage) != bool(self.shortage):
            if shortage:
                said = "the disk of %s is full: %s. Messages that need it are not taken"
                log.error(said, self.folder, shortage, extra={"code": "disk-full"})
            else:
                log.warning("the disk of %s has room again", self.folder)
        self.shortage = shortage
        self._tell()

    # Commits

    def failed(self, error: StoreError) -> None:
        """A commit is not in the store. Says so once, and waits before the next one."""
        if self.failure is None:
            self._failed_at = self.broker.loop.time()
            code = error.code
            log.error(
                "messages cannot be stored: %s (%s). It is tried again until it works",
                error.message,
                code,
                extra={"code": code},
            )
        self.failure = error
        self._tell()
        if self.broker.is_stopping:
            return
        self.is_waiting = True
        self._retry = self.broker.loop.call_later(self._delay, self._try_again)
        self._delay = min(2 * self._delay, RETRY_MOST)

    def worked(self) -> None:
        """A commit is in the store: the disk works again."""
        if self.failure is None:
            return
        self.failure = None
        self._delay = RETRY_FIRST
        log.warning("messages are stored again, after %.1f s", self.broker.loop.time() - self._failed_at)
        self._tell()

    def suspend(self, outage: Trouble | None) -> None:
        """What must be stored is refused for another reason than the disk's, or for none any more."""
        if (self.outage is None) is not (outage is None):
            self.outage = outage
            self._tell()

    def try_now(self) -> None:
        """Somebody knows that it works again: no commit waits for its time."""
        if self.is_waiting and self._retry is not None:
            self._retry.cancel()
            self._try_again()

    def _try_again(self) -> None:
        self.is_waiting = False
        self.broker.try_commit()

    def probe(self) -> Commit:
        """A commit that changes nothing, to see whether one works."""
        return Commit(entries={("broker", "epoch"): self.broker.engine.epoch.to_bytes(4)})

    def _tell(self) -> None:
        """The engine refuses what could not be stored; those who wait may go on when it is good again."""
        broker = self.broker
        if self.outage is not None:
            broker.engine.trouble = self.outage
        elif self.failure is not None:
            broker.engine.trouble = Trouble(
                self.failure.code, f"the broker cannot store messages now ({self.failure.code})"
            )
        elif self.shortage:
            broker.engine.trouble = Trouble(
                "disk-full", "the broker cannot store messages now: its disk is full"
            )
        else:
            broker.engine.trouble = None
            broker.pressure.relieve()

    def close(self) -> None:
        """Ends the waiting: nothing is tried again, nothing is looked at."""
        self.is_waiting = False
        for timer in (self._retry, self._scan):
            if timer is not None:
                timer.cancel()

    def __repr__(self) -> str:
        state = (
            "good"
            if self.is_good
            else self.failure.code
            if self.failure is not None
            else f"low: {self.shortage}"
        )
        return f"<Disk {self.folder or 'none'} {state}>"
