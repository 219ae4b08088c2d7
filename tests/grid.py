"""One grid of kernels, losses and criteria for all tests, and one check of gradients.

`tests/test_grid.py` fails if a public kernel, loss or criterion is missing here.
"""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from reference import central_difference

from jaxsvm import criteria, gp, kernels, losses, priors


def laplacian(a, b):
    """`exp(-|a - b|_1)`: a user's kernel."""
    return jnp.exp(-jnp.sum(jnp.abs(a - b)))


# name -> a kernel of points with d inputs; a name begins with that of its class
KERNELS = {
    "RBF": lambda d: kernels.RBF(1.3, 2.0),
    "RBF, ARD": lambda d: kernels.RBF(np.linspace(0.5, 2.0, d), 0.7),
    "Matern12": lambda d: kernels.Matern12(1.3),
    "Matern32": lambda d: kernels.Matern32(1.3),
    "Matern52": lambda d: kernels.Matern52(1.3),
    "RationalQuadratic": lambda d: kernels.RationalQuadratic(1.3, 1.0, 2.0),
    "Periodic": lambda d: kernels.Periodic(1.0, 1.0, 3.0),
    "Linear": lambda d: kernels.Linear(0.5),
    "Linear, ARD": lambda d: kernels.Linear(np.linspace(0.5, 2.0, d)),
    "Polynomial": lambda d: kernels.Polynomial(2, 1.0, 0.1),
    "Constant": lambda d: kernels.Constant(0.3),
    "White": lambda d: kernels.White(0.3),
    "ARD": lambda d: kernels.ARD(kernels.Matern32(), np.linspace(0.5, 2.0, d)),
    "Subspace": lambda d: kernels.Subspace(kernels.RBF(1.3), [0]),
    "Transform": lambda d: kernels.Transform(kernels.RBF(1.3), jnp.tanh),
    "Custom": lambda d: kernels.Custom(laplacian),
    "Sum": lambda d: kernels.RBF(1.3) + kernels.Constant(0.1) + kernels.White(0.2),
    "Product": lambda d: kernels.RBF(1.3) * kernels.Linear(0.5),
}
LOSSES = {
    "Hinge": losses.Hinge(0.7),
    "SquaredHinge": losses.SquaredHinge(2.0),
    "LeastSquares": losses.LeastSquares(3.0),
    "Logistic": losses.Logistic(2.0),
    "Probit": losses.Probit(0.5),
    "FlipNoise": losses.FlipNoise(0.05, 0.5),
    "Trigonometric": losses.Trigonometric(),
    "Normalized": losses.Normalized(losses.SquaredHinge(2.0)),
    "EpsilonInsensitive": losses.EpsilonInsensitive(1.0, 0.1),
    "SoftInsensitive": losses.SoftInsensitive(1.0, 0.2, 0.3),
    "Huber": losses.Huber(1.0, 0.1),
    "Laplacian": losses.Laplacian(1.0),
    "Quadratic": losses.Quadratic(0.1),
}
PIECEWISE = [name for name, loss in LOSSES.items() if isinstance(loss, losses.AbstractPiecewise)]
# name -> a criterion, and a loss that it takes
CRITERIA = {
    "laplace, hinge": (criteria.LaplaceEvidence(), losses.Hinge()),
    "laplace, squared hinge": (criteria.LaplaceEvidence(), losses.SquaredHinge()),
    "laplace, logistic": (criteria.LaplaceEvidence(), losses.Logistic()),
    "laplace, flips": (criteria.LaplaceEvidence(), losses.FlipNoise()),
    "laplace, soft insensitive": (criteria.LaplaceEvidence(), losses.SoftInsensitive()),
    "laplace, quadratic": (criteria.LaplaceEvidence(), losses.Quadratic()),
    "span": (criteria.Span(), losses.SquaredHinge()),
    "GACV": (criteria.GACV(), losses.Hinge()),
    "radius": (criteria.RadiusMargin(), losses.SquaredHinge()),
    "jaakkola haussler": (criteria.JaakkolaHaussler(), losses.Hinge()),
    "support vectors": (criteria.SupportVectorCount(), losses.Hinge()),
    "linear response": (criteria.LinearResponse(score="smooth"), losses.Hinge()),
    "PRESS": (criteria.PRESS(), losses.LeastSquares()),
    "PRESS with a prior": (
        criteria.Regularized(criteria.PRESS(), priors.GaussianPenalty()),
        losses.LeastSquares(),
    ),
    "folds": (criteria.CrossValidation(3, score="smooth"), losses.Hinge()),
    "left out": (criteria.LeaveOneOut(score="smooth"), losses.SquaredHinge()),
    "mean field": (gp.NaiveMeanField(), losses.Probit()),
    "gp laplace": (gp.Laplace(), losses.Logistic()),
    "gp laplace, left out": (gp.LaplaceLeaveOneOut(), losses.Logistic()),
    "EP": (gp.ExpectationPropagation(), losses.Probit()),
    "EP, left out": (gp.ExpectationPropagationLeaveOneOut(), losses.Probit()),
}


def public_classes(package, base) -> set[type]:
    """The final classes below `base` among the public names of a package."""
    return {
        thing
        for name, thing in vars(package).items()
        if inspect.isclass(thing)
        and issubclass(thing, base)
        and not name.startswith(("_", "Abstract"))
    }


def check_gradient(
    function, point, *data, relative=1e-5, absolute=1e-6, of_largest=0.0, twice=False
):
    """Check the gradient of `function(point, *data)` at `point`, a pytree, by central differences.

    An error of `relative` times the entry, plus `absolute`, plus `of_largest` times the largest entry, is
    allowed. With `twice` forward mode must agree with reverse mode, and the gradient's own derivative along a
    direction with differences of gradients. One compilation gives everything: compiling takes nearly all the
    time.
    """
    vector, unravel = ravel_pytree(point)
    direction = jnp.asarray(np.random.default_rng(1).normal(size=vector.shape))

    @jax.jit
    def everything(vector, *data):
        both = jax.value_and_grad(lambda vector: function(unravel(vector), *data))
        return jax.jvp(both, (vector,), (direction,)) if twice else (both(vector), None)

    (_, reverse), change = everything(vector, *data)
    expected = central_difference(lambda v: everything(v, *data)[0][0], vector)
    size = np.abs(expected).max()
    assert size > max(10 * absolute, 1e-6), "a gradient of zero would prove nothing"
    np.testing.assert_allclose(reverse, expected, rtol=relative, atol=absolute + of_largest * size)
    if twice:
        forward, second = change
        np.testing.assert_allclose(forward, reverse @ direction, rtol=1e-8, atol=1e-8 * size)
        plus, minus = (
            np.asarray(everything(vector + s * direction, *data)[0][1]) for s in (1e-5, -1e-5)
        )
        expected = (plus - minus) / 2e-5
        np.testing.assert_allclose(second, expected, atol=1e-4 * np.abs(expected).max())
