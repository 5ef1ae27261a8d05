"""A compiled function in a file: its programs, which need no source of the function."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kernels.codegen.tasks import node_of
from kernels.kinds.loop import Guard, LoopMark
from kernels.programs.interpreter.machine import GuardMissed
from kernels.programs.recording.program import ProgramError, Recipe
from tape.compiled.compiled_program import CompiledProgram
from tape.foundation.checked_files import Content
from tape.programs import reading, saving
from tape.programs.program import Program
from tape.transforms.signature import Signature
from tape.transforms.value_and_grad import arranged

KIND = "compiled function"
Gradient = tuple[tuple[int, ...], bool, bool, str]
"""The numbers of the arguments that a gradient is by, whether it is by one alone, whether there is aux; its form."""


class LoadedFunction:
    """A compiled function from a file: what was recorded of it, without the function.

    A call replays the program of its signature and of the way that it goes. What the function read from outside is as
    it was when the file was written. ProgramError, naming the line, where a value leaves for Python that no program
    expects; TypeError for arguments of another signature.
    """

    __module__ = "tape"

    def __init__(self, name: str, programs: Sequence[Program], gradient: Gradient | None) -> None:
        self.__name__ = name
        self.programs, self._gradient = list(programs), gradient
        self._paths = [_path(program._recipe) for program in programs]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Replay."""
        mismatch: Exception = TypeError(f"{self.__name__}: the file holds no program")
        path: tuple[bytes, ...] | None = None
        for program, expected in zip(self.programs, self._paths, strict=True):
            if None not in (path, expected) and expected[: len(path)] != path:  # type: ignore[index, arg-type]
                continue
            try:
                return self._called(program, args, kwargs)
            except GuardMissed as missed:
                mismatch = missed
                path = path if expected is None else (*expected[: missed.number], missed.value)
            except TypeError as error:
                mismatch = mismatch if isinstance(mismatch, GuardMissed) else error
        raise mismatch

    def _called(self, program: Program, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._gradient is None:
            return program(*args, **kwargs)
        numbers, alone, has_aux, form = self._gradient
        value, gradients = program.value_and_grad(*args, has_aux=has_aux, **kwargs)
        by_number = dict(zip(sorted(numbers), gradients, strict=True))
        return arranged(form, value, by_number[numbers[0]] if alone else tuple(by_number[i] for i in numbers))

    def __repr__(self) -> str:
        return f"<{self.__name__}, of {len(self.programs)} programs from a file>"


def write(
    f: Any,
    name: str,
    programs: Sequence[tuple[CompiledProgram, Signature]],
    gradient: Gradient | None,
) -> None:
    """Write the programs of a compiled function to a path or a binary file. ProgramError if there are none."""
    if not programs:
        raise ProgramError(f"save: {name} has no program yet; call it, three times or more for each signature")
    extra = {"name": name, "gradient": None if gradient is None else [list(gradient[0]), *gradient[1:]]}
    saving.write(f, KIND, [_alone(program, signature) for program, signature in programs], extra)


def read(content: Content, name: str, types: Iterable[Any]) -> LoadedFunction:
    """Return the function that a file holds."""
    programs, extra = reading.read(content, name, types)
    gradient = extra["gradient"]
    return LoadedFunction(extra["name"], programs, None if gradient is None else (tuple(gradient[0]), *gradient[1:]))


def _alone(program: CompiledProgram, signature: Signature) -> Program:
    """Return a program whose values from outside are constants, with the signature of a call."""
    if program.generators:
        raise ProgramError("save: the function draws random numbers, which no file holds")
    return program.with_recipe(program.alone(), signature)


def _path(recipe: Recipe) -> tuple[bytes, ...] | None:
    """Return the values that a program's guards expect, in order; None for one with loops, which have no one way."""
    if any(isinstance(kind.op, LoopMark) for kind in recipe.steps.kinds):
        return None
    if not any(isinstance(kind.op, Guard) for kind in recipe.steps.kinds):
        return ()
    expected = [recipe.nodes[node_of(s.operands[1])].constant for s in recipe.steps if isinstance(s.op, Guard)]
    return tuple([value.tobytes() for value in expected if value is not None])
