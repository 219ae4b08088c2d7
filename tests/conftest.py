"""Shared settings: double precision, no silent broadcasting, quick compilation, one cache of it for all."""

import atexit
import os
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

# Nearly all the time of these tests goes into compiling programs that then run for milliseconds.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_parallel_codegen_split_count=1"  # each worker has one core
    # this halves the time; later ones do not know it
    + (" --xla_cpu_use_fusion_emitters=false" if version("jaxlib").startswith("0.10.") else ""),
)

import jax
import pytest
from jaxtyping import config as jaxtyping_config
from jaxtyping import install_import_hook

sys.path.insert(0, str(Path(__file__).parent))  # for the modules beside the tests, which they share
import annotations

install_import_hook(annotations.modules(), "annotations.checked")  # before the package is imported

from jaxsvm.runtime import make_room  # noqa: E402


def pytest_configure(config):
    # one thread for each worker: two workers with two threads each wait for one another
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if not hasattr(config, "workerinput") and "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        folder = tempfile.mkdtemp(prefix="jaxsvm-tests-")
        os.environ["JAX_COMPILATION_CACHE_DIR"] = folder  # workers and scripts inherit it
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    jax.config.update("jax_compilation_cache_dir", os.environ.get("JAX_COMPILATION_CACHE_DIR"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_runtest_teardown():
    """Tests compile functions that the library does not track."""
    make_room()


@pytest.fixture(params=["float64", "float32"])
def dtype(request):
    """Runs a test in both precisions; the second is JAX's own default mode."""
    with jax.enable_x64(request.param == "float64"):
        yield request.param


@pytest.fixture
def keep_programs(monkeypatch):
    """For a test that counts programs: none is dropped until it ends, however many there are already."""
    monkeypatch.setattr("jaxsvm.runtime._programs._limit", lambda: None)


@pytest.fixture
def wrong_arrays():
    """For a test that passes arrays of wrong shapes or types, to see the error message."""
    jaxtyping_config.update("jaxtyping_disable", True)
    yield
    jaxtyping_config.update("jaxtyping_disable", False)
