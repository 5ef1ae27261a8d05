"""The reverse pass of a scalar program as native source; where gradients are gathered, or stored and not added."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import numpy as np

from kernels.compiler import scalar_program as scalar
from kernels.compiler.adjoint import Adjoint, CertainGradients, KeptValues
from kernels.compiler.compiled_code import ProgramText, Suite, lines_in
from kernels.compiler.forward_text import ForwardText
from kernels.compiler.scalar_program import literal, walk
from kernels.compiler.statements import BLAS, FLOAT32, FLOAT64, ScalarRule
from kernels.compiler.storage import Element, Storage

# Which nests read elements of one value at several places along their axes: stencils, whose reverse is a gather.

_MOST = 12  # shifts of a gather, at most: each is another copy of the body
_LONGEST = 1 << 10  # operations of all copies together, at most

Shift: TypeAlias = tuple[int, ...]


class ShiftedLoads(NamedTuple):
    """Loads of one value, each with its shift; ``constant`` is where a load would be that is not shifted."""

    loads: list[tuple[scalar.Load, Shift]]
    constant: int

    @property
    def value(self) -> int:
        """The value that they read."""
        return self.loads[0][0].address.value


class StencilGather(NamedTuple):
    """Loads that are shifted along one loop, or two around each other; ``shifts`` are all there are, in order."""

    loops: list[scalar.NestLoop]
    groups: list[ShiftedLoads]
    shifts: list[Shift]

    @property
    def most(self) -> Shift:
        """The largest shift along each loop."""
        return tuple(map(max, zip(*self.shifts, strict=True)))

    @property
    def body(self) -> scalar.ScalarBlock:
        """The body of the innermost loop."""
        return self.loops[-1].body


def gather_of(item: scalar.NestLoop, adjoint: Adjoint) -> StencilGather | None:
    """Return how the gradients of a nest's loads are gathered; None where they are added one by one."""
    loops = [item]
    if len(item.body.items) == 1 and isinstance(item.body.items[0], scalar.NestLoop):
        loops.append(item.body.items[0])
    body = loops[-1].body
    if any(
        isinstance(part, scalar.NestLoop | scalar.StepLoop) or getattr(part, "overwrites", False) for part in body.items
    ):
        return None
    touched = {part.address.value for part in body.items if isinstance(part, scalar.Store)}
    loads: dict[int, list[scalar.Load]] = defaultdict(list)
    for part in body.items:
        if isinstance(part, scalar.Load) and part.name in adjoint.reached and part.address.value not in touched:
            loads[part.address.value].append(part)
    each = [_group(parts, loops) for parts in loads.values()]
    groups = [group for group in each if group is not None]
    shifts = sorted({shift for group in groups for _, shift in group.loads})
    copies = sum(isinstance(part, scalar.Compute) for part in body.items) * len(shifts)
    if len(loops) > 1 and groups and not any(shift[0] != shifts[0][0] for shift in shifts):
        return None  # along the inner loop alone
    return StencilGather(loops, groups, shifts) if groups and len(shifts) <= _MOST and copies < _LONGEST else None


def _group(loads: list[scalar.Load], loops: list[scalar.NestLoop]) -> ShiftedLoads | None:
    """Return loads of one value that are shifted along loops; None of others."""
    if len({(load.address.terms, load.address.at) for load in loads}) > 1 or len(loads) == 1:
        return None
    steps = [dict(loads[0].address.terms).get(loop.index, 0) for loop in loops]
    if min(steps) <= 0 or (len(steps) > 1 and steps[0] % steps[1]):
        return None
    places = [_places(load.address.constant, steps) for load in loads]
    if len({rest for _, rest in places}) > 1 or len({place for place, _ in places}) < len(loads):
        return None
    least = tuple(map(min, zip(*[place for place, _ in places], strict=True)))
    shifts = [tuple(a - b for a, b in zip(place, least, strict=True)) for place, _ in places]
    if any(shift >= loop.extent for each in shifts for shift, loop in zip(each, loops, strict=True)):
        return None
    if len(loops) > 1:
        row = steps[0] // steps[1]
        if least[1] + loops[1].extent + max(shift[1] for shift in shifts) > row:
            return None
    constant = sum(place * step for place, step in zip(least, steps, strict=True)) + places[0][1]
    return ShiftedLoads(list(zip(loads, shifts, strict=True)), constant)


def _places(constant: int, steps: list[int]) -> tuple[Shift, int]:
    """Return how many steps of each loop a byte offset is, and what remains."""
    place = []
    for step in steps:
        place.append(constant // step)
        constant %= step
    return tuple(place), constant


class FirstGradients:
    """``blocks`` has, by value, the block whose loads' gradients come first; ``only`` are values with no others.

    ``stored`` are those whose only gradient is that by a product of matrices, which is stored then, not added.
    """

    def __init__(self, adjoint: Adjoint, storage: Storage) -> None:
        self.adjoint, self.storage = adjoint, storage
        self.blocks: dict[int, scalar.ScalarBlock] = {}
        self.only: set[int] = set()
        loads: dict[int, list[tuple[scalar.ScalarBlock, scalar.Load]]] = defaultdict(list)
        written: set[int] = set()
        for block, item in walk(adjoint.expansion.root):
            if isinstance(item, scalar.Load) and item.name in adjoint.reached:
                loads[item.address.value].append((block, item))
            elif isinstance(item, scalar.Store) and item.overwrites:
                written.add(item.address.value)
            elif isinstance(item, scalar.CallKernel):
                written |= {address.value for address in item.operands}
        for row in adjoint.expansion.rows:
            if row.phi in loads or row.phi in written:  # whose gradient is what the step before adds to
                written |= {row.start, row.update}
        for value, reads in loads.items():
            if value not in written:
                self._look(value, reads)
        self.stored = self._stored({*loads})

    def _stored(self, loaded: set[int]) -> set[int]:
        root, values, rows = self.adjoint.expansion.root, self.storage.program.values, self.adjoint.expansion.rows
        calls = [item for _, item in walk(root) if isinstance(item, scalar.CallKernel)]
        times = Counter(address.value for item in calls for address in item.operands)
        others = loaded | {value for row in rows for value in (row.phi, row.start, row.update)}
        alone = set[int]()
        for item in root.items:
            if isinstance(item, scalar.CallKernel) and item.call.by == BLAS and self.adjoint.pulls_back(item):
                for address, wanted, size in zip(item.operands, item.wanted, item.sizes, strict=True):
                    value, entry = address.value, values[address.value]
                    single = times[value] == 1 and value not in others and not entry.written and entry.loop < 0
                    if wanted and single and address == scalar.Address(value, 0) and entry.spec.size == size:
                        alone.add(value)
        return alone

    def _look(self, value: int, loads: list[tuple[scalar.ScalarBlock, scalar.Load]]) -> None:
        block = loads[-1][0]
        here = [load for around, load in loads if around is block]
        together = all(around is block for around, _ in loads[-len(here) :])
        home = self.storage.buffers.get(self.adjoint.home(value))
        steps = [loop.loop.number for loop in block.loops() if isinstance(loop, scalar.StepLoop)]
        if not together or home is None or home.rows or steps != self.storage.program.loops_around(value):
            return
        if any(load.address.at for _, load in loads):
            return
        nests = [loop for loop in block.loops() if isinstance(loop, scalar.NestLoop)]
        if any(loop in nests for around, _ in loads if around is not block for loop in around.loops()):
            return  # steps of a nest alternate between these loads and those
        if self._meets_each(value, block, here):
            self.blocks[value] = block
            if len(here) == len(loads):
                self.only.add(value)

    def _meets_each(self, value: int, block: scalar.ScalarBlock, loads: list[scalar.Load]) -> bool:
        """Whether gradients of loads, those of one element summed, go to each element of a value once."""
        nests = [loop for loop in block.loops() if isinstance(loop, scalar.NestLoop)]
        spec = self.adjoint.expansion.program.values[value].spec
        item = spec.dtype.itemsize
        mask = np.zeros(self.storage.bytes_of(value) // item, np.bool_)
        terms, indices = {load.address.terms for load in loads}, sorted(loop.index for loop in nests)
        if len(mask) != spec.size or [sorted(name for name, _ in each) for each in terms] != [indices]:
            return False
        shift = {loop.index: 0 for loop in nests}
        constants = {load.address.constant for load in loads}
        gathers = [gather_of(loop, self.adjoint) for loop in nests[-2:]]
        gather = next((gather for gather in gathers if gather is not None and gather.loops[-1] is nests[-1]), None)
        group = gather and next((group for group in gather.groups if group.value == value), None)
        if gather is not None and group is not None:
            if len(group.loads) != len(loads):
                return False
            constants = {group.constant}
            shift |= dict(zip([loop.index for loop in gather.loops], gather.most, strict=True))
        stored = 0
        for constant in constants:
            places = np.array([constant // item])
            for loop in nests:
                step = dict(loads[0].address.terms)[loop.index] // item
                places = np.add.outer(places, np.arange(loop.extent + shift[loop.index]) * step).ravel()
            if places.max() >= len(mask):
                return False
            mask[places] = True
            stored += len(places)
        return bool(mask.all()) and stored == len(mask)


# The reverse pass of a scalar program as native source: each block backward, each operation's pullbacks.

NOTHING = literal(-0.0)  # the gradient that nothing has contributed to


class ReverseText:
    """Prints items backward; the gradient of name ``v`` is ``g_v``.

    Of nests that are ``joint`` the forward pass is printed here, too: one loop runs both. ``marks``: in gradients of
    arguments, too, what nothing has contributed to is -0.0.
    """

    def __init__(
        self, text: ProgramText, storage: Storage, kept: KeptValues, adjoint: Adjoint, *, marks: bool = False
    ) -> None:
        self.text, self.storage, self.kept, self.adjoint, self.marks = text, storage, kept, adjoint, marks
        self.certain = self.last = CertainGradients(adjoint)
        self.steady = CertainGradients(adjoint, self.last)
        """What is certain in all but the last steps of the outermost loops."""
        self.first = FirstGradients(adjoint, storage)
        storage.contract(self.first.blocks)
        self.forward = ForwardText(text, storage, kept)
        self.defined = adjoint.expansion.defined
        self.at: list[scalar.ScalarBlock] = []
        self.started: set[str] = set()
        self.only: set[str] | None = None  # the names that get contributions, where not all do
        self.chains: dict[str, tuple[str, str]] = {}
        """Gradients that are products: a cotangent and a factor, "" for 1."""
        self.taken: dict[str, str] = {}  # variables for the gradients of loads that are not added to memory at once

    def start(self) -> None:
        """Print the begin of the reverse: gradients in memory that are added to are nothing."""
        root = self.adjoint.expansion.root
        self.at.append(root)
        rows = {row.phi for row in self.adjoint.expansion.rows}
        for value, home in self.storage.buffers.items():
            if value in self.first.stored:
                continue
            if home.region.role == "work" and (value in rows or value not in self.first.blocks):
                element = Element(home.region, 0, (("i", home.region.dtype.itemsize),))
                self.text.each(home.region.count, element, "=", NOTHING)
            elif home.region.role != "work" and value not in self.first.blocks:
                self.fill(value)
        self._begin(root)

    def finish(self) -> None:
        """Print the end: gradients that are delivered have no -0.0, unless as marks."""
        for value in self.storage.differentiated():
            if value not in self.first.only and not self.marks:
                spec = self.adjoint.expansion.program.values[value].spec
                element = self.storage.gradient(self.storage.ith(scalar.Address(value, 0)))
                self.text.each(spec.size, element, "+=", "0.0")

    def block(self, block: scalar.ScalarBlock) -> None:
        """Print the reverse of a block."""
        self.at.append(block)
        self._begin(block)
        self.items(block)
        self.at.pop()

    def items(self, block: scalar.ScalarBlock) -> None:
        """Print the items of a block backward."""
        for item in reversed(block.items):
            self.item(item)

    def item(self, item: object) -> None:
        """Print an item backward."""
        method = getattr(self, f"on_{type(item).__name__}", None)
        if method is not None:
            method(item)

    def _begin(self, block: scalar.ScalarBlock) -> None:
        """Print what the block's pullbacks read, and gradients that loops within add to."""
        if id(block) in self.kept.joint:
            for item in block.items:
                if not (self.kept.chained and isinstance(item, scalar.NestLoop)):
                    self.forward.item(item)
        else:
            self.materialize_kept_values(block)
        for name in sorted(self.adjoint.inner & self.adjoint.reached):
            if self.defined[name][0] is block:
                self._begin_gradient(name, self.nothing(name))

    def _begin_gradient(self, name: str, value: str, *read: Element) -> None:
        """Print the first contribution to the gradient of a name."""
        self.text.let(f"g_{name}", value, *read)
        self.started.add(name)

    def nothing(self, name: str) -> str:
        """Return the gradient of a name that nothing has contributed to, in its dtype."""
        return literal(-0.0, self.adjoint.expansion.dtypes.get(name, FLOAT64))

    def materialize_kept_values(self, block: scalar.ScalarBlock) -> None:
        """Print what pullbacks of a block read."""
        for name in self.kept.provided.get(id(block), ()):
            item = self.defined[name][1]
            if name in self.kept.saved or name in self.kept.reloaded:
                saved = name in self.kept.saved
                element = self.storage.saved(name) if saved else self.storage.element(self.kept.reloaded[name])
                self.forward.loaded(name, element)
                if isinstance(item, scalar.StepLoop) and name == f"m{item.loop.number}":
                    self.text.double_buffer(f"y{item.loop.number}", name)
            elif isinstance(item, scalar.Load):
                self.forward.loaded(name, self.storage.element(item.address))
            else:
                assert isinstance(item, scalar.Compute)
                self.forward.operated(item)

    def contribute(self, name: str, text: str, *read: Element, widened: bool = False) -> None:
        """Add to the gradient of a name; of one in float32 what may have been ``widened`` is rounded first."""
        if widened and self.adjoint.expansion.dtypes.get(name) == FLOAT32:
            text = f"np.float32({text})"
        if name not in self.adjoint.reached or (self.only is not None and name not in self.only):
            return
        is_here = self.defined[name][0] is self.at[-1]
        if is_here and name not in self.started:
            self._begin_gradient(name, text, *read)
        elif is_here or not isinstance(self.at[-1].loop, scalar.NestLoop):
            self.text.let(f"g_{name}", text, *read, sign="+=")
        else:
            self.text.let(f"g_{name}", f"accumulators.added(g_{name}, {text})", *read, sums="added")

    def on_Compute(self, item: scalar.Compute) -> None:  # noqa: N802 (named as the items are)
        """Print the pullbacks of an operation."""
        if item.name not in self.adjoint.reached or item.name not in self.started:
            return
        operation = item.operation
        names = dict(zip(operation.inputs, item.operands, strict=True))
        names |= {"y": item.name, "g": f"g_{item.name}"}
        pulls = item.pullbacks()
        chained = item.name in self.chains
        base, factor = self.chains.pop(item.name, (f"g_{item.name}", ""))
        if chained and any(rule.factor is None for _, rule in pulls):
            self.text.let(f"g_{item.name}", f"{base}{' * ' if factor else ''}{factor}")
            base, factor, chained = f"g_{item.name}", "", False
        for operand, rule in pulls:
            if rule.factor is None or not (chained or self._chains(item, operand)):
                self.contribute(operand, self._pulled(rule, names, item.name, operand))
            else:
                self._chain(operand, base, " * ".join(filter(None, (factor, rule.factor.format(**names)))), item)

    def _chains(self, item: scalar.Compute, operand: str) -> bool:
        """Whether the gradient of an operand can stay a product, of a cotangent and a factor, until it is added."""
        known = self.defined.get(operand)
        if known is None or not isinstance(known[1], scalar.Compute) or self.only is not None:
            return False
        block, both = self.at[-1], self.certain.names
        in_registers = known[0] is block and isinstance(block.loop, scalar.StepLoop)
        return in_registers and self.adjoint.counts[operand] == 1 and operand in both and item.name in both

    def _chain(self, operand: str, base: str, factor: str, item: scalar.Compute) -> None:
        """Contribute a product whose factors are multiplied first, off the way that the cotangent takes."""
        if not self._chains(item, operand):
            self.contribute(operand, f"{base} * ({factor})" if factor else base)
            return
        if " * " in factor:
            self.text.let(f"f_{operand}", factor)
            factor = f"f_{operand}"
        self.chains[operand] = base, factor
        self.started.add(operand)

    def _pulled(self, rule: ScalarRule, names: dict[str, str], result: str, operand: str) -> str:
        """Return a pullback as text; one whose cotangent may be nothing then contributes nothing."""
        text = rule.filled(names, once=not isinstance(self.at[-1].loop, scalar.NestLoop))
        if rule.text == "{g}" or result in self.certain.names:
            return text
        if not rule.cuts:
            text = f"({text} + 0.0)"
        return f"({self.nothing(operand)} if bits_of(g_{result}) == MINUS_ZERO else {text})"

    def contribution(self, name: str, *, certain: bool) -> str:
        """Return the gradient of a name as what is added where others may be nothing: never -0.0 if it is something."""
        return f"(g_{name} + 0.0)" if name in self.certain.names and not certain else f"g_{name}"

    def on_Load(self, item: scalar.Load) -> None:  # noqa: N802
        """Add the gradient of an element to that of the memory it came from."""
        if self.taken.get(item.name) == "_":
            return  # its gradient is another step's
        if item.name in self.taken:
            known = self._of(item) if item.name in self.started else self.nothing(item.name)
            self.text.let(self.taken[item.name], known)
        elif self.only is None and item.name in self.adjoint.reached:
            value, element = item.address.value, self.storage.gradient(item.address)
            is_first = self.first.blocks.get(value) is self.at[-1]
            if item.name not in self.started:  # a step in which nothing comes here; what is stored first is so still
                if is_first:
                    self.text.store(element, "=", NOTHING)
                return
            ending = " + 0.0" if is_first and self.is_delivered(value) else ""
            self.text.store(element, "=" if is_first else "+=", f"{self._of(item)}{ending}")

    def is_delivered(self, value: int) -> bool:
        """Whether what is stored first is the gradient of an argument, as it is returned."""
        is_argument = self.adjoint.expansion.program.values[value].argument >= 0
        return value in self.first.only and is_argument and not self.marks

    def _of(self, item: scalar.Load) -> str:
        value = item.address.value
        is_argument = self.adjoint.expansion.program.values[value].argument >= 0
        is_certain = self.adjoint.home(value) in self.certain.homes
        return self.contribution(item.name, certain=not self.marks if is_argument else is_certain)

    def on_Store(self, item: scalar.Store) -> None:  # noqa: N802
        """Give the gradient of memory to what was stored there."""
        value = self.adjoint.home(item.address.value)
        if value not in self.adjoint.buffered:
            return
        if item.wanted:
            seed = self.adjoint.seeds.get(value)
            if seed == -1:
                self.contribute(item.operand, "1.0", widened=True)
            else:
                address = item.address if seed is None else item.address._replace(value=seed)
                element = self.storage.gradient(address) if seed is None else self.storage.element(address)
                self.contribute(item.operand, f"{element}", element)
        if item.overwrites and item.clears:
            self.text.store(self.storage.gradient(item.address), "=", NOTHING)

    def on_Accumulate(self, item: scalar.Accumulate) -> None:  # noqa: N802
        """Give the gradient of a total to a term."""
        if item.wanted and item.total in self.adjoint.reached and item.total in self.started:
            self.contribute(item.operand, f"g_{item.total}", widened=self.storage.dtype(item.total) == FLOAT64)

    def on_CallKernel(self, item: scalar.CallKernel) -> None:  # noqa: N802
        """Print the calls that pull a cotangent back."""
        if self.adjoint.pulls_back(item):
            for kernel in item.call.pullbacks:
                stored = item.addresses[kernel.places[0].operand].value in self.first.stored
                self.forward.called(item, replace(kernel, adds=False) if stored else kernel)

    def on_NestLoop(self, item: scalar.NestLoop) -> None:  # noqa: N802
        """Print the reverse of a nest, as a gather if it is a stencil; of a joint one, both passes."""
        lines, gather = self.text.here, gather_of(item, self.adjoint)
        before = len(lines)
        for loop in [item] if gather is None else gather.loops:
            # nothing comes to totals of all steps of a loop but the last, if that one is read
            for total in loop.totals:
                if total in self.adjoint.reached and total not in self.started:
                    self._begin_gradient(total, self.nothing(total))
        joint = id(item.body) in self.kept.joint
        if joint:
            self.forward.begin_totals(item)
        if gather is not None:
            Gathering(self, gather).run()
            return
        start = len(lines)
        self.forward.open_nest(item)
        self.block(item.body)
        self.text.depth -= 1
        inside = [*lines_in(lines[start:])]
        leaves = any(line.sums or any(use.how != "read" for use in line.uses) for line in inside)
        if not (leaves or joint) or all(isinstance(line, Suite) for line in inside):
            del lines[start if leaves or joint else before :]

    def on_StepLoop(self, item: scalar.StepLoop) -> None:  # noqa: N802
        """Print a loop of the program backward; its last step by itself, if more gradients are nothing there."""
        numbers = [c for c in item.numbers if c.name in self.adjoint.reached]
        exits = [(after, inner) for after, inner in item.exits if after in self.adjoint.reached]
        ends = {name: f"g_{after}" for after, name in item.ends if after in self.started}
        for c in numbers:
            self.text.let(f"c_{c.name}", ends.get(c.name, self.nothing(c.name)))
        self.text.put(*[f"g_{x} += 0.0" for x, v in exits if x in self.certain.names and v not in self.certain.names])
        here, others = self.certain, self._certain_before(item)
        less = int(others is not None)
        if others is not None:
            depth = self.text.depth
            self.forward.loops.at_last(item)
            self._step(item, numbers, exits)
            self.text.depth = depth
            inside = {id(block) for block, _ in walk(item.body)} | {id(item.body)}
            self.started -= {name for name, (block, _) in self.defined.items() if id(block) in inside}
            exits, self.certain = [], others
        self.forward.loops.backward(item, less, self.forward.step, lambda item: self._step(item, numbers, exits))
        self.certain = here
        for c in numbers:
            self.contribute(c.initial, f"c_{c.name}")

    def _certain_before(self, item: scalar.StepLoop) -> CertainGradients | None:
        """Return what is certain before a loop's last step, if that is more in it: the last one is printed apart."""
        others = self.certain
        if item.loop.number in self.storage.nested_history:
            others = self.certain.before_ends
        elif item.loop.parent < 0 and item.loop.ends is None and item.loop.count > 1:
            others = self.steady
        gained = others.names - self.certain.names
        return others if any(item.body in self.defined[name][0].path() for name in gained) else None

    def _step(self, item: scalar.StepLoop, numbers: list[scalar.CarriedNumber], exits: list[tuple[str, str]]) -> None:
        """Print one step backward."""
        self.forward.loops.put_double_buffer_indices(item)
        self.at.append(item.body)
        self._begin(item.body)
        for c in numbers:
            self.contribute(c.update, f"c_{c.name}")
        for after, inner in exits:
            self.contribute(inner, f"g_{after}")
            self.text.put(f"g_{after} = {self.nothing(after)}")
        self.items(item.body)
        for c in numbers:
            known = self.contribution(c.name, certain=c.update in self.certain.names)
            self.text.put(f"c_{c.name} = {known if c.name in self.started else self.nothing(c.name)}")
        phis = {row.update: row.phi for row in self.adjoint.expansion.rows}
        for value, entry in enumerate(self.adjoint.expansion.program.values):
            home = self.adjoint.home(value)
            if entry.loop != item.loop.number or value in phis.values() or home not in self.storage.buffers:
                continue
            phi = phis.get(value)  # whose row in the step before this one is: what nobody reads there must be nothing
            stored = value in self.first.blocks if phi is None else phi in self.first.blocks and item.loop.parent < 0
            if not stored:
                self.fill(value)
        self.at.pop()

    def fill(self, value: int) -> None:
        """Print a loop that makes the gradient of a value nothing."""
        item = self.adjoint.expansion.program.values[value].spec.dtype.itemsize
        elements = self.storage.bytes_of(value) // item
        if elements == 1:
            self.text.store(self.storage.gradient(scalar.Address(value, 0)), "=", NOTHING)
        else:
            self.text.each(elements, self.storage.gradient(self.storage.ith(scalar.Address(value, 0))), "=", NOTHING)


# Nests that read one value at several places along an axis, backward: each element of its gradient is gathered.


class Gathering:
    """Prints a nest so that each element of a gradient gets all that shifted reads of it contribute at once.

    Adding at several places in each step would keep the loop from being vectorised. Here the steps are those of the
    gradient's elements; each contribution is computed as in the step that it comes from.
    """

    def __init__(self, reverse: ReverseText, gather: StencilGather) -> None:
        self.reverse, self.gather, self.text = reverse, gather, reverse.text
        self.places = [f"{loop.index}j" for loop in gather.loops]
        self.joint = id(gather.body) in reverse.kept.joint
        self.names = {name for name, (block, _) in reverse.defined.items() if block is gather.body}

    def run(self) -> None:
        """Print the steps in which all contribute, then those at the ends."""
        text, depth = self.text, self.text.depth
        extents, most = [loop.extent for loop in self.gather.loops], self.gather.most
        inner, place, last = extents[-1], self.places[-1], most[-1]
        ends, count, at_most = "", f"{2 * last}", 2 * last
        if len(extents) > 1:
            row, first = self.places[0], most[0]
            text.loop(row, extents[0] + first)
            text.put(f"whole = {row} >= {first} and {row} < {extents[0]}")
            ends, at_most = " or not whole", max(2 * last, inner + last)
            text.opened("if whole:")
        self.text.loop(place, inner, last)
        for shift in self.gather.shifts:
            self._instance(shift)
        for (element, sign), group in zip(self._elements(), self.gather.groups, strict=True):
            terms = [self._variable(load) for load, _ in group.loads]
            ending = " + 0.0" if self.reverse.is_delivered(group.value) and sign == "=" else ""
            self.text.store(element, sign, f"{' + '.join(terms)}{ending}")
        self.text.depth -= 1
        if len(extents) > 1:
            text.depth -= 1
            text.put(f"count = {2 * last} if whole else {inner + last}")
            count = "count"
        if last or len(extents) > 1:
            text.loop(f"{place}e", count, most=at_most)
            text.put(f"{place} = {place}e if {place}e < {last}{ends} else {inner - last} + {place}e")
            text.bounded(place, (0, inner - last + at_most - 1))
            self._at_ends()
        text.depth = depth

    def _at_ends(self) -> None:
        """Print a step in which only some contribute."""
        elements = self._elements()
        for element, sign in elements:
            if sign == "=":
                self.text.store(element, "=", NOTHING)
        for shift in self.gather.shifts:
            bounds = zip(self.places, shift, self.gather.loops, strict=True)
            tests = [f"{name} >= {by} and {name} < {loop.extent + by}" for name, by, loop in bounds]
            self.text.opened(f"if {' and '.join(tests)}:")
            self._instance(shift)
            for (element, _), group in zip(elements, self.gather.groups, strict=True):
                for load, by in group.loads:
                    if by == shift:
                        self.text.store(element, "+=", self._variable(load))
            self.text.depth -= 1
        for (element, sign), group in zip(elements, self.gather.groups, strict=True):
            if self.reverse.is_delivered(group.value) and sign == "=":
                self.text.store(element, "+=", "0.0")

    @staticmethod
    def _variable(load: scalar.Load) -> str:
        return f"h_{load.name}"

    def _instance(self, shift: Shift) -> None:
        """Print what the step that is so far back contributes; one of them does all else that the nest does."""
        reverse, body = self.reverse, self.gather.body
        is_main = shift == self.gather.shifts[len(self.gather.shifts) // 2]
        for loop, name, by in zip(self.gather.loops, self.places, shift, strict=True):
            self.text.moved(loop.index, name, by)
        if self.joint:
            for item in body.items:
                if is_main or isinstance(item, scalar.Load | scalar.Compute):
                    reverse.forward.item(item)
        else:
            reverse.materialize_kept_values(body)
        loads = [pair for group in self.gather.groups for pair in group.loads]
        taken = {load.name: self._variable(load) for load, by in loads if by == shift}
        reverse.started -= self.names
        names = {*taken}
        for item in self.gather.body.items:
            if isinstance(item, scalar.Compute) and any(
                wanted and operand in names for operand, wanted in zip(item.operands, item.wanted, strict=True)
            ):
                names.add(item.name)
        reverse.only = None if is_main else names
        reverse.taken = {load.name: "_" for load, _ in loads} | taken if is_main else taken
        reverse.at.append(body)
        reverse.items(body)
        reverse.at.pop()
        reverse.only, reverse.taken = None, {}

    def _elements(self) -> list[tuple[Element, str]]:
        """Return the elements of gradients that a step is of, and whether they are stored or added to."""
        indices = {loop.index: name for loop, name in zip(self.gather.loops, self.places, strict=True)}
        elements = []
        for group in self.gather.groups:
            address = group.loads[0][0].address
            terms = tuple((indices.get(name, name), step) for name, step in address.terms)
            first = self.reverse.first.blocks.get(address.value) is self.gather.body
            moved = address._replace(constant=group.constant, terms=terms)
            elements.append((self.reverse.storage.gradient(moved), "=" if first else "+="))
        return elements
