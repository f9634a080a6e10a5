"""Which files a corpus has: names, folders, globs and standard input, in a stable order.

Comes in: what stands on the command line. Goes out: `Source`s, each with its kind and compression.
"""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bertsmith.errors import CorpusError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bertsmith.text.faults import Tally

__all__ = ["BUILTIN", "STDIN", "Format", "Kind", "Source", "find_sources"]

Kind = Literal["txt", "jsonl", "parquet", "md", "builtin"]
Format = Literal["auto", "txt", "jsonl", "parquet", "md"]
Compression = Literal["gz", "zst"]

STDIN = "-"
BUILTIN = "builtin:python-docs"
_KINDS: dict[str, Kind] = {
    ".txt": "txt",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".md": "md",
    ".markdown": "md",
}
_COMPRESSIONS: dict[str, Compression] = {".gz": "gz", ".zst": "zst"}


@dataclass(frozen=True)
class Source:
    """One file, or standard input (`path` is None)."""

    name: str
    path: Path | None
    kind: Kind
    compression: Compression | None = None

    @property
    def size(self) -> int:
        """Bytes on disk; 0 for standard input."""
        return self.path.stat().st_size if self.path else 0


def find_sources(corpus: Sequence[str], kind: Format, tally: Tally) -> list[Source]:
    """Resolve every name that was given; a name that leads nowhere is an error."""
    if not corpus:
        raise CorpusError("no corpus was named; give files, folders, globs, or - for standard input")
    found = [source for name in corpus for source in _resolve(name, kind, tally)]
    if not found:
        raise CorpusError(
            f"{', '.join(corpus)}: no file of a known kind is there "
            f"({', '.join(_KINDS)}, each also .gz and .zst; --format says what files of other names are)"
        )
    return found


def _resolve(name: str, kind: Format, tally: Tally) -> Iterator[Source]:
    if name == STDIN:
        yield Source("standard input", None, "txt" if kind == "auto" else kind)
    elif name.startswith("builtin:"):
        if name != BUILTIN:
            raise CorpusError(f"{name}: there is no such built-in corpus; the one there is: {BUILTIN}")
        yield Source(name, None, "builtin")
    elif os.path.isdir(name):  # noqa: PTH112 Path.is_dir raises where a name is too long
        yield from _walk(Path(name), kind, tally, seen=set())
    elif os.path.lexists(name):
        yield _named(Path(name), kind)
    elif glob.has_magic(name):
        matches = _matches(name)
        if not matches:
            raise CorpusError(f"{name}: no file matches")
        for match in matches:
            if not match.is_dir() and not _is_special(match):
                yield _named(match, kind)
    else:
        raise CorpusError(f"{name}: no such file or folder")


def _matches(pattern: str) -> list[Path]:
    """What a pattern finds, sorted. The ** of `glob` follows links in circles; that of `pathlib` follows none."""
    path = Path(pattern)
    if "**" not in path.parts:
        return [Path(match) for match in sorted(glob.glob(pattern))]  # noqa: PTH207 a pattern may be absolute
    if path.name == "**":
        path /= "*"
    try:
        found = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))), key=str)
    except ValueError as error:
        raise CorpusError(f"{pattern}: is not a pattern ({error})") from error
    hidden = [{part for part in match.parts if part.startswith(".")} - set(path.parts) for match in found]
    return [match for match, parts in zip(found, hidden, strict=True) if not parts]


def _is_special(path: Path) -> bool:
    """A pipe, a socket or a device: who opens one may wait for ever."""
    return os.path.exists(path) and not os.path.isfile(path)  # noqa: PTH110, PTH113 these do not raise


def _named(path: Path, kind: Format) -> Source:
    """A file that was asked for by name must be of a known kind."""
    source = _source(path, kind)
    if source is None:
        raise CorpusError(f"{path}: not a kind of file that is known; --format txt|jsonl|parquet|md says what it is")
    return source


def _source(path: Path, kind: Format) -> Source | None:
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = _COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    if compression:
        suffixes.pop()
    found = _KINDS.get(suffixes[-1]) if suffixes else None
    if kind != "auto":
        found = kind
    return Source(str(path), path, found, compression) if found else None


def _walk(folder: Path, kind: Format, tally: Tally, seen: set[tuple[int, int]]) -> Iterator[Source]:
    """All files below a folder, sorted; a link back to a folder on the way is skipped and counted.

    By hand because `os.walk` either follows no links or follows them for ever. No recursion: folders may be deep.
    """
    waiting = [folder]
    while waiting:
        current = waiting.pop()
        try:
            status = current.stat()
            entries = sorted(current.iterdir(), key=lambda entry: os.fsencode(entry.name))
        except OSError as error:
            tally.fault(str(current), f"the folder cannot be read ({error.strerror})")
            continue
        if (status.st_dev, status.st_ino) in seen:
            tally.skipped["a folder reached twice through links"] += 1
            continue
        seen.add((status.st_dev, status.st_ino))
        folders = []
        for entry in entries:
            if entry.name.startswith("."):
                continue
            try:
                is_folder = entry.is_dir()
            except OSError as error:
                tally.fault(str(entry), f"cannot be read ({error.strerror})")
                continue
            if is_folder:
                folders.append(entry)
            elif _is_special(entry):
                tally.ignored_files += 1
            elif source := _source(entry, kind):
                yield source
            else:
                tally.ignored_files += 1
        waiting += reversed(folders)
