"""Eigenvalues of small matrices by the compiled kernels: `src/compiled/eigen.inc`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stiefel.backends.arrays import kernels_for

KERNELS = kernels_for(np.zeros(1)).compiled
if KERNELS is None:
    pytest.skip("the compiled kernels were not built", allow_module_level=True)


def rebuilt(A):
    """A once more from its eigenvalues and eigenvectors, these, and the eigenvalues."""
    M, values = A.copy(), np.empty(len(A))
    KERNELS.eigh_rows(M, values)
    V = M.conj().T
    return (V * values) @ M, V, values


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 60),
    st.booleans(),
    st.sampled_from([0, -900, 900]),
    st.sampled_from(["full", "low rank", "diagonal", "apart", "graded"]),
)
def test_eigenvalues(seed, m, is_complex, exponent, kind):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((m, m)) + (1j * rng.standard_normal((m, m)) if is_complex else 0)
    if kind == "low rank":
        A = A[:, : 1 + m // 3] @ A[:, : 1 + m // 3].conj().T
    if kind == "graded":
        A = A * np.logspace(0, -12, m) * np.logspace(0, -12, m)[:, None]
    A = A + A.conj().T
    if kind == "diagonal":
        A = np.diag(np.round(A.diagonal().real)).astype(A.dtype)  # with equal ones among them
    if kind == "apart":
        A[: m // 2, m // 2 :] = A[m // 2 :, : m // 2] = 0.0
    scale = 2.0**exponent
    again, V, values = rebuilt(scale * A)
    eps = 50 * np.finfo(float).eps * max(1.0, np.abs(A).max() * np.sqrt(m))
    np.testing.assert_allclose(again / scale, A, atol=eps)
    np.testing.assert_allclose(V.conj().T @ V, np.eye(m), atol=1e-13)
    np.testing.assert_allclose(values / scale, np.linalg.eigvalsh(A), atol=eps)
    assert (np.diff(values) >= 0).all()


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("exponent", [-140, -146, -150, -155, -158, -160, -162, -200, -308])
def test_entries_whose_squares_vanish(exponent, is_complex):
    """The overlaps of functions that are far from each other: they ended in NaN."""
    rng = np.random.default_rng(-exponent)
    for m in (2, 3, 4, 7, 20):
        A = rng.standard_normal((m, m)) + (1j * rng.standard_normal((m, m)) if is_complex else 0)
        A = A + A.conj().T
        apart = 10.0**exponent * A
        np.fill_diagonal(apart, A.diagonal())
        weights = np.logspace(exponent / 2, 0, m)
        for M in (apart, A * weights * weights[:, None], A * weights[::-1] * weights[::-1, None]):
            again, V, values = rebuilt(M)
            np.testing.assert_allclose(again, M, atol=1e-13 * m)
            np.testing.assert_allclose(V.conj().T @ V, np.eye(m), atol=1e-13)
            np.testing.assert_allclose(values, np.linalg.eigvalsh(M), atol=1e-13 * m)


def test_matrices_without_eigenvalues_end():
    for A in (np.full((4, 4), np.nan), np.full((3, 3), np.inf)):
        values = np.empty(len(A))
        KERNELS.eigh_rows(A, values)
        assert not np.isfinite(values).any()
    for bad in (np.nan, np.inf):  # one entry beside the diagonal was lost: finite eigenvalues
        A, values = np.diag([3.0, 2.0, 1.0]), np.empty(3)
        A[2, 0] = A[0, 2] = bad
        KERNELS.eigh_rows(A, values)
        assert np.isnan(values).all() and np.isnan(A).all()
    np.testing.assert_array_equal(rebuilt(np.zeros((5, 5)))[2], np.zeros(5))
    with pytest.raises(ValueError, match="square"):
        KERNELS.eigh_rows(np.zeros((2, 3)), np.zeros(2))
