"""Special functions under PyTorch's names of ``torch.special`` and SciPy's of ``scipy.special``.

Each takes tensors, NumPy arrays and numbers, of broadcast shapes; integers count as the default dtype. Values are
SciPy's, and ``scipy.special.f(tensor)`` is recorded too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernels.tables import OPS
from tape import numpy_ufuncs
from tape.arithmetic import FUNCTIONS, RECORDED
from tape.elementary import logit, mvlgamma, polygamma, round  # noqa: A004 (PyTorch's names)
from tape.softmaxes import log_softmax, logsumexp, softmax
from tape.tensor import Tensor

__all__ = [
    "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "digamma", "entr", "erf", "erfc", "erfcinv", "erfcx", "erfinv",
    "exp2", "expit", "expm1", "gamma", "gammainc", "gammaincc", "gammaln", "i0", "i0e", "i1", "i1e", "j0", "j1", "k0",
    "k1", "log1p", "log_expit", "log_ndtr", "log_softmax", "logit", "logsumexp", "modified_bessel_i0",
    "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "multigammaln", "ndtr", "ndtri", "polygamma",
    "psi", "round", "sinc", "softmax", "xlog1py", "xlogy", "y0", "y1", "zeta",
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


def _half(name: str, arguments: str, value: str) -> Callable[[Any, Any], Tensor]:
    """Return a function of two operands whose derivative by the first nobody has written; with an example."""
    run = RECORDED[name]

    def function(a: Any, x: Any) -> Tensor:
        if isinstance(a, Tensor) and a._slot is not None:
            raise NotImplementedError(f"{name}(): the derivative by the first argument is not implemented; detach() it")
        return run(a, x)  # type: ignore[no-any-return]

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{run.__doc__}\n\n    >>> tape.special.{name}({arguments})\n    {value}\n    "
    return function


zeta = _half("zeta", "2.0, tape.tensor([1.0, 2.0])", "tensor([1.6449, 0.6449])")
gammainc = _half("gammainc", "1.0, tape.tensor([0.5, 1.0])", "tensor([0.3935, 0.6321])")
gammaincc = _half("gammaincc", "1.0, tape.tensor([0.5, 1.0])", "tensor([0.6065, 0.3679])")

for _name, _function in (
    ("_zeta", zeta), ("gamma", gamma), ("gammainc", gammainc), ("gammaincc", gammaincc), ("erfcinv", erfcinv),
    ("log_expit", log_expit), ("logit", logit), ("j0", j0), ("j1", j1),
    ("y0", y0), ("y1", y1), ("k0", k0), ("k1", k1),
):  # fmt: skip
    _op: Any = OPS[_name.removeprefix("_")]
    numpy_ufuncs.serve(_name, _op.ufunc, _function)
