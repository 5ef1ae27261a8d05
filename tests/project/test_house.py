"""The house: rooms in one order, each importing only what stands below it, all of them small."""

import ast
import functools
import importlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels.operations import OPS
from kernels.rules.op import Op

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("kernels", "tape")

# Rooms, bottom to top: a file imports from rooms that stand earlier and, without a circle, from its own.
# fmt: off
HOUSE = [
    "kernels",
    "kernels.foundation",
    "kernels.language",
    "kernels.native",
    "kernels.calls",
    "kernels.rules",
    "kernels.kinds",
    "kernels.operations",
    "kernels.programs",
    "kernels.compiler",
    "kernels.machine_code",
    "kernels.sweeps",
    "tape.errors",
    "tape.tensors",
    "tape.return_types",
    "tape.recording",
    "tape.operations",
    "tape.engine",
    "tape.random",
    "tape.transforms",
    "tape.linalg",
    "tape.special",
    "tape.numpy_interface",
    "tape.numpy",
    "tape.func",
    "tape.pickled_programs",
    "tape.programs",
    "tape.watching",
    "tape.compiled",
    "tape.ensembles",
    "tape.checkpoints",
    "tape.module_parameters",
    "tape.checks",
    "tape.autograd.function",
    "tape.sparse",
    "tape.quadrature",
    "tape.interpolate",
    "tape.signal",
    "tape.ndimage",
    "tape.implicit",
    "tape.continuous",
    "tape.stats",
    "tape.optimize",
    "tape.ode",
    "tape.uncertainty",
    "tape.testing",
    "tape.array_api",
    "tape.autograd.functional",
    "tape.autograd.forward_ad",
    "tape.autograd.gradcheck",
    "tape.autograd.graph",
    "tape.autograd.profiler",
    "tape.autograd",
    "tape.utils.checkpoint",
    "tape.utils.data",
    "tape.utils",
    "tape.functions",
    "tape.distributions",
    "tape.optim",
    "tape.mpi",
    "tape.interop",
    "tape.nn",
    "tape",
    "tape.examples",
    "tape.examples.heat",
    "tape.examples.heat_inverse",
    "tape.examples.kinetics",
    "tape.examples.lynx_hare",
    "tape.examples.rosenbrock",
    "tape.examples.truss",
    "tape.examples.waveform",
    "tape.__main__",
]
# fmt: on

MOST_LINES = 700
"""A file is one topic; 600 is the aim."""
MOST_ENTRIES = 16
MOST_ROOMS = 30
MOST_IN_ALL = {"kernels": (41_630, 110), "tape": (53_386, 179)}
"""Lines and files of a package, stubs too. A ceiling falls, or rises in a commit that says what was bought with it."""
WRITTEN = {"tape/functions.pyi", "tape/tensors/tensor.pyi", "tape/nn/made_functions.pyi", "tape/nn/made_modules.pyi"}
"""What an installation writes; none of it is committed."""
MOST_LINES_OF_A_FUNCTION = 40
LARGER: dict[str, str] = {  # "room" or "room:function" -> why it may pass its ceiling
}

VAGUE_NAMES = {"core", "base", "common", "helper", "helpers", "misc", "shared", "util", "utils"}
NAMES_KEPT = {"tape.utils": "PyTorch's name for the module of checkpoint and data", "tape.nn.utils": "PyTorch's name"}

# Files that may name records of some kinds, since what they do for them is written by hand.
MAY_NAME = {
    "kernels.language.expressions": (
        "Elementwise",
        "Select",
        "Reduction",
    ),  # what native source, LLVM and libm call functions
    "kernels.rules.op": ("Elementwise",),  # how each ufunc that a rule may use is printed
    "kernels.kinds.elementwise": ("Elementwise",),  # np.where within an expression
    "kernels.compiler.statements": ("Elementwise",),  # what each ufunc that a rule may use costs
    "kernels.programs.several_ways": ("Elementwise",),  # where, which ways of an iteration are selected by
    "kernels.machine_code.c_source": (
        "Elementwise",
        "Select",
        "Reduction",
    ),  # what C calls functions
    "tape.recording.foreign_calls": ("Elementwise", "Reduction"),  # functions of numbers that have no gradient
    "tape.recording.equivalents": ("Elementwise", "Routine", "Reduction"),  # which functions errors say to write
    "tape.nn.functional": ("Elementwise", "Reduction", "Routine", "Select"),  # PyTorch's names of activations
    "tape.nn.init": ("Elementwise",),  # likewise
    "tape.nn.layers": ("Elementwise", "Reduction", "Routine", "Select"),  # likewise
    "tape.nn.sequences": ("Elementwise",),  # likewise
    "tape.nn.windows": ("Routine",),  # convolution, as np.convolve is called elsewhere
    "tape.recording.attributes": ("View",),  # detach is a view with another history
    "tape.engine.saved_tensors": (
        "View",
        "Copy",
    ),  # a saved value as a tensor of its slot, or of a copy
    "tape.engine.kind_rules": ("Elementwise", "View"),  # where, which leaves elements without a contribution; squares
    "tape.engine.accumulate_grad": ("Write", "Copy"),  # parts that are added to where they stand
    "tape.tensors.recorder": ("Copy",),  # the copy that begins memory which a program writes
    "tape.numpy_interface.protocols": (
        "Elementwise",
        "Join",
        "View",
        "Routine",
        "Contraction",
    ),  # the records that NumPy's functions run
    "tape.operations.matmul": ("Elementwise", "Routine", "Reduction", "Contraction"),  # likewise, for where=
    "tape.recording.record": ("Copy",),  # the casts of mixed dtypes
    "tape.transforms.batched_run": ("View",),  # parts of which no step tells
    "tape.tensors.view_families": ("View",),  # a view of its base's version now
    "tape.operations.writes": ("Write", "Copy"),  # every operation in place ends in one of these
    "tape.operations.copied_views": (
        "Elementwise",
        "Write",
    ),  # methods that are no variant of a record
    "tape.operations.reductions": ("Reduction", "Select", "Elementwise", "Routine"),  # dim, keepdim and the named pair
    "tape.operations.indexing": (
        "View",
        "Gather",
        "Write",
    ),  # arrays pick elements; ints, slices and None are views of these names
    "tape.operations.elementwise": ("Elementwise", "Reduction"),  # keywords, and what is made of several records
    "tape.numpy_interface.functions": (
        "Elementwise",
        "Reduction",
        "Select",
        "Contraction",
        "Routine",
        "View",
    ),  # NumPy's functions that are no ufunc
    "tape.special": (
        "Elementwise",
        "Routine",
        "Reduction",
    ),  # SciPy's and PyTorch's names
    **dict.fromkeys(
        (
            "tape.stats",
            "tape.continuous",
        ),
        ("Elementwise", "Routine", "Reduction", "View", "Contraction", "Select"),  # SciPy's names
    ),
    "tape.operations.sorting": (
        "Routine",
        "Reduction",
    ),  # PyTorch's names and arguments
    "tape.return_types": (
        "Select",
        "Routine",
    ),  # the names that the tuples print
    "tape.numpy_interface.variance": ("Elementwise", "Routine", "Reduction", "Select"),  # NumPy's names
    "tape.numpy_interface.statistics": ("Elementwise", "Routine", "Write"),  # likewise; np.where; sums at places
    "tape.operations.rearranging": ("Copy", "View"),  # likewise
    "tape.operations.diagonals": (
        "View",
        "Elementwise",
    ),  # likewise; np.where cuts what is outside of a triangle
    "tape.operations.gather": ("Elementwise",),  # np.where, which chooses
    "tape.ode.control": ("Elementwise",),  # likewise; square roots and limits of steps
    "tape.numpy_interface.predicates": ("Elementwise",),  # likewise; what it composes
    "tape.operations.scatter": (
        "Reduction",
        "Routine",
        "Elementwise",
    ),  # what values for one place are reduced by
    "tape.operations.joining": (
        "Reduction",
        "Routine",
        "Elementwise",
    ),  # what np.pad calls its statistics
    "tape.recording.views": (
        "View",
        "Join",
        "Copy",
    ),  # sizes with -1, dims, joins
    "tape.operations.decompositions": (
        "Elementwise",
        "Routine",
    ),  # PyTorch's names and arguments
    "tape.operations.solves": (
        "Elementwise",
        "Routine",
    ),  # likewise
    "tape.operations.contractions": ("Routine",),  # likewise
    "tape.linalg": ("Routine",),  # likewise
    "tape.sparse.matrices": ("Routine",),  # likewise
    "tape.numpy_interface.op_table": (
        "Elementwise",
        "Routine",
    ),  # NumPy's and SciPy's names and arguments
}
NOT_THE_OP = {  # (module, string): what else it means there
    ("kernels.native.memory", "i1"): "a type of one byte",
    ("kernels.compiler.compiled_code", "t"): "memory for what operations keep, by its first letter",
    ("kernels.compiler.storage", "t"): "likewise",
    ("kernels.machine_code.tiers", "max"): "a mode: compiled at once",
    ("tape.programs.program", "max"): "likewise",
    ("tape.compiled.compiled_gradient", "max"): "likewise",
    ("tape.compiled.compiled_function", "mode"): "the argument that says when programs are compiled",
    ("kernels.programs.recipe_encoding", "slice"): "the kind of values of an index",
    ("tape.examples.waveform", "max"): "likewise",
    ("tape.examples.lynx_hare", "gamma"): "a rate of the model",
    ("tape.examples.lynx_hare", "beta"): "likewise",
    ("tape.recording.equivalents", "dot"): "a method of SciPy's matrices",
    ("tape.recording.equivalents", "t"): "a distribution",
    ("tape.optim.lbfgs", "t"): "the length of a step, as PyTorch's state has it",
    ("tape.optim.lr_scheduler", "cos"): "PyTorch's name of a way to anneal",
    ("tape.optim.lr_scheduler", "min"): "PyTorch's mode of a schedule",
    ("tape.optim.optimizers", "sum"): "PyTorch's name in the state",
    ("tape.programs.drawing", "dot"): "Graphviz's program",
    ("tape.numpy_interface.op_table", "index"): "what the table calls the place that a Select keeps",
    ("tape.numpy_interface.op_table", "all"): "of dtypes: all of them",
    ("tape.engine.sweep_run", "all"): "when a hook of several gradients runs",
    ("tape.engine.sweep_run", "any"): "likewise",
    ("kernels.native.threads", "add"): "LLVM's operation on a word",
    ("kernels.compiler.forward_text", "greater"): "a step of a reduction",
    ("kernels.compiler.parallel_loops", "greater"): "likewise",
    **{
        ("tape.numpy_interface.op_table", name): "the name of NumPy's function, for which Python has a word"
        for name in ("bitwise_and", "bitwise_or", "logical_and", "logical_not", "logical_or")
    },
    **{
        ("tape.operations.elementwise", name): "the name of Python's operator: __add__"
        for name in ("abs", "add", "eq", "ge", "gt", "le", "lt", "mul", "ne", "pow", "sub")
    },
}


def module_files() -> dict[str, Path]:
    """Every source file by its dotted name; a package's __init__ by the package's name."""
    files = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def imported_names(tree: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    """Yield (module, name or "") for each import anywhere in a file, however it is written."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((alias.name, "") for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                parents = package.split(".")
                above = parents[: len(parents) - level + 1] if level else []
                source = ".".join([*above, *([module] if module else [])])
                yield from ((source, alias.name) for alias in names)
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(module)), *_],
            ):
                yield module, ""
            case ast.Call(
                func=ast.Name(id="load_module") | ast.Attribute(attr="load_module"),
                args=[ast.Constant(value=str(module))],
            ):
                yield f"kernels.{module}", ""  # kernels.language.jit's door to a native module


def imports(source: str, module: str, modules: set[str], *, is_package: bool = False) -> set[str]:
    """Return the modules of ours that a file imports; ``from package import room`` is its room."""
    package = module if is_package else module.rpartition(".")[0]
    found = set()
    for origin, name in imported_names(ast.parse(source), package):
        deepest = f"{origin}.{name}" if f"{origin}.{name}" in modules else origin
        if deepest.split(".")[0] in PACKAGES:
            found.add(deepest)
    return found - {module}


def room_of(module: str, order: list[str]) -> str:
    """Return the room that a file stands in, the innermost; "" if it stands in none."""
    return max((room for room in order if f"{module}.".startswith(f"{room}.")), key=len, default="")


def upward(graph: dict[str, set[str]], order: list[str]) -> list[str]:
    """Each import of something that stands neither below the importing file nor in its room."""
    height = {room: index for index, room in enumerate(order)} | {"": len(order)}
    return [
        f"{module} imports {target}, which does not stand below it"
        for module, targets in graph.items()
        for target in sorted(targets)
        if (room := room_of(target, order)) != room_of(module, order) or not room
        if height[room] >= height[room_of(module, order)]
    ]


def cycles(graph: dict[str, set[str]]) -> list[str]:
    """Place every file that imports nothing unplaced, again and again; return what is left."""
    left = dict(graph)
    while free := [module for module, targets in left.items() if not targets & left.keys()]:
        for module in free:
            del left[module]
    return sorted(left)


def function_lengths(source: str) -> dict[str, int]:
    """Lines of each function without its docstring; one inside another counts for both."""
    lengths = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            documentation = node.body[0] if ast.get_docstring(node) else None
            if documentation:
                lines -= (documentation.end_lineno or 0) - documentation.lineno + 1
            lengths[f"{node.name} (line {node.lineno})"] = lines
    return lengths


@functools.cache
def strings(source: str) -> frozenset[str]:
    """Return the string constants of a file; ``__all__`` holds names, not strings."""
    return frozenset(
        node.value
        for statement in ast.parse(source).body
        if "__all__" not in [getattr(target, "id", "") for target in getattr(statement, "targets", [])]
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def constants_bound_twice(source: str) -> set[str]:
    """Return the names in capitals that a file binds more than once at its top level."""
    names = [
        node.id
        for statement in ast.parse(source).body
        if isinstance(statement, ast.Assign)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id.isupper()
    ]
    return {name for name in names if names.count(name) > 1}


def record_types(kind: type = Op) -> set[str]:
    """Return the names of the classes that records are made of."""
    return {kind.__name__}.union(*map(record_types, kind.__subclasses__()))


@functools.cache
def called(source: str) -> frozenset[str]:
    """Return the names that a file calls."""
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return frozenset(function.id for function in calls if isinstance(function, ast.Name))


def declares_records(source: str) -> bool:
    """Whether a file calls a record type."""
    return not called(source).isdisjoint(record_types())


def names_outside_tables(
    names: dict[str, set[str]], texts: dict[str, str], may_name: dict[str, tuple[str, ...]]
) -> set[tuple[str, str]]:
    """Return (module, name) for each string that names an operation in a file without leave.

    `names` holds the kinds of the records that have a name.
    """
    return {
        (module, name)
        for module, text in texts.items()
        if not declares_records(text)
        for name in strings(text) & names.keys()
        if not names[name] & set(may_name.get(module, ()))
    }


FILES = module_files()
TEXTS = {module: path.read_text(encoding="utf-8") for module, path in FILES.items()}
GRAPH = {
    module: imports(text, module, set(FILES), is_package=FILES[module].stem == "__init__")
    for module, text in TEXTS.items()
}


def test_every_file_has_its_place() -> None:
    assert len(set(HOUSE)) == len(HOUSE), "a file is listed twice"
    homes = {module: room_of(module, HOUSE) for module in FILES}
    strangers = [
        module
        for module, room in homes.items()
        if room != module and (room in PACKAGES or room != module.rpartition(".")[0])
    ]
    assert not strangers, f"HOUSE lists no room for {strangers}"
    assert not set(HOUSE) - FILES.keys(), f"HOUSE lists {set(HOUSE) - FILES.keys()}, and there is no such room"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_keeps_to_its_size(package: str, figures: list[str]) -> None:
    paths = [path for suffix in ("*.py", "*.pyi") for path in (ROOT / package).rglob(suffix)]
    paths = [path for path in paths if path.relative_to(ROOT).as_posix() not in WRITTEN]
    lines, most = sum(path.read_bytes().count(b"\n") for path in paths), MOST_IN_ALL[package]
    figures.append(f"{package}: {lines} lines in {len(paths)} files, at most {most}")
    assert lines <= most[0]
    assert len(paths) <= most[1]


def test_rooms_are_few(figures: list[str]) -> None:
    rooms = sorted(module for module, path in FILES.items() if path.name == "__init__.py" and module not in PACKAGES)
    figures.append(f"{len(rooms)} rooms, at most {MOST_ROOMS}: {', '.join(rooms)}")
    assert len(rooms) <= MOST_ROOMS


def test_names_mean_one_thing(figures: list[str]) -> None:
    """A class has a name of its own; functions, methods aside, share one only where files do the same thing."""
    twice, often = names_of_several(TEXTS)
    figures.append(
        f"class names defined more than once: {len(twice)}; function names more than ten times: {len(often)}"
    )
    assert twice == []
    assert len(often) <= 4


def names_of_several(texts: dict[str, str]) -> tuple[list[str], list[str]]:
    """Return the names of classes defined more than once, and of functions of modules defined more than ten times."""
    classes, functions = Counter[str](), Counter[str]()
    for text in texts.values():
        tree = ast.parse(text)
        classes.update(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
        functions.update(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    return [name for name, times in classes.items() if times > 1], [n for n, times in functions.items() if times > 10]


def test_planted_second_names_are_found() -> None:
    texts = {f"kernels.m{k}": "def run(): ..." for k in range(11)}
    texts |= {"tape.a": "class Run: ...", "tape.b": "def f():\n    class Run: ...", "tape.c": "class Once: ..."}
    assert names_of_several(texts) == (["Run"], ["run"])


def test_a_room_has_a_dozen_entries() -> None:
    for folder in {path.parent for path in FILES.values()} - {ROOT / "tape"}:  # where public modules stand too
        entries = [e.name for e in folder.iterdir() if e.suffix == ".py" or (e.is_dir() and e.name != "__pycache__")]
        assert len(entries) - 1 <= MOST_ENTRIES, f"{folder.name} has {len(entries) - 1} entries"


def test_a_room_says_what_it_is_for() -> None:
    assert [module for module, text in TEXTS.items() if not ast.get_docstring(ast.parse(text))] == []


ROOMS_OF_TESTS_ALONE = {"support", "conventions", "project", "robustness", "public_modules", "foundation", "tools"}


def test_tests_stand_in_rooms_of_the_same_names() -> None:
    """What PyTorch gave is stored under the name of a file, so that no two have one."""
    files = sorted(path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py"))
    rooms = {room.rpartition(".")[2] for room in HOUSE} | ROOMS_OF_TESTS_ALONE
    assert [path for path in files if len(path.parts) != 2 or path.parts[0] not in rooms] == []
    assert len({path.name for path in files}) == len(files)


def test_imports_go_down() -> None:
    knot, wrong = cycles(GRAPH), upward(GRAPH, HOUSE)
    assert not knot, f"these import each other, or what does: {knot}"
    assert not wrong, "\n".join(wrong)


def test_kernels_do_not_know_the_front_end() -> None:
    knowing = {
        module: sorted(targets)
        for module, targets in GRAPH.items()
        if module.split(".")[0] == "kernels" and any(t.split(".")[0] == "tape" for t in targets)
    }
    assert knowing == {}


def test_rooms_are_small(figures: list[str]) -> None:
    lines = {module: len(text.splitlines()) for module, text in TEXTS.items()}
    functions = {
        f"{module}:{function}": length
        for module, text in TEXTS.items()
        for function, length in function_lengths(text).items()
    }
    middle = sorted(functions.values())[len(functions) // 2]
    figures.append(f"{len(lines)} files, {sum(lines.values())} lines, median function {middle}")
    for title, sizes in (("longest files", lines), ("longest functions", functions)):
        largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:5]
        figures.append(f"{title}: " + ", ".join(f"{name} {sizes[name]}" for name in largest))
    ceilings = ((lines, MOST_LINES), (functions, MOST_LINES_OF_A_FUNCTION))
    over = {
        name.split(" ")[0]: length for sizes, ceiling in ceilings for name, length in sizes.items() if length > ceiling
    }
    excess = {name: over[name] for name in sorted(over.keys() - LARGER.keys())}
    assert not excess, f"lines over the ceilings: {excess}"
    assert LARGER.keys() <= over.keys(), f"not larger any more: {LARGER.keys() - over.keys()}"


def test_names_say_what_is_inside() -> None:
    vague = {m for m in FILES if m.split(".")[-1] in VAGUE_NAMES}
    assert vague == set(NAMES_KEPT) & set(FILES)


@pytest.mark.parametrize("module", FILES)
def test_no_constant_is_bound_twice(module: str) -> None:
    assert constants_bound_twice(TEXTS[module]) == set()


def test_a_planted_second_constant_is_found() -> None:
    assert constants_bound_twice("ONE, TWO = 1, 2\nTHREE = ONE\nTWO = 3") == {"TWO"}


def test_an_operation_is_named_in_its_record_alone() -> None:
    for module, text in TEXTS.items():
        if declares_records(text):
            importlib.import_module(module)
    names: dict[str, set[str]] = {}
    for record in OPS.values():
        for name in {record.name, *record.torch, record.grad_fn} - {""}:
            names.setdefault(name, set()).add(type(record).__name__)
    assert len(names) > len(OPS) > 0
    found = names_outside_tables(names, TEXTS, MAY_NAME) - NOT_THE_OP.keys()
    assert not found, f"operations named in files that read records: {sorted(found)}"
    needed = names_outside_tables(names, TEXTS, {})
    assert NOT_THE_OP.keys() <= needed, f"not said any more: {NOT_THE_OP.keys() - needed}"
    assert MAY_NAME.keys() <= {module for module, _ in needed}, "a file that names no operation"


@pytest.mark.parametrize(
    "source",
    [
        "import tape.high",
        "import tape.high as h",
        "from tape.high import thing",
        "from tape import high",
        "from . import high",
        "from .high import thing",
        "import numpy, tape.high",
        "def f():\n    from tape import high\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tape.high import Thing\n",
        "import importlib\nimportlib.import_module('tape.high')\n",
        "__import__('tape.high')",
        "from kernels.language import jit\nNATIVE = jit.load_module('high')",
        "try:\n    import tape.high\nexcept ImportError:\n    pass\n",
    ],
)
def test_a_planted_upward_import_is_found(source: str) -> None:
    found = imports(source, "tape.low", {"tape.low", "tape.high", "kernels.language.jit", "kernels.high"})
    (high,) = found - {"kernels.language.jit"}
    assert high.endswith(".high")
    assert upward({"tape.low": found}, ["kernels.language.jit", "tape.low", high]) == [
        f"tape.low imports {high}, which does not stand below it"
    ]
    assert not upward({"tape.low": found}, ["kernels.language.jit", high, "tape.low"])


def test_a_planted_unlisted_import_is_found() -> None:
    graph = {"kernels.rules.op": imports("from tape import tensor", "kernels.rules.op", {"kernels.rules.op"})}
    assert upward(graph, ["kernels.rules.op"]) == ["kernels.rules.op imports tape, which does not stand below it"]


def test_relative_imports_are_resolved() -> None:
    modules = {"tape", "tape.modes", "tape.autograd", "tape.autograd.engine"}
    text = "from ..modes import no_grad\nfrom . import engine\nfrom .. import modes"
    assert imports(text, "tape.autograd", modules, is_package=True) == {
        "tape.modes",
        "tape.autograd.engine",
    }
    assert imports("from .. import modes", "tape.autograd.engine", modules) == {"tape.modes"}
    assert imports("from .engine import run", "tape.autograd.engine", modules) == set()


def test_a_planted_cycle_is_found() -> None:
    graph = {"tape.a": {"tape.b"}, "tape.b": {"tape.c"}, "tape.c": {"tape.a"}, "tape.d": set[str]()}
    assert cycles(graph) == ["tape.a", "tape.b", "tape.c"]
    assert cycles({**graph, "tape.c": {"tape.d"}}) == []
    assert upward(graph, ["tape.d", "tape.c", "tape.b", "tape.a"])


def test_a_planted_long_function_is_found() -> None:
    body = "    x = 1\n" * MOST_LINES_OF_A_FUNCTION
    text = f'    """One.\n\n    Two.\n    """\n{body}'
    lengths = function_lengths(f"def short(): ...\nclass C:\n  async def long(self):\n{text}")
    assert lengths == {"short (line 1)": 1, "long (line 3)": MOST_LINES_OF_A_FUNCTION + 1}


def test_a_planted_op_name_is_found() -> None:
    texts = {
        "kernels.table": "Elementwise(name='add', grad_fn='AddBackward0')",
        "kernels.second": "Reduction(name='sum')",
        "tape.ops": "__all__ = ['sum']\nif name == 'add': ...",
        "tape.tensor": "'the word add in a text'\nadd = 'sum up'",
    }
    tables = {module for module, text in texts.items() if declares_records(text)}
    assert tables == {"kernels.table", "kernels.second"}
    names = {"add": {"Elementwise"}, "sum": {"Reduction"}, "AddBackward0": {"Elementwise"}}
    assert names_outside_tables(names, texts, {}) == {("tape.ops", "add")}
    assert names_outside_tables(names, texts, {"tape.ops": ("Elementwise",)}) == set()
    assert names_outside_tables(names, texts, {"tape.ops": ("Copy",)}) == {("tape.ops", "add")}
