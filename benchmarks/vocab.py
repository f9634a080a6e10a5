"""Learning a vocabulary, against `tokenizers`' own WordPiece trainer, on en-general and en-web of ../shared/data.

Both begin with the JSON files and read the same documents; a hash of the text sets one in fifty aside. Theirs is the
trainer as its documentation shows it (BERT's normalizer and pre-tokenizer, `train_from_iterator`, its own defaults).
Pieces per word are measured on the words set aside. A word that a vocabulary cannot read counts as many pieces as it
has characters, so that nothing is gained by knowing fewer of them.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer as Engine
from tokenizers import models, normalizers, pre_tokenizers, trainers

import harness
from bertsmith.jobs.shards import open_tokenizer
from bertsmith.jobs.vocab import VocabOptions, vocab
from bertsmith.text.corpus import CorpusOptions
from bertsmith.text.documents import Document
from bertsmith.vocab.counting import WordRules
from bertsmith.vocab.tokenizer import SPECIAL_TOKENS, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CORPORA = Path(__file__).resolve().parent.parent.parent / "shared" / "data" / "corpus"
FILES = [CORPORA / "en-general.jsonl", CORPORA / "en-web.jsonl"]
SIZES = (8_000, 30_000)
HOLDOUT = 0.02


def documents(path: Path) -> Iterator[Document]:
    """As the readers of both sides see them."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield Document.of(json.loads(line)["text"].strip())


def train_theirs(size: int) -> Tokenizer:
    """`tokenizers`' trainer."""
    engine = Engine(models.WordPiece(unk_token="[UNK]"))
    engine.normalizer = normalizers.BertNormalizer(lowercase=True)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=list(SPECIAL_TOKENS), show_progress=False, continuing_subword_prefix="##"
    )
    texts = (document.text for path in FILES for document in documents(path) if not document.held_out(HOLDOUT))
    engine.train_from_iterator(texts, trainer)
    pieces = sorted(engine.get_vocab().items(), key=lambda entry: entry[1])
    return Tokenizer.from_pieces([piece for piece, _ in pieces])


def train_ours(size: int, scratch: Path) -> Tokenizer:
    """The verb `vocab`, with two processes."""
    shutil.rmtree(scratch / "vocab", ignore_errors=True)
    options = VocabOptions(size=size, holdout=HOLDOUT)
    result = vocab(
        [str(path) for path in FILES],
        output=scratch / "vocab",
        options=options,
        reading=CorpusOptions(min_chars=1),
        workers=2,
    )
    return result.tokenizer


def pieces_per_word(tokenizer: Tokenizer, words: Sequence[tuple[str, int]]) -> tuple[float, float]:
    """Pieces per word, and the share of words that are unknown."""
    rows = tokenizer.encode_plain([word for word, _ in words])
    counts = np.array([count for _, count in words])
    unknown = np.array([tokenizer.unk_id in row for row in rows])
    lengths = np.array([len(row) for row in rows])
    lengths[unknown] = [len(word) for (word, _), bad in zip(words, unknown, strict=True) if bad]
    return float((counts * lengths).sum() / counts.sum()), float(counts[unknown].sum() / counts.sum())


def main() -> int:
    """Measure, print."""
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    rules = WordRules()
    held_out = {path.stem: [d.text or "" for d in documents(path) if d.held_out(HOLDOUT)] for path in FILES}
    words = list(rules.count(text for texts in held_out.values() for text in texts).items())
    web = list(rules.count(held_out["en-web"]).items())
    rows, verdicts, peaks = [], [], []
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        for size in SIZES:
            made: dict[str, Tokenizer] = {}

            def keep(side: str, train: Callable[[], Tokenizer], made: dict[str, Tokenizer] = made) -> None:
                made[side] = train()

            contenders: dict[str, Callable[[], object]] = {
                "bertsmith": lambda size=size: keep("bertsmith", lambda: train_ours(size, scratch)),  # type: ignore[misc]
                "tokenizers": lambda size=size: keep("tokenizers", lambda: train_theirs(size)),  # type: ignore[misc]
            }
            seconds, these = harness.take_turns(contenders, options.rounds)
            peaks += these
            quality = {side: pieces_per_word(tokenizer, words) for side, tokenizer in made.items()}
            for side, times in seconds.items():
                pieces, unknown = quality[side]
                rows.append(
                    f"| {size:,} | {side} | {made[side].vocab_size:,} | {harness.spread(times)} | {pieces:.4f} | "
                    f"{unknown:.4%} |"
                )
            slower = statistics.median(seconds["bertsmith"]) / statistics.median(seconds["tokenizers"])
            mine, theirs = quality["bertsmith"][0], quality["tokenizers"][0]
            verdicts += [
                (f"time at {size:,}, ours over theirs", "at most 1.2×", f"{slower:.2f}×", slower <= 1.2),
                (f"pieces per word at {size:,}", f"at most {theirs:.4f}", f"{mine:.4f}", mine <= theirs),
            ]
        mine, theirs = (pieces_per_word(side, web)[0] for side in (made["bertsmith"], open_tokenizer("minilm")))
    verdicts.append(
        ("held-out en-web at 30,000, against BERT's vocabulary", f"below {theirs:.4f}", f"{mine:.4f}", mine < theirs)
    )
    harness.show(
        "vocab",
        "Learning a vocabulary",
        [
            (__doc__ or "").strip(),
            "",
            f"{sum(count for _, count in words):,} words set aside; {options.rounds} rounds.",
            harness.no_products(peaks),
            "",
            "| size | by | pieces | seconds, median (range) | pieces per word | unknown words |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            *harness.verdict_table(verdicts),
            "",
            harness.versions(),
        ],
        keep=options.keep,
    )
    return 0 if all(met for *_, met in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
