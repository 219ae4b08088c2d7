"""Data sets: generators, benchmark files from a folder of the user's, and their containers."""

from ._files import arrays as arrays
from ._files import available as available
from ._files import load as load
from ._files import wdbc as wdbc
from ._synthetic import noisy_xor as noisy_xor
from ._synthetic import ringnorm as ringnorm
from ._synthetic import robot_arm as robot_arm
from ._synthetic import sinc as sinc
from ._synthetic import twonorm as twonorm
from ._synthetic import waveform as waveform
from ._types import Dataset as Dataset
from ._types import NoiseModel as NoiseModel
from ._types import Split as Split
