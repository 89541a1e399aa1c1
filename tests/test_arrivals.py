"""A step of a small tree or stack in one call, beside the text that takes it piece by piece."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stiefel
from stiefel import Euclidean, Stiefel
from stiefel.geometry.ray import Secant
from stiefel.solvers import LearnedMetric, arrivals, memory, stack_pairs
from stiefel.solvers.aims import matrix_aim, slope_and_curve
from stiefel.solvers.learned_metric import Learned
from stiefel.solvers.memory import apply_inverse, remember, smoothed
from stiefel.solvers.noise import Watch
from stiefel.solvers.problem import Problem
from stiefel.solvers.raising import learned_squared_change, metric_of, raised_by_learned
from stiefel.solvers.secant_search import SearchStep
from stiefel.solvers.stack_pairs import direction_apart, looked_at
from stiefel.types import Gradient, Metric
from test_compiled_leaves import KERNELS, LEAVES, tree_of

RULES = LearnedMetric(settled=5, thinning=3)  # some steps are passed over
STACKS = [i for i, (_, shape, *_) in enumerate(LEAVES) if len(shape) > 2 and shape[-1] in (2, 3)]
STACKS = [i for i in STACKS if LEAVES[i][3] != 4]  # rotations have kernels of their own
WHICH = st.lists(st.integers(0, len(LEAVES) - 1), min_size=1, max_size=5)


def drawn(which, rng):
    """Euclidean gradients of these leaves, in the shapes of the user's points."""

    def one(shape, is_complex):
        real, imaginary = rng.standard_normal((2, *shape))
        return real + 1j * imaginary if is_complex else real

    return lambda: tuple(one(*LEAVES[i][1:3]) for i in which)


def pieces(rules, geometry, pairs, pair, sy, gamma, X, G, learned, c2=0.9):
    """What `lbfgs` does where there is no kernel."""
    problem = Problem(geometry, None)
    if rules is not None:
        learned = rules.observe(geometry, X, pair, learned)
    kept = remember(geometry, pairs, pair.s, pair.y, sy, pairs.rows)
    gamma = smoothed(gamma, sy / learned_squared_change(problem, X, pair, learned, None))
    phi = partial(raised_by_learned, problem, X, learned, None)
    if kept.apart is not None:
        kept = kept._replace(apart=looked_at(geometry, kept, G, partial(phi, False), c2))
    if kept.apart is not None and kept.apart.on:
        T = direction_apart(geometry, kept, G, gamma, partial(phi, True), 3.0)
    else:
        T = apply_inverse(geometry, kept, G, gamma, partial(phi, True), True)
    return kept, learned, gamma, T


def several_steps(geometry, X, gradient, rng, steps, stack, rules=RULES):
    """Steps with pairs of the geometry's own curves, by the kernel and by the text."""
    problem, tree = Problem(geometry, None), isinstance(X, tuple)
    at = problem.known(1.0, geometry.gradient(X, gradient()))
    of_kernel = of_text = RULES.init(geometry, X, at)
    pairs = memory.no_pairs(geometry, at.G, 4, X if stack else None)
    text_pairs, gamma, text_gamma = copied(pairs), 0.0, 0.0
    for _ in range(steps):
        T = geometry.scale(-(10.0 ** rng.uniform(-2, 1)), at.G)
        _, curve = slope_and_curve(geometry, X, at, T, metric_of(geometry, of_kernel), pairs)
        t = 0.3 / max(curve.length, 1e-3)
        X = curve(t)
        new = problem.known(1.0, geometry.gradient(X, gradient()))
        pair = curve.secant_pair(t, at, new)
        sy = abs(geometry.dot(pair.s, pair.y)) + 0.1
        ends = X, new.G
        taken = SearchStep(t, X, new, pair, sy, Watch())
        found = arrivals.leaves_arrival(
            rules, 0.9, geometry, pairs, taken, 0.0, pairs.rows, gamma, of_kernel
        )
        assert found is not None
        pairs, of_kernel, gamma, aimed = found
        told = pieces(rules, geometry, text_pairs, pair, sy, text_gamma, *ends, of_text)
        text_pairs, of_text, text_gamma, expected = told
        if aimed is None:
            aimed = matrix_aim(geometry, pairs, *ends, gamma, metric_of(geometry, of_kernel), 3.0)
        same(pairs, text_pairs)
        same(of_kernel, of_text)
        assert gamma == pytest.approx(text_gamma, rel=1e-9)
        size = max(np.abs(e).max() for e in (expected if tree else (expected,)))
        same(aimed[0], expected, 1e-8 * size)
        assert aimed[1] == pytest.approx(geometry.dot(new.G, aimed[0]), rel=1e-9)
        again = geometry.ray_along(X, aimed[0], metric_of(geometry, of_kernel))
        assert (aimed[2].length, aimed[2].defect) == (again.length, again.defect)
        at = new


def copied(pairs):
    S, Y = (tuple(a.copy() for a in b) if isinstance(b, tuple) else b.copy() for b in pairs[:2])
    apart = pairs.apart and pairs.apart._replace(curvatures=pairs.apart.curvatures.copy())
    return pairs._replace(S=S, Y=Y, apart=apart)


def same(found, expected, least=1e-9):
    """Records of numbers and arrays that agree to rounding."""
    if isinstance(expected, tuple):
        assert type(found) is type(expected)
        assert len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            same(f, e, least)
    elif isinstance(expected, np.ndarray):
        atol = max(least, 1e-8 * np.abs(expected).max(initial=0.0))
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=atol)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-7, abs=least)
    else:
        assert found == expected


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9), WHICH)
def test_a_tree_arrives_as_in_the_text(seed, steps, which):
    rng = np.random.default_rng(seed)
    geometry, X, *_ = tree_of(which, rng)
    several_steps(geometry, X, drawn(which, rng), rng, steps, False)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 12),
    st.sampled_from(STACKS),
    st.sampled_from(("one", "together", "apart")),
)
def test_a_stack_arrives_as_in_the_text(seed, steps, which, how):
    rng = np.random.default_rng(seed)
    tree, (X,), *_ = tree_of((which,), rng)
    gradients = drawn((which,), rng)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("APART", "TOGETHER"):  # random gradients are coupled
            patch.setattr(stack_pairs, name, 2.0 if how == "apart" else 0.0)
        several_steps(tree.factors[0], X, lambda: gradients()[0], rng, steps, how != "one")


def test_nothing_is_learned_without_rules():
    rng = np.random.default_rng(0)
    geometry, X, *_ = tree_of((0, 3), rng)
    several_steps(geometry, X, drawn((0, 3), rng), rng, 4, False, rules=None)


def test_leaves_that_the_kernel_cannot_learn_from_are_left_to_the_text():
    rng = np.random.default_rng(1)
    geometry, X, gradient, _ = tree_of((0, 1), rng)
    G, learned = gradient(), (Learned(Metric()),) * 2
    pairs, at = memory.no_pairs(geometry, G, 3), Gradient(1.0, G, 1.0)
    silent = Secant(G, G, leaves=tuple(map(Secant, G, G)))  # nothing is said of curvature
    flat = silent._replace(leaves=tuple(Secant(g, g, None, 1.0) for g in G))
    for pair, least in ((silent, 0.0), (flat, 1.0)):  # ⟨s, y⟩ = 1 < ‖y‖ = √2
        taken = SearchStep(1.0, X, at, pair, 1.0, Watch())
        known = pairs, taken, least, (), 0.0, learned
        assert arrivals.leaves_arrival(RULES, 0.9, geometry, *known) is None


def test_what_are_no_such_arrivals_is_refused():
    good, metrics, S = (np.ones(3), np.ones(2)), (Metric(), Metric()), np.zeros((3, 5))
    ring = S, S.copy(), np.zeros((3, 3)), np.zeros(3), 1.0
    pairs = tuple(Secant(g, g, None, 1.0) for g in good)
    learned, rules = (Learned(Metric()),) * 2, RULES.numbers

    def arrival(**other):
        T = tuple(map(np.empty_like, good))
        given = {
            "G": good, "T": T, "X": good, "metrics": metrics, "kinds": (0, 0),
            "frames": (None, None), "row": 0, "gone": -1, "sy": 1.0, "s": good, "y": good,
            "pairs": pairs, "rules": rules, "learned": learned, "matrices": (None, None),
            "balance": np.empty((3, 2)),
            "changes": None,
        }  # fmt: skip
        return KERNELS.leaves_arrival(*ring, *(given | other).values())

    _, unit, facts, slopes, small = arrival()
    assert (unit, facts, len(slopes), small) == (2.0 / 5.0, (None, None), 2, (None, None))
    wrong = (
        {"row": 3}, {"row": -1}, {"gone": 3}, {"gone": -2}, {"kinds": (0, 9)}, {"kinds": (0,)},
        {"kinds": (1, 0)}, {"metrics": (Metric(), (1.0,))}, {"s": (np.ones(3),)}, {"y": 1.0},
        {"pairs": pairs[:1]}, {"pairs": (1.0, 2.0)}, {"pairs": (Secant(None, None), pairs[0])},
        {"rules": rules[:3]}, {"rules": 1.0}, {"learned": learned[:1]}, {"learned": (1.0, 2.0)},
        {"learned": (learned[0], learned[0]._replace(rotations=(1.0,)))},
        {"learned": (learned[0], learned[0]._replace(weights=np.ones(2), stiffness=np.ones(2)))},
        {"balance": np.empty((3, 3))}, {"changes": np.empty(2)}, {"G": good[:1]},
        {"T": (np.empty(3), np.empty(3))}, {"X": good[:1], "T": None}, {"sy": None},
        {"T": (np.empty(3), np.empty(2, np.float32))},
    )  # fmt: skip
    for other in wrong:
        with pytest.raises((ValueError, TypeError, BufferError)):
            arrival(**other)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300, 1e-320, 0.0])
@pytest.mark.parametrize("method", ["auto", "lbfgs"])
def test_hostile_numbers_end_no_run_in_a_lie(value, method):
    """A late gradient with such an entry, in a tree of a matrix, a stack and free numbers."""
    rng = np.random.default_rng(3)
    A, calls = rng.standard_normal((2, 6, 6)), [0]
    A = A @ A.mT

    def fun(p):
        calls[0] += 1
        Y, R = A @ p["X"], p["U"] - p["c"]
        G = {"X": Y.copy(), "U": R.copy(), "c": p["c"] ** 3 - R}
        if calls[0] == 7:
            G["X"][1, 0, 0] = value
        f = 0.5 * float(np.vdot(p["X"], Y) + np.vdot(R, R)) + 0.25 * float(np.sum(p["c"] ** 4))
        return f, G

    X, U = Stiefel().random(2, 6, 2, seed=0), Stiefel().random(5, 2, seed=1)
    start, where = {"X": X, "U": U, "c": np.ones((5, 2))}, {"X": Stiefel(), "U": Stiefel()}
    where["c"] = Euclidean()
    with np.errstate(all="ignore"):
        result = stiefel.minimize(fun, start, manifold=where, method=method, rtol=1e-8)
    assert result.nfev == calls[0]
    G = fun(result.x)[1]
    norm = max(np.abs(Stiefel().project(result.x[n], G[n])).max() for n in ("X", "U"))
    assert not result.success or norm < 1e-5
