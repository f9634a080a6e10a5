"""One process's part of a run: puts together model, data, optimizer and loop, from a request.

A run folder:

    config.json       everything that is needed to run it again, the number of steps included
    metrics.jsonl     what was measured; also as TensorBoard events in tensorboard/
    examples.jsonl    which examples each step read
    checkpoints/      the last few, and the best
    model/            the result, when the run is at its end
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from bertsmith.bundle.folder import Bundle, write_bundle
from bertsmith.bundle.resolve import load_bundle
from bertsmith.config import named_size
from bertsmith.data.shards import ShardSet
from bertsmith.errors import ConfigError, TokenizerError
from bertsmith.model.heads import PreTrainingModel, build
from bertsmith.model.initial import log_shares, look_at_neighbours
from bertsmith.model.memory import keep_freed_memory
from bertsmith.pretraining.evaluation import Evaluation
from bertsmith.pretraining.fills import fill_gaps, find_gaps
from bertsmith.pretraining.health import check_data, check_examples
from bertsmith.pretraining.keeping import Keeper
from bertsmith.pretraining.planning import Timing, check_disk, evaluation_interval, plan_run, steps_for
from bertsmith.pretraining.work import Objective, PretrainingWork
from bertsmith.train.assembly import assemble, open_run
from bertsmith.train.checkpoint import Checkpoints, Progress, load_weights
from bertsmith.train.distributed import gathered
from bertsmith.train.loop import Cadence, Hooks, Loop
from bertsmith.vocab.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bertsmith.pretraining.fills import Filled, Gap
    from bertsmith.pretraining.keeping import Observer
    from bertsmith.pretraining.planning import RunPlan
    from bertsmith.pretraining.request import Request
    from bertsmith.train.distributed import World
    from bertsmith.train.signals import StopRequest

__all__ = ["PretrainingRun", "Result"]

# A rehearsal takes so many steps of each phase and so many seconds at least, unless that takes longer than the last.
_REHEARSED_STEPS, _REHEARSED_SECONDS, _LONGEST_REHEARSAL = 4, 5.0, 20.0
_PUBLISHED_DROPOUT = 0.1  # for fine-tuning, whatever pre-training had


@dataclass(frozen=True)
class Result:
    """How a run ended. `model` is None where it was stopped, with `stopped_by` naming the signal.

    Every process of a run has one; the one that speaks to the user is main.
    """

    folder: Path
    plan: RunPlan
    progress: Progress
    figures: dict[str, float]
    baselines: dict[str, float]
    fills: list[tuple[int, list[Filled]]]
    model: Path | None = None
    stopped_by: str | None = None
    is_main: bool = True


class PretrainingRun:
    """A run that may begin or go on in `folder`."""

    def __init__(self, request: Request, folder: Path, world: World, observer: Observer) -> None:
        keep_freed_memory(of_any_size=True)
        self.request, self.folder, self.world, self.observer = request, folder, world, observer
        self.settings = request.settings
        self.shards = ShardSet(Path(request.shards))
        self.held_out = ShardSet(Path(request.shards), "holdout", self.shards.index)
        self.tokenizer = Tokenizer.from_folder(Path(request.shards))
        model = self._make_model()
        self.config = model.config
        self.num_parameters = sum(weight.numel() for weight in model.parameters())
        positions = self.config.max_position_embeddings
        longest = max(phase.max_length for phase in self.settings.phases)
        if longest > positions:
            raise ConfigError(
                f"phases: length {longest} is beyond the model's {positions} positions; take --phases "
                f"{min(128, positions)}:1"
            )
        self._remarks: list[str] = []
        self._remark(check_data(self.shards, self.tokenizer, self.config))

    def plan(self, *, measure: bool = False) -> RunPlan:
        """Fix the number of steps. Where time is the budget, or the caller wants to know it, some are tried first."""
        settings, total = self.settings, self.request.total
        epochs = self._work.epochs()
        self._remark(check_examples(self._work.examples))
        timing: Timing | None = None
        if measure or (total is None and self.request.budget.minutes is not None):
            timing = self._rehearse()
        if total is None:
            total = self.world.tell(steps_for(self.request.budget, settings, epochs, timing))
            assert total is not None
            self.request = replace(self.request, total=total)
        return plan_run(self.config, self.num_parameters, settings, total, epochs, timing)

    def train(self, plan: RunPlan, stop: StopRequest) -> Result:
        """From the last checkpoint, or the beginning, to the end."""
        settings, total = self.settings, plan.steps
        loop = self.make_loop(total)
        self.world.decide(lambda: check_disk(plan, self.folder))
        progress = open_run(self.folder, loop, self.request, self.observer.on_note)
        cadence = Cadence(
            total,
            evaluation_interval(settings, total),
            settings.checkpoint.every,
            settings.checkpoint.minutes,
        )
        checkpoints = Checkpoints(self.folder / "checkpoints", self.world, keep=settings.checkpoint.keep)
        baselines = self.evaluation.baselines()
        keeper = Keeper(
            self.folder,
            settings,
            total,
            self.world,
            self.observer,
            from_step=progress.step,
            baselines=baselines,
            remarks=self._remarks,
        )

        def evaluate() -> dict[str, float]:
            return self.evaluation(loop.forward)

        def on_evaluation(figures: dict[str, float], now: Progress) -> None:
            keeper.on_evaluation(figures, self._fill(loop), now)

        try:
            if progress.step == 0 and self.evaluation:  # so that a curve begins where the model did
                on_evaluation(loop.measure(evaluate), progress)
            hooks = Hooks(evaluate if self.evaluation else None, keeper.on_step, on_evaluation)
            progress = loop.run(progress, cadence, checkpoints, hooks, stop)
        finally:
            keeper.close()
        figures = keeper.last or (loop.measure(evaluate) if self.evaluation else {})
        done = Result(self.folder, plan, progress, figures, baselines, keeper.fills)
        done = replace(done, is_main=self.world.is_main)
        if progress.step < total:
            return replace(done, stopped_by=stop.name or "another process")
        return replace(done, model=self._publish(loop, progress))

    def make_loop(self, total: int) -> Loop:
        """Everything that trains, at step 0."""
        objective, work = Objective(self._make_model().to(self.world.device)), self._work.lasting(total)
        loop = assemble(work, objective, objective.model, self.settings, self.world, total)
        if self._begins_with_waves:
            loop.before_step = work.continue_positions
        return loop

    @property
    def _begins_with_waves(self) -> bool:
        return self.request.start is None and self.settings.initial == "neighbours"

    @cached_property
    def evaluation(self) -> Evaluation:
        """The held-out examples; empty where the data set has none."""
        made = Evaluation(self.held_out, self.tokenizer, self.settings, self.world)
        if not made:
            self.observer.on_note("the data set has no held-out documents, so nothing is evaluated")
        return made

    @cached_property
    def gaps(self) -> list[Gap]:
        """Sentences of the held-out text that are filled at every evaluation."""
        return find_gaps(self.held_out, self.tokenizer)

    def _remark(self, remarks: Iterable[str]) -> None:
        """Say them now, and keep them for the log."""
        for text in remarks:
            self._remarks.append(text)
            self.observer.on_note(text)

    @cached_property
    def _work(self) -> PretrainingWork:
        """Of one step."""
        return PretrainingWork(self.shards, self.tokenizer, self.settings, self.config, 1, self.world)

    @cached_property
    def _log_shares(self) -> torch.Tensor:
        return log_shares(torch.from_numpy(self.shards.count_pieces()))

    def _make_model(self) -> PreTrainingModel:
        """The model as it is before the first step."""
        dropout = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), self.settings.dropout)
        seed = self.settings.seed
        if self.request.start is not None:
            bundle = load_bundle(self.request.start, "pretraining", fresh_head=True, seed=seed, **dropout)
            if bundle.tokenizer is not None and bundle.tokenizer.fingerprint != self.shards.index.tokenizer:
                raise TokenizerError(
                    f"{self.shards.folder}: was not made with the tokenizer of {self.request.start}; build the shards "
                    f"again with --tokenizer {self.request.start}"
                )
            model = bundle.model
        else:
            assert self.request.size is not None
            config = named_size(self.request.size, vocab_size=self.tokenizer.vocab_size, **dropout)
            model = build(config, "pretraining", seed=seed)
            if self._begins_with_waves:
                look_at_neighbours(model.encoder)
        assert isinstance(model, PreTrainingModel)
        assert model.encoder.pooler is not None
        if self.settings.word_bias == "counts" and not model.mlm.bias.any():  # the head is new
            model.mlm.bias.data[: len(self._log_shares)] = self._log_shares
        if self.settings.pairs == "none":
            for head in (model.encoder.pooler, model.pair):
                head.requires_grad_(requires_grad=False)
        return model

    def _rehearse(self) -> Timing:
        """What steps and an evaluation take, by a model that is thrown away."""
        self.observer.on_note("timing a few steps of each phase")
        total = 1000
        loop = self.make_loop(total)
        times = []
        for phase, begin in enumerate([0, *self.settings.phase_ends(total)[:-1]]):
            progress = Progress(step=begin, position={"phase": phase, "epoch": 0, "batch": 0})
            seconds: list[float] = []
            enough = False
            while not enough:
                progress, record = loop.take_step(progress)
                progress = replace(progress, step=begin)  # the data goes on, the phase does not
                seconds.append(record.seconds)
                spent = sum(seconds)
                enough = len(seconds) > _REHEARSED_STEPS and spent >= _REHEARSED_SECONDS
                enough = self.world.tell(enough or spent >= _LONGEST_REHEARSAL)
            times.append(statistics.median(seconds[len(seconds) // 2 :]))  # the first ones find nothing in place
        begun = time.perf_counter()
        if self.evaluation:
            loop.measure(lambda: self.evaluation(loop.forward))
        return Timing(times, time.perf_counter() - begun)

    def _fill(self, loop: Loop) -> list[Filled]:
        """What stands in the gaps now; a model that is spread over processes is not asked."""
        if self.world.size > 1 and self.settings.spread == "fsdp":
            return []
        assert isinstance(loop.model, PreTrainingModel)
        return fill_gaps(loop.model, self.tokenizer, self.gaps)

    def _publish(self, loop: Loop, progress: Progress) -> Path:
        """Write the model folder."""
        folder = self.folder / "model"
        weights = {name: gathered(tensor) for name, tensor in loop.model.state_dict().items()}
        if self.world.is_main and not folder.exists():
            source = f"{progress.step:,} steps of pre-training ({self.request.recipe}) on {progress.tokens:,} tokens"
            write_bundle(folder, self._bundle(weights), source=source)
        self.world.wait()
        return folder

    def _bundle(self, weights: dict[str, torch.Tensor]) -> Bundle:
        """What is published: dropout as fine-tuning wants it, and no head that was not trained."""
        rate = _PUBLISHED_DROPOUT
        config = self.config.derive(hidden_dropout_prob=rate, attention_probs_dropout_prob=rate)
        paired = self.settings.pairs != "none"
        model = build(config, "pretraining" if paired else "mlm")
        model.load_state_dict(weights, strict=paired)
        return Bundle(model, self.tokenizer, config.max_position_embeddings)

    def bundle_at(self, checkpoint: Path) -> Bundle:
        """The model as it was at a checkpoint of this run."""
        model = self._make_model()
        load_weights(checkpoint, model)
        return self._bundle(model.state_dict())
