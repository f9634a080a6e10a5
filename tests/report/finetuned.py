"""Folders of fine-tuning runs made by hand: files, a log, predictions and scores, but no training."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from bertsmith.finetuning.request import make_request
from bertsmith.tasks.kinds import make_task
from bertsmith.train.request import write_request

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NAMES = {"classify": "dev.jsonl", "regress": "dev.jsonl", "choose": "dev.jsonl", "tag": "dev.txt", "answer": "dev.json"}


def json_lines(rows: Sequence[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def conll(sentences: Sequence[tuple[str, str]]) -> str:
    """From words and tags, each apart by spaces."""
    return "\n".join(
        "".join(f"{word}\t{tag}\n" for word, tag in zip(words.split(), tags.split(), strict=True))
        for words, tags in sentences
    )


def squad(*questions: tuple[str, str, str, str | None]) -> str:
    """From (id, question, context, answer); None where there is no answer."""
    paragraphs = []
    for name, question, context, answer in questions:
        found = [] if answer is None else [{"text": answer, "answer_start": context.index(answer)}]
        entry = {"id": name, "question": question, "answers": found, "is_impossible": answer is None}
        paragraphs.append({"context": context, "qas": [entry]})
    return json.dumps({"data": [{"paragraphs": paragraphs}]})


def single(label: str, score: float, *others: str) -> dict[str, Any]:
    """A prediction of one class, with the rest shared among the others."""
    shares = dict.fromkeys(others, (1 - score) / max(len(others), 1)) | {label: score}
    return {"label": label, "score": score, "scores": dict(sorted(shares.items()))}


def answered(name: str, context: str, text: str | None, score: float, margin: float) -> dict[str, Any]:
    """A prediction with one candidate, or none."""
    start = -1 if text is None else context.index(text)
    spans = [] if text is None else [{"text": text, "start": start, "end": start + len(text), "score": score}]
    return {"answer": text or "", "id": name, "null_margin": margin, "candidates": spans}


def step(number: int, **values: Any) -> dict[str, Any]:
    entry = {"kind": "train", "step": number, "seconds": 30.0 * number, "tokens": 100 * number, "loss": 1 / number}
    return {**entry, "rate": 1e-3, "norm": 1.0, "tokens_per_second": 900.0, "share_of_peak": 0.1, **values}


def evaluation(number: int, **values: Any) -> dict[str, Any]:
    return {"kind": "eval", "step": number, "seconds": 30.0 * number, "tokens": 100 * number, "loss": 0.5, **values}


def make_run(
    folder: Path,
    kind: str,
    content: str,
    predictions: Sequence[dict[str, Any]] | None,
    *,
    options: dict[str, Any] | None = None,
    entries: Sequence[dict[str, Any]] = (),
    labels: Sequence[str] = (),
    with_dev: bool = True,
    **request: Any,
) -> Path:
    """A run whose dev file, in the folder above, is also its training file; finished where there are predictions."""
    folder.mkdir(parents=True, exist_ok=True)
    dev = folder.parent / NAMES[kind]
    dev.write_text(content, encoding="utf-8")
    asked = make_request("tiny", kind=kind, train=dev, dev=dev if with_dev else None, options=options, **request)
    write_request(folder, asked)
    (folder / "metrics.jsonl").write_text(json_lines(entries), encoding="utf-8")
    if predictions is not None:
        task = make_task(kind, asked.options, labels)
        examples = list(task.read(str(dev)))
        scores = task.tune(examples, list(predictions)).score(examples, list(predictions))
        (folder / "predictions.jsonl").write_text(json_lines(predictions), encoding="utf-8")
        result = {"scores": {"loss": 0.5, **scores}, "metric": task.options.metric, "steps": 2}
        (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
        os.utime(dev, (1, 1))  # long before
    return folder


REVIEWS = [("fine day", "pos"), ("so so", "neu"), ("bad", "neg"), ("awful", "neg"), ("meh", "neu")]
GUESSES = [
    single("pos", 0.85, "neg", "neu"),
    single("pos", 0.85, "neg", "neu"),
    single("neg", 0.65, "neu", "pos"),
    single("neg", 0.55, "neu", "pos"),
    single("neg", 0.95, "neu", "pos"),
]
LOG = [
    step(1),
    evaluation(1, accuracy=0.2, f1=0.1, macro_f1=0.1, micro_f1=0.2, matthews=-0.25),
    step(2),
    evaluation(2, accuracy=0.6, f1=0.5, macro_f1=0.5, micro_f1=0.6, matthews=0.5, loss=0.25),
    step(3),
    evaluation(3, accuracy=0.4, f1=0.4, macro_f1=0.4, micro_f1=0.4, matthews=0.125),
]
SENTENCES = [
    ("Anna Berg lives in Oslo now", "B-PER I-PER O O B-LOC O"),
    ("Rome and Paris", "B-LOC O B-LOC"),
    ("nobody here", "O O"),
]
TAGS = ["B-PER O O O B-ORG O", "B-LOC O B-LOC", "O O"]
LONG = "x " * 400
CONTEXT = f"{LONG}The tower of Pisa leans since 1173, people say. {LONG}"
QUESTIONS = [
    ("q1", "Since when?", CONTEXT, "1173"),
    ("q2", "Which tower?", CONTEXT, "Pisa"),
    ("q3", "Who paid?", CONTEXT, None),
]


def texts(*rows):
    return json_lines([{"text": text, "label": label} for text, label in rows])


def make_classified(folder, **others):
    return make_run(folder, "classify", texts(*REVIEWS), GUESSES, labels=["neg", "neu", "pos"], **others)


def make_several(folder, text="a red river", **others):
    rows = [
        {"text": text, "label": ["red", "water"]},
        {"text": "a stone", "label": []},
        {"text": "a lake", "label": "water"},
    ]
    found = [
        {"labels": ["red"], "scores": {"red": 0.75, "water": 0.125}},
        {"labels": ["red"], "scores": {"red": 0.625, "water": 0.25}},
        {"labels": ["water"], "scores": {"red": 0.25, "water": 0.75}},
    ]
    options = {"multilabel": True}
    return make_run(folder, "classify", json_lines(rows), found, options=options, labels=["red", "water"], **others)


def make_numbers(folder, text="near", **others):
    rows = texts((text, 1.0), ("far", 2.5), ("there", 4.0))
    return make_run(folder, "regress", rows, [{"value": 1.5}, {"value": 0.5}, {"value": 4.25}], **others)


def make_choices(folder, text="Which is red?", choice="a rose", **others):
    rows = [
        {"text": text, "choices": [choice, "a stone"], "label": 0},
        {"text": "Which is old?", "choices": ["a rose", "a stone"], "label": 1},
    ]
    found = [
        {"choice": 1, "text": "a stone", "score": 0.75, "scores": [0.25, 0.75]},
        {"choice": 1, "text": "a stone", "score": 0.85, "scores": [0.15, 0.85]},
    ]
    return make_run(folder, "choose", json_lines(rows), found, **others)


def make_tagged(folder, sentences=SENTENCES, tags=TAGS, **others):
    found = [
        {"text": words, "tags": guess.split(), "entities": []}
        for (words, _), guess in zip(sentences, tags, strict=True)
    ]
    return make_run(folder, "tag", conll(sentences), found, **others)


def make_answered(folder, **others):
    found = [
        answered("q1", CONTEXT, "since 1173", 0.5, -4.0),
        answered("q2", CONTEXT, "tower of Pisa", 0.75, -2.0),
        answered("q3", CONTEXT, "people", 0.25, 3.0),
    ]
    return make_run(folder, "answer", squad(*QUESTIONS), found, options={"unanswerable": True}, **others)


KINDS = {
    "classify": make_classified,
    "several": make_several,
    "regress": make_numbers,
    "choose": make_choices,
    "tag": make_tagged,
    "answer": make_answered,
}
