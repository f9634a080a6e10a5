"""What fine-tuning saves: `transformers` opens it and says the same, and it can be fine-tuned again."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import transformers

from bertsmith.jobs.evaluate import evaluate
from bertsmith.jobs.finetune import finetune
from finetuning.small_tasks import (
    degrees,
    pairs,
    questions,
    read_json_lines,
    reviews,
    riddles,
    several,
    tagged,
    weights_of,
)


@pytest.fixture
def fine_tuned(ask, kinds, tmp_path):
    def make(kind, **changes):
        file = kinds[kind][-1]
        more = {"multilabel": {"task__multilabel": True}}.get(kind, {})
        asked = ask(kind=kinds[kind][1], train=file, dev=file, **{"epochs": 2, **more, **changes})
        result = finetune(asked, tmp_path / "run")
        config = json.loads((result.model / "config.json").read_text())
        return result, config, read_json_lines(result.folder / "predictions.jsonl")

    return make


def encoded(folder, texts, pairs=None):
    """As `transformers`' own tokenizer has them."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return tokenizer(texts, pairs, padding=True, return_tensors="pt")


@pytest.mark.parametrize("kind", ["classify", "pairs", "multilabel", "regress"])
def test_transformers_opens_a_classifier_and_says_the_same(fine_tuned, kind):
    result, config, predictions = fine_tuned(kind)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(result.model).eval()
    assert type(theirs).__name__ == "BertForSequenceClassification"
    labels = {
        "classify": ["neg", "pos"],
        "pairs": ["0", "1"],
        "multilabel": ["person", "place"],
        "regress": ["LABEL_0"],
    }[kind]
    assert config["id2label"] == {str(n): label for n, label in enumerate(labels)}
    assert config["label2id"] == {label: n for n, label in enumerate(labels)}
    problem = {"multilabel": "multi_label_classification", "regress": "regression"}.get(
        kind, "single_label_classification"
    )
    assert config["problem_type"] == theirs.config.problem_type == problem
    rows = {"classify": reviews, "pairs": pairs, "multilabel": several, "regress": degrees}[kind]()
    second = [row[1] for row in rows] if kind == "pairs" else None
    with torch.no_grad():
        logits = theirs(**encoded(result.model, [row[0] for row in rows], second)).logits
    if kind == "regress":
        expected, found = logits[:, 0], [each["value"] for each in predictions]
    else:
        expected = logits.sigmoid() if kind == "multilabel" else logits.softmax(1)
        found = [list(each["scores"].values()) for each in predictions]
    np.testing.assert_allclose(np.array(found), expected.numpy(), rtol=1e-4, atol=1e-5)


def test_transformers_opens_a_chooser_and_says_the_same(fine_tuned):
    result, config, predictions = fine_tuned("choose")
    theirs = transformers.AutoModelForMultipleChoice.from_pretrained(result.model).eval()
    assert config["architectures"] == ["BertForMultipleChoice"]
    for row, each in zip(riddles(), predictions, strict=True):
        batch = encoded(result.model, [row["text"]] * len(row["choices"]), row["choices"])
        with torch.no_grad():
            shares = theirs(**{name: value[None] for name, value in batch.items()}).logits[0].softmax(0)
        np.testing.assert_allclose(each["scores"], shares.numpy(), rtol=1e-4, atol=1e-5)
        assert each["text"] == row["choices"][int(shares.argmax())]


def test_transformers_opens_a_tagger_and_says_the_same(fine_tuned):
    result, config, predictions = fine_tuned("tag", epochs=20)  # until it tells them apart
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(result.model).eval()
    assert list(config["id2label"].values()) == ["O", "B-LOC", "B-PER", "I-PER"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(result.model)
    for (words, _), each in zip(tagged(), predictions, strict=True):
        batch = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        firsts = [batch.word_ids().index(number) for number in range(len(words))]
        with torch.no_grad():
            shares = theirs(**batch).logits[0, firsts].softmax(1)
        assert [theirs.config.id2label[best] for best in shares.argmax(1).tolist()] == each["tags"]
        assert len(set(each["tags"])) == 4
        scores = [entity["score"] for entity in each["entities"]]
        best = shares.amax(1)
        np.testing.assert_allclose(scores, [best[:2].mean(), best[4]], rtol=1e-4, atol=1e-5)


def test_transformers_opens_an_answerer_and_says_the_same(fine_tuned):
    result, config, predictions = fine_tuned("answer")
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(result.model).eval()
    assert config["architectures"] == ["BertForQuestionAnswering"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(result.model)
    for paragraph, each in zip(questions(), predictions, strict=True):
        context = paragraph["context"]
        batch = tokenizer(paragraph["qas"][0]["question"], context, return_tensors="pt", return_offsets_mapping=True)
        offsets = batch.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            out = theirs(**batch)
        inside = [n for n, kind in enumerate(batch["token_type_ids"][0].tolist()) if kind == 1][:-1]
        totals = {
            (first, last): (out.start_logits[0, first] + out.end_logits[0, last]).item()
            for first in inside
            for last in inside
            if first <= last
        }
        first, last = max(totals, key=totals.__getitem__)
        assert context[offsets[first][0] : offsets[last][1]] == each["answer"]
        null = (out.start_logits[0, 0] + out.end_logits[0, 0]).item()
        assert each["null_margin"] == pytest.approx(null - totals[first, last], abs=1e-4)


def test_a_fine_tuned_model_can_be_fine_tuned_again(fine_tuned, ask, tmp_path, kinds):
    """Its head is kept where the labels are the same."""
    result, _, _ = fine_tuned("classify")
    again = finetune(ask(model=result.folder, optimizer__rate=1e-12, epochs=1), tmp_path / "again")
    one, other = weights_of(result.folder), weights_of(tmp_path / "again")
    assert torch.equal(one["classifier.weight"], other["classifier.weight"])
    assert again.scores["accuracy"] == evaluate(str(result.folder), data=ask().dev)["accuracy"]
    file = kinds["tag"][-1]
    tagger = finetune(ask(model=result.folder, kind="tag", train=file, dev=file), tmp_path / "tag")
    assert json.loads((tagger.model / "config.json").read_text())["architectures"] == ["BertForTokenClassification"]
