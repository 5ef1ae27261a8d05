"""Anomaly mode and first_nonfinite: NaNs planted at known elements, and what is said of them."""

from __future__ import annotations

import gc
import inspect
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tape
from kernels.kinds.reference_tape import instructions
from kernels.sweeps import reverse
from tape.autograd import detect_anomaly, set_detect_anomaly
from tape.checks.first_nonfinite import NonFinite, _graph
from tape.engine.saved_tensors import Values
from tape.recording.record import recorded
from tape.tensors import modes
from tests.support.pytorch_outcomes import Outcomes

pytestmark = [
    pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:divide by zero", "ignore:invalid value"),
    pytest.mark.filterwarnings("ignore:overflow", "ignore:Error detected in"),
]


@pytest.fixture(params=[True, False], ids=["native", "plain"])
def sweep(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run the test with both sweeps."""
    if request.param and not reverse.NATIVE:
        pytest.skip("this interpreter's memory cannot be read")
    monkeypatch.setattr(reverse, "NATIVE", request.param)
    return bool(request.param)


@pytest.fixture(autouse=True)
def _own_tape() -> None:
    """Record on a tape of which no other test knows."""
    modes._thread_tape.set(None)
    modes.set_mode(modes.current())


Program = Callable[[Any], Any]


def leaf(lib: Any, *values: Any) -> Any:
    return lib.tensor(list(values), dtype=lib.float64, requires_grad=True)


def lines() -> dict[int, Any]:
    return modes.own_tape().lines


# Programs with a NaN in backward: what the error names, the element, and the text of the line that recorded it.


def of_sqrt(lib: Any) -> Any:
    x = leaf(lib, 1.0, 0.0, 4.0)
    y = x.sqrt()  # planted
    return (y * 0).sum()


def of_sqrt_through_a_view(lib: Any) -> Any:
    x = leaf(lib, 4.0, 9.0, 0.0, 1.0)
    y = x.reshape(2, 2)[1:].sqrt()  # planted
    return (y * 0).sum()


def of_a_transposed(lib: Any) -> Any:
    x = leaf(lib, [1.0, 2.0], [0.0, 4.0])
    y = x.t().sqrt()  # planted
    return (y * 0).sum()


def of_an_in_place(lib: Any) -> Any:
    x = leaf(lib, 1.0, 2.0, 3.0)
    y = x * 1
    y[1] = 0.0
    y.sqrt_()  # planted
    return (y * 0).sum()


def of_an_operator(lib: Any) -> Any:
    x = leaf(lib, 1.0, 0.0)
    y = x / leaf(lib, 2.0, 0.0)  # planted
    return (y * lib.tensor([1.0, 0.0], dtype=lib.float64)).sum()


def of_a_second_operand(lib: Any) -> Any:
    x = lib.tensor([1.0, 0.0], dtype=lib.float64)
    y = x / leaf(lib, 2.0, 0.0)  # planted
    return (y * lib.tensor([1.0, 0.0], dtype=lib.float64)).sum()


def of_a_number_on_the_left(lib: Any) -> Any:
    y = 1 / leaf(lib, 1.0, 0.0, 2.0)  # planted
    return (y * 0).sum()


def of_a_power(lib: Any) -> Any:
    y = leaf(lib, 1.0, 0.0) ** 0.5  # planted
    return (y * 0).sum()


def of_a_product_with_nan(lib: Any) -> Any:
    x = leaf(lib, [1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    y = x * lib.tensor([1.0, 2.0, float("nan")], dtype=lib.float64)  # planted
    return y.sum()


def of_a_broadcast(lib: Any) -> Any:
    x = leaf(lib, 0.0, 4.0).sqrt()  # planted
    return (x * lib.zeros((3, 2), dtype=lib.float64)).sum()


def of_a_matrix_product(lib: Any) -> Any:
    x = leaf(lib, [1.0, 2.0], [3.0, 4.0])
    y = x @ lib.tensor([[1.0, float("nan")], [1.0, 1.0]], dtype=lib.float64)  # planted
    return y.sum()


def of_a_number(lib: Any) -> Any:
    x = lib.tensor(0.0, dtype=lib.float64, requires_grad=True)
    y = x.log()  # planted
    return y * 0


def of_where(lib: Any) -> Any:
    x = leaf(lib, 1.0, 2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = lib.where(x > 1, x * float("nan"), x)  # planted
    return y.sum()


PLANTED = {
    of_sqrt: ("SqrtBackward0", 0, "x[1]"),
    of_sqrt_through_a_view: ("SqrtBackward0", 0, "x[0, 0]"),
    of_a_transposed: ("SqrtBackward0", 0, "x[0, 1]"),
    of_an_in_place: ("SqrtBackward0", 0, "x[1]"),
    of_an_operator: ("DivBackward0", 0, "a[1]"),
    of_a_second_operand: ("DivBackward0", 1, "b[1]"),
    of_a_number_on_the_left: ("MulBackward0", 1, "b[1]"),
    of_a_power: ("PowBackward0", 0, "x[1]"),
    of_a_product_with_nan: ("MulBackward0", 0, "a[0, 2]"),
    of_a_broadcast: ("SqrtBackward0", 0, "x[0]"),
    of_a_matrix_product: ("MmBackward0", 0, "a[0, 0]"),
    of_a_number: ("LogBackward0", 0, "x"),
    of_where: ("MulBackward0", 0, "a[1]"),
}


@pytest.mark.quick
@pytest.mark.usefixtures("sweep")
@pytest.mark.parametrize("program", PLANTED, ids=lambda p: p.__name__)
def test_planted(program: Program) -> None:
    name, place, element = PLANTED[program]
    loss = recorded_by(program)
    with detect_anomaly(), pytest.raises(RuntimeError) as caught:
        loss.backward()
    text, number = planted_line(program)
    said = str(caught.value)
    assert said.startswith(f"Function '{name}' returned nan values in its {place}th output. ")
    assert f"The gradient of its operand {element} is nan" in said
    assert said.endswith(f"Forward call: {__file__}:{number}: {text}")


def recorded_by(program: Program) -> Any:
    with detect_anomaly():
        return program(tape)


def planted_line(program: Program) -> tuple[str, int]:
    source, start = inspect.getsourcelines(program)
    (at,) = [k for k, line in enumerate(source) if "# planted" in line]
    return source[at].strip(), start + at


ALIKE = [program for program in PLANTED if program is not of_a_number_on_the_left]
"""Not that one: PyTorch makes it of a reciprocal and a product."""


@pytest.mark.parametrize("program", ALIKE, ids=lambda p: p.__name__)
def test_planted_with_pytorch(program: Program, pytorch: Outcomes) -> None:
    def run(torch: Any) -> None:
        with torch.autograd.detect_anomaly():
            program(torch).backward()

    name, place, _ = PLANTED[program]
    found = pytorch.or_error(run, program.__name__)
    assert "RuntimeError" in found.classes
    assert found.text == f"Function '{name}' returned nan values in its {place}th output."


@pytest.mark.usefixtures("sweep")
@pytest.mark.parametrize("program", PLANTED, ids=lambda p: p.__name__)
def test_planted_in_a_recorded_backward(program: Program) -> None:
    name, place, element = PLANTED[program]
    loss = recorded_by(program)
    with detect_anomaly(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match=f"Function '{name}' returned nan values in its {place}th") as caught:
            loss.backward(create_graph=True)
    assert f"operand {element} is nan" in str(caught.value)


def test_known_values_are_told() -> None:
    with detect_anomaly(), pytest.raises(RuntimeError, match="returned nan") as caught:
        (leaf(tape, 1.0, 3.0, 0.0) / leaf(tape, 1.0, 2.0, 0.0) * 0).sum().backward()
    assert "(a[2] = 0.0, b[2] = 0.0, incoming gradient[2] = 0.0)" in str(caught.value)
    with detect_anomaly(), pytest.raises(RuntimeError, match="returned nan") as caught:
        (tape.ones((2, 2), requires_grad=True) * tape.tensor([1.0, np.nan])).sum().backward()
    assert "operand a[0, 1] is nan (b[1] = nan, incoming gradient[0, 1] = 1.0)" in str(caught.value)


# The mode


def test_it_warns_that_it_is_on() -> None:
    message = "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled"
    with pytest.warns(UserWarning, match=message) as given:
        detect_anomaly()
    assert given[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with set_detect_anomaly(True):
            assert modes.current().anomaly is not None


def is_on() -> bool:
    tape.exp(leaf(tape, 1.0))
    found = bool(lines())
    lines().clear()
    return found


@pytest.mark.quick
def test_nesting() -> None:
    assert not is_on()
    with detect_anomaly():
        assert is_on()
        with set_detect_anomaly(False):
            assert not is_on()
            with detect_anomaly():
                assert is_on()
            assert not is_on()
        assert is_on()
        with tape.no_grad():
            assert not is_on()
            with tape.enable_grad():
                assert is_on()
        assert is_on()
    assert not is_on()


def test_other_modes_stay() -> None:
    with detect_anomaly():
        tape.set_grad_enabled(False)
    assert not tape.is_grad_enabled()
    with tape.enable_grad():
        set_detect_anomaly(True)
    assert not tape.is_grad_enabled()
    tape.set_grad_enabled(True)
    assert is_on()
    set_detect_anomaly(False)
    assert not is_on()


def test_set_as_a_function_and_as_a_context() -> None:
    set_detect_anomaly(True)
    with set_detect_anomaly(False):
        assert not is_on()
    assert is_on()
    within = set_detect_anomaly(False)
    assert not is_on()
    with within:
        assert not is_on()
    assert is_on()
    set_detect_anomaly(False)
    assert not is_on()


def test_decorators() -> None:
    assert detect_anomaly()(is_on)()
    with detect_anomaly():
        assert set_detect_anomaly(False)(is_on)() is False
        assert is_on()
    assert not is_on()

    @detect_anomaly()
    def generate() -> Iterator[bool]:
        yield is_on()
        yield is_on()

    generator = generate()
    assert next(generator)
    assert not is_on()
    assert list(generator) == [True]


def test_the_mode_is_of_its_thread() -> None:
    found: list[bool] = []
    with detect_anomaly():
        thread = threading.Thread(target=lambda: found.append(is_on()))
        thread.start()
        thread.join()
        assert is_on()
    assert found == [False]


def test_without_the_check_lines_are_noted() -> None:
    x = leaf(tape, 1.0, 0.0)
    with detect_anomaly(check_nan=False):
        loss = (x.sqrt() * 0).sum()
        assert len(lines()) == 3
        loss.backward(retain_graph=True)
    assert np.isnan(x.grad.numpy()).tolist() == [False, True]
    with set_detect_anomaly(True), pytest.raises(RuntimeError, match="SqrtBackward0"):
        loss.backward()


# What is said


def complaints(lib: Any, loss: Any, kind: type[Exception], *, check_nan: bool = True) -> list[str]:
    """Return the warnings of a backward that raises in the mode."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        with lib.autograd.set_detect_anomaly(True, check_nan), pytest.raises(kind):
            loss.backward()
    return [str(one.message) for one in given]


def test_the_forward_traceback_is_a_warning(libraries: list[Any]) -> None:
    def outer(lib: Any) -> Any:
        return of_sqrt(lib)

    for lib in libraries:
        with lib.autograd.detect_anomaly():
            loss = outer(lib)
            with pytest.warns(UserWarning, match="Error detected in") as given, pytest.raises(RuntimeError):
                loss.backward()
        (text,) = [str(w.message) for w in given]
        assert text.startswith("Error detected in SqrtBackward0. Traceback of forward call that caused the error:\n")
        frames = [line for line in text.splitlines() if line.startswith("  File")]
        assert frames[-1].endswith(f"line {planted_line(of_sqrt)[1]}, in of_sqrt")
        assert frames[-2].endswith("in outer")
        assert __file__ in frames[-1]
        if lib is tape:
            assert given[0].filename == __file__


def test_without_lines_it_says_so(libraries: list[Any]) -> None:
    for lib in libraries:
        loss = of_sqrt(lib)
        given = complaints(lib, loss, RuntimeError)
        assert "No forward pass information available. Enable detect anomaly during forward" in given[-1]
    with detect_anomaly(), pytest.raises(RuntimeError) as caught:
        of_sqrt(tape).backward()
    assert "Forward call: " in str(caught.value)


def test_a_second_derivative_names_what_it_was_induced_by(libraries: list[Any]) -> None:
    for lib in libraries:
        with lib.autograd.detect_anomaly():
            x = leaf(lib, 1.0, 0.0)
            y = (x**1.5).sum()  # the first
            (g,) = lib.autograd.grad(y, x, create_graph=True)
            text = "".join(complaints(lib, (g * 0).sum(), RuntimeError))
        assert text.startswith("Error detected in PowBackward0. ")
        first, second = text.split("Previous calculation was induced by PowBackward0.")
        assert "create_graph=True" in first
        assert "# the first" not in first
        assert "# the first" in second


def test_only_what_is_asked_for_is_looked_at(libraries: list[Any]) -> None:
    for lib in libraries:
        with lib.autograd.detect_anomaly():
            a, b = leaf(lib, 1.0, 2.0), leaf(lib, 1.0, 2.0)
            y = (a * b * lib.tensor([1.0, float("nan")], dtype=lib.float64)).sum()
            loss = (a * 2).sum() + 0 * (b * float("nan")).sum()
            assert lib.autograd.grad(loss, a)[0].tolist() == [2, 2]
            with pytest.raises(RuntimeError, match="MulBackward0"):
                lib.autograd.grad(y, a)


@pytest.mark.usefixtures("sweep")
def test_a_backward_that_fails_changes_nothing() -> None:
    with detect_anomaly():
        x, w = leaf(tape, 4.0, 0.0), leaf(tape, 2.0, 3.0)
        h = x.sqrt() * w
        h.retain_grad()
        loss = (h * 0).sum()
        with pytest.raises(RuntimeError, match="SqrtBackward0"):
            loss.backward()
        assert x.grad is w.grad is h.grad is None
    loss.backward()
    assert w.grad.tolist() == [0, 0]
    assert np.isnan(x.grad.numpy()).tolist() == [False, True]
    assert h.grad.tolist() == [0, 0]


@pytest.mark.usefixtures("sweep")
def test_gradients_are_those_of_no_mode() -> None:
    def gradients() -> list[Any]:
        x, w = leaf(tape, [1.0, 2.0], [3.0, 4.0]), leaf(tape, 0.5, -1.0)
        u = x @ w
        u[0] = u[1] * 2
        u[1:] += w[:1]
        v = tape.stack([u, tape.exp(w)])
        seen: list[Any] = []
        v.register_hook(lambda g: seen.append(g.tolist()))
        v.grad_fn.register_hook(lambda inputs, _: seen.append(inputs[0].tolist()))
        loss = (tape.where(v > 0, v, v * v).max(0).values * v.mean(1)).sum()
        loss.backward()
        return [x.grad.tolist(), w.grad.tolist(), seen]

    expected = gradients()
    with detect_anomaly():
        assert gradients() == expected


@pytest.mark.quick
@pytest.mark.usefixtures("sweep")
def test_what_is_cut_is_no_nan() -> None:
    with detect_anomaly():
        x = leaf(tape, 0.0, 4.0)
        tape.where(x > 0.5, x.sqrt(), x).sum().backward()
        assert x.grad.tolist() == [1, 0.25]


@pytest.mark.quick
@pytest.mark.usefixtures("sweep")
@pytest.mark.parametrize("hooked", ["tensor", "node", "selecting node"])
def test_hooks_let_a_cut_be_a_cut(hooked: str) -> None:
    x = leaf(tape, 0.0, 4.0)
    root = x.sqrt()
    y = tape.where(x > 0.5, root, x)
    if hooked == "tensor":
        root.register_hook(lambda g: g * 1)
    elif hooked == "node":
        root.grad_fn.register_hook(lambda inputs, _: inputs)
    else:
        y.grad_fn.register_hook(lambda *_: None)
    y.sum().backward()
    assert x.grad.tolist() == [1, 0.25]


def test_a_batch_of_cotangents() -> None:
    x, weights = leaf(tape, 4.0, 0.0), tape.tensor([[1.0, 1.0], [1.0, 0.0]])
    with detect_anomaly(), pytest.raises(RuntimeError, match="SqrtBackward0") as caught:
        tape.autograd.grad(x.sqrt(), x, weights, is_grads_batched=True)
    assert "operand x[1] is nan (y[1] = 0.0, incoming gradient[1] = 0.0)" in str(caught.value)


def test_a_tensor_of_another_thread() -> None:
    made: list[Any] = []

    def work() -> None:
        with detect_anomaly():
            made.append(leaf(tape, 1.0, 0.0).sqrt())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    with detect_anomaly(), pytest.raises(RuntimeError, match=r"SqrtBackward0.*x\[1\] is nan"):
        (made[0] * 0).sum().backward()


# Functions


def function(lib: Any, backward: Callable[..., Any]) -> Any:
    def forward(ctx: Any, x: Any, scale: float, y: Any) -> Any:
        del ctx
        return x * scale + y

    body = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type("Scaled", (lib.autograd.Function,), body)


@pytest.mark.usefixtures("sweep")
def test_a_function_whose_backward_gives_nan(libraries: list[Any]) -> None:
    for lib in libraries:
        scaled = function(lib, lambda _, g: (g, None, g * float("nan")))
        with lib.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="returned nan") as caught:
            scaled.apply(leaf(lib, 1.0), 2.0, leaf(lib, 1.0)).sum().backward()
        assert str(caught.value).startswith("Function 'ScaledBackward' returned nan values in its 1th output.")
        if lib is tape:
            assert "scaled.apply" in str(caught.value)


def test_a_function_whose_backward_raises(libraries: list[Any]) -> None:
    def fail(*given: Any) -> Any:
        raise ValueError(given)

    for lib in libraries:
        scaled = function(lib, fail)
        for check in (True, False):
            with lib.autograd.set_detect_anomaly(True, check_nan=check):
                loss = scaled.apply(leaf(lib, 1.0), 2.0, leaf(lib, 1.0)).sum()  # forward
                (text,) = complaints(lib, loss, ValueError, check_nan=check)
            assert text.startswith("Error detected in ScaledBackward. ")
            assert "# forward" in text


@pytest.mark.usefixtures("sweep")
def test_a_function_of_two_results() -> None:
    class Both(tape.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            del ctx
            return x * 2, x * 3

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            del ctx
            return g * float("inf") + h

    a, b = Both.apply(leaf(tape, 1.0))
    loss = (a * 0 + b).sum()
    with detect_anomaly(), pytest.raises(RuntimeError, match="'BothBackward' returned nan values in its 0th output"):
        loss.backward()


# Nothing is left behind


def test_lines_go_with_their_graph() -> None:
    tape.autograd.detect_anomaly()
    modes.own_tape().collect()
    before = recorded()
    with detect_anomaly():
        x = leaf(tape, 1.0, 2.0)
        (tape.exp(x) * x).sum().backward()
        assert not lines()
        y = tape.exp(x) * x
        assert len(lines()) == 2
        assert recorded() == before + 2
        del y
        gc.collect()
        assert recorded() == before
        assert not lines()
        for _ in range(5000):
            tape.exp(x)
        assert len(lines()) < 2100


def test_nothing_is_noted_outside() -> None:
    x = leaf(tape, 1.0, 2.0)
    (tape.exp(x) * x).sum().backward()
    z = tape.exp(x)
    assert not lines()
    assert modes.active() is modes.own_tape()
    del z


# first_nonfinite


def found(loss: Any) -> tuple[str, str, str, tuple[int, ...], float]:
    result = tape.first_nonfinite(loss)
    assert isinstance(result, NonFinite)
    return result.phase, result.op, result.operand, result.index, result.value


@pytest.mark.quick
@pytest.mark.usefixtures("sweep")
def test_first_nonfinite_of_a_backward() -> None:
    x = leaf(tape, 1.0, 2.0, 3.0, 0.0)
    result = tape.first_nonfinite((x.sqrt() * 2).sum())
    assert result == NonFinite(
        "backward", "sqrt", "x", (3,), np.inf, "x", None, (("y[3]", 0.0), ("incoming gradient[3]", 2.0))
    )
    assert str(result) == (
        "backward: sqrt, gradient of its operand x[3] (the leaf x) is inf (y[3] = 0.0, incoming gradient[3] = 2.0)"
    )
    y = x * x
    result = tape.first_nonfinite(y.sqrt().sum())
    assert result is not None
    assert result.where == y._slot
    assert str(result).startswith("backward: sqrt, gradient of its operand x[3] is inf (x[3] = 0.0, y[3] = 0.0, ")


@pytest.mark.quick
@pytest.mark.usefixtures("sweep")
@pytest.mark.parametrize("program", PLANTED, ids=lambda p: p.__name__)
def test_first_nonfinite_of_what_is_planted(program: Program) -> None:
    loss = recorded_by(program)
    result = tape.first_nonfinite(loss)
    assert result is not None
    assert result.line == f"{__file__}:{planted_line(program)[1]}: {planted_line(program)[0]}"


FORWARD: dict[str, tuple[str, str, tuple[int, ...], float]] = {
    "x.log().sum()": ("log", "", (2,), -np.inf),
    "(x * 1).reshape(2, 2)[1:].log().sum()": ("log", "", (0, 0), -np.inf),
    "(x * x - x).sqrt().sum()": ("sqrt", "", (3,), np.nan),
    "(tape.exp(x * 400) * x).sum()": ("exp", "", (1,), np.inf),
    "((x * 1e200) * (x * 1e200)).sum()": ("multiply", "", (0,), np.inf),
    "((x * 1e308) + (x * 1e308))[1:2].exp().sum() * 0": ("exp", "", (0,), np.inf),
    "(x * c).sum()": ("multiply", "b", (1,), np.nan),
    "((x / d)[1:] * 2).exp().sum()": ("divide", "", (2,), np.nan),
    "n.sum()": ("sum", "", (), np.nan),
    "(n * n).sum()": ("", "", (0,), np.nan),
    "squared(n[1:]) + squared(n.reshape(2, 2)[:1])": ("", "", (0,), np.nan),
    "squared(tape.stack([x, n]).t())": ("stack", "", (1, 0), np.nan),
    "(w @ w)[1:].exp().sum()": ("mm", "", (1, 0), np.inf),
    "changed(x)": ("copy_", "", (1,), np.inf),
    "changed(x * x)": ("divide", "", (), np.inf),
}


def squared(x: Any) -> Any:
    return (x * x).sum()


def changed(x: Any) -> Any:
    y = x * 2
    y[1] = x[1] / 0.0
    return (y * y).sum()


@pytest.mark.quick
@pytest.mark.parametrize(("expression", "expected"), FORWARD.items())
def test_first_nonfinite_of_a_forward(expression: str, expected: tuple[str, str, tuple[int, ...], float]) -> None:
    space = {"tape": tape, "changed": changed, "squared": squared, "c": tape.tensor([1.0, np.nan, 1.0, 1.0])}
    space |= {"x": leaf(tape, 1.0, 2.0, 0.0, 0.5), "n": leaf(tape, np.nan, 1.0, 1.0, 1.0)}
    space |= {"d": leaf(tape, 1.0, 1.0, 0.0, 0.0) * 1, "w": leaf(tape, [1e10, 1.0], [1e300, 1.0])}
    phase, *rest = found(eval(expression, space))  # noqa: S307 (from the table above)
    assert phase == "forward"
    np.testing.assert_equal(tuple(rest), expected)


def test_first_nonfinite_says_what_it_does_not_know() -> None:
    x = leaf(tape, 1.0, 0.0)
    result = tape.first_nonfinite((x + 1e308 * x + 1.7e308).sum())
    assert result is not None
    assert not result.certain
    assert str(result) == (
        "forward: sum, its result y is inf; its operands are not kept, an earlier operation may have made it"
    )
    result = tape.first_nonfinite(x.log().sum())
    assert result is not None
    assert result.certain
    assert str(result) == "forward: log, its result y[1] is -inf (x[1] = 0.0)"


def test_first_nonfinite_names_leaves() -> None:
    weights = leaf(tape, 1.0, np.inf)
    assert str(tape.first_nonfinite((weights * weights).sum())) == "forward: the leaf weights at [1] is inf"
    nameless = [leaf(tape, np.nan)]
    assert str(tape.first_nonfinite((nameless[0] * nameless[0]).sum())) == (
        "forward: the leaf of shape [1] at [0] is nan"
    )
    number = tape.tensor(np.nan, requires_grad=True)
    assert str(tape.first_nonfinite(number)) == "forward: the leaf number is nan"


@pytest.mark.usefixtures("sweep")
def test_first_nonfinite_is_none_where_all_is_finite() -> None:
    x = leaf(tape, [1.0, 2.0], [3.0, 4.0])
    assert tape.first_nonfinite((x @ x.t()).sqrt().max(0).values.sum()) is None
    assert tape.first_nonfinite((x @ x.t()).sqrt()) is None
    assert tape.first_nonfinite(x) is None
    y = x * 1
    y[0] = y[1].exp()
    y += tape.where(y > 1, y.log(), y)
    assert tape.first_nonfinite(y.sum()) is None
    mask = tape.tensor([[0.0, -np.inf], [0.0, 0.0]])
    assert tape.first_nonfinite((x + mask).exp().sum()) is None
    cut = leaf(tape, 0.0, 4.0)
    assert tape.first_nonfinite(tape.where(cut > 0.5, cut.sqrt(), cut).sum()) is None


@pytest.mark.usefixtures("sweep")
def test_first_nonfinite_behind_a_write() -> None:
    x = leaf(tape, 0.0, 4.0)
    y = x * 1
    y[0] = 3.0  # the NaN in its gradient goes nowhere, and is found all the same
    assert found((y.sqrt() * x.sqrt()).sum())[:4] == ("backward", "sqrt", "x", (0,))
    z = y * tape.tensor([1.0, np.inf])
    assert found((y * tape.where(z > 3, 0.0, z)).sum())[1:3] == ("multiply", "")


@pytest.mark.quick
@pytest.mark.usefixtures("sweep")
def test_first_nonfinite_changes_nothing() -> None:
    seen: list[Any] = []
    x = leaf(tape, 4.0, 0.0)
    x.register_hook(seen.append)
    h = x.sqrt()
    h.retain_grad()
    h.register_hook(seen.append)
    h.grad_fn.register_hook(lambda *given: seen.append(given))
    y = h * h
    y[0] = 2.0
    loss = y.sum()
    entries, kept = list(map(repr, instructions(modes.own_tape().entries))), loss.tolist()
    first = tape.first_nonfinite(loss)
    assert first is not None
    assert repr(tape.first_nonfinite(loss)) == repr(first)  # the value is NaN, which equals nothing
    assert list(map(repr, instructions(modes.own_tape().entries))) == entries
    assert modes.active() is modes.own_tape()
    assert not lines()
    assert seen == []
    assert x.grad is h.grad is None
    assert loss.tolist() == kept
    loss.backward()
    assert len(seen) == 3
    assert h.grad is not None


def test_first_nonfinite_needs_a_graph() -> None:
    with pytest.raises(TypeError, match="takes a tensor, not ndarray"):
        tape.first_nonfinite(np.ones(1))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="does not require grad"):
        tape.first_nonfinite(tape.ones(1))
    loss = (leaf(tape, 1.0, 0.0).log() * 2).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        tape.first_nonfinite(loss)


def test_first_nonfinite_across_threads() -> None:
    made: list[Any] = []
    x = leaf(tape, 1.0, 0.0)
    h = x * x

    def work() -> None:
        made.append(h.sqrt() * 2)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found((made[0] * 3).sum()) == ("backward", "sqrt", "x", (1,), np.inf)
    bad = (made[0] - 1).log()
    assert found((bad * bad).sum())[:4] == ("forward", "log", "", (1,))


@pytest.mark.usefixtures("sweep")
def test_first_nonfinite_in_a_function() -> None:
    scaled = function(tape, lambda _, g: (g, None, g / 0.0))
    y = scaled.apply(leaf(tape, 1.0), 2.0, leaf(tape, 1.0, 3.0))
    assert found((y * 3).sum())[0::4] == ("backward", np.inf)


def test_values_that_follow_are_what_they_were() -> None:
    """Of every instruction whose value is known, the value is that of its tensor."""
    made: dict[int, Any] = {}

    def keep(x: Any) -> Any:
        made[x._slot ^ 0] = x.numpy(force=True).copy()
        return x

    x, n = leaf(tape, [1.0, 2.0, 3.0], [4.0, 5.0, 6.0]), tape.tensor(2.0, requires_grad=True)
    y = keep(keep(x * x) / keep(x.sum(0, keepdim=True) * n))
    z = keep(keep(y.t())[1:].reshape(-1))
    picked = keep(keep(z[[0, 3, 1]]) * keep(z.reshape(2, 2) @ z.reshape(2, 2).t()).max(1).values.sum())
    w = keep(tape.cat([z, keep(z.float().double()), keep(z**3)]))
    chosen = keep(keep(tape.where(w > 0.2, w, 0.0)) * keep(w.mean()))
    v = keep(w * w)
    u = v[2:5]
    grown = keep(u.exp())
    v[1:3] = keep(w[0] * n)
    v.index_put_((tape.tensor([4, 4]),), w[1], accumulate=True)
    v[[0, 5]] = w[2]
    last = keep(keep(v) * keep(1 - v))
    parts = (picked * picked).sum() + (chosen * grown.sum()).sum()
    loss = keep(keep(last.max()) * keep(v.amax(0) ** 0.5) + keep(u * u).sum() + parts)
    values = Values(_graph(loss))
    values.known[loss._slot] = np.asarray(loss.item())
    known = {i.slot: values.of(i) for i in values.order}
    kinds = {type(i.form.op).__name__ for i in values.order}
    assert kinds == {"Contraction", "Copy", "Elementwise", "Gather", "Join", "Reduction", "Select", "View", "Write"}
    for slot, expected in made.items():
        np.testing.assert_array_equal(known[slot], expected)  # a None differs from every array
