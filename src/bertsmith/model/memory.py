"""How memory is kept and laid out on a CPU, where that decides the speed.

glibc hands large blocks back to the system as soon as they are freed. An encoder frees and takes the
same few large blocks at every layer, and training the gradient of the word table at every step; on a virtual machine
the page faults cost several percent.
"""

from __future__ import annotations

import ctypes
import sys

from torch import nn

__all__ = ["keep_freed_memory", "store_by_columns"]

# From glibc's malloc.h. The threshold of mapped blocks cannot be set above 32 MiB there; larger ones still go back,
# unless no block at all may be mapped.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
_LARGEST_KEPT_BLOCK = 32 * 2**20
_KEPT_IN_ALL = 2**30


def keep_freed_memory(*, of_any_size: bool = False) -> bool:
    """Raise glibc's thresholds for this process; tells whether that worked (elsewhere it does nothing).

    `of_any_size` is for training, whose large blocks come back at every step; other work may free one for good.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    wanted = {_M_MMAP_THRESHOLD: _LARGEST_KEPT_BLOCK, _M_TRIM_THRESHOLD: _KEPT_IN_ALL}
    if of_any_size:
        wanted[_M_MMAP_MAX] = 0
    return all(mallopt(name, value) for name, value in wanted.items())


def store_by_columns(model: nn.Module) -> None:
    """Turn the weights of every linear layer in memory, not in shape: a product x Wᵀ then reads them in order.

    For prediction; a model that is saved or trained is better off as it was.
    """
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight.data = module.weight.data.t().contiguous().t()
