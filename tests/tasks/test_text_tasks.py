"""`classify` and `regress`: columns, labels, long text, losses and scores, each against something done by hand."""

from __future__ import annotations

import io
import math
import sys
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn import metrics

from bertsmith.errors import ConfigError, DataError
from bertsmith.model.heads import build
from bertsmith.tasks.classify import Classify
from bertsmith.tasks.regress import Regress
from bertsmith.tasks.tables import Place
from bertsmith.tasks.task import Criterion, TaskBatch
from bertsmith.tasks.texts import LongOptions, TextExample, encode_texts, is_cut
from finetuning.small_tasks import SHAPE, make_tokenizer, write_json_lines, write_lines, write_table

TOKENIZER = make_tokenizer()


def example(text, label=None, pair=None, line=1):
    return TextExample(Place("f.tsv", line), text, pair, label)


def tokens(sequence):
    return " ".join(TOKENIZER.piece(number) for number in sequence.tolist())


# Reading


def test_columns_are_found_by_their_usual_names(tmp_path):
    path = write_table(tmp_path / "a.tsv", ("id", "sentence1", "gold_label", "sentence2"), [(1, "a", "x", "b")])
    (found,) = Classify.of({}).read(str(path))
    assert (found.text, found.pair, found.label, found.place.line) == ("a", "b", "x", 2)


def test_a_second_text_that_comes_late_is_refused_by_its_line(tmp_path):
    rows = [{"text": "a", "label": "x"}, {"text": "b", "text_b": "c", "label": "y"}]
    path = write_json_lines(tmp_path / "a.jsonl", rows)
    with pytest.raises(DataError, match=r"a\.jsonl, line 2: column 'text_b'"):
        list(Classify.of({}).read(str(path)))


def test_a_numbered_label_says_nothing_of_a_file_that_has_none(tmp_path):
    """As GLUE's CoLA: no header where it is trained, a header in the file that is to be predicted."""
    path = write_table(tmp_path / "test.tsv", ("index", "sentence"), [("0", "a"), ("1", "b")])
    task = Classify.of({"columns": {"text": 4, "label": 2}}).changed(columns={"text": "sentence"})
    assert [found.text for found in task.read(str(path), labelled=False)] == ["a", "b"]
    with pytest.raises(DataError, match="sentence"):
        list(task.read(str(path)))


def test_columns_as_told_go_before_usual_names(tmp_path):
    path = write_table(tmp_path / "a.tsv", ("text", "other", "label"), [("a", "b", "x")])
    task = Classify.of({}).changed(columns={"text": "other"})
    (found,) = task.read(str(path))
    assert found.text == "b"
    assert task.changed(columns={"pair": "text"}).options.columns == {"text": "other", "pair": "text"}
    bare = write_lines(tmp_path / "b.tsv", ["text\tother\tx", "a\tb\tx"])
    numbered = Classify.of({"columns": {"text": 2, "label": 3}}).read(str(bare))
    assert [found.text for found in numbered] == ["other", "b"]


@pytest.mark.parametrize("name", ["label", "Labels", " score "])
def test_a_header_is_no_row_of_numbered_columns(tmp_path, name):
    path = write_table(tmp_path / "a.tsv", ("sentence", name), [("a", "x")])
    with pytest.raises(DataError, match=r"a\.tsv, line 1: column 2 holds .*: this line is a header; name columns"):
        list(Classify.of({"columns": {"text": 1, "label": 2}}).read(str(path)))


def test_of_two_columns_that_could_be_the_text_one_must_be_named(tmp_path):
    """As in QNLI: else half of each pair would go unread."""
    path = write_table(tmp_path / "a.tsv", ("index", "question", "sentence", "label"), [("0", "a", "b", "x")])
    with pytest.raises(DataError, match="line 2: 'sentence' and 'question' are both here, and either could be the"):
        list(Classify.of({}).read(str(path)))
    for columns, expected in (
        ({"text": "question", "pair": "sentence"}, ("a", "b")),
        ({"text": "sentence"}, ("b", None)),
    ):
        (found,) = Classify.of({"columns": columns}).read(str(path))
        assert (found.text, found.pair) == expected


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_a_stray_space_makes_no_class_of_its_own(tmp_path, name):
    mark = "\t" if name == "a.tsv" else ","
    path = write_lines(tmp_path / name, [f"text{mark}label", f"a{mark}neg", f"b{mark}neg ", f"c{mark} pos"])
    task = Classify.of({})
    examples = list(task.read(str(path)))
    assert task.find_labels(examples) == ("neg", "pos")
    path = write_lines(tmp_path / name, [f"text{mark}label", f"a{mark}  "])
    with pytest.raises(DataError, match="line 2: column 'label' is empty"):
        list(task.read(str(path)))


@pytest.mark.parametrize(("first", "second", "what"), [
    ("b", None, "there is no second text, but training has one; name its column: --column pair=…"),
    (None, "b", "there is a second text, but training has none; give both files one, or none"),
])  # fmt: skip
def test_two_files_both_have_a_second_text_or_none_has(first, second, what):
    task = Classify.of({})
    with pytest.raises(DataError, match=f"^f.tsv, line 3: {what}"):
        task.check_alike(example("a", pair=first), example("a", pair=second, line=3))
    task.check_alike(example("a", pair=first), example("c", pair=first))


def test_how_many_texts_are_cut_is_said_unless_someone_has_said_how():
    examples = [example("river " * length, "x") for length in (2, 6, 7, 30)]  # 6 fill a sequence of 8
    task = Classify.of({"max_length": 8}, ["x"])
    (said,) = task.say_cut(examples, task.encode(examples, TOKENIZER), TOKENIZER)
    assert said == "2 of 4 training texts are longer than 8 pieces, and are cut; see --max-length and --long"
    assert task.say_cut(examples[:2], task.encode(examples[:2], TOKENIZER), TOKENIZER) == []
    long = task.changed(**{"long.mode": "tail"})
    assert long.say_cut(examples, long.encode(examples, TOKENIZER), TOKENIZER) == []


@pytest.mark.parametrize("mode", ["head", "tail", "head+tail", "segments"])
def test_a_pair_that_fits_is_read_whole_with_every_way_of_reading_long_text(mode):
    pair = example("anna", pair="river " * 11)
    plain, long = (encode_texts([pair], TOKENIZER, 16, LongOptions(mode=each))[0] for each in (None, mode))
    assert [ids.tolist() for ids in long[0]] == [ids.tolist() for ids in plain[0]]
    assert tokens(long[0][0]).count("river") == 11


def test_a_column_that_cannot_be_told_is_asked_for(tmp_path):
    path = write_table(tmp_path / "a.tsv", ("words", "class"), [("a", "x")])
    with pytest.raises(DataError, match=r"line 2: which column is the text. There are words, class; name it"):
        list(Classify.of({}).read(str(path)))
    with pytest.raises(DataError, match="line 2: which column is the label"):
        list(Classify.of({"columns": {"text": "words"}}).read(str(path)))
    with pytest.raises(DataError, match="line 2: no column 'sentence'; there are words, class"):
        list(Classify.of({"columns": {"text": "sentence", "label": "class"}}).read(str(path)))


def test_an_empty_label_is_refused_but_none_of_several_is_none(tmp_path):
    path = write_table(tmp_path / "a.tsv", ("text", "label"), [("a", "x"), ("b", "")])
    with pytest.raises(DataError, match=r"a.tsv, line 3: column 'label' is empty; write the label, or remove the row"):
        list(Classify.of({}).read(str(path)))
    task = Classify.of({"multilabel": True})
    examples = list(task.read(str(path)))
    task = task.with_labels(task.find_labels(examples))
    assert task.labels == ("x",)
    assert [task.target(each).tolist() for each in examples] == [[[1.0]], [[0.0]]]


def test_prediction_does_not_look_at_labels(tmp_path):
    """A test file may have labels that mean nothing, as GLUE's -1."""
    path = write_table(tmp_path / "a.tsv", ("text", "label"), [("a", "-1"), ("b", "")])
    for kind in (Classify.of({}).with_labels(["x", "y"]), Regress.of({})):
        examples = list(kind.read(str(path), labelled=False))
        assert [(each.text, each.label) for each in examples] == [("a", None), ("b", None)]
        assert [item.targets for item in kind.encode(examples, TOKENIZER)] == [None, None]


def test_lines_of_plain_text_need_no_columns_whatever_the_training_file_had(tmp_path, monkeypatch):
    path = write_lines(tmp_path / "a.txt", ["the river", "", "a, b"])
    task = Classify.of({"columns": {"text": 4, "label": 2}})
    assert [each.text for each in task.read(str(path), labelled=False)] == ["the river", "", "a, b"]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(b"one\ntwo\n"))))
    assert [each.text for each in task.read("-", labelled=False)] == ["one", "two"]
    table = write_lines(tmp_path / "b.txt", ["x\t1\t\tfour"])
    assert [each.text for each in task.read(str(table), labelled=False)] == ["four"]


def test_labels_are_ordered_as_numbers_and_then_by_name():
    task = Classify.of({})
    found = task.find_labels([example("a", label) for label in ("b", "10", "9", "a", "-1", 2, True)])
    assert found == ("-1", "2", "9", "10", "True", "a", "b")
    assert Classify.of({"labels": ("no", "yes")}).find_labels([]) == ("no", "yes")


def test_an_unknown_label_is_refused_with_those_that_are_known():
    task = Classify.of({}).with_labels(["neg", "pos"])
    with pytest.raises(DataError, match=r"f.tsv, line 9: the label 'neutral' is not one that training knows "):
        task.target(example("a", "neutral", line=9))
    with pytest.raises(DataError, match=r"f.tsv, line 1: the label is \['a'\], not one class; for several: --multil"):
        task.target(example("a", ["a"]))


def test_what_is_no_name_of_a_class_is_refused():
    """Or it would be a class of that name."""
    task, several = Classify.of({}), Classify.of({"multilabel": True})
    for kind, label in (
        (task, b"pos"),
        (task, math.nan),
        (several, [None, "a"]),
        (several, [["a"]]),
        (several, {"a": 1}),
    ):
        with pytest.raises(DataError, match=r"f.tsv, line 7: the label .* is no name of a class; correct it or remove"):
            kind.find_labels([example("x", "b"), example("x", label, line=7)])
    orders = {
        task.find_labels([example("x", name) for name in names]) for names in permutations(["nan", "0", "10", "a"])
    }
    assert orders == {("0", "10", "a", "nan")}


def test_several_classes_as_a_list_or_apart_by_a_separator():
    task = Classify.of({"multilabel": True}).with_labels(["a", "b", "0"])
    assert task.target(example("x", "a | 0")).tolist() == [[1, 0, 1]]
    assert task.target(example("x", ["b", "a"])).tolist() == [[1, 1, 0]]
    assert task.target(example("x", 0)).tolist() == [[0, 0, 1]]
    assert task.target(example("x", [])).tolist() == [[0, 0, 0]]
    commas = task.changed(separator=",")
    assert commas.target(example("x", "a,b")).tolist() == [[1, 1, 0]]
    assert task.changed(separator="|").options.separator == "|"  # which YAML would read as something else
    with pytest.raises(ConfigError, match="separator"):
        task.changed(separator="")


def test_impossible_options_are_refused_before_anything_is_read():
    with pytest.raises(ConfigError, match="metric: matthews is for one class a text"):
        Classify.of({"multilabel": True, "metric": "matthews"})
    with pytest.raises(ConfigError, match="metric: 'f2' is not one of accuracy, f1, "):
        Classify.of({"metric": "f2"})
    with pytest.raises(ConfigError, match="positive: 'yse' is not one of the classes no, yes"):
        Classify.of({"positive": "yse"}).with_labels(["no", "yes"])
    with pytest.raises(ConfigError, match="columns: classify has no field 'txt'; there are text, pair, label"):
        Classify.of({"columns": {"txt": "text"}})
    with pytest.raises(ConfigError, match="labels: one stands there twice: no, yes, no"):
        Classify.of({"labels": ["no", "yes", "no"]})
    assert Classify.of({"labels": [0, 1]}).labels == ("0", "1")
    with pytest.raises(ConfigError, match=r"labels.*is read as false; put quotation marks around a name such as 'no'"):
        Classify.of({}).changed(labels="[no, yes]")
    with pytest.raises(ConfigError, match=r"long.mode: "):
        Classify.of({"long": {"mode": "middle"}})
    with pytest.raises(ConfigError, match=r"task: expected options by name, found \[1\]"):
        Classify.of([1])
    assert Classify.of({}).with_labels(["0", "1"]).changed(positive="0").options.positive == "0"


@pytest.mark.parametrize("label", ["", "high", "nan", "inf", "1e300", "-1e19", None, [1]])
def test_what_is_no_number_is_refused(label):
    with pytest.raises(
        DataError, match=r"f.tsv, line 4: .* is not a number \(up to 1e\+18\); correct it or remove the row"
    ):
        Regress.of({}).score([example("a", label, line=4)], [{"value": 1.0}])


# Encoding


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
    task.attach(model, seed=seed)
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


def test_attaching_again_keeps_what_is_trained():
    task = Classify.of({"long": {"mode": "segments", "pool": "attention"}}).with_labels("abc")
    model = model_of(task)
    before = model.segments
    task.attach(model, seed=9)
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
