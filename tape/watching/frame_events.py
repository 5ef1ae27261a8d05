"""Events of frames: lines and calls as they run, what code reads, states of random generators.

An iteration is decided by its locals, by what they lead to, and by what the code that it runs through reads
elsewhere: globals, attributes of modules and of classes. What no snapshot shows, such as the clock, makes a loop
stay Python.
"""

from __future__ import annotations

import _random
import ctypes
import dis
import functools
import gc
import itertools
import pickle
import random
import sys
import threading
import types
from collections import namedtuple
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from threading import get_ident
from types import CodeType, FrameType, ModuleType
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from kernels import PACKAGES
from kernels.foundation.tables import Lock, Recent
from kernels.language import jit
from kernels.language.cache_files import is_untraced
from kernels.native.memory import where
from kernels.programs.program import native
from tape.tensors.bytecode import package_of
from tape.tensors.tensor import Tensor

_DECIDED = frozenset((*PACKAGES, "numpy", "scipy", "numba", "llvmlite", "jax", "jaxlib")) | sys.stdlib_module_names
_UNDECIDED = frozenset(("random", "secrets", "uuid", "datetime", "tempfile", "this", "antigravity"))
CLOCKS = frozenset(("time", "posix", "nt", "gc", "_thread", "_socket", "_uuid", "cython_runtime"))
READERS = frozenset(("globals", "eval", "exec", "input", "__import__", "breakpoint"))
_READERS = READERS | {"locals", "id", "open"}  # builtin functions whose results are in no snapshot
_OF_TENSORS = frozenset(("is_leaf", "grad_fn", "grad", "_version", "data_ptr", "retains_grad", "next_functions"))
"""Attributes of tensors that say more than is compared."""
_DYNAMIC = frozenset(("getattr", "setattr", "hasattr", "delattr", "vars", "attrgetter", "methodcaller", "__dict__"))
"""Names by which attributes of any name are read."""
_GLOBALS = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"))
_STORES = {"STORE_GLOBAL": "stores the global", "DELETE_GLOBAL": "deletes the global"}
_STORES |= {"IMPORT_NAME": "imports", "IMPORT_STAR": "imports"}
_NAMES = frozenset(("__call__",))  # attributes that are read without their names


class CodeReads(NamedTuple):
    """What code reads by name: globals, attributes of anything. ``reason``: what it does that no snapshot shows.

    ``identities``: whether it looks at which of two objects is which, other than at constants such as None.
    """

    variables: tuple[str, ...]
    names: frozenset[str]
    reason: str
    identities: bool


def is_decided(package: Any) -> bool:
    """Whether a module, by its name, belongs to a package whose functions depend on what they are given alone."""
    first = package_of(package)
    if first.startswith("namedtuple_"):  # what the standard library writes for a named tuple
        return True
    return first in _DECIDED and first not in _UNDECIDED and not str(package).startswith("numpy.random")


Result = TypeVar("Result")


def of_code(compute: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function of code objects that computes its result once for each, also with a frame that runs it."""
    known: Recent[int, tuple[CodeType, Result]] = Recent()

    def result(code: CodeType, *frame: FrameType) -> Result:
        entry = known.get(id(code))
        if entry is None or entry[0] is not code:
            entry = known[id(code)] = code, compute(code, *frame)
        return entry[1]

    return result


@of_code
def reads_of(code: CodeType) -> CodeReads:
    """Return what a code object, with those of functions defined in it, reads from outside."""
    return reads_within(code)


def reads_within(code: CodeType, offsets: Container[int] | None = None) -> CodeReads:
    """Return what the instructions at these offsets (None: all), and functions they define, read from outside."""
    variables, names, reasons, identities, before = set[str](), set(_NAMES), list[str](), False, ""
    for step in (step for step in dis.get_instructions(code) if offsets is None or step.offset in offsets):
        value = step.argval
        identities |= step.opname == "CONTAINS_OP" or (step.opname == "IS_OP" and before != "LOAD_CONST")
        before = step.opname
        if isinstance(value, CodeType):
            inner = reads_of(value)
            variables.update(inner.variables)
            names |= inner.names
            reasons += [inner.reason] * bool(inner.reason)
            identities |= inner.identities
        elif step.opname in _GLOBALS and not value.startswith(
            "@"
        ):  # what rewrites asserts puts such names into modules
            variables.add(value)
        elif step.opname in _STORES:
            reasons.append(f"{code.co_qualname} {_STORES[step.opname]} {value}")
        if step.opcode in dis.hasname:
            names.add(value)
    reasons += [f"{code.co_qualname} reads {name} of tensors" for name in sorted(names & _OF_TENSORS)]
    return CodeReads(tuple(sorted(variables)), frozenset(names), reasons[0] if reasons else "", identities)


class LoopScope:
    """The code that an entry of a loop may run, and the names that it reads; both only grow."""

    def __init__(self) -> None:
        self.codes: list[tuple[CodeType, tuple[str, ...], dict[str, Any], dict[str, Any]]] = []
        """Each with the globals that it reads, by name, and the dictionaries of globals and of builtins."""
        self.names: set[str] = set()
        self.reason, self.identities = "", False
        self._seen: set[tuple[int, int]] = set()

    def reads(self, name: str) -> bool:
        """Whether an attribute of a class or module may be read."""
        if name.startswith(("__", "_abc_")):
            return name in _NAMES
        return name in self.names or not _DYNAMIC.isdisjoint(self.names)

    @property
    def size(self) -> tuple[int, int]:
        """What grows when code is added that is not known yet."""
        return len(self.codes), len(self.names)

    def add(
        self, code: CodeType, variables: dict[str, Any], builtins: dict[str, Any], reads: CodeReads | None = None
    ) -> None:
        """Add code that runs with these globals and builtins; ``reads``: if only a part of it counts."""
        key = id(code), id(variables)
        if key not in self._seen:
            self._seen.add(key if reads is None else (0, 0))
            reads = reads or reads_of(code)
            self.codes.append((code, reads.variables, variables, builtins))
            self.names |= reads.names
            self.reason = self.reason or reads.reason
            self.identities |= reads.identities

    def globals(self) -> Iterator[tuple[str, Any]]:
        """Yield the values of all globals that are read, with what they are called, and code that adds more of them."""
        for code, names, variables, builtins in self.codes:
            for name in names:
                if name in variables:
                    yield f"{name} of {code.co_qualname}", variables[name]
                elif name in _READERS and name in builtins:
                    self.reason = self.reason or f"{code.co_qualname} calls {name}"
                elif name in builtins:
                    yield name, builtins[name]


MISSING: Any = object()
_PLAIN_READS: tuple[Any, ...] = (object.__getattribute__, ModuleType.__getattribute__)
bases_of: Callable[[type], tuple[type, ...]]
dictionary_of: Callable[[type], types.MappingProxyType[str, Any]]
flags_of: Callable[[type], int]
bases_of, dictionary_of, _MODULE, flags_of = (
    vars(type)[name].__get__ for name in ("__mro__", "__dict__", "__module__", "__flags__")
)
"""What classes say of themselves, past what their metaclasses answer: those above, what they have, their flags."""
_MADE = 1 << 9
"""The flag of classes that a ``class`` statement makes. It finds builtins' name where its module has none."""
NAMED_FIELD = type(vars(namedtuple("_Named", "a"))["a"])  # noqa: PYI024 (only the class of its fields is wanted)
_MEMBERS = (types.MemberDescriptorType, NAMED_FIELD)
"""What a class has for slots of its objects, and for fields of a named tuple."""
_BOUND = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, classmethod, staticmethod)
_BOUND += (types.ClassMethodDescriptorType, types.BuiltinFunctionType)  # type: ignore[assignment]
"""What becomes a method when it is looked up, by nothing else than the object."""


def module_of(kind: type) -> str:
    """Return the name of the module that a class is of; none of a class that ``exec`` made in a module without one."""
    name = _MODULE(kind)
    return "" if type(name) is not str or (name == "builtins" and flags_of(kind) & _MADE) else name


def entry_of_class(kind: type, name: str) -> Any:
    """Return what a class or those above it have by a name; MISSING if nothing."""
    for above in bases_of(kind):
        variables = dictionary_of(above)
        if name in variables:
            return variables[name]
    return MISSING


def variables_of(value: Any) -> dict[str, Any] | None:
    """Return the dictionary of an object's attributes; None if it has none."""
    for above in bases_of(type(value)):
        entry: Any = dictionary_of(above).get("__dict__")
        if type(entry) in (types.GetSetDescriptorType, types.MemberDescriptorType):
            variables = entry.__get__(value)
            return variables if type(variables) is dict else None
    return None


def member_of(value: Any, name: str) -> Any:
    """Return what an object has in a slot; MISSING if nothing."""
    entry = entry_of_class(type(value), name)
    try:
        return entry.__get__(value) if type(entry) in _MEMBERS else MISSING
    except AttributeError:
        return MISSING


def wrapped_by(value: Any) -> Any:
    """Return the function that a function or another object is made of, as ``functools.wraps`` notes it."""
    variables = None if issubclass(type(value), type) else variables_of(value)
    return MISSING if variables is None else variables.get("__wrapped__", MISSING)


def read(value: Any, name: str) -> Any:
    """Return an attribute as Python looks it up; MISSING where there is none, or a user's code would run for it."""
    kind = type(value)
    if issubclass(kind, type):
        return _read_of_class(value, name)
    entry = entry_of_class(kind, name)
    if entry_of_class(kind, "__getattribute__") not in _PLAIN_READS:
        return MISSING
    if type(entry) in _MEMBERS:
        return member_of(value, name)
    variables = variables_of(value)
    if _is_data(entry):
        stays = type(entry) is types.GetSetDescriptorType and is_decided(module_of(entry.__objclass__))
        return entry.__get__(value, kind) if stays else MISSING
    if variables is not None and name in variables:
        return variables[name]
    ours = kind is ModuleType and entry is MISSING and value.__name__.partition(".")[0] == _NAME
    return getattr(value, name, MISSING) if ours else _bound(entry, value, kind)  # ours: some are imported only now


def _read_of_class(value: type, name: str) -> Any:
    kind = type(value)
    usual = entry_of_class(kind, "__getattribute__") is type.__getattribute__
    if not usual or _is_data(entry_of_class(kind, name)):
        return MISSING
    return _bound(entry_of_class(value, name), None, value)


def _is_data(entry: Any) -> bool:
    kind = type(entry)
    return any(entry_of_class(kind, name) is not MISSING for name in ("__set__", "__delete__"))


def _bound(entry: Any, value: Any, kind: type) -> Any:
    if type(entry) in _BOUND or module_of(type(entry)) == "tape":  # compiled functions, too
        return entry.__get__(value, kind) if hasattr(type(entry), "__get__") else entry
    return entry if entry_of_class(type(entry), "__get__") is MISSING else MISSING


def plain_attribute(value: Any, name: str) -> Any:
    """Return an attribute that stands in an object's dictionary and that no code is run for; else ``MISSING``."""
    kind = type(value)
    if issubclass(kind, Tensor) or entry_of_class(kind, "__getattribute__") not in _PLAIN_READS:
        return MISSING
    if entry_of_class(type(entry_of_class(kind, name)), "__get__") is not MISSING:
        return MISSING
    variables = variables_of(value)
    return MISSING if variables is None else variables.get(name, MISSING)


GENERATORS: tuple[type, ...] = (random.Random, np.random.Generator, np.random.RandomState, np.random.BitGenerator)
_TWISTER = 4 * 625  # bytes of a Mersenne twister: its words, and how many of them were used


def _words_of(generator: random.Random) -> bytes:
    """Return the memory of a twister of Python's: behind its header how many words were used, and the words."""
    return ctypes.string_at(id(generator) + object.__basicsize__, _TWISTER)


@functools.cache
def _has_words() -> bool:
    """Whether these stand where native code of Python's 3.11 to 3.14 has them."""
    probe = random.Random(1)  # noqa: S311 (no secret)
    words = list(np.frombuffer(_words_of(probe), np.uint32))
    return _random.Random.__basicsize__ >= object.__basicsize__ + _TWISTER and (
        [*words[1:], words[0]] == list(probe.getstate()[1])
    )


def state_of(generator: Any) -> Any:
    """Return what tells states of a generator apart."""
    if issubclass(type(generator), random.Random):
        if type(generator) is random.Random and _has_words():  # ``getstate`` takes 15 us
            return _words_of(generator), vars(generator).get("gauss_next")
        return random.Random.getstate(generator)
    bits = generator if issubclass(type(generator), np.random.BitGenerator) else generator._bit_generator
    if type(bits) is np.random.MT19937:  # whose ``state`` takes 30 us
        return ctypes.string_at(bits.ctypes.state_address, _TWISTER)
    return pickle.dumps(bits.state)


def random_states(known: Iterable[tuple[str, Any]]) -> list[tuple[str, Any, Any]]:
    """Return Python's and NumPy's global generators, and others, by name, with the states that tell them apart."""
    shared = [("Python's random", random._inst), ("np.random", np.random.mtrand._rand)]
    return [(name, x, state_of(x)) for name, x in (*shared, *known)]


def drawn_since(states: Iterable[tuple[str, Any, Any]]) -> str:
    """Return why a call cannot be replayed, if it drew from one of these."""
    drawn = [name for name, x, state in states if state_of(x) != state]
    return f"the call draws random numbers from {drawn[0]}, which programs do not hold" if drawn else ""


# What runs in this thread during a call: frames as they begin, and in some of them chosen instructions.
# Python 3.12 and later report single instructions (``sys.monitoring``, PEP 669); before it the thread is traced.

_Tracer = Callable[[FrameType, str, Any], Any]
monitoring: Any = getattr(sys, "monitoring", None)
REPORTS_INSTRUCTIONS = monitoring is not None


class Activation(Protocol):
    """What one activation of a function is asked to report."""

    points: frozenset[int]
    """Offsets of the instructions that are reported; the same for all activations of one code object."""
    setups: frozenset[int]
    """Offsets of instructions that make the iterators of for loops, which are entered behind them."""

    def at(self, frame: FrameType, offset: int) -> None:
        """Take in that an instruction is next."""

    def is_entry(self, offset: int) -> bool:
        """Return whether a for loop would be entered here."""

    def end(self) -> None:
        """Take in that the function returns, which in Python 3.11 is at no instruction."""


def _call_traced(listener: CodeListener, function: Callable[..., Result], *args: Any) -> Result:
    if sys.gettrace() is not None:
        listener.reason = "loops are not watched while another trace function is set"
        return _call_profiled(listener, function, *args)
    tracer = _passing_over(listener, _Traced(listener).began)
    try:
        sys.settrace(tracer)
        return function(*args)
    finally:
        try:
            if sys.gettrace() is not tracer:
                listener.reason = listener.reason or "the trace function was changed while the function ran"
                listener.unseen = _BESIDE
            sys.settrace(None)
        except BaseException:  # an interrupt
            sys.settrace(None)
            raise


class _PassedOver:
    """Code of whose frames Python does not hear, as native code finds it; with globals of those that have these."""

    def __init__(self) -> None:
        self._table, self._kept = np.zeros(4 * _MOST_PASSED + 1, np.int64), list[Any]()
        self._table[0] = 2 * _MOST_PASSED - 1

    def add(self, code: CodeType, variables: dict[str, Any] | None = None) -> None:
        """Add code, if there is room; what is here stays alive, so that its id stays its own."""
        if len(self._kept) < _MOST_PASSED:
            self._kept.append((code, variables))
            enter = jit.load_module("programs.recorder_native").pass_over.entry_point
            enter(where(self._table), id(code), 0 if variables is None else id(variables))

    def clear(self) -> None:
        """Have Python hear of all frames again."""
        if self._kept:
            self._table[1:] = 0
            self._kept.clear()

    def tracer(self, other: _PassedOver, notify: Callable[..., Any]) -> Callable[..., Any]:
        """Return a trace function that passes over what is here or there in native code."""
        return jit.bound("programs.recorder_native", "began", (self._table, other._table, notify, None))


_BESIDE = "what its code reads cannot be watched beside other functions that trace and profile"


def _call_profiled(listener: CodeListener, function: Callable[..., Result], *args: Any) -> Result:
    """Call a function in whose loops nothing is watched: a profile function hears what code begins to run."""

    def began(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            CodeListener.begin(listener, frame)

    if sys.getprofile() is not None:
        listener.unseen = _BESIDE
        return function(*args)
    try:
        sys.setprofile(began)
        return function(*args)
    finally:
        try:
            listener.unseen = listener.unseen or _BESIDE * (sys.getprofile() is not began)
            sys.setprofile(None)
        except BaseException:  # an interrupt
            sys.setprofile(None)
            raise


def _passing_over(listener: CodeListener, notify: Callable[..., Any]) -> Callable[..., Any]:
    """Return a trace function that passes over frames of code which does not count, or was heard of before."""
    if not native():
        return notify
    passed = _PassedOver()

    def began(frame: FrameType, *event: Any) -> Any:
        is_told, tracer = not is_collecting(), notify(frame, *event)
        code, variables = frame.f_code, frame.f_globals
        is_known = is_told and (id(code), id(variables)) in listener.executed and code is not _SEEDS
        if not listener.concerns(frame):
            passed.add(code)
        elif tracer is None and is_known:
            listener.known.add(code, variables)
        return tracer

    return passed.tracer(listener.known, began)


_MOST_PASSED = 1 << 10


class _Traced:
    """Hears of lines and instructions as a trace function."""

    def __init__(self, listener: CodeListener, activation: Activation | None = None) -> None:
        self.listener, self.activation = listener, activation

    def began(self, frame: FrameType, *_: Any) -> _Tracer | None:
        """Return what traces a frame, called at its beginning: nothing for nearly all."""
        code, passed_over = frame.f_code, self.listener.passed_over
        if passed_over.get(id(code)) is code:
            return None
        activation = self.listener.begin(frame)
        if activation is not None:
            return _Traced(self.listener, activation).goes_on
        if not self.listener.concerns(frame):
            passed_over[id(code)] = code
        return None

    def goes_on(self, frame: FrameType, event: str, _: Any) -> _Tracer | None:
        """Follow the frame to a line, or, where an iterator is made, to an instruction."""
        activation, at = self.activation, frame.f_lasti
        if self.listener.reason or activation is None:
            return None
        if event == "line":
            if not activation.is_entry(at):
                activation.at(frame, at)
            frame.f_trace_opcodes = frame.f_trace_opcodes or at in activation.setups
        elif event == "opcode":
            if activation.is_entry(at):
                activation.at(frame, at)
            if at not in activation.setups:
                frame.f_trace_opcodes = False
        elif event == "return":
            activation.end()
        return self.goes_on


_lock = Lock(waited_for=True)
_NAME = "tape"
_tools: list[int] = []  # this library's number among the tools that monitor, once it has one
_calls: dict[int, CodeListener] = {}  # who listens to the calls that are monitored, by thread
_points: dict[int, tuple[CodeType, Collection[int]]] = {}  # the code of which instructions are reported, and which


def _call_monitored(listener: CodeListener, function: Callable[..., Result], *args: Any) -> Result:
    thread = get_ident()
    if thread in _calls or not _is_tool():
        others = "others are" if thread in _calls else "all numbers of sys.monitoring are taken by other tools"
        listener.reason = f"loops are not watched while {others}"
        return _call_profiled(listener, function, *args)
    try:
        _calls[thread] = listener
        _settle()
        return function(*args)
    finally:
        try:
            _end(thread)
        except BaseException:  # an interrupt
            _end(thread)
            raise


def _end(thread: int) -> None:
    _calls.pop(thread, None)
    _settle()


def _settle() -> None:
    events = monitoring.events
    with _lock:
        monitoring.set_events(_tools[0], events.PY_START | events.PY_RESUME | events.PY_THROW if _calls else 0)
        while _points and not _calls:
            code, _ = next(iter(_points.values()))
            monitoring.set_local_events(_tools[0], code, 0)
            del _points[id(code)]


def _is_tool() -> bool:
    with _lock:
        if _tools and monitoring.get_tool(_tools[0]) != _NAME:  # somebody has freed it, and perhaps taken it
            _tools.clear()
        free = [number for number in (4, 3, 5, 2, 1, 0) if monitoring.get_tool(number) is None]
        if not _tools and free:  # Python names no purpose of 3 and 4; Hypothesis takes 3
            monitoring.use_tool_id(free[0], _NAME)
            events = monitoring.events
            for event in (events.PY_START, events.PY_RESUME):
                monitoring.register_callback(free[0], event, _began)
            monitoring.register_callback(free[0], events.PY_THROW, _thrown)
            monitoring.register_callback(free[0], events.INSTRUCTION, _at)
            _tools.append(free[0])
        return bool(_tools)


def _began(code: CodeType, _: int) -> Any:
    return _notified(code, sys._getframe(1))


def _thrown(code: CodeType, *_: Any) -> None:
    """Take in that a generator goes on with an exception; this event cannot be disabled."""
    _notified(code, sys._getframe(1))


def _notified(code: CodeType, frame: FrameType) -> Any:
    listener = _calls.get(get_ident())
    if listener is None:
        return None
    listener.activations.pop(id(frame), None)
    if is_untraced():
        return None
    activation = listener.begin(frame)
    if activation is None:
        return None if listener.concerns(frame) else monitoring.DISABLE
    listener.activations[id(frame)] = activation
    if id(code) not in _points:
        with _lock:
            _points[id(code)] = code, activation.points
            monitoring.set_local_events(_tools[0], code, monitoring.events.INSTRUCTION)
    return None


def _at(code: CodeType, offset: int) -> Any:
    known = _points.get(id(code))
    if known is None or offset not in known[1]:
        return monitoring.DISABLE
    listener = _calls.get(get_ident())
    if listener is not None and not listener.reason:
        frame = sys._getframe(1)
        activation = listener.activations.get(id(frame))
        if activation is not None:
            activation.at(frame, offset)
    return None


class CodeListener:
    """Hears what code begins to run while a function runs in this thread: ``begins`` is told, with its globals, once.

    ``reason`` says afterwards why what was heard of loops does not count, if so. ``unseen`` says why the call
    cannot be replayed, if code may have begun of which nothing was heard, or has read what is in no object.
    """

    def __init__(self, begins: Callable[[CodeType, dict[str, Any]], Any] | None) -> None:
        self.begins, self.reason, self.unseen = begins, "", ""
        self.serials = itertools.count()
        self.executed: dict[tuple[int, int], tuple[int, CodeType, Any, Any]] = {}
        """The code that was called, with when that was last, its globals and builtins."""
        self.passed_over: dict[int, CodeType] = {}  # code of which nothing is asked, where the thread is traced
        self.known = _PassedOver()  # code that was heard of, and need not be before a loop is entered
        self.activations: dict[int, Activation] = {}
        """Where calls are monitored, by the numbers of their frames, which are not held, since their locals would be.

        A number may be that of a frame that is gone, until one of the same code begins.
        """

    def call(self, function: Callable[..., Result], *args: Any) -> Result:
        """Call a function, watched. In Python 3.11 it is not where the thread is traced already, as by a debugger.

        No context manager: an interrupt as its end begins would leave the thread traced.
        """
        observe()
        return (_call_traced if monitoring is None else _call_monitored)(self, function, *args)

    def begin(self, frame: FrameType) -> Activation | None:
        """Take in that a frame begins."""
        # while the collector works, finalizers run, and its callbacks
        if not is_collecting() and _is_followed(frame.f_code, frame):
            code, variables = frame.f_code, frame.f_globals
            if code is _SEEDS and frame.f_locals.get("a") is None:
                self.unseen = "a generator random.Random that is given no seed"
            key = id(code), id(variables)
            if key not in self.executed:
                if _is_importing(frame):
                    return None
                if self.begins is not None:
                    self.begins(code, variables)
            self.executed[key] = next(self.serials), code, variables, frame.f_builtins
        return None

    def concerns(self, frame: FrameType) -> bool:
        """Return whether a frame has code that counts."""
        return _is_followed(frame.f_code, frame)


_SEEDS = random.Random.seed.__code__


@of_code
def _is_followed(code: CodeType, frame: FrameType) -> bool:
    """Whether the code of a frame may read from outside: it is of no package that is taken to stay as it is.

    What starts a thread is followed, too, since code that runs there is not.
    """
    return code is threading.Thread.start.__code__ or not is_decided(module_of_frame(frame))


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a frame is part of an import, which looks for a module, or runs one for the first time."""
    while frame is not None and frame.f_globals is not globals():
        if frame.f_globals.get("__name__") == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False


def module_of_frame(frame: FrameType) -> str:
    """Return the name of the module whose code a frame runs; ours for what ``kernels.foundation.tables`` writes."""
    ours = frame.f_globals.get("_set") is object.__setattr__
    return "tape" if ours else str(frame.f_globals.get("__name__"))


# The garbage collector: whether it is at work in this thread, and calls during which it works rarely.
#
# What finalizers and callbacks do while it works is part of no call.

_MANY = 1 << 17  # new objects after which the collector looks at them, where most are known to be alive
_collecting: set[int] = set()  # the threads in which the collector is at work


def _begun(phase: str, _: dict[str, Any]) -> None:
    if phase == "start":
        _collecting.add(get_ident())


def _ended(phase: str, _: dict[str, Any]) -> None:
    if phase == "stop":
        _collecting.discard(get_ident())


def observe() -> None:
    """Have the collector tell when it begins, before its other callbacks, and when it has ended, behind them.

    The two callbacks stay: taken away while another thread is watched, or while an interrupt comes, they would leave
    it with half of what it needs.
    """
    callbacks = gc.callbacks
    if not callbacks or callbacks[0] is not _begun or callbacks[-1] is not _ended:
        others = [callback for callback in callbacks if callback not in (_begun, _ended)]
        callbacks[:] = [_begun, *others, _ended]


def is_collecting() -> bool:
    """Whether the collector is at work in this thread."""
    return bool(_collecting) and get_ident() in _collecting


def rarely_collected(function: Callable[..., Result], *args: Any) -> Result:
    """Call a function whose objects stay alive, as what is recorded does: the collector looks at new ones rarely.

    No context manager: an interrupt as its end begins would leave the collector so.
    """
    before = gc.get_threshold()
    if not 0 < before[0] < _MANY:
        return function(*args)
    try:
        gc.set_threshold(_MANY, *before[1:])
        return function(*args)
    finally:
        try:
            _restore(before)
        except BaseException:  # an interrupt
            _restore(before)
            raise


def _restore(before: tuple[int, int, int]) -> None:
    if gc.get_threshold()[0] == _MANY:  # nobody else has changed it
        gc.set_threshold(*before)
