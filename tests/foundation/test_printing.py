"""Printed tensors: a frozen table of PyTorch's output, and PyTorch itself where installed."""

from __future__ import annotations

from typing import Any
from unittest import mock

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tape.tensors import printing
from tape.tensors.printing import format_tensor
from tests.support.pytorch_outcomes import Outcomes, our_settings

FLOAT64 = np.dtype(np.float64)
INF, NAN = np.inf, np.nan


# What to print, and what PyTorch 2.13 prints for it but for the module's name.
FROZEN: list[tuple[Any, str, str]] = [
    (np.array(3.0), "", "tensor(3.)"),
    ([1.0, 2.0], "requires_grad=True", "tensor([1., 2.], requires_grad=True)"),
    ([2.0, 4.0], "grad_fn=<MulBackward0>", "tensor([2., 4.], grad_fn=<MulBackward0>)"),
    ([2.302585092994046], "", "tensor([2.3026])"),
    ([0.5], "", "tensor([0.5000])"),
    ([1.0, NAN, INF, -INF], "", "tensor([1., nan, inf, -inf])"),
    ([0.1, NAN, -INF], "", "tensor([0.1000,    nan,   -inf])"),
    ([0.0, 0.0], "", "tensor([0., 0.])"),
    ([-0.0], "", "tensor([-0.])"),
    ([INF, -INF, 0.0], "", "tensor([inf, -inf, 0.])"),
    ([], "", "tensor([])"),
    (np.zeros((0, 3)), "", "tensor([], size=(0, 3))"),
    (np.zeros((0, 3), np.int64), "", "tensor([], size=(0, 3), dtype=tape.int64)"),
    (np.zeros(0, bool), "", "tensor([], dtype=tape.bool)"),
    (
        np.zeros((0, 3), np.float32),
        "requires_grad=True",
        "tensor([], size=(0, 3), dtype=tape.float32, requires_grad=True)",
    ),
    ([1, -20, 300], "", "tensor([  1, -20, 300])"),
    (np.array([1, 2], np.int32), "", "tensor([1, 2], dtype=tape.int32)"),
    ([True, False], "", "tensor([ True, False])"),
    (np.array(1, bool), "", "tensor(True)"),
    (np.array(7), "", "tensor(7)"),
    (np.array(1.0), "requires_grad=True", "tensor(1., requires_grad=True)"),
    (np.array(0.25), "grad_fn=<MulBackward0>", "tensor(0.2500, grad_fn=<MulBackward0>)"),
    (np.array(1e-5), "", "tensor(1.0000e-05)"),
    (
        np.array([0.5, 1.5], np.float32),
        "requires_grad=True",
        "tensor([0.5000, 1.5000], dtype=tape.float32, requires_grad=True)",
    ),
    (
        [[1.0, 2.0], [3.0, 4.5]],
        "",
        "tensor([[1.0000, 2.0000],\n        [3.0000, 4.5000]])",
    ),
    (
        np.full((3, 3), 8.0),
        "",
        "tensor([[8., 8., 8.],\n        [8., 8., 8.],\n        [8., 8., 8.]])",
    ),
    ([0.001, 1.0], "", "tensor([0.0010, 1.0000])"),
    ([0.001, 1.0000001], "", "tensor([1.0000e-03, 1.0000e+00])"),
    ([0.0001, 0.09], "", "tensor([0.0001, 0.0900])"),
    ([0.00009, 0.0], "", "tensor([9.0000e-05, 0.0000e+00])"),
    ([1e8, 1e5], "", "tensor([100000000.,    100000.])"),
    ([1.00000001e8], "", "tensor([1.0000e+08])"),
    ([1.5e-300, 1e300, -1e5], "", "tensor([1.5000e-300, 1.0000e+300, -1.0000e+05])"),
    ([5e-324, 1.0], "", "tensor([4.9407e-324,  1.0000e+00])"),
    ([-1.0, 10.0, 999.0], "", "tensor([ -1.,  10., 999.])"),
    ([123456789.0, 1.0], "", "tensor([1.2346e+08, 1.0000e+00])"),
    (np.arange(1001), "", "tensor([   0,    1,    2,  ...,  998,  999, 1000])"),
    (
        np.arange(1001) / 8,
        "",
        "tensor([  0.0000,   0.1250,   0.2500,  ..., 124.7500, 124.8750, 125.0000])",
    ),
    (
        np.arange(12) / 7,
        "requires_grad=True",
        (
            "tensor([0.0000, 0.1429, 0.2857, 0.4286, 0.5714, 0.7143, 0.8571, 1.0000, 1.1429,\n"
            "        1.2857, 1.4286, 1.5714], requires_grad=True)"
        ),
    ),
    (
        np.arange(13) * 1000 - 0.5,
        "grad_fn=<MulBackward0>",
        (
            "tensor([-5.0000e-01,  9.9950e+02,  1.9995e+03,  2.9995e+03,  3.9995e+03,\n"
            "         4.9995e+03,  5.9995e+03,  6.9995e+03,  7.9995e+03,  8.9995e+03,\n"
            "         9.9995e+03,  1.1000e+04,  1.2000e+04], grad_fn=<MulBackward0>)"
        ),
    ),
    (
        np.array([1.5e-5, 1.0, 1.0, 1.0, 1.0], np.float32),
        "requires_grad=True",
        (
            "tensor([1.5000e-05, 1.0000e+00, 1.0000e+00, 1.0000e+00, 1.0000e+00],\n"
            "       dtype=tape.float32, requires_grad=True)"
        ),
    ),
    (
        np.arange(8).reshape(2, 2, 2),
        "",
        "tensor([[[0, 1],\n         [2, 3]],\n\n        [[4, 5],\n         [6, 7]]])",
    ),
    (
        np.arange(8.0).reshape(2, 2, 2),
        "grad_fn=<MulBackward0>",
        ("tensor([[[0., 1.],\n         [2., 3.]],\n\n        [[4., 5.],\n         [6., 7.]]], grad_fn=<MulBackward0>)"),
    ),
    (
        np.arange(1024).reshape(8, 128),
        "",
        (
            "tensor([[   0,    1,    2,  ...,  125,  126,  127],\n"
            "        [ 128,  129,  130,  ...,  253,  254,  255],\n"
            "        [ 256,  257,  258,  ...,  381,  382,  383],\n"
            "        ...,\n"
            "        [ 640,  641,  642,  ...,  765,  766,  767],\n"
            "        [ 768,  769,  770,  ...,  893,  894,  895],\n"
            "        [ 896,  897,  898,  ..., 1021, 1022, 1023]])"
        ),
    ),
    (
        np.arange(2000.0).reshape(2, 1000),
        "requires_grad=True",
        (
            "tensor([[0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 9.9700e+02, 9.9800e+02,\n"
            "         9.9900e+02],\n"
            "        [1.0000e+03, 1.0010e+03, 1.0020e+03,  ..., 1.9970e+03, 1.9980e+03,\n"
            "         1.9990e+03]], requires_grad=True)"
        ),
    ),
    (
        np.arange(27.0).reshape(1, 1, 27) - 4,
        "",
        (
            "tensor([[[-4., -3., -2., -1.,  0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9.,\n"
            "          10., 11., 12., 13., 14., 15., 16., 17., 18., 19., 20., 21., 22.]]])"
        ),
    ),
    (
        np.ones(13),
        "requires_grad=True",
        "tensor([1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1.],\n       requires_grad=True)",
    ),
    (
        np.full((1, 7), 1000.0),
        "requires_grad=True",
        "tensor([[1000., 1000., 1000., 1000., 1000., 1000., 1000.]], requires_grad=True)",
    ),
    (
        np.array([[-1.5], [22.25]], np.float32),
        "grad_fn=<MulBackward0>",
        "tensor([[-1.5000],\n        [22.2500]], dtype=tape.float32, grad_fn=<MulBackward0>)",
    ),
]


@pytest.mark.parametrize(("data", "suffix", "expected"), FROZEN)
def test_frozen(data: object, suffix: str, expected: str) -> None:
    assert format_tensor(np.array(data), suffix=suffix, default_dtype=FLOAT64) == expected


def test_other_prefix_indents_by_its_length() -> None:
    assert format_tensor(np.eye(2), suffix="", default_dtype=FLOAT64, prefix="Parameter(") == (
        "Parameter([[1., 0.],\n           [0., 1.]])"
    )


def test_default_dtype_goes_without_saying() -> None:
    value = np.ones(2, np.float32)
    assert format_tensor(value, suffix="", default_dtype=np.dtype(np.float32)) == "tensor([1., 1.])"
    assert (
        format_tensor(np.ones(2), suffix="", default_dtype=np.dtype(np.float32))
        == "tensor([1., 1.], dtype=tape.float64)"
    )


def test_summary_starts_beyond_a_thousand_elements() -> None:
    assert format_tensor(np.ones((500, 2)), suffix="", default_dtype=FLOAT64).count("1.") == 1000
    assert format_tensor(np.ones((7, 143)), suffix="", default_dtype=FLOAT64).count("1.") == 36


def test_only_the_corners_of_a_large_array_are_read() -> None:
    huge = np.broadcast_to(np.float64(0.5), (10**6, 10**6, 2))
    text = format_tensor(huge, suffix="", default_dtype=FLOAT64)
    assert text.count("0.5000") == 6 * 6 * 2
    assert text.count("...") == 1 + 6


def shown_as_torch(value: np.ndarray[Any, Any], suffix: str = "") -> str:
    """Print with PyTorch's name before the dtypes: its length decides where a long line wraps."""
    with mock.patch.object(printing, "NAMESPACE", "torch."):
        return format_tensor(value, suffix=suffix, default_dtype=FLOAT64)


@pytest.mark.parametrize(("data", "suffix", "expected"), FROZEN)
def test_frozen_table_is_pytorchs(pytorch: Outcomes, data: object, suffix: str, expected: str) -> None:
    found = pytorch(lambda torch: repr(wanted(torch.from_numpy(np.array(data)), suffix)), f"{expected} is expected")
    assert found.replace("torch.", "tape.") == expected


def wanted(tensor: Any, suffix: str) -> Any:
    if suffix:
        tensor.requires_grad_()
    return tensor * 1 if suffix.startswith("grad_fn") else tensor


DTYPES = ["float64", "float32", "float16", "int64", "int32", "uint8", "bool"]
SHAPES = [
    *[
        (),
        (1,),
        (7,),
        (31,),
        (1000,),
        (1001,),
        (2, 3),
        (1, 1),
        (3, 1, 2),
        (2, 2, 2, 2),
        (0,),
        (0, 3),
        (3, 0, 2),
    ],
    *[(7, 200), (501, 2), (4, 300, 3), (1001, 1), (9, 9, 13), (2, 1, 1001)],
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_and_dtypes(pytorch: Outcomes, shape: tuple[int, ...], dtype: str) -> None:
    value = np.array(np.random.default_rng(len(shape)).standard_normal(shape) * 3).astype(dtype)
    assert shown_as_torch(value) == pytorch(lambda torch: repr(torch.from_numpy(value)), f"{shape} {dtype}")


SPECIAL = [0.0, -0.0, INF, -INF, NAN, 1e-4, 1e8, 1e3, 5e-324, 1e300, 999.99996]
NUMBERS = st.floats(width=64) | st.integers(-200, 200).map(float) | st.sampled_from(SPECIAL)


@st.composite
def values(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Draw arrays of up to three axes in any order, any dtype, with few distinct elements."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    longest = draw(st.sampled_from([3, 12, 60]))
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=longest))
    numbers = {"f": NUMBERS, "i": st.integers(-(2**31), 2**31 - 1)}.get(dtype.kind, st.integers(0, 255))
    with np.errstate(over="ignore"):
        pool = np.array(draw(st.lists(numbers, min_size=1, max_size=8))).astype(dtype)
    filled = np.random.default_rng(draw(st.integers(0, 99))).choice(pool, shape)
    return np.array(filled).transpose(draw(st.permutations(range(len(shape)))))


@given(value=values(), wants=st.sampled_from(["", "requires_grad=True", "grad_fn=<MulBackward0>"]))
@settings(max_examples=300)
def test_any_array(value: np.ndarray[Any, Any], wants: str) -> None:
    torch = pytest.importorskip("torch", reason="compares arrays that are drawn with what PyTorch prints")
    suffix = wants if value.dtype.kind == "f" else ""
    with our_settings(torch):
        assert shown_as_torch(value, suffix) == repr(wanted(torch.tensor(value), suffix))
