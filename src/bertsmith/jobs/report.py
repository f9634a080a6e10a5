"""`report`: a run as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bertsmith.errors import InputError
from bertsmith.finetuning.many import SEVERAL_FILE
from bertsmith.finetuning.request import is_finetuning
from bertsmith.report import finetuning, pretraining, several

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["report"]


def report(run: Path) -> Path:
    """Write `report.html` and its pictures into a run folder, or into one of several runs; gives the page's path."""
    if (run / several.SUMMARY_FILE).is_file():
        return several.write_report(run)
    if (run / SEVERAL_FILE).is_file():
        raise InputError(f"{run}: these runs have a page together when all are done; each has its own in its folder")
    if is_finetuning(run):
        return finetuning.write_report(run)
    return pretraining.write_report(run)
