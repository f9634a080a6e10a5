"""One reader for each kind of file: blocks of bytes in, documents out.

A reader yields `Document`s and reports what it cannot read to the `Tally`. A document that is longer than
`SPOOL_SIZE` goes to disk as it comes, so that no reader's memory grows with its input.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
import tempfile
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.text.blocks import BLOCK_SIZE, BrokenSourceError, read_blocks, read_lines
from bertsmith.text.markdown import prose_of_markdown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bertsmith.text.corpus import CorpusOptions
    from bertsmith.text.faults import Tally
    from bertsmith.text.files import Source

__all__ = ["LINE_LIMIT", "SPOOL_SIZE", "Document", "read_source"]

# One JSON line, one Markdown file or one cell of a table may have this many bytes.
LINE_LIMIT = 64 * 2**20
SPOOL_SIZE = 4 * 2**20
_MAX_BLANKS = 2**20  # a longer run of white space is cut: it would be searched again with every block
_BLANK_LINE = re.compile(rb"\n(?:[ \t\r]*\n)+")
_SURROGATE = re.compile("[\ud800-\udfff]")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True)
class Document:
    """A text, or where it is very long the file that it was put into; and a digest that names it."""

    digest: int  # 64 bits
    num_characters: int
    text: str | None = None
    spool: Path | None = None

    @classmethod
    def of(cls, text: str) -> Document:
        """A document in memory."""
        return cls(_digest_of(hashlib.blake2b(text.encode(), digest_size=8)), len(text), text)

    def parts(self) -> Iterator[str]:
        """The text in parts that end at a line's end where there is one, of about a block at most."""
        if self.text is not None:
            yield self.text
            return
        assert self.spool is not None
        with self.spool.open(encoding="utf-8", newline="") as file:
            rest = ""
            while block := file.read(BLOCK_SIZE):
                rest += block
                cut = max(rest.rfind("\n"), rest.rfind(" ") if "\n" not in rest else -1) + 1 or len(rest)
                yield rest[:cut]
                rest = rest[cut:]
            if rest:
                yield rest

    def held_out(self, share: float) -> bool:
        """Whether it is set aside for evaluation; its text alone decides, so the same text is never on both sides."""
        return self.digest < share * 2**64

    def discard(self) -> None:
        """Remove what lies on disk."""
        if self.spool is not None:
            self.spool.unlink(missing_ok=True)


Nothing = str | None  # what a reader gives for a document that it reported: always None


@dataclass(frozen=True)
class Reading:
    """What every reader is handed."""

    source: Source
    options: CorpusOptions
    tally: Tally
    scratch: Path
    progress: Callable[[int], object] | None = None

    def blocks(self) -> Iterator[bytes]:
        """The content of the source."""
        return read_blocks(self.source, self.progress)

    def fault(self, place: str, cause: str, remedy: str = "") -> Nothing:
        """Report with the file's name."""
        self.tally.fault(f"{self.source.name}, {place}" if place else self.source.name, cause, remedy)
        return None


def read_source(reading: Reading) -> Iterator[Document]:
    """All documents of one source."""
    readers = {"txt": _read_txt, "jsonl": _read_jsonl, "parquet": _read_parquet, "md": _read_markdown}
    read = readers[reading.source.kind]
    num_documents = 0
    try:
        for document in read(reading):
            num_documents += 1
            yield document
    except BrokenSourceError as error:
        reading.fault("" if not num_documents else f"after document {num_documents}", str(error))


def _read_txt(reading: Reading) -> Iterator[Document]:
    """Documents are divided by blank lines, or the whole file is one."""
    line = 1
    for parts in _divide(reading.blocks(), whole_file=reading.options.document == "file"):
        gathered = _Gathered(reading, line)
        for part in parts:
            gathered.add(part)
        line += gathered.num_line_ends
        if document := gathered.finish():
            yield document


def _divide(blocks: Iterator[bytes], *, whole_file: bool) -> Iterator[Iterator[bytes]]:
    """Cut a stream at its blank lines; each document comes as the parts that it arrived in, its blank lines last.

    The parts of one must be taken before the next is asked for.
    """
    if whole_file:
        yield blocks
        return
    rest, start, ended = b"", 0, False

    def document() -> Iterator[bytes]:
        nonlocal rest, start, ended
        while True:
            found = _BLANK_LINE.search(rest, start)
            if found:  # more blank lines that the next block begins with are a document of nothing, and dropped
                yield rest[start : found.end()]
                start = found.end()
                return
            block = next(blocks, None)
            if block is None:
                yield rest[start:]
                ended = True
                return
            rest, start = rest[start:], 0
            keep = rest.rstrip(b"\n \t\r")  # white space at the end may be half of a blank line
            blanks = b"\n".join(part[:_MAX_BLANKS] for part in rest[len(keep) :].split(b"\n"))
            if len(keep) > BLOCK_SIZE:
                yield keep
                keep = b""
            rest = keep + blanks + block

    while not ended:
        yield document()


class _Gathered:
    """One document of a text file on its way: decoded as it comes, in memory or on disk."""

    def __init__(self, reading: Reading, line: int) -> None:
        self.num_line_ends = 0
        self._reading = reading
        self._line = line
        strict = "replace" if reading.options.on_error == "replace" else "strict"
        self._decoder = codecs.getincrementaldecoder("utf-8")(strict)
        self._parts: list[str] = []
        self._size = 0
        self._characters = 0
        self._tail = ""  # white space that is part of the document only if something follows
        self._spool: Any = None
        self._hash = hashlib.blake2b(digest_size=8)
        self._bad = False

    def add(self, data: bytes, *, final: bool = False) -> None:
        start_line = self._line + self.num_line_ends
        self.num_line_ends += data.count(b"\n")
        if self._bad:
            return
        pending = self._decoder.getstate()[0]
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            before = (pending + data)[: error.start]
            self._fault(start_line + before.count(b"\n"), "is not UTF-8", _encoding_hint(self._line, data))
            return
        if "\0" in text:
            if self._reading.options.on_error != "replace":
                self._fault(start_line + text[: text.index("\0")].count("\n"), "has a NUL byte", "is it a binary file?")
                return
            text = text.replace("\0", "\ufffd")
        if self._reading.options.on_error == "replace":
            taken = (pending + data).removesuffix(self._decoder.getstate()[0])
            self._reading.tally.replaced += text.count("\ufffd") - taken.count(b"\xef\xbf\xbd")
        if self._line == 1 and not self._size:
            text = text.removeprefix("\ufeff")
        self._keep(text)

    def finish(self) -> Document | None:
        """The document; none where it is bad, or nothing but white space (as before a file's first document)."""
        self.add(b"", final=True)
        if self._bad:
            return None
        if self._spool is None:
            document = Document.of(_trimmed("".join(self._parts)))
        else:
            self._spool.close()
            document = Document(_digest_of(self._hash), self._characters, None, Path(self._spool.name))
        if document.num_characters:
            return document
        document.discard()
        return None

    def _keep(self, text: str) -> None:
        self._size += len(text)
        if self._spool is None:
            self._parts.append(text)
            if self._size <= SPOOL_SIZE:
                return
            self._spool = tempfile.NamedTemporaryFile(  # noqa: SIM115 whoever takes the document removes it
                "wb", prefix="document-", dir=self._reading.scratch, delete=False
            )
            text = "".join(self._parts)
            self._parts.clear()
        # Stripped as a short document is, so that the same text has the same digest wherever it stands.
        whole = self._tail + text
        if not self._characters:
            whole = whole.lstrip()
        text = whole.rstrip()
        self._tail = whole[len(text) :][:_MAX_BLANKS]
        text = text.replace("\r\n", "\n")
        self._characters += len(text)
        data = text.encode()
        self._hash.update(data)
        self._spool.write(data)

    def _fault(self, line: int, cause: str, remedy: str) -> None:
        self._bad = True
        if self._spool is not None:
            self._spool.close()
            Path(self._spool.name).unlink()
        self._reading.fault(f"line {line}", cause, remedy)


def _encoding_hint(line: int, data: bytes) -> str:
    if line == 1 and data.startswith(_UTF16):
        return "it is UTF-16: convert it first"
    return "convert the file to UTF-8 first, or use --on-error replace"


def _read_jsonl(reading: Reading) -> Iterator[Document]:
    """One object a line, its text in `--field`."""
    for number, line in enumerate(read_lines(reading.blocks(), LINE_LIMIT), start=1):
        place = f"line {number}"
        if line is None:
            reading.fault(place, f"is longer than {LINE_LIMIT // 2**20} MiB", "split the document")
        elif line.strip(b" \t\r\xef\xbb\xbf"):
            text = _json_text(reading, place, line)
            if text is not None:
                yield Document.of(text)


def _json_text(reading: Reading, place: str, line: bytes) -> str | None:
    replace = reading.options.on_error == "replace"
    try:
        decoded = line.decode("utf-8-sig", errors="replace" if replace else "strict")
        record = json.loads(decoded)
    except UnicodeDecodeError as error:
        return reading.fault(f"{place}, byte {error.start}", "is not UTF-8", "convert the file to UTF-8 first")
    except (ValueError, RecursionError) as error:
        what = "nested too deep" if isinstance(error, RecursionError) else _json_error(error)
        return reading.fault(place, f"is not valid JSON ({what})", "write one JSON object a line")
    if replace:
        reading.tally.replaced += decoded.count("\ufffd") - line.count(b"\xef\xbf\xbd")
    field = reading.options.field
    if not isinstance(record, dict):
        return reading.fault(place, "is not a JSON object", f'write one {{"{field}": "…"}} a line')
    if field not in record:
        has = ", ".join(name[:40] for name in list(record)[:8]) or "nothing"
        return reading.fault(place, f"has no field {field!r} (it has {has})", "--field names another")
    return _checked(reading, place, record[field])


def _json_error(error: ValueError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos}"
    return "a number has too many digits"  # Python refuses to convert it


def _checked(reading: Reading, place: str, value: object) -> str | None:
    """A text without what no file of text may have: NUL, and halves of surrogate pairs."""
    field = reading.options.field
    if not isinstance(value, str):
        return reading.fault(place, f"the field {field!r} is {_json_kind(value)}, not a text", "--field names another")
    broken = ""
    if "\0" in value:
        broken = "has a NUL character"
    elif not value.isascii() and _SURROGATE.search(value):
        broken = "has half a surrogate pair"
    if not broken:
        return _trimmed(value)
    if reading.options.on_error != "replace":
        return reading.fault(place, broken, "--on-error replace puts U+FFFD in its place")
    text, count = re.subn("[\0\ud800-\udfff]", "\ufffd", value)
    reading.tally.replaced += count
    return _trimmed(text)


def _trimmed(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def _json_kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def _read_parquet(reading: Reading) -> Iterator[Document]:
    """One row a document. Parquet is read from its end, so what is compressed or piped goes to disk first."""
    import pyarrow
    from pyarrow import parquet

    source = reading.source
    with tempfile.TemporaryDirectory(dir=reading.scratch) as folder:
        path = source.path
        if path is None or source.compression:
            path = Path(folder) / "whole.parquet"
            with path.open("wb") as file:
                file.writelines(reading.blocks())
        try:
            if reading.progress is not None and path == source.path:
                reading.progress(source.size)
            with parquet.ParquetFile(path, page_checksum_verification=True) as table:
                if _has_column(reading, table.schema_arrow):
                    batches = table.iter_batches(64, columns=[reading.options.field], use_threads=False)
                    values = chain.from_iterable(batch.column(0).cast(pyarrow.large_string()) for batch in batches)
                    yield from _rows(reading, values, table.metadata.num_rows)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: a column's name
            raise BrokenSourceError(f"not a sound Parquet file ({_first_line(error)})") from error


def _rows(reading: Reading, values: Iterator[Any], num_rows: int) -> Iterator[Document]:
    number = 0
    for number, value in enumerate(values, start=1):
        text = _row_text(reading, f"row {number}", value)
        if text is not None:
            yield Document.of(text)
    if number != num_rows:  # a damaged page may look like a short one
        raise BrokenSourceError(f"not a sound Parquet file (it has {number} rows and says {num_rows})")


def _row_text(reading: Reading, place: str, value: Any) -> str | None:
    try:
        text = value.as_py()
    except UnicodeDecodeError:
        if reading.options.on_error != "replace":
            return reading.fault(place, "is not UTF-8", "write the column as UTF-8 strings")
        data = value.as_buffer().to_pybytes()
        text = data.decode(errors="replace")
        reading.tally.replaced += text.count("\ufffd") - data.count(b"\xef\xbf\xbd")
    return _checked(reading, place, text)


def _has_column(reading: Reading, schema: Any) -> bool:
    import pyarrow

    field = reading.options.field
    if field not in schema.names:
        reading.fault("", f"has no column {field!r} (it has {', '.join(schema.names[:8])})", "--field names another")
        return False
    kind = schema.field(field).type
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    if not any(is_text(kind) for is_text in _text_types()):
        reading.fault("", f"the column {field!r} holds {kind}, not text", "--field names another")
        return False
    return True


def _text_types() -> list[Callable[[Any], bool]]:
    from pyarrow import types

    return [types.is_string, types.is_large_string, types.is_string_view]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _read_markdown(reading: Reading) -> Iterator[Document]:
    """One file, one document."""
    data = b""
    for block in reading.blocks():
        data += block
        if len(data) > LINE_LIMIT:
            reading.fault("", f"is longer than {LINE_LIMIT // 2**20} MiB", "split it, or read it with --format txt")
            return
    gathered = _Gathered(reading, 1)
    gathered.add(data)
    document = gathered.finish()
    if document is not None:
        text = "".join(document.parts())
        document.discard()
        yield Document.of(prose_of_markdown(text))


def _digest_of(made: Any) -> int:
    return int.from_bytes(made.digest(), "little")
