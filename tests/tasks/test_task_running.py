"""Items through a model: in order, with their mean loss, and the same whatever else is in the batch."""

from __future__ import annotations

import random
from functools import partial

import numpy as np
import pytest
import torch

from bertsmith.bundle.resolve import load_bundle
from bertsmith.infer import pipeline
from bertsmith.infer.pipeline import run_program
from bertsmith.infer.programs import TaskProgram
from bertsmith.model.heads import build
from bertsmith.tasks import running
from bertsmith.tasks.kinds import make_task
from bertsmith.tasks.running import run_items
from bertsmith.tasks.task import Criterion, TaskBatch
from finetuning.small_tasks import (
    NOUNS,
    SHAPE,
    make_tokenizer,
    write_conll,
    write_json_lines,
    write_squad,
    write_table,
)

TOKENIZER = make_tokenizer()
COUNT = 501  # one, and 500 others


def words(rng, least=1, most=20):
    return " ".join(rng.choices([*NOUNS, "the", "was", "x9z", "Zoë"], k=rng.randint(least, most)))


def many(tmp_path, kind):
    """A task of a kind and a file of many examples of mixed length."""
    rng = random.Random(kind)
    texts = [words(rng, 1, 60) for _ in range(COUNT)]
    if kind in ("classify", "regress", "multilabel", "segments"):
        rows = [(text, rng.randint(0, 2)) for text in texts]
        return write_table(tmp_path / "a.tsv", ("text", "label"), rows)
    if kind in ("pairs", "both orders"):
        rows = [(text, words(rng), rng.randint(0, 2)) for text in texts]
        return write_table(tmp_path / "a.tsv", ("text", "pair", "label"), rows)
    if kind == "choose":
        rows = [
            {"text": words(rng), "choices": [words(rng) for _ in range(rng.randint(2, 5))], "label": 0} for _ in texts
        ]
        return write_json_lines(tmp_path / "a.jsonl", rows)
    if kind == "tag":
        return write_conll(tmp_path / "a.txt", [(text.split(), ["O"] * len(text.split())) for text in texts])
    paragraphs = []
    for number, text in enumerate(texts):
        answer = {"text": text[:3], "answer_start": 0}
        paragraphs.append(
            {"context": text, "qas": [{"id": str(number), "question": words(rng, 1, 5), "answers": [answer]}]}
        )
    return write_squad(tmp_path / "a.json", paragraphs)


OPTIONS = {
    "classify": ("classify", {"max_length": 32}),
    "pairs": ("classify", {"max_length": 32}),
    "both orders": ("classify", {"max_length": 32, "both_orders": True}),
    "multilabel": ("classify", {"max_length": 32, "multilabel": True}),
    "segments": ("classify", {"max_length": 16, "long": {"mode": "segments", "pool": "attention"}}),
    "regress": ("regress", {"max_length": 32}),
    "choose": ("choose", {"max_length": 32}),
    "tag": ("tag", {"max_length": 24}),
    "answer": ("answer", {"max_length": 32, "stride": 8, "unanswerable": True}),
}


def prepared(tmp_path, kind):
    name, options = OPTIONS[kind]
    task = make_task(name, options)
    path = many(tmp_path, kind)
    examples = list(task.read(str(path)))
    labels = task.find_labels(examples)
    if name == "tag":
        labels = ("O", "B-X", "I-X")
    task = task.with_labels(labels)
    outputs = len(labels) or 1
    model = build(SHAPE.derive(num_labels=outputs, id2label=None), task.head, seed=7).eval()
    task.attach(model)
    return task, examples, model


def numbers_of(prediction):
    """All numbers of a prediction, in a fixed order."""
    if isinstance(prediction, dict):
        return [number for value in prediction.values() for number in numbers_of(value)]
    if isinstance(prediction, list):
        return [number for value in prediction for number in numbers_of(value)]
    return [prediction] if isinstance(prediction, float) else []


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_prediction_is_the_same_alone_and_among_hundreds(tmp_path, kind):
    """To 1e-5, for every kind; in the order of the file, though batches are made by length."""
    check_alone_and_among(*prepared(tmp_path, kind), TOKENIZER, kind)


@pytest.mark.real_weights
@pytest.mark.parametrize("kind", ["pairs", "tag", "answer"])
def test_so_it_is_with_a_real_encoder(real_folder, tmp_path, kind):
    real_folder("minilm")
    task, examples, small = prepared(tmp_path, kind)
    labels = {"num_labels": small.config.num_labels, "id2label": None}
    bundle = load_bundle("minilm", task.head, fresh_head=True, seed=7, **labels)
    check_alone_and_among(task, examples, bundle.model.eval(), bundle.tokenizer, kind)


def check_alone_and_among(task, examples, model, tokenizer, kind):
    together = list(run_program(TaskProgram(task, model, tokenizer), iter(examples)))
    assert [example for example, _ in together] == examples
    for number in random.Random(1).sample(range(COUNT), 12):
        ((_, alone),) = run_program(TaskProgram(task, model, tokenizer), [examples[number]])
        among = together[number][1]
        if kind == "answer":  # spans of equal score may change places
            assert alone["null_margin"] == pytest.approx(among["null_margin"], abs=1e-5)
            assert alone["answer"] == among["answer"]
            scores = [sorted(each["score"] for each in found["candidates"]) for found in (alone, among)]
            assert scores[0] == pytest.approx(scores[1], abs=1e-5)
            continue
        assert numbers_of(alone) == pytest.approx(numbers_of(among), abs=1e-5)
        assert {k: v for k, v in alone.items() if k in ("label", "labels", "choice", "tags")} == {
            k: v for k, v in among.items() if k in ("label", "labels", "choice", "tags")
        }
    told = {str(numbers_of(prediction)[:3]) for _, prediction in together}
    named = [prediction for _, prediction in together if kind != "tag" or prediction["entities"]]
    assert len(told) > COUNT / 2 or kind == "tag"  # or the model would say the same of everything
    assert len(named) > COUNT / 2


@pytest.mark.parametrize("kind", ["classify", "choose", "tag", "answer"])
def test_the_loss_is_the_mean_over_all_targets(tmp_path, kind):
    task, examples, model = prepared(tmp_path, kind)
    items = task.encode(examples[:40], TOKENIZER)
    run = run_items(task, lambda batch: task.logits(model, batch), items)
    total = count = 0.0
    with torch.no_grad():
        for item in items:
            batch = TaskBatch.of([item])
            total += task.loss(task.logits(model, batch), batch, Criterion()).item()
            count += len(item.targets)
    assert run.loss == pytest.approx(total / count, rel=1e-5)


def test_no_loss_where_somebody_does_not_tell(tmp_path):
    task, _, model = prepared(tmp_path, "classify")
    path = tmp_path / "a.tsv"
    items = task.encode(list(task.read(str(path), labelled=False))[:5], TOKENIZER)
    assert run_items(task, lambda batch: task.logits(model, batch), items).loss is None
    assert run_items(task, lambda batch: task.logits(model, batch), []) == running.Run([], None)


def test_one_batch_after_the_other_gives_the_same(tmp_path, monkeypatch, request):
    """Also several streams: threads share nothing but the weights."""
    task, examples, model = prepared(tmp_path, "classify")
    items = task.encode(examples, TOKENIZER)
    calls = []

    def forward(batch):
        calls.append(len(batch.lengths))
        return task.logits(model, batch)

    one = run_items(task, forward, items, in_order=True)
    in_order = list(calls)
    monkeypatch.setattr(running, "_CPU_BUDGET", 200)
    small = run_items(task, forward, items, in_order=True)
    assert len(calls) - len(in_order) > len(in_order)
    np.testing.assert_allclose(np.stack(one.outputs), np.stack(small.outputs), atol=1e-5)
    request.addfinalizer(partial(torch.set_num_threads, torch.get_num_threads()))
    torch.set_num_threads(3)
    streams = run_items(task, forward, items)
    np.testing.assert_allclose(np.stack(one.outputs), np.stack(streams.outputs), atol=1e-5)
    assert streams.loss == pytest.approx(one.loss, rel=1e-5)


def test_only_some_examples_are_in_memory_at_a_time(tmp_path, monkeypatch):
    task, examples, model = prepared(tmp_path, "classify")
    monkeypatch.setattr(pipeline, "_INPUTS_AT_ONCE", 10)
    taken = []

    def source():
        for example in examples[:35]:
            taken.append(example)
            yield example

    stream = run_program(TaskProgram(task, model, TOKENIZER), source())
    assert not taken
    next(stream)
    assert len(taken) == 21  # ten, and the ten that are tokenised ahead, and one to see whether it belongs to them
    assert len(list(stream)) == 34
