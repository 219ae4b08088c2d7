"""Data sets: generators, and benchmark files from the user's folder."""

from ._benchmarks import arrays as arrays
from ._benchmarks import available as available
from ._benchmarks import load as load
from ._benchmarks import wdbc as wdbc
from ._containers import Dataset as Dataset
from ._containers import Split as Split
from ._synthetic import NoiseModel as NoiseModel
from ._synthetic import noisy_xor as noisy_xor
from ._synthetic import ringnorm as ringnorm
from ._synthetic import robot_arm as robot_arm
from ._synthetic import sinc as sinc
from ._synthetic import twonorm as twonorm
from ._synthetic import waveform as waveform
