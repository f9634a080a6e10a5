"""Whole fine-tuning runs: they learn, keep the best, stop and go on exactly."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from bertsmith.errors import DataError, InputError, TrainingError
from bertsmith.finetuning.keeping import Observer
from bertsmith.finetuning.run import FinetuningRun
from bertsmith.jobs.evaluate import evaluate
from bertsmith.jobs.finetune import finetune
from bertsmith.jobs.predict import open_task, predictions_of
from bertsmith.tasks.answer_scores import normalise, score_answers
from bertsmith.train.distributed import World
from bertsmith.train.loop import Loop
from bertsmith.train.metrics import read_log
from finetuning.small_tasks import (
    Watcher,
    questions,
    read_json_lines,
    reviews,
    several,
    tagged,
    weights_of,
    write_table,
)

DEEP = {"epochs": 20}
WORDS = "encoder.embeddings.word.weight"


def trained(model):
    """Its weights, but for the word table, of which only a part is trained; that has a test of its own."""
    return {name: weight for name, weight in model.state_dict().items() if name != WORDS}


def assert_same_weights(found, expected):
    found, expected = weights_of(found), weights_of(expected)
    assert found.keys() == expected.keys()
    for name, weight in found.items():
        assert torch.equal(weight, expected[name]), name


@pytest.fixture
def learn(ask, kinds, tmp_path):
    """A run of a kind that learns its file by heart, judged on the same file."""

    def run(kind, name="run", **changes):
        file = kinds[kind][-1]
        more = {"multilabel": {"task__multilabel": True}, "unanswerable": {"task__unanswerable": True}}.get(kind, {})
        watcher = Watcher()
        asked = ask(kind=kinds[kind][1], train=file, dev=file, **{**DEEP, **more, **changes})
        return finetune(asked, tmp_path / name, observer=watcher), watcher

    return run


@pytest.mark.parametrize(
    ("kind", "metric"),
    [("classify", "accuracy"), ("pairs", "f1"), ("multilabel", "f1"), ("choose", "accuracy"), ("tag", "f1"),
     ("answer", "exact_match"), ("unanswerable", "f1"), ("regress", "pearson")],
)  # fmt: skip
def test_every_kind_learns_a_small_file_by_heart(learn, kind, metric):
    """The loss falls, the score rises to the top, and what is written is what the best model says."""
    result, watcher = learn(kind, task__metric=metric)
    assert sum(watcher.losses[-4:]) < 0.6 * sum(watcher.losses[:4])
    assert result.scores[metric] > 0.99
    assert result.metric == metric
    best = max(watcher.evaluations, key=lambda each: each[1][metric])[0]
    assert read_best(result.folder) == best
    stored = json.loads((result.folder / "result.json").read_text())
    assert (stored["scores"], stored["metric"], stored["step"]) == (result.scores, metric, result.progress.step)
    ready = open_task(str(result.folder))
    file = json.loads((result.folder / "config.json").read_text())["dev"]
    found = list(predictions_of(ready, file, labelled=True))
    written = read_json_lines(result.folder / "predictions.jsonl")
    assert ready.task.score([example for example, _ in found], written) == pytest.approx(
        {name: score for name, score in result.scores.items() if name != "loss"}
    )
    keys = ("label", "labels", "choice", "tags", "answer", "id")
    said = [{name: each[name] for name in keys if name in each} for _, each in found]
    assert said == [{name: each[name] for name in keys if name in each} for each in written]


def read_best(folder):
    assert not (folder / "checkpoints").exists()  # several times the model, and of no more use
    return json.loads((folder / "result.json").read_text())["best_step"]


def test_predictions_are_sensible_and_in_order(learn):
    for kind in ("multilabel", "tag"):
        written = read_json_lines(learn(kind, kind)[0].folder / "predictions.jsonl")
        if kind == "multilabel":
            assert [each["labels"] for each in written] == [classes for _, classes in several()]
            continue
        for (words, tags), each in zip(tagged(), written, strict=True):
            assert each["tags"] == tags
            found = [(entity["label"], entity["text"]) for entity in each["entities"]]
            assert found == [("PER", " ".join(words[:2])), ("LOC", words[4])]


def test_what_is_said_follows_the_tuned_threshold(learn):
    """Also in the file of predictions and in the folder that is saved, here of a model that learned little."""
    result, _ = learn("unanswerable", epochs=2)
    threshold = json.loads((result.model / "bertsmith.json").read_text())["task"]["options"]["null_threshold"]
    written = read_json_lines(result.folder / "predictions.jsonl")
    for each in written:
        best = each["candidates"][0]["text"]  # a full stop or an article alone says nothing, and is no answer either
        assert each["answer"] == ("" if each["null_margin"] > threshold or not normalise(best) else best)
    assert any((each["null_margin"] > 0) != (each["null_margin"] > threshold) for each in written)
    golds = {p["qas"][0]["id"]: [a["text"] for a in p["qas"][0]["answers"]] for p in questions(unanswerable=3)}
    found = score_answers(golds, {each["id"]: each["answer"] for each in written})
    assert (found.exact_match, found.f1) == (result.scores["exact_match"], result.scores["f1"])
    dev = json.loads((result.folder / "config.json").read_text())["dev"]
    assert evaluate(str(result.folder), data=dev)["exact_match"] == result.scores["exact_match"]


# Stopping


class Signalling(Watcher):
    """Sends this process a signal at a step, as a scheduler would."""

    def __init__(self, step, number=signal.SIGTERM):
        super().__init__()
        self.step, self.number = step, number

    def on_step(self, values, progress, total):
        super().on_step(values, progress, total)
        if progress.step == self.step:
            os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("kind", ["classify", "tag", "answer"])
def test_a_run_that_was_stopped_goes_on_exactly(ask, kinds, tmp_path, kind):
    """With dropout: weights, log and predictions bit for bit those of a run that nobody disturbed."""
    file = kinds[kind][-1]
    asked = ask(kind=kind, train=file, dev=file, epochs=4, dropout=0.2, layer_decay=0.9, batch__part=32)
    whole = finetune(asked, tmp_path / "whole")
    stopped = finetune(asked, tmp_path / "run", observer=Signalling(5))
    assert (stopped.stopped_by, stopped.model, stopped.progress.step) == ("SIGTERM", None, 5)
    assert not (tmp_path / "run" / "model").exists()
    assert not (tmp_path / "run" / "result.json").exists()
    again = finetune(None, tmp_path / "run", resume=True, observer=Signalling(9, signal.SIGUSR1))
    assert (again.stopped_by, again.progress.step) == ("SIGUSR1", 9)
    watcher = Watcher()
    done = finetune(asked, tmp_path / "run", resume=True, observer=watcher)
    assert watcher.notes == ["going on from step 9"]
    assert watcher.steps == [10, 11, 12]
    assert done.scores == whole.scores
    assert_same_weights(tmp_path / "run", tmp_path / "whole")
    names = ("loss", "rate", "norm", "f1", "accuracy", "exact_match")
    logs = [
        [{name: entry[name] for name in ("kind", "step", *names) if name in entry} for entry in read_log(path)]
        for path in (tmp_path / "run" / "metrics.jsonl", tmp_path / "whole" / "metrics.jsonl")
    ]
    assert logs[0] == logs[1]
    assert [entry["step"] for entry in logs[0] if entry["kind"] == "eval"] == [3, 6, 9, 12]
    for name in ("predictions.jsonl", "examples.jsonl"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    ends = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("run", "whole")]
    assert {**ends[0], "seconds": 0} == {**ends[1], "seconds": 0}


class Whole(nn.Embedding):
    """A word table that is trained as it is."""

    def __new__(cls, table, ids):
        return table


@pytest.mark.parametrize("kind", ["adamw", "bert_adam", "muon"])
@pytest.mark.parametrize("best_step", [6, 12])
def test_training_the_words_of_the_files_alone_changes_nothing(
    ask, small_model, tmp_path, monkeypatch, kind, best_step
):
    """As with the whole table: words that no text has decay as far as the best model was trained."""
    scores = iter([0.1, 0.9, 0.2, 0.9 if best_step == 6 else 0.95] * 2)
    evaluate_as_is = FinetuningRun.evaluate
    monkeypatch.setattr(
        FinetuningRun,
        "evaluate",
        lambda self, loop: evaluate_as_is(self, loop)._replace(figures={"loss": 0.0, "accuracy": next(scores, 1.0)}),
    )
    changes = {"optimizer__kind": kind, "optimizer__weight_decay": 2.0, "epochs": 4}
    changes["layer_decay"] = 1.0 if kind == "muon" else 0.8
    assert finetune(ask(**changes), tmp_path / "used").progress.best_step == best_step
    used = FinetuningRun(ask(**changes), tmp_path / "none", World(), Observer())._ids()
    scores = iter([0.1, 0.9, 0.2, 0.9 if best_step == 6 else 0.95] * 2)
    monkeypatch.setattr("bertsmith.finetuning.run.UsedWords", Whole)
    finetune(ask(**changes), tmp_path / "all")
    found, expected = weights_of(tmp_path / "used"), weights_of(tmp_path / "all")
    assert found.keys() == expected.keys()
    for name, weight in found.items():
        torch.testing.assert_close(
            weight, expected[name], rtol=1e-4, atol=1e-5, msg=lambda text, name=name: name + text
        )
    table = "bert.embeddings.word_embeddings.weight"
    unused = [row for row in range(len(found[table])) if row not in used.tolist()]
    shares = found[table][unused] / load_file(small_model / "model.safetensors")[table][unused]
    assert len(unused) > 20
    assert shares.std() < 1e-5
    assert shares.mean() < 0.98  # that is, something was tested


@pytest.mark.parametrize("which", ["train", "dev"])
@pytest.mark.parametrize(
    "change", [lambda lines: lines[:5], lambda lines: lines + lines[1:], lambda lines: lines[:1] + lines[:0:-1]]
)
def test_a_run_does_not_go_on_with_other_files(ask, tmp_path, which, change):
    """Fewer rows, more, or others in the same words: each would be another run, and no one would know."""
    file = write_table(tmp_path / f"{which}.tsv", ("text", "label"), reviews())
    finetune(ask(**{which: file}, epochs=4), tmp_path / "run", observer=Signalling(5))
    before = file.read_text()
    file.write_text("".join(change(before.splitlines(keepends=True))))
    with pytest.raises(DataError, match=rf"{which}\.tsv: has changed since the run was begun; put the file back"):
        finetune(None, tmp_path / "run", resume=True)
    file.write_text(before)
    assert finetune(None, tmp_path / "run", resume=True).progress.step == 12


@pytest.mark.parametrize("gone", ["model", "report.html"])
def test_a_finished_run_whose_products_are_gone_says_so_or_mends_it(ask, tmp_path, monkeypatch, gone):
    written = []
    monkeypatch.setitem(sys.modules, "bertsmith.report.finetuning", SimpleNamespace(write_report=written.append))
    finetune(ask(), tmp_path / "run")
    (tmp_path / "run" / "report.html").touch()
    finetune(None, tmp_path / "run", resume=True)
    assert written == [tmp_path / "run"]
    if gone == "model":
        shutil.rmtree(tmp_path / "run" / "model")
        with pytest.raises(InputError, match="run: is at its end, and its model is gone; begin a new run in another"):
            finetune(None, tmp_path / "run", resume=True)
        assert len(written) == 1
    else:
        (tmp_path / "run" / "report.html").unlink()
        finetune(None, tmp_path / "run", resume=True)
        assert len(written) == 2


def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint(ask, tmp_path, monkeypatch):
    """Also from the very beginning, where there was none yet."""
    whole = finetune(ask(epochs=4), tmp_path / "whole")
    step = Loop.take_step

    def run_until(number):
        def killed(self, progress):
            if progress.step == number:
                raise KeyboardInterrupt  # nothing of the run has a say any more
            return step(self, progress)

        monkeypatch.setattr(Loop, "take_step", killed)
        with pytest.raises(KeyboardInterrupt):
            finetune(ask(epochs=4, checkpoint__every=4), tmp_path / "run", resume=(tmp_path / "run").exists())
        monkeypatch.setattr(Loop, "take_step", step)

    for number in (2, 7, 11):
        run_until(number)
    done = finetune(None, tmp_path / "run", resume=True)
    assert done.progress.step == 12
    assert done.scores == whole.scores
    assert_same_weights(tmp_path / "run", tmp_path / "whole")


def test_the_best_of_a_path_that_was_left_is_not_taken(ask, tmp_path, monkeypatch):
    """Killed after an evaluation that no checkpoint knows of, and on another path since."""
    step = Loop.take_step

    def killed(self, progress):
        if progress.step == 7:
            raise KeyboardInterrupt
        return step(self, progress)

    monkeypatch.setattr(Loop, "take_step", killed)
    with pytest.raises(KeyboardInterrupt):
        finetune(ask(epochs=4, checkpoint__every=2), tmp_path / "run")
    monkeypatch.setattr(Loop, "take_step", step)
    folder = tmp_path / "run" / "checkpoints"
    (best,) = folder.glob("best-*")
    best.rename(folder / "best-000011")  # as if it were of a later step, and too good for any to come
    for file in folder.glob("*/state.json"):
        file.write_text(json.dumps({**json.loads(file.read_text()), "best_cost": -100.0, "best_step": 1}))
    done = finetune(None, tmp_path / "run", resume=True)
    assert done.progress.step == 12
    assert done.progress.best_cost > -100
    assert done.progress.best_step == 9


def test_a_finished_run_is_not_trained_again(ask, tmp_path):
    done = finetune(ask(), tmp_path / "run")
    before = weights_of(tmp_path / "run")
    watcher = Watcher()
    again = finetune(ask(), tmp_path / "run", resume=True, observer=watcher)
    assert watcher.steps == []
    assert again.scores == done.scores
    assert all(torch.equal(weight, before[name]) for name, weight in weights_of(tmp_path / "run").items())


def test_patience_ends_a_run_and_the_best_is_kept(ask, tmp_path, monkeypatch):
    """Of the scores 0.5, 0.75, 0.5, 0.75 the second is the best for two evaluations: that is the end."""
    told = iter([0.5, 0.75, 0.5, 0.75])
    real = FinetuningRun.evaluate
    kept = {}

    def evaluate(self, loop):
        judged = real(self, loop)
        if len(kept) < 4:  # then comes the one of the best model, at the end
            score = next(told)
            kept[score, len(kept)] = {name: weight.clone() for name, weight in trained(loop.model).items()}
            judged.figures["accuracy"] = score
        return judged

    monkeypatch.setattr(FinetuningRun, "evaluate", evaluate)
    watcher = Watcher()
    result = finetune(ask(epochs=9, patience=2, optimizer__rate=0.01), tmp_path / "run", observer=watcher)
    assert [step for step, _ in watcher.evaluations] == [3, 6, 9, 12]
    assert result.progress.step == 12
    assert result.stopped_by is None
    assert read_best(tmp_path / "run") == 6
    published = open_task(str(tmp_path / "run")).model.state_dict()
    for name, weight in kept[0.75, 1].items():
        assert torch.equal(published[name], weight), name
    assert not torch.equal(published["classifier.weight"], kept[0.75, 3]["classifier.weight"])


def test_the_best_evaluation_is_kept_though_others_follow(ask, tmp_path, monkeypatch):
    """Evaluations every two steps; the published model is that of the best, not of the last."""
    watcher = Watcher()
    asked = ask(epochs=6, evaluation__every=2, optimizer__rate=0.02, task__metric="matthews")
    result = finetune(asked, tmp_path / "run", observer=watcher)
    steps = [step for step, _ in watcher.evaluations]
    assert steps == list(range(2, 19, 2))
    best = max(figures["matthews"] for _, figures in watcher.evaluations)
    first = next(step for step, figures in watcher.evaluations if figures["matthews"] == best)
    assert read_best(tmp_path / "run") == first
    assert result.scores["matthews"] == best
    assert result.scores["loss"] == next(f["loss"] for s, f in watcher.evaluations if s == first)


@pytest.mark.parametrize(("scores", "evaluations"), [((0.5, 0.75), 2), ((0.75, 0.5), 3)])
def test_a_best_model_that_is_the_last_is_not_judged_twice(ask, tmp_path, monkeypatch, scores, evaluations):
    """Its predictions are there; those of an earlier one are made again from its weights."""
    real, judged = FinetuningRun.evaluate, []

    def evaluate(self, loop):
        found = real(self, loop)
        judged.append(found)
        if len(judged) <= 2:
            found.figures["accuracy"] = scores[len(judged) - 1]
        return found

    monkeypatch.setattr(FinetuningRun, "evaluate", evaluate)
    finetune(ask(epochs=2), tmp_path / "run")
    assert len(judged) == evaluations
    said = [json.loads(line) for line in (tmp_path / "run" / "predictions.jsonl").read_text().splitlines()]
    assert said == judged[scores.index(0.75)].predictions != judged[scores.index(0.5)].predictions


def test_no_dropout_is_none_in_the_head_either(ask, tmp_path, small_model):
    shutil.copytree(small_model, tmp_path / "model")
    config = json.loads((small_model / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps({**config, "classifier_dropout": 0.3}))
    kept, none = (
        FinetuningRun(ask(model=tmp_path / "model", **changes), tmp_path / "run", World(), Watcher()).bundle.model
        for changes in ({}, {"dropout": 0.0})
    )
    assert (kept.dropout.p, none.dropout.p) == (0.3, 0.0)


def test_a_run_killed_at_its_very_end_is_cleared_up(ask, tmp_path, monkeypatch):
    """After its result was written, and before its checkpoints had gone."""
    with monkeypatch.context() as patch:
        patch.setattr("bertsmith.finetuning.run.shutil.rmtree", lambda folder: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            finetune(ask(), tmp_path / "run")
    assert list((tmp_path / "run" / "checkpoints").iterdir())
    assert finetune(None, tmp_path / "run", resume=True).model == tmp_path / "run" / "model"
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_without_a_dev_file_the_last_model_is_kept(ask, tmp_path, monkeypatch):
    monkeypatch.setattr("bertsmith.finetuning.run.shutil.rmtree", lambda folder: None)
    result = finetune(ask(dev=None, epochs=3), tmp_path / "run")
    assert result.scores == {}
    assert result.progress.step == 9
    assert not (tmp_path / "run" / "predictions.jsonl").exists()
    last = load_file(tmp_path / "run" / "checkpoints" / "step-000009" / "model.safetensors")
    published = open_task(str(tmp_path / "run")).model.state_dict()
    assert all(torch.equal(published[name], weight) for name, weight in last.items() if name != WORDS)


def test_a_loss_that_is_not_finite_ends_the_run_with_advice(ask, tmp_path):
    with pytest.raises(TrainingError, match="the loss or its gradient is not finite at step"):
        finetune(ask(optimizer__rate=1e30, optimizer__clip=1e30, epochs=9), tmp_path / "run")
    assert not (tmp_path / "run" / "model").exists()


def test_the_same_seed_gives_the_same_model_and_another_another(ask, tmp_path):
    for name, seed in (("one", 0), ("two", 0), ("three", 1)):
        finetune(ask(seed=seed, dropout=0.1), tmp_path / name)
    assert_same_weights(tmp_path / "one", tmp_path / "two")
    with pytest.raises(AssertionError):
        assert_same_weights(tmp_path / "one", tmp_path / "three")


@pytest.mark.parametrize(("kind", "pool"), [("classify", "attention"), ("regress", "mean")])
def test_long_text_is_learned_from_all_of_its_segments(ask, tmp_path, kind, pool):
    """What decides stands beyond the first segment; the pooling by attention is trained and saved."""
    rows = [(f"{'the river was in rome . ' * 3}{text.split()[-1]}", label) for text, label in reviews(16)]
    rows = [(text, label if kind == "classify" else float(label == "pos")) for text, label in rows]
    path = write_table(tmp_path / "a.tsv", ("text", "label"), rows)
    metric, files = "accuracy" if kind == "classify" else "pearson", {"kind": kind, "train": path, "dev": path}
    changes = {"epochs": 40, "optimizer__rate": 1e-2, "task__metric": metric, "task__max_length": 14}
    asked = ask(**files, **changes, task__long__mode="segments", task__long__pool=pool)
    result = finetune(asked, tmp_path / "run")
    assert result.scores[metric] > 0.9
    head = ask(**files, **{**changes, "epochs": 4}, task__long__mode="head")
    assert finetune(head, tmp_path / "head").scores[metric] < 0.6
    ready = open_task(str(tmp_path / "run"))
    assert ready.model.segments.how == pool
    trained = (result.model / "bertsmith.safetensors").exists()
    assert trained == (pool == "attention")
    if trained:
        begun = FinetuningRun(asked, tmp_path, World(), Observer()).bundle.model
        assert not torch.equal(begun.segments.query.weight, ready.model.segments.query.weight)
        further = FinetuningRun(replace(asked, model=str(result.model)), tmp_path, World(), Observer()).bundle.model
        assert torch.equal(further.segments.query.weight, ready.model.segments.query.weight)
    again = evaluate(str(tmp_path / "run"), data=str(path))
    assert again == pytest.approx({name: score for name, score in result.scores.items() if name != "loss"})
