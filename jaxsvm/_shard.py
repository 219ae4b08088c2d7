"""Data divided among devices by rows."""

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from .runtime import ask_all_processes
from .validation import as_inputs, as_targets, as_weights


def shard(
    x: Any, y: Any, *, weights: Any = None, mesh: Mesh | None = None
) -> tuple[Float[Array, "n d"], Float[Array, " n"], Float[Array, " n"]]:
    """Divide examples among devices, so that low-rank machines of all of them can be fitted.

    Pass what it returns to `fit`, criteria, `select`, `sample` or the evidence, with an `approximation` of
    low rank. Each device then works on its own rows, and devices exchange only sums over rows.

    Devices have equally many rows. Where the number of examples is not a multiple of the number of devices,
    the first rows are repeated with weight zero, which counts as absent. So use the weights too.

    If several processes work together (`jax.distributed.initialize`), each passes its own rows. All
    of them must then call the same functions of jaxsvm, in the same order, with the same models.

    **Arguments:**

    - `x`, `y`: inputs, one row for each example, and labels -1/+1 or targets: of this process if there are
      several.
    - `weights`: one for each example, default one.
    - `mesh`: the devices. Rows are divided along its first axis, and repeated along others: then the starts
      of `select` are divided among these copies (in one process). By default all devices of all processes.

    **Returns:** `x`, `y` and `weights`, as arrays of all rows.

    **Example:**

    >>> rows, labels, weights = jsvm.shard(x, y)
    >>> jsvm.fit(model, rows, labels, weights=weights, approximation=jsvm.Nystrom(25)).dual.shape
    (30,)
    """
    mesh = _as_mesh(mesh)
    inputs, targets, counts = _on_host(x, y, weights)
    axis = mesh.axis_names[0]
    here = _own_devices(mesh)
    told = ask_all_processes([len(inputs), inputs.shape[1], here])
    _check(told)
    size = int(np.max(-(-told[:, 0] // told[:, 2])))  # rows of a device
    missing = size * here - len(inputs)
    again = np.arange(missing) % len(inputs)
    rows = NamedSharding(mesh, PartitionSpec(axis))
    total = size * mesh.devices.shape[0]

    def place(array: np.ndarray, padding: np.ndarray) -> Array:
        own = np.concatenate([array, padding])
        return jax.make_array_from_process_local_data(rows, own, (total, *own.shape[1:]))

    return (
        place(inputs, inputs[again]),
        place(targets, targets[again]),
        place(counts, np.zeros_like(counts[again])),
    )


def _on_host(x: Any, y: Any, weights: Any) -> list[np.ndarray]:
    """The data after all checks, in main memory: no single accelerator has to hold all of them."""
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        inputs = as_inputs(x)
        targets = as_targets(y, len(inputs), labels=False).astype(inputs.dtype)
        counts = as_weights(weights, len(inputs), inputs.dtype)
        return [np.asarray(array) for array in (inputs, targets, counts)]


def _as_mesh(mesh: Mesh | None) -> Mesh:
    if mesh is None:
        return Mesh(np.array(jax.devices()), ("rows",))
    if not isinstance(mesh, Mesh) or not mesh.axis_names:
        raise TypeError(
            f"`mesh` must be a `jax.sharding.Mesh` with at least one axis, not {mesh!r}"
        )
    # the compiler decides where results are, whatever the mesh asks for
    return Mesh(mesh.devices, mesh.axis_names, axis_types=(AxisType.Auto,) * mesh.devices.ndim)


def _own_devices(mesh: Mesh) -> int:
    """The number of places of this process along the first axis of the mesh."""
    lines = mesh.devices.reshape(mesh.devices.shape[0], -1)
    owners = [{device.process_index for device in line} for line in lines]
    if {process for line in owners for process in line} != set(range(jax.process_count())):
        raise ValueError("every process must have devices in `mesh`: make it from `jax.devices()`")
    if any(len(line) > 1 for line in owners):
        raise ValueError(
            "`mesh` divides a set of rows between processes: let its first axis run over the processes"
        )
    places = [process for line in owners for process in line]
    if places != sorted(places):
        raise ValueError("the devices of `mesh` must be ordered by process: use `jax.devices()`")
    return places.count(jax.process_index())


def _check(told: np.ndarray) -> None:
    """Raise if the processes have different inputs, or fewer rows than devices."""
    rows, inputs, devices = told.T
    if len(set(inputs.tolist())) > 1:
        raise ValueError(
            f"the rows of the processes have different numbers of inputs: {inputs.tolist()}"
        )
    if np.any(rows < devices):
        process = int(np.argmax(rows < devices))
        raise ValueError(
            f"{int(rows[process])} examples are fewer than the {int(devices[process])} devices that share "
            f"them{f' in process {process}' if len(told) > 1 else ''}: use a smaller `mesh`"
        )
