"""What programs take: every kind of write to an argument, what kinds of values fit, and errors that change nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tape
from kernels.programs.program import ProgramError

Array = np.ndarray[Any, Any]

# --- arguments that the function writes to -----------------------------------------------------------------------

WITHOUT = {"requires_grad_", "detach_", "retain_grad_", "share_memory_"}
"""Methods that write no values."""
OTHERS: dict[str, tuple[Any, ...]] = {
    "clamp_": (0.4, 0.6), "clip_": (0.4, 0.6), "copy_": (np.array([1.0, 2.0, 3.0]),), "cumprod_": (0,),
    "cumsum_": (0,), "fill_": (0.5,), "float_power_": (2.0,), "lerp_": (1.0, 0.25), "ldexp_": (np.array([1, 2, 3]),),
    "index_add_": (0, np.array([0, 2]), np.array([1.0, 2.0])), "index_copy_": (0, np.array([0, 2]), np.ones(2)),
    "index_fill_": (0, np.array([1]), 0.125), "index_put_": ((np.array([1]),), np.array(0.125)),
    "index_reduce_": (0, np.array([0, 2]), np.array([3.0, 2.0]), "prod"), "logit_": (1e-3,),
    "masked_fill_": (np.array([True, False, True]), 0.125), "mvlgamma_": (1,), "polygamma_": (1,),
    "masked_scatter_": (np.array([True, False, True]), np.array([5.0, 6.0])),
    "put_": (np.array([0, 2]), np.array([7.0, 8.0])), "renorm_": (2.0, 0, 0.25),
    "scatter_": (0, np.array([1, 0]), np.array([7.0, 8.0])),
    "scatter_add_": (0, np.array([1, 0]), np.array([7.0, 8.0])),
    "scatter_reduce_": (0, np.array([1, 0]), np.array([7.0, 8.0]), "prod"),
    "addcdiv_": (np.ones(3), np.full(3, 2.0)), "addcmul_": (np.ones(3), np.full(3, 2.0)),
    "addmv_": (np.eye(3), np.ones(3)), "fill_diagonal_": (9.0,), "addmm_": (np.eye(3), np.ones((3, 3))),
    "addr_": (np.ones(3), np.ones(3)), "baddbmm_": (np.ones((2, 3, 3)), np.ones((2, 3, 3))),
    "addbmm_": (np.ones((2, 3, 3)), np.ones((2, 3, 3))),
}  # fmt: skip
SHAPES = {"addmm_": (3, 3), "addr_": (3, 3), "addbmm_": (3, 3), "baddbmm_": (2, 3, 3), "fill_diagonal_": (3, 3),
          "tril_": (3, 3), "triu_": (3, 3), "renorm_": (3, 3)}  # fmt: skip
DRAWS = {"bernoulli_", "cauchy_", "exponential_", "geometric_", "log_normal_", "normal_", "random_", "uniform_"}
"""A program repeats the numbers that were drawn when it was recorded: tried apart."""
RESHAPES = {
    "resize_",
    "resize_as_",
    "squeeze_",
    "swapaxes_",
    "swapdims_",
    "t_",
    "transpose_",
    "unsqueeze_",
    "as_strided_",
}
METHODS = sorted(
    name
    for name in dir(tape.Tensor)
    if name.endswith("_") and not name.startswith("_") and name not in WITHOUT | DRAWS | RESHAPES
)


def written_by(method: str, x: Any) -> None:
    """Call a method in place, with as many further operands as it takes."""
    given = OTHERS.get(method, ())
    others = tuple(tape.from_numpy(g.copy()) if isinstance(g, np.ndarray) else g for g in given)
    if method == "index_put_":
        others = ((tape.from_numpy(np.array([1])),), tape.tensor(0.125))
    for extra in ((), (1,)) if method not in OTHERS else (others,):
        try:
            getattr(x, method)(*extra)
        except TypeError:
            if extra:
                raise
        else:
            return


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:divide by zero:RuntimeWarning")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", [np.float64, np.int64], ids=["floats", "ints"])
def test_every_method_in_place_changes_the_callers_argument(method: str, kind: type) -> None:
    shape = SHAPES.get(method, (3,))

    def values(low: float) -> Array:
        if kind is np.int64:
            return np.arange(2, 2 + np.prod(shape)).reshape(shape) + int(low * 10)
        return np.linspace(low, low + 0.5, int(np.prod(shape))).reshape(shape)

    def fun(x: Any) -> Any:
        before = x * 1
        written_by(method, x)
        return before, x * 2

    expected = tape.from_numpy(values(0.25))
    try:
        before, after = fun(expected)
    except (TypeError, RuntimeError) as error:  # this dtype is not for this method
        with pytest.raises(type(error)):
            tape.record(fun, values(0.125))
        return
    program = tape.record(fun, values(0.125))
    for given in (values(0.25), tape.from_numpy(values(0.25))):
        found = program(given)
        np.testing.assert_array_equal(np.asarray(given), expected.numpy())
        np.testing.assert_array_equal(np.asarray(found[0]), before.numpy())
        np.testing.assert_array_equal(np.asarray(found[1]), after.numpy())


WRITES: dict[str, Callable[[Any], Any]] = {
    "x += 1": lambda x: x.__iadd__(1),
    "x -= 1": lambda x: x.__isub__(1),
    "x *= 2": lambda x: x.__imul__(2),
    "x /= 2": lambda x: x.__itruediv__(2),
    "x **= 2": lambda x: x.__ipow__(2),
    "x //= 2": lambda x: x.__ifloordiv__(2),
    "x %= 2": lambda x: x.__imod__(2),
    "x += x": lambda x: x.__iadd__(x),
    "x *= x[::-1]": lambda x: x.__imul__(x.flip(0)),
    "x[1] = 5": lambda x: x.__setitem__(1, 5.0),
    "x[1:] += 1": lambda x: x.__setitem__(slice(1, None), x[1:] + 1),
    "x[1:] *= x[:-1]": lambda x: x[1:].mul_(x[:-1]),
    "x[...] = 3": lambda x: x.__setitem__(Ellipsis, 3.0),
    "x[[0, 2]] = 7": lambda x: x.__setitem__([0, 2], 7.0),
    "x[x > 1] = 0": lambda x: x.__setitem__(tape.tensor([False, True, True]), 0.0),
    "view.exp_()": lambda x: x[1:].exp_(),
    "view of a view": lambda x: x.view(3, 1)[::2, 0].mul_(3),
    "reshape": lambda x: x.reshape(1, 3).add_(1),
    "detach": lambda x: x.detach().mul_(2),
    "data": lambda x: x.data.mul_(2),
    "data +=": lambda x: x.data.__iadd__(2),
    "copy_": lambda x: x.copy_(x * 3),
    "copy_ of itself": lambda x: x[1:].copy_(x[:-1]),
    "twice": lambda x: x.mul_(2).add_(1),
    "before and after a view": lambda x: (x.mul_(2), x[1:].add_(1), x.sub_(0.5)),
    "np.add out": lambda x: np.add(x, 1, out=x),
    "np.exp out of a part": lambda x: np.exp(x[:2], out=x[1:]),
    "add out": tape.no_grad()(lambda x: tape.add(x, 1, out=x)),
    "np.copyto": lambda x: np.copyto(x, x * 2),
    "zero under no_grad": tape.no_grad()(lambda x: x.zero_()),
    "+= under no_grad": tape.no_grad()(lambda x: x.__iadd__(1)),
}


@pytest.mark.parametrize("name", WRITES)
def test_every_write_changes_the_callers_argument(name: str) -> None:
    write = WRITES[name]

    def fun(x: Any, k: Any) -> Any:
        square = x * x
        write(x)
        return (square * x * k).sum()

    expected = tape.tensor([1.5, 2.0, 0.25])
    try:
        value = fun(expected, tape.tensor(3.0))
    except TypeError:  # this build of the library has no out= there
        pytest.skip("not offered")
    program = tape.record(fun, np.ones(3), 2.0)
    for given in (np.array([1.5, 2.0, 0.25]), tape.tensor([1.5, 2.0, 0.25])):
        assert float(program(given, 3.0)) == value.item()
        assert given.tolist() == expected.tolist()
    given = np.array([1.5, 2.0, 0.25])
    assert program.value_and_grad(given, 3.0)[0] == value.item()
    assert given.tolist() == [1.5, 2.0, 0.25]  # a question about a point leaves the point


def test_a_number_that_is_written_is_changed_where_the_caller_has_its_memory() -> None:
    def fun(k: Any) -> Any:
        k += 1
        k *= 3
        return k

    program = tape.record(fun, tape.tensor(1.0))
    array, tensor = np.array(2.0), tape.tensor(2.0)
    assert program(2.0) == program(array) == program(tensor).item() == 9.0
    assert array == 9.0
    assert tensor.item() == 9.0


def test_gradients_by_arguments_that_are_written() -> None:
    def fun(x: Any) -> Any:
        y = x * x
        x.exp_()
        x += y
        x[1:] *= x[:-1]
        return (x * y).sum()

    def copied(x: Any) -> Any:
        return fun(x * 1)

    program = tape.record(fun, np.full(3, 0.5))
    x = np.array([0.1, 0.2, 0.3])
    value, (gradient,) = program.value_and_grad(x)
    expected, by_dynamic = tape.value_and_grad(copied)(x)
    assert value == expected
    np.testing.assert_array_equal(gradient, by_dynamic)


def test_blocks_write_to_their_leaves() -> None:
    w = tape.tensor([1.0, 2.0], requires_grad=True)
    with tape.record() as program:
        loss = (w * w).sum()
        with tape.no_grad():
            w -= 0.5
    given = np.array([3.0, 4.0])
    program(given)
    assert loss.item() == 5.0
    assert given.tolist() == [2.5, 3.5]


# --- values that fit, and those that do not -----------------------------------------------------------------------

FITTING: list[tuple[Any, list[Any], list[Any]]] = [
    (
        1.5,
        [2, 2.0, np.float64(2), np.float32(2), np.int64(2), np.array(2), np.array(2.0), True, tape.tensor(2.0)],
        ["2", None, 2j, np.complex128(2), np.ones(1), [2.0, 3.0], 10**400],
    ),
    (
        3,
        [5, np.int64(5), np.int32(5), np.uint8(5), np.array(5), tape.tensor(5)],
        [True, np.True_, 5.0, np.float64(5), np.array(5.0), tape.tensor(5.0), tape.tensor(True), 2**70, "5"],
    ),
    (
        True,
        [False, np.False_, np.array(False), tape.tensor(False)],
        [0, 5, 1.0, np.int64(1), np.float64(1), np.array(1), tape.tensor(1), "x", None],
    ),
    (np.float32(1.5), [2, 2.0, np.float32(2), np.float64(2), tape.tensor(2.0, dtype=tape.float32)], ["2", 2j]),
    (np.int32(3), [5, np.int32(5), np.int16(5)], [np.int64(5), 5.0, True, 2**40]),
]


@pytest.mark.parametrize(("recorded", "right", "wrong"), FITTING, ids=["float", "int", "bool", "float32", "int32"])
def test_numbers_that_fit_a_program(recorded: Any, right: list[Any], wrong: list[Any]) -> None:
    program = tape.record(lambda k, x: tape.where(k > 0, x * k, x * 3), recorded, 1.0)
    for given in right:
        number = np.asarray(given).item()
        assert program(given, 2.0) == (2.0 * number if number > 0 else 6.0)
    for given in wrong:
        with pytest.raises(TypeError, match="argument 0"):
            program(given, 2.0)
    assert program(right[0], 2.0) == (2.0 * right[0] if right[0] > 0 else 6.0)


def test_what_was_a_bool_does_not_become_a_number() -> None:
    program = tape.record(lambda x, flag: x * flag, 3.0, True)
    with pytest.raises(TypeError, match=r"argument 1: got an int, .* recorded with bool\[\].*record it anew"):
        program(3.0, 5)


def test_arrays_of_foreign_byte_order_and_subclasses(tmp_path: Any) -> None:
    def fun(x: Any) -> Any:
        x *= 2
        return x + 1

    program = tape.record(fun, np.ones(3))
    swapped = np.arange(3.0).astype(">f8")
    mapped = np.memmap(tmp_path / "x", np.float64, "w+", shape=(3,))
    mapped[:] = [0.0, 1.0, 2.0]
    strided = np.arange(6.0)[::2] / 2
    for given in (swapped, mapped, strided, strided[::-1][::-1]):
        given[:] = [0.0, 1.0, 2.0]
        found = program(given)
        assert type(found) is np.ndarray
        assert found.dtype == np.float64
        assert found.dtype.isnative
        assert found.tolist() == [1.0, 3.0, 5.0]
        assert given.tolist() == [0.0, 2.0, 4.0]
    masked = np.ma.masked_array(np.ones(3), [True, False, False])
    with pytest.raises(TypeError, match=r"argument 0.*mask"):
        program(masked)
    with pytest.raises(TypeError, match="mask"):
        tape.record(fun, masked)


# --- errors that change nothing -----------------------------------------------------------------------------------


def both(x: Any, y: Any) -> Any:
    """Write to the first argument and read the second."""
    x += 1
    return (x * y).sum()


def test_one_array_for_two_arguments() -> None:
    program = tape.record(both, np.ones(3), np.ones(3))
    a = np.ones(4)
    t = tape.ones(4)
    n = tape.tensor(1.0)
    for x, y in ((a[:3], a[:3]), (a[:3], a[1:]), (a[3:0:-1], a[:3]), (t[:3], t[1:]), (tape.from_numpy(a)[:3], a[:3])):
        with pytest.raises(RuntimeError, match=r"argument 0 is written.* argument 1.*copy"):
            program(x, y)
        assert a.tolist() == t.tolist() == [1.0] * 4
    apart = np.zeros(6)
    program(apart[::2], apart[1::2])
    assert apart.tolist() == [1.0, 0.0] * 3
    numbers = tape.record(both, n, tape.tensor(1.0))
    with pytest.raises(RuntimeError, match="argument 0 is written"):
        numbers(n, n)
    assert n.item() == 1.0
    with pytest.raises(RuntimeError, match="argument 0 is written"):
        tape.record(both, a[:3], a[:3])
    reading = tape.record(lambda x, y: (x * y).sum(), np.ones(3), np.ones(3))
    assert reading(a[:3], a[1:]) == 3.0
    assert program.value_and_grad(a[:3], a[:3])[0] == 6.0  # nothing is written there
    assert a.tolist() == [1.0] * 4


def test_arguments_that_cannot_be_written() -> None:
    program = tape.record(lambda x: x.mul_(2), np.ones(3))
    fixed = np.ones(3)
    fixed.flags.writeable = False
    wide = np.lib.stride_tricks.as_strided(np.ones(1), (3,), (0,), writeable=True)
    with pytest.raises(RuntimeError, match=r"argument 0.*read-only"):
        program(fixed)
    for given in (wide, tape.ones(1).expand(3)):
        with pytest.raises(RuntimeError, match=r"argument 0.*single memory location"):
            program(given)
        assert given.tolist() == [1.0] * 3
    assert tape.record(lambda x: x * 2, np.ones(3))(fixed).tolist() == [2.0] * 3


def test_an_error_changes_no_argument() -> None:
    def fun(x: Any, y: Any) -> Any:
        x += 1
        y *= 2
        return x * y

    program = tape.record(fun, np.ones(2), np.ones(2))
    x, y = np.ones(2), np.ones(2)
    fixed = np.ones(2)
    fixed.flags.writeable = False
    for args in ((x, np.ones(3)), (x, np.ones(2, int)), (x,), (x, fixed), (x, "y")):
        with pytest.raises((TypeError, RuntimeError)):
            program(*args)
    assert x.tolist() == [1.0, 1.0]
    assert program(x, y).tolist() == [4.0, 4.0]
    assert (x.tolist(), y.tolist()) == ([2.0, 2.0], [2.0, 2.0])


@pytest.mark.parametrize("call", ["__call__", "value_and_grad"])
def test_program_whose_block_raised(call: str) -> None:
    x = tape.ones(2).requires_grad_()
    with pytest.raises(ZeroDivisionError), tape.record() as program:
        _ = (x * 2).sum() / (1 // 0)
    for args in ((), (np.ones(2),)):
        with pytest.raises(ProgramError, match=r"raised ZeroDivisionError.*record it anew"):
            getattr(program, call)(*args)
    with tape.record() as unfinished:
        with pytest.raises(ProgramError, match="still being recorded"):
            getattr(unfinished, call)(np.ones(2))
        _ = x * 2
    assert unfinished(np.ones(2)).tolist() == [2.0, 2.0]


# --- the way in: what is known at sight, and what is not ----------------------------------------------------------


class Watched(np.ndarray):
    """An array of a class of its own."""


def _misaligned(values: Array) -> Array:
    raw = np.zeros(values.nbytes + 1, np.uint8)
    found = raw[1:].view(values.dtype).reshape(values.shape)
    found[...] = values
    return found


_THREE = np.array([0.5, -0.0, 2.5])
GIVEN: dict[str, tuple[Any, Any]] = {
    "float": (1.0, 2.5),
    "minus zero": (1.0, -0.0),
    "nan": (1.0, float("nan")),
    "int": (1.0, 3),
    "int of more than 53 bits": (1.0, (1 << 60) + 1),
    "int of more than 64 bits": (1.0, 1 << 70),
    "int that no double holds": (1.0, 10**400),
    "minus one": (1.0, -1),
    "bool": (1.0, True),
    "np.float64": (1.0, np.float64(2.5)),
    "np.float32": (1.0, np.float32(2.5)),
    "np.int32": (1.0, np.int32(2)),
    "array of no dimensions": (1.0, np.array(2.5)),
    "float32 of no dimensions": (1.0, np.array(2.5, np.float32)),
    "one element": (1.0, np.array([2.5])),
    "complex": (1.0, 2j),
    "text": (1.0, "2.5"),
    "None": (1.0, None),
    "list for a number": (1.0, [2.5]),
    "float for a single": (np.float32(1.0), 2.5),
    "float that rounds to a single": (np.float32(1.0), 0.1),
    "np.float32 for a single": (np.float32(1.0), np.float32(0.1)),
    "np.float64 for a single": (np.float32(1.0), np.float64(0.1)),
    "infinity for a single": (np.float32(1.0), float("inf")),
    "int for a single": (np.float32(1.0), 16777217),
    "np.float64 too large for a single": (np.float32(1.0), np.float64(1e300)),
    "array": (_THREE, _THREE * 2),
    "strided": (_THREE, np.arange(6.0)[::2]),
    "reversed": (_THREE, np.arange(3.0)[::-1]),
    "broadcast": (_THREE, np.broadcast_to(np.array(2.0), (3,))),
    "misaligned": (_THREE, _misaligned(_THREE)),
    "read-only": (_THREE, np.frombuffer(_THREE.tobytes())),
    "byte-swapped": (_THREE, _THREE.astype(">f8")),
    "of a class of its own": (_THREE, _THREE.view(Watched)),
    "list": (_THREE, [1.0, 2.0, 3.0]),
    "masked": (_THREE, np.ma.masked_array(_THREE, [True, False, False])),
    "other shape": (_THREE, np.ones((1, 3))),
    "other length": (_THREE, np.ones(4)),
    "float32 array": (_THREE, _THREE.astype(np.float32)),
    "int array": (_THREE, np.arange(3)),
    "float for an array": (_THREE, 2.5),
    "Fortran order": (np.ones((2, 3)), np.asfortranarray(np.arange(6.0).reshape(2, 3))),
    "transposed": (np.ones((2, 3)), np.arange(6.0).reshape(3, 2).T),
    "large": (np.ones(1000), np.linspace(0.0, 1.0, 1000)),
    "singles, an odd number": (np.ones(3, np.float32), np.arange(3, dtype=np.float32)),
    "no element": (np.ones((0, 3)), np.ones((0, 3))),
}
"""What is recorded, and what is given later."""


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("what", ["__call__", "value_and_grad"])
def test_later_calls_are_like_the_first(kind: str, what: str) -> None:
    first, given = GIVEN[kind]

    def function(x: Any) -> Any:
        return (x * x * 3 - x).sum()

    late, program, again = (tape.record(function, first) for _ in range(3))
    expected = _outcome(lambda: getattr(program, what)(given))
    getattr(late, what)(first)  # from here on there is a machine
    for _ in range(2):
        _assert_same(_outcome(lambda: getattr(late, what)(given)), expected)
    _assert_same(getattr(late, what)(first), getattr(again, what)(first))  # bad input leaves it as it was


def _outcome(call: Callable[[], Any]) -> Any:
    """Return what a call returns, or what it raises, as text."""
    try:
        return call()
    except (TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def _assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(found, tuple):
        for one, other in zip(found, expected, strict=True):
            _assert_same(one, other)
    elif isinstance(found, str):
        assert found == expected
    else:
        assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()
        assert np.shape(found) == np.shape(expected)
        assert getattr(found, "dtype", None) == getattr(expected, "dtype", None)


@pytest.mark.parametrize("given", [7, -1, -(1 << 63), 1 << 63, True, 2.5, np.int64(3), np.uint64(3), np.int8(-4)])
def test_integers_of_later_calls(given: Any) -> None:
    def function(n: Any, x: Any) -> Any:
        return n * 2 + 1, x * n

    late, program = tape.record(function, 5, 0.5), tape.record(function, 5, 0.5)
    late(5, 0.5)
    found, expected = (_outcome(lambda p=p: p(given, 0.25)) for p in (late, program))
    _assert_same(found, expected)


def test_later_calls_say_what_is_wrong_with_a_single() -> None:
    program = tape.record(lambda x: x * 2, np.float32(1.0))
    program(1.0)
    with np.errstate(over="warn"), pytest.warns(RuntimeWarning, match="overflow"):
        assert program(1e300) == float("inf")


def test_later_calls_count_their_arguments() -> None:
    program = tape.record(lambda x, y: x * y, 1.0, 2.0)
    assert program.value_and_grad(3.0, 4.0) == (12.0, (4.0, 3.0))
    for args in ((), (1.0,), (1.0, 2.0, 3.0)):
        with pytest.raises(TypeError, match=f"program takes 2 arguments, got {len(args)}"):
            program.value_and_grad(*args)
    with pytest.raises(TypeError, match="by name z"):
        program.value_and_grad(3.0, 4.0, z=1.0)
    assert program.value_and_grad(3.0, 4.0) == (12.0, (4.0, 3.0))


def test_later_calls_of_structures() -> None:
    def function(point: Any, *, scale: Any, name: str) -> Any:
        assert name == "energy"
        value = (point["x"] * point["y"]).sum() * scale
        return value, {"twice": value * 2, "name": name}

    point = {"x": np.arange(3.0), "y": 2.0}
    program = tape.record(function, point, scale=2.0, name="energy")
    for _ in range(3):
        (value, aux), (gradient,) = program.value_and_grad(point, scale=3.0, name="energy", has_aux=True)
        assert (value, aux) == (18.0, {"twice": 36.0, "name": "energy"})
        assert gradient["x"].tolist() == [6.0, 6.0, 6.0]
        assert gradient["y"] == 9.0
        with pytest.raises(TypeError, match="recorded with 'energy'"):
            program.value_and_grad(point, scale=3.0, name="other", has_aux=True)


def test_results_of_later_calls_are_their_own() -> None:
    program = tape.record(lambda x: ((x * x).sum(), x, x[1:], x.reshape(3, 1), x > 1, x * 0 + 5), np.ones(3))
    found = [program(np.arange(3.0) + k) for k in range(3)]
    for k, results in enumerate(found):
        x = np.arange(3.0) + k
        for one, other in zip(results, ((x * x).sum(), x, x[1:], x.reshape(3, 1), x > 1, x * 0 + 5), strict=True):
            np.testing.assert_array_equal(one, other)
            if isinstance(one, np.ndarray):
                assert one.flags.owndata
                assert one.flags.writeable
                assert one.flags.c_contiguous


def test_counts_of_references_stay() -> None:
    many = 2000
    program = tape.record(lambda x, y, n: (x * y * n).sum(), np.ones(3), 2.0, 3)
    given: tuple[Any, ...] = (np.arange(3.0), 0.5, 1 << 40)
    program.value_and_grad(*given)
    kinds = (np.ndarray, float, int, tuple, given[0].dtype)
    before = [sys.getrefcount(x) for x in (*given, *kinds)]
    for _ in range(many):
        program.value_and_grad(*given)
        program(*given)
        with pytest.raises(TypeError):
            program(given[0], "text", given[2])
    after = [sys.getrefcount(x) for x in (*given, *kinds)]
    assert all(abs(a - b) < many // 10 for a, b in zip(after, before, strict=True))
