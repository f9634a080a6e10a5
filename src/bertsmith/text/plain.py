"""Text files: documents divided by blank lines, decoded as they come, in memory or, where they are long, on disk."""

from __future__ import annotations

import codecs
import hashlib
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertsmith.text.blocks import BLOCK_SIZE
from bertsmith.text.documents import Document, digest_of, trimmed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bertsmith.text.documents import Reading

__all__ = ["Gathered", "read_txt"]

SPOOL_SIZE = 4 * 2**20
_MAX_BLANKS = 2**20  # a longer run of white space is cut: it would be searched again with every block
_BLANK_LINE = re.compile(rb"\n(?:[ \t\r]*\n)+")
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_txt(reading: Reading) -> Iterator[Document]:
    """Documents are divided by blank lines, or the whole file is one."""
    line = 1
    for parts in _divide(reading.blocks(), whole_file=reading.options.document == "file"):
        gathered = Gathered(reading, line)
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


class Gathered:
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
        """Take the next bytes; what they lack is reported, and the rest of the document is then read past."""
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
            document = Document.of(trimmed("".join(self._parts)))
        else:
            self._spool.close()
            document = Document(digest_of(self._hash), self._characters, None, Path(self._spool.name))
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
