"""Programs whose native source is written by hand, as the compiler of programs prints it: what calls them is tested."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.compiler.compiled_code import CompiledCode
from kernels.foundation.specs import SCALAR, Spec, spec_of
from kernels.language import jit

Array = np.ndarray[Any, Any]
HEAD = '''"""Written by hand."""

from __future__ import annotations
import math
import numpy as np
from kernels.language import vectormath
from kernels.rules import accumulators
from kernels.native.memory import apply1_f8, bits_of, double_of, load_i8
from kernels.native.memory import pointer_b1, pointer_f4, pointer_f8, pointer_i4, pointer_i8

NOALIAS = True
MINUS_ZERO = -(1 << 63)


'''
_POINTERS = {"float64": "f8", "float32": "f4", "int64": "i8", "int32": "i4", "bool": "b1"}


def program(
    body: str,
    arguments: list[Any],
    outputs: list[Any],
    differentiated: list[int] | None = None,
    constants: list[Array] | None = None,
    work: int = 0,
) -> CompiledCode:
    """Return a program: ``body`` has pointers a0, a1 ... c0 ... r0 ... g0 ... and w, and returns -1, or a guard.

    ``arguments`` and ``outputs`` are examples, floats or arrays.
    """
    specs, differentiated, constants = [_spec(x) for x in arguments], differentiated or [], constants or []
    gradients = [_spec(np.empty(specs[k].shape, specs[k].dtype)) for k in differentiated]
    results = [_spec(x) for x in outputs]
    rooms = [("a", specs), ("c", [_spec(c) for c in constants]), ("r", results), ("g", gradients), ("w", [SCALAR])]
    places = [(f"{letter}{k}", spec) for letter, group in rooms for k, spec in enumerate(group)]
    head, _, rest = body.rpartition("def program():")
    lines = [f"{head}def program({', '.join(name for name, _ in places)}):{rest}", ""]
    lines += ["", "def run(table: Word) -> Word:"]
    pointers = [f"pointer_{_POINTERS[spec.dtype.name]}(load_i8(table + {8 * k}))" for k, (_, spec) in enumerate(places)]
    text = HEAD + "\n".join([*lines, f"    return program({', '.join(pointers)})", ""])
    address = jit.load_source("handwritten", text).run.address
    return CompiledCode(
        address, text, specs, constants, results, gradients, differentiated, work, sum(spec.size for spec in specs)
    )


def _spec(x: Any) -> Spec:
    return spec_of(x)


def tiny() -> CompiledCode:
    """(a * b + c / d) ** 2 of four floats, and its gradient."""
    return program(
        """def program():
    t = a0[0] * a1[0] + a2[0] / a3[0]
    r0[0] = t * t
    g = t + t
    g0[0] = g * a1[0]
    g1[0] = g * a0[0]
    g2[0] = g / a3[0]
    g3[0] = -g * a2[0] / (a3[0] * a3[0])
    return -1
""",
        [1.0] * 4,
        [1.0],
        [0, 1, 2, 3],
    )


def rosenbrock(n: int) -> CompiledCode:
    """Rosenbrock's function of n numbers and its gradient, with what it keeps in a workspace."""
    return program(
        f"""def program():
    total = -0.0
    for i in range({n - 1}):
        w0[i] = a0[i + 1] - a0[i] * a0[i]
    for i in range({n - 1}):
        v = 1.0 - a0[i]
        total = accumulators.added(total, 100.0 * (w0[i] * w0[i]) + v * v)
    r0[0] = total
    g0[{n - 1}] = 0.0
    for i in range({n - 1}):
        g0[i] = -400.0 * w0[i] * a0[i] - 2.0 * (1.0 - a0[i])
    for i in range({n - 1}):
        g0[i + 1] += 200.0 * w0[i]
    return -1
""",
        [np.zeros(n)],
        [1.0],
        [0],
        work=8 * (n - 1),
    )


def bell() -> CompiledCode:
    """exp(-x * x) of one float, with its gradient."""
    return program(
        """def program():
    r0[0] = vectormath.exp(-(a0[0] * a0[0]))
    g0[0] = -2.0 * a0[0] * r0[0]
    return -1
""",
        [1.0],
        [1.0],
        [0],
    )


def guarded() -> CompiledCode:
    """The root of x where x > 0: the second of two guards, numbered 1."""
    return program(
        """def program():
    if not a0[0] < 1e9:
        return 0
    if not a0[0] > 0.0:
        return 1
    r0[0] = math.sqrt(a0[0])
    return -1
""",
        [1.0],
        [1.0],
    )


def predators() -> CompiledCode:
    """The right-hand side of Lotka and Volterra's equations, and its pullback: of (y, cotangent)."""
    return program(
        """def program():
    x = a0[0]
    y = a0[1]
    r0[0] = 1.1 * x - 0.4 * x * y
    r0[1] = 0.1 * x * y - 0.4 * y
    r1[0] = a1[0] * (1.1 - 0.4 * y) + a1[1] * 0.1 * y
    r1[1] = -(a1[0] * 0.4 * x) + a1[1] * (0.1 * x - 0.4)
    return -1
""",
        [np.zeros(2), np.zeros(2)],
        [np.zeros(2), np.zeros(2)],
    )
