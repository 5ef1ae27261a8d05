"""Parameters of public functions: dims, sizes, printed signatures."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from inspect import CO_VARARGS, CO_VARKEYWORDS, Parameter, Signature, signature
from types import FunctionType
from typing import Any, TypeAlias, TypeVar

from kernels.calls.object_types import operation
from kernels.kinds.elementwise import Elementwise
from tape.errors import shorten
from tape.recording.promotion import can_cast
from tape.tensors import modes, pytrees
from tape.tensors.hooks import Function
from tape.tensors.operands import ArrayLike  # noqa: F401 (annotations name it)
from tape.tensors.tensor import Tensor

Result = TypeVar("Result")
Dims: TypeAlias = int | Sequence[int] | None
"""One dim, several, or None for all."""

# Dims as users give them: negative, one or several.


def dim_of(x: Tensor, dim: Any, *, extra: int = 0) -> int:
    """Return a dim as a non-negative int; IndexError names the range. 0-d tensors accept 0 and -1."""
    return _axis(max(len(x._form.spec.shape) + extra, 1), operator.index(dim))


def _axis(rank: int, number: int) -> int:
    if not -rank <= number < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {number})")
    return number % rank


def dims_of(x: Tensor, dim: Any) -> tuple[int, ...]:
    """Return one dim, several or None (all) as a tuple of axes of the array."""
    rank = len(x._form.spec.shape)
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(rank))
    try:
        return _axes(rank, tuple(map(operator.index, dim if isinstance(dim, (tuple, list)) else (dim,))))
    except Exception as error:
        shorten(error)
        raise


@functools.lru_cache(512)
def _axes(rank: int, numbers: tuple[int, ...]) -> tuple[int, ...]:
    dims = tuple(_axis(max(rank, 1), number) for number in numbers)
    if len(set(dims)) != len(dims):
        raise RuntimeError(f"dim {max(dims, key=dims.count)} appears multiple times in the list of dims")
    return dims if rank else ()


def ints_of(args: tuple[Any, ...]) -> tuple[int, ...]:
    """Return ``f(2, 3)`` and ``f((2, 3))`` alike as a tuple of ints."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = tuple(args[0])
    return tuple(map(operator.index, args))


# Functions of elementwise operations with parameters of their own: each count of operands is written out once.

_NAMES = {1: ("input",), 2: ("input", "other"), 3: ("condition", "input", "other")}


def names_of(op: Any) -> tuple[str, ...]:
    """Return the names under which a record's function is offered."""
    return (op.name, *op.torch) if op.function else op.torch


def parameters_of(op: Elementwise) -> tuple[str, ...]:
    """Return what the operands are called: PyTorch's names; what has no name there keeps the record's own."""
    usual = len(op.inputs) == 1 or names_of(op)
    return op.arguments or (_NAMES[len(op.inputs)] if usual else op.inputs)


def function_of(op: Elementwise, run: Callable[..., Tensor]) -> Any:
    """Return the function of a record as users call it: any operand may be a tensor, a NumPy array or a number."""
    function = _function(op, (names_of(op) or (op.name,))[0], run, writes=True)
    function.__module__ = "tape.functions" if names_of(op) else "tape.special"  # where pickle finds it
    function.__doc__ = _documented(op)
    return function


def method_of(op: Elementwise, run: Callable[..., Tensor]) -> Any:
    """Return the same as a method of tensors, which takes no ``out=``."""
    function = _function(op, names_of(op)[0], run, writes=False)
    function.__doc__ = _documented(op)
    return as_method(function)


def as_method(function: Any) -> Any:
    """Return a function with the place where pickles and messages name it as a method of tensors."""
    function.__module__, function.__qualname__ = "tape", f"{Tensor.__name__}.{function.__name__}"
    return function


def in_place_of(op: Elementwise, name: str, run: Callable[..., Tensor]) -> Any:
    """Return the function of a record's in-place variant, which takes no ``out=``."""
    return as_method(_function(op, name, run, writes=False))


def _documented(op: Elementwise) -> str:
    return f"{op.doc} Shapes broadcast; dtypes promote as PyTorch's do, beside arrays as NumPy's."


def printed(name: str, parameters: Sequence[Parameter], body: str, **names: Any) -> Any:
    """Return a function with these parameters, and a body of one line in which ``{all}`` stands for all of them.

    ``{first}`` is the first; ``names`` are what else the body calls by name.
    """
    forms: dict[Any, str] = {Parameter.VAR_POSITIONAL: "*{0}", Parameter.KEYWORD_ONLY: "{0}={0}"}
    arguments = [forms.get(p.kind, "{0}").format(p.name) for p in parameters]
    line = body.format(all=", ".join(arguments), first=arguments[0])
    exec(f"def {name}({', '.join(_heads(parameters))}):\n    {line}", names)  # noqa: S102 (our own text)
    function = names[name]
    optional = [p for p in parameters if p.default is not p.empty]
    function.__defaults__ = tuple([p.default for p in optional if p.kind is not p.KEYWORD_ONLY]) or None
    function.__kwdefaults__ = {p.name: p.default for p in optional if p.kind is p.KEYWORD_ONLY} or None
    function.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": "Tensor"}
    return function


def printed_like(name: str, function: Callable[..., Any], body: str, **names: Any) -> Any:
    """Return a printed function with the parameters of another, NumPy's names of them too, but without ``out``."""
    shown = parameters_like(function)
    parameters = [p for p in shown if p.name not in ("out", *_OF_NUMPY)]
    made = printed(name, parameters, body, function=function, **names)
    return with_axis(made) if any(p.name in _OF_NUMPY for p in shown) else made


def _heads(parameters: Sequence[Parameter]) -> Iterator[str]:
    starred = False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or p.kind in (p.VAR_POSITIONAL, p.KEYWORD_ONLY)
        yield f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name


def parameters_like(function: Callable[..., Any]) -> list[Parameter]:
    """Return the parameters of a function: from its code, where it has one, since ``inspect`` takes its time."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & (CO_VARARGS | CO_VARKEYWORDS) or code.co_posonlyargcount:
        return list(signature(function).parameters.values())
    count, end = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    names, annotations = code.co_varnames, function.__annotations__
    defaults = dict(zip(reversed(names[:count]), reversed(function.__defaults__ or ()), strict=False))
    defaults |= function.__kwdefaults__ or {}
    empty, kinds = Parameter.empty, [Parameter.POSITIONAL_OR_KEYWORD] * count + [Parameter.KEYWORD_ONLY] * (end - count)
    return [
        Parameter(name, kind, default=defaults.get(name, empty), annotation=annotations.get(name, empty))
        for name, kind in zip(names, kinds, strict=False)
    ]


def also(**names: str) -> Callable[[Function], Function]:
    """Let parameters be given under further names, ``also(sections="indices")``: those that PyTorch's parser takes.

    Its documentation calls them otherwise, or they are words that Python keeps for itself.
    """
    return lambda function: _renaming(function, names)


def _renaming(function: Any, names: dict[str, str], *, none_is_absent: bool = False) -> Any:
    @functools.wraps(function)
    def renamed(*args: Any, **kwargs: Any) -> Any:
        for other in kwargs.keys() & names.keys():
            value = kwargs.pop(other)
            if value is None and none_is_absent:
                continue
            if names[other] in kwargs:
                raise TypeError(
                    f"{function.__name__}() got '{names[other]}' and '{other}', which are names of one argument"
                )
            kwargs[names[other]] = value
        try:
            return function(*args, **kwargs)
        except Exception as error:
            shorten(error)
            raise

    return renamed


_OF_NUMPY = {"axis": "dim", "keepdims": "keepdim"}


def with_axis(function: Callable[..., Result]) -> Callable[..., Result]:
    """Let ``dim`` and ``keepdim`` be given as NumPy's ``axis`` and ``keepdims``, too, which the signature shows."""
    parameters = parameters_like(function)
    known = {p.name for p in parameters}
    names = {other: name for other, name in _OF_NUMPY.items() if name in known}
    renamed = _renaming(function, names, none_is_absent=True)
    kinds = {p.name: p.annotation if p.annotation in ("Any", "Dims") else f"{p.annotation} | None" for p in parameters}
    further = [Parameter(n, Parameter.KEYWORD_ONLY, default=None, annotation=kinds[names[n]]) for n in names]
    returned = function.__annotations__["return"]
    renamed.__signature__ = Signature([*parameters, *further], return_annotation=returned)
    return renamed  # type: ignore[no-any-return]


def with_name(name: str, doc: str | None = None) -> Callable[[Function], Function]:
    """Give a function the name that users see, and a docstring if it is one of several that are made alike."""

    def decorated(function: Function) -> Function:
        function.__name__ = function.__qualname__ = name
        function.__doc__ = doc or function.__doc__
        return function

    return decorated


def scaled(other: Any, alpha: Any) -> Any:
    """Return the second operand of an addition, times PyTorch's ``alpha``."""
    return other if type(alpha) is int and alpha == 1 else other * alpha


@functools.cache
def _maker(count: int, scales: bool, writes: bool) -> Callable[[Callable[..., Tensor], str], Any]:
    """Return what makes a function of so many operands that calls ``run``, with ``alpha=`` and ``out=`` if wanted."""
    heads = ", ".join("abcd"[:count])
    operands = "a, scaled(b, alpha)" if scales else heads
    options = ", *" * (scales or writes) + ", alpha=1" * scales + ", out=None" * writes
    into = f" if out is None else _into(out, name, run, {operands})" * writes
    made: dict[str, Any] = {}
    text = f"def made(run, name):\n    def function({heads}{options}):\n        return run({operands}){into}\n"
    exec(f"{text}    return function", globals(), made)  # noqa: S102 (our own text)
    return made["made"]  # type: ignore[no-any-return]


def _function(op: Elementwise, name: str, run: Callable[..., Tensor], *, writes: bool) -> Any:
    """Return the function of a record of this name, with the names of its operands."""
    operands = parameters_of(op)
    function = _maker(len(operands), op.scaled, writes)(run, name)
    code = function.__code__
    names = operands + code.co_varnames[len(operands) :]
    code = code.replace(co_name=name, co_qualname=name, co_varnames=names)
    renamed = FunctionType(code, function.__globals__, name, None, function.__closure__)
    renamed.__kwdefaults__ = function.__kwdefaults__
    further = {"alpha": "float", "out": "Tensor | None", "return": "Tensor"}
    renamed.__annotations__ = {n: further.get(n, "Tensor | ArrayLike") for n in (*names, "return")}
    return renamed


def taking_out(function: Function) -> Function:
    """Return a function that takes ``out=`` besides, a tensor for its result, or a tuple of them for its results."""

    def writing(run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def call(*args: Any, out: Any = None, **named: Any) -> Any:
            try:
                if out is None:
                    return run(*args, **named)
                operands = pytrees.leaves((args, named))
                return _into(out, function.__name__, lambda *_: run(*args, **named), *operands)
            except Exception as error:
                shorten(error)
                raise

        return call

    parts = getattr(function, "parts", None)
    if parts is None:
        return writing(function)  # type: ignore[return-value]
    number, slow, always = parts
    return operation(number, writing(slow), writing(always), function.__wrapped__)  # type: ignore[attr-defined, no-any-return]


def _into(out: Any, name: str, run: Callable[..., Any], *operands: Any) -> Any:
    """Compute into ``out``; raise, as PyTorch does, unless it is a tensor that no gradient is lost by writing to."""
    several = isinstance(out, (tuple, list))
    for target in out if several else (out,):
        _check_out(name, operands, target)
    result = run(*operands)
    if not several and isinstance(result, Tensor):
        return _put(out, name, result)
    if not several or len(out) != len(result):
        raise TypeError(f"{name}(): out is a tuple of {len(result)} tensors, for that many results")
    made = [_put(target, name, value) for target, value in zip(out, result, strict=True)]
    return type(result)(*made) if hasattr(result, "_fields") else type(result)(made)


def _put(out: Tensor, name: str, result: Tensor) -> Tensor:
    have, wanted = result.spec, out.spec
    if have.shape != wanted.shape:
        raise RuntimeError(f"{name}(): out has shape {list(wanted.shape)}, but the result {list(have.shape)}")
    if not can_cast(have.dtype, wanted.dtype):
        raise RuntimeError(
            f"{name}(): result type {have.dtype.name} can't be cast to the desired output type {wanted.dtype.name}"
        )
    return out.copy_(result)


def _check_out(name: str, operands: tuple[Any, ...], out: Any) -> None:
    """Raise, as PyTorch does, unless ``out=`` is a tensor, and no gradient is lost by writing to it."""
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if modes.is_grad_enabled() and any(isinstance(x, Tensor) and x._slot is not None for x in (*operands, out)):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            f"arguments requires grad. Write out.copy_({name}(...)), which is recorded, or use no_grad"
        )
