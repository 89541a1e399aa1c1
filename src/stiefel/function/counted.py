"""The user's function, however it is given, as one counted objective.

``nfev`` and ``njev`` are counted here, where the function is called, and nowhere else:

    fun(X) -> (f, G[, aux])          every call computes both and counts as both
    fun(X) -> f, jac(X) -> G         each counts its own calls
    fun(X) -> f, autodiff            a value counts once; a gradient counts as value and gradient
    fun.value, fun.value_and_gradient   likewise
    fun(X) -> f, differences         every value counts, those for a gradient too

A Hessian product by autodiff runs ``fun`` too, and counts as a value and a gradient beside
``nhev``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from stiefel.backends.arrays import kernels_for, library
from stiefel.backends.host import DIRECT, Passage
from stiefel.types import Array

from .adapters import (
    adapt,
    adapt_hessian,
    as_float,
    as_pair,
    is_compiled,
    validated_gradient,
)
from .differences import Differences
from .trees import Tree

NO_RECORD = object()
# Entries of gradients between 1/ordinary and ordinary leave f as it is; of double and of single
# precision.  tests/test_scales.py has the scales at which methods fail without it.
ORDINARY = (1e6, 1e3)
EXPONENTS = (1000, 120)  # of the largest scale
SINGLE = 1e-10  # eps of single precision is above it


class EvaluationLimit(Exception):
    """The limit on evaluations was reached inside an iteration."""


class CountedObjective:
    """Values and gradients of the user's function at points in the solvers' form."""

    def __init__(
        self,
        fun: Any,
        jac: Any,
        tree: Tree,
        x0: Any,
        max_evaluations: float = math.inf,
        hessp: Callable[[Any, Any], Any] | None = None,
        passages: tuple[Passage, ...] = (),
    ) -> None:
        self.nfev = self.njev = self.nhev = 0
        self.seen: Callable[[Any], Any] | None = None  # the user's point of a solver's
        self.scale = 1.0  # a power of two; see `calibrate`
        self.initial_magnitude = 0.0  # |f(x0)|, scaled
        self.largest_gradient = 0.0  # of the entries at x0, scaled
        self.first_seconds = 0.0  # that the evaluation at x0 took
        self._limit = max_evaluations
        self._tree, self._single = tree, tree.is_leaf
        self._leaves = tuple(map(_like, x0 if isinstance(x0, tuple) else (x0,)))
        direct = (DIRECT,) * len(self._leaves)
        self._passages = passages or direct
        self._direct = self._passages == direct
        self._outward_ways = self._compiled_ways = [p.outward for p in self._passages]
        if not self._direct and is_compiled(fun, jac):
            self._compiled_ways = [p.compiled or p.outward for p in self._passages]
        self._names = tuple(f"the gradient at {path}" for path in tree.paths)
        self._last_evaluation: tuple[Any, tuple[float, Any, Any]] | None = None
        self._last: tuple[Any, Any] | None = None  # the last gradient's point, and its aux
        self._name = getattr(fun, "__name__", "fun")
        self._value, self._pair, self._jac = adapt(fun, jac, self._leaves, tree)
        self._hessp = adapt_hessian(fun, jac, hessp, self._leaves, tree)
        differences = getattr(self._jac, "__self__", None)
        if isinstance(differences, Differences):
            differences.count = self._count
        self._hessp_runs_fun = hessp is None and not hasattr(fun, "hessp")  # autodiff

    def wrap(self, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Have the user's functions called through ``wrapper``."""
        self._value, self._pair, self._jac, self._hessp = (
            function and wrapper(function)
            for function in (self._value, self._pair, self._jac, self._hessp)
        )

    def user_point(self, X: Any) -> Any:
        """X in the structure of x0, to be kept by the user."""
        return self.structured(X if self.seen is None else self.seen(X))

    def structured(self, W: Any) -> Any:
        """Arrays of the shapes of x0 in its structure and library, to be kept by the user."""
        W = W if self._direct else self._outward(W, self._outward_ways)
        return self._tree.unflatten(W) if isinstance(W, tuple) else W

    def shown_point(self, X: Any) -> Any:
        """X in the structure of x0, to be looked at: NumPy arrays cannot be written to."""
        return self._shown(X, self._outward_ways)

    def _shown(self, X: Any, outward: Any) -> Any:
        X = X if self.seen is None else self.seen(X)
        X = X if self._direct else self._outward(X, outward)
        if isinstance(X, tuple):
            return self._tree.unflatten(tuple(map(read_only, X)))
        return read_only(X)

    def _outward(self, X: Any, ways: Any) -> Any:
        """Arrays of the solvers in the library of x0."""
        if not isinstance(X, tuple):
            return ways[0](X)
        return tuple(way(x) for way, x in zip(ways, X))

    def solver_point(self, W: Any, what: str) -> Any:
        """W, given in the structure of x0, in the form of the solvers' points."""
        leaves = self._tree.flatten(W, what)
        checked = tuple(validated_gradient(w, x, what) for w, x in zip(leaves, self._leaves))
        return self._inward(checked)

    def value(self, X: Any) -> float:
        """f(X)."""
        if self._value is None:
            return self.value_and_gradient(X)[0]
        self._count()
        return self._call_value(X)

    def value_and_gradient(self, X: Any, value: float | None = None) -> tuple[float, Any, Any]:
        """(f, Euclidean gradient, aux) at X; ``value`` is f(X) where the caller holds it."""
        if self._last_evaluation is not None and self._last_evaluation[0] is X:
            found, self._last_evaluation = self._last_evaluation[1], None
        elif self._pair is not None:
            self._count(gradients=1)
            found = self._call_pair(X)
        else:
            value = self.value(X) if value is None else value
            self.njev += 1
            found = value, self._call_jac(X), None
        self._last = X, found[2]
        return found

    def aux(self, X: Any) -> Any:
        """What ``fun`` returned beside the gradient at X; evaluated again if no longer held."""
        if self._last is None or self._last[0] is not X:
            self.value_and_gradient(X)
        assert self._last is not None
        return self._last[1]

    def hold_aux(self, X: Any) -> None:
        """Have what ``fun`` returns beside the gradient at X at hand again, without counting."""
        limit, self._limit, self._last_evaluation = self._limit, math.inf, None
        try:
            self.value_and_gradient(X)
        finally:
            self._limit = limit

    def projected(
        self, project: Callable[[Any, Any], Any], X: Any, value: float | None = None
    ) -> tuple[float, Any, Any]:
        """(f, project(X, Euclidean gradient), aux) at X."""
        f, gradient, aux = self.value_and_gradient(X, value)
        return f, project(X, gradient), aux

    # -- the calls of the user's functions; scaled and checked ------------------------------

    def _call_value(self, X: Any) -> float:
        assert self._value is not None
        f = self._show(self._value, X, math.inf)
        return self.scale * (f if type(f) is float else as_float(f))

    def _call_pair(self, X: Any) -> tuple[float, Any, Any]:
        assert self._pair is not None
        shown = self._show(self._pair, X, NO_RECORD)
        if shown is NO_RECORD:
            return math.inf, self._nowhere(), None
        if type(shown) is tuple and len(shown) == 2:
            (f, gradient), aux = shown, None
        else:
            f, gradient, aux = as_pair(shown, self._name)
        return self.scale * (f if type(f) is float else as_float(f)), self._gradient(gradient), aux

    def _call_jac(self, X: Any) -> Any:
        assert self._jac is not None
        shown = self._show(self._jac, X, NO_RECORD)
        if shown is NO_RECORD:
            return self._nowhere()
        return self._gradient(shown)

    def _nowhere(self) -> Any:
        return self._inward(tuple(math.nan * leaf for leaf in self._leaves))

    def _inward(self, leaves: tuple[Any, ...]) -> Any:
        """Arrays that the user's functions returned, as the solvers compute with them."""
        if not self._direct:
            leaves = tuple(p.inward(leaf) for p, leaf in zip(self._passages, leaves))
        return leaves[0] if self._single else leaves

    def _show(self, function: Callable[[Any], Any], X: Any, nowhere: Any) -> Any:
        """``function`` at X; ``nowhere`` if it refuses an X that overflowed, not without reason."""
        try:
            if type(X) is np.ndarray and self._direct and self.seen is None:
                return function(read_only(X))
            return function(self._shown(X, self._compiled_ways))
        except Exception:
            leaves = X if isinstance(X, tuple) else (X,)
            if all(kernels_for(leaf).finite(leaf) for leaf in leaves):
                raise
            return nowhere

    def common(self, W: Any) -> Any:
        """W, of which several machines would have to agree on a part."""
        return W

    @property
    def hessian_product(self) -> Callable[[Any, Any], Any] | None:
        """(X, V) ↦ ∇²f(X)[V], the Euclidean Hessian's product; None if nobody offers one."""
        return None if self._hessp is None else self._hessian_product

    def _hessian_product(self, X: Any, V: Any) -> Any:
        assert self._hessp is not None
        if self._hessp_runs_fun:
            self._count(gradients=1)
        self.nhev += 1
        product = self._hessp(self.shown_point(X), self.shown_point(V))
        HV = self.solver_point(product, "the product of hessp")
        if self.scale == 1.0:
            return HV
        return tuple(self.scale * h for h in HV) if isinstance(HV, tuple) else self.scale * HV

    def calibrate(self, X: Any, eps: float = 2.0**-52, beside: float = 0.0) -> None:
        """Evaluate at X once; scale functions of unusual size by a power of two: it rounds nothing.

        Squares of tiny or huge gradients would vanish or overflow, and a first step of 0.1 times
        such a gradient would be none, or far too long.  ``beside``: the largest entry of a further
        gradient, of a term that is scaled alike.
        """
        began = time.perf_counter()
        f, G, aux = self.value_and_gradient(X)
        self.first_seconds = time.perf_counter() - began
        leaves = G if isinstance(G, tuple) else (G,)
        largest = max(self._largest(leaves), beside)
        ordinary, most = ORDINARY[eps > SINGLE], EXPONENTS[eps > SINGLE]
        if math.isfinite(largest) and largest > 0 and not 1 / ordinary < largest < ordinary:
            # The scale itself must not overflow: subnormal gradients keep a part of their size.
            self.scale = 2.0 ** max(min(-math.frexp(largest)[1], most), -most)
            leaves = tuple(self.scale * g for g in leaves)
            f, G = f * self.scale, leaves if isinstance(G, tuple) else leaves[0]
        self.initial_magnitude = abs(f)
        self.largest_gradient = largest * self.scale
        self._last_evaluation = (X, (f, G, aux))

    @property
    def first_gradient(self) -> Any:
        """The Euclidean gradient that `calibrate` computed and the solver has not asked for yet."""
        assert self._last_evaluation is not None
        return self._last_evaluation[1][1]

    def rewind(self, nfev: int, njev: int, scale: float, nhev: int = 0) -> None:
        """Counts and scale of a saved run."""
        self.nfev, self.njev, self.scale, self._last_evaluation = nfev, njev, scale, None
        self.nhev = nhev

    def _count(self, gradients: int = 0) -> None:
        """One value, and so many gradients with it."""
        if self.nfev >= self._limit:
            raise EvaluationLimit
        self.nfev += 1
        self.njev += gradients

    def _gradient(self, gradient: Any) -> Any:
        """In the form of the point, each leaf checked against the leaf it belongs to."""
        if gradient is None:
            raise TypeError("the gradient is None; fun must return it, or jac must be given")
        if self._single:
            like, G = self._leaves[0], gradient
            right = type(G) is np.ndarray and G.shape == like.shape and G.dtype == like.dtype
            if not (right and self._direct):
                G = self._inward((validated_gradient(G, like, "the gradient"),))
            return G if self.scale == 1.0 else self.scale * G
        parts = self._tree.flatten(gradient, "the gradient")
        G = self._inward(tuple(map(validated_gradient, parts, self._leaves, self._names)))
        return G if self.scale == 1.0 else tuple(self.scale * g for g in G)

    def _largest(self, leaves: tuple[Any, ...]) -> float:
        return max(largest(g) for g in leaves)


def read_only(x: Array) -> Array:
    """A view of x that refuses to be written to, where the library knows such."""
    if not isinstance(x, np.ndarray):
        return x
    view = x.view()
    view.setflags(write=False)
    return view


def _like(x: Array) -> Array:
    """An array of the same kind, shape and dtype that holds no memory, where there is such."""
    if library(x) == "torch":
        return x.detach().new_zeros(()).expand(x.shape)
    if not isinstance(x, np.ndarray):
        return x
    return np.ndarray(x.shape, x.dtype, np.zeros((), x.dtype), strides=(0,) * x.ndim)


def largest(G: Array) -> float:
    if isinstance(G, np.ndarray):
        return float(np.maximum.reduce(np.abs(G), axis=None))
    return float(kernels_for(G).xp.max(kernels_for(G).xp.abs(G)))
