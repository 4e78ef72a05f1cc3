"""The names of the package: loaded when used, and never the broker with them."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import stompbox
from stompbox import blocking, client

HEAVY = (
    "stompbox.server",
    "stompbox.broker",
    "stompbox.store",
    "stompbox.cli",
    "msgspec",
    "uvloop",
    "rich",
    "websockets",
    "cyclopts",
)


def loaded_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_importing_the_package_imports_nothing() -> None:
    loaded = loaded_after("import stompbox")
    assert not {name for name in loaded if name.startswith("stompbox.")}
    assert "asyncio" not in loaded


@pytest.mark.parametrize(
    "code",
    [
        "import stompbox; stompbox.connect",
        "import stompbox.blocking",
        "import stompbox; stompbox.blocking.connect",
    ],
)
def test_the_client_does_not_import_the_broker(code: str) -> None:
    loaded = loaded_after(code)
    assert "stompbox.client.client" in loaded
    assert not loaded & set(HEAVY)


def test_every_name_is_there() -> None:
    assert {name for name in stompbox.__all__ if getattr(stompbox, name, None) is None} == set()
    assert set(client.__all__) <= set(stompbox.__all__)
    assert set(stompbox.__all__) <= set(dir(stompbox))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = stompbox.nothing


def test_both_ways_to_connect_take_the_same_arguments() -> None:
    asynchronous = inspect.signature(stompbox.connect).parameters
    assert list(asynchronous.values()) == list(inspect.signature(blocking.connect).parameters.values())


@pytest.mark.parametrize(
    "name", ["send", "subscribe", "publisher", "transaction", "request", "rpc", "reply", "wait_connected"]
)
def test_both_clients_take_the_same_arguments(name: str) -> None:
    one, two = getattr(stompbox.Client, name), getattr(blocking.Client, name)
    assert list(inspect.signature(one).parameters.values()) == list(
        inspect.signature(two).parameters.values()
    )


def test_every_send_takes_its_headers_alike() -> None:
    """Third, or by name: who changes from a client to its publisher or transaction changes nothing else."""
    for kind in (
        stompbox.Client,
        stompbox.Publisher,
        stompbox.Transaction,
        blocking.Client,
        blocking.Publisher,
        blocking.Transaction,
    ):
        parameters = list(inspect.signature(kind.send).parameters.values())[1:4]
        assert [parameter.name for parameter in parameters] == ["destination", "body", "headers"], kind
        assert {parameter.kind for parameter in parameters} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}, kind
