"""The command line as a user meets it: output, exit codes, wrong input, and what is not loaded."""

from __future__ import annotations

import importlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.bundle.folder import Bundle, write_bundle
from bertsmith.cli import main as cli
from bertsmith.text import builtin
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer
from twins import random_model

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A tiny encoder and a tiny masked-word model on disk."""
    folder = tmp_path_factory.mktemp("models")
    tokenizer = Tokenizer.from_pieces([*SPECIAL_TOKENS, *"abcdefg", *(f"w{n}" for n in range(50))])
    for kind in ("encoder", "mlm"):
        write_bundle(folder / kind, Bundle(random_model(kind), tokenizer, 64), source="a test")
    return folder


def test_help_lists_the_verbs_and_loads_nothing_heavy():
    """The list in `main` is the verbs' own first lines, and every module of a verb is light."""
    for verb, (about, _) in cli.VERBS.items():
        function = getattr(importlib.import_module(f"bertsmith.cli.{verb}"), verb)
        assert function.__doc__.startswith(about)
    code = (
        "import sys; from bertsmith.cli.main import run; run(['--help']); "
        "heavy = {'torch', 'numpy', 'tokenizers', 'safetensors', 'pydantic'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for verb in cli.VERBS:
        assert re.search(rf"\b{verb}\b", shown)
    files = {path.stem for path in (ROOT / "src/bertsmith/cli").glob("*.py")} - {
        "__init__",
        "display",
        "main",
        "output",
    }
    assert files == set(cli.VERBS)


@pytest.mark.parametrize("verb", sorted(cli.VERBS))
def test_every_verb_has_help_with_an_example(verb, run):
    code, out, _ = run(verb, "--help")
    assert code == 0
    assert cli.VERBS[verb][0].split()[0] in out
    assert f"Example: bertsmith {verb}" in out


@pytest.mark.parametrize(("size", "count"), [("base", 109_482_240), ("large", 335_141_888)])
def test_inspect_a_size_without_torch(size, count):
    code = (
        "import sys; from bertsmith.cli.main import run; "
        f"code = run(['inspect', '{size}', '--json']); assert 'torch' not in sys.modules; sys.exit(code)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    found = json.loads(out)
    assert found["parameters"] == count
    assert found["vocab_size"] == 30522


def test_inspect_a_folder(models, run):
    code, out, _ = run("inspect", models / "mlm", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["kind"] == "mlm"
    assert (found["layers"], found["hidden_size"], found["heads"], found["vocab_size"]) == (3, 24, 4, 97)
    total = sum(parameter.numel() for parameter in random_model("mlm").parameters())
    assert found["total_parameters"] == total
    assert found["parameters"] == sum(p.numel() for p in random_model("encoder").parameters())
    assert found["tokenizer"]["pieces"] == 62
    code, out, _ = run("inspect", models / "mlm")
    assert f"{total:,} (no pooler)" in out
    code, out, _ = run("inspect", models / "mlm", "--tensors", "--json")
    assert {"name": "cls.predictions.bias", "shape": [97], "dtype": "float32", "checksum": None} in json.loads(out)


def test_fill(models, run, monkeypatch):
    code, out, _ = run("fill", models / "mlm", "a [MASK] b [MASK]", "--top", "3", "--json")
    gaps = json.loads(out)
    assert code == 0
    assert [len(gap["candidates"]) for gap in gaps] == [3, 3]
    assert set(gaps[0]["candidates"][0]) == {"token", "score"}
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a [MASK]\n")))
    code, out, _ = run("fill", models / "mlm", "-")
    assert code == 0
    assert out.splitlines()[0] == "mask\ttoken\tscore"
    assert len(out.splitlines()) == 6


def test_embed(models, run, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("a b\n\nc d e\r\n", encoding="utf-8")
    for pool in ("mean", "cls", "max"):
        code, out, _ = run(
            "embed", models / "encoder", "--input", texts, "--output", tmp_path / "v.npy", "--pool", pool
        )
        assert code == 0
        assert "3 vectors of 24" in out
        vectors = np.load(tmp_path / "v.npy")
        assert vectors.shape == (3, 24)
        assert vectors.dtype == np.float32
    assert sorted(path.name for path in tmp_path.iterdir()) == ["texts.txt", "v.npy"]


def test_convert(models, run, tmp_path):
    source = tmp_path / "old"
    source.mkdir()
    for name in ("config.json", "vocab.txt", "tokenizer_config.json"):
        (source / name).write_bytes((models / "mlm" / name).read_bytes())
    from safetensors.torch import load_file

    torch.save(load_file(models / "mlm" / "model.safetensors"), source / "pytorch_model.bin")
    code, out, _ = run("convert", source, tmp_path / "new")
    assert code == 0
    assert "mlm model" in out
    assert (tmp_path / "new/model.safetensors").read_bytes() == (models / "mlm/model.safetensors").read_bytes()
    code, _, err = run("convert", source, tmp_path / "new")
    assert code == 2
    assert "exists already" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "nothing"),
        (["fill"], "requires an argument"),
        (["fill", "{models}/mlm", "no gap here"], "[MASK]"),
        (["fill", "{models}/encoder", "a [MASK]"], "no masked-word head"),
        (["fill", "{models}/mlm", "[MASK]", "--top", "many"], "--top"),
        (["fill", "{models}/mlm", "[MASK]", "--top", "0"], "top must be"),
        (["fill", "{models}/nowhere/at/all", "[MASK]"], "nowhere"),
        (["inspect", "{models}"], "no model here"),
        (["inspect", "{models}/encoder/README.md"], "README.md"),
        (["embed", "{models}/encoder", "--input", "{models}/missing.txt", "--output", "v.npy"], "missing.txt"),
        (
            ["embed", "{models}/encoder", "--input", "{models}/encoder/model.safetensors", "--output", "v.npy"],
            "not UTF-8",
        ),
        (["embed", "{models}/encoder", "--input", "{models}/encoder/vocab.txt", "--output", "v.txt"], ".npy"),
        (
            ["embed", "{models}/encoder", "--input", "{models}/encoder/vocab.txt", "--output", "no/v.npy"],
            "does not exist",
        ),
        (
            [
                "embed",
                "{models}/encoder",
                "--input",
                "{models}/encoder/vocab.txt",
                "--output",
                "v.npy",
                "--pool",
                "sum",
            ],
            "pool",
        ),
        (["convert", "{models}/encoder", "x", "--to", "tensorflow"], "--to"),
    ],
)
def test_wrong_input_is_code_2_with_one_message_and_nothing_written(
    arguments, said, models, run, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*(argument.format(models=models) for argument in arguments))
    assert code == 2
    assert said in err
    assert out == ""
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrapped", [False, True])
def test_interrupt_is_130(run, monkeypatch, wrapped):
    """Also one that comes while a library makes its classes, which Python 3.11 wraps."""

    def interrupted():
        if wrapped:
            raise RuntimeError("Error calling __set_name__") from KeyboardInterrupt()
        raise KeyboardInterrupt

    import bertsmith.jobs.models

    monkeypatch.setattr(bertsmith.jobs.models, "models", interrupted)
    code, _, err = run("models")
    assert code == 130
    assert "interrupted" in err


@pytest.mark.real_weights
def test_every_command_of_the_readme_runs(real_folder, tmp_path):
    """As a user would type them, in a fresh folder with a file of texts."""
    for name in ("minilm", "m3e-small", "albert-tiny-zh"):
        real_folder(name)
    (tmp_path / "texts.txt").write_text("A cat sleeps.\nShares fell.\n")
    modules = list(builtin._modules())[::12]  # of the built-in corpus; all of it takes a minute each time
    prose = filter(None, (builtin._prose_of_module(path) for _, path in modules))
    (tmp_path / "corpus.txt").write_text("\n\n".join(prose), encoding="utf-8")
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("text\tlabel\n" + 8 * "a good film\tyes\na poor film\tno\n")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = [line.split("  #")[0].strip() for line in readme.splitlines() if line.startswith("bertsmith ")]
    assert len(commands) >= 6
    for command in commands:
        shell = command.replace("bertsmith", f"{sys.executable} -m bertsmith", 1).replace("--minutes 3", "--steps 20")
        shell = shell.replace("builtin:python-docs", "corpus.txt")
        done = subprocess.run(shell, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout.strip(), command
    assert np.load(tmp_path / "vectors.npy").shape == (2, 384)
    assert (tmp_path / "m3e-folder" / "model.safetensors").exists()
    assert len((tmp_path / "predictions.jsonl").read_text().splitlines()) == 2
    python = re.search(r"```python\n(.*?)```", readme, re.DOTALL)[1]
    done = subprocess.run([sys.executable, "-c", python], capture_output=True, text=True, check=True)
    assert "北" in done.stdout


def test_demo(run, tmp_path, monkeypatch):
    """The whole way on a small built-in text; a second demo uses what the first one built."""
    from bertsmith.jobs import demo as job

    documents = [" ".join(f"Sentence {n} of text {d} has some words to learn." for n in range(12)) for d in range(60)]
    (tmp_path / "texts.txt").write_text("\n\n".join(documents), encoding="utf-8")
    monkeypatch.setattr(job, "CORPUS", str(tmp_path / "texts.txt"))
    monkeypatch.setattr(job, "VOCAB_SIZE", 300)
    for number in (1, 2):
        code, out, _ = run("demo", "--minutes", "0.02", "--output", str(tmp_path / "demo"))
        assert code == 0
        assert "masked words:" in out
        assert "sentence pairs:" in out
        assert (tmp_path / "demo" / f"run-{number}" / "report.html").exists()


def test_a_demo_of_no_time_is_refused_before_it_begins(run, tmp_path):
    code, out, err = run("demo", "--minutes", "-1", "--output", str(tmp_path / "demo"))
    assert (code, out) == (2, "")
    assert "minutes: input should be greater than 0" in err
    assert not (tmp_path / "demo").exists()
