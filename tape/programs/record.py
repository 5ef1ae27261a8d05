"""``tape.record``: a call of a function, or a block, recorded as a program."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np

from kernels.programs.program import ProgramError
from tape.errors import shorten
from tape.programs.program import Program, program_of
from tape.tensors import modes
from tape.tensors.operands import native
from tape.tensors.pytrees import Signature, Structure, flattened
from tape.tensors.recorder import ProgramRecorder
from tape.tensors.tensor import Tensor, leaf, scalar_or_array
from tape.transforms.value_and_grad import check_written

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
        recipe, escapes = self._recorder.recipe, self._recorder.escapes
        self._program = program_of(recipe, escapes, Signature((), {}), flattened(_LEAF)[1], {})
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
        self._recorder.finish()
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
    try:
        template, kept = modes.call_under(mode, _run, fun, signature, values, recorder)
    except Exception as error:
        shorten(error)
        raise
    recorder.check()
    recorder.finish()
    written = [i for i, node in enumerate(recorder.recipe.arguments) if node in recorder.recipe.written]
    check_written(signature.names, values, written)
    # not with the recorder: it holds every tensor of the recording, and so their graph
    return program_of(recorder.recipe, recorder.escapes, signature, template, kept)


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
    kept = {i: x for i, x in enumerate(leaves) if not isinstance(x, Tensor)}
    for x in kept.values():
        if x is not None and not isinstance(x, (str, bool)):
            raise TypeError(f"a recorded function returns tensors, not {type(x).__name__}; keep the result a tensor")
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
