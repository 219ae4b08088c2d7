"""`jaxsvm tune` and `jaxsvm predict` on a generated CSV file: seconds and largest memory of each command.

    python examples/benchmarks/table.py                  # a million rows, nine inputs and a class
    python examples/benchmarks/table.py --rows 100000 --output FILE    # also writes the output to a file

The search has 20 seconds, and the kernel matrix rank 100 (`--rank`). The fit holds some matrices of three
quarters of the rows times the rank, which is most of the memory of `tune`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
from measure import printed_to

INPUTS, AT_A_TIME = 9, 100_000


def write(path: Path, rows: int) -> None:
    """Write rows of normal inputs and the sign of a noisy function of them."""
    random = np.random.default_rng(0)
    with path.open("w") as file:
        file.write(",".join([*(f"x{i}" for i in range(INPUTS)), "class"]) + "\n")
        for begin in range(0, rows, AT_A_TIME):
            count = min(AT_A_TIME, rows - begin)
            x = random.normal(size=(count, INPUTS))
            latent = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.7 * random.normal(size=count)
            for row, value in zip(x.tolist(), latent.tolist(), strict=True):
                cells = [f"{number:.6g}" for number in row]
                file.write(",".join([*cells, "yes" if value > 0 else "no"]) + "\n")


def measure(*command: str) -> None:
    """Run a command of `jaxsvm` in a process of its own, and print what it used."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen([sys.executable, "-m", "jaxsvm", *command], stdout=printed)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        lines = printed.read().splitlines()
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed")
    seconds, work = time.perf_counter() - begin, usage.ru_utime + usage.ru_stime
    peak = usage.ru_maxrss / 2**20
    print(f"{command[0]:<8}{seconds:8.1f} s{work:8.1f} CPU s   peak {peak:.2f} GB", flush=True)
    for line in lines:
        if line.startswith(("test error", "kernel matrix", "time")):
            print(f"        {line}")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rank", type=int, default=100)
    parser.add_argument("--output", type=Path, help="also write the output to this file")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, printed_to(options.output):
        data, model, answers = (Path(folder) / name for name in ("data.csv", "model", "answers"))
        write(data, options.rows)
        size = data.stat().st_size / 1e6
        cores = len(os.sched_getaffinity(0))
        print(f"jax {version('jax')}, {cores} core(s); other work may share them")
        print(f"{options.rows} rows, {INPUTS} inputs, a class; {size:.0f} MB", flush=True)
        chosen = ["--seconds", "20", "--approximation", str(options.rank), "--quiet"]
        names = ("--target", "class", "--output", str(model))
        measure("tune", str(data), *names, *chosen)
        measure("predict", str(model), str(data), "--output", str(answers))


if __name__ == "__main__":
    main()
