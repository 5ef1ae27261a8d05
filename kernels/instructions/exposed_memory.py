"""Memory that code outside may write without anybody seeing it, as NumPy does: what pullbacks keep of it is copied."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any
from weakref import ReferenceType, ref

import numpy as np

from kernels.arrays.sweep_interface import Array
from kernels.instructions.form import Form
from kernels.instructions.restrided import restrided
from kernels.native import registry
from kernels.native.call_structs import EXPOSED
from kernels.native.memory import where
from kernels.native.pool import reused_arrays
from kernels.native.pool.pool_structs import LARGE
from kernels.native.tape_structs import RegistryTable

_holders: dict[int, dict[int, ReferenceType[Any]]] = {}
"""By the id of an array that owns memory: those through whom others may write there, as long as they live."""
_roots: dict[int, ReferenceType[Array]] = {}
_counts = np.zeros(2 * EXPOSED + 1, np.int64)
"""How many such arrays there are by their addresses, for native code, and in all: never too few. Then which one of each
place it is, or _SEVERAL."""
_only = _counts[EXPOSED + 1 :]
_SEVERAL = -1
registry.put(registry.REGISTRY.address, RegistryTable.exposed, where(_counts))


def root_of(array: Array) -> Array:
    """Return the array that owns an array's memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def expose(array: Array, holder: Any = None) -> None:
    """Mark the memory of an array as exposed while ``holder`` lives, by default the array that owns the memory."""
    root = root_of(array)
    key, holder = id(root), root if holder is None else holder
    if type(root.base) is bytes or id(holder) in _holders.get(key, ()):
        return
    place = _place(key)
    _only[place] = key if _counts[place] == 0 or _only[place] == key else _SEVERAL
    _counts[place] += 1
    _counts[EXPOSED] += 1
    holders = _holders.setdefault(key, {})
    _roots[key] = ref(root, partial(_died, key))
    holders[id(holder)] = ref(holder, partial(_end, key, id(holder)))


def _place(key: int) -> int:
    return (key >> 4) & (EXPOSED - 1)


def _end(key: int, holder: int, _: Any) -> None:
    """Forget a holder that has died."""
    holders = _holders.get(key)
    if holders is not None and holders.pop(holder, None) is not None:
        if not holders:
            _holders.pop(key, None)
            _roots.pop(key, None)
        _counts[_place(key)] -= 1
        _counts[EXPOSED] -= 1


def _died(key: int, _: Any) -> None:
    """Forget an array that has died, whose id is free, although a holder may live on."""
    for holder in list(_holders.get(key, ())):
        _end(key, holder, None)


def copied(array: Array) -> Array:
    """Return a copy in the order of the elements in memory; what stands at several places is copied once."""
    source = array[(*[slice(0, 1) if step == 0 else slice(None) for step in array.strides], ...)]
    copy = reused_arrays.call(partial(source.copy, "K")) if source.nbytes >= LARGE else source.copy("K")
    return copy if copy.shape == array.shape else np.broadcast_to(copy, array.shape)


def kept_arguments(arguments: Iterable[Any]) -> list[Any]:
    """Return the arguments of a call as its pullback may keep them: the caller's arrays copied."""
    return [copied(x) if isinstance(x, np.ndarray) else x for x in arguments]


def is_exposed(array: Array) -> bool:
    """Whether others may write the memory of an array."""
    return bool(_holders) and id(root_of(array)) in _holders


def exposed_roots() -> list[Array]:
    """Return the arrays that own exposed memory."""
    return [root for reference in list(_roots.values()) if (root := reference()) is not None]


def unexposed(form: Form, saved: tuple[Any, ...]) -> tuple[Form, tuple[Any, ...]]:
    """Return the form and the saved values of an instruction with copies of exposed memory."""
    if not _holders:
        return form, saved
    values = list(saved)
    for k, value in enumerate(saved):
        if type(value) is np.ndarray and is_exposed(value):
            values[k] = copy = copied(value)
            if copy.strides != value.strides:
                form = restrided(form, k, copy.strides)
    return form, tuple(values)
