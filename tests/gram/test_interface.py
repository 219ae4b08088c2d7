"""Solvers, criteria and Gaussian processes use only the interface, so another representation works too."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

import jaxsvm as jsvm
from jaxsvm import criteria, gp, losses
from jaxsvm._fit import fit_gram
from jaxsvm.gram import AbstractGram, DenseGram

N, RANK = 30, 6
RNG = np.random.default_rng(2)
X = jnp.asarray(RNG.normal(size=(N, 2)))
FACTOR = jnp.asarray(RNG.normal(size=(N, RANK)))
LABELS = jnp.asarray(np.where(RNG.uniform(size=N) < 0.5, -1.0, 1.0))
TARGETS = jnp.asarray(RNG.normal(size=N))


class Factored(AbstractGram):
    """`K = V V' + diagonal`, with products and determinants that never form K."""

    factor: Float[Array, "n p"]
    own: Float[Array, " n"]

    @property
    def dtype(self):
        return self.factor.dtype

    def diagonal(self):
        return jnp.sum(self.factor**2, axis=1) + self.own

    def row(self, index):
        return (self.factor @ self.factor[index]).at[index].add(self.own[index])

    def product(self, vector):
        return self.factor @ (self.factor.T @ vector) + self.own * vector

    def sparse_product(self, vector):
        return self.product(vector)

    def squared_product(self, vector):
        inner = self.factor.T @ (vector[:, None] * self.factor)
        squares = jnp.sum((self.factor @ inner) * self.factor, axis=1)
        extra = 2 * self.own * jnp.sum(self.factor**2, axis=1) + self.own**2
        return squares + extra * vector

    def reduced_solve(self, scale, diagonal, *rights, jitter=None, refinements=0, coarse=False):
        # Woodbury's formula
        ridge = diagonal + scale**2 * self.own + (0.0 if jitter is None else jitter)
        half = scale[:, None] * self.factor
        inner = jnp.eye(RANK) + half.T @ (half / ridge[:, None])

        def solve(right):
            return (right - half @ jnp.linalg.solve(inner, half.T @ (right / ridge))) / ridge

        answers = []
        for right in rights:
            answer = solve(right)
            for _ in range(refinements):
                scaled = scale * self.product(scale * answer)
                answer = answer + solve(right - diagonal * answer - scaled)
            answers.append(jnp.where(scale > 0, answer, 0.0))
        return tuple(answers)

    def log_determinant(self, curvature, definite=True):
        ridge = 1 + curvature * self.own
        inner = self.factor.T @ ((curvature / ridge)[:, None] * self.factor)
        return jnp.linalg.slogdet(jnp.eye(RANK) + inner)[1] + jnp.sum(jnp.log(ridge))

    def inverse_diagonal(self, scale, diagonal, border=None):
        matrix = scale[:, None] * self.dense() * scale[None, :] + jnp.diag(diagonal)
        return jnp.diag(jnp.linalg.inv(matrix))

    def posterior_marginals(self, shift, precision, definite=True):
        covariance = self._covariance(precision)
        return covariance @ shift, jnp.diag(covariance)

    def response(self, precision, definite=True):
        return (
            jnp.diag(precision)
            - precision[:, None] * self._covariance(precision) * precision[None, :]
        )

    def _covariance(self, precision):
        # (K^-1 + P)^-1 by Woodbury's formula, which never inverts K
        ridge = 1 + precision * self.own
        spread = self.factor / ridge[:, None]
        inner = jnp.eye(RANK) + self.factor.T @ (precision[:, None] * spread)
        return jnp.diag(self.own / ridge) + spread @ jnp.linalg.solve(inner, spread.T)

    def is_finite(self):
        return jnp.all(jnp.isfinite(self.factor))

    def is_covariance(self):
        return jnp.array(True)

    def general_solve(self, diagonal, scale, right):
        raise NotImplementedError

    def solve_and_inverse_diagonal(self, diagonal, right, has_offset):
        raise NotImplementedError

    def squared_spans(self, diagonal, free, has_offset):
        raise NotImplementedError

    def dense(self):
        return self.factor @ self.factor.T + jnp.diag(self.own)


CASES = {
    "hinge": (losses.Hinge(2.0), criteria.LaplaceEvidence()),
    "squared hinge": (losses.SquaredHinge(2.0), criteria.Span()),
    "logistic": (losses.Logistic(1.5), criteria.LaplaceEvidence()),
    "quadratic": (losses.Quadratic(0.3), criteria.LaplaceEvidence()),
}


@pytest.mark.parametrize("name", CASES)
def test_another_representation_gives_the_same_fit_score_and_gradient(name):
    loss, criterion = CASES[name]
    y = LABELS if loss.is_classifier else TARGETS
    model = jsvm.KernelMachine(jsvm.kernels.RBF(1.0), loss)

    @eqx.filter_jit
    def everything(make):
        def score(factor):
            gram = make(factor, jnp.full(N, 0.4))
            fitted = fit_gram(model, gram, X, y, jnp.ones(N))
            return criterion.score(gram, fitted), fitted

        return jax.value_and_grad(score, has_aux=True)(FACTOR)

    (value, fitted), gradient = everything(Factored)
    (expected, reference), slopes = everything(
        lambda factor, own: DenseGram(Factored(factor, own).dense())
    )
    assert fitted.result == reference.result == 0
    np.testing.assert_allclose(fitted.latent, reference.latent, atol=1e-8)
    np.testing.assert_array_equal(fitted.group, reference.group)
    np.testing.assert_allclose(value, expected, rtol=1e-8)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-7)


CLASSIFIERS = {
    "mean field": (losses.Probit(0.3), gp.NaiveMeanField("log")),
    "mean field, flips": (losses.FlipNoise(0.05, 0.3), gp.NaiveMeanField("log")),
    "laplace": (losses.Logistic(1.5), gp.LaplaceLeaveOneOut("log")),
    "EP": (losses.Probit(0.3), gp.ExpectationPropagationLeaveOneOut("log")),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_another_representation_gives_the_same_classifier(name):
    loss, criterion = CLASSIFIERS[name]
    model = jsvm.KernelMachine(jsvm.kernels.RBF(1.0), loss)

    @eqx.filter_jit
    def everything(make):
        def score(factor):
            gram = make(factor, jnp.full(N, 0.4))
            predicted, result, _ = criterion.predictions(model, gram, X, LABELS, jnp.ones(N), None)
            return jnp.mean(criterion.score_each(LABELS, predicted)), (predicted, result)

        return jax.value_and_grad(score, has_aux=True)(FACTOR)

    (value, (predicted, result)), gradient = everything(Factored)
    (expected, (reference, code)), slopes = everything(
        lambda factor, own: DenseGram(Factored(factor, own).dense())
    )
    assert result == code and jsvm.RESULTS(int(code)).is_success
    np.testing.assert_allclose(predicted.mean, reference.mean, atol=1e-8)
    np.testing.assert_allclose(predicted.variance, reference.variance, rtol=1e-7)
    np.testing.assert_allclose(value, expected, rtol=1e-8)
    np.testing.assert_allclose(gradient, slopes, rtol=1e-6, atol=1e-8)
