"""Whether a stationary point is a minimum, by PySCF's own stability analysis."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from .ensemble import ScaledHessian
from .response import REFUSALS

UNSTABLE = -1e-3  # of the eigenvalue 1 that independent electrons have: not a minimum
EIGENVALUE_ACCURACY = 1e-3  # of the residual; a test's Cr takes 21 products, to all digits 69


class Verdict(NamedTuple):
    """What the analysis says."""

    stable: bool | None  # None where PySCF gives no verdict
    orbitals: Any = None  # below the saddle, where it is one
    products: int = 0  # with the response of the Fock matrix: the cost of the analysis
    builds: int = 0  # Fock matrices built for it
    reason: str = ""  # why there is no verdict
    curvature: float = 0.0  # of a free energy, the lowest; 1 for independent electrons

    def __str__(self) -> str:
        known = {True: "a minimum", False: "not a minimum", None: "no verdict"}
        return known[self.stable] + (f" ({self.reason})" if self.reason else "")


def internal(mf: Any) -> Verdict:
    """Against rotations within the object's own kind, at the orbitals that ``mf`` holds."""
    if not _has_rotations(mf.mo_occ):
        return Verdict(True, mf.mo_coeff)
    return _guarded(mf, _internal)


def external(mf: Any) -> Verdict:
    """Against rotations that leave the kind: complex orbitals, other spins, two components."""
    if not _has_rotations(mf.mo_occ):
        return Verdict(None, reason="no orbital can be rotated")
    if not _is_whole(mf.mo_occ):
        return Verdict(None, reason="PySCF has none for fractional occupations")
    return _guarded(mf, _external)


def _guarded(mf: Any, analysis: Callable[[Any], tuple[bool | None, Any]]) -> Verdict:
    """The verdict, or the reason of PySCF for none: kinds and functionals without response."""
    with (
        _counted(mf, "gen_response", _each_product) as products,
        _counted(mf, "get_veff") as builds,
    ):
        try:
            stable, orbitals = analysis(mf)
        except REFUSALS as error:
            return Verdict(None, None, products[0], builds[0], _words(error))
    reason = "" if stable is not None else f"PySCF has none for {type(mf).__name__}"
    return Verdict(stable, orbitals, products[0], builds[0], reason)


def _words(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else type(error).__name__


def of_ensemble(energy: Any, H: Any) -> Verdict:
    """Whether a free energy is at a minimum where H̃ = F, by Lanczos' method.

    The eigenvalues are those of 1 + √|K| (dF/dD) √|K|: 1 for electrons that do not see each other,
    negative along z where A falls for H̃ + t z/√|K|.  ``orbitals`` of the verdict is that direction.
    """
    before = energy.responses.products
    try:
        scaled = ScaledHessian(energy, H)
        value, vector = _lowest(scaled)
    except REFUSALS as error:
        return Verdict(None, reason=_words(error))
    products = energy.responses.products - before
    return Verdict(bool(value > UNSTABLE), scaled.direction(vector), products, curvature=value)


def _lowest(operator: Any) -> tuple[float, Any]:
    from scipy.sparse import linalg

    if operator.size == 1:  # one level: Lanczos' method needs more
        return float(operator(np.ones(1))[0]), np.ones(1)
    start = np.random.default_rng(0).standard_normal(operator.size)
    shifted = linalg.LinearOperator(  # by 1: ARPACK's accuracy is relative to the eigenvalue
        (operator.size,) * 2, matvec=lambda z: operator(z) + z, dtype=float
    )
    values, vectors = linalg.eigsh(
        shifted, 1, which="SA", v0=start, tol=EIGENVALUE_ACCURACY, ncv=min(20, operator.size)
    )
    return float(values[0]) - 1.0, vectors[:, 0]


def _internal(mf: Any) -> tuple[bool | None, Any]:
    parameters = inspect.signature(mf.stability).parameters
    if "return_status" not in parameters:  # k-points with two spins: new orbitals if not stable
        orbitals = mf.stability(internal=True, external=False, verbose=0)[0]
        return _same(orbitals, mf.mo_coeff), orbitals
    # With PySCF's own number of roots: one alone has missed −1e-4 (VO), which it is there to see.
    found = mf.stability(internal=True, external=False, return_status=True, verbose=0)
    if len(found) == 2:  # two components: (orbitals, verdict)
        return bool(found[1]), found[0]
    return bool(found[2]), found[0]


def _external(mf: Any) -> tuple[bool | None, Any]:
    if "return_status" not in inspect.signature(mf.stability).parameters:
        return None, None
    found = mf.stability(internal=False, external=True, return_status=True, verbose=0)
    if len(found) == 2 or found[3] is None:
        return None, None
    return bool(found[3]), found[1]


def _same(a: Any, b: Any) -> bool:
    return a is b or all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def _has_rotations(mo_occ: Any) -> bool:
    """Whether some matrix of orbitals holds two different occupations."""
    if isinstance(mo_occ, (list, tuple)) or np.ndim(mo_occ) > 1:
        return any(map(_has_rotations, mo_occ))
    return len(np.unique(mo_occ)) > 1


def _is_whole(mo_occ: Any) -> bool:
    if isinstance(mo_occ, (list, tuple)) or np.ndim(mo_occ) > 1:
        return all(map(_is_whole, mo_occ))
    return bool(np.all(np.isin(mo_occ, (0, 1, 2))))


Count = list[int]


def _each_call(function: Callable[..., Any], count: Count) -> Callable[..., Any]:
    def counting(*args: Any, **options: Any) -> Any:
        count[0] += 1
        return function(*args, **options)

    return counting


def _each_product(function: Callable[..., Any], count: Count) -> Callable[..., Any]:
    """Of a function that returns the product with the response."""
    return lambda *args, **options: _each_call(function(*args, **options), count)


@contextmanager
def _counted(mf: Any, name: str, how: Callable[..., Any] = _each_call) -> Iterator[Count]:
    """Count the calls of a method for a while.

    The method's own place is free while it runs: solvents copy the object and call its method.
    """
    count, held = [0], mf.__dict__.get(name)
    if not hasattr(mf, name):
        yield count
        return
    counting = how(getattr(mf, name), count)

    def restore() -> None:
        del mf.__dict__[name]
        if held is not None:
            mf.__dict__[name] = held

    def layer(*args: Any, **options: Any) -> Any:
        restore()
        try:
            return counting(*args, **options)
        finally:
            mf.__dict__[name] = layer

    mf.__dict__[name] = layer
    try:
        yield count
    finally:
        restore()
