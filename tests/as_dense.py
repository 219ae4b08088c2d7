"""A low-rank kernel matrix in the form of a dense one, to compare results of both."""

import jax.numpy as jnp

from jaxsvm.approximations import Represented
from jaxsvm.gram import DenseGram


class AsDense:
    """The numbers of a low-rank representation, as a dense matrix."""

    def __init__(self, representation):
        self.representation = representation

    def matrix(self, kernel, x):
        gram = self.representation.matrix(kernel, x).gram
        return Represented(DenseGram(gram.dense()), None, jnp.zeros(()))
