"""Parameters that several commands have, each defined once: its name, its help, its type."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from stompbox.cli import DEFAULT_URL, names

Flag = Annotated[bool, Parameter(negative="", show_default=False)]

# What is printed
JsonFlag = Annotated[Flag, Parameter(name="--json")]
AsJson = Annotated[JsonFlag, Parameter(help="Print JSON.")]
AllFlag = Annotated[Flag, Parameter(name="--all")]
JsonLines = Annotated[
    JsonFlag,
    Parameter(
        help="One JSON object a line: headers, and body as text (or body_base64 when it is not UTF-8)."
    ),
]
ShowHeaders = Annotated[Flag, Parameter(name="--headers", help="Headers before each body.")]

# A broker, and what is asked of it
Url = Annotated[
    str | None,
    Parameter(
        name=["--url", "-u"],
        help=f"Broker, stomp://login:passcode@host:port or unix:///path; else STOMPBOX_URL, else {DEFAULT_URL}.",
    ),
]
Header = Annotated[
    list[str] | None,
    Parameter(
        name=["--header", "-H"],
        consume_multiple=False,
        negative="",
        help="A header of the frame, name:value; may be given several times.",
    ),
]
File = Annotated[Path | None, Parameter(name=["--file", "-f"])]
SelectorText = Annotated[str | None, Parameter(name="--selector", help="Only messages whose headers match.")]

# Its admin interface, and what an operator does there
Admin = Annotated[
    str | None,
    Parameter(
        name=["--admin", "-a"],
        help="Admin interface, host:port, http://login:passcode@host:port or unix:///path; else STOMPBOX_ADMIN_URL.",
    ),
]
Match = Annotated[str, Parameter(help="Only those whose name holds this text.")]
QueueName = Annotated[
    str,
    Parameter(help="Name, or address::name where several queues have the name.", completer=names.queues),
]
Yes = Annotated[Flag, Parameter(name=["--yes", "-y"], help="Do not ask before.")]
ForceFlag = Annotated[Flag, Parameter(name="--force")]
Forced = Annotated[ForceFlag, Parameter(help="Also with messages, and from under consumers.")]

# The configuration and the data of a broker on this machine
ConfigFile = Annotated[
    Path | None,
    Parameter(name="--config", help="The TOML file; else STOMPBOX_CONFIG, else ./stompbox.toml if there."),
]
Data = Annotated[
    Path | None,
    Parameter(
        name="--data", help="The data folder; else what the configuration says, stompbox-data by default."
    ),
]
