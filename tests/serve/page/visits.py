"""A visit to the page, and how its tests write, press and read there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from absence import absent

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Browser, Locator, Page, Route

    from bertsmith.infer.engine import Engine


class Visit:
    """A page in a window of its own, and what went wrong in it: errors, broken policy, requests to elsewhere."""

    def __init__(self, browser: Browser, address: str, **options: Any) -> None:
        context = {"locale": "en-GB", "reduced_motion": "reduce", "viewport": {"width": 900, "height": 900}, **options}
        self.address = address
        self.context = browser.new_context(**context)
        self.context.set_default_timeout(15_000)
        self.page: Page = self.context.new_page()
        self.problems: list[str] = []
        self.page.on("console", lambda message: message.type == "error" and self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", self._check_host)

    def _check_host(self, request: Any) -> None:
        if urlsplit(request.url).hostname not in ("127.0.0.1", None):
            self.problems.append(f"asked for {request.url}")

    def open(self, tab: str, model: str | None = None) -> Locator:
        """Go to a tab, and to a model in it; gives the tab's panel."""
        self.page.goto(f"{self.address}/#{tab}")
        panel = self.page.locator(f"#panel-{tab}")
        panel.wait_for()
        if model is not None:
            self.page.locator("#model").select_option(model)
        return panel


def expect(locator: Locator) -> Any:
    """Look until it is so; where it is not, for 15 seconds."""
    from playwright.sync_api import expect as waiting

    waiting.set_options(timeout=15_000)
    return waiting(locator)


def percent(share: float) -> str:
    return "<0.1%" if 0 < share < 0.0005 else f"{100 * share:.1f}%"


def decimal(number: float) -> str:
    return f"{number:.2f}".replace("-", "−")


def ask(panel: Locator, **values: str) -> None:
    """Write into the fields and press the button."""
    for label, value in values.items():
        panel.get_by_label(label.replace("_", " "), exact=label != "Second_text").fill(value)
    panel.get_by_role("button", name="Run").click()


def answering(**answer: Any) -> Callable[[Route], None]:
    """A server of our own for one address."""
    return lambda route: route.fulfill(**answer)


def bars(panel: Locator) -> Locator:
    return panel.locator(".bars li")


def says(shares: list[tuple[str, float]], show: Callable[[float], str] = percent) -> list[re.Pattern[str]]:
    """The lines of a list of names with bars and numbers."""
    return [re.compile(rf"^\s*{re.escape(name)}\s*{re.escape(show(share))}\s*$") for name, share in shares]


def needs(engines: dict[str, Engine], name: str) -> Engine:
    if name not in engines:
        absent(f"the package with {name} is not installed (make setup installs it)")
    return engines[name]
