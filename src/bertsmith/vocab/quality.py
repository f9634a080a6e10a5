"""How good a vocabulary is: measured on words with their counts, best on text that it was not learned from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bertsmith.vocab.counting import piece_uses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bertsmith.vocab.counting import WordCount
    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["Quality", "choose_examples", "measure"]

_NUM_SHOWN = 10
NUM_EXAMPLES = 20


@dataclass(frozen=True)
class Quality:
    """Shares are of word occurrences. `examples` are words with their pieces."""

    size: int
    pieces_per_word: float
    unknown_share: float
    whole_word_share: float
    longest: list[str]
    rarest: list[str]
    examples: list[tuple[str, list[str]]]

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)


def measure(
    tokenizer: Tokenizer, words: Sequence[WordCount], corpus: Sequence[WordCount], examples: Sequence[str]
) -> Quality:
    """Read every word with a vocabulary. An unknown word counts as one piece, so look at `unknown_share` too.

    What is rare is judged by `corpus`, the words that were learned from: they are more.
    """
    rows = tokenizer.encode_plain([word for word, _ in words])
    counts = np.array([count for _, count in words], np.int64)
    lengths = np.array([len(row) for row in rows], np.int64)
    unknown = np.array([tokenizer.unk_id in row for row in rows], bool)
    total = max(int(counts.sum()), 1)
    pieces = tokenizer.pieces
    uses = piece_uses(tokenizer.encode_plain([word for word, _ in corpus]), corpus, tokenizer.vocab_size)
    learned = [number for number, piece in enumerate(pieces) if not (piece.startswith("[") and piece.endswith("]"))]
    longest = sorted(learned, key=lambda number: (-len(pieces[number].removeprefix("##")), number))
    several = [number for number in learned if len(pieces[number].removeprefix("##")) > 1]
    rarest = sorted(several, key=lambda number: (uses[number], number))
    return Quality(
        size=len(pieces),
        pieces_per_word=float((counts * lengths).sum() / total),
        unknown_share=float(counts[unknown].sum() / total),
        whole_word_share=float(counts[(lengths == 1) & ~unknown].sum() / total),
        longest=[pieces[number] for number in longest[:_NUM_SHOWN]],
        rarest=[pieces[number] for number in rarest[:_NUM_SHOWN]],
        examples=[
            (word, [tokenizer.piece(number) for number in row])
            for word, row in zip(examples, tokenizer.encode_plain(list(examples)), strict=True)
        ],
    )


def choose_examples(tokenizer: Tokenizer, words: Sequence[WordCount]) -> list[str]:
    """The most frequent words that a vocabulary splits."""
    frequent = [word for word, _ in words[:50_000]]
    rows = tokenizer.encode_plain(frequent)
    return [word for word, row in zip(frequent, rows, strict=True) if len(row) > 1][:NUM_EXAMPLES]
