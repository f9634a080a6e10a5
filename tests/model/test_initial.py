"""The weights that a model begins with."""

from __future__ import annotations

import pytest
import torch

from bertsmith.config import BertConfig
from bertsmith.model.heads import build
from bertsmith.model.initial import continued_positions, log_shares, look_at_neighbours, sinusoids


def shape(**fields):
    return BertConfig(**{"vocab_size": 300, "num_hidden_layers": 2, "intermediate_size": 64, **fields})


def first_maps(model, length):
    """What the first layer looks at in a text of random words: (heads, from, to)."""
    ids = torch.randint(5, 300, (length,), generator=torch.Generator().manual_seed(2))
    found = model.encoder.eval()(ids, torch.zeros_like(ids), torch.tensor([length]), attentions=True)
    return found.attentions[0][0]


@pytest.mark.parametrize(
    "config",
    [
        shape(hidden_size=128, num_attention_heads=2),
        shape(hidden_size=256, num_attention_heads=4),
        shape(hidden_size=768, num_attention_heads=12),
        shape(hidden_size=1024, num_attention_heads=16),
    ],
    ids=lambda config: f"{config.hidden_size} wide",
)
def test_each_head_looks_at_a_neighbour_of_its_own(config):
    model = build(config, seed=3)
    before = first_maps(model, 100)
    look_at_neighbours(model.encoder)
    after = first_maps(model, 100)
    assert before.max() < 0.04  # at random, attention is nearly even
    offsets = [sign * distance for distance in range(1, 20) for sign in (-1, 1)]
    inside = torch.arange(20, 80)
    for head, offset in zip(range(config.num_attention_heads), offsets, strict=False):
        looks = torch.stack([after[head, inside, inside + other] for other in range(-20, 21)]).mean(dim=1)
        assert looks.argmax().item() - 20 == offset
        assert looks[offset + 19 : offset + 22].sum() > 0.5


@pytest.mark.parametrize(("layers", "lower"), [(1, 1), (2, 1), (4, 2), (5, 2)])
def test_only_positions_and_query_and_key_of_the_lower_half_are_changed(layers, lower):
    config = shape(hidden_size=64, num_attention_heads=4, num_hidden_layers=layers)
    plain, model = build(config, "pretraining", seed=1), build(config, "pretraining", seed=1)
    look_at_neighbours(model.encoder)
    changed = {name for name, weight in model.state_dict().items() if not torch.equal(weight, plain.state_dict()[name])}
    attention = {f"encoder.layers.{number}.attention.qkv.weight" for number in range(lower)}
    assert changed == {"encoder.embeddings.position.weight", *attention}
    value = slice(2 * config.hidden_size, None)
    for new, old in zip(model.encoder.layers, plain.encoder.layers, strict=True):
        assert torch.equal(new.attention.qkv.weight[value], old.attention.qkv.weight[value])


@pytest.mark.parametrize(("width", "heads"), [(8, 1), (15, 5), (14, 7), (20, 4)])
def test_odd_shapes_begin_too(width, heads):
    """Heads with little room, down to one that has none for a wave."""
    model = build(shape(hidden_size=width, num_attention_heads=heads), seed=0)
    look_at_neighbours(model.encoder)
    assert all(weight.isfinite().all() for weight in model.parameters())
    assert first_maps(model, 30).shape == (heads, 30, 30)


@pytest.mark.parametrize(("width", "heads"), [(128, 2), (256, 4), (768, 12)])
def test_where_training_has_changed_nothing_later_positions_do_as_before(width, heads):
    """Of 512 positions it has had 128; beyond them a head looks one back as it did."""
    model = build(shape(hidden_size=width, num_attention_heads=heads), seed=3)
    look_at_neighbours(model.encoder)
    table = model.encoder.embeddings.position.weight

    def looks_back():
        maps, inside = first_maps(model, 512), torch.arange(130, 500)
        return maps[0, inside, inside - 1].mean().item()

    with torch.no_grad():
        before, old = looks_back(), table.clone()
        table.copy_(continued_positions(table, 128))
    assert torch.equal(table[:128], old[:128])
    assert not torch.equal(table[128:], old[128:])  # long waves end somewhere else than they began
    assert before > 0.4
    assert looks_back() > 0.95 * before


@pytest.mark.parametrize("width", [128, 256])  # of wider tables 128 rows tell less
def test_later_positions_follow_what_training_has_made_of_the_first(width):
    """It has turned the shortest waves round, and shifted all: so it goes on."""
    model = build(shape(hidden_size=width, num_attention_heads=2), seed=3)
    look_at_neighbours(model.encoder)
    waves = model.encoder.embeddings.position.weight.detach()
    short = slice(0, width // 8)  # of up to about 20 tokens
    wanted = waves + 0.01
    wanted[:, short] -= 2 * waves[:, short]
    found = continued_positions(torch.cat([wanted[:128], waves[128:]]), 128)
    errors = [(rows[128:, short] - wanted[128:, short]).norm().item() for rows in (found, waves)]
    assert errors[0] < 0.5 * errors[1]


def test_sinusoids_are_those_of_the_transformer():
    table = sinusoids(50, 6)
    for position, column in ((0, 0), (7, 2), (49, 5)):
        angle = torch.tensor(position / 10_000 ** (2 * (column // 2) / 6))
        assert table[position, column].item() == pytest.approx(
            (angle.cos() if column % 2 else angle.sin()).item(), abs=1e-5
        )


def test_a_bias_from_counts_gives_every_word_its_share():
    counts = torch.tensor([0, 3, 5, 0])
    assert torch.allclose(log_shares(counts).softmax(0), torch.tensor([0.05, 0.35, 0.55, 0.05]))
    assert log_shares(torch.zeros(4, dtype=torch.long)).unique().numel() == 1  # nothing is known, nothing is said
