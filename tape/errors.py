"""The few classes of tape's errors and warnings, each derived from the builtin that PyTorch or NumPy users catch.

They stand below the builtins:

    RuntimeError                 misuse of the graph, as in PyTorch
      GradError                  backward without a graph, twice, or from a value that is no scalar
    TypeError                    an operand that no operation takes
    NotImplementedError          what this version does not support, with the remedy
    UserWarning
      DetachWarning              a value that requires grad left for Python
"""

from __future__ import annotations


class GradError(RuntimeError):
    """The graph cannot be differentiated as asked."""


class DetachWarning(UserWarning):
    """A tensor that requires grad became a Python number; what is computed from it has no gradient."""


SECOND_TIME = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already "
    "been freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
    "Specify retain_graph=True if you need to backward through the graph a second time or if you need to access "
    "saved tensors after calling backward."
)
NO_GRAPH = "element {} of tensors does not require grad and does not have a grad_fn"
NOT_SCALAR = "grad can be implicitly created only for scalar outputs"
NUMPY_EXIT = "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
NON_LEAF_GRAD = (
    "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
    "populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf Tensor, "
    "use .retain_grad() on the non-leaf Tensor. If you access the non-leaf Tensor by mistake, make sure you access "
    "the leaf Tensor instead."
)
IN_PLACE = (
    "{}: in-place on a value that the tape has recorded is not supported in this version; write it out of place, "
    "for example y = x + 1 instead of x += 1, or tape.where / tape.cat instead of assigning to a part"
)
IN_PLACE_OF = (
    "{}: writing a value that requires grad into a tensor is not supported in this version; write it out of place, for "
    "example y = x + w instead of x += w, or tape.where / tape.cat instead of assigning to a part"
)
LEAF_IN_PLACE = "a leaf Variable that requires grad is being used in an in-place operation."
LATER = "{} is not supported in this version; {}"
