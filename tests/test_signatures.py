"""Parameters have names: help, completion and keywords agree with PyTorch's, for what is printed from records too."""

import copy
import inspect
import pickle
import pydoc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pytorch_outcomes import Outcomes

import tape

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


NOT_ALIKE = {
    "as_tensor", "tensor", "split", "hsplit", "vsplit", "dsplit", "tensor_split", "einsum", "tensordot",
    "det", "slogdet", "logdet", "matrix_exp", "matrix_power", "cholesky_inverse", "cholesky_solve", "vander",
    "ldexp", "normal",
    "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_shapes", "svd", "qr", "isin", "result_type", "save",
}  # fmt: skip
"""Functions that PyTorch writes in Python, or whose documentation and schema differ."""


def positional_names(torch: Any) -> dict[str, list[list[str]]]:
    """Return the names of the positional parameters of each overload of PyTorch's functions that we have, too."""
    packets = {name: getattr(torch.ops.aten, name, None) for name in FUNCTIONS if name not in NOT_ALIKE}
    return {
        name: [
            sorted(a.name for a in getattr(packet, one)._schema.arguments if not a.kwarg_only)
            for one in packet.overloads()
        ]
        for name, packet in packets.items()
        if packet is not None
    }


def test_names_are_those_of_pytorch(pytorch: Outcomes) -> None:
    """One overload of PyTorch's at least has no positional parameter that ours lacks."""
    wrong, seen = {}, 0
    for name, overloads in pytorch(positional_names, "positional parameters").items():
        ours = set(inspect.signature(FUNCTIONS[name]).parameters)
        theirs = [set(names) - {"self"} | {"input"} for names in overloads if "self" in names]
        seen += bool(theirs)
        if theirs and not any(names <= ours for names in theirs):
            wrong[name] = (sorted(ours), [sorted(names) for names in theirs])
    assert not wrong
    assert seen > 200
