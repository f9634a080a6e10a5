"""The examples run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.real_weights
def test_nearest(real_folder, tmp_path):
    real_folder("minilm")
    (tmp_path / "texts.txt").write_text("The train was late.\n\nBake the cake.\nPay by card.\n")
    command = [sys.executable, ROOT / "examples/nearest.py", tmp_path / "texts.txt", "a delayed journey"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0].endswith("The train was late.")
    assert len(done.stdout.splitlines()) == 3
