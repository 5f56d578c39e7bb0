"""Pages as a person uses them, in a headless Chromium; tests skip where there is none."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Nothing is looked up in the background; as root, Chromium runs only without its sandbox.
FLAGS = ["--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]

# Of every chart: the width of its place, and of what is drawn there, 0 if nothing is.
DRAWN = """[...document.querySelectorAll('.plot')].map((plot) =>
    [plot.clientWidth, plot.querySelector('.main-svg')?.clientWidth ?? 0])"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is on the path")
    flags = [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else FLAGS
    with driver.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=path, args=flags)
        yield opened
        opened.close()


class Opened:
    """A page, with what it told the console and what it asked the network for."""

    def __init__(self, browser: Any, path: Path, **settings: Any) -> None:
        self.view = browser.new_context(**settings).new_page()
        self.view.set_default_timeout(60_000)  # machines are busy
        self.told: list[str] = []
        self.asked: list[str] = []
        self.view.on("console", lambda said: self.told.append(said.text))
        self.view.on("pageerror", lambda error: self.told.append(str(error)))
        self.view.on("dialog", lambda dialog: self.told.append(f"dialog {dialog.message}"))
        self.view.on("request", lambda request: self.asked.append(request.url))
        self.view.goto(path.as_uri())
        self.view.wait_for_selector("html[data-ready]")
        self.path = path

    def check(self) -> None:
        """Nothing was said, and nothing but the file was read."""
        assert self.told == []
        assert self.asked == [self.path.as_uri()]
        wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert self.view.evaluate(wider) == 0

    def wait_for_charts(self) -> None:
        """Until all are drawn as wide as their places. The page's policy forbids to wait inside."""
        for _ in range(300):
            if all(place == chart for place, chart in self.view.evaluate(DRAWN)):
                return
            self.view.wait_for_timeout(100)
        raise AssertionError(self.view.evaluate(DRAWN))

    def text(self, selector: str) -> str:
        return self.view.locator(selector).first.inner_text()
