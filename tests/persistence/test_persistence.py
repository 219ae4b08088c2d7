"""Saving and loading return the same values, bit for bit."""

import dataclasses
import os
import sys
import threading
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

import equinox as eqx
import grid
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm import kernels, losses
from jaxsvm.persistence._names import class_of_name, name_of_class

HERE = sys.modules[__name__]
X = np.asarray(jax.random.normal(jax.random.key(0), (8, 3)))
Y = np.where(X[:, 0] > 0, 1.0, -1.0)


def diffusion(parameters, a, b):
    return jnp.exp(-parameters["rate"] * jnp.sum(jnp.abs(a - b)))


def inner(a, b):
    return a @ b


def two_features(parameters, x):
    return jnp.tanh(parameters[0] * x[:2] + parameters[1])


class Tilted(eqx.Module):
    """A user's own module, with a static part."""

    angle: jax.Array
    power: int = eqx.field(static=True)

    def __call__(self, a, b):
        return jnp.cos(self.angle) ** 2 * (a @ b) ** self.power


class Cosine(kernels.AbstractKernel):
    """A user's own kernel."""

    log_rate: jax.Array

    def matrix(self, x1, x2, same):
        return jnp.cos(jnp.exp(self.log_rate) * (x1[:, :1] - x2[:, :1].T))

    def diagonal(self, x):
        return jnp.ones(x.shape[0])


def network(activation=jnp.tanh):
    return eqx.nn.MLP(3, 2, 4, 1, activation=activation, key=jax.random.key(1))


RBF = kernels.RBF(jnp.array([0.3, 1.1, 2.7]), 1.7)
KERNELS = {name: make(3) for name, make in grid.KERNELS.items()} | {
    "Product of sums": 2 * RBF * (kernels.Linear() + 0.1),
    "Transform": kernels.Transform(
        kernels.RBF(), two_features, (jnp.array([1.0, 2.0]), jnp.array(0.3))
    ),
    "network": kernels.Transform(kernels.RBF(), network(), None) + 0.1,
    "network of parts": kernels.Transform(
        kernels.RBF(),
        eqx.nn.Sequential(
            [
                eqx.nn.Linear(3, 4, key=jax.random.key(2)),
                eqx.nn.Lambda(jax.nn.softplus),
                eqx.nn.LayerNorm(4),
            ]
        ),
    ),
    "Custom": kernels.Custom(diffusion, {"rate": 0.1}),
    "Custom without parameters": kernels.Custom(inner),
    "Custom module": kernels.Custom(Tilted(jnp.array(0.3), 2)),
    "Custom kernel": kernels.Custom(kernels.RBF(0.7)),
    "own class": Cosine(jnp.array(0.2)) + 1.0,
    "frozen": jsvm.freeze(RBF + 0.3, "left.lengthscale", "right"),
    "frozen network": jsvm.freeze(kernels.Transform(kernels.RBF(), network()), "function"),
}
LOSSES = grid.LOSSES | {"SoftInsensitive": jsvm.freeze(grid.LOSSES["SoftInsensitive"], "beta")}


@pytest.fixture(scope="module")
def fitted():
    return jsvm.fit(jsvm.KernelMachine(RBF + 0.1, losses.Hinge(2.0)), X, Y)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "thing.jsvm"


def round_trip(thing, path):
    jsvm.save(path, thing)
    return jsvm.load(path, module=HERE)


def assert_same(one, two):
    """The same structure, static parts included, and the same bits."""
    leaves, structure = jax.tree.flatten(one)
    others, other_structure = jax.tree.flatten(two)
    assert structure == other_structure
    for leaf, other in zip(leaves, others, strict=True):
        assert type(leaf) is type(other)
        if isinstance(leaf, jax.Array | np.ndarray | np.generic):
            a, b = np.asarray(leaf), np.asarray(other)
            assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        else:
            assert leaf == other or leaf != leaf


def bits(array):
    return np.asarray(array).tobytes()


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_with_every_loss_predicts_the_same(name, path, fitted):
    points = X[:3] + 0.1
    wanted = {}  # all losses of a kind predict the same with the same dual coefficients
    for loss in LOSSES.values():
        model = jsvm.KernelMachine(KERNELS[name], loss, offset=loss is LOSSES["LeastSquares"])
        fit = dataclasses.replace(fitted, model=model)  # any dual coefficients will do
        back = round_trip(fit, path)
        assert_same(fit, back)
        assert jsvm.frozen(back.model) == jsvm.frozen(model)
        assert back.model.offset == model.offset
        if loss.is_classifier not in wanted:
            wanted[loss.is_classifier] = bits(fit.predict(points)), bits(fit.decision(points))
        assert (bits(back.predict(points)), bits(back.decision(points))) == wanted[
            loss.is_classifier
        ]


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_has_the_same_value(name, path, fitted):
    back = round_trip(LOSSES[name], path)
    one, two = (loss.value(fitted.y, fitted.latent) for loss in (LOSSES[name], back))
    assert bits(one) == bits(two)


def test_from_a_fit_that_comes_back_all_goes_on(path, fitted):
    back = round_trip(fitted, path)
    assert_same(fitted, back)
    again = jsvm.fit(back.model, back.x, back.y, init=back)
    np.testing.assert_allclose(again.dual, fitted.dual, rtol=1e-12)
    one, two = jsvm.laplace(fitted), jsvm.laplace(back)
    assert_same(one, two)
    assert_same(one, round_trip(one, path))
    assert_same(one.latent(X), two.latent(X))


@pytest.mark.usefixtures("wrong_arrays")
def test_diagnostics_of_numpy_come_back(path):
    # estimators keep arrays of NumPy, which have double precision in either mode of JAX
    one = jsvm.sampling.Diagnostics(np.ones(2), np.zeros(2, int), *np.ones((7, 1)), draws=5)
    assert_same(one, round_trip(one, path))


def test_batches_come_back(path, fitted):
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), fitted)
    assert_same(batch, round_trip(batch, path))


def test_both_precisions_come_back(dtype, path):
    model = jsvm.KernelMachine(kernels.RBF(jnp.array([0.3, 0.7], dtype)), losses.Hinge())
    back = round_trip(model, path)
    assert_same(model, back)
    assert back.kernel.log_lengthscale.dtype == dtype


def test_double_precision_is_not_cut_silently(path):
    for thing in (kernels.RBF(0.3), jsvm.freeze(kernels.RBF(0.3), "lengthscale", "variance")):
        jsvm.save(path, thing)
        with jax.enable_x64(False), pytest.raises(jsvm.FileError, match="jax_enable_x64"):
            jsvm.load(path)
    jsvm.save(path, {"data": X, "number": 0.1})  # NumPy keeps its precision by itself
    with jax.enable_x64(False):
        assert_same(jsvm.load(path), {"data": X, "number": 0.1})


def test_structures_come_back(path, fitted):
    thing = {
        "models": [fitted.model, (fitted, None)],
        "numbers": (1, -(10**30), 0.1, float("nan"), float("-inf"), True, 2.0),
        "text": ["é\n\ud83d".encode("utf-16", "surrogatepass").decode("utf-16", "replace"), ""],
        3: np.array([["a", "bcd"]]),
        None: np.float32(0.1),
        (0.5): [np.arange(5, dtype=np.int8), np.zeros((0, 3)), np.array(True), np.array([b"x"])],
        "order": {"b": 1, "a": 2},
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "codes": jsvm.RESULTS.local_optimum,
        "data": jsvm.datasets.Dataset(jnp.asarray(X), jnp.asarray(Y)),
    }
    back = round_trip(thing, path)
    assert list(back) == list(thing) and list(back["order"]) == ["b", "a"]
    for key in thing:
        assert_same(thing[key], back[key])
    assert back["codes"] is jsvm.RESULTS.local_optimum
    assert isinstance(back["numbers"][5], bool) and isinstance(back["numbers"][6], float)
    back[3][0, 0] = "z"  # arrays are the caller's own


def test_the_same_thing_gives_the_same_file(tmp_path, fitted):
    for name in ("one", "two"):
        jsvm.save(str(tmp_path / name), fitted)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def local_kernel():
    def inside(a, b):
        return a @ b

    return kernels.Custom(inside)


@pytest.mark.parametrize(
    "thing, error, message",
    [
        (kernels.Custom(lambda a, b: a @ b), TypeError, "lambdas"),
        (local_kernel(), TypeError, "Define it at the top level"),
        (kernels.Custom(partial(diffusion, {"rate": 1.0})), TypeError, "partial"),
        (object(), TypeError, "which cannot be saved"),
        ({"a": [defaultdict(int)]}, TypeError, r"it\['a'\]\[0\] is a defaultdict"),
        ({(1, 2): 3}, TypeError, "keys must be"),
        ({1, 2}, TypeError, "is a set"),
        (Path("x"), TypeError, "cannot be saved"),
        (np.array([object()]), TypeError, "array of object"),
        (np.zeros(2, np.longdouble), TypeError, "array of"),
        (jnp.zeros(2, jnp.bfloat16), TypeError, "array of bfloat16"),
        (jax.random.key(0), TypeError, "random key"),
        (Counter("ab"), TypeError, "Counter"),
        (jsvm.KernelMachine, TypeError, "the class KernelMachine itself"),
        ([losses.Hinge], TypeError, r"it\[0\] is the class Hinge itself.*`Hinge\(\.\.\.\)`"),
        (int, TypeError, "the class int itself"),
        (__import__, TypeError, "Define it"),
        ({"a": np.ma.array([1.0, 2.0], mask=[False, True])}, ValueError, "1 masked entry"),
    ],
)
def test_values_that_cannot_be_saved_are_refused(thing, error, message, path):
    with pytest.raises(error, match=message):
        jsvm.save(path, thing)
    assert not path.exists()


def test_a_structure_that_holds_itself_is_refused(path):
    loop = []
    loop.append(loop)
    with pytest.raises(ValueError, match="holds itself"):
        jsvm.save(path, loop)


def test_traced_values_are_refused(path):
    def traced(C):
        jsvm.save(path, losses.Hinge(C))
        return C

    with pytest.raises(ValueError, match="outside of jit"):
        jax.jit(traced)(1.0)


@pytest.mark.usefixtures("wrong_arrays")
def test_fits_that_cannot_be_are_not_saved(path, fitted):
    with pytest.raises(ValueError, match="`dual` has shape"):
        jsvm.save(path, dataclasses.replace(fitted, dual=fitted.dual[:3]))
    with pytest.raises(ValueError, match="precision"):
        jsvm.save(path, dataclasses.replace(fitted, x=fitted.x.astype("float32")))


def test_arrays_without_a_masked_entry_are_arrays(path):
    jsvm.save(path, np.ma.array([1.0, 2.0]))
    np.testing.assert_array_equal(jsvm.load(path), [1.0, 2.0])


def test_pipes_are_read_and_devices_are_not(path, fitted):
    jsvm.save(path, fitted)
    pipe = path.with_name("pipe")
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(path.read_bytes(),))
    writer.start()
    assert_same(jsvm.load(pipe), fitted)
    writer.join()
    with pytest.raises(jsvm.FileError, match="is a device: give a file or a pipe"):
        jsvm.load("/dev/null")


def test_own_functions_are_looked_up(path):
    kernel = KERNELS["Custom"]
    jsvm.save(path, kernel)
    with pytest.raises(jsvm.FileError, match=r"`diffusion`: pass the module.*module="):
        jsvm.load(path)
    for module in (HERE, {"diffusion": diffusion}, globals()):
        assert_same(jsvm.load(path, module=module), kernel)
    with pytest.raises(jsvm.FileError, match="does not have"):
        jsvm.load(path, module=jnp)
    with pytest.raises(jsvm.FileError, match="not a function"):
        jsvm.load(path, module={"diffusion": Tilted})
    jsvm.save(path, KERNELS["own class"])
    with pytest.raises(jsvm.FileError, match=r"not a subclass of `eqx\.Module`"):
        jsvm.load(path, module={"Cosine": diffusion})
    with pytest.raises(jsvm.FileError, match="log_rate"):
        jsvm.load(path, module={"Cosine": Tilted})


def test_a_failing_write_leaves_the_old_file(path, fitted, monkeypatch):
    jsvm.save(path, fitted)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    for name in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(f"os.{name}", full)
            with pytest.raises(jsvm.FileError, match="cannot be written: No space left"):
                jsvm.save(path, fitted.model)
        assert path.read_bytes() == before
        assert list(path.parent.iterdir()) == [path]
    with pytest.raises(TypeError):
        jsvm.save(path, [fitted, object()])
    assert path.read_bytes() == before
    with pytest.raises(jsvm.FileError, match="cannot be written"):
        jsvm.save(path.parent / "nowhere" / "thing", fitted)


def test_links_stay_links(path, fitted):
    link = path.with_name("link")
    link.symlink_to(path)
    jsvm.save(link, fitted)
    assert link.is_symlink() and path.exists()


def test_public_classes_are_known_without_a_list():
    for cls, name in (
        (jsvm.Fit, "Fit"),
        (kernels.RBF, "kernels.RBF"),
        (jsvm.priors.GaussianPenalty, "priors.GaussianPenalty"),
        (jsvm.evidence.Path, "evidence.Path"),
        (jsvm.calibration.Coverage, "calibration.Coverage"),
        (eqx.nn.Linear, "equinox.nn.Linear"),
    ):
        assert name_of_class(cls) == name and class_of_name(name) is cls
    for cls in (kernels.AbstractKernel, eqx.Module, dict, Tilted, jsvm.RESULTS):
        assert name_of_class(cls) is None
    for name in (
        "kernels._algebra.Sum",
        "kernels.jnp",
        "numpy.ndarray",
        "sys.modules",
        "Module",
        "",
    ):
        assert class_of_name(name) is None
