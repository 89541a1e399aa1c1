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


class Normal(NamedTuple):
    """Inner products of U° and of the normal part of Z°."""

    UU: NumpyArray
    UZ: NumpyArray
    ZZ: NumpyArray


class RitzPairs(NamedTuple):
    """T and θ: the Ritz vectors are U°T."""

    T: NumpyArray
    theta: NumpyArray


class SubspaceGrams(NamedTuple):
    """Inner products of p vectors U and their images Z with each other, with X and with AX."""

    UU: NumpyArray
    UZ: NumpyArray  # not quite Hermitian: the images have errors
    ZZ: NumpyArray
    UX: NumpyArray  # p×k, and so are the three that follow
    ZX: NumpyArray
    UAX: NumpyArray
    ZAX: NumpyArray
    XAX: NumpyArray  # k×k
    AXAX: NumpyArray

    def normal(self) -> Normal:
        """Those of the normal parts."""
        UU, UZ, ZZ, UX, ZX, UAX, ZAX, L, LL = self
        XU = UX.conj().T
        along = ZX - UX.dot(L.conj().T)  # (XᴴZ°)ᴴ, which is taken away from Z°
        UZ = UZ - UAX.dot(XU) - UX.dot(along.conj().T)
        rest = UX.dot((ZAX - UX.dot(LL)).conj().T)
        return Normal(UU - UX.dot(XU), UZ, ZZ - ZAX.dot(XU) - rest - along.dot(along.conj().T))


class RowMemory(NamedTuple):
    """Vectors and images in blocks (blocks, n, k), of which the first ``used`` count."""

    U: Array
    Z: Array
    AX: Array
    used: int
    grams: SubspaceGrams

    @property
    def full(self) -> bool:
        return self.used == self.U.shape[0]


def begun(
    k: Kernels, blocks: int, S: Array, Y: Array, X: Array, at: Gradient, D: NumpyArray, C: Any
) -> RowMemory:
    """A memory with the pair (S, Y D) as its first block; C is the constant part of ∇f."""
    D_, level = _placed(k, X, D, small(k, at.level).dot(D))
    U, Z, AX = _first(k, S, Y, X, at.G if C is None else at.G - C, D_, level)
    U, Z = (_stored(k, V, blocks) for V in (U, Z))
    return with_grams(k, U, Z, 1, X, AX)


def grown(
    k: Kernels, old: RowMemory, X0: Array, X: Array, at: Gradient, D: NumpyArray, C: Any
) -> RowMemory:
    """At X = X0 + S with the block of that step, unless it only rotates columns."""
    G = at.G if C is None else at.G - C
    arrays = *_in_use(k, old), X0, old.AX, X, G, *_placed(k, X, D, small(k, at.level).dot(D))
    S, T, AX, *found = _fused_step(*arrays) if k.pure_numpy else _step(k, *arrays)
    B, square, L, LL, *cross = _all_small(k, found)
    size = len(B)
    if not float(np.trace(cross[2][:size, :size]).real) > NORMAL**2 * float(square):
        return with_grams(k, old.U, old.Z, old.used, X, AX)
    grams = _grams_after(old.grams, cross, B, L, LL)
    if k.pure_numpy:
        old.U[old.used], old.Z[old.used] = S.conj(), T.conj()
        return RowMemory(old.U, old.Z, AX, old.used + 1, grams)
    U = k.write_row(old.U, old.used, k.conj(S))
    Z = k.write_row(old.Z, old.used, k.conj(T))
    return RowMemory(U, Z, AX, old.used + 1, grams)


def newest(k: Kernels, old: RowMemory, X: Array) -> RowMemory:
    """The last block alone."""
    blocks, last = old.U.shape[0], old.used - 1
    U, Z = (_stored(k, k.conj(V[last, ...]), blocks) for V in (old.U, old.Z))
    return with_grams(k, U, Z, 1, X, old.AX)


def compressed(k: Kernels, old: RowMemory, C: NumpyArray, X: Array) -> RowMemory:
    """The combinations U°C and Z°C take the place of all vectors.

    Their Gram matrices are computed anew: carried on, errors grow (Brockett 400×10 took 2,900
    evaluations from one start of four, and 90 from the others).
    """
    size, blocks = X.shape[-1], old.U.shape[0]
    weights = _placed(k, X, _padded(C, old, k), C.conj().T.dot(old.grams.UX))
    arrays = *_in_use(k, old), X, old.AX, *weights
    parts = _fused_combined(*arrays) if k.pure_numpy else _combined(k, *arrays)
    U, Z = (_blocks_of(k, rows, blocks, size) for rows in parts)
    return with_grams(k, U, Z, -(-C.shape[1] // size), X, old.AX)


def with_grams(k: Kernels, U: Array, Z: Array, used: int, X: Array, AX: Array) -> RowMemory:
    """These vectors seen from X; 8np² + 8npk."""
    memory = RowMemory(U, Z, AX, used, None)  # type: ignore[arg-type]
    arrays = *_in_use(k, memory), X, AX
    found = _fused_products(*arrays) if k.pure_numpy else _all_products(k, *arrays)
    found = _all_small(k, found)
    p = used * X.shape[-1]
    square, tall = [m[:p, :p] for m in found[:3]], [m[:p] for m in found[3:7]]
    return memory._replace(grams=SubspaceGrams(*square, *tall, *found[7:]))


def products(k: Kernels, memory: RowMemory, G: Array) -> list[NumpyArray]:
    """UᴴG, ZᴴG and AXᴴG."""
    arrays = *_in_use(k, memory), memory.AX, G
    UG, ZG, AXG = _all_small(k, _fused_seen(*arrays) if k.pure_numpy else _seen(k, *arrays))
    p = memory.used * G.shape[-1]
    return [UG[:p], ZG[:p], AXG]


def combination(
    k: Kernels, memory: RowMemory, X: Array, G: Array, weights: tuple[NumpyArray, ...]
) -> Array:
    """U a + Z b + G c + AX d + X e for the weights (a, b, c, d, e)."""
    a, b, *others = weights
    a, b = _padded(a, memory, k), _padded(b, memory, k)
    arrays = *_in_use(k, memory), G, memory.AX, X, *_placed(k, X, a, b, *others)
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


def ritz_pairs(normal: Normal, highest: float) -> RitzPairs:
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


def lowest_and_newest(ritz: RitzPairs, normal: Normal, lowest: int, size: int) -> NumpyArray:
    """Orthonormal combinations of U°: the lowest Ritz vectors, and the newest block."""
    T = ritz.T
    if T.shape[1] <= lowest:
        return T
    new = T[:, lowest:].conj().T.dot(normal.UU[:, -size:])  # beside the lowest ones
    return np.concatenate((T[:, :lowest], T[:, lowest:].dot(orthonormal_factor(new))), axis=1)


# -- the tall work, and NumPy's versions of what every iteration asks for ------------------------


@kernel
def _first(k: Kernels, S: Array, Y: Array, X: Array, G: Array, D: Array, C: Array) -> Any:
    """S° and its image, and AX = G D + X C."""
    into, AX, B = k.overwriting(), k.combine(G, D, X, C), k.gram(X, S)
    return into.subtract(S, X, B), into.subtract(Y @ D, AX, B), AX


@kernel
def _step(
    k: Kernels, U: Array, Z: Array, X0: Array, AX0: Array, X: Array, G: Array, D: Array, C: Array
) -> Any:
    """S°, T° = A S° and AX = G D + X C; XᴴS, ‖S‖², XᴴAX and AXᴴAX; products of [S°, T°]."""
    AX, into = k.combine(G, D, X, C), k.overwriting()
    S, T = X - X0, AX - AX0
    WS, WAX = k.weigh(S), k.weigh(AX)
    B, square, L, LL = k.reduce(
        k._product(X, WS), k._dot(S, WS), k._product(X, WAX), k._product(AX, WAX)
    )
    S, T = into.subtract(S, X, B), into.subtract(T, AX, B)
    new = k.xp.concat([S, T], axis=-1)
    weighed = k.weigh(new)
    return S, T, AX, B, square, L, LL, *k.reduce(
        flat(k, U) @ weighed, flat(k, Z) @ weighed, k._product(new, weighed),
        k._product(weighed, X), k._product(weighed, AX),
    )  # fmt: skip


def _fused_step(
    U: Array, Z: Array, X0: Array, AX0: Array, X: Array, G: Array, D: Array, C: Array
) -> Any:
    size, XH = X.shape[1], X.conj().T
    AX = G.dot(D)
    AX += X.dot(C)
    new = np.empty((len(X), 2 * size), X.dtype)
    S, T = new[:, :size], new[:, size:]
    np.subtract(X, X0, out=S)
    np.subtract(AX, AX0, out=T)
    B, square = XH.dot(S), np.vdot(S, S).real
    S -= X.dot(B)
    T -= AX.dot(B)
    adjoint = new.conj().T
    u, z = (V.mT.reshape(-1, len(X)) for V in (U, Z))
    return (
        S, T, AX, B, square, XH.dot(AX), AX.conj().T.dot(AX),
        u.dot(new), z.dot(new), adjoint.dot(new), adjoint.dot(X), adjoint.dot(AX),
    )  # fmt: skip


@kernel
def _all_products(k: Kernels, U: Array, Z: Array, X: Array, AX: Array) -> Any:
    u, z = flat(k, U), flat(k, Z)
    WU, WZ = k.weigh(k.adjoint(u)), k.weigh(k.adjoint(z))
    WX, WAX = k.weigh(X), k.weigh(AX)
    return k.reduce(
        u @ WU, u @ WZ, z @ WZ, u @ WX, z @ WX, u @ WAX, z @ WAX,
        k._product(X, WAX), k._product(AX, WAX),
    )  # fmt: skip


def _fused_products(U: Array, Z: Array, X: Array, AX: Array) -> Any:
    u, z = (V.mT.reshape(-1, len(X)) for V in (U, Z))
    uh, zh = u.conj().T, z.conj().T
    return (
        u.dot(uh), u.dot(zh), z.dot(zh), u.dot(X), z.dot(X), u.dot(AX), z.dot(AX),
        X.conj().T.dot(AX), AX.conj().T.dot(AX),
    )  # fmt: skip


@kernel
def _combined(
    k: Kernels, U: Array, Z: Array, X: Array, AX: Array, C: Array, along: Array
) -> tuple[Array, Array]:
    """The rows of (U C − X M)ᴴ and (Z C − AX M)ᴴ, M = alongᴴ."""
    into, CH = k.overwriting(), k.adjoint(C)
    return (
        into.subtract(CH @ flat(k, U), along, k.adjoint(X)),
        into.subtract(CH @ flat(k, Z), along, k.adjoint(AX)),
    )


def _fused_combined(
    U: Array, Z: Array, X: Array, AX: Array, C: Array, along: Array
) -> tuple[Array, Array]:
    CH, n = C.conj().T, len(X)
    u, z = CH.dot(U.mT.reshape(-1, n)), CH.dot(Z.mT.reshape(-1, n))
    u -= along.dot(X.conj().T)
    z -= along.dot(AX.conj().T)
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
    k: Kernels, U: Array, Z: Array, G: Array, AX: Array, X: Array,
    a: Array, b: Array, c: Array, d: Array, e: Array,
) -> Array:  # fmt: skip
    into = k.overwriting()
    N = k.adjoint(flat(k, U)) @ a
    N += k.adjoint(flat(k, Z)) @ b
    return into.subtract(into.subtract(into.subtract(N, G, -c), AX, -d), X, -e)


def _fused_sum(
    U: Array, Z: Array, G: Array, AX: Array, X: Array,
    a: Array, b: Array, c: Array, d: Array, e: Array,
) -> Array:  # fmt: skip
    n = len(X)
    N = G.dot(c)
    N += U.mT.reshape(-1, n).conj().T.dot(a)
    N += Z.mT.reshape(-1, n).conj().T.dot(b)
    N += AX.dot(d)
    N += X.dot(e)
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


def _grams_after(
    old: SubspaceGrams, cross: list[NumpyArray], B: NumpyArray, L: NumpyArray, LL: NumpyArray
) -> SubspaceGrams:
    """The Gram matrices at X⁺, with the new block; X⁺(I − B) = X + S°."""
    p, size = len(old.UU), len(B)
    R = inverse(np.eye(size) - B)
    US, UZ, ZS, ZZ = (m[:p, part] for m in cross[:2] for part in (slice(size), slice(size, None)))
    own, with_X, with_AX = cross[2:]
    SS, SZ, TZ = own[:size, :size], own[:size, size:], own[size:, size:]
    return SubspaceGrams(
        _bordered(old.UU, US, US.conj().T, SS),
        _bordered(old.UZ, UZ, ZS.conj().T, SZ),
        _bordered(old.ZZ, ZZ, ZZ.conj().T, TZ),
        np.concatenate(((old.UX + US).dot(R), with_X[:size])),
        np.concatenate(((old.ZX + ZS).dot(R), with_X[size:])),
        np.concatenate(((old.UAX + UZ).dot(R), with_AX[:size])),
        np.concatenate(((old.ZAX + ZZ).dot(R), with_AX[size:])),
        L,
        LL,
    )


def _bordered(K: NumpyArray, side: NumpyArray, below: NumpyArray, corner: NumpyArray) -> NumpyArray:
    """[[K, side], [below, corner]]."""
    p, k = side.shape
    out = np.empty((p + k, p + k), K.dtype)
    out[:p, :p], out[:p, p:], out[p:, :p], out[p:, p:] = K, side, below, corner
    return out
