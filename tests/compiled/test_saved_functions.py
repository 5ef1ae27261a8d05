"""Compiled functions in files: replayed without their source, refused where they were not recorded."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import tape
from kernels.programs.program import ProgramError
from tape.errors import FileFormatError
from tape.tensors.pytrees import leaves
from tests.conftest import Fresh

X = np.array([0.5, -1.0, 2.0])
WEIGHTS = np.array([1.0, 2.0, 3.0])


def branching(x: Any, n: int = 2) -> Any:
    y = x * WEIGHTS
    return (y**n).sum() if x[0] > 0 else y * n


def saved(function: Any, *calls: tuple[Any, ...], **options: Any) -> Any:
    """Compile, call, save and load a function."""
    compiled = tape.compile(function, **options)
    for args in calls:
        for _ in range(3):
            compiled(*args)
    file = io.BytesIO()
    compiled.save(file)
    file.seek(0)
    return tape.load(file)


def test_a_loaded_function_goes_all_ways_that_were_recorded() -> None:
    loaded = saved(branching, (X,), (-X,), (X, 3))
    for args in ((X,), (-X,), (X * 2,), (-3 * X,), (X, 3)):
        np.testing.assert_array_equal(loaded(*args), np.asarray(branching(tape.tensor(args[0]), *args[1:])._value))
    with pytest.raises(ProgramError, match=r"at .*test_saved_functions.py:\d+ another value leaves for Python"):
        loaded(-X, 3)
    for wrong in ((X, 4), (np.ones(4),), (X, 2.0), ()):
        with pytest.raises(TypeError):
            loaded(*wrong)
    assert "3 programs" in repr(loaded)


def test_what_is_outside_is_kept_as_it_was() -> None:
    number, parameter = tape.tensor(2.0), tape.tensor(X, requires_grad=True)
    loaded = saved(lambda x: x * number * parameter, (tape.tensor(X),))
    number.fill_(5.0)
    np.testing.assert_array_equal(loaded(X), 2 * X * X)


GRADIENTS: dict[str, tuple[Any, dict[str, Any], tuple[Any, ...]]] = {
    "one": (lambda x: (x**3).sum(), {}, (X,)),
    "two": (lambda x, y: (x * y).sum(), {"argnums": (1, 0)}, (X, 2.0)),
    "second": (lambda x, y: (x * y**2).sum(), {"argnums": 1}, (X, 2.0)),
    "aux": (lambda x: ((x * x).sum(), x * 2), {"has_aux": True}, (X,)),
    "structure": (lambda p: (p["a"] * p["b"]).sum(), {}, ({"a": X, "b": 2.0},)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    function, options, args = GRADIENTS[name]
    both = tape.value_and_grad(function, **options)
    for one, other in zip(leaves(saved(both, args)(*args)), leaves(both(*args)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)


def test_nothing_to_save_and_damage() -> None:
    with pytest.raises(ProgramError, match="branching has no program yet"):
        tape.compile(branching).save(io.BytesIO())
    compiled, file = tape.compile(branching), io.BytesIO()
    for _ in range(3):
        compiled(X)
    compiled.save(file)
    data = bytearray(file.getvalue())
    for at in range(0, len(data), 97):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises((FileFormatError, ValueError)):
            tape.load(io.BytesIO(damaged))
        with pytest.raises((FileFormatError, ValueError)):
            tape.load(io.BytesIO(data[:at]))


ELSEWHERE = """
import numpy as np
import tape
print(tape.load({path!r})(np.array([1.0, 1.0, 2.0])))
"""


def test_another_process_has_no_source(fresh: Fresh, tmp_path: Any) -> None:
    compiled = tape.compile(branching)
    for _ in range(3):
        compiled(X)
    path = str(tmp_path / "branching.tape")
    compiled.save(path)
    assert fresh(ELSEWHERE.format(path=path)).communicate(timeout=120) == ("41.0\n", "")
