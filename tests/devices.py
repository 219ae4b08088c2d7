"""Machines whose examples are divided among devices or processes, in a process of their own.

    XLA_FLAGS=--xla_force_host_platform_device_count=4 python tests/devices.py compare
    python tests/devices.py process NUMBER ADDRESS EVENT     # one of two processes

`compare` prints, as JSON, how far results on all devices differ from those on one device, and which
collective operations the compiled programs have. `process` prints the results of two processes, each of which
has half of the rows. EVENT is "none", "different models", "different inputs", "leave-one-out", or "death",
with which the second process ends without a word. With "checkpoint" both print a search in one go and the
same search in two parts, whose file is in the folder `JAXSVM_TEST_FOLDER`; with "different files" each has
its own file.
"""

import json
import os
import re
import sys
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

import jaxsvm as jsvm
from jaxsvm.runtime import device_groups
from jaxsvm.sampling import SGLD, Target, begin_chains, run_chains

EXAMPLES = 1102  # not a multiple of four, and more than a solver treats as few
LOW = jsvm.Nystrom(rank=12, landmarks=list(range(0, 360, 30)))
CRITERIA = {
    "PRESS": (jsvm.criteria.PRESS(), "LeastSquares"),
    "LaplaceEvidence": (jsvm.criteria.LaplaceEvidence(), "Hinge"),
    "Span": (jsvm.criteria.Span("smooth"), "SquaredHinge"),
    "GACV": (jsvm.criteria.GACV(), "Hinge"),
    "LinearResponse": (jsvm.criteria.LinearResponse("smooth"), "Hinge"),
    "RadiusMargin": (jsvm.criteria.RadiusMargin(), "SquaredHinge"),
    "CrossValidation": (jsvm.criteria.CrossValidation(3, "smooth"), "SquaredHinge"),
}


def data() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(EXAMPLES, 6))
    latent = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * random.normal(size=EXAMPLES)
    return x, np.where(latent > 0, 1.0, -1.0)


def machine(loss: str, offset: bool = False, C: float = 1.0) -> jsvm.KernelMachine:
    kernel = jsvm.kernels.RBF(jnp.full(6, 2.5)) + jsvm.kernels.Constant(0.1)
    return jsvm.KernelMachine(kernel, getattr(jsvm.losses, loss)(C), offset)


def fitted(loss: str, offset: bool, x, y, weights):
    fit = jsvm.fit(machine(loss, offset), x, y, weights=weights, approximation=LOW)
    return fit.expansion.coefficients, fit.offset, fit.decision(data()[0][:7])


def scored(name: str, x, y, weights):
    criterion, loss = CRITERIA[name]

    def value(model):
        return criterion(model, x, y, weights=weights, approximation=LOW)

    return jax.value_and_grad(value)(machine(loss))


def selected(x, y, weights):
    options = {"max_steps": 3, "restarts": 2, "starts": 0.2, "progress": False}
    best = jsvm.select(
        machine("SquaredHinge"), x, y, jsvm.criteria.LaplaceEvidence(), weights=weights,
        approximation=LOW, key=jax.random.key(0), **options,
    )  # fmt: skip
    return best.model, jsvm.laplace(best.fit()).deviation(data()[0][:7])


def saved(shared, file: str | None, steps: int):
    """A search with a file for its progress."""
    x, y, weights = shared
    options = {"checkpoint": file, "max_steps": steps, "restarts": 2, "stop": (), "progress": False}
    best = jsvm.select(
        machine("SquaredHinge"), x, y, jsvm.criteria.LaplaceEvidence(), weights=weights,
        approximation=LOW, key=jax.random.key(0), seconds=1000, **options,
    )  # fmt: skip
    return numbers((best.model, best.history.value))


def folder() -> str:
    """The folder that the test has made."""
    return os.environ["JAXSVM_TEST_FOLDER"]


def resumed(*shared) -> dict[str, list[float]]:
    """A search in one go, and the same search in two parts."""
    file = f"{folder()}/new/run.jaxsvm"
    saved(shared, file, 2)
    return {"whole": saved(shared, None, 4), "resumed": saved(shared, file, 4)}


def sampled(x, y, weights):
    options = {"approximation": LOW, "key": jax.random.key(1), "weights": weights, "chains": 2}
    posterior = jsvm.sample(machine("Hinge"), x, y, **options, warmup=20, draws=20, progress=False)
    gradient = jsvm.evidence_gradient(
        machine("Hinge"), x, y, **options, warmup=20, draws=20, route="fisher"
    )
    return posterior.probability(data()[0][:7]), gradient.gradient


def lost(x, y, weights):
    fit = jsvm.fit(machine("Hinge"), x, y, weights=weights, approximation=LOW)
    return jsvm.lost_fit(fit, examples=len(y))  # all of them: others are chosen by their number


def by_batches(shards: int, x, y, weights):
    """Draws by batches of some rows of each share of the data, wherever these are."""

    @jax.jit
    def run(x, y, weights, key):
        factor = known.kept.whiten(model.kernel, x).factor
        target = Target(model.loss, factor, y, weights)
        start_key, *keys = jax.random.split(key, 3)
        start = begin_chains(target, SGLD(40), 2, start_key, shards=shards)
        return run_chains(target, SGLD(40), start, keys, 10, 10, shards=shards).b

    model = machine("Logistic")
    known = jsvm.approximations.represent(LOW, model, x)
    arguments = x, y, weights, jax.random.key(2)
    return run(*arguments), exchanged_in(run.lower(*arguments))


def padded(x, y, shards: int):
    """The data on one device, as `shard` pads them for several."""
    more = -len(x) % shards
    weights = np.append(np.ones(len(x)), np.zeros(more))
    return *(jnp.asarray(np.concatenate([it, it[:more]])) for it in (x, y)), jnp.asarray(weights)


FITS = [
    ("LeastSquares", True),
    ("SquaredHinge", False),
    ("Hinge", True),
    ("Hinge", False),
    ("Logistic", False),
]  # and whether there is an offset
RUNS = {
    **{
        f"fit {loss}{' with an offset' if offset else ''}": partial(fitted, loss, offset)
        for loss, offset in FITS
    },
    **{name: partial(scored, name) for name in CRITERIA},
    "select": selected,
    "sample": sampled,
    "lost fit": lost,
}


def numbers(tree) -> list[float]:
    """All numbers of a result, in a list."""
    return np.concatenate([np.ravel(np.asarray(leaf)) for leaf in jax.tree.leaves(tree)]).tolist()


def collectives(loss: str, criterion, x, y, weights) -> list[str]:
    """What devices exchange in the program of a criterion and its gradient: operations and shapes."""
    model = machine(loss)
    known = jsvm.approximations.represent(LOW, model, x)

    def value(model, x, y, weights):
        return criterion(model, x, y, weights=weights, approximation=known, throw=False)

    return exchanged_in(jax.jit(jax.value_and_grad(value)).lower(model, x, y, weights))


def exchanged_in(lowered) -> list[str]:
    """The collective operations of a program, and their shapes."""
    text = lowered.compile().as_text()
    operations = "all-gather|all-to-all|collective-permute|all-reduce|reduce-scatter"
    pattern = rf"= (.*?) (?:{operations})(?:-start)?\("
    return [match.group(0).removeprefix("= ") for match in re.finditer(pattern, text)]


def compare() -> None:
    x, y = data()
    shared = jsvm.shard(x, y)
    differences, exchanged = {}, {}
    for name, run in RUNS.items():
        several, one = (np.array(numbers(run(*some))) for some in (shared, (x, y, None)))
        differences[name] = float(np.max(np.abs(several - one)) / np.max(np.abs(one)))
    # two groups of two devices: each start of the search has a group of its own
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("rows", "starts"))
    grouped, one = (
        np.array(numbers(selected(*some))) for some in (jsvm.shard(x, y, mesh=mesh), (x, y, None))
    )
    differences["select in groups"] = float(np.max(np.abs(grouped - one)) / np.max(np.abs(one)))
    several, exchanged["batches"] = by_batches(4, *shared)
    one, _ = by_batches(4, *padded(x, y, 4))
    differences["batches"] = float(np.max(np.abs(np.asarray(several) - one)))
    for name, (criterion, loss) in CRITERIA.items():
        exchanged[name] = collectives(loss, criterion, *shared)
    groups = len(device_groups(jsvm.shard(x, y, mesh=mesh)[0]))
    report = {"differences": differences, "exchanged": exchanged, "groups": groups}
    print(json.dumps(report))


def process(number: int, address: str, event: str) -> None:
    jax.distributed.initialize(address, 2, number, heartbeat_timeout_seconds=10)
    x, y = data()
    own = slice(number * EXAMPLES // 2, (number + 1) * EXAMPLES // 2)
    columns = slice(None, 5 if event == "different inputs" and number else 6)
    shared = jsvm.shard(x[own, columns], y[own])
    if event == "checkpoint":
        print(json.dumps(resumed(*shared)))
        return
    if event == "different files":
        saved(shared, f"{folder()}/{number}.jaxsvm", 2)
    if event == "death" and number:
        os._exit(9)
    if event == "leave-one-out":
        jsvm.criteria.LeaveOneOut()(machine("Hinge"), *shared[:2], approximation=LOW)
    if event == "different models":
        jsvm.fit(machine("Hinge", C=1.0 + number), *shared[:2], approximation=LOW)
    results = {name: numbers(run(*shared)) for name, run in RUNS.items() if name in PROCESS_RUNS}
    results["batches"] = numbers(by_batches(2, *shared)[0])
    if number == 0:
        print(json.dumps(results))


PROCESS_RUNS = ("fit Hinge", "PRESS", "select", "sample", "lost fit")

if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    jsvm.approximations._blocks._BLOCK = 64  # so that V is computed in blocks
    warnings.simplefilter("ignore")  # of low ranks and short chains
    if sys.argv[1] == "compare":
        compare()
    else:
        process(int(sys.argv[2]), sys.argv[3], sys.argv[4])
