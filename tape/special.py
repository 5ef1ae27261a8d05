"""Special functions under PyTorch's names of ``torch.special`` and SciPy's of ``scipy.special``.

Each takes tensors, NumPy arrays and numbers, of broadcast shapes; integers count as the default dtype. Values are
SciPy's, and ``scipy.special.f(tensor)`` is recorded too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels.kinds.elementwise import Elementwise
from kernels.operations import OPS
from kernels.rules.op import LateUfunc
from tape.operations import matmul, reductions
from tape.operations import sorting as softmaxes
from tape.operations.elementwise import FUNCTIONS, RUN, array_like, cast, logit, mvlgamma, polygamma, round  # noqa: A004 (PyTorch's names)
from tape.recording import views
from tape.recording.parameters import Dims, dim_of, function_of, names_of, with_axis, with_name
from tape.tensors import dtypes
from tape.tensors.operands import tensor_of
from tape.tensors.tensor import Tensor

__all__ = [
    "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "beta", "betainc", "betaincc", "betaincinv", "betaln",
    "digamma", "entr", "erf", "erfc", "erfcinv", "erfcx", "erfinv", "exp2", "expit", "expm1", "gamma", "gammainc",
    "gammaincc", "gammainccinv", "gammaincinv", "gammaln", "gammasgn", "i0", "i0e", "i1", "i1e", "iv", "ive", "j0",
    "j1", "jn", "jv", "k0", "k1", "kn", "kv", "kve", "log1p", "log_expit", "log_ndtr", "log_softmax", "logit",
    "logsumexp", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "multigammaln",
    "ndtr", "ndtri", "polygamma", "psi", "rgamma", "round", "sinc", "softmax", "stdtr", "stdtrit", "xlog1py", "xlogy",
    "y0", "y1", "yn", "yv", "zeta",
]  # fmt: skip

_where: Any = FUNCTIONS["where"]
multigammaln = mvlgamma
(
    digamma, entr, erf, erfc, erfcx, erfinv, exp2, expm1, i0, i0e, i1, i1e, log1p, log_ndtr, ndtr, ndtri, sinc,
    xlog1py, xlogy,
) = map(FUNCTIONS.__getitem__, (
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expm1", "i0", "i0e", "i1", "i1e", "log1p",
    "log_ndtr", "ndtr", "ndtri", "sinc", "xlog1py", "xlogy",
))  # fmt: skip
expit, psi, gammaln = FUNCTIONS["sigmoid"], FUNCTIONS["digamma"], FUNCTIONS["lgamma"]
log_expit, gamma, erfcinv = RUN["log_expit"], RUN["gamma"], RUN["erfcinv"]
j0 = bessel_j0 = RUN["j0"]
j1 = bessel_j1 = RUN["j1"]
y0 = bessel_y0 = RUN["y0"]
y1 = bessel_y1 = RUN["y1"]
k0 = modified_bessel_k0 = RUN["k0"]
k1 = modified_bessel_k1 = RUN["k1"]
modified_bessel_i0, modified_bessel_i1 = i0, i1


def _last(name: str, arguments: str, value: str) -> Callable[..., Tensor]:
    """Return a function of which only the last operand has a derivative in closed form; with an example."""
    run = RUN[name]

    def checked(*operands: Any) -> Tensor:
        if any(isinstance(a, Tensor) and a._slot is not None for a in operands[:-1]):
            which = "the first argument" if len(operands) == 2 else "all arguments but the last"  # noqa: PLR2004
            raise NotImplementedError(f"{name}(): the derivative by {which} is not implemented; detach() it")
        return run(*operands)  # type: ignore[no-any-return]

    op: Any = OPS[name]
    function = function_of(op, checked)
    function.__doc__ = f"{run.__doc__}\n\n    >>> tape.special.{name}({arguments})\n    {value}\n    "
    return function  # type: ignore[no-any-return]


zeta = _last("zeta", "2.0, tape.tensor([1.0, 2.0])", "tensor([1.6449, 0.6449])")
gammainc = _last("gammainc", "1.0, tape.tensor([0.5, 1.0])", "tensor([0.3935, 0.6321])")
gammaincc = _last("gammaincc", "1.0, tape.tensor([0.5, 1.0])", "tensor([0.6065, 0.3679])")

betainc = _last("betainc", "2.0, 1.0, tape.tensor([0.5, 1.0])", "tensor([0.2500, 1.0000])")
betaincc = _last("betaincc", "2.0, 1.0, tape.tensor([0.5, 1.0])", "tensor([0.7500, 0.0000])")
betaincinv = _last("betaincinv", "2.0, 1.0, tape.tensor([0.25, 1.0])", "tensor([0.5000, 1.0000])")
gammaincinv = _last("gammaincinv", "1.0, tape.tensor([0.5])", "tensor([0.6931])")
gammainccinv = _last("gammainccinv", "1.0, tape.tensor([0.5])", "tensor([0.6931])")
stdtr = _last("stdtr", "2.0, tape.tensor([0.0, 1.0])", "tensor([0.5000, 0.7887])")
stdtrit = _last("stdtrit", "2.0, tape.tensor([0.5])", "tensor([0.])")
jv = jn = _last("jv", "2, tape.tensor([1.0])", "tensor([0.1149])")
yv = yn = _last("yv", "2, tape.tensor([1.0])", "tensor([-1.6507])")
iv = _last("iv", "2, tape.tensor([1.0])", "tensor([0.1357])")
ive = _last("ive", "2, tape.tensor([1.0])", "tensor([0.0499])")
kv = kn = _last("kv", "2, tape.tensor([1.0])", "tensor([1.6248])")
kve = _last("kve", "2, tape.tensor([1.0])", "tensor([4.4168])")
beta, betaln, rgamma, gammasgn = (RUN[name] for name in ("beta", "betaln", "rgamma", "gammasgn"))


@with_axis
def logsumexp(a: Any, dim: Dims = None, b: Any = None, keepdim: bool = False, return_sign: bool = False) -> Any:
    """Return ``log(sum(b * exp(a)))`` over ``axis`` (all by default), without overflow: SciPy's arguments or PyTorch's.

    With ``return_sign`` the logarithm of the absolute value, and the sign; without it, nan where the sum is negative.
    A bool in the third place is PyTorch's ``keepdim``.

    >>> tape.special.logsumexp(tape.tensor([1000.0, 1000.0]), b=[1.0, 3.0])
    tensor(1001.3863)
    """
    if isinstance(b, bool):
        b, keepdim = None, b
    x, keep = _floating(a), bool(keepdim)
    dims = tuple(range(len(x.spec.shape))) if dim is None else dim
    if b is None and not return_sign:
        return softmaxes.logsumexp(x, dims, keep)
    weights = tensor_of(1.0) if b is None else _floating(b)
    wide = np.broadcast_shapes(x.spec.shape, weights.spec.shape)
    x = views.expand(x, wide)
    if b is not None:
        x = _where(views.expand(weights == 0, wide), -math.inf, x)  # what counts nothing is no largest
    top = reductions.amax(x.detach(), dims, True)
    top = _where(FUNCTIONS["isfinite"](top), top, 0.0)
    total = reductions.sum(weights * FUNCTIONS["exp"](x - top), dims, keep)
    top = top if keep else views.reshape(top, total.spec.shape)
    if not return_sign:
        return FUNCTIONS["log"](total) + top
    return FUNCTIONS["log"](FUNCTIONS["absolute"](total)) + top, FUNCTIONS["sign"](total)


def _floating(x: Any) -> Tensor:
    x = array_like(x)
    return x if x.spec.dtype.kind == "f" else cast(x, dtypes.get_default_dtype())


def _of_all(name: str, meaning: str, example: str) -> Callable[..., Tensor]:
    along_one = getattr(softmaxes, name)
    doc = f"""Return {meaning} over ``axis``: an int, a tuple, or None for all.

    SciPy's argument; PyTorch's ``dim`` and ``dtype`` are taken too.

    >>> tape.special.{name}(tape.tensor([[0.0], [0.0]])).tolist()
    {example}
    """

    @with_axis
    @with_name(name, doc)
    def function(input: Any, dim: Any = None, dtype: Any = None) -> Tensor:
        input = _floating(cast(array_like(input), dtype))
        if dim is None or isinstance(dim, (tuple, list)):
            # Run along several axes as if they were one
            rank = len(input.spec.shape)
            dims = tuple(range(rank)) if dim is None else tuple(dim_of(input, d) for d in dim)
            order = (*(d for d in range(rank) if d not in dims), *dims)
            turned = views.permute(input, order)
            result = along_one(views.reshape(turned, (*turned.spec.shape[: rank - len(dims)], -1)), -1)
            back = tuple(int(d) for d in np.argsort(order))
            return views.permute(views.reshape(result, turned.spec.shape), back)
        return along_one(input, dim)  # type: ignore[no-any-return]

    return function


softmax = _of_all("softmax", "the exponentials divided by their sum", "[[0.5], [0.5]]")
log_softmax = _of_all(
    "log_softmax",
    "the logarithms of the exponentials divided by their sum",
    "[[-0.6931471805599453], [-0.6931471805599453]]",
)

for _op in OPS.values():
    if isinstance(_op, Elementwise) and isinstance(_op.ufunc, LateUfunc) and not names_of(_op):
        _ufunc = "_zeta" if _op.name == "zeta" else _op.name  # SciPy's own name of it
        matmul.serve(_ufunc, _op.ufunc, globals()[_op.name])
matmul.serve("yn", LateUfunc("yn"), yn)
matmul.serve("kn", LateUfunc("kn"), kn)
for _name in ("exp2", "expm1", "log1p"):
    matmul.serve(_name, LateUfunc(_name), globals()[_name])
