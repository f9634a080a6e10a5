"""The page's tests share a browser, a server of models, and a window."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from absence import absent
from serve import page_models
from serve.page.visits import Visit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser

    from bertsmith.infer.engine import Engine

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="package")
def engines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Engine]:
    return page_models.load_all(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="package")
def address(engines: dict[str, Engine]) -> Iterator[str]:
    with page_models.serving(engines) as where:
        yield where


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        absent("no system Chromium (apt-get install chromium)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        absent("package playwright is not installed (pip install 'bertsmith[dev]')")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="package")
def window(browser: Browser, address: str) -> Iterator[Visit]:
    """A window for all tests that need no special one: opening one takes longer than most tests."""
    one = Visit(browser, address)
    yield one
    one.context.close()


@pytest.fixture
def visit(window: Visit) -> Iterator[Visit]:
    """The window as new. A test that expects a problem takes it off the list."""
    yield window
    window.page.unroute_all()
    if window.page.url != "about:blank":
        window.page.evaluate("localStorage.clear(), sessionStorage.clear()")
    window.page.goto("about:blank")
    found, window.problems = window.problems, []
    assert found == []


@pytest.fixture
def special_visit(browser: Browser, address: str) -> Iterator[Callable[..., Visit]]:
    """Opens a window with options."""
    visits: list[Visit] = []

    def make(**options: Any) -> Visit:
        visits.append(Visit(browser, address, **options))
        return visits[-1]

    yield make
    for one in visits:
        one.context.close()
    assert [problem for one in visits for problem in one.problems] == []
