"""Spans of a text made visible, by brackets, a label and a line under them; colour only helps.

`[so]` is gold, `⟨so⟩` is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Literal

from bertsmith.report.page import Html, paragraph

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Mark", "Side", "mark_spans", "show_legend", "show_sides", "window_around"]

Side = Literal["gold", "guess"]
_BRACKETS: dict[Side, tuple[str, str]] = {"gold": ("[", "]"), "guess": ("⟨", "⟩")}


@dataclass(frozen=True, slots=True)
class Mark:
    """Characters of a text, and what is said of them."""

    start: int
    end: int
    label: str = ""


def window_around(text: str, marks: Sequence[Mark], around: int = 100, limit: int = 500) -> tuple[int, int]:
    """The characters to show so that marks are seen with what stands around them; as many as the limit allows.

    >>> window_around("x" * 900, [Mark(300, 310), Mark(340, 350)])
    (200, 450)
    """
    if not marks:
        return 0, min(len(text), limit)
    start = max(0, min(mark.start for mark in marks) - around)
    stop = min(len(text), max(mark.end for mark in marks) + around, start + limit)
    return start, stop


def mark_spans(text: str, marks: Sequence[Mark], side: Side, window: tuple[int, int]) -> Html:
    """The text of a window with those of the marks that are in it. Of marks that overlap the first is shown."""
    start, stop = window
    before, after = _BRACKETS[side]
    shown = "…" if start else ""
    place = start
    for mark in sorted(marks, key=lambda mark: mark.start):
        if mark.start < place or mark.start >= stop:
            continue
        cut = "…" if mark.end > stop else ""
        inner = escape(text[mark.start : min(mark.end, stop)]) + cut
        label = f" <small>{escape(mark.label)}</small>" if mark.label else ""
        shown += escape(text[place : mark.start])
        shown += f'<mark class="{side}">{before}{inner}{label}{after}</mark>'
        place = min(mark.end, stop)
    return Html(shown + escape(text[place:stop]) + ("…" if stop < len(text) else ""))


def show_sides(gold: Html, guess: Html) -> Html:
    """Both readings of one text, one under the other."""
    return Html(
        f'<dl class="sides"><dt>gold</dt><dd dir="auto">{gold}</dd><dt>guess</dt><dd dir="auto">{guess}</dd></dl>'
    )


def show_legend() -> Html:
    """How marks are to be read."""
    gold, guess = (mark_spans("so", [Mark(0, 2)], side, (0, 2)) for side in _BRACKETS)
    return paragraph(Html(f"What is right is marked {gold}, what the model says {guess}."))
