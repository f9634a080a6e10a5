"""CoNLL columns: a word a line, its tag in the last column, a blank line between sentences.

`-DOCSTART-` begins a document. Columns are apart by tabs, or by white space where there is no tab; several tabs are as
one, unless columns go by their names: then a cell may be empty.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bertsmith.errors import ConfigError
from bertsmith.tasks.tables import Column, Place, numbered_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Sentence", "check_tag", "is_entity_tag", "read_conll"]

_SEVERAL = re.compile(r"[\u3400-\u9fff]{2}")  # Chinese characters
_LONG_TAG = re.compile(r"O|[BIMESLU]-\S+")
_NO_TAG = ("?", "_", "-")  # what stands there where nobody knows
_TAG = re.compile(rf"{_LONG_TAG.pattern}|[BIMES]")
_HEADER = (
    {"word", "words", "token", "tokens", "form", "text"},
    {"tag", "tags", "label", "labels", "pos", "upos", "ner"},
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """The words of a sentence, their tags where the file has them, and the number of its document."""

    place: Place
    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    document: int


def read_conll(
    name: str,
    word: Column = 1,
    tag: Column = -1,
    *,
    labelled: bool = True,
    plain: bool = False,
    characters: bool = False,
    known: Sequence[str] = (),
) -> Iterator[Sentence]:
    """The sentences of a file; `word` and `tag` number the columns from 1, or from the end where negative.

    Where one of them is a name the first line is a header; but a file that need not be `labelled` may have none if only
    the tag has a name.

    Tags are those of entities unless they are `plain`: then any name will do. Where nobody looks at them, running text
    would be taken for columns and all but a word of each line be lost (`_is_running`); and several Chinese `characters`
    are no word. `known` are the tags that whoever asks would give.
    """
    lines: list[tuple[Place, list[str]]] = []
    document, width, found = 0, None, False
    if 0 in (word, tag):
        raise ConfigError("columns: those of CoNLL have names, or numbers from 1, or from -1 at the end; not 0")
    named = isinstance(word, str) or isinstance(tag, str)
    num_columns = 0 if named else None
    for place, line in _with_end(name):
        text = line.rstrip()
        cells = _cut(text, num_columns)
        if named and cells:
            named = False
            if labelled or isinstance(word, str) or tag in cells:
                num_columns = len(cells)
                word = _numbered(place, cells, word)
                tag = _numbered(place, cells, tag) if labelled else tag
                continue
        if text.startswith("# ") and " = " in text and not lines:
            raise place.error("is a comment, as CoNLL-U has them; remove such lines: grep -v '^# '")
        ends = not cells or cells[0] == "-DOCSTART-"
        if ends and lines:
            found = True
            yield _sentence(lines, word, tag if labelled else None, document, plain=plain)
            lines = []
        if ends:
            document += len(cells) > 0
            continue
        if width is None:
            width = len(cells)
            if labelled:
                _refuse_header(place, cells, word, tag)
        if len(cells) != width:
            raise place.error(f"{len(cells)} columns, not {width} as in the first line; correct or remove it")
        if not labelled and (
            _is_running(text, cells, known, plain=plain) or (characters and _SEVERAL.search(_cell(place, cells, word)))
        ):
            raise place.error(
                f"{' '.join(cells)!r:.60} is more than a word and its tag; running text goes into JSON lines, as "
                '{"text": "…"}, in a file that ends in .jsonl; columns without tags need tabs between them'
            )
        lines.append((place, cells))
    if not found:
        raise Place(name, 1).error("is empty")


def _cut(text: str, num_columns: int | None) -> list[str]:
    r"""The cells of a line without its end; with a number of columns some may be empty, up to so many at the end.

    >>> _cut("1\t\tRome", 4), _cut("1\t\tRome", None), _cut("", 4)
    (['1', '', 'Rome', ''], ['1', 'Rome'], [])
    """
    cells = text.split("\t") if "\t" in text else text.split()
    if not cells or num_columns is None:
        return [cell for cell in cells if cell]
    return cells + [""] * (num_columns - len(cells))


def _refuse_header(place: Place, cells: list[str], word: Column, tag: Column) -> None:
    """Where columns go by number a header would be a word with its tag, and any name can be a plain tag."""
    names = [_cell(place, cells, column) for column in (word, tag)]
    if all(name.lower() in usual for name, usual in zip(names, _HEADER, strict=True)):
        raise place.error(
            f"{' and '.join(map(repr, names))}: this line is a header; name columns by name (--column word={names[0]} "
            f"--column tag={names[1]}), or remove the line"
        )


def _numbered(place: Place, header: list[str], column: Any) -> Any:
    """The number of a column that is given by its name."""
    if not isinstance(column, str):
        return column
    if column not in header:
        there = ", ".join(header)
        raise place.error(f"no column {column!r}; there are {there:.200}: name one with --column FIELD=COLUMN")
    return header.index(column) + 1


def _with_end(name: str) -> Iterator[tuple[Place, str]]:
    place = Place(name, 1)
    for place, line in numbered_lines(name):
        yield place, line
    yield place, ""


def _sentence(
    lines: list[tuple[Place, list[str]]], word: Column, tag: Column | None, document: int, *, plain: bool
) -> Sentence:
    words = tuple(_cell(place, cells, word) for place, cells in lines)
    if tag is None:
        return Sentence(lines[0][0], words, None, document)
    tags = tuple(_cell(place, cells, tag) for place, cells in lines)
    for (place, _), name in zip(lines, tags, strict=True):
        check_tag(place, name, plain=plain)
    return Sentence(lines[0][0], words, tags, document)


def _is_running(text: str, cells: list[str], known: Sequence[str], *, plain: bool) -> bool:
    """Whether a line whose tags nobody looks at is a sentence.

    >>> lines = ("Rome", "Rome NNP B-LOC", "Rome ?", "I saw Rome .")
    >>> [_is_running(line, line.split(), (), plain=False) for line in lines]
    [False, False, False, True]
    """
    last = cells[-1]
    if len(cells) == 1 or not last or (not plain and _LONG_TAG.fullmatch(last)):
        return False
    if "\t" in text:
        return not plain and any(letter.islower() for letter in last)
    if last in known:  # a full stop can be the tag of one, and is no tag of a word
        return not _has_letters(last) and _has_letters(cells[0]) and last not in cells[0]
    return len(cells) > 2 or last not in _NO_TAG


def _has_letters(text: str) -> bool:
    return any(letter.isalnum() for letter in text)


def is_entity_tag(name: str) -> bool:
    """Whether a tag says where an entity begins or goes on, or that there is none."""
    return _TAG.fullmatch(name) is not None


def check_tag(place: Place, name: str, *, plain: bool) -> None:
    """Refuse what is no tag of an entity; where tags are plain only what is no name."""
    if plain and not name.strip():
        raise place.error("a tag is empty; write one, or remove the row")
    if not plain and not is_entity_tag(name):
        raise place.error(
            f"{name!r:.40} is not a tag (O, B-NAME, I-NAME and the like); is it the tag column? "
            "For tags without these letters, such as parts of speech: --set task.plain=true"
        )


def _cell(place: Place, cells: list[str], column: Column) -> str:
    number = int(column)  # which `read_conll` has checked
    index = number - 1 if number > 0 else number
    if not -len(cells) <= index < len(cells) or (number == -1 and len(cells) == 1):
        raise place.error(
            f"{len(cells)} columns, so there is no column {column}; expected a word and its tag, with a tab or a space "
            "between them"
        )
    if not cells[index]:
        raise place.error(f"column {column} is empty; write a word and its tag, or remove the line")
    return cells[index]
