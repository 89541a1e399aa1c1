"""What a run has seen of an operator A: vectors U, their images Z = A U, and its Ritz pairs.

They are kept as the rows of Uᴴ and Zᴴ in blocks of k vectors and their images, one array for all,
so that products with all of them are one.  They stay as they are until the memory is full.  What is
used of them is orthogonal to X,

    U° = U − X(XᴴU),    Z° = Z − AX(XᴴU),

and exists in Gram matrices only; those are carried from X to X⁺ by the products of U and Z with
the new block.  Gram matrices are small, and NumPy's wherever the point lives; every tall product
goes through the kernels of its library, and sums over ranks through their one reduction.

Tall work with p vectors: a new block 8npk + 26nk², the direction 8npk + 8nk², a memory made
smaller to q vectors 4npq + 4nq² + 14nqk.  Messages between ranks: two for a block, one for a
direction, one for a memory made smaller.
"""

from __future__ import annotations

import math
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


class RitzPairs(NamedTuple):
    """T and θ: the Ritz vectors are U°T."""

    T: NumpyArray
    theta: NumpyArray


class SubspaceGrams(NamedTuple):
    """Inner products of W = [U, Z], the images after the vectors, with each other and [X, AX]."""

    WW: NumpyArray  # 2p×2p; UᴴZ is not quite Hermitian: the images have errors
    WX: NumpyArray  # 2p×2k: UᴴX and UᴴAX, then ZᴴX and ZᴴAX
    XX: NumpyArray  # 2k×2k: of [X, AX]

    @property
    def L(self) -> NumpyArray:
        """Λ = XᴴAX."""
        k = len(self.XX) // 2
        return self.XX[:k, k:]

    @property
    def LL(self) -> NumpyArray:
        """AXᴴAX."""
        k = len(self.XX) // 2
        return self.XX[k:, k:]

    def normal(self) -> Stacked:
        """Those of the normal parts: of U° = U − X M and Z° = Z − AX M − X N, M = XᴴU, XᴴZ° = 0.

        With the rows F of what is taken away from W and the Gram matrix B of [X, AX],
        W°ᴴW° = WᴴW − F Qᴴ − Q Fᴴ with Q = WᴴX − F B/2.
        """
        WW, WX, B = self
        p, k = len(WW) // 2, len(B) // 2
        F, UX = np.zeros_like(WX), WX[:p, :k]
        F[:p, :k] = F[p:, k:] = UX
        F[p:, :k] = WX[p:, :k] - UX.dot(B[k:, :k])
        Q = F.dot(B)
        Q *= -0.5
        Q += WX
        taken = F.dot(Q.conj().T)
        taken += taken.conj().T
        return Stacked(WW - taken)


class RowMemory(NamedTuple):
    """Rows Uᴴ and then Zᴴ in blocks (blocks, 2k, n), of which the first ``used`` count."""

    W: Array
    XA: Array  # X and AX beside each other, n×2k
    used: int
    grams: SubspaceGrams

    @property
    def AX(self) -> Array:
        return self.XA[:, self.XA.shape[-1] // 2 :]

    @property
    def full(self) -> bool:
        return self.used == self.W.shape[0]


def begun(
    k: Kernels, blocks: int, S: Array, Y: Array, X: Array, at: Gradient, D: NumpyArray, C: Any
) -> RowMemory:
    """A memory with the pair (S, Y D) as its first block; C is the constant part of ∇f."""
    D_, level = _placed(k, X, D, small(k, at.level).dot(D))
    first, XA = _first(k, S, Y, X, at.G if C is None else at.G - C, D_, level)
    return with_grams(k, _stored(k, first[None, ...], blocks), 1, XA)


def grown(k: Kernels, old: RowMemory, X: Array, at: Gradient, D: NumpyArray, C: Any) -> RowMemory:
    """At X with the block of the step to it, unless that only rotates columns."""
    G = at.G if C is None else at.G - C
    arrays = _in_use(k, old), old.XA, X, G, *_placed(k, X, D, small(k, at.level).dot(D))
    new, XA, *found = _fused_step(*arrays) if k.pure_numpy else _step(k, *arrays)
    B, cross, own, with_XA, XX = _all_small(k, found)
    size = len(B)
    length = float(own[:size, :size].trace().real)
    if not length > NORMAL**2 * (length + float(np.vdot(B, B).real)):
        return with_grams(k, old.W, old.used, XA)
    grams = _grams_after(old, cross, own, with_XA, XX, B)
    if k.pure_numpy:
        old.W[old.used] = new.conj().T
        return RowMemory(old.W, XA, old.used + 1, grams)
    W = k.write_row(old.W, old.used, k.adjoint(new))
    return RowMemory(W, XA, old.used + 1, grams)


def newest(k: Kernels, old: RowMemory) -> RowMemory:
    """The last block alone."""
    last = old.used - 1
    return with_grams(k, _stored(k, old.W[last : last + 1, ...], old.W.shape[0]), 1, old.XA)


def compressed(k: Kernels, old: RowMemory, C: NumpyArray) -> RowMemory:
    """The combinations U°C and Z°C take the place of all vectors.

    Their Gram matrices are computed anew: carried on, errors grow (Brockett 400×10 took 2,900
    evaluations from one start of four, and 90 from the others).
    """
    blocks, size = old.W.shape[0], old.XA.shape[-1] // 2
    used = -(-C.shape[1] // size)
    full = np.zeros((size * (blocks if k.compiles else old.used), size * used), C.dtype)
    full[: len(C), : C.shape[1]] = C
    UX = old.grams.WX[: len(C), :size]
    weights = _placed(k, old.XA, full, full[: len(C)].conj().T.dot(UX))
    arrays = _in_use(k, old), old.XA, *weights
    if k.pure_numpy:
        return with_grams(k, _fused_combined(blocks, *arrays), used, old.XA)
    return with_grams(k, _stored(k, _combined(k, *arrays), blocks), used, old.XA)


def with_grams(k: Kernels, W: Array, used: int, XA: Array) -> RowMemory:
    """These vectors seen from X; 4np² + 8npk."""
    memory = RowMemory(W, XA, used, None)  # type: ignore[arg-type]
    WW, WX, XX = _all_small(k, _all_products(k, _in_use(k, memory), XA))
    rows = used * W.shape[-2]
    grams = SubspaceGrams(
        _sorted(_sorted(WW[:rows, :rows], used).T, used).T, _sorted(WX[:rows], used), XX
    )
    return memory._replace(grams=grams)


def products(k: Kernels, memory: RowMemory, G: Array) -> tuple[NumpyArray, NumpyArray]:
    """WᴴG and AXᴴG."""
    arrays = _in_use(k, memory), memory.AX, G
    WG, AXG = _all_small(k, _fused_seen(*arrays) if k.pure_numpy else _seen(k, *arrays))
    return _sorted(WG[: memory.used * memory.W.shape[-2]], memory.used), AXG


def combination(
    k: Kernels, memory: RowMemory, G: Array, w: NumpyArray, g: NumpyArray, xa: NumpyArray
) -> Array:
    """W w + G g + [X, AX] xa."""
    size = w.shape[1]
    w = w.reshape(2, memory.used, size, size).transpose(1, 0, 2, 3).reshape(len(w), size)
    if k.compiles:  # zeros for what `_in_use` adds
        missing = memory.W.shape[0] * 2 * size - len(w)
        w = np.concatenate((w, np.zeros((missing, size), w.dtype)))
    arrays = _in_use(k, memory), G, memory.XA, *_placed(k, G, w, g, xa)
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


def _in_use(k: Kernels, memory: RowMemory) -> Array:
    """The blocks in use; all of them where every shape is compiled anew."""
    return memory.W if k.compiles else memory.W[: memory.used, ...]


def _flat(k: Kernels, W: Array) -> Array:
    blocks, rows, n = W.shape
    return k.xp.reshape(W, (blocks * rows, n))


def _sorted(rows: NumpyArray, used: int) -> NumpyArray:
    """Block by block, vectors and images; all vectors first from now on."""
    width = rows.shape[1]
    return rows.reshape(used, 2, -1, width).transpose(1, 0, 2, 3).reshape(-1, width)


# -- Ritz pairs ------------------------------------------------------------------------------------


def asymmetry(K: NumpyArray, squares: NumpyArray) -> float:
    """‖K − Kᴴ‖/‖K‖ of K = SᴴZ, with the columns of S (of these squared lengths) of length one."""
    return _skewness(_scaled(K, squares))


def _scaled(K: NumpyArray, squares: NumpyArray) -> NumpyArray:
    scale = 1.0 / np.sqrt(np.maximum(squares, TINY))
    return K * scale * scale[:, None]


def _skewness(K: NumpyArray) -> float:
    skew, size = K - K.conj().T, np.vdot(K, K).real
    return math.sqrt(np.vdot(skew, skew).real / size) if size > 0 else math.inf


def asymmetries(grams: SubspaceGrams, size: int) -> tuple[float, float]:
    """Of the newest block, and of all blocks together."""
    seen = Stacked(grams.WW)
    K = _scaled(seen.UZ, np.diagonal(seen.UU).real)
    return _skewness(K[-size:, -size:]), _skewness(K)


def ritz_pairs(normal: Stacked, highest: float) -> RitzPairs:
    """TᴴUU T = I and Tᴴherm(UZ)T = diag(θ), θ above the highest shift; see `_reliable`."""
    T = orthonormalising(normal.UU, DEPENDENT)
    K = T.conj().T.dot(normal.UZ).dot(T)
    KH = K.conj().T
    theta, vectors = eigh(0.5 * (K + KH))
    first = int(theta.searchsorted(highest, "right"))
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
    """The rows of S° and of its image, and [X, AX] with AX = G D + X C."""
    into, AX, B = k.overwriting(), k.combine(G, D, X, C), k.gram(X, S)
    U, Z = into.subtract(S, X, B), into.subtract(Y @ D, AX, B)
    return k.adjoint(k.xp.concat([U, Z], axis=-1)), k.xp.concat([X, AX], axis=-1)


@kernel
def _step(k: Kernels, W: Array, XA0: Array, X: Array, G: Array, D: Array, C: Array) -> Any:
    """[S°, A S°] and [X, AX], AX = G D + X C; XᴴS; products of both."""
    AX, into, size = k.combine(G, D, X, C), k.overwriting(), X.shape[-1]
    XA = k.xp.concat([X, AX], axis=-1)
    S, T = X - XA0[..., :size], AX - XA0[..., size:]
    (B,) = k.reduce(k._product(X, k.weigh(S)))
    new = k.xp.concat([into.subtract(S, X, B), into.subtract(T, AX, B)], axis=-1)
    weighed = k.weigh(new)
    return new, XA, B, *k.reduce(
        _flat(k, W) @ weighed, k._product(new, weighed), k._product(weighed, XA),
        k._product(XA, k.weigh(XA)),
    )  # fmt: skip


def _fused_step(W: Array, XA0: Array, X: Array, G: Array, D: Array, C: Array) -> Any:
    n, size = X.shape
    AX = G.dot(D)
    AX += X.dot(C)
    XA = np.concatenate((X, AX), axis=1)
    new = XA - XA0
    S, T = new[:, :size], new[:, size:]
    B = X.conj().T.dot(S)
    S -= X.dot(B)
    T -= AX.dot(B)
    adjoint = new.conj().T
    return (
        new, XA, B, W.reshape(-1, n).dot(new), adjoint.dot(new), adjoint.dot(XA),
        XA.conj().T.dot(XA),
    )  # fmt: skip


@kernel
def _all_products(k: Kernels, W: Array, XA: Array) -> Any:
    w, weighed = _flat(k, W), k.weigh(XA)
    return k.reduce(w @ k.weigh(k.adjoint(w)), w @ weighed, k._product(XA, weighed))


@kernel
def _combined(k: Kernels, W: Array, XA: Array, C: Array, along: Array) -> Array:
    """Blocks of the rows of (U C − X M)ᴴ and (Z C − AX M)ᴴ, M = alongᴴ."""
    into, xp, (blocks, rows, n) = k.overwriting(), k.xp, W.shape
    size, CH = rows // 2, k.adjoint(C)
    new = []
    for part in (slice(0, size), slice(size, rows)):
        old = xp.reshape(W[:, part, :], (blocks * size, n))
        made = into.subtract(CH @ old, along, k.adjoint(XA[..., part]))
        new.append(xp.reshape(made, (-1, size, n)))
    return xp.concat(new, axis=1)


def _fused_combined(blocks: int, W: Array, XA: Array, C: Array, along: Array) -> Array:
    """The same, and room for the others."""
    (_, rows, n), CH = W.shape, C.conj().T
    new = np.zeros((blocks, rows, n), W.dtype)
    for part in (slice(0, rows // 2), slice(rows // 2, rows)):
        made = CH.dot(W[:, part].reshape(-1, n))
        made -= along.dot(XA[:, part].conj().T)
        new[: 2 * len(made) // rows, part] = made.reshape(-1, rows // 2, n)
    return new


@kernel
def _seen(k: Kernels, W: Array, AX: Array, G: Array) -> Any:
    weighed = k.weigh(G)
    return k.reduce(_flat(k, W) @ weighed, k._product(AX, weighed))


def _fused_seen(W: Array, AX: Array, G: Array) -> Any:
    return W.reshape(-1, len(G)).dot(G), AX.conj().T.dot(G)


@kernel
def _sum(k: Kernels, W: Array, G: Array, XA: Array, w: Array, g: Array, xa: Array) -> Array:
    into = k.overwriting()
    return into.subtract(into.subtract(k.adjoint(_flat(k, W)) @ w, G, -g), XA, -xa)


def _fused_sum(W: Array, G: Array, XA: Array, w: Array, g: Array, xa: Array) -> Array:
    N = W.reshape(-1, len(G)).conj().T.dot(w)
    N += G.dot(g)
    N += XA.dot(xa)
    return N


# -- blocks and Gram matrices --------------------------------------------------------------------


def _stored(k: Kernels, first: Array, blocks: int) -> Array:
    """The first of several blocks, and room for the others."""
    if k.pure_numpy:
        W = np.zeros((blocks, *first.shape[1:]), first.dtype)
        W[: len(first)] = first
        return W
    shape = (blocks - first.shape[0], *first.shape[1:])
    room = k.xp.zeros(shape, dtype=first.dtype, device=k.device(first))
    return k.xp.concat([first, room], axis=0)


def _grams_after(
    old: RowMemory,
    cross: NumpyArray,
    own: NumpyArray,
    with_XA: NumpyArray,
    XX: NumpyArray,
    B: NumpyArray,
) -> SubspaceGrams:
    """The Gram matrices at X⁺, with the new block; X⁺(I − B) = X + S°."""
    (WW0, WX0, _), k = old.grams, len(B)
    p = len(WW0) // 2
    q = p + k
    WW, WX = np.empty((2, q, 2, q), own.dtype), np.empty((2, q, 2 * k), own.dtype)
    cross = _sorted(cross[: 2 * p], old.used)  # of W with [S°, A S°]
    WW[:, :p, :, :p] = WW0.reshape(2, p, 2, p)
    WW[:, :p, :, p:] = cross.reshape(2, p, 2, k)
    WW[:, p:, :, :p] = cross.conj().T.reshape(2, k, 2, p)
    WW[:, p:, :, p:] = own.reshape(2, k, 2, k)
    cross += WX0
    WX[:, :p] = cross.reshape(4 * p, k).dot(inverse(np.eye(k) - B)).reshape(2, p, 2 * k)
    WX[:, p:] = with_XA.reshape(2, k, 2 * k)
    return SubspaceGrams(WW.reshape(2 * q, 2 * q), WX.reshape(2 * q, 2 * k), XX)
