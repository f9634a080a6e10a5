"""Records of runs, one JSON line each, sorted by their keys, in docs/results/: what was run once is not run again.

The file belongs to the repository, so that a long table can be spread over several machines. Nothing in a record may
depend on where a machine keeps its files.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bertsmith.folders import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Kept:
    """The records of one file."""

    path: Path

    def find(self, key: str) -> dict[str, Any] | None:
        """What is kept under a key."""
        return self._read().get(key)

    def add(self, key: str, content: dict[str, Any]) -> None:
        """Keep one more; several processes may do so at once."""
        with self._alone():
            records = {**self._read(), key: {"key": key, **content}}
            lines = [json.dumps(records[name], ensure_ascii=False) + "\n" for name in sorted(records)]
            write_whole(self.path, lambda file: file.write("".join(lines).encode()))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _read(self) -> dict[str, dict[str, Any]]:
        if not self.path.exists():
            return {}
        records = [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines()]
        return {record["key"]: record for record in records}
