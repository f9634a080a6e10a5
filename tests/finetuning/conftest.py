"""What the tests of fine-tuning share: a small model and files of every kind, made once."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from bertsmith.jobs.finetune import make_request
from bertsmith.train import keeping
from bertsmith.train.speed import Peak
from finetuning.small_tasks import QUICK, reviews, write_all_kinds, write_model, write_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bertsmith.jobs.finetune import Request


@pytest.fixture(autouse=True)
def _nothing_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The speed of the machine and the pictures of a report are of no interest to these runs, and take their time."""
    monkeypatch.setattr(keeping, "measure_peak", lambda *given, **named: Peak(1e11, "none"))
    for name in ("finetuning", "several"):
        monkeypatch.setitem(sys.modules, f"bertsmith.report.{name}", SimpleNamespace(write_report=lambda folder: None))


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pre-trained model folder of the smallest kind."""
    return write_model(tmp_path_factory.mktemp("small") / "model")


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The options of the command line for every kind of task."""
    return write_all_kinds(tmp_path_factory.mktemp("kinds"))


@pytest.fixture(scope="session")
def review_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Train and dev of a task of two classes."""
    folder = tmp_path_factory.mktemp("reviews")
    header = ("text", "label")
    return write_table(folder / "train.tsv", header, reviews()), write_table(folder / "dev.tsv", header, reviews(8, 1))


@pytest.fixture
def ask(small_model: Path, review_files: tuple[Path, Path]) -> Callable[..., Request]:
    """A request for a quick run of two classes, with some changes; `__` stands for a dot."""

    def make(**changes: Any) -> Request:
        given = {"kind": "classify", "train": review_files[0], "dev": review_files[1]}
        given |= {name: changes.pop(name) for name in ("kind", "train", "dev", "rows", "model") if name in changes}
        chosen = {**QUICK, **{name.replace("__", "."): value for name, value in changes.items()}}
        return make_request(str(given.pop("model", small_model)), changes=chosen, **given)

    return make
