"""``tape.parameters``: globals of modules, attributes and entries of dicts that are tensors for a while.

A code that reads ``K`` from its module is differentiated by it without a change: within the block the name stands for a
tensor. Names are put back in whatever order blocks end: each name has the values of all blocks that hold it.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from numba.core.registry import CPUDispatcher

from kernels.foundation.tables import Lock
from tape.tensors.pytrees import flattened
from tape.tensors.tensor import Tensor
from tape.watching.watched import content_of

__all__ = ["parameters"]

_MISSING: Any = object()
_changing = Lock(waited_for=True)
_held: dict[tuple[int, str], _Place] = {}
"""The names that blocks hold now, by what they are names in."""
_blocks = [0]
"""How many blocks there are, in all threads: within, jitted functions are called by Python."""
_warned: set[Any] = set()


@contextmanager
def parameters(target: Any, values: Mapping[str, Any] | None = None, /, **names: Any) -> Iterator[None]:
    """Let names of a module, an object, a class or a dict stand for other values within the block.

    ``tape.parameters(module, K=tensor)``, or a dict of names where these are dotted: ``{"grid.dx": dx}`` is ``dx`` of
    what ``grid`` stands for. Values may be anything. At the end, by an exception too, every name stands for what it did
    before, or for nothing. AttributeError, with nothing changed, names what cannot be set.

    Functions jitted by Numba run within the block as the Python functions that they were made of (``.py_func``), where
    they are given tensors or read such a name, also those that they call: which is said once, and is slow for loops
    over elements. ``tape.custom`` makes a native operation of a function and its vjp, which may stand in its place:
    ``tape.parameters(module, K=tensor, flux=operation)``.

    >>> from types import SimpleNamespace
    >>> model = SimpleNamespace(k=2.0, grid={"dx": 0.1})
    >>> def slope(k):
    ...     with tape.parameters(model, {"k": k, "grid.dx": k * 0.1}):
    ...         return model.k**2 * model.grid["dx"]
    >>> tape.func.grad(slope)(2.0), model
    (1.2000000000000002, namespace(k=2.0, grid={'dx': 0.1}))
    """
    wanted = [(*_holder(target, name), value) for name, value in {**(values or {}), **names}.items()]
    with ExitStack() as stack:  # which ends all that has begun, whatever one of the ends raises
        with _changing:
            _count_block(1)
        stack.callback(_end_block)
        for holder, name, value in wanted:
            with _changing:
                place = _held.get((id(holder), name)) or _Place(holder, name)
                key = place.hold(value)
            stack.callback(_release, place, key)
        yield


def _end_block() -> None:
    with _changing:
        _count_block(-1)


def _release(place: _Place, key: object) -> None:
    with _changing:
        place.release(key)


def _holder(target: Any, path: str) -> tuple[Any, str]:
    """Return what the last part of a dotted name is a name in, and that part."""
    *parts, name = path.split(".") if not (isinstance(target, Mapping) and path in target) else [path]
    for part in parts:
        try:
            target = target[part] if isinstance(target, Mapping) else getattr(target, part)
        except (KeyError, AttributeError) as error:
            raise AttributeError(f"parameters: {path!r}: {_described(target)} has no {part!r}") from error
    return target, name


def _described(target: Any) -> str:
    if isinstance(target, types.ModuleType):
        return f"module {target.__name__}"
    return f"class {target.__name__}" if isinstance(target, type) else f"a {type(target).__name__}"


class _Place:
    """A name that stands for the value of the last block that holds it, and for what it did when none does."""

    def __init__(self, holder: Any, name: str) -> None:
        self.holder, self.name = holder, name
        self.blocks: dict[object, Any] = {}
        self.before = self._now()

    def _now(self) -> Any:
        """Return what the name stands for in the holder itself, not in its class."""
        holder, name = self.holder, self.name
        if isinstance(holder, Mapping):
            return holder.get(name, _MISSING)
        data: Any = getattr(holder, "__dict__", {})
        if name in data:
            return data[name]
        described = inspect.getattr_static(type(holder), name, None)
        if hasattr(type(described), "__set__"):  # a slot, or a property
            return getattr(holder, name, _MISSING)
        return _MISSING

    def hold(self, value: Any) -> object:
        """Let the name stand for a value; return the key by which that ends."""
        self._set(value)
        key = object()
        self.blocks[key] = value
        _held[id(self.holder), self.name] = self
        return key

    def release(self, key: object) -> None:
        """End a block: the name stands for the value of the last that is left, or for what it did before."""
        last = next(reversed(self.blocks)) is key
        del self.blocks[key]
        if not self.blocks:
            del _held[id(self.holder), self.name]
        if last or not self.blocks:
            self._set(next(reversed(self.blocks.values())) if self.blocks else self.before)

    def _set(self, value: Any) -> None:
        holder, name = self.holder, self.name
        change: Any = (delattr, setattr) if not isinstance(holder, Mapping) else (operator.delitem, operator.setitem)
        try:
            if value is not _MISSING:
                change[1](holder, name, value)
            elif self._now() is not _MISSING:
                change[0](holder, name)
        except (AttributeError, TypeError) as error:
            raise AttributeError(
                f"parameters: {name!r} of {_described(holder)} cannot be set ({error}); the names are as they were"
            ) from error


# Functions jitted by Numba: Python runs them while a block is open.


def _count_block(change: int) -> None:
    """Count blocks; while there is one, calls of jitted functions from Python go through :func:`_called`."""
    _blocks[0] += change
    if _blocks[0] == 1 and change == 1:
        CPUDispatcher.__call__ = _Calls()  # type: ignore[assignment, method-assign]
    elif _blocks[0] == 0:
        del CPUDispatcher.__call__


_native = CPUDispatcher.__call__


class _Calls:
    """In the place of the method: no function, whose code a compiled function would look through."""

    def __get__(self, dispatcher: Any, kind: Any) -> Any:
        return self if dispatcher is None else functools.partial(_called, dispatcher)


def _called(dispatcher: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a jitted function, natively where it neither is given tensors nor reads a name that a block holds."""
    tensors = any(isinstance(x, Tensor) for x in flattened((args, kwargs))[0])
    if not tensors and _names(dispatcher).isdisjoint([name for _, name in list(_held)]):
        return _native(dispatcher, *args, **kwargs)
    function = dispatcher.py_func
    if function.__code__ not in _warned:
        _warned.add(function.__code__)
        warnings.warn(
            f"parameters: the jitted function {function.__name__} runs as Python within the block, slowly where it "
            "loops over elements; an operation of tape.custom in its place stays native",
            UserWarning,
            stacklevel=2,
        )
    return function(*args, **kwargs)


def _names(dispatcher: Any) -> frozenset[str]:
    """Return the names that a jitted function and those that it calls read from outside, and more."""
    names, pending, seen = set[str](), [dispatcher.py_func], set[int]()
    while pending:
        function = pending.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        read = _read(function.__code__)
        names |= read
        cells = map(content_of, function.__closure__ or ())
        modules = [function.__globals__, *(vars(x) for x in _values(function, read) if isinstance(x, types.ModuleType))]
        for value in (*cells, *(space[name] for space in modules for name in read if name in space)):
            inner = getattr(value, "py_func", value)
            if type(inner) is types.FunctionType and isinstance(value, (CPUDispatcher, types.FunctionType)):
                pending.append(inner)
    return frozenset(names)


def _values(function: types.FunctionType, names: frozenset[str]) -> list[Any]:
    return [function.__globals__[name] for name in names if name in function.__globals__]


@functools.lru_cache(1024)
def _read(code: types.CodeType) -> frozenset[str]:
    """Return the names that code reads from outside, with those of functions within."""
    inner = [_read(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return frozenset(code.co_names).union(code.co_freevars, *inner)
