"""The two tests that a file of cases ends with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.conformance.script import Case, play

Address = tuple[str, int]


def played(
    cases: Sequence[Case], over_websocket: Sequence[Case] | None = None
) -> tuple[Callable[..., None], Callable[..., None]]:
    """Each case in each of its versions over TCP, and in its last one over WebSocket; there all of them where not said."""

    @pytest.mark.parametrize(
        ("case", "version"), [(case, version) for case in cases for version in case.versions], ids=str
    )
    def over_tcp(brokers: Callable[[str], Address], case: Case, version: str) -> None:
        play(brokers(case.broker), case, version, "tcp")
        assert case.steps

    @pytest.mark.parametrize("case", cases if over_websocket is None else over_websocket, ids=str)
    def by_websocket(brokers: Callable[[str], Address], case: Case) -> None:
        play(brokers(case.broker), case, case.versions[-1], "websocket")
        assert case.steps

    return over_tcp, by_websocket
