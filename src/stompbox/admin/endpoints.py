"""What a path of the admin interface is: its method, what it can be asked with, what it answers, who may ask, and who does it.

An endpoint is the one place that says so. The router (app.py), the checks of what a request brings, and the description of the API
(openapi.py) are made of it, so a path that is not described cannot be there. Decides nothing about what is answered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from stompbox.errors import IllegalFrame, NotPermitted, SelectorError, StompboxError
from stompbox.numerals import digits

if TYPE_CHECKING:
    from stompbox.admin.apirequest import ApiRequest

API: Final = "/api/v1"
BODY: Final = 64 << 10  # bytes of a request, where its endpoint does not say otherwise
SHOWN: Final = 80  # characters of a wrong value in an error


# codes of errors that others make, and the fields that they are about, where there is one of them
_ABOUT: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "address-blocked": ("to", "address"), "address-full": ("to",), "ambiguous-queue": ("queue",), "bad-destination": ("to",),
        "bad-starting": ("to",), "no-such-address": ("address",), "no-such-connection": ("connection",), "no-such-group": ("group",),
        "no-such-queue": ("queue",), "no-such-sink": ("sink",), "queue-busy": ("queue",), "queue-in-use": ("queue", "address"),
    }
)  # fmt: skip


class Parameter(Protocol):
    """What may stand behind the `?` of a URL."""

    @property
    def name(self) -> str: ...
    @property
    def about(self) -> str: ...
    @property
    def is_required(self) -> bool: ...
    def value(self, text: str | None) -> Any:
        """What a text in the URL means, or None, where nothing is said. Raises IllegalFrame."""

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the value."""


@dataclass(frozen=True, slots=True)
class Text:
    name: str
    about: str
    default: str | None = None
    is_required: bool = False

    def value(self, text: str | None) -> str | None:
        if text is None and self.is_required:
            raise IllegalFrame("missing-parameter", f"?{self.name}= is missing: {self.about}")
        return self.default if text is None else text

    def schema(self) -> dict[str, Any]:
        return {"type": "string"} | ({} if self.default is None else {"default": self.default})


@dataclass(frozen=True, slots=True)
class Number:
    """A parameter that is a whole number."""

    name: str
    about: str
    default: int | None
    most: int
    least: int = 1
    is_required: bool = False

    def value(self, text: str | None) -> int | None:
        if text is None:
            return self.default
        found = digits(text, most=len(str(self.most)))
        if found is None or not self.least <= found <= self.most:
            allowed = f"a number from {self.least} to {self.most}"
            raise IllegalFrame("bad-number", f"{self.name} is {text[:SHOWN]!r}; allowed is {allowed}")
        return found

    def schema(self) -> dict[str, Any]:
        bounds: dict[str, Any] = {"type": "integer", "minimum": self.least, "maximum": self.most}
        return bounds | ({} if self.default is None else {"default": self.default})


@dataclass(frozen=True, slots=True)
class Truth:
    """A parameter that is true or false."""

    name: str
    about: str
    is_required: bool = False

    def value(self, text: str | None) -> bool:
        if text not in (None, "true", "false"):
            raise IllegalFrame("bad-boolean", f"{self.name} is {text[:SHOWN]!r}; allowed are true and false")
        return text == "true"

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean", "default": False}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some words. `refusal`: the error for another one, by its text."""

    name: str
    about: str
    choices: tuple[str, ...]
    refusal: Callable[[str], IllegalFrame]
    default: str | None = None
    said: str = ""  # of the choices, where they are many
    is_required: bool = False

    def value(self, text: str | None) -> str | None:
        if text is None:
            return self.default
        if text not in self.choices:
            said = self.said or " and ".join(self.choices)
            raise self.refusal(f"{self.name} is {text[:SHOWN]!r}; allowed are {said}")
        return text

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.choices)} | (
            {} if self.default is None else {"default": self.default}
        )


class Nothing(Struct, forbid_unknown_fields=True):
    """There is nothing to say: {}."""


Do = Callable[["ApiRequest"], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A path and what is done there. `needs`: which right, in words; `form`: what the body is, of `most` bytes; `answer`: the
    type of the JSON, None where the answer is of another `media` type. `is_open`: it needs no credentials. `statuses`: of answers
    besides 200 that are no errors."""

    path: str
    do: Do
    about: str
    needs: str
    answer: Any
    method: str = "GET"
    query: tuple[Parameter, ...] = ()
    form: type[Struct] | None = None
    most: int = BODY
    media: str = "application/json"
    is_open: bool = False
    statuses: tuple[int, ...] = ()

    @property
    def changes(self) -> bool:
        """A line of the log says who has asked for it."""
        return self.method != "GET"

    @property
    def tag(self) -> str:
        """What it is about: the first word behind API."""
        return self.path.removeprefix(API).strip("/").partition("/")[0]

    @property
    def name(self) -> str:
        """One word for it: `get-queues`, `queues-purge`."""
        words = self.path.removeprefix(API).strip("/").replace("/", "-").replace(".", "-") or "index"
        return words if self.changes else f"get-{words}"

    def parameters(self, given: Mapping[str, str]) -> dict[str, Any]:
        """Reads what the URL says, or leaves to the defaults. Raises IllegalFrame that names the parameter, also an unknown one."""
        known = [parameter.name for parameter in self.query]
        # who asks what takes none beside the API has habits of its own; /readyz?roles=leader would be another question
        for name in given if known or self.path.startswith(API) else ():
            if name not in known:
                there = f"there are {', '.join(known)}" if known else "there are none"
                with naming(name[:SHOWN]):
                    raise IllegalFrame("unknown-parameter", f"?{name[:SHOWN]}= is no parameter here; {there}")
        found = {}
        for parameter in self.query:
            with naming(parameter.name):
                found[parameter.name] = parameter.value(given.get(parameter.name))
        return found

    def blamed(self, error: StompboxError, order: Any, values: Mapping[str, Any]) -> str | None:
        """The field, or parameter, that an error is about; None where it is none of them."""
        given = values if order is None else {name: getattr(order, name) for name in order.__struct_fields__}
        if isinstance(error, NotPermitted):
            return next((name for name, value in given.items() if value and value == error.address), None)
        if isinstance(error, SelectorError):
            return next((name for name in ("selector", "filter") if name in given), None)
        return next((name for name in _ABOUT.get(error.code, ()) if name in given), None)


@contextmanager
def naming(field: str) -> Iterator[None]:
    """What is refused in here is refused for this field of the body, or parameter of the URL."""
    try:
        yield
    except StompboxError as error:
        error.field = error.field or field
        raise


def reading(
    path: str, answer: Any, needs: str, *query: Parameter, media: str = "application/json", is_open: bool = False,
    statuses: tuple[int, ...] = (),
) -> Callable[[Do], Endpoint]:  # fmt: skip
    """Makes an endpoint of a function that shows something. Its docstring is what the description says."""

    def made(do: Do) -> Endpoint:
        return Endpoint(
            path=path if path.startswith("/") else f"{API}/{path}", do=do, about=about(do), needs=needs, answer=answer, query=query,
            media=media, is_open=is_open, statuses=statuses,
        )  # fmt: skip

    return made


def changing(
    path: str, form: type[Struct], answer: Any, needs: str, *, is_open: bool = False, most: int = BODY
) -> Callable[[Do], Endpoint]:
    """Makes an endpoint of a function that changes something, as the body says."""

    def made(do: Do) -> Endpoint:
        return Endpoint(
            path=f"{API}/{path}",
            do=do,
            about=about(do),
            needs=needs,
            answer=answer,
            method="POST",
            form=form,
            most=most,
            is_open=is_open,
        )

    return made


def about(do: Do) -> str:
    return " ".join((do.__doc__ or "").split())


# Which right an endpoint needs, in words

ON_BROKER: Final = "Needs `manage` on `stompbox.admin`."
ON_ADDRESS: Final = "Needs `manage` on the address."
SEEN: Final = "Shows what the user may `manage` or `browse`; with `manage` on `stompbox.admin` everything."
OWN: Final = "Shows the user's own; with `manage` on `stompbox.admin` everything."
