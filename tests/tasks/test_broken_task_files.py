"""A small form of `benchmarks/broken_tasks.py`: every cause once, refused with the file and the very line."""

from __future__ import annotations

import pytest

from broken_tasks import CAUSES, Bench, make_case, run_all


def test_every_broken_file_is_refused_with_file_and_line():
    results = run_all(len(CAUSES))
    assert results.wrong == []
    assert results.cases.total() == len(CAUSES) >= 30


def test_a_case_is_the_same_every_time(tmp_path):
    for name in ("a row in Latin-1", "JSON that was cut", "a Parquet file with a flipped bit"):
        made = []
        for folder in (tmp_path / f"one {name}", tmp_path / f"two {name}"):
            case = make_case(name, 3, folder)
            made.append((case.line, case.blamed.name, case.blamed.read_bytes()))
        assert made[0] == made[1]


@pytest.mark.parametrize(
    ("target", "value", "cause", "what"),
    [
        ("bertsmith.errors.DataError.__str__", lambda self: "a\nb", "a tag that is none", "not one sentence alone"),
        ("bertsmith.tasks.tables.Place.__str__", lambda self: self.file, "a row in Latin-1", "the file and line"),
        ("bertsmith.tasks.tables.has_lone_surrogate", lambda text: False, "half a surrogate pair", "does not begin"),
    ],
)
def test_the_check_can_fail(target, value, cause, what, tmp_path, monkeypatch):
    bench = Bench(tmp_path)
    monkeypatch.setattr(target, value)
    bench.run_case(cause, 0)
    assert any(what in wrong for wrong in bench.results.wrong)
