"""Recurrent layers and their cells; attention and the transformer's encoder."""

from __future__ import annotations

import copy
import math
from typing import Any

from tape.nn import functional, init, layers
from tape.nn.layers import Layer, LayerNorm, Linear, uninitialised
from tape.nn.modules import Module, ModuleList
from tape.operations.matmul import matmul
from tape.recording import views
from tape.recording.creation import zeros
from tape.tensors.tensor import Tensor

dropped: Any = vars(layers)["Dropout"]
__all__ = [
    "GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "MultiheadAttention", "RNNCell", "TransformerEncoder",
    "TransformerEncoderLayer",
]  # fmt: skip

# Recurrent layers: what a step does with the products of input and state, for each kind of cell.


def _plain(activation: Any) -> Any:
    return lambda x, h, _: (activation(x + h),)


def _lstm(x: Any, h: Any, state: Any) -> Any:
    i, f, g, o = (x + h).chunk(4, -1)
    c = functional.sigmoid(f) * state[1] + functional.sigmoid(i) * functional.tanh(g)
    return functional.sigmoid(o) * functional.tanh(c), c


def _gru(x: Any, h: Any, state: Any) -> Any:
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, -1), h.chunk(3, -1)
    n = functional.tanh(xn + functional.sigmoid(xr + hr) * hn)
    return (n + functional.sigmoid(xz + hz) * (state[0] - n),)


_CELLS = {
    "tanh": (1, _plain(functional.tanh)),
    "relu": (1, _plain(functional.relu)),
    "lstm": (4, _lstm),
    "gru": (3, _gru),
}


def _weights(layer: Any, end: str, size: int, factory: dict[str, Any]) -> None:
    """Set the weights of one layer of cells in one direction, and the biases if it has some."""
    rows = _CELLS[layer.kind][0] * layer.hidden_size
    shapes = {"weight_ih": (rows, size), "weight_hh": (rows, layer.hidden_size), "bias_ih": (rows,), "bias_hh": (rows,)}
    for name, shape in shapes.items():
        has = name.startswith("weight") or layer.bias
        setattr(layer, name + end, uninitialised(*shape, **factory) if has else None)


def _drawn(layer: Any) -> None:
    for x in layer.parameters():
        init.uniform_(x, -1.0 / math.sqrt(layer.hidden_size), 1.0 / math.sqrt(layer.hidden_size))


class _Recurrent(Module):
    """Layers of cells, as RNN, LSTM and GRU share them; a cell of its own is one step of one layer."""

    kind = "tanh"

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, **factory: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.input_size, self.hidden_size, self.num_layers, self.bias = input_size, hidden_size, num_layers, bias
        self.batch_first, self.dropout, self.bidirectional = batch_first, dropout, bidirectional
        self.kind = nonlinearity if self.kind in ("tanh", "relu") else self.kind
        for layer in range(num_layers):
            for end in self._ends(layer):
                _weights(self, end, hidden_size * (1 + bidirectional) if layer else input_size, factory)
        _drawn(self)

    def _ends(self, layer: int) -> tuple[str, ...]:
        return (f"_l{layer}", f"_l{layer}_reverse") if self.bidirectional else (f"_l{layer}",)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Return the outputs ``(l, n, directions * hidden)`` and last states ``(layers * directions, n, hidden)``."""
        if not isinstance(input, Tensor):
            raise TypeError(f"{type(self).__name__}: expected a tensor, got {type(input).__name__}, perhaps packed")
        alone, count = input.dim() == 2, 1 + (self.kind == "lstm")  # noqa: PLR2004 (without n)
        states = hx if isinstance(hx, (tuple, list)) else (hx,) * count
        x = input.unsqueeze(1) if alone else input.transpose(0, 1) if self.batch_first else input
        if hx is None:
            directions = self.num_layers * (1 + self.bidirectional)
            states = (zeros(directions, x.shape[1], self.hidden_size, dtype=x.dtype),) * count
        elif alone:
            states = [h.unsqueeze(1) for h in states]
        x, last = self._layers(x, states)
        if alone:
            return x.squeeze(1), tuple(h.squeeze(1) for h in last) if count > 1 else last[0].squeeze(1)
        return x.transpose(0, 1) if self.batch_first else x, last if count > 1 else last[0]

    def _layers(self, x: Any, states: Any) -> tuple[Any, tuple[Any, ...]]:
        """Return the last layer's outputs, and the last states of all."""
        ends: list[Any] = []
        for layer in range(self.num_layers):
            outputs = []
            for end in self._ends(layer):
                steps, state = self._along(x, end, tuple(h[len(ends)] for h in states))
                outputs.append(views.stack(steps))
                ends.append(state)
            x = outputs[0] if len(outputs) == 1 else views.cat(outputs, -1)
            if self.dropout and layer < self.num_layers - 1:
                x = functional.dropout(x, self.dropout, self.training)
        return x, tuple(views.stack([state[k] for state in ends]) for k in range(len(states)))

    def _along(self, x: Any, end: str, state: Any) -> tuple[list[Any], Any]:
        """Run one layer in one direction; return its outputs, in the order of the input, and its last state."""
        w_x, w_h, b_x, b_h = (getattr(self, n + end) for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        products, step, steps, w_h = functional.linear(x, w_x, b_x), _CELLS[self.kind][1], [], w_h.t()
        rows = products.unbind()
        for row in reversed(rows) if end.endswith("reverse") else rows:
            h = matmul(state[0], w_h)
            state = step(row, h if b_h is None else h + b_h, state)
            steps.append(state[0])
        return steps[::-1] if end.endswith("reverse") else steps, state

    def extra_repr(self) -> str:
        """Return the arguments, but for those that are as usual."""
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        said = [f"{name}={getattr(self, name)}" for name, x in usual.items() if getattr(self, name) != x]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *said])


class RNN(_Recurrent):
    """h = tanh(x @ w_ih.T + b_ih + h @ w_hh.T + b_hh), or relu: ``(l, n, input)``, or ``batch_first``."""


class _Gated(_Recurrent):
    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, **factory: Any,
    ) -> None:  # fmt: skip
        more = (bias, batch_first, dropout, bidirectional)
        super().__init__(input_size, hidden_size, num_layers, "", *more, **factory)


class LSTM(_Gated):
    """Long short-term memory (Hochreiter and Schmidhuber 1997), gates in the order i, f, g, o; states are (h, c)."""

    kind = "lstm"


class GRU(_Gated):
    """Gated recurrent units (Cho et al. 2014), gates in the order r, z, n."""

    kind = "gru"


class _Cell(Layer):
    kind, shows = "tanh", "{input_size}, {hidden_size}"
    weight_ih: Any
    weight_hh: Any
    bias_ih: Any
    bias_hh: Any

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "", **factory: Any
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        self.kind = nonlinearity or self.kind
        _weights(self, "", input_size, factory)
        _drawn(self)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Return the next state, of an LSTM the next two."""
        if hx is None:
            hx = zeros(*input.shape[:-1], self.hidden_size, dtype=input.dtype)
            hx = (hx, hx)
        state = hx if isinstance(hx, (tuple, list)) else (hx,)
        products = functional.linear(input, self.weight_ih, self.bias_ih)
        result = _CELLS[self.kind][1](products, functional.linear(state[0], self.weight_hh, self.bias_hh), state)
        return result if self.kind == "lstm" else result[0]


class RNNCell(_Cell):
    """One step of an ``RNN``."""


class LSTMCell(_Cell):
    """One step of an ``LSTM``."""

    kind = "lstm"


class GRUCell(_Cell):
    """One step of a ``GRU``."""

    kind = "gru"


# Attention.


class MultiheadAttention(Module):
    """Attention by several heads (Vaswani et al. 2017): ``(l, n, embed_dim)``, or ``batch_first``."""

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, batch_first: bool = False,
        **factory: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        if embed_dim % num_heads:
            raise AssertionError("embed_dim must be divisible by num_heads")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.in_proj_weight = uninitialised(3 * embed_dim, embed_dim, **factory)
        self.in_proj_bias = init.zeros_(uninitialised(3 * embed_dim, **factory)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, **factory)
        init.xavier_uniform_(self.in_proj_weight)
        if bias:
            init.zeros_(self.out_proj.bias)

    def forward(
        self, query: Any, key: Any, value: Any, key_padding_mask: Any = None, need_weights: bool = True,
        attn_mask: Any = None, average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Return the attention and its weights, the mean of all heads, or None without ``need_weights``.

        Masks of bools are True where a place is left out, others are added: ``key_padding_mask`` ``(n, s)``,
        ``attn_mask`` ``(l, s)`` or ``(n * heads, l, s)``, of which ``is_causal`` is a hint.
        """
        if query.dim() == 2:  # noqa: PLR2004 (without n)
            at = 0 if self.batch_first else 1
            padding = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
            operands = [x.unsqueeze(at) for x in (query, key, value)]
            result, weights = self.forward(
                operands[0], operands[1], operands[2], padding, need_weights, attn_mask, average_attn_weights, is_causal
            )
            return result.squeeze(at), None if weights is None else weights.squeeze(0)
        if is_causal and attn_mask is None:
            raise RuntimeError("Need attn_mask if specifying the is_causal hint.")
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        rows = zip((query, key, value), self.in_proj_weight.chunk(3), biases, strict=True)
        order = (0, 2, 1, 3) if self.batch_first else (1, 2, 0, 3)
        heads = [functional.linear(*row).reshape(*row[0].shape[:2], self.num_heads, -1).permute(order) for row in rows]
        mask = self._mask(heads[0], attn_mask, key_padding_mask)
        dropout = self.dropout if self.training else 0.0
        result, weights = functional.attend(heads[0], heads[1], heads[2], mask, dropout, False)
        joined = result.permute((0, 2, 1, 3) if self.batch_first else (2, 0, 1, 3))
        result = self.out_proj(joined.reshape(*joined.shape[:2], self.embed_dim))
        if not need_weights:
            return result, None
        return result, weights.mean(1) if average_attn_weights else weights

    def _mask(self, query: Any, attn_mask: Any, padding: Any) -> Any:
        n, length = query.shape[0], query.shape[2]
        total = None
        if attn_mask is not None:
            total = _added_mask(attn_mask, query)
            total = total.reshape(n, self.num_heads, length, -1) if total.dim() == 3 else total  # noqa: PLR2004
        if padding is not None:
            more = _added_mask(padding, query).reshape(n, 1, 1, -1)
            total = more if total is None else total + more
        return total


def _added_mask(mask: Any, like: Any) -> Any:
    if mask.is_floating_point():
        return mask
    return zeros(*mask.shape, dtype=like.dtype).masked_fill(mask, -math.inf)


class TransformerEncoderLayer(Module):
    """Attention and two linear layers, each with a residual and a ``LayerNorm`` (Vaswani et al. 2017)."""

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: Any = "relu",
        layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, bias: bool = True,
        **factory: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first, **factory)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **factory)
        self.dropout = dropped(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **factory)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **factory)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **factory)
        self.dropout1, self.dropout2 = dropped(dropout), dropped(dropout)
        self.activation = getattr(functional, activation) if isinstance(activation, str) else activation

    def forward(self, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False) -> Any:
        """Return ``(l, n, d_model)``, as the input."""

        def attention(x: Any) -> Any:
            result = self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, is_causal=is_causal)
            return self.dropout1(result[0])

        def feedforward(x: Any) -> Any:
            return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))

        if self.norm_first:
            src = src + attention(self.norm1(src))
            return src + feedforward(self.norm2(src))
        src = self.norm1(src + attention(src))
        return self.norm2(src + feedforward(src))


class TransformerEncoder(Module):
    """Copies of a layer, one after the other."""

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None, **_: Any) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool | None = None
    ) -> Any:
        """Return what the last layer returns, normalised if there is a ``norm``."""
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal=bool(is_causal))
        return src if self.norm is None else self.norm(src)
