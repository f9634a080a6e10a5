"""Whole runs, small: what is in the run folder, that the model is one for everybody, and how runs end badly."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections import namedtuple
from types import SimpleNamespace

import pytest
import torch
import transformers
from safetensors.torch import load_file

import bertsmith
from absence import absent
from bertsmith.bundle.folder import read_bundle
from bertsmith.errors import TrainingError
from bertsmith.jobs.convert import convert
from bertsmith.jobs.pretrain import make_request, pretrain
from bertsmith.model.initial import continued_positions, log_shares
from bertsmith.pretraining import run
from bertsmith.pretraining.keeping import Observer
from bertsmith.pretraining.settings import Budget
from bertsmith.report.pretraining import write_report
from bertsmith.train import keeping
from bertsmith.train.checkpoint import Progress, load_checkpoint, save_checkpoint
from bertsmith.train.distributed import World
from bertsmith.train.speed import Peak
from pretraining.small_runs import (
    PIECES,
    SHAPE,
    SMALL,
    Watcher,
    build_data,
    make_documents,
    make_tokenizer,
    read_lines,
    write_model,
)

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(scope="module")
def done(data, tmp_path_factory):
    """A finished run of a new tiny model, and its folder."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    changes = {
        **SMALL,
        "checkpoint.every": 10,
        "optimizer.kind": "adamw",
        "optimizer.rate": "5e-3",
        "word_bias": "zero",
    }
    request = make_request(data, size="tiny", budget=Budget(steps=60), changes=changes)
    watcher = Watcher()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeping, "measure_peak", lambda *given, **named: Peak(1e11, "none"))
        result = pretrain(request, folder, observer=watcher)
    return SimpleNamespace(folder=folder, result=result, request=request, watcher=watcher)


def test_the_run_folder_has_everything(done):
    folder = done.folder
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "examples.jsonl",
        "tensorboard",
        "checkpoints",
        "model",
        "report.html",
        "plots",
    }
    kept = sorted(path.name for path in (folder / "checkpoints").iterdir())
    best = done.result.progress.best_step
    assert kept == [f"best-{best:06d}", "step-000050", "step-000060"]
    assert len(list((folder / "plots").glob("*.png"))) == 6
    assert list((folder / "tensorboard").iterdir())
    assert done.result.model == folder / "model"
    assert done.watcher.steps == list(range(1, 61))
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["total"] == 60


def test_both_losses_are_logged_and_fall(done):
    log = read_lines(done.folder / "metrics.jsonl")
    train = [line for line in log if line["kind"] == "train"]
    assert [line["step"] for line in train] == list(range(1, 61))
    for line in train:
        assert line["loss"] == pytest.approx(line["mlm_loss"] + line["pair_loss"])
        assert all(math.isfinite(value) for value in line.values() if isinstance(value, float))
        assert {
            "rate",
            "norm",
            "tokens_per_second",
            "share_of_peak",
            "seconds_left",
            "mlm_accuracy",
            "pair_accuracy",
        } <= set(line)
    evaluations = [line for line in log if line["kind"] == "eval"]
    assert [line["step"] for line in evaluations] == [0, 10, 20, 30, 40, 50, 60]
    assert evaluations[-1]["mlm_loss"] < evaluations[0]["mlm_loss"] - 0.1
    assert evaluations[-1]["loss"] == done.result.figures["loss"]
    assert min(evaluations[1:], key=lambda line: line["loss"])["step"] == done.result.progress.best_step
    assert [line["step"] for line in log if line["kind"] == "fill"] == [
        step for step in range(0, 61, 10) for _ in range(4)
    ]
    assert max(line["rate"] for line in train) == pytest.approx(5e-3)


def test_tensorboard_has_the_same_figures(done):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(done.folder / "tensorboard"))
    board.Reload()
    log = read_lines(done.folder / "metrics.jsonl")
    for kind in ("train", "eval"):
        written = {line["step"]: line["pair_loss"] for line in log if line["kind"] == kind}
        assert {event.step: event.value for event in board.Scalars(f"{kind}/pair_loss")} == pytest.approx(written)


def test_the_examples_of_every_step_are_logged(done):
    log = read_lines(done.folder / "examples.jsonl")
    assert [line["step"] for line in log] == list(range(1, 61))
    assert [line["max_length"] for line in log] == [32] * 45 + [64] * 15
    assert all(line["first"] < line["stop"] for line in log)


def test_the_model_opens_in_transformers_and_fills_in_the_same(done):
    model = done.result.model
    theirs, loading = transformers.BertForPreTraining.from_pretrained(model, output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    ours = bertsmith.load(str(model))
    text = done.result.fills[-1][1][0].gap.text
    (candidates,) = ours.fill(text, top=5)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    inputs = tokenizer(text, return_tensors="pt")
    place = inputs["input_ids"][0].tolist().index(tokenizer.mask_token_id)
    with torch.no_grad():
        scores, best = theirs.eval()(**inputs).prediction_logits[0, place].softmax(0).topk(5)
    assert [candidate.token for candidate in candidates] == tokenizer.convert_ids_to_tokens(best.tolist())
    assert [candidate.score for candidate in candidates] == pytest.approx(scores.tolist(), rel=1e-4)
    shown = done.result.fills[-1][1][0].candidates
    assert [piece for piece, _ in shown] == [candidate.token for candidate in candidates[:3]]


def test_the_published_model_is_for_fine_tuning_and_has_the_last_weights(done):
    config = json.loads((done.result.model / "config.json").read_text(encoding="utf-8"))
    assert (config["hidden_dropout_prob"], config["attention_probs_dropout_prob"]) == (0.1, 0.1)
    assert config["architectures"] == ["BertForPreTraining"]
    published = dict(read_bundle(done.result.model).model.named_parameters())
    last = load_file(done.folder / "checkpoints" / "step-000060" / "model.safetensors")
    assert published.keys() == last.keys()
    assert all(torch.equal(published[name], last[name]) for name in last)
    assert "60 steps of pre-training (modern)" in (done.result.model / "README.md").read_text(encoding="utf-8")


def test_the_best_checkpoint_is_that_of_the_best_evaluation(done, tokenizer):
    from bertsmith.train.distributed import World

    progress = done.result.progress
    loop = run.PretrainingRun(done.request, done.folder, World(), Watcher())
    ready = loop.make_loop(60)
    folder = done.folder / "checkpoints" / f"best-{progress.best_step:06d}"
    stored = load_checkpoint(folder, ready.model, ready.optimizers)
    assert stored.best_cost == progress.best_cost
    ready.model.eval()
    with torch.no_grad():
        assert loop.evaluation(ready.forward)["loss"] == pytest.approx(progress.best_cost, abs=1e-6)


def test_without_pairs_the_model_is_a_masked_lm_without_pooler(ask, tmp_path):
    result = pretrain(ask(4, pairs="none"), tmp_path / "run")
    config = json.loads((result.model / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["BertForMaskedLM"]
    names = load_file(result.model / "model.safetensors").keys()
    assert not any("pooler" in name or "seq_relationship" in name for name in names)
    _, loading = transformers.BertForMaskedLM.from_pretrained(result.model, output_loading_info=True)
    assert not loading["missing_keys"]
    assert not loading["unexpected_keys"]
    assert "pair_loss" not in result.figures
    log = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert not any("pair_loss" in line for line in log)
    assert write_report(tmp_path / "run").exists()
    assert not (tmp_path / "run" / "plots" / "loss-pairs.png").exists()
    assert bertsmith.load(str(result.model)).fill("bar [MASK] bal.")


@pytest.mark.parametrize(
    "changes",
    [
        {"pairs": "sop"},
        {"pairs": "faithful", "masking__faithful": True, "masking__kind": "piece", "optimizer__kind": "bert_adam"},
        {"optimizer__kind": "muon", "masking__kind": "span", "first_rate": 0.3},
        {"masking__kind": "entity", "schedule__kind": "linear", "dropout": 0.1, "batch__part": 64},
        {"masking__kind": "ngram", "schedule__kind": "faithful", "evaluation__every": 3},
    ],
    ids=["sop", "faithful", "muon", "entity", "ngram"],
)
def test_every_choice_runs(ask, changes, tmp_path):
    result = pretrain(ask(4, **changes), tmp_path / "run")
    assert result.progress.step == 4
    assert math.isfinite(result.figures["loss"])


def test_static_copies_run(ask, tmp_path):
    result = pretrain(ask(3, static_copies=2, batch__tokens=100_000, phases="32:1"), tmp_path / "run")
    assert result.progress.step == 3
    assert [line["epoch"] for line in read_lines(tmp_path / "run" / "examples.jsonl")] == [0, 1, 2]


@pytest.mark.parametrize("pairs", ["balanced", "none"])
def test_a_checkpoint_becomes_a_model(ask, tmp_path, pairs):
    """The last one is the model that was published; an earlier one is another."""
    result = pretrain(ask(4, pairs=pairs, checkpoint__every=2), tmp_path / "run")
    last, earlier = (tmp_path / "run" / "checkpoints" / f"step-{step:06d}" for step in (4, 2))
    made = [convert(str(place), tmp_path / place.name) for place in (last, earlier)]
    assert made[0].model.kind == ("mlm" if pairs == "none" else "pretraining")
    weights = [(folder / "model.safetensors").read_bytes() for folder in (tmp_path / last.name, result.model)]
    assert weights[0] == weights[1]
    assert (tmp_path / earlier.name / "model.safetensors").read_bytes() != weights[0]
    assert read_bundle(tmp_path / earlier.name).tokenizer.fingerprint == made[0].tokenizer.fingerprint


def test_parts_do_not_change_the_run(ask, tmp_path):
    whole = pretrain(ask(6), tmp_path / "whole")
    parts = pretrain(ask(6, batch__part=50), tmp_path / "parts")
    assert parts.figures == pytest.approx(whole.figures, rel=1e-4)
    weights = [load_file(result.model / "model.safetensors") for result in (whole, parts)]
    assert all(torch.allclose(weights[0][name], weights[1][name], atol=1e-4) for name in weights[0])


def test_the_same_request_gives_the_same_bytes_and_another_seed_others(ask, tmp_path):
    results = [pretrain(ask(5, seed=seed), tmp_path / name) for name, seed in (("a", 0), ("b", 0), ("c", 1))]
    first, again, other = [(result.model / "model.safetensors").read_bytes() for result in results]
    assert first == again
    assert first != other


def test_positions_go_on_where_longer_examples_begin_also_after_a_stop_just_there(data, tmp_path):
    """Six steps of 32 tokens, two of 64; in one go, and in two."""

    def begin(**changes):
        request = make_request(data, size="tiny", budget=Budget(steps=8), changes={**SMALL, **changes})
        return run.PretrainingRun(request, tmp_path, World(), Observer()).make_loop(8)

    loop, progress = begin(), Progress()
    rows = loop.model.encoder.embeddings.position.weight
    for _ in range(6):
        progress, _ = loop.take_step(progress)
    save_checkpoint(tmp_path / "six", loop.model, loop.optimizers, progress)
    wanted = continued_positions(rows.detach().clone(), 32)
    loop.before_step(loop.model, progress.step, progress.position)
    assert torch.equal(rows, wanted)
    for _ in range(2):
        progress, _ = loop.take_step(progress)
    assert progress.position["phase"] == 1
    again = begin()
    other = load_checkpoint(tmp_path / "six", again.model, again.optimizers)
    while other.step < 8:
        other, _ = again.take_step(other)
    assert torch.equal(again.model.encoder.embeddings.position.weight, rows)
    assert begin(initial="random").before_step is None


def test_a_model_that_was_trained_keeps_its_positions(ask, tmp_path):
    made = run.PretrainingRun(ask(4), tmp_path, World(), Observer())
    assert made.settings.initial == "neighbours"
    assert made.make_loop(4).before_step is None


def test_a_new_model_begins_with_how_often_words_occur(data, tmp_path):
    def begun(**changes):
        request = make_request(data, size="tiny", budget=Budget(steps=4), changes={**SMALL, **changes})
        return run.PretrainingRun(request, tmp_path, World(), Observer())

    made = begun()
    bias = made.make_loop(4).model.mlm.bias
    assert torch.equal(bias.argsort(), log_shares(torch.from_numpy(made.shards.count_pieces())).argsort())
    with torch.no_grad():
        losses = [
            each.evaluation(each.make_loop(4).forward.eval())["mlm_loss"] for each in (made, begun(word_bias="zero"))
        ]
    shares = bias.exp()
    assert losses[0] == pytest.approx(-(shares * bias).sum().item(), abs=0.15)  # the entropy of single words
    assert losses[1] == pytest.approx(math.log(len(bias)), abs=0.15)


def test_rare_words_stay_apart(tmp_path):
    """While a word does not occur, the output layer pushes it away a little, and all the others that do not with it."""
    rare = [f"r{number}" for number in range(400)]
    texts = [f"{text}\n{word} {word}." for text, word in zip(make_documents(400), rare, strict=True)]
    tokenizer = make_tokenizer([*PIECES, *rare])
    data = build_data(tmp_path, texts, tokenizer=tokenizer, holdout=0.0)

    def alike(**changes):
        request = make_request(
            data, size="tiny", budget=Budget(steps=60), changes={**SMALL, "phases": "32:1", **changes}
        )
        loop, progress = run.PretrainingRun(request, tmp_path / "run", World(), Observer()).make_loop(60), Progress()
        while progress.step < 60:
            progress, _ = loop.take_step(progress)
        table = loop.model.encoder.embeddings.word.weight.detach()
        rows = torch.nn.functional.normalize(table[[tokenizer.id_of(word) for word in rare]])
        return (rows @ rows.T).mean().item()

    assert alike() < 0.2
    assert alike(**{"optimizer.eps": 1e-6, "word_bias": "zero"}) > 0.6  # or this would show nothing


def test_a_head_that_was_trained_keeps_its_bias_and_a_new_one_has_the_counts(done, data, tmp_path):
    def bias_of(start):
        request = make_request(data, start=str(start), budget=Budget(steps=4), changes=SMALL)
        made = run.PretrainingRun(request, tmp_path / "run", World(), Observer())
        return made.make_loop(4).model.mlm.bias, log_shares(torch.from_numpy(made.shards.count_pieces()))

    kept, _ = bias_of(done.folder)
    assert torch.equal(kept, load_file(done.folder / "model" / "model.safetensors")["cls.predictions.bias"])
    new, counted = bias_of(write_model(tmp_path / "headless", "encoder"))
    assert torch.equal(new, counted)
    assert not torch.equal(kept, counted)


def test_a_data_set_without_held_out_text_trains_all_the_same(model, tmp_path):
    data = build_data(tmp_path, make_documents(20), holdout=0.0)
    watcher = Watcher()
    request = make_request(data, start=str(model), budget=Budget(steps=3), changes=SMALL)
    result = pretrain(request, tmp_path / "run", observer=watcher)
    assert result.model is not None
    assert (result.figures, result.baselines, result.fills) == ({}, {}, [])
    assert watcher.notes == ["the data set has no held-out documents, so nothing is evaluated"]
    assert sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir()) == ["step-000003"]


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_what_was_saved(ask, tmp_path):
    request = ask(8, optimizer__rate="1e30", checkpoint__every=1, evaluation__every=100)
    with pytest.raises(TrainingError, match=r"not finite at step 2; .*--set optimizer\.rate"):
        pretrain(request, tmp_path / "run")
    assert (tmp_path / "run" / "checkpoints" / "step-000001" / "state.json").exists()
    assert not (tmp_path / "run" / "model").exists()


def test_a_dry_run_measures_and_leaves_nothing(ask, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "_REHEARSED_SECONDS", 0.0)
    result = pretrain(ask(50), tmp_path / "run", dry_run=True)
    assert result.plan.steps == 50
    assert result.plan.seconds > 0
    assert result.progress.step == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dry", [True, False])
def test_too_small_a_disk_is_refused_before_anything_is_written(dry, ask, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "_REHEARSED_SECONDS", 0.0)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, 1000))
    watcher = Watcher()
    with pytest.raises(TrainingError, match="MiB of disk"):
        pretrain(ask(5), tmp_path / "run", dry_run=dry, observer=watcher)
    assert [plan.steps for plan in watcher.plans] == [5], "what was refused is shown"
    assert list(tmp_path.iterdir()) == []


def test_compiled_layers_train_as_plain_ones_do(data, tmp_path):
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        absent("no C++ compiler, which torch.compile needs on a CPU (apt-get install g++)")
    start = write_model(tmp_path / "model", config=SHAPE.derive(num_hidden_layers=1))
    figures = []
    for compiled in (False, True):
        changes = {**SMALL, "compile": compiled, "dropout": 0.0}
        request = make_request(data, start=str(start), budget=Budget(steps=4), changes=changes)
        figures.append(pretrain(request, tmp_path / str(compiled)).figures)
    assert figures[1] == pytest.approx(figures[0], rel=1e-4)
