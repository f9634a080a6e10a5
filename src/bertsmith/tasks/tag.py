"""`tag`: a tag for every word, and entities from the tags.

The first piece of a word carries its tag. A sentence longer than the model is read in windows that overlap, and every
word in the one where it has most context; none is lost. With `context` the sentences of a document are read together,
as many as fit, each in the window where it has most around it; that costs at most about twice as much.

Files: CoNLL columns (`.txt`, `.conll`, `.bio`, `.iob`), or tables with `tokens` and `tags`, or `text` for prediction.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch.nn.functional as F

from bertsmith.errors import InputError
from bertsmith.tasks.conll import Sentence, check_tag, read_conll
from bertsmith.tasks.entity_scores import score_entities, spans_of
from bertsmith.tasks.tables import NOWHERE, Column, Place, Row, has_lone_surrogate, read_rows
from bertsmith.tasks.task import Criterion, Item, Prediction, Scores, Task, TaskBatch, TaskOptions, packed_ids
from bertsmith.tasks.windows import cut_windows, most_context
from bertsmith.text.words import has_han

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import torch
    from torch import nn

    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["Tag", "TagOptions", "TaggedText"]

# The words of running text: Chinese characters, other runs of letters and digits, single marks.
_WORD = re.compile("[\u3400-\u4dbf\u4e00-\u9fff]|[^\\W\u3400-\u4dbf\u4e00-\u9fff]+|[^\\w\\s]")
_CHARACTER = re.compile(r"\S")
_CONLL = (".txt", ".conll", ".bio", ".iob")


class TagOptions(TaskOptions):
    """`context`: whether the sentences around one, in its document, are read with it.

    `characters`: whether running text is taken character by character, as most Chinese sets have it.
    """

    context: bool = False
    characters: bool = False


@dataclass(frozen=True, slots=True)
class TaggedText:
    """Words, where each stands in the text, and their tags where they are known."""

    place: Place
    text: str
    words: tuple[str, ...]
    offsets: tuple[tuple[int, int], ...]
    tags: tuple[str, ...] | None
    document: int
    one_a_line: bool = False

    def place_of(self, number: int) -> Place:
        """Of a word: its own line where every word has one."""
        return Place(self.place.file, self.place.line + number) if self.one_a_line else self.place


class _Word(NamedTuple):
    example: int
    number: int
    pieces: list[int]


class Tag(Task[TaggedText]):
    """Named entities and the like."""

    kind = "tag"
    head = "tagging"
    metrics = ("f1", "precision", "recall", "accuracy")
    Options = TagOptions
    options: TagOptions

    def read(self, name: str, *, labelled: bool = True) -> Iterator[TaggedText]:
        """Sentences with their tags."""
        columns = self.options.columns
        if Path(name).suffix.lower() in _CONLL:
            tag = columns.get("tag", -1) if labelled else None
            return map(_from_conll, read_conll(name, columns.get("word", 1), tag))
        documents: dict[tuple[bool, str], int] = {}

        def document_of(row: Row, number: int) -> int:
            """By the column `document`; a row without one is a document of its own."""
            column = columns.get("document", "document")
            named = row.has(column)
            return documents.setdefault((named, str(row.get(column) if named else number)), len(documents))

        return (_from_row(row, columns, document_of(row, number), self._words_of, labelled=labelled)
                for number, row in enumerate(read_rows(name)))  # fmt: skip

    def example(self, text: str = "", tokens: Sequence[str] = (), document: int = 0) -> TaggedText:
        """Running text, or its words."""
        for word in (text, *tokens):
            if not isinstance(word, str) or has_lone_surrogate(word):
                raise InputError(f"{word!r:.60} is not text: no str, or it has half a surrogate pair")
        return _from_words(NOWHERE, tokens, None, document) if tokens else self._words_of(NOWHERE, text, document)

    def _words_of(self, place: Place, text: str, document: int) -> TaggedText:
        """Running text in words."""
        found = list((_CHARACTER if self.options.characters else _WORD).finditer(text))
        words, offsets = tuple(word[0] for word in found), tuple(word.span() for word in found)
        return TaggedText(place, text, words, offsets, None, document)

    def reads_together(self, example: TaggedText, following: TaggedText) -> bool:
        """Sentences of one document, with `context`."""
        return self.options.context and example.document == following.document

    def find_labels(self, examples: Iterable[TaggedText]) -> tuple[str, ...]:
        """All tags that occur, `O` first."""
        if self.options.labels is not None:
            return self.options.labels
        found = {tag for example in examples for tag in example.tags or ()}
        return ("O", *sorted(found - {"O"}))

    def encode(self, examples: Sequence[TaggedText], tokenizer: Tokenizer) -> list[Item]:
        """One item a window."""
        pieces = _pieces_of({word for example in examples for word in example.words}, tokenizer)
        items: list[Item] = []
        for _, run in groupby(
            enumerate(examples), key=lambda pair: pair[1].document if self.options.context else pair[0]
        ):
            words = [
                _Word(number, place, pieces[word])
                for number, example in run
                for place, word in enumerate(example.words)
            ]
            if words:
                items.extend(self._windows(words, examples, tokenizer))
        return items

    def _windows(self, words: list[_Word], examples: Sequence[TaggedText], tokenizer: Tokenizer) -> Iterator[Item]:
        room = self.options.max_length - 2
        ends = np.cumsum([0, *(min(len(word.pieces), room) for word in words)])
        breaks = _breaks(words, ends, room)
        windows = [(breaks[start], breaks[stop]) for start, stop in cut_windows(ends[breaks], room, max(1, room // 2))]
        owner = most_context(windows, ends)
        for number, (start, stop) in enumerate(windows):
            mine = np.flatnonzero(owner[start:stop] == number)
            if not len(mine):
                continue
            inner = [piece for word in words[start:stop] for piece in word.pieces[:room]]
            ids, types = packed_ids(tokenizer, inner)
            read = 1 + ends[start:stop][mine] - ends[start]
            places = np.array([(words[start + place].example, words[start + place].number) for place in mine])
            yield Item((ids,), (types,), self._targets(places, examples), read, places)

    def _targets(self, places: np.ndarray, examples: Sequence[TaggedText]) -> np.ndarray | None:
        if any(examples[example].tags is None for example, _ in places):
            return None
        return np.array([self._number(examples[example], number) for example, number in places.tolist()])

    def _number(self, example: TaggedText, number: int) -> int:
        assert example.tags is not None
        try:
            return self.labels.index(example.tags[number])
        except ValueError:
            known, tag, word = ", ".join(self.labels), example.tags[number], example.words[number]
            raise example.place_of(number).error(
                f"the tag {tag!r} of {word!r:.40} is not one that training knows ({known:.200}); correct it"
            ) from None

    def logits(self, model: nn.Module, batch: TaskBatch) -> torch.Tensor:
        """(N, C)."""
        return model(batch.input_ids, batch.token_type_ids, batch.lengths, batch.read)

    def loss(self, logits: torch.Tensor, batch: TaskBatch, criterion: Criterion) -> torch.Tensor:
        """Cross-entropy over the words."""
        assert batch.targets is not None
        weights = None if criterion.class_weights is None else logits.new_tensor(criterion.class_weights)
        return F.cross_entropy(
            logits.float(), batch.targets, weight=weights, label_smoothing=criterion.smoothing, reduction="sum"
        )

    def outputs(self, logits: torch.Tensor, batch: TaskBatch) -> list[np.ndarray]:
        """(n, C) probabilities of the words of an item."""
        return batch.split_read(logits.float().softmax(1).cpu().numpy())

    def decode(
        self, examples: Sequence[TaggedText], items: Sequence[Item], outputs: Sequence[np.ndarray]
    ) -> list[Prediction]:
        """A tag a word, and entities as spans of characters, with the mean probability of their tags."""
        tags = [["O"] * len(example.words) for example in examples]
        shares = [np.zeros(len(example.words)) for example in examples]
        for item, rows in zip(items, outputs, strict=True):
            for (example, number), best, share in zip(item.notes.tolist(), rows.argmax(1), rows.max(1), strict=True):
                tags[example][number] = self.labels[best]
                shares[example][number] = share
        return [
            {"text": example.text, "tags": tags[number], "entities": _entities(example, tags[number], shares[number])}
            for number, example in enumerate(examples)
        ]

    def score(self, examples: Sequence[TaggedText], predictions: Sequence[Prediction]) -> Scores:
        """Entities by span, as conlleval counts them; and F1 by class."""
        golds = [example.tags or () for example in examples]
        found = score_entities(golds, [prediction["tags"] for prediction in predictions])
        each = {f"f1_{name}": score.f1 for name, score in sorted(found.per_class.items())}
        return {
            "f1": found.f1,
            "precision": found.precision,
            "recall": found.recall,
            "accuracy": found.token_accuracy,
            **each,
        }


def _breaks(words: list[_Word], ends: np.ndarray, room: int) -> np.ndarray:
    """Where a window may begin or end: between sentences, and between the words of one that is too long."""
    begins = [n for n, word in enumerate(words) if word.number == 0]
    found: list[int] = []
    for start, stop in zip(begins, [*begins[1:], len(words)], strict=True):
        found.extend([start] if ends[stop] - ends[start] <= room else range(start, stop))
    return np.array([*found, len(words)])


def _pieces_of(words: set[str], tokenizer: Tokenizer) -> dict[str, list[int]]:
    """The pieces of each distinct word; one that the tokenizer drops is unknown, so that it keeps its place."""
    listed = sorted(words)
    return {word: ids or [tokenizer.unk_id] for word, ids in zip(listed, tokenizer.encode_plain(listed), strict=True)}


def _entities(example: TaggedText, tags: list[str], shares: np.ndarray) -> list[dict[str, Any]]:
    found = []
    for span in spans_of(tags):
        start, end = example.offsets[span.start][0], example.offsets[span.stop - 1][1]
        score = float(shares[span.start : span.stop].mean())
        found.append({"label": span.label, "text": example.text[start:end], "start": start, "end": end, "score": score})
    return found


def _from_conll(sentence: Sentence) -> TaggedText:
    text, offsets = _joined(sentence.words)
    return TaggedText(sentence.place, text, sentence.words, offsets, sentence.tags, sentence.document, one_a_line=True)


def _joined(words: Sequence[str]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """A text from its words, a space between them but not between Chinese characters; and where each word stands."""
    text, offsets = "", []
    for word in words:
        if text and not (has_han(text[-1]) and has_han(word[:1])):
            text += " "
        offsets.append((len(text), len(text) + len(word)))
        text += word
    return text, tuple(offsets)


def _from_row(
    row: Row,
    columns: dict[str, Column],
    number: int,
    words_of: Callable[[Place, str, int], TaggedText],
    *,
    labelled: bool,
) -> TaggedText:
    tokens, tags = columns.get("tokens", "tokens"), columns.get("tags", "tags")
    if not labelled and not row.has(tokens):
        return words_of(row.place, row.text(columns.get("text", "text")), number)
    words, named = row.get(tokens), row.get(tags) if labelled else []
    for values in (words, named):
        if not (isinstance(values, list) and all(isinstance(value, str) for value in values)):
            raise row.place.error(f"expected lists of words and of tags as text, found {values!r:.60}")
    if not words or not all(words):
        raise row.place.error("no words, or an empty one; correct or remove the row")
    if labelled and len(named) != len(words):
        raise row.place.error(f"{len(words)} words and {len(named)} tags; correct or remove the row")
    for tag in named:
        check_tag(row.place, tag)
    return _from_words(row.place, words, named if labelled else None, number)


def _from_words(place: Place, words: Sequence[str], tags: Sequence[str] | None, document: int) -> TaggedText:
    text, offsets = _joined(words)
    return TaggedText(place, text, tuple(words), offsets, None if tags is None else tuple(tags), document)
