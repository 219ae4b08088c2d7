"""Data divided among devices and processes: the same results, and only sums over rows are exchanged."""

import json
import os
import re
import socket
import subprocess
import sys
import warnings
from pathlib import Path

import devices
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

import jaxsvm as jsvm
from jaxsvm.linalg._reduced import count_active, first_active_indices
from jaxsvm.runtime import count_row_shards, device_groups

SCRIPT = Path(__file__).with_name("devices.py")
SECONDS = 900  # of patience with a busy machine


def start(*arguments: str, flags: str = "") -> subprocess.Popen:
    environment = {
        **os.environ,
        "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} {flags}",
        "PYTHONPATH": str(SCRIPT.parents[1]),
    }
    command = [sys.executable, str(SCRIPT), *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, **pipes)


@pytest.fixture(scope="module")
def four_devices():
    process = start("compare", flags="--xla_force_host_platform_device_count=4")
    output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1])


def test_four_devices_agree_with_one(four_devices):
    differences = four_devices["differences"]
    assert set(differences) == {*devices.RUNS, "select in groups", "batches"}
    assert max(differences.values()) < 1e-10, differences
    assert four_devices["groups"] == 2


@pytest.mark.parametrize("name", [*devices.CRITERIA, "batches"])
def test_devices_exchange_no_array_as_long_as_the_examples(four_devices, name):
    rows = {-(-devices.EXAMPLES // 4) * 4, -(-devices.EXAMPLES // 4)}  # in all, and of one device
    exchanged = four_devices["exchanged"][name]
    assert exchanged  # sums
    sizes = [int(size) for text in exchanged for size in re.findall(r"[\[,](\d+)", text)]
    assert not rows & set(sizes), exchanged
    assert max(sizes) < min(rows), exchanged
    assert not [text for text in exchanged if re.search(r",6\].*all-gather", text)]  # inputs


def two_processes(event: str) -> list[tuple[int, str, str]]:
    """The return codes, outputs and errors of two processes that work together."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    processes = [start("process", str(number), address, event) for number in (0, 1)]
    try:
        texts = [process.communicate(timeout=SECONDS) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, *text) for process, text in zip(processes, texts, strict=True)]


def test_two_processes_agree_with_one():
    (code, output, errors), (other_code, _, other_errors) = two_processes("none")
    assert (code, other_code) == (0, 0), errors + other_errors
    results = json.loads(output.splitlines()[-1])
    x, y = devices.data()
    assert set(results) == {*devices.PROCESS_RUNS, "batches"}
    one = devices.by_batches(2, *devices.padded(x, y, 2))[0]
    np.testing.assert_allclose(results.pop("batches"), devices.numbers(one), rtol=1e-9, atol=1e-9)
    for name, several in results.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of low ranks and short chains
            one = devices.numbers(devices.RUNS[name](x, y, None))
        np.testing.assert_allclose(several, one, rtol=1e-9, atol=1e-9 * np.max(np.abs(one)))


@pytest.mark.parametrize(
    "event, message",
    [
        ("different models", "the processes have different values of `model`"),
        ("different inputs", "different numbers of inputs: [6, 5]"),
        ("leave-one-out", "which processes that share the rows cannot do"),
    ],
)
def test_processes_that_disagree_or_ask_too_much_all_raise(event, message):
    for code, _, errors in two_processes(event):
        assert code == 1
        assert message in errors


def test_two_processes_resume_a_search(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXSVM_TEST_FOLDER", str(tmp_path))
    for code, output, errors in two_processes("checkpoint"):
        assert code == 0, errors
        results = json.loads(output.splitlines()[-1])
        np.testing.assert_allclose(results["resumed"], results["whole"], rtol=1e-12)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["run.jaxsvm"]


def test_processes_that_see_different_files_all_raise(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXSVM_TEST_FOLDER", str(tmp_path))
    (tmp_path / "1.jaxsvm").write_text("of the second process")
    for code, _, errors in two_processes("different files"):
        assert code == 1
        assert "use a folder that all of them share" in errors


def test_a_process_ends_when_another_dies():
    (code, output, _), (other_code, _, _) = two_processes("death")
    assert other_code == 9
    assert code != 0 and "{" not in output  # no results


def test_padding_repeats_rows_without_weight():
    x, y, weights = jsvm.shard(np.ones((5, 2)), np.arange(5.0), weights=np.arange(1.0, 6.0))
    assert x.shape == (5, 2) and count_row_shards(x) == 1  # one device: nothing to divide
    np.testing.assert_array_equal(y, np.arange(5.0))
    np.testing.assert_array_equal(weights, np.arange(1.0, 6.0))


def test_a_mesh_that_does_not_fit():
    with pytest.raises(TypeError, match="must be a `jax"):
        jsvm.shard(np.ones((5, 2)), np.ones(5), mesh=jax.devices())
    with pytest.raises(ValueError, match="`x` has 5 rows, but `y` has 4 entries"):
        jsvm.shard(np.ones((5, 2)), np.ones(4))
    with pytest.raises(ValueError, match="holds 1 NaN"):
        jsvm.shard(np.full((1, 1), np.nan), np.ones(1))
    mesh = Mesh(np.array(jax.devices()), ("mine",))
    assert jsvm.shard(np.ones((5, 2)), np.ones(5), mesh=mesh)[0].sharding.mesh.axis_names == (
        "mine",
    )


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_active_examples_are_counted_shard_by_shard(shards):
    active = np.random.default_rng(0).random(24) < 0.3
    np.testing.assert_array_equal(count_active(active, shards), np.cumsum(active))
    indices = np.flatnonzero(active)
    for size in (1, len(indices), 20):
        expected = np.concatenate([indices, np.full(24, 24)])[:size]
        np.testing.assert_array_equal(first_active_indices(active, size, shards), expected)


def test_groups_of_devices():
    x, y = devices.data()
    assert device_groups(x) == [] and device_groups(jnp.asarray(x)) == []
    one = Mesh(np.array(jax.devices()[:1]), ("rows",))
    assert device_groups(jsvm.shard(x, y, mesh=one)[0]) == []  # nothing is divided
