"""The heads: what stands on the encoder for each kind of task. Each model maps a packed batch to logits.

Shapes: T tokens in all, B sequences, M masked positions, H width, V vocabulary, C classes or choices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from bertsmith.errors import InputError
from bertsmith.model.encoder import Encoder, activation
from bertsmith.model.initial import initialise
from bertsmith.model.losses import tied_cross_entropy
from bertsmith.model.packing import Ragged, cls_rows

if TYPE_CHECKING:
    from bertsmith.config import BertConfig

__all__ = [
    "KINDS",
    "BertModel",
    "ChoiceModel",
    "Classifier",
    "MaskedLM",
    "PairModel",
    "PreTrainingLogits",
    "PreTrainingModel",
    "PreTrainingScores",
    "SegmentPool",
    "SpanModel",
    "Tagger",
    "build",
]

_TOKENS_AT_ONCE = 8192  # of one text in segments, where nothing is trained


class BertModel(nn.Module):
    """An encoder and perhaps a head. `kind` names the head; `pooled` says whether it reads the pooler."""

    kind: ClassVar[str] = "encoder"
    pooled: ClassVar[bool] = True

    def __init__(self, config: BertConfig, *, pooler: bool | None = None) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config, pooler=self.pooled if pooler is None else pooler)


class MaskedLMHead(nn.Module):
    """Dense, activation, LayerNorm, then the tied embedding matrix with a bias of its own."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = activation(config.hidden_act)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def transform(self, rows: torch.Tensor) -> torch.Tensor:
        """(M, H) to (M, H), all but the last product."""
        return self.norm(self.activation(self.dense(rows)))

    def forward(self, rows: torch.Tensor, embedding: torch.Tensor) -> torch.Tensor:
        """(M, H) and the word embeddings (V, H) to (M, V)."""
        return F.linear(self.transform(rows), embedding, self.bias)


class MaskedLM(BertModel):
    """Which piece stands at each masked position."""

    kind = "mlm"
    pooled = False

    def __init__(self, config: BertConfig, *, pooler: bool | None = None) -> None:
        super().__init__(config, pooler=pooler)
        self.mlm = MaskedLMHead(config)

    def forward(
        self,
        input_ids: torch.Tensor,
        token_type_ids: torch.Tensor | None,
        lengths: torch.Tensor,
        masked: torch.Tensor,
    ) -> torch.Tensor:
        """A packed batch and the rows `masked (M,)` to logits (M, V)."""
        rows = self.encoder(input_ids, token_type_ids, lengths, read=masked).rows
        return self.mlm(rows, self.encoder.embeddings.word.weight)


class PairModel(BertModel):
    """Whether B follows A. Class 0: it does; class 1: it is random, as in the original."""

    kind = "pair"

    def __init__(self, config: BertConfig, *, pooler: bool | None = None) -> None:
        super().__init__(config, pooler=pooler)
        self.pair = nn.Linear(config.hidden_size, 2)

    def forward(
        self, input_ids: torch.Tensor, token_type_ids: torch.Tensor | None, lengths: torch.Tensor
    ) -> torch.Tensor:
        """A packed batch to logits (B, 2)."""
        return self.pair(self.encoder.encode_pooled(input_ids, token_type_ids, lengths))


class PreTrainingLogits(NamedTuple):
    """The two outputs of pre-training."""

    mlm: torch.Tensor  # (M, V)
    pair: torch.Tensor  # (B, 2)


class PreTrainingScores(NamedTuple):
    """Of one batch: sums, to be divided by counts of the global batch."""

    mlm_loss: torch.Tensor
    mlm_correct: torch.Tensor
    pair_loss: torch.Tensor
    pair_correct: torch.Tensor


class PreTrainingModel(BertModel):
    """Both pre-training tasks on one pass; the last layer computes masked positions and `[CLS]` only."""

    kind = "pretraining"

    def __init__(self, config: BertConfig, *, pooler: bool | None = None) -> None:
        super().__init__(config, pooler=pooler)
        self.mlm = MaskedLMHead(config)
        self.pair = nn.Linear(config.hidden_size, 2)

    def forward(
        self,
        input_ids: torch.Tensor,
        token_type_ids: torch.Tensor | None,
        lengths: torch.Tensor,
        masked: torch.Tensor,
    ) -> PreTrainingLogits:
        """A packed batch and the rows `masked (M,)` to the logits of both tasks."""
        first, words = self._read(input_ids, token_type_ids, lengths, masked)
        logits = self.mlm(words, self.encoder.embeddings.word.weight)
        return PreTrainingLogits(logits, self.pair(self.encoder.pool(first)))

    def score(
        self,
        input_ids: torch.Tensor,
        token_type_ids: torch.Tensor | None,
        lengths: torch.Tensor,
        masked: torch.Tensor,
        labels: torch.Tensor,
        pair_labels: torch.Tensor,
    ) -> PreTrainingScores:
        """Losses and hits against `labels (M,)` and `pair_labels (B,)`; the latter are empty where there is no pair."""
        first, words = self._read(input_ids, token_type_ids, lengths, masked)
        table = self.encoder.embeddings.word.weight
        mlm_loss, mlm_correct = tied_cross_entropy(self.mlm.transform(words), table, self.mlm.bias, labels)
        if not len(pair_labels):
            return PreTrainingScores(mlm_loss, mlm_correct, mlm_loss.new_zeros(()), mlm_correct.new_zeros(()))
        pairs = self.pair(self.encoder.pool(first)).float()
        pair_correct = (pairs.argmax(1) == pair_labels).sum()
        return PreTrainingScores(
            mlm_loss, mlm_correct, F.cross_entropy(pairs, pair_labels, reduction="sum"), pair_correct
        )

    def _read(
        self, input_ids: torch.Tensor, token_type_ids: torch.Tensor | None, lengths: torch.Tensor, masked: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The last layer's states of `[CLS]` (B, H) and of the masked positions (M, H)."""
        first = cls_rows(lengths.cpu())
        read = torch.cat((first, masked.cpu()))
        rows = self.encoder(input_ids, token_type_ids, lengths, read=read).rows
        return rows[: len(first)], rows[len(first) :]


class SegmentPool(nn.Module):
    """Several vectors of one text to one: the largest of each feature, their mean, or a mean that attention weighs."""

    def __init__(self, width: int, how: str) -> None:
        super().__init__()
        self.how = how
        self.dense = nn.Linear(width, width) if how == "attention" else None
        self.query = nn.Linear(width, 1, bias=False) if how == "attention" else None

    def forward(self, rows: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        """(B, H) and `groups (G,)`, how many rows each text has, to (G, H)."""
        ragged = Ragged.of(groups.cpu(), rows.device)
        grid = ragged.pad(rows)  # (G, S, H)
        if self.how == "max":
            return self._hide(grid, ragged, float("-inf")).amax(1)
        if self.dense is None or self.query is None:
            return self._hide(grid, ragged, 0.0).sum(1) / groups.to(rows)[:, None]
        scores = self.query(torch.tanh(self.dense(grid)))  # (G, S, 1)
        return (self._hide(scores, ragged, float("-inf")).softmax(1) * grid).sum(1)

    def _hide(self, grid: torch.Tensor, ragged: Ragged, value: float) -> torch.Tensor:
        """Where a text has no more segments stands a value that changes nothing."""
        return grid if ragged.mask is None else grid.masked_fill(ragged.mask[:, :, None] < 0, value)


class Classifier(BertModel):
    """A class for each sequence, or for each group of them; with one label, a number (regression)."""

    kind = "classification"

    def __init__(self, config: BertConfig, *, pooler: bool | None = None) -> None:
        super().__init__(config, pooler=pooler)
        self.dropout = nn.Dropout(config.head_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.segments: SegmentPool | None = None

    def join_segments(self, how: str, generator: torch.Generator) -> None:
        """From now on a text may be several sequences: `max`, `mean` or `attention` over their pooled vectors."""
        self.segments = SegmentPool(self.config.hidden_size, how)
        initialise(self.segments, std=self.config.initializer_range, generator=generator)

    def forward(
        self,
        input_ids: torch.Tensor,
        token_type_ids: torch.Tensor | None,
        lengths: torch.Tensor,
        groups: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """A packed batch to logits (B, C), or (G, C) where `groups (G,)` says how many sequences a text has."""
        if groups is None:
            pooled = self.encoder.encode_pooled(input_ids, token_type_ids, lengths)
        else:
            assert self.segments is not None, "join_segments says how"
            pooled = self.segments(self._encode_segments(input_ids, token_type_ids, lengths), groups)
        return self.classifier(self.dropout(pooled))

    def _encode_segments(
        self, input_ids: torch.Tensor, token_type_ids: torch.Tensor | None, lengths: torch.Tensor
    ) -> torch.Tensor:
        """(B, H). One text can be a whole book: without a gradient, only so much of it is in memory at once."""
        if torch.is_grad_enabled() or len(input_ids) <= _TOKENS_AT_ONCE:
            return self.encoder.encode_pooled(input_ids, token_type_ids, lengths)
        owner = (lengths.cumsum(0) - 1) // _TOKENS_AT_ONCE  # (B,) the part that a sequence is in
        parts = lengths.split(owner.unique_consecutive(return_counts=True)[1].tolist())
        sizes = [int(part.sum()) for part in parts]
        types = [None] * len(parts) if token_type_ids is None else token_type_ids.split(sizes)
        found = map(self.encoder.encode_pooled, input_ids.split(sizes), types, parts)
        return torch.cat(list(found))


class ChoiceModel(BertModel):
    """Which of several continuations fits; a question's choices are sequences that follow each other."""

    kind = "choice"

    def __init__(self, config: BertConfig, *, pooler: bool | None = None) -> None:
        super().__init__(config, pooler=pooler)
        self.dropout = nn.Dropout(config.head_dropout)
        self.classifier = nn.Linear(config.hidden_size, 1)

    def forward(
        self,
        input_ids: torch.Tensor,
        token_type_ids: torch.Tensor | None,
        lengths: torch.Tensor,
        num_choices: int | None = None,
    ) -> torch.Tensor:
        """A packed batch of B·C sequences to logits (B, C); without a number of choices, a score for each sequence."""
        if num_choices is not None and len(lengths) % num_choices:
            raise InputError(f"{len(lengths)} sequences do not make questions of {num_choices} choices")
        pooled = self.encoder.encode_pooled(input_ids, token_type_ids, lengths)
        scores: torch.Tensor = self.classifier(self.dropout(pooled))
        return scores[:, 0] if num_choices is None else scores.view(-1, num_choices)


class Tagger(BertModel):
    """A class for each token, or for the tokens that are read."""

    kind = "tagging"
    pooled = False

    def __init__(self, config: BertConfig, *, pooler: bool | None = None) -> None:
        super().__init__(config, pooler=pooler)
        self.dropout = nn.Dropout(config.head_dropout)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)

    def forward(
        self,
        input_ids: torch.Tensor,
        token_type_ids: torch.Tensor | None,
        lengths: torch.Tensor,
        read: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """A packed batch to logits (T, C), or (R, C) for the rows `read`."""
        rows = self.encoder(input_ids, token_type_ids, lengths, read=read).rows
        return self.classifier(self.dropout(rows))


class SpanModel(BertModel):
    """Where an answer starts and ends."""

    kind = "span"
    pooled = False

    def __init__(self, config: BertConfig, *, pooler: bool | None = None) -> None:
        super().__init__(config, pooler=pooler)
        self.span = nn.Linear(config.hidden_size, 2)

    def forward(
        self, input_ids: torch.Tensor, token_type_ids: torch.Tensor | None, lengths: torch.Tensor
    ) -> torch.Tensor:
        """A packed batch to (T, 2): the logits of start and end."""
        return self.span(self.encoder(input_ids, token_type_ids, lengths).rows)


KINDS: dict[str, type[BertModel]] = {
    model.kind: model
    for model in (BertModel, PreTrainingModel, MaskedLM, PairModel, Classifier, ChoiceModel, Tagger, SpanModel)
}


def build(
    config: BertConfig, kind: str = "encoder", *, pooler: bool | None = None, seed: int | None = None
) -> BertModel:
    """A new model with the original's initialisation; the same seed gives the same weights."""
    with torch.device("meta"):  # torch's own initialisation would be thrown away
        model = KINDS[kind](config, pooler=pooler)
    model.to_empty(device="cpu")
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    initialise(model, std=config.initializer_range, generator=generator)
    return model
