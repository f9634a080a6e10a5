"""What the tests of pre-training share: a small data set and a small model, made once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bertsmith.report import pretraining as report
from bertsmith.train import keeping
from bertsmith.train.speed import Peak
from pretraining.small_runs import SMALL, both_splits, build_data, make_tokenizer, write_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bertsmith.data.shards import ShardSet
    from bertsmith.jobs.pretrain import Request
    from bertsmith.vocab.tokenizer import Tokenizer


@pytest.fixture(autouse=True)
def _nothing_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The speed of the machine and the pictures of a report are of no interest to most runs, and take their time."""
    monkeypatch.setattr(keeping, "measure_peak", lambda *given, **named: Peak(1e11, "none"))
    monkeypatch.setattr(report, "write_report", lambda folder: None)


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    return make_tokenizer()


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some fifty documents to learn from and ten held out."""
    return build_data(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def splits(data: Path) -> tuple[ShardSet, ShardSet]:
    return both_splits(data)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder of the smallest kind."""
    return write_model(tmp_path_factory.mktemp("model") / "model")


@pytest.fixture
def ask(data: Path, model: Path) -> Callable[..., Request]:
    """A request for a run of the smallest model, of some steps and with some changes."""
    from bertsmith.jobs.pretrain import make_request
    from bertsmith.pretraining.settings import Budget

    def make(steps: int = 12, *, shards: Path = data, budget: Budget | None = None, **changes: object) -> Request:
        chosen = {**SMALL, **{name.replace("__", "."): value for name, value in changes.items()}}
        return make_request(shards, start=str(model), budget=budget or Budget(steps=steps), changes=chosen)

    return make
