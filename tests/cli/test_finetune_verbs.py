"""`finetune`, `evaluate` and `predict` as a user meets them: from files to scores and predictions, and mistakes."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sys
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace

import pyarrow
import pytest
from pyarrow import parquet

from bertsmith.cli import main as cli
from bertsmith.cli.display import FinetuneDisplay
from bertsmith.cli.finetune import _print_summary
from bertsmith.finetuning import many
from bertsmith.train import keeping
from bertsmith.train.speed import Peak
from finetuning.small_tasks import (
    questions,
    read_json_lines,
    reviews,
    tagged,
    write_all_kinds,
    write_conll,
    write_json_lines,
    write_lines,
    write_model,
    write_table,
)
from report.pages import Page, check_alone


@pytest.fixture(scope="module")
def things(tmp_path_factory):
    """A model, and a file of every kind."""
    folder = tmp_path_factory.mktemp("things")
    write_model(folder / "model")
    return folder, write_all_kinds(folder)


@pytest.fixture
def run(capsys, things, tmp_path, monkeypatch):
    """Run a command line in a folder of its own; gives exit code, stdout, stderr. MODEL is replaced."""
    monkeypatch.setattr(keeping, "measure_peak", lambda *given, **named: Peak(1e11, "none"))
    for name in ("finetuning", "several"):
        monkeypatch.setitem(sys.modules, f"bertsmith.report.{name}", SimpleNamespace(write_report=lambda folder: None))
    monkeypatch.chdir(tmp_path)

    def call(line, *more):
        words = [str(things[0] / "model") if word == "MODEL" else word for word in line.split()]
        code = cli.run([*words, *map(str, more)])
        return code, *capsys.readouterr()

    return call


QUICK = "--max-length 32 --batch-size 4 --rate 5e-3"
SLOW = "--max-length 32 --batch-size 4 --rate 1e-9"
BEGIN = "finetune MODEL --task classify --train a.tsv --output run"
UNKNOWN = "the label 'meh' is not one that training knows (neg, pos); correct it or remove the row, or "
UNKNOWN += "name all classes before training: --set task.labels=[…]"


def write_reviews(path="a.tsv", count=12, seed=0):
    return write_table(Path(path), ("text", "label"), reviews(count, seed))


def test_help_names_every_option_and_gives_an_example(run):
    options = {
        "finetune": "task preset data train dev column multilabel unanswerable context long pool head max-length "
        "metric epochs rate batch-size rows seed seeds search trials config set resume json output",
        "evaluate": "data column set json",
        "predict": "input output format column set",
        "glue": "data output epochs rate batch-size seed set resume json",
    }
    for verb, names in options.items():
        code, out, _ = run(f"{verb} --help")
        assert code == 0
        assert f"Example: bertsmith {verb} " in " ".join(out.split())
        for name in names.split():
            assert f"--{name}" in out
        assert "--no-" not in out


@pytest.mark.parametrize(
    ("kind", "score", "key"),
    [("classify", "accuracy", "label"), ("pairs", "accuracy", "label"), ("multilabel", "accuracy", "labels"),
     ("regress", "pearson", "value"), ("choose", "accuracy", "choice"), ("tag", "f1", "tags"),
     ("answer", "exact_match", "answer"), ("unanswerable", "f1", "answer")],
)  # fmt: skip
def test_from_a_file_to_scores_and_predictions(run, things, kind, score, key):
    """Every kind: what training prints, `evaluate` finds again, and `predict` says in the order of the file."""
    given = things[1][kind]
    code, out, err = run(f"finetune MODEL --output run --epochs 16 {QUICK} --json", *given, "--dev", given[-1])
    assert code == 0, err
    trained = json.loads(out)
    assert trained["model"] == "run/model"
    assert trained["scores"][score] > 0.95
    code, out, _ = run(f"evaluate run --data {given[-1]} --json")
    assert code == 0
    found = json.loads(out)
    assert found == pytest.approx(
        {name: value for name, value in trained["scores"].items() if name != "loss"}, abs=1e-6
    )
    code, out, _ = run(f"predict run --input {given[-1]} --output said.jsonl")
    said = read_json_lines(Path("said.jsonl"))
    assert (code, out) == (0, f"said.jsonl: {len(said)} predictions\n")
    kept = read_json_lines(Path("run/predictions.jsonl"))
    if kind == "regress":
        assert [each[key] for each in said] == pytest.approx([each[key] for each in kept], abs=1e-5)
    else:
        assert [each[key] for each in said] == [each[key] for each in kept]
    code, out, _ = run(f"predict run --input {given[-1]} --format tsv")
    lines = out.splitlines()
    assert lines[0].split("\t") == list(said[0])
    assert len(lines) == len(said) + 1
    cells = [dict(zip(lines[0].split("\t"), line.split("\t"), strict=True)) for line in lines[1:]]
    plain = [each[key] if isinstance(each[key], str) else json.dumps(each[key], ensure_ascii=False) for each in said]
    assert [cell[key] for cell in cells] == plain


def test_what_people_see(run):
    write_reviews()
    code, out, err = run(f"finetune MODEL --task classify --train a.tsv --dev a.tsv --output run --epochs 2 {QUICK}")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("loss: 0.")
    assert [line.split(":")[0] for line in lines] == [
        "loss", "accuracy", "f1", "macro_f1", "micro_f1", "matthews", "model", "report",
    ]  # fmt: skip
    assert lines[-2:] == ["model: run/model", "report: run/report.html"]
    assert "bertsmith: classify: 12 items, 6 steps\n" in err
    assert "bertsmith: step 3, dev: loss " in err
    assert "bertsmith: step 6 of 6: loss " in err
    assert all(line.startswith("bertsmith: ") for line in err.splitlines())
    code, out, _ = run("evaluate run --data a.tsv")
    assert code == 0
    assert out.splitlines()[0] == "score\t"
    assert out.splitlines()[1].startswith("accuracy\t")
    code, out, err = run(f"finetune MODEL --task classify --train a.tsv --output run {QUICK}")
    assert (code, err) == (2, "bertsmith: run: exists already; go on with --resume, or name a new folder\n")


def test_columns_by_name_and_number_from_every_kind_of_file(run, tmp_path):
    rows = reviews(8)
    write_table(tmp_path / "a.tsv", None, [(n, label, text) for n, (text, label) in enumerate(rows)])
    write_lines(tmp_path / "a.csv", ["class,words", *(f'{label},"{text}, ""yes"""' for text, label in rows)])
    write_json_lines(tmp_path / "a.jsonl", [{"in": {"words": text}, "class": label} for text, label in rows])
    table = pyarrow.table({"words": [text for text, _ in rows], "class": [label for _, label in rows]})
    parquet.write_table(table, tmp_path / "a.parquet")
    for name, text, label in (
        ("a.tsv", "3", "2"),
        ("a.csv", "words", "class"),
        ("a.jsonl", "in.words", "class"),
        ("a.parquet", "words", "class"),
        ("a.parquet", "1", "2"),
    ):
        shutil.rmtree("run", ignore_errors=True)
        columns = f"--column text={text} --column label={label}"
        code, _, err = run(f"finetune MODEL --task classify --train {name} --output run --epochs 1 {QUICK} {columns}")
        assert code == 0, err
        assert "bertsmith: classify: 8 items, 2 steps" in err
        assert json.loads(Path("run/model/config.json").read_text())["id2label"] == {"0": "neg", "1": "pos"}
        code, out, err = run(f"evaluate run --data {name} --json")
        assert code == 0, err
        assert "accuracy" in json.loads(out)


def test_a_model_is_asked_about_plain_text(run, tmp_path, monkeypatch):
    """Whatever columns its training file had: one text a line, from a file or standard input."""
    write_table(tmp_path / "a.tsv", ("class", "words"), [(label, text) for text, label in reviews()])
    columns = "--column text=words --column label=class"
    run(f"finetune MODEL --task classify --train a.tsv --dev a.tsv --output run --epochs 16 {QUICK} {columns}")
    write_lines(tmp_path / "texts.txt", ["the river was good", "", "the river was great"])
    code, out, err = run("predict run --input texts.txt")
    assert code == 0, err
    assert [json.loads(line)["label"] for line in out.splitlines()][::2] == ["pos", "pos"]
    assert len(out.splitlines()) == 3
    monkeypatch.setattr(
        sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(b"the river was bad\nthe river was good\n")))
    )
    code, out, _ = run("predict run --input -")
    assert [json.loads(line)["label"] for line in out.splitlines()] == ["neg", "pos"]
    lines = b'{"words": "the river was bad"}\n{"words": "the river was good"}\n'
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(lines))))
    code, out, _ = run("predict run --input - --format tsv")
    assert [line.split("\t")[0] for line in out.splitlines()] == ["label", "neg", "pos"]
    write_table(tmp_path / "b.tsv", ("other",), [("the river was awful",)])
    code, out, _ = run("predict run --input b.tsv --column text=other")
    assert json.loads(out)["label"] == "neg"


def test_entities_of_running_text(run, tmp_path):
    write_conll(tmp_path / "a.txt", tagged(16))
    run(f"finetune MODEL --task tag --context --train a.txt --dev a.txt --output run --epochs 16 {QUICK}")
    assert json.loads(Path("run/config.json").read_text())["options"]["context"] is True
    text = "Anna  Boris lives in Rome."
    write_json_lines(tmp_path / "b.jsonl", [{"text": text}, {"text": ""}])
    code, out, err = run("predict run --input b.jsonl")
    assert code == 0, err
    found = json.loads(out.splitlines()[0])
    assert [(e["label"], e["text"], e["start"], e["end"]) for e in found["entities"]] == [
        ("PER", "Anna  Boris", 0, 11),
        ("LOC", "Rome", 21, 25),
    ]
    assert json.loads(out.splitlines()[1]) == {"text": "", "tags": [], "entities": []}


@pytest.mark.parametrize(
    ("mode", "pool", "head"),
    [("head", None, None), ("tail", None, None), ("head+tail", None, None), ("head+tail", None, 5),
     ("segments", "max", None), ("segments", "mean", None), ("segments", "attention", None)],
)  # fmt: skip
def test_every_way_with_long_text(run, tmp_path, mode, pool, head):
    """The class stands at the end of a text that is too long: all but its head can learn it."""
    rows = [(f"{'in ' * 15}{text.split()[-1]}", label) for text, label in reviews(8)]
    write_table(tmp_path / "a.tsv", ("text", "label"), rows)
    epochs = 2 if mode == "head" else 24
    code, out, err = run(
        f"{BEGIN} --dev a.tsv --epochs {epochs} --rate 5e-3 --batch-size 4 --max-length 14 --long {mode} "
        f"{f'--pool {pool}' if pool else ''} {f'--head {head}' if head else ''} --json"
    )
    assert code == 0, err
    accuracy = json.loads(out)["scores"]["accuracy"]
    assert accuracy == 0.5 if mode == "head" else accuracy > 0.8
    options = json.loads(Path("run/model/bertsmith.json").read_text())["task"]["options"]
    assert options["long"] == {"mode": mode, "pool": pool or "max", "head": head}
    assert Path("run/model/bertsmith.safetensors").exists() == (mode == "segments" and pool == "attention")
    code, out, _ = run("evaluate run --data a.tsv --json")
    assert json.loads(out)["accuracy"] == accuracy


def test_settings_from_the_command_line_reach_the_run(run, tmp_path):
    write_reviews()
    (tmp_path / "a.yaml").write_text("smoothing: 0.1\ntask: {metric: f1}\nclass_weights: balanced\n")
    code, _, err = run(
        f"{BEGIN} --dev a.tsv --epochs 6 {QUICK} --config a.yaml --seed 7 --rows 8 --set layer_decay=0.5 "
        "--set freeze=1 --set patience=2 --set evaluation.every=1 --set task.positive=neg"
    )
    assert code == 0, err
    stored = json.loads(Path("run/config.json").read_text())
    settings = stored["settings"]
    assert (settings["smoothing"], settings["class_weights"], settings["layer_decay"]) == (0.1, "balanced", 0.5)
    assert (settings["freeze"], settings["patience"], settings["seed"], stored["rows"]) == (1, 2, 7, 8)
    assert (stored["options"]["metric"], stored["options"]["positive"]) == ("f1", "neg")
    assert "classify: 8 items, 12 steps" in err
    steps = [int(line.split()[2].rstrip(",")) for line in err.splitlines() if "dev: loss" in line]
    scores = [float(line.split(" f1 ")[1].split("%")[0]) for line in err.splitlines() if "dev: loss" in line]
    best = scores.index(max(scores)) + 1
    assert steps == list(range(1, min(12, best + 2) + 1))


# Several runs


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
    monkeypatch.setattr(many, "SPACE", {"optimizer.rate": (1e-4, 3e-1, True), "epochs": [8]})
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


# Stopping and going on


@pytest.fixture
def stop_at(monkeypatch):
    def stop(step):
        real = FinetuneDisplay.on_step

        def on_step(self, values, progress, total):
            real(self, values, progress, total)
            if progress.step == step:
                os.kill(os.getpid(), signal.SIGTERM)

        monkeypatch.setattr(FinetuneDisplay, "on_step", on_step)
        return lambda: monkeypatch.setattr(FinetuneDisplay, "on_step", real)

    return stop


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


# Mistakes


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("finetune MODEL --train a.tsv --output run", "what task? Name its kind with --task, or a --preset"),
        ("finetune MODEL --task classify --output run", "--train is missing"),
        ("finetune --task classify --train a.tsv --output run", "the model is missing"),
        ("finetune MODEL --task classify --train no.tsv --output run", "no.tsv: cannot be read (No such file"),
        ("finetune nowhere/at/all --task classify --train a.tsv --output run", "nowhere/at/all: no such folder"),
        ("finetune MODEL --preset sst3 --data x --output run", "preset: 'sst3' is not one of"),
        ("finetune MODEL --task classify --data x --output run", "--data: is the folder of a --preset"),
        (BEGIN, "max_length: 128 is beyond the model's 64 positions"),
        (f"{BEGIN} --column text", "text: expected NAME=VALUE"),
        (f"{BEGIN} --column text=words", "a.tsv, line 2: no column 'words'; there are text, label"),
        (f"{BEGIN} --metric f2", "metric: 'f2' is not one of accuracy, "),
        (f"{BEGIN} --multilabel --metric matthews", "metric: matthews is for one class"),
        ("finetune MODEL --task regress --train a.tsv --output run --max-length 32", "line 2: 'pos' is not a number"),
        ("finetune MODEL --task tag --train a.tsv --output run", "a.tsv, line 2: expected entities as [[START, END, "),
        ("finetune MODEL --task tag --train a.txt --column word=token --output run", "those of CoNLL have numbers"),
        (f"{BEGIN} --long middle", "--long"),
        (
            "finetune MODEL --task tag --train a.tsv --output run --long tail",
            "task.long.mode: is for classify and regress; tags and answers read long text in windows, always",
        ),
        (f"{BEGIN} --context", "task.context: is for tag"),
        (f"{BEGIN} --set task.unanswerable=true", "task.unanswerable: is for answer"),
        (f"{BEGIN} --pool mean", "--pool: joins the segments of --long segments; give that too, or leave it out"),
        (f"{BEGIN} --long tail --pool mean", "--pool: joins the segments of --long segments; give that too"),
        (f"{BEGIN} --long tail --head 5", "long.head: is for --long head+tail; leave it out, or give that"),
        (
            f"{BEGIN} --long head+tail --head 30 --max-length 32",
            "long.head: 30 pieces of 32 leave no tail; take 29 at most",
        ),
        (f"{BEGIN} --set patience=2", "patience: without a --dev file there is nothing to wait for"),
        (f"{BEGIN} --column txt=text", "columns: classify has no field 'txt'; there are text, pair, label"),
        ("finetune MODEL --task classify --train a.tsv --output a.tsv/run", "a.tsv: is a file, so there can be no"),
        (
            "finetune MODEL --task classify --train a.tsv --dev a.tsv --output a.tsv --seeds 2 --resume",
            "a.tsv: is a file, so there can be no folder a.tsv; name another",
        ),
        (f"{BEGIN} --set class_weights={{pos:-2}}", "class_weights.pos:-2: input should be a valid number"),
        (f"{BEGIN} --dev b.tsv --max-length 32", f"b.tsv, line 3: {UNKNOWN}"),
        (f"{BEGIN} --seeds 2 --max-length 32", "give a --dev file"),
        ("finetune --output run --resume", "run: there is nothing to resume, and no model and files to begin with"),
        ("finetune --output run --seeds 2", "a model and its files are missing"),
        ("evaluate MODEL --data a.tsv", "is a model of kind 'pretraining', which does no task yet; see bertsmith fine"),
        ("predict MODEL --input a.tsv --output no/where.jsonl", "no/where.jsonl: the folder no does not exist"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_and_leaves_nothing(run, line, what):
    write_reviews()
    write_table(Path("b.tsv"), ("text", "label"), [("good", "pos"), ("river", "meh")])
    write_lines(Path("a.txt"), ["anna B-PER"])
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert what in " ".join(err.split())
    if err.startswith("bertsmith: "):
        assert len(err.splitlines()) == 1
    assert not Path("run").exists()
    assert sorted(path.name for path in Path().iterdir()) == ["a.tsv", "a.txt", "b.tsv"]


def test_mistakes_with_a_fine_tuned_model(run):
    write_reviews()
    run(f"finetune MODEL --task classify --train a.tsv --output run --epochs 1 {QUICK}")
    write_table(Path("b.tsv"), ("text", "label"), [("good", "pos"), ("river", "meh")])
    code, _, err = run("evaluate run --data b.tsv")
    assert (code, err) == (2, f"bertsmith: b.tsv, line 3: {UNKNOWN}\n")
    code, out, _ = run("predict run --input b.tsv")
    assert (code, len(out.splitlines())) == (0, 2)  # what is right does not matter here
    Path("c.tsv").write_bytes(b"text\tlabel\ngood\tpos\ncaf\xe9\tpos\n")
    code, out, err = run("predict run --input c.tsv --output said.jsonl")
    assert (code, out) == (2, "")
    assert err.startswith("bertsmith: c.tsv, line 3: is not UTF-8")
    assert not Path("said.jsonl").exists()
    assert not list(Path().glob(".said*"))
    code, _, err = run("evaluate run --data a.tsv --set treshold=3")
    assert (code, "treshold: there is no such setting; there are columns, " in err) == (2, True)
    code, _, err = run("evaluate run --data a.tsv --set labels=[pos,neg]")
    assert (code, "run: labels are those that the model was trained on and cannot be set" in err) == (2, True)
    code, _, err = run("evaluate run --data a.tsv --set task.long.mode=segments --set long.pool=attention")
    assert (code, "attention over segments must be trained" in err) == (2, True)
    write_table(Path("d.tsv"), ("text", "label"), [])
    code, _, err = run("evaluate run --data d.tsv")
    assert (code, err) == (2, "bertsmith: d.tsv, line 1: holds no example\n")


def test_a_run_writes_its_report(run, monkeypatch):
    """With the real report: a page of its own, which names the scores; and one of several runs."""
    for name in ("finetuning", "several"):
        monkeypatch.delitem(sys.modules, f"bertsmith.report.{name}")
    write_reviews()
    given = f"finetune MODEL --task classify --train a.tsv --dev a.tsv --epochs 2 {QUICK}"
    code, out, err = run(f"{given} --output run")
    assert code == 0, err
    code, _, err = run(f"{given} --output runs --seeds 1")
    assert code == 0, err
    assert "seed-000" in Path("runs/report.html").read_text(encoding="utf-8")
    page = Page(Path("run/report.html").read_text(encoding="utf-8"))
    assert out.split("accuracy: ")[1].split("\n")[0] in page.line
    check_alone(Path("run"))
    golds = [line.split("\t")[1] for line in Path("a.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    said = read_json_lines(Path("run/predictions.jsonl"))
    right = [gold == each["label"] for gold, each in zip(golds, said, strict=True)]
    by_tenth = defaultdict(list)
    for each, hit in zip(said, right, strict=True):
        by_tenth[min(int(10 * each["score"]), 9)].append((each["score"], hit))
    error = sum(abs(sum(score - hit for score, hit in tenth)) for tenth in by_tenth.values()) / len(said)
    assert f"Expected calibration error: {error:.1%}." in page.line
    assert [row[1] for row in page.tables["Calibration by confidence"][1:]] == [
        str(len(by_tenth[tenth])) for tenth in sorted(by_tenth)
    ]
    labels = sorted(set(golds))
    pairs = Counter(zip(golds, (each["label"] for each in said), strict=True))
    cells = page.tables["gold \\ guess"][1:]
    assert [[int(cell.split()[0]) for cell in row[1:]] for row in cells] == [
        [pairs[gold, guess] for guess in labels] for gold in labels
    ]
    mistakes = page.tables.get("Most confident mistakes", [[]])[1:]
    assert len(mistakes) == min(25, right.count(False))
    texts = [line.split("\t")[0] for line in Path("a.tsv").read_text(encoding="utf-8").splitlines()[1:]]
    wrong = [(each["score"], text) for each, hit, text in zip(said, right, texts, strict=True) if not hit]
    assert mistakes
    assert [next(text for _, text in wrong if text in row) for row in mistakes] == [
        text for _, text in sorted(wrong, key=lambda pair: -pair[0])[:25]
    ]
    for row in page.tables["Scores of each class"][1:]:
        label, precision, recall, _, support = row
        hits = pairs[label, label]
        guessed = sum(count for (_, guess), count in pairs.items() if guess == label)
        assert int(support) == golds.count(label)
        assert recall == f"{hits / golds.count(label):.1%}"
        assert precision == f"{hits / guessed if guessed else 0:.1%}"


@pytest.mark.parametrize("kind", ["tag", "answer", "unanswerable"])
def test_the_report_of_tags_and_answers_marks_them_in_their_text(run, monkeypatch, kind):
    """Before the model has learned anything, so that there are mistakes."""
    monkeypatch.delitem(sys.modules, "bertsmith.report.finetuning")
    asked = " ".join(write_all_kinds(Path())[kind])
    code, _, err = run(f"finetune MODEL {asked} --dev {asked.split()[-1]} --output run --epochs 1 {SLOW}")
    assert code == 0, err
    html = Path("run/report.html").read_text(encoding="utf-8")
    page = Page(html)
    check_alone(Path("run"))
    said = read_json_lines(Path("run/predictions.jsonl"))
    if kind == "tag":
        wrong = [(words, each) for (words, tags), each in zip(tagged(), said, strict=True) if each["tags"] != tags]
        assert f"{len(wrong)} of 12 sentences have mistakes in them" in page.line
        missed = sum(html.count(f"[{words[0]} {words[1]} <small>PER, missed</small>]") for words, _ in wrong[:1])
        assert missed >= 1
    else:
        asked = [each["qas"][0] for each in questions(unanswerable=3 if kind == "unanswerable" else 0)]
        golds = [one["answers"][0]["text"] if one["answers"] else "" for one in asked]
        wrong = [(gold, each["answer"]) for gold, each in zip(golds, said, strict=True) if gold != each["answer"]]
        assert f"{len(wrong)} of 12 answers are not exactly right" in page.line
        marked = next(gold for gold, _ in wrong if gold)
        assert f'<mark class="gold">[{marked}]</mark>' in html
    if kind == "unanswerable":
        table = page.tables["gold \\ guess"]
        rows = {row[0]: [int(cell.split()[0]) for cell in row[1:]] for row in table[1:]}
        assert rows["none"][table[0].index("none") - 1] == sum(not gold and not each["answer"] for gold, each in
                                                               zip(golds, said, strict=True))  # fmt: skip
    assert wrong
