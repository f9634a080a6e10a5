"""What a run is besides its settings: its model, the head that it begins with, the classes of its file; who is told."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bertsmith.bundle.fitting import tensors_of
from bertsmith.bundle.resolve import find_model
from bertsmith.errors import DataError, InputError, ModelNotFoundError
from bertsmith.finetuning.run import FinetuningRun
from bertsmith.jobs.finetune import finetune, finetune_many
from bertsmith.jobs.report import report
from bertsmith.tasks import kinds
from bertsmith.tasks.classify import Classify
from bertsmith.train.distributed import World
from bertsmith.train.metrics import read_log
from finetuning.small_tasks import Watcher, reviews, weights_of, write_model, write_table


def begin(request, tmp_path):
    """A run that is not trained, and what it said."""
    watcher = Watcher()
    return FinetuningRun(request, tmp_path / "none", World(), watcher), watcher.notes


def test_a_run_does_not_go_on_with_another_model(ask, tmp_path):
    """Rows of the word table that no text has come from it in the end, and seeds of two models are no series."""
    base = write_model(tmp_path / "base", seed=1)
    finetune_many(ask(model=base, epochs=1), tmp_path / "runs", seeds=1)
    finetune(ask(model=base, epochs=1), tmp_path / "run")
    shutil.move(base, tmp_path / "before")
    write_model(base, seed=2)
    said = r"base: has changed since the run was begun; put the model back as it was, or begin a new run"
    with pytest.raises(DataError, match=said):
        finetune_many(ask(model=base, epochs=1), tmp_path / "runs", seeds=2, resume=True)
    with pytest.raises(DataError, match=said):
        finetune(None, tmp_path / "run", resume=True)
    shutil.rmtree(base)
    shutil.move(tmp_path / "before", base)
    assert len(finetune_many(ask(model=base, epochs=1), tmp_path / "runs", seeds=2, resume=True).trials) == 2


def test_remarks_are_kept_in_the_log_and_shown_in_the_report(ask, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "bertsmith.report.finetuning")
    rows = [*reviews(), ("the river was good " * 9, "pos")]
    file = write_table(tmp_path / "train.tsv", ("text", "label"), rows)
    finetune(ask(train=file, epochs=1), tmp_path / "run")
    said = "1 of 13 training texts are longer than 32 pieces, and are cut; see --max-length and --long"
    notes = [entry["text"] for entry in read_log(tmp_path / "run" / "metrics.jsonl") if entry["kind"] == "note"]
    assert notes == [said]
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Remarks" in page
    assert said in page


@pytest.mark.parametrize("kind", ["pairs", "choose", "regress"])
def test_a_head_is_kept_only_for_the_same_kind_of_task_and_that_is_said(ask, kinds, tmp_path, kind):
    """A head for numbers has the shape of one for choices."""
    task, file = kinds[kind][1], kinds[kind][-1]
    first = finetune(ask(kind=task, train=file, dev=file), tmp_path / "first")
    run, notes = begin(ask(model=first.folder, kind=task, train=file, dev=None), tmp_path)
    stored = weights_of(first.folder)["classifier.weight"]
    assert np.array_equal(run.bundle.model.classifier.weight.detach(), stored)
    classes = ", with the classes 0, 1" if kind == "pairs" else ""
    assert notes == [f"{first.folder}: its head for {task}{classes} is kept, and trained further"]
    other = {"choose": "regress", "regress": "choose", "pairs": "classify"}[kind]
    run, notes = begin(ask(model=first.folder, kind=kinds[other][1], train=kinds[other][-1], dev=None), tmp_path)
    assert notes == []
    assert not np.array_equal(run.bundle.model.classifier.weight.detach(), stored)


@pytest.mark.parametrize(
    ("head", "num_labels", "kind", "kept"),
    [
        ("classification", 1, "regress", True),
        ("classification", 1, "choose", False),  # the same shape
        ("classification", 3, "regress", False),
        ("classification", 3, "answer", False),
        ("choice", 1, "choose", True),
        ("choice", 1, "regress", False),
        ("tagging", 3, "regress", False),
        ("span", 2, "answer", True),
        ("pretraining", 2, "answer", False),
    ],
)
def test_of_a_model_from_elsewhere_a_head_of_the_same_kind_is_kept(ask, kinds, tmp_path, head, num_labels, kind, kept):
    model = write_model(tmp_path / "model", head, num_labels=num_labels, id2label=None)
    (model / "bertsmith.json").unlink(missing_ok=True)
    run, notes = begin(ask(model=model, kind=kinds[kind][1], train=kinds[kind][-1], dev=None), tmp_path)
    assert notes == ([f"{model}: its head for {kind} is kept, and trained further"] if kept else [])
    name = "qa_outputs" if kind == "answer" else "classifier"
    stored = load_file(model / "model.safetensors").get(f"{name}.weight")
    begun = tensors_of(run.bundle.model)[f"{name}.weight"].detach()
    assert (stored is not None and torch.equal(begun, stored)) == kept


def test_the_first_rows_are_trained_on_with_the_classes_of_all(ask, tmp_path):
    rows = [("the river was good", "pos"), ("the stone was bad", "neg"), ("the key was fine", "neutral")]
    train = write_table(tmp_path / "train.tsv", ("text", "label"), rows)
    dev = write_table(tmp_path / "dev.tsv", ("text", "label"), rows[::-1])
    run, _ = begin(ask(train=train, dev=dev, rows=2), tmp_path)
    assert run.task.labels == ("neg", "neutral", "pos")
    assert len(run.train_split.items) == 2


class Shouted(Classify):
    """A kind of task that nobody has heard of: what it says differs from what `classify` does."""

    kind = "shout"

    def decode(self, examples, items, outputs):
        return [{"said": self.labels[int(shares.argmax())].upper()} for shares in outputs]

    def score(self, examples, predictions):
        right = [example.label.upper() == said["said"] for example, said in zip(examples, predictions, strict=True)]
        return {"accuracy": float(np.mean(right))}


def test_a_new_kind_needs_its_class_and_its_name_and_nothing_else(ask, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "bertsmith.report.finetuning")
    monkeypatch.setitem(kinds.KINDS, "shout", Shouted)
    request = ask(kind="shout", epochs=20)
    result = finetune(replace(request, dev=request.train), tmp_path / "run")
    assert result.scores["accuracy"] == 1.0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "shout" in page
    assert "100.0%" in page


class Naming(Watcher):
    """Remembers which runs it was told of."""

    def __init__(self):
        super().__init__()
        self.runs = []

    def on_run(self, name, changes):
        self.runs.append((name, changes))


def test_several_runs_say_which_one_begins(ask, tmp_path):
    watcher = Naming()
    finetune_many(ask(epochs=1), tmp_path / "run", seeds=2, observer=watcher)
    assert watcher.runs == [("seed-000", {"seed": 0}), ("seed-001", {"seed": 1})]
    watcher = Naming()
    finetune_many(ask(epochs=1), tmp_path / "run", seeds=3, resume=True, observer=watcher)
    assert watcher.runs == [("seed-002", {"seed": 2})]
    with pytest.raises(InputError, match="it holds several runs; they go on with the whole command that began them"):
        finetune(None, tmp_path / "run", resume=True)


def test_what_is_not_finished_says_so(ask, tmp_path):
    finetune_many(ask(epochs=1), tmp_path / "runs", seeds=1)
    for left in ("summary.json", "report.html"):
        (tmp_path / "runs" / left).unlink(missing_ok=True)
    for folder in (tmp_path / "runs", tmp_path / "runs" / "seed-000"):
        shutil.rmtree(folder / "model")
        if (folder / "result.json").is_file():  # it is, but for its model
            with pytest.raises(ModelNotFoundError, match="seed-000: is at its end, and its model is gone; begin a new"):
                find_model(str(folder))
            (folder / "result.json").unlink()
        with pytest.raises(
            ModelNotFoundError, match=f"{folder.name}: is not finished, so there is no model yet; go on"
        ):
            find_model(str(folder))
    with pytest.raises(InputError, match="runs: these runs have a page together when all are done"):
        report(tmp_path / "runs")
