"""Steps on XᴴX = s²I from matrix products alone, for tensors of any library.

The optimisers for training share these formulas.  X is (..., n, k) with n ≥ k, real or complex, and
every leading axis is a further matrix: a stack costs as many kernels as one matrix.  There are no
factorisations and no decisions on data, so nothing here waits for a device.  ``I`` is the k×k
identity of X's library, dtype and device, which the caller makes once.  Arithmetic is that of the
arguments: callers raise float16 and bfloat16 to float32 before they come here.

**The retraction** is the polar factor.  For a tangent V at X (s = 1) and Y = X + V,

    YᴴY = I + E,   E = VᴴV ⪰ 0,        R(X, V) = Y (I + E)^(-1/2) = Y + Y q(E),

and q(x) = (1+x)^(-1/2) − 1 is replaced by a polynomial p with p(0) = 0.  Two properties make one
pass enough.  E is computed from Y, so that an X with defect D = XᴴX − I is mended as well: the
defect after the step is that of p on [min D, ‖V‖²₂], whatever it was before, and rounding does not
accumulate.  And p(0) = 0 makes the correction small when the step is small, so that rounding in p
is multiplied by E.

**Convergence.**  (1+x)^(-1/2) is analytic but for x ≤ −1; a polynomial of degree d that
interpolates it at the Chebyshev nodes of [−1/10, 1/4] errs by about ρ^(-d-1), where ρ ≈ 12.2.
Hence degree 6 for float32 (2e-8) and 15 for float64 (rounding), evaluated in 3 and 6 products of
k×k matrices (Paterson and Stockmeyer).

**Large steps** are shortened, to ‖VᴴV‖ ≤ 1/4 in the Schatten-8 bound ‖(VᴴV)²‖_F^(1/2), which is at
least ‖V‖²₂ and at most k^(1/4)‖V‖²₂.  So no step turns a direction by more than arctan ½ = 27°, and
steps with ‖V‖₂ ≤ k^(-1/8)/2 are never touched.  E shrinks with the square of the step, so that
shortening by t costs no further product; but then t² of a defect is mended, not all of it.
"""

from __future__ import annotations

import numpy as np

from stiefel.types import Array

LARGEST = 0.25  # the largest ‖VᴴV‖: beyond it a step is shortened
LARGEST_DEFECT = 0.1  # the largest defect of X that one step mends


def adjoint(A: Array) -> Array:
    """Aᴴ, for each matrix of a stack."""
    return A.mT.conj()


def stack_product(A: Array, B: Array) -> Array:
    """AB, for each matrix of a stack; PyTorch's own ``@`` makes five views of a stack before."""
    return A.bmm(B) if A.ndim == B.ndim == 3 and hasattr(A, "bmm") else A @ B


def add_scaled_product(C: Array, A: Array, B: Array, c: float = 1.0, a: float = 1.0) -> Array:
    """cC + aAB, in one kernel where the library has one."""
    if A.ndim == B.ndim == 3 and hasattr(C, "baddbmm"):
        return C.baddbmm(A, B, beta=c, alpha=a)
    return c * C + a * (A @ B)


def add_scaled(X: Array, V: Array, t: Array) -> Array:
    """X + tV, in one kernel where the library has one."""
    return X.addcmul(V, t) if hasattr(X, "addcmul") else X + V * t


def add_multiple(X: Array, V: Array, c: float) -> Array:
    """X + cV for a number c, in one kernel where the library has one."""
    return X.add(V, alpha=c) if hasattr(X, "addcmul") else X + c * V


def squared_norm(A: Array) -> Array:
    """‖A‖²_F of each matrix, with two axes of length one; smooth at A = 0 where it must be.

    Nobody differentiates a step of PyTorch, and its norm reads the matrix once.
    """
    if hasattr(A, "addcmul"):
        return A.norm(dim=(-2, -1), keepdim=True).square()
    return (A * A.conj()).real.sum((-2, -1))[..., None, None]


# -- tangents -------------------------------------------------------------------------------------


def tangent(X: Array, G: Array, scale: float = 1.0) -> Array:
    """The orthogonal projection G − X sym(XᴴG)/s² onto the tangent space at X; 4nk².

    It gives the gradient of a loss from its Euclidean gradient, and carries a momentum to the point
    where it is needed: of all tangent vectors, the nearest one to the old momentum.
    """
    S = stack_product(adjoint(X), G)
    return add_scaled_product(G, X, S + adjoint(S), 1.0, -0.5 / scale**2)


# -- the polar retraction -------------------------------------------------------------------------


def _inverse_root(degree: int) -> tuple[float, ...]:
    """c with Σ cᵢ xⁱ ≈ (1+x)^(-1/2) − 1 on [−LARGEST_DEFECT, LARGEST] and c₀ = 0."""
    interval = [-LARGEST_DEFECT, LARGEST]

    def quotient(x: Array) -> Array:  # of that function by x, without cancellation
        return -1.0 / (np.sqrt(1 + x) * (1 + np.sqrt(1 + x)))

    fit = np.polynomial.Chebyshev.interpolate(quotient, degree - 1, domain=interval)
    powers = fit.convert(kind=np.polynomial.Polynomial, domain=[-1, 1], window=[-1, 1])
    return (0.0, *map(float, powers.coef))


# The coefficients, and how many powers make a block.
SINGLE, DOUBLE = (_inverse_root(6), 3), (_inverse_root(15), 5)


def polynomial(c: tuple[float, ...], width: int, E: Array, E2: Array) -> Array:
    """Σ cᵢ Eⁱ from i = 1 on, by Horner's rule in E^width; E2 = E².

    ``width`` divides the degree; width − 2 + degree/width − 1 products.
    """
    powers = [E, E2]
    while len(powers) < width:
        powers.append(stack_product(powers[-1], E))
    total: Array = None
    for start in reversed(range(0, len(c) - 1, width)):
        block = powers[0] * c[start + 1]
        for j in range(1, width):
            block = add_multiple(block, powers[j], c[start + j + 1])
        total = block if total is None else add_scaled_product(block, powers[-1], total)
    return total


def polar(X: Array, V: Array, I: Array, scale: float = 1.0) -> Array:  # noqa: E741
    """s times the polar factor of X + V, for a tangent V at X; 4nk² + 6k³ (12k³ in float64).

    V is shortened where it is long, see the top of the file.  A V with ‖V‖_F > s√k has
    ‖V‖₂ > s: it would be shortened in any case, and is so before products that could overflow.
    """
    if scale != 1.0:
        X, V = X * (1 / scale), V * (1 / scale)
    f = (squared_norm(V) / X.shape[-1]).clip(1.0) ** -0.5
    Y = add_scaled(X, V, f)
    E = add_scaled_product(I, adjoint(Y), Y, -1.0)
    E2 = stack_product(E, E)
    t2 = (squared_norm(E2) / LARGEST**4).clip(1.0) ** -0.25  # exactly 1 for short steps
    Y = add_scaled(X, V, f * t2**0.5)
    c, width = DOUBLE if "64" in str(I.real.dtype) else SINGLE
    Y = add_scaled_product(Y, Y, polynomial(c, width, E * t2, E2 * t2**2))
    return Y * scale if scale != 1.0 else Y


# -- Muon -----------------------------------------------------------------------------------------

# Odd polynomials aσ + bσ³ + cσ⁵, each the best approximation of 1 (in the largest error) on the
# interval that the one before leaves, from [0.003, 1] on: after five, |σ − 1| ≤ 0.005.
SIGN_STEPS = (
    (8.38367544, -24.76592012, 18.35709432),
    (4.04342088, -3.01140531, 0.5695122),
    (3.50557118, -2.62665518, 0.52571974),
    (2.49011555, -1.83427482, 0.4368347),
    (1.91777617, -1.29675011, 0.37970487),
)
SMALLEST_SIGN = 0.003


def msign(M: Array, I: Array) -> Array:  # noqa: E741
    """U Vᴴ for M = U Σ Vᴴ, within 0.5 % for singular values above 0.003 ‖M‖₂k^(1/4); zero for zero.

    Smaller singular values end between 0 and 1.  Five steps of 4nk² + 2k³; a skew-Hermitian M
    gives a skew-Hermitian result, because odd polynomials do.
    """
    S = stack_product(adjoint(M), M)
    size = squared_norm(S) + np.finfo(np.float32).tiny  # Schatten-4, to the fourth power
    M, S = M * size**-0.25, S * size**-0.5
    for i, (a, b, c) in enumerate(SIGN_STEPS):
        if i:
            S = stack_product(adjoint(M), M)
        M = stack_product(M, a * I + add_scaled_product(S, S, S, b, c))
    return M


def muon_direction(X: Array, G: Array, I: Array, scale: float = 1.0) -> Array:  # noqa: E741
    """A tangent A with ‖A‖₂ near 1 along which ⟨G, A⟩ is largest: steepest ascent, spectral norm.

    A tangent vector at X/s is WX/s with a skew-Hermitian W, and some W has the norm of the vector
    (Davis, Kahan and Weinberger's dilation).  Hence the largest ⟨G, A⟩ over ‖A‖₂ ≤ 1 is that of
    ⟨skew(GXᴴ), W⟩ over ‖W‖₂ ≤ 1, and

        A = msign(GXᴴ − XGᴴ) X    is optimal for every shape, with an n×n sign.

    For square X this is X msign(XᴴG − GᴴX), computed so.  For tall X the n×n sign is replaced by
    tangent(msign(tangent(G))), at the price of an n×k sign: it reaches 0.86 to 0.99 of the optimum
    in the tests, with ‖A‖₂ ≤ 1.2.
    """
    n, k = X.shape[-2:]
    if n == k:
        S = stack_product(adjoint(X), G)
        return stack_product(X, msign(S - adjoint(S), I) * (1 / scale))
    return tangent(X, msign(tangent(X, G, scale), I), scale)


# -- Adam -----------------------------------------------------------------------------------------

MOMENTS = ("matrix", "rows", "columns", "entries")


def second_moment(G: Array, kind: str = "matrix") -> Array:
    """The mean of |Gᵢⱼ|² over each matrix, row or column, or |Gᵢⱼ|² itself; two axes are kept.

    A number a matrix is the choice that does not depend on the basis: if G is tangent, so is
    G/√v, and rotating the problem rotates the steps.  The others need a projection after division.
    """
    S = (G * G.conj()).real
    if kind == "matrix":
        return S.mean((-2, -1))[..., None, None]
    if kind == "rows":
        return S.mean(-1)[..., None]
    if kind == "columns":
        return S.mean(-2)[..., None, :]
    return S
