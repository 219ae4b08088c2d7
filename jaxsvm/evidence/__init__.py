"""The exact evidence by sampling: its gradient, its value, and its ascent."""

from ._ascent import evidence_ascent as evidence_ascent
from ._ascent import median_model as median_model
from ._ascent import median_of_partitions as median_of_partitions
from ._bridge import Bridge as Bridge
from ._bridge import BridgeDiagnostics as BridgeDiagnostics
from ._compare import Comparison as Comparison
from ._compare import compare as compare
from ._estimate import LogEvidence as LogEvidence
from ._estimate import Path as Path
from ._gradient import EvidenceGradient as EvidenceGradient
from ._gradient import evidence_gradient as evidence_gradient
from ._log_evidence import log_evidence as log_evidence
from ._sampled import Sampled as Sampled
from ._tempered import TemperedDiagnostics as TemperedDiagnostics
from ._tempered import TemperedSMC as TemperedSMC
from ._thermodynamic import Thermodynamic as Thermodynamic
from ._thermodynamic import ThermodynamicDiagnostics as ThermodynamicDiagnostics
