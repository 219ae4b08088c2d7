"""Bayesian support vector regression: hyperparameters by the evidence, error bars, tested intervals.

python examples/regression.py                      # a few seconds
python examples/regression.py --figure sinc.png    # also draws it; needs the extra `plot`
"""

import argparse

import jax
import jax.numpy as jnp

import jaxsvm as jsvm

SCALE = 10 / 3**0.5  # the standard deviation of inputs uniform on [-10, 10]


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit a noisy sinc function, with error bars.")
    parser.add_argument("--examples", type=int, default=60)
    parser.add_argument("--figure", help="draw the regression into this file")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)

    noise = jsvm.losses.SoftInsensitive(C=10.0, epsilon=0.1, beta=0.3)
    x, y = jsvm.datasets.sinc(options.examples, noise=noise, key=jax.random.key(0))
    x_new, y_new = jsvm.datasets.sinc(2000, noise=noise, key=jax.random.key(1))

    selection = jsvm.regression.adapt(x / SCALE, y, progress=False)
    print(selection)
    fit = selection.fit()
    print(f"support vectors: {int(fit.free.sum())} free, {int(fit.bound.sum())} at the bound")
    variances = (float(loss.noise_variance) for loss in (selection.model.loss, noise))
    print("noise variance {:.4f}, true {:.4f}".format(*variances))

    posterior = jsvm.laplace(fit)
    mean, deviation = posterior.target(x_new / SCALE)
    error, bar = float(jnp.mean((y_new - mean) ** 2)), float(jnp.mean(deviation))
    print(f"mean squared error {error:.4f}, mean error bar {bar:.3f}")
    half, nearly_all = jsvm.calibration.coverage(
        posterior, x_new / SCALE, y_new, [0.5, 0.95]
    ).shares
    print(f"intervals of 50 % and 95 % hold {half:.0%} and {nearly_all:.0%} of new targets")

    if options.figure:
        from matplotlib.figure import Figure

        import jaxsvm.plot

        figure = Figure(layout="constrained")
        jaxsvm.plot.predictions(posterior, ax=figure.subplots())
        figure.savefig(options.figure, dpi=150)


if __name__ == "__main__":
    main()
