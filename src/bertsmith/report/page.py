"""One self-contained HTML page: headings, tables, texts and pictures, nothing fetched from anywhere.

What is `Html` is put into the page as it is; every other string is text, and escaped.
"""

from __future__ import annotations

import base64
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Html", "excerpt", "heat_table", "page", "paragraph", "picture", "pictures", "quoted", "section", "table"]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; --faint: color-mix(in srgb, CanvasText 72%, Canvas);
        --gold: light-dark(#1b6b2a, #7fd18e); --guess: light-dark(#a34a00, #ffb066); }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { margin-bottom: 0; overflow-wrap: anywhere; } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
.lead { color: var(--faint); margin-top: .25rem; overflow-wrap: anywhere; }
.pictures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr)); gap: 1rem; }
.pictures:has(img:only-child) { max-width: 34rem; }
img { width: 100%; background: #fff; border-radius: .4rem; }
.wide { overflow-x: auto; } .wide + .wide, .pictures + .wide { margin-top: 1.2rem; }
.wide:focus-visible { outline: 2px solid; outline-offset: 2px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tbody th { font-weight: normal; }
tbody tr:hover { background: var(--soft); }
.text { min-width: 14rem; overflow-wrap: anywhere; }
.heat th, .heat td { padding: .25rem .6rem; } .heat thead th:not(:first-child) { text-align: right; }
.heat td { text-align: right; background: rgb(31 111 180 / calc(var(--share) * .5)); }
.heat .same { font-weight: bold; outline: 1px solid var(--faint); outline-offset: -2px; }
.heat small, .faint { color: var(--faint); } .heat .same small { color: inherit; }
.examples > li { margin-bottom: 1rem; padding-left: .3rem; overflow-wrap: anywhere; }
.examples p, .examples ul { margin: .15rem 0; }
.sides { display: grid; grid-template-columns: max-content 1fr; gap: .3rem .8rem; margin: .25rem 0; }
.sides dt { color: var(--faint); } .sides dd { margin: 0; }
mark { background: var(--soft); color: inherit; border-radius: .2em; border-bottom: 2px solid; padding: 0 .1em; }
mark.gold { border-color: var(--gold); } mark.guess { border-color: var(--guess); border-bottom-style: dashed; }
mark small { font-weight: bold; } .gold small { color: var(--gold); } .guess small { color: var(--guess); }
"""


class Html(str):
    """A string that is HTML already, with all text in it escaped."""

    __slots__ = ()


def page(title: str, lead: str, sections: Sequence[Html]) -> bytes:
    """The whole document; half a character, as JSON can have it, becomes a question mark."""
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    top = f'<h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p>'
    body = f"<main>{top}{''.join(sections)}</main>"
    html = f'<html lang="en"><head>{head}<style>{_STYLE}</style></head><body>{body}</body></html>'
    return f"<!doctype html>\n{html}\n".encode("utf-8", "replace")


def section(heading: str, *content: Html) -> Html:
    """A heading and what stands under it."""
    return Html(f"\n<h2>{escape(heading)}</h2>{''.join(content)}")


def paragraph(text: str) -> Html:
    """A paragraph."""
    return Html(f"<p>{_cell(text)}</p>")


def table(header: Sequence[str], rows: Sequence[Sequence[str]], label: str) -> Html:
    """A table; `label` is its name for those who do not see it. The first cell of a row is the row's heading."""
    body = "".join(f"<tr>{_row_heading(row[0])}{_cells(row[1:])}</tr>" for row in rows)
    return _framed(header, body, label)


def heat_table(corner: str, names: Sequence[str], columns: Sequence[str], counts: Sequence[Sequence[int]]) -> Html:
    """Counts with a row for each name, coloured by their share of the row; the diagonal is outlined."""
    body = ""
    for number, (name, row) in enumerate(zip(names, counts, strict=True)):
        total = max(sum(row), 1)
        cells = "".join(
            f'<td style="--share:{count / total:.3f}"{_SAME if place == number else ""}>'
            f"{count:,} <small>{count / total:.0%}</small></td>"
            for place, count in enumerate(row)
        )
        body += f"<tr>{_row_heading(name)}{cells}</tr>"
    return _framed([corner, *columns], body, corner, ' class="heat"')


def picture(png: bytes, alt: str) -> Html:
    """A picture, inside the page."""
    return Html(f'<img alt="{escape(alt)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">')


def pictures(shown: Sequence[Html]) -> Html:
    """Pictures side by side."""
    return Html(f'<div class="pictures">{"".join(shown)}</div>')


def quoted(text: str, limit: int = 300) -> Html:
    """Text of the user's in a cell: its beginning, set in its own direction."""
    return Html(f'<div class="text" dir="auto">{escape(excerpt(text, limit))}</div>')


def excerpt(text: str, limit: int) -> str:
    """A text's beginning, with white space made single.

    >>> excerpt("a   b c d", 5)
    'a b c…'
    """
    plain = " ".join(text[: 4 * limit].split())
    whole = len(plain) <= limit and len(text) <= 4 * limit
    return plain if whole else plain[:limit].rstrip() + "…"


_SAME = ' class="same"'


def _framed(header: Sequence[str], body: str, label: str, attributes: str = "") -> Html:
    """A table that can be scrolled sideways, also with the keyboard."""
    head = "".join(f'<th scope="col">{_cell(cell)}</th>' for cell in header)
    return Html(
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(label)}">'
        f"<table{attributes}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row_heading(name: str) -> str:
    return f'<th scope="row">{_cell(name)}</th>'


def _cells(row: Sequence[str]) -> str:
    return "".join(f"<td>{_cell(cell)}</td>" for cell in row)


def _cell(content: str) -> str:
    return content if isinstance(content, Html) else escape(content)
