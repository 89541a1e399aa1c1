"""Wrong geometries, each off by one plausible mistake, that the laws must reject.

Among them are the transposes that Algorithms 1 and 2 print, and the simplifications that the
algebra invites.
"""

from dataclasses import dataclass

import numpy as np

import oracles
from cases import GEOMETRIES, NUMPY, SeenThroughNumPy
from stiefel import Grassmann, Stiefel
from stiefel.backends.base import Kernels

CASES = {case.name: case for case in GEOMETRIES}


def adjoint(A):
    return A.conj().mT


def herm(A):
    return (A + adjoint(A)) / 2


@dataclass(frozen=True)
class Mutant:
    """A manifold class with a mistake, and the case on which it must be caught."""

    name: str
    manifold: type
    case: str = "stiefel"

    def geometry(self):
        case = CASES[self.case]
        return SeenThroughNumPy(self.manifold(**({"B": case.B} if case.with_B else {})), NUMPY)

    def __str__(self):
        return f"{self.name}-{self.case}"


def mutant(base=Stiefel, **methods):
    """A subclass with other methods (the first argument of each is the instance)."""
    return type("Mutant", (base,), methods)


class Curve:
    """A ray made of any function of t."""

    defect = 0.0

    def __init__(self, function, squared_norm):
        self._function, self.squared_norm = function, squared_norm

    def __call__(self, t):
        return self._function(t)


def ray_from(function):
    """A manifold whose ray is t ↦ function(X, tW), extrapolating along itself."""

    def ray(self, X, W):
        return Curve(lambda t: function(X, t * W), Stiefel.inner(self, X, W, W))

    return ray


def extrapolating_by(lift):
    """Lift and extrapolation built on a wrong lift."""

    def extrapolate(self, X, Y, tau):
        return self.ray(X, lift(X, Y))(tau)

    return {"lift": lambda self, X, Y: lift(X, Y), "extrapolate": extrapolate}


# -- kernels with a mistake: they reach every formula that uses them ---------------------------


class NoConjugate(Kernels):
    """Transposes where adjoints are meant."""

    def conj(self, A):
        return A


class UnitGram(Kernels):
    """XᴴX = I and YᴴY = I put into the formulas instead of being measured."""

    def grams(self, A, B):
        a, m, d = super().grams(A, B)
        is_point = np.abs(d - np.eye(d.shape[-1])).max() < 1e-3
        return 0 * a + np.eye(a.shape[-1]), m, 0 * d + np.eye(d.shape[-1]) if is_point else d


class SwappedGram(Kernels):
    """BᴴA where AᴴB is meant."""

    def gram(self, A, B):
        return super().gram(B, A)


class NegatedGram(Kernels):
    """A sign error in the mixed Gram matrix."""

    def grams(self, A, B):
        a, m, d = super().grams(A, B)
        return a, -m, d


def on_kernels(kernels):
    return mutant(kernels_at=lambda self, X: kernels(np))


# -- retractions that are not this one ------------------------------------------------------------


def qr_retraction(X, W):
    Q, R = np.linalg.qr(X + W + X @ (adjoint(X) @ W))
    return Q * np.sign(np.diagonal(R))


def polar_of_cotangent(X, W):
    """A retraction of the embedded metric: it takes the cotangent for the tangent."""
    return oracles.polar_factor(X + W)


def backward(X, W):
    return oracles.cayley(X, -W)


def printed_cayley(X, W):
    """W Xᵀ − Xᵀ W has no shape; what it invites is one term of the two."""
    S = W @ adjoint(X)
    one = np.eye(len(X))
    return np.linalg.solve(one - S / 2, (one + S / 2) @ X)


def half_step(X, W):
    """U = [W/2, X] without its halves."""
    return oracles.cayley(X, 2 * W)


def wrong_woodbury(X, W):
    """Eq. (R1) with Z = [X, W/2]: a sign."""
    U, Z = np.hstack([W / 2, X]), np.hstack([X, W / 2])
    return X + 2 * U @ np.linalg.inv(np.eye(U.shape[1]) - adjoint(Z) @ U) @ adjoint(Z) @ X


def transposed_cayley(X, W):
    """Without the conjugate in S = WXᴴ − XWᴴ."""
    S = W @ X.T - X @ W.T
    one = np.eye(len(X))
    return np.linalg.solve(one - S / 2, (one + S / 2) @ X)


# -- lifts ----------------------------------------------------------------------------------------


def unprojected_lift(X, Y):
    return 2 * Y @ np.linalg.inv(np.eye(X.shape[1]) + adjoint(X) @ Y)


def negated_lift(X, Y):
    return -oracles.lift(X, Y)


def chord(X, Y):
    """Y − X, projected: right to first order only."""
    return oracles.project(X, Y - X)


def transposed_lift(X, Y):
    return oracles.project(X, 2 * Y @ np.linalg.inv(np.eye(X.shape[1]) + X.T @ Y))


# -- projections, metrics -----------------------------------------------------------------------


def project_with(function):
    return {
        "project": lambda self, X, G: function(X, G),
        "project_direction": lambda self, X, W: function(X, W),
    }


def without_second_term(self, X, V, W):
    return float(np.vdot(V, W).real)


def inner_with_minus(self, X, V, W):
    return float((np.vdot(V, W) - np.vdot(adjoint(X) @ V, adjoint(X) @ W)).real)


def geodesic_of_tangent(self, X, W, t=1.0):
    """The formula for tangents, fed with a cotangent."""
    return oracles.geodesic(X, W, t)


def unweighted_project(self, X, G):
    """Without B⁻¹: a Euclidean gradient taken for a cotangent in the library's coordinates."""
    return G - X @ herm(adjoint(X) @ G)


MUTANTS = tuple(
    [
        Mutant(name, manifold)
        for name, manifold in {
            "printed V_t": mutant(**extrapolating_by(oracles.printed_lift)),
            "printed W_t": mutant(**extrapolating_by(oracles.printed_restart_lift)),
            "printed W_t, lift only": mutant(
                lift=lambda self, X, Y: oracles.printed_restart_lift(X, Y)
            ),
            "printed V_t, extrapolate only": mutant(
                extrapolate=lambda self, X, Y, tau: oracles.cayley(
                    X, tau * oracles.printed_lift(X, Y)
                )
            ),
            "unprojected lift": mutant(**extrapolating_by(unprojected_lift)),
            "negated lift": mutant(**extrapolating_by(negated_lift)),
            "chord": mutant(**extrapolating_by(chord)),
            "inner without second term": mutant(inner=without_second_term),
            "inner with a minus": mutant(inner=inner_with_minus),
            "unprojected gradient": mutant(**project_with(lambda X, G: G)),
            "unprojected raising": mutant(
                project=lambda self, X, G: G,
                raise_index=lambda self, X, W: oracles.printed_raise_index(X, W),
            ),
            "projection without its half": mutant(
                **project_with(lambda X, G: G - 2 * X @ herm(adjoint(X) @ G))
            ),
            "projection with a plus": mutant(
                **project_with(lambda X, G: G + X @ herm(adjoint(X) @ G))
            ),
            "horizontal projection": mutant(**project_with(oracles.horizontal)),
            "no raising": mutant(raise_index=lambda self, X, W: W),
            "raising by a half": mutant(
                raise_index=lambda self, X, W: W + X @ (adjoint(X) @ W) / 2
            ),
            "lowering with a plus": mutant(
                lower_index=lambda self, X, T: T + X @ (adjoint(X) @ T) / 2
            ),
            "XᵀX = I": on_kernels(UnitGram),
            "swapped Gram": on_kernels(SwappedGram),
            "negated Gram": on_kernels(NegatedGram),
            "backward": mutant(ray=ray_from(backward)),
            "one term of Ω": mutant(ray=ray_from(printed_cayley)),
            "without halves": mutant(ray=ray_from(half_step)),
            "sign in Woodbury": mutant(ray=ray_from(wrong_woodbury)),
            "embedded metric": mutant(ray=ray_from(polar_of_cotangent)),
            "geodesic of the wrong vector": mutant(geodesic=geodesic_of_tangent),
            "extrapolation from the other end": mutant(
                extrapolate=lambda self, X, Y, tau: Stiefel.extrapolate(self, Y, X, tau)
            ),
            "momentum from Y": mutant(
                extrapolate=lambda self, X, Y, tau: Stiefel.extrapolate(self, X, Y, 1 + tau)
            ),
        }.items()
    ]
    + [
        Mutant("QR retraction", mutant(ray=ray_from(qr_retraction))),
        Mutant("no conjugate", on_kernels(NoConjugate), "stiefel-complex"),
        Mutant("no conjugate", on_kernels(NoConjugate), "column-complex"),
        Mutant(
            "no conjugate in the retraction",
            mutant(ray=ray_from(transposed_cayley)),
            "stiefel-complex",
        ),
        Mutant(
            "no conjugate in the lift",
            mutant(**extrapolating_by(transposed_lift)),
            "stiefel-complex",
        ),
        Mutant(
            "no conjugate in the projection",
            mutant(**project_with(lambda X, G: G - X @ (X.T @ G + (X.T @ G).T) / 2)),
            "stiefel-complex",
        ),
        Mutant(
            "complex inner product",
            mutant(inner=lambda self, X, V, W: abs(np.vdot(V, W))),
            "stiefel-complex",
        ),
        *(
            Mutant(f"printed {letter}", mutant(**extrapolating_by(lift)), case)
            for case in ("stiefel-complex", "column-complex", "nearly-square")
            for letter, lift in (
                ("V_t", oracles.printed_lift),
                ("W_t", oracles.printed_restart_lift),
            )
        ),
        Mutant("inner without second term", mutant(inner=without_second_term), "column-complex"),
        Mutant("XᵀX = I", on_kernels(UnitGram), "square"),
        Mutant("XᵀX = I", on_kernels(UnitGram), "column"),
        Mutant("XᵀX = I", on_kernels(UnitGram), "stack"),
        Mutant("gradient without B⁻¹", mutant(project=unweighted_project), "generalised"),
        Mutant("inner product without B", mutant(inner=without_second_term), "generalised"),
        Mutant(
            "not aligned",
            mutant(Grassmann, lift=Stiefel.lift, extrapolate=Stiefel.extrapolate),
            "grassmann",
        ),
        Mutant("vertical gradients", mutant(Grassmann, project=Stiefel.project), "grassmann"),
    ]
)
