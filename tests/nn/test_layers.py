"""Layers, activations and losses beside PyTorch: results, gradients, state, initial numbers, repr."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.usefixtures("float64"),
    pytest.mark.filterwarnings("ignore:reduction. 'mean':UserWarning", "ignore:Using padding='same':UserWarning"),
]
RTOL = 1e-9
torch.set_num_threads(1)
QUICK = {"Linear", "BatchNorm2d", "Conv2d", "LSTM", "MultiheadAttention", "cross_entropy", "mse_loss", "gelu"}


def numbers(*shape: int, seed: int = 0, positive: bool = False) -> Any:
    x = np.random.default_rng(seed).normal(size=shape)
    return np.abs(x) + 0.1 if positive else x


def flat(x: Any) -> list[Any]:
    return [y for part in x for y in flat(part)] if isinstance(x, (tuple, list)) else [] if x is None else [x]


def outcome(lib: Any, run: Callable[..., Any], arrays: list[Any], parameters: list[Any]) -> list[Any]:
    """Return results, then the gradients of a weighted sum of them by operands and parameters."""
    operands = [
        lib.tensor(a, requires_grad=a.dtype.kind == "f" and a is not WEIGHTS and a is not SIGNS) for a in arrays
    ]
    results = flat(run(*operands))
    total = sum((lib.sin(y) * lib.arange(1.0, y.numel() + 1.0).reshape(y.shape)).sum() for y in results)
    total.backward()
    gradients = [x.grad for x in (*operands, *parameters) if x.requires_grad]
    return [y.detach().numpy() for y in results] + [None if g is None else g.numpy() for g in gradients]


def agree(found: list[Any], wanted: list[Any], rtol: float = RTOL) -> None:
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12)
            assert a.dtype == b.dtype


X2, X3, X4, X5 = numbers(5, 6), numbers(4, 6, 5), numbers(2, 4, 6, 8), numbers(3, 4, 9, 7)
SEQUENCE = numbers(5, 3, 6)
TOKENS = np.array([[1, 2, 0], [3, 1, 1]])
LAYERS: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "Linear": (lambda nn: nn.Linear(6, 3), [X2]),
    "Linear without bias": (lambda nn: nn.Linear(5, 3, bias=False), [X3]),
    "Bilinear": (lambda nn: nn.Bilinear(6, 4, 3), [X2, numbers(5, 4)]),
    "Embedding": (lambda nn: nn.Embedding(5, 3), [TOKENS]),
    "Embedding with padding": (lambda nn: nn.Embedding(5, 3, padding_idx=-4), [TOKENS]),
    "PReLU": (lambda nn: nn.PReLU(), [X2]),
    "PReLU of channels": (lambda nn: nn.PReLU(4), [X4]),
    "Dropout": (lambda nn: nn.Dropout(0.3), [X2]),
    "Dropout2d": (lambda nn: nn.Dropout2d(0.4), [X4]),
    "Dropout1d": (lambda nn: nn.Dropout1d(0.4), [X3]),
    "LayerNorm": (lambda nn: nn.LayerNorm(6), [X2]),
    "LayerNorm of two": (lambda nn: nn.LayerNorm((6, 5)), [X3]),
    "GroupNorm": (lambda nn: nn.GroupNorm(2, 4), [X4]),
    "BatchNorm1d": (lambda nn: nn.BatchNorm1d(6), [X2]),
    "BatchNorm1d of three": (lambda nn: nn.BatchNorm1d(6), [X3]),
    "BatchNorm1d averaged": (lambda nn: nn.BatchNorm1d(6, momentum=None), [X3]),
    "BatchNorm1d untracked": (lambda nn: nn.BatchNorm1d(6, track_running_stats=False), [X3]),
    "BatchNorm2d": (lambda nn: nn.BatchNorm2d(4), [X4]),
    "Conv2d": (lambda nn: nn.Conv2d(4, 6, 3), [X4]),
    "Conv2d strided": (lambda nn: nn.Conv2d(4, 6, (3, 2), stride=2, padding=(1, 0)), [X5]),
    "Conv2d dilated": (lambda nn: nn.Conv2d(4, 6, 2, dilation=(2, 1), groups=2, bias=False), [X4]),
    "Conv2d same": (lambda nn: nn.Conv2d(4, 2, (2, 3), padding="same"), [X4]),
    "Conv2d valid": (lambda nn: nn.Conv2d(4, 4, 3, padding="valid", groups=4), [X4]),
    "Conv2d unbatched": (lambda nn: nn.Conv2d(4, 2, 3), [X3[:, :, :4]]),
    "Conv1d": (lambda nn: nn.Conv1d(6, 4, 3, stride=2, padding=1), [X3]),
    "Conv1d unbatched": (lambda nn: nn.Conv1d(6, 4, 2), [X3[0]]),
    "ConvTranspose2d": (lambda nn: nn.ConvTranspose2d(4, 3, 3), [X4]),
    "ConvTranspose2d strided": (
        lambda nn: nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), [X4]
    ),
    "MaxPool2d": (lambda nn: nn.MaxPool2d(2), [X4]),
    "MaxPool2d overlapping": (lambda nn: nn.MaxPool2d(3, stride=2, padding=1), [X5]),
    "MaxPool2d dilated": (lambda nn: nn.MaxPool2d((2, 3), stride=(2, 1), dilation=2), [X5]),
    "MaxPool2d ceil": (lambda nn: nn.MaxPool2d(2, ceil_mode=True), [X5]),
    "MaxPool1d": (lambda nn: nn.MaxPool1d(2), [X3]),
    "AvgPool2d": (lambda nn: nn.AvgPool2d(2), [X4]),
    "AvgPool2d padded": (lambda nn: nn.AvgPool2d(3, stride=2, padding=1), [X5]),
    "AvgPool2d uncounted": (lambda nn: nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), [X4]),
    "AvgPool2d ceil": (lambda nn: nn.AvgPool2d(3, 2, 1, ceil_mode=True), [X4]),
    "AvgPool1d": (lambda nn: nn.AvgPool1d(2), [X3]),
    "AdaptiveAvgPool2d": (lambda nn: nn.AdaptiveAvgPool2d((3, None)), [X5]),
    "AdaptiveAvgPool2d of one": (lambda nn: nn.AdaptiveAvgPool2d(1), [X5]),
    "AdaptiveAvgPool1d": (lambda nn: nn.AdaptiveAvgPool1d(3), [X3]),
    "Flatten": (lambda nn: nn.Flatten(), [X4]),
    "Unflatten": (lambda nn: nn.Unflatten(1, (2, 3)), [X2]),
    "Identity": (lambda nn: nn.Identity(), [X2]),
    "RNN": (lambda nn: nn.RNN(6, 4), [SEQUENCE]),
    "RNN of relu": (lambda nn: nn.RNN(6, 4, num_layers=2, nonlinearity="relu", bias=False), [SEQUENCE]),
    "LSTM": (lambda nn: nn.LSTM(6, 4, num_layers=2, bidirectional=True), [SEQUENCE]),
    "LSTM batch_first": (lambda nn: nn.LSTM(6, 4, batch_first=True), [SEQUENCE]),
    "LSTM unbatched": (lambda nn: nn.LSTM(6, 4), [SEQUENCE[:, 0]]),
    "LSTM dropout": (lambda nn: nn.LSTM(6, 4, 2, dropout=0.5), [SEQUENCE]),
    "GRU": (lambda nn: nn.GRU(6, 4, num_layers=2, bidirectional=True, batch_first=True), [SEQUENCE]),
    "GRU with a state": (lambda nn: nn.GRU(6, 4), [SEQUENCE, numbers(1, 3, 4)]),
    "GRU unbatched": (lambda nn: nn.GRU(6, 4, batch_first=True), [SEQUENCE[0], numbers(1, 4)]),
    "RNNCell": (lambda nn: nn.RNNCell(6, 4), [X2]),
    "LSTMCell": (lambda nn: nn.LSTMCell(6, 4), [X2]),
    "GRUCell": (lambda nn: nn.GRUCell(6, 4), [X2, numbers(5, 4)]),
    "MultiheadAttention": (lambda nn: nn.MultiheadAttention(6, 2), [SEQUENCE, SEQUENCE + 1, SEQUENCE * 2]),
    "MultiheadAttention batch_first": (
        lambda nn: nn.MultiheadAttention(6, 3, dropout=0.2, batch_first=True, bias=False), [SEQUENCE] * 3
    ),
    "MultiheadAttention unbatched": (lambda nn: nn.MultiheadAttention(6, 2), [SEQUENCE[:, 0]] * 3),
    "TransformerEncoderLayer": (lambda nn: nn.TransformerEncoderLayer(6, 2, 8), [SEQUENCE]),
    "TransformerEncoderLayer norm_first": (
        lambda nn: nn.TransformerEncoderLayer(6, 2, 8, 0.0, "gelu", batch_first=True, norm_first=True), [SEQUENCE]
    ),
    "TransformerEncoder": (
        lambda nn: nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8), 2, enable_nested_tensor=False),
        [SEQUENCE],
    ),
    "Sequential": (lambda nn: nn.Sequential(nn.Linear(6, 3), nn.Tanh(), nn.Softmax(dim=1)), [X2]),
}  # fmt: skip


def cases(names: Any) -> list[Any]:
    return [pytest.param(name, marks=[pytest.mark.quick] if name in QUICK else []) for name in names]


@pytest.mark.parametrize("name", cases(LAYERS))
@pytest.mark.parametrize("training", [True, False])
def test_layers(name: str, training: bool) -> None:
    build, arrays = LAYERS[name]
    found, states, shown = [], [], []
    for lib in (tape, torch):
        lib.manual_seed(3)
        layer = build(lib.nn).train(training)
        shown.append(repr(layer))
        found.append([name for name, _ in layer.named_parameters()])
        result = outcome(lib, layer, arrays, list(layer.parameters()))
        states.append({k: v.numpy() for k, v in layer.state_dict().items()})
        found[-1] = (found[-1], result)
    assert found[0][0] == found[1][0]
    agree(found[0][1], found[1][1])
    assert list(states[0]) == list(states[1])
    agree(list(states[0].values()), list(states[1].values()))
    assert shown[0] == shown[1] or "Transformer" in name or "Multihead" in name


POSITIVE, SIGNS = numbers(5, 6, positive=True), np.where(numbers(5, 6) > 0, 1.0, -1.0)
PROBABLE = 1.0 / (1.0 + np.exp(-numbers(5, 6, seed=2)))
CLASSES, WEIGHTS = np.array([0, 3, 5, 1, 3]), numbers(6, positive=True)
EDGES = np.array([-7.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 6.0, 30.0, 1000.0, -1000.0])
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    name: (lambda fun, name=name: getattr(fun, name), [x])
    for name in (
        "relu", "relu6", "elu", "selu", "celu", "gelu", "silu", "mish", "leaky_relu", "hardtanh", "hardsigmoid",
        "hardswish", "hardshrink", "softshrink", "tanhshrink", "softsign", "logsigmoid", "softplus", "tanh", "sigmoid",
    )
    for x in (EDGES,)
} | {
    "gelu of tanh": (lambda fun: lambda x: fun.gelu(x, approximate="tanh"), [X2]),
    "celu of 2": (lambda fun: lambda x: fun.celu(x, 2.0), [X2]),
    "hardtanh of 2": (lambda fun: lambda x: fun.hardtanh(x, -2.0, 0.5), [X2]),
    "threshold": (lambda fun: lambda x: fun.threshold(x, 0.2, 3.0), [X2]),
    "glu": (lambda fun: lambda x: fun.glu(x, 1), [X2]),
    "softmax": (lambda fun: lambda x: fun.softmax(x, dim=0), [X2]),
    "log_softmax": (lambda fun: lambda x: fun.log_softmax(x, 1), [X2]),
    "softmin": (lambda fun: lambda x: fun.softmin(x, dim=1), [X2]),
    "normalize": (lambda fun: lambda x: fun.normalize(x, dim=-1), [X2]),
    "one_hot": (lambda fun: lambda x, t: x * fun.one_hot(t, 6), [X2, CLASSES]),
    "rms_norm": (lambda fun: lambda x, w: fun.rms_norm(x, (6,), w), [X2, WEIGHTS]),
    "instance_norm": (lambda fun: fun.instance_norm, [X4]),
    "pad": (lambda fun: lambda x: fun.pad(x, (1, 2), value=3.0), [X2]),
    "binary_cross_entropy weighted": (lambda fun: fun.binary_cross_entropy, [PROBABLE, PROBABLE[::-1].copy(), WEIGHTS]),
    "binary_cross_entropy_with_logits weighted": (
        lambda fun: lambda x, t, w: fun.binary_cross_entropy_with_logits(x, t, pos_weight=w), [X2, PROBABLE, WEIGHTS]
    ),
    "binary_cross_entropy at the edges": (
        lambda fun: lambda p, t: fun.binary_cross_entropy(p, t.double()),
        [np.array([0.0, 1.0, 0.0, 1.0, 1e-13, 0.3]), np.array([0, 1, 1, 0, 1, 0])],
    ),
    "bce of large logits": (
        lambda fun: fun.binary_cross_entropy_with_logits, [EDGES, np.where(EDGES > 0, 1.0, 0.0)]
    ),
    "huber_loss of 0.4": (lambda fun: lambda x, t: fun.huber_loss(x, t, delta=0.4), [X2, POSITIVE]),
    "smooth_l1_loss of 0.4": (lambda fun: lambda x, t: fun.smooth_l1_loss(x, t, beta=0.4), [X2, POSITIVE]),
    "kl_div batchmean": (lambda fun: lambda x, t: fun.kl_div(x, t, reduction="batchmean"), [X2, PROBABLE]),
    "kl_div of logs": (lambda fun: lambda x, t: fun.kl_div(x, t, log_target=True, reduction="sum"), [X2, X2 * 2]),
    "cross_entropy weighted": (lambda fun: fun.cross_entropy, [X2, CLASSES, WEIGHTS]),
    "cross_entropy ignoring": (lambda fun: lambda x, t: fun.cross_entropy(x, t, ignore_index=3), [X2, CLASSES]),
    "cross_entropy -100": (lambda fun: fun.cross_entropy, [X2, np.array([0, -100, 5, -100, 3])]),
    "cross_entropy none": (
        lambda fun: lambda x, t, w: fun.cross_entropy(x, t, w, reduction="none", ignore_index=3), [X2, CLASSES, WEIGHTS]
    ),
    "cross_entropy smoothed": (lambda fun: lambda x, t: fun.cross_entropy(x, t, label_smoothing=0.1), [X2, CLASSES]),
    "cross_entropy all": (
        lambda fun: lambda x, t, w: fun.cross_entropy(x, t, w, label_smoothing=0.1, ignore_index=3),
        [X2, CLASSES, WEIGHTS],
    ),
    "cross_entropy all summed": (
        lambda fun: lambda x, t, w: fun.cross_entropy(x, t, w, label_smoothing=0.1, reduction="sum"),
        [X2, CLASSES, WEIGHTS],
    ),
    "cross_entropy probable": (
        lambda fun: lambda x, t, w: fun.cross_entropy(x, t, w, label_smoothing=0.1), [X2, PROBABLE, WEIGHTS]
    ),
    "cross_entropy of images": (lambda fun: fun.cross_entropy, [X4, np.arange(96).reshape(2, 6, 8) % 4]),
    "cross_entropy of probable images": (lambda fun: fun.cross_entropy, [X4, np.abs(X4)]),
    "cross_entropy of one": (lambda fun: fun.cross_entropy, [X2[0], np.array(3)]),
    "nll_loss": (lambda fun: fun.nll_loss, [X2, CLASSES, WEIGHTS]),
    "nll_loss ignoring": (lambda fun: lambda x, t: fun.nll_loss(x, t, ignore_index=0, reduction="sum"), [X2, CLASSES]),
    "hinge_embedding_loss": (lambda fun: fun.hinge_embedding_loss, [X2, SIGNS]),
    "cosine_embedding_loss": (
        lambda fun: lambda a, b: fun.cosine_embedding_loss(a, b, b[:, 0].detach().sign(), 0.1), [X2, SIGNS]
    ),
    "margin_ranking_loss": (lambda fun: lambda a, b, t: fun.margin_ranking_loss(a, b, t, 0.5), [X2, POSITIVE, SIGNS]),
    "triplet_margin_loss": (lambda fun: fun.triplet_margin_loss, [X2, X2 * 2, POSITIVE]),
    "soft_margin_loss": (lambda fun: fun.soft_margin_loss, [X2, SIGNS]),
    "attention": (
        lambda fun: lambda a, b, c: fun.scaled_dot_product_attention(a, b, c, is_causal=True), [X4, X4 * 2, X4 + 1]
    ),
    "attention masked": (
        lambda fun: lambda a, m: fun.scaled_dot_product_attention(a, a, a, m > 0, scale=0.3), [X4, np.eye(6, dtype=int)]
    ),
}  # fmt: skip
for _name in ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss", "binary_cross_entropy_with_logits", "kl_div"):
    for _reduction in ("mean", "sum", "none"):
        FUNCTIONS[_name if _reduction == "mean" else f"{_name} {_reduction}"] = (
            lambda fun, n=_name, r=_reduction: lambda x, t: getattr(fun, n)(x, t, reduction=r),
            [X2, PROBABLE],
        )


@pytest.mark.parametrize("name", cases([*FUNCTIONS, "cross_entropy"]))
def test_functions(name: str) -> None:
    make, arrays = FUNCTIONS.get(name, (lambda fun: fun.cross_entropy, [X2, CLASSES]))
    found = [outcome(lib, make(lib.nn.functional), arrays, []) for lib in (tape, torch)]
    rounded = ("hardsigmoid", "binary_cross_entropy at the edges")  # PyTorch's 1 / 6 and 1e-12 are float32
    agree(*found, rtol=1e-7 if name in rounded else RTOL)


@pytest.mark.parametrize("hard", [False, True])
def test_gumbel_softmax(hard: bool) -> None:
    """Samples and gradients are PyTorch's for the same seed."""

    def run(lib: Any) -> Callable[..., Any]:
        lib.manual_seed(4)
        return lambda x: lib.nn.functional.gumbel_softmax(x, 0.7, hard, dim=0)

    agree(outcome(tape, run(tape), [X2], []), outcome(torch, run(torch), [X2], []))


def test_sequences_are_padded_and_unpadded() -> None:
    def run(lib: Any, first: bool, side: str) -> Callable[..., Any]:
        def padded(*x: Any) -> Any:
            rnn = lib.nn.utils.rnn
            y = rnn.pad_sequence(x, first, -1.5, padding_side=side)
            return y, rnn.unpad_sequence(y.clone(), lib.tensor([3, 5, 1]), first)

        return padded

    rows = [numbers(n, 2, seed=n) for n in (3, 5, 1)]
    for first, side in ((False, "right"), (True, "right"), (True, "left")):
        agree(*(outcome(lib, run(lib, first, side), rows, []) for lib in (tape, torch)))
    with pytest.raises(ValueError, match="left or right"):
        tape.nn.utils.rnn.pad_sequence([tape.ones(2)], padding_side="up")


def test_in_place_activations_write() -> None:
    for lib in (tape, torch):
        x = lib.tensor(EDGES)
        y = lib.nn.LeakyReLU(0.1, inplace=True)(x)
        assert y is x
        np.testing.assert_allclose(x.numpy(), np.where(EDGES > 0, EDGES, 0.1 * EDGES))
        assert lib.nn.functional.elu(x, 1.0, True) is x


@pytest.mark.parametrize("name", [n for n in tape.nn.init.__all__ if n not in ("calculate_gain", "constant_")])
def test_initialisations(name: str) -> None:
    found = []
    for lib in (tape, torch):
        lib.manual_seed(5)
        found.append(getattr(lib.nn.init, name)(lib.empty(6, 4)).numpy())
    np.testing.assert_allclose(*found, rtol=RTOL, atol=1e-13)


@pytest.mark.parametrize(
    "run",
    [
        lambda fun, t: fun.conv2d(t(X4), t(numbers(2, 3, 3, 3))),
        lambda fun, t: fun.conv2d(t(X4), t(numbers(2, 4, 9, 3))),
        lambda fun, t: fun.conv2d(t(X2), t(numbers(2, 4, 3, 3))),
        lambda fun, t: fun.conv1d(t(X4), t(numbers(2, 4, 3))),
        lambda fun, t: fun.conv2d(t(X4), t(numbers(2, 4, 3, 3)), padding="same", stride=2),
        lambda fun, t: fun.cross_entropy(t(X2), t(np.array([0, 1, 2, 3, 9]))),
        lambda fun, t: fun.cross_entropy(t(X2), t(np.array([0, 1]))),
        lambda fun, t: fun.binary_cross_entropy_with_logits(t(X2), t(X3)),
        lambda fun, t: fun.layer_norm(t(X2), (5,)),
        lambda fun, t: fun.max_pool2d(t(X4), 2, padding=2),
        lambda fun, t: fun.mse_loss(t(X2), t(X2), reduction="average"),
        lambda fun, t: fun.dropout(t(X2), 1.5),
        lambda fun, t: fun.gelu(t(X2), approximate="exp"),
        lambda fun, t: fun.batch_norm(t(X2[:1]), None, None, training=True),
        lambda fun, t: fun.linear(t(X2), t(X3[0])),
    ],
)
def test_errors_are_those_of_pytorch(run: Callable[..., Any]) -> None:
    kinds = []
    for lib in (tape, torch):
        with pytest.raises(Exception) as caught:  # noqa: PT011 (PyTorch's says which)
            run(lib.nn.functional, lib.tensor)
        kinds.append(caught.type)
    assert kinds[0] is kinds[1]


def test_second_derivatives_of_convolution() -> None:
    w, x = numbers(2, 2, 3, 2), numbers(2, 4, 6, 5)
    found = []
    for lib in (tape, torch):
        a, b = (lib.tensor(v, requires_grad=True) for v in (x, w))
        y = lib.nn.functional.conv2d(a, b, stride=(2, 1), padding=1, groups=2)
        g = lib.autograd.grad((y**3).sum(), [a, b], create_graph=True)
        h = lib.nn.functional.max_pool2d(g[0] ** 2, 2, 1).sum() + (g[1] ** 2).sum()
        found.append([v.numpy() for v in lib.autograd.grad(h, [a, b])])
    agree(*found)
