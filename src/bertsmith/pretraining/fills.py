"""Sentences with a gap, from the held-out text: what the model puts there, as the run goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from bertsmith.data.index import WORD_START
from bertsmith.data.randomness import key_of

if TYPE_CHECKING:
    from bertsmith.data.shards import Shard, ShardSet
    from bertsmith.model.heads import PreTrainingModel
    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["Filled", "Gap", "fill_gaps", "find_gaps"]

_SHORTEST, _LONGEST = 8, 24
_MANY = 400  # candidates that are looked at


@dataclass(frozen=True)
class Gap:
    """A sentence as the model reads it, where the gap is, and what stood there."""

    ids: list[int]
    place: int
    text: str
    answer: str


@dataclass(frozen=True)
class Filled:
    """A gap and the likeliest pieces for it."""

    gap: Gap
    candidates: list[tuple[str, float]]


def find_gaps(held_out: ShardSet, tokenizer: Tokenizer, count: int = 4) -> list[Gap]:
    """Sentences of middling length with one word of one piece taken out; the same ones at every call."""
    gaps: list[Gap] = []
    for number in range(held_out.num_shards):
        shard = held_out.shard(number)
        lengths = np.diff(shard.sentences.astype(np.int64))
        fitting = np.flatnonzero((lengths >= _SHORTEST) & (lengths <= _LONGEST))
        order = fitting[np.argsort(key_of(number, fitting))][:_MANY]
        for sentence in order.tolist():
            if len(gaps) == count:
                return gaps
            gap = _gap(shard, sentence, tokenizer)
            if gap is not None:
                gaps.append(gap)
    return gaps


def _gap(shard: Shard, sentence: int, tokenizer: Tokenizer) -> Gap | None:
    """The longest word of one piece: the ones that carry meaning are seldom short."""
    begin, end = shard.sentences[sentence : sentence + 2].tolist()
    tokens = shard.tokens[begin:end].tolist()
    starts = (np.append(shard.units[begin:end] & WORD_START, WORD_START) > 0).tolist()
    pieces = [tokenizer.piece(token) for token in tokens]
    whole = [n for n in range(1, len(tokens)) if starts[n] and starts[n + 1] and pieces[n].isalpha()]
    if not whole or tokenizer.unk_id in tokens:
        return None
    place = max(whole, key=lambda n: (len(pieces[n]), -n))
    ids = [tokenizer.cls_id, *tokens, tokenizer.sep_id]
    ids[place + 1] = tokenizer.mask_id
    before, after = tokenizer.decode(tokens[:place]), tokenizer.decode(tokens[place + 1 :])
    return Gap(ids, place + 1, f"{before} {tokenizer.mask_token} {after}".strip(), pieces[place])


@torch.no_grad()
def fill_gaps(model: PreTrainingModel, tokenizer: Tokenizer, gaps: list[Gap], top: int = 3) -> list[Filled]:
    """The likeliest pieces for each gap, by a model in evaluation mode."""
    device = next(model.parameters()).device
    filled = []
    for gap in gaps:
        ids = torch.tensor(gap.ids, device=device)
        logits = model(ids, None, torch.tensor([len(ids)]), torch.tensor([gap.place])).mlm[0]
        # A model may have more rows than its tokenizer has pieces; those rows have no name to give.
        scores, best = logits.float().softmax(-1)[: tokenizer.vocab_size].topk(top)
        names = [tokenizer.piece(number) for number in best.tolist()]
        filled.append(Filled(gap, list(zip(names, scores.tolist(), strict=True))))
    return filled
