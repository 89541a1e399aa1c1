"""A step of one matrix in one call, beside the search and the arrival that take it apart."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stiefel
from stiefel import Grassmann, Stiefel
from stiefel.backends.arrays import kernels_for
from stiefel.function.counted import CountedObjective
from stiefel.function.trees import Tree
from stiefel.geometry.compiled import FirstTrial, LandingRay
from stiefel.geometry.framed_ray import CompiledFramedRay
from stiefel.geometry.frames import framed, seen
from stiefel.geometry.metric import CANONICAL
from stiefel.geometry.turns import CompiledRotationRay
from stiefel.geometry.wide import CompiledWideRay
from stiefel.solvers import METHODS, lbfgs, strides
from stiefel.solvers.aims import WideAim
from stiefel.solvers.noise import Model
from stiefel.solvers.problem import Problem

KERNELS = kernels_for(np.zeros(1)).compiled
pytestmark = pytest.mark.skipif(KERNELS is None, reason="there are no compiled kernels")


def gaussian(rng, shape, is_complex):
    real, imaginary = rng.standard_normal((2, *shape))
    return real + 1j * imaginary if is_complex else real


def quartic(n, k, seed, is_complex, span=False):
    """Fourth powers beside a quadratic part; ``span``: of the density, a function of the span."""
    rng = np.random.default_rng(seed)
    A = gaussian(rng, (n, n), is_complex)
    A = A + A.conj().T
    B = (0.0 if span else 1.0) * gaussian(rng, (n, k), is_complex)

    def fun(X):
        AX, squares = A @ X, np.abs(X) ** 2
        weights = squares.sum(axis=1, keepdims=True) if span else squares
        f = 0.5 * np.vdot(X, AX).real + 2.25 * np.sum(weights**2) + np.vdot(B, X).real
        return float(f), AX + 9.0 * weights * X + B

    return fun


def run(fun, x, method, **options):
    points = []
    result = stiefel.minimize(
        fun, x, method=method, callback=lambda s: points.append(s.x.copy()), **options
    )
    return result, points


def with_and_without(fun, x, method, **options):
    """The same run by the kernel, and piece by piece; and how many steps the kernel took."""
    taken = []

    def counted(*arguments):
        found = stride(*arguments)
        taken.append(found[0] is not None)
        return found

    stride = lbfgs.stride
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lbfgs, "stride", counted)
        one = run(fun, x, method, **options)
        patch.setattr(lbfgs, "stride", lambda *arguments: (None, None))
        return one, run(fun, x, method, **options), taken


def assert_same_run(one, other):
    (found, points), (expected, others) = one, other
    assert (found.status, found.nfev, found.nit) == (expected.status, expected.nfev, expected.nit)
    assert len(points) == len(others)
    assert all(np.array_equal(X, Y) for X, Y in zip(points, others, strict=True))
    for column in ("value", "gradient_norm", "step", "momentum", "defect", "expected_decrease"):
        np.testing.assert_array_equal(found.history[column], expected.history[column])


METHODS_TRIED = (METHODS["auto"], stiefel.LBFGS(), stiefel.LBFGS(memory=3, longest=0.3))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.tuples(st.integers(1, 12), st.integers(2, 5)),
    st.booleans(),
    st.booleans(),
    st.sampled_from(METHODS_TRIED),
)
def test_runs_have_the_same_bits(seed, size, is_complex, span, method):
    extra, k = size
    n, dtype = 2 * k + extra, complex if is_complex else float
    manifold = Grassmann() if span and seed % 2 else Stiefel()
    x = Stiefel().random(n, k, seed=seed, dtype=dtype)
    fun = quartic(n, k, seed, is_complex, span)
    assert_same_run(*with_and_without(fun, x, method, rtol=1e-8, manifold=manifold, maxiter=80)[:2])


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 9), st.booleans(), st.sampled_from(METHODS_TRIED))
def test_runs_of_square_matrices_have_the_same_bits(seed, n, is_complex, method):
    x = Stiefel().random(n, n, seed=seed, dtype=complex if is_complex else float)
    manifold = stiefel.Unitary() if is_complex else stiefel.Orthogonal()
    fun, known = quartic(n, n, seed, is_complex), {"rtol": 1e-8, "manifold": manifold}
    assert_same_run(*with_and_without(fun, x, method, **known, maxiter=80)[:2])


# Columns that mislead are dropped before the next direction, and in one call after it.
NEVER_DROPPED = replace(METHODS["auto"].metric, worst_columns=1e300, worst_beside_rotations=1e300)
WIDE_METHODS_TRIED = (replace(METHODS["auto"], metric=NEVER_DROPPED), *METHODS_TRIED[1:])


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.tuples(st.integers(1, 60), st.integers(20, 28)),
    st.booleans(),
    st.booleans(),
    st.sampled_from(WIDE_METHODS_TRIED),
)
def test_runs_of_many_columns_have_the_same_bits(seed, size, is_complex, span, method):
    extra, k = size
    n, dtype = k + extra, complex if is_complex else float
    manifold = Grassmann() if span and seed % 2 else Stiefel()
    x = Stiefel().random(n, k, seed=seed, dtype=dtype)
    fun = quartic(n, k, seed, is_complex, span)
    assert_same_run(*with_and_without(fun, x, method, rtol=1e-8, manifold=manifold, maxiter=80)[:2])


def test_a_matrix_of_many_columns_that_has_drifted_is_straightened_first():
    """The point of its first trial was made from where it stood before."""
    x = np.eye(60, 20)
    k = kernels_for(x)
    for drift, straightened in ((0.0, False), (1e-11, True)):
        ahead = WideAim(Stiefel().bind(x), x * (1.0 + drift), CANONICAL)
        frame, *numbers = CompiledWideRay.prepare(k, ahead.X, quartic(60, 20, 0, False)(x)[1], 0.0)
        ahead.T, ahead.frame = frame.U, frame
        first = FirstTrial(1e-3, np.zeros_like(x), frame.U)
        _, _, ray = ahead.along(-1.0, *numbers, first=first)
        assert (ray.first is None) == ray.straightened == straightened
        assert np.any(ray(1e-3)) == straightened


def test_nearly_every_step_of_many_columns_is_one_call():
    fun, x = quartic(60, 20, 0, False), stiefel.random_point(60, 20, seed=0)
    (result, _), _, taken = with_and_without(fun, x, METHODS["auto"], rtol=1e-9)
    assert result.success and sum(taken) > 0.8 * result.nit


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.tuples(st.integers(1, 9), st.integers(2, 9)),
    st.booleans(),
    st.booleans(),
    st.sampled_from(METHODS_TRIED),
)
def test_runs_of_nearly_square_matrices_have_the_same_bits(seed, size, is_complex, span, method):
    """ω is learned from their steps; ``span``: functions of the span, which begin without it."""
    extra, k = size
    n, dtype = k + 1 + extra % (k - 1) if k > 2 else 3, complex if is_complex else float
    x, fun = (
        stiefel.random_point(n, k, seed=seed, dtype=dtype),
        quartic(n, k, seed, is_complex, span),
    )
    assert_same_run(*with_and_without(fun, x, method, rtol=1e-8, maxiter=80)[:2])


@pytest.mark.parametrize("k", [8, 12])
def test_nearly_every_step_in_a_frame_is_one_call(k):
    fun, x = quartic(12, k, 0, False), stiefel.random_point(12, k, seed=0)
    (result, _), _, taken = with_and_without(fun, x, METHODS["auto"], rtol=1e-9)
    assert result.success and sum(taken) > 0.8 * result.nit


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.tuples(st.integers(1, 5), st.integers(2, 6)),
    st.booleans(),
    st.sampled_from([0.0, 0.01, 1.0]),
    st.sampled_from(METHODS_TRIED),
)
def test_runs_of_square_stacks_have_the_same_bits(seed, size, is_complex, coupling, method):
    """Coupled, and apart sooner or later: then each matrix has a recursion of its own."""
    many, n = size
    manifold = stiefel.Unitary() if is_complex else stiefel.Orthogonal()
    x = manifold.random(many, n, n, seed=seed)
    known = {"rtol": 1e-8, "manifold": manifold}
    fun = coupled(many, n, seed, is_complex, coupling)
    assert_same_run(*with_and_without(fun, x, method, **known, maxiter=80)[:2])


def coupled(many, n, seed, is_complex, coupling):
    """Functions of the matrices of a stack, and the square of their sum."""
    funs = [quartic(n, n, seed + i, is_complex) for i in range(many)]

    def fun(X):
        found, whole = [f(x) for f, x in zip(funs, X, strict=True)], X.sum(axis=0)
        whole = whole * np.arange(1.0, n + 1.0)
        together = 0.5 * coupling * np.vdot(whole, whole).real
        apart = np.stack([G for _, G in found])
        return sum(f for f, _ in found) + together, apart + coupling * whole * np.arange(1, n + 1)

    return fun


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.tuples(st.integers(0, 5), st.integers(2, 3)),
    st.sampled_from([0.0, 0.01, 1.0]),
    st.sampled_from(METHODS_TRIED),
)
def test_runs_of_rotations_have_the_same_bits(seed, size, coupling, method):
    """One, and stacks of them, coupled and apart."""
    many, n = size
    manifold = stiefel.SpecialOrthogonal()
    x = manifold.random(many, n, n, seed=seed) if many else manifold.random(n, n, seed=seed)
    fun = coupled(many, n, seed, False, coupling) if many else quartic(n, n, seed, False)
    known = {"rtol": 1e-8, "manifold": manifold}
    assert_same_run(*with_and_without(fun, x, method, **known, maxiter=60)[:2])


@pytest.mark.parametrize("n", [3, 6])
def test_nearly_every_step_of_coupled_square_matrices_is_one_call(n):
    manifold, fun = stiefel.Orthogonal(), coupled(4, n, 0, False, 10.0)
    known = {"rtol": 1e-9, "manifold": manifold}
    x = manifold.random(4, n, n, seed=0)
    (result, _), _, taken = with_and_without(fun, x, METHODS["auto"], **known)
    assert result.success and sum(taken) > 0.8 * result.nit


def test_stacks_nearly_square_matrices_and_preconditioners_have_the_same_bits():
    manifold, fun = stiefel.Orthogonal(), quartic(6, 6, 1, False)

    def stacked(X):
        found = [fun(x) for x in X]
        return sum(f for f, _ in found), np.stack([g for _, g in found])

    cases = (
        (stacked, manifold.random(3, 6, 6, seed=1), {"manifold": manifold}),
        (quartic(7, 5, 2, False), stiefel.random_point(7, 5, seed=2), {}),
        (fun, manifold.random(6, 6, seed=3), {"manifold": manifold, "precond": lambda X, G: 2 * G}),
    )
    for objective, x, known in cases:
        one, other, _ = with_and_without(objective, x, METHODS["auto"], rtol=1e-8, **known)
        assert_same_run(one, other)
        assert one[0].success


@pytest.mark.parametrize(("n", "k", "is_complex"), [(60, 4, False), (40, 17, True)])
def test_runs_to_rounding_and_of_many_complex_columns_have_the_same_bits(n, k, is_complex):
    """Seventeen complex columns are learned from by LAPACK; blind steps are said to be blind."""
    x = stiefel.random_point(n, k, seed=5, dtype=complex if is_complex else float)
    fun = quartic(n, k, 5, is_complex)
    one, other, _ = with_and_without(fun, x, METHODS["auto"], rtol=1e-16, maxiter=400)
    assert_same_run(one, other)
    assert one[0].message == other[0].message


@pytest.mark.parametrize("shape", [(20, 3), (8, 8), (9, 7), (3, 3), (60, 20)])
def test_what_is_seen_of_rounding_is_the_same(monkeypatch, shape):
    fun, x = quartic(*shape, 6, False), stiefel.random_point(*shape, seed=6)
    geometry, X = framed(Stiefel().bind(x), x)

    def watches():
        objective = CountedObjective(fun, None, Tree(x), x)
        objective.seen = partial(seen, geometry)
        problem = Problem(geometry, objective, noise=Model(geometry.eps(X)))
        state = METHODS["auto"].init(problem, X)
        for _ in range(90):
            state = METHODS["auto"].step(problem, state)
            yield state.watch

    found = list(watches())
    monkeypatch.setattr(lbfgs, "stride", lambda *arguments: (None, None))
    assert found == list(watches())
    assert any(watch.blind for watch in found)


def test_nearly_every_step_is_one_call():
    fun, x = quartic(40, 4, 0, False), stiefel.random_point(40, 4, seed=0)
    (result, _), _, taken = with_and_without(fun, x, METHODS["auto"], rtol=1e-9)
    assert result.success and sum(taken) > 0.8 * result.nit


@pytest.mark.parametrize("spoilt", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("part", ["value", "gradient"])
@pytest.mark.parametrize("shape", [(20, 3), (6, 6), (8, 6), (3, 3), (45, 20)])
def test_what_is_not_finite_ends_alike(spoilt, part, shape):
    fun, x = quartic(*shape, 1, False), stiefel.random_point(*shape, seed=1)

    def hostile(limit):
        count = 0

        def spoiling(X):
            nonlocal count
            count += 1
            f, G = fun(X)
            if count < limit:
                return f, G
            return (spoilt, G) if part == "value" else (f, np.full_like(G, spoilt))

        return spoiling

    with np.errstate(all="ignore"):
        for limit in (6, 12):
            one = run(hostile(limit), x, METHODS["auto"], rtol=1e-9, maxfun=60)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(lbfgs, "stride", lambda *arguments: (None, None))
                other = run(hostile(limit), x, METHODS["auto"], rtol=1e-9, maxfun=60)
            assert_same_run(one, other)
            assert not one[0].success


@pytest.mark.parametrize(("n", "k"), [(60, 3), (5, 3), (60, 20)])
@pytest.mark.parametrize("when", [9, 12, 15])
def test_a_function_that_stops_being_one_of_the_span_is_noticed(n, k, when):
    """Its rotation part shows in the middle of a run, in the step that was under way.

    Slowly, so that the step is an ordinary one in all else.
    """
    A, x = np.diag(np.linspace(1.0, 40.0, n)), stiefel.random_point(n, k, seed=2)
    last = 1.0 + np.linspace(0.1, 0.3, k)

    def changing():
        count = 0

        def fun(X):
            nonlocal count
            count += 1
            AX = A @ X
            weights = last if count >= when else 1.0
            return float(np.vdot(X, AX * weights)) - 1e4 * (count >= when), 2.0 * AX * weights

        return fun

    method = stiefel.LBFGS(metric=NEVER_DROPPED)
    one = run(changing(), x, method, rtol=1e-8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lbfgs, "stride", lambda *arguments: (None, None))
        assert_same_run(one, run(changing(), x, method, rtol=1e-8))
    assert one[0].success
    np.testing.assert_allclose(one[0].fun, last[::-1] @ np.diag(A)[:k] - 1e4)


def test_a_resumed_run_repeats_every_bit(tmp_path):
    fun, x = quartic(30, 3, 3, False), stiefel.random_point(30, 3, seed=3)
    whole = stiefel.minimize(fun, x, rtol=1e-9)
    for cut in (3, 11, 24):
        path = tmp_path / f"{cut}.npz"
        stiefel.minimize(fun, x, rtol=1e-9, maxiter=cut, checkpoint=path)
        rest = stiefel.minimize(fun, x, rtol=1e-9, checkpoint=path, resume=True)
        assert rest.nfev == whole.nfev and np.array_equal(rest.x, whole.x)


class Watched:
    """Kernels that keep what a stride was asked last."""

    def __init__(self, kernels):
        self.kernels, self.compiled, self.asked = kernels, self, None

    def __getattr__(self, name):
        found = getattr(self.kernels.compiled, name, None)
        if found is None or not name.endswith("stride"):
            return getattr(self.kernels, name) if found is None else found

        def asked(*arguments):
            self.asked = arguments
            return found(*arguments)

        return asked


@pytest.mark.parametrize(
    ("shape", "name", "row"),
    [
        ((30, 3), "matrix_stride", 26),
        ((6, 6), "framed_stride", 12),
        ((8, 6), "framed_stride", 12),
        ((3, 3), "turns_stride", 14),
        ((60, 20), "wide_stride", 29),
    ],
)
def test_what_is_no_step_is_refused(monkeypatch, shape, name, row):
    watched, take = [], lbfgs.stride

    def spied(now):
        for part in ("kernels", "_kernels"):
            kinds = LandingRay, CompiledFramedRay, CompiledWideRay, CompiledRotationRay
            if type(now.aim.curve) in kinds and part in vars(now.aim.curve):
                watched.append(Watched(vars(now.aim.curve)[part]))
                setattr(now.aim.curve, part, watched[-1])
        return take(now)

    monkeypatch.setattr(lbfgs, "stride", spied)
    monkeypatch.setattr(strides, "faster", lambda *arrays: strides.compiled)
    fun, x = quartic(*shape, 0, False), stiefel.random_point(*shape, seed=0)
    stiefel.minimize(fun, x, method=stiefel.LBFGS(), maxiter=6)
    asked, stride = next(w.asked for w in watched[::-1] if w.asked), getattr(KERNELS, name)
    stride(*asked)
    with pytest.raises(TypeError):
        stride(*asked[:-1])
    for i, argument in enumerate(asked):
        if isinstance(argument, np.ndarray):
            wrong = np.zeros((argument.size + 1, 1), argument.dtype)
            with pytest.raises((ValueError, BufferError)):
                stride(*asked[:i], wrong, *asked[i + 1 :])
    with pytest.raises(IndexError):
        stride(*asked[:row], 99, *asked[row + 1 :])
