"""What the client's tests share beside the scripted broker (fake_broker.py)."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tls_files() -> tuple[str, str]:
    """Certificate (for localhost and 127.0.0.1, self-signed) and key."""
    here = Path(__file__).parent
    return str(here / "tls-certificate.pem"), str(here / "tls-key.pem")
