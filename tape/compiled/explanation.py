"""What a compiled function tells of itself."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kernels.compiler.compiled_code import Account, CallAccount, NestAccount
from kernels.machine_code.compiled_machine import CompiledMachine
from kernels.machine_code.tiers import reason_of
from kernels.programs.program import Recipe
from kernels.programs.several_ways import unrolled

Places = Callable[[Iterable[int]], str]
_MOST = 8  # loops, and nests, that are told of


def explained(function: Any) -> str:
    """Return the signatures of a compiled function, their programs and guards, and what stayed dynamic and why."""
    name = getattr(function.__wrapped__, "__qualname__", repr(function.__wrapped__))
    calls = {"replayed": sum(program.hits for program in function.programs), **function.calls}
    counts = ", ".join(f"{count} {way}" for way, count in calls.items() if count)
    lines = [f"{name}: {counts or 'not called yet'}"]
    if function._dynamic:
        lines.append(f"  dynamic: {function._dynamic}")
    for key, states in function._keys.items():
        lines.append(f"  signature ({', '.join(map(_leaf, key[2]))})")
        for state in states:
            lines += _state(state, reverse=function._runs_back)
    return "\n".join(lines)


def _state(state: Any, *, reverse: bool) -> list[str]:
    lines = []
    if state.dynamic:
        lines.append(f"    dynamic: {state.dynamic}")
    if state.watches:
        lines.append(f"    as long as these stay as they were: {', '.join(watch.name for watch in state.watches)}")
    for program in state.programs:
        lines.append(f"    program of {len(program)} operations, replayed {program.hits} times")
        lines += _guards(program)
        lines += [f"      {line}" for line in _tier(program, reverse=reverse)]
    if state.unrolled:
        lines.append(f"    unrolled: {state.unrolled}")
    if state.pending:
        lines.append(f"    {len(state.pending)} ways that were taken once: recorded again before they are replayed")
    return lines


def _guards(program: Any) -> Iterator[str]:
    missed: dict[str, int] = {}
    for line, times in zip(program.lines, program.misses, strict=True):
        missed[line] = missed.get(line, 0) + times
    for line, count in Counter(program.lines).items():
        yield f"      guard at {line}{f', {count:,} of them' if count > 1 else ''}: missed {missed[line]} times"


def _leaf(kind: Any) -> str:
    if kind == "float":
        return "float"
    if isinstance(kind, tuple) and kind[0] in ("tensor", "array"):
        shape = ", ".join(map(str, kind[1]))
        grad = ", requires grad" if kind[0] == "tensor" and kind[4] else ""
        return f"{kind[0]} {kind[3].name}[{shape}]{grad}"
    if isinstance(kind, tuple) and kind[0] == "again":
        return f"value {kind[1]} again"
    if isinstance(kind, tuple) and kind[0] == "scalar":
        return f"{kind[1].name}[]"
    return str(getattr(kind, "object", kind[1] if isinstance(kind, tuple) else kind))


def _tier(program: Any, *, reverse: bool) -> Iterator[str]:
    recipe, machine = program._recipe, program._first.get(reverse)
    pulling = vars(program).get("pulling")
    if pulling is not None and pulling.kept is not None:
        yield "interpreter, on tensors that require grad: the tape keeps the memory of a small program"
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
    elif program.writes:
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
            f"{Path(path).name}:{', '.join(str(line) for _, line in group)}"
            for path, group in itertools.groupby(table, key=lambda entry: entry[0])
        ]
        return f" at {'; '.join(files)}"

    return at


def _loops(recipe: Recipe, account: Account, places: Places) -> Iterator[str]:
    for loop in account.loops[:_MOST]:
        inner = "  " * loop.depth
        times = f"{loop.count:,} times" if not loop.ends else f"until it ends, after {loop.count:,} times at most,"
        yield f"{inner}loop, {times} {_counted(len(loop.steps), 'operation')}{places(loop.steps)}"
    if len(account.loops) > _MOST:
        yield f"and {_counted(len(account.loops) - _MOST, 'loop')} more"
    if account.straight:
        yield f"in no loop: {_counted(len(account.straight), 'operation')}"
    for entry in unrolled(recipe, account.straight)[:_MOST]:
        assert recipe.lines is not None
        where = recipe.lines.text(entry.line, short=True)
        yield f"  {entry.operations:,} of these in {entry.times:,} times of {where}"
        yield f"    no loop: {entry.reason}"


def _nests(nests: Sequence[NestAccount], places: Places) -> Iterator[str]:
    shown: list[tuple[str, ...]] = []
    for nest in nests:
        over = f"nest of {_counted(nest.statements, 'statement')} over {nest.elements:,} elements{places(nest.steps)}"
        if nest.apart is None:
            shown.append((over,))
            continue
        first, second = places([nest.apart[0]]), places([nest.apart[1]])
        apart = f"  not part of the nest before: all, or other elements, of what is computed{first}"
        shown.append((over, apart, f"  is needed{second}"))
    for entry in [*dict.fromkeys(shown)][:_MOST]:
        count = shown.count(entry)
        yield entry[0] if count == 1 else f"{count:,} times {entry[0]}"
        yield from entry[1:]
    if len(set(shown)) > _MOST:
        yield f"and {_counted(len(set(shown)) - _MOST, 'nest')} more"


def _calls(calls: Sequence[CallAccount], places: Places) -> Iterator[str]:
    alike: dict[tuple[str, str], list[CallAccount]] = {}
    for call in calls:
        alike.setdefault((call.name, call.by), []).append(call)
    for (name, by), group in alike.items():
        times = sum(call.times for call in group)
        yield f"{_counted(times, 'call')} of {name} by {by}{places([call.step for call in group])}"


def _counted(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
