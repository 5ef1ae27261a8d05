"""The types that tapes, leaves, tensors and repeated functions derive from, and how results of calls are computed."""

from __future__ import annotations

import copyreg
import ctypes
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from kernels.foundation.specs import SCALAR, InnerLoop, Spec, Strides, spec_of
from kernels.foundation.tables import dataclass
from kernels.language import jit
from kernels.language.llvm_values import StructType
from kernels.native import c_api, pool
from kernels.native.c_api import (
    NATIVE,
    FunctionObject,
    LeafObject,
    TensorExtras,
    TensorObject,
    instance,
    made,
    members,
    methods,
    properties,
)
from kernels.native.memory import HEADER, REGISTRY, fill, put
from kernels.native.structs import CHUNK, CHUNK_BITS, NEW, TapeHeader

# How native code computes the result of a call that it repeats.

NO_LOOP = InnerLoop(0, 0)


@dataclass(frozen=True)
class Computation:
    """How native code computes a result, and where it goes: kind and target of program.py, and what these need."""

    kind: int
    loop: InnerLoop = NO_LOOP
    function: Any = None  # A Python function that computes the value
    layout: np.ndarray[Any, Any] | None = None
    count: int = 0  # how many operands there are, with the result
    picks: tuple[int, ...] = ()  # what is saved: the number of an operand, PICK_RESULT, PICK_SCALE
    initial: float = 0.0
    scale: float = 0.0
    bounds: tuple[int, int] | None = None
    """The range of Python ints among the operands, where integers are computed."""
    ties: np.ndarray[Any, Any] | None = None  # the nest in which the ties of an extremum are counted
    context: Any = None  # the context that an instruction run by Python saves first
    extra: Spec | None = None
    """The spec of a second result, int64 and of the same shape; ``pair`` makes the returned object of both."""
    pair: Any = None
    target: int = NEW
    shape: Strides | None = None
    """Of the array that is made, where it is not the result's: of a view, or of the places that are written."""
    strides: Strides = ()  # of a view
    start: int = 0
    """Where a view or a part begins in memory, in bytes; ``offset``: where in the gradient buffer."""
    offset: int = 0
    writeable: bool = False  # whether a view can be written
    offsets: np.ndarray[Any, Any] | None = None  # of the elements of a value that is written to places, in bytes
    extent: int = 0  # how many places there are, if none may be written twice
    kept: tuple[Any, ...] = ()
    """What ``layout`` refers to."""


def of_arrays(function: Any) -> Any:
    """Return a function of arrays as one of numbers, too."""
    return lambda *operands: function(*map(np.asarray, operands))


def to_array(function: Any) -> Any:
    """Return a function whose result may be a number as one that returns an array."""
    return lambda *operands: np.asarray(function(*operands))


# The heap types that tapes, leaves and tensors derive from.

_METHODS = "record", "at", "operand", "form", "find", "kept", "replace", "collect", "remove", "notify"


def _type() -> Any:
    native = jit.load_module("native.record_native")
    flags = {**dict.fromkeys(("count", "moves", "writes", "next"), c_api.READONLY), "grown": 0}
    rows = {name: (c_api.WORD, HEADER + 8 * getattr(TapeHeader, name), flag) for name, flag in flags.items()}
    slots = {
        c_api.MEMBERS: members(rows),
        c_api.METHODS: methods({name: getattr(native, name) for name in _METHODS}),
        c_api.DEALLOC: native.dealloc,
        c_api.LENGTH: native.length,
    }
    return made(f"{__name__}.Words", object, slots, HEADER + 8 * TapeHeader.SIZE, c_api.NOT_CALLED)


_types: list[Any] = []


def words_of_tape(number: int, count: int) -> Any:
    """Return the words of a new tape of this number, whose first slot has this count.

    - ``record(result, code, operands, saved)`` appends an instruction: a tensor gets its slot, and the form of this
      number; operands are None, slots and leaves.
    - ``at(last)`` is the instruction that ends at a place: start, stop, slot, operands, saved values, form;
      ``operand(place, last)``, ``form(last)`` and ``kept(place, last)`` are parts of one.
    - ``find(slot)`` is the end of the last instruction whose slot is at most this.
    - ``replace(place, last, saved, copy, code)`` puts a copy in place of a saved array (record_native.py lists them).
    - ``collect(readers)`` drops what nobody can reach, ``remove(readers, lasts)`` these instructions, unless others
      read.
    - ``notify(call)`` sets what is called when half of the tape is dead, or much memory is.
    """
    if not _types:
        _types.append(_type())
    entries = instance(_types[0])
    header = header_of(entries)
    count = -(-count // CHUNK) * CHUNK  # slots of the tape that had the number before are counted elsewhere
    first_chunk, registry = count >> CHUNK_BITS, REGISTRY.address
    fill(TapeHeader, header, number=number, next=count, first_chunk=first_chunk, registry=registry)
    put(REGISTRY.tapes, number, header)
    return entries


def header_of(entries: Any) -> int:
    """Return the address of a tape's header."""
    return id(entries) + HEADER


Class = TypeVar("Class", bound=type)


def _is_laid_out(cls: type, struct: StructType) -> bool:
    return NATIVE and place_of(cls, *struct.FIELDS) == [at for at, _ in struct.FIELDS.values()]


def leaf_type(cls: Class) -> Class:
    """Let native code make and read the slots of leaves, if this class lays out its attributes as expected."""
    if _is_laid_out(cls, LeafObject):
        REGISTRY.set_objects(leaf_type=cls, spec_of=spec_of, scalar_spec=SCALAR)
        REGISTRY.set(copy_array=c_api.table()[c_api.NEW_COPY])
    return cls


def extras_type(cls: Class) -> Class:
    """Let native code make and read tensors' rare attributes, if this class lays them out as expected."""
    if _is_laid_out(cls, TensorExtras):
        REGISTRY.set_objects(extras_type=cls)
    return cls


def place_of(cls: type, *names: str) -> list[int]:
    """Return the offsets of a class's ``__slots__``, in bytes."""
    probe = cls.__new__(cls)
    held = [object() for _ in names]
    for name, probe_value in zip(names, held, strict=True):
        setattr(probe, name, probe_value)
    row = (ctypes.c_size_t * (cls.__basicsize__ // 8)).from_address(id(probe))[:]
    places = [8 * row.index(id(probe_value)) for probe_value in held]
    for name in names:
        delattr(probe, name)
    return places


@functools.cache
def _property() -> Any:
    native, find = jit.load_module("calls.tensor_native"), ctypes.pythonapi.PyType_GetSlot
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_int]
    REGISTRY.set(getter=find(property, c_api.DESCR_GET), setter=find(property, c_api.DESCR_SET))
    slots = {
        c_api.MEMBERS: members({"__doc__": (c_api.OBJECT, 40, 0)}),
        c_api.DESCR_GET: native.get_grad,
        c_api.DESCR_SET: native.set_grad,
    }
    return made(f"{__name__}.Grad", property, slots, 0, 0)


def grad_property(get: Callable[..., Any], put_in: Callable[..., Any], forget: Callable[..., Any]) -> property:
    """Return the property ``grad``: native for leaves, and these functions for other tensors."""
    kind = _property() if NATIVE else property
    attribute: property = kind(get, put_in, forget, get.__doc__)
    return attribute


def native_or(name: str, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of tensors or leaves in native code, which is atomic; where there is none, another."""
    return jit.bound("calls.tensor_native", name, None) if NATIVE else otherwise


def begun_in_python(slot: Any, gradient: Any) -> bool:
    """Do what ``begun`` in tensor_native.py does."""
    if slot.grad is not None:
        return False
    slot.grad = gradient
    return True


_TENSOR_MEMBERS = {
    "_value": (c_api.OBJECT, TensorObject.value, 0),
    "_form": (c_api.OBJECT, TensorObject.form, 0),
    "_base": (c_api.OBJECT, TensorObject.base, 0),
    "_views": (c_api.OBJECT, TensorObject.views, 0),
    "_shared": (c_api.OBJECT, TensorObject.shared, 0),
    "_extras": (c_api.OBJECT, TensorObject.extras, 0),
    "_offset": (c_api.SIZE, TensorObject.offset, 0),
    "_bytes": (c_api.SIZE, TensorObject.bytes, 0),
    "_node": (c_api.SIZE, TensorObject.node, 0),
    "__weaklistoffset__": (c_api.SIZE, TensorObject.weak, c_api.READONLY),
}
_REPLACED = frozenset(
    {"__dict__", "__weakref__", "__slots__", "__module__", "__del__", "_slot", "_unheld", *_TENSOR_MEMBERS}
)
"""Attributes of the class that the native type replaces, or lacks."""


def tensor_type(cls: Class) -> Class:
    """Return the native type with the methods of a class, for use as its decorator; the class, without native code."""
    if not NATIVE:
        return cls
    if pool.DEBUG:
        pool.install()
    native = jit.load_module("calls.tensor_native")
    calls = jit.load_module("calls.functions_native")
    slots = {
        c_api.MP_SUBSCRIPT: calls.mp_subscript,
        c_api.MP_ASS_SUBSCRIPT: calls.mp_ass_subscript,
        c_api.NB_ADD: calls.nb_add,
        c_api.NB_SUBTRACT: calls.nb_subtract,
        c_api.NB_MULTIPLY: calls.nb_multiply,
        c_api.NB_TRUE_DIVIDE: calls.nb_true_divide,
        c_api.NB_POWER: calls.nb_power,
        c_api.NB_NEGATIVE: calls.nb_negative,
        c_api.NB_MATRIX_MULTIPLY: calls.nb_matrix_multiply,
        c_api.MEMBERS: members(_TENSOR_MEMBERS),
        c_api.GETSET: properties({"_slot": (native.get_slot, native.set_slot)}),
        c_api.METHODS: methods({"_unheld": native.unheld}, without=True),
        **_memory(native),
    }
    native_class = _with_methods(
        made(_name(cls), object, slots, TensorObject.SIZE, c_api.BASETYPE | c_api.COLLECTED), cls
    )
    REGISTRY.set(tensor_type=id(native_class))
    kind = made(f"{__name__}.Shown", object, {c_api.DEALLOC: native.end_shown}, c_api.ShownObject.SIZE, 0)
    REGISTRY.set_objects(shown_type=kind)
    return native_class


def same_layout(cls: Class) -> Class:
    """Return the native type of a class that derives from one: their instances may change from one to the other."""
    if not NATIVE:
        return cls
    slots = _memory(jit.load_module("calls.tensor_native"))
    return _with_methods(made(_name(cls), cls.__base__, slots, 0, c_api.BASETYPE | c_api.COLLECTED), cls)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _memory(native: Any) -> dict[int, Any]:
    return {c_api.TRAVERSE: native.traverse, c_api.CLEAR: native.clear, c_api.DEALLOC: native.dealloc}


def _with_methods(native: Any, cls: type) -> Any:
    for name, value in vars(cls).items():
        if name not in _REPLACED:
            setattr(native, name, value)
    native.__name__ = cls.__name__  # errors name a type by this
    return native


# The native type of functions on tensors: calls that were made before are repeated without Python.


@functools.cache
def _function_type() -> Any:
    native = jit.load_module("calls.functions_native")
    rows = {
        "__vectorcalloffset__": (c_api.SIZE, FunctionObject.call, c_api.READONLY),
        "__dictoffset__": (c_api.SIZE, FunctionObject.attributes, c_api.READONLY),
    }
    call = ctypes.cast(ctypes.pythonapi.PyVectorcall_Call, ctypes.c_void_p).value
    slots = {
        c_api.MEMBERS: members(rows),
        c_api.CALL: call,
        c_api.DESCR_GET: native.descr_get,
        c_api.TRAVERSE: native.traverse,
        c_api.CLEAR: native.clear,
        c_api.DEALLOC: native.dealloc,
    }
    flags = c_api.COLLECTED | c_api.NOT_CALLED | c_api.VECTORCALL | c_api.METHOD
    kind: Any = made(f"{__name__}.Operation", object, slots, FunctionObject.SIZE, flags)
    copyreg.pickle(
        kind, lambda function: function.__qualname__
    )  # as Python's functions: by module and name; a copy is itself
    kind.__repr__ = lambda function: f"<function {function.__qualname__} at {id(function):#x}>"
    return kind


def operation(number: int, slow: Callable[..., Any], always: Callable[..., Any], like: Callable[..., Any]) -> Any:
    """Return the function of an operation of this number, with the name and documentation of ``like``.

    ``slow`` makes calls that are not in the table yet, ``always`` those that never are. In a class it is a method.
    """
    function = _function("vectorcall", number, slow, always, like)
    function.parts = number, slow, always
    return function


def where_empty(
    lists: tuple[list[Any], list[Any]], plain: Callable[..., Any], otherwise: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a function like ``plain``, whose calls ``plain`` makes while both lists are empty, else ``otherwise``.

    The lists live as long as the process.
    """
    if NATIVE:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(lists))
        function: Callable[..., Any] = _function("vectorcall_where_empty", id(lists), otherwise, plain, plain)
        return function

    @functools.wraps(plain)
    def chosen(*args: Any, **named: Any) -> Any:
        return (otherwise if any(lists) else plain)(*args, **named)

    return chosen


def _function(entry: str, number: int, slow: Any, always: Any, like: Any) -> Any:
    function = instance(_function_type())
    for function_kept in (slow, always):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(function_kept))
    address = int(getattr(jit.load_module("calls.functions_native"), entry).address)
    fill(FunctionObject, id(function), call=address, number=number, slow=id(slow), always=id(always))
    functools.update_wrapper(function, like, updated=())
    return function
