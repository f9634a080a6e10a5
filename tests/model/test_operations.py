"""Operations by arithmetic: against numbers worked out by hand, and against those that torch counts in real passes."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bertsmith.config import BertConfig
from bertsmith.model.heads import build
from bertsmith.model.operations import encoder_operations, pretraining_operations

CONFIG = BertConfig(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=40,
    max_position_embeddings=64,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def test_one_layer_by_hand():
    """Width 2, inner width 3, one layer, a sequence of 5 tokens of which 2 rows are read."""
    config = BertConfig(vocab_size=7, hidden_size=2, num_hidden_layers=1, num_attention_heads=1, intermediate_size=3)
    keys_and_values = 2 * (2 * 5 * 2 * 2)
    queries_and_output = 2 * (2 * 2 * 2 * 2)
    scores_and_mixture = 2 * (2 * 2 * 5 * 2)
    up_and_down = 2 * (2 * 2 * 2 * 3)
    by_hand = keys_and_values + queries_and_output + scores_and_mixture + up_and_down
    assert encoder_operations(config, [5], [2]) == by_hand == 240
    word_head = 2 * 1 * 2 * 2 + 2 * 1 * 2 * 7  # one masked position; the other row that is read is [CLS]
    pooler_and_pairs = 2 * 1 * 2 * 2 + 2 * 1 * 2 * 2
    assert pretraining_operations(config, [5], [1]) == 3 * (by_hand + word_head + pooler_and_pairs)


def test_a_layer_before_the_last_computes_every_row():
    one, two = (CONFIG.derive(num_hidden_layers=layers) for layers in (1, 2))
    lengths = [9, 4]
    every = encoder_operations(one, lengths, lengths)
    assert encoder_operations(two, lengths, [1, 1]) == every + encoder_operations(one, lengths, [1, 1])
    linear = 13 * 2 * (4 * 16 * 16 + 2 * 16 * 40)
    assert every == linear + 2 * 2 * 16 * (81 + 16)


def test_sequences_add_up():
    together = pretraining_operations(CONFIG, [30, 12], [4, 2])
    assert together == pretraining_operations(CONFIG, [30], [4]) + pretraining_operations(CONFIG, [12], [2])


def product(_sum, a, b, *, out_shape=None, **kwargs):
    return 2 * a[0] * a[1] * b[1]


def attention(query, key, value, *rest, out_shape=None, **kwargs):
    batch, heads, num_queries, size = query
    return 2 * 2 * batch * heads * num_queries * key[2] * size


def attention_backwards(_gradient, query, key, *rest, out_shape=None, **kwargs):
    """The gradients of both products, two each; the scores that the kernel computes once more are not counted."""
    return 2 * attention(query, key, None)


# What torch counts of itself leaves out products in place, and its attention on a CPU.
COUNTED = {
    torch.ops.aten.addmm_: product,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backwards,
}


@pytest.mark.parametrize(("length", "count", "masked"), [(12, 4, 2), (33, 3, 5), (64, 1, 9)])
def test_torch_counts_the_same_in_a_real_pass(length, count, masked):
    """Sequences of one length with as many masks each, so that no bucket is padded."""
    model = build(CONFIG, "pretraining", seed=0).requires_grad_(requires_grad=False)
    ids = torch.arange(length * count) % CONFIG.vocab_size
    places = torch.cat([start * length + 1 + torch.arange(masked) for start in range(count)])
    batch = (
        ids,
        torch.zeros_like(ids),
        torch.full((count,), length),
        places,
        torch.zeros(len(places), dtype=torch.int64),
        torch.zeros(count, dtype=torch.int64),
    )
    expected = pretraining_operations(CONFIG, [length] * count, [masked] * count)
    with FlopCounterMode(display=False, custom_mapping=COUNTED) as forward:
        model.score(*batch)
    assert 3 * forward.get_total_flops() == expected
    model.requires_grad_()
    with FlopCounterMode(display=False, custom_mapping=COUNTED) as both:
        scores = model.score(*batch)
        (scores.mlm_loss + scores.pair_loss).backward()
    assert both.get_total_flops() == expected
