"""`bertsmith pretrain`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bertsmith.cli.output import pairs_of, print_json, print_line
from bertsmith.errors import ConfigError

__all__ = ["pretrain"]


def pretrain(
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    shards: Path | None = None,
    size: str | None = None,
    start: Annotated[str | None, Parameter(name="--from")] = None,
    recipe: Literal["modern", "faithful"] | None = None,
    steps: int | None = None,
    tokens: int | None = None,
    epochs: float | None = None,
    minutes: float | None = None,
    phases: str | None = None,
    pairs: Literal["balanced", "faithful", "sop", "none"] | None = None,
    batch_tokens: int | None = None,
    seed: int | None = None,
    config: Path | None = None,
    changes: Annotated[list[str] | None, Parameter(name="--set", negative="")] = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Pre-train a BERT on token shards, with masked words and sentence pairs.

    Start it with `torchrun --nproc-per-node N -m bertsmith pretrain …` to use N processes: the batch of a step stays
    the same, and so does the result, but for what dropout draws. SIGTERM, SIGUSR1 and Ctrl-C save the run and stop it;
    --resume goes on.

    Parameters
    ----------
    output
        The run folder: settings, log, checkpoints, model, report.
    shards
        The data set, as `bertsmith shards` writes it.
    size
        tiny, mini (default), small, medium, base or large: a new model of this size.
    start
        A model to go on with instead.
    recipe
        modern (default): soonest to a given loss. faithful: as BERT was trained in 2018.
    steps
        How long to train. Or:
    tokens
        so many tokens,
    epochs
        so many times through the data,
    minutes
        so many minutes (the number of steps is fixed early on, by the measured speed). Default: 60 minutes.
    phases
        Lengths and their shares of the steps; default 128:0.9,512:0.1, as far as the model has positions.
    pairs
        The pair task: balanced, faithful (the original's), sop (sentence order) or none.
    batch_tokens
        Tokens a step, over all processes.
    seed
        Of weights, examples and masks.
    config
        A YAML file with settings, nested as config.json of a run has them.
    changes
        One setting, NAME=VALUE, as in --set optimizer.rate=1e-3; again for more.
    resume
        Go on with the run in the folder; begin one if there is none.
    dry_run
        Measure a few steps, print the plan (steps, tokens, memory, time, disk) and stop.
    as_json
        Print the result, or the plan, as JSON.
    """
    from bertsmith.cli.display import RunDisplay, describe_accuracy, describe_plan, leave_if_stopped
    from bertsmith.jobs.pretrain import make_request
    from bertsmith.jobs.pretrain import pretrain as job
    from bertsmith.pretraining.request import make_budget

    request = None
    short = {"phases": phases, "pairs": pairs, "batch.tokens": batch_tokens, "seed": seed}
    if shards is None:
        others = (size, start, recipe, steps, tokens, epochs, minutes, config, changes, *short.values())
        if any(value is not None for value in others):
            raise ConfigError("--shards: is missing; without it a run goes on as it was begun, with --resume alone")
    else:
        given = {name: value for name, value in short.items() if value is not None} | pairs_of(changes or [])
        budget = make_budget(steps=steps, tokens=tokens, epochs=epochs, minutes=minutes)
        request = make_request(
            shards, size=size, start=start, recipe=recipe or "modern", budget=budget, config=config, changes=given
        )
    with RunDisplay() as display:
        result = job(request, output, resume=resume, dry_run=dry_run, observer=display)
    leave_if_stopped(result, "pretrain")
    if not result.is_main:
        return
    if dry_run:
        if as_json:
            print_json(asdict(result.plan))
        else:
            for line in describe_plan(result.plan):
                print_line(line)
        return
    if as_json:
        print_json({"model": str(result.model), "steps": result.progress.step, "tokens": result.progress.tokens,
                    "seconds": result.progress.seconds, **result.figures})  # fmt: skip
        return
    print_line(f"{result.progress.step:,} steps, {result.progress.tokens:,} tokens")
    for line in describe_accuracy(result):
        print_line(f"held-out {line}")
    print_line(f"model: {result.model}")
    print_line(f"report: {output / 'report.html'}")
