"""`bertsmith finetune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from bertsmith.cli.output import columns_of, given_once, percent, print_json, print_line, print_table
from bertsmith.errors import ConfigError

if TYPE_CHECKING:
    from bertsmith.jobs.finetune import Request, Result, Summary, Trial

__all__ = ["finetune"]


def finetune(
    model: str | None = None,
    /,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    task: str | None = None,
    preset: str | None = None,
    data: Path | None = None,
    train: Path | None = None,
    dev: Path | None = None,
    columns: Annotated[list[str] | None, Parameter(name="--column", negative="")] = None,
    multilabel: Annotated[bool, Parameter(negative="")] = False,
    unanswerable: Annotated[bool, Parameter(negative="")] = False,
    context: Annotated[bool, Parameter(negative="")] = False,
    long: Literal["head", "tail", "head+tail", "segments"] | None = None,
    pool: Literal["max", "mean", "attention"] | None = None,
    head: int | None = None,
    max_length: int | None = None,
    metric: str | None = None,
    epochs: float | None = None,
    rate: float | None = None,
    batch_size: int | None = None,
    rows: int | None = None,
    seed: int | None = None,
    seeds: int | None = None,
    search: Literal["grid", "optuna"] | None = None,
    trials: int | None = None,
    config: Path | None = None,
    changes: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Fine-tune a model for a task: classes, numbers, choices, tags or answers.

    The best model by the metric on the dev file is kept. SIGTERM, SIGUSR1 and Ctrl-C save the run and stop it; --resume
    goes on.

    Parameters
    ----------
    model
        A model folder, a name from `bertsmith models`, or a hub name.
    output
        The run folder: settings, log, checkpoints, predictions, model, report.
    task
        The kind of task: classify, regress, choose, tag or answer.
    preset
        A task by name, with its columns, metric and settings: mrpc, sst2, squad2, conll2003, …
    data
        With --preset: the folder of its files (GLUE's own or the task's), instead of --train and --dev.
    train
        The training file: .tsv, .csv, .jsonl, .parquet; SQuAD's .json; CoNLL columns in .txt.
    dev
        The file to judge by; without it the last model is kept.
    columns
        FIELD=COLUMN by name, or by number from 1 where the file has no header; again for more. Fields: text, pair,
        label (choose: also choices and prefix; tag: word, tag, tokens, tags, entities, document; answer: question,
        context, answer, start, id).
    multilabel
        classify: a text may have several classes.
    unanswerable
        answer: a question may have no answer, as in SQuAD 2.0.
    context
        tag: read the sentences of a document together.
    long
        Text that is too long: keep its head, its tail, some of both, or all in segments.
    pool
        How segments are joined; max if not given.
    head
        With --long head+tail: pieces of the beginning; a quarter of all if not given.
    max_length
        Pieces that the model reads at once; 128, for answers 384, or what the preset says.
    metric
        The score that decides which model is best; accuracy, or for numbers spearman, for tags and answers f1.
    epochs
        Times through the training file; 3, or what the preset says.
    rate
        The peak learning rate; 5e-5, or what the preset says.
    batch_size
        Examples a step, over all processes; 32, or what the preset says.
    rows
        Train on the first so many rows.
    seed
        Of the new head, the order and dropout.
    seeds
        Train so many times with other seeds; prints mean and spread, keeps all models, and the best as model/.
    search
        grid: the paper's 18 settings. optuna: --trials settings, each proposed from those before.
    trials
        With --search optuna: how many; 20 if not given.
    config
        A YAML file with settings, those of the task under `task:`.
    changes
        One setting, NAME=VALUE, as in --set layer_decay=0.9 or --set task.stride=64; again for more.
    resume
        Go on with what is in the folder; begin if there is nothing.
    as_json
        Print the result as JSON.
    """
    from bertsmith.cli.display import FinetuneDisplay, leave_if_stopped
    from bertsmith.jobs.finetune import check_free, finetune_many
    from bertsmith.jobs.finetune import finetune as job
    from bertsmith.settings import names_of, read_yaml

    if trials is not None and search != "optuna":
        raise ConfigError("--trials: is for --search optuna; leave it out")
    flags = {"multilabel": multilabel or None, "unanswerable": unanswerable or None, "context": context or None}
    own = {**flags, "long.mode": long, "long.pool": pool, "long.head": head, "max_length": max_length, "metric": metric}
    others = {"epochs": epochs, "optimizer.rate": rate, "batch.size": batch_size, "seed": seed}
    given: dict[str, Any] = {f"task.{name}": value for name, value in own.items() if value is not None}
    given |= {name: value for name, value in others.items() if value is not None}
    given = given_once(given, changes)
    request = _request(model, task, preset, data, train, dev, rows, config, columns, given)
    with FinetuneDisplay() as display:
        if seeds is not None or search is not None:
            if request is None:
                raise ConfigError("a model and its files are missing")
            if search is not None:
                written = {} if config is None else read_yaml(config)
                check_free(request, search, names_of(written) | names_of(given))
            summary = finetune_many(
                request,
                output,
                seeds=seeds,
                search=search,
                trials=20 if trials is None else trials,
                resume=resume,
                observer=display,
            )
        else:
            result = job(request, output, resume=resume, observer=display)
    if seeds is not None or search is not None:
        leave_if_stopped(summary, "finetune")
        _print_summary(summary, as_json=as_json)
        return
    leave_if_stopped(result, "finetune")
    if result.is_main:
        _print_result(result, as_json=as_json)


def _request(
    model: str | None,
    task: str | None,
    preset: str | None,
    data: Path | None,
    train: Path | None,
    dev: Path | None,
    rows: int | None,
    config: Path | None,
    columns: list[str] | None,
    changes: dict[str, Any],
) -> Request | None:
    """What is asked for; None where nothing is, and a run goes on as it was begun."""
    from bertsmith.jobs.finetune import make_request
    from bertsmith.tasks.presets import find_preset

    if data is not None:
        if preset is None:
            raise ConfigError("--data: is the folder of a --preset; name files with --train and --dev")
        files = find_preset(preset).find(data)
        train, dev = train or files[0], dev or files[1]
    if model is None or train is None:
        if any(value is not None for value in (model, task, preset, train, dev, rows, config, columns)) or changes:
            missing = "the model" if model is None else "--train"
            raise ConfigError(
                f"{missing} is missing; without anything a run goes on as it was begun, with --resume alone"
            )
        return None
    named = columns_of(columns)
    options = {"columns": named} if named else {}
    return make_request(
        model,
        kind=task,
        preset=preset,
        train=train,
        dev=dev,
        rows=rows,
        config=config,
        options=options,
        changes=changes,
    )


def _print_result(result: Result, *, as_json: bool) -> None:
    if as_json:
        print_json({"model": str(result.model), "steps": result.progress.step, "seconds": result.progress.seconds,
                    "metric": result.metric, "scores": result.scores})  # fmt: skip
        return
    for name, score in result.scores.items():
        print_line(f"{name}: {score:.4f}" if name == "loss" else f"{name}: {percent(score)}")
    print_line(f"model: {result.model}")
    print_line(f"report: {result.folder / 'report.html'}")


def _print_summary(summary: Summary, *, as_json: bool) -> None:
    best = summary.finished[0]
    if as_json:
        from bertsmith.config import read_json

        print_json({"model": str(summary.model), **read_json(summary.folder / "summary.json")})
        return
    names = [name for name in best.scores or {} if name != "loss"]
    rows = [
        [trial.folder.name, ", ".join(f"{name}={_short(value)}" for name, value in trial.changes.items()),
         *(_score(trial, name) for name in names)]
        for trial in summary.trials
    ]  # fmt: skip
    spreads = [summary.spread(name) for name in names]
    over = "mean ± spread" if summary.is_repeated else "mean ± spread over settings"
    rows.append([over, "", *(f"{100 * mean:.1f} ± {100 * spread:.1f}" for mean, spread in spreads)])
    print_table(["run", "settings", *names], rows)
    print_line(f"best by {summary.metric}: {best.folder.name}")
    print_line(f"model: {summary.model}")


def _short(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _score(trial: Trial, name: str) -> str:
    """One cell; a class that a run neither had nor guessed has no score."""
    if not trial.scores:
        return "failed" if trial.failed else "given up"
    return percent(trial.scores[name]) if name in trial.scores else ""
