"""Scores as people read them, in the log of a fine-tuning run and in its result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bertsmith.config import read_json
from bertsmith.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Evaluation", "best_of", "find_evaluations", "name_score", "read_scores", "score_names", "show_score"]

_NOT_SHARES = {"loss", "matthews", "pearson", "spearman"}
_NOT_SCORES = {"kind", "step", "seconds", "tokens"}


@dataclass(frozen=True)
class Evaluation:
    """The scores after a step."""

    step: int
    scores: dict[str, float]


def find_evaluations(entries: Sequence[dict[str, Any]]) -> list[Evaluation]:
    """Those of a log."""
    return [Evaluation(entry["step"], _numbers_in(entry)) for entry in entries if entry["kind"] == "eval"]


def show_score(name: str, value: float) -> str:
    """A share in per cent, a loss or a correlation as a number."""
    return f"{value:.3f}" if name in _NOT_SHARES else f"{value:.1%}"


def name_score(name: str) -> str:
    """A score's name in words; `f1_X` is the F1 of the class X, whose name is left alone.

    >>> name_score("exact_match"), name_score("f1_MY_CLASS")
    ('exact match', 'F1 of MY_CLASS')
    """
    if name.startswith("f1_"):
        return f"F1 of {name.removeprefix('f1_')}"
    return name.replace("_", " ").replace("f1", "F1").replace("matthews", "Matthews")


def score_names(evaluations: Sequence[Evaluation], metric: str) -> list[str]:
    """All scores of the evaluations, the deciding one first and the loss last."""
    found = dict.fromkeys(name for evaluation in evaluations for name in evaluation.scores)
    return sorted(found, key=lambda name: (name != metric, name == "loss"))


def best_of(name: str, evaluations: Sequence[Evaluation]) -> tuple[float, int] | None:
    """The best value of a score, and the step where it was reached first."""
    sign = 1 if name == "loss" else -1
    found = [(each.scores[name], each.step) for each in evaluations if math.isfinite(each.scores.get(name, math.nan))]
    return min(found, key=lambda pair: (sign * pair[0], pair[1]), default=None)


def read_scores(run: Path) -> dict[str, float] | None:
    """The scores of a run that is finished: those of the model that it kept."""
    path = run / "result.json"
    if not path.is_file():
        return None
    scores = read_json(path).get("scores")
    if not isinstance(scores, dict):
        raise InputError(f"{path}: holds no scores, so is not the result of a run")
    return _numbers_in(scores)


def _numbers_in(content: dict[str, Any]) -> dict[str, float]:
    """The scores among other values."""
    return {
        name: value
        for name, value in content.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and name not in _NOT_SCORES
    }
