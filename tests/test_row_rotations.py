"""Rotations beside a constant part of the gradient: the form on skew matrices, and its inverse."""

import numpy as np
import pytest

from stiefel.backends.numpy import well_conditioned_cholesky
from stiefel.solvers.row_rotations import SOFTEST, _rotations, _skew_basis


def drawn(size, p, dtype, shift, seed=0):
    """G, H, F, e and c of a form whose curvatures are all positive for a large shift."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        real = rng.standard_normal(shape)
        return real if dtype is float else real + 1j * rng.standard_normal(shape)

    def square(A):
        return A @ A.conj().T

    one = np.eye(size)
    G, H = square(normal(size, size)) + shift * one, one + 0.1 * square(normal(size, size))
    F, e, c = 0.1 * normal(p, size), rng.random((p, size)), np.sort(rng.standard_normal(size))
    return (G, H, F, e, c), normal(size, size)


def slow_inverse(G, H, F, e, c, rotation):
    """By the basis itself, one matrix after the other, and eigenvectors."""
    size = len(c)
    units = _skew_basis(size, G.dtype.kind == "c")
    basis = [units.matrix(x) for x in np.eye(units.order)]
    Q = [G - c[j] * H - F.conj().T @ np.diag(e[:, j]) @ F for j in range(size)]
    images = [np.stack([Q[j] @ B[:, j] for j in range(size)], axis=1) for B in basis]
    S = np.array([[np.vdot(A, B).real for B in images] for A in basis])
    values, vectors = np.linalg.eigh((S + S.T) / 2)
    values = np.maximum(np.abs(values), SOFTEST * np.abs(values).max())
    right = np.array([np.vdot(B, rotation).real for B in basis])
    x = vectors @ ((vectors.T @ right) / values)
    return sum(number * B for number, B in zip(x, basis, strict=True))


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("shift", [30.0, 0.0, -30.0])
@pytest.mark.parametrize("size", [2, 5, 9])
def test_it_is_the_inverse_of_the_form_with_its_curvatures_made_positive(size, shift, dtype):
    known, rotation = drawn(size, 4 * size, dtype, shift)
    inverse = _rotations(*known)
    assert (inverse.factor is not None) or shift < 30.0
    expected = slow_inverse(*known, rotation)
    np.testing.assert_allclose(inverse(rotation), expected, atol=1e-12 * np.abs(expected).max())


def test_a_soft_rotation_is_as_stiff_as_the_softest_that_is_allowed():
    """With Q_j = diag(g) the curvature of a rotation of columns a and b is g_a + g_b."""
    g = np.array([1.0, -1.0 + 1e-6, 3.0])
    inverse = _rotations(np.diag(g), np.eye(3), np.zeros((1, 3)), np.ones((1, 3)), np.zeros(3))
    skew = np.array([[0.0, 1.0, 2.0], [-1.0, 0.0, 3.0], [-2.0, -3.0, 0.0]])
    curvatures = np.maximum(g[:, None] + g, SOFTEST * 4.0)
    np.testing.assert_allclose(inverse(skew), 2.0 * skew / curvatures, rtol=1e-9)


@pytest.mark.parametrize(("size", "dtype"), [(1, complex), (4, float), (4, complex)])
def test_the_basis_spans_the_skew_matrices(size, dtype):
    units = _skew_basis(size, dtype is complex)
    basis = np.stack([units.matrix(x) for x in np.eye(units.order)])
    np.testing.assert_array_equal(basis, -basis.conj().swapaxes(1, 2))
    flat = basis.reshape(len(basis), -1)
    gram = (flat @ flat.conj().T).real
    assert np.linalg.matrix_rank(gram) == len(basis)
    assert len(basis) == (size**2 if dtype is complex else size * (size - 1) // 2)


def test_one_real_column_does_not_rotate():
    known, rotation = drawn(1, 3, float, 30.0)
    assert _rotations(*known)(rotation) == 0.0


def test_a_soft_or_negative_curvature_has_no_cholesky_factor_here():
    values = np.array([1.0, 2.0, 3.0])
    assert well_conditioned_cholesky(np.diag(values), SOFTEST) is not None
    for least in (0.1 * SOFTEST, -1.0):
        values[0] = least
        assert well_conditioned_cholesky(np.diag(values), SOFTEST) is None
