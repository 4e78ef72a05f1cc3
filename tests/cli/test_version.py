"""`stompbox --version`, and with `--verbose` which build it is."""

from __future__ import annotations

import platform

import stompbox
from stompbox.cli import version


def test_the_version_alone_and_with_its_build() -> None:
    assert version(is_verbose=False) == stompbox.__version__
    assert (
        version(is_verbose=True)
        == f"{stompbox.__version__}, pure Python, CPython {platform.python_version()}"
    )
