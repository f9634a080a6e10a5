"""What the tests of fine-tuning from the command line share."""

from __future__ import annotations

import os
import signal
import sys
from types import SimpleNamespace

import pytest

from bertsmith.cli import main as cli
from bertsmith.cli.display import FinetuneDisplay
from bertsmith.train import keeping
from bertsmith.train.speed import Peak
from finetuning.small_tasks import write_all_kinds, write_model


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
