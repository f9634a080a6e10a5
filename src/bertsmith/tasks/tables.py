"""Rows of a task's file, whatever it is: TSV, CSV, JSON lines or Parquet, by the names or numbers of its columns.

TSV is cut at tabs and nothing else, as GLUE's files are: a quotation mark is a character like others. CSV follows the
usual quoting. A number counts columns from 1 and means that the first line is data; a name means that it is a header.
In JSON a dot leads inside (`question.stem`), and a number counts the names of the first object, or the values of a
list. Where names are numbers themselves, as pandas likes them, a number is a name.
"""

from __future__ import annotations

import ast
import codecs
import csv
import json
import re
import sys
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.errors import DataError, InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import BinaryIO

__all__ = [
    "NOWHERE",
    "SEMICOLONS",
    "SUFFIXES",
    "Column",
    "Place",
    "Row",
    "has_lone_surrogate",
    "has_semicolons",
    "is_plain_text",
    "numbered_lines",
    "opened",
    "read_rows",
    "standard_input",
    "written_out",
]

Column = str | int
SUFFIXES = {".tsv": "tsv", ".txt": "lines", ".csv": "csv", ".jsonl": "jsonl", ".json": "jsonl", ".parquet": "parquet"}
SEMICOLONS = "put tabs for the semicolons, in a file that ends in .tsv"
_MAX_CELL = 16 * 2**20
_MAX_LIST = 2**16  # of characters: Python takes hundreds of bytes for each to read it
_NO_COMMA = re.compile(r"""['"]\s+['"]""")
_OBJECTS = re.compile(rb'\{|\[\s*\{\s*"')  # how JSON begins, be it in lines or not
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Place:
    """Where in which file something stands."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}, line {self.line}"

    def error(self, what: str) -> DataError:
        """An error that begins with the place."""
        return DataError(f"{self}: {what}")


NOWHERE = Place("input", 1)  # of what comes from no file


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a table."""

    place: Place
    cells: Mapping[Column, Any]

    def has(self, column: Column) -> bool:
        """Whether there is such a column."""
        return _look_up(self.cells, column) is not _NOTHING

    def get(self, column: Column) -> Any:
        """What stands in a column."""
        value = _look_up(self.cells, column)
        if value is _NOTHING:
            there = ", ".join(str(name) for name in self.cells)
            looks_cut = has_semicolons(list(self.cells.values()))
            remedy = SEMICOLONS if looks_cut else "name one with --column FIELD=COLUMN"
            raise self.place.error(f"no column {column!r}; there are {there:.200}: {remedy}")
        return value

    def text(self, column: Column) -> str:
        """What stands in a column, if it is text."""
        value = self.get(column)
        if not isinstance(value, str):
            raise self.place.error(f"column {column!r} holds {value!r:.60}, not text; correct it or remove the row")
        return value


_NOTHING = object()


def _look_up(cells: Mapping[Column, Any], column: Column) -> Any:
    if column in cells:
        return cells[column]
    value: Any = cells
    for key in str(column).split("."):
        if not isinstance(value, dict) or key not in value:
            return _NOTHING
        value = value[key]
    return value


def read_rows(name: str, columns: Iterable[Column] = (), *, lenient: bool = False) -> Iterator[Row]:
    """The rows of a file, one after the other. `-` is standard input: JSON lines if it begins with a brace.

    A `.txt` file, and other standard input, is one text a line; where columns are named it is TSV. With `lenient` lines
    of a table that have too few or too many columns come as rows without cells, else they are an error.
    """
    columns = list(columns)
    numbered = any(isinstance(column, int) for column in columns)
    kind = _kind_of(name)
    if kind == "lines" and columns:
        kind = "tsv"
    if not kind:
        raise DataError(f"{name}: is of no known kind; there are {', '.join(SUFFIXES)}")
    by_name = [column for column in columns if isinstance(column, str)]
    if kind != "jsonl" and numbered and by_name:
        raise Place(_shown(name), 1).error(
            f"column {by_name[0]!r} goes by its name, others by their numbers; take names for all, or numbers for all"
        )
    if kind == "parquet":
        return _read_parquet(name, numbered)
    if kind == "jsonl":
        return _read_jsonl(name, numbered)
    if kind == "lines":
        return (Row(place, {"text": line.rstrip("\r\n")}) for place, line in numbered_lines(name))
    return _table(name, _tsv_lines(name) if kind == "tsv" else _csv_lines(name), numbered, lenient=lenient)


def is_plain_text(name: str, *, told: bool) -> bool:
    """Whether a file, or standard input, is one text a line: nothing says that it is a table, and it has no tab.

    With tabs, and nobody who has `told` what its columns are, it could be either; that is an error.
    """
    if _kind_of(name) != "lines":
        return False
    if name == "-":
        first = standard_input().peek(1).split(b"\n", 1)[0]  # type: ignore[attr-defined]
    else:
        with opened(name) as file:
            first = file.readline()
    if b"\t" in first and not told:
        raise Place(_shown(name), 1).error(
            "has tabs, so it may be a table; name its columns with --column text=…, or take the tabs out of the texts"
        )
    return b"\t" not in first


def _kind_of(name: str) -> str:
    if name == "-":
        begins = standard_input().peek(1).removeprefix(codecs.BOM_UTF8).lstrip()  # type: ignore[attr-defined]
        return "jsonl" if _OBJECTS.match(begins) else "lines"
    return SUFFIXES.get(Path(name).suffix.lower(), "")


def _shown(name: str) -> str:
    return "standard input" if name == "-" else name


def standard_input() -> BinaryIO:
    """Standard input, if there is one: a shell can close it (`<&-`)."""
    if sys.stdin is None:
        raise InputError("standard input: is closed; name a file, or pipe something in")
    return sys.stdin.buffer


def written_out(value: Any) -> Any:
    """A list or an object that a cell of a table holds as text, as JSON or Python writes it; all else as it is.

    >>> written_out("['a', ('b', 1)]"), written_out('{"a": [0, null]}'), written_out("[sic]"), written_out("['a' 'b']")
    (['a', ['b', 1]], {'a': [0, None]}, '[sic]', "['a' 'b']")
    """
    if not (isinstance(value, str) and value.strip()[:1] + value.strip()[-1:] in ("[]", "{}")):
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        found = _as_python_writes(value.strip())
    return value if found is None or has_lone_surrogate(json.dumps(found, ensure_ascii=False)) else found


def _as_python_writes(text: str) -> Any:
    """Lists and objects of Python's, its tuples as lists; None where it is none of these, or too long to be a cell.

    Numpy writes no commas between strings, which Python would read as one string.
    """
    if len(text) > _MAX_LIST or _NO_COMMA.search(text):
        return None
    try:
        found = ast.literal_eval(text)
        return json.loads(json.dumps(found)) if isinstance(found, list | dict) else None  # `[1],[2]` is neither
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def has_lone_surrogate(text: str) -> bool:
    """Whether a text has half of a character, as JSON can write it and UTF-8 cannot."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def numbered_lines(name: str) -> Iterator[tuple[Place, str]]:
    """The lines of a file in UTF-8, with their places; only a line feed ends one, and it stays."""
    with nullcontext(standard_input()) if name == "-" else opened(name) as file:
        for number, data in enumerate(file, start=1):
            place = Place(_shown(name), number)
            if number == 1 and b"\r" in data.rstrip(b"\r\n"):
                raise place.error("has a carriage return inside; if lines end with it alone, convert the line ends")
            try:
                yield place, data.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise place.error(f"is not UTF-8 (byte {error.start} of the line); convert the file first") from error


def opened(name: str) -> BinaryIO:
    """A file, open."""
    try:
        return Path(name).open("rb")
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror})") from error


def _tsv_lines(name: str) -> Iterator[tuple[Place, list[str]]]:
    for place, line in numbered_lines(name):
        text = line.rstrip("\r\n")
        yield place, text.split("\t") if text else []


def _csv_lines(name: str) -> Iterator[tuple[Place, list[str]]]:
    csv.field_size_limit(_MAX_CELL)
    reader = csv.reader((line for _, line in numbered_lines(name)), strict=True)
    line = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            remedy = "close its quotation marks, or take .tsv, where they are characters"
            raise Place(name, line).error(f"is not CSV ({error}); {remedy}") from error
        if cells is None:
            return
        yield Place(name, line), cells
        line = reader.line_num + 1


def _table(name: str, lines: Iterator[tuple[Place, list[str]]], numbered: bool, *, lenient: bool) -> Iterator[Row]:
    """Rows of equal length; the first one names the columns unless these are numbered.

    A line without anything is no row, but in a table of one column: there it is an empty cell, if others follow.
    """
    header: Sequence[Column] | None = None
    blank: list[Place] = []
    for place, cells in lines:
        if not cells:
            blank.append(place)
            continue
        if header is not None and len(header) == 1:
            yield from (Row(before, {header[0]: ""}) for before in blank)
        blank.clear()
        if header is None:
            header = range(1, len(cells) + 1) if numbered else _header(place, cells)
            if not numbered:
                continue
            if len(cells) > 1 and any(
                cells == [str(first + number) for number in range(len(cells))] for first in (0, 1)
            ):
                raise place.error("counts the columns, as tables without names for them are written; remove this line")
        if len(cells) != len(header):
            if not lenient:
                remedy = SEMICOLONS if has_semicolons(header) else "correct or remove it"
                raise place.error(f"{len(cells)} columns, not {len(header)} as in the first line; {remedy}")
            yield Row(place, {})
        else:
            yield Row(place, dict(zip(header, cells, strict=True)))
    if header is None:
        raise Place(name, 1).error("is empty; write one example at least")


def _header(place: Place, names: list[str]) -> list[str]:
    """The names of columns; those that have none may be several, as spreadsheets leave them."""
    names = [name.strip() for name in names]
    for name, count in Counter(names).items():
        if name and count > 1:
            raise place.error(
                f"two columns have the same name, {name!r:.60}; if this line is data, name columns by number"
            )
    return names


def has_semicolons(cells: Sequence[Any]) -> bool:
    """Whether a line of one column is one of several, written as some countries' spreadsheets do."""
    return len(cells) == 1 and ";" in str(cells[0])


def _read_jsonl(name: str, numbered: bool) -> Iterator[Row]:
    """Objects, or lists where columns are `numbered`; there the names of the first object have the numbers."""
    empty, names = True, list[str]()
    for place, line in numbered_lines(name):
        if not line.strip():
            continue
        empty = False
        try:
            cells = json.loads(line)
        except (ValueError, RecursionError) as error:
            remedy = "a whole object goes on one line" if line.strip() in "[{" else "correct or remove the line"
            raise place.error(f"is not JSON ({error}); {remedy}") from error
        if numbered and isinstance(cells, list):
            cells = {str(number): cell for number, cell in enumerate(cells, start=1)}
        if not isinstance(cells, dict):
            remedy = "write an object a line" if isinstance(cells, list) else "correct or remove the line"
            raise place.error(f"expected a JSON object, found {type(cells).__name__}; {remedy}")
        if "\\u" in line and has_lone_surrogate(json.dumps(cells, ensure_ascii=False)):
            raise place.error("holds half a surrogate pair, which is no character; correct or remove the line")
        names = names or list(cells)
        if numbered and not any(map(str.isdecimal, names)):
            cells = {**cells, **{str(n): cells[name] for n, name in enumerate(names, start=1) if name in cells}}
        yield Row(place, cells)
    if empty:
        raise Place(name, 1).error("is empty; write one example at least")


def _plain(cell: Any) -> Any:
    """A cell of Parquet as Python has it; None for what it has not, such as a day in the year 10000."""
    try:
        return cell.as_py()
    except UnicodeDecodeError:  # the file is damaged
        raise
    except (ValueError, OverflowError):
        return None


def _read_parquet(name: str, numbered: bool) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    line = 0
    try:
        with opened(name) as source, pq.ParquetFile(source, page_checksum_verification=True) as file:
            names = file.schema_arrow.names
            counted = numbered and not any(map(str.isdecimal, names))  # or numbers are their names
            columns: Sequence[Column] = range(1, len(names) + 1) if counted else _header(Place(name, 1), names)
            for batch in file.iter_batches():
                for number in range(batch.num_rows):
                    values = [_plain(column[number]) for column in batch.columns]
                    line += 1
                    yield Row(Place(name, line), dict(zip(columns, values, strict=True)))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise Place(name, line + 1).error(
            f"is not Parquet, or is damaged ({error}); write it again".replace("\n", " ")
        ) from error
    if not line:
        raise Place(name, 1).error("is empty; write one example at least")
