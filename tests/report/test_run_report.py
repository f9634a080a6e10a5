"""The report of a run: one page that needs nothing else, from whatever a run folder holds by then."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bertsmith.errors import InputError
from bertsmith.jobs.report import report
from bertsmith.pretraining.recipes import modern
from bertsmith.pretraining.request import make_request
from bertsmith.pretraining.settings import Budget
from bertsmith.train.request import write_request
from pretraining.small_runs import build_data, make_documents
from report.pages import HOSTILE, check_alone, check_pictures, read_page


def step(number, *, pairs=True, **values):
    figures = {"loss": 5.0, "mlm_loss": 5.0 - number / 10, "mlm_accuracy": number / 100, "perplexity": 40.0}
    if pairs:
        figures |= {"pair_loss": 0.7, "pair_accuracy": 0.5}
    entry = {"kind": "train", "step": number, "seconds": 30.0 * number, "tokens": 1000 * number, **figures}
    return {**entry, "rate": 1e-3, "norm": 1.0, "tokens_per_second": 9000.0, **values}


def evaluation(number, **values):
    return {**step(number), "kind": "eval", **values}


def fill(number, text="bar [MASK] bal.", answer="ban", candidates=(("ban", 0.25), ("bap", 0.125))):
    return {"kind": "fill", "step": number, "text": text, "answer": answer, "candidates": candidates}


@pytest.fixture
def make(tmp_path):
    """A run folder with these entries in its log."""

    def run(entries, *, shards=None, tail="", size="tiny", total=10):
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        request = make_request(shards or tmp_path / "gone", size=size, budget=Budget(steps=total))
        write_request(folder, replace(request, total=total))
        lines = "".join(json.dumps(entry) + "\n" for entry in entries) + tail
        (folder / "metrics.jsonl").write_text(lines, encoding="utf-8")
        return folder

    return run


def usual():
    steps = [step(number) for number in range(1, 11)]
    return [evaluation(0), fill(0), *steps, evaluation(5), fill(5), evaluation(10, mlm_accuracy=0.05), fill(10)]


def test_the_page_needs_nothing_from_elsewhere(make):
    folder = make(usual())
    page = read_page(folder)
    check_alone(folder)
    assert page.named("a") == []


def test_pictures_are_valid_in_the_page_and_beside_it(make):
    folder = make(usual())
    check_pictures(folder, read_page(folder))
    assert sorted(file.name for file in (folder / "plots").iterdir()) == [
        "accuracy.png",
        "loss-pairs.png",
        "loss-words.png",
        "norm.png",
        "rate.png",
        "speed.png",
    ]


def test_figures_settings_and_gaps_are_shown(make):
    page = read_page(make(usual()))
    assert "tiny, recipe modern; 10 of 10 steps, 10,000 tokens in 5.0 minutes of training" in page.words
    assert "masked words, accuracy\n0.0%\n5.0%\n5.0%" in page.words
    assert "masked words, loss\n5.000\n4.000\n4.000" in page.words
    assert "bar [MASK] bal.\nban\nban 25%, bap 12%" in page.words
    assert "step 0\nstep 5\nstep 10" in page.words
    assert f"settings.optimizer.rate\n{modern().optimizer.rate}" in page.words
    assert "budget.steps\n10" in page.words
    assert "Remarks" not in page.words


def test_the_data_set_is_described_or_said_to_be_gone(make, tmp_path):
    assert "gone: no such folder" in read_page(make(usual())).words
    data = build_data(tmp_path / "d", make_documents(20))
    words = read_page(make(usual(), shards=data)).words
    assert "train\n" in words
    assert "holdout\n" in words
    assert "Vocabulary: 56" in words


def test_hostile_text_is_shown_and_does_nothing(make):
    entries = [
        *usual(),
        fill(5, text=HOSTILE, answer=HOSTILE, candidates=[(HOSTILE, 0.5)]),
        {"kind": "note", "step": 7, "text": HOSTILE},
    ]
    folder = make(entries)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config |= {"recipe": HOSTILE, "size": HOSTILE, HOSTILE: {HOSTILE: HOSTILE}}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    hostile = folder.rename(folder.with_name("<b>run & co"))
    page = read_page(hostile)
    assert "<script" not in (hostile / "report.html").read_text(encoding="utf-8")
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "b"})
    assert len(page.named("img")) == 6
    assert page.words.count(HOSTILE) >= 6
    assert "Remarks" in page.words


def test_a_run_that_has_only_begun_has_a_report(make):
    page = read_page(make([]))
    assert "0 of 10 steps" in page.words
    assert page.named("img") == []
    assert "None." in page.words
    words = read_page(make([evaluation(0), step(1), step(2)], tail='{"kind": "train", "st')).words
    assert "2 of 10 steps" in words


def test_without_pairs_there_is_nothing_about_pairs(make):
    folder = make([step(number, pairs=False) for number in (1, 2)])
    page = read_page(folder)
    assert not (folder / "plots" / "loss-pairs.png").exists()
    assert "Sentence pairs: loss" not in [image["alt"] for image in page.named("img")]
    assert "pairs, loss" not in page.words


def test_a_loss_that_was_not_a_number_is_drawn_around(make):
    page = read_page(
        make([*usual(), step(11, mlm_loss=float("nan"), norm=float("inf")), evaluation(11, loss=float("nan"))])
    )
    assert len(page.named("img")) == 6


def test_a_report_is_written_again_over_the_last(make):
    folder = make(usual()[:6])
    assert "4 of 10 steps" in read_page(folder).words
    assert "10 of 10 steps" in read_page(make(usual())).words


def test_a_folder_without_a_run_is_an_error_with_its_name(tmp_path, make):
    with pytest.raises(InputError, match=r"absent: no run here; expected metrics\.jsonl"):
        report(tmp_path / "absent")
    with pytest.raises(InputError, match="no run here"):
        report(tmp_path)
    folder = make(usual())
    (folder / "config.json").unlink()
    with pytest.raises(InputError, match=r"config\.json"):
        report(folder)


@pytest.mark.parametrize("line", ["not json\n", "[1, 2]\n", '{"step": 1}\n', '{"kind": "train"}\n', "\xff\n"])
def test_a_log_that_is_damaged_is_an_error_with_its_name(line, make):
    folder = make(usual())
    log = folder / "metrics.jsonl"
    log.write_bytes(log.read_bytes() + line.encode("latin-1") + b'{"kind": "note", "step": 3, "text": "x"}\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl"):
        report(folder)


def test_the_page_of_the_folder_one_is_in_has_its_name(make, monkeypatch):
    monkeypatch.chdir(make(usual()))
    report(Path())
    assert "<title>Pre-training: run</title>" in Path("report.html").read_text(encoding="utf-8")
