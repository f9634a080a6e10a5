"""`classify` and `regress`: long text, losses and scores, each against something done by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn import metrics

from bertsmith.errors import ConfigError, DataError, InputError
from bertsmith.model.heads import build
from bertsmith.tasks.classify import Classify
from bertsmith.tasks.regress import Regress
from bertsmith.tasks.tables import Place
from bertsmith.tasks.task import Criterion, TaskBatch, say_cut
from bertsmith.tasks.texts import LongOptions, TextExample, encode_texts, is_cut
from finetuning.small_tasks import SHAPE, make_tokenizer, write_json_lines

TOKENIZER = make_tokenizer()


def example(text, label=None, pair=None, line=1):
    return TextExample(Place("f.tsv", line), text, pair, label)


def tokens(sequence):
    return " ".join(TOKENIZER.piece(number) for number in sequence.tolist())


# Encoding


def test_texts_that_are_cut_are_counted_unless_someone_has_said_how():
    examples = [example("river " * length, "x") for length in (2, 6, 7, 30)]  # 6 fill a sequence of 8
    task = Classify.of({"max_length": 8}, ["x"])
    assert task.count_cut(examples, task.encode(examples, TOKENIZER), TOKENIZER) == 2
    said = ["2 of 4 training texts are longer than 8 pieces, and are cut; see --max-length and --long"]
    assert say_cut(task, 2, "4 training texts") == said
    assert say_cut(task, 0, "4 training texts") == []
    assert task.count_cut(examples[:2], task.encode(examples[:2], TOKENIZER), TOKENIZER) == 0
    long = task.changed(**{"long.mode": "tail"})
    assert long.count_cut(examples, long.encode(examples, TOKENIZER), TOKENIZER) == 0


@pytest.mark.parametrize("mode", ["head", "tail", "head+tail", "segments"])
def test_second_texts_are_cut_whatever_the_mode_and_counted(mode):
    """Of 13 pieces, 5 are the second text's, or what a short first text leaves of 10."""
    pairs = [("river " * one, "paris " * two) for one, two in [(9, 5), (9, 6), (2, 8), (2, 9), (9, 1), (1, 30)]]
    examples = [example(text, "x", pair) for text, pair in pairs]
    task = Classify.of({"max_length": 13, "long": {"mode": mode}}, ["x"])
    items = task.encode(examples, TOKENIZER)
    lost = [(item.types[0] == 1).sum() - 1 < len(one.pair.split()) for one, item in zip(examples, items, strict=True)]
    assert lost == [False, True, False, True, False, True]
    assert task.count_cut(examples, items, TOKENIZER) == 3
    (said,) = say_cut(task, 3, "6 training texts")
    assert said.startswith("3 of 6 training texts have a second text that is cut to go with the first into 13 pieces")


@pytest.mark.parametrize("mode", ["head", "tail", "head+tail", "segments"])
def test_a_pair_that_fits_is_read_whole_with_every_way_of_reading_long_text(mode):
    pair = example("anna", pair="river " * 11)
    plain, long = (encode_texts([pair], TOKENIZER, 16, LongOptions(mode=each))[0] for each in (None, mode))
    assert [ids.tolist() for ids in long[0]] == [ids.tolist() for ids in plain[0]]
    assert tokens(long[0][0]).count("river") == 11


def test_texts_are_encoded_as_the_tokenizer_does():
    task = Classify.of({"max_length": 8})
    plain, paired = example("the river was good"), example("who is anna", pair="the stone was bad")
    (item,) = task.encode([plain], TOKENIZER)
    assert tokens(item.ids[0]) == "[CLS] the river was good [SEP]"
    assert item.types[0].tolist() == [0] * 6
    (item,) = task.encode([paired], TOKENIZER)
    expected = TOKENIZER.encode("who is anna", "the stone was bad", max_length=8)
    assert (item.ids[0].tolist(), item.types[0].tolist()) == (expected.ids, expected.type_ids)


WORDS = "the river was good in winter"  # six pieces


@pytest.mark.parametrize(
    ("mode", "head", "read"),
    [
        ("head", 128, ["the river was good"]),
        ("tail", 128, ["was good in winter"]),
        ("head+tail", 1, ["the good in winter"]),
        ("head+tail", 3, ["the river was winter"]),
        ("head+tail", 128, ["the river was winter"]),
        ("head+tail", None, ["the good in winter"]),  # a quarter
        ("segments", 128, ["the river was", "good in winter"]),
    ],
)
def test_each_way_with_long_text(mode, head, read):
    """Room for four pieces of six."""
    long = LongOptions(mode=mode, head=head)
    ((ids, types),) = encode_texts([example(WORDS)], TOKENIZER, 6, long)
    assert [tokens(each) for each in ids] == [f"[CLS] {part} [SEP]" for part in read]
    assert [each.tolist() for each in types] == [[0] * len(each) for each in ids]
    ((short, _),) = encode_texts([example("the river")], TOKENIZER, 6, long)
    assert [tokens(each) for each in short] == ["[CLS] the river [SEP]"]
    ((empty, _),) = encode_texts([example("")], TOKENIZER, 6, long)
    assert [tokens(each) for each in empty] == ["[CLS] [SEP]"]


@pytest.mark.parametrize("mode", ["head", "tail", "head+tail", "segments"])
def test_a_second_text_goes_with_every_sequence_up_to_half_of_it(mode):
    long = LongOptions(mode=mode, head=2)
    ((ids, types),) = encode_texts([example(WORDS, pair="a b c d e f g")], TOKENIZER, 9, long)
    for each, kinds in zip(ids, types, strict=True):
        assert len(each) <= 9
        assert tokens(each).endswith("[SEP] a b c [SEP]")
        assert kinds.tolist() == [0] * (len(each) - 4) + [1] * 4
    assert len(ids) == (2 if mode == "segments" else 1)
    ((ids, _),) = encode_texts([example(WORDS, pair="a")], TOKENIZER, 9, long)
    assert tokens(ids[0]).endswith("[SEP] a [SEP]")


def test_segments_are_all_of_the_text_in_equal_parts():
    text = " ".join(["the", "river", "was"] * 33)
    ((ids, _),) = encode_texts([example(text)], TOKENIZER, 12, LongOptions(mode="segments"))
    inner = np.concatenate([each[1:-1] for each in ids])
    assert inner.tolist() == TOKENIZER.encode_ids([text])[0][1:-1]
    assert len(ids) == 10
    assert {len(each) - 2 for each in ids} == {9, 10}


def model_of(task, labels=3, seed=0):
    model = build(SHAPE.derive(num_labels=labels, id2label=None), "classification", seed=seed).eval()
    task.attach(model, torch.Generator().manual_seed(seed))
    return model


@pytest.mark.parametrize("pool", ["max", "mean", "attention"])
def test_segments_are_joined_after_the_encoder(pool):
    """Against each segment alone through the encoder, and the pooling written out."""
    task = Classify.of({"max_length": 6 + 2, "long": {"mode": "segments", "pool": pool}}).with_labels("abc")
    model = model_of(task)
    texts = [" ".join(["the river was good in winter"] * 3), "the stone", " ".join(["bad"] * 8)]
    items = task.encode([example(text) for text in texts], TOKENIZER)
    assert [len(item.ids) for item in items] == [3, 1, 2]
    with torch.no_grad():
        together = task.logits(model, TaskBatch.of(items))
        for item, logits in zip(items, together, strict=True):
            rows = torch.cat(
                [
                    model.encoder.encode_pooled(torch.from_numpy(ids).long(), None, torch.tensor([len(ids)]))
                    for ids in item.ids
                ]
            )
            if pool == "max":
                joined = rows.max(0).values
            elif pool == "mean":
                joined = rows.mean(0)
            else:
                scores = model.segments.query(torch.tanh(model.segments.dense(rows)))[:, 0]
                joined = (scores.softmax(0)[:, None] * rows).sum(0)
            torch.testing.assert_close(model.classifier(joined), logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [Classify, Regress])
def test_both_orders_of_a_pair_are_one_answer(kind):
    """Against each order alone through the encoder; turned round, a pair says the same, which it does not otherwise."""
    task = kind.of({"both_orders": True}, "abc" if kind is Classify else ())
    model = model_of(task, task.num_outputs or 3)
    pairs = [("the river was good", "bad"), ("stone in winter", "the river was in rome")]
    read = [example(text, pair=pair) for text, pair in [*pairs, *((pair, text) for text, pair in pairs)]]
    one = kind.of({}, task.labels)
    with torch.no_grad():
        both = task.logits(model, TaskBatch.of(task.encode(read, TOKENIZER)))
        batch = TaskBatch.of(one.encode(read, TOKENIZER))
        alone = model.encoder.encode_pooled(batch.input_ids, batch.token_type_ids, batch.lengths)
        torch.testing.assert_close(both[:2], model.classifier((alone[:2] + alone[2:]) / 2), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(both[:2], both[2:], rtol=1e-5, atol=1e-5)
        single = one.logits(model, batch)
    assert (single[:2] - single[2:]).abs().min() > 1e-4


def test_both_orders_of_long_pairs():
    """A pair that does not fit into 10 pieces is cut in both orders, and counted once."""
    sizes = [(4, 5), (5, 5), (9, 2), (2, 9), (9, 6)]
    read = [example("river " * one, "x", "paris " * two) for one, two in sizes]
    task = Classify.of({"max_length": 13, "both_orders": True}, ["x"])
    items = task.encode(read, TOKENIZER)
    assert task.count_cut(read, items, TOKENIZER) == 3
    assert [task.cuts([one], TOKENIZER) for one in read] == [False, False, True, True, True]
    assert [[len(ids) for ids in item.ids] for item in items] == [[12, 12], [13, 13], [13, 13], [13, 13], [13, 13]]


@pytest.mark.parametrize("mode", ["head", "tail", "head+tail", "segments"])
def test_both_orders_do_not_go_with_long(mode):
    with pytest.raises(ConfigError, match=r"^both_orders: makes each text the first once, and long is about the first"):
        Classify.of({"both_orders": True, "long": {"mode": mode}})


def test_both_orders_of_one_text_are_refused():
    with pytest.raises(InputError, match=r"there is no second text, and both orders of a pair are asked for$"):
        Classify.of({"both_orders": True}, ["x"]).encode([example("river")], TOKENIZER)


def test_attaching_again_keeps_what_is_trained():
    task = Classify.of({"long": {"mode": "segments", "pool": "attention"}}).with_labels("abc")
    model = model_of(task)
    before = model.segments
    task.attach(model, torch.Generator().manual_seed(9))
    assert model.segments is before
    task.changed(**{"long.pool": "mean"}).attach(model)
    assert model.segments.how == "mean"


# Losses


def batch_of(targets, groups=None):
    targets = torch.tensor(targets)
    groups = torch.ones(len(targets), dtype=torch.int64) if groups is None else torch.tensor(groups)
    nothing = torch.zeros(1, dtype=torch.int64)
    return TaskBatch(nothing, nothing, groups, groups, None, targets)


LOGITS = torch.tensor([[2.0, 0.5, -1.0], [0.0, 0.0, 3.0], [1.0, -2.0, 0.25]])


def test_the_loss_of_classes_by_hand():
    task = Classify.of({}).with_labels("abc")
    logs = [[math.log(math.exp(x) / sum(math.exp(y) for y in row)) for x in row] for row in LOGITS.tolist()]
    targets = [0, 2, 1]
    plain = -sum(row[target] for row, target in zip(logs, targets, strict=True))
    assert task.loss(LOGITS, batch_of(targets), Criterion()).item() == pytest.approx(plain, rel=1e-6)
    smooth = 0.9 * plain - 0.1 * sum(sum(row) / 3 for row in logs)
    assert task.loss(LOGITS, batch_of(targets), Criterion(smoothing=0.1)).item() == pytest.approx(smooth, rel=1e-6)
    weights = (1.0, 2.0, 5.0)
    weighted = -sum(weights[target] * row[target] for row, target in zip(logs, targets, strict=True))
    found = task.loss(LOGITS, batch_of(targets), Criterion(weights)).item()
    assert found == pytest.approx(weighted, rel=1e-6)
    items = [SimpleNamespace(targets=np.array([target])) for target in targets]
    assert task.weigh(items, Criterion(weights)) == 8.0
    assert task.weigh(items, Criterion()) == 3.0
    mean = F.cross_entropy(LOGITS, torch.tensor(targets), weight=torch.tensor(weights))
    assert found / 8 == pytest.approx(mean.item(), rel=1e-6)


def test_the_loss_of_several_classes_is_a_mean_over_them():
    task = Classify.of({"multilabel": True}).with_labels("abc")
    targets = [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    each = [
        -math.log(1 / (1 + math.exp(-x if wanted else x)))
        for row, wants in zip(LOGITS.tolist(), targets, strict=True)
        for x, wanted in zip(row, wants, strict=True)
    ]
    assert task.loss(LOGITS, batch_of(targets), Criterion()).item() == pytest.approx(sum(each) / 3, rel=1e-6)
    smooth = (
        F.binary_cross_entropy_with_logits(LOGITS, 0.8 * torch.tensor(targets) + 0.1, reduction="none").mean(1).sum()
    )
    found = task.loss(LOGITS, batch_of(targets), Criterion(smoothing=0.2))
    assert found.item() == pytest.approx(smooth.item(), rel=1e-6)
    weighted = F.binary_cross_entropy_with_logits(
        LOGITS, torch.tensor(targets), pos_weight=torch.tensor([1.0, 2.0, 3.0]), reduction="none"
    )
    found = task.loss(LOGITS, batch_of(targets), Criterion((1.0, 2.0, 3.0)))
    assert found.item() == pytest.approx(weighted.mean(1).sum().item(), rel=1e-6)
    items = [SimpleNamespace(targets=np.array([target])) for target in targets]
    assert task.weigh(items, Criterion((1.0, 2.0, 3.0))) == 3.0
    assert task.problem_type == "multi_label_classification"


def test_rarer_classes_weigh_more():
    task = Classify.of({}).with_labels("abc")
    items = [SimpleNamespace(targets=np.array([target])) for target in [0] * 6 + [1] * 3 + [2]]
    assert task.balance(items) == pytest.approx((10 / 18, 10 / 9, 10 / 3))
    several = Classify.of({"multilabel": True}).with_labels("ab")
    items = [SimpleNamespace(targets=np.array([[1.0, float(n == 0)]])) for n in range(4)]
    assert several.balance(items) == pytest.approx((1e-3, 3.0))


def test_the_loss_of_numbers_is_the_squared_error():
    task = Regress.of({})
    found = task.loss(LOGITS[:, :1], batch_of([1.0, 0.0, 3.0]), Criterion())
    assert found.item() == pytest.approx((2 - 1) ** 2 + 0 + (1 - 3) ** 2)
    assert (task.problem_type, task.num_outputs) == ("regression", 1)


# Decoding and scores


def test_the_likeliest_class_with_all_probabilities():
    task = Classify.of({}).with_labels(["a", "b", "c"])
    shares = task.outputs(LOGITS, batch_of([0, 0, 0]))
    found = task.decode([], [], shares)
    assert [prediction["label"] for prediction in found] == ["a", "c", "a"]
    assert found[0]["score"] == pytest.approx(found[0]["scores"]["a"])
    assert list(found[0]["scores"]) == ["a", "b", "c"]
    for prediction in found:
        assert sum(prediction["scores"].values()) == pytest.approx(1.0, abs=1e-6)


def test_all_classes_above_the_threshold():
    task = Classify.of({"multilabel": True}).with_labels(["a", "b", "c"])
    found = task.decode([], [], task.outputs(LOGITS, batch_of([0, 0, 0])))
    assert [prediction["labels"] for prediction in found] == [["a", "b"], ["c"], ["a", "c"]]
    strict = task.changed(threshold=0.9)
    assert [p["labels"] for p in strict.decode([], [], strict.outputs(LOGITS, batch_of([0] * 3)))] == [[], ["c"], []]


def test_scores_of_two_and_of_more_classes_are_those_of_scikit_learn():
    golds, guesses = list("yynnyynyn"), list("ynnnyyyyn")
    task = Classify.of({}).with_labels(["n", "y"])
    examples = [example("x", gold) for gold in golds]
    found = task.score(examples, [{"label": guess} for guess in guesses])
    assert found == pytest.approx(
        {
            "accuracy": metrics.accuracy_score(golds, guesses),
            "f1": metrics.f1_score(golds, guesses, pos_label="y"),
            "macro_f1": metrics.f1_score(golds, guesses, average="macro"),
            "micro_f1": metrics.f1_score(golds, guesses, average="micro"),
            "matthews": metrics.matthews_corrcoef(golds, guesses),
        }
    )
    other = task.changed(positive="n").score(examples, [{"label": guess} for guess in guesses])
    assert other["f1"] == pytest.approx(metrics.f1_score(golds, guesses, pos_label="n"))
    three = Classify.of({}).with_labels(["n", "y", "z"]).score(examples, [{"label": guess} for guess in guesses])
    assert three["f1"] == three["macro_f1"] == found["macro_f1"]


def test_scores_of_several_classes_by_hand():
    """Right together only where all are; micro: 2·2 / (3 found + 4 gold); macro: a 1, b 2/3, c 0."""
    task = Classify.of({"multilabel": True}).with_labels("abc")
    examples = [example("x", label) for label in (["a"], ["b", "c"], [], ["b"])]
    found = task.score(examples, [{"labels": labels} for labels in (["a"], ["b"], ["c"], [])])
    assert found == pytest.approx({"accuracy": 1 / 4, "f1": 4 / 7, "micro_f1": 4 / 7, "macro_f1": (1 + 2 / 3 + 0) / 3})


def test_scores_of_numbers():
    examples = [example("x", label) for label in ("1", 2, 3.5, "4")]
    found = Regress.of({}).score(examples, [{"value": value} for value in (0.1, 0.3, 0.2, 0.9)])
    assert found["spearman"] == pytest.approx(0.8)
    assert found["pearson"] == pytest.approx(np.corrcoef([1, 2, 3.5, 4], [0.1, 0.3, 0.2, 0.9])[0, 1])


def test_a_label_that_is_no_text_in_json_is_still_a_name(tmp_path):
    path = write_json_lines(tmp_path / "a.jsonl", [{"text": "a", "label": 0}, {"text": "b", "label": True}])
    task = Classify.of({})
    examples = list(task.read(str(path)))
    task = task.with_labels(task.find_labels(examples))
    assert task.labels == ("0", "True")
    assert [task.target(each).tolist() for each in examples] == [[0], [1]]
    with pytest.raises(DataError, match=r"a.jsonl, line 1: column 'label' is empty"):
        list(task.read(str(write_json_lines(tmp_path / "a.jsonl", [{"text": "a", "label": None}]))))


def test_what_is_cut_is_known_beforehand():
    """For texts of every length around the limits, alone and in pairs, with every way of reading long text."""
    tokenizer, limit = make_tokenizer(), 16
    for mode in (None, "head", "tail", "head+tail", "segments"):
        long = LongOptions(mode=mode)
        for first in range(20):
            for second in (None, *range(16)):
                pair = None if second is None else "river " * second
                example = TextExample(Place("a", 1), "stone " * first, pair, None)
                ((sequences, _),) = encode_texts([example], tokenizer, limit, long)
                rest = 0 if second is None else second
                read = sum(len(ids) - 2 - (second is not None) for ids in sequences) - rest * (len(sequences) - 1)
                whole = read == first + rest
                assert is_cut(example, tokenizer, limit, long) != whole, (mode, first, second)


@pytest.mark.parametrize("several", [False, True])
def test_smoothing_makes_no_weighted_class_the_likeliest(several):
    """The best that a model can say of a text is what smoothing leaves, whatever the classes weigh."""
    targets = [[1.0, 0.0], [0.0, 1.0]] if several else [0, 1]
    criterion = Criterion((0.5, 30.0), smoothing=0.1)
    best = torch.tensor([[0.95, 0.05], [0.05, 0.95]])
    logits = (best.logit() if several else best.log()).requires_grad_()
    task = Classify.of({"multilabel": several}, ["common", "rare"])
    task.loss(logits, batch_of(targets), criterion).backward()
    torch.testing.assert_close(logits.grad, torch.zeros_like(best), atol=1e-5, rtol=0)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_class_counts_by_its_weight(smoothing):
    task = Classify.of({}, ["a", "b", "c"])
    alone = [task.loss(LOGITS[n : n + 1], batch_of([n]), Criterion(smoothing=smoothing)).item() for n in range(3)]
    found = task.loss(LOGITS, batch_of([0, 1, 2]), Criterion((0.5, 2.0, 30.0), smoothing)).item()
    assert found == pytest.approx(0.5 * alone[0] + 2 * alone[1] + 30 * alone[2])
