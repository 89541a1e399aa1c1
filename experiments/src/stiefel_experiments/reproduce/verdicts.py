"""Which claims of the paper hold in a record, and by how much: sentences made from numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stiefel_experiments.records import Record

from .curves import Curve, ratio_range
from .runs import LABELS, run_of
from .tables import PRINTED, Mean, Row


@dataclass(frozen=True)
class Verdict:
    """A claim, whether it holds here, and the numbers."""

    claim: str
    holds: bool | None  # None: the record cannot tell
    numbers: str

    def __str__(self) -> str:
        word = {True: "holds", False: "does not hold", None: "cannot be told"}[self.holds]
        return f"{self.claim}: {word} ({self.numbers})"


def of_figure(curves: Sequence[Curve]) -> list[Verdict]:
    """The claims of Section 5's figures."""
    by_method = {curve.method: curve for curve in curves}
    fast, descent = ("function-restart", "gradient-restart"), by_method.get("gradient-descent")
    verdicts = [_slope(by_method.get(m), "scales no worse than √κ", -1.0, 0.5) for m in fast]
    verdicts.append(_slope(descent, "scales about as κ", 0.9, 1.05))
    for method in fast:
        curve, claim = (
            by_method.get(method),
            f"{LABELS[method]} outperforms gradient descent at every n",
        )
        ratios = ratio_range(curve, descent) if curve and descent else None
        if ratios is None:
            verdicts.append(Verdict(claim, None, "no n has both"))
        else:
            numbers = f"{ratios[0]:.1f} to {ratios[1]:.1f} times fewer iterations"
            verdicts.append(Verdict(claim, ratios[0] > 1, numbers))
    return verdicts


def _slope(curve: Curve | None, claim: str, low: float, high: float) -> Verdict:
    if curve is None or curve.fit is None:
        return Verdict(f"a method {claim}", None, "fewer than three n")
    fit = curve.fit
    # Outside the bounds by less than two standard errors is no evidence, for or against.
    inside = low <= fit.slope <= high
    beyond = max(low - fit.slope, fit.slope - high)
    holds = None if not inside and beyond <= 2 * fit.slope_error else inside
    numbers = f"slope {fit.slope:.3f} ± {fit.slope_error:.3f}, expected "
    numbers += f"at most {high:g}" if low < 0 else f"{low:g} to {high:g}"
    return Verdict(f"{LABELS[curve.method]} {claim}", holds, numbers)


def of_table(rows: Sequence[Mean]) -> list[Verdict]:
    """Function restart against L-BFGS: gradients, evaluations, seconds; and against the print."""
    ours = {row.method: row for row in rows if row.starts}
    fast, peer = ours.get("function-restart"), ours.get("lbfgs")
    if fast is None:
        return [Verdict("function restart converges", False, "no start did")]
    printed = PRINTED.get((fast.n, fast.k))
    verdicts = []
    if printed:
        count, theirs = fast.gradient_evaluations, printed["function-restart"].gradient_evaluations
        numbers = f"{count:,.0f} here, {theirs:,.1f} in the paper"
        claim = "function restart needs no more gradients than published, within 3 %"
        verdicts.append(Verdict(claim, count <= 1.03 * theirs, numbers))
    for name, column in (
        ("gradients", "gradient_evaluations"),
        ("function values", "function_evaluations"),
        ("seconds", "cpu_seconds"),
    ):
        claim = f"function restart beats L-BFGS in {name}"
        if peer is None:
            verdicts.append(Verdict(claim, None, "L-BFGS was not run or did not converge"))
        else:
            verdicts.append(_duel(claim, fast, peer, column, printed))
    return verdicts


def _duel(claim: str, a: Mean, b: Mean, column: str, printed: dict[str, Row] | None) -> Verdict:
    mine, theirs = getattr(a, column), getattr(b, column)
    numbers = f"{mine:,.1f} against {theirs:,.1f}, ratio {mine / theirs:.2f}"
    if printed:
        paper = getattr(printed[a.method], column) / getattr(printed[b.method], column)
        numbers += f"; {paper:.2f} in the paper"
    return Verdict(claim, mine < theirs, numbers)


def of_scales(found: Sequence[Record]) -> list[Verdict]:
    """What a constant factor of f does, which should be nothing."""
    verdicts = []
    for n, k in sorted({(run_of(r).n, run_of(r).k) for r in found}):
        mine = [r for r in found if (run_of(r).n, run_of(r).k) == (n, k)]
        counts = [r["iterations"] for r in mine]
        spread = max(counts) / min(counts)
        failed = sum(r["status"] != "CONVERGED" for r in mine)
        numbers = f"{min(counts):,} to {max(counts):,} iterations, a factor of {spread:.1f}"
        numbers += f"; {failed} of {len(mine)} did not converge" if failed else ""
        claim = f"n = {n}, k = {k}: the count does not depend on the scale of f (within 1.5×)"
        one = len({run_of(r).scale for r in mine}) < 2
        holds = None if one else spread < 1.5 and not failed
        verdicts.append(Verdict(claim, holds, "one scale only" if one else numbers))
    return verdicts
