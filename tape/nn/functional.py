"""PyTorch's ``nn.functional``: one table of activations and losses; normalisation, convolution, pooling, attention.

Modules are made of these functions (tape/nn/layers.py): a function's parameters are its class's own.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from inspect import Parameter as Argument
from typing import TYPE_CHECKING, Any

import numpy as np

import tape.functions as f
from kernels.operations import OPS
from tape.errors import shorten
from tape.linalg import vector_norm
from tape.nn import windows
from tape.nn.windows import *  # noqa: F403
from tape.operations.elementwise import RUN
from tape.operations.matmul import matmul
from tape.operations.reductions import mean, sum  # noqa: A004 (PyTorch's names)
from tape.recording import foreign_calls
from tape.recording.cached_calls import cached_call
from tape.recording.creation import arange, ones, zeros
from tape.tensors import modes
from tape.tensors.dtypes import int64
from tape.tensors.grad_modes import no_grad
from tape.tensors.operands import tensor_of

if TYPE_CHECKING:
    from tape.nn.made_functions import *  # noqa: F403 (a stub of what is entered below, which .ci/stubs.py writes)

pad, sigmoid, tanh, softplus = f.pad, f.sigmoid, f.tanh, f.softplus
cosine_similarity, pairwise_distance, pdist = f.cosine_similarity, f.pairwise_distance, f.pdist
NAMES = ["sigmoid", "softplus", "tanh"]
"""Names of activations and losses."""
MODULES: dict[str, Any] = {
    "Sigmoid": sigmoid, "Tanh": tanh, "Softplus": softplus, "CosineSimilarity": cosine_similarity,
    "PairwiseDistance": pairwise_distance,
}  # fmt: skip
"""Functions that are modules, too, by the names of these; behind their operands are the arguments of a module."""


def _entered(names: str, doc: str, function: Any, run: Any, *more: Argument) -> Any:
    """Enter a function by its module's name, if it has one, and its own."""
    module, _, name = names.rpartition(" ")
    if doc:  # without, it is a function as it is, which compiled functions look at fast
        run.__signature__ = inspect.Signature([*inspect.signature(function).parameters.values(), *more])
        run.__name__ = run.__qualname__ = name
        run.__doc__, run.__module__ = f"Return {doc}.", __name__
    NAMES.append(name)
    globals()[name] = run
    if module:
        MODULES[module] = run
    return run


def _activation(names: str, doc: str, function: Callable[..., Any], *, inplace: bool = False) -> None:
    """Enter an activation; one that has ``inplace`` writes over its input, as PyTorch's does."""

    def run(input: Any, *args: Any, inplace: bool = False, **named: Any) -> Any:
        try:
            *args, inplace = args if len(args) > most else (*args, inplace)  # type: ignore[assignment]
            result = function(input, *args, **named)
            return input.copy_(result) if inplace else result
        except Exception as error:
            shorten(error)
            raise

    most = len(inspect.signature(function).parameters) - 1
    flag = Argument("inplace", Argument.POSITIONAL_OR_KEYWORD, default=False)
    _entered(names, doc, function, run if inplace else function, *[flag] * inplace)


def _loss(names: str, doc: str, function: Callable[..., Any]) -> None:
    """Enter a loss of single examples, with ``reduction``: "mean", "sum" or "none"; older arguments say the same."""

    def run(*args: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean", **named: Any) -> Any:
        try:
            return _reduced(function(*args, **named), reduction, size_average, reduce)
        except Exception as error:
            shorten(error)
            raise

    more = {"size_average": None, "reduce": None, "reduction": "mean"}
    _entered(names, doc, function, run, *[Argument(n, Argument.KEYWORD_ONLY, default=x) for n, x in more.items()])


def _reduced(values: Any, reduction: str, size_average: Any = None, reduce: Any = None, total: Any = None) -> Any:
    """Return the values, their sum, or their mean: by ``total``, where it is not by their number."""
    if size_average is not None or reduce is not None:
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
    if reduction == "mean":
        return mean(values) if total is None else sum(values) / total
    if reduction not in ("sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return sum(values) if reduction == "sum" else values


def relu(input: Any, inplace: bool = False) -> Any:
    """Return max(0, x)."""
    return input.relu_() if inplace else f.relu(input)


def _between(x: Any, low: float, high: float) -> Any:
    return f.where(x <= low, low, f.where(x >= high, high, x))


def _logsigmoid(input: Any) -> Any:
    return -f.logaddexp(-input, 0.0 * input)


def _gelu(input: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        return 0.5 * input * (1.0 + f.tanh(math.sqrt(2.0 / math.pi) * (input + 0.044715 * input**3)))
    if approximate != "none":
        raise RuntimeError("approximate argument must be either none or tanh.")
    return RUN["gelu"](input)


def _prelu(input: Any, weight: Any) -> Any:
    shape = (1, -1, *(1,) * (input.dim() - 2)) if input.dim() > 1 else (-1,)
    return f.where(input > 0, input, weight.reshape(shape) * input)


_ALPHA, _SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946  # of Klambauer et al. (2017)
_entered("ReLU relu", "", relu, relu)
_row: tuple[str, str, Any]
for _row in (
    ("ReLU6 relu6", "x between 0 and 6", lambda input: _between(input, 0.0, 6.0)),
    (
        "Hardtanh hardtanh", "x between two numbers, with no gradient at these",
        lambda input, min_val=-1.0, max_val=1.0: _between(input, min_val, max_val),
    ),
    (
        "LeakyReLU leaky_relu", "x where it is positive, else so much of it",
        lambda input, negative_slope=0.01: RUN["leaky_relu"](input, float(negative_slope)),
    ),
    (
        "ELU elu", "x where it is positive, else alpha (exp(x) - 1)",
        lambda input, alpha=1.0: RUN["elu"](input, float(alpha), 1.0),
    ),
    ("SELU selu", "the elu that keeps mean and variance", lambda input: _SCALE * RUN["elu"](input, _ALPHA, 1.0)),
    (
        "CELU celu", "x where it is positive, else alpha (exp(x / alpha) - 1)",
        lambda input, alpha=1.0: RUN["elu"](input, float(alpha), float(alpha)),
    ),
    ("SiLU silu", "x sigmoid(x)", lambda input: RUN["silu"](input)),  # noqa: PLW0108 (whose signature is *args)
    ("Mish mish", "x tanh(log(1 + exp(x)))", lambda input: input * f.tanh(-_logsigmoid(-input))),
    ("Hardsigmoid hardsigmoid", "x / 6 + 1 / 2, between 0 and 1", lambda input: _between(input, -3.0, 3.0) / 6.0 + 0.5),
    ("Hardswish hardswish", "x hardsigmoid(x)", lambda input: input * (_between(input, -3.0, 3.0) / 6.0 + 0.5)),
    ("Threshold threshold", "x above a threshold, else a value", f.threshold),
):  # fmt: skip
    _activation(*_row, inplace=True)
for _row in (
    ("GELU gelu", 'x times the normal distribution\'s area up to x; ``approximate="tanh"`` by a formula', _gelu),
    ("prelu", "x where it is positive, else a learnt part of it: one, or one for each channel (dim 1)", _prelu),
    (
        "Hardshrink hardshrink", "x beyond -lambd and lambd, else 0",
        lambda input, lambd=0.5: f.where((input >= -lambd) & (input <= lambd), 0.0, input),
    ),
    (
        "Softshrink softshrink", "x moved towards 0 by lambd, and 0 between",
        lambda input, lambd=0.5: f.where(f.abs(input) > lambd, input - lambd * f.sign(input), 0.0 * input),
    ),
    ("Tanhshrink tanhshrink", "x - tanh(x)", lambda input: input - f.tanh(input)),
    ("Softsign softsign", "x / (1 + abs(x))", lambda input: input / (1.0 + f.abs(input))),
    ("LogSigmoid logsigmoid", "log(sigmoid(x))", _logsigmoid),
    (
        "GLU glu", "the first half along a dim times the sigmoid of the second",
        lambda input, dim=-1: input.chunk(2, dim)[0] * f.sigmoid(input.chunk(2, dim)[1]),
    ),
    ("Softmax softmax", "exp(x) over its sum along a dim", lambda input, dim, dtype=None: f.softmax(input, dim, dtype)),
    ("Softmin softmin", "the softmax of -x", lambda input, dim, dtype=None: f.softmin(input, dim, dtype)),
    (
        "LogSoftmax log_softmax", "the logarithm of the softmax",
        lambda input, dim, dtype=None: f.log_softmax(input, dim, dtype),
    ),
):  # fmt: skip
    _activation(*_row)


def _by(weight: Any, values: Any) -> Any:
    return values if weight is None else values * weight


def _like(input: Any, target: Any, name: str) -> None:
    if tuple(input.shape) != tuple(target.shape):
        raise ValueError(
            f"{name}: target size ({target.shape}) must be the same as input size ({input.shape}); please ensure they "
            "have the same size"
        )


_EDGE = 1e-12


def _bce(input: Any, target: Any, weight: Any = None) -> Any:
    _like(input, target, "binary_cross_entropy")
    known = input.detach()
    edge = known * (1.0 - known) < _EDGE  # where PyTorch's derivative is (p - t) / 1e-12
    p = f.where(edge, known, input)
    logs, others = f.clamp(f.log(p), -100.0), f.clamp(f.log1p(-p), -100.0)
    rise = f.where(edge, (known - target.detach()) / _EDGE * (input - known), 0.0)
    return _by(weight, (target - 1.0) * others - target * logs + rise)


def _bce_logits(input: Any, target: Any, weight: Any = None, pos_weight: Any = None) -> Any:
    _like(input, target, "binary_cross_entropy_with_logits")
    factor = 1.0 if pos_weight is None else 1.0 + (pos_weight - 1.0) * target
    return _by(weight, (1.0 - target) * input - factor * _logsigmoid(input))


def _two_ways(target: Any, one: Any, other: Any) -> Any:
    """Return one value where a target is 1, another, where that is positive, where it is -1."""
    return f.where(target == 1, one, 0.0) + f.where(target == -1, f.clamp_min(other, 0.0), 0.0)


def _cosine(a: Any, b: Any) -> Any:
    return sum(a * b, -1) / f.sqrt((sum(a * a, -1) + 1e-12) * (sum(b * b, -1) + 1e-12))


def _triplet(anchor: Any, positive: Any, negative: Any, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6) -> Any:
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    return f.clamp_min(margin + near - far, 0.0)


for _row in (
    ("MSELoss mse_loss", "squared differences", lambda input, target: f.square(input - target)),
    ("L1Loss l1_loss", "absolute differences", lambda input, target: f.abs(input - target)),
    (
        "HuberLoss huber_loss", "half the squared differences, from delta on in a line",
        lambda input, target, delta=1.0: RUN["huber"](input, target, float(delta)),
    ),
    (
        "SmoothL1Loss smooth_l1_loss", "the Huber loss over beta",
        lambda input, target, beta=1.0: (
            RUN["huber"](input, target, float(beta)) / beta if beta else f.abs(input - target)
        ),
    ),
    ("BCELoss binary_cross_entropy", "-(t log(p) + (1 - t) log(1 - p)), logarithms from -100 on", _bce),
    ("BCEWithLogitsLoss binary_cross_entropy_with_logits", "the binary cross entropy of sigmoid(x)", _bce_logits),
    (
        "HingeEmbeddingLoss hinge_embedding_loss", "x where the target is 1, what x lacks to the margin where it is -1",
        lambda input, target, margin=1.0: _two_ways(target, input, margin - input),
    ),
    (
        "CosineEmbeddingLoss cosine_embedding_loss",
        "1 - cos where the target is 1, cos beyond the margin where it is -1",
        lambda input1, input2, target, margin=0.0: _two_ways(
            target, 1.0 - _cosine(input1, input2), _cosine(input1, input2) - margin
        ),
    ),
    (
        "MarginRankingLoss margin_ranking_loss",
        "how far the first is from being above the second by the margin (target -1: below)",
        lambda input1, input2, target, margin=0.0: f.clamp_min(margin - target * (input1 - input2), 0.0),
    ),
    ("TripletMarginLoss triplet_margin_loss", "max(0, margin + near - far), by distances", _triplet),
    ("SoftMarginLoss soft_margin_loss", "log(1 + exp(-t x))", lambda input, target: -_logsigmoid(target * input)),
):  # fmt: skip
    _loss(*_row)


def kl_div(
    input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
    log_target: bool = False,
) -> Any:  # fmt: skip
    """Return t (log(t) - x), where x are logarithms, and t too with ``log_target``; reduction "batchmean" as well."""
    values = f.exp(target) * (target - input) if log_target else f.xlogy(target, target) - target * input
    return (
        sum(values) / input.shape[0] if reduction == "batchmean" else _reduced(values, reduction, size_average, reduce)
    )


def nll_loss(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    """Return minus the elements at the classes of ``target``, of dim 1 (0 of one dim); the mean is by ``weight``.

    The class ``ignore_index`` counts for nothing. IndexError for a class that there is not.
    """
    dim = min(input.dim() - 1, 1)
    if tuple(target.shape) != (*input.shape[:dim], *input.shape[dim + 1 :]):
        raise ValueError(
            f"Expected target of shape {[*input.shape[:dim], *input.shape[dim + 1 :]]}, got {target.shape}"
        )
    total = None
    if weight is None and not _any_is(target, ignore_index):
        values = -_at_classes(input, target, dim)
    else:
        classes, factor = _counted(target, weight, ignore_index)
        values, total = -_at_classes(input, classes, dim) * factor, sum(factor)
    return _reduced(values, reduction, size_average, reduce, total)


def _any_is(target: Any, number: int) -> bool:
    recorder = modes.current().recorder
    if recorder is not None and recorder.maps:  # some example's may be
        return True
    return bool((target.detach() == number).any())


def _counted(target: Any, weight: Any, ignore_index: int) -> tuple[Any, Any]:
    """Return the classes, 0 for what is ignored, and what each target counts for."""
    keep = target != ignore_index
    classes = f.where(keep, target, 0)
    return classes, f.where(keep, 1.0 if weight is None else weight[classes], 0.0)


def _at_classes(input: Any, classes: Any, dim: int) -> Any:
    try:
        return f.gather(input, dim, classes.long().unsqueeze(dim)).squeeze(dim)
    except RuntimeError as error:
        raise IndexError(f"Target out of bounds: there are {input.shape[dim]} classes") from error


def cross_entropy(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
    reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    """Return minus the log_softmax at the classes of ``target``, or its mean by probabilities of the input's shape.

    Classes stand along dim 1 (0 of one dim). With ``label_smoothing`` so much of each target is spread over all.
    """
    dim = min(input.dim() - 1, 1)
    logs, probable = f.log_softmax(input, dim), target.is_floating_point()
    if not label_smoothing and not probable:
        return nll_loss(logs, target, weight, size_average, ignore_index, reduce, reduction)
    weighted = logs if weight is None else logs * weight.reshape(-1, *(1,) * (input.dim() - dim - 1))
    some = label_smoothing / input.shape[dim]
    if probable:
        values = -sum(weighted * (target * (1.0 - label_smoothing) + some), dim)
        return _reduced(values, reduction, size_average, reduce)
    classes, factor = _counted(target, weight, ignore_index)
    spread = f.where(target != ignore_index, -sum(weighted, dim), 0.0)
    values = spread * some - _at_classes(logs, classes, dim) * factor * (1.0 - label_smoothing)
    return _reduced(values, reduction, size_average, reduce, sum(factor))


for _module, _whole in (("KLDivLoss", kl_div), ("NLLLoss", nll_loss), ("CrossEntropyLoss", cross_entropy)):
    _entered(f"{_module} {_whole.__name__}", "", _whole, _whole)


# Layers.


def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """Return x @ weight.T + bias: ``(..., in)`` to ``(..., out)``."""
    result = matmul(input, weight.t())
    return result if bias is None else result + bias


def bilinear(input1: Any, input2: Any, weight: Any, bias: Any = None) -> Any:
    """Return x1 @ weight[k] @ x2 for each k, plus bias."""
    result = f.einsum("...i,kij,...j->...k", input1, weight, input2)
    return result if bias is None else result + bias


def embedding(input: Any, weight: Any, padding_idx: int | None = None) -> Any:
    """Return the rows of ``weight`` at these numbers; that of ``padding_idx`` gets no gradient."""
    rows = f.index_select(weight, 0, input.reshape(-1)).reshape(*input.shape, weight.shape[1])
    if padding_idx is None:
        return rows
    return f.where((input == padding_idx % weight.shape[0]).unsqueeze(-1), rows.detach(), rows)


def one_hot(tensor: Any, num_classes: int = -1) -> Any:
    """Return int64 zeros with a one at each class, along a new last dim."""
    count = int(tensor.max()) + 1 if num_classes < 0 else num_classes
    return (tensor.unsqueeze(-1) == arange(count)).to(int64)


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Return x with elements set to 0 with probability p, and the others over 1 - p, where ``training``."""
    return _dropped(input, p, training, inplace, input.shape)


def dropout1d(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """Return x with whole channels set to 0 with probability p: ``(n, c, ...)``."""
    return _dropped(input, p, training, inplace, (*input.shape[:2], *(1,) * (input.dim() - 2)))


dropout2d = dropout3d = dropout1d


def gumbel_softmax(logits: Any, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Any:
    """Return samples of Gumbel-softmax along ``dim`` (Jang et al. 2017); ``hard``: one-hot, with the soft gradient."""
    del eps  # PyTorch ignores it
    noise = zeros(tuple(logits.shape), dtype=logits.dtype).exponential_().log()
    soft = ((logits - noise) / tau).softmax(dim)
    if not hard:
        return soft
    one = zeros(tuple(logits.shape), dtype=logits.dtype).scatter(dim, soft.detach().argmax(dim, keepdim=True), 1.0)
    return one - soft.detach() + soft


def _dropped(input: Any, p: float, training: bool, inplace: bool, shape: Sequence[int]) -> Any:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or not p:
        return input
    keep = zeros(tuple(shape), dtype=input.dtype).bernoulli_(1.0 - p)
    result = input * (keep / (1.0 - p) if p < 1.0 else keep)
    return input.copy_(result) if inplace else result


_STANDARDIZE: Any = OPS["standardize"]


@cached_call()
def _standard(x: Any, dims: tuple[int, ...], eps: float) -> Any:
    """Return x less its mean over dims, over its standard deviation."""
    return foreign_calls.call(_STANDARDIZE, x, dims=dims, eps=eps)


def _scaled(x: Any, weight: Any, bias: Any, shape: Any) -> Any:
    x = x if weight is None else x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


def layer_norm(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Return x of mean 0 and variance 1 over the last dims, those of ``normalized_shape``, times weight plus bias."""
    shape = tuple(normalized_shape)
    if tuple(input.shape[-len(shape) :]) != shape:
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape "
            f"[*, {', '.join(map(str, shape))}], but got input of size{list(input.shape)}"
        )
    return _scaled(
        _standard(tensor_of(input), tuple(range(input.dim() - len(shape), input.dim())), float(eps)),
        weight,
        bias,
        shape,
    )


def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    """Return x over the root of its mean square over the last dims, times weight."""
    eps = float(np.finfo(input.dtype).eps) if eps is None else eps
    square = mean(f.square(input), tuple(range(-len(normalized_shape), 0)), keepdim=True)
    return _scaled(input * f.rsqrt(square + eps), weight, None, tuple(normalized_shape))


def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Return x of mean 0 and variance 1 in each of so many groups of channels (dim 1)."""
    if input.shape[1] % num_groups:
        raise RuntimeError(f"Expected number of channels in input to be divisible by num_groups, got {num_groups}")
    grouped = input.reshape(input.shape[0], num_groups, -1)
    result = _standard(grouped, (2,), float(eps)).reshape(input.shape)
    return _scaled(result, weight, bias, (-1, *(1,) * (input.dim() - 2)))


def instance_norm(input: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """Return x of mean 0 and variance 1 in each channel of each example."""
    return group_norm(input, input.shape[1], weight, bias, eps)


def batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Any:  # fmt: skip
    """Return x of mean 0 and variance 1 in each channel (dim 1), over the batch where ``training``, else as it ran.

    Where ``training``, running means and unbiased variances move towards those of the batch by ``momentum``.
    """
    shape = -1, *(1,) * (input.dim() - 2)
    if not training:
        result = (input - running_mean.reshape(shape)) * f.rsqrt(running_var.reshape(shape) + eps)
        return _scaled(result, weight, bias, shape)
    count = input.numel() // input.shape[1]
    if count == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.shape}")
    if running_mean is not None:
        with no_grad():
            var, middle = f.var_mean(input.detach(), (0, *range(2, input.dim())))
            running_mean.lerp_(middle, momentum)
            running_var.lerp_(var, momentum)
    if input.dim() == 2:  # noqa: PLR2004 (of vectors: no channel's elements stand side by side)
        return _scaled(_standard(input, (0,), float(eps)), weight, bias, shape)
    channels = input.transpose(0, 1).contiguous()
    result = _standard(channels.view(channels.shape[0], -1), (1,), float(eps))
    return _scaled(result, weight, bias, (-1, 1)).view(channels.shape).transpose(0, 1).contiguous()


def normalize(input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Any:
    """Return x over its norm along a dim, which counts for ``eps`` at least."""
    return input / f.clamp_min(vector_norm(input, p, dim, keepdim=True), eps)


def scaled_dot_product_attention(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None,
) -> Any:  # fmt: skip
    """Return softmax(query @ key.T * scale + mask) @ value: ``(..., length, features)``.

    ``attn_mask`` holds numbers that are added, or bools: True where a place may be looked at. ``is_causal``: at places
    before and the same. ``scale`` is 1 / sqrt(features).
    """
    return attend(query, key, value, attn_mask, dropout_p, is_causal, scale)[0]


def attend(
    query: Any, key: Any, value: Any, mask: Any, dropout_p: float, is_causal: bool, scale: float | None = None
) -> tuple[Any, Any]:
    """Return the attention, and its weights."""
    scores = matmul(query * (query.shape[-1] ** -0.5 if scale is None else scale), key.transpose(-2, -1))
    if is_causal:
        mask = f.tril(ones(*scores.shape[-2:])) > 0
    if mask is not None:
        scores = f.where(mask, scores, -math.inf) if mask.dtype == np.bool_ else scores + mask
    weights = dropout(f.softmax(scores, -1), dropout_p)
    return matmul(weights, value), weights


MODULES |= {"Dropout": dropout, "Dropout1d": dropout1d, "Dropout2d": dropout2d, "Dropout3d": dropout3d}
MODULES |= {name: getattr(windows, function) for name, function in windows.MODULES.items()}
__all__ = list(NAMES)
__all__ += windows.__all__
__all__ += [
    "batch_norm", "bilinear", "cosine_similarity", "dropout", "dropout1d", "dropout2d", "dropout3d", "embedding",
    "group_norm", "gumbel_softmax", "instance_norm", "layer_norm", "linear", "normalize", "one_hot", "pad",
    "pairwise_distance", "pdist", "rms_norm", "scaled_dot_product_attention",
]  # fmt: skip
