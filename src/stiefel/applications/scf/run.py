"""Minimise, and give PySCF its object back with the results set."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import stiefel

from .energy import Energy
from .start import kicked, mixed, start

CHECKPOINT = ("e_tot", "mo_energy", "mo_coeff", "mo_occ")


@dataclass(frozen=True, eq=False)
class Outcome:
    """What `minimize` leaves in ``mf.minimization``."""

    mf: Any
    result: stiefel.Result
    fock_builds: int  # the start's included

    @property
    def energy(self) -> float:
        return float(self.result.fun)

    @cached_property
    def stable(self) -> bool | None:
        """Whether PySCF's stability analysis, run when this is first read, finds a minimum.

        Internal stability: against rotations that stay within the object's own kind.  None where
        PySCF gives no verdict for this kind (KUHF).
        """
        analysis = self.mf.stability
        if "return_status" not in inspect.signature(analysis).parameters:
            return None
        return bool(analysis(internal=True, external=False, return_status=True)[2])


def minimize(
    mf: Any,
    *,
    dm0: Any = None,
    kick: float = 0.0,
    mix: float = 0.0,
    seed: Any = 0,
    gtol: float = 1e-6,
    maxfun: int = 1000,
    method: Any = "lbfgs",
    callback: Callable[[Any], Any] | None = None,
    progress: bool = False,
) -> Any:
    """Minimise the energy of a PySCF mean-field object over its orbitals.

    Parameters
    ----------
    mf
        RHF, UHF, GHF, RKS, UKS, GKS or a k-point version of them, molecular or periodic.
    dm0
        The density matrix to start from; by default the orbitals of ``mf``, or PySCF's guess.
    kick
        Move the start into random virtual orbitals by this fraction of its norm.
    mix
        Turn the first spin's highest occupied orbital into its lowest virtual one by this angle;
        in degenerate levels, into its partner of the same direction.
    seed
        Of the kick: a number or a NumPy generator.
    gtol
        Converged when ‖∇E‖ ≤ gtol, in Ha; the error of E is about gtol²/gap.
    maxfun
        The most Fock builds.
    method, callback, progress
        As for `stiefel.minimize`.

    Returns
    -------
    ``mf`` itself, with ``e_tot mo_coeff mo_energy mo_occ converged`` set as its own ``kernel``
    does, and with an `Outcome` as ``mf.minimization``.
    """
    mf.dump_flags()
    mf.build()
    energy, C, V = start(mf, dm0)
    if mix:
        C = mixed(C, V, mix)
    if kick:
        C = kicked(C, V, kick, seed)
    result = stiefel.minimize(
        energy,
        C,
        manifold=energy.manifold,
        method=method,
        precond=energy.precond,
        rtol=0.0,
        gtol=gtol,
        maxfun=max(maxfun - energy.builder.builds, 1),
        callback=callback,
        progress=progress,
    )
    _set_results(mf, energy, result)
    mf.minimization = Outcome(mf, result, energy.builder.builds)
    return mf


def _set_results(mf: Any, energy: Energy, result: stiefel.Result) -> None:
    """Canonical orbitals, their energies and occupations, in the object's own arrangement."""
    layout, fock = energy.layout, energy.at(result.x)
    coefficients, energies, filling = [], [], []
    for block, (C, at) in zip(layout.blocks, energy.levels(fock), strict=True):
        coefficients.append(np.hstack([C @ at.rotation, at.virtual]))
        energies.append(np.concatenate([at.occupied_energy, at.virtual_energy]))
        occupied = np.arange(len(energies[-1])) < block.occupied
        filling.append(np.where(occupied, layout.occupation, 0.0))
    mf.mo_coeff, mf.mo_energy, mf.mo_occ = map(layout.nest, (coefficients, energies, filling))
    mf.e_tot, mf.converged = result.fun, result.success
    if mf.chkfile:
        mf.dump_chk({name: getattr(mf, name) for name in CHECKPOINT})
    mf._finalize()
