"""Programs: what a loaded model can be asked, each as three steps that the library and the service run alike.

    encode   inputs to items, on the CPU, ahead of the model
    forward  a batch of items through the model, one array an item
    decode   arrays to results, one an input

A program knows nothing of batches, threads or requests; whoever runs it may mix items of many callers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
import torch.nn.functional as F

from bertsmith.errors import InputError
from bertsmith.model.heads import MaskedLM, PreTrainingModel
from bertsmith.model.pooling import Pooling
from bertsmith.tasks.task import Item, packed_ids, packed_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bertsmith.model.heads import BertModel
    from bertsmith.model.pooling import Whitening
    from bertsmith.tasks.task import Prediction, Task, TaskBatch
    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = [
    "AttentionProgram",
    "Candidate",
    "EmbedProgram",
    "FillProgram",
    "Gap",
    "NeighboursProgram",
    "Program",
    "TaskProgram",
    "TextLike",
    "TokenProgram",
]

Input = TypeVar("Input", contravariant=True)
Output = TypeVar("Output")
TextLike = str | tuple[str, str] | list[int]  # a text, a pair of texts, or the pieces of a text

_CHARACTERS_AT_ONCE = 2**21  # the tokenizer takes some hundred bytes for each, at worst
_NUMBERS_AT_ONCE = 2**26
_LONGEST_WORD = 32  # in pieces
_UNUSED = re.compile(r"\[unused\d+\]")


class Program(Protocol[Input, Output]):
    """What is asked of a model."""

    @property
    def model(self) -> BertModel:
        """Whom it asks."""

    def encode(self, inputs: Sequence[Input]) -> list[Item]:
        """What the model reads."""

    def forward(self, batch: TaskBatch) -> list[np.ndarray]:
        """What it says, one array an item."""

    def decode(self, inputs: Sequence[Input], items: Sequence[Item], outputs: Sequence[np.ndarray]) -> list[Output]:
        """What that means, one result an input."""

    def cuts(self, inputs: Sequence[Input]) -> bool:
        """Whether one of them is too long to be read whole, and would be cut."""

    def reads_together(self, one: Any, following: Any) -> bool:
        """Whether an input must be encoded with the one that follows it."""

    @property
    def characters_at_once(self) -> int:
        """Of how much text items and results may be in memory."""


class Candidate(NamedTuple):
    """A piece of the vocabulary, and its probability, 0 to 1; or its cosine, where it is a neighbour."""

    token: str
    score: float


class Gap(NamedTuple):
    """A `[MASK]`, the characters where it stands, and the likeliest pieces for it."""

    start: int
    stop: int
    candidates: list[Candidate]


class _EachAlone:
    """Inputs that have nothing to do with each other."""

    @property
    def characters_at_once(self) -> int:
        """A vector is small: what counts is the text itself."""
        return _CHARACTERS_AT_ONCE

    def cuts(self, inputs: Sequence[Any]) -> bool:
        """Never: what is too long is refused."""
        del inputs
        return False

    def reads_together(self, one: Any, following: Any) -> bool:
        """Never."""
        del one, following
        return False


@dataclass(frozen=True)
class _TextProgram(_EachAlone):
    """What reads a text, a pair of texts, or pieces, as one sequence."""

    model: BertModel
    tokenizer: Tokenizer
    max_length: int

    def encode(self, inputs: Sequence[TextLike]) -> list[Item]:
        """One sequence each."""
        return _items_of_texts(self.tokenizer, inputs, self.max_length)

    def cuts(self, inputs: Sequence[TextLike]) -> bool:
        """See `Program`."""
        longer = _items_of_texts(self.tokenizer, inputs, self.max_length + 1)
        return any(item.num_tokens > self.max_length for item in longer)


@dataclass(frozen=True)
class EmbedProgram(_TextProgram):
    """A vector for a text, or for a pair of texts."""

    pooling: Pooling = field(default_factory=Pooling)
    whitening: Whitening | None = None

    def forward(self, batch: TaskBatch) -> list[np.ndarray]:
        """(D,) each, whitened and scaled to length 1 where that was asked for."""
        vectors = self.pooling.vectors(self.model.encoder, batch.input_ids, batch.token_type_ids, batch.lengths)
        if self.whitening is not None:
            vectors = self.whitening(vectors)
        if self.pooling.normalize:
            vectors = F.normalize(vectors, dim=1)
        return list(vectors.float().cpu().numpy())

    def decode(
        self, inputs: Sequence[TextLike], items: Sequence[Item], outputs: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """As they are."""
        del inputs, items
        return list(outputs)

    @property
    def width(self) -> int:
        """Of a vector."""
        if self.whitening is not None:
            return int(self.whitening.kernel.shape[1])
        return self.pooling.width(self.model.config.hidden_size)


@dataclass(frozen=True)
class TokenProgram(_TextProgram):
    """The rows of every token of a text, in chosen layers side by side."""

    layers: tuple[int, ...] = (-1,)

    @property
    def width(self) -> int:
        """Of a row in one layer."""
        return self.model.config.hidden_size

    @property
    def characters_at_once(self) -> int:
        """A character may be a token, and a token has many numbers."""
        return _NUMBERS_AT_ONCE // (len(self.layers) * self.width)

    def forward(self, batch: TaskBatch) -> list[np.ndarray]:
        """(n, layers, H) each."""
        numbers = Pooling(layers=self.layers).numbers(len(self.model.encoder.layers))
        found = self.model.encoder(
            batch.input_ids, batch.token_type_ids, batch.lengths, hidden_states=numbers is not None
        )
        chosen = [found.rows] if numbers is None else [found.hidden_states[number] for number in numbers]
        rows = torch.stack(chosen, 1).float().cpu().numpy()
        return np.split(rows, np.cumsum(batch.lengths.numpy())[:-1])

    def decode(
        self, inputs: Sequence[TextLike], items: Sequence[Item], outputs: Sequence[np.ndarray]
    ) -> list[tuple[list[str], np.ndarray]]:
        """The pieces of a text, and their rows."""
        del inputs
        return [
            ([self.tokenizer.piece(number) for number in item.ids[0].tolist()], rows)
            for item, rows in zip(items, outputs, strict=True)
        ]


@dataclass(frozen=True)
class AttentionProgram(_TextProgram):
    """What every head looks at."""

    def forward(self, batch: TaskBatch) -> list[np.ndarray]:
        """(layers, heads, n, n) each."""
        found = self.model.encoder(batch.input_ids, batch.token_type_ids, batch.lengths, attentions=True)
        assert found.attentions is not None
        return [torch.stack(maps).float().cpu().numpy() for maps in zip(*found.attentions, strict=True)]

    def decode(
        self, inputs: Sequence[TextLike], items: Sequence[Item], outputs: Sequence[np.ndarray]
    ) -> list[np.ndarray]:
        """As they are."""
        del inputs, items
        return list(outputs)


@dataclass(frozen=True)
class FillProgram(_EachAlone):
    """The likeliest pieces for each `[MASK]` of a text."""

    model: BertModel
    tokenizer: Tokenizer
    max_length: int
    top: int = 5

    def __post_init__(self) -> None:
        if not isinstance(self.model, MaskedLM | PreTrainingModel):
            kind = self.model.kind
            raise InputError(f"this model cannot fill in: it is of kind {kind!r} and has no masked-word head")
        if not 1 <= self.top <= self.tokenizer.vocab_size:
            raise InputError(f"top must be from 1 to {self.tokenizer.vocab_size}, not {self.top}")

    def encode(self, inputs: Sequence[str]) -> list[Item]:
        """One sequence each, and where its gaps are."""
        items = []
        for text, encoding in zip(inputs, self.tokenizer.encode_batch(inputs), strict=True):
            ids = np.array(encoding.ids, np.int32)
            gaps = np.flatnonzero(ids == self.tokenizer.mask_id)
            if not len(gaps):
                raise InputError(
                    f"nothing to fill in: write {self.tokenizer.mask_token} where a word is wanted, in {text!r:.60}"
                )
            if len(ids) > self.max_length:
                raise InputError(f"the text has {len(ids)} tokens; the model reads {self.max_length} at most")
            places = [encoding.offsets[gap] for gap in gaps.tolist()]
            items.append(Item((ids,), (np.zeros_like(ids),), read=gaps, notes=places))
        return items

    def forward(self, batch: TaskBatch) -> list[np.ndarray]:
        """(gaps, top, 2): numbers of pieces, and their probabilities."""
        assert isinstance(self.model, MaskedLM | PreTrainingModel)
        rows = self.model.encoder(batch.input_ids, batch.token_type_ids, batch.lengths, read=batch.read).rows
        logits = self.model.mlm(rows, self.model.encoder.embeddings.word.weight)
        # A model may have more rows than its tokenizer has pieces; those rows have no name to give.
        scores, numbers = logits.float().softmax(-1)[:, : self.tokenizer.vocab_size].topk(self.top)
        return batch.split_read(torch.stack((numbers.double(), scores.double()), 2).cpu().numpy())

    def decode(self, inputs: Sequence[str], items: Sequence[Item], outputs: Sequence[np.ndarray]) -> list[list[Gap]]:
        """For each gap of a text, in order, its candidates."""
        del inputs
        return [
            [
                Gap(place[0], place[1], [Candidate(self.tokenizer.piece(int(number)), score) for number, score in gap])
                for place, gap in zip(item.notes, gaps.tolist(), strict=True)
            ]
            for item, gaps in zip(items, outputs, strict=True)
        ]


@dataclass(frozen=True)
class NeighboursProgram(_EachAlone):
    """The pieces nearest to a word in the model's own table, by cosine; a word of several pieces is their mean.

    Its own pieces are not among them, nor those that stand for no text.
    """

    model: BertModel
    tokenizer: Tokenizer
    top: int = 10

    def __post_init__(self) -> None:
        if self.top < 1:
            raise InputError(f"top must be 1 or more, not {self.top}")

    def encode(self, inputs: Sequence[str]) -> list[Item]:
        """The pieces of each word."""
        items = []
        for word, found in zip(inputs, self.tokenizer.encode_plain(inputs), strict=True):
            if not 1 <= len(found) <= _LONGEST_WORD or self.tokenizer.unk_id in found:
                raise InputError(f"{word!r:.60} is not a word that the model knows")
            ids = np.array(found, np.int32)
            items.append(Item((ids,), (np.zeros_like(ids),)))
        return items

    def forward(self, batch: TaskBatch) -> list[np.ndarray]:
        """(top, 2): numbers of pieces, and their cosines."""
        table = self.model.encoder.embeddings.word.weight
        words = torch.stack([table[ids].mean(0) for ids in batch.input_ids.split(batch.lengths.tolist())])
        scores = (F.normalize(words.float(), dim=1) @ self._directions.T).cpu()
        own = torch.repeat_interleave(batch.lengths)
        scores[own, torch.searchsorted(self._known, batch.input_ids.cpu())] = -torch.inf
        scores, places = scores.topk(min(self.top, len(self._known)))
        return list(torch.stack((self._known[places].double(), scores.double()), 2).numpy())

    def decode(
        self, inputs: Sequence[str], items: Sequence[Item], outputs: Sequence[np.ndarray]
    ) -> list[list[Candidate]]:
        """The nearest first."""
        del inputs, items
        return [
            [Candidate(self.tokenizer.piece(int(n)), score) for n, score in rows[np.isfinite(rows[:, 1])].tolist()]
            for rows in outputs
        ]

    @cached_property
    def _known(self) -> torch.Tensor:
        """The numbers of the pieces that stand for text."""
        tokenizer = self.tokenizer
        special = {tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}
        pieces = enumerate(tokenizer.pieces)
        return torch.tensor([n for n, piece in pieces if n not in special and not _UNUSED.fullmatch(piece)])

    @cached_property
    def _directions(self) -> torch.Tensor:
        """(V, H), each of length 1."""
        return F.normalize(self.model.encoder.embeddings.word.weight[self._known].float(), dim=1)


@dataclass(frozen=True)
class TaskProgram:
    """What a fine-tuned model says of examples of its task."""

    task: Task[Any]
    model: BertModel
    tokenizer: Tokenizer

    def encode(self, inputs: Sequence[Any]) -> list[Item]:
        """See `Task.encode`."""
        return self.task.encode(inputs, self.tokenizer)

    def forward(self, batch: TaskBatch) -> list[np.ndarray]:
        """See `Task.outputs`."""
        return self.task.outputs(self.task.logits(self.model, batch), batch)

    def decode(self, inputs: Sequence[Any], items: Sequence[Item], outputs: Sequence[np.ndarray]) -> list[Prediction]:
        """See `Task.decode`."""
        return self.task.decode(inputs, items, outputs)

    def cuts(self, inputs: Sequence[Any]) -> bool:
        """See `Task.cuts`."""
        return self.task.cuts(inputs, self.tokenizer)

    @property
    def characters_at_once(self) -> int:
        """What a task says is small."""
        return _CHARACTERS_AT_ONCE

    def reads_together(self, one: Any, following: Any) -> bool:
        """See `Task.reads_together`."""
        return self.task.reads_together(one, following)


def _items_of_texts(tokenizer: Tokenizer, inputs: Sequence[TextLike], max_length: int) -> list[Item]:
    """Texts, pairs and pieces as sequences, each cut to `max_length`."""
    if isinstance(inputs, str):
        raise InputError("expected a list of texts, not one text")
    for pair in inputs:
        if isinstance(pair, tuple) and len(pair) != 2:
            raise InputError(f"a pair is of two texts, not {len(pair)}: {pair!r:.60}")
    texts = iter(packed_texts(tokenizer, [text for text in inputs if not isinstance(text, list)], max_length))
    items = []
    for text in inputs:
        if isinstance(text, list):
            ids, types = packed_ids(tokenizer, _pieces(tokenizer, text)[: max_length - 2])
        else:
            ids, types = next(texts)
        items.append(Item((ids,), (types,)))
    return items


def _pieces(tokenizer: Tokenizer, numbers: list[int]) -> list[int]:
    """The pieces of a text, with or without the special tokens around them."""
    if not all(isinstance(number, int) and 0 <= number < tokenizer.vocab_size for number in numbers):
        raise InputError(f"pieces must be whole numbers from 0 to {tokenizer.vocab_size - 1}")
    if len(numbers) >= 2 and numbers[0] == tokenizer.cls_id and numbers[-1] == tokenizer.sep_id:
        return numbers[1:-1]
    return numbers
