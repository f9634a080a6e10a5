"""`vocab`: raw text to a WordPiece vocabulary, the same on every run."""

from __future__ import annotations

import tempfile
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.data.pool import run_jobs
from bertsmith.errors import CorpusError, InputError
from bertsmith.folders import new_folder, refuse_existing
from bertsmith.jobs.shards import open_tokenizer
from bertsmith.text.corpus import Corpus, CorpusOptions
from bertsmith.text.words import read_terms
from bertsmith.vocab.counting import MAX_WORD_LENGTH, CountJob, WordCount, WordRules, count_block, merge_counts
from bertsmith.vocab.learning import MIN_UNUSED, learn_pieces
from bertsmith.vocab.quality import Quality, choose_examples, measure
from bertsmith.vocab.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bertsmith.text.faults import Tally

__all__ = ["VocabOptions", "VocabResult", "vocab"]

_BLOCK = 4_000_000  # characters
_MAX_LENGTH = 512


@dataclass(frozen=True)
class VocabOptions:
    """What the vocabulary is to be.

    Parameters
    ----------
    size
        Pieces in all, special and unused ones included.
    cased
        Keep capitals and accents.
    min_frequency
        Characters, and pairs that are joined, must occur this often.
    alphabet_limit
        At most this many characters (default: all but the rarest, which are one in a million together).
    keep
        A file of terms, one a line, that must be whole words of the vocabulary.
    unused
        Free slots, named [unused0] and so on; 99 of them fill the gap before [UNK], which is 100.
    holdout
        The share of documents that is not learned from, but measured on.
    """

    size: int = 30522
    cased: bool = False
    min_frequency: int = 2
    alphabet_limit: int | None = None
    keep: Path | None = None
    unused: int = MIN_UNUSED
    holdout: float = 0.01

    def __post_init__(self) -> None:
        least = {"size": 104, "min_frequency": 1, "alphabet_limit": 1, "unused": MIN_UNUSED}
        for name, bound in least.items():
            value = getattr(self, name)
            if value is not None and value < bound:
                raise InputError(f"--{name.replace('_', '-')} must be at least {bound}, not {value}")
        if not 0 <= self.holdout < 1:
            raise InputError(f"--holdout must be a share from 0 to below 1, not {self.holdout}")


@dataclass(frozen=True)
class VocabResult:
    """A vocabulary and how good it is; `held_out` tells whether that was measured on text set aside."""

    tokenizer: Tokenizer
    tally: Tally
    num_words: int
    held_out: bool
    quality: Quality
    compared: Quality | None

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "corpus": self.tally.to_json(),
            "distinct_words": self.num_words,
            "measured_on": "held-out text" if self.held_out else "the text it was learned from",
            "fingerprint": self.tokenizer.fingerprint,
            "quality": self.quality.to_json(),
            "compared": self.compared.to_json() if self.compared else None,
        }


def vocab(
    corpus: Sequence[str],
    *,
    output: Path,
    options: VocabOptions | None = None,
    reading: CorpusOptions | None = None,
    compare: str | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> VocabResult:
    """Count the words of a corpus, learn pieces, write `vocab.txt`, `tokenizer.json`, `tokenizer_config.json`."""
    options = options or VocabOptions()
    refuse_existing(output)
    rival = open_tokenizer(compare) if compare else None
    rules = WordRules(lowercase=not options.cased)
    keep = _whole_words(options.keep, rules) if options.keep else []
    with tempfile.TemporaryDirectory(prefix="bertsmith-vocab-") as name:
        scratch = Path(name)
        source = Corpus(corpus, reading or CorpusOptions(), scratch, progress)
        jobs = (
            CountJob(number, documents, rules, options.holdout, scratch)
            for number, documents in enumerate(source.groups(_BLOCK))
        )
        deque(run_jobs(count_block, jobs, workers=workers), maxlen=0)  # the counts are on disk
        words = merge_counts(scratch, "learn")
        aside = merge_counts(scratch, "holdout")
    if not words:
        raise CorpusError("there is no word to learn from; is --holdout too large?")
    pieces = learn_pieces(
        words,
        options.size,
        min_frequency=options.min_frequency,
        alphabet_limit=options.alphabet_limit,
        keep=keep,
        num_unused=options.unused,
    )
    tokenizer = Tokenizer.from_pieces(pieces, lowercase=not options.cased)
    with new_folder(output) as folder:
        tokenizer.save(folder, max_length=_MAX_LENGTH)
    quality, compared = _qualities(tokenizer, rival, aside, words)
    return VocabResult(tokenizer, source.tally, len(words), bool(aside), quality, compared)


def _qualities(
    tokenizer: Tokenizer, rival: Tokenizer | None, aside: Sequence[WordCount], corpus: Sequence[WordCount]
) -> tuple[Quality, Quality | None]:
    words = aside or corpus
    examples = choose_examples(tokenizer, words)
    mine, theirs = (measure(side, words, corpus, examples) if side else None for side in (tokenizer, rival))
    assert mine is not None
    return mine, theirs


def _whole_words(path: Path, rules: WordRules) -> list[str]:
    """The terms of a file as BERT sees them; a term of several words cannot be one piece."""
    terms = []
    for term in read_terms(path):
        words = rules.split(term)
        if len(words) != 1:
            raise InputError(f"{path}: {term!r} is {len(words)} words for BERT ({' '.join(words)}); keep takes one")
        if len(words[0]) > MAX_WORD_LENGTH:
            raise InputError(f"{path}: {term[:30]!r}… is longer than {MAX_WORD_LENGTH} characters")
        terms.append(words[0])
    return terms
