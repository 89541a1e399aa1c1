"""A model of the operator A in ∇²f[S] = A S M, learned from the steps of a run.

Each step S = X⁺ − X shows k secants of one symmetric n×n operator A,

    A S = Y D,    Y = ∇f(X⁺) − ∇f(X),    D = M⁻¹,

exact for a step of any length where f is quadratic.  If also ∇f(X) = A X M, then AX = ∇f(X) D, and
what is known of A is Z = A U on a space of vectors that is kept orthogonal to X:

    U° = U − X(XᵀU),    Z° = Z − AX(XᵀU).

The Hessian takes a normal part V to A V M − V C, C = herm(Xᵀ∇f).  With D½CD½ = Q c Qᵀ and
V = v QᵀD½ this is A v − v c, one shifted operator for each column.  With Ritz pairs (θ, U) of A and
e = 1/(θ − c_i), γ_i = 1/(σ − c_i), the inverse of column i is the block BFGS formula

    H_i = (I − U e (Z − Uc_i)ᵀ) γ_i (I − (Z − Uc_i) e Uᵀ) + U e Uᵀ,

positive definite for θ, σ > c: Ritz vectors below the largest c are forgotten.  σ is such that
⟨y, H₀y⟩ = ⟨s, y⟩ for the newest step.  A rotation
X → X exp Ω has curvature −(Λ_i − Λ_j)(μ_i − μ_j) in Ω_ij, in the eigenbasis of M = diag(μ) with
Λ = XᵀAX.

The memory is thick: when it is full, the lowest Ritz vectors and the newest block stay.

Tall work: U and Z stay as they are until the memory is full, and U°, Z° exist in Gram matrices
only; these are carried from X to X⁺ by the products of U and Z with the new block, 8npk.  The
direction takes 8npk, and a memory that is full is made smaller for 4npq.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stiefel.backends.numpy import add_product
from stiefel.types import Array, Gradient, Manifold, NumpyArray

from .columns import symmetrising
from .parameters import check_integer, check_open_interval

EPS = float(np.finfo(np.float64).eps)
PAIR_ROUNDING = 1e-6  # relative errors of a pair that is looked at
PAIRS = 3  # from which D is learned
DEPENDENT = 1e-6  # eigenvalues of a Gram matrix below this, relative to the largest, are dropped
NORMAL = 1e-8  # a step whose normal part is smaller, relative to all of it, tells nothing of A
SOFTEST = 1e-4  # curvature of a rotation, relative to the largest


class Normal(NamedTuple):
    """Inner products of U° and of the normal part of Z°."""

    UU: Array
    UZ: Array
    ZZ: Array


class SubspaceGrams(NamedTuple):
    """Inner products of p vectors U and their images Z with each other, with X and with AX."""

    UU: Array
    UZ: Array  # not quite symmetric: the images have errors
    ZZ: Array
    XU: Array  # p×k, and so are the others
    XZ: Array
    AXU: Array
    AXZ: Array

    def deflated(self, L: NumpyArray, LL: NumpyArray) -> Normal:
        """Those of the normal parts, with L = XᵀAX and LL = (AX)ᵀAX."""
        UU, UZ, ZZ, M, XZ, AXU, AXZ = self
        along = XZ - M.dot(L.T)  # XᵀZ°, which is taken away from Z°
        UZ = UZ - AXU.dot(M.T) - M.dot(along.T)
        ZZ = ZZ - AXZ.dot(M.T) - M.dot((AXZ - M.dot(LL)).T) - along.dot(along.T)
        return Normal(UU - M.dot(M.T), UZ, ZZ)


class Rows(NamedTuple):
    """What is known about A; the vectors are the rows of V.  While D is not known, Z is Y."""

    V: Array = None  # (2, p, n): U and Z
    AX: Array = None
    D: Array = None  # of determinant one
    UZ: Array = None  # while D is not known
    grams: SubspaceGrams | None = None  # of U and Z
    now: Normal | None = None  # of U° and Z°
    T: Array = None  # the Ritz vectors are TᵀU° …
    theta: Array = None  # … and these their values
    on: bool = False
    looks: int = 0  # steps looked at while D was not known
    resets: int = 0  # times that all but the newest block was forgotten


OFF = Rows()


class StepEnds(NamedTuple):
    """Where a step began and ended."""

    X0: Array
    at0: Gradient
    X: Array
    at: Gradient


class Columns(NamedTuple):
    """The columns in which the Hessian is one shifted operator each: q ↦ q W, V = v Wᵀ."""

    c: NumpyArray  # the shifts, rising
    W: NumpyArray  # D½Q
    F: NumpyArray  # D^{-½}Q, for tangents
    values: NumpyArray  # of D …
    vectors: NumpyArray  # … and its eigenvectors

    @classmethod
    def of(cls, D: NumpyArray, level: NumpyArray) -> Columns:
        values, vectors = np.linalg.eigh(D)
        root = (vectors * np.sqrt(values)).dot(vectors.T)
        c, Q = np.linalg.eigh(root.dot(level).dot(root))
        inverse = (vectors / np.sqrt(values)).dot(vectors.T)
        return cls(c, root.dot(Q), inverse.dot(Q), values, vectors)


@dataclass(frozen=True)
class RowModel:
    """When the operator is recognised, and how much of it is kept.

    Parameters
    ----------
    blocks : the memory, in blocks of k vectors and as many images.
    ritz : how many of them are lowest Ritz vectors once the memory is full.
    gate : the asymmetry up to which a pair is explained.
    looks : steps after which the search for the structure is given up.
    contradiction : the asymmetry of a new pair at which the model is given up.
    decay : the asymmetry with a new pair at which all older ones are forgotten.
    widest : up to so many columns D is looked for; D = I is tried for more.

    Examples
    --------
    >>> import stiefel
    >>> from stiefel.objectives import Brockett
    >>> from stiefel.solvers import RowModel
    >>> x0 = stiefel.random_point(100, 4, seed=0)
    >>> method = stiefel.LBFGS(rows=RowModel(blocks=6, ritz=3))
    >>> stiefel.minimize(Brockett.table(100, 4), x0, method=method).success
    True
    """

    blocks: int = 5
    ritz: int = 2
    gate: float = 2e-8
    looks: int = 5
    contradiction: float = 0.01
    decay: float = 0.1
    widest: int = 30

    def __post_init__(self) -> None:
        check_integer(self, "ritz", 1)
        check_integer(self, "blocks", self.ritz + 2)
        check_integer(self, "looks", 2)
        check_integer(self, "widest", 1)
        check_open_interval(self, "gate", 0.0, 1.0)
        check_open_interval(self, "contradiction", 0.0, 1.0)
        check_open_interval(self, "decay", 0.0, 1.0)

    @property
    def given_up(self) -> Rows:
        """Off for the rest of the run."""
        return Rows(looks=self.looks)

    def init(self, geometry: Manifold, X: Array, at: Gradient) -> Rows:
        """Nothing known yet; given up at once where points are not real NumPy matrices."""
        kernels = getattr(geometry, "kernels", None)
        matrix = isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype == np.float64
        if kernels is None or not (kernels.pure_numpy and matrix and at.level is not None):
            return self.given_up
        return OFF if 2 * X.shape[1] <= X.shape[0] else self.given_up

    def observe(self, rows: Rows, step: StepEnds) -> Rows:
        """What is known after one more step."""
        if rows.on:
            return self._grown(rows, step)
        return self._look(rows, step) if rows.looks < self.looks else rows

    # -- before D is known -----------------------------------------------------------------

    def _look(self, rows: Rows, step: StepEnds) -> Rows:
        """One more pair; on if the D of before explains it, otherwise a new D.  14nk² + O(k⁶)."""
        looks = rows.looks + 1
        pair = _differences(step)
        if pair is None or looks == self.looks:
            return rows._replace(looks=looks) if looks < self.looks else self.given_up
        S, Y, error = pair
        if rows.D is not None and self._explains(rows.D, step, S, Y, self.gate + 100.0 * error):
            return self._switched_on(rows.D, S, Y, step)
        V, UZ = _one_more(rows, S, Y)
        k = S.shape[1]
        if len(UZ) == k:
            return Rows(V, UZ=UZ, looks=looks)
        D = symmetrising(UZ, k) if k <= self.widest else np.eye(k)
        return self.given_up if D is None else Rows(V, UZ=UZ, D=D, looks=looks)

    def _explains(self, D: Array, step: StepEnds, S: Array, Y: Array, gate: float) -> bool:
        """Whether D makes the newest pair symmetric, which was not used for it, and X too."""
        Z, squares = Y.dot(D), np.einsum("ij,ij->j", S, S)
        if asymmetry(S.T.dot(Z), squares) > gate:
            return False
        AX = _image(step.X, step.at, D)
        K = np.concatenate((step.X, S), axis=1).T.dot(np.concatenate((AX, Z), axis=1))
        return asymmetry(K, np.concatenate((np.ones(len(D)), squares))) <= gate

    def _switched_on(self, D: NumpyArray, S: NumpyArray, Y: NumpyArray, step: StepEnds) -> Rows:
        """With the newest pair as the whole memory."""
        AX = _image(step.X, step.at, D)
        V = np.stack((S.T, Y.dot(D).T))
        M = V[0].dot(step.X)
        V[0] -= M.dot(step.X.T)
        V[1] -= M.dot(AX.T)
        V /= math.sqrt(np.vdot(V[0], V[0]))
        return self._prepared(Rows(V, AX, D, on=True, looks=self.looks), step)

    # -- while it is known -----------------------------------------------------------------

    def _grown(self, rows: Rows, step: StepEnds) -> Rows:
        """With the block of one more step."""
        X0, _, X, at = step
        AX, k = _image(X, at, rows.D), X.shape[1]
        block = _new_block(X0, rows.AX, X, AX)
        if block is None:
            return self._prepared(rows._replace(AX=AX), step)
        if rows.V.shape[1] + k > self.blocks * k:
            rows = self._compressed(rows, X0)
        assert rows.grams is not None
        new, cross = block.SZ, _flat(rows.V).dot(block.SZ)
        p, grams = rows.V.shape[1], _grams_after(rows.grams, cross, block, X, AX)
        V = np.empty((2, p + k, X.shape[0]))
        V[:, :p], V[0, p:], V[1, p:] = rows.V, new[:, :k].T, new[:, k:].T
        grown, squares = rows._replace(V=V, AX=AX, grams=grams), np.diagonal(grams.UU)
        if asymmetry(grams.UZ[p:, p:], squares[p:]) > self.contradiction:
            return self.given_up
        if asymmetry(grams.UZ, squares) <= self.decay:
            return self._with_ritz(grown, at)
        newest = np.ascontiguousarray(V[:, p:])
        return self._prepared(grown._replace(V=newest, resets=rows.resets + 1), step)

    def _prepared(self, rows: Rows, step: StepEnds) -> Rows:
        """With all Gram matrices anew."""
        return self._with_ritz(rows._replace(grams=_grams(rows.V, step.X, rows.AX)), step.at)

    def _with_ritz(self, rows: Rows, at: Gradient) -> Rows:
        """With the Ritz vectors of A on X⊥ whose values are above all shifts."""
        assert rows.grams is not None
        now = rows.grams.deflated((at.level + at.rotation).dot(rows.D), rows.AX.T.dot(rows.AX))
        T, theta = _ritz(now.UU, now.UZ)
        keep = theta > Columns.of(rows.D, at.level).c[-1]
        return rows._replace(now=now, T=np.ascontiguousarray(T[:, keep]), theta=theta[keep])

    def _compressed(self, rows: Rows, X: Array) -> Rows:
        """The lowest Ritz vectors and the newest block, orthonormal, and orthogonal to X."""
        assert rows.grams is not None and rows.now is not None
        k, held = X.shape[1], len(rows.theta)
        lowest = np.eye(held, min(self.ritz * k, held))
        newest = rows.T.T.dot(rows.now.UU[:, -k:])
        C = rows.T.dot(np.linalg.qr(np.concatenate((lowest, newest), axis=1))[0])
        V = np.empty((2, C.shape[1], X.shape[0]))
        M = np.ascontiguousarray(C.T.dot(rows.grams.XU))
        for part, old, W in zip(V, rows.V, (X, rows.AX), strict=True):
            np.dot(C.T, old, out=part)
            add_product(part, -1.0, M, W.T)
        return rows._replace(V=V, grams=_grams(V, X, rows.AX))

    # -- the direction ---------------------------------------------------------------------

    def direction(self, rows: Rows, X: Array, at: Gradient, horizontal: bool) -> Array:
        """−H∇f, a tangent."""
        columns = Columns.of(rows.D, at.level)
        W = columns.W
        q = add_product(at.G.dot(W), -1.0, X, at.rotation.dot(W))
        a, gamma, image = _normal_part(rows, q, columns)
        N = _flat(rows.V).T.dot(a.dot(W.T))
        N = add_product(N, 1.0, q, gamma[:, None] * W.T)
        N = add_product(N, 1.0, rows.AX, image.dot(W.T))
        rotation = -X.T.dot(N)
        if not horizontal:
            rotation += _rotation(rows.D, at, columns)
        N = add_product(N, 1.0, X, rotation)
        return np.negative(N, out=N)


def _normal_part(rows: Rows, q: Array, columns: Columns) -> tuple[NumpyArray, ...]:
    """a, γ and m with H q = [U, Z] a + q γ + AX m, up to a part in the span of X."""
    now, T, p, c = rows.now, rows.T, rows.V.shape[1], columns.c
    assert rows.grams is not None and now is not None
    gamma = 1.0 / (_sigma(now, columns, rows.theta) - c)
    Vq, M = _flat(rows.V).dot(q), rows.grams.XU
    Uq, Zq = Vq[:p], Vq[p:] - M.dot(rows.AX.T.dot(q))
    e = 1.0 / (rows.theta[:, None] - c)
    a = e * T.T.dot(Uq)
    b, bc = T.dot(a), T.dot(a * c)
    Uv = gamma * (Uq - now.UZ.dot(b) + now.UU.dot(bc))
    Zv = gamma * (Zq - now.ZZ.dot(b) + now.UZ.T.dot(bc))
    last = T.dot(a - e * T.T.dot(Zv - Uv * c))
    return np.concatenate((gamma * bc + last, -gamma * b)), gamma, M.T.dot(gamma * b)


def _sigma(now: Normal, columns: Columns, theta: NumpyArray) -> float:
    """σ with Σ‖y_i‖²/(σ − c_i) = Σ⟨s_i, y_i⟩ for the newest block; Newton's method from below."""
    c, F = columns.c, columns.F
    last = slice(-len(c), None)
    uu, uz, zz = (np.sum(F * K[last, last].dot(F), axis=0) for K in now)
    yy, sy = zz - 2.0 * c * uz + c * c * uu, float(np.sum(uz - c * uu))
    if not sy > 0:  # the newest step saw no positive curvature: the largest that is known
        return float(max(theta[-1:], default=c[-1])) + 1e-3 * float(np.abs(c).max())
    sigma = float(np.max(c + yy / sy))
    for _ in range(50):
        g = yy / (sigma - c)
        excess = float(np.sum(g)) - sy
        if excess <= 1e-3 * sy:
            break
        sigma += excess / float(np.sum(g / (sigma - c)))
    return sigma


def _rotation(D: NumpyArray, at: Gradient, columns: Columns) -> NumpyArray:
    """Ω with ½|Λ_i − Λ_j||μ_i − μ_j| Ω_ij = (XᵀG)_ij in the eigenbasis of M."""
    values, vectors = columns.values, columns.vectors
    rotation = vectors.T.dot(at.rotation).dot(vectors)
    L = np.diagonal(vectors.T.dot((at.level + at.rotation).dot(D)).dot(vectors))
    mu = 1.0 / values
    h = np.abs(0.5 * (L[:, None] - L) * (mu[:, None] - mu))
    h = np.maximum(h, SOFTEST * h.max())
    return np.asarray(vectors.dot(rotation / h).dot(vectors.T))


def _ritz(UU: NumpyArray, UZ: NumpyArray) -> tuple[NumpyArray, NumpyArray]:
    """T and θ: TᵀUU T = I and Tᵀherm(UZ)T = diag(θ); nearly dependent vectors are dropped."""
    scale = 1.0 / np.sqrt(np.diagonal(UU))
    values, vectors = np.linalg.eigh(UU * scale * scale[:, None])
    keep = values > DEPENDENT * values[-1]
    T = scale[:, None] * vectors[:, keep] / np.sqrt(values[keep])
    K = T.T.dot(UZ).dot(T)
    theta, W = np.linalg.eigh(0.5 * (K + K.T))
    return T.dot(W), theta


# -- steps and Gram matrices -------------------------------------------------------------------


class StepBlock(NamedTuple):
    """S° and Z° of a step, of length one: X⁺ − X = S° size + X⁺ B, and so for A."""

    SZ: Array
    B: NumpyArray
    size: float


def _new_block(X0: Array, AX0: Array, X: Array, AX: Array) -> StepBlock | None:
    """None for a step that only rotates columns."""
    k = X.shape[1]
    SZ = np.concatenate((X - X0, AX - AX0), axis=1)
    length = float(np.linalg.norm(SZ[:, :k]))
    B = X.T.dot(SZ[:, :k])
    SZ[:, :k] -= X.dot(B)
    SZ[:, k:] -= AX.dot(B)
    size = float(np.linalg.norm(SZ[:, :k]))
    if not size > NORMAL * length:
        return None
    SZ /= size
    return StepBlock(SZ, B, size)


def _grams_after(
    old: SubspaceGrams, cross: NumpyArray, block: StepBlock, X: Array, AX: Array
) -> SubspaceGrams:
    """The Gram matrices at X⁺, with the new block; X⁺ (I − B) = X + S° size."""
    SZ, B, size = block
    p, k = len(old.UU), len(B)
    R = np.linalg.inv(np.eye(k) - B)
    US, UZ, ZS, ZZ = cross[:p, :k], cross[:p, k:], cross[p:, :k], cross[p:, k:]
    own, with_X, with_AX = SZ.T.dot(SZ), SZ.T.dot(X), SZ.T.dot(AX)
    return SubspaceGrams(
        _bordered(old.UU, US, US.T, own[:k, :k]),
        _bordered(old.UZ, UZ, ZS.T, own[:k, k:]),
        _bordered(old.ZZ, ZZ, ZZ.T, own[k:, k:]),
        np.concatenate(((old.XU + size * US).dot(R), with_X[:k])),
        np.concatenate(((old.XZ + size * ZS).dot(R), with_X[k:])),
        np.concatenate(((old.AXU + size * UZ).dot(R), with_AX[:k])),
        np.concatenate(((old.AXZ + size * ZZ).dot(R), with_AX[k:])),
    )


def _bordered(K: NumpyArray, side: NumpyArray, below: NumpyArray, corner: NumpyArray) -> NumpyArray:
    """[[K, side], [below, corner]]."""
    p, k = side.shape
    out = np.empty((p + k, p + k))
    out[:p, :p], out[:p, p:], out[p:, :p], out[p:, p:] = K, side, below, corner
    return out


def _grams(V: Array, X: Array, AX: Array) -> SubspaceGrams:
    """All of them from the vectors themselves; 8np² + 8npk."""
    U, Z = V
    UZ = U.dot(Z.T)
    return SubspaceGrams(U.dot(U.T), UZ, Z.dot(Z.T), U.dot(X), Z.dot(X), U.dot(AX), Z.dot(AX))


def _flat(V: Array) -> Array:
    return V.reshape(-1, V.shape[-1])


def _differences(step: StepEnds) -> tuple[NumpyArray, NumpyArray, float] | None:
    """S and Y of a step, divided by ‖S‖, and their relative rounding error, if that is small."""
    X0, at0, X, at = step
    S, E = X - X0, at.G + X.dot(at.level)
    Y = E - at0.G - X0.dot(at0.level)
    length, change = float(np.linalg.norm(S)), float(np.linalg.norm(Y))
    if not (length > 0 and change > 0):
        return None
    error = EPS * (math.sqrt(S.shape[1]) / length + float(np.linalg.norm(E)) / change)
    return (S / length, Y / length, error) if error < PAIR_ROUNDING else None


def _one_more(rows: Rows, S: NumpyArray, Y: NumpyArray) -> tuple[NumpyArray, NumpyArray]:
    """The pairs with one more, and SᵀY of all of them; the last three are kept."""
    k, new = S.shape[1], np.stack((S.T, Y.T))
    if rows.V is None:
        return new, S.T.dot(Y)
    kept = slice(max(0, len(rows.UZ) - (PAIRS - 1) * k), None)
    old = np.ascontiguousarray(rows.V[:, kept])
    p, cross = old.shape[1], _flat(old).dot(np.concatenate((S, Y), axis=1))
    UZ = _bordered(rows.UZ[kept, kept], cross[:p, k:], cross[p:, :k].T, S.T.dot(Y))
    return np.concatenate((old, new), axis=1), UZ


def _image(X: Array, at: Gradient, D: NumpyArray) -> Array:
    """AX = ∇f(X) D, with ∇f = G + X C."""
    return add_product(at.G.dot(D), 1.0, X, at.level.dot(D))


def asymmetry(K: NumpyArray, squares: NumpyArray) -> float:
    """‖K − Kᵀ‖/‖K‖ of K = SᵀZ, with the columns of S (of these squared lengths) of length one."""
    scale = 1.0 / np.sqrt(np.maximum(squares, np.finfo(float).tiny))
    K = K * scale * scale[:, None]
    size = float(np.linalg.norm(K))
    return float(np.linalg.norm(K - K.T)) / size if size > 0 else np.inf
