"""A headless browser, for tests of what people see."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

#: Browsers that the packages of systems install; Playwright's own would have to be downloaded.
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_PROGRAM = next(filter(None, map(shutil.which, _BROWSERS)), None)
_QUIET = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
          "--disable-component-update", "--disable-sync")  # fmt: skip
#: Looked at before anything is started.
needs_browser = pytest.mark.skipif(
    _PROGRAM is None or find_spec("playwright") is None,
    reason="no browser here: install Debian's package chromium, and the package playwright",
)
_WIDTH, _HEIGHT = 1400, 900
_SHOWN_WITHIN_SECONDS = 480


class Tab:
    """A page of the browser on the UI at ``address``, with what a person does there; ``pictures`` is where pictures
    go, if they are asked for."""

    def __init__(self, page: Any, address: str, pictures: Path | None) -> None:
        self.page, self._address, self._pictures = page, address, pictures

    def open(self, path: str, *texts: str) -> None:
        """Goes to a page and waits until it shows the texts."""
        self.page.goto(self._address + path)
        for text in texts:
            self.sees(text)

    def sees(self, text: str) -> None:
        """Waits until some element shows the text."""
        self.page.get_by_text(text, exact=True).first.wait_for()

    def click(self, button: str) -> None:
        """Presses the first button that has this text in its name, once it can be pressed."""
        self.page.get_by_role("button", name=button).first.click()

    def choose(self, key: str) -> None:
        """Picks a partition in the first list of the open dialog that has no choice yet."""
        hints = self.page.get_by_role("dialog").first.get_by_text("Select a partition or create one")
        hints.first.wait_for()
        left = hints.count()
        hints.first.click()
        self.page.get_by_role("menuitem", name=key).click()
        self.page.keyboard.press("Escape")
        hints.nth(left - 1).wait_for(state="detached")

    def reads(self) -> str:
        """All text of the page."""
        return str(self.page.inner_text("body"))

    def picture(self, name: str) -> None:
        """A picture of what the page shows, where pictures are asked for."""
        if self._pictures is None:
            return
        self._pictures.mkdir(parents=True, exist_ok=True)
        self.page.wait_for_timeout(1_000)  # what fades in or is being drawn
        self.page.get_by_text("Loading").first.wait_for(state="hidden")
        path = self._pictures / f"{name}.png"
        self.page.screenshot(path=path)
        with Image.open(path) as shown:
            small = shown.convert("RGB").quantize(256)
        small.save(path, optimize=True)


@contextmanager
def browsing(address: str, pictures: Path | None, failed: Path) -> Iterator[Tab]:
    """A tab of a headless browser; what it showed last is kept as ``failed`` when the block raises."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # the other test goes without

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_PROGRAM, args=_QUIET)
        page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT})
        page.set_default_timeout(_SHOWN_WITHIN_SECONDS * 1_000)
        tab = Tab(page, address, pictures)
        try:
            yield tab
        except BaseException:
            page.screenshot(path=failed)
            raise
        finally:
            browser.close()
