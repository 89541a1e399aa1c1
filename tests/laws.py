"""The laws of a geometry, as functions of (geometry, case, random generator) that assert.

They say what must hold, not how it is computed; the mutants of `mutants.py` must each break one.
Everything is double precision: `TIGHT` is rounding with room for small solves.
"""

import math

import numpy as np

import oracles
from cases import gap, leafwise, leaves, size

TIGHT = 2e-12
TAUS = (-0.7, 0.0, 0.4, 1.0, 1.8)


def close(a, b, tolerance=TIGHT, what=""):
    if not isinstance(a, tuple) and np.ndim(a) == 0:
        error = abs(a - b) / max(1.0, abs(b))
    else:
        assert [x.shape for x in leaves(a)] == [y.shape for y in leaves(b)], what
        error = gap(a, b)
    assert error <= tolerance, f"{what}: {error:.1e} > {tolerance:.0e}"


def combine(a, V, b, W):
    return leafwise(lambda v, w: a * v + b * w, V, W)


# -- cotangents and tangents ------------------------------------------------------------------


def projection_is_idempotent(g, case, rng):
    X = case.point(rng)
    W = g.project_direction(X, case.ambient(rng))
    close(g.project_direction(X, W), W, what="project_direction twice")
    G = g.project(X, case.ambient(rng))
    close(g.project(X, case.flat(G)), G, what="project twice")


def projection_is_self_adjoint(g, case, rng):
    X, V, W = case.point(rng), case.ambient(rng), case.ambient(rng)
    left = case.pair(g.project_direction(X, V), W)
    close(left, case.pair(V, g.project_direction(X, W)), what="⟨PV, W⟩ = ⟨V, PW⟩")


def projection_acts_as_the_gradient(g, case, rng):
    """⟨project(G), T⟩ = Re⟨G, T⟩ for every tangent T, drawn by the oracle."""
    X, G = case.point(rng), case.ambient(rng)
    T = case.cotangent(rng, X)  # with these coordinates tangents satisfy the same equation
    direct = sum(float(np.real(np.vdot(a, b))) for a, b in zip(leaves(G), leaves(T), strict=True))
    close(case.pair(g.project(X, G), T), direct, what="what the gradient does to a tangent")


def projection_leaves_cotangents(g, case, rng):
    X = case.point(rng)
    W = case.cotangent(rng, X)
    close(g.project_direction(X, W), W, what="project_direction of a cotangent")
    close(g.project(X, case.flat(W)), W, what="project of a cotangent")


def raising_inverts_lowering(g, case, rng):
    X = case.point(rng)
    W = case.cotangent(rng, X)
    T = g.raise_index(X, W)
    close(g.lower_index(X, T), W, what="lower(raise(W))")
    close(g.raise_index(X, g.lower_index(X, W)), W, what="raise(lower(T))")
    close(g.project_direction(X, T), T, what="a raised cotangent is tangent")


def raising_is_an_isometry(g, case, rng):
    """g(φV, φW) = g*(V, W) = ⟨V, φW⟩."""
    X = case.point(rng)
    V, W = case.cotangent(rng, X), case.cotangent(rng, X)
    RV, RW = g.raise_index(X, V), g.raise_index(X, W)
    inner = g.inner(X, V, W)
    close(g.inner_tangent(X, RV, RW), inner, what="g of raised vectors")
    close(case.pair(V, RW), inner, what="pairing with a raised vector")


def inner_is_an_inner_product(g, case, rng):
    X = case.point(rng)
    U, V, W = (case.cotangent(rng, X) for _ in range(3))
    close(g.inner(X, V, W), g.inner(X, W, V), what="symmetry")
    bilinear = 2.0 * g.inner(X, U, W) - 3.0 * g.inner(X, V, W)
    close(g.inner(X, combine(2.0, U, -3.0, V), W), bilinear, what="linearity")
    assert g.inner(X, W, W) > 0
    close(g.norm(X, W) ** 2, g.inner(X, W, W), what="norm")
    close(g.norm(X, W), case.norm(X, W), what="the oracle's norm")
    close(g.ray(X, W).squared_norm, g.inner(X, W, W), what="the ray's norm")


def inner_is_the_directional_derivative(g, case, rng):
    """d/dt f(R(X, φ(tW))) = ⟨∇f(X), W⟩_g*, for a linear f (on a quotient ½ Re Tr XᴴAX)."""
    X = case.point(rng)
    W = case.cotangent(rng, X)
    if case.quotient:
        A = oracles.random_hermitian(rng, X.shape[-2], X.dtype)
        gradient = A @ X
        value = lambda Y: 0.5 * float(np.real(np.vdot(Y, A @ Y)))
    else:
        gradient = case.ambient(rng)
        value = lambda Y: sum(
            float(np.real(np.vdot(c, y))) for c, y in zip(leaves(gradient), leaves(Y), strict=True)
        )
    measured = oracles.directional_derivative(value, g.ray(X, W))
    close(float(g.inner(X, g.project(X, gradient), W)), measured, 1e-8, "directional derivative")


# -- moving -------------------------------------------------------------------------------------


def ray_starts_at_the_point(g, case, rng):
    X = case.point(rng)
    W = case.cotangent(rng, X)
    close(g.ray(X, W)(0.0), X, what="R(X, 0)")
    close(g.geodesic(X, W, 0.0), X, what="exp(0)")


def order_of(error, t=0.04):
    """The exponent of an error that vanishes with t; infinity if it is beneath rounding."""
    coarse, fine = error(t), error(t / 2)
    return math.inf if fine < 1e-13 else math.log2(coarse / fine)


def ray_is_a_retraction(g, case, rng):
    """Taylor slope 2 against X + tφ(W)."""
    X = case.point(rng)
    W = case.cotangent(rng, X)
    T, ray = g.raise_index(X, W), g.ray(X, W)
    order = order_of(lambda t: gap(ray(t), combine(1.0, X, t, T)))
    assert order > 1.9, f"order {order:.2f}; expected 2"


def ray_agrees_with_the_geodesic(g, case, rng):
    """Taylor slope 3 against the exact geodesic."""
    X = case.point(rng)
    W = case.cotangent(rng, X)
    ray = g.ray(X, W)
    order = order_of(lambda t: gap(ray(t), g.geodesic(X, W, t)))
    assert order > 2.9, f"order {order:.2f}; expected 3"


def rays_and_geodesics_stay(g, case, rng):
    """Points of curves are feasible to rounding, wherever they are; tangents exponentiate too."""
    X = case.point(rng)
    W = case.cotangent(rng, X)
    Y = case.near(rng, X, 0.8)
    ray = g.ray(X, W)
    points = [ray(t) for t in (-3.0, 0.5, 100.0)] + [g.geodesic(X, W, t) for t in (0.5, 3.0)]
    points += [g.extrapolate(X, Y, tau) for tau in TAUS]
    worst = max(g.defect(P) for P in points)
    assert worst <= 2e-13, f"defect {worst:.1e}"
    T = g.raise_index(X, W)
    close(g.exponential(X, T, 0.7), g.geodesic(X, W, 0.7), what="exponential of the raised vector")


def geodesics_have_constant_speed(g, case, rng):
    """g(Ẋ, Ẋ) = ‖W‖²_g* all along, Ẋ by the five-point formula."""
    X = case.point(rng)
    W = case.cotangent(rng, X, 1.3)
    h = 2e-3
    for t in (0.0, 0.6, 1.5):
        P = [g.geodesic(X, W, t + j * h) for j in (-2, -1, 0, 1, 2)]
        velocity = leafwise(lambda a, b, _, c, d: (a - 8 * b + 8 * c - d) / (12 * h), *P)
        close(g.inner_tangent(P[2], velocity, velocity), 1.3**2, 1e-8, f"squared speed at {t}")


def geodesics_are_groups(g, case, rng):
    """Going t and then s along the same geodesic is going t + s."""
    X = case.point(rng)
    W = case.cotangent(rng, X)
    h = 2e-3
    P = [g.geodesic(X, W, 0.5 + j * h) for j in (-2, -1, 0, 1, 2)]
    velocity = leafwise(lambda a, b, _, c, d: (a - 8 * b + 8 * c - d) / (12 * h), *P)
    close(g.exponential(P[2], velocity, 0.8), g.geodesic(X, W, 1.3), 1e-8, "geodesic, continued")


def lift_inverts_ray(g, case, rng):
    X = case.point(rng)
    W = case.cotangent(rng, X, 1.2)
    close(g.lift(X, g.ray(X, W)(1.0)), W, what="lift of a point of the ray")


def ray_inverts_lift(g, case, rng):
    X = case.point(rng)
    Y = case.near(rng, X, 0.9)
    V = g.lift(X, Y)
    close(g.project_direction(X, V), V, what="a lift is a cotangent at X")
    error = case.same(g.ray(X, V)(1.0), Y)
    assert error <= TIGHT, f"R(X, lift(X, Y)) is not Y: {error:.1e}"


def extrapolation_follows_the_ray(g, case, rng):
    X = case.point(rng)
    Y = case.near(rng, X, 0.9)
    ray = g.ray(X, g.lift(X, Y))
    for tau in TAUS:
        close(g.extrapolate(X, Y, tau), ray(tau), what=f"extrapolate at {tau}")
    assert case.same(g.extrapolate(X, Y, 1.0), Y) <= TIGHT
    close(g.extrapolate(X, Y, 0.0), X, what="extrapolate at 0")


def transport_gives_cotangents(g, case, rng):
    X = case.point(rng)
    W, Y = case.cotangent(rng, X), case.near(rng, X, 0.5)
    V = g.transport(X, Y, W)
    close(g.project_direction(Y, V), V, what="a transported cotangent is one at Y")
    close(g.transport(X, X, W), W, what="transport to the same point")


# -- symmetries ---------------------------------------------------------------------------------


def normal_parts_are_invisible(g, case, rng):
    """W and W + XS, S Hermitian, stand for the same cotangent."""
    X = case.point(rng)
    W, N = case.cotangent(rng, X), case.normal(rng, X)
    shifted = combine(1.0, W, 1.0, N)
    close(g.project_direction(X, shifted), W, what="projection of W + XS")
    close(g.project(X, case.flat(shifted)), W, what="projection of G + BXS")
    if not case.quotient:  # where a ray of W + XA goes is nobody's business
        close(g.ray(X, shifted)(0.8), g.ray(X, W)(0.8), what="ray of W + XS")
        close(g.geodesic(X, shifted, 0.8), g.geodesic(X, W, 0.8), what="geodesic of W + XS")


def everything_is_equivariant(g, case, rng):
    """Turning the space turns every result: X → QX with QᴴBQ = B."""
    X = case.point(rng)
    V, W = case.cotangent(rng, X), case.cotangent(rng, X)
    Y, G = case.near(rng, X, 0.7), case.ambient(rng)
    Q, Q_dual = case.isometry(rng)
    turn = lambda Z: case.act(Q, Z)
    QX, QY, QV, QW = map(turn, (X, Y, V, W))
    close(g.project(QX, case.act(Q_dual, G)), turn(g.project(X, G)), what="project")
    close(g.inner(QX, QV, QW), g.inner(X, V, W), what="inner")
    close(g.raise_index(QX, QW), turn(g.raise_index(X, W)), what="raise_index")
    close(g.ray(QX, QW)(0.9), turn(g.ray(X, W)(0.9)), what="ray")
    close(g.geodesic(QX, QW, 0.9), turn(g.geodesic(X, W, 0.9)), what="geodesic")
    close(g.lift(QX, QY), turn(g.lift(X, Y)), what="lift")
    close(g.extrapolate(QX, QY, 1.6), turn(g.extrapolate(X, Y, 1.6)), what="extrapolate")


# -- feasibility --------------------------------------------------------------------------------


def defects_are_not_amplified(g, case, rng):
    """A point that is off by δ leads to points that are off by O(δ), ever smaller with momentum."""
    if not case.constrained:
        return
    X0, delta = case.point(rng), 1e-5
    X = combine(1.0, X0, delta / size(X0), case.ambient(rng))
    Y = combine(1.0, case.near(rng, X0, 0.5), delta / size(X0), case.ambient(rng))
    limit = 0.1 * (g.defect(X) + g.defect(Y))
    W = g.project_direction(X, case.cotangent(rng, X0, 1.0))
    assert g.defect(g.ray(X, W)(1.0)) <= limit, "ray"
    assert g.defect(g.extrapolate(X, Y, 1.9)) <= limit, "extrapolate"


def momentum_does_not_drift(g, case, rng):
    """A hundred extrapolations in a row, each from the last two points, with small kicks."""
    if not case.constrained:
        return
    X = case.point(rng)
    Y = g.ray(X, case.cotangent(rng, X, 0.05))(1.0)
    for _ in range(100):
        Z = g.extrapolate(X, Y, 1.9)
        kick = g.project_direction(Z, leafwise(lambda z: 0.01 * z, case.ambient(rng)))
        X, Y = Y, g.ray(Z, kick)(1.0)
    assert g.defect(Y) <= 1e-13, f"defect {g.defect(Y):.1e}"


def restoration_restores(g, case, rng):
    X = case.point(rng)
    assert g.defect(X) <= 1e-13
    near = combine(1.0, X, 1e-5, case.ambient(rng))
    assert g.defect(g.restore(near)) <= 1e-13
    P = g.nearest(near)
    assert g.defect(P) <= 1e-13
    close(g.nearest(X), X, what="nearest of a point")


def random_points_are_points(g, case, rng):
    if not hasattr(case, "shape"):
        return
    X = g.random(*case.shape, seed=3, like=case.point(rng))
    assert X.shape == tuple(case.shape) and X.dtype == np.dtype(case.dtype)
    assert g.defect(X) <= 1e-13
    assert np.array_equal(X, g.random(*case.shape, seed=3, like=X)), "same seed, same bits"


# -- agreement with the n×n transcriptions ------------------------------------------------------


def agrees_with_the_oracles(g, case, rng):
    if not hasattr(case, "shape") or not case.constrained:
        return
    B = case.B
    X = case.point(rng)
    V, W, G = case.cotangent(rng, X), case.cotangent(rng, X), case.ambient(rng)
    Y = case.near(rng, X, 0.9)
    flat, sharp = case.flat, case.sharp
    part = oracles.horizontal if case.quotient else oracles.project
    lift = oracles.grassmann_lift if case.quotient else oracles.lift
    each = lambda f, *arrays: case.each(lambda *m: f(*m, B=B), *arrays)
    close(g.project(X, G), sharp(each(part, X, G)), what="project")
    pairs = zip(*map(case.matrices, (X, flat(V), flat(W))), strict=True)
    close(g.inner(X, V, W), sum(oracles.inner_dual(*m, B=B) for m in pairs), what="inner")
    pairs = zip(*map(case.matrices, (X, V, W)), strict=True)
    expected = sum(oracles.inner_tangent(*m, B=B) for m in pairs)
    close(g.inner_tangent(X, V, W), expected, what="inner_tangent")
    close(g.raise_index(X, W), each(oracles.raise_index, X, flat(W)), what="raise_index")
    close(g.lower_index(X, W), sharp(each(oracles.lower_index, X, W)), what="lower_index")
    close(g.ray(X, W)(0.8), each(oracles.cayley, X, flat(0.8 * W)), what="ray")
    close(g.geodesic(X, W, 0.8), each(oracles.geodesic_dual, X, flat(0.8 * W)), what="geodesic")
    close(g.lift(X, Y), sharp(each(lift, X, Y)), what="lift")
    for tau in TAUS:
        expected = case.each(lambda x, y: oracles.cayley(x, tau * lift(x, y, B=B), B=B), X, Y)
        close(g.extrapolate(X, Y, tau), expected, what=f"extrapolate at {tau}")
    defects = [oracles.defect(m, B=B) for m in case.matrices(0.9 * X)]
    close(g.defect(0.9 * X), max(defects), what="defect")
    close(g.nearest(G), each(oracles.polar_factor, G), what="nearest") if _polar(case) else None


def _polar(case):
    from stiefel import SpecialOrthogonal

    return case.manifold is not SpecialOrthogonal


def lemma_bounds_the_lift(g, case, rng):
    """Lemma 4.2: κ(I + XᴴBY) ≤ 2(3 − 2d²)^{-1/2} at distance d < √(3/2)."""
    if not hasattr(case, "shape") or not case.constrained:
        return
    for d in (0.3, 0.9, 1.2):
        X = case.point(rng)
        Y = g.geodesic(X, case.cotangent(rng, X), d)
        for x, y in zip(case.matrices(X), case.matrices(Y), strict=True):
            By = y if case.B is None else case.B @ y
            m = np.eye(x.shape[1]) + x.conj().T @ By
            assert np.linalg.cond(m) <= oracles.lemma_bound(d) * (1 + 1e-12)


def dimension_counts_tangents(g, case, rng):
    """The rank of the projection, as a real linear map."""
    X = case.point(rng)
    if not hasattr(case, "shape"):
        parts = zip(case.parts, X, strict=True)
        assert g.dimension(X) == sum(p.geometry().dimension(x) for p, x in parts)
        return
    units = np.eye(X.size).reshape(X.size, *X.shape).astype(X.dtype)
    units = list(units) + ([1j * u for u in units] if case.dtype is complex else [])
    images = [oracles.real_coordinates(g.project_direction(X, u)) for u in units]
    assert g.dimension(X) == np.linalg.matrix_rank(np.array(images), tol=1e-8)


LAWS = tuple(
    law
    for name, law in list(globals().items())
    if callable(law)
    and getattr(law, "__module__", None) == __name__
    and law.__code__.co_varnames[: law.__code__.co_argcount] == ("g", "case", "rng")
)
