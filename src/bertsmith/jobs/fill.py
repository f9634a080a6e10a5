"""`fill`: candidates for each `[MASK]` of a text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bertsmith.infer.engine import load

if TYPE_CHECKING:
    from bertsmith.infer.programs import Candidate

__all__ = ["fill"]


def fill(model: str, text: str, *, top: int = 5) -> list[list[Candidate]]:
    """Open a model by name and fill in a text."""
    return load(model).fill(text, top=top)
