"""`demo`: the whole way, from text that every machine has to a BERT that fills gaps in it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from bertsmith.data.building import ShardOptions
from bertsmith.jobs.pretrain import Observer, make_request, pretrain
from bertsmith.jobs.shards import shards
from bertsmith.jobs.vocab import VocabOptions, vocab
from bertsmith.pretraining.request import make_budget

if TYPE_CHECKING:
    from pathlib import Path

    from bertsmith.jobs.pretrain import Result

__all__ = ["Demo", "demo"]

CORPUS = "builtin:python-docs"
VOCAB_SIZE = 8000
SIZE = "tiny"
_HOLDOUT = 0.02


@dataclass(frozen=True)
class Demo:
    """What came out of it."""

    result: Result
    num_documents: int
    num_tokens: int


def demo(output: Path, *, minutes: float = 3.0, observer: Observer | None = None) -> Demo:
    """Learn a vocabulary, build shards and pre-train a tiny BERT, all in `output`; what is there already is used."""
    observer = observer or Observer()
    budget = make_budget(minutes=minutes)  # refused before any work is done
    vocabulary, data = output / "vocab", output / "shards"
    if not vocabulary.exists():
        observer.on_note(f"a vocabulary of {VOCAB_SIZE:,} pieces, from the documentation strings of this Python …")
        vocab([CORPUS], output=vocabulary, options=VocabOptions(size=VOCAB_SIZE))
    observer.on_note("the text as token shards …")
    built = shards([CORPUS], tokenizer=str(vocabulary), output=data, options=ShardOptions(holdout=_HOLDOUT))
    run = next(path for path in (output / f"run-{number}" for number in count(1)) if not path.exists())
    observer.on_note(f"a {SIZE} BERT, pre-trained for {minutes:g} minutes …")
    request = make_request(data, size=SIZE, budget=budget)
    result = pretrain(request, run, observer=observer)
    index = built.index
    return Demo(result, index.count("train", "documents"), index.count("train", "tokens"))
