"""Other people's methods on the problems of `evaluation_problems`, and the meter that counts.

A Cayley–Barzilai–Borwein loop (Wen and Yin), SciPy's L-BFGS-B through a polar map, pymanopt's
conjugate gradients and trust regions, cdopt, PyTorch's L-BFGS through Cayley parametrisations.
Each takes the problems for which its library has a manifold.
"""

from __future__ import annotations

import math
import time
from typing import Any

import cayley_bb as bare_loop
import numpy as np
from evaluation_problems import Task
from scipy import optimize

import stiefel
from stiefel.function.trees import Tree


class Stop(BaseException):
    """Leaves a solver from inside the function."""


class Reached(Stop):
    """The target was met."""


class TooMany(Stop):
    """The limit on evaluations was passed."""


class NotForThis(Exception):
    """The library has no such manifold."""


class Meter:
    """f of a task, which counts the points at which it is asked for, and ends the run."""

    def __init__(self, task: Task, x0: Any, most: int) -> None:
        self.task, self.most, self.count, self.message = task, most, 0, ""
        self.fun = getattr(task.fun, "value_and_gradient", task.fun)
        self.leaves = Leaves(task, x0)
        self.target = task.rtol * self.norm(x0, self.fun(x0)[1])
        self._held: list[tuple[Any, float, Any]] = []
        self.own_seconds = 0.0  # CPU of the meter itself, which no method pays for

    def norm(self, x: Any, G: Any) -> float:
        pairs = zip(self.leaves.manifolds, self.leaves.of(x), self.leaves.of(G))
        return math.sqrt(sum(m.norm(X, m.project(X, g)) ** 2 for m, X, g in pairs))

    def __call__(self, x: Any) -> tuple[float, Any]:
        began = time.process_time()
        inside = 0.0
        try:
            flat = np.concatenate([np.ravel(leaf) for leaf in self.leaves.of(x)])
            for old, f, G in self._held:
                if np.array_equal(old, flat):
                    return f, self.leaves.copy(G)
            self.count += 1
            entered = time.process_time()
            f, G = self.fun(x)
            inside = time.process_time() - entered
            if self.norm(x, G) <= self.target if self.task.value is None else f <= self.task.value:
                raise Reached
            if self.count > self.most:
                raise TooMany
            self._held = [(flat, f, self.leaves.copy(G)), *self._held[:2]]
            return f, G
        finally:
            self.own_seconds += time.process_time() - began - inside


class Leaves:
    """A tree of arrays as a list, with a bound manifold for each."""

    def __init__(self, task: Task, x0: Any) -> None:
        self._tree = Tree(x0)
        manifold = task.manifold
        kinds = (
            [manifold] if not isinstance(x0, dict | tuple | list) else self._tree.flatten(manifold)
        )
        self.manifolds = [m.bind(x) for m, x in zip(kinds, self._tree.flatten(x0))]

    def of(self, x: Any) -> list[Any]:
        return list(self._tree.flatten(x))

    def tree(self, leaves: list[Any]) -> Any:
        return self._tree.unflatten(leaves)

    def copy(self, x: Any) -> Any:
        return self.tree([np.array(leaf) for leaf in self.of(x)])


# -- a Cayley–Barzilai–Borwein loop --------------------------------------------------------------


def cayley_bb(meter: Meter, x0: Any) -> None:
    """Wen and Yin: Barzilai–Borwein steps along Cayley curves, Zhang and Hager's search.

    The sixty lines of `cayley_bb` where they serve: real matrices, stacks, unit vectors.
    """
    if _serves_bare_loop(meter.task.manifold, x0):
        return _bare_cayley_bb(meter, x0)
    leaves = meter.leaves
    manifolds = leaves.manifolds

    def evaluate(X: list[Any]) -> tuple[float, list[Any]]:
        f, E = meter(leaves.tree(X))
        return f, [m.project(x, e) for m, x, e in zip(manifolds, X, leaves.of(E))]

    X = leaves.of(x0)
    f, G = evaluate(X)
    C, Q, t, k = f, 1.0, 1e-3, 0
    while True:
        square = sum(m.inner(x, g, g) for m, x, g in zip(manifolds, X, G))
        rays = [m.ray(x, m.scale(-1.0, g)) for m, x, g in zip(manifolds, X, G)]
        for _ in range(50):
            new = [ray(t) for ray in rays]
            f_new, G_new = evaluate(new)
            if f_new <= C - 1e-4 * t * square:
                break
            t *= 0.1
        S = [a - b for a, b in zip(new, X)]
        Y = [m.raise_index(b, c) - m.raise_index(x, d)
             for m, b, c, x, d in zip(manifolds, new, G_new, X, G)]  # fmt: skip
        ss, yy, sy = _dots(manifolds, S, S), _dots(manifolds, Y, Y), abs(_dots(manifolds, S, Y))
        X, f, G, k = new, f_new, G_new, k + 1
        t = min(max(ss / sy if k % 2 else sy / yy, 1e-20), 1e20) if sy > 0 and yy > 0 else 1e-3
        C, Q = (0.85 * Q * C + f) / (0.85 * Q + 1.0), 0.85 * Q + 1.0


def _dots(manifolds: Any, A: list[Any], B: list[Any]) -> float:
    return sum(m.dot(a, b) for m, a, b in zip(manifolds, A, B))


def _serves_bare_loop(manifold: Any, x0: Any) -> bool:
    real = isinstance(x0, np.ndarray) and x0.dtype == float
    return real and getattr(manifold, "B", None) is None and type(manifold) is not stiefel.Euclidean


def _bare_cayley_bb(meter: Meter, x0: Any) -> None:
    """The yardstick of `beside`: what a user writes who needs one problem solved, and no more."""
    kind, forever = type(meter.task.manifold), 10**9
    if kind is not stiefel.Sphere:
        leave = bare_loop.unit_columns if kind is stiefel.Oblique else None
        bare_loop.minimise(meter, x0, forever, leave)
        return

    def columns(X: Any) -> tuple[float, Any]:
        f, G = meter(X.T.reshape(x0.shape))
        return f, G.reshape(-1, x0.shape[-1]).T

    start = x0.reshape(-1, x0.shape[-1]).T.copy()
    bare_loop.minimise(columns, start, forever, bare_loop.unit_columns)


# -- SciPy through the nearest point -------------------------------------------------------------


class Polar:
    """z ↦ the point nearest to z, and the derivative of a function through it."""

    def __init__(self, manifold: Any, x: Any) -> None:
        self.kind, self.shape, self.complex = type(manifold), x.shape, np.iscomplexobj(x)
        self.root = None
        if getattr(manifold, "B", None) is not None:
            w, V = np.linalg.eigh(manifold.B)
            self.root = (V / np.sqrt(w)) @ V.conj().T  # B^{-1/2}
        z = x if self.root is None else np.linalg.solve(self.root, x)
        self.z0 = self.flat(z)

    def flat(self, z: Any) -> Any:
        return np.concatenate([z.real.ravel(), z.imag.ravel()]) if self.complex else z.ravel()

    def _array(self, flat: Any) -> Any:
        if not self.complex:
            return flat.reshape(self.shape)
        half = len(flat) // 2
        return (flat[:half] + 1j * flat[half:]).reshape(self.shape)

    def _lengths(self, z: Any) -> Any:
        if self.kind is stiefel.ComplexCircle:
            return np.abs(z)
        return np.linalg.norm(z, axis=-2 if self.kind is stiefel.Oblique else -1, keepdims=True)

    def _sum(self, a: Any) -> Any:
        if self.kind is stiefel.ComplexCircle:
            return a.real
        return np.sum(a.real, axis=-2 if self.kind is stiefel.Oblique else -1, keepdims=True)

    def __call__(self, flat: Any) -> Any:
        z = self._array(flat)
        if self.kind is stiefel.Euclidean:
            self.x = z
        elif self.kind in (stiefel.Oblique, stiefel.ComplexCircle, stiefel.Sphere):
            self.r = self._lengths(z)
            self.x = z / self.r
        else:
            w, V = np.linalg.eigh(np.conj(z.swapaxes(-1, -2)) @ z)
            s = np.sqrt(np.maximum(w, 1e-300))
            self.V, self.s, self.inverse = V, s, (V / s[..., None, :]) @ np.conj(V.swapaxes(-1, -2))
            self.x = z @ self.inverse
        return self.x if self.root is None else self.root @ self.x

    def back(self, G: Any) -> Any:
        """The gradient by z."""
        x = self.x
        if self.root is not None:
            G = self.root @ G
        if self.kind is stiefel.Euclidean:
            return self.flat(G)
        if self.kind in (stiefel.Oblique, stiefel.ComplexCircle, stiefel.Sphere):
            return self.flat((G - x * self._sum(np.conj(x) * G)) / self.r)
        V, s = self.V, self.s
        VH, XG = np.conj(V.swapaxes(-1, -2)), np.conj(x.swapaxes(-1, -2)) @ G
        A = VH @ (XG - np.conj(XG.swapaxes(-1, -2))) @ V
        A /= s[..., :, None] + s[..., None, :]
        return self.flat((G - x @ XG) @ self.inverse + x @ (V @ A @ VH))


def scipy_polar(meter: Meter, x0: Any) -> None:
    leaves = meter.leaves
    maps = [Polar(m, np.asarray(x)) for m, x in zip(leaves.manifolds, leaves.of(x0))]
    ends = np.cumsum([len(p.z0) for p in maps])[:-1]

    def function(z: Any) -> tuple[float, Any]:
        x = leaves.tree([p(part) for p, part in zip(maps, np.split(z, ends))])
        f, G = meter(x)
        return f, np.concatenate([p.back(g) for p, g in zip(maps, leaves.of(G))])

    z = np.concatenate([p.z0 for p in maps])
    options = {"maxiter": 10**9, "maxfun": 10**9, "ftol": 0.0, "gtol": 0.0}
    for _ in range(4):  # its search gives up near rounding: a patient user starts it again
        z = optimize.minimize(function, z, jac=True, method="L-BFGS-B", options=options).x


# -- pymanopt ------------------------------------------------------------------------------------


def _pymanopt_leaf(manifold: Any, x: Any) -> tuple[Any, Any]:
    """Its manifold, and whether its arrays are our transposes."""
    from pymanopt import manifolds as m

    kind, shape = type(manifold), x.shape
    if getattr(manifold, "B", None) is not None:
        raise NotForThis
    if kind is stiefel.Euclidean:
        return (m.ComplexEuclidean if np.iscomplexobj(x) else m.Euclidean)(*shape), False
    if np.iscomplexobj(x):
        raise NotForThis
    if kind is stiefel.Sphere and x.ndim == 1:
        return m.Sphere(*shape), False
    if kind is stiefel.Sphere:
        return m.Oblique(shape[1], shape[0]), True
    if kind is stiefel.Oblique:
        return m.Oblique(*shape), False
    stack = {"k": shape[0]} if x.ndim == 3 else {}
    if kind is stiefel.SpecialOrthogonal:
        return m.SpecialOrthogonalGroup(shape[-1], **stack), False
    return (m.Grassmann if kind is stiefel.Grassmann else m.Stiefel)(*shape[-2:], **stack), False


def _pymanopt(optimizer: str, meter: Meter, x0: Any) -> None:
    import pymanopt
    from pymanopt import manifolds, optimizers

    leaves = meter.leaves
    start = leaves.of(x0)
    kinds, turned = zip(*(_pymanopt_leaf(m, x) for m, x in zip(leaves.manifolds, start)))
    turn = lambda parts: [p.T if t else p for p, t in zip(parts, turned)]
    single = len(kinds) == 1
    on = kinds[0] if single else manifolds.Product(list(kinds))
    wrap = pymanopt.function.numpy(on)

    def cost(*parts: Any) -> float:
        return meter(leaves.tree(turn(parts)))[0]

    def gradient(*parts: Any) -> Any:
        G = turn(leaves.of(meter(leaves.tree(turn(parts)))[1]))
        return G[0] if single else G

    problem = pymanopt.Problem(on, wrap(cost), euclidean_gradient=wrap(gradient))
    settings = {"max_time": math.inf, "max_iterations": 10**9, "min_gradient_norm": 0.0}
    settings |= {"min_step_size": 1e-300, "max_cost_evaluations": 10**12, "verbosity": 0}
    begin = turn(start)
    if optimizer == "cg":
        run = optimizers.ConjugateGradient(**settings)
    else:
        problem = _with_differences(problem, on)
        run = optimizers.TrustRegions(**settings)
    run.run(problem, initial_point=begin[0] if single else begin)


def _with_differences(problem: Any, on: Any) -> Any:
    """Hessian products from gradients at two points: one evaluation each."""
    gradient = problem.riemannian_gradient

    def hessian(x: Any, v: Any) -> Any:
        size = on.norm(x, v)
        if size == 0:
            return v
        h = 2.0**-14 / size
        there = on.retraction(x, h * v)
        back = on.transport(there, x, gradient(there))
        return (back - gradient(x)) / h

    problem._riemannian_hessian = hessian
    return problem


# -- cdopt and PyTorch ---------------------------------------------------------------------------


def cdopt_lbfgs(meter: Meter, x0: Any) -> None:
    if type(meter.task.manifold) is not stiefel.Stiefel or meter.task.manifold.B is not None:
        raise NotForThis
    if np.iscomplexobj(x0) or x0.ndim != 2:
        raise NotForThis
    import cdopt

    manifold = cdopt.manifold_np.stiefel_np(x0.shape)
    np.random.seed(0)  # noqa: NPY002 - cdopt draws from the global generator
    problem = cdopt.core.problem(
        manifold,
        lambda X: meter(X)[0],
        obj_grad=lambda X: meter(X)[1],
        obj_hvp=lambda X, V: V,
        beta="auto",
        Xinit=x0,
    )
    options = {"maxiter": 10**9, "maxfun": 10**9, "ftol": 0.0, "gtol": 0.0}
    function, x = problem.cdf_fun_vec_np, problem.Xinit_vec_np
    for _ in range(4):
        x = optimize.minimize(
            function, x, jac=problem.cdf_grad_vec_np, method="L-BFGS-B", options=options
        ).x


def torch_cayley(meter: Meter, x0: Any) -> None:
    """PyTorch's L-BFGS with ten pairs on the Cayley parametrisation of every orthonormal leaf."""
    if meter.task.value is None:
        raise NotForThis
    import torch
    from torch.nn.utils.parametrizations import orthogonal

    class Leaf(torch.nn.Module):
        def __init__(self, manifold: Any, x: Any) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor(x))
            if type(manifold) is not stiefel.Euclidean:
                orthogonal(self, orthogonal_map="cayley")
                self.weight = torch.tensor(x)

    leaves = meter.leaves
    modules = [Leaf(m, x) for m, x in zip(leaves.manifolds, leaves.of(x0))]
    parameters = [p for module in modules for p in module.parameters()]
    optimizer = torch.optim.LBFGS(
        parameters, 1.0, 10**9, 10**9, 0.0, 0.0, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure() -> Any:
        optimizer.zero_grad()
        weights = [module.weight for module in modules]
        f, G = meter(leaves.tree([w.detach().numpy().copy() for w in weights]))
        torch.autograd.backward(weights, [torch.tensor(g) for g in leaves.of(G)])
        return torch.tensor(f)

    optimizer.step(closure)


SOLVERS: dict[str, Any] = {
    "Cayley-BB": cayley_bb,
    "SciPy-polar": scipy_polar,
    "pymanopt-CG": lambda meter, x0: _pymanopt("cg", meter, x0),
    "pymanopt-TR": lambda meter, x0: _pymanopt("tr", meter, x0),
    "cdopt": cdopt_lbfgs,
    "torch-Cayley": torch_cayley,
}
