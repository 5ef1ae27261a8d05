"""`tape.parameters`: names of modules, objects, classes and dicts stand for tensors within a block, and no longer."""

import dataclasses
import importlib
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tape
from tape import module_parameters

pytestmark = pytest.mark.quick

MODEL = """
import numpy as np
from numba import njit
from {other} import flux

K = 2.0
RATES = {{"decay": 0.5}}

@njit
def inner(u):
    return K * u

@njit
def slope(u):
    return inner(u) * u - flux(u, 0.5)

class Model:
    gain = 1.5
    def __init__(self):
        self.offset = 0.25
        self.slope = slope
    def run(self, u):
        for _ in range(3):
            u = u + 0.1 * self.slope(u) * self.gain + self.offset
        return (u ** 2).sum() * RATES["decay"]

def constant(n):
    return twice(np.ones(n))

@njit
def twice(u):
    return 2.0 * u
"""
OTHER = """
from numba import njit

SCALE = 0.3

@njit
def scaled(u):
    return SCALE * u

@njit
def flux(u, limit):
    total = 0.0 * u
    for i in range(2):
        total = total + scaled(u) * limit
    return total
"""
U = np.arange(3.0)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """Return a small simulation whose functions are jitted, across two modules."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(module_parameters, "_warned", set())
    number = len(sys.modules)
    names = f"jitted_model_{number}", f"jitted_flux_{number}"
    (tmp_path / f"{names[0]}.py").write_text(MODEL.format(other=names[1]))
    (tmp_path / f"{names[1]}.py").write_text(OTHER)
    importlib.invalidate_caches()
    yield importlib.import_module(names[0])
    for name in names:
        del sys.modules[name]


quiet = pytest.mark.filterwarnings("ignore:parameters. the jitted function")


def difference(f: Any, x: float) -> float:
    return float((f(x + 1e-6) - f(x - 1e-6)) / 2e-6)


@quiet
def test_a_global_an_attribute_and_an_entry_that_jitted_functions_read(model: Any) -> None:
    run, native = model.Model(), model.Model().run(U)
    other = sys.modules[model.flux.__module__]

    def loss(k: Any, decay: Any, gain: Any, scale: Any) -> Any:
        with (
            tape.parameters(model, {"RATES.decay": decay}, K=k),
            tape.parameters(model.Model, gain=gain),
            tape.parameters(other, SCALE=scale),
        ):
            return run.run(U)

    at = (2.0, 0.5, 1.5, 0.3)
    value, gradients = tape.value_and_grad(loss, (0, 1, 2, 3))(*at)
    assert value == pytest.approx(native)
    for i, g in enumerate(gradients):
        assert g == pytest.approx(difference(lambda x, i=i: loss(*at[:i], x, *at[i + 1 :]), at[i]), rel=1e-6)
    assert (model.K, model.RATES, model.Model.gain, other.SCALE) == (2.0, {"decay": 0.5}, 1.5, 0.3)
    assert run.run(U) == native


@quiet
@pytest.mark.filterwarnings("ignore:compile:tape.errors.CompileWarning")  # what the block changes may be compared
def test_compiled_and_recorded_functions_are_never_stale(model: Any) -> None:
    def loss(k: Any) -> Any:
        with tape.parameters(model, K=k):
            return model.Model().run(U)

    expected = {k: tape.value_and_grad(loss)(k) for k in (2.0, 1.0, 0.5)}
    both = tape.compile(tape.value_and_grad(loss), mode="max")
    program = tape.record(loss, 2.0)
    for k in (2.0, 2.0, 1.0, 0.5, 2.0, 1.0):
        assert both(k) == pytest.approx(expected[k])
        value, (g,) = program.value_and_grad(k)
        assert (value, g) == pytest.approx(expected[k])
    model.RATES["decay"] = 1.0
    assert both(1.0)[0] == pytest.approx(2.0 * expected[1.0][0])

    around = tape.compile(lambda u: model.Model().run(u))
    model.RATES["decay"] = 0.5
    for k in (2.0, 1.0, 2.0, 0.5, 1.0):
        x = tape.tensor(k, requires_grad=True)
        with tape.parameters(model, K=x):
            y = around(U)
        y.backward()
        assert (y.item(), x.grad.item()) == pytest.approx(expected[k])


def test_python_runs_a_jitted_function_only_where_it_must_and_says_so_once(model: Any) -> None:
    seen: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            with tape.parameters(model, K=tape.tensor(1.0)):
                model.Model().run(U)
                model.constant(3)
        seen = [str(w.message) for w in caught]
    assert sorted(text.split()[4] for text in seen) == ["flux", "inner", "scaled", "slope"]
    assert model.twice.signatures
    assert not model.slope.signatures
    with pytest.raises(TypeError, match=r"jitted function slope is given a tensor.*tape.parameters.*py_func.*custom"):
        model.slope(tape.tensor(U))
    assert isinstance(model.slope.py_func, types.FunctionType)


def test_an_operation_of_tape_custom_stays_native(model: Any) -> None:
    forward = numba.njit(lambda u: 0.3 * u * u)
    vjp = numba.njit(lambda g, u: g * 0.6 * u)
    square = tape.custom(forward, vjp)

    def loss(u: Any) -> Any:
        with tape.parameters(model, slope=square):
            return model.slope(u).sum()

    assert tape.func.grad(loss)(U).tolist() == pytest.approx((0.6 * U).tolist())
    assert forward.signatures


def test_what_numba_knows_as_objects_takes_tensors() -> None:
    function = numba.jit(forceobj=True)(lambda x: (x * x).sum())
    assert tape.func.grad(function)(3.0) == 6.0


# Names are put back.


class Slots:
    """An object without a dictionary."""

    __slots__ = ("a", "b")


class WithProperty:
    """A property that is set, one that is not, and an attribute of the class."""

    plain = 5

    def __init__(self) -> None:
        self._x = 1

    @property
    def x(self) -> Any:
        return self._x

    @x.setter
    def x(self, value: Any) -> None:
        self._x = value

    @property
    def fixed(self) -> int:
        return 3

    @staticmethod
    def static() -> int:
        return 7


@dataclasses.dataclass(frozen=True)
class Frozen:
    """Its fields cannot be set."""

    k: float = 1.0


def test_kinds_of_holders() -> None:
    holder, slots, entries = WithProperty(), Slots(), {"a": 1}
    slots.a = 1
    with (
        tape.parameters(holder, x=2, plain=6, new=1),
        tape.parameters(slots, a=2, b=3),
        tape.parameters(entries, a=2, c=4),
        tape.parameters(WithProperty, static=staticmethod(lambda: 8), other=1),
    ):
        assert (holder.x, holder.plain, WithProperty.plain, holder.new, holder.static()) == (2, 6, 5, 1, 8)  # type: ignore[attr-defined]
        assert (slots.a, slots.b, entries) == (2, 3, {"a": 2, "c": 4})
    assert (holder.x, holder.plain, vars(holder), holder.static()) == (1, 5, {"_x": 1}, 7)
    assert isinstance(vars(WithProperty)["static"], staticmethod)
    assert not hasattr(WithProperty, "other")
    assert (slots.a, hasattr(slots, "b"), entries) == (1, False, {"a": 1})


@pytest.mark.parametrize(
    ("holder", "names", "text"),
    [
        (Frozen(), {"k": 2.0}, "'k' of a Frozen cannot be set"),
        (WithProperty(), {"fixed": 1}, "'fixed' of a WithProperty cannot be set"),
        (types.MappingProxyType({"a": 1}), {"a": 2}, "'a' of a mappingproxy cannot be set"),
        (Slots(), {"c": 1}, "'c' of a Slots cannot be set"),
        (types.SimpleNamespace(a=1), {"b.c": 2}, "a SimpleNamespace has no 'b'"),
        (int, {"real": 1}, "'real' of class int cannot be set"),
    ],
)
def test_what_cannot_be_set_leaves_everything_as_it_was(holder: Any, names: dict[str, Any], text: str) -> None:
    entries = {"z": 1}
    with pytest.raises(AttributeError, match=text), tape.parameters(entries, z=2), tape.parameters(holder, names):
        raise AssertionError
    first = types.SimpleNamespace(first=0, holder=holder)
    path = {"first": 1, **{f"holder.{name}": value for name, value in names.items()}}
    with pytest.raises(AttributeError), tape.parameters(first, path):
        raise AssertionError
    assert (entries, first.first) == ({"z": 1}, 0)
    assert not module_parameters._held


def test_exceptions_generators_and_blocks_that_end_in_another_order() -> None:
    space = types.SimpleNamespace(k=0)

    def held(value: int) -> Iterator[int]:
        with tape.parameters(space, k=value):
            yield space.k

    with pytest.raises(ZeroDivisionError), tape.parameters(space, k=1):
        raise ZeroDivisionError
    assert space.k == 0
    first, second = held(1), held(2)
    assert (next(first), next(second), space.k) == (1, 2, 2)
    first.close()  # type: ignore[attr-defined]
    assert space.k == 2
    del second
    assert space.k == 0
    with tape.parameters(space, k=1):
        space.k = 9
        with tape.parameters(space, k=2):
            del space.k
    assert space.k == 0


def test_an_end_that_raises_keeps_no_other_from_its_end() -> None:
    class Once:
        @property
        def x(self) -> int:
            return 1

        @x.setter
        def x(self, value: int) -> None:
            if value == 1:
                raise TypeError("not again")

    space = types.SimpleNamespace(k=0, once=Once())
    with pytest.raises(AttributeError, match="not again"), tape.parameters(space, {"k": 1, "once.x": 2, "new": 3}):
        assert (space.k, space.new) == (1, 3)
    assert (space.k, hasattr(space, "new"), module_parameters._held) == (0, False, {})
    assert "__call__" not in vars(module_parameters.CPUDispatcher)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=12))
def test_blocks_in_any_order(steps: list[tuple[int, int]]) -> None:
    space = types.SimpleNamespace(a=0, b=0)
    names = ("a", "b", "c")
    open_blocks: list[tuple[str, int, Any]] = []
    for value, (name, at) in enumerate(steps, 1):
        if at < len(open_blocks):
            open_blocks.pop(at)[2].__exit__(None, None, None)
        else:
            block = tape.parameters(space, {names[name]: value})
            block.__enter__()
            open_blocks.append((names[name], value, block))
        for key in names:
            held = [v for n, v, _ in open_blocks if n == key]
            assert getattr(space, key, None) == (held[-1] if held else None if key == "c" else 0)
    for _, _, block in open_blocks:
        block.__exit__(None, None, None)
    assert vars(space) == {"a": 0, "b": 0}


def test_threads_hold_names_side_by_side_and_calls_are_native_again_afterwards() -> None:
    space = types.SimpleNamespace()

    def work(name: str) -> None:
        for k in range(200):
            with tape.parameters(space, {name: k}):
                assert getattr(space, name) == k

    threads = [threading.Thread(target=work, args=(f"n{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert vars(space) == {}
    assert "__call__" not in vars(module_parameters.CPUDispatcher)
