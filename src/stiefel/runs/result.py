"""What a run returns: a SciPy-shaped result, with a status that cannot be mistaken."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from stiefel.types import Status

from .report import as_html, as_text, draw


class Result(dict[str, Any]):
    """The outcome of `stiefel.minimize`; fields are attributes and keys, as in SciPy.

    It is recognised as a `scipy.optimize.OptimizeResult` wherever that class has been imported.

    Attributes
    ----------
    x : array or structure of arrays
        The returned point, in the structure, library, dtype and device of x0.
    fun : float
        The value at ``x``.
    grad, jac : array or structure of arrays
        The projected gradient (a cotangent) at ``x``, under both names.
    gradient_norm : float
        ‖grad‖_g* at ``x``, the number that was tested against the tolerance.
    feasibility : float
        ‖XᴴX − I‖_F at ``x`` (the largest one, for several matrices).
    nit, nfev, njev : int
        Iterations; values and gradients computed by the user's function.
    nhev : int
        Products with the Hessian, by ``hessp`` or autodiff.
    restarts, restorations : int
        How often the momentum was dropped, and the point brought back onto the manifold.
    success : bool
        Whether the tolerance is met at ``x``.
    status : Status
        Why the run ended; it equals its own name as a string.
    message : str
        The same in words, with what was reached against what was asked.
    determinant : float, array, structure of them or None
        The signs of the determinants of real square matrices, which a run cannot change; None if
        no matrix is square.
    history : History
        Per-iteration records; ``history.as_array()`` is a NumPy structured array.
    expected_decrease : float
        What the method's model of f expects it to lose beyond ``x``, in the units of f: ½⟨g, Hg⟩
        for quasi-Newton methods; NaN where there is no model.
    seconds : float
        Wall-clock time of the run.
    minimum, escapes : MinimumCheck, int
        The last `check_minimum` and the saddles left; only with ``escape=True``.
    starts : table
        The minima found; only with ``starts=``.
    communication : Communication
        Messages, bytes and seconds in them; only of runs with ``comm=``.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> fun = lambda X: (-np.sum(X[:2]), np.vstack([-np.ones((2, 1)), np.zeros((3, 1))]))
    >>> result = stiefel.minimize(fun, stiefel.random_point(5, 1, seed=0))
    >>> result.success, result.status, result["success"]
    (True, Status.CONVERGED, True)
    >>> result.status == "CONVERGED"
    True
    >>> round(result.fun, 6)
    -1.414214
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(self)
            raise AttributeError(f"the result has no {name!r}; it has {known}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        del self[name]

    def __dir__(self) -> list[str]:
        return [*self, *super().__dir__()]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (), None, None, _items(self)

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)

    def plot(self, path: Any = None) -> Any:
        """Draw value, gradient norm, step and restarts against evaluations.

        Parameters
        ----------
        path : path-like, optional
            A file to which the figure is saved; its ending chooses the format.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.

        Raises
        ------
        ImportError
            If matplotlib is not installed.

        Examples
        --------
        >>> import numpy as np, stiefel
        >>> fun = lambda X: (float(X[0, 0]), np.eye(5, 1))
        >>> result = stiefel.minimize(fun, stiefel.random_point(5, 1, seed=0))
        >>> figure = result.plot()  # doctest: +SKIP
        """
        return draw(self, path)

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # type: ignore[override,misc]
        """A subclass of SciPy's result too, once somebody can ask for it.

        ``isinstance`` asks for this; importing scipy.optimize for one class would take 0.2 s.
        """
        optimize = sys.modules.get("scipy.optimize")
        base = getattr(optimize, "OptimizeResult", None)
        kind = type(self)
        return kind if base is None else _both(kind, base)


@cache
def _both(kind: type, base: type) -> type:
    place = {"__module__": kind.__module__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind, base), place)


def _items(result: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    return iter(list(result.items()))


__all__ = ["Result", "Status"]
