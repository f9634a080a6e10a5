"""One reader for each kind of file: blocks of bytes in, documents out.

A reader yields `Document`s and reports what it cannot read to the `Tally`. No reader's memory grows with its input.
"""

from __future__ import annotations

import json
import re
import tempfile
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.text.blocks import BrokenSourceError, read_lines
from bertsmith.text.documents import Document, trimmed
from bertsmith.text.markdown import prose_of_markdown
from bertsmith.text.plain import Gathered, read_txt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bertsmith.text.documents import Reading

__all__ = ["LINE_LIMIT", "read_source"]

# One JSON line, one Markdown file or one cell of a table may have this many bytes.
LINE_LIMIT = 64 * 2**20
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_source(reading: Reading) -> Iterator[Document]:
    """All documents of one source."""
    readers = {"txt": read_txt, "jsonl": _read_jsonl, "parquet": _read_parquet, "md": _read_markdown}
    read = readers[reading.source.kind]
    num_documents = 0
    try:
        for document in read(reading):
            num_documents += 1
            yield document
    except BrokenSourceError as error:
        reading.fault("" if not num_documents else f"after document {num_documents}", str(error))


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
        return trimmed(value)
    if reading.options.on_error != "replace":
        return reading.fault(place, broken, "--on-error replace puts U+FFFD in its place")
    text, count = re.subn("[\0\ud800-\udfff]", "\ufffd", value)
    reading.tally.replaced += count
    return trimmed(text)


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
    gathered = Gathered(reading, 1)
    gathered.add(data)
    document = gathered.finish()
    if document is not None:
        text = "".join(document.parts())
        document.discard()
        yield Document.of(prose_of_markdown(text))
