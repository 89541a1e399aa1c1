"""What the ranks of a test run: ``mpiexec -n P python -m mpi4py mpi_program.py CHECK [ARGUMENT]``.

Each check asserts on every rank; the test that starts it looks at the exit status.
"""

import math
import os
import sys
import time
from dataclasses import replace

import numpy as np
import scipy.sparse.linalg
from mpi4py import MPI

import stiefel
from stiefel import mpi
from stiefel.backends.ranks import Ranks
from stiefel.solvers import METHODS

comm = MPI.COMM_WORLD


def rows(n):
    return slice(*mpi.row_range(n, comm))


class Quadratic:
    """f(X) = ½ Re Tr(XᴴAX D) with A = diag(a); a rank sees its part of a."""

    def __init__(self, a, d, share=None):
        self.a, self.d, self.share = np.asarray(a), np.asarray(d), share
        self.calls = 0

    def value(self, X):
        return self.value_and_gradient(X)[0]

    def value_and_gradient(self, X):
        self.calls += 1
        G = (self.a[:, None] * X) * self.d
        f = 0.5 * np.vdot(X, G).real
        if self.share == "global":
            f = comm.allreduce(f)
        return f, G


def start(*shape, dtype=float, seed=0):
    return stiefel.random_point(*shape, seed=seed, dtype=dtype)


def compare(make, X0, places=1e-10, same_count=True, **options):
    """The distributed run against the serial one, iterate by iterate."""
    mine = rows(X0.shape[-2])
    options.setdefault("method", replace(METHODS["auto"], rows=None))  # rounding differs
    serial, spread = [], []
    whole = stiefel.minimize(
        make(slice(None)), X0, callback=lambda s: serial.append(s.x.copy()), **options
    )
    part = stiefel.minimize(
        make(mine),
        X0[..., mine, :].copy(),
        comm=comm,
        callback=lambda s: spread.append(s.x.copy()),
        **options,
    )
    if same_count:
        assert (part.nit, part.nfev, part.status) == (whole.nit, whole.nfev, whole.status)
    for x, y in zip(serial, spread):
        assert np.abs(x[..., mine, :] - y).max(initial=0.0) <= places
    assert abs(part.fun - whole.fun) <= places * max(1.0, abs(whole.fun))
    assert part.feasibility <= 1e-12
    return whole, part


def row_model():
    """What is learned about an operator, on ranks: the same counts, no more messages a step."""
    n, k = 120, 4
    a, d = np.arange(1.0, n + 1) ** 2 / n, np.arange(1.0, k + 1)
    mine, X0 = rows(n), start(n, k)
    serial = stiefel.minimize(Quadratic(a, d), X0, rtol=1e-8)
    runs = [
        stiefel.minimize(
            Quadratic(a[mine], d), X0[mine].copy(), comm=comm, rtol=1e-8, options=options
        )
        for options in ({}, {"rows": None})
    ]
    assert all(run.success for run in runs)
    assert abs(runs[0].nfev - serial.nfev) <= 0.1 * serial.nfev
    assert 2 * runs[0].nfev < runs[1].nfev
    per_step = [run.communication.messages / run.nit for run in runs]
    assert per_step[0] <= per_step[1] + 2, per_step


def iterates():
    n, k = 201, 4
    a, d = np.linspace(1.0, 2.0, n) ** 2, np.arange(1.0, k + 1)
    both = ("accelerated", "accelerated-gradient-restart")
    for method in both if comm.size <= 2 else both[:1]:
        whole, _ = compare(
            lambda r: Quadratic(a[r], d), start(n, k), method=method, rtol=1e-12, maxiter=100
        )
        assert whole.nit >= 60


def kinds():
    """Complex, stacks, one column, vectors, Grassmann, single precision, value='global'."""
    n, k = 90, 3
    a, d = np.linspace(1.0, 3.0, n), np.arange(1.0, k + 1)
    few = {"maxiter": 12}
    compare(lambda r: Quadratic(a[r], d), start(n, k, dtype=complex), **few)
    compare(lambda r: Quadratic(a[r], d), start(2, n, k), **few)
    compare(lambda r: Quadratic(a[r], [1.0]), start(n, 1), **few)
    compare(lambda r: Quadratic(a[r], [1.0]), start(n, k), manifold=stiefel.Grassmann(), **few)
    x = start(n, 1)[:, 0]

    def sphere(part):
        return lambda x: (0.5 * float(x @ (a[part] * x)), a[part] * x)

    whole = stiefel.minimize(sphere(slice(None)), x, manifold=stiefel.Sphere(), **few)
    part = stiefel.minimize(
        sphere(rows(n)), x[rows(n)].copy(), manifold=stiefel.Sphere(), comm=comm, **few
    )
    assert whole.nit == part.nit and abs(whole.fun - part.fun) < 1e-12
    single = stiefel.minimize(
        Quadratic(a[rows(n)].astype("f4"), d.astype("f4")),
        start(n, k)[rows(n)].astype("f4"),
        comm=comm,
        rtol=1e-3,
    )
    assert single.success and single.x.dtype == np.float32
    total = stiefel.minimize(
        Quadratic(a[rows(n)], d, "global"),
        start(n, k)[rows(n)].copy(),
        comm=comm,
        value="global",
        **few,
    )
    share = stiefel.minimize(
        Quadratic(a[rows(n)], d), start(n, k)[rows(n)].copy(), comm=comm, **few
    )
    assert total.nit == share.nit and abs(total.fun - share.fun) < 1e-13


def methods():
    """Every solver by name, with and without a preconditioner, against the known minimum."""
    from stiefel.solvers import METHODS

    n, k = 40, 2
    a, d = np.concatenate([[1.0, 2.0], np.linspace(3.0, 4.0, n - 2)]), np.array([1.0, 2.0])
    exact = 0.5 * float(a[:k] @ d[::-1])
    A, X0 = a[rows(n)], start(n, k)[rows(n)].copy()

    def precond(X, G):
        return G / (1.0 + A[:, None])

    def hessp(X, V):
        return A[:, None] * V * d

    for method in METHODS:
        for options in ({}, {"precond": precond}):
            if method == "trust-region":
                options["hessp"] = hessp
            result = stiefel.minimize(
                Quadratic(A, d), X0, comm=comm, method=method, rtol=1e-4, maxiter=500, **options
            )
            assert result.success, (method, result.message)
            assert abs(result.fun - exact) < 1e-6, (method, result.fun, exact)


def generalised():
    """XᴴBX = I with B a tridiagonal operator whose products exchange rows with the neighbours."""
    n, k = 40, 2
    a, d = np.linspace(1.0, 2.0, n), np.array([1.0, 2.0])
    B = np.eye(n) * 4.0 - np.eye(n, k=1) - np.eye(n, k=-1)
    mine = rows(n)
    size = mine.stop - mine.start

    def product(V):
        everything = mpi.gather(V.reshape(size, -1), comm, root=None)
        return B[mine] @ everything

    def solve(G):
        everything = mpi.gather(G.reshape(size, -1), comm, root=None)
        return np.linalg.solve(B, everything)[mine].reshape(G.shape)

    operator = scipy.sparse.linalg.LinearOperator(
        (size, size), matvec=product, matmat=product, dtype=float
    )
    X0 = stiefel.Stiefel(B=B).nearest(start(n, k))
    few = {"maxiter": 12, "options": {"rows": None}}  # rounding differs, and decides in row models
    whole = stiefel.minimize(Quadratic(a, d), X0, manifold=stiefel.Stiefel(B=B), **few)
    for given in (solve, None):
        part = stiefel.minimize(
            Quadratic(a[mine], d),
            X0[mine].copy(),
            manifold=stiefel.Stiefel(B=operator, solve=given),
            comm=comm,
            **few,
        )
        assert abs(part.fun - whole.fun) < 1e-10 and part.nit == whole.nit
        assert np.abs(part.x - whole.x[mine]).max(initial=0.0) < 1e-10
    block = scipy.sparse.diags(a[mine]) if size else np.empty((0, 0))
    diagonal = stiefel.minimize(
        Quadratic(a[mine], d),
        stiefel.Stiefel(B=np.diag(a)).nearest(start(n, k))[mine].copy(),
        manifold=stiefel.Stiefel(B=block),
        comm=comm,
    )
    assert abs(diagonal.fun - 0.5 * d.sum()) < 1e-10  # XᴴAX = I makes f constant


def empty():
    """Ranks without rows: three rows on however many ranks, all on the last, all on the first."""
    a, d = np.array([1.0, 2.0, 4.0]), np.array([1.0, 2.0])
    X0 = start(3, 2, seed=3)
    whole = stiefel.minimize(Quadratic(a, d), X0)
    cuts = [
        rows(3),
        slice(0, 3 if comm.rank == 0 else 0),
        slice(0, 3 if comm.rank == comm.size - 1 else 0),
    ]
    for mine in cuts:
        part = stiefel.minimize(Quadratic(a[mine], d), X0[mine].copy(), comm=comm)
        assert part.success and abs(part.fun - whole.fun) < 1e-12
    column = stiefel.minimize(
        Quadratic(a[rows(3)], [1.0]), start(3, 1, seed=1)[rows(3)].copy(), comm=comm
    )
    assert abs(column.fun - 0.5) < 1e-9


def mixed():
    """Free parameters are copies whose gradients are shares, or totals, as the value is."""
    n, k = 60, 2
    a, d = np.linspace(1.0, 3.0, n), np.array([1.0, 2.0])
    target = np.array([1.0, -2.0, 3.0])

    def make(part, weight):
        def fun(point):
            X, p = point["X"], point["p"]
            G = (a[part][:, None] * X) * d
            return (
                0.5 * np.vdot(X, G) + weight * 0.5 * np.sum((p - target) ** 2),
                {"X": G, "p": weight * (p - target)},
            )

        return fun

    X0, p0 = start(n, k), np.zeros(3)
    spaces = {"X": stiefel.Stiefel(), "p": stiefel.Euclidean()}
    whole = stiefel.minimize(make(slice(None), 1.0), {"X": X0, "p": p0}, manifold=spaces)
    part = stiefel.minimize(
        make(rows(n), 1.0 / comm.size),
        {"X": X0[rows(n)].copy(), "p": p0},
        manifold=spaces,
        comm=comm,
    )
    assert part.nit == whole.nit and np.abs(part.x["p"] - whole.x["p"]).max() < 1e-9
    copies = mpi.gather(part.x["p"].reshape(1, -1), comm, root=None)
    assert (copies == copies[0]).all()  # bit for bit the same on every rank

    def precond(point, G):
        """On the last rank the copies differ by an ulp, as on another processor."""
        own = np.nextafter(G["p"], np.inf) if comm.rank == comm.size - 1 else G["p"]
        return {"X": 0.5 * G["X"], "p": own}

    for method in ("auto", "accelerated", "cg", "trust-region"):
        part = stiefel.minimize(
            make(rows(n), 1.0 / comm.size),
            {"X": X0[rows(n)].copy(), "p": p0},
            manifold=spaces,
            comm=comm,
            precond=precond,
            method=method,
        )
        copies = mpi.gather(part.x["p"].reshape(1, -1), comm, root=None)
        assert part.success and (copies == copies[0]).all()
    x = stiefel.minimize(
        lambda x: (0.5 * float(x @ (a[rows(n)] * x)) - x.sum(), a[rows(n)] * x - 1.0),
        np.zeros(n)[rows(n)],
        manifold=mpi.Distributed(stiefel.Euclidean()),
        comm=comm,
        rtol=1e-10,
    ).x
    assert np.abs(x - 1.0 / a[rows(n)]).max(initial=0.0) < 1e-9


def expect(kind, words, call):
    """``call`` raises ``kind`` on this rank, with all the words in its message."""
    try:
        call()
    except kind as error:
        text = f"{error} {' '.join(getattr(error, '__notes__', []))}"
        if type(error) is kind and all(word in text for word in words):
            return error
        raise
    raise AssertionError(f"expected {kind.__name__}")


def errors():
    """What fails on one rank is raised on every rank, in words, and the ranks can still talk."""
    n, k = 30, 2
    a, d = np.linspace(1.0, 3.0, n)[rows(n)], np.array([1.0, 2.0])
    X0 = start(n, k)[rows(n)].copy()
    last = comm.rank == comm.size - 1
    objective = Quadratic(a, d)

    def failing(X, *others):
        if last and objective.calls > 12:
            raise ZeroDivisionError("no charge left")
        return objective.value_and_gradient(X)

    def run(fun=objective, x0=X0, **options):
        objective.calls = 0
        return stiefel.minimize(fun, x0, comm=comm, **options)

    kind, words = (
        (ZeroDivisionError, ["no charge left"])
        if last
        else (mpi.RankError, [f"rank {comm.size - 1}", "ZeroDivisionError", "mpi_program.py"])
    )
    error = expect(kind, words, lambda: run(failing))
    assert error.partial_result.nit >= 1 and error.partial_result.x.shape == X0.shape
    expect(kind, words, lambda: run(callback=lambda s: failing(s.x)))
    expect(kind, words, lambda: run(precond=lambda X, G: failing(X) and G))
    expect(kind, words, lambda: run(lambda X: failing(X)[0], jac=lambda X: failing(X)[1]))

    either = ValueError
    expect(either, ["shape of X0", "(2,)", "(1,)"], lambda: run(x0=X0[:, : 1 if last else 2]))
    expect(either, ["dtype of X0", "float32"], lambda: run(x0=X0.astype("f4" if last else "f8")))
    names = ["accelerated", "gradient-descent"]
    expect(either, ["method", "GradientDescent"], lambda: run(method=names[last]))
    expect(either, ["value", "global"], lambda: run(value="global" if last else "local"))
    expect(either, ["rtol"], lambda: run(rtol=1e-3 if last else 1e-4))
    expect(either, ["not orthonormal"], lambda: run(x0=X0 + last))
    expect(TypeError if last else mpi.RankError, ["X0"], lambda: run(x0="X0" if last else X0))
    expect(ValueError, ["cannot be orthonormal"], lambda: run(x0=X0[:1] if last else X0[:0]))

    expect(either, ["checkpoint_interval"], lambda: run(checkpoint_interval=1.0 + last))
    unknown = {"maximum": 3} if last else {}
    expect(TypeError if last else mpi.RankError, ["maximum"], lambda: run(**unknown))
    wrong = {"value": "total"} if last else {}
    expect(ValueError if last else mpi.RankError, ["total"], lambda: run(**wrong))

    def leaving(X):
        if last and objective.calls > 12:
            sys.exit(0)
        return objective.value_and_gradient(X)

    kind, words = (SystemExit, ["0"]) if last else (mpi.RankError, ["SystemExit"])
    error = expect(kind, words, lambda: run(leaving))
    assert error.partial_result.nit >= 1

    for true in (True, np.True_, np.array(True)):
        stopped = run(callback=lambda s, true=true: true if last and s.nit == 3 else np.False_)
        assert stopped.status.name == "STOPPED_BY_CALLBACK" and stopped.nit == 3
    assert run(callback=lambda s: np.array([True]) if s.nit == 1 else 1, maxiter=4).nit == 4

    def slow(X):
        time.sleep(0.02 * comm.rank)
        return objective.value_and_gradient(X)

    limited = run(slow, maxtime=0.2, rtol=1e-15)
    assert limited.status.name == "MAX_TIME"
    for number in (limited.nit, limited.nfev, limited.seconds, limited.fun):
        every = comm.allgather(number)
        assert every == [every[0]] * comm.size


def deadlock():
    """A rank fails while the others wait for it inside the user's function: the job must end."""
    from stiefel.backends import ranks

    ranks.PATIENCE_AFTER_ERROR = 1.0
    n = 10

    def fun(X):
        if comm.rank == 0:
            raise ZeroDivisionError("before the exchange")
        comm.Barrier()
        return 0.0, X

    stiefel.minimize(fun, start(n, 2)[rows(n)].copy(), comm=comm)


def helpers():
    for shape, dtype in (
        ((37, 3), float),
        ((2, 2500, 2), complex),
        ((1, 1), float),
        ((2, 2), float),
    ):
        X = mpi.random_point(*shape, comm=comm, seed=5, dtype=dtype)
        alone = mpi.random_point(*shape, comm=MPI.COMM_SELF, seed=5, dtype=dtype)
        assert np.abs(alone[..., rows(shape[-2]), :] - X).max(initial=0.0) < 1e-13
        everywhere = mpi.gather(X, comm, root=None)
        gram = np.swapaxes(everywhere.conj(), -1, -2) @ everywhere
        assert np.abs(gram - np.eye(shape[-1])).max() < 1e-13
        on_root = mpi.gather(X, comm)
        assert (on_root is None) == (comm.rank != 0)
        assert np.array_equal(mpi.scatter(on_root, comm), X)
    A = np.vander(np.linspace(0.0, 1.0, 50), 8)  # condition 1e6: its square would show
    assert (
        np.abs(mpi.nearest(A[rows(50)].copy(), comm=comm) - stiefel.nearest(A)[rows(50)]).max(
            initial=0.0
        )
        < 1e-9
    )


def looks(result):
    """How often the gradient was half as large as at the last look."""
    found, least = 0, np.inf
    for norm in result.history["gradient_norm"][1:]:
        if norm <= 0.5 * least:
            found, least = found + 1, norm
    return found


def counts():
    """Messages and bytes of an iteration: three, one per trial, 40k² + 16k + O(1) bytes.

    Three messages more where chords are looked at: whenever the gradient is half as large.
    """
    n, k = 300, 6
    a, d = np.linspace(1.0, 3.0, n), np.arange(1.0, k + 1)

    def run(maxiter):
        result = stiefel.minimize(
            Quadratic(a[rows(n)], d),
            mpi.scatter(start(n, k) if comm.rank == 0 else None, comm),
            comm=comm,
            method="accelerated",
            rtol=1e-14,
            maxiter=maxiter,
        )
        assert result.restarts == 0
        return result

    first, last = run(5), run(25)
    iterations = last.nit - first.nit
    trials = (last.nfev - first.nfev) - iterations
    messages = last.communication.messages - first.communication.messages
    volume = last.communication.bytes - first.communication.bytes
    chords = looks(last) - looks(first)
    assert messages == 3 * (iterations + chords) + trials, (messages, iterations, trials, chords)
    allowed = 8 * (5 * k * k + 2 * k + 7) * iterations + 24 * trials + 8 * (k + 3) * chords
    assert volume == allowed, (volume, allowed)


def sums():
    """Norms are exactly rounded sums of the entries of Gram matrices, whatever BLAS makes them."""
    rng, k = np.random.default_rng(comm.rank), 10
    manifold = stiefel.Stiefel()
    X = mpi.scatter(start(60, k) if comm.rank == 0 else None, comm)
    geometry = manifold.bind(X, Ranks(comm))
    kernels = geometry.kernels
    G, square, turn, *_ = geometry.gradient(X, rng.standard_normal(X.shape))
    a, b, c = kernels.grams(X, G)

    def exactly(*terms):
        return math.fsum(np.concatenate([t.ravel() for t in terms]).tolist())

    ray, defect = geometry.ray(X, G), a - np.eye(k)
    assert ray.squared_norm == exactly(np.diag(c)) + exactly(b * b)
    assert ray.defect == math.sqrt(exactly(defect * defect))
    assert geometry.ray_along(X, G).defect == ray.defect
    assert square == kernels.dot(G, G) + exactly(turn * turn)


def table1(rtol):
    """Table 1's problem converges to the eigenvalues."""
    n, k = 1000, 10
    a, d = np.arange(1, n + 1) ** 2 / n, np.arange(1.0, k + 1)
    result = stiefel.minimize(
        Quadratic(a[rows(n)], 2.0 * d),
        mpi.random_point(n, k, comm=comm, seed=0),
        comm=comm,
        rtol=float(rtol),
    )
    exact = float(a[:k] @ d[::-1])
    if comm.rank == 0:
        print(result.nit, result.nfev, result.fun / exact - 1, result.seconds)
    # f − f* ≤ ‖∇f‖²/2μ with ‖∇f(x0)‖ near 1.2e4 and μ = 2(λ₂ − λ₁) = 0.006.
    assert result.success and abs(result.fun / exact - 1) < 1e10 * float(rtol) ** 2


def library(name):
    """Points of another array library, with gradients by autodiff of a rank's share."""
    n, k = 60, 2
    a, d = np.linspace(1.0, 3.0, n), np.array([1.0, 2.0])
    if name == "torch":
        import torch as xp

        X0 = xp.asarray(start(n, k)[rows(n)])
    else:
        import jax
        import jax.numpy as xp

        jax.config.update("jax_enable_x64", True)
        X0 = xp.asarray(start(n, k)[rows(n)])
    A, D = xp.asarray(a[rows(n)]), xp.asarray(d)
    part = stiefel.minimize(
        lambda X: 0.5 * ((A[:, None] * X * X) * D).sum(), X0, comm=comm, maxiter=2
    )
    whole = stiefel.minimize(Quadratic(a, d), start(n, k), maxiter=2)
    assert type(part.x) is type(X0) and abs(part.nit - whole.nit) <= 1
    assert abs(float(part.fun) - whole.fun) < 1e-10


def saved(path, action, wait="0"):
    """Runs with a checkpoint: start and stop, resume on any number of ranks, or be killed."""
    n, k = 101, 3
    a, d = np.concatenate([[1.0, 2.0, 3.0], np.linspace(4.0, 5.0, n - 3)]), np.arange(1.0, k + 1)
    objective, X0 = Quadratic(a[rows(n)], d), start(n, k)[rows(n)].copy()
    options = {"comm": comm, "rtol": 1e-6, "method": "accelerated"}
    whole = stiefel.minimize(objective, X0, **options)
    keep = {"checkpoint": path, "checkpoint_interval": 0.0 if action == "victim" else 60.0}
    if action == "start":
        part = stiefel.minimize(objective, X0, **options, **keep, stop=stiefel.MaxIterations(8))
        assert part.nit == 8
    elif action == "victim":
        # Says when it can be killed, and never finishes by itself.

        def callback(snapshot):
            if snapshot.nit >= 8:
                if snapshot.nit == 8:
                    print(f"rank {comm.rank} is {os.getpid()};", flush=True)
                time.sleep(float(wait))

        stiefel.minimize(objective, X0, **options, **keep, callback=callback)
    else:
        part = stiefel.minimize(objective, X0, **options, **keep, resume=True)
        assert part.success and part.history["value"].size == part.nit + 1
        assert abs(part.nit - whole.nit) <= max(2, whole.nit // 10), (part.nit, whole.nit)
        assert abs(part.fun - whole.fun) < 1e-9
        assert np.abs(part.x - whole.x).max(initial=0.0) < 1e-4
        if action == "same":
            assert (part.x == whole.x).all() and part.nit == whole.nit and part.nfev == whole.nfev


if __name__ == "__main__":
    for check in sys.argv[1].split(","):
        globals()[check](*sys.argv[2:])
