"""Tensors in notebooks: a table, and their graph as a drawing where Graphviz is installed."""

from __future__ import annotations

from typing import Any

from tape.errors import GradError
from tape.foundation.lazy_names import getattr_of
from tape.foundation.printing import table
from tape.tensors.tensor import Tensor, method

# For the drawing alone: what notebooks do not show is not imported.
_late = getattr_of(__name__, {"graph": "tape.engine.graph.drawing", "installed": "tape.foundation.dot"})
_MOST = 200
"""Nodes of a graph up to which it is drawn unasked."""


@method()
def _repr_html_(x: Tensor) -> str:
    """Return what a notebook shows: shape, dtype, whether it requires grad or what computed it, and values."""
    node = x.grad_fn
    grad = ("grad_fn", node.name()) if node is not None else ("requires_grad", str(x.requires_grad))
    shape = str(tuple(x.shape))
    return table([("shape", shape), ("dtype", x.spec.dtype.name), grad], repr(x))


@method()
def _repr_svg_(x: Tensor) -> str | None:
    """Return the graph behind the tensor as a drawing; None where there is none, or a large one, or no Graphviz."""
    if x.grad_fn is None or not _late("installed")():
        return None
    try:
        few = _is_small(x.grad_fn)
        return _late("graph")(x)._repr_svg_() if few else None
    except GradError:  # a backward has freed it
        return None


def _is_small(root: Any) -> bool:
    """Whether a graph has few nodes."""
    pending, reached = [root], dict[int, Any]()
    while pending and len(reached) <= _MOST:
        node = pending.pop()
        if id(node) not in reached:
            reached[id(node)] = node
            pending += [after for after, _ in node.next_functions if after is not None]
    return len(reached) <= _MOST
