"""Damaged and forged files are refused with a message that says why."""

import hashlib
import io
import json
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm.persistence import _container
from jaxsvm.persistence._container import MANIFEST, SEAL

X = np.asarray(jax.random.normal(jax.random.key(0), (6, 2)))
Y = np.where(X[:, 0] > 0, 1.0, -1.0)


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """The bytes of a sound file."""
    model = jsvm.KernelMachine(jsvm.kernels.RBF(0.3) + 0.1, jsvm.losses.Hinge(2.0))
    model = jsvm.freeze(model, "loss")
    path = tmp_path_factory.mktemp("sound") / "fit.jsvm"
    text = np.array(["yes", "no"])
    jsvm.save(path, {"fit": jsvm.fit(model, X, Y), "labels": text, "mask": text == "yes"})
    return path.read_bytes()


@pytest.fixture
def refused(tmp_path):
    """Checks that bytes are refused, and returns the message."""

    def check(content, match="truncated|altered|not a file of jaxsvm"):
        path = tmp_path / "damaged.jsvm"
        path.write_bytes(content)
        with pytest.raises(jsvm.FileError, match=match) as caught:
            jsvm.load(path)
        return str(caught.value)

    return check


def members(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def sealed(parts, compression=zipfile.ZIP_STORED):
    """A file of those members, with a checksum that agrees: what a forger would make."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, data in parts:
            archive.writestr(name, data)
        archive.comment = SEAL + b"0" * 64
    content = stream.getvalue()[:-64]
    return content + hashlib.sha256(content).hexdigest().encode()


def tampered(content, change):
    """The file with its description changed by a function, and a checksum that agrees."""
    parts = members(content)
    manifest = json.loads(parts[MANIFEST])
    parts[MANIFEST] = json.dumps(change(manifest) or manifest).encode()
    return sealed(parts.items())


def test_the_forger_knows_the_format(content, tmp_path):
    (tmp_path / "same").write_bytes(sealed(members(content).items()))
    assert jsvm.load(tmp_path / "same")["fit"].y.shape == (6,)


def test_truncated_files(content, refused):
    random = np.random.default_rng(0)
    for length in random.integers(60, len(content), 45):
        refused(content[:length], "truncated|altered")
    for length in (0, 1, 3, 20, 41):
        refused(content[:length], "empty|not a file of jaxsvm|truncated")
    refused(content[:-1], "truncated")


def test_altered_bytes(content, refused):
    random = np.random.default_rng(1)
    for place in [
        *random.integers(0, len(content), 60),
        *range(len(content) - 80, len(content), 8),
    ]:
        flipped = bytearray(content)
        flipped[place] ^= 1 << random.integers(8)
        refused(bytes(flipped))
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    refused(bytes(flipped), "has been altered")


def test_foreign_files(refused, tmp_path):
    random = np.random.default_rng(2)
    for size in random.integers(1, 2000, 15):
        refused(random.bytes(size), "not a file of jaxsvm")
    stream = io.BytesIO()
    np.savez(stream, a=np.zeros(3))
    refused(stream.getvalue(), "not a file of jaxsvm")
    refused(b"PK\x05\x06" + bytes(18), "not a file of jaxsvm")
    refused(b'{"format": "jaxsvm"}', "not a file of jaxsvm")
    refused(sealed([("other.txt", "hello")]), "not a file of jaxsvm")
    refused(sealed([(MANIFEST, '{"format": "other"}')]), "not a file of jaxsvm")
    refused(sealed([(MANIFEST, "[]")]), "not a file of jaxsvm")
    refused(sealed([(MANIFEST, "\xff{")]), "damaged")
    refused(sealed([(MANIFEST, "[" * 100_000)]), "damaged")
    refused(sealed([(MANIFEST, '{"format": NaN}')]), "damaged")
    with pytest.raises(jsvm.FileError, match="does not exist"):
        jsvm.load(tmp_path / "missing")
    with pytest.raises(jsvm.FileError, match="cannot be read"):
        jsvm.load(tmp_path)
    with pytest.raises(jsvm.FileError, match="cannot be read"):
        jsvm.load("a\0b")


def test_newer_and_impossible_versions(content, refused):
    message = refused(tampered(content, lambda m: m.update(version=2, jaxsvm="9.1")), "version 2")
    assert "9.1" in message and "upgrade jaxsvm" in message
    for version in (0, -1, 1.5, "1", None, True, []):
        refused(
            tampered(content, lambda m, v=version: m.update(version=v)),
            "not a version of the format",
        )


def test_swapped_missing_and_added_members(content, refused):
    parts = members(content)
    names = [name for name in parts if name != MANIFEST]
    for place in range(12):
        one, two = names[place], names[place + 1]
        if parts[one] == parts[two]:
            continue
        swapped = {**parts, one: parts[two], two: parts[one]}
        # with the old checksum, an alteration; with a new one still no fit, or another fit's numbers
        broken = sealed(swapped.items())[:-64] + content[-64:]
        refused(broken, "has been altered")
    refused(sealed([p for p in parts.items() if p[0] != names[0]]), "list of arrays")
    refused(sealed([*parts.items(), ("arrays/99.npy", parts[names[0]])]), "list of arrays")
    refused(sealed([*parts.items(), ("setup.py", b"print()")]), "list of arrays")
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = sealed([*parts.items(), (names[0], parts[names[0]])])
    refused(twice, "same name")
    refused(sealed(parts.items(), zipfile.ZIP_DEFLATED), "compressed")
    refused(tampered(content, lambda m: m.update(arrays="3")), "list of arrays")
    refused(tampered(content, lambda m: m.pop("arrays") and None), "damaged")


def test_forged_counts_of_arrays_cost_nothing(content, refused, monkeypatch):
    names = []

    def counted(place):
        names.append(place)
        assert len(names) < 1000
        return f"arrays/{place}.npy"

    monkeypatch.setattr(_container, "_member", counted)
    for count in (10**12, 10**400, -5, -(10**12), True, 1.0, None, [3], "3"):
        refused(tampered(content, lambda m, c=count: m.update(arrays=c)), "list of arrays")
    empty = {"format": "jaxsvm", "version": 1, "jaxsvm": "0", "thing": 1}
    for count in (-5, False, 0.0, 10**12):
        refused(sealed([(MANIFEST, json.dumps(empty | {"arrays": count}))]), "list of arrays")


def test_a_fit_has_no_frozen_parts(content, refused):
    for name in ("x", "y", "weights", "dual", "latent", "offset", "result", "group"):

        def change(manifest, name=name):
            entries = dict(map(tuple, manifest["thing"]["dict"]))
            entries["fit"]["fields"][name] = {"frozen": entries["fit"]["fields"][name]["array"]}

        refused(tampered(content, change), f"`{name}` is frozen")


@pytest.mark.parametrize("forged", [0.5, "x", [], {"tuple": []}, {"frozen": 0}], ids=str)
def test_a_part_that_may_be_absent_is_of_its_class_otherwise(content, refused, forged):
    def change(manifest):
        entries = dict(map(tuple, manifest["thing"]["dict"]))
        entries["fit"]["fields"]["expansion"] = forged

    refused(tampered(content, change), "`expansion` must be a Expansion, not a")


def npy(shape, dtype="<f8", data=bytes(8), order=False, version=b"\x01\x00"):
    header = f"{{'descr': {dtype!r}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize(
    "array",
    [
        npy("(1000000000000,)"),
        npy("(10, 10)"),
        npy("(2,)"),
        npy("()", data=bytes(9)),
        npy("(-1,)"),
        npy("(-1, -1)"),
        npy("(True,)"),
        npy("1"),
        npy("(1,)", dtype="|O"),
        npy("(1,)", dtype="<M8[s]"),
        npy("(1,)", dtype="<f16", data=bytes(16)),
        npy("(1,)", dtype="|V8"),
        npy("(1,)", dtype="nonsense"),
        npy("(1,)", dtype=[("a", "<f8")]),
        npy("(1,)", dtype="|b1", data=b"\x02"),
        npy("(2,)", dtype="<U1", data=b"\xff" * 8),
        npy("(1,)", order=True),
        npy("(1,)", version=b"\x07\x00"),
        npy("(1L,)"),
        npy("(__import__('os').system('true'),)"),
        b"",
        b"\x93NUMPY",
        b"\x80\x04\x95pickle",
    ],
)
def test_arrays_that_are_none(array, refused):
    manifest = {"format": "jaxsvm", "version": 1, "jaxsvm": "0", "arrays": 1}
    manifest["thing"] = {"array": 0, "as": "numpy"}
    parts = [(MANIFEST, json.dumps(manifest)), ("arrays/0.npy", array)]
    refused(sealed(parts), "damaged")


def nodes():
    """Invalid descriptions, and descriptions of forbidden values."""
    rbf = {"log_lengthscale": {"array": 0, "as": "jax"}, "log_variance": {"array": 0, "as": "jax"}}
    kernel = {"class": "kernels.RBF", "fields": rbf}
    loss = {"class": "losses.Hinge", "fields": {"log_C": {"array": 0, "as": "jax"}}}
    machine = {"kernel": kernel, "loss": loss, "offset": False}
    yield {"class": "KernelMachine", "fields": {**machine, "kernel": loss}}
    yield {"class": "KernelMachine", "fields": {**machine, "offset": "no"}}
    yield {"class": "KernelMachine", "fields": {**machine, "more": 1}}
    yield {"class": "KernelMachine", "fields": {"kernel": kernel, "loss": loss}}
    yield {"class": "KernelMachine", "fields": {**machine, "loss": None}}
    yield {"class": "KernelMachine", "fields": []}
    yield {"class": "kernels.RBF", "fields": {**rbf, "log_variance": 1.0}}
    yield {"class": "kernels.RBF", "fields": {**rbf, "log_variance": {"array": 1, "as": "jax"}}}
    yield {"class": "kernels.RBF", "fields": {**rbf, "log_variance": {"array": 2, "as": "jax"}}}
    yield {"class": "kernels.RBF", "fields": {**rbf, "__class__": "x"}}
    yield {"class": "kernels.Subspace", "fields": {"kernel": kernel, "inputs": [0, 1]}}
    yield {"class": "kernels.Subspace", "fields": {"kernel": kernel, "inputs": {"tuple": [-1]}}}
    yield {"class": "kernels.Subspace", "fields": {"kernel": kernel, "inputs": {"tuple": ["a"]}}}
    for name in (
        "os.system", "builtins.eval", "kernels.Nothing", "kernels.AbstractKernel", "kernels._algebra.Sum",
        "Frozen", "fields.Frozen", "equinox.nn.os", "jax.numpy.load", "", None, 3, ["kernels.RBF"], {"a": 1},
    ):  # fmt: skip
        yield {"class": name, "fields": rbf}
        yield {"function": name}
        yield {"yours": name}
        yield {"yours": name, "fields": {}}
    yield {"class": "kernels.RBF", "fields": rbf, "call": "os.system"}
    empty = {"function": None, "parameters": None, "static": None}
    for function in (None, 1, kernel):
        wrapped = {"class": "kernels.UserFunction", "fields": {**empty, "function": function}}
        if function is not kernel:
            yield {"class": "kernels.Custom", "fields": {"function": wrapped}}
    yield {"class": "kernels.UserFunction", "fields": {}}
    for number in (-1, 3, 0.0, True, "0", None, [0]):
        yield {"array": number, "as": "jax"}
        yield {"frozen": number}
    for kind in ("pickle", None, ["jax"], {}):
        yield {"array": 0, "as": kind}
    yield {"array": 2, "as": "jax"}
    yield {"frozen": 2}
    yield {"class": "fields.Frozen", "fields": {"constant": 1}}
    yield {"array": 3}
    for key in ("float", "tuple", "dict", "result", "list", "set", "pickle", "__class__", "$ref"):
        for value in (1, None, "x", {"a": 1}, [1]):
            if (key, value) != ("tuple", [1]):
                yield {key: value}
    yield {"dict": [[1, 2], [1, 3]]}
    yield {"dict": [[1, 2], [True, 3]]}
    yield {"dict": [[[1], 2]]}
    yield {"dict": [[{"array": 1, "as": "numpy"}, 2]]}
    yield {}
    deep = 0
    for _ in range(150):
        deep = [deep]
    yield deep


@pytest.mark.parametrize("place", range(4))
def test_descriptions_that_are_none(place, tmp_path):
    jsvm.save(tmp_path / "sound", [jnp.zeros(()), jnp.arange(3), np.array("text")])
    content = (tmp_path / "sound").read_bytes()
    for node in list(nodes())[place::4]:
        (tmp_path / "bad").write_bytes(tampered(content, lambda m, node=node: m.update(thing=node)))
        with pytest.raises(jsvm.FileError, match="cannot be loaded") as caught:
            jsvm.load(tmp_path / "bad")
        assert str(caught.value)


def test_fits_whose_parts_do_not_agree(content, refused):
    def change(manifest):
        entries = dict(map(tuple, manifest["thing"]["dict"]))
        fields = entries["fit"]["fields"]
        fields[name] = fields[other]

    pairs = [
        ("dual", "offset", "shape"),
        ("x", "y", "shape"),
        ("y", "x", "shape"),
        ("offset", "dual", "shape"),
        ("group", "y", "type"),
        ("result", "offset", "type"),
        ("stats", "model", "must be a Stats"),
        ("model", "stats", "must be a KernelMachine"),
    ]
    for name, other, message in pairs:  # noqa: B007, `change` reads them
        refused(tampered(content, change), message)


def test_a_hundred_descriptions_altered_at_random(content, refused, tmp_path):
    """A forged description is refused, or happens to be valid; it never crashes."""
    random = np.random.default_rng(3)
    parts = members(content)
    text = parts[MANIFEST]
    outcomes = []
    for _ in range(100):
        forged = bytearray(text)
        for place in random.integers(0, len(text), 3):
            forged[place] = random.integers(32, 127)
        path = tmp_path / "forged"
        path.write_bytes(sealed({**parts, MANIFEST: bytes(forged)}.items()))
        try:
            jsvm.load(path)
            outcomes.append("loaded")
        except jsvm.FileError:
            outcomes.append("refused")
    assert outcomes.count("refused") > 80


def test_hints_are_shown_if_they_are_words(content, refused):
    for hint, shown in (
        ("a map: read it with `jaxsvm.maps`", "holds a map: read it with `jaxsvm.maps`"),
        ("\x1b[31mred", "something of the kind 'map'"),
        ("two\nlines", "something of the kind 'map'"),
        ("x" * 1000, "something of the kind 'map'"),
        (3, "something of the kind 'map'"),
    ):
        refused(tampered(content, lambda m, h=hint: m.update(kind="map", hint=h)), shown)
