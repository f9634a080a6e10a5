"""The report of several runs: a table of all, the best one marked, and what their scores have in common."""

from __future__ import annotations

import json

import pytest

from bertsmith.errors import InputError
from bertsmith.finetuning.many import GRID, run_grid, run_seeds
from bertsmith.finetuning.run import Result
from bertsmith.jobs.report import report
from bertsmith.train.checkpoint import Progress
from bertsmith.train.signals import StopRequest
from report.finetuned import make_classified
from report.pages import HOSTILE, check_alone, check_pictures, read_page

SCORES = {0: 0.5, 1: 0.75, 2: 0.625}


def write_summary(folder, **changes):
    trials = [
        {"folder": f"seed-{seed:03d}", "changes": {"seed": seed}, "scores": {"accuracy": score, "loss": 1.0 - score}}
        for seed, score in SCORES.items()
    ]
    content = {
        "metric": "accuracy",
        "best": trials[1],
        "mean": {"accuracy": 0.625, "loss": 0.375},
        "spread": {"accuracy": 0.125, "loss": 0.125},
        "trials": [
            *trials,
            {"folder": "seed-003", "changes": {"seed": 3}, "scores": None},
            {"folder": "seed-004", "changes": {"seed": 4}, "scores": None, "failed": "not finite"},
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").write_text(json.dumps({**content, **changes}), encoding="utf-8")
    return folder


def test_all_runs_are_in_a_table_with_the_best_first(tmp_path):
    page = read_page(write_summary(tmp_path / "seeds"))
    lead = "5 runs, 1 of them given up early, 1 failed; accuracy 62.5% ± 12.5%; best 75.0% in seed-001"
    assert f"{lead}\n" in page.words
    assert page.tables["Runs"] == [
        ["run", "remark", "seed", "accuracy", "loss"],
        ["seed-001", "★ best", "1", "75.0%", "0.250"],
        ["seed-002", "", "2", "62.5%", "0.375"],
        ["seed-000", "", "0", "50.0%", "0.500"],
        ["seed-003", "given up early", "3", "", ""],
        ["seed-004", "failed: not finite", "4", "", ""],
    ]
    assert page.tables["Scores over all runs"][1:] == [
        ["accuracy", "62.5% ± 12.5%", "50.0%", "75.0%"],
        ["loss", "0.375 ± 0.125", "0.250", "0.500"],
    ]
    check_alone(tmp_path / "seeds")
    check_pictures(tmp_path / "seeds", page)


def test_runs_that_have_pages_are_linked_and_the_best_tells_its_settings(tmp_path):
    folder = write_summary(tmp_path / "seeds")
    report(make_classified(folder / "seed-001"))
    page = read_page(folder)
    assert page.named("a") == [{"href": "./seed-001/report.html"}]
    assert ["kind", "classify"] in page.tables["Settings"]


def run_nothing(request, folder, observer):
    """A run that leaves a model and a score, and took no time."""
    (folder / "model").mkdir(parents=True)
    score = 0.5 + request.settings.optimizer.rate * 1e3 + request.settings.seed / 100
    return Result(folder, Progress(), {"accuracy": score, "f1_a_b": 0.5}, "accuracy", folder / "model")


@pytest.mark.parametrize("kind", ["seeds", "grid"])
def test_what_several_runs_really_write_has_a_report(kind, tmp_path):
    from bertsmith.finetuning.request import read_request

    request = read_request(make_classified(tmp_path / "one"))
    folder = tmp_path / kind
    if kind == "seeds":
        run_seeds(request, folder, 3, run_nothing, StopRequest())
    else:
        run_grid(request, folder, run_nothing, StopRequest())
    page = read_page(folder)
    rows = page.tables["Runs"]
    changed = ["seed"] if kind == "seeds" else list(GRID)
    assert rows[0] == ["run", "remark", *changed, "accuracy", "F1 of a_b"]
    assert len(rows) == 1 + (3 if kind == "seeds" else 18)
    assert [row[1] for row in rows[1:]].count("★ best") == 1
    assert rows[1][1] == "★ best"
    check_pictures(folder, page)
    assert len(page.images) == len(changed)


@pytest.mark.parametrize("name", ["../out", "..", "", HOSTILE, "a\0b"])
def test_hostile_names_are_shown_and_lead_nowhere(name, tmp_path):
    (tmp_path / "out").mkdir()
    for place in (tmp_path, tmp_path / "out"):
        (place / "report.html").write_text("x", encoding="utf-8")
        (place / "config.json").write_text("{}", encoding="utf-8")
    trial = {"folder": name, "changes": {"$x_$": 10**400, HOSTILE: HOSTILE, "y$": 3}, "scores": {"accuracy": 0.5}}
    folder = write_summary(tmp_path / "seeds", best=trial, trials=[trial])
    page = read_page(folder)
    check_alone(folder)
    assert page.named("a") == []
    assert "Settings" not in page.tables
    assert HOSTILE in page.tables["Runs"][0]
    assert len(page.images) == 1


@pytest.mark.parametrize("changes", [{"trials": 3}, {"best": None}, {"mean": {"accuracy": "high"}}])
def test_a_summary_that_is_damaged_is_an_error_with_its_name(changes, tmp_path):
    with pytest.raises(InputError, match=r"summary\.json: is not the summary of several runs"):
        report(write_summary(tmp_path / "seeds", **changes))
