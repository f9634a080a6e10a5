"""`bertsmith report`."""

from __future__ import annotations

from pathlib import Path

from bertsmith.cli.output import print_json, print_line

__all__ = ["report"]


def report(run: Path, /, *, json: bool = False) -> None:
    """Show a run as one HTML page with curves, settings, data and examples; also while it goes on.

    Parameters
    ----------
    run:
        A run folder. `report.html` and `plots/*.png` are written into it.
    json:
        Print the paths as JSON.
    """
    from bertsmith.jobs.report import report as job

    page = job(run)
    if json:
        print_json({"report": str(page), "plots": sorted(map(str, (run / "plots").glob("*.png")))})
    else:
        print_line(str(page))
