"""Seeds, searches, and runs that are stopped and go on, from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertsmith.cli.finetune import _print_summary
from bertsmith.finetuning import many, study
from cli.finetune.lines import QUICK, write_reviews
from finetuning.small_tasks import reviews, write_table


def test_seeds_print_a_table(run):
    write_reviews()
    given = f"finetune MODEL --task classify --train a.tsv --dev a.tsv --output run --epochs 1 {QUICK} --seeds 2"
    code, out, err = run(given)
    assert code == 0, err
    lines = [line.split("\t") for line in out.splitlines()]
    assert lines[0] == ["run", "settings", "accuracy", "f1", "macro_f1", "micro_f1", "matthews"]
    assert [line[:2] for line in lines[1:4]] == [["seed-000", "seed=0"], ["seed-001", "seed=1"], ["mean ± spread", ""]]
    assert lines[4][0].startswith("best by accuracy: seed-00")
    assert lines[5] == ["model: run/model"]
    content = json.loads(Path("run/summary.json").read_text())
    mean, spread = content["mean"]["accuracy"], content["spread"]["accuracy"]
    assert lines[3][2] == f"{100 * mean:.1f} ± {100 * spread:.1f}"
    code, out, err = run(f"{given} --resume --json")
    assert code == 0
    assert json.loads(out) == {"model": "run/model", **content}
    assert "steps" not in err  # nothing ran again
    code, out, _ = run("evaluate run --data a.tsv --json")
    assert json.loads(out)["accuracy"] == content["best"]["scores"]["accuracy"]


def test_a_search_prints_its_table(run, monkeypatch):
    monkeypatch.setattr(many, "GRID", {"optimizer.rate": (1e-6, 1e-2), "epochs": (4,)})
    write_reviews()
    given = "finetune MODEL --task classify --train a.tsv --dev a.tsv --output run --max-length 32 --search grid"
    code, out, err = run(given)
    assert code == 0, err
    lines = [line.split("\t") for line in out.splitlines()]
    assert [line[1] for line in lines[1:3]] == ["optimizer.rate=1e-06, epochs=4", "optimizer.rate=0.01, epochs=4"]
    scores = [trial["scores"]["accuracy"] for trial in json.loads(Path("run/summary.json").read_text())["trials"]]
    assert [line[2] for line in lines[1:3]] == [f"{100 * score:.1f}%" for score in scores]
    assert lines[4][0] == f"best by accuracy: trial-00{scores.index(max(scores))}"
    code, _, err = run(f"{given} --resume")
    assert (code, "steps" in err) == (0, False)


def test_a_search_does_not_pass_over_what_was_given(run):
    write_reviews()
    given = "finetune MODEL --task classify --train a.tsv --dev a.tsv --output run --max-length 32"
    for more, said in (
        (
            "--search grid --rate 1e-3",
            "optimizer.rate: --search grid looks for it itself; leave it out, or use --seeds",
        ),
        ("--search optuna --set schedule.warmup=0.5", "schedule.warmup: --search optuna looks for it itself; leave it"),
        ("--search grid --set batch.tokens=64", "batch.tokens: --search looks for batch.size, which it makes void"),
        ("--seeds 2 --trials 3", "--trials: is for --search optuna; leave it out"),
        ("--rate 1e-3 --set optimizer.rate=1e-4", "optimizer.rate: is given twice, by --set optimizer.rate=… and by"),
    ):
        code, out, err = run(f"{given} {more}")
        assert (code, out) == (2, "")
        assert said in err
    assert not Path("run").exists()


def test_a_study_gives_up_what_does_worse_than_most(run, monkeypatch):
    """With Optuna's own pruner, which compares from the fifth trial on."""
    monkeypatch.setattr(study, "SPACE", {"optimizer.rate": (1e-4, 3e-1, True), "epochs": [8]})
    write_reviews()
    given = "finetune MODEL --task classify --train a.tsv --dev a.tsv --output run --max-length 32 --batch-size 4"
    code, out, err = run(f"{given} --search optuna --trials 8 --seed 1")
    assert code == 0, err
    rows = [line.split("\t") for line in out.splitlines()][1:9]
    trials = json.loads(Path("run/summary.json").read_text())["trials"]
    assert [row[2] == "given up" for row in rows] == [trial["scores"] is None for trial in trials]
    given_up = [number for number, trial in enumerate(trials) if trial["scores"] is None]
    assert given_up
    assert min(given_up) >= 4
    for number in given_up:
        assert not Path(f"run/trial-{number:03d}/model").exists()
        assert not Path(f"run/trial-{number:03d}/checkpoints").exists()


def test_a_study_prints_its_table(run):
    write_reviews()
    given = "finetune MODEL --task classify --train a.tsv --dev a.tsv --output run --max-length 32 --search optuna "
    given += "--trials 2"
    code, out, err = run(given)
    assert code == 0, err
    lines = [line.split("\t") for line in out.splitlines()]
    assert [line[0] for line in lines[1:3]] == ["trial-000", "trial-001"]
    assert "optimizer.rate=" in lines[1][1]
    assert "schedule.warmup=" in lines[1][1]
    assert Path("run/study.journal").exists()
    code, out, err = run(f"{given} --resume --json")
    assert (code, "steps" in err) == (0, False)
    assert len(json.loads(out)["trials"]) == 2


def test_a_table_of_runs_that_differ_in_their_scores(capsys, tmp_path):
    """A class that one run guessed and another did not; a run that was given up."""
    trials = [
        many.Trial({"seed": 0}, {"f1": 0.75, "f1_X": 0.5}, tmp_path / "seed-000"),
        many.Trial({"seed": 1}, {"f1": 0.5}, tmp_path / "seed-001"),
        many.Trial({"seed": 2}, None, tmp_path / "seed-002"),
        many.Trial({"seed": 3}, None, tmp_path / "seed-003", "the loss is not finite"),
    ]
    _print_summary(many.Summary(tmp_path, "f1", trials, tmp_path / "model"), as_json=False)
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert lines[1:5] == [
        ["seed-000", "seed=0", "75.0%", "50.0%"],
        ["seed-001", "seed=1", "50.0%", ""],
        ["seed-002", "seed=2", "given up", "given up"],
        ["seed-003", "seed=3", "failed", "failed"],
    ]


@pytest.mark.parametrize("more", ["", "--seeds 1"])
def test_a_signal_saves_and_stops_and_resume_goes_on(run, stop_at, more):
    write_reviews()
    given = f"finetune MODEL --task classify --train a.tsv --dev a.tsv --epochs 2 {QUICK} {more}"
    let_go = stop_at(4)
    code, out, err = run(f"{given} --output run")
    assert (code, out) == (130, "")
    after, again = ("", "the same command and") if more else (" after step 4", "bertsmith finetune --output run")
    assert f"stopped by SIGTERM{after}; all is saved. Go on with: {again} --resume" in err
    let_go()
    code, _, err = run(f"{given} --output run --resume")
    assert code == 0
    assert "bertsmith: going on from step 4" in err
    code, _, _ = run(f"{given} --output whole")
    assert Path("run/model/model.safetensors").read_bytes() == Path("whole/model/model.safetensors").read_bytes()


def test_resume_alone_goes_on_as_it_was_begun(run, stop_at):
    write_reviews()
    let_go = stop_at(2)
    run(f"finetune MODEL --task classify --train a.tsv --dev a.tsv --epochs 1 {QUICK} --output run")
    let_go()
    code, _, err = run("finetune --output run --resume --epochs 2")
    assert code == 2
    assert "the model is missing; without anything a run goes on as it was begun, with --resume alone" in err
    code, _, err = run(
        f"finetune MODEL --task classify --train a.tsv --dev a.tsv --epochs 2 {QUICK} --output run --resume"
    )
    assert code == 2
    assert "epochs: the run was begun with" in err
    code, out, _ = run("finetune --output run --resume --json")
    assert code == 0
    assert json.loads(out)["steps"] == 3


def test_glue_that_is_stopped_goes_on_with_the_task_it_was_at(run, stop_at):
    """SST-2, which has four steps, is done when the signal comes: in the sixth of RTE's eight."""
    rows = [(text, int(label == "pos")) for text, label in reviews(16)]
    pairs = [(number, text, text, ("entailment", "not_entailment")[label]) for number, (text, label) in enumerate(rows)]
    for folder in ("SST-2", "RTE"):
        Path("glue", folder).mkdir(parents=True)
    for name in ("train.tsv", "dev.tsv"):
        write_table(Path("glue/SST-2", name), ("sentence", "label"), rows[:8])
        write_table(Path("glue/RTE", name), ("index", "sentence1", "sentence2", "label"), pairs)
    given = "glue MODEL --data glue --epochs 1 --batch-size 2 --rate 5e-3 --set task.max_length=32"
    let_go = stop_at(6)
    code, out, err = run(f"{given} --output run")
    assert (code, out) == (130, "")
    assert "stopped by SIGTERM; all is saved. Go on with: the same command and --resume" in err
    assert [Path("run", task, "result.json").exists() for task in ("sst2", "rte")] == [True, False]
    let_go()
    code, out, err = run(f"{given} --output run --resume --json")
    assert code == 0
    assert "going on from step 6" in err
    assert json.loads(out)["tasks"] == json.loads(run(f"{given} --output whole --json")[1])["tasks"]
