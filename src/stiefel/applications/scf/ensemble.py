"""Fractional occupations: the free energy as a function of a pseudo-Hamiltonian.

With H̃ Hermitian in the orthonormal basis, ε and U its eigenvalues and eigenvectors, and
θ_i = θ((μ − ε_i)/σ) with μ such that the electrons are as many as they must be,

    D = g U diag(θ) Uᴴ,     A(H̃) = E(D) − TS,     −TS = σ g Σ a((μ − ε_i)/σ),

where θ' is the broadened δ function and a(x) = ∫ t θ'(t) dt up to x.  Orbitals and occupations
move together, and nothing is constrained.  With K_ij = (θ_i − θ_j)/(ε_i − ε_j) and R = F − H̃ in
the eigenvectors of H̃,

    dA = g Tr (F − H̃) dθ,   so that   ∇A = g K∘(R − R̄),   R̄ = Σ K_ii R_ii / Σ K_ii.

At the minimum H̃ = F where K ≠ 0.  Divided by K the gradient is H̃ − F: a step of length one is
the iteration that DIIS extrapolates, and here each step must lower A.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
import scipy.special

from stiefel import Euclidean
from stiefel.types import Array

from .builder import Build, FockBuilder
from .energy import OrbitalPoint, Orbitals, Recent, arranged
from .layout import Block, OrbitalLayout, at_place
from .response import Responses

LEAST_OCCUPATION_SLOPE = 0.01  # 1/Ha; pairs of levels with a smaller |K| hardly change the density
STIFFNESS = 0.3  # Ha: a typical second derivative of E by occupations (a nitrogen atom's test)
NARROW = 1e-7  # of σ: closer levels take the derivative for the difference quotient


@dataclass(frozen=True)
class Smearing:
    """Occupations that fall smoothly over the width σ.

    Parameters
    ----------
    sigma
        The width σ, in Ha; for Fermi–Dirac the temperature.
    kind
        "fermi", "gaussian" or "marzari-vanderbilt".
    fix_spin
        Whether each spin keeps its number of electrons.

    Examples
    --------
    >>> Smearing(0.01).occupations(np.array([0.0]))
    array([0.5])
    """

    sigma: float
    kind: str = "fermi"
    fix_spin: bool = False

    def __post_init__(self) -> None:
        if not self.sigma > 0:
            raise ValueError(f"sigma is {self.sigma!r}; expected a width > 0, in Ha")
        if self.kind not in SMEARINGS:
            raise ValueError(
                f"smearing {self.kind!r} is not known; expected one of {list(SMEARINGS)}"
            )

    def occupations(self, x: Array) -> Array:
        """θ(x), from 0 far below to 1 far above."""
        return SMEARINGS[self.kind][0](x)

    def slope(self, x: Array) -> Array:
        """θ'(x), the broadened δ function."""
        return SMEARINGS[self.kind][1](x)

    def entropy(self, x: Array) -> Array:
        """−a(x) = −∫ t θ'(t) dt: what every level adds to S."""
        return SMEARINGS[self.kind][2](x)


def _fermi_slope(x: Array) -> Array:
    return scipy.special.expit(x) * scipy.special.expit(-x)


def _fermi_entropy(x: Array) -> Array:
    f, h = scipy.special.expit(x), scipy.special.expit(-x)
    return scipy.special.entr(f) + scipy.special.entr(h)


def _cold(x: Array) -> tuple[Array, Array]:
    y = x - np.sqrt(0.5)
    return y, np.exp(-np.minimum(y * y, 700.0))


def _cold_occupations(x: Array) -> Array:
    y, e = _cold(x)
    return 0.5 * scipy.special.erfc(-y) + e / np.sqrt(2 * np.pi)


def _cold_slope(x: Array) -> Array:
    y, e = _cold(x)
    return e * (1.0 - np.sqrt(2.0) * y) / np.sqrt(np.pi)


def _cold_entropy(x: Array) -> Array:
    y, e = _cold(x)
    return -y * e / np.sqrt(2 * np.pi)


SMEARINGS = {
    "fermi": (scipy.special.expit, _fermi_slope, _fermi_entropy),
    "gaussian": (
        lambda x: 0.5 * scipy.special.erfc(-x),
        lambda x: np.exp(-np.minimum(x * x, 700.0)) / np.sqrt(np.pi),
        lambda x: np.exp(-np.minimum(x * x, 700.0)) / (2 * np.sqrt(np.pi)),
    ),
    "marzari-vanderbilt": (_cold_occupations, _cold_slope, _cold_entropy),
}


def smearing_of(mf: Any) -> Smearing | None:
    """The smearing of a PySCF object, if it has one."""
    sigma = getattr(mf, "sigma", None)
    if not hasattr(mf, "smearing_method") or not sigma or not mf.smearing_method:
        return None
    if getattr(mf, "mu0", None) is not None:
        raise ValueError(f"mu0 is {mf.mu0!r}; a fixed Fermi level is not supported: leave it out")
    kind = mf.smearing_method.lower()
    if kind not in SMEARINGS:
        raise ValueError(f"smearing {kind!r} is not known; expected one of {list(SMEARINGS)}")
    return Smearing(float(sigma), kind, bool(mf.fix_spin))


@dataclass(frozen=True, eq=False)
class Ensemble:
    """What one evaluation knows: levels, occupations, and the Fock matrices."""

    Y: OrbitalPoint  # H̃ of every block
    energies: OrbitalPoint  # ε
    vectors: OrbitalPoint  # U
    arguments: OrbitalPoint  # x = (μ − ε)/σ
    filling: OrbitalPoint  # θ
    slopes: OrbitalPoint  # −K
    residual: OrbitalPoint  # R − R̄, in the eigenvectors
    F: OrbitalPoint
    build: Build
    entropy: float
    mu: tuple[float, ...]


class FreeEnergy:
    """A(H̃) with its gradient and preconditioner; see the module's text."""

    kind = "occupations"

    def __init__(self, builder: FockBuilder, layout: OrbitalLayout, smearing: Smearing) -> None:
        self.builder, self.layout, self.smearing = builder, layout, smearing
        self._factor = layout.occupation / layout.kpoints
        self._recent, self.responses = Recent(), Responses(builder)
        self.groups = self._shared_levels()
        self.stiffness = STIFFNESS

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self.layout.blocks

    @property
    def manifold(self) -> tuple[Euclidean, ...]:
        return tuple(Euclidean() for _ in self.blocks)

    def _shared_levels(self) -> list[tuple[list[int], float]]:
        """The blocks that share a Fermi level, with the electrons in them (one for each θ = 1)."""
        mf, layout = self.builder.mf, self.layout
        everything = list(range(len(layout.blocks)))
        if layout.spins and self.smearing.fix_spin:
            parts = [[i for i in everything if layout.blocks[i].spin == s] for s in (0, 1)]
            whole = np.asarray(mf.nelec, float)
            return [(p, float(n)) for p, n in zip(parts, whole, strict=True)]
        total = mf.mol.nelectron if layout.samples is None else mf.mol.tot_electrons(layout.kpoints)
        return [(everything, float(total) / layout.occupation)]

    def __call__(self, Y: OrbitalPoint) -> tuple[float, OrbitalPoint, Ensemble]:
        A, state = self._recent.find(Y) or self.hold(Y)
        G = tuple(
            -self._factor * _back(U, K * R)
            for U, K, R in zip(state.vectors, state.slopes, state.residual, strict=True)
        )
        return A, G, state

    def hold(self, Y: OrbitalPoint, build: Build | None = None) -> tuple[float, Ensemble]:
        """Evaluate, or keep what a build at this density gave."""
        energies, vectors = zip(*map(np.linalg.eigh, Y), strict=True)
        mu = [self._fermi_level(energies, *group) for group in self.groups]
        level = {i: m for (part, _), m in zip(self.groups, mu, strict=True) for i in part}
        x = tuple((level[i] - e) / self.smearing.sigma for i, e in enumerate(energies))
        filling = tuple(map(self.smearing.occupations, x))
        build = build or self.builder(self._density(vectors, filling))
        return self._state(Y, energies, vectors, x, filling, build, tuple(mu))

    def _state(
        self,
        Y: OrbitalPoint,
        energies: OrbitalPoint,
        vectors: OrbitalPoint,
        x: OrbitalPoint,
        filling: OrbitalPoint,
        build: Build,
        mu: tuple[float, ...],
    ) -> tuple[float, Ensemble]:
        F = tuple(b.within(b.of(build.matrices)) for b in self.blocks)
        R = [U.conj().T @ f @ U - np.diag(e) for U, f, e in zip(vectors, F, energies, strict=True)]
        K = [self._quotients(*levels) for levels in zip(x, filling, strict=True)]
        R = self._centred(K, R)
        S = self._factor * sum(float(np.sum(self.smearing.entropy(v))) for v in x)
        state = Ensemble(
            tuple(Y), energies, vectors, x, filling, tuple(K), tuple(R), F, build, S, mu
        )
        A = build.energy - self.smearing.sigma * S
        self._recent.keep(A, state)
        return A, state

    def _centred(self, K: Sequence[Array], R: Sequence[Array]) -> list[Array]:
        """R − R̄ of every group of blocks: what is left when μ keeps the number of electrons."""
        R = list(R)
        for part, _ in self.groups:
            slopes = np.concatenate([np.diag(K[i]) for i in part])
            parts = np.concatenate([np.real(np.diag(R[i])) for i in part])
            mean = float(slopes @ parts / slopes.sum()) if slopes.sum() else 0.0
            for i in part:
                R[i] = R[i] - mean * np.eye(len(R[i]))
        return R

    def _quotients(self, x: Array, filling: Array) -> Array:
        """(θ_i − θ_j)/(x_i − x_j)/σ = −K_ij, with the derivative where levels meet."""
        dx = x[:, None] - x
        near = np.abs(dx) < NARROW
        middle = self.smearing.slope(0.5 * (x[:, None] + x))
        quotient = (filling[:, None] - filling) / np.where(near, 1.0, dx)
        return np.where(near, middle, quotient) / self.smearing.sigma

    def _fermi_level(self, energies: OrbitalPoint, part: list[int], electrons: float) -> float:
        levels = np.concatenate([energies[i] for i in part])
        width = self.smearing.sigma

        def excess(mu: float) -> float:
            return float(np.sum(self.smearing.occupations((mu - levels) / width))) - electrons

        if not 0 < electrons < len(levels):
            return float(levels.max() + 40 * width if electrons else levels.min() - 40 * width)
        low, high = levels.min() - 40 * width, levels.max() + 40 * width
        return float(scipy.optimize.brentq(excess, low, high, xtol=1e-15, rtol=1e-15))

    def _density(self, vectors: OrbitalPoint, filling: OrbitalPoint) -> Any:
        coefficients = [b.X @ U for b, U in zip(self.blocks, vectors, strict=True)]
        occupations = [self.layout.occupation * f for f in filling]
        return self.builder.mf.make_rdm1(
            self.layout.nest(coefficients), self.layout.nest(occupations)
        )

    def at(self, Y: OrbitalPoint) -> Ensemble:
        return self(Y)[2]

    def precond(self, Y: OrbitalPoint, G: OrbitalPoint, aux: Ensemble) -> OrbitalPoint:
        """G divided by |K|(1 + c|K|) in the eigenvectors of H̃.

        Second derivatives by the density are 1/|K|, from the occupations, and about c, from E.
        """
        del Y
        return tuple(
            _back(U, _forth(U, g) / self._floored(K))
            for U, g, K in zip(aux.vectors, G, aux.slopes, strict=True)
        )

    def _floored(self, K: Array) -> Array:
        size = np.maximum(np.abs(K), LEAST_OCCUPATION_SLOPE)
        return self._factor * size * (1.0 + self.stiffness * size)

    def hessian_product(self, Y: OrbitalPoint, V: OrbitalPoint) -> OrbitalPoint:
        """K∘(dF − V), dF for dD = K∘(V − dμ): the Hessian where H̃ = F, one product of PySCF's."""
        aux = self.at(Y)
        K = aux.slopes  # −K
        v = [_forth(u, x) for u, x in zip(aux.vectors, V, strict=True)]
        moved = [-k * x for k, x in zip(K, self._centred(K, v), strict=True)]
        parts = [f - x for f, x in zip(self.response_to(aux, moved), v, strict=True)]
        again = zip(aux.vectors, K, self._centred(K, parts), strict=True)
        return tuple(-self._factor * _back(u, k * x) for u, k, x in again)

    def response_to(self, aux: Ensemble, changes: Sequence[Array]) -> list[Array]:
        """dF for a change of the occupation matrices, both in the eigenvectors of H̃."""
        change = self.responses.at(aux, self.orbitals)
        pairs = list(zip(self.blocks, aux.vectors, strict=True))
        parts = [_back(b.X @ u, x) for (b, u), x in zip(pairs, changes, strict=True)]
        dF = change(self.layout.occupation * self.layout.sums(self.blocks, parts))
        return [_forth(u, b.within(b.of(dF))) for b, u in pairs]

    def fixed_point(self, aux: Ensemble) -> OrbitalPoint:
        """H̃ = F: where the gradient vanishes, the same state."""
        return tuple(0.5 * (f + f.conj().T) for f in aux.F)

    def point_of(self, mo_coeff: Any, mo_occ: Any) -> OrbitalPoint:
        raise NotImplementedError("occupations follow from a pseudo-Hamiltonian")

    def with_levels(self, mo_coeff: Any, mo_energy: Any) -> OrbitalPoint:
        """H̃ with these orbitals and energies, nested in PySCF's way."""
        parts = []
        for b in self.blocks:
            S = at_place(self.builder.overlap, (None, b.kpoint))
            U = b.X.conj().T @ (S @ b.of(mo_coeff))
            parts.append(_back(U, np.diag(b.of(mo_energy))))
        return tuple(parts)

    def orbitals(self, aux: Ensemble) -> Orbitals:
        parts = [
            (b, b.X @ U, e, self.layout.occupation * f)
            for b, U, e, f in zip(self.blocks, aux.vectors, aux.energies, aux.filling, strict=True)
        ]
        return arranged(self.layout, parts)


class ScaledHessian:
    """z ↦ z + √|K| dF(√|K| z): the Hessian at H̃ = F, for changes z/√|K| of H̃.

    Real vectors, of which Hermitian matrices that keep the number of electrons are read.
    """

    def __init__(self, energy: FreeEnergy, Y: OrbitalPoint) -> None:
        self._energy, self._aux = energy, energy.at(Y)
        if any(np.any(K < 0) for K in self._aux.slopes):
            raise ValueError("these occupations do not fall with the energy everywhere")
        self._roots = [np.sqrt(K) for K in self._aux.slopes]
        self._halves = 2 if any(U.dtype.kind == "c" for U in self._aux.vectors) else 1
        self.size = self._halves * sum(r.size for r in self._roots)

    def __call__(self, z: Array) -> Array:
        own = self._kept(z)
        moved = [-r * x for r, x in zip(self._roots, own, strict=True)]
        dF = self._energy.response_to(self._aux, moved)
        parts = [x - r * f for x, r, f in zip(own, self._roots, dF, strict=True)]
        return self._flat(self._without_electrons(parts))

    def direction(self, z: Array) -> OrbitalPoint:
        """The change of H̃; levels that hardly change the density stay."""
        parts = zip(self._aux.vectors, self._roots, self._kept(z), strict=True)
        return tuple(
            _back(U, x / np.maximum(r, np.sqrt(LEAST_OCCUPATION_SLOPE))) for U, r, x in parts
        )

    def _kept(self, z: Array) -> list[Array]:
        shapes = [r.shape for r in self._roots]
        whole = z if self._halves == 1 else z[: z.size // 2] + 1j * z[z.size // 2 :]
        ends = np.cumsum([a * b for a, b in shapes])[:-1]
        parts = [p.reshape(s) for p, s in zip(np.split(whole, ends), shapes, strict=True)]
        return self._without_electrons([0.5 * (p + p.conj().T) for p in parts])

    def _without_electrons(self, parts: Sequence[Array]) -> list[Array]:
        """Orthogonal to √|K_ii|, the change of μ, in every group."""
        parts = list(parts)
        for group, _ in self._energy.groups:
            roots = [np.diag(self._roots[i]) for i in group]
            total = sum(float(r @ r) for r in roots)
            mean = sum(float(r @ np.real(np.diag(parts[i]))) for i, r in zip(group, roots))
            for i, r in zip(group, roots, strict=True):
                parts[i] = parts[i] - np.diag(r) * (mean / total if total else 0.0)
        return parts

    def _flat(self, parts: Sequence[Array]) -> Array:
        whole = np.concatenate([p.ravel() for p in parts])
        return whole.real if self._halves == 1 else np.concatenate([whole.real, whole.imag])


def _forth(U: Array, M: Array) -> Array:
    return U.conj().T @ M @ U


def _back(U: Array, M: Array) -> Array:
    product = U @ M @ U.conj().T
    return 0.5 * (product + product.conj().T)
