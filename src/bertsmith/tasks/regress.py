"""`regress`: a number for a text or a pair of texts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch.nn.functional as F

from bertsmith.tasks import scores
from bertsmith.tasks.classify import TextTask
from bertsmith.tasks.task import Criterion, Item, Prediction, Scores, TaskBatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from bertsmith.tasks.texts import TextExample

__all__ = ["Regress"]

_GREATEST = 1e18  # its square is still a number in float32


class Regress(TextTask):
    """A number, learned by its squared error."""

    kind = "regress"
    metrics = ("spearman", "pearson")
    num_outputs = 1
    smooths = False

    @property
    def problem_type(self) -> str:
        """See `Task`."""
        return "regression"

    def target(self, example: TextExample) -> np.ndarray | None:
        """(1,) the number."""
        return None if example.label is None else np.array([_number(example)], np.float32)

    def loss(self, logits: torch.Tensor, batch: TaskBatch, criterion: Criterion) -> torch.Tensor:
        """The squared error; no criterion but that."""
        del criterion
        assert batch.targets is not None
        return F.mse_loss(logits[:, 0].float(), batch.targets, reduction="sum")

    def outputs(self, logits: torch.Tensor, batch: TaskBatch) -> list[np.ndarray]:
        """(1,) the number."""
        del batch
        return list(logits.float().cpu().numpy())

    def decode(
        self, examples: Sequence[TextExample], items: Sequence[Item], outputs: Sequence[np.ndarray]
    ) -> list[Prediction]:
        """The number."""
        del examples, items
        return [{"value": float(values[0])} for values in outputs]

    def score(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> Scores:
        """Correlations with what is right."""
        right, guesses = [_number(example) for example in examples], [p["value"] for p in predictions]
        return {"spearman": scores.spearman(right, guesses), "pearson": scores.pearson(right, guesses)}


def _number(example: TextExample) -> float:
    try:
        value = float(example.label)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if math.isnan(value) or abs(value) > _GREATEST:
        raise example.place.error(
            f"{example.label!r:.60} is not a number (up to {_GREATEST:g}); correct it or remove the row"
        )
    return value
