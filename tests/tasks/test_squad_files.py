"""SQuAD's JSON: questions, answers, and the line of whatever is wrong."""

from __future__ import annotations

import json

import pytest

from bertsmith.errors import DataError
from bertsmith.tasks.squad import Answer, Question, read_squad

CONTEXT = "Zoë lives in  Öslo."


def squad(*questions, context=CONTEXT):
    return {"version": "1.1", "data": [{"title": "A", "paragraphs": [{"context": context, "qas": list(questions)}]}]}


def question(number=1, answers=(("Öslo", 14),), **more):
    listed = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": f"q{number}", "question": "Where?", "answers": listed, **more}


def read(tmp_path, content, *, indent=1, **options):
    path = tmp_path / "a.json"
    text = content if isinstance(content, str | bytes) else json.dumps(content, indent=indent, ensure_ascii=False)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return list(read_squad(str(path), **options))


def test_questions_with_all_their_answers(tmp_path):
    found = read(tmp_path, squad(question(1, [("Öslo", 14), ("in  Öslo", 10)])))
    assert found == [Question("q1", "Where?", CONTEXT, (Answer("Öslo", 14), Answer("in  Öslo", 10)))]
    assert read(tmp_path, squad(question(1, [("Öslo", 14), ("in  Öslo", 10)])), indent=None) == found


def test_unanswerable_questions_have_no_answer_whatever_is_plausible(tmp_path):
    plausible = {"plausible_answers": [{"text": "Öslo", "answer_start": 14}]}
    found = read(tmp_path, squad(question(1, [], is_impossible=True, **plausible), question(2, is_impossible=False)))
    assert [q.answers for q in found] == [(), (Answer("Öslo", 14),)]
    assert read(tmp_path, squad(question(1, is_impossible=True)))[0].answers == ()


def test_answers_may_be_missing_where_nobody_asks_for_them(tmp_path):
    bare = {"id": "q1", "question": "Where?"}
    assert read(tmp_path, squad(bare), answered=False)[0].answers is None
    with pytest.raises(DataError, match=r"'answers' is missing; a question that has none says .is_impossible.: true"):
        read(tmp_path, squad(bare))
    assert read(tmp_path, squad({**bare, "is_impossible": True}))[0].answers == ()


@pytest.mark.parametrize("value", ["false", "true", 0, 1, []])
def test_whether_there_is_an_answer_is_true_or_false(tmp_path, value):
    with pytest.raises(DataError, match=r"a\.json, line \d+: .*: is_impossible is .*, neither true nor false"):
        read(tmp_path, squad(question(1, is_impossible=value)))


def test_an_answer_of_blanks_is_none(tmp_path):
    with pytest.raises(DataError, match="an answer is empty; remove it"):
        read(tmp_path, squad(question(1, [(" ", 3)])))


def test_answers_that_are_made_up_are_no_matter_where_nobody_asks_for_them(tmp_path):
    """As in test files whose answers are not public."""
    entry = {"id": "1", "question": "who", "answers": [{"text": "FAKE", "answer_start": -1}]}
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "anna", "qas": [entry]}]}]}))
    assert [found.answers for found in read_squad(str(path), answered=False)] == [None]
    with pytest.raises(DataError, match="is not in the context at all; remove or correct it"):
        list(read_squad(str(path)))
    path.write_text('{"question": "who"}\n{"question": "where"}\n')
    with pytest.raises(DataError, match=r"line 2: is not JSON \(Extra data\); JSON lines go into a file that ends in"):
        list(read_squad(str(path)))


def test_cmrc_has_ids_of_its_own(tmp_path):
    content = {
        "version": "1.1",
        "data": [
            {
                "paragraphs": [
                    {
                        "id": "TRIAL_800",
                        "context": "由韩国Nexon开发。",
                        "qas": [
                            {
                                "question": "谁开发？",
                                "id": "TRIAL_800_QUERY_0",
                                "answers": [{"text": "韩国Nexon", "answer_start": 1}],
                            }
                        ],
                    }
                ]
            }
        ],
    }
    (found,) = read(tmp_path, content)
    assert (found.id, found.answers) == ("TRIAL_800_QUERY_0", (Answer("韩国Nexon", 1),))


def test_numbers_and_depths_beyond_reason_are_refused(tmp_path):
    path = tmp_path / "a.json"
    text = json.dumps(squad(question(1)), ensure_ascii=False)
    path.write_text(text.replace("14", "1" * 5000), encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.json, line 1: is not JSON \(Exceeds the limit"):
        list(read_squad(str(path)))
    content = broken(lambda p, q: first(q, text="Rome"))
    deep = json.dumps({"extra": 0, **content}, indent=1, ensure_ascii=False).replace("0", "[" * 700 + "]" * 700, 1)
    path.write_text(deep, encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.json, line 1: .*the answer 'Rome' is not at answer_start 14"):
        list(read_squad(str(path)))


def broken(change):
    """A file of three sound questions of which the second is changed."""
    content = squad(question(1), question(2), question(3))
    change(content["data"][0]["paragraphs"][0], content["data"][0]["paragraphs"][0]["qas"][1])
    return content


def first(entry, **changes):
    entry["answers"][0].update(changes)


@pytest.mark.parametrize(
    ("change", "begins", "what"),
    [
        (lambda p, q: first(q, answer_start=13), '"id": "q2"', "'Öslo' is not at answer_start 13: it stands at 14"),
        (lambda p, q: first(q, text="Rome"), '"id": "q2"', "'Rome' is not at answer_start 14: it is not in the"),
        (lambda p, q: first(q, text=""), '"id": "q2"', "an answer is empty; remove it, and if there is no other say"),
        (lambda p, q: first(q, answer_start="14"), '"id": "q2"', "answer_start is '14', not a whole number"),
        (lambda p, q: first(q, answer_start=True), '"id": "q2"', "answer_start is True"),
        (lambda p, q: first(q, answer_start=-5), '"id": "q2"', "the answer 'Öslo' is not at answer_start -5"),
        (lambda p, q: q.update(answers=[]), '"id": "q2"', 'no answer; if it has none, say "is_impossible": true'),
        (lambda p, q: q.update(answers=[], is_impossible=False), '"id": "q2"', "no answer; if it has none, say"),
        (lambda p, q: q.update(answers={}), '"id": "q2"', "no list 'answers'"),
        (lambda p, q: q.update(question=" "), '"id": "q2"', "the question is empty; remove it"),
        (lambda p, q: q.update(question=None), '"id": "q2"', "'question' is missing, or is not text"),
        (lambda p, q: q.update(id="q1"), '"id": "q1"', "a second question with the id 'q1'"),
        (lambda p, q: p.update(context=7), '"context": 7', "'context' is missing, or is not text"),
        (lambda p, q: p.pop("qas"), '"context"', "no list 'qas'; expected data, paragraphs and qas as SQuAD has them"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_line(tmp_path, change, begins, what):
    """The line on which the object begins: the brace before its first key."""
    content = broken(change)
    text = json.dumps(content, indent=1, ensure_ascii=False)
    lines = text.split("\n")
    expected = max(number for number, line in enumerate(lines, start=1) if begins in line) - 1
    with pytest.raises(DataError) as refusal:
        read(tmp_path, text)
    message = str(refusal.value)
    place = f"{tmp_path / 'a.json'}, line {expected}: data[0].paragraphs[0]"
    assert message.startswith(place)
    assert what in message


def test_a_file_of_one_line_has_one_line(tmp_path):
    with pytest.raises(DataError, match=r"a.json, line 1: data\[0\].paragraphs\[0\].qas\[1\]: the answer"):
        read(tmp_path, broken(lambda p, q: first(q, answer_start=13)), indent=None)


def test_half_a_character_is_refused(tmp_path):
    text = json.dumps(squad(question(1)), indent=1).replace("Where?", "Where \\ud83d?")
    with pytest.raises(DataError, match=r"line 10: .*'question' holds half a surrogate pair"):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ('{"data": [\n{"paragraphs": [', 2, "is not JSON"),
        ('{"data":\n [}', 2, "is not JSON"),
        (b'{"data":\n"\xff"}', 2, "is not UTF-8"),
        ("", 1, "is not JSON"),
        ("[" * 100_000, 1, "is nested too deeply"),
        ("[]", 1, "no list 'data'"),
        ('\n\n{"data": {}}', 3, "no list 'data'"),
        ('{"data": []}', 1, "holds no question"),
        ('{"data": [\n3]}', 1, "data[0]: no list 'paragraphs'"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path, text, line, what):
    with pytest.raises(DataError) as refusal:
        read(tmp_path, text)
    assert str(refusal.value).startswith(f"{tmp_path / 'a.json'}, line {line}: {what}")
