"""Calls of compiled functions: their key, their results, what compiling costs, what is told of it."""

from __future__ import annotations

import inspect
import itertools
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kernels.compiler.compiled_code import Account, CallAccount, NestAccount
from kernels.foundation.specs import fills
from kernels.foundation.tables import exact
from kernels.kinds.reference_tape import expose, root_of
from kernels.machine_code.compiled_machine import CompiledMachine
from kernels.machine_code.tiers import reason_of
from kernels.native.memory import where
from kernels.programs.program import Recipe
from kernels.programs.several_ways import unrolled
from tape.programs.program import outcome
from tape.recording.views import clone
from tape.tensors import modes
from tape.tensors.dtypes import DEFAULT
from tape.tensors.operands import usable
from tape.tensors.pytrees import LEAF, Signature, Structure, flattened
from tape.tensors.tensor import Tensor, as_array, constant_tensor, lent, scalar_or_array
from tape.tensors.view_families import is_view, mark_exported_to_numpy, protect
from tape.transforms.value_and_grad import share_memory
from tape.watching.loop_numbers import LoopNumber, loop_number
from tape.watching.snapshots import Same

# What tells calls of a compiled function apart: everything that its Python code can see without computing with values.
#
# Floats, arrays and tensors are values. Ints, bools, strings, None and all other objects belong to the key.

_FLOATS = (float, np.float64)
_SINGLE = (np.float16, np.float32)
_KINDS = "biuf"
_PLAIN = (bool, int, str, bytes, complex, float, type(None))


class CallArguments(NamedTuple):
    """A call taken apart: its key, the leaves that are values, whether a tensor is among them, and all leaves.

    An array or tensor that is given twice is one value; ``again`` has the further places, with its number.
    """

    key: Any
    values: list[Any]
    tensors: bool
    leaves: list[Any]
    places: list[int]
    structure: Structure
    chosen: tuple[list[int], Structure] | None = None
    """The numbers of the values that a gradient is by, and its structure."""
    again: tuple[tuple[int, int], ...] = ()

    @property
    def arrays(self) -> bool:
        """Whether NumPy's arrays or numbers were given, and no tensor: then arrays come out."""
        return bool(self.values) and not self.tensors

    def signature(self) -> Signature:
        """Return the signature of a program that is called in this way."""
        signature = Signature(*self.filled(self.values), none=True)
        signature.static = dict(self.fixed)
        signature.names = [signature.paths[i] for i in self.places]
        signature.simple = signature.simple and not signature.static and not self.again
        return signature

    @property
    def is_flat(self) -> bool:
        """Whether each argument is one value, given by position."""
        positional, named = self.structure.parts
        return not len(named) and positional.flat == len(positional) == len(self.values)

    @property
    def fixed(self) -> list[tuple[int, Any]]:
        """The leaves that are no values, with their places."""
        values = {*self.places, *[place for place, _ in self.again]}
        return [(i, x) for i, x in enumerate(self.leaves) if i not in values]

    def filled(self, inputs: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with other values."""
        leaves = list(self.leaves)
        for place, x in zip(self.places, inputs, strict=True):
            leaves[place] = x
        for place, number in self.again:
            leaves[place] = inputs[number]
        args, kwargs = self.structure.filled(leaves)
        return args, kwargs


def call_of(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    static: Collection[Any],
    traced: Collection[Any],
    alone: Collection[Any] = (),
) -> CallArguments:
    """Take a call apart; ``static`` and ``traced`` are positions and names of arguments that override the rule.

    Each place of what is ``alone`` is a value of its own.
    """
    leaves, structure = flattened((args, kwargs), none=True)
    forced = _forced(args, kwargs, static, traced) if static or traced else {}
    kinds: list[Any] = []
    places: list[int] = []
    tensors = False
    again: list[tuple[int, int]] = []
    seen = dict.fromkeys(map(id, alone), -1)
    for i, x in enumerate(leaves):
        kind = forced[i](x) if i in forced else _kind(x)
        if kind is None:
            kinds.append(_static(x))
        elif isinstance(x, (Tensor, np.ndarray)) and seen.setdefault(id(x), len(places)) not in (-1, len(places)):
            kinds.append(("again", seen[id(x)]))
            again.append((i, seen[id(x)]))
        else:
            kinds.append(kind)
            places.append(i)
            tensors = tensors or isinstance(x, Tensor)
    mode, as_values = modes.current(), modes.given_arrays() or (bool(places) and not tensors)
    key = (structure, _order(structure), tuple(kinds), mode.grad, DEFAULT["dtype"], as_values)
    return CallArguments(key, [leaves[i] for i in places], tensors, leaves, places, structure, again=tuple(again))


def either_way(function: Callable[..., Any], arguments: Collection[Any]) -> tuple[Any, ...]:
    """Return arguments that are named, or whose positions are, by both: calls may give them by either."""
    both = {*arguments}
    for at, name in enumerate(positional_names(function)) if both else ():
        if at in both or name in both:
            both |= {at, name}
    return tuple(both)


def positional_names(function: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters that may be given by position; none of what has no signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _order(structure: Structure) -> tuple[Any, ...]:
    return (structure.keys, *[_order(part) for part in structure.parts if part.kind is not None])


def _kind(x: Any) -> Any:
    """Return what is known of a value before it is computed with; None for what is no value."""
    if isinstance(x, Tensor):
        spec = x.spec
        return "tensor", spec.shape, spec.strides, spec.dtype, x._slot is not None
    if type(x) in _FLOATS:
        return "float"
    if isinstance(x, np.ndarray) and type(x) is np.ndarray and x.dtype.kind in _KINDS:
        return "array", x.shape, x.strides, x.dtype
    if isinstance(x, np.floating):
        return "scalar", x.dtype
    return None


def _traced(x: Any) -> Any:
    """Return the same where ints and bools are values, too."""
    if isinstance(x, (bool, int, np.integer, np.bool_)):
        return "scalar", np.asarray(x).dtype
    return _kind(x)


def _static(x: Any) -> Any:
    """Return what stands for an object in a key: its value if it is plain, else the object itself."""
    is_plain = isinstance(x, np.generic) or type(x) in _PLAIN
    return exact(x) if is_plain else Same(x)  # a derived class, as of enums, may hold more


def _forced(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], static: Collection[Any], traced: Collection[Any]
) -> dict[int, Any]:
    """Return how leaves are looked at whose argument is named; by the number of the leaf."""
    forced: dict[int, Any] = {}
    at = 0
    for name, value in (*enumerate(args), *kwargs.items()):
        count = len(flattened(value, none=True)[0])
        look = (lambda _: None) if name in static else _traced if name in traced else None
        if look is not None:
            forced.update(dict.fromkeys(range(at, at + count), look))
        at += count
    return forced


def shared_input(x: Any) -> Tensor:
    """Return a tensor as it is, another value as one of the same memory, in which writes are seen."""
    if isinstance(x, Tensor):
        return x
    shared: Tensor | None = lent(x)
    if shared is None:
        made = constant_tensor(scalar_or_array(usable(x))) if isinstance(x, np.ndarray) else input_of(x)
        return mark_exported_to_numpy(made)
    if expose(x):
        protect(x)
    return shared


def is_separated(values: Sequence[Any]) -> bool:
    """Whether values share memory that their inputs do not: dense arrays, and numbers, are given as they are."""
    as_they_are = all(not isinstance(x, Tensor) and (not isinstance(x, np.ndarray) or fills(x)) for x in values)
    return not as_they_are and share_memory(values)


def input_of(x: Any) -> Tensor:
    """Return a value as the tensor that the function gets: the caller's own, unless it is a part of other memory."""
    if isinstance(x, Tensor):
        return x if type(x._value) is float or (fills(as_array(x)) and not is_view(x)) else clone(x)
    if isinstance(x, np.ndarray):
        array = usable(x if fills(x) else x.copy(order="K"))
        expose(array)
        return constant_tensor(scalar_or_array(array))
    if type(x) in _FLOATS:
        return constant_tensor(float(x))
    return constant_tensor(np.asarray(x))


def inputs_of(
    values: Sequence[Any], made: Callable[[Any], Tensor] = shared_input, beside: Sequence[Any] = ()
) -> list[Tensor]:
    """Return the values of a call as the function gets them; ``beside`` are further ones.

    Beside single precision a Python float computes as such: of an element of float32 and a double the result is double.
    """
    if float not in map(type, values):
        return list(map(made, values))
    known = [x for x in (*values, *beside) if isinstance(x, (Tensor, np.ndarray, np.generic))]
    single = any(x.dtype in _SINGLE for x in known)
    return [loop_number(x) if single and type(x) is float else made(x) for x in values]


_PLAIN_TYPES = frozenset((bool, int, float, str, bytes))
_PLAIN_ARGUMENTS = frozenset((bool, int, str, type(None)))


def simple_inputs(args: Sequence[Any], others: Collection[int] = ()) -> tuple[list[Any], list[Tensor]] | None:
    """Return arguments as the function gets them, and its values; None where one has parts, or comes twice.

    ``others`` are the positions of arguments that are as they are.
    """
    inputs, places, seen = list(args), list[int](), set[int]()
    for i, x in enumerate(args):
        kind = type(x)
        if i in others or kind in _PLAIN_ARGUMENTS:
            continue
        is_value = x.dtype.kind in _KINDS if kind is np.ndarray else _kind(x) is not None
        if not is_value or id(x) in seen:
            return None
        if not isinstance(x, float):
            seen.add(id(x))
        places.append(i)
    values = inputs_of([args[i] for i in places], beside=args)
    for i, x in zip(places, values, strict=True):
        inputs[i] = x
    return inputs, values


class CallShape:
    """The structure of a call's arguments (dicts, lists and tuples), and those of its leaves that are no values."""

    __slots__ = ("again", "fixed", "places", "structure")

    def __init__(self, call: CallArguments) -> None:
        self.structure, self.places, self.fixed = call.structure, call.places, call.fixed
        self.again = [(i, call.places[number]) for i, number in call.again]

    @staticmethod
    def suits(call: CallArguments) -> bool:
        """Whether a call has values, in structures that are opened in one way."""
        return bool(call.places) and _is_plain(call.structure)

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        """Return the values of a call; None where something else differs. What they are is not looked at."""
        leaves: list[Any] = []
        if not _opened(self.structure, (args, kwargs), leaves):
            return None
        for i, x in self.fixed:
            other = leaves[i]
            if other is not x and not (type(x) in _PLAIN_TYPES and type(other) is type(x) and exact(other) == exact(x)):
                return None
        if any(leaves[i] is not leaves[j] for i, j in self.again):
            return None
        return tuple([leaves[i] for i in self.places])


def _is_plain(structure: Structure) -> bool:
    kind = structure.kind
    if kind is None:
        return True
    named = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return (kind in (dict, list, tuple) or named) and all(map(_is_plain, structure.parts))


def _opened(structure: Structure, tree: Any, leaves: list[Any]) -> bool:
    kind: Any = structure.kind
    if type(tree) is not kind:
        return False
    inside: Any = tree
    if kind is dict:
        if tuple(tree) != structure.keys:
            return False
        inside = tree.values()
    elif len(inside) != len(structure.parts):
        return False
    if structure.flat:
        leaves += inside
        return True
    for part, x in zip(structure.parts, inside, strict=True):
        if part is LEAF:
            leaves.append(x)
        elif not _opened(part, x, leaves):
            return False
    return True


# Results of calls: given as the arguments were, and compared.

DOUBLE, SINGLE = (1 << 16) * float(np.finfo(np.float64).eps), (1 << 13) * float(np.finfo(np.float32).eps)
"""How far results that rounding sets apart are from each other, of the largest: where all is float64, and where not."""
_RUNS = 1 << 10  # how many times as far apart as results of arguments one rounding apart
_SENSITIVE, _NEAR_RUNS = 1e-4, 8  # how far, of the largest, and how many times as far, where rounding moves it more
_MOST_RUNS = 4


def owned(leaves: Sequence[Any], inputs: Sequence[Tensor]) -> list[Any]:
    """Return results, copied where they are of an argument's memory, parts of another tensor, or one result twice."""
    seen, results = set(map(_memory, inputs)), list(leaves)
    for i, x in enumerate(leaves):
        if isinstance(x, Tensor):
            shares = is_view(x) or _memory(x) in seen
            results[i] = clone(x) if shares else x
            seen.update(() if shares else (_memory(x),))
            if type(x) is LoopNumber:
                x.__class__ = Tensor  # type: ignore[assignment]
    return results


def _memory(x: Tensor) -> tuple[str, int]:
    return ("tensor", id(x)) if type(x._value) is float else ("memory", where(root_of(as_array(x))))


def values_of(arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Return arguments as arrays and floats."""
    values = [x._value if isinstance(x, Tensor) else x for x in arguments]
    return tuple([float(x) if type(x) is np.ndarray and x.ndim == 0 and x.dtype == np.float64 else x for x in values])


def meet(x: Any, y: Any) -> bool:
    """Whether two values are one object, or may share memory."""
    if x is y:
        return True
    a, b = (v._value if isinstance(v, Tensor) else v for v in (x, y))
    return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and np.may_share_memory(a, b)


def kept(x: Any) -> Any:
    """Return a result that is no tensor as it is kept, or given out: an array copied."""
    return x.copy() if isinstance(x, np.ndarray) else x


def as_given(result: Any, *, tensors: bool) -> Any:
    """Return a result with NumPy's values for tensors that do not require grad, unless tensors were given."""
    if tensors:
        return result
    leaves, structure = flattened(result, none=True)
    for i, x in enumerate(leaves):
        if isinstance(x, Tensor) and x._slot is None:
            leaves[i] = outcome(np.array(x._value, order="K"), False)
    return structure.filled(leaves)


def same_results(one: Any, other: Any, *, rounding: float = 0.0, of: float = 0.0) -> bool:
    """Whether two results are the same to the last bit, or up to this part of the largest; nan is as good as nan.

    The largest element of these, or ``of`` what they were computed from.
    """
    (leaves, structure), (others, other_structure) = (flattened(x, none=True) for x in (one, other))
    if structure != other_structure:
        return False
    apart = rounding * (of or sizes(others)) if rounding else 0.0
    return all(_same(x, y, apart) for x, y in zip(leaves, others, strict=True))


def within_runs(one: Any, other: Any, runs: Sequence[Any], apart: float) -> bool:
    """Whether two results are as close as rounding leaves them: nearer than ``apart``, and as near as runs come.

    These are of arguments that differ by rounding. Where a result is what is left of terms that cancel, both are of the
    size of these terms' rounding. The gradient of an adaptive integrator moves by more, with its steps: there results
    have to be nearer to each other. A wrong term is farther; and so is chaos, whose runs come anywhere.
    """
    (leaves, structure), (others, other_structure) = (flattened(x, none=True) for x in (one, other))
    if not runs or structure != other_structure:
        return False
    columns = zip(leaves, others, *[flattened(x, none=True)[0] for x in runs], strict=True)
    return all(_within(*column, apart=apart) for column in columns)


def _within(x: Any, y: Any, *runs: Any, apart: float) -> bool:
    if _same(x, y, 0.0):
        return True
    one, other, *others = [np.asarray(v._value if isinstance(v, Tensor) else v) for v in (x, y, *runs)]
    if one.dtype.kind != "f" or one.dtype != other.dtype or one.shape != other.shape:
        return False
    spread = max(_size(run - other) for run in others)
    near = _NEAR_RUNS * spread
    most = max(min(apart, _RUNS * spread), near if near <= _SENSITIVE * _size(other) else 0.0)
    return bool(np.allclose(one, other, rtol=0.0, atol=most, equal_nan=True))


def sizes(values: Iterable[Any]) -> float:
    """Return the size of the largest finite element of values."""
    return max(map(_size, values), default=0.0)


def one_rounding_apart(values: Sequence[Any]) -> Iterator[list[Any]]:
    """Give values several times, each floating one changed by about its rounding, zeros by that of the largest."""
    random = np.random.default_rng(0)
    for _ in range(_MOST_RUNS):
        near = list(values)
        for i, x in enumerate(values):
            array = np.asarray(x._value if isinstance(x, Tensor) else x)
            if array.dtype.kind == "f":
                scale = np.where(array == 0, _size(array) or 1.0, np.abs(array)) * np.finfo(array.dtype).eps
                moved = np.array(array + scale * random.choice([-2.0, -1.0, 1.0, 2.0], array.shape), array.dtype)
                number = moved if moved.ndim else moved[()]
                near[i] = constant_tensor(scalar_or_array(moved)) if isinstance(x, Tensor) else number
        yield near


def _size(x: Any) -> float:
    values = np.asarray(x._value if isinstance(x, Tensor) else x)
    if values.dtype.kind != "f" or not values.size:
        return 0.0
    return float(np.max(np.abs(values), where=np.isfinite(values), initial=0.0))


def _same(x: Any, y: Any, apart: float) -> bool:
    if isinstance(x, Tensor) != isinstance(y, Tensor):
        return False
    if isinstance(x, Tensor):
        return (x._slot is None) == (y._slot is None) and _same(np.asarray(x._value), np.asarray(y._value), apart)
    if not isinstance(x, (np.ndarray, np.generic, float)):
        return bool(x is y or (type(x) is type(y) and repr(x) == repr(y)))
    a, b = np.asarray(x), np.asarray(y)
    if a.dtype != b.dtype or a.shape != b.shape or a.dtype.kind != "f":
        return a.dtype == b.dtype and bool(np.array_equal(a, b))
    if apart:
        return bool(np.allclose(a, b, rtol=0.0, atol=apart, equal_nan=True))
    one, other = [np.where(np.isnan(v), False, np.signbit(v)) for v in (a, b)]
    return bool(np.array_equal(a, b, equal_nan=True) and np.array_equal(one, other))


# What compiling costs, and what calls take without it: seconds, by which it is decided when calls are recorded.

SHARE, SHARE_OF_MISSES = 0.2, 0.1
"""Of the time that calls take in dynamic mode, what compiling and what replays in vain may take, to begin one more."""
_FIRST, _FIRST_ALIKE = 2, 4  # recordings that wait for nothing, where the next call is sure to go the same way
MOST_ALIKE = 7  # calls that are taken to be as long as one


class Overhead:
    """What compiling has cost a function: ``spent`` on recordings, plans and checks, ``missed`` by replays in vain.

    ``calls`` is what all calls so far take in dynamic mode: as others like them that were measured;
    ``latest`` is the last one that was. Calls are not looked at before they have taken ``until``, and not measured
    while some are ``passing``.
    """

    __slots__ = ("_recording", "calls", "first", "latest", "missed", "passing", "recordings", "spent", "until")
    clock = staticmethod(time.thread_time)

    def __init__(self) -> None:
        self.calls = self.missed = self.spent = self.latest = self.until = self._recording = 0.0
        self.recordings, self.first, self.passing = 0, 1, 0

    def allows_replays(self) -> bool:
        """Whether replays may be tried, of which the last ones may have ended at guards."""
        return self.missed <= SHARE_OF_MISSES * self.calls

    def allows_recordings(self) -> bool:
        """Whether a call may be recorded, which is to take as long as the recording before."""
        return self.recordings < self.first or self.spent + self._recording <= SHARE * self.calls

    def recorded(self, seconds: float, *, sure: bool, alike: bool) -> None:
        """Count a recording, with what was made of it.

        Whether the next call is ``sure`` to go the same way; whether it went that of the one before, or has loops.
        """
        self.recordings, self.first = self.recordings + 1, (_FIRST_ALIKE if alike else _FIRST) if sure else 1
        self.spent, self._recording = self.spent + seconds, seconds

    def wait(self, *, programs: bool) -> None:
        """Have no calls looked at until there may be a recording, or a replay of ``programs``."""
        if not self.allows_recordings():
            at = (self.spent + self._recording) / SHARE
            self.until = min(at, self.missed / SHARE_OF_MISSES) if programs else at

    def calls_like_it(self, seconds: float) -> int:
        """Return how many calls that nobody looks at are taken to be as long as one of so many seconds."""
        return min(int((self.until - self.calls) / seconds), MOST_ALIKE) if seconds else 0

    def __str__(self) -> str:
        of_calls = f"of the {self.calls:.3g} s that calls take without it"
        return f"compiling has taken {self.spent:.3g} s, where it may take {SHARE:.0%} {of_calls}"


class DynamicTime:
    """What calls of one kind take in dynamic mode: the shorter of the last two, 0 before there are two.

    ``missed`` is how long the last replay took that ended at a guard.
    """

    __slots__ = ("_last", "missed", "overhead", "seconds")

    def __init__(self, overhead: Overhead) -> None:
        self.overhead, self.seconds, self.missed, self._last = overhead, 0.0, 0.0, 0.0

    def measured(self, seconds: float) -> None:
        """Take in a dynamic call."""
        self.seconds, self._last = min(self._last, seconds), seconds

    def count(self, times: int = 1) -> None:
        """Count calls."""
        self.overhead.calls += times * self.seconds


# What a compiled function tells of itself.

Places = Callable[[Iterable[int]], str]
_MOST = 8  # loops, nests, and guarded lines, that are told of
_MOST_NAMES, FEW, FEW_SIGNATURES = 16, 2, 3


def some(entries: Iterable[str], thing: str, most: int = _MOST) -> list[str]:
    """Return so many entries, and how many more things there are."""
    shown = [*entries]
    return [*shown[:most], *[f"and {counted(len(shown) - most, thing)} more"] * (len(shown) > most)]


def told_of_state(state: Any, programs: int) -> list[str]:
    """Return what is told of a state: so many programs, of the first one more than of others."""
    lines = []
    if state.dynamic:
        lines.append(f"    dynamic: {state.dynamic}")
    if state.watches:
        names = ", ".join(some([watch.name for watch in state.watches], "thing", _MOST_NAMES))
        lines.append(f"    as long as these stay as they were: {names}")
    for most, program in zip([_MOST, *[FEW] * (programs - 1)], state.programs, strict=False):
        lines.append(f"    program of {len(program)} operations, replayed {program.hits} times")
        missed = Counter[str]()
        for line, times in zip(program.lines, program.misses, strict=True):
            missed[line] += times
        counts = sorted(Counter(program.lines).items(), key=lambda entry: -missed[entry[0]])
        many = [f", {count:,} of them" if count > 1 else "" for _, count in counts]
        guards = [
            f"guard at {line}{of}: missed {missed[line]} times" for (line, _), of in zip(counts, many, strict=True)
        ]
        lines += [
            f"      {line}"
            for line in (*some(guards, "guarded line", most), *_tier(program, reverse=program.runs_back))
        ]
    if further := state.programs[programs:]:
        hits = sum(program.hits for program in further)
        lines.append(f"    and {counted(len(further), 'program')} more, replayed {hits:,} times")
    if state.met:
        lines.append(f"    {state.met} dynamic: an argument is read from outside, too, or shares memory with that")
    if state.various:
        lines.append(f"    {state.various}")
    if state.unrolled:
        lines.append(f"    unrolled: {state.unrolled}")
    if state.pending:
        lines.append(f"    {len(state.pending)} ways that were taken once: recorded again before they are replayed")
    return lines


def told_of_leaf(kind: Any) -> str:
    """Return what is told of a value, by its part of a key."""
    if kind == "float":
        return "float"
    if kind[0] == "again":
        return f"value {kind[1]} again"
    if kind[0] == "scalar":
        return f"{kind[1].name}[]"
    shape = ", ".join(map(str, kind[1]))
    grad = ", requires grad" if kind[0] == "tensor" and kind[4] else ""
    return f"{kind[0]} {kind[3].name}[{shape}]{grad}"


def _tier(program: Any, *, reverse: bool) -> Iterator[str]:
    pulling = vars(program).get("pulling")
    if pulling is not None and pulling.kept is not None and not program.is_machine_code:
        yield "interpreter, on tensors that require grad: the tape keeps the memory of a small program"
    program, reverse = program.run_by(reverse=reverse)
    recipe, machine = program._recipe, program._first.get(reverse)
    if isinstance(machine, CompiledMachine):
        account, places = machine.code.account, _places_in(recipe)
        if account is not None:
            yield f"machine code: {account.lines:,} lines, {machine.code.work:,} bytes of workspace"
            more = _loops(recipe, account, places), _nests(account.nests, places), _calls(account.calls, places)
            yield from [f"  {line}" for line in itertools.chain(*more)]
    elif reverse in program._interpreted:
        yield f"interpreter: {reason_of(recipe, program._interpreted[reverse])}"
    elif program._mode == "eager":
        yield 'interpreter: the mode is "eager"'
    elif program._recipe.written:
        yield "interpreter: it writes to arguments"
    elif reverse in program._due:
        meanwhile = ", while machine code is being made" if reverse in program._beside else ""
        yield f"interpreter, for {program._due[reverse]:,} more calls{meanwhile}"
    else:
        yield "interpreter, at first"


def _places_in(recipe: Recipe) -> Places:
    """Return what gives the lines of steps as text: file, and numbers; of one line its source, too."""
    lines, numbers = recipe.lines, None if recipe.lines is None else recipe.lines.of_steps(recipe.steps)

    def at(steps: Iterable[int]) -> str:
        known = [] if numbers is None else sorted({int(numbers[step]) for step in steps if step >= 0} - {-1})
        if lines is None or not known:
            return ""
        if len(known) == 1:
            return f" at {lines.text(known[0], short=True)}"
        table = sorted({lines.table[number][:2] for number in known})
        files = [
            f"{Path(path).name}:{', '.join(some([str(line) for _, line in group], 'line'))}"
            for path, group in itertools.groupby(table, key=lambda entry: entry[0])
        ]
        return f" at {'; '.join(files)}"

    return at


def _loops(recipe: Recipe, account: Account, places: Places) -> Iterator[str]:
    shown = []
    for loop in account.loops:
        times = f"{loop.count:,} times" if not loop.ends else f"until it ends, after {loop.count:,} times at most,"
        shown.append(f"{'  ' * loop.depth}loop, {times} {counted(len(loop.steps), 'operation')}{places(loop.steps)}")
    yield from some(shown, "loop")
    if account.straight:
        yield f"in no loop: {counted(len(account.straight), 'operation')}"
    for entry in unrolled(recipe, account.straight)[:_MOST]:
        assert recipe.lines is not None
        where = recipe.lines.text(entry.line, short=True)
        yield f"  {entry.operations:,} of these in {entry.times:,} times of {where}"
        yield f"    no loop: {entry.reason}"


def _nests(nests: Sequence[NestAccount], places: Places) -> Iterator[str]:
    shown: list[str] = []
    for nest in nests:
        text = f"nest of {counted(nest.statements, 'statement')} over {nest.elements:,} elements{places(nest.steps)}"
        if nest.apart is not None:
            first, second = places([nest.apart[0]]), places([nest.apart[1]])
            text += f"\n  not part of the nest before: all, or other elements, of what is computed{first}"
            text += f"\n  is needed{second}"
        shown.append(text)
    counts = Counter(shown).items()
    entries = some([text if count == 1 else f"{count:,} times {text}" for text, count in counts], "nest")
    yield from itertools.chain.from_iterable(map(str.splitlines, entries))


def _calls(calls: Sequence[CallAccount], places: Places) -> Iterator[str]:
    alike: dict[tuple[str, str], list[CallAccount]] = {}
    for call in calls:
        alike.setdefault((call.name, call.by), []).append(call)
    shown = []
    for (name, by), group in alike.items():
        times = sum(call.times for call in group)
        shown.append(f"{counted(times, 'call')} of {name} by {by}{places([call.step for call in group])}")
    yield from some(shown, "called operation")


def counted(count: int, thing: str) -> str:
    """Return a number of things as text."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
