"""vmap of an ``autograd.Function``: by a rule of its own, or by one made of its forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tape
from tape.func import grad, vmap
from tests.support.pytorch_outcomes import Outcomes


def classes(lib: Any) -> dict[str, Any]:
    function = lib.autograd.Function

    class Scaled(function):  # type: ignore[misc, valid-type]
        """x**2 s, with a gradient that is a hundred times too large, so that it is told from any other."""

        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any, s: Any) -> Any:
            return x * x * s

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            del output
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, s = ctx.saved_tensors
            return 200.0 * x * s * g, 100.0 * (x * x * g).sum()

    class ByRule(Scaled):
        """The same by a rule of its own."""

        generate_vmap_rule = False

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any, s: Any) -> Any:
            assert info.batch_size == 3
            assert in_dims[0] is not None
            x = x.movedim(in_dims[0], 0)
            s = s if in_dims[1] is None else s.movedim(in_dims[1], 0)[:, None]
            return x * x * s * 7.0, 0

    class Pair(function):  # type: ignore[misc, valid-type]
        """Two outputs."""

        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2.0, x.sum()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            del inputs, output
            ctx.factor = 3.0

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            return a * ctx.factor + b

    return {"made": Scaled, "own": ByRule, "pair": Pair}


CALLS: dict[str, Any] = {
    "made": lambda lib, c, x, s: lib.func.vmap(lambda a, b: c["made"].apply(a, b))(x, s),
    "made, one for all": lambda lib, c, x, s: lib.func.vmap(lambda a: c["made"].apply(a, s[0]) + a)(x),
    "own": lambda lib, c, x, s: lib.func.vmap(lambda a, b: c["own"].apply(a, b))(x, s),
    "own, along a dim": lambda lib, c, x, s: lib.func.vmap(lambda a: c["own"].apply(a, s[0]), in_dims=1, out_dims=1)(
        x.T
    ),
    "two outputs": lambda lib, c, x, s: lib.func.vmap(lambda a: c["pair"].apply(a)[0] * c["pair"].apply(a)[1])(x),
    "gradients of each": lambda lib, c, x, s: lib.func.vmap(lib.func.grad(lambda a, b: c["made"].apply(a, b).sum()))(
        x, s
    ),
    "gradient of all": lambda lib, c, x, s: lib.func.grad(
        lambda v, w: lib.func.vmap(lambda a: c["made"].apply(a, w))(v).sum(), argnums=(0, 1)
    )(x, s[0]),
    "gradient of two outputs": lambda lib, c, x, s: lib.func.grad(
        lambda v: sum(t.sum() for t in lib.func.vmap(lambda a: c["pair"].apply(a))(v))
    )(x),
    "gradient by a rule": lambda lib, c, x, s: lib.func.grad(
        lambda v: lib.func.vmap(lambda a, b: c["own"].apply(a, b))(v, s).sum()
    )(x),
}


def listed(found: Any) -> Any:
    return [listed(part) for part in found] if isinstance(found, tuple) else found.detach().numpy()


@pytest.mark.parametrize("name", CALLS)
def test_as_pytorch(name: str, pytorch: Outcomes) -> None:
    x, s = np.arange(1.0, 7.0).reshape(3, 2), np.array([2.0, -1.0, 0.5])

    def run(lib: Any) -> Any:
        return listed(CALLS[name](lib, classes(lib), lib.tensor(x), lib.tensor(s)))

    found, expected = run(tape), pytorch(run, name)
    for a, b in zip(*(x if isinstance(x, list) else [x] for x in (found, expected)), strict=True):
        np.testing.assert_allclose(a, b)


def test_rules_that_are_wrong() -> None:
    class Both(classes(tape)["own"]):  # type: ignore[misc]
        generate_vmap_rule = True

    class Old(tape.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            del ctx
            return x * 2.0

    x = tape.ones(3, 2)
    with pytest.raises(RuntimeError, match="has both generate_vmap_rule=True and an overridden vmap"):
        vmap(lambda a: Both.apply(a, a.sum()))(x)
    with pytest.raises(RuntimeError, match="override the setup_context staticmethod"):
        vmap(lambda a: Old.apply(a))(x)
    assert vmap(grad(lambda a: (a * a).sum()))(x).tolist() == (2 * x).tolist()
