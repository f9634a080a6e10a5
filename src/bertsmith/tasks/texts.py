"""A text, or two, and a label: what `classify` and `regress` read; and how a text that is too long is cut.

Long text (`--long`): `head` keeps its beginning, `tail` its end, `head+tail` some of both (`--head` pieces of the
beginning, the rest from the end; 128 and 382 in Sun et al., 2019), `segments` all of it, in sequences of equal size
that share a batch and are joined after the encoder (`--pool`). Without it the longer of two texts is cut until both
fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field

from bertsmith.errors import ConfigError
from bertsmith.settings import Strict
from bertsmith.tasks.tables import SEMICOLONS, Column, Place, Row, has_semicolons, is_plain_text, read_rows
from bertsmith.tasks.task import Example, Task, TaskOptions, TooLong, packed_ids, packed_texts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from bertsmith.tasks.task import Item
    from bertsmith.vocab.tokenizer import Tokenizer

__all__ = [
    "LongOptions",
    "LongTextOptions",
    "LongTextTask",
    "Pool",
    "TextExample",
    "TextOptions",
    "column_of",
    "count_pairs_cut",
    "encode_texts",
    "is_cut",
    "read_texts",
]

LongMode = Literal["head", "tail", "head+tail", "segments"]
Pool = Literal["max", "mean", "attention"]
Sequences = tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]  # ids and segments, one array a sequence

# How people call their columns, the likeliest first.
_USUAL = {
    "text": ("text", "sentence", "text_a", "sentence1", "question1", "question", "premise"),
    "pair": ("pair", "text_b", "sentence2", "question2", "hypothesis"),
    "label": ("label", "labels", "score", "gold_label"),
}


_NO_LABEL = "-"  # of what the annotators could not agree on, in SNLI and sets like it


class LongOptions(Strict):
    """What becomes of a text that does not fit; `head` counts pieces, `pool` says how segments are joined.

    Without a number the head is a quarter of the room: 128 of 510, as "How to Fine-Tune BERT" (2019) has it.
    """

    mode: LongMode | None = None
    pool: Pool = "max"
    head: Annotated[int, Field(ge=1)] | None = None


class LongTextOptions(TaskOptions):
    """Of tasks whose (first) text may be too long."""

    long: LongOptions = Field(default_factory=LongOptions)


class LongTextTask(Task[Example]):
    """What tasks with such options share."""

    Options = LongTextOptions
    options: LongTextOptions

    def __init__(self, options: LongTextOptions, labels: Sequence[str] = ()) -> None:
        super().__init__(options, labels)
        first, most = options.long.head, options.max_length - 3
        if first is not None and options.long.mode != "head+tail":
            raise ConfigError("long.head: is for --long head+tail; leave it out, or give that")
        if first is not None and first > most:
            raise ConfigError(f"long.head: {first} pieces of {options.max_length} leave no tail; take {most} at most")

    def changed(self, **changes: Any) -> Self:
        """See `Task`; how long a head is goes when the mode does."""
        if changes.get("long.mode", "head+tail") != "head+tail":
            changes = {"long.head": None, **changes}
        return super().changed(**changes)

    def refuse_idle(self, given: Collection[str]) -> None:
        """See `Task`."""
        if "long.pool" in given and self.options.long.mode != "segments":
            raise ConfigError("--pool: joins the segments of --long segments; give that too, or leave it out")

    @property
    def too_long(self) -> TooLong:
        """See `Task`."""
        if self.options.long.mode is None:
            return TooLong(super().too_long.what, "--max-length and --long")
        what = f"have a second text that is cut to go with the first into {self.options.max_length} pieces"
        return TooLong(what, "--max-length, or make it the first: --column text=…")


class TextOptions(LongTextOptions):
    """Of tasks on texts.

    `lenient`: whether labelled lines with too few or too many columns, and those that nobody could label (`-`), are
    left out instead of refused; QQP and OCNLI have some. `pairs`: whether there are second texts; a trained model
    knows it. Files without them are refused, or nobody looks for them; where nothing is said, it is as a file has it.
    `both_orders`: whether a pair is read both ways round and answered once, from the mean of the two (Radford et al.,
    2018): for what does not depend on the order, such as whether two sentences say the same. Not with `long`, which is
    about first texts.
    """

    lenient: bool = False
    pairs: bool | None = None
    both_orders: bool = False


@dataclass(frozen=True, slots=True)
class TextExample:
    """A text, perhaps a second one, and what is right, as the file has it."""

    place: Place
    text: str
    pair: str | None
    label: Any


def column_of(row: Row, field: str, columns: dict[str, Column]) -> Column | None:
    """The column of a field: as told, or by its usual names; None where there is none."""
    if field in columns:
        return columns[field]
    return next((name for name in _USUAL.get(field, (field,)) if row.has(name)), None)


def read_texts(
    name: str,
    columns: dict[str, Column],
    *,
    labelled: bool,
    pairs: bool | None = None,
    may_be_empty: bool = False,
    left_out: list[Place] | None = None,
) -> Iterator[TextExample]:
    """The rows of a table as texts; labels are left out where nobody asked for them. Plain lines have no columns.

    The first row says whether there are second texts, unless `pairs` does (see `TextOptions`). Rows that
    `TextOptions.lenient` is about are an error, or are added to `left_out`.
    """
    chosen: dict[str, Column | None] | None = None
    if not labelled and is_plain_text(name, told=bool(columns)):
        columns = {}
    fields = ("text", "label") if pairs is False else ("text", "pair", "label")
    wanted = [column for field, column in columns.items() if field in fields and (labelled or field != "label")]
    for row in read_rows(name, wanted, lenient=left_out is not None):
        if left_out is not None and not row.cells:
            left_out.append(row.place)
            continue
        if chosen is None:
            chosen = {field: column_of(row, field, columns) for field in fields}
            _refuse_doubt(row, chosen, columns, labelled=labelled)
            if pairs and chosen["pair"] is None:
                raise row.place.error(
                    "there is no second text, and the task is about pairs; name its column with --column pair=…, "
                    "or set pairs and both_orders to false"
                )
        elif pairs is None and chosen["pair"] is None and (late := column_of(row, "pair", columns)) is not None:
            raise row.place.error(f"column {late!r} is a second text, and the first row has none; give all one or none")
        text, pair, label = chosen["text"], chosen.get("pair"), chosen["label"]
        assert text is not None
        found = row.get(label) if labelled and label is not None else None
        if isinstance(found, str):
            found = found.strip()  # a stray space makes no class of its own
        if left_out is not None and found == _NO_LABEL:
            left_out.append(row.place)
            continue
        if labelled and (found is None or (found == "" and not may_be_empty)):
            raise row.place.error(f"column {label!r} is empty; write the label, or remove the row")
        yield TextExample(row.place, row.text(text), None if pair is None else row.text(pair), found)


def _refuse_doubt(row: Row, chosen: dict[str, Column | None], columns: dict[str, Column], *, labelled: bool) -> None:
    """Refuse a first row that could be read in several ways, or in none."""
    for field in ("text", "label") if labelled else ("text",):
        if chosen[field] is None:
            there = ", ".join(str(column) for column in row.cells)
            remedy = SEMICOLONS if has_semicolons(list(row.cells)) else f"name it with --column {field}=…"
            raise row.place.error(f"which column is the {field}? There are {there:.200}; {remedy}")
    texts = [name for name in _USUAL["text"] if row.has(name)]
    if "text" not in columns and chosen.get("pair") is None and len(texts) > 1:
        raise row.place.error(
            f"{texts[0]!r} and {texts[1]!r} are both here, and either could be the text; name it with --column text=…, "
            "and a second one with --column pair=…"
        )
    labels = [name for name in _USUAL["label"] if row.has(name)]
    if labelled and "label" not in columns and len(labels) > 1:
        raise row.place.error(
            f"{labels[0]!r} and {labels[1]!r} are both here, and either could be the label; name it with "
            "--column label=…"
        )
    said = [str(cell).strip().lower() for cell in row.cells.values()]
    all_usual = len(said) > 1 and set(said) <= set().union(*_USUAL.values())
    for field, column in chosen.items():
        looked_at = labelled or field != "label"
        if not looked_at or not isinstance(column, int):
            continue
        if all_usual or str(row.get(column)).strip().lower() in _USUAL[field]:
            raise row.place.error(
                f"column {column} holds {row.get(column)!r}: this line is a header; name columns by name, or remove it"
            )


def encode_texts(
    examples: Sequence[TextExample], tokenizer: Tokenizer, max_length: int, long: LongOptions
) -> list[Sequences]:
    """The sequences of each example: ids and segments."""
    if long.mode is not None:
        return [_cut_long(example, tokenizer, max_length, long) for example in examples]
    texts = [example.text if example.pair is None else (example.text, example.pair) for example in examples]
    return [((ids,), (types,)) for ids, types in packed_texts(tokenizer, texts, max_length)]


def is_cut(example: TextExample, tokenizer: Tokenizer, max_length: int, long: LongOptions) -> bool:
    """Whether `encode_texts` leaves out something of an example."""
    counts = _count_pieces(example, tokenizer, max_length)
    if long.mode is not None and _pair_is_cut(counts, max_length):
        return True
    return long.mode != "segments" and sum(counts) + len(counts) + 1 > max_length


def count_pairs_cut(
    groups: Sequence[Sequence[TextExample]], items: Sequence[Item], tokenizer: Tokenizer, max_length: int
) -> int:
    """In how many items second texts are cut where `long.mode` says how first ones are; a group of pairs is in each.

    Only a long one can have been.
    """
    most = (max_length - 3) // 2  # with its [SEP]
    long = [group for group, item in zip(groups, items, strict=True) if max(kinds.sum() for kinds in item.types) > most]
    return sum(
        any(_pair_is_cut(_count_pieces(pair, tokenizer, max_length), max_length) for pair in group) for group in long
    )


def _count_pieces(example: TextExample, tokenizer: Tokenizer, max_length: int) -> list[int]:
    """Of the first text, and of the second where there is one; what is too long is counted up to that."""
    texts = [example.text] if example.pair is None else [example.text, example.pair]
    return [len(ids) - 2 for ids in tokenizer.encode_ids(texts, max_length=max_length + 1)]


def _pair_is_cut(counts: list[int], max_length: int) -> bool:
    first, *second = counts
    return bool(second) and second[0] > _most_of_pair(max_length, first)


def _most_of_pair(max_length: int, first: int) -> int:
    """Pieces of a second text that go with every sequence of the first, which has so many: half, or what is left.

    >>> _most_of_pair(128, first=1000), _most_of_pair(128, first=2)
    (62, 123)
    """
    return max((max_length - 3) // 2, max_length - 3 - first)


def _cut_long(example: TextExample, tokenizer: Tokenizer, max_length: int, long: LongOptions) -> Sequences:
    """The first text as `long` has it; the second, where there is one, goes with every sequence (`_most_of_pair`)."""
    pieces = np.array(tokenizer.encode_ids([example.text])[0][1:-1], np.int32)
    second: list[np.ndarray] = []
    room = max_length - 2
    if example.pair is not None:
        most = _most_of_pair(max_length, len(pieces))
        second = [np.array(tokenizer.encode_ids([example.pair])[0][1:-1], np.int32)[:most]]
        room -= len(second[0]) + 1
    sequences = [packed_ids(tokenizer, part, *second) for part in _parts(pieces, room, long)]
    return tuple(ids for ids, _ in sequences), tuple(types for _, types in sequences)


def _parts(pieces: np.ndarray, room: int, long: LongOptions) -> list[np.ndarray]:
    """The pieces that are read, in sequences of at most `room`.

    >>> [part.tolist() for part in _parts(np.arange(7), 3, LongOptions(mode="segments"))]
    [[0, 1, 2], [3, 4], [5, 6]]
    >>> _parts(np.arange(7), 3, LongOptions(mode="head+tail", head=1))[0].tolist()
    [0, 5, 6]
    >>> _parts(np.arange(20), 8, LongOptions(mode="head+tail"))[0].tolist()
    [0, 1, 14, 15, 16, 17, 18, 19]
    """
    if len(pieces) <= room:
        return [pieces]
    if long.mode == "segments":
        return np.array_split(pieces, -(-len(pieces) // room))
    if long.mode == "head":
        return [pieces[:room]]
    if long.mode == "tail":
        return [pieces[-room:]]
    head = max(1, min(long.head or round(room / 4), room - 1))
    return [np.concatenate((pieces[:head], pieces[head - room :]))]
