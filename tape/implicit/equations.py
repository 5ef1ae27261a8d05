"""Equations F(x, operands) = 0 made of the user's function: vectors, closures, derivatives of F."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tape import func
from tape.engine.backward import grad
from tape.implicit import closures
from tape.operations.diagonals import Inverse, raveled
from tape.recording import views
from tape.recording.record import to_dtype
from tape.tensors import grad_modes, hooks, modes, pytrees
from tape.tensors.modes import Observer
from tape.tensors.operands import tensor_of
from tape.tensors.recorder import same_params
from tape.tensors.tensor import AccumulateGrad, Tensor, as_array, constant_tensor, holder, leaf
from tape.tensors.view_families import base_of, is_view

ROOT, FIXED_POINT, MINIMUM, LINEAR = "root", "fixed_point", "minimize", "linear_solve"
"""What is asked of a function f: f(x) = 0, f(x) = x, that its gradient is zero, f(x) = b with b its first operand."""

FUNCTIONS = ("f", "jac", "linear", "solver")
"""The attributes of an equation that may be functions of the user's."""


class Equation:
    """An equation F(x, *operands) = 0 of vectors of one dtype, as ``f`` and what is asked of it say.

    Operands are the tensors among ``f``'s arguments, then those that it closes over: :func:`captured`. Equal equations
    differ in the values of their operands alone, so that a program can go on with either.
    """

    def __init__(self, kind: str, f: Callable[..., Any], back: Inverse, args: tuple[Any, ...], batch: int) -> None:
        self.kind, self.f, self.back, self.batch = kind, f, back, batch
        self.is_vector = back.structure.kind is None and len(back.shapes[0]) == 1
        self.name = f"implicit.{kind}"
        self.jac: Any = None
        self.linear: Any = None
        self.solver: Any = None
        self.limits: tuple[Any, ...] = ()
        leaves, self.structure = pytrees.flattened(args, none=True)
        self.static = [None if _is_operand(x) else x for x in leaves]
        self.places = [k for k, x in enumerate(leaves) if _is_operand(x)]
        self.operands: list[Tensor] = [tensor_of(leaves[k]) for k in self.places]
        self.captured: list[Tensor] = []
        self.arrays = modes.given_arrays()
        self._lock = threading.RLock()

    def close_over(self, x: Tensor) -> None:
        """Find the tensors that the function closes over, and make them operands."""
        outer = modes.current().recorder
        if modes.is_grad_enabled() or outer is not None:
            tensors_used = captured(self, x, outer)
            self.operands += tensors_used
            self.captured = self._freeze(tensors_used)

    def _freeze(self, tensors_used: list[Tensor]) -> list[Tensor]:
        """Let the functions close over what they do now, and over tensors of their own; return the captured tensors.

        A derivative calls them again, when the user's code may have bound the names to others; and programs hold them,
        but no tensor of the call that is recorded.
        """
        frozen = closures.FrozenClosures(
            {id(t): constant_tensor(np.zeros(t.spec.shape, t.spec.dtype)) for t in tensors_used}
        )
        for name in FUNCTIONS:
            setattr(self, name, frozen.of(getattr(self, name)))
        return [frozen.substitutes[id(t)] if id(t) in frozen.reached else t for t in tensors_used]

    def __call__(self, x: Tensor, *operands: Tensor) -> Tensor:
        """Return F(x, *operands)."""
        with self._substituted(operands):
            return modes.call_given(self.arrays, self._residual, x, self.args(operands))

    def matrix(self, x: Tensor, operands: Sequence[Tensor]) -> Any:
        """Return what the user's ``jac`` gives, a matrix or a function of the arguments of ``f``."""
        if not callable(self.jac):
            return self.jac
        with self._substituted(operands):
            copied = constant_tensor(np.array(x._value))  # which the user may make an array of, or write to
            return modes.call_given(self.arrays, self.jac, self.shaped(copied), *self.args(operands))

    def args(self, operands: Sequence[Tensor]) -> tuple[Any, ...]:
        """Return the arguments of ``f`` behind x, with these operands."""
        leaves = list(self.static)
        for k, x in zip(self.places, operands, strict=False):
            leaves[k] = x
        return self.structure.filled(leaves)  # type: ignore[no-any-return]

    def evaluated(self, x: Tensor, *operands: Tensor) -> Tensor:
        """Return what ``f`` gives, as a vector."""
        with self._substituted(operands):
            return modes.call_given(self.arrays, self.value, x, self.args(operands))

    def shaped(self, x: Tensor) -> Any:
        """Return a vector in the structure of the unknowns."""
        return x if self.is_vector else self.back(x)

    def value(self, x: Tensor, args: tuple[Any, ...]) -> Tensor:
        """Return what ``f`` gives, as a vector in the dtype of x."""
        if self.kind == LINEAR:
            args = args[1:]
        return _vector(self.f(self.shaped(x), *args), x)

    def _residual(self, x: Tensor, args: tuple[Any, ...]) -> Tensor:
        if self.kind == MINIMUM:
            return func.grad(lambda v: self._objective(v, args))(x)  # type: ignore[no-any-return]
        value = self.value(x, args)
        if value.spec.size != x.spec.size:
            raise ValueError(
                f"{self.name}: the function returns {value.spec.size} numbers for {x.spec.size} unknowns; as many "
                "equations as unknowns are wanted"
            )
        if self.kind == FIXED_POINT:
            return x - value
        return value - _vector(args[0], x) if self.kind == LINEAR else value

    def _objective(self, x: Tensor, args: tuple[Any, ...]) -> Tensor:
        value = self.value(x, args)
        if value.spec.size != 1:
            raise TypeError(f"{self.name}: the function returns {value.spec.size} numbers; one is minimised")
        return value.reshape(())

    def objective(self, x: Tensor, operands: Sequence[Tensor]) -> Tensor:
        """Return the value that is minimised."""
        with self._substituted(operands):
            return modes.call_given(self.arrays, self._objective, x, self.args(operands))

    @contextmanager
    def _substituted(self, operands: Sequence[Tensor]) -> Iterator[None]:
        """Let the tensors that the function closes over be those that were given for them.

        They are one and the same unless a program is replayed, or derivatives are taken; then the captured tensors,
        whoever holds them, have another value and slot meanwhile.
        """
        arguments = operands[len(self.places) :]
        others = [(t, x) for t, x in zip(self.captured, arguments, strict=True) if t is not x and not _stands_for(t, x)]
        if not others:
            yield
            return
        with self._lock:
            before = [(t, t._value, holder(t._slot, t._form)) for t, _ in others]
            try:
                for t, operand in others:
                    x = views.clone(operand) if is_view(operand) else operand
                    t._value, t._slot, t._form = x._value, x._slot, x._form
                yield
            finally:
                for t, value, kept in before:
                    t._value, t._slot, t._form = value, kept._slot, kept._form

    # Derivatives of F, to any order: in a backward that creates a graph all of it is recorded, at the live tensors.

    def _fresh(self, tensors: Sequence[Tensor], wanted: Sequence[bool], *, live: bool) -> list[Tensor]:
        """Return tensors to differentiate by, in which derivatives by one do not reach the others."""
        count = len(tensors) - len(self.captured)
        fresh = []
        for k, (x, want) in enumerate(zip(tensors, wanted, strict=True)):
            captured_one = self.captured[k - count] if k >= count else None
            if not want:
                fresh.append(x if live else x.detach())
            elif live and x._slot is not None:
                fresh.append(views.clone(x))
            elif type(captured_one) is Tensor and _is_leaf_alone(captured_one) and _stands_for(captured_one, x):
                fresh.append(captured_one)  # which other threads may be using: it stays as it is
            else:
                fresh.append(leaf(x._value, requires_grad=True))
        return fresh

    def pull(
        self, x: Tensor, operands: Sequence[Tensor], weights: Tensor, wanted: Sequence[bool]
    ) -> tuple[Tensor, list[Tensor | None]]:
        """Return F, and the gradients of the operands, of F weighted."""
        live = modes.is_grad_enabled()
        with grad_modes.enable_grad():
            fresh = self._fresh(operands, wanted, live=live)
            value = self(x if live else x.detach(), *fresh)
            return value, _gradients(value, fresh, wanted, weights, create=live)

    def pull_product(
        self, x: Tensor, operands: Sequence[Tensor], left: Tensor, right: Tensor, wanted: Sequence[bool]
    ) -> list[Tensor | None]:
        """Return the gradients of x and the operands, of the number ``left @ J @ right``, J the Jacobian by x."""
        live = modes.is_grad_enabled()
        with grad_modes.enable_grad():
            left, right = (left, right) if live else (left.detach(), right.detach())
            fresh = self._fresh((x, *operands), wanted, live=live)
            return _gradients(self._product(fresh, left, right), fresh, wanted, None, create=live)

    def _product(self, fresh: Sequence[Tensor], left: Tensor, right: Tensor) -> Tensor:
        at, *operands = fresh
        if at._slot is None:
            at = at.detach().requires_grad_()
        (row,) = _gradients(self(at, *operands), [at], [True], left, create=True)
        return constant_tensor(0.0) if row is None else (row * right).sum()

    def push(self, x: Tensor, operands: Sequence[Tensor], tangents: Sequence[Tensor | None]) -> Tensor:
        """Return the tangent of F for tangents of the operands."""
        wanted = [t is not None for t in tangents]
        with grad_modes.enable_grad():
            weights = _zeros(x)
            fresh = self._fresh(operands, wanted, live=False)
            rows = _gradients(self(x.detach(), *fresh), fresh, wanted, weights, create=True)
            return _contracted(rows, tangents, weights)

    def push_product(
        self, x: Tensor, operands: Sequence[Tensor], y: Tensor, tangents: Sequence[Tensor | None], *, trans: bool
    ) -> Tensor:
        """Return J' y for tangents of x and the operands, J' that of the Jacobian, or of the transposed one."""
        wanted = [t is not None for t in tangents]
        with grad_modes.enable_grad():
            weights = _zeros(x)
            fresh = self._fresh((x, *operands), wanted, live=False)
            product = self._product(fresh, *((y, weights) if trans else (weights, y)))
            return _contracted(_gradients(product, fresh, wanted, None, create=True), tangents, weights)

    # Equal equations.

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Equation):
            return False
        mine, theirs = ({id(t): k for k, t in enumerate(e.captured)} for e in (self, other))
        return (
            (self.kind, self.batch, self.places, self.arrays) == (other.kind, other.batch, other.places, other.arrays)
            and len(mine) == len(theirs)
            and (self.structure, self.back.structure) == (other.structure, other.back.structure)
            and same_params(
                (self.static, self.back.shapes, self.limits), (other.static, other.back.shapes, other.limits)
            )
            and all(closures.alike(getattr(self, name), getattr(other, name), mine, theirs) for name in FUNCTIONS)
        )

    def __hash__(self) -> int:
        return hash((self.kind, len(self.captured), len(self.places)))


class _Finder(Observer):
    """Collects the tensors that a function uses, but did not make and was not given."""

    def __init__(self, name: str, arguments: Sequence[Tensor], known: Callable[[Tensor], bool]) -> None:
        self.name, self.known = name, known
        self.made = {id(x): x for x in arguments}
        self.used: dict[int, Tensor] = {}

    def look(self, *operands: Any) -> None:
        """Take in what is used."""
        for x in operands:
            if isinstance(x, Tensor) and id(x) not in self.made and (x._slot is not None or self.known(x)):
                self.used[id(x)] = x

    def notify(self, op: Any, operands: tuple[Any, ...], result: Any, params: tuple[Any, ...]) -> None:
        """Look at the operands of an operation."""
        self.look(*operands)
        self.made[id(result)] = result

    def overwrites(self, x: Tensor, value: Any) -> None:
        """Look at a write; one to a tensor from outside is refused, since the function is called many times."""
        if id(x) not in self.made and id(base_of(x)) not in self.made and (x._slot is not None or self.known(x)):
            raise ValueError(f"{self.name}: the function writes to a tensor that it closes over")
        self.look(value)

    taken = overwrites

    def note_unrecorded(self, tensor: Any, what: str) -> None:
        """Look at an argument of an ``autograd.Function``."""
        self.look(tensor)

    def note_escape(self, tensor: Any) -> None:
        """Look at what becomes a number."""
        self.look(tensor)

    note_number = note_escape


def captured(equation: Equation, x: Tensor, outer: Any) -> list[Tensor]:
    """Return the tensors that an equation's functions close over: that require grad, or that a recorder knows.

    The function is called once, or twice where it uses some. RuntimeError if it depends on others that require grad.
    """
    arguments = [x.detach(), *[o.detach() for o in equation.operands]]
    finder = _Finder(equation.name, arguments, lambda t: _is_known(outer, t))
    with modes.under(modes.current()._replace(recorder=finder)):
        value = equation.evaluated(*arguments)
    finder.look(*closures.held((equation.jac, equation.linear, equation.solver)))
    tensors_used = [t for t in finder.used.values() if not getattr(t._slot, "is_transform_input_done", False)]
    if value._slot is not None:
        equation.captured = tensors_used
        with modes.under(modes.current()._replace(recorder=None)):
            value = equation.evaluated(*arguments, *[t.detach() for t in tensors_used])
        if value._slot is not None:
            raise RuntimeError(
                f"{equation.name}: the function depends on a tensor that requires grad and could not be found among "
                "what it uses; pass it as an argument"
            )
    return tensors_used


def _is_known(recorder: Any, x: Tensor) -> bool:
    """Whether a recorder, or one around it, knows a tensor as one of its program."""
    while recorder is not None:
        node_of = getattr(recorder, "node_of", None)
        if node_of is not None and (node_of(x) is not None or node_of(base_of(x)) is not None):
            return True
        recorder = getattr(recorder, "outer", None)
    return False


def _is_operand(x: Any) -> bool:
    return isinstance(x, Tensor) or (isinstance(x, np.ndarray) and x.dtype.kind == "f")


def _stands_for(t: Tensor, x: Tensor) -> bool:
    """Whether a captured tensor still has the history and the value of what is given for it."""
    same_value = t._value is x._value or (type(t._value) is float and t._value == x._value)
    return bool(t._slot == x._slot and same_value)


def _is_leaf_alone(t: Tensor) -> bool:
    return type(t._slot) is AccumulateGrad and hooks.existing(t._slot) is None


def _vector(values: Any, like: Tensor) -> Tensor:
    """Return what a function gives, in any structure, as a vector of a dtype."""
    if type(values) is Tensor and values.spec is like.spec:
        return values
    x = raveled(values)[0]
    x = x if isinstance(x, Tensor) else constant_tensor(x)
    return x if x.spec.dtype == like.spec.dtype else to_dtype(x, like.spec.dtype)


def _zeros(x: Tensor) -> Tensor:
    return leaf(np.zeros(x.spec.shape, x.spec.dtype), requires_grad=True)


def _gradients(
    y: Tensor, inputs: Sequence[Tensor], wanted: Sequence[bool], weights: Tensor | None, *, create: bool
) -> list[Tensor | None]:
    """Return the gradients of a tensor by those inputs that are wanted; None for others, and where it has none."""
    asked = [x for x, want in zip(inputs, wanted, strict=True) if want]
    if y._slot is None or not asked:
        return [None] * len(inputs)
    tensors_used = iter(grad(y, asked, weights, create_graph=create, allow_unused=True))
    return [next(tensors_used) if want else None for want in wanted]


def _contracted(rows: Sequence[Tensor | None], tangents: Sequence[Tensor | None], weights: Tensor) -> Tensor:
    """Return the derivative by the weights of rows, which are linear in them, times tangents."""
    pairs = [(row, t) for row, t in zip(rows, tangents, strict=True) if row is not None and t is not None]
    total: Any = sum((row * t).sum() for row, t in pairs) if pairs else None
    (pushed,) = [None] if total is None else _gradients(total, [weights], [True], None, create=False)
    return constant_tensor(np.zeros_like(as_array(weights))) if pushed is None else pushed
