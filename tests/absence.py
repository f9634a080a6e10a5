"""What a test does where something that it needs is not installed."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def absent(reason: str) -> NoReturn:
    """Skip with a plain reason; on CI, where everything must be there, fail instead."""
    if os.environ.get("CI"):
        pytest.fail(f"on CI nothing may be missing: {reason}")
    pytest.skip(reason)
