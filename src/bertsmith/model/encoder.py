"""The encoder: embeddings, post-LayerNorm layers, pooler.

Comes in: one flat run of tokens and the lengths of its sequences. Goes out: the rows that were asked for.

Shapes: T tokens in all, B sequences, R rows that are read, H width, F inner width of the feed-forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from bertsmith.errors import InputError
from bertsmith.model.attention import SelfAttention
from bertsmith.model.dropout import Dropout
from bertsmith.model.eight_bit import EightBitLinear
from bertsmith.model.linear import PreparedLinear
from bertsmith.model.packing import Plan, Reading, cls_rows, positions_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from bertsmith.config import Activation, BertConfig
    from bertsmith.model.words import UsedWords

__all__ = ["Encoder", "EncoderOutput", "Layer", "activation"]


def activation(name: Activation) -> Callable[[torch.Tensor], torch.Tensor]:
    """The function behind a name of `hidden_act`."""
    if name in ("gelu_new", "gelu_pytorch_tanh"):
        return lambda x: F.gelu(x, approximate="tanh")
    functions: dict[str, Callable[..., torch.Tensor]] = {
        "gelu": F.gelu,
        "relu": F.relu,
        "silu": F.silu,
        "swish": F.silu,
        "tanh": torch.tanh,
    }
    return functions[name]


class Embeddings(nn.Module):
    """Token + segment + position, LayerNorm, dropout (paper, section 3, "Input/Output Representations")."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word: nn.Embedding | UsedWords = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(
        self, input_ids: torch.Tensor, token_type_ids: torch.Tensor, position_ids: torch.Tensor
    ) -> torch.Tensor:
        """Three (T,) runs of ids to (T, H)."""
        total = self.word(input_ids) + self.token_type(token_type_ids) + self.position(position_ids)
        return self.dropout(self.norm(total))


class Layer(nn.Module):
    """Attention and feed-forward, each followed by dropout, the residual sum and LayerNorm."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config)
        self.attention_output = nn.Linear(config.hidden_size, config.hidden_size)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.up = nn.Linear(config.hidden_size, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size)
        self.output_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.activation = activation(config.hidden_act)

    def forward(self, x: torch.Tensor, plan: Plan, maps: list[torch.Tensor] | None = None) -> torch.Tensor:
        """(T, H) to (T, H)."""
        return self._finish(x, self.attention(x, plan, maps=maps))

    def forward_rows(self, x: torch.Tensor, plan: Plan, reading: Reading) -> torch.Tensor:
        """(T, H) to (R, H): the same values, computed for the rows that are read only."""
        attended = self.attention.forward_rows(x, plan, reading)
        return self._finish(x.index_select(0, reading.rows), attended)

    def _finish(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        x = self.attention_norm(self._residual(x, attended, self.attention_output))
        inner = self._activate(self.up(x))  # (·, F)
        return self.output_norm(self._residual(x, inner, self.down))

    def _activate(self, inner: torch.Tensor) -> torch.Tensor:
        """GELU where it stands when no gradient asks for what was there: the widest array need not be made twice."""
        if self.activation is F.gelu and not inner.requires_grad:
            return torch.ops.aten.gelu_(inner)
        return self.activation(inner)

    def _residual(self, x: torch.Tensor, inner: torch.Tensor, dense: nn.Linear | EightBitLinear) -> torch.Tensor:
        """The sum x + dropout(dense(inner)); without dropout the product is added to x + bias where it stands."""
        if isinstance(dense, EightBitLinear | PreparedLinear):
            return dense.add_to(x, inner)
        if (self.training and self.dropout.p) or torch.is_autocast_enabled(x.device.type):
            return x + self.dropout(dense(inner))
        return (x + dense.bias).addmm_(inner, dense.weight.t())


@dataclass(frozen=True)
class EncoderOutput:
    """What the encoder gives back, in the order of the batch that it was given.

    `rows` are the last layer's states of the rows that were read, in the order asked for. On request:
    `hidden_states`, the embeddings and each layer's output, all (T, H); `attentions`, for each layer
    one (A, S, S) map of probabilities per sequence.
    """

    rows: torch.Tensor  # (R, H)
    hidden_states: list[torch.Tensor] | None = None
    attentions: list[list[torch.Tensor]] | None = None


class Encoder(nn.Module):
    """A BERT without a head. `checkpoint_activations` trades computing twice for memory in training."""

    def __init__(self, config: BertConfig, *, pooler: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if pooler else None
        self.checkpoint_activations = False

    def forward(
        self,
        input_ids: torch.Tensor,
        token_type_ids: torch.Tensor | None,
        lengths: torch.Tensor,
        *,
        position_ids: torch.Tensor | None = None,
        read: torch.Tensor | None = None,
        hidden_states: bool = False,
        attentions: bool = False,
    ) -> EncoderOutput:
        """Encode a packed batch.

        `input_ids`, `token_type_ids` and `position_ids` are (T,), `lengths` is (B,) and stays on the CPU.
        `read (R,)` names the rows wanted, on either device; the last layer then computes only those. Without `read`, or
        when hidden states or attention maps are wanted, every row is computed.
        """
        lengths = lengths.cpu()
        if position_ids is None:
            position_ids = positions_of(lengths).to(input_ids.device)
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        self._check(input_ids, token_type_ids, position_ids, lengths)
        if read is not None and read.device.type == "cpu" and not bool(((read >= 0) & (read < len(input_ids))).all()):
            raise InputError(f"read names rows outside the batch of {len(input_ids)} tokens")
        plan = Plan.of(lengths, input_ids.device)
        x = self.embeddings(*map(plan.arrange, (input_ids, token_type_ids, position_ids)))
        states, maps = [x], []
        pruned = None if hidden_states or attentions else read
        for number, layer in enumerate(self.layers, start=1):
            assert isinstance(layer, Layer)
            if pruned is not None and number == len(self.layers):
                reading = plan.locate(pruned)
                rows = self._run(layer.forward_rows, x, plan, reading)
                return EncoderOutput(rows.index_select(0, reading.back))
            found: list[torch.Tensor] | None = [] if attentions else None
            x = self._run(layer.__call__, x, plan, found)
            if hidden_states:
                states.append(x)
            if found is not None:
                maps.append(_in_given_order(found, lengths))
        rows = plan.restore(x)
        return EncoderOutput(
            rows if read is None else rows.index_select(0, read.to(rows.device)),
            [plan.restore(state) for state in states] if hidden_states else None,
            maps if attentions else None,
        )

    def pool(self, first_rows: torch.Tensor) -> torch.Tensor:
        """Dense and tanh on the `[CLS]` rows: (B, H) to (B, H)."""
        assert self.pooler is not None, "this encoder was built without a pooler"
        return torch.tanh(self.pooler(first_rows))

    def encode_pooled(
        self, input_ids: torch.Tensor, token_type_ids: torch.Tensor | None, lengths: torch.Tensor
    ) -> torch.Tensor:
        """(B, H): the pooled `[CLS]` of each sequence, with a last layer that computes nothing else."""
        return self.pool(self(input_ids, token_type_ids, lengths, read=cls_rows(lengths)).rows)

    def _run(self, step: Callable[..., torch.Tensor], *inputs: object) -> torch.Tensor:
        if self.checkpoint_activations and torch.is_grad_enabled():
            return checkpoint(step, *inputs, use_reentrant=False)
        return step(*inputs)

    def _check(
        self,
        input_ids: torch.Tensor,
        token_type_ids: torch.Tensor,
        position_ids: torch.Tensor,
        lengths: torch.Tensor,
    ) -> None:
        """Refuse what would crash a kernel, by name. Ids on a GPU are not looked at: that would stall it."""
        if lengths.numel() == 0 or int(lengths.min()) < 1 or int(lengths.sum()) != len(input_ids):
            raise InputError(f"lengths {lengths.tolist()!s:.60} do not fit {len(input_ids)} tokens")
        if input_ids.device.type != "cpu":
            return
        tables = self.embeddings
        for name, ids, limit in (
            ("input_ids", input_ids, tables.word.num_embeddings),
            ("token_type_ids", token_type_ids, tables.token_type.num_embeddings),
            ("position_ids", position_ids, tables.position.num_embeddings),
        ):
            if ids.shape != input_ids.shape:
                raise InputError(f"{name} has shape {tuple(ids.shape)}, input_ids {tuple(input_ids.shape)}")
            low, high = torch.aminmax(ids)
            if int(low) < 0 or int(high) >= limit:
                raise InputError(f"{name} must be from 0 to {limit - 1}, found {int(low)} to {int(high)}")


def _in_given_order(maps: list[torch.Tensor], lengths: torch.Tensor) -> list[torch.Tensor]:
    """Attention maps come by ascending length; give them in the order of the batch."""
    ranks = torch.argsort(lengths, stable=True).tolist()
    ordered = dict(zip(ranks, maps, strict=True))
    return [ordered[number] for number in range(len(maps))]
