"""`choose`: the forms in which choices come, and scores among as many as a question has."""

from __future__ import annotations

import math

import pytest
import torch

from bertsmith.errors import DataError
from bertsmith.model.heads import build
from bertsmith.tasks.choose import ChoiceExample, Choose
from bertsmith.tasks.tables import Place
from bertsmith.tasks.task import Criterion, TaskBatch, say_cut
from finetuning.small_tasks import SHAPE, make_tokenizer, write_json_lines, write_lines, write_table

TOKENIZER = make_tokenizer()
INF = float("inf")


def read(path, options=None, **more):
    return list(Choose.of({"columns": options or {}}).read(str(path), **more))


def test_a_list_of_choices(tmp_path):
    path = write_json_lines(tmp_path / "a.jsonl", [{"text": "q", "choices": ["x", "y", "z"], "label": 2}])
    assert read(path) == [ChoiceExample(Place(str(path), 1), "q", ("x", "y", "z"), 2)]


def test_columns_of_choices_with_what_begins_each(tmp_path):
    """As SWAG has them, quoted."""
    lines = ["n,sent1,sent2,a,b,label", '0,"First, this.",Then he,"goes, ""home"".",stays.,1']
    columns = {"text": "sent1", "prefix": "sent2", "choices": "a,b"}
    (found,) = read(write_lines(tmp_path / "a.csv", lines), columns)
    assert (found.text, found.choices, found.label) == ("First, this.", ('Then he goes, "home".', "Then he stays."), 1)


def test_columns_by_number(tmp_path):
    path = write_table(tmp_path / "a.tsv", None, [("q", "x", "y", "B")])
    (found,) = read(path, {"text": 1, "choices": "2,3", "label": 4})
    assert (found.text, found.choices, found.label) == ("q", ("x", "y"), 1)


def test_choices_with_names_of_their_own(tmp_path):
    """As OpenBookQA has them."""
    choices = [{"text": "x", "label": "1"}, {"text": "y", "label": "2"}]
    row = {"question": {"stem": "q", "choices": choices}, "answerKey": "1"}
    columns = {"text": "question.stem", "choices": "question.choices", "label": "answerKey"}
    (found,) = read(write_json_lines(tmp_path / "a.jsonl", [row]), columns)
    assert (found.choices, found.label) == (("x", "y"), 0)


@pytest.mark.parametrize("names", [["", "A", ""], ["A", "A", "B"]])
def test_names_that_do_not_tell_choices_apart_are_refused(tmp_path, names):
    """A label would be taken for a letter or a number: for another choice."""
    rows = [{"text": "q", "choices": {"text": ["x", "y", "z"], "label": names}, "label": "A"}]
    with pytest.raises(DataError, match=r"line 1: the names of its choices are \[.*\]; give each its own, or none any"):
        read(write_json_lines(tmp_path / "a.jsonl", rows))


def test_choices_and_their_names_in_lists_of_their_own(tmp_path):
    """As ARC is often given; its names are letters in some rows and numbers from 1 in others."""
    rows = [
        {"text": "q", "choices": {"text": ["x", "y", "z"], "label": list(names)}, "label": label}
        for names, label in (("ABC", "B"), ("123", "1"), ("123", "3"), ("123", 1.0))
    ]
    found = read(write_json_lines(tmp_path / "a.jsonl", rows))
    assert [(each.choices, each.label) for each in found] == [(("x", "y", "z"), number) for number in (1, 0, 2, 0)]


@pytest.mark.parametrize(("label", "number"), [(0, 0), ("1", 1), (" 1", 1), (2.0, 2), ("1.0", 1), ("A", 0), ("C", 2)])
def test_a_label_is_a_number_or_a_letter(tmp_path, label, number):
    row = {"text": "q", "choices": ["x", "y", "z"], "label": label}
    assert read(write_json_lines(tmp_path / "a.jsonl", [row]))[0].label == number


def test_prediction_does_not_look_at_labels(tmp_path):
    rows = [{"text": "q", "choices": ["x", "y"], "label": "?"}, {"text": "q", "choices": ["x", "y"]}]
    found = read(write_json_lines(tmp_path / "a.jsonl", rows), labelled=False)
    assert [each.label for each in found] == [None, None]


GOOD = {"text": "q", "choices": ["x", "y"], "label": 0}
NAMED = [{"text": "x", "label": "A"}, {"text": "y", "label": "B"}]


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"label": 2}, "the label 2 is none of the choices (0 to 1, or A to B); correct it"),
        ({"label": -1}, "the label -1 is none of the choices"),
        ({"label": "a"}, "the label 'a' is none of the choices"),
        ({"label": "²"}, "the label '²' is none of the choices"),
        ({"label": "9" * 5000}, "the label '999"),
        ({"label": None}, "the label None is none of the choices"),
        ({"choices": [str(n) for n in range(30)], "label": "?"}, "the label '?' is none of the choices (0 to 29);"),
        ({"choices": NAMED, "label": "C"}, "the label 'C' is none of the choices (A, B)"),
        ({"choices": ["x"]}, "1 choices; there must be two at least"),
        ({"choices": {"text": ["x", "y"], "label": ["A"]}}, "column 'choices' holds no list"),
        ({"choices": "x"}, "column 'choices' holds no list; name several columns with commas: --column choices=A,B"),
        ({"choices": ["x", 3]}, "a choice is 3, not text"),
        ({"choices": [{"text": "x"}, {}]}, "a choice is None, not text"),
        ({"text": 3}, "column 'text' holds 3, not text"),
    ],
)  # fmt: skip
def test_a_broken_row_is_refused_with_file_and_line(tmp_path, row, what):
    path = write_json_lines(tmp_path / "a.jsonl", [GOOD, {**GOOD, **row}])
    with pytest.raises(DataError) as refusal:
        read(path)
    assert str(refusal.value).startswith(f"{path}, line 2: {what}")


def test_a_missing_column_is_named(tmp_path):
    path = write_table(tmp_path / "a.tsv", ("text", "a", "b", "label"), [("q", "x", "y", "0")])
    with pytest.raises(DataError, match=r"a.tsv, line 2: no column 'c'; there are text, a, b, label"):
        read(path, {"choices": "a,c"})


def questions(*counts):
    choices = ("in the river", "in paris", "good", "the stone was")
    return [ChoiceExample(Place("f", n), "where is the key", choices[:count], 0) for n, count in enumerate(counts)]


def test_every_choice_is_a_sequence_with_the_text():
    (item,) = Choose.of({"max_length": 9}).encode(questions(3), TOKENIZER)
    assert len(item.ids) == 3
    for ids, types, choice in zip(item.ids, item.types, questions(3)[0].choices, strict=True):
        expected = TOKENIZER.encode("where is the key", choice, max_length=9)
        assert (ids.tolist(), types.tolist()) == (expected.ids, expected.type_ids)


def test_what_is_cut_is_counted():
    examples = questions(2, 4)  # the first text has four pieces, and so has none of its choices
    fits, cut = (Choose.of({"max_length": length}) for length in (10, 9))
    assert not fits.cuts(examples, TOKENIZER)
    assert fits.count_cut(examples, fits.encode(examples, TOKENIZER), TOKENIZER) == 0
    assert [cut.cuts([one], TOKENIZER) for one in examples] == [True, True]
    assert cut.count_cut(examples, cut.encode(examples, TOKENIZER), TOKENIZER) == 2
    said = ["2 of 2 training texts are longer than 9 pieces, and are cut; see --max-length and --long"]
    assert say_cut(cut, 2, "2 training texts") == said


def test_a_long_text_can_be_read_from_its_end_and_choices_stay_whole():
    (whole,) = Choose.of({"max_length": 64}).encode(questions(2), TOKENIZER)
    options = {"max_length": 9, "long": {"mode": "tail"}}
    task = Choose.of(options)
    (item,) = task.encode(questions(2), TOKENIZER)
    for ids, kinds, full, full_kinds in zip(item.ids, item.types, whole.ids, whole.types, strict=True):
        assert len(ids) == 9
        left_out = len(full) - len(ids)
        assert ids.tolist() == [full[0], *full[1 + left_out :]]
        assert kinds.sum() == full_kinds.sum()
    assert task.cuts(questions(2), TOKENIZER)
    assert task.count_cut(questions(2), [item], TOKENIZER) == 0
    tight = Choose.of({**options, "max_length": 8})
    items = tight.encode(questions(2), TOKENIZER)
    assert tight.count_cut(questions(2), items, TOKENIZER) == 1  # "in the river" has three pieces, and room for two
    said = "1 of 1 training texts have a choice that is cut to go with the text into 8 pieces; see --max-length"
    assert say_cut(tight, 1, "1 training texts") == [said]


def test_questions_with_fewer_choices_share_a_batch():
    """Each question's scores are those it has alone; there is nothing where it has no choice."""
    task, model = Choose.of({}), build(SHAPE, "choice", seed=1).eval()
    items = task.encode(questions(2, 4, 3), TOKENIZER)
    with torch.no_grad():
        logits = task.logits(model, TaskBatch.of(items))
        alone = [task.logits(model, TaskBatch.of([item]))[0] for item in items]
    for row, expected, count in zip(logits, alone, (2, 4, 3), strict=True):
        torch.testing.assert_close(row[:count], expected, rtol=1e-5, atol=1e-5)
        assert row[count:].tolist() == [-INF] * (4 - count)
    shares = task.outputs(logits, TaskBatch.of(items))
    assert [len(each) for each in shares] == [2, 4, 3]
    assert [each.sum() for each in shares] == pytest.approx([1, 1, 1], abs=1e-6)


def test_the_loss_is_among_the_choices_of_a_question():
    """By hand, also smoothed: what is shared goes to the choices that are there, and the loss stays finite."""
    task = Choose.of({})
    rows = [[1.0, 3.0, 0.0], [2.0, 1.0]]
    logits = torch.tensor([rows[0], [*rows[1], -INF]], requires_grad=True)
    batch = TaskBatch(torch.zeros(1), torch.zeros(1), torch.ones(5), torch.tensor([3, 2]), None, torch.tensor([1, 0]))
    logs = [[x - math.log(sum(math.exp(y) for y in row)) for x in row] for row in rows]
    plain = -(logs[0][1] + logs[1][0])
    assert task.loss(logits, batch, Criterion()).item() == pytest.approx(plain, rel=1e-6)
    smooth = 0.8 * plain - 0.2 * (sum(logs[0]) / 3 + sum(logs[1]) / 2)
    loss = task.loss(logits, batch, Criterion(smoothing=0.2))
    assert loss.item() == pytest.approx(smooth, rel=1e-6)
    loss.backward()
    assert logits.grad.isfinite().all()
    assert logits.grad[1, 2] == 0


def test_the_likeliest_choice_and_its_score():
    task = Choose.of({})
    examples = questions(2, 3)
    shares = [torch.tensor([0.3, 0.7]).numpy(), torch.tensor([0.5, 0.2, 0.3]).numpy()]
    found = task.decode(examples, [], shares)
    assert [(each["choice"], each["text"]) for each in found] == [(1, "in paris"), (0, "in the river")]
    assert found[0]["scores"] == pytest.approx([0.3, 0.7])
    assert found[0]["score"] == pytest.approx(0.7)
    assert task.score(examples, found) == {"accuracy": 0.5}
