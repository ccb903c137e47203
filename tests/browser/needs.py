"""What a test in a browser needs is there, or the test is skipped and says so."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

MODULES = Path(__file__).parent / "node_modules"


def missing(what: str) -> NoReturn:
    """Skips a test; with THERA_REQUIRE_BROWSER=1 it fails."""
    if os.environ.get("THERA_REQUIRE_BROWSER") == "1":
        pytest.fail(f"THERA_REQUIRE_BROWSER is 1, and {what}")
    pytest.skip(what)


def module(path: str) -> Path:
    """A file of an npm package."""
    if not (MODULES / path).is_file():
        missing(f"this test needs {path.split('/')[0]}: run `npm ci` in tests/browser")
    return MODULES / path
