"""A small form of `benchmarks/broken_inputs.py`: every cause once, refused or counted, never a wrong data set."""

from __future__ import annotations

import pytest

from broken_files import CAUSES, make_case
from broken_inputs import Bench, run_all

_SLOW = {"a JSON line over the limit", "a Markdown file over the limit"}  # files of 64 MiB


@pytest.mark.parametrize("part", range(4))
def test_every_broken_input_is_refused_or_counted(part):
    causes = [cause for cause in CAUSES if cause not in _SLOW][part::4]
    results = run_all(15, causes)
    assert results.wrong == []
    assert results.cases.total() == 15
    assert results.refused.total() + results.went_on.total() == 30


def test_there_are_at_least_twenty_causes():
    assert len(CAUSES) >= 20


def test_a_case_is_the_same_every_time(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    for cause in ("a gzip file with a flipped bit", "a JSON line that was cut", "a Parquet file that was cut"):
        for folder in (one := tmp_path / "one" / cause[2:6], two := tmp_path / "two" / cause[2:6]):
            make_case(cause, 3, folder)
        names = [path.name for path in sorted(one.iterdir())]
        assert names == [path.name for path in sorted(two.iterdir())]
        assert all((one / name).read_bytes() == (two / name).read_bytes() for name in names)


@pytest.mark.parametrize(
    ("target", "value", "what"),
    [
        ("bertsmith.text.readers._SURROGATE", None, "TypeError|AttributeError"),
        ("bertsmith.text.faults.Tally.describe", lambda self: [], "nothing is counted"),
        ("broken_inputs.text_file", lambda texts: b"Another text altogether.", "not the tokens"),
    ],
)
def test_the_check_can_fail(target, value, what, tmp_path, monkeypatch):
    bench = Bench(tmp_path)
    monkeypatch.setattr(target, value)
    bench.run_case("half a surrogate pair in JSON", 0)
    assert any(part in wrong for wrong in bench.results.wrong for part in what.split("|"))
