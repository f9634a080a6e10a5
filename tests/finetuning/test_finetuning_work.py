"""The steps of fine-tuning: which items, in what parts, with what weight; rates, frozen and fresh layers, requests."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
import torch

from bertsmith.bundle.folder import read_bundle
from bertsmith.errors import ConfigError, DataError, InputError
from bertsmith.finetuning.keeping import Observer
from bertsmith.finetuning.request import is_finetuning, read_request
from bertsmith.finetuning.run import FinetuningRun
from bertsmith.finetuning.settings import Settings
from bertsmith.finetuning.work import FinetuningWork, Objective
from bertsmith.jobs.finetune import make_request
from bertsmith.model.heads import build
from bertsmith.model.operations import encoder_operations
from bertsmith.settings import changed
from bertsmith.tasks.choose import ChoiceExample, Choose
from bertsmith.tasks.tables import Place
from bertsmith.tasks.task import Criterion
from bertsmith.train.checkpoint import Progress
from bertsmith.train.distributed import World
from bertsmith.train.request import take_up, write_request
from finetuning.small_tasks import (
    SHAPE,
    make_tokenizer,
    riddles,
    write_json_lines,
    write_lines,
    write_model,
    write_table,
)

TOKENIZER = make_tokenizer()


def items_of(count=23):
    """Questions of two to four choices."""
    made = [
        ChoiceExample(Place("f", n), "where " * (1 + n % 5), tuple(riddles(1, n, 2 + n % 3)[0]["choices"]), n % 2)
        for n in range(count)
    ]
    return Choose.of({}).encode(made, TOKENIZER)


def work_of(items, world=None, criterion=None, **changes):
    settings = changed(Settings(), {name.replace("__", "."): value for name, value in changes.items()})
    return FinetuningWork(items, Choose.of({}), criterion or Criterion(), settings, SHAPE, world or World())


def test_an_epoch_is_a_permutation_of_all_items_cut_into_batches():
    work = work_of(items_of(), batch__size=5)
    for epoch in range(3):
        batches = work.batches(epoch)
        assert [len(batch) for batch in batches] == [5, 5, 5, 5, 3]
        assert sorted(np.concatenate(batches)) == list(range(23))
    assert not np.array_equal(work.batches(0)[0], work.batches(1)[0])
    assert np.array_equal(work.batches(1)[0], work_of(items_of(), batch__size=5).batches(1)[0])
    assert not np.array_equal(work.batches(0)[0], work_of(items_of(), batch__size=5, seed=1).batches(0)[0])


def test_batches_by_tokens_hold_about_as_many():
    items = items_of()
    work = work_of(items, batch__tokens=120)
    batches = work.batches(0)
    sizes = [sum(items[row].num_tokens for row in batch) for batch in batches]
    assert sorted(np.concatenate(batches)) == list(range(23))
    longest = max(item.num_tokens for item in items)
    assert all(abs(size - 120) <= longest for size in sizes[:-1])
    assert len(batches) == -(-sum(item.num_tokens for item in items) // 120)


def test_the_position_walks_through_epochs():
    work = work_of(items_of(), batch__size=10)
    places, position = [], {}
    for number in range(7):
        data = work.step(number, position)
        places.append((data.log["epoch"], data.log["batch"]))
        position = data.position
    assert places == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0)]


def test_shares_and_parts_of_a_step_add_up_to_the_step():
    """Of three processes in parts so small that some have nothing; the gradients are those of the whole."""
    items = items_of()
    model = Objective(build(SHAPE, "choice", seed=2), Choose.of({}), Criterion(smoothing=0.1))

    def gradients(parts, counts):
        model.zero_grad()
        total = 0.0
        for part in parts:
            loss, sums = work_of(items).losses(model, part, counts)
            loss.backward()
            total += sums["loss"].item()
        return [weight.grad.clone() for weight in model.parameters()], total

    idle = 0
    for batch in range(4):
        position = {"epoch": 0, "batch": batch}
        whole = work_of(items, batch__size=6).step(0, position)
        shares = [work_of(items, World(rank, 3), batch__size=6, batch__part=40).step(0, position) for rank in range(3)]
        counts = sum((Counter(share.counts) for share in shares), Counter())
        assert counts == Counter(whole.counts)
        assert len({len(share.parts) for share in shares}) == 1
        assert len(shares[0].parts) > 1
        assert all(share.position == whole.position and share.log == whole.log for share in shares)
        parts = [part for share in shares for part in share.parts]
        idle += sum(weight == 0 for _, weight in parts)
        expected, loss = gradients(whole.parts, whole.counts)
        found, total = gradients(parts, whole.counts)
        assert total == pytest.approx(loss, rel=1e-5)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)
    assert idle


def test_operations_count_every_sequence_of_an_item():
    items = items_of(3)
    data = work_of(items, batch__size=8).step(0, {})
    lengths = [len(sequence) for item in items for sequence in item.ids]
    assert data.counts["operations"] == 3 * encoder_operations(SHAPE, lengths, [1] * len(lengths))
    assert data.counts["tokens"] == sum(lengths)
    assert data.counts["items"] == 3


# What a run is made of


@pytest.fixture
def make_run(ask, tmp_path):
    def make(**changes):
        return FinetuningRun(ask(**changes), tmp_path / "run", World(), Observer())

    return make


def test_the_stable_way_is_taken_unless_another_is_asked_for(make_run):
    """Adam with bias correction (torch's), a tenth of the steps up, then straight down to nothing."""
    loop = make_run().make_loop(100)
    rates = [loop.rate_at(step) for step in (0, 4, 9, 10, 55, 99, 100)]
    assert rates == pytest.approx([0.1, 0.5, 1, 1, 0.5, 1 / 90, 0])
    (optimizer,) = loop.optimizers
    assert type(optimizer) is torch.optim.AdamW
    assert {(group["betas"], group["eps"]) for group in optimizer.param_groups} == {((0.9, 0.999), 1e-8)}


def test_no_warm_up_is_none(make_run):
    loop = make_run(schedule__kind="faithful", schedule__warmup=0).make_loop(10)
    assert [loop.rate_at(step) for step in (0, 1, 9)] == pytest.approx([1, 0.9, 0.1])


def test_each_layer_learns_at_its_own_rate(make_run):
    """Head and pooler at the full rate, the upper layer at half of it, then a quarter, the embeddings an eighth."""
    run = make_run(layer_decay=0.5, optimizer__rate=0.8)
    loop = run.make_loop(10)
    names = {id(weight): name for name, weight in run.bundle.model.named_parameters()}
    rates, decays = {}, {}
    for group in loop.optimizers[0].param_groups:
        for weight in group["params"]:
            rates[names[id(weight)]] = group["peak"]
            decays[names[id(weight)]] = group["weight_decay"]
    assert set(rates) == set(names.values())
    for name, rate in rates.items():
        expected = 0.8
        if name.startswith("encoder.layers.1."):
            expected = 0.4
        elif name.startswith("encoder.layers.0."):
            expected = 0.2
        elif name.startswith("encoder.embeddings."):
            expected = 0.1
        assert rate == pytest.approx(expected), name
    assert decays["classifier.weight"] == 0.01
    assert decays["classifier.bias"] == decays["encoder.embeddings.norm.weight"] == 0.0
    loop.take_step(Progress())
    assert {group["lr"] for group in loop.optimizers[0].param_groups} == {0.8, 0.4, 0.2, 0.1}


@pytest.mark.parametrize(("freeze", "layers"), [(0, 0), (1, 1), (2, 2), (-1, 2)])
def test_frozen_weights_stay_as_they_are_bit_for_bit(make_run, freeze, layers):
    run = make_run(freeze=freeze, optimizer__rate=0.1)
    before = {name: weight.detach().clone() for name, weight in run.bundle.model.named_parameters()}
    loop = run.make_loop(10)
    progress = Progress()
    for _ in range(3):
        progress, _ = loop.take_step(progress)
    frozen = tuple(f"encoder.layers.{n}." for n in range(layers)) + (("encoder.embeddings.",) if freeze else ())
    for name, weight in run.bundle.model.named_parameters():
        assert torch.equal(weight, before[name]) == name.startswith(frozen), name


def test_fresh_layers_begin_anew_and_the_others_do_not(make_run, small_model):
    stored = read_bundle(small_model).model
    one, other = make_run(fresh_layers=1, seed=1).bundle.model, make_run(fresh_layers=1, seed=2).bundle.model
    for name, weight in one.encoder.named_parameters():
        kept = torch.equal(weight, dict(stored.encoder.named_parameters())[name])
        again = torch.equal(weight, dict(other.encoder.named_parameters())[name])
        fresh = name.startswith(("layers.1.", "pooler."))
        norms = fresh and ("norm" in name or name.endswith("bias"))  # these begin at 1 and 0
        assert kept == again == (not fresh or (norms and kept)), name
    matrix = one.encoder.layers[1].up.weight
    assert 0.1 < matrix.std() < 0.3
    assert make_run(fresh_layers=0).bundle.model.encoder.layers[1].up.weight.equal(stored.encoder.layers[1].up.weight)


def test_no_two_new_parts_begin_with_the_same_numbers(make_run):
    """Of a classifier, an attention over segments, layers and a pooler."""
    model = make_run(fresh_layers=2, task__long={"mode": "segments", "pool": "attention"}).bundle.model
    new = {
        name: weight
        for name, weight in model.named_parameters()
        if weight.dim() > 1 and not name.startswith("encoder.embeddings.")
    }
    assert {"classifier.weight", "segments.dense.weight", "encoder.layers.0.attention.qkv.weight"} <= set(new)
    assert len({tuple(weight.flatten()[:4].tolist()) for weight in new.values()}) == len(new)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"freeze": 3}, "freeze: 3, but the model has 2 layers"),
        ({"fresh_layers": 3}, "fresh_layers: 3, but the model has 2 layers"),
        (
            {"freeze": -1, "fresh_layers": 1},
            "freeze: -1 and fresh_layers: 1 of 2 layers would keep new weights untrained",
        ),
        ({"freeze": 1, "fresh_layers": 2}, "freeze: 1 and fresh_layers: 2 of 2 layers would keep new weights"),
        ({"task__max_length": 65}, "max_length: 65 is beyond the model's 64 positions"),
        ({"class_weights": "{pos: -2}"}, r"class_weights\.pos: input should be greater than 0, not -2"),
        ({"class_weights": "balance"}, "class_weights: input should be 'balanced', not 'balance'"),
        ({"class_weights": {"nge": 2.0}}, "class_weights: no class 'nge'; there are neg, pos"),
    ],
)
def test_what_cannot_be_is_refused_before_there_is_a_folder(make_run, tmp_path, changes, what):
    with pytest.raises(ConfigError, match=what):
        make_run(**changes)
    assert list(tmp_path.iterdir()) == []


def test_layer_decay_is_not_for_muon(make_run, tmp_path):
    run = make_run(layer_decay=0.9, optimizer__kind="muon")
    with pytest.raises(ConfigError, match="layer_decay: Muon has one rate for all layers"):
        run.make_loop(10)
    assert list(tmp_path.iterdir()) == []


def test_class_weights_balanced_or_by_name(make_run, tmp_path):
    path = write_lines(tmp_path / "a.tsv", ["text\tlabel", "good\tpos", "great\tpos", "fine\tpos", "bad\tneg"])
    assert make_run(train=path, class_weights="balanced").criterion.class_weights == pytest.approx((2.0, 2 / 3))
    assert make_run(train=path, class_weights={"pos": 3.0}).criterion.class_weights == (1.0, 3.0)
    assert make_run(train=path, smoothing=0.2).criterion == Criterion(None, 0.2)
    path = write_json_lines(tmp_path / "a.jsonl", riddles())
    with pytest.raises(ConfigError, match="class_weights: a task of kind choose has no classes"):
        make_run(kind="choose", train=path, dev=path, class_weights="balanced")
    numbered = write_table(tmp_path / "n.tsv", ("text", "label"), [("good", 1), ("bad", 0)])
    assert make_run(train=numbered, dev=numbered, class_weights="{0: 3}").criterion.class_weights == (3.0, 1.0)


def test_a_file_without_any_label_is_refused(make_run, tmp_path):
    path = write_json_lines(tmp_path / "none.jsonl", [{"text": "good", "labels": []}] * 2)
    with pytest.raises(
        DataError, match=r"none\.jsonl, line 1: neither here nor in any other row is a label; write some"
    ):
        make_run(train=path, dev=None, task__multilabel=True)


def test_smoothing_is_for_what_has_classes(make_run, tmp_path):
    path = write_table(tmp_path / "n.tsv", ("text", "label"), [("good", 1), ("bad", 0)])
    with pytest.raises(ConfigError, match="smoothing: a task of kind regress has no classes to share the truth among"):
        make_run(kind="regress", train=path, dev=path, smoothing=0.1)


def test_a_head_that_knows_the_labels_is_kept_and_another_is_new(make_run, tmp_path):
    folder = write_model(tmp_path / "m", "classification", seed=9, id2label={0: "neg", 1: "pos"})
    stored = read_bundle(folder).model.classifier.weight
    assert torch.equal(make_run(model=folder).bundle.model.classifier.weight, stored)
    other = write_model(tmp_path / "n", "classification", seed=9, id2label={0: "pos", 1: "neg"})
    assert not torch.equal(make_run(model=other).bundle.model.classifier.weight, stored)
    larger = write_model(tmp_path / "o", "classification", seed=9, id2label={0: "neg", 1: "pos", 2: "x"})
    run = make_run(model=larger)
    assert run.bundle.model.classifier.weight.shape == (2, 16)
    assert run.config.id2label == {0: "neg", 1: "pos"}


def test_dropout_as_told(make_run):
    config = make_run(dropout=0.3).bundle.model.config
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.3, 0.3)


@pytest.mark.parametrize(("epochs", "total"), [(3, 9), (0.5, 2), (1.3, 4), (0.01, 1)])
def test_epochs_become_steps(make_run, epochs, total):
    assert make_run(epochs=epochs).total == total


def test_rows_limit_the_training_file_alone(make_run):
    run = make_run(rows=5)
    assert (len(run.train_split.examples), len(run.dev_split.examples)) == (5, 8)


def test_a_file_without_rows_is_refused(make_run, tmp_path):
    path = write_lines(tmp_path / "a.tsv", ["text\tlabel"])
    with pytest.raises(DataError, match=r"a.tsv, line 1: holds no example"):
        make_run(train=path)


# Requests


def test_a_request_comes_back_from_its_folder(ask, tmp_path):
    asked = ask(class_weights={"pos": 2.0}, task__long__mode="segments", rows=3)
    write_request(tmp_path, asked)
    found = read_request(tmp_path)
    assert take_up(asked, found).settings == asked.settings
    assert json.loads(json.dumps(found.options)) == json.loads(json.dumps(asked.options))
    assert is_finetuning(tmp_path)
    (tmp_path / "config.json").write_text('{"shards": "data"}')
    assert not is_finetuning(tmp_path)
    with pytest.raises(
        ConfigError, match=r"config.json: is not the configuration of a fine-tuning run \('bertsmith'\)"
    ):
        read_request(tmp_path)


def test_a_run_goes_on_with_a_version_that_has_another_option(ask, tmp_path):
    asked = ask()
    write_request(tmp_path, asked)
    content = json.loads((tmp_path / "config.json").read_text())
    del content["options"]["both_orders"]
    (tmp_path / "config.json").write_text(json.dumps(content))
    assert read_request(tmp_path).options == asked.options
    take_up(asked, read_request(tmp_path))
    with pytest.raises(InputError, match=r"^task.both_orders: the run was begun with False, not True; go on with"):
        take_up(ask(task__both_orders=True), read_request(tmp_path))


def test_a_run_goes_on_as_it_was_begun(ask):
    stored = ask()
    free = ask(batch__part=64, checkpoint__every=3, spread="fsdp")
    taken = take_up(free, stored)
    assert (taken.settings.batch.part, taken.settings.checkpoint.every, taken.settings.spread) == (64, 3, "fsdp")
    for changes, name in (({"seed": 3}, "seed"), ({"rows": 2}, "rows"), ({"task__max_length": 16}, "task.max_length")):
        with pytest.raises(
            InputError,
            match=f"^{name}: the run was begun with .*; go on with --resume and the set",
        ):
            take_up(ask(**changes), stored)


def test_a_request_is_made_of_preset_file_and_changes_in_this_order(tmp_path, small_model):
    config = tmp_path / "a.yaml"
    config.write_text("epochs: 7\noptimizer: {rate: 1.0e-4}\ntask: {max_length: 40, columns: {text: words}}\n")
    made = make_request(
        str(small_model), preset="cola", train="a.tsv", config=config, changes={"epochs": "9", "task.long.mode": "tail"}
    )
    assert (made.kind, made.settings.epochs, made.settings.optimizer.rate) == ("classify", 9.0, 1e-4)
    assert made.settings.batch.size == 32
    assert made.options["metric"] == "matthews"
    assert made.options["max_length"] == 40
    assert made.options["columns"] == {"text": "words", "label": 2}
    assert made.options["long"] == {"mode": "tail", "pool": "max", "head": None}
    assert made.train.startswith("/")
    assert made.model == str(small_model)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({}, "what task. Name its kind with --task, or a --preset"),
        ({"preset": "mrcp"}, "preset: 'mrcp' is not one of afqmc, "),
        ({"preset": "mrpc", "kind": "tag"}, "preset mrpc: is of kind classify, not tag"),
        (
            {"kind": "tag", "changes": {"task.long.mode": "tail"}},
            "task.long.mode: is for classify and regress and choose; tags and answers read long text",
        ),
        ({"kind": "tag", "changes": {"epochs": "0"}}, "epochs: "),
        ({"kind": "tag", "changes": {"epoch": "2"}}, "epoch: there is no such setting; there are batch, "),
        ({"kind": "tag", "changes": {"task.metric": "accuraccy"}}, "metric: 'accuraccy' is not one of f1, "),
        ({"kind": "tag", "rows": 0}, "--rows: must be 1 or more, not 0"),
    ],
)
def test_impossible_requests_are_refused(small_model, given, what):
    with pytest.raises(ConfigError, match=what):
        make_request(str(small_model), train="a.tsv", **given)
