"""`answer`: windows, spans and the characters behind them, the best answers, and when there is none."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from bertsmith.errors import DataError
from bertsmith.tasks.answer import AnswerTask
from bertsmith.tasks.answer_scores import best_threshold
from bertsmith.tasks.squad import Answer, Question
from bertsmith.tasks.task import Criterion, TaskBatch, say_cut
from finetuning.small_tasks import make_tokenizer, write_json_lines, write_table

TOKENIZER = make_tokenizer()


def task_of(**options):
    return AnswerTask.of(options)


def question(context, answer=None, number=1, asked="where is anna", start=None):
    answers = None
    if answer is not None:
        begin = context.index(answer) if start is None else start
        answers = (Answer(answer, begin),) if answer else ()
    return Question(f"q{number}", asked, context, answers)


def tokens(ids):
    return [TOKENIZER.piece(number) for number in ids.tolist()]


def sure_of(item, first, last, null=0.0, high=9.0):
    """Logits of a model that is sure of a span of a window's own tokens."""
    logits = np.zeros((len(item.ids[0]), 2), np.float32)
    logits[0] = null / 2
    if first is not None:
        logits[first, 0], logits[last, 1] = high, high
    return logits


def targets_as_answers(task, examples):
    """What a model that says exactly what training tells it would answer."""
    items = task.encode(examples, TOKENIZER)
    outputs = [sure_of(item, *(item.targets[0] if item.targets[0].any() else (None, None))) for item in items]
    return task.decode(examples, items, outputs)


# Encoding


@pytest.mark.parametrize(
    ("context", "answer"),
    [("the cafe\u0301 was good", "cafe\u0301"), ("anna lives in cafe\u0301", "cafe\u0301"),
     ("cafe\u0301\u0323, rome", "cafe\u0301\u0323"), ("anna e\u0301 rome", "anna e\u0301"),
     ("the river was good", "river was")],
)  # fmt: skip
def test_an_answer_has_the_accents_that_the_tokenizer_drops(context, answer):
    """Characters of their own behind the letter, as decomposed text has them."""
    (found,) = targets_as_answers(task_of(max_length=48), [question(context, answer)])
    assert found["answer"] == answer
    assert task_of().score([question(context, answer)], [found])["exact_match"] == 1.0


def test_an_answer_of_punctuation_is_none_where_none_is_allowed():
    """To the score it is none; so it is to the threshold, and to the report."""
    found = {"id": "q1", "null_margin": -5.0, "candidates": [{"text": ".", "start": 0, "end": 1, "score": 1.0}]}
    assert task_of(unanswerable=True).answer_of(found) == ""
    assert task_of().answer_of(found) == "."
    tuned = task_of(unanswerable=True).tune([question("anna .", "")], [found])
    assert tuned.answer_of(found) == ""


@pytest.mark.parametrize(("text", "language", "expected"), [
    ("A", "zh", "A"), ("the", "zh", "the"), ("。", "zh", ""), ("A", "en", ""), ("Anna", "en", "Anna"),
])  # fmt: skip
def test_an_article_is_an_answer_where_there_are_no_articles(text, language, expected):
    prediction = {"id": "q1", "null_margin": -9.0, "candidates": [{"text": text}]}
    assert task_of(unanswerable=True, language=language).answer_of(prediction) == expected


def test_ids_from_a_column_of_any_name(tmp_path):
    rows = [(f"n{number}", "where is anna", "anna is in rome", "rome", 11) for number in range(2)]
    path = write_table(tmp_path / "a.tsv", ("qid", "question", "context", "answer", "start"), rows)
    assert [each.id for each in task_of(columns={"id": "qid"}).read(str(path))] == ["n0", "n1"]
    path = write_json_lines(
        tmp_path / "a.jsonl", [{"id": None, "question": "who", "context": "anna", "answer": "anna", "start": 0}] * 2
    )
    assert [each.id for each in task_of().read(str(path))] == ["line-1", "line-2"]


def test_a_short_context_is_one_window():
    task = task_of(max_length=32)
    (item,) = task.encode([question("the river, anna lives in rome.", "rome")], TOKENIZER)
    expected = TOKENIZER.encode("where is anna", "the river, anna lives in rome.")
    assert (item.ids[0].tolist(), item.types[0].tolist()) == (expected.ids, expected.type_ids)
    assert tokens(item.ids[0])[item.targets[0, 0]] == "rome"
    assert item.targets.tolist() == [[11, 11]]


def test_windows_step_by_stride_and_learn_where_they_hold_the_answer():
    """3 pieces of a question, so room for 6 of 10; a step of 3."""
    context = "a b c d e f g h i j"
    task = task_of(max_length=12, stride=3)
    items = task.encode([question(context, "e f")], TOKENIZER)
    assert [tokens(item.ids[0])[5:-1] for item in items] == [list("abcdef"), list("defghi"), list("ghij")]
    assert [item.targets.tolist() for item in items] == [[[9, 10]], [[6, 7]], [[0, 0]]]
    assert [item.notes.owned.tolist() for item in items] == [
        [True, True, True, True, True, False],
        [False, False, True, True, True, False],
        [False, False, True, True],
    ]


def test_an_answer_across_windows_is_learned_where_it_is_whole_or_nowhere():
    context = "a b c d e f g h i j"
    task = task_of(max_length=12, stride=6)
    items = task.encode([question(context, "f g")], TOKENIZER)
    assert [tokens(item.ids[0])[5:-1] for item in items] == [list("abcdef"), list("ghij")]
    assert [item.targets.tolist() for item in items] == [[[0, 0]], [[0, 0]]]
    overlapping = task.changed(stride=3).encode([question(context, "f g")], TOKENIZER)
    assert [item.targets.tolist() for item in overlapping] == [[[0, 0]], [[7, 8]], [[0, 0]]]


def test_questions_that_are_cut_are_counted():
    whole, cut = question("the river", "river", asked="who " * 5), question("the river", "river", asked="who " * 6)
    task = task_of(max_question=5)
    assert [task.cuts([example], TOKENIZER) for example in (whole, cut)] == [False, True]
    examples = [whole, cut, whole, cut]
    assert task.count_cut(examples, task.encode(examples, TOKENIZER), TOKENIZER) == 2
    said = "2 of 4 texts are questions of more than 5 pieces, and are cut; see --set"
    assert say_cut(task, 2, "4 texts") == [f"{said} task.max_question=…"]
    assert say_cut(task, 2, "4 texts", in_training=False) == [f"{said} max_question=…"]
    assert say_cut(task.changed(max_length=8), 2, "4 texts")[0].endswith("see --set task.max_length=…")


def test_answers_as_the_hubs_data_sets_have_them(tmp_path):
    row = {"id": "a", "question": "who", "context": "anna was here"}
    several = {"text": ["anna", "here"], "answer_start": [0, 9]}
    path = write_json_lines(tmp_path / "a.jsonl", [
        {**row, "answers": several}, {**row, "id": "b", "answers": {"text": [], "answer_start": []}}])  # fmt: skip
    found = list(task_of(unanswerable=True).read(str(path)))
    assert [example.answers for example in found] == [(Answer("anna", 0), Answer("here", 9)), ()]
    for broken, what in (
        ({"text": ["anna"]}, "expected answers as"),
        ({"text": ["anna"], "answer_start": [1]}, "the answer 'anna' is not at character 1 of its context: it stands"),
        ({"text": [""], "answer_start": [1]}, "an answer is '', not text"),
        (["anna"], "expected answers as"),
    ):
        path = write_json_lines(
            tmp_path / "a.jsonl", [{**row, "answers": several}, {**row, "id": "b", "answers": broken}]
        )
        with pytest.raises(DataError) as refusal:
            list(task_of().read(str(path)))
        assert str(refusal.value).startswith(f"{path}, line 2: {what}")


def test_a_long_question_is_cut_and_leaves_room():
    asked = " ".join(["who"] * 80)
    example = question("the river was good", "good", asked=asked)
    (item,) = task_of(max_length=384).encode([example], TOKENIZER)
    assert tokens(item.ids[0]).count("who") == 64
    items = task_of(max_length=20).encode([example], TOKENIZER)
    assert all(len(item.ids[0]) <= 20 for item in items)
    assert tokens(items[0].ids[0]).count("who") == 16
    assert [tokens(item.ids[0])[-2] for item in items] == ["the", "river", "was", "good"]
    assert [item.targets.any() for item in items] == [False, False, False, True]


def test_an_empty_context_has_one_window_and_no_answer():
    task = task_of(max_length=32, unanswerable=True)
    example = question("", "")
    (item,) = task.encode([example], TOKENIZER)
    assert tokens(item.ids[0]) == ["[CLS]", "where", "is", "anna", "[SEP]", "[SEP]"]
    assert item.targets.tolist() == [[0, 0]]
    (found,) = task.decode([example], [item], [np.zeros((6, 2), np.float32)])
    assert (found["answer"], found["candidates"]) == ("", [])
    json.dumps(found, allow_nan=False)
    assert task_of(max_length=32).decode([example], [item], [np.zeros((6, 2), np.float32)])[0]["answer"] == ""


def test_unanswerable_questions_learn_the_first_place_and_unknown_ones_nothing():
    task = task_of(max_length=32)
    none, unknown = task.encode([question("the river", ""), question("the river")], TOKENIZER)
    assert none.targets.tolist() == [[0, 0]]
    assert unknown.targets is None


@pytest.mark.parametrize(
    ("context", "answer"),
    [
        ("The  RIVER was Good.", "RIVER"),
        ("Zoë lives in  São Paulo, in Brasil.", "São Paulo"),
        ("the river\twas\u00a0good", "was\u00a0good"),
        ("小明在北京大学工作。", "北京大学"),
        ("我住in上海，今天很好。", "in上海"),
        ("Anna (rome) was bad.", "(rome)"),
        ("1999-2001 was fine", "1999"),
        ("e\u0301 rome o\u0308slo", "o\u0308slo"),
        ("the 😀 key", "😀 key"),
    ],
)
def test_an_answer_comes_back_as_it_stands_in_the_context(context, answer):
    """From characters to pieces in training, from pieces to characters in prediction."""
    (found,) = targets_as_answers(task_of(max_length=48), [question(context, answer)])
    assert found["answer"] == answer
    best = found["candidates"][0]
    assert context[best["start"] : best["end"]] == answer
    assert best["start"] == context.index(answer)


def test_an_answer_inside_a_word_takes_the_word_s_pieces():
    (found,) = targets_as_answers(task_of(max_length=48), [question("in 1990s rome", "990")])
    assert found["answer"] == "990"


def test_the_second_of_two_equal_words_is_meant():
    example = question("rome was good, rome was bad", "rome", start=15)
    (found,) = targets_as_answers(task_of(max_length=48), [example])
    assert found["candidates"][0]["start"] == 15


# Decoding


def test_a_piece_is_scored_in_the_window_where_it_has_most_context():
    """Both windows are sure of a span; the surer one is not where its first piece has most context."""
    context = "a b c d e f g h i j"
    task = task_of(max_length=12, stride=3)
    example = question(context)
    items = task.encode([example], TOKENIZER)
    outputs = [sure_of(item, None, None) for item in items]
    outputs[0] = sure_of(items[0], 5 + 5, 5 + 5, high=9.0)  # f, at the edge of the first window
    outputs[1] = sure_of(items[1], 5 + 3, 5 + 3, high=5.0)  # g, in the middle of the second
    (found,) = task.decode([example], items, outputs)
    assert found["answer"] == "g"
    texts = [each["text"] for each in found["candidates"]]
    assert texts[1] == "e f"  # which begins where the first window counts
    assert "f" not in texts[:20] or found["candidates"][texts.index("f")]["score"] < 1e-3


def test_the_best_beginnings_are_taken_among_those_that_count():
    """With room for one: the surest piece of the first window is not its to judge, so another one is taken."""
    context = "a b c d e f g h i j"
    task = task_of(max_length=12, stride=3, num_best=1)
    items = task.encode([question(context)], TOKENIZER)
    outputs = [sure_of(item, None, None) for item in items]
    outputs[0] = sure_of(items[0], 5 + 5, 5 + 5)  # f
    outputs[0][5 + 1, 0] = 6.0  # b
    (found,) = task.decode([question(context)], items, outputs)
    assert found["answer"] == "b c d e f"


def test_an_answer_may_end_where_another_window_has_more_context():
    context = "a b c d e f g h i j"
    task = task_of(max_length=12, stride=3)
    items = task.encode([question(context)], TOKENIZER)
    outputs = [sure_of(item, None, None) for item in items]
    outputs[0] = sure_of(items[0], 5 + 4, 5 + 5)  # e is owned by the first window, f by the second
    (found,) = task.decode([question(context)], items, outputs)
    assert found["answer"] == "e f"


def test_no_answer_is_backwards_too_long_or_outside_the_context():
    context = "a b c d e f g h"
    task = task_of(max_length=32, max_answer=3)
    example = question(context)
    (item,) = task.encode([example], TOKENIZER)
    logits = np.zeros((len(item.ids[0]), 2), np.float32)
    logits[1, :] = 50  # the question
    logits[4, :] = 50  # [SEP]
    logits[5 + 5, 0] = 9  # f begins
    logits[5 + 1, 1] = 9  # b ends: backwards
    logits[5 + 0, 0] = 8  # a begins
    logits[5 + 3, 1] = 8.5  # d ends: four pieces
    logits[5 + 2, 1] = 7  # c ends: three
    (found,) = task.decode([example], [item], [logits])
    texts = [each["text"] for each in found["candidates"]]
    assert found["answer"] == texts[0] == "a b"  # 8 + 9
    assert texts[1] == "a b c"  # 8 + 7
    assert not {"a b c d", "f"} & set(texts[:1])
    assert all(len(text.split()) <= 3 for text in texts)


def test_the_best_answers_are_distinct_texts_with_probabilities():
    context = "rome was good, rome was bad"
    task = task_of(max_length=32, num_best=5)
    example = question(context)
    (item,) = task.encode([example], TOKENIZER)
    logits = np.zeros((len(item.ids[0]), 2), np.float32)
    for place, score in ((5, 3.0), (9, 4.0)):
        logits[place] = score
    (found,) = task.decode([example], [item], [logits])
    texts = [each["text"] for each in found["candidates"]]
    assert texts[0] == "rome"
    assert found["candidates"][0]["start"] == 15
    assert len(texts) == len(set(texts)) == 5  # as the original: of the best six spans two are the same text
    shares = [each["score"] for each in found["candidates"]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1.0)
    assert shares[0] / shares[1] == pytest.approx(np.exp(8.0 - 7.0), rel=1e-5)  # "rome was good, rome" is 3 + 4


def test_a_text_that_stands_there_twice_takes_no_others_place():
    """Of the best two spans both are "rome"; the third is the second answer, as in the original."""
    context = "rome rome is"
    task = task_of(max_length=32, num_best=2, max_answer=2)
    (item,) = task.encode([question(context)], TOKENIZER)
    logits = np.zeros((len(item.ids[0]), 2), np.float32)
    logits[5:8] = [[4, 5], [4.5, 4.6], [-5, -5]]
    (found,) = task.decode([question(context)], [item], [logits])
    texts = [(each["text"], each["start"]) for each in found["candidates"]]
    assert texts == [("rome", 5), ("rome rome", 0)]
    assert found["candidates"][0]["score"] == pytest.approx(1 / (1 + np.exp(8.6 - 9.1)))


def test_none_is_the_answer_where_it_beats_the_best_by_more_than_the_threshold():
    """The null score is the least over the windows: 4 here, against 6 for the best answer."""
    context = "a b c d e f g h i j"
    task = task_of(max_length=12, stride=3, unanswerable=True)
    example = question(context)
    items = task.encode([example], TOKENIZER)
    outputs = [
        sure_of(items[0], 6, 6, null=9.0, high=3.0),
        *(sure_of(item, None, None, null=4.0) for item in items[1:]),
    ]
    (found,) = task.decode([example], items, outputs)
    assert found["null_margin"] == pytest.approx(4.0 - 6.0)
    assert found["answer"] == "b"
    assert task.changed(null_threshold=-2.5).answer_of(found) == ""
    assert task.changed(null_threshold=-1.5).answer_of(found) == "b"
    assert task.changed(null_threshold=-2.0).answer_of(found) == "b"  # not more than the threshold
    sure = task_of(max_length=12, stride=3).decode([example], items, outputs)[0]
    assert task_of(null_threshold=-99.0).answer_of(sure) == "b"  # where every question has an answer


def predictions(*margins):
    return [{"id": f"q{n}", "null_margin": m, "candidates": [{"text": "rome"}]} for n, m in enumerate(margins)]


def test_the_threshold_is_set_on_the_dev_file():
    examples = [question("in rome", "rome", n) for n in (0, 1)] + [question("in rome", "", n) for n in (2, 3)]
    task = task_of(unanswerable=True)
    guesses = predictions(-1.0, 2.0, 3.0, 5.0)
    assert task.score(examples, guesses)["exact_match"] == pytest.approx(3 / 4)
    tuned = task.tune(examples, guesses)
    assert tuned.options.null_threshold == 2.5
    found = tuned.score(examples, guesses)
    assert (found["exact_match"], found["f1"], found["no_answer_accuracy"]) == (1.0, 1.0, 1.0)
    assert task_of().tune(examples, guesses).threshold == 0.0
    assert task.tune(examples[:2], guesses[:2]) is task
    for given in (0.0, -1.25):
        kept = task_of(unanswerable=True, null_threshold=given)
        assert kept.tune(examples, guesses) is kept


def test_the_threshold_of_chinese_answers_counts_characters():
    """Half of an answer is worth half, not nothing: then it is better to say it."""
    context = "小明在北京大学工作。"
    examples = [question(context, "北京大学", 0), question(context, "", 1)]
    guesses = [
        {"id": "q0", "null_margin": 1.0, "candidates": [{"text": "北京大"}]},
        {"id": "q1", "null_margin": 2.0, "candidates": [{"text": "小明"}]},
    ]
    tuned = task_of(unanswerable=True, language="zh").tune(examples, guesses)
    assert tuned.options.null_threshold == 1.5
    assert tuned.score(examples, guesses)["f1"] == pytest.approx((6 / 7 + 1) / 2)
    english = best_threshold({"q0": ["北京大学"]}, {"q0": "北京大"}, {"q0": 1.0})
    assert english.f1 == 0.0


def test_scores_by_hand():
    examples = [question("the red river was good", "red river", 1), question("rome was bad", "rome", 2)]
    guesses = [
        {"id": "q1", "null_margin": -1, "candidates": [{"text": "the red river"}]},
        {"id": "q2", "null_margin": -1, "candidates": [{"text": "rome was"}]},
    ]
    found = task_of().score(examples, guesses)
    assert found["exact_match"] == 0.5  # articles do not count
    assert found["f1"] == pytest.approx((1 + 2 / 3) / 2)
    assert "no_answer_accuracy" not in found


def test_the_loss_is_the_mean_of_both_ends():
    task = task_of(max_length=32)
    items = task.encode([question("anna lives in rome", "in rome", 1), question("the river", "", 2)], TOKENIZER)
    batch = TaskBatch.of(items)
    logits = torch.randn(len(batch.input_ids), 2, generator=torch.Generator().manual_seed(0))
    by_hand = 0.0
    for rows, item in zip(logits.split(batch.lengths.tolist()), items, strict=True):
        logs = rows.log_softmax(0)
        by_hand -= (logs[item.targets[0, 0], 0] + logs[item.targets[0, 1], 1]).item() / 2
    assert task.loss(logits, batch, Criterion()).item() == pytest.approx(by_hand, rel=1e-5)
    assert task.weigh(items, Criterion()) == 2


# Tables


def test_a_table_of_questions(tmp_path):
    header = ("id", "question", "context", "answer", "start")
    rows = [("a", "where", "in rome", "rome", 3), ("b", "where", "in rome", "", "")]
    path = write_table(tmp_path / "a.tsv", header, rows)
    found = list(task_of().read(str(path)))
    assert [each.id for each in found] == ["a", "b"]
    assert [each.answers for each in found] == [(Answer("rome", 3),), ()]
    assert [each.answers for each in task_of().read(str(path), labelled=False)] == [None, None]
    bare = write_json_lines(tmp_path / "a.jsonl", [{"q": "where", "c": "in rome"}])
    task = task_of(columns={"question": "q", "context": "c"})
    (found,) = task.read(str(bare), labelled=False)
    assert (found.id, found.question, found.context) == ("line-1", "where", "in rome")


SOUND = {"question": "where", "context": "in rome", "answer": "rome", "start": 3}


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"start": 2}, "the answer 'rome' is not at character 2 of its context: it stands at 3"),
        ({"start": -4}, "the answer 'rome' is not at character -4"),
        ({"start": None}, "the answer 'rome' is not at character None"),
        ({"start": "²"}, "the answer 'rome' is not at character '²'"),
        ({"start": 10**30}, "the answer 'rome' is not at character 1000000"),
        ({"answer": "oslo"}, "the answer 'oslo' is not at character 3 of its context: it is not in the context at all"),
        ({"answer": 5}, "column 'answer' holds 5, not text"),
        ({"answer": None}, "column 'answer' holds None, not text"),
        ({"question": ["where"]}, "column 'question' holds ['where'], not text"),
        ({"question": " "}, "the question is empty; write it, or remove the row"),
        ({"context": "", "answer": ""}, "the context is empty; write it, or remove the row"),
        ({"id": "line-1"}, "a second question with the id 'line-1'"),
    ],
)
def test_a_broken_row_is_refused_with_file_and_line(tmp_path, row, what):
    path = write_json_lines(tmp_path / "a.jsonl", [SOUND, {**SOUND, **row}])
    with pytest.raises(DataError) as refusal:
        list(task_of().read(str(path)))
    assert str(refusal.value).startswith(f"{path}, line 2: {what}")


def test_a_start_may_come_from_a_column_with_gaps(tmp_path):
    rows = [{**SOUND, "start": 3.0}, {**SOUND, "answer": "", "start": None}, {**SOUND, "start": "3.0"}]
    found = list(task_of(unanswerable=True).read(str(write_json_lines(tmp_path / "a.jsonl", rows))))
    assert [[answer.start for answer in each.answers] for each in found] == [[3], [], [3]]
    with pytest.raises(DataError, match=r"is not at character 3\.5 of its context"):
        list(task_of().read(str(write_json_lines(tmp_path / "b.jsonl", [{**SOUND, "start": 3.5}]))))


def test_a_missing_column_is_named(tmp_path):
    path = write_table(tmp_path / "a.tsv", ("question", "passage"), [("where", "in rome")])
    with pytest.raises(DataError, match=r"a.tsv, line 2: no column 'context'; there are question, passage"):
        list(task_of().read(str(path), labelled=False))


@pytest.mark.parametrize("context", ["\u200b", "\u00a0", "\u3000\u3000", "\ufeff"])
def test_a_context_without_a_piece_has_no_answer(context):
    task = task_of(unanswerable=True)
    asked = [question(context), question("anna is in rome", number=2)]
    items = task.encode(asked, TOKENIZER)
    found = task.decode(asked, items, [sure_of(item, None, None) for item in items])
    assert found[0]["answer"] == ""
    assert found[0]["candidates"] == []


def test_an_answer_may_be_null_where_there_may_be_none(tmp_path):
    path = write_json_lines(tmp_path / "a.jsonl", [SOUND, {**SOUND, "answer": None, "start": None}])
    assert [len(each.answers) for each in task_of(unanswerable=True).read(str(path))] == [1, 0]
