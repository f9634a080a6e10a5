"""How many operations the matrix products of a pass need, by arithmetic: what a speed is compared with the peak by.

A product of (a, b) with (b, c) is 2abc operations. Only what is read is counted: the last layer's rows, the masked
positions. A training step is three times a forward pass: backwards, every product has two of the same size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bertsmith.config import BertConfig

__all__ = ["encoder_operations", "pretraining_operations"]


def encoder_operations(config: BertConfig, lengths: Sequence[int], num_read: Sequence[int]) -> int:
    """A forward pass over sequences, of each of which some rows are read."""
    width, inner, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    num_tokens, num_rows = sum(lengths), sum(num_read)
    full = 2 * num_tokens * width * (4 * width + 2 * inner) + 4 * width * sum(length**2 for length in lengths)
    pairs = sum(length * rows for length, rows in zip(lengths, num_read, strict=True))
    last = 2 * num_tokens * width * 2 * width + 2 * num_rows * width * (2 * width + 2 * inner) + 4 * width * pairs
    return (layers - 1) * full + last


def pretraining_operations(config: BertConfig, lengths: Sequence[int], num_masked: Sequence[int]) -> int:
    """A training step on both tasks, forwards and backwards, without the optimizer."""
    width = config.hidden_size
    encoder = encoder_operations(config, lengths, [masked + 1 for masked in num_masked])
    words = 2 * sum(num_masked) * width * (width + config.vocab_size)
    pooler = 2 * len(lengths) * width * (width + 2)
    return 3 * (encoder + words + pooler)
