"""`python -m jaxsvm`: generate Twonorm, fit a support vector machine, and say what was found."""

import argparse
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from . import __version__, datasets, fit, kernels, losses
from .machine import KernelMachine


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the demonstration with the given command-line arguments."""
    parser = argparse.ArgumentParser(prog="python -m jaxsvm", description=__doc__)
    parser.add_argument(
        "--examples", type=_positive(int), default=400, metavar="N", help="to train on"
    )
    parser.add_argument(
        "--C", type=_positive(float), default=1.0, help="the penalty of the hinge loss"
    )
    parser.add_argument(
        "--lengthscale", type=_positive(float), default=5.0, help="of the RBF kernel"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the generated data")
    parser.add_argument("--version", action="version", version=f"jaxsvm {__version__}")
    chosen = parser.parse_args(arguments)
    if chosen.examples < 10:
        parser.error("argument --examples: ten examples are the least, so that both classes occur")
    with jax.enable_x64(True):
        print(_report(chosen))


def _report(chosen) -> str:
    train_key, test_key = jax.random.split(jax.random.key(chosen.seed))
    x, y = datasets.twonorm(chosen.examples, key=train_key)
    x_test, y_test = datasets.twonorm(7000, key=test_key)
    kernel = kernels.RBF(chosen.lengthscale) + kernels.Constant(0.1)
    model = KernelMachine(kernel, losses.Hinge(chosen.C))

    first, fitted = _timed(lambda: fit(model, x, y))
    again, fitted = _timed(lambda: fit(model, x, y))
    slope, gradient = _timed(lambda: jax.grad(lambda m: jnp.mean(fit(m, x, y).latent ** 2))(model))
    errors = [100 * float(jnp.mean(fitted.predict(a) != b)) for a, b in ((x, y), (x_test, y_test))]
    rows = [
        ("training error", f"{errors[0]:.2f} %"),
        ("test error", f"{errors[1]:.2f} %  (7000 examples; the best possible is 2.28 %)"),
        ("support vectors", f"{int(fitted.support.sum())}  ({int(fitted.free.sum())} marginal, "
         f"{int(fitted.bound.sum())} at the bound)"),
        ("optimality", f"KKT residual {float(fitted.stats.kkt_residual):.1e}, duality gap "
         f"{float(fitted.stats.duality_gap):.1e}"),
        ("sensitivity", f"d mean(f^2) / d ln C = {float(gradient.loss.log_C):+.3f}, d / d ln lengthscale = "
         f"{float(gradient.kernel.left.log_lengthscale):+.3f}"),
        ("time", f"{1e3 * again:.1f} ms in {int(fitted.stats.iterations)} Newton steps  (first call "
         f"{first:.1f} s with compilation, gradient {slope:.1f} s with compilation)"),
    ]  # fmt: skip
    title = (
        f"Twonorm, {chosen.examples} examples, 20 inputs: hinge loss with C = {chosen.C:g}, "
        f"RBF kernel with lengthscale {chosen.lengthscale:g}"
    )
    return "\n".join([title, "-" * len(title), *(f"{name:16s} {text}" for name, text in rows)])


def _timed(function):
    start = time.perf_counter()
    answer = jax.block_until_ready(function())
    return time.perf_counter() - start, answer


def _positive(kind):
    def convert(text):
        value = kind(text)
        if not value > 0:
            raise argparse.ArgumentTypeError(f"must be positive, but is {text}")
        return value

    convert.__name__ = kind.__name__  # argparse names it in its messages
    return convert


if __name__ == "__main__":
    main()
