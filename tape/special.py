"""Special functions under PyTorch's names of ``torch.special`` and SciPy's of ``scipy.special``.

Each takes tensors, NumPy arrays and numbers, of broadcast shapes; integers count as the default dtype. Values are
SciPy's, and ``scipy.special.f(tensor)`` is recorded too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels.scipy_ufuncs import LateUfunc
from kernels.tables import OPS
from tape import numpy_ufuncs
from tape.arithmetic import FUNCTIONS, RECORDED
from tape.elementary import logit, mvlgamma, polygamma, round  # noqa: A004 (PyTorch's names)
from tape.softmaxes import log_softmax, logsumexp, softmax
from tape.tensor import Tensor

__all__ = [
    "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "beta", "betainc", "betaincc", "betaincinv", "betaln",
    "digamma", "entr", "erf", "erfc", "erfcinv", "erfcx", "erfinv", "exp2", "expit", "expm1", "gamma", "gammainc",
    "gammaincc", "gammainccinv", "gammaincinv", "gammaln", "gammasgn", "i0", "i0e", "i1", "i1e", "iv", "ive", "j0",
    "j1", "jn", "jv", "k0", "k1", "kn", "kv", "kve", "log1p", "log_expit", "log_ndtr", "log_softmax", "logit",
    "logsumexp", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "multigammaln",
    "ndtr", "ndtri", "polygamma", "psi", "rgamma", "round", "sinc", "softmax", "stdtr", "stdtrit", "xlog1py", "xlogy",
    "y0", "y1", "yn", "yv", "zeta",
]  # fmt: skip

multigammaln = mvlgamma
digamma = FUNCTIONS["digamma"]
entr = FUNCTIONS["entr"]
erf = FUNCTIONS["erf"]
erfc = FUNCTIONS["erfc"]
erfcx = FUNCTIONS["erfcx"]
erfinv = FUNCTIONS["erfinv"]
exp2 = FUNCTIONS["exp2"]
expm1 = FUNCTIONS["expm1"]
i0 = FUNCTIONS["i0"]
i0e = FUNCTIONS["i0e"]
i1 = FUNCTIONS["i1"]
i1e = FUNCTIONS["i1e"]
log1p = FUNCTIONS["log1p"]
log_ndtr = FUNCTIONS["log_ndtr"]
ndtr = FUNCTIONS["ndtr"]
ndtri = FUNCTIONS["ndtri"]
sinc = FUNCTIONS["sinc"]
xlog1py = FUNCTIONS["xlog1py"]
xlogy = FUNCTIONS["xlogy"]
expit, psi, gammaln = FUNCTIONS["sigmoid"], FUNCTIONS["digamma"], FUNCTIONS["lgamma"]
log_expit, gamma, erfcinv = RECORDED["log_expit"], RECORDED["gamma"], RECORDED["erfcinv"]
j0 = bessel_j0 = RECORDED["j0"]
j1 = bessel_j1 = RECORDED["j1"]
y0 = bessel_y0 = RECORDED["y0"]
y1 = bessel_y1 = RECORDED["y1"]
k0 = modified_bessel_k0 = RECORDED["k0"]
k1 = modified_bessel_k1 = RECORDED["k1"]
modified_bessel_i0, modified_bessel_i1 = i0, i1


def _last(name: str, arguments: str, value: str) -> Callable[..., Tensor]:
    """Return a function of which only the last operand has a derivative in closed form; with an example."""
    run = RECORDED[name]

    def function(*operands: Any) -> Tensor:
        if any(isinstance(a, Tensor) and a._slot is not None for a in operands[:-1]):
            which = "the first argument" if len(operands) == 2 else "all arguments but the last"  # noqa: PLR2004
            raise NotImplementedError(f"{name}(): the derivative by {which} is not implemented; detach() it")
        return run(*operands)  # type: ignore[no-any-return]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{run.__doc__}\n\n    >>> tape.special.{name}({arguments})\n    {value}\n    "
    return function


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
beta, betaln, rgamma, gammasgn = (RECORDED[name] for name in ("beta", "betaln", "rgamma", "gammasgn"))

for _function in (
    gamma, gammainc, gammaincc, erfcinv, log_expit, j0, j1, y0, y1, k0, k1, betainc, betaincc, betaincinv, gammaincinv,
    gammainccinv, stdtr, stdtrit, jv, yv, iv, ive, kv, kve, beta, betaln, rgamma, gammasgn,
):  # fmt: skip
    _op: Any = OPS[_function.__name__]
    numpy_ufuncs.serve(_op.name, _op.ufunc, _function)
for _name, _ufunc, _function in (
    ("_zeta", OPS["zeta"].ufunc, zeta), ("logit", OPS["logit"].ufunc, logit),  # type: ignore[attr-defined]
    ("yn", LateUfunc("yn"), yn), ("kn", LateUfunc("kn"), kn),
):  # fmt: skip
    numpy_ufuncs.serve(_name, _ufunc, _function)
