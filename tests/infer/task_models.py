"""Small models of every kind of task on disk, never trained: what they say is arbitrary, and always the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bertsmith.bundle.folder import Bundle, write_bundle
from bertsmith.tasks.kinds import make_task
from finetuning.small_tasks import SHAPE, make_tokenizer
from twins import random_model

if TYPE_CHECKING:
    from pathlib import Path

LABELS = {"classify": ("bad", "fine", "good"), "tag": ("O", "B-PER", "I-PER", "B-LOC")}


def write_task(folder: Path, kind: str, **options: Any) -> Path:
    """A folder as fine-tuning writes it."""
    task = make_task(kind, {"max_length": 32, **options})
    names = {"num_labels": task.num_outputs, "id2label": None}
    if kind in LABELS:
        names = {"id2label": dict(enumerate(LABELS[kind]))}
    model = random_model(task.head, SHAPE.derive(problem_type=task.problem_type, **names))
    task.attach(model)
    record = {"kind": kind, "options": task.options.model_dump(exclude={"labels"})}
    write_bundle(folder, Bundle(model, make_tokenizer(), 64, record), source="a test")
    return folder


def write_tasks(folder: Path) -> Path:
    """One of each kind, by its name."""
    for kind in ("classify", "regress", "tag", "answer", "choose"):
        write_task(folder / kind, kind)
    write_task(folder / "multilabel", "classify", multilabel=True)
    return folder


def near(found: Any) -> Any:
    """The same but for rounding, as in batches of other sizes."""
    if isinstance(found, dict):
        return {key: near(value) for key, value in found.items()}
    if isinstance(found, list):
        return [near(value) for value in found]
    return pytest.approx(found, abs=1e-5) if isinstance(found, float) else found
