"""The report of a fine-tuning run: its numbers, its mistakes, and what it says where something is missing."""

from __future__ import annotations

import doctest
import importlib
import json
import shutil

import pytest

from bertsmith.jobs.finetune import finetune, make_request
from bertsmith.train import keeping
from bertsmith.train.speed import Peak
from pretraining.small_runs import WORDS, write_model
from report.finetuned import (
    CONTEXT,
    KINDS,
    LOG,
    QUESTIONS,
    answered,
    conll,
    json_lines,
    make_answered,
    make_choices,
    make_classified,
    make_numbers,
    make_run,
    make_several,
    make_tagged,
    single,
    squad,
    texts,
)
from report.pages import check_alone, check_pictures, read_page


def test_the_lead_scores_and_data_of_a_run(tmp_path):
    options = {"columns": {"text": "text"}, "labels": None}
    folder = make_classified(tmp_path / "run", entries=LOG, preset="sst2", options=options)
    page = read_page(folder)
    lead = "tiny, sst2 (classify); 3 steps, 5 examples, 300 tokens in 1.5 minutes of training"
    assert f"{lead}; best accuracy 60.0% at step 2\n" in page.words
    assert page.tables["Scores on the dev file"][:2] == [
        ["score", "first", "best", "at step", "last", "kept model"],
        ["accuracy", "20.0%", "60.0%", "2", "40.0%", "60.0%"],
    ]
    assert ["Matthews", "-0.250", "0.500", "2", "0.125", "0.505"] in page.tables["Scores on the dev file"]
    assert page.tables["Scores on the dev file"][-1] == ["loss", "0.500", "0.250", "2", "0.500", "0.500"]
    assert page.tables["Size of the files"][1:] == [["train", "5"], ["dev", "5"]]
    assert page.tables["Labels"][1:] == [
        ["neu", "2", "40.0%", "2", "40.0%"],
        ["neg", "2", "40.0%", "2", "40.0%"],
        ["pos", "1", "20.0%", "1", "20.0%"],
    ]
    assert ["settings.batch.size", "32"] in page.tables["Settings"]


def test_several_classes_a_text(tmp_path):
    page = read_page(make_several(tmp_path / "run"))
    assert page.tables["Scores of each class"][1:] == [
        ["red", "50.0%", "100.0%", "66.7%", "1"],
        ["water", "100.0%", "50.0%", "66.7%", "2"],
    ]
    assert page.tables["Most confident mistakes"] == [
        ["line", "text", "gold", "missed", "wrongly named"],
        ["1", "a red river", "red, water", "water (12.5%)", ""],
        ["2", "a stone", "none", "", "red (62.5%)"],
    ]
    assert "Expected calibration error: 41.7%." in page.line  # (0.625 + 4 × 0.25 + 0.875) / 6
    assert page.tables["Calibration by confidence"][0][1] == "yes or no, at one half"
    assert page.tables["Calibration by confidence"][2] == ["0.7 to 0.8", "4", "75.0%", "100.0%"]


def test_pairs_of_texts_are_shown_together(tmp_path):
    rows = [{"text": "who", "pair": "Anna", "label": "1"}, {"text": "where", "pair": "Oslo", "label": "0"}]
    guesses = [single("1", 0.75, "0"), single("1", 0.875, "0")]
    page = read_page(make_run(tmp_path / "run", "classify", json_lines(rows), guesses, labels=["0", "1"]))
    assert page.tables["Most confident mistakes"][1:] == [["2", "where", "Oslo", "0", "1", "87.5%", "12.5%"]]


def test_many_classes_are_shown_by_what_is_confused_most(tmp_path):
    names = [f"{number:02d}" for number in range(40)]
    rows = [("x", name) for name in names] + [("x", "07")] * 3
    found = [single(name, 0.5, *(other for other in names if other != name)) for name in names]
    found += [single("08", 0.5, *(name for name in names if name != "08"))] * 3
    page = read_page(make_run(tmp_path / "run", "classify", texts(*rows), found, labels=names))
    assert page.tables["Classes that are confused most"][1:] == [["07", "08", "3", "75.0%"]]
    assert "gold \\ guess" not in page.tables


def test_numbers_have_their_errors(tmp_path):
    folder = make_numbers(tmp_path / "run")
    page = read_page(folder)
    assert "Mean absolute error: 0.917. Root of the mean squared error: 1.199." in page.line
    assert page.tables["Largest errors"][1:] == [
        ["2", "far", "2.5", "0.500", "-2.000"],
        ["1", "near", "1", "1.500", "+0.500"],
        ["3", "there", "4", "4.250", "+0.250"],
    ]
    assert page.tables["Size of the files"][1] == ["train", "3", "1", "2.5", "4"]
    assert (folder / "plots" / "scatter.png").is_file()


def test_choices_name_the_right_one_and_the_chosen_one(tmp_path):
    page = read_page(make_choices(tmp_path / "run"))
    assert "1 of 2 are right: an accuracy of 50.0%." in page.line
    assert "Expected calibration error: 45.0%." in page.line
    assert "Line 1 Which is red? a rose gold 25.0% a stone guess 75.0%" in page.line
    assert [mark["class"] for mark in page.named("mark")] == ["gold", "guess"]


def test_entities_are_marked_in_their_sentence_in_both_readings(tmp_path):
    folder = make_tagged(tmp_path / "run")
    page = read_page(folder)
    assert page.tables["Scores of each class"][1:] == [
        ["LOC", "100.0%", "66.7%", "80.0%", "3"],
        ["ORG", "0.0%", "0.0%", "0.0%", "0"],
        ["PER", "0.0%", "0.0%", "0.0%", "1"],
    ]
    assert "Precision 50.0%, recall 50.0%, F1 50.0%; 81.8% of the words have the right tag." in page.line
    html = (folder / "report.html").read_text(encoding="utf-8")
    assert (
        '<dt>gold</dt><dd dir="auto"><mark class="gold">[Anna Berg <small>PER, missed</small>]</mark> lives in '
        '<mark class="gold">[Oslo <small>LOC, missed</small>]</mark> now</dd>'
    ) in html
    assert '<mark class="guess">⟨Anna <small>PER, wrong</small>⟩</mark> Berg lives in' in html
    assert "1 of 3 sentences have mistakes" in page.line
    assert page.tables["Size of the files"][1] == ["train", "3", "11"]


def test_chinese_entities_and_the_most_mistaken_sentence_first(tmp_path):
    sentences = [("小 明 在 北 京", "B-PER I-PER O B-LOC I-LOC"), ("上 海", "B-LOC I-LOC")]
    found = [{"text": "小明在北京", "tags": ["O"] * 5}, {"text": "上海", "tags": ["O"] * 2}]
    page = read_page(make_run(tmp_path / "run", "tag", conll(sentences[::-1]), found[::-1]))
    assert "[小明 PER, missed ] 在 [北京 LOC, missed ] guess 小明在北京 Line 1" in page.line


def test_answers_stand_in_an_excerpt_of_their_context(tmp_path):
    page = read_page(make_answered(tmp_path / "run"))
    assert page.tables["gold \\ guess"][1:] == [["an answer", "2 100%", "0 0%"], ["none", "0 0%", "1 100%"]]
    assert "where its null margin is above 0.500." in page.line
    first, second = page.line.index("Which tower?"), page.line.index("Since when?")
    assert first < second  # the surer mistake
    assert "Probability 75.0%; F1 50.0%; null margin -2.00; gold: Pisa; guess: tower of Pisa" in page.line
    assert "The tower of [Pisa] leans" in page.line
    assert "The ⟨tower of Pisa⟩ leans" in page.line
    assert "Who paid?" not in page.line  # rightly without an answer
    assert max(len(line) for line in page.words.splitlines()) < 500


def test_no_answer_is_a_mistake_too(tmp_path):
    content = squad(*QUESTIONS, ("q4", "Whose tower?", CONTEXT, "Pisa"))
    found = [
        answered("q1", CONTEXT, None, 0.0, 1e9),
        answered("q2", CONTEXT, "Pisa", 0.5, -5.0),
        answered("q3", CONTEXT, "tower", 0.5, -9.0),
        answered("q4", CONTEXT, "Pisa", 0.5, -5.0),
    ]
    page = read_page(make_run(tmp_path / "run", "answer", content, found, options={"unanswerable": True}))
    assert page.tables["gold \\ guess"][1:] == [["an answer", "2 67%", "1 33%"], ["none", "1 100%", "0 0%"]]
    assert (
        "Probability 100.0%; F1 0.0%; null margin unknown, as nothing can be an answer; gold: 1173; guess: no answer"
        in page.line
    )
    assert "gold: no answer; guess: tower" in page.line
    assert "2 of 4 answers are not exactly right" in page.line


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_is_whole_and_open_to_everyone(kind, tmp_path):
    folder = KINDS[kind](tmp_path / "run", entries=LOG)
    page = read_page(folder)
    check_alone(folder)
    check_pictures(folder, page)
    regions = [attributes for attributes in page.named("div") if attributes.get("class") == "wide"]
    assert len(regions) == len(page.named("table"))
    assert all(region["tabindex"] == "0" and region["aria-label"] for region in regions)
    assert all(heading["scope"] in ("row", "col") for heading in page.named("th"))
    assert page.named("html") == [{"lang": "en"}]
    assert len(page.named("h1")) == len(page.named("main")) == 1


@pytest.fixture(scope="module")
def real_run(tmp_path_factory):
    """A tiny model, trained for some steps."""
    folder = tmp_path_factory.mktemp("real")
    rows = [(f"{word} {WORDS[number % 5]}", "even" if number % 2 else "odd") for number, word in enumerate(WORDS)]
    for name, part in (("train.jsonl", rows[:32]), ("dev.jsonl", rows[32:])):
        (folder / name).write_text(texts(*part), encoding="utf-8")
    changes = {"batch.size": 8, "epochs": 2, "optimizer.rate": 1e-3, "task.max_length": 16}
    request = make_request(
        str(write_model(folder / "model")),
        kind="classify",
        train=folder / "train.jsonl",
        dev=folder / "dev.jsonl",
        changes=changes,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keeping, "measure_peak", lambda *given, **named: Peak(1e11, "none"))
        finetune(request, folder / "run")
    return folder / "run"


def test_a_real_run_has_its_report_when_it_ends(real_run):
    assert (real_run / "report.html").is_file()
    page = read_page(real_run)
    check_pictures(real_run, page)
    assert {path.stem for path in (real_run / "plots").iterdir()} == {
        "calibration",
        "loss",
        "norm",
        "rate",
        "scores",
        "speed",
    }
    scores = json.loads((real_run / "result.json").read_text(encoding="utf-8"))["scores"]
    assert page.tables["Scores on the dev file"][1][0] == "accuracy"
    assert page.tables["Scores on the dev file"][1][-1] == f"{scores['accuracy']:.1%}"
    assert "model, classify; 8 steps, 32 examples" in page.line
    counts = [int(cell.split()[0]) for row in page.tables["gold \\ guess"][1:] for cell in row[1:]]
    assert sum(counts) == 16
    assert (counts[0] + counts[3]) / 16 == scores["accuracy"]


def test_a_real_run_in_the_middle_has_a_report(real_run, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(real_run, folder)
    for name in ("predictions.jsonl", "result.json", "report.html"):
        (folder / name).unlink()
    assert "not finished" in read_page(folder).words


@pytest.mark.parametrize("name", ["figures", "marks", "page"])
def test_examples_in_docstrings_hold(name):
    result = doctest.testmod(importlib.import_module(f"bertsmith.report.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
