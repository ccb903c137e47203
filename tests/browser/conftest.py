"""Chromium without a window, with WebGL2 in software, driven by Playwright.

Where it is missing these tests are skipped, and say what they need; with THERA_REQUIRE_BROWSER=1 they fail.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from needs import missing

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SOFTWARE_GL = ("--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")


@pytest.fixture(scope="module")  # while it runs, so does a loop of events in this thread
def playwright() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("these tests need Playwright: pip install playwright")
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """THERA_CHROMIUM, or the first Chromium on the PATH."""
    found = os.environ.get("THERA_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        missing(
            "these tests need Chromium: install the package `chromium`, or set THERA_CHROMIUM to its path"
        )
    return found


@pytest.fixture(scope="module")
def browser(playwright: Any, chromium_path: str) -> Iterator[Any]:
    """A Chromium that has WebGL2."""
    running = playwright.chromium.launch(executable_path=chromium_path, args=SOFTWARE_GL)
    yield running
    running.close()
