"""``gradcheck`` and ``gradgradcheck``: gradients against differences, with PyTorch's arguments and messages.

PyTorch's default tolerances let a gradient pass that is wrong by a thousandth. Here a tolerance that is left out is as
tight as the differences are good, and never looser than PyTorch's.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from tape.checks import finite_differences, taylor
from tape.checks.finite_differences import Case, GradcheckError, as_tuple, differentiable, wants
from tape.engine.backward import grad
from tape.recording.creation import from_numpy
from tape.tensors.tensor import Tensor

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


def gradcheck(
    func: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float | None = None, rtol: float | None = None,
    raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False, check_batched_grad: bool = False, check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False, check_backward_ad: bool = True, fast_mode: bool = False, masked: bool | None = None,
) -> bool:  # fmt: skip
    """Check the gradients of a function against differences of its values; return True, or raise GradcheckError.

    Beyond PyTorch's checks (Jacobians, determinism, zero and undefined cotangents), the backward must leave its
    inputs, outputs and cotangent as they are, be linear, keep float64's precision, give the same with
    ``create_graph=True``, and not depend on strides: value and gradient are compared at contiguous, strided, transposed
    and expanded copies of the inputs. A function that refuses such an input, or one slice of an input in place of all
    of them, is not asked for more. Broadcasting is checked for the shapes given: pass inputs that broadcast.

    Args:
        func: Takes ``inputs``, returns a Tensor or a tuple of Tensors. Those that do not require grad are left out.
        inputs: A Tensor or a tuple; checked are the Tensors that require grad, best in float64. Their memory is
            changed while ``func`` runs and put back, so that ``func`` may also read them from a closure.
        eps: The first step, in units of ``max(1, |x|)``. Where it does not resolve a derivative, steps from a
            hundredth to a thousand times of it are tried.
        atol: Absolute tolerance. None, the default: what the differences can resolve, at most PyTorch's 1e-5.
        rtol: Relative tolerance. None, the default: 1e-6 and what the differences can resolve, at most PyTorch's
            1e-3. An explicit tolerance is applied as PyTorch applies it.
        raise_exception: False returns False instead of raising GradcheckError.
        nondet_tol: What two runs of a backward may differ by.
        check_undefined_grad: Whether the backward must take undefined cotangents of some of several outputs.
        check_grad_dtypes: Whether each single gradient's dtype is compared; one at least always is.
        check_batched_grad: Whether to check ``is_grads_batched=True``.
        check_batched_forward_grad: Whether to check ``tape.func.vmap`` of ``tape.func.jvp``.
        check_forward_ad: Whether to check ``tape.func.jvp`` against the same differences.
        check_backward_ad: Whether to check backward mode.
        fast_mode: Compare one random projection of each Jacobian, by two vectors, instead of its elements. An error
            in one of n elements is then n times harder to see.
        masked: For sparse tensors in PyTorch; without effect here.

    Raises:
        GradcheckError: A check fails; the message names output, input and element.
        ValueError: No input requires grad.
        TypeError: ``func`` returns something else than tensors.
        RuntimeError: An input's elements share memory (stride 0).
        NotImplementedError: Forward mode is asked for and this version has none.
    """
    del masked
    modes = {"check_forward_ad": check_forward_ad, "check_backward_ad": check_backward_ad}
    _check_modes(modes, "check_forward_ad", check_batched_forward_grad=check_batched_forward_grad)
    _check_modes(modes, "check_backward_ad", check_batched_grad=check_batched_grad)
    case = Case(func, as_tuple(inputs))
    _check_inputs(case)
    try:
        comparison = finite_differences.Comparison(
            case,
            eps,
            finite_differences.Tolerance(atol, rtol),
            nondet_tol,
            check_dtypes=check_grad_dtypes,
            fast=fast_mode,
        )
        comparison.check(backward=check_backward_ad, forward=check_forward_ad)
        if check_batched_forward_grad:
            taylor.check_batched_forward(case)
        if check_backward_ad:
            taylor.check(comparison, undefined=check_undefined_grad, batched=check_batched_grad)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable[..., Any], inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6, atol: float | None = None,
    rtol: float | None = None, gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True,
    nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
    check_batched_grad: bool = False, check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True,
    fast_mode: bool = False, masked: bool = False,
) -> bool:  # fmt: skip
    """Check second derivatives: :func:`gradcheck` of the gradient as a function of inputs and ``grad_outputs``.

    ``grad_outputs`` (a Tensor or a tuple, one for each output that requires grad) are random where left out, and
    strided with ``gen_non_contig_grad_outputs``. ``check_rev_over_rev`` and ``check_fwd_over_rev`` are backward and
    forward mode through the gradient. The other arguments, what is returned and raised: as in :func:`gradcheck`.
    """
    modes = {"check_fwd_over_rev": check_fwd_over_rev, "check_rev_over_rev": check_rev_over_rev}
    _check_modes(modes, "check_rev_over_rev", check_undefined_grad=check_undefined_grad)
    _check_modes(modes, "check_rev_over_rev", check_batched_grad=check_batched_grad)
    gradient, arguments = _gradient(func, as_tuple(inputs), grad_outputs, strided=gen_non_contig_grad_outputs)
    return gradcheck(
        gradient, arguments, eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad, fast_mode=fast_mode, check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev, masked=masked,
    )  # fmt: skip


def _check_modes(modes: dict[str, bool], needed: str, **flags: bool) -> None:
    if not any(modes.values()):
        raise AssertionError(f"Expected at least one of {' or '.join(modes)} to be True")
    for flag, wanted in flags.items():
        if wanted and not modes[needed]:
            raise AssertionError(f"Setting {flag}=True requires {needed} to be True")


def _gradient(
    func: Callable[..., Any], inputs: tuple[Any, ...], grad_outputs: Any, *, strided: bool
) -> tuple[Callable[..., tuple[Tensor, ...]], tuple[Any, ...]]:
    """Return the gradient as a function of the inputs and cotangents, and these: random ones if none are given."""
    case = Case(func, inputs)
    _check_inputs(case)
    cotangents = as_tuple(grad_outputs)
    if grad_outputs is None:
        results = differentiable(case.run())
        if not results:
            raise ValueError("gradgradcheck expects at least one output that requires grad")
        weights = finite_differences.random_like(results)
        made = [from_numpy(finite_differences.gapped(a) if strided else a) for a in weights]
        cotangents = tuple(x.requires_grad_() for x in made)
    wanted = [wants(x) for x in inputs]

    def gradient(*arguments: Any) -> tuple[Tensor, ...]:
        points, weights = arguments[: len(inputs)], arguments[len(inputs) :]
        points = tuple(x.requires_grad_() if w else x for x, w in zip(points, wanted, strict=True))
        needed = [x for x, w in zip(points, wanted, strict=True) if w]
        outputs = differentiable(as_tuple(func(*points)))
        gradients = grad(outputs, needed, weights, create_graph=True, allow_unused=True)
        return tuple(g for g in gradients if g is not None)

    return gradient, (*inputs, *cotangents)


def _check_inputs(case: Case) -> None:
    """Warn of inputs that are not float64; raise where no input requires grad, or elements share memory."""
    for i, x in enumerate(case.inputs):
        if not wants(x):
            continue
        if x.dtype != np.float64:
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point or complex. This check "
                "will likely fail if all the inputs are not of double precision floating point or complex. ",
                stacklevel=3,
            )
        if x.numel() and any(stride == 0 and n > 1 for stride, n in zip(x.stride(), x.shape, strict=True)):
            raise RuntimeError(
                f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are "
                "non-overlapping to be able to compute the numerical gradients correctly. You should call "
                ".contiguous on the input before passing it to gradcheck."
            )
    if not case.wanted:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them have requires_grad=True."
        )


class _Called(ModuleType):
    """``tape.autograd.gradcheck`` is the function, as in PyTorch, also where this module is imported by its name."""

    def __call__(self, *args: Any, **options: Any) -> bool:
        """Call the function."""
        return gradcheck(*args, **options)


__signature__ = inspect.signature(gradcheck)
sys.modules[__name__].__class__ = _Called
