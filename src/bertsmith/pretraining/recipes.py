"""Recipes: each a function that gives settings.

Derive your own, and name it, before `pretrain_request(…, recipe="mine")`:

def mine() -> Settings:
    return changed(modern(), {"pairs": "none", "optimizer.rate": 1e-3})  # bertsmith.settings.changed

RECIPES["mine"] = mine
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bertsmith.data.masking import Masking
from bertsmith.pretraining.settings import BatchSettings, Settings
from bertsmith.train.settings import OptimizerSettings, ScheduleSettings

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FURTHER_RATES", "RECIPES", "faithful", "modern"]


def faithful() -> Settings:
    """BERT as it was trained in 2018: its pairs, its count of masks, its Adam, its schedule, batches of 256 × 512."""
    return Settings(
        pairs="faithful",
        masking=Masking(kind="piece", faithful=True),
        dropout=0.1,
        optimizer=OptimizerSettings(kind="bert_adam", rate=1e-4, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.01),
        schedule=ScheduleSettings(kind="faithful", warmup=0.01),
        batch=BatchSettings(tokens=256 * 512),
    )


def modern() -> Settings:
    """What reaches a given loss soonest here, with the architecture unchanged (docs/results/recipes.md)."""
    return Settings(
        initial="neighbours",
        word_bias="counts",
        pairs="balanced",
        masking=Masking(kind="word"),
        dropout=0.0,
        optimizer=OptimizerSettings(kind="muon", rate=2e-3, betas=(0.9, 0.98), eps=3e-4),
        schedule=ScheduleSettings(kind="linear", warmup=0.1),
        batch=BatchSettings(tokens=2048),
    )


# The peak rate of going on with a model that has been trained (`--from`): the original's, and a tenth of ours.
FURTHER_RATES = {"faithful": 2e-5, "modern": 2e-4}

RECIPES: dict[str, Callable[[], Settings]] = {"faithful": faithful, "modern": modern}
