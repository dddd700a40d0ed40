"""A browser, for tests of what a page shows."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def chromium() -> Iterator[Any]:
    """Skips the test where Playwright or Chromium is not installed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        pytest.skip("no chromium: apt-get install chromium")
    with (
        playwright.sync_playwright() as library,
        library.chromium.launch(executable_path=executable, args=["--no-sandbox"]) as opened,
    ):
        yield opened
