"""The solver of `jax_solve`, which recognises functions tr(XᵀAXM) and leaps to their minima.

What is looked for is told in `quadratic`.  The start and the first trial of the search are asked
whether some D makes K_jl D symmetric; two points give 2k² − k equations for the k(k + 1)/2 − 1
ratios of its entries.  Where one does, f is evaluated at the points that complete the start to an
orthonormal basis, all at once: they show all of A, and say once more whether f is what it seems.
The search of such a problem waits.  Any other problem has lost nothing but the question.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from stiefel.types import Array, Leaves

from .jax_many import JaxMany
from .leaves import small_real_matrices
from .quadratic import GATE, LARGEST_N, least, symmetrising_columns
from .solver import ManyLBFGS
from .state import Evaluate, State

TOGETHER = 16  # problems whose A is looked at together


class Start(NamedTuple):
    """What is known about the structure of every problem."""

    point: Array  # (B, n, k), where f was evaluated first
    gradient: Array  # there, Euclidean and scaled
    target: Array  # where f is least
    leaps: Array  # (B,), whether the next evaluation is there
    open: Array  # (B,), whether f may have the structure


@dataclass(frozen=True)
class JaxLBFGS(ManyLBFGS):
    """`ManyLBFGS` for JAX."""

    def step(self, evaluate: Evaluate, s: State) -> State:
        asked = self.ask(s)
        f, E = evaluate(asked.shown)
        s = self.tell(s, asked, f, E)
        return s if s.model is None else self._asked_again(evaluate, s, asked.X[0], E[0])

    def _nothing_seen(self, x: Array, none: Array) -> Start:
        return Start(x, 0.0 * x, x, none, ~none)

    def _recognise(self, s: State, X: Leaves, E: Leaves, leapt: Array) -> State:
        return s  # not before more can be evaluated

    def _asked_again(self, evaluate: Evaluate, s: State, X: Array, E: Array) -> State:
        """The first point is kept; after the second one some problems are evaluated again."""
        model, k, running = s.model, self.k, s.status < 0
        E = k.spread_out(s.scale, E) * E
        point, gradient = k.choose(s.books.nfev == 1, (X, E), (model.point, model.gradient))
        model = model._replace(point=point, gradient=gradient)
        more = points_needed(*X.shape[1:]) - 1
        look = model.open & running & (s.books.nfev == 2) & (2 + more < self.limits.maxfun)
        arrays = jnp.stack([point, X], axis=1), jnp.stack([gradient, E], axis=1)
        (likely,) = k.on_some(look, _likely, arrays, (look & ~look,))

        def targets() -> tuple[Array, Array]:
            return self._minima(evaluate, likely, s._replace(model=model))

        target, leaps = jax.lax.cond(jnp.any(likely), targets, lambda: (model.target, model.leaps))
        nfev = s.books.nfev + more * k.integers(likely)
        model = model._replace(target=target, leaps=leaps, open=model.open & (likely | ~look))
        return s._replace(model=model, books=s.books._replace(nfev=nfev))

    def _minima(self, evaluate: Evaluate, likely: Array, s: State) -> tuple[Array, Array]:
        """Where f is least, and whether that is known."""
        k, model, (x,) = self.k, s.model, s.x
        points = completed(model.point)
        E = jax.lax.map(lambda X: evaluate((X,))[1][0], points[1:])
        gradients = jnp.concat([model.gradient[None], k.spread_out(s.scale, E[0]) * E])
        arrays = jnp.moveaxis(points, 0, 1), jnp.moveaxis(gradients, 0, 1), x
        assert isinstance(k, JaxMany)
        return k.on_few(likely, recognised, arrays, (model.target, model.leaps), TOGETHER)


def points_needed(n: int, k: int) -> int:
    """That have all rows in their span."""
    return math.ceil(n / k)


def completed(x: Array) -> Array:
    """x and what completes it to a basis, (P, B, n, k); the last point has columns of x, too."""
    (n, k), P = x.shape[1:], points_needed(*x.shape[1:])
    others = jnp.linalg.qr(x, mode="complete")[0][..., k:]
    Q = jnp.concat([x, others, x[..., : P * k - n]], axis=2)
    return jnp.moveaxis(Q.reshape(-1, n, P, k), 2, 0)


def _likely(X: Array, E: Array) -> tuple[Array]:
    """Whether gradients E at points X, both (B, P, n, k), may be those of some A and M."""
    return (_symmetrised(X, E)[2],)


def _symmetrised(X: Array, E: Array) -> tuple[Array, Array, Array]:
    """D, all K_jl D, and whether they are symmetric."""
    finite = jnp.isfinite(E).all(axis=(1, 2, 3))
    E = jnp.where(finite[:, None, None, None], E, 0.0)
    D, KD, left = symmetrising_columns(X.mT, E.mT)
    return D, KD, finite & (left <= GATE)


def recognised(X: Array, E: Array, x: Array) -> tuple[Array, Array]:
    """Where f is least, near x, and whether that is known; X as `completed` made them."""
    n = x.shape[1]
    D, KD, fits = _symmetrised(X, E)
    Q = jnp.moveaxis(X, 1, 2).reshape(X.shape[0], n, -1)[..., :n]
    H = KD[:, :n, :n]  # A in the basis Q
    values, vectors = jnp.linalg.eigh(D)
    Y = least(Q @ jnp.linalg.eigh(0.5 * (H + H.mT))[1], 1.0 / values, vectors, x)
    return Y, fits & jnp.isfinite(Y).all(axis=(1, 2))


def recognises(leaves: tuple[object, ...], x: Leaves) -> bool:
    """On one processor: decompositions of small matrices are slow elsewhere."""
    here = jax.default_backend() == "cpu" and jax.device_count() == 1
    return here and small_real_matrices(leaves, x, LARGEST_N)
