"""Result codes: their severity, and the worst of a batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm import RESULTS
from jaxsvm.results import worst


def test_every_code_has_a_severity_and_a_message():
    assert sorted(code.severity for code in RESULTS) == list(range(len(RESULTS)))
    assert all(code.message.endswith(".") for code in RESULTS)
    assert [int(code) for code in RESULTS] == list(range(len(RESULTS)))  # `worst` indexes by them


def test_failures_are_worse_than_successes():
    successes = [code.severity for code in RESULTS if code.is_success]
    failures = [code.severity for code in RESULTS if not code.is_success]
    assert RESULTS.successful.severity == 0
    assert max(successes) < min(failures)


@pytest.mark.parametrize(
    "codes, expected",
    [
        ([0, 1, 0], RESULTS.local_optimum),
        ([RESULTS.small_change, RESULTS.iteration_limit], RESULTS.iteration_limit),
        ([RESULTS.invalid_data, RESULTS.time_limit, RESULTS.nonfinite], RESULTS.invalid_data),
        (RESULTS.precision_limit, RESULTS.precision_limit),
    ],
)
def test_the_worst_of_several_codes(codes, expected):
    assert worst(np.asarray(codes)) == expected
    assert jax.jit(worst)(jnp.asarray(codes, jnp.int32)) == expected


def test_the_message_of_a_batch_is_that_of_its_worst_member():
    x, y = jnp.array([[0.0], [0.7], [1.1]]), jnp.array([1.0, -1.0, 1.0])
    model = jsvm.KernelMachine(jsvm.kernels.RBF(0.8), jsvm.losses.SquaredHinge())

    def fit(y):
        return jsvm.fit(model, x, y, throw=False)

    batch = jax.vmap(fit)(jnp.stack([y, y.at[0].set(jnp.nan), y.at[0].set(2.0)]))
    codes = [RESULTS.successful, RESULTS.nonfinite, RESULTS.invalid_data]
    assert [int(code) for code in batch.result] == codes
    assert batch.message == RESULTS.invalid_data.message
