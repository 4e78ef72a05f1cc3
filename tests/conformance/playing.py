"""The two tests that a file of cases ends with.

TESTED_VERSIONS=turns in the environment: over TCP each case is played in one of its versions, the next one in the next of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import pytest

from tests.conformance.script import Case, play

Address = tuple[str, int]


def in_versions(cases: Sequence[Case], environment: Mapping[str, str]) -> list[tuple[Case, str]]:
    """Each case with each of its versions, or with one of them, by turns."""
    if environment.get("TESTED_VERSIONS") == "turns":
        return [(case, case.versions[place % len(case.versions)]) for place, case in enumerate(cases)]
    return [(case, version) for case in cases for version in case.versions]


def played(
    cases: Sequence[Case], over_websocket: Sequence[Case] | None = None
) -> tuple[Callable[..., None], Callable[..., None]]:
    """Each case in each of its versions over TCP, and in its last one over WebSocket; there all of them where not said."""

    @pytest.mark.parametrize(("case", "version"), in_versions(cases, os.environ), ids=str)
    def over_tcp(brokers: Callable[[str], Address], case: Case, version: str) -> None:
        play(brokers(case.broker), case, version, "tcp")
        assert case.steps

    @pytest.mark.parametrize("case", cases if over_websocket is None else over_websocket, ids=str)
    def by_websocket(brokers: Callable[[str], Address], case: Case) -> None:
        play(brokers(case.broker), case, case.versions[-1], "websocket")
        assert case.steps

    return over_tcp, by_websocket
