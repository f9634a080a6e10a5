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

from bertsmith.errors import ConfigError, DataError, DivergenceError, InputError, TrainingError
from bertsmith.finetuning import many, study
from bertsmith.finetuning.run import FinetuningRun
from bertsmith.jobs import finetune as job
from bertsmith.jobs.finetune import finetune, finetune_many
from bertsmith.jobs.glue import glue
from bertsmith.settings import changed, names_of
from bertsmith.train.loop import Loop
from finetuning.small_tasks import Watcher, reviews, write_lines, write_table


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


@pytest.mark.parametrize("options", [{"seeds": 2}, {"search": "optuna", "trials": 1}])
def test_runs_of_one_series_read_the_same_files(ask, tmp_path, options):
    file = write_table(tmp_path / "train.tsv", ("text", "label"), reviews())
    finetune_many(ask(train=file, epochs=1), tmp_path / "run", **options)
    with file.open("a") as more:
        more.write("the river was good\tpos\n")
    more = {name: value if name == "search" else value + 1 for name, value in options.items()}
    with pytest.raises(DataError, match=r"train\.tsv: has changed since the run was begun"):
        finetune_many(ask(train=file, epochs=1), tmp_path / "run", **more, resume=True)
    with pytest.raises(DataError, match=r"train\.tsv: has changed since the run was begun"):
        name = "seed-000" if "seeds" in options else "trial-000"
        finetune(None, tmp_path / "run" / name, resume=True)


def test_a_file_that_changes_between_two_runs_ends_the_series(ask, tmp_path):
    file = write_table(tmp_path / "dev.tsv", ("text", "label"), reviews())

    class Editing(Counting):
        def on_begin(self, *given):
            super().on_begin(*given)
            file.write_text(file.read_text() + "the river was good\tpos\n")

    with pytest.raises(DataError, match=r"dev\.tsv: has changed since the run was begun"):
        finetune_many(ask(dev=file, epochs=1), tmp_path / "run", seeds=2, observer=Editing())


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
    settings = json.loads((tmp_path / "run" / "trial-001" / "config.json").read_text())["settings"]
    watcher = Counting()
    done = finetune_many(ask(), tmp_path / "run", search="optuna", trials=2, resume=True, observer=watcher)
    assert len(watcher.begun) == 1
    assert watcher.notes == ["going on from step 1"]
    assert json.loads((tmp_path / "run" / "trial-002" / "config.json").read_text())["settings"] == settings
    assert [trial.folder.name for trial in done.trials] == ["trial-000", "trial-002"]
    assert all(trial.scores for trial in done.trials)
    assert len(summary_of(tmp_path / "run")["trials"]) == 2
    assert not (tmp_path / "run" / "trial-001").exists()


def test_a_study_does_not_touch_what_is_not_its_own(ask, tmp_path, monkeypatch):
    """A grid has folders of the same names."""
    monkeypatch.setattr(many, "GRID", {"epochs": (1, 2)})
    finetune_many(ask(), tmp_path / "run", search="grid")
    with pytest.raises(InputError, match="run: exists already; it holds runs of 'grid', none of 'optuna', to go on"):
        finetune_many(ask(), tmp_path / "run", search="optuna", trials=2, resume=True)
    assert not (tmp_path / "run" / "study.journal").exists()
    assert [(path / "result.json").is_file() for path in sorted((tmp_path / "run").glob("trial-*"))] == [True, True]
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


@pytest.mark.parametrize("what", ["a run", "anything"])
def test_a_folder_of_something_else_is_not_touched(ask, tmp_path, what):
    folder = tmp_path / "run"
    if what == "a run":
        finetune(ask(epochs=1), folder)
    else:
        write_lines(folder / "model" / "mine.txt", ["dear"])
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for options in ({"seeds": 1}, {"search": "grid"}, {"search": "optuna", "trials": 1}):
        with pytest.raises(InputError, match="run: exists already; it holds no runs to go on with; name a new folder"):
            finetune_many(ask(epochs=1, seed=5), folder, resume=True, **options)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


class Late(Counting):
    """A signal at the last step of the first run."""

    def on_step(self, values, progress, total):
        if len(self.begun) == 1 and progress.step == total:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("options", [{"seeds": 3}, {"search": "optuna", "trials": 3}])
def test_a_signal_at_the_end_of_a_run_ends_all_of_them(ask, tmp_path, options):
    watcher = Late()
    found = finetune_many(ask(), tmp_path / "run", observer=watcher, **options)
    assert (found.stopped_by, len(watcher.begun), len(found.trials)) == ("SIGTERM", 1, 1)
    done = finetune_many(ask(), tmp_path / "run", observer=(watcher := Counting()), resume=True, **options)
    assert (done.stopped_by, len(watcher.begun), len(done.trials)) == (None, 2, 3)


@pytest.fixture
def diverging(monkeypatch):
    """The run with that seed, or that trial, meets a loss that is no number at its second step."""

    def tell(*folders):
        step = Loop.take_step

        def take(self, progress):
            if progress.step == 1 and FinetuningRun.current.name in folders:
                raise DivergenceError("the loss is not finite")
            return step(self, progress)

        train = FinetuningRun.train

        def noted(self, stop):
            FinetuningRun.current = self.folder
            return train(self, stop)

        monkeypatch.setattr(FinetuningRun, "current", None, raising=False)
        monkeypatch.setattr(FinetuningRun, "train", noted)
        monkeypatch.setattr(Loop, "take_step", take)

    return tell


@pytest.mark.parametrize(
    ("options", "failing", "others"),
    [({"seeds": 3}, "seed-001", ["seed-000", "seed-002"]),
     ({"search": "grid"}, "trial-001", ["trial-000", "trial-002"]),
     ({"search": "optuna", "trials": 3}, "trial-001", ["trial-000", "trial-002"])],
)  # fmt: skip
def test_a_run_that_diverges_does_not_end_the_others(ask, tmp_path, monkeypatch, diverging, options, failing, others):
    monkeypatch.setattr(many, "GRID", {"epochs": (1, 2, 3)})
    diverging(failing)
    found = finetune_many(ask(), tmp_path / "run", **options)
    assert sorted(trial.folder.name for trial in found.finished) == others
    (failed,) = (trial for trial in found.trials if trial.failed)
    assert (failed.folder.name, failed.scores, failed.failed) == (failing, None, "the loss is not finite")
    assert [trial["failed"] for trial in summary_of(tmp_path / "run")["trials"]] == [None, failed.failed, None]
    assert not (failed.folder / "checkpoints").exists()
    watcher = Counting()
    again = finetune_many(ask(), tmp_path / "run", resume=True, observer=watcher, **options)
    assert (watcher.begun, len(again.trials)) == ([], 3)


def test_where_no_run_comes_to_its_end_that_is_said(ask, tmp_path, diverging):
    diverging("seed-000", "seed-001")
    with pytest.raises(TrainingError, match="run: no run came to its end; of the last: the loss is not finite"):
        finetune_many(ask(), tmp_path / "run", seeds=2)


@pytest.mark.parametrize("options", [{"seeds": 3}, {"search": "optuna", "trials": 3}])
def test_a_file_that_breaks_on_the_way_does_not_cost_what_is_done(ask, review_files, tmp_path, options):
    dev = write_lines(tmp_path / "dev.tsv", review_files[1].read_text().splitlines())
    whole = dev.read_text()

    class Breaking(Counting):
        def on_begin(self, *given):
            super().on_begin(*given)
            if len(self.begun) == 2:
                dev.write_text(whole + "good\tnone such\n")

    with pytest.raises(DataError, match=r"dev\.tsv, line 10"):
        finetune_many(ask(dev=dev), tmp_path / "run", observer=Breaking(), **options)
    dev.write_text(whole)
    done = finetune_many(ask(dev=dev), tmp_path / "run", observer=(watcher := Counting()), resume=True, **options)
    assert (len(watcher.begun), len(done.trials)) == (1, 3)


def test_a_search_for_what_was_decided_is_refused(ask):
    for name, search in (("optimizer.rate", "grid"), ("epochs", "optuna"), ("schedule.warmup", "optuna")):
        with pytest.raises(ConfigError, match=f"{name}: --search {search} looks for it itself; leave it out, or use"):
            study.check_free(ask(), search, ["seed", name])
    study.check_free(ask(), "grid", ["schedule.warmup", "seed"])
    with pytest.raises(ConfigError, match=r"batch\.tokens: --search looks for batch\.size, which it makes void"):
        study.check_free(ask(batch__tokens=64), "grid", ["seed"])


def test_settings_have_their_names_however_they_are_written():
    changes = {"epochs": 1, "optimizer": {"rate": 1e-3, "clip": 1}, "batch": " size: 8", "task.separator": "{"}
    assert names_of(changes) == {"epochs", "optimizer.rate", "optimizer.clip", "batch.size", "task.separator"}


def test_names_of_classes_are_no_names_of_settings(ask):
    """Weights are added to those that are there, and read from text as well."""
    first = ask(class_weights={"pos": 2.0}).settings
    assert first.class_weights == {"pos": 2.0}
    assert changed(first, {"class_weights": "{neg: 3}"}).class_weights == {"pos": 2.0, "neg": 3.0}
    assert changed(first, {"class_weights.neg": "0.5"}).class_weights == {"pos": 2.0, "neg": 0.5}
    assert ask(**{"class_weights.a.b": 4}).settings.class_weights == {"a.b": 4.0}
    assert changed(first, {"class_weights": "balanced"}).class_weights == "balanced"


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


def test_a_trial_at_its_end_is_not_given_up(ask, tmp_path, monkeypatch):
    """It has cost all that it can cost, and its score is known."""
    monkeypatch.setattr(optuna.Trial, "should_prune", lambda trial: True)
    monkeypatch.setattr(study, "SPACE", {"epochs": [1, 2]})
    found = finetune_many(ask(), tmp_path / "run", search="optuna", trials=4, observer=Counting())
    assert {trial.changes["epochs"] for trial in found.trials} == {1, 2}
    assert all((trial.scores is None) == (trial.changes["epochs"] == 2) for trial in found.trials)


def test_what_a_killed_series_left_is_removed_and_a_new_one_says_that_it_is(ask, tmp_path):
    watcher = Counting()
    finetune_many(ask(), tmp_path / "run", seeds=1, resume=True, observer=watcher)
    assert f"{tmp_path / 'run'}: nothing to resume, so new runs begin" in watcher.notes
    for name in (".model.0a1b2c3d", ".summary.json.0a1b2c3d"):
        (tmp_path / "run" / name).mkdir()
    watcher = Counting()
    finetune_many(ask(), tmp_path / "run", seeds=1, resume=True, observer=watcher)
    assert not list((tmp_path / "run").glob(".*"))
    assert not [note for note in watcher.notes if "nothing to resume" in note]


def test_trials_are_compared_where_they_have_seen_as_much(ask, tmp_path, monkeypatch):
    """Not at the same step, nor at the same evaluation: batches may differ in size."""
    told = {}

    def report(trial, value, tenth):
        told.setdefault(trial.number, []).append(tenth)

    monkeypatch.setattr(optuna.Trial, "report", report)
    monkeypatch.setattr(optuna.Trial, "should_prune", lambda trial: False)
    found = finetune_many(ask(), tmp_path / "run", search="optuna", trials=3, observer=Counting())
    epochs = [trial.changes["epochs"] for trial in found.trials]
    assert [told[number] for number in range(3)] == [list(range(10, 10 * count + 1, 10)) for count in epochs]

    told.clear()
    monkeypatch.setattr(study, "SPACE", {"epochs": [1], "batch.size": [2, 4]})
    often = ask(rows=12, evaluation__every=1)
    found = finetune_many(often, tmp_path / "often", search="optuna", trials=6, observer=Counting())
    by_size = {trial.changes["batch.size"]: told[number] for number, trial in enumerate(found.trials)}
    assert by_size == {2: [2, 3, 5, 7, 8, 10], 4: [3, 7, 10]}


def test_a_broken_file_leaves_nothing_behind(ask, tmp_path, capfd):
    path = write_lines(tmp_path / "data" / "a.tsv", ["text\tlabel", "good\tpos\tmore"])
    for options in ({"seeds": 2}, {"search": "grid"}, {"search": "optuna", "trials": 2}):
        with pytest.raises(DataError, match=r"a\.tsv, line 2: 3 columns, not 2"):
            finetune_many(ask(train=path), tmp_path / "run", **options)
        assert not (tmp_path / "run").exists()
        assert capfd.readouterr() == ("", "")  # Optuna would show a traceback
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
