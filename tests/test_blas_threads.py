"""BLAS threads are limited while a solver computes, and nowhere else."""

import dis
import json
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import threadpoolctl

import stiefel
from stiefel.backends import threads as blas_threads
from stiefel.objectives import Brockett
from thread_programs import FORKS, INTERRUPTS


class Library:
    """What threadpoolctl offers of a BLAS."""

    def __init__(self, filepath, threads):
        self.filepath, self.threads, self.least = filepath, threads, threads

    def get_num_threads(self):
        return self.threads

    def set_num_threads(self, number):
        self.threads, self.least = number, min(self.least, number)


@pytest.fixture
def libraries(monkeypatch):
    found = [Library("numpy.libs/blas.so", 8), Library("scipy.libs/blas.so", 4)]
    monkeypatch.setattr(blas_threads, "_libraries", lambda: found)
    return found


class Witness(Brockett):
    """Looks at the numbers of threads in every call."""

    def seen(self, libraries):
        object.__setattr__(self, "libraries", libraries)
        object.__setattr__(self, "counts", set())
        return self

    def value(self, X):
        self.counts.add(tuple(lib.threads for lib in self.libraries))
        return super().value(X)

    def value_and_gradient(self, X):
        self.counts.add(tuple(lib.threads for lib in self.libraries))
        return super().value_and_gradient(X)


@pytest.mark.parametrize("method", ["auto", "accelerated", "trust-region", "cg"])
def test_the_users_functions_have_their_own_number(method, libraries):
    fun = Witness(np.arange(1.0, 21.0), np.arange(1.0, 4.0)).seen(libraries)
    seen = set()

    def look(*_):
        seen.add(tuple(lib.threads for lib in libraries))

    def precond(X, G):
        look()
        return G

    given = {} if method == "trust-region" else {"precond": precond}
    x0 = stiefel.random_point(20, 3, seed=1)
    stiefel.minimize(fun, x0, method=method, maxiter=5, callback=look, **given)
    assert fun.counts == seen == {(8, 4)}
    assert [lib.least for lib in libraries] == [1, 1]
    assert [lib.threads for lib in libraries] == [8, 4]


def test_large_matrices_keep_the_threads_of_one_library(libraries, monkeypatch):
    monkeypatch.setattr(blas_threads, "SMALL", 10)
    stiefel.minimize(Brockett.linear(20, 3), stiefel.random_point(20, 3, seed=1), maxiter=5)
    assert [lib.least for lib in libraries] == [8, 1]
    assert [lib.threads for lib in libraries] == [8, 4]


def test_an_error_gives_the_threads_back(libraries):
    def fun(X):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stiefel.minimize(fun, stiefel.random_point(20, 3, seed=1))
    assert [lib.threads for lib in libraries] == [8, 4]


def test_solves_in_several_threads_count_who_is_inside(libraries):
    """The second solve begins and ends inside the first one, which stays limited."""
    inside, finish = threading.Event(), threading.Event()
    first = blas_threads.threads_for(np.zeros((4, 2)))

    def long():
        with first:
            inside.set()
            finish.wait(10)

    runner = threading.Thread(target=long)
    runner.start()
    assert inside.wait(10)
    stiefel.minimize(Brockett.linear(20, 3), stiefel.random_point(20, 3, seed=1), maxiter=3)
    assert [lib.threads for lib in libraries] == [1, 1]
    finish.set()
    runner.join()
    assert [lib.threads for lib in libraries] == [8, 4]


LOOKS_FOR_SIGNALS = ("RESUME", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD")


def test_an_interrupt_at_any_moment_gives_the_threads_back(libraries):
    """Every moment at which the interpreter looks for signals: entering, calling, leaving."""

    def solve():
        threads = blas_threads.threads_for(np.zeros((4, 2)))
        with threads, threads:
            threads.freely(lambda: None)()
            assert [lib.threads for lib in libraries] == [1, 1]

    moments = 0
    while interrupted_at(moments, solve):
        assert [lib.threads for lib in libraries] == [8, 4], f"moment {moments}"
        assert not blas_threads._running
        assert not blas_threads._found
        assert "unlocked" in repr(blas_threads._lock)
        moments += 1
    assert moments > 50


def interrupted_at(moment, run):
    """Whether ``run`` came to that moment inside the limiter, and was interrupted there."""
    left, looked = moment, {}

    def trace(frame, event, argument):
        nonlocal left
        if frame.f_code.co_filename != blas_threads.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= looked.get(frame, False)
            if left == -1:
                raise KeyboardInterrupt
            name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            looked[frame] = name in LOOKS_FOR_SIGNALS
        return trace

    sys.settrace(trace)
    try:
        run()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def run_with_two_threads(program, *arguments):
    """The program, whose libraries have two threads; what it printed."""
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    ended = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        env=environment | {"OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timer signals")
def test_interrupted_solves_give_the_threads_back():
    counts = json.loads(run_with_two_threads(INTERRUPTS, 150))
    assert counts["interrupted"] >= 100
    assert counts["lost"] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_forked_while_a_thread_solves_solves_too():
    counts = json.loads(run_with_two_threads(FORKS, 60))
    assert counts == {"forks": 60, "hung": 0, "wrong": 0}


def test_one_thread_is_left_alone(libraries):
    for lib in libraries:
        lib.threads = 1
    assert blas_threads.threads_for(np.zeros((4, 2))).libraries == []


def test_only_an_openblas_with_its_own_threads_is_called_directly():
    class Controller(Library):
        threading_layer, symbols = "pthreads", {}

        def _get_symbol(self, name):
            return self.symbols.get(name)

    plain, found = Library("blas.so", 8), Controller("blas.so", 8)
    assert blas_threads._direct(plain) is plain
    assert blas_threads._direct(found) is found
    found.symbols = {
        "openblas_get_num_threads": found.get_num_threads,
        "openblas_set_num_threads": found.set_num_threads,
    }
    direct = blas_threads._direct(found)
    direct.set_num_threads(3)
    assert type(direct) is blas_threads.OpenBlas
    assert direct.get_num_threads() == found.threads == 3
    found.threading_layer = "openmp"  # its number belongs to the thread that sets it
    assert blas_threads._direct(found) is found


def test_the_real_libraries_are_found_and_restored():
    program = (
        "import threadpoolctl, numpy, scipy.linalg, stiefel\n"
        "from stiefel.objectives import Brockett\n"
        "from stiefel.backends import threads as blas_threads\n"
        "count = lambda: [lib.num_threads for lib in threadpoolctl.ThreadpoolController()"
        ".select(user_api='blas').lib_controllers]\n"
        "before, seen = count(), []\n"
        "fun = Brockett.linear(30, 3)\n"
        "f = lambda X: (seen.append(count()), fun.value_and_gradient(X))[1]\n"
        "with blas_threads.threads_for(numpy.zeros((30, 3))): inside = count()\n"
        "stiefel.minimize(f, stiefel.random_point(30, 3, seed=1), maxiter=3)\n"
        "assert set(inside) <= {1}, inside\n"
        "assert all(s == before for s in seen) and count() == before, (before, seen)\n"
        "print(max(before, default=0))\n"
    )
    ended = run_with_two_threads(program)
    if threadpoolctl.threadpool_info():
        assert int(ended) >= 1
