"""`check_manifold` passes the library's manifolds, and says what is wrong with others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import stiefel
from stiefel.geometry import Product
from stiefel.testing import LAWS, ManifoldError, check_manifold

GOOD = {
    "stiefel": (stiefel.Stiefel(), (7, 3), float),
    "complex": (stiefel.Stiefel(), (7, 3), complex),
    "grassmann": (stiefel.Grassmann(), (7, 3), float),
    "sphere": (stiefel.Sphere(), (6,), float),
    "rotations": (stiefel.SpecialOrthogonal(), (4, 4), float),
    "euclidean": (stiefel.Euclidean(), (5, 2), float),
    "oblique": (stiefel.Oblique(), (5, 4), float),
    "stack": (stiefel.Stiefel(), (2, 6, 2), float),
}


@pytest.mark.parametrize("name", GOOD)
def test_the_librarys_own_manifolds_pass(name):
    manifold, shape, dtype = GOOD[name]
    check_manifold(manifold, manifold.random(*shape, seed=1, dtype=dtype))


def test_a_product_passes():
    factors = (stiefel.Stiefel(), stiefel.Euclidean())
    X = tuple(m.random(5, 2, seed=i) for i, m in enumerate(factors))
    check_manifold(Product(factors), X)


@dataclass(frozen=True)
class TransposedLift(stiefel.Stiefel):
    """As Algorithms 1 and 2 print it."""

    def lift(self, X, Y):
        V = 2.0 * Y @ np.linalg.inv(np.eye(X.shape[1]) + Y.T @ X)
        return self.project_direction(X, V)


@dataclass(frozen=True)
class NoRotation(stiefel.Stiefel):
    """The inner product without its second term."""

    def inner(self, X, V, W):
        return float(np.vdot(V, W))


@dataclass(frozen=True)
class Missing(stiefel.Stiefel):
    lower_index = None


@pytest.mark.parametrize(
    ("wrong", "law"),
    [(TransposedLift(), "lift undoes"), (NoRotation(), "inner is"), (Missing(), "lower_index")],
)
def test_what_is_wrong_is_named(wrong, law):
    with pytest.raises(ManifoldError, match=law):
        check_manifold(wrong, stiefel.random_point(6, 3, seed=0))


def test_every_law_can_be_broken():
    class Nothing:
        def __getattr__(self, name):
            if name in ("project_direction", "scale", "norm"):
                return lambda *arguments: 1.0 if name == "norm" else arguments[-1]
            raise AttributeError(name)

    with pytest.raises(ManifoldError, match=f"breaks {len(LAWS)} law"):
        check_manifold(Nothing(), np.eye(4, 2))
