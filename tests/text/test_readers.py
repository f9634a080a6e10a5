"""Each format, plain and compressed; block borders; long documents; every fault with its file and place."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
from pathlib import Path

import pyarrow
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from bertsmith.errors import CorpusError
from bertsmith.text import blocks, documents, plain, readers
from bertsmith.text.corpus import CorpusOptions
from bertsmith.text.documents import Document, Reading
from bertsmith.text.faults import Tally
from bertsmith.text.files import Source
from bertsmith.text.readers import read_source


def jsonl(*records):
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


def parquet_bytes(**columns):
    out = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), out)
    return out.getvalue()


def plain_split(data):
    """The rule for text files, said once more: a line of nothing but blanks divides documents."""
    documents, lines = [], []
    for line in [*data.decode().removeprefix("\ufeff").replace("\r\n", "\n").split("\n"), ""]:
        if line.strip(" \t\r"):
            lines.append(line)
        else:
            documents.append("\n".join(lines).strip())
            lines = []
    return [document for document in documents if document]


def read_in_blocks(data, size, scratch, spool=plain.SPOOL_SIZE, **options):
    """Documents of a text file that comes in blocks of one size."""
    path = scratch / "data.txt"
    path.write_bytes(data)
    tally = Tally(options.get("on_error", "stop"))
    reading = Reading(Source("data.txt", path, "txt"), CorpusOptions(**options), tally, scratch)
    with pytest.MonkeyPatch.context() as patch:
        for module in (blocks, documents, plain):
            patch.setattr(module, "BLOCK_SIZE", size)
        patch.setattr(plain, "SPOOL_SIZE", spool)
        found = [(document, "".join(document.parts())) for document in read_source(reading)]
    for document, _ in found:
        document.discard()
    return [text for _, text in found], [document for document, _ in found], tally


# Formats


def test_blank_lines_divide_text_files(packed, read):
    name = packed("a.txt", b"one\nstill one\n\ntwo\n\n\n\nthree\n")
    assert read(name) == ["one\nstill one", "two", "three"]


def test_document_file_takes_a_file_whole(packed, read):
    assert read(packed("a.txt", b"\none\n\ntwo\n"), document="file") == ["one\n\ntwo"]


def test_json_lines_give_the_named_field(packed, read):
    data = jsonl({"text": "one\n\nstill one", "id": 1}, {"id": 2, "text": " 二 "})
    assert read(packed("a.jsonl", data + b"\n  \n" + jsonl({"text": "three"}).strip())) == [
        "one\n\nstill one",
        "二",
        "three",
    ]
    assert read(packed("b.jsonl", jsonl({"body": "B", "text": "T"})), field="body") == ["B"]


def test_parquet_rows_are_documents(packed, read):
    data = parquet_bytes(text=["one", "二\n\ntwo"] + ["x"] * 100, n=range(102))
    assert read(packed("a.parquet", data)) == ["one", "二\n\ntwo", *["x"] * 100]


@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string(), pyarrow.dictionary("int32", "string")])
def test_parquet_columns_of_every_kind_of_text(kind, tmp_path, read):
    table = pyarrow.table({"text": pyarrow.array(["one", "two", "one"]).cast(kind)})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet") == ["one", "two", "one"]


def test_a_markdown_file_is_one_document_of_prose(packed, read):
    assert read(packed("a.md", b"# Title\n\nSome *text*.\n\n```\ncode\n```\n")) == ["Title\nSome text."]


def test_format_says_what_a_name_does_not(packed, read):
    assert read(packed("a.log", jsonl({"text": "one"})), format="jsonl") == ["one"]
    assert read(packed("a.log", b"one"), format="txt") == ["one"]


def test_capitals_in_a_suffix_do_not_matter(tmp_path, read):
    (tmp_path / "A.TXT.GZ").write_bytes(gzip.compress(b"one"))
    assert read(tmp_path / "A.TXT.GZ") == ["one"]


def test_a_file_of_several_compressed_members_is_read_to_its_end(tmp_path, read):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"one\n\n") + gzip.compress(b"two"))
    member = pyarrow.compress(b"three\n\n", codec="zstd", asbytes=True)
    (tmp_path / "b.txt.zst").write_bytes(member + member)
    assert read(tmp_path) == ["one", "two", "three", "three"]


# Line ends, byte order marks, block borders


def test_crlf_is_a_line_end_in_every_format(tmp_path, read):
    (tmp_path / "a.txt").write_bytes(b"one\r\nstill one\r\n\r\ntwo\r\n")
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "a\\r\\nb"}\r\n{"text": "c"}\r\n')
    (tmp_path / "c.md").write_bytes(b"# Title\r\n\r\nText.\r\n")
    assert read(tmp_path) == ["one\nstill one", "two", "a\nb", "c", "Title\nText."]


def test_a_byte_order_mark_is_no_character(tmp_path, read):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\n\ntwo")
    (tmp_path / "b.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "three"}\n')
    (tmp_path / "c.md").write_bytes(b"\xef\xbb\xbf# Four\n")
    assert read(tmp_path) == ["one", "two", "three", "Four"]


@pytest.mark.parametrize("size", range(1, 13))
def test_a_blank_line_on_a_block_border_still_divides(size, scratch):
    data = b"\xef\xbb\xbf\r\n\r\none \r\n\t\r\n\r\n  two\nstill two\n\n \n\n\xe4\xb8\x89\n \t"
    assert read_in_blocks(data, size, scratch)[0] == ["one", "two\nstill two", "三"]


def test_white_space_around_documents_is_no_document(scratch):
    texts, _, tally = read_in_blocks(b"\n\n \n\none\n\n   \n\t", 2**20, scratch)
    assert texts == ["one"]
    assert not tally.near_empty


_PIECES = st.sampled_from(["\n", "\n\n", "\r\n", " ", "\t", "\r", "a", "bcd", "é", "二", "\ufeff", "😀"])


@settings(max_examples=200, deadline=None)
@given(st.lists(_PIECES, max_size=30).map("".join), st.integers(1, 9), st.sampled_from([5, 10**6]))
@example("a\r\n\r\nb\r\nc", 3, 2)
@example("abc\n", 4, 2)
@example("abcdef\r\r\nb", 1, 5)
def test_text_files_split_the_same_with_any_size_of_block(tmp_path_factory, text, size, spool):
    data = text.replace("\ufeff", "").encode()
    scratch = tmp_path_factory.getbasetemp()
    texts, documents, _ = read_in_blocks(data, size, scratch, spool)
    assert texts == plain_split(data)
    assert [(d.digest, d.num_characters) for d in documents] == [(Document.of(t).digest, len(t)) for t in texts]
    whole = read_in_blocks(data, size, scratch, spool, document="file")[0]
    assert whole == [stripped for stripped in [text.replace("\ufeff", "").replace("\r\n", "\n").strip()] if stripped]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([b"a", b"\n", b"\xff", b"\xe4\xb8", b"\xef\xbf\xbd", b"\0"]), max_size=20))
def test_repairs_are_counted_the_same_with_any_size_of_block(tmp_path_factory, parts):
    data = b"".join(parts)
    scratch = tmp_path_factory.getbasetemp()
    expected = data.decode(errors="replace").replace("\0", "\ufffd").count("\ufffd") - data.count(b"\xef\xbf\xbd")
    for size in (1, 2, 5, 100):
        tally = read_in_blocks(data, size, scratch, on_error="replace", document="file")[2]
        assert tally.replaced == expected


def test_a_long_run_of_blanks_is_cut_and_divides_as_a_short_one(scratch, monkeypatch):
    monkeypatch.setattr(plain, "_MAX_BLANKS", 10)
    data = b"a\n" + b" " * 500 + b"\nb\n" + b"\t" * 500 + b"c\n" + b" " * 500 + b"\n\xff"
    texts, _, tally = read_in_blocks(data, 7, scratch, on_error="skip")
    assert [text.split() for text in texts] == [["a"], ["b", "c"]]
    assert len(texts[1]) < 50
    assert "line 6: is not UTF-8" in tally.examples[0]
    (whole,) = read_in_blocks(data[:-1], 7, scratch, spool=20, document="file")[0]
    assert whole.split() == ["a", "b", "c"]
    assert len(whole) < 100


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_json_lines_do_not_depend_on_blocks(size, tmp_path, read, small_blocks):
    small_blocks(size)
    (tmp_path / "a.jsonl").write_bytes(jsonl({"text": "one"}, {"text": "二" * 9}) + b"\n" + jsonl({"text": "x"})[:-1])
    assert read(tmp_path / "a.jsonl") == ["one", "二" * 9, "x"]


# Long documents


@pytest.mark.parametrize("size", [4, 64, 1000])
def test_a_long_document_goes_to_disk_with_the_digest_of_a_short_one(size, scratch):
    long = "\n".join(f"Line {number} of 二十." for number in range(60))
    data = f"\n \n{long} \r\n\n\nshort\n\n{long}".encode()
    texts, documents, _ = read_in_blocks(data, size, scratch, spool=200)
    assert texts == [long, "short", long]
    assert [document.spool is not None for document in documents] == [True, False, True]
    alone = Document.of(long)
    for document in documents[::2]:
        assert (document.digest, document.num_characters) == (alone.digest, alone.num_characters)
        assert document.held_out(0.3) == alone.held_out(0.3)


def test_discard_removes_the_file_of_a_long_document(tmp_path, scratch, open_corpus, small_blocks):
    small_blocks(16, spool=50)
    (tmp_path / "a.txt").write_text("word " * 40)
    (document,) = open_corpus(tmp_path / "a.txt")
    assert document.text is None
    assert list(scratch.iterdir()) == [document.spool]
    document.discard()
    document.discard()  # a second time does no harm
    assert list(scratch.iterdir()) == []


def test_parts_of_a_long_document_end_at_lines_and_make_up_the_whole(tmp_path, open_corpus, small_blocks):
    small_blocks(64, spool=100)
    text = "".join(f"line {number}\n" for number in range(100)) + "x" * 300 + " " + "y z " * 50
    (tmp_path / "a.txt").write_text(text)
    (document,) = open_corpus(tmp_path / "a.txt")
    parts = list(document.parts())
    assert "".join(parts) == text.strip()
    assert all(len(part) <= 2 * 64 for part in parts)
    assert all(part.endswith("\n") for part in parts[:10])


def test_dropped_long_documents_leave_nothing_on_disk(tmp_path, scratch, open_corpus, small_blocks):
    small_blocks(16, spool=50)
    long = "word " * 40
    (tmp_path / "a.txt").write_text(f"{long}\n\n{long}\n\n{' ' * 300}\n\nshort\n\n{'x' * 60}")
    corpus = open_corpus(tmp_path / "a.txt", dedup=True, min_chars=100)
    assert [document.num_characters for document in corpus] == [len(long.strip())]
    assert (corpus.tally.duplicates, corpus.tally.near_empty) == (1, 2)
    assert len(list(scratch.iterdir())) == 1


def test_a_fault_in_a_long_document_leaves_nothing_on_disk(tmp_path, scratch, open_corpus, small_blocks):
    small_blocks(16, spool=50)
    (tmp_path / "a.txt").write_bytes(b"word\n" * 40 + b"\xff\n" + b"word\n" * 40)
    with pytest.raises(CorpusError, match=r"a\.txt, line 41: is not UTF-8"):
        list(open_corpus(tmp_path / "a.txt"))
    assert list(scratch.iterdir()) == []


def test_held_out_is_decided_by_the_digest_alone():
    assert Document(2**62, 1, "a").held_out(0.26)
    assert not Document(2**62, 1, "a").held_out(0.25)
    assert not Document(0, 1, "a").held_out(0.0)


def test_memory_does_not_grow_with_a_document(tmp_path, open_corpus):
    import tracemalloc

    with (tmp_path / "a.txt").open("wb") as file:
        for _ in range(48):
            file.write(b"A line of text that is repeated.\n" * 2**15)
    tracemalloc.start()
    (document,) = open_corpus(tmp_path / "a.txt")
    num_characters = sum(map(len, document.parts()))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    document.discard()
    assert num_characters == 48 * 33 * 2**15 - 1
    assert peak < 32 * 2**20


# Faults: cause, file, place

FAULTS = {
    "latin-1": ("a.txt", b"one\n\ntwo\nca\xe9t\n\nthree", "line 4: is not UTF-8"),
    "cut character": ("a.txt", "one\n\n二".encode()[:-1], "line 3: is not UTF-8"),
    "utf-16": ("a.txt", "one".encode("utf-16"), r"line 1: is not UTF-8; it is UTF-16"),
    "utf-16 without mark": ("a.txt", "one\ntwo".encode("utf-16-le"), "line 1: has a NUL byte"),
    "surrogate in utf-8": ("a.txt", b"one\n\n\xed\xa0\x80", "line 3: is not UTF-8"),
    "nul": ("a.txt", b"one\n\ntwo\nx\0y", "line 4: has a NUL byte"),
    "gz by another name": ("a.txt", gzip.compress(b"one"), r"is compressed, .*name it ….txt.gz"),
    "not gz": ("a.txt.gz", b"one", r": not a sound gzip file"),
    "cut gz": ("a.txt.gz", gzip.compress(b"one")[:-3], "the gzip file ends too early"),
    "damaged gz": ("a.txt.gz", gzip.compress(b"one")[:10] + b"\xff" * 20, "the gzip file is damaged"),
    "gz checksum": ("a.txt.gz", gzip.compress(b"one")[:-8] + bytes(8), "not a sound gzip file"),
    "not zst": ("a.txt.zst", b"one", "not a sound zstd file"),
    "cut zst": ("a.txt.zst", pyarrow.compress(b"one" * 9, codec="zstd", asbytes=True)[:-2], "not a sound zstd file"),
    "markdown": ("a.md", b"# T\n\n\xff", "line 3: is not UTF-8"),
    "no json": ("a.jsonl", b'{"text": "one"}\n{"text": \n', r"line 2: is not valid JSON \(Expecting value at char"),
    "json of latin-1": ("a.jsonl", b'{"text": "caf\xe9"}', "line 1, byte 13: is not UTF-8"),
    "no object": ("a.jsonl", b'["one"]', "line 1: is not a JSON object"),
    "no field": ("a.jsonl", b'{"body": 1, "id": 2}', r"line 1: has no field 'text' \(it has body, id\)"),
    "empty object": ("a.jsonl", b"{}", r"line 1: has no field 'text' \(it has nothing\)"),
    "number": ("a.jsonl", b'\n{"text": 1}', "line 2: the field 'text' is a number, not a text"),
    "null": ("a.jsonl", b'{"text": null}', "the field 'text' is null"),
    "list": ("a.jsonl", b'{"text": ["one"]}', "the field 'text' is a list"),
    "object": ("a.jsonl", b'{"text": {}}', "the field 'text' is an object"),
    "true": ("a.jsonl", b'{"text": true}', "the field 'text' is true or false"),
    "json nul": ("a.jsonl", b'{"text": "a\\u0000"}', "line 1: has a NUL character"),
    "json half pair": ("a.jsonl", b'{"text": "a\\ud800"}', "line 1: has half a surrogate pair"),
    "json nested": ("a.jsonl", b"[" * 10**5, r"line 1: is not valid JSON \(nested too deep\)"),
    "json digits": ("a.jsonl", b'{"text": "a", "n": %s}' % (b"1" * 5000), r"line 1: .* too many digits"),
    "no parquet": ("a.parquet", b"PAR1 and then nothing", "a.parquet: not a sound Parquet file"),
    "empty parquet": ("a.parquet", b"", "a.parquet: not a sound Parquet file"),
    "cut parquet": ("a.parquet", parquet_bytes(text=["one"])[:-9], "a.parquet: not a sound Parquet file"),
    "no column": ("a.parquet", parquet_bytes(body=["one"]), r"has no column 'text' \(it has body\)"),
    "column of numbers": ("a.parquet", parquet_bytes(text=[1]), "the column 'text' holds int64, not text"),
    "parquet null": ("a.parquet", parquet_bytes(text=["one", None]), "row 2: the field 'text' is null"),
    "parquet nul": ("a.parquet", parquet_bytes(text=["one", "x\0"]), "row 2: has a NUL character"),
    "parquet not utf-8": (
        "a.parquet",
        parquet_bytes(text=pyarrow.array([b"one", b"\xff"]).view(pyarrow.string())),
        "row 2: is not UTF-8",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_names_file_and_place_and_is_counted_when_skipped(case, tmp_path, open_corpus):
    name, data, expected = FAULTS[case]
    (tmp_path / name).write_bytes(data)
    (tmp_path / "z.txt").write_bytes(b"good")
    with pytest.raises(CorpusError) as caught:
        list(open_corpus(tmp_path))
    assert str(caught.value).startswith(str(tmp_path / name))
    assert re.search(expected, str(caught.value)), caught.value
    corpus = open_corpus(tmp_path, on_error="skip")
    texts = [document.text for document in corpus]
    assert texts[-1] == "good"
    assert set(texts) <= {"one", "three", "good"}
    assert corpus.tally.skipped.total() == 1
    assert len(corpus.tally.examples) == 1
    assert re.search(expected, corpus.tally.examples[0])


def test_a_json_line_over_the_limit_is_a_fault_that_says_so(tmp_path, read, open_corpus, monkeypatch, small_blocks):
    monkeypatch.setattr(readers, "LINE_LIMIT", 2**20)
    exact = json.dumps({"text": "x" * (2**20 - 12)})
    assert len(exact) == 2**20
    (tmp_path / "a.jsonl").write_text(f'{{"text": "one"}}\n{exact}\n{exact[:-2]}x"}}\n{{"text": "two"}}\n')
    with pytest.raises(CorpusError, match=r"a\.jsonl, line 3: is longer than 1 MiB; split the document"):
        read(tmp_path / "a.jsonl")
    for size in (100, 2**20, 2**23):
        small_blocks(size)
        corpus = open_corpus(tmp_path / "a.jsonl", on_error="skip")
        assert [document.num_characters for document in corpus] == [3, 2**20 - 12, 3]
        assert corpus.tally.skipped == {"is longer than 1 MiB": 1}


def test_a_long_last_line_without_an_end_is_over_the_limit_too(tmp_path, read, monkeypatch):
    monkeypatch.setattr(readers, "LINE_LIMIT", 2**20)
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "' + b"x" * 2**21)
    with pytest.raises(CorpusError, match=r"line 1: is longer than 1 MiB"):
        read(tmp_path / "a.jsonl")


def test_a_markdown_file_over_the_limit_is_a_fault(tmp_path, read, monkeypatch):
    monkeypatch.setattr(readers, "LINE_LIMIT", 2**20)
    (tmp_path / "a.md").write_bytes(b"x " * 2**20)
    with pytest.raises(CorpusError, match=r"a\.md: is longer than 1 MiB; .*--format txt"):
        read(tmp_path / "a.md")


def test_field_names_in_a_message_are_cut(tmp_path, read):
    (tmp_path / "a.jsonl").write_text(json.dumps({"k" * 10_000: 1}))
    with pytest.raises(CorpusError) as caught:
        read(tmp_path / "a.jsonl")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("name", "data", "expected", "count"),
    [
        ("a.txt", b"caf\xe9 and\0nul", "caf\ufffd and\ufffdnul", 2),
        ("a.txt", "was \ufffd before".encode(), "was \ufffd before", 0),
        ("a.md", b"caf\xe9", "caf\ufffd", 1),
        ("a.jsonl", b'{"text": "caf\xe9"}', "caf\ufffd", 1),
        ("a.jsonl", b'{"text": "a\\u0000\\ud800b\\r\\nc"}', "a\ufffd\ufffdb\nc", 2),
        ("a.parquet", parquet_bytes(text=["a\0b"]), "a\ufffdb", 1),
        ("a.parquet", parquet_bytes(text=pyarrow.array([b"a\xffb"]).view(pyarrow.string())), "a\ufffdb", 1),
    ],
)
def test_replace_puts_one_character_in_the_place_of_each_and_counts(name, data, expected, count, tmp_path, open_corpus):
    (tmp_path / name).write_bytes(data)
    corpus = open_corpus(tmp_path / name, on_error="replace")
    assert [document.text for document in corpus] == [expected]
    assert corpus.tally.replaced == count
    assert not corpus.tally.skipped


def test_what_replace_cannot_mend_is_skipped(tmp_path, open_corpus):
    (tmp_path / "a.jsonl").write_bytes(b'{"text": 1}\n{"text": \n{"text": "good"}\n')
    corpus = open_corpus(tmp_path, on_error="replace")
    assert [document.text for document in corpus] == ["good"]
    assert corpus.tally.skipped == {"the field 'text' is a number, not a text": 1, "is not valid JSON": 1}


def test_what_came_before_a_break_stays_good(tmp_path, open_corpus, small_blocks):
    small_blocks(64)
    noise = random.Random(1).randbytes(2000).hex()
    data = gzip.compress(f"one\n\ntwo\n\n{noise}\n\nlast".encode())
    (tmp_path / "a.txt.gz").write_bytes(data[:-200])
    corpus = open_corpus(tmp_path, on_error="skip")
    assert [document.text for document in corpus] == ["one", "two"]
    assert corpus.tally.skipped == {"the gzip file ends too early": 1}
    assert "a.txt.gz, after document 2: " in corpus.tally.examples[0]


def test_a_missing_parquet_file_is_a_fault_with_a_progress_bar_too(tmp_path, scratch):
    (tmp_path / "a.parquet").symlink_to("nowhere")
    source = Source("a.parquet", tmp_path / "a.parquet", "parquet")
    with pytest.raises(CorpusError, match=r"^a\.parquet: "):
        list(read_source(Reading(source, CorpusOptions(), Tally(), scratch, progress=lambda done: None)))


def test_progress_adds_up_to_the_bytes_on_disk(packed, scratch):
    compressions = {".gz": "gz", ".zst": "zst"}
    for name, kind, data in [
        ("a.txt", "txt", b"one\n\ntwo" * 999),
        ("a.parquet", "parquet", parquet_bytes(text=["x"])),
    ]:
        path = Path(packed(name, data))
        done = []
        source = Source(path.name, path, kind, compressions.get(path.suffix))
        list(read_source(Reading(source, CorpusOptions(), Tally(), scratch, done.append)))
        assert sum(done) == path.stat().st_size
