"""Priors of hyperparameters, for `jaxsvm.select` with any objective and for `sample_hyperparameters`.

A prior is a density of the unconstrained leaves of a model: `Default` for any model, `Independent`
distributions by name, `Around` a model, or a `Custom` function. The penalties `GaussianPenalty` and
`LaplacePenalty`, whose scale is integrated out, are for `jaxsvm.criteria.Regularized` [CT07].
"""

from ._default import Default as Default
from ._distributions import AbstractDistribution as AbstractDistribution
from ._distributions import HalfCauchy as HalfCauchy
from ._distributions import LogitNormal as LogitNormal
from ._distributions import LogNormal as LogNormal
from ._distributions import Normal as Normal
from ._penalties import AbstractPenalty as AbstractPenalty
from ._penalties import FunctionPenalty as FunctionPenalty
from ._penalties import GaussianPenalty as GaussianPenalty
from ._penalties import LaplacePenalty as LaplacePenalty
from ._penalties import is_active as is_active
from ._penalties import relevance as relevance
from ._prior import AbstractPrior as AbstractPrior
from ._prior import Around as Around
from ._prior import Custom as Custom
from ._prior import Independent as Independent
from ._prior import as_prior as as_prior
from ._prior import unnamed as unnamed
