"""What every training run can set: the optimizer, the rate over time, checkpoints."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bertsmith.settings import Strict

__all__ = ["CheckpointSettings", "Count", "OptimizerSettings", "RunSettings", "ScheduleSettings", "Seed", "Share"]

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Beta = Annotated[float, Field(ge=0.0, lt=1.0)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class OptimizerSettings(Strict):
    """`rate` is the peak. `muon` treats the hidden matrices, and AdamW the rest."""

    kind: Literal["bert_adam", "adamw", "muon"] = "adamw"
    rate: Annotated[float, Field(gt=0.0)] = 1e-3
    betas: tuple[Beta, Beta] = (0.9, 0.98)
    eps: Annotated[float, Field(gt=0.0)] = 1e-6
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.01
    clip: Annotated[float, Field(gt=0.0)] = 1.0


class ScheduleSettings(Strict):
    """How the rate goes, and the share of the steps that it takes to rise."""

    kind: Literal["faithful", "linear", "one_cycle"] = "linear"
    warmup: Share = 0.01


class CheckpointSettings(Strict):
    """Every so many steps, or minutes where no number of steps is given; the last `keep` stay, and the best."""

    every: Count | None = None
    minutes: Annotated[float, Field(gt=0.0)] = 5.0
    keep: Count = 2


class RunSettings(Strict):
    """What the loop of any run is made from; pre-training and fine-tuning add their own."""

    optimizer: OptimizerSettings = Field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = Field(default_factory=ScheduleSettings)
    checkpoint: CheckpointSettings = Field(default_factory=CheckpointSettings)
    spread: Literal["ddp", "fsdp"] = "ddp"
    compile: bool = False
    seed: Seed = 0
