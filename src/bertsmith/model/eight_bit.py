"""Prediction with weights and activations of eight bits, on a CPU.

Comes in: a float32 model. Goes out: the same model, the linear layers of its encoder replaced by `EightBitLinear`;
embeddings, LayerNorms, attention itself, pooler and heads stay float32.

A weight has one scale for each output channel. An activation has one for each token, taken from the token itself and
not from its neighbours in the batch. (They still decide the last bit of attention, which now and then moves a number
to the next level.) A few channels of a BERT are many times larger than the rest, and would leave these few levels. So
`quantize` lets the model read random ids, and from what it sees takes a factor for every channel that leaves a
LayerNorm: the channel is divided by it before it is rounded, and the weights that read the channel are multiplied by
it (SmoothQuant, Xiao et al., 2023).

Shapes: T tokens, N outputs and K inputs of a layer.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache, partial
from typing import TYPE_CHECKING, NoReturn, cast

import torch
from torch import nn

from bertsmith.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bertsmith.model.encoder import Encoder, Layer
    from bertsmith.model.heads import BertModel

__all__ = ["EightBitLinear", "has_fast_products", "quantize"]

_WEIGHT_STEPS = 127  # to either side of zero
_ZERO_LEVEL = 128  # of an activation that has both signs
_TOP_LEVEL = 255
_SMALLEST_SCALE = 1e-30  # for a token that is zero throughout
_LEAST_SIZE = 1e-2  # of a channel against the largest: a sample is not all text, and no channel may be blown up
_USUAL_TOKENS = 1536  # packed weights are laid out for products of about so many rows
_SAMPLE_LENGTHS = (8, 16, 32, 64, 128) * 4
_TRIAL = """
import torch
from bertsmith.model.eight_bit import EightBitLinear
weight, x = torch.randn(384, 384), torch.randn(64, 384)
layer = EightBitLinear(weight, torch.zeros(384), packed=True)
assert torch.nn.functional.cosine_similarity(layer(x).flatten(), (x @ weight.T).flatten(), dim=0) > 0.99
"""


class EightBitLinear(nn.Module):
    """x Wᵀ + b in whole numbers: 127 steps to either side for weights, 256 levels for activations.

    Without `floor` the levels of a token reach as far below zero as above. `floor` is a number below which no
    activation lies, such as GELU's -0.17: levels then begin there. `factors (K,)` divide the channels beforehand.
    `packed`: whether oneDNN multiplies; where it is fast, if nothing is said.
    A token with a NaN or an infinity gives no finite number.
    """

    query: EightBitLinear  # a fused layer's parts, where they are also needed one by one
    key_value: EightBitLinear

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor,
        *,
        floor: float | None = None,
        factors: torch.Tensor | None = None,
        packed: bool | None = None,
    ) -> None:
        super().__init__()
        weight = weight.detach() if factors is None else weight.detach() * factors
        largest = weight.abs().amax(1)
        self.floor = floor
        self.shrink = None if factors is None else factors.reciprocal()
        self.scales = largest.clamp_min(_SMALLEST_SCALE) / _WEIGHT_STEPS  # (N,)
        steps = (weight / self.scales[:, None]).round().to(torch.int8).contiguous()  # (N, K)
        self.bias = bias.detach().clone()
        if floor is not None:  # what every level counts from is the same for all tokens
            self.bias += floor * self.scales * steps.sum(1)
        self._zero_points = torch.zeros(len(weight), dtype=torch.int64)
        self._packed = has_fast_products() if packed is None else packed
        layout = [_USUAL_TOKENS, weight.shape[1]]
        self._steps = torch.ops.onednn.qlinear_prepack(steps, layout) if self._packed else steps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(T, K) to (T, N)."""
        product, scale = self._multiply(x)
        return torch.addcmul(self.bias, product, scale, out=product)

    def add_to(self, total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """`total + self(x)`, a new tensor: (T, N) and (T, K) to (T, N)."""
        product, scale = self._multiply(x)
        return torch.addcmul(total, product, scale, out=product).add_(self.bias)

    def _multiply(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The product (T, N) without bias, and the tokens' scales (T, 1) that it is still to be multiplied by."""
        if self.shrink is not None:
            x = x * self.shrink
        high = x.amax(1, keepdim=True)
        if self.floor is None:
            largest = torch.maximum(high, x.amin(1, keepdim=True).neg_())
            scale = largest.div_(_ZERO_LEVEL - 1).clamp_min_(_SMALLEST_SCALE)
            return self._product(_levels(x, scale, torch.tensor(_ZERO_LEVEL)), _ZERO_LEVEL), scale
        scale = high.sub_(self.floor).div_(_TOP_LEVEL).clamp_min_(_SMALLEST_SCALE)
        return self._product(_levels(x, scale, -self.floor / scale), 0), scale

    def _product(self, levels: torch.Tensor, zero_level: int) -> torch.Tensor:
        """(levels - zero_level) Wᵀ: (T, K) of bytes to (T, N) of floats."""
        if not self._packed:
            weight = self._steps.float().mul_(self.scales[:, None])
            return torch.mm(levels.float().sub_(zero_level), weight.t())
        multiply = partial(torch.ops.onednn.qlinear_pointwise, levels, 1.0, zero_level, self._steps, self.scales)
        return multiply(self._zero_points, None, 1.0, 0, torch.float32, "none", [], "")  # neither bias nor post-op

    def _save_to_state_dict(self, *_: object) -> NoReturn:
        raise InputError("a model of eight bits is for prediction only; save it before it is quantised")


def quantize(model: BertModel) -> None:
    """Replace the linear layers of a model's encoder by eight-bit ones, in place; it can then only predict.

    It works on every CPU, but gains speed only on one with AVX512-VNNI.
    """
    weight = model.encoder.embeddings.word.weight
    if weight.device.type != "cpu" or weight.dtype != torch.float32:
        raise InputError(f"eight bits are for float32 models on a CPU; this one is {weight.dtype} on {weight.device}")
    if any(isinstance(module, EightBitLinear) for module in model.modules()):
        raise InputError("this model has eight bits already")
    model.eval().requires_grad_(False)  # rounding has no gradient
    encoder = model.encoder
    sizes = _channel_sizes(encoder, *_random_sample(encoder))
    if not all(bool(size.isfinite().all()) for size in sizes.values()):
        raise InputError("this model's own states are not finite; eight bits cannot hold its weights")
    norm = encoder.embeddings.norm
    for number, layer in enumerate(cast("list[Layer]", list(encoder.layers)), start=1):
        _replace(layer, sizes[norm], sizes[layer.attention_norm], last=number == len(encoder.layers))
        norm = layer.output_norm


def _replace(layer: Layer, sizes: torch.Tensor, inner_sizes: torch.Tensor, *, last: bool) -> None:
    """One layer's four products; `sizes` and `inner_sizes (H,)` are of the channels that `qkv` and `up` read."""
    qkv, out, up, down = layer.attention.qkv, layer.attention_output, layer.up, layer.down
    factors = _factors(sizes, qkv.weight)
    new: nn.Module = EightBitLinear(qkv.weight, qkv.bias, factors=factors)
    if last:  # it may be asked for the queries of some rows and the keys and values of all
        for name, rows in (("query", slice(len(sizes))), ("key_value", slice(len(sizes), None))):
            new.add_module(name, EightBitLinear(qkv.weight[rows], qkv.bias[rows], factors=factors))
    layer.attention.add_module("qkv", new)
    layer.add_module("attention_output", EightBitLinear(out.weight, out.bias))
    layer.add_module("up", EightBitLinear(up.weight, up.bias, factors=_factors(inner_sizes, up.weight)))
    layer.add_module("down", EightBitLinear(down.weight, down.bias, floor=_floor_of(layer.activation)))


@cache
def has_fast_products() -> bool:
    """Whether torch multiplies bytes fast here, and without overflow: oneDNN on a CPU with AVX512-VNNI.

    Where there is AMX oneDNN takes that. Some virtual machines promise it, and end a process that believes them; so
    another process tries it first.
    """
    found = torch.cpu.get_capabilities()
    if not (torch.backends.mkldnn.is_available() and found.get("avx512_vnni")):
        return False
    return not found.get("amx_int8") or _survives(_TRIAL)


def _survives(program: str) -> bool:
    """Whether a program of Python comes to its end in a process of its own."""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, check=False).returncode == 0


def _levels(x: torch.Tensor, scale: torch.Tensor, zero_level: torch.Tensor) -> torch.Tensor:
    """round(x / scale + zero_level) as bytes; a conversion cuts off, so half a level is added first."""
    return torch.addcmul(zero_level + 0.5, x, scale.reciprocal()).to(torch.uint8)


def _factors(sizes: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """(K,): √(size of the channel / size of its weights), so that neither side bears all of an uncommon channel."""
    weight_sizes = weight.detach().abs().amax(0)
    top, weight_top = sizes.max(), weight_sizes.max()
    if not (bool(top > 0) and bool(weight_top > 0)):
        return torch.ones_like(sizes)
    return (sizes / top).clamp_min(_LEAST_SIZE).div((weight_sizes / weight_top).clamp_min(_LEAST_SIZE)).sqrt()


def _floor_of(activation: Callable[[torch.Tensor], torch.Tensor]) -> float:
    """The least value of an activation; each that a BERT may have is bounded below.

    >>> round(_floor_of(torch.nn.functional.gelu), 3)
    -0.17
    """
    return float(activation(torch.linspace(-20.0, 20.0, 40001)).min())


def _random_sample(encoder: Encoder) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids (T,) and lengths (B,). The large channels belong to the weights: text in their place gains nothing."""
    longest = encoder.config.max_position_embeddings
    lengths = torch.tensor(_SAMPLE_LENGTHS).clamp_max(longest)
    generator = torch.Generator().manual_seed(0)
    return torch.randint(encoder.config.vocab_size, (int(lengths.sum()),), generator=generator), lengths


@torch.no_grad()
def _channel_sizes(encoder: Encoder, input_ids: torch.Tensor, lengths: torch.Tensor) -> dict[nn.Module, torch.Tensor]:
    """The largest absolute value in each channel of every LayerNorm's output, (H,), over a sample."""
    sizes: dict[nn.Module, torch.Tensor] = {}

    def note(module: nn.Module, _: object, output: torch.Tensor) -> None:
        sizes[module] = output.abs().amax(0)

    norms = [module for module in encoder.modules() if isinstance(module, nn.LayerNorm)]
    hooks = [norm.register_forward_hook(note) for norm in norms]
    try:
        encoder(input_ids, None, lengths)
    finally:
        for hook in hooks:
            hook.remove()
    return sizes
