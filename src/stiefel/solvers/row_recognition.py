"""Whether a function has the structure ∇²f[S] = A S M, from the first steps of a run.

If it has, with a Hermitian n×n operator A and a positive definite k×k matrix M, the change of the
gradient along a step S is Y = A S M, and with D = M⁻¹

    S_jᴴ Y_l D = S_jᴴ A S_l = (S_lᴴ Y_j D)ᴴ     for all pairs j, l of steps.

With K_jl = S_jᴴY_l this is K_jl D = D K_ljᴴ, linear in D: two or three steps determine it up to a
factor, to nearly all digits.

The structure is *exact* when the D of earlier steps makes the next pair symmetric, which was not
used for it, and when a gradient ∇f = A X M + C fits, too: with C = 0, or with the C that one
evaluation at the point −X shows,

    ∇f(X) + ∇f(−X) = 2C.

For a function of the span of X, f(XQ) = f(X), M is I and C is zero.  If then a pair is symmetric up
to some per cent, ∇f(X) = A(X) X with an operator that changes slowly, as in electronic structure,
and the structure is taken for an *inexact* one.  A model of it saves evaluations in long runs only:
it is not looked for in the first steps.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy

from stiefel.backends.base import Kernels, kernel
from stiefel.types import Array, Gradient, NumpyArray

from . import row_compiled
from .problem import Problem
from .row_memory import small
from .row_ritz import asymmetry

PAIRS = 3  # from which D is learned
WEIGHTS = np.array([[1.0, 0.6, 0.3], [0.6, -0.8, 0.5], [0.3, 0.5, 0.7]])  # of K_jl in one sum
ROUNDS = 2  # the second one sees numbers near one, and small ones as well as large ones
# A gradient that fell so much during a rest (fifteen steps) soon falls to any tolerance: a model
# of a constant part would cost more than it saves.  test_a_constant_part_is_not_asked_for_where_…
FAST = 1e-3
HOPELESS = 1e-3  # the asymmetry that is left over where there is no such structure


class Gates(Protocol):
    """What `RowModel` says about recognition."""

    @property
    def gate(self) -> float: ...
    @property
    def nearly(self) -> float: ...
    @property
    def looks(self) -> int: ...
    @property
    def rest(self) -> int: ...
    @property
    def widest(self) -> int: ...


class StepEnds(NamedTuple):
    """Where a step began and ended."""

    X0: Array
    at0: Gradient
    X: Array
    at: Gradient


class SecantBlocks(NamedTuple):
    """The pairs of the last steps in blocks (m, n, k), conjugated, and SᴴY of all of them."""

    S: Array
    Y: Array
    K: NumpyArray


class Looking(NamedTuple):
    """What is known while the structure is not recognised."""

    pairs: SecantBlocks | None = None
    D: NumpyArray | None = None
    looks: int = 0  # at steps, since the last rest
    inexact: bool = True  # whether pairs of a function of the span that are nearly so will do …
    rests: int = 0  # … once the run is long: after the first rest
    rest: int = 0  # steps still to be passed over
    patient: bool = False  # whether a constant part is asked for after a rest only
    since: float = 0.0  # ‖∇f‖ where that rest began

    def again(self, gates: Gates) -> Looking:
        """At a function of the span, after a rest: each is twice as long as the one before."""
        return Looking(rests=self.rests + 1, rest=gates.rest << self.rests)

    def with_columns_known(self, D: NumpyArray, rest: int) -> Looking:
        """After so many steps one look will do."""
        return Looking(None, D, 1, self.inexact, self.rests + 1, rest)

    def waiting(self, D: NumpyArray, rest: int, norm: float) -> Looking:
        """The same of a patient one, which stays so: its first rest, or the same once more."""
        return Looking(None, D, 1, self.inexact, 1, rest, True, norm)


class Look(NamedTuple):
    """One pair (S, Y), divided by ‖S‖, and its inner products with X, ∇f(X) and older pairs."""

    S: Array
    Y: Array
    SS: NumpyArray
    SY: NumpyArray
    XY: NumpyArray
    SE: NumpyArray
    XE: NumpyArray
    older: NumpyArray  # S_jᴴY …
    newer: NumpyArray  # … and SᴴY_j
    error: float  # relative rounding errors of the pair

    def asymmetry(self, D: NumpyArray) -> float:
        """Of the pair by itself."""
        return asymmetry(self.SY.dot(D), np.diagonal(self.SS).real)

    def contradicts_a_product(self) -> float:
        """How far a gradient A X M is from being possible, whatever A and M are; 4k³.

        Then XᴴE, SᴴY and XᴴY + SᴴE, times D, are Hermitian, and tr(PQR) is conj(tr(RQP)) of them.
        """
        P, Q, R = self.XE, self.SY, self.XY + self.SE
        one, other = np.vdot(R.conj().T, P.dot(Q)), np.vdot(P.conj().T, R.dot(Q))
        sizes = [float(np.linalg.norm(A)) for A in (P, Q, R)]
        return float(abs(one - other.conjugate())) / (math.prod(sizes) or 1.0)

    def asymmetry_with_point(self, D: NumpyArray, XC: NumpyArray, SC: NumpyArray) -> float:
        """Of the pair together with X and its image (∇f − C)D; XᴴC and SᴴC are given."""
        k = len(D)
        K, squares = np.empty((2 * k, 2 * k), D.dtype), np.ones(2 * k)
        K[:k, :k], K[:k, k:], K[k:, :k], K[k:, k:] = self.XE - XC, self.XY, self.SE - SC, self.SY
        squares[k:] = self.SS.diagonal().real
        return asymmetry(K.reshape(-1, k).dot(D).reshape(2 * k, 2 * k), squares)


class Recognised(NamedTuple):
    """The structure: the pair that was explained, D, the constant part C (None for zero)."""

    seen: Look
    D: NumpyArray
    C: Array | None
    exact: bool
    rests: int = 0  # of the search before


def looked(
    gates: Gates, problem: Problem, k: Kernels, old: Looking, ends: StepEnds, span: bool
) -> Looking | Recognised | None:
    """After one more pair: recognised if the D of before explains it; None to give up."""
    if old.rest:
        return old._replace(rest=old.rest - 1)
    seen = look(k, old.pairs, ends, problem.geometry.eps(ends.X))
    if seen is None:
        return _unexplained(gates, old, span and old.inexact)
    many = not span and len(seen.SY) > gates.widest and not old.looks
    if many and 0 < widened(gates.gate, seen) < seen.contradicts_a_product():
        # It has a constant part: test_a_constant_part_of_many_columns_is_looked_at_once.
        return None
    D = old.D if old.D is not None or not span else np.eye(len(seen.SY), dtype=seen.SY.dtype)
    found = seen.asymmetry(D) if D is not None else math.inf
    if D is not None and old.looks and found <= (gate := widened(gates.gate, seen)):
        fits, C = _without_constant_part(seen, D, gate), None
        if not fits and not span and len(D) <= gates.widest:
            if old.patient and (not old.rests or ends.at.norm < FAST * old.since):
                return old.waiting(D, gates.rest // 2, ends.at.norm)
            fits, C = _constant_part(problem, k, seen, D, ends, gate)
        if fits:
            return Recognised(seen, D, C, True, old.rests)
    if span and D is not None:
        if old.inexact and old.rests and found <= gates.nearly:
            return Recognised(seen, D, None, False, old.rests)
        return _unexplained(gates, old._replace(D=D), old.inexact, found > HOPELESS)
    pairs = remembered(k, old.pairs, seen)
    if old.pairs is None:
        return _unexplained(gates, old._replace(pairs=pairs), span)
    size, fast = len(seen.SY), row_compiled.row_kernels(k, ends.X)
    if fast is not None:
        D = row_compiled.symmetrising_in_one_call(fast, pairs.K, size, WEIGHTS, ROUNDS, HOPELESS)
    else:
        D = symmetrising(pairs.K, size)
    return None if D is None else _unexplained(gates, old._replace(pairs=pairs, D=D), span)


def _unexplained(gates: Gates, old: Looking, span: bool, hopeless: bool = False) -> Looking | None:
    """One look more, until they are many; one is enough where a span has no exact structure."""
    if old.looks + 1 < gates.looks and (old.rests or not hopeless):
        return old._replace(looks=old.looks + 1)
    return old.again(gates) if span else None


def _without_constant_part(seen: Look, D: NumpyArray, gate: float) -> bool:
    """Whether AX = ∇f D fits."""
    zero = np.zeros_like(seen.XE)
    return seen.asymmetry_with_point(D, zero, zero) <= gate


def _constant_part(
    problem: Problem, k: Kernels, seen: Look, D: NumpyArray, ends: StepEnds, gate: float
) -> tuple[bool, Array | None]:
    """Whether AX = (∇f − C)D fits with the C that one evaluation at −X shows; and C."""
    mirrored = problem.gradient(problem.geometry.scale(-1.0, ends.X))
    if not mirrored.finite:
        return False, None
    C = constant_part(k, ends, mirrored)
    return fits_with(k, seen, D, ends.X, C, gate), C


def look(k: Kernels, pairs: SecantBlocks | None, ends: StepEnds, eps: float) -> Look | None:
    """What one more step shows; None if it is no step.  16nk² with two older pairs."""
    X0, at0, X, at = ends
    blocks = (X[None, ...][:0, ...],) * 2 if pairs is None else pairs[:2]
    fast = row_compiled.row_kernels(k, X)
    if fast is not None:
        known = X0, at0.G, at0.level, X, at.G, at.level, at.rotation
        seen = row_compiled.look_in_one_call(fast, blocks, known, eps)
        return None if seen is None else Look(*seen)
    level0, level = k.asarray(small(k, at0.level), X), k.asarray(small(k, at.level), X)
    S, Y, *found = _looked(k, X0, at0.G, level0, X, at.G, level, *blocks)
    SS, SY, XY, SE, yy, ee, older, newer = (small(k, m) for m in found)
    length, change = math.sqrt(float(np.trace(SS).real)), math.sqrt(float(yy))
    if not (length > 0 and change > 0 and math.isfinite(length + change)):
        return None
    error = eps * (math.sqrt(len(SS)) / length + math.sqrt(float(ee)) / change)
    one = 1.0 / length
    XE = small(k, at.level) + small(k, at.rotation)
    return Look(
        one * S, one * Y, one**2 * SS, one**2 * SY, one * XY, one * SE, XE,
        one * older, one * newer, error,
    )  # fmt: skip


def remembered(k: Kernels, pairs: SecantBlocks | None, seen: Look) -> SecantBlocks:
    """The pairs with one more; the last three are kept."""
    S, Y = k.conj(seen.S)[None, ...], k.conj(seen.Y)[None, ...]
    if pairs is None:
        return SecantBlocks(S, Y, seen.SY)
    size = len(seen.SY)
    K = np.empty((len(pairs.K) + size,) * 2, seen.SY.dtype)
    K[:-size, :-size], K[:-size, -size:] = pairs.K, seen.older
    K[-size:, :-size], K[-size:, -size:] = seen.newer, seen.SY
    K = K[-PAIRS * size :, -PAIRS * size :]
    old = max(0, pairs.S.shape[0] + 1 - PAIRS)  # the pairs that are forgotten
    S, Y = (k.xp.concat([A[old:, ...], B], axis=0) for A, B in ((pairs.S, S), (pairs.Y, Y)))
    return SecantBlocks(S, Y, K)


def constant_part(k: Kernels, ends: StepEnds, mirrored: Gradient) -> Array:
    """C of ∇f(X) = A X M + C from what is known at −X."""
    level = 0.5 * (small(k, ends.at.level) - small(k, mirrored.level))
    return _constant(k, ends.at.G, mirrored.G, ends.X, k.asarray(level, ends.X))


def fits_with(k: Kernels, seen: Look, D: NumpyArray, X: Array, C: Array, gate: float) -> bool:
    """Whether the pair and X are symmetric with the constant part C of the gradient."""
    XC, SC = (small(k, m) for m in _with_constant(k, X, seen.S, C))
    return seen.asymmetry_with_point(D, XC, SC) <= gate


def widened(gate: float, seen: Look) -> float:
    """The gate with room for rounding; zero where rounding leaves nothing to be seen."""
    wide = gate + 10.0 * seen.error
    return wide if wide <= HOPELESS else 0.0


def flat(k: Kernels, S: Array) -> Array:
    """The rows Sᴴ of all blocks."""
    blocks, n, size = S.shape
    return k.xp.reshape(k.xp.matrix_transpose(S), (blocks * size, n))


@kernel
def _looked(
    k: Kernels, X0: Array, G0: Array, level0: Array, X: Array, G: Array, level: Array,
    older: Array, images: Array,
) -> Any:  # fmt: skip
    E, S = k.subtract(G, X, -level), X - X0
    Y = k.overwriting().subtract(E - G0, X0, level0)
    WS, WY, WE = k.weigh(S), k.weigh(Y), k.weigh(E)
    return S, Y, *k.reduce(
        k._product(S, WS), k._product(S, WY), k._product(X, WY), k._product(S, WE),
        k._dot(Y, WY), k._dot(E, WE), flat(k, older) @ WY, k.adjoint(flat(k, images) @ WS),
    )  # fmt: skip


@kernel
def _constant(k: Kernels, G: Array, mirrored: Array, X: Array, level: Array) -> Array:
    return k.subtract(0.5 * (G + mirrored), X, -level)


@kernel
def _with_constant(k: Kernels, X: Array, S: Array, C: Array) -> Any:
    WC: Any = k.weigh(C)
    return k.reduce(k._product(X, WC), k._product(S, WC))


# -- D by symmetry -----------------------------------------------------------------------------


def symmetrising(K: NumpyArray, size: int) -> NumpyArray | None:
    """D, of determinant one, from the blocks K_jl in one matrix; None where there is none.  O(k³).

    A sum P of the K_jl with symmetric weights also has P D = D Pᴴ: its eigenvalues are real, and
    D = V δ Vᴴ with its eigenvectors V.  In their basis, C_jl = V⁻¹K_jl V, the equations are
    (C_jl)_ab δ_b = conj((C_lj)_ba) δ_a, and the sum of squares of the differences is a form in δ.
    """
    largest = np.abs(K).max()
    if not 0 < largest < np.inf:
        return None
    K = K / largest
    m = len(K) // size
    blocks = K.reshape(m, size, m, size).transpose(0, 2, 1, 3)
    P = WEIGHTS[:m, :m].reshape(-1).dot(blocks.reshape(m * m, -1)).reshape(size, size)
    try:
        V = _real_eigenvectors(P)
        C = None if V is None else np.linalg.inv(V) @ blocks @ V
    except np.linalg.LinAlgError:
        return None
    if V is None or C is None:
        return None
    for _ in range(ROUNDS):
        N = -2.0 * np.einsum("jlab,ljba->ab", C, C).real
        squares = (C.real**2 + C.imag**2).sum(axis=(0, 1, 2))
        N.flat[:: size + 1] += 2.0 * squares
        left, vectors = np.linalg.eigh(N)
        delta = vectors[:, 0] if vectors[:, 0].sum() > 0 else -vectors[:, 0]
        # Much more is left over than `_left_over` will allow: no use in going on.
        if not delta.min() > 0 or left[0] > HOPELESS * squares.dot(delta * delta):
            return None
        root = np.sqrt(delta)
        V, C = V * root, C * root / root[:, None]
    D = V @ V.conj().T
    _, logarithm = np.linalg.slogdet(D)
    if not np.isfinite(logarithm):
        return None
    D = D / np.exp(logarithm / size)
    return D if _left_over(K, D) <= HOPELESS else None


def _real_eigenvectors(P: NumpyArray) -> NumpyArray | None:
    """Those of a matrix whose eigenvalues are real, as most are not."""
    lapack = scipy.linalg.lapack
    *found, V, failed = (lapack.zgeev if P.dtype.kind == "c" else lapack.dgeev)(P, 0)
    if failed:
        return None
    if len(found) == 2:  # eigenvalues, and no left vectors
        imaginary, size = np.abs(found[0].imag).max(), np.abs(found[0]).max()
        return V if imaginary <= HOPELESS * size else None
    # Of a real matrix, conjugate pairs that errors have made are no eigenvectors of use.
    return None if found[1].any() else V


def _left_over(K: NumpyArray, D: NumpyArray) -> float:
    """The asymmetry of all blocks K_jl D together."""
    KD = K.reshape(len(K), -1, len(D)).dot(D).reshape(K.shape)
    return float(np.linalg.norm(KD - KD.conj().T) / np.linalg.norm(KD))
