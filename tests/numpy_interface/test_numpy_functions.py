"""NumPy as a front end: each call gives on tensors what it gives on arrays: values, shapes, dtypes, containers.

Each line is a call; ``A`` is a matrix, ``B`` one of its shape, ``S`` square and well conditioned, ``P`` positive
definite, ``V, W`` vectors, ``N`` has nan in it, ``Z`` zeros, ``I`` integers, ``M`` booleans, ``T`` three dims.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tape
from tape.tensors.hooks import NUMPY

RNG = np.random.default_rng(5)
ARRAYS: dict[str, Any] = {
    "A": RNG.normal(size=(3, 4)),
    "B": RNG.normal(size=(3, 4)),
    "S": RNG.normal(size=(3, 3)) + 3 * np.eye(3),
    "P": np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]]),
    "V": np.array([1.0, -2.0, 3.5]),
    "W": np.array([0.5, 2.0, -1.0]),
    "X": np.array([0.0, 1.0, 2.5, 4.0]),
    "N": np.array([[1.0, np.nan, 3.0], [4.0, 5.0, np.nan]]),
    "Z": np.array([[0.0, 2.0], [-1.0, 0.0]]),
    "I": np.array([2, 0, 1]),
    "M": np.array([[True, False, True, True], [False, True, False, True], [True, True, False, False]]),
    "T": RNG.normal(size=(2, 3, 4)),
    "F": RNG.normal(size=(3, 4)).astype(np.float32),
}

CALLS = """
np.sum(A); np.sum(A, 0); np.sum(A, axis=(0, 1)); np.sum(A, axis=1, keepdims=True); np.sum(F); np.sum(I)
np.sum(A, dtype=np.float32); np.mean(A); np.mean(A, axis=0); np.mean(A, axis=-1, keepdims=True); np.mean(F, axis=1)
np.max(A); np.max(A, axis=1); np.max(A, axis=0, keepdims=True); np.min(A); np.min(A, axis=1); np.amax(A, 0)
np.amin(A); np.prod(A); np.prod(Z, axis=0); np.prod(A, axis=1, keepdims=True); np.prod(I); np.any(M)
np.any(M, axis=0); np.all(M); np.all(M, axis=1, keepdims=True); np.var(A); np.var(A, axis=0)
np.var(A, axis=1, ddof=1, keepdims=True); np.std(A); np.std(A, axis=0, ddof=1); np.std(F); np.median(A)
np.median(A, axis=0); np.median(A, axis=1, keepdims=True); np.quantile(A, 0.3); np.quantile(A, [0.2, 0.7], axis=0)
np.quantile(A, 0.5, axis=1, keepdims=True); np.quantile(A, 0.4, method="lower"); np.percentile(A, 30)
np.percentile(A, [10, 90], axis=1); np.nansum(N); np.nansum(N, axis=0); np.nanmean(N)
np.nanmean(N, axis=1, keepdims=True); np.cumsum(A); np.cumsum(A, axis=0); np.cumsum(I); np.cumprod(A, axis=1)
np.cumprod(A); np.argmax(A); np.argmax(A, axis=0); np.argmax(A, axis=1, keepdims=True); np.argmin(A)
np.argmin(A, axis=1); np.sort(A); np.sort(A, axis=0); np.sort(A, axis=None); np.argsort(A); np.argsort(A, axis=0)
np.argsort(A, kind="stable"); np.diff(V); np.diff(A, n=2); np.diff(A, axis=0); np.diff(V, prepend=0.0, append=1.0)
np.gradient(V); np.gradient(V, 0.5); np.gradient(A); np.gradient(A, axis=0); np.gradient(V, edge_order=2)
np.trapezoid(V); np.trapezoid(V, W); np.trapezoid(A, dx=0.5); np.trapezoid(A, axis=0); np.cov(A); np.cov(V, W)
np.cov(A, rowvar=False, ddof=0); np.corrcoef(A); np.corrcoef(V, W); np.count_nonzero(Z); np.count_nonzero(Z, axis=0)
np.unique(I); np.unique(Z, return_counts=True); np.unique(Z, return_inverse=True); np.histogram(A)
np.histogram(A, bins=4); np.histogram(A, bins=3, range=(-1.0, 1.0)); np.searchsorted(X, 1.5)
np.searchsorted(X, V, side="right"); np.take(A, [1, 0]); np.take(A, [1, 0], axis=1)
np.take_along_axis(A, np.argsort(A, axis=1), 1); np.concatenate([A, B]); np.concatenate((A, B), axis=1)
np.concatenate([A, B], axis=None); np.stack([A, B]); np.stack((A, B), axis=-1); np.vstack([V, W]); np.vstack([A, B])
np.hstack([V, W]); np.hstack([A, B]); np.dstack([A, B]); np.column_stack([V, W]); np.split(A, 2, axis=1)
np.split(A, [1, 3], axis=1); np.array_split(V, 2); np.hsplit(A, 2); np.vsplit(A, 3); np.reshape(A, (4, 3))
np.reshape(A, -1); np.ravel(A); np.transpose(A); np.transpose(T, (2, 0, 1)); np.swapaxes(T, 0, 2)
np.moveaxis(T, 0, -1); np.squeeze(A[None]); np.squeeze(A[None], axis=0); np.expand_dims(A, 1)
np.broadcast_to(V, (2, 3)); np.flip(A); np.flip(A, 0); np.flip(A, axis=(0, 1)); np.fliplr(A); np.flipud(A)
np.roll(V, 1); np.roll(A, 1, axis=0); np.roll(A, (1, 2), axis=(0, 1)); np.rot90(A); np.rot90(A, 2)
np.rot90(T, 1, (1, 2)); np.tile(V, 2); np.tile(A, (2, 1)); np.repeat(V, 2); np.repeat(A, 2, axis=1)
np.repeat(V, [1, 0, 2]); np.diag(V); np.diag(S); np.diag(V, k=1); np.diag(S, -1); np.diagonal(A)
np.diagonal(A, offset=1); np.diagonal(T, axis1=1, axis2=2); np.tril(A); np.tril(A, 1); np.triu(A); np.triu(A, k=-1)
np.lib.stride_tricks.sliding_window_view(V, 2)
np.pad(V, 1); np.pad(V, (1, 2), mode="edge"); np.pad(A, 1, mode="reflect"); np.pad(V, 2, mode="wrap")
np.pad(A, ((1, 0), (0, 2)), constant_values=3.0); np.pad(V, 1, mode="symmetric"); np.meshgrid(V, W)
np.meshgrid(V, W, indexing="ij"); np.where(M, A, B); np.where(M, A, 0.0); np.clip(A, -0.5, 0.5); np.clip(A, None, 0.1)
np.clip(A, B, None); np.select([A > 0, A > -1], [A, B]); np.select([A > 0], [A], default=2.0)
np.piecewise(V, [V < 0, V >= 0], [lambda x: -x, lambda x: x * x]); np.dot(A, V[[0, 1, 2, 0]]); np.dot(S, S)
np.dot(V, W); np.dot(2.0, V); np.inner(V, W); np.inner(A, B); np.outer(V, W); np.vdot(A, B); np.matmul(S, A)
np.matmul(T, T[0].T); np.tensordot(A, B); np.tensordot(S, A, axes=1); np.tensordot(T, A, axes=((1, 2), (0, 1)))
np.einsum("ij,ij->i", A, B); np.einsum("ij,jk", S, A); np.einsum("ii", S); np.einsum("bij,kj->bik", T, A)
np.kron(V, W); np.kron(S, Z); np.cross(V, W); np.trace(S); np.trace(A, offset=1); np.nan_to_num(N)
np.nan_to_num(N, nan=2.0); np.isclose(A, B); np.allclose(A, A); np.nonzero(Z); np.argwhere(Z)
np.interp(1.2, X, X * X); np.interp(V, X, X * X); np.interp(V, X, X * X, left=-1.0, right=9.0); np.convolve(X, V)
np.convolve(X, V, mode="same"); np.convolve(X, V, "valid"); np.polyval(V, X); np.polyval(V, 2.0)
np.linalg.solve(S, V); np.linalg.solve(S, A); np.linalg.inv(S); np.linalg.det(S); np.linalg.slogdet(S)
np.linalg.cholesky(P); np.linalg.qr(S); np.linalg.eigh(P); np.linalg.eigvalsh(P); np.linalg.svd(A)
np.linalg.svd(A, full_matrices=False); np.linalg.svd(A, compute_uv=False); np.linalg.pinv(A)
np.linalg.lstsq(A.T, X)[0]; np.linalg.norm(V); np.linalg.norm(A); np.linalg.norm(A, axis=1); np.linalg.norm(V, 1)
np.linalg.norm(V, np.inf); np.linalg.norm(A, "nuc"); np.linalg.norm(A, axis=0, keepdims=True); np.linalg.cond(S)
np.linalg.matrix_power(S, 3); np.linalg.matrix_power(S, -1); np.linalg.multi_dot([S, S, A])
np.linalg.tensorsolve(S, V); np.linalg.tensorinv(np.reshape(S, (3, 3)), ind=1); np.zeros_like(A); np.ones_like(F)
np.full_like(A, 2.0); np.shape(A); np.ndim(A); np.size(A); np.atleast_1d(V); np.atleast_2d(V); np.atleast_3d(V)
np.broadcast_arrays(A, V[0]); np.ptp(A); np.average(V); np.copy(A); np.add.reduce(A); np.add.reduce(A, axis=None)
np.multiply.reduce(A, axis=1); np.maximum.reduce(A, axis=0, keepdims=True); np.add.accumulate(A)
np.multiply.accumulate(V); np.maximum.accumulate(A, axis=1); np.multiply.outer(V, W); np.subtract.outer(V, A)
np.exp(A, dtype=np.float64); np.sign(N); np.round(A, 1); np.around(A); np.astype(F, np.float64); np.diagflat(V)
np.diagflat(V, 1); np.rollaxis(T, 2); np.rollaxis(T, 2, 1); np.matrix_transpose(T); np.linalg.matrix_transpose(A)
np.nanprod(N); np.nanprod(N, axis=0); np.nanmax(N); np.nanmax(N, axis=1); np.nanmin(N, axis=0, keepdims=True)
np.nancumsum(N); np.nancumsum(N, axis=1); np.nancumprod(N, axis=0); np.cumulative_sum(V)
np.cumulative_sum(A, axis=1, include_initial=True); np.cumulative_prod(V); np.ediff1d(V); np.flatnonzero(Z)
np.compress([True, False, True], A, axis=0); np.extract(M, A); np.unique_values(I); np.unique_counts(I)
np.unique_inverse(I); np.unique_all(I); np.digitize(V, X); np.digitize(V, X, right=True)
np.histogram_bin_edges(V, bins=3); np.bincount(I); np.bincount(I, minlength=5); np.bincount(I, F[:, 0])
np.linalg.vector_norm(A, axis=1); np.linalg.vector_norm(V, ord=1); np.fix(A); np.sinc(A); np.i0(A); np.isposinf(A)
np.isneginf(A); np.linalg.vecdot(V, W); np.linalg.svdvals(A); np.linalg.matrix_rank(A); np.linalg.matrix_norm(A)
np.linalg.matrix_norm(A, ord=1, keepdims=True); np.nanquantile(N, 0.4); np.nanquantile(N, [0.2, 0.8], axis=1)
np.nanpercentile(N, 40); np.nanmedian(N); np.nanmedian(N, axis=1); np.resize(V, (2, 2)); np.dsplit(T, 2)
np.unstack(A); np.unstack(A, axis=1); np.nanvar(N); np.nanvar(N, axis=1, ddof=1); np.nanstd(N, axis=0, keepdims=True)
np.append(V, W); np.append(A, B, axis=1); np.delete(V, 1); np.delete(A, [0, 2], axis=1); np.insert(V, 1, 9.0)
np.insert(A, 1, V[0], axis=0); np.block([[S, S], [S, S]]); np.choose(I, [V, W, V * W])
np.choose(I, np.stack([V, W, V * W])); np.choose(I + 2, [V, W], mode="wrap"); np.choose(I - 1, [V, 2.5], mode="clip")
np.choose(M, [A, B]); np.choose(M, [F, 2.0]); np.choose(I[0], [V, W, 1]); np.choose(M, [A, X])
np.choose(I, (1, 2, 3)); np.trim_zeros(X); np.trim_zeros(np.stack([X * 0, X]), axis=0)
np.trim_zeros(np.stack([X * 0, X])); np.trim_zeros(np.concatenate([X, X * 0]), "f")
np.trim_zeros(np.concatenate([X, X * 0]), trim="B"); np.trim_zeros(X * 0); np.trim_zeros(X, axis=())
np.trim_zeros(V[0]); np.trim_zeros(Z, axis=1); np.nanargmax(N); np.nanargmax(N, axis=0)
np.nanargmax(N, axis=1, keepdims=True); np.nanargmin(N); np.nanargmin(N, axis=1); np.nanargmin(I); np.nanargmax(A, 0)
np.pad(V, 2, mode="median"); np.pad(A, 1, "median", stat_length=2); np.pad(I, 1, mode="median")
np.pad(np.append(I, I[0]), (1, 2), mode="median"); np.pad(I, 2, mode="mean", stat_length=2)
np.pad(A, ((1, 0), (0, 2)), mode="median", stat_length=((1, 2), (3, 4))); np.pad(V, 1, mode="empty")[1:-1]
np.linspace(V[0], W[0], 5); np.linspace(V, W, num=4, endpoint=False); np.linspace(V, 1.0, 3, axis=1)
np.linspace(V, W, 1); np.linspace(V, W, 3, retstep=True); np.linspace(V[0], W[0], 0)
np.linspace(I, V, 4, dtype=np.int64); np.linspace(F[0], F[1], 3); np.logspace(V, W, 4)
np.logspace(V[0], W[0], 3, False, base=2.0, dtype=np.float32); np.logspace(V, W, 2, axis=-1); np.isin(I, [0, 2])
np.isin(A, A[0], assume_unique=True, invert=True); np.isin(1, I); np.unravel_index(I, (2, 3)); np.vander(V)
np.vander(V, 2, increasing=True); np.vander(I, N=4); np.frexp(A); np.isreal(A); np.real(A); np.angle(A)
np.angle(Z, deg=True); np.angle(I); np.gcd(I, 6); np.lcm(I, I + 2); np.polyadd(V, X); np.polyadd(V, 2.0)
np.polysub(V, X); np.polymul(V, W); np.polymul(2.0, V); np.polymul([0.0, 0.0], I); np.polymul([0, 1], V)
np.polyder(X); np.polyder(X, 2); np.polyder(X, m=0); np.polyder(I); np.polyder(V, 5); np.polyint(X); np.polyint(X, 2)
np.polyint(V, 2, k=[1.0, 2.0]); np.polyint(V, 2, k=3.0); np.polyint(I); np.polyfit(X, A.T, 2); np.polyfit(X, X * X, 2)
np.polyfit(X, A[0], 1, w=A[1] ** 2); np.polyfit(X, A.T, 1, w=A[1] ** 2); np.polyfit(I, V, 1); np.polyfit(X, A[0], 0)
np.correlate(X, V); np.correlate(V, X); np.correlate(X, V, "same"); np.correlate(V, X, "same")
np.correlate(X, V, mode="full"); np.correlate(V, X, "full"); np.correlate(X, V[:2], "same"); np.divmod(V, 2.0)
np.divmod(I, 2); np.array_equal(A, A); np.array_equal(A, V); np.array_equal(N, N, equal_nan=True)
np.array_equiv(V, np.stack([V, V])); np.zeros(1, np.result_type(F, 1.0)); np.zeros(1, np.result_type(F, A))
np.shape(np.empty_like(A)); np.empty_like(F, dtype=np.int64) * 0; np.imag(A); np.iscomplex(A); np.iscomplexobj(A)
np.isrealobj(I); np.real_if_close(V); np.intersect1d(I, [2, 3]); np.union1d(I, [5]); np.setdiff1d(I, [0])
np.unwrap(V * 3); np.unwrap(A * 5, axis=0); np.unwrap(A * 5, discont=4.0); np.unwrap(V, period=2.5); np.unwrap(I)
np.unwrap(np.stack([V[0], V[0] + np.pi, V[0] + 9])); np.apply_along_axis(np.sum, 0, A)
np.apply_along_axis(np.diff, 1, T); np.apply_along_axis(np.outer, 0, A, V[:2]); np.apply_along_axis(len, 0, A)
np.apply_along_axis(np.sort, -1, V); np.tril_indices_from(A); np.triu_indices_from(A, k=1); np.diag_indices_from(S)
np.partition(V, 1)[1]; np.argpartition(V, 1)[1]; np.partition(A, [0, -1], axis=None)[[0, -1]]; np.conj(A)
np.conjugate(I); np.fft.fftshift(A); np.fft.ifftshift(V); np.fft.fftshift(A, axes=1); np.fft.ifftshift(T, axes=(0, 2))
np.nextafter(V, W); np.vecdot(M, M); np.vecdot(I, I); np.vecdot(A, B, axis=0); np.vecdot(T, A); np.cov(V[None])
np.corrcoef(V[None]); np.reshape(A, (4, 3), copy=True); np.reshape(A, -1, copy=False); np.setxor1d(I, [0, 7])
np.intersect1d(I, [2, 1], assume_unique=True, return_indices=True)
"""


WITHOUT_GRADIENT = {"np.unique", "np.histogram", "np.histogram_bin_edges"}
WRITES = {"copyto", "put", "put_along_axis", "fill_diagonal", "place", "putmask"}
"""They change their first argument: tested below."""


def calls() -> list[str]:
    return [call.strip() for line in CALLS.strip().splitlines() for call in line.split("; ")]


def run(call: str, names: dict[str, Any]) -> Any:
    return eval(call, {"np": np, **names})  # noqa: S307 (the table above)


def compare(got: Any, expected: Any, call: str) -> None:
    if isinstance(expected, (tuple, list)):
        assert isinstance(got, (tuple, list)), call
        assert len(got) == len(expected), call
        assert getattr(got, "_fields", None) == getattr(expected, "_fields", None), call
        for a, b in zip(got, expected, strict=True):
            compare(a, b, call)
        return
    value = got.detach().numpy() if isinstance(got, tape.Tensor) else got
    assert np.shape(value) == np.shape(expected), call
    if isinstance(got, tape.Tensor):
        assert value.dtype == np.asarray(expected).dtype, call
    rtol = 1e-5 if np.asarray(expected).dtype == np.float32 else 1e-12
    np.testing.assert_allclose(value, expected, rtol=rtol, atol=rtol, err_msg=call)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("call", calls())
def test_tensors_as_arrays(call: str) -> None:
    expected = run(call, ARRAYS)
    for grad in (False, True) if call.partition("(")[0] not in WITHOUT_GRADIENT else (False,):
        tensors = {n: tape.tensor(a, requires_grad=grad and a.dtype.kind == "f") for n, a in ARRAYS.items()}
        compare(run(call, tensors), expected, call)


def test_every_function_served_is_called() -> None:
    text = CALLS.replace("np.linalg.", "linalg.")
    missing = [
        name
        for f in NUMPY
        if not isinstance(f, np.ufunc) and f.__module__.startswith("numpy")
        for name in [f"{f.__module__}.{f.__name__}".replace("numpy.", "")]
        if f"{name.split('.')[-1]}(" not in text and name not in WRITES
    ]
    assert not missing


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("np.fft.fft(V)", "np.fft.fft"),
        ("np.lexsort((V, W))", "np.lexsort"),
        ("np.add.reduceat(V, [0, 1])", "np.add.reduceat"),
        ("np.modf(V)", "np.modf"),
    ],
)
def test_what_has_no_record_says_so(call: str, name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name} has no record for tensors"):
        run(call, {n: tape.tensor(a) for n, a in ARRAYS.items()})


@pytest.mark.parametrize(
    "write",
    [
        lambda x: np.copyto(x, 2.0),
        lambda x: np.copyto(x, ARRAYS["B"], where=ARRAYS["M"]),
        lambda x: np.put(x, [0, 5], [1.0, 2.0]),
        lambda x: np.put_along_axis(x, np.argsort(ARRAYS["B"], axis=1)[:, :1], 3.0, 1),
        lambda x: np.fill_diagonal(x, 4.0),
        lambda x: np.add.at(x, ([0, 0], [1, 1]), 2.0),
        lambda x: np.subtract.at(x, (0, 1), 2.0),
        lambda x: np.place(x, ARRAYS["M"], [1.0, 2.0, 3.0]),
        lambda x: np.place(x, x < -9, []),
        lambda x: np.place(x, np.ones(12), 4),
        lambda x: np.putmask(x, ARRAYS["M"], ARRAYS["B"]),
        lambda x: np.putmask(x, ARRAYS["M"], [1.0, 2.0, 3.0, 4.0, 5.0]),
        lambda x: np.putmask(x, x < 0, np.float32(7)),
        lambda x: np.putmask(x, ARRAYS["M"], []),
    ],
)
def test_writes(write: Any) -> None:
    x, array = tape.tensor(ARRAYS["A"], requires_grad=True), ARRAYS["A"].copy()
    written = x * 1.0
    write(written)
    write(array)
    compare(written, array, "write")
    written.sum().backward()
    assert set(np.unique(x.grad.numpy())) <= {0.0, 1.0}


def test_masked_writes_have_gradients() -> None:
    mask = ARRAYS["M"]

    def placed(x: tape.Tensor, v: tape.Tensor) -> tape.Tensor:
        y = x * x
        np.place(y, mask, v)
        np.putmask(y.T[1:], mask.T[1:], v * v)
        return y

    x, v = (tape.tensor(ARRAYS[name], requires_grad=True) for name in ("A", "V"))
    assert tape.autograd.gradcheck(placed, (x, v))
    assert tape.autograd.gradcheck(lambda v, x: np.choose(ARRAYS["I"], [v, x[0, :3], v * v]), (v, x))
    assert tape.autograd.gradcheck(lambda v: np.pad(v, 2, mode="median", stat_length=2), (v,))
    assert tape.autograd.gradcheck(lambda v: np.trim_zeros(np.stack([v * 0, v])), (v,))
    y = np.choose(tape.tensor([0, 1]), [v[:2], tape.sqrt(v[:2] * 0)])
    y.sum().backward()
    assert v.grad.tolist()[0] == 1.0


def test_fits_have_gradients() -> None:
    x, y, w = (
        tape.tensor(v, requires_grad=True) for v in ([0.0, 1.0, 2.5, 4.0], [1.0, -1.0, 0.5, 2.0], [1.0, 2, 3, 1])
    )
    assert tape.autograd.gradcheck(lambda x, y, w: np.polyfit(x, y, 2, w=w), (x, y, w))
    assert tape.autograd.gradcheck(lambda x, y: np.polyval(np.polyder(np.polymul(x[1:], y)), 0.5), (x, y))
    assert tape.autograd.gradcheck(lambda x, y: np.polyadd(np.polyint(x, 2, k=y[:2]), y), (x, y))
    assert tape.autograd.gradcheck(lambda x, y: np.correlate(x, y[:3], "same"), (x, y))
    assert tape.autograd.gradcheck(lambda x: np.unwrap(x * 5), (x,))
    assert tape.autograd.gradcheck(lambda x: np.apply_along_axis(np.diff, 0, x.reshape(2, 2)), (x,))
    assert np.polymul(x.detach(), [2.0]).tolist() == [2.0, 5.0, 8.0]
    with pytest.raises(RuntimeError, match=r"cuts off the 1 zeros in front.*use np.convolve"):
        np.polymul(x, y)
    with pytest.warns(np.exceptions.RankWarning):
        np.polyfit(tape.ones(4), y, 1)


def test_masked_writes_are_refused() -> None:
    leaf, y = tape.ones(3, requires_grad=True), tape.ones(3)
    for write in (np.place, np.putmask):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            write(leaf, [True, False, True], [2.0])
        with pytest.raises(ValueError, match="mask and data must be the same size"):
            write(y, [True, False], [2.0])
        with pytest.raises(TypeError, match="no room for a gradient"):
            write(np.ones(3), [True, False, True], leaf)
        with pytest.raises(RuntimeError, match="refers to a single memory location"):
            write(tape.ones(1).expand(3), [True, False, True], [2.0])
    with pytest.raises(ValueError, match="Cannot insert from an empty array!"):
        np.place(y, [True, False, True], [])
    assert y.tolist() == [1.0, 1.0, 1.0]
    integers = tape.tensor([1, 2, 3])
    np.place(integers, integers > 1, [2.5])
    assert integers.tolist() == [1, 2, 2]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("np.choose(I, [V, W])", "invalid entry in choice array"),
        ("np.choose(I, [])", "0-length sequence"),
        ("np.choose(I, [V, W], mode='x')", "clipmode must be one of"),
        ("np.trim_zeros(V, 'x')", "unexpected character"),
        ("np.nanargmax(N * np.nan)", "All-NaN slice encountered"),
        ("np.nanargmin(V[:0])", "attempt to get argmin of an empty sequence"),
    ],
)
def test_choices_are_refused_as_numpy_does(call: str, error: str) -> None:
    for names in (ARRAYS, {n: tape.tensor(a) for n, a in ARRAYS.items()}):
        with pytest.raises(ValueError, match=error):
            run(call, names)
