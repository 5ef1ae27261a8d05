"""The named tuples that functions with several results return; they print as PyTorch's do."""

from __future__ import annotations

from typing import Any, NamedTuple

from tape.tensors.tensor import Tensor


def named(name: str, doc: str, *fields: str) -> Any:
    """Return the class of the named tuples of a function."""

    def show(self: Any) -> str:
        parts = ",\n".join(f"{field}={value!r}" for field, value in zip(fields, self, strict=True))
        return f"tape.return_types.{name}(\n{parts})"

    kind = NamedTuple(name, [(field, Tensor) for field in fields])  # type: ignore[misc]
    kind.__repr__ = show  # type: ignore[method-assign]
    kind.__doc__ = doc
    kind.__module__ = __name__
    return kind


def _pair(name: str, values: str) -> Any:
    return named(name, f"{values} of each row along a dim, and the int64 places.", "values", "indices")


max = _pair("max", "The maximum")  # noqa: A001 (PyTorch's names)
min = _pair("min", "The minimum")  # noqa: A001
sort = _pair("sort", "The elements in order")
topk = _pair("topk", "The largest or smallest elements")
kthvalue = _pair("kthvalue", "The element of a rank")
median = _pair("median", "The lower median")
nanmedian = _pair("nanmedian", "The lower median of what is not nan")
mode = _pair("mode", "The most frequent element")
cummax = _pair("cummax", "The running maximum")
cummin = _pair("cummin", "The running minimum")
aminmax = named("aminmax", "The smallest and the largest element.", "min", "max")
histogram = named("histogram", "The counts in each bin, and the edges of bins.", "hist", "bin_edges")
frexp = named("frexp", "The mantissas and the exponents of two.", "mantissa", "exponent")
