"""Functions that loops call once they are vectorised: for few elements of vectors, or for whole ones.

LLVM takes the vector form of a function, of operands and maybe a mask, from an attribute of the scalar one (its vector
function ABI). A function for few elements is called where a condition holds: its form looks whether the mask has any
element at all, and calls the scalar function for those that it has. What it is called by takes it in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from llvmlite import ir

I1, I32, F8, F4 = ir.IntType(1), ir.IntType(32), ir.DoubleType(), ir.FloatType()
_WIDTHS = {F8: (2, 4, 8), F4: (2, 4, 8, 16)}
"""Elements of vectors, by their type."""
_PREFIX = "lanes_"
_COMPUTES = "noinline", "nounwind", "readnone", "willreturn"
"""What LLVM is told of a function that does nothing but compute, and is called."""
_USUALLY = 1_000_000
"""How much likelier it is that a mask has no element."""


def by_lanes(module: ir.Module, name: str, kind: ir.Type) -> ir.Function:
    """Return the function of a module that is one of libm's of a float of a type, and has forms for vectors."""
    name = name if kind == F8 else f"{name}f"
    full = f"{_PREFIX}{name}"
    known = module.globals.get(full)
    if known is not None:
        return known
    shape = ir.FunctionType(kind, [kind])
    called = module.globals.get(name) or ir.Function(module, shape, name)
    function = ir.Function(module, shape, full)
    function.linkage = "internal"
    forms = [_form(module, function, width) for width in _WIDTHS[kind]]
    _tell_forms(function, forms, "M")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(builder.call(called, function.args))
    return function


class CallingModule(ir.Module):
    """A module that calls vector functions, by vectors, too: their instructions are not copied to where they are used.

    Copies are faster in loops that many elements go through, since several run side by side. But they take long to
    make, and where there are very many, processors wait for instructions.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.forms: list[ir.Function] = []
        """Functions of vectors that LLVM calls instead of scalar ones."""

    def add_forms(self, function: ir.Function, form: Callable[[int, str], ir.Function]) -> None:
        """Give a function of floats, which does nothing but compute, forms that ``form`` makes, of width and name."""
        forms = [form(width, f"{function.name}.{width}") for width in _WIDTHS[function.return_value.type]]
        _tell_forms(function, forms, "N")
        for each in forms:
            _mark(each, *_COMPUTES)
        self.forms += forms


def keep_forms(module: ir.Module) -> bool:
    """Have the forms for vectors stay until loops are vectorised, though nothing calls them; whether there are any."""
    forms = [f for f in module.functions if f.name.startswith(_PREFIX) and "alwaysinline" in f.attributes]
    forms += module.forms if isinstance(module, CallingModule) else []
    if forms:
        pointer = ir.IntType(8).as_pointer()
        used = ir.GlobalVariable(module, ir.ArrayType(pointer, len(forms)), "llvm.compiler.used")
        used.linkage, used.section = "appending", "llvm.metadata"
        used.initializer = ir.Constant(used.value_type, [form.bitcast(pointer) for form in forms])
    return bool(forms)


def _tell_forms(function: ir.Function, forms: Iterable[ir.Function], mask: str) -> None:
    """Tell LLVM the forms of a function that computes, one a width: M if they have a mask besides, N if not."""
    widths = _WIDTHS[function.return_value.type]
    kinds = [f"{mask}{width}{'v' * len(function.args)}" for width in widths]
    names = [f"_ZGV_LLVM_{kind}_{function.name}({form.name})" for kind, form in zip(kinds, forms, strict=True)]
    _mark(function, *_COMPUTES, f'"vector-function-abi-variant"="{",".join(names)}"')


def _mark(function: ir.Function, *attributes: str) -> None:
    for attribute in attributes:
        set.add(function.attributes, attribute)  # llvmlite knows few


def _form(module: ir.Module, scalar: ir.Function, width: int) -> ir.Function:
    """Add the form for vectors of a width."""
    vector, mask = ir.VectorType(scalar.return_value.type, width), ir.VectorType(I1, width)
    shape = ir.FunctionType(vector, [vector, mask])
    some = _of_some(module, scalar, shape, width)
    function = ir.Function(module, shape, f"{scalar.name}_{width}")
    function.linkage = "internal"
    _mark(function, "alwaysinline", "nounwind")
    entry, some_lanes, done = (function.append_basic_block(name) for name in ("entry", "lanes", "done"))
    x, which = function.args
    builder = ir.IRBuilder(entry)
    word = ir.IntType(width)
    branch = builder.cbranch(builder.icmp_unsigned("!=", builder.bitcast(which, word), word(0)), some_lanes, done)
    branch.set_weights([1, _USUALLY])
    builder.position_at_end(some_lanes)
    changed = builder.call(some, [x, which])
    builder.branch(done)
    builder.position_at_end(done)
    result = builder.phi(vector)
    result.add_incoming(x, entry)
    result.add_incoming(changed, some_lanes)
    builder.ret(result)
    return function


def _of_some(module: ir.Module, scalar: ir.Function, shape: ir.FunctionType, width: int) -> ir.Function:
    """Add the function that computes those elements that a mask has."""
    function = ir.Function(module, shape, f"{scalar.name}_of_{width}")
    function.linkage = "internal"
    _mark(function, "noinline", "nounwind", "cold")
    entry, loop, lane, following, done = (
        function.append_basic_block(name) for name in ("entry", "loop", "lane", "following", "done")
    )
    x, which = function.args
    builder = ir.IRBuilder(entry)
    builder.branch(loop)
    builder.position_at_end(loop)
    at, vector = builder.phi(I32), builder.phi(x.type)
    builder.cbranch(builder.extract_element(which, at), lane, following)
    builder.position_at_end(lane)
    changed = builder.insert_element(vector, builder.call(scalar, [builder.extract_element(x, at)]), at)
    builder.branch(following)
    builder.position_at_end(following)
    after = builder.phi(x.type)
    after.add_incoming(vector, loop)
    after.add_incoming(changed, lane)
    up = builder.add(at, I32(1))
    builder.cbranch(builder.icmp_unsigned("<", up, I32(width)), loop, done)
    for phi, first, later in ((at, I32(0), up), (vector, x, after)):
        phi.add_incoming(first, entry)
        phi.add_incoming(later, following)
    builder.position_at_end(done)
    builder.ret(after)
    return function
