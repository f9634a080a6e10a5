"""A study: runs with settings that Optuna proposes from those before; hopeless ones are given up early.

Optuna keeps what it has learned in `study.journal`, so a study goes on where it was stopped.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from bertsmith.errors import ConfigError, DivergenceError, InputError
from bertsmith.finetuning.keeping import Observer
from bertsmith.finetuning.many import GRID, Trial, check_same, finish, forget_all_but_best, with_changes
from bertsmith.train.request import CONFIG_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from bertsmith.finetuning.many import RunOne, Summary
    from bertsmith.finetuning.request import Request
    from bertsmith.train.signals import StopRequest

__all__ = ["check_free", "run_study"]

# What a study may propose: from, to and whether by orders of magnitude; or one of several.
SPACE: dict[str, tuple[float, float, bool] | list[int]] = {
    "optimizer.rate": (1e-5, 2e-4, True),
    "batch.size": [16, 32],
    "epochs": [2, 3, 4],
    "schedule.warmup": (0.0, 0.2, False),
}


def check_free(request: Request, search: str, given: Iterable[str]) -> None:
    """Refuse a search for what has been decided."""
    searched: Mapping[str, Any] = GRID if search == "grid" else SPACE
    for name in given:
        if name in searched:
            raise ConfigError(f"{name}: --search {search} looks for it itself; leave it out, or use --seeds")
    if request.settings.batch.tokens is not None:
        raise ConfigError("batch.tokens: --search looks for batch.size, which it makes void; leave it out")


def run_study(
    request: Request, folder: Path, count: int, run_one: RunOne, stop: StopRequest, observer: Observer
) -> Summary:
    """So many runs, each with settings that Optuna proposes from those before; hopeless ones are given up early."""
    metric = str(request.options["metric"])
    optuna, study = _open_study(folder, request.settings.seed)

    def objective(trial: Any) -> float:
        changes = {name: _propose(trial, name) for name in SPACE}
        trial.set_user_attr("changes", changes)
        pruning = _Pruning(observer, trial, metric, optuna)
        try:
            place = _place_of(trial, folder)
            observer.on_run(place.name, changes)
            result = run_one(with_changes(request, changes), place, pruning)
        except DivergenceError as error:
            observer.on_note(str(error))
            trial.set_user_attr("failed", str(error))
            raise optuna.TrialPruned from error
        if result.stopped_by is not None:
            raise _StoppedError(result.stopped_by)
        trial.set_user_attr("scores", result.scores)
        return result.scores[metric]

    def after_each(*_: Any) -> None:
        forget_all_but_best(_trials_of(study, folder), metric)
        if stop:
            study.stop()

    ended = _trials_of(study, folder)
    for trial in ended:
        check_same(with_changes(request, trial.changes), trial.folder)
    _take_up_trials(study, folder)
    if len(ended) < count:
        study.optimize(objective, n_trials=count - len(ended), catch=(_StoppedError,), callbacks=[after_each])
    ended = _trials_of(study, folder)
    return finish(folder, metric, ended, stop.name if len(ended) < count else None)


def _propose(trial: Any, name: str) -> float | int:
    choice = SPACE[name]
    if isinstance(choice, list):
        return int(trial.suggest_categorical(name, choice))
    low, high, by_magnitude = choice
    return float(trial.suggest_float(name, low, high, log=by_magnitude))


def _open_study(folder: Path, seed: int) -> tuple[Any, Any]:
    """Optuna, and the study of a folder: a new one, or the one that is there."""
    try:
        import optuna
        from optuna.storages.journal import JournalFileBackend
    except ImportError as error:
        raise InputError("--search optuna: Optuna is not installed: pip install 'bertsmith[search]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # what goes wrong is said once, by us
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(JournalFileBackend(str(folder / "study.journal"))),
        study_name="finetune",
        direction="maximize",
        load_if_exists=True,
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4),
    )
    num_before = len(study.trials)  # or a study that goes on would propose again what it began with
    study.sampler = optuna.samplers.TPESampler(seed=(seed + num_before) % 2**32)
    return optuna, study


def _place_of(trial: Any, folder: Path) -> Path:
    return folder / f"trial-{trial.number:03d}"


def _trials_of(study: Any, folder: Path) -> list[Trial]:
    """Those that came to an end, or were given up; not what failed, or what a signal stopped or killed."""
    return [
        Trial(trial.user_attrs["changes"], trial.user_attrs.get("scores"), _place_of(trial, folder),
              trial.user_attrs.get("failed"))
        for trial in study.trials
        if trial.state.name in ("COMPLETE", "PRUNED")
    ]  # fmt: skip


def _take_up_trials(study: Any, folder: Path) -> None:
    """Have trials that were stopped or killed proposed again, first of all, each with the run that it has begun.

    Optuna ends a trial for good when it stops, so what goes on is a new one with the same settings.
    """
    for trial in study.trials:
        place = _place_of(trial, folder)
        if trial.state.name in ("RUNNING", "FAIL") and (place / CONFIG_FILE).is_file():
            study.enqueue_trial(trial.params)
            place.rename(_place_of(study.trials[-1], folder))
        elif trial.state.name in ("RUNNING", "FAIL"):
            shutil.rmtree(place, ignore_errors=True)


class _StoppedError(Exception):
    """By a signal: Optuna is to learn nothing from such a trial."""


class _Pruning(Observer):
    """Ends a run that does worse than most did by then; all else goes to the observer within."""

    def __init__(self, inner: Observer, trial: Any, metric: str, optuna: Any) -> None:
        self._inner, self._trial, self._metric, self._optuna = inner, trial, metric, optuna
        self._steps_per_epoch, self._total, self._last = 1.0, 0, 0
        self.on_step, self.on_note = inner.on_step, inner.on_note  # type: ignore[method-assign]

    def on_begin(self, request: Request, num_items: int, total: int) -> None:
        """Steps are not comparable, for batches differ in size; tenths of an epoch are."""
        self._inner.on_begin(request, num_items, total)
        self._steps_per_epoch, self._total = total / request.settings.epochs, total

    def on_evaluation(self, figures: dict[str, float], step: int) -> None:
        """Compare with others that have seen as much, to a tenth of an epoch."""
        self._inner.on_evaluation(figures, step)
        tenth = round(10 * step / self._steps_per_epoch)
        if tenth > self._last:
            self._last = tenth
            self._trial.report(figures[self._metric], tenth)
            if step < self._total and self._trial.should_prune():  # at its end there is nothing to save
                raise self._optuna.TrialPruned
