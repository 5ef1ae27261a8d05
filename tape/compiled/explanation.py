"""What a compiled function tells of itself."""

from __future__ import annotations

from typing import Any


def explained(function: Any) -> str:
    """Return the signatures of a compiled function, their programs and guards, and what stayed dynamic and why."""
    name = getattr(function.__wrapped__, "__qualname__", repr(function.__wrapped__))
    calls = {"replayed": sum(program.hits for program in function.programs), **function.calls}
    counts = ", ".join(f"{count} {way}" for way, count in calls.items() if count)
    lines = [f"{name}: {counts or 'not called yet'}"]
    if function._dynamic:
        lines.append(f"  dynamic: {function._dynamic}")
    for key, states in function._keys.items():
        lines.append(f"  signature ({_signature(key)})")
        for state in states:
            lines += _state(state)
    return "\n".join(lines)


def _state(state: Any) -> list[str]:
    lines = []
    if state.dynamic:
        lines.append(f"    dynamic: {state.dynamic}")
    if state.watches:
        lines.append(f"    as long as these stay as they were: {', '.join(watch.name for watch in state.watches)}")
    for program in state.programs:
        lines.append(f"    program of {len(program)} operations, replayed {program.hits} times")
        lines += [
            f"      guard at {line}: missed {missed} times"
            for line, missed in zip(program.lines, program.misses, strict=True)
        ]
    if state.unrolled:
        lines.append(f"    unrolled: {state.unrolled}")
    if state.pending:
        lines.append(f"    {state.pending} ways that were taken once: recorded again before they are replayed")
    return lines


def _signature(key: Any) -> str:
    return ", ".join(map(_leaf, key[2]))


def _leaf(kind: Any) -> str:
    if kind == "float":
        return "float"
    if isinstance(kind, tuple) and kind[0] in ("tensor", "array"):
        shape = ", ".join(map(str, kind[1]))
        grad = ", requires grad" if kind[0] == "tensor" and kind[4] else ""
        return f"{kind[0]} {kind[3].name}[{shape}]{grad}"
    if isinstance(kind, tuple) and kind[0] == "scalar":
        return f"{kind[1].name}[]"
    return str(getattr(kind, "object", kind[1] if isinstance(kind, tuple) else kind))
