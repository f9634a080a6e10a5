"""`finetune`, `evaluate` and `predict` as a user meets them: from files to scores and predictions."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow
import pytest
from pyarrow import parquet

from cli.finetune.lines import BEGIN, QUICK, write_reviews
from finetuning.small_tasks import (
    read_json_lines,
    reviews,
    tagged,
    write_conll,
    write_json_lines,
    write_lines,
    write_table,
)


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


def test_pairs_in_both_orders_from_training_to_prediction(run, things):
    """What was said in training is said again, by files with the columns turned round too; the card tells others."""
    *_, pairs = things[1]["pairs"]
    files = f"--train {pairs} --dev {pairs}"
    code, *_ = run(
        f"finetune MODEL --task classify {files} --output run --epochs 2 {QUICK} --set task.both_orders=true"
    )
    assert code == 0
    kept = [each["scores"] for each in read_json_lines(Path("run/predictions.jsonl"))]
    turned = "--column text=pair --column pair=text"
    said = {}
    for name, more in (("same", ""), ("turned", turned), ("one", "--set both_orders=false"),
                       ("one turned", f"--set both_orders=false {turned}")):  # fmt: skip
        assert run(f"predict run --input {pairs} --output said.jsonl {more}")[0] == 0
        said[name] = [each["scores"] for each in read_json_lines(Path("said.jsonl"))]
        Path("said.jsonl").unlink()
    assert len(kept) == len(said["same"])
    for mine, same, other in zip(kept, said["same"], said["turned"], strict=True):
        assert same == pytest.approx(mine, abs=1e-5)
        assert other == pytest.approx(mine, abs=1e-5)
    ones = zip(said["one"], said["one turned"], strict=True)
    assert all(mine != pytest.approx(other, abs=1e-5) for mine, other in ones)
    assert "Bertsmith reads a pair in both orders and answers once" in Path("run/model/README.md").read_text()
    code, _, err = run(f"evaluate run --data {pairs} --set long.mode=segments")
    assert (code, "both_orders: makes each text the first once" in err) == (2, True)


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


def test_how_many_texts_are_cut_is_said_in_training_and_later(run, tmp_path):
    write_table(tmp_path / "a.tsv", ("text", "label"), [("in " * 20, "x"), ("in in", "y"), ("in " * 12, "y")])
    code, _, err = run(f"{BEGIN} --dev a.tsv --epochs 1 --max-length 14")
    assert code == 0
    assert "1 of 3 training texts are longer than 14 pieces, and are cut; see --max-length and --long\n" in err
    said = "bertsmith: 1 of 3 texts are longer than 14 pieces, and are cut; see --set max_length=…\n"
    for verb in ("evaluate run --data", "predict run --input"):
        assert run(f"{verb} a.tsv")[2] == said
        assert run(f"{verb} a.tsv --set max_length=22")[2] == ""


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


def test_long_numbers_and_choices_are_cut_as_told_too(run, tmp_path):
    """What decides stands at the end: of a text with a number, and of the text before its choices."""
    rows = [(f"{'in ' * 15}{text.split()[-1]}", int(label == "pos")) for text, label in reviews(8)]
    write_table(tmp_path / "numbers.tsv", ("text", "label"), rows)
    asked = [
        {"text": f"{'in ' * 15}{'good' if number % 2 else 'bad'}", "choices": ["rome", "oslo"], "label": number % 2}
        for number in range(8)
    ]
    write_json_lines(tmp_path / "choices.jsonl", asked)
    for kind, file, mode, score in (("regress", "numbers.tsv", "head+tail", "pearson"),
                                    ("choose", "choices.jsonl", "tail", "accuracy")):  # fmt: skip
        code, out, err = run(
            f"finetune MODEL --task {kind} --train {file} --dev {file} --output {kind} --epochs 24 --rate 5e-3 "
            f"--batch-size 4 --max-length 14 --long {mode} --json"
        )
        assert code == 0, err
        found = json.loads(out)["scores"][score]
        assert found > 0.8
        assert json.loads(run(f"evaluate {kind} --data {file} --json")[1])[score] == pytest.approx(found)


def test_batches_by_tokens(run):
    write_reviews()
    code, out, err = run(f"{BEGIN} --dev a.tsv --epochs 1 --rate 5e-3 --max-length 32 --set batch.tokens=40 --json")
    assert code == 0, err
    done = json.loads(Path("run/result.json").read_text())
    assert json.loads(out)["steps"] == done["step"] == -(-done["tokens"] // 40) > 1


def test_a_bar_shows_how_far_it_is(run, monkeypatch):
    """On a terminal alone; all examples are counted."""
    write_reviews(count=12)
    assert run(f"{BEGIN} --dev a.tsv --epochs 1 {QUICK}")[0] == 0
    verbs = {"predicting": "predict run --input a.tsv --output said.jsonl", "evaluating": "evaluate run --data a.tsv"}
    for what, line in verbs.items():
        assert what not in run(line)[2]
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    for what, line in verbs.items():
        err = run(line)[2]
        assert what in err
        assert "12/?" in err


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
