"""``Module``: attributes that are parameters, buffers and modules, found where they stand; containers of modules.

Nothing is registered when an attribute is set. The parameters of a module are the leaves among its attributes: tensors
that require grad, or did before ``requires_grad_(False)``. A module is a structure of its parameters
(tape/tensors/pytrees.py): each stands in it once, however often it is shared, and everything else, buffers and
``training`` too, belongs to the structure.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from tape.engine.custom_function import Function
from tape.errors import shorten
from tape.recording.creation import as_tensor, empty
from tape.tensors import dtypes
from tape.tensors.grad_modes import no_grad
from tape.tensors.hooks import Registered, RemovableHandle
from tape.tensors.modes import current, is_grad_enabled
from tape.tensors.tensor import AccumulateGrad, Tensor, read_extras

__all__ = ["Buffer", "Module", "ModuleDict", "ModuleList", "Parameter", "ParameterDict", "ParameterList", "Sequential"]
Named = Iterator[tuple[str, Any]]


class _ParameterType(type):
    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Tensor) and (type(x._slot) is AccumulateGrad or read_extras(x).leaf is not None)


if TYPE_CHECKING:
    _Parameter = Tensor  # what making one gives
else:
    _Parameter = object


class Parameter(_Parameter, metaclass=_ParameterType):
    """A tensor that modules have for a parameter: a leaf of the memory of ``data``, float32 or float64.

    >>> tape.nn.Parameter(tape.ones(2))
    tensor([1., 1.], requires_grad=True)
    """

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        """Return the leaf; without ``requires_grad`` it is a parameter that is frozen."""
        made = (empty(0) if data is None else as_tensor(data).detach()).requires_grad_()
        return made if requires_grad else made.requires_grad_(False)


def Buffer(data: Any, *, persistent: bool = True) -> Any:  # noqa: N802 (PyTorch's name)
    """Refuse: a buffer is named by ``register_buffer``."""
    raise NotImplementedError(f"nn.Buffer(persistent={persistent}): call module.register_buffer(name, tensor) instead")


class _Keys(NamedTuple):
    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        return "<All keys matched successfully>" if not any(self) else tuple.__repr__(self)


class _Passed(Function):
    """Tensors as they are; a function makes of their gradients others."""

    @staticmethod
    def forward(ctx: Any, change: Callable[..., Any], *tensors: Tensor) -> Any:
        ctx.change = change
        ctx.set_materialize_grads(False)
        return tuple([x.view_as(x) for x in tensors])

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        return None, *ctx.change(grad_outputs)


class _GradientHooks:
    """The hooks of one call of a module that want its gradients."""

    def __init__(self, module: Module) -> None:
        self.module, self.hooks = module, [*module._hooks["back"].values()]
        self.inputs: tuple[Any, ...] = ()  # gradients
        self.outputs: tuple[Any, ...] = ()
        self.is_entered = False

    def entered(self, args: tuple[Any, ...]) -> Any:
        """Return arguments by whose gradients the hooks are called."""
        self.inputs, self.is_entered = (None,) * len(args), any(map(_has_gradient, args))
        return _passed(args, self._finish)

    def left(self, result: Any) -> Any:
        """Return the result, by whose gradients they know these."""
        passed = _passed(result if isinstance(result, tuple) else (result,), self._begin)
        return passed if isinstance(result, tuple) else passed[0]

    def _begin(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in [*self.module._hooks["back_pre"].values()]:
            gradients = _changed(gradients, hook(self.module, gradients), "grad_output")
        self.outputs = gradients
        if not self.is_entered:
            inputs = self._finish(self.inputs)
            if any(x is not None for x in inputs):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always return None or None for "
                    "all gradients."
                )
        return gradients

    def _finish(self, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self.hooks:
            gradients = _changed(gradients, hook(self.module, gradients, self.outputs), "grad_input")
        return gradients


def _has_gradient(x: Any) -> bool:
    return isinstance(x, Tensor) and x.requires_grad and is_grad_enabled()


def _passed(values: tuple[Any, ...], change: Callable[..., Any]) -> tuple[Any, ...]:
    """Return values of whose gradients, None where there are none, a function makes others."""
    at = [i for i, x in enumerate(values) if _has_gradient(x)]
    if not at:
        return values
    if (recorder := current().recorder) is not None:
        recorder.note_unrecorded(values[at[0]], "a backward hook of a module")

    def change_all(gradients: tuple[Any, ...]) -> list[Any]:
        known = dict(zip(at, gradients, strict=True))
        every = change(tuple([known.get(i) for i in range(len(values))]))
        return [every[i] for i in at]

    made = dict(zip(at, _Passed.apply(change_all, *[values[i] for i in at]), strict=True))
    return tuple([made.get(i, x) for i, x in enumerate(values)])


def _changed(gradients: tuple[Any, ...], by_hook: Any, name: str) -> tuple[Any, ...]:
    if by_hook is None:
        return gradients
    changed = tuple(by_hook) if isinstance(by_hook, tuple) else (by_hook,)
    if len(changed) != len(gradients):
        raise RuntimeError(
            f"Backward hook returned an invalid number of {name}, got {len(changed)}, but expected {len(gradients)}"
        )
    return changed


class Module:
    """A part of a model, PyTorch's ``nn.Module``: set tensors and modules as attributes, and write ``forward``.

    >>> class Line(tape.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.slope = tape.nn.Parameter(tape.tensor(2.0))
    ...     def forward(self, x):
    ...         return self.slope * x
    >>> value, gradient = tape.value_and_grad(lambda line, x: line(x) ** 2)(Line(), tape.tensor(3.0))
    >>> value, gradient.slope
    (tensor(36.), tensor(36.))
    """

    training = True
    _buffers: Mapping[str, bool] = {}  # names of buffers, and whether they belong to the state
    _standing: frozenset[str] = frozenset()  # in a copy: names of what stands for parameters
    _hooks: Mapping[str, Any] = {}  # of Registered
    forward: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what ``forward`` does; hooks run before and after it."""
        try:
            return self._called_with_hooks(args, kwargs) if self._hooks else self.forward(*args, **kwargs)
        except Exception as error:
            shorten(error)
            raise

    def _called_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for hook, named in [*self._hooks["pre"].values()]:
            changed = hook(self, args, kwargs) if named else hook(self, args)
            if named and changed is not None:
                args, kwargs = changed
            elif changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        gradients = _GradientHooks(self) if self._hooks["back"] or self._hooks["back_pre"] else None
        result = self.forward(*(args if gradients is None else gradients.entered(args)), **kwargs)
        for hook, named in [*self._hooks["post"].values()]:
            changed = hook(self, args, kwargs, result) if named else hook(self, args, result)
            result = result if changed is None else changed
        return result if gradients is None else gradients.left(result)

    def _hook(self, when: str, hook: Any, *, prepend: bool = False) -> RemovableHandle:
        if "_hooks" not in vars(self):
            self._hooks = {name: Registered() for name in ("pre", "post", "back", "back_pre")}
        hooks = self._hooks[when]
        others = [*hooks] if prepend else []
        handle = RemovableHandle(hooks, hook)
        for number in others:
            hooks[number] = hooks.pop(number)
        return handle

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args)`` before ``forward``; what it returns, if anything, are the arguments."""
        return self._hook("pre", (hook, with_kwargs), prepend=prepend)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args, result)`` after ``forward``; what it returns, if anything, is the result."""
        if always_call:
            raise NotImplementedError("register_forward_hook: always_call=True is not supported")
        return self._hook("post", (hook, with_kwargs), prepend=prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` when both are there; it may return other ``grad_input``.

        They are tuples by position, None for what has no gradient. In compiled functions calls are dynamic.
        """
        return self._hook("back", hook, prepend=prepend)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` before the module's backward; it may return other ``grad_output``."""
        return self._hook("back_pre", hook, prepend=prepend)

    # What a module consists of, in PyTorch's order: its own parameters as they were set, then those of its modules.

    def _parameters(self) -> Named:
        for name, x in vars(self).items():
            if isinstance(x, Tensor) and name not in self._buffers and (name in self._standing or _is_parameter(x)):
                yield name, x

    def named_children(self) -> Named:
        """Yield the names of the attributes that are modules, and these, each once."""
        seen: set[int] = set()
        for name, x in vars(self).items():
            if isinstance(x, Module) and not (id(x) in seen or seen.add(id(x))):  # type: ignore[func-returns-value]
                yield name, x

    def children(self) -> Iterator[Module]:
        """Yield the attributes that are modules."""
        return (x for _, x in self.named_children())

    def named_modules(self, memo: set[int] | None = None, prefix: str = "", remove_duplicate: bool = True) -> Named:
        """Yield this module and those within, with their dotted names."""
        memo = set() if memo is None else memo
        if id(self) in memo:
            return
        if remove_duplicate:
            memo.add(id(self))
        yield prefix, self
        for name, x in [*vars(self).items()]:
            if isinstance(x, Module):
                yield from x.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self) -> Iterator[Module]:
        """Yield this module and those within, each once."""
        return (x for _, x in self.named_modules())

    def _named(self, which: Any, prefix: str, recurse: bool, once: bool) -> Named:
        seen: set[int] = set()
        modules = self.named_modules(None, prefix, once) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, x in which(module):
                if not (once and id(x) in seen):
                    seen.add(id(x))
                    yield f"{path}.{name}" if path else name, x

    def named_parameters(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Named:
        """Yield dotted names and parameters, each once."""
        return self._named(Module._parameters, prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield the parameters, each once."""
        return (x for _, x in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Named:
        """Yield dotted names and buffers."""
        return self._named(_buffers_of, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield the buffers."""
        return (x for _, x in self.named_buffers(recurse=recurse))

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Set an attribute that is no parameter; ``persistent``: the state holds it."""
        self._buffers = {**self._buffers, name: persistent}
        setattr(self, name, tensor)

    def register_parameter(self, name: str, param: Any) -> None:
        """Set an attribute to a parameter, or to None."""
        setattr(self, name, param)

    def add_module(self, name: str, module: Module | None) -> None:
        """Set an attribute to a module."""
        setattr(self, name, module)

    register_module = add_module

    def get_submodule(self, target: str) -> Module:
        """Return a module by its dotted name."""
        for part in target.split(".") if target else ():
            self = getattr(self, part)  # noqa: PLW0642
        return self

    def get_parameter(self, target: str) -> Tensor:
        """Return a parameter by its dotted name."""
        path, _, name = target.rpartition(".")
        return getattr(self.get_submodule(path), name)  # type: ignore[no-any-return]

    # State.

    def state_dict(self, *, prefix: str = "", keep_vars: bool = False) -> OrderedDict[str, Tensor]:
        """Return parameters and persistent buffers by PyTorch's names; they share memory with the module's."""
        named = self._named(_state_of, "", True, False)
        return OrderedDict([(prefix + name, x if keep_vars else x.detach()) for name, x in named])

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> _Keys:
        """Copy values into parameters and buffers: tensors, arrays, or tensors of PyTorch's.

        RuntimeError for another shape and, with ``strict``, for names that are missing or unknown. ``assign`` is no
        other than a copy.
        """
        del assign
        state = self.state_dict(keep_vars=True)
        usual = "num_batches_tracked"  # which older states lack
        missing = [name for name in state if name not in state_dict and not name.endswith(usual)]
        keys = _Keys(missing, [name for name in state_dict if name not in state])
        said = [("Unexpected", keys.unexpected_keys), ("Missing", keys.missing_keys)] if strict else []
        errors = [
            f"{word} key(s) in state_dict: " + ", ".join(f'"{n}"' for n in names) for word, names in said if names
        ]
        for name, x in state.items():
            shape = tuple(getattr(state_dict.get(name, x), "shape", ()))
            if shape != tuple(x.shape):
                errors.append(
                    f"size mismatch for {name}: copying a param with shape {dtypes.Size(shape)} from checkpoint, the "
                    f"shape in current model is {x.shape}"
                )
        if errors:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + ".\n\t".join(errors))
        with no_grad():
            for name, x in state.items():
                if name in state_dict:
                    value = state_dict[name]
                    x.copy_(value if isinstance(value, Tensor) else as_tensor(np.asarray(value)))
        return keys

    def train(self, mode: bool = True) -> Self:
        """Set ``training`` of this module and those within."""
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Set ``training`` to False."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Freeze the parameters, or let them require grad again."""
        for x in self.parameters():
            x.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Take the gradients of all parameters away, or set them to zeros."""
        for x in self.parameters():
            if x.grad is not None:
                x.grad = None if set_to_none else x.grad.detach().clone().zero_()

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call a function with each module, this one last."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Give floating parameters and buffers a dtype; the device is "cpu", and "meta" changes nothing."""
        if "meta" in (*map(str, args), str(kwargs.get("device"))):
            return self
        for module in self.modules():
            for name, x in [*_buffers_of(module), *module._parameters()]:
                if x.is_floating_point():
                    if name in module._buffers:
                        setattr(module, name, x.to(*args, **kwargs))
                    else:
                        x.data = x.data.to(*args, **kwargs)
        return self

    def double(self) -> Self:
        """Make it float64."""
        return self.to(dtypes.float64)

    def float(self) -> Self:
        """Make it float32."""
        return self.to(dtypes.float32)

    def cpu(self) -> Self:
        """Return the module: it is there."""
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes, and which parameters are frozen, for pickles and copies."""
        return {**vars(self), "_frozen": [name for name, x in self._parameters() if not x.requires_grad]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        frozen = state.pop("_frozen")
        vars(self).update(state)
        for name in frozen:
            state[name].requires_grad_().requires_grad_(False)

    def __structure__(self) -> Any:
        """Return what pytrees take a module for: names, parameters, the rest, and what makes a module of others."""
        parts = _Parts()
        parts.enter(self, "")
        return tuple(parts.names), parts.values, {"_frame": parts.frame}, partial(_module_of, parts.frame)

    @property
    def _frame(self) -> Any:
        """What belongs to the structure: classes, and attributes that are neither parameters nor modules."""
        return self.__structure__()[2]["_frame"]

    def extra_repr(self) -> str:
        """Return what a class says of itself in its repr."""
        return ""

    def __repr__(self) -> str:
        extra, shown = self.extra_repr(), [(name, repr(x)) for name, x in self._shown()]
        lines = extra.split("\n") if extra else []
        if not shown and not lines[1:]:
            return f"{type(self).__name__}({extra})"
        lines += [f"({name}): " + text.replace("\n", "\n  ") for name, text in shown]
        return f"{type(self).__name__}(\n  " + "\n  ".join(lines) + "\n)"

    def _shown(self) -> Iterable[tuple[str, Any]]:
        return ((name, x) for name, x in vars(self).items() if isinstance(x, Module))


_is_parameter: Any = _ParameterType.__instancecheck__.__get__(Parameter)


def _buffers_of(module: Module) -> Named:
    return ((name, x) for name in module._buffers if isinstance(x := getattr(module, name, None), Tensor))


def _state_of(module: Module) -> Named:
    yield from module._parameters()
    yield from ((name, x) for name, x in _buffers_of(module) if module._buffers[name])


class _Parts:
    """A module taken apart: a frame of classes, parameters and modules by number, and what else they have."""

    def __init__(self) -> None:
        self.frame: list[Any] = []
        self.names: list[str] = []
        self.values: list[Any] = []
        self.numbers: dict[int, int] = {}  # of modules and parameters, by their ids

    def enter(self, module: Module, path: str) -> int:
        """Enter a module that is not known yet, and those within, by PyTorch's order; return its number."""
        number = self.numbers.setdefault(id(module), len(self.frame))
        if number < len(self.frame):
            return number
        items, named = list[Any](), dict(module._parameters())
        self.frame.append((type(module), frozenset(named), items))
        for name, x in named.items():
            at = self.numbers.setdefault(id(x), len(self.values))
            if at == len(self.values):
                self.names.append(path + name)
                self.values.append(x)
            items.append((name, _PARAMETER, at))
        for name, x in vars(module).items():
            if isinstance(x, Module):
                items.append((name, _MODULE, self.enter(x, f"{path}{name}.")))
            elif name not in named and name != "_standing":
                items.append((name, _REST, x))
        return number


_PARAMETER, _MODULE, _REST = range(3)


def _module_of(frame: list[Any], values: list[Any]) -> Module:
    """Return a module of a frame, and of other parameters, which stand in it whatever they are."""
    made: list[Module] = [object.__new__(kind) for kind, _, _ in frame]
    for module, (_, standing, items) in zip(made, frame, strict=True):
        for name, what, x in items:
            vars(module)[name] = x if what == _REST else made[x] if what == _MODULE else values[x]
        vars(module)["_standing"] = standing
    return made[0]


# Containers: what they hold are attributes, named by number or by key.


class _Numbered(Module):
    """Attributes named 0, 1, ...: a list of them."""

    def _names(self) -> list[str]:
        return [name for name in vars(self) if name.isdecimal()]

    def _set(self, items: Iterable[Any]) -> None:
        for name in self._names():
            delattr(self, name)
        for i, x in enumerate(items):
            setattr(self, str(i), x)

    def __len__(self) -> int:
        return len(self._names())

    def __iter__(self) -> Iterator[Any]:
        return iter([vars(self)[name] for name in self._names()])

    def __getitem__(self, index: Any) -> Any:
        items = list(self)
        if not isinstance(index, slice):
            return items[index]
        part = object.__new__(type(self))
        part._set(items[index])
        return part

    def __setitem__(self, index: Any, x: Any) -> None:
        setattr(self, self._names()[index], x)

    def __delitem__(self, index: Any) -> None:
        items = list(self)
        del items[index]
        self._set(items)

    def append(self, x: Any) -> Self:
        """Add one at the end."""
        return self.extend([x])

    def insert(self, index: int, x: Any) -> None:
        """Put one before the one at this index."""
        items = list(self)
        items.insert(index, x)
        self._set(items)

    def extend(self, items: Iterable[Any]) -> Self:
        """Add several at the end."""
        self._set([*self, *items])
        return self

    __iadd__ = extend

    def pop(self, key: int = -1) -> Any:
        """Take one out, and return it."""
        x = self[key]
        del self[key]
        return x


class Sequential(_Numbered):
    """Modules that are called one after the other: ``Sequential(a, b)``, or a dict of names."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], dict) else enumerate(args)
        for name, x in named:
            setattr(self, str(name), x)

    def _names(self) -> list[str]:
        return [name for name, x in vars(self).items() if isinstance(x, Module)]

    def forward(self, input: Any) -> Any:
        """Return what the last one makes of what the one before makes."""
        for module in self:
            input = module(input)
        return input


class ModuleList(_Numbered):
    """A list of modules."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self._set(modules)

    def _shown(self) -> Iterable[tuple[str, Any]]:
        for text, same in itertools.groupby(zip(itertools.count(), map(repr, self)), lambda pair: pair[1]):
            first, *rest = [number for number, _ in same]
            yield (f"{first}-{rest[-1]}", _Text(f"{len(rest) + 1} x {text}")) if rest else (str(first), _Text(text))


class _Text(str):
    __slots__ = ()
    __repr__ = str.__str__


class ParameterList(_Numbered):
    """A list of parameters; tensors among them become some."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__()
        self.extend(values)

    def _set(self, items: Iterable[Any]) -> None:
        super()._set([Parameter(x) if isinstance(x, Tensor) and not _is_parameter(x) else x for x in items])


class ModuleDict(Module):
    """A dict of modules, whose keys are names."""

    def __init__(self, modules: Any = ()) -> None:
        super().__init__()
        self.update(modules)

    def update(self, modules: Any) -> None:
        """Add those of a dict, or of pairs."""
        for name, x in dict(modules).items():
            self[name] = x

    def __setitem__(self, name: str, x: Any) -> None:
        if hasattr(Module, name) or "." in name:
            raise KeyError(f"{name!r} cannot be the name of a module")
        setattr(self, name, x)

    def _held(self) -> dict[str, Any]:
        return {name: x for name, x in vars(self).items() if isinstance(x, (Module, Tensor))}

    def __getitem__(self, name: str) -> Any:
        return self._held()[name]

    def __delitem__(self, name: str) -> None:
        delattr(self, name)

    def pop(self, key: str) -> Any:
        """Take one out, and return it."""
        x = self[key]
        del self[key]
        return x

    def clear(self) -> None:
        """Take all out."""
        for name in self:
            del self[name]

    def items(self) -> Iterable[tuple[str, Any]]:
        """Return names and what they stand for."""
        return self._held().items()

    def keys(self) -> Iterable[str]:
        """Return the names."""
        return self._held().keys()

    def values(self) -> Iterable[Any]:
        """Return what they stand for."""
        return self._held().values()

    def __iter__(self) -> Iterator[str]:
        return iter(self._held())

    def __len__(self) -> int:
        return len(self._held())

    def __contains__(self, name: object) -> bool:
        return name in self._held()


class ParameterDict(ModuleDict):
    """A dict of parameters, whose keys are names; tensors among them become some."""

    def __setitem__(self, name: str, x: Any) -> None:
        super().__setitem__(name, Parameter(x) if isinstance(x, Tensor) and not _is_parameter(x) else x)
