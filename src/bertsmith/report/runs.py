"""What every report has: the log of a run, its curves, its settings, and a page that is written whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bertsmith.errors import InputError
from bertsmith.folders import write_whole
from bertsmith.report.page import Html, page, picture, pictures, section, table
from bertsmith.report.plots import BLUE, Curve, draw
from bertsmith.train.metrics import read_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    Plot = tuple[str, str, Sequence[Curve]]  # title, unit, curves

__all__ = [
    "TRAINING_PLOTS",
    "read_entries",
    "show_curves",
    "show_remarks",
    "show_settings",
    "training_done",
    "write_page",
    "write_plots",
]

TRAINING_PLOTS: dict[str, Plot] = {
    "rate": ("Learning rate", "rate", [Curve("train", "rate", "rate", BLUE)]),
    "speed": ("Speed", "tokens a second", [Curve("train", "tokens_per_second", "tokens a second", BLUE)]),
    "norm": ("Gradient norm, before clipping", "norm", [Curve("train", "norm", "norm", BLUE)]),
}


def read_entries(run: Path) -> list[dict[str, Any]]:
    """The log of a run; what is no log is an error that names it."""
    log = run / "metrics.jsonl"
    if not log.is_file():
        raise InputError(f"{run}: no run here; expected {log.name}")
    try:
        entries = list(read_log(log))
        steps = [entry["step"] for entry in entries if entry["kind"]]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{log}: is not the log of a run, or is damaged ({error})") from error
    if not all(isinstance(step, int) for step in steps):
        raise InputError(f"{log}: is not the log of a run, or is damaged")
    return entries


def training_done(entries: Sequence[dict[str, Any]]) -> tuple[int, int, float]:
    """The steps so far, the tokens read in them, and the minutes that took."""
    last: dict[str, Any] = next((entry for entry in reversed(entries) if entry["kind"] == "train"), {})
    steps = max((entry["step"] for entry in entries), default=0)
    return steps, last.get("tokens", 0), last.get("seconds", 0.0) / 60


def show_curves(run: Path, plots: Mapping[str, Plot], entries: Sequence[dict[str, Any]]) -> Html:
    """The section of all curves that the run has; they are also written beside the page."""
    drawn = {name: png for name, plot in plots.items() if (png := draw(*plot, entries)) is not None}
    write_plots(run, drawn)
    return section("Curves", pictures([picture(png, plots[name][0]) for name, png in drawn.items()]))


def show_remarks(entries: Sequence[dict[str, Any]]) -> list[Html]:
    """The section of what a person should know, where there is anything."""
    notes = [[f"{entry['step']:,}", str(entry["text"])] for entry in entries if entry["kind"] == "note"]
    return [section("Remarks", table(["step", "remark"], notes, "Remarks"))] if notes else []


def show_settings(config: Mapping[str, Any]) -> Html:
    """The section of all settings, by their names on the command line."""
    return section("Settings", table(["setting", "value"], list(_flat(config)), "Settings"))


def write_plots(run: Path, plots: Mapping[str, bytes]) -> None:
    """Pictures as files in `plots/`."""
    (run / "plots").mkdir(exist_ok=True)
    for name, png in plots.items():
        write_whole(run / "plots" / f"{name}.png", lambda file, png=png: file.write(png))  # type: ignore[misc]


def write_page(run: Path, title: str, lead: str, sections: Sequence[Html]) -> Path:
    """Write `report.html`; gives its path."""
    content = page(title, lead, sections)
    write_whole(run / "report.html", lambda file: file.write(content))
    return run / "report.html"


def _flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[list[str]]:
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is not None:
            yield [f"{prefix}{name}", _phases(value) if name == "phases" else str(value)]


def _phases(phases: Sequence[Mapping[str, Any]]) -> str:
    """As they are written on the command line."""
    return ",".join(":".join(str(value) for value in phase.values() if value is not None) for phase in phases)
