"""PyTorch's ``torch.autograd.functional``: derivatives of a function of tensors at given inputs.

``inputs`` and ``v`` are a tensor or a tuple of tensors; results come as the inputs, or the outputs, do. With
``create_graph`` they can be differentiated again. With ``strict`` an input that an output does not depend on raises
RuntimeError; without, its derivative is zero. Jacobians and Hessians are computed by one batched sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tape.errors import shorten
from tape.recording import record as recording
from tape.tensors import grad_modes
from tape.tensors.tensor import Tensor
from tape.transforms import points
from tape.transforms.points import filled_with, fresh_input, pulled, pushed, settle, zeros_for

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

_STRICT = "This is not allowed in strict mode"
_OUTPUT = (
    "Output {} of the user-provided function does not require gradients. The outputs must be computed in a "
    "differentiable manner from the input when running in strict mode."
)
_LINEAR = (
    "While computing the hessian, found that the jacobian of the user-provided function with respect to input {} is "
    f"independent of the input. {_STRICT}. You should ensure that your function is twice differentiable and that the "
    "jacobian depends on the inputs (this would be violated by a linear function for example)."
)
_TRICK = (
    "The gradient with respect to the input is independent of entry {} in the grad_outputs when using the double "
    f"backward trick to compute forward mode gradients. {_STRICT}."
)
_OUTPUTS = "outputs of the user-provided function"


class _Point:
    def __init__(self, api: str, func: Callable[..., Any], inputs: Any, *, create: bool, strict: bool) -> None:
        self.api, self.create, self.strict = api, create, strict
        self.several_in, tensors = _tensors(inputs, "inputs", api)
        with grad_modes.enable_grad():
            self.inputs = inputs = [fresh_input(x, linked=create) for x in tensors]
            try:
                self.several_out, self.outputs = _tensors(func(*inputs), _OUTPUTS, api)
            except Exception as error:
                shorten(error)
                raise
        for i, y in enumerate(self.outputs):
            if strict and y._slot is None:
                raise RuntimeError(_OUTPUT.format(i))

    def vector(self, v: Any, like: Sequence[Tensor], *, several: bool, missing: str) -> list[Tensor]:
        """Check a vector, or make one of a single 1; return it in the dtypes of what it goes with."""
        if v is None:
            if len(like) != 1 or like[0].spec.size != 1:
                raise RuntimeError(f"The vector v can only be None if {missing} a single Tensor with a single element.")
            return [filled_with(1.0, like[0])]
        _, tensors = _tensors(v, "v", self.api)
        if len(tensors) != len(like):
            raise RuntimeError(
                f"v is a tuple of invalid length: should be {len(like)} but got {len(tensors)}."
                if several
                else "The given v should contain a single Tensor."
            )
        for i, (w, x) in enumerate(zip(tensors, like, strict=True)):
            if w.spec.shape != x.spec.shape:
                raise RuntimeError(
                    f"{f'Entry {i} in ' if several else ''}v has invalid size: should be {recording.size_of(x)} "
                    f"but got {recording.size_of(w)}."
                )
        cast = [
            w if w.spec.dtype == x.spec.dtype else recording.to_dtype(w, x.spec.dtype)
            for w, x in zip(tensors, like, strict=True)
        ]
        return cast if self.create else [w.detach() for w in cast]

    def of_inputs(self, v: Any) -> list[Tensor]:
        """Check a vector that goes with the inputs."""
        missing = "the input to the user-provided function is"
        return self.vector(v, self.inputs, several=self.several_in, missing=missing)

    def gradient(self) -> list[Tensor]:
        """Return the recorded gradient of the only output, which has one element."""
        if self.several_out:
            raise RuntimeError(f"The function given to {self.api} should return a single Tensor")
        if self.outputs[0].spec.size != 1:
            raise RuntimeError(
                f"The Tensor returned by the function given to {self.api} should contain a single element"
            )
        with grad_modes.enable_grad():
            gradients = pulled(self.outputs, self.inputs, [filled_with(1.0, self.outputs[0])], create=True)
        for i, g in enumerate(gradients):
            if self.strict and (g is None or g._slot is None):
                linear = g is not None or self.api == "hessian"
                raise RuntimeError(_LINEAR.format(i) if linear else _independent("The output", i))
        return zeros_for(gradients, self.inputs)

    def checked(
        self, derivatives: Sequence[Tensor | None], like: Sequence[Tensor], derivative: str, missing: str = ""
    ) -> list[Tensor]:
        """Return derivatives, zeros for None; in strict mode raise instead, and where they cannot be derived again."""
        for i, d in enumerate(derivatives):
            if self.strict and d is None:
                raise RuntimeError(missing.format(i) or _independent(derivative, i))
            if self.strict and self.create and d is not None and d._slot is None:
                raise RuntimeError(
                    f"{derivative} of the user-provided function is independent of input {i}. {_STRICT} "
                    "when create_graph=True."
                )
        return self.finished(zeros_for(list(derivatives), like))

    def finished(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return results, without history unless it was asked for."""
        return list(tensors) if self.create else [x.detach() if x._slot is not None else x for x in tensors]

    def value(self) -> Any:
        """Return what the function returned, when all else is done."""
        settle(self.inputs)
        return _packed(self.finished(self.outputs), several=self.several_out)


def _independent(subject: str, i: Any) -> str:
    return f"{subject} of the user-provided function is independent of input {i}. {_STRICT}."


def _tensors(value: Any, argument: str, api: str) -> tuple[bool, tuple[Tensor, ...]]:
    several = isinstance(value, tuple)
    tensors = value if several else (value,)
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            where = f"value at index {i}" if several else f"given {argument}"
            raise TypeError(
                f"The {argument} given to {api} must be either a Tensor or a tuple of Tensors but the {where} has type "
                f"{type(x)}."
            )
    return several, tensors


def _packed(results: Sequence[Any], *, several: bool) -> Any:
    return tuple(results) if several else results[0]


def vjp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return the outputs and the gradient of their sum weighted by ``v``, of the outputs' shapes.

    ``v`` may be left out for a single output of one element.
    """
    point = _Point("vjp", func, inputs, create=create_graph, strict=strict)
    weights = point.vector(v, point.outputs, several=point.several_out, missing="the user-provided function returns")
    cotangents = pulled(point.outputs, point.inputs, weights, create=create_graph)
    missing = _independent("The output", "{}")
    gradients = point.checked(cotangents, point.inputs, "The jacobian", missing)
    return point.value(), _packed(gradients, several=point.several_in)


def jvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return the outputs and their derivatives in the direction ``v``, of the inputs' shapes, by a forward sweep.

    ``v`` may be left out for a single input of one element.
    """
    point = _Point("jvp", func, inputs, create=create_graph, strict=strict)
    tangents = point.of_inputs(v)
    if strict:
        weights = [filled_with(1.0, y) for y in point.outputs]
        for i, g in enumerate(pulled(point.outputs, point.inputs, weights, create=False, retain=True)):
            if g is None:
                raise RuntimeError(_independent("The output", i))
    tangents_out = pushed(point.outputs, point.inputs, tangents, create=create_graph)
    derivatives = point.checked(tangents_out, point.outputs, "The jacobian", _TRICK)
    return point.value(), _packed(derivatives, several=point.several_out)


def vhp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return the output, of one element, and ``v`` times its Hessian: a backward through the gradient."""
    point = _Point("vhp", func, inputs, create=create_graph, strict=strict)
    weights = point.of_inputs(v)
    gradient = point.gradient()
    rows = pulled(gradient, point.inputs, weights, create=create_graph)
    products = point.checked(rows, point.inputs, "The hessian" if create_graph else "The jacobian")
    return point.value(), _packed(products, several=point.several_in)


def hvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Return the output, of one element, and its Hessian times ``v``: a forward sweep through the gradient."""
    point = _Point("hvp", func, inputs, create=create_graph, strict=strict)
    tangents = point.of_inputs(v)
    gradient = point.gradient()
    columns = pushed(gradient, point.inputs, tangents, create=create_graph)
    products = point.checked(columns, point.inputs, "The hessian")
    return point.value(), _packed(products, several=point.several_in)


def jacobian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """Return the Jacobian: for an output of shape s and an input of shape t a tensor of shape (*s, *t).

    For a tuple of outputs, of inputs, or both, it is a tuple, or a tuple of tuples ``[output][input]``. ``vectorize``
    changes nothing: one batched sweep does it all, but for ``create_graph``, which takes a backward for each row.
    ``strategy`` "forward-mode" sweeps forward, a tangent for each element of the inputs.
    """
    del vectorize
    forward = _forward(strategy)
    point = _Point("jacobian", func, inputs, create=create_graph, strict=strict)
    return _jacobian(point, point.outputs, forward=forward, several=(point.several_out, point.several_in))


def hessian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """Return the Hessian of a function of one element: the Jacobian of its gradient, which is recorded.

    For inputs of shapes s and t there is a tensor of shape (*s, *t); for a tuple of inputs a tuple of tuples.
    """
    del vectorize
    forward = _forward(outer_jacobian_strategy)
    point = _Point("hessian", func, inputs, create=create_graph, strict=strict)
    return _jacobian(point, point.gradient(), forward=forward, several=(point.several_in, point.several_in))


def _forward(strategy: str) -> bool:
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more outputs '
            'than inputs, "forward-mode" tends to be more performant. Otherwise, prefer to use "reverse-mode".'
        )
    return strategy == "forward-mode"


def _jacobian(point: _Point, outputs: Sequence[Tensor], *, forward: bool, several: tuple[bool, bool]) -> Any:
    inputs, create = point.inputs, point.create
    for i, y in enumerate(outputs if point.strict else ()):
        for j, g in enumerate(pulled([y], inputs, [filled_with(1.0, y)], create=False, retain=True)):
            if g is None:
                raise RuntimeError(_independent(f"Output {i}", j))
    blocks = (points.by_columns if forward else points.by_rows)(outputs, inputs, create=create)
    for row in blocks if point.strict and create else ():
        for j, block in enumerate(row):
            if block is None or block._slot is None:
                raise RuntimeError(_independent("The jacobian", j)[:-1] + " when create_graph=True.")
    full = [point.finished(row) for row in points.filled(blocks, outputs, inputs, like_output=forward)]
    settle(inputs)
    return _packed([_packed(row, several=several[1]) for row in full], several=several[0])
