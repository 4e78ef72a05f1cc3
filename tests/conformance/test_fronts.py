"""Cases of the wire against a broker with fronts, which a client must not notice: those of a few files, in 1.2. `make fronts` plays all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.conformance import test_flow, test_queue_kinds, test_subscriptions, test_transactions
from tests.conformance.playing import played
from tests.conformance.script import Case
from tests.conftest import end, start_broker

FILES = (test_subscriptions, test_transactions, test_queue_kinds, test_flow)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """In place of the session's: with two fronts."""
    listens = ("--memory", "--listen", "tcp://127.0.0.1:0", "--no-admin")
    served = start_broker(tmp_path_factory.mktemp("fronts"), *listens, "--fronts", "2")
    yield served.host, served.port
    end(served)
    assert "Traceback" not in served.log.read_text()


def of_the_last_version(cases: list[Case]) -> list[Case]:
    """Those that need no broker of their own."""
    return [replace(case, versions=case.versions[-1:]) for case in cases if not case.broker]


CASES = [case for file in FILES for case in of_the_last_version(file.CASES)]
test_over_tcp, test_over_websocket = played(CASES, CASES[::4])
