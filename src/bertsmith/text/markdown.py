"""The prose of a Markdown file: paragraphs, headings and list items; no code, tables, markup or front matter."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.token import Token

__all__ = ["prose_of_markdown"]

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n.*?\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)


def prose_of_markdown(text: str) -> str:
    r"""One paragraph a line.

    >>> prose_of_markdown("# Title\n\nSome *wrapped*\ntext, see [there](http://x).\n\n    code\n")
    'Title\nSome wrapped text, see there.'
    """
    tokens = _parser().parse(_FRONT_MATTER.sub("", text, count=1))
    lines, in_table = [], 0
    for token in tokens:
        in_table += (token.type == "table_open") - (token.type == "table_close")
        if token.type == "inline" and not in_table:
            lines.append(" ".join(_words(token.children or ()).split()))
    return "\n".join(line for line in lines if line)


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table")


def _words(tokens: Sequence[Token]) -> str:
    """Text as it is read: of an image its description, of markup nothing."""
    parts = []
    for token in tokens:
        if token.type in ("softbreak", "hardbreak"):
            parts.append(" ")
        elif token.type == "image":
            parts.append(_words(token.children or ()))
        elif token.type in ("text", "code_inline"):
            parts.append(token.content)
    return "".join(parts)
