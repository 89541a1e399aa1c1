"""The compiled kernels of a batch against the formulas that they repeat, and hostile values."""

import numpy as np
import pytest

import stiefel
from stiefel.batched.compiled import LARGEST_MATRIX, WIDEST, CompiledLBFGS, CompiledMatrices
from stiefel.batched.learned import nothing_learned
from stiefel.batched.leaves import Matrices
from stiefel.batched.libraries import kernels_of
from stiefel.batched.memory import no_pairs
from stiefel.batched.numpy_many import NumpyMany, side_by_side, stored
from stiefel.batched.solver import ManyLBFGS
from stiefel.batched.state import At

compiled = pytest.importorskip("stiefel.backends._compiled")
SHAPES = [(7, 1), (6, 2), (12, 3), (5, 4), (4, 4), (40, 3)]
COUNTS = [1, 8, 19]  # problems: fewer than lanes, all lanes, some left over


class Case:
    """Points, cotangents and steps of some problems, for both kinds of leaves."""

    def __init__(self, count, n, k, span=False, seed=0):
        rng = np.random.default_rng(seed)
        kernels = NumpyMany()
        learns = 1 < k < n
        kinds = CompiledMatrices, Matrices
        self.leaf, self.plain = (kind(kernels, learns, span) for kind in kinds)
        x = stiefel.Stiefel().random(count, n, k, seed=seed)
        self.x, self.k, self.rng, self.count = side_by_side(x), kernels, rng, count
        self.E = rng.standard_normal((2, count, n, k))
        self.scale = 2.0 ** rng.integers(-3, 3, count)
        self.t = rng.uniform(0.1, 1.0, count)
        self.fresh = rng.random(count) < 0.3
        self.G, _, self.rotation = self.plain.lower(self.x, self.E[0], self.scale)
        self.W = -1.0 * self.G

    def solvers(self):
        return CompiledLBFGS((self.leaf,), None, size=4), ManyLBFGS((self.plain,), None, size=4)


def close(a, b, rtol=1e-12):
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    np.testing.assert_allclose(a, b, rtol=0, atol=rtol * max(1.0, float(np.abs(b).max(initial=0))))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("span", [False, True])
def test_gradients_are_lowered_alike(count, shape, span):
    case = Case(count, *shape, span=span and shape[0] > shape[1])
    got = case.leaf.lower(case.x, case.E[1], case.scale)
    for a, b in zip(got, case.plain.lower(case.x, case.E[1], case.scale)):
        close(a, b)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_trials_and_pairs_are_alike(count, shape):
    case = Case(count, *shape)
    trial, shown = case.leaf.trial_or_point(case.x, case.W, case.t, case.fresh)
    expected = case.plain.trial(case.x, case.W, case.t)
    wanted = np.where(case.fresh[:, None, None], np.asarray(case.x), np.asarray(expected.X))
    close(trial.X, wanted)
    assert np.array_equal(shown, np.asarray(trial.X)) and shown.flags.c_contiguous

    new = case.plain.lower(expected.X, case.E[1], case.scale)[::2]
    old = case.G, case.rotation
    got = case.leaf.pair(case.x, case.W, trial, old, new)
    pair = case.plain.pair(case.x, case.W, expected, old, new)
    close(got.s, pair.s)
    close(got.y, pair.y)
    close(case.leaf.slope(new[0], got), case.plain.slope(new[0], pair))
    close(case.leaf.squared_length(got), case.plain.squared_length(pair))
    for a, b in zip(case.leaf.squares(got), case.plain.squares(pair)):
        close(a, b)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_memory_and_directions_are_alike(count, shape):
    """More pairs than there are rows, some of them refused, and problems that have not arrived."""
    case = Case(count, *shape)
    fast, plain = case.solvers()
    zero = np.zeros(count)
    memories = [no_pairs(case.k, (case.x,), 4, zero) for _ in range(2)]
    for i in range(6):
        E = case.rng.standard_normal(case.E.shape)
        trial = case.plain.trial(case.x, case.W, case.t)
        new = case.plain.lower(trial.X, E[1], case.scale)[::2]
        pair = case.plain.pair(case.x, case.W, trial, (case.G, case.rotation), new)
        keep = case.rng.random(count) < (1.0 if i < 2 else 0.7)
        sy = np.abs(case.k.dot(pair.s, pair.y)) + 0.1
        memories = [s._remember(m, (pair,), sy, keep) for s, m in zip((fast, plain), memories)]
    for a, b in zip(memories[0], memories[1]):
        close(a[0] if isinstance(a, tuple) else a, b[0] if isinstance(b, tuple) else b, 1e-5)

    learned = nothing_learned(case.plain, case.x, zero)
    if learned.D is not None:
        A = case.rng.standard_normal(learned.D.shape)
        learned = learned._replace(D=side_by_side(A @ A.mT + np.eye(shape[1])), omega=zero + 1.7)
    gamma = np.where(case.rng.random(count) < 0.5, 0.0, 0.3)
    state = fast.init((case.x,))._replace(
        x=(case.x,), G=(case.G,), rotations=(case.rotation,), W=(case.W,), learned=(learned,),
        memory=memories[1], gamma=gamma,
    )  # fmt: skip
    G, square, rotation = case.plain.lower(trial.X, case.E[1], case.scale)
    at = At(zero, (1.0 * G,), np.sqrt(square), (rotation,), zero == 0)
    arrived = case.rng.random(count) < 0.6
    norm = np.where(arrived, np.sqrt(square), 1.0)
    got = fast._aimed(state, (trial.X,), at, norm, arrived)
    wanted = plain._aimed(state, (trial.X,), at, norm, arrived)
    for a, b in zip(got[:4], wanted[:4]):
        close(a[0], b[0], 1e-4)
    close(got[4][arrived], wanted[4][arrived], 1e-4)
    close(got[5][0][arrived], wanted[5][0][arrived], 1e-4)
    still = ~arrived
    assert np.array_equal(np.asarray(got[3][0])[still], np.asarray(case.W)[still])


@pytest.mark.parametrize("shape", [(6, 2), (12, 3)])
@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, 1e200, 1e-200])
def test_one_problem_with_hostile_values_leaves_the_others_alone(shape, value):
    """Wherever it stands; and there is an answer for it, too."""
    A = np.random.default_rng(0).standard_normal((11, shape[0], shape[0]))
    A = A + A.mT
    weights = np.arange(shape[1], 0.0, -1.0)
    x0 = stiefel.Stiefel().random(11, *shape, seed=1)

    def fun(bad):
        def values(X, index):
            AX = A[index] @ X * weights
            f, G = np.sum(X * AX + 0.1 * X**4, axis=(1, 2)), 2 * AX + 0.4 * X**3
            hit = index == bad
            f[hit], G[hit] = f[hit] * value, G[hit] * value
            return f, G

        return values

    whole = stiefel.minimize_many(fun(-1), x0, rtol=1e-6)
    for bad in (0, 5, 10):
        found = stiefel.minimize_many(fun(bad), x0, rtol=1e-6)
        others = np.arange(11) != bad
        assert found.success[others].all()
        np.testing.assert_allclose(found.fun[others], whole.fun[others], rtol=1e-9)
        assert found.status[bad] >= 0 and np.isfinite(found.x[bad]).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, 1e300])
def test_lanes_do_not_mix(value):
    """Bit for bit: what one problem brings into a kernel does not come out of another."""

    def outcome(bad):
        case = Case(11, 12, 3)
        for a in (case.x, case.W, case.E[1], case.t):
            a[bad] = value
        fast, _ = case.solvers()
        trial, shown = case.leaf.trial_or_point(case.x, case.W, case.t, case.fresh)
        new = case.leaf.lower(trial.X, case.E[1], case.scale)
        pair = case.leaf.pair(case.x, case.W, trial, (case.G, case.rotation), new[::2])
        memory = no_pairs(case.k, (case.x,), 4, np.zeros(11))
        memory = fast._remember(memory, (pair,), 1.0 + np.abs(new[1]), case.t > 0)
        others = [i for i in range(11) if i not in (2, 7)]
        parts = shown, new[0], new[1], pair.s, pair.y, memory.S[0], memory.inverse
        return [np.array(part)[others] for part in parts]

    for a, b in zip(outcome(2), outcome(7)):
        assert np.array_equal(a, b)


def test_the_place_in_a_batch_does_not_matter():
    case = Case(19, 12, 3)
    some = np.array([18, 3, 4, 0])
    whole, _ = case.leaf.trial_or_point(case.x, case.W, case.t, case.fresh)
    whole = np.array(whole.X)
    x, W = (side_by_side(np.asarray(a)[some]) for a in (case.x, case.W))
    part, _ = case.leaf.trial_or_point(x, W, case.t[some], case.fresh[some])
    assert np.array_equal(np.asarray(part.X), whole[some])


def test_kernels_refuse_what_does_not_fit():
    X, small, numbers = np.zeros((5, 2, 9)), np.zeros((2, 2, 9)), np.zeros(9)
    E = np.zeros((9, 5, 2))
    lower = compiled.batch_lower
    with pytest.raises(ValueError, match="expected"):
        lower(X, E[:8], numbers, 0, X.copy(), numbers.copy(), small)
    with pytest.raises(ValueError, match="expected"):
        lower(X.astype(np.float32), E, numbers, 0, X.copy(), numbers.copy(), small)
    with pytest.raises(ValueError, match="one to four columns"):
        lower(np.zeros((6, 5, 9)), np.zeros((9, 6, 5)), numbers, 0, X, numbers, small)
    with pytest.raises(TypeError, match="7"):
        lower(X, E)
    read_only = X.copy()
    read_only.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        lower(X, E, numbers, 0, read_only, numbers.copy(), small)
    S, inverse, diagonal = np.zeros((4, 10, 9), np.float32), np.zeros((4, 4, 9)), np.zeros((4, 9))
    keep = np.zeros(9, dtype=bool)
    with pytest.raises(ValueError, match="no such row"):
        compiled.batch_remember(S, S.copy(), inverse, diagonal, 4, X, X, numbers, numbers, keep)
    points = np.zeros((2, 5, 2, 9))
    with pytest.raises(ValueError, match="points"):
        compiled.batch_recognise(points, points, 1e-7, 1e-6, X, numbers, keep)
    with pytest.raises(ValueError, match="points"):
        compiled.batch_points(points, X, X, E, numbers, 1e-7, keep)
    points = np.zeros((3, 5, 2, 9))
    points.flags.writeable = False
    with pytest.raises((ValueError, BufferError), match=r"writ|read-only"):
        compiled.batch_points(points, X, X, E, numbers, 1e-7, keep)


@pytest.mark.parametrize(
    ("manifold", "shape", "dtype", "chosen"),
    [
        (stiefel.Stiefel(), (12, 3), float, True),
        (stiefel.Grassmann(), (12, 3), float, True),
        (stiefel.Stiefel(), (12, WIDEST + 1), float, False),
        (stiefel.Stiefel(), (LARGEST_MATRIX, 2), float, False),
        (stiefel.Stiefel(), (12, 3), complex, False),
        (stiefel.Stiefel(), (12, 3), np.float32, False),
        (stiefel.Stiefel(), (2, 12, 3), float, False),
        (stiefel.Stiefel(B=np.eye(12)), (12, 3), float, False),
    ],
)
def test_where_the_kernels_are_used(manifold, shape, dtype, chosen):
    from stiefel.batched.border import border_of

    x0 = np.zeros((3, *shape), dtype)
    x0[..., range(shape[-1]), range(shape[-1])] = 1.0
    assert isinstance(border_of(x0, manifold).leaves[0], CompiledMatrices) is chosen


def test_minima_are_those_of_the_arrays(monkeypatch):
    """With and without the compiled kernels, on a function that no model recognises."""
    A = np.random.default_rng(3).standard_normal((25, 12, 12))
    A = A @ A.mT
    x0 = stiefel.Stiefel().random(25, 12, 3, seed=1)

    def fun(X, index):
        AX = A[index] @ X * [3.0, 2.0, 1.0]
        return np.sum(X * AX, axis=(1, 2)) + np.sum(X**4, axis=(1, 2)), 2 * AX + 4 * X**3

    fast = stiefel.minimize_many(fun, x0, rtol=1e-9)
    monkeypatch.setattr(kernels_of(x0), "compiled", None)
    slow = stiefel.minimize_many(fun, x0, rtol=1e-9)
    assert fast.success.all() and slow.success.all()
    assert abs(int(fast.nfev.sum()) / int(slow.nfev.sum()) - 1) < 0.05
    assert np.sum(abs(fast.fun - slow.fun) < 1e-9 * abs(slow.fun)) >= 24  # another minimum is rare


def test_stored_arrays_are_views():
    a = side_by_side(np.arange(24.0).reshape(2, 3, 4))
    assert stored(a).flags.c_contiguous and np.shares_memory(stored(a), a)


@np.errstate(all="ignore")
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("shape", [(6, 2), (12, 3), (5, 4)], ids=str)
def test_metrics_are_learned_alike(count, shape):
    """Steps that tell much, little and nothing; D is replaced in some problems, ω in others."""
    case = Case(count, *shape)
    fast, plain = case.solvers()
    learned = [s.init((case.x,)).learned[0] for s in (fast, plain)]
    horizontal = case.rng.random(count) < 0.2
    learned = [known._replace(horizontal=horizontal) for known in learned]
    columns = np.geomspace(1.0, 30.0, shape[1])
    replaced = 0
    for i in range(12):
        W = side_by_side(case.rng.standard_normal(case.x.shape) * (1e-20 if i == 5 else 1.0))
        W = case.plain.lower(case.x, W, 1.0 + 0.0 * case.t)[0]
        trial = case.plain.trial(case.x, W, case.t)
        E = case.rng.standard_normal(case.x.shape) * (columns * (1.0 + i))
        new = case.plain.lower(trial.X, E, case.scale)[::2]
        old, steps = (case.G, case.rotation), np.full(count, i, dtype=np.int32)
        quick, _ = case.leaf.trial_or_point(case.x, W, case.t, np.zeros(count, dtype=bool))
        pairs = (
            case.leaf.pair(case.x, W, quick, old, new),
            case.plain.pair(case.x, W, trial, old, new),
        )
        taken = case.rng.random(count) < 0.8
        before = learned[1].D
        learned = [
            s.observer.observe((leaf,), (pair,), (known,), steps, taken, (2.2e-16,))[0]
            for s, leaf, pair, known in zip(
                (fast, plain), (case.leaf, case.plain), pairs, learned, strict=True
            )
        ]
        replaced += np.sum(np.any(np.asarray(before != learned[1].D), axis=(1, 2)))
        for name in ("P", "R", "weight", "judged", "ratio", "found", "omega", "normal_change"):
            close(getattr(learned[0], name), getattr(learned[1], name), 1e-10)
        close(learned[0].D, learned[1].D, 1e-4)  # four sweeps of rotations on one side
        for pair, leaf, known in zip(pairs, (case.leaf, case.plain), learned):
            change = leaf.squared_change(case.x, pair, known.metric)
            close(change, case.plain.squared_change(case.x, pairs[1], learned[1].metric), 1e-4)
    assert replaced > 0
