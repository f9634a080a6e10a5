"""`models`: what can be opened by name on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bertsmith.bundle.catalogue import local_models

if TYPE_CHECKING:
    from bertsmith.bundle.catalogue import LocalModel

__all__ = ["models"]


def models() -> list[LocalModel]:
    """Weights found in installed packages and in the hub's local cache."""
    return local_models()
