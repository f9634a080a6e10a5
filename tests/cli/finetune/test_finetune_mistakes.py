"""Mistakes on the command line of `finetune`, `evaluate` and `predict`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.finetune.lines import BEGIN, QUICK, UNKNOWN, write_reviews
from finetuning.small_tasks import write_json_lines, write_lines, write_table


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
        (f"{BEGIN} --column text=a --column text=b", "--column text=…: is given twice, as a and as b; give it once"),
        (f"{BEGIN} --set epochs=1 --set epochs=2", "--set epochs=…: is given twice, as 1 and as 2; give it once"),
        (f"{BEGIN} --set smoothing=1", "smoothing: input should be less than 1"),
        ("finetune MODEL --task guess --train a.tsv --output run", "task: 'guess' is not one of classify, regress"),
        (f"{BEGIN} --column text=words", "a.tsv, line 2: no column 'words'; there are text, label"),
        (f"{BEGIN} --metric f2", "metric: 'f2' is not one of accuracy, "),
        (f"{BEGIN} --multilabel --metric matthews", "metric: matthews is for one class"),
        ("finetune MODEL --task regress --train a.tsv --output run --max-length 32", "line 2: 'pos' is not a number"),
        ("finetune MODEL --task tag --train a.tsv --output run", "a.tsv, line 2: expected entities as [[START, END, "),
        ("finetune MODEL --task tag --train a.txt --column word=token --output run", "line 1: no column 'token'"),
        (f"{BEGIN} --long middle", "--long"),
        (
            "finetune MODEL --task tag --train a.tsv --output run --long tail",
            "task.long.mode: is for classify and regress and choose; tags and answers read long text in windows",
        ),
        (
            "finetune MODEL --task choose --train a.tsv --output run --long segments",
            "long.mode: segments are for classify and regress; take head, tail or head+tail",
        ),
        (
            "finetune MODEL --task choose --train a.tsv --output run --set task.long.pool=mean",
            "long.pool: joins segments, which choices have not; leave it out",
        ),
        (f"{BEGIN} --context", "task.context: is for tag"),
        (f"{BEGIN} --set task.unanswerable=true", "task.unanswerable: is for answer"),
        (f"{BEGIN} --column text=text --column label=2", "line 1: column 'text' goes by its name, others by their"),
        (f"{BEGIN} --dev a.tsv --search grid --set batch={{\"size\":8}}", "batch.size: --search grid looks for it"),
        ("glue MODEL --data . --output run --epochs 1 --set epochs=2", "epochs: is given twice, by --set epochs=…"),
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
    assert (code, "treshold: there is no such setting; there are both_orders, columns, " in err) == (2, True)
    code, _, err = run("evaluate run --data a.tsv --set labels=[pos,neg]")
    assert (code, "run: labels are those that the model was trained on and cannot be set" in err) == (2, True)
    code, _, err = run("evaluate run --data a.tsv --set task.long.mode=segments --set long.pool=attention")
    assert (code, "attention over segments must be trained" in err) == (2, True)
    write_table(Path("d.tsv"), ("text", "label"), [])
    code, _, err = run("evaluate run --data d.tsv")
    assert (code, err) == (2, "bertsmith: d.tsv, line 1: holds no example\n")


def test_both_orders_want_a_second_text(run):
    write_reviews()
    code, _, err = run(f"{BEGIN} --set task.both_orders=true {QUICK}")
    assert code == 2
    assert "line 2: there is no second text, and the task is about pairs; name its column with --column pair=" in err
    assert not Path("run").exists()


def test_a_model_of_pairs_knows_it(run, things):
    *_, pairs = things[1]["pairs"]
    run(f"finetune MODEL --task classify --train {pairs} --output run --epochs 1 {QUICK}")
    write_reviews()
    for line in ("evaluate run --data a.tsv", "predict run --input a.tsv"):
        code, _, err = run(line)
        assert (code, "a.tsv, line 2: there is no second text, and the task is about pairs" in err) == (2, True)
    assert run(f"evaluate run --data {pairs} --set pairs=false")[0] == 0, "how far the first texts alone go"
    run(f"finetune MODEL --task classify --train a.tsv --output one --epochs 1 {QUICK}")
    code, _, err = run("predict one --input a.tsv --column pair=label")
    assert (code, "one: there are to be no second texts, as in training" in err) == (2, True)


def test_words_are_asked_for_where_there_are_none(run):
    write_json_lines(Path("a.jsonl"), [{"text": " ", "entities": []}])
    code, _, err = run(f"finetune MODEL --task tag --train a.jsonl --output run {QUICK}")
    assert (code, "a.jsonl, line 1: neither here nor in any other row is a word" in err) == (2, True)


@pytest.mark.parametrize(("content", "name"), [("on: true", "True"), ("task: {1: 2}", "1"), ("task: {no: 2}", "False")])
def test_what_yaml_takes_for_no_name_is_no_setting(run, content, name):
    write_reviews()
    Path("a.yaml").write_text(content)
    code, _, err = run(f"{BEGIN} --config a.yaml")
    assert code == 2
    assert f"{name}: there is no such setting" in err
    assert not Path("run").exists()
