"""What all tests share: real weights where they are installed, and a check that CI skipped none of them."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
import torch

from absence import absent

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # no test may reach for the network
# Some virtual machines name AMX and end a process that takes it, as torch does for products in bfloat16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
torch.set_num_threads(1)  # the tests themselves run side by side


@pytest.fixture(scope="session")
def real_folder() -> Callable[[str], Path]:
    """The folder of a packaged model, by its name in `bertsmith models`."""
    from bertsmith.bundle.catalogue import PACKAGED

    def find(name: str) -> Path:
        packaged = next(model for model in PACKAGED if model.name == name)
        folder = packaged.find()
        if folder is None:
            absent(f"package {packaged.package} is not installed (make setup installs it)")
        return folder

    return find


@pytest.fixture
def chromium() -> str:
    """The system's Chromium."""
    path = shutil.which("chromium")
    if path is None:
        absent("no system Chromium (apt-get install chromium)")
    return path


@pytest.fixture(autouse=True)
def same_threads():
    """A test that leaves torch with another number of threads spoils those that compare to the last bit."""
    yield
    found = torch.get_num_threads()
    torch.set_num_threads(1)
    assert found == 1
