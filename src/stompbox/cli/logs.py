"""What the broker's log looks like, as text or JSON: the one place where what clients have said gets into it.

Names, destinations and headers are whatever a client makes of them. So control characters, line ends and what turns the direction of
writing are spelled out, in messages and in tracebacks, and what is long is left out of the middle of a line: nobody else writes a line
of the log, moves the cursor of whoever reads it, or fills the disk with one name.
"""

from __future__ import annotations

import logging
import re
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stompbox.config import Configuration

FORMAT: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
MOST: Final = 2000  # characters of a line: the longest texts of the broker's own have some hundred
KEPT: Final = 900  # characters of a longer one at its beginning, and at its end, where the code stands
MOST_LINES: Final = 200  # of a traceback

# C0 and C1 with DEL, line and paragraph separators, overrides of direction (as in the Trojan Source paper), lone surrogates
_UNSPEAKABLE: Final = re.compile(
    "[\0-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def spoken(text: str) -> str:
    """`text` as one line that can do nothing but be read."""
    if len(text) > MOST:
        text = f"{text[:KEPT]} ... {len(text) - 2 * KEPT} characters left out ... {text[-KEPT:]}"
    return _UNSPEAKABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class TextFormatter(logging.Formatter):
    """One line for each entry; those of a traceback begin with a bar, as no entry does."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = spoken(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: logging._SysExcInfoType) -> str:
        lines = super().formatException(ei).splitlines()
        if len(lines) > MOST_LINES:
            lines = [*lines[: MOST_LINES // 2], "...", *lines[-MOST_LINES // 2 :]]
        return "\n".join([f"  | {spoken(line)}" for line in lines])


class JsonFormatter(TextFormatter):
    """One JSON object a line: time (ISO 8601, UTC), level, logger, message, the stable code of docs/errors.md, the id
    of the connection and the user where there is one, and the traceback. These are what the broker says (`extra`),
    never what is found in a text, which clients write parts of."""

    def format(self, record: logging.LogRecord) -> str:
        import json
        from datetime import UTC, datetime

        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": spoken(record.getMessage()),
        }
        if code := getattr(record, "code", ""):
            entry["code"] = code
        if (connection := getattr(record, "connection", None)) is not None:
            entry["connection"] = connection
        if user := getattr(record, "user", ""):
            entry["user"] = spoken(user)
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def set_up_logging(configuration: Configuration) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if configuration.log_format.value == "json" else TextFormatter())
    logging.basicConfig(level=configuration.log_level.value.upper(), handlers=[handler], force=True)
