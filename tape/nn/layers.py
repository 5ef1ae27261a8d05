"""Layers under PyTorch's names: those that are one function, and those with parameters.

Default initialisations draw PyTorch's numbers for the same seed, in tape's default dtype unless ``dtype`` is given.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tape.nn import functional, init, windows
from tape.nn.modules import Module, Parameter
from tape.recording import views
from tape.recording.creation import empty, ones, zeros
from tape.recording.creation import tensor as tensor_of
from tape.tensors.dtypes import check_device, int64
from tape.tensors.tensor import Tensor

# Modules of one function: what it takes besides its operands are their arguments, and attributes.


class _Function(Module):
    function: Callable[..., Any]
    taken: inspect.Signature
    shown: tuple[str, ...]
    trains: bool  # whether the function is told if it is in training

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        bound = self.taken.bind(*args, **kwargs)
        bound.apply_defaults()
        for name, x in bound.arguments.items():
            self.register_buffer(name, x) if isinstance(x, Tensor) else setattr(self, name, x)
        if getattr(self, "stride", 0) is None:
            self.stride: Any = getattr(self, "kernel_size")  # noqa: B009
        for name in self.shown if self.function is functional.avg_pool1d else ():
            setattr(self, name, windows.each(getattr(self, name), 1))  # as PyTorch's

    def forward(self, *operands: Any) -> Any:
        """Return what the function does."""
        named = {name: getattr(self, name) for name in self.taken.parameters}
        if self.trains:
            named["training"] = self.training
        return type(self).function(*operands, **named)

    def extra_repr(self) -> str:
        """Return the arguments that PyTorch shows."""
        names = (n for n in self.shown if n not in ("inplace", "dtype") or getattr(self, n) or "p" in self.shown)
        return ", ".join(f"{n}={getattr(self, n)!r}" for n in names)


def _flatten(input: Any, start_dim: int = 1, end_dim: int = -1) -> Any:
    return views.flatten(input, start_dim, end_dim)


def _unflatten(input: Any, dim: int, unflattened_size: Any) -> Any:
    return input.unflatten(dim, unflattened_size)


_OPERANDS = {"input", "target", "input1", "input2", "x1", "x2", "anchor", "positive", "negative"}
_UNSHOWN = {"count_include_pad", "ceil_mode"}  # of averages


def _module(name: str, function: Any) -> Any:
    """Return the class of modules of a function."""
    parameters = inspect.signature(function).parameters
    taken = [p for p in parameters.values() if p.name not in {*_OPERANDS, "training", "out"}]
    is_loss = "input" not in parameters or "target" in parameters
    shown = [p.name for p in taken if not is_loss and not (p.name in _UNSHOWN and "Avg" in name)]
    doc = (function.__doc__ or "Return the input.").replace("Return ", "A module that returns ", 1)
    parts = {"function": staticmethod(function), "taken": inspect.Signature(taken), "shown": tuple(shown)}
    parts |= {"trains": "training" in parameters, "__doc__": doc, "__module__": __name__}
    return type(name, (_Function,), parts)


_FUNCTIONS = functional.MODULES | {"Flatten": _flatten, "Unflatten": _unflatten, "Identity": lambda input: input}
globals().update({name: _module(name, function) for name, function in _FUNCTIONS.items()})


def uninitialised(*shape: int, device: Any = None, dtype: Any = None) -> Tensor:
    """Return a parameter of any numbers."""
    check_device(device)
    made: Tensor = Parameter(empty(*shape, dtype=dtype))
    return made


class Layer(Module):
    """A module that shows some of its attributes."""

    shows = ""
    if TYPE_CHECKING:

        def __call__(self, *args: Any, **kwargs: Any) -> Tensor: ...

    def extra_repr(self) -> str:
        """Return what ``shows`` says, with the attributes put in."""
        return self.shows.format_map({**vars(self), "has_bias": getattr(self, "bias", None) is not None})


class _Drawn(Layer):
    def reset_parameters(self) -> None:
        """Draw the parameters anew."""
        weight, bias = vars(self)["weight"], vars(self)["bias"]
        init.kaiming_uniform_(weight, a=math.sqrt(5.0))
        if bias is not None:
            bound = 1.0 / math.sqrt(math.prod(weight.shape[1:]))
            init.uniform_(bias, -bound, bound)


class Linear(_Drawn):
    """x @ weight.T + bias: ``(..., in_features)`` to ``(..., out_features)``."""

    shows = "in_features={in_features}, out_features={out_features}, bias={has_bias}"

    def __init__(self, in_features: int, out_features: int, bias: bool = True, **factory: Any) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = uninitialised(out_features, in_features, **factory)
        self.bias = uninitialised(out_features, **factory) if bias else None
        self.reset_parameters()

    def forward(self, input: Any) -> Any:
        """Return the product."""
        return functional.linear(input, self.weight, self.bias)


class Bilinear(Layer):
    """x1 @ weight[k] @ x2 for each k, plus bias."""

    shows = "in1_features={in1_features}, in2_features={in2_features}, out_features={out_features}, bias={has_bias}"

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, **factory: Any
    ) -> None:
        super().__init__()
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = uninitialised(out_features, in1_features, in2_features, **factory)
        self.bias = uninitialised(out_features, **factory) if bias else None
        for x in self.parameters():
            init.uniform_(x, -1.0 / math.sqrt(in1_features), 1.0 / math.sqrt(in1_features))

    def forward(self, input1: Any, input2: Any) -> Any:
        """Return the product."""
        return functional.bilinear(input1, input2, self.weight, self.bias)


class Embedding(Module):
    """Rows of a table by their numbers: ``(...)`` to ``(..., embedding_dim)``; that of ``padding_idx`` stays.

    ``sparse`` makes no difference: gradients are dense.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, *, sparse: bool = False,
        **factory: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.weight = init.normal_(uninitialised(num_embeddings, embedding_dim, **factory))
        if self.padding_idx is not None:
            self.weight.data[self.padding_idx] = 0.0

    @classmethod
    def from_pretrained(cls, embeddings: Any, freeze: bool = True, padding_idx: int | None = None) -> Embedding:
        """Return one with these rows."""
        made = cls(embeddings.shape[0], embeddings.shape[1], padding_idx)
        made.weight = Parameter(embeddings, requires_grad=not freeze)
        return made

    def forward(self, input: Any) -> Any:
        """Return the rows."""
        return functional.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        """Return the sizes."""
        more = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{more}"


class PReLU(Layer):
    """x where it is positive, else a learnt part of it."""

    shows = "num_parameters={num_parameters}"

    def __init__(self, num_parameters: int = 1, init: float = 0.25, **factory: Any) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.weight = uninitialised(num_parameters, **factory)
        self.weight.data.fill_(init)

    def forward(self, input: Any) -> Any:
        """Return the activation."""
        return vars(functional)["prelu"](input, self.weight)


# Normalisation.


class _Normal(Layer):
    """Weight and bias, ones and zeros of a shape, and what is shown."""

    def _affine(self, shape: Any, weight: bool, bias: bool, factory: dict[str, Any]) -> None:
        self.weight = init.ones_(uninitialised(*shape, **factory)) if weight else None
        self.bias = init.zeros_(uninitialised(*shape, **factory)) if bias else None


class LayerNorm(_Normal):
    """Mean 0 and variance 1 over the last dims, times weight plus bias."""

    shows = "{normalized_shape}, eps={eps}, elementwise_affine={elementwise_affine}, bias={has_bias}"

    def __init__(
        self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
        **factory: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self._affine(self.normalized_shape, elementwise_affine, elementwise_affine and bias, factory)

    def forward(self, input: Any) -> Any:
        """Return the input, normalised."""
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class GroupNorm(_Normal):
    """Mean 0 and variance 1 in each group of channels, times weight plus bias."""

    shows = "{num_groups}, {num_channels}, eps={eps}, affine={affine}, bias={has_bias}"

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, **factory: Any
    ) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self._affine((num_channels,), affine, affine, factory)

    def forward(self, input: Any) -> Any:
        """Return the input, normalised."""
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


class BatchNorm1d(_Normal):
    """Mean 0 and variance 1 in each channel: over the batch in training, which is noted, else as it was noted."""

    shows = "{num_features}, eps={eps}, momentum={momentum}, affine={affine}, bias={has_bias}"
    shows += ", track_running_stats={track_running_stats}"

    ranks: tuple[int, ...] = (2, 3)
    running_mean: Any
    running_var: Any
    num_batches_tracked: Any

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, **factory: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_features, self.eps, self.momentum, self.affine = num_features, eps, momentum, affine
        self.track_running_stats = track_running_stats
        self._affine((num_features,), affine, affine, factory)
        self.register_buffer("running_mean", zeros(num_features, **factory) if track_running_stats else None)
        self.register_buffer("running_var", ones(num_features, **factory) if track_running_stats else None)
        self.register_buffer("num_batches_tracked", tensor_of(0, dtype=int64) if track_running_stats else None)

    def forward(self, input: Any) -> Any:
        """Return the input, normalised."""
        if input.dim() not in self.ranks:
            raise ValueError(f"expected {' or '.join(f'{n}D' for n in self.ranks)} input (got {input.dim()}D input)")
        training, momentum = self.training or self.running_mean is None, self.momentum
        if self.training and self.running_mean is not None:
            self.num_batches_tracked += 1
            momentum = 1.0 / float(self.num_batches_tracked) if momentum is None else momentum
        return functional.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, training, momentum or 0.0, self.eps
        )


class BatchNorm2d(BatchNorm1d):
    """The same of images, ``(n, c, h, w)``."""

    ranks = (4,)


# Convolution.


class Conv2d(_Drawn):
    """Cross-correlation of ``(n, c, h, w)``; ``padding`` may be "same" or "valid"."""

    dims, transposed = 2, False

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros", *,
        output_padding: Any = 0, **factory: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        if in_channels % groups or out_channels % groups:
            raise ValueError("in_channels and out_channels must be divisible by groups")
        if padding_mode != "zeros":
            raise NotImplementedError(f"padding_mode={padding_mode!r}: pad by nn.functional.pad before the convolution")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        pairs = (kernel_size, stride, dilation, output_padding)
        self.kernel_size, self.stride, self.dilation, self.output_padding = (windows.each(x, self.dims) for x in pairs)
        self.padding = padding if isinstance(padding, str) else windows.each(padding, self.dims)
        channels = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        self.weight = uninitialised(channels[0], channels[1] // groups, *self.kernel_size, **factory)
        self.bias = uninitialised(out_channels, **factory) if bias else None
        self.reset_parameters()

    def forward(self, input: Any) -> Any:
        """Return the cross-correlation."""
        run = functional.conv1d if self.dims == 1 else functional.conv2d
        return run(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        """Return the arguments, but for those that are as usual."""
        said = [f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"]
        for name, usual in (("padding", 0), ("dilation", 1), ("output_padding", 0)):
            if getattr(self, name) != (usual,) * self.dims:
                said.append(f"{name}={getattr(self, name)}")
        said += [f"groups={self.groups}"] * (self.groups != 1) + ["bias=False"] * (self.bias is None)
        return ", ".join(said)


class Conv1d(Conv2d):
    """Cross-correlation of ``(n, c, l)``; ``padding`` may be "same" or "valid"."""

    dims = 1


class ConvTranspose2d(Conv2d):
    """The transpose of ``Conv2d``."""

    transposed = True

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, bias: bool = True, dilation: Any = 1, **factory: Any,
    ) -> None:  # fmt: skip
        more = {"output_padding": output_padding, **factory}
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, **more)

    def forward(self, input: Any) -> Any:
        """Return the transposed convolution."""
        return functional.conv_transpose2d(
            input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
        )


__all__ = list(_FUNCTIONS)
__all__ += [
    "BatchNorm1d", "BatchNorm2d", "Bilinear", "Conv1d", "Conv2d", "ConvTranspose2d", "Embedding",
    "GroupNorm", "LayerNorm", "Linear", "PReLU",
]  # fmt: skip
