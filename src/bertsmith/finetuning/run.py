"""One fine-tuning run: a model, a task and two files to a model folder that does the task.

A run folder is as that of pre-training, with `predictions.jsonl` (the dev file, as the best model sees it) and
`result.json` (its scores) besides.
"""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from bertsmith.bundle.folder import Bundle, write_bundle
from bertsmith.config import read_json
from bertsmith.errors import ConfigError, DataError, DivergenceError, InputError
from bertsmith.finetuning.beginning import begin_model
from bertsmith.finetuning.request import digests_now, with_digests
from bertsmith.finetuning.work import FinetuningWork, Objective
from bertsmith.folders import write_whole
from bertsmith.model.heads import build
from bertsmith.model.memory import keep_freed_memory
from bertsmith.model.words import UsedWords
from bertsmith.tasks.kinds import make_task
from bertsmith.tasks.running import run_items
from bertsmith.tasks.task import Criterion, say_cut, say_left_out
from bertsmith.train.assembly import assemble, open_run
from bertsmith.train.checkpoint import (
    Checkpoints,
    Progress,
    best_checkpoint,
    load_weights,
)
from bertsmith.train.distributed import gathered
from bertsmith.train.keeping import RunLog
from bertsmith.train.loop import Cadence, Hooks, Loop

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from bertsmith.finetuning.keeping import Observer
    from bertsmith.finetuning.request import Request
    from bertsmith.tasks.task import Item, Prediction, Task
    from bertsmith.train.distributed import World
    from bertsmith.train.signals import StopRequest

__all__ = ["FinetuningRun", "Result", "finished"]

_WORDS = "encoder.embeddings.word.weight"


@dataclass(frozen=True)
class Result:
    """How a run ended: scores of the best model on the dev file (empty without one), and where it is.

    `model` is None where the run was stopped, with `stopped_by` naming the signal.
    """

    folder: Path
    progress: Progress
    scores: dict[str, float]
    metric: str
    model: Path | None = None
    stopped_by: str | None = None
    is_main: bool = True


@dataclass(frozen=True)
class Split:
    """A file: its examples, and what the model reads of them."""

    examples: Sequence[Any]
    items: Sequence[Item]


class Judged(NamedTuple):
    """The dev file by a model: its scores, what is said of each example, and the task with what that tuned it to."""

    figures: dict[str, float]
    predictions: list[Prediction]
    task: Task[Any]


class FinetuningRun:
    """A run that may begin or go on in `folder`."""

    def __init__(self, request: Request, folder: Path, world: World, observer: Observer) -> None:
        keep_freed_memory(of_any_size=True)
        digests = digests_now(request)  # of what is read below, if it changes afterwards
        self.request, self.folder, self.world, self.observer = request, folder, world, observer
        self.settings = request.settings
        task = make_task(request.kind, request.options)
        knows_labels = task.num_outputs is not None or task.options.labels is not None
        there = _read(task, request.train, request.rows if knows_labels else None)
        labels = task.find_labels(there)  # of the whole file: its first rows may not have all of them
        examples = there[: request.rows]
        if not labels and task.num_outputs is None:
            raise DataError(f"{request.train}, line 1: neither here nor in any other row is a label; write some")
        self.task = task.with_labels(labels)
        self.bundle, remarks = begin_model(request, self.task)
        self.config = self.bundle.model.config
        self._check_length()
        assert self.bundle.tokenizer is not None
        self.tokenizer = self.bundle.tokenizer
        left_out = say_left_out(task, request.train, request.rows) + say_left_out(task, request.dev)
        self.train_split = self._encoded(request.train, examples)
        num_cut = self.task.count_cut(examples, self.train_split.items, self.tokenizer)
        cut = say_cut(self.task, num_cut, f"{len(examples):,} training texts")
        self.remarks = (*remarks, *self.task.remarks(there), *left_out, *cut)
        for remark in self.remarks:
            observer.on_note(remark)
        self.dev_split: Split | None = None
        if request.dev is not None:
            held_out = _read(self.task, request.dev, None)
            self.task.check_alike(examples[0], held_out[0])
            self.dev_split = self._encoded(request.dev, held_out)
        self._judged: Judged | None = None  # the last evaluation, and its step
        self._judged_step = -1
        self.request = with_digests(request, digests)
        if self.settings.smoothing and not self.task.smooths:
            raise ConfigError(f"smoothing: a task of kind {self.task.kind} has no classes to share the truth among")
        self.criterion = Criterion(self._class_weights(), self.settings.smoothing)
        self.work = FinetuningWork(
            self.train_split.items, self.task, self.criterion, self.settings, self.config, self.world
        )

    def _encoded(self, name: str, examples: list[Any]) -> Split:
        items = self.task.encode(examples, self.tokenizer)
        if not items:
            raise DataError(f"{name}, line 1: neither here nor in any other row is a word; write some")
        return Split(examples, items)

    @property
    def total(self) -> int:
        """The number of steps."""
        epochs = self.settings.epochs
        whole = sum(len(self.work.batches(epoch)) for epoch in range(int(epochs)))
        return max(1, whole + round((epochs - int(epochs)) * len(self.work.batches(int(epochs)))))

    def train(self, stop: StopRequest) -> Result:
        """From the last checkpoint, or the beginning, to the end."""
        total = self.total
        loop = self.make_loop(total)
        progress = open_run(self.folder, loop, self.request, self.observer.on_note)
        self.observer.on_begin(self.request, len(self.train_split.items), total)
        per_epoch = len(self.work.batches(0))
        cadence = Cadence(
            total,
            min(total, self.settings.evaluation.every or per_epoch),
            self.settings.checkpoint.every,
            self.settings.checkpoint.minutes,
            self.settings.patience if self.dev_split is not None else None,
        )
        checkpoints = Checkpoints(self.folder / "checkpoints", self.world, keep=self.settings.checkpoint.keep)
        log = RunLog(self.folder, total, self.world, from_step=progress.step)
        metric = self.task.options.metric
        for remark in self.remarks if progress.step == 0 else ():
            log.add("note", 0, {"text": remark})

        def on_step(record: Any, now: Progress) -> None:
            values = log.step(record, now)
            if values is not None:
                self.observer.on_step(values, now, total)

        def on_evaluation(figures: dict[str, float], now: Progress) -> None:
            self._judged_step = now.step
            log.add("eval", now.step, {"seconds": now.seconds, "tokens": now.tokens, **figures})
            self.observer.on_evaluation(figures, now.step)

        def evaluate() -> dict[str, float]:
            self._judged = self.evaluate(loop)
            return self._judged.figures

        hooks = Hooks(
            evaluate if self.dev_split is not None else None, on_step, on_evaluation, lambda figures: -figures[metric]
        )
        try:
            progress = loop.run(progress, cadence, checkpoints, hooks, stop)
        finally:
            log.close()
        done = Result(self.folder, progress, {}, metric, is_main=self.world.is_main)
        if progress.step < total and not cadence.has_waited(progress):
            return replace(done, stopped_by=stop.name or "another process")
        return self._finish(loop, done)

    def make_loop(self, total: int) -> Loop:
        """Everything that trains, at step 0."""
        settings, model = self.settings, self.bundle.model.to(self.world.device)
        if settings.optimizer.kind == "muon" and settings.layer_decay != 1.0:
            raise ConfigError("layer_decay: Muon has one rate for all layers; take --set optimizer.kind=adamw")
        tables = model.encoder.embeddings
        if isinstance(tables.word, nn.Embedding) and tables.word.weight.requires_grad:
            tables.word = UsedWords(tables.word, self._ids())
        depth = len(model.encoder.layers)
        return assemble(
            self.work,
            Objective(model, self.task, self.criterion),
            model,
            settings,
            self.world,
            total,
            scale=lambda name: settings.layer_decay ** _depth(name, depth),
        )

    def _ids(self) -> torch.Tensor:
        """Of every piece in the files."""
        splits = [self.train_split, *([] if self.dev_split is None else [self.dev_split])]
        sequences = [ids for split in splits for item in split.items for ids in item.ids]
        return torch.from_numpy(np.unique(np.concatenate(sequences)).astype(np.int64))

    def evaluate(self, loop: Loop) -> Judged:
        """What the model is worth now.

        One process does it for all; where the model is spread over them, all do the same.
        """
        assert self.dev_split is not None
        spread = self.world.size > 1 and self.settings.spread == "fsdp"
        if self.world.is_main or spread:
            forward = partial(loop.forward, logits=True) if spread else partial(self.task.logits, loop.model)
            run = run_items(self.task, forward, self.dev_split.items, device=self.world.device, in_order=spread)
            predictions = self.task.decode(self.dev_split.examples, self.dev_split.items, run.outputs)
            task = self.task.tune(self.dev_split.examples, predictions)
            if task is not self.task:  # what is said depends on it
                predictions = task.decode(self.dev_split.examples, self.dev_split.items, run.outputs)
            figures = {"loss": run.loss or 0.0, **task.score(self.dev_split.examples, predictions)}
        else:
            figures, predictions, task = {}, [], self.task
        return Judged(self.world.tell(figures), predictions, task)

    def _check_length(self) -> None:
        longest = self.task.options.max_length
        if longest > self.config.max_position_embeddings:
            raise ConfigError(
                f"max_length: {longest} is beyond the model's {self.config.max_position_embeddings} positions; "
                f"take --max-length {self.config.max_position_embeddings} or less"
            )

    def _class_weights(self) -> tuple[float, ...] | None:
        wanted = self.settings.class_weights
        if wanted is None:
            return None
        if not self.task.labels:
            raise ConfigError(f"class_weights: a task of kind {self.task.kind} has no classes")
        if isinstance(wanted, dict):
            unknown = sorted(set(wanted) - set(self.task.labels))
            if unknown:
                raise ConfigError(f"class_weights: no class {unknown[0]!r}; there are {', '.join(self.task.labels)}")
            return tuple(wanted.get(label, 1.0) for label in self.task.labels)
        return self.task.balance(self.train_split.items)

    def _finish(self, loop: Loop, done: Result) -> Result:
        """The best model on the dev file, its predictions and its folder."""
        best = self.world.tell(best_checkpoint(self.folder / "checkpoints") if self.world.is_main else None)
        if best is not None:
            load_weights(best, loop.model)
        loop.model.eval()
        scores: dict[str, float] = {}
        task = self.task
        step = done.progress.step if best is None else done.progress.best_step
        if self.dev_split is not None:
            judged = self._judged if self._judged is not None and step == self._judged_step else self.evaluate(loop)
            scores, task = judged.figures, judged.task
            if not math.isfinite(scores["loss"]):
                raise DivergenceError(
                    f"{self.folder}: the loss on the dev file is not finite; begin a new run with a lower --rate"
                )
            if self.world.is_main:
                lines = [json.dumps(said, ensure_ascii=False).encode() + b"\n" for said in judged.predictions]
                write_whole(self.folder / "predictions.jsonl", lambda file: file.writelines(lines))
        folder = self.folder / "model"
        weights = {name: gathered(tensor) for name, tensor in loop.model.state_dict().items()}
        words = self.bundle.model.encoder.embeddings.word
        if isinstance(words, UsedWords):
            assert step is not None
            weights[_WORDS] = words.whole(weights[_WORDS], loop.decay(words.weight, step)).cpu()
        self.world.wait()  # the others may still be reading the best checkpoint
        if self.world.is_main:
            if not folder.exists():
                self._publish(folder, weights, task, done.progress)
            facts = {"total": self.total, "items": len(self.train_split.items), **asdict(done.progress)}
            text = json.dumps({"scores": scores, "metric": done.metric, **facts}, indent=2)
            write_whole(self.folder / "result.json", lambda file: file.write(text.encode() + b"\n"))
            shutil.rmtree(self.folder / "checkpoints")  # several times the model, and of no more use
        self.world.wait()
        return replace(done, scores=scores, model=folder)

    def _publish(self, folder: Path, weights: dict[str, torch.Tensor], task: Task[Any], progress: Progress) -> None:
        model = build(self.config, task.head)  # that of the run may be in pieces over processes
        task.attach(model)
        model.load_state_dict(weights)
        source = f"fine-tuned from {self.request.model} for {self.request.preset or task.kind}, {progress.step:,} steps"
        learned = task.learned(self.train_split.examples).options
        record = {"kind": task.kind, "options": learned.model_dump(exclude={"labels"})}
        write_bundle(folder, Bundle(model, self.tokenizer, self.bundle.max_length, record), source=source)


def finished(folder: Path) -> Result | None:
    """How a run ended that is at its end; None for any other. Its model may have been removed since."""
    path = folder / "result.json"
    if not path.is_file():
        return None
    content = read_json(path)
    try:
        done = Progress(**{item.name: content[item.name] for item in fields(Progress)})
        return Result(folder, done, content["scores"], content["metric"], folder / "model")
    except (KeyError, TypeError) as error:
        raise InputError(f"{path}: is not the result of a run ({error})") from error


def _read(task: Task[Any], name: str, rows: int | None) -> list[Any]:
    examples = list(islice(task.read(name), rows))
    if not examples:
        raise DataError(f"{name}, line 1: holds no example")
    return examples


def _depth(name: str, num_layers: int) -> int:
    """How far below the head a parameter is: 0 for head and pooler, 1 for the top layer, most for the embeddings."""
    if name.startswith("encoder.embeddings."):
        return num_layers + 1
    if name.startswith("encoder.layers."):
        return num_layers - int(name.split(".")[2])
    return 0
