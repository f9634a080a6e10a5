"""`choose`: which of several continuations fits a text (SWAG, OpenBookQA and the like).

Columns: `text`, `choices` (one column with a list, or several with commas between their names), `label`, and perhaps
`prefix`, which begins every choice, as SWAG's second sentence does. A label is the number of the choice from 0, its
letter from A, or the name that the list gives it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F

from bertsmith.errors import ConfigError, InputError
from bertsmith.model.packing import Ragged
from bertsmith.tasks import scores
from bertsmith.tasks.tables import NOWHERE, Column, Place, Row, read_rows, written_out
from bertsmith.tasks.task import Criterion, Item, Prediction, Scores, TaskBatch, TooLong, count_texts_cut
from bertsmith.tasks.texts import LongTextOptions, LongTextTask, TextExample, count_pairs_cut, encode_texts, is_cut

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import nn

    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["ChoiceExample", "Choose"]

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """A text and its continuations; `label` is the number of the right one."""

    place: Place
    text: str
    choices: tuple[str, ...]
    label: int | None


class Choose(LongTextTask[ChoiceExample]):
    """One of several."""

    kind = "choose"
    head = "choice"
    metrics = ("accuracy",)
    fields = ("text", "choices", "label", "prefix")
    num_outputs = 1

    def __init__(self, options: LongTextOptions, labels: Sequence[str] = ()) -> None:
        super().__init__(options, labels)
        if options.long.mode == "segments":
            raise ConfigError("long.mode: segments are for classify and regress; take head, tail or head+tail")
        if options.long.pool != "max":
            raise ConfigError("long.pool: joins segments, which choices have not; leave it out")

    def read(self, name: str, *, labelled: bool = True) -> Iterator[ChoiceExample]:
        """The rows of a table."""
        columns: dict[str, Column] = {"text": "text", "choices": "choices", "label": "label", **self.options.columns}
        read = [c for field, c in columns.items() if "," not in str(c) and (labelled or field != "label")]
        for row in read_rows(name, read):
            choices, names = _choices(row, columns)
            if len(choices) < 2:
                raise row.place.error(f"{len(choices)} choices; there must be two at least, or the row must go")
            label = _number(row, row.get(columns["label"]), names, len(choices)) if labelled else None
            yield ChoiceExample(row.place, row.text(columns["text"]), tuple(choices), label)

    def example(self, text: str, choices: Sequence[str]) -> ChoiceExample:
        """A text and its continuations, two at least."""
        if len(choices) < 2:
            raise InputError(f"{len(choices)} choices; there must be two at least")
        return ChoiceExample(NOWHERE, text, tuple(choices), None)

    def encode(self, examples: Sequence[ChoiceExample], tokenizer: Tokenizer) -> list[Item]:
        """One item a question: a sequence of text and choice for each choice."""
        pairs = [pair for example in examples for pair in _pairs(example)]
        sequences = iter(encode_texts(pairs, tokenizer, self.options.max_length, self.options.long))
        items = []
        for example in examples:
            mine = [next(sequences) for _ in example.choices]
            ids, types = (tuple(parts[kind][0] for parts in mine) for kind in (0, 1))
            items.append(Item(ids, types, None if example.label is None else np.array([example.label])))
        return items

    def cuts(self, examples: Sequence[ChoiceExample], tokenizer: Tokenizer) -> bool:
        """Whether a text and one of its choices do not fit together."""
        most, long = self.options.max_length, self.options.long
        return any(is_cut(pair, tokenizer, most, long) for example in examples for pair in _pairs(example))

    def count_cut(self, examples: Sequence[ChoiceExample], items: Sequence[Item], tokenizer: Tokenizer) -> int:
        """A question is one text; where `long` says how that is cut, questions whose choices are."""
        if self.options.long.mode is None:
            return count_texts_cut(self, examples, items, tokenizer)
        return count_pairs_cut([_pairs(example) for example in examples], items, tokenizer, self.options.max_length)

    @property
    def too_long(self) -> TooLong:
        """See `Task`."""
        if self.options.long.mode is None:
            return super().too_long
        what = f"have a choice that is cut to go with the text into {self.options.max_length} pieces"
        return TooLong(what, "--max-length")

    def logits(self, model: nn.Module, batch: TaskBatch) -> torch.Tensor:
        """(G, C): the scores of a question's choices; -inf where it has fewer than others."""
        ragged = Ragged.of(batch.groups, batch.input_ids.device)
        grid = ragged.pad(model(batch.input_ids, batch.token_type_ids, batch.lengths))
        return grid if ragged.mask is None else grid.masked_fill(ragged.mask < 0, float("-inf"))

    def loss(self, logits: torch.Tensor, batch: TaskBatch, criterion: Criterion) -> torch.Tensor:
        """Cross-entropy among the choices; smoothing is over those that a question has."""
        assert batch.targets is not None
        hard = F.cross_entropy(logits.float(), batch.targets, reduction="sum")
        if not criterion.smoothing:
            return hard
        logs = logits.float().log_softmax(1)
        even = logs.masked_fill(logs.isinf(), 0.0).sum(1) / batch.groups.to(logs)
        return (1 - criterion.smoothing) * hard - criterion.smoothing * even.sum()

    def outputs(self, logits: torch.Tensor, batch: TaskBatch) -> list[np.ndarray]:
        """(C,) probabilities of a question's choices."""
        shares = logits.float().softmax(1).cpu().numpy()
        return [row[:count] for row, count in zip(shares, batch.groups.tolist(), strict=True)]

    def decode(
        self, examples: Sequence[ChoiceExample], items: Sequence[Item], outputs: Sequence[np.ndarray]
    ) -> list[Prediction]:
        """The likeliest choice, by number and text, and the probabilities of all."""
        del items
        return [
            {"choice": int(shares.argmax()), "text": example.choices[int(shares.argmax())],
             "score": float(shares.max()), "scores": [float(share) for share in shares]}
            for example, shares in zip(examples, outputs, strict=True)
        ]  # fmt: skip

    def score(self, examples: Sequence[ChoiceExample], predictions: Sequence[Prediction]) -> Scores:
        """How many are right."""
        right = [str(example.label) for example in examples]
        return {"accuracy": scores.accuracy(right, [str(prediction["choice"]) for prediction in predictions])}


def _pairs(example: ChoiceExample) -> list[TextExample]:
    """Its text with each of the choices."""
    return [TextExample(example.place, example.text, choice, None) for choice in example.choices]


def _choices(row: Row, columns: dict[str, Column]) -> tuple[list[str], list[str]]:
    """The choices of a row, and their names where it gives them names."""
    prefix = row.text(columns["prefix"]) + " " if "prefix" in columns else ""
    where = str(columns["choices"]).split(",")
    if len(where) > 1:
        cells: list[Any] = [row.get(int(name) if name.isdecimal() else name) for name in where]
    else:
        given = written_out(row.get(columns["choices"]))
        if isinstance(given, dict):
            given = _turned(given)
        if not isinstance(given, list):
            remedy = "name several columns with commas: --column choices=A,B"
            raise row.place.error(f"column {columns['choices']!r} holds no list; {remedy}")
        cells = given
    names = [str(cell.get("label", "")) for cell in cells if isinstance(cell, dict)]
    texts: list[str] = []
    for cell in cells:
        text = cell.get("text") if isinstance(cell, dict) else cell
        if not isinstance(text, str):
            raise row.place.error(f"a choice is {text!r:.60}, not text; correct it or remove the row")
        texts.append(prefix + text)
    if any(names) and len(set(filter(None, names))) < len(texts):
        raise row.place.error(f"the names of its choices are {names!r:.100}; give each its own, or none any")
    return texts, names if any(names) else []


def _turned(given: dict[str, Any]) -> list[dict[str, Any]] | None:
    """A list of texts and one of their names, as ARC is often given, to texts with names; None where they are not.

    >>> _turned({"text": ["a cat", "a dog"], "label": ["1", "2"]})
    [{'text': 'a cat', 'label': '1'}, {'text': 'a dog', 'label': '2'}]
    """
    texts, names = given.get("text"), given.get("label")
    if not (isinstance(texts, list) and isinstance(names, list) and len(texts) == len(names)):
        return None
    return [{"text": text, "label": name} for text, name in zip(texts, names, strict=True)]


def _number(row: Row, label: Any, names: list[str], count: int) -> int:
    """The number of the right choice."""
    shown = str(label).strip()
    whole = shown.removesuffix(".0")  # of a column with gaps
    number = -1
    if names:
        number = next((names.index(name) for name in (shown, whole) if name in names), -1)
    elif whole.isdecimal() and len(whole) < 9:  # more digits are no number of a choice
        number = int(whole)
    elif len(shown) == 1:
        number = _LETTERS.find(shown)
    if not 0 <= number < count:
        letters = f", or A to {_LETTERS[count - 1]}" if count <= len(_LETTERS) else ""
        known = ", ".join(names) or f"0 to {count - 1}{letters}"
        raise row.place.error(f"the label {label!r:.60} is none of the choices ({known}); correct it")
    return number
