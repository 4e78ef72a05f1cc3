"""What a connection is opened with: the arguments of `connect`, checked, and what the URL adds to them.

Every wrong value is a UsageError that names the argument and what is allowed. This file opens nothing.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from os import PathLike
from typing import Final

from stompbox.client.outgoing import HeaderValue, header_text
from stompbox.client.url import Target
from stompbox.errors import UsageError
from stompbox.numerals import digits
from stompbox.stomp.codec import FrameLimits
from stompbox.stomp.versions import VERSIONS

KIB: Final = 1024
# STOMP 1.2, CONNECT: these are written by the client itself
_CONNECT_HEADERS: Final = frozenset(
    ("accept-version", "host", "login", "passcode", "heart-beat", "client-id", "receipt", "content-length")
)


def _number(
    name: str, value: object, least: float, allowed: str, *, whole: bool = False, most: float = float("inf")
) -> None:
    is_number = isinstance(value, int) if whole else isinstance(value, int | float)
    if not is_number or isinstance(value, bool) or not least <= value <= most or not isfinite(value):  # type: ignore[operator, arg-type]
        raise UsageError("bad-argument", f"{name} is {value!r}; allowed are {allowed}")


def require_flag(name: str, value: object) -> None:
    """Raises UsageError for what is neither True nor False: a text such as "no" would count as True."""
    if not isinstance(value, bool):
        raise UsageError("bad-argument", f"{name} is {value!r}; allowed are True and False")


def require_timeout(timeout: float | None) -> None:
    """Raises UsageError for a timeout of a call that is no number of seconds."""
    if timeout is not None:
        _number("timeout", timeout, 0, "seconds as a number from 0, or None")


def require_confirm(confirm: bool, timeout: float | None) -> None:
    """Raises UsageError for what does not say whether a frame is to be confirmed, and within which time."""
    if confirm is not False or timeout is not None:  # what most messages are acknowledged with
        require_flag("confirm", confirm)
        require_timeout(timeout)


@dataclass(frozen=True, slots=True)
class Reconnect:
    """What happens when the connection is lost. Delays in seconds.

    `attempts`      rounds over all URLs that may fail one after another before the client gives up; None: never
    `first_delay`   before the first round; each further one waits `multiplier` times longer, up to `max_delay`,
                    made shorter or longer by up to the share `jitter`, so that a thousand clients do not come at once
    `resend`        True: confirmed sends whose receipt had not come are sent again (at least once: the broker may have
                    stored them already). False: they are reported as ConnectionLost to whoever sent them
    `initial`       True: the first connection is tried as long as a lost one; False: one round, then the error
    """

    attempts: int | None = 30
    first_delay: float = 0.1
    max_delay: float = 10.0
    multiplier: float = 2.0
    jitter: float = 0.2
    resend: bool = True
    initial: bool = False

    def __post_init__(self) -> None:
        if self.attempts is not None:
            _number(
                "reconnect.attempts",
                self.attempts,
                1,
                "a number of rounds from 1, or None for ever",
                whole=True,
            )
        _number("reconnect.first_delay", self.first_delay, 0, "seconds from 0")
        _number("reconnect.max_delay", self.max_delay, self.first_delay, "seconds, not below first_delay")
        _number("reconnect.multiplier", self.multiplier, 1, "a factor from 1")
        _number("reconnect.jitter", self.jitter, 0, "a share from 0 to 1", most=1)
        require_flag("reconnect.resend", self.resend)
        require_flag("reconnect.initial", self.initial)

    def delay(self, failures: int, chance: float) -> float:
        """Seconds to wait after that many failed rounds; `chance` is a random number from 0 to 1."""
        base = min(self.max_delay, self.first_delay * self.multiplier ** min(failures, 64))
        return base * (1 + self.jitter * (2 * chance - 1))


@dataclass(frozen=True, slots=True)
class TLS:
    """Paths of PEM files, for those who need no SSLContext of their own. `verify=False` accepts any certificate."""

    ca: str | PathLike[str] | None = None
    cert: str | PathLike[str] | None = None
    key: str | PathLike[str] | None = None
    password: str | None = field(default=None, repr=False)
    verify: bool = True
    server_name: str | None = None

    def __post_init__(self) -> None:
        for name in ("ca", "cert", "key"):
            if not isinstance(getattr(self, name), str | PathLike | None):
                raise UsageError(
                    "bad-argument",
                    f"tls.{name} is {getattr(self, name)!r}; allowed is the path of a file, or None",
                )
        for name in ("password", "server_name"):
            if not isinstance(getattr(self, name), str | None):
                raise UsageError(
                    "bad-argument",
                    f"tls.{name} must be a str or None, not {type(getattr(self, name)).__name__}",
                )
        require_flag("tls.verify", self.verify)

    def context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert is not None:
                context.load_cert_chain(self.cert, self.key, self.password)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise UsageError(
                "bad-tls", f"tls: {error} (ca={self.ca!r}, cert={self.cert!r}, key={self.key!r})"
            ) from error
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


@dataclass(frozen=True, slots=True)
class Options:
    """The arguments of `connect`; see there. Heart-beats in milliseconds, timeouts in seconds, buffers in octets."""

    login: str | None = None
    passcode: str | None = field(default=None, repr=False)
    host: str | None = None
    client_id: str | None = None
    versions: tuple[str, ...] = tuple(VERSIONS)
    heart_beat: tuple[int, int] = (10_000, 10_000)
    headers: Mapping[str, HeaderValue] = field(default_factory=dict)
    tls: ssl.SSLContext | TLS | None = None
    reconnect: Reconnect | None = Reconnect()
    connect_timeout: float = 10.0
    receipt_timeout: float | None = 30.0
    close_timeout: float = 5.0
    buffer: int = 4096 * KIB
    buffer_limit: int = 64 * 1024 * KIB
    text_length: bool = False
    limits: FrameLimits = field(default_factory=FrameLimits)

    def __post_init__(self) -> None:
        for name in ("login", "passcode", "host", "client_id"):
            _connect_text(name, getattr(self, name))
        _versions(self.versions)
        _heart_beat(self.heart_beat)
        _connect_headers(self.headers)
        if not isinstance(self.tls, ssl.SSLContext | TLS | None):
            raise UsageError(
                "bad-argument",
                f"tls must be an ssl.SSLContext, a stompbox.TLS or None, not {type(self.tls).__name__}",
            )
        if not isinstance(self.reconnect, Reconnect | None):
            raise UsageError(
                "bad-argument",
                f"reconnect must be a stompbox.Reconnect or None, not {type(self.reconnect).__name__}",
            )
        _number("connect_timeout", self.connect_timeout, 0.001, "seconds above 0")
        _number("close_timeout", self.close_timeout, 0, "seconds from 0")
        if self.receipt_timeout is not None:
            _number("receipt_timeout", self.receipt_timeout, 0.001, "seconds above 0, or None for no limit")
        _number("buffer", self.buffer, 1, "octets from 1", whole=True)
        _number("buffer_limit", self.buffer_limit, self.buffer, "octets, not below buffer", whole=True)
        require_flag("text_length", self.text_length)
        if not isinstance(self.limits, FrameLimits):
            raise UsageError(
                "bad-argument", f"limits must be a stompbox.stomp.codec.FrameLimits, not {self.limits!r}"
            )

    def context(self) -> ssl.SSLContext:
        """Made once per client, not per connection: reading CA files takes milliseconds."""
        if isinstance(self.tls, ssl.SSLContext):
            return self.tls
        return (self.tls or TLS()).context()

    @property
    def server_name(self) -> str | None:
        return self.tls.server_name if isinstance(self.tls, TLS) else None

    def merged(self, target: Target) -> Options:
        """Fills the options that are silent with what the URL says: the argument wins."""
        url = target.options
        options = replace(
            self,
            login=self.login if self.login is not None else target.login,
            passcode=self.passcode if self.passcode is not None else target.passcode,
            host=self.host or url.get("host") or ("localhost" if target.is_file else target.host),
            client_id=self.client_id or url.get("client-id"),
        )
        if "heart-beat" in url and self.heart_beat == Options.__dataclass_fields__["heart_beat"].default:
            options = replace(options, heart_beat=_heart_beat_text(url["heart-beat"]))
        if self.tls is None and {"ca", "cert", "key", "verify"} & url.keys():
            if not target.secure:
                raise UsageError("bad-url", f"url {target}: ca, cert, key and verify need a stomp+ssl:// URL")
            options = replace(
                options,
                tls=TLS(
                    url.get("ca"), url.get("cert"), url.get("key"), verify=_verify(url.get("verify", "true"))
                ),
            )
        return options


def _connect_text(name: str, value: object) -> None:
    if value is None:
        return
    if not isinstance(value, str):
        raise UsageError("bad-argument", f"{name} must be a str or None, not {type(value).__name__}")
    if any(octet in value for octet in "\r\n\0"):  # STOMP 1.2, Value Encoding: CONNECT does not escape
        raise UsageError(
            "bad-argument", f"{name} holds a line end or a NUL, for which a CONNECT frame has no form"
        )


def _versions(versions: object) -> None:
    known = ", ".join(VERSIONS)
    if (
        not isinstance(versions, tuple)
        or not versions
        or any(version not in VERSIONS for version in versions)
    ):
        raise UsageError(
            "bad-argument", f"versions is {versions!r}; allowed is a tuple of one or more of {known}"
        )


def _heart_beat(pair: object) -> None:
    if (
        not isinstance(pair, tuple)
        or len(pair) != 2
        or any(not isinstance(ms, int) or isinstance(ms, bool) or not 0 <= ms <= 86_400_000 for ms in pair)
    ):
        allowed = "two whole numbers of milliseconds (can send, want to get), 0 for none"
        raise UsageError("bad-argument", f"heart_beat is {pair!r}; allowed are {allowed}")


def _heart_beat_text(text: str) -> tuple[int, int]:
    can, comma, want = text.partition(",")
    sends, wants = digits(can.strip()), digits(want.strip())
    if not comma or sends is None or wants is None:
        raise UsageError(
            "bad-url",
            f"the URL's heart-beat is {text!r}; allowed are two numbers of milliseconds such as 10000,10000",
        )
    return sends, wants


def _verify(text: str) -> bool:
    if text not in ("true", "false"):
        raise UsageError("bad-url", f"the URL's verify is {text!r}; allowed are true and false")
    return text == "true"


def _connect_headers(headers: Mapping[str, HeaderValue]) -> None:
    if not isinstance(headers, Mapping):
        raise UsageError(
            "bad-argument", f"headers must be a mapping of str to str or number, not {type(headers).__name__}"
        )
    for name, value in headers.items():
        text = header_text(name, value)
        _connect_text(f"header {name!r}", text)
        if name in _CONNECT_HEADERS or ":" in name or not name.isprintable():
            raise UsageError(
                "bad-header",
                f"header {name!r} cannot be added to CONNECT: it has an argument of its own, or no form there",
            )
