"""Compressed messages of WebSocket (RFC 7692) in pieces: one of 4 KiB may come to 4 MiB, which take 14 ms in one go.

The library inflates a frame while it parses it. Here that gives it the first PIECE of what the frame comes to, and whoever reads the frame
takes the others one by one, in turns of the loop. A frame that may not come to more than a PIECE is left to the library, with its limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from websockets.extensions.permessage_deflate import PerMessageDeflate, ServerPerMessageDeflateFactory
from websockets.protocol import Protocol

if TYPE_CHECKING:
    from websockets.extensions import Extension
    from websockets.typing import ExtensionParameter

PIECE: Final = 128 << 10  # octets: half a millisecond


class TooBig(Exception):
    """A message comes to more than it may."""


class Pieces:
    """What a frame comes to. To the library it is the decompressor of `zlib` of one message, which has nothing left."""

    def __init__(self, inflater: Any) -> None:
        self._inflater = inflater
        self._rest = b""
        self._most = 0  # octets that the others may have together
        self.size = 0  # of the others so far
        self.unconsumed_tail = b""
        self.is_pending = False  # there are others

    @property
    def waiting(self) -> int:
        """Octets that have come and are not inflated yet."""
        return len(self._rest)

    def decompress(self, data: bytes, most: int = 0) -> bytes:
        if self.is_pending:  # the block behind a message that the client has left out
            self._rest += data
            return b""
        if 0 < most <= PIECE:
            found: bytes = self._inflater.decompress(data, most)
            self.unconsumed_tail = self._inflater.unconsumed_tail
            return found
        found = self._piece(data)
        self._most, self.size = most - len(found) if most else 0, 0
        return found

    def more(self) -> bytes:
        """The next piece. Raises TooBig, and zlib.error where the octets are none that were compressed."""
        found = self._piece(self._rest)
        self.size += len(found)
        if self._most and self.size > self._most:
            raise TooBig
        return found

    def _piece(self, data: bytes) -> bytes:
        found: bytes = self._inflater.decompress(data, PIECE)
        self._rest = self._inflater.unconsumed_tail
        # it may hold some back although it has taken all octets
        self.is_pending = len(found) == PIECE or bool(self._rest)
        return found


class _Deflate(PerMessageDeflate):
    """The library's extension, whose decompressor is `Pieces`."""

    pieces: Pieces | None = None

    @property  # type: ignore[override]  # the library's is an attribute
    def decoder(self) -> Pieces | None:
        return self.pieces

    @decoder.setter
    def decoder(self, inflater: Any) -> None:
        self.pieces = Pieces(inflater)

    @decoder.deleter
    def decoder(self) -> None:
        """The library has all that it wanted of a message."""


class InPieces(ServerPerMessageDeflateFactory):
    """Nothing is kept of one message for the next: it would be 300 KiB for each stranger."""

    def __init__(self) -> None:
        super().__init__(server_no_context_takeover=True, client_no_context_takeover=True)

    def process_request_params(
        self, params: Sequence[ExtensionParameter], accepted_extensions: Sequence[Extension]
    ) -> tuple[list[ExtensionParameter], PerMessageDeflate]:
        answer, found = super().process_request_params(params, accepted_extensions)
        return answer, _Deflate(
            found.remote_no_context_takeover,
            found.local_no_context_takeover,
            found.remote_max_window_bits,
            found.local_max_window_bits,
            found.compress_settings,
        )


def pending(protocol: Protocol) -> Pieces | None:
    """Says which pieces of the frame that was parsed last are still to come; None: it is whole."""
    for extension in protocol.extensions:
        if isinstance(extension, _Deflate) and extension.pieces is not None and extension.pieces.is_pending:
            return extension.pieces
    return None
