"""`jaxsvm demo`, which also runs when `jaxsvm` has no arguments."""

import jax
import pytest

import jaxsvm as jsvm
from jaxsvm.command import _demo, main
from jaxsvm.command._demo import _machine
from jaxsvm.selection import METHODS


def test_without_arguments_it_is_the_demo(monkeypatch):
    run = []
    monkeypatch.setattr(_demo, "run", run.append)
    assert main([]) == 0
    assert run[0].command == "demo" and run[0].criterion == "evidence"


def test_the_demo_climbs_the_evidence(capsys):
    assert main(["demo", "--examples", "40", "--steps", "2", "--rank", "10"]) == 0
    printed = capsys.readouterr().out
    for word in (
        "the exact evidence",
        "log evidence",
        "calibration error",
        "R-hat",
        "most relevant",
    ):
        assert word in printed


def test_the_demo_by_a_criterion(capsys):
    main(["demo", "--examples", "40", "--criterion", "press", "--steps", "3"])
    printed = capsys.readouterr().out
    for word in ("noisy_xor, 40 examples", "test error", "support vectors", "most relevant of 10"):
        assert word in printed
    with pytest.raises(SystemExit):
        main(["demo", "--examples", "3"])
    assert "must be at least 10, but is 3" in capsys.readouterr().err
    assert main(["demo", "--data", "wdbc", "--examples", "500"]) == 3
    assert "wdbc has 569 examples" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["demo", "--help"])
    helped = capsys.readouterr().out
    assert all(name in helped for name in METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_criteria_fit_their_machines(name):
    x, y = jsvm.datasets.noisy_xor(20, key=jax.random.key(0))
    method = METHODS[name]
    model = _machine(method, 10)
    lengthscale = "kernel.lengthscale" if method.offset else "kernel.left.lengthscale"
    method.criterion(lengthscale).check(model, x, y)
