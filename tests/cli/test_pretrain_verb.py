"""`pretrain` and `report` as a user meets them: help, results, remarks, mistakes, and a terminal."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections import namedtuple

import pytest

from bertsmith.cli import display
from bertsmith.cli import main as cli
from bertsmith.cli.display import RunDisplay, clock
from bertsmith.pretraining import run as running
from bertsmith.pretraining.fills import Filled, Gap
from bertsmith.train import keeping
from bertsmith.train.checkpoint import Progress
from bertsmith.train.speed import Peak
from pretraining.small_runs import build_data, make_documents, write_model

Usage = namedtuple("Usage", "total used free")


class Terminal(io.StringIO):
    """Something to write to that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def things(tmp_path_factory):
    """A data set, one of a single document, and a model."""
    folder = tmp_path_factory.mktemp("things")
    build_data(folder)
    build_data(folder / "one", make_documents(1), holdout=0.0)
    write_model(folder / "model")
    return folder


@pytest.fixture
def run(capsys, things, tmp_path, monkeypatch):
    """Run a command line in a folder of its own; gives exit code, stdout, stderr. DATA, ONE and MODEL are replaced."""
    monkeypatch.setattr(keeping, "measure_peak", lambda *given, **named: Peak(1e11, "none"))
    monkeypatch.setattr(running, "_REHEARSED_SECONDS", 0.0)
    monkeypatch.chdir(tmp_path)
    names = {"DATA": things / "data", "ONE": things / "one" / "data", "MODEL": things / "model"}

    def call(line):
        code = cli.run([str(names.get(word, word)) for word in line.split()])
        return code, *capsys.readouterr()

    return call


SMALL = "pretrain --shards DATA --from MODEL --phases 32:0.5,64:0.5 --batch-tokens 256"
BEGIN = f"{SMALL} --steps 6 --output run"


def test_help_names_every_option_and_gives_an_example(run):
    code, out, _ = run("pretrain --help")
    assert code == 0
    assert "Example: bertsmith pretrain --shards data/ --size mini --output run/ --minutes 60" in " ".join(out.split())
    for option in (
        *("output", "shards", "size", "from", "recipe", "steps", "tokens", "epochs", "minutes", "phases"),
        *("pairs", "batch-tokens", "seed", "config", "set", "resume", "dry-run", "json"),
    ):
        assert f"--{option}" in out
    assert "--no-resume" not in out
    code, out, _ = run("report --help")
    assert code == 0
    assert "Example: bertsmith report run/" in out


def test_a_run_says_what_it_does_on_stderr_and_what_came_out_on_stdout(run, tmp_path):
    code, out, err = run(BEGIN)
    assert code == 0
    assert out.splitlines()[0].startswith("6 steps, 1,")
    assert "right (always naming the commonest: " in out
    assert "model: run/model\nreport: run/report.html\n" in out
    assert "7,098 parameters" in err
    assert "step 0, held out: words 3.9" in err  # what counts alone are worth; 4.03 without
    assert "step 6 of 6: words " in err
    assert all(line.startswith("bertsmith: ") for line in err.splitlines())
    assert (tmp_path / "run" / "report.html").exists()
    code, out, err = run(BEGIN)
    assert code == 2
    assert err == "bertsmith: run: exists already; go on with --resume, or name a new folder\n"


def test_the_result_as_json(run, tmp_path):
    code, out, _ = run(f"{BEGIN} --json --pairs none")
    found = json.loads(out)
    assert code == 0
    assert found["model"] == "run/model"
    assert found["steps"] == 6
    assert {"tokens", "seconds", "loss", "mlm_loss", "mlm_accuracy", "perplexity"} <= set(found)
    assert "pair_loss" not in found
    code, out, _ = run("report run --json")
    found = json.loads(out)
    assert code == 0
    assert found["report"] == "run/report.html"
    assert len(found["plots"]) == 5
    assert all((tmp_path / name).exists() for name in found["plots"])
    code, out, _ = run("report run")
    assert (code, out) == (0, "run/report.html\n")


def test_a_dry_run_prints_the_plan_and_leaves_nothing(run, tmp_path):
    code, out, _ = run(f"{SMALL} --tokens 51200 --output run --dry-run --json")
    assert code == 0
    plan = json.loads(out)
    assert plan["parameters"] == 7098
    assert 200 <= plan["steps"] <= 220  # of 256 tokens at most
    assert plan["tokens"] == pytest.approx(51200, abs=256)
    assert plan["seconds"] > 0
    assert list(tmp_path.iterdir()) == []
    code, out, _ = run(f"{SMALL} --minutes 5 --output run --dry-run")
    assert code == 0
    assert "parameters" in out
    assert "epochs, about " in out
    assert "MiB of memory, up to " in out
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_disk_is_refused(run, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(0, 0, 0))
    for more in ("", " --dry-run"):
        code, out, err = run(BEGIN + more)
        assert (code, out) == (1, "")
        assert "MiB of memory, up to " in err, "the plan that was refused"
        assert err.splitlines()[-1].startswith("bertsmith: run: the run needs ")
        assert list(tmp_path.iterdir()) == []


def test_resuming_through_the_command_line(run, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.json.ab12").touch()  # a kill in the first millisecond
    code, _, err = run(f"{BEGIN} --resume")
    assert code == 0
    assert "run: nothing to resume, so a new run begins" in err
    assert not list((tmp_path / "run").glob(".*"))
    code, out, err = run("pretrain --output run --resume")
    assert code == 0
    assert "going on from step 6" in err
    assert "model: run/model" in out
    code, _, err = run(f"{BEGIN} --resume --seed 5")
    assert code == 2
    assert "seed: the run was begun with 0, not 5" in err


@pytest.mark.parametrize("more", ["--steps 9", "--size base", "--set seed=1", "--phases 32:1", "--minutes 3"])
def test_what_is_asked_for_without_shards_is_not_silently_left_out(more, run):
    code, _, err = run(f"pretrain --output run --resume {more}")
    assert code == 2
    assert err == "bertsmith: --shards: is missing; without it a run goes on as it was begun, with --resume alone\n"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"{BEGIN} --minutes 3", "give one of steps, tokens, epochs and minutes, not steps and minutes"),
        (f"{SMALL} --steps 0 --output run", "steps"),
        (f"{SMALL} --epochs -1 --output run", "epochs"),
        (f"{BEGIN} --size tiny", "--size and --from exclude each other"),
        ("pretrain --shards DATA --size huge --output run", "size: 'huge' is not one of"),
        (f"{BEGIN} --set optimizer.rote=1", "optimizer.rote: there is no such setting; there are betas, "),
        (f"{BEGIN} --set masking.rote=1", "masking.rote"),
        (f"{BEGIN} --set optimizer.rate=fast", "optimizer.rate"),
        (f"{BEGIN} --set optimizer.rate", "--set optimizer.rate: expected NAME=VALUE"),
        (f"{BEGIN} --set =1", "--set =1: expected NAME=VALUE"),
        (f"{BEGIN} --set pairs={{", "pairs"),
        (f"{BEGIN} --config absent.yaml", "absent.yaml: cannot be read"),
        ("pretrain --shards DATA --from MODEL --output run --phases 128", "phases: expected LENGTH:SHARE"),
        ("pretrain --shards DATA --from MODEL --output run --phases abc:1", "phases.0.max_length"),
        ("pretrain --shards DATA --from MODEL --output run --phases 32:0.5", "the shares add up to 0.5"),
        ("pretrain --shards DATA --from MODEL --output run --phases 128:1", "beyond the model's 64 positions"),
        ("pretrain --shards DATA --from MODEL --output run --phases 64:1 --batch-tokens 9", "batch.tokens: 9"),
        ("pretrain --shards absent --size tiny --output run", "absent: no such folder"),
        ("pretrain --shards DATA --from absent/model --output run", "absent/model"),
        ("pretrain --shards ONE --from MODEL --output run --phases 32:1", "or train without pairs (--pairs none)"),
        ("pretrain --output run --resume", "there is nothing to resume, and no --shards"),
        ("pretrain --output run", "no --shards to begin with"),
        ("report absent", "absent: no run here; expected metrics.jsonl"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(line, words, run, tmp_path):
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("bertsmith: ")
    assert words in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("more", ["--recipe old", "--pairs some", "--steps many", "--unknown 3"])
def test_an_option_or_a_choice_that_is_not_there_is_named(more, run, tmp_path):
    code, _, err = run(f"pretrain --shards DATA --output run --batch-tokens 1 {more}")  # too few, should it begin
    assert code == 2
    assert more.split()[0].lstrip("-") in err
    assert list(tmp_path.iterdir()) == []


def test_a_loss_that_is_not_finite_is_a_failure_in_one_sentence(run, tmp_path):
    code, out, err = run(f"{BEGIN} --set optimizer.rate=1e30 --set checkpoint.every=1 --set evaluation.every=50")
    assert (code, out) == (1, "")
    assert "not finite at step 2" in err.splitlines()[-1]
    assert "Traceback" not in err
    assert (tmp_path / "run" / "checkpoints" / "step-000001").is_dir()


@pytest.mark.parametrize("columns", ["120", "30"])
def test_a_live_panel_on_a_terminal(columns, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    code, out, _ = run(f"{BEGIN} --set evaluation.every=2")
    assert code == 0
    assert "model: run/model" in out
    shown = terminal.getvalue()
    assert "training" in shown
    assert "\x1b[?25h" in shown, "the cursor is shown again"
    if columns == "120":
        for words in ("words, loss", "pairs, accuracy", "held out", "learning rate", "stood there: "):
            assert words in shown


def test_the_panel_shows_any_text_as_it_is(monkeypatch):
    """Square brackets are no mark-up, neither in a gap nor in a remark."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "150")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    hostile = "[/b] [red] 汉字 [MASK]"
    fills = [Filled(Gap([1], 0, hostile, "[/x]"), [("[bold]", 0.5)])]
    values = {"mlm_loss": 1.0, "mlm_accuracy": 0.5, "perplexity": 3.0, "tokens_per_second": 5.0, "share_of_peak": 0.1}
    with RunDisplay() as shown:
        shown.on_note("before [/b]")
        shown.on_evaluation(values, fills, 0)
        shown.on_step(values, Progress(step=1, seconds=4000.0), 3)
        shown.on_note("a remark [/b]")
        shown.on_evaluation(values, fills, 1)
        shown.on_step(values, Progress(step=2, seconds=4001.0), 3)
    text = terminal.getvalue()
    for words in ("before [/b]", "a remark [/b]", hostile, "[bold] 50%", "stood there: [/x]"):
        assert words in text


def test_elsewhere_than_on_a_terminal_a_line_now_and_then(monkeypatch, capsys):
    now = [1000.0]
    monkeypatch.setattr(display.time, "monotonic", lambda: now[0])
    values = {"mlm_loss": 2.0, "mlm_accuracy": 0.25, "tokens_per_second": 5000.0, "share_of_peak": 0.5}
    with RunDisplay() as shown:
        for step in range(1, 11):
            shown.on_step(values, Progress(step=step, seconds=6.0 * step), 10)
            now[0] += 6.0
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[2] for line in lines] == ["1", "4", "7", "10"]
    assert lines[0] == "bertsmith: step 1 of 10: words 2.000 (25.0%), 5,000 tokens/s (50% of peak), 0:54 left"


def test_times_as_people_read_them():
    assert [clock(seconds) for seconds in (0, 59.6, 3599, 3600, 360_000)] == [
        "0:00",
        "1:00",
        "59:59",
        "1:00:00",
        "100:00:00",
    ]
