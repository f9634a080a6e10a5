"""The records of fine-tuning that result pages are made from: kept once, never taken for something else."""

from __future__ import annotations

import statistics
from types import SimpleNamespace

import pytest

import finetune_runs
from finetune_runs import Case, number_of_seeds, run_case, search, shown
from finetune_scores import by_holm
from finetuning.small_tasks import reviews, write_model, write_table
from kept import Kept


@pytest.fixture
def case(tmp_path, monkeypatch):
    """A small task whose record and run folder are in a folder of the test's."""
    monkeypatch.setattr(finetune_runs, "KEPT", Kept(tmp_path / "records.jsonl"))
    monkeypatch.setattr(finetune_runs, "ROOT", tmp_path)
    monkeypatch.setattr(finetune_runs, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(finetune_runs, "circumstances", lambda: {"date": "2026-11-18"})
    write_model(tmp_path / "runs" / "model")
    for name in ("train", "dev"):
        write_table(tmp_path / "runs" / f"{name}.tsv", ("text", "label"), reviews(8))
    settings = {"epochs": 1, "batch.size": 4, "task.max_length": 32}
    return Case("small", "", "runs/train.tsv", "runs/dev.tsv", settings, "runs/model", kind="classify")


def test_a_run_is_made_once(case, monkeypatch):
    record = run_case(case, 3)
    assert {"accuracy", "f1"} < set(record["scores"])
    assert record["operations"] > 0
    monkeypatch.setattr(finetune_runs, "train_ours", None)  # would fail if it were called
    assert run_case(case, 3) == {"key": "small/size=4-epochs=1-max_length=32/3", **record}


def test_a_record_of_something_else_is_refused(case):
    run_case(case, 0)
    other = Case(**{**vars(case), "rows": 6})
    with pytest.raises(RuntimeError, match=r"records\.jsonl: small/.* was asked for as .*; remove its line"):
        run_case(other, 0)


def test_a_search_takes_the_best_on_seed_0(case, monkeypatch):
    monkeypatch.setattr(finetune_runs, "run_all", lambda jobs: None)  # no other processes: they know no test
    (found,) = search((case, ({"optimizer.rate": 1e-9}, {"optimizer.rate": 1e-2, "epochs": 12})))
    assert found.settings["optimizer.rate"] == 1e-2


@pytest.mark.parametrize(("minutes", "expected"), [(4.9, 5), (5.0, 3), (11.9, 3), (12.0, 1)])
def test_longer_runs_have_fewer_seeds(case, monkeypatch, minutes, expected):
    monkeypatch.setattr(finetune_runs, "minutes", lambda case: minutes)
    assert number_of_seeds([case], SimpleNamespace(seeds=None)) == expected
    assert number_of_seeds([case], SimpleNamespace(seeds=2)) == min(2, expected)


def test_scores_are_shown_with_their_spread():
    scores = [{"f1": 0.5}, {"f1": 0.6}, {"f1": 0.8}]
    spread = statistics.stdev([50, 60, 80])
    assert shown(scores, "f1") == f"63.3 ± {spread:.1f} (50.0–80.0, 3 seeds)"
    assert shown(scores[:1], "f1") == "50.0 (one seed)"


def test_several_comparisons_at_once_by_hand():
    """The least counts thrice, the next twice, the last once; none is less than the one before."""
    assert by_holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert by_holm([0.6, 0.9]) == [1.0, 1.0]
