"""The few classes of tape's errors and warnings, each derived from the builtin that PyTorch or NumPy users catch.

They stand below the builtins:

    RuntimeError                 misuse of the graph, as in PyTorch
      GradError                  backward without a graph, twice, or from a value that is no scalar
      ConvergenceError           a solver found no solution
    ValueError
      FileFormatError            a file that is damaged, or of a format that is not read
    TypeError                    an operand that no operation takes
    NotImplementedError          what this version does not support, with the remedy
    UserWarning
      DetachWarning              a value that requires grad left for Python
      CompileWarning             a compiled function stays in dynamic mode
"""

from __future__ import annotations

import os
from types import FrameType, TracebackType

import kernels

__all__ = ["CompileWarning", "ConvergenceError", "DetachWarning", "FileFormatError", "GradError"]


class GradError(RuntimeError):
    """The graph cannot be differentiated as asked."""


class ConvergenceError(RuntimeError):
    """A solver found no solution, or what it found is none."""


class FileFormatError(ValueError):
    """A file is damaged or cut off, of a newer format, or was written by something else; nothing was loaded."""


class DetachWarning(UserWarning):
    """A tensor that requires grad became a Python number; what is computed from it has no gradient."""


class CompileWarning(UserWarning):
    """A compiled function, or some of its calls, cannot be replayed, and so run in dynamic mode."""


_OURS = tuple(os.path.join(os.path.dirname(path), "") for path in (__file__, kernels.__file__))  # noqa: PTH118, PTH120
_USERS = os.path.join(_OURS[0], "examples", "")  # noqa: PTH118
_MISUSE = (RuntimeError, TypeError, ValueError, IndexError)


def leaf_in_place(*, is_view: bool) -> RuntimeError:
    """Return the error for a write to a leaf: PyTorch's text, and a note of what to write."""
    error = RuntimeError(LEAF_VIEW_IN_PLACE if is_view else LEAF_IN_PLACE)
    error.add_note("Write to its clone(), or within tape.no_grad(), where nothing is recorded.")
    return error


def shorten(error: Exception) -> None:
    """Leave in the traceback of what a user did wrong one frame of ours, where it was raised; all, if TAPE_DEBUG=1.

    Functions that users call do this, and then ``raise``: what they call in turn is no news to who called them.
    """
    if not isinstance(error, _MISUSE) or os.environ.get("TAPE_DEBUG"):
        return
    entries, entry = list[TracebackType](), error.__traceback__
    while entry is not None:
        entries.append(entry)
        entry = entry.tb_next
    kept = entries.pop() if entries else None
    for entry in reversed(entries):
        if not _is_ours(entry.tb_frame):
            kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    error.__traceback__ = kept


def _is_ours(frame: FrameType) -> bool:
    """Whether code is of a file of ours, or printed by one."""
    path = frame.f_code.co_filename
    path = frame.f_globals.get("__file__") or path if path.startswith("<") else path
    return path.startswith(_OURS) and not path.startswith(_USERS)


SECOND_TIME = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
    "been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
    "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access "
    "saved tensors after calling backward."
)
NO_GRAPH = (
    "element {} of tensors does not require grad and does not have a grad_fn; give requires_grad=True to a leaf that "
    "it is computed from"
)
NO_GRADIENTS = "only Tensors of floating point dtype can require gradients, got {}; x.double() can"
NOT_SCALAR = "grad can be implicitly created only for scalar outputs"
NUMPY_EXIT = "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
NUMPY_ARRAY = (
    "write 'import tape.numpy as np' in place of 'import numpy as np', whose np.zeros, np.array, np.linspace ... make "
    "tensors while something differentiates, and np.array(u) one of an array u"
)
NON_LEAF_GRAD = (
    "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
    "populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf Tensor, "
    "use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure you access "
    "the leaf Tensor instead."
)
LEAF_IN_PLACE = "a leaf Variable that requires grad is being used in an in-place operation."
LEAF_VIEW_IN_PLACE = "a view of a leaf Variable that requires grad is being used in an in-place operation."
OVERLAP = (
    "unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
    "Please clone() the tensor before performing the operation."
)
UNUSED = (
    "The differentiated Tensor at index {} appears to not have been used in the graph. Set allow_unused=True if this "
    "is the desired behavior."
)
CYCLE = (
    "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient, "
    "which is kept until the parameter is gone. We recommend using autograd.grad when creating the graph to avoid this."
)
NO_BACKWARD = (
    "You must implement either the backward or vjp method for your custom autograd.Function to use it with backward "
    "mode AD."
)
ONCE = "trying to differentiate twice a function that was marked with @once_differentiable"
