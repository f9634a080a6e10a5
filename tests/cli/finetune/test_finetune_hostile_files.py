"""Files and places as other programs and systems leave them: refused with a sentence, or read as they are meant."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bertsmith.folders import claimed
from cli.finetune.lines import BEGIN, QUICK, write_reviews
from finetuning.small_tasks import read_json_lines, write_json_lines, write_lines

NUMBERED = "--column text=1 --column label=2"


def refused(run, line, what):
    """Exit code 2, one sentence that has it, and no folder."""
    code, out, err = run(line)
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert what in err
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("name", "content", "options", "what"),
    [
        ("a.tsv", "good film\tpos\rbad film\tneg\r", NUMBERED, "a.tsv, line 1: has a carriage return inside; if lines"),
        ("a.csv", "0,1\ngood film,1\nbad film,0\n", NUMBERED, "a.csv, line 1: counts the columns, as tables without"),
        (
            "a.tsv",
            "label\ttext\npos\tgood\n",
            "--column text=2 --column label=1",
            "line 1: column 2 holds 'text': this",
        ),
        ("a.csv", "good;pos\nbad;neg\n", NUMBERED, "a.csv, line 1: no column 2; there are 1: put tabs for the semicol"),
        ("a.csv", "text,label,score\nx,1,4.2\n", "", "line 2: 'label' and 'score' are both here, and either could be"),
        (
            "a.csv",
            'text,label\n"x,1\n',
            "",
            "a.csv, line 2: is not CSV (unexpected end of data); close its quotation m",
        ),
        ("a.tsv", "", "", "a.tsv, line 1: is empty; write one example at least"),
    ],
)
def test_tables_that_would_be_misread(run, name, content, options, what):
    Path(name).write_bytes(content.encode())
    refused(run, f"finetune MODEL --task classify --train {name} --output run {options} {QUICK}", what)


def test_columns_where_names_are_numbers_and_numbers_of_json(run):
    """A name is a name; objects count their own names, and lists their values."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [("good film", "pos"), ("bad film", "neg")] * 2
    pq.write_table(pa.table({"0": ["7"] * 4, "1": [t for t, _ in rows], "2": [c for _, c in rows]}), "a.parquet")
    write_json_lines(Path("b.jsonl"), [{"review": text, "topic": label} for text, label in rows])
    write_json_lines(Path("c.jsonl"), [list(row) for row in rows])
    for name in ("a.parquet", "b.jsonl", "c.jsonl"):
        code, out, err = run(
            f"finetune MODEL --task classify --train {name} --dev {name} --output {name[0]} {NUMBERED} {QUICK} --json"
        )
        assert code == 0, err
        assert json.loads(out)["metric"] == "accuracy"
        config = json.loads(Path(name[0], "model", "config.json").read_text())
        assert config["id2label"] == {"0": "neg", "1": "pos"}, name


def test_a_comment_of_conll_u_is_no_word(run):
    write_lines(Path("a.conll"), ["# sent_id = 1", "anna B-PER", "lives O"])
    refused(run, f"finetune MODEL --task tag --train a.conll --output run {QUICK}", "a.conll, line 1: is a comment, as")


def test_a_pipe_is_refused_where_files_are_read_again(run):
    os.mkfifo("a.tsv")
    refused(run, f"{BEGIN} {QUICK}", "a.tsv: can be read only once, and training reads its files again; save it")


@pytest.mark.parametrize("more", ["", "--seeds 2 --dev a.tsv"])
@pytest.mark.parametrize(
    ("output", "what"),
    [
        ("/proc/run", "/proc/run: cannot be written there"),
        ("lost", "lost: is a link that leads nowhere; remove it, or name another folder"),
        ("x" * 300, "cannot be written there (File name too long); name another place"),
        ("caf\udce9", "'caf\\udce9': is not a name in UTF-8; rename it"),
    ],
)
def test_places_where_no_run_can_be(run, output, what, more):
    write_reviews()
    Path("lost").symlink_to("nowhere")
    code, out, err = run(f"finetune MODEL --task classify --train a.tsv {more} {QUICK} --output {output}")
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert what in err
    assert sorted(path.name for path in Path().iterdir()) == ["a.tsv", "lost"]


def test_names_and_settings_of_any_depth(run):
    Path("caf\udce9.tsv").write_text("text\tlabel\ngood\tpos\n")
    refused(run, f"finetune MODEL --task classify --train caf\udce9.tsv --output run {QUICK}", "is not a name in UTF-8")
    write_reviews()
    Path("deep.yaml").write_text("a: " + "[" * 3000 + "]" * 3000)
    refused(run, f"{BEGIN} --config deep.yaml", "deep.yaml: not valid YAML")
    refused(run, f"{BEGIN} --set task.labels={'[' * 3000}", "is not a value that YAML can read")


def test_one_process_at_a_time_trains_in_a_folder(run):
    write_reviews()
    Path("run").mkdir()
    holding = "import sys; from pathlib import Path; from bertsmith.folders import claimed\n"
    holding += "with claimed(Path('run')): print('held', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", holding], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        code, _, err = run(f"{BEGIN} {QUICK} --resume")
        assert (code, "bertsmith: run: another process trains in it; wait for its end, or name another" in err) == (
            2,
            True,
        )
        other.kill()  # the claim goes with it
    Path("run").mkdir(exist_ok=True)
    assert run(f"{BEGIN} {QUICK} --resume")[0] == 0
    assert Path("run/model/config.json").is_file()


def test_a_claim_on_what_stays_empty_leaves_nothing(tmp_path):
    with claimed(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert not (tmp_path / "a" / "b").exists()


def test_a_run_that_ends_without_a_finite_loss_has_failed(run):
    write_reviews()
    code, out, err = run(f"{BEGIN} --dev a.tsv --epochs 1 --max-length 32 --batch-size 64 --rate 1e30")
    assert (code, out) == (1, ""), err
    assert "run: the loss on the dev file is not finite; begin a new run with a lower --rate" in err
    assert not Path("run/model").exists()


def test_what_is_written_can_be_read_by_others_and_says_what_they_read(run, things):
    """File modes; the length at which others cut; what the card says of what they do not know."""
    write_reviews()
    old = os.umask(0o022)
    try:
        assert run(f"{BEGIN} --long tail --max-length 24 --epochs 1 --batch-size 4")[0] == 0
    finally:
        os.umask(old)
    assert {stat.S_IMODE(path.stat().st_mode) for path in Path("run/model").iterdir()} == {0o644}
    assert json.loads(Path("run/model/tokenizer_config.json").read_text())["model_max_length"] == 24
    assert (
        "Of a long text Bertsmith reads the end; elsewhere the end is cut off."
        in Path("run/model/README.md").read_text()
    )
    asked = [("who", "anna"), ("why", "")]
    rows = [{"question": one, "context": "anna is in rome", "answer": other, "start": 0} for one, other in asked]
    write_json_lines(Path("q.jsonl"), rows)
    line = (
        f"finetune MODEL --task answer --unanswerable --train q.jsonl --dev q.jsonl --output asked --epochs 1 {QUICK}"
    )
    assert run(f"{line} --set task.null_threshold=2.5")[0] == 0
    card = Path("asked/model/README.md").read_text()
    assert "It says that there is no answer where that is more than 2.5 ahead of the best one" in card
    assert "Bertsmith reads long text in windows of 32 pieces; elsewhere it is cut." in card
    assert len(read_json_lines(Path("asked/predictions.jsonl"))) == 2


@pytest.mark.parametrize(
    "options", [{"max_length": "x", "long": 3}, {"null_threshold": "x", "unanswerable": True}, [1], None]
)
def test_what_a_folder_from_elsewhere_says_of_its_task_ends_no_conversion(run, options):
    write_reviews()
    assert run(f"{BEGIN} --epochs 1 {QUICK}")[0] == 0
    record = Path("run/model/bertsmith.json")
    record.write_text(json.dumps({"task": {"kind": "classify", "options": options}}))
    found, _, err = run("convert run/model there")
    assert found == 0, err
    length = json.loads(Path("there/tokenizer_config.json").read_text())["model_max_length"]
    assert length == 64, "what the model can"


def test_a_closed_standard_output_is_said(tmp_path):
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m bertsmith models >&-"], stderr=subprocess.PIPE, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "bertsmith: standard output: is closed; results have nowhere to go\n")
