"""The version is Stompbox's, and so is the only dependency: one in another version would be another source."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

STOMPBOX = Path("../../src/stompbox/__init__.py")
SAID = Path("PKG-INFO")  # in a source distribution, which has nothing of Stompbox beside it


class VersionHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        version = found(Path(self.root) / SAID, r"^Version: (.+)$") or found(
            Path(self.root) / STOMPBOX, r'^__version__ = "(.+)"$'
        )
        metadata["version"] = version
        metadata["dependencies"] = [f"stompbox=={version}"]


def found(file: Path, pattern: str) -> str:
    """What the pattern's group is in the file; "" where there is no such file."""
    if not file.is_file():
        return ""
    [text] = re.findall(pattern, file.read_text("utf-8"), re.M)
    return str(text)
