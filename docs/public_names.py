"""The API reference: every public name of a module or class, as directives of Sphinx's autodoc.

A page of docs/api has a mark, `<!-- names: tape.linalg -->`; conf.py writes in its place what `reference` returns.
"""

from __future__ import annotations

import importlib
import inspect
import re
from types import ModuleType
from typing import Any

import numpy as np

MODULES = (  # a class that several of them have is shown where it stands first
    "tape",
    "tape.autograd",
    "tape.autograd.function",
    "tape.autograd.functional",
    "tape.autograd.graph",
    "tape.autograd.forward_ad",
    "tape.autograd.profiler",
    "tape.func",
    "tape.numpy",
    "tape.linalg",
    "tape.special",
    "tape.stats",
    "tape.nn",
    "tape.nn.functional",
    "tape.nn.init",
    "tape.nn.utils",
    "tape.nn.utils.rnn",
    "tape.sparse",
    "tape.optimize",
    "tape.quadrature",
    "tape.implicit",
    "tape.mpi",
    "tape.ode",
    "tape.interpolate",
    "tape.ndimage",
    "tape.signal",
    "tape.random",
    "tape.testing",
    "tape.uncertainty",
    "tape.utils.checkpoint",
    "tape.utils.data",
    "tape.distributions",
    "tape.optim",
    "tape.optim.lr_scheduler",
    "tape.errors",
)
CLASSES = ("tape.Tensor", "tape.continuous.Continuous", "tape.stats.Discrete")  # with marks of their own
MARK = re.compile(r"^<!-- names: ([\w.]+) -->$", re.MULTILINE)
TITLES = {"autoclass": "Classes", "autofunction": "Functions", "data": "Constants and objects"}


def public_names(module: ModuleType) -> list[str]:
    """Return what a module offers, in the order of the alphabet, without modules in it."""
    written_here = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
    names = [name for name in getattr(module, "__all__", written_here) if not name.startswith("_")]
    return sorted(name for name in names if not isinstance(getattr(module, name), ModuleType))


def reference(path: str, level: int = 2) -> str:
    """Return, in Markdown, the reference of a class, or of a module with a heading for each kind of names."""
    if path in CLASSES:
        return _directives([_class_entry(path)])
    module = importlib.import_module(path)
    kinds: dict[str, list[str]] = {kind: [] for kind in TITLES}
    for name in public_names(module):
        kind, text = _entry(f"{path}.{name}", getattr(module, name))
        kinds[kind].append(text)
    parts = [f"{'#' * level} {TITLES[kind]}\n\n{_directives(entries)}" for kind, entries in kinds.items() if entries]
    return "\n".join(parts)


def _entry(path: str, thing: Any) -> tuple[str, str]:
    """Return a name's kind, and what shows it; a record's function is an object that can be called."""
    if inspect.isclass(thing):
        home = _home(thing)
        return "autoclass", _pointer(path, home) if path != home or path in CLASSES else _class_entry(path)
    if type(thing).__module__.startswith("tape."):  # a distribution
        return "data", f".. autodata:: {path}\n   :no-value:\n"
    if callable(thing):
        return "autofunction", f".. autofunction:: {path}\n"
    value = f"   :value: {thing!r}\n" if isinstance(thing, (float, np.dtype, type(None))) else ""
    return "data", f".. py:data:: {path}\n{value}"


def _class_entry(path: str) -> str:
    if path in ("tape.dtype", "tape.numpy.ndarray"):  # of which NumPy tells
        return f".. autoclass:: {path}\n"
    return f".. autoclass:: {path}\n   :members:\n   :inherited-members: tuple, dict, Exception, Warning\n"


def _pointer(path: str, home: str) -> str:
    """Return where a class is shown, and a target for its other name."""
    target = f".. py:data:: {path}\n   :no-typesetting:\n\n" if path != home else ""
    return f"{target}``{path}`` is :py:obj:`{home}`.\n"


def _home(cls: type) -> str:
    """Return the first of a class's public paths."""
    for path in MODULES:
        module = importlib.import_module(path)
        for name in public_names(module):
            if getattr(module, name) is cls:
                return f"{path}.{name}"
    raise LookupError(f"{cls} has no public name")


def _directives(entries: list[str]) -> str:
    return "```{eval-rst}\n" + "\n".join(entries) + "```\n"
