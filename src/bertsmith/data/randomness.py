"""Random numbers that are a pure function of what they are for.

A key is made of whole numbers (seed, epoch, document, …); the same key gives the same numbers, whatever was drawn
before, in whatever order or process. By hand because a generator of NumPy has a state, and making one for every
document would take longer than the work.
"""

from __future__ import annotations

import numpy as np

__all__ = ["integers", "key_of", "uniforms"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def key_of(*parts: int | np.ndarray) -> np.ndarray:
    """Fold whole numbers, or arrays of them, into 64-bit keys.

    >>> key_of(1, 2) == key_of(2, 1)
    np.False_
    """
    key = np.zeros((), np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            key = _mix(key + _GOLDEN + np.asarray(part).astype(np.uint64))
    return key


def uniforms(key: np.ndarray) -> np.ndarray:
    """One number from 0 to below 1 for each key."""
    return (key >> np.uint64(11)) * 2.0**-53


def integers(key: np.ndarray, low: int | np.ndarray, high: int | np.ndarray) -> np.ndarray:
    """One whole number from `low` to `high`, both included, for each key."""
    return low + np.floor(uniforms(key) * (np.asarray(high) - low + 1)).astype(np.int64)


def _mix(x: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64 (Steele, Lea and Flood, 2014)."""
    x = (x ^ (x >> np.uint64(30))) * _MIX[0]
    x = (x ^ (x >> np.uint64(27))) * _MIX[1]
    return x ^ (x >> np.uint64(31))
