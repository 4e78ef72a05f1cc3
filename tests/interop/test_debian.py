"""Clients that Debian has as packages play with the broker over TCP: the gem stomp, Net::Stomp, PHP's extension stomp.

They are played where they are installed: apt-get install ruby-stomp libnet-stomp-perl php-cli php-stomp
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PLAY_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Player:
    """`is_there` succeeds where the client is installed."""

    script: str
    is_there: tuple[str, ...]
    package: str

    def __str__(self) -> str:
        return self.script

    def require(self) -> None:
        try:
            found = subprocess.run(self.is_there, capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            found = False
        if not found:
            pytest.skip(f"{self.script} needs the Debian package {self.package}")


PLAYERS = [
    Player("player.rb", ("ruby", "-e", "require 'stomp'"), "ruby-stomp"),
    Player("player.pl", ("perl", "-MNet::Stomp", "-e", "1"), "libnet-stomp-perl"),
    Player("player.php", ("php", "-r", "exit(class_exists('Stomp') ? 0 : 1);"), "php-stomp (and php-cli)"),
]


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize("player", PLAYERS, ids=str)
def test_a_client_plays_its_whole_part(broker: tuple[str, int], player: Player, version: str) -> None:
    player.require()
    host, port = broker
    queue = f"/queue/interop.{player}.{version}"
    command = [player.is_there[0], str(HERE / player.script), host, str(port), version, queue]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PLAY_SECONDS, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    assert json.loads(done.stdout) == {
        "version": version,
        "bodies": ["one", "two: grün", "three\0"],
        "colour": "red",
        "destination": queue,
        "again": [["one", "true"], ["three\0", "true"]],
        "after": "first",
    }
