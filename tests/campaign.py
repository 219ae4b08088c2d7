"""Random fits from trivial to hopeless, judged in NumPy: does a success deserve its name?

    python tests/campaign.py                        # 20,000 problems in float64, 10,000 in float32
    python tests/campaign.py --problems 2000        # a shorter run
    python tests/campaign.py --output FILE          # also writes what it prints to a file

Sizes from 2 to 300, C from 1e-4 to 1e6, amplitudes 1e-6 to 1e6, lengthscales 1e-3 to 1e3, input scales
1e-5 to 1e5, duplicate rows, constant inputs, weights from 0 to 1e8, free offsets, every loss. The judge
shares no code with the library: it computes the kernel matrix from differences in float64, and the
duality gap of the returned coefficients. Printed, for each loss: how many fits were tried, how many
failed honestly (with a result code that says so), how many succeeded wrongly, and the largest relative
gap among the successes. A line for each wrong success says where to find it.

Two columns say why fits failed. `beyond` counts the failures where no point of that precision can pass:

- float32: the solution in float64, its coefficients rounded to float32, does not pass the judge (where
  the fit in float64 fails through its own fault, the failure does not count as beyond);
- float64: one random rounding error in each coefficient changes the relative gap of the returned point by
  more than the limit (the standard deviation of 20 draws).

`matrix` counts the other failures where rounding errors of the kernel matrix change the solution: the same
two tests fail when each entry of the matrix has a rounding error of that precision. The remaining failures
(failed minus beyond minus matrix) are the solver's fault.
"""

import argparse
import contextlib
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_ndtr

import jaxsvm as jsvm

SHAPES = (
    (2, 1),
    (13, 2),
    (40, 6),
    (120, 3),
    (300, 8),
)  # examples and inputs, few, to compile little
LARGEST_GAP = {"float64": 1e-6, "float32": 1e-3}
EPSILON = {"float64": 2**-52, "float32": 2**-23}
BATCH = 36  # problems in one program
DRAWS = 20  # of random rounding errors
STEPS = (
    1e-5,
    1e-3,
)  # over which the judge looks whether a loss is steep, relative to the latent value


class Problems(NamedTuple):
    """Problems of one shape and one loss; the first axis of all arrays is the problem."""

    loss: str
    offset: bool
    x: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    lengthscale: np.ndarray
    variance: np.ndarray
    parameters: dict[str, np.ndarray]


# -------------------------------------------------------------------------------- losses, literally


def _ramp(excess, C):
    return C * np.maximum(excess, 0)


def _soft(size, C, epsilon, beta):
    zone = (1 - beta) * epsilon
    inside = C * np.maximum(size - zone, 0) ** 2 / (4 * beta * epsilon)
    return np.where(size <= (1 + beta) * epsilon, inside, C * (size - epsilon))


def _trigonometric(z):
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(
            z >= 1, 0.0, np.where(z <= -1, np.inf, -2 * np.log(np.cos(np.pi * (1 - z) / 4)))
        )


def _probit_slope(z):
    return np.exp(-(z**2) / 2 - np.log(2 * np.pi) / 2 - log_ndtr(z))


# the loss of a label or target y at f
VALUE = {
    "Hinge": lambda y, f, C: _ramp(1 - y * f, C),
    "SquaredHinge": lambda y, f, C: C / 2 * np.maximum(1 - y * f, 0) ** 2,
    "LeastSquares": lambda y, f, C: C / 2 * (y - f) ** 2,
    "EpsilonInsensitive": lambda y, f, C, epsilon: _ramp(np.abs(y - f) - epsilon, C),
    "SoftInsensitive": lambda y, f, C, epsilon, beta: _soft(np.abs(y - f), C, epsilon, beta),
    "Huber": lambda y, f, C, epsilon: _soft(np.abs(y - f), C, epsilon, 1.0),
    "Laplacian": lambda y, f, C: C * np.abs(y - f),
    "Quadratic": lambda y, f, noise_variance: (y - f) ** 2 / (2 * noise_variance),
    "Logistic": lambda y, f, C: C * np.logaddexp(0, -y * f),
    "Probit": lambda y, f, noise_variance: -log_ndtr(y * f / np.sqrt(noise_variance)),
    "FlipNoise": lambda y, f, flip_rate, noise_variance: (
        -np.log(flip_rate + (1 - 2 * flip_rate) * np.exp(log_ndtr(y * f / np.sqrt(noise_variance))))
    ),
    "Trigonometric": lambda y, f: _trigonometric(y * f),
}
# Fenchel's conjugate of `w L` at `a` within its bounds: `sup_f (-a f - w L(y, f))`
CONJUGATE = {
    "Hinge": lambda y, a, w, C: -y * a,
    "SquaredHinge": lambda y, a, w, C: -y * a + a**2 / (2 * w * C),
    "LeastSquares": lambda y, a, w, C: -y * a + a**2 / (2 * w * C),
    "EpsilonInsensitive": lambda y, a, w, C, epsilon: -y * a + epsilon * np.abs(a),
    "SoftInsensitive": lambda y, a, w, C, epsilon, beta: (
        -y * a + (1 - beta) * epsilon * np.abs(a) + beta * epsilon * a**2 / (w * C)
    ),
    "Huber": lambda y, a, w, C, epsilon: -y * a + epsilon * a**2 / (w * C),
    "Laplacian": lambda y, a, w, C: -y * a,
    "Quadratic": lambda y, a, w, noise_variance: -y * a + noise_variance * a**2 / (2 * w),
}
BOUNDED = ("Hinge", "EpsilonInsensitive", "SoftInsensitive", "Huber", "Laplacian")
ONE_SIDED = ("Hinge", "SquaredHinge")
CLASSIFIERS = (*ONE_SIDED, "LeastSquares", "Logistic", "Probit", "FlipNoise", "Trigonometric")
# `-dL/df` of the smooth losses
SLOPE = {
    "Logistic": lambda y, f, C: C * y / (1 + np.exp(np.minimum(y * f, 700.0))),
    "Probit": lambda y, f, noise_variance: (
        y * _probit_slope(y * f / np.sqrt(noise_variance)) / np.sqrt(noise_variance)
    ),
    "FlipNoise": lambda y, f, flip_rate, noise_variance: (
        y
        * (1 - 2 * flip_rate)
        * np.exp(-((f**2) / noise_variance) / 2)
        / np.sqrt(2 * np.pi * noise_variance)
        / (flip_rate + (1 - 2 * flip_rate) * np.exp(log_ndtr(y * f / np.sqrt(noise_variance))))
    ),
    "Trigonometric": lambda y, f: np.where(
        y * f >= 1, 0.0, y * np.pi / 2 * np.tan(np.pi * (1 - np.clip(y * f, -1, 1)) / 4)
    ),
}


# -------------------------------------------------------------------------------- the judge


def relative_gap(
    loss,
    offset,
    x,
    y,
    w,
    lengthscale,
    variance,
    parameters,
    dual,
    b,
    dtype,
    change=lambda gram: gram,
) -> float:
    """The duality gap of a solution over its primal objective, in float64, from the definitions.

    A piecewise loss has its conjugate in closed form. For a smooth one dual coefficients are the slopes at
    the latent values where the loss is flat, with no gap in Fenchel's inequality, and the returned ones
    where it is steep, with a gap found by bisection; of a loss that is not convex this measures how
    far the solution is from a stationary point. Coefficients that do not sum to zero, as a free offset asks,
    are made to by shrinking those of one sign. `change` may put rounding errors into the kernel matrix.
    """
    count = w > 0
    x, y, w, dual = x[count], y[count], w[count], dual[count]
    squared = np.zeros((len(x), len(x)))
    for column in x.T:
        squared += ((column[:, None] - column[None, :]) / lengthscale) ** 2
    gram = change(variance * np.exp(-squared / 2))
    f = gram @ dual + b
    with np.errstate(over="ignore", invalid="ignore"):
        primal = np.sum(w * VALUE[loss](y, f, **parameters)) + dual @ gram @ dual / 2
    if loss in SLOPE:
        gap = min(
            _smooth_gap(loss, offset, gram, y, w, parameters, dual, f, step) for step in STEPS
        )
    else:
        if loss in BOUNDED:
            dual = np.clip(dual, -w * parameters["C"], w * parameters["C"])
        if loss in ONE_SIDED:
            dual = np.where(y * dual > 0, dual, 0.0)
        other = _balanced(dual, offset)
        terms = w * VALUE[loss](y, f, **parameters) + CONJUGATE[loss](y, other, w, **parameters)
        gap = np.sum(terms + other * f) + (dual - other) @ gram @ (dual - other) / 2
    if not np.isfinite(gap):
        return np.inf
    # latent values of the size of the targets are known up to their rounding errors, and so are losses
    noise = (
        64 * EPSILON[dtype] / LARGEST_GAP[dtype] * np.sum(w * VALUE[loss](y, 0 * y, **parameters))
    )
    return float(abs(gap) / (primal + noise)) if gap != 0 else 0.0


def _smooth_gap(loss, offset, gram, y, w, parameters, dual, f, step):
    """The gap of a smooth loss whose steepness is measured over a step.

    The dual coefficients depend on it, and the gap is above the true one for any of them: the smallest
    counts. It makes a difference where the curvature jumps.
    """
    slope, value = partial(SLOPE[loss], **parameters), partial(VALUE[loss], **parameters)
    steep = _steepness(slope, y, f, step) * w * np.diag(gram) > 1
    other = _balanced(np.where(steep, dual, w * slope(y, f)), offset)
    match = np.where(steep, _matching(slope, y, other / w, f), f)  # where the slope is `other`
    with np.errstate(invalid="ignore"):
        terms = w * (value(y, f) - value(y, match)) + other * (f - match)
    # for the flat ones Fenchel's gap is zero but for what balancing has changed
    terms = np.where(steep, terms, np.abs(w * slope(y, f) - other) * (1 + np.abs(f)))
    gap = np.sum(np.abs(terms)) + (dual - other) @ gram @ (dual - other) / 2
    return gap if np.isfinite(gap) else np.inf


def _steepness(slope, y, f, step):
    """The curvature by central differences."""
    step = step * np.maximum(np.abs(f), 1e-3)
    return np.abs(slope(y, f + step) - slope(y, f - step)) / (2 * step)


def _matching(slope, y, wanted, f):
    """The latent value near `f` at which the slope has the wanted value, by bisection.

    Far from it, or for a loss that is not convex, the ends do not bracket it and one of them is returned.
    """
    reach = 1e-2 * np.maximum(np.abs(f), 1e-3)
    low, high = f - reach, f + reach
    rising = slope(y, high) > slope(y, low)
    for _ in range(200):
        middle = (low + high) / 2
        up = (slope(y, middle) < wanted) == rising
        low, high = np.where(up, middle, low), np.where(up, high, middle)
    return (low + high) / 2


def _balanced(dual, offset):
    excess = np.sum(dual)
    side = dual * excess > 0
    if not offset or not np.any(side):
        return dual
    return np.where(side, dual * (1 - abs(excess) / np.sum(np.abs(dual[side]))), dual)


# -------------------------------------------------------------------------------- the problems


def random_problems(loss, offset, shape, count, seed, dtype) -> Problems:
    """Problems of one shape, from trivial to hopeless, rounded to the precision of the fit."""
    rng = np.random.default_rng([seed, *shape, offset, *map(ord, loss)])
    n, d = shape

    def power(low, high, size=(count,)):
        return (10 ** rng.uniform(low, high, size)).astype(dtype).astype(float)

    x = rng.normal(size=(count, n, d)) * power(-5, 5)[:, None, None]
    x += rng.choice([0.0, 1.0], (count, 1, 1)) * x[:, :1, :]  # some far from the origin
    normal = rng.normal(size=(count, d))
    score = np.einsum("pnd,pd->pn", x, normal)
    score /= np.maximum(np.std(score, axis=1, keepdims=True), 1e-300)
    score += rng.choice([0.0, 0.3, 3.0], (count, 1)) * rng.normal(size=(count, n))
    for p in range(count):
        kind = rng.integers(6)
        if kind == 0:  # a third of the rows again, most of them with another label or target
            x[p, n - n // 3 :] = x[p, : n // 3]
        if kind == 1:  # constant inputs
            x[p, :, rng.integers(d) :] = rng.normal()
        if kind == 2:  # one example of a class, or one wild target
            score[p] = np.abs(score[p])
    if loss in CLASSIFIERS:
        y = np.where(score > 0, 1.0, -1.0)
        y[:, 0], y[:, 1] = 1.0, -1.0
    else:
        y = (np.sin(2 * score) + rng.choice([0.0, 100.0], (count, 1))) * power(-4, 4)[:, None]
    weights = np.stack(
        [
            np.ones((count, n)),
            rng.integers(0, 4, (count, n)).astype(float),  # repeated and absent rows
            np.broadcast_to(power(0, 8)[:, None], (count, n)),
            np.where(rng.random((count, n)) < 0.2, 0.0, power(-8, 8, (count, n))),
        ]
    )[rng.integers(0, 4, count), np.arange(count)]
    weights[:, :2] = np.maximum(weights[:, :2], 1e-8)
    size = np.std(y, axis=1) if loss not in CLASSIFIERS else 1.0
    every = {
        "C": power(-4, 6),
        "epsilon": (power(-3, 0.5) * np.maximum(size, 1e-30)).astype(dtype).astype(float),
        "beta": rng.uniform(0.01, 0.99, count).astype(dtype).astype(float),
        "noise_variance": power(-6, 4),
        "flip_rate": rng.uniform(0.001, 0.4, count).astype(dtype).astype(float),
    }
    names = VALUE[loss].__code__.co_varnames[2 : VALUE[loss].__code__.co_argcount]
    return Problems(
        loss=loss,
        offset=offset,
        x=x.astype(dtype).astype(float),
        y=y.astype(dtype).astype(float),
        weights=weights.astype(dtype).astype(float),
        lengthscale=power(-3, 3),
        variance=power(-6, 6),
        parameters={name: every[name] for name in names},
    )


@partial(jax.jit, static_argnames=("loss", "offset"))
def _fit_all(x, y, weights, lengthscale, variance, parameters, loss, offset):
    def one(x, y, weights, lengthscale, variance, parameters):
        kernel = jsvm.kernels.RBF(lengthscale, variance)
        model = jsvm.KernelMachine(kernel, getattr(jsvm.losses, loss)(**parameters), offset)
        fitted = jsvm.fit(model, x, y, weights=weights, throw=False)
        return fitted.dual, fitted.offset, fitted.result, fitted.stats

    return jax.vmap(one)(x, y, weights, lengthscale, variance, parameters)


class Verdict(NamedTuple):
    """Of one fit: its result code, the judge's relative gap, and what the fit says of itself.

    Of a failure, whether it is `beyond` the precision, and if not, whether the `matrix` is.
    """

    code: int
    gap: float
    kkt: float
    own_gap: float
    iterations: int
    beyond: bool = False
    matrix: bool = False


def as_stored(problems: Problems, dtype: str) -> Problems:
    """The problems with the hyperparameters that their models have.

    A model stores logarithms. Their rounding errors are the model's, not the solver's.
    """
    with jax.enable_x64(dtype == "float64"):

        def stored(lengthscale, variance, parameters):
            kernel = jsvm.kernels.RBF(lengthscale, variance)
            loss = getattr(jsvm.losses, problems.loss)(**parameters)
            known = {name: getattr(loss, name) for name in parameters}
            return kernel.lengthscale, kernel.variance, known

        given = (problems.lengthscale, problems.variance, problems.parameters)
        arrays = jax.tree.map(lambda a: jnp.asarray(a, dtype), given)
        values = jax.tree.map(lambda a: np.asarray(a).astype(float), jax.vmap(stored)(*arrays))
    return problems._replace(lengthscale=values[0], variance=values[1], parameters=values[2])


def judge(problems: Problems, dtype: str) -> list[Verdict]:
    """Fit all problems, judge one after the other, then find the reasons of the failures."""
    dual, offset, result, stats = _fitted(problems, dtype)
    problems = as_stored(problems, dtype)
    verdicts = []
    for p in range(len(dual)):
        gap = _gap_of(problems, p, dual[p], offset[p], dtype)
        kkt, own_gap = float(stats.kkt_residual[p]), float(stats.duality_gap[p])
        verdicts.append(Verdict(int(result[p]), gap, kkt, own_gap, int(stats.iterations[p])))
    failed = [p for p, verdict in enumerate(verdicts) if not is_success(verdict)]
    if failed and dtype == "float32":  # compare with the solutions in float64
        some = _rows(problems, failed)
        better, better_offset, _, _ = _fitted(some, "float64")
        dual[failed], offset[failed] = better, better_offset
    for p in failed:
        limited = limited_in_single if dtype == "float32" else limited_in_double
        beyond, matrix = limited(problems, p, dual[p], offset[p])
        verdicts[p] = verdicts[p]._replace(beyond=beyond, matrix=matrix and not beyond)
    return verdicts


def _rows(problems, places):
    return Problems(*problems[:2], *jax.tree.map(lambda a: a[np.asarray(places)], problems[2:]))


def _fitted(problems, dtype):
    """Coefficients, offsets, result codes and statistics, in batches of one size to compile once."""
    count = len(problems.x)
    parts = []
    with jax.enable_x64(dtype == "float64"):
        for start in range(0, count, BATCH):
            places = np.minimum(np.arange(start, start + BATCH), count - 1)
            arrays = jax.tree.map(lambda a: jnp.asarray(a, dtype), _rows(problems, places)[2:])
            parts.append(_fit_all(*arrays, loss=problems.loss, offset=problems.offset))
        parts = [jax.tree.map(np.asarray, part) for part in parts]
    dual, offset, result, stats = jax.tree.map(lambda *a: np.concatenate(a)[:count], *parts)
    return dual.astype(float), offset.astype(float), result, stats


def _gap_of(problems, p, dual, offset, dtype, change=lambda gram: gram):
    own = jax.tree.map(lambda a: a[p], problems[2:])
    return relative_gap(problems.loss, problems.offset, *own, dual, offset, dtype, change)


def _single(a):
    return np.asarray(a, np.float32).astype(float)


def limited_in_single(problems, p, dual, offset):
    """Whether rounding the solution, or the kernel matrix as well, to float32 spoils it."""
    point = (problems, p, _single(dual), _single(offset), "float32")
    gaps = _gap_of(*point), _gap_of(*point, _single)
    solved = _gap_of(problems, p, dual, offset, "float32") <= LARGEST_GAP["float32"]
    if not solved and not any(limited_in_double(problems, p, dual, offset)):
        return False, False  # nothing to compare with
    return gaps[0] > LARGEST_GAP["float32"], gaps[1] > LARGEST_GAP["float32"]


def limited_in_double(problems, p, dual, offset):
    """Whether rounding errors of the coefficients, or of the kernel matrix, move the gap too far."""
    rng = np.random.default_rng(p)

    def rounded(a):
        return a * (1 + EPSILON["float64"] * rng.choice([-1.0, 1.0], np.shape(a)))

    def symmetric(gram):
        upper = np.triu(rounded(gram))
        return upper + np.triu(upper, 1).T

    coefficients = [_gap_of(problems, p, rounded(dual), offset, "float64") for _ in range(DRAWS)]
    matrices = [_gap_of(problems, p, dual, offset, "float64", symmetric) for _ in range(DRAWS)]
    return _spreads(coefficients), _spreads(matrices)


def _spreads(gaps):
    finite = np.isfinite(gaps)
    return bool(np.std(gaps) > LARGEST_GAP["float64"] if np.all(finite) else np.any(finite))


def campaign(problems: int, dtype: str, seed: int, quick=False, report=lambda line: None):
    """Verdicts by loss, for a number of problems over all shapes, with and without an offset.

    The quick form has one shape for each loss with or without an offset, in turn, to compile little.
    """
    cells = [(loss, offset) for loss in VALUE for offset in (False, True)]
    shapes = {cell: SHAPES for cell in cells}
    if quick:
        shapes = {cell: (SHAPES[place % 4],) for place, cell in enumerate(cells)}
        shapes["Hinge", False] = SHAPES
    share, rest = divmod(problems, sum(len(some) for some in shapes.values()))
    verdicts = {loss: [] for loss in VALUE}
    for loss, offset in cells:
        for shape in shapes[loss, offset]:
            count, rest = share + (rest > 0), rest - 1
            some = judge(random_problems(loss, offset, shape, count, seed, dtype), dtype)
            for number, verdict in enumerate(some):
                if is_wrong(verdict, dtype):
                    report(f"wrong: {loss}, offset {offset}, shape {shape}, {number}: {verdict}")
            verdicts[loss] += some
        if offset:
            report(_row(loss, verdicts[loss], dtype))
            jax.clear_caches()  # the number of programs is limited, and no other loss needs these
    return verdicts


def is_success(verdict: Verdict) -> bool:
    """Whether the fit says that its answer can be used."""
    return jsvm.RESULTS(verdict.code).is_success


def is_wrong(verdict: Verdict, dtype: str) -> bool:
    """Whether the fit reports a success although the judge disagrees."""
    return is_success(verdict) and not verdict.gap <= LARGEST_GAP[dtype]


def is_own_fault(verdict: Verdict) -> bool:
    """Whether the fit failed although its precision would have sufficed."""
    return not (is_success(verdict) or verdict.beyond or verdict.matrix)


HEADER = (
    f"{'loss':<20}{'tried':>8}{'failed':>8}{'beyond':>8}{'matrix':>8}{'wrong':>8}"
    f"{'largest gap':>14}{'steps':>8}"
)


def _row(name, verdicts, dtype):
    gaps = [v.gap for v in verdicts if is_success(v)]
    counts = (
        len(verdicts),
        sum(not is_success(v) for v in verdicts),
        sum(v.beyond for v in verdicts),
        sum(v.matrix for v in verdicts),
        sum(is_wrong(v, dtype) for v in verdicts),
    )
    steps = np.mean([v.iterations for v in verdicts])
    row = name.ljust(20) + "".join(f"{count:>8}" for count in counts)
    return row + f"{max(gaps, default=0):>14.1e}{steps:>8.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=20_000, help="in float64; half in float32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="a file for what is printed, line by line")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(options.output.open("w")) if options.output else None

        def show(line):
            print(line, flush=True)
            if file is not None:
                print(line, file=file, flush=True)

        wrong = _both_precisions(options, show)
    sys.exit(bool(wrong))


def _both_precisions(options, show) -> int:
    """Run and show the campaign; return the number of wrong successes."""
    wrong = 0
    for dtype, count in (("float64", options.problems), ("float32", options.problems // 2)):
        limit = f"success up to a relative gap of {LARGEST_GAP[dtype]:g}"
        show(f"{dtype}, {count} problems, seed {options.seed}, {limit}")
        show(HEADER)
        verdicts = campaign(count, dtype, options.seed, report=show)
        everything = [v for some in verdicts.values() for v in some]
        show(_row("all", everything, dtype) + "\n")
        wrong += sum(is_wrong(v, dtype) for v in everything)
    return wrong


if __name__ == "__main__":
    main()
