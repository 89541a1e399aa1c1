"""The matrix D that makes block secants Hermitian, and how far they are from it.

If ∇²f[S] = A S M with a Hermitian n×n operator A and a positive definite k×k matrix M, the change
of the gradient along a step S is Y = A S M, and with D = M⁻¹

    S_jᴴ Y_l D = S_jᴴ A S_l = (S_lᴴ Y_j D)ᴴ     for all pairs j, l of steps.

With K_jl = S_jᴴY_l this is K_jl D = D K_ljᴴ, linear in D: two or three steps determine it up to a
factor, to nearly all digits.  With D = R E R it reads L_jl E = E L_ljᴴ, L = R⁻¹ K R, where R is the
root of the best D so far, so that E is near I; E minimises the sum of squares of the differences
plus a small multiple of ‖E‖², with the trace of I.  If E solves these equations so does Eᴴ: complex
ones need no more than a Hermitian E, k² real unknowns where real ones have k(k + 1)/2.  The
*asymmetry* of what is left over tells whether f has the structure at all.
"""

from __future__ import annotations

import numpy as np

from stiefel.types import NumpyArray

RIDGE = 1e-14  # of the trace, so that the normal equations have one solution
ROUNDS = 3  # each takes away the bias that the ridge of the one before left
HOPELESS = 1e-3  # the asymmetry that is left over where there is no such structure


def symmetrising(K: NumpyArray, size: int) -> NumpyArray | None:
    """D, of determinant one, from the blocks K_jl in one matrix; None where there is none."""
    D: NumpyArray | None = np.eye(size, dtype=K.dtype)
    K = K / np.abs(K).max()
    for _ in range(ROUNDS):
        assert D is not None
        D = _refined(K, D)
        if D is None or _left_over(K, D) > HOPELESS:
            return None
    return D


def asymmetry(K: NumpyArray, squares: NumpyArray) -> float:
    """‖K − Kᴴ‖/‖K‖ of K = SᴴZ, with the columns of S (of these squared lengths) of length one."""
    scale = 1.0 / np.sqrt(np.maximum(squares, np.finfo(float).tiny))
    K = K * scale * scale[:, None]
    size = float(np.linalg.norm(K))
    return float(np.linalg.norm(K - K.conj().T)) / size if size > 0 else np.inf


def _left_over(K: NumpyArray, D: NumpyArray) -> float:
    """The asymmetry of all blocks K_jl D together."""
    KD = K.reshape(len(K), -1, len(D)).dot(D).reshape(K.shape)
    return float(np.linalg.norm(KD - KD.conj().T) / np.linalg.norm(KD))


def _refined(K: NumpyArray, D: NumpyArray) -> NumpyArray | None:
    """D once more, with the last one as the place where E is I."""
    size, (values, vectors) = len(D), np.linalg.eigh(D)
    R = (vectors * np.sqrt(values)) @ vectors.conj().T
    inverse = (vectors / np.sqrt(values)) @ vectors.conj().T
    blocks = K.reshape(len(K) // size, size, -1, size).transpose(0, 2, 1, 3)
    E = _nearest_solution(inverse @ blocks @ R)
    if E is None:
        return None
    new = R @ E @ R
    values = np.linalg.eigvalsh(new)
    if not values[0] > 0:
        return None
    return np.asarray(new / np.exp(np.mean(np.log(values))))


def _nearest_solution(L: NumpyArray) -> NumpyArray | None:
    """Hermitian E with L_jl E ≈ E L_ljᴴ for all j, l, the trace of I its only scale; O(k⁶)."""
    size, is_complex = L.shape[-1], L.dtype.kind == "c"
    rows, columns = np.triu_indices(size)
    N = _on_hermitian(_normal_equations(L), is_complex)
    right = np.zeros(len(N))
    right[: len(rows)][rows == columns] = 1.0
    try:
        e = np.linalg.solve(N + RIDGE * np.trace(N) * np.eye(len(N)), right)
    except np.linalg.LinAlgError:
        return None
    E = np.zeros((size, size), L.dtype)
    E[rows, columns] = e[: len(rows)]
    if is_complex:
        above = rows < columns
        E[rows[above], columns[above]] += 1j * e[len(rows) :]
    E = E + np.triu(E, 1).conj().T
    trace = float(np.trace(E).real)
    return E * (size / trace) if trace > 0 and np.isfinite(trace) else None


def _normal_equations(L: NumpyArray) -> NumpyArray:
    """N[a, b, c, d] with Σ‖L_jl E − E L_ljᴴ‖² = Σ Ē_ab N_abcd E_cd for every matrix E.

    With P = L_jl and T = L_ljᴴ the terms are ⟨PE, PE⟩, ⟨ET, ET⟩ and −2 Re⟨ET, PE⟩.
    """
    size = L.shape[-1]
    other = L.transpose(1, 0, 3, 2).conj()  # L_ljᴴ
    one = np.eye(size)
    left = np.einsum("jlia,jlic->ac", L.conj(), L)
    right = np.einsum("jlbi,jldi->bd", other.conj(), other)
    flat, flat_other = L.reshape(-1, size * size), other.reshape(-1, size * size)
    cross = (flat.T @ flat_other.conj()).reshape(size, size, size, size)  # P_ac T̄_bd
    N = np.einsum("ac,bd->abcd", left, one) + np.einsum("ac,bd->abcd", one, right)
    # ⟨ET, PE⟩ = Σ Ē_ab T̄_bd P_ac E_cd, between E_ab and E_cd; once each way round.
    mixed = cross.transpose(0, 2, 1, 3)
    return np.asarray(N - mixed - mixed.transpose(2, 3, 0, 1).conj())


def _on_hermitian(N: NumpyArray, is_complex: bool) -> NumpyArray:
    """The form on Hermitian E: its real parts with i ≤ j, then its imaginary parts with i < j."""
    N = _folded(N, is_complex).transpose(2, 0, 1)
    N = _folded(N.conj(), is_complex).conj() if is_complex else _folded(N, False)
    return np.asarray(N.real)


def _folded(N: NumpyArray, is_complex: bool) -> NumpyArray:
    """Σ N_…ab B_ab over the basis matrices B of `_on_hermitian`, along the last two axes."""
    rows, columns = np.triu_indices(N.shape[-1])
    upper, lower = N[..., rows, columns], N[..., columns, rows]
    weight = np.where(rows == columns, 0.5, 1.0)  # the diagonal was counted twice
    real = (upper + lower) * weight
    if not is_complex:
        return np.asarray(real)
    above = rows < columns
    return np.concatenate((real, 1j * (upper - lower)[..., above]), axis=-1)
