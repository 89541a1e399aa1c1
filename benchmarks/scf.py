"""Fourteen transition-metal diatomics: which method ends at a minimum, and at which.

    python benchmarks/scf.py                     # the table, on standard output
    python benchmarks/scf.py --write             # and into docs/applications/hard_cases.md

UHF/def2-SVP at experimental bond lengths, from PySCF's default guess, every object made anew.
CPU seconds are those of this process, without the stability analyses that only judge the end.
OpenTrustRegion is measured where it is installed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pyscf import gto, scf

from stiefel.applications.scf import minimize
from stiefel.applications.scf.stability import internal

PAGE = Path(__file__).parents[1] / "docs" / "applications" / "hard_cases.md"
MARK = "<!-- made by benchmarks/scf.py -->"

# Å, unpaired electrons, and the lowest minimum that any of the methods has found.
MOLECULES = {
    "ScO": (1.668, 1, -834.457784),
    "VO": (1.589, 3, -1017.529795),
    "CrO": (1.615, 4, -1117.932633),
    "MnO": (1.646, 5, -1224.433262),
    "CoO": (1.629, 3, -1455.929905),
    "NiO": (1.627, 2, -1581.356315),
    "CuO": (1.724, 1, -1713.422762),
    "CrN": (1.563, 3, -1097.475402),
    "MnN": (1.600, 4, -1203.960917),
    "FeN": (1.580, 3, -1316.524505),
    "CoH": (1.542, 2, -1381.738063),
    "NiCl": (2.062, 1, -1966.032894),
    "MnS": (2.070, 5, -1547.089217),
    "VN": (1.566, 2, -997.054799),
}


class End(NamedTuple):
    energy: float
    converged: bool
    minimum: bool
    builds: int | None
    seconds: float


def molecule(name: str) -> Any:
    distance, spin, _ = MOLECULES[name]
    second = name[-2:] if name.endswith("Cl") else name[-1]
    first = name.removesuffix(second)
    return gto.M(
        atom=f"{first} 0 0 0; {second} 0 0 {distance}", basis="def2-svp", spin=spin, verbose=0
    )


def run(kernel: Callable[[Any], Any], mol: Any) -> End:
    begun = time.process_time()
    mf = kernel(scf.UHF(mol))
    seconds = time.process_time() - begun
    outcome = getattr(mf, "minimization", None)
    stable = outcome.stable if outcome is not None else internal(mf).stable
    builds = outcome.fock_builds if outcome is not None else None
    return End(float(mf.e_tot), bool(mf.converged), bool(stable), builds, seconds)


def opentrustregion() -> Callable[[Any], Any] | None:
    try:
        from pyopentrustregion.pyscf import mf_to_otr  # type: ignore[import-not-found]
    except ImportError:
        return None
    return lambda mf: mf_to_otr(mf).run()


METHODS: dict[str, Callable[[Any], Any] | None] = {
    "DIIS": lambda mf: mf.run(),
    "PySCF's newton": lambda mf: mf.newton().run(),
    "OpenTrustRegion": opentrustregion(),
    "`minimize`, no check": lambda mf: minimize(mf, check=False),
    "`minimize(kick=0.1)`, no check": lambda mf: minimize(mf, kick=0.1, check=False),
    "`minimize`": lambda mf: minimize(mf),
    "`minimize(starts=2)`": lambda mf: minimize(mf, starts=2),
}
NEAR = 1e-4  # Ha: the same minimum


def measure() -> dict[str, dict[str, End]]:
    """Interleaved: all methods for one molecule, then the next."""
    ends: dict[str, dict[str, End]] = {m: {} for m, kernel in METHODS.items() if kernel is not None}
    for name in MOLECULES:
        mol = molecule(name)
        for method in ends:
            kernel = METHODS[method]
            assert kernel is not None
            ends[method][name] = run(kernel, mol)
    return ends


def lowest(ends: dict[str, dict[str, End]], name: str) -> float:
    return min(
        MOLECULES[name][2], *(end[name].energy for end in ends.values() if end[name].minimum)
    )


def summary(ends: dict[str, dict[str, End]]) -> list[str]:
    rows = ["| | " + " | ".join(ends) + " |", "|---" * (len(ends) + 1) + "|"]
    best = {name: lowest(ends, name) for name in MOLECULES}

    def row(title: str, value: Callable[[dict[str, End]], str]) -> None:
        rows.append(f"| {title} | " + " | ".join(value(e) for e in ends.values()) + " |")

    row("converged", lambda e: str(sum(x.converged for x in e.values())))
    row("true minima", lambda e: str(sum(x.minimum and x.converged for x in e.values())))
    row(
        "lowest known energy, and a minimum",
        lambda e: str(sum(x.minimum and x.energy < best[n] + NEAR for n, x in e.items())),
    )
    row("worst miss, mHa", lambda e: f"{1e3 * max(x.energy - best[n] for n, x in e.items()):.1f}")
    row(
        "Fock builds in all",
        lambda e: (
            "–"
            if None in {x.builds for x in e.values()}
            else str(sum(x.builds for x in e.values()))  # type: ignore[misc]
        ),
    )
    row("CPU s in all", lambda e: f"{sum(x.seconds for x in e.values()):.1f}")
    return rows


def details(ends: dict[str, dict[str, End]]) -> list[str]:
    rows = ["| | lowest known, Ha | " + " | ".join(ends) + " |", "|---" * (len(ends) + 2) + "|"]
    for name in MOLECULES:
        best = lowest(ends, name)
        cells = [cell(e[name], best) for e in ends.values()]
        rows.append(f"| {name} | {best:.6f} | " + " | ".join(cells) + " |")
    return rows


def cell(end: End, best: float) -> str:
    """How far above the lowest energy, in mHa, and what else is to be said."""
    miss = 1e3 * (end.energy - best)
    text = "0" if abs(miss) < 1e3 * NEAR else f"{miss:.1f}"
    if not end.converged:
        return text + ", not converged"
    return text if end.minimum else text + ", a saddle"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="also write the page")
    ends = measure()
    text = "\n".join([*summary(ends), "", *details(ends)])
    print(text)
    if parser.parse_args().write:
        before = PAGE.read_text(encoding="utf-8").split(MARK)
        PAGE.write_text(f"{before[0]}{MARK}\n\n{text}\n\n{MARK}{before[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
