"""Linear layers for prediction: the same numbers for few rows and many, and the same weights."""

import pytest
import torch
from torch import nn

from bertsmith.data.batches import PackedBatch
from bertsmith.model import linear
from bertsmith.model.linear import PreparedLinear, prepare_linear_layers
from twins import TINY, random_model


@pytest.mark.parametrize("rows", [0, 1, 20, 96, 97, 400])
@torch.no_grad()
def test_products_and_sums_are_those_of_the_plain_layer(rows):
    torch.manual_seed(0)
    plain = nn.Linear(48, 80)
    prepared = PreparedLinear.of(plain)
    x, total = torch.randn(rows, 48), torch.randn(rows, 80)
    before = total.clone()
    torch.testing.assert_close(prepared(x), plain(x), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(prepared.add_to(total, x), total + plain(x), atol=1e-5, rtol=1e-5)
    assert torch.equal(total, before)


@torch.no_grad()
def test_many_rows_go_the_way_they_went():
    """Bit for bit the product by columns, and the bias after it."""
    torch.manual_seed(0)
    plain, x, total = nn.Linear(48, 80), torch.randn(97, 48), torch.randn(97, 80)
    turned = plain.weight.t().contiguous()
    assert torch.equal(PreparedLinear.of(plain)(x), torch.mm(x, turned).add_(plain.bias))
    assert torch.equal(PreparedLinear.of(plain).add_to(total, x), (total + plain.bias).addmm_(x, turned))


@torch.no_grad()
def test_rows_that_do_not_follow_each_other():
    torch.manual_seed(0)
    plain = nn.Linear(48, 80)
    wide = torch.randn(20, 96)
    for x in (wide[:, ::2], wide[:, :48], wide.T.contiguous().T[:, 48:]):
        torch.testing.assert_close(PreparedLinear.of(plain)(x), plain(x), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_copy_is_made_once_and_only_for_few_rows(monkeypatch):
    monkeypatch.setattr(linear, "_has_packed_products", lambda: True)
    prepared = PreparedLinear.of(nn.Linear(8, 8))
    prepared(torch.randn(97, 8))
    assert prepared._packed is None
    prepared(torch.randn(3, 8))
    made = prepared._packed
    assert made is not None
    prepared(torch.randn(2, 8))
    assert prepared._packed is made


@torch.no_grad()
def test_elsewhere_all_goes_one_way(monkeypatch):
    monkeypatch.setattr(linear, "_has_packed_products", lambda: False)
    plain = nn.Linear(8, 8)
    prepared, x = PreparedLinear.of(plain), torch.randn(3, 8)
    torch.testing.assert_close(prepared(x), plain(x))
    assert prepared._packed is None


@torch.inference_mode()
def test_a_prepared_model_says_the_same_and_has_the_same_weights():
    model = random_model("mlm", TINY).eval()
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    short, long = PackedBatch.of([[2, 5, 3]]), PackedBatch.of([[2, *range(5, 40), 3], [2, 9, 3]] * 5)
    before = [model.encoder(batch.input_ids, batch.token_type_ids, batch.lengths).rows for batch in (short, long)]
    prepare_linear_layers(model)
    after = [model.encoder(batch.input_ids, batch.token_type_ids, batch.lengths).rows for batch in (short, long)]
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    found = model.state_dict()
    assert found.keys() == weights.keys()
    assert all(torch.equal(found[name], weights[name]) for name in weights)
    assert not any(type(module) is nn.Linear for module in model.encoder.layers.modules())
