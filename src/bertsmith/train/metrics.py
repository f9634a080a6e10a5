"""The log of a run: `metrics.jsonl`, one object a line, and TensorBoard where it is installed.

    {"kind": "train", "step": 20, "seconds": 9.1, "tokens": 81920, "mlm_loss": 8.9, …}
    {"kind": "eval", "step": 100, "loss": 7.7, …}
    {"kind": "fill", "step": 100, "text": "…", "candidates": [["the", 0.2], …]}

When a run goes on from a checkpoint, what was logged after it is cut off: the log is that of one undisturbed run,
but that the first line of means after it is over the steps since then.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bertsmith.folders import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

__all__ = ["LogFile", "MetricsLog", "read_log"]


class LogFile:
    """A file of JSON lines that each carry a `step`; every line is handed to the system at once."""

    def __init__(self, path: Path, *, from_step: int) -> None:
        if path.exists():
            kept = [entry for entry in read_log(path) if entry["step"] <= from_step]
            write_whole(path, lambda file: file.writelines(_lines(kept)))
        self._file = path.open("ab")

    def add(self, entry: dict[str, Any]) -> None:
        """One line."""
        self._file.writelines(_lines([entry]))
        self._file.flush()

    def close(self) -> None:
        """No more lines."""
        self._file.close()


class MetricsLog:
    """`metrics.jsonl` and TensorBoard's events in `tensorboard/`, from one call."""

    def __init__(self, folder: Path, *, from_step: int) -> None:
        self._file = LogFile(folder / "metrics.jsonl", from_step=from_step)
        self._board = _tensorboard(folder / "tensorboard", from_step)

    def add(self, kind: str, step: int, values: Mapping[str, Any]) -> None:
        """One line; numbers go to TensorBoard as well."""
        self._file.add({"kind": kind, "step": step, **values})
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, int | float):
                    self._board.add_scalar(f"{kind}/{name}", value, step)

    def close(self) -> None:
        """No more entries."""
        self._file.close()
        if self._board is not None:
            self._board.close()


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """The entries of a log; a last line that was cut short is left out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def _lines(entries: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    return (json.dumps(entry, ensure_ascii=False).encode() + b"\n" for entry in entries)


def _tensorboard(folder: Path, from_step: int) -> Any:
    """A writer, or None where the package is not installed. `purge_step` hides what a killed run wrote later."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(folder, purge_step=from_step + 1)
