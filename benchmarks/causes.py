"""Broken files by their cause: a register of what makes them. The seed alone decides what a case is."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Causes"]

Case = TypeVar("Case")


class Causes(dict[str, "Callable[[Path, random.Random], Case]"], Generic[Case]):
    """What makes the cases of each cause, in the order in which they were registered."""

    def register(
        self, name: str
    ) -> Callable[[Callable[[Path, random.Random], Case]], Callable[[Path, random.Random], Case]]:
        """As a decorator."""

        def keep(make: Callable[[Path, random.Random], Case]) -> Callable[[Path, random.Random], Case]:
            self[name] = make
            return make

        return keep

    def make(self, name: str, seed: int, folder: Path) -> Case:
        """One case of a cause, in a new folder."""
        folder.mkdir()
        return self[name](folder, random.Random(f"{name} {seed}"))
