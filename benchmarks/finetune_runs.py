"""Runs of fine-tuning whose records are kept, and how their scores are shown. See benchmarks/finetune.py."""

from __future__ import annotations

import datetime
import json
import multiprocessing
import shutil
import statistics
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from seqeval.metrics import f1_score

import harness
from bertsmith.bundle.folder import TASK_FILE
from bertsmith.data.pool import end_with_parent
from bertsmith.errors import TrainingError
from bertsmith.finetuning.keeping import Observer
from bertsmith.finetuning.request import make_request, read_request
from bertsmith.finetuning.run import FinetuningRun, finished
from bertsmith.jobs.evaluate import evaluate
from bertsmith.model.memory import keep_freed_memory
from bertsmith.train.checkpoint import Progress
from bertsmith.train.distributed import World
from bertsmith.train.request import CONFIG_FILE, take_up
from bertsmith.train.signals import listening
from kept import Kept

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bertsmith.finetuning.request import Request

ROOT = Path(__file__).resolve().parent.parent
TASKS = ROOT.parent / "shared" / "data" / "tasks"
RUNS = ROOT / "runs" / "finetune"  # where runs are made, and go on if they were stopped
KEPT = Kept(harness.RESULTS / "finetune-runs.jsonl")
_WARM_UP, _FEWEST, _MOST = 4, 6, 24  # steps by which the time of a run is told, after those that warm up:
_LONG_ENOUGH = 60.0  # seconds, after which the fewest are enough
_AT_LEAST = {"mrpc": 5, "conll": 3}  # seeds, where they differ by more than settings do, or by as much as context


def located(name: str) -> Path:
    """A file of the tasks, or one that was made here."""
    return ROOT / name if name.startswith("runs/") else TASKS / name


@dataclass(frozen=True)
class Case:
    """A task with its settings; `test` is a further file to be judged on; of `paired` ones every answer is kept."""

    name: str
    preset: str
    train: str
    dev: str
    settings: dict[str, Any] = field(default_factory=dict)
    model: str = "minilm"
    rows: int | None = None
    test: str | None = None
    kind: str | None = None
    paired: bool = False

    def request(self, seed: int) -> Request:
        """What is asked for."""
        return make_request(
            str(ROOT / self.model) if self.model.startswith("runs/") else self.model,
            preset=self.preset or None,
            kind=self.kind,
            train=located(self.train),
            dev=located(self.dev),
            rows=self.rows,
            changes={**self.settings, "seed": seed},
        )

    def key(self, seed: int, *, peer: bool = False) -> str:
        """Its folder and the name of its record; settings are part of it."""
        changes = "-".join(f"{name.split('.')[-1]}={value:g}" if isinstance(value, int | float) else f"{name}={value}"
                           for name, value in sorted(self.settings.items()))  # fmt: skip
        return f"{'trainer-' if peer else ''}{self.name}/{changes or 'default'}/{seed}".replace("+", "-")

    def with_settings(self, settings: Mapping[str, Any]) -> Case:
        """The same with some of them changed."""
        return replace(self, settings={**self.settings, **settings})


def glue_case(name: str, preset: str, folder: str, **more: Any) -> Case:
    """A task of GLUE's."""
    return Case(name, preset, f"glue/{folder}/train.tsv", f"glue/{folder}/dev.tsv", **more)


def run_case(case: Case, seed: int, *, peer: bool = False) -> dict[str, Any]:
    """The record of one run of ours or of the Trainer's, made now or earlier; one of something else is refused."""
    key, request = case.key(seed, peer=peer), case.request(seed)
    decided = {"options": request.options, "settings": request.settings.model_dump(exclude={"checkpoint", "compile"})}
    asked = json.loads(json.dumps({"case": repr(case), **decided}))
    found = KEPT.find(key)
    if found is None:
        print(key, flush=True)
        folder = RUNS / case.key(seed)
        if (folder / CONFIG_FILE).is_file():  # it was stopped, and must have been the same run
            take_up(request, read_request(folder))
        run = FinetuningRun(request, folder, World(), Notes())
        content = train_peer(run) if peer else train_ours(case, run)
        found = {**circumstances(), **content, "asked": asked}
        KEPT.add(key, found)
    elif found["asked"] != asked:
        raise RuntimeError(f"{KEPT.path}: {key} was asked for as {found['asked']}, not as {asked}; remove its line")
    return found


def circumstances() -> dict[str, Any]:
    """When, of what code and on what a record was made."""
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()
    made = {"commit": commit, "torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}
    return {"date": datetime.date.today().isoformat(), "threads": torch.get_num_threads(), **made}


def train_ours(case: Case, run: FinetuningRun) -> dict[str, Any]:
    """Scores, time and operations of a run; its weights are not kept."""
    with listening() as stop:
        result = finished(run.folder) or run.train(stop)
    if result.model is None:
        sys.exit(f"stopped by {result.stopped_by}; the same command goes on")
    done = result.progress
    content: dict[str, Any] = {"scores": result.scores, "seconds": done.seconds, "tokens": done.tokens}
    content["operations"] = run.settings.epochs * run.work.count_operations(run.work.items)
    content["tuned"] = json.loads((result.model / TASK_FILE).read_text())["task"]["options"].get("null_threshold")
    if case.test is not None:
        content["test"] = evaluate(str(run.folder), data=str(located(case.test)))
    content |= judged_otherwise(case, run)
    shutil.rmtree(run.folder)
    return content


def judged_otherwise(case: Case, run: FinetuningRun) -> dict[str, Any]:
    """From the predictions on the dev file: seqeval's F1 for tags, and which answers are right for `paired` cases."""
    assert run.dev_split is not None
    lines = (run.folder / "predictions.jsonl").read_text(encoding="utf-8").splitlines()
    predictions, examples = [json.loads(line) for line in lines], run.dev_split.examples
    if run.task.kind == "tag":
        golds = [list(example.tags) for example in examples]
        return {"seqeval": float(f1_score(golds, [prediction["tags"] for prediction in predictions]))}
    if case.paired:
        pairs = zip(predictions, examples, strict=True)
        return {"right": "".join(str(int(prediction["label"] == example.label)) for prediction, example in pairs)}
    return {}


def train_peer(run: FinetuningRun) -> dict[str, Any]:
    """The Trainer's scores for the same run."""
    from trainer import best_scores

    return {"scores": best_scores(run)}


class Job(NamedTuple):
    """One run that is wanted, ours or the Trainer's."""

    case: Case
    seed: int
    peer: bool = False


def run_all(jobs: Sequence[Job]) -> None:
    """What is not there yet, two at a time with a thread each: that is quicker."""
    missing = [job for job in jobs if KEPT.find(job.case.key(job.seed, peer=job.peer)) is None]
    if len(missing) > 1:
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn"), initializer=_begin_worker) as pool:
            list(pool.map(_run_job, missing))


def _run_job(job: Job) -> None:
    try:
        run_case(job.case, job.seed, peer=job.peer)
    except TrainingError as error:  # whoever asks for it will see it again
        print(f"  {error}", flush=True)


def _begin_worker() -> None:
    """One thread; and no worker outlives its parent: its run goes on from its last checkpoint another time."""
    keep_freed_memory()
    torch.set_num_threads(1)
    end_with_parent()


class Notes(Observer):
    """Evaluations, printed."""

    def on_evaluation(self, figures: dict[str, float], step: int) -> None:
        """One line."""
        print(
            f"  step {step}: {', '.join(f'{name} {value:.4f}' for name, value in list(figures.items())[:4])}",
            flush=True,
        )


def search(*wanted: tuple[Case, Sequence[Mapping[str, Any]]]) -> list[Case]:
    """Cases, each with the best of several settings on seed 0; those with which the loss is not finite are none."""
    tried = [[case.with_settings(settings) for settings in some] for case, some in wanted]
    run_all([Job(one, 0) for each in tried for one in each])
    return [max(each, key=score_of) for each in tried]


def score_of(case: Case) -> float:
    """By its metric on seed 0; -1 where the loss was not finite."""
    try:
        return float(run_case(case, 0)["scores"][case.request(0).options["metric"]])
    except TrainingError as error:
        print(f"  {error}", flush=True)
        return -1.0


def candidates(searched: Mapping[str, tuple[Case, Sequence[Mapping[str, Any]]]]) -> list[Case]:
    """All that a search tries."""
    return [case.with_settings(settings) for case, some in searched.values() for settings in some]


def searched_rows(searched: Mapping[str, tuple[Case, Sequence[Mapping[str, Any]]]]) -> list[str]:
    """What a search found, a line for each of its settings."""
    rows = [f"| {case.name} | {settings_of(case)} | {100 * score_of(case):.1f} |" for case in candidates(searched)]
    return ["| searched on seed 0 | settings | score |", "|---|---|---|", *rows] if rows else []


def number_of_seeds(cases: Sequence[Case], options: Any) -> int:
    """For all of them: five where a run of the slowest takes less than 5 minutes, three below 12, else one."""
    slowest = max(minutes(case) for case in cases)
    number = next(count for limit, count in ((5, 5), (12, 3), (float("inf"), 1)) if slowest < limit)
    number = max(number, *(_AT_LEAST.get(case.name, 1) for case in cases))
    return min(number, options.seeds or number)


def jobs_of(options: Any, *groups: Sequence[Case]) -> list[Job]:
    """Every seed of every case, one seed of all before the next, the longest first.

    Cases of a group are compared with each other and have as many.
    """
    jobs = [Job(case, seed) for group in groups for case in group for seed in range(number_of_seeds(group, options))]
    return sorted(jobs, key=lambda job: (job.seed, -minutes(job.case)))


def several(case: Case, options: Any, of: str = "scores", beside: Sequence[Case] = ()) -> list[dict[str, float]]:
    """The scores of all seeds, as many as of the cases that it is compared with."""
    return [run_case(case, seed)[of] for seed in range(number_of_seeds([case, *beside], options))]


def shown(scores: Sequence[dict[str, float]], name: str) -> str:
    """Mean and spread, in percent."""
    values = [100 * score[name] for score in scores]
    if len(values) == 1:
        return f"{values[0]:.1f} (one seed)"
    spread = f"{min(values):.1f}–{max(values):.1f}, {len(values)} seeds"
    return f"{statistics.fmean(values):.1f} ± {statistics.stdev(values):.1f} ({spread})"


def minutes(case: Case) -> float:
    """Of a training on both threads, without evaluations, by the speed of its first steps; measured once."""
    key = f"speed/{case.key(0)}"
    found = KEPT.find(key)
    if found is None:
        print(key, flush=True)
        run = FinetuningRun(case.request(0), RUNS / "none", World(), Observer())
        loop, progress, timed = run.make_loop(run.total), Progress(), []
        for step in range(min(run.total, _WARM_UP + _MOST)):
            progress, record = loop.take_step(progress)
            if step >= _WARM_UP:
                timed.append(record)
            if len(timed) >= _FEWEST and sum(each.seconds for each in timed) > _LONG_ENOUGH:
                break
        a_token = statistics.median(record.seconds / record.counts["tokens"] for record in timed)
        tokens = run.settings.epochs * sum(item.num_tokens for item in run.train_split.items)
        found = {**circumstances(), "steps": len(timed), "seconds": a_token * tokens}
        KEPT.add(key, found)
    return float(found["seconds"]) / 60


def cost(case: Case) -> str:
    """Minutes, and the operations of matrix products, forward and backward."""
    return f"{minutes(case):.1f} / {run_case(case, 0)['operations'] / 1e12:.1f}"


def settings_of(case: Case) -> str:
    """As people read them."""
    return ", ".join(f"{name} {value:g}" if isinstance(value, int | float) else f"{name} {value}"
                     for name, value in case.settings.items())  # fmt: skip


def page(name: str, title: str, about: str, lines: Sequence[str], cases: Sequence[Case], options: Any) -> None:
    """Print, and keep where all of it was run."""
    peak = harness.describe_peaks([harness.measure_peak()])
    keys = {case.key(seed, peer=peer) for case in cases for seed in range(5) for peer in (False, True)}
    runs = [run for key in sorted(keys) if (run := KEPT.find(key)) is not None]
    dates = sorted({run["date"] for run in runs})
    cores = Counter(run.get("cpu", "a kind that was not noted") for run in runs)
    tail = [
        "",
        f"{len(runs)} runs, of {dates[0]}{'' if len(dates) == 1 else f' to {dates[-1]}'}, by cores: "
        f"{', '.join(f'{kind} {count}' for kind, count in cores.items())}. {COST[1]}: training on two threads, "
        f"without evaluations, by the speed of {_MOST} steps, or fewer where those are a minute, and the matrix "
        "products that it needs, forward and backward. Most runs were made two at a time, with a thread each. Peak of "
        f"this machine in float32 when the page was made: {peak}.",
        "",
        harness.versions("transformers", "accelerate", "seqeval"),
    ]
    harness.show(name, title, [about, "", *lines, *tail], keep=options.keep and not (options.only or options.seeds))


COST = ("minutes / TFLOP a run", "Minutes and TFLOP a run")


SCORES_HEAD = [f"| set | settings | dev | test | {COST[0]} |", "|---|---|---|---|---|"]


def scores_row(case: Case, measures: Sequence[str], options: Any) -> str:
    """One line of a table."""
    cells = [
        " / ".join(f"{measure} {shown(several(case, options, of), measure)}" for measure in measures)
        for of in ("scores", "test")[: 1 if case.test is None else 2]
    ]
    return f"| {case.name} | {settings_of(case)} | {' | '.join([*cells, '–'][:2])} | {cost(case)} |"
