"""Hostile objectives, bad input, kills, interrupts, forks, damaged files: for minutes or hours.

    python benchmarks/soak.py                     about five minutes
    python benchmarks/soak.py --minutes 600       all night
    python benchmarks/soak.py --only kills flips

Every part is seeded; the seed of round r is --seed + r.  Prints one JSON document with what was
tried and what failed, and exits with 1 if anything did.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import verified

import stiefel
import thread_programs
from stiefel.objectives import Brockett
from stiefel.runs import archive, files
from stiefel.runs.checkpoint import CheckpointError
from stiefel.solvers import METHODS

Tally = Counter[str]
LIMITS = {"maxiter": 300, "maxfun": 3000}


class Failure(AssertionError):
    """Something hung, lied or was lost."""


def require(condition: bool, what: str) -> None:
    if not condition:
        raise Failure(what)


def hostile(seed: int, tally: Tally) -> None:
    """Every method on every hostile objective: within limits, feasible, truthful."""
    import hostile as h

    for name, case in h.HOSTILE.items():
        for method in METHODS:
            where = f"{method} on {name!r}, seed {seed}"
            calls = [0]
            inner = case.make(seed)

            def fun(X: Any, inner: Any = inner, calls: list[int] = calls) -> Any:
                calls[0] += 1
                return inner(X)

            x0 = stiefel.random_point(h.N, h.K, seed=seed)
            try:
                r = stiefel.minimize(fun, x0, method=method, rtol=1e-8, **LIMITS)
            except h.Boom as error:
                r = error.partial_result
            tally["hostile runs"] += 1
            tally[f"status {r.status.name}"] += 1
            require(calls[0] <= LIMITS["maxfun"] and r.nit <= LIMITS["maxiter"], where)
            require(r.feasibility <= 10 * np.finfo(float).eps * math.sqrt(h.K), where)
            require(case.raises is not None or r.nfev == calls[0], where)
            require(case.raises is not None or r.status.name in case.may, where)
            blamed = name == "wrong sign" and r.status.name == "ROUNDING_LIMIT"
            require(not blamed, f"{where}: a gradient of the wrong sign was called rounding")
            first = r.history["gradient_norm"][0]
            require(not r.success or r.gradient_norm <= 1e-8 * first, where)


def solves(seed: int, tally: Tally, count: int = 1000) -> None:
    """Random small solves of every kind; what each says is checked from outside."""
    lies = []
    for case in range(seed * count, (seed + 1) * count):
        try:
            verified.solve(case, tally)
        except verified.Lie as lie:
            lies.append(str(lie))
    require(not lies, "; ".join(lies))


def rounding(seed: int, tally: Tally) -> None:
    """1e-12 or ROUNDING_LIMIT, from several starts."""
    import test_trust_rounding as t

    bad = []
    for name, fun in t.CONVERGE.items():
        for method in METHODS:
            x0 = stiefel.random_point(t.N, t.K, seed=seed)
            r = stiefel.minimize(fun, x0, method=method, rtol=1e-12, maxiter=20_000)
            tally["rounding runs"] += 1
            tally["rounding runs that reached 1e-12"] += r.success
            good = r.status.name in ("CONVERGED", "ROUNDING_LIMIT")
            if not good:
                bad.append(f"{method} on {name!r}, seed {seed}: {r.message}")
    require(not bad, "; ".join(bad))


def kills(seed: int, tally: Tally, count: int = 50) -> None:
    """kill −9 at random moments of one run that is resumed until it ends: the same bits."""
    rng = random.Random(seed)
    f, x0 = Brockett.table(60, 4), stiefel.random_point(60, 4, seed=seed)

    def slow(X: Any) -> Any:
        time.sleep(1e-4)
        return f(X)

    options: dict[str, Any] = {"method": "accelerated", "rtol": 1e-10, "maxiter": 3000}
    whole = stiefel.minimize(lambda X: f(X), x0, **options)
    with tempfile.TemporaryDirectory() as folder:
        path, done, killed, last = Path(folder) / "run.npz", Path(folder) / "x.npy", 0, 0
        while not done.exists():
            child = os.fork()
            if child == 0:
                try:
                    r = stiefel.minimize(
                        slow, x0, **options, checkpoint=path, checkpoint_interval=5e-3, resume=True
                    )
                    aside = Path(folder) / "aside.npy"
                    np.save(aside, np.append(r.x.ravel(), [r.nit, r.nfev]))
                    os.replace(aside, done)
                finally:
                    os._exit(0)
            if killed < count:
                time.sleep(rng.uniform(0.01, 0.06))
                os.kill(child, signal.SIGKILL)
                killed += 1
            os.waitpid(child, 0)
            if path.exists():
                nit = archive.read(path)[0]["values"]["counters.nit"]  # whole at every moment
                require(nit >= last, f"iterations were lost: {nit} after {last}")
                last = nit
        x = np.load(done)
        same = np.array_equal(x, np.append(whole.x.ravel(), [whole.nit, whole.nfev]))
        require(same, f"the killed run ended elsewhere, seed {seed}")
        tally["kills"] += killed
        tally["killed runs that ended with the same bits"] += 1


def interrupts(seed: int, tally: Tally, count: int = 200) -> None:
    """Ctrl-C at random moments of solves: the threads of BLAS are given back."""
    counts = program(thread_programs.INTERRUPTS, count, seed)
    tally["interrupts"] += counts["interrupted"]
    require(counts["lost"] == 0, f"threads were lost in {counts['lost']} interrupts, seed {seed}")


def forks(seed: int, tally: Tally, count: int = 50) -> None:
    """Children forked while another thread solves: they solve too, with the same bits."""
    counts = program(thread_programs.FORKS, count, seed)
    tally["forks"] += counts["forks"]
    require(counts["hung"] == 0 and counts["wrong"] == 0, f"forks, seed {seed}: {counts}")


def program(text: str, *arguments: int) -> Any:
    """What a program with libraries of two threads prints."""
    threads = {"OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    ended = subprocess.run(
        [sys.executable, "-c", text, *map(str, arguments)],
        env=os.environ | threads, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(ended.stdout)


def shared_paths(seed: int, tally: Tally, count: int = 8) -> None:
    """Processes that all save to one path: one owns it, the others are refused, nothing is torn."""
    f, x0 = Brockett.table(30, 3), stiefel.random_point(30, 3, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        path, children = Path(folder) / "run.npz", []
        for _ in range(count):
            child = os.fork()
            if child == 0:
                code = 3
                try:
                    stiefel.minimize(f, x0, rtol=1e-12, maxiter=200, resume=True,
                                     checkpoint=path, checkpoint_interval=0)  # fmt: skip
                    code = 0
                except files.Occupied:
                    code = 1
                finally:
                    os._exit(code)
            children.append(child)
        ended: list[int] = []
        while len(ended) < count:
            child, status = os.waitpid(-1, os.WNOHANG)
            if child:
                ended.append(os.waitstatus_to_exitcode(status))
            elif path.exists():
                archive.read(path)  # whole at every moment
                tally["reads of a shared path"] += 1
        require(set(ended) <= {0, 1} and 0 in ended, f"shared path, seed {seed}: {ended}")
        tally["runs that owned a shared path"] += ended.count(0)
        tally["runs refused on a shared path"] += ended.count(1)


def starting_points(seed: int, tally: Tally, count: int = 20) -> None:
    """Saddles of random weighted traces: every one is recognised and left for the minimum."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        n, k = int(rng.integers(3, 9)), int(rng.integers(1, 3))
        U = np.linalg.qr(rng.standard_normal((n, n)))[0]
        # Not closer than what the check calls zero: 1e-5 of the largest curvature.
        a, d = np.cumsum(rng.uniform(0.1, 2, n)), np.cumsum(rng.uniform(0.1, 2, k))[::-1]
        A = (U * a) @ U.T

        def fun(X: Any, A: Any = A, d: Any = d) -> Any:
            return float(np.vdot(X, A @ X * d)), 2 * A @ X * d

        chosen = rng.permutation(n)[:k]
        r = stiefel.minimize(fun, U[:, chosen], escape=True)
        least = float(d @ a[:k])
        good = r.success and abs(r.fun - least) <= 1e-5 * abs(least)
        require(good, f"saddle {chosen} of seed {seed}: {r.message}")
        tally["saddles and minima recognised"] += 1


def flips(seed: int, tally: Tally, count: int = 2000) -> None:
    """Bytes of a checkpoint flipped and cut: refused, or the contents are untouched."""
    rng = random.Random(seed)
    f, x0 = Brockett.table(30, 3), stiefel.random_point(30, 3, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.npz"
        options: dict[str, Any] = {"rtol": 1e-9, "checkpoint": path}
        stiefel.minimize(f, x0, maxiter=10, **options)
        data, clean = path.read_bytes(), archive.read(path)
        truth = stiefel.minimize(f, x0, maxiter=12, **options, resume=True)
        for i in range(count):
            damaged = bytearray(data)
            if i % 10 == 0:
                del damaged[rng.randrange(len(data)) :]
            for _ in range(rng.choice([1, 1, 1, 5])):
                if damaged:
                    damaged[rng.randrange(len(damaged))] ^= rng.randrange(1, 256)
            path.write_bytes(damaged)
            try:
                header, arrays = archive.read(path)
                same = all(a.tobytes() == b.tobytes() for a, b in zip(arrays, clean[1]))
                require(header == clean[0] and same, f"damage went unnoticed, seed {seed}, {i}")
                tally["flips in padding, contents untouched"] += 1
            except archive.ArchiveError:
                tally["flips refused"] += 1
            if i % 100 == 0:
                try:
                    r = stiefel.minimize(f, x0, maxiter=12, **options, resume=True)
                    require(np.array_equal(r.x, truth.x), "half-loaded")
                except CheckpointError:
                    tally["resumptions refused"] += 1
            tally["damaged checkpoints"] += 1


def fuzz(seed: int, tally: Tally, examples: int = 200) -> None:
    """The fuzz tests again, with other inputs."""
    os.environ["FUZZ_EXAMPLES"] = str(examples)  # before the tests are imported
    import hypothesis

    import test_trust_files as files
    import test_trust_fuzz as calls

    class Folder:
        def __init__(self, path: str) -> None:
            self.path = Path(path)

        def getbasetemp(self) -> Path:
            return self.path

    with tempfile.TemporaryDirectory() as path:
        for module, arguments, what in (
            (calls, (), "fuzzed calls"),
            (files, (Folder(path),), "fuzzed files"),
        ):
            for test in list(vars(module).values()):
                if hasattr(test, "hypothesis"):
                    inner = test.hypothesis.inner_test
                    test.hypothesis.inner_test = counted(inner, tally, what)
                    try:
                        hypothesis.seed(seed)(test)(*arguments)
                    finally:
                        test.hypothesis.inner_test = inner


def counted(test: Callable[..., Any], tally: Tally, what: str) -> Callable[..., Any]:
    @functools.wraps(test)
    def run(*arguments: Any, **options: Any) -> Any:
        tally[what] += 1
        return test(*arguments, **options)

    return run


PARTS: dict[str, Callable[[int, Tally], None]] = {
    "solves": solves,
    "hostile": hostile,
    "rounding": rounding,
    "kills": kills,
    "interrupts": interrupts,
    "forks": forks,
    "paths": shared_paths,
    "saddles": starting_points,
    "flips": flips,
    "fuzz": fuzz,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    tally: Tally = Counter()
    failures: list[str] = []
    end, rounds = time.monotonic() + 60 * given.minutes, 0
    while rounds == 0 or time.monotonic() < end:
        for name in given.only:
            started = time.monotonic()
            try:
                PARTS[name](given.seed + rounds, tally)
            except Exception as error:
                failures.append(f"{name}, seed {given.seed + rounds}: {error!r}")
            print(f"round {rounds} {name}: {time.monotonic() - started:.0f} s", file=sys.stderr)
        rounds += 1
    print(json.dumps({"rounds": rounds, "tried": dict(tally), "failures": failures}, indent=2))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
