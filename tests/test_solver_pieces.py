"""The decisions inside the solvers, each against an independent transcription of its rule."""

import itertools
import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import optimize

import stiefel
from runs import problem_of, states
from stiefel import (
    LBFGS,
    AcceleratedGradient,
    ConjugateGradient,
    Euclidean,
    Status,
    Stiefel,
    TrustRegion,
)
from stiefel.objectives import Brockett

# All that is not public.
from stiefel.solvers import METHODS
from stiefel.solvers.noise import Watch
from stiefel.solvers.problem import Problem
from stiefel.solvers.steihaug import truncated_cg
from stiefel.solvers.trust_region import hessian_of

AUTO = replace(METHODS["auto"], rows=None)  # the metric and the pairs by themselves


def with_more(problem: Problem, **more: Any) -> Problem:
    """The same problem with a preconditioner or a Hessian."""
    return Problem(problem.geometry, problem.objective, noise=problem.noise, **more)


def follow(solver: Any, problem: Problem, x: Any, count: int) -> list[Any]:
    taken = [solver.init(problem, x)]
    while len(taken) < count:
        taken.append(solver.step(problem, taken[-1]))
    return taken


# -- Steihaug's truncated conjugate gradients -------------------------------------------------


def steihaug(G, H, P, radius, tolerance):
    """Nocedal and Wright, Algorithm 7.2, with the preconditioner P; every number from vectors.

    Returns the step, whether it ended on the boundary, and the directions that H was applied to.
    """
    inverse = np.linalg.inv(P)
    length = lambda p: math.sqrt(p @ inverse @ p)
    p, r = np.zeros_like(G), G.copy()
    d, asked = -P @ r, []
    for _ in range(5 * len(G)):
        asked.append(d)
        curvature = d @ H @ d
        alpha = (r @ P @ r) / curvature if curvature else math.inf
        if curvature <= 0 or length(p + alpha * d) >= radius:
            quadratic = [d @ inverse @ d, 2 * (p @ inverse @ d), p @ inverse @ p - radius**2]
            return p + max(np.roots(quadratic).real) * d, True, asked
        p, new = p + alpha * d, r + alpha * (H @ d)
        if np.linalg.norm(new) <= tolerance:
            break
        beta = (new @ P @ new) / (r @ P @ r)
        d, r = -P @ new + beta * d, new
    return p, False, asked


def random_model(seed, n=9):
    """(G, H, P): definite for even seeds, indefinite for odd ones."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    values = np.geomspace(1.0, 30.0, n)
    values[0] *= -1.0 if seed % 2 else 1.0
    root = np.eye(n) + 0.2 * rng.standard_normal((n, n))
    return rng.standard_normal(n), (Q * values) @ Q.T, root @ root.T


@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("radius", [0.05, 0.3, 1.0, 3.0, 1e3])
@pytest.mark.parametrize("seed", range(8))
def test_truncated_cg_is_steihaugs(seed, radius, preconditioned):
    G, H, P = random_model(seed)
    P = P if preconditioned else np.eye(len(G))
    precondition = (lambda R: P @ R) if preconditioned else None
    asked = []

    def hessian(D):
        asked.append(D.copy())
        return H @ D

    geometry, tolerance = Euclidean().bind(G), 1e-3 * np.linalg.norm(G)
    step = truncated_cg(geometry, G, G, hessian, radius, tolerance, precondition)
    W, boundary, expected = steihaug(G, H, P, radius, tolerance)
    assert step.on_boundary == boundary
    assert np.allclose(step.W, W, rtol=1e-8, atol=1e-9)
    # The directions are combinations of the residuals: all of them agree, and their number.
    assert len(asked) == len(expected)
    assert np.allclose(asked, expected, rtol=1e-6, atol=1e-8)
    # ‖W‖ is measured in P⁻¹, and known without having been computed.
    length = math.sqrt(W @ np.linalg.inv(P) @ W)
    assert math.sqrt(step.squared_length) == pytest.approx(length, rel=1e-8)
    assert length <= radius * (1 + 1e-9)
    if boundary:
        assert length == pytest.approx(radius, rel=1e-9)
    else:
        assert np.linalg.norm(G + H @ W) <= tolerance * (1 + 1e-6)
    model = G @ step.W + 0.5 * step.W @ H @ step.W
    assert step.decrease == pytest.approx(-model, rel=1e-8)


def test_the_models_go_both_ways():
    """Steps inside, on the boundary, and along negative curvature are all among them."""
    ends = set()
    for seed, radius in itertools.product(range(8), (0.05, 0.3, 1.0, 3.0, 1e3)):
        G, H, P = random_model(seed)
        ends.add((steihaug(G, H, P, radius, 1e-3 * np.linalg.norm(G))[1], seed % 2))
    assert ends == {(True, 0), (True, 1), (False, 0)}


@pytest.mark.parametrize("radius", [0.01, 0.1, 1.0, 10.0])
def test_a_step_on_the_manifold_keeps_its_promises(radius):
    objective, X0 = Brockett.table(12, 3), stiefel.random_point(12, 3, seed=1)
    problem, x = problem_of(objective, X0, Stiefel())
    problem = with_more(problem, hessp=objective.hessp)
    geometry, E = problem.geometry, objective.value_and_gradient(X0)[1]
    G, hessian = geometry.project(x, E), hessian_of(problem, x, E)
    step = truncated_cg(geometry, x, G, hessian, radius, 1e-8 * geometry.norm(x, G))
    assert geometry.norm(x, step.W) <= radius * (1 + 1e-10)
    assert geometry.norm(x, step.W) == pytest.approx(math.sqrt(step.squared_length), rel=1e-8)
    model = geometry.inner(x, G, step.W) + 0.5 * geometry.inner(x, step.W, hessian(step.W))
    assert step.decrease == pytest.approx(-model, rel=1e-8)
    assert step.decrease > 0


def test_negative_curvature_that_is_rounding_is_not_followed():
    G, values = np.ones(4), np.array([3.0, 2.0, 1.0, -1e-13])
    geometry = Euclidean().bind(G)
    # Directions are exact here: the last one is that of the tiny eigenvalue.
    for accuracy, boundary in ((1e-10, False), (0.0, True)):
        step = truncated_cg(
            geometry, G, G, lambda D: values * D, 1e6, 1e-12, None, accuracy=accuracy
        )
        assert step.on_boundary == boundary, step


# -- the rules of conjugate gradients ------------------------------------------------------------


def beta_by_the_book(rule, g, g_new, w, w_new, d, pair=np.vdot):
    """Vectors at the new point; w is the preconditioned gradient."""
    y, z = g_new - g, w_new - w
    if rule == "polak-ribiere":
        return max(pair(z, g_new) / pair(g, w), 0.0)
    if rule == "hestenes-stiefel":
        return max(pair(z, g_new) / pair(d, y), 0.0)
    if rule == "dai-yuan":
        return pair(w_new, g_new) / pair(d, y)
    # Hager and Zhang (2006), eq. (1.3), with the lower bound of their later code.
    beta = pair(z - 2 * (pair(y, z) / pair(d, y)) * d, g_new) / pair(d, y)
    return max(beta, 0.4 * pair(d, g) / pair(d, d))


RULES = ("hager-zhang", "polak-ribiere", "hestenes-stiefel", "dai-yuan")
SCALES = np.geomspace(1.0, 50.0, 8)


def bent(x):
    """Far from quadratic, so that no step is exact and no product vanishes."""
    return float(np.sum(SCALES * np.cosh(x)) + np.sum(np.sin(3 * x))), (
        SCALES * np.sinh(x) + 3 * np.cos(3 * x)
    )


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("rule", RULES)
def test_beta_follows_its_rule_after_inexact_steps(rule, preconditioned):
    inexact = bounded = compared = 0
    P = np.linspace(0.5, 2.0, len(SCALES)) if preconditioned else np.ones(len(SCALES))
    for seed in range(6):
        x0 = 2.0 * np.random.default_rng(seed).standard_normal(len(SCALES))
        problem, x = problem_of(bent, x0, Euclidean())
        if preconditioned:
            problem = with_more(problem, precond=lambda X, G, aux: P * G)
        solver = ConjugateGradient(rule=rule, curvature=0.8)
        for a, b in itertools.pairwise(follow(solver, problem, x, 12)):
            if b.restarted or b.failure or b.watch.blind:
                continue
            g, g_new = bent(a.x)[1], bent(b.x)[1]
            beta = beta_by_the_book(rule, g, g_new, P * g, P * g_new, a.aim.direction)
            assert np.allclose(
                b.aim.direction, -P * g_new + beta * a.aim.direction, rtol=1e-9, atol=1e-9
            )
            cosine = (
                np.vdot(a.aim.direction, g_new)
                / np.linalg.norm(a.aim.direction)
                / np.linalg.norm(g_new)
            )
            inexact += abs(cosine) > 0.05
            bounded += beta == 0.0 or beta == 0.4 * np.vdot(a.aim.direction, g) / np.vdot(
                a.aim.direction, a.aim.direction
            )
            compared += 1
    assert compared >= 40 and inexact >= 20
    assert bounded >= 1 or rule == "dai-yuan"  # the maximum decides somewhere


@pytest.mark.parametrize("rule", RULES)
def test_beta_on_the_manifold_is_that_of_transported_vectors(rule):
    objective, X0 = Brockett.table(15, 3), stiefel.random_point(15, 3, seed=1)
    taken = states(ConjugateGradient(rule=rule, curvature=0.8), objective, X0, Stiefel(), 15)
    geometry, compared = Stiefel(), 0
    for a, b in itertools.pairwise(taken):
        if b.restarted:
            continue
        ray, G = geometry.ray(a.x, a.aim.direction), geometry.project(a.x, objective(a.x)[1])
        t = b.gamma * geometry.norm(a.x, G) / math.sqrt(ray.squared_norm)
        d, g = ray.transport(t, a.aim.direction), ray.transport(t, G)
        g_new = geometry.project(b.x, objective(b.x)[1])
        pair = lambda V, W, x=b.x: geometry.inner(x, V, W)
        beta = beta_by_the_book(rule, g, g_new, g, g_new, d, pair)
        assert np.allclose(b.aim.direction, beta * d - g_new, rtol=1e-8, atol=1e-8)
        compared += 1
    assert compared >= 10


# -- the radius of the trust region --------------------------------------------------------------


def hilly(x):
    return 0.25 * x**4 - x**2 + 0.3 * math.sin(5 * x)


def slope(x):
    return x**3 - 2 * x + 1.5 * math.cos(5 * x)


def second(x):
    return 3 * x**2 - 2 - 7.5 * math.sin(5 * x)


def trust_region_on_a_line(x, radius, steps):
    """The textbook on R: the model's minimiser, its ratio, what it does to x and to the radius."""
    taken = [(x, radius)]
    for _ in range(steps):
        g, h = slope(x), second(x)
        inside = h > 0 and abs(g / h) < radius
        s = -g / h if inside else -math.copysign(radius, g)
        predicted = -(g * s + 0.5 * h * s * s)
        if predicted < 1e-10:
            break
        ratio = (hilly(x) - hilly(x + s)) / predicted
        if ratio < 0.25:
            radius = 0.25 * abs(s)
        elif ratio > 0.75 and not inside:
            radius = 2 * radius
        if ratio > 0.1:
            x = x + s
        taken.append((x, radius))
    return taken


def test_the_radius_follows_its_rule():
    kinds = set()
    for x0, first in itertools.product(np.linspace(-3.0, 3.0, 9), (0.01, 0.3, 4.0)):
        start = np.array([x0])
        fun = lambda x: (hilly(x[0]), np.array([slope(x[0])]))
        problem, x = problem_of(fun, start, Euclidean())
        problem = with_more(problem, hessp=lambda X, V: second(X[0]) * V)
        expected = trust_region_on_a_line(x0, first, 12)
        taken = follow(TrustRegion(initial_radius=first), problem, x, len(expected))
        for s, (point, radius) in zip(taken, expected):
            assert s.x[0] == pytest.approx(point, rel=1e-9, abs=1e-9)
            assert s.radius == pytest.approx(radius, rel=1e-9)
        radii = [radius for _, radius in expected]
        kinds |= {b / a for a, b in itertools.pairwise(radii) if b / a in (1.0, 2.0)}
        kinds |= {"shorter" for a, b in itertools.pairwise(radii) if b < a}
    assert kinds == {1.0, 2.0, "shorter"}


def test_good_steps_to_the_boundary_double_the_next_one():
    """As anybody sees it: the lengths of the steps in the history."""
    objective, X0 = Brockett.table(30, 2), stiefel.random_point(30, 2, seed=1)
    options = {"initial_radius": 1e-4}
    result = stiefel.minimize(objective, X0, method="trust-region", options=options, maxiter=10)
    assert np.allclose(result.history["step"][1:9], 1e-4 * 2.0 ** np.arange(8), rtol=1e-9)


def test_beneath_the_noise_a_step_must_lower_the_gradient():
    """A Hessian five times too small leaps to the other side, where f hides that it rose."""
    options = {"hessp": lambda x, v: 0.2 * v, "options": {"initial_radius": 100.0}}
    for noise in (0.0, 1e3):
        given = {"fnoise": noise, "manifold": Euclidean(), "maxiter": 6, **options}
        result = stiefel.minimize(bowl, np.eye(6)[0], method="trust-region", **given)
        assert (np.diff(result.history["gradient_norm"]) <= 0).all()


def test_trust_regions_see_spans_and_learn_from_products():
    """As few products as on Grassmann ; with spread weights 714 instead of 2,556."""
    M = np.random.default_rng(1).standard_normal((200, 200))
    A, X0 = -M.T @ M, stiefel.random_point(200, 4, seed=3)
    fun, options = lambda X: (0.5 * np.vdot(X, A @ X), A @ X), {"hessp": lambda X, V: A @ V}
    products = [
        stiefel.minimize(fun, X0, manifold=m, method="trust-region", **options).nhev
        for m in (stiefel.Stiefel(), stiefel.Grassmann())
    ]
    assert products[0] <= 1.1 * products[1]
    spread = stiefel.objectives.Brockett.table(200, 8)
    X0 = stiefel.random_point(200, 8, seed=3)
    assert stiefel.minimize(spread, X0, method="trust-region", rtol=1e-6).nhev <= 1000


def test_the_momentum_is_the_papers():
    """α_k = k/(k + 3), and none with the first step."""
    momentum = AcceleratedGradient().momentum
    assert [momentum(k) for k in range(50)] == pytest.approx([k / (k + 3) for k in range(50)])


# -- the learned metric -----------------------------------------------------------------------


def soft_rotations(n, k, softness):
    """Near T = [I; 0]: normal directions of curvature 1, rotations of 1/softness."""

    def fun(X):
        S = (X[:k] - X[:k].T) / (2 * softness)
        G = X.copy()
        G[:k] = S
        return 0.5 * float(np.vdot(X[k:], X[k:]) + softness * np.vdot(S, S)), G

    return fun


@pytest.mark.parametrize(
    ("softness", "expected"),
    [(0.01, 1.0), (1.0, 1.0), (6.0, 6.0), (40.0, 40.0), (300.0, 300.0), (1e5, 1000.0)],
)
def test_rotations_that_are_softer_get_longer_steps(softness, expected):
    """φ(N + XA) = N + ω XA is the inverse Hessian of such a function if ω is the softness."""
    n, k = 20, 4
    noise = np.random.default_rng(3).standard_normal((n, k))
    X0 = stiefel.nearest(np.eye(n, k) + 1e-3 * noise)
    taken = states(AUTO, soft_rotations(n, k, softness), X0, Stiefel(), 5)
    omega = taken[-1].learned[0].metric.omega
    assert omega == pytest.approx(expected, rel=0.05)


def test_the_rotations_of_a_spread_spectrum_are_learned():
    """What it is for: without ω the same run needs several times as many evaluations."""
    objective, X0 = Brockett.table(100, 4), stiefel.random_point(100, 4, seed=0)
    assert states(AUTO, objective, X0, Stiefel(), 200)[-1].learned[0].metric.omega > 5.0


def test_leaves_of_a_tree_are_scaled_by_their_stiffness():
    """½‖x − p‖² + ½ r‖y − q‖²: the inverse Hessian has 1 and 1/r."""
    r, rng = 90.0, np.random.default_rng(4)
    p, q = rng.standard_normal(7), rng.standard_normal(5)

    def fun(z):
        x, y = z[0] - p, z[1] - q
        return 0.5 * float(x @ x + r * (y @ y)), (x, r * y)

    start = (np.zeros(7), np.zeros(5))
    soft, stiff = states(AUTO, fun, start, (Euclidean(), Euclidean()), 4)[-1].learned
    assert stiff.metric.scale / soft.metric.scale == pytest.approx(1 / r, rel=1e-6)


@pytest.mark.parametrize("tree", [False, True])
def test_a_start_without_rotations_is_not_taken_for_a_function_of_the_span(tree):
    """XᵀAX is diagonal at the start, so that the gradient has no rotation part there."""
    objective, X0 = Brockett.table(30, 3), stiefel.random_point(30, 3, seed=5)
    diagonal = X0.T @ (objective.A @ X0 if objective.A.ndim == 2 else objective.A[:, None] * X0)
    X0 = stiefel.nearest(X0 @ np.linalg.eigh(diagonal)[1])
    fun, x0, manifold = objective, X0, Stiefel()
    if tree:
        beside = lambda p: (objective(p[0])[0] + 0.5 * p[1] @ p[1], (objective(p[0])[1], p[1]))
        fun, x0, manifold = beside, (X0, np.ones(3)), (Stiefel(), Euclidean())
    result = stiefel.minimize(fun, x0, manifold=manifold, rtol=1e-9)
    assert result.success and result.fun == pytest.approx(objective.minimum, rel=1e-9)


# -- the search of L-BFGS ---------------------------------------------------------------------


def bowl(x):
    return 0.5 * float(x @ x), x.copy()


def first_step(initial_length, **options):
    """‖∇f‖ after one step from ‖x‖ = 1 along −x, tried with the given length."""
    method = LBFGS(initial_length=initial_length, longest=10.0)
    x0, options = np.eye(6)[0], {"manifold": Euclidean(), "maxiter": 1, **options}
    return stiefel.minimize(bowl, x0, method=method, **options).history["gradient_norm"][1]


def test_a_step_that_is_far_too_short_is_made_longer():
    """The slope must have changed by a tenth, or the pair would say nothing."""
    for length in (1e-6, 1e-3, 0.02):
        assert first_step(length) <= 0.9 * (1 + 1e-12)


def test_slopes_are_asked_where_values_say_nothing():
    """Three times too long: f rose by three times itself, which is less than its noise."""
    assert first_step(3.0) < 1.0
    assert first_step(3.0, fnoise=1e3) < 1.0


def test_no_trial_is_longer_than_allowed():
    objective, X0 = Brockett.table(12, 2), stiefel.random_point(12, 2, seed=1)
    for longest in (0.1, 0.7):
        points: list[Any] = []
        watched = lambda X: points.append(X.copy()) or objective.value_and_gradient(X)
        method = LBFGS(initial_length=50.0, longest=longest)
        stiefel.minimize(watched, X0, method=method, maxiter=1)
        moved = [np.linalg.norm(X - X0) for X in points[1:]]
        assert 0 < max(moved) <= longest * (1 + 1e-12)


# -- the driver's patience, and the point it returns -----------------------------------------------


class Told(NamedTuple):
    """A state as the driver reads it."""

    x: Any
    at: Any
    gamma: float = 0.0
    k: int = 0
    restarted: bool = False
    watch: Watch = Watch()
    failure: Status | None = None


class Scripted:
    """A solver that stays where it is and tells the story it was given: t ↦ (f, ‖∇f‖)."""

    def __init__(self, story, blind=False):
        self.story, self.blind = story, blind

    def init(self, problem, x):
        return self._tell(problem.gradient(x), x, 0)

    def step(self, problem, s):
        return self._tell(s.at, s.x, s.k + 1)

    def _tell(self, at, x, t):
        f, norm = self.story(t)
        return Told(x, at._replace(f=f, norm=norm), k=t, watch=Watch(blind=self.blind))


def told(story, blind=False, **options):
    objective, X0 = Brockett.table(6, 2), stiefel.random_point(6, 2, seed=0)
    method = Scripted(story, blind)
    return stiefel.minimize(objective, X0, method=method, rtol=1e-12, **options)


FALLING = {
    "nothing": lambda t: (1.0, 1.0),
    "gradients": lambda t: (1.0, 0.8 ** min(t, 50)),
    "values": lambda t: (10.0 - 0.1 * min(t, 50), 1.0),
    "gradients by too little": lambda t: (1.0, 1.0 - 1e-4 * min(t, 900)),
}


@pytest.mark.parametrize(
    ("story", "blind", "last"),
    [
        ("nothing", False, 0),
        ("nothing", True, 0),
        ("gradients", False, 50),
        ("gradients", True, 50),
        ("values", False, 50),
        ("values", True, 0),  # beneath the noise a smaller value is no progress
        ("gradients by too little", False, 0),
    ],
)
def test_the_driver_gives_up_after_a_hundred_idle_iterations_and_half_of_all(story, blind, last):
    result = told(FALLING[story], blind)
    assert not result.success
    assert result.status is (Status.ROUNDING_LIMIT if blind else Status.STEP_NOT_FOUND)
    expected = next(n for n in itertools.count() if n - last > 100 + n // 2)
    assert result.nit == expected


def test_a_run_that_creeps_is_left_alone():
    """Ten per cent now and then is progress: the wait grows with the run."""
    result = told(lambda t: (1.0, 0.85 ** math.floor(math.log(1 + t, 1.4))), maxiter=2000)
    assert result.status is Status.MAX_ITERATIONS


BEST = {
    "the smallest value": ([(3.0, 1.0), (1.0, 2.0), (2.0, 0.1)], 1),
    "its gradient, where values are equal": ([(3.0, 1.0), (1.0, 2.0), (1.0, 0.5), (1.0, 0.7)], 2),
    "within the noise of f": ([(1.0, 1.0), (1.0 + 1e-15, 0.5), (1.0 - 1e-15, 0.6)], 1),
    "but not beyond it": ([(1.0, 1.0), (1.0 + 1e-13, 0.5), (1.0 + 1e-14, 3.0)], 0),
    "a value that is visibly smaller": ([(1.0, 1.0), (1.0 - 1e-13, 5.0)], 1),
}


@pytest.mark.parametrize("name", BEST)
def test_the_best_point_is_the_one_returned(name):
    story, best = BEST[name]
    result = told(lambda t: story[min(t, len(story) - 1)], maxiter=len(story) - 1)
    assert (result.fun, result.gradient_norm) == story[best]


@pytest.mark.parametrize("rtol", [1e-2, 1e-5])
def test_the_tolerance_is_met_by_the_last_point_and_by_none_before(rtol):
    objective, X0 = Brockett.table(20, 2), stiefel.random_point(20, 2, seed=1)
    result = stiefel.minimize(objective, X0, rtol=rtol)
    norms = result.history["gradient_norm"]
    assert result.success and result.gradient_norm == norms[-1] <= rtol * norms[0]
    assert (norms[:-1] > rtol * norms[0]).all()


def test_the_minimum_along_a_line_is_scipys():
    """Conjugate gradients with an exact search: the first step ends where Brent's ends."""
    x0 = np.linspace(0.5, 1.5, len(SCALES))
    solver = ConjugateGradient(curvature=1e-3)
    problem, x = problem_of(bent, x0, Euclidean())
    first, second = follow(solver, problem, x, 2)
    line = lambda t: bent(x0 + t * first.aim.direction)[0]
    t = optimize.minimize_scalar(line, bounds=(0.0, 1.0), method="bounded").x
    assert np.allclose(second.x, x0 + t * first.aim.direction, atol=1e-3)
