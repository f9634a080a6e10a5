"""Held-out evaluation: the same documents, pairs and masks at every step.

They are the same in all runs on a data set that mask and pair in the same way, at the same length.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bertsmith.data.examples import Examples, cut_by_tokens
from bertsmith.data.stream import share_of
from bertsmith.pretraining.work import TensorBatch, count_parts, example_options, figures_of, sums_of

if TYPE_CHECKING:
    from torch import nn

    from bertsmith.data.examples import PretrainingBatch
    from bertsmith.data.shards import ShardSet
    from bertsmith.pretraining.settings import Settings
    from bertsmith.train.distributed import World
    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["Evaluation"]

_SEED = 2018  # not the run's: runs that differ in it are compared on the same masks
_BATCH_TOKENS = 8192


class Evaluation:
    """Examples of the held-out split, at the length of the first phase, without pairs where its documents give none."""

    def __init__(self, held_out: ShardSet, tokenizer: Tokenizer, settings: Settings, world: World) -> None:
        self.world = world
        options = replace(example_options(settings, settings.phases[0]), seed=_SEED, static_copies=None)
        examples = Examples(held_out, tokenizer, replace(options, pairs="none"))
        if held_out.num_documents > 1 and len((paired := Examples(held_out, tokenizer, options)).plan(0)):
            examples = paired
        lengths = examples.plan(0).lengths
        enough = int(np.searchsorted(np.cumsum(lengths), settings.evaluation.tokens, side="right"))
        lengths = lengths[: max(enough, 1)]
        cuts = cut_by_tokens(lengths, _BATCH_TOKENS)
        self._batches = [(examples, np.arange(start, stop)) for start, stop in pairwise(cuts.tolist())]

    def __bool__(self) -> bool:
        return bool(self._batches)

    def __call__(self, forward: nn.Module) -> dict[str, float]:
        """Losses, accuracies and perplexity; every process takes its share of every batch."""
        sums: dict[str, float] = {}
        counts: dict[str, float] = {}
        for examples, rows in self._batches:
            part = self._share(examples, rows)
            for name, value in sums_of(forward(*part.tensors), part.weight).items():
                sums[name] = sums.get(name, 0.0) + value
            for name, value in count_parts([part]).items():
                counts[name] = counts.get(name, 0.0) + value
        totals = self.world.sum([*sums.values(), *counts.values()])
        return figures_of(
            dict(zip(sums, totals[: len(sums)], strict=True)), dict(zip(counts, totals[len(sums) :], strict=True))
        )

    def baselines(self) -> dict[str, float]:
        """What always naming the commonest piece, and the commoner kind of pair, would score."""
        if not self:
            return {}
        batches = [examples.batch(0, rows) for examples, rows in self._batches]
        words = np.concatenate([batch.labels for batch in batches])
        pairs = np.concatenate([batch.pair_labels for batch in batches])
        found = {"mlm_accuracy": float(np.bincount(words).max(initial=0) / max(len(words), 1))}
        if len(pairs):
            found["pair_accuracy"] = float(np.bincount(pairs).max() / len(pairs))
        return found

    def _share(self, examples: Examples, rows: np.ndarray) -> TensorBatch:
        lengths = examples.plan(0).take(rows).lengths
        chosen = share_of(lengths, self.world.rank, self.world.size)
        batch: PretrainingBatch = examples.batch(0, rows[chosen] if len(chosen) else rows[:1])
        return TensorBatch.of(batch, self.world.device, float(len(chosen) > 0))
