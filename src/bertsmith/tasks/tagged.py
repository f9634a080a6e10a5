"""Text with tags, as files have it: CoNLL columns, words and tags in rows, or running text with spans of characters.

Spans come as `[{"start": 0, "end": 11, "label": "PER"}, …]`, as `[[0, 11, "PER"], …]`, or as CLUE has them,
`{"PER": {"Marie Curie": [[0, 10]]}}`, the last character included. They become tags `B-` and `I-` of the words.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from bertsmith.tasks.conll import check_tag
from bertsmith.tasks.tables import Column, Place, Row, written_out
from bertsmith.text.words import has_han

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bertsmith.tasks.conll import Sentence

__all__ = ["TaggedText", "from_conll", "from_row", "from_text", "from_words"]

# Characters that the tokenizer sets apart, and where marks such as accents are.
_APART = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ebef\U0002f800-\U0002fa1f"
_MARKS_WITHIN = ((0x300, 0x3400), (0xA000, 0xAC00), (0xFB00, 0x20000), (0xE0100, 0xE01F0))
_JOINERS = "\u200c\u200d"
_CHARACTER = re.compile(r"\S")
_SPAN_COLUMNS = ("entities", "label", "labels", "spans")  # as tools for labelling call them, the likeliest first


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
    from_spans: bool = False  # whether the tags were made here

    def place_of(self, number: int) -> Place:
        """Of a word: its own line where every word has one."""
        return Place(self.place.file, self.place.line + number) if self.one_a_line else self.place


class _Span(NamedTuple):
    start: int
    end: int
    label: str


def from_conll(sentence: Sentence, *, characters: bool = False) -> TaggedText:
    """A sentence whose words have lines of their own."""
    text, offsets = _joined(sentence.words, characters=characters)
    return TaggedText(sentence.place, text, sentence.words, offsets, sentence.tags, sentence.document, one_a_line=True)


def from_words(
    place: Place, words: Sequence[str], tags: Sequence[str] | None, document: int, *, characters: bool = False
) -> TaggedText:
    """Words, and a text made of them."""
    text, offsets = _joined(words, characters=characters)
    return TaggedText(place, text, tuple(words), offsets, None if tags is None else tuple(tags), document)


def from_text(place: Place, text: str, document: int, *, characters: bool) -> TaggedText:
    """Running text in words, or in characters."""
    found = list((_CHARACTER if characters else _word_pattern()).finditer(text))
    words, offsets = tuple(word[0] for word in found), tuple(word.span() for word in found)
    return TaggedText(place, text, words, offsets, None, document)


@cache
def _word_pattern() -> re.Pattern[str]:
    r"""The words of running text: Chinese characters, other runs of letters and digits, single signs.

    Marks belong to what they stand on, which Python's `\w` does not know; so do the joiners of Persian and of emoji.

    >>> [len(word) for word in _word_pattern().findall("cafe\u0301, 北京")]
    [5, 1, 1, 1]
    """
    marks = [chr(code) for low, high in _MARKS_WITHIN for code in range(low, high) if _is_mark(chr(code))]
    follow = f"[{re.escape(''.join(marks))}{_JOINERS}]"
    return re.compile(f"(?:[{_APART}]|[^\\w\\s]){follow}*|[^\\W{_APART}](?:[^\\W{_APART}]|{follow})*")


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"


def from_row(
    row: Row, columns: dict[str, Column], document: int, *, labelled: bool, characters: bool, plain: bool
) -> TaggedText:
    """A row with words and tags, or with text and spans; where nothing is `labelled`, words or text alone."""
    tokens, tags = columns.get("tokens", "tokens"), columns.get("tags", "tags")
    text = columns.get("text", "text")
    spans = columns.get("entities") or next((name for name in _SPAN_COLUMNS if row.has(name)), None)
    in_words = row.has(tokens) and (row.has(tags) or spans is None)
    if labelled and not in_words and spans is None and row.has(text) and "tokens" not in columns:
        raise row.place.error(
            'there is text, but neither tokens with tags nor entities; write "entities": [] where it has none, or name '
            "their column with --column entities=…"
        )
    if columns.keys() & {"word", "tag"} and not row.has(tokens) and not row.has(text):
        raise row.place.error("a word a line is read from .tsv, .conll and .txt, with tabs between columns")
    if in_words or not row.has(text) or (labelled and spans is None):  # which says what is missing
        words, named = _tokens_of(row, tokens, tags if labelled else None, plain=plain)
        example = from_words(row.place, words, named, document, characters=characters)
        return _within(example, row.get(text)) if row.has(text) else example
    example = from_text(row.place, row.text(text), document, characters=characters)
    if not labelled:
        return example
    assert spans is not None
    return replace(example, tags=_tags_of(example, _spans(row, spans, example.text)), from_spans=True)


def _within(example: TaggedText, text: Any) -> TaggedText:
    """Words in the text that they were taken from, if nothing but white space lies between them there."""
    offsets: list[tuple[int, int]] = []
    end = 0
    for word in example.words if isinstance(text, str) else ():
        start = text.find(word, end)
        if start < 0 or text[end:start].strip():
            return example
        end = start + len(word)
        offsets.append((start, end))
    return replace(example, text=text, offsets=tuple(offsets)) if offsets else example


def _tokens_of(row: Row, tokens: Column, tags: Column | None, *, plain: bool) -> tuple[list[str], list[str] | None]:
    words, named = written_out(row.get(tokens)), written_out(row.get(tags)) if tags is not None else []
    for values in (words, named):
        if not (isinstance(values, list) and all(isinstance(value, str) for value in values)):
            raise row.place.error(
                f"expected lists of words and of tags as text, found {values!r:.60}; write the names of numbers"
            )
    if not words or not all(words):
        raise row.place.error("no words, or an empty one; correct or remove the row")
    if tags is not None and len(named) != len(words):
        raise row.place.error(f"{len(words)} words and {len(named)} tags; correct or remove the row")
    for tag in named:
        check_tag(row.place, tag, plain=plain)
    return words, None if tags is None else named


def _spans(row: Row, column: Column, text: str) -> list[_Span]:
    """Spans of characters in any of their forms, by where they begin, without spaces at their ends."""
    found, place = set(), row.place
    for start, end, label, said in _listed(row, column):
        if not (_is_place(start) and _is_place(end) and 0 <= start < end <= len(text)):
            raise place.error(
                f"an entity from {start!r:.20} to {end!r:.20} is not in a text of {len(text)} characters; correct it"
            )
        if not isinstance(label, str) or not label or not label.isprintable() or " " in label:
            raise place.error(f"the entity {text[start:end]!r:.40} has the label {label!r:.40}; expected a name")
        inner = text[start:end]
        if said is not None and said != inner:
            there = text.find(said) if isinstance(said, str) else -1
            remedy = f"it stands at {there}" if there >= 0 else "it is not in the text at all"
            raise place.error(f"the entity {said!r:.40} is not from {start} to {end}, where {inner!r:.40} is: {remedy}")
        if inner.strip():
            found.add(_Span(start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip()), label))
    return sorted(found)


def _listed(row: Row, column: Column) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Start, end, label, and the text where it is said too."""
    given, where = written_out(row.get(column)), f"in the column {column!r}"
    if isinstance(given, dict):
        try:
            for label, texts in given.items():
                for said, spots in texts.items():
                    for start, last in spots:
                        yield start, last + 1, label, said
        except (AttributeError, TypeError, ValueError):
            wanted = "expected entities as LABEL: TEXT: [[FIRST, LAST], …]"
            raise row.place.error(f"{wanted} {where}, found {given!r:.60}") from None
        return
    for span in given if isinstance(given, list) else [given]:
        if isinstance(span, dict) and {"start", "end", "label"} <= span.keys():
            yield span["start"], span["end"], span["label"], span.get("text")
        elif isinstance(span, list) and len(span) == 3:
            yield span[0], span[1], span[2], None
        else:
            raise row.place.error(f"expected entities as [[START, END, LABEL], …] {where}, found {span!r:.60}")


def _is_place(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _tags_of(example: TaggedText, spans: list[_Span]) -> tuple[str, ...]:
    """A tag a word; a span has whole words, and no word is in two."""
    starts = {start: number for number, (start, _) in enumerate(example.offsets)}
    ends = {end: number for number, (_, end) in enumerate(example.offsets)}
    tags = ["O"] * len(example.words)
    for span in spans:
        shown = f"the entity {example.text[span.start : span.end]!r:.40} ({span.start}\N{EN DASH}{span.end})"
        if span.start not in starts or span.end not in ends:
            raise example.place.error(
                f"{shown} begins or ends inside a word; correct it, or take the text by characters: "
                "--set task.characters=true"
            )
        first, last = starts[span.start], ends[span.end]
        if any(tag != "O" for tag in tags[first : last + 1]):
            raise example.place.error(f"{shown} shares words with another, and a word has one tag; keep one of them")
        tags[first : last + 1] = [f"B-{span.label}", *[f"I-{span.label}"] * (last - first)]
    return tuple(tags)


def _joined(words: Sequence[str], *, characters: bool) -> tuple[str, tuple[tuple[int, int], ...]]:
    """A text from its words, a space between them but not between Chinese characters; and where each word stands.

    Where words are `characters`, there is no space: whoever took them apart has left out those that there were.
    """
    text, offsets = "", []
    for word in words:
        if text and not characters and not (has_han(text[-1]) and has_han(word[:1])):
            text += " "
        offsets.append((len(text), len(text) + len(word)))
        text += word
    return text, tuple(offsets)
