"""`tag`: a tag for every word, and entities from the tags.

The first piece of a word carries its tag. A sentence longer than the model is read in windows that overlap, and every
word in the one where it has most context; none is lost. With `context` the sentences of a document are read together,
as many as fit, each in the window where it has most around it; that costs at most about twice as much.

Files: CoNLL columns (`.txt`, `.conll`, `.bio`, `.iob`), or tables with `tokens` and `tags`, or with `text` and spans of
characters (`tagged.py`), or `text` alone for prediction.
"""

from __future__ import annotations

from itertools import count, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bertsmith.errors import InputError
from bertsmith.tasks.conll import read_conll
from bertsmith.tasks.entity_scores import score_entities, spans_of
from bertsmith.tasks.tables import NOWHERE, Row, has_lone_surrogate, read_rows
from bertsmith.tasks.tagged import TaggedText, from_conll, from_row, from_text, from_words
from bertsmith.tasks.task import Criterion, Item, Prediction, Scores, Task, TaskBatch, TaskOptions, packed_ids
from bertsmith.tasks.windows import cut_windows, most_context

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import torch
    from torch import nn

    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["Tag", "TagOptions"]

_CONLL = (".txt", ".conll", ".bio", ".iob")


class TagOptions(TaskOptions):
    """`context`: whether the sentences around one, in its document, are read with it.

    `characters`: whether running text is taken character by character, as most Chinese sets have it. `plain`: whether
    tags may be names of their own, such as parts of speech; then each word counts as an entity.
    """

    context: bool = False
    characters: bool = False
    plain: bool = False


class _Word(NamedTuple):
    example: int
    number: int
    pieces: list[int]


class Tag(Task[TaggedText]):
    """Named entities, parts of speech and the like."""

    kind = "tag"
    head = "tagging"
    metrics = ("f1", "precision", "recall", "accuracy")
    fields = ("word", "tag", "tokens", "tags", "text", "entities", "document")
    Options = TagOptions
    options: TagOptions

    def read(self, name: str, *, labelled: bool = True) -> Iterator[TaggedText]:
        """Sentences with their tags."""
        columns = self.options.columns
        suffix = Path(name).suffix.lower()
        if suffix in _CONLL or (suffix == ".tsv" and columns.keys() & {"word", "tag"}):
            told = {"labelled": labelled, "plain": self.options.plain, "characters": self.options.characters}
            where = columns.get("word", 1), columns.get("tag", -1)
            sentences = read_conll(name, *where, **told, known=self.labels)
            return (from_conll(sentence, characters=self.options.characters) for sentence in sentences)
        documents: dict[str, int] = {}
        numbers = count()

        def document_of(row: Row) -> int:
            """By the column `document`; a row without one is a document of its own."""
            column = columns.get("document", "document")
            given = row.get(column) if row.has(column) else None
            if given is None:
                return next(numbers)
            name = str(given)
            if name not in documents:
                documents[name] = next(numbers)
            elif self.options.context and name != next(reversed(documents)):
                raise row.place.error(
                    f"the document {name!r:.60} goes on after another has begun; put its rows together"
                )
            return documents[name]

        characters, plain = self.options.characters, self.options.plain
        return (
            from_row(row, columns, document_of(row), labelled=labelled, characters=characters, plain=plain)
            for row in read_rows(name)
        )

    def example(self, text: str = "", tokens: Sequence[str] = (), document: int = 0) -> TaggedText:
        """Running text, or its words."""
        for word in (text, *tokens):
            if not isinstance(word, str) or has_lone_surrogate(word):
                raise InputError(f"{word!r:.60} is not text: no str, or it has half a surrogate pair")
        if tokens:
            return from_words(NOWHERE, tokens, None, document, characters=self.options.characters)
        return from_text(NOWHERE, text, document, characters=self.options.characters)

    def reads_together(self, example: TaggedText, following: TaggedText) -> bool:
        """Sentences of one document, with `context`."""
        return self.options.context and example.document == following.document

    def find_labels(self, examples: Iterable[TaggedText]) -> tuple[str, ...]:
        """All tags that occur, `O` first; it is always there, but among plain tags.

        Where they were made of spans, an entity of several words may come though all in training have one.
        """
        if self.options.labels is not None:
            return self.options.labels
        found: set[str] = set()
        for example in examples:
            found.update(example.tags or ())
            if example.from_spans:
                found.update(f"I-{tag[2:]}" for tag in example.tags or () if tag != "O")
        outside = () if self.options.plain and "O" not in found else ("O",)
        return (*outside, *sorted(found - {"O"}))

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
        windows = cut_windows(ends[breaks], room, max(1, room // 2))
        owner = np.repeat(most_context(windows, ends[breaks]), np.diff(breaks))
        for number, (start, stop) in enumerate(breaks[np.array(windows)].tolist()):
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
                f"the tag {tag!r} of {word!r:.40} is not one that training knows ({known:.200}); correct it, or "
                "name all tags before training: --set task.labels=[…]"
            ) from None

    def logits(self, model: nn.Module, batch: TaskBatch) -> torch.Tensor:
        """(N, C)."""
        return model(batch.input_ids, batch.token_type_ids, batch.lengths, batch.read)

    def loss(self, logits: torch.Tensor, batch: TaskBatch, criterion: Criterion) -> torch.Tensor:
        """Cross-entropy over the words."""
        assert batch.targets is not None
        return criterion.cross_entropy(logits, batch.targets)

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
            {
                "text": example.text,
                "tags": tags[number],
                "entities": self._entities(example, tags[number], shares[number]),
            }
            for number, example in enumerate(examples)
        ]

    def _entities(self, example: TaggedText, tags: list[str], shares: np.ndarray) -> list[dict[str, Any]]:
        found = []
        for span in spans_of(tags, plain=self.options.plain):
            start, end = example.offsets[span.start][0], example.offsets[span.stop - 1][1]
            score = float(shares[span.start : span.stop].mean())
            found.append(
                {"label": span.label, "text": example.text[start:end], "start": start, "end": end, "score": score}
            )
        return found

    def score(self, examples: Sequence[TaggedText], predictions: Sequence[Prediction]) -> Scores:
        """Entities by span, as conlleval counts them; and F1 by class."""
        golds = [example.tags or () for example in examples]
        found = score_entities(golds, [prediction["tags"] for prediction in predictions], plain=self.options.plain)
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
