"""What is wrong with a corpus, and what to do about it: stop, or go on and count.

Every reader reports through one `Tally`, so that a fault is worded, counted and shown in one way.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from bertsmith.errors import CorpusError

__all__ = ["OnError", "Tally"]

OnError = Literal["stop", "skip", "replace"]
_NUM_EXAMPLES = 5


@dataclass
class Tally:
    """Counts of one pass over a corpus. `skipped` has one entry a cause."""

    on_error: OnError = "stop"
    files: int = 0
    documents: int = 0
    characters: int = 0
    duplicates: int = 0
    near_empty: int = 0
    empty_files: int = 0
    ignored_files: int = 0
    replaced: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    def fault(self, place: str, cause: str, remedy: str = "") -> None:
        """Stop with an error, or count what is skipped under its cause."""
        sentence = f"{place}: {cause}" + (f"; {remedy}" if remedy else "")
        if self.on_error == "stop":
            raise CorpusError(f"{sentence} (--on-error skip goes on without it)")
        self.skipped[cause.split(" (")[0]] += 1
        if len(self.examples) < _NUM_EXAMPLES:
            self.examples.append(sentence)

    def to_json(self) -> dict[str, Any]:
        """For machines, and for the index of a data set."""
        return {
            "files": self.files,
            "documents": self.documents,
            "characters": self.characters,
            "duplicates": self.duplicates,
            "near_empty": self.near_empty,
            "empty_files": self.empty_files,
            "ignored_files": self.ignored_files,
            "replaced_characters": self.replaced,
            "skipped": dict(sorted(self.skipped.items())),
        }

    def describe(self) -> list[str]:
        """For people: one line of counts, and one for everything that was left out."""
        lines = [f"{self.files:,} files, {self.documents:,} documents, {self.characters:,} characters"]
        left_out = {
            "duplicates dropped": self.duplicates,
            "near-empty documents dropped": self.near_empty,
            "empty files": self.empty_files,
            "files of other kinds ignored": self.ignored_files,
            "characters replaced": self.replaced,
            **{f"skipped: {cause}": count for cause, count in sorted(self.skipped.items())},
        }
        return lines + [f"{count:,} {name}" for name, count in left_out.items() if count]
