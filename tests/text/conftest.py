"""What the tests of the readers share: a corpus from bytes, and how each compression writes."""

from __future__ import annotations

import gzip

import pyarrow
import pytest

from bertsmith.text.corpus import Corpus, CorpusOptions

COMPRESSIONS = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".zst": lambda data: pyarrow.compress(data, codec="zstd", asbytes=True),
}


@pytest.fixture(params=list(COMPRESSIONS), ids=["plain", "gz", "zst"])
def packed(request, tmp_path):
    """Writes a file plain, gzipped or by zstd, and gives its name."""

    def write(name, data):
        path = tmp_path / (name + request.param)
        path.write_bytes(COMPRESSIONS[request.param](data))
        return str(path)

    return write


@pytest.fixture
def scratch(tmp_path):
    folder = tmp_path / ".scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def open_corpus(scratch):
    """A corpus of names and options; short documents count unless a test says otherwise."""

    def make(*names, **options):
        return Corpus([str(name) for name in names], CorpusOptions(**{"min_chars": 1, **options}), scratch)

    return make


@pytest.fixture
def read(open_corpus):
    """The texts of a corpus."""

    def texts(*names, **options):
        return [text_of(document) for document in open_corpus(*names, **options)]

    return texts


@pytest.fixture
def small_blocks(monkeypatch):
    """Makes blocks, and documents that go to disk, as small as a test wants them."""

    def shrink(block=8, spool=None):
        monkeypatch.setattr("bertsmith.text.blocks.BLOCK_SIZE", block)
        monkeypatch.setattr("bertsmith.text.documents.BLOCK_SIZE", block)
        monkeypatch.setattr("bertsmith.text.plain.BLOCK_SIZE", block)
        if spool is not None:
            monkeypatch.setattr("bertsmith.text.plain.SPOOL_SIZE", spool)

    return shrink


def text_of(document):
    text = "".join(document.parts())
    document.discard()
    return text
