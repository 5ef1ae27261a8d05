"""The index of a view is found again from where the view begins, its shape and its strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, basic_indices

from kernels.foundation.specs import spec_of
from kernels.native.memory import where
from kernels.programs.recording import index_of


@st.composite
def parts(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], Any]:
    """Return an array, perhaps turned or with parts left out, and a view of it by an index."""
    whole = np.zeros(draw(array_shapes(min_dims=0, max_dims=4, max_side=5)))
    whole = whole.transpose(draw(st.permutations(range(whole.ndim))))
    whole = whole[(..., *[slice(None, None, draw(st.sampled_from([1, 1, -1, 2]))) for _ in whole.shape])]
    key = draw(basic_indices(whole.shape, allow_newaxis=True, max_dims=6))
    return whole, whole[(*key, ...) if isinstance(key, tuple) and ... not in key else key]


@pytest.mark.quick
@given(parts())
def test_indices_show_what_views_show(pair: tuple[np.ndarray[Any, Any], Any]) -> None:
    whole, part = pair
    assume(isinstance(part, np.ndarray))
    offset = where(part) - where(whole) if part.size else 0
    shown = whole[(..., *index_of(spec_of(whole), spec_of(part), offset))]
    assert shown.shape == part.shape
    if part.size:
        assert where(shown) == where(part)
        assert [s for s, n in zip(shown.strides, shown.shape, strict=True) if n > 1] == [
            s for s, n in zip(part.strides, part.shape, strict=True) if n > 1
        ]


@pytest.mark.quick
def test_what_no_index_shows_is_refused() -> None:
    whole = np.zeros((4, 5))
    for part in (np.lib.stride_tricks.as_strided(whole, (4,), (48,)), np.zeros((5, 5))):
        with pytest.raises(ValueError, match="no basic index shows"):
            index_of(spec_of(whole), spec_of(part), 0)
    with pytest.raises(ValueError, match="no basic index shows"):
        index_of(spec_of(whole), spec_of(whole[:, :3]), 24)
