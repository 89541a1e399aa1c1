"""Minimise, make sure that it is a minimum, and give PySCF its object back with the results set."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

import stiefel

from . import stability
from .descent import Descent
from .ensemble import Smearing, smearing_of
from .stability import Verdict
from .start import DIIS_CYCLES, Start, check_mixable, kicked, mixed, shaken, start

KICK = 0.1  # of further starts
FOLLOWED = 10  # saddles in a row
NOTEWORTHY = 1e-6  # Ha: an end that did not converge and is lower


@dataclass(frozen=True)
class Options:
    """How `minimize` and `direct` run; the words are explained there."""

    diis: int | None = None
    kick: float = 0.0
    mix: float = 0.0
    seed: Any = 0
    starts: int = 1
    check: bool = True
    smearing: Smearing | None = None
    gtol: float | None = None
    maxfun: int | None = None
    method: Any = "lbfgs"
    callback: Callable[[Any], Any] | None = field(default=None, compare=False)
    progress: bool = False

    def __post_init__(self) -> None:
        for name, least in (("diis", 0), ("starts", 1), ("maxfun", 2)):  # a guess is one build
            value = getattr(self, name)
            if value is not None and not (isinstance(value, Integral) and int(value) >= least):
                raise ValueError(f"{name} is {value!r}; expected a whole number ≥ {least}")
        if not (isinstance(self.kick, Real) and 0 <= self.kick < math.inf):
            raise ValueError(f"kick is {self.kick!r}; expected a number ≥ 0")
        if not (isinstance(self.mix, Real) and math.isfinite(self.mix)):
            raise ValueError(f"mix is {self.mix!r}; expected an angle")
        if not (self.seed is None or isinstance(self.seed, (np.random.Generator, Integral))):
            raise ValueError(f"seed is {self.seed!r}; expected a whole number or a NumPy generator")
        if self.gtol is not None and not (self.gtol > 0 and math.isfinite(self.gtol)):
            raise ValueError(f"gtol is {self.gtol!r}; expected a number > 0, in Ha")


class Stage(NamedTuple):
    """One descent on the way, and what was found at its end."""

    name: str
    energy: float
    gradient_norm: float
    builds: int  # Fock builds of the stage
    products: int  # of the stability analysis after it
    verdict: str


class Minimum(NamedTuple):
    """Where one of several starts ended."""

    start: str
    energy: float
    gradient_norm: float
    stable: bool | None
    builds: int


@dataclass(frozen=True, eq=False)
class Outcome:
    """What `minimize` leaves in ``mf.minimization``.

    ``path`` lists the stages of the run that was taken, ``minima`` the ends of all starts by
    rising energy, ``fock_builds`` counts every Fock matrix of all of them, and ``products`` the
    further products with the response in the stability analyses.
    """

    mf: Any
    result: stiefel.Result
    fock_builds: int
    products: int
    verdict: Verdict
    path: tuple[Stage, ...]
    minima: tuple[Minimum, ...]
    warnings: tuple[str, ...] = ()
    _analysis: Callable[[], Verdict] = lambda: Verdict(None)

    @property
    def energy(self) -> float:
        """The value of the function: the energy, or with smearing the free energy."""
        return float(self.result.fun)

    @cached_property
    def stable(self) -> bool | None:
        """Whether the internal stability analysis finds a minimum; None without a verdict.

        Run when this is first read, if the run itself did not.  PySCF's analysis, or for
        fractional occupations, of which PySCF has none, the one here.  A point that is not
        stationary has no verdict.
        """
        if self.verdict.stable is None and not self.verdict.reason:
            return self._analysis().stable
        return self.verdict.stable

    @cached_property
    def externally_stable(self) -> bool | None:
        """The same against orbitals of a more general kind; run when this is first read."""
        return stability.external(self.mf).stable

    def table(self) -> str:
        """The minima found, as text."""
        width = max(32, *(len(m.start) for m in self.minima))
        rows = [f"{'start':<{width}}{'energy / Ha':>18}{'|g|':>10}{'builds':>8}  minimum"]
        known = {True: "yes", False: "no", None: "unknown"}
        for m in self.minima:
            numbers = f"{m.energy:>18.8f}{m.gradient_norm:>10.1e}{m.builds:>8}"
            rows.append(f"{m.start:<{width}}{numbers}  {known[m.stable]}")
        return "\n".join(rows)


def minimize(
    mf: Any,
    *,
    dm0: Any = None,
    diis: int | None = None,
    kick: float = 0.0,
    mix: float = 0.0,
    seed: Any = 0,
    starts: int = 1,
    check: bool = True,
    smearing: Smearing | None = None,
    gtol: float | None = None,
    maxfun: int | None = None,
    method: Any = "lbfgs",
    callback: Callable[[Any], Any] | None = None,
    progress: bool = False,
) -> Any:
    """Minimise the energy of a PySCF mean-field object over its orbitals.

    A few cycles of DIIS, descent, PySCF's stability analysis; where that finds a saddle, the
    descent goes on below it.

    Parameters
    ----------
    mf
        RHF, UHF, ROHF, GHF, RKS, UKS, ROKS, GKS or a k-point version of them (not of ROHF),
        molecular or periodic; two-component ``x2c.UHF``; smeared objects.
    dm0
        The density matrix to start from; by default the orbitals of ``mf``, or PySCF's guess.
    diis
        The number of PySCF's own cycles before the descent: 8 where PySCF's guess is the start and
        nothing perturbs it, otherwise 0.
    kick
        Move the start into random virtual orbitals by this fraction of its norm; with fractional
        occupations, add a random matrix with elements of this size to the Hamiltonian, in Ha.
    mix
        Turn the first spin's highest occupied orbital into its lowest virtual one by this angle;
        in degenerate levels, into its partner of the same direction.
    seed
        Of the kick: a number or a NumPy generator.
    starts
        Run from this many starts (this call without a kick, the kicked guess, kicked DIIS
        orbitals, both with the next seed, …), and keep the lowest end: so it is never above a
        converged end of one start.  ``mf.minimization.table()`` lists them.
    check
        Whether saddles are looked for and left, with PySCF's internal stability analysis.
    smearing
        A `Smearing`, for fractional occupations; by default the one of ``mf.smearing(...)``.
    gtol
        Converged when ‖∇E‖ ≤ gtol, in Ha.  By default from the object: twice its
        ``conv_tol_grad`` where that is set, otherwise a tenth of the square root of ``conv_tol``.
    maxfun
        The most Fock builds of one start, 1000 by default, beside those of stability analyses;
        ``mf.max_cycle`` limits iterations where it is set.
    method, callback, progress
        As for `stiefel.minimize`.

    Returns
    -------
    ``mf`` itself, with ``e_tot mo_coeff mo_energy mo_occ converged cycles`` set as its own
    ``kernel`` does, and with an `Outcome` as ``mf.minimization``.  With ``check``, ``converged`` is
    False where the last point is a known saddle.

    Raises
    ------
    TypeError, ValueError
        For kinds of objects without such a minimum, and for options without a meaning.

    Examples
    --------
    >>> from pyscf import gto, scf
    >>> mol = gto.M(atom="H 0 0 0; F 0 0 0.92", basis="sto-3g", verbose=0)
    >>> mf = minimize(scf.RHF(mol))
    >>> mf.converged, mf.minimization.stable
    (True, True)
    """
    options = Options(
        diis=diis,
        kick=kick,
        mix=mix,
        seed=seed,
        starts=starts,
        check=check,
        smearing=smearing,
        gtol=gtol,
        maxfun=maxfun,
        method=method,
        callback=callback,
        progress=progress,
    )
    return run_mean_field(mf, options, dm0)


def check_mean_field(mf: Any) -> None:
    """``TypeError`` for what is no mean-field object."""
    if not (hasattr(mf, "get_veff") and hasattr(mf, "energy_tot")):
        raise TypeError(f"{type(mf).__name__} is no mean-field object of PySCF")


def run_mean_field(mf: Any, options: Options, dm0: Any = None) -> Any:
    """What `minimize` does, with its options as one record."""
    check_mean_field(mf)
    for name in ("conv_tol", "conv_tol_grad"):
        value = getattr(mf, name)
        if not (value is None and name == "conv_tol_grad") and not value > 0:
            raise ValueError(f"{name} of the object is {value!r}; expected a number > 0, in Ha")
    mf.dump_flags()
    mf.build()
    _open_checkpoint(mf)
    ends = []
    given = mf.mo_coeff, mf.mo_energy, mf.mo_occ
    for recipe in _recipes(options):
        mf.mo_coeff, mf.mo_energy, mf.mo_occ = given
        ends.append(_one(mf, recipe, dm0))
    best = min(ends, key=lambda end: (not end.converged, end.result.fun))
    best.set_results()
    outcome = _outcome(mf, best, ends)
    mf.minimization = outcome
    if len(ends) > 1:
        _log(mf).note("%s", outcome.table())
    for text in outcome.warnings:
        _log(mf).warn("%s", text)
    mf._finalize()
    return mf


def _outcome(mf: Any, best: Descent, ends: list[Descent]) -> Outcome:
    minima = tuple(
        Minimum(e.name, float(e.result.fun), e.result.gradient_norm, e.verdict.stable, e.builds)
        for e in sorted(ends, key=lambda end: float(end.result.fun))
    )
    builds, products = sum(e.builds for e in ends), sum(e.products for e in ends)
    path = tuple(Stage(*stage) for stage in best.path)
    warnings = (*best.warnings, *_lower_ends(best, ends))
    return Outcome(
        mf, best.result, builds, products, best.verdict, path, minima, warnings, best.analysis
    )


def _lower_ends(best: Descent, ends: list[Descent]) -> list[str]:
    """What is to be said of ends below the one that is kept, which did not converge."""
    lowest = min(ends, key=lambda end: float(end.result.fun))
    fell = float(best.result.fun) - float(lowest.result.fun)
    if not best.converged or fell < NOTEWORTHY:
        return []
    return [
        f"the start {lowest.name!r} has not converged and is {fell:.3g} Ha lower: allow more with "
        "maxfun, or start from its kick and seed alone"
    ]


def _recipes(options: Options) -> list[Options]:
    """The call without its kick, then pairs of the kicked guess and kicked DIIS orbitals."""
    if options.starts == 1:
        return [options]
    kick, first = options.kick or KICK, options.seed
    cycles = DIIS_CYCLES if options.diis is None else options.diis
    recipes = [replace(options, kick=0.0)]
    for i in range(options.starts - 1):
        number, after_diis = divmod(i, 2)
        seed = first + number if isinstance(first, Integral) else first
        diis = cycles if after_diis else 0
        recipes.append(replace(options, diis=diis, kick=kick, seed=seed))
    return recipes


def _name(options: Options, origin: str, cycles: int) -> str:
    """What a start was: whose orbitals, after how many of PySCF's cycles, and the kick."""
    name = f"{origin}, {cycles} DIIS cycle{'s' * (cycles > 1)}" if cycles else origin
    return f"{name}, kicked, seed {options.seed}" if options.kick else name


def _one(mf: Any, options: Options, dm0: Any) -> Descent:
    """From one start to a minimum."""
    smearing = options.smearing or smearing_of(mf)
    origin = "dm0" if dm0 is not None else "guess" if mf.mo_coeff is None else "own orbitals"
    begin = _begin(mf, options, dm0, smearing)
    name = _name(options, origin, begin.cycles)
    descent = Descent(mf, begin.energy, options, begin.cycles, name)
    point = _perturbed(begin, options)
    if mf.max_cycle <= 0:
        descent.only_energy(point)
        return descent
    if smearing is not None and options.kick:
        point = descent.after_diis(point)
    descent.go(point, "descent")
    if smearing is None:
        descent.reoccupied()
    else:
        descent.self_consistent()
    if options.check:
        _leave_saddles(descent)
    return descent


def _leave_saddles(descent: Descent) -> None:
    while descent.stationary and descent.judge().stable is False:
        if descent.saddles >= FOLLOWED or descent.builds_used_up:
            descent.warnings.append(
                f"the point reached is a saddle, after {descent.saddles} others and "
                f"{descent.builds} Fock builds: allow more with maxfun, or try kick=0.1"
            )
            return
        descent.follow()


def _begin(mf: Any, options: Options, dm0: Any, smearing: Smearing | None) -> Start:
    perturbed = bool(options.kick or options.mix)
    guess = dm0 is None and mf.mo_coeff is None
    cycles = options.diis
    if cycles is None:
        cycles = DIIS_CYCLES if guess and not perturbed else 0
    limits = [mf.max_cycle] if "max_cycle" in mf.__dict__ else []
    limits += [] if options.maxfun is None else [options.maxfun - 2]
    cycles = max(min(cycles, *limits, cycles), 0)
    confined = bool(mf.mol.symmetry) and hasattr(mf, "get_orbsym") and not perturbed
    if mf.mol.symmetry and perturbed:
        _log(mf).warn("kick and mix leave the symmetry of the molecule; so does the descent")
    confined = confined and not _is_open(mf)
    return start(mf, dm0, diis=cycles, smearing=smearing, confined=confined)


def _is_open(mf: Any) -> bool:
    return any(c.__name__ == "ROHF" for c in type(mf).__mro__)


def _perturbed(begin: Start, options: Options) -> Any:
    C, V = begin.occupied, begin.virtual
    if options.mix:
        check_mixable(begin)
        C = mixed(C, V, options.mix)
    if options.kick and begin.energy.kind == "occupations":
        return shaken(C, options.kick, options.seed)
    return kicked(C, V, options.kick, options.seed) if options.kick else C


def _open_checkpoint(mf: Any) -> None:
    if mf.chkfile:
        from pyscf.scf import chkfile

        chkfile.save_mol(mf.mol, mf.chkfile)


def _log(mf: Any) -> Any:
    from pyscf.lib import logger

    return logger.new_logger(mf)
