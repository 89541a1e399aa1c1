"""Slow n x n transcriptions of the paper's equations: the oracle that the fast code is tested on.

Everything is dense NumPy and as literal as the shapes allow: nothing is saved, reused or
rearranged. Where the paper misprints, this file holds what is meant; what is printed is kept under
the name ``printed_*``, as a mutant that tests must be able to reject.

Conventions.  Real or complex: a transpose is a conjugate transpose, a trace a real part of a
trace, and a gradient G satisfies df = Re Tr(G^H dX).  V Z are tangents, W G are cotangents, paired
by Re Tr(W^H V).  Every geometric function accepts the keyword ``B`` (dense, positive definite) for
the constraint X^H B X = I:  with B = T^H T, the point T X, the tangent T V and the cotangent
T^{-H} W belong to the standard problem, which is solved there and carried back.  Cotangents so keep
the coordinates of the Euclidean gradient: W^H X + X^H W = 0, without B.
"""

import functools
from typing import NamedTuple

import numpy as np
import scipy.linalg

# ---------------------------------------------------------------------------------------------
# Small helpers
# ---------------------------------------------------------------------------------------------


def adjoint(Z):
    """Z^H."""
    return Z.conj().T


def pair(W, V):
    """<V, W> = Re Tr(W^H V), the pairing of cotangents and tangents."""
    return float(np.trace(adjoint(W) @ V).real)


def standardise(B, how="sqrt"):
    """(T, T^{-1}) with B = T^H T: T = B^{1/2}, or the adjoint of the lower Cholesky factor."""
    if how == "cholesky":
        T = adjoint(np.linalg.cholesky(B))
    else:
        eigenvalues, U = scipy.linalg.eigh(B)
        T = U @ np.diag(np.sqrt(eigenvalues)) @ adjoint(U)
    return T, np.linalg.inv(T)


def generalised(kinds, result):
    """Give a function of the standard problem the keyword B (and ``how``, see `standardise`).

    One letter per array argument and one for the result: p a point or tangent (T Z),
    c a cotangent (T^{-H} Z), s a scalar or an array of scalars (unchanged).
    """

    def decorate(standard):
        @functools.wraps(standard)
        def function(*arguments, B=None, how="sqrt", **scalars):
            if B is None:
                return standard(*arguments, **scalars)
            T, T_inverse = standardise(B, how)
            there = {"p": T, "c": adjoint(T_inverse)}
            back = {"p": T_inverse, "c": adjoint(T)}
            arrays, rest = arguments[: len(kinds)], arguments[len(kinds) :]
            moved = [there[kind] @ Z for kind, Z in zip(kinds, arrays, strict=True)]
            value = standard(*moved, *rest, **scalars)
            return value if result == "s" else back[result] @ value

        return function

    return decorate


# ---------------------------------------------------------------------------------------------
# Random data: seeded by a numpy Generator; points are polar factors, never from QR
# ---------------------------------------------------------------------------------------------


def gaussian(rng, *shape, dtype=float):
    """Independent standard normal entries; complex ones have normal real and imaginary parts."""
    Z = rng.standard_normal(shape)
    if np.issubdtype(np.dtype(dtype), np.complexfloating):
        Z = Z + 1j * rng.standard_normal(shape)
    return Z.astype(dtype)


@generalised("p", "p")
def polar_factor(Z):
    """The point nearest to Z in the Frobenius norm: U V^H of the thin singular value decomposition.

    With B: T^{-1} of the polar factor of T Z, the nearest point in the norm of B if T = B^{1/2}.
    """
    U, _, V_adjoint = np.linalg.svd(Z, full_matrices=False)
    return U @ V_adjoint


def random_point(rng, n, k, dtype=float, B=None):
    """The polar factor of a Gaussian n x k matrix."""
    return polar_factor(gaussian(rng, n, k, dtype=dtype), B=B)


def random_tangent(rng, X, B=None):
    """A projected Gaussian: V^H B X + X^H B V = 0."""
    return project_tangent(X, gaussian(rng, *X.shape, dtype=X.dtype), B=B)


def random_cotangent(rng, X, B=None):
    """A projected Gaussian: W^H X + X^H W = 0."""
    return project(X, gaussian(rng, *X.shape, dtype=X.dtype), B=B)


def random_near(rng, X, distance, B=None):
    """The point at the end of a random geodesic of the given length from X."""
    V = random_tangent(rng, X, B=B)
    return geodesic(X, V * (distance / np.sqrt(inner_tangent(X, V, V, B=B))), B=B)


def random_hermitian(rng, n, dtype=float):
    """A Gaussian Hermitian matrix."""
    A = gaussian(rng, n, n, dtype=dtype)
    return (A + adjoint(A)) / 2


def random_positive(rng, n, dtype=float):
    """A Hermitian positive definite matrix with condition number 10, for B."""
    U = polar_factor(gaussian(rng, n, n, dtype=dtype))
    B = U @ np.diag(np.linspace(0.5, 5.0, n)) @ adjoint(U)
    return (B + adjoint(B)) / 2


# ---------------------------------------------------------------------------------------------
# Section 2: the canonical metric
# ---------------------------------------------------------------------------------------------


def defect(X, B=None):
    """||X^H B X - I||_F."""
    n, k = X.shape
    return float(np.linalg.norm(adjoint(X) @ (np.eye(n) if B is None else B) @ X - np.eye(k)))


def metric_matrix(X, B=None):
    """g(V, Z) = Re Tr(V^H M Z) with M = I - X X^H / 2 (eq. inner_product_stiefel)."""
    if B is not None:
        T, _ = standardise(B)
        return adjoint(T) @ metric_matrix(T @ X) @ T
    return np.eye(len(X)) - X @ adjoint(X) / 2


def dual_metric_matrix(X, B=None):
    """g*(W, G) = Re Tr(W^H M G) with M = I + X X^H."""
    if B is not None:
        T, T_inverse = standardise(B)
        return T_inverse @ dual_metric_matrix(T @ X) @ adjoint(T_inverse)
    return np.eye(len(X)) + X @ adjoint(X)


@generalised("ppp", "s")
def inner_tangent(X, V, Z):
    """g(V, Z) = Re Tr(V^H (I - X X^H / 2) Z), for tangents."""
    return pair(V, metric_matrix(X) @ Z)


@generalised("pcc", "s")
def inner_dual(X, W, G):
    """g*(W, G) = Re Tr(W^H (I + X X^H) G), for cotangents (one of the two must be projected)."""
    return pair(W, dual_metric_matrix(X) @ G)


@generalised("pc", "s")
def norm_dual(X, W):
    """||W||_g*, of the projected W."""
    W = project(X, W)
    return float(np.sqrt(inner_dual(X, W, W)))


@generalised("pc", "c")
def project(X, W):
    """W - X (W^H X + X^H W) / 2: the cotangent that any n x k matrix W stands for."""
    return W - X @ (adjoint(W) @ X + adjoint(X) @ W) / 2


@generalised("pp", "p")
def project_tangent(X, V):
    """V - X (V^H X + X^H V) / 2: orthogonal projection onto the tangents."""
    return V - X @ (adjoint(V) @ X + adjoint(X) @ V) / 2


@generalised("pc", "p")
def raise_index(X, W):
    """phi_g(W) = (I + X X^H) W of the *projected* W (equal to W - X W^H X)."""
    return dual_metric_matrix(X) @ project(X, W)


@generalised("pp", "c")
def lower_index(X, V):
    """phi_g^{-1}(V) = (I - X X^H / 2) V, for a tangent V."""
    return metric_matrix(X) @ V


# The same by brute force: no formula but the definitions, and B directly, without a factor of it.


def real_coordinates(Z):
    """The entries of Z as a real vector (real parts, then imaginary parts if Z is complex)."""
    return np.concatenate([Z.real.ravel(), Z.imag.ravel()]) if np.iscomplexobj(Z) else Z.ravel()


def unit_matrices(n, k, dtype=float):
    """A basis, over the reals, of all n x k matrices: E_ij, and i E_ij if complex."""
    units = list(np.eye(n * k).reshape(n * k, n, k).astype(dtype))
    if np.issubdtype(np.dtype(dtype), np.complexfloating):
        units += [1j * E for E in units]
    return units


def matrix_of(linear, basis):
    """The real matrix whose columns are the real coordinates of linear(E), E in the basis."""
    return np.column_stack([real_coordinates(linear(E)) for E in basis])


def combine(coefficients, basis):
    """sum_i c_i E_i."""
    return sum(c * E for c, E in zip(coefficients, basis, strict=True))


def _null_space(linear, X):
    units = unit_matrices(*X.shape, X.dtype)
    return [combine(c, units) for c in scipy.linalg.null_space(matrix_of(linear, units)).T]


def tangent_basis(X, B=None):
    """A basis of {V : V^H B X + X^H B V = 0}, orthonormal in Re Tr; a list of n x k matrices."""
    BX = X if B is None else B @ X
    return _null_space(lambda V: adjoint(V) @ BX + adjoint(BX) @ V, X)


def cotangent_basis(X, B=None):
    """A basis of {W : W^H X + X^H W = 0}, orthonormal in Re Tr; the same for every B."""
    return _null_space(lambda W: adjoint(W) @ X + adjoint(X) @ W, X)


def project_bruteforce(X, W, B=None):
    """The cotangent that pairs with every tangent as W does; for B = I the nearest to W."""
    tangents, cotangents = tangent_basis(X, B), cotangent_basis(X)
    pairings = np.array([[pair(C, V) for C in cotangents] for V in tangents])
    coefficients, *_ = np.linalg.lstsq(pairings, [pair(W, V) for V in tangents], rcond=None)
    return combine(coefficients, cotangents)


def project_tangent_bruteforce(X, V):
    """The tangent nearest to V: least squares over a basis of the tangent space."""
    tangents = tangent_basis(X)
    M = matrix_of(lambda Z: Z, tangents)
    coefficients, *_ = np.linalg.lstsq(M, real_coordinates(V), rcond=None)
    return combine(coefficients, tangents)


def raise_bruteforce(X, W, B=None):
    """The tangent V with g(V, Z) = <W, Z> for every tangent Z: the definition of phi_g."""
    tangents = tangent_basis(X, B)
    M = metric_matrix(X, B)
    gram = np.array([[pair(V, M @ Z) for Z in tangents] for V in tangents])
    return combine(np.linalg.solve(gram, [pair(W, Z) for Z in tangents]), tangents)


# ---------------------------------------------------------------------------------------------
# Section 2: geodesics and the Cayley retraction
# ---------------------------------------------------------------------------------------------


def generator(X, W):
    """The skew n x n matrix W X^H - X W^H, the same for W and for the projected W."""
    return W @ adjoint(X) - X @ adjoint(W)


@generalised("pp", "p")
def geodesic(X, V, t=1.0):
    """exp(t (V X^H - X V^H + X V^H X X^H)) X, V a tangent (eq. stiefel_exact_geodesics)."""
    S = V @ adjoint(X) - X @ adjoint(V) + X @ adjoint(V) @ X @ adjoint(X)
    return scipy.linalg.expm(t * S) @ X


@generalised("pc", "p")
def geodesic_dual(X, W, t=1.0):
    """exp(t (W X^H - X W^H)) X, W a cotangent or any matrix standing for one."""
    return scipy.linalg.expm(t * generator(X, W)) @ X


@generalised("pc", "p")
def cayley(X, W):
    """R_C(X, phi_g(W)) = (I - S/2)^{-1} (I + S/2) X, S = W X^H - X W^H (printed W X^T - X^T W)."""
    identity, S = np.eye(len(X)), generator(X, W)
    return np.linalg.solve(identity - S / 2, (identity + S / 2) @ X)


@generalised("pc", "p")
def cayley_woodbury(X, W):
    """X + 2 U (I - Z^H U)^{-1} Z^H X, U = [W/2, X], Z = [X, -W/2] (eq. R1_retraction)."""
    U, Z = np.hstack([W / 2, X]), np.hstack([X, -W / 2])
    return X + 2 * U @ np.linalg.inv(np.eye(U.shape[1]) - adjoint(Z) @ U) @ adjoint(Z) @ X


@generalised("pp", "p")
def cayley_tangent(X, V):
    """R_C(X, V), V a tangent: index lowered first."""
    return cayley(X, lower_index(X, V))


def path_length(X, W, B=None):
    """Length of the geodesic t -> geodesic_dual(X, t W), 0 <= t <= 1: its constant speed."""
    return norm_dual(X, W, B=B)


# ---------------------------------------------------------------------------------------------
# Section 4.2: lift, extrapolation, interpolation
# ---------------------------------------------------------------------------------------------


@generalised("pp", "c")
def lift(X, Y):
    """The cotangent V at X with cayley(X, V) = Y: 2 Y (I + X^H Y)^{-1}, projected at X.

    There is none where I + X^H Y is singular, as for n = k, real, det(X) = -det(Y).
    """
    return project(X, 2 * Y @ np.linalg.inv(np.eye(X.shape[1]) + adjoint(X) @ Y))


def lift_bruteforce(X, Y, B=None):
    """Least squares for V in (I + S/2) X = (I - S/2) Y, S = V X^H - X V^H (extrapolation-equation).

    V runs over a basis of the cotangents at X. With B, S = B^{-1} V X^H B - X V^H.
    """
    cotangents = cotangent_basis(X)
    B = np.eye(len(X)) if B is None else B
    B_inverse = np.linalg.inv(B)

    def half_S_times_sum(V):
        return (B_inverse @ V @ adjoint(X) @ B - X @ adjoint(V)) @ (X + Y) / 2

    M = matrix_of(half_S_times_sum, cotangents)
    coefficients, *_ = np.linalg.lstsq(M, real_coordinates(Y - X), rcond=None)
    return combine(coefficients, cotangents)


def extrapolate(X, Y, a, B=None):
    """The manifold's (1 - a) X + a Y: cayley(X, a V), V = lift(X, Y)."""
    return cayley(X, a * lift(X, Y, B=B), B=B)


def extrapolate_bruteforce(X, Y, a, B=None):
    """`extrapolate` with the lift by least squares."""
    return cayley(X, a * lift_bruteforce(X, Y, B), B=B)


def lemma_bound(distance):
    """Section 4.2's lemma: kappa(I + X^H Y) <= 2 (3 - 2 d^2)^{-1/2} for d < sqrt(3/2)."""
    return 2 / np.sqrt(3 - 2 * distance**2)


# ---------------------------------------------------------------------------------------------
# Grassmann: points are spans, horizontal means orthogonal to the fibre X Q
# ---------------------------------------------------------------------------------------------


@generalised("pp", "s")
def principal_angles(X, Y):
    """Angles between the spans, ascending; from cosines and sines, so accurate at both ends."""
    cosines = np.linalg.svd(adjoint(X) @ Y, compute_uv=False)
    normal = Y - X @ adjoint(X) @ Y
    sines = np.linalg.svd(normal, compute_uv=False)[::-1]
    return np.arctan2(sines, cosines)


def grassmann_distance(X, Y, B=None):
    """Geodesic distance of the spans: the 2-norm of the principal angles."""
    return float(np.linalg.norm(principal_angles(X, Y, B=B)))


@generalised("pp", "p")
def horizontal_tangent(X, V):
    """(I - X X^H) V: the horizontal part of V."""
    return V - X @ adjoint(X) @ V


@generalised("pc", "c")
def horizontal(X, W):
    """(I - X X^H) W: the horizontal part of the cotangent W."""
    return W - X @ adjoint(X) @ W


def horizontal_bruteforce(X, W, B=None):
    """The cotangent that pairs with X A, A skew, to 0 and with tangents in ker(X^H B) as W does."""
    BX = X if B is None else B @ X
    level = _null_space(lambda V: adjoint(BX) @ V, X)  # horizontal tangents
    flat = _null_space(lambda C: adjoint(X) @ C, X)  # cotangents that vanish along the fibre
    pairings = np.array([[pair(C, V) for C in flat] for V in level])
    return combine(np.linalg.solve(pairings, [pair(W, V) for V in level]), flat)


@generalised("pp", "p")
def align(X, Y):
    """The representative Y Q of span(Y) nearest to X: X^H Y Q is Hermitian, positive."""
    U, _, V_adjoint = np.linalg.svd(adjoint(X) @ Y)
    return Y @ adjoint(V_adjoint) @ adjoint(U)


def grassmann_lift(X, Y, B=None):
    """The horizontal cotangent V at X with span(cayley(X, V)) = span(Y): lift to align(X, Y)."""
    return lift(X, align(X, Y, B=B), B=B)


@generalised("pp", "p")
def grassmann_log(X, Y):
    """The horizontal tangent V = U diag(theta) Z^H at X with span(geodesic(X, V)) = span(Y)."""
    tangents_of_angles = (Y - X @ adjoint(X) @ Y) @ np.linalg.inv(adjoint(X) @ Y)
    U, values, V_adjoint = np.linalg.svd(tangents_of_angles, full_matrices=False)
    return U @ np.diag(np.arctan(values)) @ V_adjoint


# ---------------------------------------------------------------------------------------------
# Objectives: pairs (value, gradient) with known minimum; second derivatives by differences
# ---------------------------------------------------------------------------------------------


def brockett(A, weights, half=True):
    """f(X) = 1/2 sum_i a_i <x_i, A x_i> (without the 1/2 if not half), gradient A X diag(a)."""
    D, scale = np.diag(np.asarray(weights, dtype=float)), 0.5 if half else 1.0

    def value(X):
        return scale * pair(X, A @ X @ D)

    def gradient(X):
        return 2 * scale * A @ X @ D

    return value, gradient


def brockett_minimum(A, weights, B=None, half=True):
    """(f*, X*) by eigh: the largest weight goes to the smallest eigenvalue. Weights positive."""
    weights = np.asarray(weights, dtype=float)
    eigenvalues, U = scipy.linalg.eigh(A, B)
    place = np.empty(len(weights), dtype=int)
    place[np.argsort(-weights)] = np.arange(len(weights))
    f = float(np.sum(weights * eigenvalues[place]))
    return (f / 2 if half else f), U[:, place]


def brockett_condition_number(eigenvalues, weights):
    """kappa at the minimiser (eq. condition_number_calc_eigenvectors); both arguments ascending."""
    lam, a, k = np.asarray(eigenvalues, float), np.asarray(weights, float), len(weights)
    low = [a[0] * (lam[k] - lam[k - 1])]  # lam[j - 1] is lambda_j
    low += [(lam[k - i] - lam[k - i - 1]) * (a[i] - a[i - 1]) for i in range(1, k)]
    return a[k - 1] * (lam[-1] - lam[0]) / min(low)


def optimal_weights(eigenvalues, k):
    """a_i = sum_{j=0}^{i-1} 1 / (lambda_{k-j+1} - lambda_{k-j}) (eq. optimal_alpha, with its j)."""
    lam = np.asarray(eigenvalues, float)
    return np.array(
        [sum(1 / (lam[k - j] - lam[k - j - 1]) for j in range(i)) for i in range(1, k + 1)]
    )


def optimal_condition_number(eigenvalues, k):
    """(lambda_n - lambda_1) sum_{i=1}^k 1 / (lambda_{i+1} - lambda_i)."""
    lam = np.asarray(eigenvalues, float)
    return (lam[-1] - lam[0]) * sum(1 / (lam[i] - lam[i - 1]) for i in range(1, k + 1))


def procrustes(A, C):
    """f(X) = 1/2 ||A X - C||_F^2, gradient A^H (A X - C)."""
    return (
        lambda X: 0.5 * float(np.linalg.norm(A @ X - C)) ** 2,
        lambda X: adjoint(A) @ (A @ X - C),
    )


def quartic(A, strength):
    """f(X) = 1/2 Re Tr(X^H A X) + strength/4 sum_i rho_i^2, rho_i = sum_j |X_ij|^2; f(XQ) = f."""

    def density(X):
        return np.sum(np.abs(X) ** 2, axis=1)

    return (
        lambda X: 0.5 * pair(X, A @ X) + strength / 4 * float(np.sum(density(X) ** 2)),
        lambda X: A @ X + strength * np.diag(density(X)) @ X,
    )


def directional_derivative(value, curve, h=1e-3):
    """d/dt value(curve(t)) at 0 by the five-point formula."""
    f = [value(curve(j * h)) for j in (-2, -1, 1, 2)]
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h)


def hessian_form(value, X, V, B=None, h=5e-3):
    """Hf(X)(V) = d^2/dt^2 f(exp_X(t V)) at 0, by the five-point formula along the geodesic."""
    f = [value(geodesic(X, V, j * h, B=B)) for j in (-2, -1, 0, 1, 2)]
    return (-f[0] + 16 * f[1] - 30 * f[2] + 16 * f[3] - f[4]) / (12 * h**2)


def hessian_eigenvalues(value, X, B=None):
    """Eigenvalues of Hf(X) relative to g, ascending; their ratio is kappa (eq. Hessian_ratio)."""
    basis = tangent_basis(X, B)

    def form(V, Z):  # polarised
        return (hessian_form(value, X, V + Z, B) - hessian_form(value, X, V - Z, B)) / 4

    upper = [
        [form(V, Z) if i <= j else 0 for j, Z in enumerate(basis)] for i, V in enumerate(basis)
    ]
    H = np.array(upper) + np.triu(upper, 1).T
    gram = np.array([[inner_tangent(X, V, Z, B=B) for Z in basis] for V in basis])
    return scipy.linalg.eigh(H, gram, eigvals_only=True)


# ---------------------------------------------------------------------------------------------
# Section 4.4: the algorithms, as meant
# ---------------------------------------------------------------------------------------------


class Iterate(NamedTuple):
    """What is known at Y_t before step t is taken."""

    X: np.ndarray  # X_t, the last accepted point
    Y: np.ndarray  # Y_t, where the gradient is taken
    f_Y: float  # f(Y_t)
    gradient_norm: float  # ||grad f(Y_t)||_g*
    gamma: float  # the step handed on to step t: the one accepted by step t - 1 (gamma_0 at t = 0)
    k: int  # steps accepted since the last restart
    restarted: bool  # step t - 1 was a restart, so Y_t = X_t = X_{t-1}


def two_sided_search(value, trial, f_Y, slope, gamma, growth=1.7, c_L=0.7, grow=True):
    """The two loops in sequence, as printed; trial(gamma) is X_{t+1}. Returns (X, f(X), gamma).

    growth is lambda_d; with grow=False only the shrinking loop runs, so gamma_t <= gamma_{t-1}.
    """
    X = trial(gamma)
    f_X = value(X)
    while grow and f_X < f_Y - c_L * gamma * slope:
        gamma = growth * gamma
        if gamma > 1e100:
            raise OverflowError("f decreases along the whole ray")
        X = trial(gamma)
        f_X = value(X)
    while f_X > f_Y - 0.5 * gamma * slope:
        gamma = gamma / growth
        X = trial(gamma)
        f_X = value(X)
    return X, f_X, gamma


def _ray(Y, G):
    return lambda gamma: cayley(Y, -gamma * G)


def _with_B(run):
    """Run a generator of `Iterate` for X^H B X = I: on f(T^{-1} Xt), and carry the points back."""

    @functools.wraps(run)
    def generator_of_iterates(value, gradient, X0, *, B=None, **options):
        if B is None:
            yield from run(value, gradient, X0, **options)
            return
        T, T_inverse = standardise(B)
        iterates = run(
            lambda Z: value(T_inverse @ Z),
            lambda Z: adjoint(T_inverse) @ gradient(T_inverse @ Z),
            T @ X0,
            **options,
        )
        for s in iterates:
            yield s._replace(X=T_inverse @ s.X, Y=T_inverse @ s.Y)

    return generator_of_iterates


@_with_B
def function_restart(
    value, gradient, X0, *, gamma=0.1, growth=1.7, c_L=0.7, c_R=0.01, grow=True, lift_map=lift
):
    """Algorithm 1, an endless generator of `Iterate`. Stop it with islice or on gradient_norm."""
    X, Y, k, restarted = X0, X0, 0, False
    f_X = value(X)
    while True:
        f_Y = value(Y)
        G = project(Y, gradient(Y))
        slope = inner_dual(Y, G, G)
        yield Iterate(X, Y, f_Y, float(np.sqrt(slope)), gamma, k, restarted)

        X_new, f_new, gamma = two_sided_search(
            value, _ray(Y, G), f_Y, slope, gamma, growth, c_L, grow
        )
        restarted = bool(f_new > f_X - c_R * gamma * slope)
        if restarted:
            Y, k = X, 0
        else:
            Y = cayley(X, (1 + k / (k + 3)) * lift_map(X, X_new))
            X, f_X, k = X_new, f_new, k + 1


@_with_B
def gradient_restart(
    value,
    gradient,
    X0,
    *,
    gamma=0.1,
    growth=1.7,
    c_L=0.7,
    grow=True,
    lift_map=lift,
    restart_map=lift,
    inner=inner_dual,
):
    """Algorithm 2, an endless generator of `Iterate`; W_t = restart_map(Y_t, X_t) is at Y_t."""
    X, Y, k, restarted = X0, X0, 0, False
    while True:
        f_Y = value(Y)
        G = project(Y, gradient(Y))
        slope = inner_dual(Y, G, G)
        yield Iterate(X, Y, f_Y, float(np.sqrt(slope)), gamma, k, restarted)

        X_new, _, gamma = two_sided_search(value, _ray(Y, G), f_Y, slope, gamma, growth, c_L, grow)
        restarted = bool(inner(Y, G, restart_map(Y, X)) < -gamma * slope)
        if restarted:
            Y, k = X, 0
        else:
            Y = cayley(X, (1 + k / (k + 3)) * lift_map(X, X_new))
            X, k = X_new, k + 1


@_with_B
def gradient_descent(value, gradient, X0, *, gamma=0.1, growth=1.7, c_L=0.7, grow=True):
    """The figures' gradient descent: the same search, no momentum; X = Y, k = 0, no restarts."""
    X = X0
    while True:
        f_X = value(X)
        G = project(X, gradient(X))
        slope = inner_dual(X, G, G)
        yield Iterate(X, X, f_X, float(np.sqrt(slope)), gamma, 0, False)
        X, _, gamma = two_sided_search(value, _ray(X, G), f_X, slope, gamma, growth, c_L, grow)


def run_until(iterates, tolerance, limit=100_000):
    """The iterates up to the first with gradient_norm <= tolerance * the first one's."""
    taken = []
    for s in iterates:
        taken.append(s)
        if s.gradient_norm <= tolerance * taken[0].gradient_norm or len(taken) > limit:
            return taken


# ---------------------------------------------------------------------------------------------
# Section 3: on R^n
# ---------------------------------------------------------------------------------------------


def euclidean_strongly_convex(gradient, x0, mu, L):
    """Theorem 3.1. Yields (x_t, y_t); gamma 1/L, alpha = (sqrt L - sqrt mu)/(sqrt L + sqrt mu)."""
    x, y = x0, x0
    alpha = (np.sqrt(L) - np.sqrt(mu)) / (np.sqrt(L) + np.sqrt(mu))
    while True:
        yield x, y
        x_new = y - gradient(y) / L
        x, y = x_new, x_new + alpha * (x_new - x)


def strongly_convex_bound(mu, L, t, gap):
    """Theorem 3.1: f(x_t) - f* <= 2 (1 - sqrt(mu/L))^t (f(x_0) - f*) (printed elsewhere as -t)."""
    return 2 * (1 - np.sqrt(mu / L)) ** t * gap


def euclidean_q_family(value, gradient, x0, q, *, gamma=0.1, growth=1.7):
    """Theorem 3.2 with q(0) = 0, q(1), ...: yields (x_t, y_t, gamma_{t-1}, q_t).

    alpha_t = q_t / (2 + q_{t+1}); gamma_t shrinks from gamma_{t-1} until
    f(x_{t+1}) <= f(y_t) - gamma_t/2 ||grad f(y_t)||^2.
    """
    x, y, t = x0, x0, 0
    while True:
        yield x, y, gamma, q(t)
        f_y, g = value(y), gradient(y)
        while value(y - gamma * g) > f_y - gamma / 2 * np.sum(g**2):
            gamma = gamma / growth
        x_new = y - gamma * g
        alpha = q(t) / (2 + q(t + 1))
        x, y, t = x_new, x_new + alpha * (x_new - x), t + 1


def q_is_admissible(q, t):
    """q_{t+1} >= 0 and (q_{t+1} + 1)^2 <= (q_t + 2)^2 + 1, and q_0 = 0."""
    return q(0) == 0 and q(t + 1) >= 0 and (q(t + 1) + 1) ** 2 <= (q(t) + 2) ** 2 + 1


def largest_q(t):
    """The sequence that satisfies Theorem 3.2's condition with equality."""
    q = 0.0
    for _ in range(t):
        q = np.sqrt((q + 2) ** 2 + 1) - 1
    return q


def q_family_bound(gamma, q, distance):
    """Theorem 3.2: f(x_t) - f* <= 2 ||x_0 - x*||^2 / (gamma_t q_t (q_t + 2)).

    The proof gives it with gamma_{t-1} >= gamma_t too: x_t does not know gamma_t yet.
    """
    return np.inf if q == 0 else 2 * distance**2 / (gamma * q * (q + 2))


def euclidean_function_restart(
    value, gradient, x0, *, gamma=0.1, growth=1.7, c_L=0.7, c_R=0.01, grow=True
):
    """Algorithm 1 on R^n (eq. restart); c_R = 0 is the scheme f(x_t) > f(x_{t-1})."""
    x, y, k, restarted = x0, x0, 0, False
    f_x = value(x)
    while True:
        f_y, g = value(y), gradient(y)
        slope = float(np.sum(g**2))
        yield Iterate(x, y, f_y, float(np.sqrt(slope)), gamma, k, restarted)
        x_new, f_new, gamma = two_sided_search(
            value, _line(y, g), f_y, slope, gamma, growth, c_L, grow
        )
        restarted = bool(f_new > f_x - c_R * gamma * slope)
        if restarted:
            y, k = x, 0
        else:
            y = x_new + k / (k + 3) * (x_new - x)
            x, f_x, k = x_new, f_new, k + 1


def euclidean_gradient_restart(value, gradient, x0, *, gamma=0.1, growth=1.7, c_L=0.7, grow=True):
    """Algorithm 2 on R^n: restart when grad f(y_t) . (x_{t+1} - x_t) > 0."""
    x, y, k, restarted = x0, x0, 0, False
    while True:
        f_y, g = value(y), gradient(y)
        slope = float(np.sum(g**2))
        yield Iterate(x, y, f_y, float(np.sqrt(slope)), gamma, k, restarted)
        x_new, _, gamma = two_sided_search(value, _line(y, g), f_y, slope, gamma, growth, c_L, grow)
        restarted = bool(np.sum(g * (x_new - x)) > 0)
        if restarted:
            y, k = x, 0
        else:
            y = x_new + k / (k + 3) * (x_new - x)
            x, k = x_new, k + 1


def _line(y, g):
    return lambda gamma: y - gamma * g


# ---------------------------------------------------------------------------------------------
# Mutants: what the paper prints, or what it invites
# ---------------------------------------------------------------------------------------------


@generalised("pp", "c")
def printed_lift(X, Y):
    """V_t of Algorithms 1 and 2 as printed: 2 Y (I + Y^H X)^{-1}, projected at X."""
    return project(X, 2 * Y @ np.linalg.inv(np.eye(X.shape[1]) + adjoint(Y) @ X))


@generalised("pp", "c")
def printed_restart_lift(Y, X):
    """W_t of Algorithm 2 as printed: 2 X (I + X^H Y)^{-1}, projected at X; meant is lift(Y, X)."""
    return project(X, 2 * X @ np.linalg.inv(np.eye(X.shape[1]) + adjoint(X) @ Y))


@generalised("pcc", "s")
def printed_inner_dual(X, W, G):
    """<W, G>_g* without its second term: Re Tr(W^H G)."""
    return pair(W, G)


@generalised("pc", "p")
def printed_raise_index(X, W):
    """(I + X X^H) W of a W that is not projected first: not tangent."""
    return dual_metric_matrix(X) @ W


def printed_optimal_weights(eigenvalues, k):
    """a_i = sum_{j=0}^{i-1} 1 / (lambda_{k-i+1} - lambda_{k-i}): i where j is meant."""
    lam = np.concatenate([[-np.inf], np.asarray(eigenvalues, float)])  # lam[0] is undefined
    return np.array([i / (lam[k - i + 1] - lam[k - i]) for i in range(1, k + 1)])


def printed_function_restart(value, gradient, X0, **options):
    """Algorithm 1 with the printed V_t."""
    return function_restart(value, gradient, X0, lift_map=printed_lift, **options)


def printed_gradient_restart(value, gradient, X0, **options):
    """Algorithm 2 with the printed W_t and, unless lift_map says otherwise, the printed V_t."""
    maps = {"lift_map": printed_lift, "restart_map": printed_restart_lift}
    return gradient_restart(value, gradient, X0, **(maps | options))
