"""Whether two Python objects, or two kinds of steps, are the same to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.programs.recording.program_words import StepKind

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def same(x: Any, y: Any) -> bool:
    """Whether two Python objects are the same one, or the same value to the last bit."""
    if x is y:
        return True
    if type(x) is not type(y):
        return False
    if isinstance(x, (np.ndarray, np.generic)):
        return bool(x.dtype == y.dtype and x.shape == y.shape and x.tobytes() == y.tobytes())
    return isinstance(x, _PLAIN) and repr(x) == repr(y)


def same_kind(x: StepKind, y: StepKind) -> bool:
    """Whether steps of two kinds do the same, if their operands are alike."""
    if x.op is not y.op or not same_params(x.params, y.params):
        return False
    if x.form is y.form or x.form is None or y.form is None:
        return x.form is y.form
    return (x.form.specs, x.form.spec, x.form.wanted) == (y.form.specs, y.form.spec, y.form.wanted)


def same_params(x: Any, y: Any) -> bool:
    """Whether static parameters are the same."""
    if isinstance(x, (tuple, list)) and type(x) is type(y):
        return len(x) == len(y) and all(map(same_params, x, y))
    if same(x, y):
        return True
    try:
        return type(x) is type(y) and bool(x == y)
    except ValueError:  # arrays
        return False
