"""What a run has seen of an operator A: vectors U, their images Z = A U, all inner products.

The vectors are kept in blocks of k, as the conjugates of columns, so that `flat` has the rows Uᴴ.
They stay as they are until the memory is full.  What is used of them is orthogonal to X,

    U° = U − X(XᴴU),    Z° = Z − AX(XᴴU),

and exists in Gram matrices only; those are carried from X to X⁺ by the products of U and Z with
the new block.  Gram matrices are small, and NumPy's wherever the point lives; every tall product
goes through the kernels of its library, and sums over ranks through their one reduction.

Tall work with p vectors: a new block 8npk + 24nk², the direction 8npk + 10nk², a memory made
smaller to q vectors 4npq + 6nq² + 8nqk.  Messages between ranks: two for a block, one for a
direction, one for a memory made smaller.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stiefel.backends.base import Kernels, kernel
from stiefel.types import Array, Gradient, NumpyArray

NORMAL = 1e-8  # a step whose normal part is smaller, relative to all of it, tells nothing of A


class Normal(NamedTuple):
    """Inner products of U° and of the normal part of Z°."""

    UU: NumpyArray
    UZ: NumpyArray
    ZZ: NumpyArray


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


def image(k: Kernels, X: Array, at: Gradient, D: NumpyArray, offset: Array | None) -> Array:
    """AX = (∇f(X) − C) D, with ∇f = G + X level and C the constant part of ∇f."""
    G = at.G if offset is None else at.G - offset
    return _image(k, G, X, *_placed(k, X, D, small(k, at.level).dot(D)))


def begun(k: Kernels, blocks: int, S: Array, Z: Array, X: Array, AX: Array) -> RowMemory:
    """A memory with one pair as its first block."""
    U, Z = _deflated(k, S, Z, X, AX, _gram(k, X, S))
    part = [_stored(k, V, blocks) for V in (U, Z)]
    return _measured(k, part[0], part[1], 1, X, AX)


def grown(k: Kernels, old: RowMemory, X0: Array, X: Array, AX: Array) -> RowMemory | None:
    """With the block of one more step, which must fit; None for one that only rotates columns."""
    S, T, *found = _differences(k, X0, old.AX, X, AX)
    B, square, L, LL = _all_small(k, found)
    S, T = _deflated(k, S, T, X, AX, *_placed(k, X, B))
    cross = _all_small(k, _products(k, *_in_use(k, old), S, T, X, AX))
    size = len(B)
    if not float(np.trace(cross[2][:size, :size]).real) > NORMAL**2 * float(square):
        return None
    grams = _grams_after(old.grams, cross, B, L, LL)
    U = k.write_row(old.U, old.used, k.conj(S))
    Z = k.write_row(old.Z, old.used, k.conj(T))
    return RowMemory(U, Z, AX, old.used + 1, grams)


def seen_from(k: Kernels, old: RowMemory, X: Array, AX: Array) -> RowMemory:
    """The same vectors seen from another point; 8np² + 8npk."""
    return _measured(k, old.U, old.Z, old.used, X, AX)


def newest(k: Kernels, old: RowMemory, X: Array) -> RowMemory:
    """The last block alone."""
    blocks, last = old.U.shape[0], old.used - 1
    U, Z = (_stored(k, k.conj(V[last, ...]), blocks) for V in (old.U, old.Z))
    return _measured(k, U, Z, 1, X, old.AX)


def compressed(k: Kernels, old: RowMemory, C: NumpyArray, X: Array) -> RowMemory:
    """The combinations U°C and Z°C take the place of all vectors."""
    size, blocks = X.shape[-1], old.U.shape[0]
    along = C.conj().T.dot(old.grams.UX)
    weights = _placed(k, X, _padded(C, old, k), along)
    pairs = zip(_in_use(k, old), (X, old.AX), strict=True)
    parts = (_combined(k, V, W, *weights) for V, W in pairs)
    U, Z = (_blocks_of(k, rows, blocks, size) for rows in parts)
    return _measured(k, U, Z, -(-C.shape[1] // size), X, old.AX)


def projections(
    k: Kernels, memory: RowMemory, X: Array, G: Array, W: NumpyArray, rotation: Array | None
) -> tuple[Array, NumpyArray, NumpyArray, NumpyArray]:
    """q = (G − X XᴴG) W, and UᴴQ, ZᴴQ, AXᴴQ of it; ``rotation`` is XᴴG where it is at hand."""
    rotation = small(k, _gram(k, X, G) if rotation is None else rotation)
    weights = _placed(k, X, W, rotation.dot(W))
    q, *seen = _projected(k, *_in_use(k, memory), memory.AX, X, G, *weights)
    p = memory.used * X.shape[-1]
    Uq, Zq, AXq = _all_small(k, seen)
    return q, Uq[:p], Zq[:p], AXq


def combination(
    k: Kernels,
    memory: RowMemory,
    X: Array,
    q: Array,
    weights: tuple[NumpyArray, NumpyArray, NumpyArray, NumpyArray, NumpyArray],
) -> Array:
    """U a + Z b + q c + AX d + X e for the weights (a, b, c, d, e)."""
    a, b, *others = weights
    a, b = _padded(a, memory, k), _padded(b, memory, k)
    return _summed(k, *_in_use(k, memory), memory.AX, X, q, *_placed(k, X, a, b, *others))


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


# -- the tall work -------------------------------------------------------------------------------


@kernel
def _image(k: Kernels, G: Array, X: Array, D: Array, C: Array) -> Array:
    return k.combine(G, D, X, C)


@kernel
def _gram(k: Kernels, X: Array, G: Array) -> Array:
    return k.gram(X, G)


@kernel
def _differences(k: Kernels, X0: Array, AX0: Array, X: Array, AX: Array) -> Any:
    """S = X − X0 and its image, and XᴴS, ‖S‖², XᴴAX and AXᴴAX."""
    S, weighed = X - X0, k.weigh(AX)
    WS = k.weigh(S)
    return (
        S,
        AX - AX0,
        *k.reduce(
            k._product(X, WS), k._dot(S, WS), k._product(X, weighed), k._product(AX, weighed)
        ),
    )


@kernel
def _deflated(k: Kernels, S: Array, T: Array, X: Array, AX: Array, B: Array) -> tuple[Array, Array]:
    """S° = S − X B and T° = T − AX B of arrays that nobody needs any more."""
    into = k.overwriting()
    return into.subtract(S, X, B), into.subtract(T, AX, B)


@kernel
def _products(k: Kernels, U: Array, Z: Array, S: Array, T: Array, X: Array, AX: Array) -> Any:
    """Of [S, T] with the memory, with itself, with X and with AX."""
    new = k.xp.concat([S, T], axis=-1)
    weighed = k.weigh(new)
    return k.reduce(
        flat(k, U) @ weighed,
        flat(k, Z) @ weighed,
        k._product(new, weighed),
        k._product(weighed, X),
        k._product(weighed, AX),
    )


@kernel
def _all_products(k: Kernels, U: Array, Z: Array, X: Array, AX: Array) -> Any:
    u, z = flat(k, U), flat(k, Z)
    WU, WZ = k.weigh(k.adjoint(u)), k.weigh(k.adjoint(z))
    WX, WAX = k.weigh(X), k.weigh(AX)
    return k.reduce(
        u @ WU, u @ WZ, z @ WZ, u @ WX, z @ WX, u @ WAX, z @ WAX,
        k._product(X, WAX), k._product(AX, WAX),
    )  # fmt: skip


@kernel
def _combined(k: Kernels, U: Array, W: Array, C: Array, along: Array) -> Array:
    """The rows of (U C − W M)ᴴ, M = alongᴴ."""
    return k.overwriting().subtract(k.adjoint(C) @ flat(k, U), along, k.adjoint(W))


@kernel
def _projected(
    k: Kernels, U: Array, Z: Array, AX: Array, X: Array, G: Array, W: Array, rotation: Array
) -> Any:
    q = k.combine(G, W, X, -rotation)
    weighed = k.weigh(q)
    return q, *k.reduce(flat(k, U) @ weighed, flat(k, Z) @ weighed, k._product(AX, weighed))


@kernel
def _summed(
    k: Kernels, U: Array, Z: Array, AX: Array, X: Array, q: Array,
    a: Array, b: Array, c: Array, d: Array, e: Array,
) -> Array:  # fmt: skip
    into = k.overwriting()
    N = k.adjoint(flat(k, U)) @ a
    N += k.adjoint(flat(k, Z)) @ b
    return into.subtract(into.subtract(into.subtract(N, q, -c), AX, -d), X, -e)


# -- blocks and Gram matrices --------------------------------------------------------------------


def _padded(a: NumpyArray, memory: RowMemory, k: Kernels) -> NumpyArray:
    """Weights of the vectors in use, with zeros for what `_blocks_in_use` adds."""
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


def _measured(k: Kernels, U: Array, Z: Array, used: int, X: Array, AX: Array) -> RowMemory:
    memory = RowMemory(U, Z, AX, used, None)  # type: ignore[arg-type]
    found = _all_small(k, _all_products(k, *_in_use(k, memory), X, AX))
    p = used * X.shape[-1]
    square, tall = [m[:p, :p] for m in found[:3]], [m[:p] for m in found[3:7]]
    return memory._replace(grams=SubspaceGrams(*square, *tall, *found[7:]))


def _grams_after(
    old: SubspaceGrams, cross: list[NumpyArray], B: NumpyArray, L: NumpyArray, LL: NumpyArray
) -> SubspaceGrams:
    """The Gram matrices at X⁺, with the new block; X⁺(I − B) = X + S°."""
    p, size = len(old.UU), len(B)
    R = np.linalg.inv(np.eye(size) - B)
    (US, UZ), (ZS, ZZ) = (np.split(m[:p], 2, axis=1) for m in cross[:2])
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
