"""Learn WordPiece pieces from word counts.

`tokenizers` proposes: its trainer joins the most frequent pair again and again, past the size that is wanted. But
WordPiece reads words from the left, longest piece first, and never uses many of the steps between. So the proposals
are put to use on the words, and the least used are dropped until the vocabulary has its size.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers, trainers

from bertsmith.errors import InputError
from bertsmith.vocab.counting import piece_uses
from bertsmith.vocab.tokenizer import CLS, MASK, PAD, SEP, UNK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bertsmith.vocab.counting import WordCount

__all__ = ["MIN_UNUSED", "learn_pieces"]

# Google's ids: [PAD] 0, [UNK] 100, [CLS] 101, [SEP] 102, [MASK] 103; the gap is filled with free slots.
MIN_UNUSED = 99
# The characters that together are this share of all are kept; words with a rarer one are [UNK].
_COVERAGE = 0.999_999
# How many pieces are proposed for each that is kept, and in how many steps the others are dropped.
_PROPOSALS = 1.25
_NUM_CUTS = 3
_FEED = 2**16


def learn_pieces(
    words: Sequence[WordCount],
    size: int,
    *,
    min_frequency: int = 2,
    alphabet_limit: int | None = None,
    keep: Sequence[str] = (),
    num_unused: int = MIN_UNUSED,
) -> list[str]:
    """A vocabulary of at most `size` pieces in the order of their ids; the same words give the same pieces."""
    reserved = _reserved(num_unused)
    alphabet = _alphabet(words, min_frequency, alphabet_limit)
    single = sorted(alphabet | {f"##{character}" for character in alphabet if _continues(character)})
    kept = [term for term in dict.fromkeys(keep) if term not in alphabet]
    room = size - len(reserved) - len(single) - len(kept)
    if room < 0:
        raise InputError(
            f"--size {size} is too small: {len(reserved)} special and unused slots, {len(single)} characters and "
            f"{len(kept)} kept terms need {size - room}; raise it, or lower --alphabet-limit"
        )
    usable = [(word, count) for word, count in words if alphabet.issuperset(word)]
    proposed = _propose(usable, single, round(room * _PROPOSALS), min_frequency)
    proposed = [piece for piece in proposed if piece not in kept]
    return [*reserved, *single, *kept, *_most_used(usable, [*single, *kept], proposed, room)]


def _reserved(num_unused: int) -> list[str]:
    unused = [f"[unused{number}]" for number in range(num_unused)]
    return [PAD, *unused[:MIN_UNUSED], UNK, CLS, SEP, MASK, *unused[MIN_UNUSED:]]


def _alphabet(words: Sequence[WordCount], min_frequency: int, limit: int | None) -> set[str]:
    """The most frequent characters: as many as are asked for, or as cover nearly all of the text."""
    counts: Counter[str] = Counter()
    for word, count in words:
        for character in word:
            counts[character] += count
    ranked = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    ranked = [entry for entry in ranked if entry[1] >= min_frequency]
    if limit is None:
        covered = np.cumsum([count for _, count in ranked])
        limit = int(np.searchsorted(covered, _COVERAGE * counts.total())) + 1
    return {character for character, _ in ranked[:limit]}


def _continues(character: str) -> bool:
    """Whether a character can stand inside a word: punctuation and Han characters are words of their own."""
    return character.isalnum() and not "\u4e00" <= character <= "\u9fff"


def _propose(words: Sequence[WordCount], single: Sequence[str], count: int, min_frequency: int) -> list[str]:
    """Pieces of several characters, in the order in which the trainer made them.

    It gives a different vocabulary on every run unless every `##` character is named to it in advance.
    """
    alphabet = [piece for piece in single if not piece.startswith("##") or len(piece) == 2]
    continuing = [piece for piece in single if piece.startswith("##") and len(piece) > 2]
    engine = Engine(models.WordPiece(unk_token=UNK))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=len(single) + count,
        min_frequency=min_frequency,
        show_progress=False,
        special_tokens=continuing,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        continuing_subword_prefix="##",
    )
    engine.train_from_iterator(_feed(words), trainer)
    known = set(single)
    made = sorted(engine.get_vocab().items(), key=lambda entry: entry[1])
    return [piece for piece, _ in made if piece not in known]


def _feed(words: Sequence[WordCount]) -> Iterator[str]:
    """The trainer takes text, not counts: each word as often as it occurs."""
    for word, count in words:
        if len(word) == 1:
            continue  # nothing to join
        while count > _FEED:
            yield f"{word} " * _FEED
            count -= _FEED
        yield f"{word} " * count


def _most_used(words: Sequence[WordCount], fixed: Sequence[str], proposed: Sequence[str], room: int) -> list[str]:
    """Drop the least used in a few steps, as each step changes what the others are used for."""
    pieces = list(proposed)
    for step in range(_NUM_CUTS, 0, -1):
        uses = _uses(words, [*fixed, *pieces])
        ranked = sorted(pieces, key=lambda piece: (-uses[piece], piece.encode()))
        surplus = max(len(pieces) - room, 0)
        pieces = [piece for piece in ranked[: len(ranked) - -(-surplus // step)] if uses[piece]]
    return pieces


def _uses(words: Sequence[WordCount], pieces: Sequence[str]) -> Counter[str]:
    """How often each piece is used where each word is read as WordPiece reads it."""
    vocabulary = {piece: number for number, piece in enumerate([UNK, *pieces])}
    engine = Engine(models.WordPiece(vocabulary, unk_token=UNK))
    rows = [row.ids for row in engine.encode_batch_fast([word for word, _ in words], add_special_tokens=False)]
    totals = piece_uses(rows, words, len(vocabulary))
    return Counter({piece: int(totals[number]) for piece, number in vocabulary.items()})
