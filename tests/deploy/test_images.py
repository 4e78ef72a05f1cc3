"""The image of deploy/container, built and started where there is a Docker engine: it becomes healthy as nobody in
particular, on a file system that it can only read, delivers a message, and ends in order. The container has no network: what is asked of
it is asked within it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import uuid
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from tests.conftest import ROOT

REQUIRED = os.environ.get("CONTAINER_TESTS") == "required"
WITHIN_BUILD, WITHIN = 900, 120  # seconds
LIMITS = (
    "--network=none",
    "--read-only",
    "--tmpfs=/tmp",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
)


def docker(*words: str, within: int = WITHIN, is_good: bool = True) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        ["docker", *words], cwd=ROOT, capture_output=True, text=True, timeout=within, check=False
    )
    assert done.returncode == 0 or not is_good, f"{' '.join(words)}: {done.stdout}{done.stderr}"
    return done


def looked_at(name: str) -> Any:
    return json.loads(docker("inspect", name).stdout)[0]


def within(container: str, *words: str) -> str:
    return docker("exec", container, *words).stdout.strip()


def skipped(why: str) -> NoReturn:
    if REQUIRED:
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(scope="module")
def image() -> str:
    if shutil.which("docker") is None:
        skipped("docker is not here")
    if (answer := docker("info", is_good=False)).returncode:
        skipped(f"no Docker engine answers: {answer.stderr.strip()}")
    words = ["--network", "host", "--file", "deploy/container/Containerfile", "--tag", "stompbox-tested", "."]
    built = docker("build", *words, within=WITHIN_BUILD, is_good=False)
    if built.returncode and "pull" in built.stderr:
        skipped(f"the base image is not to be had here: {built.stderr.strip()}")
    assert built.returncode == 0, built.stderr
    return "stompbox-tested"


@pytest.fixture
def container(image: str) -> Iterator[str]:
    """One that is healthy, or the test fails with its log."""
    name = f"stompbox-{uuid.uuid4().hex[:12]}"
    docker("run", "--detach", "--name", name, *LIMITS, image)
    try:
        wait_until_healthy(name)
        yield name
    finally:
        docker("rm", "--force", "--volumes", name)


def wait_until_healthy(name: str) -> None:
    """Docker's own events say when to look again; the container's end is one of them."""
    started = looked_at(name)["State"]["StartedAt"]
    words = ["events", "--since", started, "--filter", f"container={name}", "--format", "{{.Status}}"]
    with subprocess.Popen(["docker", *words], stdout=subprocess.PIPE, text=True) as events:
        assert events.stdout is not None
        deadline = threading.Timer(WITHIN, events.kill)
        deadline.start()
        try:
            state = next(
                state
                for line in events.stdout
                if line.startswith(("health_status", "die"))
                and (state := looked_at(name)["State"])["Health"]["Status"] != "starting"
            )
        except StopIteration:
            state = looked_at(name)["State"]
        finally:
            deadline.cancel()
            events.kill()
    assert state["Health"]["Status"] == "healthy", f"{state}: {docker('logs', name).stderr}"


def test_it_is_healthy_and_delivers(container: str) -> None:
    within(container, "stompbox", "send", "/queue/orders", "42 apples")
    got = within(container, "stompbox", "subscribe", "/queue/orders", "--count", "1", "--timeout", "60")
    assert got == "42 apples"
    assert looked_at(container)["State"]["Health"]["Status"] == "healthy"


WRITABLE = "[place for place in ('/', '/opt/stompbox', '/tmp', '/data') if os.access(place, os.W_OK)]"


def test_it_is_nobody_and_writes_to_its_data_alone(container: str) -> None:
    look = f"import os; print(os.getuid(), os.getgid(), {WRITABLE})"
    assert within(container, "python", "-c", look) == "10001 10001 ['/tmp', '/data']"
    assert "stompbox.db" in within(container, "ls", "/data")


def test_it_ends_in_order_and_has_its_messages_again(container: str) -> None:
    within(container, "stompbox", "send", "/queue/kept", "42 pears")
    docker("stop", "--time", "90", container)
    assert looked_at(container)["State"]["ExitCode"] == 0
    docker("start", container)
    wait_until_healthy(container)
    got = within(container, "stompbox", "subscribe", "/queue/kept", "--count", "1", "--timeout", "60")
    assert got == "42 pears"


def test_the_health_check_fails_where_no_broker_answers(image: str) -> None:
    _, *command = looked_at(image)["Config"]["Healthcheck"]["Test"]
    done = docker("run", "--rm", *LIMITS, "--entrypoint", command[0], image, *command[1:], is_good=False)
    assert done.returncode == 1
    assert "Connection refused" in done.stderr


def test_it_lets_nobody_from_outside_in_before_there_are_users(image: str) -> None:
    words = ("serve", "--data", "/data", "--listen", "tcp://0.0.0.0:61613")
    done = docker("run", "--rm", *LIMITS, image, *words, is_good=False)
    assert done.returncode == 2
    assert "tcp://0.0.0.0:61613" in done.stderr and "user" in done.stderr and done.stderr.count("\n") == 1
