"""What a run returns: a SciPy-shaped result, with a status that cannot be mistaken."""

from __future__ import annotations

from typing import Any

from scipy.optimize import OptimizeResult

from stiefel.types import Status


class Result(OptimizeResult):  # type: ignore[misc]
    """The outcome of `stiefel.minimize`; fields are attributes and keys, as in SciPy.

    Attributes
    ----------
    x : the returned point, in the structure, library, dtype and device of x0.
    fun, grad : value and projected gradient (a cotangent) at ``x``.
    gradient_norm : ‖grad‖_g* at ``x``, the number that was tested against the tolerance.
    feasibility : ‖XᴴX − I‖_F at ``x`` (the largest one, for several matrices).
    nit, nfev, njev : iterations; values and gradients computed by the user's function.
    nhev : products with the Hessian, by ``hessp`` or autodiff.
    restarts : how often the momentum was dropped.
    restorations : how often the point was brought back onto the manifold.
    success, status, message : whether the tolerance is met at ``x``, why the run ended, in words.
    determinant : the signs of the determinants of real square matrices, which a run cannot change;
        in the structure of x, or None if no matrix is square.
    history : per-iteration records; ``history.as_array()`` is a NumPy structured array.
    expected_decrease : what the method's model of f expects it to lose beyond ``x``, in the units
        of f: ½⟨g, Hg⟩ for quasi-Newton methods; NaN where there is no model.
    seconds : wall-clock time of the run.
    minimum, escapes : the last `check_minimum` and the saddles left; only with ``escape=True``.
    starts : the table of the minima found; only with ``starts=``.
    communication : messages, bytes and seconds in them; only of runs with ``comm=``.
    """

    def __repr__(self) -> str:
        lines = [f"{'message':>14}: {self.message}"]
        for name in ("success", "status", "fun", "gradient_norm", "feasibility"):
            lines.append(f"{name:>14}: {_short(self.get(name))}")
        for name in ("nit", "nfev", "njev", "restarts", "seconds", "x"):
            lines.append(f"{name:>14}: {_short(self.get(name))}")
        return "\n".join(lines)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if hasattr(value, "shape"):
        return f"array of shape {tuple(value.shape)}, {value.dtype}"
    if isinstance(value, (dict, list, tuple)):
        return f"{type(value).__name__} of {len(value)}"
    return str(value)


__all__ = ["Result", "Status"]
