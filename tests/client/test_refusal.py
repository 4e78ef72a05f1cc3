"""ERROR frames as exceptions."""

from __future__ import annotations

import pickle

import pytest

from stompbox.client.refusal import MOST_TEXT, broker_error
from stompbox.errors import Refused
from stompbox.stomp.frames import Frame

CASES = [
    ({"message": "no such queue", "code": "no-queue"}, b"", "no-queue", "no such queue"),
    ({"message": "Bad"}, b"more words\n", "broker-error", "Bad: more words"),
    ({"message": "same"}, b"same", "broker-error", "same"),
    ({}, b"only a body", "broker-error", "only a body"),
    ({}, b"", "broker-error", "the broker sent an ERROR frame without text"),
    ({}, b"\xff", "broker-error", "�"),
]


@pytest.mark.parametrize(("headers", "body", "code", "text"), CASES)
def test_words_of_the_broker(headers: dict[str, str], body: bytes, code: str, text: str) -> None:
    error = broker_error(Frame("ERROR", headers, body))
    assert isinstance(error, Refused)
    assert (error.code, error.message, error.headers, error.body) == (code, text, headers, body)


def test_a_long_body_is_cut_in_the_text_only() -> None:
    error = broker_error(Frame("ERROR", {}, b"x" * 5000))
    assert error.message == "x" * MOST_TEXT + "…"
    assert len(error.body) == 5000


def test_survives_another_process() -> None:
    error = pickle.loads(pickle.dumps(broker_error(Frame("ERROR", {"message": "m"}, b"b"))))
    assert (error.code, error.message, error.headers, error.body) == (
        "broker-error",
        "m: b",
        {"message": "m"},
        b"b",
    )
