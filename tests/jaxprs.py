"""The sizes of arrays in a traced function."""

import jax


def largest_array(function, *arguments) -> int:
    """The number of entries of the largest array that a function computes on its way."""
    return _largest(jax.make_jaxpr(function)(*arguments).jaxpr)


def _largest(jaxpr):
    sizes = [0]
    for equation in jaxpr.eqns:
        sizes += [v.aval.size for v in equation.outvars if hasattr(v.aval, "size")]
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(inner):
                sizes.append(_largest(getattr(inner, "jaxpr", inner)))
    return max(sizes)


def _is_jaxpr(value):
    return hasattr(value, "eqns") or hasattr(value, "jaxpr")
