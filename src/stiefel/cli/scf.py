"""``stiefel scf``: the energy of a molecule by direct minimisation over orbitals."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from stiefel.applications.scf.files import (
    check_basis,
    check_functional,
    forbid_evaluation,
    read_xyz,
)

from .output import NOT_CONVERGED, Misuse, console, print_json, print_table, refusals


class Method(StrEnum):
    rhf = "rhf"
    uhf = "uhf"
    rks = "rks"
    uks = "uks"
    rohf = "rohf"
    roks = "roks"


def register(app: typer.Typer) -> None:
    app.command("scf")(scf)


def scf(
    molecule: Annotated[Path, typer.Argument(help="An .xyz file, in Å.")],
    basis: Annotated[str, typer.Option(help="A basis set that PySCF knows, such as cc-pvdz.")],
    method: Annotated[Method, typer.Option(help="The kind of mean field.")] = Method.rhf,
    xc: Annotated[str, typer.Option(help="The functional, for rks and uks.")] = "pbe",
    charge: Annotated[int, typer.Option(help="The molecule's charge.")] = 0,
    spin: Annotated[int, typer.Option(min=0, help="Unpaired electrons (2S).")] = 0,
    kick: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Perturb the start by this fraction.")
    ] = 0.0,
    mix: Annotated[float, typer.Option(help="Turn the α frontier orbitals by this angle.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the kick.")] = 0,
    starts: Annotated[int, typer.Option(min=1, help="Run from this many starts.")] = 1,
    diis: Annotated[
        int | None, typer.Option(min=0, help="DIIS cycles before the descent [8, kicked: 0].")
    ] = None,
    check: Annotated[bool, typer.Option(help="Look for saddles, and leave them.")] = True,
    smearing: Annotated[float, typer.Option(min=0.0, help="Fermi–Dirac width, in Ha.")] = 0.0,
    gtol: Annotated[float, typer.Option(help="Allowed gradient norm, in Ha.")] = 1e-6,
    maxfun: Annotated[int, typer.Option(min=2, help="Limit on Fock builds.")] = 1000,
    chkfile: Annotated[Path | None, typer.Option(help="Write a PySCF checkpoint file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON for machines.")] = False,
) -> None:
    """Minimise a Hartree–Fock or Kohn–Sham energy, and say whether it is a minimum.

    Needs PySCF:  pip install pyscf

    Example:  stiefel scf n2.xyz --basis cc-pvdz --kick 0.1
    """
    with refusals():
        mf = mean_field(molecule, basis, method, xc, charge, spin)
    if smearing:
        mf = mf.smearing(smearing)
    if chkfile is not None:
        mf.chkfile = str(chkfile)
    from stiefel.applications.scf import minimize

    with refusals(ValueError, TypeError):
        minimize(
            mf,
            diis=diis,
            kick=kick,
            mix=mix,
            seed=seed,
            starts=starts,
            check=check,
            gtol=gtol,
            maxfun=maxfun,
        )
    _report(mf, as_json)
    if not mf.converged:
        raise typer.Exit(NOT_CONVERGED)


def mean_field(molecule: Path, basis: str, method: Method, xc: str, charge: int, spin: int) -> Any:
    """The PySCF object, or a sentence that says why there is none."""
    try:
        from pyscf import dft, gto, scf
    except ModuleNotFoundError:
        raise Misuse("this command needs PySCF: pip install pyscf") from None
    if method is Method.rhf and spin:
        raise Misuse(f"--spin {spin} needs --method uhf, rohf, uks or roks")
    if method is Method.rks and spin:
        raise Misuse(f"--spin {spin} needs --method uks or roks")
    try:
        forbid_evaluation()
        atoms, basis, xc = read_xyz(molecule), check_basis(basis), check_functional(xc)
    except ValueError as error:
        raise Misuse(str(error)) from error
    try:
        mol = gto.M(atom=atoms, basis=basis, charge=charge, spin=spin, verbose=0)
    except Exception as error:  # PySCF raises many kinds for bad bases and spins
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Misuse(f"PySCF cannot build the molecule: {reason}") from error
    wave = {Method.rhf: scf.RHF, Method.uhf: scf.UHF, Method.rohf: scf.ROHF}
    if method in wave:
        return wave[method](mol)
    density = {Method.rks: dft.RKS, Method.uks: dft.UKS, Method.roks: dft.ROKS}
    mf = density[method](mol)
    mf.xc = xc
    _check_known(mf, xc)
    return mf


def _check_known(mf: Any, xc: str) -> None:
    """A name that libxc does not know is misuse, not a traceback."""
    from pyscf.scf.dispersion import parse_dft

    try:
        name = parse_dft(xc)[0]
        mf._numint.libxc.parse_xc(name)
        mf._numint.libxc.xc_type(name)
        mf.do_disp()
    except Exception as error:  # KeyError, ValueError, NotImplementedError, by name
        reason = str(error).strip("'\"").splitlines()
        raise Misuse(
            f"PySCF does not know the functional {xc!r}: {reason[0] if reason else 'no reason'}"
        ) from error


def _report(mf: Any, as_json: bool) -> None:
    run = mf.minimization
    if as_json:
        print_json(
            {
                "energy": mf.e_tot,
                "gradient_norm": run.result.gradient_norm,
                "fock_builds": run.fock_builds,
                "response_products": run.products,
                "path": [stage._asdict() for stage in run.path],
                "minima": [minimum._asdict() for minimum in run.minima],
                "stable": run.stable,
                "converged": bool(mf.converged),
                "message": run.result.message,
            }
        )
        return
    verdict = {True: "a minimum", False: "not a minimum: try --kick 0.1", None: "no verdict"}
    rows = [
        ("energy", f"{mf.e_tot:.10f} Ha"),
        ("gradient", f"{run.result.gradient_norm:.1e} Ha"),
        ("Fock builds", str(run.fock_builds)),
        ("stability analysis", verdict[run.stable]),
    ]
    if mf.minimization.warnings:
        rows += [("warning", text) for text in mf.minimization.warnings]
    print_table(type(mf).__name__, ("", ""), rows)
    if len(run.minima) > 1:
        console().print(run.table())
    if not mf.converged:
        console(stderr=True).print(run.result.message)
