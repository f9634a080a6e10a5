"""Rows of TSV, CSV, JSON lines and Parquet: what stands where, and what is said of a file that is broken."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace

import pyarrow
import pytest
from pyarrow import parquet

from bertsmith.errors import DataError, InputError
from bertsmith.tasks.tables import Place, Row, is_plain_text, read_rows, written_out


def written(tmp_path, name, data):
    path = tmp_path / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return str(path)


def cells(name, columns=()):
    return [(row.place.line, dict(row.cells)) for row in read_rows(name, columns)]


@pytest.fixture
def stdin(monkeypatch):
    """Standard input of some bytes."""

    def give(data):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BufferedReader(io.BytesIO(data))))

    return give


def test_tsv_is_cut_at_tabs_alone(tmp_path):
    """Quotation marks are characters, as in MRPC; spaces, carriage returns and a byte order mark do no harm."""
    text = '\ufefftext\tlabel \r\nHe said " no\t1\r\n\r\n"a" b\t\n\u2028odd \t2'
    name = written(tmp_path, "a.tsv", text)
    assert cells(name) == [
        (2, {"text": 'He said " no', "label": "1"}),
        (4, {"text": '"a" b', "label": ""}),
        (5, {"text": "\u2028odd ", "label": "2"}),
    ]


def test_numbers_mean_that_the_first_line_is_data(tmp_path):
    name = written(tmp_path, "a.tsv", "gj04\t1\t\tA sentence.\ngj04\t0\t*\tOther.\n")
    assert cells(name, [4, 2]) == [
        (1, {1: "gj04", 2: "1", 3: "", 4: "A sentence."}),
        (2, {1: "gj04", 2: "0", 3: "*", 4: "Other."}),
    ]


def test_csv_follows_the_usual_quoting_and_counts_lines_of_the_file(tmp_path):
    text = 'text,label\n"two\nlines, ""quoted""",1\n\nplain,2\n'
    name = written(tmp_path, "a.csv", text)
    assert cells(name) == [
        (2, {"text": 'two\nlines, "quoted"', "label": "1"}),
        (5, {"text": "plain", "label": "2"}),
    ]


def test_json_lines_have_names_that_lead_inside(tmp_path):
    lines = [{"question": {"stem": "Why?", "n": 0}, "a.b": "flat"}, {"question": None}]
    name = written(tmp_path, "a.jsonl", "\n".join(json.dumps(line) for line in lines) + "\n\n")
    first, second = read_rows(name)
    assert first.text("question.stem") == "Why?"
    assert first.get("question.n") == 0
    assert first.text("a.b") == "flat"
    assert not second.has("question.stem")
    with pytest.raises(DataError, match=r"line 2: no column 'question.stem'; there are question: name one with --col"):
        second.get("question.stem")


def test_parquet_by_name_and_by_number(tmp_path):
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"t": ["one", None], "l": [1, 2], "w": [["a", "b"], []]}), path, row_group_size=1)
    assert cells(str(path)) == [(1, {"t": "one", "l": 1, "w": ["a", "b"]}), (2, {"t": None, "l": 2, "w": []})]
    assert cells(str(path), [1])[0] == (1, {1: "one", 2: 1, 3: ["a", "b"]})
    second = list(read_rows(str(path)))[1]
    with pytest.raises(DataError, match=r"a.parquet, line 2: column 't' holds None, not text; correct it or remove"):
        second.text("t")


def test_a_day_that_python_has_not_is_in_nobodys_way(tmp_path):
    days = pyarrow.array([2**62], pyarrow.int64()).cast(pyarrow.timestamp("us", "UTC"))
    parquet.write_table(pyarrow.table({"t": ["one"], "day": days}), tmp_path / "a.parquet")
    (row,) = read_rows(str(tmp_path / "a.parquet"))
    assert (row.text("t"), row.get("day")) == ("one", None)


def test_a_text_file_is_one_text_a_line_unless_columns_are_named(tmp_path):
    name = written(tmp_path, "a.txt", "one\ttwo\n\nthree\n")
    assert cells(name) == [(1, {"text": "one\ttwo"}), (2, {"text": ""}), (3, {"text": "three"})]
    name = written(tmp_path, "b.txt", "Quality\ttext\n1\tone\n")
    assert cells(name, ["text"]) == [(2, {"Quality": "1", "text": "one"})]


def test_standard_input_is_json_where_it_begins_with_a_brace(stdin):
    stdin(b'{"text": "a"}\n{"text": "b"}\n')
    assert cells("-") == [(1, {"text": "a"}), (2, {"text": "b"})]
    stdin("ein Wörtchen\nnoch eins".encode())
    assert cells("-") == [(1, {"text": "ein Wörtchen"}), (2, {"text": "noch eins"})]
    stdin(b"caf\xe9\n")
    with pytest.raises(DataError, match=r"standard input, line 1: is not UTF-8 \(byte 3 of the line\)"):
        cells("-")


def test_a_list_on_standard_input_is_no_text(stdin):
    stdin(b'[{"text": "a"}, {"text": "b"}]')
    with pytest.raises(DataError, match=r"standard input, line 1: expected a JSON object, found list; write an object"):
        cells("-")
    stdin(b'[\n  {"text": "a"}\n]')
    with pytest.raises(DataError, match=r"standard input, line 1: is not JSON .*; a whole object goes on one line"):
        cells("-")
    for text in ("[a] text", "[{ref}] a text"):
        stdin(text.encode())
        assert cells("-") == [(1, {"text": text})]


@pytest.mark.parametrize(
    "text",
    ["{[1]}", "{{}: 1}", "['a' 'b']", "[1],[2]", '["\\ud83d"]', "{1, 2}", "[b'a']", "[" * 5000 + "]" * 5000,
     "[" + "'a', " * 2**16 + "]"],
)  # fmt: skip
def test_text_that_is_no_list_after_all_stays_text(text):
    """Whatever is in a cell: no error, no set, no half character, and little memory."""
    assert written_out(text) == text


def test_standard_input_may_be_closed(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="standard input: is closed; name a file, or pipe something in"):
        cells("-")


def test_plain_text_is_told_from_a_table(tmp_path, stdin):
    table = written(tmp_path, "b.txt", "text\tlabel\n")
    for told in (False, True):
        assert is_plain_text(written(tmp_path, "a.txt", "one text\nand\tanother\n"), told=told)
        assert not is_plain_text(written(tmp_path, "a.tsv", "text\n"), told=told)
        stdin(b"one text\na\tb\n")
        assert is_plain_text("-", told=told)
        stdin(b'{"text": "a"}')
        assert not is_plain_text("-", told=told)
    assert not is_plain_text(table, told=True)
    with pytest.raises(DataError, match=r"b\.txt, line 1: has tabs, so it may be a table; name its columns with --col"):
        is_plain_text(table, told=False)
    stdin(b"a\tb\n")
    assert not is_plain_text("-", told=True)
    with pytest.raises(DataError, match="standard input, line 1: has tabs, so it may be a table"):
        is_plain_text("-", told=False)


@pytest.mark.parametrize("begins", [b"\xef\xbb\xbf", b" ", b"\n\n", b"\xef\xbb\xbf\r\n"])
def test_json_on_standard_input_may_have_something_before_its_brace(stdin, begins):
    stdin(begins + b'{"text": "a"}\n')
    assert [row.cells for row in read_rows("-")] == [{"text": "a"}]


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_a_blank_line_is_an_empty_cell_where_there_is_one_column(tmp_path, name):
    """Or what is said of the rows after it would stand beside others."""
    path = written(tmp_path, name, "\nsentence\ngood\n\n\nbad\n\n")
    found = [(3, {"sentence": "good"}), (4, {"sentence": ""}), (5, {"sentence": ""}), (6, {"sentence": "bad"})]
    assert cells(path) == found
    path = written(tmp_path, name, "a\tb\n1\t2\n\n3\t4\n".replace("\t", "\t" if name == "a.tsv" else ","))
    assert cells(path) == [(2, {"a": "1", "b": "2"}), (4, {"a": "3", "b": "4"})]


@pytest.mark.parametrize(
    ("name", "data", "line", "what"),
    [
        (
            "a.tsv",
            b"text\tlabel\na\t1\nb\t1\textra\n",
            3,
            "3 columns, not 2 as in the first line; correct or remove it",
        ),
        ("a.tsv", b"text\tlabel\na\n", 2, "1 columns, not 2"),
        ("a.tsv", b"text\ttext\na\tb\n", 1, "two columns have the same name, 'text'; if this line is data, name"),
        ("a.tsv", b"text\tlabel\ncaf\xe9\t1\n", 2, "is not UTF-8 (byte 3 of the line); convert the file first"),
        ("a.tsv", "text\tlabel\n".encode("utf-16"), 1, "is not UTF-8 (byte 0 of the line)"),
        ("a.tsv", b"", 1, "is empty"),
        ("a.csv", b'text,label\na,1\n"open,2\nc,3\n', 3, "is not CSV (unexpected end of data)"),
        ("a.csv", b'text,label\n"a"b,1\n', 2, "is not CSV"),
        ("a.csv", b"\n\n", 1, "is empty"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "b"\n', 2, "is not JSON"),
        ("a.jsonl", b'{"text": "a"}\n["b"]\n', 2, "expected a JSON object, found list; write an object a line"),
        ("a.jsonl", b"[" * 100_000 + b"\n", 1, "is not JSON"),
        ("a.jsonl", b'{"text": "a"}\n{"text": "a \\ud83d b"}\n', 2, "holds half a surrogate pair"),
        ("a.jsonl", b'{"text": "a"}\n{"\\uDC00": "b"}\n', 2, "holds half a surrogate pair"),
        ("a.jsonl", b"\n \n", 1, "is empty"),
        ("a.parquet", b"PAR1 this is none PAR1", 1, "is not Parquet, or is damaged"),
        ("a.parquet", b"", 1, "is not Parquet, or is damaged"),
    ],
)
def test_a_broken_table_is_refused_with_file_and_line(tmp_path, name, data, line, what):
    path = written(tmp_path, name, data)
    with pytest.raises(DataError) as refusal:
        cells(path)
    assert str(refusal.value).startswith(f"{path}, line {line}: {what}")
    assert "\n" not in str(refusal.value)


def test_a_character_above_the_first_plane_is_no_half_pair(tmp_path):
    name = written(tmp_path, "a.jsonl", json.dumps({"text": "grin 😀"}))
    assert cells(name) == [(1, {"text": "grin 😀"})]


def test_two_columns_of_one_name_are_told_apart_by_number_alone(tmp_path):
    table = pyarrow.Table.from_arrays([pyarrow.array(["a"]), pyarrow.array(["b"])], names=["text", "text"])
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a\.parquet, line 1: two columns have the same name"):
        cells(str(tmp_path / "a.parquet"))
    assert cells(str(tmp_path / "a.parquet"), [2]) == [(1, {1: "a", 2: "b"})]


def test_a_parquet_row_that_is_not_utf8_has_its_number(tmp_path):
    rows = [b"fine", b"fine", b"caf\xe9", b"fine"]
    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": pyarrow.array(rows).view(pyarrow.string())}), path)
    with pytest.raises(DataError, match=r"a.parquet, line 3: is not Parquet, or is damaged \('utf-8' codec can't"):
        cells(str(path))


def test_a_file_that_cannot_be_opened_or_told_is_named(tmp_path):
    for name, what in (
        ("no.tsv", "cannot be read (No such file"),
        ("", "cannot be read (Is a directory"),
        ("a.doc", "is of"),
    ):
        path = str(tmp_path / name) if name else str(tmp_path / "d.tsv")
        if not name:
            (tmp_path / "d.tsv").mkdir()
        with pytest.raises(DataError) as refusal:
            list(read_rows(path))
        assert str(refusal.value).startswith(f"{path}: {what}")


def test_a_column_that_is_not_text_is_said_with_its_place():
    row = Row(Place("f.jsonl", 7), {"text": 3})
    with pytest.raises(DataError, match=r"f.jsonl, line 7: column 'text' holds 3, not text"):
        row.text("text")
