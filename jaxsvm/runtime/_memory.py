"""The memory that a computation may still use."""

import os
import sys
from pathlib import Path

import jax

_MEMINFO = Path("/proc/meminfo")
# the limit of a container and what it uses, for both versions of control groups
_GROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)


def available_memory() -> int | None:
    """The memory that is free on JAX's first device, which for a CPU is that of `host_memory`.

    **Returns:** a number of bytes, or None if it is not known.
    """
    device = jax.devices()[0]
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        if "bytes_limit" not in stats:
            return None
        return int(stats["bytes_limit"] - stats.get("bytes_in_use", 0))
    return host_memory()


def host_memory() -> int | None:
    """The memory that is free for this process.

    On Linux it is the available memory of the computer or of its container, whichever is less; on other
    systems all memory of the computer.

    **Returns:** a number of bytes, or None if it is not known.
    """
    found = [_of_computer(), *(_of_group(*files) for files in _GROUPS)]
    known = [number for number in found if number is not None]
    return min(known) if known else None


def _of_computer() -> int | None:
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    if sys.platform == "win32":
        return None
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None


def _of_group(limit: Path, used: Path) -> int | None:
    try:
        return max(0, int(limit.read_text()) - int(used.read_text()))
    except (OSError, ValueError):  # there is no such file, or its limit is "max"
        return None
