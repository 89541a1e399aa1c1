"""Twenty further molecules and crystals: energies and Fock builds against DIIS.

    python benchmarks/scf_cases.py               # a table on standard output
    python benchmarks/scf_cases.py --smearing    # the same for fractional occupations

All kinds of objects, functionals from LDA to meta-GGA and hybrids, anions with diffuse functions,
stretched bonds, effective cores, density fitting, solvents and k-points.  Fock builds of DIIS are
its cycles, the first matrix, and the extra one at the end.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from pyscf import dft, gto, scf
from pyscf.pbc import dft as pbc_dft
from pyscf.pbc import gto as pbc_gto
from pyscf.pbc import scf as pbc_scf

from stiefel.applications.scf import minimize
from stiefel.applications.scf.stability import internal

WATER = "O 0 0 0; H 0 0.757 0.587; H 0 -0.757 0.587"
FORMALDEHYDE = "C 0 0 0; O 0 0 1.21; H 0 0.94 -0.59; H 0 -0.94 -0.59"
ETHENE = "C 0 0 0.667; C 0 0 -0.667; H 0 0.92 1.24; H 0 -0.92 1.24; H 0 0.92 -1.24; H 0 -0.92 -1.24"
METHYL = "C 0 0 0; H 0 1.08 0; H 0.935 -0.54 0; H -0.935 -0.54 0"


def mole(atoms: str, basis: Any, **options: Any) -> Any:
    return gto.M(atom=atoms, basis=basis, verbose=0, **options)


def kohn_sham(kind: Any, mol: Any, xc: str) -> Any:
    mf = kind(mol, xc=xc)
    mf.grids.level = 1
    return mf


def crystal(atoms: str, length: float) -> Any:
    cell = pbc_gto.Cell(
        a=np.eye(3) * length, atom=atoms, basis="gth-szv", pseudo="gth-pade", verbose=0
    )
    cell.mesh = [15] * 3
    return cell.build()


def diamond() -> Any:
    h = 1.7834
    a = [[0, h, h], [h, 0, h], [h, h, 0]]
    cell = pbc_gto.Cell(a=a, atom=f"C 0 0 0; C {h / 2} {h / 2} {h / 2}", verbose=0)
    cell.basis, cell.pseudo, cell.mesh = "gth-szv", "gth-pade", [15] * 3
    return cell.build()


def k_points(kind: Any, cell: Any, mesh: list[int], **options: Any) -> Any:
    return kind(cell, cell.make_kpts(mesh), **options)


CASES: dict[str, Callable[[], Any]] = {
    "RHF H2O/aug-cc-pVTZ": lambda: scf.RHF(mole(WATER, "aug-cc-pvtz")),
    "RHF N2 at 1.8 Å/cc-pVDZ": lambda: scf.RHF(mole("N 0 0 0; N 0 0 1.8", "cc-pvdz")),
    "RHF OH⁻/aug-cc-pVTZ": lambda: scf.RHF(mole("O 0 0 0; H 0 0 0.97", "aug-cc-pvtz", charge=-1)),
    "RHF F⁻/aug-cc-pVTZ": lambda: scf.RHF(mole("F 0 0 0", "aug-cc-pvtz", charge=-1)),
    "RHF AuH, ECP": lambda: scf.RHF(mole("Au 0 0 0; H 0 0 1.52", "def2-svp", ecp="def2-svp")),
    "RHF formaldehyde, DF": lambda: scf.RHF(mole(FORMALDEHYDE, "cc-pvtz")).density_fit(),
    "RHF formaldehyde, PCM": lambda: scf.RHF(mole(FORMALDEHYDE, "6-31g*")).PCM(),
    "UHF CN/cc-pVTZ": lambda: scf.UHF(mole("C 0 0 0; N 0 0 1.17", "cc-pvtz", spin=1)),
    "UHF O2/cc-pVTZ": lambda: scf.UHF(mole("O 0 0 0; O 0 0 1.21", "cc-pvtz", spin=2)),
    "UHF CH3, DF": lambda: scf.UHF(mole(METHYL, "cc-pvtz", spin=1)).density_fit(),
    "UHF O2⁻/aug-cc-pVDZ": lambda: scf.UHF(
        mole("O 0 0 0; O 0 0 1.35", "aug-cc-pvdz", charge=-1, spin=1)
    ),
    "ROHF NH/cc-pVTZ": lambda: scf.ROHF(mole("N 0 0 0; H 0 0 1.04", "cc-pvtz", spin=2)),
    "ROKS CH3, B3LYP": lambda: kohn_sham(dft.ROKS, mole(METHYL, "6-31g*", spin=1), "b3lyp"),
    "RKS ethene, LDA": lambda: kohn_sham(dft.RKS, mole(ETHENE, "6-31g*"), "lda,vwn"),
    "RKS formaldehyde, SCAN": lambda: kohn_sham(dft.RKS, mole(FORMALDEHYDE, "6-31g*"), "scan"),
    "RKS H2O, ωB97X": lambda: kohn_sham(dft.RKS, mole(WATER, "cc-pvdz"), "wb97x"),
    "UKS TiO, PBE": lambda: kohn_sham(
        dft.UKS, mole("Ti 0 0 0; O 0 0 1.62", "def2-svp", spin=2), "pbe"
    ),
    "GHF Li/cc-pVDZ": lambda: scf.GHF(mole("Li 0 0 0", "cc-pvdz", spin=1)),
    "KRHF LiH, 2 k": lambda: k_points(
        pbc_scf.KRHF, crystal("Li 0 0 0; H 2.0 2.0 2.0", 4.0), [1, 1, 2]
    ),
    "KRKS diamond, PBE, 8 k": lambda: k_points(pbc_dft.KRKS, diamond(), [2, 2, 2], xc="pbe"),
}


def atom(symbol: str, spin: int, **options: Any) -> Any:
    mf = kohn_sham(dft.UKS, mole(symbol, "def2-svp", spin=spin), "pbe")
    return mf.smearing(**{"sigma": 0.01, "fix_spin": True, **options})


def metal(symbol: str, a: Any, mesh: list[int], sigma: float, **options: Any) -> Any:
    cell = pbc_gto.Cell(a=a, atom=f"{symbol} 0 0 0", verbose=0, spin=None)
    cell.basis, cell.pseudo, cell.mesh = "gth-szv", "gth-pade", [17] * 3
    mf = pbc_dft.KRKS(cell.build(), cell.make_kpts(mesh), xc="pbe")
    mf.conv_tol = 1e-10
    return mf.smearing(sigma=sigma, **options)


def sodium(**options: Any) -> Any:
    h = 4.2906 / 2
    a = [[-h, h, h], [h, -h, h], [h, h, -h]]
    return metal("Na", a, [2, 2, 2], 0.01, **options)


def aluminium(**options: Any) -> Any:
    h = 4.05 / 2
    return metal("Al", [[0, h, h], [h, 0, h], [h, h, 0]], [2, 2, 2], 0.01, **options)


SMEARED: dict[str, Callable[[], Any]] = {
    "Fe, Fermi–Dirac": lambda: atom("Fe", 4),
    "Fe, Gaussian": lambda: atom("Fe", 4, method="gaussian"),
    "Ni, Fermi–Dirac": lambda: atom("Ni", 2),
    "Ni, Gaussian": lambda: atom("Ni", 2, method="gaussian"),
    "Cr, Fermi–Dirac": lambda: atom("Cr", 6),
    "Cr, Gaussian": lambda: atom("Cr", 6, method="gaussian"),
    "Na, 8 k, Fermi–Dirac": sodium,
    "Na, 8 k, Gaussian": lambda: sodium(method="gaussian"),
    "Al, 8 k, Fermi–Dirac": aluminium,
    "Al, 8 k, Gaussian": lambda: aluminium(method="gaussian"),
}


def value(mf: Any) -> float:
    free = getattr(mf, "e_free", None)
    return float(mf.e_tot if free is None else free)


def compare(make: Callable[[], Any], judge: bool) -> tuple[list[str], float | None]:
    reference, mf = make(), make()
    begun = time.process_time()
    reference.kernel()
    theirs = time.process_time() - begun
    minimize(mf, check=judge)
    ours = time.process_time() - begun - theirs
    run, cycles = mf.minimization, reference.cycles + 2
    stable = internal(reference).stable if judge else None
    end = "not converged" if not reference.converged else "a saddle" if stable is False else ""
    cells = [
        f"{value(reference):.8f}" + (f" ({end})" if end else ""),
        f"{value(mf) - value(reference):+.1e}" + ("" if mf.converged else " (not converged)"),
        str(cycles),
        f"{run.fock_builds} + {run.products}",
        f"{theirs:.1f}",
        f"{ours:.1f}",
    ]
    comparable = reference.converged and stable is not False
    return cells, run.fock_builds / cycles if comparable else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smearing", action="store_true", help="fractional occupations")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    arguments = parser.parse_args()
    cases = SMEARED if arguments.smearing else CASES
    heads = ("case", "DIIS, Ha", "difference", "DIIS builds", "builds + products", "s", "s")
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    ratios = []
    for name, make in cases.items():
        if arguments.only in name:
            cells, ratio = compare(make, not arguments.smearing)
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
            ratios += [] if ratio is None else [ratio]
    print(f"\nMedian of the Fock builds over those of DIIS: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
