"""Chu, Keerthi and Ong on MacKay's robot arm: Tables II, III and IV.

    python examples/papers/chu_robot_arm.py            # all of it, a few minutes
    python examples/papers/chu_robot_arm.py --quick    # generated data, two rows: half a minute
    python examples/papers/chu_robot_arm.py --show     # prints the saved tables

Two joint angles determine the position of the arm, and each of its two coordinates has its own machine. The
first 200 examples of MacKay's file are for training, the next 200 for testing. Table II has one lengthscale
for each input (ARD). Table III has six inputs, of which two are noisy copies and two are pure noise. Table
IV has the test errors of all methods, summed over both coordinates. beta = 0.3.

Two more tables explain differences: the evidence at the paper's own hyperparameters and at the best of 16
random starts, and the rows of Table IV with six inputs over ten draws of their noise.

Inputs are standardized with the training inputs; targets are not. The noise of the additional inputs is
drawn again (seed 2004), since the paper's is not available. Results are saved in
`results/chu_robot_arm.json` as they are computed; run the script again to resume. Seconds are without
compilation. Needs the benchmark data (see `docs/files.md`).
"""

import argparse
import itertools
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import chu_methods as methods  # first: it limits the threads of linear algebra
import jax
import numpy as np
import sets
from store import Store

import jaxsvm as jsvm

RESULTS = Path(__file__).parent / "results" / "chu_robot_arm.json"
OUTPUTS = ("y1", "y2")

# Table IV: the row's name, its number of inputs, the paper's ASE in 1e-3; the rows that we compute
PAPER = {
    ("GPR Gaussian", 2): 5.83, ("GPR ARD", 2): 5.70, ("GPR ARD", 6): 5.70,
    ("SVR epsilon=0.1", 2): 7.46, ("SVR epsilon=0.05", 2): 6.82, ("SVR epsilon=0.01", 2): 5.84,
    ("BSVR Gaussian", 2): 5.89, ("BSVR ARD", 2): 5.68, ("BSVR ARD", 6): 5.64,
}  # fmt: skip
PAPER_OTHERS = {
    ("MacKay, solution with highest evidence", 2): 5.73,
    ("MacKay, solution with lowest test error", 2): 5.57,
    ("Neal, hybrid Monte Carlo", 2): 5.47,
    ("Neal, hybrid Monte Carlo", 6): 5.49,
    ("Williams and Rasmussen, Gaussian processes", 2): 5.63,
    ("Williams and Rasmussen, Gaussian processes", 6): 5.69,
}
# Table II: true noise variance in 1e-3, C, epsilon, noise variance found in 1e-3, kappa 1 and 2, kappa_b,
# off-bound and on-bound support vectors, seconds, AAE, ASE in 1e-3
PAPER_TWO = {
    "y1": (2.743, 44.94, 0.057, 2.681, 0.682, 0.248, 3.86, 75, 21, 33.8, 0.03930, 2.491),
    "y2": (2.362, 34.35, 0.042, 2.787, 0.673, 0.184, 17.03, 74, 42, 68.4, 0.04544, 3.184),
}
# the legible part of Table III: noise variance in 1e-3, kappa 1, kappa 4, kappa 5, ASE in 1e-3
PAPER_SIX = {
    "y1": {"noise": 2.696, "k1": 0.667, "k4": 0.0087e-2, "k5": 0.01e-5, "ASE": 2.477},
    "y2": {"noise": 2.779, "k1": 0.603, "k4": 0.904e-2, "k5": 0.01e-5, "ASE": 3.160},
}


SIX = ("GPR ARD", "BSVR ARD")  # rows of six inputs
RANDOM_STARTS = 16
DRAWS = 10  # of the noise in six inputs


def arm_position(angles: np.ndarray) -> np.ndarray:
    """Eq. 45."""
    first, both = angles[:, 0], angles[:, 0] + angles[:, 1]
    return np.stack(
        [2 * np.cos(first) + 1.3 * np.cos(both), 2 * np.sin(first) + 1.3 * np.sin(both)], axis=1
    )


def with_four_more(angles: np.ndarray, draw: int | None = None) -> np.ndarray:
    """The angles, noisy copies of both, and two inputs of pure noise."""
    key = methods.key_of(3) if draw is None else methods.key_of(3, draw)
    noise = np.asarray(jax.random.normal(key, (len(angles), 4)))
    return np.concatenate([angles, angles + 0.02 * noise[:, :2], noise[:, 2:]], axis=1)


def generated(examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Equal numbers of training and test examples, drawn from eq. 45."""
    x, y = jsvm.datasets.robot_arm(2 * examples, key=methods.key_of(2))
    return np.asarray(x), np.asarray(y)


def mackay() -> tuple[np.ndarray, np.ndarray]:
    """MacKay's examples: 200 for training and 200 for testing."""
    x, y, x_test, y_test = sets.robot_arm()
    return np.concatenate([x, x_test]), np.concatenate([y, y_test])


def halves(x: np.ndarray, positions: np.ndarray, output: str) -> tuple[np.ndarray, ...]:
    """Standardized inputs and targets of one coordinate; the first half is for training."""
    half, column = len(x) // 2, OUTPUTS.index(output)
    x_train, x_test = methods.standardize(x[:half], x[half:])
    return x_train, positions[:half, column], x_test, positions[half:, column]


def run(
    angles: np.ndarray,
    positions: np.ndarray,
    row: str,
    inputs: int,
    output: str,
    draw: int | None = None,
) -> dict[str, Any]:
    """One method for one coordinate of the arm; `draw` selects the noise of six inputs."""
    x = with_four_more(angles, draw) if inputs == 6 else angles
    x_train, y_train, x_test, y_test = halves(x, positions, output)
    method, kind = row.split()
    if method == "SVR":
        epsilon = float(kind.removeprefix("epsilon="))
        machine, record = methods.by_cross_validation(x_train, y_train, epsilon)
    else:
        loss = methods.gaussian_noise(y_train) if method == "GPR" else None
        selection, machine, seconds = methods.by_evidence(
            x_train, y_train, ard=kind == "ARD", beta=0.3 if loss is None else None, loss=loss
        )
        record = methods.described(selection, machine, seconds)
    added = (positions - arm_position(angles))[: len(angles) // 2, OUTPUTS.index(output)]
    record |= methods.errors(machine.predict(x_test), y_test)
    return record | {"sample_noise": float(np.var(added))}


def check(angles: np.ndarray, positions: np.ndarray, output: str, where: str) -> dict[str, Any]:
    """Evidence and errors at the "paper"'s hyperparameters, or at the best of "random" starts."""
    x, y, x_test, y_test = halves(angles, positions, output)
    model = jsvm.regression.machine(x, y, ard=True, beta=0.3)
    if where == "paper":
        _, C, epsilon, _, *kappa, offset = PAPER_TWO[output][:7]
        values = {"loss.C": C, "loss.epsilon": epsilon, "kernel.right.variance": offset}
        lengths = 1 / np.sqrt(np.array(kappa))
        model = jsvm.replace(model, values | {"kernel.left.lengthscale": lengths})
    else:
        model = jsvm.select(
            model,
            x,
            y,
            jsvm.criteria.LaplaceEvidence(),
            optimizer=jsvm.optimizers.lbfgs(window=5),
            starts={
                "loss.C": (1.0, 100.0),
                "loss.epsilon": (0.01, 0.1),
                "kernel.right.variance": (0.01, 100.0),
                "kernel.left.lengthscale": (0.5, 4.0),
            },
            restarts=RANDOM_STARTS,
            key=methods.key_of(5),
            max_steps=300,
            stop=(jsvm.stopping.SmallGradient(), jsvm.stopping.SmallChange(1e-8, patience=40)),
            progress=False,
        ).model
    value = jsvm.criteria.LaplaceEvidence()(model, x, y)
    fitted = jsvm.fit(model, x, y)
    natural = jsvm.parameters(model)
    return methods.errors(fitted.predict(x_test), y_test) | {
        "minus_log_evidence": float(value),
        "C": float(natural["loss.C"]),
        "epsilon": float(natural["loss.epsilon"]),
        "kappa_b": float(natural["kernel.right.variance"]),
    }


def show_two(records: dict[str, Any]) -> None:
    print("Table II: two inputs, ARD\n")
    print(
        "| | | true noise, 1e-3 | C | ε | noise, 1e-3 | κ1 | κ2 | κ_b | SV_M | SV_C | seconds | AAE "
        "| ASE, 1e-3 |\n" + "|---" * 14 + "|"
    )
    forms = (".3f", ".2f", ".3f", ".3f", ".3f", ".3f", ".2f", "d", "d", ".1f", ".5f", ".3f")
    for output, paper in PAPER_TWO.items():
        record = records.get(f"BSVR ARD/2/{output}")
        if record is None:
            continue
        ours = (
            1e3 * record["sample_noise"], record["C"], record["epsilon"],
            1e3 * record["noise_variance"], *record["kappa"], record["kappa_b"], record["free"],
            record["bound"], record["seconds"], record["AAE"], 1e3 * record["ASE"],
        )  # fmt: skip
        for who, values in (("ours", ours), ("paper", paper)):
            cells = [format(value, form) for value, form in zip(values, forms, strict=True)]
            print(f"| {output} | {who} | {' | '.join(cells)} |")


def show_six(records: dict[str, Any]) -> None:
    print("\nTable III: six inputs, ARD (only part of the paper's row is legible)\n")
    names = [f"k{number}" for number in range(1, 7)]
    heads = " | ".join(f"κ{number}" for number in range(1, 7))
    print(
        f"| | | noise, 1e-3 | {heads} | κ_b | SV_M | SV_C | AAE | ASE, 1e-3 |\n" + "|---" * 14 + "|"
    )
    columns = ("noise", *names, "kappa_b", "free", "bound", "AAE", "ASE")
    for output, paper in PAPER_SIX.items():
        record = records.get(f"BSVR ARD/6/{output}")
        if record is None:
            continue
        ours = record | dict(zip(names, record["kappa"], strict=True))
        ours |= {"noise": 1e3 * record["noise_variance"], "ASE": 1e3 * record["ASE"]}
        for who, values in (("ours", ours), ("paper", paper)):
            cells = [f"{values[name]:.4g}" if name in values else "" for name in columns]
            print(f"| {output} | {who} | {' | '.join(cells)} |")


def show_all(records: dict[str, Any]) -> None:
    print("\nTable IV: test ASE in 1e-3, sum over both coordinates\n")
    print("| method | inputs | ours | paper | seconds |\n|---|---|---|---|---|")
    for (row, inputs), paper in PAPER_OTHERS.items():
        print(f"| {row} | {inputs} | | {paper:.2f} | |")
    for (row, inputs), paper in PAPER.items():
        both = [records.get(f"{row}/{inputs}/{output}") for output in OUTPUTS]
        complete = [record for record in both if record is not None]
        if len(complete) < len(both):
            continue
        error = 1e3 * sum(record["ASE"] for record in complete)
        seconds = sum(record["seconds"] for record in complete)
        print(f"| {row} | {inputs} | {error:.2f} | {paper:.2f} | {seconds:.1f} |")


def show_checks(records: dict[str, Any]) -> None:
    print("\nThe evidence at other hyperparameters: two inputs, ARD\n")
    print("| | hyperparameters | -ln P | C | ε | κ_b | ASE, 1e-3 |\n" + "|---" * 7 + "|")
    keys = {
        "ours": "BSVR ARD/2",
        f"best of {RANDOM_STARTS} random starts": "random/2",
        "the paper's": "paper/2",
    }
    for output in OUTPUTS:
        for name, key in keys.items():
            record = records.get(f"{key}/{output}")
            if record is not None:
                print(
                    f"| {output} | {name} | {record['minus_log_evidence']:.2f} | {record['C']:.2f} "
                    f"| {record['epsilon']:.3f} | {record['kappa_b']:.2f} | {1e3 * record['ASE']:.3f} |"
                )


def show_draws(records: dict[str, Any]) -> None:
    print("\nTable IV, six inputs, over draws of their noise: ASE in 1e-3\n")
    print(
        "| method | draws | mean ± standard deviation | lowest | highest | paper |\n"
        + "|---" * 6
        + "|"
    )
    for row in SIX:
        sums: list[float] = []
        for draw in range(DRAWS):
            both = [records.get(f"draws/{row}/{output}/{draw:02d}") for output in OUTPUTS]
            if None not in both:
                sums.append(1e3 * sum(record["ASE"] for record in both if record))
        if len(sums) > 1:
            print(
                f"| {row} | {len(sums)} | {np.mean(sums):.2f} ± {np.std(sums, ddof=1):.2f} "
                f"| {min(sums):.2f} | {max(sums):.2f} | {PAPER[row, 6]:.2f} |"
            )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--quick", action="store_true", help="generated data, two rows")
    parser.add_argument(
        "--show", action="store_true", help="print saved results and compute nothing"
    )
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    rows = list(PAPER)
    if options.quick:
        rows = [("BSVR ARD", 2), ("SVR epsilon=0.1", 2)]
        options.output = None if options.output == RESULTS else options.output
    store = Store(options.output, "examples/papers/chu_robot_arm.py")
    if not options.show:
        data = generated(50) if options.quick else mackay()
        tasks = {
            f"{row}/{inputs}/{output}": partial(run, *data, row, inputs, output)
            for row, inputs in rows
            for output in OUTPUTS
        }
        for output in OUTPUTS if not options.quick else ():
            for where in ("paper", "random"):
                tasks[f"{where}/2/{output}"] = partial(check, *data, output, where)
            for row, draw in itertools.product(SIX, range(DRAWS)):
                task = partial(run, *data, row, 6, output, draw)
                tasks[f"draws/{row}/{output}/{draw:02d}"] = task
        for key, task in tasks.items():
            record = store.compute(key, task)
            print(f"{key:24s} ASE {record['ASE']:.6f}", flush=True)
    show_two(store.records)
    show_six(store.records)
    show_all(store.records)
    show_checks(store.records)
    show_draws(store.records)


if __name__ == "__main__":
    main()
