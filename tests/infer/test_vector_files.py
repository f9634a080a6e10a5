"""Vectors on disk: what NumPy, Arrow and JSON read back is what was written, and what cannot be written is refused."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from bertsmith.errors import InputError
from bertsmith.infer import vector_files
from bertsmith.infer.vector_files import check_output, writer_for


def vectors(count=25, width=6):
    """Numbers of all sizes that float32 has, many of them next to another."""
    rng = np.random.default_rng(0)
    found = (rng.standard_normal((count, width)) * 10.0 ** rng.integers(-30, 30, (count, width))).astype(np.float32)
    found[1:3] = rng.standard_normal((2, width)).astype(np.float32)
    found[3] = np.nextafter(found[1], np.float32(9))
    return found


def write(path, records):
    with path.open("wb") as file:
        return writer_for(path)(file, iter(records))


def texts(count=25):
    return [{"text": f'text {n}\n\t"北京" \'', "pair": f"p{n}"} for n in range(count)]


def test_npy_is_one_float32_array(tmp_path):
    given = vectors(1234)
    assert write(tmp_path / "a.npy", ({"text": "", "vector": row} for row in given)) == 1234
    for mode in (None, "r"):
        found = np.load(tmp_path / "a.npy", mmap_mode=mode)
        assert found.dtype == np.float32
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, given)


def test_jsonl_has_a_line_a_text_and_numbers_to_the_last_bit(tmp_path):
    given = vectors()
    assert write(tmp_path / "a.jsonl", [text | {"vector": v} for text, v in zip(texts(), given, strict=True)]) == 25
    lines = (tmp_path / "a.jsonl").read_text(encoding="utf-8").split("\n")
    assert lines.pop() == ""
    rows = [json.loads(line) for line in lines]
    assert [{"text": row["text"], "pair": row["pair"]} for row in rows] == texts()
    np.testing.assert_array_equal(np.array([row["vector"] for row in rows], np.float32), given)
    assert "北京" in lines[0]
    assert max(len(f"{number}") for number in rows[1]["vector"]) < 15  # no more digits than that takes


@pytest.mark.parametrize("at_once", [(4, 2**24), (1024, 20), (1024, 2**24)])
def test_parquet_has_a_row_a_text_in_groups_of_bounded_size(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(vector_files, "_ROWS_AT_ONCE", at_once[0])
    monkeypatch.setattr(vector_files, "_NUMBERS_AT_ONCE", at_once[1])
    given = vectors()
    assert write(tmp_path / "a.parquet", [t | {"vector": v} for t, v in zip(texts(), given, strict=True)]) == 25
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.column_names == ["text", "pair", "vector"]
    assert str(table.schema.field("vector").type.value_type) == "float"
    assert table["text"].to_pylist() == [text["text"] for text in texts()]
    np.testing.assert_array_equal(np.array(table["vector"].to_pylist(), np.float32), given)
    groups = pq.ParquetFile(tmp_path / "a.parquet").num_row_groups
    assert groups == {(4, 2**24): 7, (1024, 20): 7, (1024, 2**24): 1}[at_once]


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_tokens_keep_their_rows_by_token_and_layer(tmp_path, ending):
    rng = np.random.default_rng(1)
    given = [
        {"text": "t", "tokens": [f"w{n}" for n in range(size)], "vectors": rng.random((size, 2, 5), np.float32)}
        for size in (3, 1, 7)
    ]
    path = tmp_path / f"a{ending}"
    assert write(path, given) == 3
    if ending == ".jsonl":
        found = [json.loads(line) for line in path.read_text().splitlines()]
    else:
        found = pq.read_table(path).to_pylist()
    for row, expected in zip(found, given, strict=True):
        assert list(row) == ["text", "tokens", "vectors"]
        assert row["tokens"] == expected["tokens"]
        np.testing.assert_array_equal(np.array(row["vectors"], np.float32), expected["vectors"])


@pytest.mark.parametrize("ending", [".jsonl", ".parquet", ".npy"])
def test_an_error_among_the_records_goes_through(tmp_path, ending):
    def broken():
        yield {"text": "a", "vector": np.ones(3, np.float32)}
        raise InputError("line 2")

    with pytest.raises(InputError, match="line 2"):
        write(tmp_path / f"a{ending}", broken())


def test_what_cannot_be_written_is_refused_before_long_work(tmp_path, monkeypatch):
    for name in ("a.txt", "a", "a.npz", "a.NPY"):
        with pytest.raises(InputError, match=r"name ends in \.npy, \.parquet, \.jsonl"):
            check_output(tmp_path / name)
    with pytest.raises(InputError, match=r"\.npy cannot hold; take \.jsonl"):
        check_output(tmp_path / "a.npy", tokens=True)
    check_output(tmp_path / "a.parquet", tokens=True)
    with pytest.raises(InputError, match="does not exist"):
        check_output(tmp_path / "no" / "a.npy")
    (tmp_path / "d.npy").mkdir()
    with pytest.raises(InputError, match="or it is one"):
        check_output(tmp_path / "d.npy")
    monkeypatch.setattr(vector_files.os, "access", lambda *given: False)
    with pytest.raises(InputError, match="cannot be written to"):
        check_output(tmp_path / "a.npy")
