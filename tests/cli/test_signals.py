"""SIGTERM from outside, as a scheduler or a container sends it, where a verb does not listen to it itself."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from bertsmith.bundle.folder import Bundle, write_bundle
from bertsmith.model.heads import build
from finetuning.small_tasks import SHAPE, make_tokenizer


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_predict_ends_with_130_and_leaves_nothing_half_written(tmp_path, sent):
    config = SHAPE.derive(id2label={0: "neg", 1: "pos"})
    write_bundle(tmp_path / "m", Bundle(build(config, "classification", seed=1), make_tokenizer(), 64), source="a test")
    command = [sys.executable, "-m", "bertsmith", "predict", str(tmp_path / "m"), "--input", "-"]
    with subprocess.Popen(
        [*command, "--output", str(tmp_path / "said.jsonl")], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write('{"text": "the river"}\n')
        process.stdin.flush()  # and no end: it waits for more
        until = time.monotonic() + 60
        while not list(tmp_path.glob(".said*")) and time.monotonic() < until:
            time.sleep(0.05)
        assert list(tmp_path.glob(".said*")), "it never began to write"
        process.send_signal(sent)
        assert process.wait(30) == 130
        said = process.stderr.read()
    assert said.splitlines()[-1] == "interrupted"
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
