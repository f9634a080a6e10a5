"""`classify`: a class, or several, for a text or a pair of texts."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter, deque
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field

from bertsmith.errors import ConfigError, InputError
from bertsmith.model.heads import Classifier
from bertsmith.tasks import scores
from bertsmith.tasks.tables import NOWHERE, Place, written_out
from bertsmith.tasks.task import Criterion, Item, Prediction, Scores, TaskBatch, count_texts_cut
from bertsmith.tasks.texts import (
    LongTextTask,
    TextExample,
    TextOptions,
    count_pairs_cut,
    encode_texts,
    is_cut,
    read_texts,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import nn

    from bertsmith.tasks.texts import Pool
    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = ["Classify", "ClassifyOptions", "TextTask"]

_NO_NAMES = ("nan", "none", "null", "n/a")


class ClassifyOptions(TextOptions):
    """`multilabel`: any number of classes a text, apart by `separator` in a table; those above `threshold` are named.

    `positive` is the class whose F1 is meant where there are two; the second, if nothing else is said.
    """

    as_text: ClassVar[frozenset[str]] = frozenset({"separator", "positive"})

    multilabel: bool = False
    separator: Annotated[str, Field(min_length=1)] = "|"
    threshold: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    positive: str | None = None


class TextTask(LongTextTask[TextExample]):
    """What `classify` and `regress` share: sequences in, a row of logits an item."""

    head = "classification"
    fields = ("text", "pair", "label")
    Options = TextOptions
    options: TextOptions

    def __init__(self, options: TextOptions, labels: Sequence[str] = ()) -> None:
        super().__init__(options, labels)
        if options.both_orders and options.pairs is False:
            raise ConfigError("both_orders: is for pairs, and pairs is false; change one of them")
        if options.both_orders and options.long.mode is not None:
            raise ConfigError("both_orders: makes each text the first once, and long is about the first; change one")

    @property
    def _pairs(self) -> bool | None:
        """Whether there must be second texts; None where a file says it."""
        return True if self.options.both_orders else self.options.pairs

    @property
    def _pool(self) -> Pool | None:
        """How the sequences of an item become one; None where there is one only."""
        if self.options.both_orders:
            return "mean"
        return self.options.long.pool if self.options.long.mode == "segments" else None

    def _orders(self, example: TextExample) -> list[TextExample]:
        """As it is, and turned round where both orders are read."""
        if not self.options.both_orders:
            return [example]
        if example.pair is None:
            raise example.place.error("there is no second text, and both orders of a pair are asked for")
        return [example, replace(example, text=example.pair, pair=example.text)]

    def read(self, name: str, *, labelled: bool = True) -> Iterator[TextExample]:
        """A table with the columns text, pair (perhaps) and label. Whoever wants predictions wants one a line."""
        return self._read(name, labelled, [] if self.options.lenient and labelled else None)

    def _read(self, name: str, labelled: bool, left_out: list[Place] | None) -> Iterator[TextExample]:
        return read_texts(
            name,
            self.options.columns,
            labelled=labelled,
            pairs=self._pairs,
            may_be_empty=self.label_may_be_empty,
            left_out=left_out,
        )

    def remarks(self, examples: Sequence[TextExample]) -> list[str]:
        """Also of empty texts."""
        empty = sum(not example.text.strip() for example in examples)
        return super().remarks(examples) + ([f"{empty:,} of {len(examples):,} texts are empty"] if empty else [])

    def count_left_out(self, name: str, rows: int | None = None) -> int:
        """The rows that `lenient` leaves out."""
        found: list[Place] = []
        if self.options.lenient:
            deque(islice(self._read(name, True, found), rows), maxlen=0)
        return len(found)

    @property
    def label_may_be_empty(self) -> bool:
        """Whether nothing is an answer too."""
        return False

    def example(self, text: str, pair: str | None = None) -> TextExample:
        """A text, or a pair of texts; as in training, where that is known."""
        if self._pairs is not None and self._pairs != (pair is not None):
            have, wants = ("no second text", "pairs") if pair is None else ("a second text", "single texts")
            raise InputError(f"there is {have}, and the model is for {wants}")
        return TextExample(NOWHERE, text, pair, None)

    def encode(self, examples: Sequence[TextExample], tokenizer: Tokenizer) -> list[Item]:
        """One item an example; of several sequences where long text is cut into segments, or both orders are read."""
        orders = [self._orders(example) for example in examples]
        flat = list(chain.from_iterable(orders))
        made = iter(encode_texts(flat, tokenizer, self.options.max_length, self.options.long))
        items = []
        for example, each in zip(examples, orders, strict=True):
            ids, types = zip(*(next(made) for _ in each), strict=True)
            items.append(Item(tuple(chain(*ids)), tuple(chain(*types)), self.target(example)))
        return items

    def cuts(self, examples: Sequence[TextExample], tokenizer: Tokenizer) -> bool:
        """See `is_cut`."""
        return any(is_cut(example, tokenizer, self.options.max_length, self.options.long) for example in examples)

    def count_cut(self, examples: Sequence[TextExample], items: Sequence[Item], tokenizer: Tokenizer) -> int:
        """Where `long` does not say how: of second texts it says nothing."""
        if self.options.long.mode is None:
            return count_texts_cut(self, examples, items, tokenizer)
        return count_pairs_cut([[example] for example in examples], items, tokenizer, self.options.max_length)

    def check_alike(self, training: TextExample, other: TextExample) -> None:
        """Both have a second text, or none has."""
        if training.pair is not None and other.pair is None:
            raise other.place.error("there is no second text, but training has one; name its column: --column pair=…")
        if training.pair is None and other.pair is not None:
            raise other.place.error("there is a second text, but training has none; give both files one, or none")

    def learned(self, examples: Sequence[TextExample]) -> Self:
        """Whether there are second texts."""
        return self.changed(pairs=examples[0].pair is not None)

    @abstractmethod
    def target(self, example: TextExample) -> np.ndarray | None:
        """What the model should say; None where the example does not tell."""

    def logits(self, model: nn.Module, batch: TaskBatch) -> torch.Tensor:
        """(G, C)."""
        assert isinstance(model, Classifier)
        groups = None if self._pool is None else batch.groups
        return model(batch.input_ids, batch.token_type_ids, batch.lengths, groups)

    def attach(self, model: nn.Module, generator: torch.Generator | None = None) -> None:
        """What joins the sequences of an item."""
        assert isinstance(model, Classifier)
        if self._pool is not None and (model.segments is None or model.segments.how != self._pool):
            model.join_segments(self._pool, generator or torch.Generator())


class Classify(TextTask):
    """Classes by name."""

    kind = "classify"
    metrics = ("accuracy", "f1", "macro_f1", "micro_f1", "matthews")
    Options = ClassifyOptions
    options: ClassifyOptions

    def __init__(self, options: ClassifyOptions, labels: Sequence[str] = ()) -> None:
        super().__init__(options, labels)
        if options.multilabel and options.metric == "matthews":
            raise ConfigError("metric: matthews is for one class a text, not for several; take f1")
        if self.labels and options.positive not in (None, *self.labels):
            raise ConfigError(f"positive: {options.positive!r} is not one of the classes {', '.join(self.labels):.200}")

    def read(self, name: str, *, labelled: bool = True) -> Iterator[TextExample]:
        """See `TextTask`; to classes that nobody has named, as `transformers` does without, a file may give numbers."""
        unnamed = bool(self.labels) and self.labels == tuple(f"LABEL_{number}" for number in range(len(self.labels)))
        examples = super().read(name, labelled=labelled)
        return map(self._by_number, examples) if labelled and unnamed else examples

    def _by_number(self, example: TextExample) -> TextExample:
        """`1` is the class LABEL_1."""
        names = [f"LABEL_{name}" if f"LABEL_{name}" in self.labels else name for name in self._names(example)]
        return replace(example, label=names if self.options.multilabel else names[0])

    @property
    def label_may_be_empty(self) -> bool:
        """Of several classes a text may have none."""
        return self.options.multilabel

    def find_labels(self, examples: Iterable[TextExample]) -> tuple[str, ...]:
        """All that occur, numbers in their order, other names by alphabet; or as the options have them."""
        if self.options.labels is not None:
            return self.options.labels
        found = {name for example in examples for name in self._names(example)}
        return tuple(sorted(found, key=_numbers_first))

    def remarks(self, examples: Sequence[TextExample]) -> list[str]:
        """Also classes that were hardly meant.

        One of the first line alone, where columns go by number, may be a header.
        """
        found = [*super().remarks(examples), *_doubtful(self.labels)]
        if self.options.multilabel and all(isinstance(written_out(example.label), str) for example in examples):
            held = [label for label in self.labels if "," in label or ";" in label]
            found += [f"{held[0]!r:.60} is one class; if it is several: --set 'task.separator=…'"] if held else []
        if isinstance(self.options.columns.get("label"), int) and len(self.labels) > 2:
            first, *others = (self._names(example) for example in examples)
            for name in {*first}.difference(*others):
                found.append(
                    f"{examples[0].place}: no other line has the class {name!r:.60}; if that is a header, remove it"
                )
        return found

    def target(self, example: TextExample) -> np.ndarray | None:
        """(1,) the number of the class, or (1, C) which of them."""
        if example.label is None:
            return None
        numbers = [self._number(name, example) for name in self._names(example)]
        if not self.options.multilabel:
            return np.array(numbers)
        chosen = np.zeros((1, len(self.labels)), np.float32)
        chosen[0, numbers] = 1
        return chosen

    def loss(self, logits: torch.Tensor, batch: TaskBatch, criterion: Criterion) -> torch.Tensor:
        """Cross-entropy, of each class alone where there may be several."""
        assert batch.targets is not None
        if not self.options.multilabel:
            return criterion.cross_entropy(logits, batch.targets)
        wanted = batch.targets * (1 - criterion.smoothing) + criterion.smoothing / 2
        losses = F.binary_cross_entropy_with_logits(logits.float(), wanted, reduction="none")
        if criterion.class_weights is not None:  # of a class where it is right to name it
            losses = losses * torch.where(batch.targets > 0, losses.new_tensor(criterion.class_weights), 1.0)
        return losses.mean(1).sum()

    @property
    def problem_type(self) -> str:
        """See `Task`."""
        return "multi_label_classification" if self.options.multilabel else "single_label_classification"

    def balance(self, items: Sequence[Item]) -> tuple[float, ...]:
        """Of several classes a text: how many texts are without each, for one that has it."""
        if not self.options.multilabel:
            return super().balance(items)
        have = np.concatenate([item.targets for item in items]).sum(0)
        return tuple(((len(items) - have) / have.clip(1)).clip(1e-3).tolist())

    def weigh(self, items: Sequence[Item], criterion: Criterion) -> float:
        """The number of items where classes are each on their own."""
        return float(len(items)) if self.options.multilabel else super().weigh(items, criterion)

    def outputs(self, logits: torch.Tensor, batch: TaskBatch) -> list[np.ndarray]:
        """(C,) probabilities."""
        del batch
        shares = logits.float().sigmoid() if self.options.multilabel else logits.float().softmax(1)
        return list(shares.cpu().numpy())

    def decode(
        self, examples: Sequence[TextExample], items: Sequence[Item], outputs: Sequence[np.ndarray]
    ) -> list[Prediction]:
        """The likeliest class and its probability, or all classes above the threshold; and the probabilities of all."""
        del examples, items
        return [self._predict(shares) for shares in outputs]

    def _predict(self, shares: np.ndarray) -> Prediction:
        each = {label: float(share) for label, share in zip(self.labels, shares, strict=True)}
        if self.options.multilabel:
            chosen = [label for label, share in each.items() if share > self.options.threshold]
            return {"labels": chosen, "scores": each}
        best = self.labels[int(shares.argmax())]
        return {"label": best, "score": each[best], "scores": each}

    def score(self, examples: Sequence[TextExample], predictions: Sequence[Prediction]) -> Scores:
        """Accuracy, F1 and, where there is one class a text, Matthews' correlation."""
        if self.options.multilabel:
            golds = [set(self._names(example)) for example in examples]
            named = [set(prediction["labels"]) for prediction in predictions]
            return {
                "accuracy": sum(gold == guess for gold, guess in zip(golds, named, strict=True)) / len(golds),
                "f1": scores.multilabel_f1(golds, named, average="micro"),
                "micro_f1": scores.multilabel_f1(golds, named, average="micro"),
                "macro_f1": scores.multilabel_f1(golds, named, average="macro"),
            }
        right = [name for example in examples for name in self._names(example)]
        guesses = [prediction["label"] for prediction in predictions]
        macro = scores.macro_f1(right, guesses)
        two = len(self.labels) == 2
        positive = self.options.positive or (self.labels[1] if two else None)
        return {
            "accuracy": scores.accuracy(right, guesses),
            "f1": scores.binary_f1(right, guesses, positive) if positive is not None else macro,
            "macro_f1": macro,
            "micro_f1": scores.micro_f1(right, guesses),
            "matthews": scores.matthews(right, guesses),
        }

    def _names(self, example: TextExample) -> list[str]:
        """The classes of an example, as the file has them."""
        label: Any = written_out(example.label) if self.options.multilabel else example.label
        if not self.options.multilabel:
            if isinstance(label, list | dict):
                raise example.place.error(f"the label is {label!r:.60}, not one class; for several: --multilabel")
            return [_name(label, example)]
        if isinstance(label, list):
            names = [_name(each, example) for each in label]
        else:
            names = _name(label, example).split(self.options.separator)
            if names[0].startswith("[") and names[-1].endswith("]"):
                raise example.place.error(
                    f"the label {label!r:.60} is no list that JSON or Python writes; mend the row"
                )
        names = [name.strip() for name in names if name.strip()]
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise example.place.error(
                f"the class {twice!r:.60} stands there twice; write the names of its classes, each once (not 0 or 1 "
                "for every class)"
            )
        return names

    def _number(self, name: str, example: TextExample) -> int:
        try:
            return self.labels.index(name)
        except ValueError:
            known = ", ".join(self.labels)
            raise example.place.error(
                f"the label {name!r:.60} is not one that training knows ({known:.200}); correct it or remove the row, "
                "or name all classes before training: --set task.labels=[…]"
            ) from None


def _doubtful(labels: Sequence[str]) -> list[str]:
    """What is odd about the names of classes.

    >>> _doubtful(["0", "1", "1.0", "nan"])
    ["classes '1' and '1.0' are one number; write it in one way", "a class is called 'nan'; is that a label?"]
    """
    found: list[str] = []
    numbers: dict[float, str] = {}
    for label in labels:
        is_name, number, _ = _numbers_first(label)
        if not is_name and numbers.setdefault(number, label) != label:
            found.append(f"classes {numbers[number]!r} and {label!r} are one number; write it in one way")
    return found + [f"a class is called {label!r}; is that a label?" for label in labels if label.lower() in _NO_NAMES]


def _name(label: Any, example: TextExample) -> str:
    """A class as text; what can be none is refused."""
    if not isinstance(label, str | int | float) or label != label:
        raise example.place.error(f"the label {label!r:.60} is no name of a class; correct it or remove the row")
    return str(label)


def _numbers_first(name: str) -> tuple[int, float, str]:
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    return (1, 0.0, name) if math.isnan(number) else (0, number, name)
