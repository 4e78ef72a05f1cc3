"""What each path takes, and what it says of what it does not take."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, cast, get_args, get_origin
from weakref import WeakSet

import msgspec
import pytest
from msgspec import NODEFAULT

from stompbox.admin.apirequest import PART, ApiRequest, field_in
from stompbox.admin.endpoints import API, Choice, Endpoint, Number, Text, Truth
from stompbox.admin.responses import PROBLEM, Problem
from stompbox.admin.table import ENDPOINTS
from stompbox.errors import IllegalFrame
from tests.admin.asking import JSON, Answer, ask, post
from tests.conftest import Served
from tests.server.turning import LOOKS, World

VERBS = [one for one in ENDPOINTS if one.form is not None]
FIELDS = [
    (one, field)
    for one in VERBS
    for field in msgspec.structs.fields(one.form)  # type: ignore[arg-type]
]
PARAMETERS = [(one, parameter) for one in ENDPOINTS for parameter in one.query]


def named(given: object) -> str:
    return given.name if isinstance(given, Endpoint) else str(getattr(given, "name", given))


def problem_of(answer: Answer, status: int, code: str) -> Problem:
    """Of an answer that is one."""
    assert answer.headers["content-type"] == PROBLEM
    found = msgspec.json.decode(answer.body, type=Problem)
    assert (answer.status, found.status, found.code) == (status, status, code), found
    assert found.type == f"urn:problem-type:stompbox:{code}"
    assert found.title and found.detail
    assert (found.error.code, found.error.message) == (code, found.detail)
    return found


def test_names_are_one_each() -> None:
    assert (
        len({one.name for one in ENDPOINTS})
        == len(ENDPOINTS)
        == len({(one.method, one.path) for one in ENDPOINTS})
    )


@pytest.mark.parametrize("one", ENDPOINTS, ids=named)
def test_each_says_what_it_is_for_and_of_which_form_it_is(one: Endpoint) -> None:
    assert len(one.about) > 9, "its docstring is the description"
    assert one.needs or one.path in (API, f"{API}/openapi.json", f"{API}/docs")
    assert (one.method == "POST") is (one.form is not None)
    assert one.answer is not None or one.media != "application/json"
    assert all(parameter.about for parameter in one.query)


def wrong(hint: Any) -> Any:
    """A value that no field of this type takes."""
    kinds = get_args(hint) if get_origin(hint) is not None else (hint,)
    return 1.5 if dict not in kinds else [[]]


@pytest.mark.parametrize(("one", "field"), FIELDS, ids=named)
def test_a_wrong_field_is_named(served: Served, one: Endpoint, field: msgspec.structs.FieldInfo) -> None:
    found = problem_of(
        ask(served.admin, one.path, "POST", {field.encode_name: wrong(field.type)}), 400, "bad-json"
    )
    assert found.field == field.encode_name
    assert f"`$.{field.encode_name}`" in found.detail


@pytest.mark.parametrize("one", VERBS, ids=named)
def test_missing_and_unknown_fields_are_named(served: Served, one: Endpoint) -> None:
    assert one.form is not None
    needed = [
        field for field in msgspec.structs.fields(one.form) if field.default is NODEFAULT and field.default_factory is NODEFAULT
    ]  # fmt: skip
    if needed:
        assert (
            problem_of(ask(served.admin, one.path, "POST", {}), 400, "bad-json").field
            == needed[0].encode_name
        )
    assert (
        problem_of(ask(served.admin, one.path, "POST", {"nonsense": 1}), 400, "bad-json").field == "nonsense"
    )
    for body in (b"[]", b"", b"{", b"\xff", b"null", b"[" * 50_000):
        assert problem_of(ask(served.admin, one.path, "POST", body), 400, "bad-json").field is None


@pytest.mark.parametrize(
    "body", [b'{"queue": "\xff"}', b'{"\xff": 1}', b'{"queue": "\\ud800"}', b"\xef\xbb\xbf{}"]
)
def test_what_is_no_utf8_is_no_fault_of_the_broker(served: Served, body: bytes) -> None:
    """It ended the broker: a decoder's error that was none of JSON's."""
    problem_of(ask(served.admin, f"{API}/queues/purge", "POST", body), 400, "bad-json")
    assert ask(served.admin, "/healthz").status == 200


@pytest.mark.parametrize(("one", "parameter"), PARAMETERS, ids=named)
def test_a_wrong_parameter_is_named(served: Served, one: Endpoint, parameter: Any) -> None:
    if isinstance(parameter, Text):
        return
    code = {Number: "bad-number", Truth: "bad-boolean"}.get(type(parameter)) or parameter.refusal("").code
    needed = "".join([f"&{other.name}=x" for other in one.query if other.is_required])
    for text in ("maybe", "", "1e9", "-1", "99999999999999999999"):
        answer = ask(served.admin, f"{one.path}?{parameter.name}={text}{needed}")
        assert problem_of(answer, 400, code).field == parameter.name


def test_an_unknown_parameter_is_refused_with_those_that_are_there(served: Served) -> None:
    found = problem_of(ask(served.admin, f"{API}/queues?mach=x"), 400, "unknown-parameter")
    assert found.field == "mach"
    assert "match" in found.detail
    assert ask(served.admin, "/healthz?at=12").status == 200, "those who probe have habits of their own"
    answer = ask(served.admin, "/readyz?roles=leader")
    assert (answer.status, answer.json["error"]["code"]) == (400, "unknown-parameter"), (
        "the one without a role is another question"
    )


@pytest.mark.parametrize("path", [f"{API}/queues", "/healthz"])
def test_very_many_parameters_are_not_parsed(served: Served, path: str) -> None:
    found = problem_of(ask(served.admin, f"{path}?{'a=1&' * 200}"), 400, "unknown-parameter")
    assert "more than 100 parameters" in found.detail


def test_a_parameter_that_is_missing_is_named(served: Served) -> None:
    assert problem_of(ask(served.admin, f"{API}/messages"), 400, "missing-parameter").field == "queue"


@pytest.mark.parametrize(
    ("path", "body", "refusal", "field"),
    [
        ("queues/purge", {"queue": "nowhere"}, (404, "no-such-queue"), "queue"),
        ("addresses/pause", {"address": "nowhere"}, (404, "no-such-address"), "address"),
        ("groups/delete", {"group": "nowhere"}, (404, "no-such-group"), "group"),
        ("sinks/delete", {"sink": "nowhere"}, (404, "no-such-sink"), "sink"),
        ("connections/close", {"connection": 999_999}, (404, "no-such-connection"), "connection"),
        ("queues/purge", {"queue": "q", "count": 1}, (400, "bad-json"), "count"),
        ("queues/move", {"queue": "q", "to": "r", "count": -2}, (400, "bad-json"), "count"),
    ],
)  # fmt: skip
def test_what_is_refused_names_its_field(
    served: Served, path: str, body: object, refusal: tuple[int, str], field: str
) -> None:
    assert problem_of(post(served.admin, path, body), *refusal).field == field


def test_a_page_that_is_not_there_and_a_wrong_method_are_problems(served: Served) -> None:
    problem_of(ask(served.admin, f"{API}/nothing"), 404, "no-such-page")
    answer = ask(served.admin, f"{API}/queues/purge")
    problem_of(answer, 405, "wrong-method")
    assert answer.headers["allow"] == "POST"
    for headers in (JSON, {}):
        answer = ask(served.admin, f"{API}/queues", "DELETE", headers=headers)
        problem_of(answer, 405, "wrong-method")
        assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize(
    ("problem", "field"),
    [
        ("Expected `str`, got `int` - at `$.queue`", "queue"),
        ("Object missing required field `queue`", "queue"),
        ("Object missing required field `name` - at `$.queues[0]`", "queues[0].name"),
        ("Object contains unknown field `x`", "x"),
        ("Expected `str`, got `int` - at `$.headers[...]`", "headers[...]"),
        ("Expected `object`, got `array`", ""),
        ("JSON is malformed: invalid character (byte 0)", ""),
    ],
)
def test_the_field_that_msgspec_speaks_of(problem: str, field: str) -> None:
    assert field_in(problem) == field


def test_parameters_have_their_defaults() -> None:
    assert [
        Text("a", "-").value(None),
        Text("a", "-", "x").value(None),
        Number("a", "-", 7, 9).value(None),
    ] == [None, "x", 7]
    assert (Truth("a", "-").value(None), Truth("a", "-").value("true")) == (False, True)
    choice = Choice("a", "-", ("x", "y"), lambda text: IllegalFrame("bad-span", text), "x")
    assert (choice.value(None), choice.value("y")) == ("x", "y")
    with pytest.raises(IllegalFrame, match="allowed are x and y"):
        choice.value("z")
    assert json.loads(json.dumps(choice.schema())) == {"type": "string", "enum": ["x", "y"], "default": "x"}


def test_what_has_gone_while_a_list_was_answered_goes_in_steps() -> None:
    """Twenty-seven thousand queues of subscriptions that had ended went in one step, with the list of all of them."""
    world, request = World(), cast(Any, None)
    asked = ApiRequest(world.broker, request, request)
    there = asked.keep([partial(int) for _ in range(2000)])
    alive = WeakSet(there)
    asked.let_go()
    seen = [len(alive)]
    while there:
        world.turn()
        seen.append(len(alive))
    world.until_idle()
    assert not alive
    steps = [before - now for before, now in zip([2000, *seen], seen, strict=False)]
    assert max(steps) <= 3 * PART * LOOKS
    assert len(seen) > 5
