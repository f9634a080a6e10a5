"""Pre-training as the loop sees it: the data of a step, and its two losses.

Which examples a step reads follows from (phase, epoch, batch), which masks they carry from (seed, epoch, number).
Phases follow each other; each begins a new epoch.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from bertsmith.data.examples import ExampleOptions, Examples
from bertsmith.data.stream import Place, Stream, share_of
from bertsmith.errors import ConfigError
from bertsmith.model.heads import BertModel
from bertsmith.model.initial import continued_positions
from bertsmith.model.operations import pretraining_operations
from bertsmith.pretraining.planning import Epoch
from bertsmith.train.distributed import gathered, placed_like
from bertsmith.train.loop import StepData

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bertsmith.config import BertConfig
    from bertsmith.data.examples import PretrainingBatch
    from bertsmith.data.shards import ShardSet
    from bertsmith.data.stream import GlobalBatch
    from bertsmith.model.heads import PreTrainingModel, PreTrainingScores
    from bertsmith.pretraining.settings import Phase, Settings
    from bertsmith.train.distributed import World
    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = [
    "Objective",
    "PretrainingWork",
    "TensorBatch",
    "count_parts",
    "example_options",
    "figures_of",
    "operations_of",
    "sums_of",
]


class Objective(nn.Module):
    """The model as it is trained: a batch in, sums of losses and hits out."""

    def __init__(self, model: PreTrainingModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, *batch: torch.Tensor) -> PreTrainingScores:
        """See `PreTrainingModel.score`."""
        return self.model.score(*batch)


@dataclass(frozen=True)
class TensorBatch:
    """A batch on the device. `weight` is 0 for one that only keeps this process in step with the others."""

    tensors: tuple[torch.Tensor, ...]
    weight: float = 1.0

    @classmethod
    def of(cls, batch: PretrainingBatch, device: torch.device, weight: float = 1.0) -> TensorBatch:
        """Lengths and positions stay on the CPU, where the encoder plans with them."""
        moved = (batch.input_ids, batch.token_type_ids, batch.labels, batch.pair_labels)
        ids, types, labels, pairs = (torch.from_numpy(array).to(device) for array in moved)
        lengths, positions = torch.from_numpy(batch.lengths), torch.from_numpy(batch.positions)
        return cls((ids, types, lengths, positions, labels, pairs), weight)


class PretrainingWork:
    """The steps of a run of `total` steps over the train split of a data set."""

    def __init__(
        self,
        shards: ShardSet,
        tokenizer: Tokenizer,
        settings: Settings,
        config: BertConfig,
        total: int,
        world: World,
    ) -> None:
        self.settings = settings
        self.config = config
        self.total = total
        self.world = world
        self._ends = settings.phase_ends(total)
        self._streams = [
            Stream(Examples(shards, tokenizer, example_options(settings, phase)), settings.batch_tokens(phase))
            for phase in settings.phases
        ]
        for phase in settings.phases:
            if settings.batch_tokens(phase) < phase.max_length:
                raise ConfigError(
                    f"batch.tokens: {settings.batch_tokens(phase)} are not one example of length {phase.max_length}; "
                    "take a larger batch (--batch-tokens) or shorter examples (--phases)"
                )

    def lasting(self, total: int) -> PretrainingWork:
        """The same for another number of steps; examples that were planned stay planned."""
        other = copy(self)
        other.total, other._ends = total, self.settings.phase_ends(total)
        return other

    @torch.no_grad()
    def continue_positions(self, model: nn.Module, number: int, position: Mapping[str, int]) -> None:
        """Where a phase begins whose examples are longer than any before: positions that began as waves go on."""
        phase, before = self._phase_at(number), position.get("phase")
        if before is None or phase == before:
            return
        begins = [0, *self._ends]
        had = [each.max_length for each, begin, end in zip(self.settings.phases, begins, self._ends, strict=False)
               if begin < end <= number]  # fmt: skip
        trained = max(had, default=0)
        if self.settings.phases[phase].max_length > trained > 0:
            assert isinstance(model, BertModel)
            table = model.encoder.embeddings.position.weight
            rows = self.world.tell(continued_positions(gathered(table), trained))  # the same to the last bit in all
            table.copy_(placed_like(rows, table))

    def _phase_at(self, number: int) -> int:
        return min(bisect_right(self._ends, number), len(self._ends) - 1)

    def step(self, number: int, position: Mapping[str, int]) -> StepData:
        """This process's share of a step; each process has as many parts as the others."""
        phase = self._phase_at(number)
        place = Place(position.get("epoch", 0), position.get("batch", 0))
        if phase != position.get("phase", phase):
            place = Place(place.epoch + 1, 0)
        stream = self._streams[phase]
        batch = stream.at(place)
        rate = self.settings.mask_rate(number, self.total)
        num_parts = math.ceil(batch.lengths.sum() / (self.settings.batch.part * self.world.size))
        parts = [self._part(stream.examples, batch, rate, number, num_parts) for number in range(num_parts)]
        after = {"phase": phase, "epoch": batch.after.epoch, "batch": batch.after.batch}
        log = {
            "max_length": self.settings.phases[phase].max_length,
            "epoch": batch.epoch,
            "first": int(batch.rows[0]),
            "stop": int(batch.rows[-1]) + 1,
        }
        counts = count_parts(parts)
        counts["operations"] = sum(operations_of(part, self.config) for part in parts)
        return StepData(parts, counts, after, log)

    def _part(
        self, examples: Examples, batch: GlobalBatch, rate: float | None, number: int, num_parts: int
    ) -> TensorBatch:
        chosen = share_of(batch.lengths, self.world.rank * num_parts + number, self.world.size * num_parts)
        rows = batch.rows[chosen] if len(chosen) else batch.rows[:1]
        made = examples.batch(batch.epoch, rows, rate=rate)
        return TensorBatch.of(made, self.world.device, float(len(chosen) > 0))

    def losses(
        self, model: nn.Module, part: TensorBatch, counts: Mapping[str, float]
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """L = L_mlm + L_pair, each over its global count."""
        scores: PreTrainingScores = model(*part.tensors)
        loss = scores.mlm_loss / max(counts["masked"], 1) + scores.pair_loss / max(counts["pairs"], 1)
        return loss * part.weight, {name: value * part.weight for name, value in scores._asdict().items()}

    def means(self, sums: Mapping[str, float], counts: Mapping[str, float]) -> dict[str, float]:
        """See `figures_of`."""
        return figures_of(sums, counts)

    @property
    def examples(self) -> Examples:
        """Those of the first phase."""
        return self._streams[0].examples

    def epochs(self) -> list[Epoch]:
        """What an epoch comes to at the length of each phase."""
        return [Epoch(stream.num_batches(), int(stream.examples.plan(0).lengths.sum())) for stream in self._streams]


def example_options(settings: Settings, phase: Phase) -> ExampleOptions:
    """What the examples of a phase look like."""
    return ExampleOptions(
        max_length=phase.max_length,
        pairs=settings.pairs,
        masking=settings.masking_at(phase),
        static_copies=settings.static_copies,
        seed=settings.seed,
    )


def figures_of(sums: Mapping[str, float], counts: Mapping[str, float]) -> dict[str, float]:
    """Losses, accuracies and perplexity from sums and counts; those of pairs only where there are pairs."""
    mlm_loss = sums["mlm_loss"] / max(counts["masked"], 1)
    figures = {
        "loss": mlm_loss,
        "mlm_loss": mlm_loss,
        "mlm_accuracy": sums["mlm_correct"] / max(counts["masked"], 1),
        "perplexity": math.exp(min(mlm_loss, 700.0)),
        "masked_share": counts["masked"] / max(counts["maskable"], 1),
    }
    if counts["pairs"]:
        figures["pair_loss"] = sums["pair_loss"] / counts["pairs"]
        figures["pair_accuracy"] = sums["pair_correct"] / counts["pairs"]
        figures["loss"] += figures["pair_loss"]
    return figures


def sums_of(scores: PreTrainingScores, weight: float = 1.0) -> dict[str, float]:
    """The scores of a batch as plain numbers."""
    return {name: float(value) * weight for name, value in scores._asdict().items()}


def count_parts(parts: list[TensorBatch]) -> dict[str, int]:
    """What parts add to the global counts."""
    counts = dict.fromkeys(("tokens", "examples", "masked", "maskable", "pairs"), 0)
    for part in parts:
        if part.weight:
            _, _, lengths, positions, _, pairs = part.tensors
            special = 2 * len(lengths) + len(pairs)
            found: dict[str, Any] = {
                "tokens": int(lengths.sum()),
                "examples": len(lengths),
                "masked": len(positions),
                "maskable": int(lengths.sum()) - special,
                "pairs": len(pairs),
            }
            counts = {name: counts[name] + found[name] for name in counts}
    return counts


def operations_of(part: TensorBatch, config: BertConfig) -> int:
    """What the matrix products of a step on this part need."""
    lengths, positions = part.tensors[2], part.tensors[3]
    owner = torch.bucketize(positions, lengths.cumsum(0), right=True)
    masked = torch.bincount(owner, minlength=len(lengths))
    return int(part.weight) * pretraining_operations(config, lengths.tolist(), masked.tolist())
