"""What functions close over: held tensors, copies that later assignments do not change, and whether two are alike."""

from __future__ import annotations

import dis
from collections.abc import Iterator, Sequence
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from tape.sparse import CSR
from tape.tensors.recorder import same_params
from tape.tensors.tensor import Tensor
from tape.watching.frame_events import MISSING
from tape.watching.watched import content_of


def held(x: Any, seen: set[int] | None = None) -> Iterator[Tensor]:
    """Yield the tensors that a function closes over, and those in tuples, lists, dicts and further functions there."""
    seen = set() if seen is None else seen
    if isinstance(x, Tensor):
        yield x
    elif id(x) not in seen:
        seen.add(id(x))
        for part in _parts_of(x):
            yield from held(part, seen)


def _parts_of(x: Any) -> Sequence[Any]:
    if isinstance(x, FunctionType):
        cells = [cell.cell_contents for cell in x.__closure__ or () if is_full(cell)]
        return [*(x.__defaults__ or ()), *(x.__kwdefaults__ or {}).values(), *cells]
    if isinstance(x, partial):
        return [x.func, *x.args, *x.keywords.values()]
    if isinstance(x, dict):
        return list(x.values())
    if isinstance(x, CSR):
        return (x.data,)
    return x if isinstance(x, (tuple, list)) else ()


def is_full(cell: CellType) -> bool:
    """Whether a name that a function closes over is bound."""
    return content_of(cell) is not MISSING


def stored(code: CodeType) -> set[str]:
    """Return the names of cells that a function, or one that it makes, binds itself."""
    names = {step.argval for step in dis.get_instructions(code) if step.opname == "STORE_DEREF"}
    return names.union(*[stored(const) for const in code.co_consts if isinstance(const, CodeType)])


class FrozenClosures:
    """Copies functions: what names are bound to now stays, and tensors are others, by the ids in ``substitutes``.

    Names that a function binds itself, by ``nonlocal``, stay the user's; so do lists and dicts without such tensors.
    """

    def __init__(self, substitutes: dict[int, Tensor]) -> None:
        self.substitutes = substitutes
        self.reached: set[int] = set()
        self._made: dict[int, Any] = {}

    def of(self, x: Any) -> Any:
        """Return a copy, or the object itself where nothing in it needs one."""
        if isinstance(x, Tensor):
            if id(x) in self.substitutes:
                self.reached.add(id(x))
            return self.substitutes.get(id(x), x)
        if id(x) in self._made:
            return self._made[id(x)]
        if isinstance(x, FunctionType):
            return self._function(x) if x.__closure__ or any(True for _ in held(x)) else x
        if isinstance(x, partial):
            return partial(self.of(x.func), *map(self.of, x.args), **{k: self.of(v) for k, v in x.keywords.items()})
        return self._container(x) if any(id(t) in self.substitutes for t in held(x)) else x

    def _function(self, x: FunctionType) -> FunctionType:
        bound = stored(x.__code__)
        pairs = list(zip(x.__code__.co_freevars, x.__closure__ or (), strict=True))
        cells = [cell if name in bound or not is_full(cell) else CellType() for name, cell in pairs]
        copy = FunctionType(x.__code__, x.__globals__, x.__name__, None, tuple(cells))
        self._made[id(x)] = copy
        for (_, cell), new in zip(pairs, cells, strict=True):
            if new is not cell:
                new.cell_contents = self.of(cell.cell_contents)
        copy.__defaults__ = x.__defaults__ and tuple(map(self.of, x.__defaults__))
        copy.__kwdefaults__ = x.__kwdefaults__ and {name: self.of(v) for name, v in x.__kwdefaults__.items()}
        copy.__qualname__, copy.__doc__ = x.__qualname__, x.__doc__
        copy.__dict__.update(x.__dict__)
        return copy

    def _container(self, x: Any) -> Any:
        if isinstance(x, CSR):
            return x.replaced(self.of(x.data))
        if isinstance(x, dict):
            return type(x)((key, self.of(value)) for key, value in x.items())
        parts = [self.of(part) for part in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)


def alike(a: Any, b: Any, mine: dict[int, int], theirs: dict[int, int]) -> bool:
    """Whether two functions, or what they close over, are the same but for the tensors that are operands."""
    if a is b or type(a) is not type(b):
        return a is b
    if isinstance(a, Tensor):
        return id(a) in mine and mine[id(a)] == theirs.get(id(b))
    if isinstance(a, (FunctionType, CellType, MethodType, partial, tuple, list, dict, CSR)):
        parts = [_compared(x) for x in (a, b)]
        return len(parts[0]) == len(parts[1]) and all(alike(x, y, mine, theirs) for x, y in zip(*parts, strict=True))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return same_params(a, b)


def _compared(x: Any) -> Sequence[Any]:
    if isinstance(x, FunctionType):
        return x.__code__, id(x.__globals__), x.__defaults__, x.__kwdefaults__, x.__closure__, x.__dict__
    if isinstance(x, CellType):
        return (x.cell_contents,) if is_full(x) else (object(),)
    if isinstance(x, dict):
        return *x.keys(), *x.values()
    if isinstance(x, CSR):
        return x.pattern, x._trans, x.data
    return (x.__func__, x.__self__) if isinstance(x, MethodType) else _parts_of(x)
