"""Which files a corpus has, in which order; what is dropped, ignored and counted; standard input."""

from __future__ import annotations

import gzip
import io
import os
import socket
from types import SimpleNamespace

import pyarrow
import pytest
from pyarrow import parquet

from bertsmith.errors import CorpusError, InputError
from bertsmith.text import blocks
from bertsmith.text.corpus import CorpusOptions
from bertsmith.text.faults import Tally
from bertsmith.text.files import find_sources


def write(folder, *names):
    """Files that hold their own name."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def give_input(monkeypatch, data):
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(data)))


# Folders and globs


def test_folders_are_read_to_the_bottom_in_sorted_order(tmp_path, read):
    write(tmp_path, "b/z.txt", "b/c/a.txt", "b.txt", "a.txt", "B.txt", "ä.txt", "10.txt", "9.txt")
    assert read(tmp_path) == ["10.txt", "9.txt", "B.txt", "a.txt", "b.txt", "ä.txt", "b/z.txt", "b/c/a.txt"]


def test_names_keep_the_order_in_which_they_were_given(tmp_path, read):
    write(tmp_path, "a.txt", "b.txt", "f/c.txt")
    assert read(tmp_path / "b.txt", tmp_path / "f", tmp_path / "a.txt") == ["b.txt", "f/c.txt", "a.txt"]


def test_hidden_files_and_folders_are_left_alone(tmp_path, open_corpus):
    write(tmp_path, ".a.txt", ".git/b.txt", "c.txt")
    corpus = open_corpus(tmp_path)
    assert [document.text for document in corpus] == ["c.txt"]
    assert corpus.tally.ignored_files == 0


def test_files_of_other_kinds_in_a_folder_are_ignored_and_counted(tmp_path, open_corpus):
    write(tmp_path, "a.png", "README", "b.gz", "c.txt")
    corpus = open_corpus(tmp_path)
    assert [document.text for document in corpus] == ["c.txt"]
    assert corpus.tally.ignored_files == 3
    assert "3 files of other kinds ignored" in corpus.tally.describe()


def test_globs_are_sorted_and_take_no_folders(tmp_path, read):
    write(tmp_path, "b.txt", "a.txt", "c.md", "d.txt/e.txt", ".hidden.txt")
    assert read(f"{tmp_path}/*.txt") == ["a.txt", "b.txt"]
    assert read(f"{tmp_path}/[bc].*") == ["b.txt", "c.md"]


def test_two_stars_go_to_the_bottom_but_into_nothing_hidden(tmp_path, read):
    write(tmp_path, "x.txt", "f/a.txt", "f/g/b.txt", "f/.h/c.txt", "f/.d.txt")
    assert read(f"{tmp_path}/**/*.txt") == ["f/a.txt", "f/g/b.txt", "x.txt"]
    assert read(f"{tmp_path}/f/**") == ["f/a.txt", "f/g/b.txt"]
    assert read(f"{tmp_path}/f/.h/**/*.txt") == ["f/.h/c.txt"]


def test_a_glob_from_the_working_folder(tmp_path, read, monkeypatch):
    write(tmp_path, "a.txt", "f/b.txt")
    monkeypatch.chdir(tmp_path)
    assert read("*.txt") == ["a.txt"]
    assert read("**/*.txt") == ["a.txt", "f/b.txt"]


def test_a_file_whose_name_looks_like_a_glob_is_a_file(tmp_path, read):
    write(tmp_path, "a[1].txt", "a1.txt")
    assert read(tmp_path / "a[1].txt") == ["a[1].txt"]


def test_links_in_circles_are_followed_once_and_counted(tmp_path, open_corpus):
    write(tmp_path, "f/a.txt", "g/b.txt")
    (tmp_path / "f" / "up").symlink_to(tmp_path)
    (tmp_path / "f" / "self").symlink_to(tmp_path / "f")
    (tmp_path / "g" / "other").symlink_to(tmp_path / "f")
    corpus = open_corpus(tmp_path)
    assert [document.text for document in corpus] == ["f/a.txt", "g/b.txt"]
    assert corpus.tally.skipped == {"a folder reached twice through links": 3}


def test_two_stars_do_not_follow_links_in_circles(tmp_path, read):
    write(tmp_path, "f/a.txt")
    for name in ("one", "two", "three"):  # followed, they would be 3 to the power of 40 ways
        (tmp_path / "f" / name).symlink_to(tmp_path)
    assert read(f"{tmp_path}/**/*.txt") == ["f/a.txt"]


def test_a_linked_file_and_a_linked_folder_are_read(tmp_path, read):
    write(tmp_path, "out/a.txt", "out/f/b.txt")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "l.txt").symlink_to(tmp_path / "out" / "a.txt")
    (tmp_path / "in" / "m").symlink_to(tmp_path / "out" / "f")
    assert read(tmp_path / "in") == ["out/a.txt", "out/f/b.txt"]


@pytest.mark.parametrize("target", ["nowhere", "a.txt"])
def test_a_link_to_nowhere_or_to_itself_is_a_fault(target, tmp_path, read, open_corpus):
    write(tmp_path, "b.txt")
    (tmp_path / "a.txt").symlink_to(target)
    for name in (tmp_path, tmp_path / "a.txt", f"{tmp_path}/*.txt"):
        with pytest.raises(CorpusError, match=r"a\.txt: cannot be read \("):
            read(name)
    corpus = open_corpus(tmp_path, on_error="skip")
    assert [document.text for document in corpus] == ["b.txt"]
    assert corpus.tally.skipped == {"cannot be read": 1}


def test_pipes_and_sockets_in_a_folder_are_not_opened(tmp_path, open_corpus, monkeypatch):
    write(tmp_path, "b.txt")
    os.mkfifo(tmp_path / "a.txt")
    monkeypatch.chdir(tmp_path)  # a socket's name must be short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("c.txt")
        corpus = open_corpus(tmp_path)
        assert [document.text for document in corpus] == ["b.txt"]
        assert corpus.tally.ignored_files == 2
        assert [document.text for document in open_corpus(f"{tmp_path}/*.txt")] == ["b.txt"]


def test_folders_may_be_hundreds_deep(tmp_path, read):
    write(tmp_path, "/".join(["d"] * 400) + "/a.txt")
    assert len(read(tmp_path)[0]) == 2 * 400 + 5


def test_a_path_too_long_for_the_system_is_a_fault_not_a_crash(tmp_path, open_corpus, monkeypatch):
    write(tmp_path, "a.txt")
    monkeypatch.chdir(tmp_path)
    for _ in range(25):
        os.mkdir("d" * 200)  # noqa: PTH102 the whole path would be too long
        os.chdir("d" * 200)
    with pytest.raises(CorpusError, match=r"cannot be read \(File name too long\)"):
        list(open_corpus(tmp_path))
    corpus = open_corpus(tmp_path, on_error="skip")
    assert [document.text for document in corpus] == ["a.txt"]
    assert corpus.tally.skipped.total() == 1


def test_a_folder_that_cannot_be_listed_is_a_fault(tmp_path, open_corpus, monkeypatch):
    write(tmp_path, "a.txt", "shut/b.txt")
    listing = type(tmp_path).iterdir

    def refuse(self):
        if self.name == "shut":
            raise PermissionError(13, "Permission denied")
        return listing(self)

    monkeypatch.setattr(type(tmp_path), "iterdir", refuse)  # root may list every folder
    with pytest.raises(CorpusError, match=r"shut: the folder cannot be read \(Permission denied\)"):
        open_corpus(tmp_path)
    corpus = open_corpus(tmp_path, on_error="skip")
    assert [document.text for document in corpus] == ["a.txt"]
    assert corpus.tally.skipped == {"the folder cannot be read": 1}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing.txt", r"nothing\.txt: no such file or folder"),
        ("*.nothing", r"\*\.nothing: no file matches"),
        ("[", r"\[: no such file or folder|\[: no file matches"),
        ("a**/*.txt", r"no file matches"),
        ("x" * 300, r"no such file or folder"),
        ("a.txt/b.txt", r"no such file or folder"),
        ("picture.png", r"picture\.png: not a kind of file that is known; --format"),
        ("*.png", r"picture\.png: not a kind of file that is known"),
        ("empty", r"empty: no file of a known kind is there \(\.txt, \.jsonl"),
    ],
)
def test_a_name_that_leads_nowhere_is_an_error_that_names_it(name, message, tmp_path):
    write(tmp_path, "picture.png", "a.txt")
    (tmp_path / "empty").mkdir()
    for on_error in ("stop", "skip"):
        with pytest.raises(CorpusError, match=message):
            find_sources([f"{tmp_path}/{name}"], "auto", Tally(on_error))


def test_an_unknown_builtin_corpus_names_the_one_there_is():
    with pytest.raises(CorpusError, match=r"builtin:java-docs: .*builtin:python-docs"):
        find_sources(["builtin:java-docs"], "auto", Tally())


def test_no_name_at_all_is_an_error():
    with pytest.raises(CorpusError, match="no corpus was named"):
        find_sources([], "auto", Tally())


# Standard input


def test_standard_input_is_text_unless_format_says_otherwise(read, monkeypatch):
    give_input(monkeypatch, b"one\n\ntwo\n")
    assert read("-") == ["one", "two"]
    give_input(monkeypatch, b'{"text": "one"}\n')
    assert read("-", format="jsonl") == ["one"]


@pytest.mark.parametrize("compress", [gzip.compress, lambda data: pyarrow.compress(data, "zstd", asbytes=True)])
def test_compressed_standard_input_is_known_by_its_first_bytes(compress, read, monkeypatch):
    give_input(monkeypatch, compress(b"one\n\ntwo" * 1000))
    assert read("-") == ["one", *["twoone"] * 999, "two"]


def test_parquet_comes_through_standard_input(read, monkeypatch):
    out = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": ["one", "two"]}), out)
    give_input(monkeypatch, out.getvalue())
    assert read("-", format="parquet") == ["one", "two"]


def test_a_fault_in_standard_input_says_so(read, monkeypatch):
    give_input(monkeypatch, b"one\n\n\xff")
    with pytest.raises(CorpusError, match=r"^standard input, line 3: is not UTF-8"):
        read("-")


def test_standard_input_that_is_empty_or_closed_is_an_error(read, monkeypatch):
    give_input(monkeypatch, b"")
    with pytest.raises(CorpusError, match=r"^standard input: the corpus is empty"):
        read("-")
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(CorpusError, match=r"^standard input: is closed"):
        read("-")


def test_standard_input_is_left_open(read, monkeypatch):
    given = io.BytesIO(b"one")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=given))
    read("-")
    assert not given.closed


# Cleaning and counts


def test_dedup_drops_what_came_before_in_any_file_and_format(tmp_path, open_corpus):
    (tmp_path / "a.txt").write_bytes(b"one\r\nline\n\ntwo\n\none\nline\n")
    (tmp_path / "b.jsonl").write_bytes(b'{"text": " one\\nline "}\n{"text": "three"}\n')
    corpus = open_corpus(tmp_path, dedup=True)
    assert [document.text for document in corpus] == ["one\nline", "two", "three"]
    assert corpus.tally.duplicates == 2
    corpus = open_corpus(tmp_path)
    assert len(list(corpus)) == 5
    assert corpus.tally.duplicates == 0


def test_near_empty_documents_are_dropped_and_counted(tmp_path, open_corpus):
    (tmp_path / "a.txt").write_bytes("123456789\n\n1234567890\n\n  一二三四五六七八九十  \n\n   1   \n".encode())
    corpus = open_corpus(tmp_path, min_chars=CorpusOptions().min_chars)
    assert [document.text for document in corpus] == ["1234567890", "一二三四五六七八九十"]
    assert corpus.tally.near_empty == 2
    assert corpus.tally.describe() == ["1 files, 2 documents, 20 characters", "2 near-empty documents dropped"]


@pytest.mark.parametrize("name", ["e.txt", "e.jsonl", "e.md", "e.txt.gz", "e.jsonl.zst"])
@pytest.mark.parametrize("data", [b"", b"\n \r\n\n"])
def test_empty_files_are_counted_as_such(name, data, tmp_path, open_corpus):
    pack = {"gz": gzip.compress, "zst": lambda data: pyarrow.compress(data, "zstd", asbytes=True)}
    (tmp_path / name).write_bytes(pack.get(name.split(".")[-1], bytes)(data))
    write(tmp_path, "z.txt")
    corpus = open_corpus(tmp_path)
    assert [document.text for document in corpus] == ["z.txt"]
    assert (corpus.tally.files, corpus.tally.empty_files, corpus.tally.near_empty) == (2, 1, 0)


def test_an_empty_corpus_is_an_error_that_says_what_was_dropped(tmp_path, open_corpus):
    (tmp_path / "a.txt").write_bytes(b"short\n\nshort")
    (tmp_path / "b.jsonl").write_bytes(b"[]\n")
    corpus = open_corpus(tmp_path, min_chars=10, on_error="skip")
    with pytest.raises(CorpusError) as caught:
        list(corpus)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/a.txt, {tmp_path}/b.jsonl: the corpus is empty")
    assert "2 near-empty documents dropped; 1 skipped: is not a JSON object" in message


def test_counts_are_the_same_for_people_and_machines(tmp_path, open_corpus):
    (tmp_path / "a.txt").write_bytes(b"one\n\none\n\nx\0")
    corpus = open_corpus(tmp_path, dedup=True, on_error="skip")
    assert len(list(corpus)) == 1
    assert corpus.tally.describe() == [
        "1 files, 1 documents, 3 characters",
        "1 duplicates dropped",
        "1 skipped: has a NUL byte",
    ]
    counts = corpus.tally.to_json()
    assert counts["duplicates"] == 1
    assert counts["skipped"] == {"has a NUL byte": 1}


def test_only_the_first_faults_are_kept_as_examples(tmp_path, open_corpus):
    (tmp_path / "a.txt").write_bytes(b"good\n\n" + b"\xff\n\n" * 100)
    corpus = open_corpus(tmp_path, on_error="skip")
    assert len(list(corpus)) == 1
    assert corpus.tally.skipped == {"is not UTF-8": 100}
    assert len(corpus.tally.examples) == 5


def test_min_chars_below_one_is_refused():
    with pytest.raises(InputError, match="--min-chars must be at least 1, not 0"):
        CorpusOptions(min_chars=0)


def test_size_is_that_on_disk_and_a_missing_file_counts_nothing(tmp_path, open_corpus):
    write(tmp_path, "a.txt")
    (tmp_path / "b.txt").symlink_to("nowhere")
    assert open_corpus(tmp_path).size == 5


def test_lines_longer_than_the_limit_are_read_past():
    given = [b"ab", b"c\nde", b"fghi", b"jk", b"\n\nlm"]
    assert list(blocks.read_lines(iter(given), 3)) == [b"abc", None, b"", b"lm"]
    assert list(blocks.read_lines(iter([b"abcd"]), 3)) == [None]
    assert list(blocks.read_lines(iter([b"abc\n"]), 3)) == [b"abc"]
    assert list(blocks.read_lines(iter([]), 3)) == []
