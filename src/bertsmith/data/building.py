"""Building a data set: the corpus in work units, on many workers, to the same bytes every time.

Reading is quick beside encoding. So one process reads the corpus and deals it out in units of equal size, and after a
kill the same command reads it again, finds the record of each finished unit, and builds only the others. The index is
written when all are done; what the build needed beside it is then removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from bertsmith.data.index import INDEX_FILE, SPLITS, Index, read_index
from bertsmith.data.pool import Engine, check_workers, run_jobs
from bertsmith.data.shards import ShardSet
from bertsmith.data.writing import Recipe, Unit, UnitRecord, read_record, write_unit
from bertsmith.errors import CorpusError, InputError, ShardError
from bertsmith.folders import naming_full_disks, write_whole
from bertsmith.text.corpus import Corpus, CorpusOptions
from bertsmith.text.sentences import SentenceMode
from bertsmith.text.words import read_terms

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bertsmith.text.faults import Tally
    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["Built", "ShardOptions", "build_shards"]

_BUILD_FOLDER = ".building"
_SETTINGS_FILE = "settings.json"
_MAX_LENGTH = 512  # what a tokenizer's settings say of the model that it is for; data has no such limit


@dataclass(frozen=True)
class ShardOptions:
    """How documents become shards.

    Parameters
    ----------
    language
        The language of the sentences (en, zh, …); auto tells English, Chinese and Japanese by their characters.
    sentences
        split: divide each line into sentences. wrapped: join the lines of a paragraph first. lines: one a line.
    words
        What whole-word masking takes as a word: pieces joined by ##, or the words of a Chinese segmenter.
    dictionary
        Chinese terms, one a line, that the segmenter keeps whole.
    phrases
        Phrases, one a line, whose matches are recorded for entity masking.
    holdout
        The share of documents set aside for evaluation, chosen by a hash of their text.
    shard_mb
        Millions of characters in a shard.
    """

    language: str = "auto"
    sentences: SentenceMode = "split"
    words: Literal["pieces", "chinese"] = "pieces"
    dictionary: Path | None = None
    phrases: Path | None = None
    holdout: float = 0.01
    shard_mb: float = 8.0

    def __post_init__(self) -> None:
        if not 0 <= self.holdout < 1:
            raise InputError(f"--holdout must be a share from 0 to below 1, not {self.holdout}")
        if not 0 < self.shard_mb <= 1000:
            raise InputError(f"--shard-mb must be above 0 and at most 1000, not {self.shard_mb}")
        if self.dictionary is not None and self.words != "chinese":
            raise InputError("--dictionary is for --words chinese")


@dataclass(frozen=True)
class Built:
    """A finished data set and how it came about."""

    index: Index
    tally: Tally
    num_reused: int  # units that an earlier, interrupted run had finished


def build_shards(
    names: Sequence[str],
    tokenizer: Tokenizer,
    folder: Path,
    *,
    corpus: CorpusOptions | None = None,
    options: ShardOptions | None = None,
    workers: int | None = None,
    engine: Engine = "local",
    ray_address: str | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Built:
    """Build a data set, go on with one that was interrupted, or find that it is there already."""
    check_workers(workers)
    corpus, options = corpus or CorpusOptions(), options or ShardOptions()
    dictionary = tuple(read_terms(options.dictionary)) if options.dictionary else ()
    phrases = tuple(read_terms(options.phrases)) if options.phrases else ()
    settings = _settings(tokenizer, corpus, options, dictionary, phrases)
    complete = _look_at(folder, settings)
    scratch = folder / _BUILD_FOLDER
    with naming_full_disks(folder), _alone_in(folder, scratch), _leaving_no_beginnings(folder, scratch):
        _clear_remains(folder, scratch)
        source = Corpus(names, corpus, scratch, progress)
        recipe = Recipe(folder.absolute(), scratch.absolute(), options.language, options.sentences, options.words,
                        options.holdout, dictionary, phrases, tokenizer.fingerprint)  # fmt: skip
        groups = source.groups(round(options.shard_mb * 1e6))
        units = (Unit(number, documents, recipe) for number, documents in enumerate(groups))
        if complete is None:
            write_whole(scratch / _SETTINGS_FILE, lambda file: file.write(json.dumps(settings).encode()))
            tokenizer.save(folder, max_length=_MAX_LENGTH)
            finished: list[UnitRecord] = []
            waiting = _unfinished(units, finished)
            built = list(run_jobs(write_unit, waiting, workers=workers, engine=engine, ray_address=ray_address))
            num_reused = len(finished)
            complete = _index(tokenizer, settings, source.tally, finished + built)
            if not complete.train:
                raise CorpusError(f"{', '.join(names)}: no document has a token to learn from; is --holdout too large?")
            _remove_strays(folder, complete)
            content = complete.model_dump_json(indent=1).encode()
            write_whole(folder / INDEX_FILE, lambda file: file.write(content))
        else:
            num_reused = _compare(folder, units, complete)
            for split in SPLITS:  # who runs the command again may do so because a shard is damaged
                ShardSet(folder, split, complete).verify()
        _clear_remains(folder, scratch)
    return Built(complete, source.tally, num_reused)


def _settings(
    tokenizer: Tokenizer, corpus: CorpusOptions, options: ShardOptions, *terms: tuple[str, ...]
) -> dict[str, Any]:
    """What decides the bytes of a data set, beside the corpus itself."""
    lists = dict(zip(("dictionary", "phrases"), map(_digest_of, terms), strict=True))
    return {"tokenizer": tokenizer.fingerprint, **asdict(corpus), **asdict(options), **lists}


def _digest_of(terms: tuple[str, ...]) -> str | None:
    return hashlib.sha256("\n".join(terms).encode()).hexdigest() if terms else None


def _look_at(folder: Path, settings: dict[str, Any]) -> Index | None:
    """Make the folder, or refuse one that holds something else; gives the index of a finished data set."""
    index = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / INDEX_FILE).exists():
            index = read_index(folder)
            found = index.options
        elif (folder / _BUILD_FOLDER / _SETTINGS_FILE).exists():
            if not _has_records(folder / _BUILD_FOLDER):
                return None  # killed before anything was done: no reason to insist on its settings
            found = _read_settings(folder / _BUILD_FOLDER / _SETTINGS_FILE)
            found["on_error"] = settings["on_error"]  # to skip what stopped a build is how one goes on with it
        elif set(os.listdir(folder)) - {_BUILD_FOLDER}:  # noqa: PTH208 only the names
            raise ShardError(f"{folder}: is not empty and holds no data set; name a new folder")
        else:
            return None
    except OSError as error:
        raise ShardError(f"{folder}: cannot be written to ({error.strerror})") from error
    different = sorted(key for key in settings.keys() | found.keys() if settings.get(key) != found.get(key))
    if different:
        raise ShardError(
            f"{folder}: holds a data set that was built with another {', '.join(different)}; "
            "name a new folder, or remove this one first"
        )
    return index


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ShardError(f"{path}: is damaged; remove the data set that it belongs to, and build it again")
    return found


def _has_records(scratch: Path) -> bool:
    return any(scratch.glob("unit-*.json"))


@contextmanager
def _leaving_no_beginnings(folder: Path, scratch: Path) -> Iterator[None]:
    """A build that fails before its first unit is done leaves nothing: it can be tried again with other settings."""
    try:
        yield
    except BaseException:
        if not _has_records(scratch) and not (folder / INDEX_FILE).exists():
            shutil.rmtree(folder, ignore_errors=True)
        raise


@contextmanager
def _alone_in(folder: Path, scratch: Path) -> Iterator[None]:
    """One build at a time in a folder. What a build needs beside a finished data set is gone at the end."""
    scratch.mkdir(exist_ok=True)
    with (scratch / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ShardError(f"{folder}: another process is building there") from error
        try:
            yield
        finally:
            if (folder / INDEX_FILE).exists():
                shutil.rmtree(scratch)


def _clear_remains(folder: Path, scratch: Path) -> None:
    """Remove what a killed build left half-written."""
    aside = [".part-*", f".{INDEX_FILE}.*", *(f".{split}-*.bin.*" for split in SPLITS)]
    remains = [*map(folder.glob, aside), scratch.glob(".*"), scratch.glob("document-*")]
    for path in chain.from_iterable(remains):
        path.unlink(missing_ok=True)
    for path in scratch.glob("tmp*"):
        shutil.rmtree(path, ignore_errors=True)


def _remove_strays(folder: Path, index: Index) -> None:
    """Remove shards that an interrupted run built from a corpus that has become shorter since."""
    for split in SPLITS:
        names = {info.file_name(split) for info in index.shards(split)}
        for path in folder.glob(f"{split}-*.bin"):
            if path.name not in names:
                path.unlink()


def _unfinished(units: Iterator[Unit], finished: list[UnitRecord]) -> Iterator[Unit]:
    """The units that have no record; the records of the others are put into `finished`."""
    for unit in units:
        record = read_record(unit.recipe.records, unit.number, unit.recipe.folder)
        if record is None:
            yield unit
            continue
        if record.digest != unit.digest:
            raise _other_corpus(unit.recipe.folder)
        finished.append(record)
        unit.discard()


def _compare(folder: Path, units: Iterator[Unit], index: Index) -> int:
    """See that the corpus is the one that the data set was built from; gives the number of its units."""
    digests = []
    for unit in units:
        digests.append(unit.digest)
        unit.discard()
        if index.units[: len(digests)] != digests:
            break
    if digests != index.units:
        raise _other_corpus(folder)
    return len(digests)


def _other_corpus(folder: Path) -> ShardError:
    return ShardError(f"{folder}: holds a data set of another corpus; name a new folder, or remove this one first")


def _index(tokenizer: Tokenizer, settings: dict[str, Any], tally: Tally, records: list[UnitRecord]) -> Index:
    records = sorted(records, key=lambda record: record.number)
    splits = {split: [r.shards[split] for r in records if split in r.shards] for split in SPLITS}
    return Index(
        tokenizer=tokenizer.fingerprint,
        vocab_size=tokenizer.vocab_size,
        unknown_id=tokenizer.unk_id,
        options=settings,
        corpus={**tally.to_json(), "without_tokens": sum(record.num_without_tokens for record in records)},
        units=[record.digest for record in records],
        train=splits["train"],
        holdout=splits["holdout"],
    )
