"""`tag`: labels at first pieces, no word lost however long the text, context, and entities as they stand there."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch

from bertsmith.errors import DataError
from bertsmith.infer.pipeline import run_program
from bertsmith.infer.programs import TaskProgram
from bertsmith.model.heads import build
from bertsmith.tasks.running import run_items
from bertsmith.tasks.tag import Tag
from bertsmith.tasks.tagged import TaggedText
from bertsmith.tasks.task import Criterion, TaskBatch
from finetuning.small_tasks import NOUNS, SHAPE, make_tokenizer, write_conll, write_json_lines, write_lines

TOKENIZER = make_tokenizer()
LABELS = ("O", "B-PER", "I-PER", "B-LOC")


def task_of(**options):
    return Tag.of(options, LABELS)


def sentences(tmp_path, *texts, documents=0):
    """Words without any entity, as a file has them."""
    path = write_conll(
        tmp_path / "a.txt", [(text.split(), ["O"] * len(text.split())) for text in texts], documents=documents
    )
    return list(task_of().read(str(path)))


def tokens(ids):
    return [TOKENIZER.piece(number) for number in ids.tolist()]


def read_words(task, examples, items):
    """(example, word) of everything that some window reads, with the piece that it reads."""
    found = []
    for item in items:
        for (example, number), row in zip(item.notes.tolist(), item.read.tolist(), strict=True):
            found.append((example, number, TOKENIZER.piece(item.ids[0][row])))
    return found


def test_the_first_piece_of_a_word_carries_its_tag(tmp_path):
    path = write_lines(tmp_path / "a.txt", ["anna B-PER", "xyz I-PER", "lives O", "in O", "ROME B-LOC", ". O"])
    task = task_of()
    (example,) = task.read(str(path))
    (item,) = task.encode([example], TOKENIZER)
    assert tokens(item.ids[0]) == ["[CLS]", "anna", "x", "##y", "##z", "lives", "in", "rome", ".", "[SEP]"]
    assert item.read.tolist() == [1, 2, 5, 6, 7, 8]
    assert item.targets.tolist() == [1, 2, 0, 0, 3, 0]
    assert item.types[0].tolist() == [0] * 10


def test_a_word_that_the_tokenizer_drops_keeps_its_place(tmp_path):
    """A control character, a special token's name, a word over the tokenizer's limit: one tag each."""
    path = write_json_lines(tmp_path / "a.jsonl", [{"tokens": ["anna", "\u200b", "[SEP]", "x" * 200, "in"]}])
    task = task_of()
    (example,) = task.read(str(path), labelled=False)
    (item,) = task.encode([example], TOKENIZER)
    assert tokens(item.ids[0]) == ["[CLS]", "anna", "[UNK]", "[", "s", "##e", "##p", "]", "[UNK]", "in", "[SEP]"]
    assert item.read.tolist() == [1, 2, 3, 8, 9]


def test_labels_begin_with_o_and_follow_the_options(tmp_path):
    path = write_lines(tmp_path / "a.txt", ["a I-X", "b B-X", "c S-A"])
    examples = list(Tag.of({}).read(str(path)))
    assert Tag.of({}).find_labels(examples) == ("O", "B-X", "I-X", "S-A")
    assert Tag.of({"labels": ("O", "B-A")}).find_labels(examples) == ("O", "B-A")


def test_a_tag_that_training_never_had_is_refused_on_its_own_line(tmp_path):
    path = write_lines(tmp_path / "dev.txt", ["anna B-PER", "", "in O", "rome B-ORG"])
    with pytest.raises(DataError) as refusal:
        task_of().encode(list(task_of().read(str(path))), TOKENIZER)
    known = "O, B-PER, I-PER, B-LOC"
    text = f"{path}, line 4: the tag 'B-ORG' of 'rome' is not one that training knows ({known}); correct it, "
    text += "or name all tags before training: --set task.labels=[…]"
    assert str(refusal.value) == text


# Windows


def test_a_long_sentence_is_read_in_windows_and_no_word_is_lost(tmp_path):
    """Also words of many pieces: 40 words of up to nine, in windows of ten."""
    rng = random.Random(0)
    text = " ".join("x" * rng.randint(1, 9) for _ in range(40))
    examples = sentences(tmp_path, text)
    task = task_of(max_length=12)
    items = task.encode(examples, TOKENIZER)
    assert len(items) > 10
    assert all(len(item.ids[0]) <= 12 for item in items)
    read = read_words(task, examples, items)
    assert sorted((example, number) for example, number, _ in read) == [(0, number) for number in range(40)]
    assert {piece for *_, piece in read} == {"x"}
    assert sum(len(item.targets) for item in items) == 40


def test_a_word_larger_than_the_window_is_cut_but_has_its_tag(tmp_path):
    examples = sentences(tmp_path, "in " + "y" * 30 + " rome")
    task = task_of(max_length=8)
    items = task.encode(examples, TOKENIZER)
    assert all(len(item.ids[0]) <= 8 for item in items)
    read = read_words(task, examples, items)
    assert sorted((number, piece) for _, number, piece in read) == [(0, "in"), (1, "y"), (2, "rome")]


def test_every_word_is_read_where_it_has_most_context(tmp_path):
    """Ten words in windows of six, half a window apart, as worked out in the test of windows."""
    examples = sentences(tmp_path, " ".join(["the"] * 10))
    items = task_of(max_length=8).encode(examples, TOKENIZER)
    assert [[number for _, number in item.notes.tolist()] for item in items] == [[0, 1, 2, 3, 4], [5, 6, 7], [8, 9]]


# Context


def test_context_reads_the_sentences_of_a_document_together(tmp_path):
    examples = sentences(tmp_path, "anna lives in rome", "the river", "who is boris", "good", documents=3)
    alone = task_of(max_length=16).encode(examples, TOKENIZER)
    assert [len(item.read) for item in alone] == [4, 2, 3, 1]
    items = task_of(max_length=16, context=True).encode(examples, TOKENIZER)
    assert [tokens(item.ids[0])[1:-1] for item in items] == [
        ["anna", "lives", "in", "rome", "the", "river", "who", "is", "boris"],
        ["good"],
    ]
    assert items[0].notes.tolist() == [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0], [1, 1], [2, 0], [2, 1], [2, 2]]


def test_context_reads_each_word_once_at_about_twice_the_cost(tmp_path):
    rng = random.Random(1)
    texts = [" ".join(rng.choices(NOUNS, k=rng.randint(1, 20))) for _ in range(200)] + ["the " * 70]
    examples = sentences(tmp_path, *texts, documents=40)
    task = task_of(max_length=32, context=True)
    items = task.encode(examples, TOKENIZER)
    num_words = sum(len(example.words) for example in examples)
    read = [(example, number) for item in items for example, number in item.notes.tolist()]
    assert sorted(read) == [(n, word) for n, example in enumerate(examples) for word in range(len(example.words))]
    assert len(read) == num_words
    assert num_words < sum(len(item.ids[0]) - 2 for item in items) <= 2.1 * num_words
    for item in items:  # whole sentences, but for the one that is too long by itself
        inside = {example for example, _ in item.notes.tolist()}
        documents = {examples[number].document for number in inside}
        assert len(documents) == 1


def test_sentences_stay_whole_in_a_context(tmp_path):
    """A window begins and ends between sentences where they fit."""
    examples = sentences(tmp_path, *["the river was good"] * 6)
    items = task_of(max_length=12, context=True).encode(examples, TOKENIZER)
    for item in items:
        assert tokens(item.ids[0])[1:-1] == ["the", "river", "was", "good"] * ((len(item.ids[0]) - 2) // 4)


def test_a_sentence_in_a_context_has_all_its_tags_from_one_window(tmp_path):
    rng = random.Random(3)
    texts = [" ".join(rng.choices(NOUNS, k=rng.randint(1, 14))) for _ in range(60)]
    examples = sentences(tmp_path, *texts)
    items = task_of(max_length=32, context=True).encode(examples, TOKENIZER)
    assert len(items) > 10
    readers = [{number for number, item in enumerate(items) if one in item.notes[:, 0]} for one in range(len(texts))]
    assert [len(each) for each in readers] == [1] * len(texts)


def test_a_document_is_never_cut_by_the_stream(tmp_path, monkeypatch):
    """Predictions as they come are those of the whole file, with context too."""
    rng = random.Random(2)
    texts = [" ".join(rng.choices(NOUNS, k=rng.randint(1, 9))) for _ in range(30)]
    examples = sentences(tmp_path, *texts, documents=7)
    task = task_of(max_length=24, context=True)
    model = build(SHAPE.derive(num_labels=4, id2label=None), "tagging", seed=5).eval()
    items = task.encode(examples, TOKENIZER)
    whole = task.decode(examples, items, run_items(task, lambda batch: task.logits(model, batch), items).outputs)
    monkeypatch.setattr("bertsmith.infer.pipeline._INPUTS_AT_ONCE", 4)
    streamed = [prediction for _, prediction in run_program(TaskProgram(task, model, TOKENIZER), iter(examples))]
    assert [each["tags"] for each in streamed] == [each["tags"] for each in whole]
    for ours, theirs in zip(streamed, whole, strict=True):
        assert [e["score"] for e in ours["entities"]] == pytest.approx(
            [e["score"] for e in theirs["entities"]], abs=1e-5
        )
    assert len({tuple(each["tags"]) for each in whole}) > 3  # or nothing would be compared


# Decoding


def said(task, examples, tags):
    """What decoding makes of a model that is sure of these tags."""
    items = task.encode(examples, TOKENIZER)
    outputs = []
    for item in items:
        rows = np.full((len(item.read), len(task.labels)), 0.1)
        for row, (example, number) in zip(rows, item.notes.tolist(), strict=True):
            row[task.labels.index(tags[example][number])] = 0.7
        outputs.append(rows)
    return task.decode(examples, items, outputs)


def test_entities_are_spans_of_the_original_text(tmp_path):
    """Raw text keeps its capitals, accents and double spaces; marks stand apart."""
    text = "Last  week Ánna-Maria  Boris (27) went to\tNew_York!"
    path = write_json_lines(tmp_path / "a.jsonl", [{"text": text}])
    task = task_of()
    (example,) = task.read(str(path), labelled=False)
    assert example.words == (
        "Last",
        "week",
        "Ánna",
        "-",
        "Maria",
        "Boris",
        "(",
        "27",
        ")",
        "went",
        "to",
        "New_York",
        "!",
    )
    tags = ["O", "O", "B-PER", "I-PER", "I-PER", "I-PER", *["O"] * 5, "B-LOC", "O"]
    (found,) = said(task, [example], [tags])
    assert found["text"] == text
    assert found["tags"] == tags
    assert [(e["label"], e["text"]) for e in found["entities"]] == [("PER", "Ánna-Maria  Boris"), ("LOC", "New_York")]
    for entity in found["entities"]:
        assert text[entity["start"] : entity["end"]] == entity["text"]
        assert entity["score"] == pytest.approx(0.7)
    assert json.loads(json.dumps(found)) == found


def test_entities_in_chinese_text(tmp_path):
    text = "小明在北京大学工作，住in上海。"
    path = write_json_lines(tmp_path / "a.jsonl", [{"text": text}])
    task = task_of()
    (example,) = task.read(str(path), labelled=False)
    assert example.words == ("小", "明", "在", "北", "京", "大", "学", "工", "作", "，", "住", "in", "上", "海", "。")
    tags = ["B-PER", "I-PER", *["O"] * 10, "B-LOC", "O", "O"]
    (found,) = said(task, [example], [tags])
    assert [(e["text"], e["start"], e["end"]) for e in found["entities"]] == [("小明", 0, 2), ("上", 13, 14)]


def test_words_of_a_file_make_a_text(tmp_path):
    """A space between words, but none between Chinese characters."""
    english = write_lines(tmp_path / "a.txt", ["Anna B-PER", "Boris I-PER", ". O"])
    chinese = write_lines(tmp_path / "b.txt", ["小 B-PER", "明 I-PER", "in O", "上 B-LOC", "海 O"])
    task = task_of()
    examples = [*task.read(str(english)), *task.read(str(chinese))]
    assert [example.text for example in examples] == ["Anna Boris .", "小明 in 上海"]
    found = said(task, examples, [example.tags for example in examples])
    assert [[(e["text"], e["start"]) for e in each["entities"]] for each in found] == [
        [("Anna Boris", 0)],
        [("小明", 0), ("上", 6)],
    ]


def test_a_text_without_words_has_no_tags(tmp_path):
    path = write_json_lines(tmp_path / "a.jsonl", [{"text": "  "}, {"text": "rome"}, {"text": ""}])
    task = task_of()
    model = build(SHAPE.derive(num_labels=4, id2label=None), "tagging", seed=5).eval()
    found = [each for _, each in run_program(TaskProgram(task, model, TOKENIZER), task.read(str(path), labelled=False))]
    assert [(each["text"], len(each["tags"])) for each in found] == [("  ", 0), ("rome", 1), ("", 0)]


def test_scores_are_those_of_entities(tmp_path):
    """Three entities, two guesses, one of them right: conlleval's counts."""
    path = write_lines(tmp_path / "a.txt", ["anna B-PER", "x O", "rome B-LOC", "", "boris B-PER", "clara I-PER"])
    task = task_of()
    examples = list(task.read(str(path)))
    found = task.score(examples, [{"tags": ["B-PER", "O", "O"]}, {"tags": ["B-PER", "O"]}])
    assert found == pytest.approx(
        {"f1": 2 * 1 / (3 + 2), "precision": 1 / 2, "recall": 1 / 3, "accuracy": 3 / 5, "f1_PER": 1 / 2, "f1_LOC": 0.0}
    )


def test_the_loss_is_over_words(tmp_path):
    examples = sentences(tmp_path, "the river was good", "anna")
    task = task_of()
    items = task.encode(examples, TOKENIZER)
    batch = TaskBatch.of(items)
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    by_hand = -logits.log_softmax(1)[:, 0]
    assert task.loss(logits, batch, Criterion()).item() == pytest.approx(by_hand.sum().item(), rel=1e-6)
    assert task.weigh(items, Criterion()) == 5
    weighted = Criterion((0.5, 1.0, 1.0, 1.0))
    assert task.loss(logits, batch, weighted).item() == pytest.approx(0.5 * by_hand.sum().item(), rel=1e-6)
    assert task.weigh(items, weighted) == 2.5
    outputs = task.outputs(logits, batch)
    assert [len(each) for each in outputs] == [4, 1]
    np.testing.assert_allclose(outputs[1], logits[4:].softmax(1).numpy(), rtol=1e-6)
    assert isinstance(examples[0], TaggedText)


def test_what_is_predicted_can_be_trained_on(tmp_path):
    marie, spans = "Marie Curie, born in 華沙.", [[0, 11, "PER"], [21, 23, "LOC"]]
    (first,) = Tag.of({}).read(str(write_json_lines(tmp_path / "a.jsonl", [{"text": marie, "entities": spans}])))
    task = Tag.of({}, ("O", "B-PER", "I-PER", "B-LOC", "I-LOC"))
    (found,) = said(task, [first], [list(first.tags)])
    (second,) = task.read(str(write_json_lines(tmp_path / "b.jsonl", [{"text": marie, "entities": found["entities"]}])))
    assert second.tags == first.tags


def test_plain_tags_are_taken_where_they_are_asked_for(tmp_path):
    """Parts of speech: no `O` is made up, every word counts by itself, and F1 is the share of words that are right."""
    path = write_lines(tmp_path / "a.txt", ["the DT", "river NN", "was VBD", "good JJ", "( -LRB-", "", "anna NN"])
    with pytest.raises(DataError, match=r"line 1: 'DT' is not a tag .* such as parts of speech: --set task.plain=true"):
        list(Tag.of({}).read(str(path)))
    task = Tag.of({"plain": True})
    examples = list(task.read(str(path)))
    task = task.with_labels(task.find_labels(examples))
    assert task.labels == ("-LRB-", "DT", "JJ", "NN", "VBD")
    found = said(task, examples, [["DT", "NN", "VBD", "NN", "-LRB-"], ["NN"]])
    assert [(each["label"], each["text"]) for each in found[0]["entities"]][3:] == [("NN", "good"), ("-LRB-", "(")]
    scores = task.score(examples, found)
    assert scores["f1"] == scores["accuracy"] == pytest.approx(5 / 6)
    assert scores["f1_NN"] == pytest.approx(0.8)
    empty = write_json_lines(tmp_path / "b.jsonl", [{"tokens": ["a"], "tags": [" "]}])
    with pytest.raises(DataError, match="a tag is empty"):
        list(task.read(str(empty)))


def test_an_entity_of_several_words_may_come_though_training_has_none(tmp_path):
    path = write_json_lines(tmp_path / "a.jsonl", [{"text": "in Rome", "entities": [[3, 7, "LOC"]]}])
    task = Tag.of({})
    examples = list(task.read(str(path)))
    assert task.find_labels(examples) == ("O", "B-LOC", "I-LOC")
    other = write_json_lines(tmp_path / "b.jsonl", [{"tokens": ["in", "Rome"], "tags": ["O", "B-LOC"]}])
    assert task.find_labels(task.read(str(other))) == ("O", "B-LOC")  # as its file has them
