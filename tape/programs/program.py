"""Programs: traced functions with their structures, called, differentiated, saved to files."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from kernels.foundation.tables import cached_property
from kernels.kinds.routine import Unsettled
from kernels.programs import program as recipes
from kernels.programs import recipe_encoding
from kernels.programs.program import ProgramError
from kernels.programs.recipe_encoding import DTYPES, Decoder, Encoder, is_named, name_of
from tape import pickled_programs, return_types  # noqa: F401 (pickled_programs teaches pickle)
from tape.errors import FileFormatError
from tape.operations.copied_views import copy_
from tape.programs.drawing import Seen
from tape.programs.replaying import (
    CallForm,
    ProgramPullback,
    ReplayGradient,
    interpreted,
    recorded,
    value_and_gradients,
)
from tape.programs.tiers import AnyMachine, TieredProgram
from tape.tensors import checked_files, grad_modes, modes
from tape.tensors.checked_files import Content
from tape.tensors.operands import native
from tape.tensors.pytrees import LEAF, NONE, Structure, dataclass_of, dict_of, flattened, mapping_of
from tape.tensors.recorder import ProgramRecorder
from tape.tensors.tensor import Tensor, as_array, constant_tensor, leaf, scalar_or_array
from tape.transforms.value_and_grad import Signature, argument_value, check_written

# Programs in files: structures, outcomes, what is written.


def outcome(value: Any, tensor: bool) -> Any:
    """Return a result of its own memory as the caller gave his arguments: tensors, or floats and arrays."""
    if tensor:
        return constant_tensor(scalar_or_array(value))
    return float(value) if value.ndim == 0 and value.dtype.kind == "f" else value


def way_of(arguments: Sequence[Any]) -> bool | None:
    """Return None for a native replay; else whether each operation is recorded one by one, for a program or vmap."""
    if modes.current().recorder is not None:
        return True
    return (
        False
        if modes.is_grad_enabled() and any(isinstance(x, Tensor) and x._slot is not None for x in arguments)
        else None
    )


# Structures, and the signatures made of them, as JSON: for files, whose readers are given the user's types.

_RETURNED = [kind for kind in vars(return_types).values() if isinstance(kind, type) and issubclass(kind, tuple)]
_USUAL = (
    *(bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, type(None), OrderedDict, np.ndarray),
    *(dtype.type for dtype in DTYPES.values()),
    *_RETURNED,
)
KNOWN = {name_of(kind): kind for kind in _USUAL}
"""The types that every reader has."""
_LEAF_TEXT, _NONE_TEXT = "leaf", "none"


class MisfitError(TypeError):
    """A type that a reader was given is not as the one of its name was."""


def named(names: Iterable[str], types: Iterable[Any]) -> dict[str, Any]:
    """Return what stands for the names of a file: one of ``types``, whatever module it is in now; TypeError if none."""
    candidates = list(types)
    for candidate in candidates:
        if not is_named(candidate):
            raise TypeError(f"types: {candidate!r} is no class or function")
    values = {name: KNOWN[name] if name in KNOWN else _chosen(name, candidates) for name in names}
    missing = [name for name, value in values.items() if value is None]
    if missing:
        last = ", ".join(name.rpartition(".")[2] for name in missing)
        raise TypeError(
            f"load: the file has {', '.join(missing)}, by name alone: a file can name no code that is then run; give "
            f"what is meant: load(..., types=[{last}])"
        )
    return values


def _chosen(name: str, candidates: list[Any]) -> Any:
    """Return the candidate of this name; else the only one of this name in another module, or None."""
    for candidate in candidates:
        if name_of(candidate) == name:
            return candidate
    alike = [x for x in candidates if f".{name}".endswith(f".{_within_module(x)}")]
    return alike[0] if len(alike) == 1 else None


def _within_module(value: Any) -> str:
    module = getattr(getattr(value, "py_func", value), "__module__", None)
    return name_of(value).removeprefix(f"{module}.")


def encoded(structure: Structure, encoder: Encoder, place: str) -> Any:
    """Return JSON for a structure that stands at a place; TypeError if it has what a file does not hold."""
    kind = structure.kind
    if kind is None or kind is type(None):
        return _LEAF_TEXT if kind is None else _NONE_TEXT
    if issubclass(kind, dict) and kind not in (dict, OrderedDict):
        raise TypeError(f"{place} is a {kind.__name__}, which a file does not hold; make it a dict")
    make = structure.make
    fields = make.args[1] if isinstance(make, functools.partial) and make.func is dataclass_of else {}
    return {
        "kind": encoder.named(kind),
        "keys": encoder.values(structure.keys, f"a key of {place}"),
        "parts": [
            encoded(part, encoder, f"{place}[{key!r}]")
            for key, part in zip(structure.keys, structure.parts, strict=True)
        ],
        "static": {name: encoder.value(x, f"{place}.{name}") for name, x in structure.static.items()},
        "fields": {name: encoder.value(x, f"{place}.{name}") for name, x in fields.items()},
    }


def decoded(tree: Any, decoder: Decoder) -> Structure:
    """Return the structure of JSON; MisfitError if a type of the user's has changed."""
    if tree in (_LEAF_TEXT, _NONE_TEXT):
        return LEAF if tree == _LEAF_TEXT else NONE
    kind = decoder.named[tree["kind"]]
    keys = tuple(map(decoder.value, tree["keys"]))
    parts = tuple([decoded(part, decoder) for part in tree["parts"]])
    static, fields = ({name: decoder.value(x) for name, x in tree[of].items()} for of in ("static", "fields"))
    structure = Structure(kind, keys, parts, static, _maker(kind, keys, fields, static))
    if kind in (dict, list, tuple) and all(part is LEAF for part in parts):
        structure.flat = len(parts)
    return structure


def _maker(kind: Any, keys: tuple[Any, ...], fields: dict[str, Any], static: dict[str, Any]) -> Any:
    if kind is dict:
        return functools.partial(dict_of, keys)
    if kind is OrderedDict:
        return functools.partial(mapping_of, OrderedDict.fromkeys(keys), keys)
    if not isinstance(kind, type):
        raise MisfitError(f"types: {kind!r} is no class")
    if issubclass(kind, (tuple, list)):
        names: Any = getattr(kind, "_fields", None)
        if names is None and keys == tuple(range(len(keys))):
            return kind
        if names == keys:
            return getattr(kind, "_make")  # noqa: B009 (of named tuples alone)
        raise MisfitError(f"types: {kind.__name__} has the fields {names}, and {keys} in the file")
    present = {f.name for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    if not {*keys, *static} <= present:
        raise MisfitError(
            f"types: {kind.__name__} has no fields {sorted({*keys, *static} - present)}, and has in the file"
        )
    return functools.partial(dataclass_of, kind, fields, keys)


def encoded_signature(signature: Signature, encoder: Encoder) -> dict[str, Any]:
    """Return JSON for the signature of a program."""
    return {
        "positional": [encoded(s, encoder, f"argument {i}") for i, s in enumerate(signature.positional)],
        "keywords": {name: encoded(s, encoder, f"argument {name}") for name, s in signature.keywords.items()},
        "static": [[i, encoder.value(x, signature.paths[i])] for i, x in signature.static.items()],
        "paths": signature.paths,
        "names": signature.names,
        "simple": signature.simple,
    }


def decoded_signature(tree: dict[str, Any], decoder: Decoder) -> Signature:
    """Return the signature of JSON."""
    signature = Signature.__new__(Signature)
    signature.positional = [decoded(s, decoder) for s in tree["positional"]]
    signature.keywords = {name: decoded(s, decoder) for name, s in tree["keywords"].items()}
    signature.static = {i: decoder.value(x) for i, x in tree["static"]}
    signature.paths, signature.names, signature.simple = tree["paths"], tree["names"], bool(tree["simple"])
    leaves = sum(map(len, [*signature.positional, *signature.keywords.values()]))
    if len(signature.paths) != leaves or len(signature.names) != leaves - len(signature.static):
        raise ValueError(f"a signature of {leaves} leaves has {len(signature.paths)} paths")
    return signature


def write_programs(f: Any, kind: str, programs: Sequence[Any], extra: Any = None) -> None:
    """Write programs, and a value that says more of them, to a path or binary file as a thing of this kind.

    TypeError, naming where it stands, for what a file does not hold; ProgramError for a program that is not recorded.
    """
    encoder = Encoder()
    trees = [_encoded(program, encoder) for program in programs]
    said = encoder.value(extra, "what is said of the programs")
    body = {"programs": trees, "extra": said, "tables": encoder.tables, "names": encoder.names}
    checked_files.write(f, kind, body, encoder.arrays)


def _encoded(program: Any, encoder: Encoder) -> dict[str, Any]:
    if program._unfinished:
        raise ProgramError(program._unfinished)
    return {
        "recipe": recipe_encoding.encoded(program._recipe, encoder),
        "signature": encoded_signature(program._signature, encoder),
        "template": encoded(program._template, encoder, "the result"),
        "kept": [[i, encoder.value(x, "a result")] for i, x in program._kept.items()],
        "escapes": program._escapes,
    }


# Programs that users call: made from a recording, read from a file.

_NOT_PICKLED = (
    "pulling", "_first", "_machines", "_due", "_beside", "_interpreted", "_apart", "_scalar", "_lock", "_single",
    "_tuple", "_formed", "is_plain", "is_simple", "can_miss",
)  # fmt: skip


class Program(TieredProgram, Seen):
    """A recorded function. Call it, or :meth:`value_and_grad`, with new values of the recorded shapes and dtypes.

    Arguments have the recorded structure; strings, None and other objects in it must equal those of the recording.
    NumPy in, NumPy out; where any argument is a tensor, results are, and differentiable: a program is an operation in
    other functions, of derivatives of any order, forward mode, ``vmap`` and other programs.

    Results never alias memory of the program or one another. Safe to call from several threads.

    ``print(program)`` lists its operations, ``len(program)`` counts them; it can be pickled and copied, and
    saved: :meth:`save`.
    """

    __module__ = "tape"  # what pickles name
    _recipe: recipes.Recipe
    _signature: Signature
    _template: Structure
    _kept: dict[int, Any]
    _escapes: list[str]
    _unfinished: str

    def __init__(self) -> None:
        """Raise TypeError: ``tape.record(function, *examples)`` makes programs."""
        raise TypeError("a Program is made by tape.record(function, *examples), which runs the function once")

    def _begin(self) -> None:
        self._single = self._template.kind is None and not self._kept
        self._tuple = self._template.kind is tuple and self._template.flat > 0 and not self._kept
        self._begin_tiers()
        self._scalar: set[bool] = set()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Replay the function forward; arguments that it changes in place are changed, as by the function."""
        if not self._recipe.written and (results := self._replayed_at_once(args, kwargs, reverse=False)) is not None:
            return self._filled(results)
        values, tensors = self._checked(args, kwargs, writes=True)
        if tensors and (way := way_of(values)) is not None:
            return self._filled(self._composed(values, recorded=way))
        machine = self._started(values, reverse=False)
        try:
            machine.run(machine.forward)
            self._write_back(machine, values)
            return self._filled([outcome(np.array(o, order="C"), tensors) for o in machine.outputs])
        finally:
            self._machines[False].append(machine)

    def value_and_grad(self, *args: Any, has_aux: bool = False, **kwargs: Any) -> tuple[Any, tuple[Any, ...]]:
        """Return the value and a tuple with the gradient of each positional argument that has floats.

        A gradient has the structure of its argument, with None for what is no float. The arguments are not changed.
        With ``has_aux`` the program returns a pair, and so does this: ``((value, aux), gradients)``.
        """
        if has_aux not in self._scalar and not self._unfinished:
            self._check_scalar(has_aux=has_aux)
        if (at_once := self._replayed_at_once(args, kwargs, reverse=True)) is not None:
            if self._single and self._signature.simple:
                return at_once[0], at_once[1:]
            return self._divided(at_once)
        arguments, tensors = self._checked(args, kwargs, writes=False)
        recipe, way = self._recipe, way_of(arguments) if tensors else None
        if way is None:
            values, gradients = self._replayed_back(arguments)
            results = [outcome(x, tensors) for x in (*values, *gradients)]
        else:
            results = value_and_gradients(recipe, arguments) if way else list(ReplayGradient.apply(self, *arguments))
        return self._divided(results)

    def _divided(self, results: Sequence[Any]) -> tuple[Any, tuple[Any, ...]]:
        """Return results and gradients in the structures of the function's results and of its arguments."""
        recipe = self._recipe
        count, differentiable = len(recipe.outputs), [recipe.nodes[node].differentiable for node in recipe.arguments]
        return self._filled(results[:count]), self._signature.gradients(results[count:], differentiable)

    def _replayed_at_once(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], *, reverse: bool
    ) -> tuple[Any, ...] | None:
        """Replay on floats and arrays as they were recorded, unless all machines are busy; None if there is more to do.

        Return the results and with ``reverse`` the gradients. Where there is a machine, a call went the longer way.
        """
        machines = self._machines[reverse]
        if not machines:
            return None
        values = args if self._signature.simple and not kwargs else self._signature.values(args, kwargs)
        return self._whole(values, reverse=reverse)

    def _whole(self, values: Sequence[Any], *, reverse: bool) -> tuple[Any, ...] | None:
        """Replay on leaves in one native call; None if all machines are busy, or there is more to do."""
        machines = self._machines[reverse]
        try:
            machine = machines.pop()
        except IndexError:  # another thread was faster
            return None
        try:
            return machine.whole(values)
        except Unsettled:
            return None
        finally:
            machines.append(machine)
            if reverse in self._due:
                self._count(reverse=reverse)

    def _composed(self, arguments: Sequence[Any], *, recorded: bool) -> list[Tensor]:
        if recorded or self._recipe.written:
            return interpreted(self._recipe, arguments)
        return self._graded(arguments)

    @cached_property
    def pulling(self) -> ProgramPullback:
        """The program's pullback from cotangents of its results."""
        return ProgramPullback(self._recipe)

    def pinned(self) -> Callable[[], Program]:
        """Return what gives, at any later time, this program with what it reads from outside now."""
        return lambda: self

    def _graded(self, arguments: Sequence[Any]) -> list[Tensor]:
        values = [x._value if isinstance(x, Tensor) else x for x in arguments]
        at_once = self._recorded_at_once(arguments, values)
        return recorded(self, arguments, self._replayed(arguments), values) if at_once is None else at_once

    def _recorded_at_once(
        self, arguments: Sequence[Any], values: Sequence[Any], known: CallForm | None = None
    ) -> list[Tensor] | None:
        """Replay on floats and arrays, as one instruction of the ``known`` form; None if there is more to do."""
        kept = self.pulling.kept
        if kept is None:
            results = self._whole(values, reverse=False)
            return None if results is None else recorded(self, arguments, results, values)
        results = kept.forward(values)
        return None if results is None else recorded(self, arguments, results[:-1], values, results[-1], known)

    def _replayed(self, arguments: Sequence[Any]) -> list[Any]:
        machine = self._started(arguments, reverse=False)
        try:
            machine.run(machine.forward)
            return [scalar_or_array(np.array(o, order="C")) for o in machine.outputs]
        finally:
            self._machines[False].append(machine)

    def _replayed_back(self, arguments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        machine = self._started(arguments, reverse=True)
        try:
            machine.run(machine.forward)
            machine.run(machine.reverse)
            values = [np.array(o, order="C") for o in machine.outputs]
            return values, [g + g.dtype.type(0.0) for g in machine.gradients]
        except Unsettled:
            return self._interpreted_back(arguments)
        finally:
            self._machines[True].append(machine)

    def _interpreted_back(self, arguments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the same by operations on tensors, which find the gradient where cotangents do not tell it."""
        values = [np.array(x._value if isinstance(x, Tensor) else x) for x in arguments]
        with modes.under(modes.current()._replace(recorder=None)):
            tensors = [as_array(x) for x in value_and_gradients(self._recipe, values)]
        count = len(self._recipe.outputs)
        return tensors[:count], tensors[count:]

    def _write_back(self, machine: AnyMachine, arguments: Sequence[Any]) -> None:
        if not self._recipe.written:
            return
        for node, x, value in zip(self._recipe.arguments, arguments, machine.inputs, strict=True):
            if node in self._recipe.written and isinstance(x, Tensor):
                with grad_modes.no_grad():
                    copy_(x, constant_tensor(value.copy()))
            elif node in self._recipe.written and isinstance(x, np.ndarray):
                x[...] = value

    def _check_scalar(self, *, has_aux: bool) -> None:
        outputs, template = self._recipe.outputs, self._template
        pair = template.kind is tuple and len(template.keys) == len(("value", "aux"))
        if has_aux and not (pair and template.parts[0].kind is None):
            raise ProgramError(
                "value_and_grad(..., has_aux=True) needs a program that returns a pair: a number, and aux"
            )
        single = bool(outputs) and (has_aux or (template.kind is None and not self._kept)) and 0 not in self._kept
        spec = self._recipe.nodes[outputs[0]].spec if single else None
        if spec is None or spec.size != 1 or spec.dtype.kind != "f":
            raise ProgramError(
                f"value_and_grad needs a program that returns one floating number; this one returns "
                f"{', '.join(recipes.describe(self._recipe.nodes[o].spec) for o in outputs)}"
            )
        self._scalar.add(has_aux)

    def _checked(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, writes: bool) -> tuple[Sequence[Any], bool]:
        self._check_finished()
        if self._escapes:
            raise ProgramError(
                f"a value that depends on the arguments left for Python at {self._escapes[0]}; what Python did with "
                "it is not in the program. Keep it a tensor (tape.where for a branch), call the function itself, or "
                "compile it with tape.compile, which records gradients taken inside, and guards"
            )
        leaves, names = self._signature.values(args, kwargs), self._signature.names
        nodes, arguments, written = self._recipe.nodes, self._recipe.arguments, self._recipe.written
        values = [argument_value(names[i], x, nodes[arguments[i]].spec) for i, x in enumerate(leaves)]
        if writes and written:
            check_written(names, leaves, [i for i, node in enumerate(arguments) if node in written])
        tensors = any(isinstance(x, Tensor) for x in leaves)
        return (leaves if tensors or (writes and written) else values), tensors

    def _filled(self, values: Sequence[Any]) -> Any:
        if self._single:
            return values[0]
        if self._tuple:
            return tuple(values)
        remaining = iter(values)
        return self._template.filled(
            [self._kept[i] if i in self._kept else next(remaining) for i in range(len(self._template))]
        )

    def save(self, f: Any) -> None:
        """Write the program to a path or a binary file, from which :func:`tape.load` has it back: data, and no code.

        A file holds no functions and classes, but their names: give ``load`` what they stand for as ``types=``. An
        existing file stays as it was until the new one is whole. TypeError for an argument or a field that is fixed,
        and of which a file holds no kind; ProgramError if nothing is recorded.

        >>> tape.record(lambda x: (x * x).sum(), np.ones(3)).save("squares.tape")  # doctest: +SKIP
        """
        write_programs(f, "program", [self])

    def __getstate__(self) -> dict[str, Any]:
        """Pickle as data: the recipe, without plans, machines or code."""
        return {name: value for name, value in vars(self).items() if name not in _NOT_PICKLED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def __deepcopy__(self, memo: dict[int, Any]) -> Program:
        """Return a copy; the recipe, which nothing changes, is shared."""
        return copy.copy(self)

    def __str__(self) -> str:
        return recipes.listing(self._recipe)

    def __repr__(self) -> str:
        return f"<Program of {len(self._recipe.steps)} operations, {len(self._recipe.arguments)} arguments>"

    def __len__(self) -> int:
        """Return the number of operations."""
        return len(self._recipe.steps)


def program_of(recorder: ProgramRecorder, signature: Signature, template: Structure, kept: dict[int, Any]) -> Program:
    """Return the program of a recording, its results in the structure ``template``; those ``kept`` are no values."""
    self = Program.__new__(Program)
    # Not the recorder: it holds every tensor of the recording, and so their graph.
    self._recipe, self._escapes, self._unfinished = recorder.recipe, recorder.escapes, ""
    self._signature, self._template, self._kept = signature, template, kept
    self._begin()
    return self


_LEAF = 0.0
_NOTHING = "nothing was recorded: no operation in the block used a leaf that requires grad"


class _Block:
    """``with tape.record() as program``: what runs inside is recorded; its arguments are the leaves it uses."""

    def __init__(self, *, lines: bool = False) -> None:
        self._lines = lines

    def __call__(self, fun: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Program:
        """Record a function."""
        return _recorded(fun, args, kwargs, lines=self._lines)

    def __enter__(self) -> Program:
        self._recorder = _recorder(lines=self._lines)
        self._recorder.open = True
        self._program = program_of(self._recorder, Signature((), {}), flattened(_LEAF)[1], {})
        self._program._unfinished = "the program is still being recorded; call it after the with block"
        self._before = modes.current()
        try:
            modes.set_mode(modes.Mode(grad=True, recorder=self._recorder))
        except BaseException:
            modes.restore(self._before)
            raise
        return self._program

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            modes.restore(self._before)
        except BaseException:  # an interrupt
            modes.restore(self._before)
            raise
        steps = self._recorder.recipe.steps
        if kind is not None:
            self._program._unfinished = (
                f"the with block in which this program was recorded raised {kind.__name__}; record it anew"
            )
            return
        if not steps:
            self._program._unfinished = _NOTHING
            raise ProgramError(_NOTHING)
        recipe = self._recorder.recipe
        recipe.outputs = [steps[-1].result]
        steps.fit()
        self._program._signature = Signature((_LEAF,) * len(recipe.arguments), {})
        self._program._unfinished = ""


def record(fun: Callable[..., Any] | None = None, /, *args: Any, **kwargs: Any) -> Any:
    """Record ``fun(*args, **kwargs)`` and return the :class:`Program`, or, without a function, a context for ``with``.

    Arguments are numbers, NumPy arrays, tensors, and dicts, lists, tuples and dataclasses of them: every one reaches
    ``fun`` as a tensor of its own memory, in that structure; floating ones require grad. Strings, None and other
    objects reach it as they are. The result is a tensor or a structure of tensors. Other arrays, tensors and numbers
    are constants, copied when ``fun`` uses them: what is to be read live is an argument.

    With the context the arguments are the leaves that require grad in the order of their use, and the result is the
    last one computed.

    ``tape.record(lines=True)`` is such a context, and a function that records, ``tape.record(lines=True)(fun, *args)``:
    the program keeps the Python lines of its operations, which its listing, graph and profile show. So it does where
    anomaly mode is on.
    """
    if fun is None:
        return _Block(**kwargs)
    return _recorded(fun, args, kwargs, lines=False)


def _recorder(*, lines: bool) -> ProgramRecorder:
    return ProgramRecorder(lines=lines or modes.current().anomaly is not None)


def _recorded(fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, lines: bool) -> Program:
    signature, recorder = Signature(args, kwargs), _recorder(lines=lines)
    values = list(signature.values(args, kwargs))
    mode = modes.Mode(grad=True, recorder=recorder)
    template, kept = modes.call_under(mode, _run, fun, signature, values, recorder)
    recorder.check()
    recorder.recipe.steps.fit()
    written = [i for i, node in enumerate(recorder.recipe.arguments) if node in recorder.recipe.written]
    check_written(signature.names, values, written)
    return program_of(recorder, signature, template, kept)


def _run(
    fun: Callable[..., Any], signature: Signature, values: list[Any], recorder: ProgramRecorder
) -> tuple[Structure, dict[int, Any]]:
    tensors = [_argument(name, x) for name, x in zip(signature.names, values, strict=True)]
    for i, (x, a) in enumerate(zip(tensors, values, strict=True)):
        recorder.lends(i, a._value if isinstance(a, Tensor) else a)
        recorder.argument(x)
    positional, keywords = signature.filled(tensors)
    arrays = not any(isinstance(x, Tensor) for x in values)
    leaves, template = flattened(modes.call_given(arrays, fun, *positional, **keywords), none=True)
    kept = {i: _checked_output(x) for i, x in enumerate(leaves) if not isinstance(x, Tensor)}
    recorder.recipe.outputs = [recorder.reference(x).node for x in leaves if isinstance(x, Tensor)]
    return template, kept


def _argument(name: str, value: Any) -> Tensor:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name}: a masked array, whose mask programs do not know; fill it first: x.filled(value)")
    array = np.array(value._value if isinstance(value, Tensor) else value, order="C")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    array = native(array)
    return leaf(scalar_or_array(array), requires_grad=array.dtype.kind == "f")


def _checked_output(output: Any) -> Any:
    if output is not None and not isinstance(output, (str, bool)):
        raise TypeError(f"a recorded function returns tensors, not {type(output).__name__}; keep the result a tensor")
    return output


def read_programs(content: Content, name: str, types: Iterable[Any]) -> tuple[list[Program], Any]:
    """Return the programs of a file, and what is said of them; ``types``: the classes and functions that it names.

    TypeError if one is missing or has other fields, FileFormatError for what no version wrote, or this one not.
    """
    classes = named(_names(content, name), types)
    try:
        body = content.body
        decoder = Decoder(body["tables"], content.arrays, classes)
        return [_decoded(tree, decoder) for tree in body["programs"]], decoder.value(body["extra"])
    except MisfitError:
        raise
    except Exception as error:  # whatever senseless content leads to
        raise _unread(content, name, error) from error


def _names(content: Content, name: str) -> list[str]:
    try:
        return [str(one) for one in content.body["names"]]
    except (TypeError, KeyError) as error:
        raise _unread(content, name, error) from error


def _unread(content: Content, name: str, error: Exception) -> FileFormatError:
    return FileFormatError(f"load: {name}, written by tape {content.version}, is not what this version reads: {error}")


def _decoded(tree: dict[str, Any], decoder: Decoder) -> Program:
    recipe = recipe_encoding.decoded(tree["recipe"], decoder)
    signature = decoded_signature(tree["signature"], decoder)
    template = decoded(tree["template"], decoder)
    kept = {i: decoder.value(x) for i, x in tree["kept"]}
    if len(recipe.arguments) != len(signature.names) or len(recipe.outputs) + len(kept) != len(template):
        raise ValueError("the program has other arguments and results than its signature")
    program = Program.__new__(Program)
    program.__setstate__(
        {
            "_recipe": recipe,
            "_signature": signature,
            "_template": template,
            "_kept": kept,
            "_escapes": [str(line) for line in tree["escapes"]],
            "_unfinished": "",
        }
    )
    return program
