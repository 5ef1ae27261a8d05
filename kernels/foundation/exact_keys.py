"""Keys of tables: values, with their types, so that 1, True and 1.0 are three, and 0.0 and -0.0 two."""

from __future__ import annotations

from typing import Any

import numpy as np

_PLAIN = frozenset((int, bool, str, bytes, type(None), type(Ellipsis)))


def exact(value: Any) -> Any:
    """Return what a table may know a value by, for as long as it likes. TypeError for what can change meanwhile.

    Values that compare equal and mean different things have different keys; nan has one. Objects that equal only
    themselves, as functions do, stand for themselves: the key keeps them.
    """
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is float:
        return kind, value.hex()
    if kind is tuple or kind is slice:
        return (kind, *map(exact, value if kind is tuple else (value.start, value.stop, value.step)))
    if isinstance(value, np.generic):
        return kind, value.dtype.str, value.tobytes()
    if isinstance(value, np.dtype):
        return kind, value.str
    if kind.__eq__ is object.__eq__ or isinstance(value, type):
        return kind, value
    raise TypeError(f"a {kind.__name__} can change, and so cannot be part of a key")
