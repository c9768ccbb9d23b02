"""``jax.checkpoint`` for a program that applies it to the same code again and again
(:func:`fnintern.patch_jax`).

An eager call traces its function and runs the jaxpr, operation by operation. Here the jaxpr is that
of the first function of its value, with what the present one captures as operands. Imports jax.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from fnintern.captures.declared import stateless
from fnintern.keys.objects import importable
from fnintern.keys.tokens import Key
from fnintern.staging.arguments import Parameters
from fnintern.staging.conversion import Conversion
from fnintern.staging.eager import is_eager
from fnintern.staging.met import Met
from fnintern.staging.traces import traced_operation

__all__ = ["share_checkpoint"]


def share_checkpoint(
    checkpoint: Callable[..., Any], name: str = "checkpoint"
) -> Callable[..., Any]:
    """``jax.checkpoint``, with traces that are shared by functions of the same code.

    Args:
        checkpoint: that of jax.
        name: under which calls are counted.
    """
    met = Met()
    conversions: dict[Key, Conversion] = {}

    def conversion_for(options: dict[str, Any]) -> Conversion | None:
        """The traces of all functions with these options; None where it is left to JAX."""
        static = options.get("static_argnums", ())
        static = (static,) if isinstance(static, int) else tuple(static)
        passed_on = {name: options[name] for name in _PASSED_ON if name in options}
        policy = passed_on.get("policy")
        if (
            not options.keys() <= {"static_argnums", *_PASSED_ON}
            or any(type(number) is not int or number < 0 for number in static)
            or not isinstance(passed_on.get("prevent_cse", True), bool)
            or not (policy is None or importable(policy))
        ):
            return None
        key = (static, *passed_on.items())
        found = conversions.get(key)
        if found is None:
            parameters = Parameters(
                static=frozenset(1 + number for number in static), functions=frozenset({0})
            )
            found = conversions[key] = Conversion(
                traced_operation(_call), name, parameters, passed_on, wrap=checkpoint
            )
        return found

    @stateless
    @functools.wraps(checkpoint)
    def shared(fun: Any, *args: Any, **options: Any) -> Any:
        own = checkpoint(fun, *args, **options)
        if args or not is_eager() or not met.seen(fun).again:
            return own
        conversion = conversion_for(options)
        if conversion is None:
            return own

        @functools.wraps(own)
        def fun_remat(*args: Any, **kwargs: Any) -> Any:
            if not is_eager():
                return own(*args, **kwargs)
            return conversion.run(lambda fun, *a, **k: own(*a, **k), (fun, *args), kwargs)

        return fun_remat

    shared.__module__ = "jax"  # where it is found under its name, by pickle
    return shared


def _call(fun: Any, /, *args: Any, **kwargs: Any) -> Any:
    return fun(*args, **kwargs)


_PASSED_ON: Final[tuple[str, ...]] = ("prevent_cse", "policy")
