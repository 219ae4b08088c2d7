"""Bayesian and differentiable model selection for support vector machines, in JAX.

Docstrings cite the papers behind the methods by these keys, so that a search for `[GS03, eq. 20]` finds the
code of that equation:

- GS03: C. Gold and P. Sollich, "Model selection for support vector machine classification", Neurocomputing
  55, 2003.
- GS05: C. Gold and P. Sollich, "Fast Bayesian support vector machine parameter tuning with the Nystrom
  method", International Joint Conference on Neural Networks, 2005.
- CKO04: W. Chu, S. S. Keerthi and C. J. Ong, "Bayesian support vector regression using a unified loss
  function", IEEE Transactions on Neural Networks 15, 2004.
- OW00: M. Opper and O. Winther, "Gaussian processes and SVM: mean field results and leave-one-out", in
  "Advances in Large Margin Classifiers", 2000.
- CT07: G. C. Cawley and N. L. C. Talbot, "Preventing over-fitting during model selection via Bayesian
  regularisation of the hyper-parameters", Journal of Machine Learning Research 8, 2007.
"""

from importlib.metadata import version as _version

from . import approximations as approximations
from . import calibration as calibration
from . import criteria as criteria
from . import datasets as datasets
from . import evidence as evidence
from . import fields as fields
from . import gp as gp
from . import gram as gram
from . import kernels as kernels
from . import linalg as linalg
from . import losses as losses
from . import optimizers as optimizers
from . import posteriors as posteriors
from . import priors as priors
from . import regression as regression
from . import sampling as sampling
from ._fit import Fit as Fit
from ._fit import Stats as Stats
from ._fit import fit as fit
from ._machine import KernelMachine as KernelMachine
from ._rank import fit_to_tolerance as fit_to_tolerance
from ._rank import lost_fit as lost_fit
from ._relevance import relevance as relevance
from ._shard import shard as shard
from .approximations import Corrected as Corrected
from .approximations import Exact as Exact
from .approximations import Nystrom as Nystrom
from .approximations import RandomFourier as RandomFourier
from .evidence import Comparison as Comparison
from .evidence import EvidenceGradient as EvidenceGradient
from .evidence import compare as compare
from .evidence import evidence_ascent as evidence_ascent
from .evidence import evidence_gradient as evidence_gradient
from .evidence import log_evidence as log_evidence
from .hyperparameters import domain as domain
from .hyperparameters import format_parameters as format_parameters
from .hyperparameters import free_parameters as free_parameters
from .hyperparameters import freeze as freeze
from .hyperparameters import frozen as frozen
from .hyperparameters import parameters as parameters
from .hyperparameters import replace as replace
from .hyperparameters import unfreeze as unfreeze
from .persistence import FileError as FileError
from .persistence import load as load
from .persistence import save as save
from .posteriors import Ensemble as Ensemble
from .posteriors import LaplaceMixture as LaplaceMixture
from .posteriors import LaplacePosterior as LaplacePosterior
from .posteriors import laplace as laplace
from .results import RESULTS as RESULTS
from .results import FitError as FitError
from .sampling import HyperPosterior as HyperPosterior
from .sampling import JointPosterior as JointPosterior
from .sampling import Posterior as Posterior
from .sampling import sample as sample
from .sampling import sample_hyperparameters as sample_hyperparameters
from .sampling import sample_jointly as sample_jointly
from .selection import History as History
from .selection import Selection as Selection
from .selection import select as select
from .selection import stopping as stopping

__version__ = _version("jaxsvm")
