"""Rows of X on several ranks, started by mpiexec: the serial answer, errors, counts, lost ranks."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stiefel

pytest.importorskip("mpi4py")

HERE = Path(__file__).parent
PROGRAM = HERE / "mpi_program.py"
MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}")
needs_mpiexec = pytest.mark.skipif(MPIEXEC is None, reason="no mpiexec")


def command(ranks, *arguments):
    return [
        str(MPIEXEC),
        "-n",
        str(ranks),
        sys.executable,
        "-m",
        "mpi4py",
        str(PROGRAM),
        *arguments,
    ]


def environment():
    paths = [str(Path(stiefel.__file__).parents[1]), str(HERE)]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }


def run(ranks, *arguments, timeout=240):
    return subprocess.run(
        command(ranks, *arguments),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def passes(ranks, *arguments):
    done = run(ranks, *arguments)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@needs_mpiexec
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_row_model_on_ranks(ranks):
    passes(ranks, "row_model")


@needs_mpiexec
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_iterates_are_those_of_the_serial_run(ranks):
    passes(ranks, "iterates")


@needs_mpiexec
@pytest.mark.parametrize("checks", ["kinds,mixed", "methods", "generalised,counts,sums"])
def test_whatever_works_on_one_machine_works_on_two_ranks(checks):
    passes(2, checks)


@needs_mpiexec
@pytest.mark.parametrize("name", ["torch", "jax"])
def test_other_array_libraries(name):
    pytest.importorskip(name)
    passes(2, "library", name)


@needs_mpiexec
def test_ranks_without_rows_and_helpers():
    passes(4, "empty,helpers")


@needs_mpiexec
def test_errors_reach_every_rank():
    passes(3, "errors")


@needs_mpiexec
def test_a_rank_that_fails_while_others_wait_for_it_ends_the_job():
    done = run(2, "deadlock", timeout=60)
    assert done.returncode != 0
    assert "ZeroDivisionError: before the exchange" in done.stderr
    assert "they wait inside a user's function" in done.stderr


@needs_mpiexec
def test_a_run_resumes_bit_for_bit_and_on_other_numbers_of_ranks(tmp_path):
    first = tmp_path / "first"
    first.mkdir()
    passes(3, "saved", str(first / "run.npz"), "start")
    for ranks, action in ((3, "same"), (2, "other"), (1, "other")):
        copy = tmp_path / f"on-{ranks}"
        shutil.copytree(first, copy)
        passes(ranks, "saved", str(copy / "run.npz"), action)


@needs_mpiexec
def test_killing_a_rank_ends_the_job_and_its_checkpoint_goes_on_elsewhere(tmp_path):
    path = str(tmp_path / "run.npz")
    job = subprocess.Popen(
        command(2, "saved", path, "victim", "2.0"),
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        for line in job.stdout:
            # Lines of two ranks may arrive as one.
            if found := re.search(r"rank 1 is (\d+);", line):
                os.kill(int(found[1]), signal.SIGKILL)
                break
        assert job.wait(timeout=30) != 0  # it ends by itself; the limit only bounds the test
    finally:
        job.kill()
        job.wait()
    passes(3, "saved", path, "other")


@needs_mpiexec
def test_the_example_finds_the_known_energies_on_two_ranks():
    example = HERE.parent / "examples" / "distributed_schroedinger.py"
    order = [str(MPIEXEC), "-n", "2", sys.executable, "-m", "mpi4py", str(example)]
    done = subprocess.run(order, env=environment(), capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "1728 rows on 2 ranks" in done.stdout and "CONVERGED" in done.stdout


@needs_mpiexec
@pytest.mark.slow
def test_table_1_converges_on_two_ranks():
    passes(2, "table1", "1e-9")


def test_one_rank_is_the_serial_run_bit_for_bit():
    from mpi4py import MPI

    a, d = np.linspace(1.0, 9.0, 50), np.array([1.0, 2.0, 3.0])

    def fun(X):
        G = a[:, None] * X * d
        return 0.5 * np.vdot(X, G), G

    X0 = stiefel.random_point(50, 3, seed=0)
    alone = stiefel.minimize(fun, X0)
    comm = stiefel.minimize(fun, X0, comm=MPI.COMM_WORLD)
    assert (alone.x == comm.x).all() and alone.fun == comm.fun and alone.nit == comm.nit


def test_wrong_communicators_and_values_are_refused():
    with pytest.raises(TypeError, match="expected an mpi4py communicator"):
        stiefel.minimize(lambda X: (0.0, X), np.eye(3, 2), comm="world")
    with pytest.raises(ValueError, match="value is 'total'; expected 'local'"):
        stiefel.minimize(lambda X: (0.0, X), np.eye(3, 2), value="total")
