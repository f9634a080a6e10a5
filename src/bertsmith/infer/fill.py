"""Fill-in: the likeliest pieces for each `[MASK]` of a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from bertsmith.data.batches import PackedBatch
from bertsmith.errors import InputError
from bertsmith.model.heads import MaskedLM, PreTrainingModel

if TYPE_CHECKING:
    from bertsmith.model.heads import BertModel
    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["Candidate", "fill_text"]


class Candidate(NamedTuple):
    """A piece of the vocabulary and its probability, 0 to 1."""

    token: str
    score: float


@torch.inference_mode()
def fill_text(model: BertModel, tokenizer: Tokenizer, text: str, *, top: int, max_length: int) -> list[list[Candidate]]:
    """For each `[MASK]`, in order, the `top` likeliest pieces."""
    if not isinstance(model, MaskedLM | PreTrainingModel):
        raise InputError(f"this model cannot fill in: it is of kind {model.kind!r} and has no masked-word head")
    if not 1 <= top <= tokenizer.vocab_size:
        raise InputError(f"top must be from 1 to {tokenizer.vocab_size}, not {top}")
    encoding = tokenizer.encode(text)
    if tokenizer.mask_id not in encoding.ids:
        raise InputError(f"nothing to fill in: write {tokenizer.mask_token} where a word is wanted")
    if len(encoding.ids) > max_length:
        raise InputError(f"the text has {len(encoding.ids)} tokens; the model reads {max_length} at most")
    device = next(model.parameters()).device
    batch = PackedBatch.of([encoding.ids]).to(device)
    masked = (batch.input_ids == tokenizer.mask_id).nonzero()[:, 0]
    rows = model.encoder(batch.input_ids, batch.token_type_ids, batch.lengths, read=masked).rows
    logits = model.mlm(rows, model.encoder.embeddings.word.weight)
    # A model may have more rows than its tokenizer has pieces; those rows have no name to give.
    scores, numbers = logits.softmax(-1)[:, : tokenizer.vocab_size].topk(top)
    return [
        [Candidate(tokenizer.piece(number), score) for number, score in zip(*pair, strict=True)]
        for pair in zip(numbers.tolist(), scores.tolist(), strict=True)
    ]
