"""Everything that can be set in a pre-training run, typed; an unknown key is an error that names it.

Recipes (`recipes.py`) fill it in; `--set optimizer.rate=2e-3` and a YAML file change single values.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from bertsmith.data.masking import Masking
from bertsmith.data.pairing import PairKind
from bertsmith.settings import Strict
from bertsmith.train.settings import Count, RunSettings

__all__ = ["BatchSettings", "Budget", "EvaluationSettings", "Phase", "Settings", "parse_phases"]


class Phase(Strict):
    """A part of the run: examples up to a length, for a share of the steps, perhaps with batches of its own size."""

    max_length: Annotated[int, Field(ge=8)]
    share: Annotated[float, Field(gt=0.0, le=1.0)]
    batch_tokens: Count | None = None


def parse_phases(text: Any) -> Any:
    """The short form of phases, LENGTH:SHARE[:BATCH] with commas between; anything else is left to be checked.

    >>> parse_phases("128:0.9,512:0.1")
    [{'max_length': '128', 'share': '0.9'}, {'max_length': '512', 'share': '0.1'}]
    """
    if not isinstance(text, str | int | float):
        return text
    names = ("max_length", "share", "batch_tokens")
    parts = [part.split(":") for part in str(text).split(",")]
    for part in parts:
        if not 2 <= len(part) <= len(names):
            raise ValueError("expected LENGTH:SHARE[:BATCH], as in 128:0.9,512:0.1")
    return [dict(zip(names, part, strict=False)) for part in parts]


class BatchSettings(Strict):
    """`tokens` is the global batch of a step, over all processes; `part` is what fits into memory at once."""

    tokens: Count = 4096
    part: Count = 16384


class EvaluationSettings(Strict):
    """Every so many steps (without a number: about twenty times in all), on at most so many held-out tokens."""

    every: Count | None = None
    tokens: Count = 65_536


class Budget(Strict):
    """How long to train: exactly one of these."""

    steps: Count | None = None
    tokens: Count | None = None
    epochs: Annotated[float, Field(gt=0.0)] | None = None
    minutes: Annotated[float, Field(gt=0.0)] | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name, value in self.model_dump().items() if value is not None]
        if len(given) != 1:
            found = " and ".join(given) if given else "none"
            raise ValueError(f"give one of steps, tokens, epochs and minutes, not {found}")
        return self


class Settings(RunSettings):
    """A pre-training run, all choices made.

    `initial` is for models that begin from nothing: "random", as the original, or "neighbours", with lower layers that
    look at the words around (`model/initial.py`). `word_bias` is that of a masked-word head that is new: "zero", as the
    original, or "counts", the logarithm of each word's share of the text.
    """

    as_text: ClassVar[frozenset[str]] = frozenset({"phases"})

    initial: Literal["random", "neighbours"] = "random"
    word_bias: Literal["zero", "counts"] = "zero"
    pairs: PairKind = "balanced"
    masking: Masking = Field(default_factory=Masking)
    first_rate: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None
    static_copies: Count | None = None
    dropout: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.1
    phases: Annotated[tuple[Phase, ...], BeforeValidator(parse_phases)] = (
        Phase(max_length=128, share=0.9),
        Phase(max_length=512, share=0.1),
    )
    batch: BatchSettings = Field(default_factory=BatchSettings)
    evaluation: EvaluationSettings = Field(default_factory=EvaluationSettings)

    @model_validator(mode="after")
    def _check_phases(self) -> Self:
        total = sum(phase.share for phase in self.phases)
        if not math.isclose(total, 1.0, abs_tol=1e-6):
            raise ValueError(f"phases: the shares add up to {total:g}, not to 1")
        return self

    @model_validator(mode="after")
    def _check_masks(self) -> Self:
        if self.first_rate is not None and self.static_copies is not None:
            raise ValueError("static_copies: fixed masks cannot follow first_rate; take one of the two")
        return self

    def masking_at(self, phase: Phase) -> Masking:
        """The masking of a phase: the original's limit of predictions grows with the length (20 at 128, 77 at 512)."""
        if not self.masking.faithful or self.masking.max_predictions is not None:
            return self.masking
        highest = max(self.masking.rate, self.first_rate or 0.0)
        return replace(self.masking, max_predictions=math.ceil(highest * phase.max_length))

    def mask_rate(self, step: int, total: int) -> float | None:
        """The share of masked tokens at a step, where it changes: from `first_rate` straight to that of `masking`."""
        if self.first_rate is None:
            return None
        done = step / max(total - 1, 1)
        return self.first_rate + done * (self.masking.rate - self.first_rate)

    def batch_tokens(self, phase: Phase) -> int:
        """The global batch of a phase."""
        return phase.batch_tokens or self.batch.tokens

    def phase_ends(self, total: int) -> list[int]:
        """The step before which each phase ends; the last one is `total`.

        >>> Settings().phase_ends(100)
        [90, 100]
        """
        done, ends = 0.0, []
        for phase in self.phases:
            done += phase.share
            ends.append(round(done * total))
        return [*ends[:-1], total]  # shares may add up to a little less or more than 1
