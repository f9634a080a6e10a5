"""The weights that a model begins with."""

from __future__ import annotations

import pytest
import torch

from bertsmith.config import BertConfig
from bertsmith.model.heads import build
from bertsmith.model.initial import continued_positions, look_at_neighbours, sinusoids


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


def test_later_positions_go_on_as_training_has_changed_the_first():
    """Training turns, stretches and shifts the waves of 128 positions; what a head has learned of it holds beyond."""
    model = build(shape(hidden_size=256, num_attention_heads=4), seed=3)
    look_at_neighbours(model.encoder)
    table, attention = model.encoder.embeddings.position.weight, model.encoder.layers[0].attention
    generator = torch.Generator().manual_seed(5)
    turn = torch.linalg.qr(torch.randn(256, 256, generator=generator)).Q
    with torch.no_grad():
        for weight in (model.encoder.embeddings.word.weight, model.encoder.embeddings.token_type.weight):
            weight.zero_()  # what is looked at depends on positions alone
        old = table.clone()
        table.copy_(1.3 * old @ turn + 0.02)
        attention.qkv.weight.copy_(attention.qkv.weight @ turn)

        def looks_back():
            """How much the first head looks one back, in positions 150 to 350."""
            maps, inside = first_maps(model, 400), torch.arange(150, 350)
            return maps[0, inside, inside - 1].mean().item()

        ideal, whole = looks_back(), table.clone()
        table[128:] = old[128:]
        left_alone = looks_back()
        found = continued_positions(table, 128)
        table.copy_(found)
        continued = looks_back()
    assert torch.equal(found[:128], whole[:128])
    assert ideal > 0.5
    assert left_alone < 0.3 * ideal
    assert continued > 0.9 * ideal


def test_sinusoids_are_those_of_the_transformer():
    table = sinusoids(50, 6)
    for position, column in ((0, 0), (7, 2), (49, 5)):
        angle = torch.tensor(position / 10_000 ** (2 * (column // 2) / 6))
        assert table[position, column].item() == pytest.approx(
            (angle.cos() if column % 2 else angle.sin()).item(), abs=1e-5
        )
