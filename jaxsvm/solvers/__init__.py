"""Solvers of the MAP problem, and the derivatives of its solution."""

from typing import cast

import jax

from ..linalg import one_by_one
from ..losses import AbstractLoss, AbstractPiecewise
from ._implicit import attach_derivatives as attach_derivatives
from ._large import solve_large
from ._newton import solve_smooth
from ._optimality import primal_objective as primal_objective
from ._problem import Options as Options
from ._problem import Problem as Problem
from ._problem import Solution as Solution
from ._problem import Start as Start
from ._proximal import solve_piecewise
from ._quadratic import solve_quadratic


def solve(problem: Problem, start: Start, options: Options, warm: bool) -> Solution:
    """Solve a kernel machine by the method that suits its loss; no derivatives pass through.

    On a CPU the members of a batch are solved one after the other, each for as long as it needs;
    elsewhere in lockstep.

    **Arguments:** `problem`; `start`, where to begin; `options`; `warm`, whether the start is near.

    **Returns:** a `Solution`.
    """

    def run(problem, start):
        loss = problem.loss
        if not (warm or problem.gram.has_cheap_rows or _is_quadratic(loss)):
            return solve_large(problem, options)
        if not isinstance(loss, AbstractPiecewise):
            return solve_smooth(problem, start, options)
        piecewise = cast(Problem[AbstractPiecewise], problem)
        if _is_quadratic(loss):
            return solve_quadratic(piecewise, options)
        return solve_piecewise(piecewise, start, options, warm)

    return one_by_one(run)(*jax.lax.stop_gradient((problem, start)))


def _is_quadratic(loss: AbstractLoss) -> bool:
    """Whether one linear system gives the solution."""
    piecewise = isinstance(loss, AbstractPiecewise)
    return piecewise and loss.is_two_sided and not loss.has_flat_zone and loss.shape().bound is None
