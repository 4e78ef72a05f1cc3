"""The version is Stompbox's, and so is the only dependency: one in another version would be another source."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

STOMPBOX = Path("../../src/stompbox/__init__.py")


class VersionHook(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        [version] = re.findall(r'^__version__ = "(.+)"$', (Path(self.root) / STOMPBOX).read_text("utf-8"), re.M)
        metadata["version"] = version
        metadata["dependencies"] = [f"stompbox=={version}"]
