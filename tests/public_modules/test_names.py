"""The public names are those that users of PyTorch, NumPy and SciPy look for."""

from __future__ import annotations

import numpy as np
import pytest

import tape
from tape.tensors.hooks import NUMPY
from tests.support.pytorch_outcomes import Outcomes

ELEMENTWISE = """
rsqrt exp2 expm1 log2 log10 log1p arcsin arccos arctan arctan2 asin acos atan atan2 sinh cosh arcsinh arccosh arctanh
asinh acosh atanh erf erfc erfinv sigmoid relu softplus clamp clamp_min clamp_max clip sign sgn floor ceil round trunc
fix frac remainder fmod hypot logaddexp logaddexp2 lerp addcmul addcdiv fmax fmin float_power copysign ldexp deg2rad
rad2deg nan_to_num sinc xlogy xlog1py entr logit heaviside lgamma digamma polygamma mvlgamma ndtr ndtri log_ndtr erfcx
i0 i0e i1 i1e isnan isinf isfinite isclose allclose logical_and logical_or logical_not logical_xor bitwise_and
bitwise_or bitwise_xor bitwise_not
"""
REDUCTIONS = """
prod amax amin aminmax argmax argmin any all var std var_mean std_mean norm logsumexp softmax log_softmax cumsum cumprod
cummax cummin logcumsumexp nansum nanmean median nanmedian quantile nanquantile count_nonzero trapezoid
cumulative_trapezoid diff gradient cov corrcoef dist cdist sort argsort msort topk kthvalue unique histogram
searchsorted bucketize
"""
SHAPES = """
take take_along_dim gather scatter scatter_add scatter_reduce index_select index_add index_copy index_fill index_put
masked_select masked_fill masked_scatter nonzero argwhere narrow select diagonal diag diag_embed tril triu flip fliplr
flipud roll rot90 movedim swapaxes unbind split chunk tensor_split hstack vstack dstack column_stack hsplit vsplit
dsplit atleast_1d atleast_2d atleast_3d tile repeat_interleave broadcast_to broadcast_tensors meshgrid unflatten
as_strided pad block_diag slice_scatter select_scatter diagonal_scatter cartesian_prod combinations ravel
"""
METHODS = " repeat unfold expand_as view_as reshape_as sum_to_size scatter_ index_add_ masked_scatter_ index_copy_"
PRODUCTS = """
matmul bmm addmm addmv addr baddbmm outer inner vdot kron cross tensordot einsum trace interp
"""
LINALG = """
solve inv det slogdet cholesky qr eigh eigvalsh svd svdvals pinv lstsq lu_factor lu_solve solve_triangular
cholesky_solve matrix_norm vector_norm norm cond matrix_power matrix_exp tensorsolve tensorinv vecdot multi_dot vander
logdet cross solve_banded solveh_banded solve_toeplitz
"""
SPECIAL = """
erf erfc erfinv erfcx expit logit log_ndtr ndtr ndtri entr xlogy xlog1py gammaln digamma psi polygamma multigammaln
i0 i0e i1 i1e exp2 expm1 log1p logsumexp softmax log_softmax sinc round
"""
OF_NUMPY = """
interp convolve polyval select piecewise clip sum prod mean var std max min argmax argmin any all cumsum cumprod sort
argsort median quantile percentile diff gradient trapezoid cov corrcoef take take_along_axis concatenate stack vstack
hstack dstack split array_split where reshape ravel transpose swapaxes moveaxis squeeze expand_dims broadcast_to flip
fliplr flipud roll rot90 tile repeat diag diagonal tril triu pad meshgrid dot inner outer tensordot einsum kron cross
trace vdot nan_to_num isclose allclose unique histogram searchsorted nonzero argwhere count_nonzero
linalg.solve linalg.inv linalg.det linalg.slogdet linalg.cholesky linalg.qr linalg.eigh linalg.eigvalsh linalg.svd
linalg.pinv linalg.lstsq linalg.norm linalg.cond linalg.matrix_power linalg.multi_dot linalg.tensorsolve
linalg.tensorinv
"""


@pytest.mark.parametrize("names", [ELEMENTWISE, REDUCTIONS, SHAPES, PRODUCTS], ids=["2", "3", "4", "5"])
def test_functions(names: str) -> None:
    missing = [name for name in names.split() if not callable(getattr(tape, name, None))]
    assert not missing
    assert not set(names.split()) - set(tape.__all__)


def test_methods(pytorch: Outcomes) -> None:
    names = (ELEMENTWISE + REDUCTIONS + SHAPES + PRODUCTS + METHODS).split()
    methods = pytorch(lambda torch: [n for n in names if hasattr(torch.Tensor, n)], "methods")
    missing = [n for n in methods if not callable(getattr(tape.Tensor, n, None))]
    assert not missing


@pytest.mark.parametrize(("module", "names"), [("linalg", LINALG), ("special", SPECIAL)])
def test_modules(module: str, names: str) -> None:
    found = getattr(tape, module)
    assert not [name for name in names.split() if not callable(getattr(found, name, None))]
    assert not set(names.split()) - set(found.__all__)


def test_numpys_functions() -> None:
    def function(name: str) -> object:
        found: object = np
        for part in name.split("."):
            found = getattr(found, part)
        return found

    assert not [name for name in OF_NUMPY.split() if function(name) not in NUMPY]
