"""A run that is saved, stopped and resumed goes on bit for bit, or is refused with a sentence."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import stiefel
from stiefel.objectives import Brockett
from stiefel.runs import archive
from stiefel.runs.checkpoint import CheckpointError
from stiefel.solvers import METHODS

N, K = 60, 4


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.npz"


def problem(seed=0):
    return Brockett.table(N, K), stiefel.random_point(N, K, seed=seed)


def assert_same_run(a, b):
    """Everything but the clock."""
    flat = lambda x: x if isinstance(x, np.ndarray) else np.concatenate([np.ravel(v) for v in x])
    assert np.array_equal(flat(a.x), flat(b.x))
    assert np.array_equal(flat(a.grad), flat(b.grad))
    for name in ("fun", "gradient_norm", "nit", "nfev", "njev", "restarts", "restorations"):
        assert a[name] == b[name], name
    assert a.status is b.status
    left, right = a.history.as_array(), b.history.as_array()
    for name in left.dtype.names:
        assert name == "seconds" or np.array_equal(left[name], right[name]), name


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("limit", ["maxiter", "maxfun"])
@pytest.mark.parametrize("part", [0.0, 0.1, 0.7])
def test_a_resumed_run_is_the_uninterrupted_one(method, limit, part, path):
    f, x0 = problem()
    options = {"method": method, "rtol": 1e-8, "maxiter": 100}
    whole = stiefel.minimize(f, x0, **options)
    limits = {"maxiter": int(part * whole.nit), "maxfun": max(1, int(part * whole.nfev))}
    stopped = stiefel.minimize(f, x0, **{**options, limit: limits[limit]}, checkpoint=path)
    assert stopped.nit < whole.nit
    rest = stiefel.minimize(f, x0, **options, checkpoint=path, resume=True)
    assert_same_run(rest, whole)


@pytest.mark.parametrize("method", METHODS)
def test_resuming_again_and_again_changes_nothing(method, path):
    f, x0 = problem(1)
    whole = stiefel.minimize(f, x0, method=method, rtol=1e-8, maxiter=90)
    for limit in range(0, 91, 9):
        result = stiefel.minimize(
            f, x0, method=method, rtol=1e-8, maxiter=limit, checkpoint=path, resume=True
        )
        assert result.nit <= limit
    assert_same_run(result, whole)


def test_resuming_a_finished_run_returns_it_without_an_iteration(path):
    f, x0 = problem()
    whole = stiefel.minimize(f, x0, rtol=1e-6, checkpoint=path)
    assert whole.success
    assert_same_run(stiefel.minimize(f, x0, rtol=1e-6, checkpoint=path, resume=True), whole)


def trees(library):
    a = np.diag(np.arange(1.0, 13.0))
    if library == "numpy":

        def fun(p):
            return np.vdot(p["u"], a @ p["u"]) + np.sum((p["v"] - 2) ** 2), {
                "u": 2 * a @ p["u"] * 1.0,
                "v": 2 * (p["v"] - 2),
            }

        x0 = {"u": stiefel.random_point(12, 2, seed=0), "v": np.zeros(3)}
        return fun, x0
    if library == "torch":
        torch = pytest.importorskip("torch")
        A = torch.as_tensor(a)
        x0 = {
            "u": torch.as_tensor(stiefel.random_point(12, 2, seed=0)),
            "v": torch.zeros(3, dtype=torch.float64),
        }
        return lambda p: (p["u"] * (A @ p["u"])).sum() + ((p["v"] - 2) ** 2).sum(), x0
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp

    A = jnp.asarray(a)
    x0 = {"u": jnp.asarray(stiefel.random_point(12, 2, seed=0)), "v": jnp.zeros(3)}
    return lambda p: (p["u"] * (A @ p["u"])).sum() + ((p["v"] - 2) ** 2).sum(), x0


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_trees_of_every_library_resume_bit_for_bit(library, path):
    fun, x0 = trees(library)
    options = {
        "manifold": {"u": stiefel.Stiefel(), "v": stiefel.Euclidean()},
        "rtol": 1e-9,
        "maxiter": 60,
    }
    whole = stiefel.minimize(fun, x0, **options)
    stiefel.minimize(fun, x0, **{**options, "maxiter": 13}, checkpoint=path)
    rest = stiefel.minimize(fun, x0, **options, checkpoint=path, resume=True)
    assert type(rest.x["u"]) is type(x0["u"])
    for result in (rest, whole):
        for name in ("x", "grad"):
            result[name] = tuple(np.asarray(v) for v in result[name].values())
    assert_same_run(rest, whole)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
@pytest.mark.parametrize("order", ["C", "F", "strided"])
def test_types_and_memory_orders_resume_bit_for_bit(dtype, order, path):
    A = np.diag(np.arange(1.0, 31.0)).astype(dtype)
    fun = lambda X: (float(np.vdot(X, A @ X).real), 2 * (A @ X))
    x0 = stiefel.Stiefel().random(30, 3, seed=2, dtype=dtype)
    if order == "strided":
        wide = np.zeros((30, 6), dtype)
        wide[:, ::2] = x0
        x0 = wide[:, ::2]
    x0 = x0 if order == "strided" else np.asarray(x0, order=order)
    options = {"rtol": 1e-4, "maxiter": 40}
    whole = stiefel.minimize(fun, x0, **options)
    stiefel.minimize(fun, x0, **{**options, "maxiter": 2}, checkpoint=path)
    assert_same_run(stiefel.minimize(fun, x0, **options, checkpoint=path, resume=True), whole)


def test_a_generalised_constraint_and_a_preconditioner_resume(path):
    f, _ = problem()
    rng = np.random.default_rng(0)
    R = rng.standard_normal((N, N))
    manifold = stiefel.Stiefel(B=np.eye(N) + R @ R.T / N)
    x0 = manifold.nearest(rng.standard_normal((N, K)))
    options = {"manifold": manifold, "precond": lambda X, G: 0.5 * G, "maxiter": 50}
    whole = stiefel.minimize(f, x0, **options)
    stiefel.minimize(f, x0, **{**options, "maxiter": 21}, checkpoint=path)
    assert_same_run(stiefel.minimize(f, x0, **options, checkpoint=path, resume=True), whole)


# -- interruption --------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_exception_saves_the_last_completed_iteration(error, path):
    f, x0 = problem()
    options = {"rtol": 1e-8, "maxiter": 120}
    whole = stiefel.minimize(lambda X: f(X), x0, **options)
    calls = 0

    def fun(X):
        nonlocal calls
        calls += 1
        if calls == 20:
            raise error("now")
        return f(X)

    with pytest.raises(error) as caught:
        stiefel.minimize(fun, x0, **options, checkpoint=path, checkpoint_interval=1e6)
    assert caught.value.partial_result.nfev >= 19
    assert caught.value.partial_result.success is False
    rest = stiefel.minimize(lambda X: f(X), x0, **options, checkpoint=path, resume=True)
    assert_same_run(rest, whole)


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Stubborn(Exception):
    """Takes no attribute and no note."""

    __slots__ = ()

    def __setattr__(self, name, value):
        raise RuntimeError("no attributes")

    def add_note(self, note):
        raise RuntimeError("no notes")


@pytest.mark.parametrize("error", [Frozen(3), Stubborn("now")])
def test_an_exception_that_takes_no_attributes_passes_and_the_run_is_saved(error, path):
    f, x0 = problem()
    options = {"rtol": 1e-8, "maxiter": 60}
    whole = stiefel.minimize(f, x0, **options)
    calls = iter(range(40))

    def fun(X):
        if next(calls, None) is None:
            raise error
        return f.value_and_gradient(X)

    with pytest.raises(type(error)) as caught:
        stiefel.minimize(fun, x0, **options, checkpoint=path, checkpoint_interval=1e6)
    assert caught.value is error
    assert archive.read(path)[0]["values"]["counters.nit"] > 5
    rest = stiefel.minimize(f.value_and_gradient, x0, **options, checkpoint=path, resume=True)
    assert np.array_equal(rest.x, whole.x)


def test_an_error_while_saving_does_not_take_the_place_of_the_users(path, monkeypatch):
    f, x0 = problem()
    calls, failing, write = iter(range(10)), [], archive.write

    def fun(X):
        if next(calls, None) is None:
            failing.append(True)
            raise KeyError("mine")
        return f.value_and_gradient(X)

    monkeypatch.setattr(archive, "write", lambda *a: 1 / 0 if failing else write(*a))
    with pytest.raises(KeyError, match="mine") as caught:
        stiefel.minimize(fun, x0, checkpoint=path)
    assert caught.value.partial_result.nit > 0


CHILD = """
import sys, time
import numpy as np, stiefel
from stiefel.objectives import Brockett
f = Brockett.table(60, 4)
def fun(X):
    time.sleep(0.03)  # a run of two seconds, whatever the library needs: three kills fit in
    return f(X)
r = stiefel.minimize(fun, stiefel.random_point(60, 4, seed=0), rtol=1e-10, maxiter=1500,
                     checkpoint=sys.argv[1], checkpoint_interval=float(sys.argv[2]), resume=True)
np.save(sys.argv[1] + ".result.npy", r.x)
print(r.nit, r.nfev, r.status)
"""


def test_killed_runs_lose_nothing_beyond_the_last_interval(path):
    """kill −9 at random moments, resume, again: the end is that of a run left alone."""
    rng = np.random.default_rng(6)
    f, x0 = problem()
    whole = stiefel.minimize(lambda X: f(X), x0, rtol=1e-10, maxiter=1500)
    kills, last = 0, 0
    for _ in range(30):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(path), "0.02"], stdout=subprocess.PIPE, text=True
        )
        before = path.stat().st_mtime_ns if path.exists() else 0
        deadline = time.monotonic() + 60
        # Only after this child has begun to save: until then it is importing.
        while child.poll() is None and time.monotonic() < deadline:
            if path.exists() and path.stat().st_mtime_ns != before:
                break
            time.sleep(0.002)
        time.sleep(rng.uniform(0, 0.12))
        if kills < 3 and child.poll() is None:
            child.send_signal(signal.SIGKILL)
            kills += 1
            child.wait()
            nit = archive.read(path)[0]["values"]["counters.nit"]
            assert nit >= last
            last = nit
            continue
        out, _ = child.communicate(timeout=120)
        break
    assert kills >= 3
    assert out.split() == [str(whole.nit), str(whole.nfev), str(whole.status)]
    assert np.array_equal(np.load(str(path) + ".result.npy"), whole.x)


# -- refusals ------------------------------------------------------------------------------


@pytest.fixture
def saved(path):
    f, x0 = problem()
    stiefel.minimize(f, x0, maxiter=20, rtol=1e-9, checkpoint=path)
    return path


def resume(path, **changes):
    f, x0 = problem()
    given = {"fun": f, "x0": x0, "rtol": 1e-9, "maxiter": 25, **changes}
    return stiefel.minimize(**given, checkpoint=path, resume=True)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"x0": stiefel.random_point(N, K, seed=5)}, "another x0"),
        ({"x0": stiefel.random_point(N, K + 1, seed=5)}, "another shape or dtype of x0"),
        ({"x0": stiefel.random_point(N, K, seed=0).astype(np.float32)}, "another shape or dtype"),
        ({"method": "gradient-descent"}, "another method"),
        ({"method": stiefel.LBFGS(memory=3)}, "another method parameters.*memory"),
        ({"manifold": stiefel.Grassmann()}, "another manifold.*Grassmann"),
        ({"precond": lambda X, G: G}, "another precond"),
        ({"fnoise": 1e-3}, "another fnoise"),
        ({"fun": Brockett.linear(N, K)}, "another function"),
    ],
)
def test_other_runs_are_refused_with_a_sentence(saved, changes, sentence):
    before = saved.read_bytes()
    with pytest.raises(CheckpointError, match=sentence):
        resume(saved, **{"method": "accelerated", **changes} if "method" in changes else changes)
    assert saved.read_bytes() == before


def test_an_existing_file_is_never_overwritten_by_a_new_run(saved):
    f, x0 = problem()
    before = saved.read_bytes()
    with pytest.raises(FileExistsError, match="resume=True"):
        stiefel.minimize(f, x0, checkpoint=saved)
    assert saved.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"checkpoint": 3}, TypeError),
        ({"checkpoint": "nowhere/at/all.npz"}, FileNotFoundError),
        ({"checkpoint": "."}, FileNotFoundError),
        ({"checkpoint": "a.npz", "checkpoint_interval": -1}, ValueError),
        ({"checkpoint": "a.npz", "checkpoint_interval": float("nan")}, ValueError),
        ({"resume": True}, ValueError),
    ],
)
def test_misuse_is_an_error_before_anything_is_computed(arguments, error, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    calls = []
    with pytest.raises(error):
        stiefel.minimize(calls.append, problem()[1], **arguments)
    assert not calls


def test_every_truncation_is_refused(saved):
    data = saved.read_bytes()
    rng = np.random.default_rng(0)
    for size in [0, 1, 4, len(data) - 1, *rng.integers(2, len(data) - 1, 40)]:
        saved.write_bytes(data[:size])
        with pytest.raises(CheckpointError):
            resume(saved)


def test_flipped_bytes_are_refused_or_harmless(saved):
    """Flips in the zip's own bookkeeping may be invisible; then the run must be the true one."""
    data, expected = saved.read_bytes(), None
    clean = archive.read(saved)
    rng = np.random.default_rng(1)
    refused = 0
    for place in rng.integers(0, len(data), 300):
        damaged = bytearray(data)
        damaged[place] ^= int(rng.integers(1, 256))
        saved.write_bytes(damaged)
        try:
            header, arrays = archive.read(saved)
        except archive.ArchiveError:
            refused += 1
            continue
        assert header == clean[0]
        assert all(a.tobytes() == b.tobytes() for a, b in zip(arrays, clean[1], strict=True))
    assert refused > 250
    saved.write_bytes(data)
    expected = resume(saved)
    assert expected.nit == 25


def test_a_file_that_has_lost_bytes_in_the_middle_is_refused(saved):
    """Found by fuzzing: the container then asks for bytes before the beginning."""
    data = saved.read_bytes()
    for start, stop in ((10, 200), (100, 5000), (len(data) // 2, len(data) // 2 + 64)):
        saved.write_bytes(data[:start] + data[stop:])
        with pytest.raises(CheckpointError, match="truncated or damaged"):
            resume(saved)


def test_a_disk_that_cannot_be_read_is_not_called_a_damaged_file(saved, monkeypatch):
    def failing(*arguments):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(archive, "_member", failing)
    with pytest.raises(OSError, match="Input/output error"):
        resume(saved)


def rewrite(path, change):
    """The file with its header changed, and a checksum that fits: a forger's work."""
    header, arrays = archive.read(path)
    change(header)
    header.pop("kind")
    version = header.pop("format")
    old, archive.FORMAT = archive.FORMAT, version
    try:
        archive.write(path, header, arrays)
    finally:
        archive.FORMAT = old


def put(**changes):
    """Change values of the header; names with dots are written with two underscores."""
    return lambda h: h["values"].update({k.replace("__", "."): v for k, v in changes.items()})


def without(name):
    return lambda h: h["values"].pop(name)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda h: h.update(format=5), "newer version"),
        (lambda h: h.update(format=2), "older version of stiefel that wrote it"),
        (lambda h: h.update(format="x"), "format 'x'"),
        (lambda h: h.update(format=True), "format True"),
        (lambda h: h.pop("fingerprint"), "does not say what was solved"),
        (lambda h: h.pop("values"), "no values"),
        (lambda h: h.update(values=[1]), "no values"),
        (lambda h: h.pop("arrays"), "no values"),
        (lambda h: h["arrays"].pop("state.x"), "not the ones that it names"),
        (lambda h: h["arrays"].update({"state.x": "os.system"}), "unknown kind"),
        (lambda h: h["arrays"].update({"state.x": "scalar"}), "unknown kind"),
        (lambda h: h["arrays"].update({"surprise": h["arrays"].pop("state.x")}), "no state.x"),
        (put(extra=1), "extra"),
        (put(state="os.system"), "does not use"),
        (put(state__x=10**9), "not the ones that it names"),
        (put(state__pairs__rows=10**12), "rows"),
        (put(state__pairs__rows=-1), "rows is '-1'"),
        (put(state__learned=0), "learned"),
        (put(state__learned__0__rotations=3), "rotations is '3'"),
        (put(state__learned__0__metric__omega=None), "omega is 'None'"),
        (put(state__failure="REMOVED"), "failure is 'REMOVED'"),
        (put(state__failure={"a": 1}), "failure"),
        # Found by fuzzing: errors in the middle of the run.
        (without("counters.reference_norm"), "counters.reference_norm"),
        (put(counters__more=1), "counters.more"),
        (put(counters__nit="3"), "nit is '3'"),
        (put(counters__nit=-1), "nit is '-1'"),
        (put(counters__reference_f=None), "reference_f"),
        (put(counters__best=7), "best"),
        (put(scale=0.0), "scale"),
        (put(scale=float("inf")), "scale"),
        (put(nfev=1.5), "nfev"),
        (put(state__gamma="x"), "is 'x'"),
        (put(state__k="x"), "is 'x'"),
        (put(state__restarted="x"), "is 'x'"),
        (put(state__restarted=[]), "restarted"),
    ],
)
def test_forged_headers_are_refused(saved, change, sentence):
    rewrite(saved, change)
    with pytest.raises(CheckpointError, match=sentence):
        resume(saved)


def test_other_files_are_refused(path):
    np.savez(path, a=np.arange(3))
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        resume(path)
    path.write_text("hello")
    with pytest.raises(CheckpointError, match="damaged"):
        resume(path)
    np.savez(path, header=np.array([{}], dtype=object))
    with pytest.raises(CheckpointError):
        resume(path)


def test_a_bomb_is_not_unpacked(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("header.npy", b"\0" * 10_000_000)
    with pytest.raises(CheckpointError, match="compressed"):
        resume(path)
    with zipfile.ZipFile(path, "w") as z, z.open("header.npy", "w") as member:
        np.lib.format.write_array_header_1_0(
            member, {"descr": "<f8", "fortran_order": False, "shape": (10**13,)}
        )
    with pytest.raises(CheckpointError, match="size"):
        resume(path)


# -- disks that fail -----------------------------------------------------------------------


def failing_fsync(calls, allowed):
    real = os.fsync

    def fsync(handle):
        calls.append(handle)
        if len(calls) > allowed:
            raise OSError(28, "No space left on device")
        return real(handle)

    return fsync


def test_a_full_disk_leaves_the_run_going_and_the_last_file_whole(path, monkeypatch):
    f, x0 = problem()
    plain = stiefel.minimize(f, x0, rtol=1e-8, maxiter=60)
    stiefel.minimize(f, x0, rtol=1e-8, maxiter=30, checkpoint=path)
    before, calls = path.read_bytes(), []
    monkeypatch.setattr(os, "fsync", failing_fsync(calls, 0))
    with pytest.warns(UserWarning, match="No space left") as caught:
        result = stiefel.minimize(
            f, x0, rtol=1e-8, maxiter=60, checkpoint=path, resume=True, checkpoint_interval=0
        )
    monkeypatch.undo()
    assert len(calls) > 20
    assert len(caught) == 1
    assert "not written" in result.message
    assert "No space left" in result.message
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]
    assert_same_run(result, plain)


def refuse(code):
    """What the system does in a folder that is read-only, full or over quota; root included."""

    def refused(*arguments, **options):
        raise OSError(code, os.strerror(code))

    return refused


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
def test_a_folder_that_refuses_leaves_the_run_going_and_the_last_file_whole(
    call, code, path, monkeypatch
):
    f, x0 = problem()
    plain = stiefel.minimize(f, x0, rtol=1e-8, maxiter=60)
    stiefel.minimize(f, x0, rtol=1e-8, maxiter=30, checkpoint=path)
    before = path.read_bytes()
    refused, real = refuse(code), os.open
    if call == "open":
        refused = lambda p, flags, *a: (refuse(code) if flags & os.O_CREAT else real)(p, flags, *a)
    monkeypatch.setattr(*((np, "savez") if call == "write" else (os, call)), refused)
    options = {"checkpoint": path, "resume": True, "checkpoint_interval": 0}
    with pytest.warns(UserWarning, match="could not be written") as caught:
        result = stiefel.minimize(f, x0, rtol=1e-8, maxiter=60, **options)
    monkeypatch.undo()
    assert [str(w.message).count(os.strerror(code)) for w in caught] == [1]  # told once
    assert f"not written: {type(OSError(code, '')).__name__}" in result.message
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]  # nothing is left beside it
    assert_same_run(result, plain)
    # And the file is as good as it was: the run can be resumed from it.
    assert_same_run(stiefel.minimize(f, x0, rtol=1e-8, maxiter=60, **options), plain)


@pytest.mark.parametrize("name", ["/proc/run.npz", "/sys/run.npz"])
def test_a_folder_in_which_nobody_may_write_leaves_the_run_going(name):
    """Pseudo-folders of Linux, closed to root as well."""
    if not Path(name).parent.is_dir():
        pytest.skip(f"this system has no {Path(name).parent}")
    f, x0 = problem()
    with pytest.warns(UserWarning, match="could not be written") as caught:
        result = stiefel.minimize(f, x0, rtol=1e-6, checkpoint=name)
    assert len(caught) == 1
    assert result.success
    assert "not written" in result.message


def test_a_read_only_folder_leaves_the_run_going(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    if os.access(folder, os.W_OK):
        pytest.skip("this user may write anywhere; the two tests above serve every user")
    f, x0 = problem()
    with pytest.warns(UserWarning, match="could not be written"):
        result = stiefel.minimize(f, x0, rtol=1e-6, checkpoint=folder / "run.npz")
    assert result.success
    assert "not written" in result.message
    folder.chmod(0o755)


@pytest.mark.parametrize("resume", [False, True])
def test_a_path_below_a_file_is_an_error_before_anything_is_computed(tmp_path, resume):
    (tmp_path / "file").write_text("not a folder")
    calls = []
    with pytest.raises(OSError, match="file"):
        stiefel.minimize(
            calls.append, problem()[1], checkpoint=tmp_path / "file" / "run.npz", resume=resume
        )
    assert not calls


def test_the_disk_that_recovers_is_used_again(path, monkeypatch):
    f, x0 = problem()
    calls, real = [], os.fsync

    def fsync(handle):
        calls.append(handle)
        if len(calls) <= 5:
            raise OSError(28, "No space left on device")
        return real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.warns(UserWarning, match="No space left"):
        result = stiefel.minimize(f, x0, maxiter=30, checkpoint=path, checkpoint_interval=0)
    assert "not written" not in result.message
    assert json.dumps(archive.read(Path(path))[0])


def test_the_interval_is_kept(path, monkeypatch):
    f, x0 = problem()
    written = []
    monkeypatch.setattr(archive, "write", lambda *a: written.append(a))
    stiefel.minimize(f, x0, maxiter=50, rtol=1e-12, checkpoint=path, checkpoint_interval=1e6)
    assert len(written) == 2  # at once, and at the end
    written.clear()
    stiefel.minimize(f, x0, maxiter=50, rtol=1e-12, checkpoint=path, checkpoint_interval=0)
    assert len(written) == 51
