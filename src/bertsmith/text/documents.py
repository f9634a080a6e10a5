"""A document, and what every reader of documents is handed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bertsmith.text.blocks import BLOCK_SIZE, read_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bertsmith.text.corpus import CorpusOptions
    from bertsmith.text.faults import Tally
    from bertsmith.text.files import Source

__all__ = ["Document", "Reading", "digest_of", "trimmed"]


@dataclass(frozen=True)
class Document:
    """A text, or where it is very long the file that it was put into; and a digest that names it."""

    digest: int  # 64 bits
    num_characters: int
    text: str | None = None
    spool: Path | None = None

    @classmethod
    def of(cls, text: str) -> Document:
        """A document in memory."""
        return cls(digest_of(hashlib.blake2b(text.encode(), digest_size=8)), len(text), text)

    def parts(self) -> Iterator[str]:
        """The text in parts that end at a line's end where there is one, of about a block at most."""
        if self.text is not None:
            yield self.text
            return
        assert self.spool is not None
        with self.spool.open(encoding="utf-8", newline="") as file:
            rest = ""
            while block := file.read(BLOCK_SIZE):
                rest += block
                cut = max(rest.rfind("\n"), rest.rfind(" ") if "\n" not in rest else -1) + 1 or len(rest)
                yield rest[:cut]
                rest = rest[cut:]
            if rest:
                yield rest

    def held_out(self, share: float) -> bool:
        """Whether it is set aside for evaluation; its text alone decides, so the same text is never on both sides."""
        return self.digest < share * 2**64

    def discard(self) -> None:
        """Remove what lies on disk."""
        if self.spool is not None:
            self.spool.unlink(missing_ok=True)


Nothing = str | None  # what a reader gives for a document that it reported: always None


@dataclass(frozen=True)
class Reading:
    """What every reader is handed."""

    source: Source
    options: CorpusOptions
    tally: Tally
    scratch: Path
    progress: Callable[[int], object] | None = None

    def blocks(self) -> Iterator[bytes]:
        """The content of the source."""
        return read_blocks(self.source, self.progress)

    def fault(self, place: str, cause: str, remedy: str = "") -> Nothing:
        """Report with the file's name."""
        self.tally.fault(f"{self.source.name}, {place}" if place else self.source.name, cause, remedy)
        return None


def digest_of(made: Any) -> int:
    """The whole number that a finished hash stands for."""
    return int.from_bytes(made.digest(), "little")


def trimmed(text: str) -> str:
    """A document as it is kept: plain line ends, no white space around it."""
    return text.replace("\r\n", "\n").strip()
