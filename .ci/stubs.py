"""Stubs of what is installed at run time: ``python .ci/stubs.py`` writes tensor.pyi, functions.pyi and those of nn.

Editors and type checkers read them. Every installation writes them (.ci/wheel.py); none is committed. The methods of
Tensor are those of the class after ``import tape``, the rest of tensor.py is read from its source.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import sys
from pathlib import Path
from types import WrapperDescriptorType
from typing import TYPE_CHECKING, Any

ROOT = str(Path(__file__).resolve().parents[1])
if ROOT not in sys.path:  # a build beside an earlier installation has it taken out
    sys.path.insert(0, ROOT)

import tape  # noqa: E402
from tape import functions  # noqa: E402
from tape.nn import functional, layers  # noqa: E402
from tape.operations.elementwise import FUNCTIONS  # noqa: E402
from tape.tensors import hooks  # noqa: E402
from tape.tensors.tensor import Tensor  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterable

FOLDER = Path(tape.__file__).parent
HEAD = "# Written by `python .ci/stubs.py`; change the records or the methods, not this file.\n"
_IMPORTS = """\
import builtins
from collections.abc import Iterator
from tape.tensors import dtypes
from tape.tensors.hooks import Hook, RemovableHandle
from tape.random import Generator
from tape.numpy_interface.protocols import Count, Flat
from tape.recording.parameters import Dims
from tape.tensors.dtypes import Size
from tape.tensors.operands import ArrayLike
"""
_IGNORED = {"__eq__": "override", "__ne__": "override"}  # a tensor of bools, where object says bool
_PYTHONS_OWN = {"__firstlineno__"}  # since 3.13


class _Bare(str):
    """An annotation that a signature prints without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def stubs() -> dict[Path, str]:
    """Return the text of each stub by its path."""
    texts = {"tensors/tensor.pyi": tensor_stub(), "functions.pyi": functions_stub()}
    texts |= {"nn/made_functions.pyi": nn_functions_stub(), "nn/made_modules.pyi": nn_modules_stub()}
    return {FOLDER / name: text for name, text in texts.items()}


def tensor_stub() -> str:
    """Return the stub of tensor.py: its statements without bodies, and Tensor with all that is installed."""
    body = ast.parse((FOLDER / "tensors" / "tensor.py").read_text(encoding="utf-8")).body
    texts = [ast.unparse(_bodiless(node)) for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
    texts[0] = _IMPORTS.rstrip()  # where `from __future__` stood
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == Tensor.__name__:
            texts.append(_tensor_class(node))
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.Assign | ast.AnnAssign):
            texts.append(ast.unparse(_bodiless(node)))
    return HEAD + "\n".join(texts) + "\n"


def functions_stub() -> str:
    """Return the stub of tape/functions.py: each function under all of its names."""
    lines = [
        "from math import nan",
        "from typing import Any",
        "from tape.random import Generator",
        "from tape.recording.parameters import Dims",
        "from tape.tensors.operands import ArrayLike",
        "from tape.tensors.tensor import Tensor",
        f"__all__ = {functions.__all__}",
    ]
    for name, function in {**FUNCTIONS, **hooks.FUNCTIONS}.items():
        lines.append(_definition(name, str(_typed(inspect.signature(function))), function.__doc__))
    in_place = [name for name in functions.__all__ if name not in {**FUNCTIONS, **hooks.FUNCTIONS}]  # tape.sin_(x)
    lines += [_definition(n, str(_typed(inspect.signature(getattr(Tensor, n)))), None) for n in in_place]
    return HEAD + "\n".join(lines) + "\n"


_NN = "from typing import Any\nfrom tape.nn.modules import Module\nfrom tape.tensors.tensor import Tensor\n"


def nn_functions_stub() -> str:
    """Return the stub of what tape/nn/functional.py enters by name, and does not define."""
    tree = ast.parse((FOLDER / "nn" / "functional.py").read_text(encoding="utf-8"))
    given = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    stored = [node for statement in tree.body if isinstance(statement, ast.Assign) for node in statement.targets]
    given |= {name.id for target in stored for name in ast.walk(target) if isinstance(name, ast.Name)}
    made = {name: getattr(functional, name) for name in functional.NAMES if name not in given}
    texts = [_definition(name, _nn_signature(function), function.__doc__) for name, function in made.items()]
    return HEAD + _NN + "\n".join(texts) + "\n"


def nn_modules_stub() -> str:
    """Return the stub of the modules of one function each; some functions give two results where they are asked."""
    texts = []
    for name, kind in ((name, getattr(layers, name)) for name in functional.MODULES | dict.fromkeys(_WITHOUT_NAME)):
        taken = kind.taken.replace(parameters=[_SELF, *kind.taken.parameters.values()], return_annotation="None")
        result = "Any" if "return_indices" in kind.taken.parameters else "Tensor"
        body = [f'"""{kind.__doc__.splitlines()[0]}"""', _definition("__init__", _nn_signature(taken), None)]
        body.append(_definition("__call__", f"(self, *args: Any, **kwargs: Any) -> {result}", None))
        texts.append(f"class {name}(Module):\n{_indented(body)}")
    return HEAD + _NN + "\n".join(texts) + "\n"


_WITHOUT_NAME = ("Flatten", "Identity", "Unflatten")  # in nn.functional
_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _nn_signature(function: Any) -> str:
    """Print a signature that may lack annotations: of what defaults are, else Any; its result is a tensor."""
    signature = function if isinstance(function, inspect.Signature) else inspect.signature(function)
    known = {bool: "bool", float: "float", str: "str"}
    parameters = []
    for p in signature.parameters.values():
        told = p.annotation if p.annotation not in (p.empty, "Any") else known.get(type(p.default), "Any")
        default = p.default if p.default is p.empty or isinstance(p.default, (bool, int, float, str)) else None
        parameters.append(p.replace(annotation=p.empty if p is _SELF else _Bare(told), default=default))
    returned = signature.return_annotation
    result = returned if returned in ("None", "Any") else "Tensor"
    return str(signature.replace(parameters=parameters, return_annotation=_Bare(result)))


def _typed(signature: inspect.Signature) -> inspect.Signature:
    """Return a signature whose annotations print without quotes."""
    told = [(p, "Any" if p.annotation is p.empty else p.annotation) for p in signature.parameters.values()]
    parameters = [p.replace(annotation=_Bare(annotation)) for p, annotation in told]
    returned = signature.return_annotation
    shown = _Bare("Tensor" if returned is signature.empty else returned)
    return signature.replace(parameters=parameters, return_annotation=shown)


def _bodiless(node: Any) -> Any:
    """Return a statement with the first line of the docstring, or `...`, for the body of each function in it."""
    if isinstance(node, ast.ClassDef):
        node.body = [_bodiless(part) for part in node.body]
    elif isinstance(node, ast.FunctionDef):
        documentation = ast.get_docstring(node)
        node.body = [ast.Expr(ast.Constant(documentation.splitlines()[0] if documentation else ...))]
    return node


_NATIVE = {
    "__neg__": "(self) -> Tensor",
    "__getitem__": "(self, key: Any) -> Tensor",
    "__setitem__": "(self, key: Any, value: Any) -> None",
}
_UNTYPED = ("__hash__", "__delitem__")  # nothing can be deleted


def _tensor_class(node: ast.ClassDef) -> str:
    """Print the class Tensor: the state that its source declares, then what is installed."""
    texts = [f'"""{(Tensor.__doc__ or "").splitlines()[0]}"""']
    texts += [ast.unparse(part) for part in node.body if isinstance(part, ast.Assign | ast.AnnAssign)]
    for name, member in sorted(vars(Tensor).items()):
        if name in _NATIVE:
            texts.append(_definition(name, _NATIVE[name], None))
        elif isinstance(member, property):
            texts.append(_property(name, member))
        elif inspect.isfunction(function := inspect.unwrap(member, stop=_is_shown) if callable(member) else member):
            texts.append(_method(name, function))
        elif isinstance(member, WrapperDescriptorType) and name not in _UNTYPED:  # an operator of native code
            texts.append(_definition(name, "(self, other: Any, /) -> Tensor", None))
        elif isinstance(member, int) and name not in _PYTHONS_OWN:
            texts.append(f"{name}: builtins.int")
    bases = ", ".join(map(ast.unparse, node.bases))
    return f"class {Tensor.__name__}({bases}):\n" + _indented(texts)


def _is_shown(member: Any) -> bool:
    """Whether a function says itself what its signature is."""
    return inspect.isfunction(member) and hasattr(member, "__signature__")


def _method(name: str, function: Any) -> str:
    documentation = function.__doc__ or getattr(FUNCTIONS.get(name), "__doc__", None)
    return _definition(name, _signature(function, bound=name != "__new__"), documentation, _IGNORED.get(name, ""))


def _property(name: str, member: property) -> str:
    text = "@property\n" + _definition(name, _signature(member.fget), inspect.getdoc(member.fget))
    if member.fset is None:
        return text
    return text + f"\n@{name}.setter\n" + _definition(name, _signature(member.fset), None)


def _definition(name: str, signature: str, documentation: str | None, ignored: str = "") -> str:
    """Print a function without its body, with the first line of its docstring unless Python names it."""
    head = f"def {name}{signature}:" + (f"  # type: ignore[{ignored}]" if ignored else "")
    if documentation is None or name.startswith("__"):
        return f"{head}\n    ..."
    return f'{head}\n    """{documentation.splitlines()[0]}"""'


def _signature(function: Any, *, bound: bool = True) -> str:
    """Print a signature; a printed operator's, which has no annotations, is that of operands and a tensor."""
    signature = inspect.signature(function)
    first, *rest = signature.parameters.values()
    if first.annotation is first.empty and first.name != "self":
        names = ("other",) if len(rest) == 1 else tuple(p.name for p in rest)
        return f"({', '.join(['self', *(f'{n}: Any' for n in names), *('/' for _ in names[:1])])}) -> Tensor"
    receiver = first.replace(name="self" if bound else "cls", annotation=first.empty)
    parameters = [receiver, *(p.replace(annotation=_plain(p.annotation)) for p in rest)]
    return str(signature.replace(parameters=parameters, return_annotation=_plain(signature.return_annotation)))


def _plain(annotation: str) -> _Bare:
    """Return an annotation in which no method of Tensor hides a builtin: `float` is one."""
    hidden = "|".join(sorted(vars(Tensor).keys() & vars(builtins).keys() - vars(object).keys()))
    return _Bare(re.sub(rf"(?<![\w.])({hidden})\b", r"builtins.\1", annotation))


def _indented(texts: Iterable[str]) -> str:
    return "\n".join("    " + line for text in texts for line in text.splitlines())


def main() -> int:
    """Write the stubs; return 0."""
    for path, text in stubs().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
