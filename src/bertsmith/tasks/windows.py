"""Text that is longer than the model: windows that overlap, and for every unit the window in which it has most context.

Both taggers and question answering read long text so. A unit is a word, a sentence or a piece; `ends` are the running
sums of their sizes in pieces, from 0.
"""

from __future__ import annotations

import numpy as np

__all__ = ["cut_windows", "most_context"]


def cut_windows(ends: np.ndarray, room: int, step: int) -> list[tuple[int, int]]:
    """Windows [start, stop) of whole units, none larger than `room`, each beginning about `step` after the last.

    A unit that alone is larger is a window of its own. Nothing is left out.

    >>> cut_windows(np.arange(11), room=6, step=3)
    [(0, 6), (3, 9), (6, 10)]
    >>> cut_windows(np.array([0, 4, 9, 10]), room=6, step=3)
    [(0, 1), (1, 3)]
    """
    windows: list[tuple[int, int]] = []
    start, last = 0, len(ends) - 1
    while start < last:
        stop = max(start + 1, int(np.searchsorted(ends, ends[start] + room, side="right")) - 1)
        if windows and windows[-1][1] == stop:  # the one before reached as far
            start += 1
            continue
        windows.append((start, stop))
        later = int(np.searchsorted(ends, ends[start] + step))
        start = last if stop == last else min(max(later, start + 1), stop)
    return windows


def most_context(windows: list[tuple[int, int]], ends: np.ndarray) -> np.ndarray:
    """For each unit the number of the window in which it has most context: min(left, right) + 0.01·window.

    >>> most_context([(0, 6), (3, 9)], np.arange(10)).tolist()
    [0, 0, 0, 0, 0, 1, 1, 1, 1]
    """
    best = np.full(len(ends) - 1, -1.0)
    owner = np.zeros(len(ends) - 1, np.int64)
    for number, (start, stop) in enumerate(windows):
        left, right = ends[start:stop] - ends[start], ends[stop] - ends[start + 1 : stop + 1]
        context = np.minimum(left, right) + 0.01 * (ends[stop] - ends[start])
        better = context > best[start:stop]
        best[start:stop][better] = context[better]
        owner[start:stop][better] = number
    return owner
