"""What a run has seen of an operator A: vectors U, their images Z = A U, and its Ritz pairs.

The vectors are kept in blocks of k, as the conjugates of columns, so that `flat` has the rows Uᴴ.
They stay as they are until the memory is full.  What is used of them is orthogonal to X,

    U° = U − X(XᴴU),    Z° = Z − AX(XᴴU),

and exists in Gram matrices only; those are carried from X to X⁺ by the products of U and Z with
the new block.  Gram matrices are small, and NumPy's wherever the point lives; every tall product
goes through the kernels of its library, and sums over ranks through their one reduction.

Tall work with p vectors: a new block 8npk + 28nk², the direction 8npk + 8nk², a memory made
smaller to q vectors 4npq + 6nq² + 12nqk.  Messages between ranks: two for a block, one for a
direction, one for a memory made smaller.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stiefel.backends.base import Kernels, kernel
from stiefel.backends.numpy import eigh, inverse, orthonormal_factor, orthonormalising
from stiefel.types import Array, Gradient, NumpyArray

NORMAL = 1e-8  # a step whose normal part is smaller, relative to all of it, tells nothing of A
DEPENDENT = 1e-5  # squared lengths beside the vectors before, relative to one, that are dropped
TINY = float(np.finfo(float).tiny)
UNRELIABLE = 0.1  # the skew part of K that a Ritz vector may have, relative to θ − c


class Stacked(NamedTuple):
    """Inner products of vectors U and images Z, p of each, in one matrix: W = [U, Z]."""

    WW: NumpyArray

    @property
    def UU(self) -> NumpyArray:
        p = len(self.WW) // 2
        return self.WW[:p, :p]

    @property
    def UZ(self) -> NumpyArray:
        p = len(self.WW) // 2
        return self.WW[:p, p:]

    @property
    def ZZ(self) -> NumpyArray:
        p = len(self.WW) // 2
        return self.WW[p:, p:]


class RitzPairs(NamedTuple):
    """T and θ: the Ritz vectors are U°T."""

    T: NumpyArray
    theta: NumpyArray


class SubspaceGrams(NamedTuple):
    """Inner products of W = [U, Z], the images after the vectors, with each other and [X, AX]."""

    WW: NumpyArray  # 2p×2p; UᴴZ is not quite Hermitian: the images have errors
    WX: NumpyArray  # 2p×2k: UᴴX and UᴴAX, then ZᴴX and ZᴴAX
    XAX: NumpyArray  # k×k
    AXAX: NumpyArray

    def normal(self) -> Stacked:
        """Those of the normal parts: of U° = U − X M and Z° = Z − AX M − X N, M = XᴴU, XᴴZ° = 0.

        With the rows F of what is taken away from W and the Gram matrix B of [X, AX],
        W°ᴴW° = WᴴW − F Qᴴ − Q Fᴴ with Q = WᴴX − F B/2.
        """
        WW, WX, L, LL = self
        p, k = len(WW) // 2, len(L)
        UX, ZX = WX[:p, :k], WX[p:, :k]
        along = ZX - UX.dot(L.conj().T)
        F, FB = np.zeros_like(WX), np.empty_like(WX)
        F[:p, :k], F[p:, :k], F[p:, k:] = UX, along, UX
        FB[:, :k] = WX[:, :k]
        FB[:p, k:], FB[p:, k:] = UX.dot(L), along.dot(L) + UX.dot(LL)
        FB *= -0.5
        FB += WX
        taken = F.dot(FB.conj().T)
        return Stacked(WW - taken - taken.conj().T)


class RowMemory(NamedTuple):
    """Vectors and images in blocks (blocks, n, k), of which the first ``used`` count."""

    U: Array
    Z: Array
    XA: Array  # X and AX beside each other, n×2k
    used: int
    grams: SubspaceGrams

    @property
    def AX(self) -> Array:
        return self.XA[:, self.XA.shape[-1] // 2 :]

    @property
    def full(self) -> bool:
        return self.used == self.U.shape[0]


def begun(
    k: Kernels, blocks: int, S: Array, Y: Array, X: Array, at: Gradient, D: NumpyArray, C: Any
) -> RowMemory:
    """A memory with the pair (S, Y D) as its first block; C is the constant part of ∇f."""
    D_, level = _placed(k, X, D, small(k, at.level).dot(D))
    U, Z, XA = _first(k, S, Y, X, at.G if C is None else at.G - C, D_, level)
    U, Z = (_stored(k, V, blocks) for V in (U, Z))
    return with_grams(k, U, Z, 1, XA)


def grown(k: Kernels, old: RowMemory, X: Array, at: Gradient, D: NumpyArray, C: Any) -> RowMemory:
    """At X with the block of the step to it, unless that only rotates columns."""
    G = at.G if C is None else at.G - C
    arrays = *_in_use(k, old), old.XA, X, G, *_placed(k, X, D, small(k, at.level).dot(D))
    new, XA, *found = _fused_step(*arrays) if k.pure_numpy else _step(k, *arrays)
    B, square, *products = _all_small(k, found)
    size = len(B)
    if not float(products[2].trace().real) > NORMAL**2 * float(square):
        return with_grams(k, old.U, old.Z, old.used, XA)
    grams = _grams_after(old.grams, products, B)
    S, T = new[:, :size], new[:, size:]
    if k.pure_numpy:
        old.U[old.used], old.Z[old.used] = S.conj(), T.conj()
        return RowMemory(old.U, old.Z, XA, old.used + 1, grams)
    U = k.write_row(old.U, old.used, k.conj(S))
    Z = k.write_row(old.Z, old.used, k.conj(T))
    return RowMemory(U, Z, XA, old.used + 1, grams)


def newest(k: Kernels, old: RowMemory) -> RowMemory:
    """The last block alone."""
    blocks, last = old.U.shape[0], old.used - 1
    U, Z = (_stored(k, k.conj(V[last, ...]), blocks) for V in (old.U, old.Z))
    return with_grams(k, U, Z, 1, old.XA)


def compressed(k: Kernels, old: RowMemory, C: NumpyArray) -> RowMemory:
    """The combinations U°C and Z°C take the place of all vectors.

    Their Gram matrices are computed anew: carried on, errors grow (Brockett 400×10 took 2,900
    evaluations from one start of four, and 90 from the others).
    """
    blocks, _, size = old.U.shape
    UX = old.grams.WX[: len(C), :size]
    weights = _placed(k, old.XA, _padded(C, old, k), C.conj().T.dot(UX))
    arrays = *_in_use(k, old), old.XA, *weights
    parts = _fused_combined(*arrays) if k.pure_numpy else _combined(k, *arrays)
    U, Z = (_blocks_of(k, rows, blocks, size) for rows in parts)
    return with_grams(k, U, Z, -(-C.shape[1] // size), old.XA)


def with_grams(k: Kernels, U: Array, Z: Array, used: int, XA: Array) -> RowMemory:
    """These vectors seen from X; 8np² + 8npk."""
    memory = RowMemory(U, Z, XA, used, None)  # type: ignore[arg-type]
    arrays = *_in_use(k, memory), XA
    found = _fused_products(*arrays) if k.pure_numpy else _all_products(k, *arrays)
    UU, UZ, ZZ, UX, ZX, L = _all_small(k, found)
    p, size = used * U.shape[-1], U.shape[-1]
    WW, WX = np.empty((2 * p, 2 * p), UU.dtype), np.empty((2 * p, 2 * size), UU.dtype)
    WW[:p, :p], WW[:p, p:], WW[p:, p:] = UU[:p, :p], UZ[:p, :p], ZZ[:p, :p]
    WW[p:, :p] = UZ[:p, :p].conj().T
    WX[:p], WX[p:] = UX[:p], ZX[:p]
    return memory._replace(grams=SubspaceGrams(WW, WX, L[:size], L[size:]))


def products(k: Kernels, memory: RowMemory, G: Array) -> list[NumpyArray]:
    """UᴴG, ZᴴG and AXᴴG."""
    arrays = *_in_use(k, memory), memory.AX, G
    UG, ZG, AXG = _all_small(k, _fused_seen(*arrays) if k.pure_numpy else _seen(k, *arrays))
    p = memory.used * G.shape[-1]
    return [UG[:p], ZG[:p], AXG]


def combination(
    k: Kernels, memory: RowMemory, G: Array, uz: NumpyArray, g: NumpyArray, xa: NumpyArray
) -> Array:
    """[U, Z] uz + G g + [X, AX] xa."""
    p = len(uz) // 2
    u, z = _padded(uz[:p], memory, k), _padded(uz[p:], memory, k)
    arrays = *_in_use(k, memory), G, memory.XA, *_placed(k, G, u, z, g, xa)
    return _fused_sum(*arrays) if k.pure_numpy else _sum(k, *arrays)


def small(k: Kernels, A: Array) -> NumpyArray:
    """A small matrix on the host, in double precision."""
    if k.pure_numpy and A.dtype.char in "dD":
        return np.asarray(A)
    A = k.to_numpy(A)
    return np.asarray(A, np.complex128 if A.dtype.kind == "c" else np.float64)


def _all_small(k: Kernels, found: Any) -> list[NumpyArray]:
    if k.pure_numpy and found[0].dtype.char in "dD":
        return list(found)
    return [small(k, A) for A in found]


def _placed(k: Kernels, X: Array, *weights: NumpyArray) -> Any:
    """Small matrices of the host beside X, in its precision."""
    if k.pure_numpy and X.dtype.char in "dD":
        return weights
    return [k.asarray(m, X) for m in weights]


def _in_use(k: Kernels, memory: RowMemory) -> tuple[Array, Array]:
    """The blocks in use; all of them where every shape is compiled anew."""
    U, Z, used = memory.U, memory.Z, memory.used
    return (U, Z) if k.compiles else (U[:used, ...], Z[:used, ...])


def flat(k: Kernels, U: Array) -> Array:
    """The vectors as rows Uᴴ."""
    blocks, n, size = U.shape
    return k.xp.reshape(k.xp.matrix_transpose(U), (blocks * size, n))


# -- Ritz pairs ------------------------------------------------------------------------------------


def asymmetry(K: NumpyArray, squares: NumpyArray) -> float:
    """‖K − Kᴴ‖/‖K‖ of K = SᴴZ, with the columns of S (of these squared lengths) of length one."""
    scale = 1.0 / np.sqrt(np.maximum(squares, TINY))
    K = K * scale * scale[:, None]
    skew, size = K - K.conj().T, float(np.vdot(K, K).real)
    return float(np.sqrt(np.vdot(skew, skew).real / size)) if size > 0 else np.inf


def asymmetries(grams: SubspaceGrams, size: int) -> tuple[float, float]:
    """Of the newest block, and of all blocks together."""
    seen = Stacked(grams.WW)
    UZ, squares = seen.UZ, np.diagonal(seen.UU).real
    return asymmetry(UZ[-size:, -size:], squares[-size:]), asymmetry(UZ, squares)


def ritz_pairs(normal: Stacked, highest: float) -> RitzPairs:
    """TᴴUU T = I and Tᴴherm(UZ)T = diag(θ), θ above the highest shift; see `_reliable`."""
    T = orthonormalising(normal.UU, DEPENDENT)
    K = T.conj().T.dot(normal.UZ).dot(T)
    KH = K.conj().T
    theta, vectors = eigh(0.5 * (K + KH))
    first = int(np.searchsorted(theta, highest, "right"))
    theta, vectors = theta[first:], vectors[:, first:]
    skew = 0.5 * (K - KH)
    if len(theta) and np.vdot(skew, skew).real > (UNRELIABLE * (theta[0] - highest)) ** 2:
        keep = _reliable(vectors.conj().T.dot(skew).dot(vectors), theta - highest)
        theta, vectors = theta[keep], vectors[:, keep]
    return RitzPairs(T.dot(vectors), theta)


def _reliable(skew: NumpyArray, above: NumpyArray) -> NumpyArray:
    """Which Ritz vectors are left when those with the largest errors are dropped one by one.

    K = UᴴZ is Hermitian but for errors of the images.  A row of its skew part, in units of the
    curvatures (θ_i − c)^½(θ_j − c)^½ that the inverse divides by, is the error of that vector.
    """
    root = 1.0 / np.sqrt(above)
    squares = np.abs(skew * root * root[:, None]) ** 2
    keep, sums = np.ones(len(above), bool), squares.sum(axis=1)
    while keep.any():
        worst = int(np.argmax(np.where(keep, sums, -1.0)))
        if sums[worst] <= UNRELIABLE**2:
            break
        keep[worst] = False
        sums = sums - squares[worst]
    return keep


def lowest_and_newest(ritz: RitzPairs, normal: Stacked, lowest: int, size: int) -> NumpyArray:
    """Orthonormal combinations of U°: the lowest Ritz vectors, and the newest block."""
    T = ritz.T
    if T.shape[1] <= lowest:
        return T
    new = T[:, lowest:].conj().T.dot(normal.UU[:, -size:])  # beside the lowest ones
    return np.concatenate((T[:, :lowest], T[:, lowest:].dot(orthonormal_factor(new))), axis=1)


# -- the tall work, and NumPy's versions of what every iteration asks for ------------------------


@kernel
def _first(k: Kernels, S: Array, Y: Array, X: Array, G: Array, D: Array, C: Array) -> Any:
    """S° and its image, and [X, AX] with AX = G D + X C."""
    into, AX, B = k.overwriting(), k.combine(G, D, X, C), k.gram(X, S)
    U, Z = into.subtract(S, X, B), into.subtract(Y @ D, AX, B)
    return U, Z, k.xp.concat([X, AX], axis=-1)


@kernel
def _step(
    k: Kernels, U: Array, Z: Array, XA0: Array, X: Array, G: Array, D: Array, C: Array
) -> Any:
    """[S°, A S°] and [X, AX], AX = G D + X C; XᴴS, ‖S‖²; products of both."""
    AX, into, size = k.combine(G, D, X, C), k.overwriting(), X.shape[-1]
    XA = k.xp.concat([X, AX], axis=-1)
    S, T = X - XA0[..., :size], AX - XA0[..., size:]
    WS = k.weigh(S)
    B, square = k.reduce(k._product(X, WS), k._dot(S, WS))
    new = k.xp.concat([into.subtract(S, X, B), into.subtract(T, AX, B)], axis=-1)
    weighed = k.weigh(new)
    return new, XA, B, square, *k.reduce(
        flat(k, U) @ weighed, flat(k, Z) @ weighed, k._product(new, weighed),
        k._product(weighed, XA), k._product(XA, k.weigh(AX)),
    )  # fmt: skip


def _fused_step(U: Array, Z: Array, XA0: Array, X: Array, G: Array, D: Array, C: Array) -> Any:
    n, size = X.shape
    XA = np.empty((n, 2 * size), X.dtype)
    AX = G.dot(D)
    AX += X.dot(C)
    XA[:, :size], XA[:, size:] = X, AX
    new = XA - XA0
    S, T = new[:, :size], new[:, size:]
    B, square = X.conj().T.dot(S), np.vdot(S, S).real
    S -= X.dot(B)
    T -= AX.dot(B)
    adjoint = new.conj().T
    u, z = (V.mT.reshape(-1, n) for V in (U, Z))
    return (
        new, XA, B, square, u.dot(new), z.dot(new), adjoint.dot(new), adjoint.dot(XA),
        XA.conj().T.dot(AX),
    )  # fmt: skip


@kernel
def _all_products(k: Kernels, U: Array, Z: Array, XA: Array) -> Any:
    u, z, AX = flat(k, U), flat(k, Z), XA[..., XA.shape[-1] // 2 :]
    WU, WZ, WXA = k.weigh(k.adjoint(u)), k.weigh(k.adjoint(z)), k.weigh(XA)
    return k.reduce(
        u @ WU, u @ WZ, z @ WZ, u @ WXA, z @ WXA, k._product(XA, k.weigh(AX)),
    )  # fmt: skip


def _fused_products(U: Array, Z: Array, XA: Array) -> Any:
    u, z = (V.mT.reshape(-1, len(XA)) for V in (U, Z))
    uh, zh, AX = u.conj().T, z.conj().T, XA[:, XA.shape[1] // 2 :]
    return u.dot(uh), u.dot(zh), z.dot(zh), u.dot(XA), z.dot(XA), XA.conj().T.dot(AX)


@kernel
def _combined(
    k: Kernels, U: Array, Z: Array, XA: Array, C: Array, along: Array
) -> tuple[Array, Array]:
    """The rows of (U C − X M)ᴴ and (Z C − AX M)ᴴ, M = alongᴴ."""
    into, CH, size = k.overwriting(), k.adjoint(C), along.shape[-1]
    return (
        into.subtract(CH @ flat(k, U), along, k.adjoint(XA[..., :size])),
        into.subtract(CH @ flat(k, Z), along, k.adjoint(XA[..., size:])),
    )


def _fused_combined(U: Array, Z: Array, XA: Array, C: Array, along: Array) -> tuple[Array, Array]:
    CH, (n, size) = C.conj().T, (len(XA), along.shape[1])
    u, z = CH.dot(U.mT.reshape(-1, n)), CH.dot(Z.mT.reshape(-1, n))
    u -= along.dot(XA[:, :size].conj().T)
    z -= along.dot(XA[:, size:].conj().T)
    return u, z


@kernel
def _seen(k: Kernels, U: Array, Z: Array, AX: Array, G: Array) -> Any:
    weighed = k.weigh(G)
    return k.reduce(flat(k, U) @ weighed, flat(k, Z) @ weighed, k._product(AX, weighed))


def _fused_seen(U: Array, Z: Array, AX: Array, G: Array) -> Any:
    n = len(G)
    return U.mT.reshape(-1, n).dot(G), Z.mT.reshape(-1, n).dot(G), AX.conj().T.dot(G)


@kernel
def _sum(
    k: Kernels, U: Array, Z: Array, G: Array, XA: Array, u: Array, z: Array, g: Array, xa: Array
) -> Array:
    N, into = k.adjoint(flat(k, U)) @ u, k.overwriting()
    N += k.adjoint(flat(k, Z)) @ z
    return into.subtract(into.subtract(N, G, -g), XA, -xa)


def _fused_sum(
    U: Array, Z: Array, G: Array, XA: Array, u: Array, z: Array, g: Array, xa: Array
) -> Array:
    n = len(XA)
    N = G.dot(g)
    N += U.mT.reshape(-1, n).conj().T.dot(u)
    N += Z.mT.reshape(-1, n).conj().T.dot(z)
    N += XA.dot(xa)
    return N


# -- blocks and Gram matrices --------------------------------------------------------------------


def _padded(a: NumpyArray, memory: RowMemory, k: Kernels) -> NumpyArray:
    """Weights of the vectors in use, with zeros for what `_in_use` adds."""
    missing = memory.U.shape[0] * memory.U.shape[-1] - len(a) if k.compiles else 0
    return np.concatenate((a, np.zeros((missing, a.shape[1]), a.dtype))) if missing else a


def _stored(k: Kernels, V: Array, blocks: int) -> Array:
    """One n×k matrix as the first of several blocks."""
    return _blocks_of(k, k.adjoint(V), blocks, V.shape[-1])


def _blocks_of(k: Kernels, rows: Array, blocks: int, size: int) -> Array:
    """Rows Uᴴ, and zeros, as blocks of ``size`` vectors, stored one vector after the other."""
    xp, n = k.xp, rows.shape[-1]
    zeros = xp.zeros((blocks * size - rows.shape[0], n), dtype=rows.dtype, device=k.device(rows))
    every = xp.reshape(xp.concat([rows, zeros], axis=0), (blocks, size, n))
    return xp.matrix_transpose(every)


def _grams_after(old: SubspaceGrams, products: list[NumpyArray], B: NumpyArray) -> SubspaceGrams:
    """The Gram matrices at X⁺, with the new block; X⁺(I − B) = X + S°."""
    p, k = len(old.WW) // 2, len(B)
    q = p + k
    Unew, Znew, own, with_XA, L = products
    WW, WX = np.empty((2, q, 2, q), own.dtype), np.empty((2, q, 2 * k), own.dtype)
    cross = np.concatenate((Unew[:p], Znew[:p]))  # of W with [S°, A S°]
    WW[:, :p, :, :p] = old.WW.reshape(2, p, 2, p)
    WW[:, :p, :, p:] = cross.reshape(2, p, 2, k)
    WW[:, p:, :, :p] = cross.conj().T.reshape(2, k, 2, p)
    WW[:, p:, :, p:] = own.reshape(2, k, 2, k)
    cross += old.WX
    WX[:, :p] = cross.reshape(4 * p, k).dot(inverse(np.eye(k) - B)).reshape(2, p, 2 * k)
    WX[:, p:] = with_XA.reshape(2, k, 2 * k)
    return SubspaceGrams(WW.reshape(2 * q, 2 * q), WX.reshape(2 * q, 2 * k), L[:k], L[k:])
