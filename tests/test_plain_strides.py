"""A step of real vectors in one call, beside the search and the arrival that take it apart."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stiefel
from stiefel import ComplexCircle, Oblique, Sphere
from stiefel.solvers import METHODS, lbfgs, plain_pairs, vector_scales
from test_strides import KERNELS, METHODS_TRIED, assert_same_run, run, with_and_without

pytestmark = pytest.mark.skipif(KERNELS is None, reason="there are no compiled kernels")


def uneven(x, seed, coupling=1.0):
    """A quadratic function of all numbers whose curvatures differ from vector to vector."""
    rng, like = np.random.default_rng(seed), x.view(float) if x.dtype == complex else x
    size = like.size
    A = rng.standard_normal((size, size))
    w = np.exp(rng.uniform(-1.0, 1.5, size))
    A = (
        np.sqrt(w)[:, None]
        * (coupling * (A + A.T) / math.sqrt(size) + 8.0 * np.eye(size))
        * np.sqrt(w)
    )
    b = rng.standard_normal(size)

    def fun(X):
        flat = np.ascontiguousarray(X).reshape(-1).view(float)
        G = A @ flat + 0.3 * flat**3 - b
        f = 0.5 * float(flat @ A @ flat) + 0.075 * float(np.sum(flat**4)) - float(b @ flat)
        return f, G.view(X.dtype).reshape(X.shape)

    return fun


KINDS = {
    "vector": lambda n, seed: (Sphere().random(n + 1, seed=seed), Sphere()),
    "column": lambda n, seed: (Sphere().random(n + 1, 1, seed=seed), Sphere()),
    "complex vector": lambda n, seed: (Sphere().random(n + 1, seed=seed, dtype=complex), Sphere()),
    "rows": lambda n, seed: (Sphere().random(n, 3, seed=seed), Sphere()),
    "stack of rows": lambda n, seed: (Sphere().random(2, n, 3, seed=seed), Sphere()),
    "stack of columns": lambda n, seed: (Sphere().random(n, 3, 1, seed=seed), Sphere()),
    "columns": lambda n, seed: (Oblique().random(3, n, seed=seed), Oblique()),
    "phases": lambda n, seed: (ComplexCircle().random(n, seed=seed), ComplexCircle()),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([2, 7, 20, 190, 280]), st.sampled_from(METHODS_TRIED))
def test_runs_have_the_same_bits(kind, seed, n, method):
    x, manifold = KINDS[kind](n, seed)
    fun = uneven(x, seed, (0.0, 1.0)[seed % 2])
    known = {"rtol": 1e-9, "manifold": manifold, "maxiter": 70}
    assert_same_run(*with_and_without(fun, x, method, **known)[:2])


@pytest.mark.parametrize("kind", KINDS)
def test_nearly_every_step_is_one_call(kind):
    x, manifold = KINDS[kind](40, 3)
    known = {"rtol": 1e-9, "manifold": manifold}
    (result, _), _, taken = with_and_without(uneven(x, 5), x, METHODS["auto"], **known)
    assert result.success and sum(taken) > 0.6 * result.nit


def test_scales_of_vectors_are_learned_and_changed_in_the_same_steps(monkeypatch):
    """Steps at which another D is due are taken apart: there are some, with the same bits."""
    changes, rescaled = [], plain_pairs.rescaled

    def noted(pairs, vectors):
        changes.append(vectors.looks)
        return rescaled(pairs, vectors)

    monkeypatch.setattr(plain_pairs, "rescaled", noted)
    # Long enough for a D that stops being better: `Due.uses`, and thinned looks.
    for seed in range(6):
        x, manifold = KINDS["columns"](30, seed)
        known = {"rtol": 1e-11, "manifold": manifold, "maxiter": 200}
        one, other, taken = with_and_without(uneven(x, seed, 2.0), x, METHODS["auto"], **known)
        assert_same_run(one, other)
        half = len(changes) // 2
        assert changes[:half] == changes[half:] and changes
        assert sum(taken) > len(taken) // 2
        changes.clear()


def test_a_kernel_and_the_rules_agree_on_when_a_scale_is_due():
    """`VectorScales.due` after a look, beside what `rules_of_due` makes the kernel say."""
    rng, D = np.random.default_rng(0), np.ones((1, 4))
    for _ in range(400):
        used = D if rng.random() < 0.5 else None
        score, looks = rng.uniform(-0.1, 0.3), int(rng.integers(1, 30))
        known = vector_scales.VectorScales(
            D[None], used, D, score, 0.0, looks, int(rng.integers(30))
        )
        found, change = rng.uniform(-0.5, 0.8), rng.uniform(0.0, 0.03)
        before, memory, least, most, uses, may = known.rules_of_due
        after = memory * before + (1.0 - memory) * found
        due = (uses and not after >= least) or (may and (change > most if uses else after >= least))
        new = vector_scales.learned_from(known, (D[None], found, change))
        assert bool(due) == new.due


@pytest.mark.parametrize("scale", [1e-11, 1e14])
def test_lengths_that_single_precision_loses_are_left_to_others(scale):
    """Blocks of 600 numbers are in single precision, where such squares are lost."""
    x = Sphere().random(600, seed=0)
    a = np.linspace(1.0, 3.0, 600)
    fun = lambda x: (0.5 * scale * float(x @ (a * x)), scale * a * x)
    ordinary = stiefel.LBFGS()
    known = {"rtol": 1e-5, "manifold": Sphere(), "maxiter": 30, "gtol": 1e-300}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stiefel.function.counted.ORDINARY", (1e300, 1e300))
        one, other, taken = with_and_without(fun, x, ordinary, **known)
    assert_same_run(one, other)
    small = [i for i, norm in enumerate(one[0].history["gradient_norm"][1:]) if norm < 1e-12]
    large = [i for i, norm in enumerate(one[0].history["gradient_norm"][1:]) if norm > 1e12]
    assert small or large
    assert not any(taken[i - 1] for i in small + large if 0 < i <= len(taken))


@pytest.mark.parametrize("kind", ["vector", "columns", "phases"])
def test_what_else_f_returns_and_what_is_not_finite(kind):
    x, manifold = KINDS[kind](20, 2)
    fun = uneven(x, 2)

    def hostile():
        count = 0

        def spoiling(X):
            nonlocal count
            count += 1
            f, G = fun(X)
            return (f, G) if count < 9 else (math.nan, G) if count < 11 else (f, math.nan * G)

        return spoiling

    def generous(X):
        return *fun(X), "more"

    assert_same_run(
        *with_and_without(generous, x, METHODS["auto"], rtol=1e-8, manifold=manifold)[:2]
    )
    with np.errstate(all="ignore"):
        known = {"rtol": 1e-9, "maxfun": 40, "manifold": manifold}
        one = run(hostile(), x, METHODS["auto"], **known)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(lbfgs, "stride", lambda *arguments: (None, None))
            assert_same_run(one, run(hostile(), x, METHODS["auto"], **known))


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_repeats_every_bit(tmp_path, kind):
    x, manifold = KINDS[kind](20, 4)
    fun, known = uneven(x, 4), {"rtol": 1e-9, "manifold": manifold}
    whole = stiefel.minimize(fun, x, **known)
    for cut in (3, 11, 24):
        path = tmp_path / f"{cut}.npz"
        stiefel.minimize(fun, x, **known, maxiter=cut, checkpoint=path)
        rest = stiefel.minimize(fun, x, **known, checkpoint=path, resume=True)
        assert rest.nfev == whole.nfev and np.array_equal(rest.x, whole.x)


@pytest.mark.parametrize(
    ("kind", "name"), [("vector", "vector_stride"), ("columns", "units_stride")]
)
def test_what_is_no_step_is_refused(kind, name):
    asked, original = [], getattr(KERNELS, name)

    class Watched:
        def __getattr__(self, attribute):
            found = getattr(KERNELS, attribute)
            if attribute != name:
                return found
            return lambda *arguments: (asked.append(arguments), found(*arguments))[1]

    def spied(now):
        now.aim.curve.fast = Watched()
        return take(now)

    take = lbfgs.stride
    x, manifold = KINDS[kind](20, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lbfgs, "stride", spied)
        stiefel.minimize(uneven(x, 1), x, manifold=manifold, maxiter=12)
    known = asked[-1]
    original(*known)
    with pytest.raises(TypeError):
        original(*known[:-1])
    for i, argument in enumerate(known):
        if isinstance(argument, np.ndarray):
            wrong = np.zeros((argument.size + 1, 1), argument.dtype)
            with pytest.raises((ValueError, BufferError)):
                original(*known[:i], wrong, *known[i + 1 :])
        elif isinstance(argument, tuple) and argument and not isinstance(argument[0], np.ndarray):
            with pytest.raises((TypeError, ValueError)):
                original(*known[:i], (*argument, 99), *known[i + 1 :])
