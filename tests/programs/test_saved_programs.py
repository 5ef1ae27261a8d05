"""Programs in files: what comes back, what is refused, that no damage goes unseen and nothing in a file runs."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import math
import pickle
import zipfile
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import njit

import tape
from kernels.kinds.routine import Custom
from kernels.operations import OPS
from kernels.rules.op import Op
from tape.errors import FileFormatError
from tape.programs import saving
from tape.programs.program import read_programs, write_programs
from tests.support.record_cases import bits, replayed_case, tensors


def again(program: Any, **kwargs: Any) -> Any:
    """Return a program that was saved and loaded."""
    return tape.load(io.BytesIO(written(program)), **kwargs)


def written(program: Any) -> bytes:
    file = io.BytesIO()
    program.save(file)
    return file.getvalue()


def small() -> Any:
    """Return a program with a constant."""
    return tape.record(lambda x: (x * np.array([1.0, 2.0])).sum(), np.ones(2))


@pytest.mark.parametrize("op", OPS.values(), ids=lambda op: op.name)
def test_every_record_is_saved(op: Op, tmp_path: Path) -> None:
    """Bit for bit, by value and gradient, from a file that is read and from one that is mapped."""
    case = replayed_case(op)
    if case is None:
        pytest.skip("not replayed")
    leaves, path = case.leaves(np.float64, seed=1), tmp_path / "program"
    program = tape.record(case.run, *case.leaves(np.float64))
    program.save(path)
    for mode in (None, "r"):
        assert bits(tape.load(path, mmap_mode=mode)(*leaves)) == bits(program(*leaves))
    if case.differentiable:
        program = tape.record(lambda *xs: (case.run(*xs) * 1.5).sum(), *case.leaves(np.float64))
        program.save(path)
        with tape.no_grad():
            value, gradients = program.value_and_grad(*tensors(leaves))
            for mode in (None, "r"):
                other, found = tape.load(path, mmap_mode=mode).value_and_grad(*tensors(leaves))
                assert bits(other) == bits(value)
                assert list(map(bits, found)) == list(map(bits, gradients))


@dataclass(frozen=True)
class Params:
    """A dataclass of the user's, with what is fixed."""

    mass: Any
    rates: dict[str, Any]
    name: str = "spring"
    steps: int = 2
    more: Any = field(default=None, compare=False)


class State(NamedTuple):
    """A named tuple of the user's."""

    x: Any
    v: Any


def simulation(params: Params, state: State, table: Any = None, *, mode: str = "sin", method: Any = None) -> Any:
    """Structures in and out, fixed arguments, keywords, constants, writes."""
    del method
    x = state.x * 1.0
    for _ in range(params.steps):
        x = x + params.rates["dt"] * getattr(tape, mode)(x) / params.mass
        x[1:] += state.v * np.arange(3.0)
    return OrderedDict(
        state=State(x, state.v), kept=("text", None, table is None), top=tape.max(x, 0), energy=(x * x).sum()
    )


def arguments(scale: float = 1.0) -> tuple[Any, ...]:
    return (
        Params(2.0 * scale, {"dt": 0.1 * scale}),
        State(np.linspace(0.0, scale, 4), np.ones(3) * scale),
    )


def same(a: Any, b: Any) -> None:
    """Check that two results are of the same structure, and the same in every bit."""
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        a, b = [*a.values()], [*b.values()]
    if isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, np.ndarray):
        np.testing.assert_array_equal(a, b)
    else:
        assert a == b


def test_structures_keywords_and_fixed_arguments_come_back() -> None:
    fixed = {"mode": "cos", "method": (1, 2.5, slice(None), frozenset({"a"}), {"k": [..., np.float32]})}
    program = tape.record(simulation, *arguments(), **fixed)
    other = again(again(program, types=[Params, State]), types=[State, Params])
    assert str(other) == str(program)
    same(other(*arguments(2.0), **fixed), program(*arguments(2.0), **fixed))
    assert type(other(*arguments(), **fixed)["top"]).__module__ == "tape.return_types"
    with pytest.raises(TypeError, match="argument mode: got 'sin', but the program was recorded with 'cos'"):
        other(*arguments(), **{**fixed, "mode": "sin"})
    with pytest.raises(TypeError, match=r"argument 0 is .*, where Params\(.*steps=2"):
        other(Params(2.0, {"dt": 0.1}, steps=3), arguments()[1], **fixed)


def test_a_file_has_all_that_a_pickle_has() -> None:
    """What is added to a program, or to a signature, is to be added to what is written."""
    program = tape.record(simulation, *arguments())
    other = again(program, types=[Params, State])
    assert other.__getstate__().keys() == program.__getstate__().keys()
    assert vars(other._signature).keys() == vars(program._signature).keys()
    for name in ("positional", "keywords", "static", "paths", "names", "simple"):
        assert getattr(other._signature, name) == getattr(program._signature, name), name
    assert [s.flat for s in other._signature.positional] == [s.flat for s in program._signature.positional]


def test_gradients_have_the_structure_of_arguments() -> None:
    program = tape.record(lambda p, s: (p.mass * s.x * s.x).sum() * p.rates["dt"], *arguments())
    (value, (by_p, by_s)), (other, (p, s)) = (
        x.value_and_grad(*arguments(2.0)) for x in (program, again(program, types=[Params, State]))
    )
    assert (other, p.mass, p.rates, p.name) == (value, by_p.mass, by_p.rates, by_p.name)
    same(s, by_s)


def test_types_must_be_given() -> None:
    data = written(tape.record(simulation, *arguments(), method=math.sin))
    with pytest.raises(TypeError, match=r"has .*\.Params, .*\.State, math\.sin, by name.*types=\[Params, State, sin\]"):
        tape.load(io.BytesIO(data))
    with pytest.raises(TypeError, match=r"has math\.sin, by name"):
        tape.load(io.BytesIO(data), types=[Params, State])
    with pytest.raises(TypeError, match="3 is no class or function"):
        tape.load(io.BytesIO(data), types=[3])
    assert tape.load(io.BytesIO(data), types=[Params, State, math.sin])._signature.static

    def moved(name: str, fields: tuple[str, ...]) -> Any:
        return type(name, (), {"__module__": "elsewhere", "_fields": fields})

    with pytest.raises(TypeError, match="Params has no fields"):
        tape.load(io.BytesIO(data), types=[moved("Params", ()), State, math.sin])


def test_a_type_may_have_moved_to_another_module(monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(tape.record(lambda s: s.x * s.v, State(np.ones(2), 2.0)))
    monkeypatch.setattr(State, "__module__", "elsewhere")
    assert tape.load(io.BytesIO(data), types=[State])(State(np.ones(2), 3.0)).tolist() == [3.0, 3.0]
    other = type("State", (), {"__module__": "third"})
    with pytest.raises(TypeError, match="by name alone"):
        tape.load(io.BytesIO(data), types=[State, other])  # which of them is not known


@njit
def cube(x: Any) -> Any:
    """Return the cube."""
    return x * x * x


@njit
def cube_vjp(g: Any, x: Any) -> Any:
    """Return the gradient of it."""
    return g * 3.0 * x * x


def test_jitted_functions_must_be_given() -> None:
    op = tape.custom(cube, cube_vjp)
    data = written(tape.record(lambda x: op(x).sum(), np.ones(2)))
    with pytest.raises(TypeError, match=r"cube, .*cube_vjp, by name"):
        tape.load(io.BytesIO(data))
    program = tape.load(io.BytesIO(data), types=[cube, cube_vjp])
    value, (gradient,) = program.value_and_grad(np.array([1.0, 2.0]))
    assert (value, gradient.tolist()) == (9.0, [3.0, 12.0])
    assert any(isinstance(step.op, Custom) for step in program._recipe.steps)
    with pytest.raises(FileFormatError, match="needs jitted functions"):
        tape.load(io.BytesIO(data), types=[cube.py_func, cube_vjp.py_func])


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (object(), "argument 1 is a object, which a file does not hold"),
        ([1.0, object()], r"argument 1\[1\] is a object"),
        (Params(1.0, {}, more=object()), r"argument 1.more is a object"),
        ({object(): 1.0}, "a key of argument 1 is a object"),
        (defaultdict(list, {"a": 1.0}), "argument 1 is a defaultdict, .* make it a dict"),
    ],
)
def test_what_a_file_does_not_hold(value: Any, match: str, tmp_path: Path) -> None:
    path = tmp_path / "program"
    program = tape.record(lambda x, _: x * 2, np.ones(2), value)
    small().save(path)
    before = path.read_bytes()
    with pytest.raises(TypeError, match=match):
        program.save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["program"]


def test_programs_that_cannot_be_called() -> None:
    with tape.record() as program:
        with pytest.raises(RuntimeError, match="still being recorded"):
            program.save(io.BytesIO())
        _ = tape.ones(2, requires_grad=True) * 2
    assert again(program)(np.ones(2)).tolist() == [2.0, 2.0]
    escaped = tape.record(lambda x: x * float(x.detach().sum()), np.ones(2))
    with pytest.raises(RuntimeError, match=r"left for Python at .*test_saved_programs"):
        again(escaped)(np.ones(2))


def test_constants_stay_in_a_mapped_file(tmp_path: Path) -> None:
    path, table = tmp_path / "program", np.random.default_rng(1).normal(size=(64, 128))
    program = tape.record(lambda x: (table @ x).sum() + (table[::3, ::2] * x[:64]).sum(), np.ones(128))
    program.save(path)
    mapped = tape.load(path, mmap_mode="r")
    constants = [node.constant for node in mapped._recipe.nodes if node.constant is not None]
    assert any(isinstance(array_root(x), np.memmap) for x in constants)
    x = np.linspace(0, 1, 128)
    value, (gradient,) = mapped.value_and_grad(x)
    expected, (by_x,) = program.value_and_grad(x)
    assert value == expected
    np.testing.assert_array_equal(gradient, by_x)
    program.save(path)  # which takes its place, and leaves what is mapped
    assert mapped(x) == expected
    assert all(not x.flags.writeable and x.ctypes.data % 8 == 0 for x in constants)


def array_root(x: Any) -> Any:
    while type(x) is np.ndarray and x.base is not None:
        x = x.base
    return x


def test_modes_of_reading(tmp_path: Path) -> None:
    path = tmp_path / "program"
    small().save(str(path))
    assert tape.load(str(path), "cpu", weights_only=False)(np.ones(2)) == 3.0
    with pytest.raises(ValueError, match="mmap_mode is 'r\\+'"):
        tape.load(path, mmap_mode="r+")
    with pytest.raises(ValueError, match="needs the path"):
        tape.load(io.BytesIO(path.read_bytes()), mmap_mode="r")
    with pytest.raises(FileNotFoundError):
        tape.load(tmp_path / "nothing")
    tape.save(tape.ones(2), path)
    with pytest.raises(FileFormatError, match="not written"):
        tape.load(path, mmap_mode="r")
    path.write_bytes(b"")
    for mode in (None, "r"):
        with pytest.raises(FileFormatError, match="not written"):
            tape.load(path, mmap_mode=mode)


SEVERAL = {"guards": [("a.py:3", True), (1.5, ...)], "limits": (2, None)}


def test_several_programs_with_more_that_is_said() -> None:
    table = np.arange(1000.0)
    programs = [tape.record(lambda x, k=k: (x * table).sum() * k, np.ones(1000)) for k in (1.0, 2.0)]
    file = io.BytesIO()
    write_programs(file, "several", programs, SEVERAL)
    content = saving.read_content(file.getvalue(), "it")
    found, said = read_programs(content, "it", ())
    assert (content.kind, content.version, said) == ("several", tape.__version__, SEVERAL)
    assert [p(np.ones(1000)) for p in found] == [p(np.ones(1000)) for p in programs]
    with pytest.raises(FileFormatError, match="holds a several, which this version of tape does not know"):
        tape.load(io.BytesIO(file.getvalue()))


def test_arrays_that_several_programs_have_are_written_once() -> None:
    program = tape.record(lambda x: (x * np.arange(1000.0)).sum(), np.ones(1000))
    one, two = io.BytesIO(), io.BytesIO()
    write_programs(one, "several", [program])
    write_programs(two, "several", [program, program])
    assert len(two.getvalue()) < len(one.getvalue()) + 4000


# Damage.


def refused(data: bytes) -> str:
    """Return why a file is refused."""
    with pytest.raises(FileFormatError) as caught:
        tape.load(io.BytesIO(data))
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


def test_a_file_that_is_cut_anywhere_is_refused() -> None:
    data = written(small())
    assert len(data) < 4000
    for end in range(len(data)):
        refused(data[:end])
    assert "was not written" in refused(data[:5])
    assert "cut off after 20 bytes" in refused(data[:20])
    assert f"has {len(data) - 1} bytes, and {len(data)} were written" in refused(data[:-1])
    refused(data + b"\0")
    refused(data * 2)


def test_a_file_with_any_byte_changed_is_refused() -> None:
    data = written(small())
    for at in range(len(data)):
        for flip in (0x01, 0x80, 0xFF):
            refused(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])


def test_a_damaged_file_is_refused_when_it_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "program"
    data = written(small())
    for at in (0, 9, 40, 100, len(data) - 70):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        with pytest.raises(FileFormatError):
            tape.load(path, mmap_mode="r")


def test_foreign_files_are_refused() -> None:
    archive, array = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("data.pkl", pickle.dumps([1]))
    np.save(array, np.ones(3))
    for data in (b"", b"text", b"\x93NUMPY", pickle.dumps(small()), archive.getvalue(), array.getvalue(), bytes(5000)):
        assert "was not written by tape" in refused(data)


def forged(
    data: bytes, text: bytes | None = None, *, number: int = saving.FORMAT, arrays: bytes | None = None
) -> bytes:
    """Return a file with another text, format or arrays, whose checksum is right."""
    head = saving._HEAD.unpack(data[:32])
    body = data[64 + head[3] :] if arrays is None else arrays
    text = data[64 : 64 + head[3]] if text is None else text
    if arrays is None:
        body = body.lstrip(b" ")
    rest = text + b" " * (-len(text) % 64) + body
    start = saving._HEAD.pack(saving.MAGIC, number, 0, len(text), 64 + len(rest))
    return start + saving._checksum(start, hashlib.blake2b(rest).digest()) + rest


def text_of(data: bytes) -> Any:
    return json.loads(data[64 : 64 + saving._HEAD.unpack(data[:32])[3]])


def test_files_of_other_versions() -> None:
    data = written(small())
    assert tape.load(io.BytesIO(forged(data)))(np.ones(2)) == 3.0
    newer = refused(forged(data, number=saving.FORMAT + 1))
    assert "is of format 3, and this version of tape, 0.1.0, reads format 2; a newer" in newer
    assert "is of format 1" in refused(forged(data, number=1))
    tree = text_of(data)
    tree["versions"]["tape"] = "9.9"
    tree["body"]["programs"][0]["recipe"]["kinds"][0][0] = "hypermultiply"
    message = refused(forged(data, json.dumps(tree).encode()))
    assert "written by tape 9.9" in message
    assert "operation 'hypermultiply', which this version" in message


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each container of a JSON tree with a key in it."""
    for key in tree if isinstance(tree, dict) else range(len(tree) if isinstance(tree, list) else 0):
        yield tree, key
        yield from places(tree[key])


STRANGE: tuple[Any, ...] = (
    None,
    -1,
    10**9,
    2**70,
    1.5,
    "x",
    [],
    {},
    [[]],
    {"import": "os"},
    {"named": "os.system"},
    True,
)


def test_texts_that_make_no_sense_are_refused_or_harmless() -> None:
    """Each part of the text is replaced by each of several values, or left out, under a right checksum."""
    data = written(
        tape.record(lambda d, x, _: {"y": (d["a"] * x[1:]).sum(), "n": None}, {"a": np.ones(2)}, np.ones(3), "s")
    )
    count = sum(1 for _ in places(text_of(data)))
    for i in range(count):
        for value in (*STRANGE, STRANGE):
            tree = text_of(data)
            container, key = list(places(tree))[i]
            if value is STRANGE:
                del container[key]
            else:
                container[key] = value
            assert outcome(forged(data, json.dumps(tree).encode())) in ("loaded", "refused", "asked for types")


def outcome(data: bytes) -> str:
    """Load a file; say what came of it."""
    try:
        loaded = tape.load(io.BytesIO(data))
    except FileFormatError:
        return "refused"
    except TypeError as error:
        return "asked for types" if "by name alone" in str(error) or "types: " in str(error) else str(error)
    return "loaded" if isinstance(loaded, tape.Program) else repr(loaded)


def test_texts_of_other_kinds() -> None:
    data = written(small())
    for text in (b"", b"[", b"[]", b"null", b"\xff\xfe", b"NaN", b"[" * 100_000, b'{"kind": 1}', b'{"a": Infinity}'):
        refused(forged(data, text))


def test_arrays_that_make_no_sense_are_refused() -> None:
    data = written(small())
    headers = (
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000000,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': __import__('os'), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (2**62, 2**62), }",
    )
    for header in headers:
        text = header.encode().ljust(117) + b"\n"
        refused(forged(data, arrays=(b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text + bytes(64))))
    refused(forged(data, arrays=b""))
    refused(forged(data, arrays=b"\x93NUMPY\x09\0" + bytes(200)))


PLANTED = """
import io, os, sys
import numpy as np
import tape

file = io.BytesIO()
tape.record(lambda x: x * 2.0, np.ones(2)).save(file)
tape.load(io.BytesIO(file.getvalue()))
watched = []
sys.addaudithook(lambda event, args: print("ran", event, args) if event in watched else None)
for path in {paths!r}:
    data = open(path, "rb").read()
    watched += ["os.system", "exec", "import", "pickle.find_class", "subprocess.Popen"]
    try:
        tape.load(io.BytesIO(data))
    except ValueError as error:
        print("refused", type(error).__name__)
    except TypeError as error:
        print("asked", "os.system" in str(error))
    watched.clear()
    print(os.path.exists("ran"))
"""


def test_a_planted_header_runs_nothing(fresh: Any, tmp_path: Path) -> None:
    """Names of functions, a pickle in place of an array, an expression in the header of an array."""
    data = written(small())
    named = text_of(data)
    named["body"]["names"].append("os.system")
    named["body"]["extra"] = {"named": "os.system"}
    called = text_of(data)
    called["body"]["extra"] = {"call": ["os.system", {"dict": [["command", "echo ran > ran"]]}, []]}
    header = (
        b"{'descr': '<f8', 'fortran_order': False, 'shape': __import__('os').system('echo ran > ran'), }".ljust(117)
        + b"\n"
    )
    array = b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header + bytes(64)
    evil = b"cos\nsystem\n(S'echo ran > ran'\ntR."
    files = {
        "named": (forged(data, json.dumps(named).encode()), "asked True"),
        "called": (forged(data, json.dumps(called).encode()), "refused FileFormatError"),
        "array": (forged(data, arrays=array), "refused FileFormatError"),
        "pickle": (forged(data, arrays=evil + bytes(64)), "refused FileFormatError"),
        "bare": (evil, "refused FileFormatError"),
    }
    for name, (content, _) in files.items():
        (tmp_path / name).write_bytes(content)
    out, error = fresh(PLANTED.format(paths=[str(tmp_path / name) for name in files])).communicate(timeout=120)
    assert out.splitlines() == [line for _, expected in files.values() for line in (expected, "False")], error


class Full(io.BytesIO):
    """A disk that is full after so many bytes."""

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > 1000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def test_an_error_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "program"
    small().save(path)
    before = path.read_bytes()
    calls: list[int] = []

    def fail(file: Any, *_: Any, **__: Any) -> None:
        calls.append(file.write(b"half"))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", fail)
    for target in (path, tmp_path / "new"):
        with pytest.raises(OSError, match="No space"):
            small().save(target)
    assert len(calls) == 2
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["program"]
    monkeypatch.undo()
    with pytest.raises(OSError, match="No space"):
        small().save(Full())
    with pytest.raises(FileNotFoundError):
        small().save(tmp_path / "no_folder" / "program")


def test_a_fresh_process_loads_it(fresh: Any, tmp_path: Path) -> None:
    """Where the function, its module and its types are not known."""
    program = tape.record(simulation, *arguments())
    program.save(tmp_path / "program")
    code = """
from dataclasses import dataclass
from typing import Any, NamedTuple
import numpy as np
import tape

@dataclass(frozen=True)
class Params:
    mass: Any
    rates: Any
    name: str = "spring"
    steps: int = 2
    more: Any = None

class State(NamedTuple):
    x: Any
    v: Any

program = tape.load("program", types=[Params, State])
result = program(Params(4.0, {"dt": 0.2}), State(np.linspace(0.0, 2.0, 4), np.ones(3) * 2.0))
print(type(result["state"]).__name__, result["energy"].hex(), result["kept"])
"""
    out, error = fresh(code).communicate(timeout=120)
    expected = program(*arguments(2.0))
    assert out.strip() == f"State {expected['energy'].hex()} {expected['kept']}", error


WINDOWS = """
import numpy as np
import tape
print(tape.load("windows").value_and_grad(np.arange(4.0))[1][0].tolist())
"""


def test_windows_overlap_in_a_fresh_process(fresh: Any, tmp_path: Path) -> None:
    weights = np.array([[1.0, 2.0], [3.0, 4.0]])
    program = tape.record(lambda x: ((x * 1.0).as_strided((2, 2), (1, 1), 0) * weights).sum(), np.arange(4.0))
    program.save(tmp_path / "windows")
    out, error = fresh(WINDOWS).communicate(timeout=120)
    assert out.strip() == "[1.0, 5.0, 4.0, 0.0]", error


def test_a_million_steps() -> None:
    def loop(x: Any) -> Any:
        for _ in range(30_000):
            x = x * 1.0001 + 0.5
        return x

    program = tape.record(loop, 1.0)
    data = written(program)
    assert len(data) < 4_000_000
    assert tape.load(io.BytesIO(data)).value_and_grad(2.0) == program.value_and_grad(2.0)
