"""The log of a run: lines that a kill cannot spoil, cut back when a run goes on, and the same in TensorBoard."""

from __future__ import annotations

import json
import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from bertsmith.train.metrics import LogFile, MetricsLog, read_log


def write(folder, steps, *, from_step=-1):
    log = MetricsLog(folder, from_step=from_step)
    for step in steps:
        log.add("train", step, {"loss": 10.0 - step, "tokens": 100 * step})
        if step % 2 == 0:
            log.add("eval", step, {"loss": 20.0 - step})
            log.add("fill", step, {"text": "花[MASK]了", "candidates": [["开", 0.5]]})
    log.close()
    # Their names end in a time in seconds; here all are written within one, so they are put into order by hand.
    board = folder / "tensorboard"
    for path in board.glob("events.*") if board.is_dir() else ():
        path.rename(board / f"tfevents.{len(list(board.iterdir())):03}")


def scalars(folder, tag):
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_every_entry_is_a_line_and_numbers_are_in_tensorboard(tmp_path):
    write(tmp_path, [1, 2])
    lines = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [
        {"kind": "train", "step": 1, "loss": 9.0, "tokens": 100},
        {"kind": "train", "step": 2, "loss": 8.0, "tokens": 200},
        {"kind": "eval", "step": 2, "loss": 18.0},
        {"kind": "fill", "step": 2, "text": "花[MASK]了", "candidates": [["开", 0.5]]},
    ]
    assert "花" in lines[-1]  # for people to read
    assert scalars(tmp_path, "train/loss") == [(1, 9.0), (2, 8.0)]
    assert scalars(tmp_path, "train/tokens") == [(1, 100.0), (2, 200.0)]
    assert scalars(tmp_path, "eval/loss") == [(2, 18.0)]


def test_a_line_can_be_read_as_soon_as_it_is_added(tmp_path):
    log = LogFile(tmp_path / "examples.jsonl", from_step=-1)
    log.add({"step": 1})
    assert list(read_log(tmp_path / "examples.jsonl")) == [{"step": 1}]
    log.close()


def test_going_on_cuts_off_what_came_after_the_checkpoint(tmp_path):
    """The log, and TensorBoard's view of it, are those of a run that never stopped."""
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    broken.mkdir(), whole.mkdir()
    write(broken, range(8))
    write(broken, range(5, 9), from_step=4)
    write(whole, range(9))
    assert (broken / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert scalars(broken, "train/loss") == scalars(whole, "train/loss")
    assert scalars(broken, "eval/loss") == scalars(whole, "eval/loss")


def test_beginning_again_keeps_nothing(tmp_path):
    """A run that was killed before its first checkpoint has logged step 0 already."""
    write(tmp_path, range(6))
    write(tmp_path, range(3))
    assert [entry["step"] for entry in read_log(tmp_path / "metrics.jsonl") if entry["kind"] == "train"] == [0, 1, 2]
    assert [step for step, _ in scalars(tmp_path, "train/loss")] == [0, 1, 2]


@pytest.mark.parametrize("half", [b'{"kind": "tra', b'{"kind": "train", "step": 3}', b"\xe8\x8a"])
def test_a_line_that_was_cut_short_is_left_out_and_does_not_stick_to_the_next(half, tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"step": 1}\n{"step": 2}\n' + half)
    assert list(read_log(path)) == [{"step": 1}, {"step": 2}]
    log = LogFile(path, from_step=2)
    log.add({"step": 3, "whole": True})
    log.close()
    assert list(read_log(path)) == [{"step": 1}, {"step": 2}, {"step": 3, "whole": True}]


def test_without_tensorboard_the_lines_are_written_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    write(tmp_path, [1])
    assert [entry["step"] for entry in read_log(tmp_path / "metrics.jsonl")] == [1]
    assert not (tmp_path / "tensorboard").exists()
