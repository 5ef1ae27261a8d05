"""PyTorch's ``torch.func``: functions that return derivatives of functions, of nested structures of tensors.

NumPy's arrays and numbers do as well: where no tensor is among what is differentiated by, the function gets tensors,
and arrays and floats come out, so that SciPy can call a Jacobian; but tensors where they depend on the argument of a
transform around this one, or on another argument that requires grad. Inputs are neither changed nor given ``.grad``.
Results require grad where something else than the inputs does: a tensor that the function finds in its surroundings,
or the input of another transform around this one.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tape.errors import shorten
from tape.recording import record, views
from tape.recording.to_python import numbers_of
from tape.tensors import modes
from tape.tensors.pytrees import flattened
from tape.tensors.tensor import Tensor
from tape.transforms import points, value_and_grad
from tape.transforms.points import Evaluation, as_tensor, needs_graph, pulled, pushed, settle, zeros_for
from tape.transforms.vmap import vmap

__all__ = [
    "functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "stack_module_state", "vjp", "vmap",
]  # fmt: skip

Argnums = int | tuple[int, ...]
_GRAD, _VJP, _JVP = "grad_and_value(f)(*args)", "vjp(f, *primals)", "jvp(f, primals, tangents)"


def grad_and_value(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return a function that gives the gradient of ``func`` and its value, a 0-d tensor.

    The gradient is by the argument ``argnums``, in its structure, or a tuple for a tuple of them. With ``has_aux``
    ``func`` returns a pair, and the value is one: the output and what else the function wants to hand out.
    """
    return _gradient(grad_and_value, func, argnums, has_aux)


def _gradient(transform: Any, func: Callable[..., Any], argnums: Argnums, has_aux: bool) -> Callable[..., Any]:
    compiled = value_and_grad.compiled_gradient(func, transform, argnums, has_aux)
    if compiled is not None:
        return compiled
    chosen = value_and_grad.chosen_by(argnums)
    made = value_and_grad.Differentiated(transform, func, argnums, has_aux, _check_scalar)
    form = made.form

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        try:
            value, gradients, aux = value_and_grad.differentiated(
                _GRAD, func, args, argnums, chosen, kwargs, _check_scalar, has_aux=has_aux
            )
        except Exception as error:
            shorten(error)
            raise
        return value_and_grad.arranged(form, (value, aux) if has_aux else value, gradients)

    value_and_grad.made_with(wrapper, made)
    return wrapper


def _check_scalar(y: Any) -> None:
    if not isinstance(y, Tensor):
        raise RuntimeError(f"{_GRAD}: Expected f(*args) to return a Tensor, got {type(y)}")  # noqa: TRY004
    if y._form.spec.shape:
        raise RuntimeError(
            f"{_GRAD}: Expected f(*args) to return a scalar Tensor, got tensor with {len(y.spec.shape)} dims. "
            "Maybe you wanted to use the vjp or jacrev APIs instead?"
        )


def grad(func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False) -> Callable[..., Any]:
    """Return a function that gives the gradient of ``func``, which returns a 0-d tensor; see grad_and_value.

    With ``has_aux`` it gives a pair of the gradient and what ``func`` returned second.
    """
    return _gradient(grad, func, argnums, has_aux)


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return ``func(*primals)`` and a function of cotangents of that structure, which gives those of the primals.

    With ``has_aux`` a third result is what ``func`` returned second.
    """
    pulling = value_and_grad.pulled_back(func, primals, has_aux=has_aux)
    if isinstance(pulling, value_and_grad.VjpEvaluation):

        def pull(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
            gradients = pulling.pull(cotangents, free=not retain_graph) if create_graph is None else None
            if gradients is not None:
                return gradients
            numbers = tuple(range(len(primals)))
            point = Evaluation(_VJP, func, primals, numbers, {}, has_aux=has_aux, evaluated=pulling.evaluated)
            return _pull(point, cotangents, retain=retain_graph, create=create_graph)

        value, *aux = pulling.results
        return (value, pull, *aux)
    point = Evaluation(_VJP, func, primals, tuple(range(len(primals))), {}, has_aux=has_aux, evaluated=pulling)
    point.check_tensors(_VJP)
    for y in point.outputs:
        if y.spec.dtype.kind != "f":
            raise RuntimeError(
                "vjp(f, ...): All outputs of f must be floating-point or complex Tensors, got Tensor with dtype "
                f"{y.spec.dtype}"
            )

    def pull_all(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        return _pull(point, cotangents, retain=retain_graph, create=create_graph)

    point.release()
    return point.finished(pull_all)


def _pull(point: Evaluation, cotangents: Any, *, retain: bool, create: bool | None) -> Any:
    structure = flattened(cotangents, none=True)[1]
    if structure != point.returned:
        raise RuntimeError(
            "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the "
            f"function. cotangents: {structure}, primal output: {point.returned}"
        )
    weights = [as_tensor(x, _VJP, "a cotangent") for x in point.returned.leaves_of(cotangents)]
    gradients = pulled(point.outputs, point.inputs, weights, create=create, retain=retain)
    return point.out(zeros_for(gradients, point.inputs), as_tensors=needs_graph((), (), weights))


def _tangents(point: Evaluation, tangents: Any) -> list[Tensor]:
    structure, inputs = flattened(tangents)[1], point.inputs
    if structure != point.structure:
        raise RuntimeError(
            f"{_JVP}: Expected primals and tangents to have the same python structure. For example, if primals is a "
            f"tuple of 3 tensors, tangents also must be. Got primals with structure {point.structure} and "
            f"tangents with structure {structure}"
        )
    leaves = [as_tensor(t, _JVP, "a tangent") for t in point.structure.leaves_of(tangents)]
    for t, x in zip(leaves, inputs, strict=True):
        if t.spec.shape != x.spec.shape:
            raise RuntimeError(
                "Trying to set a forward gradient that has a different size than that of the original Tensor, this is "
                f"not supported. Tensor is of size {list(x.spec.shape)} while the given forward gradient is of size "
                f"{list(t.spec.shape)}."
            )
    pairs = zip(leaves, inputs, strict=True)
    return [t if t.spec.dtype == x.spec.dtype else record.to_dtype(t, x.spec.dtype) for t, x in pairs]


def jvp(
    func: Callable[..., Any], primals: tuple[Any, ...], tangents: Any, *, strict: bool = False, has_aux: bool = False
) -> Any:
    """Return ``func(*primals)`` and its derivative in the direction of ``tangents``, by one native forward sweep.

    With ``strict`` an output that depends on no primal raises; without, its derivative is zero. With ``has_aux`` a
    third result is what ``func`` returned second.
    """
    if not isinstance(primals, tuple):
        raise RuntimeError(f"{_JVP}: Expected primals to be a tuple. E.g. it should be valid to call f(*primals).")  # noqa: TRY004 (PyTorch's)
    point = Evaluation(_JVP, func, primals, tuple(range(len(primals))), {}, has_aux=has_aux, writes=True)
    directions = _tangents(point, tangents)
    point.check_tensors(_JVP)
    derivatives = pushed(point.outputs, point.inputs, directions)
    if strict and any(t is None for t in derivatives):
        raise RuntimeError(
            "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. This is not "
            "allowed with strict=True."
        )
    point.tensors |= needs_graph((), (), directions)
    derivative = point.out(zeros_for(derivatives, point.outputs), point.returned)
    point.release()
    return point.finished(derivative)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Return ``func(*primals)`` and the linear function of tangents that it is near there.

    ``func`` runs once; each call of the linear function is one native forward sweep over what was recorded.
    """
    point = Evaluation(_JVP, func, primals, tuple(range(len(primals))), {}, has_aux=False, writes=True)
    outer = needs_graph([y for y in point.outputs if isinstance(y, Tensor)], point.inputs)
    outputs, leaves = [y for y in point.outputs if isinstance(y, Tensor)], point.outputs

    def push(*tangents: Any) -> Any:
        structure = flattened(tangents)[1]
        if structure != point.structure:
            raise RuntimeError(
                f"Expected the tangents {structure} to have the same argspec as the primals {point.structure}"
            )
        directions = [as_tensor(t, _JVP, "a tangent") for t in point.structure.leaves_of(tangents)]
        for i, (t, x) in enumerate(zip(directions, point.inputs, strict=True)):
            for attribute, got, wanted in (
                ("shape", t.spec.shape, x.spec.shape),
                ("dtype", t.spec.dtype, x.spec.dtype),
            ):
                if got != wanted:
                    raise RuntimeError(
                        f"tangent:{i} with {attribute} {got} in flattened pytree doesn't match the {attribute} "
                        f"{wanted} of the corresponding primal."
                    )
        graph = modes.is_grad_enabled() and (outer or any(t._slot is not None for t in directions))
        derivatives: Any = zeros_for(pushed(outputs, point.inputs, directions, create=graph), outputs)
        derivatives = iter(derivatives if point.tensors or graph else map(numbers_of, derivatives))
        return point.returned.filled(next(derivatives) if isinstance(y, Tensor) else y for y in leaves)

    point.release()
    settle(point.inputs)
    return point.result, push


def _jacobian(
    api: str, func: Callable[..., Any], args: tuple[Any, ...], argnums: Argnums, kwargs: Any, *, aux: bool, run: Any
) -> Any:
    columns = run is points.by_columns
    try:
        point = Evaluation(api, func, args, argnums, kwargs, has_aux=aux, writes=columns)
        point.check_tensors(api)
        found_blocks = run(point.outputs, point.inputs)
        full = points.filled(found_blocks, point.outputs, point.inputs, like_output=columns)
        result = point.returned.filled(point.out(row) for row in full)
        point.release()
        _, *blocks = point.finished(result)
        return tuple(blocks) if aux else result
    except Exception as error:
        shorten(error)
        raise


def jacrev(
    func: Callable[..., Any], argnums: Argnums = 0, *, has_aux: bool = False, chunk_size: int | None = None
) -> Callable[..., Any]:
    """Return a function that gives the Jacobian of ``func``, all rows by one batched backward sweep.

    For each output of shape s and each input of shape t there is a tensor of shape (*s, *t). ``chunk_size`` limits
    how many rows are swept together, and so the memory.
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")
    run = functools.partial(points.by_rows, chunk=chunk_size)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return _jacobian(_VJP, func, args, argnums, kwargs, aux=has_aux, run=run)

    return wrapper


def jacfwd(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error"
) -> Callable[..., Any]:
    """Return a function that gives the Jacobian of ``func``, all columns by one batched forward sweep; see jacrev.

    ``func`` runs once, so random numbers in it are the same for all columns; ``randomness`` changes nothing.
    """
    del randomness

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return _jacobian(_JVP, func, args, argnums, kwargs, aux=has_aux, run=points.by_columns)

    return wrapper


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return a function that gives the Hessian of ``func``: its gradient recorded, and one batched sweep of that."""
    return jacrev(jacrev(func, argnums), argnums)


# Modules (tape.nn) as functions of their state.


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Return ``module(*args, **kwargs)`` with other parameters and buffers, by their names in its state.

    What has no name in the dicts stays as it is. ``args`` that are no tuple are one argument. With ``tie_weights``
    a value for one name of a shared parameter stands for all of them. ValueError for a name in two dicts, or values
    that differ for a shared parameter; RuntimeError with ``strict`` for names that are missing or unknown.

    >>> model = tape.nn.Linear(2, 1)
    >>> functional_call(model, {"weight": tape.ones(1, 2), "bias": tape.zeros(1)}, tape.tensor([1.0, 2.0]))
    tensor([3.])
    """
    several = parameter_and_buffer_dicts
    dicts: Sequence[Mapping[str, Any]] = (several,) if isinstance(several, Mapping) else several
    repeated = [name for name, count in Counter(name for names in dicts for name in names).items() if count > 1]
    if repeated:
        raise ValueError(f"{repeated} appeared in multiple dictionaries; behavior of functional call is ambiguous")
    values = {name: x for names in dicts for name, x in names.items()}
    known = dict([*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)])
    if strict:
        for word, names in (("Unexpected", values.keys() - known.keys()), ("Missing", known.keys() - values.keys())):
            if names:
                raise RuntimeError(f"{word} key(s): {', '.join(sorted(names))}.")
    if tie_weights:
        tied = {id(known[name]): x for name, x in values.items() if name in known}
        if any(x is not tied.get(id(known.get(name)), x) for name, x in values.items()):
            raise ValueError("functional_call got multiple values for a shared parameter; pass tie_weights=False")
        values |= {name: tied[id(x)] for name, x in known.items() if id(x) in tied}
    leaves, structure = flattened(module)
    made = structure.filled(leaves)
    for name, x in values.items():
        path, _, last = name.rpartition(".")
        setattr(made.get_submodule(path), last, x)
    return made(*(args if isinstance(args, tuple) else () if args is None else (args,)), **(kwargs or {}))


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return parameters and buffers of modules of one class by their names, each stacked along a new first dim.

    They are leaves, for an ensemble by ``vmap`` of a :func:`functional_call`. RuntimeError for no module, for classes
    or modes that differ, and where a parameter requires grad in some of them.

    >>> params, buffers = stack_module_state([tape.nn.Linear(2, 1) for _ in range(3)])
    >>> params["weight"].shape
    tape.Size([3, 1, 2])
    """
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if len({model.training for model in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if len({type(model) for model in models}) > 1:
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    kinds = ([dict(m.named_parameters()) for m in models], [dict(m.named_buffers()) for m in models])
    params, buffers = ({name: _stacked(name, [n[name] for n in named]) for name in named[0]} for named in kinds)
    return params, buffers


def _stacked(name: str, tensors: list[Any]) -> Any:
    if len({x.requires_grad for x in tensors}) > 1:
        raise RuntimeError(f"Expected {name} from each model to have the same .requires_grad")
    return views.stack(tensors).detach().requires_grad_(tensors[0].requires_grad)
