"""`stompbox doctor`: what is wrong with an installation, one line for each finding, with what to do about it.

Looks at what a broker would need on this machine: the configuration, the data folder, ports, limits and the clock; and at the broker that
runs on it. It changes nothing. Exit code 0: nothing is wrong, 1: something is.
"""

from __future__ import annotations

import os
import platform
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from cyclopts import App

from stompbox.cli.asking import ask, plain, print_json
from stompbox.cli.connecting import FAILED, counted
from stompbox.cli.examples import examples
from stompbox.cli.parameters import Admin, AsJson, ConfigFile, Data
from stompbox.errors import ConnectionLost, StompboxError, reason_of

if TYPE_CHECKING:
    from stompbox.config import Configuration, Listener, Loaded

Level = Literal["good", "warning", "wrong"]

FEW_FILES: Final = 4096  # that a broker should be able to open: one for each connection, and some
OLDEST: Final = 1_735_689_600  # 2025-01-01: a clock before it was never set
ANY_PORT: Final = (
    "the admin interface listens at a port that the system chooses, and nothing says which (--admin does)"
)
LATE: Final = 5000  # ms that the clock of a broker may differ from ours

app = App(name="doctor", help_epilogue=examples("doctor"))


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found about something, and what to do where it is not good."""

    level: Level
    about: str
    text: str


@app.default
def doctor(
    *, config: ConfigFile = None, data: Data = None, admin: Admin = None, as_json: AsJson = False
) -> None:
    """Say what is wrong with this installation, and what to do: configuration, data folder, ports, limits, clock, the running broker.

    Exit code 0: nothing is wrong, 1: something is. Nothing is changed.
    """
    found = list(findings(config, data, admin))
    if as_json:
        print_json([{"level": one.level, "about": one.about, "text": one.text} for one in found])
    else:
        for one in found:
            print(plain(f"{one.level:<8} {one.about + ':':<14} {one.text}"))
    if any(one.level == "wrong" for one in found):
        sys.exit(FAILED)


def findings(config: Path | None, data: Path | None, admin: str | None) -> Iterator[Finding]:
    """All of them, in the order in which a start comes across them."""
    yield Finding(
        "good", "python", f"{platform.python_implementation()} {platform.python_version()}, {sys.platform}"
    )
    yield _files()
    yield _clock()
    loaded: Loaded | None = None
    try:
        loaded, warnings = _loaded(config, data)
    except StompboxError as error:
        yield Finding("wrong", "configuration", f"{error}; `stompbox config schema` describes each key")
    else:
        yield from [Finding("warning", "configuration", warning) for warning in warnings]
        if not warnings:
            yield Finding(
                "good", "configuration", f"read, {counted(len(loaded.configuration.users), 'user')}"
            )
    if loaded is None:
        return
    configuration = loaded.configuration
    owner = 0
    if configuration.memory:
        yield Finding("good", "data folder", "none: all is in memory, and gone when the broker ends")
    else:
        folder = Path(configuration.data)
        owner = _owner(folder)
        yield from _folder(folder, configuration, owner)
    is_there = False
    for finding in _running(admin, configuration):
        is_there = is_there or finding.level != "warning"
        yield finding
    for listener in configuration.listening():
        yield _port(listener, is_running=bool(owner) or is_there)


def _loaded(config: Path | None, data: Path | None) -> tuple[Loaded, list[str]]:
    from stompbox.config import read
    from stompbox.config.sources import kept_of
    from stompbox.server.verifying import verify

    loaded = read(config, os.environ, {"data": str(data) if data is not None else None}, kept_of)
    return loaded, verify(loaded)


def _files() -> Finding:
    from stompbox.server.transport import descriptors

    most = descriptors.reachable()
    if most == descriptors.UNLIMITED:
        return Finding("good", "open files", "this system sets no limit")
    if most < FEW_FILES:
        text = f"{most} at most, and each connection is one; `ulimit -Hn {descriptors.WANTED}`, or LimitNOFILE= in the unit of systemd"
        return Finding("warning", "open files", text)
    return Finding("good", "open files", f"{most} at most: a broker takes what it is let have")


def _clock() -> Finding:
    now = time.time()
    if now < OLDEST:
        text = f"it is {time.strftime('%Y-%m-%d', time.gmtime(now))} here: the clock is wrong, so expiry and schedules are; set it (NTP)"
        return Finding("wrong", "clock", text)
    return Finding("good", "clock", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now)))


def _owner(folder: Path) -> int:
    """The process whose broker has the folder; 0 for none."""
    from stompbox.store.folder import LOCK

    try:
        import fcntl

        with (folder / LOCK).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read(20) or b"-1")
    except (OSError, ImportError, ValueError):
        pass
    return 0


def _folder(folder: Path, configuration: Configuration, owner: int) -> Iterator[Finding]:
    from stompbox.store.folder import HAS_LOCKS, NO_LOCKS

    about = "data folder"
    if not HAS_LOCKS:
        yield Finding("wrong", about, f"{folder}: {NO_LOCKS}")
        return
    nearest = next((one for one in (folder, *folder.absolute().parents) if one.exists()), Path("/"))
    if not nearest.is_dir():
        yield Finding("wrong", about, f"{nearest} is a file; `data` names a folder")
        return
    if not os.access(nearest, os.W_OK | os.X_OK):
        what = (
            "cannot be written by this user"
            if nearest == folder
            else f"cannot be made in {nearest} by this user"
        )
        yield Finding("wrong", about, f"{folder} {what}; `data` or --data names another one, or chown it")
        return
    if nearest == folder and folder.stat().st_mode & 0o077 and any(folder.iterdir()):
        text = f"{folder} may be read by others ({folder.stat().st_mode & 0o777:o}); chmod 700 {folder}"
        yield Finding("warning", about, text)
    yield _room(folder, nearest, configuration)
    if owner:
        yield Finding("good", about, f"{folder}, in use by the broker with process id {owner}")
    elif nearest == folder:
        yield Finding("good", about, f"{folder}; `stompbox store check` reads all of it")
    else:
        yield Finding("good", about, f"{folder} is not there yet, and will be made")


def _room(folder: Path, nearest: Path, configuration: Configuration) -> Finding:
    from shutil import disk_usage

    usage, least = disk_usage(nearest), configuration.min_disk_free
    free = f"{usage.free >> 20} MiB are free"
    if usage.free < least:
        text = f"{free} for {folder}, min-disk-free is {least >> 20} MiB: persistent messages are refused; make room"
        return Finding("wrong", "disk", text)
    if usage.free < 4 * least:
        return Finding(
            "warning", "disk", f"{free} for {folder}, not much above min-disk-free, {least >> 20} MiB"
        )
    return Finding("good", "disk", f"{free} for {folder}")


def _running(admin: str | None, configuration: Configuration) -> Iterator[Finding]:
    """What a running broker says of itself."""
    endpoint = configuration.admin.endpoint()
    where = (
        admin or os.environ.get("STOMPBOX_ADMIN_URL") or (_url(endpoint, configuration) if endpoint else None)
    )
    if where is None:
        text = "the configuration has no admin interface" if endpoint is None else ANY_PORT
        yield Finding("warning", "broker", f"{text}, so a running broker cannot be asked")
        return
    try:
        status = ask(where, "status")
    except ConnectionLost as error:
        yield Finding("warning", "broker", f"none runs, or it cannot be asked: {error}")
        return
    except StompboxError as error:
        yield Finding("wrong", "broker", str(error))
        return
    for reason in status["reasons"]:
        yield Finding("wrong", "broker", f"not ready: {reason['message']} ({reason['code']})")
    if status["is_ready"]:
        text = f"version {status['version']} answers and is ready, {status['connections']} connections"
        yield Finding("good", "broker", text)
    apart = int(time.time() * 1000) - (status["started"] + status["uptime"])
    if abs(apart) > LATE:
        yield Finding(
            "wrong", "clock", f"the broker's differs from ours by {abs(apart) / 1000:.0f} s; set both (NTP)"
        )


def _url(endpoint: tuple[str, int], configuration: Configuration) -> str | None:
    """The admin interface as --admin names it; None where the system chooses its port."""
    from stompbox.config.listener import is_path

    host, port = endpoint
    if not port:
        return f"unix://{host}" if is_path(host) else None
    scheme = "https" if configuration.admin.key_store_path else "http"
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    return f"{scheme}://[{shown}]:{port}" if ":" in shown else f"{scheme}://{shown}:{port}"


def _port(listener: Listener, *, is_running: bool) -> Finding:
    """Whether a broker could listen there."""
    about, shown = "listener", str(listener)
    if listener.is_unix or not listener.port:
        return Finding("good", about, shown)
    try:
        family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((listener.host, listener.port))
    except OSError as error:
        if is_running:
            return Finding("good", about, f"{shown}, taken: by the broker that runs")
        text = f"{shown}: {reason_of(error)}; end what has it (`ss -ltnp`), or listen elsewhere with --listen"
        return Finding("wrong", about, text)
    if is_running:
        return Finding(
            "warning",
            about,
            f"{shown} is free: the broker that runs does not listen there; restart it, or --config names its file",
        )
    return Finding("good", about, f"{shown} is free")
