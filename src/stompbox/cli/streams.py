"""Stdin, stdout and files of a command that has a connection to keep: read and written beside its loop, never on it.

Heart-beats, receipts and confirmations go on while a pipe is full or a terminal is silent. What is read is handed over as it comes, and
no further is read before that was taken; what is written is waited for: back-pressure goes from pipe to broker and from broker to pipe.
The threads are daemons that hold no lock: a command that is told to end does not wait for the next line.
"""

from __future__ import annotations

import asyncio
import select
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from io import FileIO
from pathlib import Path
from typing import Any, Final, TypeVar

from stompbox.errors import UsageError

READ_SIZE: Final = 64 * 1024  # octets of one read: what a pipe holds

_Value = TypeVar("_Value")


async def off_loop(call: Callable[[], _Value]) -> _Value:
    """What `call` returns or raises, in a thread of its own. Cancelled, the thread is left behind and ends with the process."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[_Value] = loop.create_future()

    def tell(settle: Callable[[Any], None], value: Any) -> None:
        if not answer.done():
            settle(value)

    def work() -> None:
        try:
            said: tuple[Callable[[Any], None], Any] = answer.set_result, call()
        except BaseException as error:
            said = answer.set_exception, error
        try:
            loop.call_soon_threadsafe(tell, *said)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    threading.Thread(target=work, name="stompbox-stream", daemon=True).start()
    return await answer


async def opened(file: Path | None) -> FileIO:
    """A file, or stdin for None, which must be open. Raises UsageError when it cannot be read."""
    if file is None:
        # no buffer of its own, whose lock the end of the process would want
        return FileIO(sys.stdin.fileno(), closefd=False)
    try:
        return await off_loop(lambda: file.open("rb", buffering=0))
    except OSError as error:
        raise UsageError("bad-argument", f"--file {str(file)!r} cannot be read: {error.strerror}") from None


async def pieces(source: FileIO) -> AsyncIterator[bytes]:
    """The octets of a source, piece by piece, as they come."""
    while octets := await off_loop(lambda: _read(source)):
        yield octets


async def whole(source: FileIO) -> bytes:
    return b"".join([piece async for piece in pieces(source)])


async def content(body: str | None, file: Path | None) -> bytes:
    """What is given, else what the file or stdin holds. That may be nothing at all, but at a terminal: who ends it at once has changed
    his mind. Raises UsageError."""
    if body is not None:
        return body.encode()
    with await opened(file) as source:
        found = await whole(source)
    if not found and file is None and sys.stdin.isatty():
        raise UsageError(
            "nothing-typed", "nothing was typed, and nothing is sent; an empty body is given as ''"
        )
    return found


async def lines(source: FileIO) -> AsyncIterator[bytes]:
    """Each line as soon as it is whole, without its end; what comes last needs none."""
    begun: list[bytes] = []
    async for piece in pieces(source):
        first, *others = piece.split(b"\n")
        begun.append(first)
        for other in others:
            yield b"".join(begun).rstrip(b"\r")
            begun = [other]
    if last := b"".join(begun):
        yield last.rstrip(b"\r")


def _read(source: FileIO) -> bytes:
    try:
        while (octets := source.read(READ_SIZE)) is None:  # whoever gave it to us does not want to wait
            select.select([source], [], [])
    except OSError as error:
        name = "stdin" if isinstance(source.name, int) else f"--file {str(source.name)!r}"
        raise UsageError("bad-argument", f"{name} cannot be read: {error.strerror}") from None
    return octets


async def write(octets: bytes) -> None:
    """To stdout; returns when the system has it. Raises BrokenPipeError when nobody reads any more."""
    if sys.stdout is not None:
        sys.stdout.flush()
        raw = FileIO(sys.stdout.fileno(), "wb", closefd=False)
        if len(octets) <= select.PIPE_BUF and select.select([], [raw], [], 0)[1]:
            # POSIX, pipe: so much goes without waiting
            _write(raw, octets)
        else:
            await off_loop(lambda: _write(raw, octets))


def _write(raw: FileIO, octets: bytes) -> None:
    left = memoryview(octets)
    while left:
        written = raw.write(left)
        if written is None:
            select.select([], [raw], [])
        else:
            left = left[written:]


@asynccontextmanager
async def while_read() -> AsyncIterator[None]:
    """Ends what is done inside with BrokenPipeError as soon as nobody reads stdout any more, also while there is nothing to be written.

    `subscribe … | head -3` has printed its lines before `head` goes: the next message, whose write would fail, may never come.
    """
    if sys.stdout is None or not hasattr(select, "poll"):  # Windows: the next write finds out
        yield
        return
    task = asyncio.current_task()
    assert task is not None
    is_inside = True

    def notice(watched: asyncio.Future[None]) -> None:
        if is_inside and not watched.cancelled():  # it may come when a write has found out already
            task.cancel()

    watch = asyncio.ensure_future(off_loop(partial(_wait_until_unread, sys.stdout.fileno())))
    watch.add_done_callback(notice)
    try:
        yield
    except asyncio.CancelledError:
        if not watch.done() or watch.cancelled():
            raise
        task.uncancel()
        raise BrokenPipeError("nobody reads stdout any more") from None
    finally:
        is_inside = False
        watch.cancel()


def _wait_until_unread(stdout: int) -> None:
    poll = select.poll()
    poll.register(stdout, 0)  # POLLERR and POLLHUP are told without being asked for (POSIX, poll)
    poll.poll()
