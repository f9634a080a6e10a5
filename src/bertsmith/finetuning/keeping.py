"""Whoever looks at a fine-tuning run while it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bertsmith.finetuning.request import Request
    from bertsmith.train.checkpoint import Progress

__all__ = ["Observer"]


class Observer:
    """Override what is of interest."""

    def on_run(self, name: str, changes: dict[str, float]) -> None:
        """The next of several runs, and what is its own."""

    def on_begin(self, request: Request, num_items: int, total: int) -> None:
        """A run begins: so many items, so many steps."""

    def on_step(self, values: dict[str, float], progress: Progress, total: int) -> None:
        """A line of the log."""

    def on_evaluation(self, figures: dict[str, float], step: int) -> None:
        """Scores on the dev file."""

    def on_note(self, text: str) -> None:
        """Something that a person should know."""
