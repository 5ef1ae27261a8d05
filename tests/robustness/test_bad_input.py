"""Bad input: what raises, which class, the gist of the message; and that nothing else has happened.

A row is `what comes before | the call  # class: gist`, where `...` in a gist stands for any text.
After each error tensors, arrays, gradients and the tape are as before the call, and a sweep of `y`
gives what it gives without the error. The messages are PyTorch's, where PyTorch has one.
"""

from __future__ import annotations

import builtins
import gc
import math
import re
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tape
from tape.errors import DetachWarning
from tape.recording.record import recorded

if TYPE_CHECKING:
    from collections.abc import Callable

START = """
x = tape.tensor([1., 2., 3.], requires_grad=True)
w = tape.tensor([[.5, 1., 1.5], [2., -2.5, 3.]], requires_grad=True)
s = tape.tensor(2., requires_grad=True)
n = tape.tensor([4., 2., .5])
i = tape.tensor([2, 1])
b = tape.tensor([False, True, True])
m = np.arange(3.)
y = x * x
x.grad = tape.tensor([.25, .5, .75])
"""

BACKWARD = """
 | y.backward()  # RuntimeError: grad can be implicitly created only for scalar outputs
 | y.backward(None)  # RuntimeError: only for scalar outputs
z = y.sum(); z.backward() | z.backward()  # RuntimeError: a second time...retain_graph=True
z = y.sum(); z.backward() | tape.autograd.grad(z, x)  # RuntimeError: a second time
z = y.sum(); u = (y * 2).sum(); z.backward() | u.backward()  # RuntimeError: a second time
 | n.backward()  # RuntimeError: element 0 of tensors does not require grad...have a grad_fn
z = n.sum() | z.backward()  # RuntimeError: element 0 of tensors does not require grad
z = y.detach() | z.backward(n)  # RuntimeError: does not require grad
z = y.sum() | tape.autograd.backward([z, n.sum()])  # RuntimeError: element 1 of tensors
z = y.sum() | tape.autograd.backward([z, z], [None])  # RuntimeError: 2 tensors and 1 gradients
 | y.backward(tape.ones(2))  # RuntimeError: grad_output[0]...shape of...[2]...output[0]...[3]
 | y.backward(tape.ones(3, 1))  # RuntimeError: Mismatch in shape
z = y.sum() | z.backward(tape.ones(1))  # RuntimeError: Mismatch in shape
z = y.sum() | tape.autograd.backward([z, y], [None, tape.ones(2)])  # RuntimeError: grad_output[1]
 | y.backward(np.ones(3))  # TypeError: gradients can be either Tensors or None, but got
 | y.backward(1.)  # TypeError: float
 | y.backward([1., 1., 1.])  # TypeError: gradients can be either Tensors or None, but got
 | y.backward(n, inputs=[])  # RuntimeError: `inputs` argument to `backward()` cannot be empty
 | y.backward(n, inputs=[n])  # RuntimeError: require
 | y.backward(n, inputs=[3.])  # (TypeError|RuntimeError): float
 | tape.autograd.backward(3.)  # TypeError: float
z = y.sum() | tape.autograd.backward([z, np.ones(2)])  # TypeError: ndarray
"""

GRAD = """
 | tape.autograd.grad(y, x)  # RuntimeError: only for scalar outputs
z = y.sum() | tape.autograd.grad(z, w)  # RuntimeError: index 0...allow_unused=True
z = y.sum() | tape.autograd.grad(z, [x, w])  # RuntimeError: index 1...allow_unused=True
z = y.sum(); v = x[1:] | tape.autograd.grad(z, v)  # RuntimeError: index 0...allow_unused=True
z = y.sum() | tape.autograd.grad(z, n)  # RuntimeError: does not require grad
z = y.sum() | tape.autograd.grad(z, [x, n])  # RuntimeError: does not require grad
z = y.sum() | tape.autograd.grad(z, [])  # RuntimeError: `inputs`...`grad()` cannot be empty
z = y.sum() | tape.autograd.grad(z, 3.)  # TypeError: float
z = n.sum() | tape.autograd.grad(z, x)  # RuntimeError: does not require grad
 | tape.autograd.grad(y, x, tape.ones(2))  # RuntimeError: Mismatch in shape
 | tape.autograd.grad(y, x, np.ones(3))  # TypeError: gradients can be either Tensors or None
z = y.sum() | tape.autograd.grad(z, x, allow_unused=False, materialize_grads=True)  # ValueError
"""

FLAGS = """
 | y.requires_grad = False  # RuntimeError: only change requires_grad flags of leaf...detach()
 | y.requires_grad_(False)  # RuntimeError: only change requires_grad flags of leaf...detach()
v = x[1:] | v.requires_grad_(False)  # RuntimeError: flags of leaf variables
 | i.requires_grad_()  # RuntimeError: only Tensors of floating point...require gradients
 | i.requires_grad = True  # RuntimeError: only Tensors of floating point...require gradients
 | b.requires_grad_()  # RuntimeError: only Tensors of floating point
 | tape.tensor([1, 2], requires_grad=True)  # RuntimeError: Only Tensors of floating point
 | tape.tensor([True], requires_grad=True)  # RuntimeError: Only Tensors of floating point
 | tape.zeros(2, dtype=tape.int64, requires_grad=True)  # RuntimeError: Only Tensors of floating
 | tape.arange(3, requires_grad=True)  # RuntimeError: Only Tensors of floating point
 | tape.full((2,), 1, requires_grad=True)  # RuntimeError: Only Tensors of floating point
 | n.retain_grad()  # RuntimeError: can't retain_grad on Tensor that has requires_grad=False
 | x.grad = tape.ones(2)  # RuntimeError: size '[2]' to a tensor of size '[3]'
 | x.grad = tape.ones(3, dtype=tape.float32)  # RuntimeError: grad
 | x.grad = np.ones(3)  # TypeError: grad
 | x.grad = 0.  # TypeError: grad
 | y.is_leaf = True  # AttributeError
 | x.shape = (1, 3)  # AttributeError
"""

TO_NUMPY = """
 | x.numpy()  # RuntimeError: numpy() on Tensor that requires grad. Use...detach().numpy()
 | y.numpy()  # RuntimeError: detach().numpy()
 | np.asarray(x)  # RuntimeError: requires grad...detach().numpy()
 | np.array(y)  # RuntimeError: requires grad...detach()
 | np.array([x, x])  # RuntimeError: requires grad...detach()
z = 2 * x | np.asarray([y, z])  # RuntimeError: requires grad...detach()
 | m[:] = x  # RuntimeError: import tape.numpy as np...detach()
v = y[1:] | m[:2] = v  # RuntimeError: import tape.numpy as np...detach()
v = y[1:] | m[b.numpy()] = v  # RuntimeError: import tape.numpy as np...detach()
 | m += x  # TypeError: out
 | np.multiply(m, x, out=m)  # TypeError: multiply...out
 | np.sin(x, out=m)  # TypeError: sin...out
 | x.item()  # RuntimeError: a Tensor with 3 elements cannot be converted to Scalar
 | tape.ones(0).item()  # RuntimeError: a Tensor with 0 elements cannot be converted to Scalar
 | float(n)  # ValueError: only one element
 | int(n)  # ValueError: only one element
 | bool(n)  # RuntimeError: Boolean value of Tensor with more than one value is ambiguous
 | bool(x > 1)  # RuntimeError: Boolean value of Tensor with more than one value is ambiguous
 | 1 if y else 0  # RuntimeError: Boolean value of Tensor with more than one value is ambiguous
 | bool(tape.ones(0))  # RuntimeError: Boolean value of Tensor with no values is ambiguous
 | len(s)  # TypeError: len() of a 0-d tensor
 | list(s)  # TypeError: iteration over a 0-d tensor
 | [1, 2][s]  # TypeError
 | range(n[0])  # TypeError
"""

NUMPY_WITHOUT_A_RECORD = """
 | np.fft.fft(x)  # TypeError: fft
 | np.fft.fft(n)  # TypeError: fft
 | np.linalg.eig(w)  # TypeError: eig
 | np.linalg.eig(w.detach())  # TypeError: eig
 | np.roots(x)  # TypeError: roots
 | np.spacing(x)  # TypeError: spacing
 | np.modf(y)  # TypeError: modf
 | np.spacing(n)  # TypeError: spacing
 | np.add.reduceat(n, [0])  # TypeError: add.reduceat
 | np.add.at(m, [0], x)  # TypeError: add
"""

SHAPES = """
 | x + tape.ones(2)  # RuntimeError: tensor a (3) must match...tensor b (2) at non-singleton dim...0
 | w * tape.ones(2, 2)  # RuntimeError: a (3) must match...b (2) at non-singleton dimension 1
 | m[:2] - x  # RuntimeError: a (2) must match...b (3) at non-singleton dimension 0
 | np.maximum(x, m[:2])  # RuntimeError: a (3) must match...b (2)
 | tape.where(b, x, tape.ones(2))  # RuntimeError: must match
 | x < tape.ones(2)  # RuntimeError: must match
 | tape.mm(w, w)  # RuntimeError: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)
 | w @ w  # RuntimeError: shapes cannot be multiplied (2x3 and 2x3)
 | w @ np.ones((2, 3))  # RuntimeError: shapes cannot be multiplied (2x3 and 2x3)
 | tape.mm(w, x)  # RuntimeError: mm
 | tape.mv(w, n[:2])  # RuntimeError: size
 | tape.mv(x, x)  # RuntimeError
 | x @ w  # RuntimeError: 3
 | w @ n[:2]  # RuntimeError: 2
 | tape.dot(x, n[:2])  # RuntimeError: 3...2
 | tape.dot(w, w)  # RuntimeError: dot
 | tape.matmul(x, s)  # RuntimeError: matmul
 | w.reshape(4)  # RuntimeError: shape '[4]' is invalid for input of size 6
 | w.reshape(-1, 4)  # RuntimeError: shape '[-1, 4]' is invalid for input of size 6
 | w.reshape(-1, -1)  # RuntimeError: only one dimension can be inferred
 | w.view(4)  # RuntimeError: shape '[4]' is invalid for input of size 6
v = w.T | v.view(6)  # RuntimeError: view...reshape(
 | w.transpose(0, 2)  # IndexError: Dimension out of range...[-2, 1], but got 2
 | w.permute(0, 0)  # RuntimeError: permute
 | w.permute(0)  # RuntimeError: permute
v = w[None] | v.t()  # RuntimeError: t()
 | x.squeeze(1)  # IndexError: Dimension out of range...[-1, 0], but got 1
 | x.unsqueeze(2)  # IndexError: Dimension out of range...[-2, 1], but got 2
 | w.flatten(1, 0)  # RuntimeError: start_dim
 | x.expand(2)  # RuntimeError: expand...(3)
 | x.expand(-1, 3)  # RuntimeError: expand
 | w.expand(3)  # RuntimeError: expand
 | w.sum(2)  # IndexError: Dimension out of range...[-2, 1], but got 2
 | w.mean(-3)  # IndexError: Dimension out of range...[-2, 1], but got -3
 | w.sum((0, 0))  # RuntimeError: dim 0 appears multiple times
 | w.max(2)  # IndexError: Dimension out of range...[-2, 1], but got 2
 | w.size(2)  # IndexError: Dimension out of range...[-2, 1], but got 2
 | tape.empty(0).max()  # (RuntimeError|IndexError): max
 | tape.empty(0, 2).min(0)  # IndexError: min
 | i.mean()  # RuntimeError: mean...dtype
 | tape.cat([w, x])  # RuntimeError: number of dimensions
 | tape.cat([w, tape.ones(2, 2)])  # RuntimeError: size...3...2
 | tape.cat([])  # (ValueError|RuntimeError): non-empty
 | tape.cat([x, 1.])  # TypeError: Tensor...float
 | tape.cat([w, w], 2)  # IndexError: Dimension out of range
 | tape.stack([x, w])  # RuntimeError: stack expects each tensor to be equal size...[3]...[2, 3]
 | tape.stack([])  # (ValueError|RuntimeError): non-empty
 | tape.stack([x, x], 3)  # IndexError: Dimension out of range
"""

INDICES = """
 | x[3]  # IndexError: index 3 is out of bounds for dimension 0 with size 3
 | x[-4]  # IndexError: index -4 is out of bounds for dimension 0 with size 3
 | w[0, 3]  # IndexError: index 3 is out of bounds for dimension 1 with size 3
 | w[:, -4]  # IndexError: index -4 is out of bounds for dimension 1 with size 3
 | x[0, 0]  # IndexError: too many indices for tensor of dimension 1
 | s[0]  # IndexError: 0-dim tensor
 | x[1.5]  # IndexError: ind
 | x["a"]  # (IndexError|TypeError): str
 | x[::0]  # ValueError: step
"""

CREATION = """
 | tape.from_numpy([1., 2.])  # TypeError: expected np.ndarray (got list)
 | tape.from_numpy(x)  # TypeError: expected np.ndarray (got Tensor)
 | tape.from_numpy(np.ones(3, ">f8"))  # (TypeError|ValueError): byte order...astype
 | tape.from_numpy(np.ones(3, ">i8"))  # (TypeError|ValueError): byte order...astype
 | tape.from_numpy(np.array(["a"]))  # TypeError: <U1
 | tape.from_numpy(np.array([None]))  # TypeError: object
 | tape.tensor([[1., 2.], [3.]])  # ValueError
 | tape.tensor(["a"])  # (TypeError|ValueError)
 | tape.tensor(None)  # (TypeError|RuntimeError): None
 | tape.tensor([x, 1.])  # (ValueError|RuntimeError|TypeError)
 | tape.tensor([1.], dtype="float9")  # TypeError: float9
 | tape.tensor([1.], device="cuda")  # (RuntimeError|ValueError): cuda
 | tape.zeros(2, device="cuda:0")  # (RuntimeError|ValueError): cuda
 | tape.randn(2, device="mps")  # (RuntimeError|ValueError): mps
 | x.to("cuda")  # (RuntimeError|ValueError): cuda
 | x.to(device="cuda")  # (RuntimeError|ValueError): cuda
 | tape.zeros(-1)  # (RuntimeError|ValueError): negative
 | tape.zeros("a")  # TypeError: str
 | tape.zeros(1.5)  # TypeError: float
 | tape.full((2,), "a")  # TypeError: full
 | tape.arange(0, 1, 0)  # (RuntimeError|ValueError): step
 | tape.arange(0, 1, -1)  # (RuntimeError|ValueError): arange
 | tape.linspace(0, 1, -1)  # (RuntimeError|ValueError): non-negative
 | tape.set_default_dtype(tape.int64)  # TypeError: floating
 | tape.manual_seed("a")  # (TypeError|RuntimeError|ValueError)
"""

OPERANDS = """
 | x + "a"  # TypeError: str
 | x * None  # TypeError: NoneType
 | None - x  # TypeError: NoneType
 | tape.log([1.])  # TypeError: list
 | tape.add("a", x)  # TypeError: str
 | tape.mm(w, 2.)  # (TypeError|RuntimeError): mm
 | tape.where(x, x, n)  # RuntimeError: bool
 | x.sin(2)  # TypeError: sin()
 | x.sum(0, 1, 2)  # TypeError: sum()
 | x.sum(dimension=0)  # TypeError: dimension
 | w.sum("a")  # TypeError: str
 | w.reshape("a")  # TypeError: str
 | w.reshape(2., 3)  # TypeError: float
 | tape.ones(2).log(base=2)  # TypeError: base
 | i ** -1  # (RuntimeError|ValueError): integers to negative integer powers
 | -b  # (RuntimeError|TypeError): bool
 | b - b  # (RuntimeError|TypeError): bool
 | x @ 2.  # TypeError: float
"""

IN_PLACE = """
 | x.add_(1)  # RuntimeError: a leaf Variable that requires grad is being used in an in-place operation
 | x.zero_()  # RuntimeError: a leaf Variable that requires grad
 | x[i] = 1.  # RuntimeError: a leaf Variable that requires grad
 | x[1:].mul_(2)  # RuntimeError: a view of a leaf Variable that requires grad is being used in an in-place operation
 | w[0][1:] += 1  # RuntimeError: a view of a leaf Variable that requires grad
v = n[:1].expand(3) | v.add_(1)  # RuntimeError: more than one element of the written-to tensor...clone()
 | n[:1].add_(n)  # RuntimeError: output with shape [1] doesn't match the broadcast shape [3]
 | i.mul_(1.5)  # RuntimeError: result type float64 can't be cast to the desired output type int64
 | n.copy_(n[:2])  # RuntimeError: copy_
 | n.copy_([1., 2., 3.])  # TypeError: copy_(): argument 'other' (position 1) must be Tensor, not list
 | n.fill_(n)  # RuntimeError: fill_ only supports 0-dimension value tensor but got tensor with 1 dimensions
 | n.masked_fill_(n, 0.)  # RuntimeError: masked_fill_ only supports boolean masks
 | n.masked_fill_(b[:2], 0.)  # RuntimeError: masked_fill_...must match the size
 | n.masked_fill_(b, n)  # RuntimeError: masked_fill_ only supports a 0-dimensional value tensor
 | n[:] = n[:2]  # RuntimeError: shape mismatch: value tensor of shape [2]...indexing result of shape [3]
 | n[i] = n  # RuntimeError: shape mismatch: value tensor of shape [3]...indexing result of shape [2]
 | n[i + 3] = 1.  # IndexError: out of bounds for dimension 0 with size 3
 | n[n] = 1.  # IndexError: must be integer or bool
 | n.index_put_(i, n)  # TypeError: index_put_: indices is a tuple
 | y[0] = "a"  # TypeError: str
 | tape.mul(x, 2, out=n)  # RuntimeError: mul...out=... arguments don't support automatic differentiation
 | tape.sin(n, out=x)  # RuntimeError: out=... arguments don't support automatic differentiation
 | tape.sin(n, out=m)  # TypeError: argument 'out' must be Tensor, not ndarray
 | tape.sin(n, out=n[:2])  # RuntimeError: sin(): out has shape [2], but the result [3]
 | tape.sin(n, out=i[[0, 0, 0]])  # RuntimeError: result type float64 can't be cast to...int64
"""

HOOKS = """
 | n.register_hook(print)  # RuntimeError: cannot register a hook on a tensor that doesn't require gradient
 | y.register_post_accumulate_grad_hook(print)  # RuntimeError: leaf
z = x * 2; h = z.register_hook(lambda g: g[:1]) | z.sum().backward()  # RuntimeError: '<lambda>' has changed the size
z = x * 2; h = z.register_hook(lambda g: 3.) | z.sum().backward()  # TypeError: expected Variable, but hook...float
z = x * 2; h = z.grad_fn.register_hook(lambda a, b: a * 2) | z.sum().backward()  # RuntimeError: number of values
 | tape.autograd.graph.register_multi_grad_hook([x], print, mode="some")  # ValueError: mode
"""

MODES = """
with tape.inference_mode(): v = tape.ones(3) | x * v  # RuntimeError: Inference tensors cannot be saved for backward
with tape.inference_mode(): v = tape.ones(3) | v.add_(1)  # RuntimeError: Inplace update to inference tensor outside
with tape.inference_mode(): v = tape.ones(3) | v.requires_grad_()  # RuntimeError: requires_grad=True on inference
with tape.inference_mode(): v = tape.ones(3) | v._version  # RuntimeError: do not track version counter
 | tape.first_nonfinite(m)  # TypeError: ndarray
 | tape.first_nonfinite(n)  # RuntimeError: does not require grad
"""

FUNCTIONS = """
 | call(lambda ctx, a: ctx.save_for_backward(1.))(x)  # TypeError: can only save variables, but argument 0 is...float
 | call(None)(x)  # NotImplementedError: You must implement the forward function for custom autograd.Function
z = call(lambda ctx, a: a * 2)(x) | z.sum().backward()  # NotImplementedError: either the backward or vjp method
z = call(lambda ctx, a: a * 2, lambda ctx, g: (g, g))(x) | z.sum().backward()  # RuntimeError: (expected 1, got 2)
z = call(lambda ctx, a: a * 2, lambda ctx, g: g[:2])(x) | z.sum().backward()  # RuntimeError: got [2] but expected...[3]
z = call(lambda ctx, a: a * 2, lambda ctx, g: 3.)(x) | z.sum().backward()  # RuntimeError: Variable or None (got float)
 | call(lambda ctx, a: ctx.mark_dirty(n), lambda ctx, g: g)(x)  # (RuntimeError|TypeError)
 | call(lambda ctx, a: a.detach().numpy(), lambda ctx, g: g)(x)  # TypeError: expected to return a Tensor
"""

TRANSFORMS = """
 | tape.func.grad(tape.sin)(n)  # RuntimeError: Expected f(*args) to return a scalar Tensor, got tensor with 1 dims
 | tape.func.grad(lambda a: 3.)(n)  # RuntimeError: to return
 | tape.func.jvp(tape.sin, (n,), (n[:2],))  # RuntimeError: size [3]...forward gradient is of size [2]
 | tape.func.jvp(tape.sin, n, n)  # RuntimeError: tuple
 | tape.vmap(tape.sin)(s)  # ValueError: vmap
 | tape.vmap(tape.add)(n, n[:2])  # ValueError: same size
 | tape.vmap(tape.sin, in_dims=3)(n)  # ValueError: in_dim
 | tape.vmap(lambda a: a if a > 1 else -a)(n)  # RuntimeError: data-dependent control flow
 | tape.vmap(lambda a: 3)(n)  # ValueError: vmap
 | tape.autograd.functional.hessian(tape.sin, n)  # RuntimeError: a single element
 | tape.autograd.functional.vjp(tape.sin, n, n[:2])  # RuntimeError: v has invalid size
 | tape.autograd.functional.jvp(tape.sin, n)  # RuntimeError: v
 | tape.autograd.functional.jacobian(lambda a: 3, n)  # TypeError: int
"""

CHECKS = """
 | tape.autograd.gradcheck(tape.sin, n)  # ValueError: at least one
 | tape.autograd.gradcheck(lambda a: a.detach() * 2 + a, x)  # RuntimeError: Jacobian mismatch for output 0 with respect
 | tape.autograd.gradcheck(lambda a: 3, x)  # (ValueError|RuntimeError|TypeError): int
"""

TABLES = {
    "backward": BACKWARD,
    "grad": GRAD,
    "flags": FLAGS,
    "to NumPy": TO_NUMPY,
    "NumPy without a record": NUMPY_WITHOUT_A_RECORD,
    "shapes": SHAPES,
    "indices": INDICES,
    "creation": CREATION,
    "operands": OPERANDS,
    "in place": IN_PLACE,
    "hooks": HOOKS,
    "modes": MODES,
    "functions": FUNCTIONS,
    "transforms": TRANSFORMS,
    "checks": CHECKS,
}
ROWS = [(name, row) for name, table in TABLES.items() for row in table.strip("\n").splitlines()]


def call(forward: Any, backward: Any = None) -> Any:
    """Return the call of a Function of these, or of one that lacks them."""
    given = {"forward": forward, "backward": backward}
    body = {name: staticmethod(function) for name, function in given.items() if function is not None}
    return type("F", (tape.autograd.Function,), body).apply


def start(setup: str) -> dict[str, Any]:
    names: dict[str, Any] = {"tape": tape, "np": np, "call": call}
    exec(START + setup, names)  # noqa: S102 (the programs are the tables above)
    return names


def state(names: dict[str, Any]) -> list[Any]:
    """Return copies of all that a user can see of the tensors and arrays."""
    seen: list[Any] = []
    for name, value in names.items():
        if isinstance(value, np.ndarray):
            seen += [name, value.tolist()]
        elif isinstance(value, tape.Tensor):
            seen += [name, value.tolist(), value.dtype, value.shape, value.requires_grad]
            seen += [value.is_leaf, value.grad_fn and value.grad_fn.name(), value.retains_grad]
            seen += [value.grad.tolist() if value.is_leaf and value.grad is not None else None]
    return seen


def swept(names: dict[str, Any]) -> list[Any]:
    """Sweep `y` backward and return the gradients, or the error where the graph is gone."""
    try:
        names["y"].sum().backward()
    except RuntimeError as error:
        return [str(error)]
    return [names["x"].grad.tolist(), names["w"].grad]


def is_gist_of(gist: str, text: str) -> bool:
    pattern = ".*".join(re.escape(part) for part in gist.split("..."))
    return re.search(pattern, text, re.DOTALL | re.IGNORECASE) is not None


def expected(comment: str) -> tuple[tuple[type[Exception], ...], str]:
    """Return the classes and the gist in `class: gist` or `(class|class): gist`."""
    kinds, _, gist = comment.partition(": ")
    return tuple(getattr(builtins, kind) for kind in kinds.strip("()").split("|")), gist


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{name}:{row}") for name, row in ROWS])
def test_error_and_nothing_else(row: str) -> None:
    program, _, comment = row.rpartition("  # ")
    setup, _, call = program.partition(" | ")
    kinds, gist = expected(comment)
    names = start(setup)
    gc.collect()
    before, length = state(names), recorded()
    with pytest.raises(kinds) as caught:
        exec(call, names)  # noqa: S102 (likewise)
    assert is_gist_of(gist, str(caught.value)), str(caught.value)
    del caught
    assert state(names) == before
    assert recorded() == length
    replica = start(setup)
    assert swept(names) == swept(replica)
    for handle in (some["h"] for some in (names, replica) if "h" in some):
        handle.remove()  # its hook refers to these names, and so to the tensor that it hooks


@pytest.mark.parametrize("make", [tape.tensor, tape.as_tensor, tape.from_numpy])
@pytest.mark.parametrize("layout", ["foreign", "unaligned"])
def test_memory_that_kernels_cannot_read_is_refused_or_converted(
    layout: str, make: Callable[[Any], tape.Tensor]
) -> None:
    values = np.arange(1.0, 4.0)
    array = values.astype(">f8")
    if layout == "unaligned":
        array = np.zeros(25, np.uint8)[1:].view(np.float64)
        array[:] = values
        assert not array.flags.aligned
    try:
        t = make(array).requires_grad_()
    except (TypeError, ValueError) as error:
        outcome: Any = str(error)
        assert make(array.astype("=f8").copy()).tolist() == [1, 2, 3], "the remedy"
    else:
        (t * t).sum().backward()
        outcome = t.grad.tolist()
    assert outcome == [2, 4, 6] or re.search("(byte order|align).*astype", outcome)


# Each on a line of its own: a line warns once.
LEAVING: dict[str, Callable[[Any], float]] = {
    "float": lambda t: float(t) + 0,
    "int": lambda t: int(t) + 0,
    "math.floor": lambda t: math.floor(t) + 0,
    "computed": lambda t: float(t * 1),
}


@pytest.mark.parametrize("leave", LEAVING.values(), ids=LEAVING)
def test_value_that_leaves_for_python_warns(leave: Callable[[Any], float]) -> None:
    t = tape.tensor(2.0, requires_grad=True)
    with pytest.warns(DetachWarning, match=r"\.item\(\)") as caught:
        value = leave(t)
    assert value == leave(2.0)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_detach_warning_once_per_line() -> None:
    t = tape.tensor(2.0, requires_grad=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            float(t)
        float(t)
    assert [one.category for one in caught] == [DetachWarning] * 2
    assert len({one.lineno for one in caught}) == 2


def test_detach_warning_is_a_user_warning() -> None:
    assert issubclass(DetachWarning, UserWarning)


def test_no_warning_where_nothing_is_lost() -> None:
    t = tape.tensor(2.0, requires_grad=True)
    constant = tape.tensor(2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = [t.item(), t.tolist(), float(t.detach()), float(constant), math.sqrt(constant)]
        text = f"{t:.1f} {constant:.1f} {t > 1} {bool(t)}"
        with tape.no_grad():
            values.append(float(t * 1))
    assert values == [2.0, 2.0, 2.0, 2.0, math.sqrt(2.0), 2.0]
    assert text == "2.0 2.0 True True"


def test_an_error_leaves_the_modes_alone() -> None:
    x = tape.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="match"), tape.no_grad():
        x + tape.ones(3)
    assert tape.is_grad_enabled()
    assert (x * 2).requires_grad
