"""Evaluation on held-out text: the same examples for every run, and the same figures however they are computed."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from bertsmith.data.shards import ShardSet
from bertsmith.model.heads import build
from bertsmith.pretraining import evaluation as module
from bertsmith.pretraining.evaluation import Evaluation
from bertsmith.pretraining.recipes import modern
from bertsmith.pretraining.work import Objective, count_parts
from bertsmith.settings import changed
from bertsmith.train.distributed import World
from pretraining.small_runs import SHAPE, both_splits, build_data, make_documents


@pytest.fixture(scope="module")
def objective():
    return Objective(build(SHAPE, "pretraining", seed=1)).eval().requires_grad_(requires_grad=False)


@pytest.fixture
def evaluate(splits, tokenizer):
    """An evaluation on the small data set, with some changes to the settings."""

    def make(*, world=None, held_out=splits[1], **changes):
        chosen = {"phases": "32:1", "batch.tokens": 256, **{n.replace("__", "."): v for n, v in changes.items()}}
        return Evaluation(held_out, tokenizer, changed(modern(), chosen), world or World())

    return make


def examples_of(evaluation):
    """All that is evaluated, by one process."""
    return [evaluation._share(examples, rows) for examples, rows in evaluation._batches]


class Recording(World):
    """One of several processes, without the others: keeps its own sums, and gives back those of all when told."""

    def sum(self, values):
        self.__dict__.setdefault("own", []).append(list(values))
        return self.__dict__.get("total") or list(values)


def test_documents_of_one_sentence_are_evaluated_without_pairs(evaluate, objective, tokenizer, tmp_path):
    first_lines = [document.splitlines()[0] for document in make_documents(60)]
    held_out = ShardSet(build_data(tmp_path, first_lines, tokenizer=tokenizer), "holdout")
    assert held_out.num_documents > 1
    figures = evaluate(held_out=held_out)(objective)
    assert "mlm_loss" in figures
    assert "pair_loss" not in figures


def test_the_figures_are_the_same_at_every_call_and_with_every_seed(evaluate, objective):
    figures = evaluate()(objective)
    assert set(figures) == {
        "loss",
        "mlm_loss",
        "mlm_accuracy",
        "perplexity",
        "masked_share",
        "pair_loss",
        "pair_accuracy",
    }
    assert evaluate()(objective) == figures
    assert evaluate(seed=99, static_copies=2, optimizer__rate=1)(objective) == figures
    assert evaluate(first_rate=0.5)(objective) == figures


def test_how_the_examples_are_cut_into_batches_does_not_show(evaluate, objective, monkeypatch):
    whole = evaluate()
    assert len(examples_of(whole)) == 1
    figures = whole(objective)
    monkeypatch.setattr(module, "_BATCH_TOKENS", 100)
    cut = evaluate()
    assert len(examples_of(cut)) > 3
    assert cut(objective) == pytest.approx(figures, rel=1e-5)
    assert cut.baselines() == whole.baselines()


@pytest.mark.parametrize("size", [2, 3, 7])
def test_the_shares_of_several_processes_add_up_to_the_whole(evaluate, objective, size, monkeypatch):
    monkeypatch.setattr(module, "_BATCH_TOKENS", 100)  # fewer examples than processes: some shares are empty
    figures = evaluate()(objective)
    worlds = [Recording(rank, size) for rank in range(size)]
    for world in worlds:
        evaluate(world=world)(objective)
    total = [sum(values) for values in zip(*(world.own[0] for world in worlds), strict=True)]
    for world in worlds:
        world.__dict__["total"] = total
        assert evaluate(world=world)(objective) == pytest.approx(figures, rel=1e-5)


def test_figures_of_a_batch_by_hand(evaluate, objective):
    evaluation = evaluate()
    (part,) = examples_of(evaluation)
    scores = objective(*part.tensors)
    figures = evaluation(objective)
    assert figures["mlm_loss"] == pytest.approx(float(scores.mlm_loss) / len(part.tensors[3]))
    assert figures["pair_accuracy"] == pytest.approx(float(scores.pair_correct) / len(part.tensors[5]))
    assert figures["loss"] == figures["mlm_loss"] + figures["pair_loss"]


def test_baselines_name_the_commonest_piece_and_kind(evaluate):
    evaluation = evaluate()
    (part,) = examples_of(evaluation)
    words, pairs = Counter(part.tensors[4].tolist()), Counter(part.tensors[5].tolist())
    assert evaluation.baselines() == {
        "mlm_accuracy": words.most_common(1)[0][1] / words.total(),
        "pair_accuracy": pairs.most_common(1)[0][1] / pairs.total(),
    }
    assert set(evaluate(pairs="none").baselines()) == {"mlm_accuracy"}


def test_only_so_many_tokens_are_evaluated_but_always_an_example(evaluate):
    def tokens(number):
        return count_parts(examples_of(evaluate(evaluation__tokens=number)))["tokens"]

    assert tokens(1) > 0
    assert 200 - 32 < tokens(200) <= 200
    assert tokens(10**6) > 400
    assert max(part.tensors[2].max() for part in examples_of(evaluate(phases="16:0.5,64:0.5"))) <= 16


def test_one_held_out_document_makes_no_pairs(tmp_path, evaluate, objective):
    documents = make_documents(40)
    for seed in range(40):  # a split that leaves just one
        folder = build_data(tmp_path / str(seed), documents[seed : seed + 12], holdout=0.1)
        held_out = both_splits(folder)[1]
        if held_out.num_documents == 1:
            break
    assert held_out.num_documents == 1
    evaluation = evaluate(held_out=held_out)
    assert evaluation
    assert "pair_loss" not in evaluation(objective)
    assert set(evaluation.baselines()) == {"mlm_accuracy"}


def test_without_held_out_documents_there_is_nothing_to_evaluate(tmp_path, evaluate):
    held_out = ShardSet(build_data(tmp_path, make_documents(5), holdout=0.0), "holdout")
    assert held_out.num_documents == 0
    evaluation = evaluate(held_out=held_out)
    assert not evaluation
    assert evaluation.baselines() == {}


def test_examples_without_a_mask_score_nothing(evaluate, objective):
    evaluation = evaluate(masking__rate=1e-9)
    assert evaluation.baselines()["mlm_accuracy"] == 0.0
    assert evaluation(objective)["mlm_loss"] == 0.0


def test_a_model_in_training_mode_would_show(evaluate):
    """The evaluation itself leaves the mode to the loop: dropout must not be on when it is called."""
    noisy = Objective(build(SHAPE.derive(hidden_dropout_prob=0.5), "pretraining", seed=1))
    with torch.no_grad():
        assert evaluate()(noisy.train())["loss"] != evaluate()(noisy.train())["loss"]
        assert evaluate()(noisy.eval())["loss"] == evaluate()(noisy.eval())["loss"]
