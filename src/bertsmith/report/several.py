"""The report of several runs, with other seeds or other settings: a table of all, and which is the best."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, ValidationError

from bertsmith.config import one_sentence, read_json
from bertsmith.errors import InputError
from bertsmith.report.figures import name_score, show_score
from bertsmith.report.page import Html, excerpt, picture, pictures, section, table
from bertsmith.report.plots import draw_points
from bertsmith.report.runs import show_settings, write_page, write_plots

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["SUMMARY_FILE", "write_report"]

SUMMARY_FILE = "summary.json"
_MAX_TRIALS, _MAX_SCORES, _MAX_PLOTS = 500, 12, 6


class _Trial(BaseModel):
    """One run; without scores where it was given up early, or `failed`."""

    model_config = ConfigDict(frozen=True)

    folder: str
    changes: dict[str, Any]
    scores: dict[str, float] | None
    failed: str | None = None

    @property
    def remark(self) -> str:
        """Why it has no scores."""
        if self.scores is not None:
            return ""
        return "given up early" if self.failed is None else f"failed: {self.failed}"


class _Summary(BaseModel):
    """The file that all runs leave behind."""

    model_config = ConfigDict(frozen=True)

    metric: str
    best: _Trial
    mean: dict[str, float]
    spread: dict[str, float]
    trials: list[_Trial]


def write_report(folder: Path) -> Path:
    """Write `report.html`, and its pictures as PNG into `plots/`; gives the page's path."""
    path = folder / SUMMARY_FILE
    try:
        summary = _Summary.model_validate(read_json(path))
    except ValidationError as error:
        raise InputError(f"{path}: is not the summary of several runs ({one_sentence(error)})") from error
    metric = summary.metric
    trials = sorted(summary.trials, key=lambda trial: -(trial.scores or {}).get(metric, float("-inf")))
    plots = _draw(trials, metric)
    write_plots(folder, {f"setting-{number}": png for number, png in enumerate(plots.values(), start=1)})
    sections = [
        section("Scores over all runs", _overall(summary)),
        section("Runs, the best first", _runs(folder, trials, summary)),
    ]
    if plots:
        shown = [picture(png, title) for title, png in plots.items()]
        sections.append(section("Scores and settings", pictures(shown)))
    config = _inside(folder, summary.best.folder, "config.json")
    if config is not None:
        sections.append(show_settings(read_json(config)))
    return write_page(folder, f"Fine-tuning: {folder.resolve().name}", _lead(summary), sections)


def _lead(summary: _Summary) -> str:
    metric, failed = summary.metric, sum(trial.failed is not None for trial in summary.trials)
    early = sum(trial.scores is None for trial in summary.trials) - failed
    given_up = f", {early:,} of them given up early" if early else ""
    given_up += f", {failed:,} failed" if failed else ""
    best = (summary.best.scores or {}).get(metric)
    top = f"; best {show_score(metric, best)} in {summary.best.folder}" if best is not None else ""
    repeated = all(trial.changes.keys() <= {"seed"} for trial in summary.trials)
    over = "" if repeated else " over all settings"
    return f"{len(summary.trials):,} runs{given_up}; {name_score(metric)} {_mean(summary, metric)}{over}{top}"


def _mean(summary: _Summary, name: str) -> str:
    if name not in summary.mean:
        return "unknown"
    return f"{show_score(name, summary.mean[name])} ± {show_score(name, summary.spread.get(name, 0.0))}"


def _names(summary: _Summary) -> list[str]:
    """The scores that are shown, the deciding one first and the loss last."""
    return sorted(summary.mean, key=lambda name: (name != summary.metric, name == "loss"))[:_MAX_SCORES]


def _overall(summary: _Summary) -> Html:
    rows = []
    for name in _names(summary):
        values = [trial.scores[name] for trial in summary.trials if trial.scores and name in trial.scores]
        ends = [show_score(name, value) for value in (min(values), max(values))] if values else ["", ""]
        rows.append([name_score(name), _mean(summary, name), *ends])
    return table(["score", "mean ± standard deviation", "least", "greatest"], rows, "Scores over all runs")


def _runs(folder: Path, trials: Sequence[_Trial], summary: _Summary) -> Html:
    changed, names = _changed_names(trials), _names(summary)
    rows = []
    for trial in trials[:_MAX_TRIALS]:
        settings = [_value(trial.changes.get(name)) for name in changed]
        scores = trial.scores or {}
        figures = [show_score(name, scores[name]) if name in scores else "" for name in names]
        remark: str | Html = trial.remark
        if trial.folder == summary.best.folder:
            remark = Html("<strong>★ best</strong>")
        rows.append([_link(folder, trial.folder), remark, *settings, *figures])
    return table(["run", "remark", *changed, *map(name_score, names)], rows, "Runs")


def _changed_names(trials: Sequence[_Trial]) -> list[str]:
    return list(dict.fromkeys(name for trial in trials for name in trial.changes))


def _value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else excerpt(str(value), 40) if value is not None else ""


def _link(folder: Path, name: str) -> str:
    """The name of a run; leads to its page where that is."""
    if _inside(folder, name, "report.html") is None:
        return name
    return Html(f'<a href="./{quote(name)}/report.html">{escape(name)}</a>')


def _inside(folder: Path, name: str, file: str) -> Path | None:
    """A file of one run; None where there is none, or where the name leads elsewhere."""
    path = folder / name / file
    plain = name not in ("", ".", "..") and not {"/", "\\", "\0"} & set(name)
    return path if plain and path.is_file() else None


def _draw(trials: Sequence[_Trial], metric: str) -> dict[str, bytes]:
    """By title, the deciding score over each setting that was changed and is a number."""
    plots: dict[str, bytes] = {}
    for name in _changed_names(trials)[:_MAX_PLOTS]:
        points = [
            (trial.changes[name], trial.scores[metric])
            for trial in trials
            if trial.scores and metric in trial.scores and _is_number(trial.changes.get(name))
        ]
        if points:
            title = f"{name_score(metric)} over {name}"
            plots[title] = draw_points(title, name, "score", *zip(*points, strict=True))
    return plots


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and -1e300 < value < 1e300
