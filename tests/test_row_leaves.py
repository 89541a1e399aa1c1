"""Row models of the leaves of a tree: each leaf its own, and none where leaves are coupled."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import linalg

import stiefel
from runs import problem_of, states
from stiefel import Euclidean, Grassmann, Stiefel
from stiefel.backends.arrays import kernels_for
from stiefel.objectives import Brockett, KohnSham
from stiefel.solvers import METHODS, row_leaves, row_memory
from stiefel.solvers.row_model import GIVEN_UP, OFF, Rows
from test_row_model import perturbed, procrustes

AUTO = METHODS["auto"]
WITHOUT = replace(AUTO, rows=None)


def both(fun, x):
    return fun(x) if callable(fun) else fun.value_and_gradient(x)


def scaled(fun, c):
    def times(x):
        f, G = both(fun, x)
        return c * f, c * G

    return times


def tree(*parts):
    """The sum of functions of one leaf each."""

    def fun(X):
        values, gradients = zip(*(both(f, x) for f, x in zip(parts, X, strict=True)), strict=True)
        return sum(values), list(gradients)

    return fun


def coupled(fun, size):
    """With ½ size n Σ a²b² for the first columns of two leaves."""

    def more(X):
        (f, G), (a, b) = fun(X), X
        c, k = size * len(a), min(a.shape[1], b.shape[1])
        P = a[:, :k] * b[:, :k]
        G[0][:, :k] += c * P * b[:, :k]
        G[1][:, :k] += c * P * a[:, :k]
        return f + 0.5 * c * float((P * P).sum()), G

    return more


def spins(n, alpha):
    """Two densities in one potential: ½Σ tr XᵀLX + (α/4)ρᵀL⁻¹ρ."""
    L = 2.0 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    inverse = linalg.inv(L)

    def fun(X):
        rho = sum((x * x).sum(axis=1) for x in X)
        v = alpha * (inverse @ rho)
        kinetic = sum(float(np.vdot(x, L @ x)) for x in X)
        return 0.5 * kinetic + 0.25 * float(rho @ v), [L @ x + v[:, None] * x for x in X]

    return fun


def energy_of_free(x):
    a = np.linspace(1.0, 30.0, len(x))
    return 0.5 * float(a @ (x * x)) + 0.1 * float((x**4).sum()) - float(x.sum()), a * x + (
        0.4 * x**3 - 1.0
    )


def start(shapes, seed):
    rng = np.random.default_rng(seed)
    matrices = (stiefel.random_point(*s, seed=rng) if len(s) > 1 else None for s in shapes)
    return [rng.standard_normal(s) if x is None else x for s, x in zip(shapes, matrices)]


def kinds(shapes):
    return [Stiefel() if len(s) > 1 else Euclidean() for s in shapes]


def runs(fun, shapes, method, seeds=(0, 1), rtol=1e-9):
    options = {"manifold": kinds(shapes), "method": method, "rtol": rtol}
    found = [stiefel.minimize(fun, start(shapes, seed), **options) for seed in seeds]
    assert all(run.success for run in found), [run.message for run in found]
    return found


def spent(*arguments, **options):
    return sum(run.nfev for run in runs(*arguments, **options))


TABLE, SMALL, QUARTIC = Brockett.table(200, 5), Brockett.table(150, 4), Brockett.table(60, 4)

BUDGETS = {  # parts, shapes, and evaluations of two starts; about 10 % above what was measured
    "two tables": ((TABLE, SMALL), [(200, 5), (150, 4)], 340),
    "unlike scales": (
        (TABLE, scaled(SMALL, 1e-3), Brockett.linear(200, 6)),
        [(200, 5), (150, 4), (200, 6)],
        350,
    ),
    "a constant part": ((SMALL, procrustes(60, 50, 4, 30.0)), [(150, 4), (50, 4)], 310),
    "beside a quartic": ((TABLE, perturbed(QUARTIC, 1.0)), [(200, 5), (60, 4)], 470),
    "beside free numbers": ((TABLE, energy_of_free), [(200, 5), (30,)], 340),
    "beside a density": ((TABLE, KohnSham(200, 1.0)), [(200, 5), (200, 6)], 350),
}


@pytest.mark.parametrize("name", BUDGETS)
def test_a_tree_takes_as_long_as_its_slowest_leaf(name):
    parts, shapes, budget = BUDGETS[name]
    assert spent(tree(*parts), shapes, AUTO) <= budget


def test_a_tree_of_one_leaf_is_its_leaf():
    x = start([(200, 5)], 3)
    one = stiefel.minimize(tree(TABLE), x, rtol=1e-9).nfev
    assert one == pytest.approx(stiefel.minimize(TABLE, x[0], rtol=1e-9).nfev, rel=0.1)


def test_each_leaf_is_recognised_and_the_rest_keeps_its_pairs():
    shapes = [(60, 4), (60, 4), (9,)]
    fun = tree(Brockett.linear(60, 4), perturbed(QUARTIC, 1.0), energy_of_free)
    taken = states(AUTO, fun, start(shapes, 0), kinds(shapes), 12)
    assert [s.rows.leaves[0].exact for s in taken] == [False] * 3 + [True] * 9
    assert not any(leaf.on for s in taken[1:] for leaf in s.rows.leaves[1:])
    assert [s.pairs.in_use for s in taken] == [0, 1, 2, *range(1, 10)]
    assert taken[-1].pairs.S.shape[1:] == (60 * 4 + 9,)  # one array: they are small


def test_a_leaf_that_is_far_ahead_waits(monkeypatch):
    """Its next steps would be rounding, and end its model: the pairs of the rest would go too."""
    shapes, fun = [(60, 4)] * 2, tree(Brockett.linear(60, 4), perturbed(QUARTIC, 1.0))
    x = start(shapes, 0)
    taken = states(AUTO, fun, x, kinds(shapes), 180)
    assert all(s.rows.leaves[0].exact and s.pairs.in_use == 30 for s in taken[50:])
    assert 1e-9 < np.linalg.norm(taken[90].at.G[0]) / taken[90].at.norm < 1e-3
    monkeypatch.setattr(row_leaves, "WAITS", 0.0)
    starts = [start(shapes, seed) for seed in range(3)]
    assert not all(states(AUTO, fun, x, kinds(shapes), 180)[-1].rows.on for x in starts)


def test_a_leaf_that_waits_sees_its_gradient_as_the_others_change_it():
    """It is near its minimum, and a weak coupling moves that while the other leaf goes on."""
    shapes = [(40, 3), (40, 3)]
    parts = Brockett.linear(40, 3), perturbed(Brockett.table(40, 3), 1e-1)
    fun = coupled(tree(*parts), 1e-7)
    waited = 0
    for s in states(AUTO, fun, start(shapes, 0), kinds(shapes), 120):
        known, G = s.rows.leaves and s.rows.leaves[0].known, s.at.G[0]
        if known:
            seen = row_memory.products(kernels_for(G), known.memory, G)
            atol = 1e-12 * np.linalg.norm(G)
            np.testing.assert_allclose(known.memory.seen, seen, rtol=0, atol=atol)
            waited += np.linalg.norm(G) < row_leaves.WAITS * s.at.norm
    assert waited > 5


# -- coupled leaves -------------------------------------------------------------------------------


def test_leaves_that_are_hardly_coupled_gain():
    shapes = [(100, 4), (100, 3)]
    fun = coupled(tree(Brockett.table(100, 4), Brockett.table(100, 3)), 1e-9)
    assert spent(fun, shapes, AUTO) < 0.5 * spent(fun, shapes, WITHOUT)


UNTOUCHED = {
    "coupled 1e-4": (coupled(tree(Brockett.table(60, 4), Brockett.table(60, 3)), 1e-4), (60, 3)),
    "coupled 1": (coupled(tree(Brockett.table(60, 4), Brockett.table(60, 3)), 1.0), (60, 3)),
    "a density beside a quartic": (tree(KohnSham(60, 1.0), perturbed(QUARTIC, 1.0)), (60, 4)),
    "a density beside free numbers": (tree(KohnSham(60, 1.0), energy_of_free), (9,)),
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_where_no_leaf_is_modelled_runs_are_the_same_bits(name):
    fun, second = UNTOUCHED[name]
    shapes = [(60, 4), second]
    a, b = (runs(fun, shapes, method, (0,), 1e-7)[0] for method in (AUTO, WITHOUT))
    assert a.nfev == b.nfev
    assert all(np.array_equal(x, y) for x, y in zip(a.x, b.x, strict=True))
    assert np.array_equal(a.history.as_array()["value"], b.history.as_array()["value"])


def test_nothing_is_held_where_no_leaf_has_the_structure():
    shapes = [(60, 4), (60, 3)]
    fun = coupled(tree(Brockett.table(60, 4), Brockett.table(60, 3)), 1.0)
    assert states(AUTO, fun, start(shapes, 0), kinds(shapes), 15)[-1].rows == GIVEN_UP
    problem, x = problem_of(tree(energy_of_free), start([(9,)], 0), [Euclidean()])
    assert AUTO.init(problem, x).rows == GIVEN_UP


def test_a_coupling_that_comes_later_ends_the_models():
    shapes, calls = [(60, 4), (60, 3)], []
    first = tree(Brockett.table(60, 4), Brockett.table(60, 3))
    then = coupled(tree(Brockett.table(60, 4), Brockett.table(60, 3)), 10.0)

    def fun(X):
        calls.append(1)
        return (first if len(calls) < 30 else then)(X)

    taken = states(AUTO, fun, start(shapes, 0), kinds(shapes), 200)
    assert all(leaf.exact for leaf in taken[10].rows.leaves)
    assert not any(leaf.exact for leaf in taken[-1].rows.leaves)
    assert taken[-1].failure is None


# -- functions of the spans -----------------------------------------------------------------------


def test_densities_in_one_potential_gain():
    shapes = [(200, 6), (200, 5)]
    fun = spins(200, 10.0)
    assert spent(fun, shapes, AUTO) < 0.75 * spent(fun, shapes, WITHOUT)


def test_a_leaf_far_from_its_minimum_does_not_hold_up_the_others(monkeypatch):
    """Each exact model bounds the step of its own leaf."""
    fun = tree(Brockett.table(60, 4), scaled(Brockett.linear(100, 5), 100.0))
    shapes, options = [(60, 4), (100, 5)], {"seeds": range(4), "rtol": 1e-8}
    apart = spent(fun, shapes, AUTO, **options)
    monkeypatch.setattr(row_leaves, "bounded", lambda factor, T, longest: T)
    assert 1.3 * apart < spent(fun, shapes, AUTO, **options)


# -- everywhere -----------------------------------------------------------------------------------


def test_the_mirrored_point_is_that_of_one_leaf():
    fun, seen = tree(SMALL, procrustes(60, 50, 4, 30.0)), []

    def recorded(X):
        seen.append([x.copy() for x in X])
        return fun(X)

    x = start([(150, 4), (50, 4)], 0)
    result = stiefel.minimize(recorded, x, rtol=1e-9)
    assert result.success and result.nfev == len(seen)
    pairs = [(X, Y) for X in seen for Y in seen if np.array_equal(X[1], -Y[1])]
    assert len(pairs) == 2 and all(np.array_equal(X[0], Y[0]) for X, Y in pairs)


def test_leaves_of_other_kinds():
    """A complex leaf, a span, and one with XᵀBX = I, in one tree."""
    B = np.diag(np.linspace(1.0, 3.0, 100))
    manifolds = [Stiefel(), Grassmann(), Stiefel(B=B)]
    rng = np.random.default_rng(0)
    x = [
        stiefel.random_point(80, 3, seed=rng, dtype=complex),
        stiefel.random_point(90, 4, seed=rng),
        manifolds[2].random(100, 3, seed=rng),
    ]
    a = np.arange(1.0, 91.0)[:, None] ** 2 / 90
    fun = tree(
        Brockett.table(80, 3),
        lambda X: (0.5 * float((a * X * X).sum()), a * X),
        Brockett.table(100, 3),
    )
    counts = []
    for method in (AUTO, WITHOUT):
        run = stiefel.minimize(fun, x, manifold=manifolds, method=method, rtol=1e-8)
        assert run.success
        counts.append(run.nfev)
    assert counts[0] < 0.5 * counts[1]


CUT = {
    "exact": (tree(QUARTIC, Brockett.table(50, 3)), [(60, 4), (50, 3)]),
    "a rest": (tree(QUARTIC, perturbed(Brockett.table(50, 3), 1.0)), [(60, 4), (50, 3)]),
    "densities": (spins(60, 1.0), [(60, 4), (60, 3)]),
}


@pytest.mark.parametrize("name", CUT)
def test_a_resumed_run_has_the_same_bits(tmp_path, name):
    fun, shapes = CUT[name]
    x = start(shapes, 0)
    whole = stiefel.minimize(fun, x, rtol=1e-9)
    for cut in (2, 4, 9, 30):
        path = tmp_path / f"{cut}.npz"
        stiefel.minimize(fun, x, rtol=1e-9, maxiter=cut, checkpoint=path)
        rest = stiefel.minimize(fun, x, rtol=1e-9, checkpoint=path, resume=True)
        assert rest.nfev == whole.nfev
        assert all(np.array_equal(a, b) for a, b in zip(rest.x, whole.x, strict=True))


# -- stacks -----------------------------------------------------------------------------------


def stack(operators, quartic=0.0):
    """½ tr XᵀAX for each matrix, and ¼Σx⁴ for the last one."""

    def fun(X):
        G = operators * X
        f = 0.5 * float(np.vdot(X, G)) + 0.25 * quartic * float((X[-1] ** 4).sum())
        G[-1] += quartic * X[-1] ** 3
        return f, G

    return fun


def own_operators(count, n, spread=1.0):
    rng, base = np.random.default_rng(3), np.arange(1.0, n + 1) ** 2 / n
    scales = spread ** -np.linspace(0.0, 1.0, count)
    return np.stack([c * base * (1.0 + 0.3 * rng.random(n)) for c in scales])[:, :, None]


@pytest.mark.parametrize("spread", [1.0, 1e3])
def test_each_matrix_of_a_stack_has_its_operator(spread):
    fun, x = stack(own_operators(4, 120, spread)), stiefel.random_point(4, 120, 4, seed=0)
    found = [stiefel.minimize(fun, x, method=method, rtol=1e-8) for method in (AUTO, WITHOUT)]
    assert all(run.success for run in found)
    assert found[0].nfev < 0.4 * found[1].nfev
    assert found[0].fun == pytest.approx(found[1].fun, rel=1e-10)


def test_a_stack_with_one_other_function_is_the_same_bits():
    """All matrices have models, or none has."""
    fun, x = stack(own_operators(3, 60), 60.0), stiefel.random_point(3, 60, 3, seed=0)
    a, b = (stiefel.minimize(fun, x, method=method, rtol=1e-7) for method in (AUTO, WITHOUT))
    assert a.nfev == b.nfev and np.array_equal(a.x, b.x)


def test_matrices_of_a_stack_are_modelled_together():
    on = Rows(None, "known")
    together = row_leaves._together
    assert together(Rows(None, None, (OFF, OFF)), (on, OFF)).leaves == (OFF, OFF)
    assert together(Rows(None, None, (OFF, OFF)), (on, on)).leaves == (on, on)
    assert together(Rows(None, None, (OFF, OFF)), (on, GIVEN_UP)) == GIVEN_UP


def test_large_stacks_stay_off():
    most = row_leaves.MOST_MATRICES
    for count in (most, most + 1):
        x = stiefel.random_point(count, 20, 3, seed=0)
        problem, x = problem_of(stack(own_operators(count, 20)), x, Stiefel())
        assert (AUTO.init(problem, x).rows == GIVEN_UP) == (count > most)


def test_a_stack_that_changes_its_mind_goes_on_without_models():
    calls, fun = [], stack(own_operators(3, 60))
    then = stack(own_operators(3, 60), 600.0)

    def changing(X):
        calls.append(1)
        return (fun if len(calls) < 20 else then)(X)

    taken = states(AUTO, changing, stiefel.random_point(3, 60, 3, seed=0), Stiefel(), 120)
    assert all(leaf.exact for leaf in taken[10].rows.leaves)
    assert taken[-1].rows == GIVEN_UP and taken[-1].pairs.in_use and taken[-1].failure is None


def test_a_resumed_stack_has_the_same_bits(tmp_path):
    fun, x = stack(own_operators(3, 60)), stiefel.random_point(3, 60, 3, seed=0)
    whole = stiefel.minimize(fun, x, rtol=1e-9)
    for cut in (2, 9, 30):
        path = tmp_path / f"{cut}.npz"
        stiefel.minimize(fun, x, rtol=1e-9, maxiter=cut, checkpoint=path)
        rest = stiefel.minimize(fun, x, rtol=1e-9, checkpoint=path, resume=True)
        assert rest.nfev == whole.nfev and np.array_equal(rest.x, whole.x)
