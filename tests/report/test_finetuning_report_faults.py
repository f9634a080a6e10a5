"""The report of a fine-tuning run where texts are hostile, files are gone or changed, or the run is not finished."""

from __future__ import annotations

import json
import os

import pytest

from bertsmith.errors import BertsmithError, InputError
from bertsmith.finetuning.request import digest_of
from bertsmith.jobs.report import report
from report.finetuned import (
    CONTEXT,
    KINDS,
    LOG,
    LONG,
    QUESTIONS,
    REVIEWS,
    SENTENCES,
    answered,
    conll,
    evaluation,
    json_lines,
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
from report.pages import HOSTILE, check_alone, check_pictures, read_page

CHOICES = {"text": "Which is red?", "choices": ["a rose", "a pebble"], "label": 0}


def make_hostile(kind, folder):
    if kind == "classify":
        rows, found = texts((HOSTILE, HOSTILE), ("x", "b")), [single("b", 0.75, HOSTILE), single("b", 0.75, HOSTILE)]
        return make_run(folder, kind, rows, found, labels=sorted([HOSTILE, "b"]))
    if kind == "several":
        return make_several(folder, HOSTILE)
    if kind == "regress":
        return make_numbers(folder, HOSTILE)
    if kind == "choose":
        return make_choices(folder, HOSTILE, HOSTILE)
    if kind == "tag":
        word = HOSTILE.replace(" ", "")
        return make_tagged(folder, [(f"{word} x", f"B-{word} O")], [f"O B-{word}"])
    asked = (HOSTILE, HOSTILE, f"say {HOSTILE} {LONG}", HOSTILE)
    return make_run(folder, kind, squad(asked), [answered(asked[0], asked[2], "say", 0.5, -1.0)])


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_text_is_shown_and_does_nothing(kind, tmp_path):
    folder = make_hostile(kind, tmp_path / "<b>run & co")
    with (folder / "metrics.jsonl").open("a", encoding="utf-8") as log:
        log.write(json_lines([{"kind": "note", "step": 2, "text": HOSTILE}, evaluation(2, **{f"f1_{HOSTILE}": 0.5})]))
    page = read_page(folder)
    check_alone(folder)
    check_pictures(folder, page)
    assert page.named("b") == []
    assert page.line.replace(" ", "").count(HOSTILE.replace(" ", "")) >= 3


def test_half_a_character_does_not_stop_the_page(tmp_path):
    page = read_page(
        make_numbers(tmp_path / "run", entries=[{"kind": "note", "step": 1, "text": "half \ud83d of one"}])
    )
    assert "half ? of one" in page.line


def test_a_page_stays_small_whatever_is_wrong(tmp_path):
    labels = [f"class {number} " + "y" * 500 for number in range(300)]
    rows = [("word " * 5000 + str(number), label) for number, label in enumerate(labels)]
    found = [single(labels[0], 0.9, labels[1])] * len(rows)
    found = [{**each, "scores": {**dict.fromkeys(labels, 0.0), labels[0]: 0.9}} for each in found]
    folder = make_run(tmp_path / "run", "classify", texts(*rows), found, labels=labels)
    page = read_page(folder)
    assert (folder / "report.html").stat().st_size < 2**20
    assert "299 of 300 are wrong, the first 25 are shown." in page.line
    assert len(page.tables["Most confident mistakes"]) == 26
    assert "And 100 more, rarer ones." in page.line


def test_a_run_that_goes_on_has_a_report(tmp_path):
    page = read_page(make_run(tmp_path / "run", "classify", texts(*REVIEWS), None, entries=LOG[:3]))
    assert "best accuracy 20.0% at step 1; not finished" in page.words
    assert "None yet: they are made at the end of the run." in page.words
    assert page.tables["Scores on the dev file"][0] == ["score", "first", "best", "at step", "last"]
    (tmp_path / "run" / "metrics.jsonl").write_text('{"kind": "train", "st', encoding="utf-8")
    assert "0 steps" in read_page(tmp_path / "run").words


def test_a_run_without_a_dev_file_has_a_report(tmp_path):
    page = read_page(make_run(tmp_path / "run", "regress", texts(("a", 1), ("b", 2)), None, with_dev=False))
    assert "The run has no dev file." in page.words
    assert page.tables["Size of the files"][1:] == [["train", "2", "1", "1.5", "2"]]


def test_files_that_are_gone_are_said_to_be(tmp_path):
    folder = make_classified(tmp_path / "run", entries=LOG)
    (tmp_path / "dev.jsonl").unlink()
    page = read_page(folder)
    assert page.line.count("dev.jsonl: cannot be read (No such file or directory)") == 3
    assert "Most confident mistakes" not in page.line
    assert "3 steps, 300 tokens" in page.line
    assert page.tables["Scores on the dev file"][1][-1] == "60.0%"


@pytest.mark.parametrize(
    ("kind", "content", "why"),
    [
        ("classify", texts(*REVIEWS[:4]), "it holds 4 examples, and there are 5 predictions"),
        ("classify", texts(*REVIEWS[:4], ("meh", "pos")), "f1 would be 0.4333, and was 0.4889"),
        ("classify", texts(*REVIEWS[:4], ("meh", "new")), "example 5 is not the one that was predicted"),
        ("regress", texts(("near", 1), ("far", 0.75), ("there", 4)), "would be"),
        ("choose", json_lines([CHOICES, CHOICES]), "example 1 is not the one that was predicted"),
        ("tag", conll([("Anna Borg lives in Oslo now", SENTENCES[0][1]), *SENTENCES[1:]]), "example 1 is not"),
        ("answer", squad(QUESTIONS[0], QUESTIONS[2], QUESTIONS[1]), "example 2 is not the one"),
        ("answer", squad(("q1", "Since when?", "Now " + CONTEXT, "1173"), *QUESTIONS[1:]), "example 1 is not the one"),
    ],
)
def test_a_dev_file_that_has_changed_is_said_to_have(kind, content, why, tmp_path):
    folder = KINDS[kind](tmp_path / "run")
    [dev] = tmp_path.glob("dev.*")
    dev.write_text(content, encoding="utf-8")
    page = read_page(folder)
    assert f"{dev}: has changed since the run" in page.line
    assert why in page.line
    assert "Most" not in page.line


def test_a_dev_file_is_known_by_its_content_and_not_by_its_age(tmp_path):
    """A copy of it is the same file; other texts with the same labels are another, which no score would show."""
    folder, dev = make_classified(tmp_path / "run"), tmp_path / "dev.jsonl"
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dev_digest": digest_of(str(dev))}))
    age = dev.stat().st_mtime
    os.utime(dev)
    page = read_page(folder)
    assert "changed" not in page.line
    assert "Most confident mistakes" in page.line
    rows = [json.loads(line) for line in dev.read_text().splitlines()]
    dev.write_text(json_lines([{**row, "text": f"not {row['text']}"} for row in rows]))
    os.utime(dev, (age, age))
    page = read_page(folder)
    assert f"{dev}: has changed since the run, so its examples are not shown: its content is another" in page.line
    assert "Most confident mistakes" not in page.line


@pytest.mark.parametrize(
    "line", ["not json", "[1]", '{"label": 3}', '{"label": "pos", "score": "high", "scores": {}}', "\xff"]
)
def test_damaged_predictions_are_said_to_be(line, tmp_path):
    folder = make_classified(tmp_path / "run")
    path = folder / "predictions.jsonl"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*lines[:2], line.encode("latin-1"), *lines[3:]]))
    assert "predictions.jsonl, line 3: is no prediction of this task" in read_page(folder).line
    path.write_bytes(b"")
    assert "predictions.jsonl: holds no prediction" in read_page(folder).line


def test_a_folder_that_is_no_run_is_an_error_with_its_name(tmp_path):
    folder = make_classified(tmp_path / "run")
    (folder / "result.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match=r"result\.json"):
        report(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, "kind": "guess"}), encoding="utf-8")
    with pytest.raises(BertsmithError, match="guess"):
        report(folder)
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(InputError, match=r"run: no run here; expected metrics\.jsonl"):
        report(folder)
