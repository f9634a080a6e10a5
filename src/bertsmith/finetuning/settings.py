"""Everything that can be set in a fine-tuning run, typed.

The defaults are the stable ones: Adam with bias correction, a tenth of the steps for warming up, then straight down
("On the Stability of Fine-tuning BERT", Mosbach et al., 2021).
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bertsmith.settings import Name, Strict
from bertsmith.train.settings import CheckpointSettings, Count, OptimizerSettings, RunSettings, ScheduleSettings

__all__ = ["BatchSettings", "EvaluationSettings", "Settings"]


Weights = dict[Name, Annotated[float, Field(gt=0.0)]]


class BatchSettings(Strict):
    """`size` items a step over all processes, or `tokens` where given; `part` tokens fit into memory at once.

    An item is never parted.
    """

    size: Count = 32
    tokens: Count | None = None
    part: Count = 8192


class EvaluationSettings(Strict):
    """Every so many steps; without a number, after each epoch."""

    every: Count | None = None


class Settings(RunSettings):
    """A fine-tuning run, all choices made.

    `layer_decay`: each layer's rate is so much of the one above. `freeze`: so many layers, and the embeddings, stay as
    they are (-1: all layers). `fresh_layers`: so many at the top begin anew. `patience`: so many evaluations
    without a better one are the end. `class_weights`: rarer classes count more, or weights by name.
    """

    free: ClassVar[frozenset[str]] = frozenset({"class_weights"})
    epochs: Annotated[float, Field(gt=0.0)] = 3.0
    optimizer: OptimizerSettings = Field(
        default_factory=lambda: OptimizerSettings(kind="adamw", rate=5e-5, betas=(0.9, 0.999), eps=1e-8)
    )
    schedule: ScheduleSettings = Field(default_factory=lambda: ScheduleSettings(kind="linear", warmup=0.1))
    batch: BatchSettings = Field(default_factory=BatchSettings)
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)
    checkpoint: CheckpointSettings = Field(default_factory=lambda: CheckpointSettings(keep=1))
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    layer_decay: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    freeze: Annotated[int, Field(ge=-1)] = 0
    fresh_layers: Annotated[int, Field(ge=0)] = 0
    class_weights: Literal["balanced"] | Weights | None = None
    smoothing: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    patience: Count | None = None
