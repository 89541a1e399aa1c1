"""One run from one start: descents, what PySCF is told on the way, and the steps off saddles."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

import stiefel

from . import stability
from .energy import Ansatz, OrbitalPoint, Orbitals
from .ensemble import smearing_of
from .stability import Verdict
from .start import DIIS_CYCLES, iterated

CHECKPOINT = ("e_tot", "mo_energy", "mo_coeff", "mo_occ")
SAVED = 1.0  # seconds between checkpoints
FIRST_STEP = 0.3  # along the direction below a saddle, of one radian
SMALLEST_STEP = 1e-3
REOCCUPIED = 5  # times at most
SAME_ENERGY = 1e-10  # Ha
INVERTED = 1e-3  # Ha between levels; a test's partners of one level differ by 1e-5
FLAT_SADDLE = 1e-6  # Ha; one that leads down by less has small gradients all around it
MAX_BUILDS = 1000
PAIRS_OF_OCCUPATIONS = 40  # of L-BFGS: a test's Fe takes 125 builds, with ten pairs 190
STALLED = (stiefel.Status.ROUNDING_LIMIT, stiefel.Status.STEP_NOT_FOUND)


class Descent:
    """The state of one run: the energy, the last result, and what led there."""

    def __init__(self, mf: Any, energy: Any, options: Any, cycles: int, name: str = "") -> None:
        self.mf, self.energy, self.options, self.name = mf, energy, options, name
        self.result: stiefel.Result = None  # type: ignore[assignment]
        self.verdict = Verdict(None)
        self.path: list[tuple[Any, ...]] = []
        self.warnings: list[str] = []
        self.cycles, self.saddles, self.products = cycles, 0, 0
        self._gain, self._sharper = math.inf, 1.0
        self._builds_before, self._limit = (
            0,
            MAX_BUILDS if options.maxfun is None else options.maxfun,
        )
        self._reporter = Reporter(self)

    @property
    def builds(self) -> int:
        return int(self.energy.builder.builds)

    @property
    def stationary(self) -> bool:
        """Whether the last descent reached its tolerance."""
        return bool(self.result.success)

    @property
    def converged(self) -> bool:
        """Stationary, and not known to be a saddle where minima were asked for."""
        return self.stationary and not (self.options.check and self.verdict.stable is False)

    @property
    def builds_used_up(self) -> bool:
        """Whether the Fock builds allowed are used up."""
        return self.builds >= self._limit

    @property
    def gtol(self) -> float:
        """In the norm ‖∇E‖ of one cell: twice PySCF's gradient over the number of k-points."""
        mf = self.mf
        if self.options.gtol is not None:
            return float(self.options.gtol)
        if mf.conv_tol_grad is not None:
            return 2.0 * float(mf.conv_tol_grad) / self.energy.layout.kpoints
        return 0.1 * math.sqrt(mf.conv_tol) / self.energy.layout.kpoints

    def go(self, point: OrbitalPoint, name: str) -> None:
        """Descend from a point, to the tolerance."""
        self.result = self._minimized(point)
        self.cycles += self.result.nit
        if self.result.status in STALLED and self._has_response():
            before = self.energy.responses.products
            self.result = self._minimized(self.result.x, self.energy.hessian_product)
            self.cycles += self.result.nit
            self.products += self.energy.responses.products - before
        why = "" if self.stationary else "the point is not stationary"
        self.verdict = Verdict(None, reason=why)
        self._record(name)

    def _has_response(self) -> bool:
        """Whether PySCF offers the second derivatives, with which a stalled descent goes on."""
        energy = self.energy
        if energy.kind != "orbitals":
            return False
        return bool(energy.responses.offered(energy.at(self.result.x), energy.orbitals))

    def _minimized(self, point: Any, hessp: Any = None) -> Any:
        energy, options = self.energy, self.options
        limit = {}
        if "max_cycle" in self.mf.__dict__:
            limit["maxiter"] = max(self.mf.max_cycle - self.cycles, 1)
        method = options.method if hessp is None else "trust-region"
        if method == "lbfgs" and energy.kind == "occupations":
            method = stiefel.LBFGS(memory=PAIRS_OF_OCCUPATIONS)
        result = stiefel.minimize(
            energy,
            point,
            manifold=energy.manifold,
            method=method,
            hessp=hessp,
            precond=energy.precond,
            rtol=0.0,
            gtol=self.gtol * self._sharper,
            maxfun=max(self._limit - self.builds, 1),
            callback=self._reporter,
            progress=options.progress,
            **limit,
        )
        self._reporter.last(result)
        return result

    def _record(self, name: str) -> None:
        r, spent = self.result, self.builds - self._builds_before
        self.path.append((name, float(r.fun), float(r.gradient_norm), spent, 0, "not analysed"))
        self._builds_before = self.builds
        self._reporter.stage(name)

    def only_energy(self, point: OrbitalPoint) -> None:
        """``max_cycle = 0``: PySCF's word for the energy of the guess, without any step."""
        E, G, _ = self.energy(point)
        norms = [m.norm(y, m.project(y, g)) for m, y, g in zip(self.energy.manifold, point, G)]
        self.verdict = Verdict(None, reason="the point is not stationary")
        self.result = stiefel.Result(
            x=point,
            fun=E,
            gradient_norm=math.hypot(*norms),
            success=False,
            status=stiefel.Status.MAX_ITERATIONS,
            message="MAX_ITERATIONS: max_cycle is 0, so no step was taken",
            nit=0,
        )
        self._record("guess")

    # -- saddles ---------------------------------------------------------------------------

    def judge(self) -> Verdict:
        """The verdict on the point reached."""
        self._hold(self.orbitals())
        self.verdict = self.analysis()
        self.energy.builder.builds += self.verdict.builds
        self.products += self.verdict.products
        self.path[-1] = (*self.path[-1][:4], self.verdict.products, str(self.verdict))
        self._reporter.verdict(self.verdict)
        return self.verdict

    def analysis(self) -> Verdict:
        """PySCF's, or our own for a free energy: PySCF has none for fractional occupations."""
        if self.energy.kind == "occupations":
            return stability.of_ensemble(self.energy, self.result.x)
        return stability.internal(self.mf)

    def follow(self) -> None:
        """Step from a saddle along the direction found, as far as E falls; descend."""
        self.saddles += 1
        if self.energy.kind == "occupations":
            self._follow_ensemble()
        else:
            self._follow_orbitals()

    def _follow_orbitals(self) -> None:
        E, energy, mf = float(self.result.fun), self.energy, self.mf
        here = energy.point_of(mf.mo_coeff, mf.mo_occ)
        there = energy.point_of(self.verdict.orbitals, mf.mo_occ)
        if self.saddles > 1 and self._gain < FLAT_SADDLE:
            self._sharper *= 0.1
        t = FIRST_STEP
        while t > SMALLEST_STEP:
            point = tuple(_between(a, b, t) for a, b in zip(here, there, strict=True))
            if energy(point)[0] < E:
                break
            t *= 0.4
        self.go(point, f"below saddle {self.saddles}")
        self._gain = E - float(self.result.fun)

    # -- occupations -----------------------------------------------------------------------

    def reoccupied(self) -> None:
        """Move electrons between k-points, or irreps, to the lowest levels, while E falls."""
        layout = self.energy.layout
        if len(layout.blocks) == (layout.spins or 1):
            return
        for _ in range(REOCCUPIED):
            now = self.orbitals()
            if self.stationary and not self._move_electrons(now):
                return

    def _move_electrons(self, now: Orbitals) -> bool:
        mf, energy = self.mf, self.energy
        wanted = mf.get_occ(now.energies, _tagged(now))
        after = energy.layout.filled_as(now.coefficients, wanted, now.labels)
        counts = [[b.occupied for b in one.blocks] for one in (energy.layout, after)]
        if counts[0] == counts[1]:
            self._warn_of_inverted_levels(now)
            return False
        before = self.energy, self.result
        self.energy = type(energy)(energy.builder, after)
        self.go(self.energy.point_of(now.coefficients, wanted), "other occupations")
        if self.result.fun > before[1].fun - SAME_ENERGY:
            self.energy, self.result = before
            self.verdict = Verdict(None)
            self.warnings.append(
                "an occupied level lies above an empty one at another k-point or in another irrep, "
                "and moving the electrons raises the energy: use mf.smearing(sigma) for a metal"
            )
            return False
        return True

    def _warn_of_inverted_levels(self, now: Orbitals) -> None:
        """An occupied level may lie above an empty one of its own block; PySCF's occupations."""
        for block in self.energy.layout.blocks:
            energies, filling = block.of(now.energies), block.of(now.filling)
            occupied, empty = energies[filling > 0], energies[filling <= 0]
            if occupied.size and empty.size and occupied.max() > empty.min() + INVERTED:
                self.warnings.append(
                    "at a k-point or in an irrep an occupied level lies above an empty one, and "
                    "the point is a minimum: use mf.smearing(sigma) for a metal"
                )
                return

    def self_consistent(self) -> None:
        """With occupations: go on from H̃ = F while that is lower, and end there if it is equal.

        Levels far from μ have no gradient; the matrix F puts them where they belong.
        """
        energy = self.energy
        for _ in range(REOCCUPIED):
            point = energy.fixed_point(energy.at(self.result.x))
            A, gradient, _ = energy(point)
            norm = math.hypot(*(float(np.linalg.norm(g)) for g in gradient))
            fell = float(self.result.fun) - A
            if norm <= self.gtol and fell > -SAME_ENERGY:
                self.result.x, self.result.fun, self.result.gradient_norm = point, A, norm
            if not self.stationary or fell <= SAME_ENERGY:
                break
            self.go(point, "descent from H = F")

    def _follow_ensemble(self) -> None:
        """From a saddle of the free energy along its direction, as far as A falls; descend.

        Some of PySCF's cycles first: once the symmetry is gone they fall fastest.
        """
        here, A = self.result.x, float(self.result.fun)
        for t in (s * FIRST_STEP * 0.4**i for i in range(6) for s in (1.0, -1.0)):
            point = tuple(h + t * v for h, v in zip(here, self.verdict.orbitals, strict=True))
            if self.energy(point)[0] < A:
                break
        self.go(self.after_diis(point), f"below saddle {self.saddles}")
        self.self_consistent()

    def after_diis(self, point: OrbitalPoint) -> OrbitalPoint:
        """The lowest point of some of PySCF's cycles from here, or this one."""
        energy = self.energy
        energy.stiffness = 0.0  # from here on; a test's Fe takes 125 builds, with 0.3 351
        if energy.smearing != smearing_of(self.mf):  # PySCF's occupations are not these
            return point
        first = energy.orbitals(energy.at(point))
        orbitals, build, done = iterated(energy.builder, first, DIIS_CYCLES, True)
        self.cycles += done
        found: OrbitalPoint = energy.with_levels(orbitals.coefficients, orbitals.energies)
        energy.hold(found, build)
        return min(point, found, key=lambda H: float(energy(H)[0]))

    # -- results ---------------------------------------------------------------------------

    def orbitals(self) -> Orbitals:
        """Canonical orbitals at the point reached, in PySCF's arrangement."""
        orbitals: Orbitals = self.energy.orbitals(self.energy.at(self.result.x))
        return orbitals

    def _hold(self, orbitals: Orbitals) -> None:
        mf = self.mf
        mf.mo_coeff, mf.mo_energy, mf.mo_occ = (
            _tagged(orbitals),
            orbitals.energies,
            orbitals.filling,
        )

    def set_results(self) -> None:
        """Give PySCF what its own ``kernel`` would."""
        mf, energy = self.mf, self.energy
        aux = energy.at(self.result.x)
        self._hold(self.orbitals())
        again = energy.builder.of(aux.build.density, aux.build.potential)  # sets scf_summary
        mf.e_tot, mf.converged, mf.cycles = again.energy, self.converged, self.cycles
        if energy.kind != "occupations":
            mf.get_occ(mf.mo_energy, mf.mo_coeff)  # which notes the gap in scf_summary
        else:
            mf.entropy = aux.entropy
            mf.e_free = mf.e_tot - energy.smearing.sigma * aux.entropy
            mf.e_zero = mf.e_tot - 0.5 * energy.smearing.sigma * aux.entropy
        if mf.chkfile:
            mf.dump_chk({name: getattr(mf, name) for name in CHECKPOINT})


class Reporter:
    """PySCF's log, callback and checkpoint file, and the user's callback, at every iteration."""

    def __init__(self, descent: Descent) -> None:
        from pyscf.lib import logger

        self._descent, self._log = descent, logger.new_logger(descent.mf)
        self._energy, self._cycle, self._saved = math.nan, 0, -math.inf

    def __call__(self, snapshot: Any) -> Any:
        if snapshot.nit:
            self._tell(snapshot)
        else:
            self._log.info("init E= %.15g  |g|= %4.3g", snapshot.fun, 0.5 * snapshot.gradient_norm)
            self._energy = snapshot.fun
        own = self._descent.options.callback
        return own(snapshot) if own is not None else None

    def last(self, result: Any) -> None:
        """The iteration that ended a descent; the library's callback does not see it."""
        if self._descent.cycles + result.nit > max(self._cycle, self._descent.cycles):
            self._tell(result)

    def _tell(self, at: Any) -> None:
        mf, self._cycle = self._descent.mf, self._descent.cycles + at.nit
        change, self._energy = at.fun - self._energy, at.fun
        self._log.info(
            "cycle= %d E= %.15g  delta_E= %4.3g  |g|= %4.3g",
            self._cycle,
            at.fun,
            change,
            0.5 * at.gradient_norm,
        )
        due = bool(mf.chkfile) and time.monotonic() > self._saved + SAVED
        if not (due or callable(mf.callback)):
            return
        envs = self._environment(at, self._cycle, change)
        if due:
            mf.dump_chk(envs)
            self._saved = time.monotonic()
        if callable(mf.callback):
            mf.callback(envs)

    def _environment(self, snapshot: Any, cycle: int, change: float) -> dict[str, Any]:
        """The names that PySCF's callbacks read."""
        descent, mf = self._descent, self._descent.mf
        energy: Ansatz = descent.energy
        aux = energy.at(snapshot.x)
        orbitals = energy.orbitals(aux)
        return {
            "mf": mf,
            "mol": mf.mol,
            "cycle": cycle - 1,
            "e_tot": aux.build.energy,
            "last_hf_e": snapshot.fun - change,
            "norm_gorb": 0.5 * snapshot.gradient_norm,
            "mo_coeff": _tagged(orbitals),
            "mo_energy": orbitals.energies,
            "mo_occ": orbitals.filling,
            "fock": aux.build.matrices,
            "dm": aux.build.density,
            "vhf": aux.build.potential,
            "h1e": energy.builder.core,
            "s1e": energy.builder.overlap,
            "scf_conv": False,
        }

    def stage(self, name: str) -> None:
        r = self._descent.result
        self._log.info("%s: E= %.15g  |g|= %4.3g  %s", name, r.fun, 0.5 * r.gradient_norm, r.status)

    def verdict(self, verdict: Verdict) -> None:
        self._log.info("stability analysis: %s", verdict)


def _tagged(orbitals: Orbitals) -> Any:
    if orbitals.labels is None:
        return orbitals.coefficients
    from pyscf import lib

    return lib.tag_array(orbitals.coefficients, orbsym=orbitals.labels)


def _between(a: Any, b: Any, t: float) -> Any:
    """The orthonormal matrix nearest to a + t(b − a)."""
    if not a.size:
        return a
    U, _, V = np.linalg.svd(a + t * (b - a), full_matrices=False)
    return U @ V
