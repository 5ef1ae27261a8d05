"""Programs that users call: traced, differentiated, and run as machine code once that is ready."""

from __future__ import annotations

import copy
import functools
import operator
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from kernels.compiler.compiled_code import CompiledCode
from kernels.compiler.roll import Unabsorbed
from kernels.foundation.tables import Lock, cached_property
from kernels.kinds.routine import Unsettled
from kernels.language import jit
from kernels.machine_code.compiled_machine import CompiledMachine
from kernels.machine_code.tiers import BackgroundCompile, Outcome, Unprofitable, compiled_machine, reason_of
from kernels.native.structs import KeptCalls
from kernels.native.threads import WORKERS
from kernels.programs import program as recipes
from kernels.programs import recipe_encoding
from kernels.programs.machine import (
    LONG,
    Machine,
    calls_analysed,
    calls_in,
    calls_meanwhile,
    calls_until_compiled,
    dynamic_calls_in,
    plan,
    pullback_recipe,
)
from kernels.programs.patterns import pattern_of_recipe
from kernels.programs.program import ProgramError, Recipe
from kernels.programs.recipe_encoding import Decoder
from kernels.programs.rolled_program import Uncompiled
from tape import pickled_programs  # noqa: F401 (teaches pickle)
from tape.errors import CompileWarning, FileFormatError, shorten
from tape.programs import replaying
from tape.programs.drawing import Seen
from tape.programs.replaying import MOST_CALLS, CallForm, ProgramPullback, interpreted, recorded, write_back
from tape.programs.saving import Content, MisfitError, decoded, decoded_signature, named, write_programs
from tape.tensors import grad_modes, modes
from tape.tensors.bytecode import stack_level
from tape.tensors.pytrees import Signature, Structure
from tape.tensors.tensor import Tensor, as_array, constant_tensor, scalar_or_array
from tape.transforms.value_and_grad import argument_value, check_written

# Tiers of a program: rows at once, machine code when the compiler is done.

# What a fault of the compiler raises; the interpreter then serves, and a warning tells of it.
_FAULTS = ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, SyntaxError, TypeError, ValueError


class Failed(Uncompiled):
    """The compiler has a fault."""


def set_num_threads(n: int) -> None:
    """Have ``n`` threads run large loops of compiled programs; 1, as at first, has each call run on its own thread.

    A loop over arrays is cut into parts where its steps are independent and it takes longer than some tens of
    microseconds. Results do not depend on ``n``, to the last bit. If several threads call programs at a time, one
    call has the workers, and the others run alone. ``tape.ensemble`` makes ``n`` threads, if that is more than one.
    A process that was forked has one thread, until it asks for more. Raises RuntimeError for what is no positive
    int, as PyTorch does.

    >>> tape.set_num_threads(2)
    >>> tape.get_num_threads()
    2
    >>> tape.set_num_threads(1)
    """
    if isinstance(n, bool) or not hasattr(type(n), "__index__"):
        raise RuntimeError(f"set_num_threads expects an int, but got {type(n).__name__}")
    count = operator.index(n)
    if count < 1:
        raise RuntimeError("set_num_threads expects a positive integer")
    WORKERS.use(count)


def get_num_threads() -> int:
    """Return how many threads run large loops of compiled programs.

    >>> tape.get_num_threads()
    1
    """
    return WORKERS.wanted


def outcome(value: Any, tensor: bool) -> Any:
    """Return a result of its own memory as the caller gave his arguments: tensors, or floats and arrays."""
    if tensor:
        return constant_tensor(scalar_or_array(value))
    return float(value) if value.ndim == 0 and value.dtype.kind == "f" else value


def way_of(arguments: Sequence[Any]) -> bool | None:
    """Return None for a native replay; else whether each operation is recorded one by one, for a program or vmap."""
    if modes.current().recorder is not None:
        return True
    graded = modes.is_grad_enabled() and any(isinstance(x, Tensor) and x._slot is not None for x in arguments)
    return False if graded else None


_CALL, _CALL_ON_TENSORS, _CALL_OF_SEVERAL = 8e-6, 40e-6, 12e-6
"""Seconds that Python takes, about: for a call of a program whose rows are no one run; for one on tensors; for one on
tensors with several results, and for its way back, before native code makes both."""
_NOT_PICKLED = (
    "pulling", "_first", "_machines", "_due", "_beside", "_interpreted", "_apart", "_scalar", "_lock", "_single",
    "_tuple", "_formed", "is_plain", "is_simple", "can_miss", "_iterations",
)  # fmt: skip


AnyMachine = Machine | CompiledMachine  # what runs a program: the interpreter, or machine code


class Program(Seen):
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
    _exactly = False  # whether arguments are floats and C-contiguous arrays only, on the native way
    _mode = "default"
    """When it is compiled: one of :data:`kernels.machine_code.tiers.MODES`."""
    _budget: int | None = None  # bytes of memory that it may use; None if that is not limited
    _order: Literal["C", "K"] = "C"  # of results that are arrays
    live: Sequence[Any] = ()  # the arrays from outside that it reads by reference
    _cotangents: dict[int, int] | None = None  # of which results, by number, which arguments are cotangents

    def __init__(self) -> None:
        """Raise TypeError: ``tape.record(function, *examples)`` makes programs."""
        raise TypeError("a Program is made by tape.record(function, *examples), which runs the function once")

    def _begin(self) -> None:
        self._single = self._template.kind is None and not self._kept
        self._tuple = self._template.kind is tuple and self._template.flat > 0 and not self._kept
        self._scalar: set[bool] = set()
        self._first: dict[bool, AnyMachine] = {}
        self._machines: dict[bool, list[AnyMachine]] = {False: [], True: []}
        self._due: dict[bool, int] = {}
        """After how many calls it is compiled, forward and with its reverse; nothing where that has been tried."""
        self._beside: dict[bool, BackgroundCompile] = {}
        """Machine code that is being made; after so many calls it runs, or they wait for it."""
        self._interpreted: dict[bool, Uncompiled] = {}  # why it is not compiled
        self._apart: dict[bool, CompiledMachine | None] = {}  # machine code that calls of it do not use
        self._lock = Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Replay the function forward; arguments that it changes in place are changed, as by the function."""
        if not self._recipe.written and (results := self._replayed_at_once(args, kwargs, reverse=False)) is not None:
            return self._filled(results)
        values, tensors = self._checked(args, kwargs, writes=True)
        if tensors and (way := way_of(values)) is not None:
            return self._filled(self._composed(values, recorded=way))
        return self._results(values, tensors=tensors)

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
        way = way_of(arguments) if tensors else None
        if way:
            return self._divided(replaying.value_and_gradients(self._complete, arguments))
        if way is False:
            return self._divided(replaying.ReplayGradient.apply(self, *arguments))
        values, gradients = self._replayed_back(arguments)
        return self._divided([outcome(x, tensors) for x in (*values, *gradients)])

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
            left = self._due.get(reverse, 0)
            if left > 1:
                self._due[reverse] = left - 1
            elif left:
                self._count(reverse=reverse)

    def _composed(self, arguments: Sequence[Any], *, recorded: bool) -> list[Tensor]:
        if recorded or self._recipe.written:
            return interpreted(self._complete, arguments)
        return self._graded(arguments)

    @cached_property
    def pulling(self) -> ProgramPullback:
        """The program's pullback from cotangents of its results."""
        return ProgramPullback(self._complete, functools.partial(PullbackProgram, self))

    def check_soon(self) -> None:
        """Take note that other code runs from now on."""

    def live_now(self) -> Sequence[Any]:
        """Return what the ``live`` arrays hold now; nobody writes there before the tape has made a copy."""
        return ()

    def with_live(self, arrays: Sequence[Any]) -> Program:
        """Return the program that reads these in place of its ``live`` arrays."""
        return self

    def _graded(self, arguments: Sequence[Any]) -> list[Tensor]:
        values = [x._value if isinstance(x, Tensor) else x for x in arguments]
        at_once = self._recorded_at_once(arguments, values)
        return recorded(self, arguments, self._replayed(arguments), values) if at_once is None else at_once

    def _recorded_at_once(
        self, arguments: Sequence[Any], values: Sequence[Any], known: CallForm | None = None
    ) -> list[Tensor] | None:
        """Replay on floats and arrays, as one instruction of the ``known`` form; None if there is more to do."""
        kept = self.pulling.kept
        if self.pulling.keeps_gradients():
            try:
                results = self.pulling.program.computed(values)
            except Exception as error:
                if isinstance(error, ProgramError):
                    raise
                self.pulling.kept_calls[KeptCalls.count] = MOST_CALLS  # the forward tells whether the error is its own
            else:
                return recorded(self, arguments, results[:1], values, known=known, gradients=results[1:])
        if kept is None:
            results = self._whole(values, reverse=False)
            return None if results is None else recorded(self, arguments, results, values)
        self._approach_code()
        results = kept.forward(values)
        return None if results is None else recorded(self, arguments, results[:-1], values, results[-1], known)

    def _approach_code(self) -> None:
        """Count a call, and its pullback, that a machine which keeps memory runs, towards machine code of both."""
        for program, reverse in ((self, False), (self.pulling.program, True)):
            if reverse not in program._first:
                machine = program._machine(reverse=reverse)
                program._machines[reverse].append(machine)
                if reverse in program._due and isinstance(machine, Machine):
                    machine.call = _CALL_OF_SEVERAL
                    program._due[reverse] = calls_until_compiled(machine)
            if reverse in program._due:
                program._count(reverse=reverse)

    @contextmanager
    def _run(self, arguments: Sequence[Any], *, reverse: bool) -> Iterator[AnyMachine]:
        """Run a machine, which no other call uses within, on these arguments."""
        machine = self._machine(reverse=reverse)
        try:
            machine.run([x._value if isinstance(x, Tensor) else x for x in arguments])
            yield machine
        finally:
            self._machines[reverse].append(machine)

    def _results(self, arguments: Sequence[Any], *, tensors: bool) -> Any:
        """Replay forward; return the function's result, and write what it writes to its arguments."""
        with self._run(arguments, reverse=False) as machine:
            if self._recipe.written:
                with grad_modes.no_grad():
                    write_back(self._recipe, arguments, machine.inputs)
            return self._filled([outcome(np.array(o, order=self._order), tensors) for o in machine.outputs])

    def _replayed(self, arguments: Sequence[Any]) -> list[Any]:
        with self._run(arguments, reverse=False) as machine:
            return [scalar_or_array(np.array(o, order="C")) for o in machine.outputs]

    def _replayed_back(self, arguments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        try:
            with self._run(arguments, reverse=True) as machine:
                values = [np.array(o, order="C") for o in machine.outputs]
                return values, [g + g.dtype.type(0.0) for g in machine.gradients]
        except Unsettled:
            # operations on tensors find the gradient where cotangents do not tell it
            values = [np.array(x._value if isinstance(x, Tensor) else x) for x in arguments]
            with modes.under(modes.current()._replace(recorder=None)):
                tensors = [as_array(x) for x in replaying.value_and_gradients(self._complete, values)]
            count = len(self._recipe.outputs)
            return tensors[:count], tensors[count:]

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
        try:
            values = [argument_value(names[i], x, nodes[arguments[i]].spec) for i, x in enumerate(leaves)]
        except Exception as error:
            shorten(error)
            raise
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

    def _machine(self, *, reverse: bool) -> AnyMachine:
        try:
            return self._machines[reverse].pop()
        except IndexError:
            with self._lock:
                first = self._first.get(reverse)
                if first is not None:
                    return first.copy()
                compiles = self._mode == "max" or self._budget is not None or not jit.makes_native_code()
                if compiles and self._compile(reverse=reverse):
                    return self._machines[reverse].pop()
                made = plan(self._complete, reverse=reverse, cotangents=self._cotangents)
                machine = Machine(made, exactly=self._exactly, marks=self._cotangents is not None)
                self._check_budget(machine)
                if not machine.is_one_run:
                    machine.call = _CALL if self._cotangents is None else _CALL_ON_TENSORS
                if self._mode == "default":
                    self._due[reverse] = calls_until_compiled(machine)
                self._first[reverse] = machine
                return machine

    def waits(self, *, reverse: bool) -> bool:
        """Whether calls are to stay in dynamic mode until machine code is made beside them; counts one that does.

        So it is with long programs, whose rows would take longer to lay out than they save.
        """
        if reverse in self._first or self._mode != "default" or not jit.makes_native_code():
            return False
        with self._lock:
            short = self._budget is not None or self._recipe.length < LONG
            if short or reverse in self._first or reverse in self._interpreted:
                return False
            self._due[reverse] = self._due.get(reverse, 1) - 1
            return self._due[reverse] > 0 or self._is_made_beside(calls_analysed, dynamic_calls_in, reverse=reverse)

    def _count(self, *, reverse: bool) -> None:
        """Count a call of the interpreter; compile beside the calls when that pays, and take over some calls later.

        How many does not depend on when the code is ready: results would, on how busy the machine is.
        """
        left = self._due.get(reverse, 1)
        if left > 1:
            self._due[reverse] = left - 1
            return
        with self._lock:
            first = self._first.get(reverse)
            if not isinstance(first, Machine):
                self._due.pop(reverse, None)
                return
            if self._due.get(reverse, 2) > 1:  # another thread was here
                return
            self._is_made_beside(calls_meanwhile, calls_in, first, reverse=reverse)

    def _is_made_beside(
        self, at_first: Callable[[Any], int], calls_in: Callable[[float, Any], int], of: Any = None, *, reverse: bool
    ) -> bool:
        """Have machine code made beside so many calls, then more of them; when it is ready, these use it: False."""
        beside, of = self._beside.get(reverse), of or self._recipe
        if beside is None:
            more, make = at_first(of), functools.partial(self._made_code, reverse=reverse, always=False)
            self._beside[reverse] = BackgroundCompile(make, more)
        else:
            more = beside.more_calls(lambda seconds: calls_in(seconds, of))
        if more > 0:
            self._due[reverse] = more
        else:
            self._compile(reverse=reverse, always=False)
        return more > 0

    def _compile(self, *, reverse: bool, always: bool = True) -> bool:
        machine = self._machine_code(reverse=reverse, always=always)
        if machine is not None:
            self._first[reverse] = machine
            self._machines[reverse][:] = [machine]
        self._due.pop(reverse, None)  # last: a process that is forked, or a call that is interrupted, tries again
        return machine is not None

    def _machine_code(self, *, reverse: bool, always: bool = True) -> CompiledMachine | None:
        known = self._interpreted.get(reverse)
        if known is not None and not (always and isinstance(known, Unprofitable)):
            return None
        beside = self._beside.pop(reverse, None)
        machine = beside.result() if beside is not None else self._made_code(reverse=reverse, always=always)
        if always and isinstance(machine, Unprofitable):
            machine = self._made_code(reverse=reverse, always=True)
        if isinstance(machine, CompiledMachine):
            self._check_budget(machine)
            self._interpreted.pop(reverse, None)
            return machine
        if isinstance(machine, Failed):
            message = f"a program is interpreted, since {machine.reason}; please report it"
            warnings.warn(message, CompileWarning, stacklevel=stack_level())
        self._interpreted[reverse] = machine
        return None

    def _made_code(self, expected: Callable[[float], None] | None = None, *, reverse: bool, always: bool) -> Outcome:
        """Return a machine that runs machine code, or the reason that the interpreter has to run the program.

        Without ``always`` that may be that it is as fast.
        """
        try:
            return self._made_of(self._recipe, expected, reverse=reverse, always=always)
        except Unabsorbed:
            self._recipe = self._complete
        return self._made_of(self._recipe, expected, reverse=reverse, always=always)

    def _made_of(
        self, recipe: Recipe, expected: Callable[[float], None] | None, *, reverse: bool, always: bool
    ) -> Outcome:
        memory, make = 0 if self._budget is None and recipe.frugal else self._budget, functools.partial(
            compiled_machine, recipe, reverse=reverse, cotangents=self._cotangents, exactly=self._exactly,
            always=always, expected=expected,
        )  # fmt: skip
        try:
            machine = make(memory=memory)
            if memory is not None and memory < machine.size < 2 * memory:  # room for what stands beside the workspace
                machine = make(memory=2 * memory - machine.size)
        except Uncompiled as refused:
            return type(refused)(refused.reason, refused.step)  # without its frames, which refer to the program
        except _FAULTS as error:
            return Failed(f"the compiler failed: {error!r}")
        return machine

    def _code(self, *, reverse: bool) -> CompiledCode:
        machine: AnyMachine | None
        with self._lock:
            if self._mode == "eager":
                if reverse not in self._apart:
                    self._apart[reverse] = self._machine_code(reverse=reverse)
                machine = self._apart[reverse]
            else:
                if not isinstance(self._first.get(reverse), CompiledMachine):
                    self._compile(reverse=reverse)
                machine = self._first.get(reverse)
        if not isinstance(machine, CompiledMachine):
            raise ProgramError(f"no machine code: {reason_of(self._recipe, self._interpreted[reverse])}")
        return machine.code

    def _check_budget(self, machine: AnyMachine) -> None:
        if self._budget is not None and machine.size > self._budget:
            kind = "machine code" if isinstance(machine, CompiledMachine) else "the interpreter"
            raise MemoryError(
                f"{kind} of this program needs {machine.size:,} bytes of memory, of which compile(..., memory=...) "
                f"allows {self._budget:,}"
            )

    def pattern(self) -> Any:
        """Return SciPy's csr_array of bools: where the derivative of results by arguments may be other than zero.

        Rows are the elements of all results, end to end, columns those of all arguments with floats; the pattern holds
        for all values that the program serves. ValueError if it is dense.

        >>> tape.record(lambda x: x[1:] * x[:-1], np.ones(3)).pattern().toarray().astype(int).tolist()
        [[1, 1, 0], [0, 1, 1]]
        """
        from scipy.sparse import csr_array

        recipe = self._complete
        unknowns = [
            node for node in recipe.arguments[: self._argument_count] if recipe.nodes[node].spec.dtype.kind == "f"
        ]
        indptr, indices, shape = pattern_of_recipe(recipe, unknowns)
        return csr_array((np.ones(len(indices), np.bool_), indices, indptr), shape=shape)

    @property
    def _argument_count(self) -> int:
        """How many of the recipe's arguments those of a call are."""
        return len(self._recipe.arguments)

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
        return {name: value for name, value in vars(self).items() if name not in _NOT_PICKLED} | {
            "_recipe": self._complete
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()

    def __deepcopy__(self, memo: dict[int, Any]) -> Program:
        """Return a copy; the recipe, which nothing changes, is shared."""
        return copy.copy(self)

    def __str__(self) -> str:
        return recipes.listing(self._complete)

    def __repr__(self) -> str:
        return f"<Program of {self._recipe.length} operations, {len(self._recipe.arguments)} arguments>"

    def __len__(self) -> int:
        """Return the number of operations."""
        return self._recipe.length


class PullbackProgram(Program):
    """The results and gradients of a program, from its arguments and the cotangents of its results.

    Of a number perhaps ``at_one``, its cotangent.
    """

    _exactly = True

    def __init__(self, of: Program, *, at_one: bool) -> None:
        self._of, self._mode, self._budget = of, of._mode, of._budget
        self._recipe, self._cotangents = (of._complete, {}) if at_one else pullback_recipe(of._complete)
        self._template, self._kept = of._template, of._kept
        self._begin()

    def _compile(self, *, reverse: bool, always: bool = True) -> bool:
        compiled = super()._compile(reverse=reverse, always=always)
        if compiled:
            self._of.check_soon()
        return compiled

    def computed(self, values: Sequence[Any]) -> Sequence[Any]:
        """Return results, then gradients, in which -0.0 marks what nothing reached; floats and arrays."""
        computed = self._whole(values, reverse=True)
        if computed is None:
            with self._run(values, reverse=True) as machine:
                results = [*machine.outputs, *machine.gradients]
                computed = tuple([scalar_or_array(np.array(x, order="C")) for x in results])
        return computed


def program_of(
    recipe: Recipe, escapes: list[str], signature: Signature, template: Structure, kept: dict[int, Any]
) -> Program:
    """Return the program of a recipe, its results in the structure ``template``; those ``kept`` are no values."""
    self = Program.__new__(Program)
    self._recipe, self._escapes, self._unfinished = recipe, escapes, ""
    self._signature, self._template, self._kept = signature, template, kept
    self._begin()
    return self


def read_programs(content: Content, name: str, types: Iterable[Any]) -> tuple[list[Program], Any]:
    """Return the programs of a file, and what is said of them; ``types``: the classes and functions that it names.

    TypeError if one is missing or has other fields, FileFormatError for what no version wrote, or this one not.
    """
    candidates, body = list(types), content.body
    try:
        decoder = Decoder(body["tables"], content.arrays, named(map(str, body["names"]), candidates))
        return [_decoded(tree, decoder) for tree in body["programs"]], decoder.value(body["extra"])
    except MisfitError:
        raise
    except Exception as error:  # whatever senseless content leads to
        msg = f"load: {name}, written by tape {content.version}, is not what this version reads: {error}"
        raise FileFormatError(msg) from error


def _decoded(tree: dict[str, Any], decoder: Decoder) -> Program:
    recipe = recipe_encoding.decoded(tree["recipe"], decoder)
    signature = decoded_signature(tree["signature"], decoder)
    template = decoded(tree["template"], decoder)
    kept = {i: decoder.value(x) for i, x in tree["kept"]}
    if len(recipe.arguments) != len(signature.names) or len(recipe.outputs) + len(kept) != len(template):
        raise ValueError("the program has other arguments and results than its signature")
    return program_of(recipe, [str(line) for line in tree["escapes"]], signature, template, kept)
