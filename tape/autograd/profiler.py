"""PyTorch's ``torch.autograd.profiler``: the operations of a block, and what time passes between them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import ContextDecorator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tape.tensors import modes
from tape.tensors.modes import Observer
from tape.tensors.tensor import Tensor

__all__ = ["EventList", "FunctionEvent", "profile", "record_function"]


@dataclass
class FunctionEvent:
    """An operation, a backward or a range: calls of one name together in ``key_averages``; times in microseconds."""

    key: str
    start: float
    cpu_time_total: float
    self_cpu_time_total: float
    count: int = 1
    input_shapes: list[list[int]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The name."""
        return self.key

    @property
    def cpu_time(self) -> float:
        """The time of one call."""
        return self.cpu_time_total / self.count


class EventList(list[FunctionEvent]):
    """Events, of which ``table()`` tells."""

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all of them, in microseconds."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(self, group_by_input_shape: bool = False) -> EventList:
        """Return one event for each name, and with ``group_by_input_shape`` for each of its operands' shapes."""
        groups: dict[Any, FunctionEvent] = {}
        for e in self:
            key = e.key, repr(e.input_shapes) if group_by_input_shape else ""
            if key not in groups:
                groups[key] = FunctionEvent(e.key, e.start, 0.0, 0.0, 0, e.input_shapes if group_by_input_shape else [])
            total = groups[key]
            total.cpu_time_total += e.cpu_time_total
            total.self_cpu_time_total += e.self_cpu_time_total
            total.count += 1
        return EventList(groups.values())

    def table(self, sort_by: str | None = None, row_limit: int = 100, **_: Any) -> str:
        """Return a table, sorted by ``"cpu_time_total"``, ``"self_cpu_time_total"``, ``"cpu_time"`` or ``"count"``."""
        rows = self if sort_by is None else sorted(self, key=lambda e: getattr(e, sort_by), reverse=True)
        total = self.self_cpu_time_total or 1.0
        cells = [("Name", "Self CPU %", "Self CPU", "CPU total", "CPU time avg", "# of Calls")]
        cells += [
            (
                e.key, f"{100 * e.self_cpu_time_total / total:.2f}%", _time(e.self_cpu_time_total),
                _time(e.cpu_time_total), _time(e.cpu_time), str(e.count),
            )
            for e in rows[:row_limit]
        ]  # fmt: skip
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        line = "  ".join("-" * width for width in widths)
        head, *body = ["  ".join(map(str.rjust, row, widths)) for row in cells]
        end = f"Self CPU time total: {_time(self.self_cpu_time_total)}\n"
        return "\n".join([line, head, line, *body, line, end])

    def export_chrome_trace(self, path: str) -> None:
        """Write the events for chrome://tracing."""
        events = [{"name": e.key, "ph": "X", "ts": e.start, "dur": e.cpu_time_total, "pid": 0, "tid": 0} for e in self]
        Path(path).write_text(json.dumps({"traceEvents": events}), encoding="utf-8")

    __str__ = table


def _time(microseconds: float) -> str:
    unit = next(((n, u) for n, u in ((1e6, "s"), (1e3, "ms")) if microseconds >= n), (1.0, "us"))
    return f"{microseconds / unit[0]:.3f}{unit[1]}"


_running: list[profile] = []


class profile(Observer):  # noqa: N801 (PyTorch's name)
    """Note each operation of a block, and each backward as one.

    The time of one is what has passed since the one before, Python's between them too. Compiled functions run in
    dynamic mode meanwhile; ``program.profile`` times their programs. RuntimeError in a function that is recorded.

    >>> with tape.autograd.profiler.profile() as prof:
    ...     y = tape.ones(3).exp().sum()
    >>> [(event.key, event.count) for event in prof.key_averages()]
    [('exp', 1), ('sum', 1)]
    """

    def __init__(self, enabled: bool = True, *, record_shapes: bool = False, use_cpu: bool = True, **_: Any) -> None:
        self.enabled, self.record_shapes = enabled and use_cpu, record_shapes
        self.function_events = EventList()

    def __enter__(self) -> Self:
        """Begin."""
        if self.enabled:
            mode = modes.current()
            if mode.recorder is not None:
                raise RuntimeError("profile: this function is recorded, mapped or profiled; profile calls of it")
            self._under = modes.under(mode._replace(recorder=self))
            self._under.__enter__()
            _running.append(self)
            self._last = time.perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        """End."""
        if self.enabled:
            _running.remove(self)
            self._under.__exit__(None, None, None)

    def notify(self, op: Any, operands: tuple[Any, ...], result: Any, params: tuple[Any, ...]) -> None:
        """Take in an operation."""
        self._passed(op.name, operands)

    def wrote(self, op: Any, x: Any, value: Any, params: tuple[Any, ...]) -> None:
        """Take in a write."""
        self._passed(f"{op.name.rstrip('_')}_", (x,))

    def note_unrecorded(self, tensor: Any, what: str) -> None:
        """Take in a backward."""
        if what == "a gradient":
            self._passed("backward", (tensor,))

    def _passed(self, name: str, operands: Iterable[Any]) -> None:
        now = time.perf_counter()
        spent = 1e6 * (now - self._last)
        shapes = [list(x.shape) for x in operands if isinstance(x, Tensor)] if self.record_shapes else []
        self.function_events.append(FunctionEvent(name, 1e6 * self._last, spent, spent, 1, shapes))
        self._last = time.perf_counter()

    def key_averages(self, group_by_input_shape: bool = False) -> EventList:
        """Return one event for each name: see :meth:`EventList.key_averages`."""
        return self.function_events.key_averages(group_by_input_shape)

    def table(self, sort_by: str | None = None, row_limit: int = 100, **_: Any) -> str:
        """Return the table of all events in their order."""
        return self.function_events.table(sort_by, row_limit)

    def export_chrome_trace(self, path: str) -> None:
        """Write the events for chrome://tracing."""
        self.function_events.export_chrome_trace(path)

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all events, in microseconds."""
        return self.function_events.self_cpu_time_total

    def __str__(self) -> str:
        return self.table()


class record_function(ContextDecorator):  # noqa: N801 (PyTorch's name)
    """Note a block, or the calls of a function, as an event of this name; its own time is that outside operations."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name

    def __enter__(self) -> Self:
        """Begin."""
        self._profile = _running[-1] if _running else None
        self._begin = time.perf_counter()
        self._first = 0 if self._profile is None else len(self._profile.function_events)
        if self._profile is not None:
            self._profile._last = self._begin
        return self

    def __exit__(self, *exception: object) -> None:
        """End."""
        if self._profile is not None and self._profile in _running:
            now, events = time.perf_counter(), self._profile.function_events
            spent = 1e6 * (now - self._begin)
            outside = spent - sum(e.self_cpu_time_total for e in events[self._first :])
            events.insert(self._first, FunctionEvent(self.name, 1e6 * self._begin, spent, max(outside, 0.0)))
            self._profile._last = now
