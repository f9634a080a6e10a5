"""A report's page as tests read it: its tags, its text, its tables and its pictures."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

from PIL import Image

from bertsmith.jobs.report import report

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = '<script>alert("1")</script><img src=x onerror=alert(2)> & [MASK]'
_VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """Tags with their attributes, the text, and the cells of each table by its label; every tag must be closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words = ""
        self.tables: dict[str, list[list[str]]] = {}
        self._label = ""
        self._in_cell = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        if tag not in _VOID:
            self.open.append(tag)
        if attributes.get("role") == "region":
            self._label = attributes["aria-label"]
        if tag == "table":
            self.tables[self._label] = []
        elif tag == "tr":
            self.tables[self._label].append([])
        elif tag in ("td", "th"):
            self._in_cell = True
            self.tables[self._label][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.words += data + "\n"
        if self._in_cell:
            self.tables[self._label][-1][-1] += data

    def named(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def line(self) -> str:
        """The text with single spaces, whatever tags are in it."""
        return " ".join(self.words.split())

    @property
    def images(self) -> list[bytes]:
        return [base64.b64decode(image["src"].partition(",")[2]) for image in self.named("img")]


def read_page(folder: Path) -> Page:
    """Write the report of a folder and read it."""
    path = report(folder)
    assert path == folder / "report.html"
    page = Page(path.read_text(encoding="utf-8"))
    assert page.open == []
    return page


def check_alone(folder: Path) -> None:
    """The page fetches nothing, runs nothing, and leads nowhere but to pages below it."""
    html = (folder / "report.html").read_text(encoding="utf-8")
    page = Page(html)
    assert not re.search(r"https?:|@import|url\(", html)
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "link", "iframe", "object", "form"})
    for _, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
        assert attributes.get("src", "data:").startswith("data:")
        assert attributes.get("href", "./").startswith("./")


def check_pictures(folder: Path, page: Page) -> None:
    """Pictures in the page are those beside it, and can be seen and read about."""
    files = [file.read_bytes() for file in (folder / "plots").glob("*.png")]
    assert sorted(page.images) == sorted(files)
    for png in files:
        with Image.open(io.BytesIO(png)) as picture:
            picture.verify()
            assert picture.format == "PNG"
            assert min(picture.size) > 300
    assert all(image["alt"] for image in page.named("img"))
