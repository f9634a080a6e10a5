"""How memory is kept on a CPU, where that decides the speed.

glibc hands large blocks back to the system as soon as they are freed. An encoder frees and takes the
same few large blocks at every layer, and training the gradient of the word table at every step; on a virtual machine
the page faults cost several percent.
"""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["keep_freed_memory", "share_freed_memory"]

# From glibc's malloc.h. The threshold of mapped blocks cannot be set above 32 MiB there; larger ones still go back,
# unless no block at all may be mapped.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -3, -4, -8
_LARGEST_KEPT_BLOCK = 32 * 2**20
_KEPT_IN_ALL = 2**30


def keep_freed_memory(*, of_any_size: bool = False) -> bool:
    """Raise glibc's thresholds for this process; tells whether that worked (elsewhere it does nothing).

    `of_any_size` is for training, whose large blocks come back at every step; other work may free one for good.
    """
    wanted = {_M_MMAP_THRESHOLD: _LARGEST_KEPT_BLOCK, _M_TRIM_THRESHOLD: _KEPT_IN_ALL}
    if of_any_size:
        wanted[_M_MMAP_MAX] = 0
    return _set(wanted)


def share_freed_memory() -> bool:
    """Let all threads take memory from one store: what one has freed is there for the others, and not kept for each.

    For a process with a few threads that work on large blocks; to be called before they begin.
    """
    return _set({_M_ARENA_MAX: 1})


def _set(wanted: Mapping[int, int]) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return all(mallopt(name, value) for name, value in wanted.items())
