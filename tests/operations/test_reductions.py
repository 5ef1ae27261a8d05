"""Reductions, statistics and norms: PyTorch's values, gradients and exceptions; NumPy's functions; what overflows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.spatial
import scipy.special

import tape
from tape.operations.reductions import vector_norm
from tests.support import agreement
from tests.support.agreement import HOLED, MATRIX, equal

if TYPE_CHECKING:
    from tests.support.pytorch_outcomes import Outcomes

AGREE = """
x.prod() | x=t
x.prod() | x=[0.,2.,3.]
x.prod() | x=[0.,0.,3.]
x.prod(0) | x=[0.,0.,3.]
torch.empty(0).prod() | x=1.
torch.tensor([2,3]).prod()
torch.tensor([True,True]).prod()
torch.zeros(0,3).prod(0)
x.amax() | x=t
torch.aminmax(x) | x=t
torch.aminmax(x,dim=0) | x=t
torch.aminmax(x,dim=1,keepdim=True) | x=[[1.,1.],[2.,0.]]
x.argmax() | x=t
x.argmax(0) | x=t
torch.tensor([1.,nan,nan]).argmax()
torch.zeros(0,3).argmax(1)
torch.zeros(2,3).argmax(keepdim=True)
x.any() | x=t
torch.tensor([1,0],dtype=torch.uint8).all()
torch.empty(0).all()
torch.ones(2,3).any((0,1))
torch.ones(2,3).all(1,keepdim=True)
x.var() | x=[1.]
x.var(correction=3) | x=[1.,2.,4.]
x.var(correction=4) | x=[1.,2.,4.]
x.std() | x=[2.,2.]
x.std() | x=[1.]
x.var(0,unbiased=False) | x=t
x.var(False) | x=t
torch.var(x, unbiased=False) | x=t
x.var(0,False) | x=t
torch.var_mean(x) | x=t
torch.std_mean(x,dim=0,correction=0) | x=t
torch.empty(0).var()
x.var(correction=0.5) | x=t
x.var((0,1)) | x=[[1.,2.],[2.,5.]]
x.norm() | x=[1.,-3.,3.,0.]
x.norm(3) | x=[1.,-3.,3.,0.]
x.norm(1) | x=[1.,-3.,3.,0.]
x.norm(inf) | x=[1.,-3.,3.,0.]
x.norm(-inf) | x=[1.,-3.,3.,0.]
x.norm(0.5) | x=[1.,-3.,3.,0.]
x.norm(1.5) | x=[1.,-3.,3.,0.]
x.norm('fro') | x=[1.,-3.,3.,0.]
x.norm(2) | x=[0.,0.]
x.norm(3) | x=[0.,0.]
x.norm(1) | x=[0.,0.]
x.norm(inf) | x=[0.,0.]
x.norm(-inf) | x=[0.,0.]
x.norm(0.5) | x=[0.,0.]
x.norm(1.5) | x=[0.,0.]
x.norm(2,1) | x=[[1.,-3.],[3.,0.]]
x.norm(dim=1,keepdim=True) | x=[[1.,-3.],[3.,0.]]
x.norm("fro",(0,1)) | x=[[1.,-3.],[3.,0.]]
x.norm(1,(0,1)) | x=[[1.,-3.],[3.,0.]]
torch.empty(0).norm()
x.norm(inf) | x=[nan,1.]
x.norm("fro",0) | x=t
torch.logsumexp(torch.tensor([1,2]),0)
torch.logsumexp(torch.empty(0),0)
torch.logsumexp(x,0) | x=1.
torch.logsumexp(x,1) | x=[[inf,inf]]
torch.logsumexp(x,1) | x=[[-inf,1.]]
torch.softmax(x,0) | x=[-inf,-inf]
torch.softmax(x,0) | x=[inf,1.]
torch.softmax(x,0) | x=[-inf,1.]
torch.log_softmax(x,0) | x=[-inf,1.]
torch.log_softmax(x,0) | x=[-inf,-inf]
torch.softmax(x,0) | x=1.
x.softmax(dim=-1) | x=t
torch.softmax(torch.empty(0),0)
torch.nansum(x) | x=[1.,nan]
torch.nansum(torch.tensor([1,2]))
torch.nanmean(x) | x=[1.,nan,2.]
torch.nansum(x,1,keepdim=True) | x=[[1.,nan]]
torch.count_nonzero(x) | x=t
torch.count_nonzero(x,(0,1)) | x=[[1.,0.]]
torch.count_nonzero(x,dim=0) | x=[[1.,0.]]
torch.cov(x) | x=[[1.,2.,4.],[3.,5.,1.]]
torch.cov(x) | x=t
torch.cov(x,correction=0,fweights=torch.tensor([1,2,1,1]),aweights=torch.tensor([.1,.2,.3,.4])) | x=t
torch.corrcoef(x) | x=[[1.,2.,4.],[3.,5.,1.]]
torch.corrcoef(x) | x=t
torch.cov(x) | x=[1.]
torch.cov(torch.tensor([1,2]))
torch.cov(x) | x=2.
torch.dist(x,z) | x=t,z=[1.,2.,2.,2.]
torch.dist(x,z,1) | x=t,z=t
torch.cdist(x,z) | x=[[1.,2.]],z=[[1.,2.],[0.,0.]]
torch.cdist(x,z,p=1.) | x=[[1.,2.]],z=[[1.,2.],[0.,0.]]
torch.cdist(x,z,p=inf) | x=[[1.,2.]],z=[[1.,2.],[0.,0.]]
torch.cdist(x,z,p=3.) | x=[[1.,2.]],z=[[1.,2.],[0.,0.]]
torch.cdist(x,z,p=0.) | x=[[1.,2.]],z=[[1.,2.],[0.,0.]]
torch.pdist(x) | x=[[1.,2.],[3.,3.],[1.,2.]]
torch.cdist(torch.ones(2,3,4),torch.ones(2,2,4)).shape
torch.cdist(torch.ones(0,4),torch.ones(2,4)).shape
torch.cdist(x,z,p=.5) | x=[[1.,2.]],z=[[1.,2.],[0.,0.],[1.,3.]]
"""

RAISE = """
torch.aminmax(torch.empty(0)) |  | RuntimeError
torch.empty(0).argmax() |  | IndexError
torch.zeros(0,3).argmax(0) |  | IndexError
torch.tensor([True,False]).argmax() |  | RuntimeError
torch.zeros(2,3).argmax(dim=(0,1)) |  | TypeError
torch.ones(2,3).all((0,0)) |  | RuntimeError
torch.tensor([1,2]).var() |  | RuntimeError
x.norm('nuc') | x=[1.,-3.,3.,0.] | RuntimeError
torch.tensor([1,2]).norm() |  | RuntimeError
torch.empty(0).norm(inf) |  | RuntimeError
torch.tensor([1,2]).norm(dtype=torch.float64) |  | RuntimeError
torch.logsumexp(x) | x=t | TypeError
torch.softmax(torch.tensor([1,2]),0) |  | NotImplementedError
torch.softmax(x) | x=t | TypeError
torch.softmax(x,2) | x=t | IndexError
torch.nanmean(torch.tensor([1,2])) |  | RuntimeError
torch.cov(torch.ones(2,2,2)) |  | RuntimeError
torch.cov(x,fweights=torch.tensor([1.,2.,1.,1.])) | x=t | RuntimeError
torch.cov(x,aweights=torch.tensor([-1.,1.,1.,1.])) | x=t | RuntimeError
torch.cdist(x,z) | x=[1.],z=[1.] | RuntimeError
torch.cdist(x,z) | x=[[1.]],z=[[1.,2.]] | RuntimeError
torch.cdist(x,z,p=-1.) | x=[[1.,2.]],z=[[1.,2.],[0.,0.]] | RuntimeError
torch.cdist(torch.tensor([[1,2]]),torch.tensor([[1,2]])) |  | RuntimeError
"""


@pytest.mark.parametrize("row", agreement.rows(AGREE))
def test_agrees_with_pytorch(pytorch: Outcomes, row: str) -> None:
    agreement.agree(pytorch, row)


@pytest.mark.parametrize("row", agreement.rows(RAISE))
def test_raises_as_pytorch(pytorch: Outcomes, row: str) -> None:
    agreement.refuse(pytorch, row)


NUMPY: list[tuple[str, dict[str, Any]]] = [
    (name, keywords)
    for name, options in {
        "prod": [{}, {"axis": (0, 1)}, {"axis": 1, "keepdims": True, "initial": 2.0, "where": MATRIX > 0}],
        "any": [{}, {"axis": 0}, {"axis": 1, "keepdims": True, "where": MATRIX > 3}],
        "all": [{}, {"axis": 0}, {"axis": 1, "keepdims": True, "where": MATRIX > 3}],
        "count_nonzero": [{}, {"axis": 0, "keepdims": True}],
        "argmax": [{}, {"axis": 0}, {"axis": 1, "keepdims": True}],
        "argmin": [{}, {"axis": 0}],
        "var": [{}, {"axis": 0, "ddof": 1}, {"axis": (0, 1), "correction": 0.5, "keepdims": True}],
        "std": [{}, {"axis": 0, "ddof": 1}, {"axis": 1, "keepdims": True}],
        "ptp": [{}, {"axis": 0, "keepdims": True}],
        "average": [{}, {"axis": 0}, {"axis": 1, "weights": [1.0, 2.0, 0.5, 3.0]}, {"weights": MATRIX**2}],
        "nansum": [{}, {"axis": 0, "keepdims": True}],
        "nanprod": [{}, {"axis": 1}],
        "nanmean": [{}, {"axis": 0}, {"axis": 1, "keepdims": True}],
        "nanmax": [{}, {"axis": 0}],
        "nanmin": [{}, {"axis": 1, "keepdims": True}],
        "nanvar": [{}, {"axis": 1, "ddof": 1}],
        "nanstd": [{}, {"axis": 0, "keepdims": True}],
        "cov": [{}, {"rowvar": False, "bias": True}, {"fweights": [1, 2, 1, 1], "aweights": [0.1, 0.5, 1.0, 0.7]}],
        "corrcoef": [{}, {"rowvar": False}],
    }.items()
    for keywords in options
]
WITHOUT_GRADIENT = ("any", "all", "count_nonzero", "argmax", "argmin")


@pytest.mark.parametrize(("name", "keywords"), NUMPY)
def test_numpy_functions(name: str, keywords: dict[str, Any]) -> None:
    values = HOLED if name.startswith("nan") else MATRIX
    function = getattr(np, name)
    equal(function(tape.tensor(values), **keywords), function(values, **keywords))
    if name not in WITHOUT_GRADIENT:
        assert tape.autograd.gradcheck(lambda x: function(x, **keywords), tape.tensor(MATRIX, requires_grad=True))


@pytest.mark.parametrize("name", ["prod", "var", "cumsum", "median"])
def test_numpy_functions_refuse_an_out_of_another_shape(name: str) -> None:
    with pytest.raises(ValueError, match="out"):
        getattr(np, name)(tape.tensor(MATRIX), out=np.zeros(7))


def test_sort_has_no_out() -> None:
    with pytest.raises(TypeError, match="out"):
        np.sort(tape.tensor(MATRIX), out=np.zeros(()))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.prod(), lambda x: x.prod(1), lambda x: x.var(0), lambda x: x.std(), lambda x: tape.var_mean(x, 1),
        lambda x: x.norm(), lambda x: x.norm(3, 0), lambda x: vector_norm(x, math.inf, 1), lambda x: x.norm(0.5),
        lambda x: x.logsumexp((0, 1)), lambda x: x.logsumexp(0), lambda x: x.softmax(1), lambda x: x.log_softmax(0),
        lambda x: tape.softmin(x, 0), tape.cov, tape.corrcoef,
        lambda x: tape.cdist(x, x[:2] * 2), lambda x: tape.cdist(x, x[1:] * 3, p=1.5), tape.pdist,
        lambda x: tape.dist(x, x * x), lambda x: x.nansum(0), lambda x: x.nanmean(1), lambda x: tape.aminmax(x, dim=1),
    ],
)  # fmt: skip
def test_gradients(function: Any) -> None:
    x = tape.tensor(MATRIX, requires_grad=True)
    assert tape.autograd.gradcheck(function, x, check_forward_ad=True)
    assert tape.autograd.gradgradcheck(function, x)


@pytest.mark.quick
def test_products_with_zeros_have_exact_derivatives() -> None:
    for values in ([2.0, 0.0, 3.0], [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]):
        x = tape.tensor(values)
        others = [[math.prod(v for k, v in enumerate(values) if k not in (i, j)) * (i != j) for j in range(3)]
                  for i in range(3)]  # fmt: skip
        assert tape.func.hessian(lambda x: x.prod())(x).tolist() == others
        third = tape.func.jacfwd(tape.func.hessian(lambda x: x.prod()))(x)
        assert third[0, 1, 2].item() == 1.0


def test_norms_do_not_overflow() -> None:
    for scale in (1e200, 1e-200, 5e-324):
        for order in (2, 3, 0.5):
            x = tape.tensor(np.array([[3.0, 4.0], [1.0, 0.0]]) * scale, requires_grad=True)
            y = vector_norm(x, order, 1)
            np.testing.assert_allclose(
                y.detach().numpy(),
                np.linalg.vector_norm([[3.0, 4.0], [1.0, 0.0]], axis=1, ord=order) * scale,
                rtol=1e-14,
            )
            y.sum().backward()
            if scale != 5e-324:
                z = tape.tensor([[3.0, 4.0], [1.0, 0.0]], requires_grad=True)
                vector_norm(z, order, 1).sum().backward()
                np.testing.assert_allclose(x.grad.numpy(), z.grad.numpy(), rtol=1e-13)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-13), (np.float32, 2e-5)])
@pytest.mark.parametrize(("shape", "dim"), [((9, 2051), 1), ((3, 100, 70), 1)])
def test_large_arrays_by_kernels(shape: tuple[int, ...], dim: int, dtype: type, tolerance: float) -> None:
    """Rows of several parts with elements left over, and columns side by side, against SciPy and NumPy's formulas."""
    values = (np.random.default_rng(0).normal(size=shape) * 5).astype(dtype)
    values[0, 1:] = -np.inf
    wide = values.astype(float)
    for function, reference in (
        (tape.softmax, scipy.special.softmax), (tape.log_softmax, scipy.special.log_softmax),
        (tape.logsumexp, scipy.special.logsumexp),
    ):  # fmt: skip
        x, again = (tape.tensor(values, requires_grad=True) for _ in range(2))
        y = function(x, dim)
        np.testing.assert_allclose(y.detach().numpy(), reference(wide, dim), rtol=tolerance, atol=tolerance / 10)
        weights = tape.tensor(np.random.default_rng(1).normal(size=y.shape).astype(dtype))
        y.backward(weights)
        (plainly,) = tape.autograd.grad(function(again, dim), again, weights, create_graph=True)
        np.testing.assert_allclose(x.grad.numpy(), plainly.detach().numpy(), rtol=tolerance, atol=100 * tolerance)


def test_rows_of_special_values_by_kernels() -> None:
    values = np.zeros((7, 2000))
    values[0], values[1, 3], values[2, 5], values[3, 1:] = -np.inf, np.inf, np.nan, -np.inf
    values[4], values[5], values[6, 0] = 1e308, -1e308, 800
    for function in (tape.softmax, tape.log_softmax, tape.logsumexp):
        rows = [function(tape.tensor(row), 0).numpy() for row in values]  # small ones, by NumPy
        np.testing.assert_allclose(function(tape.tensor(values), 1).numpy(), rows, rtol=1e-13)
        np.testing.assert_allclose(function(tape.tensor(values.T.copy()), 0).numpy().T, rows, rtol=1e-13)


def test_distances_are_those_of_scipy() -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 5, 3)), np.random.default_rng(1).normal(size=(4, 3))
    for p, metric in ((1.0, "cityblock"), (2.0, "euclidean"), (math.inf, "chebyshev")):
        found = tape.cdist(tape.tensor(a), tape.tensor(b), p=p).numpy()
        np.testing.assert_array_equal(found, [scipy.spatial.distance.cdist(x, b, metric) for x in a])
    np.testing.assert_allclose(tape.pdist(tape.tensor(b)).numpy(), scipy.spatial.distance.pdist(b), rtol=1e-14)


def test_named_tuples_print_their_fields() -> None:
    x = tape.tensor([1.0, 3.0, 2.0])
    assert repr(tape.aminmax(x)) == "tape.return_types.aminmax(\nmin=tensor(1.),\nmax=tensor(3.))"
    assert repr(x.sort()) == "tape.return_types.sort(\nvalues=tensor([1., 2., 3.]),\nindices=tensor([0, 2, 1]))"
    assert x.topk(1)._fields == ("values", "indices")
