"""Functions made from records alone, the table of all operations in docs/operations.md, interpolation."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels.foundation.tables import exact
from kernels.kinds.elementwise import Elementwise, Reduction, Select
from kernels.kinds.routine import Routine
from kernels.kinds.views import View
from kernels.operations import OPS, interpolation
from kernels.rules.op import LateUfunc, Op, Symbol, Unprinted, traced
from tape import return_types
from tape.operations import contractions, reductions, sorting
from tape.operations.elementwise import FUNCTIONS, install_in_place, numpy_name
from tape.operations.rearranging import flip
from tape.operations.reductions import along
from tape.operations.solves import solve_banded
from tape.recording import creation, foreign_calls, record, views
from tape.recording.cached_calls import cached_call
from tape.recording.parameters import names_of, parameters_like, printed, with_axis, with_name
from tape.recording.promotion import alike
from tape.tensors import hooks
from tape.tensors.hooks import RECORDS, implements, public
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor, as_array, constant_tensor

if TYPE_CHECKING:
    from collections.abc import Iterable


# Public functions that follow from records alone: of reductions, routines and views that have none written by hand.
#
# A function is offered as ``tape.f``, as a method and, if NumPy has one of that name, to NumPy. Its parameters are
# those of the record: of a reduction PyTorch's ``dim`` and ``keepdim``, else the operands and static parameters of
# ``forward`` or ``apply``, with their defaults.

MADE: dict[str, Callable[..., Any]] = {}  # the functions that were made here, by name


def function_of(op: Op) -> Callable[..., Any]:
    """Return the function of a record as users call it."""
    return cached_call()(with_name(op.name, op.doc)(_MAKERS[type(op)](op)))


def _reduction(op: Any) -> Callable[..., Any]:
    @with_axis
    @with_name(op.name)
    def reduce(input: Any, dim: Any = None, keepdim: Any = False, *, dtype: Any = None) -> Tensor:
        return along(op, input, dim, keepdim, dtype)

    return reduce


def _routine(op: Any) -> Callable[..., Any]:
    names = (*op.results, *op.extras)
    kind = return_types.named(op.name, op.doc, *names) if len(names) > 1 else None

    def run(operands: tuple[Any, ...], params: dict[str, Any]) -> Any:
        results = foreign_calls.call(op, *operands, **{name: _static(op, name, x) for name, x in params.items()})
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


for _op in OPS.values():
    if not _op.function or type(_op) not in _MAKERS:
        continue
    if _op.name in FUNCTIONS or _op.name in hooks.FUNCTIONS or hasattr(Tensor, _op.name):
        continue
    MADE[_op.name] = hooks.public(*_op.torch)(function_of(_op))
    _of_numpy = getattr(np, _op.name, None)
    if isinstance(_op, Reduction) and _of_numpy is not None and _of_numpy not in hooks.NUMPY:
        _to_numpy(MADE[_op.name], _of_numpy)


_added = contractions.addmm, contractions.addmv, contractions.addr, contractions.baddbmm, contractions.addbmm
for _function in (*_added, reductions.renorm, sorting.cumsum, sorting.cumprod):
    install_in_place(_function, f"{_function.__name__}_")


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
    inputs = op.inputs if isinstance(op, Elementwise) else "ab"
    rules = {inputs[i]: traced(rule, Readable, {}) for i, rule in enumerate(op.pullback) if rule is not None}
    operator = op.operator if isinstance(op, Elementwise) else ""
    booleans = isinstance(op, Elementwise) and set(op.domain) == {"boolean"}
    return (
        _code([op.name, *([] if not operator or operator.isidentifier() else [operator])]),
        _code(op.torch),
        _code(filter(None, (op.grad_fn,))),
        op.doc.replace("|", "\\|"),  # |x| ends no cell
        _gradient(op, rules),
        _code(op.kept if isinstance(op, Routine) else _kept(op, rules.values())),
        "float" if op.differentiable else "integer, bool" if booleans else "all",
        _code(_numpys(op)),
    )


def _numpys(op: Op) -> list[str]:
    """Return the functions of NumPy's and SciPy's that run the record."""
    if isinstance(op, Elementwise) and isinstance(op.ufunc, LateUfunc):
        return [f"scipy.special.{op.ufunc.__name__}"]
    record_ufuncs = (
        {op.ufunc} if isinstance(op, Elementwise) and isinstance(op.ufunc, np.ufunc) and names_of(op) else set()
    )
    registered = {function for function, records in RECORDS.items() if op.name in records}
    return sorted(map(numpy_name, record_ufuncs | registered))


def _gradient(op: Op, rules: dict[str, Symbol]) -> str:
    if isinstance(op, Routine):
        return "by NumPy's functions" if op.vjp is not None else ""
    texts = {name: op.contribution.format(f"`{readable(rule)}`") for name, rule in rules.items()}
    if len(texts) > 1:
        return "; ".join(f"{name}: {text}" for name, text in texts.items())
    return "".join(texts.values())


def _kept(op: Op, rules: Iterable[Symbol]) -> list[str]:
    names = {name.removesuffix(".T") for rule in rules for name in rule.names} - _NOT_KEPT
    if isinstance(op, Select):
        names.add(_INDEX)
    return sorted(names, key=_ORDER.index)


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names).replace("|", "\\|")


def _print(expression: Any) -> tuple[str, int]:
    if not isinstance(expression, Symbol):
        return str(expression).removesuffix(".0"), _WHOLE if expression >= 0 else _UNARY["-"]
    head, parts = expression.head, expression.parts
    if not parts:
        return head, _WHOLE
    if head == "cut":
        where, value = parts
        turned = _sign(where.head) == "not "
        text = f"{readable(value)} if {readable(where.parts[0])} else nothing" if turned else ""
        return text or f"nothing if {readable(where)} else {readable(value)}", -1
    sign = _sign(head)
    if len(parts) == 1 and sign in _UNARY:
        return sign + _held(parts[0], _UNARY[sign]), _UNARY[sign]
    if sign in _INFIX:
        return _infix(sign, *parts), _INFIX[sign]
    return f"{head}({', '.join(map(readable, parts))})", _WHOLE


def _sign(head: str) -> str:
    """Return how one writes a function of NumPy: as a word, by its record's operator, or by name."""
    op = OPS.get(head)
    return _WORDS.get(head) or (op.operator if isinstance(op, Elementwise) and op.operator else head)


def _infix(sign: str, left: Any, right: Any) -> str:
    binding, power, test = _INFIX[sign], sign == "**", sign in _COMPARISONS
    return f"{_held(left, binding + (power or test))} {sign} {_held(right, binding + 1 - power)}"


def _held(expression: Any, binding: int) -> str:
    text, precedence = _print(expression)
    return text if precedence >= binding else f"({text})"


# Interpolation between knots and on regular grids, with gradients to points, knots and values.
#
# Values are NumPy's and SciPy's: np.interp, CubicSpline, PchipInterpolator, RegularGridInterpolator.

_OPS: dict[str, Any] = OPS
_where, sign = FUNCTIONS["where"], FUNCTIONS["sign"]
_BOUNDARIES = ("not-a-knot", "natural", "clamped")


@public(methods=False)
def interp(
    input: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None,
    *, kind: str = "linear", bc_type: str = "not-a-knot",
) -> Any:  # fmt: skip
    """Return the interpolant through (xp, fp) at the points x, of the shape of x.

    xp is (n,) and increasing, fp is (n,). ``kind`` is "linear" (np.interp: level beyond the ends, or ``left`` and
    ``right``; ``period`` turns x around; knots may be equal, where it jumps, or one alone), "cubic" (a spline with
    ``bc_type`` "not-a-knot", "natural" or "clamped") or "monotone", also "pchip". Cubic pieces go on beyond the ends,
    as SciPy's do.

    >>> tape.interp(tape.tensor([0.5, 3.0]), [0.0, 1.0, 2.0], [0.0, 2.0, 8.0])
    tensor([1., 8.])
    """
    input, xp, fp = _floats(input, xp, fp)
    least = 1 if kind == "linear" else 2
    if len(xp.spec.shape) != 1 or fp.spec.shape != xp.spec.shape:
        shapes = f"{list(fp.spec.shape)} and {list(xp.spec.shape)}"
        raise ValueError(f"interp: fp and xp are vectors of the same length; their shapes are {shapes}")
    if xp.spec.size < least:
        raise ValueError(f"interp: {least} or more knots are needed, {xp.spec.size} given")
    if kind == "linear":
        return _level(input, xp, fp, left, right, period)
    if (left, right, period) != (None, None, None):
        raise ValueError(f"interp: left, right and period are for kind='linear', not {kind!r}")
    if kind == "cubic":
        slopes = _spline_slopes(xp, fp, bc_type)
    elif kind in ("monotone", "pchip"):
        slopes = _monotone_slopes(xp, fp)
    else:
        raise ValueError(f"interp: kind is 'linear', 'cubic', 'monotone' or 'pchip', not {kind!r}")
    return foreign_calls.call(_OPS["hermite"], input, xp, fp, slopes)


def _floats(*values: Any) -> list[Tensor]:
    tensors = alike(*values)
    double = np.dtype(np.float64)
    return tensors if tensors[0].spec.dtype.kind == "f" else [record.to_dtype(x, double) for x in tensors]


def _level(x: Tensor, xp: Tensor, fp: Tensor, left: Any, right: Any, period: Any) -> Any:
    if period is not None:
        x, xp, fp = _around(x, xp, fp, abs(float(period)))
        left = right = None
    if xp.spec.size == 1:
        xp, fp = views.cat([xp, xp]), views.cat([fp, fp])
    level = foreign_calls.call(_OPS["interp"], x, xp, fp)
    if left is not None:
        level = _where(x < xp[0], left, level)
    return level if right is None else _where(x > xp[-1], right, level)


def _around(x: Tensor, xp: Tensor, fp: Tensor, period: float) -> tuple[Any, ...]:
    if period == 0:
        raise ValueError("period must be a non-zero value")
    remainder = FUNCTIONS["remainder"]
    x, xp = remainder(x, period), remainder(xp, period)
    record.note_escape(xp)  # the order of the knots is not recorded
    order = np.argsort(as_array(xp))
    xp, fp = xp[order], fp[order]
    return x, views.cat([xp[-1:] - period, xp, xp[:1] + period]), views.cat([fp[-1:], fp, fp[:1]])


def _spline_slopes(xp: Any, fp: Any, bc_type: str) -> Any:
    if bc_type not in _BOUNDARIES:
        raise ValueError(f"interp: bc_type is one of {', '.join(_BOUNDARIES)}, not {bc_type!r}")
    n = xp.spec.size
    h = xp[1:] - xp[:-1]
    rise = (fp[1:] - fp[:-1]) / h
    if n == 2 and bc_type == "not-a-knot":  # noqa: PLR2004
        return views.cat([rise, rise])
    if n == 3 and bc_type == "not-a-knot":  # noqa: PLR2004 (one parabola)
        turn = (rise[1:] - rise[:1]) / (xp[2:] - xp[:1])
        return views.cat([rise[:1] - turn * h[:1], rise[:1] + turn * h[:1], rise[1:] + turn * h[1:]])
    first, last = _end(h, rise, xp, bc_type), _end(_back(h), _back(rise), -_back(xp), bc_type)
    inner = 3.0 * (h[1:] * rise[:-1] + h[:-1] * rise[1:])
    nothing = creation.zeros(1, dtype=xp.spec.dtype)
    rows = (
        views.cat([nothing, first[1], h[:-1]]),
        views.cat([first[0], 2.0 * (h[:-1] + h[1:]), last[0]]),
        views.cat([h[1:], last[1], nothing]),
    )
    return solve_banded((1, 1), views.stack(rows), views.cat([first[2], inner, last[2]]))


def _back(x: Any) -> Any:
    return flip(x, 0)


def _end(h: Any, rise: Any, xp: Any, bc_type: str) -> tuple[Any, ...]:
    one = creation.ones(1, dtype=h.spec.dtype)
    if bc_type == "clamped":
        return one, one * 0.0, one * 0.0
    if bc_type == "natural":
        return 2.0 * h[:1], h[:1], 3.0 * h[:1] * rise[:1]
    d = xp[2:3] - xp[:1]
    right = ((h[:1] + 2.0 * d) * h[1:2] * rise[:1] + h[:1] * h[:1] * rise[1:2]) / d
    return h[1:2], d, right


def _monotone_slopes(xp: Any, fp: Any) -> Any:
    """Return the slopes of Fritsch and Butland (1984), with SciPy's three-point ends."""
    h = xp[1:] - xp[:-1]
    rise = (fp[1:] - fp[:-1]) / h
    if xp.spec.size == 2:  # noqa: PLR2004
        return views.cat([rise, rise])
    left, right = rise[:-1], rise[1:]
    w1, w2 = 2.0 * h[1:] + h[:-1], h[1:] + 2.0 * h[:-1]
    flat = sign(left) * sign(right) <= 0.0
    safe_left, safe_right = _where(flat, 1.0, left), _where(flat, 1.0, right)
    inner = _where(flat, 0.0, (w1 + w2) / (w1 / safe_left + w2 / safe_right))
    return views.cat([_three_points(h, rise), inner, _three_points(_back(h), _back(rise))])


def _three_points(h: Any, rise: Any) -> Any:
    h0, h1, m0, m1 = h[:1], h[1:2], rise[:1], rise[1:2]
    d = ((2.0 * h0 + h1) * m0 - h0 * m1) / (h0 + h1)
    turns = sign(m0) * sign(m1) <= 0.0
    steep = FUNCTIONS["abs"](d) > 3.0 * FUNCTIONS["abs"](m0)
    bounded = _where(turns, _where(steep, 3.0 * m0, d), d)
    return _where(sign(d) * sign(m0) <= 0.0, 0.0, bounded)


@public(methods=False)
def interpn(
    points: Any, values: Any, xi: Any, method: str = "linear", bounds_error: bool = True, fill_value: Any = float("nan")
) -> Any:
    """Return values on a regular grid, interpolated linearly along each axis.

    ``points`` is a sequence of d vectors, strictly increasing; ``values`` has their lengths as shape; ``xi`` is
    (..., d). A point outside raises ValueError, or with ``bounds_error=False`` gives ``fill_value``, None to go on.

    >>> tape.interpn(([0.0, 1.0], [0.0, 1.0]), [[0.0, 1.0], [2.0, 3.0]], [0.5, 0.5])
    tensor([1.5000])
    """
    if method != "linear":
        raise ValueError(f"interpn: method is 'linear', not {method!r}")
    x, v, *grids = _floats(xi, values, *points)
    sizes = tuple(grid.spec.size for grid in grids)
    if v.spec.shape != sizes or any(len(grid.spec.shape) != 1 for grid in grids):
        raise ValueError(f"interpn: points are vectors of lengths {list(v.spec.shape)}, not {list(sizes)}")
    if not x.spec.shape or x.spec.shape[-1] != len(sizes):
        raise ValueError(
            f"interpn: xi has shape {list(x.spec.shape)}; its last dim has one entry per axis, {len(sizes)}"
        )
    if min(sizes) < 2:  # noqa: PLR2004
        raise ValueError("interpn: each axis has two or more knots")
    result = foreign_calls.call(_OPS["interpn"], x, views.cat(grids), v, sizes=sizes, bounds_error=bool(bounds_error))
    if bounds_error or fill_value is None:
        return result
    for k, grid in enumerate(grids):
        at: Any = x[..., k]
        result = _where(at < grid[0], fill_value, _where(at > grid[-1], fill_value, result))
    return result


@implements(interpolation.added_at)
def _added_at(values: Any, at: Any, *, n: int) -> Any:
    values, at = tensor_of(values), tensor_of(at) if isinstance(at, Tensor) else constant_tensor(at)
    sums: Any = creation.zeros(n, dtype=values.spec.dtype)
    return sums.index_put_((views.reshape(at, -1),), views.reshape(values, -1), accumulate=True)


implements(np.interp, records="interp")(
    lambda x, xp, fp, left=None, right=None, period=None: interp(x, xp, fp, left, right, period)
)
