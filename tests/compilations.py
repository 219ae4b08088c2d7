"""How often functions of the library were compiled."""

from jaxsvm._programs import programs_of


def compilations(function) -> int:
    """The number of programs there are of a function."""
    return sum(jitted._cache_size() for jitted in programs_of(function))
