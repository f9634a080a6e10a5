"""One self-contained HTML page: headings, tables and pictures, nothing fetched from anywhere."""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["page", "picture", "section", "table"]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
.lead { color: #888; margin-top: .25rem; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: 1rem; }
img { width: 100%; background: #fff; border-radius: .4rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tbody tr:hover { background: var(--soft); }
"""


def page(title: str, lead: str, sections: Sequence[str]) -> str:
    """The whole document; `title` and `lead` are plain text, sections are HTML."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    body = f'<h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>' + "\n".join(sections)
    return f'<!doctype html>\n<html lang="en"><head>{head}<style>{_STYLE}</style></head><body>{body}</body></html>\n'


def section(heading: str, *content: str) -> str:
    """A heading and what stands under it."""
    return f"<h2>{escape(heading)}</h2>" + "".join(content)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of plain text."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def picture(png: bytes, alt: str) -> str:
    """A picture, inside the page."""
    return f'<img alt="{escape(alt, quote=True)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
