"""Functions made from records alone, and the table of all operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from inspect import Parameter
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.foundation.recent_table import exact
from kernels.kinds.elementwise import Elementwise
from kernels.kinds.reduction import Reduction, Select
from kernels.kinds.routine import Routine
from kernels.kinds.views import View
from kernels.operations.registry import OPS
from kernels.rules.op import LateUfunc, Op
from kernels.rules.symbols import Symbol, Unprinted, traced
from tape import return_types
from tape.matrices import contractions
from tape.operations import reductions, scans
from tape.operations.elementwise import FUNCTIONS, install_in_place
from tape.operations.reductions import along
from tape.recording import record, routine_calls
from tape.recording.parameters import names_of, parameters_like, printed
from tape.repeated_calls.calls_with_arguments import argued
from tape.tensors import hooks
from tape.tensors.hooks import RECORDS
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable


# Public functions that follow from records alone: of reductions, routines and views that have none written by hand.
#
# A function is offered as ``tape.f``, as a method and, if NumPy has one of that name, to NumPy. Its parameters are
# those of the record: of a reduction PyTorch's ``dim`` and ``keepdim``, else the operands and static parameters of
# ``forward`` or ``apply``, with their defaults.

MADE: dict[str, Callable[..., Any]] = {}
"""The functions that were made here, by name."""


def function_of(op: Op) -> Callable[..., Any]:
    """Return the function of a record as users call it."""
    function = _MAKERS[type(op)](op)
    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = op.doc
    return argued(function)


def _reduction(op: Any) -> Callable[..., Any]:
    def reduce(
        input: Any, dim: Any = None, keepdim: Any = None, *, dtype: Any = None, axis: Any = None, keepdims: Any = None
    ) -> Tensor:
        return along(op, input, dim, axis, keepdim, keepdims, dtype)

    return reduce


def _routine(op: Any) -> Callable[..., Any]:
    names = (*op.results, *op.extras)
    kind = return_types.named(op.name, op.doc, *names) if len(names) > 1 else None

    def run(operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        results = routine_calls.call(op, *operands, **{name: _static(op, name, x) for name, x in params.items()})
        return results if kind is None else kind(*results)

    return _written(op, op.forward, run)


def _view(op: Any) -> Callable[..., Any]:
    def run(operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        return record.view(op, tensor_of(*operands), tuple(_static(op, name, x) for name, x in params.items()))

    return _written(op, op.apply, run, count=1)


_MAKERS: dict[type, Callable[[Any], Callable[..., Any]]] = {Reduction: _reduction, Routine: _routine, View: _view}


def _written(op: Op, like: Callable[..., Any], run: Callable[..., Any], count: int | None = None) -> Callable[..., Any]:
    """Return a function with the parameters of another one: so many operands, then static parameters, by name."""
    parameters = parameters_like(like)
    if count is None:
        count = sum(p.kind is not p.KEYWORD_ONLY for p in parameters)
    names = ["input", *(p.name for p in parameters[1:])]
    kind, shown = Parameter.POSITIONAL_OR_KEYWORD, zip(names, parameters, strict=True)
    static = ", ".join(f"{name!r}: {name}" for name in names[count:])
    body = f"return run(({', '.join(names[:count])},), {{{{{static}}}}})"
    return printed(op.name, [Parameter(n, kind, default=p.default, annotation="Any") for n, p in shown], body, run=run)  # type: ignore[no-any-return]


def _static(op: Op, name: str, value: Any) -> Any:
    """Return a static parameter as it may be part of a key: lists as tuples."""
    if isinstance(value, list):
        value = tuple(_static(op, name, x) for x in value)
    try:
        exact(value)
    except TypeError:
        raise TypeError(
            f"{op.name}(): {name} is static, a number, a string, or a tuple of them; got {type(value).__name__}"
        ) from None
    return value


def _to_numpy(function: Callable[..., Any], numpys: Any) -> None:
    """Let a reduction serve NumPy's function of the same name."""

    @hooks.implements(numpys)
    def serve(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False) -> Any:
        if out is not None:
            raise TypeError(f"np.{numpys.__name__}: out= is not supported for tensors; assign the result")
        return function(a, axis, bool(keepdims), dtype=dtype)


def _left() -> Iterator[Op]:
    """Yield the records that say that they have a public function, and have none yet."""
    for op in OPS.values():
        known = op.name in FUNCTIONS or op.name in hooks.FUNCTIONS or hasattr(Tensor, op.name)
        if op.function and type(op) in _MAKERS and not known:
            yield op


for _op in _left():
    MADE[_op.name] = hooks.public(*_op.torch)(function_of(_op))
    _of_numpy = getattr(np, _op.name, None)
    if isinstance(_op, Reduction) and _of_numpy is not None and _of_numpy not in hooks.NUMPY:
        _to_numpy(MADE[_op.name], _of_numpy)


# In-place variants of functions of whole tensors: running sums, products added to a tensor.

for _function in (
    contractions.addmm,
    contractions.addmv,
    contractions.addr,
    contractions.baddbmm,
    contractions.addbmm,
    reductions.renorm,
):
    install_in_place(_function, f"{_function.__name__}_")


def _cumsum(input: Tensor, dim: Any = None, *, dtype: Any = None, axis: Any = None) -> Tensor:
    defaults_only = dtype is None and axis is None  # then native code repeats it
    return scans.cumsum(input, dim) if defaults_only else scans.cumsum(input, dim, dtype=dtype, axis=axis)


def _cumprod(input: Tensor, dim: Any = None, *, dtype: Any = None, axis: Any = None) -> Tensor:
    defaults_only = dtype is None and axis is None
    return scans.cumprod(input, dim) if defaults_only else scans.cumprod(input, dim, dtype=dtype, axis=axis)


_cumsum.__doc__, _cumprod.__doc__ = scans.cumsum.__doc__, scans.cumprod.__doc__
install_in_place(_cumsum, "cumsum_")
install_in_place(_cumprod, "cumprod_")


# The table of operations in docs/operations.md, printed from the records that the library itself reads.

HEADS = ("name", "other names", "`grad_fn`", "what it does", "gradient", "the tape keeps", "dtypes", "NumPy")

_INDEX = "index"  # what a Select keeps; its rule does not mention it
_NOT_KEPT = {"g", "p"}  # the sweep brings the one, the instruction holds the other
_ORDER = ("a", "b", "c", "x", "y", "n", _INDEX)

# What NumPy's functions are called where no record says how Python writes them.
_WORDS = {
    "logical_or": "or",
    "bitwise_or": "or",
    "logical_and": "and",
    "bitwise_and": "and",
    "logical_not": "not ",
    "matmul": "@",
}
_UNARY = {"not ": 2, "-": 6, "+": 6}  # how tightly a sign holds its operand, and two operands
_COMPARISONS = dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), 3)
_INFIX = {"or": 0, "and": 1, **_COMPARISONS, "+": 4, "-": 4, "*": 5, "/": 5, "@": 5, "**": 7}
_WHOLE = 8  # a name, a number, a call


class Readable(Unprinted):
    """A name in a rule that is traced to be read: unlike a kernel's it may be tested and turned."""

    __slots__ = ()

    def __bool__(self) -> bool:
        """Return True: what is shown is the general case of a static number."""
        return True

    @property
    def T(self) -> Symbol:  # noqa: N802 (NumPy's name)
        """The matrix transposed."""
        return Readable(f"{self.head}.T")


def op_table() -> str:
    """Return a Markdown table of all operations, a row for each record, by their names.

    In a gradient `g` is the result's gradient, `y` the result, `x` or `a`, `b`, `c` the inputs, `p`
    a Python number, and `n` how many elements met, or tie, in one result.
    """
    rows = [HEADS, ("---",) * len(HEADS), *(_row(OPS[name]) for name in sorted(OPS))]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def readable(expression: Any) -> str:
    """Return an expression of symbols as one would write it, such as `g * (1 - y * y)`."""
    return _print(expression)[0]


def _row(op: Op) -> tuple[str, ...]:
    rules = {_input(op, i): _trace(rule) for i, rule in enumerate(op.pullback) if rule is not None}
    operator = op.operator if isinstance(op, Elementwise) else ""
    return (
        _code([op.name, *([] if not operator or operator.isidentifier() else [operator])]),
        _code(op.torch),
        _code(filter(None, (op.grad_fn,))),
        op.doc.replace("|", "\\|"),  # |x| ends no cell
        _gradient(op, rules),
        _code(op.kept if isinstance(op, Routine) else _kept(op, rules.values())),
        _dtypes(op),
        _code(_numpys(op)),
    )


def _dtypes(op: Op) -> str:
    """Return what the values may be: a gradient has floats only."""
    if op.differentiable:
        return "float"
    return "integer, bool" if isinstance(op, Elementwise) and set(op.domain) == {"boolean"} else "all"


def _numpys(op: Op) -> list[str]:
    """Return the functions of NumPy's and SciPy's that run the record."""
    if isinstance(op, Elementwise) and isinstance(op.ufunc, LateUfunc):
        return [f"scipy.special.{op.ufunc.__name__}"]
    record_ufuncs = (
        {op.ufunc} if isinstance(op, Elementwise) and isinstance(op.ufunc, np.ufunc) and names_of(op) else set()
    )
    registered = {function for function, records in RECORDS.items() if op.name in records}
    return sorted(map(numpy_name, record_ufuncs | registered))


def numpy_name(function: Any) -> str:
    """Return how a function of NumPy's is called, ``np.linalg.det``; a ufunc may tell no module."""
    module = getattr(function, "__module__", None) or "numpy"
    return f"{module.replace('numpy', 'np', 1)}.{function.__name__}"


def _input(op: Op, place: int) -> str:
    return op.inputs[place] if isinstance(op, Elementwise) else "ab"[place]


def _trace(rule: Any) -> Symbol:
    return traced(rule, Readable, {})


def _gradient(op: Op, rules: dict[str, Symbol]) -> str:
    """Return what each input receives, named by the input if there are several."""
    if isinstance(op, Routine):
        return "by NumPy's functions" if op.vjp is not None else ""
    texts = {name: op.contribution.format(f"`{readable(rule)}`") for name, rule in rules.items()}
    if len(texts) > 1:
        return "; ".join(f"{name}: {text}" for name, text in texts.items())
    return "".join(texts.values())


def _kept(op: Op, rules: Iterable[Symbol]) -> list[str]:
    """Return what the rules mention, and so the tape keeps if every input wants its gradient."""
    names = {name.removesuffix(".T") for rule in rules for name in rule.names} - _NOT_KEPT
    if isinstance(op, Select):
        names.add(_INDEX)
    return sorted(names, key=_ORDER.index)


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names).replace("|", "\\|")


def _print(expression: Any) -> tuple[str, int]:
    """Return an expression as text, and how tightly it holds together."""
    if not isinstance(expression, Symbol):
        return str(expression).removesuffix(".0"), _WHOLE if expression >= 0 else _UNARY["-"]
    head, parts = expression.head, expression.parts
    if not parts:
        return head, _WHOLE
    if head == "cut":
        return _print_cut(*parts), -1
    sign = _sign(head)
    if len(parts) == 1 and sign in _UNARY:
        return sign + _held(parts[0], _UNARY[sign]), _UNARY[sign]
    if sign in _INFIX:
        return _infix(sign, *parts), _INFIX[sign]
    return f"{head}({', '.join(map(readable, parts))})", _WHOLE


def _print_cut(where: Symbol, value: Any) -> str:
    """Print a contribution that is made in some places only."""
    if _sign(where.head) == "not ":
        return f"{readable(value)} if {readable(where.parts[0])} else nothing"
    return f"nothing if {readable(where)} else {readable(value)}"


def _sign(head: str) -> str:
    """Return how one writes a function of NumPy: as a word, by its record's operator, or by name."""
    op = OPS.get(head)
    return _WORDS.get(head) or (op.operator if isinstance(op, Elementwise) and op.operator else head)


def _infix(sign: str, left: Any, right: Any) -> str:
    """Print two operands and the sign between; parentheses that a rule wrote on the right stay."""
    binding, power, test = _INFIX[sign], sign == "**", sign in _COMPARISONS
    return f"{_held(left, binding + (power or test))} {sign} {_held(right, binding + 1 - power)}"


def _held(expression: Any, binding: int) -> str:
    """Print an operand, in parentheses if it would come apart."""
    text, precedence = _print(expression)
    return text if precedence >= binding else f"({text})"
