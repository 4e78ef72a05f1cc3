"""A SEND whose body is large comes as several events: its opening, pieces of its body as they arrive, its ending.

Between an opening and its ending nothing else comes. Where the body breaks off there is no ending: the stream has ended, or was at
fault. Which bodies are large, codec.py decides.
"""

from __future__ import annotations

from stompbox.stomp.frames import Frame


class Opening:
    """The beginning of a large message; `frame` is the SEND without its body."""

    __slots__ = ("frame",)

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    def __repr__(self) -> str:
        return f"<Opening {self.frame!r}>"


class Piece:
    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __repr__(self) -> str:
        return f"<Piece {len(self.data)}>"


class Ending:
    __slots__ = ()

    def __repr__(self) -> str:
        return "<Ending>"


class Body:
    """What the codec knows of a body that it is in the middle of."""

    __slots__ = ("came", "left", "limit")

    def __init__(self, left: int | None, limit: int) -> None:
        # octets that content-length announced and that have not come; None: it ends with a NUL
        self.left = left
        self.limit = limit
        self.came = 0  # octets
