"""A forked process raises an error if it cannot use JAX, instead of hanging."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")

PREPARE = """
import os, signal, tempfile, warnings
import numpy as np
import jaxsvm as jsvm
os.register_at_fork(after_in_child=lambda: signal.alarm(60))  # ends a child that hangs
warnings.simplefilter("ignore")  # JAX warns of the fork itself
x = np.linspace(-1, 1, 24).reshape(12, 2)
y = np.where(x[:, 0] > 0.1, 1.0, -1.0)

def fit():
    model = jsvm.KernelMachine(jsvm.kernels.RBF(1.0), jsvm.losses.Hinge(1.0))
    return jsvm.fit(model, x, y)

def in_child(run):
    child = os.fork()
    if child == 0:
        try:
            run()
            print("it works", flush=True)
        except RuntimeError as error:
            print(error, flush=True)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
"""

AFTER_A_FIT = """
from jaxsvm.sklearn import LSSVC
fitted = fit()
path = os.path.join(tempfile.mkdtemp(), "fit")
jsvm.save(path, fitted)
estimator = LSSVC(max_iter=1, ard=False).fit(x, y)
tasks = [
    fit,
    lambda: jsvm.kernels.RBF(3.0),
    lambda: jsvm.fit(fitted.model, x, y),
    lambda: fitted.predict(x),
    lambda: jsvm.select(fitted.model, x, y, jsvm.criteria.LaplaceEvidence()),
    lambda: jsvm.criteria.GACV()(fitted.model, x, y),
    lambda: jsvm.sample(fitted.model, x, y, key=None),
    lambda: jsvm.evidence_gradient(fitted.model, x, y, key=None),
    lambda: jsvm.log_evidence(fitted.model, x, y, key=None),
    lambda: jsvm.gp.mean_field(fitted.model, x, y),
    lambda: LSSVC().fit(x, y),
    lambda: estimator.predict(x),
    lambda: jsvm.load(path),
    lambda: jsvm.parameters(fitted.model),
    lambda: jsvm.laplace(fitted),
    lambda: fitted.support,
    lambda: fitted.gram(),
    lambda: fitted.model.kernel.matrix(fitted.x, fitted.x, same=True),
    lambda: fitted.model.loss.value(y, y),
    lambda: jsvm.kernels.is_covariance(np.eye(3)),
    lambda: jsvm.datasets.twonorm(5, key=None),
]
for task in tasks:
    in_child(task)
"""

AFTER_A_KERNEL = """
model = jsvm.KernelMachine(jsvm.kernels.RBF(1.0), jsvm.losses.Hinge(1.0))
in_child(lambda: jsvm.fit(model, x, y))
"""

BEFORE_ANY_USE = """
in_child(fit)
fit()
"""

AFTER_SAMPLING = """
import jax
posterior = jsvm.sample(fit().model, x, y, key=jax.random.key(0), draws=8, warmup=8, chains=2)
in_child(lambda: print(posterior.diagnostics))
"""

WITH_JOBLIB = """
from joblib import Parallel, delayed
fit()
try:
    Parallel(2, backend="multiprocessing")(delayed(fit)() for _ in range(2))
except RuntimeError as error:
    print(error)
"""


def printed(script: str) -> list[str]:
    """The lines a script prints in a process that may use JAX for a minute."""
    run = subprocess.run(
        [sys.executable, "-c", PREPARE + script], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()


def test_every_entry_point_says_what_to_do_after_a_fork():
    lines = printed(AFTER_A_FIT)
    assert len(lines) == 21
    for line in lines:
        assert "was forked" in line and "loky" in line and "spawn" in line and "threads" in line


@pytest.mark.parametrize("script", [AFTER_A_KERNEL, WITH_JOBLIB])
def test_whatever_used_jax_first(script):
    (line,) = printed(script)
    assert "was forked" in line


def test_diagnostics_can_be_printed_after_a_fork():
    lines = printed(AFTER_SAMPLING)
    assert lines[0].startswith("chains 2 of 8 draws") and lines[-1] == "it works"


def test_a_child_forked_before_any_use_of_jax_works():
    assert printed(BEFORE_ANY_USE) == ["it works"]
