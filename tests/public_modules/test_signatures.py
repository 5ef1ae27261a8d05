"""Parameters have names: help, completion and keywords agree with PyTorch's, for what is printed from records too."""

import copy
import importlib
import inspect
import pickle
import pydoc
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from tests.support.pytorch_outcomes import Outcomes

X, Y = np.array([[0.5, 0.25], [0.75, 1.5]]), np.array([[1.5, 0.5], [2.5, 0.25]])
FUNCTIONS = {name: getattr(tape, name) for name in tape.functions.__all__}
ELEMENTWISE = sorted(name for name, f in FUNCTIONS.items() if [*inspect.signature(f).parameters][-1] == "out")


def parameters(function: Any) -> list[str]:
    return [n for n, p in inspect.signature(function).parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD]


def call(function: Callable[..., Any], *operands: Any, **named: Any) -> Any:
    return function(*map(tape.tensor, operands), **{name: tape.tensor(value) for name, value in named.items()})


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_operands_by_keyword(name: str) -> None:
    function = FUNCTIONS[name]
    names = parameters(function)
    whole = any(word in name for word in ("bitwise", "shift", "gcd", "lcm", "invert"))
    operands = [np.array([[1, 2], [3, 4]])] * 3 if whole else [X > 1, X, Y] if names[0] == "condition" else [X, Y]
    expected = np.asarray(call(function, *operands[: len(names)]))
    for _ in range(3):  # the third time native code repeats what it can
        given = dict(zip(names, operands, strict=False))
        assert np.array_equal(np.asarray(call(function, **given)), expected, equal_nan=True)
        backwards = dict(reversed(given.items()))
        assert np.array_equal(np.asarray(call(function, **backwards)), expected, equal_nan=True)
        last = {names[-1]: operands[len(names) - 1]}
        assert np.array_equal(np.asarray(call(function, *operands[: len(names) - 1], **last)), expected, equal_nan=True)


@pytest.mark.parametrize("name", ["exp", "maximum", "where", "mul", "isnan", "sigmoid"])
def test_alpha_is_where_pytorch_has_it(name: str) -> None:
    names = parameters(FUNCTIONS[name])
    with pytest.raises(TypeError, match=f"{name}.*alpha|multiply.*alpha"):
        FUNCTIONS[name](*[tape.tensor(X)] * len(names), alpha=2)
    assert tape.add(tape.tensor(X), tape.tensor(Y), alpha=3).tolist() == (X + 3 * Y).tolist()
    assert tape.tensor(X).sub(tape.tensor(Y), alpha=2).tolist() == (X - 2 * Y).tolist()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda _: tape.exp(), "exp() missing 1 required positional argument: 'input'"),
        (lambda x: tape.exp(x, x), "exp() takes 1 positional argument but 2 were given"),
        (tape.maximum, "maximum() missing 1 required positional argument: 'other'"),
        (tape.Tensor.maximum, "maximum() missing 1 required positional argument: 'other'"),
        (lambda x: tape.exp(y=x), "exp() got an unexpected keyword argument 'y'"),
        (lambda x: x.pow(x, power=2), "power() got an unexpected keyword argument 'power'"),
    ],
)
def test_wrong_arguments_are_named(call: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(TypeError) as caught:
        call(tape.tensor(X))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "operands", "named"),
    [
        ("sum", (X,), {"dim": 1}), ("mean", (X,), {"dim": 0, "keepdim": True}), ("amax", (X,), {"dim": 1}),
        ("cumsum", (X,), {"dim": 1}), ("softmax", (X,), {"dim": 1}), ("logsumexp", (X,), {"dim": 1}),
        ("var", (X,), {"dim": 1, "correction": 0}), ("flip", (X,), {"dims": (0,)}), ("diagonal", (X,), {}),
        ("clamp", (X,), {"min": 0.6}), ("div", (X, Y), {"rounding_mode": "floor"}), ("sort", (X,), {"dim": 0}),
        ("transpose", (X,), {"dim0": 0, "dim1": 1}), ("reshape", (X,), {"shape": (4,)}), ("tril", (X,), {}),
        ("gather", (X,), {"dim": 1, "index": np.array([[0], [1]])}), ("prod", (X,), {"dim": 0}),
        ("roll", (X,), {"shifts": 1}),
        ("squeeze", (X[:1],), {"dim": 0}), ("unsqueeze", (X,), {"dim": 0}), ("norm", (X,), {"p": 1, "dim": 1}),
    ],
)  # fmt: skip
def test_the_first_argument_is_input(name: str, operands: tuple[Any, ...], named: dict[str, Any]) -> None:
    """By keyword in any place, again and again, with other values between: nothing is taken for something else."""
    function = FUNCTIONS.get(name) or getattr(tape, name)
    keywords = dict(zip(("input", "other"), operands, strict=False))

    def values(found: Any) -> list[Any]:
        return [np.asarray(one) for one in (found if isinstance(found, tuple) else (found,))]

    def tensors(given: dict[str, Any]) -> dict[str, Any]:
        return {k: tape.tensor(v) if isinstance(v, np.ndarray) else v for k, v in given.items()}

    expected = values(function(*map(tape.tensor, operands), **tensors(named)))
    doubled = values(function(*(tape.tensor(2 * x) for x in operands), **tensors(named)))
    for _ in range(3):
        for factor, wanted in ((1, expected), (2, doubled)):
            given = {k: factor * v for k, v in keywords.items()}
            for arguments in (given | named, named | given):
                found = values(function(**tensors(arguments)))
                assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("name", ["exp", "add", "sum", "amax", "cat", "where", "softmax", "sort"])
def test_functions_are_pickled_by_name_and_copied_as_themselves(name: str) -> None:
    function = getattr(tape, name)
    assert pickle.loads(pickle.dumps(function)) is function  # noqa: S301 (made here)
    assert copy.deepcopy(function) is function
    assert copy.copy(function) is function
    assert repr(function).startswith(f"<function {function.__name__} at 0x")
    shown = pydoc.render_doc(function, renderer=pydoc.plaintext)
    assert f"{function.__name__}({', '.join(inspect.signature(function).parameters)[:3]}" in shown


MODULES = (
    "tape", "tape.linalg", "tape.special", "tape.func", "tape.autograd", "tape.autograd.functional",
    "tape.autograd.forward_ad", "tape.autograd.graph", "tape.autograd.function", "tape.sparse", "tape.quadrature",
    "tape.optimize", "tape.stats", "tape.testing", "tape.errors", "tape.random", "tape.array_api", "tape.implicit",
    "tape.interpolate", "tape.ndimage", "tape.ode", "tape.signal", "tape.uncertainty",
)  # fmt: skip
"""Modules whose functions are public, and so have parameters that help tells of."""

OPEN = {
    "sizes in a row": """
        empty ones rand randn zeros reshape permute flip tile Tensor.expand Tensor.flip Tensor.new Tensor.new_empty
        Tensor.new_ones Tensor.new_zeros Tensor.permute Tensor.repeat Tensor.reshape Tensor.resize_
        Tensor.sum_to_size Tensor.tile Tensor.transpose Tensor.view""",
    "tensors, or shapes, in a row": """
        atleast_1d atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors cartesian_prod chain_matmul
        einsum linalg.block_diag meshgrid result_type""",
    "sizes, or what is to be held": """
        Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor IntTensor LongTensor ShortTensor""",
    "arguments of the user's function": """
        checkpoint record func.vjp func.linearize implicit.root implicit.fixed_point implicit.minimize
        implicit.linear_solve ode.solve quadrature.quad""",
    "names that the user gives": "parameters",
    "options that SciPy names, which are others from version to version": "optimize.least_squares",
    "a dtype, a device or a tensor, in any order": "Tensor.to",
    "an index, as NumPy's method takes it": "Tensor.item",
    "NumPy's own functions, or their arguments": """
        dtype array_api.broadcast_arrays array_api.clip array_api.einsum array_api.gradient array_api.meshgrid
        array_api.pad array_api.result_type""",
    "bounds, the first of which PyTorch names by Python's keyword from": "Tensor.random_",
}
"""Why functions take any number of arguments, and which: in PyTorch, NumPy and SciPy they do, too."""

NO_SIGNATURE = {
    "tape.autograd.GradcheckError", "tape.errors.CompileWarning", "tape.errors.DetachWarning",
    "tape.errors.ConvergenceError", "tape.errors.FileFormatError", "tape.errors.GradError", "tape.linalg.LinAlgError",
    "tape.ode.StepError",
}  # fmt: skip
"""Classes whose constructor is a builtin's, without one."""


def offered() -> list[tuple[str, Callable[..., Any]]]:
    """Return all that is public and can be called, with the name that it is asked for by."""
    found = []
    for path in MODULES:
        module = importlib.import_module(path)
        found += [(f"{path}.{name}", getattr(module, name)) for name in module.__all__]
    members = [(f"tape.Tensor.{name}", getattr(tape.Tensor, name)) for name in dir(tape.Tensor) if name[0] != "_"]
    return [(name, one) for name, one in found + members if callable(one) and name not in NO_SIGNATURE]


OFFERED = dict(offered())


def is_open(function: Any) -> bool:
    """Whether a function takes what its signature has no name for."""
    return any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in inspect.signature(function).parameters.values())


def test_every_argument_has_a_name() -> None:
    expected = {f"tape.{name}" for names in OPEN.values() for name in names.split()}
    assert {name for name, function in OFFERED.items() if is_open(function)} == expected


def test_keywords_are_all_named() -> None:
    """Any number of keywords is taken only where the user's function, or SciPy, names them."""
    assert {
        name.removeprefix("tape.") for name, function in OFFERED.items()
        if any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())
    } == {
        "checkpoint", "dtype", "parameters", "record", "optimize.least_squares", "array_api.clip", "array_api.einsum",
        "array_api.pad",
    }  # fmt: skip


def test_modules_tell_what_is_public() -> None:
    for path in (*MODULES, "tape.continuous"):
        module = importlib.import_module(path)
        assert all(hasattr(module, name) for name in module.__all__), path


def refused(function: Callable[..., Any]) -> str:
    """Return what a function says to a keyword that it does not have."""
    needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    given = [tape.ones(2, 2) for p in needed if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    try:
        function(*given, **{p.name: True for p in needed if p.kind is p.KEYWORD_ONLY}, nonsense=1)
    except TypeError as error:
        return str(error)
    return ""


HANDED_ON = {"tape.checkpoint", "tape.parameters", "tape.record", "tape.optimize.least_squares"}


@pytest.mark.parametrize("path", [*MODULES, "tape.Tensor"])
def test_unknown_keywords_are_named(path: str) -> None:
    """TypeError, with the function's name and the keyword: before anything else is looked at."""
    functions = {
        name: function for name, function in OFFERED.items()
        if name.rpartition(".")[0] == path and name not in HANDED_ON and not inspect.isclass(function)
        and hasattr(function, "__name__")  # no object that is called, as a distribution
        and not isinstance(function, type(np.clip))  # NumPy's own, which names what serves it
    }  # fmt: skip
    told = {name: refused(function) for name, function in functions.items()}
    wanted = re.compile(r"(?<!\w)[a-z_]\w*\(\) got an unexpected keyword argument 'nonsense'")
    assert {name: said for name, said in told.items() if not wanted.search(said)} == {}


def test_methods_take_no_out() -> None:
    x = tape.tensor([0.25, 0.5])
    for name in ("exp", "add", "sigmoid", "maximum", "isnan", "pow", "lt"):
        method = getattr(tape.Tensor, name)
        operands = [x] * len(parameters(method))
        for _ in range(3):
            method(*operands)  # natively, too
            with pytest.raises(TypeError, match=rf"{method.__name__}\(\) got an unexpected keyword argument 'out'"):
                method(*operands, out=tape.empty(2))
    members = {name for name, function in OFFERED.items() if "out" in inspect.signature(function).parameters}
    of_numpy = ("cumsum", "cumprod", "take", "ptp")  # np.cumsum(x) calls x.cumsum
    assert {name for name in members if name.startswith("tape.Tensor.")} == {f"tape.Tensor.{n}" for n in of_numpy}


CALLS = """
x.lerp_(end=x + 1, weight=0.5)
x.clamp_(min=0.3, max=0.6)
x.addcmul_(tensor1=x, tensor2=x, value=2.0)
x.round_(decimals=1)
x.clone().addmm_(mat1=x, mat2=x, beta=0.5, alpha=2)
x.cumsum_(dim=1)
x.renorm_(p=2, dim=0, maxnorm=0.5)
x.div_(other=x, rounding_mode="floor")
x.add_(x, alpha=3)
x.sub_(other=x, alpha=0.5)
x.mul_(other=x)
x.swapaxes_(axis0=0, axis1=1)
x.swapdims_(dim0=0, dim1=1)
x.transpose_(dim0=0, dim1=1)
x.squeeze_(dim=0)
x.nan_to_num_(nan=1.0)
x.new_zeros(size=(2,))
x.new_full((2,), fill_value=3.0)
x.new_ones(2, 3)
x.new_tensor(data=[1.0])
x.new_empty(size=(2, 0))
torch.full_like(x, fill_value=2.0)
torch.zeros_like(input=x, dtype=torch.float32)
torch.ones_like(x, memory_format=torch.preserve_format, pin_memory=False, layout=torch.strided)
torch.zeros(size=(2,), layout=torch.strided, requires_grad=True)
torch.full((2,), 1.5)
torch.empty((2, 0), memory_format=torch.contiguous_format)
torch.eye(n=2, m=3)
torch.arange(start=1, end=4, pin_memory=False)
torch.linspace(start=0, end=1, steps=3)
x.double(memory_format=torch.preserve_format)
x.clone(memory_format=torch.preserve_format)
x.to(torch.float32, non_blocking=True)
x.to("cpu", torch.float32, False, True)
x.contiguous(memory_format=torch.contiguous_format)
x.resize_as_(the_template=x)
torch.hsplit(x, indices=(1,))
torch.hsplit(x, sections=2)
x.split(split_size=1)
torch.tensor_split(x, indices=(1,))
x[0].dot(tensor=x[1])
torch.linalg.det(A=x)
torch.det(input=x)
torch.linalg.cond(input=x)
torch.linalg.inv(A=x)
torch.inverse(input=x)
torch.linalg.matrix_norm(input=x)
torch.linalg.matrix_power(input=x, n=2)
torch.matrix_power(input=x, n=-1)
torch.linalg.slogdet(A=x)[1]
torch.logdet(input=x @ x.T)
torch.linalg.vector_norm(input=x)
torch.linalg.lstsq(input=x, b=x)[0]
torch.linalg.solve_triangular(input=x, B=x, upper=True)
torch.linalg.solve(A=x, B=x)
torch.cholesky_inverse(input=x.tril())
torch.cholesky_solve(input=x, input2=x.tril())
torch.linalg.eigvalsh(input=x + x.T)
torch.linalg.cholesky(input=x @ x.T)
""".strip().splitlines()


@pytest.mark.parametrize("text", CALLS)
def test_keywords_are_those_of_pytorch(text: str, pytorch: Outcomes) -> None:
    """The same call, with PyTorch's keywords, in both."""

    def run(library: Any) -> Any:
        x = library.tensor([[0.5, 0.25], [0.75, 1.5]], dtype=library.float64)
        return eval(text, {"torch": library, "x": x})  # noqa: S307 (the table above)

    ours, theirs = run(tape), pytorch(run, text)
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (ours, theirs)), strict=True):
        assert tuple(a.shape) == tuple(b.shape)
        assert str(a.dtype) == str(b.dtype).removeprefix("torch.")
        assert a.requires_grad == b.requires_grad
        assert np.allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (tape.det, TypeError, "det() missing 1 required positional argument: 'input'"),
        (tape.linalg.det, TypeError, "det() missing 1 required positional argument: 'A'"),
        (tape.linalg.cond, TypeError, "cond() missing 1 required positional argument: 'A'"),
        (lambda: tape.linalg.cond(tape.eye(2), input=1), TypeError, "cond() got multiple values for argument 'A'"),
        (lambda: tape.linalg.cond(A=1, input=1), TypeError, "cond() got 'A' and 'input', which are names of one"),
        (lambda: tape.zeros(2, size=(3,)), TypeError, "zeros() got multiple values for argument 'size'"),
        (lambda: tape.zeros_like([1.0]), TypeError, "zeros_like(): argument 'input' (position 1) must be Tensor"),
        (lambda: tape.zeros(2, pin_memory=True), RuntimeError, "zeros(): pin_memory=True requires an accelerator"),
        (lambda: tape.rand(2, layout="sparse_coo"), RuntimeError, "rand(): layout sparse_coo is not supported"),
        (lambda: tape.ones(2).clone(memory_format="channels_last"), RuntimeError, "clone(): memory format channels"),
        (tape.Program, TypeError, "a Program is made by tape.record"),
    ],
)  # fmt: skip
def test_messages_name_function_and_argument(call: Callable[[], Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=re.escape(said)):
        call()


def test_memory_formats_are_named_and_pickled() -> None:
    for one in (tape.strided, tape.contiguous_format, tape.preserve_format):
        assert pickle.loads(pickle.dumps(one)) is one  # noqa: S301 (made here)
        assert getattr(tape, repr(one).removeprefix("tape.")) is copy.deepcopy(one) is one
    assert isinstance(tape.preserve_format, tape.memory_format)
    assert isinstance(tape.strided, tape.layout)


def test_help_of_a_program_is_for_its_users() -> None:
    shown = pydoc.render_doc(tape.Program, renderer=pydoc.plaintext)
    assert "recorder" not in shown.lower().replace("the recorder", "")
    assert "tape.record(function, *examples)" in shown
    assert list(inspect.signature(tape.Program).parameters) == []


def test_distributions_show_their_parameters() -> None:
    assert str(inspect.signature(tape.stats.gamma)) == "(a, loc=0.0, scale=1.0)"
    assert str(inspect.signature(tape.stats.poisson)) == "(mu, loc=0.0)"


NOT_ALIKE = {
    "as_tensor", "tensor", "einsum", "tensordot", "ldexp", "normal", "split", "hsplit", "vsplit", "dsplit",
    "tensor_split", "cholesky_solve", "vander", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_shapes", "svd",
    "qr", "isin", "result_type", "save", "seed", "initial_seed", "manual_seed",
    "Tensor.new_full", "Tensor.where", "Tensor.polygamma", "Tensor.to", "Tensor.uniform_", "Tensor.random_",
    "Tensor.cholesky_solve", "Tensor.split", "Tensor.hsplit", "Tensor.vsplit", "Tensor.dsplit", "Tensor.tensor_split",
    "linalg.cond", "linalg.cholesky", "linalg.cholesky_ex", "linalg.eigh", "linalg.eigvalsh", "linalg.ldl_factor",
    "linalg.ldl_factor_ex", "linalg.lstsq", "linalg.matrix_exp", "linalg.matrix_norm", "linalg.matrix_power",
    "linalg.matrix_rank", "linalg.norm", "linalg.pinv", "linalg.solve_triangular", "linalg.tensorinv",
    "linalg.tensorsolve", "linalg.vector_norm", "special.logsumexp",
}  # fmt: skip
"""Functions of PyTorch in Python, or whose documentation and schema differ; most take the schema's name too."""


def public_functions(path: str) -> dict[str, Any]:
    """Return what is called as PyTorch's is, by name."""
    home = getattr(tape, path) if path else tape
    names = dir(home) if path == "Tensor" else home.__all__
    found = {name: getattr(home, name) for name in names if name[0] != "_"}
    left_out = {name for name in found if (f"{path}.{name}" if path else name) in NOT_ALIKE}
    return {n: f for n, f in found.items() if callable(f) and not inspect.isclass(f) and n not in left_out}


def positional_names(torch: Any, path: str) -> dict[str, list[list[str]]]:
    """Return the names of the positional parameters of each overload of PyTorch's functions that we have, too."""
    found = {}
    for name in public_functions(path):
        packet = getattr(torch.ops.aten, {"linalg": "linalg_", "special": "special_"}.get(path, "") + name, None)
        overloads = [] if packet is None else [getattr(packet, one)._schema.arguments for one in packet.overloads()]
        of_tensors = [one for one in overloads if {a.name for a in one} & {"self", "A", "x", "LU"}]
        if of_tensors:
            found[name] = [[a.name for a in one if not a.kwarg_only] for one in of_tensors]
    return found


@pytest.mark.parametrize(("path", "least"), [("", 250), ("linalg", 8), ("special", 30), ("Tensor", 250)])
def test_names_are_those_of_pytorch(path: str, least: int, pytorch: Outcomes) -> None:
    """One overload of PyTorch's at least has no positional parameter that ours lacks; a method's own is left out."""
    first = 1 if path == "Tensor" else 0
    ours = {name: [*inspect.signature(f).parameters][first:] for name, f in public_functions(path).items()}
    theirs = pytorch(lambda torch: positional_names(torch, path), f"positional parameters of {path or 'tape'}")
    wrong = {
        name: (ours[name], overloads) for name, overloads in theirs.items()
        if not any({"input" if n == "self" else n for n in names[first:]} <= {*ours[name]} for names in overloads)
    }  # fmt: skip
    assert not wrong
    assert len(theirs) > least


def test_distributions_and_their_classes_have_signatures() -> None:
    assert str(inspect.signature(tape.stats.norm)) == "(loc=0.0, scale=1.0)"
    assert list(inspect.signature(tape.stats.gamma).parameters) == ["a", "loc", "scale"]
    assert list(inspect.signature(type(tape.stats.norm)).parameters) == []
    assert not hasattr(tape.continuous.Law, "__signature__")
