"""The small worked examples in docstrings hold."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = (
    "config",
    "vocab.tokenizer",
    "data.batches",
    "model.packing",
    "bundle.names",
    "bundle.google_names",
    "bundle.google_table",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name):
    result = doctest.testmod(importlib.import_module(f"bertsmith.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
