"""Compressed modes: localised functions that span what the lowest eigenfunctions span, nearly.

    min  Σ_j ∫ ψ_j H ψ_j + (1/μ) Σ_j ∫ |ψ_j|   subject to   ∫ ψ_i ψ_j = δ_ij,     H = −½Δ + V

on a periodic box of any dimension.  |ψ| is smoothed to sqrt(ψ² + ε²), and ε falls from stage to
stage.  The preconditioner inverts, by FFT, the quadratic function that lies above the smoothed
one and touches it at ψ.  The last stage is the problem itself, by a proximal Newton method: modes
end exactly where they end, and the residual is that of the nonsmooth problem.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import scipy.fft
import scipy.linalg
import scipy.sparse.linalg
import scipy.special

import stiefel
from stiefel.objectives import CompressedModes
from stiefel.types import NumpyArray as Array

STAGES = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4)  # ε, of the typical size of ψ
SUPPORT = 10.0  # times ε: where |ψ| is larger, it has a sign
FLAT_DECREASE = 1e-8  # in ten iterations: as μ → ∞ rotations among the modes cost nothing
UNSMOOTHED = 1e-13  # an ε beneath the rounding of any ψ
MOST_EVALUATIONS = 1000  # of the last stage


class ClosedForm(NamedTuple):
    """One mode of free electrons whose support fits into the box."""

    kappa: float
    energy: float
    extent: float  # length of the support in 1-D, radius of the disc in 2-D


def closed_form(mu: float, dimension: int) -> ClosedForm:
    """ψ ∝ 1 + cos κx on |x| ≤ π/κ; in 2-D ψ ∝ J₀(κr) − J₀(j₁₁) on r ≤ j₁₁/κ."""
    if dimension == 1:
        kappa = (3 * math.pi / mu**2) ** (1 / 5)
        return ClosedForm(kappa, 5 * kappa**2 / 6, 2 * math.pi / kappa)
    if dimension == 2:
        zero = float(scipy.special.jn_zeros(1, 1)[0])  # j₁₁
        kappa = (2 * math.pi * zero**2 / mu**2) ** (1 / 6)
        return ClosedForm(kappa, 3 * kappa**2 / 4, zero / kappa)
    raise ValueError(f"dimension is {dimension}; closed forms are known for 1 and 2")


@dataclass(frozen=True, eq=False)
class Modes:
    """Compressed modes on a grid, with how they were found."""

    X: Array  # (n, number): orthonormal columns, ψ = X/√c with the cell volume c
    objective: CompressedModes  # of the last stage
    results: tuple[stiefel.Result, ...]  # one for each stage

    @property
    def functions(self) -> Array:
        """ψ_j on the grid, of shape ``(number, *shape)``."""
        psi = self.X.T / math.sqrt(self.objective.cell_volume)
        return psi.reshape(-1, *self.objective.shape)

    @property
    def energies(self) -> Array:
        """∫ψHψ + (1/μ)∫|ψ| of every mode, without smoothing."""
        sharp = _objective(self.objective, UNSMOOTHED)
        return np.array([sharp.value(self.X[:, j : j + 1]) for j in range(self.X.shape[1])])

    @property
    def energy(self) -> float:
        """The sum of `energies`."""
        return float(self.energies.sum())

    @property
    def quadratic_energy(self) -> float:
        """Σ ∫ψHψ alone: at least the sum of the lowest eigenvalues of H."""
        return float(np.vdot(self.X, hamiltonian(self.objective) @ self.X))

    @property
    def residual(self) -> float:
        """How far the modes are from a stationary point of the problem without smoothing.

        0 ∈ 2Hψ + (1/μ)∂|ψ| − ψΛ, Λ the multipliers of ∫ψ_iψ_j = δ_ij.  On the support the
        derivative of |ψ| is a sign, off it anything between −1 and 1: the norm of what is left,
        relative to that of the signs.  After the last stage, the χ that it reached, relative to
        the same.  A pure number, the same in all units.
        """
        o, X, last = self.objective, self.X, self.results[-1]
        if "support" in last and last.x is X:
            return float(last.gradient_norm) / _size_of_signs(o, X)
        weight = math.sqrt(o.cell_volume) / o.mu
        inside = _inside(o, X)
        G = 2.0 * (hamiltonian(o) @ X)
        signs = weight * np.where(inside, np.sign(X), 0.0)
        Lambda = X.T @ (G + signs)
        R = G - X @ (0.5 * (Lambda + Lambda.T))
        left = np.where(inside, R + signs, np.maximum(np.abs(R) - weight, 0.0))
        return float(np.linalg.norm(left) / np.linalg.norm(signs))

    @property
    def evaluations(self) -> int:
        return sum(r.nfev for r in self.results)

    @property
    def supports(self) -> Array:
        """Volume on which ψ_j is not zero."""
        return np.count_nonzero(self.X, axis=0) * self.objective.cell_volume

    def extents(self, threshold: float = 1e-2) -> Array:
        """Volume on which |ψ_j| exceeds ``threshold`` times its maximum."""
        size = np.abs(self.X)
        inside = size > threshold * size.max(axis=0)
        return inside.sum(axis=0) * self.objective.cell_volume


def compressed_modes(
    shape: Sequence[int],
    lengths: Sequence[float],
    number: int,
    mu: float,
    *,
    potential: Array | None = None,
    stages: Sequence[float] = STAGES,
    rtol: float = 1e-2,
    gtol: float = 5e-9,
    seed: Any = None,
    start: Array | None = None,
    callback: Callable[[Any], Any] | None = None,
    progress: bool = False,
) -> Modes:
    """The compressed modes of −½Δ + potential on a periodic grid.

    Parameters
    ----------
    shape, lengths
        Grid points and box length in each dimension.
    number
        How many modes.
    mu
        Large is spread out and smooth, small is localised.
    potential
        V on the grid; none for free electrons.
    stages
        The values of ε, falling, as fractions of the typical size of ψ; so results are the same
        in all units.
    rtol
        Each stage ends when its gradient has fallen by this factor, or when f has stopped falling.
    gtol
        The last stage, without smoothing, ends when `Modes.residual` is this small; 0 leaves it
        out.
    seed, start
        The start: (n, number) with orthonormal columns; by default `scdm_start`, or with a seed
        random smooth functions.
    callback, progress
        As for `stiefel.minimize`.

    L-BFGS: an evaluation costs little more than the preconditioner, and stages end early.
    """
    if not stages:
        raise ValueError("stages is empty; expected at least one ε")
    if not (isinstance(number, Integral) and number > 0 and all(v > 0 for v in (mu, *lengths))):
        raise ValueError(
            f"number is {number!r}, mu {mu!r} and lengths {lengths!r}; expected numbers > 0"
        )
    if not math.isfinite(mu) or (potential is not None and not np.all(np.isfinite(potential))):
        raise ValueError("mu and the potential must be finite")
    size = typical_size(lengths, number, mu)
    objective = CompressedModes(tuple(shape), tuple(lengths), mu, stages[0] * size, potential)
    X = _first(objective, number, seed) if start is None else start
    flat = FLAT_DECREASE * min(1.0, abs(objective.value(X)))  # relative also where |f| < 1
    results: list[stiefel.Result] = []
    for epsilon in stages:
        objective = _objective(objective, epsilon * size)
        result = stiefel.minimize(
            objective,
            X,
            method="lbfgs",
            precond=inverse_hessian(objective, number),
            rtol=rtol,
            ftol=flat,
            callback=callback,
            progress=progress,
        )
        X = spaced(objective, result) if len(results) < 2 else result.x
        results.append(result)
    if gtol:
        results.append(_finished(objective, X, gtol, callback, progress))
    return Modes(results[-1].x, objective, tuple(results))


def spaced(o: CompressedModes, result: stiefel.Result) -> Array:
    """Copies of the best mode at equal distances on a ring, if that lowers the value.

    Free modes have no place of their own and are translates of each other; where two of them
    overlap they part slowly, and each settles on the grid by itself: most of a run is spent on
    that.  Moving a mode by grid points leaves its own value as it is.  Two evaluations: one of the
    modes apart, one of the copies.
    """
    X = result.x
    if len(o.shape) > 1 or o.potential is not None:
        return X
    n, k = X.shape
    centres = np.angle(np.exp(2j * np.pi * np.arange(n) / n) @ X**2) * n / (2 * np.pi)
    order = np.argsort(centres)
    places = centres[order[0]] + np.arange(k) * n / k
    places += np.mean(centres[order] - places)
    moved = np.empty_like(X)
    best = min(range(k), key=lambda j: o.value(X[:, j : j + 1]))
    for place, j in zip(places, order):
        moved[:, j] = np.roll(X[:, best], round(place - centres[best]))
    moved = stiefel.nearest(moved)
    result.nfev += 2
    return moved if o.value(moved) < result.fun else X


def _inside(o: CompressedModes, X: Array) -> Array:
    """Where the modes have a sign."""
    return np.abs(X) > SUPPORT * o.epsilon * math.sqrt(o.cell_volume)


def _size_of_signs(o: CompressedModes, X: Array) -> float:
    """The norm of the derivative of (√c/μ)‖X‖₁ on the support."""
    return math.sqrt(o.cell_volume * (np.count_nonzero(_inside(o, X)) or X.size)) / o.mu


def _finished(
    objective: CompressedModes,
    X: Array,
    gtol: float,
    callback: Callable[[Any], Any] | None,
    progress: bool,
) -> stiefel.Result:
    """The problem itself, ⟨X, HX⟩ + (√c/μ)‖X‖₁, from the modes of the last ε."""
    H = hamiltonian(objective)

    def fun(X: Array) -> tuple[float, Array]:
        HX = H @ X
        return float(np.vdot(X, HX)), 2.0 * HX

    return stiefel.minimize(
        fun,
        X,
        nonsmooth=stiefel.L1(math.sqrt(objective.cell_volume) / objective.mu),
        hessp=lambda X, V: 2.0 * (H @ V),
        rtol=0.0,
        gtol=gtol * _size_of_signs(objective, X),
        maxfun=MOST_EVALUATIONS,
        callback=callback,
        progress=progress,
    )


def typical_size(lengths: Sequence[float], number: int, mu: float) -> float:
    """The size of ψ: 1/√volume of one mode, its extent being μ^(2/(4 + dimension)) or its share.

    In a unit of length s times smaller, μ is s^(2 + dimension/2) times larger: so this extent is
    the one length that μ alone gives.
    """
    dimension = len(lengths)
    share = math.prod(lengths) / number
    return 1.0 / math.sqrt(min(mu ** (2.0 * dimension / (4.0 + dimension)), share))


def scdm_start(objective: CompressedModes, number: int) -> Array:
    """Localised functions in the span of the lowest eigenfunctions Ψ, by a pivoted QR.

    The pivots of Ψᵀ are points where its rows are nearly orthogonal; the columns of ΨΨᵀ at these
    points are localised there, and orthonormalised they are the start.  O(n·number²), with the
    eigenfunctions by LOBPCG: no random numbers decide where the modes are.
    """
    apply = inverse_hessian(objective, number)
    guess = _random_start(objective, number, 0)
    zero = np.zeros_like(guess)
    shape = (objective.n, objective.n)

    def inverse(G: Array) -> Array:
        columns = G.reshape(objective.n, -1)
        return apply(zero[:, : columns.shape[1]], columns).reshape(G.shape)

    M = scipy.sparse.linalg.LinearOperator(shape, matvec=inverse, matmat=inverse, dtype=float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it is a start: it need not converge
        Psi = scipy.sparse.linalg.lobpcg(
            hamiltonian(objective), guess, M=M, largest=False, tol=1e-4, maxiter=60
        )[1]
    pivots = scipy.linalg.qr(Psi.T, mode="r", pivoting=True)[1][:number]
    return stiefel.nearest(Psi @ Psi[pivots].T)


def _first(objective: CompressedModes, number: int, seed: Any) -> Array:
    if seed is not None or 5 * number >= objective.n:
        return _random_start(objective, number, seed or 0)
    return scdm_start(objective, number)


def refined(modes: Modes) -> Array:
    """The modes on a grid of twice as many points in each dimension, as a start there."""
    grid = modes.X.reshape(*modes.objective.shape, -1)
    for axis in range(grid.ndim - 1):
        grid = np.repeat(grid, 2, axis=axis)
    return stiefel.nearest(grid.reshape(-1, modes.X.shape[1]))


def inverse_hessian(objective: CompressedModes, number: int) -> Callable[[Array, Array], Array]:
    """G ↦ w(−Δ + σ)⁻¹(wG) + (1 − w²)G/(d + λ̄), one pair of FFTs for each column.

    An approximate inverse of −Δ + d, where d = 1/(μ sqrt(ψ² + ε²)) is the curvature of the
    parabola above the smoothed |ψ|, from 1/(μ max|ψ|) on the support to 1/(με) off it: w² = min d/d
    chooses between −Δ there and d here (λ̄ is the mean of −Δ).  σ is min d, with the
    ``number``-th level of −Δ and the depth of the potential, all that is left as μ → ∞.
    """
    symbol = laplacian_symbol(objective)
    floor = float(np.sort(symbol, axis=None)[min(number, symbol.size - 1)])
    if objective.potential is not None:
        floor += 2.0 * float(np.mean(objective.potential) - np.min(objective.potential))
    mean, c = float(symbol.mean()), objective.cell_volume
    half = symbol[..., : objective.shape[-1] // 2 + 1, None]
    axes = tuple(range(len(objective.shape)))

    def apply(X: Array, G: Array) -> Array:
        d = 1.0 / (objective.mu * np.sqrt(X**2 / c + objective.epsilon**2))
        least = d.min(axis=0)
        weight = np.sqrt(least / d)
        grid = scipy.fft.rfftn((weight * G).reshape(*objective.shape, -1), axes=axes)
        grid /= half + (least + floor)
        smooth = scipy.fft.irfftn(grid, s=objective.shape, axes=axes).reshape(G.shape)
        return np.asarray(weight * smooth + (1.0 - weight**2) / (d + mean) * G)

    return apply


def laplacian_symbol(objective: CompressedModes) -> Array:
    """The eigenvalues of the difference stencil −Δ, one for each wave number."""
    total = np.zeros(objective.shape)
    for axis, (points, length) in enumerate(zip(objective.shape, objective.lengths, strict=True)):
        step = length / points
        wave = (2 - 2 * np.cos(2 * np.pi * scipy.fft.fftfreq(points))) / step**2
        total += wave.reshape([-1 if a == axis else 1 for a in range(len(objective.shape))])
    return total


def wells(
    shape: Sequence[int],
    lengths: Sequence[float],
    counts: Sequence[int],
    depth: float,
    width: float,
) -> Array:
    """A Kronig–Penney-like potential: −depth·Σ exp(−|x − x_j|²/2 width²), x_j on a lattice.

    ``counts`` wells in each dimension, evenly spaced; periodic.
    """
    factors = []
    for points, length, count in zip(shape, lengths, counts, strict=True):
        x = np.arange(points) * length / points
        centres = (np.arange(count) + 0.5) * length / count
        distance = (x[:, None] - centres + length / 2) % length - length / 2
        factors.append(np.exp(-(distance**2) / (2 * width**2)).sum(axis=1))
    product = factors[0]
    for factor in factors[1:]:
        product = np.multiply.outer(product, factor)
    return -depth * product


def hamiltonian(objective: CompressedModes) -> scipy.sparse.linalg.LinearOperator:
    """H = −½Δ + V as an operator on columns, by the objective's own stencil."""

    def apply(X: Array) -> Array:
        columns = np.ascontiguousarray(X.reshape(objective.n, -1), dtype=float)
        twice = np.zeros_like(columns)
        objective._quadratic(columns, twice)
        return 0.5 * twice.reshape(X.shape)

    shape = (objective.n, objective.n)
    return scipy.sparse.linalg.LinearOperator(shape, matvec=apply, matmat=apply, dtype=float)


def largest_angle(modes: Modes, eigenfunctions: Array) -> float:
    """The largest angle between span ψ and the span of the given orthonormal columns."""
    return float(scipy.linalg.subspace_angles(modes.X, eigenfunctions)[0])


def _objective(objective: CompressedModes, epsilon: float) -> CompressedModes:
    o = objective
    return CompressedModes(o.shape, o.lengths, o.mu, epsilon, o.potential)


def _random_start(objective: CompressedModes, number: int, seed: Any) -> Array:
    """Random functions without high frequencies, smooth on the scale of the modes."""
    noise = np.random.default_rng(seed).standard_normal((objective.n, number))
    return stiefel.nearest(inverse_hessian(objective, number)(0.0 * noise, noise))


def plot(modes: Modes, path: str) -> None:
    """Draw the modes to a file: curves in 1-D, one picture with all of them in 2-D."""
    from matplotlib.figure import Figure

    psi, lengths = modes.functions, modes.objective.lengths
    if psi.ndim > 3:
        raise ValueError(f"modes in {psi.ndim - 1} dimensions cannot be drawn; expected 1 or 2")
    figure = Figure(figsize=(7, 3.5 if psi.ndim == 2 else 6), layout="constrained")
    axes = figure.subplots()
    # The sign of a mode means nothing: draw the larger lobe upwards.
    signs = np.sign(psi.reshape(len(psi), -1).sum(axis=1))
    if psi.ndim == 2:
        axes.plot(np.arange(psi.shape[1]) * lengths[0] / psi.shape[1], (signs[:, None] * psi).T)
        axes.set(xlabel="x", ylabel="ψ")
        _draw_potential(axes, modes)
    else:
        signed = np.einsum("j,jxy->xy", signs, psi)  # supports are nearly disjoint
        image = axes.imshow(
            signed.T, origin="lower", extent=(0, lengths[0], 0, lengths[1]), cmap="viridis"
        )
        figure.colorbar(image, ax=axes, label="Σψ")
        axes.set(xlabel="x", ylabel="y")
        _draw_potential(axes, modes)
    axes.set_title(f"{len(psi)} compressed modes, μ = {modes.objective.mu:g}")
    figure.savefig(path)


def _draw_potential(axes: Any, modes: Modes) -> None:
    """A grey curve on an axis of its own, or contour lines."""
    o = modes.objective
    if o.potential is None:
        return
    V = np.asarray(o.potential).reshape(o.shape)
    if V.ndim == 1:
        right = axes.twinx()
        right.plot(np.arange(len(V)) * o.lengths[0] / len(V), V, color="0.6", linestyle="--")
        right.set_ylabel("V")
        return
    x, y = (np.arange(p) * length / p for p, length in zip(o.shape, o.lengths, strict=True))
    axes.contour(x, y, V.T, colors="white", linewidths=0.5)
