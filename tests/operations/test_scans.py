"""Scans, sorts, quantiles, differences, histograms: PyTorch's values, gradients, exceptions; NumPy's functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tape
from kernels.programs.program import ProgramError
from tests.support import agreement
from tests.support.agreement import HOLED, MATRIX, equal

if TYPE_CHECKING:
    from tests.support.pytorch_outcomes import Outcomes

AGREE = """
x.cumprod(0) | x=[2.,0.,3.,0.,4.]
x.cumprod(0) | x=[2.,0.,3.,4.]
torch.tensor([2,3]).cumprod(0)
torch.tensor([True,True]).cumprod(0)
x.cumprod(0) | x=3.
x.cumsum(0) | x=3.
x.cummax(0) | x=t
x.cummax(0) | x=[1.,nan,3.,nan,2.]
x.cummin(0) | x=[3.,3.,1.,1.,2.]
torch.tensor([2,3]).cummax(0)
torch.tensor([True,False]).cummin(0)
x.cummax(0) | x=2.
torch.cummax(torch.empty(0),0)
torch.logcumsumexp(x,0) | x=[1.,2.,3.]
torch.logcumsumexp(x,0) | x=[-inf,-inf,3.]
torch.logcumsumexp(x,0) | x=[1.,inf,3.]
torch.logcumsumexp(x,0) | x=[1.,nan,3.]
torch.logcumsumexp(x,0) | x=[1000.,-1000.,3.]
x.median() | x=t
x.median() | x=[1.,2.,2.,2.,5.]
x.median(0) | x=t
x.median(0) | x=[1.,2.,2.,2.,5.]
x.median(0) | x=[5.,2.,2.,2.,1.]
x.median() | x=[1.,nan,nan]
x.median(0) | x=[1.,nan,nan]
x.nanmedian() | x=[1.,nan,3.,2.]
x.nanmedian(0) | x=[1.,nan,3.,2.]
x.nanmedian(0) | x=[nan,nan]
torch.empty(0).median()
torch.tensor([3,1,2]).median()
x.median() | x=3.
x.median(0) | x=3.
x.mode() | x=[1.,2.,2.,1.,5.]
x.mode(0) | x=[5.,2.,2.,2.,1.]
x.mode() | x=[3.,1.,2.]
x.mode() | x=3.
torch.tensor([[3,1,3,1,1]]).mode()
x.mode() | x=[7.,7.,7.,1.,1.,1.,7.,1.]
x.quantile(0.4,interpolation="linear") | x=t
x.quantile(0.4,interpolation="lower") | x=t
x.quantile(0.4,interpolation="higher") | x=t
x.quantile(0.4,interpolation="midpoint") | x=t
x.quantile(0.4,interpolation="nearest") | x=t
torch.quantile(x,torch.tensor([.1,.5])) | x=t
torch.quantile(x,torch.tensor([.1,.5]),dim=1) | x=[[1.,2.,4.]]
torch.quantile(x,torch.tensor([.1,.5]),dim=1,keepdim=True) | x=[[1.,2.,4.]]
torch.quantile(x,q) | x=t,q=[.1,.5]
torch.quantile(x,q) | x=t,q=[0.,1.]
torch.quantile(x,q,1,True) | x=[[1.,2.,4.],[0.,5.,7.]],q=[.1,.5,.8]
torch.quantile(x,q,0) | x=[[1.,2.,4.],[0.,5.,7.]],q=.3
torch.quantile(torch.tensor([1.,2.,5.]),q) | q=[.1,.5]
torch.quantile(x,q) | x=[1.,nan,2.],q=[.1,.5]
torch.quantile(x,q) | x=2.,q=.5
torch.nanquantile(x,q,1) | x=[[1.,2.,4.],[0.,nan,7.],[nan,nan,nan]],q=[.1,.7]
torch.quantile(x,q,interpolation="lower") | x=t,q=[.1,.5]
torch.quantile(x,q,interpolation="higher") | x=t,q=[.1,.5]
torch.quantile(x,q,interpolation="midpoint") | x=t,q=[.1,.5]
torch.quantile(x,q,interpolation="nearest") | x=t,q=[.1,.5]
torch.quantile(x,.5) | x=[1.,nan,2.]
torch.nanquantile(x,.5) | x=[1.,nan,2.]
torch.nanquantile(x,.5) | x=[nan,nan]
torch.quantile(x,.5) | x=2.
torch.trapezoid(x) | x=t
torch.trapezoid(x,dx=2.) | x=t
torch.trapezoid(x,z) | x=t,z=[0.,1.,3.,4.]
torch.cumulative_trapezoid(x) | x=t
torch.trapezoid(x,dim=0) | x=[[1.,2.],[3.,4.]]
torch.trapezoid(torch.empty(0))
torch.cumulative_trapezoid(torch.empty(1))
torch.trapz(x) | x=t
torch.trapezoid(x,z,dim=0) | x=[[1.,2.],[3.,4.]],z=[0.,2.]
torch.trapezoid(torch.tensor([1,2]))
torch.diff(x) | x=t
torch.diff(x,2) | x=t
torch.diff(x,5) | x=t
torch.diff(x,prepend=z) | x=t,z=[1.]
torch.diff(x,dim=0) | x=[[1.,2.],[3.,5.]]
torch.diff(torch.tensor([True,False,True]))
torch.diff(x,0) | x=t
torch.gradient(x) | x=t
torch.gradient(x,spacing=2.) | x=t
torch.gradient(x,spacing=(torch.tensor([0.,1.,3.,4.]),)) | x=t
torch.gradient(x,edge_order=2) | x=t
torch.gradient(x) | x=[[1.,2.],[3.,5.]]
torch.gradient(x,dim=1,spacing=3.) | x=[[1.,2.],[3.,5.]]
torch.gradient(torch.tensor([1,2,4]))
torch.gradient(x,spacing=(2.,3.)) | x=[[1.,2.],[3.,5.]]
x.sort() | x=t
x.sort(descending=True) | x=[1.,nan,3.,3.,2.]
x.sort() | x=[1.,nan,3.,3.,2.]
torch.sort(x,dim=0,stable=True) | x=[[3.,1.],[1.,3.]]
x.argsort() | x=t
x.sort() | x=2.
torch.msort(x) | x=[[3.,1.],[1.,3.]]
torch.sort(torch.tensor([True,False]))
x.argsort(descending=True) | x=t
torch.sort(torch.empty(0))
torch.argsort(x,stable=True,dim=0) | x=t
torch.sort(x,stable=True) | x=t
torch.msort(x) | x=2.
x.topk(2) | x=t
x.topk(2,largest=False) | x=t
x.topk(0) | x=t
x.topk(1) | x=2.
x.topk(2) | x=[1.,nan,3.,2.]
x.topk(1,dim=0) | x=[[1.,5.],[2.,3.]]
x.kthvalue(2) | x=t
x.kthvalue(1,keepdim=True) | x=[[1.,5.],[2.,3.]]
x.kthvalue(1) | x=2.
x.kthvalue(3) | x=[1.,nan,2.]
torch.unique(torch.empty(0),return_counts=True)
torch.histc(x,3) | x=t
torch.histc(x,3,0,2) | x=t
torch.bincount(torch.tensor([1,2,1]))
torch.bincount(torch.tensor([1,2,1]),torch.tensor([.1,.2,.3]),5)
torch.bincount(torch.tensor([1,2,1]),torch.tensor([.25,.5,1.75],dtype=torch.float32))
torch.bincount(torch.tensor([1,2,1]),torch.tensor([4,5,6]))
torch.bincount(torch.tensor([1,2,1]),torch.tensor([4,5,6],dtype=torch.uint8),minlength=4)
torch.histc(x,3) | x=[2.,2.]
torch.bincount(torch.tensor([],dtype=torch.int64))
torch.searchsorted(torch.tensor([1.,2.,3.]),x) | x=t
torch.searchsorted(torch.tensor([1.,2.,3.]),2.,right=True)
torch.searchsorted(torch.tensor([[1.,2.],[3.,4.]]),torch.tensor([[2.,2.],[2.,2.]]),out_int32=True)
torch.searchsorted(torch.tensor([1.,2.]),x,side="right") | x=t
torch.searchsorted(torch.tensor([2.,1.]),x,sorter=torch.tensor([1,0])) | x=t
torch.bucketize(x,torch.tensor([1.,2.])) | x=t
torch.bucketize(2.,torch.tensor([1.,2.]),right=True)
torch.searchsorted(torch.tensor([1,2]),x) | x=t
torch.searchsorted(torch.tensor([1.,2.]),nan)
"""

RAISE = """
x.cumprod(1) | x=3. | IndexError
torch.logcumsumexp(torch.tensor([1,2]),0) |  | NotImplementedError
torch.zeros(0,3).median(0) |  | IndexError
torch.tensor([True,False]).median() |  | NotImplementedError
torch.empty(0).mode() |  | IndexError
torch.quantile(x,1.5) | x=t | RuntimeError
torch.quantile(torch.tensor([1,2]),.5) |  | RuntimeError
torch.quantile(torch.empty(0),.5) |  | RuntimeError
torch.quantile(x,torch.tensor([[.5]])) | x=t | RuntimeError
torch.quantile(x,[.3,.5]) | x=t | TypeError
torch.quantile(x,.5,interpolation="cubic") | x=t | RuntimeError
torch.quantile(x, torch.tensor([.1],dtype=torch.float32)) | x=t | RuntimeError
torch.quantile(x, torch.tensor([1.5])) | x=t | RuntimeError
torch.quantile(torch.zeros(0,3),.5,dim=1) |  | RuntimeError
torch.quantile(torch.zeros(0,3),.5,dim=0) |  | RuntimeError
torch.trapezoid(x,z) | x=t,z=[0.,1.] | RuntimeError
torch.trapezoid(x) | x=2. | IndexError
torch.trapezoid(x,z,dx=1) | x=t,z=t | TypeError
torch.diff(x) | x=2. | RuntimeError
torch.diff(x,-1) | x=t | RuntimeError
torch.diff(x,prepend=z) | x=[[1.,2.]],z=[1.] | RuntimeError
torch.gradient(x) | x=[1.] | RuntimeError
torch.gradient(x,edge_order=2) | x=[1.,2.] | RuntimeError
torch.gradient(x,spacing=[1.,2.]) | x=t | RuntimeError
torch.gradient(x,edge_order=3) | x=t | RuntimeError
x.sort(1) | x=t | IndexError
x.topk(5) | x=t | RuntimeError
x.topk(-1) | x=t | RuntimeError
x.topk(1,dim=4) | x=t | IndexError
x.kthvalue(5) | x=t | RuntimeError
x.kthvalue(0) | x=t | RuntimeError
torch.empty(0).kthvalue(1) |  | IndexError
x.unique() | x=t | NotImplementedError
torch.unique(x,return_inverse=True,return_counts=True) | x=[3.,1.,3.,nan,nan] | NotImplementedError
torch.unique(x,dim=0) | x=[[1.,2.],[1.,2.],[0.,5.]] | NotImplementedError
torch.unique(x,dim=1,return_inverse=True,return_counts=True) | x=[[1.,1.,0.],[2.,2.,5.]] | NotImplementedError
torch.histc(torch.tensor([1,2]),3) |  | NotImplementedError
torch.histc(x,0) | x=t | RuntimeError
torch.histc(x,3,2,1) | x=t | RuntimeError
torch.bincount(x) | x=t | NotImplementedError
torch.bincount(torch.tensor([-1])) |  | RuntimeError
torch.bincount(torch.tensor([[1]])) |  | RuntimeError
torch.histc(x,3) | x=[1.,nan] | RuntimeError
torch.histogram(torch.tensor([1,2]),3) |  | NotImplementedError
torch.searchsorted(torch.tensor([[1.,2.],[3.,4.]]),torch.tensor([2.,2.,3.])) |  | RuntimeError
torch.searchsorted(torch.tensor([1.,2.]),x,side="left",right=True) | x=t | RuntimeError
torch.bucketize(x,torch.tensor([[1.,2.]])) | x=t | RuntimeError
torch.searchsorted(torch.tensor([1.,2.]),x,side="middle") | x=t | RuntimeError
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
        "cumsum": [{}, {"axis": 0}],
        "cumprod": [{}, {"axis": 1}],
        "nancumsum": [{}, {"axis": 0}],
        "nancumprod": [{"axis": 1}],
        "cumulative_sum": [{"axis": 1, "include_initial": True}],
        "cumulative_prod": [{"axis": 0}],
        "sort": [{}, {"axis": 0}, {"axis": None}],
        "argsort": [{}, {"axis": 0, "stable": True}, {"axis": None}],
        "median": [{}, {"axis": 1}, {"axis": (0, 1), "keepdims": True}],
        "nanmedian": [{}, {"axis": 1}],
        "unique": [{}, {"return_index": True, "return_inverse": True, "return_counts": True}, {"axis": 0}],
        "unique_all": [{}],
        "diff": [{}, {"n": 2, "axis": 0}, {"prepend": 0.0, "append": MATRIX[:, :2]}],
        "ediff1d": [{}, {"to_begin": 1.0, "to_end": [2.0, 3.0]}],
        "gradient": [{}, {"axis": 1}, {"edge_order": 2, "axis": (0, 1)}],
        "trapezoid": [{}, {"dx": 0.5, "axis": 0}, {"x": [0.0, 1.0, 1.5, 4.0]}],
        "histogram": [{}, {"bins": 4, "range": (0.0, 3.0), "density": True}],
        "histogram_bin_edges": [{}],
    }.items()
    for keywords in options
]
WITHOUT_GRADIENT = ("argsort", "unique", "unique_all", "histogram", "histogram_bin_edges")
METHODS = (
    "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull",
    "linear", "median_unbiased", "normal_unbiased", "lower", "higher", "midpoint", "nearest",
)  # fmt: skip


@pytest.mark.parametrize(("name", "keywords"), NUMPY)
def test_numpy_functions(name: str, keywords: dict[str, Any]) -> None:
    values = HOLED if name.startswith("nan") else MATRIX
    function = getattr(np, name)
    equal(function(tape.tensor(values), **keywords), function(values, **keywords))
    if name not in WITHOUT_GRADIENT:
        assert tape.autograd.gradcheck(lambda x: function(x, **keywords), tape.tensor(MATRIX, requires_grad=True))


@pytest.mark.parametrize("method", METHODS)
def test_quantiles_of_every_method(method: str) -> None:
    q = [0.0, 0.1, 0.25, 0.37, 0.5, 1.0]
    for axis, keep in ((None, False), (0, True), (1, False), ((0, 1), True)):
        options: Any = {"axis": axis, "keepdims": keep, "method": method}
        equal(np.quantile(tape.tensor(MATRIX), q, **options), np.quantile(MATRIX, q, **options))
        equal(np.nanquantile(tape.tensor(HOLED), q, **options), np.nanquantile(HOLED, q, **options))
    equal(np.percentile(tape.tensor(MATRIX), 30, method=method), np.percentile(MATRIX, 30, method=method))
    equal(np.nanpercentile(tape.tensor(HOLED), 30, method=method), np.nanpercentile(HOLED, 30, method=method))
    assert tape.autograd.gradcheck(lambda x: np.quantile(x, 0.37, axis=1, method=method),
                                   tape.tensor(MATRIX, requires_grad=True))  # fmt: skip


def test_quantiles_have_a_slope_where_they_lie_between_elements() -> None:
    x, q = tape.tensor(MATRIX, requires_grad=True), tape.tensor([0.13, 0.55], requires_grad=True)
    holed = tape.tensor(HOLED)
    assert tape.autograd.gradcheck(lambda x, q: tape.quantile(x, q, 1), (x, q))
    assert tape.autograd.gradgradcheck(lambda x, q: tape.quantile(x, q * q), (x, q))
    assert tape.autograd.gradcheck(lambda q: tape.nanquantile(holed, q, 1), (q,))
    assert tape.autograd.gradcheck(lambda x, q: np.percentile(x, 100 * q, axis=0), (x, q))
    equal(np.quantile(x.detach(), q, axis=1), np.quantile(MATRIX, q.tolist(), axis=1))
    single = np.quantile(x.detach().float(), q)
    single.sum().backward()
    assert single.dtype == np.quantile(MATRIX.astype(np.float32), q.detach().numpy()).dtype == np.float64
    assert q.grad.dtype == np.float64
    with pytest.raises(NotImplementedError, match=r"no gradient to q; give q.detach\(\)"):
        np.quantile(x, q, method="hazen")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.cumsum(0), lambda x: x.cumprod(1), lambda x: x.cummax(1)[0], lambda x: x.cummin(0)[0],
        lambda x: x.logcumsumexp(1), lambda x: x.sort(1, descending=True)[0], lambda x: x.topk(2, 0)[0],
        lambda x: x.kthvalue(2, 1)[0], lambda x: x.median(), lambda x: x.median(0)[0], lambda x: x.nanmedian(1)[0],
        lambda x: x.mode(0)[0], lambda x: x.quantile(0.3), lambda x: x.nanquantile(0.3, 1), lambda x: x.diff(n=2),
        lambda x: tape.gradient(x, edge_order=2), lambda x: tape.trapezoid(x, x[0].cumsum(0)),
        lambda x: tape.cumulative_trapezoid(x, dim=0), lambda x: np.gradient(x, x[0].square().cumsum(0), axis=1),
    ],
)  # fmt: skip
def test_gradients(function: Any) -> None:
    x = tape.tensor(MATRIX, requires_grad=True)
    assert tape.autograd.gradcheck(function, x)
    assert tape.autograd.gradgradcheck(function, x)


@pytest.mark.quick
def test_running_products_with_zeros_have_exact_second_derivatives() -> None:
    x = tape.tensor([2.0, 0.0, 3.0, 0.0, 4.0])
    found = tape.func.hessian(lambda x: x.cumprod(0).sum())(x).numpy()
    values = x.tolist()
    for i in range(5):
        for j in range(5):
            rest = [np.prod([v for k, v in enumerate(values[: n + 1]) if k not in (i, j)]) for n in range(max(i, j), 5)]
            assert found[i, j] == (sum(rest) if i != j else 0.0)


def test_places_are_found_again_in_replays() -> None:
    """What has no gradient of its own depends on the arguments nevertheless."""
    old, new = MATRIX, -MATRIX

    def run(x: Any) -> Any:
        values, places = x.sort(1)
        return values * places + x.argmax(1, keepdim=True) + (x > 0).any(0) + tape.searchsorted(x[0].sort()[0], x)

    program = tape.record(run, tape.tensor(old))
    for values in (new, old):
        assert program(tape.tensor(values)).tolist() == run(tape.tensor(values)).tolist()


def test_values_that_decide_shapes_leave_a_program() -> None:
    for function in (lambda x: x.detach().unique().sum(), lambda x: x.histc(3), lambda x: x.nanquantile(0.5)):
        with pytest.raises(ProgramError):
            tape.record(function, tape.tensor(MATRIX))(tape.tensor(-MATRIX))


def test_unique_and_histograms_are_those_of_numpy() -> None:
    values = np.array([3.0, 1.0, 3.0, np.nan, np.nan, 2.0])
    found = tape.unique(tape.tensor(values), return_inverse=True, return_counts=True)
    for one, other in zip(
        found, np.unique(values, return_inverse=True, return_counts=True, equal_nan=False), strict=True
    ):
        np.testing.assert_array_equal(one.numpy(), other)
    heights, edges = tape.histogram(tape.tensor(MATRIX), 5, weight=tape.tensor(MATRIX**2), density=True)
    equal((heights, edges), np.histogram(MATRIX, 5, weights=MATRIX**2, density=True))
    bins = np.array([3.0, 1.0, 0.0])
    for right in (False, True):
        equal(np.digitize(tape.tensor(MATRIX), bins, right), np.digitize(MATRIX, bins, right))
        equal(np.digitize(tape.tensor(MATRIX), bins[::-1].copy(), right), np.digitize(MATRIX, bins[::-1], right))


def test_selection_among_many_is_that_of_a_stable_sort() -> None:
    values = np.random.default_rng(0).integers(0, 50, (3, 2000)).astype(float)
    values[1, ::7] = np.nan
    x, order = tape.tensor(values), np.argsort(values, 1, stable=True)
    for k in (1, 700, 1990):
        value, place = x.kthvalue(k)
        np.testing.assert_array_equal(place.numpy(), order[:, k - 1])
        np.testing.assert_array_equal(value.numpy(), np.take_along_axis(values, order, 1)[:, k - 1])
    np.testing.assert_array_equal(x.topk(9)[0].numpy()[0], np.sort(values[0])[::-1][:9])
    assert x[0].nanmedian().item() == np.sort(values[0])[999]


SELECTIONS = {
    "sort": lambda v: v.sort()[0][-1],
    "topk": lambda v: v.topk(1)[0].sum(),
    "kthvalue": lambda v: v.kthvalue(3)[0],
    "median": lambda v: v.median(),
    "median of a row": lambda v: v.median(0)[0],
    "cummax": lambda v: v.cummax(0)[0][1],
    "quantile": lambda v: v.quantile(1.0),
    "norm": lambda v: -v.norm(float("inf")),
    "nanmax": np.nanmax,
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_what_is_not_selected_gets_nothing(name: str) -> None:
    """Not 0 times the infinite slope of a square root at 0."""

    def function(x: Any) -> Any:
        return SELECTIONS[name](x.sqrt())

    x = tape.tensor([0.0, 4.0, 9.0], requires_grad=True)
    (g,) = tape.autograd.grad(function(x), x)
    (again,) = tape.autograd.grad(function(x), x, create_graph=True)
    _, (replayed,) = tape.record(function, tape.tensor([1.0, 2.0, 3.0])).value_and_grad(x.detach())
    assert g[0].item() == again[0].item() == replayed[0].item() == 0.0
    assert g.abs().sum().item() > 0


@pytest.mark.quick
@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int8, np.int32, np.int64])
@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "cumprod", "nansum", "nanprod", "nancumsum"])
def test_sums_and_products_of_integers_have_numpys_dtypes(name: str, dtype: type) -> None:
    array = np.array([[1, 0, 2], [3, 200, 100]]).astype(dtype)
    function = getattr(np, name)
    for axis in (None, 0, 1):
        found, expected = function(tape.tensor(array), axis=axis), function(array, axis=axis)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
