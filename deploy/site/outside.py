"""A hook of MkDocs: what a page links to outside of docs/ is not on the site, and is named by its path in the repository."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)#\s]*)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The text of a page on its way to HTML; `page.file.src_uri` is its path below docs/."""
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def told(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found[2]))
        return found[0] if path.startswith("docs/") else f"{found[1]} (`{path}` in the repository)"

    return _LINK.sub(told, markdown)
