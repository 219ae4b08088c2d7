"""Arrays whose rows are divided among devices, and agreement between processes."""

import hashlib
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Shaped

from ._programs import is_traced


def count_row_shards(x: Any) -> int:
    """The number of parts into which the rows of an array are divided, each on a device of its own.

    **Arguments:** `x`, an array.

    **Returns:** a number; one if the array is traced, so that its devices are not known.
    """
    if not isinstance(x, jax.Array) or is_traced(x) or x.ndim == 0 or x.shape[0] == 0:
        return 1
    return x.shape[0] // x.sharding.shard_shape(x.shape)[0]


def device_groups(x: Any) -> list[Mesh]:
    """Groups of devices that have all rows of an array each, along the second axis of its mesh.

    **Arguments:** `x`, an array.

    **Returns:** one mesh for each group: the whole mesh if it has one axis, or if several processes share it;
    none if the rows are not divided.
    """
    if count_row_shards(x) == 1 or not isinstance(x.sharding, NamedSharding):
        return []
    mesh = x.sharding.mesh
    assert isinstance(mesh, Mesh)  # that of an array is not abstract
    if mesh.devices.ndim == 1 or not x.is_fully_addressable:
        return [mesh]
    columns = mesh.devices.reshape(mesh.devices.shape[0], -1).T
    return [Mesh(column, mesh.axis_names[:1], axis_types=mesh.axis_types[:1]) for column in columns]


def move_to(mesh: Mesh, tree: Any) -> Any:
    """Copy arrays to other devices: rows that are divided stay so, everything else is on all of them.

    **Arguments:** `mesh`, whose first axis divides rows; `tree`, a pytree.

    **Returns:** the pytree with its arrays on these devices.
    """
    axis = mesh.axis_names[0]

    def place(leaf):
        if not isinstance(leaf, jax.Array):
            return leaf
        sharding = leaf.sharding
        known = tuple(sharding.spec) if isinstance(sharding, NamedSharding) else ()
        spec = PartitionSpec(*(axis if name == axis else None for name in known))
        return jax.device_put(leaf, NamedSharding(mesh, spec))

    return jax.tree.map(place, tree)


def gather_rows(x: Shaped[Array, "n ..."], rows: np.ndarray) -> np.ndarray:
    """Some rows of an array that is divided among devices.

    **Arguments:** `x`, the array; `rows`, the indices of a few rows.

    **Returns:** these rows, on the host.
    """
    sharding = x.sharding if isinstance(x, jax.Array) else None
    if not isinstance(sharding, NamedSharding):
        return np.asarray(x[rows])
    everywhere = NamedSharding(sharding.mesh, PartitionSpec())
    return np.asarray(jax.jit(lambda x, rows: x[rows], out_shardings=everywhere)(x, rows))


def is_divided(x: Any) -> bool:
    """Whether an array has parts in several processes.

    **Arguments:** `x`, an array.

    **Returns:** true if no process has all of it; false if it is traced.
    """
    if not isinstance(x, jax.Array) or is_traced(x):
        return False
    return not (x.is_fully_addressable or x.is_fully_replicated)


def on_host(x: Any) -> np.ndarray:
    """A whole array on the host, also if several processes have parts of it: then all of them must ask.

    **Arguments:** `x`, an array.

    **Returns:** its numbers.
    """
    return np.asarray(multihost_utils.process_allgather(x, tiled=True) if is_divided(x) else x)


def digest_of(x: Any) -> bytes:
    """A fingerprint of the numbers of an array, without gathering the parts that several processes have.

    **Arguments:** `x`, an array. If it is divided among processes, all of them must ask.

    **Returns:** bytes, equal for equal numbers that are divided in the same way.
    """
    digest = hashlib.sha256()
    if not is_divided(x):
        digest.update(np.asarray(x).tobytes())
        return digest.digest()
    for shard in sorted(x.addressable_shards, key=lambda shard: shard.device.id):
        digest.update(np.asarray(shard.data).tobytes())
    return bytes(ask_all_processes(list(digest.digest())).ravel().tolist())


def ask_all_processes(numbers: Any) -> np.ndarray:
    """The numbers of all processes that work together.

    **Arguments:** `numbers`, a short list, as long in every process.

    **Returns:** a matrix with one row for each process.
    """
    own = np.asarray(numbers)
    if jax.process_count() == 1:
        return own[None]
    return np.asarray(multihost_utils.process_allgather(own)).reshape(jax.process_count(), -1)


def require_agreement(value: Any, name: str, x: Any) -> None:
    """Raise if the processes that share the rows of an array were given different values.

    **Arguments:** `value`, a pytree; `name`, for the message; `x`, the array. If no other process has rows of
    it, nothing is compared.
    """
    if is_traced(value, x) or not isinstance(x, jax.Array) or x.is_fully_addressable:
        return
    leaves, structure = jax.tree.flatten(value)
    digest = hashlib.sha256(str(structure).encode())
    for leaf in leaves:
        digest.update(np.asarray(leaf).tobytes())
    mark = int.from_bytes(digest.digest()[:3], "big")  # exact in any precision
    if len(set(ask_all_processes([mark]).ravel().tolist())) > 1:
        raise ValueError(
            f"the processes have different values of `{name}`: give all of them the same"
        )
