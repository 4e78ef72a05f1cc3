"""A network of hosts on this machine, for drills: each host is a network namespace, and between any two of them what is sent can vanish.

Nothing is refused, reset or closed then, as where a cable is pulled or a switch drops what it should pass on: only who waits for an answer
finds out. All of it is in a network and a mount namespace that the drill makes for itself, and gone with it.

    the drill ---\\
    node a    ----  router   `ip rule add from A to B blackhole` in the router: one way; both ways are two of them
    log       ---/
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

INSIDE = "DRILL_NETWORK"  # in the environment of who is in such a network
NOT_HERE = 77  # code of a process that cannot do it on this machine, as test runners know it
PLACE = Path("/run/netns")  # where `ip` keeps the namespaces it makes
TRIAL = (
    "ip link set lo up && ip link add t0 type veth peer name t1 && ip addr add 10.77.0.1/24 dev t0 && "
    "ip rule add pref 100 from 10.77.0.1 to 10.77.0.2 blackhole && mount -t tmpfs none /run && mkdir /run/netns && ip netns add t"
)


def refusal() -> str:
    """Why this machine does not allow it; empty: it does."""
    for program in ("unshare", "nsenter", "ip"):
        if shutil.which(program) is None:
            return f"{program} is not installed (util-linux, iproute2)"
    done = subprocess.run(_inside("sh", "-c", TRIAL), capture_output=True, text=True, check=False)
    said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    return f"network namespaces are not allowed here: {said}" if done.returncode else ""


def _inside(*command: str) -> list[str]:
    return ["unshare", "--net", "--mount", *command]


def enter(module: str, arguments: Sequence[str]) -> None:
    """Begins this program anew, in such a network; returns at once where it is in one."""
    if INSIDE in os.environ:
        return
    if why := refusal():
        print(f"{module}: {why}", file=sys.stderr)
        sys.exit(NOT_HERE)
    command = _inside(sys.executable, "-m", module, *arguments)
    os.execvpe(command[0], command, os.environ | {INSIDE: "yes"})


@dataclass(frozen=True)
class Host:
    """One of the network. `prefix`: what begins a command that is run there."""

    name: str
    address: str
    prefix: tuple[str, ...] = ()


class Network:
    """Hosts around a router. Made by who is inside (`enter`)."""

    def __init__(self) -> None:
        assert INSIDE in os.environ, "this would change the machine's own network"
        _run("ip link set lo up")
        _run("mount -t tmpfs none /run")
        PLACE.mkdir()
        _run("ip netns add router")
        _run("ip netns exec router sysctl -q -w net.ipv4.ip_forward=1")
        self.hosts: dict[str, Host] = {}
        self._lost: list[tuple[Host, Host]] = []
        self.drill = self._joined("drill", "")

    def host(self, name: str) -> Host:
        _run(f"ip netns add {name}")
        _run(f"ip -n {name} link set lo up")
        return self._joined(name, f"-n {name}")

    def _joined(self, name: str, within: str) -> Host:
        number = len(self.hosts) + 1
        _run(f"ip {within} link add up{number} type veth peer name to{number} netns router")
        _run(f"ip {within} addr add 10.77.{number}.2/24 dev up{number}")
        _run(f"ip {within} link set up{number} up")
        _run(f"ip -n router addr add 10.77.{number}.1/24 dev to{number}")
        _run(f"ip -n router link set to{number} up")
        _run(f"ip {within} route add default via 10.77.{number}.1")
        prefix = ("nsenter", f"--net={PLACE}/{name}", "--") if within else ()
        found = self.hosts[name] = Host(name, f"10.77.{number}.2", prefix)
        return found

    def lose(self, source: Host, target: Host) -> None:
        """What the one sends to the other vanishes from now on."""
        _run(f"ip -n router rule add pref 100 from {source.address} to {target.address} blackhole")
        self._lost.append((source, target))

    def part(self, one: Host, other: Host) -> None:
        self.lose(one, other)
        self.lose(other, one)

    def restore(self) -> None:
        for source, target in self._lost:
            _run(f"ip -n router rule del pref 100 from {source.address} to {target.address} blackhole")
        self._lost.clear()


def _run(command: str) -> None:
    subprocess.run(command.split(), check=True)
