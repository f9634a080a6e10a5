"""The encoder against `transformers`, and what packing must never change."""

from __future__ import annotations

import pytest
import torch

from bertsmith.config import BertConfig
from bertsmith.errors import InputError
from bertsmith.model.heads import build
from bertsmith.model.initial import initialise
from bertsmith.model.packing import cls_rows
from bertsmith.model.padded import encode_padded
from twins import TINY, mixed_batch, padded, random_model, relative_error, their_twin, unpadded


@pytest.fixture(scope="module")
def encoder():
    return random_model("encoder").encoder


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu", "silu", "tanh"])
def test_every_hidden_state_and_attention_map_equals_transformers(activation):
    model = random_model("encoder", TINY.derive(hidden_act=activation))
    batch = mixed_batch()
    with torch.no_grad():
        ours = model.encoder(batch.input_ids, batch.token_type_ids, batch.lengths, hidden_states=True, attentions=True)
        theirs = their_twin(model)(**padded(batch), output_hidden_states=True, output_attentions=True)
    assert len(ours.hidden_states) == TINY.num_hidden_layers + 1
    for mine, other in zip(ours.hidden_states, theirs.hidden_states, strict=True):
        assert relative_error(mine, unpadded(other, batch)) < 1e-5
    assert relative_error(model.encoder.pool(ours.rows[cls_rows(batch.lengths)]), theirs.pooler_output) < 1e-5
    for mine, other in zip(ours.attentions, theirs.attentions, strict=True):
        for one, grid, size in zip(mine, other, batch.lengths.tolist(), strict=True):
            torch.testing.assert_close(one, grid[:, :size, :size], atol=1e-5, rtol=1e-5)


def test_a_sequence_does_not_feel_its_neighbours(encoder):
    """Padding never existed: alone, or among others in any order, a sequence has the same states."""
    batch = mixed_batch()
    with torch.no_grad():
        together = encoder(batch.input_ids, batch.token_type_ids, batch.lengths).rows
        sizes = batch.lengths.tolist()
        parts = zip(batch.input_ids.split(sizes), batch.token_type_ids.split(sizes), together.split(sizes), strict=True)
        for ids, types, rows in parts:
            alone = encoder(ids, types, torch.tensor([len(ids)])).rows
            assert relative_error(rows, alone) < 1e-5


def test_pruned_last_layer_equals_the_full_one(encoder):
    batch = mixed_batch()
    full = encoder(batch.input_ids, batch.token_type_ids, batch.lengths).rows
    total = len(batch.input_ids)
    for read in (
        cls_rows(batch.lengths),
        torch.tensor([total - 1]),
        torch.tensor([5, 0, total - 1, 41, 6, 6]),  # any order, one row twice, some sequences not at all
        torch.arange(total),
        torch.arange(0),
    ):
        pruned = encoder(batch.input_ids, batch.token_type_ids, batch.lengths, read=read).rows
        assert pruned.shape == full[read].shape
        torch.testing.assert_close(pruned, full[read], atol=1e-5, rtol=1e-5)


def test_sum_of_embeddings_is_one_linear_layer_over_the_concatenated_one_hots():
    """The paper draws a sum of three tables; it is a single matrix over one long one-hot vector.

    With tables token = [[1], [2], [3]], segment = [[10], [20]], position = [[100], [200]] (width 1), the
    token 2 in segment 1 at position 0 is 3 + 20 + 100 = 123, and so is
    [0 0 1 | 0 1 | 1 0] · [1 2 3 | 10 20 | 100 200]ᵀ.
    """
    by_hand = torch.tensor([0.0, 0, 1, 0, 1, 1, 0]) @ torch.tensor([1.0, 2, 3, 10, 20, 100, 200])
    assert by_hand == 123 == 3 + 20 + 100

    embeddings = random_model("encoder").encoder.embeddings
    batch = mixed_batch()
    positions = torch.cat([torch.arange(size) for size in batch.lengths.tolist()])
    ids = (batch.input_ids, batch.token_type_ids, positions)
    tables = (embeddings.word, embeddings.token_type, embeddings.position)
    one_hots = torch.cat(
        [torch.nn.functional.one_hot(row, table.num_embeddings) for row, table in zip(ids, tables, strict=True)], dim=1
    )
    matrix = torch.cat([table.weight for table in tables])
    linear = embeddings.norm(one_hots.float() @ matrix)
    torch.testing.assert_close(embeddings(*ids), linear, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("side", ["right", "left", "holes"])
def test_padded_front_equals_transformers(side):
    model = random_model("encoder")
    inputs = padded(mixed_batch())
    mask = inputs["attention_mask"]
    if side == "left":
        inputs = {name: grid.flip(1) for name, grid in inputs.items()}
        mask = inputs["attention_mask"]
    if side == "holes":
        mask[:, 1::3] = 0
    with torch.no_grad():
        ours, _ = encode_padded(model.encoder, **inputs)
        theirs = their_twin(model)(**inputs).last_hidden_state
    kept = mask.bool()
    assert relative_error(ours[kept], theirs[kept]) < 1e-5
    assert (ours[~kept] == 0).all()


def test_checkpointing_changes_memory_and_not_gradients():
    """With it fewer tensors are kept for the way back, and the gradients are the same."""
    gradients, kept = [], []
    for checkpointed in (False, True):
        model = random_model("classification").train()
        model.encoder.checkpoint_activations = checkpointed
        batch = mixed_batch()
        saved = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor, saved=saved: saved.append(1) or tensor, lambda t: t
        ):
            loss = model(batch.input_ids, batch.token_type_ids, batch.lengths).square().sum()
        kept.append(len(saved))
        loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    assert kept[1] < kept[0] / 2
    for plain, again in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, again)


def test_attention_dropout_is_on_in_training_and_off_in_evaluation():
    encoder = random_model("encoder", TINY.derive(attention_probs_dropout_prob=0.5)).encoder.train()
    batch = mixed_batch()
    torch.manual_seed(0)
    runs = [encoder(batch.input_ids, batch.token_type_ids, batch.lengths).rows for _ in range(2)]
    assert not torch.allclose(*runs)
    encoder.eval()
    runs = [encoder(batch.input_ids, batch.token_type_ids, batch.lengths).rows for _ in range(2)]
    assert torch.equal(*runs)


def test_hidden_dropout_sits_after_embedding_norm_and_on_both_sublayers():
    """Nine of ten entries are zero at p = 0.9: seen in the embeddings, and in what each sublayer adds."""
    encoder = random_model("encoder", TINY.derive(hidden_dropout_prob=0.9)).encoder.train()
    ids = torch.zeros(2000, dtype=torch.int64)
    torch.manual_seed(0)
    assert 0.88 < (encoder.embeddings(ids, ids, ids) == 0).float().mean() < 0.92
    layer = encoder.layers[0]
    x = torch.randn(2000, TINY.hidden_size)
    for dense in (layer.attention_output, layer.down):
        inner = torch.randn(2000, dense.in_features)
        added = layer._residual(x, inner, dense) - x
        assert 0.88 < (added == 0).float().mean() < 0.92
        layer.eval()
        torch.testing.assert_close(layer._residual(x, inner, dense), x + dense(inner), atol=1e-5, rtol=1e-5)
        layer.train()


@pytest.mark.parametrize(
    ("ids", "types", "lengths", "named"),
    [
        ([1, 97], [0, 0], [2], "input_ids"),
        ([1, -1], [0, 0], [2], "input_ids"),
        ([1, 2], [0, 2], [2], "token_type_ids"),
        ([1, 2], [0, 0], [1], "lengths"),
        ([1, 2], [0, 0], [2, 0], "lengths"),
        ([1] * 65, [0] * 65, [65], "position_ids"),
    ],
)
def test_bad_ids_are_refused_by_name(encoder, ids, types, lengths, named):
    with pytest.raises(InputError, match=named):
        encoder(torch.tensor(ids), torch.tensor(types), torch.tensor(lengths))


def test_initialisation_follows_the_original():
    """N(0, 0.02) cut at two sigma, zero biases, unit LayerNorms; the same seed gives the same weights."""
    config = BertConfig(vocab_size=2000, hidden_size=128, num_attention_heads=2, num_hidden_layers=2)
    model = build(config, "pretraining", seed=1)
    for name, parameter in model.named_parameters():
        if "norm.weight" in name:
            assert (parameter == 1).all()
        elif name.endswith("bias"):
            assert (parameter == 0).all()
        else:
            assert parameter.abs().max() <= 0.04
            if parameter.numel() > 10_000:
                assert 0.0174 < parameter.std() < 0.0178  # 0.88 sigma: what two-sided cutting leaves
    again = build(config, "pretraining", seed=1)
    other = build(config, "pretraining", seed=2)
    assert torch.equal(model.encoder.embeddings.word.weight, again.encoder.embeddings.word.weight)
    assert not torch.equal(model.encoder.embeddings.word.weight, other.encoder.embeddings.word.weight)
    initialise(other, std=0.02, generator=torch.Generator().manual_seed(1))
    assert torch.equal(model.mlm.dense.weight, other.mlm.dense.weight)
