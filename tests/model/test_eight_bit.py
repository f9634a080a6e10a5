"""Eight bits: near to float32, row by row, and float32 left as it was."""

from __future__ import annotations

import copy
import random
from concurrent.futures import ThreadPoolExecutor
from pydoc_data import topics

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bertsmith.bundle.resolve import load_bundle
from bertsmith.data.batches import PackedBatch
from bertsmith.errors import InputError
from bertsmith.model import eight_bit
from bertsmith.model.eight_bit import EightBitLinear, quantize
from bertsmith.model.packing import cls_rows
from bertsmith.model.pooling import Pooling
from twins import TINY, mixed_batch, random_model, relative_error

WIDER = TINY.derive(hidden_size=96, intermediate_size=384)


def float_model(kind="encoder", config=WIDER):
    """Weights of a usual size: where attention is all or nothing, the smallest error may turn it."""
    model = random_model(kind, config)
    with torch.no_grad():
        for module in model.encoder.layers.modules():
            if isinstance(module, nn.Linear):
                module.weight /= 4
    return model


def eight_bit_model(kind="encoder", config=WIDER):
    model = float_model(kind, config)
    quantize(model)
    return model


def rows_of(model, batch, **wanted):
    with torch.inference_mode():
        return model.encoder(batch.input_ids, batch.token_type_ids, batch.lengths, **wanted).rows


@pytest.fixture(scope="module")
def plain():
    return float_model()


@pytest.fixture(scope="module")
def model():
    return eight_bit_model()


@pytest.fixture(params=["packed", "plain"])
def either_product(request, monkeypatch):
    """The fast product, where this CPU has it, and the one for all others."""
    if request.param == "plain":
        monkeypatch.setattr(eight_bit, "has_fast_products", lambda: False)


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "relu", "silu", "tanh"])
def test_states_stay_near_float32(activation, either_product):
    config = WIDER.derive(hidden_act=activation)
    batch = mixed_batch(config)
    expected = rows_of(float_model(config=config), batch)
    found = rows_of(eight_bit_model(config=config), batch)
    assert F.cosine_similarity(found, expected).min() > 0.999
    assert not torch.equal(found, expected)


def test_fast_product_equals_the_plain_one_at_the_extremes():
    """Neighbouring products of the largest numbers would overflow sixteen bits."""
    linear = EightBitLinear(torch.ones(16, 1536), torch.zeros(16))
    x = torch.ones(40, 1536) * torch.linspace(1, 40, 40)[:, None]
    torch.testing.assert_close(linear(x), (1536 * x[:, :1]).expand(-1, 16))
    torch.testing.assert_close(linear(-x), (-1536 * x[:, :1]).expand(-1, 16))
    low = EightBitLinear(torch.ones(16, 1536), torch.zeros(16), floor=0.0)
    torch.testing.assert_close(low(x), (1536 * x[:, :1]).expand(-1, 16))


def test_hand_worked_levels():
    """Weights (127, -63.5, 1) / 127 are the steps 127, -64 and 1: halves go to the even one.

    The levels of (-2, 1, 0.5) are -127, 64 and 32 at a scale of 2 / 127; here halves go up.
    """
    linear = EightBitLinear(torch.tensor([[127.0, -63.5, 1.0]]) / 127, torch.tensor([10.0]))
    expected = 10 + (-127 * 127 - 64 * 64 + 32) / 127 * 2 / 127
    assert linear(torch.tensor([[-2.0, 1.0, 0.5]])).item() == pytest.approx(expected, rel=1e-6)


def test_a_large_output_channel_does_not_spoil_the_others(either_product):
    torch.manual_seed(0)
    weight, bias, x = torch.randn(64, 96), torch.randn(64), torch.randn(50, 96)
    expected = EightBitLinear(weight, bias)(x)
    weight[7] *= 1000
    found = EightBitLinear(weight, bias)(x)
    others = torch.arange(64) != 7
    assert torch.equal(found[:, others], expected[:, others])
    assert relative_error(found[:, 7], F.linear(x, weight, bias)[:, 7]) < 0.02


def test_a_large_token_does_not_spoil_the_others(either_product):
    torch.manual_seed(0)
    linear, x = EightBitLinear(torch.randn(64, 96), torch.randn(64)), torch.randn(50, 96)
    expected = linear(x)
    x[3] *= 1000
    others = torch.arange(50) != 3
    torch.testing.assert_close(linear(x)[others], expected[others], atol=1e-5, rtol=1e-5)


def test_factors_make_room_beside_a_large_input_channel():
    torch.manual_seed(0)
    weight, bias, x = torch.randn(64, 96), torch.zeros(64), torch.randn(200, 96)
    x[:, 5] *= 50
    weight[:, 5] /= 50
    expected = F.linear(x, weight)
    factors = eight_bit._factors(x.abs().amax(0), weight)
    smooth = relative_error(EightBitLinear(weight, bias, factors=factors)(x), expected)
    assert smooth < 0.3 * relative_error(EightBitLinear(weight, bias)(x), expected)


@pytest.mark.parametrize("floor", [None, -0.17])
def test_rows_of_zeros_and_of_no_numbers(floor, either_product):
    torch.manual_seed(0)
    weight, bias = torch.randn(24, 40), torch.randn(24)
    linear = EightBitLinear(weight, bias, floor=floor)
    x = torch.rand(6, 40)
    x[0], x[1] = 0, 1e-38
    x[2, 3], x[3, 5] = float("nan"), float("inf")
    for found in (linear(x), linear.add_to(torch.zeros(6, 24), x)):
        torch.testing.assert_close(found[:2], bias.expand(2, -1), atol=0.02, rtol=0)
        assert found[2].isnan().all()
        assert not found[3].isfinite().any()
        assert found[4:].isfinite().all()
    assert linear(x[:0]).shape == (0, 24)


def test_a_row_is_the_same_in_every_batch(either_product):
    torch.manual_seed(0)
    linear, x = EightBitLinear(torch.randn(64, 96), torch.randn(64), floor=-4.0), torch.randn(50, 96).clamp_min(-4)
    rows = linear(x)
    for number in (0, 17, 49):
        assert relative_error(linear(x[number : number + 1])[0], rows[number]) < 1e-5
    if linear._packed:  # whole numbers have no order of summation
        assert torch.equal(linear(x[11:30]), rows[11:30])


def assert_same_but_for_a_moved_level(found, expected):
    """Attention differs in its last bit from bucket to bucket; seldom, a number falls on the next level by that."""
    errors = sorted(relative_error(one, other) for one, other in zip(found, expected, strict=True))
    assert errors[len(errors) // 2] < 1e-5
    assert errors[-1] < 0.05


def test_a_sequence_does_not_feel_its_neighbours(model):
    batch = mixed_batch()
    sizes = batch.lengths.tolist()
    parts = zip(batch.input_ids.split(sizes), batch.token_type_ids.split(sizes), strict=True)
    alone = [rows_of(model, PackedBatch(ids, types, torch.tensor([len(ids)]))) for ids, types in parts]
    assert_same_but_for_a_moved_level(rows_of(model, batch).split(sizes), alone)


def test_pruned_last_layer_equals_the_full_one(model):
    batch = mixed_batch()
    full = rows_of(model, batch)
    for read in (cls_rows(batch.lengths), torch.tensor([5, 0, 41, 6, 6])):
        assert_same_but_for_a_moved_level(rows_of(model, batch, read=read), full[read])
    assert rows_of(model, batch, read=torch.arange(0)).shape == (0, WIDER.hidden_size)


def test_threads_share_a_model(model):
    batches = [mixed_batch(seed=seed) for seed in range(24)]
    expected = [rows_of(model, batch) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        for found, one in zip(pool.map(lambda batch: rows_of(model, batch), batches), expected, strict=True):
            assert torch.equal(found, one)


def test_float32_goes_the_way_it_went(plain):
    """Bit for bit the sums that the float32 layers are made of."""
    torch.manual_seed(0)
    x, layer = torch.randn(30, 96), plain.encoder.layers[0]
    with torch.inference_mode():
        inner = torch.randn(30, 384)
        expected = (x + layer.down.bias).addmm_(inner, layer.down.weight.t())
        assert torch.equal(layer._residual(x, inner, layer.down), expected)
    before = rows_of(plain, mixed_batch())
    quantize(copy.deepcopy(plain))
    assert torch.equal(rows_of(plain, mixed_batch()), before)


def test_linear_weights_take_about_a_quarter():
    config = WIDER.derive(num_hidden_layers=6)
    layers = random_model("encoder", config).encoder.layers
    floats = sum(m.weight.numel() for m in layers.modules() if isinstance(m, nn.Linear))
    quantised = eight_bit_model(config=config).encoder.layers
    assert not any(isinstance(module, nn.Linear) for module in quantised.modules())
    steps = sum(m._steps.numel() for m in quantised.modules() if isinstance(m, EightBitLinear))
    assert all(m._steps.dtype == torch.int8 for m in quantised.modules() if isinstance(m, EightBitLinear))
    assert floats <= steps < 1.1 * floats  # the last layer holds one of its products twice


def test_heads_stay_as_they_were_and_nothing_learns():
    model = eight_bit_model("classification")
    batch = mixed_batch()
    logits = model(batch.input_ids, batch.token_type_ids, batch.lengths)
    assert not logits.requires_grad
    assert any(isinstance(module, nn.Linear) for module in model.modules())


@torch.no_grad()
def test_what_cannot_be_done_is_refused():
    model = eight_bit_model()
    with pytest.raises(InputError, match="eight bits already"):
        quantize(model)
    with pytest.raises(InputError, match="save it before"):
        model.state_dict()
    with pytest.raises(InputError, match=r"float32 models on a CPU; this one is torch\.bfloat16"):
        quantize(random_model("encoder").bfloat16())
    broken = random_model("encoder")
    broken.encoder.layers[1].down.weight[3, 3] = float("nan")
    with pytest.raises(InputError, match="not finite"):
        quantize(broken)
    assert isinstance(broken.encoder.layers[0].up, nn.Linear)  # nothing was replaced


@pytest.mark.real_weights
def test_sentences_keep_their_vectors(real_folder):
    """At least 0.99 to float32 each, from no word at all to 256 tokens."""
    real_folder("minilm")
    bundle = load_bundle("minilm")
    rng = random.Random(0)
    words = " ".join(topics.topics.values()).split()
    starts = [rng.randrange(len(words) - 300) for _ in range(40)]
    texts = ["", ".", " ".join(words[:300])]
    texts += [" ".join(words[start : start + int(2 ** rng.uniform(0, 8))]) for start in starts]
    batch = PackedBatch.of(bundle.tokenizer.encode_ids(texts, max_length=256))
    assert torch.aminmax(batch.lengths) == (2, 256)

    @torch.inference_mode()
    def embed():
        return Pooling().vectors(bundle.model.encoder, batch.input_ids, None, batch.lengths)

    bundle.model.eval()
    expected = embed()
    quantize(bundle.model)
    assert F.cosine_similarity(embed(), expected).min() > 0.99


@pytest.mark.parametrize(("promised", "kept", "fast"), [(False, False, True), (True, True, True), (True, False, False)])
def test_amx_is_believed_in_only_after_a_trial_elsewhere(monkeypatch, promised, kept, fast):
    """Some virtual machines name it, and end a process that takes it."""
    capabilities = {"avx512_vnni": True, "amx_int8": promised}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(eight_bit, "_TRIAL", "pass" if kept else "import os; os.abort()")
    assert eight_bit.has_fast_products.__wrapped__() is fast
    capabilities["avx512_vnni"] = False
    assert not eight_bit.has_fast_products.__wrapped__()
