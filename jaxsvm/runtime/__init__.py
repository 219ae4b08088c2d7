"""How computations run: compiled programs, threads, processes, devices, progress, log and warnings.

This package is for contributors: the other packages of jaxsvm are built on it, and it may change between
versions without notice.
"""

from ._devices import ask_all_processes as ask_all_processes
from ._devices import count_row_shards as count_row_shards
from ._devices import device_groups as device_groups
from ._devices import digest_of as digest_of
from ._devices import gather_rows as gather_rows
from ._devices import is_divided as is_divided
from ._devices import on_host as on_host
from ._devices import require_agreement as require_agreement
from ._fork import require_own_process as require_own_process
from ._memory import available_memory as available_memory
from ._memory import host_memory as host_memory
from ._parallel import map_in_threads as map_in_threads
from ._parallel import map_over_data as map_over_data
from ._parallel import one_blas_thread as one_blas_thread
from ._programs import count_maps as count_maps
from ._programs import filter_jit as filter_jit
from ._programs import is_traced as is_traced
from ._programs import jit as jit
from ._programs import make_room as make_room
from ._programs import programs_of as programs_of
from ._reporting import Progress as Progress
from ._reporting import logger as logger
from ._reporting import warn_user as warn_user
