"""How memory is kept and laid out on a CPU, where that decides the speed.

glibc hands large blocks back to the system as soon as they are freed. An encoder frees and takes the
same few large blocks at every layer; on a virtual machine the page faults cost several percent.
"""

from __future__ import annotations

import ctypes
import sys

from torch import nn

__all__ = ["keep_freed_memory", "store_by_columns"]

# From glibc's malloc.h. The first cannot be set above 32 MiB there; larger blocks still go back.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_LARGEST_KEPT_BLOCK = 32 * 2**20
_KEPT_IN_ALL = 2**30


def keep_freed_memory() -> bool:
    """Raise glibc's thresholds for this process; tells whether that worked (elsewhere it does nothing)."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BLOCK)) and bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_IN_ALL))


def store_by_columns(model: nn.Module) -> None:
    """Turn the weights of every linear layer in memory, not in shape: a product x Wᵀ then reads them in order.

    For prediction; a model that is saved or trained is better off as it was.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight.data = module.weight.data.t().contiguous().t()
