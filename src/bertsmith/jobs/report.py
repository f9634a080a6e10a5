"""`report`: a run as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bertsmith.report.pretraining import write_report

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["report"]


def report(run: Path) -> Path:
    """Write `report.html` and its pictures into a run folder; gives the page's path."""
    return write_report(run)
