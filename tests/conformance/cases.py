r"""The table of framing cases: bytes, and what they mean or why they are refused, in each version.

One table, many players: tests/stomp/test_codec.py parses and encodes it, feeds it byte by byte and in random pieces, and
appends rubbish; tests/fuzz mutates it; tests/conformance/test_framing_live.py plays it against a running broker.

A case says what STOMP bytes mean, not how the codec works: nothing here imports from the codec. `clause` names the text
that decides: a section of a specification, or ("deviation") the head of stomp/codec.py where the texts are silent and a
decision was needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stompbox.stomp.frames import Frame

ALL: Final = ("1.0", "1.1", "1.2")
NONE_YET: Final = ("1.0",)  # a login is read before a version is agreed, which is as 1.0
SERVER_WORDS: Final = ("CONNECTED", "MESSAGE", "RECEIPT", "ERROR")
ESCAPING: Final = ("1.1", "1.2")
ONCE_CONNECTED: Final = (
    "SEND",
    "SUBSCRIBE",
    "UNSUBSCRIBE",
    "BEGIN",
    "COMMIT",
    "ABORT",
    "ACK",
    "NACK",
    "DISCONNECT",
)

AS_GIVEN: Final = b"the canonical form is the bytes of the case"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`data` on the wire gives `frames`, then `error` (a stable code) if there is one, else `pending` octets of an unfinished frame.

    `canonical` is what those frames look like when Stompbox writes them (AS_GIVEN: like `data`), None where another form is
    as good. `sender` is the side that sends such bytes. `is_login`: the bytes begin a connection, so no version is agreed.
    """

    name: str
    clause: str
    data: bytes
    frames: tuple[Frame, ...] = ()
    error: str | None = None
    pending: int = 0
    versions: tuple[str, ...] = ALL
    canonical: bytes | None = None
    sender: str = "client"
    is_login: bool = False

    @property
    def encoded(self) -> bytes | None:
        return self.data if self.canonical == AS_GIVEN else self.canonical

    @property
    def is_playable(self) -> bool:
        """Can a broker be asked? What it sends itself, and frames that need a context, are for the codec's tests alone."""
        return (
            self.sender == "client"
            and not self.is_login
            and not self.pending
            and all(f.command == "SEND" for f in self.frames)
        )


def accepted(
    name: str,
    clause: str,
    data: bytes,
    frames: tuple[Frame, ...],
    *,
    versions: tuple[str, ...] = ALL,
    canonical: bytes | None = None,
    error: str | None = None,
    pending: int = 0,
    sender: str = "client",
    is_login: bool = False,
) -> Case:
    return Case(
        name=name, clause=clause, data=data, frames=frames, error=error, pending=pending,
        versions=NONE_YET if is_login else versions, canonical=canonical, sender=sender, is_login=is_login,
    )  # fmt: skip


def refused(
    name: str,
    clause: str,
    data: bytes,
    error: str,
    *,
    versions: tuple[str, ...] = ALL,
    sender: str = "client",
    is_login: bool = False,
) -> Case:
    return accepted(name, clause, data, (), versions=versions, error=error, sender=sender, is_login=is_login)


def sent(body: bytes = b"", **headers: str) -> tuple[Frame]:
    """One SEND to /queue/a; underscores in the names of `headers` stand for hyphens."""
    return (
        Frame(
            "SEND",
            {"destination": "/queue/a", **{name.replace("_", "-"): value for name, value in headers.items()}},
            body,
        ),
    )


def send(*lines: bytes, body: bytes = b"") -> bytes:
    """The bytes of one SEND to /queue/a with these header lines, as Stompbox writes it."""
    return (
        b"SEND\ndestination:/queue/a\n" + b"".join([line + b"\n" for line in lines]) + b"\n" + body + b"\0\n"
    )


# A case takes as few lines as it can: name and clause, octets, what comes of them.
# fmt: off

# --- frames as the specifications draw them -------------------------------------------------------------------------------

_FRAMES: Final = (
    accepted("body up to the first NUL", "1.2 STOMP Frames", send(body=b"hello"), sent(b"hello"), canonical=AS_GIVEN),
    accepted("empty body", "1.2 STOMP Frames", send(), sent(), canonical=AS_GIVEN),
    accepted("body of line ends", "1.2 STOMP Frames", send(body=b"\n\r\n\n"), sent(b"\n\r\n\n"), canonical=AS_GIVEN),
    accepted("body that looks like a frame", "1.2 STOMP Frames", send(body=b"SEND\n\n"), sent(b"SEND\n\n"), canonical=AS_GIVEN),
    accepted("body that is not UTF-8", "deviation: bodies", send(body=b"\xff\xfe\x80"), sent(b"\xff\xfe\x80"), canonical=AS_GIVEN),
    accepted(
        "body with trailing line end, as in the specification's example", "1.2 SEND",
        b"SEND\ndestination:/queue/a\ncontent-type:text/plain\n\nhello queue a\n\0",
        sent(b"hello queue a\n", content_type="text/plain"),
        canonical=send(b"content-type:text/plain", body=b"hello queue a\n"),
    ),
    accepted("no headers at all", "1.2 Augmented BNF", b"DISCONNECT\n\n\0", (Frame("DISCONNECT", {}),), canonical=b"DISCONNECT\n\n\0\n"),
    accepted(
        "every client command but CONNECT", "1.2 Augmented BNF, client-command",
        b"".join([word.encode() + b"\nx:y\n\n\0\n" for word in ONCE_CONNECTED]),
        tuple([Frame(word, {"x": "y"}) for word in ONCE_CONNECTED]),
        canonical=AS_GIVEN,
    ),
    accepted(
        "every server command", "1.2 Augmented BNF, server-command",
        b"CONNECTED\nx:y\n\n\0\nMESSAGE\nx:y\n\nb\0\nRECEIPT\nx:y\n\n\0\nERROR\nx:y\n\nb\0\n",
        tuple([Frame(word, {"x": "y"}, b"b" if word in ("MESSAGE", "ERROR") else b"") for word in SERVER_WORDS]),
        canonical=AS_GIVEN,
        sender="server",
    ),
    accepted(
        "two frames back to back", "1.2 Augmented BNF, frame-stream",
        b"SEND\ndestination:/queue/a\n\n1\0SEND\ndestination:/queue/a\n\n2\0",
        (*sent(b"1"), *sent(b"2")),
        canonical=send(body=b"1") + send(body=b"2"),
    ),
    accepted(
        "line ends after NUL and before the first frame", "1.2 Augmented BNF, frame",
        b"\n\n" + send(body=b"1") + b"\n\n\n" + send(body=b"2") + b"\n",
        (*sent(b"1"), *sent(b"2")),
        canonical=send(body=b"1") + send(body=b"2"),
    ),
    accepted(
        "CR LF after NUL and before the first frame", "1.2 Augmented BNF, EOL",
        b"\r\n\r\n" + send(body=b"1") + b"\r\n\n\r\n" + send(body=b"2") + b"\r\n", (*sent(b"1"), *sent(b"2")),
    ),
    accepted(
        "lone NULs between frames", "deviation: NULs",
        b"\0\0" + send(body=b"1") + b"\0\n\0" + send(body=b"2"), (*sent(b"1"), *sent(b"2")),
    ),
    accepted("nothing but heart-beats", "1.2 Heart-beating", b"\n\n\r\n\n", ()),
    accepted("an unfinished heart-beat", "1.2 Heart-beating", b"\n\r", (), pending=1),
    accepted("an unfinished head", "1.2 STOMP Frames", b"SEND\ndestination:/queue/a\n", (), pending=26),
    accepted("an unfinished body", "1.2 STOMP Frames", b"SEND\ndestination:/queue/a\n\nhel", (), pending=30),
    accepted(
        "content-length promises more than has come", "1.2 Header content-length",
        b"SEND\ndestination:/queue/a\ncontent-length:9\n\nhello\0", (), pending=50,
    ),
)

# --- line ends and CR -----------------------------------------------------------------------------------------------------

_LINE_ENDS: Final = (
    accepted(
        "CR LF for every line", "1.2 Augmented BNF, EOL; deviation in 1.0 and 1.1: CR LF",
        b"SEND\r\ndestination:/queue/a\r\na:b\r\n\r\nhello\0\r\n", sent(b"hello", a="b"), canonical=send(b"a:b", body=b"hello"),
    ),
    accepted(
        "CR LF for the empty line alone", "1.2 Augmented BNF, EOL; deviation in 1.0 and 1.1: CR LF",
        b"SEND\ndestination:/queue/a\n\r\nhello\0", sent(b"hello"), canonical=send(body=b"hello"),
    ),
    accepted(
        "LF for the empty line alone", "1.2 Augmented BNF, EOL; deviation in 1.0 and 1.1: CR LF",
        b"SEND\r\ndestination:/queue/a\r\n\n\r\nhello\0", sent(b"\r\nhello"), canonical=send(body=b"\r\nhello"),
    ),
    accepted(
        "two CRs before LF: one belongs to the value", "1.0 and 1.1 Augmented BNF, header-value; deviation: CR LF",
        b"SEND\ndestination:/queue/a\na:b\r\r\n\nhello\0", sent(b"hello", a="b\r"), versions=("1.0", "1.1"),
    ),
    refused(
        "two CRs before LF", "1.2 Augmented BNF, header-value",
        b"SEND\ndestination:/queue/a\na:b\r\r\n\nhello\0", "bare-cr", versions=("1.2",),
    ),
    accepted(
        "CR inside a value", "1.0 and 1.1 Augmented BNF, header-value",
        send(b"a:b\rc", body=b"hello"), sent(b"hello", a="b\rc"), versions=("1.0", "1.1"), canonical=AS_GIVEN,
    ),
    refused("CR inside a value", "1.2 Augmented BNF, header-value", send(b"a:b\rc"), "bare-cr", versions=("1.2",)),
    refused("CR inside a name", "1.2 Augmented BNF, header-name", send(b"a\rb:c"), "bare-cr", versions=("1.2",)),
)

# --- values: blanks, escapes, colons, repetition ----------------------------------------------------------------------------

_BLANKS: Final = (
    accepted(
        "blanks around values", "1.0, the examples; deviation: blanks",
        b"SEND\ndestination: /queue/a \na: \tb c\t \n\nhello\0",
        sent(b"hello", a="b c"),
        versions=("1.0",),
        canonical=send(b"a:b c", body=b"hello"),
    ),
    accepted(
        "blanks around values", "1.1 and 1.2 Value Encoding, MUST never trim or pad",
        send(b"a: \tb c\t ", body=b"hello"), sent(b"hello", a=" \tb c\t "), versions=ESCAPING, canonical=AS_GIVEN,
    ),
    accepted(
        "a value of blanks alone", "1.1 and 1.2 Value Encoding, MUST never trim or pad",
        send(b"a:   "), sent(a="   "), versions=ESCAPING, canonical=AS_GIVEN,
    ),
    accepted(
        "blanks in a name stay", "1.2 Augmented BNF, header-name",
        send(b" a b :c"), (Frame("SEND", {"destination": "/queue/a", " a b ": "c"}),), canonical=AS_GIVEN,
    ),
    accepted("empty value", "1.2 Augmented BNF, header-value; deviation in 1.0", send(b"a:"), sent(a=""), canonical=AS_GIVEN),
)

_ESCAPES: Final = (
    accepted(
        "the three escapes of 1.1", "1.1 and 1.2 Value Encoding",
        send(rb"a:x\ny\cz\\"), sent(a="x\ny:z\\"), versions=ESCAPING, canonical=AS_GIVEN,
    ),
    accepted("escaped CR", "1.2 Value Encoding", send(rb"a:x\ry\r"), sent(a="x\ry\r"), versions=("1.2",), canonical=AS_GIVEN),
    accepted(
        "escapes in a name", "1.1 and 1.2 Value Encoding, header keys",
        send(rb"x\ny\cz\\:b"), (Frame("SEND", {"destination": "/queue/a", "x\ny:z\\": "b"}),), versions=ESCAPING, canonical=AS_GIVEN,
    ),
    accepted(
        "an escaped backslash before n is no line feed", "1.1 and 1.2 Value Encoding",
        send(rb"a:\\n\\\n"), sent(a="\\n\\\n"), versions=ESCAPING, canonical=AS_GIVEN,
    ),
    accepted(
        "names that are one name once unescaped", "1.2 Repeated Header Entries",
        send(rb"x\\y:1", rb"x\\y:2"),
        (Frame("SEND", {"destination": "/queue/a", "x\\y": "1"}),),
        versions=ESCAPING,
        canonical=send(rb"x\\y:1"),
    ),
    accepted(
        "1.0 knows no escapes", "1.0 Augmented BNF, header-value",
        send(rb"a:x\ny\cz\\\r\t", b"\\:\\"),
        (Frame("SEND", {"destination": "/queue/a", "a": "x\\ny\\cz\\\\\\r\\t", "\\": "\\"}),),
        versions=("1.0",),
        canonical=AS_GIVEN,
    ),
    refused("escaped CR", "1.1 Value Encoding, undefined", send(rb"a:x\ry"), "undefined-escape", versions=("1.1",)),
    refused("undefined escape", "1.2 Value Encoding, undefined", send(rb"a:x\ty"), "undefined-escape", versions=ESCAPING),
    refused("undefined escape in a name", "1.2 Value Encoding, undefined", send(rb"x\ty:a"), "undefined-escape", versions=ESCAPING),
    refused("upper-case escape", "1.2 Value Encoding, undefined", send(rb"a:\N"), "undefined-escape", versions=ESCAPING),
    refused("backslash at the end of a value", "1.2 Value Encoding", send(b"a:x\\"), "undefined-escape", versions=ESCAPING),
    refused("backslash at the end of a name", "1.2 Value Encoding", send(b"x\\:a"), "undefined-escape", versions=ESCAPING),
    refused("backslash before CR LF", "1.2 Value Encoding", send(b"a:x\\\r"), "undefined-escape", versions=ESCAPING),
    refused("undefined escape in a repeated header", "1.2 Value Encoding", send(b"a:x", rb"a:\t"), "undefined-escape", versions=ESCAPING),
    refused(
        "undefined escape before an octet that is not UTF-8", "1.2 Value Encoding",
        send(b"a:\\\xff"), "undefined-escape", versions=ESCAPING,
    ),
)

_COLONS: Final = (
    accepted(
        "colon in a value", "1.0 Augmented BNF, header-value",
        send(b"a:b:c::d"), sent(a="b:c::d"), versions=("1.0",), canonical=AS_GIVEN,
    ),
    accepted(
        "colon in a value", "deviation: colons; 1.1 and 1.2 Value Encoding",
        send(b"a:b:c::d"), sent(a="b:c::d"), versions=ESCAPING, canonical=send(rb"a:b\cc\c\cd"),
    ),
)

_REPEATED: Final = (
    accepted(
        "repeated header", "1.1 and 1.2 Repeated Header Entries; deviation in 1.0",
        send(b"a:first", b"b:x", b"a:second", b"a:third"), sent(a="first", b="x"), canonical=send(b"a:first", b"b:x"),
    ),
    accepted(
        "repeated content-length", "1.1 and 1.2 Repeated Header Entries; deviation in 1.0",
        send(b"content-length:2", b"content-length:99", body=b"hi"),
        sent(b"hi", content_length="2"),
        canonical=send(b"content-length:2", body=b"hi"),
    ),
)

_UTF_8: Final = (
    accepted(
        "UTF-8 in names and values", "1.2 Value Encoding; deviation in 1.0: UTF-8",
        send("größe:☕ 𝄞".encode()), (Frame("SEND", {"destination": "/queue/a", "größe": "☕ 𝄞"}),), canonical=AS_GIVEN,
    ),
    refused("value that is not UTF-8", "deviation: UTF-8", send(b"a:\xff"), "not-utf-8"),
    refused("name that is not UTF-8", "deviation: UTF-8", send(b"\xc3:a"), "not-utf-8"),
    refused("overlong UTF-8", "RFC 3629, 3", send(b"a:\xc0\x8a"), "not-utf-8"),
    refused("surrogate in UTF-8", "RFC 3629, 3", send(b"a:\xed\xa0\x80"), "not-utf-8"),
    refused("cut UTF-8", "RFC 3629, 3", send(b"a:\xe2\x98"), "not-utf-8"),
    refused("repeated header that is not UTF-8", "deviation: UTF-8", send(b"a:x", b"a:\xff"), "not-utf-8"),
)

# --- content-length --------------------------------------------------------------------------------------------------------

_LENGTHS: Final = (
    accepted(
        "NULs in a counted body", "1.2 Header content-length",
        send(b"content-length:5", body=b"\0a\0\n\0"), sent(b"\0a\0\n\0", content_length="5"), canonical=AS_GIVEN,
    ),
    accepted(
        "content-length of zero", "1.2 Header content-length",
        send(b"content-length:0"), sent(content_length="0"), canonical=AS_GIVEN,
    ),
    accepted(
        "content-length with leading zeros", "1.0 Augmented BNF, DIGIT",
        send(b"content-length:005", body=b"hello"), sent(b"hello", content_length="005"), canonical=AS_GIVEN,
    ),
    accepted(
        "blanks around the number of content-length", "deviation: content-length",
        send(b"content-length:  5 ", body=b"hello"), sent(b"hello", content_length="  5 "), versions=ESCAPING, canonical=AS_GIVEN,
    ),
    accepted(
        "blanks around the number of content-length", "deviation: content-length",
        send(b"content-length:  5 ", body=b"hello"),
        sent(b"hello", content_length="5"),
        versions=("1.0",),
        canonical=send(b"content-length:5", body=b"hello"),
    ),
    accepted(
        "content-length on a frame without body", "1.2 Header content-length; deviation in 1.0 and 1.1: on all frames",
        b"DISCONNECT\ncontent-length:0\n\n\0\n", (Frame("DISCONNECT", {"content-length": "0"}),), canonical=AS_GIVEN,
    ),
    accepted(
        "a counted body on a frame that should have none is read", "1.2 Header content-length; deviation in 1.0 and 1.1: on all frames",
        b"SUBSCRIBE\ncontent-length:3\n\n\0\0\0\0\n", (Frame("SUBSCRIBE", {"content-length": "3"}, b"\0\0\0"),), canonical=AS_GIVEN,
    ),
    accepted(
        "only the exact name counts", "1.2 STOMP Frames, case sensitive",
        send(b"Content-Length:3", body=b"hello"),
        (Frame("SEND", {"destination": "/queue/a", "Content-Length": "3"}, b"hello"),),
        canonical=AS_GIVEN,
    ),
    refused("content-length too short", "1.2 Header content-length", send(b"content-length:3", body=b"hello"), "missing-nul"),
    refused(
        "content-length too long by one, the next frame follows", "1.2 Header content-length",
        send(b"content-length:6", body=b"hello") + send(), "missing-nul",
    ),
    *(
        refused(f"content-length {what}", "1.0 Augmented BNF, DIGIT", send(b"content-length:" + text, body=b"x"), "bad-content-length")
        for what, text in (
            ("negative", b"-1"),
            ("with a sign", b"+1"),
            ("no number", b"one"),
            ("empty", b""),
            ("of blanks", b"  "),
            ("hexadecimal", b"0x1"),
            ("fraction", b"1.0"),
            ("grouped", b"1_000"),
            ("in two parts", b"1 1"),
            ("in Arabic digits", "١".encode()),
            ("superscript", "²".encode()),
            ("beyond 18 digits", b"1" * 19),
        )
    ),
    refused(
        "content-length with a tab", "deviation: content-length",
        send(b"content-length:\t1", body=b"x"), "bad-content-length", versions=ESCAPING,
    ),
    refused(
        "content-length beyond the limit is refused at its announcement", "1.2 Size Limits",
        b"SEND\ndestination:/queue/a\ncontent-length:999999999999\n\n", "body-too-large",
    ),
)

# --- what is no frame ------------------------------------------------------------------------------------------------------

_BROKEN: Final = (
    refused("header without colon", "1.2 Augmented BNF, header", send(b"novalue"), "header-without-colon"),
    refused("header of blanks", "1.2 Augmented BNF, header", send(b"  "), "header-without-colon"),
    refused("escaped colon separates nothing", "1.2 Value Encoding", send(rb"a\cb"), "header-without-colon"),
    refused("empty header name", "1.2 Augmented BNF, header-name", send(b":value"), "empty-header-name"),
    refused("a colon alone", "1.2 Augmented BNF, header-name", send(b":"), "empty-header-name"),
    refused("NUL in a header value", "1.2 Augmented BNF, frame", send(b"a:b\0c"), "nul-in-header"),
    refused("NUL in the command", "1.2 Augmented BNF, command", b"SE\0ND\ndestination:/queue/a\n\n\0", "nul-in-header"),
    refused("NUL instead of the empty line", "1.2 Augmented BNF, frame", b"DISCONNECT\nreceipt:77\n\0", "nul-in-header"),
    refused("NUL straight after the command", "1.2 Augmented BNF, frame", b"DISCONNECT\0", "nul-in-header"),
    *(
        refused(f"command {what}", "1.2 Augmented BNF, command", word + b"\ndestination:/queue/a\n\n\0", "unknown-command")
        for what, word in (
            ("unknown", b"PUBLISH"),
            ("in lower case", b"send"),
            ("in mixed case", b"Send"),
            ("with a blank after it", b"SEND "),
            ("with a blank before it", b" SEND"),
            ("with more letters", b"SENDX"),
            ("cut short", b"SEN"),
            ("of blanks", b"   "),
            ("with a stray CR", b"SEND\r\r"),
            ("not UTF-8", b"\xffEND"),
            ("with a byte order mark", b"\xef\xbb\xbfSEND"),
            ("of the server: MESSAGE", b"MESSAGE"),
            ("of the server: CONNECTED", b"CONNECTED"),
            ("of the server: RECEIPT", b"RECEIPT"),
            ("of the server: ERROR", b"ERROR"),
        )
    ),
    refused("a line of blanks before the command", "1.2 Augmented BNF, frame", b"  \nSEND\ndestination:/queue/a\n\n\0", "unknown-command"),
    refused("CR alone before the command", "1.2 Augmented BNF, EOL", b"\rSEND\ndestination:/queue/a\n\n\0", "unknown-command"),
    refused("an HTTP request", "1.2 Augmented BNF, command", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "unknown-command"),
    refused("client commands are not a server's", "1.2 Augmented BNF, server-command", b"SEND\n\n\0", "unknown-command", sender="server"),
    accepted(
        "what came before the fault counts", "1.2 Augmented BNF, frame-stream",
        send(body=b"1") + send(body=b"2") + b"BROKEN\n\n\0" + send(body=b"3"), (*sent(b"1"), *sent(b"2")), error="unknown-command",
    ),
    accepted(
        "a body with NUL and no content-length ends at it", "1.0 SEND: the first null byte; 1.2 Header content-length",
        send(body=b"he\0llo"), sent(b"he"), error="nul-in-header",
    ),
)

# --- the first frame, and its answer: raw, no version agreed yet ----------------------------------------------------------------

_LOGIN: Final = (
    accepted(
        "CONNECT as 1.0 draws it, padded", "1.0, the first example; deviation: blanks",
        b"CONNECT\nlogin: guest\npasscode:guest \n\n\0",
        (Frame("CONNECT", {"login": "guest", "passcode": "guest"}),),
        canonical=b"CONNECT\nlogin:guest\npasscode:guest\n\n\0\n",
        is_login=True,
    ),
    accepted(
        "CONNECT of 1.2 is not trimmed", "1.2 Value Encoding, MUST never trim or pad",
        b"CONNECT\naccept-version:1.2\nhost:a\npasscode: x \n\n\0\n",
        (Frame("CONNECT", {"accept-version": "1.2", "host": "a", "passcode": " x "}),),
        canonical=AS_GIVEN,
        is_login=True,
    ),
    accepted(
        "CONNECT takes backslashes and colons as they are", "1.2 Value Encoding: CONNECT does not escape",
        b"CONNECT\naccept-version:1.1,1.2\nhost:a\nlogin:a\\tb\npasscode::=1\\n2\\\n\n\0\n",
        (Frame("CONNECT", {"accept-version": "1.1,1.2", "host": "a", "login": "a\\tb", "passcode": ":=1\\n2\\"}),),
        canonical=AS_GIVEN,
        is_login=True,
    ),
    accepted(
        "STOMP is read like CONNECT", "1.2 CONNECT or STOMP Frame",
        b"STOMP\naccept-version:1.2\nhost:a\nlogin:a\\tb\n\n\0\n",
        (Frame("STOMP", {"accept-version": "1.2", "host": "a", "login": "a\\tb"}),),
        canonical=AS_GIVEN,
        is_login=True,
    ),
    accepted(
        "CONNECT with CR LF", "1.2 Augmented BNF, EOL",
        b"CONNECT\r\naccept-version:1.2\r\nhost:a\r\n\r\n\0\r\n",
        (Frame("CONNECT", {"accept-version": "1.2", "host": "a"}),),
        canonical=b"CONNECT\naccept-version:1.2\nhost:a\n\n\0\n",
        is_login=True,
    ),
    accepted(
        "CONNECTED takes backslashes and colons as they are", "1.2 Value Encoding: CONNECTED does not escape",
        b"CONNECTED\nversion:1.2\nsession:a:b\\c \nserver:x/1 (y: z)\n\n\0\n",
        (Frame("CONNECTED", {"version": "1.2", "session": "a:b\\c ", "server": "x/1 (y: z)"}),),
        canonical=AS_GIVEN,
        sender="server",
        is_login=True,
    ),
    accepted(
        "CONNECTED as 1.0 draws it, padded", "1.0, the second example; deviation: blanks",
        b"CONNECTED\nsession: 17\n\n\0",
        (Frame("CONNECTED", {"session": "17"}),),
        canonical=b"CONNECTED\nsession:17\n\n\0\n",
        sender="server",
        is_login=True,
    ),
    refused(
        "CONNECT with a header without colon", "1.2 Augmented BNF, header",
        b"CONNECT\nhost\n\n\0", "header-without-colon", is_login=True,
    ),
    refused("CONNECT with an empty header name", "1.2 Augmented BNF", b"CONNECT\n:a\n\n\0", "empty-header-name", is_login=True),
    refused("CONNECT that is not UTF-8", "deviation: UTF-8", b"CONNECT\nlogin:\xe9\n\n\0", "not-utf-8", is_login=True),
    refused("something else first", "1.2 Connecting", b"HELLO\n\n\0", "unknown-command", is_login=True),
)

# fmt: on

CASES: Final = (
    *_FRAMES,
    *_LINE_ENDS,
    *_BLANKS,
    *_ESCAPES,
    *_COLONS,
    *_REPEATED,
    *_UTF_8,
    *_LENGTHS,
    *_BROKEN,
    *_LOGIN,
)
# One row for each version that a case is for
ROWS: Final = tuple((case, version) for case in CASES for version in case.versions)


def title(row: tuple[Case, str]) -> str:
    """How pytest names a row."""
    return f"{row[1]}: {row[0].name}"
