"""What a run has seen of an operator A: vectors U, their images Z = A U, and Gram matrices.

They are kept as rows uᴴ and zᴴ, each vector before its image, in one array, so that products with
all of them are one, and so are sums of vectors together with those of their images.  They stay as
they are until the memory is full.  What is used of them is orthogonal to X,

    U° = U − X(XᴴU),    Z° = Z − AX(XᴴU),

and exists in Gram matrices only; those are carried from X to X⁺ by the products of U and Z with
the new block.  Gram matrices are small, and NumPy's wherever the point lives; every tall product
goes through the kernels of its library, and sums over ranks through their one reduction.

Tall work with p vectors: a new block 12npk + 50nk², the direction 4npk + 6nk², a memory made
smaller to q vectors 4npq + 8nq² + 16nqk.  Messages between ranks: two for a block, one for a memory
made smaller.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stiefel.backends.base import Kernels, kernel
from stiefel.backends.numpy import inverse
from stiefel.types import Array, Gradient, NumpyArray

from . import row_compiled
from .row_ritz import Stacked, asymmetries

NORMAL = 1e-8  # a step whose normal part is smaller, relative to all of it, tells nothing of A


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
    """Rows u₁ᴴ, z₁ᴴ, u₂ᴴ, z₂ᴴ, … in blocks (blocks, 2k, n), of which the first ``used`` count."""

    W: Array
    XA: Array  # X and AX beside each other, n×2k
    used: int
    grams: SubspaceGrams
    seen: NumpyArray | None  # of the gradient G at X: WᴴG, and AXᴴG below it; of exact models

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
    return with_grams(k, _stored(k, first[None, ...], blocks), 1, XA, at.G)


def grown(
    k: Kernels, old: RowMemory, X: Array, at: Gradient, D: NumpyArray, C: Any
) -> tuple[RowMemory, float, float]:
    """At X with the block of the step to it, unless that only rotates columns.

    And the asymmetries of the new block, and of all blocks together.
    """
    E = at.G if C is None else at.G - C
    fast = row_compiled.row_kernels(k, X)
    if fast is not None:
        kept = old.W, old.used, old.XA
        found = row_compiled.with_new_block(
            fast, kept, X, E, at.G, (D, at.level), old.grams[:2], NORMAL
        )
        added, of_newest, of_all, XA, *products, seen = found
        if not added:
            return with_grams(k, old.W, old.used, XA, at.G), 0.0, 0.0
        new = RowMemory(old.W, XA, old.used + 1, SubspaceGrams(*products), seen)
        return new, of_newest, of_all
    arrays = _in_use(k, old), old.XA, X, E, at.G, *_placed(k, X, D, small(k, at.level).dot(D))
    rows, XA, *found = _fused_step(*arrays) if k.pure_numpy else _step(k, *arrays)
    B, cross, own = _all_small(k, found)
    size = len(B)
    length = float(own[2 * size : 3 * size, 2 * size : 3 * size].trace().real)
    if not length > NORMAL**2 * (length + float(np.vdot(B, B).real)):
        return with_grams(k, old.W, old.used, XA, at.G), 0.0, 0.0
    W = k.write_row(old.W, old.used, rows)
    grams, seen = _grams_after(old, cross, own, B)
    return RowMemory(W, XA, old.used + 1, grams, seen), *asymmetries(grams.WW, size)


def newest(k: Kernels, old: RowMemory, G: Array) -> RowMemory:
    """The last block alone."""
    last = old.used - 1
    return with_grams(k, _stored(k, old.W[last : last + 1, ...], old.W.shape[0]), 1, old.XA, G)


def compressed(k: Kernels, old: RowMemory, C: NumpyArray, G: Array) -> RowMemory:
    """The combinations U°C and Z°C take the place of all vectors.

    Their Gram matrices are computed anew: carried on, errors grow (Brockett 400×10 took 2,900
    evaluations from one start of four, and 90 from the others).
    """
    blocks, size = old.W.shape[0], old.XA.shape[-1] // 2
    used = -(-C.shape[1] // size)
    full = np.zeros((size * (blocks if k.compiles else old.used), size * used), C.dtype)
    full[: len(C), : C.shape[1]] = C
    UX = old.grams.WX[: len(C), :size]
    along = full[: len(C)].conj().T.dot(UX)
    fast = row_compiled.row_kernels(k, old.XA)
    if fast is not None:
        W = row_compiled.combined(fast, (old.W, old.used, old.XA), full, along, blocks)
        return with_grams(k, W, used, old.XA, G)
    arrays = _in_use(k, old), old.XA, *_placed(k, old.XA, full, along)
    if k.pure_numpy:
        return with_grams(k, _fused_combined(blocks, *arrays), used, old.XA, G)
    return with_grams(k, _stored(k, _combined(k, *arrays), blocks), used, old.XA, G)


def with_grams(k: Kernels, W: Array, used: int, XA: Array, G: Array) -> RowMemory:
    """These vectors seen from X; 8np² + 12npk."""
    fast = row_compiled.row_kernels(k, XA)
    if fast is not None:
        *made, seen = row_compiled.all_grams(fast, W, used, XA, G)
        return RowMemory(W, XA, used, SubspaceGrams(*made), seen)
    memory = RowMemory(W, XA, used, None, None)  # type: ignore[arg-type]
    WW, WX, XX = _all_small(k, _all_products(k, _in_use(k, memory), XA, G))
    rows, width = used * W.shape[-2], XX.shape[0]
    WW, WX = _sorted(_sorted(WW[:rows, :rows]).T).T, _sorted(WX[:rows])
    grams = SubspaceGrams(WW, WX[:, :width], XX[:, :width])
    return memory._replace(grams=grams, seen=_below(WX[:, width:], XX[width // 2 :, width:]))


def products(k: Kernels, memory: RowMemory, G: Array) -> NumpyArray:
    """WᴴG, and AXᴴG below it."""
    arrays = _in_use(k, memory), memory.AX, G
    WG, AXG = _all_small(k, _fused_seen(*arrays) if k.pure_numpy else _seen(k, *arrays))
    return _below(_sorted(WG[: memory.used * memory.W.shape[-2]]), AXG)


def combination(
    k: Kernels, memory: RowMemory, G: Array, w: NumpyArray, g: NumpyArray, xa: NumpyArray
) -> Array:
    """W w + G g + [X, AX] xa."""
    size = w.shape[1]
    w = w.reshape(2, -1, size).transpose(1, 0, 2).reshape(-1, size)
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


def _sorted(rows: NumpyArray) -> NumpyArray:
    """Each vector before its image; all vectors first from now on."""
    width = rows.shape[1]
    return rows.reshape(-1, 2, width).transpose(1, 0, 2).reshape(-1, width)


def _below(above: NumpyArray, low: NumpyArray) -> NumpyArray:
    return np.concatenate((above, low))


# -- the tall work, and NumPy's versions of what every iteration asks for ------------------------


@kernel
def _first(k: Kernels, S: Array, Y: Array, X: Array, G: Array, D: Array, C: Array) -> Any:
    """The rows of S° and of its image, and [X, AX] with AX = G D + X C."""
    into, AX, B = k.overwriting(), k.combine(G, D, X, C), k.gram(X, S)
    U, Z = into.subtract(S, X, B), into.subtract(Y @ D, AX, B)
    return _woven(k, k.xp.concat([U, Z], axis=-1)), k.xp.concat([X, AX], axis=-1)


def _woven(k: Kernels, UZ: Array) -> Array:
    """The rows u₁ᴴ, z₁ᴴ, u₂ᴴ, z₂ᴴ, … of [U, Z]."""
    n, both = UZ.shape
    return k.conj(
        k.xp.reshape(k.xp.permute_dims(k.xp.reshape(UZ, (n, 2, -1)), (2, 1, 0)), (both, n))
    )


@kernel
def _step(
    k: Kernels, W: Array, XA0: Array, X: Array, E: Array, G: Array, D: Array, C: Array
) -> Any:
    """The rows of S° and A S°, [X, AX] with AX = E D + X C; XᴴS; products of [S°, A S°, G] with W,
    and of [X, AX, S°, A S°] with all of these."""
    AX, into, size = k.combine(E, D, X, C), k.overwriting(), X.shape[-1]
    XA = k.xp.concat([X, AX], axis=-1)
    S, T = X - XA0[..., :size], AX - XA0[..., size:]
    (B,) = k.reduce(k._product(X, k.weigh(S)))
    new = k.xp.concat([into.subtract(S, X, B), into.subtract(T, AX, B)], axis=-1)
    weighed = k.weigh(k.xp.concat([XA, new, G], axis=-1))
    tall = k.xp.concat([XA, new], axis=-1)
    return (
        _woven(k, new),
        XA,
        B,
        *k.reduce(_flat(k, W) @ weighed[..., 2 * size :], k._product(tall, weighed)),
    )


def _fused_step(W: Array, XA0: Array, X: Array, E: Array, G: Array, D: Array, C: Array) -> Any:
    n, size = X.shape
    AX = E.dot(D)
    AX += X.dot(C)
    XA = np.concatenate((X, AX), axis=1)
    new = XA - XA0
    S, T = new[:, :size], new[:, size:]
    B = X.conj().T.dot(S)
    S -= X.dot(B)
    T -= AX.dot(B)
    tall = np.concatenate((XA, new, G), axis=1)
    rows = new.reshape(n, 2, size).transpose(2, 1, 0).reshape(2 * size, n).conj()
    cross = W.reshape(-1, n).dot(tall[:, 2 * size :])
    return rows, XA, B, cross, tall[:, : 4 * size].conj().T.dot(tall)


@kernel
def _all_products(k: Kernels, W: Array, XA: Array, G: Array) -> Any:
    w, weighed = _flat(k, W), k.weigh(k.xp.concat([XA, G], axis=-1))
    return k.reduce(w @ k.weigh(k.adjoint(w)), w @ weighed, k._product(XA, weighed))


@kernel
def _combined(k: Kernels, W: Array, XA: Array, C: Array, along: Array) -> Array:
    """Blocks of the rows of U C − X M and Z C − AX M, M = alongᴴ."""
    into, xp, (_, rows, n) = k.overwriting(), k.xp, W.shape
    size, old = rows // 2, xp.reshape(W, (-1, 2 * n))
    XA = xp.reshape(_woven(k, XA), (size, 2 * n))
    return xp.reshape(into.subtract(k.adjoint(C) @ old, along, XA), (-1, rows, n))


def _fused_combined(blocks: int, W: Array, XA: Array, C: Array, along: Array) -> Array:
    """The same, and room for the others."""
    (_, rows, n), used = W.shape, C.shape[1]
    new = np.zeros((blocks, rows, n), W.dtype)
    made = new.reshape(-1, 2 * n)[:used]
    C.conj().T.dot(W.reshape(-1, 2 * n), out=made)
    made[:, :n] -= along.dot(XA[:, : rows // 2].conj().T)
    made[:, n:] -= along.dot(XA[:, rows // 2 :].conj().T)
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
    old: RowMemory, cross: NumpyArray, own: NumpyArray, B: NumpyArray
) -> tuple[SubspaceGrams, NumpyArray]:
    """The Gram matrices at X⁺, with the new block, and what is seen; X⁺(I − B) = X + S°.

    ``cross`` has the products of W, ``own`` those of [X, AX, S°, A S°], as `_step` has them.
    """
    (WW0, WX0, _), k = old.grams, len(B)
    p, two = len(WW0) // 2, 2 * k
    q = p + k
    WW, WX = np.empty((2, q, 2, q), own.dtype), np.empty((2, q, two), own.dtype)
    cross = _sorted(cross[: 2 * p])
    new, XX = own[two:], own[:two, :two]
    WW[:, :p, :, :p] = WW0.reshape(2, p, 2, p)
    WW[:, :p, :, p:] = cross[:, :two].reshape(2, p, 2, k)
    WW[:, p:, :, :p] = cross[:, :two].conj().T.reshape(2, k, 2, p)
    WW[:, p:, :, p:] = new[:, two : 2 * two].reshape(2, k, 2, k)
    moved = (cross[:, :two] + WX0).reshape(4 * p, k)
    WX[:, :p] = moved.dot(inverse(np.eye(k) - B)).reshape(2, p, two)
    WX[:, p:] = new[:, :two].reshape(2, k, two)
    seen = np.empty((2 * q + k, k), own.dtype)
    both = seen[: 2 * q].reshape(2, q, k)
    both[:, :p], both[:, p:] = cross[:, two:].reshape(2, p, k), new[:, 2 * two :].reshape(2, k, k)
    seen[2 * q :] = own[k:two, 2 * two :]
    return SubspaceGrams(WW.reshape(2 * q, 2 * q), WX.reshape(2 * q, two), XX), seen
