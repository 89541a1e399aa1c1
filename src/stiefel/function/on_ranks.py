"""The user's function on many ranks: totals of its values, and errors that all ranks see.

f(X) = Σ_r f_r, where rank r returns its share f_r (value="local"), or every rank returns the
total (value="global") and rank 0's is used.  Gradients with respect to rows that a rank holds
are that rank's own business in both cases.  Leaves that every rank holds in full, such as free
parameters, have gradients that are shares or totals as the value is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stiefel.backends.arrays import kernels_for
from stiefel.backends.rank_kernels import _as_reals, _from_reals, _to_numpy
from stiefel.backends.ranks import Ranks

from .counted import CountedObjective, largest


class RankObjective(CountedObjective):
    """A `CountedObjective` whose values are the same on every rank."""

    def __init__(self, *arguments: Any, ranks: Ranks, value: str, replicated: Any) -> None:
        super().__init__(*arguments)
        self._ranks = ranks
        self._counts = value == "local" or ranks.rank == 0  # whether this rank's share is added
        self._replicated: tuple[int, ...] = replicated  # indices of leaves held in full

    def projected(
        self, project: Callable[[Any, Any], Any], X: Any, value: float | None = None
    ) -> tuple[float, Any, Any]:
        if self._pair is None or self._last_evaluation is not None or self._replicated:
            return super().projected(project, X, value)
        self._count(gradients=1)
        share, G, aux = self._pair_here(X)
        cargo = self._ranks.carry(share)  # travels with XᴴG
        G = project(X, G)
        return cargo.settle(), G, aux

    # -- the calls of the user's functions -------------------------------------------------

    def _call_value(self, X: Any) -> float:
        call = super()._call_value
        return self._ranks.total(self._share(self._ranks.guard(lambda: call(X), float)))

    def _call_pair(self, X: Any) -> tuple[float, Any, Any]:
        share, G, aux = self._pair_here(X)
        total = self._ranks.carry(share)
        G = self._completed(G)
        return total.settle(), G, aux

    def _call_jac(self, X: Any) -> Any:
        call = super()._call_jac
        return self._completed(self._ranks.guard(lambda: call(X), self._zeros))

    def _hessian_product(self, X: Any, V: Any) -> Any:
        call = super()._hessian_product
        return self._completed(self._ranks.guard(lambda: call(X, V), lambda: V))

    def _pair_here(self, X: Any) -> tuple[float, Any, Any]:
        call = super()._call_pair
        f, G, aux = self._ranks.guard(lambda: call(X), lambda: (0.0, self._zeros(), None))
        return self._share(f), G, aux

    def _share(self, f: float) -> float:
        return f if self._counts else 0.0

    def _zeros(self) -> Any:
        return self._inward(tuple(kernels_for(x).xp.zeros_like(x) for x in self._leaves))

    def common(self, V: Any) -> Any:
        """V with rank 0's leaves in the places of those that every rank holds in full."""
        return self._summed(V, 1.0 if self._ranks.rank == 0 else 0.0)

    def _completed(self, G: Any) -> Any:
        """Gradients of replicated leaves summed over ranks, with whatever else travels."""
        return self._summed(G, 1.0 if self._counts else 0.0)

    def _summed(self, V: Any, weight: float) -> Any:
        if not self._replicated:
            return V
        leaves = V if isinstance(V, tuple) else (V,)
        parts = [_to_numpy(leaves[i]) for i in self._replicated]
        totals = self._ranks.sum([weight * _as_reals(part) for part in parts])
        result = list(leaves)
        for i, part, total in zip(self._replicated, parts, totals):
            values = np.array(_from_reals(total, part))
            result[i] = kernels_for(leaves[i]).asarray(values, leaves[i])
        return tuple(result) if isinstance(V, tuple) else result[0]

    def _largest(self, leaves: tuple[Any, ...]) -> float:
        here = max((largest(g) for g in leaves if 0 not in g.shape), default=0.0)
        return self._ranks.largest(here if math.isfinite(here) else math.inf)
