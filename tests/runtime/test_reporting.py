"""Progress bars, log records and warnings: what users see while the library works."""

import logging
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsvm as jsvm
from jaxsvm.runtime import Progress, jit, logger, map_in_threads

X = np.random.default_rng(0).normal(size=(12, 2))
Y = np.where(X[:, 0] > 0, 1.0, -1.0)
MODEL = jsvm.KernelMachine(jsvm.kernels.RBF(1.0), jsvm.losses.SquaredHinge())


@jit
def _rolling_sum(x):
    return jnp.cumsum(jnp.sin(x))


@pytest.fixture
def size():
    """A shape that no other test has compiled for."""
    size.last = getattr(size, "last", 400) + 1
    return size.last


def test_a_bar_shows_its_label_its_share_and_a_note(capsys):
    with Progress(8, "working", True) as bar:
        bar.update(2, "so far so good")
    drawn = capsys.readouterr().err
    assert "working:  25%|" in drawn and "so far so good" in drawn
    assert drawn.endswith("\n")


def test_a_late_update_does_not_move_a_bar_back(capsys):
    with Progress(4, "working", True) as bar:
        bar.update(3)
        bar.update(1)
    assert capsys.readouterr().err.rpartition("working:")[2].startswith("  75%|")


def test_nothing_is_drawn_unless_standard_error_is_a_terminal(capsys, monkeypatch):
    for shown in (False, None):
        with Progress(8, "working", shown) as bar:
            bar.update(2, "so far so good")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with Progress(8, "working") as bar:
        bar.update(2)
    assert "working" in capsys.readouterr().err


def test_an_error_ends_the_line(capsys):
    with pytest.raises(ZeroDivisionError), Progress(8, "working", True) as bar:
        bar.update(2)
        1 / 0  # noqa: B018
    assert capsys.readouterr().err.endswith("\n")


def test_compilation_is_shown_and_then_no_longer(capsys, size):
    with Progress(8, "working", True) as bar:
        _rolling_sum(jnp.ones(size)).block_until_ready()
        shown = capsys.readouterr().err
        assert "compiling rolling sum ..." in shown
        bar.update(4)
        assert "compiling" not in capsys.readouterr().err.split("\r")[-1]
        _rolling_sum(jnp.ones(size))
    assert "compiling" not in capsys.readouterr().err


def test_compilation_in_a_thread_of_ours_is_shown(capsys, size):
    caller = threading.get_ident()

    def run(number):
        if threading.get_ident() != caller:
            _rolling_sum(jnp.ones(size)).block_until_ready()

    with Progress(8, "working", True):
        map_in_threads(run, 2, 10)
    assert "compiling rolling sum ..." in capsys.readouterr().err


def test_the_estimate_of_the_time_left_leaves_compilation_out(monkeypatch):
    now = [1000.0]
    with Progress(100, "working", True) as bar:
        shown = bar._bar
        monkeypatch.setattr(shown, "_time", lambda: now[0])
        shown.start_t = shown.last_print_t = now[0]
        bar.compiling("rolling sum")
        now[0] += 60
        bar.compiled()
        now[0] += 1
        bar.update(10)
        assert shown.format_dict["elapsed"] == pytest.approx(1)
        assert str(shown).startswith("working:  10%|") and "00:01<00:09" in str(shown)


def test_compilation_outside_of_a_bar_is_not_shown(capsys, size):
    with Progress(8, "working", True):
        pass
    capsys.readouterr()
    _rolling_sum(jnp.ones(size))
    assert capsys.readouterr().err == ""


def test_the_log_says_when_work_begins_and_ends(caplog, size):
    with caplog.at_level(logging.DEBUG, "jaxsvm"), Progress(8, "working", False) as bar:
        _rolling_sum(jnp.ones(size)).block_until_ready()
        bar.update(2, "so far so good")
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert said[0] == ("INFO", "working: started")
    assert said[1][0] == "DEBUG" and said[1][1].startswith("compiled rolling sum in ")
    assert said[2] == ("DEBUG", "working: 2 of 8, so far so good")
    assert said[3][0] == "INFO" and said[3][1].startswith("working: finished after ")
    caplog.clear()
    with (
        caplog.at_level(logging.INFO, "jaxsvm"),
        pytest.raises(ZeroDivisionError),
        Progress(8, "working", False),
    ):
        1 / 0  # noqa: B018
    assert caplog.records[-1].getMessage().startswith("working: stopped after ")


@pytest.mark.filterwarnings("ignore:the draws from the posterior")
def test_long_work_is_logged(caplog):
    with caplog.at_level(logging.INFO, "jaxsvm"):
        jsvm.select(MODEL, X, Y, jsvm.criteria.Span(), max_steps=2)
        jsvm.sample(MODEL, X, Y, key=jax.random.key(0), chains=2, warmup=20, draws=20)
    labels = [record.getMessage().split(":")[0] for record in caplog.records]
    assert labels == ["selecting", "selecting", "sampling", "sampling"]


def test_the_log_is_silent_by_default():
    assert logger is logging.getLogger("jaxsvm")
    script = "from jaxsvm.runtime import logger; logger.error('an error')"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
