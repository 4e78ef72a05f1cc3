"""The report is looked at in the browser that the tests of the console have."""

from __future__ import annotations

from tests.console.conftest import browser

__all__ = ["browser"]
