"""Short programs that show what tape does: `python -m tape list`, `python -m tape run NAME`.

Each module here is one example of under 60 lines with a function `main`; its name on the command
line has hyphens for underscores.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from numpy.typing import NDArray

    import tape

__all__ = ["check_gradient", "for_scipy", "in_characters", "load", "names", "picture", "source", "summary"]


def names() -> list[str]:
    """Return the names of all examples, sorted, as they are typed on the command line."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(__path__))


def load(name: str) -> ModuleType:
    """Import and return the module of one of `names()`."""
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}")


def summary(name: str) -> str:
    """Return the first line of the example's docstring."""
    return (load(name).__doc__ or "").partition("\n")[0]


def source(name: str) -> str:
    """Return the example's source."""
    return inspect.getsource(load(name))


def for_scipy(
    program: tape.Program,
) -> Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]]:
    """Return the function that `minimize(..., jac=True)` takes, from a program of one array."""

    def value_and_grad(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, (gradient,) = program.value_and_grad(x)
        return float(value), np.asarray(gradient)

    return value_and_grad


def picture(name: str, draw: Callable[[Any], object]) -> None:
    """Draw a figure into NAME.png in the current folder, where matplotlib is installed (the extra ``viz``)."""
    try:
        figure = importlib.import_module("matplotlib.figure").Figure(figsize=(8, 4), layout="constrained")
    except ImportError:
        return
    draw(figure)
    figure.savefig(f"{name}.png")
    print(f"picture: {name}.png")


def in_characters(field: NDArray[np.float64]) -> str:
    """Return a field, rows and columns, as text: from - for its least value to @ for its largest."""
    low, high = field.min(), field.max()
    levels = ((field - low) / (high - low) * 7.99).astype(int)
    return "\n".join("".join("-.:=+*#@"[k] for k in row) for row in levels)


def check_gradient(
    function: Callable[[NDArray[np.float64]], float],
    x: NDArray[np.float64],
    gradient: NDArray[np.float64],
    tolerance: float = 1e-6,
) -> None:
    """Print how far `gradient` is from central differences of `function` at `x` (1-D, float64).

    The distance is the largest absolute difference, relative to the largest component. Raises
    ArithmeticError when it is beyond `tolerance` or not a number.
    """
    steps = np.diag(1e-5 * np.maximum(1.0, abs(x)))
    expected = np.array([(function(x + h) - function(x - h)) / (2 * h.sum()) for h in steps])
    distance = float(np.max(abs(gradient - expected)) / np.max(abs(expected)))
    if not distance <= tolerance:
        raise ArithmeticError(f"the gradient is {distance:.1e} from central differences, more than {tolerance:.0e}")
    print(f"gradient against central differences: relative difference {distance:.1e}, ok")
