"""A jaxpr evaluated with operands in the place of arrays that it holds deep inside.

JAX passes what the functions of ``cond`` or ``scan`` capture in from outside, up to the top of
the jaxpr. A jitted function in it keeps what it captures: that array would be a constant of the
program. Such a function is evaluated in line, and the control flow around it is made again around
operands. Imports jax.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import jax

__all__ = ["evaluate", "parameters", "stuck"]

#: Arrays by their ids: what they are replaced by.
Replacements = Mapping[int, Any]


def parameters(equation: Any) -> Iterator[Any]:
    """The parameters of an equation, those in sequences one by one."""
    for value in equation.params.values():
        yield from value if isinstance(value, tuple | list) else (value,)


def _inner(equation: Any) -> list[Any]:
    return [part for part in parameters(equation) if hasattr(part, "eqns")]


def _holds(equation: Any, arrays: Replacements) -> bool:
    """Whether the jaxprs in an equation hold one of these arrays."""
    return any(
        any(id(constant) in arrays for constant in getattr(part, "consts", ()))
        or any(_takes(inner, arrays) or _holds(inner, arrays) for inner in part.eqns)
        for part in _inner(equation)
    )


def _takes(equation: Any, arrays: Replacements) -> bool:
    """Whether one of these arrays, of no dimension, is written into an equation."""
    return any(id(getattr(var, "val", None)) in arrays for var in equation.invars)


def stuck(jaxpr: Any, arrays: Replacements) -> bool:
    """Whether one of these arrays is where :func:`evaluate` cannot replace it.

    Args:
        jaxpr: what is to be evaluated.
        arrays: by their ids.
    """
    return any(
        equation.primitive.name not in _REMADE or any(stuck(p, arrays) for p in _inner(equation))
        for equation in jaxpr.eqns
        if _holds(equation, arrays)
    )


def evaluate(
    jaxpr: Any, constants: Sequence[Any], operands: Sequence[Any], arrays: Replacements
) -> list[Any]:
    """The results of a jaxpr.

    Args:
        jaxpr: what is evaluated.
        constants: its own, replaced already.
        operands: its arguments.
        arrays: what takes the place of arrays that it holds deeper inside.
    """
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    if not any(_holds(equation, arrays) or _takes(equation, arrays) for equation in jaxpr.eqns):
        return jax.core.eval_jaxpr(jaxpr, constants, *operands)  # type: ignore[no-any-return]
    values: dict[Any, Any] = {}
    values.update(zip(jaxpr.constvars, constants, strict=True))
    values.update(zip(jaxpr.invars, operands, strict=True))

    def read(var: Any) -> Any:
        return arrays.get(id(var.val), var.val) if hasattr(var, "val") else values[var]

    for equation in jaxpr.eqns:
        inputs = list(map(read, equation.invars))
        primitive, params = equation.primitive, equation.params
        if _holds(equation, arrays):
            results = _REMADE[primitive.name](params, inputs, arrays)
        else:
            with equation.ctx.manager:
                results = primitive.bind(*inputs, **primitive.get_bind_params(params))
            if not primitive.multiple_results:
                results = [results]
        values.update(zip(equation.outvars, results, strict=True))
    return list(map(read, jaxpr.outvars))


def _function(closed: Any, arrays: Replacements) -> Callable[..., list[Any]]:
    constants = [arrays.get(id(x), x) for x in getattr(closed, "consts", ())]
    return lambda *operands: evaluate(closed, constants, operands, arrays)


def _jit(params: Any, inputs: list[Any], arrays: Replacements) -> list[Any]:
    return _function(params["jaxpr"], arrays)(*inputs)


def _cond(params: Any, inputs: list[Any], arrays: Replacements) -> list[Any]:
    index, *operands = inputs
    branches = [_function(branch, arrays) for branch in params["branches"]]
    results: list[Any] = jax.lax.switch(index, branches, *operands)
    return results


def _scan(params: Any, inputs: list[Any], arrays: Replacements) -> list[Any]:
    if "ft_in" in params:  # since jax 0.12
        consts, carried = (len(list(part)) for part in params["ft_in"].unpack()[:2])
    else:
        consts, carried = params["num_consts"], params["num_carry"]
    body = _function(params["jaxpr"], arrays)

    def step(carry: list[Any], xs: list[Any]) -> tuple[list[Any], list[Any]]:
        results = body(*inputs[:consts], *carry, *xs)
        return results[:carried], results[carried:]

    carry, ys = jax.lax.scan(
        step,
        inputs[consts : consts + carried],
        inputs[consts + carried :],
        length=params["length"],
        reverse=params["reverse"],
        unroll=params["unroll"],
    )
    return [*carry, *ys]


def _while(params: Any, inputs: list[Any], arrays: Replacements) -> list[Any]:
    for_test, for_body = params["cond_nconsts"], params["body_nconsts"]
    test = _function(params["cond_jaxpr"], arrays)
    body = _function(params["body_jaxpr"], arrays)
    of_test, of_body = inputs[:for_test], inputs[for_test : for_test + for_body]
    results: list[Any] = jax.lax.while_loop(
        lambda carry: test(*of_test, *carry)[0],
        lambda carry: body(*of_body, *carry),
        inputs[for_test + for_body :],
    )
    return results


def _checkpoint(params: Any, inputs: list[Any], arrays: Replacements) -> list[Any]:
    again = jax.checkpoint(
        _function(params["jaxpr"], arrays),
        prevent_cse=params["prevent_cse"],
        policy=params["policy"],
    )
    results: list[Any] = again(*inputs)
    return results


#: How an equation is made again, by the name of its primitive in jax 0.10 to 0.12. An array inside
#: of any other one stays where it is, and the call is not converted.
_REMADE: Final[dict[str, Callable[[Any, list[Any], Replacements], list[Any]]]] = {
    "jit": _jit,
    "pjit": _jit,
    "cond": _cond,
    "scan": _scan,
    "while": _while,
    "checkpoint": _checkpoint,
    "remat2": _checkpoint,
}
