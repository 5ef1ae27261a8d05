"""Kernels of convolutions and pooling give what the passes over arrays give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tape
from kernels.kinds.routine import computed
from kernels.operations import OPS, convolutions

pytestmark = pytest.mark.quick
pairs = st.tuples(st.integers(1, 3), st.integers(1, 3))


@st.composite
def images(draw: st.DrawFn) -> tuple[Any, dict[str, Any]]:
    """Return images, and how windows of some size are taken."""
    shape = draw(st.tuples(st.integers(1, 2), st.integers(1, 3), st.integers(3, 8), st.integers(3, 8)))
    kernel, stride, dilation = draw(pairs), draw(pairs), draw(pairs)
    padding = draw(st.tuples(st.integers(0, kernel[0] // 2), st.integers(0, kernel[1] // 2)))
    sizes = map(convolutions.conv_size, shape[2:], kernel, stride, padding, dilation)
    assume(min(sizes) > 0)
    x = np.random.default_rng(draw(st.integers(0, 99))).integers(-3, 3, shape).astype(draw(st.sampled_from("fd")))
    return x, {"kernel": kernel, "how": (stride, padding, dilation, 1)}


@given(images())
def test_convolutions(case: tuple[Any, dict[str, Any]]) -> None:
    x, params = case
    how = params["how"]
    w = np.random.default_rng(1).normal(size=(2, x.shape[1], *params["kernel"])).astype(x.dtype)
    found = []
    for native in (True, False):
        with pytest.MonkeyPatch.context() as patched:
            if not native:
                patched.setattr(convolutions, "_moved", lambda *_, **__: False)
            y = convolutions.conv(x, w, how=how)
            back = convolutions.conv_transpose(y, w, size=x.shape[2:], how=how)
            found.append((y, back, convolutions.conv_weight(x, y, kernel=params["kernel"], how=how)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4 if x.dtype == np.float32 else 1e-12, atol=1e-4)


@given(images(), st.tuples(st.integers(0, 1), st.integers(0, 1)), st.booleans())
def test_maxima(case: tuple[Any, dict[str, Any]], more: tuple[int, int], absent: bool) -> None:
    x, params = case
    if absent:
        x.reshape(-1)[:: x.size // 3 + 1] = np.nan
    op: Any = OPS["max_pool"]
    expected = op.forward(x, **params, more=more)
    assume(not np.isneginf(expected[0]).any())  # windows in the padding alone
    found = computed(op, [x], {**params, "more": more})
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])
    leaf = tape.tensor(x, requires_grad=True)
    g = np.random.default_rng(2).normal(size=found[0].shape).astype(x.dtype)
    kernel, (stride, padding, dilation, _) = params["kernel"], params["how"]
    if more == (0, 0):
        tape.nn.functional.max_pool2d(leaf, kernel, stride, padding, dilation).backward(tape.tensor(g))
        assert leaf.grad is not None
        wanted = convolutions._max_pool_vjp(g, x, expected[1], kernel, params["how"])
        np.testing.assert_allclose(leaf.grad.numpy(), wanted, rtol=1e-6, atol=1e-6)
