"""Where checkpoints live: nobody redirects them, one run owns them, and another one is noticed."""

import contextlib
import errno
import os
import signal
import stat
import subprocess
import sys
import time

import numpy as np
import pytest

import stiefel
from stiefel.objectives import Brockett
from stiefel.runs import files
from stiefel.runs.checkpoint import CheckpointError
from stiefel.solvers import METHODS

N, K = 30, 3
FUN, X0 = Brockett.linear(N, K), stiefel.random_point(N, K, seed=0)
posix = pytest.mark.skipif(sys.platform == "win32", reason="a matter of POSIX systems")


def run(path, maxiter=8, **options):
    given = {"fun": FUN, "x0": X0, "rtol": 1e-12, "checkpoint": path}
    return stiefel.minimize(**given | options, maxiter=maxiter)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.npz"


# -- links, modes, special files -----------------------------------------------------------


@posix
def test_a_link_planted_under_a_name_that_was_guessed_is_harmless(path, tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    monkeypatch.setattr(files.secrets, "token_hex", lambda size: "guessed")
    for name in ("run.npz.partial", ".run.npz.partial"):
        (tmp_path / name).symlink_to(victim)
    run(path)
    assert victim.read_text() == "precious"

    def plant(snapshot):
        if snapshot.nit == 9:
            (tmp_path / "run.npz.guessed.partial").symlink_to(victim)

    with pytest.warns(UserWarning, match="could not be written"):
        result = run(path, 20, callback=plant, resume=True, checkpoint_interval=0)
    assert result.nit == 20
    assert victim.read_text() == "precious"
    assert not victim.is_symlink()


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o664])
def test_the_mode_is_kept(path, mode):
    run(path)
    path.chmod(mode)
    run(path, 12, resume=True)
    assert stat.S_IMODE(path.stat().st_mode) == mode


@posix
def test_a_new_file_has_the_mode_that_the_user_asks_for(path):
    before = os.umask(0o027)
    try:
        run(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@posix
def test_a_link_to_a_checkpoint_stays_a_link(path, tmp_path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    path.symlink_to(folder / "real.npz")
    run(path)
    before = (folder / "real.npz").read_bytes()
    run(path, 12, resume=True)
    assert path.is_symlink()
    assert (folder / "real.npz").read_bytes() != before
    assert sorted(os.listdir(tmp_path)) == ["run.npz", "scratch"]
    assert os.listdir(folder) == ["real.npz"]


@posix
@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_pipes_and_devices_are_refused_before_anything_is_computed(path, kind, resume):
    os.mkfifo(path)
    calls = []
    where = path if kind == "pipe" else os.devnull
    with pytest.raises(FileExistsError, match="pipe, a device or a socket"):
        run(where, fun=calls.append, resume=resume)
    assert not calls


@posix
def test_a_pipe_that_takes_the_place_of_the_file_does_not_hang(path):
    run(path)

    def swap(snapshot):
        if snapshot.nit == 9:
            path.unlink()
            os.mkfifo(path)

    with pytest.warns(UserWarning, match="could not be written"):
        assert run(path, 15, callback=swap, resume=True, checkpoint_interval=0).nit == 15
    with pytest.raises(FileExistsError):
        files.open_regular(path)


def test_what_a_crashed_run_left_is_removed(path, tmp_path):
    run(path)
    (tmp_path / "run.npz.0123456789abcdef.partial").write_bytes(b"half a file")
    (tmp_path / "other.npz.0123456789abcdef.partial").write_bytes(b"of somebody else")
    run(path, 12, resume=True)
    assert sorted(os.listdir(tmp_path)) == ["other.npz.0123456789abcdef.partial", "run.npz"]


def test_long_names_have_room(tmp_path):
    path = tmp_path / ("x" * 240 + ".npz")
    run(path)
    assert os.listdir(tmp_path) == [path.name]


# -- one owner -----------------------------------------------------------------------------


@posix
@pytest.mark.parametrize("resume", [False, True])
def test_a_second_run_on_the_same_path_is_refused(path, resume):
    seen = []

    def second(snapshot):
        if snapshot.nit in (0, 5):
            with pytest.raises((files.Occupied, FileExistsError)) as caught:
                run(path, fun=seen.append, resume=resume or snapshot.nit == 0)
            seen.append(caught.type)

    result = run(path, 10, callback=second, checkpoint_interval=0)
    assert result.nit == 10
    assert seen == [files.Occupied, files.Occupied if resume else FileExistsError]
    assert os.listdir(path.parent) == [path.name]
    run(path, 12, resume=True)


@posix
def test_the_path_is_free_again_after_an_error(path):
    def fun(X):
        if calls.pop():
            raise ZeroDivisionError
        return FUN(X)

    calls = [True, *[False] * 5]
    try:
        run(path, 20, fun=fun)
    except ZeroDivisionError:  # whose traceback holds on to everything
        assert run(path, 20, resume=True).nit == 20


OWNER = """
import sys, time, os, stiefel
from stiefel.objectives import Brockett
f = Brockett.linear(30, 3)
def fun(X):
    if sys.argv[2] == "fork" and not hasattr(fun, "child"):
        fun.child = os.fork()
        if fun.child == 0:
            time.sleep(20)
            os._exit(0)
    time.sleep(1e-3)
    return f(X)
stiefel.minimize(fun, stiefel.random_point(30, 3, seed=0), rtol=1e-300, maxiter=10**6,
                 checkpoint=sys.argv[1], checkpoint_interval=0.01, resume=True)
"""


@posix
@pytest.mark.parametrize("action", ["plain", "fork"])
def test_the_path_of_a_killed_run_is_free_although_a_child_lives_on(path, action):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(path), action], start_new_session=True
    )
    try:
        end = time.monotonic() + 60
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.01)
        with pytest.raises(files.Occupied, match="another run is saving"):
            run(path, resume=True)
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        assert path.with_name("run.npz.lock").exists()
        assert run(path, 10**6, maxfun=30, resume=True).nit >= 1
        assert os.listdir(path.parent) == [path.name]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(owner.pid, signal.SIGKILL)
        owner.wait()


@posix
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_lock_that_is_no_lock_is_refused(path, tmp_path, kind):
    victim, lock = tmp_path / "victim", tmp_path / "run.npz.lock"
    victim.write_text("precious")
    lock.symlink_to(victim) if kind == "link" else os.mkfifo(lock)
    with pytest.raises(OSError, match="remove it") as caught:
        run(path)
    assert caught.value.errno == errno.EEXIST
    assert victim.read_text() == "precious"


# -- another function ----------------------------------------------------------------------


def turned(angle):
    """f with the same value and the same norm of the gradient at X0, which points elsewhere."""
    f0, G0 = FUN.value_and_gradient(X0)
    skew = lambda A: A - A.T
    project = lambda G: G - X0 @ (X0.T @ G + G.T @ X0) / 2
    g = project(G0)
    rng = np.random.default_rng(1)
    other = project(rng.standard_normal(X0.shape))
    norm = lambda W: np.sqrt(np.vdot(W, W) - np.vdot(X0.T @ W, X0.T @ W) / 2)
    inner = lambda V, W: np.vdot(V, W) - np.vdot(X0.T @ V, X0.T @ W) / 2
    other = other - g * inner(g, other) / inner(g, g)
    other = other * norm(g) / norm(other)
    C = np.cos(angle) * g + np.sin(angle) * other
    assert abs(norm(C) - norm(g)) < 1e-12 * norm(g)
    assert np.allclose(skew(X0.T @ X0), 0)
    return lambda X: (f0 + float(np.vdot(C, X - X0)), C)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("degrees", [0.01, 30, 95, 180])
def test_a_function_with_another_gradient_is_refused(path, method, degrees):
    run(path, fun=turned(0.0), method=method)
    with pytest.raises(CheckpointError, match="another function"):
        run(path, 12, fun=turned(np.deg2rad(degrees)), method=method, resume=True)
    run(path, 12, fun=turned(1e-9), method=method, resume=True)  # rounding of another machine


# -- counts --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_preconditioned_run_counts_the_same_however_often_it_is_resumed(path, method):
    """The preconditioner asks for what fun returned beside the gradient."""

    def fun(X):
        f, G = FUN.value_and_gradient(X)
        return f, G, {"scale": 1.0 + np.arange(N)[:, None] / N}

    def precond(X, G, aux):
        return G / aux["scale"]

    options = {"fun": fun, "precond": precond, "method": method}
    whole = run(path.with_name("whole.npz"), 9, **options)
    for limit in range(10):
        rest = run(path, limit, **options, resume=True)
    assert np.array_equal(rest.x, whole.x)
    assert (rest.nfev, rest.njev, rest.nhev) == (whole.nfev, whole.njev, whole.nhev)


def test_resuming_needs_no_evaluation_that_the_limit_forbids(path):
    options = {"precond": lambda X, G: G, "method": "trust-region"}
    run(path, 3, **options)
    assert run(path, 99, **options, resume=True, maxfun=1).status.name == "MAX_EVALUATIONS"
