"""The value of the log evidence: `log_evidence`."""

from typing import Any, Literal

from .._machine import KernelMachine
from ..approximations import AbstractApproximation, Exact
from ..runtime import warn_user
from ..sampling import SamplingWarning, set_up
from ._bridge import Bridge, bridge
from ._estimate import LogEvidence
from ._tempered import TemperedSMC, temper
from ._thermodynamic import Thermodynamic, integrate

EvidenceMethod = Literal["thermodynamic", "smc", "bridge"] | Thermodynamic | TemperedSMC | Bridge
_METHODS = {"thermodynamic": Thermodynamic, "smc": TemperedSMC, "bridge": Bridge}


def log_evidence(
    model: KernelMachine,
    x: Any,
    y: Any,
    *,
    key: Any,
    approximation: AbstractApproximation = Exact(),  # noqa: B008, it is immutable
    method: EvidenceMethod = "thermodynamic",
    weights: Any = None,
    progress: bool | None = None,
) -> LogEvidence:
    """The log evidence `ln Q(Y|X) = ln int db N(b; 0, I) exp(sum_i w_i ln Q(y_i | (V b)_i))`, by sampling.

    Here `ln Q(y | f) = log_normalizer - L(y, f)` and `V V' = K`. The estimate is exact up to its standard
    error; `criteria.LaplaceEvidence` approximates minus the log evidence. For the `Quadratic` loss it is the
    marginal likelihood of Gaussian process regression. [GS03, eq. 14]; the paper computes only its gradients.

    **Arguments:**

    - `model`, `x`, `y`, `weights`, `key`, `approximation`, `progress`: as for `jaxsvm.sample`.
    - `method`: `"thermodynamic"`, `"smc"` or `"bridge"`, or `evidence.Thermodynamic(...)`,
      `evidence.TemperedSMC(...)` or `evidence.Bridge(...)` with options. The only bias of thermodynamic
      integration is that of its rule, which it reports; it needs a loss that is finite everywhere. Sequential
      Monte Carlo chooses the temperatures by itself, took half the time for the same precision in trials with
      50 and 400 examples, and handles losses with a wall; but runs that disagree are its only sign of too few
      particles. Bridge sampling needs only draws from the posterior, so it suits many examples, where the
      posterior is nearly Gaussian.

    **Returns:** a `LogEvidence`. If anything is wrong, a `SamplingWarning` and `problems` say so: for example
    a low rank that loses more than 1 % of the prior's variance, or than the tolerance of `jaxsvm.Nystrom`.

    **Example:**

    >>> evidence = jsvm.log_evidence(model, x, y, key=jax.random.key(1))
    >>> bool(evidence.value < 0), bool(evidence.standard_error < 0.5)
    (True, True)
    """
    options = _as_method(method)
    setup, (run_key,) = set_up(
        model,
        x,
        y,
        weights,
        approximation=approximation,
        method=options.sampler,
        key=key,
        keys=1,
        by_batches=isinstance(options, Bridge),
    )
    setup.model.loss.require_normalizer()
    if isinstance(options, Thermodynamic):
        estimate = integrate(setup, options, run_key, progress)
    elif isinstance(options, Bridge):
        estimate = bridge(setup, options, run_key)
    else:
        estimate = temper(setup, options, run_key, progress)
    if estimate.problems:
        warn_user(
            "the log evidence should not be trusted as it is: " + ". ".join(estimate.problems),
            SamplingWarning,
        )
    return estimate


def _as_method(method: Any) -> Thermodynamic | TemperedSMC | Bridge:
    if isinstance(method, Thermodynamic | TemperedSMC | Bridge):
        return method
    if isinstance(method, str) and method in _METHODS:
        return _METHODS[method]()
    raise ValueError(
        f"`method` must be one of {tuple(_METHODS)}, or `evidence.Thermodynamic(...)`, "
        f"`evidence.TemperedSMC(...)` or `evidence.Bridge(...)`, not {method!r}"
    )
