"""Twins for parity tests: one of our models and the class of `transformers` that is the same thing."""

from __future__ import annotations

import json
import random

import torch
import transformers

from bertsmith.bundle.fitting import published_config, tensors_of
from bertsmith.bundle.names import ARCHITECTURES
from bertsmith.config import BertConfig
from bertsmith.data.batches import PackedBatch
from bertsmith.model.heads import BertModel, build

TINY = BertConfig(
    vocab_size=97,
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=40,
    max_position_embeddings=64,
    num_labels=3,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def random_model(kind: str, config: BertConfig = TINY, seed: int = 0) -> BertModel:
    """A model whose every parameter is far from zero, so that each of them shows in the output."""
    model = build(config, kind)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
            if name.endswith("norm.weight"):
                parameter += 1
    return model.eval()


def their_twin(model: BertModel) -> transformers.PreTrainedModel:
    """The same model in `transformers`, with the same weights."""
    config = transformers.BertConfig(**json.loads(published_config(model).to_json()))
    theirs = getattr(transformers, ARCHITECTURES[model.kind])._from_config(config, attn_implementation="eager")
    tensors = tensors_of(model)
    if model.kind == "encoder":
        tensors = {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}
    missing, unexpected = theirs.load_state_dict(tensors, strict=False)
    assert not unexpected
    assert all("decoder" in name for name in missing), missing  # tied to the embedding
    return theirs.eval()


def mixed_batch(
    config: BertConfig = TINY, lengths: tuple[int, ...] = (7, 1, 33, 7, 64, 2, 20), seed: int = 0
) -> PackedBatch:
    """Sequences of mixed length with both segments in use.

    Never id 0: `transformers` gives the padding token's embedding no gradient, and we know no padding.
    """
    rng = random.Random(seed)
    sequences = [[rng.randrange(1, config.vocab_size) for _ in range(length)] for length in lengths]
    types = [[int(place > length // 2) for place in range(length)] for length in lengths]
    return PackedBatch.of(sequences, types)


def padded(batch: PackedBatch) -> dict[str, torch.Tensor]:
    """The same batch as `transformers` wants it."""
    pad = torch.nn.utils.rnn.pad_sequence
    sizes = batch.lengths.tolist()
    return {
        "input_ids": pad(list(batch.input_ids.split(sizes)), batch_first=True),
        "token_type_ids": pad(list(batch.token_type_ids.split(sizes)), batch_first=True),
        "attention_mask": pad([torch.ones(size, dtype=torch.int64) for size in sizes], batch_first=True),
    }


def unpadded(grid: torch.Tensor, batch: PackedBatch) -> torch.Tensor:
    """(B, S, …) of theirs to (T, …) of ours."""
    return torch.cat([row[:size] for row, size in zip(grid, batch.lengths.tolist(), strict=True)])


def relative_error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """The largest difference, relative to the largest value."""
    assert ours.shape == theirs.shape
    ours, theirs = ours.detach(), theirs.detach()
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-30))
