"""Kernels of unit vectors with plain pairs: whether they know of each other, YᵀDY, landings."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stiefel import Oblique, Stiefel
from stiefel.backends.arrays import kernels_for
from stiefel.geometry.ray import Lowered, PairPlace
from stiefel.geometry.sphere import Sphere
from stiefel.solvers import plain_pairs, stack_pairs
from stiefel.solvers.memory import Pairs
from stiefel.solvers.plain_pairs import parted

KERNELS = kernels_for(np.zeros(1)).compiled
pytestmark = pytest.mark.skipif(KERNELS is None, reason="there are no compiled kernels")

LEAST = stack_pairs.LEAST_MOVED


def block_of(rng, shape, coupling, dtype):
    """Pairs of a quadratic f, each vector with its own Hessian, and all with each other."""
    count, n = shape
    own = [np.diag(d) for d in rng.uniform(1.0, 3.0, (count, n))]
    S = rng.standard_normal((11, count, n))
    Y = np.stack([[H @ s for H, s in zip(own, step, strict=True)] for step in S])
    Y += coupling * S.mean(1, keepdims=True)
    return np.concatenate([S, Y]).reshape(22, -1).astype(dtype)


def typical(block, rows, n):
    """The mean of the medians, step by step and vector by vector."""
    S, Y = block.astype(float).reshape(2, 11, -1, n)
    medians = []
    for j, i in itertools.pairwise(rows):
        sizes = np.sqrt(np.abs((S[i] * Y[i]).sum(1)) * np.abs((S[j] * Y[j]).sum(1)))
        cross = np.abs((S[i] * Y[j]).sum(1) - (S[j] * Y[i]).sum(1))
        moved = sizes > LEAST * sizes.max()
        medians.append(np.median(np.fmin(cross[moved] / sizes[moved], 1.0)) if any(moved) else 1.0)
    return np.mean(medians)


@pytest.mark.parametrize("dtype", ["d", "f"])
@pytest.mark.parametrize("shape", [(4, 3), (7, 1), (60, 4), (300, 12)])
@pytest.mark.parametrize("coupling", [0.0, 0.05, 5.0])
@pytest.mark.parametrize("like", ["usual", "one still", "all still", "NaN", "huge"])
def test_a_look_is_the_formula(dtype, shape, coupling, like):
    rng, rows = np.random.default_rng(0), (3, 0, 9, 10, 5)
    block = block_of(rng, shape, coupling, dtype)
    if like == "one still":
        block[9, : shape[1]] = 0.0
    elif like == "all still":
        block[:11] = 0.0
    elif like == "NaN":
        block[14, 0] = np.nan
    elif like == "huge":
        block[9] = np.inf
    with np.errstate(all="ignore"):
        expected = typical(block, rows, shape[1])
    found = KERNELS.vectors_apart(block, rows, shape[1], LEAST, np.inf)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    early = KERNELS.vectors_apart(block, rows, shape[1], LEAST, 0.03)
    assert early == found if expected < 0.03 else 0.03 <= early <= found


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(("coupling", "apart"), [(0.0, True), (5.0, False)])
def test_vectors_part_with_and_without_kernels(compiled, coupling, apart, monkeypatch):
    if not compiled:
        monkeypatch.setattr(plain_pairs, "_compiled_for", lambda numbers: None)
    x = Sphere().random(9, 3, seed=0)
    block = block_of(np.random.default_rng(1), x.shape, coupling, "d")
    pairs = Pairs(block, None, np.eye(11), np.ones(11), tuple(range(10)), np.eye(11))
    found = parted(Sphere(), pairs, x)
    assert (found is not None) is apart


def test_what_are_no_pairs_of_vectors_is_refused():
    block = np.ones((8, 12))
    KERNELS.vectors_apart(block, (0, 1), 3, LEAST, 0.03)
    for wrong in (
        (block, (0,), 3), (block, (0, 4), 3), (block, (0, -1), 3), (block, (), 3), (block, [0], 3),
        (block, (0, 1), 5), (block, (0, 1), 0), (block, (0, 1), -3), (block, (0, 1), 24),
        (block[:, ::2], (0, 1), 3), ("block", (0, 1), 3),
    ):  # fmt: skip
        with pytest.raises((ValueError, TypeError, BufferError)):
            KERNELS.vectors_apart(*wrong, LEAST, 0.03)
    with pytest.raises(TypeError):
        KERNELS.vectors_apart(block, (0, 1), 3)


@pytest.mark.parametrize("dtype", ["d", "f"])
def test_what_is_no_block_of_squares_is_refused(dtype):
    square, block = KERNELS.plain_squares, np.ones((6, 4), dtype)
    good = [block, (0, 2), np.ones(4), (1e-12, 1e12, 3e-39), np.ones((3, 3)), np.zeros((3, 3))]
    square(*good)
    np.testing.assert_array_equal(good[5], [[4, 0, 4], [0, 0, 0], [4, 0, 4]])
    read_only = np.zeros((3, 3))
    read_only.flags.writeable = False
    for i, wrong in (
        (0, block[:, ::2]), (1, ()), (1, (0, 3)), (1, (-1,)), (1, [0]),
        (2, np.ones(3)), (2, np.ones(4, "f")), (3, (1.0, 2.0)), (4, np.ones((2, 3))),
        (5, np.ones((2, 3))), (5, read_only), (5, np.zeros((3, 3), "f")),
    ):  # fmt: skip
        with pytest.raises((ValueError, TypeError, BufferError)):
            square(*good[:i], wrong, *good[i + 1 :])


def landed(manifold, shape, dtype, with_look):
    """A curve that keeps pairs, where it starts and where it ends, and the block."""
    rng, X = np.random.default_rng(4), manifold.random(*shape, seed=3)
    G, U = manifold.gradient(X, rng.standard_normal(shape)).G, rng.standard_normal(shape)
    block, D = rng.standard_normal((6, X.size)).astype(dtype), rng.uniform(0.5, 2.0, X.size)
    look = (None, None, 1e-8, 10.0, 1e100) if with_look else None
    curve = manifold.aim_along(X, G, manifold.project(X, U), PairPlace(block, (0, 2), D, look))[1]
    return curve, Lowered(G, 0.0), curve(0.3), rng.standard_normal(shape), block


@pytest.mark.parametrize("with_look", [True, False])
@pytest.mark.parametrize("dtype", ["d", "f"])
@pytest.mark.parametrize(
    ("manifold", "shape"),
    [(Sphere(), (60, 4)), (Sphere(), (7, 9)), (Oblique(), (5, 300)), (Stiefel(), (9, 4, 1))],
)
def test_a_landing_is_a_gradient_and_a_pair(manifold, shape, dtype, with_look):
    """To the last bit; also where the gradient at the start is another array."""
    curve, start, Y, E, block = landed(manifold, shape, dtype, with_look)
    (G, square, *others), pair = curve.landing(0.3, start, Y, E)
    kept = block.copy()
    lowered = manifold.gradient(Y, E)
    again = curve.secant_pair(0.3, start, lowered)
    np.testing.assert_array_equal(G, lowered.G)
    np.testing.assert_array_equal(kept, block)
    np.testing.assert_array_equal(pair.kept, again.kept)
    assert (square, *others) == tuple(lowered[1:])
    assert (pair.square, pair.slope) == (again.square, again.slope)
    assert (pair.vectors is not None) is with_look
    for one, other in zip(pair.vectors or (), again.vectors or (), strict=True):
        np.testing.assert_array_equal(one, other)
    lowered_too, bare = curve.landing(0.3, Lowered(start.G.copy(), 0.0), Y, E)
    np.testing.assert_array_equal(lowered_too[0], G)
    np.testing.assert_allclose(bare.y.ravel(), block[5], rtol=1e-5, atol=1e-5)


def test_where_nobody_keeps_pairs_there_is_no_landing():
    X = Sphere().random(5, 3, seed=0)
    G = Sphere().project(X, np.ones((5, 3)))
    assert Sphere().aim_along(X, G, -G)[1].landing is None


def test_what_is_no_landing_is_refused():
    curve, start, Y, E, _ = landed(Sphere(), (6, 3), "d", True)
    curve.landing(0.3, start, Y, E)
    for point, gradient in ((Y[:5], E), (Y, E[:5]), (Y, E.astype("f")), (Y.astype("f"), E)):
        with pytest.raises((ValueError, TypeError, BufferError)):
            curve.landing(0.3, start, point, gradient)
