"""Unit vectors have a scale each, where that pays, and pairs are applied with it."""

from __future__ import annotations

import math

import numpy as np
import pytest

import stiefel
from runs import problem_of
from stiefel import LBFGS, ComplexCircle, Oblique, Sphere, Stiefel
from stiefel.backends.arrays import kernels_for
from stiefel.geometry.ray import Lowered, PairPlace, Secant
from stiefel.solvers import METHODS, plain_pairs, vector_scales
from stiefel.solvers.plain_pairs import no_plain_pairs, plain_direction, remember_plain, rescaled
from stiefel.solvers.vector_scales import VectorScales, learned_from
from stiefel.types import Gradient

KERNELS = kernels_for(np.zeros(1))
needs_kernels = pytest.mark.skipif(KERNELS.compiled is None, reason="no compiled kernels")


@pytest.fixture(params=["compiled", "numpy"])
def version(request, monkeypatch):
    """Everything once more without the compiled kernels."""
    if request.param == "numpy":
        monkeypatch.setattr(KERNELS, "compiled", None)


# -- problems: evaluations of `auto`, and of the same pairs without scales


def cut(W, p):
    """Max-cut on a graph by Burer and Monteiro."""
    fun = lambda V: (0.5 * float(np.vdot(V, V @ W)), V @ W)
    return fun, Oblique(), (p, len(W))


def hubs():
    """Three vertices with many neighbours, and many with few."""
    rng, W = np.random.default_rng(3), np.zeros((100, 100))
    W[:3, 3:] = rng.standard_normal((3, 97)) * (rng.random((3, 97)) < 0.6)
    W[np.arange(3, 99), np.arange(4, 100)] = rng.standard_normal(96)
    return cut(W + W.T, 5)


def torus():
    rng, index, W = np.random.default_rng(6), np.arange(216).reshape(6, 6, 6), np.zeros((216, 216))
    for axis in range(3):
        W[index.ravel(), np.roll(index, 1, axis).ravel()] = rng.standard_normal(216)
    return cut(W + W.T, 10)


def dictionary():
    """Atoms that are used unlike."""
    rng = np.random.default_rng(8)
    codes = rng.standard_normal((40, 400)) * (rng.random((40, 400)) < 0.2)
    codes *= np.geomspace(1.0, 5.0, 40)[:, None]
    data = Oblique().random(20, 40, seed=1) @ codes + 0.01 * rng.standard_normal((20, 400))

    def fun(D):
        R = D @ codes - data
        return 0.5 * float(np.vdot(R, R)), R @ codes.T

    return fun, Oblique(), (20, 40)


def oscillators():
    """Phases with couplings of every size, as vectors in the plane."""
    rng = np.random.default_rng(7)
    A = np.triu(rng.exponential(size=(300, 300)) * (rng.random((300, 300)) < 0.03), 1)
    A = A + A.T
    return lambda X: (-0.5 * float(np.vdot(X, A @ X)), -(A @ X)), Sphere(), (300, 2)


def thomson():
    """Charges on a sphere, which are all alike."""

    def fun(X):
        D = X[:, None] - X
        q = np.sum(D * D, -1)
        np.fill_diagonal(q, np.inf)
        return 0.5 * float(np.sum(q**-0.5)), -np.sum(D * q[..., None] ** -1.5, 1)

    return fun, Sphere(), (60, 3)


def correlation():
    i = np.arange(120)
    C = 0.5 + 0.5 * np.exp(-0.2 * np.abs(i[:, None] - i))

    def fun(V):
        R = V.T @ V - C
        return 0.5 * float(np.vdot(R, R)), 2.0 * V @ R

    return fun, Oblique(), (5, 120)


def evaluations(problem, method="auto", starts=range(8), rtol=1e-8):
    fun, manifold, shape = problem
    runs = [
        stiefel.minimize(fun, manifold.random(*shape, seed=s), manifold=manifold, method=method,
                         rtol=rtol)
        for s in starts
    ]  # fmt: skip
    assert all(run.success for run in runs)
    return sum(run.nfev for run in runs)


PLAIN = LBFGS(memory=30)


@pytest.mark.parametrize(
    ("problem", "ratio"),
    [(hubs, 0.46), (dictionary, 0.4), (torus, 0.87), (oscillators, 0.8)],
)
def test_scales_save_evaluations(problem, ratio):
    """One takes more with CHANGE = 9, WAITING = 3, RANGE = 2, SCORE_MEMORY = 0 or SETTLED = 5."""
    assert evaluations(problem()) < ratio * evaluations(problem(), PLAIN)


@pytest.mark.parametrize("problem", [thomson, correlation])
def test_scales_are_refused_where_vectors_are_alike(problem):
    """Or where changes come from the others: with BETTER = −1 both take more."""
    assert evaluations(problem()) <= 1.01 * evaluations(problem(), PLAIN)


def test_scales_that_do_worse_are_dropped():
    """NO_BETTER and WAITING: those in use are kept while they do better, and come back later."""
    ss, stiff, like = np.ones((1, 6)), np.geomspace(1.0, 50.0, 6)[None], np.ones((2, 6))
    known = learned_from(VectorScales(), np.stack([ss, stiff]))
    assert not known.due  # no other step has been seen
    while not known.due:
        known = learned_from(known, np.stack([ss, stiff]))
    known = vector_scales.with_scales(known, like)
    np.testing.assert_array_equal(known.used, known.numbers[2])
    assert known.changed == known.looks
    known = learned_from(known, np.stack([ss, stiff]))
    assert not known.due  # nothing has changed
    while not known.due:
        known = learned_from(known, np.stack([ss, 1.0 / stiff]))
    assert not known.better
    known = vector_scales.with_scales(known, like)
    assert known.used is None and known.entries is None and known.changed == known.looks
    known = known._replace(score=1.0)
    assert not known.due  # it would have been a short while
    assert known._replace(looks=math.ceil(1.25 * known.looks)).due


def test_a_scale_of_long_points_only_where_evaluations_are_dear():
    n = plain_pairs.LONG_PLAIN
    worth = {c: [plain_pairs.worth_scaling(np.ones(m), c) for m in (n - 1, n)]
             for c in ("cheap", "usual", "dear")}  # fmt: skip
    assert worth == {"cheap": [False] * 2, "usual": [True, False], "dear": [True] * 2}


def test_lbfgs_stays_plain():
    fun, manifold, shape = hubs()
    problem, x = problem_of(fun, manifold.random(*shape, seed=0), manifold)
    assert LBFGS().init(problem, x).pairs.vectors is None
    assert METHODS["auto"].init(problem, x).pairs.vectors == VectorScales()


def state_with_scales(steps=30):
    fun, manifold, shape = hubs()
    problem, x = problem_of(fun, manifold.random(*shape, seed=0), manifold)
    s = METHODS["auto"].init(problem, x)
    for _ in range(steps):
        s = METHODS["auto"].step(problem, s)
    assert s.pairs.scales is not None
    return problem, s


@pytest.mark.usefixtures("version")
def test_hubs_are_stiffer():
    known = state_with_scales()[1].pairs.vectors
    assert known.used[..., :3].max() < 0.2 < 0.5 < np.median(known.used)
    np.testing.assert_array_equal(known.entries.reshape(5, 100), known.used * np.ones((5, 1)))


@pytest.mark.usefixtures("version")
def test_a_step_with_scales_taken_twice_is_the_same():
    problem, s = state_with_scales()
    for _ in range(20):
        once, twice = (METHODS["auto"].step(problem, s) for _ in range(2))
        np.testing.assert_array_equal(once.aim.direction, twice.aim.direction)
        s = twice


@pytest.mark.parametrize("stop", [7, 23, 52])
def test_runs_with_scales_resume_bit_for_bit(stop, tmp_path):
    (fun, manifold, shape), path = hubs(), tmp_path / "run.npz"
    x0, options = manifold.random(*shape, seed=0), {"manifold": manifold, "rtol": 1e-12}
    whole = stiefel.minimize(fun, x0, maxiter=70, **options)
    stiefel.minimize(fun, x0, maxiter=stop, checkpoint=path, **options)
    again = stiefel.minimize(fun, x0, maxiter=70, checkpoint=path, resume=True, **options)
    np.testing.assert_array_equal(again.x, whole.x)


@needs_kernels
def test_runs_with_scales_are_the_same_without_kernels(monkeypatch):
    fun, manifold, shape = hubs()
    x0 = manifold.random(*shape, seed=0)
    fast = stiefel.minimize(fun, x0, manifold=manifold, maxiter=25)
    monkeypatch.setattr(KERNELS, "compiled", None)
    slow = stiefel.minimize(fun, x0, manifold=manifold, maxiter=25)
    np.testing.assert_allclose(fast.x, slow.x, atol=1e-6)


# -- what a step teaches


def taught(steps):
    """D after these steps, and the smoothed score, number by number."""
    k = len(steps[0][0])
    N, W, D, smooth = [0.0] * k, [0.0] * k, [1.0] * k, 0.0
    for ss, yy in steps:
        own = sum(s / d for s, d in zip(ss, D, strict=True))
        change = sum(y * d for y, d in zip(yy, D, strict=True))
        smooth = 0.9 * smooth + 0.1 * math.log(sum(ss) * sum(yy) / (own * change))
        for i in range(k):
            if ss[i] > 1e-8 * sum(ss):
                N[i] += ss[i] / sum(ss)
                W[i] += yy[i] / sum(ss)
        raw = {i: math.sqrt(N[i] / W[i]) for i in range(k) if N[i] * W[i] > 0}
        mean = sum(raw.values()) / len(raw)
        D = [min(max(raw[i] / mean, 0.1), 10.0) if i in raw else 1.0 for i in range(k)]
    return D, smooth


@pytest.mark.parametrize("shape", [(17, 1), (1, 17)])
def test_what_steps_teach(shape):
    rng, known, steps = np.random.default_rng(0), VectorScales(), []
    used = np.linspace(0.5, 2.0, 17).reshape(shape)
    for i in range(6):
        ss = rng.exponential(size=shape) * 1e-6
        yy = ss * np.geomspace(1.0, 1e6, 17).reshape(shape) * rng.exponential(size=shape)
        yy.flat[2], ss.flat[5] = 0.0, 1e-20  # one whose gradient stays, one that does not move
        steps.append((ss.ravel().tolist(), yy.ravel().tolist()))
        known, seen = known._replace(used=used if i else None), np.stack([ss, yy])
        known = learned_from(known, seen)
    D, score = taught(steps)
    assert min(D) == 0.1 and D[2] == D[5] == 1.0 and max(D) > 2.0
    np.testing.assert_allclose(known.numbers[2].ravel(), D, rtol=1e-12)
    assert known.score == pytest.approx(score, rel=1e-12)
    assert known.change == pytest.approx(np.mean((np.reshape(D, shape) / used - 1.0) ** 2))
    assert known.looks == 6 and known.numbers.shape == (3, *shape)


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf, 1e-320, 1e-150, 1e300])
def test_steps_that_teach_nothing(bad):
    ss, yy = np.full((4, 1), 1e-3), np.full((4, 1), 1e-2)
    known = learned_from(VectorScales(), np.stack([ss, yy]))
    for numbers in ((bad * ss / ss, yy), (ss, bad * yy / yy)):
        after = learned_from(known, np.stack(numbers))
        assert after is known and np.isfinite(known.numbers).all()


def test_steps_are_looked_at_from_the_sixth_on_and_rarely_in_the_end():
    looks = lambda looks: [VectorScales(looks=looks).look_at(row) is not None for row in range(31)]
    assert not any(looks(0)[:5]) and all(looks(0)[5:])
    assert all(looks(39)) and sum(looks(40)) == 8


RULES = 1e-8, 10.0, 1e100


def looked_at(X, U, G, G_new, t, known, used):
    """What kernels learn from a step, and ‖s_i‖² and ‖y_i‖² as NumPy finds them."""
    place = PairPlace(np.zeros((4, X.size)), (0,), None, (known, used, *RULES))
    curve = Sphere().aim_along(X, G, U, place)[1]
    fast = curve.secant_pair(t, Lowered(G, 0.0), Lowered(G_new, 0.0))
    pair = Sphere().aim_along(X, G, U)[1].secant_pair(t, Lowered(G, 0.0), Lowered(G_new, 0.0))
    return fast.vectors, np.stack([np.sum(A * A, 1, keepdims=True) for A in (pair.s, pair.y)])


@needs_kernels
@pytest.mark.parametrize("n", [3, 8])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("with_used", [True, False])
def test_kernels_learn_what_the_formula_says(n, first, with_used):
    rng = np.random.default_rng(n)
    X, gaussian = Sphere().random(300, n, seed=1), lambda: rng.standard_normal((300, n))
    U, G, G_new = (Sphere().project(X, gaussian()) for _ in range(3))
    G_new *= np.geomspace(1e-3, 1e3, 300)[:, None]
    U[7], G[9], G_new[9] = 0.0, 0.0, 0.0  # one that does not move, one whose gradient stays
    known = None if first else rng.exponential(size=(3, 300, 1))
    if not first:
        known[:2, 7] = known[:2, 9] = 0.0
    used = rng.exponential(size=(300, 1)) if with_used else None
    found, seen = looked_at(X, U, G, G_new, 0.3, known, used)
    wanted = vector_scales._weighed(seen, known, used, *RULES)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-9, atol=1e-12)
    assert found[0][2, 7] == found[0][2, 9] == 1.0
    assert found[1:] == (pytest.approx(wanted[1], abs=1e-9), pytest.approx(wanted[2], rel=1e-9))


@needs_kernels
@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf, 1e-160, 1e-75, 1e150])
@pytest.mark.parametrize("end", ["step", "change"])
def test_kernels_learn_nothing_from_such_steps(bad, end):
    X, known = Sphere().random(4, 3, seed=2), np.ones((3, 4, 1))
    U = Sphere().project(X, np.ones((4, 3)))
    G, new = 0.0 * U, U
    U, new = (bad * U, new) if end == "step" else (U, bad * new)
    with np.errstate(all="ignore"):
        found, _ = looked_at(X, U, G, new, 1e-3, known, None)
    assert math.isnan(found[1])
    before = VectorScales(known)
    assert learned_from(before, found) is before


@needs_kernels
def test_what_is_no_look_is_refused():
    X = Oblique().random(3, 5, seed=0)
    G, known, D = Oblique().project(X, np.ones((3, 5))), np.ones((3, 5)), np.ones(5)
    for look in (
        (np.ones((2, 5)), D, *RULES), (known, np.ones(4), *RULES), (known.astype("f"), D, *RULES),
        (known, D.astype("f"), *RULES), (known, D, 1.0), (known, "a", *RULES), known, "look",
        (np.ones((3, 10))[:, ::2], D, *RULES),
    ):  # fmt: skip
        curve = Oblique().aim_along(X, G, -G, PairPlace(np.zeros((4, 15)), (0,), None, look))[1]
        with pytest.raises((ValueError, TypeError, BufferError)):
            curve.secant_pair(0.1, Lowered(G, 0.0), Lowered(G, 0.0))


# -- pairs with scales


def textbook(kept, g, gamma, D):
    q, weights = g.copy(), []
    for s, y in reversed(kept):
        weights.append((s @ q) / (s @ y))
        q -= weights[-1] * y
    r = gamma * D * q
    for (s, y), a in zip(kept, reversed(weights), strict=True):
        r += (a - (y @ r) / (s @ y)) * s
    return -r


def unused_scales(D):
    return VectorScales(numbers=np.stack([D, D, D]), score=1.0, looks=9)


@pytest.mark.usefixtures("version")
@pytest.mark.parametrize("scale", [1.0, 1e-20])
@pytest.mark.parametrize("shape", [(3, 4), (9, plain_pairs.SINGLE_FROM)])
def test_the_direction_is_the_textbooks(shape, scale):
    """With a D from the beginning, and with one that comes later."""
    rng, kept = np.random.default_rng(0), []
    g, stiffness = scale * rng.standard_normal(shape), np.geomspace(1.0, 30.0, shape[1])
    scales = unused_scales(1.0 / stiffness[None])
    at = Gradient(0.0, g, float(np.linalg.norm(g)))
    early = no_plain_pairs(g, 4)._replace(vectors=vector_scales.with_scales(scales, g))
    late = no_plain_pairs(g, 4, True)
    for _ in range(6):
        s = scale * rng.standard_normal(shape)
        y = stiffness * s * rng.uniform(0.5, 1.5, shape)
        kept.append((s.ravel(), y.ravel()))
        pair, sy = Secant(s, y), s.ravel() @ y.ravel()
        early = remember_plain(early, pair, sy, float(np.vdot(y, y)), at)
        late = remember_plain(late, pair, sy, float(np.vdot(y, y)), at)
    late = rescaled(late._replace(slopes=None), vector_scales.with_scales(scales, g))
    D = np.broadcast_to(1.0 / stiffness, shape).ravel()
    expected = textbook(kept[-4:], g.ravel(), 0.7, D)
    close = 1e-12 if g.size < plain_pairs.SINGLE_FROM else 1e-5
    for pairs in (early, early._replace(slopes=None), late):
        found = plain_direction(pairs, at, 0.7).ravel()
        assert np.linalg.norm(found - expected) <= close * np.linalg.norm(expected)


@pytest.mark.usefixtures("version")
@pytest.mark.parametrize(
    ("manifold", "shape"),
    [
        (Oblique(), (4, 9)),
        (Oblique(), (3, 300)),
        (Sphere(), (9, 4)),
        (Sphere(), (300, 3)),
        (Stiefel(), (9, 4, 1)),
        (ComplexCircle(), (20,)),
    ],
)
def test_a_pair_in_a_memory_knows_its_vectors(manifold, shape):
    rng, t = np.random.default_rng(1), 0.3
    phases, X = manifold == ComplexCircle(), manifold.random(*shape, seed=2)
    draw = lambda: rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if phases else 0.0)
    G, U = manifold.gradient(X, draw()).G, manifold.project(X, draw())
    axis = {1: -1, 2: -2 if manifold == Oblique() else -1, 3: -2}[len(shape)]
    numbers = lambda A: np.ascontiguousarray(A).view(float).ravel()
    D = np.exp(rng.standard_normal(shape if phases else np.sum(X, axis, keepdims=True).shape))
    entries = np.repeat(D, 2) if phases else np.broadcast_to(D, shape).ravel()
    block = rng.standard_normal((4, entries.size))
    place = PairPlace(block, (0, 1), entries, (None, D, *RULES))
    new = Lowered(manifold.gradient(X, draw()).G, 0.0)
    plain = manifold.aim_along(X, G, U)[1].secant_pair(t, Lowered(G, 0.0), new)
    pair = manifold.aim_along(X, G, U, place)[1].secant_pair(t, Lowered(G, 0.0), new)
    squares = lambda A: abs(A) ** 2 if phases else np.sum(A * A, axis, keepdims=True)
    seen = np.stack([squares(plain.s), squares(plain.y)]).reshape(2, *D.shape)
    if pair.kept is None:
        np.testing.assert_allclose(pair.vectors.ravel(), seen.ravel(), rtol=1e-10)
        return
    wanted = vector_scales._weighed(seen, None, D, *RULES)
    np.testing.assert_allclose(pair.vectors[0].ravel(), wanted[0].ravel(), rtol=1e-10)
    np.testing.assert_allclose(pair.vectors[1:], wanted[1:], rtol=1e-9, atol=1e-12)
    y = numbers(plain.y)
    assert pair.square == pytest.approx(float(y @ (entries * y)), rel=1e-10)
    ends = np.stack([y, numbers(new.G)]).T
    wanted = np.concatenate([block[:2] @ ends, block[2:] @ (entries[:, None] * ends)])
    np.testing.assert_allclose(pair.kept.reshape(-1, 2), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("version")
@pytest.mark.parametrize("problem", [hubs, torus])
def test_every_step_aims_as_the_textbook_says(problem):
    """In double and in single precision, while D changes and is dropped."""
    (fun, manifold, shape), changes = problem(), set()
    problem, x = problem_of(fun, manifold.random(*shape, seed=0), manifold)
    s = METHODS["auto"].init(problem, x)
    for _ in range(60):
        s = METHODS["auto"].step(problem, s)
        block, most = s.pairs.S.astype(float), len(s.pairs.diagonal)
        D = np.ones(x.size) if s.pairs.scales is None else s.pairs.scales
        kept = [(block[i], block[most + i]) for i in s.pairs.rows]
        expected = textbook(kept, s.at.G.ravel(), s.gamma, D)
        error = np.linalg.norm(s.aim.direction.ravel() - expected) / np.linalg.norm(expected)
        assert error < (1e-10 if s.pairs.S.dtype == np.float64 else 1e-4)
        changes.add(s.pairs.vectors.changed)
    assert len(changes) > 3


@needs_kernels
def test_scales_of_other_vectors_are_refused():
    X = Oblique().random(3, 5, seed=0)
    G = Oblique().project(X, np.ones((3, 5)))
    for scales in (np.ones(14), np.ones(15, np.float32), np.ones(30)[::2]):
        curve = Oblique().aim_along(X, G, -G, PairPlace(np.zeros((4, 15)), (0,), scales))[1]
        with pytest.raises((ValueError, TypeError, BufferError)):
            curve.secant_pair(0.1, Lowered(G, 0.0), Lowered(G, 0.0))
