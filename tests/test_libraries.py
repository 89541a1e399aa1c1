"""One code path: every geometry function in every array library and precision.

The laws hold in float64 for each library; in both precisions each function agrees with NumPy's
float64, to the precision of the dtype, so that what the laws say of one they say of all.
"""

import numpy as np
import pytest

from cases import (
    GEOMETRIES,
    JAX,
    NUMPY,
    STRICT,
    TORCH,
    Case,
    ProductCase,
    gap,
    leafwise,
    leaves,
    to_numpy,
)
from laws import LAWS
from stiefel import Euclidean, Grassmann, Sphere, Stiefel

REPRESENTATIVE = {
    TORCH: ("stiefel-complex", "stack", "grassmann", "generalised-complex", "product"),
    STRICT: ("stiefel-complex", "stack", "grassmann", "generalised-complex", "product"),
    JAX: ("stiefel-complex",),  # compiling is what JAX costs; the others are marked slow
}
COMPILED = ("generalised-complex",)
COMPILED_SLOWLY = ("grassmann", "stack-complex", "product", "product-of-quotients")

MORE = (
    Case("generalised-grassmann-complex", Grassmann, (9, 3), complex, with_B=True),
    Case("generalised-stack-complex", Stiefel, (2, 7, 2), complex, with_B=True),
    Case("grassmann-stack-complex", Grassmann, (2, 7, 2), complex),
    ProductCase(
        "product-of-quotients",
        (
            Case("subspace", Grassmann, (8, 2)),
            Case("weighted", Grassmann, (7, 2), complex, with_B=True),
            Case("stack", Stiefel, (2, 6, 2), complex),
            Case("direction", Sphere, (5,)),
            Case("free", Euclidean, (4,), complex),
        ),
    ),
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("library", [TORCH, JAX, STRICT], ids=str)
def test_laws_in_every_library(law, library):
    for case in GEOMETRIES:
        drifting = law.__name__ == "momentum_does_not_drift" and library is STRICT
        if case.name in REPRESENTATIVE[library] and not drifting:  # it checks every call, slowly
            law(case.geometry(library), case, np.random.default_rng(1))


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("case", [c for c in GEOMETRIES if c.name in COMPILED_SLOWLY], ids=str)
def test_laws_of_trees_and_stacks_in_jax(law, case):
    law(case.geometry(JAX), case, np.random.default_rng(1))


SINGLE = {np.dtype(float): np.float32, np.dtype(complex): np.complex64}


def in_single(tree):
    return leafwise(lambda x: x.astype(SINGLE[x.dtype]), tree)


def in_double(tree):
    return leafwise(lambda x: x.astype(np.result_type(x.dtype, float)), tree)


def everything(g, X, Y, V, W, G):
    """Name and result of every function of the protocol."""
    ray = g.ray(X, W)
    yield "project", g.project(X, G)
    yield "project_direction", g.project_direction(X, G)
    yield "inner", g.inner(X, V, W)
    yield "inner_tangent", g.inner_tangent(X, V, W)
    yield "norm", g.norm(X, W)
    yield "raise_index", g.raise_index(X, W)
    yield "lower_index", g.lower_index(X, W)
    yield "ray", ray(-0.3)
    yield "squared_norm", float(ray.squared_norm)
    yield "lift", g.lift(X, Y)
    yield "extrapolate", g.extrapolate(X, Y, 1.7)
    yield "geodesic", g.geodesic(X, W, 0.4)
    yield "exponential", g.exponential(X, W, 0.4)
    yield "transport", g.transport(X, Y, W)
    yield "combine", g.combine(0.3, V, -2.0, W)
    yield "nearest", g.nearest(leafwise(lambda x, w: x + 0.1 * w, X, G))
    yield "restore", g.restore(leafwise(lambda x, w: x + 1e-3 * w, X, G))


def combinations():
    for library in (NUMPY, TORCH, STRICT, JAX):
        for case in GEOMETRIES + MORE:
            for precision in ("double", "single"):
                if library is NUMPY and precision == "double":
                    continue
                if library is JAX and case.name not in COMPILED + COMPILED_SLOWLY:
                    continue
                slow = library is JAX and case.name in COMPILED_SLOWLY
                marks = [pytest.mark.slow] if slow else []
                name = f"{library}-{case}-{precision}"
                yield pytest.param(case, library, precision, id=name, marks=marks)


@pytest.mark.parametrize(("case", "library", "precision"), tuple(combinations()))
def test_every_function_agrees_with_numpy_in_double(case, library, precision):
    rng = np.random.default_rng(4)
    X = case.point(rng)
    data = [
        X,
        case.near(rng, X, 0.7),
        case.cotangent(rng, X),
        case.cotangent(rng, X),
        case.ambient(rng),
    ]
    if precision == "single":
        data = [in_single(d) for d in data]
    wanted = everything(case.geometry(NUMPY), *map(in_double, data))
    eps = float(np.finfo(leaves(data[0])[0].dtype).eps)
    for (name, expected), (_, result) in zip(
        wanted, everything(case.geometry(library), *data), strict=True
    ):
        if isinstance(expected, float):
            assert isinstance(result, float), name
            assert result == pytest.approx(expected, rel=1e3 * eps, abs=1e2 * eps), name
            continue
        assert [r.dtype for r in leaves(result)] == [d.dtype for d in leaves(data[0])], name
        assert gap(leafwise(np.asarray, result), expected) <= 1e3 * eps, name
    g = case.geometry(library)
    restored = g.restore(data[0])
    assert g.defect(restored) <= g.allowed_defect(restored)


@pytest.mark.parametrize("library", [TORCH, STRICT, JAX], ids=str)
def test_results_stay_in_their_library(library):
    X = Stiefel().random(6, 2, seed=0, like=library.asarray(np.zeros(1)))
    M = Stiefel()
    W = M.project(X, library.asarray(np.ones((6, 2))))
    for array in (X, W, M.ray(X, W)(0.1), M.lift(X, X)):
        assert type(array) is type(library.asarray(np.zeros(1)))
        assert to_numpy(array).dtype == np.float64


@pytest.mark.parametrize("library", [NUMPY, TORCH, STRICT, JAX], ids=str)
@pytest.mark.parametrize("dtype", [float, complex])
def test_grassmann_distance_is_that_of_the_principal_angles(library, dtype):
    import scipy.linalg

    case = Case("", Grassmann, (9, 3), dtype)
    rng = np.random.default_rng(2)
    X = case.point(rng)
    for distance in (1e-7, 0.4, 1.3):
        Y = case.near(rng, X, distance)
        angles = scipy.linalg.subspace_angles(X, Y)
        measured = case.geometry(library).distance(X, Y)
        assert measured == pytest.approx(np.linalg.norm(angles), rel=1e-7)
        assert measured == pytest.approx(distance, rel=1e-7)  # horizontal geodesics are shortest
