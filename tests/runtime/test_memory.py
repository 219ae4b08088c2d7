"""The memory that is free, as files of the system tell it."""

import jax

from jaxsvm.runtime import _memory, available_memory, host_memory


def test_the_least_of_computer_and_container_counts(tmp_path, monkeypatch):
    info, limit, used = (tmp_path / name for name in ("info", "limit", "used"))
    info.write_text("MemTotal: 9000 kB\nMemAvailable:    3000 kB\n")
    monkeypatch.setattr(_memory, "_MEMINFO", info)
    monkeypatch.setattr(_memory, "_GROUPS", ((limit, used),))
    assert host_memory() == 3000 * 1024  # not in a container
    used.write_text("1000\n")
    limit.write_text("max\n")
    assert host_memory() == 3000 * 1024  # in one without a limit
    limit.write_text("5000\n")
    assert host_memory() == 4000
    limit.write_text("500\n")
    assert host_memory() == 0
    if jax.devices()[0].platform == "cpu":
        assert available_memory() == 0


def test_without_these_files_all_memory_counts(tmp_path, monkeypatch):
    monkeypatch.setattr(_memory, "_MEMINFO", tmp_path / "none")
    monkeypatch.setattr(_memory, "_GROUPS", ())
    found = host_memory()
    assert found is None or found > 2**20
