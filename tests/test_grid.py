"""Nothing public is forgotten: not in the grid, and not among the literal references."""

import campaign
import grid
import jax
import numpy as np
import pytest
import reference_kernels
import reference_losses

import jaxsvm as jsvm
from jaxsvm import criteria, gp, kernels, losses

KERNELS = grid.public_classes(kernels, kernels.AbstractKernel)
LOSSES = grid.public_classes(losses, losses.AbstractLoss)
CRITERIA = grid.public_classes(criteria, criteria.AbstractCriterion) | grid.public_classes(
    gp, criteria.AbstractCriterion
)


def test_every_kernel_is_in_the_grid():
    assert len(KERNELS) >= 16
    assert {type(make(3)) for make in grid.KERNELS.values()} == KERNELS
    assert {type(make(1.0)[0]) for make in reference_kernels.CASES.values()} == KERNELS
    for name, make in grid.KERNELS.items():
        assert name.split(",")[0] == type(make(3)).__name__


def test_every_loss_is_in_the_grid():
    assert len(LOSSES) >= 12
    assert {name: type(loss) for name, loss in grid.LOSSES.items()} == {
        loss.__name__: loss for loss in LOSSES
    }
    assert {type(make(1.0).loss) for make in reference_losses.CASES.values()} == LOSSES
    # a normalized loss is sampled; its fits, with several optima and kinks, are not part of the campaign
    assert set(campaign.VALUE) == {loss.__name__ for loss in LOSSES} - {"Normalized"}


def test_every_criterion_is_in_the_grid():
    assert len(CRITERIA) >= 16
    assert {type(criterion) for criterion, _ in grid.CRITERIA.values()} == CRITERIA


@pytest.mark.parametrize("name", grid.CRITERIA)
def test_a_criterion_takes_its_loss(name):
    criterion, loss = grid.CRITERIA[name]
    x = np.linspace(-1, 1, 8).reshape(4, 2)
    y = np.array([1.0, -1.0, 1.0, -1.0])
    criterion.check(jsvm.KernelMachine(kernels.RBF(), loss), x, y)


def test_a_wrong_gradient_is_detected():
    grid.check_gradient(lambda v: v[0] ** 2 + 3 * v[1], np.array([1.0, 2.0]), twice=True)

    def stopped(v):
        return v[0] ** 2 + 3 * jax.lax.stop_gradient(v[1])

    with pytest.raises(AssertionError):
        grid.check_gradient(stopped, np.array([1.0, 2.0]))
    with pytest.raises(AssertionError, match="zero"):
        grid.check_gradient(lambda v: v[0] * 0.0, np.array([1.0, 2.0]))
