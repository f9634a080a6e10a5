"""Several runs of one request: seeds, the grid, a study; the best is kept, and nothing that is done is done again."""

from __future__ import annotations

import json
import os
import signal
import statistics

import optuna
import pytest
import torch
from safetensors.torch import load_file

from bertsmith.errors import ConfigError, DataError, InputError
from bertsmith.finetuning import many
from bertsmith.jobs import finetune as job
from bertsmith.jobs.finetune import finetune, finetune_many
from bertsmith.jobs.glue import glue
from finetuning.small_tasks import Watcher, write_lines


class Counting(Watcher):
    """Counts the runs that began, and the steps they took."""

    def __init__(self):
        super().__init__()
        self.begun = []

    def on_begin(self, request, num_items, total):
        self.begun.append((request.settings.seed, request.settings.optimizer.rate, request.settings.epochs, total))


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


def weights_of(folder):
    return load_file(folder / "model.safetensors")


def same(one, other):
    one, other = weights_of(one), weights_of(other)
    return all(torch.equal(weight, other[name]) for name, weight in one.items())


@pytest.fixture
def scored(monkeypatch):
    """Has runs score as told, by seed or rate, whatever they learned."""

    def tell(scores):
        real = job.finetune

        def run(request, folder, **options):
            result = real(request, folder, **options)
            if result.model is None:
                return result
            key = (
                request.settings.optimizer.rate if request.settings.optimizer.rate in scores else request.settings.seed
            )
            stored = json.loads((folder / "result.json").read_text())
            stored["scores"]["accuracy"] = result.scores["accuracy"] = scores[key]
            (folder / "result.json").write_text(json.dumps(stored))
            return result

        monkeypatch.setattr(job, "finetune", run)

    return tell


def test_seeds_give_mean_spread_and_the_best(ask, tmp_path, scored):
    scored({5: 0.5, 6: 0.9, 7: 0.7})
    watcher = Counting()
    found = finetune_many(ask(seed=5, epochs=1), tmp_path / "run", seeds=3, observer=watcher)
    assert [seed for seed, *_ in watcher.begun] == [5, 6, 7]
    assert [trial.changes for trial in found.trials] == [{"seed": 5}, {"seed": 6}, {"seed": 7}]
    assert found.finished[0].folder == tmp_path / "run" / "seed-001"
    content = summary_of(tmp_path / "run")
    assert content["metric"] == "accuracy"
    assert content["best"]["folder"] == "seed-001"
    assert content["best"]["changes"] == {"seed": 6}
    assert content["best"]["scores"]["accuracy"] == 0.9
    assert content["mean"]["accuracy"] == pytest.approx(0.7)
    assert content["spread"]["accuracy"] == pytest.approx(0.2)
    losses = [trial["scores"]["loss"] for trial in content["trials"]]
    assert content["mean"]["loss"] == pytest.approx(statistics.fmean(losses))
    assert content["spread"]["loss"] == pytest.approx(statistics.stdev(losses))
    assert found.model == tmp_path / "run" / "model"
    assert same(found.model, tmp_path / "run" / "seed-001" / "model")
    assert not same(found.model, tmp_path / "run" / "seed-000" / "model")


def test_a_second_call_runs_nothing_again(ask, tmp_path):
    first = finetune_many(ask(epochs=1), tmp_path / "run", seeds=2)
    watcher = Counting()
    again = finetune_many(ask(epochs=1), tmp_path / "run", seeds=2, resume=True, observer=watcher)
    assert watcher.begun == []
    assert [trial.scores for trial in again.trials] == [trial.scores for trial in first.trials]
    watcher = Counting()
    more = finetune_many(ask(epochs=1), tmp_path / "run", seeds=3, resume=True, observer=watcher)
    assert [seed for seed, *_ in watcher.begun] == [2]
    assert len(more.trials) == len(summary_of(tmp_path / "run")["trials"]) == 3
    with pytest.raises(InputError, match="run: exists already; go on with --resume, or name a new folder"):
        finetune_many(ask(epochs=1), tmp_path / "run", seeds=2)


def test_a_second_call_with_other_settings_is_refused(ask, tmp_path):
    """Or the old scores would be given for new settings."""
    finetune_many(ask(epochs=1), tmp_path / "run", seeds=2)
    with pytest.raises(InputError, match="run/seed-000: epochs: the run was begun with"):
        finetune_many(ask(epochs=2), tmp_path / "run", seeds=2, resume=True)


class Stopping(Counting):
    """A signal in the second run, after its first step."""

    def on_step(self, values, progress, total):
        if len(self.begun) == 2 and progress.step == 1:
            os.kill(os.getpid(), signal.SIGTERM)


def test_what_was_stopped_goes_on_where_it_was(ask, tmp_path):
    whole = finetune_many(ask(), tmp_path / "whole", seeds=2)
    watcher = Stopping()
    found = finetune_many(ask(), tmp_path / "run", seeds=2, observer=watcher)
    assert found.stopped_by == "SIGTERM"
    assert len(found.trials) == 1
    assert not (tmp_path / "run" / "summary.json").exists()
    assert not (tmp_path / "run" / "model").exists()
    watcher = Counting()
    done = finetune_many(ask(), tmp_path / "run", seeds=2, resume=True, observer=watcher)
    assert watcher.notes == ["going on from step 1"]
    assert [trial.scores for trial in done.trials] == [trial.scores for trial in whole.trials]
    assert same(done.model, whole.model)


def test_the_grid_is_the_papers_and_every_combination_is_run(ask, tmp_path, monkeypatch, scored):
    assert many.GRID == {"batch.size": (16, 32), "optimizer.rate": (5e-5, 3e-5, 2e-5), "epochs": (2, 3, 4)}
    monkeypatch.setattr(many, "GRID", {"optimizer.rate": (5e-3, 1e-3), "epochs": (1, 2)})
    scored({5e-3: 0.6, 1e-3: 0.8})
    watcher = Counting()
    found = finetune_many(ask(), tmp_path / "run", search="grid", observer=watcher)
    assert [(rate, epochs, total) for _, rate, epochs, total in watcher.begun] == [
        (5e-3, 1.0, 3), (5e-3, 2.0, 6), (1e-3, 1.0, 3), (1e-3, 2.0, 6),
    ]  # fmt: skip
    assert found.finished[0].changes == {"optimizer.rate": 1e-3, "epochs": 1}  # the first of the best
    folder = tmp_path / "run"
    assert sorted(path.parent.name for path in folder.glob("trial-*/model")) == ["trial-002"]
    assert not list(folder.glob("trial-*/checkpoints"))
    assert same(folder / "model", folder / "trial-002" / "model")
    watcher = Counting()
    again = finetune_many(ask(), tmp_path / "run", search="grid", resume=True, observer=watcher)
    assert watcher.begun == []
    assert again.finished[0].folder.name == "trial-002"
    assert same(folder / "model", folder / "trial-002" / "model")


def test_a_study_proposes_settings_and_goes_on(ask, tmp_path):
    watcher = Counting()
    found = finetune_many(ask(), tmp_path / "run", search="optuna", trials=2, observer=watcher)
    assert len(watcher.begun) == 2
    assert len(watcher.evaluations) == sum(int(epochs) for _, _, epochs, _ in watcher.begun)
    for trial in found.trials:
        assert set(trial.changes) == {"optimizer.rate", "batch.size", "epochs", "schedule.warmup"}
        assert 1e-5 <= trial.changes["optimizer.rate"] <= 2e-4
        stored = json.loads((trial.folder / "config.json").read_text())["settings"]
        assert stored["optimizer"]["rate"] == trial.changes["optimizer.rate"]
        assert stored["schedule"]["warmup"] == trial.changes["schedule.warmup"]
    content = summary_of(tmp_path / "run")
    best = max(found.trials, key=lambda trial: trial.scores["accuracy"])
    assert content["best"] == {"folder": best.folder.name, "changes": best.changes, "scores": best.scores}
    assert [path.parent.name for path in (tmp_path / "run").glob("trial-*/model")] == [best.folder.name]
    assert not list((tmp_path / "run").glob("trial-*/checkpoints"))
    assert same(tmp_path / "run" / "model", best.folder / "model")

    watcher = Counting()
    again = finetune_many(ask(), tmp_path / "run", search="optuna", trials=2, resume=True, observer=watcher)
    assert watcher.begun == []
    assert [trial.scores for trial in again.trials] == [trial.scores for trial in found.trials]
    more = finetune_many(ask(), tmp_path / "run", search="optuna", trials=3, resume=True, observer=watcher)
    assert len(watcher.begun) == 1
    rates = [trial.changes["optimizer.rate"] for trial in more.trials]
    assert len(set(rates)) == 3  # a study that goes on does not begin again with the same proposals
    with pytest.raises(InputError, match="run/trial-000: seed: the run was begun with"):
        finetune_many(ask(seed=4), tmp_path / "run", search="optuna", trials=4, resume=True)


def test_a_study_that_was_stopped_counts_only_what_ended(ask, tmp_path):
    stopped = finetune_many(ask(), tmp_path / "run", search="optuna", trials=2, observer=Stopping())
    assert stopped.stopped_by == "SIGTERM"
    assert [trial.folder.name for trial in stopped.trials] == ["trial-000"]
    assert not (tmp_path / "run" / "summary.json").exists()
    watcher = Counting()
    done = finetune_many(ask(), tmp_path / "run", search="optuna", trials=2, resume=True, observer=watcher)
    assert len(watcher.begun) == 1
    assert [trial.folder.name for trial in done.trials] == ["trial-000", "trial-002"]
    assert all(trial.scores for trial in done.trials)
    assert len(summary_of(tmp_path / "run")["trials"]) == 2
    assert not (tmp_path / "run" / "trial-001").exists()


def test_a_study_does_not_touch_what_is_not_its_own(ask, tmp_path, monkeypatch):
    """A grid has folders of the same names."""
    monkeypatch.setattr(many, "GRID", {"epochs": (1, 2)})
    finetune_many(ask(), tmp_path / "run", search="grid")
    with pytest.raises(InputError, match="the run was begun with"):
        finetune_many(ask(), tmp_path / "run", search="optuna", trials=2, resume=True)
    assert [(path / "result.json").is_file() for path in sorted((tmp_path / "run").glob("trial-*"))] == [True, True]
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


def test_hopeless_trials_are_given_up(ask, tmp_path, monkeypatch):
    """The pruner says so at the first evaluation of the second trial; it has no score, and no weights stay."""
    seen = []

    def should_prune(trial):
        seen.append(trial.number)
        return trial.number == 1

    monkeypatch.setattr(optuna.Trial, "should_prune", should_prune)
    watcher = Counting()
    found = finetune_many(ask(), tmp_path / "run", search="optuna", trials=3, observer=watcher)
    assert [trial.scores is None for trial in found.trials] == [False, True, False]
    assert seen.count(1) == 1
    assert len(found.finished) == 2
    content = summary_of(tmp_path / "run")
    assert content["trials"][1]["scores"] is None
    assert content["best"]["folder"] in ("trial-000", "trial-002")
    assert not list((tmp_path / "run").glob("trial-*/checkpoints"))


def test_trials_are_compared_evaluation_by_evaluation(ask, tmp_path, monkeypatch):
    """Not by steps: with other sizes of a batch, two trials have no step in common."""
    told = {}

    def report(trial, value, number):
        told.setdefault(trial.number, []).append(number)

    monkeypatch.setattr(optuna.Trial, "report", report)
    monkeypatch.setattr(optuna.Trial, "should_prune", lambda trial: False)
    found = finetune_many(ask(), tmp_path / "run", search="optuna", trials=3, observer=Counting())
    epochs = [trial.changes["epochs"] for trial in found.trials]
    assert [told[number] for number in range(3)] == [list(range(1, count + 1)) for count in epochs]


def test_a_broken_file_leaves_nothing_behind(ask, tmp_path):
    path = write_lines(tmp_path / "data" / "a.tsv", ["text\tlabel", "good\tpos\tmore"])
    for options in ({"seeds": 2}, {"search": "grid"}, {"search": "optuna", "trials": 2}):
        with pytest.raises(DataError, match=r"a\.tsv, line 2: 3 columns, not 2"):
            finetune_many(ask(train=path), tmp_path / "run", **options)
        assert not (tmp_path / "run").exists()
    with pytest.raises(DataError, match=r"a\.tsv, line 2: 3 columns, not 2"):
        finetune(ask(dev=path), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_impossible_requests_are_refused(ask, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORLD_SIZE", "2")
        for options in ({"seeds": 2}, {"search": "grid"}):
            with pytest.raises(
                ConfigError, match="several runs are not spread over processes; start them without torc"
            ):
                finetune_many(ask(), tmp_path / "run", **options)
        with pytest.raises(ConfigError, match="several runs are not spread over processes"):
            glue(ask().model, data=tmp_path, output=tmp_path / "run")
    for options in ({}, {"seeds": 2, "search": "grid"}):
        with pytest.raises(ConfigError, match="give either a number of seeds or a search, one after the other"):
            finetune_many(ask(), tmp_path / "run", **options)
    for options in ({"seeds": 0}, {"search": "optuna", "trials": 0}):
        with pytest.raises(ConfigError, match="the number of runs must be 1 or more"):
            finetune_many(ask(), tmp_path / "run", **options)
    for options in ({"seeds": 2}, {"search": "grid"}, {"search": "optuna"}):
        with pytest.raises(InputError, match="give a --dev file"):
            finetune_many(ask(dev=None), tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_score_that_only_some_runs_have_is_averaged_over_those(tmp_path):
    """Tagging has a score for each class that a run had or guessed."""
    trials = [many.Trial({}, scores, tmp_path) for scores in ({"f1": 0.5, "f1_X": 0.2}, {"f1": 0.7}, None)]
    found = many.Summary(tmp_path, "f1", trials)
    assert [trial.scores["f1"] for trial in found.finished] == [0.7, 0.5]
    assert found.spread("f1_X") == (0.2, 0.0)
    assert found.spread("f1") == pytest.approx((0.6, statistics.stdev([0.5, 0.7])))
