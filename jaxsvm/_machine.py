"""The model: a kernel and a loss."""

from typing import Generic

import equinox as eqx
from typing_extensions import TypeVar

from .kernels import AbstractKernel
from .losses import AbstractLoss

Kernel_co = TypeVar("Kernel_co", bound=AbstractKernel, default=AbstractKernel, covariant=True)
Loss_co = TypeVar("Loss_co", bound=AbstractLoss, default=AbstractLoss, covariant=True)


class KernelMachine(eqx.Module, Generic[Kernel_co, Loss_co]):
    """A kernel machine, whose solution minimizes `sum_i L(y_i, f_i) + 1/2 f' K^-1 f`.

    This is minus the log posterior of the latent values, up to a constant [GS03, eqs. 3 and 7].

    The model is a pytree whose leaves are its hyperparameters, all of them unconstrained inexact
    arrays, so `jax.grad`, `jax.vmap`, optax and samplers work on it as it is. Read them in natural
    units by name (`model.loss.C`) or all at once with `jaxsvm.parameters`; hold some of them fixed with
    `jaxsvm.freeze`.

    **Arguments:** `kernel`; `loss`; `offset`, whether a free, unpenalized offset is added to the latent
    function, as in the least-squares support vector machine (a penalized one is a `Constant` kernel).

    **Example:**

    >>> x, y = jsvm.datasets.noisy_xor(30, key=jax.random.key(0), inputs=2)
    >>> kernel = jsvm.kernels.RBF(lengthscale=jnp.ones(2)) + jsvm.kernels.Constant(0.1)
    >>> model = jsvm.KernelMachine(kernel, jsvm.losses.Hinge(C=1.0))
    >>> [leaf.shape for leaf in jax.tree.leaves(model)]
    [(2,), (), (), ()]
    """

    kernel: Kernel_co
    loss: Loss_co
    offset: bool = eqx.field(static=True)

    def __init__(self, kernel: Kernel_co, loss: Loss_co, offset: bool = False):
        if not isinstance(kernel, AbstractKernel):
            raise TypeError(
                f"`kernel` must be a jaxsvm kernel, not {type(kernel).__name__}; wrap a function of two "
                "points in `kernels.Custom`"
            )
        if not isinstance(loss, AbstractLoss):
            raise TypeError(f"`loss` must be a jaxsvm loss, not {type(loss).__name__}")
        self.kernel = kernel
        self.loss = loss
        self.offset = bool(offset)


Machine = TypeVar("Machine", bound=KernelMachine)
Machine_co = TypeVar("Machine_co", bound=KernelMachine, default=KernelMachine, covariant=True)
