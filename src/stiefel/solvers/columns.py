"""The matrix D that makes block secants symmetric, and how far they are from it.

If ∇²f[S] = A S M with a symmetric n×n operator A and a positive definite k×k matrix M, the change
of the gradient along a step S is Y = A S M, and with D = M⁻¹

    S_jᵀ Y_l D = S_jᵀ A S_l = (S_lᵀ Y_j D)ᵀ     for all pairs j, l of steps.

With K_jl = S_jᵀY_l this is K_jl D = D K_ljᵀ, linear in D: two or three steps determine it up to a
factor, to nearly all digits.  With D = R E R it reads L_jl E = E L_ljᵀ, L = R⁻¹ K R, where R is the
root of the best D so far, so that E is near I; E minimises the sum of squares of the differences
plus a small multiple of ‖E‖², with the trace of I.  The *asymmetry* of what is left over tells
whether f has the structure at all.
"""

from __future__ import annotations

import numpy as np

from stiefel.types import NumpyArray

RIDGE = 1e-14  # of the trace, so that the normal equations have one solution
ROUNDS = 3  # each takes away the bias that the ridge of the one before left
HOPELESS = 1e-3  # the asymmetry that is left over where there is no such structure
WORST = 1e3  # condition number of D; beyond it the answer is noise


def symmetrising(K: NumpyArray, size: int) -> NumpyArray | None:
    """D, of determinant one, from the blocks K_jl in one matrix; None where there is none."""
    D: NumpyArray | None = np.eye(size)
    K = K / np.abs(K).max()
    for _ in range(ROUNDS):
        assert D is not None
        D = _refined(K, D)
        if D is None or _left_over(K, D) > HOPELESS:
            return None
    return D


def _left_over(K: NumpyArray, D: NumpyArray) -> float:
    """The asymmetry of all blocks K_jl D together."""
    KD = K.reshape(len(K), -1, len(D)).dot(D).reshape(K.shape)
    return float(np.linalg.norm(KD - KD.T) / np.linalg.norm(KD))


def _refined(K: NumpyArray, D: NumpyArray) -> NumpyArray | None:
    """D once more, with the last one as the place where E is I."""
    size = len(D)
    values, vectors = np.linalg.eigh(D)
    R = (vectors * np.sqrt(values)) @ vectors.T
    inverse = (vectors / np.sqrt(values)) @ vectors.T
    blocks = K.reshape(len(K) // size, size, -1, size).transpose(0, 2, 1, 3)
    E = _nearest_solution(inverse @ blocks @ R)
    if E is None:
        return None
    new = R @ E @ R
    values = np.linalg.eigvalsh(new)
    if not values[0] > values[-1] / WORST:
        return None
    return np.asarray(new / np.exp(np.mean(np.log(values))))


def _nearest_solution(L: NumpyArray) -> NumpyArray | None:
    """Symmetric E with L_jl E ≈ E L_ljᵀ for all j, l, the trace of I its only scale; O(k⁶)."""
    size = L.shape[-1]
    rows, columns = np.triu_indices(size)
    N = _normal_equations(L)
    N = N[:, :, rows, columns] + N[:, :, columns, rows]
    N = N[rows, columns] + N[columns, rows]
    weight = np.where(rows == columns, 0.5, 1.0)  # the diagonal was counted twice
    N = N * weight * weight[:, None]
    right = np.where(rows == columns, 1.0, 0.0)
    try:
        e = np.linalg.solve(N + RIDGE * np.trace(N) * np.eye(len(N)), right)
    except np.linalg.LinAlgError:
        return None
    E = np.zeros((size, size))
    E[rows, columns] = e
    E[columns, rows] = e
    trace = float(np.trace(E))
    return E * (size / trace) if trace > 0 and np.isfinite(trace) else None


def _normal_equations(L: NumpyArray) -> NumpyArray:
    """N[a, b, c, d] with Σ‖L_jl E − E L_ljᵀ‖² = Σ E_ab N_abcd E_cd for every matrix E.

    With P = L_jl and T = L_ljᵀ the terms are EᵀPᵀPE, E T Tᵀ Eᵀ and −2⟨PE, ET⟩.
    """
    size = L.shape[-1]
    other = L.transpose(1, 0, 3, 2)  # L_ljᵀ
    one = np.eye(size)
    left = np.einsum("jlia,jlic->ac", L, L)
    right = np.einsum("jlbi,jldi->bd", other, other)
    flat, flat_other = L.reshape(-1, size * size), other.reshape(-1, size * size)
    cross = (flat.T @ flat_other).reshape(size, size, size, size)  # Σ P_ac T_bd… as P_ca T_db
    N = np.einsum("ac,bd->abcd", left, one) + np.einsum("ac,bd->abcd", one, right)
    # ⟨PE, ET⟩ = Σ P_ic E_cd E_ie T_ed, between E_ie and E_cd; once each way round.
    mixed = cross.transpose(0, 2, 1, 3)  # [i, c, e, d] → [i, e, c, d]
    return np.asarray(N - mixed - mixed.transpose(2, 3, 0, 1))
