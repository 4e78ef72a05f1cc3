"""What a shell needs to complete commands: of all that there are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from cyclopts import App

from stompbox.cli import completion
from stompbox.cli.overview import COMMANDS
from tests.cli.conftest import Run


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_is_completed(running: Callable[[App], Run], shell: str) -> None:
    code, out, err = running(completion.app)(shell)
    assert (code, err) == (0, "")
    assert [name for _, name, *_ in COMMANDS if name not in out] == []
