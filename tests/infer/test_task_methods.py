"""`classify`, `tag`, `answer` and `choose` of the engine: what `predict` says of the same things in a file."""

from __future__ import annotations

import pytest

from bertsmith.errors import InputError, TokenizerError
from bertsmith.infer import pipeline
from bertsmith.infer.engine import load
from bertsmith.jobs.predict import predict
from finetuning.small_tasks import (
    pairs,
    questions,
    read_json_lines,
    riddles,
    write_json_lines,
    write_lines,
    write_model,
    write_squad,
)
from infer.task_models import near, write_task, write_tasks

TEXTS = [
    "the river was good",
    "Anna lives in Paris.",
    "stone " * 50,
    "我在北京大学",
    "",
    "awful! \t winter",
]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return write_tasks(tmp_path_factory.mktemp("tasks"))


@pytest.fixture
def said(models, tmp_path):
    """What `predict` says of a file."""

    def run(kind, file):
        predict(str(models / kind), input=str(file), output=tmp_path / "said.jsonl")
        return read_json_lines(tmp_path / "said.jsonl")

    return run


@pytest.mark.parametrize("kind", ["classify", "multilabel", "regress"])
def test_classify_texts(models, said, tmp_path, kind):
    expected = said(kind, write_json_lines(tmp_path / "a.jsonl", [{"text": text} for text in TEXTS]))
    engine = load(str(models / kind))
    assert engine.classify(TEXTS) == near(expected)
    assert engine.classify(iter(TEXTS)) == near(expected)
    assert [engine.classify([text])[0] for text in TEXTS] == near(expected)
    assert engine.classify([]) == []
    assert len({str(each) for each in expected}) == len(TEXTS)  # or everything would be the same


def test_classify_pairs(models, said, tmp_path):
    rows = [(text, other) for text, other, _ in pairs(6)]
    file = write_json_lines(tmp_path / "a.jsonl", [{"text": text, "pair": other} for text, other in rows])
    engine = load(str(models / "classify"))
    assert engine.classify(rows) == near(said("classify", file))
    assert engine.classify([list(row) for row in rows]) == near(said("classify", file))


def test_tag_texts(models, said, tmp_path):
    expected = said("tag", write_json_lines(tmp_path / "a.jsonl", [{"text": text} for text in TEXTS]))
    engine = load(str(models / "tag"))
    found = engine.tag(TEXTS)
    assert found == near(expected)
    assert any(each["entities"] for each in found)
    for each in found:
        for entity in each["entities"]:
            assert each["text"][entity["start"] : entity["end"]] == entity["text"]


def test_texts_that_are_tagged_in_one_call_are_no_document(tmp_path):
    """With `context` a text must not be read with the one before it, which may be another caller's."""
    engine = load(str(write_task(tmp_path / "m", "tag", context=True)))
    together = engine.tag(TEXTS)
    assert together == near([engine.tag([text])[0] for text in TEXTS])


def test_answer(models, said, tmp_path):
    asked = questions(5)
    expected = said("answer", write_squad(tmp_path / "a.json", asked))
    engine = load(str(models / "answer"))
    for paragraph, prediction in zip(asked, expected, strict=True):
        found = engine.answer(paragraph["qas"][0]["question"], paragraph["context"])
        assert {**found, "id": prediction["id"]} == near(prediction)
        best = found["candidates"][0]
        assert found["answer"] == paragraph["context"][best["start"] : best["end"]]
    assert engine.answer("who", "")["answer"] == ""


def test_choose(models, said, tmp_path):
    asked = riddles(5)
    expected = said("choose", write_json_lines(tmp_path / "a.jsonl", asked))
    engine = load(str(models / "choose"))
    assert [engine.choose(row["text"], row["choices"]) for row in asked] == near(expected)
    assert engine.choose(asked[0]["text"], tuple(asked[0]["choices"])) == near(expected[0])


def test_predict_streams_examples(models, monkeypatch):
    monkeypatch.setattr(pipeline, "_INPUTS_AT_ONCE", 4)
    engine = load(str(models / "classify"))
    taken = []

    def examples():
        for number in range(40):
            taken.append(number)
            yield engine.task.example(text=TEXTS[number % 4])

    stream = engine.predict(examples())
    assert not taken
    first = next(stream)
    assert len(taken) <= 13
    found = [first, *stream]
    assert found == near(engine.classify([TEXTS[number % 4] for number in range(40)]))


def test_what_a_model_was_not_made_for_is_refused_by_name(models, tmp_path):
    engine = load(str(models / "tag"))
    asks = {
        "classify": lambda e: e.classify(["a"]),
        "tag": lambda e: e.tag(["a"]),
        "answer": lambda e: e.answer("a", "b"),
        "choose": lambda e: e.choose("a", ["b", "c"]),
    }
    for kind, ask in asks.items():
        if kind != "tag":
            with pytest.raises(InputError, match=f"was fine-tuned to tag, not to {kind}"):
                ask(engine)
    plain = load(str(write_model(tmp_path / "m")))
    assert plain.kind_of_task is None
    for ask in (*asks.values(), lambda e: e.predict([])):
        with pytest.raises(InputError, match="is a model of kind 'pretraining', which does no task yet; see bertsmith"):
            ask(plain)
    with pytest.raises(InputError, match="does no task yet"):
        predict(str(tmp_path / "m"), input="nowhere.txt")
    with pytest.raises(InputError, match="does no task yet"):
        load(str(tmp_path / "m"), options={"max_length": 16})


def test_options_are_those_of_the_task(models):
    engine = load(str(models / "multilabel"), options={"threshold": "0.999"})
    assert all(each["labels"] == [] for each in engine.classify(TEXTS))
    with pytest.raises(InputError, match="there is no such setting"):
        load(str(models / "multilabel"), options={"limit": "1"})
    with pytest.raises(InputError, match="beyond the model's 64 positions"):
        load(str(models / "multilabel"), options={"max_length": "65"})


@pytest.mark.parametrize("wrong", [5, None, ("a", "b", "c"), ("a",), (), {"text": "a"}])
def test_classify_wants_texts_and_pairs(models, wrong):
    with pytest.raises(InputError, match="expected a text or a pair of texts, found"):
        load(str(models / "classify")).classify(["a", wrong])


def test_what_is_no_text_is_named(models):
    for kind in ("classify", "tag"):
        engine = load(str(models / kind))
        ask = getattr(engine, kind)
        with pytest.raises(InputError, match="list of texts"):
            ask("one text")
        with pytest.raises(InputError, match="surrogate"):
            ask(["a", "b \udcff"])
    with pytest.raises(InputError, match="5 is not text"):
        load(str(models / "tag")).tag([5])
    engine = load(str(models / "answer"))
    for question, context in [("a\ud800", "b"), ("a", "b\ud800"), (5, "b"), ("a", None)]:
        with pytest.raises(TokenizerError):
            engine.answer(question, context)
    engine = load(str(models / "choose"))
    for choices, message in [(["b"], "1 choices"), ([], "0 choices"), ("bc", "list of texts"), (["b", 5], "not str")]:
        with pytest.raises(InputError, match=message):
            engine.choose("a", choices)


def test_an_error_in_the_middle_of_a_file_names_its_line_and_leaves_no_output(models, tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline, "_INPUTS_AT_ONCE", 4)
    lines = [f'{{"text": "the river {n}"}}' for n in range(30)]
    file = write_lines(tmp_path / "a.jsonl", [*lines, '{"text": 5}', *lines])
    with pytest.raises(InputError, match=r"a.jsonl, line 31: column 'text' holds 5, not text"):
        predict(str(models / "classify"), input=str(file), output=tmp_path / "said.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_texts_and_pairs_in_one_call_are_each_as_alone(models):
    engine = load(str(models / "classify"))
    mixed = ["the river was good", ("who is anna", "the good river"), "stone"]
    assert engine.classify(mixed) == near([engine.classify([one])[0] for one in mixed])
