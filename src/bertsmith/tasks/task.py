"""What every kind of task is: it reads files, encodes examples, turns logits into a loss or into answers, and scores.

A kind is a subclass of `Task` in a file of its own, named in `kinds.py`; training, evaluation and prediction know
nothing else of it. On the way from a file to a score:

    read    a file to examples, each with its place in the file
    encode  examples to `Item`s: what the model reads, and what it should say
    logits  a `TaskBatch` of items through the model
    loss    logits to a sum that training makes smaller
    outputs logits to plain numbers, one array an item
    decode  those to predictions, one an example, as JSON has them
    score   predictions against the examples

Shapes: T tokens in all, B sequences, G items, N targets, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field

from bertsmith.errors import ConfigError
from bertsmith.settings import Name, Strict, changed, validated
from bertsmith.tasks.tables import Column

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from torch import nn

    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = [
    "Criterion",
    "Example",
    "Item",
    "Prediction",
    "Scores",
    "Task",
    "TaskBatch",
    "TaskOptions",
    "TooLong",
    "count_texts_cut",
    "packed_ids",
    "packed_texts",
    "say_cut",
    "say_left_out",
]

Prediction = dict[str, Any]
Scores = dict[str, float]
Example = TypeVar("Example")


@dataclass(frozen=True, slots=True)
class Item:
    """What the model reads at once: one sequence, or several that belong together (choices, segments)."""

    ids: tuple[np.ndarray, ...]
    types: tuple[np.ndarray, ...]
    targets: np.ndarray | None = None  # (n, …) what to say; None where nobody knows
    read: np.ndarray | None = None  # (n,) the tokens of its one sequence that the head reads; None: the head's own
    notes: Any = None  # what decoding wants to know

    @property
    def num_tokens(self) -> int:
        """Over all its sequences."""
        return sum(len(sequence) for sequence in self.ids)


@dataclass(frozen=True)
class TaskBatch:
    """Items laid end to end, without padding."""

    input_ids: torch.Tensor  # (T,)
    token_type_ids: torch.Tensor  # (T,)
    lengths: torch.Tensor  # (B,) on the CPU
    groups: torch.Tensor  # (G,) sequences of each item; on the CPU
    read: torch.Tensor | None  # (N,) rows; on the CPU
    targets: torch.Tensor | None  # (N, …)

    @classmethod
    def of(cls, items: Sequence[Item], device: torch.device | str = "cpu") -> TaskBatch:
        """Pack items."""
        sequences = [sequence for item in items for sequence in item.ids]
        lengths = np.array([len(sequence) for sequence in sequences])
        ids, types = np.concatenate(sequences), np.concatenate([kind for item in items for kind in item.types])
        read = targets = None
        if items[0].read is not None:
            starts = np.cumsum(lengths) - lengths
            rows = [start + item.read for start, item in zip(starts, items, strict=True) if item.read is not None]
            read = torch.from_numpy(np.concatenate(rows))
        if items[0].targets is not None:
            targets = torch.from_numpy(np.concatenate([i.targets for i in items if i.targets is not None])).to(device)
        return cls(
            torch.from_numpy(ids.astype(np.int64)).to(device),
            torch.from_numpy(types.astype(np.int64)).to(device),
            torch.from_numpy(lengths),
            torch.tensor([len(item.ids) for item in items]),
            read,
            targets,
        )

    def split_read(self, rows: np.ndarray) -> list[np.ndarray]:
        """What stands for the rows that are read, (N, …), cut by sequence."""
        assert self.read is not None
        owner = np.searchsorted(np.cumsum(self.lengths.numpy()), self.read.numpy(), side="right")
        return np.split(rows, np.cumsum(np.bincount(owner, minlength=len(self.lengths)))[:-1])


@dataclass(frozen=True)
class Criterion:
    """How wrong an answer counts: a weight for each class, and how much of the truth is shared among all of them."""

    class_weights: tuple[float, ...] | None = None
    smoothing: float = 0.0

    def cross_entropy(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The sum over targets, each by the weight of its own class.

        Torch's own weights would count what smoothing gives to another class by that one's weight, and make the rarest
        the likeliest of all.
        """
        losses = F.cross_entropy(logits.float(), targets, label_smoothing=self.smoothing, reduction="none")
        return losses.sum() if self.class_weights is None else losses @ losses.new_tensor(self.class_weights)[targets]


class TaskOptions(Strict):
    """What every kind can be told. `metric` decides which model is the best."""

    free: ClassVar[frozenset[str]] = frozenset({"columns"})
    columns: dict[str, Column] = Field(default_factory=dict)
    labels: tuple[Name, ...] | None = None
    max_length: Annotated[int, Field(ge=8)] = 128
    metric: str = "accuracy"


class TooLong(NamedTuple):
    """What is cut, as the end of "3 of 40 texts", and what can be done about it in training and later."""

    what: str
    in_training: str
    later: str = "--set max_length=…"


class Task(ABC, Generic[Example]):
    """One task: a kind, its options, and the names of its classes once they are known."""

    kind: ClassVar[str]
    head: ClassVar[str]  # the kind of model, as `model.heads` names them
    metrics: ClassVar[tuple[str, ...]]
    fields: ClassVar[tuple[str, ...]]  # what columns can be named for
    Options: ClassVar[type[TaskOptions]] = TaskOptions
    num_outputs: ClassVar[int | None] = None  # where it is not the number of labels
    smooths: ClassVar[bool] = True  # whether its loss knows `Criterion.smoothing`

    def __init__(self, options: TaskOptions, labels: Sequence[str] = ()) -> None:
        self.options = options
        self.labels = tuple(labels or options.labels or ())
        if options.metric not in self.metrics:
            raise ConfigError(f"metric: {options.metric!r} is not one of {', '.join(self.metrics)}")
        for name in options.columns:
            if name not in self.fields:
                raise ConfigError(f"columns: {self.kind} has no field {name!r:.60}; there are {', '.join(self.fields)}")
        if len(set(self.labels)) < len(self.labels):
            raise ConfigError(f"labels: one stands there twice: {', '.join(self.labels):.200}")

    @classmethod
    def of(cls, content: Mapping[str, Any], labels: Sequence[str] = ()) -> Self:
        """A task from plain values, as a model folder holds them."""
        if not isinstance(content, Mapping):
            raise ConfigError(f"task: expected options by name, found {content!r:.60}")
        return cls(validated(cls.Options, {"metric": cls.metrics[0], **content}, "task: "), labels)

    def changed(self, **changes: Any) -> Self:
        """The same task with other options; columns are added to those that are named already."""
        return type(self)(changed(self.options, changes), self.labels)

    def refuse_idle(self, given: Collection[str]) -> None:
        """Refuse options that somebody gave, by name, and that change nothing."""
        del given

    def with_labels(self, labels: Sequence[str]) -> Self:
        """The same task with its classes named."""
        return type(self)(self.options, labels)

    def find_labels(self, examples: Iterable[Example]) -> tuple[str, ...]:
        """The names of the classes in training examples, in a fixed order; none where there are no classes."""
        del examples
        return ()

    def remarks(self, examples: Sequence[Example]) -> list[str]:
        """What a person should know of the training examples before they are trained on."""
        del examples
        return ["all examples are of one class"] if len(self.labels) == 1 else []

    @abstractmethod
    def read(self, name: str, *, labelled: bool = True) -> Iterator[Example]:
        """The examples of a file, one after the other; `labelled` says whether they must tell what is right."""

    def count_left_out(self, name: str, rows: int | None = None) -> int:
        """How many rows of a labelled file its options leave out, up to so many examples; a person should know."""
        del name, rows
        return 0

    @abstractmethod
    def example(self, *values: Any, **fields: Any) -> Example:
        """An example from what a caller has at hand, without what is right; every kind names its own fields."""

    def reads_together(self, example: Example, following: Example) -> bool:
        """Whether what is made of an example depends on the one that follows it, so that none may come alone."""
        del example, following
        return False

    @abstractmethod
    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer) -> list[Item]:
        """What the model reads of examples, in their order."""

    def cuts(self, examples: Sequence[Example], tokenizer: Tokenizer) -> bool:
        """Whether something of one of them is too long to be read; never, where windows read all of it."""
        del examples, tokenizer
        return False

    def count_cut(self, examples: Sequence[Example], items: Sequence[Item], tokenizer: Tokenizer) -> int:
        """How many examples are cut though nobody has said how; `items` are what `encode` made of them."""
        del examples, items, tokenizer
        return 0

    @property
    def too_long(self) -> TooLong:
        """What `count_cut` counts."""
        return TooLong(f"are longer than {self.options.max_length} pieces, and are cut", "--max-length")

    def check_alike(self, training: Example, other: Example) -> None:
        """Refuse an example of another file that is not made as one of training's is."""
        del training, other

    @abstractmethod
    def logits(self, model: nn.Module, batch: TaskBatch) -> torch.Tensor:
        """A batch through a model of kind `head`."""

    def num_read(self, length: int) -> int:
        """How many rows of a sequence the head reads, where items do not say it: `[CLS]`, mostly."""
        del length
        return 1

    @abstractmethod
    def loss(self, logits: torch.Tensor, batch: TaskBatch, criterion: Criterion) -> torch.Tensor:
        """The sum over all targets."""

    def weigh(self, items: Sequence[Item], criterion: Criterion) -> float:
        """What the loss is divided by: the number of targets, or the sum of their weights."""
        targets = [item.targets for item in items if item.targets is not None]
        if criterion.class_weights is None:
            return float(sum(len(target) for target in targets))
        return float(sum(np.asarray(criterion.class_weights)[target].sum() for target in targets))

    @abstractmethod
    def outputs(self, logits: torch.Tensor, batch: TaskBatch) -> list[np.ndarray]:
        """Logits as plain numbers, one array an item."""

    @abstractmethod
    def decode(self, examples: Sequence[Example], items: Sequence[Item], outputs: Sequence[Any]) -> list[Prediction]:
        """One prediction an example, from what `encode` and `outputs` gave."""

    @abstractmethod
    def score(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> Scores:
        """How good predictions are, by the task's own measures."""

    def tune(self, examples: Sequence[Example], predictions: Sequence[Prediction]) -> Self:
        """The task with whatever is set by looking at dev predictions, such as a threshold."""
        del examples, predictions
        return self

    def learned(self, examples: Sequence[Example]) -> Self:
        """The task as a model knows it that was trained on these: with what later files must be alike in."""
        del examples
        return self

    @property
    def problem_type(self) -> str | None:
        """What `config.json` calls it, so that `transformers` takes the right loss."""
        return None

    def balance(self, items: Sequence[Item]) -> tuple[float, ...]:
        """Weights of classes by which each counts as much as the others."""
        counts = np.bincount(np.concatenate([item.targets for item in items]), minlength=len(self.labels))
        return tuple((counts.sum() / (len(counts) * counts.clip(1))).tolist())

    def attach(self, model: nn.Module, generator: torch.Generator | None = None) -> None:
        """Add to a model what its kind of head has not; nothing, mostly. The generator is for weights that are new."""


def say_left_out(task: Task[Any], name: str | None, rows: int | None = None) -> list[str]:
    """A sentence, where rows of a labelled file are left out."""
    count = 0 if name is None else task.count_left_out(name, rows)
    return [f"{name}: {count:,} rows are left out: broken, or labelled -"] if count else []


def count_texts_cut(task: Task[Any], examples: Sequence[Any], items: Sequence[Item], tokenizer: Tokenizer) -> int:
    """How many of the examples, an item each, are cut. Only what fills a sequence can have been."""
    most = task.options.max_length
    full = [one for one, item in zip(examples, items, strict=True) if max(map(len, item.ids)) >= most]
    return sum(task.cuts([one], tokenizer) for one in full)


def say_cut(task: Task[Any], count: int, texts: str, *, in_training: bool = True) -> list[str]:
    """A sentence, where so many of some texts are cut.

    >>> from bertsmith.tasks.classify import Classify
    >>> say_cut(Classify.of({}), 2, "40 texts")
    ['2 of 40 texts are longer than 128 pieces, and are cut; see --max-length and --long']
    """
    known = task.too_long
    return (
        [f"{count:,} of {texts} {known.what}; see {known.in_training if in_training else known.later}"] if count else []
    )


def packed_ids(tokenizer: Tokenizer, *parts: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pieces of one text, or of two, to `[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`: ids and segments."""
    pieces = [*chain.from_iterable([*part, tokenizer.sep_id] for part in parts)]
    segments = [kind for kind, part in enumerate(parts) for _ in range(len(part) + 1)]
    return np.array([tokenizer.cls_id, *pieces], np.int32), np.array([0, *segments], np.int32)


def packed_texts(
    tokenizer: Tokenizer, texts: Sequence[str | tuple[str, str]], max_length: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Ids and segments of texts and pairs of texts, in any mixture; each as it would be alone, cut to `max_length`."""
    plain = [text for text in texts if not isinstance(text, tuple)]
    pairs = [text for text in texts if isinstance(text, tuple)]
    rows = iter(tokenizer.encode_ids(plain, max_length=max_length))
    made = iter(tokenizer.encode_batch(*zip(*pairs, strict=True), max_length=max_length) if pairs else ())
    found = []
    for text in texts:
        if isinstance(text, tuple):
            encoding = next(made)
            found.append((np.array(encoding.ids, np.int32), np.array(encoding.type_ids, np.int32)))
        else:
            ids = np.array(next(rows), np.int32)
            found.append((ids, np.zeros_like(ids)))
    return found
